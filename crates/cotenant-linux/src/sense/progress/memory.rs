//! The memory with the reports of one process: found, checked, read.
//!
//! Its writer is another, possibly malicious program. So nothing is trusted: the file must have a fixed size, belong
//! exclusively to the process's own user, have a known layout, and be created by that very process. Its counts are then
//! its own affair; every number is read once and used as a number only.
//!
//! It is read by system calls and never mapped, because the kernel would charge us for filled holes of a mapping. One
//! budget limits open memories and bytes per look.

use crate::bounded::{self, Limit};
use crate::sense::processes::{self, Process};
use crate::sys;
use cotenant_model::histogram::{Bucket, Histogram};
use cotenant_model::proc_text::TaskStat;
use cotenant_rt::layout::{self, BUCKETS, BYTES, Header, MAGIC, MAJOR, Region, SEALS, SLOTS, Slot, bounds_of};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// Limits of open memories per user and in total, for reading and for orders. Each is a descriptor.
const OPEN: [u64; 2] = [1024, 4096];

/// Their limit as a fraction of our descriptors.
const OF_DESCRIPTORS: u64 = 4;

/// Limits of bytes per look, per user and in total: some 3,000 and 12,000 threads.
const BYTES_OF_A_LOOK: [u64; 2] = [8 << 20, 32 << 20];

/// Slots per read.
const SLOTS_AT_ONCE: usize = 6;

/// Producers of a program's reports, each with its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Producer {
    /// The program itself.
    Program,
    /// OpenMP's runtime: units are iterations, sections, tasks and parallel regions.
    OpenMp,
    /// MPI's profiling interface: units are calls.
    Mpi,
}

impl Producer {
    /// All of them, in numerical order.
    pub const ALL: [Self; 3] = [Self::Program, Self::OpenMp, Self::Mpi];

    /// Content of a process's memory, for people.
    pub(super) fn of(self, pid: u32) -> String {
        match self {
            Self::Program => format!("what process {pid} reports"),
            Self::OpenMp => format!("what OpenMP counts of process {pid}"),
            Self::Mpi => format!("what is counted of process {pid}'s calls of MPI"),
        }
    }

    /// The producer of a file, from its link `/proc/PID/fd/N`.
    pub(super) fn of_link(link: &[u8]) -> Option<Self> {
        let name = link.strip_prefix(b"/memfd:")?.strip_suffix(b" (deleted)")?;
        let names = [layout::NAME, layout::OPENMP, layout::MPI].map(std::ffi::CStr::to_bytes);
        names.iter().position(|other| *other == name).map(|at| Self::ALL[at])
    }
}

/// Why the memory of a process is not read.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Something else under the name.
    #[error("it is not an anonymous file in memory; link the program with libcotenant")]
    Foreign,
    /// Of the wrong user, or accessible to others.
    #[error(
        "it belongs to user {} with mode {mode:o}, not to the program's user {} with mode 600",
        crate::sys::user_name(*uid),
        crate::sys::user_name(*owner)
    )]
    Owner {
        /// The file's user.
        uid: u32,
        /// Its permissions.
        mode: u32,
        /// The process' user.
        owner: u32,
    },
    /// Truncated, or of another layout.
    #[error("it has {0} bytes instead of {BYTES}; use a libcotenant of this release")]
    Size(u64),
    /// It could shrink during a read.
    #[error("it is not sealed against changes of its size; use a libcotenant of this release")]
    Unsealed,
    /// Its library has not completed it yet.
    #[error("it is being made; look again")]
    Unbegun,
    /// Wrong first bytes.
    #[error("it does not begin as it should; use a libcotenant of this release")]
    Magic,
    /// Another layout.
    #[error("its layout is version {0}, this cotenant reads {MAJOR}; use the libcotenant of this release")]
    Version(u32),
    /// Its library obeys no orders.
    #[error(
        "its libcotenant is of version {MAJOR}.{0} and obeys no orders; link the program with that of this release"
    )]
    NoOrders(u32),
    /// More than are kept open.
    #[error(
        "its user has {0} such memories open already, or all users have 4 times as many; further ones are not read"
    )]
    Many(u64),
    /// More than is read.
    #[error("its user reports more than {} MiB at a time; the rest is unknown", .0 >> 20)]
    Long(u64),
    /// Another process's memory: inherited by a `clone` invisible to libcotenant.
    #[error("it is the memory of process {0}; only a program that executes anew reports for itself")]
    NotItsOwn(u32),
    /// A system error.
    #[error("{0}; see the permissions of the process")]
    Io(#[from] io::Error),
}

