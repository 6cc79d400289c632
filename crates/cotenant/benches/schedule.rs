//! Twelve real jobs on two CPUs under every rival of `cotenant schedule`: makespans, times of the jobs, and the cost of
//! quanta.
//!
//! `cargo bench -p cotenant --bench schedule`; `COTENANT_BENCH_RUNS` (default 3) repetitions, in each of which rivals
//! and jobs come in another order, the jobs the same for all rivals; `COTENANT_BENCH_SEED` (default 1) for other orders
//! of the jobs; `COTENANT_BENCH_MIB` (default 12) of text that the jobs work on. One JSON object per rival, times in
//! seconds: `makespan_s` of each repetition, `over_linux` = makespan / that of `linux` in the same repetition, `job_s`
//! the mean time of a job from its start to its end, `gap_us` from the first stop to the last resume of a quantum,
//! `gap_share` which fraction of the time that is. Why makespans differ says `jobs_cpu_s`, the CPU time of all jobs in
//! each repetition, `program_cpu_s`, that of the jobs of each program, and `cpus_s`, what the two CPUs did meanwhile:
//! more CPU time of the same jobs where they disturb each other, idle CPUs where too few run, steal where the host gave
//! the CPUs to others (all means over the repetitions). `largest_job` is the part of the work that the longest job has:
//! where that is much, whoever starts it first wins, whatever else it does; above a sixth the bench says so.
//!
//! `overhead` lets all jobs run like `linux`, and stops and resumes them in every quantum: what the machinery alone
//! costs. That is a last object, `pairs`: `COTENANT_BENCH_PAIRS` (default 10) runs of both right after one another,
//! either one first in turns; ratios of their makespans and of the jobs' CPU time, the mean and the half width of its
//! 95 % confidence interval.
//!
//! `COTENANT_BENCH_ONLY=overhead` measures that finer, and nothing else: `COTENANT_BENCH_PAIRS` (default 60) pairs of
//! batches of eight jobs that only compute, about 2 s each, either first in turns; the median of the ratios with its
//! rank-based 95 % interval, which a few disturbed pairs do not move: costs below 1 % are measurable even on a busy
//! machine.
//!
//! The jobs' rates are known only from counters or stored profiles; otherwise `mas`, `cas` and `das` take them in
//! turns.

use cotenant_model::stats::Summary;
use cotenant_model::stats::median::median;
use cotenant_testing::bench::Report;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const RIVALS: [&str; 6] = ["linux", "overhead", "fifo", "mas", "cas", "das"];

/// Programs that every Linux has or easily gets, on one text, or on `part`, its first sixth: of similar length.
const JOBS: [&str; 12] = [
    "xz -4 -k -c part > xz4.out",
    "sort text text text > sort.out",
    "gzip -9 -k -c text > gzip.out",
    "sha256sum $(yes text | head -n 40)",
    "bzip2 -k -c text text > bzip2.out",
    "sort -r -k 3 text text text > sort3.out",
    "xz -2 -k -c part > xz2.out",
    "awk '{ n[$2] += NF } END { for (w in n) s += n[w]; print s }' $(yes text | head -n 20)",
    "gzip -6 -k -c text text > gzip6.out",
    "tac text text text | sort -n > sortn.out",
    "sha512sum $(yes text | head -n 48)",
    "bzip2 -1 -k -c text text > bzip1.out",
];

/// The part of all work above which a job decides the makespan by when it starts.
const LARGE: f64 = 1.0 / 6.0;

/// Jobs of a batch that only computes, and the CPU seconds of each.
const COMPUTING: (usize, f64) = (8, 0.5);

