use super::super::tests::{is_symmetry, mappings, mesh, permutations, polya, small_machine};
use super::*;
use crate::CpuSet;
use crate::topology::fixtures::{clovertown, cpus, regular, set};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn anywhere(threads: usize) -> Tenant {
    Tenant { threads, ..Tenant::default() }
}

fn like(threads: usize) -> Tenant {
    Tenant { threads, like: Some(0), ..Tenant::default() }
}

/// Counts all classes of an enumeration, and checks its own count.
fn classes(machine: &Topology, tenants: Vec<Tenant>) -> usize {
    let enumeration = Enumeration::new(machine, &Labels::default(), tenants, false);
    let found = enumeration.iter().count();
    assert_eq!(enumeration.count(), Some(Count::Exactly(found as u128)));
    found
}

/// Holds place/classes.
#[test]
fn clovertown_by_hand() {
    let machine = clovertown();
    assert_eq!(classes(&machine, vec![anywhere(4)]), 5);
    assert_eq!(classes(&machine, vec![anywhere(2)]), 3);
    let balanced = Enumeration::new(&machine, &Labels::default(), vec![anywhere(4)], true);
    assert_eq!((balanced.count(), balanced.iter().count()), (None, 3));
    // Two programs of one thread: one cache, one package, or two packages, distinguished or not.
    assert_eq!(classes(&machine, vec![anywhere(1), anywhere(1)]), 3);
    assert_eq!(classes(&machine, vec![like(1), like(1)]), 3);
    // Two threads on a cache, and a third in their package or not; on two caches, and a third next to one of them or in
    // the other package; in two packages, and a third on the cache of one of them or on the next.
    assert_eq!(classes(&machine, vec![anywhere(2), anywhere(1)]), 2 + 2 + 2);
    // All eight CPUs: one program, two halves, eight programs that the 128 symmetries only ever move.
    assert_eq!(classes(&machine, vec![anywhere(8)]), 1);
    assert_eq!(classes(&machine, vec![anywhere(4), anywhere(4)]), 5);
    assert_eq!(classes(&machine, vec![anywhere(1); 8]), 40_320 / 128);
    assert_eq!(classes(&machine, vec![anywhere(9)]), 0);
    assert_eq!(classes(&machine, vec![]), 1);
}

#[test]
fn programs_that_are_alike_are_one_class_exchanged() {
    let machine = clovertown();
    // By a listing of all permutations: four programs of two threads pair the CPUs in eight ways, 42 if they are
    // distinguished.
    assert_eq!((classes(&machine, vec![anywhere(2); 4]), classes(&machine, vec![like(2); 4])), (42, 8));
    assert_eq!((classes(&machine, vec![anywhere(3); 2]), classes(&machine, vec![like(3); 2])), (13, 10));
    // As many equivalent programs of one thread are one program of as many threads.
    for n in 1..=6 {
        assert_eq!(classes(&machine, vec![like(1); n]), classes(&machine, vec![anywhere(n)]), "{n}");
    }
    // Beyond 5,040 exchanges they are distinguished, which is reported.
    let many = Enumeration::new(&machine, &Labels::default(), vec![like(1); 8], false);
    assert!(!many.is_exact());
    assert_eq!(many.count(), Some(Count::Exactly(315)));
}

#[test]
fn a_cpuset_breaks_the_symmetries_that_leave_it() {
    let machine = clovertown();
    let only = |threads, cpus| Tenant { threads, allowed: Some(set(cpus)), like: None };
    // Within a package: one thread has one place, two have two.
    assert_eq!(classes(&machine, vec![only(1, "0-3")]), 1);
    assert_eq!(classes(&machine, vec![only(2, "0-3")]), 2);
    // CPU 0 alone leaves its partner, the other cache and the other package to a second thread.
    assert_eq!(classes(&machine, vec![only(1, "0"), anywhere(1)]), 3);
    // CPUs 0 and 4 are still interchangeable, with their packages.
    assert_eq!(classes(&machine, vec![only(1, "0,4")]), 1);
    assert_eq!(classes(&machine, vec![only(3, "0,4")]), 0);
    assert_eq!(classes(&machine, vec![only(2, "0-1"), only(1, "1")]), 0);
    let forbidden = Enumeration::new(&machine, &Labels::default(), vec![only(2, "0-1,6"), only(1, "1-7")], false);
    for mapping in &forbidden {
        for (cpu, slot) in forbidden.symmetry().cpus().iter().zip(&mapping) {
            assert!(forbidden.tenants().get(*slot as usize).is_none_or(|t| t.allowed.as_ref().unwrap().contains(*cpu)));
        }
    }
}

/// Holds place/classes.
#[test]
fn counts_of_larger_machines_agree_with_what_is_listed() {
    let machines = [
        (Topology::new(regular(2, 1, 10, 2)).unwrap(), vec![vec![3, 3], vec![2, 2, 2], vec![1, 1, 1, 1], vec![6]]),
        (Topology::new(regular(4, 2, 4, 1)).unwrap(), vec![vec![4, 4], vec![2, 3, 1], vec![10], vec![31]]),
        (Topology::new(regular(1, 8, 8, 1)).unwrap(), vec![vec![4, 3], vec![32], vec![1, 1, 1, 1, 1]]),
        (Topology::new(mesh(4, 4)).unwrap(), vec![vec![3, 2], vec![2, 2, 1], vec![8]]),
        (
            Topology::new(crate::topology::Parts { cpus: cpus(12), ..Default::default() }).unwrap(),
            vec![vec![6], vec![4, 4, 4]],
        ),
    ];
    for (machine, cases) in &machines {
        for threads in cases {
            assert!(classes(machine, threads.iter().map(|&n| anywhere(n)).collect()) > 0);
            assert!(classes(machine, threads.iter().map(|&n| like(n)).collect()) > 0, "{threads:?}");
        }
    }
    // Against the plain count for one program, where listing is infeasible.
    let epyc = Enumeration::new(&machines[2].0, &Labels::default(), vec![anywhere(20)], false);
    assert_eq!(epyc.count(), Some(Count::Exactly(u128::from(polya(&[8, 8], 20)))));
}

