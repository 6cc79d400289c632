//! The mapping notation: `XX**|..XX`, one character per CPU in topology order (Tang, ch. 3).
//!
//! `X` is this application, `*` its co-runner, any other letter or digit a further application, `.` a free CPU. White
//! space and `|` are separators. Offline CPUs have no character; CPUs that the cpuset forbids have one, which must be
//! `.`.

use super::Topology;
use super::tree::Tree;
use crate::CpuId;

/// The character of a free CPU.
pub const FREE: char = '.';

/// Why a text is no mapping of a machine. Positions count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// An invalid character.
    #[error(
        "'{found}' at position {position} of the mapping is not an application: use a letter, a digit, '*', or '.' \
         for a free CPU"
    )]
    Character {
        /// The character.
        found: char,
        /// Its position.
        position: usize,
    },
    /// Too few characters or too many.
    #[error(
        "the mapping has {found} CPUs, the machine has {expected} online: give one character for each, '.' for a free one"
    )]
    Length {
        /// Characters for CPUs.
        found: usize,
        /// Online CPUs.
        expected: usize,
    },
    /// An application on a CPU that is not allowed.
    #[error(
        "'{found}' at position {position} of the mapping stands on CPU {cpu}, which the cpuset forbids: put '.' there"
    )]
    Forbidden {
        /// The character.
        found: char,
        /// Its position.
        position: usize,
        /// The CPU.
        cpu: CpuId,
    },
}

/// The online CPUs in topology order: by package, memory node, die, cache, core, then hardware context; larger groups
/// first where a machine nests them otherwise, and siblings by lowest CPU number.
pub fn topology_order(topology: &Topology) -> Vec<CpuId> {
    Tree::new(topology).cpus()
}

/// Reads a mapping: every online CPU with its character, in topology order, free ones included.
///
/// # Errors
/// [`MapError`] names the position.
pub fn parse_map(topology: &Topology, text: &str) -> Result<Vec<(CpuId, char)>, MapError> {
    let order = topology_order(topology);
    let mut slots = Vec::with_capacity(order.len());
    for (position, found) in (1..).zip(text.chars()) {
        match found {
            '|' => {}
            c if c.is_whitespace() => {}
            c if c == FREE || c == '*' || c.is_ascii_alphanumeric() => slots.push((position, c)),
            _ => return Err(MapError::Character { found, position }),
        }
    }
    if slots.len() != order.len() {
        return Err(MapError::Length { found: slots.len(), expected: order.len() });
    }
    let map: Vec<(CpuId, char)> = order.iter().zip(&slots).map(|(&cpu, &(_, c))| (cpu, c)).collect();
    match map.iter().position(|&(cpu, c)| c != FREE && !topology.usable().contains(cpu)) {
        Some(i) => Err(MapError::Forbidden { found: map[i].1, position: slots[i].0, cpu: map[i].0 }),
        None => Ok(map),
    }
}

/// Writes a mapping, packages separated by `|`. CPUs without a `letter` are free.
pub fn format_map(topology: &Topology, letter: impl Fn(CpuId) -> Option<char>) -> String {
    let mut text = String::new();
    let mut before = None;
    for cpu in topology_order(topology) {
        let package = topology.package_of(cpu);
        if before.is_some_and(|p| p != package) {
            text.push('|');
        }
        before = Some(package);
        text.push(letter(cpu).unwrap_or(FREE));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::super::{Kind, Parts};
    use super::*;
    use proptest::prelude::*;

    /// Two packages of two cores of two contexts, numbered as on most servers: 0-3 first contexts, alternating
    /// packages.
    fn interleaved() -> Topology {
        let mut resources: Vec<_> = ["0,2,4,6", "1,3,5,7"].map(|p| resource(Kind::Package, 0, p)).into();
        resources.extend(["0,4", "1,5", "2,6", "3,7"].map(|c| resource(Kind::Core, 0, c)));
        Topology::new(Parts { cpus: cpus(8), resources, ..Parts::default() }).unwrap()
    }

    #[test]
    fn order_follows_packages_then_cores_then_contexts() {
        assert_eq!(topology_order(&interleaved()), [0, 4, 2, 6, 1, 5, 3, 7].map(CpuId));
    }

    #[test]
    fn a_node_larger_than_a_package_comes_first() {
        let mut parts = Parts { cpus: cpus(4), ..Parts::default() };
        parts.resources.extend(["0", "1", "2", "3"].map(|p| resource(Kind::Package, 0, p)));
        parts.nodes = vec![node(0, "0,2"), node(1, "1,3")];
        assert_eq!(topology_order(&Topology::new(parts).unwrap()), [0, 2, 1, 3].map(CpuId));
    }

    #[test]
    fn separators_are_ignored() {
        let map = parse_map(&interleaved(), " X*X* | ..A1\n").unwrap();
        let expected = [(0, 'X'), (4, '*'), (2, 'X'), (6, '*'), (1, '.'), (5, '.'), (3, 'A'), (7, '1')];
        assert_eq!(map, expected.map(|(cpu, c)| (CpuId(cpu), c)));
    }

    #[test]
    fn errors_name_the_position() {
        let machine = clovertown();
        assert_eq!(parse_map(&machine, "XX..|#..."), Err(MapError::Character { found: '#', position: 6 }));
        assert_eq!(parse_map(&machine, "XX"), Err(MapError::Length { found: 2, expected: 8 }));
        assert_eq!(parse_map(&machine, ""), Err(MapError::Length { found: 0, expected: 8 }));
        let mut parts = machine.parts().clone();
        parts.cpus[5].allowed = false;
        let forbids = Topology::new(parts).unwrap();
        assert_eq!(
            parse_map(&forbids, "XX..|.X.."),
            Err(MapError::Forbidden { found: 'X', position: 7, cpu: CpuId(5) })
        );
        assert!(parse_map(&forbids, "XX..|..X.").is_ok());
    }

    #[test]
    fn an_offline_cpu_has_no_character() {
        let mut parts = Parts { cpus: cpus(3), ..Parts::default() };
        parts.cpus[1].online = false;
        let map = parse_map(&Topology::new(parts).unwrap(), "X*").unwrap();
        assert_eq!(map, [(CpuId(0), 'X'), (CpuId(2), '*')]);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(slots in proptest::collection::vec("[X*.AB7]", 8)) {
            let machine = interleaved();
            let map = parse_map(&machine, &slots.concat()).unwrap();
            let text = format_map(&machine, |cpu| map.iter().find(|m| m.0 == cpu).map(|m| m.1));
            prop_assert_eq!(text.replace('|', ""), slots.concat());
            prop_assert_eq!(text.find('|'), Some(4));
            prop_assert_eq!(parse_map(&machine, &text).unwrap(), map);
        }

        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = parse_map(&clovertown(), &text);
        }
    }
}
