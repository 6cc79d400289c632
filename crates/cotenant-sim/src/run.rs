//! A scenario under a policy, to its end; and what became of everybody.

use crate::host::SimHost;
use crate::kernel::{Kernel, KernelKind};
use crate::scenario::Scenario;
use crate::speed::Unsettled;
use crate::world::{AppSpec, Latency, World};
use cotenant_core::Time;
use cotenant_core::host::{HostError, Mode, Round, drive};
use cotenant_core::optimum::{self, Best, Limits};
use cotenant_core::policy::{Ctx, None as NoPolicy, Policy, Refusal};
use cotenant_core::topology::symmetry::{Enumeration, FREE, Labels, Slot, Tenant};
use std::collections::BTreeMap;

/// Why a simulation has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// No speeds were found.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
    /// The policy cannot work with this machine.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The loop failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No policy has this name.
    #[error("{0}")]
    Unknown(String),
    /// The end came too early.
    #[error("{0} had not finished at {1} s, the end of the scenario; raise end_s or give less work")]
    Unfinished(String, f64),
    /// No mapping is possible.
    #[error(
        "optimal: {threads} threads, but {cpus} CPUs: a static mapping gives each thread a CPU of its own; take fewer threads"
    )]
    TooManyThreads {
        /// Threads at the same time.
        threads: usize,
        /// CPUs that may be used.
        cpus: usize,
    },
}

/// What became of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct AppResult {
    /// Its name.
    pub name: String,
    /// Seconds of a run, the mean over its runs.
    pub time_s: f64,
    /// Runs done.
    pub runs: usize,
    /// Latencies of its requests.
    pub latency: Latency,
}

/// What became of everybody.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the last one had finished, seconds.
    pub makespan_s: f64,
    /// Per application, in the order of the scenario.
    pub apps: Vec<AppResult>,
    /// Threads that changed CPUs after their first.
    pub migrations: u64,
}

fn outcome(world: &World, specs: &[AppSpec], end: Time) -> Result<Outcome, SimError> {
    let reports = world.report();
    let late: Vec<&str> = reports
        .iter()
        .zip(specs)
        .filter(|(r, s)| r.times_s.len() < s.runs as usize)
        .map(|(r, _)| r.name.as_str())
        .collect();
    if !late.is_empty() {
        return Err(SimError::Unfinished(late.join(", "), end.as_secs_f64()));
    }
    let apps = reports.into_iter().map(|r| AppResult {
        time_s: r.times_s.iter().sum::<f64>() / r.times_s.len() as f64,
        runs: r.times_s.len(),
        name: r.name,
        latency: r.latency,
    });
    Ok(Outcome { makespan_s: world.now().as_secs_f64(), apps: apps.collect(), migrations: world.migrations() })
}

impl Scenario {
    /// The context that policies get.
    pub fn ctx<'a>(&'a self, apps: &'a BTreeMap<String, cotenant_core::profile::AppProfile>) -> Ctx<'a> {
        Ctx { topology: &self.machine.topology, machine: &self.machine.profile, apps, config: &self.config }
    }

