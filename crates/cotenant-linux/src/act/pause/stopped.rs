//! Processes that we have stopped by a signal, and resuming them.

use crate::bounded::{self, Limit};
use crate::fault::around;
use crate::sys;
use crate::sys::thread::{Held, Identity, numbers_in, process_stat};
use crate::undo::{Effect, Living, Record, RestoreReport, Undoer};
use cotenant_model::proc_text::TaskStat;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How the kernel calls a process that was stopped by a signal.
pub(super) const STOPPED: u8 = b'T';

/// The signals that stop, as bits of the kernel's masks.
const STOPS: u64 =
    1 << (libc::SIGSTOP - 1) | 1 << (libc::SIGTSTP - 1) | 1 << (libc::SIGTTIN - 1) | 1 << (libc::SIGTTOU - 1);

/// Whether another process has stopped one that stood still already. We never do: it is to stand still once we are done
/// with it.
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
    /// A process may be stopped from now on, and, where true, the process group and the session that it leads.
    Stop(Identity, bool),
    /// A process was stopped by another one: it is not resumed with its group or session.
    Left(Identity),
    /// A process is not stopped any more, or that is not ours to undo.
    Cont(Identity),
}

impl fmt::Display for StopRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop((pid, start), leads) => write!(f, "stop {pid} {start} {}", u8::from(*leads)),
            Self::Left((pid, start)) => write!(f, "stands {pid} {start}"),
            Self::Cont((pid, start)) => write!(f, "cont {pid} {start}"),
        }
    }
}

impl Record for StopRecord {
    type Effect = Stopped;

    fn parse(line: &str) -> Option<Self> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["stop", pid, start, leads] => {
                Some(Self::Stop((pid.parse().ok()?, start.parse().ok()?), leads.parse::<u8>().ok()? != 0))
            }
            ["stands", pid, start] => Some(Self::Left((pid.parse().ok()?, start.parse().ok()?))),
            ["cont", pid, start] => Some(Self::Cont((pid.parse().ok()?, start.parse().ok()?))),
            _ => None,
        }
    }
}

/// Processes that may be stopped because of us, and whether their process group and session are with them; and those of
/// these that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    ours: BTreeMap<Identity, bool>,
    left: BTreeSet<Identity>,
}

impl Effect for Stopped {
    type Record = StopRecord;

    fn enter(&mut self, record: &StopRecord) {
        match record {
            StopRecord::Stop(id, leads) => {
                self.left.remove(id);
                *self.ours.entry(*id).or_default() |= leads;
            }
            StopRecord::Left(id) => drop(self.left.insert(*id)),
            StopRecord::Cont(id) => {
                self.left.remove(id);
                self.ours.remove(id);
            }
        }
    }

    fn knows(&self, record: &StopRecord) -> bool {
        match record {
            StopRecord::Stop(id, leads) => {
                !self.left.contains(id) && self.ours.get(id).is_some_and(|known| known >= leads)
            }
            StopRecord::Left(id) => self.left.contains(id),
            StopRecord::Cont(id) => !self.ours.contains_key(id) && !self.left.contains(id),
        }
    }

    fn essential(&self, _: Vec<StopRecord>, living: &Living) -> Vec<StopRecord> {
        let lives = |pid: u32, leads: bool| living.processes.contains(&pid) || leads && living.sessions.contains(&pid);
        let needed = self.ours.iter().filter(|((pid, _), leads)| lives(*pid, **leads));
        let left = self.left.iter().filter(|(pid, _)| lives(*pid, false));
        let needed = needed.map(|(id, leads)| StopRecord::Stop(*id, *leads));
        needed.chain(left.map(|id| StopRecord::Left(*id))).collect()
    }

    fn undo(&self, _: &Undoer<'_>, report: &mut RestoreReport) -> Vec<StopRecord> {
        let mut left = Vec::new();
        if self.ours.is_empty() {
            return left;
        }
        // By descent as well: the group may have grown after the last look at it.
        for pid in numbers_in("/proc") {
            let Some(stat) = process_stat(pid).filter(|stat| !stat.is_dead()) else { continue };
            if !self.concerns(pid, &stat) || stops_again(&stat) {
                continue;
            }
            let Ok(held) = Held::open_exactly(pid, pid, stat.start_ticks) else { continue };
            // Whether it stands still or not: a stop may be on its way to it, and is taken back by this.
            match around("resume.signal", || sys::kill(pid, libc::SIGCONT)) {
                Ok(()) if held.stat.state == STOPPED => report.resumed += 1,
                Ok(()) => {}
                Err(_) if !held.lives() => {}
                Err(why) => {
                    report.fail(format!("process {pid} may stand still: {why}; as root, kill -CONT {pid}"));
                    left.push(StopRecord::Stop((pid, stat.start_ticks), false));
                }
            }
        }
        left
    }
}

impl Stopped {
    /// Whether a process may wait because of us: by itself, or with the group or session of one that does.
    fn concerns(&self, pid: u32, stat: &TaskStat) -> bool {
        let of = |leader: u32| {
            let mut leaders = self.ours.range((leader, 0)..=(leader, u64::MAX));
            leaders.any(|((_, start), leads)| *leads && stat.start_ticks >= *start)
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
        let stop = |pid, leads| StopRecord::Stop((pid, 1), leads);
        let left = |pid| StopRecord::Left((pid, 1));
        let cont = |pid| StopRecord::Cont((pid, 1));
        let records = vec![
            stop(10, false), // lives
            stop(11, false), // has ended
            stop(12, true),  // has ended, its session has not
            stop(13, false), // lives, and is let alone
            cont(13),
            left(14), // stands still by itself
            left(15), // and has ended
            left(13),
            cont(13),
        ];
        for record in &records {
            assert_eq!(StopRecord::parse(&record.to_string()).as_ref(), Some(record));
        }
        let written: Vec<String> = records[2..].iter().map(StopRecord::to_string).collect();
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
