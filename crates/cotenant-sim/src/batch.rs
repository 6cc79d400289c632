//! A scenario under several policies with several seeds on all cores of this machine, with its statistics.

use crate::app::Program;
use crate::band::draws;
use crate::kernel::{KernelKind, Placement};
use crate::machine::SimMachine;
use crate::optimum::{Best, Limits};
use crate::run::{Outcome, SimError, mean_progress};
use crate::scenario::Scenario;
use crate::world::Latency;
use cotenant_model::policy::Registry;
use cotenant_model::stats::{Estimate, Summary};
use cotenant_model::topology::symmetry::{FREE, Slot};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The search for the best static mapping; not a policy, because it needs the simulator's ground truth.
pub const OPTIMAL: &str = "optimal";

/// A batch to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of policies, or [`OPTIMAL`].
    pub policies: Vec<String>,
    /// Seeds 1 to this, ≥ 1.
    pub seeds: u64,
    /// Budget of the search for the optimum.
    pub limits: Limits,
}

/// One policy's results.
#[derive(Clone, Debug)]
pub struct Series {
    /// The policy, or [`OPTIMAL`].
    pub name: String,
    /// One per seed; a single one for the optimum.
    pub outcomes: Vec<Outcome>,
    /// The result of the search, for [`OPTIMAL`].
    pub best: Option<Best>,
    /// Wall-clock seconds that the search took.
    pub search_s: f64,
}

/// All results.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Per application: seconds of a run alone under the kernel, the mean over the seeds.
    pub alone_s: Vec<f64>,
    /// `none` on `eevdf`, with NUMA balancing if the scenario's kernel has it, seed by seed: the baseline of all
    /// comparisons.
    pub linux: Vec<Outcome>,
    /// In the order of the plan.
    pub series: Vec<Series>,
}

