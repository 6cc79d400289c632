//! `cotenant sim --mix` through the binary.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const MACHINE: &str = "\
name = 'eight-cores'
cores = 8
clock_ghz = 2.0
llc_bytes = 20971520
llc_ns = 25
memory_ns = 82
memory_gbs = 60
replacement = 'random'
";

fn machine(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("cotenant-mix-{}-{name}.toml", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

fn sim(mix: &str, machine: &PathBuf) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(["sim", "--mix", mix, "--json", "--machine"]).arg(machine).output().unwrap()
}

/// Holds run/wrong-input.
#[test]
fn a_mix_is_predicted_and_wrong_ones_are_refused() {
    let good = machine("good", MACHINE);
    let output = sim("mcf06,lbm06,povray06,mcf06", &good);
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let slowdown = |app: usize| report["apps"][app]["slowdown"].as_f64().unwrap();
    assert_eq!(report["apps"][2]["name"], "povray06");
    assert!(slowdown(0) > 1.1 && slowdown(2) < 1.01, "{report}");
    assert!((slowdown(0) - slowdown(3)).abs() < 1e-6, "two copies fare alike: {report}");
    assert_eq!(sim("mcf06,lbm06,povray06,mcf06", &good).stdout, output.stdout, "the same bytes again");

    // The band is from the data that the file lacks.
    let band = |report: &serde_json::Value, app: usize| {
        let end = |i: usize| report["apps"][app]["slowdown_band"][i].as_f64().unwrap();
        (end(0), end(1))
    };
    let (least, most) = band(&report, 0);
    assert!(least < slowdown(0) && slowdown(0) < most && least > 1.0, "{report}");
    assert!(report["guessed"].as_array().unwrap().iter().any(|key| key == "memory_queue_ns"), "{report}");
    assert!(report["guessed"].as_array().unwrap().iter().all(|key| key != "memory_ns"), "{report}");

    let dry = machine("dry", &MACHINE.replace("memory_gbs = 60", "memory_gbs = 0"));
    let cases = [
        ("mcf", &good, "--mix: there is no program 'mcf'; known: mcf00, mcf06"),
        ("libqantum06", &good, "--mix: there is no program 'libqantum06'; known: libquantum06"),
        ("gemsfdtd06", &good, "--mix: there is no program 'gemsfdtd06'; known: GemsFDTD06"),
        ("mcf06,mcf06,mcf06,mcf06,mcf06,mcf06,mcf06,mcf06,mcf06", &good, "9 programs, but"),
        ("mcf06", &dry, "memory_gbs is 0; it must be a number above 0"),
        ("mcf06", &good.join("x"), "no such file"),
    ];
    for (mix, machine, says) in cases {
        let output = sim(mix, machine);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && error.trim_end().lines().count() == 1, "{error}");
    }
    for path in [good, dry] {
        fs::remove_file(path).unwrap();
    }
}
