//! This machine as the bench on which the contentiousness model is fitted: kernels are the applications, one after the
//! other.

use super::app::AppBench;
use crate::characterize::caches::{Geometry, Misses};
use crate::characterize::contention;
use crate::characterize::{Bench, Beside, Plan, RunResult, Stop, Trial};
use cotenant_cli::progress::Progress;
use cotenant_model::profile::By;
use cotenant_model::profile::contentiousness::Point;
use cotenant_model::{CpuId, CpuSet, Topology};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Work on simulated caches as fractions of a run: the counts of the second minus those of the first, which cancels
/// start-up and the initialization of memory.
const SIMULATED: [f64; 2] = [0.1, 0.3];

/// Limit for a kernel's work of less than a second.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Common to all kernels.
struct Kernels<'a> {
    app: AppBench<'a>,
    /// The `cotenant` binary, which contains the kernels.
    program: PathBuf,
    /// Duration of a kernel's work alone in a run.
    length: Duration,
    /// Units per second of CPU time alone.
    paces: BTreeMap<String, f64>,
    begun: usize,
    all: usize,
}

impl<'a> Kernels<'a> {
    fn new(app: AppBench<'a>, program: PathBuf, length: Duration, all: usize) -> Rc<RefCell<Self>> {
        let paces = BTreeMap::new();
        Rc::new(RefCell::new(Self { app, program, length, paces, begun: 0, all }))
    }

    fn pace(&mut self, beside: &Beside) -> Result<f64, Stop> {
        if let Some(pace) = self.paces.get(&beside.kernel) {
            return Ok(*pace);
        }
        let pace = self.app.alone(beside)?;
        self.paces.insert(beside.kernel.clone(), pace);
        Ok(pace)
    }

    /// Makes it the application, with the work of this many seconds alone: units.
    fn set(&mut self, kernel: &str, pace: f64, seconds: f64) -> u64 {
        let units = (pace * seconds).ceil().max(1.0) as u64;
        let words = ["kernel", kernel, "--units", &units.to_string()].map(OsString::from);
        self.app.command = std::iter::once(self.program.clone().into_os_string()).chain(words).collect();
        units
    }
}

/// One kernel as the application.
struct KernelBench<'a> {
    kernels: Rc<RefCell<Kernels<'a>>>,
    name: String,
}

impl KernelBench<'_> {
    fn own(&self, cpu: Option<CpuId>) -> Beside {
        Beside { kernel: self.name.clone(), cpus: cpu.into_iter().collect(), rate: None }
    }
}

impl Bench for KernelBench<'_> {
    fn run(&mut self, trial: &Trial) -> Result<RunResult, Stop> {
        let mut kernels = self.kernels.borrow_mut();
        let pace = kernels.pace(&self.own(trial.cpus.first()))?;
        let seconds = kernels.length.as_secs_f64();
        kernels.set(&self.name, pace, seconds);
        kernels.app.run(trial)
    }

    fn alone(&mut self, kernel: &Beside) -> Result<f64, Stop> {
        self.kernels.borrow_mut().pace(kernel)
    }

    fn simulate(&mut self, caches: &[[Geometry; 2]]) -> Result<Vec<Misses>, Stop> {
        let mut kernels = self.kernels.borrow_mut();
        let first_cpu = kernels.app.topology.usable().first();
        let pace = kernels.pace(&self.own(first_cpu))?;
        let length = kernels.length.as_secs_f64();
        let mut run = |part: f64| {
            let units = kernels.set(&self.name, pace, part * length);
            Ok((units, kernels.app.simulate(caches)?))
        };
        let [(before, less), (after, more)] = [run(SIMULATED[0])?, run(SIMULATED[1])?];
        let beyond = |(more, less): (&Misses, &Misses)| Misses {
            instructions: more.instructions.saturating_sub(less.instructions),
            references: more.references.saturating_sub(less.references),
            first_misses: more.first_misses.saturating_sub(less.first_misses),
            misses: more.misses.saturating_sub(less.misses),
            // Its behaviour is known; under valgrind it reports nothing.
            units: Some(after - before),
        };
        Ok(more.iter().zip(&less).map(beyond).collect())
    }

    fn goes_on(&mut self, done: f64, what: &str) -> bool {
        let mut kernels = self.kernels.borrow_mut();
        let whole = (kernels.begun as f64 - 1.0 + done) / kernels.all as f64;
        let what = format!("{} {what}", self.name);
        kernels.app.goes_on(whole, &what)
    }
}

/// Kernels as the applications of characterization, each beside all, on two cores that share a last-level cache.
pub struct Study<'a> {
    kernels: Rc<RefCell<Kernels<'a>>>,
    /// The plan for each.
    pub plan: Plan<'a>,
}

impl<'a> Study<'a> {
    /// Runs last as long as each kernel's work alone. `program` is the `cotenant` binary, which contains the kernels.
    ///
    /// # Errors
    /// If signals cannot be awaited.
    pub fn new(
        kernels: Vec<String>,
        rounds: usize,
        length: Duration,
        topology: &'a Topology,
        cpus: &CpuSet,
        program: PathBuf,
        shown: bool,
    ) -> io::Result<Self> {
        let progress = Progress::new(shown);
        let app = AppBench::new(topology, Vec::new(), "kernel".to_owned(), false, TIMEOUT, progress)?;
        let shared = Kernels::new(app, program, length, kernels.len());
        // Kernels never wait, so that CPU time is the measure least disturbed by other processes.
        let cpus = pair(topology, cpus);
        let plan = Plan { cpus, rounds, by: Some(By::CpuTime), ..Plan::new(topology, &["corun"], kernels) };
        Ok(Self { kernels: shared, plan })
    }

    /// The costs that they cause each other, and the lines that they bring in.
    ///
    /// # Errors
    /// [`Stop`]
    pub fn points(&self) -> Result<Vec<Point>, Stop> {
        contention::points(&self.plan, &mut |name| Ok(Box::new(self.bench(name))))
    }

    /// The bench with one of them as the application.
    pub fn bench(&self, name: &str) -> impl Bench + use<'a> {
        self.kernels.borrow_mut().begun += 1;
        KernelBench { kernels: self.kernels.clone(), name: name.to_owned() }
    }
}

/// Two cores that share a last-level cache, if possible: each program is one thread beside another.
pub fn pair(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    let firsts: CpuSet = topology.cores().iter().filter_map(|core| core.and(cpus).first()).collect();
    let domains = topology.llc_domains().iter().map(|domain| domain.cpus.and(&firsts));
    let domain = domains.into_iter().find(|domain| domain.len() > 1);
    domain.map_or_else(|| cpus.clone(), |domain| domain.iter().take(2).collect())
}
