//! Memory shared with the kernel or with another program.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

/// Size of a page, bytes.
pub fn page_size() -> usize {
    // SAFETY: takes a constant and has no other effect.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The beginning of a mapped file; unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; accesses are volatile or atomic, or through `&mut`.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps this many bytes, readable, and optionally writable.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn new(file: impl AsFd, bytes: usize, writable: bool) -> io::Result<Self> {
        let (fd, rights) = (file.as_fd().as_raw_fd(), libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 });
        // SAFETY: requests a new mapping at any address; nothing of ours is touched.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?, bytes })
    }

    /// Its content, for the lifetime of this process. A truncated file kills a process that reads beyond its end, so
    /// this is for child processes.
    pub fn forever(self) -> &'static [u8] {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the mapping is readable for its length and is never unmapped. Writers of the file change the bytes
        // below the slice, which are used as plain data without our addresses.
        unsafe { std::slice::from_raw_parts(this.at.as_ptr(), this.bytes) }
    }

    /// Its beginning. Valid as long as `self`.
    pub fn start<T>(&self) -> *mut T {
        self.at.as_ptr().cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped, once; no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
