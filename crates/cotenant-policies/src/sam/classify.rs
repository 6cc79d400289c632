//! Thresholds, and the task classes that they define (figure 3 of the paper).

use super::config::SamConfig;
use super::task::{Class, Rates, Task};
use super::units::Level;
use cotenant_model::policy::Ctx;
use cotenant_model::topology::DistanceUnit;
use cotenant_model::{Signal, TaskView, Topology, View};

/// Stalls on memory per cycle up to which a sharer tolerates latency: the loss from which SAM calls separation costly
/// (ATC'15 §2.1), applied to stalls. Inferred, because SAM-MPH's figure is unknown to us.
const TOLERATED: f64 = 0.05;

/// The thresholds in terms of units.
pub(super) struct Limits {
    /// `C_T`: coherence events per unhalted cycle of a task.
    pub coherence: f64,
    /// `R_T`: remote accesses per unhalted cycle of a task.
    pub remote: Option<f64>,
    /// `M_T` of a task: LLC misses per second, by package.
    pub task_bandwidth: Vec<f64>,
    /// `M_T` of a socket: LLC misses per second, by memory unit.
    pub unit_bandwidth: Vec<f64>,
}

/// The rate of remote accesses, per cycle, whose extra latency is 5 % of the cycles: 0.05 / ((remote − local) · clock).
/// Averaged over the pairs of nodes with CPUs; needs latencies in nanoseconds and the clock.
pub(super) fn remote_at_five_percent(topology: &Topology, clock_hz: Option<f64>) -> Option<f64> {
    let unit = topology.parts().distances.as_ref()?.unit;
    if unit != DistanceUnit::Nanoseconds {
        return None;
    }
    let homes: Vec<_> = topology.nodes().iter().enumerate().filter_map(|(i, n)| Some((i, n.cpus.first()?))).collect();
    let (mut extra_ns, mut pairs) = (0.0, 0.0);
    for &(local, cpu) in &homes {
        for &(remote, _) in homes.iter().filter(|(node, _)| *node != local) {
            extra_ns += topology.distance(cpu, remote)? - topology.distance(cpu, local)?;
            pairs += 1.0;
        }
    }
    let cycles = extra_ns / pairs * clock_hz? / 1e9;
    (cycles > 0.0).then(|| 0.05 / cycles)
}

impl Limits {
    /// `None` if the machine has no thresholds, or the clock required by the configuration is unknown.
    pub fn new(ctx: &Ctx<'_>, config: SamConfig, memory: &Level<'_>) -> Option<Self> {
        let t = ctx.machine.thresholds.as_ref()?;
        if !config.wall_clock {
            ctx.machine.clock_hz?;
        }
        let topology = ctx.topology;
        let mut package_cores = vec![0.0; topology.packages().len()];
        let mut unit_cores = vec![0.0; memory.len()];
        for core in topology.cores() {
            let Some(cpu) = core.first() else { continue };
            let Some(package) = topology.package_of(cpu) else { continue };
            package_cores[package] += 1.0;
            if let Some(unit) = memory.of_node(package, topology.node_of(cpu)) {
                unit_cores[unit] += 1.0;
            }
        }
        let socket = t.socket_bandwidth_per_s;
        Some(Self {
            coherence: t.coherence_per_cycle,
            remote: t.remote_per_cycle.or_else(|| {
                config.derive_remote.then(|| remote_at_five_percent(topology, ctx.machine.clock_hz)).flatten()
            }),
            task_bandwidth: package_cores
                .iter()
                .map(|cores| t.task_bandwidth_per_s.unwrap_or(socket / cores))
                .collect(),
            // A node that is part of a package has the same part of its bandwidth.
            unit_bandwidth: unit_cores
                .iter()
                .enumerate()
                .map(|(u, cores)| socket * (cores / package_cores[memory.unit(u).package]))
                .collect(),
        })
    }
}

impl Rates {
    /// `near`: whether coherence inside the package also leaves the unit (chiplets). `clock_hz`: uses the paper's rates
    /// per cycle at that clock instead of wall-clock rates.
    pub fn new(task: &TaskView, near: bool, clock_hz: Option<f64>, config: SamConfig) -> Self {
        let cycles = task.per_s(Signal::Cycles).filter(|c| *c > 0.0);
        let per_cycle = |signal| Some(task.per_s(signal)? / cycles?);
        let inter = per_cycle(Signal::Inter);
        let near = if near { per_cycle(Signal::Near) } else { None };
        Self {
            inter: match (inter, near) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            },
            intra: intra(per_cycle),
            remote: per_cycle(Signal::Remote),
            mem: match clock_hz {
                None => task.per_s(Signal::LlcMisses),
                Some(hz) => per_cycle(Signal::LlcMisses).map(|rate| rate * hz),
            },
            stalls: if config.latency_tolerance { per_cycle(Signal::StallCycles) } else { None },
            ipc: if config.core_sharing { per_cycle(Signal::Instructions) } else { None },
        }
    }
}

/// Coherence inside the socket, per cycle: counted if the processor can, otherwise the misses of the last private level
/// minus hits and misses of the LLC (§2.1). The subtraction is only right if an LLC hit means a hit without a snoop
/// (Ivy Bridge to Broadwell); hosts deliver [`Signal::Intra`] on everything later.
pub(crate) fn intra(per_cycle: impl Fn(Signal) -> Option<f64>) -> Option<f64> {
    per_cycle(Signal::Intra).or_else(|| {
        let misses = per_cycle(Signal::PrivateMisses)?;
        let served = per_cycle(Signal::LlcHits)? + per_cycle(Signal::LlcLoadMisses)?;
        Some((misses - served).max(0.0))
    })
}

