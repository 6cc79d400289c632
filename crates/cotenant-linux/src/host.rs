//! The live machine as a [`Host`].

use crate::FsRoot;
use crate::affinity::{Held, SetError};
use crate::apply::{Applier, ApplyError, ApplyOptions};
use crate::launch::{self, Child, LaunchError};
use crate::memory::mover::Mover;
use crate::memory::{self, interleaving};
use crate::metrics::{self, Metrics};
use crate::observe::{AppTarget, NewTask, ObserveError, Observer, Options};
use crate::progress::Reported;
use crate::restore::RestoreReport;
use crate::tasks::Target;
use crate::tier::TierReport;
use crate::waiter::{Event, Waiter};
use cotenant_core::host::HostError;
use cotenant_core::metric::Metric;
use cotenant_core::profile::{AppProfile, stand_in};
use cotenant_core::{Action, CpuSet, Host, Order, Outcome, Sample, TaskId, TaskInfo, Time, Topology, Wake};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a live machine is managed.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// CPUs that the user allows; `None` = all.
    pub cpus: Option<CpuSet>,
    /// Whether anything is to be changed. Without it no journal, no guardian and no claim comes into being.
    pub act: bool,
    /// Whether tasks of other users are managed.
    pub other_users: bool,
    /// What is looked at of the memory of each process: dear.
    pub memory: memory::Options,
    /// Whether the memory of programs may be moved, too.
    pub move_pages: bool,
    /// Metrics from outside, of the first application.
    pub metrics: Vec<Metric>,
    /// Applications by name, of which rates stand in for signals that cannot be counted.
    pub profiles: BTreeMap<String, AppProfile>,
}

/// Why a host could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing can be changed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Nothing can be observed.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The metrics cannot be read.
    #[error(transparent)]
    Metrics(#[from] metrics::StartError),
    /// The kernel gave no descriptors to wait with.
    #[error("cannot wait for events: {0}; raise the limit of open files (ulimit -n)")]
    Wait(io::Error),
    /// A means of letting programs nap is not to be had.
    #[error("{0}")]
    Means(String),
}

/// How a managed run ended.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The command's exit code, 128 + signal where a signal ended it; 0 for attached processes.
    pub exit_code: u8,
    /// The last signal that asked to stop: the command has got it, too.
    pub signal: Option<i32>,
    /// What was given back.
    pub restored: RestoreReport,
}

/// Programs that come and go.
#[derive(Debug, Default)]
struct Stage {
    running: BTreeMap<u32, Child>,
    ended: Vec<(u32, u8, Time)>,
}

/// The machine that this is, with the programs that are managed on it.
#[derive(Debug)]
pub struct LinuxHost {
    topology: Topology,
    observer: Observer,
    applier: Option<Applier>,
    /// Where the memory of programs may be moved.
    mover: Option<Mover>,
    metrics: Arc<Metrics>,
    waiter: Waiter,
    child: Option<Child>,
    /// Whether programs are started one after the other by [`LinuxHost::start`]; those that run, and those that have ended.
    stage: Option<Stage>,
    start: Instant,
    cpus: Option<CpuSet>,
    profiles: BTreeMap<String, AppProfile>,
    exit: Option<u8>,
    signal: Option<i32>,
    notes: BTreeSet<String>,
}

impl LinuxHost {
    /// Starts a command and manages it with all its descendants until it ends.
    ///
    /// # Errors
    /// [`StartError`]; the command does not run then.
    pub fn launch(
        topology: &Topology,
        name: String,
        command: Command,
        options: &HostOptions,
    ) -> Result<Self, StartError> {
        // Signals are held back before the command starts, so that none is lost in between; the command gets them unblocked.
        let mut host = Self::attach(topology, Vec::new(), options)?;
        // Last: whatever can fail has been made by now.
        let child = Child::spawn_command(command)?;
        host.waiter.watch(&child);
        host.observer.add_app(AppTarget { name, target: Target::Trees(vec![child.pid()]) });
        host.child = Some(child);
        Ok(host)
    }

