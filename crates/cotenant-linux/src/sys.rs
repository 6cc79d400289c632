//! Safe wrappers of the system calls that the standard library does not offer. Nothing here decides anything.

use cotenant_core::CpuSet;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Words of the mask buffers to begin with: 8,192 CPUs, the most that x86 and Arm kernels are built for.
const MASK_WORDS: usize = 128;

/// Words of the largest mask that is tried: 65,536 CPUs, [`cotenant_core::cpuset::MAX_CPU`].
const MAX_MASK_WORDS: usize = 1024;

/// `errno` as a result of a call that returns −1 on failure.
fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for raw calls that return a long.
fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a new descriptor owned.
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that a successful system call has just created for us alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The mask of a thread: what it may run on now, that is its own mask ∩ its cpuset ∩ the active CPUs.
///
/// # Errors
/// `ESRCH` where the thread is gone.
pub fn getaffinity(tid: u32) -> io::Result<CpuSet> {
    let mut words = vec![0u64; MASK_WORDS];
    loop {
        // SAFETY: the buffer is writable for exactly the number of bytes passed.
        let result = check_long(unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, tid.cast_signed(), size_of_val(&words[..]), words.as_mut_ptr())
        });
        match result {
            Ok(_) => return Ok(CpuSet::from_words(words)), // bytes beyond the kernel's mask stay zero
            // The buffer is smaller than this kernel's masks.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && words.len() < MAX_MASK_WORDS => {
                words.resize(words.len() * 2, 0);
            }
            Err(e) => return Err(e),
        }
    }
}

/// Sets the mask of a thread. The kernel cuts it to the cpuset of the thread.
///
/// # Errors
/// `ESRCH` (gone), `EPERM` (not ours to change), `EINVAL` (nothing of the mask is online and in the cpuset).
pub fn setaffinity(tid: u32, mask: &CpuSet) -> io::Result<()> {
    set_words(tid, mask.as_words())
}

/// Lets a thread run wherever its cpuset allows, now and after the cpuset has changed.
///
/// # Errors
/// As [`setaffinity`].
pub fn setaffinity_all(tid: u32) -> io::Result<()> {
    set_words(tid, &[u64::MAX; MAX_MASK_WORDS]) // the kernel ignores what exceeds its own masks
}

fn set_words(tid: u32, words: &[u64]) -> io::Result<()> {
    // SAFETY: the buffer is readable for exactly the number of bytes passed.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid.cast_signed(), size_of_val(words), words.as_ptr()) };
    check_long(result).map(|_| ())
}

/// How [`flock`] takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Waits for it.
    Wait,
    /// Fails with `EWOULDBLOCK` where another open file holds it.
    Try,
}

/// Takes the exclusive advisory lock of an open file; closing the file, or the process' death, gives it back.
///
/// # Errors
/// `EWOULDBLOCK` under [`Lock::Try`]; `ENOLCK` on file systems without locks.
pub fn flock(file: impl AsFd, how: Lock) -> io::Result<()> {
    let op = libc::LOCK_EX | if how == Lock::Try { libc::LOCK_NB } else { 0 };
    loop {
        // SAFETY: takes no pointers; the descriptor is open as long as it is borrowed.
        match check(unsafe { libc::flock(file.as_fd().as_raw_fd(), op) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Clock ticks since boot, on the scale of the start times in `/proc` (time namespaces shift both alike).
pub fn boot_ticks() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is writable; CLOCK_BOOTTIME exists since Linux 2.6.39, so the call cannot fail.
    let per_second = unsafe {
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time);
        libc::sysconf(libc::_SC_CLK_TCK)
    } as u64;
    time.tv_sec as u64 * per_second + time.tv_nsec as u64 * per_second / 1_000_000_000
}

/// The effective user id of this process.
pub fn euid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes this process the leader of its own session and process group, away from the terminal.
///
/// # Errors
/// `EPERM` where it leads a process group already.
pub fn setsid() -> io::Result<()> {
    // SAFETY: takes no arguments.
    check(unsafe { libc::setsid() }).map(|_| ())
}

/// Ignores a signal.
///
/// # Errors
/// `EINVAL` for signals that cannot be ignored.
pub fn ignore(signal: c_int) -> io::Result<()> {
    // SAFETY: SIG_IGN is a valid disposition and no handler of ours is replaced.
    if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether this process ignores a signal.
pub fn is_ignored(signal: c_int) -> bool {
    // SAFETY: a zeroed sigaction is a valid one, and a null new action only asks for the old one.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Sends a signal to one process.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn kill(pid: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers. A pid of 0 or below would address groups; ours come from the kernel and are positive.
    check(unsafe { libc::kill(pid.cast_signed(), signal) }).map(|_| ())
}

/// A descriptor that stands for one process and becomes readable when it ends.
///
/// # Errors
/// `ESRCH`; `ENOSYS` before Linux 5.3.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) })?;
    Ok(owned(fd as RawFd))
}

/// Sends a signal through a pidfd: never to a recycled pid.
///
/// # Errors
/// `ESRCH` where the process is gone, `EPERM`.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: c_int) -> io::Result<()> {
    // SAFETY: a null siginfo asks the kernel to fill in that of kill(2).
    let result = unsafe {
        let none = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, none, 0)
    };
    check_long(result).map(|_| ())
}

/// Whether the other end of a socket or pipe is closed.
pub fn hung_up(fd: impl AsFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid pollfd; a timeout of 0 does not wait.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_this_thread_reads_and_writes() {
        let before = getaffinity(0).unwrap();
        assert!(!before.is_empty());
        let one = CpuSet::single(before.first().unwrap());
        setaffinity(0, &one).unwrap();
        assert_eq!(getaffinity(0).unwrap(), one);
        setaffinity_all(0).unwrap();
        assert!(before.is_subset(&getaffinity(0).unwrap()));
        setaffinity(0, &before).unwrap();
        assert_eq!(getaffinity(0).unwrap(), before);
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        assert_eq!(getaffinity(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        let absent = CpuSet::single(cotenant_core::CpuId(60_000));
        assert_eq!(setaffinity(0, &absent).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(setaffinity(0, &CpuSet::new()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_lock_excludes_other_open_files() {
        let path = std::env::temp_dir().join(format!("cotenant-flock-{}", std::process::id()));
        let (a, b) = (std::fs::File::create(&path).unwrap(), std::fs::File::open(&path).unwrap());
        flock(&a, Lock::Wait).unwrap();
        assert_eq!(flock(&b, Lock::Try).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        flock(&b, Lock::Try).unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
