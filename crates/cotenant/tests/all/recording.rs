//! Recordings in files, and the two subcommands that read them.

use clap::Parser;
use cotenant::cmd::{replay, why};
use cotenant::run::recorder::{self, Recorder};
use cotenant_model::TaskId;
use cotenant_model::host::{Mode, drive};
use cotenant_record::testing::{Gather, Role, Scripted, header};
use cotenant_record::{Header, Recording, Tail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn script() -> Vec<Role> {
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    vec![sharer(0), sharer(10), sharer(11), Role::new(1, 12)]
}

/// Records 30 rounds under `gather` with task 2 unmovable; returns the remarks for the user.
fn record(path: &Path, header: &Header, limit: u64) -> Vec<String> {
    let mut recorder = Recorder::create(path, header, limit).unwrap();
    let mut host = Scripted::new(&script(), 30);
    host.denied.insert(TaskId(2));
    let mut told = Vec::new();
    drive(&mut host, &Gather, &header.ctx(), header.mode, |round| told.extend(recorder.round(round))).unwrap();
    told.extend(recorder.finish());
    told
}

fn read(path: &Path) -> (usize, Tail) {
    let bytes = fs::read(path).unwrap();
    let mut recording = Recording::read(&bytes[..]).unwrap();
    let rounds = recording.by_ref().count();
    (rounds, recording.tail().unwrap().clone())
}

#[test]
fn a_recording_is_made_for_its_owner_and_an_older_one_is_kept() {
    let folder = Folder::new("old");
    let path = folder.file("a.rec");
    let header = header("gather", Mode::Enforce);
    assert!(record(&path, &header, 1 << 30).is_empty());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let first = fs::read(&path).unwrap();
    assert!(record(&path, &header, 1 << 30).is_empty());
    assert_eq!(fs::read(folder.file("a.rec.old")).unwrap(), first);
    assert_eq!(read(&path), (30, Tail::Complete));
}

/// Promise record/kept: A command that cannot be started leaves the recordings of before as they were.
/// Typed twice, a command that is not found would leave two recordings of nothing.
#[test]
fn where_nothing_begins_the_recording_of_before_stays() {
    let folder = Folder::new("nothing");
    let path = folder.file("a.rec");
    let run = || Recorder::create(&path, &header("gather", Mode::Enforce), 1 << 30).map(drop).unwrap();
    run();
    assert!(!path.exists());
    record(&path, &header("gather", Mode::Enforce), 1 << 30);
    let first = fs::read(&path).unwrap();
    run();
    assert_eq!(fs::read(&path).unwrap(), first);
    assert!(!folder.file("a.rec.old").exists());
}

#[test]
fn what_is_no_recording_is_left_alone() {
    let folder = Folder::new("occupied");
    let header = header("gather", Mode::Enforce);
    let error = |path: &Path| Recorder::create(path, &header, 1 << 30).unwrap_err().to_string();
    let precious = folder.file("thesis.tex");
    fs::write(&precious, "do not lose me").unwrap();
    assert!(error(&precious).contains("it exists and is not a recording; remove it or name another file"));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "do not lose me");
    assert!(error(&folder.0).contains("it is a folder"));
    assert!(error(&folder.file("missing/a.rec")).contains("name a file in a folder that you may write to"));
    assert!(error(&precious.join("a.rec")).contains("cannot record to"));
    assert!(Recorder::create(&folder.file("b"), &header, 10).unwrap_err().to_string().contains("raise --record-limit"));
    // `mktemp` leaves such a file.
    let empty = folder.file("empty");
    fs::write(&empty, "").unwrap();
    assert!(record(&empty, &header, 1 << 30).is_empty());
    assert_eq!(read(&empty).0, 30);
}

#[test]
fn a_full_disk_is_told_before_the_start_where_it_shows() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        eprintln!("skipped: there is no /dev/full here");
        return;
    }
    let error = Recorder::create(full, &header("gather", Mode::Enforce), 1 << 30).unwrap_err().to_string();
    assert!(error.contains("/dev/full") && error.contains("free space or record elsewhere"), "{error}");
}

#[test]
fn the_limit_is_told_once() {
    let folder = Folder::new("limit");
    let path = folder.file("a.rec");
    let header = header("gather", Mode::Enforce);
    let start = {
        let _recorder = Recorder::create(&path, &header, 1 << 30).unwrap();
        fs::metadata(&path).unwrap().len()
    };
    let told = record(&path, &header, start + 1_500);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("reached its limit") && told[0].contains("the run goes on"), "{told:?}");
    let (rounds, tail) = read(&path);
    assert!((1..30).contains(&rounds), "{rounds} rounds");
    assert_eq!(tail, Tail::Limit);
}

