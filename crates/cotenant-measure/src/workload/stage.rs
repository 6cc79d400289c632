//! A running workload: a host around a host that starts due jobs and records ended ones. The loop drives it like any
//! other.

use super::{Arrival, Workload};
use cotenant_model::Topology;
use cotenant_model::action::{Order, Outcome};
use cotenant_model::host::{Host, HostError, Mode, Round, Wake, drive};
use cotenant_model::ids::Time;
use cotenant_model::policy::{Ctx, DynPolicy};
use cotenant_model::sample::Sample;
use std::time::Duration;

/// Longest wait without a managing policy.
const LOOK: Duration = Duration::from_secs(3_600);

/// An ended run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Index of the job.
    pub job: usize,
    /// When it ended.
    pub at: Time,
    /// Failure of the run, such as an exit code.
    pub failure: Option<String>,
}

/// Starts programs on a host.
pub trait Launcher {
    /// The host.
    fn host(&self) -> &dyn Host;

    /// The same, for the loop.
    fn host_mut(&mut self) -> &mut dyn Host;

    /// The time, on the clock of its samples.
    fn now(&self) -> Time;

    /// Starts a run of a job that is not running.
    ///
    /// # Errors
    /// The error if it does not run.
    fn start(&mut self, job: usize) -> Result<(), HostError>;

    /// Called before each wait that ends at this time at the latest.
    fn look(&mut self) -> Option<Time> {
        None
    }

    /// Runs that have ended since the last call. [`Host::wait`] returns [`Wake::TasksChanged`] when one ends.
    fn ended(&mut self) -> Vec<Ended>;
}

/// Runs of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRuns {
    /// When each run began, seconds after the beginning of the workload.
    pub began_s: Vec<f64>,
    /// Wall-clock time of each run, seconds.
    pub times_s: Vec<f64>,
}

impl JobRuns {
    /// The mean time of a run: the paper's execution time.
    pub fn time_s(&self) -> f64 {
        self.times_s.iter().sum::<f64>() / self.times_s.len() as f64
    }
}

/// Reasons for an unfinished workload.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The host failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The user or the host requested a stop.
    #[error("stopped before the end of the workload: {0}")]
    Stopped(String),
    /// A program failed.
    #[error("{name}: {why}; a workload with a failing run cannot be compared")]
    Failed {
        /// The job's name.
        name: String,
        /// The failure.
        why: String,
    },
}

/// The manager of thread placement.
pub type Manager<'a, 'b> = (&'a dyn DynPolicy, &'a Ctx<'b>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Arrival time; `None`: after another job.
    Waits(Option<Time>),
    /// Runs since then.
    Runs(Time),
    Done,
}

struct Stage<'a, L> {
    launcher: &'a mut L,
    workload: &'a Workload,
    begin: Time,
    life: Vec<Life>,
    ran: Vec<JobRuns>,
    failure: Option<RunError>,
}

