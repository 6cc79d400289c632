//! Runs of cases on the paper's simulated machine, and their observations.

use super::assumption::Assumption;
use super::cases::{App, Case};
use super::feliu;
use anyhow::Context as _;
use cotenant_cli::machine_arg;
use cotenant_model::Decision;
use cotenant_model::action::{Action, ActionOutcome};
use cotenant_model::host::Round;
use cotenant_model::machine::Machine;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Ctx, DynPolicy, NoSettings, Policy};
use cotenant_model::signal::Signal;
use cotenant_model::{Outcome as Applied, Time, View};
use cotenant_policies::{Sam, Shapes};
use cotenant_sim::batch::parallel;
use cotenant_sim::kernel::Placement;
use cotenant_sim::optimum::{Label, Limits};
use cotenant_sim::run::{Outcome, SimError, pin};
use cotenant_sim::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

/// The machine of the paper (§4).
pub(super) const MACHINE: &str = "ivy-bridge-2s";
/// Limit of simulated time for a run, seconds.
const END_S: f64 = 3_600.0;

/// The folder of `--machines`, set once per process because experiments name machines wherever they make a scenario.
pub(super) static MACHINES: OnceLock<PathBuf> = OnceLock::new();

/// A machine by name, from the folder of `--machines` or the shipped one. A user's machine of the same name is ignored,
/// because it would change the figures.
fn named(name: &str) -> Result<Machine, String> {
    let file = MACHINES.get().map(|folder| folder.join(format!("{name}.toml"))).filter(|file| file.is_file());
    let found = match file {
        Some(file) => machine_arg::resolve(Some(&file.to_string_lossy())).map(|found| found.machine),
        None => machine_arg::shipped(name),
    };
    found.map_err(|e| e.to_string())
}

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Seeds 1 to this number.
    pub seeds: u64,
    /// Seconds alone of a run of one thread.
    pub work_s: f64,
    /// Limits of the search for the best static mapping of an application alone.
    pub limits: Limits,
    /// The same for mixes.
    pub mixes: Limits,
    /// Step between the cases that are run; 1: all of them.
    pub every: usize,
}

impl Effort {
    const FEW: Limits = Limits { classes: 30, evaluations: 30 };
    const MANY: Limits = Limits { classes: 2_000, evaluations: 300 };
    const MOST: Limits = Limits { classes: 10_000, evaluations: 1_000 };
    /// Enough to check that it works, not for results.
    pub const QUICK: Self = Self { seeds: 2, work_s: 0.5, limits: Self::FEW, mixes: Self::FEW, every: 5 };
    /// Everything.
    pub const WHOLE: Self = Self { seeds: 10, work_s: 5.0, limits: Self::MANY, mixes: Self::MOST, every: 1 };
}

/// The placement of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arm {
    /// Linux alone.
    Linux,
    /// Linux with cache-aware scheduling, alone.
    CacheAware,
    /// Linux, observed at its cost, without actions.
    Watched,
    /// SAM on Linux, with factors for the thresholds of coherence and of bandwidth.
    Sam(f64, f64),
    /// SAM on Linux with these switches, its places widened to these levels.
    SamWith(&'static str, Pin),
    /// `shapes`, trials included, maximizing instructions per second.
    Shapes,
    /// The same with NUMA balancing: pages follow threads, and threads follow pages.
    NumaBalanced(&'static Arm),
}

/// Observations of the machine over a whole run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunTotals {
    pub cycles: f64,
    pub instructions: f64,
    pub inter: f64,
    pub intra: f64,
    pub misses: f64,
    pub seconds: f64,
    /// Moves of stages 1, 2 and 3.
    pub moves: [f64; 3],
}

