//! The parts of a guest: a kernel and busybox, fetched but never installed, the binary, and a helper in C.

use super::machine::{Arch, Guest, Kernel};
use crate::commands::{cargo_program, done, target_folder};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names a mirror of Ubuntu, which Debian's package lists do not know.
const MIRROR: &str = "COTENANT_GUESTS_UBUNTU";

/// The one kernel that is from there, of which this machine has no key: a package of Ubuntu 24.04 as it was released,
/// and what it has to be.
const UBUNTU: (&str, &str) = (
    "pool/main/l/linux-signed/linux-image-6.8.0-31-generic_6.8.0-31.31_amd64.deb",
    "fd2ed023c84163e62c73d3b7b613a9b004bd31e335641c23d42bd249e489fbe6",
);

/// Files of one architecture, with one of its kernels.
#[derive(Debug)]
pub struct Parts {
    /// Their place, and the files made from them.
    pub folder: PathBuf,
    pub kernel: PathBuf,
    pub busybox: PathBuf,
    /// Programs of the scenarios besides busybox, by name: Cotenant and `spin`, or measuring ones.
    pub programs: Vec<(&'static str, PathBuf)>,
    /// Libraries of Cotenant; empty if it is linked statically.
    pub libraries: Vec<PathBuf>,
    /// The root of its system's packages; empty where the guest is bare.
    pub packages: PathBuf,
    /// The results of `scripts/test-kubernetes --full`.
    pub built: PathBuf,
}

/// Which binary the guests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// A release, linked statically.
    Release,
    /// The tests' binary, with its libraries. Guests of another architecture than this machine's get the release.
    Built,
}

impl Arch {
    fn is_ours(self) -> bool {
        match self {
            Self::Amd64 => cfg!(target_arch = "x86_64"),
            Self::Arm64 => cfg!(target_arch = "aarch64"),
        }
    }

    fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    fn rust(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The compiler, which links, too; the emulator; and the packages that have them.
    fn tools(self) -> (&'static str, &'static str, &'static str) {
        let amd64 = cfg!(target_arch = "x86_64");
        match self {
            Self::Amd64 if amd64 => ("cc", "qemu-system-x86_64", "gcc libc6-dev qemu-system-x86"),
            Self::Amd64 => {
                let packages = "gcc-x86-64-linux-gnu libc6-dev-amd64-cross qemu-system-x86";
                ("x86_64-linux-gnu-gcc", "qemu-system-x86_64", packages)
            }
            Self::Arm64 if amd64 => {
                let packages = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-system-arm";
                ("aarch64-linux-gnu-gcc", "qemu-system-aarch64", packages)
            }
            Self::Arm64 => ("cc", "qemu-system-aarch64", "gcc libc6-dev qemu-system-arm"),
        }
    }
}

impl Parts {
    /// Gathers missing parts into `guests` in cargo's target folder. The inner error names what is unavailable here,
    /// and the command that gets it.
    ///
    /// # Errors
    /// A broken build, unlike a missing part.
    pub fn gather(root: &Path, guest: &Guest, binary: Binary) -> Result<Result<Self, String>> {
        let arch = guest.arch;
        let (compiler, emulator, packages) = arch.tools();
        for tool in [compiler, emulator] {
            if Command::new(tool).arg("--version").output().is_err() {
                return Ok(Err(format!("there is no {tool}; apt-get install --no-install-recommends {packages}")));
            }
        }
        if Command::new("dpkg").arg("--version").output().is_err() {
            return Ok(Err(
                "there is no dpkg, and kernel and busybox are packages of Debian's; use Debian 12".to_owned()
            ));
        }
        let target = arch.rust();
        if !rust_has(target) {
            return Ok(Err(format!("Rust has no target {target}; rustup target add {target}")));
        }
        let folder = target_folder(root).join("guests");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        // A compiler may be there without the C library that it links.
        let probe = folder.join("probe.c");
        fs::write(&probe, "int main(void) { return 0; }\n").with_context(|| probe.display().to_string())?;
        if done(Command::new(compiler).arg("-static").arg("-o").arg(folder.join("probe")).arg(&probe)).is_err() {
            return Ok(Err(format!(
                "{compiler} links nothing statically; apt-get install --no-install-recommends {packages}"
            )));
        }
        let built = built();
        let programs = guest.system.contents().map_or(&[][..], |contents| contents.built);
        if let Some(name) = programs.iter().find(|name| !built.join(name).exists()) {
            return Ok(Err(format!("{name} is not built; scripts/test-kubernetes --full builds it, in half an hour")));
        }
        if let Some(name) = guest.system.contents().and_then(|contents| contents.ours)
            && let Err(why) = build_go(root, &built, name)
        {
            return Ok(Err(format!("{name} cannot be built: {why:#}")));
        }
        let (kernel, busybox, packages) = match fetch(&folder, guest) {
            Ok(fetched) => fetched,
            Err(why) => return Ok(Err(format!("{why:#}"))),
        };
        let helper = if guest.measures { "follow" } else { "spin" };
        let mut programs = vec![(helper, compile(root, &folder, arch, helper)?)];
        let mut libraries = Vec::new();
        if !guest.measures {
            let cotenant = match binary {
                Binary::Built if arch.is_ours() => copy(root, &folder, &mut libraries)?,
                _ => build(root, &folder, target, compiler)?,
            };
            programs.push(("cotenant", cotenant));
        }
        Ok(Ok(Self { folder, kernel, busybox, programs, libraries, packages, built }))
    }
}

/// A program for the scenarios, linked statically.
fn compile(root: &Path, folder: &Path, arch: Arch, name: &str) -> Result<PathBuf> {
    let (compiler, ..) = arch.tools();
    let program = folder.join(format!("{name}-{}", arch.debian()));
    let source = root.join(format!("xtask/src/guests/scenarios/{name}.c"));
    let options = ["-O1", "-static", "-pthread", "-Wall", "-Werror", "-o"];
    done(Command::new(compiler).args(options).arg(&program).arg(source))?;
    Ok(program)
}

/// As `scripts/test-kubernetes` has it.
fn built() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache"))).unwrap_or_default();
    cache.join("cotenant-control-plane")
}

/// A program of the folder `kubernetes`, linked statically.
fn build_go(root: &Path, to: &Path, name: &str) -> Result<()> {
    let path = format!("{}:/usr/local/go/bin", std::env::var("PATH").unwrap_or_default());
    let line = "CGO_ENABLED=0 exec go build -ldflags=-s -o \"$0/\" \"./cmd/$1\"";
    let sh = &mut Command::new("sh");
    done(sh.args(["-c", line]).arg(to).arg(name).current_dir(root.join("kubernetes")).env("PATH", path)).map(drop)
}

fn rust_has(target: &str) -> bool {
    let found = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    found.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
}

