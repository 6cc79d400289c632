//! Moves the memory of running programs to other nodes in small steps: a process stalls at most for one call, whose
//! duration is measured.

use crate::FsRoot;
use crate::address_space::{self, Door, What};
use crate::notes::Notes;
use crate::sense::memory::{files, is_bound};
use crate::sys::page_size;
use crate::sys::thread::{Held, SetError};
use crate::undo::Journal;
use cotenant_model::areas::{Area, Backing};
use cotenant_model::{NodeId, Outcome, TaskInfo};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// Limit of a page-moving call, which blocks the process's access to its pages.
pub const LONGEST: Duration = Duration::from_millis(20);
/// Target of a call, and of all calls of one round, for which the loop waits.
const AIM: Duration = Duration::from_millis(5);
const PER_ROUND: Duration = Duration::from_millis(20);

/// Pages per call: the first one, and the limit.
const FIRST: usize = 16;
const MOST: usize = 4096;

/// Why nothing of a process is moved despite misplaced pages.
const BOUND: &str =
    "what is elsewhere was bound by itself or its user (mbind, set_mempolicy, numactl), or is that of files";

/// Its results.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    /// Pages on their new node now.
    pages: u64,
    /// The longest call.
    longest: Duration,
}

impl Moved {
    fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.longest = self.longest.max(other.longest);
    }
}

/// Memory that is on its way.
#[derive(Debug)]
struct Job {
    to: Vec<NodeId>,
    /// Remaining ranges of addresses.
    left: VecDeque<(u64, u64)>,
    /// Whether some were requested without a known result.
    asked: bool,
    batch: usize,
    moved: Moved,
}

/// Moves memory.
#[derive(Debug)]
pub struct Mover {
    fs: FsRoot,
    jobs: BTreeMap<u32, Job>,
    /// Totals over all processes.
    done: Moved,
    notes: Notes,
}

/// Areas with pages off these nodes, unbound and not of files, from their first address to the end in `maps`; and
/// whether there are others, which stay.
fn far(fs: &FsRoot, pid: u32, to: &[NodeId]) -> io::Result<(VecDeque<(u64, u64)>, bool)> {
    let is_far = |area: &Area| to.len() > 1 || area.pages.iter().any(|(node, n)| *n > 0 && !to.contains(node));
    let areas: Vec<Area> = files::areas(fs, pid)?.into_iter().filter(is_far).collect();
    let free = |area: &&Area| !is_bound(area) && area.backing == Backing::Anonymous;
    let ends = files::ends(fs, pid)?;
    let movable = areas.iter().filter(free).filter_map(|area| Some((area.start, *ends.get(&area.start)?)));
    Ok((movable.collect(), !areas.is_empty()))
}

impl Mover {
    /// Moves memory of the processes below that root.
    pub fn new(fs: &FsRoot) -> Self {
        Self { fs: fs.clone(), jobs: BTreeMap::new(), done: Moved::default(), notes: Notes::default() }
    }

    /// Begins to move the memory of a process to these nodes, in equal parts. A move to other nodes stops.
    ///
    /// # Errors
    /// The reason or the system's error; nothing was moved then.
    pub fn bring(&mut self, pid: u32, to: &[NodeId]) -> io::Result<()> {
        if self.jobs.get(&pid).is_some_and(|job| job.to == to) {
            return Ok(());
        }
        let allowed = files::nodes_allowed(&self.fs, pid)?;
        if let Some(node) = to.iter().find(|node| !allowed.contains(cotenant_model::CpuId(node.0))) {
            return Err(io::Error::other(format!("its cpuset does not allow memory of node {node}")));
        }
        let (left, others) = far(&self.fs, pid, to)?;
        if left.is_empty() || to.is_empty() {
            return if others { Err(io::Error::other(BOUND)) } else { Ok(()) };
        }
        self.jobs.insert(pid, Job { to: to.to_vec(), left, asked: false, batch: FIRST, moved: Moved::default() });
        Ok(())
    }

