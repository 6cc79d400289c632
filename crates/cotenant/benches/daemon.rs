//! What the daemon costs, its guardian included, and whether that stays so while services come and go.
//!
//! `cargo bench -p cotenant --bench daemon`: 200 services with 2,000 threads of which 200 run. Observing, placing all
//! of them on CPU 0 (`static`), and by `auto`; the latter also with the page open in a browser.
//!
//! With `-- soak`: 20 services of which one restarts every two seconds, and one that starts 2,000 short processes a
//! minute, with a row each minute and a last one that says how the second half compares with the first.
//!
//! `COTENANT_BENCH_SECONDS` (20 for each row; 600 for `soak`) says how long.

#[path = "../../../benches/cost.rs"]
mod cost;
#[path = "../../../benches/daemons.rs"]
mod daemons;
#[allow(dead_code)] // what other benchmarks need of it
#[path = "../../../benches/program.rs"]
mod program;
#[path = "../../../benches/report.rs"]
mod report;

use cost::{cpu_ns, family, memory_kib};
use daemons::{Daemon, cpus, told};
use program::Running;
use report::Report;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Looks get rarer in the first seconds.
const SETTLE: Duration = Duration::from_secs(15);
const THREADS: usize = 10;
const RUNNING: usize = 1;
const MANY: usize = 200;
const FEW: usize = 20;
/// How often the page looks.
const LOOKS: Duration = Duration::from_secs(1);
const RESTARTS: Duration = Duration::from_secs(2);
const BIRTHS_PER_MINUTE: u32 = 2_000;

/// What stays flat in a soak.
const FLAT: [&str; 4] = ["percent_of_a_core", "resident_mb", "descriptors", "threads"];

fn main() {
    program::run_if_asked();
    let folder = Folder::new();
    let mut report = Report::new("daemon");
    let seconds = |or: u64| {
        let told = std::env::var("COTENANT_BENCH_SECONDS").ok().and_then(|s| s.parse().ok());
        Duration::from_secs(told.unwrap_or(or))
    };
    if std::env::args().any(|arg| arg == "soak") {
        soak(&folder, &mut report, seconds(600));
        return;
    }
    let _services: Vec<Running> = (0..MANY).map(|i| folder.service(i)).collect();
    let ways = [
        ("observe", "auto", false),
        ("enforce", "static", false),
        ("enforce", "auto", false),
        ("enforce", "auto", true),
    ];
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
        row["services"] = folder.managed().into();
        row["threads_of_services"] = (MANY * THREADS).into();
        report.row(row);
    }
}

fn soak(folder: &Folder, report: &mut Report, length: Duration) {
    let mut services: Vec<Running> = (0..FEW).map(|i| folder.service(i)).collect();
    let _births = program::start_births(&folder.name(FEW), BIRTHS_PER_MINUTE);
    let daemon = folder.daemon("enforce", "auto", None);
    std::thread::sleep(SETTLE);
    let begin = Instant::now();
    let (mut before, mut rows, mut restarts) = (Looked::at(&daemon), Vec::new(), 0_usize);
    for minute in 1..=(length.as_secs() / 60).max(2) {
        let end = begin + Duration::from_secs(60) * minute as u32;
        while Instant::now() < end {
            std::thread::sleep(RESTARTS);
            let i = restarts % FEW;
            services[i] = folder.service(i);
            restarts += 1;
        }
        let now = Looked::at(&daemon);
        let mut row = now.since(&before);
        row["minute"] = minute.into();
        row["services"] = folder.managed().into();
        row["restarts"] = restarts.into();
        report.row(row.clone());
        rows.push(row);
        before = now;
    }
    let halves = rows.split_at(rows.len() / 2);
    let mean =
        |rows: &[Value], key: &str| rows.iter().filter_map(|row| row[key].as_f64()).sum::<f64>() / rows.len() as f64;
    let ratios = FLAT.map(|key| (key.to_owned(), (mean(halves.1, key) / mean(halves.0, key)).into()));
    report.row(json!({ "second_half_over_first": Value::Object(ratios.into_iter().collect()) }));
}

/// Where all of it lies: the services' files, the configuration and the state. Removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = Self(std::env::temp_dir().join(format!("cotenant-daemon-{}", std::process::id())));
        fs::create_dir_all(folder.0.join("services")).expect("a folder for services");
        fs::copy(std::env::current_exe().expect("this benchmark's own file"), folder.0.join("program"))
            .expect("a copy of this benchmark");
        for i in 0..=MANY {
            fs::hard_link(folder.0.join("program"), folder.name(i)).expect("another name for it");
        }
        folder
    }

    fn name(&self, i: usize) -> PathBuf {
        self.0.join(format!("services/service-{i}"))
    }

    fn service(&self, i: usize) -> Running {
        program::start_by_name(&self.name(i), THREADS, RUNNING)
    }

    /// The daemon, in this mode and with this policy for all services. It has a page where it has an address.
    fn daemon(&self, mode: &str, policy: &str, address: Option<SocketAddr>) -> Daemon {
        let services = self.0.join("services/*");
        let map = format!("X{}", ".".repeat(cpus() - 1));
        let text = format!(
            "mode = \"{mode}\"\nlisten = \"{}\"\n[set.static]\nmap = \"{map}\"\n[[rule]]\nname = \"bench\"\n\
             match = {{ command = {:?} }}\npolicy = \"{policy}\"\n",
            address.map_or_else(String::new, |address| address.to_string()),
            services.to_str().expect("a plain path")
        );
        Daemon::start(&self.0, &text, Stdio::null())
    }

    /// How many services it has.
    fn managed(&self) -> usize {
        let out = told(&self.0, &["status", "--json"], None).stderr(Stdio::null()).output().expect("it starts");
        let status: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        status["services"].as_array().map_or(0, Vec::len)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An address that nobody uses at the moment.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

/// Asks for what the page asks for, as often, until what it returns is dropped.
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

/// What a daemon answers to a browser.
fn asked(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok(answer.split_off(body + 4))
}

/// What the daemon and its guardian have and have used.
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
