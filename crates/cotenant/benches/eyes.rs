//! What the kernel shows of requests, beside the log of the clients that sent them: `clients:` against the truth.
//!
//! `cargo bench -p cotenant --bench eyes`; root. Servers that are not installed are left out with a word. Clients are
//! open-loop: each of 200 connections has random moments of its own at which a request is due, and logs how long it
//! took from when it was sent until the answer was taken. `COTENANT_BENCH_SECONDS` (5) for each run,
//! `COTENANT_BENCH_SEEDS` (3), `COTENANT_BENCH_RATE` (2000 requests per second; a quarter of it for Python).
//!
//! A row for each run: percentiles in µs by the log and as seen, at the client and at the server, and requests by both;
//! `questions` is the p99 of `redis:`, `postgres:` or `http:` in a run of the same kind. `restart`: the server is
//! started anew in mid-run. The last row says how many are within 5 and 8 %; it fails where one is not within 8 %, more
//! than a tenth not within 5 %, or a request in a thousand was not counted.

#[path = "eyes/client.rs"]
mod client;

use client::Speaks;
use cotenant_bpf::{Requests, Service};
use cotenant_model::Histogram;
use cotenant_testing::TempDir;
use cotenant_testing::bench::Report;
use cotenant_testing::bench::servers::{is_there, shell};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::linux::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");
const PORT: u16 = 26_381;
const GO: &str = "package main\nimport \"net/http\"\nfunc main() {\n\
    http.HandleFunc(\"/\", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(\"ok\")) })\n\
    http.ListenAndServe(\"127.0.0.1:26381\", nil)\n}\n";
const PYTHON: &str = "import http.server as h\n\
class H(h.BaseHTTPRequestHandler):\n\
\x20protocol_version = 'HTTP/1.1'\n\
\x20def do_GET(s):\n\
\x20\x20s.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')\n\
\x20def log_message(s, *a): pass\n\
class S(h.ThreadingHTTPServer): request_queue_size = 500\n\
S(('127.0.0.1', 26381), H).serve_forever()\n";
const NGINX: &str = "daemon off; events { worker_connections 1024; } http { access_log off; \
    server { listen 127.0.0.1:26381; location / { return 200 ok; } } }";

/// How it is started in a folder, what it speaks, and its socket there.
struct Kind {
    name: &'static str,
    needs: &'static str,
    speaks: Speaks,
    socket: Option<&'static str>,
    slower: f64,
    start: fn(&Path) -> String,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "redis",
        needs: "redis-server",
        speaks: Speaks::Redis,
        socket: Some("redis.sock"),
        slower: 1.0,
        start: |folder| {
            let folder = folder.display();
            format!("exec redis-server --port {PORT} --save '' --dir {folder} --unixsocket {folder}/redis.sock")
        },
    },
    Kind {
        name: "postgres",
        needs: "psql",
        speaks: Speaks::Postgres,
        socket: Some(".s.PGSQL.26381"),
        slower: 1.0,
        start: |folder| {
            let folder = folder.display();
            format!(
                "PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); cd /; chown postgres {folder}; \
                 exec setpriv --reuid postgres --regid postgres --clear-groups sh -c \
                 '[ -d {folder}/db ] || initdb -A trust -D {folder}/db >&2; \
                 exec postgres -D {folder}/db -p {PORT} -k {folder} -N 300'"
            )
        },
    },
    Kind {
        name: "nginx",
        needs: "nginx",
        speaks: Speaks::Http,
        socket: None,
        slower: 1.0,
        start: |folder| {
            fs::write(folder.join("nginx.conf"), NGINX).unwrap();
            format!("exec nginx -p {0} -c {0}/nginx.conf", folder.display())
        },
    },
    Kind {
        name: "python",
        needs: "python3",
        speaks: Speaks::Http,
        socket: None,
        slower: 4.0,
        start: |folder| {
            fs::write(folder.join("server.py"), PYTHON).unwrap();
            format!("exec python3 {}/server.py", folder.display())
        },
    },
    Kind {
        name: "go",
        needs: "go",
        speaks: Speaks::Http,
        socket: None,
        slower: 1.0,
        start: |folder| {
            fs::write(folder.join("server.go"), GO).unwrap();
            format!("cd {} && ([ -x server ] || go build -o server server.go) && exec ./server", folder.display())
        },
    },
];

/// What runs beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Computing,
    Idle,
    Restart,
}

