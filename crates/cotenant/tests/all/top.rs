//! `cotenant top` without a daemon: its view of this machine, as root and as any user, and of recordings.
//!
//! Holds daemon/top.

use crate::world::{binary, is_root, skip};
use cotenant_record::Recording;
use cotenant_testing::{TempDir, eventually, spawn_fresh};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

/// A program that keeps a CPU busy, with a unique name.
struct Busy {
    name: String,
    folder: TempDir,
    child: Child,
}

impl Busy {
    fn start(test: &str, uid: Option<u32>) -> Self {
        let (name, folder) = (format!("busy-{test}"), TempDir::new(test));
        let program = folder.path().join(&name);
        fs::copy(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
        let mut command = Command::new(&program);
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Self { name, child: spawn_fresh(&mut command), folder }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn picture(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

fn service<'a>(picture: &'a Value, name: &str) -> Option<&'a Value> {
    picture["services"].as_array().unwrap().iter().find(|service| service["name"] == name)
}

#[test]
fn our_own_look_sees_what_runs_and_where() {
    let busy = Busy::start("top-own", None);
    let look = || picture(&Command::new(binary()).args(["top", "--no-daemon", "--json"]).output().unwrap());
    let mut picture = look();
    // On a busy machine it may not have run during a look.
    eventually("a busy program has run in a look", || {
        let runs =
            service(&picture, &busy.name).is_some_and(|found| found["cpus"].as_f64().is_some_and(|cpus| cpus > 0.0));
        if !runs {
            picture = look();
        }
        runs
    });
    let found = service(&picture, &busy.name).unwrap();
    assert_eq!(found["busiest"][0]["tid"], busy.child.id(), "{found}");
    let on = &found["places"][0]["cpu"];
    let cpus =
        picture["packages"].as_array().unwrap().iter().flat_map(|package| package["domains"].as_array().unwrap());
    let cpus = cpus.flat_map(|domain| domain["cores"].as_array().unwrap());
    let there = cpus.flat_map(|core| core["cpus"].as_array().unwrap()).find(|cpu| cpu["cpu"] == *on).unwrap();
    assert!(there["services"].as_array().unwrap().iter().any(|share| share["service"] == *busy.name), "{there}");
    assert!(busy.folder.path().exists());
}

#[test]
fn anybody_sees_their_own_programs_without_root() {
    if !is_root() {
        return skip("becoming another user takes root");
    }
    let _roots = Busy::start("top-root", None);
    let own = Busy::start("top-user", Some(65_534));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", &binary(), "top", "--no-daemon", "--json"]);
    let out = command.env("HOME", own.folder.path()).output().unwrap();
    if matches!(out.status.code(), Some(126 | 127)) {
        return skip("another user cannot execute the binary here");
    }
    let picture = picture(&out);
    assert!(picture["services"].as_array().unwrap().iter().all(|service| service["uid"] == 65_534), "{picture}");
    assert_eq!(service(&picture, &own.name).unwrap()["processes"], 1, "{picture}");
}

/// Where others leave it no CPU, a recorder may see nothing of a second, or its ends alone.
#[test]
fn a_recording_is_shown_at_any_time() {
    let folder = TempDir::new("top-recording");
    let run = |words: &[&str]| Command::new(binary()).args(words).current_dir(folder.path()).output().unwrap();
    let mut seconds = 1;
    let mut rounds = Vec::new();
    eventually("a recording has a middle", || {
        // Busy to its end: on a busy machine a sleeper may only be seen running at its start.
        let busy = format!("timeout {seconds} sh -c 'while :; do :; done'; true");
        let recorded = run(&["record", "-q", "-o", "a.rec", "--interval", "20ms", "--", "sh", "-c", &busy]);
        assert!(recorded.status.success(), "{recorded:?}");
        let bytes = fs::read(folder.path().join("a.rec")).unwrap();
        let recording = Recording::read(&*bytes).unwrap();
        rounds = recording.map(|round| (round.sample.at.as_secs_f64(), round.sample.apps.len())).collect();
        seconds = (seconds * 2).min(8); // more rounds would share moments
        rounds.len() >= 3
    });
    let at = |s: f64| picture(&run(&["top", "a.rec", "--at", &format!("{:.3}s", (s * 1e3).ceil() / 1e3), "--json"]));
    let of = rounds.len();
    for (i, (time, _)) in [0, of / 2, of - 1].map(|i| (i, rounds[i])) {
        let shown = at(time);
        let number = |n: usize| serde_json::json!({"number": n + 1, "of": of});
        assert_eq!((&shown["moment"], shown["at_s"].as_f64()), (&number(i), Some(time)), "{rounds:?}");
        // A moment lasts until the next one.
        let next = rounds.get(i + 1).map_or(time, |next| f64::midpoint(time, next.0));
        assert_eq!(at(next)["moment"], number(i), "{rounds:?}");
    }
    assert_eq!(at(0.0)["moment"]["number"], 1);
    let middle = at(rounds[of / 2].0);
    assert_eq!(middle["services"][0]["name"], "sh");
    let too_late = run(&["top", "a.rec", "--at", "99s", "--json"]);
    let why = String::from_utf8(too_late.stderr).unwrap();
    let ends = (rounds[of - 1].0 * 1e3).ceil() / 1e3;
    assert_eq!(why, format!("cotenant: --at 99 s: the recording ends at {ends} s\n"));
    let default = picture(&run(&["top", "a.rec", "--json"]));
    let ran = rounds.iter().rposition(|(_, apps)| *apps > 0).unwrap();
    assert_eq!((&default["moment"]["number"], &default["services"][0]["name"]), (&(ran + 1).into(), &"sh".into()));
    let once = run(&["top", "a.rec", "--once"]);
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(text.starts_with("cotenant top · recording a.rec, observed"), "{text}");
    assert_eq!(text.lines().count(), 24);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// Recordings of every policy that an earlier release wrote, with naps, limits, counters and pages.
/// Holds record/old.
#[test]
fn recordings_of_before_are_shown() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/corpus/0.1.0/recordings");
    let mut shown = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let out = Command::new(binary()).args(["top", "--json"]).arg(&path).output().unwrap();
        assert!(out.status.success(), "{}: {out:?}", path.display());
        let picture = picture(&out);
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(!picture["packages"].as_array().unwrap().is_empty(), "{name}");
        if name.starts_with("qos-") {
            let classes: Vec<&Value> =
                picture["services"].as_array().unwrap().iter().map(|service| &service["class"]).collect();
            assert!(classes.iter().any(|class| **class != "normal"), "{name}: {picture}");
        }
        shown += 1;
    }
    assert!(shown > 20, "{shown}");
}

#[test]
fn what_cannot_be_shown_is_said_in_one_line() {
    for (words, code, said) in [
        (&["top"][..], 2, "standard output is not a terminal that can be drawn on; --once prints one screen"),
        (&["top", "/proc/self/stat", "--once"], 2, "this is not a recording"),
        (&["top", "--once", "--socket", "/nonexistent/s"], 2, "no daemon answers at /nonexistent/s"),
        (&["top", "--once", "--json"], 2, "cannot be used with"),
        (&["top", "--at", "1s"], 2, "required"),
    ] {
        let out = Command::new(binary()).args(words).stdin(Stdio::null()).output().unwrap();
        let why = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), why.lines().count()), (Some(code), 1), "{words:?}: {why}");
        assert!(why.contains(said), "{words:?}: {why}");
    }
}