    /// Runs the scenario under a policy. `watch` sees every round.
    ///
    /// # Errors
    /// Where the policy refuses, no speeds are found, or the end comes too early.
    pub fn run(
        &self,
        policy: &dyn Policy,
        kernel: KernelKind,
        seed: u64,
        watch: impl FnMut(&Round<'_>),
    ) -> Result<Outcome, SimError> {
        self.run_of(&self.apps, policy, kernel, seed, watch).map(|(outcome, _)| outcome)
    }

    fn run_of(
        &self,
        specs: &[AppSpec],
        policy: &dyn Policy,
        kernel: KernelKind,
        seed: u64,
        watch: impl FnMut(&Round<'_>),
    ) -> Result<(Outcome, World), SimError> {
        let profile = |spec: &AppSpec| {
            let base = spec.name.split_once('#').map_or(spec.name.as_str(), |(base, _)| base);
            let known = self.profiles.get(&spec.name).or_else(|| self.profiles.get(base))?;
            Some((spec.name.clone(), known.clone()))
        };
        let profiles = specs.iter().filter_map(profile).collect();
        let ctx = self.ctx(&profiles);
        policy.check(&ctx)?;
        let mut world = World::new(self.sim.clone(), specs.to_vec(), Kernel::new(kernel), seed);
        world.restart = self.restart && specs.len() > 1;
        // Linux alone is observed by nobody.
        if policy.name() == NoPolicy.name() {
            world.advance(self.end, false)?;
            return Ok((outcome(&world, specs, self.end)?, world));
        }
        let mut host = SimHost::new(world, self.observation, seed, self.end);
        drive(&mut host, policy, &ctx, Mode::Enforce, watch)?;
        if let Some(failure) = host.failure() {
            return Err(failure.clone().into());
        }
        Ok((outcome(&host.world, specs, self.end)?, host.world))
    }

    /// Seconds that a run of an application takes alone on the machine, under the kernel and nothing else.
    ///
    /// # Errors
    /// Where no speeds are found, or the end comes too early.
    pub fn alone(&self, app: usize, kernel: KernelKind, seed: u64) -> Result<f64, SimError> {
        let spec = AppSpec { arrival: Time(0), runs: 1, ..self.apps[app].clone() };
        self.run_of(&[spec], &NoPolicy, kernel, seed, |_| ()).map(|(outcome, _)| outcome.apps[0].time_s)
    }

    /// The best static mapping: `value` is the geometric mean of `alone / time` over the applications, higher is better.
    ///
    /// # Errors
    /// Where there are more threads than CPUs, and those of [`Scenario::run`].
    pub fn optimal(&self, alone: &[f64], limits: Limits, seed: u64) -> Result<(Best, Outcome), SimError> {
        let tenant = |app: &AppSpec| Tenant {
            threads: app.threads,
            allowed: app.cpus.clone(),
            like: self.apps.iter().position(|other| alike(app, other)).map(|first| first as u32),
        };
        let tenants: Vec<Tenant> = self.apps.iter().map(tenant).collect();
        let (threads, cpus) = (tenants.iter().map(|t| t.threads).sum(), self.machine.topology.usable().len());
        let enumeration = Enumeration::new(&self.machine.topology, &Labels::default(), tenants, false);
        let mut evaluate = |mapping: &[Slot]| -> Result<f64, SimError> {
            Ok(mean_progress(alone, &self.pinned(&enumeration, mapping, seed)?))
        };
        let best = optimum::best(&enumeration, limits, seed, &mut evaluate)?;
        let best = best.ok_or(SimError::TooManyThreads { threads, cpus })?;
        let outcome = self.pinned(&enumeration, &best.mapping, seed)?;
        Ok((best, outcome))
    }

    /// Runs the scenario with a mapping that never changes.
    fn pinned(&self, enumeration: &Enumeration<'_>, mapping: &[Slot], seed: u64) -> Result<Outcome, SimError> {
        let cpus = enumeration.symmetry().cpus();
        let mut specs = self.apps.clone();
        for (i, spec) in specs.iter_mut().enumerate() {
            let own = mapping.iter().zip(cpus).filter(|(slot, _)| **slot != FREE && **slot as usize == i);
            spec.pinned = Some(own.map(|(_, cpu)| cpu.index()).collect());
        }
        self.run_of(&specs, &NoPolicy, KernelKind::default(), seed, |_| ()).map(|(outcome, _)| outcome)
    }
}

/// Whether two applications may change places.
fn alike(a: &AppSpec, b: &AppSpec) -> bool {
    let same = a.program == b.program && a.threads == b.threads && a.arrival == b.arrival && a.runs == b.runs;
    same && a.instructions.to_bits() == b.instructions.to_bits() && a.load == b.load && a.cpus == b.cpus
}

/// The geometric mean of the applications' progress: time alone over time together.
pub fn mean_progress(alone: &[f64], outcome: &Outcome) -> f64 {
    let logs: f64 = alone.iter().zip(&outcome.apps).map(|(alone, app)| (alone / app.time_s).ln()).sum();
    (logs / alone.len().max(1) as f64).exp()
}
