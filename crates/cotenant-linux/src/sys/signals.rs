//! Signals: ignoring, blocking and reading.

use super::{check, check_long, owned};
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

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
    // SAFETY: a zeroed sigaction is valid, and a null new action only queries the old one.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with `EFBIG` instead of killing this process. By an
/// empty handler, which unlike an ignored signal is not inherited by started programs. An ignored signal stays ignored.
pub fn survive_file_limit() {
    extern "C" fn nothing(_: c_int) {}
    if is_ignored(libc::SIGXFSZ) {
        return;
    }
    // SAFETY: a zeroed sigaction is valid, and the handler does nothing, so it is async-signal-safe. The call cannot
    // fail for this signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
    }
}

/// Does something, and interrupts it again and again from `patience` on: a call of the system that waits for another
/// program fails with `EINTR` then. Where there is no timer to be had, it waits.
pub fn interrupted_after<T>(patience: Duration, work: impl FnOnce() -> T) -> T {
    extern "C" fn nothing(_: c_int) {}
    struct Interrupter(libc::timer_t);
    impl Interrupter {
        fn new() -> Option<Self> {
            let signal = libc::SIGRTMAX() - 1;
            // SAFETY: zeroed structures are valid ones, and are writable. The handler does nothing at all, so it is
            // async-signal-safe; without SA_RESTART it lets calls end. The thread lives as long as its timer.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
                check(libc::sigaction(signal, &raw const action, std::ptr::null_mut())).ok()?;
                let own = SignalMask::of([signal]).0;
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const own, std::ptr::null_mut());
                let mut event: libc::sigevent = std::mem::zeroed();
                (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_THREAD_ID, signal);
                event.sigev_notify_thread_id = libc::gettid();
                let mut timer = std::mem::zeroed();
                check(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)).ok()?;
                Some(Self(timer))
            }
        }

        /// Zero ends it.
        fn every(&self, time: Duration) {
            let time = libc::timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
            let both = libc::itimerspec { it_interval: time, it_value: time };
            // SAFETY: the timer is there, the structure readable.
            unsafe { libc::timer_settime(self.0, 0, &raw const both, std::ptr::null_mut()) };
        }
    }
    impl Drop for Interrupter {
        fn drop(&mut self) {
            // SAFETY: it is not used any more.
            unsafe { libc::timer_delete(self.0) };
        }
    }
    thread_local! {
        static OWN: Option<Interrupter> = Interrupter::new();
    }
    OWN.with(|own| {
        let Some(timer) = own else { return work() };
        timer.every(patience);
        let done = work();
        timer.every(Duration::ZERO);
        done
    })
}

/// What the runtime does at these faults: at the end of a stack it says so.
static AT_FAULTS: [(c_int, OnceLock<libc::sigaction>); 2] =
    [(libc::SIGSEGV, OnceLock::new()), (libc::SIGBUS, OnceLock::new())];

/// Makes a fault signal sent by another process (`kill -SEGV`) end this process at once. The runtime's handler would
/// take it for a recurring fault of the program, and continue.
pub fn end_by_sent_faults() {
    extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel gives a valid structure to a handler with SA_SIGINFO.
        let is_sent = unsafe { (*info).si_code } <= 0;
        let before = AT_FAULTS.iter().find(|(of, _)| *of == signal).and_then(|(_, before)| before.get());
        match before {
            Some(before) if !is_sent && before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
                // SAFETY: with this flag it is such a function.
                let handler = unsafe { std::mem::transmute::<usize, Handler>(before.sa_sigaction) };
                handler(signal, info, context);
            }
            // SAFETY: both are async-signal-safe. It is blocked until this returns, and ends the process then.
            _ => unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            },
        }
    }
    for (signal, before) in &AT_FAULTS {
        // SAFETY: zeroed sigactions are valid ones. The handler calls only async-signal-safe functions, and the
        // previous one.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, std::ptr::null(), &raw mut old);
            if before.set(old).is_err() {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(*signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

/// The mask of this process before [`SignalFd::block`] changed it.
static OUTER_MASK: OnceLock<SignalMask> = OnceLock::new();

impl SignalMask {
    /// These signals.
    pub fn of(signals: impl IntoIterator<Item = c_int>) -> Self {
        // SAFETY: sigemptyset makes any sigset_t a valid one; sigaddset changes only that, and refuses numbers that
        // are no signals.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, signal);
            }
            Self(set)
        }
    }

    /// The signals blocked by this thread.
    pub fn current() -> Self {
        let mut set = Self::of([]);
        // SAFETY: a null new mask only queries the old one, which is writable; cannot fail then.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set.0) };
        set
    }

    /// Signals blocked before our first change.
    pub fn outer() -> Self {
        OUTER_MASK.get().copied().unwrap_or_else(Self::current)
    }

    /// Blocks these signals and no others in this thread. Async-signal-safe.
    ///
    /// # Errors
    /// Never for a valid set.
    pub fn apply(&self) -> io::Result<()> {
        self.change(libc::SIG_SETMASK)
    }

    fn change(&self, how: c_int) -> io::Result<()> {
        // SAFETY: the set is valid; a null old mask is not written.
        match unsafe { libc::pthread_sigmask(how, &raw const self.0, std::ptr::null_mut()) } {
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
    /// Whether the kernel sent it itself, such as for Ctrl-C at a terminal.
    pub from_kernel: bool,
}

/// A descriptor for reading blocked signals.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
    mask: SignalMask,
}

impl SignalFd {
    /// For these signals; they still have their usual effect until [`SignalFd::block`].
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn new(mask: &SignalMask) -> io::Result<Self> {
        // SAFETY: the mask is valid; -1 requests a new descriptor.
        let fd = check(unsafe { libc::signalfd(-1, &raw const mask.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
        Ok(Self { fd: owned(fd), mask: *mask })
    }

    /// Blocks them in this thread, in addition; returns the former mask.
    ///
    /// # Errors
    /// Never for a valid set.
    pub fn block(&self) -> io::Result<SignalMask> {
        let before = SignalMask::current();
        OUTER_MASK.get_or_init(|| before);
        self.mask.change(libc::SIG_BLOCK).map(|()| before)
    }

    /// The next pending signal.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Again and again: the first time may be before the call begins.
    #[test]
    fn what_waits_for_others_is_interrupted() {
        for _ in 0..10 {
            let (mut from, to) = io::pipe().unwrap();
            let read = interrupted_after(Duration::from_millis(1), || from.read(&mut [0]));
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::Interrupted);
            drop(to);
            assert_eq!(interrupted_after(Duration::from_secs(60), || from.read(&mut [0])).unwrap(), 0);
        }
    }
}
