//! Waiting for descriptors.

use super::{check, owned};
use std::ffi::{c_int, c_short};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Whether the other end of a socket is closed, or is so within some time.
pub fn hung_up(fd: impl AsFd, within: Duration) -> bool {
    let ended = libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR;
    poll([Some(fd.as_fd())], libc::POLLRDHUP, within).is_ok_and(|[seen]| seen & ended != 0)
}

/// The readable or hung-up descriptors, after waiting for the first up to `within`; absent ones never are.
///
/// # Errors
/// Only where the kernel fails; a signal ends the wait like its time.
pub fn poll_readable<const N: usize>(fds: [Option<BorrowedFd<'_>>; N], within: Duration) -> io::Result<[bool; N]> {
    Ok(poll(fds, libc::POLLIN, within)?.map(|seen| seen != 0))
}

fn poll<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    events: c_short,
    within: Duration,
) -> io::Result<[c_short; N]> {
    let number = |fd: Option<BorrowedFd<'_>>| fd.map_or(-1, |fd| fd.as_raw_fd()); // negative ones are skipped
    let mut polls = fds.map(|fd| libc::pollfd { fd: number(fd), events, revents: 0 });
    let tv_sec = libc::time_t::try_from(within.as_secs()).unwrap_or(libc::time_t::MAX);
    let timeout = libc::timespec { tv_sec, tv_nsec: within.subsec_nanos().into() };
    // SAFETY: the array is writable and of the length passed, the timeout is readable; without a mask, signals stay.
    let done = unsafe { libc::ppoll(polls.as_mut_ptr(), N as libc::nfds_t, &raw const timeout, std::ptr::null()) };
    match check(done) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(polls.map(|poll| poll.revents)),
    }
}

/// This thread wakes at its time, not up to 50 µs later.
pub fn wake_on_time() {
    // SAFETY: takes plain numbers, and cannot fail.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) };
}

/// Waits for many descriptors.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Of none so far.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        Ok(Self(owned(check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?)))
    }

    /// Reports the token while the descriptor has one of the events, or is hung up.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn add(&self, fd: BorrowedFd<'_>, events: c_int, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
        // SAFETY: the event is readable; both descriptors are open as long as they are borrowed.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) })
            .map(|_| ())
    }

    /// Tokens of ready descriptors, up to 256; with `block` at least one, unless a signal handler ran.
    ///
    /// # Errors
    /// Only where the kernel fails.
    pub fn wait(&self, block: bool) -> io::Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
        let timeout = if block { -1 } else { 0 };
        // SAFETY: the buffer is writable for the number of events passed.
        match check(unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as c_int, timeout)
        }) {
            Ok(ready) => Ok(events[..ready as usize].iter().map(|e| e.u64).collect()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}
