//! What arrives at a socket, and when.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Lets the kernel note when what a socket receives arrives (`SO_TIMESTAMPNS`, socket(7)).
///
/// # Errors
/// Where the kernel refuses.
pub fn stamp_arrivals(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is a readable int of the length that is given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Receives into `buffer`: how many bytes, and when the last of them arrived on `CLOCK_REALTIME`, where the kernel
/// has noted it.
///
/// # Errors
/// What recvmsg(2) says.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0_u64; 8]; // aligned as its headers are
    // SAFETY: a msghdr is plain numbers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message points to one writable buffer and to writable memory for control messages, of the lengths
    // that are given.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
    let mut arrived = None;
    // SAFETY: the kernel has filled the control messages, which the macros walk through within their length; the
    // memory outlives the walk.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(head) = header.as_ref() {
            if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let time = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                arrived = Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((bytes, arrived))
}
