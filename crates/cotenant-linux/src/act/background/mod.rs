//! The background: programs run only on otherwise idle CPUs. By the group of their CPU time, ours or their unit's;
//! without one by the least weight of their sessions, or by `SCHED_IDLE` of each thread. If their group must not be
//! idle, not at all.
//!
//! Never by both: with CPU shares by session (autogroup), `SCHED_IDLE` only yields within its session. A CPU with only
//! such threads counts as idle, so that waking threads are sent there to wait.

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
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use threads::Policies;
use unit::Unit;

pub use crate::act::level::NO_EFFECT;
pub use sessions::Sessions;
pub use threads::Classes;
pub use unit::Units;

/// The means of the background here, tried; for already running programs, their own group decides.
pub fn capability() -> Capability {
    let root = Path::new("/");
    let cpu = CpuGroups::find(root);
    // A fictitious program in the root group: a program that yields to it yields to all.
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
        by_session: sessions::by_session(std::process::id()) && can_weigh_sessions(),
        apart: cpu.is_some_and(|cpu| cpu.of(root, std::process::id()).is_some_and(|share| share != cpu.mount())),
    })
}

/// Whether `/proc` lets them be changed: where it is mounted read-only it does not.
fn can_weigh_sessions() -> bool {
    OpenOptions::new().write(true).open("/proc/self/autogroup").is_ok()
}

/// The words before a command of an ordinary user without groups, if a scope of the user's own manager can provide
/// them: tried.
pub fn scope_first() -> Option<[&'static str; 8]> {
    let cpu = CpuGroups::find(Path::new("/"))?;
    let words = groups::own_scope(Path::new("/"), cpu.mount(), sys::euid())?;
    let [program, rest @ ..] = words;
    let tries = || Command::new(program).args(rest).arg("true").stdin(Stdio::null()).stderr(Stdio::null()).status();
    (cpu_time::place(&[]).is_none() && tries().is_ok_and(|status| status.success())).then_some(words)
}

/// Available means of the background.
#[derive(Clone, Copy, Debug, Default)]
struct Found<'a> {
    /// The file by which the group of a new program yields.
    group: Option<&'static str>,
    /// The group within which it yields; `None`: everywhere.
    within: Option<&'a str>,
    /// Whether threads may become `SCHED_IDLE`.
    idle: bool,
    /// Whether CPU time is shared by session.
    by_session: bool,
    /// Whether it is shared by control groups, and we are in one.
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

/// The available means without a group, for people.
fn means(idle: bool, by_session: bool, between: &str) -> String {
    let means = [by_session.then_some("autogroup nice 19"), idle.then_some("SCHED_IDLE")];
    means.into_iter().flatten().collect::<Vec<_>>().join(between)
}

/// The background of one application without a CPU group of ours.
#[derive(Debug, Default)]
pub struct Background {
    on: bool,
    /// Its own control group, if that has a share of CPU time.
    unit: Option<Unit>,
    threads: Policies,
    sessions: Weights,
}

impl Background {
    /// For all members of an external control group.
    pub fn of_group(path: &Path) -> Self {
        Self { unit: Unit::of(path), ..Self::default() }
    }

    /// Turns it on or off for these threads; see [`Background::tend`]. Returns the state for people.
    ///
    /// # Errors
    /// If there is none here.
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

    /// The external group that would become idle; `None`: its threads would.
    pub fn group(&self) -> Option<&Path> {
        self.unit.as_ref().map(Unit::path)
    }

    /// Its current background means, for people.
    pub fn in_force(&self) -> Option<String> {
        let means = match &self.unit {
            Some(unit) => if unit.is_idle() { "cpu.idle 1" } else { "" }.to_owned(),
            None => means(self.threads.any(), self.sessions.any(), " and "),
        };
        (self.on && !means.is_empty()).then_some(means)
    }

    /// Updates newly created threads, and those that could not be changed before. `foreign`: we have not started them.
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

    /// Restores what was changed; returns lines about failures, which are retried at the end.
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
