//! `cotenant compare -p`: the effect on a program that never ends.

use crate::world::{Pin, State, all_have, is_root, signal, skip};
use cotenant_measure::windows::order;
use cotenant_testing::{TempDir, eventually};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The variable with the folder in which a copy of this test binary reports that it runs.
const FOLDER: &str = "COTENANT_WINDOWS_FOLDER";

/// The program that the other tests compare; nothing when it is run as a test. It works three times as fast where it
/// may use one CPU alone, however busy the machine is.
#[test]
fn program() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let begin = Instant::now();
    let mut done = 0;
    for round in 0_u64.. {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let alone = status.lines().any(|l| l.starts_with("Cpus_allowed_list:") && !l.contains(['-', ',']));
        // By the clock: a late report is not lost.
        while done < begin.elapsed().as_millis() as u64 {
            cotenant_rt::units(if alone { 3 } else { 1 });
            done += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
        if round == 0 {
            fs::write(format!("{folder}/runs"), "").unwrap();
        }
        if round % 1_000 == 0 && !fs::exists(&folder).unwrap() {
            break;
        }
    }
}

struct Program {
    child: Child,
    _folder: TempDir,
}

impl Program {
    fn start() -> Self {
        let folder = TempDir::new("windows");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "windows::program", "--nocapture"]).env(FOLDER, folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        eventually("the program runs", || folder.path().join("runs").exists());
        Self { child, _folder: folder }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A comparison of a process with this policy, everything on the CPU of `pin`.
fn compare(state: &State, pin: &Pin, pid: u32, more: &[&str]) -> Command {
    let pid = pid.to_string();
    let mut command = state.cotenant(&[&pin.args("compare", &pin.cpu)[..], &["-p", &pid], more].concat());
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Holds run/compare.
#[test]
fn a_policy_that_helps_is_found_out() {
    let Some(pin) = Pin::find() else { return };
    let (state, program) = (State::new("windows-helps"), Program::start());
    let windows = ["--windows", "400ms", "--runs", "4"];
    let output = compare(&state, &pin, program.pid(), &[&windows[..], &["--seed", "3", "--json"]].concat()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&output);
    assert_eq!((report["policy"].as_str(), report["verdict"].as_str()), (Some("static"), Some("helped")), "{report}");
    assert_eq!((report["window_s"].as_f64(), report["settling_s"].as_f64()), (Some(0.4), Some(0.08)));
    let drawn: Vec<bool> = report["order"].as_array().unwrap().iter().map(|with| with.as_bool().unwrap()).collect();
    assert_eq!(drawn, order(4, 3), "the windows are in the order of the seed");
    let metric = &report["metrics"][0];
    assert_eq!((metric["name"].as_str(), metric["verdict"].as_str()), (Some("progress"), Some("helped")));
    assert!((metric["gain"]["mean"].as_f64().unwrap() - 3.0).abs() < 0.6, "{report}");
    for (with, units) in drawn.iter().zip(metric["windows"].as_array().unwrap()) {
        let units = units.as_f64().unwrap();
        assert!(if *with { units > 2_000.0 } else { units < 2_000.0 }, "{units} in a window with: {with}; {report}");
    }
    assert!(report["moves"].as_u64().unwrap() >= 4, "one in each window with it: {report}");
    assert!(all_have(program.pid(), &pin.own) && state.journals() == 0, "everything was given back");

    // The same in words, with a policy without decisions.
    let mut nothing = state.cotenant(&["compare", "-p", &program.pid().to_string(), "--policy", "none"]);
    let output = nothing.args(windows).args(["--interval", "10ms"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().filter(|line| line.ends_with("/s")).count(), 5, "four pairs and their mean: {text}");
    assert!(text.starts_with("progress: ") && text.contains("; higher is better\n"), "{text}");
}

/// Holds run/compare.
#[test]
fn everything_is_given_back_after_each_window_and_on_every_signal() {
    let Some(pin) = Pin::find() else { return };
    let mut program = Program::start();
    let pid = program.pid();
    for (name, code) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
        let state = State::new("windows-signals");
        let windows = ["--windows", "400ms", "--runs", "1000"];
        let mut running = compare(&state, &pin, pid, &windows).spawn().unwrap();
        let narrow = || all_have(pid, &pin.cpu);
        eventually("a window with the policy", narrow);
        eventually("what it did is given back for one without", || all_have(pid, &pin.own));
        assert_eq!(running.try_wait().unwrap(), None, "while Cotenant runs");
        for _ in 0..2 {
            eventually("the next window with it", narrow);
            eventually("its end", || !narrow());
        }
        eventually("a window with the policy", narrow);
        signal(name, running.id());
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code, "{output:?}");
        eventually("everything is given back", || all_have(pid, &pin.own));
        if code.is_some() {
            assert!(said(&output).contains("stopped after "), "{output:?}");
            let table = String::from_utf8_lossy(&output.stdout);
            assert!(
                table.starts_with("progress: ") && table.contains("\npair "),
                "what was measured until then: {table}"
            );
        }
    }
    program.kill();
}

/// Holds run/compare.
#[test]
fn a_program_that_ends_meanwhile_is_judged_by_its_complete_windows() {
    let Some(pin) = Pin::find() else { return };
    let (state, mut program) = (State::new("windows-end"), Program::start());
    let pid = program.pid();
    let running = compare(&state, &pin, pid, &["--windows", "400ms", "--runs", "1000", "--json"]).spawn().unwrap();
    for _ in 0..3 {
        eventually("a window with the policy", || all_have(pid, &pin.cpu));
        eventually("its end", || all_have(pid, &pin.own));
    }
    program.kill();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&output);
    assert!(!report["metrics"][0]["pairs"].as_array().unwrap().is_empty(), "{report}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("what was compared ended after ") && notes.contains("of 1000 pairs"), "{notes}");
}

/// Holds run/compare.
#[test]
fn a_metric_that_tells_nothing_ends_it_soon_with_a_code() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("windows-silent");
    // It reports no progress.
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let windows = ["--windows", "300ms", "--runs", "1000"];
    let output = compare(&state, &pin, cat.id(), &windows).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(said(&output).contains("progress cannot be judged, no pair of windows has readings of it"), "{output:?}");
    let failing = ["--metric", "cmd:echo never,every=50ms"];
    let output = compare(&state, &pin, cat.id(), &[&windows[..], &failing].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(
        said(&output).contains("cmd cannot be judged") && said(&output).contains("never"),
        "its own error: {output:?}"
    );
    cat.kill().unwrap();
    cat.wait().unwrap();
}

/// A server of this test's own.
struct Postgres {
    child: Child,
    _folder: TempDir,
}

impl Postgres {
    const PORT: &str = "47654";

    /// `None`, reported, if it is unavailable.
    fn start() -> Option<Self> {
        let folder = TempDir::new("windows-postgres");
        let data = folder.path().display();
        // It refuses root.
        let (own, other) = if is_root() {
            (format!("chown postgres '{data}'"), "setpriv --reuid postgres --regid postgres --clear-groups")
        } else {
            ("true".to_owned(), "")
        };
        let initdb = format!("{own} && {other} initdb -A trust -U postgres -D '{data}/db'");
        let line = format!(
            "PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); cd /; {initdb} >/dev/null 2>&1 || exit 99; \
                            exec {other} postgres -D '{data}/db' -p {} -k '{data}' 2>/dev/null",
            Self::PORT
        );
        let mut child = Command::new("sh").args(["-c", &line]).stdout(Stdio::null()).spawn().unwrap();
        let socket = folder.path().join(format!(".s.PGSQL.{}", Self::PORT));
        eventually("PostgreSQL listens", || socket.exists() || child.try_wait().unwrap().is_some());
        if !socket.exists() {
            skip("there is no PostgreSQL here");
            return None;
        }
        Some(Self { child, _folder: folder })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        signal("INT", self.child.id());
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_server_is_judged_by_its_answers() {
    let Some(pin) = Pin::find() else { return };
    let Some(server) = Postgres::start() else { return };
    let state = State::new("windows-server");
    let metric = format!("postgres:{}:p99,every=200ms", Postgres::PORT);
    let more = ["--all-users", "--windows", "2s", "--runs", "2", "--json", "--metric", &metric];
    let mut command = compare(&state, &pin, server.child.id(), &more);
    let output = command.env("PGUSER", "postgres").env("PGDATABASE", "postgres").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&output);
    let metric = &report["metrics"][0];
    assert_eq!((metric["name"].as_str(), metric["direction"].as_str()), (Some("postgres"), Some("lower_is_better")));
    assert_eq!(metric["pairs"].as_array().unwrap().len(), 2, "{report}");
    let seconds = metric["windows"].as_array().unwrap().iter().map(|p99| p99.as_f64().unwrap());
    assert!(seconds.clone().count() == 4 && seconds.clone().all(|p99| (1e-6..60.0).contains(&p99)), "{report}");
    assert!(metric["gain"]["ci95"][0].as_f64().unwrap() > 0.0, "{report}");
}
