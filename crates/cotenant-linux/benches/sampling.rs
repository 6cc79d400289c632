//! Cost of sampling: CPU time of the sampler in percent of one core at 100 ms, and its memory, at 64, 1,000 and 4,000
//! threads of which 10 % or all run; compared with `perf stat -I 100 -p` and `numad` on the same program. Then the
//! sampler with 400 thread births a second in 200 processes. One JSON object per line. With `-- births` only the
//! latter.
//!
//! Holds see/cost.

use cotenant_linux::sense::observer::{AppTarget, Observer, Options};
use cotenant_linux::sense::perf::Counting;
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sys;
use cotenant_model::topology::{Cpu, Parts};
use cotenant_model::{CpuSet, Time, Topology};
use cotenant_testing::bench::Report;
use cotenant_testing::bench::program::{self, INTERVAL, Running};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn main() {
    program::run_if_asked();
    let seconds: u64 = std::env::var("COTENANT_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let length = Duration::from_secs(seconds);
    let mut rows = Report::new("sampling");
    let births_only = std::env::args().any(|arg| arg == "births");
    let sizes: &[usize] = if births_only { &[] } else { &[64, 1_000, 4_000] };
    for &threads in sizes {
        for running in [threads / 10, threads] {
            let program = program::start(threads, running);
            let mut report = |tool: &str, what: Value| {
                let mut row = json!({"tool": tool, "threads": threads, "running": running});
                row.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
                rows.row(row);
            };
            report("cotenant", cotenant(&program, length, Counting::Hardware));
            report("cotenant, /proc only", cotenant(&program, length, Counting::Nothing));
            report("perf stat", perf_stat(&program, length));
            report("numad", numad(&program, length));
        }
    }
    for births in program::BIRTHS {
        let crowd = program::start_crowd(births);
        for (tool, counting) in [("cotenant", Counting::Hardware), ("cotenant, /proc only", Counting::Nothing)] {
            let mut row = json!({"tool": tool, "processes": program::CROWD, "births": births});
            let what = cotenant(&crowd, length, counting);
            row.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
            rows.row(row);
        }
    }
}

fn cotenant(program: &Running, length: Duration, counting: Counting) -> Value {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus = CpuSet::parse_list(&online).unwrap();
    let cpu = |id| Cpu { id, online: true, allowed: true, efficiency_class: None, coord: None };
    let topology = Topology::new(Parts { cpus: cpus.iter().map(cpu).collect(), ..Parts::default() }).unwrap();
    let app = AppTarget { name: "program".into(), target: Target::Trees(vec![program.0.id()]) };
    let options = Options { counting, ..Options::default() };
    let mut observer = Observer::new(&topology, vec![app], options).unwrap();
    let begin = Instant::now();
    let before = cpu_seconds();
    let sample = |observer: &mut Observer| {
        let at = Time(begin.elapsed().as_nanos() as u64);
        observer.sample(at, &mut |new| new.mask.clone()).unwrap()
    };
    let tasks = sample(&mut observer).tasks.len();
    let start_cost = cpu_seconds() - before;
    let mut last = sample(&mut observer);
    let (begin_loop, before) = (Instant::now(), cpu_seconds());
    let (mut rounds, mut late, mut ran, mut apart) = (0, 0, 0, 0.0);
    let rss_at_start = rss_mb("self");
    while begin_loop.elapsed() < length {
        rounds += 1;
        std::thread::sleep((begin_loop + INTERVAL * rounds).saturating_duration_since(Instant::now()));
        let next = sample(&mut observer);
        late += u32::from(begin_loop.elapsed() > INTERVAL * (rounds + 1));
        let counting_began = cpu_seconds();
        let pairs = last.tasks.iter().zip(&next.tasks);
        ran += pairs.filter(|(a, b)| a.counters != b.counters).count();
        apart += cpu_seconds() - counting_began; // the benchmark's own
        last = next; // the loop keeps one sample, like every host's
    }
    let used = cpu_seconds() - before - apart;
    json!({
        "percent_of_a_core": 100.0 * used / begin_loop.elapsed().as_secs_f64(),
        "us_per_sample": 1e6 * used / f64::from(rounds),
        "rounds": rounds,
        "late_by_an_interval": late,
        "changed_per_sample": ran / rounds as usize,
        "first_sample_ms": 1e3 * start_cost,
        "rss_mb_at_start": rss_at_start,
        "rss_mb": rss_mb("self"),
        "tasks": tasks,
        "tasks_at_end": last.tasks.len(),
        "descriptors": observer.descriptors(),
        "tier": observer.tier().tier.to_string(),
    })
}

fn perf_stat(program: &Running, length: Duration) -> Value {
    let mut command = Command::new("perf");
    command.args(["stat", "-I", "100", "-e", "task-clock,migrations,page-faults", "-p", &program.0.id().to_string()]);
    beside(command, length, libc::SIGINT)
}

/// numad scans this program every second or two. It daemonizes, so its own accounting is read.
fn numad(program: &Running, length: Duration) -> Value {
    const PID_FILE: &str = "/var/run/numad.pid";
    const THP: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
    let not_measured = |why: String| json!({"not_measured": why});
    let numad = |arguments: &[&str]| {
        let quiet = |c: &mut Command| c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet(Command::new("numad").args(arguments))
    };
    let daemon = || std::fs::read_to_string(PID_FILE).ok()?.trim().parse::<u32>().ok();
    let used = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok().filter(|ns| *ns > 0.0)
    };
    if daemon().and_then(used).is_some() {
        return not_measured("a numad runs already".into());
    }
    // It would change the machine's huge-page scanning, so it gets the current value.
    let thp = std::fs::read_to_string(THP).unwrap_or_else(|_| "10000".into());
    let pid = program.0.id().to_string();
    match numad(&["-S", "0", "-p", &pid, "-i", "1:2", "-H", thp.trim()]) {
        Ok(status) if status.success() => {}
        Ok(status) => return not_measured(format!("numad ends with {status}")),
        Err(error) => return not_measured(format!("numad: {error}")),
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    let (daemon, before) = loop {
        match daemon().and_then(|pid| Some((pid, used(pid)?))) {
            Some(found) => break found,
            None if Instant::now() > deadline => return not_measured("numad left no daemon".into()),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let begin = Instant::now();
    std::thread::sleep(length);
    let (after, seconds) = (used(daemon), begin.elapsed().as_secs_f64());
    let rss = rss_mb(&daemon.to_string());
    let _ = numad(&["-i", "0"]);
    while used(daemon).is_some_and(|now| Some(now) != after) && Instant::now() < begin + 2 * length {
        std::thread::sleep(Duration::from_millis(10)); // until it has seen its end
    }
    match after {
        Some(after) => json!({"percent_of_a_core": 100.0 * (after - before) / 1e9 / seconds, "rss_mb": rss}),
        None => not_measured("numad ended while it was measured".into()),
    }
}

/// Runs another tool for this long and returns its usage.
fn beside(mut command: Command, length: Duration, signal: i32) -> Value {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return json!({"not_measured": error.to_string()}),
    };
    std::thread::sleep(length);
    // SAFETY: a zeroed rusage is valid; the pid is that of our own child, which is reaped once, here.
    let (usage, status) = unsafe {
        let (mut usage, mut status): (libc::rusage, i32) = (std::mem::zeroed(), 0);
        libc::kill(child.id().cast_signed(), signal);
        libc::wait4(child.id().cast_signed(), &raw mut status, 0, &raw mut usage);
        (usage, status)
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let used = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    if used < 0.001 && libc::WIFEXITED(status) {
        return json!({"not_measured": format!("it ended at once with status {}", libc::WEXITSTATUS(status))});
    }
    json!({
        "percent_of_a_core_with_start": 100.0 * used / begin.elapsed().as_secs_f64(),
        "rss_mb": usage.ru_maxrss as f64 / 1024.0,
    })
}

fn cpu_seconds() -> f64 {
    sys::own_cpu_time().as_secs_f64()
}

/// Resident memory of a process, without the kernel's memory for counters.
fn rss_mb(process: &str) -> f64 {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(f64::NAN);
    pages * 4096.0 / f64::from(1 << 20)
}
