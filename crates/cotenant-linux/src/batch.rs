//! Many programs of which some run and the others wait: the live machine as a [`Host`] for a queue of jobs.
//!
//! Where jobs are let wait, each quantum is: stop all, sample, decide, place, resume who runs. The time between the first stop and the
//! last resume is measured ([`Gaps`]). Jobs that end or begin within a quantum are decided about without stopping the others.

use crate::affinity;
use crate::apply::{Applier, ApplyOptions};
use crate::book::Identity;
use crate::host::{StartError, look};
use crate::launch::{Child, LaunchError};
use crate::observe::{AppTarget, Observer, Options};
use crate::pause::{Job, Means, Mechanism, Pauses};
use crate::restore::RestoreReport;
use crate::sys::{self, Usage};
use crate::tasks::Target;
use crate::tier::TierReport;
use crate::waiter::{Event, Waiter, asks_to_stop};
use cotenant_core::host::HostError;
use cotenant_core::profile::{AppProfile, stand_in};
use cotenant_core::{Action, AppId, CpuSet, Host, Order, Outcome, Sample, Signal, Time, Topology, Wake};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Time between two looks whether those have ended whom jobs left behind when they were asked to stop.
const LEFT: Duration = Duration::from_millis(20);

/// What is counted of jobs: transactions at each level of cache, and speed.
const SIGNALS: [Signal; 7] = [
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
pub trait Queue {
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

/// How a batch is managed.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// CPUs on which jobs start; `None` = all that this process may use.
    pub cpus: Option<CpuSet>,
    /// How jobs are let wait; `None`: none is, and nothing is changed.
    pub means: Option<Means>,
    /// How changes are made, where any are; `None`: as [`ApplyOptions::new`] says.
    pub apply: Option<ApplyOptions>,
    /// Applications by name, of which rates stand in for signals that cannot be counted.
    pub profiles: BTreeMap<String, AppProfile>,
    /// After being asked to stop, jobs get SIGTERM, and SIGKILL after so long.
    pub grace: Duration,
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

/// What a batch came to.
#[derive(Clone, Debug, Default)]
pub struct BatchEnd {
    /// The last signal that asked to stop.
    pub signal: Option<i32>,
    /// What was given back.
    pub restored: RestoreReport,
    /// What stopping and resuming took.
    pub gaps: Gaps,
    /// What could be counted.
    pub tier: Option<TierReport>,
    /// Remarks for people.
    pub notes: Vec<String>,
}

/// A job that has been started and has not ended.
#[derive(Debug)]
struct Running {
    key: usize,
    app: AppId,
    child: Child,
    /// `None`: it cannot be let wait.
    job: Option<Job>,
    /// It was chosen to wait.
    waits: bool,
    /// It was asked to end before it had.
    asked: bool,
}

/// The machine that this is, with a queue of jobs.
#[derive(Debug)]
pub struct Batch<Q> {
    topology: Topology,
    queue: Q,
    observer: Observer,
    applier: Option<Applier>,
    pauses: Option<Pauses>,
    waiter: Waiter,
    start: Instant,
    options: BatchOptions,
    running: Vec<Running>,
    apps: u32,
    /// The quantum is over.
    due: bool,
    stopped: Option<Instant>,
    gaps: Gaps,
    signal: Option<i32>,
    notes: BTreeSet<String>,
}

impl<Q: Queue> Batch<Q> {
    /// Holds signals back in this thread, see [`Waiter`]; starts nothing yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(topology: &Topology, queue: Q, options: BatchOptions) -> Result<Self, StartError> {
        let waiter = Waiter::new().map_err(StartError::Wait)?;
        let applier = match (&options.means, &options.apply) {
            (None, _) => None,
            (Some(_), Some(apply)) => Some(Applier::new(apply.clone())?),
            (Some(_), None) => Some(Applier::new(ApplyOptions::new()?)?),
        };
        let observe = Options { signals: SIGNALS.to_vec(), ..Options::default() };
        Ok(Self {
            topology: topology.clone(),
            queue,
            observer: Observer::new(topology, Vec::new(), observe)?,
            applier,
            pauses: options.means.clone().map(Pauses::new),
            waiter,
            start: Instant::now(),
            options,
            running: Vec::new(),
            apps: 0,
            due: false,
            stopped: None,
            gaps: Gaps::default(),
            signal: None,
            notes: BTreeSet::new(),
        })
    }

    /// The queue.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// How jobs are let wait; `None` where none is.
    pub fn mechanism(&self) -> Option<Mechanism> {
        self.pauses.as_ref().map(Pauses::mechanism)
    }

    /// Undoes everything. Jobs that still run go on.
    pub fn finish(mut self) -> BatchEnd {
        let tier = Some(self.observer.tier());
        let mut applier = self.applier.take();
        if let Some(applier) = &mut applier {
            let mut jobs: Vec<Job> = self.running.drain(..).filter_map(|running| running.job).collect();
            // First: nobody is to wait for the end of another one's group.
            for job in &mut jobs {
                let _ = job.resume();
            }
            for job in jobs {
                let _ = job.end(applier); // what fails is told by the applier's end, which tries again
            }
            if let Some(pauses) = self.pauses.take() {
                pauses.finish(applier);
            }
        }
        let mut notes: Vec<String> = std::mem::take(&mut self.notes).into_iter().collect();
        notes.extend(applier.iter().flat_map(Applier::notes));
        let restored = applier.map(Applier::finish).unwrap_or_default();
        BatchEnd { signal: self.signal, restored, gaps: self.gaps, tier, notes }
    }

    fn now(&self) -> Time {
        Time::default() + self.start.elapsed()
    }

    fn note(&mut self, note: impl std::fmt::Display) {
        self.notes.insert(note.to_string());
    }

    /// Starts what may start; whether there was any.
    fn launch(&mut self) -> bool {
        let mut any = false;
        while let Some(Program { key, name, command }) = self.queue.next() {
            match self.launch_one(key, name, command) {
                Ok(()) => any = true,
                Err(why @ LaunchError::NoProcess { .. }) if !self.running.is_empty() => {
                    self.note(format!("jobs waited until others had ended: {why}"));
                    self.queue.put_back(key);
                    return any;
                }
                Err(why) => self.queue.not_started(key, why.to_string()),
            }
        }
        any
    }

    fn launch_one(&mut self, key: usize, name: String, mut command: Command) -> Result<(), LaunchError> {
        let mut job = match (&mut self.pauses, &mut self.applier) {
            (Some(pauses), Some(applier)) => pauses.job(applier).map_err(|why| self.notes.insert(why.to_string())).ok(),
            _ => None,
        };
        let prepared = job.as_ref().map(|job| job.prepare(&mut command));
        if let Some(Err(why)) = prepared {
            self.notes.insert(why.to_string());
            job = None;
        }
        if job.is_none() {
            // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
            unsafe {
                command.pre_exec(|| sys::setsid().or(Ok(())));
            }
        }
        if let Some(cpus) = self.options.cpus.clone() {
            // SAFETY: between fork and exec it makes one async-signal-safe system call with memory that was allocated before.
            unsafe {
                command.pre_exec(move || sys::setaffinity(0, &cpus));
            }
        }
        let child = match Child::spawn_command(command) {
            Ok(child) => child,
            Err(why) => {
                if let (Some(job), Some(applier)) = (job, &mut self.applier) {
                    let _ = job.end(applier);
                }
                return Err(why);
            }
        };
        let pid = child.pid();
        let id = (pid, affinity::process_stat(pid).map_or(0, |stat| stat.start_ticks));
        self.queue.started(key, id); // first of all: whoever goes on after a crash must know of it
        if let (Some(started), Some(applier)) = (&mut job, &mut self.applier)
            && let Err(why) = started.started(applier, id)
        {
            self.notes.insert(why.to_string());
            job = None;
        }
        self.waiter.watch_job(&child);
        self.observer.add_app(AppTarget { name, target: Target::Trees(vec![pid]) });
        self.running.push(Running { key, app: AppId(self.apps), child, job, waits: false, asked: false });
        self.apps += 1;
        Ok(())
    }

    fn ended(&mut self, pid: u32, status: ExitStatus, usage: Usage) {
        let Some(i) = self.running.iter().position(|r| r.child.pid() == pid) else { return };
        let Running { key, app, job, asked, .. } = self.running.swap_remove(i);
        if let (Some(job), Some(applier)) = (job, &mut self.applier)
            && let Err(why) = job.end(applier)
        {
            self.note(why);
        }
        self.observer.end_app(app.0 as usize);
        self.queue.ended(key, status, usage, asked);
    }

    /// Stops everybody for the moment of the decision; also who has left a job that waits since it was stopped.
    fn stop_all(&mut self) {
        let Some(applier) = &mut self.applier else { return };
        self.stopped = Some(Instant::now());
        for running in &mut self.running {
            let Some(job) = &mut running.job else { continue };
            let members = members(&self.observer, job, running.app);
            if let Err(why) = job.pause(applier, &members) {
                self.notes.insert(why.to_string());
            }
        }
    }

    /// Resumes who was not chosen to wait.
    fn resume_chosen(&mut self) {
        for running in self.running.iter_mut().filter(|r| !r.waits) {
            if let Some(Err(why)) = running.job.as_mut().map(Job::resume) {
                self.notes.insert(why.to_string());
            }
        }
        if let Some(since) = self.stopped.take() {
            let gap = since.elapsed();
            self.gaps.count += 1;
            self.gaps.total += gap;
            self.gaps.longest = self.gaps.longest.max(gap);
        }
    }

    /// Lets a job wait; whether that could be done.
    fn pause(&mut self, app: AppId) -> bool {
        let Some(running) = self.running.iter_mut().find(|r| r.app == app) else { return false };
        let (Some(job), Some(applier)) = (&mut running.job, &mut self.applier) else { return false };
        let members = members(&self.observer, job, app);
        if let Err(why) = job.pause(applier, &members) {
            self.notes.insert(why.to_string());
        }
        if !std::mem::replace(&mut running.waits, true) {
            self.queue.turned(running.key, false);
        }
        true
    }

    fn unpause(&mut self, app: AppId) {
        if let Some(running) = self.running.iter_mut().find(|r| r.app == app)
            && std::mem::replace(&mut running.waits, false)
        {
            self.queue.turned(running.key, true);
            self.observer.resumed(app.0 as usize);
        }
    }

    /// Lets every job act on a signal.
    fn signal_all(&mut self, signal: i32) {
        for running in &mut self.running {
            running.waits = false;
            running.asked |= affinity::process_stat(running.child.pid()).is_some_and(|stat| !stat.is_dead());
            let members = self.observer.members(running.app.0 as usize);
            if let Some(job) = &mut running.job {
                job.signal(signal, &members);
                if let Err(why) = job.resume() {
                    self.notes.insert(why.to_string());
                }
            } else {
                // Not reaped yet, so the number is its own.
                let _ = sys::signal_group(running.child.pid(), signal);
                Job::of_processes().signal(signal, &members);
            }
        }
    }

    /// Ends all jobs: politely, then not.
    fn wind_up(&mut self) -> Wake {
        // A job's first process may end sooner than those that it has started, and the last look may be long ago.
        let at = self.now();
        self.observer.list_soon();
        let _ = look(&mut self.observer, &mut self.applier, at, &|own| own);
        // Who has ended by now has done so by itself.
        let mut twice = false;
        while let Ok(event) = self.waiter.wait(Some(Instant::now())) {
            match event {
                Event::JobExited(pid, status, usage) => self.ended(pid, status, usage),
                Event::Signal(signal) => twice |= asks_to_stop(signal),
                Event::Tick => break,
                Event::Other(_) | Event::ChildExited(_) => {}
            }
        }
        self.queue.stop();
        let of = |running: &Running| self.observer.members(running.app.0 as usize);
        let members: Vec<Identity> = self.running.iter().flat_map(of).collect();
        self.signal_all(libc::SIGTERM);
        let mut deadline = Some(Instant::now() + self.options.grace);
        if twice {
            deadline = None;
            self.signal_all(libc::SIGKILL);
        }
        while !self.running.is_empty() || deadline.is_some() && members.iter().any(lives) {
            // Nobody tells of the end of who is left behind.
            let alone = self.running.is_empty().then(|| Instant::now() + LEFT);
            match self.waiter.wait(deadline.into_iter().chain(alone).min()) {
                Ok(Event::JobExited(pid, status, usage)) => self.ended(pid, status, usage),
                Ok(Event::Tick) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {}
                Ok(Event::Tick) => {
                    deadline = None;
                    self.note(format!(
                        "jobs that did not end within {} s of SIGTERM were killed",
                        self.options.grace.as_secs_f64()
                    ));
                    self.signal_all(libc::SIGKILL);
                }
                // Asked twice.
                Ok(Event::Signal(signal)) if asks_to_stop(signal) => {
                    deadline = None;
                    self.signal_all(libc::SIGKILL);
                }
                Ok(_) => {}
                Err(e) => {
                    self.note(format!("waiting failed: {e}; jobs go on by themselves"));
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

/// Whether a process lives still.
fn lives(id: &Identity) -> bool {
    affinity::process_stat(id.0).is_some_and(|stat| stat.start_ticks == id.1 && !stat.is_dead())
}

/// Known to who follows them; a control group knows its own.
fn members(observer: &Observer, job: &Job, app: AppId) -> Vec<Identity> {
    if job.mechanism() == Mechanism::Signals { observer.members(app.0 as usize) } else { Vec::new() }
}

impl<Q: Queue> Host for Batch<Q> {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        if std::mem::take(&mut self.due) && self.pauses.is_some() {
            self.stop_all();
        }
        let at = self.now();
        let mut sample = look(&mut self.observer, &mut self.applier, at, &|own| own)?;
        for app in stand_in(&mut sample, &self.options.profiles) {
            self.notes.insert(format!("{app}: what cannot be counted here is taken from its profile (per_cpu_s)"));
        }
        Ok(sample)
    }

    /// Nobody is asked for latencies.
    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let now = self.now();
        let app_of = |order: &Order, observer: &Observer| observer.info(order.action.task()?).map(|info| info.app);
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        let mut paused = BTreeMap::new();
        for order in orders {
            outcomes.push(match (&order.action, app_of(order, &self.observer)) {
                (_, None) => Some(Outcome::Gone),
                (Action::Pause { .. }, Some(app)) => {
                    let done = *paused.entry(app).or_insert_with(|| self.pause(app));
                    Some(if done { Outcome::Applied } else { Outcome::Denied })
                }
                (_, Some(app)) => {
                    self.unpause(app);
                    None
                }
            });
        }
        let rest: Vec<Order> =
            orders.iter().zip(&outcomes).filter(|(_, o)| o.is_none()).map(|(order, _)| order.clone()).collect();
        let Some(applier) = &mut self.applier else { return vec![Outcome::NotThisMachine; orders.len()] };
        let placed = applier.apply(now, &rest, &|id| self.observer.info(id).cloned());
        for (tid, own) in applier.take_changed() {
            self.observer.set_allowed(tid, own);
        }
        self.resume_chosen();
        let mut placed = placed.into_iter();
        outcomes.into_iter().map(|o| o.or_else(|| placed.next()).unwrap_or(Outcome::Gone)).collect()
    }

    fn wait(&mut self, until: Time) -> Wake {
        if self.stopped.is_some() {
            self.resume_chosen(); // nothing was applied
        }
        let until = self.start + Duration::from_nanos(until.0);
        let mut changed = false;
        loop {
            changed |= self.launch();
            if self.running.is_empty() && self.queue.is_done() {
                return Wake::Exit;
            }
            // Whatever else has happened by now is part of the same change.
            match self.waiter.wait(Some(if changed { Instant::now() } else { until })) {
                Ok(Event::Tick) if changed => return Wake::TasksChanged,
                Ok(Event::Tick) => {
                    self.due = true;
                    return Wake::Tick;
                }
                Ok(Event::JobExited(pid, status, usage)) => {
                    self.ended(pid, status, usage);
                    changed = true;
                }
                Ok(Event::Signal(signal)) if asks_to_stop(signal) => {
                    self.signal = Some(signal);
                    return self.wind_up();
                }
                Ok(Event::Signal(_) | Event::Other(_) | Event::ChildExited(_)) => {}
                Err(e) => {
                    self.note(format!("waiting failed: {e}; jobs go on by themselves"));
                    return Wake::Exit;
                }
            }
        }
    }
}
