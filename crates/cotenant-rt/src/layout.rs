//! Layout of the shared memory: the one definition for the programs that write it and for Cotenant as its reader.
//!
//! ```text
//!     0  Header   magic, version, sizes, owner; orders at 128, naps at 256   4,096 bytes
//!  4096  owners   not 0 where a thread has the slot                    4 bytes × SLOTS
//!  8192  slots    units, sum of latencies, histogram of latencies      2,688 bytes × SLOTS
//! ```
//!
//! Cotenant writes only the orders; the program writes all the rest. Version 1.0 had no orders and no naps.
//!
//! The memory is an anonymous file (`memfd_create`) named [`NAME`], mode 0600, sealed so that its size is fixed. It is
//! sparse: unused pages take no memory. All numbers are in the machine's byte order.
//!
//! **Versions.** The major version changes when a reader of the old layout would misread the new one; readers refuse
//! other major versions. The minor version grows when reserved space gets a meaning. Reserved space is zero.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the anonymous file; `/proc/PID/fd/N` shows it as `/memfd:cotenant-progress (deleted)`.
pub const NAME: &std::ffi::CStr = c"cotenant-progress";

/// Name of the file in which OpenMP's tool counts units: iterations, tasks, parallel regions.
pub const OPENMP: &std::ffi::CStr = c"cotenant-openmp";

/// Name of the file in which calls of MPI are counted, as units of slot 0.
pub const MPI: &std::ffi::CStr = c"cotenant-mpi";

/// The first eight bytes, written last: a reader that sees them sees a complete header.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"cotenant");

/// Major version of the layout.
pub const MAJOR: u32 = 1;

/// Minor version of the layout.
pub const MINOR: u32 = 1;

/// The first minor version whose programs obey orders.
pub const MINOR_WITH_ORDERS: u32 = 1;

/// An order whose heartbeat is older than this, in nanoseconds, is stale: its writer is dead, or too slow to control
/// others.
pub const FRESH_NS: u64 = 100_000_000;

/// Limit of a nap in nanoseconds, whatever the order.
pub const LONGEST_NAP_NS: u64 = 1_000_000_000;

/// Slots. Slot 0 is shared by all threads without a slot of their own.
pub const SLOTS: usize = 1024;

/// Steps of the histogram between a power of two and the next: a bucket is at most 1/8 = 12.5 % wide.
pub const STEPS: usize = 8;

/// Buckets of the histogram: exact below 8 ns, then 8 per power of two up to 2⁴² ns (73 min); the last one also holds
/// longer latencies.
pub const BUCKETS: usize = 320;

/// The seals required before mapping another program's file: `F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW`.
pub const SEALS: i32 = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// The first page.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// `MAJOR << 16 | MINOR`.
    pub version: AtomicU32,
    /// [`SLOTS`].
    pub slots: AtomicU32,
    /// Bytes per slot.
    pub slot_bytes: AtomicU32,
    /// [`BUCKETS`].
    pub buckets: AtomicU32,
    /// Process id of the owner, in the owner's namespace.
    pub pid: AtomicU32,
    /// Number of slots ever used; these come first.
    pub used: AtomicU32,
    /// Start time of the owner in clock ticks since boot, `/proc/PID/stat` field 22: with `pid`, its identity.
    pub start_ticks: AtomicU64,
    reserved: [AtomicU64; 11],
    /// Cotenant's orders to the program.
    pub orders: Orders,
    /// The program's response to them.
    pub naps: Naps,
    reserved_page: [AtomicU64; 480 - 16],
}

/// Written by Cotenant only. Times are `CLOCK_MONOTONIC`, nanoseconds. Fields need not be of the same order: any
/// mixture of two orders is an allowed nap.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Orders {
    /// Nap until then; in the past, or 0: no nap.
    pub nap_until_ns: AtomicU64,
    /// Cotenant's last heartbeat for the order, see [`FRESH_NS`].
    pub heartbeat_ns: AtomicU64,
    /// Limit of a nap on this order; one that ends later than this from now is not taken at all. Capped at
    /// [`LONGEST_NAP_NS`].
    pub cap_ns: AtomicU64,
    reserved: [AtomicU64; 13],
}

/// Written by the program: sums over its threads since its start.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Naps {
    /// Naps begun.
    pub count: AtomicU64,
    /// Total duration of ended naps, nanoseconds.
    pub napped_ns: AtomicU64,
    /// Beginning of the latest nap, `CLOCK_MONOTONIC`.
    pub begin_ns: AtomicU64,
    /// End of the latest ended nap, `CLOCK_MONOTONIC`.
    pub end_ns: AtomicU64,
    /// Threads napping now.
    pub napping: AtomicU64,
    /// Time of the last look for orders by any thread, `CLOCK_MONOTONIC`; 0: never, the program has no marks.
    pub looked_ns: AtomicU64,
    reserved: [AtomicU64; 10],
}