impl Beside {
    const ALL: [Self; 4] = [Self::Nothing, Self::Computing, Self::Idle, Self::Restart];

    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "alone",
            Self::Computing => "two computing",
            Self::Idle => "two in cpu.idle",
            Self::Restart => "restart",
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == client::WORD) {
        client::run(&words[1..]);
        return ExitCode::SUCCESS;
    }
    if let Err(why) = Requests::missing() {
        eprintln!("skipped: requests cannot be seen here: {why}");
        return ExitCode::SUCCESS;
    }
    let mut report = Report::new("eyes");
    let mut off = Vec::new();
    for kind in KINDS {
        if !is_there(kind.needs) {
            eprintln!("skipped: {} is not installed", kind.name);
            continue;
        }
        let folder = TempDir::new("eyes");
        for socket in [None].into_iter().chain(kind.socket.map(Some)) {
            let study = Study { kind: &kind, socket, folder: folder.path() };
            off.extend(study.run(&mut report));
        }
    }
    judged(&off, &mut report)
}

/// A server, and one way to it.
struct Study<'a> {
    kind: &'a Kind,
    socket: Option<&'static str>,
    folder: &'a Path,
}

/// How far off what was seen is, of 1: the p99, and the number of requests.
type Off = [f64; 2];

impl Study<'_> {
    fn address(&self) -> String {
        let port = || format!("127.0.0.1:{PORT}");
        self.socket.map_or_else(port, |socket| self.folder.join(socket).display().to_string())
    }

    /// Where the kernel finds it now: a socket that is made anew is another.
    fn service(&self) -> Option<Service> {
        let inode = |path: &Path| fs::metadata(path).ok();
        Some(match self.socket {
            None => Service::Port { port: PORT, netns: inode(Path::new("/proc/self/ns/net"))?.st_ino() as u32 },
            Some(socket) => {
                let file = inode(&self.folder.join(socket))?;
                let device = (libc::major(file.st_dev()), libc::minor(file.st_dev()));
                Service::Socket { device, inode: file.st_ino() }
            }
        })
    }

    /// `None` where it does not start. `meanwhile` is called again and again until it answers.
    fn start(&self, mut meanwhile: impl FnMut()) -> Option<Ends> {
        let line = (self.kind.start)(self.folder);
        let server = Ends::start(shell(&line, None).stdout(Stdio::null()).stderr(Stdio::null()))?;
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            meanwhile();
            if client::is_there(self.kind.speaks, &self.address()) {
                return Some(server);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    fn run(&self, report: &mut Report) -> Vec<Off> {
        let number = |name: &str, or: f64| env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
        let seconds = number("COTENANT_BENCH_SECONDS", 5.0);
        let rate = number("COTENANT_BENCH_RATE", 2_000.0) / self.kind.slower;
        let mut off = Vec::new();
        for beside in Beside::ALL {
            let Some(mut server) = self.start(|| ()) else {
                eprintln!("skipped: {} does not start", self.kind.name);
                return off;
            };
            let Some(_batch) = beside.start() else {
                eprintln!("skipped: {}: no such group can be made", beside.name());
                continue;
            };
            for seed in 1..=number("COTENANT_BENCH_SEEDS", 3.0) as u64 {
                let seen = self.once(&mut server, beside, [rate, seconds], seed);
                let Some((mut row, once)) = seen else { continue };
                if seed == 1 && beside != Beside::Restart {
                    row["questions"] = self.questions([rate, seconds], seed);
                }
                off.push(once);
                report.row(row);
            }
        }
        off
    }

    /// All its connections are there, and wait for [`begin`].
    fn client(&self, [rate, seconds]: [f64; 2], seed: u64) -> Option<Client> {
        let mut client = Command::new(env::current_exe().ok()?);
        client.args([client::WORD, self.kind.speaks.name(), &self.address()]);
        client.args([rate.to_string(), seconds.to_string(), seed.to_string()]);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let said = BufReader::new(client.stdout.take()?).lines();
        let mut client = Client(client, said);
        (client.1.next()?.ok()? == "ready").then_some(client)
    }

    fn once(&self, server: &mut Ends, beside: Beside, load: [f64; 2], seed: u64) -> Option<(Value, Off)> {
        let mut requests = Requests::load(self.service()?).ok()?;
        let mut client = self.client(load, seed)?;
        // What was said before the first request counts as requests, too.
        let before = requests.read().ok()?;
        client.begin()?;
        if beside == Beside::Restart {
            thread::sleep(Duration::from_secs_f64(load[1] / 2.0));
            server.end();
            *server = self.start(|| {
                if let Some(service) = self.service() {
                    let _ = requests.follow(service);
                }
            })?;
        }
        let log = client.log()?;
        let now = requests.read().ok()?;
        let local = now.local.ns.since(&before.local.ns)?;
        let answered = now.served.ns.since(&before.served.ns)?;
        let us = |latencies: &Histogram| {
            let of = |q| latencies.quantile(q).map(|ns| ns / 1e3);
            json!({ "n": latencies.count(), "p50": of(0.5), "p99": of(0.99) })
        };
        let off = |seen: f64, logged: &Value| seen / logged.as_f64().unwrap_or(f64::NAN) - 1.0;
        let once = [
            off(local.quantile(0.99)? / 1e3, &log["sent"]["p99"]),
            // Of a restart it is not known which requests were answered in its last moment, and who looked for it.
            if beside == Beside::Restart { 0.0 } else { off(local.count() as f64, &log["n"]) },
        ];
        let row = json!({
            "server": self.kind.name,
            "way": if self.socket.is_some() { "unix" } else { "tcp" },
            "beside": beside.name(),
            "seed": seed,
            "log": log,
            "client": us(&local),
            "at_server": us(&answered),
            "joined": now.local.joined - before.local.joined,
            "p99_off": once[0],
            "n_off": once[1],
        });
        Some((row, once))
    }

    /// The p99 that questions find under the same load, µs; null where this way in is not asked.
    fn questions(&self, load: [f64; 2], seed: u64) -> Value {
        let source = match (self.kind.speaks, self.socket) {
            (Speaks::Http, _) => format!("http:{PORT}:p99"),
            (speaks, None) => format!("{}:{PORT}:p99", speaks.name()),
            (speaks, Some(_)) => format!("{}:{}:p99", speaks.name(), self.address()),
        };
        let Some(mut client) = self.client(load, seed) else { return Value::Null };
        let _ = client.begin();
        let mut asks = Command::new(COTENANT);
        asks.args(["run", "--json", "--no-bpf", "--metric", &source, "--", "sleep", &load[1].to_string()]);
        let said = asks.env("PGUSER", "postgres").output();
        let _ = client.log();
        let Ok(said) = said else { return Value::Null };
        let last = said.stderr.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
        let summary: Value = serde_json::from_slice(last).unwrap();
        summary["metrics"][0]["mean"].as_f64().map_or(Value::Null, |seconds| json!(seconds * 1e6))
    }
}

impl Beside {
    /// What runs there; `None` where that cannot be had.
    fn start(self) -> Option<Vec<Ends>> {
        let spin = "while :; do :; done";
        let line = match self {
            Self::Nothing | Self::Restart => return Some(Vec::new()),
            Self::Computing => spin.to_owned(),
            Self::Idle => {
                fs::create_dir_all(group()).ok()?;
                fs::write(group().join("cpu.idle"), "1").ok()?;
                format!("echo $$ > {}/cgroup.procs && {spin}", group().display())
            }
        };
        (0..2).map(|_| Ends::start(&mut shell(&line, None))).collect()
    }
}

/// A group of CPU time, of version 1 where there is that.
fn group() -> PathBuf {
    let mounts = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
    let mount = mounts.into_iter().find(|mount| Path::new(mount).exists());
    Path::new(mount.unwrap_or_default()).join("cotenant-eyes")
}

/// A client, and what it says.
struct Client(Child, Lines<BufReader<ChildStdout>>);

impl Client {
    fn begin(&mut self) -> Option<()> {
        self.0.stdin.take()?.write_all(b"\n").ok()
    }

    /// What it logged.
    fn log(mut self) -> Option<Value> {
        let log = serde_json::from_str(&self.1.next()?.ok()?).ok();
        let _ = self.0.wait();
        log
    }
}

/// Ended with all that it started.
struct Ends(Child);

impl Ends {
    fn start(command: &mut Command) -> Option<Self> {
        command.process_group(0).spawn().ok().map(Self)
    }

    fn end(&mut self) {
        let group = format!("-{}", self.0.id());
        for signal in ["-INT", "-TERM", "-KILL"] {
            let _ = Command::new("kill").args([signal, "--", &group]).stderr(Stdio::null()).status();
            let until = Instant::now() + Duration::from_secs(3);
            while Instant::now() < until {
                if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir(group());
    }
}

fn judged(all: &[Off], report: &mut Report) -> ExitCode {
    let within = |bound: f64| all.iter().filter(|[p99, _]| p99.abs() <= bound).count();
    let counted = all.iter().filter(|[_, n]| n.abs() <= 0.001).count();
    let (rows, close, near) = (all.len(), within(0.05), within(0.08));
    report.row(json!({ "rows": rows, "within_5_percent": close, "within_8_percent": near, "all_counted": counted }));
    let holds = near == rows && close * 10 >= rows * 9 && counted == rows;
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
