//! Accessed bits of single pages: marked as idle in `/sys/kernel/mm/page_idle/bitmap`, and read back
//! (`Documentation/admin-guide/mm/idle_page_tracking.rst`). Unlike `clear_refs`, which covers whole address spaces,
//! this works for random pages; and the kernel remembers for its own purposes that a marked page was in use.

use crate::FsRoot;
use crate::address_space::{self, Door, What};
use crate::sys::page_size;
use cotenant_model::NodeId;
use cotenant_model::areas::page_samples::{self, Estimate, Found, Stratum};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const BITMAP: &str = "/sys/kernel/mm/page_idle/bitmap";
const FLAGS: &str = "/proc/kpageflags";

/// Bits of `/proc/PID/pagemap` (`Documentation/admin-guide/mm/pagemap.rst`): whether a page is in memory, and the
/// number of its frame.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Bits of `/proc/kpageflags`: evictable, and part of a huge page but not its first.
const LRU: u64 = 1 << 5;
const TAIL: u64 = 1 << 16;

/// The largest huge page searched for around a part of it: 2¹⁸ base pages, 1 GiB of small ones.
const LARGEST_ORDER: u32 = 18;

/// A page that was marked.
#[derive(Clone, Copy, Debug)]
struct Mark {
    stratum: usize,
    address: u64,
    /// Its frame, and that of the enclosing huge page, which has the bit.
    frame: u64,
    head: u64,
}

/// Pages of a process marked as idle.
#[derive(Clone, Debug)]
pub struct Marked {
    strata: Vec<Stratum>,
    /// Per stratum: drawn pages that are not in memory, or have no visible bits.
    absent: Vec<u64>,
    marks: Vec<Mark>,
}

/// The node of a frame.
#[derive(Debug)]
enum Nodes {
    One(NodeId),
    /// By blocks of memory of this many bytes.
    Blocks(u64, HashMap<u64, NodeId>),
}

/// Marks pages and looks them up.
#[derive(Clone, Debug)]
pub struct IdlePages {
    fs: FsRoot,
    nodes: Arc<Nodes>,
}

/// The word at that index; 0 after the end.
fn word(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, at.saturating_mul(8)) {
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(e),
        _ => Ok(u64::from_ne_bytes(bytes)),
    }
}

impl Nodes {
    fn read(fs: &FsRoot) -> Option<Self> {
        let folder = "/sys/devices/system/node";
        let nodes = match fs.numbered(folder, "node") {
            Ok(nodes) => nodes,
            Err(why) if why.kind() == io::ErrorKind::NotFound => Vec::new(), // a kernel without NUMA
            Err(_) => return None,
        };
        if nodes.len() < 2 {
            return Some(Self::One(NodeId(nodes.first().copied().unwrap_or(0))));
        }
        let mut by_block: HashMap<u64, NodeId> = HashMap::new();
        for node in nodes {
            let blocks = fs.numbered(&format!("{folder}/node{node}"), "memory").ok()?;
            by_block.extend(blocks.into_iter().map(|block| (block.into(), NodeId(node))));
        }
        let bytes =
            u64::from_str_radix(fs.read("/sys/devices/system/memory/block_size_bytes").ok()?.trim(), 16).ok()?;
        (bytes > 0 && !by_block.is_empty()).then_some(Self::Blocks(bytes, by_block))
    }

    fn of(&self, frame: u64) -> Option<NodeId> {
        match self {
            Self::One(node) => Some(*node),
            Self::Blocks(bytes, nodes) => nodes.get(&(frame.saturating_mul(page_size() as u64) / bytes)).copied(),
        }
    }
}

impl IdlePages {
    /// # Errors
    /// Why it cannot be used here.
    pub fn new(fs: &FsRoot) -> Result<Self, String> {
        if !fs.exists(BITMAP) {
            return Err(format!("the kernel has no {BITMAP} (CONFIG_IDLE_PAGE_TRACKING)"));
        }
        let open = |path: &str, write| OpenOptions::new().read(true).write(write).open(fs.path(path));
        if let Err(e) = open(BITMAP, true).and_then(|_| open(FLAGS, false)) {
            return Err(format!("only root may use {BITMAP} and {FLAGS} ({e})"));
        }
        let nodes = Nodes::read(fs)
            .ok_or("the kernel does not tell which node a block of memory belongs to (CONFIG_MEMORY_HOTPLUG)")?;
        Ok(Self { fs: fs.clone(), nodes: Arc::new(nodes) })
    }