impl RunTotals {
    fn add(&mut self, round: &Round<'_>) {
        let seconds = round.view.interval.as_secs_f64();
        self.seconds += seconds;
        for task in &round.view.tasks {
            let events = |signal| task.per_s(signal).unwrap_or(0.0) * seconds;
            self.cycles += events(Signal::Cycles);
            self.instructions += events(Signal::Instructions);
            self.inter += events(Signal::Inter);
            self.intra += events(Signal::Intra);
            self.misses += events(Signal::LlcMisses);
        }
        let Some(decision) = round.decision else { return };
        for proposal in decision.proposals.iter().filter(|p| matches!(p.action, Action::Place { .. })) {
            let done = |(order, outcome): (&cotenant_model::Order, &Applied)| {
                order.action.task() == proposal.action.task() && *outcome == Applied::Applied
            };
            let stage = ["stage 1", "stage 2", "stage 3"].iter().position(|name| proposal.reason.stage == *name);
            if let Some(stage) = stage.filter(|_| round.orders.iter().zip(round.outcomes).any(done)) {
                self.moves[stage] += 1.0;
            }
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub outcome: Outcome,
    pub seen: RunTotals,
}

/// Takes no action, so that Linux can be observed.
pub(super) struct Watch;

impl Policy for Watch {
    const SECTION: &'static str = "watch";
    type State = ();
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "watch"
    }

    fn decide(&self, ctx: &Ctx<'_>, _: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        Decision::new(Vec::new(), (), now + ctx.config.interval, Vec::new())
    }
}

/// Observes a run under a policy from this time, seconds, until it is cut off: `each` gets every view and its seconds.
/// Returns the total seconds.
pub(super) fn watched(
    scenario: &Scenario,
    policy: &dyn DynPolicy,
    seed: u64,
    from: f64,
    mut each: impl FnMut(&View, f64),
) -> anyhow::Result<f64> {
    let mut seconds = 0.0;
    let cut = scenario.run(policy, scenario.kernel, seed, |round| {
        if round.view.at.as_secs_f64() > from {
            let interval = round.view.interval.as_secs_f64();
            seconds += interval;
            each(round.view, interval);
        }
    });
    match cut {
        Ok(_) | Err(SimError::Unfinished { .. }) => Ok(seconds),
        Err(other) => Err(other.into()),
    }
}

/// The best static mapping of an application alone.
#[derive(Clone, Debug)]
pub(super) struct Static {
    pub time_s: f64,
    /// The CPU of each thread.
    pub places: Vec<usize>,
    pub label: Label,
}

/// The best static mapping of a case.
#[derive(Clone, Debug)]
pub(super) struct Joint {
    /// Seconds of a run of each application.
    pub times_s: Vec<f64>,
    /// The CPU of each thread, application by application.
    pub places: Vec<usize>,
    pub label: Label,
    /// The number of classes if countable, and how many of them were evaluated.
    pub classes: Option<String>,
    pub evaluations: usize,
    /// Largest error of short runs, as a fraction of the geometric mean, over the mappings that were run in full.
    pub error: f64,
}

/// The place of all runs; shared runs are computed once.
pub(super) struct Lab {
    pub effort: Effort,
    /// Changed assumptions against `machines/` and `workloads/`.
    pub assumed: &'static [Assumption],
    /// Progress, and the current activity.
    far: Arc<Mutex<(f64, String)>>,
    best: BTreeMap<App, Static>,
    pub joint: BTreeMap<String, Joint>,
    runs: BTreeMap<String, Vec<Run>>,
    pub feliu: Option<feliu::Schedules>,
}

impl Lab {
    pub fn new(effort: Effort, far: Arc<Mutex<(f64, String)>>) -> Self {
        let (best, joint, runs) = Default::default();
        Self { effort, assumed: &[], far, best, joint, runs, feliu: None }
    }

    /// A lab without runs, under this assumption.
    pub fn assuming(&self, assumed: &'static [Assumption]) -> Self {
        Self { assumed, ..Self::new(self.effort, Arc::clone(&self.far)) }
    }

    /// A scenario from its text, on the machine of the SAM paper.
    pub fn scenario(text: &str) -> anyhow::Result<Scenario> {
        Self::scenario_on(MACHINE, text)
    }

    /// A scenario from its text, on this machine.
    pub fn scenario_on(machine: &str, text: &str) -> anyhow::Result<Scenario> {
        let text = format!("machine = '{machine}'\nkernel = 'eevdf'\nend_s = {END_S}\n{text}");
        Scenario::parse(&text, named).context("reproduce")
    }

    /// The coherence threshold of the simulated machine, events per cycle.
    pub fn threshold(&self) -> anyhow::Result<f64> {
        let scenario = self.assume(Self::scenario("[[app]]\nprogram = 'cpu'\n")?, 1.0);
        let thresholds = scenario.machine.profile.thresholds.context("the machine file has no thresholds")?;
        Ok(thresholds.coherence_per_cycle)
    }

    /// The scenario of some applications, each with this much work.
    pub fn of(&self, apps: &[App], work_s: f64) -> anyhow::Result<Scenario> {
        let mut text = "restart = true\n".to_owned();
        for app in apps {
            let (program, threads) = (app.program(), app.threads);
            let _ = write!(text, "[[app]]\nprogram = '{program}'\nthreads = {threads}\nwork_s = {work_s}\n");
        }
        Ok(self.assume(Self::scenario(&text)?, work_s))
    }

    /// A scenario on the machine of the SAM paper, with runs of this many seconds under the current assumptions.
    pub fn assume(&self, mut scenario: Scenario, work_s: f64) -> Scenario {
        self.assumed.iter().for_each(|assumption| assumption.hold(&mut scenario, work_s));
        scenario
    }

    /// The cases that remain with less effort.
    pub fn some(&self, cases: Vec<Case>) -> Vec<Case> {
        cases.into_iter().step_by(self.effort.every).collect()
    }

