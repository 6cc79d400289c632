//! After any process died at any point, the masks are restored.

use super::roles::{Subject, applier_of, dying, journals, two_cpus};
use crate::act::restore;
use crate::fault;
use crate::sys;
use crate::sys::thread::{self, Held};
use cotenant_testing::{Player, TempDir, eventually, kills, pass};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

/// Steps that reach every point: placing, moving, giving back, placing again, undoing.
const STEPS: [&str; 5] = ["flip", "flop", "release", "flip", "finish"];

/// The masks are restored without help, and nothing is left for `restore` except possibly a journal without applied
/// changes.
fn expect_undone(subject: &Subject, state: &Path, case: &str) {
    eventually(&format!("{case}: masks {:?}", subject.masks()), || subject.is_as_before());
    let report = restore(state);
    assert_eq!((report.restored, report.failed, journals(state)), (0, 0, 0), "{case}: {report:?}");
}

/// Whether a process has ended with all its threads; only then its descriptors are closed.
fn has_ended(pid: u32) -> bool {
    let threads = thread::numbers_in(&format!("/proc/{pid}/task")).len();
    thread::process_stat(pid).is_none_or(|leader| leader.is_dead() && threads <= 1)
}

/// Stops a process and waits for each of its threads, because one still running could take a lock.
fn stop(pid: u32) {
    sys::kill(pid, libc::SIGSTOP).unwrap();
    eventually("it stands still", || {
        let mut tids = thread::numbers_in(&format!("/proc/{pid}/task")).into_iter();
        tids.all(|tid| Held::open(pid, tid).is_ok_and(|thread| thread.stat.state == b'T'))
    });
}

/// Holds undo/masks.
#[test]
fn a_clean_run_leaves_nothing() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("clean"), Subject::new(3));
    let state = dir.path().join("state");
    let mut applier = Player::start(applier_of(&subject, &state, &["tend", "hold", "flip", "hold", "finish"]));
    assert_eq!(applier.hear("hold"), "0", "no guardian before the first change");
    assert!(!state.exists(), "nothing is written before the first change");
    applier.say("");
    assert_eq!(applier.hear("flip"), "Applied Applied Applied");
    let guardian: u32 = applier.hear("hold").parse().unwrap();
    assert!(thread::process_stat(guardian).is_some_and(|s| s.session == guardian), "a session of its own");
    let [a, b] = two_cpus().unwrap();
    assert_eq!(subject.masks(), [a.clone(), b, a]);
    assert_eq!(journals(&state), 1);
    applier.say("");
    assert!(applier.hear("finish").contains("restored: 3"));
    assert!(applier.end().success());
    assert!(subject.is_as_before());
    assert_eq!(journals(&state), 0);
    assert!(thread::process_stat(guardian).is_none());
}

/// Promise undo/crash-points: Cotenant and its guardian may die at any journal write or system call: masks, pauses,
/// limits and background weights are still undone.
#[test]
fn dying_at_any_point_leaves_nothing() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("points"), Subject::new(2));
    let state = dir.path().join("state");
    let mut deaths = 0;
    for point in fault::points(fault::STEPS) {
        for n in 1.. {
            let fired = dir.path().join("fired");
            let mut applier =
                Player::start(dying(applier_of(&subject, &state, &STEPS), &format!("main:{point}:{n}"), &fired));
            let status = applier.end();
            expect_undone(&subject, &state, &format!("{point}, time {n}"));
            if std::fs::remove_file(&fired).is_err() {
                assert!(status.success(), "{point}, time {n}: {status}");
                assert!(n > 1, "crash point {point} was never reached");
                break;
            }
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{point}, time {n}");
            deaths += 1;
        }
    }
    eprintln!("died {deaths} times at {} points", fault::STEPS.len() * 2);
}

/// Holds undo/crash-points.
#[test]
fn a_guardian_that_dies_at_any_point_is_made_up_for_by_restore() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("guardian-points"), Subject::new(2));
    let state = dir.path().join("state");
    let of_restoring = |p: &String| p.starts_with("restore.") || p.starts_with("journal.remove");
    let points = fault::GUARDIAN_POINTS.iter().map(|point| (*point).to_owned());
    for point in points.chain(fault::points(fault::STEPS).filter(of_restoring)) {
        for n in 1.. {
            let fired = dir.path().join("fired");
            let steps = ["flip", "hold"];
            let mut applier =
                Player::start(dying(applier_of(&subject, &state, &steps), &format!("guardian:{point}:{n}"), &fired));
            let outcomes = applier.hear("flip");
            let guardian: u32 = applier.hear("hold").parse().unwrap();
            if guardian == 0 {
                assert_eq!(outcomes, "Denied Denied", "{point}: nothing is changed without a guardian");
                assert!(subject.is_as_before());
            }
            applier.kill();
            eventually("the guardian ends", || guardian == 0 || has_ended(guardian));
            let report = restore(&state);
            assert_eq!(report.failed, 0, "{report:?}");
            assert!(subject.is_as_before(), "{point}, time {n}: {:?}", subject.masks());
            assert_eq!(journals(&state), 0);
            if std::fs::remove_file(&fired).is_err() {
                assert_eq!(report.restored, 0, "the guardian did it");
                assert!(n > 1, "crash point {point} was never reached");
                break;
            }
        }
    }
}

