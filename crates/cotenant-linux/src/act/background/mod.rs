//! The background: programs run only where nobody else wants the CPU. By the group of their CPU time where they have
//! one, ours or their unit's, else by the least weight of their sessions, else by `SCHED_IDLE` of each thread. Where
//! that group may not be idle, by nothing else.
//!
//! Not by both: where the kernel portions out CPU time by session first (autogroup), `SCHED_IDLE` gives way within its
//! session only, and a CPU on which such threads alone run counts as idle, so whoever wakes up is sent there to wait.

pub mod by_hand;
pub(crate) mod effect;
pub mod group;
pub(crate) mod sessions;
pub(crate) mod threads;
mod unit;

use crate::act::cpu_time;
use crate::act::groups::{self, LimitError};
use crate::act::level::{CpuGroups, Protected};
use crate::notes::Notes;
use crate::sense::capability::{Capability, Standing};
use crate::sys;
use crate::undo::Journal;
use cotenant_model::{TaskInfo, Time};
use sessions::Weights;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use threads::Policies;
use unit::Unit;

pub use crate::act::level::NO_EFFECT;
pub use sessions::Sessions;
pub use threads::Classes;
pub use unit::Units;

/// By which of these means programs run in the background here, tried; of those that run already what counts of limits
/// is their own.
pub fn capability() -> Capability {
    let root = Path::new("/");
    let cpu = CpuGroups::find(root);
    // Somebody who has nothing in common with us but the root group: whoever gives way to that one does so to all.
    let anybody = cpu.as_ref().map(|cpu| Protected { name: String::new(), group: cpu.mount().join("anybody") });
    let place = cpu_time::place(anybody.as_slice());
    let within = place.as_ref().zip(cpu.as_ref()).and_then(|(place, cpu)| {
        let inside = place.around != cpu.mount() && place.around.starts_with(cpu.mount());
        inside.then(|| cpu.shown(&place.around))
    });
    let in_scope = place.is_none() && scope_first().is_some();
    describe(&Found {
        group: place.as_ref().and_then(group::file_at).or(in_scope.then_some("cpu.idle")),
        within: if in_scope { Some("scopes of your own manager") } else { within.as_deref() },
        idle: threads::is_privileged() || sys::may_leave_idle(0, 0),
        by_session: sessions::by_session(std::process::id()),
        apart: cpu.is_some_and(|cpu| cpu.of(root, std::process::id()).is_some_and(|share| share != cpu.mount())),
    })
}

/// The words by which a command of an ordinary user is to begin who has no groups where he is, but can have some in a
/// scope of his own manager: tried.
pub fn scope_first() -> Option<[&'static str; 8]> {
    let cpu = CpuGroups::find(Path::new("/"))?;
    let words = groups::own_scope(Path::new("/"), cpu.mount(), sys::euid())?;
    let [program, rest @ ..] = words;
    let tries = || Command::new(program).args(rest).arg("true").stdin(Stdio::null()).stderr(Stdio::null()).status();
    (cpu_time::place(&[]).is_none() && tries().is_ok_and(|status| status.success())).then_some(words)
}

/// What there is for the background.
#[derive(Clone, Copy, Debug, Default)]
struct Found<'a> {
    /// The file by which the group of a program that we start gives way.
    group: Option<&'static str>,
    /// Inside which group alone it does so; `None`: everywhere.
    within: Option<&'a str>,
    /// Whether threads may be `SCHED_IDLE`.
    idle: bool,
    /// Whether CPU time is portioned out by session.
    by_session: bool,
    /// Whether it is portioned out by control groups, of which ours is one.
    apart: bool,
}

