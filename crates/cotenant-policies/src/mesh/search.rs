//! Three ways to place tasks near their memory.

use super::board::{Board, Guest, Seat, Seating};
use cotenant_model::CpuId;
use pathfinding::matrix::Matrix;
use pathfinding::prelude::kuhn_munkres_min;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

/// Limit of cells × rows for an exact assignment: 7 ms for 128 tasks on 128 CPUs, 6.5 ms for 64 on 960 (release build).
const EFFORT: usize = 1 << 22;

/// Free places.
struct Free<'a> {
    board: &'a Board,
    /// By rank and row of distances, in the order of the board.
    seats: Vec<Vec<Vec<usize>>>,
    taken: Vec<bool>,
    by_cpu: BTreeMap<CpuId, usize>,
    /// The guests currently on each place, in order of choice.
    owners: Vec<Vec<usize>>,
    /// The guest that chooses now.
    turn: usize,
}

impl<'a> Free<'a> {
    fn new(board: &'a Board, guests: &[Guest]) -> Self {
        let ranks = board.seats.iter().map(|seat| seat.rank + 1).max().unwrap_or(0);
        let mut seats = vec![vec![Vec::new(); board.rows.len()]; ranks];
        for (i, seat) in board.seats.iter().enumerate() {
            seats[seat.rank][seat.row].push(i);
        }
        let by_cpu = board.by_cpu();
        let mut owners = vec![Vec::new(); board.seats.len()];
        for (i, guest) in guests.iter().enumerate() {
            if let Some(&home) = guest.home.and_then(|cpu| by_cpu.get(&cpu)) {
                owners[home].push(i);
            }
        }
        Self { board, seats, taken: vec![false; board.seats.len()], by_cpu, owners, turn: 0 }
    }

    /// Order among equal places: the guest's current one, then one without a later guest, then the one of the last such
    /// guest, then one in the first domain. Without this, CPU numbers would decide which guest loses its place.
    fn claim(&self, guest: &Guest, seat: usize) -> (bool, Option<Reverse<usize>>, usize) {
        let Seat { cpu, domain, .. } = self.board.seats[seat];
        let later = self.owners[seat].iter().copied().find(|owner| *owner > self.turn);
        (guest.home != Some(cpu), later.map(Reverse), domain)
    }

    fn take(&mut self, seat: usize) {
        let Seat { rank, row, .. } = self.board.seats[seat];
        self.taken[seat] = true;
        self.seats[rank][row].retain(|free| *free != seat);
    }

    fn admits(&self, seat: usize, guest: &Guest) -> bool {
        !self.taken[seat] && self.board.admits(seat, guest)
    }

    /// The guest's current place, if it may stay; otherwise the allowed free place with the least [`Self::claim`], the
    /// first of equals.
    fn of_row(&self, guest: &Guest, rank: usize, row: usize) -> Option<usize> {
        let home = guest.home.and_then(|cpu| self.by_cpu.get(&cpu)).copied().filter(|&home| {
            let seat = &self.board.seats[home];
            (seat.rank, seat.row) == (rank, row) && self.admits(home, guest)
        });
        let admitted = || self.seats[rank][row].iter().copied().filter(|&seat| self.board.admits(seat, guest));
        home.or_else(|| admitted().min_by_key(|&seat| self.claim(guest, seat)))
    }

    /// The lowest rank with a place for the guest: no guests share a core while another core is free.
    fn rank(&self, guest: &Guest) -> Option<usize> {
        let any = |seats: &Vec<usize>| seats.iter().any(|&seat| self.board.admits(seat, guest));
        self.seats.iter().position(|rows| rows.iter().any(any))
    }

    /// The nearest place of that rank.
    fn nearest(&self, guest: &Guest, rank: usize) -> Option<usize> {
        self.least(guest, rank, self.board.mean_distances(&guest.demand))
    }

    /// The place of that rank with the least cost of distance; on ties the task's current one, otherwise the first.
    fn least(&self, guest: &Guest, rank: usize, by_row: Vec<f64>) -> Option<usize> {
        let mut best: Option<(f64, _, usize)> = None;
        for (row, distance) in by_row.into_iter().enumerate() {
            if best.is_some_and(|(nearest, ..)| nearest < distance) {
                continue;
            }
            let Some(seat) = self.of_row(guest, rank, row) else { continue };
            let claim = self.claim(guest, seat);
            if best.is_none_or(|(d, c, s)| distance < d || (claim, seat) < (c, s)) {
                best = Some((distance, claim, seat));
            }
        }
        best.map(|(_, _, seat)| seat)
    }
}

/// Places the guests one after the other.
fn in_turn<'a>(
    board: &'a Board,
    guests: &[Guest],
    choose: impl Fn(&Free<'a>, &Guest, usize) -> Option<usize>,
) -> Seating {
    let mut free = Free::new(board, guests);
    let mut seating = Seating::new();
    for (i, guest) in guests.iter().enumerate() {
        if seating.len() == board.seats.len() {
            break;
        }
        free.turn = i;
        let Some(seat) = free.rank(guest).and_then(|rank| choose(&free, guest, rank)) else { continue };
        free.take(seat);
        seating.insert(i, seat);
    }
    seating
}

/// *Brute force* (§4.1): each guest to the free place of lowest cost.
fn greedy(board: &Board, guests: &[Guest]) -> Seating {
    in_turn(board, guests, Free::nearest)
}

