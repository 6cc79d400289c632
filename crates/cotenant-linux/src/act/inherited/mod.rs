//! Inherited thread settings, mainly masks: which were set, and so the former value of each.

mod undoing;

use crate::sys;
use crate::sys::thread::{Held, Identity, SetError, process_stat};
use crate::undo::{Effect, Living, Record, RestoreReport, Undoer, number};
use std::collections::hash_map::{self, HashMap};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::io;
use undoing::Undoing;

/// A thread setting that children inherit.
pub trait Setting: Clone + fmt::Debug + fmt::Display + Eq + Hash + 'static {
    /// Beginnings of its journal lines when set, and when left.
    const WORDS: [&'static str; 2];
    /// Its name for people.
    const NAME: &'static str;

    /// Parses the displayed form.
    fn parse(word: &str) -> Option<Self>;

    /// That of a thread.
    ///
    /// # Errors
    /// `ESRCH` if it has ended.
    fn of(tid: u32) -> io::Result<Self>;

    /// Whether `current` is the kernel's remainder of this value.
    fn has_become(&self, current: &Self, held: &Held) -> bool;

    /// The value inherited by children.
    fn passed_on(&self) -> Self;

    /// Restores a thread's own value.
    ///
    /// # Errors
    /// [`SetError`]
    fn give(&self, held: &Held) -> Result<(), SetError>;

    /// Advice for people after a refusal.
    fn remedy(&self, tid: u32) -> String;
}

/// A setting is set, or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingRecord<S> {
    /// One will be set, or was found set because of us.
    Set {
        /// The thread.
        id: Identity,
        /// Process id.
        pid: u32,
        /// Session id.
        sid: u32,
        /// The time, in clock ticks since boot.
        at: u64,
        /// The value to restore.
        original: S,
        /// Our value.
        set: S,
    },
    /// The task has its own again, or another agent has taken over: not ours to undo.
    Left(Identity),
}

impl<S> SettingRecord<S> {
    /// Announces this value for a thread, or records it as found.
    pub fn set(id: Identity, pid: u32, sid: u32, original: S, set: S) -> Self {
        Self::Set { id, pid, sid, at: sys::boot_ticks(), original, set }
    }
}

impl<S: Setting> fmt::Display for SettingRecord<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [is_set, is_left] = S::WORDS;
        match self {
            Self::Set { id: (tid, start), pid, sid, at, original, set } => {
                write!(f, "{is_set} {tid} {start} {pid} {sid} {at} {original} {set}")
            }
            Self::Left((tid, start)) => write!(f, "{is_left} {tid} {start}"),
        }
    }
}

impl<S: Setting> Record for SettingRecord<S> {
    type Effect = Settings<S>;

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut word = || words.next();
        let [is_set, is_left] = S::WORDS;
        let record = match kind {
            _ if kind == is_set => Self::Set {
                id: (number(word())?, number(word())?),
                pid: number(word())?,
                sid: number(word())?,
                at: number(word())?,
                original: S::parse(word()?)?,
                set: S::parse(word()?)?,
            },
            _ if kind == is_left => Self::Left((number(word())?, number(word())?)),
            _ => return None,
        };
        words.next().is_none().then_some(record)
    }
}

/// State of a task changed by Cotenant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<S> {
    /// Process id.
    pid: u32,
    /// Values set, oldest first, each with the value to restore.
    set: Vec<(S, S)>,
    /// Whether it was restored, or left to another agent.
    left: bool,
}

/// A value set somewhere in a process, which new threads and children inherit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark<S> {
    set: S,
    original: S,
    /// Session of the process.
    sid: u32,
    /// First use, in ticks since boot. Older tasks have not inherited it.
    since: u64,
    /// Start time of the youngest thread with it, in ticks. Distinguishes a process from an earlier one with the same
    /// id, whose threads all started before.
    youngest: u64,
}

