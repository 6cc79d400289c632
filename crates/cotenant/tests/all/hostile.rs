//! Names and texts chosen by a hostile program, file or server: the terminal gets no control sequence from them, and an
//! error is one short line.
//!
//! Holds run/foreign-text.

use crate::world::{self, Manager, Pin, State};
use cotenant_model::host::{Host, HostError, Mode, Wake};
use cotenant_model::{Order, Outcome, Sample, TaskInfo, Time, Topology};
use cotenant_record::testing::{Gather, Role, Scripted, header, record};
use cotenant_testing::{TempDir, eventually, spawn_fresh};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

/// Clears the screen, rings, forges a line, hides earlier text and reverses later text.
const NAME: &str = "\x1b[2J\x07\n\r\u{202e}\u{9b}H";
/// Sets the title of the terminal.
const TITLE: &str = "\x1b]0;owned\x07";
/// Characters of an error besides `cotenant: `; it is shortened in the middle.
const LINE: usize = 500;

fn hostile(kb: usize) -> String {
    format!("{NAME}{TITLE}{}", "x".repeat(kb << 10))
}

/// Fails if a terminal would interpret any of it, or if a line begins with forged text of the name.
fn assert_clean(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let obeyed =
        |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if let Some(at) = text.find(obeyed) {
        let from = text[..at].char_indices().nth_back(80).map_or(0, |(i, _)| i);
        panic!("{what}: {:?}", text[from..].chars().take(160).collect::<String>());
    }
    assert!(text.lines().all(|line| !line.starts_with("\\r")), "{what} forged a line: {text}");
}

/// The output of a command, checked to be clean.
fn clean(what: &str, output: &Output) -> String {
    assert_clean(&format!("{what}: stdout"), &output.stdout);
    assert_clean(&format!("{what}: stderr"), &output.stderr);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    said(&output.stdout) + &said(&output.stderr)
}

/// A folder with a state, hostile files and a hostile program.
struct Place {
    dir: TempDir,
    state: State,
}

impl Place {
    fn new(test: &str) -> Self {
        let place = Self { dir: TempDir::new(test), state: State::new(test) };
        // Ends with a given code; otherwise once placed and the given file exists.
        let script = "#!/bin/sh\n\
            case $1 in [0-9]) exit $1;; esac\n\
            until grep -q '^Cpus_allowed_list:.[0-9]*$' /proc/self/status && [ -e \"${1:-/}\" ]; do :; done\n";
        fs::write(place.program(), script).unwrap();
        fs::set_permissions(place.program(), fs::Permissions::from_mode(0o700)).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn program(&self) -> String {
        self.word(NAME)
    }

    /// Writes a file; its name.
    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), text).unwrap();
        self.word(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.state.cotenant(args);
        command.stdin(Stdio::null()).current_dir(self.dir.path()).output().unwrap()
    }

    /// The output for these arguments, checked to be clean.
    fn said(&self, args: &[&str]) -> String {
        let short = |word: &&str| word.chars().take(40).collect::<String>();
        clean(&format!("{:?}", args.iter().map(short).collect::<Vec<_>>()), &self.run(args))
    }

    /// The one line of an error.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = clean(args[0], &output);
        assert_eq!((said.lines().count(), output.status.success()), (1, false), "{}: {said}", args[0]);
        assert!(said.chars().count() <= LINE + "cotenant: \n".len(), "{}: {said}", args[0]);
        said
    }

    /// The program, until it is placed and `file` exists.
    fn start(&self, file: &str) -> Program {
        let mut command = Command::new(self.program());
        Program(spawn_fresh(command.arg(file).stdout(Stdio::null())))
    }
}

/// Killed on drop.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tasks and applications of hostile names.
struct Renamed(Scripted);

impl Host for Renamed {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let mut sample = self.0.sample()?;
        for task in &mut sample.tasks {
            let comm = format!("{}{}", task.info.id, hostile(200));
            task.info = Arc::new(TaskInfo { comm, ..TaskInfo::clone(&task.info) });
        }
        sample.apps.iter_mut().for_each(|app| app.name = format!("app{}{}", app.id, hostile(1)));
        Ok(sample)
    }

    fn watch(&mut self, until: Time) {
        self.0.watch(until);
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        self.0.apply(orders)
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.0.wait(until)
    }
}

