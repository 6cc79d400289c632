//! `libcotenant`: programs report their progress.
//!
//! A program reports *units of work* (requests, frames, iterations, or any other measure of its speed) and *latencies*.
//! Both are cumulative counts in memory that Cotenant finds and reads; see `docs/how-to/report-progress.md`. Without
//! Cotenant the program runs the same: nothing is written to disk, and nothing is left behind at its end.
//!
//! * A report is one or two additions in memory of the calling thread: a few nanoseconds for any number of threads
//!   (bench `report`). After a thread's first one, reports make no system call, take no lock and are async-signal-safe.
//! * Threads beyond the first [`layout::SLOTS`]` - 1` that live at once share one slot: equally correct, but slower.
//! * A forked child reports for itself, from zero; after `exec` a program starts anew.
//! * A marked program (by the compiler pass or by calls of [`mark`]) naps when Cotenant orders it. No other program
//!   waits for anything, and an order without a heartbeat is not obeyed.
//! * OpenMP's runtime may load the library as a tool, and MPI's calls may go through it, so that programs without
//!   reports are counted too: each in a region of its own, which is not a report (`ompt`; `mpi.c` is a library of its
//!   own).
//! * Nothing here panics or fails. If the system gives no memory, reports are dropped and [`init`] returns false. Under
//!   a seccomp filter that would kill the process for asking, nothing is requested (`asking`).
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

/// Prepares this process and thread, so that the first report is fast and Cotenant finds the program early. Optional.
/// False if the system gave no memory that Cotenant could find, or the program has closed its descriptor.
pub fn init() -> bool {
    let _ = thread::slot();
    thread::keeping_errno(|| region::PROGRAM.is_visible())
}

/// Whether a seccomp filter would kill this process for requesting memory, so that reports are dropped.
pub fn is_refused() -> bool {
    asking::is_refused()
}

/// Reports `n` units of work as done.
#[inline]
pub fn units(n: u64) {
    thread::slot().units.fetch_add(n, Ordering::Relaxed);
}

/// Reports the latency of an operation; it does not count as a unit by itself.
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

/// The counter of the calling thread's units, for additions without a call: `fetch_add` with `Relaxed`. It stays valid
/// forever; after the thread's end another thread may own it, which only costs speed.
pub fn units_slot() -> &'static AtomicU64 {
    &thread::slot().units
}

/// Naps if Cotenant has freshly ordered it: for loops of batch programs without the compiler pass. It reads the clock,
/// some 30 ns: call it once in 10 µs to 1 ms of work. Waits at most [`layout::LONGEST_NAP_NS`].
pub fn mark() {
    thread::keeping_errno(|| {
        engine::look();
    });
}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/report-progress.md")]
struct HowTo;