/// Reports of a process so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reported {
    /// Units of work.
    pub units: u64,
    /// Latencies by bucket number; empty without any.
    latencies: Vec<u64>,
}

impl Reported {
    /// Adds the reports of another one.
    pub fn add(&mut self, other: &Self) {
        self.units = self.units.saturating_add(other.units);
        self.add_latencies(other.latencies.iter().copied());
    }

    /// Reports since; `None` if a count decreased.
    pub(super) fn since(&self, before: &Self) -> Option<Self> {
        if before.latencies.len() > self.latencies.len() {
            return None;
        }
        let before_each = before.latencies.iter().copied().chain(std::iter::repeat(0));
        let latencies = self.latencies.iter().zip(before_each).map(|(now, before)| now.checked_sub(before));
        Some(Self { units: self.units.checked_sub(before.units)?, latencies: latencies.collect::<Option<_>>()? })
    }

    /// Latencies.
    pub(super) fn count(&self) -> u64 {
        self.latencies.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds one thread's counts.
    fn add_slot(&mut self, slot: &[u8]) {
        self.units = self.units.saturating_add(word(slot, offset_of!(Slot, units)));
        let latency = offset_of!(Slot, latency);
        // Most programs report no latencies; a sum of 0 with any means latencies of 0.
        if word(slot, offset_of!(Slot, latency_sum_ns)) != 0 || word(slot, latency) != 0 {
            self.add_latencies((0..BUCKETS).map(|bucket| word(slot, latency + 8 * bucket)));
        }
    }

    pub(super) fn add_latencies(&mut self, counts: impl ExactSizeIterator<Item = u64>) {
        if counts.len() > 0 {
            self.latencies.resize(BUCKETS, 0);
        }
        for (sum, count) in self.latencies.iter_mut().zip(counts) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Latencies in nanoseconds; `None` without any.
    pub fn latency_ns(&self) -> Option<Histogram> {
        let bucket = |(bucket, &count): (usize, &u64)| {
            let (low, high) = bounds_of(bucket);
            // Latencies beyond all bounds are in the last one.
            let high = if bucket + 1 == BUCKETS { f64::INFINITY } else { high as f64 };
            Bucket { low: low as f64, high, count }
        };
        (!self.latencies.is_empty()).then(|| Histogram::new(self.latencies.iter().enumerate().map(bucket)))
    }
}

/// Remaining budget of each user, and of all.
#[derive(Debug)]
pub struct Budget {
    each: u64,
    all: u64,
    taken: BTreeMap<u32, u64>,
}

impl Budget {
    const fn new([each, all]: [u64; 2]) -> Self {
        Self { each, all, taken: BTreeMap::new() }
    }

    /// For one look.
    pub fn of_a_look() -> Self {
        Self::new(BYTES_OF_A_LOOK)
    }

    /// Takes a part for a user; false if it exceeds the budget.
    fn take(&mut self, uid: u32, what: u64, most: u64) -> bool {
        let taken = self.taken.entry(uid).or_default();
        let fits = *taken + what <= self.each && what <= self.all.min(most);
        if fits {
            *taken += what;
            self.all -= what;
        }
        fits
    }

    fn give_back(&mut self, uid: u32, what: u64) {
        self.all += what;
        if let Some(taken) = self.taken.get_mut(&uid) {
            *taken -= what;
            if *taken == 0 {
                self.taken.remove(&uid);
            }
        }
    }
}

/// An open memory of a user.
#[derive(Debug)]
struct Place(u32);

static PLACES: Mutex<Budget> = Mutex::new(Budget::new(OPEN));

impl Place {
    fn take(uid: u32) -> Option<Self> {
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let others = OPEN[1] - places.all;
        let left = (sys::nofile_limit() / OF_DESCRIPTORS).saturating_sub(others);
        places.take(uid, 1, left).then_some(Self(uid))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PLACES.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.0, 1);
    }
}

/// The purpose of opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    /// Reading, and writing orders.
    Orders,
}

/// The memory of one process. It stays readable after the process's end.
#[derive(Debug)]
pub struct Memory {
    file: File,
    /// The file's inode, which identifies the memory.
    pub inode: u64,
    /// The real user behind its user.
    uid: u32,
    _place: Option<Place>,
}

/// The words of the header.
#[derive(Debug)]
pub(crate) struct Head([u8; HEAD]);

const HEAD: usize = size_of::<Header>();

