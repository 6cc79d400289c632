//! Recordings read back exactly, whatever happens to the end of the file.

use cotenant_model::Decision;
use cotenant_model::action::{ActionOutcome, Order, Outcome};
use cotenant_model::histogram::{Bucket, Clipped, Histogram};
use cotenant_model::host::{Mode, Round, drive};
use cotenant_model::policy::{Config, Settings, State};
use cotenant_model::sample::ClippedReading;
use cotenant_model::testing::machine;
use cotenant_model::usage::{Program, Seen, Usage};
use cotenant_model::{
    AppId, AppSample, Cause, Count, CpuId, CpuSample, CpuSet, Direction, Moved, NodeId, Pressure, Reading, Sample,
    Signal, TaskId, TaskInfo, TaskSample, Time, View, Waits,
};
use cotenant_policies::{Resense, Sam, SamConfig};
use cotenant_record::testing::{Gather, Role, Scripted, header, record};
use cotenant_record::{
    DEFAULTS, Header, RecordError, RecordWriter, RecordedRound, Recording, Status, Tail, WriteError,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Two sharers apart, a memory-bound task, an immovable one, and one that exists for a while.
fn script() -> Vec<Role> {
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    vec![
        sharer(0),
        sharer(10),
        Role { misses: 900_000, ..Role::new(1, 1) },
        sharer(11),
        Role { from: 3, until: 6, ..Role::new(2, 12) },
    ]
}

fn read(bytes: &[u8]) -> (Header, Vec<RecordedRound>, Tail) {
    let mut recording = Recording::read(bytes).unwrap();
    let rounds: Vec<RecordedRound> = recording.by_ref().collect();
    (recording.header().clone(), rounds, recording.tail().unwrap().clone())
}

/// The rounds of a run as observed.
fn observed(header: &Header, host: &mut Scripted) -> Vec<RecordedRound> {
    let mut rounds = Vec::new();
    drive(host, &Gather, &header.ctx(), header.mode, |r| {
        rounds.push(RecordedRound {
            rule: r.rule,
            prev: Arc::new(r.prev.clone()),
            sample: Arc::new(r.sample.clone()),
            decision: r.decision.cloned(),
            orders: r.orders.to_vec(),
            outcomes: r.outcomes.to_vec(),
        });
    })
    .unwrap();
    rounds
}

/// Promise record/old: A recording holds the machine as it was calibrated, and recordings of earlier versions stay
/// readable.
#[test]
fn a_calibrated_machine_is_recorded_by_its_figures() {
    let plain = header("gather", Mode::Observe);
    let mut calibrated = plain.clone();
    calibrated.machine.calibration = Some(Box::default());
    calibrated.machine.memory_latency = Some(Box::default());
    assert_eq!(read(&record(&calibrated, &mut Scripted::new(&script(), 2), &Gather)).0, plain);
}

#[test]
fn a_run_comes_back_as_it_was() {
    for mode in [Mode::Observe, Mode::Advise, Mode::Enforce] {
        let header = header("gather", mode);
        let mut host = Scripted::new(&script(), 12);
        host.denied.insert(TaskId(3));
        let expected = observed(&header, &mut host.clone());
        let (read_header, rounds, tail) = read(&record(&header, &mut host, &Gather));
        assert_eq!(read_header, header);
        assert_eq!(rounds, expected);
        assert_eq!(tail, Tail::Complete);
        let outcomes: BTreeSet<String> = rounds.iter().flat_map(|r| &r.outcomes).map(|o| format!("{o:?}")).collect();
        let expected = match mode {
            Mode::Observe => vec![],
            Mode::Advise => vec!["NotThisMachine"],
            Mode::Enforce => vec!["Applied", "Denied"],
        };
        assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), expected, "{mode:?}: the script makes the policy act");
    }
}