/// Dropped without its end, as when a recorder dies: at most the last second of rounds is missing.
#[test]
fn a_recorder_that_dies_leaves_all_but_the_last_second() {
    let folder = Folder::new("killed");
    let path = folder.file("a.rec");
    let header = header("gather", Mode::Enforce);
    let mut recorder = Recorder::create(&path, &header, 1 << 30).unwrap();
    let mut rounds: Vec<(usize, f64)> = Vec::new();
    drive(&mut Scripted::new(&script(), 57), &Gather, &header.ctx(), header.mode, |round| {
        assert_eq!(recorder.round(round), None);
        rounds.push((read(&path).0, round.sample.at.as_secs_f64()));
    })
    .unwrap();
    drop(recorder);
    for (on_disk, now) in rounds {
        let last = on_disk as f64 * 0.1;
        assert!(now - last <= 1.0 + 1e-9, "at {now} s the file ends at {last} s");
    }
    let (_, tail) = read(&path);
    assert!(tail.to_string().contains("no end mark (the recorder was killed)"), "{tail}");
}

#[derive(Parser)]
struct Cli<T: clap::Args> {
    #[command(flatten)]
    args: T,
}

fn args<T: clap::Args>(path: &Path, rest: &[&str]) -> T {
    let words = ["cotenant", path.to_str().unwrap()].into_iter().chain(rest.iter().copied());
    Cli::<T>::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args
}

fn replayed(path: &Path, rest: &[&str]) -> Result<String, String> {
    let mut out = Vec::new();
    replay::write(&args(path, rest), &mut out).map_err(|e| format!("{e:#}"))?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn replay_shows_what_another_policy_would_have_done() {
    let folder = Folder::new("replay");
    let path = folder.file("a.rec");
    let header = header("gather", Mode::Enforce);
    record(&path, &header, 1 << 30);
    let text = replayed(&path, &["--policy", "none", "--to", "0.3s"]).unwrap();
    let expected = format!(
        "{}: recorded by cotenant 0.1.0 under gather (enforcing) on 40 CPUs in 2 packages, replayed under none
     0.100 s - task 1 (worker1, tid 1001): CPU 10 → 1, may use 0-9,20-29; stage 1: inter 0.0005000/cycle > 0.0002500/cycle; colocate with program0 on package 0
     0.100 s - task 2 (worker2, tid 1002): CPU 11 → 2, may use 0-9,20-29; stage 1: inter 0.0005000/cycle > 0.0002500/cycle; colocate with program0 on package 0 (was not permitted)
     0.300 s - task 2 (worker2, tid 1002): CPU 11 → 2, may use 0-9,20-29; stage 1: inter 0.0005000/cycle > 0.0002500/cycle; colocate with program0 on package 0 (was not permitted)
30 rounds in 3.000 s, at most 4 tasks; recorded gather: 16 moves, 1 applied; replayed none: 0 moves; they differ in 15 rounds
",
        path.display()
    );
    assert_eq!(text, expected);
    let json: serde_json::Value =
        serde_json::from_str(&replayed(&path, &["--policy", "none", "--json"]).unwrap()).unwrap();
    assert_eq!(json["summary"]["differing_rounds"], 15);
    assert_eq!(json["rounds"][0]["moves"][0]["by"], "recorded");
    assert_eq!(json["rounds"][0]["moves"][1]["outcome"], "denied");
    assert_eq!(json["tail"]["kind"], "complete");
}

#[test]
fn a_map_drawn_for_a_replay_pins_to_the_cpu() {
    let folder = Folder::new("drawn");
    let path = folder.file("a.rec");
    record(&path, &header("gather", Mode::Enforce), 1 << 30);
    let map = format!("X{}", ".".repeat(39));
    let with = |rest: &[&str]| replayed(&path, &[&["--policy", "static", "--map", &map], rest].concat()).unwrap();
    let (drawn, wide) = (with(&[]), with(&["--pin", "llc"]));
    assert!(drawn.contains("CPU 10 → 0; map: "), "{drawn}");
    assert!(wide.contains("CPU 10 → 0, may use 0-9,20-29; map: "), "{wide}");
}

#[test]
fn replay_refuses_with_a_remedy() {
    let folder = Folder::new("refuse");
    let path = folder.file("a.rec");
    record(&path, &header("gather", Mode::Enforce), 1 << 30);
    let error = |rest: &[&str]| replayed(&path, rest).unwrap_err();
    assert!(error(&[]).contains("there is no policy 'gather'"), "the test's own policy has no name");
    assert!(error(&["--policy", "none", "--threshold", "coherence=1"]).contains("expected one of"));
    assert!(error(&["--policy", "none", "--threshold", "coherence_per_cycle=x"]).contains("'x' is not a number"));
    assert!(error(&["--policy", "none", "--profile", "/proc/nonexistent"]).contains("/proc/nonexistent: No such file"));
    assert!(replayed(&path, &["--policy", "none", "--threshold", "coherence_per_cycle=1e-3"]).is_ok());
    let text = folder.file("no.rec");
    fs::write(&text, "just text, and long enough").unwrap();
    assert!(replayed(&text, &[]).unwrap_err().contains("no.rec: this is not a recording"));
    assert!(replayed(&folder.file("absent"), &[]).unwrap_err().contains("give a file that `cotenant record`"));
}

#[test]
fn a_truncated_recording_is_used_and_said() {
    let folder = Folder::new("cut");
    let path = folder.file("a.rec");
    record(&path, &header("gather", Mode::Enforce), 1 << 30);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 60]).unwrap();
    let text = replayed(&path, &["--policy", "none"]).unwrap();
    assert!(text.contains("The recording is truncated at byte "), "{text}");
    let mut out = Vec::new();
    why::write(&args(&path, &["tid:1001"]), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("0.100 s  task 1 (worker1") && text.contains("rounds before it are used"), "{text}");
}

