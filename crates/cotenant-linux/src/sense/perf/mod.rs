//! Performance counters of threads: `perf_event_open`, behind a trait narrow enough to be scripted in tests.

pub mod counters;
pub mod events;
mod page;
pub mod plan;
pub mod sampling;

#[cfg(test)]
mod fake;

use perf_event_open_sys::{self as sys, bindings};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

pub use counters::{Opened, Opener, TaskCounters};
pub use page::Page;
pub use plan::{Plan, Pmu};

/// The extent of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// `/proc` only.
    Nothing,
    /// Software events too.
    Software,
    /// Hardware events too, with a PMU.
    #[default]
    Hardware,
}

/// An event in terms of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// `type`: a `PERF_TYPE_*`, or a PMU's number from sysfs.
    pub kind: u32,
    /// `config`.
    pub config: u64,
}

/// The kernel's side of counting.
pub trait Kernel {
    /// An open counter; closed on drop.
    type Counter;

    /// Opens a counter of a thread, in the group of `leader`. It counts at once; children do not inherit it.
    ///
    /// # Errors
    /// System errors; see `perf_event_open(2)`.
    fn open(&self, code: Code, user_only: bool, tid: u32, leader: Option<&Self::Counter>) -> io::Result<Self::Counter>;

    /// Reads a group: number of counters, nanoseconds enabled and running, one value each. Returns the words read.
    ///
    /// # Errors
    /// System errors.
    fn read(&self, leader: &Self::Counter, words: &mut [u64]) -> io::Result<usize>;

    /// Maps the page that the kernel updates when the thread gets a CPU.
    ///
    /// # Errors
    /// `EPERM` if more memory is locked than `perf_event_mlock_kb` and `RLIMIT_MEMLOCK` allow.
    fn page(&self, leader: &Self::Counter) -> io::Result<Page>;
}

/// Attributes of an event, all else unset.
fn attributes(code: Code) -> bindings::perf_event_attr {
    let mut attr = bindings::perf_event_attr::default();
    attr.size = size_of::<bindings::perf_event_attr>() as u32;
    (attr.type_, attr.config) = (code.kind, code.config);
    attr
}

/// Opens an event of a thread (0: the calling one) on one CPU, or on all.
fn open_event(
    mut attr: bindings::perf_event_attr,
    tid: u32,
    cpu: Option<u32>,
    leader: Option<&File>,
) -> io::Result<File> {
    let (cpu, group) = (cpu.map_or(-1, u32::cast_signed), leader.map_or(-1, AsRawFd::as_raw_fd));
    // SAFETY: `attr` is initialised, contains its own size, and outlives the call; the other arguments are plain
    // numbers.
    let fd = unsafe {
        let flags = bindings::PERF_FLAG_FD_CLOEXEC.into();
        sys::perf_event_open(&raw mut attr, tid.cast_signed(), cpu, group, flags)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been made for us alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The kernel that runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl Kernel for Live {
    type Counter = File;

    fn open(&self, code: Code, user_only: bool, tid: u32, leader: Option<&File>) -> io::Result<File> {
        let mut attr = attributes(code);
        attr.read_format = u64::from(
            bindings::PERF_FORMAT_GROUP
                | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
                | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING,
        );
        attr.set_exclude_kernel(user_only.into());
        attr.set_exclude_hv(user_only.into());
        open_event(attr, tid, None, leader)
    }

    fn read(&self, leader: &File, words: &mut [u64]) -> io::Result<usize> {
        // SAFETY: every bit pattern is a valid `u8`, and the slice covers exactly the memory of `words`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words)) };
        let mut file = leader;
        Ok(file.read(bytes)? / size_of::<u64>())
    }

    fn page(&self, leader: &File) -> io::Result<Page> {
        Page::map(leader)
    }
}
