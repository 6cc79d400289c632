//! System calls for the shared memory. All of it is async-signal-safe.

use crate::layout::{BUCKETS, BYTES, MAJOR, MINOR, Region, SEALS, SLOTS, Slot};
use std::ffi::{CStr, c_int, c_uint};
use std::sync::atomic::Ordering;

/// Fills in the header of zeroed memory, except for the magic number.
pub fn describe(region: &Region) {
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

/// Maps the file, or private memory; a non-null `place` is replaced.
pub fn map(file: Option<&File>, place: *mut Region) -> Option<*mut Region> {
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    let (flags, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.fd),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, or one that replaces the region's own, which has exactly this size.
    let at = unsafe { libc::mmap(place.cast(), BYTES, rights, flags | fixed, fd, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// An anonymous file.
pub struct File {
    pub fd: c_int,
    /// Device and inode.
    pub id: (u64, u64),
}

impl File {
    /// A sealed file of the region's size, for its owner only; it disappears with the last process that has it open or
    /// mapped. Async-signal-safe.
    pub fn create(name: &CStr) -> Option<Self> {
        const NOEXEC_SEAL: c_uint = 8; // MFD_NOEXEC_SEAL; unknown before Linux 6.3
        // Beyond the limit of file sizes the kernel would not only refuse, but kill the program (SIGXFSZ).
        if !may_be_large() {
            return None;
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the other calls take plain numbers and our descriptor.
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

/// Whether the limit of file sizes (`ulimit -f`) permits the region. Async-signal-safe.
fn may_be_large() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0 && limit.rlim_cur >= BYTES as libc::rlim_t }
}

pub fn close(file: Option<&File>) {
    if let Some(&File { fd, .. }) = file {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(fd) };
    }
}

/// Device and inode of an open file.
pub fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: all bytes of this plain struct may be zero; it is writable.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// Start time of this process: field 22 of its `stat`, counted after the last parenthesis of its name.
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