fn describe(there: &Found<'_>) -> Capability {
    let Found { group, within, idle, by_session, apart } = *there;
    let (standing, cost) = match (idle, by_session, group) {
        _ if apart && (group.is_none() || within.is_some()) => (
            Standing::Limited,
            "no effect on programs elsewhere, such as a service in system.slice: beside these, low-priority ones nap",
        ),
        (true, ..) => (Standing::Available, ""),
        (_, true, _) => (Standing::Limited, "programs that share a session with others run beside these"),
        (.., Some(_)) => (Standing::Limited, "low-priority programs that run already nap instead"),
        _ => (Standing::Missing, "low-priority programs nap instead"),
    };
    let others = means(idle, by_session, " or ");
    let others = if apart && idle { format!("{others} within one control group") } else { others };
    let file = group.map(|file| within.map_or_else(|| file.to_owned(), |within| format!("{file} within {within}")));
    let found = match (file, &others[..]) {
        (None, "") => "nothing that can be taken back".to_owned(),
        (None, others) => others.to_owned(),
        (Some(file), "") => format!("{file} for programs that Cotenant starts, nothing for others"),
        (Some(file), others) => format!("{file} for programs that Cotenant starts, {others} for others"),
    };
    let remedy = if apart && (group.is_none() || within.is_some()) {
        "run cotenant as root, or start both programs in one slice: systemd-run --scope --slice=NAME.slice …"
    } else {
        "SCHED_IDLE: ulimit -e 20 for the programs (LimitNICE=20 in a unit, \"hard nice 0\" in limits.conf), or setcap \
         cap_sys_nice+ep on the cotenant binary"
    };
    Capability::new("background", standing, found, cost, remedy)
}

/// What there is without a group, as people read it.
fn means(idle: bool, by_session: bool, between: &str) -> String {
    let means = [by_session.then_some("autogroup nice 19"), idle.then_some("SCHED_IDLE")];
    means.into_iter().flatten().collect::<Vec<_>>().join(between)
}

/// The background of one application that has no group of CPU time of ours.
#[derive(Debug, Default)]
pub struct Background {
    on: bool,
    /// Its own control group, where that has a share of CPU time.
    unit: Option<Unit>,
    threads: Policies,
    sessions: Weights,
}

impl Background {
    /// Of all members of a control group that is somebody else's.
    pub fn of_group(path: &Path) -> Self {
        Self { unit: Unit::of(path), ..Self::default() }
    }

    /// Turns it on or off, of these threads; see [`Background::tend`]. What is in force, as people read it.
    ///
    /// # Errors
    /// Where there is none here.
    pub fn turn(
        &mut self,
        journal: &mut Journal,
        on: bool,
        tasks: &[Arc<TaskInfo>],
        foreign: bool,
        notes: &mut Notes,
    ) -> Result<Option<String>, LimitError> {
        self.on = on;
        self.tend(journal, tasks, foreign, notes);
        match (self.in_force(), &self.unit) {
            (None, Some(unit)) if on => Err(LimitError::NotIdle(unit.path().to_owned())),
            (None, None) if on => Err(LimitError::NoBackground),
            (in_force, _) => Ok(in_force),
        }
    }

    /// The group of other programs that would be idle; `None`: it would be its threads.
    pub fn group(&self) -> Option<&Path> {
        self.unit.as_ref().map(Unit::path)
    }

    /// By what it runs in the background now, as people read it.
    pub fn in_force(&self) -> Option<String> {
        let means = match &self.unit {
            Some(unit) => if unit.is_idle() { "cpu.idle 1" } else { "" }.to_owned(),
            None => means(self.threads.any(), self.sessions.any(), " and "),
        };
        (self.on && !means.is_empty()).then_some(means)
    }

    /// Brings those that were born since, and those that could not be changed before, to what is to be. `foreign`: we
    /// have not started them.
    pub fn tend(&mut self, journal: &mut Journal, tasks: &[Arc<TaskInfo>], foreign: bool, notes: &mut Notes) {
        if let Some(unit) = &mut self.unit {
            unit.tend(journal, now(), self.on, notes);
            return;
        }
        let barred: BTreeSet<u32> =
            tasks.iter().filter(|info| self.threads.is_barred(info)).map(|info| info.pid).collect();
        let pids = tasks.iter().map(|info| info.pid).filter(|pid| !barred.contains(pid)).collect();
        let light = self.sessions.tend(journal, self.on, foreign, &pids, notes);
        self.threads.tend(journal, |info| self.on && !light.contains(&info.pid), foreign, tasks, notes);
    }

    /// Whether it has ever been turned on.
    pub fn is_used(&self) -> bool {
        self.unit.is_some() || self.threads.is_used()
    }

