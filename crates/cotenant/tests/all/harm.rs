//! Do no harm: after any event in Cotenant, its guardian or its target, every thread has its own mask.
//!
//! The whole binary, with real processes. `cotenant-linux` enumerates the crash points of each step.

use crate::world::{
    self, Pin, State, all_but_newborn_have, all_have, comm, crowd, crowd_words, is_root, masks, settle, signal, skip,
    sleeper,
};
use cotenant_model::CpuSet;
use cotenant_model::topology::notation;
use cotenant_record::Recording;
use cotenant_testing::{Player, TempDir, eventually, kills, pass};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program that the other tests manage; nothing when it is run as a test.
#[test]
fn program() {
    world::program();
}

/// `run` with everything pinned.
fn run_words<'a>(pin: &'a Pin, extra: &[&'a str], program: &'a [String]) -> Vec<&'a str> {
    let program = program.iter().map(String::as_str);
    pin.args("run", &pin.cpu).into_iter().chain(extra.iter().copied()).chain(["--"]).chain(program).collect()
}

fn pid_of(said: &str) -> u32 {
    said.parse().unwrap()
}

#[test]
fn no_command_places_or_sees_more_than_the_users_cpus() {
    let Some(pin) = Pin::find() else { return };
    let (state, folder) = (State::new("cpus"), TempDir::new("cpus"));
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(file("queue"), "sleep 0.2\nsleep 0.2\n").unwrap();
    let mut target = Command::new("sleep").arg("1").spawn().unwrap();
    let (pid, logs, queue) = (target.id().to_string(), file("logs"), file("queue"));
    let reaper = std::thread::spawn(move || target.wait());
    let sleep = ["--", "sleep", "0.4"];
    let policy = pin.args("", &pin.cpu);
    let managed = |subcommand, rest| (subcommand, [&policy[1..], rest].concat());
    let schedule = ["--policy", "mas", "--quantum", "10ms", "--cpus", &pin.cpu, "--logs", &logs, &queue];
    let cases = [
        managed("attach", &["-p", &pid]),
        managed("run", &sleep),
        managed("record", &["--mode", "enforce", "--", "sleep", "0.4"]),
        ("qos", vec!["--cpus", &pin.cpu, "--high", "exec sleep 0.4", "--low", "exec sleep 0.4"]),
        ("schedule", schedule.to_vec()),
    ];
    let mine = CpuSet::parse_list(&pin.cpu).unwrap();
    for (subcommand, words) in cases {
        let recording = file(subcommand);
        let output = state.cotenant(&[&[subcommand, "--record", &recording], &words[..]].concat()).output().unwrap();
        assert!(output.status.success(), "{subcommand}: {output:?}");
        let bytes = fs::read(&recording).unwrap();
        let rounds = Recording::read(&bytes[..]).unwrap();
        assert_eq!(rounds.header().topology.usable(), &mine, "{subcommand}: what the policy sees");
        let masks: Vec<CpuSet> =
            rounds.flat_map(|round| round.orders).map(|order| order.affinity).filter(|mask| !mask.is_empty()).collect();
        assert!(masks.iter().all(|mask| mask.is_subset(&mine)), "{subcommand}: {masks:?}");
        assert_eq!(masks.is_empty(), ["qos", "schedule"].contains(&subcommand), "{subcommand}");
    }
    // `compare` does not record, but a map of CPUs that its policy lacks is an error.
    let topology = cotenant_linux::sense::topology::live().unwrap().topology;
    let map = notation::format_map(&topology, |cpu| (!mine.contains(cpu)).then_some('X'));
    let words = ["compare", "--policy", "static", "--map", &map, "--cpus", &pin.cpu];
    let output = state.cotenant(&[&words[..], &sleep].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the map marks no CPU"), "{said}");
    reaper.join().unwrap().unwrap();
}

#[test]
fn threads_that_come_and_go_are_placed_and_a_daemon_is_given_back() {
    let Some(pin) = Pin::find() else { return };
    for threads in [1, 64, 1_000] {
        let state = State::new("come-and-go");
        let words = crowd_words(threads);
        let mut run = Player::start(state.cotenant(&run_words(&pin, &["-q"], &words)));
        let pid = pid_of(&run.hear("ready"));
        settle("all threads are placed", pid, &pin.cpu);
        assert!(masks(pid).len() >= threads * 9 / 10, "{}", masks(pid).len());
        run.say("daemon");
        let daemon = pid_of(&run.hear("daemon"));
        eventually("the daemon inherits the mask", || comm(daemon) == "sleep" && all_have(daemon, &pin.cpu));
        assert!(run.end().success());
        assert!(all_have(daemon, &pin.own), "given back before Cotenant ended: {:?}", masks(daemon));
        signal("KILL", daemon);
        assert_eq!(state.journals(), 0);
    }
}

#[test]
fn attached_threads_get_their_masks_back_however_cotenant_ends() {
    let Some(pin) = Pin::find() else { return };
    // For a crowd, one end for each process that undoes: Cotenant, its guardian, `restore`.
    let all = ["TERM", "INT", "HUP", "KILL", "STOP, KILL", "guardian", "both"];
    for (threads, ends) in [(1, &all[..]), (64, &all[..]), (1_000, &["TERM", "KILL", "both"][..])] {
        let mut target = crowd(threads);
        let pid = pid_of(&target.hear("ready"));
        for &how in ends {
            let state = State::new("ends");
            let manager = state.attach(&pin, &pid.to_string());
            settle("all threads are placed", pid, &pin.cpu);
            let guardian = manager.guardian().expect("it is there before the first change");
            match how {
                "guardian" => {
                    signal("KILL", guardian);
                    eventually("another guardian", || manager.guardian().is_some_and(|new| new != guardian));
                    let (said, code) = manager.terminate();
                    assert_eq!(code, Some(0));
                    assert!(said.contains("the guardian was killed; another has taken its place"), "{said}");
                    all_but_newborn_have("given back", pid, &pin.own);
                }
                "both" => {
                    // Stopped first, so that neither compensates for the other.
                    for name in ["STOP", "KILL"] {
                        signal(name, manager.pid());
                        signal(name, guardian);
                    }
                    manager.end();
                    all_but_newborn_have("nobody was left to restore", pid, &pin.cpu);
                    eventually("the guardian has ended", || comm(guardian).is_empty());
                    let restore = state.cotenant(&["restore"]).output().unwrap();
                    assert!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stdout));
                    all_but_newborn_have("restored", pid, &pin.own);
                }
                how => {
                    how.split(", ").for_each(|name| signal(name, manager.pid()));
                    let (said, code) = manager.end();
                    assert_eq!(code, (!how.contains("KILL")).then_some(0), "{how}: {said}");
                }
            }
            settle(&format!("{threads} threads after {how}"), pid, &pin.own);
            eventually("the journal goes", || state.journals() == 0);
        }
        assert!(target.end().success());
    }
}

