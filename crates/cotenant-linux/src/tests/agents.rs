//! Other agents: children, other programs that change masks, other users, cpusets, a second Cotenant, a full disk.

use super::roles::{Subject, applier_of, command, journals, two_cpus};
use crate::act::restore;
use crate::sys;
use cotenant_model::CpuSet;
use cotenant_testing::{Player, TempDir, eventually};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// Kills a process when dropped.
struct Reaper(u32);

impl Drop for Reaper {
    fn drop(&mut self) {
        let _ = sys::kill(self.0, libc::SIGKILL);
    }
}

/// Holds undo/masks.
#[test]
fn who_was_born_under_our_mask_gets_its_creators() {
    let Some([_, b]) = two_cpus() else { return };
    for what in ["fork", "thread", "orphan", "exec"] {
        let (dir, mut subject) = (TempDir::new("born"), Subject::in_own_session(2));
        let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold"]));
        applier.hear("hold");
        let born = subject.act(what, 1);
        let _reaper = Reaper(born);
        eventually("it has our mask", || sys::getaffinity(born).is_ok_and(|mask| mask == b));
        applier.kill();
        eventually(&format!("{what}: its own mask"), || {
            sys::getaffinity(born).is_ok_and(|m| m == subject.originals[1])
        });
        assert_eq!(restore(dir.path()).failed, 0);
        assert_eq!(journals(dir.path()), 0);
    }
}

/// Holds undo/masks.
#[test]
fn who_is_seen_under_our_mask_is_known_by_its_creators() {
    let Some([a, b]) = two_cpus() else { return };
    let (dir, mut subject) = (TempDir::new("seen"), Subject::new(2));
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold", "adopt", "hold", "finish"]));
    applier.hear("hold");
    let born = subject.act("thread", 1);
    eventually("it has our mask", || sys::getaffinity(born).is_ok_and(|mask| mask == b));
    applier.say(&format!("task {born}"));
    let both = a.or(&b).and(&subject.originals[1]);
    assert_eq!(applier.hear("adopt"), both.to_string(), "its original mask, not ours");
    applier.hear("hold");
    applier.say("");
    assert!(applier.hear("finish").contains("restored: 3"));
    assert_eq!(sys::getaffinity(born).unwrap(), subject.originals[1]);
}

/// Promise undo/others-settings: Masks, weights and scheduling policies that another program sets are left alone for
/// a while; masks for longer each time.
#[test]
fn a_mask_of_another_program_is_left_alone() {
    let Some([_, b]) = two_cpus() else { return };
    let (dir, subject) = (TempDir::new("foreign"), Subject::new(2));
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold", "finish"]));
    applier.hear("hold");
    sys::setaffinity(subject.tids[0], &b).unwrap(); // as taskset does
    applier.say("");
    let report = applier.hear("finish");
    assert!(report.contains("restored: 1") && report.contains("foreign: 1"), "{report}");
    assert!(report.contains("which another agent has given it"), "{report}");
    assert_eq!(subject.masks(), [b, subject.originals[1].clone()]);
}

/// Holds undo/others-settings.
#[test]
fn a_task_that_another_program_moves_is_left_alone_longer_and_longer() {
    let Some([a, b]) = two_cpus() else { return };
    let (dir, subject) = (TempDir::new("back-off"), Subject::new(1));
    let both = subject.originals[0].clone();
    let mut steps: Vec<&str> = ["flip", "hold"].repeat(9);
    steps.extend(["notes", "hold"]);
    let mut applier = Player::start(applier_of(&subject, dir.path(), &steps));
    assert_eq!(applier.hear("flip"), "Applied");
    let mut now = 100;
    let mut said = |applier: &mut Player, seconds: u64| {
        now += seconds;
        applier.hear("hold");
        applier.say(&format!("at {now}"));
        applier.hear("flip")
    };
    sys::setaffinity(subject.tids[0], &both).unwrap();
    assert_eq!(said(&mut applier, 0), "Stale", "it is noticed");
    assert_eq!(said(&mut applier, 0), "Stale", "and left alone");
    assert_eq!(subject.masks()[0], both);
    assert_eq!(said(&mut applier, 1), "Applied", "for a second");
    assert_eq!(subject.masks(), [a]);
    sys::setaffinity(subject.tids[0], &both).unwrap();
    assert_eq!(said(&mut applier, 0), "Stale");
    assert_eq!(said(&mut applier, 1), "Stale", "then for two");
    assert_eq!(said(&mut applier, 1), "Applied");
    // Its allowed CPUs are the ones set last by the other program.
    sys::setaffinity(subject.tids[0], &b).unwrap();
    assert_eq!(said(&mut applier, 0), "Stale");
    assert_eq!(said(&mut applier, 4), "Denied", "outside its new mask");
    applier.hear("hold");
    applier.say("");
    assert!(applier.hear("notes").contains("are not all among those that it is allowed"));
    applier.hear("hold");
    applier.say("");
    applier.end();
    assert_eq!(subject.masks(), [b], "the other program's, in the end");
}

