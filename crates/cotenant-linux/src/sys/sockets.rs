//! Data arriving at a socket, and the time.

use super::{check, owned};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to a socket in the file system; fails if its server's queue stays full. Writes have the same time limit.
///
/// # Errors
/// Errors of connect(2); `EAGAIN` at the time limit.
pub fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    // SAFETY: takes no pointers.
    let stream = UnixStream::from(owned(check(unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
    })?));
    stream.set_write_timeout(Some(timeout))?; // connect(2) heeds it, too
    // SAFETY: a sockaddr_un is plain numbers, for which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a socket"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is readable for its length, and its path ends with a NUL.
    check(unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(stream)
}

/// The effective user and the process of the peer at the connection (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// The kernel refuses.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: both are writable, and the length is that of the structure.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    })?;
    Ok((peer.uid, peer.pid.cast_unsigned()))
}

/// Makes the kernel record the arrival of a socket's data (`SO_TIMESTAMPNS`, socket(7)).
///
/// # Errors
/// The kernel refuses.
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

/// Receives into `buffer`: the number of bytes, and the arrival of the last on `CLOCK_REALTIME`, if recorded.
///
/// # Errors
/// Errors of recvmsg(2).
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

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_takes_nobody_is_given_up() {
        let dir = TempDir::new("full");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: takes plain numbers; the descriptor is open.
        check(unsafe { libc::listen(listener.as_raw_fd(), 0) }).unwrap();
        let timeout = Duration::from_millis(20);
        let mut waiting = Vec::new();
        let why = loop {
            match connect_unix(&path, timeout) {
                Ok(stream) => waiting.push(stream),
                Err(why) => break why,
            }
            assert!(waiting.len() < 100, "there is room for few");
        };
        assert_eq!(why.kind(), io::ErrorKind::WouldBlock);
        let long = "x".repeat(200);
        assert_eq!(connect_unix(Path::new(&long), timeout).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
