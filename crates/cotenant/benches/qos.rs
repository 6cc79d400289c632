//! The speed kept by a program of high priority and the CPU time of a batch program, together in six ways: unmanaged,
//! under `nice -n 19`, a CPU quota, CPU weights, in the background (`cpu.idle`), and under `cotenant qos` at a goal of
//! 90 % (`naps`). For a server, the protected program is the server, not its client.
//!
//! `cargo bench -p cotenant --bench qos`. `COTENANT_BENCH_RUNS` (default 5) rounds of all six ways, in another order
//! each time, for `COTENANT_BENCH_SECONDS` (default 10) each; before, between and after them the program runs alone for
//! half of that, and every figure is a ratio to the mean of the two runs alone right before and after it, since the
//! speed of memory on shared hosts changes from second to second. `COTENANT_BENCH_ONLY` (as `kernel/stress-ng`) chooses
//! pairs, `COTENANT_BENCH_WAYS` (as `background,naps`) ways, `COTENANT_BENCH_CPUS` (as `0`) pins both to these CPUs: if
//! two cores hardly disturb each other, one shared core does. High: a pointer chase, redis under redis-benchmark,
//! `PostgreSQL` under pgbench; low: `sledge-large`, compilations, stress-ng, two computing programs, `xz -T2`.
//! `compute/compute`, which share no resource, shows the cost of `cotenant qos` itself; with `sleep`, a "kept" other
//! than 1 is chance or that cost. Pairs with missing programs are left out, with a message. Root: groups of version 1
//! are made.
//!
//! With CPUs to spare, the common case: `redis-10`, `postgres-30` and so on are clients with requests at random
//! moments, at 10, 30 or 60 % of the server's capacity; a latency counts from the scheduled moment.
//!
//! One JSON object per pair and way: `kept`, median of speed over speed alone, with `least` and `most`, the ends of its
//! interval of at least 95 % by order statistics (below 6 rounds: of all rounds); `percentile_kept`, the same of p99
//! alone over p99, which is the goal of `cotenant qos` if there is one, or of another `percentile`
//! (`COTENANT_BENCH_PERCENTILE`, as `95`: redis-benchmark tells 50, 95 and 99); `batch_cpus`, median CPU time per
//! second of the batch program; `best_fixed_cpus`, the most of it that any other way gave which kept 0.9 (of that, else
//! of the speed); `monitor_cpus`; `stolen`, share of all CPU time in these rounds that the host gave to other guests.

use cotenant_model::proc_text::stolen_ticks;
use cotenant_model::stats::median::middle;
use cotenant_testing::bench::Report;
use cotenant_testing::bench::servers::{self, PORT, Server, address, is_there};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");
const WAYS: [&str; 6] = ["together", "nice", "quota", "weight", "background", "naps"];

/// Makes this program a client: `RATE SECONDS`.
const CLIENT: &str = "COTENANT_BENCH_CLIENT";

/// The goal.
const GOAL: f64 = 0.9;

/// A high-priority program: its command, and its arguments of `cotenant qos`. It prints its speed, and the percentile
/// if it answers requests.
struct High {
    name: &'static str,
    needs: &'static str,
    line: String,
    metric: String,
}

/// Loads of open-loop clients, and their names.
const LOADS: [(f64, [&str; 2]); 3] =
    [(0.1, ["redis-10", "postgres-10"]), (0.3, ["redis-30", "postgres-30"]), (0.6, ["redis-60", "postgres-60"])];

