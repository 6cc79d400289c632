//! Processes that we have stopped by a signal, and resuming them.

use crate::fault::around;
use crate::sys;
use crate::sys::thread::{Held, Identity, numbers_in, process_stat};
use crate::undo::{Effect, Living, Record, RestoreReport, Undoer};
use cotenant_model::proc_text::TaskStat;
use std::collections::BTreeMap;
use std::fmt;

/// A process may be stopped, or will not be any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopRecord {
    /// A process may be stopped from now on, and, where true, the process group and the session that it leads.
    Stop(Identity, bool),
    /// A process will not be stopped any more.
    Cont(Identity),
}

impl fmt::Display for StopRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop((pid, start), leads) => write!(f, "stop {pid} {start} {}", u8::from(*leads)),
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
            ["cont", pid, start] => Some(Self::Cont((pid.parse().ok()?, start.parse().ok()?))),
            _ => None,
        }
    }
}

/// Processes that may be stopped because of us, and whether their process group and session are with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped(BTreeMap<Identity, bool>);

impl Effect for Stopped {
    type Record = StopRecord;

    fn enter(&mut self, record: &StopRecord) {
        match record {
            StopRecord::Stop(id, leads) => *self.0.entry(*id).or_default() |= leads,
            StopRecord::Cont(id) => drop(self.0.remove(id)),
        }
    }

    fn knows(&self, record: &StopRecord) -> bool {
        match record {
            StopRecord::Stop(id, leads) => self.0.get(id).is_some_and(|known| known >= leads),
            StopRecord::Cont(id) => !self.0.contains_key(id),
        }
    }

    fn essential(&self, _: Vec<StopRecord>, living: &Living) -> Vec<StopRecord> {
        let lives = |pid: u32, leads: bool| living.processes.contains(&pid) || leads && living.sessions.contains(&pid);
        let needed = self.0.iter().filter(|((pid, _), leads)| lives(*pid, **leads));
        needed.map(|(id, leads)| StopRecord::Stop(*id, *leads)).collect()
    }

    fn undo(&self, _: &Undoer<'_>, report: &mut RestoreReport) -> Vec<StopRecord> {
        let mut left = Vec::new();
        if self.0.is_empty() {
            return left;
        }
        // By descent as well: the group may have grown after the last look at it.
        for pid in numbers_in("/proc") {
            let Some(stat) = process_stat(pid).filter(|stat| !stat.is_dead()) else { continue };
            if !self.concerns(pid, &stat) {
                continue;
            }
            let Ok(held) = Held::open_exactly(pid, pid, stat.start_ticks) else { continue };
            // Whether it stands still or not: a stop may be on its way to it, and is taken back by this.
            match around("resume.signal", || sys::kill(pid, libc::SIGCONT)) {
                Ok(()) if held.stat.state == b'T' => report.resumed += 1,
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
            let mut leaders = self.0.range((leader, 0)..=(leader, u64::MAX));
            leaders.any(|((_, start), leads)| *leads && stat.start_ticks >= *start)
        };
        self.0.contains_key(&(pid, stat.start_ticks)) || of(stat.pgrp) || of(stat.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_keeps_who_may_still_wait() {
        let stop = |pid, leads| StopRecord::Stop((pid, 1), leads);
        let cont = |pid| StopRecord::Cont((pid, 1));
        let records = vec![
            stop(10, false), // lives
            stop(11, false), // has ended
            stop(12, true),  // has ended, its session has not
            stop(13, false), // lives, and is let alone
            cont(13),
        ];
        for record in &records {
            assert_eq!(StopRecord::parse(&record.to_string()).as_ref(), Some(record));
        }
        let written: Vec<String> = records[2..].iter().map(StopRecord::to_string).collect();
        assert_eq!(written, ["stop 12 1 1", "stop 13 1 0", "cont 13 1"], "as ever");
        let folded = |records: &[StopRecord]| {
            let mut stopped = Stopped::default();
            for record in records {
                stopped.enter(record);
            }
            stopped
        };
        let mut whole = folded(&records);
        let living = Living { processes: [10, 13].into(), sessions: [12].into() };
        let kept = whole.essential(records, &living);
        assert_eq!(kept, [stop(10, false), stop(12, true)]);
        assert_ne!(whole, folded(&kept), "who has ended is forgotten");
        whole.enter(&cont(11));
        assert_eq!(whole, folded(&kept));
    }
}
