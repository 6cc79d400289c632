//! `cotenant calibrate` as a user meets it.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-calibrate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// With this folder as the data folder.
fn cotenant(data: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(args).env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", data).stdin(Stdio::null());
    command
}

fn run(data: &Path, args: &[&str]) -> Output {
    cotenant(data, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The profile that lies in the data folder.
fn profile(data: &Path) -> PathBuf {
    let mut files = fs::read_dir(data.join("cotenant/machines")).unwrap().map(|entry| entry.unwrap().path());
    let path = files.next().unwrap();
    assert_eq!(files.next(), None, "one machine, one profile, no drafts");
    path
}

#[test]
fn a_profile_is_written_found_and_known_to_be_stale() {
    let folder = Folder::new("profile");
    let data = &folder.0;
    let pictures = data.join("pictures");
    let out = run(
        data,
        &[
            "calibrate",
            "--quick",
            "--only",
            "clock,core-to-core,migration",
            "--json",
            "--svg-dir",
            pictures.to_str().unwrap(),
        ],
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let record: Value = serde_json::from_slice(&out.stdout).unwrap();
    let others = record["used_by_others"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&others), "{others}");
    let figures: Vec<&str> =
        record["figures"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    let left_out = record["left_out"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap());
    assert!(figures.contains(&"clock_hz"), "{figures:?}");
    assert!(figures.iter().copied().chain(left_out).any(|name| name == "migration_us"), "measured, or said why not");
    for figure in record["figures"].as_array().unwrap() {
        assert!(
            figure["low"].as_f64() <= figure["value"].as_f64() && figure["value"].as_f64() <= figure["high"].as_f64()
        );
        // Two threads that a busy machine never lets run at once measure nothing in that round.
        assert!((1..=3).contains(&figure["rounds"].as_u64().unwrap()), "{figure}");
    }
    if record["core_to_core_cpus"].as_array().unwrap().len() > 1 {
        let picture = fs::read_to_string(pictures.join("core-to-core.svg")).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("ns</title>"));
    }
    // Found without being named, and valid: nothing is said about it.
    let path = profile(data);
    let out = run(data, &["run", "-q", "--", "true"]);
    assert!(out.status.success() && !text(&out.stderr).contains("stale"), "{}", text(&out.stderr));
    // Another kernel since.
    let written = fs::read_to_string(&path).unwrap();
    let kernel = record["stamp"]["kernel"].as_str().unwrap();
    fs::write(&path, written.replace(kernel, "2.6.32")).unwrap();
    for args in [vec!["run", "-q", "--", "true"], vec!["run", "-q", "--profile", path.to_str().unwrap(), "--", "true"]]
    {
        let out = run(data, &args);
        let said = text(&out.stderr);
        let expected = format!("is stale: the kernel was '2.6.32' and is '{kernel}'; calibrate again");
        assert!(out.status.success() && said.contains(&expected), "{said}");
    }
    // Damaged: said, with the place.
    fs::write(&path, "clock_hz = \"fast\"\n").unwrap();
    let out = run(data, &["run", "-q", "--", "true"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains(".toml:1:12: "), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("name another with --profile"), "{}", text(&out.stderr));
    // It does not stop who has a good one, nor who looks for what is wrong.
    let good = data.join("good.toml");
    fs::write(&good, written).unwrap();
    for args in [&["run", "-q", "--profile", good.to_str().unwrap(), "--", "true"][..], &["doctor"]] {
        let out = run(data, args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        let said = text(&out.stderr);
        assert!(said.contains("not used: ") && said.contains(".toml:1:12: "), "{args:?}: {said}");
    }
}

#[test]
fn what_cannot_be_is_one_line() {
    let folder = Folder::new("bad");
    let out = run(&folder.0, &["calibrate", "--only", "clock,speed"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("--only speed: there is no such measurement; there are clock, core-to-core"));
    let out = run(&folder.0, &["calibrate", "--quick", "--only", "clock", "-o", "/proc/nowhere/profile.toml"]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(
        said.lines().last().unwrap().contains("/proc/nowhere/profile.toml: the profile cannot be written"),
        "{said}"
    );
    let out = run(&folder.0, &["calibrate", "--quick", "--only", "clock", "-o", "/dev/full"]);
    assert_eq!(out.status.code(), Some(1), "a full disk");
    assert!(text(&out.stderr).contains("/dev/full: the profile cannot be written"), "{}", text(&out.stderr));
    assert!(!fs::metadata("/dev/full").unwrap().is_file(), "a device is not replaced by a file");
}

/// Threads of a process.
fn threads(process: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/task", process.id())).map_or(0, Iterator::count)
}

#[test]
fn interrupted_it_leaves_no_half_profile() {
    for (signal, code) in [("INT", Some(1)), ("TERM", Some(1)), ("KILL", None)] {
        let folder = Folder::new(&format!("interrupted-{signal}"));
        let path = folder.0.join("profile.toml");
        fs::write(&path, "clock_hz = 1e9\n").unwrap();
        let mut child = cotenant(&folder.0, &["calibrate", "-o", path.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while threads(&child) < 2 {
            assert!(Instant::now() < end, "it does not begin");
            std::thread::yield_now();
        }
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), code, "{signal}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "clock_hz = 1e9\n", "the old one is still there");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no draft is left");
    }
}
