//! `--metric clients:`: what a server's clients wait is seen in the kernel.

use crate::world::{State, binary, is_root, skip};
use cotenant_testing::eventually;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Whether `cotenant doctor` finds that requests can be seen; else why not.
fn can_be_seen() -> bool {
    let out = Command::new(binary()).args(["doctor", "--json"]).output().unwrap().stdout;
    let doctor: Value = serde_json::from_slice(&out).unwrap();
    let found = |one: &&Value| one["name"] == "requests";
    let requests = doctor["capabilities"].as_array().unwrap().iter().find(found).unwrap().clone();
    let can = requests["standing"] == "available";
    if !can {
        skip(requests["found"].as_str().unwrap());
    }
    can
}

/// Answers a byte with a byte, one after the other.
fn answer(mut wire: impl Read + Write + Send + 'static) {
    thread::spawn(move || {
        let mut byte = [0];
        while wire.read_exact(&mut byte).is_ok() && wire.write_all(&byte).is_ok() {}
    });
}

/// Asks as long as it lives, some requests at a time before an answer is awaited.
struct Client(Arc<AtomicBool>);

impl Client {
    fn start(mut wire: impl Read + Write + Send + 'static, at_a_time: usize) -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let client = Self(goes_on.clone());
        thread::spawn(move || {
            while goes_on.load(Ordering::Relaxed) {
                (0..at_a_time).for_each(|_| wire.write_all(b"x").unwrap());
                wire.read_exact(&mut vec![0; at_a_time]).unwrap();
            }
        });
        client
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn run(state: &State, metric: &str) -> Value {
    let words = ["run", "--json", "--metric", metric, "--", "sleep", "2"];
    let Output { stderr, .. } = state.cotenant(&words).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    let summary: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {said}"));
    summary["metrics"][0].clone()
}

/// Holds speed/clients.
#[test]
fn what_clients_wait_is_a_metric_of_ports_and_sockets() {
    if !can_be_seen() {
        return;
    }
    let state = State::new("clients");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let path = state.path().join("server.sock");
    let unix = UnixListener::bind(&path).unwrap();
    thread::spawn(move || tcp.incoming().for_each(|wire| answer(wire.unwrap())));
    thread::spawn(move || unix.incoming().for_each(|wire| answer(wire.unwrap())));
    let connect = || {
        let wire = TcpStream::connect(("127.0.0.1", port)).unwrap();
        wire.set_nodelay(true).unwrap();
        wire
    };
    let of_port = format!("clients:{port}:p99,every=100ms");
    let of_socket = format!("clients:{}:p50,every=100ms", path.display());
    for (metric, client) in
        [(&of_port, Client::start(connect(), 1)), (&of_socket, Client::start(UnixStream::connect(&path).unwrap(), 1))]
    {
        let seen = run(&state, metric);
        let seconds = seen["mean"].as_f64().unwrap_or_default();
        assert!(seconds > 0.0 && seconds < 1.0 && seen["direction"] == "lower_is_better", "{metric}: {seen}");
        assert!(seen["requests"]["here"].as_u64() > Some(100), "{metric}: {seen}");
        assert_eq!((&seen["requests"]["elsewhere"], &seen["failed"]), (&0.into(), &0.into()), "{metric}: {seen}");
        drop(client);
    }
    let pipelining = Client::start(connect(), 2);
    let seen = run(&state, &of_port);
    let why = seen["why"].as_str().unwrap_or_default();
    assert!(why.contains("came before the previous answer") && why.contains('%'), "{seen}");
    drop(pipelining);
}

/// Holds speed/clients.
/// What cannot be seen is refused before anything begins.
#[test]
fn clients_that_cannot_be_seen_are_refused_once() {
    let state = State::new("clients-refused");
    let started = state.path().join("started");
    let low = format!("touch {}; exec sleep 1000", started.display());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = server.id().to_string();
    let end = |metric: &str, first: &str| {
        let words = ["qos", "--high-pid", &pid, "--low", &low, "--metric", metric, "--time", "1s"];
        let out = state.cotenant_after(first, &words).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), said.lines().count(), started.exists()), (Some(2), 1, false), "{said}");
        said
    };
    // Ordinary users have none of these rights anyway.
    let without = if is_root() { "setpriv --bounding-set -bpf,-sys_admin --inh-caps -bpf,-sys_admin" } else { "" };
    let without = format!("exec {without} env --default-signal '{}' \"$@\"", binary());
    let said = end(&format!("clients:{port}:p99"), &without);
    assert!(said.contains("requests cannot be seen here: "), "{said}");
    drop(listener);
    let said = end(&format!("clients:{port}:p99"), "");
    assert!(said.contains("nothing listens there"), "{said}");
    let said = end("clients:/nonexistent/socket:p99", "");
    assert!(said.contains("name the path of its socket"), "{said}");
    let _ = server.kill();
    let _ = server.wait();
}

/// A redis that was started by somebody else; killed on drop.
struct Redis(Child, u16);

impl Redis {
    fn start(folder: &Path) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"]);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        let Ok(child) = command.spawn() else {
            skip("no redis-server");
            return None;
        };
        let redis = Self(child, port);
        eventually("redis answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_server_without_a_metric_is_judged_by_its_clients() {
    if !can_be_seen() {
        return;
    }
    let state = State::new("clients-unnamed");
    let Some(redis) = Redis::start(state.path()) else { return };
    let pid = redis.0.id().to_string();
    let qos = |more: &[&str]| {
        let words = ["qos", "-v", "--high-pid", &pid, "--low", "exec sleep 1000", "--time", "1s"];
        let out = state.cotenant(&[&words[..], more].concat()).output().unwrap();
        String::from_utf8(out.stderr).unwrap()
    };
    let chosen = format!("its speed is what its clients wait (--metric clients:{}:p99)", redis.1);
    let said = qos(&[]);
    assert!(said.contains(&chosen), "{said}");
    for more in [["--metric", "progress"].as_slice(), &["--no-bpf"]] {
        let said = qos(more);
        assert!(!said.contains("what its clients wait"), "{said}");
    }
    let said = qos(&["--no-bpf", "--metric", &format!("clients:{}:p99", redis.1)]);
    assert!(said.contains("leave one of them out"), "{said}");
}
