//! Records of a sampling buffer in the layout of `perf_event_open(2)` for the options of [`super::Sampler`].
//!
//! Each sample is id, address, process and thread, time, period; every other record ends with process and thread,
//! time, id.

use perf_event_open_sys::bindings::{
    PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES,
    PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a record's header: type, flags, size.
const HEADER: usize = 8;
/// Bytes at the end of each record other than a sample.
const TRAILER: usize = 24;

/// A part of a file mapped for execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of `start` in the file, bytes.
    pub offset: u64,
    /// The file.
    pub file: MappedFile,
}

/// Which file it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappedFile {
    /// The kernel's name; `//anon` and `[vdso]` are no files.
    pub path: PathBuf,
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its inode; 0 if it is no file.
    pub inode: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An event reached its period.
    Sample {
        /// The kernel's number of the event.
        event: u64,
        /// The instruction.
        address: u64,
        /// Counts since the last one.
        period: u64,
        /// The thread.
        thread: u32,
    },
    /// Code was mapped.
    Map(Mapping),
    /// The process executes another program from here on.
    Exec,
    /// The process, or a further thread of it, started; its parent.
    Fork(u32),
    /// A thread of it ended.
    Exit,
    /// This many records were lost because they were not read in time.
    Lost(u64),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// What.
    pub what: What,
}

/// Content of a piece of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// In the order of the buffer, which may differ from that of time.
    pub records: Vec<Record>,
    /// Records shorter than declared, or than their kind needs.
    pub damaged: u64,
}

impl Records {
    /// Parses a buffer. Unknown kinds are skipped; after an impossible size the rest is lost, as one damaged record.
    pub fn parse(mut bytes: &[u8]) -> Self {
        let mut all = Self::default();
        while !bytes.is_empty() {
            let size = field(bytes, 6).map_or(0, |size| usize::from(u16::from_ne_bytes(size)));
            if size < HEADER || size > bytes.len() {
                all.damaged += 1;
                break;
            }
            let (record, rest) = bytes.split_at(size);
            match one(record) {
                Ok(record) => all.records.extend(record),
                Err(Short) => all.damaged += 1,
            }
            bytes = rest;
        }
        all
    }
}

