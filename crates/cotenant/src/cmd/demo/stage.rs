//! The programs of the demonstration: started, awaited, and always ended.

use anyhow::{Context, Result};
use cotenant_cli::progress::{Progress, about};
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::sys;
use cotenant_linux::sys::launch::Child;
use cotenant_linux::sys::waiter::{Event, Waiter};
use cotenant_measure::live::leftovers::{children, end_orphans};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, PipeReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time for programs to end after a request, before they are killed: `cotenant qos` restores everything.
const GRACE: Duration = Duration::from_secs(10);

/// A signal requested this process to stop.
#[derive(Debug)]
pub struct Stopped(pub i32);

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped by signal {}", self.0)
    }
}

impl std::error::Error for Stopped {}

/// A program that runs. It gets SIGTERM when this process ends.
pub struct Program {
    pid: u32,
    since: Instant,
    /// Standard output and standard error, read once it has ended: less than a pipe holds.
    said: PipeReader,
}

impl Program {
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// One that has ended.
pub struct Ended {
    pub status: ExitStatus,
    /// CPU time per second that it was there, with that of its children.
    pub cpus: f64,
    pub said: String,
}

/// The environment of their runs.
pub struct Stage {
    waiter: Waiter,
    progress: Progress,
    begin: Instant,
    /// Total duration.
    whole: Duration,
    /// The present activity.
    pub doing: String,
    running: BTreeSet<u32>,
    /// Ends that have not been awaited yet.
    ended: BTreeMap<u32, (ExitStatus, Duration, Instant)>,
    /// Children of this process that are none of these programs.
    others: BTreeSet<u32>,
}

impl Stage {
    /// `shown`: a terminal sees how far it is.
    ///
    /// # Errors
    /// Signals cannot be awaited.
    pub fn new(whole: Duration, shown: bool) -> Result<Self> {
        let others = children();
        Ok(Self {
            waiter: Waiter::new()?,
            progress: Progress::new(shown),
            begin: Instant::now(),
            whole,
            doing: String::new(),
            running: BTreeSet::new(),
            ended: BTreeMap::new(),
            others,
        })
    }

    /// # Errors
    /// It cannot be started.
    pub fn start(&mut self, mut command: Command) -> Result<Program> {
        let (said, theirs) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(theirs.try_clone()?).stderr(theirs);
        let since = Instant::now();
        let child = Child::spawn_helper(command)?;
        self.running.insert(child.pid());
        self.waiter.watch(&child, false);
        Ok(Program { pid: child.pid(), since, said })
    }

    /// Whether it has ended without a request.
    pub fn is_gone(&self, program: &Program) -> bool {
        self.ended.contains_key(&program.pid)
    }

    /// Requests all running ones to end.
    pub fn ask_to_end(&self) {
        for pid in &self.running {
            let _ = sys::kill(*pid, libc::SIGTERM); // not reaped yet, so the pid is its own
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`Stopped`]; or a failure to wait or to read its output.
    pub fn wait(&mut self, mut program: Program) -> Result<Ended> {
        let (status, cpu, at) = loop {
            if let Some(ended) = self.ended.remove(&program.pid) {
                break ended;
            }
            let (done, left) = self.how_far();
            self.progress.show(done, || format!("{}, {} left", self.doing, about(left)));
            let redraw = self.progress.is_on().then(|| self.progress.next());
            if let Event::Signal(signal) = self.next(redraw)? {
                return Err(Stopped(signal).into());
            }
        };
        self.progress.clear();
        let said =
            bounded::rest(&mut program.said, Limit::Named).context("what a program of the demonstration says")?;
        let cpus = cpu.as_secs_f64() / (at - program.since).as_secs_f64();
        Ok(Ended { status, cpus, said: String::from_utf8_lossy(&said).into_owned() })
    }

    fn next(&mut self, until: Option<Instant>) -> io::Result<Event> {
        let event = self.waiter.wait(until)?;
        if let Event::Exited(pid, status, used) = event {
            self.running.remove(&pid);
            self.ended.insert(pid, (status, used.cpu, Instant::now()));
        }
        Ok(event)
    }

    fn how_far(&self) -> (f64, Duration) {
        let left = self.whole.saturating_sub(self.begin.elapsed());
        (1.0 - left.as_secs_f64() / self.whole.as_secs_f64(), left)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.progress.clear();
        self.ask_to_end();
        let deadline = Instant::now() + GRACE;
        while !self.running.is_empty() && Instant::now() < deadline && self.next(Some(deadline)).is_ok() {}
        end_orphans(&self.others);
    }
}
