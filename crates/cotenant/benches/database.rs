//! A database and a batch service under the daemon's rules, minute by minute: `PostgreSQL` under `pgbench --rate` (a
//! latency counts from its scheduled moment; a tenth of the answers is logged) in class high with a goal, two
//! `sledge-large` in class low, in a control group of their own as services are.
//!
//! `cargo bench -p cotenant --bench database`; root, since the batch service also runs in a group with `cpu.idle`, the
//! fixed setting for comparison. `COTENANT_BENCH_MINUTES` (10) under the daemon; two minutes alone and two with that
//! fixed setting before, and again afterwards. `COTENANT_BENCH_GOAL` (0.9) of the speed alone is the goal, for the
//! percentile `COTENANT_BENCH_PERCENTILE` (95); `COTENANT_BENCH_LOAD` (0.3) is the rate of requests as a share of the
//! server's capacity.
//!
//! A row for each minute: its way, percentiles in µs, CPUs of the batch service, percent of a core that the daemon and
//! its guardian took. The last row: the percentile alone (median), in how many minutes the goal was kept, under the
//! daemon, alone and under the fixed setting (in a minute without answers it was not), and the batch service's CPU time
//! over that of the fixed setting (mean of each).

use cotenant_model::stats::median::middle;
use cotenant_testing::bench::Report;
use cotenant_testing::bench::cost::{cpu_ns, family};
use cotenant_testing::bench::daemon::Daemon;
use cotenant_testing::bench::servers::{PORT, Server, is_there, shell};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");
const MINUTE: Duration = Duration::from_secs(60);
const BATCH: usize = 2;
/// Ends a child with this benchmark, even if that is killed.
const ENDS: &str = "setpriv --pdeathsig KILL";
/// The share of the answers that `pgbench` logs.
const LOGGED: f64 = 0.1;

fn main() {
    let number = |name: &str, or: f64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    let minutes = number("COTENANT_BENCH_MINUTES", 10.0) as usize;
    let percentile = number("COTENANT_BENCH_PERCENTILE", 95.0);
    let goal = number("COTENANT_BENCH_GOAL", 0.9);
    let folder = Folder::new();
    let Some(group) = Group::make() else {
        eprintln!("skipped: no control group with cpu.idle can be made here; run as root");
        return;
    };
    let first = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    if Path::new("/sys/fs/cgroup/systemd").exists() && first.lines().any(|line| line == "0::/") {
        eprintln!(
            "skipped: nobody uses groups of version 2 here, and the daemon knows services by others; put process 1 into one"
        );
        return;
    }
    let Some(_server) = is_there("pgbench").then(|| Server::of("postgres")).flatten() else {
        eprintln!("skipped: PostgreSQL cannot be run here");
        return;
    };
    let rate = answers_per_s() * number("COTENANT_BENCH_LOAD", 0.3);
    let clients = Clients::start(&folder, rate);
    let report = Report::new("database");
    let mut bench = Bench { report, rows: Vec::new(), folder: &folder, clients, rate, percentile };
    bench.compare(&group);
    {
        let batch = Batch::start(&folder, &group);
        bench.minute("together", &batch.0, None);
        let daemon = folder.daemon(percentile, goal);
        for _ in 0..minutes {
            bench.minute("daemon", &batch.0, Some(&daemon));
        }
    }
    bench.compare(&group);
    let all = judged(&bench.rows, percentile, goal);
    bench.report.row(all);
}

struct Bench<'a> {
    report: Report,
    rows: Vec<Value>,
    folder: &'a Folder,
    clients: Clients,
    rate: f64,
    percentile: f64,
}

impl Bench<'_> {
    fn minute(&mut self, way: &str, batch: &[Child], daemon: Option<&Daemon>) {
        let used = |pids: Vec<u32>| pids.into_iter().map(cpu_ns).sum::<u64>();
        let of_batch = || used(batch.iter().map(Child::id).collect());
        let of_daemon = || daemon.map(|daemon| used(family(daemon.pid())));
        self.clients.latencies(); // of before
        let (begin, before) = (Instant::now(), (of_batch(), of_daemon()));
        std::thread::sleep(MINUTE);
        let mut latencies = self.clients.latencies();
        let passed = begin.elapsed().as_nanos() as f64;
        latencies.sort_by(f64::total_cmp);
        let at = |percent: f64| latencies.get((latencies.len() as f64 * percent / 100.0) as usize).copied();
        let row = json!({
            "way": way, "answers": latencies.len(), "rate_per_s": self.rate,
            "p50_us": at(50.0), "p90_us": at(90.0), "p95_us": at(95.0), "p99_us": at(99.0), "kept_us": at(self.percentile),
            "batch_cpus": (of_batch() - before.0) as f64 / passed,
            "daemon_percent": of_daemon().zip(before.1).map(|(now, then)| (now - then) as f64 / passed * 100.0),
        });
        self.report.row(row.clone());
        self.rows.push(row);
    }

    fn compare(&mut self, group: &Group) {
        for _ in 0..2 {
            self.minute("alone", &[], None);
            group.idle(true);
            let batch = Batch::start(self.folder, group);
            self.minute("cpu.idle", &batch.0, None);
            drop(batch);
            group.idle(false);
        }
    }
}