/// The binary that the tests run, without the symbols, which a guest would unpack with an emulated CPU; and the
/// libraries that it loads.
fn copy(root: &Path, folder: &Path, libraries: &mut Vec<PathBuf>) -> Result<PathBuf> {
    // `cargo build` would rebuild it: without the tests' dependencies, others have fewer features.
    let build = ["test", "--quiet", "--workspace", "--all-features", "--no-run"];
    done(Command::new(cargo_program()).args(build).current_dir(root))?;
    let to = folder.join("cotenant");
    done(Command::new("strip").arg("-o").arg(&to).arg(target_folder(root).join("debug/cotenant")))?;
    let loaded = done(Command::new("ldd").arg(&to))?;
    libraries.extend(loaded.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
    Ok(to)
}

/// A release, linked statically, in a target folder of its own: other flags would rebuild everything else each time.
fn build(root: &Path, folder: &Path, target: &str, linker: &str) -> Result<PathBuf> {
    let to = folder.join("cargo");
    let linker_of = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
    done(
        Command::new(cargo_program())
            .args(["build", "--quiet", "--package", "cotenant", "--release", "--target", target])
            .current_dir(root)
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env("CARGO_TARGET_DIR", &to)
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env(linker_of, linker),
    )?;
    Ok(to.join(target).join("release/cotenant"))
}

/// A kernel, busybox and the packages of the guest's system, unpacked.
fn fetch(folder: &Path, guest: &Guest) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let arch = guest.arch;
    let name = arch.debian();
    let missing = |what: &str| {
        format!("{what} cannot be had; get online, check /etc/apt/sources.list (Debian 12) and try `apt-get update`")
    };
    let debian = Packages::at(folder.join(name), arch, None)?;
    let stable = debian
        .image(&["busybox-static"])
        .with_context(|| missing(&format!("the packages linux-image-cloud-{name} and busybox-static:{name}")))?;
    let busybox = debian.unpacked().join("bin/busybox");
    if !busybox.exists() {
        bail!("{}: no busybox; remove the folder and try again", debian.unpacked().display());
    }
    let system = guest.system;
    let packages = match system.contents() {
        None => PathBuf::new(),
        Some(contents) => {
            let packages = debian.beside(folder.join(format!("{name}-{}", system.name())))?;
            packages.all(contents.packages).with_context(|| missing(&contents.packages.join(", ")))?
        }
    };
    let found = match guest.kernel {
        Kernel::Stable => stable,
        Kernel::Backports | Kernel::Newest => {
            let (folder_of, suite) = match guest.kernel {
                Kernel::Newest => ("newest", "trixie-backports"),
                _ => ("backports", "bookworm-backports"),
            };
            let source = format!("deb {} {suite} main\n", mirror(&debian)?);
            let backports = Packages::at(folder.join(format!("{name}-{folder_of}")), arch, Some(&source))?;
            backports.image(&[]).with_context(|| missing(&format!("the kernel of {suite}")))?
        }
        Kernel::Ubuntu => {
            let mirror = std::env::var(MIRROR).with_context(|| {
                format!("the kernel is Ubuntu's; set {MIRROR} to the address of a mirror, as http://MIRROR/ubuntu")
            })?;
            let address = format!("{}/{}", mirror.trim_end_matches('/'), UBUNTU.0);
            let ubuntu = Packages::at(folder.join(format!("{name}-ubuntu")), arch, None)?;
            ubuntu.given(&address, UBUNTU.1).with_context(|| missing(&address))?
        }
    };
    Ok((found, busybox, packages))
}

