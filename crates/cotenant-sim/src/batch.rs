//! A scenario under several policies with several seeds, on all cores of this machine; and what that says.

use crate::kernel::KernelKind;
use crate::optimum::{Best, Limits};
use crate::run::{Outcome, SimError, mean_progress};
use crate::scenario::Scenario;
use crate::world::Latency;
use cotenant_model::policy::Registry;
use cotenant_model::stats::{Estimate, Summary};
use cotenant_model::topology::symmetry::{FREE, Slot};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The search for the best static mapping: not a policy, for it needs the simulator's truth.
pub const OPTIMAL: &str = "optimal";

/// A batch to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of policies, or [`OPTIMAL`].
    pub policies: Vec<String>,
    /// The kernel under all of them.
    pub kernel: KernelKind,
    /// Seeds 1 to this, ≥ 1.
    pub seeds: u64,
    /// How much the search for the optimum tries.
    pub limits: Limits,
}

/// One policy's results.
#[derive(Clone, Debug)]
pub struct Series {
    /// The policy, or [`OPTIMAL`].
    pub name: String,
    /// One per seed; one altogether for the optimum.
    pub outcomes: Vec<Outcome>,
    /// What the search found, for [`OPTIMAL`].
    pub best: Option<Best>,
    /// Seconds that the search took, on the clock of the wall.
    pub search_s: f64,
}

/// All results.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Per application: seconds of a run alone under the kernel, the mean over the seeds.
    pub alone_s: Vec<f64>,
    /// `none` on `eevdf`, seed by seed: what everything is compared with.
    pub linux: Vec<Outcome>,
    /// In the order of the plan.
    pub series: Vec<Series>,
}

enum Job {
    Alone(usize, u64),
    Linux(u64),
    Policy(usize, u64),
    Optimal(usize),
}

enum Done {
    Alone(usize, f64),
    Linux(Outcome),
    Policy(usize, Outcome),
    Optimal(usize, Box<(Best, Outcome)>, f64),
}

