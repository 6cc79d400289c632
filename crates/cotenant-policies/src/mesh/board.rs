//! The places of a machine with their distances to memory, and the cost of a mapping.

use super::demand::Demand;
use cotenant_model::{CpuId, CpuSet, TaskId, Topology};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A new mapping must be nearer than the current one by this factor, because moving costs cache contents (ours).
pub(super) const WORTHWHILE: f64 = 0.95;

/// A hardware context to assign.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub cpu: CpuId,
    /// Index among the contexts of its core: 0 for the first.
    pub rank: usize,
    pub coord: Option<(i32, i32)>,
    /// Its distances to memory, in [`Board::rows`].
    pub row: usize,
    /// Its last-level-cache domain.
    pub domain: usize,
}

/// All places, in filling order.
#[derive(Clone, Debug)]
pub(super) struct Board {
    pub seats: Vec<Seat>,
    /// Distances to each memory node; places with equal distances share one row.
    pub rows: Vec<Vec<f64>>,
    /// Position of each memory node, if all CPUs and nodes have coordinates.
    pub nodes: Option<Vec<(i32, i32)>>,
}

/// A task that needs a place.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    pub task: TaskId,
    pub allowed: CpuSet,
    pub demand: Demand,
    /// Weight of its distance: its accesses times its application's weight.
    pub weight: f64,
    /// Its current place.
    pub home: Option<CpuId>,
    /// Its memory should follow it to the wanted node.
    pub brings: bool,
}

/// The place of each guest, by index.
pub(super) type Seating = BTreeMap<usize, usize>;

/// Cost of a placement. Tasks without a place are worse than any sharing of cores, and that is worse than any distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub unseated: usize,
    /// Sum of the ranks of used places: 0 if every task has its own core.
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

/// Distances from a CPU to every node. An unknown distance counts as the farthest known one.
fn distances(topology: &Topology, cpu: CpuId) -> Option<Vec<f64>> {
    let known: Vec<Option<f64>> = (0..topology.nodes().len()).map(|node| topology.way(cpu, node)).collect();
    let farthest = known.iter().flatten().copied().max_by(f64::total_cmp)?;
    Some(known.into_iter().map(|distance| distance.unwrap_or(farthest)).collect())
}

fn mean(row: &[f64], demand: &Demand) -> f64 {
    row.iter().zip(&demand.shares).map(|(distance, share)| distance * share).sum()
}

impl Board {
    /// The places among these CPUs. Empty without known distances.
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

    /// Whether some of these CPUs are nearer to some memory than others, so that there is a choice. The currently free
    /// ones may all be equally far, and tasks still belong there.
    pub fn is_choice_among(topology: &Topology, cpus: &CpuSet) -> bool {
        let mut rows = cpus.iter().filter_map(|cpu| distances(topology, cpu));
        rows.next().is_some_and(|first| rows.any(|row| row != first))
    }

    /// The mean distance of a task's accesses from each row: the paper's cost function, per access.
    pub fn mean_distances(&self, demand: &Demand) -> Vec<f64> {
        self.rows.iter().map(|row| mean(row, demand)).collect()
    }

    /// The mean of squared distances: least at the weighted mean of the memory's positions.
    pub fn mean_squares(&self, demand: &Demand) -> Vec<f64> {
        let squares: Vec<Vec<f64>> = self.rows.iter().map(|row| row.iter().map(|d| d * d).collect()).collect();
        squares.iter().map(|row| mean(row, demand)).collect()
    }

    /// The mean distance of a task's accesses from one place.
    pub fn mean_distance(&self, seat: usize, demand: &Demand) -> f64 {
        mean(&self.rows[self.seats[seat].row], demand)
    }

    /// The place on each CPU.
    pub fn by_cpu(&self) -> BTreeMap<CpuId, usize> {
        self.seats.iter().enumerate().map(|(i, seat)| (seat.cpu, i)).collect()
    }

    /// Whether a guest may use this place.
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