#[test]
fn why_says_by_its_exit_code_whether_there_was_anything() {
    let folder = Folder::new("why");
    let path = folder.file("a.rec");
    record(&path, &header("gather", Mode::Enforce), 1 << 30);
    let code = |what: &str| format!("{:?}", why::write(&args(&path, &[what]), &mut Vec::new()).unwrap());
    let (success, failure) =
        (format!("{:?}", std::process::ExitCode::SUCCESS), format!("{:?}", std::process::ExitCode::FAILURE));
    assert_eq!([code("worker0"), code("9s"), code("nobody")], [success.clone(), success, failure]);
    let mut out = Vec::new();
    why::write(&args(&path, &["program0", "--json"]), &mut out).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&json["moves"][0]["task"], &json["tail"]["kind"]), (&1.into(), &"complete".into()));
}

#[test]
fn why_tells_what_held_at_a_moment() {
    let folder = Folder::new("moment");
    let path = folder.file("a.rec");
    record(&path, &header("gather", Mode::Enforce), 1 << 30);
    let mut out = Vec::new();
    why::write(&args(&path, &["worker1", "--at", "0.2s"]), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("0.100 s  task 1 (worker1, tid 1001): CPU 10 → "), "{text}");
    assert!(text.contains("applied; seen on CPU 1 in the round after; in force at 0.200 s"), "{text}");
    let wrong = why::write(&args(&path, &["1s..2s", "--at", "0.2s"]), &mut Vec::new()).unwrap_err().to_string();
    assert!(wrong.contains("--at is for a task or an application"), "{wrong}");
}

#[test]
fn sizes_have_suffixes() {
    let limit = |text: &str| {
        Cli::<recorder::Args>::try_parse_from(["x", "--record-limit", text]).map(|c| c.args.how.record_limit).ok()
    };
    assert_eq!(Cli::<recorder::Args>::try_parse_from(["x"]).unwrap().args.how.record_limit, 1 << 30);
    assert_eq!((limit("4096"), limit("2k"), limit("3M")), (Some(4_096), Some(2_048), Some(3 << 20)));
    assert_eq!((limit("1T"), limit("-1"), limit("99999999999G")), (Some(1 << 40), None, None));
}

#[test]
fn every_policy_that_has_a_name_replays() {
    let folder = Folder::new("all");
    let path = folder.file("a.rec");
    record(&path, &header("gather", Mode::Enforce), 1 << 30);
    for name in cotenant_policies::standard().names() {
        match replayed(&path, &["--policy", name]) {
            Ok(text) => assert!(text.contains(&format!("replayed {name}: ")), "{text}"),
            Err(refused) => {
                assert!(refused.starts_with(&format!("policy {name}: ")) && refused.contains("; "), "{refused}");
            }
        }
    }
}