    /// Manages what runs already, until it ends or a signal asks to stop.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn attach(topology: &Topology, targets: Vec<AppTarget>, options: &HostOptions) -> Result<Self, StartError> {
        let waiter = Waiter::new().map_err(StartError::Wait)?;
        let mut applier = applier(options)?;
        let named = targets.iter().flat_map(|t| match &t.target {
            Target::Pids(pids) | Target::Trees(pids) => &pids[..],
            Target::Cgroup(_) => &[],
        });
        if let Some(applier) = &mut applier {
            named.for_each(|pid| applier.look_for_rival(*pid));
        }
        let fs = FsRoot::live();
        let hidden = if options.memory.accesses { interleaving::note(&fs) } else { None };
        let observe = Options { memory: options.memory, other_users: options.other_users, ..Options::default() };
        let observer = Observer::new(topology, targets, observe)?;
        let start = Instant::now();
        let metrics = Arc::new(Metrics::start(&options.metrics, start)?);
        Ok(Self {
            topology: topology.clone(),
            observer,
            mover: (options.act && options.move_pages).then(|| Mover::new(&fs)),
            applier,
            metrics,
            waiter,
            child: None,
            stage: None,
            start,
            cpus: options.cpus.clone(),
            profiles: options.profiles.clone(),
            exit: None,
            signal: None,
            notes: hidden.into_iter().collect(),
        })
    }

    /// Manages programs that [`LinuxHost::start`] starts, until a signal asks to stop.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn stage(topology: &Topology, options: &HostOptions) -> Result<Self, StartError> {
        Ok(Self { stage: Some(Stage::default()), ..Self::attach(topology, Vec::new(), options)? })
    }

    /// Starts another program as an application of its own; its process id, which stays its own until [`LinuxHost::take_ended`] tells of it.
    ///
    /// # Errors
    /// [`LaunchError`]
    pub fn start(&mut self, name: String, command: Command) -> Result<u32, LaunchError> {
        let child = Child::spawn_command(command)?;
        let pid = child.pid();
        self.waiter.watch_job(&child);
        self.observer.add_app(AppTarget { name, target: Target::Trees(vec![pid]) });
        self.stage.get_or_insert_default().running.insert(pid, child);
        Ok(pid)
    }

    /// Programs that have ended since the last call: process id, exit code (128 + signal), and when.
    pub fn take_ended(&mut self) -> Vec<(u32, u8, Time)> {
        self.stage.as_mut().map(|stage| std::mem::take(&mut stage.ended)).unwrap_or_default()
    }

    /// What can be counted here, and how much of the time each counter ran.
    pub fn tier(&self) -> TierReport {
        self.observer.tier()
    }

    /// Remarks for people: what was refused or given up, and why.
    pub fn notes(&self) -> Vec<String> {
        let refused = self.applier.iter().flat_map(Applier::notes);
        let memory = self.observer.memory();
        let moved = self.mover.iter().flat_map(Mover::notes);
        let found = memory.collector().map(|name| {
            let (spent, looks) = memory.spent();
            let share = spent.as_secs_f64() / self.start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
            format!("accesses to memory were collected by {name}: {looks} looks, {:.2} % of a CPU", share * 100.0)
        });
        let seen = memory.notes().cloned().chain(found).chain(moved);
        self.notes.iter().cloned().chain(refused).chain(self.observer.refused_reports().cloned()).chain(seen).collect()
    }

    /// What the programs of the first application reported themselves up to now; `None` where none did, or none was found to.
    pub fn reported(&self) -> Option<Reported> {
        self.observer.reported(0)
    }

    /// Whether a signal has asked to stop since the start. The command has got it, too.
    pub fn is_asked_to_stop(&self) -> bool {
        self.signal.is_some()
    }

    /// The metrics from outside.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Undoes everything, and waits for the command where it still runs.
    pub fn finish(mut self) -> Finish {
        let mut restored = self.applier.take().map(Applier::finish).unwrap_or_default();
        while self.child.is_some() && self.exit.is_none() {
            match self.waiter.wait(None) {
                Ok(Event::ChildExited(status)) => self.exit = Some(launch::exit_code(status)),
                Ok(_) => {}
                Err(e) => {
                    restored.notes.push(format!("cannot wait for the command: {e}"));
                    break;
                }
            }
        }
        Finish { exit_code: self.exit.unwrap_or(0), signal: self.signal, restored }
    }

    /// The time of its samples.
    pub fn now(&self) -> Time {
        Time::default() + self.start.elapsed()
    }
}

fn applier(options: &HostOptions) -> Result<Option<Applier>, ApplyError> {
    if !options.act {
        return Ok(None);
    }
    let apply = ApplyOptions { other_users: options.other_users, ..ApplyOptions::new()? };
    Applier::new(apply).map(Some)
}

/// A sample in which each task is allowed, of the mask that it would have without us, what `within` leaves.
pub(crate) fn look(
    observer: &mut Observer,
    applier: &mut Option<Applier>,
    at: Time,
    within: &dyn Fn(CpuSet) -> CpuSet,
) -> Result<Sample, HostError> {
    observer.look_at_masks(&|tid, start, mask| {
        let ours = applier.as_ref().is_some_and(|applier| applier.knows(tid, start));
        (!ours).then(|| within(mask))
    });
    let mut allowed = |task: &NewTask| {
        within(match applier {
            Some(applier) => applier.original_mask(task),
            None => task.mask.clone(),
        })
    };
    observer.sample(at, &mut allowed).map_err(|e| HostError {
        what: "sampling".to_owned(),
        why: e.to_string(),
        remedy: "what was changed has been given back".to_owned(),
    })
}

