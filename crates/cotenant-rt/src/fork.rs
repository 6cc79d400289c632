//! Forked children report for themselves.

use crate::{region, thread};

/// Has [`in_child`] called in every child that this process forks from now on. More than once does no harm.
pub fn prepare() {
    // SAFETY: the handler is a function for the whole life of the library; the installed one is marked to stay loaded
    // (`nodelete`).
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Where a child is made without it (`vfork`, `clone`, `_Fork`), the child adds to its parent's counts until it
/// executes a program.
extern "C" fn in_child() {
    thread::keeping_errno(|| {
        for place in region::ALL {
            if place.renew() {
                thread::claim_again(place);
            }
        }
    });
}
