//! Processes that write to common memory, by their shared mappings.
//!
//! `/proc/PID/maps` identifies objects by device and inode (`proc_pid_maps(5)`): a file, a memfd, a segment of POSIX or
//! System V shared memory, or anonymous shared memory of a process and its children. Mapped memory may be unused, and
//! its caches are unknown.

use crate::FsRoot;
use crate::address_space::{self, What};
use crate::bounded::{self, Limit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::ops::Range;

/// Limit of examined shared mappings of all processes: some hundred bytes each. One program can have 65,530.
const MAPPINGS: usize = 1 << 20;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file of a file system, including `/dev/shm`.
    File,
    /// `memfd_create(2)`.
    Memfd,
    /// `shmget(2)`.
    Sysv,
    /// Shared memory of `mmap(2)` without a file.
    Anonymous,
}

/// An object written by one process and read or written by others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// The kernel's name without "(deleted)"; with different names (containers), the first.
    pub name: String,
    /// Device and inode, as in `/proc/PID/maps`: `00:01 1024`.
    pub inode: String,
    /// Bytes of it mapped by at least two of the processes, one of them writable.
    pub bytes: u64,
    /// Processes that map it, ascending.
    pub pids: Vec<u32>,
}

/// Processes connected by such objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Ascending.
    pub pids: Vec<u32>,
    /// Sum over the objects.
    pub bytes: u64,
    /// Largest first.
    pub objects: Vec<Object>,
}

/// The findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Most bytes first; each process is in one group only.
    pub groups: Vec<Group>,
    /// Processes that were read.
    pub read: usize,
    /// Processes that this user may not read.
    pub refused: usize,
    /// Processes with too many mappings, only partly examined.
    pub cut: usize,
}

/// Identity of objects: device and inode, the kind, and for System V, whose inodes are ids, their namespace.
type Key = (String, Kind, String);

/// A process's mappings of an object, and the writable ones.
#[derive(Clone, Debug, Default)]
struct Spans {
    all: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
}

/// A mapping that can be shared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mapping<'a> {
    inode: String,
    kind: Kind,
    name: &'a str,
    span: Range<u64>,
    written: bool,
}

/// `None` for one that cannot.
pub(crate) fn shared(line: &str) -> Option<Mapping<'_>> {
    let mut words = line.splitn(6, ' ').map(str::trim);
    let (from, to) = words.next()?.split_once('-')?;
    let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).ok());
    let rights = words.next()?;
    if !rights.ends_with('s') {
        return None;
    }
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (device, number) = (words.next()?, words.next()?);
    let name = words.next().unwrap_or_default();
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    // Devices and non-memory objects share one inode regardless of their content.
    let memory = name.starts_with('/') && (!name.starts_with("/dev/") || name == "/dev/zero" || is_file(name));
    let kind = match name {
        "/dev/zero" | "/anon_hugepage" => Kind::Anonymous,
        _ if name.starts_with("/memfd:") => Kind::Memfd,
        _ if name.starts_with("/SYSV") => Kind::Sysv,
        _ => Kind::File,
    };
    // The first segment of System V has the number 0.
    if !memory || (number == "0" && kind != Kind::Sysv) {
        return None;
    }
    let span = offset..offset.checked_add(to?.checked_sub(from?)?)?;
    Some(Mapping { inode: format!("{device} {number}"), kind, name, span, written: rights.contains('w') })
}

fn is_file(name: &str) -> bool {
    ["/dev/shm/", "/dev/hugepages/", "/dev/mqueue/"].iter().any(|folder| name.starts_with(folder))
}

/// The ends of possibly overlapping spans, as if they were one: where each begins and ends.
fn ends(spans: &[Range<u64>]) -> Vec<(u64, i32)> {
    let mut spans = spans.to_vec();
    spans.sort_by_key(|span| span.start);
    let (mut ends, mut until) = (Vec::new(), 0);
    for span in spans {
        let start = span.start.max(until);
        if span.end > start {
            ends.extend([(start, 1), (span.end, -1)]);
            until = span.end;
        }
    }
    ends
}

