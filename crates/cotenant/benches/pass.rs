//! Cost and effect of the compiler pass as ratios, one JSON object per line.
//!
//! * `rate`: share of the time that a program in the mode naps executes, compared with equation 5.10 of Tang's
//!   dissertation, granularity / (granularity + duration). SPECIFICATION.md promises 5 %.
//! * `inert`: CPU time of each kernel with marks without orders, divided by that without marks, in programs with and
//!   without libcotenant; and the kernels without marks divided by the same with moved functions (`layout`). The place
//!   of a loop in memory changes its speed by up to a half, with or without marks: so each is built sixteen times with
//!   moved functions, and the row is the median over the builds with its 95 % interval. The goal is 2 %;
//!   lab/docs/compiler-pass-cost.md has the exceptions.
//!
//! `cargo bench -p cotenant --bench pass`; without clang 19 it only reports that. `COTENANT_BENCH_PAIRS` of each build
//! (default 7).
//!
//! Holds compile/naps.

use cotenant_model::stats::median::{Median, median};
use cotenant_testing::bench::Report;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn main() {
    let works = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if let Some(tool) = ["clang-19", "llvm-config-19", "cmake", "c++"].into_iter().find(|tool| !works(tool)) {
        eprintln!("skipped: no {tool}; apt-get install cmake make g++ clang-19 llvm-19-dev lld-19");
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pass-bench");
    fs::create_dir_all(&folder).expect("a folder of our own");
    done(Command::new(format!("{ROOT}/scripts/install-pass")).env("XDG_DATA_HOME", &folder));
    let mut report = Report::new("pass");
    rate(&folder, &mut report);
    inert(&folder, &mut report);
}

fn rate(folder: &Path, report: &mut Report) {
    let source = format!("{ROOT}/crates/cotenant-lab/src/reproduce/real/batch.c");
    for (granularity_ms, duration_ms) in [(1, 1), (1, 2), (10, 10), (10, 20), (10, 5)] {
        let options = format!("--cotenant-granularity={granularity_ms}ms --cotenant-duration={duration_ms}ms");
        let program = folder.join("rate").display().to_string();
        cc(folder, &format!("--cotenant-mode=naps {options}"), &["-O2", &source, "-o", &program]);
        let share = |_| {
            let printed = done(Command::new(&program).arg("500"));
            let first = printed.lines().nth(1).and_then(|line| line.split_whitespace().next());
            first.and_then(|share| share.parse().ok()).expect("a share")
        };
        let mut shares: Vec<f64> = (0..5).map(share).collect();
        shares.sort_by(f64::total_cmp);
        let expected = f64::from(granularity_ms) / f64::from(granularity_ms + duration_ms);
        let of_expected = |share: f64| share / expected;
        report.row(json!({
            "what": "rate", "granularity_ms": granularity_ms, "duration_ms": duration_ms, "equation_5_10": expected,
            "share": shares[2], "ratio": of_expected(shares[2]), "min": of_expected(shares[0]), "max": of_expected(shares[4]),
        }));
    }
}

/// Layouts of the kernels.
const BUILDS: usize = 16;

fn inert(folder: &Path, report: &mut Report) {
    let pairs = std::env::var("COTENANT_BENCH_PAIRS").unwrap_or_else(|_| "7".to_owned());
    let kernels = format!("{ROOT}/crates/cotenant-kernels/c");
    let sources =
        ["compute", "coherence", "memory", "stream", "inject", "smash"].map(|name| format!("{kernels}/{name}.c"));
    let library = |name: String, build: usize, options: &str| {
        let path = folder.join(name).display().to_string();
        let elsewhere = format!("-fpatchable-function-entry={}", build * 157 % 256); // nops in front of each function
        // Otherwise as in crates/cotenant-kernels/build.rs.
        let mut words =
            vec!["-std=c11", "-O2", "-g", "-fPIC", "-shared", "-ffp-contract=off", "-fno-builtin", "-o", &path];
        words.push(&elsewhere);
        words.extend(sources.iter().map(String::as_str));
        cc(folder, options, &words);
        path
    };
    let builds = |mode: &str| -> Vec<String> {
        let options = format!("--cotenant-mode={mode}");
        (0..BUILDS).map(|build| library(format!("{mode}-{build}.so"), build, &options)).collect()
    };
    let (plain, marked) = (builds("off"), builds("markers"));
    let elsewhere: Vec<String> = (0..BUILDS).map(|build| plain[(build + 5) % BUILDS].clone()).collect();
    let harness = format!("{ROOT}/crates/cotenant/benches/pass/kernels.c");
    // The harness is built by `cotenant cc`, and so contains the engine, or not.
    for (what, options, other) in [
        ("layout", "--cotenant-mode=off", &elsewhere),
        ("inert, with the engine", "--cotenant-mode=markers", &marked),
        ("inert, without", "--cotenant-mode=off", &marked),
    ] {
        let program = folder.join("kernels").display().to_string();
        cc(folder, options, &["-O1", "-I", &kernels, &harness, "-o", &program, "-ldl"]);
        let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (plain, other) in plain.iter().zip(other) {
            for line in done(Command::new(&program).args([plain, other, &pairs])).lines() {
                let (kernel, ratio) = line.split_once('\t').expect("a name and a ratio");
                ratios.entry(kernel.to_owned()).or_default().push(ratio.parse().expect("a ratio"));
            }
        }
        for (kernel, of_builds) in ratios {
            let Median { value, low, high } = median(&of_builds).expect("sixteen of them");
            let least = of_builds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = of_builds.iter().copied().fold(0.0, f64::max);
            report.row(json!({
                "what": what, "kernel": kernel, "ratio": value, "low": low, "high": high, "least": least, "most": most,
            }));
        }
    }
}

fn cc(folder: &Path, options: &str, words: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    done(command.arg("cc").args(words).env("XDG_DATA_HOME", folder).env("COTENANT_CC", options));
}

/// Runs a command to its end; returns its standard output.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
