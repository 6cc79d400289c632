//! Which processes write to the same memory: by the objects that they map shared and writable.
//!
//! `/proc/PID/maps` names each object by device and inode (`proc_pid_maps(5)`): a file, a memfd, a segment of POSIX or
//! System V shared memory, or shared memory without a name that a process and its children have from `mmap`. What is
//! mapped may be used or not; which CPU caches it comes into is not seen.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file of a file system, `/dev/shm` included.
    File,
    /// `memfd_create(2)`.
    Memfd,
    /// `shmget(2)`.
    Sysv,
    /// Shared memory of `mmap(2)` without a file.
    Anonymous,
}

/// Something that several processes can write to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// As the kernel names it, without "(deleted)".
    pub name: String,
    /// Device and inode, as in `/proc/PID/maps`: `00:01 1024`.
    pub inode: String,
    /// Bytes of it that at least two of the processes map.
    pub bytes: u64,
    /// Who maps it, ascending.
    pub pids: Vec<u32>,
}

/// Processes that are connected by such objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Ascending.
    pub pids: Vec<u32>,
    /// Sum over the objects.
    pub bytes: u64,
    /// Largest first.
    pub objects: Vec<Object>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Most bytes first; no process is in two.
    pub groups: Vec<Group>,
    /// Processes that were read.
    pub read: usize,
    /// Processes that this user may not look into.
    pub refused: usize,
}

type Key = (String, Kind, String);
type Spans = Vec<Range<u64>>;

/// A mapping that others can have, too: its object, and where in it.
fn shared(line: &str) -> Option<(Key, Range<u64>)> {
    let mut words = line.splitn(6, ' ').map(str::trim);
    let (from, to) = words.next()?.split_once('-')?;
    let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).ok());
    let rights = words.next()?;
    if !(rights.contains('w') && rights.ends_with('s')) {
        return None;
    }
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (device, rest) = (words.next()?, words.next()?);
    let name = words.next().unwrap_or_default();
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    // Devices and what stands for no memory share one inode whatever is behind them.
    let memory = name.starts_with('/') && (!name.starts_with("/dev/") || name == "/dev/zero" || is_file(name));
    if rest == "0" || !memory {
        return None;
    }
    let kind = match name {
        "/dev/zero" | "/anon_hugepage" => Kind::Anonymous,
        _ if name.starts_with("/memfd:") => Kind::Memfd,
        _ if name.starts_with("/SYSV") => Kind::Sysv,
        _ => Kind::File,
    };
    let length = to?.checked_sub(from?)?;
    Some(((format!("{device} {rest}"), kind, name.to_owned()), offset..offset.checked_add(length)?))
}

fn is_file(name: &str) -> bool {
    ["/dev/shm/", "/dev/hugepages/", "/dev/mqueue/"].iter().any(|folder| name.starts_with(folder))
}

/// Bytes that at least two processes have; each has its own spans, which may lie over each other.
fn in_common<'a>(all: impl Iterator<Item = &'a Spans>) -> u64 {
    let mut ends: Vec<(u64, i32)> = Vec::new();
    for spans in all {
        let mut spans = spans.clone();
        spans.sort_by_key(|span| span.start);
        let mut until = 0;
        for span in spans {
            let start = span.start.max(until);
            if span.end > start {
                ends.extend([(start, 1), (span.end, -1)]);
                until = span.end;
            }
        }
    }
    ends.sort_unstable();
    let (mut depth, mut bytes, mut before) = (0, 0, 0);
    for (at, change) in ends {
        if depth > 1 {
            bytes += at - before;
        }
        (depth, before) = (depth + change, at);
    }
    bytes
}

/// Looks through processes: `pids`, or all. Objects of which fewer than `least` bytes are in common connect nobody.
///
/// # Errors
/// Where `/proc` cannot be listed.
pub fn scan(fs: &FsRoot, pids: Option<&[u32]>, least: u64) -> std::io::Result<Sharing> {
    let pids = pids.map_or_else(|| fs.numbered("/proc", ""), |pids| Ok(pids.to_vec()))?;
    let mut found = Sharing::default();
    let mut objects: BTreeMap<Key, BTreeMap<u32, Spans>> = BTreeMap::new();
    for pid in pids {
        match bounded::read(fs.path(&format!("/proc/{pid}/maps")), Limit::Machine) {
            Ok(maps) => {
                found.read += 1;
                for (key, span) in String::from_utf8_lossy(&maps).lines().filter_map(shared) {
                    objects.entry(key).or_default().entry(pid).or_default().push(span);
                }
            }
            Err(why) if why.kind() == ErrorKind::PermissionDenied => found.refused += 1,
            // It is gone, or what it maps is beyond all bounds.
            Err(_) => {}
        }
    }
    let object = |((inode, kind, name), of): (Key, BTreeMap<u32, Spans>)| {
        let bytes = in_common(of.values());
        Object { kind, name, inode, bytes, pids: of.into_keys().collect() }
    };
    let objects =
        objects.into_iter().map(object).filter(|object| object.pids.len() > 1 && object.bytes >= least.max(1));
    found.groups = groups(objects.collect());
    Ok(found)
}

/// Processes that one or several objects connect.
fn groups(objects: Vec<Object>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for object in objects {
        let mut joined = Group { pids: object.pids.clone(), bytes: object.bytes, objects: vec![object] };
        let (touched, apart): (Vec<Group>, Vec<Group>) =
            groups.into_iter().partition(|group| group.pids.iter().any(|pid| joined.pids.contains(pid)));
        for group in touched {
            joined.pids.extend(group.pids);
            joined.bytes += group.bytes;
            joined.objects.extend(group.objects);
        }
        joined.pids.sort_unstable();
        joined.pids.dedup();
        groups = apart;
        groups.push(joined);
    }
    for group in &mut groups {
        group.objects.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.inode.cmp(&b.inode)));
    }
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.pids.cmp(&b.pids)));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

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
            assert_eq!(shared(&line).unwrap().0.1, kind, "{name}");
        }
    }

    /// A byte that one process maps twice is in common with nobody.
    #[test]
    fn what_one_maps_twice_is_its_own() {
        let twice = vec![0..4096, 0..4096, 2048..8192];
        assert_eq!(in_common([&twice].into_iter()), 0);
        assert_eq!(in_common([&twice, &vec![6144..10_240]].into_iter()), 2048);
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
