//! Clocks and a timer.

use super::{check, owned};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Clock ticks since boot, on the scale of the start times in `/proc` (time namespaces shift both alike).
pub fn boot_ticks() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is writable; CLOCK_BOOTTIME exists since Linux 2.6.39, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let per_second = ticks_per_second();
    time.tv_sec as u64 * per_second + time.tv_nsec as u64 * per_second / 1_000_000_000
}

/// Clock ticks in a second.
pub fn ticks_per_second() -> u64 {
    // SAFETY: no pointers; there is always an answer to this question.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as u64 }
}

/// CPU time of this process with its threads, without children.
pub fn own_cpu_time() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of all our ended and reaped children, and of theirs; finer than the ticks of `/proc/self/stat`.
pub fn children_cpu_time() -> Duration {
    // SAFETY: a rusage is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the rusage is writable; the call cannot fail with this argument.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    cpu_time_of(&usage)
}

/// CPU time of user and system.
pub(super) fn cpu_time_of(usage: &libc::rusage) -> Duration {
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// CPU time of this thread.
pub fn thread_cpu_time() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// How often this thread has slept: it waited for something else than a CPU.
pub fn thread_sleeps() -> i64 {
    // SAFETY: all-zero is a value of this type.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is writable; the call cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw
}

/// `CLOCK_MONOTONIC`: the same for all programs of a time namespace.
pub fn monotonic() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is writable; these clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A descriptor that becomes readable at a time.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Not set.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) })?;
        Ok(Self(owned(fd)))
    }

    /// Becomes readable once after that time, never for `None` or zero.
    ///
    /// # Errors
    /// Only where the kernel fails.
    pub fn set(&self, after: Option<Duration>) -> io::Result<()> {
        let after = after.unwrap_or_default();
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX);
        let value = libc::timespec { tv_sec: seconds, tv_nsec: after.subsec_nanos().into() };
        let spec = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the new value is readable; a null old value is not written.
        check(unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut()) })
            .map(|_| ())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