/// All settings of one kind made by Cotenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<S: Setting> {
    /// By identity; ordered for a fixed order of undoing.
    tasks: BTreeMap<Identity, Entry<S>>,
    marks: HashMap<u32, Vec<Mark<S>>>,
    /// Values ever set: most tasks have none, and their ancestors need no check.
    ever_set: HashSet<S>,
}

impl<S: Setting> Default for Settings<S> {
    fn default() -> Self {
        Self { tasks: BTreeMap::new(), marks: HashMap::new(), ever_set: HashSet::new() }
    }
}

impl<S: Setting> Settings<S> {
    /// The former value of a task of process `pid`, a child of `parent`, if it was created with `set` because of us.
    /// `owner`: this Cotenant.
    pub fn before(&self, owner: Identity, [pid, parent]: [u32; 2], start_ticks: u64, set: &S) -> Option<S> {
        self.ever_set.contains(set).then_some(())?;
        let from = |pid: u32| {
            self.knows_process(pid).then_some(())?;
            self.inherited(pid, process_stat(pid)?.start_ticks, Some(start_ticks), set)
        };
        let orphan = || {
            let adopted = parent == owner.0 && pid != parent;
            adopted.then(|| self.inherited_by_orphan(None, start_ticks, set)).flatten()
        };
        let mut ancestors = std::iter::successors(Some(parent), |pid| Some(process_stat(*pid)?.ppid));
        from(pid).or_else(|| ancestors.by_ref().take_while(|pid| *pid > 0).find_map(from)).or_else(orphan).cloned()
    }

    /// Records equivalent to a task's state.
    fn records(&self, id: Identity) -> Vec<SettingRecord<S>> {
        let Some(Entry { pid, set, left }) = self.tasks.get(&id) else { return Vec::new() };
        let record = |(set, original): &(S, S)| {
            let passed_on = (set.passed_on(), original.passed_on());
            let mut marks = self.marks.get(pid).into_iter().flatten();
            let mark = marks.find(|mark| mark.set == passed_on.0 && mark.original == passed_on.1);
            let (sid, at) = mark.map_or((0, id.1), |mark| (mark.sid, mark.since));
            SettingRecord::Set { id, pid: *pid, sid, at, original: original.clone(), set: set.clone() }
        };
        set.iter().map(record).chain(left.then_some(SettingRecord::Left(id))).collect()
    }

    /// Whether anything was ever set in the process `pid`.
    fn knows_process(&self, pid: u32) -> bool {
        self.marks.contains_key(&pid)
    }

    /// Whether anything was ever set in the session `sid`.
    fn knows_session(&self, sid: u32) -> bool {
        self.marks.values().flatten().any(|m| m.sid == sid)
    }

    /// The former value of a task that inherited `set` from a thread of process `pid`, whose leader started at
    /// `leader_start`, by its creation at `born`; `None` for a thread that became the leader by exec, with any start
    /// time.
    fn inherited(&self, pid: u32, leader_start: u64, born: Option<u64>, set: &S) -> Option<&S> {
        let marks = self.marks.get(&pid)?.iter().rev();
        let mut fitting = marks.filter(|m| {
            m.set == *set && m.original != m.set && m.youngest >= leader_start && born.is_none_or(|b| b >= m.since)
        });
        fitting.next().map(|m| &m.original)
    }

    /// The same for a task with dead parents: by the session, or any session if `sid` is `None`.
    fn inherited_by_orphan(&self, sid: Option<u32>, born: u64, set: &S) -> Option<&S> {
        let marks = self.marks.values().flatten();
        let mut fitting =
            marks.filter(|m| m.set == *set && m.original != m.set && sid.is_none_or(|s| s == m.sid) && born >= m.since);
        fitting.next().map(|m| &m.original)
    }
}

impl<S: Setting> Effect for Settings<S> {
    type Record = SettingRecord<S>;

