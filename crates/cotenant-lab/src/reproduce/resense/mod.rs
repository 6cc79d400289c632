//! Dynamic workloads of multithreaded programs: the `ReSense` paper (Dey, Wang, Davidson, Soffa, ACM TACO 2013), §3.

mod data;
mod dynamic;
mod fixed;
mod optimal;
mod own;

pub(super) use dynamic::{large, medium, small};
pub(super) use fixed::signs;
pub(super) use optimal::optimal;
pub(super) use own::sensitivity;

use super::lab::Lab;
use anyhow::Context as _;
use cotenant_measure::workload::compare::Figures;
use cotenant_measure::workload::{Arrival, Job, JobRuns, Workload};
use cotenant_model::Time;
use cotenant_model::policy::{Config, DynPolicy};
use cotenant_model::profile::AppProfile;
use cotenant_policies::{Resense, ResenseSettings, Shapes};
use cotenant_sim::scenario::Scenario;
use data::Platform;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const ASSUMED: &str = "What the programs are like is assumed from words (workloads/parsec-npb.toml), most latencies and bandwidths of the machines are guesses; \
                       the paper's scores were not used for either.";

/// Simulated seconds of a run of one thread alone; the paper gives no durations.
fn work_s(lab: &Lab) -> f64 {
    if lab.effort.every > 1 { 1.0 } else { 20.0 }
}

/// Seeds of each workload.
fn seeds(lab: &Lab) -> u64 {
    lab.effort.seeds.min(3)
}

/// All of these programs on a machine, for [`Scenario::for_jobs`], each with this many seconds of work per thread.
fn pool(platform: &Platform, programs: &[String], work_s: f64) -> anyhow::Result<Scenario> {
    // It acts only on changes, so that a long interval suffices.
    let mut text = "policy = { pin = 'cpu', interval_ms = 1000 }\n".to_owned();
    for program in programs {
        let threads = platform.threads;
        let _ = write!(text, "[[app]]\nprogram = '{program}'\nthreads = {threads}\nwork_s = {work_s}\n");
    }
    let mut scenario = Lab::scenario_on(platform.machine, &text)?;
    scenario.end = Time::from_secs(1_000_000);
    Ok(scenario)
}

/// Programs that start at the same time and run once (§3.6).
fn together(programs: &[String]) -> Workload {
    let job = |name: &String| Job { name: name.clone(), arrival: Arrival::At(Time(0)), runs: 1 };
    Workload { jobs: programs.iter().map(job).collect(), restart: false, longest: None }
}

/// The placement of threads.
#[derive(Clone, Debug)]
enum Who<'a> {
    Linux,
    /// `ReSense` with these profiles, as in the paper: a contending program has a core of every instance.
    Resense(&'a BTreeMap<String, AppProfile>),
    /// The same over two instances: our variant, and the users' default.
    Two(&'a BTreeMap<String, AppProfile>),
    /// The variant by sums of scores, also ours.
    Sum(&'a BTreeMap<String, AppProfile>),
    /// `shapes`, maximizing instructions per second.
    Shapes,
}

impl<'a> Who<'a> {
    /// The policy and its profiles, for `ReSense`.
    fn resense(&self) -> Option<(Resense, &'a BTreeMap<String, AppProfile>)> {
        let of = |sum, widest| Resense { sum, settings: ResenseSettings { widest } };
        match *self {
            Self::Resense(profiles) => Some((of(false, true), profiles)),
            Self::Two(profiles) => Some((of(false, false), profiles)),
            Self::Sum(profiles) => Some((of(true, false), profiles)),
            Self::Linux | Self::Shapes => None,
        }
    }
}

/// The runs of a workload.
fn ran(pool: &Scenario, workload: &Workload, who: &Who<'_>, seed: u64) -> anyhow::Result<Vec<JobRuns>> {
    let mut scenario = pool.for_jobs(workload).context("a program of the workload is not in the pool")?;
    let policy = match who.resense() {
        Some((policy, profiles)) => {
            scenario.know(profiles);
            Some(Box::new(policy) as Box<dyn DynPolicy>)
        }
        None if matches!(who, Who::Shapes) => {
            scenario.config.interval = Config::default().interval;
            Some(Box::new(Shapes::default()) as Box<dyn DynPolicy>)
        }
        None => None,
    };
    Ok(scenario.staged(workload, policy.as_deref(), scenario.kernel, seed, |_| ())?)
}

/// Metrics of a workload.
fn figures(pool: &Scenario, workload: &Workload, who: &Who<'_>, seed: u64) -> anyhow::Result<Figures> {
    Figures::of(&ran(pool, workload, who, seed)?).context("a run took no time")
}

/// The mean over seeds.
fn mean(all: &[Figures]) -> Figures {
    let n = all.len().max(1) as f64;
    Figures {
        art_s: all.iter().map(|f| f.art_s).sum::<f64>() / n,
        throughput: all.iter().map(|f| f.throughput).sum::<f64>() / n,
    }
}

/// Each workload under each arm, the mean over the seeds: by workload, then by arm.
fn compare(
    lab: &Lab,
    what: &str,
    pool: &Scenario,
    workloads: &[Workload],
    arms: &[Who<'_>],
) -> anyhow::Result<Vec<Vec<Figures>>> {
    let mut jobs = Vec::new();
    for workload in workloads {
        for who in arms {
            jobs.extend((1..=seeds(lab)).map(|seed| (workload, who, seed)));
        }
    }
    let all = lab.parallel(what, &jobs, |(workload, who, seed)| figures(pool, workload, who, *seed))?;
    let means: Vec<Figures> = all.chunks(seeds(lab) as usize).map(mean).collect();
    Ok(means.chunks(arms.len()).map(<[Figures]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::data::{XEON, profiles};
    use super::*;

    #[test]
    fn the_papers_arm_has_a_core_of_every_instance_for_who_contends() {
        let names = ["blackscholes", "facesim", "swaptions", "vips"].map(str::to_owned);
        let pool = pool(&XEON, &names, 0.1).unwrap();
        let mut all = pool.for_jobs(&together(&names)).unwrap();
        let scores =
            profiles(names.iter().zip([-12.0, -9.0, -7.0, -5.0]).map(|(n, s)| (n.as_str(), XEON.levels[0].1, s)));
        let topology = all.machine.topology.clone();
        let mut threads = |who: Who<'_>| {
            let (policy, scores) = who.resense().unwrap();
            all.know(scores);
            let places = all.run(&policy, all.kernel, 1, |_| ()).unwrap().places;
            let l3 = |cpu: &usize| topology.llc_of(cotenant_model::CpuId(*cpu as u32)).unwrap();
            let of = |places: &[usize]| (0..4).map(|i| places.iter().filter(|cpu| l3(cpu) == i).count()).collect();
            places.chunks(XEON.threads).map(of).collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(threads(Who::Resense(&scores)), [[2; 4]; 4]);
        assert!(threads(Who::Two(&scores)).iter().all(|l3s| l3s.iter().filter(|n| **n == 4).count() == 2));
    }
}
