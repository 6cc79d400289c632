//! What a program of high priority keeps, and a batch program gets, side by side in five ways: as they are, under `nice -n 19`, a CPU quota,
//! CPU weights, and naps by `cotenant qos` at a goal of 90 %.
//!
//! `cargo bench -p cotenant --bench qos`. `COTENANT_BENCH_RUNS` (default 5) rounds; in each the program runs alone and in all five ways, in
//! another order each time, so that every figure is a ratio to the run alone of its own round. `COTENANT_BENCH_SECONDS` (default 10) each;
//! `COTENANT_BENCH_ONLY` (as `kernel/stress-ng`) chooses pairs, `COTENANT_BENCH_CPUS` (as `0`) pins both to these CPUs: where two cores are
//! hardly in each other's way, one core shared by both is. High: a pointer chase, redis under redis-benchmark, `PostgreSQL` under pgbench; low:
//! `sledge-large`, compilations, stress-ng. What is not installed is left out, and said so. Root: groups of version 1 are made.
//!
//! One JSON object per pair and way: `kept`, median of speed over speed alone, with `least` and `most`, the ends of its interval of at least
//! 95 % by order statistics (below 6 rounds: of all rounds); `batch_cpus`, median CPU time per second of the batch program; `monitor_cpus`.

#[path = "../../../benches/report.rs"]
mod report;

use report::Report;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");
const WAYS: [&str; 6] = ["alone", "together", "nice", "quota", "weight", "naps"];
const PORT: u16 = 26_379;

/// A program of high priority: what is run, which number that it prints is its speed, and how `cotenant qos` is told.
struct High {
    name: &'static str,
    needs: &'static str,
    line: String,
    speed: fn(&str) -> Option<f64>,
    metric: String,
}

fn high(seconds: f64) -> Vec<High> {
    let last = |text: &str| text.split([',', '"', '\n']).find_map(|word| word.trim().parse::<f64>().ok());
    let kernel = |text: &str| serde_json::from_str::<Value>(text).ok()?.get("per_second")?.as_f64();
    let tps = |text: &str| text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    vec![
        High {
            name: "kernel",
            needs: "sh",
            line: format!("{COTENANT} kernel chase --seconds {seconds} --json"),
            speed: kernel,
            metric: "progress".to_owned(),
        },
        High {
            name: "redis",
            needs: "redis-benchmark",
            line: format!(
                "timeout {seconds} redis-benchmark -p {PORT} -t get -n 100000000 -c 10 >/dev/null; redis-cli -p {PORT} info commandstats | tr -d '\\r' | sed -n 's/^cmdstat_get:calls=\\([0-9]*\\),.*/\\1/p'; redis-cli -p {PORT} config resetstat >/dev/null"
            ),
            speed: last,
            metric: format!("redis:{PORT}:p99"),
        },
        High {
            name: "postgres",
            needs: "pgbench",
            line: format!("pgbench -n -S -c 4 -T {seconds} 2>/dev/null"),
            speed: tps,
            metric: "postgres:5432:p99".to_owned(),
        },
    ]
}

const LOW: [(&str, &str, &str); 3] = [
    ("sledge", "sh", "exec $COTENANT kernel sledge-large --seconds 100000 >/dev/null"),
    (
        "compile",
        "cc",
        "while :; do seq 3000 | sed 's/.*/int f&(int x) { return x * & + (x >> 3); }/' | cc -O2 -x c -c -o /dev/null -; done",
    ),
    ("stress-ng", "stress-ng", "exec stress-ng --quiet --stream 1"),
];

fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// A server that the benchmark talks to, ended when dropped.
struct Server(Option<Child>);

