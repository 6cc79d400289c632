//! The kernel's output in `/proc` and sysfs.

use crate::target::{Group, Target, list, with};
use cotenant_linux::fuzzing;
use cotenant_model::areas::{self, Area, Referenced, hinting::Faults};
use cotenant_model::{parse, proc_text};

/// Texts of `/proc` and sysfs, and other answers of the kernel.
pub static PROC: Group = Group {
    name: "proc",
    targets: &[
        Target {
            name: "stat",
            seeds: || {
                list(&[
                    "4242 (a) R (b)) S 17 16 15 0 -1 4194560 9 0 0 0 3 4 0 0 20 -5 7 0 123456 9 9 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0\n",
                    "12345 678 9\n",
                    "0.07 0.17 0.17 5/102 9459\n",
                    "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 1000 2000 4 5 6 7 8\ncpu2 10 0 0 5 5 0 0 0 0 0\nintr 5 cpu9\n",
                    "17 18\n",
                ])
            },
            parse: |bytes| {
                let _ = proc_text::TaskStat::parse(bytes).map(|stat| (stat.is_dead(), stat.off_limits()));
                let _ = (proc_text::SchedStat::parse(bytes), proc_text::last_pid(bytes));
                let _ = proc_text::pressure_us(bytes);
                let _ = (proc_text::busy_ticks(bytes, &mut Vec::new()), proc_text::stolen_ticks(bytes));
                let _ = proc_text::ids(bytes).count();
            },
            mutations: 3_000,
        },
        Target {
            name: "status",
            seeds: || {
                list(&[
                    "Name:\tworker\nTgid:\t31\nPid:\t32\nUid:\t1000\t0\t0\t0\n",
                    "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 5\nwrite_bytes: 4\n",
                ])
            },
            parse: |bytes| drop((proc_text::Status::parse(bytes), proc_text::bytes_moved(bytes))),
            mutations: 3_000,
        },
        Target {
            name: "areas",
            seeds: || {
                list(&[
                    "7f00 default anon=5 dirty=5 N0=3 N1=2 kernelpagesize_kB=4\n7f01 prefer:1 file=/lib/x N1=1 kernelpagesize_kB=2048\n",
                    "7f00-7f01 rw-p 00000000 00:00 0\nSize: 4 kB\nReferenced:            4 kB\n",
                ])
            },
            parse: use_areas,
            mutations: 3_000,
        },
        Target {
            name: "sched",
            seeds: || {
                list(&[
                    "se.sum_exec_runtime : 12.5\nmm->numa_scan_seq : 4\ncurrent_node=0, numa_group_id=0\nnuma_faults node=0 task_private=5 task_shared=1 group_private=0 group_shared=0\n",
                ])
            },
            parse: |bytes| drop(Faults::parse(bytes)),
            mutations: 1_000,
        },
        Target {
            name: "values",
            seeds: || {
                list(&[
                    "4294967295",
                    "32768K",
                    "10 21 31",
                    "MemTotal:       16384256 kB\nMemFree: 3 kB\n",
                    "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nnone /dev/cpuset cpuset rw 0 0\n",
                    "4:cpuset:/a/b\n0::/user.slice\n",
                    "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 62\nmodel name\t: Xeon\nphysical id\t: 0\ncore id\t\t: 0\n\n",
                ])
            },
            parse: |bytes| {
                with(bytes, |text| {
                    let _ = (parse::number(text), parse::id(text), parse::mem_total(text), parse::distances(text));
                    let _ = (parse::cpuset_mounts(text), parse::cpuset_cgroup(text), parse::cpuinfo(text));
                    let _ = cotenant_linux::sense::perf::events::Model::from_cpuinfo(text);
                });
            },
            mutations: 3_000,
        },
        Target {
            name: "mappings",
            seeds: || list(&["7f00-7f01 rw-s 00000000 00:01 42 /memfd:a (deleted)", "7f00-7f09 r--s 01 08:01 9 /a b"]),
            parse: |bytes| with(bytes, |text| text.lines().for_each(fuzzing::mapping)),
            mutations: 3_000,
        },
        Target { name: "sockets", seeds: sockets, parse: fuzzing::sockets, mutations: 3_000 },
        Target { name: "records of perf", seeds: records, parse: fuzzing::perf_records, mutations: 3_000 },
        Target {
            name: "buffer of perf",
            seeds: || {
                let buffer = |record: Vec<u8>| {
                    let ends = [(4_096 + record.len() as u64).to_ne_bytes(), 4_096_u64.to_ne_bytes()].concat();
                    [ends, record].concat()
                };
                records().into_iter().map(buffer).collect()
            },
            parse: fuzzing::perf_buffer,
            mutations: 500,
        },
        Target {
            name: "autogroup",
            seeds: || list(&["/autogroup-17 nice 0\n", "/autogroup-18446744073709551615 nice -20\n"]),
            parse: |bytes| with(bytes, fuzzing::autogroup),
            mutations: 1_000,
        },
        Target {
            name: "control groups",
            seeds: || {
                list(&[
                    "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nc /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n",
                    "4:cpuset:/a/b\n3:cpu,cpuacct:/../b/c.service\n0::/../../user.slice/user-1000.slice/a.scope\n",
                ])
            },
            parse: |bytes| with(bytes, fuzzing::control_groups),
            mutations: 3_000,
        },
    ],
    longest: 4 << 10,
};