/// Bytes common to at least two processes, writable by at least one.
fn in_common<'a>(all: impl Iterator<Item = &'a Spans>) -> u64 {
    let mut changes: Vec<(u64, [i32; 2])> = Vec::new();
    for spans in all {
        changes.extend(ends(&spans.all).into_iter().map(|(at, change)| (at, [change, 0])));
        changes.extend(ends(&spans.written).into_iter().map(|(at, change)| (at, [0, change])));
    }
    changes.sort_unstable();
    let ([mut depth, mut writers], mut bytes, mut before) = ([0, 0], 0, 0);
    for (at, change) in changes {
        if depth > 1 && writers > 0 {
            bytes += at - before;
        }
        ([depth, writers], before) = ([depth + change[0], writers + change[1]], at);
    }
    bytes
}

/// Scans processes: `pids`, or all. Objects with fewer than `least` common bytes connect no processes.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn scan(fs: &FsRoot, pids: Option<&[u32]>, least: u64) -> std::io::Result<Sharing> {
    scan_within(fs, pids, least, MAPPINGS)
}

/// With a limit of shared mappings.
fn scan_within(fs: &FsRoot, pids: Option<&[u32]>, least: u64, mut room: usize) -> std::io::Result<Sharing> {
    let pids: BTreeSet<u32> = match pids {
        Some(pids) => pids.iter().copied().collect(),
        None => fs.numbered("/proc", "")?.into_iter().collect(),
    };
    let mut found = Sharing::default();
    let mut objects: BTreeMap<Key, (String, BTreeMap<u32, Spans>)> = BTreeMap::new();
    for pid in pids {
        let read = |door: &address_space::Door| bounded::read(door.path(), Limit::Machine);
        let maps = match address_space::ask_with_patience(fs, pid, What::Maps, read) {
            Ok(maps) => maps,
            Err(why) if why.kind() == ErrorKind::PermissionDenied => {
                found.refused += 1;
                continue;
            }
            Err(why) => {
                found.cut += usize::from(why.kind() == ErrorKind::FileTooLarge); // otherwise it is gone
                continue;
            }
        };
        found.read += 1;
        let mut namespace = None;
        for Mapping { inode, kind, name, span, written } in String::from_utf8_lossy(&maps).lines().filter_map(shared) {
            let Some(less) = room.checked_sub(1) else {
                found.cut += 1;
                break;
            };
            room = less;
            let ids = match kind {
                Kind::Sysv => namespace.get_or_insert_with(|| ipc_namespace(fs, pid)).clone(),
                _ => String::new(),
            };
            let (_, of) = objects.entry((inode, kind, ids)).or_insert_with(|| (name.to_owned(), BTreeMap::new()));
            let spans = of.entry(pid).or_default();
            spans.written.extend(written.then(|| span.clone()));
            spans.all.push(span);
        }
    }
    let object = |((inode, kind, _), (name, of)): (Key, (String, BTreeMap<u32, Spans>))| {
        let bytes = in_common(of.values());
        Object { kind, name, inode, bytes, pids: of.into_keys().collect() }
    };
    let objects =
        objects.into_iter().map(object).filter(|object| object.pids.len() > 1 && object.bytes >= least.max(1));
    found.groups = groups(objects.collect());
    Ok(found)
}

/// From `/proc/PID/ns/ipc`; empty if unreadable.
fn ipc_namespace(fs: &FsRoot, pid: u32) -> String {
    let link = std::fs::read_link(fs.path(&format!("/proc/{pid}/ns/ipc")));
    link.map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned())
}

/// The representative of a process's group; shortens the paths.
fn first(next: &mut HashMap<u32, u32>, mut pid: u32) -> u32 {
    loop {
        let up = *next.entry(pid).or_insert(pid);
        if up == pid {
            return pid;
        }
        let over = next[&up];
        next.insert(pid, over);
        pid = over;
    }
}

