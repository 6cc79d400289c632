//! The page of a counter that the kernel shares with its owner.
//!
//! The kernel writes it each time the thread is put on a CPU. So one look at memory, some 20 ns, tells whether a
//! thread ran since the last look, where a system call would cost a hundred times as much; and the count in it is
//! exact up to that moment.

use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

/// A mapped page.
#[derive(Debug)]
pub struct Page {
    at: NonNull<perf_event_mmap_page>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read, with volatile accesses.
unsafe impl Send for Page {}

impl Page {
    /// Maps the first page of an open counter.
    pub(super) fn map(counter: &File) -> io::Result<Self> {
        let bytes = page_size();
        // SAFETY: asks for a new mapping wherever the kernel likes; nothing of ours is touched.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, counter.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { at, bytes })
    }

    /// Changes whenever the thread is put on a CPU.
    pub fn stamp(&self) -> u32 {
        // SAFETY: the mapping lives as long as `self`; the kernel writes the field, hence the volatile read.
        unsafe { (&raw const (*self.at.as_ptr()).lock).read_volatile() }
    }

    /// The count when the thread was last put on a CPU; `None` where the kernel is just writing it.
    pub fn count(&self) -> Option<u64> {
        let before = self.stamp();
        fence(Ordering::Acquire);
        // SAFETY: as in `stamp`.
        let count = unsafe { (&raw const (*self.at.as_ptr()).offset).read_volatile() };
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && before == self.stamp()).then_some(count as u64)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped, once; no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

pub(super) fn page_size() -> usize {
    // SAFETY: takes a constant and has no other effect.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
