//! Page-aligned memory whose pages the first writer owns.

use std::alloc::{self, Layout};
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

/// Bytes that the system says it can still give out without swapping; `None` where it does not say.
pub(crate) fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}
