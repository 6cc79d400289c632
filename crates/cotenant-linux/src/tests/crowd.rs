//! Many threads, some of them short-lived.

use super::roles::{Subject, applier_of, journals, two_cpus};
use crate::sys;
use crate::sys::thread;
use cotenant_testing::{Player, TempDir, eventually};

#[test]
fn a_thousand_threads_that_come_and_go() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, mut subject) = (TempDir::new("crowd"), Subject::new(1000));
    for worker in [3, 500] {
        subject.act("churn", worker);
    }
    let mut command = applier_of(&subject, dir.path(), &["flip", "flop", "hold", "finish"]);
    command.stderr(std::process::Stdio::inherit());
    let mut applier = Player::start(command);
    for step in ["flip", "flop"] {
        let outcomes = applier.hear(step);
        assert_eq!(outcomes.matches("Applied").count(), 1000, "{outcomes}");
    }
    applier.hear("hold");
    applier.say("");
    let report = applier.hear("finish");
    assert!(report.contains("failed: 0") && report.contains("foreign: 0"), "{report}");
    assert!(applier.end().success());
    assert!(subject.is_as_before());
    assert_eq!(journals(dir.path()), 0);
    all_threads_are_free(&subject);
}

#[test]
fn a_thousand_threads_after_a_kill() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, mut subject) = (TempDir::new("crowd-kill"), Subject::new(1000));
    subject.act("churn", 7);
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "flop", "flip", "hold"]));
    applier.hear("flop");
    applier.kill();
    eventually("the guardian has finished", || subject.is_as_before() && journals(dir.path()) == 0);
    all_threads_are_free(&subject);
}

#[test]
fn vanished_tasks_are_an_outcome() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, mut subject) = (TempDir::new("vanished"), Subject::new(2));
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold", "flop", "release", "finish"]));
    assert_eq!(applier.hear("flip"), "Applied Applied");
    applier.hear("hold");
    subject.player.kill();
    applier.say("");
    assert_eq!(applier.hear("flop"), "Gone Gone");
    assert_eq!(applier.hear("release"), "Gone Gone");
    let report = applier.hear("finish");
    assert!(report.contains("gone: 2"), "{report}");
}

/// Threads never seen also have their original masks.
fn all_threads_are_free(subject: &Subject) {
    for tid in thread::numbers_in(&format!("/proc/{}/task", subject.player.pid())) {
        if let Ok(mask) = sys::getaffinity(tid) {
            assert_eq!(mask, subject.originals[0], "thread {tid}");
        }
    }
}
