//! Runs a scenario under a policy to its end.

use crate::host::SimHost;
use crate::kernel::{Kernel, KernelKind};
use crate::optimum::{self, Best, Limits, Worth};
use crate::scenario::{Scenario, Spot};
use crate::speed::Unsettled;
use crate::world::{AppReport, AppSpec, Endless, Halt, Latency, World};
use cotenant_measure::workload::RunError;
use cotenant_model::host::{HostError, Mode, Round, drive};
use cotenant_model::policy::{Ctx, DynPolicy, Refusal};
use cotenant_model::topology::symmetry::{Enumeration, FREE, Labels, Slot, Tenant};
use cotenant_model::{AppId, Time};
use cotenant_policies::{None as NoPolicy, map_has_room};

/// The remedy if a policy needs thresholds and [`crate::machine::SimMachine::thresholds`] finds none.
const NO_THRESHOLDS: &str = "none can be derived where all cores are equally far from each other: take another machine, or add [thresholds] to its file";

/// Why a simulation has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The solver found no speeds.
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
    /// A workload did not come to its end.
    #[error(transparent)]
    Workload(#[from] RunError),
    /// The end needs too many steps.
    #[error("{why}")]
    Endless {
        /// What causes most of them.
        why: Endless,
        /// The place of that application, or the beginning of the file.
        at: Spot,
    },
    /// The end came too early.
    #[error("{apps} had not finished at {end_s} s, the end of the scenario; raise end_s or give less work")]
    Unfinished {
        /// The applications that had not finished.
        apps: String,
        /// The end, seconds.
        end_s: f64,
        /// Where the scenario gives its end; otherwise where its first late application begins.
        at: Spot,
    },
    /// No mapping is possible.
    #[error(
        "optimal: {threads} threads, but {cpus} CPUs: a static mapping gives each thread a CPU of its own; take fewer threads"
    )]
    TooManyThreads {
        /// Threads at the same time.
        threads: usize,
        /// CPUs that may be used.
        cpus: usize,
        /// The first application with a thread that finds no CPU.
        at: Spot,
    },
}

