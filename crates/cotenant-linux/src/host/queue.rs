//! A queue of jobs, of which some run and the others wait.
//!
//! Where jobs can be paused, each quantum is: stop all, sample, decide, place, resume those that run. The time between
//! the first stop and the last resume is measured ([`Gaps`]). Jobs that end or begin within a quantum are decided
//! about without stopping the others.

use super::{AppSpec, LinuxHost, StartError};
use crate::act::pause::Job;
use crate::act::throttle::Enforcer;
use crate::sys::launch::LaunchError;
use crate::sys::thread::{self, Identity, process_stat};
use crate::sys::waiter::{Event, asks_to_stop};
use crate::sys::{self, Usage};
use cotenant_model::{AppId, Signal, Wake};
use std::fmt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Time between two looks whether the processes that jobs left behind have ended, after these were asked to stop.
const LEFT: Duration = Duration::from_millis(20);

/// What is counted of jobs: transactions at each level of cache, and speed.
pub const SIGNALS: [Signal; 7] = [
    Signal::Cycles,
    Signal::Instructions,
    Signal::LlcMisses,
    Signal::PrivateMisses,
    Signal::L1Misses,
    Signal::L2LinesIn,
    Signal::L3LinesIn,
];

/// A program that is to be started.
#[derive(Debug)]
pub struct Program {
    /// Which job it is, for the queue.
    pub key: usize,
    /// Its name, under which profiles know it.
    pub name: String,
    /// How it is started.
    pub command: Command,
}

/// Jobs, in the order and number in which they are to be started.
pub trait Queue: fmt::Debug {
    /// The next program to start, if one may start now.
    fn next(&mut self) -> Option<Program>;
    /// It runs, as this process.
    fn started(&mut self, key: usize, id: Identity);
    /// It cannot be started beside those that run: it is to be the next one again.
    fn put_back(&mut self, key: usize);
    /// It does not run.
    fn not_started(&mut self, key: usize, why: String);
    /// It has ended; whether it was asked to.
    fn ended(&mut self, key: usize, status: ExitStatus, usage: Usage, asked: bool);
    /// A job runs, or waits from now on.
    fn turned(&mut self, key: usize, runs: bool);
    /// Nothing more is to be started: somebody asked to stop.
    fn stop(&mut self);
    /// Whether no job is left to be started; those that run are the host's.
    fn is_done(&self) -> bool;
}

/// What stopping and resuming took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Quanta.
    pub count: u64,
    /// From the first stop to the last resume, summed up.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

/// The queue of a host, and where in a quantum it is.
#[derive(Debug)]
pub(super) struct Line {
    pub queue: Box<dyn Queue>,
    /// After being asked to stop, jobs get SIGTERM, and SIGKILL after so long.
    grace: Duration,
    /// The quantum is over.
    pub due: bool,
    stopped: Option<Instant>,
    pub gaps: Gaps,
}

impl Line {
    pub fn new(queue: Box<dyn Queue>, grace: Duration) -> Self {
        Self { queue, grace, due: false, stopped: None, gaps: Gaps::default() }
    }

    /// Whether everybody is stopped for a decision.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// What was not chosen to wait runs again.
    pub fn resumed(&mut self) {
        if let Some(since) = self.stopped.take() {
            let gap = since.elapsed();
            self.gaps.count += 1;
            self.gaps.total += gap;
            self.gaps.longest = self.gaps.longest.max(gap);
        }
    }
}

impl LinuxHost {
    /// Stops everybody for the moment of the decision, where a quantum is over.
    pub(super) fn stop_for_decision(&mut self) {
        let now = self.now();
        if let (Some(line), Some(act)) = (&mut self.line, &mut self.act)
            && std::mem::take(&mut line.due)
        {
            line.stopped = Some(Instant::now());
            act.pause_all(now, &self.observer);
        }
    }