/// Holds undo/others-settings.
#[test]
fn a_task_that_another_program_moves_again_and_again_is_given_up() {
    let Some([a, _]) = two_cpus() else { return };
    let (dir, subject) = (TempDir::new("given-up"), Subject::new(1));
    let both = subject.originals[0].clone();
    let pauses = [1, 2, 4, 8, 16, 32, 60];
    let mut steps = ["flip", "hold"].repeat(2 * pauses.len() + 3);
    steps.extend(["notes", "hold"]);
    let mut applier = Player::start(applier_of(&subject, dir.path(), &steps));
    assert_eq!(applier.hear("flip"), "Applied");
    let mut now = 0;
    let mut flip_after = |seconds: u64| {
        now += seconds;
        applier.hear("hold");
        applier.say(&format!("at {now}"));
        applier.hear("flip")
    };
    for pause in pauses {
        sys::setaffinity(subject.tids[0], &both).unwrap();
        assert_eq!(flip_after(0), "Stale");
        assert_eq!(flip_after(pause), "Applied");
        assert_eq!(subject.masks()[0], a);
    }
    sys::setaffinity(subject.tids[0], &both).unwrap();
    assert_eq!(flip_after(0), "Denied");
    assert_eq!(flip_after(100_000), "Denied", "however long ago");
    applier.hear("hold");
    applier.say("");
    assert!(applier.hear("notes").contains("is left alone for good: another agent changes its mask again and again"));
    assert_eq!(subject.masks()[0], both);
}

#[test]
fn a_second_applier_leaves_a_claimed_program_alone() {
    let Some([a, _]) = two_cpus() else { return };
    let (dir, one, two) = (TempDir::new("two"), Subject::new(1), Subject::new(1));
    let mut first = Player::start(applier_of(&one, dir.path(), &["flip", "hold", "finish"]));
    first.hear("hold");
    let mut rival = Player::start(applier_of(&one, dir.path(), &["flop", "notes", "hold", "flop", "hold", "finish"]));
    assert_eq!(rival.hear("flop"), "Denied");
    let note = rival.hear("notes");
    assert!(note.contains(&format!("another cotenant (process {}) manages it", first.pid())), "{note}");
    assert_eq!(one.masks()[0], a);
    // Meanwhile it works for another program.
    let mut second = Player::start(applier_of(&two, dir.path(), &["flip", "hold", "finish"]));
    assert_eq!(second.hear("flip"), "Applied");
    second.hear("hold");
    assert_eq!(two.masks(), [a]);
    first.kill();
    eventually("the first one's guardian has finished", || one.is_as_before() && journals(dir.path()) == 1);
    rival.hear("hold");
    rival.say("");
    assert_eq!(rival.hear("flop"), "Applied", "the claim of the dead has ended");
    rival.hear("hold");
    rival.say("");
    second.say("");
    assert!(rival.end().success() && second.end().success());
    assert!(one.is_as_before() && two.is_as_before());
    assert_eq!(journals(dir.path()), 0);
}

/// Promise undo/journal: Nothing is changed that could not be journaled first, for example on a full disk.
#[test]
fn nothing_is_changed_when_the_disk_is_full() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("full"), Subject::new(8));
    let steps = ["full-disk", "flip", "hold", "notes", "finish"];
    let mut applier = Player::start(applier_of(&subject, dir.path(), &steps));
    let outcomes = applier.hear("flip");
    applier.hear("hold");
    assert!(outcomes.contains("Applied") && outcomes.ends_with("Denied"), "{outcomes}");
    let changed = subject.masks().iter().zip(&subject.originals).filter(|(now, before)| now != before).count();
    assert_eq!(changed, outcomes.matches("Applied").count(), "what is not journaled is not applied");
    applier.say("");
    let notes = applier.hear("notes");
    assert!(notes.contains("the journal cannot be written (File too large"), "{notes}");
    assert!(applier.end().success());
    assert!(subject.is_as_before());
}

/// Holds undo/journal.
#[test]
fn an_unusable_state_folder_changes_nothing() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("file"), Subject::new(1));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let mut applier = Player::start(applier_of(&subject, &file.join("state"), &["flip", "notes"]));
    assert_eq!(applier.hear("flip"), "Denied");
    assert!(applier.hear("notes").contains("nothing is changed"));
    assert!(subject.is_as_before());
}

#[test]
fn other_users_tasks_are_left_alone_unless_asked() {
    if two_cpus().is_none() {
        return;
    }
    if sys::euid() != 0 {
        eprintln!("skipped: only root can start a process as another user");
        return;
    }
    let dir = TempDir::new("user");
    let mut theirs = command("subject", &["1"]);
    theirs.uid(65_534).gid(65_534);
    let subject = Subject::from_command(theirs);
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "notes"]));
    assert_eq!(applier.hear("flip"), "Denied");
    let theirs = format!("it belongs to user {}", sys::user_name(65_534));
    assert!(applier.hear("notes").contains(&theirs));
    assert!(applier.end().success());
    let mut asked = Player::start(applier_of(&subject, dir.path(), &["others", "flip", "hold", "finish"]));
    assert_eq!(asked.hear("flip"), "Applied");
    asked.say("");
    assert!(asked.end().success());
    assert!(subject.is_as_before());
}

