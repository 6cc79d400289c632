//! The metrics of `cotenant daemon` over HTTP: their values, hostile clients, and a real Prometheus as the reader.

use crate::world::{Manager, State, signal, skip};
use cotenant_testing::{TempDir, eventually, spawn_fresh};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A daemon that observes one sleeping program.
struct World {
    state: State,
    program: Child,
}

const RULE: &str = "[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n";

impl World {
    fn new(test: &str) -> Self {
        let state = State::new(test);
        let sleep = Command::new("sh").args(["-c", "command -v sleep"]).output().unwrap().stdout;
        let path = state.path().join("server");
        fs::copy(String::from_utf8(sleep).unwrap().trim(), &path).unwrap();
        let program = spawn_fresh(Command::new(path).arg("1000").stdin(Stdio::null()));
        Self { state, program }
    }

    fn configure(&self, first: &str) {
        let rule = RULE.replace("$DIR", self.state.path().to_str().unwrap());
        fs::write(self.state.path().join("c.toml"), format!("{first}\n{rule}")).unwrap();
    }

    fn cotenant(&self, words: &[&str]) -> Command {
        let socket = self.state.path().join("control.sock");
        let words = [words, &["--socket", socket.to_str().unwrap()]].concat();
        let mut command = self.state.cotenant(&words);
        command.env("XDG_DATA_HOME", self.state.path().join("data"));
        command
    }

    /// Starts the daemon, and waits for its message about listening or an error.
    fn daemon(&self) -> Manager {
        let config = self.state.path().join("c.toml");
        let daemon = Manager::start(self.cotenant(&["daemon", "--config", config.to_str().unwrap()]));
        eventually("the daemon listens", || self.status().is_some_and(|status| !status["listen"].is_null()));
        daemon
    }

    fn status(&self) -> Option<Value> {
        let out = self.cotenant(&["status", "--json"]).output().unwrap();
        out.status.success().then(|| serde_json::from_slice(&out.stdout).unwrap())
    }

    fn address(&self) -> String {
        self.status().unwrap()["listen"]["address"].as_str().unwrap().to_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The status and the body of the answer; `None` without an answer.
fn ask(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let (head, body) = std::str::from_utf8(&answer).ok()?.split_once("\r\n\r\n")?;
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        return Some((head[9..12].parse().ok()?, whole(body)?));
    }
    Some((head[9..12].parse().ok()?, body.to_owned()))
}

/// The joined pieces of a chunked body.
fn whole(mut body: &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(text);
        }
        text.push_str(&rest[..length]);
        body = &rest[length + 2..];
    }
}

fn metric(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

#[test]
fn metrics_say_what_status_says() {
    let world = World::new("endpoint-metrics");
    world.configure("listen = \"127.0.0.1:0\"\ninterval = \"20ms\"");
    let daemon = world.daemon();
    let address = world.address();
    let threads = "cotenant_service_threads{service=\"server\"}";
    let mut text = String::new();
    eventually("the service is there", || {
        text = ask(&address, "/metrics").unwrap().1;
        metric(&text, threads) == Some(1.0)
    });
    assert_eq!(ask(&address, "/healthz"), Some((200, "ok\n".to_owned())));
    assert_eq!(metric(&text, "cotenant_config_reload_success"), Some(1.0));
    assert_eq!(metric(&text, "cotenant_mode{mode=\"observe\"}"), Some(1.0));
    assert!(text.contains(
        "cotenant_service_info{service=\"server\",workload=\"server\",rule=\"all\",class=\"normal\",policy=\"auto\"} 1"
    ));
    assert!(metric(&text, "cotenant_agent_resident_bytes").is_some_and(|bytes| bytes > 1e6), "{text}");
    assert!(metric(&text, "cotenant_signal_available{signal=\"cpu_ns\"}").is_some(), "{text}");
    for unknown in ["cotenant_service_goal_ratio", "cotenant_service_latency", "cotenant_changes_outstanding"] {
        assert!(!text.contains(unknown), "{unknown}: nothing is known of it\n{text}");
    }
    // A refused address is reported, and the old one stays.
    world.configure("listen = \"localhost\"");
    signal("HUP", daemon.pid());
    let why = || world.status().unwrap()["config_error"].as_str().map(str::to_owned);
    eventually("it is refused", || {
        why().is_some_and(|why| why.contains("c.toml:1:10: listen: 'localhost' is not an address"))
    });
    eventually("the metrics say so", || {
        metric(&ask(&address, "/metrics").unwrap().1, "cotenant_config_reload_success") == Some(0.0)
    });
    // And no address at all.
    world.configure("listen = \"\"");
    signal("HUP", daemon.pid());
    eventually("it listens no more", || world.status().unwrap()["listen"].is_null());
    assert_eq!(ask(&address, "/metrics"), None);
    assert_eq!(daemon.terminate().1, Some(0));
}

/// Its files, how it stands, and what came of it; and that the loop adds to it.
#[test]
fn the_page_is_served_beside_them() {
    let world = World::new("endpoint-page");
    world.configure("listen = \"127.0.0.1:0\"\ninterval = \"20ms\"");
    let daemon = world.daemon();
    let address = world.address();
    let (code, html) = ask(&address, "/").unwrap();
    assert!(code == 200 && html.starts_with("<!DOCTYPE html>"), "{html}");
    let named = html.split(['"', '\'']).filter(|word| word.starts_with('/'));
    let files: Vec<&str> = named.filter(|path| path.contains('.')).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        assert_eq!(ask(&address, file).unwrap().0, 200, "{file}");
    }
    let json = |path: &str| serde_json::from_str::<Value>(&ask(&address, path).unwrap().1).unwrap();
    eventually("the service is on the page", || {
        let now = json("/now.json");
        let services = now["services"].as_array().unwrap();
        services.iter().any(|service| service["name"] == "server" && service["threads"] == 1)
    });
    eventually("rows are added", || json("/plots/600.json")["at_s"].as_array().unwrap().len() >= 2);
    assert_eq!(daemon.terminate().1, Some(0));
}

