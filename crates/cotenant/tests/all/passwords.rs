//! A password for a server appears nowhere else.
//!
//! Holds speed/passwords.

use crate::world::{Manager, State};
use cotenant_record::Recording;
use cotenant_testing::eventually;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

const PASSWORD: &str = "hush-4711-hush";

/// A redis that accepts clients with the password, and repeats other requests as its error; with the number of received
/// passwords, and its port.
fn redis(password: &'static str) -> (Arc<Mutex<usize>>, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let count = count.clone();
            std::thread::spawn(move || talk(&client.unwrap(), password, &count));
        }
    });
    (told, port)
}

fn talk(mut stream: &TcpStream, password: &str, told: &Mutex<usize>) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let mut is_in = false;
    loop {
        let first = lines.next()?.ok()?;
        let words = match first.strip_prefix('*') {
            Some(count) => {
                let lines =
                    lines.by_ref().take(2 * count.parse::<usize>().ok()?).collect::<Result<Vec<_>, _>>().ok()?;
                lines.into_iter().skip(1).step_by(2).collect()
            }
            None => first.split(' ').map(str::to_owned).collect::<Vec<_>>(),
        };
        let answer = match words[0].as_str() {
            "AUTH" => {
                *told.lock().unwrap() += 1;
                is_in = words.last()? == password;
                if is_in { "+OK\r\n".to_owned() } else { format!("-WRONGPASS what is {words:?}\r\n") }
            }
            "PING" if is_in => format!("${}\r\n{}\r\n", words[1].len(), words[1]),
            _ => "-NOAUTH Authentication required.\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// A running program; ended on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper() -> Server {
    Server(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
}

/// The arguments of a process and of its descendants.
fn arguments(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let children = read(&format!("task/{pid}/children"));
    let children = children.split_whitespace().map(|child| arguments(child.parse().unwrap()));
    read("cmdline") + &children.collect::<String>()
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<u8> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { fs::read(path).unwrap_or_default() }).collect()
}

fn is_hidden(what: &str, bytes: impl AsRef<[u8]>) {
    let text = String::from_utf8_lossy(bytes.as_ref());
    assert!(!text.contains(PASSWORD), "{what}: {text}");
}

#[test]
fn a_password_is_neither_recorded_nor_journaled_nor_said() {
    let state = State::new("passwords-qos");
    let file = state.path().join("a.rec");
    let server = sleeper();
    let run = |port: u16, more: &[&str]| {
        let (pid, metric) = (server.0.id().to_string(), format!("redis:{port}:p99,user=ann,every=50ms"));
        let words = ["qos", "-v", "--high-pid", &pid, "--low", "exec sleep 1000", "--metric", &metric, "--time", "1s"];
        let record = ["--record", file.to_str().unwrap()];
        let mut command = state.cotenant(&[&words[..], &record, more].concat());
        command.env("REDISCLI_AUTH", PASSWORD);
        Manager::start(command)
    };
    let (told, port) = redis(PASSWORD);
    let manager = run(port, &[]);
    eventually("it has been told", || *told.lock().unwrap() > 1);
    is_hidden("arguments", arguments(manager.pid()));
    is_hidden("journal", files(state.path()));
    let output = manager.output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    is_hidden("what is said", &said);
    assert!(!said.contains("refused") && !said.contains("WRONGPASS"), "{said}");
    let recording = Recording::read(fs::File::open(&file).unwrap()).unwrap();
    is_hidden("header", format!("{:?}", recording.header()));
    let rounds: Vec<_> = recording.collect();
    let is_known = rounds.iter().any(|round| round.sample.apps.iter().any(|app| !app.metrics.is_empty()));
    assert!(is_known, "it was asked with a password");
    is_hidden("rounds", format!("{rounds:?}"));
    is_hidden("files", files(state.path()));
    // It is wrong, and the server repeats it: in an error before the run, and in notes of a run.
    let (_, port) = redis("another");
    for more in [&[][..], &["--wait-for-metric"], &["--wait-for-metric", "--json"]] {
        let output = run(port, more).output();
        let said = String::from_utf8_lossy(&output.stderr);
        is_hidden("an error", &output.stderr);
        assert!(said.contains("WRONGPASS what is"), "{said}");
    }
    is_hidden("files", files(state.path()));
}

#[test]
fn a_password_of_the_daemon_is_neither_logged_nor_shown() {
    let state = State::new("passwords-daemon");
    let copy = state.path().join("server");
    let sleep = Command::new("sh").args(["-c", "command -v sleep"]).output().unwrap().stdout;
    fs::copy(String::from_utf8(sleep).unwrap().trim(), &copy).unwrap();
    let _server = Server(cotenant_testing::spawn_fresh(Command::new(&copy).arg("1000").stdin(Stdio::null())));
    let (config, socket) = (state.path().join("c.toml"), state.path().join("control.sock"));
    for (password, word) in [(PASSWORD, ""), ("another", "WRONGPASS what is")] {
        let (told, port) = redis(password);
        let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        fs::write(
            &config,
            format!(
                "mode = 'advise'\nlisten = '{http}'\n[[rule]]\nname = 'db'\nmatch = {{ command = '{}' }}\n\
                 class = 'high'\nmetric = 'redis:{port}:p99,every=50ms'\n",
                copy.display()
            ),
        )
        .unwrap();
        let daemon = |more: &[&str]| {
            let words = ["daemon", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
            let mut command = state.cotenant(&[&words[..], more].concat());
            command.env("REDISCLI_AUTH", PASSWORD).env("XDG_DATA_HOME", state.path().join("data"));
            command
        };
        let manager = Manager::start(daemon(&["--wait-for-metric", "--log", "debug"]));
        let ask = |words: &[&str]| {
            let words = [words, &["--socket", socket.to_str().unwrap()]].concat();
            let output = state.cotenant(&words).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        eventually("it is managed and asked", || {
            let status = ask(&["status", "--json"]);
            status.contains("\"speed\"") && status.contains(word) && *told.lock().unwrap() > 0
        });
        for words in [&["status"][..], &["status", "--json"], &["why", "--live", "server"]] {
            is_hidden("status", ask(words));
        }
        for path in ["/metrics", "/", "/api/status", "/api/history"] {
            let mut stream = TcpStream::connect(http).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
            is_hidden(path, answer);
        }
        is_hidden("arguments", arguments(manager.pid()));
        let (said, code) = manager.terminate();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(word), "{said}");
        is_hidden("log", said);
        let check = daemon(&["--check"]).stderr(Stdio::piped()).output().unwrap();
        is_hidden("check", [check.stdout, check.stderr].concat());
        is_hidden("files", files(state.path()));
    }
}
