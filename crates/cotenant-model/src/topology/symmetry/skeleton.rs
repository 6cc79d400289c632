//! Symmetries between units: a search with look-ahead by relations, each result checked in full.

use super::block::{Block, MAX_SKELETON, units};
use super::check::Checker;

/// Limit of relation comparisons: twice the need of a mesh of 32 × 32.
const EFFORT: usize = 10_000_000;

/// All permutations of units under the root, as permutations of positions (position to take a slot from), identity
/// included; `None` with too many, or if the search takes too long.
pub(super) fn search(blocks: &[Block], root: usize, checker: &mut Checker) -> Option<Vec<Vec<u32>>> {
    let mut units: Vec<&Block> = units(blocks, root).into_iter().map(|at| &blocks[at]).collect();
    units.sort_by_key(|unit| unit.leaves.iter().min().copied());
    let first: Vec<u32> = units.iter().map(|unit| unit.leaves[0]).collect();
    let colours: Vec<(u32, Vec<u64>, u64)> = units
        .iter()
        .zip(&first)
        .map(|(unit, &a)| {
            let around = first.iter().fold(0u64, |sum, &b| sum.wrapping_add(checker.relation(a, b).mixed()));
            (unit.kind, checker.distances_of(a), around)
        })
        .collect();
    let candidates: Vec<Vec<usize>> =
        colours.iter().map(|c| (0..units.len()).filter(|&j| colours[j] == *c).collect()).collect();

    let mut search = Search {
        units,
        first,
        candidates,
        checker,
        image: Vec::new(),
        taken: Vec::new(),
        found: Vec::new(),
        left: EFFORT,
    };
    search.taken = vec![false; search.units.len()];
    search.extend().then_some(search.found)
}

struct Search<'a, 'c, 't> {
    units: Vec<&'a Block>,
    /// The first position of each unit: units correspond position by position.
    first: Vec<u32>,
    candidates: Vec<Vec<usize>>,
    checker: &'c mut Checker<'t>,
    image: Vec<usize>,
    taken: Vec<bool>,
    found: Vec<Vec<u32>>,
    left: usize,
}

impl Search<'_, '_, '_> {
    /// Tries all images of the next unit; false to stop the search.
    fn extend(&mut self) -> bool {
        let next = self.image.len();
        if next == self.units.len() {
            return self.complete();
        }
        for option in 0..self.candidates[next].len() {
            let to = self.candidates[next][option];
            if self.taken[to] {
                continue;
            }
            let mut compared = 0;
            let fits = (0..next).all(|k| {
                compared += 1;
                self.checker.relation(self.first[next], self.first[k])
                    == self.checker.relation(self.first[to], self.first[self.image[k]])
            });
            self.left = self.left.saturating_sub(compared + 1);
            if self.left == 0 {
                return false;
            }
            if fits {
                self.image.push(to);
                self.taken[to] = true;
                let go_on = self.extend();
                self.taken[to] = false;
                self.image.pop();
                if !go_on {
                    return false;
                }
            }
        }
        true
    }

    fn complete(&mut self) -> bool {
        let pairs = || {
            self.image.iter().enumerate().flat_map(|(unit, &to)| {
                self.units[unit].leaves.iter().copied().zip(self.units[to].leaves.iter().copied())
            })
        };
        let moves: Vec<(u32, u32)> = pairs().filter(|(from, to)| from != to).collect();
        let mut take: Vec<u32> = (0..pairs().count() as u32).collect();
        for &(from, to) in &moves {
            take[to as usize] = from;
        }
        if self.checker.is_symmetry(&moves) {
            self.found.push(take);
        }
        self.found.len() <= MAX_SKELETON
    }
}
