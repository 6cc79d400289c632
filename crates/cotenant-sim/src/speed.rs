//! Co-running speeds: the fixed point between speeds and the queues at shared resources.

use crate::machine::SimMachine;
use crate::station::Station;
use cotenant_model::number;

/// Demand of one running thread, for given miss ratios and places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Fraction of time that the thread has its CPU, 0–1.
    pub share: f64,
    /// Upper limit of that fraction, if there is one.
    pub limit: Option<f64>,
    /// Seconds per instruction without any queueing.
    pub base_s: f64,
    /// Seconds per instruction below which overlap does not help (Little's law): lines per instruction that occupy a
    /// line buffer, over the lines that a core can have in flight, times idle latency.
    pub floor_s: f64,
    /// Seconds per instruction spent waiting for a share of exhausted bandwidth, as [`solve`] found.
    pub queued_s: f64,
    /// Per station: bytes per instruction, unhidden waits per instruction, and waits per instruction that hold a line
    /// buffer.
    pub uses: Vec<Use>,
    /// Available instructions per second, if limited: requests arrive at a rate.
    pub cap: Option<f64>,
    /// Threads of one team advance at the pace of the slowest.
    pub team: Option<usize>,
}

impl Demand {
    /// Seconds per instruction while it is on its CPU.
    pub fn cost_s(&self, waits: &[f64]) -> f64 {
        let (mut latency, mut floor) = (0.0, 0.0);
        for u in &self.uses {
            let wait = waits[u.station];
            latency += u.waits * wait;
            floor += u.floor * wait;
        }
        (self.base_s + latency).max(self.floor_s + floor) + self.queued_s
    }
}

/// A thread's use of a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// Index into [`SimMachine::stations`].
    pub station: usize,
    /// Bytes per instruction.
    pub bytes: f64,
    /// Visits per instruction whose wait is not hidden.
    pub waits: f64,
    /// Visits per instruction, each over the lines in flight.
    pub floor: f64,
    /// Row-buffer locality of these accesses, 0–1.
    pub locality: f64,
}

impl Use {
    /// A use in any order that occupies no line buffer.
    pub fn new(station: usize, bytes: f64, waits: f64) -> Self {
        Self { station, bytes, waits, floor: 0.0, locality: 1.0 }
    }
}

/// The iteration did not settle: its state instead of a result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "speeds did not settle after {rounds} rounds at {at_s:.6} s: they still change by {} (waits in ns: {waits}); report the scenario, or check its figures",
    number::significant(*change, 2)
)]
pub struct Unsettled {
    /// Rounds tried.
    pub rounds: usize,
    /// Simulated time.
    pub at_s: f64,
    /// Largest relative change of a speed in the last round.
    pub change: f64,
    /// Waits at each station.
    pub waits: String,
}

/// Relative change of speeds per round below which they count as settled.
const CLOSE: f64 = 1e-5;
const ROUNDS: usize = 2_000;
/// Rounds over the memories until the division at one agrees with that at the others.
const DIVISIONS: usize = 32;

