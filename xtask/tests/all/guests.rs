//! The guests where something that they need cannot be had: what is missing is skipped, with the command that gets
//! it, and nothing fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of programs; removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("cotenant-guests-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&folder.0);
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a guest of this machine's own architecture, for which the compiler `cc` is used.
fn guests(path: &str, target: &Path) -> String {
    let guest = if cfg!(target_arch = "aarch64") { "arm" } else { "one-cpu" };
    let mut chore = Command::new(env!("CARGO_BIN_EXE_xtask"));
    chore.args(["guests", "--quick", "--only", guest]).env("PATH", path).env("CARGO_TARGET_DIR", target);
    let out = chore.output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.ends_with("0 passed, 0 failed, 3 skipped\n"), "{said}");
    said
}

fn emulator() -> &'static str {
    if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" }
}

#[test]
fn without_the_emulator_guests_are_skipped() {
    let folder = Folder::new("emulator");
    folder.script("cc", "exit 0");
    let said = guests(folder.0.to_str().unwrap(), &folder.0);
    assert!(said.contains(&format!("skipped: there is no {}; apt-get install ", emulator())), "{said}");
}

#[test]
fn without_the_c_library_guests_are_skipped() {
    let folder = Folder::new("library");
    folder.script("cc", "[ \"$1\" = --version ]");
    folder.script(emulator(), "exit 0");
    folder.script("dpkg", "exit 0");
    let said = guests(&with_rust(&folder), &folder.0);
    assert!(said.contains("skipped: cc links nothing statically; apt-get install "), "{said}");
}

#[test]
fn without_the_kernel_package_guests_are_skipped() {
    let folder = Folder::new("kernel");
    for tool in ["cc", "dpkg", emulator()] {
        folder.script(tool, "exit 0");
    }
    folder.script("apt-get", "echo 'E: Could not resolve example.org' >&2; exit 100");
    let said = guests(&with_rust(&folder), &folder.0);
    assert!(said.contains("packages linux-image-cloud-"), "{said}");
    assert!(said.contains("try `apt-get update`") && said.contains("Could not resolve"), "{said}");
}

/// These programs, then Rust's own, past a proxy that would want a home.
fn with_rust(folder: &Folder) -> String {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    format!("{}:{}/bin:/bin", folder.0.display(), String::from_utf8(sysroot.stdout).unwrap().trim())
}
