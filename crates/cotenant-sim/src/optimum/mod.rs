//! The best mapping: all classes if they are few, otherwise the best of a seeded local search, marked as such.
//!
//! The search is no policy: it needs an evaluation of mappings, such as a simulator. It has no clock: its caller
//! measures time, and ends it by an error.

mod starts;

use cotenant_model::topology::symmetry::{Count, Enumeration, FREE, Slot};
use fastrand::Rng;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The search ends after this many restarts in a row that find nothing new.
const PATIENCE: usize = 100;
/// Values closer than half of this count as equal in a climb, and the guide decides.
const GRAIN: f64 = 1e-4;

/// Limits of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most classes that are all evaluated; with more, the local search takes over.
    pub classes: usize,
    /// Most evaluations of the search.
    pub evaluations: usize,
}

/// The value of a mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// To be maximized, of the order of 1.
    pub value: f64,
    /// Breaks ties between values. With barriers a program is as fast as its slowest thread, so that most single moves
    /// change only how fast the others could run.
    pub guide: f64,
}

impl From<f64> for Worth {
    /// Without a guide.
    fn from(value: f64) -> Self {
        Self { value, guide: 0.0 }
    }
}

impl Worth {
    /// NaN counts as the lowest.
    fn numbers(self) -> Self {
        let number = |x: f64| if x.is_nan() { f64::NEG_INFINITY } else { x };
        Self { value: number(self.value), guide: number(self.guide) }
    }

    /// A total order, so that no climb cycles.
    fn cmp(&self, other: &Self) -> Ordering {
        let step = |x: f64| (x / GRAIN).round();
        step(self.value).total_cmp(&step(other.value)).then(self.guide.total_cmp(&other.guide))
    }
}

/// How certain the best mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Label {
    /// Every class was evaluated: none is better.
    #[serde(rename = "optimal")]
    Optimal,
    /// The best found by the search.
    #[serde(rename = "best found")]
    BestFound,
}

/// The best mapping that was evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// One slot for each of [`cotenant_model::topology::symmetry::Symmetry::cpus`]; the representative of its class.
    pub mapping: Vec<Slot>,
    /// Its value.
    pub value: f64,
    /// Whether a better one may exist.
    pub label: Label,
    /// The number of classes, if it can be computed without listing them.
    pub classes: Option<Count>,
    /// Mappings evaluated, each of another class (unless some symmetries are unknown).
    pub evaluations: usize,
    /// Climbs of the search; 0 where all classes were evaluated.
    pub starts: usize,
}

/// The mapping with the highest value, the first evaluated among equals; `None` if no mapping is possible.
/// Deterministic for a seed. NaN counts as the lowest.
///
/// The search first evaluates `starts` regardless of its limits, so that the result is at least as good as each of
/// them. Then it climbs from these and from orderly mappings (packed, or spread over packages, caches, cores), best
/// first, then from random ones. A step exchanges the contents of two CPUs (two tasks, or a task and nothing). It is
/// taken if it raises the value, or keeps the value and raises the guide; a climb ends when no step does. No class is
/// evaluated twice. If balanced mappings are required, which steps would leave, it evaluates the first ones of the
/// enumeration instead.
///
/// # Errors
/// Errors of `evaluate`, at once.
///
/// # Panics
/// If a start does not have one slot for each of [`cotenant_model::topology::symmetry::Symmetry::cpus`].
pub fn best<E, W: Into<Worth>>(
    enumeration: &Enumeration,
    limits: Limits,
    starts: &[Vec<Slot>],
    seed: u64,
    mut evaluate: impl FnMut(&[Slot]) -> Result<W, E>,
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
            let value = evaluate(&mapping)?.into().numbers().value;
            if found.as_ref().is_none_or(|(_, best)| value > *best) {
                found = Some((mapping, value));
            }
        }
    }
    let mut climbs = 0;
    if label == Label::BestFound && !enumeration.is_balanced() {
        let mut search = Search {
            enumeration,
            rng: Rng::with_seed(seed),
            known: BTreeMap::new(),
            left: limits.evaluations,
            best: found,
            evaluate,
        };
        climbs = search.run(starts)?;
        evaluations += search.known.len();
        found = search.best;
    }
    Ok(found.map(|(mapping, value)| Best { mapping, value, label, classes, evaluations, starts: climbs }))
}

