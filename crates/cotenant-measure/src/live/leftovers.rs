//! Ending what a program that we ran left behind.

use cotenant_linux::host::LinuxHost;
use cotenant_linux::sys;
use cotenant_model::proc_text::TaskStat;
use cotenant_model::{Host, Wake};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Time between looks.
const LOOK: Duration = Duration::from_millis(50);
/// Time that a program has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Time that a killed one has: as soon as it has a turn it is gone, unless the kernel holds it.
const KILLED: Duration = Duration::from_secs(10);
/// SIGTERM, then SIGKILL.
const ENDING: [(i32, Duration); 2] = [(15, GRACE), (9, KILLED)];

/// Ends what is left of a program; returns how many processes that were.
pub fn end(host: &mut LinuxHost) -> usize {
    let mut ended: BTreeSet<u32> = BTreeSet::new();
    for (signal, patience) in ENDING {
        let (begin, mut asked) = (Instant::now(), BTreeSet::new());
        // Each signal is sent, however long this process itself was held up.
        loop {
            let Ok(sample) = host.sample() else { return ended.len() };
            let pids: BTreeSet<u32> = sample.tasks.iter().map(|task| task.info.pid).collect();
            if pids.is_empty() {
                return ended.len();
            }
            for &pid in pids.iter().filter(|pid| !asked.contains(*pid)) {
                let _ = sys::kill(pid, signal); // seen alive just now, in the tree that we started
            }
            ended.extend(&pids);
            asked.extend(pids);
            if host.wait(sample.at + LOOK) == Wake::Exit {
                // Orphans are our children now: only we can reap them.
                std::thread::sleep(Duration::from_millis(5));
                while sys::reap().is_some() {}
            }
            if begin.elapsed() >= patience {
                break;
            }
        }
    }
    ended.len()
}

/// Processes whose parent is this one.
pub fn children() -> BTreeSet<u32> {
    let own = std::process::id();
    let listed = fs::read_dir("/proc").into_iter().flatten();
    let pids = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: &u32| Some(TaskStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?).ok()?.ppid);
    pids.filter(|pid| parent(pid) == Some(own)).collect()
}

/// Ends what programs left behind that no sample has seen, as where they ran unsampled: orphans are our children.
/// Says how many.
pub fn end_orphans(ours: &BTreeSet<u32>) -> usize {
    let mut ended: BTreeSet<u32> = BTreeSet::new();
    for (signal, patience) in ENDING {
        let (begin, mut asked) = (Instant::now(), BTreeSet::new());
        loop {
            while sys::reap().is_some() {}
            let left: BTreeSet<u32> = children().difference(ours).copied().collect();
            if left.is_empty() {
                return ended.len();
            }
            for pid in left.difference(&asked) {
                let _ = sys::kill(*pid, signal); // our child, not reaped: the id is its own
            }
            ended.extend(&left);
            asked.extend(left);
            std::thread::sleep(Duration::from_millis(1));
            if begin.elapsed() >= patience {
                break;
            }
        }
    }
    ended.len()
}
