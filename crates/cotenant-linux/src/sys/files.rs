//! Files and descriptors: locks, links, seals, limits.

use super::{check, owned};
use std::ffi::{CStr, CString, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// The way in which [`flock`] takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Waits for it.
    Wait,
    /// Fails with `EWOULDBLOCK` if another open file has it.
    Try,
}

/// Takes the exclusive advisory lock of an open file; closing the file, or the process's end, releases it.
///
/// # Errors
/// `EWOULDBLOCK` under [`Lock::Try`]; `ENOLCK` on file systems without locks.
pub(crate) fn flock(file: impl AsFd, how: Lock) -> io::Result<()> {
    let op = libc::LOCK_EX | if how == Lock::Try { libc::LOCK_NB } else { 0 };
    loop {
        // SAFETY: takes no pointers; the descriptor is open as long as it is borrowed.
        match check(unsafe { libc::flock(file.as_fd().as_raw_fd(), op) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Whether the loader currently finds a shared library of this name; a found one is loaded.
pub fn loads(library: &CStr) -> bool {
    // SAFETY: the name is a C string. Loading runs constructors, so only our own libraries are requested.
    unsafe { !libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL).is_null() }
}

/// Target of the symbolic link `number` in an open folder, truncated to `buffer`.
pub fn read_link_at<'a>(folder: &File, number: u32, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let name = CString::new(number.to_string()).ok()?;
    // SAFETY: the name is a C string, the buffer writable for its length, the descriptor open.
    let got = unsafe { libc::readlinkat(folder.as_raw_fd(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.get(..usize::try_from(got).ok()?)
}

/// References the file `number` in an open folder without opening it: it can be examined without effects.
///
/// # Errors
/// `ENOENT`, `EACCES`, `EMFILE`.
pub fn open_path_at(folder: &File, number: u32) -> io::Result<File> {
    let name = CString::new(number.to_string())?;
    // SAFETY: the name is a C string, the descriptor open.
    let fd = check(unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) })?;
    Ok(owned(fd).into())
}

/// Which file it is, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its number there.
    pub inode: u64,
    /// Its user.
    pub uid: u32,
    /// Type and permissions.
    pub mode: u32,
}

impl Identity {
    /// Whether it is no folder, pipe, device or socket.
    pub fn is_regular(self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// The kernel's own knowledge of a file. A serving program is not asked, since it may be another user's, and never
/// answer (FUSE, also below an overlay).
///
/// # Errors
/// `ENOENT`, `EACCES`.
pub fn identity(path: &Path) -> io::Result<Identity> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    identity_at(libc::AT_FDCWD, &path, 0)
}

/// The same of an open file.
///
/// # Errors
/// Never for a file that is on this machine.
pub fn identity_of(file: &File) -> io::Result<Identity> {
    identity_at(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn identity_at(folder: c_int, path: &CStr, flags: c_int) -> io::Result<Identity> {
    // SAFETY: all bytes of this plain struct may be zero.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // No field is requested: the basic ones are returned anyway, without asking a server.
    let (flags, mask) = (flags | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT, 0);
    // SAFETY: the path is a C string, the struct writable, the descriptor open.
    check(unsafe { libc::statx(folder, path.as_ptr(), flags, mask, &raw mut found) })?;
    let (device, mode) = ((found.stx_dev_major, found.stx_dev_minor), found.stx_mode.into());
    Ok(Identity { device, inode: found.stx_ino, uid: found.stx_uid, mode })
}

/// The seals of a file in memory; `None` for any other.
pub fn seals(file: &File) -> Option<c_int> {
    // SAFETY: takes no pointers; the descriptor is open.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) }).ok()
}

/// Whether a file is anonymous memory (memfd) of ordinary pages: those of hugetlbfs can be missing, which kills a
/// reader. Told by its device: a file system that is asked for its kind may be served by a program that never answers.
pub fn is_memfd(file: Identity) -> bool {
    static DEVICE: OnceLock<(u32, u32)> = OnceLock::new();
    let ours = || {
        // SAFETY: the name is a C string.
        let fd = check(unsafe { libc::memfd_create(c"cotenant-device".as_ptr(), libc::MFD_CLOEXEC) })?;
        identity_of(&owned(fd).into()).map(|file| file.device)
    };
    // A failure, as without descriptors, may pass.
    let device = DEVICE.get().copied().or_else(|| ours().ok().map(|device| *DEVICE.get_or_init(|| device)));
    device == Some(file.device)
}

/// Makes reads from a descriptor fail with `EAGAIN` instead of waiting.
///
/// # Errors
/// Never for an open descriptor.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: takes no pointers; the descriptor is open.
    check(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }).map(|_| ())
}

/// Writes to a descriptor in one system call. Async-signal-safe.
///
/// # Errors
/// As `write`; `EIO` for a partial write.
pub fn write_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes are readable for their length; the descriptor is open as long as it is borrowed.
    let written = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    match usize::try_from(written) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The soft limit of open files before the first [`raise_nofile`].
static OUTER_NOFILE: OnceLock<u64> = OnceLock::new();

/// Raises this process's soft limit of open files to the hard one; returns the current limit. Started programs get the
/// old one back, see [`restore_nofile`]: some use all allowed descriptors, or `select`.
pub fn raise_nofile() -> u64 {
    let mut limit = nofile();
    OUTER_NOFILE.get_or_init(|| limit.rlim_cur);
    let before = std::mem::replace(&mut limit.rlim_cur, limit.rlim_max);
    if set_nofile(&limit).is_ok() { limit.rlim_cur } else { before }
}

/// Limit of this process's open files.
pub fn nofile_limit() -> u64 {
    nofile().rlim_cur
}

/// Whether the first page of a file exists and is no hole.
pub fn begins_with_data(file: &File) -> bool {
    // SAFETY: takes no pointers; the descriptor is open.
    unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) == 0 }
}

/// Undoes [`raise_nofile`] in this process, within the hard limit. Async-signal-safe if that was called before or
/// never.
///
/// # Errors
/// Never for a limit that existed before.
pub fn restore_nofile() -> io::Result<()> {
    let Some(before) = OUTER_NOFILE.get() else { return Ok(()) };
    let mut limit = nofile();
    limit.rlim_cur = limit.rlim_max.min(*before);
    set_nofile(&limit)
}

fn nofile() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable; the call cannot fail for this resource.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

fn set_nofile(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the structure is readable.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::eventually;

    #[test]
    fn a_lock_excludes_other_open_files() {
        let path = std::env::temp_dir().join(format!("cotenant-flock-{}", std::process::id()));
        let (a, b) = (std::fs::File::create(&path).unwrap(), std::fs::File::open(&path).unwrap());
        flock(&a, Lock::Wait).unwrap();
        assert_eq!(flock(&b, Lock::Try).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        // Between fork and exec another test's child still has it open.
        eventually("it is free", || flock(&b, Lock::Try).is_ok());
        std::fs::remove_file(path).unwrap();
    }
}
