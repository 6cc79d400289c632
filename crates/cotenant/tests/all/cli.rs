//! The binary for a user: real programs, exit codes, signals, wrong input.

use cotenant_model::pin::Pin;
use cotenant_record::Recording;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn cotenant() -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_cotenant")))
}

/// For a command that an error could make endless: ended after a minute, with exit code 124.
fn cotenant_for_a_minute() -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_cotenant")]);
    alone(command)
}

fn alone(mut command: Command) -> Command {
    // The tests ignore the settings of their user; below /proc no folder can be made, not even by root.
    command.env("XDG_CONFIG_HOME", "/proc/nonexistent").env_remove("XDG_DATA_HOME");
    command
}

fn run(args: &[&str]) -> Output {
    cotenant().args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stdout)))
}

/// Waits until the condition holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen within 300 s");
        std::thread::yield_now();
    }
}

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-cli-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that waits for the end of its standard input.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn mask(&self) -> String {
        mask(self.pid())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mask(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list:")).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

/// A map that marks CPU 0 only; `None`, reported, on a machine with one CPU.
fn first_cpu_only() -> Option<String> {
    let cpus = json(&run(&["topo", "--json"]))["cpus"].as_u64().unwrap();
    let own = mask(std::process::id());
    if cpus < 2 || own == "0" || !own.starts_with('0') {
        eprintln!("skipped: of {cpus} CPUs, {own} may be used: CPU 0 is no choice here");
        return None;
    }
    Some(format!("X{}", ".".repeat(cpus as usize - 1)))
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// Two threads that always want a CPU, and one CPU: however busy the machine is, they run or wait all the time.
/// Promise see/waits: How long programs wait for a CPU is shown without any rights, with what used the machine
/// meanwhile.
#[test]
fn a_run_says_how_long_its_program_waited_for_a_cpu() {
    let own = mask(std::process::id());
    let cpu = own.split([',', '-']).next().unwrap();
    let spin = "while :; do :; done & while :; do :; done";
    let out = run(&["run", "--json", "--", "taskset", "-c", cpu, "timeout", "3", "sh", "-c", spin]);
    let stderr = text(&out.stderr);
    let summary: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
    let program = &summary["programs"][0];
    let [cpus, waiting] = ["cpus", "waiting"].map(|key| program[key].as_f64().unwrap_or_default());
    // Their usage before the second look is not counted.
    assert!(cpus < 1.1 && waiting > 0.3 && (1.05..2.1).contains(&(cpus + waiting)), "{program}");
}

/// The same two threads wait behind each other; without BPF that is not known.
/// Holds see/waits-behind.
#[test]
fn a_run_says_behind_what_its_program_waited() {
    let doctor: Value = serde_json::from_slice(&run(&["doctor", "--json"]).stdout).unwrap();
    let causes =
        doctor["capabilities"].as_array().unwrap().iter().find(|one| one["name"] == "causes of waits").unwrap();
    if causes["standing"] != "available" {
        return eprintln!("skipped: {}", causes["found"]);
    }
    let own = mask(std::process::id());
    let cpu = own.split([',', '-']).next().unwrap();
    let spin = "while :; do :; done & while :; do :; done";
    let behind = |options: &[&str]| {
        let command = ["--", "taskset", "-c", cpu, "timeout", "4", "sh", "-c", spin];
        let out = run(&[&["run", "--json"], options, &command].concat());
        let stderr = text(&out.stderr);
        let summary: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
        summary["programs"][0]["behind"].clone()
    };
    let seen = behind(&[]);
    let own = |one: &Value| one["what"] == "its own threads" && one["threads"].as_f64().is_some_and(|n| n > 0.05);
    assert!(seen.as_array().is_some_and(|all| all.iter().any(own)), "{seen}");
    assert_eq!(behind(&["--no-bpf"]), Value::Null);
}

/// Promise run/transparent: `run` passes on exit codes, signals, streams, Ctrl-C and Ctrl-Z as if the command ran by
/// itself, also where its output has no reader.
#[test]
fn run_behaves_like_the_command_itself() {
    let out = run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(7), "out\n"));
    let stderr = text(&out.stderr);
    assert!(stderr.starts_with("err\n") && stderr.contains("cotenant: managed "), "{stderr}");
    let bare = run(&["run", "-q", "sh", "-c", "echo $0 $@; exit 4", "-q", "--", "--help"]);
    assert_eq!(
        (bare.status.code(), text(&bare.stdout).as_str()),
        (Some(4), "-q -- --help\n"),
        "as after nice or perf stat"
    );
    assert_eq!(text(&run(&["run", "-q", "--", "sh", "-c", "exit 0"]).stderr), "", "quiet");
    assert_eq!(run(&["run", "-q", "--", "sh", "-c", "kill -KILL $$"]).status.code(), Some(128 + 9));
    assert_eq!(run(&["run", "-q", "--", "/proc/nonexistent/command"]).status.code(), Some(127));
    assert_eq!(run(&["run", "-q", "--", "/etc/passwd"]).status.code(), Some(126));
    let mut reads =
        cotenant().args(["run", "-q", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    reads.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(text(&reads.wait_with_output().unwrap().stdout), "through");
}

/// The program must not suffer, nor its exit code be lost, where nobody takes what Cotenant says.
/// Holds run/transparent.
#[test]
fn nobody_has_to_listen() {
    let deaf = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let moves = ["run", "-v", "--interval", "1ms", "--", "sh", "-c", "read -r line; exit 7"];
    let mut child = cotenant().args(moves).stdin(Stdio::piped()).stderr(deaf()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"now\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/two-sockets-sam.rec");
    let speakers: &[&[&str]] = &[
        &["restore"],
        &["restore", "--json"],
        &["doctor"],
        &["topo"],
        &["compare", "--runs", "2", "--", "true"],
        &["replay", file],
        &["why", file, "0s..1000s"],
        &["--help"],
        &["run", "--help"],
        &["--version"],
    ];
    for args in speakers {
        let out = cotenant().args(*args).stdin(Stdio::null()).stdout(deaf()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
    }
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        eprintln!("skipped in part: no /dev/full");
        return;
    };
    let full = || full.try_clone().unwrap();
    let status = cotenant().args(["run", "--", "sh", "-c", "exit 7"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(7), "a full disk behind standard error");
    let out = cotenant().arg("restore").stdout(full()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "what was asked for could not be said");
    assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
}

#[test]
fn the_summary_says_what_was_seen_and_recorded() {
    let folder = Folder::new("summary");
    let file = folder.file("a.rec");
    let out = run(&["record", "-o", &file, "--interval", "1d", "--", "true"]);
    assert_eq!(out.status.code(), Some(2), "d is not a unit");
    let out = run(&["record", "-o", &file, "--interval", "1h", "--", "true"]);
    let stderr = text(&out.stderr);
    assert!(stderr.contains("before the first round was over"), "{stderr}");
    assert!(stderr.contains(" s after Cotenant was ready (which took "), "a slow start is told apart: {stderr}");
    assert!(stderr.contains(&file) && stderr.contains("cotenant why"), "{stderr}");
    let out = run(&["run", "--json", "--record", &file, "--", "true"]);
    let summary: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(summary["recording"]["path"], file.as_str());
    assert_eq!(summary["recording"]["bytes"].as_u64(), fs::metadata(&file).ok().map(|meta| meta.len()));
}

/// Holds run/transparent.
#[test]
fn a_signal_reaches_the_command_and_its_end_is_passed_on() {
    let folder = Folder::new("signal");
    let ready = folder.file("ready");
    let script = format!("trap 'exit 3' TERM; : > {ready}; while :; do read -t 1 line <> /dev/fd/0 || :; done");
    let mut child = cotenant().args(["run", "-q", "--", "bash", "-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    eventually("the command's start", || Path::new(&ready).exists());
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_signal_after_the_end_does_not_cost_the_report() {
    if fs::read_to_string("/proc/thread-self/syscall").is_err() {
        eprintln!("skipped: this kernel does not tell in which system call a process is");
        return;
    }
    let cases: [&[&str]; 3] = [
        &["run", "--json", "--", "true"],
        &["qos", "--json", "--goal", "90%", "--high", "true", "--low", "true"],
        &["kernel", "cpu", "--units", "1", "--json"],
    ];
    for args in cases {
        // The pipe is not read for a while, so that the report is still being written when the signal arrives.
        let (mut output, writer) = std::io::pipe().unwrap();
        let mut full =
            Command::new("head").args(["-c", "1M", "/dev/zero"]).stdout(writer.try_clone().unwrap()).spawn().unwrap();
        let is_stuck = |pid: u32, fd: u32| {
            let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            [1, 64].iter().any(|number| call.starts_with(&format!("{number} {fd:#x} ")))
        };
        eventually("a full pipe", || is_stuck(full.id(), 1));
        let mut command = cotenant();
        command.args(args).stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        drop(command);
        eventually("the report", || is_stuck(child.id(), 1) || is_stuck(child.id(), 2));
        signal(child.id(), "TERM");
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        full.wait().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
        let said = said.replace('\0', "");
        serde_json::from_str::<Value>(&said).unwrap_or_else(|e| panic!("{args:?}: {e}: {said}"));
    }
}

#[test]
fn static_places_and_gives_back() {
    let Some(map) = first_cpu_only() else { return };
    let script = "n=0; while [ $n -lt 400 ]; do n=$((n+1)); read -t 0.05 x <> /dev/fd/0; \
                  l=$(grep Cpus_allowed_list /proc/$$/status | cut -f2); case $l in 0) exit 5;; esac; done; exit 6";
    let mut child = cotenant()
        .args([
            "run",
            "-v",
            "--policy",
            "static",
            "--map",
            &map,
            "--pin",
            "cpu",
            "--interval",
            "20ms",
            "--",
            "bash",
            "-c",
            script,
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take();
    let out = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(out.status.code(), Some(5), "the command saw its mask become 0: {}", text(&out.stderr));
    assert!(text(&out.stderr).contains("map: "), "the reason is printed: {}", text(&out.stderr));
}

/// Promise undo/masks: Every CPU mask, also that of children, is given back after any end of Cotenant or its
/// guardian, `kill -9` included; after both, by `cotenant restore`.
#[test]
fn attach_gives_back_after_sigterm_and_after_kill() {
    let Some(map) = first_cpu_only() else { return };
    for how in ["TERM", "INT", "KILL"] {
        let sleeper = Sleeper::start();
        let own = sleeper.mask();
        let pid = sleeper.pid().to_string();
        let mut manager = cotenant()
            .args([
                "attach",
                "-q",
                "-p",
                &pid,
                "--policy",
                "static",
                "--map",
                &map,
                "--pin",
                "cpu",
                "--interval",
                "20ms",
            ])
            .spawn()
            .unwrap();
        eventually("the placement", || sleeper.mask() == "0");
        signal(manager.id(), how);
        let status = manager.wait().unwrap();
        assert_eq!(status.signal(), (how == "KILL").then_some(9));
        eventually("the restoration", || sleeper.mask() == own);
    }
}

#[test]
fn attach_says_before_what_the_kernel_will_refuse() {
    let Some(map) = first_cpu_only() else { return };
    if cotenant_linux::sys::euid() != 0 {
        return eprintln!("skipped: others than root are refused SCHED_DEADLINE anyway");
    }
    for (policy, says) in [(&["--policy", "static", "--map", &map][..], true), (&["--policy", "none"], false)] {
        let sleeper = Sleeper::start();
        let mut manager = cotenant();
        manager.args(["attach", "--interval", "10ms", "-p", &sleeper.pid().to_string()]).args(policy);
        let mut manager = manager.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(manager.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("Ctrl-C ends it")));
        signal(manager.id(), "TERM");
        manager.wait().unwrap();
        let said: Vec<String> = lines.collect();
        assert_eq!(said.iter().any(|line| line.contains("the kernel refuses SCHED_DEADLINE")), says, "{said:?}");
    }
}

#[test]
fn attached_programs_are_known_by_their_names() {
    let folder = Folder::new("attached");
    let file = folder.file("a.rec");
    let sleeper = Sleeper::start();
    let pid = sleeper.pid().to_string();
    let args = ["record", "-o", &file, "-p", &pid, "--interval", "10ms"];
    let mut manager = cotenant().args(args).stderr(Stdio::piped()).spawn().unwrap();
    let about_cat = || run(&["why", &file, "cat", "--json"]);
    eventually("a recorded round", || {
        let out = about_cat();
        out.status.success() && !json(&out)["unmoved"].as_array().unwrap().is_empty()
    });
    signal(manager.id(), "TERM");
    assert_eq!(manager.wait().unwrap().code(), Some(0), "a signal is how attaching ends");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut manager.stderr.take().unwrap(), &mut said).unwrap();
    let greeting = format!("cotenant: watching: cat ({pid}); Ctrl-C ends it and gives everything back");
    assert!(said.starts_with(&greeting), "{said}");
    assert!(said.contains("\ncotenant: observed 1 task for ") && !said.contains("auto"), "{said}");
    assert_eq!(json(&about_cat())["unmoved"][0]["app_name"], "cat", "{}", json(&about_cat()));
}

#[test]
fn two_runs_at_once_do_not_disturb_each_other() {
    let Some(map) = first_cpu_only() else { return };
    let sleepers = [Sleeper::start(), Sleeper::start()];
    let own = sleepers[0].mask();
    let managers = sleepers.each_ref().map(|s| {
        let pid = s.pid().to_string();
        cotenant()
            .args([
                "attach",
                "-q",
                "-p",
                &pid,
                "--policy",
                "static",
                "--map",
                &map,
                "--pin",
                "cpu",
                "--interval",
                "20ms",
            ])
            .spawn()
            .unwrap()
    });
    eventually("both placements", || sleepers.iter().all(|s| s.mask() == "0"));
    let [mut first, mut second] = managers;
    signal(first.id(), "TERM");
    first.wait().unwrap();
    assert_eq!((sleepers[0].mask(), sleepers[1].mask()), (own.clone(), "0".to_owned()));
    signal(second.id(), "TERM");
    second.wait().unwrap();
    assert_eq!(sleepers[1].mask(), own);
}

/// Promise run/observe: `--mode observe` and `--mode advise` change nothing.
#[test]
fn advise_and_observe_change_nothing() {
    let Some(map) = first_cpu_only() else { return };
    let advised = |mode: &str, seconds: &str| {
        let script = format!("read -t {seconds} x <> <(:); grep Cpus_allowed_list /proc/$$/status");
        let how = ["run", "--json", "--mode", mode, "--policy", "static", "--map", &map, "--interval", "20ms", "--"];
        let out = run(&[&how[..], &["bash", "-c", &script]].concat());
        let inside = text(&out.stdout).split_whitespace().nth(1).map(str::to_owned);
        assert_eq!(inside, Some(mask(std::process::id())), "{mode}");
        let summary: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!((summary["moves"].as_u64(), summary["restored"].as_u64()), (Some(0), Some(0)), "{mode}: {summary}");
        summary["not_applied"]["advised"].as_u64().is_some()
    };
    // On a busy machine a short run may end before its first round.
    assert!(["0.5", "5", "20"].iter().any(|seconds| advised("advise", seconds)), "nothing was advised");
    assert!(!advised("observe", "0.5"));
}

#[test]
fn record_replay_why() {
    let folder = Folder::new("record");
    let file = folder.file("a.rec");
    let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    let out = run(&[
        "record",
        "-q",
        "-o",
        &file,
        "--interval",
        "10ms",
        "--mode",
        "advise",
        "--policy",
        "none",
        "--",
        "bash",
        "-c",
        busy,
    ]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let replayed = json(&run(&["replay", &file, "--policy", "none", "--json"]));
    assert!(
        replayed["summary"]["rounds"].as_u64().unwrap() > 0 && replayed["tail"]["kind"] == "complete",
        "{replayed}"
    );
    let why = run(&["why", &file, "bash"]);
    assert!(text(&why.stdout).contains("bash"), "{}", text(&why.stdout));
    let cut = fs::read(&file).unwrap();
    fs::write(&file, &cut[..cut.len() - 7]).unwrap();
    let replayed = run(&["replay", &file, "--policy", "none"]);
    assert!(replayed.status.success() && text(&replayed.stdout).contains("truncated"), "{}", text(&replayed.stdout));
}

#[test]
fn compare_judges_pairs() {
    let out = run(&["compare", "--runs", "2", "--json", "--", "sh", "-c", "exit 0"]);
    let report = json(&out);
    assert_eq!(report["pairs"].as_array().unwrap().len(), 2);
    assert!(report["speedup"]["ci95"][0].as_f64().unwrap() <= report["speedup"]["ci95"][1].as_f64().unwrap());
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("auto changed nothing")), "{notes:?}");
    let failing = run(&["compare", "--runs", "2", "--", "sh", "-c", "exit 4"]);
    assert_eq!(failing.status.code(), Some(1));
    assert!(text(&failing.stderr).contains("cannot be compared"), "{}", text(&failing.stderr));
}

/// Whatever the command makes of the signal, the comparison ends, with the pairs that are complete.
/// Promise run/compare: `compare` judges by complete pairs, however it is interrupted, and gives everything back
/// after each window on a running program.
#[test]
fn an_interrupted_comparison_ends_with_what_it_has() {
    for run_to_stop in [1, 2, 5, 6] {
        let folder = Folder::new(&format!("interrupt-{run_to_stop}"));
        let (count, ready) = (folder.file("count"), folder.file("ready"));
        let script = format!(
            "trap 'exit 0' INT; echo >> {count}; \
             if [ $(wc -l < {count}) -ge {run_to_stop} ]; then : > {ready}; while :; do read -t 1 x <> <(:); done; fi"
        );
        let child = cotenant()
            .args(["compare", "--runs", "3", "--", "bash", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("the run to be stopped", || Path::new(&ready).exists());
        signal(child.id(), "INT");
        let out = child.wait_with_output().unwrap();
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(130), "{stderr}");
        assert!(stderr.contains(&format!("stopped after {} of 3 pairs", (run_to_stop - 1) / 2)), "{stderr}");
        assert_eq!(stdout.contains("speed-up"), run_to_stop > 4, "{stdout}");
        assert!(!stderr.contains('\r'), "progress is for terminals: {stderr}");
    }
}

#[test]
fn decide_prints_the_stable_keys() {
    let snapshot = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/decide-snapshot.json");
    let args = ["decide", "--machine", "ivy-bridge-2s", "--snapshot", snapshot, "--policy", "sam"];
    let answer = json(&run(&[&args[..], &["--json"]].concat()));
    let step = &answer["moves"][0];
    for key in ["task", "from_cpu", "to_cpus", "affinity", "reason"] {
        assert!(!step[key].is_null(), "{key}: {step}");
    }
    for key in ["stage", "signal", "value", "threshold", "text"] {
        assert!(!step["reason"][key].is_null(), "{key}: {step}");
    }
    assert!(text(&run(&args).stdout).contains("stage 1: inter "));
}

/// Holds run/documented.
#[test]
fn the_settings_file_of_the_reference_means_what_the_options_mean() {
    let page = include_str!("../../../../docs/reference/command-line.md");
    let settings = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = Folder::new("settings");
    let profile = folder.file("this-machine.toml");
    fs::write(&profile, "[thresholds]\ncoherence_per_cycle = 1e-4\nsocket_bandwidth_per_s = 1e6\n").unwrap();
    let apps = folder.file("apps.toml");
    fs::write(&apps, "").unwrap();
    let settings =
        settings.replace("/etc/cotenant/this-machine.toml", &profile).replace("/etc/cotenant/apps.toml", &apps);
    let config = folder.file("config.toml");
    fs::write(&config, settings).unwrap();
    let snapshot = folder.file("snapshot.json");
    fs::write(&snapshot, r#"{"interval_s": 0.1, "tasks": [{"id": 1, "app": "a", "cpu": 3}]}"#).unwrap();
    let decide = ["decide", "--machine", "core:4 pu:1", "--snapshot", &snapshot, "--config", &config, "--json"];
    let answer = json(&run(&decide));
    assert_eq!(answer["moves"][0]["affinity"], serde_json::json!([0]), "map and pin: {answer}");
    assert_eq!(answer["wake_at_s"], 0.15, "interval: {answer}");
    let answer = json(&run(&[&decide[..], &["--policy", "none"]].concat()));
    assert_eq!(answer["moves"], serde_json::json!([]), "the command line goes first: {answer}");
}

#[test]
fn settings_of_policies_in_the_file_are_checked_and_give_way_to_the_command_line() {
    let folder = Folder::new("set");
    let (config, snapshot) = (folder.file("config.toml"), folder.file("snapshot.json"));
    fs::write(&snapshot, r#"{"interval_s": 0.1, "tasks": [{"id": 1, "app": "a", "cpu": 3}]}"#).unwrap();
    let decide = |text: &str, more: &[&str]| {
        fs::write(&config, text).unwrap();
        let args = ["decide", "--machine", "core:4 pu:1", "--snapshot", &snapshot, "--config", &config, "--json"];
        run(&[&args[..], &["--policy", "static", "--pin", "cpu"], more].concat())
    };
    let to = |out: &Output| json(out)["moves"][0]["to_cpus"].clone();
    let file = "[set]\nstatic.map = \"..X.\"\n";
    assert_eq!(to(&decide(file, &[])), serde_json::json!([2]));
    assert_eq!(to(&decide(file, &["--set", "static.map=.X.."])), serde_json::json!([1]));
    assert_eq!(to(&decide(file, &["--map", "X..."])), serde_json::json!([0]));
    for (line, why) in [
        ("sam.nope = 1", "settings of sam: unknown field `nope`, expected one of"),
        ("nope.x = 1", "there is no policy 'nope'; known: auto, "),
        ("atom.turn = 5", "settings of atom: 5ms is out of range: 10ms to 86400s"),
    ] {
        let out = decide(&format!("{file}{line}\n"), &[]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(&config) && said.contains(why) && said.lines().count() == 1, "{said}");
    }
}

/// A profile says what it says; the machine file keeps the rest, and the snapshot's thresholds stand above both.
#[test]
fn a_profile_completes_the_machine_file() {
    let folder = Folder::new("profile");
    let profile = folder.file("profile.toml");
    let fixture = |name: &str| format!("{}/../../fixtures/decide/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let moves = |text: &str, snapshot: &str, more: &[&str]| {
        fs::write(&profile, text).unwrap();
        let args =
            ["decide", "--machine", "ivy-bridge-2s", "--policy", "sam", "--json", "--profile", &profile, "--snapshot"];
        json(&run(&[&args[..], &[snapshot], more].concat()))["moves"].as_array().unwrap().len()
    };
    let (clock, high) =
        ("clock_hz = 2e9\n", "[thresholds]\ncoherence_per_cycle = 1e-3\nsocket_bandwidth_per_s = 75e6\n");
    assert_eq!(moves(clock, &fixture("inter-above"), &[]), 1, "thresholds of the machine file");
    assert_eq!(moves(high, &fixture("inter-above"), &["--sam", "paper"]), 0, "the profile's; the machine's clock");
    assert_eq!(moves(high, &fixture("foreign-busy"), &[]), 1, "the snapshot's");
}

#[test]
fn the_machine_is_described() {
    let topo = json(&run(&["topo", "--from", "package:2 [numa] l3:1 core:10 pu:2", "--json"]));
    let counts = ["packages", "numa_nodes", "llc_domains", "cores", "cpus"].map(|key| topo[key].as_u64().unwrap());
    assert_eq!(counts, [2, 2, 2, 20, 40]);
    assert!(topo["tree"].is_object());
    let doctor = json(&run(&["doctor", "--json"]));
    assert_eq!(doctor["cpus"], json(&run(&["topo", "--json"]))["cpus"]);
    assert!(doctor["tier"]["tier"].is_string() && doctor["capabilities"].is_array() && doctor["rivals"].is_array());
    let capability =
        |name: &str| doctor["capabilities"].as_array().unwrap().iter().find(|c| c["name"] == name).unwrap();
    assert_eq!(capability("progress reports")["standing"], "available");
    assert!(!capability("background")["found"].as_str().unwrap().is_empty());
    let no_files = "ulimit -f 0; \"$0\" doctor | grep -A2 'progress reports'";
    let limited = Command::new("sh").args(["-c", no_files, env!("CARGO_BIN_EXE_cotenant")]).output().unwrap();
    let told = text(&limited.stdout);
    assert!(told.contains("✗ progress reports") && told.contains("costs:") && told.contains("helps:"), "{told}");
    assert!(text(&run(&["doctor"]).stdout).contains("Counters: "));
    assert!(run(&["restore"]).status.success());
}

/// Each machine that the binary carries is complete enough for every policy that decides about one program, or the
/// policy says what is not to be had there.
/// Promise place/policies: Every policy decides legally and repeatably, disbelieves denied moves, and works on each
/// shipped machine or says what is missing there.
#[test]
fn policies_decide_on_every_shipped_machine() {
    let folder = Folder::new("shipped");
    let snapshot = folder.file("snapshot.json");
    let machines = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines")).unwrap();
    let mut seen = [0; 2];
    for machine in machines.map(|entry| entry.unwrap().path()) {
        let machine = machine.file_stem().unwrap().to_str().unwrap().to_owned();
        let topo = json(&run(&["topo", "--from", &machine, "--json"]));
        let count = |key: &str| topo[key].as_u64().unwrap() as usize;
        let (cpus, nodes, domains) = (count("cpus"), count("numa_nodes"), count("llc_domains"));
        // Two sharers as far apart as possible, and a task with its pages on the last node with CPUs.
        let pages: Vec<u64> = (1..=nodes).map(|node| if node == nodes { 1_000 } else { 0 }).collect();
        let task = |id: usize, app: &str, cpu: usize, inter: u64, pages: &[u64]| {
            serde_json::json!({"id": id, "app": app, "cpu": cpu, "cycles": 200_000_000, "instructions": 200_000_000,
                "cpu_ns": 100_000_000, "inter": inter, "intra": 0, "near": inter, "remote": 0, "llc_misses": 1_000_000,
                "pages_by_node": pages})
        };
        let tasks =
            [task(1, "a", 0, 2_000_000, &[]), task(2, "a", cpus - 1, 2_000_000, &[]), task(3, "b", 1, 0, &pages)];
        fs::write(&snapshot, serde_json::json!({"interval_s": 0.1, "tasks": tasks}).to_string()).unwrap();
        let decide =
            |policy: &str| run(&["decide", "--machine", &machine, "--snapshot", &snapshot, "--policy", policy]);
        // All CPUs of a mesh or of a package share caches or have similar ones: there is nothing to bring together.
        let alike = count("packages") == 1 && (domains == 1 || domains == count("cores"));
        // Memory alone does not distinguish CPUs.
        let is_numa = nodes > 1 && machine != "knl-7210";
        for policy in ["sam", "weighted", "brute-force", "assignment"] {
            let out = decide(policy);
            let (told, wanted) =
                (text(&out.stdout) + &text(&out.stderr), if policy == "sam" { !alike } else { is_numa });
            if wanted {
                assert!(out.status.success() && !told.contains("no moves"), "{machine} {policy}: {told}");
                let is_at_a_loss = told.contains("equally far") || is_numa && told.contains("unknown");
                assert!(!is_at_a_loss, "{machine} {policy}: {told}");
            } else {
                let why = if policy == "sam" { "one last-level cache serves all cores, or" } else { "equally far" };
                assert!(out.status.code() == Some(2) && told.contains(why), "{machine} {policy}: {told}");
            }
            seen[usize::from(wanted)] += 1;
        }
        for policy in ["none", "auto", "resense", "resense-sum", "atom", "numad", "dino", "overhead"] {
            let out = decide(policy);
            let told = text(&out.stdout) + &text(&out.stderr);
            assert!(out.status.success() && !told.contains("equally far"), "{machine} {policy}: {told}");
        }
        // Its source has no figures, for any machine.
        assert!(text(&decide("heuristic").stderr).contains("add [heuristic] with sharing"), "{machine}");
    }
    assert!(seen[0] > 0 && seen[1] > 30, "both kinds of machines: {seen:?}");
    let derived = run(&["decide", "--machine", "epyc-9454-2s", "--snapshot", &snapshot, "--policy", "sam"]);
    assert!(text(&derived.stderr).contains("epyc-9454-2s has no thresholds of its own: derived, not measured"));
    let published = run(&["decide", "--machine", "ivy-bridge-2s", "--snapshot", &snapshot, "--policy", "sam"]);
    assert!(!text(&published.stderr).contains("no thresholds of its own"), "the file has the paper's");
}

#[test]
fn topo_shows_the_distances_that_decide_derives() {
    let folder = Folder::new("derived");
    let snapshot = folder.file("snapshot.json");
    fs::write(&snapshot, r#"{"interval_s": 0.1, "tasks": []}"#).unwrap();
    let machines = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines")).unwrap();
    let mut derived = 0;
    for machine in machines.map(|entry| entry.unwrap().path()) {
        let machine = machine.file_stem().unwrap().to_str().unwrap().to_owned();
        let told = |words: &[&str]| {
            let said = text(&run(words).stderr);
            said.lines().filter(|line| line.contains("no distances of its own")).map(str::to_owned).collect::<Vec<_>>()
        };
        let topo = ["topo", "--json", "--from", &machine];
        let decided = told(&["decide", "--machine", &machine, "--snapshot", &snapshot, "--policy", "weighted"]);
        assert_eq!(told(&topo), decided, "{machine}");
        let topo = json(&run(&topo));
        assert_eq!(topo["distances"].is_object(), topo["numa_nodes"].as_u64() > Some(1), "{machine}: {topo:#}");
        let source = topo["distances"]["source"].as_str().unwrap_or_default();
        assert_eq!(source.starts_with("derived from memory_ns"), !decided.is_empty(), "{machine}: {source}");
        derived += decided.len();
    }
    assert!(derived > 3, "of most machines the file has none");
    let profile = folder.file("profile.toml");
    let rows = "{ cpus = '0-47,96-143', ns = [90, 200] }, { cpus = '48-95,144-191', ns = [200, 90] }";
    fs::write(&profile, format!("[memory_latency]\nnodes = [0, 1]\nrows = [{rows}]\n")).unwrap();
    let measured = run(&["topo", "--json", "--from", "epyc-9454-2s", "--profile", &profile]);
    let said = text(&measured.stderr);
    assert!(measured.status.success() && !said.contains("derived"), "what a profile has is not: {said}");
    assert_eq!(json(&measured)["distances"]["rows"][0][1], 200.0);
}

/// Promise run/wrong-input: Wrong input is reported in one line with its place and a remedy, and nothing is started.
#[allow(clippy::too_many_lines)] // a table
#[test]
fn wrong_input_gets_one_line_with_place_and_remedy() {
    let folder = Folder::new("wrong");
    let touched = folder.file("touched");
    let config = folder.file("config.toml");
    fs::write(&config, "policy = 'none'\npinn = 'cpu'\n").unwrap();
    let profile = folder.file("profile.toml");
    fs::write(&profile, "[thresholds]\ncoherence_per_cycle = 0\nsocket_bandwidth_per_s = 1\n").unwrap();
    let snapshot = folder.file("snapshot.json");
    fs::write(&snapshot, "{\"interval_s\": 0.1,\n \"tasks\": [{\"id\": 1, \"app\": \"a\", \"cpu\": 4000}]}").unwrap();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/two-sockets-sam.rec");
    let queue = folder.file("queue");
    let line = format!("touch {touched}");
    fs::write(&queue, &line).unwrap();
    let qos = ["qos", "--high", &line, "--low", &line];
    let pid = std::process::id().to_string();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "--interval", "0", "--", "touch", &touched], 2, "1ms"),
        (&["run", "--policy", "fastest", "--", "touch", &touched], 2, "known: auto"),
        (&["run", "--policy", "sam", "--", "touch", &touched], 2, "--profile"),
        (&["run", "--policy", "static", "--map", "Q", "--", "touch", &touched], 2, "map"),
        (&["run", "--policy", "static", "--", "touch", &touched], 2, "--map"),
        (&["run", "--cpus", "9000", "--", "touch", &touched], 2, "usable:"),
        (&["run", "--cpus", "0-9000", "--", "touch", &touched], 2, "cannot be used here; usable:"),
        (&["run", "--cpus", "a", "--", "touch", &touched], 2, "0-3,8"),
        (
            &["run", "--set", "sam.nonsense=1", "--policy", "sam", "--", "touch", &touched],
            2,
            "unknown field `nonsense`",
        ),
        (&[&qos[..], &["--set", "qos.nonsense=1"]].concat(), 2, "--set qos.nonsense=1: unknown field `nonsense`"),
        (&[&qos[..], &["--set", "qos.patience=x"]].concat(), 2, "--set qos.patience=x"),
        (&[&qos[..], &["--set", "sam.cooldown=false"]].concat(), 2, "the policy here is qos"),
        (&[&qos[..], &["--cpus", "9000"]].concat(), 2, "usable:"),
        (&["schedule", &queue, "--policy", "mas", "--set", "mas.nonsense=1"], 2, "unknown field `nonsense`"),
        (&["schedule", &queue, "--set", "sam.cooldown=false"], 2, "which has no such settings"),
        (&["schedule", &queue, "--record", "/proc/nonexistent/file"], 2, "/proc/nonexistent/file"),
        (&["run", "--record", "/proc/nonexistent/file", "--", "touch", &touched], 2, "/proc/nonexistent/file"),
        (&["run", "--record", "/dev/full", "--", "touch", &touched], 2, "No space left"),
        (&["run", "--metric", "uptime", "--", "touch", &touched], 2, "cmd:COMMAND"),
        (&["run", "--metric", "cmd:true,every=0s", "--", "touch", &touched], 2, "every=TIME"),
        (&["run", "--metric", "log:/x:(", "--", "touch", &touched], 2, "not a regular expression"),
        (&["run", "--metric", "cmd:a", "--metric", "cmd:b", "--", "touch", &touched], 2, "name=NAME"),
        (&["compare", "--metric", "https://localhost/", "--", "touch", &touched], 2, "https"),
        (&["run", "--config", &config, "--", "touch", &touched], 2, "config.toml:2:1: unknown field `pinn`"),
        (
            &["run", "--profile", &profile, "--", "touch", &touched],
            2,
            "profile.toml:2:1: coherence_per_cycle must be positive",
        ),
        (&["run", "--profile", "/proc/nonexistent", "--", "touch", &touched], 2, "/proc/nonexistent"),
        (&["attach", "-p", "4194304"], 2, "there is no process 4194304"),
        (&["attach"], 2, "-p PID"),
        (&["record"], 2, "nothing to record"),
        (&["attach", "--cgroup", "/no-such-group"], 2, "there is no control group /no-such-group"),
        (&["topo", "--from", "no-such-machine"], 2, "ivy-bridge-2s"),
        (&["topo", "--from", "core:999999999"], 2, "more than 8192"),
        (&["decide", "--machine", "ivy-bridge-2s", "--snapshot", &snapshot], 2, "snapshot.json:2:"),
        (&["replay", &config], 2, "not a recording"),
        (&["why", "/proc/nonexistent", "1"], 2, "give a file that `cotenant record`"),
        (&["top", "/proc/nonexistent"], 2, "give a file that `cotenant record`"),
        (&["top", recording, "--at", "999s"], 2, "--at 999 s: the recording ends at "),
        (&["top", recording, "--at", "999s", "--once"], 2, "--at 999 s: the recording ends at "),
        (&["why", recording, "--at", "1s"], 2, "name one"),
        (&["why", recording, "app:0", "--at", "999s"], 2, "--at 999 s: the recording ends at "),
        (&["replay", recording, "--from", "999s"], 2, "--from 999 s: the recording ends at "),
        (&["replay", recording, "--from", "999s", "--json"], 2, "--from 999 s: the recording ends at "),
        (&["why", "--live", "--socket", "/proc/nonexistent", "x"], 2, "no daemon answers at /proc/nonexistent"),
        (&["why", "--live", "x", "y"], 2, "leave out y"),
        (&["replay", recording, "--policy", "fastest"], 2, "known: auto"),
        (&["replay", recording, "--from", "2s", "--to", "1s"], 2, "swap them"),
        (&["replay", recording, "--policy", "static"], 2, "--map"),
        (&["run", ""], 2, "the command is empty"),
        (&["run"], 2, "see cotenant run --help"),
        (&["reproduce", "sam-fig1"], 2, "see cotenant-lab reproduce --help"),
        (&["runn"], 2, "a similar subcommand exists: 'run'"),
        (&["run", "--mode", "boldly", "--", "touch", &touched], 2, "observe, advise, enforce"),
        (&["run", "--map", "X", "--", "touch", &touched], 2, "add --policy static"),
        (&["run", "--policy", "none", "--sam", "paper", "--", "touch", &touched], 2, "leave it out"),
        (&["compare", "--record", "x", "--", "touch", &touched], 2, "'--record'"),
        (&["compare"], 2, "nothing to compare; give a command after --, or -p PID"),
        (&["compare", "-p", &pid, "--", "touch", &touched], 2, "not both"),
        (&["sharing", "-p", "4194304"], 2, "there is no process 4194304"),
        (&["compare", "-p", "4194304"], 2, "there is no process 4194304"),
        (&["compare", "-p", &pid, "--windows", "500ms"], 2, "10 decisions at least; give 1s or more"),
        (&["compare", "-p", &pid, "--windows", "2s", "--metric", "cmd:echo 1"], 2, "read every 1s; give 3s or more"),
        (&["compare", "-p", &pid, "--metric", "latency_p99_s", "--metric", "redis:1:p99"], 2, "compare once for each"),
        (&["compare", "-p", &pid, "--mode", "observe"], 2, "leave --mode"),
        (&["compare", "-p", &pid, "--move-pages"], 2, "leave --move-pages out"),
        (&["compare", "-p", &pid, "--show-output"], 2, "--show-output is for a command"),
        (&["compare", "--windows", "5s", "--", "touch", &touched], 2, "add -p PID"),
        (&["compare", "--metric", "progress", "--", "touch", &touched], 2, "only 'cotenant qos' and"),
        (&["run", "--metric", "ipc", "--", "touch", &touched], 2, "name a source from outside, such as cmd:COMMAND"),
        (&["attach", "-p", "redis"], 2, "4711,4712"),
        (&["decide", "--machine", "x3320", "--snapshot", "/"], 2, "/: Is a directory"),
        (&["attach", "-p", "1"], 2, "add --all to manage all of them, or --mode observe"),
        (&["record", "--mode", "enforce", "-p", "1"], 2, "add --all"),
        (&["attach", "-p", "1", "--cgroup", "/"], 2, "cannot be used with"),
        (&["record", "-o", "/proc/nonexistent/file", "--", "touch", &touched], 2, "; name a file in a folder"),
        (&["sim", &snapshot], 2, "snapshot.json:1:1: this is JSON, and TOML is expected here"),
        (&["run", "--interval", "2h", "--", "touch", &touched], 2, "an interval lies between"),
        (&["completions", "tcsh"], 2, "bash"),
        (&["man", "nope"], 2, "there is no subcommand 'nope'"),
        (&["topo", "--gather", &format!("{config}/x")], 2, "Not a directory"),
        (&["topo", "--svg", "/proc/nonexistent/x"], 2, "name another file with --svg"),
        (&["calibrate", "--only", "clock", "-o", "/proc/nonexistent/x"], 2, "; name another file with -o"),
        (&["characterize", "-o", "/proc/nonexistent/x", "--", "touch", &touched], 2, "; name another file with -o"),
        (&["man", "--output", "/proc/nonexistent/x"], 2, "; choose another folder with --output"),
        (&["qos", "--low-pid", "1", "--high", &format!("touch {touched}")], 2, "every program here descends"),
        (&["qos", "--high-pid", "1,1", "--low", &format!("touch {touched}")], 2, "process 1 is named twice"),
        (&["qos", "--time", "30", "--high", "a", "--low", "b"], 2, "'30' has no unit; write for example 30s"),
        (&["qos", "--time", "0s", "--high", "a", "--low", "b"], 2, "a run lasts between 1ms and"),
        (&["run", "--cpus", "", "--", "touch", &touched], 2, "--cpus '': it names no CPU"),
        (&["run", "--cpus", "-1", "--", "touch", &touched], 2, "for no value here is negative"),
        (
            &["run", "--metric", "redis:secret@db:6379:p99", "--", "touch", &touched],
            2,
            "no password stands in a metric",
        ),
        (&["calibrate", "--only", ""], 2, "--only '': there is no such measurement"),
    ];
    // A kernel thread; in a container 2 is nothing, or something else.
    let kernel_thread: &[(&[&str], i32, &str)] = &[(&["attach", "-q", "-p", "2"], 2, "nothing could be managed")];
    let has_one = fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm == "kthreadd\n");
    for (args, code, part) in cases.iter().chain(kernel_thread.iter().filter(|_| has_one)) {
        let out = cotenant_for_a_minute().args(*args).stdin(Stdio::null()).output().unwrap();
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(*code), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {stderr}\nshould contain {part}");
        assert!(stderr.starts_with("cotenant: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
        assert!(!Path::new(&touched).exists(), "{args:?}: the command must not start");
    }
}

/// An unknown option is a slip, not a value.
#[test]
fn tips_do_not_mislead() {
    for (args, said) in [
        (&["run", "--polcy", "x", "true"][..], "similar argument exists: '--policy'; see cotenant run --help"),
        (&["run", "-p", "1"], "unexpected argument '-p' found; see cotenant run --help"),
    ] {
        let stderr = text(&run(args).stderr);
        assert!(stderr.contains(said) && !stderr.contains("as a value"), "{stderr}");
    }
}

#[test]
fn a_recording_says_what_can_be_asked_about() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/two-sockets-sam.rec");
    let out = run(&["why", recording]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("Name what to explain: cotenant why ") && said.contains("  times         0s to "),
        "{said}"
    );
    let there = json(&run(&["why", recording, "--json"]));
    let name = there["applications"][0].as_str().unwrap();
    assert!(said.contains(name) && run(&["why", recording, name]).status.success(), "{there}");
}

/// It ends before it is managed: its parent has not waited for it.
#[test]
fn nothing_is_said_to_be_managed_that_is_not() {
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = ended.id().to_string();
    eventually("it ends", || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z "));
    let out = cotenant_for_a_minute().args(["attach", "-p", &pid]).stdin(Stdio::null()).output().unwrap();
    let said = text(&out.stderr);
    assert!(out.status.code() == Some(2) && !said.contains("managing with"), "{said}");
    ended.wait().unwrap();
}

#[test]
fn without_root_all_users_says_once_what_it_cannot_do() {
    for command in [&["run"][..], &["compare", "--runs", "2"]] {
        let mut words = vec![env!("CARGO_BIN_EXE_cotenant")];
        words.extend(command.iter().chain(&["--mode", "observe", "--all-users", "--", "true"]));
        if cotenant_linux::sys::euid() == 0 {
            words.splice(0..0, ["setpriv", "--reuid", "65534", "--clear-groups"]);
        }
        let out = alone(Command::new(words[0])).args(&words[1..]).current_dir("/").output();
        let Ok(out) = out.map_err(|why| eprintln!("skipped: {why}")) else { return };
        let said = text(&out.stderr);
        if said.contains("Permission denied") {
            return eprintln!("skipped: other users may not execute this: {said}");
        }
        let warning = "cotenant: --all-users: without root, ";
        assert_eq!((out.status.success(), said.matches(warning).count()), (true, 1), "{command:?}: {said}");
        assert!(command[0] == "compare" || said.starts_with(warning), "{said}");
    }
}

/// Holds run/end.
#[test]
fn a_program_that_could_not_be_started_is_said_and_is_an_exit_code() {
    // Only watched, since a busy machine leaves the background nothing in that time.
    let qos = ["qos", "--mode", "observe", "--high", "sleep 3", "--metric", "cmd:echo 5,every=100ms", "--low"];
    let args = |low| [&qos[..], &[low, "--time", "3s"]].concat();
    let out = run(&args("nosuchprog"));
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(127), "{said}");
    assert!(said.contains("low nosuchprog: it never ran: exit code 127, it was not found"), "{said}");
    let out = run(&[&args(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))[..], &["--json"]].concat());
    let said: Value = serde_json::from_str(text(&out.stderr).lines().last().unwrap()).unwrap();
    assert_eq!((out.status.code(), &said["low"][0]["not_started"]), (Some(126), &Value::from(126)));
    assert_eq!(run(&args("sleep 1")).status.code(), Some(0));
    let out = run(&args("sleep 0.5; nosuchlater"));
    let said = text(&out.stderr);
    assert!(said.contains(" s with exit code 127") && !said.contains("never ran"), "{said}");
    let out = run(&args("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; nosuchlater"));
    assert!(!text(&out.stderr).contains("never ran"), "a loop of the shell alone: {}", text(&out.stderr));
    let said = text(&run(&args("exit 3")).stderr);
    assert!(said.contains(" s with exit code 3"), "{said}");
}

/// Its user has stopped it, so it hears of being asked to end only when it goes on.
/// Promise run/end: Whatever fails, hangs, pauses or is interrupted ends when asked to, and leaves nothing running
/// and nothing half written.
#[test]
fn a_stopped_command_ends_when_its_time_is_up() {
    let qos = ["qos", "--high", "sleep 1", "--metric", "cmd:echo 5,every=100ms", "--time", "1s", "--low"];
    let out = run(&[&qos[..], &["kill -STOP $$; echo went on; sleep 60"]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
}

/// Holds run/documented.
#[test]
fn machines_that_are_known_by_name_are_listed() {
    let help = text(&run(&["topo", "--help"]).stdout);
    let (_, names) = help.split_once("known by name:\n").unwrap();
    let listed: Vec<&str> = names.lines().map(str::trim).collect();
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines")).unwrap();
    let mut known: Vec<String> =
        files.filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    known.sort();
    assert_eq!(listed, known);
}

/// Who tries the first example sees a difference.
#[test]
fn policies_differ_on_the_scenario_that_the_help_of_sim_shows() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/two-apps.toml");
    let out = run(&["sim", scenario, "--seeds", "2", "--no-band", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let slowdown = |policy: usize| found["policies"][policy]["apps"][0]["slowdown"].as_f64().unwrap();
    assert!(slowdown(1) < 0.95 * slowdown(0), "{found}");
}

#[test]
fn the_examples_of_sim_can_be_run_with_the_file_that_the_help_shows() {
    let folder = std::env::temp_dir().join(format!("cotenant-examples-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let help = text(&run(&["sim", "--help"]).stdout);
    let (_, after) = help.split_once("Examples").unwrap();
    let (examples, file) = after.split_once("\n\n").unwrap();
    fs::write(folder.join("two-apps.toml"), file).unwrap();
    let lines: Vec<&str> = examples.lines().filter_map(|line| line.trim().strip_prefix("cotenant ")).collect();
    assert_eq!(lines.len(), 4);
    for line in lines {
        let words = line.split(" | ").next().unwrap().split_whitespace();
        let out = Command::new(env!("CARGO_BIN_EXE_cotenant")).args(words).current_dir(&folder).output().unwrap();
        assert!(out.status.success(), "{line}: {}", text(&out.stderr));
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn completions_and_man_pages_know_every_subcommand() {
    let completions = ["bash", "zsh", "fish"].map(|shell| text(&run(&["completions", shell]).stdout));
    let main = text(&run(&["man"]).stdout);
    for name in ["run", "attach", "qos", "schedule", "policies", "completions", "man"] {
        assert!(completions.iter().all(|script| script.contains(name)), "{name}");
        assert!(main.contains(&format!("cotenant\\-{name}(1)")), "{name}: {main}");
        let page = text(&run(&["man", name]).stdout);
        assert!(page.contains(&format!(".TH cotenant-{name} 1")), "{page}");
    }
    let folder = std::env::temp_dir().join(format!("cotenant-man-{}", std::process::id()));
    assert!(run(&["man", "--output", folder.to_str().unwrap()]).status.success());
    let written = fs::read(folder.join("cotenant-run.1")).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(text(&written).contains("Start a command and manage it"));
    assert_eq!(written, run(&["man", "run"]).stdout, "the same page");
}

#[test]
fn the_help_of_cc_needs_no_clang() {
    for name in ["cc", "c++"] {
        let out = Command::new(env!("CARGO_BIN_EXE_cotenant")).args([name, "--help"]).env("PATH", "").output().unwrap();
        assert!(out.status.success() && text(&out.stdout).contains("--cotenant-mode=MODE"), "{}", text(&out.stderr));
    }
}

#[test]
fn a_drawn_map_pins_to_the_cpu_unless_asked_otherwise() {
    let folder = std::env::temp_dir().join(format!("cotenant-pin-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let recording = folder.join("a.rec");
    let Some(map) = first_cpu_only() else { return };
    for (options, pin) in [(&[][..], Pin::Cpu), (&["--pin", "node"][..], Pin::Node)] {
        let record = ["run", "-q", "--policy", "static", "--map", &map, "--record", recording.to_str().unwrap()];
        assert!(run(&[&record[..], options, &["--", "true"]].concat()).status.success());
        let read = Recording::read(fs::File::open(&recording).unwrap()).unwrap();
        assert_eq!(read.header().config.pin, pin, "{options:?}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// As libvirt makes one for each virtual CPU.
#[test]
fn a_threaded_group_is_refused_with_the_group_to_give() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[2] == "cgroup2");
    let Some(domain) = mount.map(|fields| Path::new(fields[1]).join(format!("cotenant-cli-{}", std::process::id())))
    else {
        return eprintln!("skipped: no control groups of version 2 here");
    };
    let threaded = domain.join("vcpu0");
    let made = fs::create_dir_all(&threaded).and_then(|()| fs::write(threaded.join("cgroup.type"), "threaded"));
    if let Err(why) = made {
        let _ = (fs::remove_dir(&threaded), fs::remove_dir(&domain));
        return eprintln!("skipped: no threaded control group can be made here ({why})");
    }
    let invalid = domain.join("beside");
    fs::create_dir(&invalid).unwrap();
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(domain.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    fs::write(threaded.join("cgroup.threads"), sleeper.id().to_string()).unwrap();
    let group = threaded.to_str().unwrap();
    let attach = run(&["attach", "--cgroup", group, "--policy", "none"]);
    let words = ["qos", "--high", "sleep 9", "--metric", "cmd:echo 1", "--low-cgroup", group, "--time", "1s"];
    let qos = run(&words);
    let beside = run(&["attach", "--cgroup", invalid.to_str().unwrap(), "--policy", "none"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let said = [&attach, &qos].map(|out| text(&out.stderr));
    [&invalid, &threaded, &domain].into_iter().try_for_each(fs::remove_dir).unwrap();
    let why = text(&beside.stderr);
    assert!(
        beside.status.code() == Some(2) && why.contains("can have no processes, for one around it is threaded"),
        "{why}"
    );
    let told = format!(
        "{group} is a threaded control group, which has threads of processes and no processes; give {}",
        domain.display()
    );
    for (said, code) in said.iter().zip([attach.status.code(), qos.status.code()]) {
        assert!(said.contains(&told) && code == Some(2), "{code:?} {said}");
    }
}

/// As in every container that was not given them to write.
/// Holds qos/means.
#[test]
fn control_groups_that_cannot_be_written_are_no_means() {
    let remount =
        r"for m in $(awk '$3~/^cgroup/{print $2}' /proc/mounts); do mount -o remount,ro,bind $m || exit 99; done";
    let line = format!("{remount}; exec {} doctor --json", env!("CARGO_BIN_EXE_cotenant"));
    let out = Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &line]).output();
    let out = match out {
        Ok(out) if out.status.success() => out,
        other => return eprintln!("skipped: no mounts of our own here: {other:?}"),
    };
    let report = json(&out);
    let of = |name: &str| report["capabilities"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    for name in ["freezer", "CPU quota"] {
        let found = of(name);
        assert_eq!(found["standing"], "missing", "{found}");
        let mounted = fs::read_to_string("/proc/mounts").unwrap().lines().any(|line| line.contains(" cgroup"));
        assert!(!mounted || found["found"].as_str().unwrap().contains("Read-only file system"), "{found}");
    }
}

/// Holds qos/means.
#[test]
fn files_of_processes_that_cannot_be_written_are_no_means() {
    let line =
        format!("mount -o remount,ro,bind /proc || exit 99; exec {} doctor --json", env!("CARGO_BIN_EXE_cotenant"));
    let out = Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &line]).output();
    let out = match out {
        Ok(out) if out.status.success() => out,
        other => return eprintln!("skipped: no mounts of our own here: {other:?}"),
    };
    let report = json(&out);
    let of = |name: &str| report["capabilities"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(of("accessed bits")["standing"], "missing", "{report}");
    assert!(!of("background")["found"].as_str().unwrap().contains("autogroup"), "{report}");
}

/// Also where that is root of a user namespace alone, whose `/run` is another's.
#[test]
fn programs_are_placed_wherever_their_user_may_keep_the_journal() {
    let Some(map) = first_cpu_only() else { return };
    let home = std::env::temp_dir().join(format!("cotenant-state-{}", std::process::id()));
    fs::create_dir_all(&home).unwrap();
    let exe = env!("CARGO_BIN_EXE_cotenant");
    let managed = format!("{exe} run --policy static --map {map} -- sleep 0.5");
    // An impossible folder.
    let bad =
        alone(Command::new("sh")).args(["-c", &managed]).env("COTENANT_STATE_DIR", "/proc/none").output().unwrap();
    let said = text(&bad.stderr);
    assert!(
        said.contains("/proc/none: ") && said.contains("name a folder of your own by COTENANT_STATE_DIR"),
        "{said}"
    );
    let relative = alone(Command::new("sh")).args(["-c", &managed]).env("COTENANT_STATE_DIR", "here").output().unwrap();
    let said = text(&relative.stderr);
    assert!(
        said.contains("COTENANT_STATE_DIR: 'here' is not an absolute path") && !relative.status.success(),
        "{said}"
    );
    let own = home.join("own");
    let good = alone(Command::new("sh")).args(["-c", &managed]).env("COTENANT_STATE_DIR", &own).output().unwrap();
    assert!(text(&good.stderr).contains(": 1 move"), "{}", text(&good.stderr));
    assert!(own.is_dir());
    if crate::world::is_root() {
        let line = format!(
            "chown 65534 {0}; exec setpriv --reuid 65534 --regid 65534 --clear-groups \
             unshare -U -r sh -c 'HOME={0} {managed}'",
            home.display()
        );
        let out = alone(Command::new("sh")).args(["-c", &line]).output().unwrap();
        let said = text(&out.stderr);
        if said.contains("unshare") || matches!(out.status.code(), Some(126 | 127)) {
            eprintln!("skipped in part: no user namespaces here: {said}");
        } else {
            assert!(said.contains(": 1 move"), "{said}");
            assert!(home.join(".local/state/cotenant").is_dir());
        }
    }
    fs::remove_dir_all(&home).unwrap();
}

#[test]
fn attach_says_why_a_process_is_left_alone() {
    let kernel = run(&["attach", "--policy", "none", "--all-users", "-p", "2"]);
    let said = text(&kernel.stderr);
    if fs::read_link("/proc/2/exe").is_err() && Path::new("/proc/2/stat").exists() {
        assert!(kernel.status.code() == Some(2) && said.contains("process 2 is a kernel thread"), "{said}");
    }
    let mut real_time = Command::new("chrt").args(["-f", "1", "sleep", "1000"]).spawn().unwrap();
    let there = || fs::read_to_string(format!("/proc/{}/comm", real_time.id())).is_ok_and(|name| name == "sleep\n");
    let until = Instant::now() + Duration::from_secs(10);
    while !there() && Instant::now() < until && Path::new(&format!("/proc/{}/exe", real_time.id())).exists() {
        std::thread::yield_now();
    }
    if !there() {
        real_time.kill().unwrap();
        real_time.wait().unwrap();
        return eprintln!("skipped in part: no real-time policy may be set here");
    }
    let pid = real_time.id().to_string();
    let out = run(&["attach", "--policy", "none", "-p", &pid]);
    // What cannot be paused is no low priority.
    let low = run(&["qos", "--high", "sleep 9", "--metric", "cmd:echo 1", "--low-pid", &pid, "--time", "1s"]);
    let group = real_time_group(&pid).map(|group| {
        let out = run(&["attach", "--policy", "none", "--cgroup", group.to_str().unwrap()]);
        (out, group)
    });
    real_time.kill().unwrap();
    real_time.wait().unwrap();
    let mut all = vec![(out, 2), (low, 2)];
    if let Some((out, group)) = group {
        fs::remove_dir(group).unwrap();
        all.push((out, 2));
    }
    for (out, code) in all {
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(code) && said.contains("has a real-time or deadline policy"), "{said}");
    }
}

/// A control group of that process alone; `None`, and says so, where none can be made.
fn real_time_group(pid: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[2] == "cgroup2");
    let group = Path::new(mount?[1]).join(format!("cotenant-cli-rt-{}", std::process::id()));
    match fs::create_dir(&group).and_then(|()| fs::write(group.join("cgroup.procs"), pid)) {
        Ok(()) => Some(group),
        Err(why) => {
            let _ = fs::remove_dir(&group);
            eprintln!("skipped in part: no control group can be made here ({why})");
            None
        }
    }
}

/// Holds see/contradictions.
/// lxcfs numbers CPUs anew in one file, so that some are in that list by chance.
#[test]
fn cpus_that_a_list_hides_are_used() {
    let Some(map) = first_cpu_only() else { return };
    let exe = env!("CARGO_BIN_EXE_cotenant");
    let list = std::env::temp_dir().join(format!("cotenant-online-{}", std::process::id()));
    fs::write(&list, "0\n").unwrap();
    let line = format!(
        "mount --bind {} /sys/devices/system/cpu/online || exit 99; {exe} topo >/dev/null; \
         exec {exe} run --policy static --map {map} -- sleep 0.3",
        list.display()
    );
    let out = alone(Command::new("unshare")).args(["-m", "--propagation", "private", "sh", "-c", &line]).output();
    fs::remove_file(&list).unwrap();
    let out = match out {
        Ok(out) if out.status.code() != Some(99) && !text(&out.stderr).contains("unshare") => out,
        other => return eprintln!("skipped: no mounts of our own here: {other:?}"),
    };
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains(": 1 move"), "{said}");
    for part in
        ["/sys/devices/system/cpu/online says 0, but this process may run on CPUs", "; the list is not believed"]
    {
        assert_eq!(said.matches(part).count(), 2, "by both: {said}");
    }
}

/// In a filter of system calls that refuses some, as containers have.
fn without(calls: &[libc::c_long], args: &[&str]) -> Output {
    let statement = |code: u32, jt: usize, k: u32| libc::sock_filter { code: code as u16, jt: jt as u8, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    filter.extend(calls.iter().enumerate().map(|(i, call)| statement(equals, calls.len() - i, *call as u32)));
    filter.extend(
        [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32]
            .map(|end| statement(libc::BPF_RET, 0, end)),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(args);
    // SAFETY: only system calls on memory that outlives them, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let no_new_rights = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
            if no_new_rights == 0 && set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    command.output().unwrap()
}

/// The kernel's settings are no cure.
/// Holds qos/means.
#[test]
fn what_a_filter_of_system_calls_refuses_is_said_with_its_cure() {
    let filter = "filter of system calls (seccomp)";
    let said = text(&without(&[libc::SYS_sched_setaffinity], &["doctor"]).stdout);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("sched_setaffinity is refused")).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(filter)), "{said}");
    for policy in ["auto", "static", "numad"] {
        assert!(lines.iter().any(|line| line.trim().starts_with(policy)), "{policy}: {said}");
    }
    assert!(said.contains("none       works everywhere"), "{said}");
    let said = text(&without(&[libc::SYS_perf_event_open], &["doctor"]).stdout);
    let (_, events) =
        said.split_once("✗ performance events: perf_event_open is refused: ").unwrap_or_else(|| panic!("{said}"));
    let helps: Vec<&str> = events.lines().take(3).filter(|line| line.contains("helps: ")).collect();
    assert!(helps.len() == 1 && helps[0].contains(filter) && !said.contains("perf_event_paranoid=1"), "{said}");
}

/// Its last mask would hold it where it should run at once.
#[test]
fn a_program_that_takes_a_real_time_policy_gets_its_cpus_back() {
    let Some(map) = first_cpu_only() else { return };
    let script = r#"
        of() { sed -n 's/^Cpus_allowed_list:\t//p' /proc/$$/status; }
        until_is() {
            for i in $(seq 1200); do [ "$(of)" $1 "$2" ] && return; sleep 0.1; done
            echo "CPUs $(of)"; exit 1
        }
        until_is = 0
        chrt -f -p 1 $$ || exit 77
        until_is != 0"#;
    let out = run(&["run", "-v", "--policy", "static", "--map", &map, "--", "sh", "-c", script]);
    let said = text(&out.stderr);
    if out.status.code() == Some(77) {
        return eprintln!("skipped: no real-time policy may be set here: {said}");
    }
    assert!(out.status.success(), "{} {said}", text(&out.stdout));
    assert!(said.contains("took a real-time or deadline policy, and got its CPUs back"), "{said}");
    // Also where it has one from the beginning.
    let out = run(&["run", "--", "chrt", "-f", "1", "sleep", "0.5"]);
    let said = text(&out.stderr);
    assert!(said.contains("chrt (thread ") || said.contains("sleep (thread "), "{said}");
}
