//! Processes stopped by our signals, and resuming them.

use crate::bounded::{self, Limit};
use crate::fault::around;
use crate::sys;
use crate::sys::thread::{Held, Identity, numbers_in, process_stat};
use crate::undo::{Effect, End, Living, Record, RestoreReport, Undoer, end_of, end_word, is_due};
use cotenant_model::proc_text::TaskStat;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The kernel's state of a process stopped by a signal.
pub(super) const STOPPED: u8 = b'T';

/// The signals that stop, as bits of the kernel's masks.
const STOPS: u64 =
    1 << (libc::SIGSTOP - 1) | 1 << (libc::SIGTSTP - 1) | 1 << (libc::SIGTTIN - 1) | 1 << (libc::SIGTTOU - 1);

/// Whether another process has stopped an already stopped one. We never do: it must stay stopped after our resume.
pub(super) fn stops_again(stat: &TaskStat) -> bool {
    let pending = || {
        let status = bounded::text(format!("/proc/{}/status", stat.id), Limit::Value).ok()?;
        let masks = status.lines().filter_map(|line| line.strip_prefix("ShdPnd:").or(line.strip_prefix("SigPnd:")));
        Some(masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & STOPS != 0))
    };
    stat.state == STOPPED && pending().unwrap_or_default()
}

/// A process may be stopped, or will not be any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopRecord {
    /// A process may be stopped from now on until then and, if true, the process group and session that it leads.
    Stop(Identity, bool, End),
    /// A process was stopped by another one: it is not resumed with its group or session.
    Left(Identity),
    /// A process is not stopped any more, or is not ours to undo.
    Cont(Identity),
    /// A process stopped until then was resumed.
    Late(Identity, End),
}

impl fmt::Display for StopRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop((pid, start), leads, None) => write!(f, "stop {pid} {start} {}", u8::from(*leads)),
            Self::Stop((pid, start), leads, end) => {
                write!(f, "stop {pid} {start} {} {}", u8::from(*leads), end_word(*end))
            }
            Self::Left((pid, start)) => write!(f, "stands {pid} {start}"),
            Self::Cont((pid, start)) => write!(f, "cont {pid} {start}"),
            Self::Late((pid, start), end) => write!(f, "late {pid} {start} {}", end_word(*end)),
        }
    }
}

impl Record for StopRecord {
    type Effect = Stopped;

    fn parse(line: &str) -> Option<Self> {
        let id = |pid: &str, start: &str| Some((pid.parse().ok()?, start.parse().ok()?));
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["stop", pid, start, leads, ref end @ ..] if end.len() <= 1 => Some(Self::Stop(
                id(pid, start)?,
                leads.parse::<u8>().ok()? != 0,
                end.first().map_or(Some(None), |end| end_of(end))?,
            )),
            ["stands", pid, start] => Some(Self::Left(id(pid, start)?)),
            ["cont", pid, start] => Some(Self::Cont(id(pid, start)?)),
            ["late", pid, start, end] => Some(Self::Late(id(pid, start)?, end_of(end)?)),
            _ => None,
        }
    }
}

/// Processes that may be stopped because of us, whether their process group and session are included, and until when;
/// and their exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    ours: BTreeMap<Identity, (bool, End)>,
    left: BTreeSet<Identity>,
}

impl Effect for Stopped {
    type Record = StopRecord;

    fn enter(&mut self, record: &StopRecord) {
        match record {
            StopRecord::Stop(id, leads, end) => {
                self.left.remove(id);
                let ours = self.ours.entry(*id).or_default();
                *ours = (ours.0 || *leads, *end);
            }
            StopRecord::Left(id) => drop(self.left.insert(*id)),
            StopRecord::Cont(id) => {
                self.left.remove(id);
                self.ours.remove(id);
            }
            StopRecord::Late(id, end) => {
                if self.ours.get(id).is_some_and(|(_, until)| until == end) {
                    self.ours.remove(id);
                }
            }
        }
    }

    fn knows(&self, record: &StopRecord) -> bool {
        match record {
            StopRecord::Stop(id, leads, end) => {
                let known = |(known, until): &(bool, End)| known >= leads && until == end;
                !self.left.contains(id) && self.ours.get(id).is_some_and(known)
            }
            StopRecord::Left(id) => self.left.contains(id),
            StopRecord::Cont(id) => !self.ours.contains_key(id) && !self.left.contains(id),
            StopRecord::Late(id, end) => self.ours.get(id).is_none_or(|(_, until)| until != end),
        }
    }

    fn essential(&self, _: Vec<StopRecord>, living: &Living) -> Vec<StopRecord> {
        let lives = |pid: u32, leads: bool| living.processes.contains(&pid) || leads && living.sessions.contains(&pid);
        let needed = self.ours.iter().filter(|((pid, _), (leads, _))| lives(*pid, *leads));
        let left = self.left.iter().filter(|(pid, _)| lives(*pid, false));
        let needed = needed.map(|(id, (leads, end))| StopRecord::Stop(*id, *leads, *end));
        needed.chain(left.map(|id| StopRecord::Left(*id))).collect()
    }

