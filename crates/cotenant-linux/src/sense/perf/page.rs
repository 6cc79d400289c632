//! The page of a counter that the kernel shares with its owner.
//!
//! The kernel writes it each time the thread is put on a CPU. So one look at memory, some 20 ns, tells whether a
//! thread ran since the last look, where a system call would cost a hundred times as much; and the count in it is
//! exact up to that moment.

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

    /// Changes whenever the thread is put on a CPU.
    pub fn stamp(&self) -> u32 {
        // SAFETY: the mapping lives as long as `self`; the kernel writes the field, hence the volatile read.
        unsafe { (&raw const (*self.fields()).lock).read_volatile() }
    }

    /// The count when the thread was last put on a CPU; `None` where the kernel is just writing it.
    pub fn count(&self) -> Option<u64> {
        let before = self.stamp();
        fence(Ordering::Acquire);
        // SAFETY: as in `stamp`.
        let count = unsafe { (&raw const (*self.fields()).offset).read_volatile() };
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && before == self.stamp()).then_some(count as u64)
    }
}