    /// Begins to move a task's memory to these nodes, as far as allowed.
    pub fn apply(&mut self, journal: &mut Journal, info: &TaskInfo, nodes: &[NodeId]) -> Outcome {
        let held = match Held::open_exactly(info.pid, info.tid, info.start_ticks) {
            Ok(held) => held,
            Err(SetError::Recycled) => return Outcome::Stale,
            Err(_) => return Outcome::Gone,
        };
        match journal.may_touch(&held).and_then(|()| self.bring(info.pid, nodes).map_err(|e| e.to_string())) {
            Ok(()) => Outcome::Applied,
            Err(why) => {
                self.notes.add(format!("{} ({}): its memory stays where it is: {why}", info.comm, info.pid));
                Outcome::Denied
            }
        }
    }

    /// Continues moves for a bounded time.
    pub fn go_on(&mut self) {
        let begin = Instant::now();
        let pids: Vec<u32> = self.jobs.keys().copied().collect();
        for pid in pids {
            while begin.elapsed() < PER_ROUND {
                let Some(job) = self.jobs.get_mut(&pid) else { break };
                let moved = job.step(&self.fs, pid);
                if moved.as_ref().is_err_and(address_space::is_late) {
                    break; // requested again in the next round
                }
                // Its end is no failure.
                if let Some(e) = moved.as_ref().err().filter(|e| e.raw_os_error() != Some(libc::ESRCH)) {
                    self.notes.add(format!("process {pid}: its memory cannot be moved: {e}"));
                }
                if !matches!(moved, Ok(true)) {
                    self.forget(pid);
                }
            }
        }
    }

    /// Stops moving a process's memory.
    pub fn forget(&mut self, pid: u32) {
        let Some(job) = self.jobs.remove(&pid) else { return };
        self.done.add(&job.moved);
    }

    /// Remarks for people.
    pub fn notes(&self) -> Vec<String> {
        let mut all = self.done;
        self.jobs.values().for_each(|job| all.add(&job.moved));
        let sum = (all.pages > 0).then(|| {
            format!(
                "{} pages were moved to other nodes and stay there; no call took longer than {:.1} ms",
                all.pages,
                all.longest.as_secs_f64() * 1e3
            )
        });
        self.notes.iter().cloned().chain(sum).collect()
    }
}

impl Job {
    /// One call; false if nothing is left.
    fn step(&mut self, fs: &FsRoot, pid: u32) -> io::Result<bool> {
        let page = page_size() as u64;
        let mut pages = Vec::with_capacity(self.batch);
        while pages.len() < self.batch && !self.asked {
            let Some((start, end)) = self.left.front_mut() else { break };
            let take = (self.batch - pages.len()).min(((*end - *start) / page) as usize);
            pages.extend((0..take as u64).map(|i| *start + i * page));
            *start += take as u64 * page;
            if *start >= *end {
                self.left.pop_front();
            }
        }
        if pages.is_empty() && !self.asked {
            return Ok(false);
        }
        let to = self.to.clone();
        let answer = address_space::ask(fs, pid, What::Move, move |door| bring(door, &pages, &to));
        self.asked = answer.as_ref().is_err_and(address_space::is_late);
        if let Some((moved, far)) = answer? {
            self.moved.add(&moved);
            self.batch = next_batch(self.batch, far, moved.longest);
        }
        Ok(true)
    }
}

/// Moves the misplaced ones of the pages, with their number; `None` without any.
fn bring(door: &Door, pages: &[u64], to: &[NodeId]) -> io::Result<Option<(Moved, usize)>> {
    // The query stops no task, so that only misplaced pages are moved.
    let mut status = vec![-1; pages.len()];
    door.move_pages(pages, None, &mut status)?;
    let node = |address: u64| to[(address / page_size() as u64) as usize % to.len()].0 as libc::c_int;
    let far: Vec<u64> = pages
        .iter()
        .zip(&status)
        .filter(|(page, on)| **on >= 0 && **on != node(**page))
        .map(|(page, _)| *page)
        .collect();
    if far.is_empty() {
        return Ok(None);
    }
    let nodes: Vec<libc::c_int> = far.iter().map(|page| node(*page)).collect();
    let mut status = vec![-1; far.len()];
    let begin = Instant::now();
    door.move_pages(&far, Some(&nodes), &mut status)?;
    let pages = status.iter().zip(&nodes).filter(|(on, to)| on == to).count() as u64;
    Ok(Some((Moved { pages, longest: begin.elapsed() }, far.len())))
}

