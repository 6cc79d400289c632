//! The source of a thread's new memory, and the place of a process's pages.

use cotenant_model::NodeId;
use std::io;

/// `MPOL_BIND` and `MPOL_DEFAULT` of `linux/mempolicy.h`.
const BIND: libc::c_int = 2;
const DEFAULT: libc::c_int = 0;

/// `MPOL_MF_MOVE` of `linux/mempolicy.h`: only pages exclusive to the process.
const MOVE: libc::c_int = 2;

/// Memory first touched by this thread and its later children comes from that node only; `None`: default.
///
/// # Errors
/// `EINVAL` for a missing or forbidden node, `EPERM` if a sandbox forbids it, `ENOSYS` without NUMA.
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

/// `move_pages(2)`: the result of each page, its node now or a negative error. Without `nodes` nothing is moved.
///
/// # Errors
/// `ESRCH`, `EPERM`, `ENOSYS` without NUMA.
///
/// # Panics
/// The lengths differ.
pub fn move_pages(
    pid: u32,
    pages: &[u64],
    nodes: Option<&[libc::c_int]>,
    status: &mut [libc::c_int],
) -> io::Result<()> {
    assert!(nodes.is_none_or(|nodes| pages.len() == nodes.len()) && pages.len() == status.len());
    // SAFETY: all arrays have that many elements and outlive the call, and that of nodes may be null; the kernel
    // writes to the last one alone. The addresses are of the other process and are not used here.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[_]>::as_ptr),
            status.as_mut_ptr(),
            if nodes.is_some() { MOVE } else { 0 },
        )
    };
    // A positive result counts pages that could not be moved; each has its reason in its status.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_from_a_node_that_exists() {
        if let Err(e) = set(Some(NodeId(0))) {
            eprintln!("skipped: memory policies are not available here ({e})");
            return;
        }
        assert!(!vec![1_u8; 1 << 20].is_empty());
        assert!(set(Some(NodeId(1_000))).is_err() && set(Some(NodeId(5_000))).is_err());
        set(None).unwrap();
    }
}