/// Promise record/damaged: A cut or damaged recording is used up to there; a full disk or the size limit ends the
/// recording, not the run.
#[test]
fn cut_anywhere_the_rest_is_used() {
    // Blocks of one round each, so that the good prefix is known for every cut.
    let header = header("gather", Mode::Enforce);
    let mut writer = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap();
    let mut ends = vec![writer.written() as usize];
    drive(&mut Scripted::new(&script(), 6), &Gather, &header.ctx(), header.mode, |round| {
        writer.round(round).unwrap();
        writer.flush().unwrap();
        ends.push(writer.written() as usize);
    })
    .unwrap();
    let whole = writer.finish().unwrap();
    let (_, rounds, tail) = read(&whole);
    assert_eq!((rounds.len(), &tail), (6, &Tail::Complete));
    for cut in 0..whole.len() {
        let Ok(mut recording) = Recording::read(&whole[..cut]) else {
            assert!(cut < ends[0], "with its header whole, a recording cut at {cut} is readable");
            continue;
        };
        let good: Vec<RecordedRound> = recording.by_ref().collect();
        let blocks = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(good[..], rounds[..blocks - 1], "cut at {cut}");
        let Some(Tail::Truncated { offset, rounds, why }) = recording.tail() else {
            panic!("cut at {cut}: {:?}", recording.tail())
        };
        assert_eq!((*offset as usize, *rounds as usize), (ends[blocks - 1], blocks - 1), "cut at {cut}: {why}");
        assert_eq!(why.contains("no end mark"), ends.contains(&cut), "cut at {cut}: {why}");
    }
}

/// Holds record/damaged.
#[test]
fn what_follows_a_damaged_block_is_not_believed() {
    let header = header("gather", Mode::Enforce);
    let whole = record(&header, &mut Scripted::new(&script(), 40), &Gather);
    let (_, rounds, _) = read(&whole);
    let start = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap().written() as usize;
    for at in (start..whole.len()).step_by(7) {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        let (_, good, tail) = read(&bad);
        assert_eq!(good[..], rounds[..good.len()]);
        assert!(matches!(tail, Tail::Truncated { rounds, .. } if rounds as usize == good.len()), "byte {at}: {tail}");
    }
}

#[test]
fn other_files_and_newer_versions_are_refused_with_a_remedy() {
    let message = |bytes: &[u8]| Recording::read(bytes).map(|_| ()).unwrap_err().to_string();
    assert!(message(b"").contains("not a recording"));
    assert!(message(b"\x7fELF and so on, for long enough").contains("not a recording"));
    let mut newer = record(&header("none", Mode::Observe), &mut Scripted::new(&[], 0), &Gather);
    newer[8] = 9;
    assert!(message(&newer).contains("format version 9") && message(&newer).contains("use a newer cotenant"));
    assert!(matches!(Recording::read(&newer[..9]), Err(RecordError::NotARecording)));
}

/// What is known before the start stands in the first round, what is known at the end in the end mark, where the limit
/// leaves room for it; without names in a recording that has none.
/// Holds run/busy.
#[test]
fn what_used_the_machine_is_recorded() {
    let usage = |others| {
        let programs =
            vec![Program { program: "rustc".to_owned(), cgroup: "/a.scope".to_owned(), cpus: others, waiting: None }];
        Usage { seconds: 1.0, of_cpus: 2, others, programs, ..Usage::default() }
    };
    let at_first = Seen { before: Some(usage(1.9)), during: None };
    let all = Seen { during: Some(usage(0.5)), ..at_first.clone() };
    let made = |redacted: bool, limit: u64| {
        let header = Header { redacted, ..header("gather", Mode::Enforce) };
        let mut writer = RecordWriter::new(Vec::new(), &header, limit).unwrap();
        writer.used(&at_first);
        drive(&mut Scripted::new(&script(), 3), &Gather, &header.ctx(), header.mode, |round| {
            writer.round(round).unwrap();
        })
        .unwrap();
        writer.used(&all);
        writer.finish().unwrap()
    };
    let told = |bytes: &[u8]| {
        let mut recording = Recording::read(bytes).unwrap();
        let before = recording.usage().clone();
        let first = recording.next().map(|_| recording.usage().clone()).unwrap();
        assert_eq!((before, recording.by_ref().count()), (Seen::default(), 2));
        (first, recording.usage().clone(), recording.tail().unwrap().clone())
    };
    let bytes = made(false, u64::MAX);
    assert_eq!(told(&bytes), (at_first.clone(), all.clone(), Tail::Complete));
    let cut = made(false, bytes.len() as u64 - 1);
    assert_eq!(told(&cut), (at_first.clone(), at_first.clone(), Tail::Complete), "no room for more than the end");
    let (_, nameless, _) = told(&made(true, u64::MAX));
    let text = |seen: &Seen| seen.busy(2.0).unwrap();
    assert_eq!(text(&nameless), text(&all).replace("rustc", "program-0"));
    assert!(!format!("{nameless:?}").contains("/a.scope"), "no control group");
}