struct Search<'a, 't, F> {
    enumeration: &'a Enumeration<'t>,
    rng: Rng,
    /// Values of the evaluated classes.
    known: BTreeMap<Vec<Slot>, Worth>,
    left: usize,
    /// The highest value so far, over all climbs.
    best: Option<(Vec<Slot>, f64)>,
    evaluate: F,
}

impl<E, W: Into<Worth>, F: FnMut(&[Slot]) -> Result<W, E>> Search<'_, '_, F> {
    /// Climbs while evaluations remain and new mappings are found; returns the number of climbs.
    fn run(&mut self, given: &[Vec<Slot>]) -> Result<usize, E> {
        let mut from: Vec<(Vec<Slot>, Worth)> = Vec::new();
        for start in given {
            let at = self.enumeration.canonical(start);
            self.left = self.left.max(usize::from(!self.known.contains_key(&at)));
            from.extend(self.worth(&at)?.map(|worth| (at, worth)));
        }
        for start in starts::orderly(self.enumeration) {
            let at = self.enumeration.canonical(&start);
            from.extend(self.worth(&at)?.map(|worth| (at, worth)));
        }
        from.sort_by(|a, b| b.1.cmp(&a.1));
        from.dedup_by(|a, b| a.0 == b.0);
        let (mut climbs, mut idle) = (0, 0);
        let mut from = from.into_iter();
        while idle < PATIENCE && self.left > 0 {
            let (before, random) = (self.left, from.len() == 0);
            let start = match from.next() {
                Some(start) => Some(start),
                None => self.random()?,
            };
            let Some((at, worth)) = start else { break };
            climbs += 1;
            self.climb(at, worth)?;
            idle = if self.left < before || !random { 0 } else { idle + 1 };
        }
        Ok(climbs)
    }

