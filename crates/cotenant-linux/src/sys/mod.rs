//! Safe wrappers of system calls missing in the standard library, by theme, without decisions.

pub mod cgroups;
mod classes;
mod clocks;
mod confined;
mod files;
pub mod launch;
mod mapping;
mod masks;
pub mod mempolicy;
mod netlink;
mod processes;
mod signals;
mod sockets;
pub mod thread;
mod users;
pub mod waiter;
mod waiting;

pub use classes::{getscheduler, is_real_time, may_leave_idle, setscheduler};
pub use clocks::{
    Timer, boot_ticks, children_cpu_time, monotonic, own_cpu_time, thread_cpu_time, thread_sleeps, ticks_per_second,
};
pub use confined::{Failed, confined};
pub(crate) use files::flock;
pub use files::{
    Identity, Lock, begins_with_data, identity, identity_of, is_memfd, loads, nofile_limit, open_path_at, raise_nofile,
    read_link_at, restore_nofile, seals, set_nonblocking, write_some,
};
pub use mapping::{Mapping, page_size};
pub use masks::{getaffinity, setaffinity, setaffinity_all};
pub use netlink::open_sock_diag;
pub use processes::{
    Usage, become_subreaper, egid, euid, kill, kill_group, pidfd_open, pidfd_signal, reap, reap_pidfd, set_name,
    set_parent_death_signal, setsid, signal_group, stop_own_group,
};
pub use signals::{
    Signal, SignalFd, SignalMask, end_by_sent_faults, ignore, interrupted_after, is_ignored, survive_file_limit,
};
pub use sockets::{connect_unix, peer, receive, stamp_arrivals};
pub use users::{Subuids, inner_user_namespace, real_user, user_name};
pub use waiting::{Epoll, hung_up, poll_readable, wake_on_time};

use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// `errno` as a result of a call that returns −1 on failure.
fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for raw calls that return a long.
fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a new descriptor owned.
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that a successful system call has just created for us alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
