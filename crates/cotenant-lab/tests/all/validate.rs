//! `cotenant-lab validate` through the binary.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const MACHINE: &str = "name = 'eight'\ncores = 2\nclock_ghz = 2.0\nllc_bytes = 20971520\nllc_ns = 25\nmemory_ns = 82\n\
memory_gbs = 60\ninclusive = true\n";

/// A folder with a machine of two cores.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("machine.toml"), MACHINE).unwrap();
    folder
}

fn validate(folder: &PathBuf, csv: &str, args: &[&str]) -> Output {
    fs::write(folder.join("measured.csv"), csv).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant-lab"));
    command.current_dir(folder).args(["validate", "measured.csv"]).args(args).output().unwrap()
}

/// A slowdown far off is the worst; what cannot be predicted is named, and counts in nothing.
#[test]
fn runs_are_predicted_or_left_out_with_the_reason() {
    let folder = folder("validate-runs");
    let csv = "run,program,slowdown\na,mcf06,50\na,povray06,1\nb,mcf06,\nb,mine,1\nc,nobody,2\nc,mcf06,2\n\
d,mcf06,1\nd,mcf06,1\nd,mcf06,1\ne,mcf06,1\n";
    let own = "[program.mine]\ncpi = 1\nllc_apki = 0\nfootprint_bytes = 1e3\nmiss_ratio = [[1e3, 0.0]]\n";
    fs::write(folder.join("mine.toml"), own).unwrap();
    let args = ["--machine", "machine.toml", "--programs", "mine.toml"];
    let json = validate(&folder, csv, &[&args[..], &["--json"]].concat());
    assert!(json.status.success(), "{json:?}");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["runs"], &json["programs"]), (&2.into(), &3.into()), "{json}");
    let why = |i: usize| json["left_out"][i]["why"].as_str().unwrap();
    assert!(why(0).starts_with("there is no program 'nobody'"), "{json}");
    assert_eq!(why(1), "3 programs, but there are 2 cores; name at most 2");
    assert!(why(2).starts_with("one program only"), "{json}");
    // A program without cache and memory accesses runs as fast as alone.
    let mine = json["predictions"].as_array().unwrap().iter().find(|p| p["program"] == "mine").unwrap();
    assert!(mine["error"].as_f64().unwrap().abs() < 1e-6, "{mine}");

    let table = String::from_utf8(validate(&folder, csv, &args).stdout).unwrap();
    let worst = table.lines().skip_while(|line| !line.starts_with("worst")).nth(1).unwrap();
    assert!(worst.starts_with("mcf06") && worst.contains("50.000"), "{table}");
    assert!(table.contains("2 of 5") && table.contains("left out"), "{table}");
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_exit_code_2() {
    let folder = folder("validate-wrong");
    let good = "run,program,slowdown\na,mcf06,1\na,lbm06,1\n";
    for (csv, machine, message) in [
        ("run,program,slowdown\na,mcf06,fast\n", "machine.toml", "measured.csv:2: slowdown is 'fast'"),
        ("run,program,slowdown\na,nobody,1\na,x,1\n", "machine.toml", "no run can be predicted; run a: there is no"),
        (good, "no-such-machine", "no-such-machine"),
        (good, "ivy-bridge-2s", "a mix needs a machine with one last-level cache"),
    ] {
        let output = validate(&folder, csv, &["--machine", machine]);
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said.lines().count() == 1 && said.contains(message), "{said}");
    }
}
