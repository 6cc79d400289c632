//! What Cotenant has set on whom, and so what every task's mask was before: the meaning of a journal's records.

use crate::journal::Record;
use crate::pause::Waiting;
use cotenant_model::CpuSet;
use std::collections::hash_map::{self, HashMap};
use std::collections::{BTreeMap, HashSet};

/// A thread for as long as the machine runs: its id and its start time in clock ticks since boot.
pub type Identity = (u32, u64);

/// What is known of a task whose mask Cotenant has set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Process id.
    pub pid: u32,
    /// Each mask that was set, oldest first, with the mask to go back to.
    pub set: Vec<(CpuSet, CpuSet)>,
    /// Whether it has been given back, or left to another agent that changed its mask.
    pub left: bool,
}

/// A mask that was set somewhere in a process: whoever is born there inherits it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    set: CpuSet,
    original: CpuSet,
    /// Session of the process.
    sid: u32,
    /// When it was set first, in ticks since boot. Whoever was born before has not inherited it.
    since: u64,
    /// Start time of the youngest thread on which it was set, in ticks. Tells a process from an earlier one with the same id: all
    /// threads of the earlier one started before its successor.
    youngest: u64,
}

/// Everything that Cotenant has set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// By identity; ordered so that undoing has one order.
    pub tasks: BTreeMap<Identity, Entry>,
    /// Who may wait because of us.
    pub waiting: Waiting,
    marks: HashMap<u32, Vec<Mark>>,
    /// Every mask that was ever set: most tasks have none of them, and need no look at their ancestors.
    masks: HashSet<CpuSet>,
}

impl Book {
    /// The book that these records tell.
    pub fn from_records(records: &[Record]) -> Self {
        let mut book = Self::default();
        for record in records {
            book.note(record);
        }
        book
    }

    /// Enters a record.
    pub fn note(&mut self, record: &Record) {
        self.waiting.note(record);
        match record {
            Record::Set { tid, start, pid, sid, at, original, set } => {
                self.masks.insert(set.clone());
                let entry = self.tasks.entry((*tid, *start)).or_default();
                if entry.left {
                    *entry = Entry::default();
                }
                entry.pid = *pid;
                entry.set.retain(|(s, _)| s != set);
                entry.set.push((set.clone(), original.clone()));
                let marks = self.marks.entry(*pid).or_default();
                match marks.iter_mut().find(|m| m.set == *set && m.original == *original && m.sid == *sid) {
                    Some(mark) => {
                        mark.since = mark.since.min(*at);
                        mark.youngest = mark.youngest.max(*start);
                    }
                    None => marks.push(Mark {
                        set: set.clone(),
                        original: original.clone(),
                        sid: *sid,
                        since: *at,
                        youngest: *start,
                    }),
                }
            }
            Record::Left { tid, start } => {
                if let Some(entry) = self.tasks.get_mut(&(*tid, *start)) {
                    entry.left = true;
                }
            }
            Record::Group { .. } | Record::Ungroup { .. } | Record::Stop { .. } | Record::Cont { .. } => {}
        }
    }

    /// Whether setting that mask on that task, with that original, has been entered already and stands.
    pub fn knows(&self, id: Identity, set: &CpuSet, original: &CpuSet) -> bool {
        self.tasks.get(&id).is_some_and(|e| !e.left && e.set.iter().any(|(s, o)| s == set && o == original))
    }

    /// Whether that mask was ever set on anybody.
    pub fn knows_mask(&self, mask: &CpuSet) -> bool {
        self.masks.contains(mask)
    }

    /// Whether a mask was ever set in the process `pid`.
    pub fn knows_process(&self, pid: u32) -> bool {
        self.marks.contains_key(&pid)
    }

    /// Whether a mask was ever set in the session `sid`.
    pub fn knows_session(&self, sid: u32) -> bool {
        self.marks.values().flatten().any(|m| m.sid == sid)
    }

    /// What a task had before, if it inherited `mask` from a thread of process `pid`, whose leader started at `leader_start`, by
    /// being born at `born`; `None` as birth stands for a thread that survived an exec as the leader, whatever its start time.
    pub fn inherited(&self, pid: u32, leader_start: u64, born: Option<u64>, mask: &CpuSet) -> Option<&CpuSet> {
        let marks = self.marks.get(&pid)?.iter().rev();
        let mut fitting = marks.filter(|m| {
            m.set == *mask && m.original != m.set && m.youngest >= leader_start && born.is_none_or(|b| b >= m.since)
        });
        fitting.next().map(|m| &m.original)
    }

    /// The same for a task whose parents have died: by the session, or any session where `sid` is `None`.
    pub fn inherited_by_orphan(&self, sid: Option<u32>, born: u64, mask: &CpuSet) -> Option<&CpuSet> {
        let marks = self.marks.values().flatten();
        let mut fitting = marks
            .filter(|m| m.set == *mask && m.original != m.set && sid.is_none_or(|s| s == m.sid) && born >= m.since);
        fitting.next().map(|m| &m.original)
    }
}

