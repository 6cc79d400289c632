//! The page of a counter shared by the kernel.
//!
//! The kernel writes it when the thread gets a CPU. So one memory read, some 20 ns, shows whether a thread ran since
//! the last look, at a hundredth of a system call's cost; its count is exact up to that moment.

use crate::sys::{Mapping, page_size};
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::fs::File;
use std::io;
use std::sync::atomic::{Ordering, fence};

/// A mapped page.
#[derive(Debug)]
pub struct Page(Mapping);

impl Page {
    /// Maps the first page of an open counter.
    pub(super) fn map(counter: &File) -> io::Result<Self> {
        Mapping::new(counter, page_size(), false).map(Self)
    }

    fn fields(&self) -> *const perf_event_mmap_page {
        self.0.start()
    }

    /// Changes whenever the thread gets a CPU.
    pub fn stamp(&self) -> u32 {
        // SAFETY: the mapping lives as long as `self`; the kernel writes the field, hence the volatile read.
        unsafe { (&raw const (*self.fields()).lock).read_volatile() }
    }

    /// The count when the thread last got a CPU; `None` while the kernel writes it.
    pub fn count(&self) -> Option<u64> {
        let before = self.stamp();
        fence(Ordering::Acquire);
        // SAFETY: as in `stamp`.
        let count = unsafe { (&raw const (*self.fields()).offset).read_volatile() };
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && before == self.stamp()).then_some(count as u64)
    }
}
