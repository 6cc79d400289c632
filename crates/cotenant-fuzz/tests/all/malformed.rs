//! Malformed input: every parser survives mutated versions of good input. An error is a good answer, a panic is not.
//! `cargo xtask fuzz` searches further, guided by libFuzzer's coverage.

use cotenant_fuzz::{GROUPS, Target};
use cotenant_model::testing::malformed;
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::thread;

/// Multiple of each parser's default number of mutations: a minute of CPU time without optimisation, for all.
const TIMES: u64 = 10;

fn targets() -> impl Iterator<Item = &'static Target> {
    GROUPS.iter().flat_map(|group| group.targets)
}

#[test]
fn good_input_is_taken() {
    for target in targets() {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for seed in &seeds {
            (target.parse)(seed);
        }
    }
}

/// Holds see/damaged-input.
#[test]
fn malformed_input_is_survived() {
    let survived = |target: &Target| {
        let survives = || malformed::survives(target.name, &(target.seeds)(), TIMES * target.mutations, target.parse);
        catch_unwind(survives).is_ok()
    };
    let of = |half| targets().skip(half).step_by(2).filter(|t| !survived(t)).map(|t| t.name).collect::<Vec<_>>();
    let failed =
        thread::scope(|scope| [0, 1].map(|half| scope.spawn(move || of(half))).map(|half| half.join().unwrap()));
    assert!(failed.concat().is_empty(), "{failed:?}");
}

/// Of each parser some good input is short enough for libFuzzer, and its number is its first byte.
#[test]
fn an_input_names_its_parser() {
    for group in GROUPS {
        let seeds = group.seeds();
        let named: BTreeSet<usize> = seeds.iter().map(|seed| usize::from(seed[0])).collect();
        assert!(named.into_iter().eq(0..group.targets.len()), "{}", group.name);
        group.run(&[]);
    }
}

#[test]
fn each_group_has_its_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for group in GROUPS {
        let program = fs::read_to_string(folder.join(format!("fuzz_targets/{}.rs", group.name))).unwrap();
        assert!(program.contains(&format!("cotenant_fuzz::{}.run(", group.name.to_uppercase())), "{program}");
        assert!(manifest.contains(&format!("name = \"{}\"\n", group.name)), "{}", group.name);
    }
    assert_eq!(fs::read_dir(folder.join("fuzz_targets")).unwrap().count(), GROUPS.len());
}