    fn enter(&mut self, record: &SettingRecord<S>) {
        match record {
            SettingRecord::Set { id, pid, sid, at, original, set } => {
                let fresh = || Entry { pid: *pid, set: Vec::new(), left: false };
                let entry = self.tasks.entry(*id).or_insert_with(fresh);
                if entry.left {
                    *entry = fresh();
                }
                entry.pid = *pid;
                entry.set.retain(|(s, _)| s != set);
                entry.set.push((set.clone(), original.clone()));
                let (set, original) = (set.passed_on(), original.passed_on());
                self.ever_set.insert(set.clone());
                let marks = self.marks.entry(*pid).or_default();
                match marks.iter_mut().find(|m| m.set == set && m.original == original && m.sid == *sid) {
                    Some(mark) => {
                        mark.since = mark.since.min(*at);
                        mark.youngest = mark.youngest.max(id.1);
                    }
                    None => marks.push(Mark { set, original, sid: *sid, since: *at, youngest: id.1 }),
                }
            }
            SettingRecord::Left(id) => {
                if let Some(entry) = self.tasks.get_mut(id) {
                    entry.left = true;
                }
            }
        }
    }

    fn knows(&self, record: &SettingRecord<S>) -> bool {
        let SettingRecord::Set { id, original, set, .. } = record else { return false };
        let entry = self.tasks.get(id).filter(|entry| !entry.left);
        entry.is_some_and(|entry| entry.set.iter().any(|(s, o)| s == set && o == original))
    }

    fn essential(&self, records: Vec<SettingRecord<S>>, living: &Living) -> Vec<SettingRecord<S>> {
        let lives = |id| self.tasks.get(&id).is_some_and(|task| Held::open_exactly(task.pid, id.0, id.1).is_ok());
        essential(records, lives, living)
    }

    fn undo(&self, by: &Undoer<'_>, report: &mut RestoreReport) -> Vec<SettingRecord<S>> {
        if self.tasks.is_empty() { Vec::new() } else { Undoing::new(self, by, report).undo() }
    }
}