impl SimError {
    /// Its place in the scenario's file, if it has one.
    pub fn spot(&self) -> Option<Spot> {
        match self {
            Self::Unfinished { at, .. } | Self::TooManyThreads { at, .. } | Self::Endless { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// Results of an application.
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
    /// Mean seconds per instruction of one of its threads, as if no thread waited for another.
    pub cost_s: f64,
}

/// Results of all applications.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the last one had finished, seconds.
    pub makespan_s: f64,
    /// Per application, in the order of the scenario.
    pub apps: Vec<AppResult>,
    /// Threads that changed CPUs after their first.
    pub migrations: u64,
    /// Accesses to memory × distance, in the unit of the machine's distances; `None` where these are not known.
    pub access_distance: Option<f64>,
    /// The CPU of each thread, application by application, in the placement that lasted longest; empty if they never
    /// all ran at the same time.
    pub places: Vec<usize>,
}

fn outcome(world: &World, specs: &[AppSpec], scenario: &Scenario) -> Result<Outcome, SimError> {
    let reports = world.report();
    let is_late = |(r, s): &(&AppReport, &AppSpec)| r.times_s.len() < s.runs as usize;
    let late: Vec<&str> = reports.iter().zip(specs).filter(is_late).map(|(r, _)| r.name.as_str()).collect();
    if let Some(first) = late.first() {
        let at = scenario.spots.end.or_else(|| scenario.spot_of(first)).unwrap_or_default();
        return Err(SimError::Unfinished { apps: late.join(", "), end_s: scenario.end.as_secs_f64(), at });
    }
    let apps = reports.into_iter().map(|r| AppResult {
        time_s: r.times_s.iter().sum::<f64>() / r.times_s.len() as f64,
        runs: r.times_s.len(),
        name: r.name,
        latency: r.latency,
        cost_s: r.cost_s,
    });
    Ok(Outcome {
        makespan_s: world.now().as_secs_f64(),
        apps: apps.collect(),
        migrations: world.migrations,
        access_distance: Some(world.access_distance).filter(|way| way.is_finite()),
        places: world.lasting_places(),
    })
}

impl Scenario {
    /// The context that policies get.
    pub fn ctx(&self) -> Ctx<'_> {
        let (machine, apps) = (&self.machine.profile, &self.profiles);
        Ctx { topology: &self.machine.topology, machine, apps, config: &self.config }
    }

    /// Where the file describes this application.
    fn spot_of(&self, name: &str) -> Option<Spot> {
        let app = self.apps.iter().position(|app| app.name == name)?;
        self.spots.apps.get(app).copied()
    }

    /// Translates a halt of its simulation for the author of the scenario.
    pub(crate) fn halted(&self, why: Halt) -> SimError {
        match why {
            Halt::Unsettled(why) => why.into(),
            Halt::Endless(why) => {
                let of_app = self.spot_of(&why.most.0).filter(|_| why.is_of_app());
                SimError::Endless { at: of_app.unwrap_or_default(), why }
            }
        }
    }

    /// Runs the scenario under a policy. `watch` sees every round.
    ///
    /// # Errors
    /// If the policy refuses the machine, the solver does not converge, or the end comes too early.
    pub fn run(
        &self,
        policy: &dyn DynPolicy,
        kernel: KernelKind,
        seed: u64,
        watch: impl FnMut(&Round<'_>),
    ) -> Result<Outcome, SimError> {
        self.run_of(&self.apps, policy, kernel, seed, watch).map(|(outcome, _)| outcome)
    }

    /// Whether the policy can work with this machine.
    pub(crate) fn check(&self, policy: &dyn DynPolicy) -> Result<(), Refusal> {
        let unknown = self.machine.profile.thresholds.is_none();
        let checked = policy.check(&self.ctx()).map_err(|r| match r.policy {
            "sam" if unknown => Refusal { remedy: NO_THRESHOLDS.to_owned(), ..r },
            _ => r,
        });
        if policy.name() == "static" {
            // Only applications that arrive first certainly run at the same time.
            let first = self.apps.iter().map(|app| app.arrival).min();
            let there = (0..).map(AppId).zip(&self.apps).filter(|(_, app)| Some(app.arrival) == first);
            return checked
                .and_then(|()| map_has_room(&self.ctx(), &there.map(|(id, app)| (id, app.threads)).collect()));
        }
        checked
    }

    fn run_of(
        &self,
        specs: &[AppSpec],
        policy: &dyn DynPolicy,
        kernel: KernelKind,
        seed: u64,
        watch: impl FnMut(&Round<'_>),
    ) -> Result<(Outcome, World), SimError> {
        let ctx = self.ctx();
        self.check(policy)?;
        let mut world = World::new(self.sim.clone(), specs.to_vec(), Kernel::new(kernel), seed);
        world.restart = self.restart && specs.len() > 1;
        world.budget = self.budget;
        // Linux alone is not observed.
        if policy.name() == "none" {
            world.advance(self.end, false).map_err(|why| self.halted(why))?;
            return Ok((outcome(&world, specs, self)?, world));
        }
        let mut host = SimHost::new(world, self.observation, seed, self.end);
        drive(&mut host, policy, &ctx, Mode::Enforce, watch)?;
        if let Some(failure) = host.failure() {
            return Err(self.halted(failure.clone()));
        }
        Ok((outcome(&host.world, specs, self)?, host.world))
    }

    /// Seconds that a run of an application takes alone on the machine under the kernel.
    ///
    /// # Errors
    /// If the solver does not converge, or the end comes too early.
    pub fn alone(&self, app: usize, kernel: KernelKind, seed: u64) -> Result<f64, SimError> {
        let spec = AppSpec { arrival: Time(0), runs: 1, ..self.apps[app].clone() };
        self.run_of(&[spec], &NoPolicy, kernel, seed, |_| ()).map(|(outcome, _)| outcome.apps[0].time_s)
    }

    /// The best static mapping; its `value` is the geometric mean of `alone / time` over the applications, higher is
    /// better. A search also starts from `starts` ([`Outcome::places`], without those that put several threads on a
    /// CPU), and its result is at least as good as each. Its guide is the cost of instructions as if no thread waited
    /// for another.
    ///
    /// # Errors
    /// If there are more threads than CPUs; otherwise the errors of [`Scenario::run`].
    pub fn optimal(
        &self,
        alone: &[f64],
        limits: Limits,
        starts: &[Vec<usize>],
        seed: u64,
    ) -> Result<(Best, Outcome), SimError> {
        self.optimal_by(&|outcome| mean_progress(alone, outcome), limits, starts, seed)
    }

    /// The best static mapping by a given value of its outcome, higher is better; otherwise as [`Scenario::optimal`].
    ///
    /// # Errors
    /// Those of [`Scenario::optimal`].
    pub fn optimal_by(
        &self,
        value: &dyn Fn(&Outcome) -> f64,
        limits: Limits,
        starts: &[Vec<usize>],
        seed: u64,
    ) -> Result<(Best, Outcome), SimError> {
        let enumeration = self.mappings();
        let mut evaluate = |mapping: &[Slot]| -> Result<Worth, SimError> {
            let outcome = self.pinned(&places(&enumeration, mapping), seed)?;
            let guide = -outcome.apps.iter().map(|app| app.cost_s.ln()).sum::<f64>();
            Ok(Worth { value: value(&outcome), guide })
        };
        let starts: Vec<Vec<Slot>> = starts.iter().filter_map(|places| self.mapping(&enumeration, places)).collect();
        let best = optimum::best(&enumeration, limits, &starts, seed, &mut evaluate)?;
        let best = best.ok_or_else(|| self.too_many(&enumeration))?;
        let outcome = self.pinned(&places(&enumeration, &best.mapping), seed)?;
        Ok((best, outcome))
    }

    /// All classes of static mappings of the applications' threads.
    pub fn mappings(&self) -> Enumeration<'_> {
        let tenant = |app: &AppSpec| Tenant {
            threads: app.threads,
            allowed: app.cpus.clone(),
            like: self.apps.iter().position(|other| alike(app, other)).map(|first| first as u32),
        };
        let tenants = self.apps.iter().map(tenant).collect();
        Enumeration::new(&self.machine.topology, &Labels::default(), tenants, false)
    }

    /// The CPU of each thread in a mapping of [`Scenario::mappings`], application by application, as
    /// [`Scenario::pinned`] takes it.
    pub fn places(&self, mapping: &[Slot]) -> Vec<usize> {
        places(&self.mappings(), mapping)
    }

    pub(crate) fn too_many(&self, enumeration: &Enumeration<'_>) -> SimError {
        let cpus = self.machine.topology.usable().len();
        let (mut threads, mut first) = (0, None);
        for (app, tenant) in enumeration.tenants().iter().enumerate() {
            threads += tenant.threads;
            first = first.or((threads > cpus).then_some(app));
        }
        // Enough CPUs in total, so that a restriction of some applications is the cause.
        let restricted = || self.apps.iter().position(|app| app.cpus.is_some());
        let at = first.or_else(restricted).map(|app| self.spots.apps[app]).unwrap_or_default();
        SimError::TooManyThreads { threads, cpus, at }
    }

    /// The mapping with each thread on its CPU; `None` if several share one, or some have none.
    pub(crate) fn mapping(&self, enumeration: &Enumeration<'_>, places: &[usize]) -> Option<Vec<Slot>> {
        let slots: Vec<Slot> = (0..).zip(&self.apps).flat_map(|(slot, app)| vec![slot; app.threads]).collect();
        let cpus = enumeration.symmetry().cpus();
        let mut mapping = vec![FREE; cpus.len()];
        for (slot, place) in slots.iter().zip(places) {
            let at = cpus.iter().position(|cpu| cpu.index() == *place).filter(|at| mapping[*at] == FREE)?;
            mapping[at] = *slot;
        }
        (slots.len() == places.len()).then_some(mapping)
    }

    /// Runs the scenario with each thread, application by application, fixed to a CPU.
    ///
    /// # Errors
    /// Those of [`Scenario::run`].
    ///
    /// # Panics
    /// If `places` does not have one CPU per thread.
    pub fn pinned(&self, places: &[usize], seed: u64) -> Result<Outcome, SimError> {
        let mut specs = self.apps.clone();
        pin(&mut specs, places);
        self.run_of(&specs, &NoPolicy, self.kernel, seed, |_| ()).map(|(outcome, _)| outcome)
    }
}

/// Fixes each thread, application by application, to a CPU.
///
/// # Panics
/// If `places` has fewer CPUs than there are threads.
pub fn pin(apps: &mut [AppSpec], mut places: &[usize]) {
    for app in apps {
        let own;
        (own, places) = places.split_at(app.threads);
        app.pinned = Some(own.to_vec());
    }
}

/// The CPU of each thread in a mapping, application by application.
pub(crate) fn places(enumeration: &Enumeration<'_>, mapping: &[Slot]) -> Vec<usize> {
    let stand = mapping.iter().zip(enumeration.symmetry().cpus()).filter(|(slot, _)| **slot != FREE);
    let mut places: Vec<(Slot, usize)> = stand.map(|(slot, cpu)| (*slot, cpu.index())).collect();
    places.sort_by_key(|(slot, _)| *slot);
    places.into_iter().map(|(_, cpu)| cpu).collect()
}

/// Whether two applications are interchangeable.
fn alike(a: &AppSpec, b: &AppSpec) -> bool {
    let same = a.program == b.program && a.threads == b.threads && a.arrival == b.arrival && a.runs == b.runs;
    same && a.instructions.to_bits() == b.instructions.to_bits() && a.load == b.load && a.cpus == b.cpus
}

/// The geometric mean of the applications' progress: time alone over time together.
pub fn mean_progress(alone: &[f64], outcome: &Outcome) -> f64 {
    let logs: f64 = alone.iter().zip(&outcome.apps).map(|(alone, app)| (alone / app.time_s).ln()).sum();
    (logs / alone.len().max(1) as f64).exp()
}