/// Holds undo/masks.
#[test]
fn random_kills_leave_nothing() {
    let Some(pin) = Pin::find() else { return };
    let mut target = crowd(32);
    let pid = pid_of(&target.hear("ready"));
    for (round, moment) in kills(20, Duration::from_millis(120)).enumerate() {
        let state = State::new("random");
        let manager = state.attach(&pin, &pid.to_string());
        pass(moment);
        signal("KILL", manager.pid());
        manager.end();
        settle(&format!("kill {round}, {moment:?} after the start"), pid, &pin.own);
        assert!(state.cotenant(&["restore"]).output().unwrap().status.success());
        assert_eq!(state.journals(), 0);
    }
}

/// Lines besides the greeting.
fn complaints(said: &str) -> usize {
    said.lines().filter(|line| !line.starts_with("cotenant: managing with ")).count()
}

#[test]
fn a_target_that_dies_is_no_failure_of_ours() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("dying");
    for moment in kills(20, Duration::from_millis(80)) {
        let mut target = crowd(8);
        let pid = pid_of(&target.hear("ready"));
        let manager = state.attach(&pin, &pid.to_string());
        pass(moment);
        target.kill();
        let (said, code) = manager.end();
        assert!(matches!(code, Some(0..=2)) && !said.contains("panicked"), "{code:?}: {said}");
        assert!(code == Some(0) || complaints(&said) == 1, "{said}");
    }
    assert_eq!(state.journals(), 0);
}

#[test]
fn a_target_that_executes_another_program_gets_its_mask_back() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("exec");
    let mut target = crowd(8);
    let pid = pid_of(&target.hear("ready"));
    let manager = state.attach(&pin, &pid.to_string());
    settle("all threads are placed", pid, &pin.cpu);
    target.say("exec");
    eventually("it executes", || comm(pid) == "cat");
    assert!(all_have(pid, &pin.cpu), "{:?}", masks(pid));
    manager.terminate();
    assert!(all_have(pid, &pin.own), "{:?}", masks(pid));
}

