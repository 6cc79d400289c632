//! The shared memory of this process, one for each who tells of it: made once, never given back.

use crate::layout::{self, BUCKETS, BYTES, MAGIC, MAJOR, MINOR, Region, SEALS, SLOTS, Slot};
use crate::{asking, thread};
use std::ffi::{CStr, c_int, c_uint};
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
    /// It is the parent's, who never reported.
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

    /// The region, made now where there is none yet; from now on it is one that reports. Takes no lock: a child forked in
    /// the middle of it could wait for ever.
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

    /// The same for somebody who may report later: until then nobody reads it.
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
    /// who has never reported gets that with the first report. Async-signal-safe.
    pub fn in_child(&self, may: impl FnOnce() -> bool) -> bool {
        match self.get() {
            None => false,
            Some(region) if region.header.magic.load(Ordering::Relaxed) == 0 => {
                self.is_inherited.store(true, Ordering::Relaxed);
                false
            }
            Some(_) if may() && self.renew() => true,
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

/// Fills in the header of zeroed memory, but for what begins it.
fn describe(region: &Region) {
    let header = &region.header;
    header.version.store(MAJOR << 16 | MINOR, Ordering::Relaxed);
    header.slots.store(SLOTS as u32, Ordering::Relaxed);
    header.slot_bytes.store(size_of::<Slot>() as u32, Ordering::Relaxed);
    header.buckets.store(BUCKETS as u32, Ordering::Relaxed);
    header.used.store(1, Ordering::Relaxed);
    // SAFETY: takes nothing and cannot fail.
    header.pid.store(unsafe { libc::getpid() }.cast_unsigned(), Ordering::Relaxed);
    header.start_ticks.store(start_ticks().unwrap_or(0), Ordering::Relaxed);
}

/// Maps the file, or private memory; at `place` over what is there, unless that is null.
fn map(file: Option<&File>, place: *mut Region) -> Option<*mut Region> {
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    let (flags, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.fd),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, or one in the place of the region's own, which has exactly this size.
    let at = unsafe { libc::mmap(place.cast(), BYTES, rights, flags | fixed, fd, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// An anonymous file.
struct File {
    fd: c_int,
    id: (u64, u64),
}

impl File {
    /// Of the region's size, sealed, for its owner alone; gone with the last process that has it open or mapped.
    /// Async-signal-safe.
    fn create(name: &CStr) -> Option<Self> {
        const NOEXEC_SEAL: c_uint = 8; // MFD_NOEXEC_SEAL; before Linux 6.3 it is refused
        // Beyond the limit of file sizes the kernel would not only refuse, but end the program (SIGXFSZ).
        if !may_be_large() {
            return None;
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the other calls take plain numbers and a descriptor that is ours.
        unsafe {
            let mut fd = libc::memfd_create(name.as_ptr(), flags | NOEXEC_SEAL);
            if fd < 0 {
                fd = libc::memfd_create(name.as_ptr(), flags);
            }
            if fd < 0 {
                return None;
            }
            let ready = libc::ftruncate(fd, BYTES as libc::off_t) == 0
                && libc::fchmod(fd, 0o600) == 0
                && libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) == 0;
            match identity(fd) {
                Some(id) if ready => Some(Self { fd, id }),
                _ => {
                    libc::close(fd);
                    None
                }
            }
        }
    }
}

/// Whether the limit of file sizes (`ulimit -f`) leaves room for the region. Async-signal-safe.
fn may_be_large() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 && limit.rlim_cur >= BYTES as libc::rlim_t }
}

fn close(file: Option<&File>) {
    if let Some(&File { fd, .. }) = file {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(fd) };
    }
}

/// Device and inode of an open file.
fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: all bytes of this plain struct may be zero; it is writable.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// All that is ever asked of the system here, and what else the library calls: for a process that ends then.
pub fn try_all() {
    let file = File::create(c"cotenant-trial");
    if let Some(made) = map(file.as_ref(), ptr::null_mut()) {
        // SAFETY: see `Place::get`; nobody else knows this mapping.
        unsafe {
            describe(&*made);
            map(None, made);
            libc::munmap(made.cast(), BYTES);
        }
    }
    close(file.as_ref());
    crate::engine::try_nap();
}

/// Start time of this process: field 22 of its `stat`, counted behind the last parenthesis of its name.
/// Async-signal-safe.
fn start_ticks() -> Option<u64> {
    let mut buffer = [0; 1024];
    let line = read_start(c"/proc/self/stat", &mut buffer)?;
    let rest = line.get(line.iter().rposition(|b| *b == b')')? + 1..)?;
    let field = rest.split(|b| *b == b' ').filter(|word| !word.is_empty()).nth(22 - 3)?;
    field.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// The beginning of a file. Async-signal-safe.
pub fn read_start<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: the path is a C string, the buffer writable for its length, the descriptor ours.
    let got = unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let got = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(fd);
        usize::try_from(got).ok()?
    };
    buffer.get(..got)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_start_time_is_that_of_proc() {
        let line = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = line.rsplit_once(')').unwrap().1.split_whitespace().collect();
        assert_eq!(super::start_ticks(), Some(fields[19].parse().unwrap()));
    }
}
