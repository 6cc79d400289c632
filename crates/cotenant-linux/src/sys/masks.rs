//! Masks of threads.

use super::check_long;
use cotenant_model::CpuSet;
use std::io;

/// Words of a mask's buffer on the stack, because masks are read constantly: 8,192 CPUs, the maximum of x86 and Arm
/// kernels.
const MASK_WORDS: usize = 128;

/// Words of the largest tried mask: 65,536 CPUs, [`cotenant_model::cpuset::MAX_CPU`].
const MAX_MASK_WORDS: usize = 1024;

/// The current mask of a thread: its own mask ∩ its cpuset ∩ the active CPUs.
///
/// # Errors
/// `ESRCH` if the thread has ended.
pub fn getaffinity(tid: u32) -> io::Result<CpuSet> {
    match get_words(tid, &mut [0; MASK_WORDS]) {
        // The buffer is smaller than this kernel's masks.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => get_words(tid, &mut [0; MAX_MASK_WORDS]),
        got => got,
    }
}

fn get_words(tid: u32, words: &mut [u64]) -> io::Result<CpuSet> {
    // SAFETY: the buffer is writable for exactly the number of bytes passed.
    let result = check_long(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid.cast_signed(), size_of_val(words), words.as_mut_ptr())
    });
    let bytes = usize::try_from(result?).map_err(io::Error::other)?;
    Ok(CpuSet::from_words(words[..bytes.div_ceil(size_of::<u64>())].to_vec()))
}

/// Sets the mask of a thread. The kernel limits it to the thread's cpuset.
///
/// # Errors
/// `ESRCH` (ended), `EPERM` (not permitted), `EINVAL` (no CPU of the mask is online and in the cpuset).
pub fn setaffinity(tid: u32, mask: &CpuSet) -> io::Result<()> {
    set_words(tid, mask.as_words())
}

/// Allows a thread its whole cpuset, also after changes of that.
///
/// # Errors
/// As [`setaffinity`].
pub fn setaffinity_all(tid: u32) -> io::Result<()> {
    set_words(tid, &[u64::MAX; MAX_MASK_WORDS]) // the kernel ignores bits beyond its own masks
}

fn set_words(tid: u32, words: &[u64]) -> io::Result<()> {
    // SAFETY: the buffer is readable for exactly the number of bytes passed.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid.cast_signed(), size_of_val(words), words.as_ptr()) };
    check_long(result).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_this_thread_reads_and_writes() {
        let before = getaffinity(0).unwrap();
        assert!(!before.is_empty());
        let one = CpuSet::single(before.first().unwrap());
        setaffinity(0, &one).unwrap();
        assert_eq!(getaffinity(0).unwrap(), one);
        setaffinity_all(0).unwrap();
        assert!(before.is_subset(&getaffinity(0).unwrap()));
        setaffinity(0, &before).unwrap();
        assert_eq!(getaffinity(0).unwrap(), before);
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        assert_eq!(getaffinity(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        let absent = CpuSet::single(cotenant_model::CpuId(60_000));
        assert_eq!(setaffinity(0, &absent).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(setaffinity(0, &CpuSet::new()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