/// With this duration; redis-benchmark only takes numbers of requests, so the rate of answers is given.
fn high(seconds: f64, answers: f64) -> Vec<High> {
    let requests = (seconds * answers).round();
    let log = std::env::temp_dir().join(format!("study-{}.log", std::process::id())).display().to_string();
    let kernel = |name: &str| {
        let speed = "sed -n 's/.*\"per_second\": *\\([0-9.e]*\\).*/\\1/p' | head -n 1";
        format!("{COTENANT} kernel {name} --seconds {seconds} --json | {speed}")
    };
    let percentile = percentile();
    let column = [50, 95, 99].iter().position(|known| *known == percentile).map_or(0, |at| at + 5);
    let redis = format!(
        "redis-benchmark -p {PORT} -t get -n {requests} -c 10 --csv | tr -d '\"' | awk -F, '$1 == \"GET\" {{ print $2, ${column} }}'"
    );
    let pgbench = |how: &str| {
        format!(
            "rm -f {log}*; tps=$(pgbench -n -S -c 4 -T {seconds:.0} -l {how} --log-prefix={log} 2>/dev/null | sed -n 's/^tps = \\([0-9.]*\\).*/\\1/p'); late=$(cat {log}* | awk '{{ print $3 }}' | sort -n | awk '{{ t[NR] = $1 }} END {{ print t[int(NR * {percentile} / 100)] }}'); rm -f {log}*; echo $tps $late"
        )
    };
    let progress = || "progress".to_owned();
    let of_redis = || format!("redis:{PORT}:p{percentile}");
    let of_postgres = || format!("postgres:127.0.0.1:{PORT}:p{percentile}");
    let mut all = vec![
        High { name: "kernel", needs: "sh", line: kernel("chase"), metric: progress() },
        High { name: "compute", needs: "sh", line: kernel("cpu"), metric: progress() },
        High { name: "redis", needs: "redis-benchmark", line: redis, metric: of_redis() },
        High { name: "postgres", needs: "pgbench", line: pgbench("--sampling-rate=0.05"), metric: of_postgres() },
    ];
    for (load, [redis, postgres]) in LOADS {
        let rate = (answers * load).max(1.0);
        let client = format!("{CLIENT}='{rate} {seconds}' exec {}", std::env::args().next().unwrap_or_default());
        all.push(High { name: redis, needs: "redis-benchmark", line: client, metric: of_redis() });
        let line = pgbench(&format!("--rate {rate}"));
        all.push(High { name: postgres, needs: "pgbench", line, metric: of_postgres() });
    }
    all
}

/// A client of redis that sends requests at random moments, independent of outstanding answers; prints answers a
/// second, and the percentile from these moments on, µs.
fn client(words: &str) -> std::io::Result<()> {
    let [rate, seconds] = said(words).ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut server = TcpStream::connect(("127.0.0.1", PORT))?;
    server.set_nodelay(true)?;
    let mut answers = server.try_clone()?;
    let (asked, to_come) = std::sync::mpsc::channel();
    let begin = Instant::now();
    let reader = std::thread::spawn(move || {
        let took = |due: Instant| answers.read_exact(&mut [0; 7]).map(|()| due.elapsed().as_secs_f64() * 1e6); // +PONG
        to_come.into_iter().map(took).collect::<std::io::Result<Vec<f64>>>()
    });
    let (mut after, mut random) = (0.0, fastrand::Rng::with_seed(1));
    while begin.elapsed().as_secs_f64() < seconds {
        after -= (1.0 - random.f64()).ln() / rate;
        let due = begin + Duration::from_secs_f64(after);
        sleep(due.saturating_duration_since(Instant::now()));
        server.write_all(b"PING\r\n")?;
        if asked.send(due).is_err() {
            break; // the reader gives the reason
        }
    }
    drop(asked);
    let mut took = reader.join().expect("the reader does not panic")?;
    took.sort_by(f64::total_cmp);
    let late = took.get(took.len() * percentile() / 100).copied().unwrap_or_default();
    println!("{} {late}", took.len() as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

/// The protected percentile of latencies, 1 to 99.
fn percentile() -> usize {
    std::env::var("COTENANT_BENCH_PERCENTILE")
        .ok()
        .and_then(|n| n.parse().ok())
        .filter(|n| (1..100).contains(n))
        .unwrap_or(99)
}

/// The program's output: its speed, and its percentile or 0.
fn said(text: &str) -> Option<[f64; 2]> {
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next().unwrap_or(0.0)])
}

const LOW: [(&str, &str, &str); 7] = [
    ("sleep", "sh", "exec sleep 100000"),
    ("compute", "sh", "exec $COTENANT kernel cpu --seconds 100000 >/dev/null"),
    ("sledge", "sh", "exec $COTENANT kernel sledge-large --seconds 100000 >/dev/null"),
    (
        "compile",
        "cc",
        "while :; do seq 3000 | sed 's/.*/int f&(int x) { return x * & + (x >> 3); }/' | cc -O2 -x c -c -o /dev/null -; done",
    ),
    ("stress-ng", "stress-ng", "exec stress-ng --quiet --stream 1"),
    (
        "two-compute",
        "sh",
        "$COTENANT kernel cpu --seconds 100000 >/dev/null & exec $COTENANT kernel cpu --seconds 100000 >/dev/null",
    ),
    ("xz", "xz", "while :; do xz -T2 -c $COTENANT >/dev/null; done"),
];

