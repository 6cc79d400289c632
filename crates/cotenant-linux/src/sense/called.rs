//! Common names of a program whose file has another name: the link through which it was started, its name in the
//! kernel, an interpreter's script.
//!
//! A process chooses its name in the kernel and its arguments. Only root's link to the executed file is proof.

use crate::FsRoot;
use crate::address_space::{self, Door, What};
use crate::bounded;
use crate::sys::{self, Identity};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kernel keeps this many bytes of a name.
const COMM: usize = 15;

/// Bytes of a command line that are read, and arguments that may be a script.
const LINE: u64 = 4 << 10;
const ARGUMENTS: usize = 16;

/// Folders with links to programs, besides the program's own.
const FOLDERS: [&str; 6] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// Beginnings of interpreters' names.
const INTERPRETERS: [&str; 13] =
    ["sh", "dash", "bash", "zsh", "ksh", "mksh", "fish", "python", "perl", "ruby", "node", "php", "tclsh"];

/// Options that exclude a script.
const NO_SCRIPT: [&str; 3] = ["-c", "-e", "-m"];

/// A name of a program that is not its file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The path of a link or script, or a name alone.
    pub name: PathBuf,
    /// Whether root vouches for it, rather than the process itself.
    pub proven: bool,
}

/// By the name that the kernel has: that of the link through which a program was started, of the script, or what the
/// process has put there. `None` where that is the file's own. What was found `before` holds while that is not known.
pub fn by_kernel(fs: &FsRoot, pid: u32, program: &Path, comm: &str, before: Option<&Called>) -> Option<Called> {
    let own = program.file_name()?.as_bytes();
    let own = own.strip_suffix(b" (deleted)").unwrap_or(own);
    let is_own = own == comm.as_bytes() || comm.len() >= COMM && own.starts_with(comm.as_bytes());
    if comm.is_empty() || comm.contains('/') || is_own {
        return None;
    }
    // The folder of the program is where it says.
    let (here, folder, kernels) = (fs.clone(), program.parent()?.to_owned(), comm.to_owned());
    let find = move |door: &Door| {
        let executed = sys::identity(door.path())?;
        let names = [&*folder].into_iter().chain(FOLDERS.map(Path::new)).map(|folder| folder.join(&kernels));
        Ok(names.into_iter().find(|name| is_roots_link(&here, executed, name)))
    };
    let is_it = |name: &Path| name.file_name() == Some(comm.as_ref());
    let link = match address_space::ask(fs, pid, What::Link, find) {
        Err(why) if address_space::is_late(&why) => {
            before.filter(|before| before.proven && is_it(&before.name)).map(|before| before.name.clone())
        }
        link => link.ok().flatten().filter(|link| is_it(link)), // a late answer may be about another name
    };
    let proven = link.is_some();
    Some(Called { name: link.unwrap_or_else(|| comm.into()), proven })
}

/// Whether a name that only root can give is one of the file that is executed.
fn is_roots_link(fs: &FsRoot, executed: Identity, name: &Path) -> bool {
    let find = || {
        let here = |path: &Path| path.to_str().map(|path| fs.path(path));
        let link = fs::symlink_metadata(here(name)?).ok()?;
        let folder = fs::metadata(here(name.parent()?)?).ok()?;
        let file = sys::identity(&here(name)?).ok()?;
        let is_roots = folder.uid() == 0 && folder.mode() & 0o022 == 0 && link.uid() == 0;
        Some(is_roots && (file.device, file.inode) == (executed.device, executed.inode))
    };
    find() == Some(true)
}

/// Whether a program runs scripts.
pub fn is_interpreter(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let rest =
        |with: &&str| name.strip_prefix(*with).is_some_and(|rest| rest.bytes().all(|b| !b.is_ascii_alphabetic()));
    INTERPRETERS.iter().any(rest)
}

/// The script of an interpreter: its first argument that is a file.
///
/// # Errors
/// While it does not answer.
pub fn script(fs: &FsRoot, pid: u32, program: &Path, patient: bool) -> io::Result<Option<Called>> {
    let (here, program) = (fs.clone(), program.to_owned());
    let read = move |door: &Door| Ok(script_of(&here, pid, &program, &bounded::beginning(door.path(), LINE)));
    let ask = if patient { address_space::ask_with_patience } else { address_space::ask };
    match ask(fs, pid, What::Script, read) {
        Err(why) if address_space::is_late(&why) => Err(why),
        script => Ok(script.ok().flatten()),
    }
}