/// The records of living tasks; of dead tasks in living processes, whose threads may have inherited; and one per
/// session, for orphans. Order is kept.
fn essential<S: Setting>(
    records: Vec<SettingRecord<S>>,
    task_lives: impl Fn(Identity) -> bool,
    living: &Living,
) -> Vec<SettingRecord<S>> {
    let mut kept: HashMap<_, usize> = HashMap::new();
    let mut keep: Vec<SettingRecord<S>> = Vec::new();
    // Backwards, to keep the youngest of many, which stands for all with the oldest's time.
    for record in records.into_iter().rev() {
        match &record {
            SettingRecord::Left(id) if !task_lives(*id) => continue,
            SettingRecord::Set { id, pid, sid, at, set, original } if !task_lives(*id) => {
                let kin = if living.processes.contains(pid) { (*pid, 0) } else { (0, *sid) };
                let earlier = kept.entry((kin, set.clone(), original.clone()));
                if let hash_map::Entry::Occupied(younger) = &earlier {
                    if let SettingRecord::Set { at: since, .. } = &mut keep[*younger.get()] {
                        *since = *at;
                    }
                    continue;
                }
                if kin.0 == 0 && !living.sessions.contains(sid) {
                    continue;
                }
                earlier.or_insert(keep.len());
            }
            _ => {}
        }
        keep.push(record);
    }
    keep.reverse();
    keep
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::placement::{MaskRecord, Masks};
    use cotenant_model::CpuSet;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    fn masks(records: &[MaskRecord]) -> Masks {
        let mut masks = Masks::default();
        for record in records {
            masks.enter(record);
        }
        masks
    }

    #[test]
    fn records_read_back_as_they_were_written() {
        for record in [record(11, 5, 10, 50, "0-3,1500", "0"), MaskRecord::Left((11, 5))] {
            assert_eq!(MaskRecord::parse(&record.to_string()), Some(record.clone()));
            assert_eq!(MaskRecord::parse(&format!("{record} more")), None);
        }
        assert_eq!(record(11, 5, 10, 50, "0-3,1500", "0").to_string(), "set 11 5 10 7 50 0-3,1500 0", "as ever");
        assert_eq!(MaskRecord::parse("left 11 5"), Some(MaskRecord::Left((11, 5))));
        assert_eq!(MaskRecord::parse("set 11 5 10 7 50 0-3"), None);
    }

    fn record(tid: u32, start: u64, pid: u32, at: u64, original: &str, mask: &str) -> MaskRecord {
        MaskRecord::Set { id: (tid, start), pid, sid: 7, at, original: set(original), set: set(mask) }
    }

    #[test]
    fn the_latest_original_of_a_mask_counts() {
        let records = [record(11, 5, 10, 50, "0-3", "0"), record(11, 5, 10, 51, "0-3", "1")];
        let mut found = masks(&records);
        assert_eq!(found.records((11, 5)), records, "what cannot be undone is told as it was");
        assert_eq!(found.tasks[&(11, 5)].set, [(set("0"), set("0-3")), (set("1"), set("0-3"))]);
        assert!(found.knows(&record(11, 5, 10, 0, "0-3", "1")));
        found.enter(&MaskRecord::Left((11, 5)));
        assert_eq!(found.records((11, 5)).last(), Some(&MaskRecord::Left((11, 5))));
        assert!(found.tasks[&(11, 5)].left && !found.knows(&record(11, 5, 10, 0, "0-3", "1")));
        found.enter(&record(11, 5, 10, 60, "2-3", "2"));
        assert_eq!(found.tasks[&(11, 5)].set, [(set("2"), set("2-3"))], "what was before another agent's mask is past");
    }

    #[test]
    fn children_inherit_only_after_the_mask_was_set() {
        let found = masks(&[record(11, 5, 10, 50, "0-3", "0")]);
        let inherited = |leader, born, mask| found.inherited(10, leader, born, &set(mask)).cloned();
        assert_eq!(inherited(4, Some(50), "0"), Some(set("0-3")));
        assert_eq!(inherited(4, Some(49), "0"), None, "born before");
        assert_eq!(inherited(4, Some(50), "1"), None, "a mask of its own");
        assert_eq!(
            inherited(6, Some(50), "0"),
            None,
            "the process id was recycled: its leader is younger than our thread"
        );
        assert_eq!(inherited(4, None, "0"), Some(set("0-3")), "survived an exec");
        assert_eq!(found.inherited(12, 0, Some(50), &set("0")), None, "another process");
        assert_eq!(found.inherited_by_orphan(Some(7), 50, &set("0")), Some(&set("0-3")));
        assert_eq!(found.inherited_by_orphan(Some(8), 50, &set("0")), None);
        assert_eq!(found.inherited_by_orphan(None, 50, &set("0")), Some(&set("0-3")));
    }

    #[test]
    fn compaction_keeps_what_the_living_may_need() {
        let records = vec![
            record(11, 5, 10, 50, "0-3", "0"), // dead, in a living process: stands for both
            record(12, 6, 10, 60, "0-3", "0"), // dead, in a living process
            record(13, 7, 10, 70, "0-3", "0"), // lives
            record(20, 8, 20, 80, "0-3", "1"), // a dead process of a living session
            MaskRecord::Left((20, 8)),
        ];
        let found = |sessions: bool| {
            let living =
                Living { processes: [10].into(), sessions: if sessions { [7].into() } else { HashSet::new() } };
            let kept = essential(records.clone(), |id| id == (13, 7), &living);
            (kept.len(), masks(&kept))
        };
        let (len, with_session) = found(true);
        assert_eq!(len, 3);
        assert_eq!(with_session.inherited(10, 4, Some(50), &set("0")), Some(&set("0-3")));
        assert_eq!(with_session.inherited(10, 4, Some(49), &set("0")), None);
        assert!(with_session.knows(&record(13, 7, 10, 0, "0-3", "0")));
        assert_eq!(with_session.inherited_by_orphan(Some(7), 80, &set("1")), Some(&set("0-3")));
        assert_eq!(found(false).0, 2);
    }
}
