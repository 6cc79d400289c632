//! This machine, as the contentiousness model is fitted on it: kernels are the applications, one after the other.

use crate::app_bench::AppBench;
use cotenant_core::CpuId;
use cotenant_core::characterize::caches::{Geometry, Misses};
use cotenant_core::characterize::{Bench, Beside, Ran, Stop, Trial};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Work on simulated caches, as parts of that of a run: what is counted of the second is what it has beyond the first, so that the
/// program's start, and the preparation of its memory, which fills the caches, are in neither.
const SIMULATED: [f64; 2] = [0.1, 0.3];

/// What all kernels have in common.
pub(crate) struct Kernels<'a> {
    app: AppBench<'a>,
    /// This program, which has the kernels.
    program: PathBuf,
    /// How long a kernel works alone in a run.
    length: Duration,
    /// Units per second of CPU time alone.
    paces: BTreeMap<String, f64>,
    begun: usize,
    all: usize,
}

impl<'a> Kernels<'a> {
    pub fn new(app: AppBench<'a>, program: PathBuf, length: Duration, all: usize) -> Rc<RefCell<Self>> {
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

    /// From now on it is the application, with as much work as it does alone in so many seconds: units.
    fn set(&mut self, kernel: &str, pace: f64, seconds: f64) -> u64 {
        let units = (pace * seconds).ceil().max(1.0) as u64;
        let words = ["kernel", kernel, "--units", &units.to_string()].map(OsString::from);
        self.app.command = std::iter::once(self.program.clone().into_os_string()).chain(words).collect();
        units
    }
}

/// One kernel as the application.
pub(crate) struct KernelBench<'a> {
    kernels: Rc<RefCell<Kernels<'a>>>,
    name: String,
}

impl<'a> KernelBench<'a> {
    pub fn new(kernels: &Rc<RefCell<Kernels<'a>>>, name: &str) -> Self {
        kernels.borrow_mut().begun += 1;
        Self { kernels: kernels.clone(), name: name.to_owned() }
    }

    fn own(&self, cpu: Option<CpuId>) -> Beside {
        Beside { kernel: self.name.clone(), cpus: cpu.into_iter().collect(), rate: None }
    }
}

impl Bench for KernelBench<'_> {
    fn run(&mut self, trial: &Trial) -> Result<Ran, Stop> {
        let mut kernels = self.kernels.borrow_mut();
        let pace = kernels.pace(&self.own(trial.cpus.first()))?;
        let seconds = kernels.length.as_secs_f64();
        kernels.set(&self.name, pace, seconds);
        kernels.app.run(trial)
    }

    fn alone(&mut self, kernel: &Beside) -> Result<f64, Stop> {
        self.kernels.borrow_mut().pace(kernel)
    }

    fn simulate(&mut self, first: Geometry, last: Geometry) -> Result<Misses, Stop> {
        let mut kernels = self.kernels.borrow_mut();
        let first_cpu = kernels.app.topology.usable().first();
        let pace = kernels.pace(&self.own(first_cpu))?;
        let length = kernels.length.as_secs_f64();
        let mut run = |part: f64| {
            let units = kernels.set(&self.name, pace, part * length);
            Ok((units, kernels.app.simulate(first, last)?))
        };
        let [(before, less), (after, more)] = [run(SIMULATED[0])?, run(SIMULATED[1])?];
        Ok(Misses {
            instructions: more.instructions.saturating_sub(less.instructions),
            references: more.references.saturating_sub(less.references),
            first_misses: more.first_misses.saturating_sub(less.first_misses),
            misses: more.misses.saturating_sub(less.misses),
            // What it does is known; valgrind's program reports nothing.
            units: Some(after - before),
        })
    }

    fn goes_on(&mut self, done: f64, what: &str) -> bool {
        let mut kernels = self.kernels.borrow_mut();
        let whole = (kernels.begun as f64 - 1.0 + done) / kernels.all as f64;
        let what = format!("{} {what}", self.name);
        kernels.app.goes_on(whole, &what)
    }
}
