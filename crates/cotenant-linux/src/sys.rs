//! Safe wrappers of the system calls that the standard library does not offer. Nothing here decides anything.

use cotenant_core::CpuSet;
use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::time::Duration;

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

/// Where the symbolic link `number` in an open folder leads, as far as it fits `buffer`.
pub fn read_link_at<'a>(folder: &File, number: u32, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let name = CString::new(number.to_string()).ok()?;
    // SAFETY: the name is a C string, the buffer writable for its length, the descriptor open.
    let got = unsafe { libc::readlinkat(folder.as_raw_fd(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.get(..usize::try_from(got).ok()?)
}

/// Refers to the file `number` in an open folder without opening it: it can be looked at, and nothing happens to it.
///
/// # Errors
/// `ENOENT`, `EACCES`, `EMFILE`.
pub fn open_path_at(folder: &File, number: u32) -> io::Result<File> {
    let name = CString::new(number.to_string())?;
    // SAFETY: the name is a C string, the descriptor open.
    let fd = check(unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) })?;
    Ok(owned(fd).into())
}

/// The seals of a file in memory; `None` for any other.
pub fn seals(file: &File) -> Option<c_int> {
    // SAFETY: takes no pointers; the descriptor is open.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) }).ok()
}

/// Whether a file lies in ordinary memory: pages of hugetlbfs can be missing, which ends the process that reads them.
pub fn is_tmpfs(file: &File) -> bool {
    // SAFETY: all bytes of this plain struct may be zero; it is writable; the descriptor is open.
    unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        // The two have other types with other C libraries.
        libc::fstatfs(file.as_raw_fd(), &raw mut stat) == 0 && stat.f_type as u64 == libc::TMPFS_MAGIC as u64
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

/// CPU time that this process has used, its threads included, its children not.
pub fn own_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that this thread has used.
pub fn thread_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is writable; these clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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

/// Lets a write that exceeds the limit of file sizes (`ulimit -f`) fail with `EFBIG` instead of killing this process. By a handler
/// that does nothing: unlike an ignored signal it is not handed on to programs that are started. One that is ignored stays so.
pub fn survive_file_limit() {
    extern "C" fn nothing(_: c_int) {}
    if is_ignored(libc::SIGXFSZ) {
        return;
    }
    // SAFETY: a zeroed sigaction is a valid one, and the handler does nothing at all, so it is async-signal-safe. The call cannot
    // fail for this signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
    }
}

/// The soft limit of open files before [`raise_nofile`] first raised it.
static OUTER_NOFILE: OnceLock<u64> = OnceLock::new();

/// Raises this process' soft limit of open files to the hard one; returns the limit that holds now. Programs that are started get
/// the old one back, see [`restore_nofile`]: some use as many descriptors as they may, or `select`.
pub fn raise_nofile() -> u64 {
    let mut limit = nofile();
    OUTER_NOFILE.get_or_init(|| limit.rlim_cur);
    let before = std::mem::replace(&mut limit.rlim_cur, limit.rlim_max);
    if set_nofile(&limit).is_ok() { limit.rlim_cur } else { before }
}

/// Undoes [`raise_nofile`] in this process, as far as the hard limit allows. Async-signal-safe where that was called before or never.
///
/// # Errors
/// Never for a limit that was there before.
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

/// Whether the other end of a socket is closed, or is so within some time.
pub fn hung_up(fd: impl AsFd, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    let timeout = c_int::try_from(within.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one valid pollfd.
    let ready = unsafe { libc::poll(&raw mut poll, 1, timeout) };
    ready > 0 && poll.revents & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0
}

/// Which of the descriptors are readable or hung up, waiting for the first of them up to `within`; those that are absent never are.
///
/// # Errors
/// Only where the kernel fails; a signal ends the wait like its time.
pub fn poll_readable<const N: usize>(fds: [Option<BorrowedFd<'_>>; N], within: Duration) -> io::Result<[bool; N]> {
    let poll = |fd: Option<BorrowedFd<'_>>| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()), // negative ones are skipped
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls = fds.map(poll);
    // Rounded up, or the last millisecond would be spent spinning.
    let timeout = c_int::try_from(within.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX);
    // SAFETY: the array is writable and of the length passed.
    match check(unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, timeout) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(polls.map(|poll| poll.revents != 0)),
    }
}

/// Lets reading from a descriptor fail with `EAGAIN` rather than wait.
///
/// # Errors
/// Never for an open descriptor.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: takes no pointers; the descriptor is open.
    check(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }).map(|_| ())
}

/// Kills a process group.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn kill_group(leader: u32) -> io::Result<()> {
    // SAFETY: takes no pointers. Ours come from the kernel and are above 1.
    check(unsafe { libc::kill(-leader.cast_signed(), libc::SIGKILL) }).map(|_| ())
}