/// The mirror from which this machine has Debian 12; it has backports, too.
fn mirror(debian: &Packages) -> Result<String> {
    let targets = done(
        &mut debian.apt("apt-get", &["indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]),
    )?;
    let mirror = targets.lines().find_map(|line| line.strip_prefix("bookworm "));
    let mirror =
        mirror.context("/etc/apt/sources.list names no bookworm, so there is nowhere to get backports from")?;
    Ok(mirror.to_owned())
}

/// Packages in a folder with their own lists, so that the machine's architectures and packages stay unchanged, without
/// root.
struct Packages {
    at: PathBuf,
    arch: Arch,
    options: Vec<String>,
}

impl Packages {
    /// `source`: other than the machine's own lists.
    fn at(at: PathBuf, arch: Arch, source: Option<&str>) -> Result<Self> {
        for folder in ["lists/partial", "cache/archives/partial", "deb"] {
            fs::create_dir_all(at.join(folder)).with_context(|| at.display().to_string())?;
        }
        let set = |name: &str, value: &str| ["-o".to_owned(), format!("{name}={value}")];
        let path = |name: &str| at.join(name).display().to_string();
        let mut options = [
            set("APT::Architecture", arch.debian()),
            set("APT::Architectures", arch.debian()),
            set("APT::Sandbox::User", ""),
            set("Acquire::Languages", "none"),
            set("Dir::State::Lists", &path("lists")),
            set("Dir::State::status", "/dev/null"),
            set("Dir::Cache", &path("cache")),
        ]
        .concat();
        if let Some(source) = source {
            fs::write(at.join("sources.list"), source).with_context(|| path("sources.list"))?;
            options.extend(set("Dir::Etc::sourcelist", &path("sources.list")));
            options.extend(set("Dir::Etc::sourceparts", "-"));
        }
        Ok(Self { at, arch, options })
    }

    /// Others by the same lists, in another folder.
    fn beside(&self, at: PathBuf) -> Result<Self> {
        fs::create_dir_all(at.join("deb")).with_context(|| at.display().to_string())?;
        Ok(Self { at, arch: self.arch, options: self.options.clone() })
    }

    fn apt(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options).args(args).current_dir(self.at.join("deb"));
        command
    }

    fn unpacked(&self) -> PathBuf {
        self.at.join("root")
    }

    /// The kernel for clouds, unpacked with `others`; fetched if missing.
    fn image(&self, others: &[&str]) -> Result<PathBuf> {
        if let Ok(found) = self.kernel() {
            return Ok(found);
        }
        done(&mut self.apt("apt-get", &["-qq", "update"]))?;
        let kernel = format!("linux-image-cloud-{}", self.arch.debian());
        let image = self.needed(&kernel, "linux-image-")?;
        let image = image.with_context(|| format!("{kernel} names no kernel; is /etc/apt/sources.list Debian's?"))?;
        // Newer ones have the kernel in a package of its own.
        let image = self.needed(&image, "linux-binary-")?.unwrap_or(image);
        done(self.apt("apt-get", &["-qq", "download", &image]).args(others))?;
        self.unpack()?;
        self.kernel()
    }

    /// The package that another one needs whose name begins so.
    fn needed(&self, package: &str, beginning: &str) -> Result<Option<String>> {
        let depends = done(&mut self.apt("apt-cache", &["depends", package]))?;
        let found = depends.split_whitespace().find(|word| word.starts_with(beginning) && *word != package);
        Ok(found.map(ToOwned::to_owned))
    }

    /// These packages, unpacked; fetched if missing. Returns their root.
    fn all(&self, names: &[&str]) -> Result<PathBuf> {
        let unpacked = self.at.join("unpacked");
        let wanted = names.join(" ");
        if fs::read_to_string(&unpacked).is_ok_and(|there| there == wanted) {
            return Ok(self.unpacked());
        }
        let download = || done(self.apt("apt-get", &["-qq", "download"]).args(names));
        if download().is_err() {
            // The lists are old, or not there.
            done(&mut self.apt("apt-get", &["-qq", "update"]))?;
            download()?;
        }
        self.unpack()?;
        fs::write(&unpacked, wanted).with_context(|| unpacked.display().to_string())?;
        Ok(self.unpacked())
    }

    /// The kernel of a package that is given by its address and its SHA-256.
    fn given(&self, address: &str, sum: &str) -> Result<PathBuf> {
        if let Ok(found) = self.kernel() {
            return Ok(found);
        }
        done(
            &mut self
                .apt("/usr/lib/apt/apt-helper", &["download-file", address, "linux.deb", &format!("SHA256:{sum}")]),
        )?;
        self.unpack()?;
        self.kernel()
    }

    fn unpack(&self) -> Result<()> {
        for package in fs::read_dir(self.at.join("deb"))? {
            done(Command::new("dpkg").arg("-x").arg(package?.path()).arg(self.unpacked()))?;
        }
        Ok(())
    }

    fn kernel(&self) -> Result<PathBuf> {
        let root = self.unpacked();
        let modules = fs::read_dir(root.join("usr/lib/modules")).into_iter().flatten().flatten();
        let folders = [root.join("boot")].into_iter().chain(modules.map(|version| version.path()));
        let mut files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let kernel = files.find(|file| file.file_name().to_string_lossy().starts_with("vmlinuz"));
        let kernel =
            kernel.with_context(|| format!("{}: no kernel; remove the folder and try again", self.at.display()))?;
        Ok(kernel.path())
    }
}