/// *Weighted geometric* (§4.1): each guest to the core at `Σ w_i·(x_i, y_i)`, rounded. If that is taken, the search
/// proceeds downhill: among the neighbours of visited cores, the one of lowest cost is visited next.
///
/// Without coordinates (ours): the weighted mean of points minimizes the weighted sum of squared distances, which
/// exists for any distances; if that core is taken, the next one by that measure.
pub(super) fn weighted(board: &Board, guests: &[Guest]) -> Seating {
    let Some(nodes) = &board.nodes else {
        return in_turn(board, guests, |free, guest, rank| free.least(guest, rank, board.mean_squares(&guest.demand)));
    };
    let mut at: BTreeMap<(i32, i32), Vec<usize>> = BTreeMap::new();
    for (i, seat) in board.seats.iter().enumerate() {
        at.entry(seat.coord.unwrap_or_default()).or_default().push(i);
    }
    let probe = |free: &Free<'_>, guest: &Guest, rank: usize| {
        let mean = |axis: fn(&(i32, i32)) -> i32| {
            let sum: f64 =
                nodes.iter().zip(&guest.demand.shares).map(|(node, share)| f64::from(axis(node)) * share).sum();
            sum.round() as i32
        };
        let target = (mean(|n| n.0), mean(|n| n.1));
        let hops = |c: &(i32, i32)| c.0.abs_diff(target.0) + c.1.abs_diff(target.1);
        let mut next = at.keys().copied().min_by_key(|coord| (hops(coord), *coord));
        let (mut seen, mut edge) = (BTreeSet::new(), Vec::<(i32, i32)>::new());
        while let Some((x, y)) = next {
            seen.insert((x, y));
            let here = &at[&(x, y)];
            let fits = |i: &&usize| board.seats[**i].rank == rank && free.admits(**i, guest);
            let found = here.iter().filter(fits).min_by_key(|i| free.claim(guest, **i));
            if found.is_some() {
                return found.copied();
            }
            let beside = [(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)];
            edge.extend(beside.into_iter().filter(|c| at.contains_key(c) && seen.insert(*c)));
            let cost = |c: &(i32, i32)| board.mean_distance(at[c][0], &guest.demand);
            let best = (0..edge.len())
                .min_by(|&a, &b| cost(&edge[a]).total_cmp(&cost(&edge[b])).then_with(|| edge[a].cmp(&edge[b])));
            next = best.map(|i| edge.swap_remove(i));
        }
        free.nearest(guest, rank) // on a group of cores without the target
    };
    in_turn(board, guests, probe)
}

/// The one of lower cost; the first of equals.
fn cheapest(board: &Board, guests: &[Guest], seatings: impl IntoIterator<Item = Seating>) -> Option<Seating> {
    let all = seatings.into_iter().map(|seating| (board.cost(guests, &seating), seating));
    let best = all.reduce(|a, b| if b.0.total_cmp(&a.0) == Ordering::Less { b } else { a });
    best.map(|(_, seating)| seating)
}

/// *Brute force*, but never worse than *weighted geometric*: first tasks can take places that cost later ones more than
/// the first gain.
pub(super) fn brute_force(board: &Board, guests: &[Guest]) -> Seating {
    cheapest(board, guests, [greedy(board, guests), weighted(board, guests)]).unwrap_or_default()
}

/// The placement of lowest total cost (ours: Kuhn and Munkres' algorithm, from a library); that of *brute force* and
/// `false` with too many tasks and places.
pub(super) fn assignment(board: &Board, guests: &[Guest]) -> (Seating, bool) {
    let quick = brute_force(board, guests);
    let (rows, seats) = (guests.len(), board.seats.len());
    if rows == 0 || seats == 0 {
        return (quick, true);
    }
    if rows.saturating_mul(rows).saturating_mul(rows + seats) > EFFORT {
        return (quick, false);
    }
    let of = |guest: &Guest| board.mean_distances(&guest.demand).into_iter().map(|d| d * guest.weight).collect();
    let distances: Vec<Vec<f64>> = guests.iter().map(of).collect();
    let highest = distances.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    // Integer costs for the library: distance, then a rank above all distances together, then no place above all ranks
    // together; a forbidden place costs more than none. Ties prefer later domains for earlier guests, because the
    // library's choice depends on core numbers.
    let finest = 1e6;
    let rank = (rows as i64 + 1) * 1_000_002;
    let none = rank * (rows as i64 + 1) * (board.seats.iter().map(|s| s.rank as i64).max().unwrap_or(0) + 1);
    let domains = board.seats.iter().map(|seat| seat.domain + 1).max().unwrap_or(1);
    let ties = (rows * rows * domains) as i64;
    let cost = |(g, column): (usize, usize)| match board.seats.get(column) {
        None => none * ties,
        Some(_) if !board.admits(column, &guests[g]) => 2 * none * ties,
        Some(seat) => {
            let away = i64::from(guests[g].home != Some(seat.cpu));
            ((distances[g][seat.row] / highest * finest).round() as i64 + away + rank * seat.rank as i64) * ties
                + (g * seat.domain) as i64
        }
    };
    let (_, columns) = kuhn_munkres_min(&Matrix::from_fn(rows, seats + rows, cost));
    let exact = columns.into_iter().enumerate().filter(|(_, column)| *column < seats).collect();
    (cheapest(board, guests, [exact, quick]).unwrap_or_default(), true)
}
