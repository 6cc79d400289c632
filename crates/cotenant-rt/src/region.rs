//! The shared memory of this process, one region per source of reports: created once, never freed.

use crate::layout::{self, BYTES, MAGIC, Region};
use crate::memory::{File, close, describe, identity, map};
use crate::{asking, thread};
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// Reports of the program itself.
pub static PROGRAM: Place = Place::new(layout::NAME);

/// Events of OpenMP's runtime.
pub static OPENMP: Place = Place::new(layout::OPENMP);

/// Calls of MPI.
pub static MPI: Place = Place::new(layout::MPI);

/// All of them.
pub static ALL: [&Place; 3] = [&PROGRAM, &OPENMP, &MPI];

/// The place of one region.
pub struct Place {
    name: &'static CStr,
    region: AtomicPtr<Region>,
    /// The file's descriptor and identity; −1 without a file. The program may close it and open another file under the
    /// number.
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// It is inherited from the parent; this process has never reported.
    is_inherited: AtomicBool,
}

impl Place {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            region: AtomicPtr::new(ptr::null_mut()),
            fd: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            is_inherited: AtomicBool::new(false),
        }
    }

    /// The region, if created.
    pub fn get(&self) -> Option<&'static Region> {
        // SAFETY: a stored pointer is to a mapping of this size and alignment that is zeroed, only changed through
        // atomics, and never unmapped; a forked child replaces it in place.
        unsafe { self.region.load(Ordering::Acquire).as_ref() }
    }

    /// The region, created on first use and then marked as reporting. Takes no lock: a child forked in the middle could
    /// wait forever.
    pub fn get_or_make(&self) -> Option<&'static Region> {
        if self.is_inherited.load(Ordering::Relaxed)
            && self.is_inherited.swap(false, Ordering::Relaxed)
            && !(asking::may() && self.renew())
        {
            self.leave();
        }
        let region = self.prepare()?;
        if region.header.magic.load(Ordering::Relaxed) == 0 {
            region.header.magic.store(MAGIC, Ordering::Release);
        }
        Some(region)
    }

    /// The same for a thread that may report later: until then the region is not read.
    pub fn prepare(&self) -> Option<&'static Region> {
        if let Some(region) = self.get() {
            return Some(region);
        }
        if !asking::may() {
            return None;
        }
        thread::renew_in_children();
        let file = File::create(self.name);
        let Some(made) = map(file.as_ref(), ptr::null_mut()) else {
            close(file.as_ref());
            return None;
        };
        // SAFETY: see `get`.
        describe(unsafe { &*made });
        let before = self.region.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        if before.is_ok() {
            self.remember(file);
        } else {
            // Another thread was faster. SAFETY: this mapping has no other references.
            unsafe { libc::munmap(made.cast(), BYTES) };
            close(file.as_ref());
        }
        self.get()
    }

    /// Whether Cotenant can find the file: the program may have closed it.
    pub fn is_visible(&self) -> bool {
        identity(self.fd.load(Ordering::Relaxed)) == Some(self.id())
    }

    fn id(&self) -> (u64, u64) {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    /// Called in a freshly forked child. `may`: whether the system may be asked. True if its memory is now its own; a
    /// region that never reported gets memory with the first report. Async-signal-safe.
    pub fn in_child(&self, may: impl FnOnce() -> bool) -> bool {
        match self.get() {
            None => false,
            Some(region) if region.header.magic.load(Ordering::Relaxed) == 0 => {
                self.is_inherited.store(true, Ordering::Relaxed);
                false
            }
            Some(_) if may() && self.renew() => {
                self.is_inherited.store(false, Ordering::Relaxed);
                true
            }
            Some(_) => {
                self.leave();
                false
            }
        }
    }

    /// Reports are dropped rather than added to the parent's; pointers handed out earlier remain valid.
    fn leave(&self) {
        self.region.store(ptr::null_mut(), Ordering::Release);
    }

    /// Replaces inherited memory by new, empty memory: every pointer into it stays valid. Async-signal-safe. False
    /// without memory.
    fn renew(&self) -> bool {
        let Some(region) = self.get() else { return false };
        let reported = region.header.magic.load(Ordering::Relaxed);
        let inherited = File { fd: self.fd.load(Ordering::Relaxed), id: self.id() };
        if identity(inherited.fd) == Some(inherited.id) {
            close(Some(&inherited));
        }
        let file = File::create(self.name);
        let place = ptr::from_ref(region).cast_mut();
        if map(file.as_ref(), place).is_some() {
            self.remember(file);
        } else {
            close(file.as_ref());
            // Private memory replaces it.
            if map(None, place).is_none() {
                return false;
            }
            self.remember(None);
        }
        describe(region);
        region.header.magic.store(reported, Ordering::Release);
        true
    }

    fn remember(&self, file: Option<File>) {
        let file = file.unwrap_or(File { fd: -1, id: (0, 0) });
        self.device.store(file.id.0, Ordering::Relaxed);
        self.inode.store(file.id.1, Ordering::Relaxed);
        self.fd.store(file.fd, Ordering::Relaxed);
    }
}
