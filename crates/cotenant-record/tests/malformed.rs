//! Malformed input: every parser of this crate survives mutated versions of good input. An error is a good answer, a
//! panic is not.
//!
//! A parser gets in with one entry in [`TARGETS`]; those of other crates stand in their `malformed` tests.

use cotenant_model::cpuset::CpuSet;
use cotenant_model::host::Mode;
use cotenant_model::machine::Machine;
use cotenant_model::metric::{Meter, Metric, number, queried, scrape};
use cotenant_model::testing::{machine, malformed};
use cotenant_model::topology::hidden::Latencies;
use cotenant_model::topology::tree::Tree;
use cotenant_model::topology::{notation, synthetic, xml};
use cotenant_model::{Rule, Time, Topology, parse, proc_text, profile, region};
use cotenant_policies::Sam;
use cotenant_record::replay::replay;
use cotenant_record::snapshot::Snapshot;
use cotenant_record::testing::{Role, Scripted, header, record};
use cotenant_record::why::{Query, why};
use cotenant_record::{Header, MAGIC, Recording, VERSION};
use std::sync::LazyLock;

/// A parser under test.
struct Target {
    name: &'static str,
    /// Good inputs.
    seeds: fn() -> Vec<Vec<u8>>,
    /// Gives it an input, and does with the result what a user would do.
    parse: fn(&[u8]),
    /// Mutations in a usual run.
    mutations: u64,
}

const TARGETS: &[Target] = &[
    Target { name: "recording", seeds: recordings, parse: use_recording, mutations: 400 },
    // Behind the checksums: rows that no writer would write.
    Target {
        name: "rows of a recording",
        seeds: rows,
        parse: |payload| use_recording(&framed(payload)),
        mutations: 600,
    },
    Target { name: "lstopo XML", seeds: xmls, parse: use_xml, mutations: 1_000 },
    Target {
        name: "synthetic topology",
        seeds: synthetics,
        parse: |bytes| drop(text(bytes).map(synthetic::parse)),
        mutations: 1_000,
    },
    Target { name: "machine", seeds: machines, parse: |bytes| drop(text(bytes).map(Machine::parse)), mutations: 300 },
    Target {
        name: "machine profile",
        seeds: machines,
        parse: |bytes| drop(text(bytes).map(cotenant_model::machine::parse_profile)),
        mutations: 500,
    },
    Target {
        name: "metric",
        seeds: || list(METRICS),
        parse: |bytes| drop(text(bytes).map(str::parse::<Metric>)),
        mutations: 1_000,
    },
    Target {
        name: "answer to a query",
        seeds: || list(ANSWERS),
        parse: |bytes| drop(text(bytes).map(queried)),
        mutations: 1_000,
    },
    Target { name: "exposition of metrics", seeds: || list(&[EXPOSITION]), parse: use_exposition, mutations: 1_000 },
    Target {
        name: "application profiles",
        seeds: profiles,
        parse: |bytes| drop(text(bytes).map(profile::parse_apps)),
        mutations: 1_000,
    },
    Target {
        name: "CPU list",
        seeds: cpu_lists,
        parse: |bytes| set_survives(CpuSet::parse_list, bytes),
        mutations: 3_000,
    },
    Target {
        name: "CPU mask",
        seeds: cpu_masks,
        parse: |bytes| set_survives(CpuSet::parse_mask, bytes),
        mutations: 3_000,
    },
    Target { name: "mapping", seeds: mappings, parse: use_mapping, mutations: 1_000 },
    Target { name: "values of sysfs and /proc", seeds: values, parse: use_values, mutations: 3_000 },
    Target { name: "decide snapshot", seeds: snapshots, parse: use_snapshot, mutations: 1_000 },
    Target { name: "texts of /proc", seeds: proc_texts, parse: use_proc_texts, mutations: 3_000 },
    Target {
        name: "question to why",
        seeds: queries,
        parse: |bytes| drop(text(bytes).map(str::parse::<Query>)),
        mutations: 3_000,
    },
    Target {
        name: "contentious regions",
        seeds: || {
            list(&["[[region]]\nfunction = 'ns::f(int)'\nfile = 'a.c'\nlines = [3, 9]\nscore = 0.5\ncoverage = 0.2\n"])
        },
        parse: |bytes| drop(text(bytes).map(|text| region::parse(text).map(|regions| region::write(&regions)))),
        mutations: 1_000,
    },
    Target {
        name: "latencies between CPUs",
        seeds: || list(&["0\n51.5,0\n103,104,0\n103,,50,0\n"]),
        parse: |bytes| drop(text(bytes).map(Latencies::parse)),
        mutations: 1_000,
    },
    Target { name: "time", seeds: queries, parse: |bytes| drop(text(bytes).map(str::parse::<Time>)), mutations: 3_000 },
];

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A short run with moves, arrivals and exits under `sam`.
fn recordings() -> Vec<Vec<u8>> {
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    let script = [
        sharer(0),
        sharer(10),
        Role { misses: 9_000_000, ..Role::new(1, 11) },
        Role { from: 2, until: 4, ..Role::new(2, 12) },
    ];
    vec![record(&header("sam", Mode::Enforce), &mut Scripted::new(&script, 5), &Sam::default())]
}

