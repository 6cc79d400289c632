//! The output of `topo --gather` reads as the saved machine, by Cotenant and by hwloc.

use crate::oracle::{Seen, dump, lstopo};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::topology;
use cotenant_linux::sense::topology::archive::save;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that does not exist yet.
fn scratch(test: &str, name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gather-{test}-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn as_hwloc_sees(test: &str, args: &[&str]) -> Option<Seen> {
    let all = [args, &["-v", "--no-io", "--of", "console"]].concat();
    lstopo(test, &all).map(|view| Seen::console(&view))
}

fn check(test: &str, name: &str) {
    let Some(root) = dump(test, name) else { return };
    let to = scratch(test, name);
    save(&FsRoot::at(&root), &to).unwrap();
    let read = |path: &Path| topology::read(&FsRoot::at(path), None).unwrap();
    assert_eq!(read(&to).topology.parts(), read(&root).topology.parts(), "{name}");
    let seen = |path: &Path| as_hwloc_sees(test, &["--input", path.to_str().unwrap()]);
    assert_eq!(seen(&to), seen(&root), "{name}");
}

/// Those that differ in kind; the largest would only take long.
#[test]
fn dumps_survive() {
    for name in [
        "16amd64-8n2c-cpusets",
        "16em64t-4s2c2t-offlines",
        "20em64t-hybrid-1p6c2t+2ca4co1t",
        "2arm-2c",
        "48amd64-4pa2n6c-sparse",
        "64amd64-4s2n4ca2co",
        "8em64t-2s2ca2c-buggynuma",
        "8em64t-2s4c-asymcaches",
    ] {
        check("dumps_survive", name);
    }
}

#[test]
fn this_machine_as_archive() {
    let test = "this_machine_as_archive";
    let Ok(live) = topology::live() else {
        eprintln!("skipped: {test}: sysfs is hidden here");
        return;
    };
    let folder = scratch(test, "out");
    std::fs::create_dir_all(&folder).unwrap();
    let archive = folder.join("this.tar");
    let files = save(&FsRoot::live(), &archive).unwrap();
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&folder).status();
    assert!(unpacked.unwrap().success(), "tar refuses {}", archive.display());
    let listed = Command::new("tar").arg("-tf").arg(&archive).output().unwrap().stdout;
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), files);
    let saved = topology::read(&FsRoot::at(folder.join("this")), None).unwrap();
    assert_eq!(saved.topology.parts(), live.topology.parts());
    let Some(theirs) = as_hwloc_sees(test, &[]) else { return };
    assert_eq!(as_hwloc_sees(test, &["--input", folder.join("this").to_str().unwrap()]), Some(theirs));
}