#[test]
fn a_mask_of_another_program_stays_and_is_reported() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("other");
    let target = sleeper();
    let manager = state.attach(&pin, &target.pid().to_string());
    settle("it is placed", target.pid(), &pin.cpu);
    let set = Command::new("taskset").args(["-cp", &pin.other, &target.pid().to_string()]).output();
    let Ok(true) = set.map(|out| out.status.success()) else { return skip("no taskset") };
    let (said, _) = manager.terminate();
    assert!(all_have(target.pid(), &pin.other), "{:?}", masks(target.pid()));
    assert!(said.contains("another agent"), "{said}");
}

#[test]
fn the_second_of_two_leaves_the_target_alone_and_says_so() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("two");
    let (shared, free) = (sleeper(), sleeper());
    let first = state.attach(&pin, &shared.pid().to_string());
    settle("the first places", shared.pid(), &pin.cpu);
    let second = state.attach(&pin, &format!("{},{}", shared.pid(), free.pid()));
    settle("the second places what is free", free.pid(), &pin.cpu);
    let first_pid = first.pid();
    let (said, _) = second.terminate();
    assert!(said.contains(&format!("another cotenant (process {first_pid})")), "{said}");
    assert!(all_have(free.pid(), &pin.own) && all_have(shared.pid(), &pin.cpu), "the first's are as they were");
    first.terminate();
    assert!(all_have(shared.pid(), &pin.own));
}

#[test]
fn without_permission_one_line_says_so() {
    if !is_root() {
        return skip("only root can become somebody else");
    }
    let target = sleeper();
    let own = masks(target.pid());
    let nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_cotenant")]);
        command.args(args).env("HOME", "/proc/nonexistent").env("XDG_CONFIG_HOME", "/proc/nonexistent").output()
    };
    let Ok(true) = nobody(&["--version"]).map(|out| out.status.success()) else {
        return skip("no setpriv, or the binary lies where nobody may look");
    };
    let pid = target.pid().to_string();
    for (args, code) in [
        (&["attach", "-p", &pid, "--interval", "10ms"][..], 2),
        (&["record", "-o", "/proc/nonexistent/x", "-p", &pid], 2),
        (&["qos", "--high", "sleep 1", "--metric", "progress", "--low-pid", &pid], 2),
    ] {
        let out = nobody(args).unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), complaints(&said)), (Some(code), 1), "{args:?}: {said}");
        assert!(said.contains("belongs to user root; run as root: with --all-users"), "{args:?}: {said}");
    }
    assert_eq!(masks(target.pid()), own);
}

/// A cpuset of version 1, with one CPU; removed on drop.
struct Cpuset(PathBuf);

