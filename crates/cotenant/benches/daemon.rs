//! The cost of the daemon with its guardian, and whether it stays constant while services start and end.
//!
//! `cargo bench -p cotenant --bench daemon`: 200 services with 2,000 threads of which 200 run. Observing, placing all
//! of them on CPU 0 (`static`), and by `auto`; the latter also with the page open in a browser. It fails above what the
//! daemon may take (`MOST_PERCENT` by its default policy, `MOST_MB`), and where it does not manage all of them.
//!
//! With `-- soak`: 20 services of which one restarts every two seconds, one that starts 2,000 short processes a minute,
//! and one in class low that is throttled for another, killed every ten seconds and started again; with a row each
//! minute and a last one that compares the second half with the first. It fails if that is not flat, if no service was
//! throttled, if the loop stalled, or if a process stays stopped after the daemon.
//!
//! `COTENANT_BENCH_SECONDS` (20 for each row; 600 for `soak`) sets the duration.

use cotenant_testing::bench::Report;
use cotenant_testing::bench::cost::{cpu_ns, family, memory_kib};
use cotenant_testing::bench::daemon::{self, Daemon, cpus};
use cotenant_testing::bench::program::{self, Running};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");
/// Looks get rarer in the first seconds.
const SETTLE: Duration = Duration::from_secs(15);
const THREADS: usize = 10;
const RUNNING: usize = 1;
const MANY: usize = 200;
const FEW: usize = 20;
/// Interval of the page's requests, and of looks in a soak.
const LOOKS: Duration = Duration::from_secs(1);
/// Looks between two restarts.
const RESTARTS: usize = 2;
/// After this many of these, the throttled service is killed.
const KILLS: usize = 5;
const BIRTHS_PER_MINUTE: u32 = 2_000;

/// Limits for the daemon and its guardian: share of a core, observing and enforcing, and memory.
const MOST_PERCENT: [f64; 2] = [1.0, 2.0];
const MOST_MB: f64 = 60.0;

/// Flat figures of a soak: the second half has at most this multiple of the first.
const FLAT: [&str; 4] = ["percent_of_a_core", "resident_mb", "descriptors", "threads"];
const MOST: f64 = 1.25;
/// Samples of a loop that goes on are younger than this, seconds.
const AGE_S: f64 = 10.0;
/// A service that is not stopped runs within this time.
const STOPPED: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    program::run_if_asked();
    let folder = Folder::new();
    let mut report = Report::new("daemon");
    let seconds = |or: u64| {
        let told = std::env::var("COTENANT_BENCH_SECONDS").ok().and_then(|s| s.parse().ok());
        Duration::from_secs(told.unwrap_or(or))
    };
    if std::env::args().any(|arg| arg == "soak") {
        return judged(&soak(&folder, &mut report, seconds(600)));
    }
    let _services: Vec<Running> = (0..MANY).map(|i| folder.service(i)).collect();
    let ways = [
        ("observe", "auto", false),
        ("enforce", "static", false),
        ("enforce", "auto", false),
        ("enforce", "auto", true),
    ];
    let mut wrong = Vec::new();
    for (mode, policy, page) in ways {
        let address = page.then(free);
        let daemon = folder.daemon(mode, policy, address);
        let _browser = address.map(browse);
        std::thread::sleep(SETTLE);
        let before = Looked::at(&daemon);
        std::thread::sleep(seconds(20));
        let after = Looked::at(&daemon);
        let mut row = after.since(&before);
        row["mode"] = mode.into();
        row["policy"] = policy.into();
        row["page_open"] = page.into();
        row["services"] = managed(&folder.status()).len().into();
        row["threads_of_services"] = (MANY * THREADS).into();
        let percent = if policy == "auto" { MOST_PERCENT[usize::from(mode == "enforce")] } else { f64::INFINITY };
        let way = format!("{mode}, {policy}{}", if page { ", with the page" } else { "" });
        for (key, most) in [("percent_of_a_core", percent), ("resident_mb", MOST_MB)] {
            let takes = row[key].as_f64().filter(|takes| *takes <= most);
            wrong.extend(takes.is_none().then(|| format!("{way}: {key} is {}, more than {most}", row[key])));
        }
        let all = row["services"] == MANY;
        wrong.extend((!all).then(|| format!("{way}: {} services of {MANY} were managed", row["services"])));
        report.row(row);
    }
    judged(&wrong)
}