fn main() {
    let number = |name: &str, default: usize| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (runs, mib) = (number("COTENANT_BENCH_RUNS", 3), number("COTENANT_BENCH_MIB", 12));
    let fine = std::env::var("COTENANT_BENCH_ONLY").is_ok_and(|only| only == "overhead");
    let pairs = number("COTENANT_BENCH_PAIRS", if fine { 60 } else { 10 });
    let folder = std::env::temp_dir().join(format!("cotenant-schedule-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the jobs");
    if fine {
        overhead(&folder, pairs);
        let _ = fs::remove_dir_all(&folder);
        return;
    }
    let text = text(mib << 20);
    fs::write(folder.join("part"), &text[..text.len() / 6]).expect("room for the text");
    fs::write(folder.join("text"), text).expect("room for the text");
    let mut jobs: Vec<&str> = JOBS.into_iter().filter(|job| is_there(job)).collect();
    let mut rng = Rng::with_seed(number("COTENANT_BENCH_SEED", 1) as u64);
    let mut shuffle = |folder: &Path| {
        rng.shuffle(&mut jobs);
        fs::write(folder.join("queue"), jobs.join("\n")).expect("room for the queue");
    };
    let mut runs_of: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for run in 0..runs {
        shuffle(&folder);
        for i in 0..RIVALS.len() {
            let rival = RIVALS[(i + run) % RIVALS.len()];
            let summary = schedule(&folder, rival);
            assert_eq!(summary["failed"], 0, "{rival}: {summary}");
            runs_of.entry(rival).or_default().push(summary);
        }
    }
    let one = |pair| {
        shuffle(&folder);
        one_pair(&folder, pair)
    };
    let paired: Vec<[Value; 2]> = (0..pairs).map(one).collect();
    let mut report = Report::new("schedule");
    for rival in RIVALS {
        let runs = &runs_of[rival];
        let all = |key: &str| figures(runs, key);
        let mean = |key: &str| mean(&all(key));
        let linux = figures(&runs_of["linux"], "/makespan_s");
        let over: Vec<f64> = all("/makespan_s").iter().zip(&linux).map(|(own, linux)| own / linux).collect();
        let jobs_of = |run: &Value| figures(run["jobs"].as_array().into_iter().flatten(), "/seconds");
        let times: Vec<f64> = runs.iter().flat_map(jobs_of).collect();
        let cpu: Vec<f64> = runs.iter().map(cpu_s).collect();
        let of_each = each_program(runs);
        let part = |run: &Value| job_cpus_s(run).into_iter().fold(0.0, f64::max) / cpu_s(run);
        let largest = self::mean(&runs.iter().map(part).collect::<Vec<_>>());
        if let Some(largest) = largest.filter(|part| *part > LARGE) {
            eprintln!("{rival}: a job is {:.0} % of all work: makespans say when it was started", largest * 100.0);
        }
        report.row(json!({
            "policy": rival,
            "jobs": jobs.len(),
            "cpus": runs[0]["cpus"],
            "pause": runs[0]["pause"],
            "load_average": load_average(),
            "makespan_s": all("/makespan_s"),
            "over_linux": over,
            "job_s": self::mean(&times),
            "jobs_cpu_s": cpu,
            "program_cpu_s": of_each,
            "largest_job": largest,
            "cpus_s": { "busy": mean("/cpus_s/busy"), "idle": mean("/cpus_s/idle"), "steal": mean("/cpus_s/steal") },
            "gap_us": mean("/gap_us/mean"),
            "gap_share": mean("/gap_us/share"),
            "own_cpu": mean("/overhead"),
        }));
    }
    let (spans, cpu) = (ratios(&paired, makespan), ratios(&paired, cpu_s));
    report.row(json!({
        "pairs": pairs,
        "load_average": load_average(),
        "overhead_over_linux": spans,
        "mean": estimate(&spans),
        "cpu_over_linux": cpu,
        "cpu_mean": estimate(&cpu),
    }));
    let _ = fs::remove_dir_all(&folder);
}

/// A figure of each that has it.
fn figures<'a>(of: impl IntoIterator<Item = &'a Value>, key: &str) -> Vec<f64> {
    of.into_iter().filter_map(|one| one.pointer(key)?.as_f64()).collect()
}

fn mean(figures: &[f64]) -> Option<f64> {
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}

fn makespan(run: &Value) -> f64 {
    run["makespan_s"].as_f64().expect("a makespan")
}

/// The cost of quanta for jobs that only compute.
fn overhead(folder: &Path, pairs: usize) {
    let job = |rounds: u64| format!("awk 'BEGIN {{ for (i = 0; i < {rounds}; i++) s += i % 7; print s }}'");
    // The same work in all batches: about the wanted time on this machine now.
    let (mut rounds, wanted) = (1_000_000, COMPUTING.1);
    loop {
        let start = Instant::now();
        let status = Command::new("sh").args(["-c", &format!("{} > /dev/null", job(rounds))]).status();
        assert!(status.is_ok_and(|status| status.success()), "there is no awk here");
        let took = start.elapsed().as_secs_f64();
        if took > wanted / 2.0 {
            rounds = (rounds as f64 * wanted / took) as u64;
            break;
        }
        rounds *= 2;
    }
    fs::write(folder.join("queue"), vec![job(rounds); COMPUTING.0].join("\n")).expect("room for the queue");
    let paired: Vec<[Value; 2]> = (0..pairs).map(|pair| one_pair(folder, pair)).collect();
    let interval = |ratios: &[f64]| median(ratios).map(|m| json!({ "median": m.value, "low": m.low, "high": m.high }));
    let mean = |which: usize, key: &str| Summary::of(&figures(paired.iter().map(|pair| &pair[which]), key)).mean;
    let mut report = Report::new("schedule");
    report.row(json!({
        "pairs": pairs,
        "jobs": COMPUTING.0,
        "load_average": load_average(),
        "makespan_s": [mean(0, "/makespan_s"), mean(1, "/makespan_s")],
        "makespan_over_linux": interval(&ratios(&paired, makespan)),
        "cpu_over_linux": interval(&ratios(&paired, cpu_s)),
        "quanta": mean(1, "/quanta"),
        "gap_us": mean(1, "/gap_us/mean"),
        "gap_share": mean(1, "/gap_us/share"),
        "own_cpu": [mean(0, "/overhead"), mean(1, "/overhead")],
        "steal_s": [mean(0, "/cpus_s/steal"), mean(1, "/cpus_s/steal")],
    }));
}

