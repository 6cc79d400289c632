//! `cotenant bench` for a user: real programs, simulated ones, and errors.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-bench-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A command that runs this file.
    fn command(&self, text: &str, args: &[&str]) -> Command {
        fs::write(self.0.join("bench.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
        command.env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", &self.0);
        command.env("XDG_STATE_HOME", &self.0).env("XDG_RUNTIME_DIR", &self.0);
        command.arg("bench").arg("bench.toml").args(args).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn run(&self, text: &str, args: &[&str]) -> Output {
        self.command(text, args).output().unwrap()
    }

    fn json(&self, text: &str) -> Value {
        let out = self.run(text, &["--json"]);
        assert!(out.status.success(), "{}", said(&out));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Process ids of all `sleep` of this length.
fn sleepers(seconds: &str) -> Vec<u32> {
    let wanted = format!("sleep\0{seconds}\0");
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted.as_bytes());
    pids.filter(line).collect()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen within 300 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const PROGRAMS: &str = "[bench]\npolicies = ['resense']\nrepetitions = 2\n\
    [[app]]\nname = 'a'\ncommand = ['sleep', '0.02']\nruns = 2\n\
    [[app]]\nname = 'b'\ncommand = ['sh', '-c', 'sleep 0.03']\narrival_s = 0.01\n\
    [[app]]\nname = 'c'\ncommand = ['true']\nafter = 'b'\nruns = 3\n";

#[test]
fn real_programs_come_run_and_go() {
    let report = Folder::new("real").json(PROGRAMS);
    let rounds = report["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    for round in rounds {
        assert_eq!(round["workload"], "{0(a,2) 0.01(b,1) after b(c,3)}");
        for policy in ["none", "resense"] {
            let apps = round["policies"][policy]["apps"].as_array().unwrap();
            let runs: Vec<usize> = apps.iter().map(|app| app["times_s"].as_array().unwrap().len()).collect();
            assert_eq!(runs, [2, 1, 3]);
            let time = |app: usize| apps[app]["times_s"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap());
            assert!(time(0).all(|t| t >= 0.02) && time(1).all(|t| t >= 0.03), "{round}");
            let mean = |app: usize| time(app).sum::<f64>() / time(app).count() as f64;
            let art = round["policies"][policy]["art_s"].as_f64().unwrap();
            assert!((art - (mean(0) + mean(1) + mean(2)) / 3.0).abs() < 1e-9, "{round}");
        }
    }
    let over = &report["over_linux"][0];
    assert!(over["policy"] == "resense" && over["rounds"] == 2 && over["throughput"]["p"].is_f64(), "{over}");
}

/// Holds run/end.
#[test]
fn what_fails_or_never_ends_is_said_and_ended() {
    let folder = Folder::new("fails");
    let fails = |text: &str, code: i32, says: &str| {
        let out = folder.run(text, &[]);
        assert!(out.status.code() == Some(code) && said(&out).contains(says), "{text}: {}", said(&out));
        assert_eq!(said(&out).lines().count(), 1, "{}", said(&out));
    };
    let one = |command: &str| format!("[bench]\npolicies = ['resense']\n[[app]]\nname = 'x'\ncommand = {command}\n");
    fails(&one("['sh', '-c', 'exit 3']"), 1, "x: it failed with exit code 3");
    fails(&one("['sh', '-c', 'kill -9 $$']"), 1, "x: it failed with exit code 137");
    fails(&one("['no-such-program']"), 2, "app x: no-such-program: command not found");
    fails(&one("'sleep'"), 2, "bench.toml:5:11: invalid type");
    let seconds = format!("7{}", std::process::id());
    let never = one(&format!("['sleep', '{seconds}']")).replace("[[app]]", "timeout_s = 0.1\n[[app]]");
    fails(&never, 1, "x: a run still went on after 0.1 s");
    assert!(sleepers(&seconds).is_empty());
}

/// Holds run/end.
#[test]
fn interrupted_it_ends_what_it_started() {
    let folder = Folder::new("interrupted");
    let seconds = format!("8{}", std::process::id());
    let text = format!("[bench]\npolicies = ['resense']\n[[app]]\ncommand = ['sh', '-c', 'sleep {seconds}; true']\n");
    let mut child = folder.command(&text, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the program's start", || !sleepers(&seconds).is_empty());
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(sleepers(&seconds).is_empty());
}

const SIMULATED: &str = "machine = 'yorkfield'\n\
    [bench]\npolicies = ['resense']\nrepetitions = 1\nworkload = { size = 'small', count = 3, runs = 2 }\n\
    [[app]]\nprogram = 'mcf06'\nthreads = 2\nwork_s = 0.5\n\
    [[app]]\nprogram = 'canneal'\nthreads = 2\nwork_s = 0.5\ncommand = ['true']\n\
    [[app]]\nprogram = 'lbm06'\nthreads = 2\nwork_s = 0.5\n";

#[test]
fn simulated_programs_are_the_same_each_time() {
    let folder = Folder::new("simulated");
    let report = folder.json(SIMULATED);
    assert_eq!(report, folder.json(SIMULATED));
    assert!(report["machine"] == "yorkfield" && report["rounds"].as_array().unwrap().len() == 3);
    // The programs are unknown: only the cost of observing differs.
    let percent = report["over_linux"][0]["average_response_time"]["percent"].as_f64().unwrap();
    assert!(percent.abs() < 0.1, "{percent}");
    fs::write(folder.0.join("p.toml"), "[app.canneal.sensitivity.l2]\nscore = 5\nlow = 5\nhigh = 5\nby = 'time'\n")
        .unwrap();
    let out = folder.run(SIMULATED, &["--profiles", "p.toml"]);
    assert!(
        out.status.success() && String::from_utf8_lossy(&out.stdout).contains("resense over Linux, 3 pairs"),
        "{}",
        said(&out)
    );
    let out = folder.run(SIMULATED, &["--here"]);
    assert!(
        out.status.code() == Some(2) && said(&out).contains("bench.toml:6:1: this app has no command"),
        "{}",
        said(&out)
    );
}