#[test]
fn without_permission_nothing_changes() {
    if two_cpus().is_none() {
        return;
    }
    if sys::euid() != 0 {
        eprintln!("skipped: only root can start a process as another user");
        return;
    }
    let dir = TempDir::new("permission");
    std::os::unix::fs::chown(dir.path(), Some(65_534), Some(65_534)).unwrap();
    let subject = Subject::new(1);
    let mut as_nobody = applier_of(&subject, dir.path(), &["others", "flip", "notes"]);
    as_nobody.uid(65_534).gid(65_534);
    let mut applier = Player::start(as_nobody);
    assert_eq!(applier.hear("flip"), "Denied");
    assert!(applier.hear("notes").contains("the kernel refuses: Operation not permitted"));
    assert!(applier.end().success());
    assert!(subject.is_as_before());
}

#[test]
fn real_time_tasks_are_left_alone() {
    if two_cpus().is_none() {
        return;
    }
    let (dir, subject) = (TempDir::new("rt"), Subject::new(1));
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are readable; the thread is our subject's.
    if unsafe { libc::sched_setscheduler(subject.tids[0].cast_signed(), libc::SCHED_RR, &raw const param) } != 0 {
        eprintln!("skipped: no permission to make a real-time task");
        return;
    }
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "notes"]));
    assert_eq!(applier.hear("flip"), "Denied");
    assert!(applier.hear("notes").contains("it has a real-time or deadline policy"));
    assert!(subject.is_as_before());
}

/// A child cpuset with one or more processes in it; removed on drop.
struct Cpuset(PathBuf);

impl Cpuset {
    /// `None`, announced, if it cannot be made.
    fn new(cpus: &CpuSet) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup/cpuset");
        let path = root.join(format!("cotenant-test-{}", std::process::id()));
        let mems = fs::read_to_string(root.join("cpuset.mems")).ok();
        let made = mems.filter(|_| fs::create_dir(&path).is_ok()).and_then(|mems| {
            let set = Self(path);
            fs::write(set.0.join("cpuset.mems"), mems).ok()?;
            fs::write(set.0.join("cpuset.cpus"), cpus.to_string()).ok()?;
            Some(set)
        });
        if made.is_none() {
            eprintln!("skipped: no cpuset can be made below {}", root.display());
        }
        made
    }

    fn set(&self, cpus: &CpuSet) {
        fs::write(self.0.join("cpuset.cpus"), cpus.to_string()).unwrap();
    }

    fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write("/sys/fs/cgroup/cpuset/cgroup.procs", pid);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Promise undo/allowed-cpus: No thread is placed outside its own mask, its cpuset or `--cpus`, also while cpusets
/// change, CPUs go offline and programs are frozen.
#[test]
fn a_cpuset_forbids_shrinks_and_grows() {
    let Some([a, b]) = two_cpus() else { return };
    let both = a.or(&b);
    let Some(cpuset) = Cpuset::new(&a) else { return };

    // A cpuset forbids it: the task was allowed both CPUs when the orders were made, and only one when they are carried
    // out.
    let (dir, subject) = (TempDir::new("cpuset"), Subject::new(1));
    let mut applier = Player::start(applier_of(&subject, dir.path(), &["tend", "hold", "flop", "notes"]));
    applier.hear("hold");
    cpuset.take(subject.player.pid());
    assert_eq!(subject.masks()[0], a);
    applier.say("");
    assert_eq!(applier.hear("flop"), "Denied");
    assert!(applier.hear("notes").contains("are not all among those that it is allowed"));
    assert!(applier.end().success());
    assert_eq!(subject.masks()[0], a);

    // It shrinks and leaves nothing of our mask: the result is not another agent's request.
    cpuset.set(&both);
    eventually("it has both CPUs", || subject.masks()[0] == both);
    let mut applier =
        Player::start(applier_of(&subject, dir.path(), &["flop", "hold", "tend", "notes", "hold", "flop", "hold"]));
    assert_eq!(applier.hear("flop"), "Applied");
    applier.hear("hold");
    assert_eq!(subject.masks()[0], b);
    cpuset.set(&a);
    eventually("it is moved", || subject.masks()[0] == a);
    applier.say("");
    assert_eq!(applier.hear("notes"), "[]");
    applier.hear("hold");
    applier.say("");
    assert_eq!(applier.hear("flop"), "Denied", "the kernel: none of it is in the cpuset");
    applier.hear("hold");
    applier.kill();
    eventually("the guardian has finished", || journals(dir.path()) == 0);

    // It grows again: a task without restrictions inside its cpuset has none again.
    cpuset.set(&both);
    eventually("it has both CPUs again", || subject.masks()[0] == both);
}