fn script_of(fs: &FsRoot, pid: u32, program: &Path, line: &[u8]) -> Option<Called> {
    let words = line.split(|byte| *byte == 0).skip(1).take(ARGUMENTS).filter_map(|word| str::from_utf8(word).ok());
    let mut words = words.take_while(|word| !NO_SCRIPT.contains(word)).filter(|word| !word.starts_with('-'));
    let folder = fs::read_link(fs.path(&format!("/proc/{pid}/cwd"))).ok()?;
    let path = words.find_map(|word| {
        let path = folder.join(word);
        let is_file = sys::identity(&fs.path(path.to_str()?)).is_ok_and(Identity::is_regular);
        (is_file && path != program).then_some(path)
    })?;
    Some(Called { name: path, proven: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::os::unix::fs::symlink;

    fn machine() -> TempDir {
        let root = TempDir::new("called");
        for (path, text) in
            [("usr/bin/redis-check-rdb", "elf"), ("usr/bin/other", "elf"), ("srv/nightly", "#!/bin/sh\n")]
        {
            root.write(path, text);
        }
        let at = |path: &str| root.path().join(path);
        symlink("redis-check-rdb", at("usr/bin/redis-server")).unwrap();
        symlink(at("usr/bin/redis-check-rdb"), at("srv/mine")).unwrap();
        fs::create_dir_all(at("proc/7")).unwrap();
        symlink(at("usr/bin/redis-check-rdb"), at("proc/7/exe")).unwrap();
        symlink("/srv", at("proc/7/cwd")).unwrap();
        root
    }

    #[test]
    fn a_link_of_roots_to_the_very_file_is_proof() {
        let root = machine();
        let fs = FsRoot::at(root.path());
        let program = Path::new("/usr/bin/redis-check-rdb");
        let of = |comm: &str| by_kernel(&fs, 7, program, comm, None).map(|called| (called.name, called.proven));
        let proves = sys::euid() == 0;
        let name = |path: &str, comm: &str| Some((PathBuf::from(if proves { path } else { comm }), proves));
        assert_eq!(of("redis-server"), name("/usr/bin/redis-server", "redis-server"));
        assert_eq!(of("redis-check-rdb"), None, "it is its own");
        // A name made up by the process, another program's, and another user's link.
        for comm in ["nginx", "other", "mine"] {
            assert_eq!(of(comm), Some((comm.into(), false)));
        }
        if proves {
            std::os::unix::fs::lchown(root.path().join("usr/bin/redis-server"), Some(4_711), None).unwrap();
            assert_eq!(of("redis-server"), Some(("redis-server".into(), false)), "it is another user's link");
        } else {
            eprintln!("skipped in part: only root's links prove anything");
        }
    }

    #[test]
    fn a_script_is_the_file_that_an_interpreter_was_given() {
        let root = machine();
        let fs = FsRoot::at(root.path());
        let of = |line: &str| {
            let line = line.replace(' ', "\0") + "\0";
            script_of(&fs, 7, Path::new("/usr/bin/dash"), line.as_bytes()).map(|called| called.name)
        };
        let nightly = Some(PathBuf::from("/srv/nightly"));
        assert_eq!(of("/bin/sh nightly"), nightly);
        assert_eq!(of("/bin/sh -eu /srv/nightly nginx"), nightly);
        assert_eq!(of("python3 -W ignore nightly"), nightly);
        for none in ["sh", "sh -c nightly", "sh nothing-there", "python3 -m nightly"] {
            assert_eq!(of(none), None, "{none}");
        }
        let is = |name: &str| is_interpreter(&Path::new("/usr/bin").join(name));
        assert!(["dash", "python3.11", "sh", "perl5.36.0", "bash"].into_iter().all(is));
        assert!(!["ssh", "shred", "nodejs-build", "php-fpm8.2"].into_iter().any(is));
    }
}