/// Holds record/damaged.
#[test]
fn the_size_limit_ends_the_recording_and_not_the_run() {
    let header = header("gather", Mode::Enforce);
    let room = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap().written();
    let limit = room + 3_000;
    let mut writer = RecordWriter::new(Vec::new(), &header, limit).unwrap();
    let mut statuses = Vec::new();
    drive(&mut Scripted::new(&script(), 200), &Gather, &header.ctx(), header.mode, |round| {
        statuses.push(writer.round(round).unwrap());
    })
    .unwrap();
    assert_eq!(statuses.len(), 200);
    assert_eq!(statuses.iter().filter(|s| **s == Status::LimitReached).count(), 1, "reported once");
    assert_eq!(statuses.last(), Some(&Status::Stopped));
    let bytes = writer.finish().unwrap();
    assert!(bytes.len() as u64 <= limit);
    let (_, rounds, tail) = read(&bytes);
    assert_eq!(tail, Tail::Limit);
    assert!((10..200).contains(&rounds.len()), "{} rounds", rounds.len());
    let refused = RecordWriter::new(Vec::new(), &header, 100).unwrap_err();
    assert!(refused.to_string().contains("raise --record-limit"), "{refused}");
}

/// Accepts this many bytes, then reports a full disk.
struct Full {
    kept: Vec<u8>,
    room: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.room - self.kept.len());
        if n == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.kept.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Holds record/damaged.
#[test]
fn a_full_disk_is_reported_once_and_keeps_what_was_written() {
    let header = header("gather", Mode::Enforce);
    let room = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap().written() as usize;
    assert!(matches!(RecordWriter::new(Full { kept: vec![], room: 50 }, &header, u64::MAX), Err(WriteError::Io(_))));
    let mut disk = Full { kept: Vec::new(), room: room + 3_000 };
    let mut writer = RecordWriter::new(&mut disk, &header, u64::MAX).unwrap();
    let mut errors = Vec::new();
    drive(&mut Scripted::new(&script(), 200), &Gather, &header.ctx(), header.mode, |round| {
        errors.extend(writer.round(round).err());
    })
    .unwrap();
    writer.finish().expect("the error was reported before");
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains("free space or record elsewhere"), "{}", errors[0]);
    let (_, rounds, tail) = read(&disk.kept);
    assert!(matches!(tail, Tail::Truncated { .. }));
    assert!((10..200).contains(&rounds.len()), "{} rounds", rounds.len());
}

#[test]
fn a_redacted_recording_holds_no_name() {
    let mut header = header("gather", Mode::Enforce);
    header.redacted = true;
    header.apps.insert("program0".to_owned(), cotenant_model::profile::AppProfile::default());
    let bytes = record(&header, &mut Scripted::new(&script(), 5), &Gather);
    let (header, rounds, _) = read(&bytes);
    assert!(header.redacted && header.command.is_empty());
    let text = format!("{header:?} {rounds:?}");
    for name in ["worker", "program", "secret"] {
        assert!(!text.contains(name), "{name} is in it");
    }
    let sample = &rounds[0].sample;
    assert_eq!(sample.tasks[1].info.comm, "task-1");
    assert_eq!(sample.apps[1].name, "app-1");
    assert_eq!(header.apps.keys().next(), Some(&sample.apps[0].name), "a profile still matches its application");
}

#[test]
fn readings_that_are_no_numbers_are_left_out() {
    let header = header("none", Mode::Observe);
    let reading = |value| Reading {
        value,
        direction: Direction::LowerIsBetter,
        window: Duration::from_secs(1),
        count: 3,
        at: Time::from_millis(50),
    };
    let app = |at, values: &[f64]| Sample {
        at: Time::from_millis(at),
        apps: vec![AppSample {
            id: AppId(0),
            name: "a".to_owned(),
            tcp: Some(Moved { bytes: 7, at: Time::from_millis(at) }),
            metrics: values.iter().map(|v| ("p99_ms".to_owned(), reading(*v))).collect(),
            ..AppSample::default()
        }],
        ..Sample::default()
    };
    let mut writer = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap();
    let (a, b) = (app(0, &[]), app(100, &[f64::NAN, 2.5, f64::INFINITY]));
    let round = Round {
        rule: 0,
        last: &a,
        prev: &a,
        sample: &b,
        whole: true,
        view: &View::new(&a, &b),
        policy: None,
        decision: None,
        orders: &[],
        outcomes: &[],
    };
    writer.round(&round).unwrap();
    let (_, rounds, tail) = read(&writer.finish().unwrap());
    assert_eq!((&*rounds[0].sample, tail), (&app(100, &[2.5]), Tail::Complete));
    let unwritable = |change: fn(&mut Header)| {
        let mut header = header.clone();
        change(&mut header);
        matches!(RecordWriter::new(Vec::new(), &header, u64::MAX), Err(WriteError::Header(_)))
    };
    assert!(unwritable(|h| h.machine.clock_hz = Some(f64::INFINITY)), "it would read back as absent");
    assert!(unwritable(|h| h.config.foreign_busy = f64::NAN), "it would not read back");
}

