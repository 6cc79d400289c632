//! `libcotenant`: a program tells how fast it goes.
//!
//! A program reports *units of work* (requests, frames, iterations, whatever it would call its speed) and
//! *latencies*. Both are cumulative counts in memory that Cotenant finds and reads; see
//! `docs/how-to/report-progress.md`. Without Cotenant the same program runs the same: nothing is written to disk, and
//! nothing is left behind when it ends, however it ends.
//!
//! * A report is one or two additions in memory that belongs to the calling thread alone: a few nanoseconds, whatever
//!   the number of threads (bench `report`). After a thread's first report they make no system call, take no lock and
//!   are async-signal-safe.
//! * Threads beyond the first [`layout::SLOTS`]` - 1` that live at once share one place: as right, not as fast.
//! * A forked child reports for itself, from zero; a program that is executed anew begins anew.
//! * A program that is marked, by the compiler pass or by calls of [`mark`], naps when Cotenant orders it. No other
//!   program waits for anything, and an order without a heartbeat is not obeyed.
//! * OpenMP's runtime may load it as a tool, and MPI's calls may go through it, so that programs which report nothing
//!   are counted, too: each in a region of its own, which is no report (`ompt`; `mpi.c` is a library of its own).
//! * Nothing here panics or fails. Where the system gives no memory, reports go nowhere and [`init`] says so. Where a
//!   seccomp filter ends whoever asks for it, nothing is asked (`asking`).
//!
//! The C interface is `include/cotenant.h`.

mod abi;
mod asking;
mod engine;
pub mod layout;
mod memory;
mod ompt;
mod region;
mod thread;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Prepares this process and thread, so that the first report is as quick as the others and Cotenant finds the
/// program early. Optional. False where the system gave no memory that Cotenant could find, or the program has closed
/// its descriptor.
pub fn init() -> bool {
    let _ = thread::slot();
    thread::keeping_errno(|| region::PROGRAM.is_visible())
}

/// Whether a seccomp filter ends whoever asks for memory here, so that reports go nowhere.
pub fn is_refused() -> bool {
    asking::is_refused()
}

/// Reports `n` units of work as done.
#[inline]
pub fn units(n: u64) {
    thread::slot().units.fetch_add(n, Ordering::Relaxed);
}

/// Reports how long something took; it does not count as a unit by itself.
#[inline]
pub fn latency(time: Duration) {
    latency_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// The same in nanoseconds.
#[inline]
pub fn latency_ns(ns: u64) {
    let slot = thread::slot();
    if let Some(bucket) = slot.latency.get(layout::bucket_of(ns)) {
        bucket.fetch_add(1, Ordering::Relaxed);
    }
    slot.latency_sum_ns.fetch_add(ns, Ordering::Relaxed);
}

/// The counter of the calling thread's units, for code that wants to add to it without a call: `fetch_add` with
/// `Relaxed`. It stays valid for ever; once the thread has ended it may be another thread's, which only costs speed.
pub fn units_slot() -> &'static AtomicU64 {
    &thread::slot().units
}

/// Naps if Cotenant has ordered it and the order is fresh: for the loops of batch programs that the compiler pass has
/// not marked. It costs a look at the clock, some 30 ns: call it once in 10 µs to 1 ms of work. Waits at most
/// [`layout::LONGEST_NAP_NS`].
pub fn mark() {
    thread::keeping_errno(|| {
        engine::look();
    });
}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/report-progress.md")]
struct HowTo;
