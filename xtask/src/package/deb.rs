//! Debian's packages, by Debian's tools: `dpkg-shlibdeps`, `dpkg-gencontrol`, `dpkg-deb`.

use super::build::{Build, strip_variable};
use super::files::{book, copy, copy_program, shared, stage, write};
use super::licences;
use crate::commands::done;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The maintainer's scripts of `cotenant`.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// How packages are made, for any content.
struct Maker<'a> {
    root: &'a Path,
    out: &'a Path,
    version: String,
    time: &'a str,
    /// The compression of dpkg-deb.
    compression: [&'static str; 2],
}

/// All packages of a build; returns their paths.
///
/// # Errors
/// A missing tool; a failed build.
pub(super) fn all(build: &Build<'_>, revision: u32, out: &Path) -> Result<Vec<PathBuf>> {
    let maker = Maker::new(build.root, out, revision, &build.time, ["-Zxz", "-z6"])?;
    let multiarch = done(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))
        .context("there are no Debian tools; apt-get install --no-install-recommends dpkg-dev binutils")?;
    let libdir = format!("lib/{}", multiarch.trim());

    let binary = build.cotenant(None)?;
    let mut made = vec![maker.cotenant(&binary)?];
    made.push(maker.symbols("cotenant", &binary)?);

    let both = stage(out, "libcotenant")?;
    let mut install = Command::new("scripts/install-lib");
    install.args(["--prefix", "/usr", "--libdir", &libdir, "--profile", build.profile]).arg("--destdir").arg(&both);
    done(install.current_dir(build.root).env(strip_variable(build.profile), "none"))?;
    made.extend(maker.library(&both.join("usr"), &libdir)?);
    Ok(made)
}

/// The package `cotenant` alone; returns its path. It is packed and unpacked fast, for tests.
///
/// # Errors
/// As [`all`].
pub(super) fn cotenant(build: &Build<'_>, revision: u32, out: &Path) -> Result<PathBuf> {
    Maker::new(build.root, out, revision, &build.time, ["-Zgzip", "-z1"])?.cotenant(&build.cotenant(None)?)
}

