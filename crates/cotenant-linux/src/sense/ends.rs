//! Detects the ends of processes and threads: one epoll call per sample for any number of tasks.

use crate::sys::Epoll;
use std::io;
use std::os::fd::AsFd;

/// What ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A process, all threads of it.
    Process(u32),
    /// A thread, or the target of its counters: executing another program can detach them.
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

/// Waits for descriptors that signal an end: pidfds become readable, mapped counters hang up.
#[derive(Debug)]
pub struct Ends(Epoll);

impl Ends {
    /// Listens to nothing yet.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        Epoll::new().map(Self)
    }

    /// Listens to a descriptor until it is closed.
    ///
    /// # Errors
    /// `ENOSPC` (`fs.epoll.max_user_watches`), `ENOMEM`.
    pub fn listen(&self, fd: impl AsFd, end: End) -> io::Result<()> {
        let events = match end {
            End::Process(_) => libc::EPOLLIN,
            End::Thread(_) => 0, // hang-ups are always reported
        };
        self.0.add(fd.as_fd(), events, end.token())
    }

    /// Ended ones; repeated until the descriptor is closed. At most some hundred at a time.
    pub fn heard(&self) -> Vec<End> {
        // Others are reported the next time.
        let heard = self.0.wait(false);
        heard.into_iter().flatten().map(End::from_token).collect()
    }
}
