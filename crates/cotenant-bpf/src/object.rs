//! The objects, and the layouts of their maps.

use cotenant_model::Histogram;
use cotenant_model::histogram::Bucket;

/// Made of `waits.bpf.c` by `cargo xtask bpf`.
pub const WAITS: &[u8] = aya::include_bytes_aligned!("waits.bpf.o");
/// Made of `requests.bpf.c` by `cargo xtask bpf`.
pub const REQUESTS: &[u8] = aya::include_bytes_aligned!("requests.bpf.o");

/// Applications at a time.
pub const APPS: u32 = 256;

const LOWEST_BITS: u32 = 9;
const OCTAVES: usize = 27;

/// Buckets of an octave, as powers of two.
const SUB_BITS: u32 = 3;
const SUB_BITS_OF_REQUESTS: u32 = 6;

const BUCKETS: usize = OCTAVES << SUB_BITS;
const BUCKETS_OF_REQUESTS: usize = OCTAVES << SUB_BITS_OF_REQUESTS;

/// Waits of an application.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawWaits {
    pub ns: u64,
    pub count: u64,
    pub buckets: [u64; BUCKETS],
}

/// The cause of an application's waits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlameKey {
    pub victim: u32,
    pub cause: u32,
    pub id: u64,
    pub comm: [u8; 16],
}

/// Numbers of causes.
pub mod cause {
    pub const APP: u32 = 0;
    pub const PROGRAM: u32 = 1;
    pub const KERNEL: u32 = 2;
    pub const WAKING: u32 = 3;
    pub const HYPERVISOR: u32 = 4;
    pub const QUOTA: u32 = 5;
}

// SAFETY: integers without padding (`the_layouts_have_no_padding`), of which every bit pattern is a value.
unsafe impl aya::Pod for RawWaits {}
// SAFETY: as above.
unsafe impl aya::Pod for BlameKey {}

impl Default for RawWaits {
    fn default() -> Self {
        Self { ns: 0, count: 0, buckets: [0; BUCKETS] }
    }
}

impl RawWaits {
    /// Lengths of waits, nanoseconds. Lengths below the first bound are in a bucket that begins at 0.
    pub fn lengths(&self) -> Histogram {
        histogram(&self.buckets, SUB_BITS)
    }
}

/// Which service's requests are seen: of a port in a network namespace, or of a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawService {
    pub inode: u64,
    pub device: u32,
    pub netns: u32,
    pub port: u32,
    pub counted: u32,
    pub window: u32,
    pub pad: u32,
}

/// Latencies of one side.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawLatencies {
    pub joined: u64,
    pub begun: u64,
    pub buckets: [u64; BUCKETS_OF_REQUESTS],
}

// SAFETY: integers without padding (`the_layouts_have_no_padding`), of which every bit pattern is a value.
unsafe impl aya::Pod for RawService {}
// SAFETY: as above.
unsafe impl aya::Pod for RawLatencies {}

impl RawLatencies {
    /// Nanoseconds.
    pub fn latencies(&self) -> Histogram {
        histogram(&self.buckets, SUB_BITS_OF_REQUESTS)
    }
}

/// Numbers of sides.
pub mod side {
    pub const SERVED: u32 = 0;
    pub const LOCAL: u32 = 1;
    pub const REMOTE: u32 = 2;
}

/// Of buckets as the objects' `bucket_of` numbers them.
fn histogram(buckets: &[u64], sub_bits: u32) -> Histogram {
    let bound = |bucket: usize| {
        let (octave, part) = (bucket as u32 >> sub_bits, bucket as u64 & ((1 << sub_bits) - 1));
        (((1 << sub_bits) + part) << (octave + LOWEST_BITS - sub_bits)) as f64
    };
    let of = |(bucket, count): (usize, &u64)| Bucket {
        low: if bucket == 0 { 0.0 } else { bound(bucket) },
        high: bound(bucket + 1),
        count: *count,
    };
    Histogram::new(buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_have_no_padding() {
        assert_eq!(size_of::<RawWaits>(), (2 + BUCKETS) * 8);
        assert_eq!(size_of::<BlameKey>(), 4 + 4 + 8 + 16);
        assert_eq!(size_of::<RawService>(), 8 + 6 * 4);
        assert_eq!(size_of::<RawLatencies>(), (2 + BUCKETS_OF_REQUESTS) * 8);
    }

    /// Bounds as the object's `bucket_of` has them: 8 parts of each doubling, from 512 ns on.
    #[test]
    fn buckets_have_the_bounds_of_the_object() {
        let mut raw = RawWaits::default();
        for bucket in [0, 1, 8, 9, BUCKETS - 1] {
            raw.buckets[bucket] = 1;
        }
        let bounds: Vec<_> = raw.lengths().buckets().iter().map(|bucket| (bucket.low, bucket.high)).collect();
        let last = 15.0 * 2.0_f64.powi(32);
        let expected = [(0.0, 576.0), (576.0, 640.0), (1024.0, 1152.0), (1152.0, 1280.0), (last, 2.0_f64.powi(36))];
        assert_eq!(bounds, expected);
    }
}