    /// Climbs until no step improves the mapping, or evaluations run out.
    fn climb(&mut self, mut at: Vec<Slot>, mut worth: Worth) -> Result<(), E> {
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
                let Some(other) = self.worth(&next)? else { return Ok(()) };
                if other.cmp(&worth).is_gt() {
                    (at, worth) = (next, other);
                    continue 'up;
                }
            }
            return Ok(());
        }
    }

    fn admits(&self, at: usize, slot: Slot) -> bool {
        slot == FREE || self.enumeration.admits(at, slot as usize)
    }

    /// The value of a representative; `None` when evaluations have run out.
    fn worth(&mut self, mapping: &[Slot]) -> Result<Option<Worth>, E> {
        if let Some(known) = self.known.get(mapping) {
            return Ok(Some(*known));
        }
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let worth = (self.evaluate)(mapping)?.into().numbers();
        self.known.insert(mapping.to_vec(), worth);
        if self.best.as_ref().is_none_or(|(_, best)| worth.value > *best) {
            self.best = Some((mapping.to_vec(), worth.value));
        }
        Ok(Some(worth))
    }

    /// A random mapping.
    fn random(&mut self) -> Result<Option<(Vec<Slot>, Worth)>, E> {
        let mut threads = starts::threads(self.enumeration);
        self.rng.shuffle(&mut threads);
        let mut order: Vec<usize> = (0..self.enumeration.symmetry().cpus().len()).collect();
        let rng = &mut self.rng;
        let Some(start) = starts::seated(self.enumeration, &threads, || {
            rng.shuffle(&mut order);
            order.clone()
        }) else {
            return Ok(None);
        };
        let at = self.enumeration.canonical(&start);
        Ok(self.worth(&at)?.map(|worth| (at, worth)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::CpuSet;
    use cotenant_model::Topology;
    use cotenant_model::testing::machine;
    use cotenant_model::topology::symmetry::{Labels, Tenant};
    use std::convert::Infallible;

    fn tenants(threads: &[usize]) -> Vec<Tenant> {
        threads.iter().map(|&threads| Tenant { threads, ..Tenant::default() }).collect()
    }

    fn enumeration<'t>(machine: &'t Topology, threads: &[usize]) -> Enumeration<'t> {
        Enumeration::new(machine, &Labels::default(), tenants(threads), false)
    }

    /// Sharers gain by being near, others lose: each pair counts 3 or −2 on a core, 1 or −1 on a package.
    fn nearness<'a>(machine: &'a Topology, cpus: &'a [cotenant_model::CpuId]) -> impl Fn(&[Slot]) -> f64 + 'a {
        move |mapping| {
            let mut sum = 0.0;
            for (i, a) in mapping.iter().enumerate().filter(|(_, a)| **a != FREE) {
                for (j, b) in mapping.iter().enumerate().skip(i + 1).filter(|(_, b)| **b != FREE) {
                    let near = |of: fn(&Topology, cotenant_model::CpuId) -> Option<usize>| {
                        of(machine, cpus[i]) == of(machine, cpus[j])
                    };
                    sum += if near(Topology::core_of) { if a == b { 3.0 } else { -2.0 } } else { 0.0 };
                    sum += if near(Topology::package_of) { if a == b { 1.0 } else { -1.0 } } else { 0.0 };
                }
            }
            sum
        }
    }

    /// Holds place/classes.
    #[test]
    fn few_classes_are_all_evaluated() {
        let machine = machine(2, 1, 2, 2);
        let all = enumeration(&machine, &[2, 2]);
        let value = nearness(&machine, all.symmetry().cpus());
        let limits = Limits { classes: 1000, evaluations: 0 };
        let best = best(&all, limits, &[], 1, |m| Ok::<_, Infallible>(value(m))).unwrap().unwrap();
        assert_eq!((best.label, best.starts, best.value), (Label::Optimal, 0, 8.0));
        assert_eq!(best.classes, Some(Count::Exactly(best.evaluations as u128)));
        assert_eq!(serde_json::to_string(&Label::BestFound).unwrap(), "\"best found\"");
    }

    /// Holds place/classes.
    #[test]
    fn the_search_finds_what_all_classes_hold_and_says_that_it_searched() {
        let machine = machine(2, 1, 3, 2);
        let all = enumeration(&machine, &[3, 2, 2]);
        let value = nearness(&machine, all.symmetry().cpus());
        let run = |limits, seed| {
            best(&all, limits, &[], seed, |m| {
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
        // With too few evaluations for one climb, the best so far; with none, nothing.
        let few = run(Limits { classes: 10, evaluations: 3 }, 0).unwrap().unwrap();
        assert_eq!((few.evaluations, few.starts), (3, 0), "orderly mappings alone take as many");
        assert_eq!(run(Limits { classes: 10, evaluations: 0 }, 0).unwrap(), None);
    }

    #[test]
    fn a_small_space_is_searched_to_its_end() {
        let machine = machine(2, 1, 2, 2);
        let all = enumeration(&machine, &[4]);
        let found = best(&all, Limits { classes: 1, evaluations: usize::MAX }, &[], 3, |_| Ok::<_, Infallible>(1.0))
            .unwrap()
            .unwrap();
        assert_eq!((found.label, Some(Count::Exactly(found.evaluations as u128))), (Label::BestFound, all.count()));
    }

    #[test]
    fn cpusets_are_respected_and_errors_end_it() {
        let machine = machine(2, 1, 4, 1);
        let only =
            |threads, list: &str| Tenant { threads, allowed: Some(CpuSet::parse_list(list).unwrap()), like: None };
        // The first tenant can only use CPUs of the second, which has to make room.
        let tight = Enumeration::new(
            &machine,
            &Labels::default(),
            vec![only(2, "0-3"), only(2, "2-3"), only(2, "0-1,6-7")],
            false,
        );
        let cpus = tight.symmetry().cpus().to_vec();
        let limits = Limits { classes: 0, evaluations: 200 };
        let found = best(&tight, limits, &[], 9, |mapping| {
            for (cpu, slot) in cpus.iter().zip(mapping) {
                assert!(tight.tenants().get(*slot as usize).is_none_or(|t| t.allowed.as_ref().unwrap().contains(*cpu)));
            }
            Ok::<_, Infallible>(f64::NAN)
        });
        assert_eq!(found.unwrap().unwrap().value, f64::NEG_INFINITY);
        assert_eq!(best(&tight, limits, &[], 9, |_| Err::<f64, _>("no fixed point")), Err("no fixed point"));
        let never = Enumeration::new(&machine, &Labels::default(), vec![only(3, "0-1")], false);
        assert_eq!(best(&never, limits, &[], 9, |_| Ok::<_, Infallible>(0.0)), Ok(None));
    }

    #[test]
    fn balanced_mappings_come_from_the_enumeration() {
        let machine = machine(2, 2, 2, 1);
        let balanced = Enumeration::new(&machine, &Labels::default(), tenants(&[4]), true);
        let value = |m: &[Slot]| {
            assert!(balanced.symmetry().is_balanced(m, 0));
            Ok::<_, Infallible>(0.0)
        };
        let all = best(&balanced, Limits { classes: 100, evaluations: 0 }, &[], 0, value).unwrap().unwrap();
        assert_eq!((all.label, all.evaluations, all.classes), (Label::Optimal, 3, None));
        let some = best(&balanced, Limits { classes: 1, evaluations: 2 }, &[], 0, value).unwrap().unwrap();
        assert_eq!((some.label, some.evaluations), (Label::BestFound, 2));
    }

    #[test]
    fn a_guide_leads_over_plateaus() {
        let machine = machine(2, 1, 6, 2);
        let all = enumeration(&machine, &[8, 8]);
        let first: Vec<bool> = all.symmetry().cpus().iter().map(|&cpu| machine.package_of(cpu) == Some(0)).collect();
        // Six of the one beside two of the other: neither packed nor spread, and worth nothing until it is reached.
        let off = |m: &[Slot]| {
            let here = |slot| m.iter().zip(&first).filter(|(s, first)| **s == slot && **first).count() as f64;
            let [x, a] = [here(0), here(1)];
            f64::min((x - 6.0).abs() + (a - 2.0).abs(), (x - 2.0).abs() + (a - 6.0).abs())
        };
        let run = |seed, guided: bool| {
            let limits = Limits { classes: 10, evaluations: 100 };
            let worth = |m: &[Slot]| {
                let value = if off(m) == 0.0 { 1.0 } else { 0.5 + 1e-6 * off(m) };
                Ok::<_, Infallible>(Worth { value, guide: if guided { -off(m) } else { 0.0 } })
            };
            best(&all, limits, &[], seed, worth).unwrap().unwrap().value
        };
        assert!((0..10).all(|seed| run(seed, true) == 1.0), "differences below the grain mislead nobody");
        assert!((0..10).any(|seed| run(seed, false) < 1.0), "without a guide it is luck");
    }

    #[test]
    fn given_mappings_are_evaluated_whatever_the_limits() {
        let machine = machine(2, 1, 4, 2);
        let all = enumeration(&machine, &[3, 3]);
        let cpus = all.symmetry().cpus().len();
        let odd: Vec<Slot> = [0, 1, FREE, 0, 1, FREE, 0, FREE].into_iter().chain([1; 1]).collect();
        let odd: Vec<Slot> = odd.into_iter().chain(std::iter::repeat(FREE)).take(cpus).collect();
        let value = |m: &[Slot]| Ok::<_, Infallible>(if all.canonical(&odd) == m { 2.0 } else { 1.0 });
        let limits = Limits { classes: 1, evaluations: 0 };
        let best = best(&all, limits, &[odd.clone(), odd.clone()], 1, value).unwrap().unwrap();
        assert_eq!((best.value, best.evaluations, best.label), (2.0, 1, Label::BestFound));
    }

    #[test]
    fn orderly_starts_are_packed_and_spread() {
        let machine = machine(2, 1, 2, 2);
        let all = enumeration(&machine, &[2, 2]);
        let starts: Vec<Vec<Slot>> = starts::orderly(&all).iter().map(|m| all.canonical(m)).collect();
        for wanted in [[0, 0, 1, 1], [0, 1, 0, 1]] {
            let packed: Vec<Slot> = wanted.into_iter().chain([FREE; 4]).collect();
            assert!(starts.contains(&all.canonical(&packed)), "{starts:?}");
        }
        for wanted in [[0, FREE, 0, FREE, 1, FREE, 1, FREE], [0, FREE, 1, FREE, 0, FREE, 1, FREE]] {
            assert!(starts.contains(&all.canonical(&wanted)), "{starts:?}");
        }
    }
}