/// The summary of all minutes.
fn judged(rows: &[Value], percentile: f64, goal: f64) -> Value {
    let of = |way: &str, key: &str| -> Vec<f64> {
        rows.iter().filter(|row| row["way"] == way).filter_map(|row| row[key].as_f64()).collect()
    };
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let alone = middle(&of("alone", "kept_us")).value;
    let kept = |way: &str| {
        let minutes: Vec<&Value> = rows.iter().filter(|row| row["way"] == way).collect();
        let is_kept = |row: &&&Value| row["kept_us"].as_f64().is_some_and(|us| alone / us >= goal);
        minutes.iter().filter(is_kept).count() as f64 / minutes.len() as f64
    };
    json!({
        "percentile": percentile, "alone_us": alone, "goal": goal,
        "minutes_kept": kept("daemon"), "minutes_kept_alone": kept("alone"), "minutes_kept_idle": kept("cpu.idle"),
        "batch_over_idle": mean(of("daemon", "batch_cpus")) / mean(of("cpu.idle", "batch_cpus")),
        "daemon_percent": mean(of("daemon", "daemon_percent")),
    })
}

/// Requests per second that the server answers under full load.
fn answers_per_s() -> f64 {
    let out = shell("pgbench -n -S -c 4 -T 5", None).stderr(Stdio::null()).output().expect("pgbench runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let tps = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok());
    tps.expect("pgbench says how fast it was")
}

/// Configuration, state, logs, and the batch program by a name of its own. Removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = Self(std::env::temp_dir().join(format!("cotenant-database-{}", std::process::id())));
        fs::create_dir_all(&folder.0).expect("a folder");
        fs::copy(COTENANT, folder.0.join("batch")).expect("another name for it");
        folder
    }

    fn daemon(&self, percentile: f64, goal: f64) -> Daemon {
        let batch = name();
        let text = format!(
            "mode = \"enforce\"\n\
             [[rule]]\nname = \"database\"\nmatch = {{ command = \"postgres\" }}\nclass = \"high\"\ngoal = \"{:.0}%\"\n\
             metric = \"postgres:127.0.0.1:{PORT}:p{percentile}\"\n\
             [[rule]]\nname = \"batch\"\nmatch = {{ cgroup = \"/{batch}\" }}\nclass = \"low\"\n",
            100.0 * goal
        );
        let log = File::create(std::env::temp_dir().join("cotenant-database.log")).expect("a log");
        Daemon::start(COTENANT, &self.0, &text, log)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `pgbench` under full load: a pause between the minutes would let a pause of the daemon meet an idle server.
struct Clients {
    child: Child,
    log: File,
    /// The read part of a line.
    begun: Vec<u8>,
}

impl Clients {
    fn start(folder: &Folder, rate: f64) -> Self {
        let prefix = folder.0.join("log");
        let asks = format!("exec {ENDS} pgbench -n -S -c 4 -T 1000000 --rate {rate}");
        let line = format!("{asks} -l --sampling-rate={LOGGED} --log-prefix={}", prefix.display());
        let mut child = shell(&line, None).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pgbench starts");
        let path = prefix.with_extension(child.id().to_string());
        loop {
            assert!(child.try_wait().expect("a child").is_none(), "pgbench ended");
            if let Ok(log) = File::open(&path) {
                return Self { child, log, begun: Vec::new() };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Latencies logged since the last time, µs from the scheduled moments on.
    fn latencies(&mut self) -> Vec<f64> {
        self.log.read_to_end(&mut self.begun).expect("pgbench's log");
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.begun.drain(..whole).collect();
        let lines = String::from_utf8_lossy(&lines);
        lines.lines().filter_map(|line| line.split(' ').nth(2)?.parse().ok()).collect()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Batch(Vec<Child>);

impl Batch {
    /// Each in a session of its own, as service managers start them, and in that group.
    fn start(folder: &Folder, group: &Group) -> Self {
        let lists: Vec<String> = group.0.iter().map(|path| format!("{}/cgroup.procs", path.display())).collect();
        let join = format!("echo $$ | tee {} >/dev/null; ", lists.join(" "));
        let line =
            format!("{join}exec {ENDS} setsid {}/batch kernel sledge-large --seconds 1000000", folder.0.display());
        let start = || shell(&line, None).stdout(Stdio::null()).spawn().expect("the batch program starts");
        Self((0..BATCH).map(|_| start()).collect())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A control group with a share of CPU time of its own, as service managers give each service one: that of version 2,
/// and where CPU time is still portioned out by version 1 one of the same name there.
struct Group(Vec<PathBuf>);

impl Group {
    fn make() -> Option<Self> {
        let mounted = [&["."][..], &["unified", "cpu"]];
        let path = |root: &&str| Path::new("/sys/fs/cgroup").join(root).join(name());
        let group = |roots: &[&str]| Self(roots.iter().map(path).collect());
        // One that cannot be idle is removed by being dropped.
        let can = |group: &Self| group.0.iter().all(|path| fs::create_dir(path).is_ok()) && group.switch().exists();
        mounted.into_iter().map(group).find(can)
    }

    fn switch(&self) -> PathBuf {
        self.0.last().expect("one at least").join("cpu.idle")
    }

    /// Sets whether it only gets the rest of the CPUs, or its share.
    fn idle(&self, on: bool) {
        fs::write(self.switch(), if on { "1" } else { "0" }).expect("its own group");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_dir(path);
        }
    }
}

fn name() -> String {
    format!("cotenant-database-{}", std::process::id())
}