#[test]
fn a_recording_of_hostile_names_is_read() {
    let place = Place::new("hostile-recording");
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    let mut header = header("gather", Mode::Enforce);
    header.command = vec![hostile(200)];
    header.host.kernel = hostile(200);
    header.host.tier = hostile(200);
    let mut host = Renamed(Scripted::new(&[sharer(0), sharer(10), sharer(11), Role::new(1, 12)], 10));
    let file = place.file("a.rec", record(&header, &mut host, &Gather));
    let moved = place.said(&["why", &file, "0s..100s"]);
    assert!(moved.contains("\\u001b[2J") && moved.contains("\\u202e"), "{moved}");
    assert!(moved.len() < 100_000, "{} bytes", moved.len());
    for args in [
        &["why", &file, "task:3"][..],
        &["why", &file, "nobody"],
        &["why", &file, "app:0", "--at", "0.5s"],
        &["why", &file, "task:3", "--json"],
        &["replay", &file],
        &["replay", &file, "--policy", "sam"],
        &["replay", &file, "--json"],
        &["report", &file, "-o", "-"],
        &["top", &file, "--once"],
        &["top", &file, "--json"],
    ] {
        assert!(!place.said(args).is_empty(), "{args:?}");
    }
    header.policy = hostile(200);
    let strange = place.file("b.rec", record(&header, &mut host, &Gather));
    for args in [
        &["replay", &strange][..],
        &["why", &strange, "task:3"],
        &["report", &strange, "-o", "-"],
        &["top", &strange, "--once"],
    ] {
        place.said(args);
    }
}

#[test]
fn programs_of_hostile_names_are_managed() {
    let Some(pin) = Pin::find() else { return };
    let place = Place::new("hostile-program");
    let program = place.program();
    let with = |subcommand, more: &[&str]| {
        let args = [pin.args(subcommand, &pin.cpu), more.to_vec()].concat();
        place.said(&args.iter().map(|word| &**word).collect::<Vec<_>>())
    };
    let recording = place.word("run.rec");
    let said = with("run", &["-v", "--record", &recording, "--", &program]);
    assert!(said.contains("(\\u001b[2J\\u0007\\n\\r"), "the move is told: {said}");
    with("run", &["-v", "--json", "--", &program]);
    place.said(&["why", &recording, "0s..100s"]);
    place.said(&["replay", &recording]);

    let mut attached = place.start("/");
    let said = with("attach", &["-v", "-p", &attached.0.id().to_string()]);
    assert!(said.contains("(\\u001b[2J\\u0007\\n\\r"), "the move is told: {said}");
    attached.0.wait().unwrap();

    with("compare", &["--runs", "2", "--", &program, "0"]);
    place.said(&["compare", "--runs", "1", "--", &program, "3"]);
    place.said(&["run", "--", &place.word(&format!("missing{NAME}"))]);
}

#[test]
fn qos_shows_programs_of_hostile_names() {
    let place = Place::new("hostile-qos");
    let asked = place.path("asked");
    let octal = TITLE.replace('\x1b', "\\033").replace('\x07', "\\007");
    let metric = format!("cmd:echo >> '{}'; printf '{octal}',every=100ms", asked.display());
    for output in ["-v", "--json"] {
        let [mut high, low] = [0, 1].map(|_| place.start("/proc/nonexistent"));
        let [high_pid, low_pid] = [&high, &low].map(|program| program.0.id().to_string());
        // A text instead of a number is refused before the start.
        let pids = ["qos", "--high-pid", &high_pid, "--low-pid", &low_pid, "--metric", &metric, "--wait-for-metric"];
        let mut command = place.state.cotenant(&[&pids[..], &[output]].concat());
        command.stdin(Stdio::null());
        let cotenant = Manager::start(command);
        // A second request follows the reading of the first answer.
        eventually("the metric is asked", || fs::read_to_string(&asked).is_ok_and(|lines| lines.len() > 1));
        high.0.kill().unwrap();
        high.0.wait().unwrap();
        let said = clean("qos", &cotenant.output());
        assert!(said.contains("\\u001b[2J") || said.contains("\\\\u001b[2J"), "{said}");
        fs::remove_file(&asked).unwrap();
    }
}

#[test]
fn servers_and_commands_say_hostile_things() {
    let Some(pin) = Pin::find() else { return };
    let place = Place::new("hostile-server");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = place.path("asked");
    std::thread::spawn(move || {
        let answer = format!("-ERR {}\r\n", hostile(8).replace(['\r', '\n'], " "));
        for (n, client) in listener.incoming().flatten().enumerate() {
            let mut client = client;
            let mut line = Vec::new();
            let _ = BufReader::new(&client).read_until(b'\n', &mut line);
            let _ = client.write_all(answer.as_bytes());
            if n > 0 {
                let _ = fs::write(&asked, ""); // the first answer was read
            }
        }
    });
    let redis = format!("redis:{port}:p99");
    let command = format!("cmd:cat '{}'; false,every=100ms", place.file("said", hostile(8)));
    let asked = place.word("asked");
    let program = place.program();
    for output in [&["-v"][..], &["--json"]] {
        let metrics = ["--metric", &redis, "--metric", &command];
        let args = [&pin.args("run", &pin.cpu)[..], output, &metrics, &["--", &program, &asked]].concat();
        let said = place.said(&args);
        assert!(said.contains("ERR") || said.contains("\\u001b"), "{said}");
        assert!(said.len() < 20_000, "{} bytes", said.len());
        let _ = fs::remove_file(&asked);
    }
}