/// Counts of one thread. Two cache lines apart from the next, because processors fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Slot {
    /// Units of work.
    pub units: AtomicU64,
    /// Sum of all latencies, nanoseconds; wraps.
    pub latency_sum_ns: AtomicU64,
    /// Reserved; zero.
    pub reserved: [AtomicU64; 14],
    /// Number of latencies in each bucket, see [`bucket_of`].
    pub latency: [AtomicU64; BUCKETS],
}

/// The whole region.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Region {
    /// Identification and owner.
    pub header: Header,
    /// Whether a slot belongs to a thread: not 0 (earlier releases wrote the thread id). Counts of a slot stay when its
    /// thread ends.
    pub owners: [AtomicU32; SLOTS],
    /// The counts, whose sum is the program's.
    pub slots: [Slot; SLOTS],
}

impl Slot {
    pub(crate) const fn new() -> Self {
        Self {
            units: AtomicU64::new(0),
            latency_sum_ns: AtomicU64::new(0),
            reserved: [const { AtomicU64::new(0) }; 14],
            latency: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

/// Size of the file, bytes.
pub const BYTES: usize = size_of::<Region>();

const _: () = {
    assert!(size_of::<Header>() == 4096);
    assert!(offset_of!(Header, magic) == 0);
    assert!(offset_of!(Header, version) == 8);
    assert!(offset_of!(Header, slots) == 12);
    assert!(offset_of!(Header, slot_bytes) == 16);
    assert!(offset_of!(Header, buckets) == 20);
    assert!(offset_of!(Header, pid) == 24);
    assert!(offset_of!(Header, used) == 28);
    assert!(offset_of!(Header, start_ticks) == 32);
    assert!(offset_of!(Header, orders) == 128);
    assert!(offset_of!(Header, naps) == 256);
    assert!(size_of::<Orders>() == 128);
    assert!(offset_of!(Orders, nap_until_ns) == 0);
    assert!(offset_of!(Orders, heartbeat_ns) == 8);
    assert!(offset_of!(Orders, cap_ns) == 16);
    assert!(size_of::<Naps>() == 128);
    assert!(offset_of!(Naps, count) == 0);
    assert!(offset_of!(Naps, napped_ns) == 8);
    assert!(offset_of!(Naps, begin_ns) == 16);
    assert!(offset_of!(Naps, end_ns) == 24);
    assert!(offset_of!(Naps, napping) == 32);
    assert!(offset_of!(Naps, looked_ns) == 40);
    assert!(size_of::<Slot>() == 2688);
    assert!(offset_of!(Slot, units) == 0);
    assert!(offset_of!(Slot, latency_sum_ns) == 8);
    assert!(offset_of!(Slot, reserved) == 16);
    assert!(offset_of!(Slot, latency) == 128);
    assert!(offset_of!(Region, owners) == 4096);
    assert!(offset_of!(Region, slots) == 8192);
    assert!(BYTES == 8192 + SLOTS * 2688);
};

/// The bucket of a latency: below [`BUCKETS`].
#[inline]
pub const fn bucket_of(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros() as usize; // at least 3
    let bucket = (power - 2) * STEPS + ((ns >> (power - 3)) as usize & (STEPS - 1));
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The shortest latency of a bucket and the shortest of the next, nanoseconds.
pub const fn bounds_of(bucket: usize) -> (u64, u64) {
    (lower(bucket), lower(bucket + 1))
}

const fn lower(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let power = bucket / STEPS + 2;
    ((STEPS + bucket % STEPS) as u64) << (power - 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_lies_in_their_bounds() {
        for bucket in 0..BUCKETS {
            let (low, high) = bounds_of(bucket);
            assert!(low < high && (bucket < STEPS || (high - low) * 8 <= low), "{bucket}: {low}..{high}");
            assert_eq!((bucket_of(low), bucket_of(high - 1)), (bucket, bucket));
        }
        // 1,000 ns = 0b1111101000: power 9, next three bits 111 → 7 × 8 + 7.
        assert_eq!(bucket_of(1_000), 63);
        assert_eq!(bounds_of(63), (960, 1_024));
        assert_eq!(bounds_of(BUCKETS - 1).1, 1 << 42);
        assert_eq!((bucket_of(1 << 42), bucket_of(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }
}