fn use_areas(bytes: &[u8]) {
    let mut referenced = Referenced::default();
    let lines = || bytes.split(|b| *b == b'\n');
    let mut found: Vec<Area> = lines().filter_map(|line| Area::parse(line, 4)).collect();
    let accessed: Vec<(u64, u64)> = lines().filter_map(|line| referenced.line(line)).collect();
    found.sort_by_key(|area| area.start);
    let _ = (areas::pages_by_node(&found), areas::touched(&found, &accessed));
    let ranges: Vec<_> = accessed.iter().map(|(start, pages)| (*start, start.saturating_add(*pages), *pages)).collect();
    let _ = areas::touched_in(&found, &ranges, 4_096);
}

/// A dump with one socket, as `sock_diag(7)` has it: headers of 16 and 72 bytes, then attributes.
fn sockets() -> Vec<Vec<u8>> {
    let attribute = |kind: u16, content: &[u8]| {
        [&(content.len() as u16 + 4).to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat()
    };
    let body = [vec![1; 72], attribute(8, &[1, 0, 0, 0]), attribute(2, &[2; 192])].concat();
    let message = |kind: u16, body: &[u8]| {
        let length = (body.len() as u32 + 16).to_ne_bytes();
        [&length[..], &kind.to_ne_bytes(), &[0; 10], body].concat()
    };
    vec![
        message(20, &body),
        [message(20, &body), message(3, &[0; 4])].concat(),
        message(2, &[&(-2_i32).to_ne_bytes()[..], &[0; 16]].concat()),
    ]
}

/// Records as `perf_event_open(2)` lays them out: a sample, a mapping, an exec, a new name,
/// a fork, an exit and a loss.
fn records() -> Vec<Vec<u8>> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let record = |kind: u32, misc: u16, body: &[u8]| {
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &(body.len() as u16 + 8).to_ne_bytes(), body].concat()
    };
    let trailer = words(&[10, 10, 4, 0, 77, 0]);
    let sample = record(9, 2, &words(&[5, 0, 0x40_0123, 0, 10, 10, 4, 0, 9, 0]));
    let map = [words(&[10, 10, 0x40_0000, 0, 0x2000, 0, 0x1000, 0, 8, 1, 99, 0, 0, 0, 5, 2]), b"/bin/a\0\0".to_vec()];
    let map = record(10, 2, &[map.concat(), trailer.clone()].concat());
    let exec = record(3, 1 << 13, &[words(&[10, 10, 0x61, 0]), trailer.clone()].concat());
    let renamed = record(3, 0, &[words(&[10, 10, 0x61, 0]), trailer.clone()].concat());
    let lost = record(2, 0, &[words(&[1, 0, 42, 0]), trailer.clone()].concat());
    let fork = record(7, 0, &[words(&[11, 10, 11, 10, 5, 0]), trailer.clone()].concat());
    let exit = record(4, 0, &[words(&[11, 10, 11, 10, 6, 0]), trailer].concat());
    let all = vec![exec, map, sample, renamed, fork, exit, lost];
    [vec![all.concat()], all].concat()
}
