//! The tree of a machine as symmetries see it.

use super::super::Kind;

/// Limit of symmetries listed between units: those of an 8-dimensional hypercube would fit a hundred times over in
/// memory, but each costs a comparison in every canonical form.
pub const MAX_SKELETON: usize = 1 << 14;

/// A vertex of the tree, or a group of siblings, for symmetries. Positions are indexes into [`Symmetry::cpus`].
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Blocks of one type are isomorphic as trees.
    pub kind: u32,
    /// Its CPUs in an order that corresponds between blocks of one type.
    pub leaves: Vec<u32>,
    /// Children that may be permuted at will among each other.
    pub classes: Vec<Vec<usize>>,
    /// Whether all isomorphic siblings below may be swapped, so that all its tree symmetries are symmetries.
    pub free: bool,
    /// Its package or cache class, as counted by [`Symmetry::is_balanced`].
    pub level: Option<(Kind, u8)>,
}

/// The outermost blocks below, or at, this one that are free.
pub(super) fn units(blocks: &[Block], root: usize) -> Vec<usize> {
    let mut units = Vec::new();
    let mut open = vec![root];
    while let Some(at) = open.pop() {
        if blocks[at].free {
            units.push(at);
        } else {
            open.extend(blocks[at].classes.iter().flatten());
        }
    }
    units
}