/// Carries out orders of which some are about memory, in their order.
fn apply_with_pages(
    now: Time,
    orders: &[Order],
    applier: &mut Applier,
    mover: &mut Mover,
    lookup: &dyn Fn(TaskId) -> Option<Arc<TaskInfo>>,
) -> Vec<Outcome> {
    let rest: Vec<Order> = orders.iter().filter(|o| !matches!(o.action, Action::Pages { .. })).cloned().collect();
    let mut others = applier.apply(now, &rest, lookup).into_iter();
    let outcomes = orders.iter().map(|order| {
        let Action::Pages { task, nodes } = &order.action else { return others.next().unwrap_or(Outcome::Gone) };
        let Some(info) = lookup(*task) else { return Outcome::Gone };
        let held = match Held::open_exactly(info.pid, info.tid, info.start_ticks) {
            Ok(held) => held,
            Err(SetError::Recycled) => return Outcome::Stale,
            Err(_) => return Outcome::Gone,
        };
        let result = applier.may_touch(&held).and_then(|()| mover.bring(info.pid, nodes).map_err(|e| e.to_string()));
        match result {
            Ok(()) => Outcome::Applied,
            Err(why) => {
                applier.note(format!("{} ({}): its memory stays where it is: {why}", info.comm, info.pid));
                Outcome::Denied
            }
        }
    });
    let outcomes = outcomes.collect();
    mover.go_on();
    outcomes
}

impl Host for LinuxHost {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let at = self.now();
        let cpus = &self.cpus;
        let within = |own: CpuSet| cpus.as_ref().map_or_else(|| own.clone(), |cpus| own.and(cpus));
        let mut sample = look(&mut self.observer, &mut self.applier, at, &within)?;
        if let Some(app) = sample.apps.first_mut() {
            app.metrics = self.metrics.readings();
        }
        for app in stand_in(&mut sample, &self.profiles) {
            self.notes.insert(format!("{app}: what cannot be counted here is taken from its profile (per_cpu_s)"));
        }
        Ok(sample)
    }

    fn watch(&mut self, until: Time) {
        self.metrics.watch(until);
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let now = self.now();
        let Some(applier) = &mut self.applier else { return vec![Outcome::NotThisMachine; orders.len()] };
        let observer = &self.observer;
        let lookup = |id| observer.info(id).cloned();
        let outcomes = match &mut self.mover {
            Some(mover) => apply_with_pages(now, orders, applier, mover, &lookup),
            None => applier.apply(now, orders, &lookup),
        };
        for (tid, own) in applier.take_changed() {
            let allowed = self.cpus.as_ref().map_or_else(|| own.clone(), |cpus| own.and(cpus));
            self.observer.set_allowed(tid, allowed);
        }
        outcomes
    }

    fn wait(&mut self, until: Time) -> Wake {
        if self.exit.is_some() || (self.child.is_none() && self.stage.is_none() && self.observer.is_empty()) {
            return Wake::Exit;
        }
        let until = self.start + Duration::from_nanos(until.0);
        loop {
            match self.waiter.wait(Some(until)) {
                Ok(Event::Tick) => return Wake::Tick,
                Ok(Event::ChildExited(status)) => {
                    self.exit = Some(launch::exit_code(status));
                    return Wake::Exit;
                }
                Ok(Event::JobExited(pid, status, _)) => {
                    let at = self.now();
                    if let Some(stage) = &mut self.stage {
                        stage.running.remove(&pid);
                        stage.ended.push((pid, launch::exit_code(status), at));
                    }
                    return Wake::TasksChanged;
                }
                Ok(Event::Signal(signal)) => {
                    self.signal = Some(signal);
                    // The command has got it too and decides itself whether to end.
                    if self.child.is_none() {
                        return Wake::Exit;
                    }
                }
                Ok(Event::Other(_)) => {}
                Err(e) => {
                    self.notes.insert(format!("waiting failed: {e}; the run goes on unmanaged"));
                    return Wake::Exit;
                }
            }
        }
    }
}

/// What can be counted on this machine, tried on this process itself.
///
/// # Errors
/// [`ObserveError`] where `/proc` cannot be read.
pub fn probe_tier(topology: &Topology) -> Result<TierReport, ObserveError> {
    let target = Target::Pids(vec![std::process::id()]);
    let mut observer = Observer::new(topology, vec![AppTarget { name: String::new(), target }], Options::default())?;
    observer.sample(Time::default(), &mut |task| task.mask.clone())?;
    Ok(observer.tier())
}
