//! The cost of Cotenant as a whole, with its guardian: CPU time in percent of one core at an interval of 100 ms, and
//! memory, on a program of 1,000 threads of which 100 or all run; compared with `perf stat -I 100 -p` on the same
//! program. The start of a tool is left out: its time counts from 15 seconds after it. `auto` samples less often than
//! each 100 ms where there is nothing to decide, as without a PMU; `static` moves all threads once, and then only
//! checks them.
//!
//! `top` draws on a terminal of 200 by 50 through `script`, whose own cost is included.
//!
//! Then the same on a crowd of 200 processes with 400 new threads per second.
//!
//! `cargo bench -p cotenant --bench end_to_end`; `COTENANT_BENCH_SECONDS` (default 20) is the length of each
//! measurement. With `-- births` the crowd only.
//!
//! Holds see/cost.

use cotenant_testing::bench::Report;
use cotenant_testing::bench::cost::{cpu_ns, family, memory_kib};
use cotenant_testing::bench::daemon::cpus;
use cotenant_testing::bench::program::{self, Running};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");
/// Looks at processes become rarer in the first seconds.
const SETTLE: Duration = Duration::from_secs(15);
const THREADS: usize = 1_000;

fn main() {
    program::run_if_asked();
    let seconds = std::env::var("COTENANT_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let length = Duration::from_secs(seconds);
    let folder = std::env::temp_dir().join(format!("cotenant-end-to-end-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for recordings");
    let recording = folder.join("a.rec");
    let recording = recording.to_str().expect("a plain path");
    let cotenant = env!("CARGO_BIN_EXE_cotenant");
    let top = format!("stty rows 50 cols 200; exec {cotenant} top --no-daemon");
    // One CPU for all: everything is moved, so that there is a guardian.
    let map = format!("X{}", ".".repeat(cpus(COTENANT) - 1));
    let mut report = Report::new("end_to_end");
    let births_only = std::env::args().any(|arg| arg == "births");
    let programs = [100, THREADS].map(|running| json!({"threads": THREADS, "running": running}));
    let crowds = program::BIRTHS.map(|births| json!({"processes": program::CROWD, "births": births}));
    for target_is in programs.into_iter().filter(|_| !births_only).chain(crowds) {
        let target = match (target_is["running"].as_u64(), target_is["births"].as_str()) {
            (_, Some(births)) => program::start_crowd(births),
            (running, None) => program::start(THREADS, running.unwrap_or(0) as usize),
        };
        let pid = target.0.id().to_string();
        let cases: &[&[&str]] = &[
            &["cotenant", "attach", "-q", "-p", &pid, "--policy", "none", "--mode", "observe"],
            &["cotenant", "attach", "-q", "-p", &pid, "--policy", "auto"],
            &["cotenant", "attach", "-q", "-p", &pid, "--policy", "none", "--mode", "observe", "--record", recording],
            &["cotenant", "attach", "-q", "-p", &pid, "--policy", "static", "--map", &map, "--pin", "cpu"],
            &["script", "-qfec", &top, "/dev/null"],
            &["perf", "stat", "-I", "100", "-e", "task-clock,migrations,page-faults", "-p", &pid],
        ];
        for words in cases {
            let program = if words[0] == "cotenant" { cotenant } else { words[0] };
            let mut command = Command::new(program);
            command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut row = measure(command, length);
            let shown = words.iter().map(|w| if *w == pid { "PID" } else { w }).collect::<Vec<_>>().join(" ");
            row["command"] = shown.replace(recording, "FILE").replace(cotenant, "cotenant").into();
            row.as_object_mut().expect("an object").extend(target_is.as_object().expect("an object").clone());
            report.row(row);
            let _ = fs::remove_file(recording);
        }
    }
    let _ = fs::remove_dir_all(folder);
}

/// The usage of a tool and its child processes while it runs.
fn measure(mut command: Command, length: Duration) -> Value {
    let mut tool = match command.spawn() {
        Ok(tool) => Running(tool),
        Err(error) => return json!({ "not_measured": error.to_string() }),
    };
    std::thread::sleep(SETTLE);
    let family = family(tool.0.id());
    let used = || family.iter().map(|pid| cpu_ns(*pid)).sum::<u64>();
    let (begin, before) = (Instant::now(), used());
    std::thread::sleep(length);
    let (elapsed, after) = (begin.elapsed(), used());
    if let Ok(Some(status)) = tool.0.try_wait() {
        return json!({ "not_measured": format!("it ended early: {status}") });
    }
    let memory_mb = family.iter().map(|pid| memory_kib(*pid, "VmHWM:")).sum::<u64>() as f64 / 1024.0;
    let end = Command::new("kill").args(["-TERM", &tool.0.id().to_string()]).status();
    if end.is_ok_and(|status| status.success()) {
        let _ = tool.0.wait();
    }
    json!({
        "percent_of_a_core": (after - before) as f64 / elapsed.as_nanos() as f64 * 100.0,
        "peak_memory_mb": memory_mb,
        "processes": family.len(),
        "seconds": elapsed.as_secs_f64(),
    })
}