/// Runs a batch. `progress` hears how many of how many simulations are done.
///
/// # Errors
/// The first in the order of the plan, whichever came first in time.
pub fn run(
    scenario: &Scenario,
    plan: &Plan,
    registry: &Registry,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Batch, SimError> {
    let seeds = || 1..=plan.seeds;
    let solo: Vec<Job> = (0..scenario.apps.len()).flat_map(|a| seeds().map(move |s| Job::Alone(a, s))).collect();
    let mut jobs: Vec<Job> = seeds().map(Job::Linux).collect();
    let mut searches = Vec::new();
    for (i, name) in plan.policies.iter().enumerate() {
        if name == OPTIMAL { searches.push(Job::Optimal(i)) } else { jobs.extend(seeds().map(|s| Job::Policy(i, s))) }
    }
    let total = solo.len() + jobs.len() + searches.len();
    let mut alone_s = vec![0.0; scenario.apps.len()];
    for done in parallel(&solo, |job| one(scenario, plan, registry, &[], &[], job), |n| progress(n, total))? {
        if let Done::Alone(app, time) = done {
            alone_s[app] += time / plan.seeds as f64;
        }
    }
    let series = |name: &String| Series { name: name.clone(), outcomes: Vec::new(), best: None, search_s: 0.0 };
    let mut batch = Batch { linux: Vec::new(), series: plan.policies.iter().map(series).collect(), alone_s };
    let before = solo.len();
    let work = |job: &Job| one(scenario, plan, registry, &batch.alone_s, &[], job);
    let mut all = parallel(&jobs, work, |n| progress(before + n, total))?;
    // The search begins where the others came to rest, too: it is to be at least as good.
    let rest = |done: &Done| match done {
        Done::Linux(outcome) | Done::Policy(_, outcome) => Some(outcome.places.clone()),
        Done::Alone(..) | Done::Optimal(..) => None,
    };
    let starts: Vec<Vec<usize>> = all.iter().filter_map(rest).collect();
    let before = before + jobs.len();
    let work = |job: &Job| one(scenario, plan, registry, &batch.alone_s, &starts, job);
    all.extend(parallel(&searches, work, |n| progress(before + n, total))?);
    for done in all {
        match done {
            Done::Linux(outcome) => batch.linux.push(outcome),
            Done::Policy(i, outcome) => batch.series[i].outcomes.push(outcome),
            Done::Optimal(i, found, took_s) => {
                batch.series[i].search_s = took_s;
                batch.series[i].outcomes.push(found.1);
                batch.series[i].best = Some(found.0);
            }
            Done::Alone(..) => {}
        }
    }
    Ok(batch)
}

fn one(
    scenario: &Scenario,
    plan: &Plan,
    registry: &Registry,
    alone: &[f64],
    starts: &[Vec<usize>],
    job: &Job,
) -> Result<Done, SimError> {
    Ok(match *job {
        Job::Alone(app, seed) => Done::Alone(app, scenario.alone(app, plan.kernel, seed)?),
        Job::Linux(seed) => Done::Linux(scenario.run(&cotenant_policies::None, KernelKind::default(), seed, |_| ())?),
        Job::Policy(i, seed) => {
            let policy = registry.make(&plan.policies[i], &scenario.config).map_err(SimError::Unknown)?;
            Done::Policy(i, scenario.run(&*policy, plan.kernel, seed, |_| ())?)
        }
        Job::Optimal(i) => {
            let started = Instant::now();
            let found = scenario.optimal(alone, plan.limits, starts, 1)?;
            Done::Optimal(i, Box::new(found), started.elapsed().as_secs_f64())
        }
    })
}

/// Results in the order of the jobs, made by as many threads as there are CPUs.
///
/// # Errors
/// The first in the order of the jobs.
pub fn parallel<J: Sync, R: Send, E: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<R, E> + Sync,
    progress: impl Fn(usize) + Sync,
) -> Result<Vec<R>, E> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<(usize, Result<R, E>)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(i) else { break };
                    let result = work(job);
                    if result.is_err() {
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                    if let Ok(mut results) = results.lock() {
                        results.push((i, result));
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

impl Batch {
    /// Mean seconds of a run of each application.
    pub fn times(&self, series: &Series) -> Vec<f64> {
        let n = series.outcomes.len().max(1) as f64;
        (0..self.alone_s.len()).map(|a| series.outcomes.iter().map(|o| o.apps[a].time_s).sum::<f64>() / n).collect()
    }

    /// Latencies of an application's requests over all seeds; the backlog is that of the worst.
    pub fn latency(series: &Series, app: usize) -> Latency {
        let mut all = Latency::default();
        series.outcomes.iter().for_each(|o| all.merge(&o.apps[app].latency));
        all
    }

    /// Speed-up over Linux of the geometric mean of progress, seed by seed: 0.05 = 5 %. `None` with fewer than two
    /// seeds.
    pub fn over_linux(&self, series: &Series) -> Option<Estimate> {
        let linux = self.linux.iter().map(|o| mean_progress(&self.alone_s, o));
        let ours = series.outcomes.iter().map(|o| mean_progress(&self.alone_s, o)).cycle();
        let gains: Vec<f64> = linux.zip(ours).map(|(linux, ours)| ours / linux - 1.0).collect();
        Summary::of(&gains).estimate()
    }

    /// The same over the best of Linux's seeds, which is what SAM's evaluation compares with (§4.2).
    pub fn over_linux_best(&self, series: &Series) -> f64 {
        let best = self.linux.iter().map(|o| mean_progress(&self.alone_s, o)).fold(0.0, f64::max);
        let ours: f64 = series.outcomes.iter().map(|o| mean_progress(&self.alone_s, o)).sum();
        ours / series.outcomes.len().max(1) as f64 / best - 1.0
    }
}

/// A mapping as `--map` takes it: `X` for the first application, `A`, `B` … for the further ones; `.` is free.
pub fn map_text(mapping: &[Slot]) -> String {
    let letters: Vec<char> = std::iter::once('X').chain(('A'..='Z').filter(|c| *c != 'X')).chain('a'..='z').collect();
    mapping.iter().map(|slot| if *slot == FREE { '.' } else { letters[*slot as usize % letters.len()] }).collect()
}
