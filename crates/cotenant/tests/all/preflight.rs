//! Metrics are read before the start: with one that is refused for good, nothing starts.
//!
//! Holds speed/bad-metric.

use crate::world::{Manager, State};
use cotenant_testing::eventually;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// An address without a listener, and a guard that keeps other sockets from it.
fn closed() -> ((TcpListener, TcpStream), SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    ((listener, taken), address)
}

/// A running program; ended on drop.
struct Server(Child);

impl Server {
    fn start(program: &str) -> Self {
        Self(Command::new(program).arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn end(command: Command) -> (String, Option<i32>) {
    Manager::start(command).end()
}

#[test]
fn a_refused_metric_of_a_running_program_starts_nothing() {
    let (_taken, address) = closed();
    let server = Server::start("sleep");
    let state = State::new("preflight-qos");
    let started = state.path().join("started");
    let low = format!("touch {}; exec sleep 1000", started.display());
    let metric = format!("redis:{address}:p99,every=20ms");
    let pid = server.pid();
    let words = ["qos", "--high-pid", &pid, "--low", &low, "--metric", &metric, "--time", "500ms"];
    let (said, code) = end(state.cotenant(&words));
    assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("its metric is refused: redis:") && said.contains("add --wait-for-metric"), "{said}");
    assert!(!started.exists() && state.journals() == 0, "{said}");
    let (said, code) = end(state.cotenant(&[&words[..], &["--wait-for-metric"]].concat()));
    assert!(started.exists() && code != Some(2), "{code:?}: {said}");
}

/// What it starts may take its time; what it was like counts when it has ended.
#[test]
fn a_refused_metric_of_a_program_that_is_started_counts_in_the_end() {
    let (_taken, address) = closed();
    let metric = format!("redis:{address}:p99,every=20ms");
    let state = State::new("preflight-high");
    let run = |metric: &str, more: &[&str]| {
        let started = state.path().join("high");
        let _ = fs::remove_file(&started);
        let high = format!("touch {}; sleep 1", started.display());
        let words = [&["qos", "--high", &high, "--low", "exec sleep 1000", "--metric", metric][..], more].concat();
        let (said, code) = end(state.cotenant(&words));
        assert!(started.exists(), "{said}");
        (said, code)
    };
    let (said, code) = run(&metric, &[]);
    assert!(said.contains("the programs were asked to end: metric redis: "), "{said}");
    assert!(code == Some(2) && said.contains(" was refused all the time: "), "{code:?}: {said}");
    let (said, code) = run(&metric, &["--wait-for-metric", "--time", "3s"]);
    assert!(code != Some(2) && !said.contains("refused all the time"), "{code:?}: {said}");
    // An answer may still arrive.
    assert_ne!(run("cmd:false,every=20ms", &["--time", "3s"]).1, Some(2));
}

#[test]
fn the_daemon_begins_only_where_metrics_may_answer_and_its_check_warns() {
    let (_taken, address) = closed();
    let state = State::new("preflight-daemon");
    let copy = state.path().join("server");
    let sleep = Command::new("sh").args(["-c", "command -v sleep"]).output().unwrap().stdout;
    fs::copy(String::from_utf8(sleep).unwrap().trim(), &copy).unwrap();
    let server = Server(cotenant_testing::spawn_fresh(Command::new(&copy).arg("1000").stdin(Stdio::null())));
    let (config, ran) = (state.path().join("c.toml"), state.path().join("ran"));
    let rule = |metric: &str| {
        let command = format!("{{ command = '{}' }}", copy.display());
        fs::write(&config, format!("[[rule]]\nname = 'db'\nmatch = {command}\nclass = 'high'\n{metric}\n")).unwrap();
    };
    let socket = state.path().join("control.sock");
    let daemon = |more: &[&str]| {
        let words = ["daemon", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
        state.cotenant(&[&words[..], more].concat())
    };
    rule(&format!("metric = 'redis:{address}:p99'"));
    let (said, code) = end(daemon(&[]));
    assert!(code == Some(2) && said.lines().count() == 1, "{code:?}: {said}");
    assert!(said.contains("rule db: its metric is refused: redis:") && said.contains("--wait-for-metric"), "{said}");
    let (said, code) = end(daemon(&["--check"]));
    assert!(code == Some(0) && said.contains("warning: rule db: its metric does not answer: redis:"), "{said}");
    let waiting = Manager::start(daemon(&["--wait-for-metric"]));
    eventually("it listens all the same", || socket.exists());
    assert_eq!(waiting.terminate().1, Some(0));

    // A command is only run on request.
    rule(&format!("metric = 'cmd:touch {}; false'", ran.display()));
    let (said, code) = end(daemon(&["--check"]));
    assert!(code == Some(0) && !said.contains("warning") && !ran.exists(), "{said}");
    let (said, code) = end(daemon(&["--check", "--ask"]));
    assert!(code == Some(0) && said.contains("exit code 1") && ran.exists(), "{said}");

    rule("");
    let (said, code) = end(daemon(&["--check"]));
    assert!(code == Some(0) && said.contains("warning: rule db: the speed of server is not reported"), "{said}");
    // Running services are named by their programs; a rule that can never match gets a warning.
    let rules = "[[rule]]\nname = 'mine'\nmatch = { user = '0' }\nclass = 'low'\n\
                 [[rule]]\nname = 'none'\nmatch = { unit = 'not-there.service' }\n\
                 [[rule]]\nname = 'batch'\nmatch = { cgroup = '/sys/fs/cgroup/batch.slice' }\n";
    let uid = fs::metadata("/proc/self").map(|me| std::os::unix::fs::MetadataExt::uid(&me)).unwrap();
    fs::write(&config, rules.replace("'0'", &format!("'{uid}'"))).unwrap();
    let (said, code) = end(daemon(&["--check"]));
    let warned: Vec<&str> = said.lines().filter(|line| line.contains("warning")).collect();
    let [warned] = warned[..] else { panic!("{said}") };
    assert!(code == Some(0) && warned.contains("rule batch can match nothing: cgroup = "), "{said}");
    assert!(warned.contains("such as \"/batch.slice\""), "{warned}");
    // The metric of a service that does not run is not read.
    rule(&format!("metric = 'redis:{address}:p99'"));
    drop(server);
    let (said, code) = end(daemon(&["--check"]));
    assert!(code == Some(0) && !said.contains("warning"), "{said}");
}