    /// Gives back what was changed; lines about what fails, which is tried again at the end of all.
    pub fn end(mut self, journal: &mut Journal) -> Vec<String> {
        let mut notes = Notes::default();
        if let Some(unit) = &mut self.unit {
            unit.tend(journal, now(), false, &mut notes);
        }
        self.threads.end(journal, &mut notes);
        self.sessions.end(journal, &mut notes);
        notes.iter().cloned().collect()
    }
}

fn now() -> Time {
    Time::default() + sys::monotonic()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{infos, journal};
    use cotenant_testing::TempDir;
    use std::fs;

    /// Another agent's word about `cpu.idle`, or a file that may not be written, is no reason to take the threads.
    #[test]
    fn the_threads_of_a_group_that_may_not_be_idle_are_left_alone() {
        let zero = Path::new("/sys/devices/system/cpu/cpu0/topology/physical_package_id");
        let locked = fs::read_to_string(zero).is_ok_and(|text| text == "0\n");
        if !locked {
            eprintln!("skipped in part: {} is not 0", zero.display());
        }
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let tasks = infos(child.id(), &[child.id()]);
        let mut found = Vec::new();
        for written in [true, false].into_iter().filter(|written| *written || locked) {
            let (dir, state) = (TempDir::new("no-idle"), TempDir::new("no-idle-state"));
            let (path, mut journal, mut notes) = (dir.path(), journal(state.path()), Notes::default());
            dir.write("cpu.weight", "400");
            if written {
                dir.write("cpu.idle", "0");
            } else {
                std::os::unix::fs::symlink(zero, path.join("cpu.idle")).unwrap();
            }
            let mut background = Background::of_group(path);
            let mut turn = |notes: &mut Notes| background.turn(&mut journal, true, &tasks, true, notes);
            if written {
                assert_eq!(turn(&mut notes).unwrap().as_deref(), Some("cpu.idle 1"));
                dir.write("cpu.idle", "0");
            }
            let turned = [turn(&mut notes), turn(&mut notes)];
            let policy = sys::getscheduler(child.id()).unwrap();
            found.push((turned, policy, notes.iter().cloned().collect::<Vec<_>>(), journal.finish().failed));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for (turned, policy, notes, failed) in found {
            assert!(turned.iter().all(|turned| matches!(turned, Err(LimitError::NotIdle(_)))), "{turned:?}");
            assert_eq!((policy, failed, notes.len()), (libc::SCHED_OTHER, 0, 1), "{notes:?}");
        }
    }

    #[test]
    fn whatever_is_missing_has_a_cost_and_a_remedy() {
        for (group, idle, by_session, standing, parts) in [
            (
                Some("cpu.idle"),
                true,
                true,
                Standing::Available,
                ["cpu.idle for", "autogroup nice 19 or SCHED_IDLE for others"],
            ),
            (None, true, false, Standing::Available, ["SCHED_IDLE", ""]),
            (None, false, true, Standing::Limited, ["autogroup nice 19", "share a session"]),
            (Some("cpu.shares"), false, false, Standing::Limited, ["cpu.shares for", "run already nap"]),
            (None, false, false, Standing::Missing, ["nothing", "nap instead"]),
        ] {
            let found = describe(&Found { group, idle, by_session, ..Found::default() });
            assert_eq!(found.standing, standing, "{found:?}");
            let said = format!("{}; {}", found.found, found.cost);
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            assert_eq!(found.remedy.contains("ulimit -e 20"), !idle, "{found:?}");
        }
    }

    /// What would be without effect on a service is not ticked.
    /// Holds qos/background.
    #[test]
    fn the_background_is_ticked_only_where_it_is_so_for_all() {
        let within = Some("user.slice/user-0.slice");
        for (group, within, standing, found) in [
            (Some("cpu.idle"), None, Standing::Available, "cpu.idle for"),
            (Some("cpu.idle"), within, Standing::Limited, "cpu.idle within user.slice/user-0.slice for"),
            (None, None, Standing::Limited, "SCHED_IDLE within one control group"),
        ] {
            let said = describe(&Found { group, within, idle: true, by_session: false, apart: true });
            assert_eq!(said.standing, standing, "{said:?}");
            assert!(said.found.starts_with(found), "{said:?}");
            let limited = standing == Standing::Limited;
            assert_eq!(
                [said.cost.contains("system.slice"), said.remedy.contains("--slice=")],
                [limited; 2],
                "{said:?}"
            );
        }
    }
}
