//! The C interface; `include/cotenant.h` says what each function does.

use crate::layout::{MAJOR, MINOR};
use std::sync::atomic::AtomicU64;

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
extern "C" fn cotenant_layout_version() -> u32 {
    MAJOR << 16 | MINOR
}
