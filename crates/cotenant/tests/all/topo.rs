//! `cotenant topo`, as a user runs it.

use cotenant_cli::machine_arg;
use cotenant_model::topology::symmetry::Symmetry;
use cotenant_model::topology::{render, svg};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn topo(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.arg("topo").args(args).env("XDG_DATA_HOME", "/proc/nonexistent").output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let out = topo(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn json_counts_what_the_machine_has() {
    for (from, counts) in [
        ("ivy-bridge-2s", [2, 2, 2, 20, 40]),
        ("tilepro64", [1, 4, 64, 64, 64]),
        ("package:2 l3:4 l2:2 core:1 pu:2", [2, 1, 8, 16, 32]),
    ] {
        let json: serde_json::Value = serde_json::from_str(&stdout(&["--from", from, "--json"])).unwrap();
        let keys = ["packages", "numa_nodes", "llc_domains", "cores", "cpus"];
        assert_eq!(keys.map(|key| json[key].as_u64().unwrap()), counts, "{from}");
        assert!(json["tree"].is_object(), "{from}");
    }
}

#[test]
fn a_tree_is_the_default_and_a_picture_goes_to_its_file() {
    assert!(stdout(&["--from", "clovertown-2s"]).contains("Package 0, Bus 10.6 GB/s: CPUs 0-3"));
    let picture = scratch("picture.svg");
    assert_eq!(stdout(&["--from", "clovertown-2s", "--svg", picture.to_str().unwrap()]), "");
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg "));
}

#[test]
fn what_is_gathered_reads_as_this_machine() {
    let folder = scratch("gathered");
    let gathered = topo(&["--gather", folder.to_str().unwrap()]);
    if !gathered.status.success() {
        eprintln!("skipped: sysfs is hidden here: {}", String::from_utf8_lossy(&gathered.stderr));
        return;
    }
    let machine = |args: &[&str]| {
        let mut json: serde_json::Value = serde_json::from_str(&stdout(args)).unwrap();
        json["name"].take();
        json
    };
    assert_eq!(machine(&["--json", "--from", folder.to_str().unwrap()]), machine(&["--json"]));
}

#[test]
fn errors_name_what_was_given() {
    for (args, code, text) in [
        (&["--from", "no-such-machine"][..], 2, "no-such-machine"),
        (&["--from", "x3320", "--gather", "x"], 2, "--gather"),
        (&["--from", "x3320", "--svg", "/no/such/folder/x.svg"], 2, "/no/such/folder/x.svg"),
    ] {
        let out = topo(args);
        assert_eq!(out.status.code(), Some(code), "{args:?}");
        assert!(String::from_utf8_lossy(&out.stderr).contains(text), "{args:?}");
    }
}

#[test]
fn the_machines_of_the_papers_have_exact_symmetries_and_fit_on_a_screen() {
    for name in machine_arg::names() {
        let topology = machine_arg::resolve(Some(name)).unwrap().machine.topology;
        assert!(Symmetry::new(&topology).is_exact(), "{name}");
        let tree = render::text(&topology);
        assert!(tree.lines().count() <= 45 && tree.lines().all(|line| line.chars().count() <= 120), "{tree}");
        assert!(svg::svg(&topology).contains(name));
    }
}
