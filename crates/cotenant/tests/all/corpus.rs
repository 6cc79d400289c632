//! Files and promises of an earlier release: `fixtures/corpus/VERSION` has recordings under every policy, journals with
//! outstanding changes, ledger, store and profiles, and the interface. The present binary must read, replay and restore
//! all of it.
//!
//! Intended differences are in `intended.txt`, line by line; `scripts/corpus` writes a corpus with another binary.

mod commands;
mod interface;
mod journals;
mod simulated;
mod write;

use crate::world::{self, Pin, State, signal};
use cotenant_model::{Decision, Rule, policy};
use cotenant_record::Recording;
use cotenant_record::replay::replay;
use cotenant_testing::{Player, eventually};
use journals::Facts;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The release that wrote it.
const RELEASE: &str = "0.1.0";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus").join(RELEASE)
}

/// The programs that are recorded and restored; nothing when it is run as a test. After so many milliseconds it ends;
/// 0: when it is asked to.
#[test]
fn program() {
    let Ok(role) = std::env::var("COTENANT_CORPUS_ROLE") else {
        return world::skip("other tests start it as a program");
    };
    let (role, number) = role.split_once(':').unwrap();
    let number: u64 = number.parse().unwrap();
    if role == "threads" {
        for _ in 0..number {
            std::thread::spawn(|| {
                loop {
                    std::thread::park();
                }
            });
        }
        println!("@ready {}", std::process::id());
        std::io::stdin().lines().for_each(drop);
        std::process::exit(0);
    }
    let end = Instant::now() + Duration::from_millis(if number == 0 { 60_000 } else { number });
    let memory = vec![1_u8; 1 << 20];
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (memory, end) = (&memory, &end);
            scope.spawn(move || {
                while Instant::now() < *end {
                    std::hint::black_box(memory.iter().step_by(64).map(|b| u64::from(*b)).sum::<u64>());
                    match role {
                        "high" if thread == 0 => {
                            cotenant_rt::units(1);
                            cotenant_rt::latency(Duration::from_micros(150));
                            std::thread::sleep(Duration::from_micros(200)); // its pace
                        }
                        "high" => std::thread::sleep(Duration::from_millis(1)),
                        "marked" => cotenant_rt::mark(),
                        _ => {}
                    }
                }
            });
        }
    });
}

/// Compares lines of text with those of the release; only those in `intended.txt` may differ. Commands that could not
/// be tried are left out.
fn compare(table: &str, now: &BTreeSet<String>, skipped: &[&str]) {
    let read = |name: &str| fs::read_to_string(corpus().join(name)).unwrap();
    let tried = |line: &&str| !skipped.iter().any(|name| line.split(' ').nth(1) == Some(name));
    let (before, intended) = (read(table), read("intended.txt"));
    let before: BTreeSet<&str> = before.lines().filter(tried).collect();
    let now: BTreeSet<&str> = now.iter().map(String::as_str).collect();
    let stem = table.trim_end_matches(".txt");
    let differences = before.difference(&now).map(|line| format!("{stem}: - {line}"));
    let differences: BTreeSet<String> =
        differences.chain(now.difference(&before).map(|line| format!("{stem}: + {line}"))).collect();
    let of_table = |line: &&str| line.starts_with(&format!("{stem}: ")) && tried(&&line[stem.len() + 4..]);
    let intended: BTreeSet<String> = intended.lines().filter(of_table).map(str::to_owned).collect();
    let surprising: Vec<&String> = differences.difference(&intended).collect();
    assert!(surprising.is_empty(), "not in intended.txt, which is for what the changelog tells: {surprising:#?}");
    let stale: Vec<&String> = intended.difference(&differences).collect();
    assert!(stale.is_empty(), "in intended.txt, and not so: {stale:#?}");
}

#[test]
fn the_interface_is_that_of_the_release() {
    let (lines, skipped) = interface::lines();
    compare("interface.txt", &lines.into_iter().collect(), &skipped);
}

#[test]
fn commands_end_and_answer_as_those_of_the_release() {
    let (lines, skipped) = commands::lines(&corpus());
    compare("commands.txt", &lines, &skipped);
}

#[test]
fn recordings_replay_without_a_difference() {
    compare("recordings.txt", &replayed().into_iter().collect(), &[]);
}

