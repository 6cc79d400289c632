//! Where the pages of each process are.

use crate::FsRoot;
use cotenant_core::{NodeId, Time, proc_text};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Not more often than this, and all processes together not more than this share of the time.
const EVERY: Duration = Duration::from_secs(1);
const SHARE: u32 = 100;

/// Resident pages by node of each process. Threads of one process share them: the kernel knows address spaces, not threads.
#[derive(Debug, Default)]
pub struct Pages {
    processes: HashMap<u32, Known>,
}

#[derive(Debug)]
struct Known {
    nodes: Option<Vec<(NodeId, u64)>>,
    next: Time,
}

impl Pages {
    /// Reads `numa_maps` of those processes whose turn it is; the more a read costs, the rarer the next.
    pub fn read(&mut self, fs: &FsRoot, live: impl ExactSizeIterator<Item = u32>, at: Time) {
        let share = SHARE.saturating_mul(live.len() as u32);
        let mut old = std::mem::take(&mut self.processes);
        for pid in live {
            let known = match old.remove(&pid) {
                Some(known) if known.next > at => known,
                _ => {
                    let begin = Instant::now();
                    let path = fs.path(&format!("/proc/{pid}/numa_maps"));
                    let nodes = std::fs::read(path).ok().map(|text| proc_text::pages_by_node(&text, page_kb()));
                    Known { nodes, next: at + EVERY.max(begin.elapsed().saturating_mul(share)) }
                }
            };
            self.processes.insert(pid, known);
        }
    }

    /// Of one process; `None` where it was not or cannot be read.
    pub fn of(&self, pid: u32) -> Option<Vec<(NodeId, u64)>> {
        self.processes.get(&pid)?.nodes.clone()
    }
}

fn page_kb() -> u64 {
    // SAFETY: takes a constant and has no other effect.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096) / 1024
}
