//! The places of a machine with their distances to its memory, and what a mapping costs.

use super::demand::Demand;
use cotenant_model::{CpuId, CpuSet, TaskId, Topology};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A new mapping must be nearer by this factor than the one that stands: moving costs caches (ours).
pub(super) const WORTHWHILE: f64 = 0.95;

/// A hardware context that may be given away.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub cpu: CpuId,
    /// How many contexts of its core come before it: 0 for the first.
    pub rank: usize,
    pub coord: Option<(i32, i32)>,
    /// Its distances to memory, in [`Board::rows`].
    pub row: usize,
    /// Its last-level-cache domain.
    pub domain: usize,
}

/// All places, in the order in which a machine is filled.
#[derive(Clone, Debug)]
pub(super) struct Board {
    pub seats: Vec<Seat>,
    /// Distances to each memory node; seats at the same distances from all share one.
    pub rows: Vec<Vec<f64>>,
    /// Where each memory node is, on machines where all CPUs and nodes have coordinates.
    pub nodes: Option<Vec<(i32, i32)>>,
}

/// A task that wants a seat.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    pub task: TaskId,
    pub allowed: CpuSet,
    pub demand: Demand,
    /// How much its distance counts: its accesses times its application's weight.
    pub weight: f64,
    /// Where it is.
    pub home: Option<CpuId>,
    /// Its memory is to come along to the node that it wants.
    pub brings: bool,
}

/// Which guest has which seat, by index.
pub(super) type Seating = BTreeMap<usize, usize>;

/// What a seating costs. Tasks without a place are worse than any doubling of cores, and that is worse than any
/// distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub unseated: usize,
    /// Ranks of the seats taken, added up: 0 where every task has a core of its own.
    pub doubled: usize,
    /// Accesses per second × distance, over all tasks (the paper's cost function, summed).
    pub distance: f64,
}

impl Cost {
    pub fn total_cmp(&self, other: &Self) -> Ordering {
        (self.unseated, self.doubled)
            .cmp(&(other.unseated, other.doubled))
            .then(self.distance.total_cmp(&other.distance))
    }
}

/// Distances from a CPU to every node. A node of unknown distance is as far as the farthest known one.
fn distances(topology: &Topology, cpu: CpuId) -> Option<Vec<f64>> {
    let known: Vec<Option<f64>> = (0..topology.nodes().len()).map(|node| topology.way(cpu, node)).collect();
    let farthest = known.iter().flatten().copied().max_by(f64::total_cmp)?;
    Some(known.into_iter().map(|distance| distance.unwrap_or(farthest)).collect())
}

fn mean(row: &[f64], demand: &Demand) -> f64 {
    row.iter().zip(&demand.shares).map(|(distance, share)| distance * share).sum()
}

impl Board {
    /// The places among these CPUs. Empty where nothing is known of distances.
    pub fn new(topology: &Topology, cpus: &CpuSet) -> Self {
        let (mut seats, mut rows) = (Vec::new(), Vec::new());
        let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
        for cpu in topology.package_contexts().iter().flatten().copied().filter(|cpu| cpus.contains(*cpu)) {
            let Some(distances) = distances(topology, cpu) else { continue };
            let row = *known.entry(distances.iter().map(|d| d.to_bits()).collect()).or_insert_with(|| {
                rows.push(distances);
                rows.len() - 1
            });
            let core = topology.core_of(cpu).map(|core| &topology.cores()[core]);
            let before = |c: &CpuId| *c < cpu && topology.usable().contains(*c);
            let rank = core.map_or(0, |core| core.iter().filter(before).count());
            let coord = topology.cpu(cpu).and_then(|c| c.coord);
            let domain = topology.llc_of(cpu).unwrap_or(0);
            seats.push(Seat { cpu, rank, coord, row, domain });
        }
        let nodes = topology.nodes().iter().map(|node| node.coord).collect::<Option<Vec<_>>>();
        let on_mesh = seats.iter().all(|seat| seat.coord.is_some());
        Self { seats, rows, nodes: nodes.filter(|nodes| on_mesh && !nodes.is_empty()) }
    }

    /// Whether any of these CPUs is nearer to some memory than another one: without that there is nothing to choose.
    /// Of those that happen to be free all may be equally far, and still tasks belong there.
    pub fn is_choice_among(topology: &Topology, cpus: &CpuSet) -> bool {
        let mut rows = cpus.iter().filter_map(|cpu| distances(topology, cpu));
        rows.next().is_some_and(|first| rows.any(|row| row != first))
    }

    /// The mean distance of a task's accesses from each row: the paper's cost function, per access.
    pub fn mean_distances(&self, demand: &Demand) -> Vec<f64> {
        self.rows.iter().map(|row| mean(row, demand)).collect()
    }

    /// The mean of squared distances: least where the weighted mean of the memory's places is.
    pub fn mean_squares(&self, demand: &Demand) -> Vec<f64> {
        let squares: Vec<Vec<f64>> = self.rows.iter().map(|row| row.iter().map(|d| d * d).collect()).collect();
        squares.iter().map(|row| mean(row, demand)).collect()
    }

    /// The mean distance of a task's accesses from one seat.
    pub fn mean_distance(&self, seat: usize, demand: &Demand) -> f64 {
        mean(&self.rows[self.seats[seat].row], demand)
    }

    /// The seat on each CPU.
    pub fn by_cpu(&self) -> BTreeMap<CpuId, usize> {
        self.seats.iter().enumerate().map(|(i, seat)| (seat.cpu, i)).collect()
    }

    /// Whether a guest may sit there.
    pub fn admits(&self, seat: usize, guest: &Guest) -> bool {
        guest.allowed.contains(self.seats[seat].cpu)
    }

    pub fn cost(&self, guests: &[Guest], seating: &Seating) -> Cost {
        let distance =
            seating.iter().map(|(&g, &seat)| guests[g].weight * self.mean_distance(seat, &guests[g].demand)).sum();
        let doubled = seating.values().map(|&seat| self.seats[seat].rank).sum();
        Cost { unseated: guests.len() - seating.len(), doubled, distance }
    }
}