#[test]
fn queues_and_snapshots_of_hostile_names() {
    let place = Place::new("hostile-files");
    let quoted = |text: &str| serde_json::to_string(text).unwrap().replace('\x7f', "\\u007f");
    let (program, name) = (quoted(&place.program()), quoted(&hostile(200)));
    let jobs = format!(
        "[[job]]\nname = {name}\ncommand = [{program}, '0']\n[[job]]\ncommand = [{program}, '3']\n\
         [[job]]\ncommand = [{}]\n[[job]]\nname = 'a'\ncommand = 'true'\ncwd = {name}\n",
        quoted(&format!("/nowhere/{}", hostile(1))),
    );
    let jobs = place.file("q.toml", jobs);
    let said = place.said(&["schedule", &jobs]);
    assert!(said.contains("\\u001b[2J"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() < 1_000), "{said}");
    fs::remove_dir_all(place.path("q.toml.logs")).ok();
    place.said(&["schedule", &jobs, "--json"]);

    let task = |id: u32, cpu: u32| {
        format!(
            "{{\"id\": {id}, \"app\": {name}, \"comm\": {name}, \"cpu\": {cpu}, \"cycles\": 2.2e8, \
             \"instructions\": 1.5e8, \"inter\": 200000, \"llc_misses\": 210000}}"
        )
    };
    let snapshot = format!("{{\"interval_s\": 0.1, \"tasks\": [{}, {}]}}", task(1, 0), task(2, 10));
    let snapshot = place.file("s.json", snapshot);
    let decide = ["decide", "--machine", "ivy-bridge-2s", "--policy", "sam", "--snapshot"];
    let said = place.said(&[&decide[..], &[&snapshot]].concat());
    assert!(said.contains("\\u001b[2J") && said.len() < 10_000, "{said}");
    place.said(&[&decide[..], &[&snapshot, "--json"]].concat());
}

#[test]
fn a_newline_in_a_name_makes_no_second_row() {
    let place = Place::new("hostile-names");
    let name = format!("a\nb  2026-01-01 forged{NAME}");
    let quoted = serde_json::to_string(&name).unwrap().replace('\x7f', "\\u007f");
    let apps =
        place.file("apps.toml", format!("[app.{quoted}.per_cpu_s]\ncycles = 2e9\n[app.z.per_cpu_s]\ncycles = 2e9\n"));
    let data = place.word("data");
    let profiles = |args: &[&str]| {
        let mut command = place.state.cotenant(&[&["profiles"], args].concat());
        let output = command.stdin(Stdio::null()).env("XDG_DATA_HOME", &data).output().unwrap();
        clean(args[0], &output)
    };
    assert_eq!(profiles(&["import", &apps]).lines().count(), 2);
    let list = profiles(&["list"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(!list.lines().any(|line| line.starts_with('b')), "{list}");
    assert_eq!(profiles(&["show", "nobody"]).lines().count(), 1);
    assert!(!profiles(&["show", &name]).lines().any(|line| line.starts_with('b')));
    assert!(!profiles(&["export"]).lines().any(|line| line.starts_with('b')));
    assert_eq!(profiles(&["rm", &name]), "");
}

#[test]
fn regions_of_a_program_of_a_hostile_name_are_one_row_each() {
    let tried = Command::new("valgrind").arg("--version").output();
    if !tried.is_ok_and(|out| out.status.success()) {
        return world::skip("there is no valgrind");
    }
    let place = Place::new("hostile-regions");
    let file = place.word("found.toml");
    let said = place.said(&["regions", "--source", "cachegrind", "-o", &file, "--", &place.program(), "0"]);
    assert!(said.contains("region"), "{said}");
    let valgrinds = |line: &str| line.starts_with("--");
    assert!(said.lines().all(|line| line.starts_with("cotenant: ") || valgrinds(line)), "{said}");
    let text = fs::read_to_string(&file).unwrap();
    assert_clean("the file of regions", text.as_bytes());
    cotenant_model::region::parse(&text).unwrap();
}

#[test]
fn errors_are_one_short_line() {
    let place = Place::new("hostile-errors");
    let (long, name) = (hostile(100), hostile(0));
    let quoted = serde_json::to_string(&long).unwrap();
    let json = place.file("key.json", format!("{{{quoted}: 1}}"));
    let toml = place.file("key.toml", format!("{quoted} = 1\n"));
    let named = place.file(&name, format!("{{{quoted}: 1}}"));
    let decide = ["decide", "--machine", "ivy-bridge-2s", "--snapshot"];
    let said = place.refused(&[&decide[..], &[&json]].concat());
    assert!(said.contains("key.json:1:") && said.contains("unknown field"), "{said}");
    place.refused(&[&decide[..], &[&named]].concat());
    for args in [
        &["sim", &toml][..],
        &["topo", "--from", &toml],
        &["topo", "--from", &long],
        &["run", "--config", &toml, "--", "true"],
        &["run", "--profile", &toml, "--", "true"],
        &["run", "--policy", &long, "--", "true"],
        &["run", &format!("--{long}"), "--", "true"],
        &["run", "--metric", &long, "--", "true"],
        &["run", "--", &long],
        &["schedule", &toml],
        &["replay", &named],
        &["why", &named, &long],
        &["report", &json],
        &["attach", "--cgroup", &long],
        &[&long],
    ] {
        place.refused(args);
    }
}