/// Runs a batch. `progress` receives the number of finished simulations and of all.
///
/// # Errors
/// The first error in the order of the plan, independent of timing.
pub fn run(
    scenario: &Scenario,
    plan: &Plan,
    registry: &Registry,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Batch, SimError> {
    let solo: Vec<(usize, u64)> =
        (0..scenario.apps.len()).flat_map(|app| (1..=plan.seeds).map(move |seed| (app, seed))).collect();
    let (searches, policies): (Vec<usize>, Vec<usize>) =
        (0..plan.policies.len()).partition(|&i| plan.policies[i] == OPTIMAL);
    // Linux first, which is no policy of the plan.
    let runs = std::iter::once(None).chain(policies.into_iter().map(Some));
    let runs: Vec<(Option<usize>, u64)> = runs.flat_map(|i| (1..=plan.seeds).map(move |seed| (i, seed))).collect();
    let total = solo.len() + runs.len() + searches.len();

    let mut alone_s = vec![0.0; scenario.apps.len()];
    let alone = |&(app, seed): &(usize, u64)| scenario.alone(app, scenario.kernel, seed);
    progress(0, total);
    for ((app, _), time) in solo.iter().zip(parallel(&solo, alone, |n| progress(n, total))?) {
        alone_s[*app] += time / plan.seeds as f64;
    }

    let one = |&(policy, seed): &(Option<usize>, u64)| {
        let Some(i) = policy else {
            let linux = KernelKind { placement: Placement::Eevdf, ..scenario.kernel };
            return scenario.run(&cotenant_policies::None, linux, seed, |_| ());
        };
        let policy = registry.make(&plan.policies[i], &scenario.config).map_err(SimError::Unknown)?;
        scenario.run(&*policy, scenario.kernel, seed, |_| ())
    };
    let outcomes = parallel(&runs, one, |n| progress(solo.len() + n, total))?;
    // The search starts from the placements that policies settled in, so that it is never worse than they are.
    let starts: Vec<Vec<usize>> = outcomes.iter().map(|outcome| outcome.places.clone()).collect();
    let series = |name: &String| Series { name: name.clone(), outcomes: Vec::new(), best: None, search_s: 0.0 };
    let mut batch = Batch { linux: Vec::new(), series: plan.policies.iter().map(series).collect(), alone_s };
    for ((policy, _), outcome) in runs.iter().zip(outcomes) {
        policy.map_or(&mut batch.linux, |i| &mut batch.series[i].outcomes).push(outcome);
    }

    let search = |_: &usize| -> Result<_, SimError> {
        let started = Instant::now();
        let found = scenario.optimal(&batch.alone_s, plan.limits, &starts, 1)?;
        Ok((found, started.elapsed().as_secs_f64()))
    };
    let found = parallel(&searches, search, |n| progress(solo.len() + runs.len() + n, total))?;
    for (i, ((best, outcome), search_s)) in searches.into_iter().zip(found) {
        let name = batch.series[i].name.clone();
        batch.series[i] = Series { name, outcomes: vec![outcome], best: Some(best), search_s };
    }
    Ok(batch)
}

/// The batch repeated on each machine and with the programs of [`draws`], at most two seeds and without [`OPTIMAL`],
/// which limits the cost to a few batches. Policies keep the original machine's description. Draws in which the
/// scenario does not finish are left out.
pub fn drawn(
    scenario: &Scenario,
    plan: &Plan,
    registry: &Registry,
    progress: impl Fn(usize, usize) + Sync,
) -> Vec<Batch> {
    let policies = plan.policies.iter().filter(|name| *name != OPTIMAL).cloned().collect();
    let plan = Plan { policies, seeds: plan.seeds.min(2), ..plan.clone() };
    let programs: Vec<&Program> = scenario.apps.iter().map(|app| &*app.program).collect();
    let draws = draws(&scenario.sim, &programs);
    let all = draws.len();
    let one = |(i, (sim, programs)): (usize, (SimMachine, Vec<Program>))| {
        let mut scenario = Scenario { sim: Arc::new(sim), ..scenario.clone() };
        for (app, program) in scenario.apps.iter_mut().zip(programs) {
            app.program = Arc::new(program);
        }
        run(&scenario, &plan, registry, |n, of| progress(i * of + n, all * of)).ok()
    };
    draws.into_iter().enumerate().filter_map(one).collect()
}

/// Results in the order of the jobs, computed by one thread per CPU.
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
    /// Mean seconds per run of each application.
    pub fn times(&self, series: &Series) -> Vec<f64> {
        let n = series.outcomes.len().max(1) as f64;
        (0..self.alone_s.len()).map(|a| series.outcomes.iter().map(|o| o.apps[a].time_s).sum::<f64>() / n).collect()
    }

    /// Latencies of an application's requests over all seeds; the backlog is the worst seed's.
    pub fn latency(series: &Series, app: usize) -> Latency {
        let mut all = Latency::default();
        series.outcomes.iter().for_each(|o| all.merge(&o.apps[app].latency));
        all
    }

    /// Speed-up over Linux of the geometric mean of progress, seed by seed: 0.05 = 5 %. `None` with fewer than two
    /// seeds.
    pub fn over_linux(&self, series: &Series) -> Option<Estimate> {
        Summary::of(&self.gains(series)).estimate()
    }

    /// That speed-up, the mean over the seeds; with one seed, too.
    pub fn gain(&self, series: &Series) -> f64 {
        let gains = self.gains(series);
        gains.iter().sum::<f64>() / gains.len().max(1) as f64
    }

    fn gains(&self, series: &Series) -> Vec<f64> {
        let linux = self.linux.iter().map(|o| mean_progress(&self.alone_s, o));
        let ours = series.outcomes.iter().map(|o| mean_progress(&self.alone_s, o)).cycle();
        linux.zip(ours).map(|(linux, ours)| ours / linux - 1.0).collect()
    }

    /// The same compared with the best of Linux's seeds, as SAM's evaluation does (§4.2).
    pub fn over_linux_best(&self, series: &Series) -> f64 {
        let best = self.linux.iter().map(|o| mean_progress(&self.alone_s, o)).fold(0.0, f64::max);
        let ours: f64 = series.outcomes.iter().map(|o| mean_progress(&self.alone_s, o)).sum();
        ours / series.outcomes.len().max(1) as f64 / best - 1.0
    }
}

