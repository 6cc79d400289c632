//! Hearing of the ends of processes and threads: one epoll, asked once per sample whatever the number of tasks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Who ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A process, all threads of it.
    Process(u32),
    /// A thread, or at least what its counters were attached to: executing another program can detach them.
    Thread(u32),
}

impl End {
    /// The process that ended.
    pub fn process(self) -> Option<u32> {
        if let Self::Process(pid) = self { Some(pid) } else { None }
    }

    /// The thread that ended.
    pub fn thread(self) -> Option<u32> {
        if let Self::Thread(tid) = self { Some(tid) } else { None }
    }

    fn token(self) -> u64 {
        match self {
            Self::Process(pid) => u64::from(pid) | 1 << 32,
            Self::Thread(tid) => u64::from(tid),
        }
    }

    fn from_token(token: u64) -> Self {
        if token >> 32 == 0 { Self::Thread(token as u32) } else { Self::Process(token as u32) }
    }
}

/// Listens to descriptors that tell of an end: pidfds become readable, mapped counters hang up.
#[derive(Debug)]
pub struct Ends {
    epoll: OwnedFd,
}

impl Ends {
    /// Listens to nothing yet.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes a flag only.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor has just been made for us alone.
        Ok(Self { epoll: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Listens to a descriptor until it is closed.
    ///
    /// # Errors
    /// `ENOSPC` (`fs.epoll.max_user_watches`), `ENOMEM`.
    pub fn listen(&self, fd: impl AsFd, end: End) -> io::Result<()> {
        let events = match end {
            End::Process(_) => libc::EPOLLIN as u32,
            End::Thread(_) => 0, // hanging up is always told
        };
        let mut event = libc::epoll_event { events, u64: end.token() };
        let (epoll, fd) = (self.epoll.as_raw_fd(), fd.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open and the event outlives the call.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Who ended; repeated until the descriptor is closed. At most some hundred at a time.
    pub fn heard(&self) -> Vec<End> {
        const AT_ONCE: i32 = 256;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE as usize];
        // SAFETY: the buffer has room for as many events as are asked for; a timeout of 0 does not wait.
        let got = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), AT_ONCE, 0) };
        let got = usize::try_from(got).unwrap_or(0);
        events[..got].iter().map(|event| End::from_token(event.u64)).collect()
    }
}