/// One line per recording: its content, the number of rounds that its own policy now decides differently, and whether
/// `why` has an answer.
fn replayed() -> Vec<String> {
    let paths = paths("recordings");
    let run = |words: &[&str], path: &Path| {
        let out = Command::new(world::binary()).args(words).arg(path).output().unwrap();
        (out.status.code(), out.stdout, String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let mut lines = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (code, out, said) = run(&["replay", "--json"], path);
        assert_eq!(code, Some(0), "{name}: {said}");
        let json: Value = serde_json::from_slice(&out).unwrap();
        let (recorded, summary) = (&json["recorded"], &json["summary"]);
        let figure = |key: &str| summary[key].as_u64().unwrap();
        let told = |of: &str, key: &str| {
            let out = Command::new(world::binary()).args(["why", "--json"]).arg(path).arg(of).output().unwrap();
            let json: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{name}: {e}: {out:?}"));
            json[key].as_array().map_or(0, Vec::len)
        };
        lines.push(format!(
            "{name} policy={} mode={} rounds={} tasks={} orders={} applied={} differing={} tail={} moves={} standing={}",
            recorded["policy"].as_str().unwrap(),
            recorded["mode"].as_str().unwrap(),
            figure("rounds"),
            figure("tasks"),
            figure("recorded_moves"),
            figure("recorded_applied"),
            figure("differing_rounds"),
            json["tail"]["kind"].as_str().unwrap(),
            told("0s..100s", "moves"),
            told("app:1", "standing"),
        ));
    }
    let out = Command::new(world::binary()).args(["report", "-o", "-"]).args(&paths).output().unwrap();
    assert!(out.status.success() && out.stdout.len() > 10_000, "{}", String::from_utf8_lossy(&out.stderr));
    lines
}

/// What `replay` compares are orders; here state, reasons, remarks and the next wake-up, too.
#[test]
fn decisions_are_the_recorded_ones_as_a_whole() {
    for path in paths("recordings") {
        let mut recording = Recording::read(fs::File::open(&path).unwrap()).unwrap();
        let header = recording.header().clone();
        // It was another policy then, or took tasks in another order (stage 3); other tests say that such recordings
        // are read.
        if ["auto", "sam"].contains(&header.policy.as_str()) {
            continue;
        }
        let policy = cotenant_policies::standard().make(&header.policy, &header.config).unwrap();
        let rule = Rule::all(&*policy, &header.ctx());
        for round in replay(recording.by_ref(), &[&header.policy], vec![rule]) {
            if let Some(recorded) = &round.round.decision {
                // The release did not record later fields: requests for more frequent answers, the CPU time given by
                // `qos`, the range of threads it moved away, the figures of a bad moment, the owners of penalties of
                // `das`, times of reports, the pauses with measured speeds alone, the causes of misses, and the load by
                // other programs. A state without them gets the release's values.
                let unknown: [&[&str]; 13] = [
                    &["taken"],
                    &["away", "newest"],
                    &["controller", "steady", "accused_by"],
                    &["controller", "steady", "blame"],
                    &["first_penalties"],
                    &["heard"],
                    &["silent"],
                    &["by_pauses"],
                    &["alone_at"],
                    &["crowd"],
                    &["gathered", "by_pauses"],
                    &["gathered", "pieces"],
                    &["gathered", "piece"],
                ];
                let state = without(&unknown, &round.decision.state);
                let decided = Decision { watch_until: recorded.watch_until, state, ..round.decision };
                // The release took a late-reported wait for sleep, so that threads' load in `atom` differs.
                let without_load = |decision: Decision| {
                    let state = without(&[&["load"]], &decision.state);
                    without_figures(Decision { state, ..decision })
                };
                let [decided, recorded] = [decided, recorded.clone()].map(without_load);
                assert_eq!(decided, recorded, "{} at {:?}", path.display(), round.view.at);
            }
        }
    }
}

/// Takes a value out; of a list, out of each of its elements.
fn remove(from: &mut Value, path: &[&str]) {
    match (from, path) {
        (Value::Array(all), _) => all.iter_mut().for_each(|one| remove(one, path)),
        (Value::Object(holder), [key]) => drop(holder.remove(*key)),
        (Value::Object(holder), [key, rest @ ..]) => holder.get_mut(*key).into_iter().for_each(|one| remove(one, rest)),
        _ => {}
    }
}

/// A state without these of its values.
fn without(paths: &[&[&str]], state: &policy::State) -> policy::State {
    let mut json = serde_json::to_value(state).unwrap();
    for state in json.as_object_mut().into_iter().flat_map(|sections| sections.values_mut()) {
        for path in paths {
            remove(state, path);
        }
    }
    serde_json::from_value(json).unwrap()
}

/// The state has the figures of reasons, all of them; a text has as many of their digits as show why, prefixes where it
/// had exponents, and percent where it had shares. One reason has other words than in the release.
fn without_figures(mut decision: Decision) -> Decision {
    for reason in decision.proposals.iter_mut().map(|proposal| &mut proposal.reason) {
        let is_number = |word: &str| word.trim_end_matches(';').parse::<f64>().is_ok();
        let is_unit = |word: &str| ["k", "M", "G", "T", "P", "%"].contains(&word.trim_end_matches(';'));
        let what =
            reason.what.replace("nobody is to be kept from contention any more", "no goal is to be kept any more");
        let words = what.split(' ').filter(|word| !is_unit(word));
        let words = words.map(|word| if is_number(word) { "#" } else { word });
        reason.what = words.collect::<Vec<_>>().join(" ").into();
    }
    decision
}

/// The files of a folder of the corpus, in order.
fn paths(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus().join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// A process that a journal or a list of claims names.
enum Named {
    Many(Player),
    One(Player),
}

impl Named {
    fn pid(&self) -> u32 {
        match self {
            Self::Many(player) | Self::One(player) => player.pid(),
        }
    }
}

/// Starts the processes that a template names, with as many threads, and fills them in.
fn people(template: &str, folder: &Path) -> (Vec<Named>, Facts) {
    let mut facts = journals::dead_owner();
    let mut people = Vec::new();
    while template.contains(&format!("{{p{}.pid}}", people.len())) {
        let p = people.len();
        let threads = (1..100).take_while(|t| template.contains(&format!("{{p{p}t{t}.tid}}"))).count() + 1;
        let person = if threads == 1 {
            Named::One(journals::leader())
        } else {
            let mut many = write::start_program("threads:3", folder);
            many.hear("ready");
            Named::Many(many)
        };
        eventually("its threads run", || world::masks(person.pid()).len() == threads);
        journals::know(&mut facts, p, person.pid());
        people.push(person);
    }
    (people, facts)
}

fn taskset(mask: &str, tid: &str) {
    let out = Command::new("taskset").args(["-cp", mask, tid]).stdout(Stdio::null()).status();
    assert!(out.is_ok_and(|status| status.success()), "taskset -cp {mask} {tid}");
}

/// `T` if stopped; unaffected by freezing.
fn process_state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// Creates a control group with a frozen process in it, as the journal's writer left it.
fn freeze(hierarchy: &str, path: &Path, pid: u32) {
    let write = |file: &str, value: &str| {
        let path = path.join(file);
        fs::write(&path, value).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    };
    write("cgroup.procs", &pid.to_string());
    match hierarchy {
        "1" => write("freezer.state", "FROZEN"),
        "1cpu" => write("cpu.cfs_quota_us", "1000"),
        _ => write("cgroup.freeze", "1"),
    }
}

/// Fills in a journal for living processes and groups in its state, and makes the current binary undo it.
fn is_undone(name: &str, torn: &str) {
    let template = fs::read_to_string(corpus().join(format!("journals/{name}.journal"))).unwrap();
    let pin = Pin::find();
    let (state, folder) = (State::new("corpus-restore"), write::folder());
    let (people, mut facts) = people(&template, folder.path());
    let pin = match pin {
        Some(pin) => pin,
        None if template.contains("{cpu}") => return,
        None => unreachable!("no mask is named"),
    };
    let resctrl = cotenant_testing::TempDir::new("corpus-resctrl");
    for (name, value) in [
        ("own", &pin.own),
        ("cpu", &pin.cpu),
        ("other", &pin.other),
        ("resctrl", &resctrl.path().display().to_string()),
    ] {
        facts.insert(name.to_owned(), value.clone());
    }
    let text = journals::fill(&template, &facts);
    let records: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(' ').collect()).collect();
    let of = |kind: &str| records.iter().filter(|words| words[0] == kind).collect::<Vec<_>>();
    let path = |word: &str| PathBuf::from(word.replace("%20", " ").replace("%25", "%"));
    let ended: BTreeSet<&str> = of("ungroup").iter().map(|words| words[1]).collect();
    let mut groups = Vec::new();
    for words in of("group").into_iter().filter(|words| !ended.contains(words[2])) {
        let group = path(words[2]);
        // Jobs have groups of their own below that of their Cotenant.
        let nested = ["1", "2"].contains(&words[1]) && words[3] != "-" && !words[2].contains("-cpu-");
        let folders = if nested { vec![group.clone(), group.join("job-1")] } else { vec![group.clone()] };
        let Some(made) = journals::Groups::make(&folders) else { return };
        let inside = journals::leader();
        if words[1] != "resctrl" {
            freeze(words[1], folders.last().unwrap(), inside.pid());
        }
        groups.push((words, group, inside, made));
    }
    let mut masks: BTreeMap<&str, &str> = BTreeMap::new();
    for words in of("set") {
        masks.insert(words[1], words[7]);
    }
    // Another agent that took over a task has given it our mask: it is still that agent's.
    for words in of("left") {
        masks.insert(words[1], &pin.cpu);
    }
    for (tid, mask) in &masks {
        taskset(mask, tid);
    }
    for words in of("stop").into_iter().chain(of("cont")) {
        signal("STOP", words[1].parse().unwrap());
    }
    journals::lay(&state, &template, &facts, torn);

    let out = state.cotenant(&["restore", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{name}: {e}: {out:?}"));
    assert_eq!(
        (out.status.code(), report["failed"].as_u64(), state.journals()),
        (Some(0), Some(0), 0),
        "{name}: {said}"
    );
    assert_eq!(report["journals"], 1, "{name}: {said}");
    let notes = report["notes"].as_array().unwrap().len();
    assert_eq!(notes, usize::from(!torn.is_empty()), "every record is known: {name}: {said}");
    let left: BTreeSet<&str> = of("left").iter().map(|words| words[1]).collect();
    for tid in masks.keys() {
        let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        let expected = if left.contains(tid) { &pin.cpu } else { &pin.own };
        assert_eq!(mask, expected, "{name}: task {tid}: {said}");
    }
    let released: BTreeSet<&str> = of("cont").iter().map(|words| words[1]).collect();
    for person in &people {
        let stays = released.contains(&*person.pid().to_string());
        eventually(&format!("{name}: {said}"), || (process_state(person.pid()) == 'T') == stays);
    }
    for (words, group, mut inside, _made) in groups {
        assert_eq!(group.exists(), words[3] == "-", "{name}: {}", group.display());
        if words[3] == "-" {
            assert_eq!(fs::read_to_string(group.join("freezer.state")).unwrap().trim(), "THAWED", "{name}");
        } else if words[1] != "resctrl" {
            let members = fs::read_to_string(Path::new(&path(words[3])).join("cgroup.procs")).unwrap();
            assert!(members.lines().any(|pid| pid == inside.pid().to_string()), "{name}: it went home");
        }
        // It runs: it hears the end of its input.
        assert!(inside.end().success(), "{name}");
    }
}

#[test]
fn masks_are_given_back() {
    is_undone("masks", "");
    is_undone("masks", "set 17 4 1");
}

#[test]
fn whoever_stands_still_runs_on() {
    for name in ["pause-signals", "pause-v1", "pause-v2", "pause-foreign"] {
        is_undone(name, "");
    }
}

#[test]
fn limits_are_lifted() {
    is_undone("quota", "");
    is_undone("hand", "");
}

#[test]
fn claimed_programs_are_left_alone() {
    let Some(pin) = Pin::find() else { return };
    let template = fs::read_to_string(corpus().join("journals/claims")).unwrap();
    let (state, folder) = (State::new("corpus-claims"), write::folder());
    let (people, mut facts) = people(&template, folder.path());
    let (owner, free) = (world::sleeper(), world::sleeper());
    facts.insert("owner.pid".to_owned(), owner.pid().to_string());
    facts.insert("owner.start".to_owned(), journals::start_and_session(owner.pid(), owner.pid()).0.to_string());
    journals::lay_claims(&state, &template, &facts);
    let pids: Vec<String> = people.iter().map(|p| p.pid().to_string()).chain([free.pid().to_string()]).collect();
    let manager = state.attach(&pin, &pids.join(","));
    world::settle("who is free is placed", free.pid(), &pin.cpu);
    let (said, code) = manager.terminate();
    assert_eq!(code, Some(0), "{said}");
    for person in people {
        assert!(world::all_have(person.pid(), &pin.own));
        let told = format!("process {} is left alone: another cotenant (process {})", person.pid(), owner.pid());
        assert!(said.contains(&told), "{said}");
    }
}

#[test]
fn a_queue_is_gone_on_with() {
    let template = fs::read_to_string(corpus().join("journals/state.jsonl")).unwrap();
    let (state, folder) = (State::new("corpus-resume"), write::folder());
    let mut facts = Facts::new();
    let running = journals::leader();
    journals::know(&mut facts, 0, running.pid());
    let logs = folder.path().join("jobs.toml.logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("state.jsonl"), journals::fill(&template, &facts)).unwrap();
    let mut command = state.cotenant(&["schedule", "--policy", "fifo", "--json", "--resume", "jobs.toml"]);
    let mut batch = command.current_dir(folder.path()).stderr(Stdio::piped()).spawn().unwrap();
    // It reports that it waits for running processes.
    let mut said = String::new();
    BufReader::new(batch.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("long"), "{said}");
    drop(running);
    let out = batch.wait_with_output().unwrap();
    let summary: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let results: Vec<&str> =
        summary["jobs"].as_array().unwrap().iter().map(|job| job["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["done", "failed", "unknown", "done"], "{summary}");
    assert!(!logs.join("first.out").exists(), "what is done is not started again");
}