/// A mapping as `--map` takes it: `X` for the first application, `A`, `B` … for the others; `.` is free.
pub fn map_text(mapping: &[Slot]) -> String {
    let letters: Vec<char> = std::iter::once('X').chain(('A'..='Z').filter(|c| *c != 'X')).chain('a'..='z').collect();
    mapping.iter().map(|slot| if *slot == FREE { '.' } else { letters[*slot as usize % letters.len()] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::AppResult;

    /// Two applications that take 1 and 4 s alone; each pair holds their times with one seed.
    fn outcomes(times: &[[f64; 2]]) -> Vec<Outcome> {
        let app = |time_s: &f64| AppResult {
            name: String::new(),
            time_s: *time_s,
            runs: 1,
            latency: Latency::default(),
            cost_s: 1.0,
        };
        let one = |times: &[f64; 2]| Outcome {
            makespan_s: 0.0,
            apps: times.iter().map(app).collect(),
            migrations: 0,
            access_distance: None,
            places: Vec::new(),
        };
        times.iter().map(one).collect()
    }

    #[test]
    fn a_batch_by_hand() {
        let series =
            |times: &[[f64; 2]]| Series { name: String::new(), outcomes: outcomes(times), best: None, search_s: 0.0 };
        // Progress: the square roots of 1/2 · 1/2, 1/2 · 1/8.
        let batch = Batch { alone_s: vec![1.0, 4.0], linux: outcomes(&[[2.0, 8.0], [2.0, 32.0]]), series: Vec::new() };
        // 1/2 · 1 and 1/2 · 1/2; then the same with each seed.
        let (ours, once) = (series(&[[2.0, 4.0], [2.0, 8.0]]), series(&[[2.0, 8.0]]));
        assert_eq!((batch.times(&ours), batch.times(&once)), (vec![2.0, 6.0], vec![2.0, 8.0]));
        assert_eq!(batch.times(&series(&[])), [0.0, 0.0]);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a}, not {b}");
        near(batch.over_linux(&ours).unwrap().value, 2.0f64.sqrt().midpoint(2.0) - 1.0);
        near(batch.over_linux(&once).unwrap().value, 1.0f64.midpoint(2.0) - 1.0);
        near(batch.gain(&once), 1.0f64.midpoint(2.0) - 1.0);
        // The best of Linux's seeds makes half.
        near(batch.over_linux_best(&ours), 0.5f64.sqrt().midpoint(0.5) / 0.5 - 1.0);
        near(batch.over_linux_best(&once), 0.0);
        let linux = Batch { linux: outcomes(&[[1.0, 4.0]]), ..batch };
        assert!(linux.over_linux(&ours).is_none(), "one seed has no interval");
    }

    #[test]
    fn latencies_of_all_seeds_count() {
        let mut outcomes = outcomes(&[[1.0, 1.0], [1.0, 1.0]]);
        (outcomes[0].apps[1].latency.backlog, outcomes[1].apps[1].latency.backlog) = (3.0, 2.0);
        let series = Series { name: String::new(), outcomes, best: None, search_s: 0.0 };
        assert_eq!((Batch::latency(&series, 0).backlog, Batch::latency(&series, 1).backlog), (0.0, 3.0));
    }

    #[test]
    fn results_come_in_the_order_of_jobs_and_the_first_error_counts() {
        let jobs: Vec<u64> = (0..50).collect();
        let done = AtomicUsize::new(0);
        let hear = |n| {
            done.fetch_max(n, Ordering::Relaxed);
        };
        let twice = parallel(&jobs, |job| Ok::<_, u64>(job * 2), hear).unwrap();
        assert_eq!(twice, jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
        assert_eq!(done.into_inner(), 50);
        let fails = |job: &u64| if *job > 2 { Err(*job) } else { Ok(()) };
        assert_eq!(parallel(&jobs, fails, |_| ()), Err(3));
    }

    #[test]
    fn maps_are_written_as_they_are_read() {
        assert_eq!(map_text(&[0, FREE, 1, 1, 24, 26]), "X.AAYa");
    }
}