#[test]
fn what_is_too_large_is_not_listed() {
    let machine = Topology::new(regular(4, 16, 8, 2)).unwrap();
    let crowd = Enumeration::new(&machine, &Labels::default(), vec![anywhere(64); 16], false);
    let Some(Count::AtLeast(n)) = crowd.count() else { panic!("counted exactly") };
    assert!(n > 1 << 100);
    // The first ones still come at once, all different.
    let some: Vec<_> = crowd.iter().take(100).collect();
    assert_eq!(some.iter().collect::<BTreeSet<_>>().len(), 100);
    assert!(some.iter().all(|mapping| crowd.canonical(mapping) == *mapping));
    // The bound is valid: at most the exact number where both are known.
    let small = clovertown();
    for tenants in [vec![anywhere(4)], vec![anywhere(3), anywhere(2)], vec![like(2), like(2), anywhere(1)]] {
        let e = Enumeration::new(&small, &Labels::default(), tenants, false);
        let least =
            count::bound(&e.symmetry, &e.tenants, &e.allowed, (e.symmetry.skeleton.len() * e.exchanges.len()) as f64);
        assert!(matches!(e.count(), Some(Count::Exactly(n)) if least <= n && n <= 64 * least.max(1)), "{least}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Written apart from the implementation: all mappings, all permutations of CPUs and of tenants, orbits as sets.
    /// Promise place/classes: Classes of equivalent mappings are counted exactly; a mapping is called optimal only
    /// where every class was evaluated, and none that was tried beats it.
    #[test]
    fn classes_are_the_orbits_of_all_mappings(
        machine in small_machine(),
        allowed in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<bool>(), 6)), 2),
        alike in any::<bool>(),
    ) {
        let n = machine.cpus().len();
        let sets: Vec<Option<CpuSet>> = allowed.into_iter().map(|may| {
            may.map(|may| machine.online().iter().filter(|c| may[c.index()]).collect())
        }).collect();
        let sets = if alike { vec![sets[0].clone(); 2] } else { sets };
        let may = |slot: Slot, cpu| machine.usable().contains(cpu) && sets[slot as usize].as_ref().is_none_or(|s| s.contains(cpu));
        let nodes = permutations(machine.nodes().len());
        let keeps = |by: &Vec<usize>| machine.online().iter().all(|c| {
            let to = crate::ids::CpuId(by[c.index()] as u32);
            (0..2).all(|slot| sets[slot].as_ref().is_none_or(|s| s.contains(c) == s.contains(to)))
        });
        let group: Vec<Vec<usize>> = permutations(n).into_iter().filter(|by| keeps(by) && is_symmetry(&machine, by, &nodes)).collect();
        for threads in [[1, 0], [2, 0], [1, 1], [2, 1], [2, 2]] {
            let exchanges = if alike && threads[0] == threads[1] { vec![[0, 1], [1, 0]] } else { vec![[0, 1]] };
            let legal: BTreeSet<Vec<Slot>> = mappings(n).into_iter().filter(|mapping| {
                let right = |slot: Slot| mapping.iter().filter(|s| **s == slot).count() == threads[slot as usize];
                let stands = |(cpu, slot): (usize, &Slot)| *slot == FREE || may(*slot, crate::ids::CpuId(cpu as u32));
                right(0) && right(1) && mapping.iter().enumerate().all(stands)
            }).collect();
            let mut left = legal;
            let mut orbits: Vec<BTreeSet<Vec<Slot>>> = Vec::new();
            while let Some(mapping) = left.first().cloned() {
                let images = group.iter().flat_map(|by| exchanges.iter().map(|to| {
                    let mut image = vec![FREE; n];
                    (0..n).for_each(|cpu| image[by[cpu]] = to.get(mapping[cpu] as usize).copied().unwrap_or(FREE));
                    image
                }).collect::<Vec<_>>());
                let orbit: BTreeSet<Vec<Slot>> = images.collect();
                left.retain(|m| !orbit.contains(m));
                orbits.push(orbit);
            }
            let tenants = (0..2).map(|i| Tenant { threads: threads[i], allowed: sets[i].clone(), like: alike.then_some(7) }).collect();
            let enumeration = Enumeration::new(&machine, &Labels::default(), tenants, false);
            prop_assert!(enumeration.is_exact());
            prop_assert_eq!(enumeration.count(), Some(Count::Exactly(orbits.len() as u128)));
            let at: Vec<usize> = enumeration.symmetry().cpus().iter().map(|c| c.index()).collect();
            for mapping in &enumeration {
                let mut by_cpu = vec![FREE; n];
                at.iter().zip(&mapping).for_each(|(&cpu, &slot)| by_cpu[cpu] = slot);
                let before = orbits.len();
                orbits.retain(|orbit| !orbit.contains(&by_cpu));
                prop_assert_eq!(orbits.len(), before - 1, "{:?} is one of a class not seen before", mapping);
                prop_assert_eq!(&enumeration.canonical(&mapping), &mapping);
            }
            prop_assert!(orbits.is_empty());
        }
    }
}