impl<'a> Maker<'a> {
    fn new(
        root: &'a Path,
        out: &'a Path,
        revision: u32,
        time: &'a str,
        compression: [&'static str; 2],
    ) -> Result<Self> {
        let version = format!("{}-{revision}", env!("CARGO_PKG_VERSION"));
        let date = done(Command::new("date").args(["--utc", "--rfc-email", &format!("--date=@{time}")]))?;
        let control = fs::read_to_string(root.join("packaging/debian/control"))?;
        let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
        let maintainer = maintainer.context("packaging/debian/control names a maintainer")?;
        let changelog = format!(
            "cotenant ({version}) unstable; urgency=medium\n\n  * What changed: changelog.gz.\n\n -- {maintainer}  {date}"
        );
        let maker = Self { root, out, version, time, compression };
        write(&maker.changelog(), changelog.as_bytes())?;
        Ok(maker)
    }

    fn changelog(&self) -> PathBuf {
        self.out.join("stage/changelog")
    }

    fn cotenant(&self, binary: &Path) -> Result<PathBuf> {
        let name = "cotenant";
        let tree = stage(self.out, name)?;
        let program = tree.join("usr/bin/cotenant");
        copy_program(binary, &program)?;
        done(Command::new("strip").args(["--strip-all", "--remove-section=.comment"]).arg(&program))?;
        let packaging = self.root.join("packaging");
        copy(&packaging.join("systemd/cotenant.service"), &tree.join("usr/lib/systemd/system/cotenant.service"))?;
        copy(&packaging.join("cotenant.toml"), &tree.join("etc/cotenant/cotenant.toml"))?;
        fs::create_dir(tree.join("etc/cotenant/conf.d"))?;
        shared(self.root, &tree.join("usr/share"), "zsh/vendor-completions/_cotenant")?;
        for page in fs::read_dir(tree.join("usr/share/man/man1"))? {
            compressed(&page?.path())?;
        }
        self.documents(&tree, name)?;
        book(self.root, &tree.join("usr/share/doc/cotenant"))?;
        let licences = tree.join("usr/share/doc/cotenant/third-party.txt");
        write(&licences, licences::text(self.root, &host_target()?)?.as_bytes())?;
        compressed(&licences)?;

        let control = tree.join("DEBIAN");
        write(&control.join("conffiles"), b"/etc/cotenant/cotenant.toml\n")?;
        for script in SCRIPTS {
            copy_program(&packaging.join(format!("debian/cotenant.{script}")), &control.join(script))?;
        }
        self.build(name, &tree, &[&program], &[])
    }

    /// The debug symbols of a program or a library, where debuggers look for them: by the build's id.
    fn symbols(&self, of: &str, binary: &Path) -> Result<PathBuf> {
        let notes = done(Command::new("readelf").arg("--notes").arg(binary))?;
        let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).map(str::to_owned);
        let Some(id) = id.filter(|id| id.len() > 2) else {
            bail!("{}: has no build id; link it with a linker that writes one", binary.display());
        };
        let name = format!("{of}-dbgsym");
        let tree = stage(self.out, &name)?;
        let file = tree.join(format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
        write(&file, b"")?;
        done(Command::new("objcopy").args(["--only-keep-debug", "--compress-debug-sections"]).args([binary, &file]))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        let doc = tree.join("usr/share/doc").join(&name);
        fs::create_dir_all(tree.join("usr/share/doc"))?;
        std::os::unix::fs::symlink(of, doc)?;
        self.build(&name, &tree, &[], &["-DAuto-Built-Package=debug-symbols".into(), format!("-DBuild-Ids={id}")])
    }

    /// The shared library, its symbols, and the files for building with it, from the folders of `scripts/install-lib`.
    fn library(&self, from: &Path, libdir: &str) -> Result<Vec<PathBuf>> {
        let name = "libcotenant0";
        let built = from.join(libdir).join("libcotenant.so.0");
        let tree = stage(self.out, name)?;
        let folder = tree.join("usr").join(libdir);
        let [library, mpi] = ["libcotenant.so.0", "libcotenant-mpi.so.0"].map(|file| folder.join(file));
        copy(&built, &library)?;
        copy(&from.join(libdir).join("libcotenant-mpi.so.0"), &mpi)?;
        done(Command::new("strip").args(["--strip-unneeded", "--remove-section=.comment"]).args([&library, &mpi]))?;
        self.documents(&tree, name)?;
        let control = tree.join("DEBIAN");
        let upstream = self.version.split('-').next().unwrap_or_default();
        let shlibs = ["libcotenant", "libcotenant-mpi"].map(|library| format!("{library} 0 {name} (>= {upstream})\n"));
        write(&control.join("shlibs"), shlibs.concat().as_bytes())?;
        write(&control.join("triggers"), b"activate-noawait ldconfig\n")?;
        let mut made = vec![self.build(name, &tree, &[&library], &[])?, self.symbols(name, &built)?];

        let name = "libcotenant-dev";
        let tree = stage(self.out, name)?;
        let usr = tree.join("usr");
        copy(&from.join("include/cotenant.h"), &usr.join("include/cotenant.h"))?;
        for file in ["libcotenant.a", "pkgconfig/cotenant.pc"] {
            copy(&from.join(libdir).join(file), &usr.join(libdir).join(file))?;
        }
        let archive = usr.join(libdir).join("libcotenant.a");
        done(Command::new("strip").args(["--strip-debug", "--enable-deterministic-archives"]).arg(archive))?;
        std::os::unix::fs::symlink("libcotenant.so.0", usr.join(libdir).join("libcotenant.so"))?;
        self.documents(&tree, name)?;
        made.push(self.build(name, &tree, &[], &[])?);
        Ok(made)
    }

    /// The files of each package's folder of documents.
    fn documents(&self, tree: &Path, name: &str) -> Result<()> {
        let doc = tree.join("usr/share/doc").join(name);
        copy(&self.root.join("packaging/debian/copyright"), &doc.join("copyright"))?;
        for (from, to) in [(self.root.join("CHANGELOG.md"), "changelog"), (self.changelog(), "changelog.Debian")] {
            copy(&from, &doc.join(to))?;
            compressed(&doc.join(to))?;
        }
        Ok(())
    }

    /// Makes a package of a tree; it depends on the libraries of the programs and libraries in `linked`.
    fn build(&self, name: &str, tree: &Path, linked: &[&Path], options: &[String]) -> Result<PathBuf> {
        // dpkg-shlibdeps looks for debian/control in its working folder.
        let debian = self.root.join("packaging");
        let substvars = self.out.join(format!("stage/{name}.substvars"));
        write(&substvars, b"")?;
        let dynamic = |path: &&&Path| {
            done(Command::new("readelf").arg("--dynamic").arg(path)).is_ok_and(|text| is_dynamic(&text))
        };
        let dynamic: Vec<&&Path> = linked.iter().filter(dynamic).collect();
        if !dynamic.is_empty() {
            let to = option("-T", &substvars);
            let mut shlibdeps = Command::new("dpkg-shlibdeps");
            done(shlibdeps.arg(to).arg(option("-S", tree)).args(dynamic).current_dir(&debian))?;
        }
        let control = tree.join("DEBIAN");
        write(&control.join("md5sums"), sums(tree)?.as_bytes())?;
        // Independent of the umask.
        done(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(tree))?;
        fs::set_permissions(&control, fs::Permissions::from_mode(0o755))?;
        // It writes a list of packages, too, by replacing the file that is named: never a device.
        let files = self.out.join("stage/files");
        let mut gencontrol = Command::new("dpkg-gencontrol");
        gencontrol.arg(format!("-p{name}")).arg(option("-T", &substvars)).arg(option("-P", tree));
        gencontrol.arg(option("-l", &self.changelog())).arg(option("-f", &files)).args(options);
        done(gencontrol.arg(option("-O", &control.join("control"))).current_dir(&debian))?;

        let architecture = done(Command::new("dpkg").arg("--print-architecture"))?;
        let to = self.out.join(format!("{name}_{}_{}.deb", self.version, architecture.trim()));
        eprintln!("packing {}", to.display());
        let mut deb = Command::new("dpkg-deb");
        deb.arg("--root-owner-group")
            .args(self.compression)
            .arg("--build")
            .arg(tree)
            .arg(&to)
            .env("SOURCE_DATE_EPOCH", self.time);
        done(&mut deb)?;
        Ok(to)
    }
}

/// By gzip, so that the same text gives the same file.
fn compressed(file: &Path) -> Result<()> {
    done(Command::new("gzip").args(["--no-name", "--best", "--force"]).arg(file)).map(drop)
}

/// Whether readelf names a library that is needed. A static program has no such section, or a position-independent one
/// a section without.
fn is_dynamic(section: &str) -> bool {
    section.contains("(NEEDED)")
}

fn option(name: &str, path: &Path) -> std::ffi::OsString {
    [OsStr::new(name), path.as_os_str()].into_iter().collect()
}

/// As `md5sum` prints them, by paths from the package's root.
fn sums(tree: &Path) -> Result<String> {
    let list = "find . -path ./DEBIAN -prune -o -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 -r md5sum";
    done(Command::new("sh").args(["-c", list]).current_dir(tree))
}

/// The default target of rustc.
fn host_target() -> Result<String> {
    let version = done(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc says for what it builds")?.to_owned())
}
