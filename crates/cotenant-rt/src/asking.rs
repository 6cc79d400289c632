//! Whether the system may be asked for memory. A seccomp filter can kill a process for an unexpected system call, and
//! observation must never be the cause.
//!
//! The C libraries ask when they are loaded, before a program can have a filter of its own ([`crate::abi`]). Later, and
//! in forked children, a separate process tries all calls first.

use crate::layout::BYTES;
use crate::memory::{File, close, describe, map, read_start};
use std::ffi::c_long;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// A trial process was killed for asking, or could not be created.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether a filter would kill this process for asking, so that it asks no more.
pub fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// Whether memory may be requested now. Async-signal-safe.
pub fn may() -> bool {
    !is_refused() && (is_unfiltered() || survives())
}

/// The same in a freshly forked child: the filter allowed one fork, so it allows another. Async-signal-safe.
pub fn may_in_child() -> bool {
    !is_refused() && survives()
}

/// Whether this thread has no filter, according to `/proc`.
fn is_unfiltered() -> bool {
    let mut buffer = [0; 4096];
    let key = b"\nSeccomp:";
    let text = read_start(c"/proc/thread-self/status", &mut buffer).unwrap_or_default();
    let value = text.windows(key.len()).position(|part| part == key).and_then(|at| text.get(at + key.len()..));
    value.and_then(|value| value.iter().find(|byte| !byte.is_ascii_whitespace())) == Some(&b'0')
}

/// Whether a trial process survives all calls that may be needed.
fn survives() -> bool {
    // A process with its own memory, reaped here without notice to others: the raw call, because `fork` would run
    // handlers, ours among them. A child that shared our memory could end this process with its core dump. SAFETY: the
    // child continues on a copy of this stack, only makes system calls, and ends by one.
    unsafe {
        let none: c_long = 0;
        let pid = libc::syscall(libc::SYS_clone, c_long::from(libc::CLONE_VFORK), none, none, none, none);
        if pid == 0 {
            // It ends without the program's signal handler, which could continue the program here, and without a core
            // dump: 1 is too small for a file, and disables a pipe (core(5)).
            libc::signal(libc::SIGSYS, libc::SIG_DFL);
            libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 1, rlim_max: 1 });
            try_all();
            loop {
                libc::syscall(libc::SYS_exit_group, none);
            }
        }
        let mut status = -1;
        let none = ptr::null_mut::<libc::rusage>();
        while pid > 0 && libc::syscall(libc::SYS_wait4, pid, &raw mut status, libc::__WALL, none) < 0 {
            if *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
        if status != 0 {
            REFUSED.store(true, Ordering::Relaxed);
        }
        status == 0
    }
}

/// All system calls that this library may make; the calling process then ends.
fn try_all() {
    let file = File::create(c"cotenant-trial");
    if let Some(made) = map(file.as_ref(), ptr::null_mut()) {
        // SAFETY: it is a mapping of this size, zeroed and then only changed through atomics, without other references.
        unsafe {
            describe(&*made);
            map(None, made);
            libc::munmap(made.cast(), BYTES);
        }
    }
    close(file.as_ref());
    // A nap whose end has passed.
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let none = ptr::null_mut::<libc::timespec>();
    let (clock, absolute) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: the timespec is writable.
    unsafe {
        libc::clock_gettime(clock, &raw mut time);
        libc::syscall(libc::SYS_clock_nanosleep, clock, absolute, &raw const time, none);
    }
}
