//! `cotenant characterize` for a user: real programs, and their errors.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-characterize-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
        command.env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", &self.0);
        command.args(args).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Profiles in the store, by the names of their files.
    fn stored(&self) -> Vec<String> {
        let machines = fs::read_dir(self.0.join("cotenant/profiles")).into_iter().flatten();
        let files = machines.flat_map(|machine| fs::read_dir(machine.unwrap().path()).unwrap());
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| ![".lock", ".measuring"].contains(&name.as_str())).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until the condition holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen within 300 s");
        std::thread::yield_now();
    }
}

fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The content of a file of the measured program, once complete.
fn written(path: &Path) -> String {
    let mut content = String::new();
    eventually("the program's start", || {
        content = fs::read_to_string(path).unwrap_or_default();
        content.ends_with('\n')
    });
    content.trim().to_owned()
}

/// Computes for about a tenth of a second.
const BUSY: &str = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done";

#[test]
fn a_profile_is_measured_stored_and_grows() {
    let folder = Folder::new("grows");
    let args = ["characterize", "--runs", "2", "--json", "-n", "busy"];
    let corun = ["--only", "sensitivity,corun", "--kernels", "bst-4mb", "--by", "cpu-time", "--", "sh", "-c", BUSY];
    let out = folder.run(&[&args[..], &corun[..]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(folder.stored(), ["busy.toml"]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        eprintln!("skipped: one CPU has no neighbour");
        return;
    }
    let beside = &answer["profile"]["corun"]["bst-4mb"];
    let left = answer["left_out"].to_string();
    assert!(beside["suffers"]["by"] == "cpu_time" || left.contains("no two cores"), "{answer}");
    // The other measurement's values are added.
    let out = folder.run(&[&args[..], &["--only", "sensitivity", "--", "sh", "-c", BUSY]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let stored = text(&folder.run(&["profiles", "show", "busy"]).stdout);
    assert!(stored.contains("bst-4mb") || left.contains("no two cores"), "{stored}");
    assert!(stored.contains("command = [\"sh\"") && stored.contains("[app.busy.stamp.machine]"), "{stored}");
}

/// Holds run/end.
#[test]
fn programs_that_go_wrong() {
    let folder = Folder::new("wrong");
    let only = ["characterize", "-q", "--only", "sensitivity"];
    let says = |args: &[&str], code: i32, what: &str| {
        let out = folder.run(&[&only[..], args].concat());
        let stderr = text(&out.stderr);
        assert!(
            out.status.code() == Some(code) && stderr.lines().count() == 1 && stderr.contains(what),
            "{args:?}: {stderr}"
        );
    };
    says(&["--", "sh", "-c", "exit 3"], 1, "exit code 3");
    says(&["--", "sh", "-c", "kill -SEGV $$"], 1, "exit code 139");
    says(&["--timeout", "300ms", "--", "sleep", "1000"], 1, "still ran after 0.3 s and was ended");
    says(&["--", "/proc/nonexistent/program"], 127, "command not found");
    says(&["--kernels", "nothing", "--", "true"], 2, "there is no such kernel");
    assert_eq!(folder.stored(), [""; 0]);
    // A damaged profile is found before the measurement.
    let out = folder.run(&["characterize", "-q", "-n", "a", "--only", "sensitivity", "--", "sleep", "0.05"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let file = fs::read_dir(folder.0.join("cotenant/profiles")).unwrap().next().unwrap().unwrap().path().join("a.toml");
    fs::write(&file, "[app.a]\nsharing = 7\n").unwrap();
    says(&["-n", "a", "--", "sleep", "0.05"], 2, "a.toml:2:11: sharing of app a is 7");
    assert_eq!(fs::read_to_string(&file).unwrap(), "[app.a]\nsharing = 7\n", "and it is left as it is");
}

/// Holds run/end.
#[test]
fn what_is_left_behind_is_ended() {
    let folder = Folder::new("forks");
    let pid = folder.0.join("pid");
    let script = format!("sleep 1000 & echo $! > {}; sleep 0.1", pid.display());
    let out = folder.run(&["characterize", "--only", "sensitivity", "-n", "forks", "--", "sh", "-c", &script]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("left processes behind"), "{}", text(&out.stdout));
    assert!(!lives(&written(&pid)), "it was left in the background");
}

/// Holds run/end.
#[test]
fn interrupted_it_writes_nothing_and_nothing_runs_on() {
    for signal in ["INT", "TERM"] {
        let folder = Folder::new(signal);
        let pid = folder.0.join("pid");
        // It ignores signals itself.
        let script = format!("trap '' INT TERM; echo $$ > {}; while :; do sleep 0.1; done", pid.display());
        let child = folder.start(&["characterize", "-n", "stubborn", "--", "sh", "-c", &script]);
        let program = written(&pid);
        let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let out = child.wait_with_output().unwrap();
        assert!(
            out.status.code() == Some(1) && text(&out.stderr).contains("interrupted: nothing was written"),
            "{}",
            text(&out.stderr)
        );
        assert!(!lives(&program), "SIG{signal}: the program runs on");
        assert_eq!(folder.stored(), [""; 0]);
    }
}

fn has_valgrind() -> bool {
    let there = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: there is no valgrind, whose cachegrind simulates caches");
    }
    there
}

/// Holds measure/characterize.
#[test]
fn every_level_is_simulated_at_several_sizes_and_runs_go_side_by_side() {
    if !has_valgrind() {
        return;
    }
    let folder = Folder::new("levels");
    let out = folder.run(&["characterize", "--json", "--only", "misses", "--at-once", "2", "--", "sleep", "0.03"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    let curve = &found["profile"]["misses"];
    let Some(points) = curve["points"].as_array() else {
        eprintln!("skipped: this machine reports no cache sizes: {}", found["left_out"]);
        return;
    };
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    for (i, point) in points.iter().enumerate() {
        assert!((0.0..=1.0).contains(&number(point, "ratio")) && number(point, "mpki") >= 0.0, "{point}");
        let sets = number(point, "bytes") / number(point, "ways") / number(point, "line");
        assert!(sets.log2().fract() == 0.0, "{point}: cachegrind has sets by powers of two");
        let order = |p: &Value| (number(p, "level") as u64, number(p, "bytes") as u64);
        assert!(i == 0 || order(&points[i - 1]) < order(point), "{curve}");
    }
    let mut levels: Vec<&Value> = points.iter().map(|point| &point["level"]).collect();
    levels.dedup();
    let footprints: Vec<&Value> = curve["footprints"].as_array().unwrap().iter().map(|f| &f["level"]).collect();
    assert_eq!(levels, footprints, "one footprint per level");
    assert_eq!(found["runs"], points.len() + 1, "one run per level and size, and one alone");
}

/// Holds run/end.
#[test]
fn interrupted_among_simulated_caches_nothing_runs_on() {
    if !has_valgrind() {
        return;
    }
    let folder = Folder::new("simulated-int");
    let (again, pids) = (folder.0.join("again"), folder.0.join("pids"));
    // Only the real run ends; those on simulated caches never do, under any signal.
    let script = format!(
        "trap '' INT TERM; if [ -e {0} ]; then echo $$ >> {1}; while :; do sleep 0.1; done; fi; : > {0}; sleep 0.03",
        again.display(),
        pids.display()
    );
    let child =
        folder.start(&["characterize", "-n", "x", "--only", "misses", "--at-once", "2", "--", "sh", "-c", &script]);
    let at_once = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let mut programs = Vec::new();
    eventually("all runs' start", || {
        programs = fs::read_to_string(&pids).unwrap_or_default().lines().map(str::to_owned).collect();
        programs.len() == at_once
    });
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    let said = text(&out.stderr);
    assert!(out.status.code() == Some(1) && said.contains("interrupted: nothing was written"), "{said}");
    assert!(!programs.iter().any(|program| lives(program)), "a program runs on");
    assert_eq!(folder.stored(), [""; 0]);
}

/// Holds measure/store.
#[test]
fn two_at_once_take_turns_and_lose_nothing() {
    let folder = Folder::new("two");
    let args = |name| ["characterize", "-q", "--only", "sensitivity", "-n", name, "--", "sleep", "0.3"];
    let both = ["a", "b"].map(|name| folder.start(&args(name)));
    let waited = both.map(|child| {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr).contains("another characterization runs on this machine")
    });
    assert_eq!(folder.stored(), ["a.toml", "b.toml"]);
    if waited == [false, false] {
        eprintln!("the two did not meet");
    }
}
