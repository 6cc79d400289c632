//! Readers of external input (programs, servers, users) as functions of bytes, for `cotenant-fuzz` beyond the public
//! parsers. A panic is a bug.

use crate::act::EFFECTS;
use crate::act::nap::Orders;
use crate::sense::metrics::credentials::{self, Credentials, Given, Secret};
use crate::sense::metrics::login;
use crate::sense::metrics::wire::Wire;
use crate::sense::perf::sampling::{Cost, Places, record::Records, ring::Ring};
use crate::sense::progress::account::Account;
use crate::sense::progress::{Budget, Memory};
use crate::sense::{executable, proxies::tcp, sharing};
use crate::sys;
use crate::undo::effects::{Effects, Living};
use crate::undo::{claims, file};
use cotenant_rt::layout::{BYTES, MAGIC, MAJOR, MINOR, SLOTS, Slot};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An anonymous file, for mapping.
struct Scratch(Mutex<File>);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-fuzz-{}-{name}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file can be made");
        fs::remove_file(path).expect("it was just made");
        Self(Mutex::new(file))
    }

    /// With this content, followed by zeroes.
    fn holding(&self, content: &[u8], bytes: usize) -> MutexGuard<'_, File> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.set_len(0).and_then(|()| file.set_len(bytes as u64));
        written.and_then(|()| file.write_all_at(content, 0)).expect("there is room for it");
        file
    }
}

/// A journal in the state folder. Its complete part survives writing and reading; compacted lines are understood and
/// cannot be reduced further.
///
/// # Panics
/// If that fails.
pub fn journal(bytes: &[u8]) {
    let other = file::other_version(bytes).map(str::len);
    let Some(contents) = file::parse(bytes) else { return };
    assert_eq!(other, None, "it is of one version");
    let again: String = std::iter::once(&file::header(&contents.here, contents.owner))
        .chain(&contents.lines)
        .map(|line| file::sealed(line))
        .collect();
    assert_eq!(file::parse(again.as_bytes()), Some(file::Contents { torn: 0, ..contents.clone() }));
    journal_lines(&contents.lines);
}

/// The lines of a journal after their checksums.
///
/// # Panics
/// As [`journal`].
pub fn journal_lines(lines: &[String]) {
    let living = Living { processes: (0..40).collect(), sessions: (0..40).collect() };
    let (effects, _) = Effects::read(EFFECTS, lines);
    let (kept, effects) = effects.compacted(lines, &living);
    assert_eq!(Effects::read(EFFECTS, &kept).1, 0, "{kept:?}");
    assert_eq!(effects.compacted(&kept, &living).0, kept);
}

/// A journal with these lines and good checksums.
pub fn sealed(lines: &[&str]) -> Vec<u8> {
    let here = crate::undo::Here { boot: "b".to_owned(), host: "h".to_owned(), pidns: 7 };
    let header = file::header(&here, (5, 6));
    std::iter::once(&*header).chain(lines.iter().copied()).map(file::sealed).collect::<String>().into_bytes()
}

/// The claims file. It survives writing and reading.
///
/// # Panics
/// If that fails.
pub fn claims(text: &str) {
    let claims = claims::read(text);
    assert_eq!(claims::read(&claims::write(&claims)), claims);
}

/// The shared memory of a malicious program: words of 8 bytes at places of 2 bytes, the first half before the first
/// look and the second half before the second.
///
/// # Panics
/// If accepted counts decrease.
pub fn shared_memory(bytes: &[u8]) {
    static FILE: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("memory"));
    let sizes = [MAJOR << 16 | MINOR, SLOTS as u32, size_of::<Slot>() as u32, cotenant_rt::layout::BUCKETS as u32];
    let header = [MAGIC.to_ne_bytes().to_vec(), sizes.map(u32::to_ne_bytes).concat()].concat();
    let file = FILE.holding(&header, BYTES);
    let over = || Memory::over(file.try_clone().expect("there is a descriptor left"));
    let (memory, orders) = (over(), Orders::over(over()));
    let mut account = Account::default();
    let mut believed = account.believed().clone();
    let halves = bytes.split_at(bytes.len() / 20 * 10);
    for (second, half) in (1..).zip([halves.0, halves.1]) {
        for write in half.chunks_exact(10) {
            let place = u64::from(u16::from_ne_bytes([write[0], write[1]]));
            // The meaningful words of the header, then the slots.
            let at = if place < 64 { place * 8 } else { 8_192 + (place - 64) * 8 };
            file.write_all_at(&write[2..], at).expect("it lies in the file");
        }
        let _ = memory.check_layout();
        if let Ok(Some(reported)) = memory.read(&mut Budget::of_a_look()) {
            let _ = account.take(reported, Duration::from_secs(second));
            let now = account.believed().clone();
            assert!(now.units >= believed.units, "{now:?} after {believed:?}");
            let _ = now.latency_ns().map(|latencies| (latencies.count(), latencies.quantile(0.99)));
            believed = now;
        }
        let naps = orders.naps();
        if naps.can_be(sys::monotonic()) {
            let _ = naps.napped.as_secs_f64();
        }
        orders.nap(Duration::from_secs(u64::MAX), Duration::MAX);
        orders.stand_by();
    }
}