/// Instructions per second of each thread. `waits` (seconds, one per station) holds the first guess and receives the
/// result.
///
/// The wait at a station with load `u` is `queue · u / (1 − u)`, the fixed point of `wait ← u · (wait + queue)`. Load
/// falls as waits grow, so that the step does not overshoot even beyond saturation. At a memory the wait is at most
/// [`Station::longest_s`]. If demand exceeds its bandwidth, that is divided max-min: threads below the equal share get
/// all they ask for, and the others pay in [`Demand::queued_s`].
///
/// # Errors
/// [`Unsettled`] if it does not settle.
pub fn solve(
    machine: &SimMachine,
    demands: &mut [Demand],
    waits: &mut [f64],
    at_s: f64,
) -> Result<Vec<f64>, Unsettled> {
    for d in demands.iter_mut() {
        d.queued_s = 0.0;
    }
    let teams = demands.iter().filter_map(|d| d.team).max().map_or(0, |t| t + 1);
    let mut division = Division {
        parts: vec![f64::INFINITY; machine.nodes()],
        limits: vec![f64::INFINITY; demands.len()],
        loads: vec![(0.0, 0.0); machine.stations.len()],
        slowest: vec![0.0; teams],
    };
    let (mut speeds, mut next) = (vec![0.0; demands.len()], vec![0.0; demands.len()]);
    alone(demands, waits, &mut speeds);
    divide(machine, demands, &mut speeds, &mut division);
    let mut change = f64::INFINITY;
    for _ in 0..ROUNDS {
        change = 0.0;
        for ((wait, (load, _)), station) in waits.iter_mut().zip(&division.loads).zip(&machine.stations) {
            let (longer, longest) = (load * (*wait + station.queue_s), station.longest_s());
            let next = if longer > longest { longest } else { longer }; // a non-number stays one
            // Threads at their share of bandwidth do not depend on further growth of waits.
            change = change.max((next - *wait).abs() / (station.idle_s + *wait));
            *wait = next;
        }
        alone(demands, waits, &mut next);
        divide(machine, demands, &mut next, &mut division);
        // `max` would drop a NaN, which means not settled.
        let differs = |a: f64, b: f64| if (a / b).is_finite() { (a / b - 1.0).abs() } else { f64::INFINITY };
        change = speeds.iter().zip(&next).map(|(a, b)| differs(*a, *b)).fold(change, f64::max);
        std::mem::swap(&mut speeds, &mut next);
        if change < CLOSE {
            cut(demands, &division.loads, &mut speeds);
            for ((d, speed), limit) in demands.iter_mut().zip(&speeds).zip(&division.limits) {
                if *speed >= limit * (1.0 - CLOSE) {
                    d.queued_s = (d.share / limit - d.cost_s(waits)).max(0.0);
                }
            }
            return Ok(speeds);
        }
    }
    let waits = waits.iter().map(|w| format!("{:.1}", w * 1e9)).collect::<Vec<_>>().join(" ");
    Err(Unsettled { rounds: ROUNDS, at_s, change, waits })
}

/// Speeds with these waits, as if no thread waited for another.
fn alone(demands: &[Demand], waits: &[f64], speeds: &mut [f64]) {
    for (speed, d) in speeds.iter_mut().zip(demands) {
        *speed = (d.share / d.cost_s(waits)).min(d.cap.unwrap_or(f64::INFINITY));
    }
}

/// Slows teams to their slowest thread. `slowest` has one entry per team.
fn together(demands: &[Demand], slowest: &mut [f64], speeds: &mut [f64]) {
    if slowest.is_empty() {
        return;
    }
    slowest.fill(f64::INFINITY);
    for (d, s) in demands.iter().zip(&*speeds) {
        if let Some(t) = d.team {
            slowest[t] = slowest[t].min(*s);
        }
    }
    for (d, s) in demands.iter().zip(speeds) {
        if let Some(t) = d.team {
            *s = slowest[t];
        }
    }
}

/// Lowers speeds to the bandwidth of memories, and records limits and loads. At an overloaded memory each thread gets
/// what it asks for, up to an equal share: the share that just fills the memory, given that other memories may slow
/// some threads. `parts` holds the shares of the last round, one per memory.
fn divide(machine: &SimMachine, demands: &[Demand], speeds: &mut [f64], found: &mut Division) {
    let Division { parts, limits, loads, slowest } = found;
    limits.fill(f64::INFINITY);
    let alone = speeds.to_vec();
    together(demands, slowest, speeds);
    load(machine, demands, speeds, loads);
    let is_full = loads[..machine.nodes()].iter().any(|(load, _)| *load > 1.0);
    if !is_full {
        parts.fill(f64::INFINITY);
        return;
    }
    let mut asked: Vec<Asked> = Vec::with_capacity(demands.len());
    for _ in 0..DIVISIONS {
        let mut settled = true;
        for memory in 0..machine.nodes() {
            let before = std::mem::replace(&mut parts[memory], f64::INFINITY);
            limit(demands, &alone, parts, limits, speeds);
            together(demands, slowest, speeds);
            asked.clear();
            asked.resize(slowest.len(), Asked::default());
            for (d, speed) in demands.iter().zip(&*speeds) {
                let of_memory = d.uses.iter().filter(|u| u.station == memory);
                let bytes: f64 = of_memory.clone().map(|u| u.bytes * speed).sum();
                if bytes > 0.0 {
                    let ordered = of_memory.map(|u| u.bytes * speed * u.locality).sum();
                    let one = Asked { largest: bytes, bytes, ordered };
                    match d.team {
                        Some(team) => asked[team].add(&one),
                        None => asked.push(one),
                    }
                }
            }
            parts[memory] = equal_part(&machine.stations[memory], &mut asked);
            settled &= parts[memory] == before || (parts[memory] / before - 1.0).abs() < CLOSE / 10.0;
        }
        if settled {
            break;
        }
    }
    limit(demands, &alone, parts, limits, speeds);
    together(demands, slowest, speeds);
    load(machine, demands, speeds, loads);
}