/// Reaps the child that a pidfd stands for, where it has ended and nobody else did so.
pub fn reap_pidfd(pidfd: &OwnedFd) {
    // SAFETY: all bytes of this plain struct may be zero; it is writable.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG;
        libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd().cast_unsigned(), &raw mut info, flags);
    }
}

/// Sets the command name of this thread, as `ps` and `top` show it; the kernel keeps 15 bytes.
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

/// Asks for a signal when the thread that started this process ends. Async-signal-safe.
///
/// # Errors
/// For numbers that are no signals.
pub fn set_parent_death_signal(signal: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }).map(|_| ())
}

/// Reaps one child that has ended; `None` where there is none.
pub fn reap() -> Option<(u32, ExitStatus)> {
    let mut status = 0;
    // SAFETY: the status is writable.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then(|| (pid.cast_unsigned(), ExitStatus::from_raw(status)))
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

/// The mask of this process before [`SignalFd::block`] changed it.
static OUTER_MASK: OnceLock<SignalMask> = OnceLock::new();

impl SignalMask {
    /// These signals.
    pub fn of(signals: impl IntoIterator<Item = c_int>) -> Self {
        // SAFETY: sigemptyset makes any sigset_t a valid one; sigaddset changes only that, and refuses numbers that are no signals.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, signal);
            }
            Self(set)
        }
    }

    /// What this thread blocks.
    pub fn current() -> Self {
        let mut set = Self::of([]);
        // SAFETY: a null new mask only asks for the old one, which is writable; cannot fail then.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set.0) };
        set
    }

    /// What this process blocked before we blocked anything.
    pub fn outer() -> Self {
        OUTER_MASK.get().copied().unwrap_or_else(Self::current)
    }

    /// Blocks these signals and no others in this thread. Async-signal-safe.
    ///
    /// # Errors
    /// Never for a valid set.
    pub fn apply(&self) -> io::Result<()> {
        // SAFETY: the set is valid; a null old mask is not written.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }
}

impl fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the set is valid; numbers that are no signals are not members.
        let members = (1..=64).filter(|signal| unsafe { libc::sigismember(&raw const self.0, *signal) } == 1);
        f.debug_set().entries(members).finish()
    }
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: c_int,
    /// Whether the kernel sent it by itself, such as for Ctrl-C at a terminal.
    pub from_kernel: bool,
}

/// A descriptor from which blocked signals are read.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
    mask: SignalMask,
}

impl SignalFd {
    /// For these signals; they still have their usual effect until [`SignalFd::block`].
    ///
    /// # Errors
    /// Where there are no descriptors left.
    pub fn new(mask: &SignalMask) -> io::Result<Self> {
        // SAFETY: the mask is valid; -1 asks for a new descriptor.
        let fd = check(unsafe { libc::signalfd(-1, &raw const mask.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
        Ok(Self { fd: owned(fd), mask: *mask })
    }

    /// Blocks them in this thread, besides what it blocks already; returns what that was.
    ///
    /// # Errors
    /// Never for a valid set.
    pub fn block(&self) -> io::Result<SignalMask> {
        let before = SignalMask::current();
        OUTER_MASK.get_or_init(|| before);
        // SAFETY: the set is valid; a null old mask is not written.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.mask.0, std::ptr::null_mut()) } {
            0 => Ok(before),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }

    /// The next signal that is pending.
    ///
    /// # Errors
    /// Only where the kernel fails.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        // SAFETY: all bytes of this plain struct may be zero; the kernel writes it as a whole or not at all.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        // SAFETY: the struct is writable for exactly the number of bytes passed.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size_of_val(&info)) };
        match check_long(read as libc::c_long) {
            Ok(_) => {
                Ok(Some(Signal { number: info.ssi_signo.cast_signed(), from_kernel: info.ssi_code == libc::SI_KERNEL }))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A descriptor that becomes readable at a time.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Not set.
    ///
    /// # Errors
    /// Where there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) })?;
        Ok(Self(owned(fd)))
    }

    /// Becomes readable once after that time, never where it is `None` or zero.
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

/// Waits for many descriptors.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Of none so far.
    ///
    /// # Errors
    /// Where there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        Ok(Self(owned(check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?)))
    }

    /// Reports the token while the descriptor is readable or hung up.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLRDHUP).cast_unsigned(), u64: token };
        // SAFETY: the event is readable; both descriptors are open as long as they are borrowed.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) })
            .map(|_| ())
    }

    /// Reports it no more.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let none = std::ptr::null_mut();
        // SAFETY: a null event is allowed for removals since Linux 2.6.9.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), none) }).map(|_| ())
    }

    /// Tokens of ready descriptors, at most 16; where `block` is set, at least one, unless a signal handler ran.
    ///
    /// # Errors
    /// Only where the kernel fails.
    pub fn wait(&self, block: bool) -> io::Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let timeout = if block { -1 } else { 0 };
        // SAFETY: the buffer is writable for the number of events passed.
        match check(unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 16, timeout) }) {
            Ok(ready) => Ok(events[..ready as usize].iter().map(|e| e.u64).collect()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
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
