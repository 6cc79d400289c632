//! Waiting for whatever comes first: the time, a signal, the end of our program, or a descriptor.

use crate::sys::launch::Child;
use crate::sys::{self, Epoll, SignalFd, SignalMask, Timer, Usage};
use std::collections::{BTreeSet, VecDeque};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitStatus;
use std::time::Instant;

/// Signals that ask a program to do something. They are passed on to ours, or end our work where we have started none.
const PASSED_ON: [c_int; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

pub(crate) fn asks_to_stop(signal: c_int) -> bool {
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal)
}

const TIMER: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time came.
    Tick,
    /// A signal came. Our program, if there is one, has got it too.
    Signal(c_int),
    /// Our program has ended.
    ChildExited(ExitStatus),
    /// One of many programs has ended: its process id, how, and what it used.
    JobExited(u32, ExitStatus, Usage),
    /// The descriptor that was added with this token is ready or hung up.
    Other(u64),
}

/// Waits. Holds the signals SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and SIGCHLD back from this thread and the threads
/// that it starts later, so make it first thing in `main`; signals that are ignored (nohup) stay so. SIGTSTP and SIGCONT keep
/// their usual effect: Ctrl-Z stops us with our program, `fg` resumes both.
#[derive(Debug)]
pub struct Waiter {
    epoll: Epoll,
    timer: Timer,
    signals: SignalFd,
    outer: SignalMask,
    child: Option<u32>,
    jobs: BTreeSet<u32>,
    /// Those of them to which signals are passed on.
    passed_to: BTreeSet<u32>,
    /// Whether every child of this process is reaped.
    reaps: bool,
    /// How it ended, until that is reported.
    ended: Option<ExitStatus>,
    pending: VecDeque<Event>,
}

impl Waiter {
    /// Blocks the signals and makes the descriptors.
    ///
    /// # Errors
    /// Where there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let passed_on = PASSED_ON.into_iter().filter(|s| !sys::is_ignored(*s));
        let signals = SignalFd::new(&SignalMask::of(passed_on.chain([libc::SIGCHLD])))?;
        let (epoll, timer) = (Epoll::new()?, Timer::new()?);
        epoll.add(timer.as_fd(), TIMER)?;
        epoll.add(signals.as_fd(), SIGNALS)?;
        let outer = signals.block()?;
        Ok(Self {
            epoll,
            timer,
            signals,
            outer,
            child: None,
            jobs: BTreeSet::new(),
            passed_to: BTreeSet::new(),
            reaps: false,
            ended: None,
            pending: VecDeque::new(),
        })
    }

    /// Lets the signals have their usual effect again, but for those that have come: what they ask to end has ended.
    ///
    /// # Errors
    /// Only where the kernel fails its own descriptors.
    pub fn drain(self) -> io::Result<()> {
        while self.signals.read()?.is_some() {}
        Ok(())
    }

    /// Reports the end of this program from now on, passes signals on to it, and reaps every child of this process: also the
    /// descendants that it leaves to us. Other children's exit codes are lost to those who started them.
    pub fn watch(&mut self, child: &Child) {
        self.child = Some(child.pid());
        self.reaps = true;
        self.reap(); // it may have ended before
    }

    /// Reports the end of this program, too, one of many; signals are not passed on to it. Reaps as [`Waiter::watch`] does.
    pub fn watch_job(&mut self, child: &Child) {
        self.jobs.insert(child.pid());
        self.reaps = true;
        self.reap();
    }

    /// The same for one that stays in our process group: signals that the terminal has not sent it are passed on to it.
    pub fn watch_besides(&mut self, child: &Child) {
        self.passed_to.insert(child.pid());
        self.watch_job(child);
    }

    /// Wakes up when a descriptor becomes readable or hangs up. It is reported until it is read or closed.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u32) -> io::Result<()> {
        self.epoll.add(fd, token.into())
    }

    /// Does so no more.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.remove(fd)
    }

    /// Waits until the time, or for ever; signals and the end of our program come before it, other descriptors after it.
    ///
    /// # Errors
    /// Only where the kernel fails its own descriptors.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Event> {
        loop {
            if self.ended.is_some() {
                // What ended it may have been sent to all of its group: Ctrl-C is reported before the end, not left to kill us later.
                self.read_signals()?;
            }
            if let Some(event) = self.pending.pop_front() {
                return Ok(event);
            }
            if let Some(status) = self.ended.take() {
                return Ok(Event::ChildExited(status));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let due = left.is_some_and(|left| left.is_zero());
            self.timer.set(left)?;
            let ready = self.epoll.wait(!due)?;
            if ready.contains(&SIGNALS) {
                self.read_signals()?;
            }
            if self.pending.is_empty() && self.ended.is_none() && (due || ready.contains(&TIMER)) {
                return Ok(Event::Tick);
            }
            self.pending.extend(ready.into_iter().filter(|token| *token < SIGNALS).map(Event::Other));
        }
    }

    fn read_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.read()? {
            if signal.number == libc::SIGCHLD {
                self.reap();
                continue;
            }
            // The terminal has sent it to the whole process group, our program included.
            for pid in self.child.iter().chain(&self.passed_to).copied().filter(|_| !signal.from_kernel) {
                let _ = sys::kill(pid, signal.number); // not reaped yet, so the pid is its own
            }
            self.pending.push_back(Event::Signal(signal.number));
        }
        Ok(())
    }

    fn reap(&mut self) {
        if !self.reaps {
            return;
        }
        while let Some((pid, status, usage)) = sys::reap() {
            if self.jobs.remove(&pid) {
                self.passed_to.remove(&pid);
                self.pending.push_back(Event::JobExited(pid, status, usage));
            } else if self.child == Some(pid) {
                self.child = None;
                self.ended = Some(status);
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.outer.apply();
    }
}