impl Server {
    fn of(name: &str) -> Option<Self> {
        if name != "redis" {
            let ready = name != "postgres"
                || Command::new("pgbench").args(["-i", "-q"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
            return ready.then_some(Self(None));
        }
        let mut command = Command::new("redis-server");
        command.args(["--port", &PORT.to_string(), "--save", ""]).stdout(Stdio::null());
        let server = Self(Some(command.spawn().ok()?));
        sleep(Duration::from_secs(1));
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Groups of version 1 for the batch program: what it uses, and what it may.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn make() -> Option<Self> {
        let paths = ["cpuacct", "cpu"]
            .map(|c| Path::new("/sys/fs/cgroup").join(c).join(format!("study-{}", std::process::id())));
        paths.iter().all(|path| fs::create_dir_all(path).is_ok()).then(|| Self(paths.to_vec()))
    }

    fn used_s(&self) -> f64 {
        let text = fs::read_to_string(self.0[0].join("cpuacct.usage")).unwrap_or_default();
        text.trim().parse::<f64>().unwrap_or(0.0) / 1e9
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0[1].join(file), value).expect("a control group of ours can be set");
    }

    /// Ends who is inside.
    fn clear(&self) {
        loop {
            let members = fs::read_to_string(self.0[0].join("cgroup.procs")).unwrap_or_default();
            if members.is_empty() {
                return;
            }
            for pid in members.lines() {
                let _ = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
            }
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.clear();
        self.0.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

fn shell(line: &str, cpus: Option<&str>) -> Command {
    let mut command = Command::new(if cpus.is_some() { "taskset" } else { "sh" });
    if let Some(cpus) = cpus {
        command.args(["-c", cpus, "sh"]);
    }
    command.args(["-c", line]).env("COTENANT", COTENANT).stdin(Stdio::null());
    command
}

/// Speed, CPUs that the batch program used, CPUs that Cotenant used.
fn run(high: &High, low: &str, way: &str, groups: &Groups, cpus: Option<&str>) -> Option<[f64; 3]> {
    let join: Vec<String> =
        groups.0.iter().map(|path| format!("echo $$ > {}/cgroup.procs; ", path.display())).collect();
    let join = join.concat();
    groups.set("cpu.cfs_quota_us", if way == "quota" { "50000" } else { "-1" });
    groups.set("cpu.shares", if way == "weight" { "2" } else { "1024" });
    let (begin, before) = (Instant::now(), groups.used_s());
    let told = if way == "naps" {
        let said = std::env::temp_dir().join(format!("study-{}", std::process::id()));
        let line = format!("{{ {}; }} > {}", high.line, said.display());
        let low = format!("{join}{low}");
        let words = ["qos", "--json", "--goal", "90%", "--metric", &high.metric, "--high", &line, "--low", &low];
        let mut command = Command::new(if cpus.is_some() { "taskset" } else { COTENANT });
        if let Some(cpus) = cpus {
            command.args(["-c", cpus, COTENANT]);
        }
        let child = command.args(words).env("COTENANT", COTENANT).stderr(Stdio::piped()).spawn().ok()?;
        let pid = child.id().to_string();
        // The batch program has no end of its own.
        let watch = said.clone();
        let waiter = std::thread::spawn(move || child.wait_with_output());
        while fs::metadata(&watch).map_or(true, |meta| meta.len() == 0) && !waiter.is_finished() {
            sleep(Duration::from_millis(50));
        }
        let used = groups.used_s() - before;
        let seconds = begin.elapsed().as_secs_f64();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        groups.clear();
        let out = waiter.join().ok()?.ok()?;
        let summary: Value =
            String::from_utf8_lossy(&out.stderr).lines().find_map(|line| serde_json::from_str(line).ok())?;
        let text = fs::read_to_string(&said).ok()?;
        let _ = fs::remove_file(&said);
        return Some([(high.speed)(&text)?, used / seconds, summary["overhead"].as_f64()?]);
    } else {
        if way != "alone" {
            let nice = if way == "nice" { "nice -n 19 " } else { "" };
            let line = format!("{join}exec {nice}sh -c '{}'", low.replace('\'', "'\\''"));
            shell(&line, cpus).stdout(Stdio::null()).spawn().ok()?;
        }
        shell(&high.line, cpus).stderr(Stdio::null()).output().ok()?
    };
    let (used, seconds) = (groups.used_s() - before, begin.elapsed().as_secs_f64());
    groups.clear();
    Some([(high.speed)(&String::from_utf8_lossy(&told.stdout))?, used / seconds, 0.0])
}

/// Median, and the ends of the interval.
fn middle(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let cut = (n as f64 / 2.0 - (n as f64).sqrt() - 0.5).max(0.0) as usize;
    [f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]), sorted[cut], sorted[n - 1 - cut]]
}

fn main() {
    let number = |name: &str, default: f64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (runs, seconds) = (number("COTENANT_BENCH_RUNS", 5.0) as usize, number("COTENANT_BENCH_SECONDS", 10.0));
    let (only, cpus) = (std::env::var("COTENANT_BENCH_ONLY").ok(), std::env::var("COTENANT_BENCH_CPUS").ok());
    let Some(groups) = Groups::make() else {
        eprintln!("skipped: control groups of version 1 cannot be made here; run as root where they are mounted");
        return;
    };
    let mut report = Report::new("qos");
    for high in high(seconds) {
        let chosen =
            |low: &str| only.as_ref().is_none_or(|only| format!("{}/{low}", high.name).contains(only.as_str()));
        if !LOW.iter().any(|low| chosen(low.0)) {
            continue;
        }
        let server = is_there(high.needs).then(|| Server::of(high.name)).flatten();
        if server.is_none() {
            eprintln!("skipped: {} cannot be run here", high.name);
            continue;
        }
        for (low, needs, line) in LOW.iter().filter(|low| chosen(low.0)) {
            if !is_there(needs) {
                eprintln!("skipped: {low} is not installed");
                continue;
            }
            let mut found: BTreeMap<&str, [Vec<f64>; 3]> = BTreeMap::new();
            for round in 0..runs {
                let of = |i: usize| WAYS[(i + round) % WAYS.len()];
                let all: BTreeMap<&str, [f64; 3]> = (0..WAYS.len())
                    .filter_map(|i| Some((of(i), run(&high, line, of(i), &groups, cpus.as_deref())?)))
                    .collect();
                let Some([alone, ..]) = all.get("alone").copied() else { continue };
                for (way, [speed, batch, monitor]) in all {
                    let rows = found.entry(way).or_default();
                    rows.iter_mut().zip([speed / alone, batch, monitor]).for_each(|(row, value)| row.push(value));
                }
            }
            for (way, [kept, batch, monitor]) in found.into_iter().filter(|(way, _)| *way != "alone") {
                let [median, least, most] = middle(&kept);
                report.row(json!({ "subject": high.name, "batch": low, "way": way, "cpus": cpus, "rounds": kept.len(), "seconds": seconds,
                    "kept": median, "least": least, "most": most, "batch_cpus": middle(&batch)[0], "monitor_cpus": middle(&monitor)[0] }));
            }
        }
    }
}
