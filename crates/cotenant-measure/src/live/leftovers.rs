//! Ends processes left behind by a program of ours.

use cotenant_linux::host::LinuxHost;
use cotenant_linux::sys;
use cotenant_model::proc_text::TaskStat;
use cotenant_model::{Host, Wake};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Interval between looks.
const LOOK: Duration = Duration::from_millis(50);
/// Time to end after a request.
const GRACE: Duration = Duration::from_secs(2);
/// Time for a killed process to disappear, unless the kernel holds it.
const KILLED: Duration = Duration::from_secs(10);
/// SIGTERM, then SIGKILL.
const ENDING: [(i32, Duration); 2] = [(15, GRACE), (9, KILLED)];

/// Signals all processes that `left` finds until it finds none; returns their number. `left` pauses before each look.
fn end_all(mut left: impl FnMut() -> BTreeSet<u32>) -> usize {
    let mut ended: BTreeSet<u32> = BTreeSet::new();
    for (signal, patience) in ENDING {
        let (begin, mut asked) = (Instant::now(), BTreeSet::new());
        // Each signal is sent however long this process was delayed.
        loop {
            let pids = left();
            if pids.is_empty() {
                return ended.len();
            }
            for &pid in pids.difference(&asked) {
                let _ = sys::kill(pid, signal); // seen alive just now, in our own process tree
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

/// Ends what is left of a program; returns the number of processes.
pub fn end(host: &mut LinuxHost) -> usize {
    let mut next = None;
    end_all(|| {
        if next.is_some_and(|next| host.wait(next) == Wake::Exit) {
            // Orphans are now our children, which only we can reap.
            std::thread::sleep(Duration::from_millis(5));
            while sys::reap().is_some() {}
        }
        let Ok(sample) = host.sample() else { return BTreeSet::new() };
        next = Some(sample.at + LOOK);
        sample.tasks.iter().map(|task| task.info.pid).collect()
    })
}

/// Child processes of this one.
pub fn children() -> BTreeSet<u32> {
    let own = std::process::id();
    // Without /proc nothing can be observed, which is reported elsewhere.
    let Ok(listed) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let pids = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: &u32| Some(TaskStat::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?).ok()?.ppid);
    pids.filter(|pid| parent(pid) == Some(own)).collect()
}

/// Ends orphans that no sample has seen, for example of unsampled runs. Returns the number of processes.
pub fn end_orphans(ours: &BTreeSet<u32>) -> usize {
    let mut pause = Duration::ZERO;
    end_all(|| {
        std::thread::sleep(std::mem::replace(&mut pause, Duration::from_millis(1)));
        while sys::reap().is_some() {}
        children().difference(ours).copied().collect()
    })
}