/// Reads to the end, replays and explains: what is believed must be usable.
fn use_recording(bytes: &[u8]) {
    let Ok(mut recording) = Recording::read(bytes) else { return };
    let header = recording.header().clone();
    let rounds: Vec<_> = recording.by_ref().take(50).collect();
    replay(rounds.clone(), &["sam"], vec![Rule::all(&Sam::default(), &header.ctx())]).for_each(drop);
    let _ = why(&header, rounds, &Query::Name("worker1".to_owned()), None).to_string();
}

/// The payloads of a recording's blocks, the header's and the last one: what the frame holds, as
/// `docs/reference/recording.md` says.
fn rows() -> Vec<Vec<u8>> {
    let bytes = &recordings()[0];
    let mut rest = &bytes[MAGIC.len() + 4..];
    let mut payloads = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<12>() {
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]) as usize;
        let (packed, behind) = tail.split_at(word(0));
        payloads.push(lz4_flex::block::decompress(packed, word(4)).expect("it was just packed"));
        rest = behind;
    }
    payloads.remove(0); // the header is JSON of types that other targets cover
    payloads
}

/// A recording with a good header and a payload.
fn framed(payload: &[u8]) -> Vec<u8> {
    static START: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let header = serde_json::to_vec(&header("sam", Mode::Enforce)).expect("plain values serialise");
        [&MAGIC[..], &VERSION.to_le_bytes(), &block(&header)].concat()
    });
    [&START[..], &block(payload)].concat()
}

fn block(payload: &[u8]) -> Vec<u8> {
    let packed = lz4_flex::block::compress(payload);
    let lengths = [(packed.len() as u32).to_le_bytes(), (payload.len() as u32).to_le_bytes()].concat();
    let crc = crc32fast::hash(&[&lengths[..], &packed].concat());
    [&lengths[..], &crc.to_le_bytes(), &packed].concat()
}

fn xmls() -> Vec<Vec<u8>> {
    let object = |kind: &str, attributes: &str, children: &str| {
        format!("<object type=\"{kind}\" {attributes}>{children}</object>\n")
    };
    let sets =
        |mask: &str| format!("cpuset=\"{mask}\" complete_cpuset=\"{mask}\" allowed_cpuset=\"{mask}\" nodeset=\"0x1\" ");
    let pu = |i: u32| object("PU", &format!("os_index=\"{i}\" {}", sets(&format!("{:#010x}", 1 << i))), "");
    let core = |i: u32| object("Core", &format!("os_index=\"{i}\" {}", sets(&format!("{:#010x}", 1 << i))), &pu(i));
    let cache =
        "cache_size=\"26214400\" depth=\"3\" cache_linesize=\"64\" cache_associativity=\"20\" cache_type=\"0\" ";
    let l3 = object("L3Cache", &(cache.to_owned() + &sets("0x00000003")), &(core(0) + &core(1)));
    let node = object("NUMANode", &format!("os_index=\"0\" local_memory=\"8589934592\" {}", sets("0x00000003")), "");
    let package = object("Package", &format!("os_index=\"0\" {}", sets("0x00000003")), &(node + &l3));
    let machine = object("Machine", &format!("os_index=\"0\" {}", sets("0x00000003")), &package);
    let distances = "<distances2 type=\"NUMANode\" nbobjs=\"1\" kind=\"5\" indexing=\"os\"><indexes length=\"1\">0 </indexes><u64values length=\"2\">10 </u64values></distances2>";
    vec![format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n{machine}{distances}</topology>\n").into_bytes()]
}

fn list(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|t| t.as_bytes().to_vec()).collect()
}

fn synthetics() -> Vec<Vec<u8>> {
    list(&[
        "package:2 [numa(memory=8GB)] l3:1(size=25MiB) l2:10(size=256KiB) core:1 pu:2(indexes=package:core)",
        "2 10 2",
        "numa:2 die:2 l3:1 core:4 pu:1(indexes=0,2,4,6,8,10,12,14,1,3,5,7,9,11,13,15)",
    ])
}