/// A record without room for its kind's fields.
struct Short;

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Short> {
    bytes.get(at..at + N).and_then(|field| field.try_into().ok()).ok_or(Short)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Short> {
    field(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Short> {
    field(bytes, at).map(u64::from_ne_bytes)
}

/// A record with its header: empty for irrelevant kinds.
fn one(bytes: &[u8]) -> Result<Option<Record>, Short> {
    let (kind, misc) = (u32_at(bytes, 0)?, u16::from_ne_bytes(field(bytes, 4)?));
    let body = &bytes[HEADER..];
    if kind == PERF_RECORD_SAMPLE {
        let (event, address, period) = (u64_at(body, 0)?, u64_at(body, 8)?, u64_at(body, 32)?);
        let what = What::Sample { event, address, period, thread: u32_at(body, 20)? };
        return Ok(Some(Record { time: u64_at(body, 24)?, pid: u32_at(body, 16)?, what }));
    }
    // A record too short for the trailer has none.
    let own = body.len().checked_sub(TRAILER).ok_or(Short)?;
    let (own, trailer) = body.split_at(own);
    let (mut pid, time) = (u32_at(trailer, 0)?, u64_at(trailer, 8)?);
    let what = match kind {
        PERF_RECORD_MMAP2 => {
            let (start, length, offset) = (u64_at(own, 8)?, u64_at(own, 16)?, u64_at(own, 24)?);
            let (device, inode, name) =
                ((u32_at(own, 32)?, u32_at(own, 36)?), u64_at(own, 40)?, own.get(64..).ok_or(Short)?);
            pid = u32_at(own, 0)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let file = MappedFile { path: PathBuf::from(OsStr::from_bytes(name)), device, inode };
            What::Map(Mapping { start, end: start.checked_add(length).ok_or(Short)?, offset, file })
        }
        PERF_RECORD_COMM if u32::from(misc) & PERF_RECORD_MISC_COMM_EXEC != 0 => {
            pid = u32_at(own, 0)?;
            What::Exec
        }
        PERF_RECORD_FORK => {
            pid = u32_at(own, 0)?;
            What::Fork(u32_at(own, 4)?)
        }
        PERF_RECORD_EXIT => {
            pid = u32_at(own, 0)?;
            What::Exit
        }
        PERF_RECORD_LOST => What::Lost(u64_at(own, 8)?),
        PERF_RECORD_LOST_SAMPLES => What::Lost(u64_at(own, 0)?),
        _ => return Ok(None),
    };
    Ok(Some(Record { time, pid, what }))
}

/// Buffers as the kernel writes them, for tests.
#[cfg(test)]
pub(crate) mod golden {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(u16::try_from(HEADER + body.len()).unwrap().to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn trailer(pid: u32, time: u64) -> Vec<u8> {
        [&pid.to_ne_bytes()[..], &pid.to_ne_bytes(), &time.to_ne_bytes(), &77_u64.to_ne_bytes()].concat()
    }

    pub fn sample(pid: u32, time: u64, event: u64, address: u64, period: u64) -> Vec<u8> {
        let (e, a, p) = (event.to_ne_bytes(), address.to_ne_bytes(), period.to_ne_bytes());
        record(PERF_RECORD_SAMPLE, 2, &[&e, &a, &pid.to_ne_bytes(), &pid.to_ne_bytes(), &time.to_ne_bytes(), &p])
    }

    pub fn map(pid: u32, time: u64, start: u64, length: u64, offset: u64, inode: u64, name: &str) -> Vec<u8> {
        let mut name = name.as_bytes().to_vec();
        name.resize((name.len() + 1).next_multiple_of(8), 0);
        let (id, numbers) = (pid.to_ne_bytes(), [start, length, offset].map(u64::to_ne_bytes).concat());
        let device = [8_u32, 1].map(u32::to_ne_bytes).concat();
        let file = [inode, 0].map(u64::to_ne_bytes).concat();
        let rights = [5_u32, 2].map(u32::to_ne_bytes).concat();
        record(PERF_RECORD_MMAP2, 2, &[&id, &id, &numbers, &device, &file, &rights, &name, &trailer(pid, time)])
    }

    pub fn exec(pid: u32, time: u64) -> Vec<u8> {
        let id = pid.to_ne_bytes();
        record(PERF_RECORD_COMM, 1 << 13, &[&id, &id, b"name\0\0\0\0", &trailer(pid, time)])
    }

    pub fn renamed(pid: u32, time: u64) -> Vec<u8> {
        let id = pid.to_ne_bytes();
        record(PERF_RECORD_COMM, 0, &[&id, &id, b"name\0\0\0\0", &trailer(pid, time)])
    }

    pub fn fork(pid: u32, parent: u32, time: u64) -> Vec<u8> {
        let (id, by) = (pid.to_ne_bytes(), parent.to_ne_bytes());
        record(PERF_RECORD_FORK, 0, &[&id, &by, &id, &by, &time.to_ne_bytes(), &trailer(parent, time)])
    }

    pub fn exit(pid: u32, time: u64) -> Vec<u8> {
        let id = pid.to_ne_bytes();
        record(PERF_RECORD_EXIT, 0, &[&id, &id, &id, &id, &time.to_ne_bytes(), &trailer(pid, time)])
    }

    pub fn lost(pid: u32, time: u64, count: u64) -> Vec<u8> {
        record(PERF_RECORD_LOST, 0, &[&77_u64.to_ne_bytes(), &count.to_ne_bytes(), &trailer(pid, time)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Vec<u8>> {
        vec![
            golden::exec(10, 1),
            golden::map(10, 2, 0x40_0000, 0x2000, 0x1000, 99, "/bin/walk"),
            golden::renamed(10, 3),
            golden::sample(10, 4, 5, 0x40_0123, 1_000_000),
            golden::fork(11, 10, 5),
            golden::exit(11, 6),
            golden::lost(10, 7, 42),
        ]
    }

    #[test]
    fn each_kind_says_what_it_says() {
        let Records { records, damaged } = Records::parse(&all().concat());
        let file = MappedFile { path: "/bin/walk".into(), device: (8, 1), inode: 99 };
        let expected = [
            (10, 1, What::Exec),
            (10, 2, What::Map(Mapping { start: 0x40_0000, end: 0x40_2000, offset: 0x1000, file })),
            // A thread that only changes its name executes the same program.
            (10, 4, What::Sample { event: 5, address: 0x40_0123, period: 1_000_000, thread: 10 }),
            (11, 5, What::Fork(10)),
            (11, 6, What::Exit),
            (10, 7, What::Lost(42)),
        ];
        let expected: Vec<Record> = expected.map(|(pid, time, what)| Record { time, pid, what }).into();
        assert_eq!((records, damaged), (expected, 0));
    }

    /// Holds compile/regions.
    #[test]
    fn what_is_cut_off_is_damaged_and_the_rest_is_not() {
        let whole = golden::sample(10, 4, 5, 0x40_0123, 1);
        for cut in 1..whole.len() {
            let found = Records::parse(&[&golden::exec(1, 1)[..], &whole[..cut]].concat());
            assert_eq!((found.records.len(), found.damaged), (1, 1), "{cut}");
        }
        // One that claims to be shorter than its kind: the next follows at its end.
        let mut short = whole.clone();
        short.truncate(40);
        short[6..8].copy_from_slice(&40_u16.to_ne_bytes());
        let found = Records::parse(&[&short[..], &golden::exit(1, 1)].concat());
        assert_eq!((found.records.len(), found.damaged), (1, 1));
        // A size of 0 would never end.
        let mut none = whole;
        none[6..8].copy_from_slice(&0_u16.to_ne_bytes());
        assert_eq!(Records::parse(&none), Records { records: vec![], damaged: 1 });
    }

    proptest! {
        /// Holds compile/regions.
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let found = Records::parse(&bytes);
            prop_assert!(found.records.len() * HEADER <= bytes.len());
        }

        /// Real records with any byte turned, and any of them cut.
        #[test]
        fn turned_and_cut_records_are_taken(at in 0..10_000_usize, bits in any::<u8>(), cut in 0..10_000_usize) {
            let mut bytes = all().concat();
            let n = bytes.len();
            bytes[at % n] ^= bits;
            bytes.truncate(n - cut % n);
            let found = Records::parse(&bytes);
            prop_assert!(found.records.len() <= all().len() * 8);
        }
    }
}
