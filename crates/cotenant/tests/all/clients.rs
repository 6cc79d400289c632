//! `--metric clients:`: what a server's clients wait is seen in the kernel.

use crate::world::{Manager, State, binary, is_root, skip};
use cotenant_testing::eventually;
use serde_json::Value;
use std::fs;
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
    run_after(state, "", metric)
}

/// The same after a line of shell.
fn run_after(state: &State, first: &str, metric: &str) -> Value {
    let words = ["run", "--json", "--metric", metric, "--", "sleep", "2"];
    let Output { stderr, .. } = state.cotenant_after(first, &words).output().unwrap();
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
    // A client waits nearly all of the time for its only request, and hardly ever for a second.
    let client = Client::start(connect(), 1);
    for (beyond, least, most) in [("0us", 0.05, 1.1), ("10s", 0.0, 0.0)] {
        let seen = run(&state, &format!("clients:{port}:beyond={beyond},every=100ms"));
        let clients = seen["mean"].as_f64().unwrap_or(-1.0);
        assert!((least..=most).contains(&clients), "{beyond}: {seen}");
        assert_eq!(
            (&seen["name"], &seen["direction"]),
            (&"clients_beyond".into(), &"lower_is_better".into()),
            "{seen}"
        );
    }
    drop(client);
    // As the packaged daemon, which has a network of its own.
    let ours = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    if is_root() && ours("1") == ours("self") {
        let client = Client::start(connect(), 1);
        let alone = format!("exec unshare --net env --default-signal '{}' \"$@\"", binary());
        let seen = run_after(&state, &alone, &of_port);
        assert!(seen["requests"]["here"].as_u64() > Some(100), "{seen}");
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
        Self::start_as(Path::new("redis-server"), folder)
    }

    fn start_as(program: &Path, folder: &Path) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
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

/// Holds speed/clients.
/// As `qos` does, where the daemon may act; another program with the same name is another service.
#[test]
fn the_daemon_judges_a_server_without_a_metric_by_its_clients() {
    if !is_root() {
        return skip("it needs root");
    }
    if !can_be_seen() {
        return;
    }
    let state = State::new("clients-daemon");
    let program = state.path().join("clients-redis");
    if fs::copy("/usr/bin/redis-server", &program).is_err() {
        return skip("no redis-server");
    }
    let Some(redis) = Redis::start_as(&program, state.path()) else { return };
    let (config, socket) = (state.path().join("c.toml"), state.path().join("control.sock"));
    let write = |keys: &str, metric: &str| {
        let rule = format!("name = 'cache'\nmatch = {{ command = '{}' }}\nclass = 'high'", program.display());
        fs::write(&config, format!("{keys}\n[[rule]]\n{rule}\n{metric}\n")).unwrap();
    };
    let cotenant = |words: &[&str]| state.cotenant(&[words, &["--config", config.to_str().unwrap()]].concat());
    let check = || Manager::start(cotenant(&["daemon", "--check"])).end();
    let managed = || {
        let daemon = Manager::start(cotenant(&["daemon", "--socket", socket.to_str().unwrap()]));
        eventually("it manages the server", || {
            let status = state.cotenant(&["status", "--socket", socket.to_str().unwrap()]).output().unwrap();
            String::from_utf8_lossy(&status.stdout).contains("clients-redis")
        });
        daemon.terminate().0
    };
    let chosen = format!("its speed is what its clients wait (metric = \"clients:{}:p99\")", redis.1);
    write("mode = 'enforce'", "");
    let (said, code) = check();
    assert!(code == Some(0) && !said.contains("nothing tells"), "{said}");
    let said = managed();
    assert!(said.contains(&chosen), "{said}");
    for (keys, metric) in [("mode = 'observe'", ""), ("mode = 'enforce'\nbpf = false", ""), ("", "metric = 'progress'")]
    {
        write(keys, metric);
        let said = managed();
        assert!(!said.contains("what its clients wait"), "{keys}: {said}");
        assert!(check().0.contains("the speed of clients-redis is not reported"), "{keys}");
    }
    write("bpf = false", &format!("metric = 'clients:{}:p99'", redis.1));
    for (said, code) in [check(), Manager::start(cotenant(&["daemon"])).end()] {
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("c.toml:6:10: metric: clients: is seen by BPF, and bpf = false does without"), "{said}");
    }
}
