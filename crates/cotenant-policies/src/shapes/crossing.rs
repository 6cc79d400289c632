//! What is known of taking threads to other memory nodes where the kernel moves their memory after them. It outlasts a
//! restart of the same programs.

use super::shape::Shape;
use super::shape_board::{ShapeBoard, digest};
use super::steadiness::Steadiness;
use serde::{Deserialize, Serialize};

/// Seconds that a trial is taken to cost before one was made, and factor by which that grows with each one in vain.
const COST_S: f64 = 1.5;
const DEARER: f64 = 1.25;

/// Of so many it is remembered that they were tried.
const TRIED: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Crossing {
    /// Threads by node, up to symmetry, that were tried.
    tried: Vec<u64>,
    /// What a trial is taken to cost, seconds, where any was made.
    cost_s: Option<f64>,
    /// Whether the load stays as it is while the incumbent stands.
    pub steadiness: Steadiness,
}

impl Crossing {
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// What a trial is taken to cost, seconds.
    pub fn cost_s(&self) -> f64 {
        self.cost_s.unwrap_or(COST_S)
    }

    /// A trial is over. `dear`: it was broken off, since it cost too much.
    pub fn count(&mut self, shape: &Shape, board: &ShapeBoard, cost_s: f64, [kept, dear]: [bool; 2]) {
        self.cost_s = (!kept).then(|| self.cost_s().max(cost_s) * DEARER);
        if !dear {
            self.tried.push(key(shape, board));
            self.tried.drain(..self.tried.len().saturating_sub(TRIED));
        }
    }

    /// Whether this shape has other threads on some node than the one that stands, and no such one was tried.
    pub fn is_new_to(&self, shape: &Shape, stands: &Shape, board: &ShapeBoard) -> bool {
        let own = key(shape, board);
        own != key(stands, board) && !self.tried.contains(&own)
    }

    /// Nothing counts as tried.
    pub fn begin_search(&mut self) {
        self.tried.clear();
    }
}

/// The same for all shapes with as many threads of each group on nodes of the same build.
fn key(shape: &Shape, board: &ShapeBoard) -> u64 {
    let nodes = shape.nodes(board);
    let class = |node: usize| board.domains.iter().filter(|d| d.node == node).map(|d| u64::from(d.class)).sum::<u64>();
    let column = |node: usize| -> Vec<u64> {
        let counts = nodes.iter().map(|group| u64::from(group[node]));
        [board.labels[node], class(node)].into_iter().chain(counts).collect()
    };
    let mut columns: Vec<Vec<u64>> = (0..board.labels.len()).map(column).collect();
    columns.sort_unstable();
    digest(columns.into_iter().flatten())
}
