//! The compiler pass.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Installs the compiler pass once per process, below the folder `CARGO_TARGET_TMPDIR` of the caller, and returns its
/// data folder. Where a tool is missing it prints `skipped: …` and returns `None`.
pub fn installed(target: &str) -> Option<&'static Path> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let install = || {
        for tool in ["clang-19", "llvm-config-19", "lld-19", "cmake", "c++"] {
            let there = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if there.is_err() {
                return Err(format!("no {tool}; apt-get install cmake make g++ clang-19 llvm-19-dev lld-19"));
            }
        }
        let data = Path::new(target).join("pass-data");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-pass");
        let output = Command::new(script).arg("--debug").env("XDG_DATA_HOME", &data).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Ok(data)
    };
    // Each test that is skipped has to say so.
    INSTALLED.get_or_init(install).as_deref().inspect_err(|why| eprintln!("skipped: {why}")).ok()
}