/// The kernel's ring buffer: its begin and end, each of 8 bytes, then its content; and the records.
///
/// # Panics
/// If records come from nothing.
pub fn perf_buffer(bytes: &[u8]) {
    static FILE: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("perf"));
    let page = sys::page_size();
    let Some((ends, data)) = bytes.split_first_chunk::<16>() else { return };
    let mut content = vec![0; page];
    let head = std::mem::offset_of!(perf_event_open_sys::bindings::perf_event_mmap_page, data_head);
    content[head..head + 16].copy_from_slice(ends);
    content.extend(&data[..data.len().min(page)]);
    let file = FILE.holding(&content, 2 * page);
    let mut read = Vec::new();
    let mut ring = Ring::map(file.as_fd(), 1).expect("it can be mapped");
    assert_eq!(ring.read(&mut read), !read.is_empty() || ends[..8] == ends[8..]);
    drop(file);
    perf_records(&read);
}

/// Records of such a buffer.
///
/// # Panics
/// If records come from nothing.
pub fn perf_records(bytes: &[u8]) {
    let found = Records::parse(bytes);
    assert!(found.records.len() * 8 <= bytes.len());
    let mut places = Places::default();
    for (until, records) in [(u64::MAX / 2, found.records), (u64::MAX, Vec::new())] {
        places.take(records, until, |_, period| Cost { ns: period as f64, ..Cost::default() });
    }
    assert!(places.intervals().count() as u64 <= places.samples);
}

/// A program's file, up to its build id.
pub fn program(bytes: &[u8]) {
    static FILE: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("program"));
    let _ = executable::build_id(&FILE.holding(bytes, bytes.len()));
}

/// The kernel's answer about its sockets.
pub fn sockets(bytes: &[u8]) {
    let mut all = Vec::new();
    let _ = tcp::answers(bytes, &mut all);
}

/// Content of `/proc/PID/autogroup`.
pub fn autogroup(text: &str) {
    let _ = crate::sense::nice::autogroup(text);
}

/// A line of `/proc/PID/maps`.
pub fn mapping(line: &str) {
    let _ = sharing::shared(line);
}

/// A server's answer to a log-in and a query of `PostgreSQL`, or to redis's log-in with a ping. `@` stands for the text
/// to repeat.
///
/// # Panics
/// If an incomplete answer is accepted.
pub fn server(postgres: bool, bytes: &[u8]) {
    let (ours, mut theirs) = UnixStream::pair().expect("sockets can be made");
    let (mut wire, token) = Wire::over(ours);
    let mut answer = Vec::new();
    for part in bytes.split_inclusive(|byte| *byte == b'@') {
        match part.strip_suffix(b"@") {
            Some(before) => answer.extend([before, token.as_bytes()].concat()),
            None => answer.extend(part),
        }
    }
    answer.truncate(64 << 10); // capacity of a socket
    let sent = theirs.write_all(&answer).and_then(|()| theirs.shutdown(Shutdown::Write));
    sent.expect("there is room for it");
    let given = Given { postgres: Secret::new("hush"), redis: Secret::new("hush"), ..Given::default() };
    let credentials = Credentials { given, ..Credentials::default() };
    let answered = if postgres {
        login::start(&mut wire, "127.0.0.1:5432", "any", &credentials).and_then(|()| wire.query())
    } else {
        login::redis(&mut wire, &credentials)
    };
    let why = answered.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(bytes.windows(4).any(|part| part == b"hush") || !why.contains("hush"), "{why}");
    let lets_in = !postgres && bytes.windows(3).any(|part| part == b"+OK");
    assert!(answered.is_err() || lets_in || bytes.contains(&b'@'), "a server repeats only what it was asked to");
}

/// A password file of `PostgreSQL`.
pub fn passwords(bytes: &[u8]) {
    let _ = credentials::found(bytes, ["localhost", "5432", "shop", "ann"]);
}

/// Mounts and control groups as seen by processes and containers. Paths from the real root must not lead outside of it.
///
/// # Panics
/// If they do.
pub fn control_groups(text: &str) {
    for controller in [None, Some("cpu"), Some("cpuset")] {
        let _ = sys::cgroups::mounts_in(text, controller);
        let Some(group) = sys::cgroups::group_in(text, controller) else { continue };
        let real = sys::cgroups::resolve("/pods/a", &group);
        assert!(real.starts_with('/') && real.split('/').all(|part| part != ".."), "{group}: {real}");
    }
}