impl Head {
    /// The word of four bytes at an offset.
    pub fn u32_at(&self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|i| self.0[at + i]))
    }

    /// The word of eight bytes at an offset.
    pub fn u64_at(&self, at: usize) -> u64 {
        word(&self.0, at)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl Memory {
    /// Finds the memories of some producers among the first descriptors of a process, as many as one system call lists
    /// in `buffer`. `known`: the inode of each producer's open memory; `Ok(None)` without another.
    ///
    /// # Errors
    /// Per producer, the reason if something of that name is unreadable; the last of several.
    pub(crate) fn find(
        purpose: For,
        producers: &[Producer],
        pid: u32,
        process: &Process,
        known: [Option<u64>; Producer::ALL.len()],
        buffer: &mut [u8],
    ) -> [Result<Option<Self>, Refused>; Producer::ALL.len()] {
        let mut found = [const { Ok(None) }; Producer::ALL.len()];
        let tid = process.living_thread(pid);
        let Ok(descriptors) = process.open_file(tid, "fd") else { return found }; // gone, or not permitted
        let mut settled = Producer::ALL.map(|producer| !producers.contains(&producer));
        for number in processes::list_once(&descriptors, buffer) {
            if settled == [true; Producer::ALL.len()] {
                break;
            }
            let Some(producer) = sys::read_link_at(&descriptors, number, &mut [0; 64]).and_then(Producer::of_link)
            else {
                continue;
            };
            let at = producer as usize;
            if settled[at] {
                continue;
            }
            match Self::open(purpose, pid, process, &descriptors, number, known[at]) {
                Ok(memory) => (found[at], settled[at]) = (Ok(memory), true),
                Err(Refused::Unbegun) => {} // the next look finds it
                Err(why) => found[at] = Err(why),
            }
        }
        found
    }

    /// The same for one producer.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn find_one(
        purpose: For,
        producer: Producer,
        pid: u32,
        process: &Process,
        known: Option<u64>,
        buffer: &mut [u8],
    ) -> Result<Option<Self>, Refused> {
        let mut all = Self::find(purpose, &[producer], pid, process, [known; Producer::ALL.len()], buffer);
        std::mem::replace(&mut all[producer as usize], Ok(None))
    }

    fn open(
        purpose: For,
        pid: u32,
        process: &Process,
        descriptors: &File,
        number: u32,
        known: Option<u64>,
    ) -> Result<Option<Self>, Refused> {
        // Examined before opening, because opening a pipe could block, and opening a device could have effects.
        let place = sys::open_path_at(descriptors, number)?;
        let meta = sys::identity_of(&place)?;
        if !meta.is_regular() || !sys::is_memfd(meta) {
            return Err(Refused::Foreign);
        }
        if known == Some(meta.inode) {
            return Ok(None);
        }
        let owner = process.owner()?;
        if meta.uid != owner || meta.mode & 0o777 != 0o600 {
            return Err(Refused::Owner { uid: meta.uid, mode: meta.mode & 0o777, owner });
        }
        let place_of_it = Place::take(sys::real_user(owner)).ok_or(Refused::Many(OPEN[0]))?;
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(purpose == For::Orders).open(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
        let seals = sys::seals(&file).ok_or(Refused::Foreign)?;
        if seals & SEALS != SEALS {
            return Err(Refused::Unsealed);
        }
        // After checking the seals, the size is fixed.
        let size = file.metadata()?.len();
        if size != BYTES as u64 {
            return Err(Refused::Size(size));
        }
        let memory = Self { file, inode: meta.inode, uid: sys::real_user(owner), _place: Some(place_of_it) };
        memory.check(pid, process)?;
        Ok(Some(memory))
    }

    /// The memory in a file of any origin.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn over(file: File) -> Self {
        Self { file, inode: 1, uid: 0, _place: None }
    }

    /// Its first bytes.
    pub(crate) fn head(&self) -> io::Result<Head> {
        let mut head = Head([0; HEAD]);
        self.file.read_exact_at(&mut head.0, 0)?;
        Ok(head)
    }

    /// Writes words after that place of the header. Not into a hole, which would be charged to us.
    pub(crate) fn write<const N: usize>(&self, at: usize, words: [u64; N]) {
        if sys::begins_with_data(&self.file) {
            let _ = self.file.write_all_at(words.map(u64::to_ne_bytes).as_flattened(), at as u64);
        }
    }

    fn check(&self, pid: u32, process: &Process) -> Result<(), Refused> {
        let head = self.check_layout()?;
        // In a container the process's own id differs; it is among those listed by the kernel.
        let own = head.u32_at(offset_of!(Header, pid));
        let text = bounded::rest(&mut process.open_file(pid, "status")?, Limit::Value)?;
        let stat = bounded::rest(&mut process.open_file(pid, "stat")?, Limit::Value)?;
        let start_ticks = TaskStat::parse(&stat).map_err(|e| io::Error::other(e.to_string()))?.start_ticks;
        let is_its_own = process_ids(&text).any(|id| id == own);
        if is_its_own && head.u64_at(offset_of!(Header, start_ticks)) == start_ticks {
            Ok(())
        } else {
            Err(Refused::NotItsOwn(own))
        }
    }

    pub(crate) fn check_layout(&self) -> Result<Head, Refused> {
        let head = self.head()?;
        match head.u64_at(offset_of!(Header, magic)) {
            MAGIC => {}
            0 => return Err(Refused::Unbegun),
            _ => return Err(Refused::Magic),
        }
        let version = head.u32_at(offset_of!(Header, version)) >> 16;
        let sizes = [offset_of!(Header, slots), offset_of!(Header, slot_bytes), offset_of!(Header, buckets)];
        if version != MAJOR || sizes.map(|at| head.u32_at(at) as usize) != [SLOTS, size_of::<Slot>(), BUCKETS] {
            return Err(Refused::Version(version));
        }
        Ok(head)
    }

    /// Current reports; `None` if no thread ever reported: the program only looks for orders.
    ///
    /// # Errors
    /// [`Refused::Long`] if that exceeds the rest of the budget.
    pub fn read(&self, budget: &mut Budget) -> Result<Option<Reported>, Refused> {
        let used = (self.head()?.u32_at(offset_of!(Header, used)) as usize).min(SLOTS);
        if !budget.take(self.uid, (HEAD + used * size_of::<Slot>()) as u64, u64::MAX) {
            return Err(Refused::Long(BYTES_OF_A_LOOK[0]));
        }
        let mut reported = Reported::default();
        let mut bytes = [0; SLOTS_AT_ONCE * size_of::<Slot>()];
        for first in (0..used).step_by(SLOTS_AT_ONCE) {
            let bytes = &mut bytes[..(used - first).min(SLOTS_AT_ONCE) * size_of::<Slot>()];
            self.file.read_exact_at(bytes, (offset_of!(Region, slots) + first * size_of::<Slot>()) as u64)?;
            bytes.chunks_exact(size_of::<Slot>()).for_each(|slot| reported.add_slot(slot));
        }
        // Slot 0 belongs to no thread, and always exists.
        Ok((used > 1 || reported != Reported::default()).then_some(reported))
    }
}