/// Signals that some task has. A signal missing for all tasks is not required; one missing for some is starved.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(super) struct SignalsSeen {
    ran: bool,
    cycles: bool,
    /// Some signal judged per cycle is counted.
    counted: bool,
    pub inter: bool,
    pub intra: bool,
    pub remote: bool,
    pub mem: bool,
    pub stalls: bool,
    pub ipc: bool,
}

impl SignalsSeen {
    pub fn add(&mut self, task: &TaskView, ran: bool, rates: &Rates) {
        let has = |signal| task.per_s(signal).is_some();
        self.ran |= ran;
        self.cycles |= has(Signal::Cycles);
        self.counted |= has(Signal::Inter) || has(Signal::Near) || has(Signal::Remote);
        self.inter |= rates.inter.is_some();
        self.intra |= rates.intra.is_some();
        self.remote |= rates.remote.is_some();
        self.mem |= rates.mem.is_some();
        self.stalls |= rates.stalls.is_some();
        self.ipc |= rates.ipc.is_some();
    }

    /// Features disabled for want of a signal, as text.
    pub fn notes(self, limits: &Limits, config: SamConfig) -> Vec<String> {
        let mut notes = Vec::new();
        let mut lacks = |signal: &str, effect: &str| {
            notes.push(format!(
                "sam: no task has the signal {signal}, so {effect}; 'cotenant doctor' tells how to get it"
            ));
        };
        let no_clock = self.counted && !self.cycles;
        if no_clock {
            let effect = if self.ran {
                "stages 1 and 2, which judge events by the cycle, are off"
            } else {
                "whether anything ran is unknown, and nothing is done"
            };
            lacks("cycles", effect);
        }
        if self.ran && !self.inter && !no_clock {
            lacks("inter", "stage 1 (bring sharers together) is off");
        }
        if self.ran && self.inter && !self.intra {
            lacks("intra", "tasks that share data inside their socket are not recognised and may have to make way");
        }
        if self.ran && !self.remote && !no_clock {
            lacks("remote", "stage 2 (undo remote memory accesses) is off");
        }
        if self.ran && !self.mem {
            lacks("llc_misses", "stage 3 (balance bandwidth) is off and memory-bound tasks are not recognised");
        }
        if self.ran && config.latency_tolerance && !self.stalls {
            lacks("stall_cycles", "which tasks tolerate latency is unknown, and latency-tolerance does nothing");
        }
        if self.ran && config.core_sharing && !self.ipc {
            lacks("instructions", "stage 4 (share cores) is off");
        }
        if limits.remote.is_none() {
            notes.push(
                "sam: the threshold of remote accesses is unknown, so stage 2 (undo remote memory accesses) is off. \
                 Give remote_per_cycle under [thresholds], or clock_hz and latencies in nanoseconds, in a machine \
                 file by --profile or --machine"
                    .to_owned(),
            );
        }
        notes
    }
}

/// CPUs that a task wants, 0–1: running or waiting. A whole one if it ran without counted time.
fn wants(task: &TaskView) -> f64 {
    let of_time = task.per_s(Signal::CpuTime);
    let wants = of_time.map(|ran| (ran + task.per_s(Signal::RunQueueWait).unwrap_or(0.0)) / 1e9);
    wants.unwrap_or(f64::from(u8::from(task.ran() == Some(true)))).min(1.0)
}

/// The class of a running task in this package. `cooled`: whether it shared data before its move at the start of the
/// interval. Then its coherence reflects the move, not the task, and a sharer stays in its new place.
pub(super) fn class(rates: &Rates, seen: SignalsSeen, limits: &Limits, package: usize, cooled: Option<bool>) -> Class {
    match cooled {
        Some(true) => return Class::Intra,
        Some(false) => {}
        None => {
            match rates.inter {
                Some(rate) if rate > limits.coherence && rates.stalls.is_none_or(|stalls| stalls > TOLERATED) => {
                    return Class::Inter;
                }
                None if seen.inter => return Class::Unknown,
                _ => {}
            }
            match rates.intra {
                Some(rate) if rate >= limits.coherence => return Class::Intra,
                None if seen.intra => return Class::Unknown,
                _ => {}
            }
        }
    }
    match rates.mem {
        Some(rate) if rate > limits.task_bandwidth[package] => Class::Mem,
        None if seen.mem => Class::Unknown,
        _ if seen.inter || seen.intra || seen.mem => Class::Cpu,
        _ => Class::Unknown,
    }
}

/// Collects the signals of all tasks; classes follow when all are known.
pub(super) fn look(view: &View, near: bool, clock_hz: Option<f64>, config: SamConfig) -> (Vec<Task>, SignalsSeen) {
    let mut seen = SignalsSeen::default();
    let tasks = view.tasks.iter().map(|task| {
        let rates = Rates::new(task, near, clock_hz, config);
        let ran = task.ran();
        seen.add(task, ran == Some(true), &rates);
        Task::new(rates, ran, wants(task))
    });
    (tasks.collect(), seen)
}
