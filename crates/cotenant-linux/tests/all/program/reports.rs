//! Reports that no honest program makes.

use cotenant_rt::layout::{BYTES, MAGIC, NAME, SEALS};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;

/// Opens a file in memory under libcotenant's name with one fault, or makes this many children do it.
pub fn forge(how: &str) {
    if let Some(children) = how.strip_prefix("in children ") {
        return lie(children.parse().unwrap());
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; the descriptor is ours.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(NAME.as_ptr(), flags)) };
    let bytes = if how == "truncated" { BYTES / 2 } else { BYTES };
    file.set_len(bytes as u64).unwrap();
    let start_ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse::<u64>().unwrap()
    };
    let pid = std::process::id();
    let version: u32 = if how == "version" { 2 << 16 } else { 1 << 16 };
    let magic = match how {
        "magic" => MAGIC + 1,
        "unbegun" => 0,
        _ => MAGIC,
    };
    let pid = if how == "process" { pid + 1 } else { pid };
    let start = if how == "start" { start_ticks() + 1 } else { start_ticks() };
    file.write_all_at(&magic.to_ne_bytes(), 0).unwrap();
    for (at, number) in [(8, version), (12, 1024), (16, 2688), (20, 320), (24, pid), (28, u32::MAX)] {
        file.write_all_at(&number.to_ne_bytes(), at).unwrap();
    }
    file.write_all_at(&start.to_ne_bytes(), 32).unwrap();
    file.write_all_at(&u64::MAX.to_ne_bytes(), 8192).unwrap(); // more units than possible
    let mode = if how == "mode" { 0o666 } else { 0o600 };
    let seals = if how == "unsealed" { libc::F_SEAL_GROW } else { SEALS };
    // SAFETY: takes plain numbers and a descriptor that is open.
    unsafe {
        assert_eq!(libc::fchmod(file.as_raw_fd(), mode), 0);
        if how == "owner" {
            assert_eq!(libc::fchown(file.as_raw_fd(), 12_345, 12_345), 0);
        }
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
    }
    let _ = file.into_raw_fd(); // stays open
}

/// A child that reports so many units and stays; returns its process id.
pub fn fork(units: u64) -> i32 {
    // SAFETY: the child calls only functions made for that.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            cotenant_rt::units(units);
            loop {
                libc::pause();
            }
        }
        pid
    }
}

/// Children that stay, each with memory that claims a much larger content than exists.
fn lie(children: usize) {
    for _ in 0..children {
        // SAFETY: this process has one thread.
        unsafe {
            if libc::fork() == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                forge("nothing");
                loop {
                    libc::pause();
                }
            }
        }
    }
}

/// Ends such a child.
pub fn end(pid: i32) {
    // SAFETY: takes plain numbers; the status is not needed.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}