/// Holds record/old.
#[test]
fn applications_of_older_recordings_are_read() {
    let reading = r#"{"value":1.5,"direction":"lower_is_better","window":{"secs":1,"nanos":0},"count":3}"#;
    let row = format!(r#"{{"id":0,"name":"a","progress":7,"metrics":[["p99",{reading}]]}}"#);
    let app: AppSample = serde_json::from_str(&row).unwrap();
    assert_eq!((app.progress, app.latency_ns, app.metrics[0].1.at), (Some(7), None, Time(0)));
    assert_eq!((app.io, app.tcp), (None, None));
}

fn count() -> impl Strategy<Value = Count> {
    let number = prop_oneof![0..5u64, any::<u64>()];
    (number.clone(), number.clone(), number).prop_map(|(value, enabled_ns, running_ns)| Count {
        value,
        enabled_ns,
        running_ns,
    })
}

fn task() -> impl Strategy<Value = TaskSample> {
    let counters = proptest::collection::vec((proptest::sample::select(Signal::ALL), count()), 0..6);
    let pages = proptest::option::of(proptest::collection::vec((0..4u32, any::<u64>()), 0..3));
    let touches = pages.clone();
    (
        proptest::option::of(0..64u32),
        counters,
        (pages, touches),
        0..3u32,
        proptest::sample::select(vec!["a", "b\\n\"", "ü"]),
    )
        .prop_map(|(cpu, counters, (pages, touches), app, comm)| TaskSample {
            info: Arc::new(TaskInfo {
                app: AppId(app),
                comm: comm.to_owned(),
                allowed: (0..app).map(CpuId).collect(),
                ..TaskInfo::default()
            }),
            cpu: cpu.map(CpuId),
            counters: counters.into_iter().collect(),
            pages_by_node: pages.map(|p| p.into_iter().map(|(node, n)| (NodeId(node), n)).collect()),
            touches_by_node: touches.map(|p| p.into_iter().map(|(node, n)| (NodeId(node), n)).collect()),
        })
}

fn sample() -> impl Strategy<Value = Sample> {
    let tasks = proptest::collection::btree_map(0..6u32, task(), 0..5);
    let cpus = proptest::collection::btree_map(0..5u32, any::<u64>(), 0..4);
    let apps = proptest::collection::btree_map(
        0..3u32,
        (any::<Option<u64>>(), any::<f64>().prop_filter("finite", |v| v.is_finite()), any::<Option<u64>>()),
        0..3,
    );
    (tasks, cpus, apps, any::<bool>()).prop_map(|(tasks, cpus, apps, numa_balancing)| Sample {
        at: Time::default(),
        numa_balancing,
        tasks: tasks
            .into_iter()
            .map(|(id, t)| TaskSample { info: Arc::new(TaskInfo { id: TaskId(id), ..(*t.info).clone() }), ..t })
            .collect(),
        cpus: cpus.into_iter().map(|(id, busy_ns)| CpuSample { id: CpuId(id), busy_ns }).collect(),
        apps: apps
            .into_iter()
            .map(|(id, (progress, value, at))| AppSample {
                id: AppId(id),
                name: "x".to_owned(),
                progress,
                latency_ns: at.map(|count| {
                    let high = if count % 2 == 0 { value + 0.1 } else { f64::INFINITY };
                    Histogram::new([Bucket { low: value, high, count }])
                }),
                openmp: progress,
                mpi: at,
                ended_ns: at,
                waits: at.map(|ns| Waits {
                    at: Time(ns),
                    ns,
                    count: ns / 2,
                    behind: vec![(Cause::App(AppId(1)), ns), (Cause::Kernel("k".to_owned()), 1)],
                    lengths: Histogram::new([Bucket { low: 0.0, high: 512.0, count: ns }]),
                }),
                paused_ns: progress,
                pressure: at.map(|us| Pressure { us, at: Time(us) }),
                io: progress.map(|bytes| Moved { bytes, at: Time(at.unwrap_or(0)) }),
                tcp: at.map(|bytes| Moved { bytes, at: Time::default() }),
                metrics: vec![(
                    "m".to_owned(),
                    Reading {
                        value,
                        direction: Direction::HigherIsBetter,
                        window: Duration::ZERO,
                        count: 0,
                        at: Time(at.unwrap_or(0)),
                    },
                )],
                clipped: at
                    .map(|at| {
                        let (clipped, at) = (Clipped::Below(value), Time(at));
                        ("c".to_owned(), ClippedReading { clipped, window: Duration::ZERO, at })
                    })
                    .into_iter()
                    .collect(),
            })
            .collect(),
    })
}

proptest! {
    /// Any samples whatever, also counters that go backwards, layouts that change and tasks that come back.
    #[test]
    fn any_samples_come_back(mut samples in proptest::collection::vec(sample(), 2..8), gap in 0..7usize) {
        for (i, sample) in samples.iter_mut().enumerate() {
            sample.at = Time::from_millis(i as u64 * 400);
        }
        let header = Header { topology: machine(1, 1, 1, 1), ..header("none", Mode::Observe) }; // small: it is written in every case
        let mut writer = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap();
        let mut expected = Vec::new();
        for (i, pair) in samples.windows(2).enumerate().filter(|(i, _)| *i != gap) {
            // One round is missing: the writer must detect that `prev` is not its last sample.
            let decision = (i % 2 == 0).then(|| Decision::new(vec![], State::default(), pair[1].at, vec!["n".into()]));
            let view = View::new(&pair[0], &pair[1]);
            let (orders, outcomes): (&[Order], &[Outcome]) = (&[], &[]);
            writer.round(&Round { rule: 0, last: &pair[0], prev: &pair[0], sample: &pair[1], whole: true, view: &view, policy: None, decision: decision.as_ref(), orders, outcomes }).unwrap();
            expected.push((pair[0].clone(), pair[1].clone(), decision));
        }
        let bytes = writer.finish().unwrap();
        let (_, rounds, tail) = read(&bytes);
        prop_assert_eq!(tail, Tail::Complete);
        let rounds: Vec<_> = rounds.into_iter().map(|r| ((*r.prev).clone(), (*r.sample).clone(), r.decision)).collect();
        prop_assert_eq!(rounds, expected);
    }
}

/// Holds place/stable.
#[test]
fn what_was_the_default_holds_in_recordings_of_before() {
    let settings = |policy: &str, defaults, text: &str| -> Settings {
        let config: Config = serde_json::from_str(text).unwrap();
        let header = Header { defaults, config, ..header(policy, Mode::Observe) };
        let bytes = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap().finish().unwrap();
        let (read, ..) = read(&bytes);
        assert_eq!(read.defaults, DEFAULTS);
        read.config.settings
    };
    let sam = |policy: &str, defaults, text: &str| settings(policy, defaults, text).of::<Sam>().unwrap();
    let usual = SamConfig::default();
    let (before, cold) = (SamConfig { whole_cores: false, ..usual }, SamConfig { cooldown: false, ..usual });
    let all = serde_json::to_string(&before).unwrap();
    let [none, one, some, full] = [
        "{}",
        r#"{"settings":{"sam":{"cooldown":false}}}"#,
        r#"{"settings":{"sam":{"cooldown":false,"whole-cores":true}}}"#,
        &format!("{{\"sam\":{all}}}"), // as version 0.1.0 wrote it
    ];
    assert_eq!(
        [none, one, some, full].map(|t| sam("sam", 0, t)),
        [before, SamConfig { whole_cores: false, ..cold }, cold, before]
    );
    assert_eq!([none, one, some, full].map(|t| sam("sam", DEFAULTS, t)), [usual, cold, cold, before]);
    let widest = |defaults, text: &str| settings("resense-sum", defaults, text).of::<Resense>().unwrap().widest;
    assert_eq!([widest(0, none), widest(DEFAULTS, none)], [true, false]);
    assert_eq!(settings("dino", 0, none), Settings::default());
}

#[test]
fn results_pair_orders_with_outcomes() {
    let header = header("gather", Mode::Enforce);
    let (_, rounds, _) = read(&record(&header, &mut Scripted::new(&script(), 2), &Gather));
    let moved: Vec<ActionOutcome> = rounds.iter().flat_map(RecordedRound::results).collect();
    assert!(!moved.is_empty() && moved.iter().all(|o| o.outcome == Outcome::Applied));
    assert_eq!(rounds[0].orders[0].affinity, CpuSet::parse_list("0-9,20-29").unwrap());
}