    /// Marks random pages of these ranges.
    ///
    /// # Errors
    /// System errors; `NotFound` if the process has ended; [`address_space::is_late`].
    pub fn mark(&self, pid: u32, strata: Vec<Stratum>, rng: &mut fastrand::Rng) -> io::Result<Marked> {
        let (this, mut rng) = (self.clone(), rng.fork());
        address_space::ask(&self.fs, pid, What::Mark, move |door| this.mark_through(door, strata, &mut rng))
    }

    fn mark_through(&self, door: &Door, strata: Vec<Stratum>, rng: &mut fastrand::Rng) -> io::Result<Marked> {
        let page = page_size() as u64;
        let pagemap = File::open(door.path())?;
        let flags = File::open(self.fs.path(FLAGS))?;
        let mut marked = Marked { absent: vec![0; strata.len()], strata, marks: Vec::new() };
        // Frames that share a word of the bitmap are marked together.
        let mut words: BTreeMap<u64, u64> = BTreeMap::new();
        for (stratum, drawn) in marked.strata.iter().enumerate() {
            for address in drawn.draw(page, rng) {
                let entry = word(&pagemap, address / page)?;
                let frame = entry & FRAME;
                let head = if entry & PRESENT == 0 { None } else { head(&flags, frame)? };
                match head {
                    Some(head) => {
                        marked.marks.push(Mark { stratum, address, frame, head });
                        *words.entry(head / 64).or_default() |= 1 << (head % 64);
                    }
                    None => marked.absent[stratum] += 1,
                }
            }
        }
        let bitmap = OpenOptions::new().write(true).open(self.fs.path(BITMAP))?;
        for (at, bits) in words {
            bitmap.write_all_at(&bits.to_ne_bytes(), at * 8)?;
        }
        Ok(marked)
    }

    /// Number of pages accessed since they were marked, by node.
    ///
    /// # Errors
    /// As [`Self::mark`].
    pub fn look(&self, pid: u32, marked: &Marked) -> io::Result<Estimate> {
        let (this, marked) = (self.clone(), marked.clone());
        address_space::ask(&self.fs, pid, What::LookUp, move |door| this.look_through(door, &marked))
    }

    fn look_through(&self, door: &Door, marked: &Marked) -> io::Result<Estimate> {
        let page = page_size() as u64;
        let pagemap = File::open(door.path())?;
        let bitmap = File::open(self.fs.path(BITMAP))?;
        let mut found: Vec<Found> =
            marked.absent.iter().map(|&looked| Found { looked, hits: BTreeMap::new() }).collect();
        let mut words: HashMap<u64, u64> = HashMap::new();
        for mark in &marked.marks {
            // A moved or freed page is inconclusive: its former frame belongs to others.
            let entry = word(&pagemap, mark.address / page)?;
            let Some(node) = self.nodes.of(mark.frame).filter(|_| entry & PRESENT != 0 && entry & FRAME == mark.frame)
            else {
                continue;
            };
            let at = mark.head / 64;
            let bits = match words.get(&at) {
                Some(bits) => *bits,
                None => *words.entry(at).or_insert(word(&bitmap, at)?),
            };
            found[mark.stratum].looked += 1;
            if bits >> (mark.head % 64) & 1 == 0 {
                *found[mark.stratum].hits.entry(node).or_default() += 1;
            }
        }
        Ok(page_samples::estimate(marked.strata.iter().copied().zip(found)))
    }
}