/// Prints faults, and fails if there are any.
fn judged(wrong: &[String]) -> ExitCode {
    for what in wrong {
        eprintln!("{what}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The faults.
fn soak(folder: &Folder, report: &mut Report, length: Duration) -> Vec<String> {
    let mut services: Vec<Running> = (0..FEW).map(|i| folder.service(i)).collect();
    let _births = program::start_births(&folder.name(FEW), BIRTHS_PER_MINUTE);
    let _important = program::start_by_name(&folder.0.join(IMPORTANT), 1, 0);
    let mut batch = Batch::start(folder);
    let daemon = folder.daemon("enforce", "auto", None);
    std::thread::sleep(SETTLE);
    let begin = Instant::now();
    let (mut before, mut rows, mut restarts) = (Looked::at(&daemon), Vec::new(), 0_usize);
    for minute in 1..=(length.as_secs() / 60).max(2) {
        let end = begin + Duration::from_secs(60) * minute as u32;
        // The age of the oldest last sample of the minute; unknown where the daemon did not answer once.
        let (mut oldest, mut looks) = (Some(0.0_f64), 0_usize);
        while Instant::now() < end {
            std::thread::sleep(LOOKS);
            let age = folder.status()["sample_age_s"].as_f64();
            oldest = oldest.zip(age).map(|(oldest, age)| oldest.max(age));
            looks += 1;
            if !looks.is_multiple_of(RESTARTS) {
                continue;
            }
            let i = restarts % FEW;
            services[i] = folder.service(i);
            restarts += 1;
            if restarts.is_multiple_of(KILLS) {
                batch.restart(folder);
            }
        }
        let now = Looked::at(&daemon);
        let mut row = now.since(&before);
        let status = folder.status();
        let managed = managed(&status);
        row["minute"] = minute.into();
        row["services"] = managed.len().into();
        row["sample_age_s"] = oldest.into();
        row["waited"] =
            managed.iter().find(|service| service["rule"] == BATCH).map_or(Value::Null, |s| s["throttled"].clone());
        row["restarts"] = restarts.into();
        report.row(row.clone());
        rows.push(row);
        before = now;
    }
    let halves = rows.split_at(rows.len() / 2);
    let mean =
        |rows: &[Value], key: &str| rows.iter().filter_map(|row| row[key].as_f64()).sum::<f64>() / rows.len() as f64;
    let ratios = FLAT.map(|key| (key, mean(halves.1, key) / mean(halves.0, key)));
    let told = ratios.iter().map(|(key, ratio)| ((*key).to_owned(), (*ratio).into())).collect();
    report.row(json!({ "second_half_over_first": Value::Object(told) }));
    let grown = ratios.into_iter().filter(|(_, ratio)| !(..=MOST).contains(ratio));
    let mut wrong: Vec<String> = grown.map(|(key, ratio)| format!("{key} has grown {ratio:.2} times")).collect();
    let stood = rows.iter().filter(|row| row["sample_age_s"].as_f64().is_none_or(|age| age > AGE_S)).count();
    wrong.extend((stood > 0).then(|| format!("its loop stood still in {stood} minutes")));
    let waited = rows.iter().any(|row| row["waited"].as_f64().is_some_and(|share| share > 0.0));
    wrong.extend((!waited).then(|| "nobody was throttled".to_owned()));
    drop(daemon);
    let (begin, used) = (Instant::now(), batch.used());
    while batch.used() == used && begin.elapsed() < STOPPED {
        std::thread::sleep(LOOKS);
    }
    wrong.extend((batch.used() == used).then(|| "the service in class low is stopped without a daemon".to_owned()));
    wrong
}

/// Services of a soak by the names of their files, as in their rules.
const IMPORTANT: &str = "important";
const BATCH: &str = "batch";

/// A service in class low that keeps a CPU busy. The important one's speed, from a log, is 100 without it and half of
/// that while it has a CPU.
struct Batch {
    running: Running,
    pid: Arc<AtomicU32>,
    /// The log ends with this.
    _writes: Sender<()>,
}

impl Batch {
    fn start(folder: &Folder) -> Self {
        let running = Self::busy(folder);
        let pid = Arc::new(AtomicU32::new(running.0.id()));
        let (now, mut log) = (pid.clone(), fs::File::create(folder.log()).expect("a log"));
        let (writes, ended) = channel();
        std::thread::spawn(move || {
            let (mut of, mut before, mut at) = (0, 0, Instant::now());
            while ended.recv_timeout(LOOKS) == Err(RecvTimeoutError::Timeout) {
                let pid = now.load(Ordering::Relaxed);
                let (used, elapsed) = (cpu_ns(pid), at.elapsed());
                let new = used.saturating_sub(if pid == of { before } else { 0 });
                writeln!(log, "{:.3}", 100.0 / (1.0 + new as f64 / elapsed.as_nanos() as f64)).expect("room for a log");
                (of, before, at) = (pid, used, Instant::now());
            }
        });
        Self { running, pid, _writes: writes }
    }

    fn busy(folder: &Folder) -> Running {
        let mut command = Command::new(folder.0.join(BATCH));
        Running(command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().expect("a shell starts"))
    }

    /// Kills it, and starts it again.
    fn restart(&mut self, folder: &Folder) {
        self.running = Self::busy(folder);
        self.pid.store(self.running.0.id(), Ordering::Relaxed);
    }

    fn used(&self) -> u64 {
        cpu_ns(self.running.0.id())
    }
}

/// The folder of everything: the services' files, the configuration and the state. Removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = Self(std::env::temp_dir().join(format!("cotenant-daemon-{}", std::process::id())));
        fs::create_dir_all(folder.0.join("services")).expect("a folder for services");
        fs::copy(std::env::current_exe().expect("this benchmark's own file"), folder.0.join("program"))
            .expect("a copy of this benchmark");
        let names = (0..=MANY).map(|i| folder.name(i)).chain([folder.0.join(IMPORTANT)]);
        for name in names {
            fs::hard_link(folder.0.join("program"), name).expect("another name for it");
        }
        let shell = fs::canonicalize("/bin/sh").expect("a shell");
        fs::copy(shell, folder.0.join(BATCH)).expect("a copy of it");
        folder
    }

    /// The source of the important service's speed.
    fn log(&self) -> PathBuf {
        self.0.join("speed.log")
    }

    fn name(&self, i: usize) -> PathBuf {
        self.0.join(format!("services/service-{i}"))
    }

    fn service(&self, i: usize) -> Running {
        program::start_by_name(&self.name(i), THREADS, RUNNING)
    }

    /// The daemon, in this mode and with this policy for all services. With an address it serves the page.
    fn daemon(&self, mode: &str, policy: &str, address: Option<SocketAddr>) -> Daemon {
        let services = self.0.join("services/*");
        let map = format!("X{}", ".".repeat(cpus(COTENANT) - 1));
        let text = format!(
            "mode = \"{mode}\"\nlisten = \"{}\"\n[set.static]\nmap = \"{map}\"\n[[rule]]\nname = \"bench\"\n\
             match = {{ command = '{}' }}\npolicy = \"{policy}\"\n\
             [[rule]]\nname = \"{IMPORTANT}\"\nmatch = {{ command = '{}' }}\nclass = \"high\"\ngoal = \"80%\"\n\
             metric = \"log:{}:(.*),higher\"\n[[rule]]\nname = \"{BATCH}\"\nmatch = {{ command = '{}' }}\n\
             class = \"low\"\n",
            address.map_or_else(String::new, |address| address.to_string()),
            services.display(),
            self.0.join(IMPORTANT).display(),
            self.log().display(),
            self.0.join(BATCH).display(),
        );
        Daemon::start(COTENANT, &self.0, &text, Stdio::null())
    }

    /// Its status; null without an answer.
    fn status(&self) -> Value {
        let out = daemon::command(COTENANT, &self.0, &["status", "--json"], None)
            .stderr(Stdio::null())
            .output()
            .expect("it starts");
        serde_json::from_slice(&out.stdout).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The services that are managed.
fn managed(status: &Value) -> &[Value] {
    status["services"].as_array().map_or(&[], Vec::as_slice)
}

/// A currently unused address.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

/// Requests what the page requests, at its intervals, until the result is dropped.
fn browse(address: SocketAddr) -> Sender<()> {
    let (open, closed) = channel();
    std::thread::spawn(move || {
        let mut due = Instant::now();
        while closed.recv_timeout(LOOKS) == Err(RecvTimeoutError::Timeout) {
            let Ok(now) = asked(address, "now.json") else { continue };
            let now: Value = serde_json::from_slice(&now).expect("JSON");
            let [length, every] = [0, 1].map(|i| now["spans"][0][i].as_f64().expect("a span in seconds"));
            if Instant::now() >= due {
                asked(address, &format!("plots/{length}.json")).expect("it has answered before");
                due = Instant::now() + Duration::from_secs_f64(every);
            }
        }
    });
    open
}

/// A daemon's answer to a browser.
fn asked(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok(answer.split_off(body + 4))
}

/// The resources of the daemon and its guardian so far.
struct Looked {
    at: Instant,
    cpu_ns: u64,
    resident_mb: f64,
    descriptors: usize,
    threads: usize,
}

impl Looked {
    fn at(daemon: &Daemon) -> Self {
        let family = family(daemon.pid());
        let entries = |what: &str| -> usize {
            let folders = family.iter().map(|pid| PathBuf::from(format!("/proc/{pid}/{what}")));
            folders.map(|folder| fs::read_dir(folder).map_or(0, Iterator::count)).sum()
        };
        Self {
            at: Instant::now(),
            cpu_ns: family.iter().map(|pid| cpu_ns(*pid)).sum(),
            resident_mb: family.iter().map(|pid| memory_kib(*pid, "VmRSS:")).sum::<u64>() as f64 / 1024.0,
            descriptors: entries("fd"),
            threads: entries("task"),
        }
    }

    fn since(&self, before: &Self) -> Value {
        let elapsed = self.at - before.at;
        json!({
            "percent_of_a_core": (self.cpu_ns - before.cpu_ns) as f64 / elapsed.as_nanos() as f64 * 100.0,
            "resident_mb": self.resident_mb,
            "descriptors": self.descriptors,
            "threads": self.threads,
            "seconds": elapsed.as_secs_f64(),
        })
    }
}
