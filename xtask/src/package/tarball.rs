//! The tarball: a static binary with its files, to be unpacked over a prefix such as `/usr/local`.

use super::build::Build;
use super::files::{book, copy, copy_program, shared, stage, write};
use super::licences;
use crate::commands::done;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// With musl a binary needs nothing of the machine. (With glibc it would load parts of it to resolve names.)
fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// The missing requirement, and how to get it.
pub fn missing() -> Option<String> {
    let target = target();
    let found = done(Command::new("rustc").args(["--print", "target-libdir", "--target", &target]));
    if !found.is_ok_and(|folder| Path::new(folder.trim()).is_dir()) {
        return Some(format!("there is no Rust for {target}; rustup target add {target}"));
    }
    let compiler = Command::new("musl-gcc").arg("--version").output();
    compiler.is_err().then(|| "there is no musl-gcc; apt-get install --no-install-recommends musl-tools".to_owned())
}

/// Makes it.
///
/// # Errors
/// It cannot be built.
pub fn make(build: &Build<'_>, out: &Path) -> Result<PathBuf> {
    let target = target();
    let binary = build.cotenant(Some(&target))?;
    let name = format!("cotenant-{}-{target}", env!("CARGO_PKG_VERSION"));
    let folder = stage(out, &name)?;
    let program = folder.join("bin/cotenant");
    copy_program(&binary, &program)?;
    done(Command::new("strip").arg("--strip-all").arg(&program))?;
    let (root, share) = (build.root, folder.join("share"));
    shared(root, &share, "zsh/site-functions/_cotenant")?;
    copy(&root.join("packaging/systemd/cotenant.service"), &share.join("cotenant/systemd/cotenant.service"))?;
    copy(&root.join("packaging/cotenant.toml"), &share.join("cotenant/cotenant.toml"))?;
    let doc = share.join("doc/cotenant");
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root.join(file), &doc.join(file))?;
    }
    book(root, &doc)?;
    write(&doc.join("third-party.txt"), licences::text(root, &target)?.as_bytes())?;
    let tarball = out.join(format!("{name}.tar.xz"));
    eprintln!("packing {}", tarball.display());
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--xz").arg("--file").arg(&tarball).arg("--directory").arg(out.join("stage"));
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    done(tar.arg(format!("--mtime=@{}", build.time)).arg(&name))?;
    Ok(tarball)
}
