//! Waits for the first of: a time, a signal, or the end of a program.

use crate::sys::launch::Child;
use crate::sys::{self, Epoll, SignalFd, SignalMask, Timer, Usage};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::Instant;

/// Signals that request an action. They are forwarded to our program, or end our work without one.
const PASSED_ON: [c_int; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

pub(crate) fn asks_to_stop(signal: c_int) -> bool {
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal)
}

const TIMER: u64 = u64::MAX;
const SIGNALS: u64 = u64::MAX - 1;
const CALLS: u64 = u64::MAX - 2;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time has come, or a call: see [`Waiter::listen`].
    Tick,
    /// A signal came. Programs that get signals forwarded have got it too.
    Signal(c_int),
    /// A program has ended: its process id, status, and usage.
    Exited(u32, ExitStatus, Usage),
}

/// Waits. Blocks the signals SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and SIGCHLD in this thread and its
/// later threads, so create it first in `main`; ignored signals (nohup) stay ignored. SIGTSTP and SIGCONT keep their
/// usual effect: Ctrl-Z stops us with our program, `fg` resumes both.
#[derive(Debug)]
pub struct Waiter {
    epoll: Epoll,
    timer: Timer,
    signals: SignalFd,
    calls: Option<PipeReader>,
    called: bool,
    outer: SignalMask,
    /// Watched programs, and whether signals are forwarded to them.
    watched: BTreeMap<u32, bool>,
    /// Whether every child of this process is reaped.
    reaps: bool,
    /// Pending reports: signals, then ends.
    came: VecDeque<c_int>,
    ended: VecDeque<(u32, ExitStatus, Usage)>,
}

impl Waiter {
    /// Blocks the signals and creates the descriptors.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let passed_on = PASSED_ON.into_iter().filter(|s| !sys::is_ignored(*s));
        let signals = SignalFd::new(&SignalMask::of(passed_on.chain([libc::SIGCHLD])))?;
        let (epoll, timer) = (Epoll::new()?, Timer::new()?);
        epoll.add(timer.as_fd(), libc::EPOLLIN, TIMER)?;
        epoll.add(signals.as_fd(), libc::EPOLLIN, SIGNALS)?;
        let outer = signals.block()?;
        Ok(Self {
            epoll,
            timer,
            signals,
            calls: None,
            called: false,
            outer,
            watched: BTreeMap::new(),
            reaps: false,
            came: VecDeque::new(),
            ended: VecDeque::new(),
        })
    }

    /// Writes into this pipe end a wait.
    ///
    /// # Errors
    /// Only where the kernel fails its own descriptors.
    pub fn listen(&mut self, calls: PipeReader) -> io::Result<()> {
        self.epoll.add(calls.as_fd(), libc::EPOLLIN, CALLS)?;
        self.calls = Some(calls);
        Ok(())
    }

    /// Whether there was a call since the last check.
    pub fn take_called(&mut self) -> bool {
        std::mem::take(&mut self.called)
    }

    /// Restores the signals' usual effect and discards pending ones, whose purpose is fulfilled.
    ///
    /// # Errors
    /// Only where the kernel fails its own descriptors.
    pub fn drain(self) -> io::Result<()> {
        while self.signals.read()?.is_some() {}
        Ok(())
    }

    /// Reports the end of this program from now on, and reaps every child of this process, orphaned descendants
    /// included. Exit codes of other children are lost to the code that started them. With `pass_on` the program gets
    /// this process's signals, except those that the terminal has already sent it.
    pub fn watch(&mut self, child: &Child, pass_on: bool) {
        self.watched.insert(child.pid(), pass_on);
        self.reaps = true;
        self.reap(); // it may have ended before
    }

    /// Waits until the time, or forever; signals and ends of programs take precedence.
    ///
    /// # Errors
    /// Only where the kernel fails its own descriptors.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Event> {
        loop {
            if !self.ended.is_empty() {
                // Its ending signal may have been sent to the whole group: Ctrl-C is reported before the end, instead
                // of killing this process later.
                self.read_signals()?;
            }
            if let Some(signal) = self.came.pop_front() {
                return Ok(Event::Signal(signal));
            }
            if let Some((pid, status, usage)) = self.ended.pop_front() {
                return Ok(Event::Exited(pid, status, usage));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let due = left.is_some_and(|left| left.is_zero());
            self.timer.set(left)?;
            let ready = self.epoll.wait(!due)?;
            if ready.contains(&SIGNALS) {
                self.read_signals()?;
            }
            if let Some(calls) = self.calls.as_mut().filter(|_| ready.contains(&CALLS)) {
                if calls.read(&mut [0; 64])? == 0 {
                    self.calls = None; // no writers are left
                }
                self.called = true;
                return Ok(Event::Tick);
            }
            if self.came.is_empty() && self.ended.is_empty() && (due || ready.contains(&TIMER)) {
                return Ok(Event::Tick);
            }
        }
    }

    fn read_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.read()? {
            if signal.number == libc::SIGCHLD {
                self.reap();
                continue;
            }
            // The terminal signals the whole process group.
            for (pid, _) in self.watched.iter().filter(|(_, pass_on)| **pass_on && !signal.from_kernel) {
                let _ = sys::kill(*pid, signal.number); // not reaped yet, so its pid is not reused
            }
            self.came.push_back(signal.number);
        }
        Ok(())
    }

    fn reap(&mut self) {
        if !self.reaps {
            return;
        }
        while let Some((pid, status, usage)) = sys::reap() {
            if self.watched.remove(&pid).is_some() {
                self.ended.push_back((pid, status, usage));
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.outer.apply();
    }
}
