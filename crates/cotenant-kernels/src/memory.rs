//! Page-aligned memory whose pages the first writer owns.

use std::alloc::{self, Layout};
use std::fs;
use std::ptr::NonNull;

/// Page size that alignment assumes; larger pages only mean that two buffers may share one.
const ALIGN: usize = 4096;

/// Zeroed memory. Its pages come from the memory node of the thread that first writes them.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is plain bytes, owned; whoever reads and writes through its pointer answers for races.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference only gives the pointer.
unsafe impl Sync for Memory {}

impl Memory {
    /// That many bytes, at least one; `None` where the system has no address space left.
    pub fn zeroed(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes.max(1)).ok()?;
        let layout = Layout::from_size_align(bytes, ALIGN).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and freed once.
        unsafe { alloc::dealloc(self.start(), self.layout) };
    }
}

/// Bytes that the system says it can still give out without swapping, at most the limit of a container; `None` where it does not say.
pub fn available() -> Option<u64> {
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()).min();
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    [from_meminfo(&text), limit].into_iter().flatten().min()
}

fn from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_or_absent() {
        let text = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   23810752 kB\nBuffers: 5 kB\n";
        assert_eq!(from_meminfo(text), Some(23_810_752 << 10));
        for bad in
            ["", "MemAvailable:", "MemAvailable: 5 MB", "MemAvailable: -1 kB", "MemAvailable: 18446744073709551615 kB"]
        {
            assert_eq!(from_meminfo(bad), None, "{bad}");
        }
    }
}
