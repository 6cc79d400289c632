//! Whether a permutation of CPUs is a symmetry.

use super::label::{Label, Labels, node_label};
use crate::topology::Kind;
use crate::{CpuId, Topology};

/// Limit of steps in the search for a permutation of memory nodes that matches one of CPUs.
const NODE_STEPS: usize = 10_000;

const NONE: u32 = u32::MAX;

/// The machine by positions, for checks.
#[derive(Debug)]
pub(super) struct Checker<'t> {
    topology: &'t Topology,
    /// Per class of resources (kind and level), per position: its resource.
    member: Vec<Vec<u32>>,
    pub(super) coords: Vec<Option<(i32, i32)>>,
    /// Per position: the memory nodes that hold it.
    nodes_of: Vec<Vec<u32>>,
    node_labels: Vec<Label>,
    /// Per position: its row of the distance matrix, if that has one row per core.
    core_row: Option<Vec<usize>>,
    /// The permutation under test, dense; the identity between tests.
    to: Vec<u32>,
}

/// The relation of two positions, preserved by every symmetry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Relation {
    /// The classes of resources (of the first 64) that share one resource between them.
    shared: u64,
    hops: Option<u32>,
    there: Option<f64>,
    back: Option<f64>,
}

impl Relation {
    /// Bits of the relation only.
    pub(super) fn mixed(self) -> u64 {
        let bits = |d: Option<f64>| d.map_or(0, |d| d.to_bits() | 1);
        [u64::from(self.hops.map_or(0, |h| h + 1)), bits(self.there), bits(self.back)]
            .iter()
            .fold(self.shared, |hash, part| (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }
}

fn hops(a: Option<(i32, i32)>, b: Option<(i32, i32)>) -> Option<u32> {
    let ((ax, ay), (bx, by)) = (a?, b?);
    Some(ax.abs_diff(bx).saturating_add(ay.abs_diff(by)))
}

impl<'t> Checker<'t> {
    pub(super) fn new(topology: &'t Topology, labels: &Labels, cpus: &[CpuId]) -> Self {
        let mut position = vec![0u32; topology.online().last().map_or(0, |c| c.index() + 1)];
        for (p, cpu) in (0..).zip(cpus) {
            position[cpu.index()] = p;
        }
        let resources: Vec<(usize, (Kind, u8))> =
            topology.resources().iter().enumerate().map(|(i, r)| (i, (r.kind, r.level))).collect();
        let member = resources.chunk_by(|a, b| a.1 == b.1).map(|class| {
            let mut member = vec![NONE; cpus.len()];
            for &(i, _) in class {
                for cpu in topology.resources()[i].cpus.iter() {
                    member[position[cpu.index()] as usize] = i as u32;
                }
            }
            member
        });
        let member = member.collect();
        let mut nodes_of = vec![Vec::new(); cpus.len()];
        for (i, node) in (0..).zip(topology.nodes()) {
            for cpu in node.cpus.iter() {
                nodes_of[position[cpu.index()] as usize].push(i);
            }
        }
        let per_core = topology.parts().distances.as_ref().is_some_and(|d| d.rows.len() != topology.nodes().len());
        Self {
            topology,
            member,
            coords: cpus.iter().map(|&c| topology.cpu(c).and_then(|c| c.coord)).collect(),
            nodes_of,
            node_labels: (0..topology.nodes().len()).map(|i| node_label(topology, labels, i)).collect(),
            core_row: per_core.then(|| cpus.iter().map(|&c| topology.core_of(c).unwrap_or(0)).collect()),
            to: (0..cpus.len() as u32).collect(),
        }
    }

    /// Whether the permutation that moves exactly these positions is a symmetry. Labels of CPUs are the caller's
    /// responsibility: isomorphic blocks agree in them.
    pub(super) fn is_symmetry(&mut self, moves: &[(u32, u32)]) -> bool {
        for &(from, to) in moves {
            self.to[from as usize] = to;
        }
        let holds = self.keeps_resources(moves) && self.keeps_hops(moves) && self.keeps_nodes(moves);
        for &(from, _) in moves {
            self.to[from as usize] = from;
        }
        holds
    }

    fn keeps_resources(&self, moves: &[(u32, u32)]) -> bool {
        let resources = self.topology.resources();
        self.member.iter().all(|member| {
            // (resource, target) of every move; each resource must have one target, and itself unless it moves whole.
            let mut goes: Vec<(u32, u32)> =
                moves.iter().map(|&(from, to)| (member[from as usize], member[to as usize])).collect();
            goes.sort_unstable();
            goes.chunk_by(|a, b| a.0 == b.0).all(|group| {
                let (from, to) = group[0];
                if group.iter().any(|g| g.1 != to) || (from == NONE) != (to == NONE) {
                    return false;
                }
                if from == to {
                    return true;
                }
                let (a, b) = (&resources[from as usize], &resources[to as usize]);
                group.len() == a.cpus.len()
                    && a.cpus.len() == b.cpus.len()
                    && (a.capacity, a.line_size, a.ways) == (b.capacity, b.line_size, b.ways)
            })
        })
    }

    fn keeps_hops(&self, moves: &[(u32, u32)]) -> bool {
        if self.coords.iter().all(Option::is_none) {
            return true;
        }
        let at = |p: u32| self.coords[p as usize];
        moves.iter().all(|&(from, to)| {
            (0..self.to.len() as u32).all(|p| hops(at(from), at(p)) == hops(at(to), at(self.to[p as usize])))
        })
    }

    /// Whether some permutation of the memory nodes matches the one of CPUs.
    fn keeps_nodes(&self, moves: &[(u32, u32)]) -> bool {
        let nodes = self.topology.nodes();
        let stay = moves.iter().all(|&(from, to)| self.nodes_of[from as usize] == self.nodes_of[to as usize]);
        if stay && (0..nodes.len()).all(|i| self.reaches_alike(i, i, moves.iter().copied())) {
            return true;
        }
        let all = || (0u32..).zip(self.to.iter().copied());
        let mut images = vec![Vec::new(); nodes.len()];
        for (from, to) in all() {
            for &node in &self.nodes_of[from as usize] {
                images[node as usize].push(to);
            }
        }
        let mut candidates: Vec<Vec<usize>> = Vec::with_capacity(nodes.len());
        for (i, image) in images.iter().enumerate() {
            let lands = |j: usize| {
                image.len() == nodes[j].cpus.len()
                    && image.iter().all(|&to| self.nodes_of[to as usize].contains(&(j as u32)))
            };
            let fits = |j: &usize| {
                self.node_labels[i] == self.node_labels[*j] && lands(*j) && self.reaches_alike(i, *j, all())
            };
            candidates.push(match image.first() {
                Some(&to) => self.nodes_of[to as usize].iter().map(|&j| j as usize).filter(fits).collect(),
                None => (0..nodes.len()).filter(fits).collect(),
            });
        }
        let mut chosen = Vec::with_capacity(nodes.len());
        self.assign_nodes(&candidates, &mut chosen, &mut 0)
    }

    /// Whether node `i` relates to every CPU as node `j` does to that CPU's image.
    fn reaches_alike(&self, i: usize, j: usize, mut moves: impl Iterator<Item = (u32, u32)>) -> bool {
        let nodes = self.topology.nodes();
        let rows = self.topology.parts().distances.as_ref().map(|d| &d.rows);
        let mapped = nodes[i].coord.is_some();
        if !mapped && self.core_row.is_none() {
            return true;
        }
        moves.all(|(from, to)| {
            let (from, to) = (from as usize, to as usize);
            let far = match (&self.core_row, rows) {
                (Some(row), Some(rows)) => rows[row[from]][i] == rows[row[to]][j],
                _ => true,
            };
            far && (!mapped || hops(nodes[i].coord, self.coords[from]) == hops(nodes[j].coord, self.coords[to]))
        })
    }

    fn assign_nodes(&self, candidates: &[Vec<usize>], chosen: &mut Vec<usize>, steps: &mut usize) -> bool {
        let i = chosen.len();
        let Some(options) = candidates.get(i) else { return true };
        let nodes = self.topology.nodes();
        let rows = self.node_rows();
        for &j in options {
            *steps += 1;
            if *steps > NODE_STEPS {
                return false;
            }
            let fits = !chosen.contains(&j)
                && rows.is_none_or(|d| d[i][i] == d[j][j])
                && chosen.iter().enumerate().all(|(k, &l)| {
                    rows.is_none_or(|d| d[i][k] == d[j][l] && d[k][i] == d[l][j])
                        && hops(nodes[i].coord, nodes[k].coord) == hops(nodes[j].coord, nodes[l].coord)
                });
            if fits {
                chosen.push(j);
                if self.assign_nodes(candidates, chosen, steps) {
                    return true;
                }
                chosen.pop();
            }
        }
        false
    }

    /// The distance matrix, if it has one row per node.
    fn node_rows(&self) -> Option<&'t Vec<Vec<f64>>> {
        let distances = self.topology.parts().distances.as_ref()?;
        self.core_row.is_none().then_some(&distances.rows)
    }

    /// The relation of two positions.
    pub(super) fn relation(&self, a: u32, b: u32) -> Relation {
        let (a, b) = (a as usize, b as usize);
        let shared = self
            .member
            .iter()
            .take(64)
            .enumerate()
            .fold(0, |bits, (c, member)| bits | u64::from(member[a] != NONE && member[a] == member[b]) << c);
        let rows = self.node_rows();
        // Only if each position is in one node are the corresponding nodes known.
        let between = |a: usize, b: usize| match (&self.nodes_of[a][..], &self.nodes_of[b][..]) {
            ([i], [j]) => Some(rows?[*i as usize][*j as usize]),
            _ => None,
        };
        Relation { shared, hops: hops(self.coords[a], self.coords[b]), there: between(a, b), back: between(b, a) }
    }

    /// The distances of a position to memory, ignoring the identity of nodes.
    pub(super) fn distances_of(&self, position: u32) -> Vec<u64> {
        let rows = self.topology.parts().distances.as_ref().map(|d| &d.rows);
        let (Some(rows), Some(row)) = (rows, &self.core_row) else { return Vec::new() };
        let mut distances: Vec<u64> = rows[row[position as usize]].iter().map(|d| d.to_bits()).collect();
        distances.sort_unstable();
        distances
    }
}
