//! Where a thread's new memory comes from.

use cotenant_model::NodeId;
use std::io;

/// `MPOL_BIND` and `MPOL_DEFAULT` of `linux/mempolicy.h`.
const BIND: libc::c_int = 2;
const DEFAULT: libc::c_int = 0;

/// Memory that this thread, and the threads that it starts, touch first from now on comes from that node only; `None` = as usual.
///
/// # Errors
/// `EINVAL` where there is no such node or it is not allowed, `EPERM` where a sandbox forbids it, `ENOSYS` without NUMA.
pub fn set(node: Option<NodeId>) -> io::Result<()> {
    const BITS: usize = usize::BITS as usize;
    let mut mask = [0_usize; 1024 / BITS];
    if let Some(NodeId(node)) = node {
        *mask.get_mut(node as usize / BITS).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node as usize % BITS);
    }
    let (mode, bits) = if node.is_some() { (BIND, 1024_usize) } else { (DEFAULT, 0) };
    let mask = if node.is_some() { mask.as_ptr() } else { std::ptr::null() };
    // SAFETY: the kernel reads at most the given bits of the mask, which outlives the call; a null mask goes with none.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_from_a_node_that_exists() {
        if let Err(e) = set(Some(NodeId(0))) {
            eprintln!("skipped: memory policies are not to be had here ({e})");
            return;
        }
        assert!(!vec![1_u8; 1 << 20].is_empty());
        assert!(set(Some(NodeId(1_000))).is_err() && set(Some(NodeId(5_000))).is_err());
        set(None).unwrap();
    }
}
