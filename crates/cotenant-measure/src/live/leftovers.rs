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

/// Signals all that `left` finds, again and again, until it finds nothing; returns how many processes that were. `left`
/// waits a moment before it looks again.
fn end_all(mut left: impl FnMut() -> BTreeSet<u32>) -> usize {
    let mut ended: BTreeSet<u32> = BTreeSet::new();
    for (signal, patience) in ENDING {
        let (begin, mut asked) = (Instant::now(), BTreeSet::new());
        // Each signal is sent, however long this process itself was held up.
        loop {
            let pids = left();
            if pids.is_empty() {
                return ended.len();
            }
            for &pid in pids.difference(&asked) {
                let _ = sys::kill(pid, signal); // seen alive just now, in the tree that we started
            }
            ended.extend(&pids);
            asked.extend(pids);
            if begin.elapsed() >= patience {
                break;
            }
        }
    }
    ended.len()
}

/// Ends what is left of a program; returns how many processes that were.
pub fn end(host: &mut LinuxHost) -> usize {
    let mut next = None;
    end_all(|| {
        if next.is_some_and(|next| host.wait(next) == Wake::Exit) {
            // Orphans are our children now: only we can reap them.
            std::thread::sleep(Duration::from_millis(5));
            while sys::reap().is_some() {}
        }
        let Ok(sample) = host.sample() else { return BTreeSet::new() };
        next = Some(sample.at + LOOK);
        sample.tasks.iter().map(|task| task.info.pid).collect()
    })
}

/// Processes whose parent is this one.
pub fn children() -> BTreeSet<u32> {
    let own = std::process::id();
    // Without /proc nothing here can be watched, which is said elsewhere.
    let Ok(listed) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let pids = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: &u32| Some(TaskStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?).ok()?.ppid);
    pids.filter(|pid| parent(pid) == Some(own)).collect()
}

/// Ends what programs left behind that no sample has seen, as where they ran unsampled: orphans are our children.
/// Returns how many processes that were.
pub fn end_orphans(ours: &BTreeSet<u32>) -> usize {
    let mut pause = Duration::ZERO;
    end_all(|| {
        std::thread::sleep(std::mem::replace(&mut pause, Duration::from_millis(1)));
        while sys::reap().is_some() {}
        children().difference(ours).copied().collect()
    })
}
