//! Content of the state folder, and memory and files of other programs.

use crate::target::{Group, Target, files, list, with};
use cotenant_linux::fuzzing as parsers;

/// Journals, claims, shared memory, programs' files.
pub static STATE: Group = Group {
    name: "state",
    targets: &[
        Target {
            name: "journal",
            seeds: || [vec![parsers::sealed(LINES)], files("fixtures/corpus", ".journal")].concat(),
            parse: parsers::journal,
            mutations: 300,
        },
        // Past the checksums: lines that no Cotenant would write.
        Target {
            name: "lines of a journal",
            seeds: || vec![LINES.join("\n").into_bytes()],
            parse: |bytes| {
                let text = String::from_utf8_lossy(bytes);
                parsers::journal_lines(&text.lines().map(str::to_owned).collect::<Vec<_>>());
            },
            mutations: 3_000,
        },
        Target {
            name: "claims",
            seeds: || [list(&["12 345 67 890\n12 345 68 891\n"]), files("fixtures/corpus", "journals/claims")].concat(),
            parse: |bytes| with(bytes, parsers::claims),
            mutations: 3_000,
        },
        Target { name: "shared memory", seeds: writes, parse: parsers::shared_memory, mutations: 500 },
        Target { name: "program", seeds: programs, parse: parsers::program, mutations: 500 },
    ],
    longest: 4 << 10,
};

const LINES: &[&str] = &[
    "set 4 9 3 2 77 0-3,1500 0",
    "left 4 9",
    "set 5 9 3 2 77 0-3,1500 0",
    "group 2 /a%20b -",
    "group 1 /a /b",
    "group 1cpu / /b",
    "group resctrl /tmp -",
    "ungroup /a",
    "stop 4 9",
    "stop 4 9 1",
    "stop 5 9 0",
    "cont 5 9",
    "class 4 9 3 2 77 0 5",
    "class 6 9 3 2 78 1073741827 1073741829",
    "unclass 4 9",
    "autogroup 7 0",
    "autogroup 8 10",
    "unautogroup 7",
    "idle / 400",
    "idle /a%20b 40",
    "unidle /a%20b",
];

/// Words of a program with libcotenant: two slots in use, units and latencies, naps.
fn writes() -> Vec<Vec<u8>> {
    let write = |(place, value): (u16, u64)| [&place.to_ne_bytes()[..], &value.to_ne_bytes()].concat();
    // Words of the header by their number; the slots from 64 on, 336 words each.
    let first = [(3, 2 << 32), (32, 5), (33, 9_000), (64, 100), (65, 5_000), (80, 3), (400, 7)];
    let second = [(64, 150), (80, 4), (32, 6), (33, 10_000), (37, 77), (81, 1), (400, 8)];
    vec![first.into_iter().chain(second).flat_map(write).collect()]
}

/// A program of 64 bits with a note that holds a build id.
fn programs() -> Vec<Vec<u8>> {
    let half = |n: u16| n.to_le_bytes().to_vec();
    let word = |n: u32| n.to_le_bytes().to_vec();
    let long = |n: u64| n.to_le_bytes().to_vec();
    let ident = [b"\x7fELF\x02\x01\x01".to_vec(), vec![0; 9]].concat();
    let kind = [half(2), half(62), word(1), long(0), long(64), long(0), word(0)].concat();
    let sizes = [64, 56, 1, 0, 0, 0].map(half).concat();
    let segment = [word(4), word(4), long(120), long(0), long(0), long(24), long(24), long(4)].concat();
    let note = [word(4), word(8), word(3), b"GNU\0".to_vec(), b"\x0a\x1b\x2c\x3d\x4e\x5f\x60\x71".to_vec()].concat();
    vec![[ident, kind, sizes, segment, note].concat()]
}
