//! Queries to the kernel about sockets (`sock_diag(7)`).

use super::{check, owned};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A socket answered by the kernel only. Writes are queries, and reads never wait.
///
/// # Errors
/// `EPROTONOSUPPORT` if the kernel lacks `sock_diag`; `EMFILE`.
pub fn open_sock_diag() -> io::Result<File> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointers.
    let socket = owned(check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) })?);
    // SAFETY: a sockaddr_nl is plain numbers, for which zeros are valid.
    let mut kernel: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    kernel.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    let length = size_of_val(&kernel) as libc::socklen_t;
    // SAFETY: the address is readable for its length.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const kernel).cast(), length) })?;
    Ok(socket.into())
}