/// The machines that we carry; where there are none (a crate on its own), one by hand.
fn machines() -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|f| f.path()).collect();
    files.sort();
    let mut seeds: Vec<_> = files.iter().filter_map(|f| std::fs::read(f).ok()).collect();
    seeds.extend(list(&["clock_hz = 2.2e9\nsource = \"here\"\n[thresholds]\ncoherence_per_cycle = 2.5e-4\nsocket_bandwidth_per_s = 75e6\n"]));
    seeds
}

fn profiles() -> Vec<Vec<u8>> {
    list(&[
        "[app.search]\nbus_per_ms = 7_000\nsharing = 0.25\nfootprint_per_ms = 3e3\nlatency_sensitive = true\n\n[app.\"my job\"]\n",
    ])
}

fn cpu_lists() -> Vec<Vec<u8>> {
    list(&["0-3,8,10-12", "0-31:2/4", "", "65535-65536\n"])
}

fn cpu_masks() -> Vec<Vec<u8>> {
    list(&["ff,00000003", "0xf", "0x00000001,,0x80000000\n"])
}

fn mappings() -> Vec<Vec<u8>> {
    list(&["XX**....XX**....XX**....XX**....XX**....", "X*"])
}

fn values() -> Vec<Vec<u8>> {
    list(&[
        "4294967295",
        "32768K",
        "10 21 31",
        "MemTotal:       16384256 kB\nMemFree: 3 kB\n",
        "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nnone /dev/cpuset cpuset rw 0 0\n",
        "4:cpuset:/a/b\n0::/user.slice\n",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 62\nmodel name\t: Xeon\nphysical id\t: 0\ncore id\t\t: 0\n\n",
    ])
}

/// The example of the documentation; where there is none (a crate on its own), one by hand.
fn snapshots() -> Vec<Vec<u8>> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/decide-snapshot.json");
    let mut seeds = list(&[
        r#"{"tasks":[{"id":11,"app":"a","cpu":0,"cycles":2.2e8,"inter":200000,"pages_by_node":[5,20],"origin":1}],"interval_s":0.1}"#,
    ]);
    seeds.extend(std::fs::read(file).ok());
    seeds
}

fn proc_texts() -> Vec<Vec<u8>> {
    list(&[
        "4242 (a) R (b)) S 17 16 15 0 -1 4194560 9 0 0 0 3 4 0 0 20 -5 7 0 123456 9 9 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0\n",
        "12345 678 9\n",
        "0.07 0.17 0.17 5/102 9459\n",
        "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 1000 2000 4 5 6 7 8\ncpu2 10 0 0 5 5 0 0 0 0 0\nintr 5 cpu9\n",
        "Name:\tworker\nTgid:\t31\nPid:\t32\nUid:\t1000\t0\t0\t0\n",
        "7f00 default anon=5 dirty=5 N0=3 N1=2 kernelpagesize_kB=4\n7f01 prefer:1 file=/lib/x N1=1 kernelpagesize_kB=2048\n",
    ])
}

fn queries() -> Vec<Vec<u8>> {
    list(&["task:17", "tid:4711", "app:0", "12.3s", "1.5s..2.25s", "worker", "4711"])
}

/// A set that is read is written and read again as the same set.
const ANSWERS: &[&str] = &[
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"x"},"value":[1435781451.781,"1e-3"]}]}}"#,
    r#"{"data":{"result":[1,"2"],"resultType":"scalar"},"status":"success"}"#,
];

const METRICS: &[&str] = &[
    "cmd:awk -F, '{print $1,$2}' f,lower,every=250ms,name=p99",
    r"log:/var/log/x.log:took ([0-9.]+) ms,timeout=2s",
    r#"http://[::1]:9090/metrics#http_seconds{path="/a,\"lower\\",code="200"},q=0.5"#,
];

const EXPOSITION: &str = "# TYPE t histogram\nt_bucket{le=\"0.1\",a=\"x\\\"\"} 5 1395066363000\nt_bucket{le=\"+Inf\"} 1e3\nt_count 5\n\
                          # TYPE done counter\ndone_total{a=\"b\"} 17 # {trace=\"x\"} 1\n# EOF\n";

fn use_exposition(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let mut meter = Meter::new(None);
    for series in ["t", "t_count", "done", r#"done{a="b"}"#] {
        if let Ok(said) = scrape(text, &series.parse().unwrap()) {
            let _ = meter.read(Time::default(), said.clone());
            let _ = meter.read(Time::from_secs(1), said);
        }
    }
    let _ = number(text);
}

