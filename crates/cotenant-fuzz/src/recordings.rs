//! Recordings and snapshots, and the readers of their decisions.

use crate::target::{Group, Target, files, list, text, with};
use cotenant_model::Rule;
use cotenant_model::host::Mode;
use cotenant_policies::{Sam, standard};
use cotenant_record::replay::replay;
use cotenant_record::snapshot::Snapshot;
use cotenant_record::testing::{Role, Scripted, header, record};
use cotenant_record::why::{Query, why};
use cotenant_record::{Header, MAGIC, Recording, VERSION};
use std::sync::LazyLock;

/// Recordings and snapshots.
pub static RECORDINGS: Group = Group {
    name: "recordings",
    targets: &[
        Target {
            name: "recording",
            seeds: || [recordings(), files("fixtures", ".rec")].concat(),
            parse: use_recording,
            mutations: 400,
        },
        // Past the checksums: rows that no writer would write.
        Target {
            name: "rows of a recording",
            seeds: rows,
            parse: |payload| use_recording(&framed(payload)),
            mutations: 600,
        },
        Target { name: "decide snapshot", seeds: snapshots, parse: use_snapshot, mutations: 1_000 },
        Target {
            name: "question to why",
            seeds: || list(&["task:17", "tid:4711", "app:0", "12.3s", "1.5s..2.25s", "worker", "4711"]),
            parse: |bytes| drop(text(bytes).map(str::parse::<Query>)),
            mutations: 3_000,
        },
        Target { name: "header of a recording", seeds: headers, parse: use_header, mutations: 400 },
        Target {
            name: "recording of a report",
            seeds: recordings,
            parse: cotenant::fuzzing::report_of_recording,
            mutations: 20,
        },
    ],
    longest: 32 << 10,
};

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

/// Reads to the end, replays and explains: accepted input must be usable.
fn use_recording(bytes: &[u8]) {
    let Ok(mut recording) = Recording::read(bytes) else { return };
    let header = recording.header().clone();
    let rounds: Vec<_> = recording.by_ref().take(50).collect();
    replay(rounds.clone(), &["sam"], vec![Rule::all(&Sam::default(), &header.ctx())]).for_each(drop);
    if let Ok(policy) = standard().make(&header.policy, &header.config) {
        replay(rounds.clone(), &[&*header.policy], vec![Rule::all(&*policy, &header.ctx())]).for_each(drop);
    }
    let _ = why(&header, rounds, &Query::Name("worker1".to_owned()), None).to_string();
}

/// The payloads of a recording's blocks: the frame's content according to `docs/reference/recording.md`.
fn payloads() -> Vec<Vec<u8>> {
    let bytes = &recordings()[0];
    let mut rest = &bytes[MAGIC.len() + 4..];
    let mut payloads = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<12>() {
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]) as usize;
        let (packed, behind) = tail.split_at(word(0));
        payloads.push(lz4_flex::block::decompress(packed, word(4)).expect("it was just packed"));
        rest = behind;
    }
    payloads
}

fn headers() -> Vec<Vec<u8>> {
    payloads()[..1].to_vec()
}

/// All but the header's.
fn rows() -> Vec<Vec<u8>> {
    payloads()[1..].to_vec()
}

/// A recording with a good header and a payload.
fn framed(payload: &[u8]) -> Vec<u8> {
    static START: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let header = serde_json::to_vec(&header("sam", Mode::Enforce)).expect("plain values serialise");
        [&MAGIC[..], &VERSION.to_le_bytes(), &block(&header)].concat()
    });
    [&START[..], &block(payload)].concat()
}

/// A header of any content before good rows.
fn use_header(header: &[u8]) {
    static ROWS: LazyLock<Vec<u8>> = LazyLock::new(|| rows().iter().flat_map(|rows| block(rows)).collect());
    use_recording(&[&MAGIC[..], &VERSION.to_le_bytes(), &block(header), &ROWS].concat());
}

fn block(payload: &[u8]) -> Vec<u8> {
    let packed = lz4_flex::block::compress(payload);
    let lengths = [(packed.len() as u32).to_le_bytes(), (payload.len() as u32).to_le_bytes()].concat();
    let crc = crc32fast::hash(&[&lengths[..], &packed].concat());
    [&lengths[..], &crc.to_le_bytes(), &packed].concat()
}

fn snapshots() -> Vec<Vec<u8>> {
    let by_hand = list(&[
        r#"{"tasks":[{"id":11,"app":"a","cpu":0,"cycles":2.2e8,"inter":200000,"pages_by_node":[5,20],"origin":1}],"interval_s":0.1}"#,
    ]);
    [by_hand, files("docs/reference", "decide-snapshot.json"), files("fixtures/decide", ".json")].concat()
}

fn use_snapshot(bytes: &[u8]) {
    static START: LazyLock<Header> = LazyLock::new(|| header("sam", Mode::Advise));
    with(bytes, |text| {
        if let Ok(snapshot) = Snapshot::parse(text, &START.topology) {
            let _ = snapshot.decide(&START.ctx(), &Sam::default());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::machine;

    /// A seed that is refused at once would leave its parser untested.
    #[test]
    fn seeds_are_taken() {
        for seed in snapshots().iter().take(2) {
            let seed = text(seed).unwrap();
            assert!(Snapshot::parse(seed, &machine(2, 1, 10, 2)).is_ok(), "{seed}");
        }
        for bytes in recordings().into_iter().chain(rows().iter().map(|payload| framed(payload))) {
            assert!(Recording::read(&bytes[..]).is_ok_and(|r| r.header().policy == "sam"));
        }
        let moved = Recording::read(&recordings()[0][..]).unwrap().filter(|round| !round.orders.is_empty()).count();
        assert_eq!(moved, 1, "sam moves");
        assert_eq!(Recording::read(&framed(&rows()[0])[..]).unwrap().count(), 5, "the frame is as documented");
    }
}
