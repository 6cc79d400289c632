//! The steady state of programs that run beside each other, each on its own core, all restarted until the slowest has ended once.
//!
//! Two unknowns meet in a fixed point: what each program holds of the shared cache (by the pace at which each fills it) and how fast it runs
//! (by its misses and the load of the memory).

mod machine;
mod occupancy;

pub use machine::{Machine, MachineError, Replacement};

use crate::workload::Workload;
use thiserror::Error;

/// Bytes of a cache line.
pub const LINE: f64 = 64.0;

/// One program's share of a steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Cycles per instruction.
    pub cpi: f64,
    /// Bytes held of the shared cache.
    pub held: f64,
    /// LLC misses per LLC access.
    pub miss_ratio: f64,
    /// Memory traffic, reads and write-backs, GB/s.
    pub gbs: f64,
}

/// A steady state.
#[derive(Debug, Clone, PartialEq)]
pub struct Steady {
    /// One per program, in the order given.
    pub shares: Vec<Share>,
    /// Memory latency, ns.
    pub memory_ns: f64,
}

/// Why there is no prediction.
#[derive(Debug, Error)]
pub enum MixError {
    /// More programs than cores.
    #[error("{programs} programs, but {machine} has {cores} cores; name at most {cores}")]
    TooMany {
        /// Programs asked for.
        programs: usize,
        /// Cores there are.
        cores: usize,
        /// Name of the machine.
        machine: String,
    },
    /// Nothing to run.
    #[error("no program is named; name at least one")]
    Empty,
    /// The fixed point was not reached.
    #[error(
        "no steady state after {rounds} rounds: bytes held still change by {change:.1e} of the cache (held: {held:?})"
    )]
    Unsteady {
        /// Rounds tried.
        rounds: usize,
        /// Change in the last round, as a part of the cache.
        change: f64,
        /// Bytes held in the last round.
        held: Vec<f64>,
    },
}

const ROUNDS: usize = 5_000;
const CLOSE: f64 = 1e-6;

/// Finds the steady state of `programs` on `machine`.
///
/// # Errors
/// With no program, with more programs than cores, or where the iteration does not settle.
pub fn steady(machine: &Machine, programs: &[&Workload]) -> Result<Steady, MixError> {
    if programs.is_empty() {
        return Err(MixError::Empty);
    }
    if programs.len() > machine.cores {
        let machine_name = machine.name.clone();
        return Err(MixError::TooMany { programs: programs.len(), cores: machine.cores, machine: machine_name });
    }
    let capacity = machine.llc_bytes;
    let mut held = vec![capacity / programs.len() as f64; programs.len()];
    let mut change = f64::INFINITY;
    let mut damping = 0.5;
    for round in 0..ROUNDS {
        let state = speeds(machine, programs, &held);
        let rates: Vec<f64> = programs.iter().zip(&state.shares).map(|(w, s)| w.llc_apki / 1000.0 / s.cpi).collect();
        let wanted = occupancy::held(machine.replacement, capacity, programs, &rates);
        change = held.iter().zip(&wanted).map(|(h, w)| (h - w).abs()).fold(0.0, f64::max) / capacity;
        if change < CLOSE {
            return Ok(state);
        }
        if round % 200 == 199 {
            damping *= 0.5;
        }
        for (h, w) in held.iter_mut().zip(&wanted) {
            *h += damping * (w - *h);
        }
    }
    Err(MixError::Unsteady { rounds: ROUNDS, change, held })
}

/// Speeds and memory latency for given occupancies. Traffic falls as latency rises, and latency rises with traffic: one crossing, by bisection.
fn speeds(machine: &Machine, programs: &[&Workload], held: &[f64]) -> Steady {
    let shares = |memory_ns: f64| -> Vec<Share> {
        programs.iter().zip(held).map(|(program, &held)| share(machine, program, held, memory_ns)).collect()
    };
    // Each core has at most `lines_in_flight` lines under way, so at some latency all of them fit into the bandwidth.
    let (mut low, mut high) = (machine.memory_ns, machine.memory_ns * 2.0);
    let excess = |ns: f64| machine.latency_ns(shares(ns).iter().map(|s| s.gbs).sum()) - ns;
    while excess(high) > 0.0 {
        low = high;
        high *= 2.0;
    }
    while high - low > 1e-9 * high {
        let middle = f64::midpoint(low, high);
        if excess(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Steady { shares: shares(high), memory_ns: high }
}

/// One program at a given memory latency.
///
/// `CPI = cpi + llc_apki/1000 · [(1 − m) · L_llc/llc_mlp + m · L_mem/mlp]`, and never less than the time that its misses take with all the lines
/// under way that a core can have (Little's law): prefetching hides latency only so far.
fn share(machine: &Machine, program: &Workload, held: f64, memory_ns: f64) -> Share {
    let miss_ratio = program.miss_ratio(held);
    let accesses = program.llc_apki / 1000.0;
    let hit = machine.llc_ns * machine.clock_ghz / program.llc_mlp;
    let memory = memory_ns * machine.clock_ghz;
    let by_latency = program.cpi + accesses * ((1.0 - miss_ratio) * hit + miss_ratio * memory / program.mlp);
    let by_lines = accesses * miss_ratio * memory / machine.lines_in_flight;
    let cpi = by_latency.max(by_lines);
    let gbs = accesses * miss_ratio * (1.0 + program.writeback_ratio) / cpi * LINE * machine.clock_ghz;
    Share { cpi, held, miss_ratio, gbs }
}

#[cfg(test)]
mod tests;