fn set_survives<E>(parse: fn(&str) -> Result<CpuSet, E>, bytes: &[u8]) {
    if let Some(Ok(set)) = text(bytes).map(parse) {
        assert!(CpuSet::parse_list(&set.to_string()).as_ref() == Ok(&set));
    }
}

fn use_mapping(bytes: &[u8]) {
    static MACHINE: LazyLock<Topology> = LazyLock::new(|| machine(2, 1, 10, 2));
    let topology = &*MACHINE;
    if let Some(Ok(map)) = text(bytes).map(|text| notation::parse_map(topology, text)) {
        let letter = |cpu| map.iter().find(|(c, _)| *c == cpu).map(|(_, letter)| *letter);
        assert!(notation::parse_map(topology, &notation::format_map(topology, letter)).is_ok_and(|again| again == map));
    }
}

fn use_values(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let _ = (parse::number(text), parse::id(text), parse::size(text), parse::mem_total(text), parse::distances(text));
    let _ = (parse::cpuset_mounts(text), parse::cpuset_cgroup(text), parse::cpuinfo(text));
}

fn use_snapshot(bytes: &[u8]) {
    static START: LazyLock<Header> = LazyLock::new(|| header("sam", Mode::Advise));
    if let Some(Ok(snapshot)) = text(bytes).map(|text| Snapshot::parse(text, &START.topology)) {
        let _ = snapshot.decide(&START.ctx(), &Sam::default());
    }
}

fn use_proc_texts(bytes: &[u8]) {
    let _ = (proc_text::TaskStat::parse(bytes), proc_text::SchedStat::parse(bytes), proc_text::Status::parse(bytes));
    let _ = (proc_text::last_pid(bytes), proc_text::busy_ticks(bytes, &mut Vec::new()), proc_text::ids(bytes).count());
    let mut lines = cotenant_model::areas::Referenced::default();
    let lines = bytes
        .split(|b| *b == b'\n')
        .filter_map(|line| Some((cotenant_model::areas::Area::parse(line, 4), lines.line(line)?)));
    let _ = lines.count();
}

/// What is read can be shown.
fn use_xml(bytes: &[u8]) {
    if let Some(Ok(topology)) = text(bytes).map(xml::parse) {
        assert!(!Tree::new(&topology).cpus().is_empty());
    }
}

#[test]
fn good_input_is_taken() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for seed in &seeds {
            (target.parse)(seed);
        }
    }
    // A seed that is refused at once would leave its parser untested.
    assert!(
        xmls().iter().all(|x| text(x).is_some_and(|x| xml::parse(x).is_ok())),
        "{:?}",
        text(&xmls()[0]).map(xml::parse)
    );
    assert!(synthetics().iter().all(|s| text(s).is_some_and(|s| synthetic::parse(s).is_ok())));
    assert!(snapshots().iter().all(|s| text(s).is_some_and(|s| Snapshot::parse(s, &machine(2, 1, 10, 2)).is_ok())));
    assert!(proc_text::TaskStat::parse(&proc_texts()[0]).is_ok());
    assert!(profiles().iter().all(|p| text(p).is_some_and(|p| profile::parse_apps(p).is_ok())));
    assert!(METRICS.iter().all(|m| m.parse::<Metric>().is_ok()));
    assert!(ANSWERS.iter().all(|answer| queried(answer).is_ok()));
    assert!(["t", "done"].iter().all(|series| scrape(EXPOSITION, &series.parse().unwrap()).is_ok()));
    assert!(cpu_lists().iter().all(|l| text(l).is_some_and(|l| CpuSet::parse_list(l).is_ok())));
    assert!(cpu_masks().iter().all(|m| text(m).is_some_and(|m| CpuSet::parse_mask(m).is_ok())));
    for bytes in recordings().into_iter().chain(rows().iter().map(|payload| framed(payload))) {
        assert!(Recording::read(&bytes[..]).is_ok_and(|r| r.header().policy == "sam"));
    }
    let recording = recordings().remove(0);
    assert_eq!(
        Recording::read(&recording[..]).unwrap().filter(|round| !round.orders.is_empty()).count(),
        1,
        "sam moves"
    );
    assert_eq!(Recording::read(&framed(&rows()[0])[..]).unwrap().count(), 5, "the frame is as documented");
}

#[test]
fn malformed_input_is_survived() {
    for target in TARGETS {
        malformed::survives(target.name, &(target.seeds)(), target.mutations, target.parse);
    }
}