/// Groups of version 1 for the batch program: one that counts its usage, and one that limits it.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn make() -> Option<Self> {
        let [counted, shared] = ["cpuacct", "cpu"].map(|c| Path::new("/sys/fs/cgroup").join(c));
        // If both controllers share a hierarchy, a counted program would leave Cotenant's group for its share.
        if counted.canonicalize().ok()? == shared.canonicalize().ok()? {
            return None;
        }
        let paths = [counted, shared].map(|path| path.join(format!("study-{}", std::process::id())));
        paths.iter().all(|path| fs::create_dir_all(path).is_ok()).then(|| Self(paths.to_vec()))
    }

    fn used_s(&self) -> f64 {
        let text = fs::read_to_string(self.0[0].join("cpuacct.usage")).unwrap_or_default();
        text.trim().parse::<f64>().unwrap_or(0.0) / 1e9
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0[1].join(file), value).expect("a control group of ours can be set");
    }

    /// Ends the processes inside.
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

/// Clock ticks since the start that the host gave to other guests, and all.
fn stolen() -> [u64; 2] {
    fs::read("/proc/stat").ok().and_then(|stat| stolen_ticks(&stat)).unwrap_or_default()
}

/// Speed, percentile or 0, CPUs that the batch program used, CPUs that Cotenant used.
fn run(
    (high, server): (&High, Option<u32>),
    low: &str,
    way: &str,
    groups: &Groups,
    cpus: Option<&str>,
) -> Option<[f64; 4]> {
    // Cotenant has its own group for shares of the CPUs; then only the program's usage is counted in ours.
    let joined = if way == "naps" { &groups.0[..1] } else { &groups.0[..] };
    let join: Vec<String> = joined.iter().map(|path| format!("echo $$ > {}/cgroup.procs; ", path.display())).collect();
    let join = join.concat();
    groups.set("cpu.cfs_quota_us", if way == "quota" { "50000" } else { "-1" });
    groups.set("cpu.idle", "0"); // first: shares of idle groups cannot be set
    groups.set("cpu.shares", if way == "weight" { "2" } else { "1024" });
    if way == "background" {
        groups.set("cpu.idle", "1");
    }
    let (begin, before) = (Instant::now(), groups.used_s());
    let output = if way == "naps" {
        let file = std::env::temp_dir().join(format!("study-{}", std::process::id()));
        let line = format!("{{ {}; }} > {}", high.line, file.display());
        let low = format!("{join}{low}");
        let of_server = server.map(|pid| pid.to_string());
        let mut words = vec!["qos", "--json", "--goal", "90%", "--metric", &high.metric, "--low", &low];
        match &of_server {
            Some(pid) => words.extend(["--all-users", "--high-pid", pid]),
            None => words.extend(["--high", &line]),
        }
        let mut command = Command::new(if cpus.is_some() { "taskset" } else { COTENANT });
        if let Some(cpus) = cpus {
            command.args(["-c", cpus, COTENANT]);
        }
        address(command.env("COTENANT", COTENANT));
        let child = command.args(words).stderr(Stdio::piped()).spawn().ok()?;
        let pid = child.id().to_string();
        let waiter = std::thread::spawn(move || child.wait_with_output());
        if server.is_some() {
            shell(&line, cpus).stderr(Stdio::null()).status().ok()?;
        }
        // The batch program has no end of its own.
        while fs::metadata(&file).map_or(true, |meta| meta.len() == 0) && !waiter.is_finished() {
            sleep(Duration::from_millis(50));
        }
        let used = groups.used_s() - before;
        let seconds = begin.elapsed().as_secs_f64();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        groups.clear();
        let out = waiter.join().ok()?.ok()?;
        let summary: Value =
            String::from_utf8_lossy(&out.stderr).lines().find_map(|line| serde_json::from_str(line).ok())?;
        let text = fs::read_to_string(&file).ok()?;
        let _ = fs::remove_file(&file);
        let [speed, p99] = said(&text)?;
        return Some([speed, p99, used / seconds, summary["overhead"].as_f64()?]);
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
    let [speed, p99] = said(&String::from_utf8_lossy(&output.stdout))?;
    Some([speed, p99, used / seconds, 0.0])
}

/// A line of a program of the table, in which `$COTENANT` is the command.
fn shell(line: &str, cpus: Option<&str>) -> Command {
    let mut command = servers::shell(line, cpus);
    command.env("COTENANT", COTENANT);
    command
}

fn main() {
    if let Ok(words) = std::env::var(CLIENT) {
        client(&words).expect("redis answers");
        return;
    }
    let number = |name: &str, default: f64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (runs, seconds) = (number("COTENANT_BENCH_RUNS", 5.0) as usize, number("COTENANT_BENCH_SECONDS", 10.0));
    let (only, cpus) = (std::env::var("COTENANT_BENCH_ONLY").ok(), std::env::var("COTENANT_BENCH_CPUS").ok());
    let ways = std::env::var("COTENANT_BENCH_WAYS").ok();
    let chosen = |way: &&str| ways.as_ref().is_none_or(|ways| ways.split(',').any(|name| name == *way));
    let ways: Vec<&str> = WAYS.into_iter().filter(chosen).collect();
    let Some(groups) = Groups::make() else {
        eprintln!(
            "skipped: control groups of version 1 cannot be made here; run as root where cpu and cpuacct are mounted apart"
        );
        return;
    };
    let mut report = Report::new("qos");
    for (kind, High { name, needs, .. }) in high(1.0, 1.0).into_iter().enumerate() {
        let chosen = |low: &str| only.as_ref().is_none_or(|only| format!("{name}/{low}").contains(only.as_str()));
        if !LOW.iter().any(|low| chosen(low.0)) {
            continue;
        }
        let Some(host) = is_there(needs).then(|| Server::of(name)).flatten() else {
            eprintln!("skipped: {name} cannot be run here");
            continue;
        };
        let server = host.pid();
        // Clients under full load give its capacity.
        let closed = name.split('-').next();
        let once = high(1.0, 50_000.0).into_iter().find(|high| Some(high.name) == closed).expect("it is one of them");
        let Some([answers, ..]) = run((&once, server), "", "alone", &groups, cpus.as_deref()) else {
            eprintln!("skipped: {name} did not say how fast it was");
            continue;
        };
        let [whole, half] = [seconds, seconds / 2.0].map(|seconds| high(seconds, answers).swap_remove(kind));
        let (high, quiet) = ((&whole, server), (&half, server));
        for (low, needs, line) in LOW.iter().filter(|low| chosen(low.0)) {
            if !is_there(needs) {
                eprintln!("skipped: {low} is not installed");
                continue;
            }
            let mut found: BTreeMap<&str, [Vec<f64>; 4]> = BTreeMap::new();
            let taken = stolen();
            for round in 0..runs {
                let Some(mut before) = run(quiet, line, "alone", &groups, cpus.as_deref()) else { continue };
                for i in 0..ways.len() {
                    let way = ways[(i + round) % ways.len()];
                    let beside = run(high, line, way, &groups, cpus.as_deref());
                    let Some(behind) = run(quiet, line, "alone", &groups, cpus.as_deref()) else { break };
                    if let Some([speed, p99, batch, monitor]) = beside {
                        let alone = |i: usize| f64::midpoint(before[i], behind[i]);
                        let row = [speed / alone(0), alone(1) / p99, batch, monitor];
                        let rows = found.entry(way).or_default();
                        rows.iter_mut().zip(row).for_each(|(row, value)| row.push(value));
                    }
                    before = behind;
                }
            }
            let [taken, all] = std::array::from_fn(|i| stolen()[i].saturating_sub(taken[i]) as f64);
            let best_fixed =
                found.iter().filter(|(way, _)| **way != "naps").filter_map(|(_, [kept, quick, batch, _])| {
                    let told = if quick.iter().all(|ratio| ratio.is_finite()) { quick } else { kept };
                    (middle(told).value >= GOAL).then(|| middle(batch).value)
                });
            let best_fixed = best_fixed.max_by(f64::total_cmp);
            for (way, [kept, quick, batch, monitor]) in found {
                let kept_of_all = middle(&kept);
                let quick = quick.iter().all(|ratio| ratio.is_finite()).then(|| middle(&quick));
                let p99 = quick.map(|m| [m.value, m.low, m.high]);
                report.row(json!({ "subject": name, "batch": low, "way": way, "cpus": cpus, "rounds": kept.len(), "seconds": seconds, "percentile": percentile(),
                    "kept": kept_of_all.value, "least": kept_of_all.low, "most": kept_of_all.high, "percentile_kept": p99, "batch_cpus": middle(&batch).value, "best_fixed_cpus": best_fixed, "monitor_cpus": middle(&monitor).value, "stolen": taken / all.max(1.0) }));
            }
        }
    }
}