/// Holds undo/masks.
#[test]
fn both_killed_at_once_is_what_restore_is_for() {
    let Some([a, b]) = two_cpus() else { return };
    let (dir, subject) = (TempDir::new("both"), Subject::new(2));
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold"]));
    let guardian = applier.hear("hold").parse().unwrap();
    sys::kill(guardian, libc::SIGKILL).unwrap();
    applier.kill();
    eventually("the guardian is dead", || has_ended(guardian));
    assert_eq!(subject.masks(), [a, b]);
    assert_eq!(restore(dir.path()).restored, 2);
    assert!(subject.is_as_before());
    assert_eq!(journals(dir.path()), 0);
}

/// Holds undo/masks.
#[test]
fn a_killed_guardian_is_replaced() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("replaced"), Subject::new(2));
    let mut applier =
        Player::start(applier_of(&subject, dir.path(), &["flip", "hold", "tend", "hold", "notes", "flop", "hold"]));
    let first: u32 = applier.hear("hold").parse().unwrap();
    sys::kill(first, libc::SIGKILL).unwrap();
    eventually("the guardian is dead", || has_ended(first));
    applier.say("");
    let second: u32 = applier.hear("hold").parse().unwrap();
    assert!(second != first && thread::process_stat(second).is_some(), "even without a change");
    applier.say("");
    assert!(applier.hear("notes").contains("the guardian was killed"));
    applier.hear("hold");
    applier.kill();
    expect_undone(&subject, dir.path(), "second guardian");
}

#[test]
fn a_stopped_guardian_holds_nobody_up() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("stopped"), Subject::new(1));
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold", "finish"]));
    let guardian = applier.hear("hold").parse().unwrap();
    stop(guardian);
    applier.say("");
    assert!(applier.hear("finish").contains("restored: 1"));
    assert!(applier.end().success());
    assert!(thread::process_stat(guardian).is_none());

    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold"]));
    let guardian = applier.hear("hold").parse().unwrap();
    stop(guardian);
    applier.kill();
    assert_eq!(restore(dir.path()).restored, 1, "in its place");
    assert!(subject.is_as_before());
    sys::kill(guardian, libc::SIGCONT).unwrap();
    eventually("it ends", || has_ended(guardian));
    assert!(subject.is_as_before());
}

#[test]
fn restore_leaves_the_living_alone() {
    let Some([a, b]) = two_cpus() else { return };
    let (dir, subject) = (TempDir::new("living"), Subject::new(2));
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold", "finish"]));
    applier.hear("hold");
    let report = restore(dir.path());
    assert_eq!((report.restored, report.notes.len()), (0, 1), "{report:?}");
    assert_eq!(subject.masks(), [a, b]);
    applier.say("");
    assert!(applier.end().success());
    assert!(subject.is_as_before());
}

/// Holds undo/masks.
#[test]
fn a_panic_leaves_nothing() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("panic"), Subject::new(2));
    let mut command = applier_of(&subject, dir.path(), &["flip", "hold", "panic"]);
    let mut applier = Player::start({
        command.stderr(std::process::Stdio::null());
        command
    });
    let guardian = applier.hear("hold").parse().unwrap();
    stop(guardian);
    applier.say("");
    assert_eq!(applier.end().code(), Some(101), "libtest's code for a panic");
    let undone = subject.is_as_before();
    let _ = sys::kill(guardian, libc::SIGCONT); // if it was not dismissed
    assert!(undone, "while unwinding, without the guardian");
    assert_eq!(journals(dir.path()), 0);
}

/// Holds undo/masks.
#[test]
fn random_kills_leave_nothing() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("random"), Subject::new(4));
    let steps: Vec<&str> = ["flip", "flop", "release"].into_iter().cycle().take(3000).collect();
    for (i, moment) in kills(20, Duration::from_millis(20)).enumerate() {
        let mut applier = Player::start(applier_of(&subject, dir.path(), &steps));
        applier.hear("flip");
        pass(moment);
        applier.kill();
        expect_undone(&subject, dir.path(), &format!("kill {i}"));
    }
}