/// The records that somebody alive may still need: those of living tasks; of dead tasks in living processes, whose threads may
/// have inherited their masks; and one per session, for orphans. Order is kept.
pub fn essential(
    records: Vec<Record>,
    task_lives: impl Fn(Identity) -> bool,
    process_lives: impl Fn(u32) -> bool,
    session_lives: impl Fn(u32) -> bool,
) -> Vec<Record> {
    let mut kept: HashMap<_, usize> = HashMap::new();
    let mut keep: Vec<Record> = Vec::new();
    let (mut ungrouped, mut continued) = (HashSet::new(), HashSet::new());
    // Backwards, so that of many the youngest is kept; with the time of the oldest, it stands for all.
    for record in records.into_iter().rev() {
        match &record {
            Record::Left { tid, start } if !task_lives((*tid, *start)) => continue,
            // Backwards: what ended it has been seen before it.
            Record::Ungroup { path } => {
                ungrouped.insert(path.clone());
                continue;
            }
            Record::Group { path, .. } if ungrouped.contains(path) => continue,
            Record::Cont { pid, start } => {
                continued.insert((*pid, *start));
                continue;
            }
            Record::Stop { pid, start, leads } => {
                let lives = process_lives(*pid) || (*leads && session_lives(*pid));
                if !lives || continued.contains(&(*pid, *start)) {
                    continue;
                }
            }
            Record::Set { tid, start, pid, sid, at, set, original } if !task_lives((*tid, *start)) => {
                let kin = if process_lives(*pid) { (*pid, 0) } else { (0, *sid) };
                let earlier = kept.entry((kin, set.clone(), original.clone()));
                if let hash_map::Entry::Occupied(younger) = &earlier {
                    if let Record::Set { at: since, .. } = &mut keep[*younger.get()] {
                        *since = *at;
                    }
                    continue;
                }
                if kin.0 == 0 && !session_lives(*sid) {
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
    use crate::pause::Hierarchy;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    fn record(tid: u32, start: u64, pid: u32, at: u64, original: &str, mask: &str) -> Record {
        Record::Set { tid, start, pid, sid: 7, at, original: set(original), set: set(mask) }
    }

    #[test]
    fn the_latest_original_of_a_mask_counts() {
        let mut book = Book::from_records(&[record(11, 5, 10, 50, "0-3", "0"), record(11, 5, 10, 51, "0-3", "1")]);
        assert_eq!(book.tasks[&(11, 5)].set, [(set("0"), set("0-3")), (set("1"), set("0-3"))]);
        assert!(book.knows((11, 5), &set("1"), &set("0-3")));
        book.note(&Record::Left { tid: 11, start: 5 });
        assert!(book.tasks[&(11, 5)].left && !book.knows((11, 5), &set("1"), &set("0-3")));
        book.note(&record(11, 5, 10, 60, "2-3", "2"));
        assert_eq!(book.tasks[&(11, 5)].set, [(set("2"), set("2-3"))], "what was before another agent's mask is past");
    }

    #[test]
    fn children_inherit_only_after_the_mask_was_set() {
        let book = Book::from_records(&[record(11, 5, 10, 50, "0-3", "0")]);
        let inherited = |leader, born, mask| book.inherited(10, leader, born, &set(mask)).cloned();
        assert_eq!(inherited(4, Some(50), "0"), Some(set("0-3")));
        assert_eq!(inherited(4, Some(49), "0"), None, "born before");
        assert_eq!(inherited(4, Some(50), "1"), None, "a mask of its own");
        assert_eq!(
            inherited(6, Some(50), "0"),
            None,
            "the process id was recycled: its leader is younger than our thread"
        );
        assert_eq!(inherited(4, None, "0"), Some(set("0-3")), "survived an exec");
        assert_eq!(book.inherited(12, 0, Some(50), &set("0")), None, "another process");
        assert_eq!(book.inherited_by_orphan(Some(7), 50, &set("0")), Some(&set("0-3")));
        assert_eq!(book.inherited_by_orphan(Some(8), 50, &set("0")), None);
        assert_eq!(book.inherited_by_orphan(None, 50, &set("0")), Some(&set("0-3")));
    }

    #[test]
    fn compaction_keeps_who_may_still_wait() {
        let group = |path: &str| Record::Group { hierarchy: Hierarchy::V2, path: path.into(), home: None };
        let stop = |pid, leads| Record::Stop { pid, start: 1, leads };
        let records = vec![
            group("/a"),
            group("/b"),
            Record::Ungroup { path: "/a".into() },
            group("/a"), // again
            Record::Ungroup { path: "/b".into() },
            stop(10, false), // lives
            stop(11, false), // has ended
            stop(12, true),  // has ended, its session has not
            stop(13, false), // lives, and is let alone
            Record::Cont { pid: 13, start: 1 },
        ];
        let kept = essential(records.clone(), |_| false, |pid| pid == 10 || pid == 13, |sid| sid == 12);
        assert_eq!(kept, [group("/a"), stop(10, false), stop(12, true)]);
        let mut whole = Book::from_records(&records).waiting;
        assert_ne!(whole, Book::from_records(&kept).waiting, "who has ended is forgotten");
        whole.note(&Record::Cont { pid: 11, start: 1 });
        assert_eq!(whole, Book::from_records(&kept).waiting);
    }

    #[test]
    fn compaction_keeps_what_the_living_may_need() {
        let records = vec![
            record(11, 5, 10, 50, "0-3", "0"), // dead, in a living process: stands for both
            record(12, 6, 10, 60, "0-3", "0"), // dead, in a living process
            record(13, 7, 10, 70, "0-3", "0"), // lives
            record(20, 8, 20, 80, "0-3", "1"), // a dead process of a living session
            Record::Left { tid: 20, start: 8 },
        ];
        let book = |sessions: bool| {
            let kept = essential(records.clone(), |id| id == (13, 7), |pid| pid == 10, |_| sessions);
            (kept.len(), Book::from_records(&kept))
        };
        let (len, with_session) = book(true);
        assert_eq!(len, 3);
        assert_eq!(with_session.inherited(10, 4, Some(50), &set("0")), Some(&set("0-3")));
        assert_eq!(with_session.inherited(10, 4, Some(49), &set("0")), None);
        assert!(with_session.knows((13, 7), &set("0"), &set("0-3")));
        assert_eq!(with_session.inherited_by_orphan(Some(7), 80, &set("1")), Some(&set("0-3")));
        assert_eq!(book(false).0, 2);
    }
}