    /// Runs a scenario once.
    pub fn once(mut scenario: Scenario, arm: Arm, seed: u64) -> anyhow::Result<Run> {
        let (mut watched, mut kernel) = (RunTotals::default(), scenario.kernel);
        if matches!(arm, Arm::Linux | Arm::CacheAware) {
            scenario.observation.cost_s = 0.0;
        }
        let policy: Box<dyn DynPolicy> = match arm {
            Arm::Linux | Arm::Watched => Box::new(Watch),
            Arm::CacheAware => {
                kernel.placement = Placement::CacheAware;
                Box::new(Watch)
            }
            Arm::Sam(coherence, bandwidth) => {
                let thresholds = scenario.machine.profile.thresholds.as_mut();
                let thresholds = thresholds.context("the machine file has no thresholds")?;
                thresholds.coherence_per_cycle *= coherence;
                thresholds.socket_bandwidth_per_s *= bandwidth;
                Box::new(Sam::default())
            }
            Arm::SamWith(switches, pin) => {
                scenario.config.pin = pin;
                Box::new(Sam(switches.parse()?))
            }
            Arm::Shapes => {
                scenario.config.pin = Pin::Cpu;
                Box::new(Shapes::default())
            }
            Arm::NumaBalanced(arm) => {
                scenario.kernel.numa_balancing = true;
                return Self::once(scenario, *arm, seed);
            }
        };
        let outcome = scenario.run(&*policy, kernel, seed, |round| watched.add(round))?;
        Ok(Run { outcome, seen: watched })
    }

    /// Runs cases under arms with all seeds: by case, then by arm, then by seed.
    pub fn runs(&mut self, what: &str, cases: &[Case], arms: &[Arm]) -> anyhow::Result<Vec<Vec<Vec<Run>>>> {
        let key = |case: &Case, arm: &Arm| format!("{} {arm:?}", case.label);
        let mut jobs = Vec::new();
        for case in cases {
            let missing = |arm: &&Arm| !self.runs.contains_key(&key(case, arm));
            let scenario = self.of(&case.apps, self.effort.work_s)?;
            for arm in arms.iter().filter(missing) {
                jobs.extend((1..=self.effort.seeds).map(|seed| (case, *arm, seed, scenario.clone())));
            }
        }
        let done = self.parallel(what, &jobs, |(_, arm, seed, scenario)| Self::once(scenario.clone(), *arm, *seed))?;
        for ((case, arm, ..), run) in jobs.iter().zip(done) {
            self.runs.entry(key(case, arm)).or_default().push(run);
        }
        Ok(cases.iter().map(|case| arms.iter().map(|arm| self.runs[&key(case, arm)].clone()).collect()).collect())
    }

    /// The best static mapping of each application alone: the normalization of §4.2 and §4.3.
    pub fn best(&mut self, cases: &[Case]) -> anyhow::Result<&BTreeMap<App, Static>> {
        let all: BTreeSet<&App> = cases.iter().flat_map(|case| &case.apps).collect();
        let wanted: Vec<App> = all.into_iter().filter(|app| !self.best.contains_key(app)).cloned().collect();
        let limits = self.effort.limits;
        let work = |app: &App| -> anyhow::Result<Static> {
            let scenario = self.of(std::slice::from_ref(app), self.effort.work_s)?;
            let (best, outcome) = scenario.optimal(&[1.0], limits, &[], 1)?;
            Ok(Static { time_s: outcome.apps[0].time_s, places: scenario.places(&best.mapping), label: best.label })
        };
        let found = self.parallel("best static mappings", &wanted, work)?;
        self.best.extend(wanted.into_iter().zip(found));
        Ok(&self.best)
    }

    /// A run of each case with every thread fixed to its CPU.
    pub fn pinned(&self, cases: &[Case], places: &[Vec<usize>]) -> anyhow::Result<Vec<Run>> {
        let one = |(case, places): (&Case, &Vec<usize>)| {
            let mut scenario = self.of(&case.apps, self.effort.work_s)?;
            pin(&mut scenario.apps, places);
            Self::once(scenario, Arm::Linux, 1)
        };
        cases.iter().zip(places).map(one).collect()
    }

    /// Shows progress.
    pub fn show(&self, done: f64, what: String) {
        if let Ok(mut far) = self.far.lock() {
            *far = (done, what);
        }
    }

    /// Runs jobs on all cores and shows progress; results keep the order of the jobs.
    pub fn parallel<J: Sync, R: Send>(
        &self,
        what: &str,
        jobs: &[J],
        work: impl Fn(&J) -> anyhow::Result<R> + Sync,
    ) -> anyhow::Result<Vec<R>> {
        let all = jobs.len();
        let show = |done| self.show(done as f64 / all.max(1) as f64, format!("{what}: {done} of {all} simulations"));
        show(0);
        parallel(jobs, work, show)
    }
}
