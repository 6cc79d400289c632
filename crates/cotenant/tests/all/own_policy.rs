//! An external policy (`examples/own_policy.rs`) gets our `run`, `sim` and `replay`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The example's binary. `cargo test` builds it beside the tests; for this test alone it is built now.
fn own_policy() -> PathBuf {
    let tests = std::env::current_exe().expect("the path of this test");
    let built = tests.parent().and_then(Path::parent).expect("deps lies in a folder").join("examples/own_policy");
    if !built.exists() {
        let cargo = Command::new(env!("CARGO")).args(["build", "--quiet", "--example", "own_policy"]).status();
        assert!(cargo.expect("cargo starts").success() && built.exists(), "the example does not build");
    }
    built
}

fn call(args: &[&str]) -> Output {
    Command::new(own_policy()).args(args).output().expect("the example starts")
}

fn told(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

#[test]
fn it_runs_records_and_replays() {
    let folder = std::env::temp_dir().join(format!("cotenant-own-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("own.rec");
    let path = file.to_str().unwrap();
    // Long enough for a few rounds however little of a CPU it gets: it counts, it does not look at a clock.
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let run = ["run", "--policy", "stay", "--set", "stay.busy=0.01", "--interval", "20ms", "--record", path];
    let out = call(&[&run[..], &["--", "sh", "-c", busy]].concat());
    assert!(out.status.success() && told(&out).contains("with stay: 1 move"), "{}", told(&out));
    let out = call(&["replay", path]);
    assert!(told(&out).contains("replayed stay: 1 move; they differ in 0 rounds"), "{}", told(&out));
    let out = Command::new(env!("CARGO_BIN_EXE_cotenant")).args(["replay", path]).output().unwrap();
    assert!(!out.status.success() && told(&out).contains("there is no policy 'stay'"), "{}", told(&out));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn it_is_simulated() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/two-apps.toml");
    let out = call(&["sim", scenario, "--policy", "none,stay", "--seeds", "1", "--json"]);
    let found: serde_json::Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", told(&out)));
    assert_eq!((&found["policies"][1]["name"], &found["policies"][1]["seeds"]), (&"stay".into(), &1.into()));
}

#[test]
fn its_settings_are_checked_as_ours_are() {
    for (set, why) in [
        ("stay.bussy=1", "--set stay.bussy=1: unknown field `bussy`, expected `busy`"),
        ("stay.busy=much", "invalid type: string"),
        ("sam.cooldown=false", "the policy here is stay, which has no such settings"),
    ] {
        let out = call(&["run", "--policy", "stay", "--set", set, "--", "true"]);
        assert_eq!(out.status.code(), Some(2));
        assert!(told(&out).contains(why) && told(&out).lines().count() == 1, "{}", told(&out));
    }
}
