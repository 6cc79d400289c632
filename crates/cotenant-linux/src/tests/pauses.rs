//! After any process died at any point, no process stays paused.

use super::roles::{command, dying, journal, journals, say};
use crate::act::groups::Groups;
use crate::act::pause::{Job, Mechanism, Method, PauseError, Pauses, Stopped};
use crate::act::{self, restore};
use crate::fault;
use crate::sys;
use crate::sys::thread::{self, Held};
use crate::undo::{Claims, Here, Journal};
use cotenant_testing::{Player, TempDir, eventually, kills, pass};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Each process of a job: it prints its id, and then repeatedly that it runs.
pub const BEAT: &str = r#"echo $$ > "$1/$2.pid"; while echo >> "$1/$2"; do sleep 0.02; done"#;

/// The processes of a job: one stays in its group, one left group and session, and the program itself.
pub const BEATS: [&str; 3] = ["child", "leaver", "root"];

/// A program of three processes that fork constantly.
pub fn program(folder: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = r#"sh -c "$2" beat "$1" child & setsid sh -c "$2" beat "$1" leaver & exec sh -c "$2" beat "$1" root"#;
    command.args(["-c", script, "job"]).arg(folder).arg(BEAT).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts a program and pauses it: `STATE_DIR MECHANISM FOLDER STEP…`. Each step prints its result; `hold` waits for a
/// line.
pub fn pauser(args: &[String]) {
    let [state_dir, mechanism, folder, steps @ ..] = args else { panic!("usage: STATE_DIR MECHANISM FOLDER STEP…") };
    let folder = Path::new(folder);
    let mut journal = journal(Path::new(state_dir));
    let method =
        Method::all().into_iter().find(|m| format!("{:?}", m.mechanism()) == *mechanism).expect("it works here");
    let mut pauses = Pauses::new(method);
    let mut job = pauses.job(&mut journal).unwrap();
    let mut command = program(folder);
    job.prepare(&mut command).unwrap();
    let root = command.spawn().unwrap().id();
    job.started(&mut journal, (root, thread::process_stat(root).unwrap().start_ticks)).unwrap();
    // Descendants outside of the group are known to the follower.
    eventually("all of it runs", || BEATS.iter().all(|beat| pid(folder, beat).is_some()));
    let members: Vec<_> = BEATS.iter().filter_map(|beat| pid(folder, beat)).collect();
    let members: Vec<_> = members.iter().map(|pid| (*pid, thread::process_stat(*pid).unwrap().start_ticks)).collect();
    let mut lines = std::io::stdin().lines();
    for step in steps {
        match step.as_str() {
            "pause" => job.pause(&mut journal, &members, None).unwrap(),
            // Until now: a stopped or waiting process is late at once.
            "nap" => job.pause(&mut journal, &members, Some(sys::monotonic())).unwrap(),
            "notes" => {
                say(&format!("notes {:?}", journal.notes().iter().collect::<Vec<_>>()));
                continue;
            }
            "replace" => {
                let before = journal.guardian();
                eventually("another guardian", || {
                    journal.tend();
                    journal.guardian() != before
                });
            }
            "resume" => job.resume(&mut journal).unwrap(),
            "kill" => job.signal(libc::SIGKILL, &members).unwrap(),
            "hold" => {
                say(&format!("hold {}", journal.guardian().unwrap_or(0)));
                lines.next();
                continue;
            }
            "end" => {
                job.end(&mut journal).unwrap();
                pauses.finish(&mut journal);
                return say(&format!("end {:?}", journal.finish()));
            }
            other => panic!("no step {other}"),
        }
        say(step);
    }
}

pub fn pid(folder: &Path, beat: &str) -> Option<u32> {
    fs::read_to_string(folder.join(format!("{beat}.pid"))).ok()?.trim().parse().ok()
}

/// A job and its output folder; killed when dropped.
struct Beating {
    dir: TempDir,
    mechanism: Mechanism,
}

impl Beating {
    fn new(mechanism: Mechanism) -> Self {
        Self { dir: TempDir::new("pause"), mechanism }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn pauser(&self, steps: &[&str]) -> Command {
        let (state, mechanism) = (self.state(), format!("{:?}", self.mechanism));
        let paths = [state.to_str().unwrap(), &mechanism, self.dir.path().to_str().unwrap()];
        command("pauser", &paths.into_iter().chain(steps.iter().copied()).collect::<Vec<_>>())
    }

    /// Every process of it continues.
    fn runs(&self, case: &str) {
        for beat in BEATS {
            let Some(pid) = pid(self.dir.path(), beat) else { continue }; // the pauser died before it was started
            let size = || fs::metadata(self.dir.path().join(beat)).map_or(0, |meta| meta.len());
            let before = size();
            let state = || thread::process_stat(pid).map(|stat| char::from(stat.state));
            eventually(&format!("{case}: {beat} ({pid}, {:?}) runs", state()), || size() > before + 1);
        }
    }

    /// Every process of it is stopped according to the kernel, not the clock.
    fn waits(&self) {
        for beat in BEATS {
            let pid = pid(self.dir.path(), beat).unwrap();
            eventually(&format!("{}: {beat} ({pid}) waits", self.mechanism), || match self.mechanism {
                // A process in vfork waits in the kernel until its stopped child continues.
                Mechanism::Signals => Held::open(pid, pid).is_ok_and(|held| b"TD".contains(&held.stat.state)),
                _ => group_of(pid, self.mechanism).is_some_and(|group| stands_still(&group)),
            });
        }
    }

    /// It runs, in its own group, and nothing is left for `restore`.
    fn is_undone(&self, case: &str) {
        self.runs(case);
        eventually(&format!("{case}: the guardian has finished"), || journals(&self.state()) == 0);
        let report = restore(&self.state());
        assert_eq!((report.resumed, report.failed), (0, 0), "{case}: {report:?}");
        self.is_home(case);
    }

    fn is_home(&self, case: &str) {
        for pid in BEATS.iter().filter_map(|beat| pid(self.dir.path(), beat)) {
            let group = group_of(pid, self.mechanism);
            assert!(group.as_ref().is_none_or(|group| !is_ours(group)), "{case}: {group:?}");
        }
    }

    /// Ends the processes of this round.
    fn clear(&self) {
        for beat in BEATS {
            if let Some(pid) = pid(self.dir.path(), beat) {
                let _ = sys::kill(pid, libc::SIGKILL);
                let _ = sys::kill_group(pid); // including their latest children
            }
            let _ = fs::remove_file(self.dir.path().join(format!("{beat}.pid")));
            let _ = fs::remove_file(self.dir.path().join(beat));
        }
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The folder of a process' group.
fn group_of(pid: u32, mechanism: Mechanism) -> Option<PathBuf> {
    let (field, controller) = match mechanism {
        Mechanism::CgroupV2 => ("0::", None),
        Mechanism::CgroupV1 => (":freezer:", Some("freezer")),
        Mechanism::Signals => return None,
    };
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| Some(line.split_once(field)?.1))?;
    let mount = crate::sys::cgroups::mounts(Path::new("/"), controller).swap_remove(0);
    Some(Path::new("/").join(mount).join(path.trim_start_matches('/')))
}

fn is_ours(group: &Path) -> bool {
    group.to_string_lossy().contains("/cotenant-")
}

fn stands_still(group: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    // The freezer of version 1 never finishes if a process in vfork was about to wait for its frozen child: it is
    // skipped then, and waits in the kernel.
    let in_kernel = |pid: &str| thread::process_stat(pid.parse().unwrap()).is_none_or(|stat| stat.state == b'D');
    match read("freezer.state").trim() {
        "FREEZING" => read("cgroup.procs").lines().all(in_kernel),
        state => state == "FROZEN" || read("cgroup.events").contains("frozen 1"),
    }
}

/// All that work here, printed.
pub fn mechanisms() -> Vec<Mechanism> {
    let works: Vec<Mechanism> = Method::all().iter().map(Method::mechanism).collect();
    for missing in [Mechanism::CgroupV2, Mechanism::CgroupV1].iter().filter(|m| !works.contains(m)) {
        eprintln!("skipped in part: {missing} cannot be used here");
    }
    works
}

/// The crash points that a mechanism reaches.
fn reached(mechanism: Mechanism, point: &str) -> bool {
    let of_groups = point.contains(".group.");
    let of_signals = point.starts_with("resume.signal");
    if mechanism == Mechanism::Signals { !of_groups } else { !of_signals }
}

#[test]
fn all_of_a_program_waits_and_runs_again() {
    for mechanism in mechanisms() {
        let job = Beating::new(mechanism);
        let steps = ["pause", "hold", "resume", "hold", "pause", "hold", "pause", "end"];
        let mut pauser = Player::start(job.pauser(&steps));
        pauser.hear("hold");
        job.waits();
        pauser.say("");
        pauser.hear("hold");
        job.runs("resumed");
        pauser.say("");
        pauser.hear("hold");
        job.waits();
        pauser.say("");
        let report = pauser.hear("end");
        assert!(report.contains("failed: 0"), "{report}");
        assert!(pauser.end().success());
        job.is_undone("ended");
    }
}

#[test]
fn whoever_dies_while_it_waits_is_gone() {
    for mechanism in mechanisms() {
        let job = Beating::new(mechanism);
        let mut pauser = Player::start(job.pauser(&["pause", "hold", "kill", "resume", "hold", "end"]));
        pauser.hear("hold");
        job.waits();
        let pids: Vec<u32> = BEATS.iter().filter_map(|beat| pid(job.dir.path(), beat)).collect();
        pauser.say("");
        pauser.hear("hold");
        let ended = |pid: &u32| thread::process_stat(*pid).is_none_or(|stat| stat.is_dead());
        eventually("all of it has ended", || pids.iter().all(ended));
        pauser.say("");
        assert!(pauser.hear("end").contains("failed: 0"));
        assert!(pauser.end().success());
        assert_eq!(journals(&job.state()), 0);
    }
}

/// Holds undo/crash-points.
#[test]
fn dying_at_any_point_leaves_nobody_waiting() {
    let steps = ["pause", "resume", "pause", "end"];
    for mechanism in mechanisms() {
        let job = Beating::new(mechanism);
        // After a regular end no process is paused; the guardian is covered by the next test.
        let points = fault::points(fault::PAUSE_STEPS).filter(|p| reached(mechanism, p) && p.starts_with("pause."));
        for point in points {
            for n in 1.. {
                let (fired, case) = (job.dir.path().join("fired"), format!("{mechanism}: {point}, time {n}"));
                let mut pauser = Player::start(dying(job.pauser(&steps), &format!("main:{point}:{n}"), &fired));
                let status = pauser.end();
                job.is_undone(&case);
                job.clear();
                if fs::remove_file(&fired).is_err() {
                    assert!(status.success() && n > 1, "{case}: {status}");
                    break;
                }
                assert_eq!(status.signal(), Some(libc::SIGKILL), "{case}");
            }
        }
    }
}

/// Holds undo/crash-points.
#[test]
fn a_guardian_that_dies_while_it_lets_run_is_made_up_for_by_restore() {
    for mechanism in mechanisms() {
        let job = Beating::new(mechanism);
        let points = fault::points(fault::PAUSE_STEPS).filter(|p| reached(mechanism, p) && p.starts_with("resume."));
        for point in points.chain(["guardian.end.seen", "guardian.locked"].map(str::to_owned)) {
            let (fired, case) = (job.dir.path().join("fired"), format!("{mechanism}: {point}"));
            let plan = format!("guardian:{point}:1");
            let mut pauser = Player::start(dying(job.pauser(&["pause", "hold"]), &plan, &fired));
            let guardian: u32 = pauser.hear("hold").parse().unwrap();
            job.waits();
            pauser.kill();
            eventually("the guardian is dead", || thread::process_stat(guardian).is_none_or(|s| s.is_dead()));
            assert!(fs::remove_file(&fired).is_ok(), "{case}: never reached");
            assert_eq!(restore(&job.state()).failed, 0, "{case}");
            job.is_undone(&case);
            job.clear();
        }
    }
}

/// Holds undo/pauses.
#[test]
fn both_killed_while_it_waits_is_what_restore_is_for() {
    for mechanism in mechanisms() {
        let job = Beating::new(mechanism);
        let mut pauser = Player::start(job.pauser(&["pause", "hold"]));
        let guardian = pauser.hear("hold").parse().unwrap();
        job.waits();
        sys::kill(guardian, libc::SIGKILL).unwrap();
        pauser.kill();
        eventually("the guardian is dead", || thread::process_stat(guardian).is_none_or(|s| s.is_dead()));
        job.waits();
        let report = restore(&job.state());
        assert!(report.resumed > 0 && report.failed == 0, "{report:?}");
        job.is_undone("both");
    }
}

/// Processes that are stopped, until this is dropped.
struct Stilled(Vec<u32>);

impl Stilled {
    fn new(pids: &[u32]) -> Self {
        for pid in pids {
            sys::kill(*pid, libc::SIGSTOP).unwrap();
        }
        for pid in pids {
            eventually("it is stopped", || thread::process_stat(*pid).is_some_and(|stat| stat.state == b'T'));
        }
        Self(pids.to_vec())
    }

    fn go_on(&self) {
        self.0.iter().for_each(|pid| drop(sys::kill(*pid, libc::SIGCONT)));
    }
}

impl Drop for Stilled {
    fn drop(&mut self) {
        self.go_on();
    }
}

/// Both are alive: the guardian ends a pause that goes on too long, and Cotenant takes note.
/// Holds undo/pauses.
#[test]
fn a_cotenant_that_is_stopped_leaves_nobody_waiting() {
    for mechanism in mechanisms() {
        let job = Beating::new(mechanism);
        let steps = ["nap", "hold", "resume", "notes", "hold", "nap", "hold", "resume", "end"];
        let mut pauser = Player::start(job.pauser(&steps));
        pauser.hear("hold");
        let stopped = Stilled::new(&[pauser.pid()]);
        job.runs("its guardian lets it");
        stopped.go_on();
        pauser.say("");
        let notes = pauser.hear("notes");
        assert!(notes.contains("cotenant stood still") && notes.contains("pause(s)"), "{mechanism}: {notes}");
        pauser.hear("hold");
        pauser.say("");
        pauser.hear("hold");
        job.waits(); // a new stop must also end
        pauser.say("");
        assert!(pauser.hear("end").contains("failed: 0"));
        assert!(pauser.end().success());
        job.is_undone("it goes on");
    }
}

/// What a user has stopped after that stays stopped.
/// Holds undo/pauses.
#[test]
fn what_the_guardian_has_let_run_is_not_resumed_again() {
    let job = Beating::new(Mechanism::Signals);
    let mut pauser = Player::start(job.pauser(&["nap", "hold", "resume", "notes", "hold"]));
    pauser.hear("hold");
    let stopped = Stilled::new(&[pauser.pid()]);
    job.runs("its guardian lets it");
    let theirs = Stilled::new(&[pid(job.dir.path(), "leaver").unwrap()]);
    stopped.go_on();
    pauser.say("");
    pauser.hear("notes");
    pauser.hear("hold");
    assert_eq!(thread::process_stat(theirs.0[0]).unwrap().state, b'T');
}

/// Holds undo/pauses.
#[test]
fn where_both_are_stopped_either_lets_it_run_and_so_does_force() {
    for mechanism in mechanisms() {
        for who in ["guardian", "force"] {
            let job = Beating::new(mechanism);
            let mut pauser = Player::start(job.pauser(&["nap", "hold", "resume", "end"]));
            let guardian = pauser.hear("hold").parse().unwrap();
            let (both, own) = (Stilled::new(&[guardian, pauser.pid()]), Stilled(vec![pauser.pid()]));
            job.waits();
            assert_eq!(restore(&job.state()).resumed, 0, "that does nothing to the living");
            if who == "force" {
                let report = act::restore_by_force(&job.state());
                assert!(report.resumed > 0 && report.failed == 0, "{report:?}");
                assert!(report.notes[0].contains("is stopped: what it had paused runs"), "{report:?}");
            } else {
                sys::kill(guardian, libc::SIGCONT).unwrap();
            }
            job.runs(who);
            both.go_on();
            drop(own);
            pauser.say("");
            assert!(pauser.hear("end").contains("failed: 0"));
            assert!(pauser.end().success());
            job.is_undone(who);
        }
    }
}

/// Holds undo/pauses.
#[test]
fn a_guardian_that_is_stopped_is_replaced() {
    let job = Beating::new(Mechanism::Signals);
    let mut pauser = Player::start(job.pauser(&["pause", "hold", "replace", "notes", "hold", "resume", "end"]));
    let guardian: u32 = pauser.hear("hold").parse().unwrap();
    let _stopped = Stilled::new(&[guardian]);
    pauser.say("");
    let notes = pauser.hear("notes");
    assert!(notes.contains("the guardian does not go on; another has taken its place"), "{notes}");
    eventually("the first one is ended", || thread::process_stat(guardian).is_none_or(|stat| stat.is_dead()));
    assert_ne!(pauser.hear("hold").parse(), Ok(guardian));
    job.waits();
    pauser.kill();
    job.is_undone("by the second one");
}

/// Promise undo/pauses: No program stays paused when Cotenant or its guardian is killed or stopped, or another
/// program is stuck; after both, `cotenant restore` resumes it.
#[test]
fn random_kills_leave_nobody_waiting() {
    let mut steps = vec!["hold"];
    steps.extend(["pause", "resume"].repeat(4_000));
    let moments = || kills(7, Duration::from_millis(30));
    for (mechanism, moment) in
        mechanisms().into_iter().flat_map(|mechanism| moments().map(move |moment| (mechanism, moment)))
    {
        let job = Beating::new(mechanism);
        let mut pauser = Player::start(job.pauser(&steps));
        pauser.hear("hold");
        pauser.say("");
        pass(moment);
        pauser.kill();
        job.is_undone(&format!("{mechanism}, killed after {moment:?}"));
    }
}

/// An external control group with a sleeper in it; both disappear on drop.
struct Theirs {
    mechanism: Mechanism,
    path: PathBuf,
    sleeper: Child,
}

impl Theirs {
    /// `None`, with a message, if no group can be frozen.
    fn new(name: &str) -> Option<Self> {
        let group = Method::all().into_iter().find(|method| method.mechanism() != Mechanism::Signals);
        let Some(mechanism) = group.map(|method| method.mechanism()) else {
            eprintln!("skipped: no group can be frozen here");
            return None;
        };
        let path = group_of(std::process::id(), mechanism)?.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(path.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
        Some(Self { mechanism, path, sleeper })
    }
}

impl Theirs {
    /// Freezes or thaws it like its owner.
    fn freeze(&self, freeze: bool) -> io::Result<()> {
        let (file, values) = match self.mechanism {
            Mechanism::CgroupV2 => ("cgroup.freeze", ["0", "1"]),
            _ => ("freezer.state", ["THAWED", "FROZEN"]),
        };
        fs::write(self.path.join(file), values[usize::from(freeze)])
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.freeze(false); // with version 1 even SIGKILL waits
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
        eventually("the folder goes", || fs::remove_dir(&self.path).is_ok());
    }
}

#[test]
fn the_group_of_somebody_else_stays_his() {
    let Some(group) = Theirs::new("theirs") else { return };
    let (theirs, mechanism, sleeper) = (group.path.clone(), group.mechanism, group.sleeper.id());
    let dir = TempDir::new("theirs");
    let mut journal = journal(dir.path());
    let mut job = Job::of_group(&mut journal, &theirs).unwrap();
    job.pause(&mut journal, &[], None).unwrap();
    eventually("it stands still", || stands_still(&theirs));
    let again = Job::of_group(&mut journal, &theirs).unwrap_err();
    assert!(again.to_string().contains("is frozen by another program"), "{again}");
    let report = journal.finish();
    assert_eq!((report.resumed, report.failed), (1, 0), "{report:?}");
    eventually("it runs", || !stands_still(&theirs));
    assert_eq!(group_of(sleeper, mechanism).as_ref(), Some(&theirs), "and stays where it was");
}

/// `systemctl freeze`, between two naps of ours or long before one.
#[test]
fn a_group_that_its_owner_freezes_is_not_thawed_by_us() {
    let Some(group) = Theirs::new("held") else { return };
    for noticed_by_a_look in [false, true] {
        let dir = TempDir::new("held");
        let mut journal = journal(dir.path());
        let mut job = Job::of_group(&mut journal, &group.path).unwrap();
        job.pause(&mut journal, &[], None).unwrap();
        assert!(!job.is_theirs(&mut journal), "that is ours");
        job.resume(&mut journal).unwrap();
        assert!(!job.is_theirs(&mut journal));
        group.freeze(true).unwrap();
        eventually("it stands still", || stands_still(&group.path));
        if noticed_by_a_look {
            assert!(job.is_theirs(&mut journal));
        } else {
            let refused = job.pause(&mut journal, &[], None);
            assert!(matches!(refused, Err(PauseError::Frozen(_))), "{refused:?}");
        }
        job.resume(&mut journal).unwrap();
        assert!(!job.is_paused() && stands_still(&group.path));
        if noticed_by_a_look {
            job.end(&mut journal).unwrap();
            let report = journal.finish();
            assert_eq!((report.resumed, report.failed), (0, 0), "{report:?}");
            assert!(stands_still(&group.path), "the end of all is no reason, either");
            group.freeze(false).unwrap();
        } else {
            // It naps again after a thaw, and the undoing process knows.
            group.freeze(false).unwrap();
            job.pause(&mut journal, &[], None).unwrap();
            eventually("it stands still", || stands_still(&group.path));
            assert_eq!(journal.finish().resumed, 1);
            eventually("it runs", || !stands_still(&group.path));
        }
    }
}

/// A unit that is killed, or deleted, in the middle of a nap.
#[test]
fn a_group_that_is_removed_while_it_waits_is_done_with() {
    let Some(mut group) = Theirs::new("removed") else { return };
    group.sleeper.kill().unwrap();
    group.sleeper.wait().unwrap();
    let dir = TempDir::new("removed");
    let mut journal = journal(dir.path());
    let removed = |journal: &mut Journal| {
        let mut job = Job::of_group(journal, &group.path).unwrap();
        job.pause(journal, &[], None).unwrap();
        eventually("the folder goes", || fs::remove_dir(&group.path).is_ok());
        job
    };
    removed(&mut journal).end(&mut journal).unwrap();
    assert_eq!(*journal.outstanding::<Groups>(), Groups::default());
    fs::create_dir(&group.path).unwrap();

    let mut job = removed(&mut journal);
    job.resume(&mut journal).unwrap();
    assert_ne!(*journal.outstanding::<Groups>(), Groups::default());
    journal.tend(); // the limit is one byte
    assert_eq!(*journal.outstanding::<Groups>(), Groups::default());
    // A later group of the same name is different, and is journaled before it is frozen.
    fs::create_dir(&group.path).unwrap();
    job.pause(&mut journal, &[], None).unwrap();
    assert_ne!(*journal.outstanding::<Groups>(), Groups::default());
    let report = journal.finish();
    assert_eq!((report.resumed, report.gone, report.failed), (1, 0, 0), "{report:?}");
}

/// As where a service manager shows control groups read-only: one runs on, and need not be let run.
#[test]
fn a_group_that_cannot_be_frozen_is_not_told_as_paused() {
    let zero = "/sys/devices/system/cpu/cpu0/topology/physical_package_id";
    let dir = TempDir::new("read-only");
    let (state, group) = (dir.path().join("state"), dir.path().join("group"));
    fs::create_dir_all(&group).unwrap();
    std::os::unix::fs::symlink(zero, group.join("cgroup.freeze")).unwrap();
    if !fs::read_to_string(zero).is_ok_and(|text| text == "0\n") {
        return eprintln!("skipped: {zero} is not 0");
    }
    let mut journal = journal(&state);
    let mut job = Job::of_group(&mut journal, &group).unwrap();
    for _ in 0..2 {
        assert!(job.pause(&mut journal, &[], None).is_err() && !job.is_paused());
    }
    job.resume(&mut journal).unwrap();
    let report = journal.finish();
    assert_eq!(report.failed, 0, "{report:?}");
}

/// What is left after a compaction is written anew only where it has doubled.
#[test]
fn a_journal_that_has_not_grown_is_not_compacted_again() {
    let Some(group) = Theirs::new("small") else { return };
    let dir = TempDir::new("small");
    let mut journal = journal(dir.path());
    let mut job = Job::of_group(&mut journal, &group.path).unwrap();
    job.pause(&mut journal, &[], None).unwrap();
    let inodes = || {
        let mut inodes: Vec<u64> =
            fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().metadata().unwrap().ino()).collect();
        inodes.sort_unstable();
        inodes
    };
    let before = inodes();
    journal.tend();
    let compacted = inodes();
    assert_ne!(compacted, before, "the limit is one byte");
    journal.tend();
    assert_eq!(inodes(), compacted);
    assert_eq!(journal.finish().resumed, 1);
}

/// Holds undo/several.
#[test]
fn a_group_with_somebody_who_may_not_wait_is_refused() {
    let Some(group) = Theirs::new("mixed") else { return };
    let dir = TempDir::new("mixed");
    let mut journal = journal(dir.path());
    let mut refusal = |path: &Path| Job::of_group(&mut journal, path).unwrap_err().to_string();
    // Its parent is our group: no process could resume it.
    let why = refusal(group.path.parent().unwrap());
    assert!(why.contains("cotenant itself is in"), "{why}");
    // Pausing the log's writer would prevent our thaw.
    let journald = dir.path().join("systemd-journald");
    std::os::unix::fs::symlink("/bin/sleep", &journald).unwrap();
    let mut journald = Command::new(journald).arg("1000").spawn().unwrap();
    fs::write(group.path.join("cgroup.procs"), journald.id().to_string()).unwrap();
    let why = refusal(&group.path);
    journald.kill().unwrap();
    journald.wait().unwrap();
    assert!(why.contains("keeps the log"), "{why}");
    // Another Cotenant has it already.
    let mut rival = Command::new("sleep").arg("1000").spawn().unwrap();
    let start = thread::process_stat(rival.id()).unwrap().start_ticks;
    let owner = (rival.id(), start);
    let mut claims = Claims::new(dir.path(), Here::read().unwrap(), owner);
    claims.claim(group.sleeper.id()).unwrap();
    let why = refusal(&group.path);
    assert!(why.contains(&format!("another cotenant (process {})", rival.id())), "{why}");
    assert!(why.contains(&format!("process {}", group.sleeper.id())) && !why.contains('\n'), "{why}");
    claims.release();
    rival.kill().unwrap();
    rival.wait().unwrap();
    assert_eq!((stands_still(&group.path), journals(dir.path())), (false, 0), "nothing was done");
}

/// A program with a child in its process group.
struct Two {
    program: Child,
    child: u32,
}

impl Two {
    fn start(job: &Job) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
        job.prepare(&mut command).unwrap();
        let mut program = command.spawn().unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(program.stdout.take().unwrap()), &mut line).unwrap();
        Self { program, child: line.trim().parse().unwrap() }
    }

    fn ids(&self) -> [thread::Identity; 2] {
        [self.program.id(), self.child].map(|pid| (pid, thread::process_stat(pid).unwrap().start_ticks))
    }

    /// Which of the two are stopped.
    fn stand(&self) -> [bool; 2] {
        [self.program.id(), self.child].map(|pid| thread::process_stat(pid).unwrap().state == b'T')
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        let _ = sys::kill(self.child, libc::SIGKILL);
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Before the first pause, between two, or in one; of processes that run already, and of a program with its process
/// group.
#[test]
fn who_was_stopped_by_somebody_else_stands_still_afterwards() {
    for (led, moment) in
        [(false, "before"), (false, "between"), (false, "in"), (true, "before"), (true, "between"), (true, "in")]
    {
        let dir = TempDir::new("theirs");
        let mut journal = journal(dir.path());
        let mut job = Job::of_processes();
        let two = Two::start(&job);
        let ids = two.ids();
        if led {
            job.started(&mut journal, ids[0]).unwrap();
        }
        let case = format!("{moment}, led {led}");
        let stop = |when: &str| {
            if when == moment {
                sys::kill(two.child, libc::SIGSTOP).unwrap();
                eventually("it stands", || two.stand()[1]);
            }
        };
        stop("before");
        for time in ["first", "second", "third"] {
            job.pause(&mut journal, &ids, None).unwrap();
            eventually(&format!("{case}, {time}: both stand"), || two.stand() == [true; 2]);
            job.pause(&mut journal, &ids, None).unwrap();
            if time == "first" {
                stop("in");
            }
            job.resume(&mut journal).unwrap();
            if time == "first" {
                stop("between");
            }
            eventually(&format!("{case}, {time}: one runs"), || two.stand() == [false, true]);
            assert_eq!(
                *journal.outstanding::<Stopped>(),
                Stopped::default(),
                "{case}, {time}: nothing is to be undone"
            );
        }
        // Undoing after a crash uses the journal as it is now.
        job.pause(&mut journal, &ids, None).unwrap();
        eventually("both stand", || two.stand() == [true; 2]);
        let report = journal.finish();
        assert_eq!((report.resumed, report.failed, two.stand()), (1, 0, [false, true]), "{case}: {report:?}");
        // Resuming it is its owner's business, and then it is paused like any other.
        sys::kill(two.child, libc::SIGCONT).unwrap();
        let mut journal = super::roles::journal(dir.path());
        job.resume(&mut journal).unwrap();
        job.pause(&mut journal, &ids, None).unwrap();
        eventually(&format!("{case}: both stand"), || two.stand() == [true; 2]);
        job.end(&mut journal).unwrap();
        assert_eq!(two.stand(), [false; 2], "{case}");
    }
}

/// Before the group is frozen, between two pauses, or in one; by the end of the job, or by who undoes it after a crash.
#[test]
fn a_stopped_member_of_a_frozen_group_stands_still_afterwards() {
    let Some(group) = Theirs::new("stopped") else { return };
    let (member, dir) = (group.sleeper.id(), TempDir::new("stopped"));
    let state = || thread::process_stat(member).unwrap().state;
    for moment in ["before", "between", "in"] {
        for crashed in [false, true] {
            let case = format!("{moment}, crashed {crashed}");
            let mut journal = journal(dir.path());
            let mut job = Job::of_group(&mut journal, &group.path).unwrap();
            let stop = |when: &str| {
                if when == moment {
                    sys::kill(member, libc::SIGSTOP).unwrap();
                }
            };
            stop("before");
            for time in ["first", "second"] {
                job.pause(&mut journal, &[], None).unwrap();
                eventually(&format!("{case}, {time}: it is frozen"), || stands_still(&group.path));
                if time == "first" {
                    stop("in");
                }
                job.resume(&mut journal).unwrap();
                if time == "first" {
                    stop("between");
                }
                eventually(&format!("{case}, {time}: it is thawed"), || !stands_still(&group.path));
                eventually(&format!("{case}, {time}: it is stopped"), || state() == b'T');
            }
            job.pause(&mut journal, &[], None).unwrap();
            eventually("it is frozen", || stands_still(&group.path));
            if !crashed {
                job.end(&mut journal).unwrap();
            }
            assert_eq!(journal.finish().failed, 0, "{case}");
            eventually("it is thawed", || !stands_still(&group.path));
            eventually(&format!("{case}: it is stopped in the end"), || state() == b'T');
            sys::kill(member, libc::SIGCONT).unwrap();
            eventually("it is its user's to resume", || state() != b'T');
        }
    }
}
