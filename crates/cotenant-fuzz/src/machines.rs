//! Machines, and facts about them and about programs: files, notations, and other tools' output.

use crate::target::{Group, Target, files, list, with};
use cotenant_measure::characterize::caches;
use cotenant_model::cpuset::CpuSet;
use cotenant_model::machine::{self, Machine};
use cotenant_model::profile::calibration;
use cotenant_model::region::found::Profile;
use cotenant_model::testing;
use cotenant_model::topology::hidden::Latencies;
use cotenant_model::topology::tree::Tree;
use cotenant_model::topology::{notation, synthetic, xml};
use cotenant_model::{Time, Topology, parse, profile, region};
use std::sync::LazyLock;

/// Machines, profiles and mappings.
pub static MACHINES: Group = Group {
    name: "machines",
    targets: &[
        Target { name: "lstopo XML", seeds: xmls, parse: use_xml, mutations: 1_000 },
        Target {
            name: "synthetic topology",
            seeds: synthetics,
            parse: |bytes| with(bytes, |text| drop(synthetic::parse(text).map(|topology| Tree::new(&topology).cpus()))),
            mutations: 1_000,
        },
        Target { name: "machine", seeds: machines, parse: use_machine, mutations: 300 },
        Target { name: "machine profile", seeds: profiles, parse: use_profile, mutations: 500 },
        Target { name: "application profiles", seeds: apps, parse: use_apps, mutations: 1_000 },
        Target {
            name: "CPU list",
            seeds: || list(&["0-3,8,10-12", "0-31:2/4", "", "65535-65536\n"]),
            parse: |bytes| use_set(CpuSet::parse_list, bytes),
            mutations: 3_000,
        },
        Target {
            name: "CPU mask",
            seeds: || list(&["ff,00000003", "0xf", "0x00000001,,0x80000000\n"]),
            parse: |bytes| use_set(CpuSet::parse_mask, bytes),
            mutations: 3_000,
        },
        Target {
            name: "mapping",
            seeds: || list(&["XX**....XX**....XX**....XX**....XX**....", "X*"]),
            parse: use_mapping,
            mutations: 1_000,
        },
        Target { name: "contentious regions", seeds: regions, parse: use_regions, mutations: 1_000 },
        Target {
            name: "latencies between CPUs",
            seeds: || list(&["0\n51.5,0\n103,104,0\n103,,50,0\n"]),
            parse: |bytes| with(bytes, |text| drop(Latencies::parse(text))),
            mutations: 1_000,
        },
        Target {
            name: "times and sizes",
            seeds: || list(&["12.3s", "250ms", "1.5 min", "5h", "32768K", "8MiB", "20 GB"]),
            parse: |bytes| with(bytes, |text| drop((text.parse::<Time>(), parse::duration(text), parse::size(text)))),
            mutations: 3_000,
        },
        Target {
            name: "output of cachegrind",
            seeds: || {
                list(&["events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfl=a.c\nfn=f\n12 100 1 1 50 5 2 9 1 1\n0 1\n"])
            },
            parse: use_cachegrind,
            mutations: 1_000,
        },
        Target {
            name: "summary of cachegrind",
            seeds: || {
                list(&["==1== I refs:        1,234\n==1== D refs:        567  (400 rd + 167 wr)\n\
                    ==1== D1  misses:    12  (11 rd + 1 wr)\n==1== LLd misses:    3  (2 rd + 1 wr)\n"])
            },
            parse: |bytes| with(bytes, |text| drop(caches::parse(text))),
            mutations: 1_000,
        },
    ],
    longest: 16 << 10,
};

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

/// A parsed topology can be displayed.
fn use_xml(bytes: &[u8]) {
    with(bytes, |text| {
        if let Ok(topology) = xml::parse(text) {
            assert!(!Tree::new(&topology).cpus().is_empty());
        }
    });
}

fn synthetics() -> Vec<Vec<u8>> {
    list(&[
        "package:2 [numa(memory=8GB)] l3:1(size=25MiB) l2:10(size=256KiB) core:1 pu:2(indexes=package:core)",
        "2 10 2",
        "numa:2 die:2 l3:1 core:4 pu:1(indexes=0,2,4,6,8,10,12,14,1,3,5,7,9,11,13,15)",
    ])
}

fn machines() -> Vec<Vec<u8>> {
    files("machines", ".toml")
}

fn use_machine(bytes: &[u8]) {
    with(bytes, |text| {
        if let Ok(machine) = Machine::parse(text) {
            assert!(!Tree::new(&machine.topology).cpus().is_empty());
        }
    });
}

