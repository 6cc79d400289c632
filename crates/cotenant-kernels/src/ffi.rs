//! The border to the loops in C (`c/kernels.h`).

use std::sync::atomic::{AtomicU32, AtomicU64};

/// `struct ck_work`: what a loop gets and gives.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Work {
    pub progress: *const AtomicU64,
    pub stop: *const AtomicU32,
    pub own: *mut u8,
    pub own_bytes: u64,
    pub shared: *mut u8,
    pub shared_bytes: u64,
    pub id: u64,
    pub limit: u64,
    pub knob: u64,
    pub rate: f64,
    pub units: u64,
    pub transfers: u64,
    pub late: u64,
    pub sum: u64,
}

const _: () = assert!(size_of::<Work>() == 14 * 8, "struct ck_work in c/kernels.h has 14 words");

/// A loop, or what prepares the memory for one.
pub(crate) type Body = unsafe extern "C" fn(*mut Work);

unsafe extern "C" {
    pub(crate) fn ck_cpu(work: *mut Work);
    pub(crate) fn ck_coherence(work: *mut Work);
    pub(crate) fn ck_membench(work: *mut Work);
    pub(crate) fn ck_membench_init(work: *mut Work);
    pub(crate) fn ck_chase(work: *mut Work);
    pub(crate) fn ck_chase_init(work: *mut Work);
}
