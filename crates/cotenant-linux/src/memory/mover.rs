//! Moving the memory of running programs to other nodes, bit by bit: the process stands still at most for as long as one call takes, which is measured.

use super::{files, is_bound};
use crate::FsRoot;
use cotenant_model::NodeId;
use cotenant_model::areas::{Area, Backing};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// A call that moves pages may take so long at most: its pages are not to be had meanwhile.
pub const LONGEST: Duration = Duration::from_millis(20);
/// What a call should take, and what all calls of one round may: the loop waits for them.
const AIM: Duration = Duration::from_millis(5);
const PER_ROUND: Duration = Duration::from_millis(20);

/// Pages per call: the first one, and at most.
const FIRST: usize = 16;
const MOST: usize = 4096;

/// `MPOL_MF_MOVE` of `linux/mempolicy.h`: only pages that the process has for itself.
const MOVE: libc::c_int = 2;

/// Why the memory of a process is not moved at all.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// It may not use that node.
    #[error("its cpuset does not allow memory of node {0}")]
    Cpuset(NodeId),
    /// All that is elsewhere was bound by the program or its user.
    #[error("what is elsewhere was bound by itself or its user (mbind, set_mempolicy, numactl), or is that of files")]
    Bound,
    /// The system says no.
    #[error("its memory cannot be moved: {0}")]
    System(#[from] io::Error),
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    /// Pages that are on their new node now.
    pages: u64,
    /// The longest that one call took.
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
    /// Ranges of addresses that are left.
    left: VecDeque<(u64, u64)>,
    batch: usize,
    moved: Moved,
}

/// Moves memory.
#[derive(Debug)]
pub struct Mover {
    fs: FsRoot,
    jobs: BTreeMap<u32, Job>,
    /// What has arrived, of all processes.
    done: Moved,
    notes: BTreeSet<String>,
}

/// `move_pages(2)`: how each page fared, its node now or a negative error. Without `nodes` nothing is moved.
pub(super) fn move_pages(
    pid: u32,
    pages: &[u64],
    nodes: Option<&[libc::c_int]>,
    status: &mut [libc::c_int],
) -> io::Result<()> {
    assert!(nodes.is_none_or(|nodes| pages.len() == nodes.len()) && pages.len() == status.len());
    // SAFETY: all arrays have that many elements and outlive the call, and that of nodes may be null; the kernel writes to the last one alone.
    // The addresses are of the other process and are not used here.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[_]>::as_ptr),
            status.as_mut_ptr(),
            if nodes.is_some() { MOVE } else { 0 },
        )
    };
    // A positive result counts pages that could not be moved; each has its reason in its status.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Areas with pages elsewhere than on these nodes: those that nobody bound and that are not files, from their first address to the end that `maps`
/// tells; and whether there are others, which stay.
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
        Self { fs: fs.clone(), jobs: BTreeMap::new(), done: Moved::default(), notes: BTreeSet::new() }
    }

    /// Begins to bring the memory of a process to these nodes, in equal parts. What is on its way to other nodes stops.
    ///
    /// # Errors
    /// [`MoveError`]; nothing was moved then.
    pub fn bring(&mut self, pid: u32, to: &[NodeId]) -> Result<(), MoveError> {
        if self.jobs.get(&pid).is_some_and(|job| job.to == to) {
            return Ok(());
        }
        let allowed = files::nodes_allowed(&self.fs, pid)?;
        if let Some(node) = to.iter().find(|node| !allowed.contains(cotenant_model::CpuId(node.0))) {
            return Err(MoveError::Cpuset(*node));
        }
        let (left, others) = far(&self.fs, pid, to)?;
        if left.is_empty() || to.is_empty() {
            return if others { Err(MoveError::Bound) } else { Ok(()) };
        }
        self.jobs.insert(pid, Job { to: to.to_vec(), left, batch: FIRST, moved: Moved::default() });
        Ok(())
    }

    /// Moves on what is on its way, for a bounded time.
    pub fn go_on(&mut self) {
        let begin = Instant::now();
        let pids: Vec<u32> = self.jobs.keys().copied().collect();
        for pid in pids {
            while begin.elapsed() < PER_ROUND {
                let Some(job) = self.jobs.get_mut(&pid) else { break };
                match job.step(pid) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.finish(pid);
                        break;
                    }
                    Err(e) => {
                        // That it has ended is no failure.
                        if e.raw_os_error() != Some(libc::ESRCH) {
                            self.notes.insert(format!("process {pid}: its memory cannot be moved: {e}"));
                        }
                        self.finish(pid);
                        break;
                    }
                }
            }
        }
    }

    fn finish(&mut self, pid: u32) {
        let Some(job) = self.jobs.remove(&pid) else { return };
        self.done.add(&job.moved);
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
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
    /// One call; false where nothing is left.
    fn step(&mut self, pid: u32) -> io::Result<bool> {
        let page = files::page_kb() * 1024;
        let mut pages = Vec::with_capacity(self.batch);
        while pages.len() < self.batch {
            let Some((start, end)) = self.left.front_mut() else { break };
            let take = (self.batch - pages.len()).min(((*end - *start) / page) as usize);
            pages.extend((0..take as u64).map(|i| *start + i * page));
            *start += take as u64 * page;
            if *start >= *end {
                self.left.pop_front();
            }
        }
        if pages.is_empty() {
            return Ok(false);
        }
        // First where they are, which stops nobody: only those elsewhere are moved.
        let mut status = vec![-1; pages.len()];
        move_pages(pid, &pages, None, &mut status)?;
        let node = |address: u64| self.to[(address / page) as usize % self.to.len()].0 as libc::c_int;
        let far: Vec<u64> = pages
            .iter()
            .zip(&status)
            .filter(|(page, on)| **on >= 0 && **on != node(**page))
            .map(|(page, _)| *page)
            .collect();
        if far.is_empty() {
            return Ok(true);
        }
        let nodes: Vec<libc::c_int> = far.iter().map(|page| node(*page)).collect();
        let mut status = vec![-1; far.len()];
        let begin = Instant::now();
        move_pages(pid, &far, Some(&nodes), &mut status)?;
        let took = begin.elapsed();
        self.moved.pages += status.iter().zip(&nodes).filter(|(on, to)| on == to).count() as u64;
        self.moved.longest = self.moved.longest.max(took);
        self.batch = next_batch(self.batch, far.len(), took);
        Ok(true)
    }
}

/// How many pages the next call may ask for: what would have taken [`AIM`], not more than twice as many as now, and few again after one that took
/// longer than [`LONGEST`].
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

    #[test]
    fn calls_grow_to_what_takes_the_time_that_is_aimed_at() {
        let ms = Duration::from_millis;
        assert_eq!(next_batch(16, 16, ms(1)), 32, "twice at most");
        assert_eq!(next_batch(64, 64, ms(8)), 40);
        assert_eq!(next_batch(4_000, 4_000, Duration::from_micros(100)), MOST);
        assert_eq!(next_batch(512, 512, ms(21)), FIRST, "too long");
        assert_eq!(next_batch(16, 1, ms(19)), 1);
    }
}
