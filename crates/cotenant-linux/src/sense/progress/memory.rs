//! The memory in which one process reports: found, checked, mapped, read.
//!
//! Whoever wrote it is another program, with another mind perhaps. So nothing is believed: the file must be one that
//! cannot shrink under the mapping (SIGBUS), of the process' own user and nobody else's to touch, of a layout that is
//! known, and made by that very process. What it counts is then its own affair; every number is read once and used as
//! a number only.

use crate::bounded::{self, Limit};
use crate::sense::processes::{self, Process};
use crate::sys;
use cotenant_model::histogram::{Bucket, Histogram};
use cotenant_model::proc_text::TaskStat;
use cotenant_rt::layout::{self, BUCKETS, BYTES, Header, MAGIC, MAJOR, Region, SEALS, SLOTS, Slot, bounds_of};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

/// Who tells of a program: each has a memory of its own.
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
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Program, Self::OpenMp, Self::Mpi];

    /// What is read of a process, for people.
    pub(super) fn of(self, pid: u32) -> String {
        match self {
            Self::Program => format!("what process {pid} reports"),
            Self::OpenMp => format!("what OpenMP counts of process {pid}"),
            Self::Mpi => format!("what is counted of process {pid}'s calls of MPI"),
        }
    }

    /// Whose memory a file is, by what `/proc/PID/fd/N` says of it.
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
    #[error("it is no anonymous file in memory; link the program with libcotenant")]
    Foreign,
    /// Of the wrong user, or open to others.
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
    /// It could shrink while it is read.
    #[error("it is not sealed against changes of its size; use a libcotenant of this release")]
    Unsealed,
    /// Its library has not filled it in yet.
    #[error("it is being made; look again")]
    Unbegun,
    /// The first bytes are wrong.
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
    /// Another process' memory: it was inherited by a `clone` that libcotenant could not see.
    #[error("it is the memory of process {0}; only a program that executes anew reports for itself")]
    NotItsOwn(u32),
    /// The system said no.
    #[error("{0}; see the permissions of the process")]
    Io(#[from] io::Error),
}

/// What a process reported so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reported {
    /// Units of work.
    pub units: u64,
    /// Latencies by the number of their bucket; empty where none was ever reported.
    latencies: Vec<u64>,
}

impl Reported {
    /// Adds what another one reported.
    pub fn add(&mut self, other: &Self) {
        self.units = self.units.saturating_add(other.units);
        self.add_latencies(other.latencies.iter().copied());
    }

    /// What was reported since; `None` where a count has fallen.
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

    pub(super) fn add_latencies(&mut self, counts: impl ExactSizeIterator<Item = u64>) {
        if counts.len() > 0 {
            self.latencies.resize(BUCKETS, 0);
        }
        for (sum, count) in self.latencies.iter_mut().zip(counts) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Latencies in nanoseconds; `None` where none was ever reported.
    pub fn latency_ns(&self) -> Option<Histogram> {
        let bucket = |(bucket, &count): (usize, &u64)| {
            let (low, high) = bounds_of(bucket);
            // What took longer than all bounds is in the last one.
            let high = if bucket + 1 == BUCKETS { f64::INFINITY } else { high as f64 };
            Bucket { low: low as f64, high, count }
        };
        (!self.latencies.is_empty()).then(|| Histogram::new(self.latencies.iter().enumerate().map(bucket)))
    }
}

/// What the memory is mapped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    /// Reading, and writing orders.
    Orders,
}

/// The mapped memory of one process. It stays readable when the process is gone.
#[derive(Debug)]
pub struct Memory {
    at: NonNull<Region>,
    /// The file's inode: which memory it is.
    pub inode: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is used through atomics alone.
unsafe impl Send for Memory {}

impl Memory {
    /// Looks for the memories of some producers among the first descriptors of a process, as many as one system call
    /// lists in `buffer`. `known`: the inode of the memory of each producer that is mapped already; `Ok(None)` where
    /// there is no other.
    ///
    /// # Errors
    /// Of each producer, where there is something of that name that is not to be read; the last reason of several.
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
        let Ok(descriptors) = process.open_file(tid, "fd") else { return found }; // gone, or not ours to look at
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
        // Looked at before it is opened: opening a pipe could wait, opening a device could do something.
        let place = sys::open_path_at(descriptors, number)?;
        let meta = place.metadata()?;
        if !meta.is_file() {
            return Err(Refused::Foreign);
        }
        if known == Some(meta.ino()) {
            return Ok(None);
        }
        let owner = process.owner()?;
        if meta.uid() != owner || meta.mode() & 0o777 != 0o600 {
            return Err(Refused::Owner { uid: meta.uid(), mode: meta.mode() & 0o777, owner });
        }
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(purpose == For::Orders).open(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
        let seals = sys::seals(&file).filter(|_| sys::is_tmpfs(&file)).ok_or(Refused::Foreign)?;
        if seals & SEALS != SEALS {
            return Err(Refused::Unsealed);
        }
        // After the seals: from here on the size is what it is.
        let size = file.metadata()?.len();
        if size != BYTES as u64 {
            return Err(Refused::Size(size));
        }
        let memory = Self::map(&file, meta.ino(), purpose)?;
        memory.check(pid, process)?;
        Ok(Some(memory))
    }

