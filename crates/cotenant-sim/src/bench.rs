//! Runs an application on the simulated machine for characterization: one script measures real and simulated programs.

use crate::app::{Program, known};
use crate::kernel::{Kernel, KernelKind};
use crate::machine::SimMachine;
use crate::scenario::alone_per_s;
use crate::world::{AppSpec, Halt, Load, World};
use cotenant_measure::characterize::caches::{Geometry, Misses};
use cotenant_measure::characterize::{Bench, Beside, RunResult, Stop, Trial};
use cotenant_model::signal::Signal;
use cotenant_model::{CpuId, CpuSet, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Simulated time for which a co-running kernel fills its caches before the application starts.
const BEFORE: Duration = Duration::from_millis(500);
/// A run longer than this, in seconds, fails; no program here needs as long.
const LONGEST_S: f64 = 1e5;
/// Units of an injector requested at a time.
const BATCH: f64 = 1_000.0;

/// One program on one machine.
pub struct SimBench {
    machine: Arc<SimMachine>,
    program: Arc<Program>,
    /// Threads; `None` = as many as the CPUs of each run, as with `{threads}` in a command.
    threads: Option<usize>,
    /// Instructions of a thread in a run.
    instructions: f64,
    kernel: KernelKind,
    /// Each run draws new random numbers.
    seed: u64,
}

impl SimBench {
    /// A program whose threads each do, per run, the work of `work_s` seconds alone.
    pub fn new(machine: Arc<SimMachine>, program: &Program, threads: Option<usize>, work_s: f64) -> Self {
        let program = Arc::new(machine.private.map_or_else(|| program.clone(), |core| core.carry(program)));
        let instructions = work_s * alone_per_s(&program, &machine);
        Self { machine, program, threads, instructions, kernel: KernelKind::EEVDF, seed: 0 }
    }

    fn spec(&self, cpus: &CpuSet, arrival: Time) -> AppSpec {
        let threads = self.threads.unwrap_or(cpus.len());
        AppSpec {
            arrival,
            cpus: Some(cpus.clone()),
            pinned: (threads == cpus.len()).then(|| cpus.iter().map(CpuId::index).collect()),
            ..AppSpec::new("app", self.program.clone(), threads, self.instructions)
        }
    }

    /// A kernel that never ends, with its units per instruction.
    fn beside(&self, beside: &Beside) -> Result<(AppSpec, f64), Stop> {
        let program = known(&beside.kernel)
            .ok_or_else(|| Stop::Missing(format!("the simulator does not know the kernel {}", beside.kernel)))?;
        let program = self.machine.private.map_or_else(|| program.clone(), |core| core.carry(program));
        // An access counts as a line; a kernel without accesses counts instructions.
        let apki = program.phases[0].llc_apki;
        let units = if apki > 0.0 { apki / 1000.0 } else { 1.0 };
        let threads = beside.cpus.len();
        let load =
            beside.rate.map(|rate| Load { requests_per_s: rate * threads as f64 / BATCH, instructions: BATCH / units });
        let pinned = Some(beside.cpus.iter().copied().map(CpuId::index).collect());
        let spec = AppSpec::new(&beside.kernel, Arc::new(program), threads, LONGEST_S * 1e12);
        let spec = AppSpec { load, pinned, ..spec };
        Ok((spec, units))
    }

    fn world(&mut self, specs: Vec<AppSpec>) -> World {
        self.seed += 1;
        World::new(self.machine.clone(), specs, Kernel::new(self.kernel), self.seed)
    }
}

fn failed(why: &Halt) -> Stop {
    Stop::Failed(why.to_string())
}

/// Cumulative events of the threads of an application.
fn counts(world: &World, app: usize) -> BTreeMap<Signal, f64> {
    let of = |signal: Signal| world.threads.iter().filter(|t| t.app == app).map(|t| t.counts[signal as usize]).sum();
    let all = Signal::ALL.iter().map(|&signal| (signal, of(signal)));
    all.filter(|(signal, _): &(Signal, f64)| crate::host::counted(&world.machine, *signal)).collect()
}

impl Bench for SimBench {
    fn run(&mut self, trial: &Trial) -> Result<RunResult, Stop> {
        let begin = Time::default() + if trial.beside.is_some() { BEFORE } else { Duration::ZERO };
        let mut specs = vec![self.spec(&trial.cpus, begin)];
        let beside = trial.beside.as_ref().map(|beside| self.beside(beside)).transpose()?;
        specs.extend(beside.iter().map(|(spec, _)| spec.clone()));
        let mut world = self.world(specs);
        world.advance(begin, false).map_err(|e| failed(&e))?;
        let before = counts(&world, 1);
        while world.apps[0].times.is_empty() && world.now().as_secs_f64() < LONGEST_S {
            world.advance(Time((LONGEST_S * 1e9) as u64), true).map_err(|e| failed(&e))?;
        }
        let seconds = world.apps[0].times.first().copied();
        let seconds = seconds.ok_or_else(|| Stop::Failed(format!("a simulated run took longer than {LONGEST_S} s")))?;
        let (own, after) = (counts(&world, 0), counts(&world, 1));
        let beside_per_s = trial.beside.as_ref().zip(beside).map(|(beside, (_, units))| {
            let between = |signal: Signal| after[&signal] - before[&signal];
            let time = if beside.rate.is_some() { seconds } else { between(Signal::CpuTime) * 1e-9 };
            between(Signal::Instructions) * units / time
        });
        Ok(RunResult {
            seconds,
            cycles: own.get(&Signal::Cycles).copied(),
            cpu_s: own.get(&Signal::CpuTime).map(|ns| ns * 1e-9),
            units: None,
            threads: world.apps[0].spec.threads,
            counts: own,
            beside_per_s,
            beside_alone_per_s: None,
        })
    }

    fn alone(&mut self, kernel: &Beside) -> Result<f64, Stop> {
        let (spec, units) = self.beside(kernel)?;
        let mut world = self.world(vec![spec]);
        let warm = Time::default() + BEFORE;
        world.advance(warm, false).map_err(|e| failed(&e))?;
        let before = counts(&world, 0);
        world.advance(warm + BEFORE, false).map_err(|e| failed(&e))?;
        let after = counts(&world, 0);
        Ok((after[&Signal::Instructions] - before[&Signal::Instructions]) * units / BEFORE.as_secs_f64())
    }

    fn simulate(&mut self, _: &[[Geometry; 2]]) -> Result<Vec<Misses>, Stop> {
        Err(Stop::Missing("a simulated program's miss-ratio curve is what it is made of, not a result".to_owned()))
    }

    fn goes_on(&mut self, _: f64, _: &str) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::scenario;
    use cotenant_measure::characterize::{PARTS, Plan, characterize};
    use cotenant_model::profile::{AppProfile, By};

    /// The profile of a program on Clovertown.
    fn measured(program: &str) -> (AppProfile, Vec<String>) {
        let s = scenario(&format!("machine = 'clovertown-2s'\n[[app]]\nprogram = '{program}'\n"));
        let mut bench = SimBench::new(s.sim.clone(), known(program).unwrap(), None, 0.5);
        let kernels = vec!["bst-50mb".into(), "sledge-large".into()];
        let plan = Plan { rounds: 2, ..Plan::new(&s.machine.topology, &PARTS, kernels) };
        let found = characterize(&plan, &mut bench).unwrap();
        (found.profile, found.left_out.into_iter().map(|left| left.name).collect())
    }

    /// Holds measure/characterize.
    #[test]
    fn simulated_programs_are_characterized_by_the_same_script() {
        let (sharer, left_out) = measured("bigtable");
        let (stream, _) = measured("stitcher");
        let (alone, _) = measured("cpu");
        let score = |p: &AppProfile, level: &str| p.sensitivity[level].score;
        // bigtable's threads share lines and gain from one L2. stitcher streams: two threads on one bus slow each
        // other.
        assert!(score(&sharer, "l2") > 1.0 && score(&stream, "bus") < -1.0, "{sharer:?} {stream:?}");
        assert!(score(&alone, "l2").abs() < 0.01 && score(&alone, "bus").abs() < 0.01);
        assert_eq!(sharer.sensitivity["l2"].by, By::Cycles);
        assert!(stream.corun_sensitivity > alone.corun_sensitivity && stream.contentiousness > alone.contentiousness);
        assert!(alone.corun_sensitivity.unwrap().abs() < 1e-3 && alone.contentiousness.unwrap().abs() < 1e-3);
        let memory = &stream.degradation["memory"];
        assert!(memory.len() == 4 && memory[3].loss.loss > memory[0].loss.loss, "{memory:?}");
        for point in memory {
            assert!(point.reached_per_s <= point.target_per_s * 1.05, "{point:?}");
        }
        assert!(sharer.bus_per_ms.is_some() && sharer.sharing.unwrap() > 0.0);
        assert_eq!(left_out, ["sensitivity.memory-controller+node", "misses"]);
    }
}
