//! `cargo xtask bpf`: the BPF objects from their sources. They are committed, so that users need no clang.

use crate::commands::done;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its compiler; another version may choose other instructions.
const CLANG: &str = "clang-19";
const STRIP: &str = "llvm-strip-19";

const OBJECTS: [&str; 2] = ["waits", "requests"];

/// Writes `waits.bpf.o` and `requests.bpf.o`.
pub fn compile(root: &Path) -> Result<()> {
    let folder = folder(root);
    for name in OBJECTS {
        let object = folder.join(format!("{name}.bpf.o"));
        compile_to(&folder, name, &object)?;
        println!("{}", object.display());
    }
    Ok(())
}

fn folder(root: &Path) -> PathBuf {
    root.join("crates/cotenant-bpf/src")
}

/// Needs clang 19, LLVM's tools and the headers of libbpf. The folder that the source lies in is not in the object.
fn compile_to(folder: &Path, name: &str, object: &Path) -> Result<()> {
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let options = ["-g", "-fdebug-compilation-dir=.", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"];
    let mut command = Command::new(CLANG);
    command.args(options).args([&headers, "-c", &format!("{name}.bpf.c"), "-o"]).arg(object).current_dir(folder);
    let compile = done(&mut command);
    compile.with_context(|| format!("install {CLANG}, llvm-19 and libbpf-dev"))?;
    // Debug information is removed, types for the kernel stay.
    done(Command::new(STRIP).arg("-g").arg(object)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::fs;

    #[test]
    fn the_objects_are_made_of_their_sources() {
        let folder = folder(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
        let elsewhere = TempDir::new("bpf-object");
        let copy = |file: &str| fs::copy(folder.join(file), elsewhere.path().join(file)).unwrap();
        copy("common.bpf.h");
        for name in OBJECTS {
            copy(&format!("{name}.bpf.c"));
            let object = elsewhere.path().join(format!("{name}.bpf.o"));
            if let Err(why) = compile_to(elsewhere.path(), name, &object) {
                assert!(!format!("{why:#}").contains("error:"), "{why:#}");
                return eprintln!("skipped: {why:#}");
            }
            let same = fs::read(object).unwrap() == fs::read(folder.join(format!("{name}.bpf.o"))).unwrap();
            assert!(same, "{name}.bpf.o is not what {name}.bpf.c gives; run cargo xtask bpf");
        }
    }
}
