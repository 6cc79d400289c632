//! The interface to the loops in C (`c/kernels.h`).

use std::sync::atomic::{AtomicU32, AtomicU64};

/// `struct ck_work`: arguments and results of a loop.
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
    pub deadline_ns: u64,
    pub units: u64,
    pub transfers: u64,
    pub span_ns: u64,
    pub skipped_ns: u64,
    pub wrong: u64,
    pub sum: u64,
}

const _: () = assert!(size_of::<Work>() == 17 * 8, "struct ck_work in c/kernels.h has 17 words");

/// A loop, or the initialization of its memory.
pub(crate) type Body = unsafe extern "C" fn(*mut Work);

unsafe extern "C" {
    pub(crate) safe fn ck_cpu_time_ns() -> u64;
    pub(crate) safe fn ck_now_ns() -> u64;
    pub(crate) fn ck_cpu(work: *mut Work);
    pub(crate) fn ck_coherence(work: *mut Work);
    pub(crate) fn ck_membench(work: *mut Work);
    pub(crate) fn ck_rmw(work: *mut Work);
    pub(crate) fn ck_fill(work: *mut Work);
    pub(crate) fn ck_chase(work: *mut Work);
    pub(crate) fn ck_chase_init(work: *mut Work);
    pub(crate) fn ck_stream(work: *mut Work);
    pub(crate) fn ck_stream_init(work: *mut Work);
    pub(crate) fn ck_stream_check(work: *mut Work);
    pub(crate) fn ck_inject(work: *mut Work);
    pub(crate) fn ck_bst(work: *mut Work);
    pub(crate) fn ck_bst_init(work: *mut Work);
    pub(crate) fn ck_naive(work: *mut Work);
    pub(crate) fn ck_er_naive(work: *mut Work);
    pub(crate) fn ck_blockie(work: *mut Work);
    pub(crate) fn ck_sledge(work: *mut Work);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Knob;
    use crate::memory::Memory;
    use crate::table::KERNELS;

    const BYTES: u64 = 24 * 1024;

    /// Work on this memory, alone, until stopped.
    fn work(memory: &Memory, progress: &AtomicU64, stop: &AtomicU32) -> Work {
        Work {
            progress: &raw const *progress,
            stop: &raw const *stop,
            own: memory.start(),
            own_bytes: BYTES,
            shared: memory.start(),
            shared_bytes: BYTES,
            id: 1,
            limit: u64::MAX,
            knob: 0,
            rate: 0.0,
            deadline_ns: u64::MAX,
            units: 0,
            span_ns: 0,
            transfers: 0,
            skipped_ns: 0,
            wrong: 0,
            sum: 0,
        }
    }

    /// The stopping thread may get no turn, so that a loop ends by itself at its deadline.
    #[test]
    fn a_loop_ends_by_itself_at_its_deadline() {
        let (progress, stop) = (AtomicU64::new(0), AtomicU32::new(0));
        for kernel in KERNELS {
            let memory = Memory::zeroed(BYTES).unwrap();
            let knob = match kernel.knob {
                Knob::None | Knob::Rate => 0,
                Knob::Compute(value) | Knob::Stride(value) | Knob::Fixed(value) => value,
            };
            let deadline_ns = ck_now_ns() + 1_000_000;
            let rate = if kernel.has_rate() { 1e-3 } else { 0.0 };
            let mut work = Work { knob, rate, deadline_ns, ..work(&memory, &progress, &stop) };
            // SAFETY: the work's pointers are to live memory of the lengths given, larger than coherence kernels share,
            // without other references.
            unsafe {
                if let Some(init) = kernel.init {
                    init(&raw mut work);
                }
                (kernel.body)(&raw mut work);
            }
            assert!(ck_now_ns() >= deadline_ns, "{} ended early", kernel.name);
        }
    }

    /// One element of the three arrays is corrupted after the run.
    fn wrong_after_spoiling(element: Option<usize>) -> u64 {
        let (progress, stop) = (AtomicU64::new(0), AtomicU32::new(0));
        let memory = Memory::zeroed(BYTES).unwrap();
        let mut work = Work { limit: 5_000, knob: 4, ..work(&memory, &progress, &stop) };
        // SAFETY: the work's pointers are to live memory of the lengths given, without other references; STREAM shares
        // nothing.
        unsafe {
            ck_stream_init(&raw mut work);
            ck_stream(&raw mut work);
            if let Some(element) = element {
                *memory.start().add(element * 8) ^= 1;
            }
            ck_stream_check(&raw mut work);
        }
        work.wrong
    }

    /// Holds measure/kernels.
    #[test]
    fn a_single_wrong_bit_is_noticed() {
        assert_eq!(wrong_after_spoiling(None), 0);
        for element in [0, 903, 904, 1023, 1024, 2047, 2048, 3071] {
            assert_eq!(wrong_after_spoiling(Some(element)), 1, "{element}");
        }
    }
}