    pub(crate) fn map(file: &File, inode: u64, purpose: For) -> io::Result<Self> {
        let rights = match purpose {
            For::Reading => libc::PROT_READ,
            For::Orders => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: asks for a new mapping wherever the kernel likes; nothing of ours is touched.
        let at = unsafe { libc::mmap(ptr::null_mut(), BYTES, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { at, inode })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.region().header
    }

    fn region(&self) -> &Region {
        // SAFETY: the mapping has this size and alignment (a page), lives as long as `self`, cannot shrink, and holds
        // nothing but atomic integers, for which every bit pattern is valid.
        unsafe { self.at.as_ref() }
    }

    fn check(&self, pid: u32, process: &Process) -> Result<(), Refused> {
        self.check_layout()?;
        let header = &self.region().header;
        // The number that the process has for itself is another one in a container; it is among those that the kernel
        // lists.
        let own = header.pid.load(Ordering::Relaxed);
        let text = bounded::rest(&mut process.open_file(pid, "status")?, Limit::Value)?;
        let stat = bounded::rest(&mut process.open_file(pid, "stat")?, Limit::Value)?;
        let start_ticks = TaskStat::parse(&stat).map_err(|e| io::Error::other(e.to_string()))?.start_ticks;
        let is_its_own = process_ids(&text).any(|id| id == own);
        if is_its_own && header.start_ticks.load(Ordering::Relaxed) == start_ticks {
            Ok(())
        } else {
            Err(Refused::NotItsOwn(own))
        }
    }

    pub(crate) fn check_layout(&self) -> Result<(), Refused> {
        let header = &self.region().header;
        match header.magic.load(Ordering::Acquire) {
            MAGIC => {}
            0 => return Err(Refused::Unbegun),
            _ => return Err(Refused::Magic),
        }
        let version = header.version.load(Ordering::Relaxed) >> 16;
        let sizes = [&header.slots, &header.slot_bytes, &header.buckets].map(|n| n.load(Ordering::Relaxed) as usize);
        if version != MAJOR || sizes != [SLOTS, size_of::<Slot>(), BUCKETS] {
            return Err(Refused::Version(version));
        }
        Ok(())
    }

    /// What is reported up to now; `None` where no thread ever did: the program only looks for orders.
    pub fn read(&self) -> Option<Reported> {
        let region = self.region();
        let reported = self.sum();
        // Slot 0 is nobody's own, and there from the beginning.
        let any = region.header.used.load(Ordering::Acquire) > 1 || reported != Reported::default();
        any.then_some(reported)
    }

    fn sum(&self) -> Reported {
        let region = self.region();
        let used = (region.header.used.load(Ordering::Acquire) as usize).min(SLOTS);
        let mut reported = Reported::default();
        for slot in &region.slots[..used] {
            reported.units = reported.units.saturating_add(slot.units.load(Ordering::Relaxed));
            // Most programs report no latencies; a sum of 0 with any is one of latencies that were all 0.
            if slot.latency_sum_ns.load(Ordering::Relaxed) == 0 && slot.latency[0].load(Ordering::Relaxed) == 0 {
                continue;
            }
            reported.add_latencies(slot.latency.iter().map(|count| count.load(Ordering::Relaxed)));
        }
        reported
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped, once; no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), BYTES) };
    }
}

/// The ids of a process in all pid namespaces that see it, from its `status`.
fn process_ids(status: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"NStgid:")).unwrap_or(&[]);
    line.split(u8::is_ascii_whitespace).filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_shows_all_its_names() {
        let status = b"Name:\tx\nTgid:\t4711\nNStgid:\t4711\t12\t1\nNSpid:\t4712\t13\t2\n";
        assert_eq!(process_ids(status).collect::<Vec<_>>(), [4711, 12, 1]);
        assert_eq!(process_ids(b"Name:\tx\n").count(), 0);
    }
}
