//! Recordings in `fixtures/recordings`: one of each format version, which must stay readable for ever, and a run of
//! `sam` whose decisions must not change unnoticed.
//!
//! `COTENANT_BLESS=1 cargo test -p cotenant-record golden_recordings` rewrites the run of `sam` after an intended
//! change, and creates the file of a new format version; it never replaces such a file.

use cotenant_model::action::Outcome;
use cotenant_model::host::Mode;
use cotenant_model::{Count, CpuId, NodeId, Rule, Signal, TaskId, Time};
use cotenant_policies::Sam;
use cotenant_record::replay::replay;
use cotenant_record::testing::{Role, Scripted, header, record};
use cotenant_record::why::{Query, why};
use cotenant_record::{Header, RecordedRound, Recording, Tail, VERSION};
use std::fs;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name)
}

fn bless() -> bool {
    std::env::var_os("COTENANT_BLESS").is_some()
}

fn read(name: &str) -> (Header, Vec<RecordedRound>, Tail) {
    let path = path(name);
    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; COTENANT_BLESS=1 writes it", path.display()));
    let mut recording = Recording::read(&bytes[..]).unwrap();
    let rounds = recording.by_ref().collect();
    (recording.header().clone(), rounds, recording.tail().unwrap().clone())
}

fn write(name: &str, bytes: &[u8]) {
    fs::create_dir_all(path("")).unwrap();
    fs::write(path(name), bytes).unwrap();
}

/// package 0: sharers 0 and 1 │ package 1: sharer 2 of the same app, sharer 3 that may not be moved, a task that
/// comes and goes
/// Holds record/old.
#[test]
fn format_1_is_readable() {
    if bless() && VERSION == 1 && !path("format-1.rec").exists() {
        let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
        let script = [sharer(0), sharer(1), sharer(10), sharer(11), Role { from: 2, until: 4, ..Role::new(1, 12) }];
        let mut host = Scripted::new(&script, 6);
        host.denied.insert(TaskId(3));
        write("format-1.rec", &record(&header("sam", Mode::Enforce), &mut host, &Sam::default()));
    }
    let (header, rounds, tail) = read("format-1.rec");
    assert_eq!((tail, rounds.len()), (Tail::Complete, 6));
    assert_eq!((header.cotenant.as_str(), header.policy.as_str(), header.mode), ("0.1.0", "sam", Mode::Enforce));
    assert_eq!((header.topology.packages().len(), header.topology.online().len()), (2, 40));
    assert_eq!(header.machine.thresholds.map(|t| t.coherence_per_cycle), Some(2.5e-4));
    assert_eq!((header.command.len(), header.started_unix_s), (2, Some(1_420_070_400)));

    let first = &rounds[0];
    assert_eq!((first.prev.at, first.sample.at), (Time(0), Time::from_millis(100)));
    let moved: Vec<(TaskId, Outcome)> = first.results().iter().map(|r| (r.action.task().unwrap(), r.outcome)).collect();
    assert_eq!(moved, [(TaskId(2), Outcome::Applied), (TaskId(3), Outcome::Denied)]);
    let evidence = first.orders[0].reason.evidence.unwrap();
    assert_eq!((evidence.signal, evidence.value, evidence.threshold), (Signal::Inter, 5e-4, 2.5e-4));
    assert_eq!(first.orders[0].affinity.to_string(), "0-9,20-29");
    assert!(!first.decision.as_ref().unwrap().state.read::<Sam>().unwrap().moves.is_empty());
    let last = &rounds[5].sample;
    assert_eq!((last.tasks[2].cpu, last.tasks[3].cpu), (Some(CpuId(2)), Some(CpuId(11))));
    assert_eq!(last.tasks[2].counters.get(Signal::Cycles), Some(Count::exact(6 * 220_000_000)));
    assert_eq!(last.tasks[2].pages_by_node, Some(vec![(NodeId(1), 1_000)]));
    assert_eq!((last.tasks[2].info.comm.as_str(), last.tasks[2].info.tid), ("worker2", 1_002));
    assert_eq!((last.cpus.len(), last.cpus[0].busy_ns), (40, 600_000_000));
    assert_eq!((last.apps[0].name.as_str(), last.apps[0].progress), ("program0", Some(60)));
    let tasks: Vec<usize> = rounds.iter().map(|r| r.sample.tasks.len()).collect();
    assert_eq!(tasks, [4, 5, 5, 4, 4, 4]);
}

/// Package 1 holds two sharers whose partners are on package 0 (stage 1) and, beside them, memory-bound tasks whose
/// sum is above what the socket can bear (stage 3).
#[test]
fn sam_still_decides_as_recorded() {
    if bless() {
        let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
        let memory = |cpu| Role { misses: 900_000, ..Role::new(1 + cpu, cpu) };
        let mut script = vec![sharer(0), sharer(1), sharer(10), sharer(11)];
        script.extend((12..20).map(memory));
        script.extend([Role { from: 4, ..memory(32) }, Role { from: 6, until: 12, ..memory(33) }]);
        write(
            "two-sockets-sam.rec",
            &record(&header("sam", Mode::Enforce), &mut Scripted::new(&script, 20), &Sam::default()),
        );
    }
    let (header, rounds, tail) = read("two-sockets-sam.rec");
    assert_eq!((tail, rounds.len()), (Tail::Complete, 20));
    for again in replay(rounds.clone(), &[&header.policy], vec![Rule::all(&Sam::default(), &header.ctx())]) {
        let at = again.view.at.as_secs_f64();
        assert_eq!(
            Some(&again.decision),
            again.round.decision.as_ref(),
            "at {at} s; if this is meant, COTENANT_BLESS=1"
        );
    }
    let told = why(&header, rounds, &Query::Time { from: Time(0), to: Time(u64::MAX) }, None).to_string();
    if bless() {
        write("two-sockets-sam.txt", told.as_bytes());
    }
    assert_eq!(told, fs::read_to_string(path("two-sockets-sam.txt")).unwrap(), "if this is meant, COTENANT_BLESS=1");
    assert!(["stage 1", "stage 2", "stage 3"].iter().all(|stage| told.contains(stage)), "{told}");
}