/// Results and work space of [`divide`].
struct Division {
    /// Per memory: bytes per second that no thread may exceed.
    parts: Vec<f64>,
    /// Per thread: the speed that these limits allow.
    limits: Vec<f64>,
    /// Per station, see [`load`].
    loads: Vec<(f64, f64)>,
    /// One entry per team.
    slowest: Vec<f64>,
}

/// Speeds at which no thread exceeds the equal share of any memory.
fn limit(demands: &[Demand], alone: &[f64], parts: &[f64], limits: &mut [f64], speeds: &mut [f64]) {
    for (i, d) in demands.iter().enumerate() {
        let of_use = |u: &Use| parts.get(u.station).map_or(f64::INFINITY, |part| part / u.bytes);
        limits[i] = d.uses.iter().map(of_use).fold(f64::INFINITY, f64::min);
        speeds[i] = alone[i].min(limits[i]);
    }
}

/// Demand of a thread, or of a whole team, at a memory in bytes per second. A team is as slow as its largest consumer:
/// if that one gets half, the others use half too.
#[derive(Clone, Copy, Default)]
struct Asked {
    largest: f64,
    bytes: f64,
    /// Bytes that are in order, of `bytes`.
    ordered: f64,
}

impl Asked {
    fn add(&mut self, other: &Self) {
        self.largest = self.largest.max(other.largest);
        self.bytes += other.bytes;
        self.ordered += other.ordered;
    }

    /// Demand as a number of threads like the largest.
    fn weight(&self) -> f64 {
        if self.largest > 0.0 { self.bytes / self.largest } else { 0.0 }
    }

    /// Remaining demand if no thread exceeds a share.
    fn within(&self, part: f64) -> f64 {
        if self.largest > part { part / self.largest } else { 1.0 }
    }
}

/// The most that each thread may take so that the memory is just full; infinite if it is not full.
fn equal_part(station: &Station, asked: &mut [Asked]) -> f64 {
    asked.sort_by(|a, b| a.largest.total_cmp(&b.largest));
    let mut part = f64::INFINITY;
    // The deliverable bandwidth depends on how much of the remaining demand is in order.
    for _ in 0..DIVISIONS {
        let all: f64 = asked.iter().map(|a| a.bytes * a.within(part)).sum();
        let ordered: f64 = asked.iter().map(|a| a.ordered * a.within(part)).sum();
        let delivered = station.low + (station.high - station.low) * if all > 0.0 { ordered / all } else { 1.0 };
        let before = std::mem::replace(&mut part, f64::INFINITY);
        let (mut left, mut weight) = (delivered, asked.iter().map(Asked::weight).sum::<f64>());
        for one in asked.iter() {
            if one.largest * weight > left {
                part = left / weight;
                break;
            }
            left -= one.bytes;
            weight -= one.weight();
        }
        if part == before || (part / before - 1.0).abs() < CLOSE / 100.0 {
            break;
        }
    }
    part
}

/// Load of each station: bytes demanded over bytes deliverable for this mixture of localities. The second number of
/// each is scratch space.
fn load(machine: &SimMachine, demands: &[Demand], speeds: &[f64], loads: &mut [(f64, f64)]) {
    loads.fill((0.0, 0.0));
    for (d, speed) in demands.iter().zip(speeds) {
        for u in &d.uses {
            let b = u.bytes * speed;
            loads[u.station].0 += b;
            loads[u.station].1 += b * u.locality;
        }
    }
    for (station, load) in machine.stations.iter().zip(loads) {
        let (bytes, ordered) = *load;
        // NaN stays NaN.
        if bytes <= 0.0 {
            load.0 = 0.0;
        } else {
            load.0 = bytes / (station.low + (station.high - station.low) * ordered / bytes);
        }
    }
}

/// Cuts in proportion what the tolerance of the iteration left above a bandwidth.
fn cut(demands: &[Demand], loads: &[(f64, f64)], speeds: &mut [f64]) {
    for (d, speed) in demands.iter().zip(speeds) {
        let worst = d.uses.iter().filter(|u| u.bytes > 0.0).map(|u| loads[u.station].0).fold(1.0, f64::max);
        *speed /= worst;
    }
}
