//! Processes: our own identity, and others' ends and parents.

use super::thread::process_stat;
use super::{check, check_long, owned};
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// The effective user id of this process.
pub fn euid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective group id of this process.
pub fn egid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getegid() }
}

/// Makes this process the leader of its own session and process group, away from the terminal.
///
/// # Errors
/// `EPERM` if it already leads a process group.
pub fn setsid() -> io::Result<()> {
    // SAFETY: takes no arguments.
    check(unsafe { libc::setsid() }).map(|_| ())
}

/// Sends a signal to one process.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn kill(pid: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers. A pid of 0 or below would address groups; ours come from the kernel and are positive.
    check(unsafe { libc::kill(pid.cast_signed(), signal) }).map(|_| ())
}

/// Stops this process with its process group, like Ctrl-Z, until they are resumed. Does nothing if no process could
/// resume them.
///
/// # Errors
/// Never.
pub fn stop_own_group() -> io::Result<()> {
    // SAFETY: takes no pointers. 0 is the group of the caller.
    check(unsafe { libc::kill(0, libc::SIGTSTP) }).map(|_| ())
}

/// Kills a process group.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn kill_group(leader: u32) -> io::Result<()> {
    signal_group(leader, libc::SIGKILL)
}

/// Sends a signal to a process group.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn signal_group(leader: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers. Ours come from the kernel and are above 1.
    check(unsafe { libc::kill(-leader.cast_signed(), signal) }).map(|_| ())
}

/// Sends a signal to the process of a descriptor.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn pidfd_signal(pidfd: &OwnedFd, signal: c_int) -> io::Result<()> {
    let (info, flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
    // SAFETY: the descriptor is open; a null siginfo requests kill(2)'s.
    check_long(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, flags) })
        .map(|_| ())
}

/// A descriptor of one process that becomes readable at its end.
///
/// # Errors
/// `ESRCH`; `ENOSYS` before Linux 5.3.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) })?;
    Ok(owned(fd as RawFd))
}

/// Usage of a process and its reaped descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, user plus system.
    pub cpu: Duration,
    /// Peak memory of a single one of them, bytes.
    pub max_rss: u64,
    /// Whether it reaped descendants that ran.
    pub had_children: bool,
}

/// Page faults of a child that runs. Measured with dash on x86-64: a static program that does nothing has 27, a shell's
/// copy of itself 21, one that cannot execute its program at most 4.
const RAN_FAULTS: u64 = 12;

/// Reaps one ended child; `None` without one.
pub fn reap() -> Option<(u32, ExitStatus, Usage)> {
    // SAFETY: all bytes of this plain struct may be zero; it is writable.
    let ended = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
        info.si_pid()
    };
    if ended <= 0 {
        return None;
    }
    let had_children = process_stat(ended.cast_unsigned()).is_some_and(|stat| stat.ended_faults >= RAN_FAULTS);
    let mut status = 0;
    // SAFETY: all bytes of this plain struct may be zero; it and the status are writable.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(ended, &raw mut status, libc::WNOHANG, &raw mut usage), usage)
    };
    let (cpu, max_rss) = (super::clocks::cpu_time_of(&usage), usage.ru_maxrss as u64 * 1024);
    let usage = Usage { cpu, max_rss, had_children };
    (pid > 0).then(|| (pid.cast_unsigned(), ExitStatus::from_raw(status), usage))
}

/// Reaps the ended child of a pidfd, unless already reaped.
pub fn reap_pidfd(pidfd: &OwnedFd) {
    // SAFETY: all bytes of this plain struct may be zero; it is writable.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG;
        libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd().cast_unsigned(), &raw mut info, flags);
    }
}

/// Sets the command name of this thread for `ps` and `top`; the kernel keeps 15 bytes.
pub fn set_name(name: &CStr) {
    // SAFETY: the name is a valid string that outlives the call; cannot fail for such.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Makes orphaned descendants children of this process.
///
/// # Errors
/// Never on Linux ≥ 3.4.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(|_| ())
}

/// Requests a signal at the end of the thread that started this process. Async-signal-safe.
///
/// # Errors
/// For numbers other than signals.
pub fn set_parent_death_signal(signal: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }).map(|_| ())
}
