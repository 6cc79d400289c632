//! Properties of the best static mapping.

use super::scenario;
use crate::optimum::{Label, Limits};
use crate::run::mean_progress;
use crate::scenario::Scenario;

fn alone(s: &Scenario) -> Vec<f64> {
    (0..s.apps.len()).map(|app| s.alone(app, s.kernel, 1).unwrap()).collect()
}

/// Applications that share, wait for each other, stream and compute.
const CROWDS: [(&str, &[(&str, usize)]); 5] = [
    ("two", &[("sgd", 4), ("tunkrank", 2)]),
    ("two", &[("hubench", 3), ("membench", 3), ("cpu", 2)]),
    ("ivy-bridge-2s", &[("sgd", 10), ("bsgd", 10)]),
    ("ivy-bridge-2s", &[("bsgd", 16), ("membench", 10), ("cpu", 14)]),
    ("ivy-bridge-2s", &[("mcf06", 2), ("libquantum06", 2), ("sjeng06", 2), ("canneal", 4)]),
];

fn crowd((machine, apps): (&str, &[(&str, usize)])) -> Scenario {
    let app =
        |(name, threads): &(&str, usize)| format!("[[app]]\nprogram = '{name}'\nthreads = {threads}\nwork_s = 0.2\n");
    scenario(&format!("machine = '{machine}'\nrestart = true\n{}", apps.iter().map(app).collect::<String>()))
}

#[test]
fn the_optimum_is_at_least_as_good_as_where_anybody_comes_to_rest() {
    for text in CROWDS {
        let s = crowd(text);
        let alone = alone(&s);
        let mut rests = Vec::new();
        for seed in 1..=2 {
            for name in ["none", "sam", "dino"] {
                let policy = cotenant_policies::standard().make(name, &s.config).unwrap();
                rests.push(s.run(&*policy, s.kernel, seed, |_| ()).unwrap().places);
            }
        }
        let threads: usize = s.apps.iter().map(|app| app.threads).sum();
        assert!(rests.iter().all(|places| places.len() == threads), "{text:?}: all threads stood somewhere");
        let limits = Limits { classes: 1, evaluations: 60 };
        let (best, outcome) = s.optimal(&alone, limits, &rests, 1).unwrap();
        assert_eq!((best.label, best.value), (Label::BestFound, mean_progress(&alone, &outcome)));
        for places in &rests {
            let mut own = places.clone();
            own.sort_unstable();
            own.dedup();
            if own.len() == places.len() {
                let there = mean_progress(&alone, &s.pinned(places, 1).unwrap());
                assert!(there <= best.value * (1.0 + 1e-4), "{text:?}: {there} at {places:?}, found {}", best.value);
            }
        }
    }
}

/// Programs with barriers go as fast as their slowest thread: the search has to cross plateaus.
#[test]
fn the_search_finds_what_all_classes_hold() {
    let small: [(&str, &[(&str, usize)]); 4] = [
        ("ivy-bridge-2s", &[("sgd", 10)]),
        ("ivy-bridge-2s", &[("sgd", 4), ("membench", 2)]),
        ("ivy-bridge-2s", &[("svd", 3), ("hubench", 2), ("mcf06", 1)]),
        ("ivy-bridge-2s", &[("lsgd", 5), ("als", 5)]),
    ];
    for text in small {
        let s = crowd(text);
        let alone = alone(&s);
        let all = s.optimal(&alone, Limits { classes: 100_000, evaluations: 0 }, &[], 1).unwrap().0;
        let limits = Limits { classes: 1, evaluations: all.evaluations / 2 };
        let found = s.optimal(&alone, limits, &[], 1).unwrap().0;
        assert_eq!((all.label, found.label), (Label::Optimal, Label::BestFound), "{text:?}");
        assert!(found.evaluations <= all.evaluations / 2, "{text:?}");
        assert!(found.value >= all.value * (1.0 - 1e-3), "{text:?}: {} of {}", found.value, all.value);
    }
}

/// What is known beforehand is looked at first.
#[test]
fn a_search_of_one_evaluation_knows_where_it_began() {
    let s = crowd(CROWDS[0]);
    let alone = alone(&s);
    let limits = Limits { classes: 1, evaluations: 1 };
    for places in [vec![0, 4, 1, 5, 2, 6], vec![7, 6, 5, 4, 3, 2]] {
        let best = s.optimal(&alone, limits, std::slice::from_ref(&places), 1).unwrap().0;
        let there = mean_progress(&alone, &s.pinned(&places, 1).unwrap());
        assert!((best.value / there - 1.0).abs() < 1e-9, "{} instead of {there} at {places:?}", best.value);
    }
}