/// Pages of the next call: as many as [`AIM`] allows, at most doubled, and few after a call longer than [`LONGEST`].
fn next_batch(now: usize, moved: usize, took: Duration) -> usize {
    if took > LONGEST {
        return FIRST;
    }
    let per_page = took.as_secs_f64() / moved.max(1) as f64;
    let fitting = (AIM.as_secs_f64() / per_page.max(1e-9)) as usize;
    fitting.clamp(1, 2 * now).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    #[test]
    fn calls_grow_to_what_takes_the_time_that_is_aimed_at() {
        let ms = Duration::from_millis;
        assert_eq!(next_batch(16, 16, ms(1)), 32, "twice at most");
        assert_eq!(next_batch(64, 64, ms(8)), 40);
        assert_eq!(next_batch(4_000, 4_000, Duration::from_micros(100)), MOST);
        assert_eq!(next_batch(512, 512, ms(21)), FIRST, "too long");
        assert_eq!(next_batch(16, 1, ms(19)), 1);
    }

    #[test]
    fn memory_moves_only_where_it_may() {
        let fs = FsRoot::live();
        let me = std::process::id();
        let mut mover = Mover::new(&fs);
        let Ok(allowed) = files::nodes_allowed(&fs, me) else {
            eprintln!("skipped: this kernel tells of no memory nodes");
            return;
        };
        let refused = mover.bring(me, &[NodeId(999)]).unwrap_err();
        assert!(refused.to_string().contains("cpuset"), "{refused}");
        // With one node everything is there already.
        let here = NodeId(allowed.first().unwrap().0);
        match mover.bring(me, &[here]) {
            Ok(()) => {}
            Err(e) => {
                eprintln!("skipped: memory cannot be moved here ({e})");
                return;
            }
        }
        while !mover.jobs.is_empty() {
            mover.go_on();
        }
        if allowed.len() == 1 {
            assert!(mover.notes().is_empty(), "{:?}", mover.notes());
        }
    }

    /// Holds place/move-pages.
    #[test]
    fn bound_memory_is_never_moved() {
        let tree = TempDir::new("bound");
        tree.write("proc/7/status", "Name:\tx\nMems_allowed_list:\t0-1\n");
        tree.write("proc/7/maps", "1000-9000 rw-p 0 0 0\n20000-30000 rw-p 0 0 0\n40000-50000 r-xp 0 0 0 /bin/x\n");
        tree.write(
            "proc/7/numa_maps",
            "1000 bind:0 anon=4 N0=4\n20000 interleave:0-1 anon=4 N0=2 N1=2\n40000 default file=/bin/x mapped=3 N0=3\n",
        );
        let mut mover = Mover::new(&FsRoot::at(tree.path()));
        assert!(mover.bring(7, &[NodeId(1)]).unwrap_err().to_string().contains("was bound"));
        assert!(
            mover.bring(7, &[NodeId(2)]).unwrap_err().to_string().contains("cpuset does not allow memory of node 2")
        );
        assert!(mover.jobs.is_empty());
        // Only bound pages are off node 0; a few of its own there make no other node.
        tree.write("proc/7/maps", "1000-9000 rw-p 0 0 0\n20000-30000 rw-p 0 0 0\n");
        tree.write("proc/7/numa_maps", "1000 bind:1 anon=4 N1=4\n20000 default anon=4 N0=4\n");
        assert!(mover.bring(7, &[NodeId(0)]).unwrap_err().to_string().contains("was bound"));
        tree.write("proc/7/numa_maps", "20000 default anon=4 N0=4\n");
        assert!(mover.bring(7, &[NodeId(0)]).is_ok() && mover.jobs.is_empty(), "it is there already");
    }
}