/// Runs a workload. Without a manager the programs are left alone and not sampled.
///
/// # Errors
/// [`RunError`]; running programs are then the launcher's to end.
pub fn run<L: Launcher>(
    launcher: &mut L,
    workload: &Workload,
    manager: Option<Manager<'_, '_>>,
    watch: impl FnMut(&Round<'_>),
) -> Result<Vec<JobRuns>, RunError> {
    let begin = launcher.now();
    let life = |job: &super::Job| match job.arrival {
        Arrival::At(at) => Life::Waits(Some(Time(begin.0 + at.0))),
        Arrival::After(_) => Life::Waits(None),
    };
    let life = workload.jobs.iter().map(life).collect();
    let ran = vec![JobRuns::default(); workload.jobs.len()];
    let mut stage = Stage { launcher, workload, begin, life, ran, failure: None };
    match manager {
        Some((policy, ctx)) => drive(&mut stage, policy, ctx, Mode::Enforce, watch)?,
        None => while stage.wait(stage.launcher.now() + LOOK) != Wake::Exit {},
    }
    match stage.failure.take() {
        Some(failure) => Err(failure),
        None if stage.is_done() => Ok(stage.ran),
        None => Err(RunError::Stopped(stage.unfinished())),
    }
}

impl<L: Launcher> Stage<'_, L> {
    fn is_done(&self) -> bool {
        self.life.iter().all(|life| *life == Life::Done)
    }

    fn unfinished(&self) -> String {
        let open = self.life.iter().zip(&self.workload.jobs).filter(|(life, _)| **life != Life::Done);
        open.map(|(_, job)| job.name.as_str()).collect::<Vec<_>>().join(", ") + " had not ended"
    }

    /// Starts a run.
    fn start(&mut self, job: usize) {
        let now = self.launcher.now();
        match self.launcher.start(job) {
            Ok(()) => {
                self.ran[job].began_s.push(Time(now.0 - self.begin.0).as_secs_f64());
                self.life[job] = Life::Runs(now);
            }
            Err(e) => self.failure = Some(e.into()),
        }
    }

    /// Starts the due jobs; returns whether there were any.
    fn start_due(&mut self) -> bool {
        let now = self.launcher.now();
        let due = |life: &Life| matches!(life, Life::Waits(Some(at)) if *at <= now);
        let due: Vec<usize> = (0..self.life.len()).filter(|&job| due(&self.life[job])).collect();
        for &job in &due {
            self.start(job);
        }
        !due.is_empty()
    }

    /// The time at which the first run exceeds its limit; fails if one has.
    fn too_long(&mut self) -> Option<Time> {
        let (longest, now) = (self.workload.longest?, self.launcher.now());
        let ends = |(job, life): (usize, &Life)| {
            if let Life::Runs(since) = life { Some((*since + longest, job)) } else { None }
        };
        let (at, job) = self.life.iter().enumerate().filter_map(ends).min()?;
        if at <= now && self.failure.is_none() {
            let why = format!("a run still went on after {} s", longest.as_secs_f64());
            self.failure = Some(RunError::Failed { name: self.workload.jobs[job].name.clone(), why });
        }
        Some(at)
    }

    /// Records ended runs, and starts next runs and jobs that waited for the last run; returns whether any ended.
    fn note_ends(&mut self) -> bool {
        let all = self.launcher.ended();
        for Ended { job, at, failure } in &all {
            let Life::Runs(since) = self.life[*job] else { continue };
            if let Some(why) = failure {
                let name = self.workload.jobs[*job].name.clone();
                self.failure = Some(RunError::Failed { name, why: why.clone() });
                continue;
            }
            self.ran[*job].times_s.push(Time(at.0 - since.0).as_secs_f64());
            let owes = |job: usize| self.ran[job].times_s.len() < self.workload.jobs[job].runs as usize;
            if owes(*job) || self.workload.restart && (0..self.ran.len()).any(owes) {
                self.start(*job);
                continue;
            }
            self.life[*job] = Life::Done;
            let jobs = self.workload.jobs.iter().enumerate();
            let next: Vec<usize> = jobs.filter(|(_, j)| j.arrival == Arrival::After(*job)).map(|(i, _)| i).collect();
            for job in next {
                self.start(job);
            }
        }
        !all.is_empty()
    }
}

impl<L: Launcher> Host for Stage<'_, L> {
    fn topology(&self) -> &Topology {
        self.launcher.host().topology()
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        self.launcher.host_mut().sample()
    }

    fn watch(&mut self, until: Time) {
        self.launcher.host_mut().watch(until);
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        self.launcher.host_mut().apply(orders)
    }

    fn wait(&mut self, until: Time) -> Wake {
        let mut changed = self.start_due();
        loop {
            let too_long = self.too_long();
            if self.failure.is_some() || self.is_done() {
                return Wake::Exit;
            }
            if changed {
                return Wake::TasksChanged;
            }
            let arrivals = self.life.iter().filter_map(|life| if let Life::Waits(at) = life { *at } else { None });
            let next = arrivals.chain(too_long).chain(self.launcher.look()).min().unwrap_or(until).min(until);
            let wake = self.launcher.host_mut().wait(next);
            let ended = self.note_ends();
            changed = self.start_due() || ended || wake == Wake::TasksChanged;
            match wake {
                Wake::Exit if !self.is_done() => return Wake::Exit,
                Wake::Tick if !changed && self.launcher.now() >= until => return Wake::Tick,
                _ => {}
            }
        }
    }
}
