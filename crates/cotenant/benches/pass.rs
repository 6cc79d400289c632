//! What the compiler pass costs and reaches, as ratios, one JSON object per line.
//!
//! * `rate`: share of the time that a program in the mode naps executes, beside equation 5.10 of Tang's dissertation, granularity /
//!   (granularity + duration). SPECIFICATION.md promises 5 %.
//! * `inert`: CPU time of each kernel with marks that nobody answers, over that without marks: in programs that have libcotenant
//!   (`engine`) and in those that have not. 2 % is what we want; docs/reference/compiler-pass.md says where it is not reached.
//!
//! `cargo bench -p cotenant --bench pass`; needs clang 19, and says so where there is none. `COTENANT_BENCH_PAIRS` (default 61).

#[path = "../../../benches/report.rs"]
mod report;

use report::Report;
use serde_json::json;
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
    let source = format!("{ROOT}/crates/cotenant/benches/pass/rate.c");
    for (granularity_ms, duration_ms) in [(1, 1), (1, 2), (10, 10), (10, 20), (10, 5)] {
        let options = format!("--cotenant-granularity={granularity_ms}ms --cotenant-duration={duration_ms}ms");
        let program = folder.join("rate").display().to_string();
        cc(folder, &format!("--cotenant-mode=naps {options}"), &["-O2", &source, "-o", &program]);
        let mut shares: Vec<f64> = (0..5)
            .map(|_| {
                let printed = done(Command::new(&program).arg("500"));
                printed.split_whitespace().next().and_then(|share| share.parse().ok()).expect("a share")
            })
            .collect();
        shares.sort_by(f64::total_cmp);
        let expected = f64::from(granularity_ms) / f64::from(granularity_ms + duration_ms);
        let of_expected = |share: f64| share / expected;
        report.row(json!({
            "what": "rate", "granularity_ms": granularity_ms, "duration_ms": duration_ms, "equation_5_10": expected,
            "share": shares[2], "ratio": of_expected(shares[2]), "min": of_expected(shares[0]), "max": of_expected(shares[4]),
        }));
    }
}

fn inert(folder: &Path, report: &mut Report) {
    let pairs = std::env::var("COTENANT_BENCH_PAIRS").unwrap_or_else(|_| "61".to_owned());
    let kernels = format!("{ROOT}/crates/cotenant-kernels/c");
    let sources =
        ["compute", "coherence", "memory", "stream", "inject", "smash"].map(|name| format!("{kernels}/{name}.c"));
    let library = |name: &str, options: &str| {
        let path = folder.join(name).display().to_string();
        // As crates/cotenant-kernels/build.rs compiles them.
        let mut words =
            vec!["-std=c11", "-O2", "-g", "-fPIC", "-shared", "-ffp-contract=off", "-fno-builtin", "-o", &path];
        words.extend(sources.iter().map(String::as_str));
        cc(folder, options, &words);
        path
    };
    let (plain, marked) = (library("plain.so", "--cotenant-mode=off"), library("marked.so", "--cotenant-mode=markers"));
    let harness = format!("{ROOT}/crates/cotenant/benches/pass/kernels.c");
    // The harness is a program of `cotenant cc`, and so brings the engine; or it is not.
    for (engine, options) in [(true, "--cotenant-mode=markers"), (false, "--cotenant-mode=off")] {
        let program = folder.join("kernels").display().to_string();
        cc(folder, options, &["-O1", "-I", &kernels, &harness, "-o", &program, "-ldl"]);
        for line in done(Command::new(&program).args([&plain, &marked, &pairs])).lines() {
            let mut fields = line.split('\t');
            let kernel = fields.next().expect("a name");
            let numbers: Vec<f64> = fields.map(|number| number.parse().expect("a ratio")).collect();
            let [ratio, quartile_1, quartile_3] = numbers[..] else { panic!("{line}") };
            report.row(json!({
                "what": "inert", "engine": engine, "kernel": kernel, "ratio": ratio, "quartile_1": quartile_1,
                "quartile_3": quartile_3,
            }));
        }
    }
}

fn cc(folder: &Path, options: &str, words: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    done(command.arg("cc").args(words).env("XDG_DATA_HOME", folder).env("COTENANT_CC", options));
}

/// Runs a command to its end; its standard output.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
