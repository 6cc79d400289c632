//! `cargo xtask bpf`: the BPF object from its source. It is committed, so that users need no clang.

use crate::commands::done;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its compiler; another version may choose other instructions.
const CLANG: &str = "clang-19";
const STRIP: &str = "llvm-strip-19";

/// Writes `waits.bpf.o`.
pub fn compile(root: &Path) -> Result<()> {
    let folder = folder(root);
    compile_to(&folder, &folder.join("waits.bpf.o"))?;
    println!("{}", folder.join("waits.bpf.o").display());
    Ok(())
}

fn folder(root: &Path) -> PathBuf {
    root.join("crates/cotenant-bpf/src")
}

/// Needs clang 19, LLVM's tools and the headers of libbpf. The object does not contain the path of its source folder.
fn compile_to(folder: &Path, object: &Path) -> Result<()> {
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let options = ["-g", "-fdebug-compilation-dir=.", "-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"];
    let mut command = Command::new(CLANG);
    command.args(options).args([&headers, "-c", "waits.bpf.c", "-o"]).arg(object).current_dir(folder);
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
    fn the_object_is_made_of_its_source() {
        let folder = folder(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
        let elsewhere = TempDir::new("bpf-object");
        fs::copy(folder.join("waits.bpf.c"), elsewhere.path().join("waits.bpf.c")).unwrap();
        let object = elsewhere.path().join("waits.bpf.o");
        if let Err(why) = compile_to(elsewhere.path(), &object) {
            assert!(!format!("{why:#}").contains("error:"), "{why:#}");
            return eprintln!("skipped: {why:#}");
        }
        let same = fs::read(object).unwrap() == fs::read(folder.join("waits.bpf.o")).unwrap();
        assert!(same, "waits.bpf.o is not what waits.bpf.c gives; run cargo xtask bpf");
    }
}
