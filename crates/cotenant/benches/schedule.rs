//! Twelve real jobs on two CPUs under every rival of `cotenant schedule`: makespans, times of the jobs, and what the quanta cost.
//!
//! `cargo bench -p cotenant --bench schedule`; `COTENANT_BENCH_RUNS` (default 3) repetitions, in each of which the rivals come in another
//! order; `COTENANT_BENCH_MIB` (default 12) of text that the jobs work on. One JSON object per rival, times in seconds: `makespan_s` of
//! each repetition, `over_linux` = makespan / that of `linux` in the same repetition, `job_s` the mean time of a job from its start to its
//! end, `gap_us` from the first stop to the last resume of a quantum, `gap_share` which fraction of the time that is.
//!
//! `overhead` lets all jobs run like `linux`, and stops and resumes them in every quantum: what the machinery alone costs. That is a last
//! object, `pairs`: `COTENANT_BENCH_PAIRS` (default 10) runs of both right after one another, either one first in turns; ratios of their
//! makespans and of the jobs' CPU time, the mean and the half width of its 95 % confidence interval.
//!
//! The jobs' rates are known only where they can be counted or are in stored profiles; else `mas`, `cas` and `das` take them in turns.

#[path = "../../../benches/report.rs"]
mod report;

use cotenant_core::stats::Summary;
use report::Report;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const RIVALS: [&str; 6] = ["linux", "overhead", "fifo", "mas", "cas", "das"];

/// Programs that every Linux has or easily gets, on one text.
const JOBS: [&str; 12] = [
    "xz -4 -k -c text > xz4.out",
    "sort text > sort.out",
    "gzip -9 -k -c text > gzip.out",
    "sha256sum text text text text text text text text",
    "bzip2 -k -c text > bzip2.out",
    "sort -r -k 3 text > sort3.out",
    "xz -2 -k -c text > xz2.out",
    "awk '{ n[$2] += NF } END { for (w in n) s += n[w]; print s }' text",
    "gzip -6 -k -c text > gzip6.out",
    "tac text | sort -n > sortn.out",
    "sha512sum text text text text text text text text text text text text",
    "bzip2 -1 -k -c text > bzip1.out",
];

fn main() {
    let number = |name: &str, default: usize| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (runs, mib) = (number("COTENANT_BENCH_RUNS", 3), number("COTENANT_BENCH_MIB", 12));
    let pairs = number("COTENANT_BENCH_PAIRS", 10);
    let folder = std::env::temp_dir().join(format!("cotenant-schedule-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the jobs");
    fs::write(folder.join("text"), text(mib << 20)).expect("room for the text");
    let jobs: Vec<&str> = JOBS.into_iter().filter(|job| is_there(job)).collect();
    fs::write(folder.join("queue"), jobs.join("\n")).expect("room for the queue");
    let mut runs_of: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for run in 0..runs {
        for i in 0..RIVALS.len() {
            let rival = RIVALS[(i + run) % RIVALS.len()];
            let summary = schedule(&folder, rival);
            assert_eq!(summary["failed"], 0, "{rival}: {summary}");
            runs_of.entry(rival).or_default().push(summary);
        }
    }
    let paired: Vec<[Value; 2]> = (0..pairs).map(|pair| one_pair(&folder, pair)).collect();
    let mut report = Report::new("schedule");
    for rival in RIVALS {
        let all =
            |key: &str| -> Vec<f64> { runs_of[rival].iter().filter_map(|run| run.pointer(key)?.as_f64()).collect() };
        let mean = |figures: &[f64]| (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64);
        let over: Vec<f64> = runs_of[rival]
            .iter()
            .zip(&runs_of["linux"])
            .filter_map(|(run, linux)| Some(run["makespan_s"].as_f64()? / linux["makespan_s"].as_f64()?))
            .collect();
        let times: Vec<f64> = runs_of[rival]
            .iter()
            .flat_map(|run| run["jobs"].as_array().into_iter().flatten().filter_map(|job| job["seconds"].as_f64()))
            .collect();
        let cpu: Vec<f64> = runs_of[rival].iter().map(cpu_s).collect();
        report.row(json!({
            "policy": rival,
            "jobs": jobs.len(),
            "cpus": runs_of[rival][0]["cpus"],
            "pause": runs_of[rival][0]["pause"],
            "load_average": load_average(),
            "makespan_s": all("/makespan_s"),
            "over_linux": over,
            "job_s": mean(&times),
            "jobs_cpu_s": cpu,
            "gap_us": mean(&all("/gap_us/mean")),
            "gap_share": mean(&all("/gap_us/share")),
            "own_cpu": mean(&all("/overhead")),
        }));
    }
    let makespan = |run: &Value| run["makespan_s"].as_f64().expect("a makespan");
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
fn cpu_s(run: &Value) -> f64 {
    run["jobs"].as_array().into_iter().flatten().filter_map(|job| job["cpu_s"].as_f64()).sum()
}

fn ratios(pairs: &[[Value; 2]], of: impl Fn(&Value) -> f64) -> Vec<f64> {
    pairs.iter().map(|[linux, overhead]| of(overhead) / of(linux)).collect()
}

/// The mean and the half width of its 95 % confidence interval; null where there are too few.
fn estimate(ratios: &[f64]) -> Option<Value> {
    let estimate = Summary::of(ratios).estimate()?;
    Some(json!({ "value": estimate.value, "half_width": estimate.half_width }))
}

fn schedule(folder: &Path, rival: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(["schedule", "queue", "--policy", rival, "--cpus", "0,1", "--json"]);
    if rival != "fifo" {
        command.args(["--jobs", "12"]);
    }
    let output = command.current_dir(folder).output().expect("cotenant starts");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Whether the program of a job is installed; said aloud where not.
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
