//! The steady state of co-running programs, each on its own core, all restarted until the slowest has ended once.
//!
//! A fixed point of two unknowns: the part of the shared cache that each program holds, set by its fill rate, and its
//! speed, set by its misses and the load of memory.

mod held;

use crate::app::{LINE, Phase};
use crate::machine::SimMachine;
use crate::occupancy::{again_per_s, keepable};
use crate::speed::{Demand, Unsettled, Use, solve};
use cotenant_model::number;
use thiserror::Error;

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
    #[error("{programs} programs, but there are {cores} cores; name at most {cores}")]
    TooMany {
        /// Programs requested.
        programs: usize,
        /// Cores available.
        cores: usize,
    },
    /// Nothing to run.
    #[error("no program is named; name at least one")]
    Empty,
    /// Several caches or memories: the result would depend on where the programs run.
    #[error(
        "a mix needs a machine with one last-level cache and one memory node; this one has {caches} and {nodes}: write a scenario"
    )]
    Several {
        /// Last-level caches.
        caches: usize,
        /// Memory nodes.
        nodes: usize,
    },
    /// Shared caches before the last: the result would depend on where the programs run.
    #[error(
        "a mix needs a machine whose cores share the last cache only; on this one some share level {level}, too: write a scenario"
    )]
    Near {
        /// The first such level.
        level: u8,
    },
    /// The solver found no speeds.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
    /// The fixed point was not reached.
    #[error(
        "no steady state after {rounds} rounds: bytes held still change by {} of the cache (held: {held:?})",
        number::significant(*change, 2)
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
const CLOSE: f64 = 1e-5;

/// Finds the steady state of `programs` on `machine`; a program with phases uses its first.
///
/// # Errors
/// Without programs, with more programs than cores, on a machine with several last-level caches, or if the iteration
/// does not settle.
pub fn steady(machine: &SimMachine, programs: &[&Phase]) -> Result<Steady, MixError> {
    let (caches, nodes, cores) = (machine.caches.len(), machine.nodes(), machine.topology.cores().len());
    if programs.is_empty() {
        return Err(MixError::Empty);
    }
    if (caches, nodes) != (1, 1) {
        return Err(MixError::Several { caches, nodes });
    }
    if let Some(near) = machine.near.first() {
        return Err(MixError::Near { level: near.level });
    }
    if programs.len() > cores {
        return Err(MixError::TooMany { programs: programs.len(), cores });
    }
    let carried: Vec<Phase> =
        programs.iter().map(|p| machine.private.map_or_else(|| (*p).clone(), |core| core.phase(p))).collect();
    let programs: &[&Phase] = &carried.iter().collect::<Vec<_>>();
    let capacity = machine.room(machine.caches[0].bytes, programs.iter().map(|p| p.footprint_bytes).sum());
    let mut kept: Vec<f64> = programs.iter().map(|p| machine.private.map_or(0.0, |core| core.kept(p))).collect();
    let part = keepable(capacity, kept.iter().sum());
    for bytes in &mut kept {
        *bytes *= part;
    }
    let lasting = held::Lasting::new(machine.replacement, capacity, programs, &kept);
    let clock_hz = machine.clock(programs.len() as u32);
    let mut held = vec![capacity / programs.len() as f64; programs.len()];
    let mut again = vec![0.0; programs.len()];
    let mut waits = vec![0.0; machine.stations.len()];
    let mut change = f64::INFINITY;
    let mut damping = 0.5;
    for round in 0..ROUNDS {
        let mut demands: Vec<Demand> =
            (0..programs.len()).map(|i| demand(machine, clock_hz, programs[i], held[i], again[i])).collect();
        let speeds = solve(machine, &mut demands, &mut waits, 0.0)?;
        let rates: Vec<f64> =
            programs.iter().zip(&speeds).map(|(p, speed)| p.llc_apki / 1000.0 * speed * LINE).collect();
        let (wanted, lasts_s) = lasting.held(&rates);
        change = held.iter().zip(&wanted).map(|(h, w)| (h - w).abs()).fold(0.0, f64::max) / capacity;
        let memory_s = machine.memory_s[0][0] + waits[0];
        for (i, again) in again.iter_mut().enumerate() {
            let (speed, line_s) = (speeds[i], memory_s / machine.overlap(programs[i].mlp));
            let now = again_per_s(kept[i], lasts_s, line_s) / speed;
            change = change.max((now - *again).abs() * speed * LINE * lasts_s / capacity);
            *again += damping * (now - *again);
        }
        if change < CLOSE {
            let share = |(i, p): (usize, &&Phase)| Share {
                cpi: machine.clock_hz / speeds[i],
                held: held[i],
                miss_ratio: {
                    let (accesses, own) = (p.llc_apki / 1000.0, p.miss_ratio.at(held[i]));
                    own + (1.0 - own) * again[i] / (accesses + again[i]).max(f64::MIN_POSITIVE)
                },
                gbs: demands[i].uses[0].bytes * speeds[i] / 1e9,
            };
            let shares = programs.iter().enumerate().map(share).collect();
            return Ok(Steady { shares, memory_ns: (machine.memory_s[0][0] + waits[0]) * 1e9 });
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

/// Demand of a program with `held` bytes of the cache. `again` counts lines per instruction refetched because an
/// inclusive cache evicted them from a private one; they add to the curve's misses and accesses, and are not
/// prefetched.
///
/// `CPI = cpi + llc_apki/1000 · [(1 − m) · L_llc/llc_mlp + m · (L_0/mlp + (L_mem − L_0)/min(mlp, lines in flight))]`,
/// where `L_0` is the latency at which `mlp` was measured. It is at least the time of its misses with all of a core's
/// lines in flight (Little's law), which limits prefetching.
fn demand(machine: &SimMachine, clock_hz: f64, p: &Phase, held: f64, again: f64) -> Demand {
    let accesses = p.llc_apki / 1000.0 + again;
    let own = p.llc_apki / 1000.0 * p.miss_ratio.at(held);
    let misses = own + again;
    let idle = machine.memory_s[0][0];
    let missing_s = own * machine.miss_s(idle, p.mlp) + again * idle / machine.overlap(p.mlp);
    let memory = Use {
        station: 0,
        bytes: misses * (1.0 + p.writeback_ratio) * LINE,
        waits: misses / machine.overlap(p.mlp),
        floor: misses / machine.lines_in_flight,
        locality: p.row_locality,
    };
    let mut uses = vec![memory];
    let hits = (accesses - misses) / p.llc_mlp;
    if let Some(station) = machine.cache_station(0) {
        uses.push(Use::new(station, accesses * LINE, hits));
    }
    Demand {
        share: 1.0,
        limit: None,
        base_s: p.cpi / clock_hz + hits * machine.llc_s + missing_s,
        floor_s: misses * idle / machine.lines_in_flight,
        queued_s: 0.0,
        uses,
        cap: None,
        team: None,
    }
}

#[cfg(test)]
mod tests;
