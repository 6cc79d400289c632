//! The C interface; `include/cotenant.h` documents each function.

use crate::engine::Marker;
use crate::layout::{MAJOR, MINOR};
use std::sync::atomic::AtomicU64;

/// The C libraries request memory as they are loaded (`scripts/install-lib`), because the program may install a seccomp
/// filter later.
#[cfg(c_library)]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        crate::thread::keeping_errno(|| {
            crate::region::PROGRAM.prepare();
            if crate::ompt::is_asked_for() {
                crate::region::OPENMP.prepare();
            }
        });
    }
    at_load
};

#[unsafe(no_mangle)]
extern "C" fn cotenant_init() -> bool {
    crate::init()
}

#[unsafe(no_mangle)]
extern "C" fn cotenant_units(n: u64) {
    crate::units(n);
}

#[unsafe(no_mangle)]
extern "C" fn cotenant_latency_ns(ns: u64) {
    crate::latency_ns(ns);
}

#[unsafe(no_mangle)]
extern "C" fn cotenant_units_slot() -> *const AtomicU64 {
    crate::units_slot()
}

#[unsafe(no_mangle)]
extern "C" fn cotenant_mark() {
    crate::mark();
}

/// # Safety
/// `marker` is null, or points to a marker used by the calling thread only.
#[unsafe(no_mangle)]
unsafe extern "C" fn cotenant_marker_1(marker: *const Marker) {
    // SAFETY: guaranteed by the caller.
    if let Some(marker) = unsafe { marker.as_ref() } {
        crate::engine::called(marker);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cotenant_layout_version() -> u32 {
    MAJOR << 16 | MINOR
}

/// The counter of this process's MPI calls, for `libcotenant-mpi` only. It stays valid forever.
#[unsafe(no_mangle)]
extern "C" fn cotenant_mpi_1() -> *const AtomicU64 {
    &raw const crate::thread::of_mpi().units
}

/// Requests memory for a program that may call MPI later.
#[unsafe(no_mangle)]
extern "C" fn cotenant_mpi_0() {
    crate::thread::keeping_errno(|| _ = crate::region::MPI.prepare());
}