/// Holds daemon/hostile.
#[test]
fn an_address_in_use_is_a_remark_and_served_once_it_is_free() {
    let world = World::new("endpoint-used");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    world.configure(&format!("listen = \"{address}\""));
    let daemon = world.daemon();
    let error = || world.status().unwrap()["listen"]["error"].as_str().map(str::to_owned);
    assert!(error().is_some_and(|why| why.contains("in use")), "{:?}", error());
    let said = String::from_utf8(world.cotenant(&["status"]).output().unwrap().stdout).unwrap();
    assert!(
        said.contains(&format!("metrics: none, {address} cannot be listened at: Address already in use")),
        "{said}"
    );
    drop(taken);
    eventually("it is served", || ask(&address, "/healthz").is_some_and(|(code, _)| code == 200));
    eventually("status says so", || error().is_none());
    let (said, code) = daemon.terminate();
    assert!(code == Some(0) && said.matches("metrics cannot be served at").count() == 1, "{said}");
}

/// Whether the other end is still open. Its output is read.
fn is_open(mut stream: &TcpStream) -> bool {
    let mut piece = [0; 4_096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(why) => return why.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// The loop goes on, and neither memory nor descriptors grow.
/// Holds daemon/hostile.
#[test]
fn hostile_clients_cost_little_and_stop_nothing() {
    let world = World::new("endpoint-hostile");
    // BPF takes its own memory and descriptors, some time after the start.
    world.configure("listen = \"127.0.0.1:0\"\ninterval = \"20ms\"\nbpf = false");
    let daemon = world.daemon();
    let (address, pid) = (world.address(), daemon.pid());
    ask(&address, "/metrics").unwrap();
    let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    let (before, base) = (resident(), [descriptors(), threads()]);
    let uptime = || world.status().unwrap()["uptime_s"].as_f64().unwrap();
    let begun = uptime();
    let (mut open, long) = (Vec::new(), vec![b'x'; 100_000]);
    for i in 0..300 {
        let Ok(mut stream) = TcpStream::connect(&address) else { continue };
        stream.set_nonblocking(true).unwrap();
        // The client is silent, sends half a request or too much, or never reads.
        let said: &[u8] = match i % 4 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nX: ",
            2 => &long,
            _ => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        let _ = stream.write(said);
        open.push(stream);
    }
    let mut most = base;
    eventually("all were taken in, and all but a few sent away", || {
        most = [most[0].max(descriptors()), most[1].max(threads())];
        open.iter().filter(|stream| is_open(stream)).count() <= 32
    });
    // including the control socket's
    assert!(most[0] <= base[0] + 32 + 16 && most[1] <= base[1] + 16, "{base:?} → {most:?}");
    eventually("the loop goes on", || uptime() > begun + 2.0);
    eventually("it looks", || ask(&address, "/healthz").is_some_and(|(code, _)| code == 200));
    assert!(resident() < before + (32 << 10), "{before} kB → {} kB", resident());
    let answer = ask(&address, "/metrics");
    assert!(answer.is_some_and(|(code, _)| code == 200), "who comes behind them is answered");
    drop(open);
    assert_eq!(daemon.terminate().1, Some(0));
}

/// A stopped thread of a process; it continues when this is dropped or the stopping thread ends.
struct Stopped(libc::pid_t);

impl Stopped {
    /// `None`, reported, if that is forbidden here.
    fn stop(thread: u32) -> Option<Self> {
        let thread = thread as libc::pid_t;
        let mut status = 0;
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: it reads and writes no memory of ours.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0 };
        if !seized {
            skip(&format!("a thread cannot be stopped here: {}", std::io::Error::last_os_error()));
            return None;
        }
        let stopped = Self(thread);
        // SAFETY: as above; the status is ours.
        let done = unsafe {
            libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) == 0
                && libc::waitpid(thread, &raw mut status, libc::__WALL) == thread
        };
        assert!(done && libc::WIFSTOPPED(status), "{status:x}");
        Some(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: it reads and writes no memory of ours.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

/// The server has a thread of its own, which goes on where the loop hangs: and says so.
#[test]
fn a_loop_that_hangs_is_told() {
    let world = World::new("endpoint-hangs");
    world.configure("listen = \"127.0.0.1:0\"\ninterval = \"20ms\"");
    let daemon = world.daemon();
    let address = world.address();
    let health = || ask(&address, "/healthz").unwrap();
    eventually("it looks", || health().0 == 200);
    // The first thread runs the loop.
    let Some(stopped) = Stopped::stop(daemon.pid()) else { return };
    eventually("the last sample is old", || {
        world.status().is_some_and(|status| status["sample_age_s"].as_f64().unwrap() > 10.0)
    });
    assert_eq!(health().0, 503);
    let text = ask(&address, "/metrics").unwrap().1;
    assert!(metric(&text, "cotenant_sample_age_seconds").is_some_and(|age| age > 10.0), "{text}");
    let said = String::from_utf8(world.cotenant(&["status"]).output().unwrap().stdout).unwrap();
    assert!(said.contains("warning: no look at the services for ") && said.contains("; does it hang?"), "{said}");
    drop(stopped);
    eventually("it looks again", || health().0 == 200);
    assert_eq!(daemon.terminate().1, Some(0));
}

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// A program of Prometheus; `None`, reported, without it.
fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success());
    if !has {
        skip(&format!("there is no {program} (scripts/setup --optional prometheus)"));
    }
    has
}

/// Holds daemon/metrics.
#[test]
fn the_right_values_raise_the_right_alerts() {
    if !has("promtool") {
        return;
    }
    for (kind, file) in [("check", "prometheus/cotenant.rules.yml"), ("test", "prometheus/cotenant.test.yml")] {
        let out = Command::new("promtool").args([kind, "rules"]).arg(packaging(file)).output().unwrap();
        assert!(out.status.success(), "{out:?}");
    }
}

/// Killed on drop.
struct Prometheus {
    process: Child,
    address: String,
    folder: TempDir,
}

impl Prometheus {
    fn start(target: &str) -> Self {
        let folder = TempDir::new("prometheus");
        let scrape = fs::read_to_string(packaging("prometheus/cotenant.scrape.yml")).unwrap();
        let scrape = scrape.replace("127.0.0.1:9844", target).replace("15s", "1s");
        let rules = packaging("prometheus/cotenant.rules.yml");
        let config = format!(
            "global: {{ evaluation_interval: 1s }}\nrule_files: [\"{}\"]\nscrape_configs:\n{scrape}",
            rules.canonicalize().unwrap().display()
        );
        folder.write("prometheus.yml", config);
        let (process, address) = Self::at_a_free_port(&folder);
        Self { process, address, folder }
    }

    /// Another process may take the port first: then it ends, and another port is tried.
    fn at_a_free_port(folder: &TempDir) -> (Child, String) {
        for _ in 0..10 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
            let mut command = Command::new("prometheus");
            command
                .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
                .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(fs::File::create(folder.path().join("log")).unwrap());
            let mut process = command.spawn().unwrap();
            let (mut ready, mut ended) = (false, false);
            eventually("Prometheus is ready, or has ended", || {
                ended = process.try_wait().unwrap().is_some();
                ready = !ended && ask(&address, "/-/ready").is_some_and(|(code, _)| code == 200);
                ready || ended
            });
            if ready {
                return (process, address);
            }
        }
        panic!("{}", fs::read_to_string(folder.path().join("log")).unwrap_or_default());
    }

    fn api(&self, path: &str) -> Value {
        let (_, text) = ask(&self.address, path).unwrap_or_else(|| {
            panic!("{path}: {}", fs::read_to_string(self.folder.path().join("log")).unwrap_or_default())
        });
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{path}: {why}: {text}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The present results of a query.
    fn query(&self, expression: &str) -> Vec<Value> {
        let mut escaped = String::new();
        expression.bytes().for_each(|byte| write!(escaped, "%{byte:02x}").unwrap());
        self.api(&format!("/api/v1/query?query={escaped}"))["result"].as_array().unwrap().clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Every expression of the dashboard with values for its variables.
fn expressions(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(expr)) = map.get("expr") {
                let filled = ["$instance", "$service"].iter().fold(expr.clone(), |expr, name| expr.replace(name, ".*"));
                found.insert(filled.replace("$__rate_interval", "1m"));
            }
            map.values().for_each(|value| expressions(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// Holds daemon/metrics.
#[test]
fn a_real_prometheus_takes_metrics_rules_and_the_queries_of_the_dashboard() {
    if !has("prometheus") {
        return;
    }
    let world = World::new("endpoint-prometheus");
    world.configure("listen = \"127.0.0.1:0\"\ninterval = \"20ms\"");
    let daemon = world.daemon();
    let prometheus = Prometheus::start(&world.address());
    eventually("it is scraped twice", || prometheus.query("count_over_time(up{job=\"cotenant\"}[1m]) >= 2").len() == 1);
    eventually("the service is there", || {
        prometheus.query("cotenant_service_threads{service=\"server\"} == 1").len() == 1
    });
    let targets = prometheus.api("/api/v1/targets")["activeTargets"].clone();
    assert_eq!((&targets[0]["health"], &targets[0]["lastError"]), (&Value::from("up"), &Value::from("")), "{targets}");
    let metadata = prometheus.api("/api/v1/metadata");
    let told = ["type", "help", "unit"].map(|key| metadata["cotenant_sample_age_seconds"][0][key].as_str().unwrap());
    assert_eq!(told, ["gauge", "Time since the services were last looked at", "seconds"], "{metadata}");
    eventually("each rule was evaluated", || {
        let groups = prometheus.api("/api/v1/rules")["groups"].clone();
        let rules = groups[0]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), 8, "{groups}");
        let fails =
            |rule: &&Value| rule["health"] == "err" || rule["lastError"].as_str().is_some_and(|why| !why.is_empty());
        assert_eq!(rules.iter().find(fails), None);
        // Before the first scrape it is "unknown", in the year 1.
        rules
            .iter()
            .all(|rule| rule["health"] == "ok" && !rule["lastEvaluation"].as_str().unwrap().starts_with("0001-"))
    });
    let text = fs::read_to_string(packaging("grafana/cotenant.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut found = BTreeSet::new();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 15, "{found:?}");
    let is_known = |expr: &str| {
        ["goal", "speed", "latency", "throttled", "interference", "decisions", "changes"]
            .iter()
            .all(|unknown| !expr.contains(unknown))
    };
    for expr in found {
        let values = prometheus.query(&expr);
        if expr.contains("bandwidth") {
            continue; // it may be counted here or not
        }
        assert!(!is_known(&expr) || !values.is_empty(), "{expr} finds nothing");
        assert!(is_known(&expr) || values.is_empty(), "{expr}: how is that known? {values:?}");
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["query"]["query"].as_str() else { continue };
        let query = query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')')).unwrap();
        let (series, label) = query.rsplit_once(", ").unwrap();
        let series = series.replace("$instance", ".*");
        assert!(!prometheus.query(&format!("count by ({label}) ({series})")).is_empty(), "{query}");
    }
    drop(prometheus);
    assert_eq!(daemon.terminate().1, Some(0));
}

/// Panels lie beside each other, have ids of their own, and say what is to be seen where there is nothing.
#[test]
fn the_dashboard_is_laid_out() {
    let text = fs::read_to_string(packaging("grafana/cotenant.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut cells = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{} lies over another one", panel["title"]);
        }
        let targets = panel["targets"].as_array().map_or(0, Vec::len);
        assert_eq!(targets > 0, panel["type"] != "row", "{}", panel["title"]);
    }
}
