//! The buffer of the kernel's samples on one CPU (`perf_event_open(2)`, "MMAP layout").

use crate::sys::{Mapping, page_size};
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped ring buffer: a page of the kernel's figures, and a power of two of pages of records.
#[derive(Debug)]
pub struct Ring {
    memory: Mapping,
    page: usize,
    /// Bytes of records, a power of two.
    size: usize,
}

impl Ring {
    /// Maps an event's buffer with this many pages of records.
    ///
    /// # Errors
    /// `EINVAL` if `pages` is not a power of two; `EPERM` if more memory is locked than `perf_event_mlock_kb` and
    /// `RLIMIT_MEMLOCK` allow.
    pub fn map(event: BorrowedFd<'_>, pages: usize) -> io::Result<Self> {
        if !pages.is_power_of_two() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (page, size) = (page_size(), pages * page_size());
        Ok(Self { memory: Mapping::new(event, page + size, true)?, page, size })
    }

    /// Appends new data, and returns their space to the kernel. False for impossible figures: then everything is
    /// discarded.
    pub fn read(&mut self, into: &mut Vec<u8>) -> bool {
        // SAFETY: both fields are aligned and in the mapping, which lives as long as `self`; the kernel accesses them
        // as single words.
        let (head, tail) = unsafe {
            let page = self.memory.start::<perf_event_mmap_page>();
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        let (end, begin) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let length = usize::try_from(end.wrapping_sub(begin)).unwrap_or(usize::MAX);
        let sound = length <= self.size;
        if sound {
            let first = (begin % self.size as u64) as usize;
            let until_end = length.min(self.size - first);
            for (from, bytes) in [(first, until_end), (0, length - until_end)] {
                let old = into.len();
                into.resize(old + bytes, 0);
                // SAFETY: `from + bytes <= size`, so the source is in the mapping; the kernel writes no byte between
                // tail and head. The target are the bytes that were just added.
                unsafe {
                    let data = self.memory.start::<u8>().add(self.page + from);
                    ptr::copy_nonoverlapping(data, into.as_mut_ptr().add(old), bytes);
                }
            }
        }
        tail.store(end, Ordering::Release);
        sound
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Records, golden};
    use super::*;
    use cotenant_testing::TempDir;
    use std::fs::{File, OpenOptions};
    use std::mem::offset_of;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    /// A buffer in a file, written like the kernel's.
    struct Fake {
        file: File,
        head: u64,
        size: u64,
        page: u64,
        _dir: TempDir,
    }

    impl Fake {
        fn new(pages: u64) -> Self {
            let dir = TempDir::new("ring");
            let page = page_size() as u64;
            let path = dir.path().join("ring");
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
            file.set_len(page * (pages + 1)).unwrap();
            Self { file, head: 0, size: pages * page, page, _dir: dir }
        }

        fn set(&self, field: usize, value: u64) {
            self.file.write_all_at(&value.to_ne_bytes(), field as u64).unwrap();
        }

        fn begin_at(&mut self, at: u64) {
            self.head = at;
            self.set(offset_of!(perf_event_mmap_page, data_tail), at);
            self.set(offset_of!(perf_event_mmap_page, data_head), at);
        }

        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.file.write_all_at(&[*byte], self.page + self.head % self.size).unwrap();
                self.head = self.head.wrapping_add(1);
            }
            self.set(offset_of!(perf_event_mmap_page, data_head), self.head);
        }

        fn tail(&self) -> u64 {
            let mut bytes = [0; 8];
            self.file.read_exact_at(&mut bytes, offset_of!(perf_event_mmap_page, data_tail) as u64).unwrap();
            u64::from_ne_bytes(bytes)
        }
    }

    /// Holds compile/regions.
    #[test]
    fn what_wraps_around_is_read_in_one_piece() {
        let mut fake = Fake::new(1);
        // The end of the buffer falls on each position of the record once, and so does the wrap-around of numbers.
        let record = golden::map(10, 2, 0x40_0000, 0x2000, 0x1000, 99, "/bin/walk");
        for end in [fake.size * 3, 0] {
            for before in 0..=record.len() as u64 {
                fake.begin_at(end.wrapping_sub(before));
                let mut ring = Ring::map(fake.file.as_fd(), 1).unwrap();
                let mut bytes = Vec::new();
                assert!(ring.read(&mut bytes) && bytes.is_empty(), "nothing yet");
                fake.write(&record);
                assert!(ring.read(&mut bytes));
                assert_eq!(bytes, record, "{before} before {end}");
                assert_eq!(fake.tail(), fake.head, "its room is the kernel's again");
                assert_eq!(Records::parse(&bytes).records.len(), 1);
            }
        }
    }

    #[test]
    fn a_full_buffer_is_read_whole_and_impossible_figures_throw_away() {
        let mut fake = Fake::new(2);
        fake.begin_at(1000);
        let mut ring = Ring::map(fake.file.as_fd(), 2).unwrap();
        let full: Vec<u8> = (0..fake.size).map(|i| (i % 251) as u8).collect();
        fake.write(&full);
        let mut bytes = vec![7];
        assert!(ring.read(&mut bytes));
        assert_eq!((bytes[0], &bytes[1..]), (7, &full[..]));
        fake.set(offset_of!(perf_event_mmap_page, data_head), fake.head + fake.size + 8);
        bytes.clear();
        assert!(!ring.read(&mut bytes) && bytes.is_empty());
        assert!(ring.read(&mut bytes) && bytes.is_empty(), "and goes on behind");
        assert_eq!(Ring::map(fake.file.as_fd(), 3).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
