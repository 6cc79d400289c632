//! Scheduling policies of threads, and the right to change them.

use super::{check, check_long};
use cotenant_model::proc_text;
use std::ffi::c_int;
use std::io;

/// The policy of a thread (0: the calling one), with `SCHED_RESET_ON_FORK` if set.
///
/// # Errors
/// `ESRCH` if the thread has ended.
pub fn getscheduler(tid: u32) -> io::Result<c_int> {
    // SAFETY: takes no pointers.
    let policy = check_long(unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid.cast_signed()) })?;
    Ok(policy as c_int)
}

/// Whether a thread has a real-time or deadline policy; false if it has ended.
pub fn is_real_time(tid: u32) -> bool {
    const SCHED_RESET_ON_FORK: c_int = 0x4000_0000;
    getscheduler(tid).is_ok_and(|policy| proc_text::is_real_time((policy & !SCHED_RESET_ON_FORK).cast_unsigned()))
}

/// Gives a thread a policy without a real-time priority; its nice value stays.
///
/// # Errors
/// `ESRCH` (ended), `EPERM` (not permitted, or leaving `SCHED_IDLE` without the right).
pub fn setscheduler(tid: u32, policy: c_int) -> io::Result<()> {
    let priority: c_int = 0;
    // SAFETY: the kernel's `struct sched_param` is one int, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid.cast_signed(), policy, &raw const priority) };
    check_long(result).map(|_| ())
}

/// Whether this user may take a thread out of `SCHED_IDLE` again under the process's limit of nice values
/// (`RLIMIT_NICE`), which decides without privileges (sched(7)).
pub fn may_leave_idle(pid: u32, tid: u32) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set; the limit is writable.
    let read = check(unsafe { libc::prlimit(pid.cast_signed(), libc::RLIMIT_NICE, std::ptr::null(), &raw mut limit) });
    // SAFETY: takes no pointers. The raw call, unlike libc's wrapper, returns 20 − nice: the permitting limit.
    let needed = check_long(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid.cast_signed()) });
    read.is_ok() && needed.is_ok_and(|needed| limit.rlim_cur >= needed.cast_unsigned())
}
