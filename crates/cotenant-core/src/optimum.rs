//! The best mapping: all classes where they are few enough, else the best of a seeded local search, labelled so.
//!
//! A search over mappings stands outside the policies: it needs somebody who knows how good a mapping is, such as a simulator. It has
//! no clock either: who evaluates measures, and ends it by an error.

use crate::topology::symmetry::{Count, Enumeration, FREE, Slot};
use fastrand::Rng;
use serde::Serialize;
use std::collections::BTreeMap;

/// The search ends after so many restarts in a row that come upon nothing new.
const PATIENCE: usize = 100;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most classes that are all evaluated; where there are more, the search takes over.
    pub classes: usize,
    /// Most evaluations of the search.
    pub evaluations: usize,
}

/// What is known about the best mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Label {
    /// Every class was evaluated: none is better.
    #[serde(rename = "optimal")]
    Optimal,
    /// The best of those that the search came upon.
    #[serde(rename = "best found")]
    BestFound,
}

/// The best mapping that was evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// One slot for each of [`crate::topology::symmetry::Symmetry::cpus`]; the representative of its class.
    pub mapping: Vec<Slot>,
    /// Its value.
    pub value: f64,
    /// Whether there can be a better one.
    pub label: Label,
    /// The number of classes, where it can be had without listing them.
    pub classes: Option<Count>,
    /// Mappings evaluated, each of another class (of one found twice where not all symmetries are known).
    pub evaluations: usize,
    /// Starts of the search; 0 where all classes were evaluated.
    pub starts: usize,
}

/// The mapping with the highest value; of equals, the one evaluated first. `None` where no mapping is possible. The same seed gives the
/// same answer. A value that is no number (NaN) counts as the lowest.
///
/// The search starts from random mappings. A step exchanges what stands on two CPUs, two tasks or a task and nothing, and is taken where
/// it makes the value higher; where none does, the search starts anew. No class is evaluated twice. Where balanced mappings are asked
/// for, which steps would leave, it evaluates the first ones of the enumeration instead.
///
/// # Errors
/// That of `evaluate`, at once.
pub fn best<E>(
    enumeration: &Enumeration,
    limits: Limits,
    seed: u64,
    mut evaluate: impl FnMut(&[Slot]) -> Result<f64, E>,
) -> Result<Option<Best>, E> {
    let classes = enumeration.count();
    let many = |n: u128| n > limits.classes as u128;
    let known_many = matches!(classes, Some(Count::Exactly(n) | Count::AtLeast(n)) if many(n));
    let listed = if enumeration.is_balanced() { limits.classes.max(limits.evaluations) } else { limits.classes };
    let (mut found, mut evaluations): (Option<(Vec<Slot>, f64)>, usize) = (None, 0);
    let mut label = Label::Optimal;
    if known_many && !enumeration.is_balanced() {
        label = Label::BestFound;
    } else {
        for mapping in enumeration {
            if evaluations == listed {
                label = Label::BestFound;
                break;
            }
            evaluations += 1;
            let value = number(evaluate(&mapping)?);
            if found.as_ref().is_none_or(|(_, best)| value > *best) {
                found = Some((mapping, value));
            }
        }
    }
    let mut starts = 0;
    if label == Label::BestFound && !enumeration.is_balanced() {
        let mut search = Search {
            enumeration,
            rng: Rng::with_seed(seed),
            known: BTreeMap::new(),
            left: limits.evaluations,
            evaluate,
        };
        let mut idle = 0;
        while idle < PATIENCE && search.left > 0 {
            let before = search.left;
            let Some((mapping, value)) = search.climb()? else { break };
            starts += 1;
            idle = if search.left < before { 0 } else { idle + 1 };
            if found.as_ref().is_none_or(|(_, best)| value > *best) {
                found = Some((mapping, value));
            }
        }
        evaluations += search.known.len();
    }
    Ok(found.map(|(mapping, value)| Best { mapping, value, label, classes, evaluations, starts }))
}

fn number(value: f64) -> f64 {
    if value.is_nan() { f64::NEG_INFINITY } else { value }
}

struct Search<'a, 't, F> {
    enumeration: &'a Enumeration<'t>,
    rng: Rng,
    /// Values of the classes evaluated.
    known: BTreeMap<Vec<Slot>, f64>,
    left: usize,
    evaluate: F,
}