/// A process's ids in all pid namespaces that see it, from its `status`.
fn process_ids(status: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"NStgid:")).unwrap_or(&[]);
    line.split(u8::is_ascii_whitespace).filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Holds speed/foreign-memory.
    #[test]
    fn nobody_takes_the_budget_of_others() {
        let mut budget = Budget::new([10, 25]);
        let mut take = |uid, what| budget.take(uid, what, u64::MAX);
        assert_eq!([take(1, 8), take(1, 3), take(1, 2), take(2, 10)], [true, false, true, true]);
        assert_eq!([take(3, 6), take(3, 5), take(4, 1)], [false, true, false], "there is no more for all");
        budget.give_back(1, 10);
        assert!(!budget.take(4, 10, 9) && budget.take(4, 10, 10));
        assert_eq!((budget.all, budget.taken.get(&1)), (0, None));
    }

    /// Holds speed/foreign-memory.
    #[test]
    fn nothing_is_written_into_a_hole() {
        let path = std::env::temp_dir().join(format!("cotenant-hole-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(layout::BYTES as u64).unwrap();
        let memory = Memory { file, inode: 1, uid: 0, _place: None };
        let blocks = || memory.file.metadata().unwrap().blocks();
        memory.write(offset_of!(Header, orders.nap_until_ns), [7]);
        assert!(memory.read(&mut Budget::of_a_look()).unwrap().is_none());
        assert_eq!(blocks(), 0);
        memory.file.write_all_at(b"cotenant", 0).unwrap();
        memory.write(offset_of!(Header, orders.nap_until_ns), [7, 8]);
        let head = memory.head().unwrap();
        let at = offset_of!(Header, orders.nap_until_ns);
        assert_eq!([head.u64_at(at), head.u64_at(at + 8)], [7, 8]);
    }

    #[test]
    fn a_container_shows_all_its_names() {
        let status = b"Name:\tx\nTgid:\t4711\nNStgid:\t4711\t12\t1\nNSpid:\t4712\t13\t2\n";
        assert_eq!(process_ids(status).collect::<Vec<_>>(), [4711, 12, 1]);
        assert_eq!(process_ids(b"Name:\tx\n").count(), 0);
    }
}
