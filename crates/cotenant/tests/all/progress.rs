//! Programs that report, and external metrics, for a user.

use serde_json::Value;
use std::fs;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SEEN: &str = "COTENANT_TEST_SEEN";

fn cotenant(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.env("XDG_CONFIG_HOME", "/proc/nonexistent").env_remove("XDG_DATA_HOME").args(args).stdin(Stdio::null());
    command
}

/// This test as a program: in any other run it does nothing.
#[test]
fn reporting_program() {
    let Ok(seen) = std::env::var(SEEN) else {
        return eprintln!("skipped: other tests start it as a program");
    };
    let deadline = Instant::now() + Duration::from_secs(300);
    let (mut units, mut found) = (0, None);
    // Until Cotenant, its parent, has opened the reports and read the metric once, and for some more of its rounds.
    while found.is_none_or(|found| waits() < found + 20) {
        assert!(Instant::now() < deadline, "nobody looks");
        cotenant_rt::units(3);
        cotenant_rt::latency(Duration::from_millis(2));
        units += 3;
        std::thread::yield_now();
        if found.is_none() {
            let files = fs::read_dir(format!("/proc/{}/fd", parent_id())).into_iter().flatten().flatten();
            let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
            let opened = links.any(|link| link.to_string_lossy().contains("cotenant-progress"));
            let read = fs::read_to_string(&seen).is_ok_and(|read| read.len() > 1);
            found = (opened && read).then(waits);
        }
    }
    fs::write(format!("{seen}.units"), units.to_string()).unwrap();
    std::process::exit(3);
}

/// Number of waits of this program's parent, one in each round.
fn waits() -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", parent_id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-progress-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(text.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Holds speed/reports.
#[test]
fn a_run_tells_what_was_reported_and_what_metrics_told() {
    let folder = Folder::new("run");
    let (seen, recording) = (folder.0.join("seen"), folder.0.join("a.rec"));
    // A line for each reading: the second makes the first known, and not too old soon.
    let metric = format!("cmd:echo >>{}; echo 7,every=500ms,name=seven", seen.display());
    let args = ["run", "--json", "--interval", "20ms", "--record", recording.to_str().unwrap(), "--metric", &metric];
    let program = std::env::current_exe().unwrap();
    let mut command = cotenant(&args);
    command.arg("--").arg(program).args(["--exact", "progress::reporting_program"]).env(SEEN, &seen);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let summary = summary(&output);
    let units: u64 = fs::read_to_string(seen.with_extension("units")).unwrap().parse().unwrap();
    let progress = &summary["progress"];
    assert_eq!(progress["units"], units, "to the last one: {summary}");
    assert!(progress["per_s"].as_f64().unwrap() > 0.0, "{summary}");
    let latency = &progress["latency"];
    assert_eq!(latency["count"], units / 3);
    assert!((latency["p99_s"].as_f64().unwrap() - 0.002).abs() < 0.000_2, "{summary}");
    let metric = &summary["metrics"][0];
    assert_eq!(
        (metric["name"].as_str(), metric["last"].as_f64(), metric["failed"].as_u64()),
        (Some("seven"), Some(7.0), Some(0))
    );

    let file = fs::File::open(&recording).unwrap();
    let rounds: Vec<_> = cotenant_record::Recording::read(file).unwrap().collect();
    let apps = rounds.iter().filter_map(|round| round.sample.apps.first());
    let both = apps.filter(|app| app.latency_ns.is_some()).filter_map(|app| app.progress).collect::<Vec<_>>();
    assert!(both.last().is_some_and(|progress| (1..=units).contains(progress)), "{both:?} of {units}");
    assert!(
        rounds
            .iter()
            .any(|round| round.sample.apps[0].metrics.iter().any(|(name, r)| name == "seven" && r.value == 7.0))
    );
}

/// Holds speed/bad-metric.
#[test]
fn a_hanging_metric_delays_neither_the_run_nor_its_end() {
    let folder = Folder::new("hang");
    let started = folder.0.join("started");
    let metric = format!("cmd:echo $$ >{}; sleep 1000,timeout=60min", started.display());
    // The program ends when the metric hangs.
    let program = format!("while ! [ -s {0} ]; do :; done", started.display());
    let output = cotenant(&["run", "--json", "--metric", &metric, "--", "sh", "-c", &program]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(summary(&output)["seconds"].as_f64().unwrap() < 500.0);
    let pid = fs::read_to_string(&started).unwrap();
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        if stat.is_empty() || stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
            break;
        }
        assert!(Instant::now() < deadline, "it lives on: {stat}");
        std::thread::yield_now();
    }
}

#[test]
fn a_comparison_tells_metrics_of_both_sides() {
    let folder = Folder::new("compare");
    let read = folder.0.join("read");
    let metric = format!("cmd:echo >>{}; echo 3,every=10ms,name=three", read.display());
    // Each run ends after reading the metric.
    let program =
        format!("rm -f {0}; while [ \"$(wc -l <{0} 2>/dev/null || echo 0)\" -lt 2 ]; do :; done", read.display());
    let args = ["compare", "--runs", "2", "--json", "--metric", &metric, "--", "sh", "-c", &program];
    let output = cotenant(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metric = &report["metrics"][0];
    assert_eq!((metric["name"].as_str(), metric["direction"].as_str()), (Some("three"), Some("higher_is_better")));
    assert_eq!(metric["pairs"], serde_json::json!([[3.0, 3.0], [3.0, 3.0]]));
    assert_eq!(metric["gain"]["mean"], 1.0);
}

#[test]
fn atom_says_what_it_learned_or_that_there_is_no_choice() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: with one CPU atom refuses");
        return;
    }
    let program = env!("CARGO_BIN_EXE_cotenant");
    let atom = ["run", "-v", "--policy", "atom", "--pin", "cpu", "--atom", "turn=200ms,rounds=1,classes=2", "--"];
    let mut command = cotenant(&[&atom[..], &[program, "kernel", "cpu", "--threads", "2", "--seconds", "8"]].concat());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let (one, won) = (said.contains("there is one mapping class only"), said.contains("won of"));
    assert!(one != won, "{said}");
    assert_eq!(said.contains("learning: it is the turn of class"), won, "{said}");
}