impl<E, F: FnMut(&[Slot]) -> Result<f64, E>> Search<'_, '_, F> {
    /// From a random mapping up to one that no step makes better, or as far as evaluations last.
    fn climb(&mut self) -> Result<Option<(Vec<Slot>, f64)>, E> {
        let Some(start) = self.start() else { return Ok(None) };
        let mut at = self.enumeration.canonical(&start);
        let Some(mut value) = self.value(&at)? else { return Ok(None) };
        let n = at.len();
        let mut steps: Vec<(usize, usize)> = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect();
        'up: loop {
            self.rng.shuffle(&mut steps);
            for &(i, j) in &steps {
                if at[i] == at[j] || !self.admits(i, at[j]) || !self.admits(j, at[i]) {
                    continue;
                }
                let mut next = at.clone();
                next.swap(i, j);
                let next = self.enumeration.canonical(&next);
                let Some(other) = self.value(&next)? else { return Ok(Some((at, value))) };
                if other > value {
                    (at, value) = (next, other);
                    continue 'up;
                }
            }
            return Ok(Some((at, value)));
        }
    }

    fn admits(&self, at: usize, slot: Slot) -> bool {
        slot == FREE || self.enumeration.admits(at, slot as usize)
    }

    /// The value of a representative; `None` where evaluations are used up.
    fn value(&mut self, mapping: &[Slot]) -> Result<Option<f64>, E> {
        if let Some(known) = self.known.get(mapping) {
            return Ok(Some(*known));
        }
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let value = number((self.evaluate)(mapping)?);
        self.known.insert(mapping.to_vec(), value);
        Ok(Some(value))
    }

    /// A random mapping: each thread takes a random CPU; where those that it may use are taken, threads make room along a chain (a
    /// bipartite matching), so that there is one wherever one exists.
    fn start(&mut self) -> Option<Vec<Slot>> {
        let n = self.enumeration.symmetry().cpus().len();
        let mut mapping = vec![FREE; n];
        let mut threads: Vec<Slot> = Vec::new();
        for (slot, tenant) in (0..).zip(self.enumeration.tenants()) {
            if tenant.threads > n {
                return None;
            }
            threads.extend(std::iter::repeat_n(slot, tenant.threads));
        }
        self.rng.shuffle(&mut threads);
        let mut order: Vec<usize> = (0..n).collect();
        for slot in threads {
            self.rng.shuffle(&mut order);
            if !self.seat(slot, &order, &mut mapping, &mut vec![false; n]) {
                return None;
            }
        }
        Some(mapping)
    }

    fn seat(&self, slot: Slot, order: &[usize], mapping: &mut [Slot], tried: &mut [bool]) -> bool {
        let open = order.iter().find(|&&at| mapping[at] == FREE && self.admits(at, slot));
        if let Some(&at) = open {
            mapping[at] = slot;
            return true;
        }
        for &at in order {
            if !tried[at] && self.admits(at, slot) {
                tried[at] = true;
                let other = mapping[at];
                if self.seat(other, order, mapping, tried) {
                    mapping[at] = slot;
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpuset::CpuSet;
    use crate::testing::machine;
    use crate::topology::Topology;
    use crate::topology::symmetry::{Labels, Tenant};
    use std::convert::Infallible;

    fn tenants(threads: &[usize]) -> Vec<Tenant> {
        threads.iter().map(|&threads| Tenant { threads, ..Tenant::default() }).collect()
    }

    fn enumeration<'t>(machine: &'t Topology, threads: &[usize]) -> Enumeration<'t> {
        Enumeration::new(machine, &Labels::default(), tenants(threads), false)
    }

    /// Sharers like to be near, others not: each pair on a core counts 3 or −2, on a package 1 or −1.
    fn nearness<'a>(machine: &'a Topology, cpus: &'a [crate::ids::CpuId]) -> impl Fn(&[Slot]) -> f64 + 'a {
        move |mapping| {
            let mut sum = 0.0;
            for (i, a) in mapping.iter().enumerate().filter(|(_, a)| **a != FREE) {
                for (j, b) in mapping.iter().enumerate().skip(i + 1).filter(|(_, b)| **b != FREE) {
                    let near = |of: fn(&Topology, crate::ids::CpuId) -> Option<usize>| {
                        of(machine, cpus[i]) == of(machine, cpus[j])
                    };
                    sum += if near(Topology::core_of) { if a == b { 3.0 } else { -2.0 } } else { 0.0 };
                    sum += if near(Topology::package_of) { if a == b { 1.0 } else { -1.0 } } else { 0.0 };
                }
            }
            sum
        }
    }

    #[test]
    fn few_classes_are_all_evaluated() {
        let machine = machine(2, 1, 2, 2);
        let all = enumeration(&machine, &[2, 2]);
        let value = nearness(&machine, all.symmetry().cpus());
        let limits = Limits { classes: 1000, evaluations: 0 };
        let best = best(&all, limits, 1, |m| Ok::<_, Infallible>(value(m))).unwrap().unwrap();
        assert_eq!((best.label, best.starts, best.value), (Label::Optimal, 0, 8.0));
        assert_eq!(best.classes, Some(Count::Exactly(best.evaluations as u128)));
        assert_eq!(serde_json::to_string(&Label::BestFound).unwrap(), "\"best found\"");
    }

    #[test]
    fn the_search_finds_what_all_classes_hold_and_says_that_it_searched() {
        let machine = machine(2, 1, 3, 2);
        let all = enumeration(&machine, &[3, 2, 2]);
        let value = nearness(&machine, all.symmetry().cpus());
        let run = |limits, seed| {
            best(&all, limits, seed, |m| {
                assert_eq!(all.canonical(m), m);
                Ok::<_, Infallible>(value(m))
            })
        };
        let optimal = run(Limits { classes: 1_000_000, evaluations: 0 }, 0).unwrap().unwrap();
        for seed in 0..5 {
            let limits = Limits { classes: 10, evaluations: 500 };
            let found = run(limits, seed).unwrap().unwrap();
            assert_eq!((found.label, found.value), (Label::BestFound, optimal.value), "seed {seed}");
            assert!(found.evaluations <= 500 && found.starts > 0);
            assert_eq!(run(limits, seed).unwrap().unwrap(), found, "the same seed, the same answer");
        }
        // With fewer evaluations than one climb needs, the best so far; with none, nothing.
        assert_eq!(run(Limits { classes: 10, evaluations: 3 }, 0).unwrap().unwrap().evaluations, 3);
        assert_eq!(run(Limits { classes: 10, evaluations: 0 }, 0).unwrap(), None);
    }

    #[test]
    fn a_small_space_is_searched_to_its_end() {
        let machine = machine(2, 1, 2, 2);
        let all = enumeration(&machine, &[4]);
        let found = best(&all, Limits { classes: 1, evaluations: usize::MAX }, 3, |_| Ok::<_, Infallible>(1.0))
            .unwrap()
            .unwrap();
        assert_eq!((found.label, Some(Count::Exactly(found.evaluations as u128))), (Label::BestFound, all.count()));
    }

    #[test]
    fn cpusets_are_respected_and_errors_end_it() {
        let machine = machine(2, 1, 4, 1);
        let only =
            |threads, list: &str| Tenant { threads, allowed: Some(CpuSet::parse_list(list).unwrap()), like: None };
        // The first tenant's only places are among the second's, which has to make room.
        let tight = Enumeration::new(
            &machine,
            &Labels::default(),
            vec![only(2, "0-3"), only(2, "2-3"), only(2, "0-1,6-7")],
            false,
        );
        let cpus = tight.symmetry().cpus().to_vec();
        let limits = Limits { classes: 0, evaluations: 200 };
        let found = best(&tight, limits, 9, |mapping| {
            for (cpu, slot) in cpus.iter().zip(mapping) {
                assert!(tight.tenants().get(*slot as usize).is_none_or(|t| t.allowed.as_ref().unwrap().contains(*cpu)));
            }
            Ok::<_, Infallible>(f64::NAN)
        });
        assert_eq!(found.unwrap().unwrap().value, f64::NEG_INFINITY);
        assert_eq!(best(&tight, limits, 9, |_| Err("no fixed point")), Err("no fixed point"));
        let never = Enumeration::new(&machine, &Labels::default(), vec![only(3, "0-1")], false);
        assert_eq!(best(&never, limits, 9, |_| Ok::<_, Infallible>(0.0)), Ok(None));
    }

    #[test]
    fn balanced_mappings_come_from_the_enumeration() {
        let machine = machine(2, 2, 2, 1);
        let balanced = Enumeration::new(&machine, &Labels::default(), tenants(&[4]), true);
        let value = |m: &[Slot]| {
            assert!(balanced.symmetry().is_balanced(m, 0));
            Ok::<_, Infallible>(0.0)
        };
        let all = best(&balanced, Limits { classes: 100, evaluations: 0 }, 0, value).unwrap().unwrap();
        assert_eq!((all.label, all.evaluations, all.classes), (Label::Optimal, 3, None));
        let some = best(&balanced, Limits { classes: 1, evaluations: 2 }, 0, value).unwrap().unwrap();
        assert_eq!((some.label, some.evaluations), (Label::BestFound, 2));
    }
}
