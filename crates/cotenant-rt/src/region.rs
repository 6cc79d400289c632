//! The shared memory of this process, one for each who tells of it: made once, never given back.

use crate::layout::{self, BYTES, MAGIC, Region};
use crate::memory::{File, close, describe, identity, map};
use crate::{asking, thread};
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// What the program itself reports.
pub static PROGRAM: Place = Place::new(layout::NAME);

/// What OpenMP's runtime saw it do.
pub static OPENMP: Place = Place::new(layout::OPENMP);

/// What it asked of MPI.
pub static MPI: Place = Place::new(layout::MPI);

/// All of them.
pub static ALL: [&Place; 3] = [&PROGRAM, &OPENMP, &MPI];

/// Where one region is.
pub struct Place {
    name: &'static CStr,
    region: AtomicPtr<Region>,
    /// The file's descriptor and identity; −1 where there is none. The program may close it and open another file
    /// under the number.
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// It is the parent's, which never reported.
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

    /// The region, if it was made.
    pub fn get(&self) -> Option<&'static Region> {
        // SAFETY: a pointer that was stored is of a mapping of this size and alignment, zeroed and then only changed
        // through atomics, that is never unmapped; a forked child replaces it in place.
        unsafe { self.region.load(Ordering::Acquire).as_ref() }
    }

    /// The region, made now where there is none yet; from now on it is one that reports. Takes no lock: a child forked
    /// in the middle of it could wait for ever.
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

    /// The same for a thread that may report later: until then it is not read.
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
            // Another thread was quicker. SAFETY: nobody else knows this mapping.
            unsafe { libc::munmap(made.cast(), BYTES) };
            close(file.as_ref());
        }
        self.get()
    }

    /// Whether there is a file that Cotenant can find: the program may have closed it.
    pub fn is_visible(&self) -> bool {
        identity(self.fd.load(Ordering::Relaxed)) == Some(self.id())
    }

    fn id(&self) -> (u64, u64) {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    /// In a child that was just forked. `may`: whether the system may be asked. True where its memory is its own now;
    /// that has never reported gets that with the first report. Async-signal-safe.
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

    /// Reports go nowhere rather than to the parent; pointers that were handed out still lead there.
    fn leave(&self) {
        self.region.store(ptr::null_mut(), Ordering::Release);
    }

    /// Puts new, empty memory in the place of the one that was inherited: every pointer into it stays valid.
    /// Async-signal-safe. False where there is none.
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
            // Private memory takes the place.
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
