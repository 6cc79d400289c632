//! Whether the system may be asked for memory. A seccomp filter can end a program for a call that it does not know, and
//! what is only there to be watched must never be why a program ends.
//!
//! The C libraries ask when they are loaded, before a program can have a filter of its own ([`crate::abi`]). Later, and
//! in forked children, a process of its own tries all calls first.

use crate::layout::BYTES;
use crate::memory::{File, close, describe, map, read_start};
use std::ffi::c_long;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Somebody was ended for asking, or could not be made.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether nothing is asked any more in this process, since a filter would end it.
pub fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// Whether memory may be asked for now. Async-signal-safe.
pub fn may() -> bool {
    !is_refused() && (is_unfiltered() || survives())
}

/// The same in a child that was just forked: a filter that let it be forked lets it fork. Async-signal-safe.
pub fn may_in_child() -> bool {
    !is_refused() && survives()
}

/// Whether no filter stands for this thread, as `/proc` says.
fn is_unfiltered() -> bool {
    let mut buffer = [0; 4096];
    let key = b"\nSeccomp:";
    let text = read_start(c"/proc/thread-self/status", &mut buffer).unwrap_or_default();
    let value = text.windows(key.len()).position(|part| part == key).and_then(|at| text.get(at + key.len()..));
    value.and_then(|value| value.iter().find(|byte| !byte.is_ascii_whitespace())) == Some(&b'0')
}

/// Whether a process that does all that may be needed lives through it.
fn survives() -> bool {
    // A process with memory of its own, waited for here, of whose end nobody hears: the raw call, for `fork` would call
    // handlers, ours among them. One that shared our memory could take us along where it leaves a core.
    // SAFETY: the child goes on with a copy of this stack, makes nothing but system calls, and ends by one.
    unsafe {
        let none: c_long = 0;
        let pid = libc::syscall(libc::SYS_clone, c_long::from(libc::CLONE_VFORK), none, none, none, none);
        if pid == 0 {
            // It ends without the program's handler, which could go on with the program in here, and leaves no core: 1
            // is too little for a file, and none for a pipe (core(5)).
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

/// All that is ever asked of the system here, for a process that ends then.
fn try_all() {
    let file = File::create(c"cotenant-trial");
    if let Some(made) = map(file.as_ref(), ptr::null_mut()) {
        // SAFETY: it is a mapping of this size, zeroed and then only changed through atomics; nobody else knows it.
        unsafe {
            describe(&*made);
            map(None, made);
            libc::munmap(made.cast(), BYTES);
        }
    }
    close(file.as_ref());
    // A nap that is over.
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let none = ptr::null_mut::<libc::timespec>();
    let (clock, absolute) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: the timespec is writable.
    unsafe {
        libc::clock_gettime(clock, &raw mut time);
        libc::syscall(libc::SYS_clock_nanosleep, clock, absolute, &raw const time, none);
    }
}
