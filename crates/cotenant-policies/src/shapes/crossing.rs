//! Results of moving threads to other memory nodes while the kernel moves their memory after them; kept over a restart
//! of the same programs.

use super::shape::Shape;
use super::shape_board::{ShapeBoard, digest};
use super::steadiness::Steadiness;
use serde::{Deserialize, Serialize};

/// Assumed cost of a trial in seconds before the first one, and its growth factor after each failed one.
const COST_S: f64 = 1.5;
const DEARER: f64 = 1.25;

/// Limit of remembered attempts.
const TRIED: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Crossing {
    /// Tried numbers of threads by node, up to symmetry.
    tried: Vec<u64>,
    /// Expected cost of a trial, seconds, if any was made.
    cost_s: Option<f64>,
    /// Whether the load is steady while the incumbent is in place.
    pub steadiness: Steadiness,
}

impl Crossing {
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// Expected cost of a trial, seconds.
    pub fn cost_s(&self) -> f64 {
        self.cost_s.unwrap_or(COST_S)
    }

    /// Records a trial. `dear`: it was stopped because of its cost.
    pub fn count(&mut self, shape: &Shape, board: &ShapeBoard, cost_s: f64, [kept, dear]: [bool; 2]) {
        self.cost_s = (!kept).then(|| self.cost_s().max(cost_s) * DEARER);
        if !dear {
            self.tried.push(key(shape, board));
            self.tried.drain(..self.tried.len().saturating_sub(TRIED));
        }
    }

    /// Whether this shape has other threads per node than the current one, in an untried way.
    pub fn is_new_to(&self, shape: &Shape, stands: &Shape, board: &ShapeBoard) -> bool {
        let own = key(shape, board);
        own != key(stands, board) && !self.tried.contains(&own)
    }

    /// Clears the attempts.
    pub fn begin_search(&mut self) {
        self.tried.clear();
    }
}

/// The same for all shapes with equal threads of each group on equal nodes.
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