fn profiles() -> Vec<Vec<u8>> {
    let by_hand = list(&[
        "clock_hz = 2.2e9\nsource = \"here\"\n[thresholds]\ncoherence_per_cycle = 2.5e-4\nsocket_bandwidth_per_s = 75e6\n",
    ]);
    [
        by_hand,
        files("fixtures/corpus", "profile.toml"),
        files("fixtures", "thresholds.toml"),
        files("fixtures", "high.toml"),
        machines(),
    ]
    .concat()
}

fn use_profile(bytes: &[u8]) {
    with(bytes, |text| {
        if let Ok(profile) = machine::parse_profile(text) {
            let again = machine::parse_profile(&calibration::write(&profile));
            assert!(again.as_ref().is_ok_and(|again| *again == profile), "{again:?}\n{profile:?}");
        }
    });
}

fn apps() -> Vec<Vec<u8>> {
    let by_hand = list(&[
        "[app.search]\nbus_per_ms = 7_000\nsharing = 0.25\nfootprint_per_ms = 3e3\nlatency_sensitive = true\n\n[app.\"my job\"]\n",
    ]);
    let stored = files("fixtures/corpus/0.1.0/data", ".toml");
    [by_hand, files("fixtures", "apps.toml"), stored].concat()
}

fn use_apps(bytes: &[u8]) {
    with(bytes, |text| {
        if let Ok(apps) = profile::parse_apps(text) {
            let again = profile::parse_apps(&profile::write_apps(&apps));
            assert!(again.as_ref() == Ok(&apps), "{again:?}\n{apps:?}");
        }
    });
}

/// A set that is read is written and read again as the same set.
fn use_set<E>(parse: fn(&str) -> Result<CpuSet, E>, bytes: &[u8]) {
    with(bytes, |text| {
        if let Ok(set) = parse(text) {
            assert!(CpuSet::parse_list(&set.to_string()).as_ref() == Ok(&set));
        }
    });
}

fn use_mapping(bytes: &[u8]) {
    static MACHINE: LazyLock<Topology> = LazyLock::new(|| testing::machine(2, 1, 10, 2));
    let topology = &*MACHINE;
    with(bytes, |text| {
        if let Ok(map) = notation::parse_map(topology, text) {
            let letter = |cpu| map.iter().find(|(c, _)| *c == cpu).map(|(_, letter)| *letter);
            let again = notation::parse_map(topology, &notation::format_map(topology, letter));
            assert!(again.is_ok_and(|again| again == map));
        }
    });
}

fn regions() -> Vec<Vec<u8>> {
    let by_hand = "[[region]]\nfunction = 'ns::f(int)'\nfile = 'a.c'\nlines = [3, 9]\nscore = 0.5\ncoverage = 0.2\n";
    [list(&[by_hand]), files("fixtures/corpus", "regions.toml")].concat()
}

fn use_regions(bytes: &[u8]) {
    with(bytes, |text| {
        if let Ok(regions) = region::parse(text) {
            assert_eq!(region::parse(&region::write(&regions)).as_ref(), Ok(&regions));
            let _ = region::for_pass(&regions, 0.1, 0.1);
        }
    });
}

fn use_cachegrind(bytes: &[u8]) {
    with(bytes, |text| {
        let mut profile = Profile::default();
        if profile.add(text).is_ok() {
            let _ = (profile.add(text), profile.total().cycles());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::text;

    /// A seed that is refused at once would leave its parser untested.
    #[test]
    fn seeds_are_taken() {
        let taken = |seeds: Vec<Vec<u8>>, parse: fn(&str) -> Result<(), String>| {
            assert!(!seeds.is_empty());
            for seed in &seeds {
                parse(text(seed).unwrap()).unwrap();
            }
        };
        taken(xmls(), |t| xml::parse(t).map(drop).map_err(|e| e.to_string()));
        taken(synthetics(), |t| synthetic::parse(t).map(drop).map_err(|e| e.to_string()));
        taken(machines(), |t| Machine::parse(t).map(drop).map_err(|e| e.to_string()));
        taken(profiles(), |t| machine::parse_profile(t).map(drop).map_err(|e| e.to_string()));
        taken(apps(), |t| profile::parse_apps(t).map(drop).map_err(|e| e.to_string()));
        taken(regions(), |t| region::parse(t).map(drop).map_err(|e| e.to_string()));
    }
}