/// The mean CPU time of each program's jobs, wherever they were in the queue.
fn each_program(runs: &[Value]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for job in runs.iter().flat_map(|run| run["jobs"].as_array().into_iter().flatten()) {
        let (Some(name), Some(cpu)) = (job["name"].as_str(), job["cpu_s"].as_f64()) else { continue };
        let name = name.split_once('-').map_or(name, |(_, line)| line);
        *sums.entry(name.to_owned()).or_default() += cpu / runs.len() as f64;
    }
    sums
}

/// Seconds that the first two CPUs were busy, idle, and with others of the host, since the machine started
/// (`proc(5)`, in hundredths).
fn cpus_s() -> [f64; 3] {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut sums = [0.0; 3];
    for line in text.lines().filter(|line| line.starts_with("cpu0 ") || line.starts_with("cpu1 ")) {
        let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal
        if let [user, nice, system, idle, waiting, irq, soft, steal, ..] = ticks[..] {
            let seconds = [user + nice + system + irq + soft, idle + waiting, steal].map(|ticks| ticks / 100.0);
            sums.iter_mut().zip(seconds).for_each(|(sum, s)| *sum += s);
        }
    }
    sums
}

/// `linux` and `overhead`, in turning order.
fn one_pair(folder: &Path, pair: usize) -> [Value; 2] {
    if pair.is_multiple_of(2) {
        let linux = schedule(folder, "linux");
        [linux, schedule(folder, "overhead")]
    } else {
        let overhead = schedule(folder, "overhead");
        [schedule(folder, "linux"), overhead]
    }
}

/// CPU time of all jobs.
fn job_cpus_s(run: &Value) -> Vec<f64> {
    figures(run["jobs"].as_array().into_iter().flatten(), "/cpu_s")
}

fn cpu_s(run: &Value) -> f64 {
    job_cpus_s(run).iter().sum()
}

fn ratios(pairs: &[[Value; 2]], of: impl Fn(&Value) -> f64) -> Vec<f64> {
    pairs.iter().map(|[linux, overhead]| of(overhead) / of(linux)).collect()
}

/// The mean and the half width of its 95 % confidence interval; null with too few values.
fn estimate(ratios: &[f64]) -> Option<Value> {
    let estimate = Summary::of(ratios).estimate()?;
    Some(json!({ "value": estimate.value, "half_width": estimate.half_width }))
}

fn schedule(folder: &Path, rival: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(["schedule", "queue", "--policy", rival, "--cpus", "0,1", "--json", "--anew"]);
    if rival != "fifo" {
        command.args(["--jobs", "12"]);
    }
    let before = cpus_s();
    let output = command.current_dir(folder).output().expect("cotenant starts");
    let after = cpus_s();
    let mut summary: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let [busy, idle, steal] = [0, 1, 2].map(|i| after[i] - before[i]);
    summary["cpus_s"] = json!({ "busy": busy, "idle": idle, "steal": steal });
    summary
}

/// Whether the program of a job is installed; prints a message if not.
fn is_there(job: &str) -> bool {
    let program = job.split(' ').next().unwrap_or_default();
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: {job}: there is no {program} here");
    }
    there
}

/// Lines of numbers and words, always the same (xorshift).
fn text(bytes: usize) -> String {
    let (mut text, mut seed) = (String::new(), 88_172_645_463_325_252_u64);
    while text.len() < bytes {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let _ = writeln!(text, "{} word{} {}", seed % 1_000_003, seed % 4_099, (seed >> 32) % 65_537);
    }
    text
}

/// Of the last minute: others' work makes makespans longer.
fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