    /// Starts what may start; whether there was any.
    pub(super) fn start_jobs(&mut self) -> bool {
        let mut any = false;
        while let Some(Program { key, name, command }) = self.line.as_mut().and_then(|line| line.queue.next()) {
            let others = self.apps.values().any(|app| app.job.is_some());
            let throttled = Some(Enforcer::Outside);
            let ready = self.make_ready(AppSpec { throttled, ..AppSpec::command(name, command) }, Some(key));
            let started = ready.and_then(|ready| self.begin(ready));
            let Some(line) = &mut self.line else { return any };
            match started {
                Ok(_) => any = true,
                Err(StartError::Launch(why @ LaunchError::NoProcess { .. })) if others => {
                    self.notes.add(format!("jobs waited until others had ended: {why}"));
                    line.queue.put_back(key);
                    return any;
                }
                Err(why) => line.queue.not_started(key, why.to_string()),
            }
        }
        any
    }

    /// A job has ended: it is managed no more.
    pub(super) fn job_ended(&mut self, app: AppId, status: ExitStatus, usage: Usage) {
        let job = self.apps.get(&app).and_then(|app| app.job);
        self.remove(app);
        if let (Some((key, asked)), Some(line)) = (job, &mut self.line) {
            line.queue.ended(key, status, usage, asked);
        }
    }

    fn jobs(&self) -> Vec<AppId> {
        self.apps.iter().filter(|(_, app)| app.job.is_some()).map(|(id, _)| *id).collect()
    }

    /// Lets every job act on a signal.
    fn signal_jobs(&mut self, signal: i32) {
        let now = self.now();
        for id in self.jobs() {
            let Some(app) = self.apps.get_mut(&id) else { continue };
            let Some(pid) = app.pid() else { continue };
            if let Some((_, asked)) = &mut app.job {
                *asked |= process_stat(pid).is_some_and(|stat| !stat.is_dead());
            }
            if !self.act.as_mut().is_some_and(|act| act.signal(now, id, signal, &self.observer)) {
                // Not reaped yet, so the number is its own.
                let _ = sys::signal_group(pid, signal);
                Job::of_processes().signal(signal, &self.observer.members(id));
            }
        }
    }

    /// Ends all jobs: politely, then not.
    pub(super) fn wind_up(&mut self) -> Wake {
        self.look_for_all(); // a job's first process may end sooner than those that it has started
        // What has ended by now has done so by itself.
        let mut twice = false;
        while let Ok(event) = self.waiter.wait(Some(Instant::now())) {
            match event {
                Event::Exited(pid, status, usage) => self.child_ended(pid, status, usage),
                Event::Signal(signal) => twice |= asks_to_stop(signal),
                Event::Tick => break,
            }
        }
        let Some(line) = &mut self.line else { return Wake::Exit };
        line.queue.stop();
        let grace = line.grace;
        let members: Vec<Identity> = self.jobs().into_iter().flat_map(|job| self.observer.members(job)).collect();
        self.signal_jobs(libc::SIGTERM);
        let mut deadline = Some(Instant::now() + grace);
        if twice {
            deadline = None;
            self.signal_jobs(libc::SIGKILL);
        }
        while !self.jobs().is_empty() || deadline.is_some() && members.iter().any(|id| thread::lives(*id)) {
            // Nothing tells of the end of processes that are left behind.
            let alone = self.jobs().is_empty().then(|| Instant::now() + LEFT);
            match self.waiter.wait(deadline.into_iter().chain(alone).min()) {
                Ok(Event::Exited(pid, status, usage)) => self.child_ended(pid, status, usage),
                Ok(Event::Tick) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {}
                Ok(Event::Tick) => {
                    deadline = None;
                    self.notes
                        .add(format!("jobs that did not end within {} s of SIGTERM were killed", grace.as_secs_f64()));
                    self.signal_jobs(libc::SIGKILL);
                }
                // Asked twice.
                Ok(Event::Signal(signal)) if asks_to_stop(signal) => {
                    deadline = None;
                    self.signal_jobs(libc::SIGKILL);
                }
                Ok(_) => {}
                Err(e) => {
                    self.notes.add(format!("waiting failed: {e}; jobs go on by themselves"));
                    break;
                }
            }
        }
        if deadline.is_none() {
            Job::of_processes().signal(libc::SIGKILL, &members);
        }
        Wake::Exit
    }
}