    fn let_run(&self, by: Option<Duration>, report: &mut RestoreReport) -> Vec<StopRecord> {
        let due = self.ours.iter().filter(|(_, (_, end))| is_due(*end, by));
        let due = Self { ours: due.map(|(id, ours)| (*id, *ours)).collect(), left: self.left.clone() };
        let stuck = due.cont("resume.late", report);
        let runs = due.ours.iter().filter(|(id, _)| !stuck.contains(id));
        runs.map(|(id, (_, end))| StopRecord::Late(*id, *end)).collect()
    }

    fn undo(&self, _: &Undoer<'_>, report: &mut RestoreReport) -> Vec<StopRecord> {
        let stuck = self.cont("resume.signal", report);
        stuck.into_iter().map(|id| StopRecord::Stop(id, false, None)).collect()
    }
}

impl Stopped {
    /// Whether it may be stopped by itself or with its group, according to the journal.
    pub(super) fn holds(&self, id: Identity) -> bool {
        self.ours.contains_key(&id)
    }

    /// Resumes all of it; returns those that cannot be signalled.
    fn cont(&self, step: &'static str, report: &mut RestoreReport) -> Vec<Identity> {
        let mut left = Vec::new();
        if self.ours.is_empty() {
            return left;
        }
        // Also by descent, because the group may have grown after the last look.
        for pid in numbers_in("/proc") {
            let Some(stat) = process_stat(pid).filter(|stat| !stat.is_dead()) else { continue };
            if !self.concerns(pid, &stat) || stops_again(&stat) {
                continue;
            }
            let Ok(held) = Held::open_exactly(pid, pid, stat.start_ticks) else { continue };
            // Whether stopped or not: a pending stop is cancelled by this.
            match around(step, || sys::kill(pid, libc::SIGCONT)) {
                Ok(()) if held.stat.state == STOPPED => report.resumed += 1,
                Ok(()) => {}
                Err(_) if !held.lives() => {}
                Err(why) => {
                    report.fail(format!("process {pid} may still be stopped: {why}; as root, kill -CONT {pid}"));
                    left.push((pid, stat.start_ticks));
                }
            }
        }
        left
    }

    /// Whether a process may be paused because of us: by itself, or with the group or session of such a process.
    fn concerns(&self, pid: u32, stat: &TaskStat) -> bool {
        let of = |leader: u32| {
            let mut leaders = self.ours.range((leader, 0)..=(leader, u64::MAX));
            leaders.any(|((_, start), (leads, _))| *leads && stat.start_ticks >= *start)
        };
        let id = (pid, stat.start_ticks);
        !self.left.contains(&id) && (self.ours.contains_key(&id) || of(stat.pgrp) || of(stat.session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_keeps_who_may_still_wait() {
        let stop = |pid, leads| StopRecord::Stop((pid, 1), leads, None);
        let left = |pid| StopRecord::Left((pid, 1));
        let cont = |pid| StopRecord::Cont((pid, 1));
        let records = vec![
            stop(10, false), // lives
            stop(11, false), // has ended
            stop(12, true),  // has ended, its session has not
            stop(13, false), // alive, and an exception
            cont(13),
            left(14), // stopped by itself
            left(15), // and has ended
            left(13),
            cont(13),
        ];
        for record in &records {
            assert_eq!(StopRecord::parse(&record.to_string()).as_ref(), Some(record));
        }
        let written: Vec<String> = records[2..].iter().map(StopRecord::to_string).collect();
        let ended = |pid| StopRecord::Stop((pid, 1), true, Some(Duration::from_nanos(7)));
        assert_eq!(ended(9).to_string(), "stop 9 1 1 7");
        for record in [ended(9), StopRecord::Late((9, 1), Some(Duration::from_nanos(7)))] {
            assert_eq!(StopRecord::parse(&record.to_string()), Some(record));
        }
        assert_eq!(written[..4], ["stop 12 1 1", "stop 13 1 0", "cont 13 1", "stands 14 1"], "as ever");
        let folded = |records: &[StopRecord]| {
            let mut stopped = Stopped::default();
            for record in records {
                stopped.enter(record);
            }
            stopped
        };
        let mut whole = folded(&records);
        let living = Living { processes: [10, 13, 14].into(), sessions: [12].into() };
        let kept = whole.essential(records, &living);
        assert_eq!(kept, [stop(10, false), stop(12, true), left(14)]);
        assert_ne!(whole, folded(&kept), "who has ended is forgotten");
        whole.enter(&cont(11));
        whole.enter(&cont(15));
        assert_eq!(whole, folded(&kept));
    }
}