/// The frame whose bit represents this one: itself, or the head of its huge page; `None` for invisible kinds (reserved
/// huge pages, the zero page, pages under migration).
fn head(flags: &File, frame: u64) -> io::Result<Option<u64>> {
    for order in 0..=LARGEST_ORDER {
        let candidate = frame >> order << order;
        let bits = word(flags, candidate)?;
        // Everything between the first page of a huge one and this one is part of it.
        if bits & TAIL == 0 {
            return Ok((bits & LRU != 0).then_some(candidate));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    /// A made-up machine of two nodes with 64 MiB in blocks of 16 MiB, and a process 7 whose 4,096 pages from address 0
    /// on are in frames from 4,096: the first half on node 0, the rest on node 1. Its last 512 pages are one huge page.
    fn machine(name: &str) -> (TempDir, FsRoot, Stratum) {
        let page = page_size() as u64;
        let tree = TempDir::new(name);
        let entries: Vec<u8> = (0..4096_u64).flat_map(|i| (PRESENT | (4096 + i)).to_ne_bytes()).collect();
        tree.write("proc/7/pagemap", entries);
        let flag = |i: u64| if i > 4096 + 3584 { TAIL } else { LRU };
        tree.write("proc/kpageflags", (0..8192).flat_map(|i| flag(i).to_ne_bytes()).collect::<Vec<u8>>());
        tree.write("sys/kernel/mm/page_idle/bitmap", vec![0; 8192 / 8]);
        tree.write("sys/devices/system/memory/block_size_bytes", format!("{:x}\n", 2048 * page));
        for (node, block) in [(0, 0), (0, 1), (0, 2), (1, 3)] {
            tree.write(&format!("sys/devices/system/node/node{node}/memory{block}/state"), "online\n");
        }
        let fs = FsRoot::at(tree.path());
        (tree, fs, Stratum { start: 0, pages: 4096, draws: 1024 })
    }

    /// Accesses pages: clears their bits, for a huge page that of its first one.
    fn access(tree: &TempDir, pages: impl Iterator<Item = u64>) {
        let path = tree.path().join("sys/kernel/mm/page_idle/bitmap");
        let mut bits = std::fs::read(&path).unwrap();
        for page in pages {
            let frame = 4096 + page.min(3584);
            let at = frame / 64 * 8;
            let mut word = u64::from_ne_bytes(bits[at as usize..][..8].try_into().unwrap());
            word &= !(1 << (frame % 64));
            bits[at as usize..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        std::fs::write(path, bits).unwrap();
    }

    /// Holds see/large-processes.
    #[test]
    fn pages_drawn_at_random_tell_of_all_by_node() {
        let (tree, fs, stratum) = machine("idle");
        let idle = IdlePages::new(&fs).unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        let marked = idle.mark(7, vec![stratum], &mut rng).unwrap();
        assert_eq!(marked.marks.len(), 1024);
        // A quarter of the first node's pages, and the huge one, which is on the second.
        access(&tree, (0..2048).step_by(4).chain([4000]));
        let found = idle.look(7, &marked).unwrap();
        let on = |node| found.pages.get(&NodeId(node)).copied().unwrap_or(0.0);
        assert!((on(0) - 512.0).abs() < 4.0 * found.error && (on(1) - 512.0).abs() < 4.0 * found.error, "{found:?}");
        assert!((40.0..80.0).contains(&found.error), "{found:?}");
        // The same seed draws the same pages.
        let again = idle.mark(7, vec![stratum], &mut fastrand::Rng::with_seed(3)).unwrap();
        let drawn = |marked: &Marked| marked.marks.iter().map(|mark| mark.address).collect::<Vec<_>>();
        assert_eq!(drawn(&again), drawn(&marked));
    }

    #[test]
    fn pages_that_move_or_cannot_be_seen_do_not_count() {
        let (tree, fs, stratum) = machine("idle-moved");
        let idle = IdlePages::new(&fs).unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        // None of it is in memory; then it is, but of a kind without a bit.
        tree.write("proc/7/pagemap", vec![0; 4096 * 8]);
        let marked = idle.mark(7, vec![stratum], &mut rng).unwrap();
        assert_eq!((marked.marks.len(), marked.absent[0]), (0, 1024));
        assert_eq!(idle.look(7, &marked).unwrap(), Estimate::default());
        let (tree, fs, stratum) = machine("idle-unseen");
        tree.write("proc/kpageflags", vec![0; 8192 * 8]);
        let idle = IdlePages::new(&fs).unwrap();
        assert_eq!(idle.mark(7, vec![stratum], &mut rng).unwrap().absent, [1024]);
        // All are accessed, and then moved to other frames.
        let (tree, fs, stratum) = machine("idle-gone");
        let idle = IdlePages::new(&fs).unwrap();
        let marked = idle.mark(7, vec![stratum], &mut rng).unwrap();
        access(&tree, 0..4096);
        tree.write("proc/7/pagemap", (0..4096_u64).flat_map(|i| (PRESENT | i).to_ne_bytes()).collect::<Vec<u8>>());
        assert_eq!(idle.look(7, &marked).unwrap(), Estimate::default());
        std::fs::remove_dir_all(tree.path().join("proc/7")).unwrap();
        assert_eq!(idle.look(7, &marked).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(
            IdlePages::new(&FsRoot::at(tree.path().join("sys"))).unwrap_err().contains("CONFIG_IDLE_PAGE_TRACKING")
        );
    }
}
