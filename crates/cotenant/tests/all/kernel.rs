//! `cotenant kernel` for a user.

use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");

fn kernel(args: &[&str]) -> Command {
    let mut command = Command::new(COTENANT);
    command.arg("kernel").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Output {
    kernel(args).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// A usable CPU.
fn one_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_list_names_every_kernel_and_each_runs() {
    let list = json(&run(&["--list", "--json"]));
    let text = String::from_utf8(run(&["--list"]).stdout).unwrap();
    assert!(list.as_array().unwrap().len() > 20);
    for row in list.as_array().unwrap() {
        let name = row["kernel"].as_str().unwrap();
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}");
        let mut args = vec![name, "--units", "1000", "--threads", "2", "--json"];
        if !row["size"].is_null() {
            args.extend(["--size", "64K"]);
        }
        let report = json(&run(&args));
        assert_eq!(report["units"], 2000, "{name}");
        assert_eq!(report["unit"], row["unit"], "{name}");
        assert_eq!(report["threads"].as_array().unwrap().len(), 2, "{name}");
        let checked = name.starts_with("stream") || name.starts_with("bst");
        assert_eq!(report["wrong"], if checked { 0.into() } else { Value::Null }, "{name}");
    }
}

#[test]
fn the_table_says_unit_rate_and_cpu() {
    let output = run(&["stream", "--units", "5000", "--size", "64K", "--pin", &one_cpu()]);
    let text = String::from_utf8(output.stdout).unwrap();
    for wanted in ["elements", "per second", "GB/s", "all results are right", "64 KiB each"] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let shared = String::from_utf8(run(&["lubench", "--units", "5000"]).stdout).unwrap();
    assert!(shared.contains("2 threads, 961 steps") && shared.contains("another thread's write"), "{shared}");
}

/// Holds measure/kernels.
#[test]
fn a_signal_ends_it_with_the_result_so_far() {
    for signal in ["INT", "TERM", "HUP"] {
        let child = kernel(&["cpu", "--seconds", "1000", "--json"]).spawn().unwrap();
        await_threads(&child, 2);
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{signal}: {}", stderr(&output));
        assert!(json(&output)["seconds"].as_f64().unwrap() < 1000.0);
        assert_eq!(stderr(&output), "cotenant: stopped; this is the result so far\n");
    }
}

/// Waits until the process has that many threads: by then it blocks the signals.
fn await_threads(child: &Child, wanted: usize) {
    let tasks = format!("/proc/{}/task", child.id());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while std::fs::read_dir(&tasks).map_or(0, Iterator::count) < wanted {
        assert!(std::time::Instant::now() < end, "no {wanted} threads within 300 s");
        std::thread::yield_now();
    }
}

/// Holds measure/kernels.
#[test]
fn a_rate_that_cannot_be_reached_is_reported() {
    let output = run(&["inject-l2", "--rate", "1e12", "--units", "20000000", "--size", "64K", "--json"]);
    let report = json(&output);
    assert_eq!(report["rate"], 1e12);
    assert!(report["per_second"].as_f64().unwrap() < 1e12);
    assert!(stderr(&output).contains("of the rate of 1.000 T per second and thread"), "{}", stderr(&output));
}

/// Holds measure/kernels.
#[test]
fn what_is_not_possible_is_one_line_and_exit_code_2() {
    for (args, wanted) in [
        (&["hubbench"][..], "there is no kernel 'hubbench'; there are cpu, hubench, lubench"),
        (&["chase", "--size", "0"], "give at least 4096"),
        (&["chase", "--size", "9000T"], "are more than the"),
        (&["stream", "--size", "9000T", "--threads", "16000"], "are more than the"),
        (&["chase", "--size", "big"], "is not a unit of size"),
        (&["cpu", "--threads", "0"], "0 threads are not possible"),
        (&["cpu", "--threads", "99999999"], "99999999 threads are not possible"),
        (&["cpu", "--threads", "-1"], "'-1'"),
        (&["cpu", "--seconds", "0"], "--seconds 0"),
        (&["cpu", "--seconds", "-1"], "--seconds -1"),
        (&["cpu", "--seconds", "nan"], "--seconds NaN"),
        (&["cpu", "--seconds", "1e300"], "out of range"),
        (&["cpu", "--units", "0"], "--units 0"),
        (&["cpu", "--rate", "5"], "cpu has no rate"),
        (&["inject-l2", "--rate", "-5"], "rate -5 is out of range"),
        (&["inject-l2", "--rate", "inf"], "rate inf is out of range"),
        (&["rmw", "--stride", "7"], "stride 7 is out of range"),
        (&["lubench", "--compute", "99999999999"], "compute 99999999999 is out of range"),
        (&["cpu", "--pin", "60000"], "thread 0 cannot run on CPU 60000"),
        (&["cpu", "--pin", ""], "the list is empty"),
        (&["cpu", "--pin", "a"], "--pin: 'a' is not a CPU list"),
        (&[], "<NAME>"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_limit_of_the_system_is_one_line_and_exit_code_1() {
    let script = format!("ulimit -v 1000000 && exec {COTENANT} kernel chase --size 1G --seconds 1");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let expected = "the system gives this process no 1 × 1073741824 bytes; give a smaller size";
    assert!(stderr(&output).contains(expected) && stderr(&output).lines().count() == 1, "{}", stderr(&output));
}

#[test]
fn threads_that_had_no_turn_are_counted() {
    // Certainly starved: bound to one CPU, and ended before a second one could have had a turn.
    let output = run(&["cpu", "--threads", "200", "--pin", &one_cpu(), "--seconds", "1e-9", "--json"]);
    let idle = json(&output)["threads"].as_array().unwrap().iter().filter(|thread| thread["units"] == 0).count();
    assert!(idle > 0, "a nanosecond is not enough for 200 threads");
    assert!(stderr(&output).contains(&format!("{idle} of 200 threads did nothing")), "{}", stderr(&output));
}

#[test]
fn who_manages_a_kernel_sees_its_progress() {
    // By then a slow starter is looked for rarely, so it has to run for longer.
    for seconds in ["1.5", "8", "40"] {
        let kernel = [COTENANT, "kernel", "cpu", "--threads", "2", "--seconds", seconds, "--json"];
        let out = Command::new(COTENANT).args(["run", "--json", "--"]).args(kernel).output().unwrap();
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        let summary = String::from_utf8(out.stderr).unwrap();
        let summary: Value = serde_json::from_str(summary.lines().last().unwrap()).unwrap();
        if !summary["progress"].is_null() {
            assert_eq!(summary["progress"]["units"], report["units"], "{summary}");
            return;
        }
    }
    panic!("its progress was never found");
}