/// Processes connected by one or several objects.
fn groups(objects: Vec<Object>) -> Vec<Group> {
    // Each process points towards the representative of its group.
    let mut next: HashMap<u32, u32> = HashMap::new();
    for object in &objects {
        for pair in object.pids.windows(2) {
            let [one, other] = [pair[0], pair[1]].map(|pid| first(&mut next, pid));
            next.insert(one.max(other), one.min(other));
        }
    }
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    let pids: Vec<u32> = next.keys().copied().collect();
    for pid in pids {
        groups.entry(first(&mut next, pid)).or_default().pids.push(pid);
    }
    for object in objects {
        let Some(pid) = object.pids.first() else { continue };
        let group = groups.entry(first(&mut next, *pid)).or_default();
        group.bytes = group.bytes.saturating_add(object.bytes);
        group.objects.push(object);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    for group in &mut groups {
        group.pids.sort_unstable();
        group.objects.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.inode.cmp(&b.inode)));
    }
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.pids.cmp(&b.pids)));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    const MIB: u64 = 1 << 20;

    fn scan_of(files: &[(u32, &str)], least: u64) -> Sharing {
        let tree = TempDir::new("sharing");
        for (pid, maps) in files {
            tree.write(&format!("proc/{pid}/maps"), maps);
        }
        tree.write("proc/self-is-no-number", "");
        scan(&FsRoot::at(tree.path()), None, least).unwrap()
    }

    /// Two servers with a segment in common, of which one shares a file with a third; two that map a library, or each
    /// a copy of their own, share nothing.
    #[test]
    fn who_writes_to_the_same_memory_is_one_group() {
        let segment = "7f0000000000-7f0000800000 rw-s 00000000 00:01 7 /dev/zero (deleted)\n";
        let found = scan_of(
            &[
                (10, segment),
                (11, &format!("{segment}7e0000000000-7e0000200000 rw-s 00000000 08:01 99 /srv/a log\n")),
                (12, "7d0000000000-7d0000300000 rw-s 00100000 08:01 99 /srv/a log\n"),
                (
                    20,
                    "7f0000000000-7f0000800000 r--s 00000000 08:01 5 /usr/lib/x\n7f0000900000-7f0000a00000 rw-p 0 08:01 6 /y\n",
                ),
                (
                    21,
                    "7f0000000000-7f0000800000 r--s 00000000 08:01 5 /usr/lib/x\n7f0000900000-7f0000a00000 rw-p 0 08:01 6 /y\n",
                ),
            ],
            MIB,
        );
        assert_eq!((found.read, found.refused, found.groups.len()), (5, 0, 1));
        let group = &found.groups[0];
        assert_eq!((&group.pids[..], group.bytes), (&[10, 11, 12][..], 9 * MIB), "8 MiB, and the second of the file");
        let [segment, file] = &group.objects[..] else { panic!("{group:?}") };
        assert_eq!((segment.kind, segment.bytes, &segment.pids[..]), (Kind::Anonymous, 8 * MIB, &[10, 11][..]));
        assert_eq!((file.kind, file.name.as_str(), file.bytes), (Kind::File, "/srv/a log", MIB));
    }

    #[test]
    fn devices_and_small_things_connect_nobody() {
        let maps = "7f00-8f00 rw-s 0 00:0e 1 anon_inode:[perf_event]\n7f00-8f00 rw-s 0 00:05 3 /dev/nvidia0\n\
                    10000-20000 rw-s 0 00:08 9 socket:[9]\n20000-30000 rw-s 0 00:1a 4 /dev/shm/small\nnonsense\n30000-";
        assert!(scan_of(&[(1, maps), (2, maps)], MIB).groups.is_empty());
        let all = scan_of(&[(1, maps), (2, maps)], 0);
        assert_eq!(all.groups.len(), 1);
        assert_eq!((all.groups[0].objects.len(), all.groups[0].bytes), (1, 0x10000));
    }

    #[test]
    fn kinds_are_told_by_their_names() {
        for (name, kind) in [
            ("/memfd:ring (deleted)", Kind::Memfd),
            ("/SYSV0052e2c1 (deleted)", Kind::Sysv),
            ("/dev/shm/PostgreSQL.1", Kind::File),
            ("/anon_hugepage (deleted)", Kind::Anonymous),
        ] {
            let line = format!("1000-2000 rw-s 00000000 00:01 77 {name}");
            assert_eq!(shared(&line).unwrap().kind, kind, "{name}");
        }
    }

    /// A byte that one process maps twice is in common with nobody, and one that nobody writes is no matter.
    #[test]
    fn what_one_maps_twice_is_its_own() {
        let written = |all: Vec<Range<u64>>| Spans { all: all.clone(), written: all };
        let twice = written(vec![0..4096, 0..4096, 2048..8192]);
        assert_eq!(in_common([&twice].into_iter()), 0);
        let other = written(vec![6144..8192, 8192..10_240]);
        assert_eq!(in_common([&twice, &other].into_iter()), 2048);
        let reader = Spans { all: vec![4096..8192, 8192..10_240], written: Vec::new() };
        assert_eq!(in_common([&twice, &reader].into_iter()), 4096);
        assert_eq!(in_common([&reader, &reader].into_iter()), 0);
    }

    /// Who reads what another process writes belongs to it; names differ from container to container.
    #[test]
    fn a_reader_and_another_name_are_seen() {
        let found = scan_of(
            &[
                (1, "7f0000000000-7f0000400000 rw-s 00000000 08:01 9 /srv/ring\n"),
                (2, "7f0000000000-7f0000400000 r--s 00000000 08:01 9 /data/ring (deleted)\n"),
            ],
            MIB,
        );
        assert_eq!((&found.groups[0].pids[..], found.groups[0].bytes), (&[1, 2][..], 4 * MIB));
        assert_eq!(found.groups[0].objects[0].name, "/srv/ring");
    }

    /// Segments of System V are numbered anew in each IPC namespace.
    #[test]
    fn segments_of_two_namespaces_are_two() {
        let tree = TempDir::new("sharing-ipc");
        for (pid, namespace) in [(1, 10), (2, 10), (3, 11), (4, 11)] {
            let maps = "7f0000000000-7f0000400000 rw-s 00000000 00:01 0 /SYSV00000001 (deleted)\n";
            tree.write(&format!("proc/{pid}/maps"), maps);
            std::fs::create_dir_all(tree.path().join(format!("proc/{pid}/ns"))).unwrap();
            let link = tree.path().join(format!("proc/{pid}/ns/ipc"));
            std::os::unix::fs::symlink(format!("ipc:[{namespace}]"), link).unwrap();
        }
        let found = scan(&FsRoot::at(tree.path()), None, MIB).unwrap();
        let pids: Vec<&[u32]> = found.groups.iter().map(|group| &group.pids[..]).collect();
        assert_eq!(pids, [&[1, 2][..], &[3, 4]]);
    }

    /// One program may map as much as it likes: what is beyond the bound is said, not read.
    /// Holds see/large-processes.
    #[test]
    fn too_many_mappings_are_cut() {
        let line = "1000-2000 rw-s 00000000 00:01 77 /memfd:a\n";
        let tree = TempDir::new("sharing-many");
        for (pid, lines) in [(1, 9), (2, 5), (3, 1)] {
            tree.write(&format!("proc/{pid}/maps"), line.repeat(lines));
        }
        let found = scan_within(&FsRoot::at(tree.path()), None, 0, 10).unwrap();
        assert_eq!((found.read, found.cut), (3, 2));
        assert_eq!(found.groups[0].pids, [1, 2]);
    }

    /// Ten thousand processes, and as many objects in a chain: one group, and no time that grows with the square.
    /// Promise see/large-processes: Large processes are sampled at random without bias; `sharing` stays fast, and
    /// whatever is not looked at is reported.
    #[test]
    fn a_long_chain_is_one_group() {
        let object = |i: u32| Object {
            kind: Kind::File,
            name: String::new(),
            inode: i.to_string(),
            bytes: 1,
            pids: vec![i, i + 1],
        };
        let found = groups((0..200_000).map(object).collect());
        assert_eq!((found.len(), found[0].pids.len(), found[0].bytes), (1, 200_001, 200_000));
    }

    proptest::proptest! {
        /// However the objects come, each process is in one group, and a group's processes are those of its objects.
        #[test]
        fn groups_are_apart(members in proptest::collection::vec(proptest::collection::btree_set(0..12_u32, 2..5), 0..8)) {
            let object = |(i, pids): (usize, &std::collections::BTreeSet<u32>)| Object {
                kind: Kind::File, name: String::new(), inode: i.to_string(), bytes: 1 << i, pids: pids.iter().copied().collect(),
            };
            let found = groups(members.iter().enumerate().map(object).collect());
            let mut seen: Vec<u32> = found.iter().flat_map(|group| group.pids.clone()).collect();
            let all = seen.len();
            seen.sort_unstable();
            seen.dedup();
            proptest::prop_assert_eq!(all, seen.len());
            proptest::prop_assert_eq!(found.iter().map(|group| group.objects.len()).sum::<usize>(), members.len());
            for group in &found {
                for object in &group.objects {
                    proptest::prop_assert!(object.pids.iter().all(|pid| group.pids.contains(pid)));
                }
            }
        }
    }
}
