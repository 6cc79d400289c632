//! The compiler pass, installed for tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The data folder of a user who has run `scripts/install-pass`; `None` where that cannot be done here.
pub fn installed() -> Option<&'static Path> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let install = || {
        for tool in ["clang-19", "llvm-config-19", "lld-19", "cmake", "c++"] {
            let there = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if there.is_err() {
                return Err(format!("no {tool}; apt-get install cmake make g++ clang-19 llvm-19-dev lld-19"));
            }
        }
        let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pass-data");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-pass");
        let output = Command::new(script).arg("--debug").env("XDG_DATA_HOME", &data).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Ok(data)
    };
    // Each test that cannot run says so, not only the first one that asks.
    INSTALLED.get_or_init(install).as_deref().inspect_err(|why| eprintln!("skipped: {why}")).ok()
}