impl Cpuset {
    fn new(cpu: &str) -> Option<Self> {
        let root = PathBuf::from("/sys/fs/cgroup/cpuset");
        let dir = root.join(format!("cotenant-harm-{}", std::process::id()));
        fs::read(root.join("cpuset.mems")).ok()?;
        fs::create_dir(&dir).ok()?;
        let new = Self(dir);
        let mems = fs::read_to_string(root.join("cpuset.mems")).ok()?;
        fs::write(new.0.join("cpuset.mems"), mems.trim()).ok()?;
        fs::write(new.0.join("cpuset.cpus"), cpu).ok()?;
        Some(new)
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        eventually("the cpuset is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn what_a_cpuset_forbids_is_not_done() {
    let Some(pin) = Pin::find() else { return };
    let Some(cpuset) = Cpuset::new(&pin.other) else { return skip("no cpuset of version 1 that may be changed") };
    let state = State::new("cpuset");
    let (caught, free) = (sleeper(), sleeper());
    fs::write(cpuset.0.join("cgroup.procs"), caught.pid().to_string()).unwrap();
    settle("the cpuset catches it", caught.pid(), &pin.other);
    let manager = state.attach(&pin, &format!("{},{}", caught.pid(), free.pid()));
    settle("the other one is placed", free.pid(), &pin.cpu);
    assert!(all_have(caught.pid(), &pin.other));
    let (said, code) = manager.terminate();
    assert!(all_have(caught.pid(), &pin.other) && all_have(free.pid(), &pin.own), "{said}");
    assert_eq!(code, Some(0), "{said}");

    // The same folder names the target.
    fs::write(cpuset.0.join("cpuset.cpus"), format!("{},{}", pin.cpu, pin.other)).unwrap();
    let cgroup = [pin.args("attach", &pin.cpu), vec!["-q", "--cgroup", cpuset.0.to_str().unwrap()]].concat();
    let mut manager = Player::start(state.cotenant(&cgroup));
    settle("its member is placed", caught.pid(), &pin.cpu);
    signal("TERM", manager.pid());
    assert!(manager.end().success());
    assert!(!all_have(caught.pid(), &pin.cpu), "{:?}", masks(caught.pid()));
    drop((caught, manager));
}

#[test]
fn a_run_goes_on_when_its_recording_reaches_the_limit_of_file_sizes() {
    let Some(pin) = Pin::find() else { return };
    let (state, folder) = (State::new("xfsz"), TempDir::new("xfsz-file"));
    let file = folder.path().join("a.rec");
    let (words, file_name) = (crowd_words(64), file.to_str().unwrap());
    let words = run_words(&pin, &["--record", file_name], &words);
    let mut command = state.cotenant_after("ulimit -f 64", &words); // of 512 bytes, or of 1,024 in some shells
    let folder_of_stderr = folder.path().join("stderr");
    command.stderr(fs::File::create(&folder_of_stderr).unwrap());
    let mut run = Player::start(command);
    let pid = pid_of(&run.hear("ready"));
    let full = || fs::metadata(&file).is_ok_and(|meta| [64 * 512, 64 * 1024].contains(&meta.len()));
    eventually("the recording is as large as it may be", full);
    settle("the run goes on", pid, &pin.cpu);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let xfsz = 1 << (25 - 1);
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & xfsz, 0, "the program has the usual SIGXFSZ");
    assert!(run.end().success());
    let said = fs::read_to_string(folder_of_stderr).unwrap();
    assert!(said.contains("File too large") && said.contains("the run goes on"), "{said}");
}

#[test]
fn nobody_reading_what_cotenant_says_changes_nothing() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("deaf");
    for first in ["", "exec 2>&-", "exec 2>/dev/full"] {
        let words = crowd_words(4);
        let words = run_words(&pin, &["-v"], &words);
        let mut command = state.cotenant_after(first, &words);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stderr(writer);
        let mut run = Player::start(command);
        let pid = pid_of(&run.hear("ready"));
        settle("it manages", pid, &pin.cpu);
        assert!(run.end().success(), "{first}");
    }
    for args in [&["restore"][..], &["restore", "--json"]] {
        let out = state.cotenant_after("exec >&-", args).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn without_a_journal_nothing_is_changed_and_the_program_runs() {
    let Some(pin) = Pin::find() else { return };
    for state in [State::full("full"), State::read_only("read-only")].into_iter().flatten() {
        let words =
            ["sh", "-c", "echo ready; read line; grep Cpus_allowed_list /proc/$$/status; exit 7"].map(str::to_owned);
        let words = run_words(&pin, &[], &words);
        let mut run = state.cotenant(&words).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, mut told, mut status) =
            (run.stdin.take(), BufReader::new(run.stdout.take().unwrap()), String::new());
        told.read_line(&mut status).unwrap();
        assert_eq!(status, "ready\n");
        // Now it has enough time to be placed: as long as placing another one takes.
        let witness = State::new("witness");
        let other = sleeper();
        let manager = witness.attach(&pin, &other.pid().to_string());
        settle("another one is placed meanwhile", other.pid(), &pin.cpu);
        manager.terminate();
        drop(stdin);
        status.clear();
        told.read_to_string(&mut status).unwrap();
        let out = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(7), "{said}");
        assert_eq!(status.split_whitespace().nth(1), Some(&*pin.own), "{said}");
        assert!(said.contains("nothing is changed: "), "{said}");
    }
}

#[test]
fn a_program_gets_the_limit_of_open_files_that_the_user_has() {
    let (state, folder) = (State::new("nofile"), TempDir::new("nofile-file"));
    let file = folder.path().join("a.rec");
    // Recording first checks the countable events, which opens many files.
    let words = ["run", "-q", "--record", file.to_str().unwrap(), "--", "sh", "-c", "ulimit -Sn"];
    let out = state.cotenant_after("ulimit -Sn 200", &words).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "200\n", "{}", String::from_utf8_lossy(&out.stderr));
    let words = ["compare", "--runs", "2", "--show-output", "--", "sh", "-c", "ulimit -Sn"];
    let out = state.cotenant_after("ulimit -Sn 200", &words).output().unwrap();
    let limits: Vec<_> = out.stdout.split(|b| *b == b'\n').take(4).map(String::from_utf8_lossy).collect();
    assert_eq!(limits, ["200"; 4]);
}

#[test]
fn a_killed_command_is_told_from_a_killed_cotenant() {
    let state = State::new("killed");
    let mut run = Player::start(state.cotenant(&["run", "-q", "--", "cat"]));
    let child = || fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.pid())).unwrap_or_default();
    let cat = || child().split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| comm(*pid) == "cat");
    eventually("the command runs", || cat().is_some());
    signal("KILL", cat().unwrap());
    let status = run.end();
    assert_eq!((status.code(), status.signal()), (Some(128 + 9), None));
}
