//! `why` reports orders and their results, and without orders the signals' distance from the thresholds.

use cotenant_model::action::{Order, Outcome};
use cotenant_model::histogram::{Bucket, Histogram};
use cotenant_model::host::{Host, HostError, Mode, Wake};
use cotenant_model::{Count, CpuId, Direction, Reading, Sample, Signal, TaskId, Time, Topology};
use cotenant_record::testing::{Gather, Role, Scripted, header, record};
use cotenant_record::why::{Answer, why};
use cotenant_record::{Header, Recording};
use std::time::Duration;

/// package 0: task 0 (shares), task 3 (memory) │ package 1: tasks 1 and 2 (share with 0; 2 may not be moved), task 4
/// (computes)
fn script() -> Vec<Role> {
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    vec![sharer(0), sharer(10), sharer(11), Role { misses: 900_000, ..Role::new(1, 1) }, Role::new(2, 12)]
}

fn run(mode: Mode, change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = header("gather", mode);
    change(&mut header);
    let mut host = Scripted::new(&script(), 6);
    host.denied.insert(TaskId(2));
    record(&header, &mut host, &Gather)
}

fn ask(bytes: &[u8], what: &str) -> Answer {
    let mut recording = Recording::read(bytes).unwrap();
    let header = recording.header().clone();
    why(&header, recording.by_ref(), &what.parse().unwrap(), None)
}

#[test]
fn a_move_is_told_with_its_evidence_and_what_came_of_it() {
    let answer = ask(&run(Mode::Enforce, |_| {}), "1001");
    let [told] = &answer.moves[..] else { panic!("{answer:#?}") };
    assert_eq!(
        (told.what.task, told.what.from_cpu, &told.what.to_cpus[..]),
        (Some(TaskId(1)), Some(CpuId(10)), &[CpuId(2)][..])
    );
    assert_eq!((told.outcome, told.seen_on), (Some(Outcome::Applied), Some(CpuId(2))));
    // 110,000 of 2.2e8 cycles. Task 2 stays apart, so the app's coherence goes on.
    let expected = "\
0.100 s  task 1 (worker1, tid 1001): CPU 10 → 2, may use 0-9,20-29; stage 1: inter 0.0005000/cycle > 0.0002500/cycle; colocate with program0 on package 0
         applied; seen on CPU 2 in the round after
         inter/cycle          0.000500 │ 0.000500 0.000500 0.000500
         instructions/cycle   0.500 │ 0.500 0.500 0.500
         cpu_share            1.000 │ 1.000 1.000 1.000
         progress/s           100.000 │ 100.000 100.000 100.000
remark of gather from 0.200 s on, in 3 rounds: task 2 could not be moved: Denied
";
    assert_eq!(answer.to_string(), expected);
}

/// The same with reported latencies and an external metric read every other round; one thread of the application waits
/// for a CPU.
struct Measured(Scripted);

impl Host for Measured {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let mut sample = self.0.sample()?;
        let tick = sample.at.0 / 100_000_000;
        let reading = Reading {
            value: 20.0 + (tick / 2) as f64,
            direction: Direction::LowerIsBetter,
            window: Duration::from_millis(200),
            count: 1,
            at: Time::from_millis(tick / 2 * 200),
        };
        sample.apps[0].metrics = vec![("queue".to_owned(), reading)];
        sample.tasks[0].counters.set(Signal::RunQueueWait, Count::exact(tick * 10_000_000));
        sample.apps[0].latency_ns = Some(Histogram::new([Bucket { low: 1e6, high: 2e6, count: tick * 10 }]));
        Ok(sample)
    }

    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        self.0.apply(orders)
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.0.wait(until)
    }
}

#[test]
fn what_programs_report_and_metrics_tell_stands_beside_a_move() {
    let mut host = Measured(Scripted::new(&script(), 6));
    host.0.denied.insert(TaskId(2));
    let text = ask(&record(&header("gather", Mode::Enforce), &mut host, &Gather), "1001").to_string();
    for line in
        ["latency_p99_s        0.00199 │ 0.00199 0.00199 0.00199", "queue                20.000 │ 21.000 21.000 22.000"]
    {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("waiting"), "only another thread of it waited: {text}");
}

/// A rule glances between two full samples: task counts are those of the last full one.
struct Glancing {
    host: Scripted,
    seen: Sample,
    samples: u32,
}

impl Host for Glancing {
    fn topology(&self) -> &Topology {
        self.host.topology()
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let now = self.host.sample()?;
        let glances = self.samples % 2 == 1;
        self.samples += 1;
        let seen = if glances { self.seen.clone() } else { now.clone() };
        self.seen = Sample { at: now.at, ..seen };
        Ok(self.seen.clone())
    }

    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        self.host.apply(orders)
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.host.wait(until)
    }
}

/// Holds record/why.
#[test]
fn what_tasks_did_is_told_from_look_to_look() {
    let glancing = || Glancing { host: Scripted::new(&script(), 12), seen: Sample::default(), samples: 0 };
    let answer = ask(&record(&header("gather", Mode::Enforce), &mut glancing(), &Gather), "1001");
    let told = answer.moves.first().unwrap();
    let share = told.trends.iter().find(|trend| trend.what == "cpu_share").unwrap();
    assert_eq!((&share.before[..], &share.after[..]), (&[Some(1.0)][..], &[Some(1.0); 3][..]));
    assert_eq!((told.outcome, told.seen_on), (Some(Outcome::Applied), Some(CpuId(2))), "{answer}");
    let unmoved = ask(&record(&header("none", Mode::Observe), &mut glancing(), &Gather), "1004");
    let checks = unmoved.unmoved[0].checks.iter().filter(|check| check.max.is_some());
    assert!(checks.clone().count() > 0 && checks.clone().all(|check| check.measured == 6), "{unmoved:?}");
}

#[test]
fn a_move_that_was_denied_is_told_as_such() {
    let answer = ask(&run(Mode::Enforce, |_| {}), "task:2");
    let outcomes: Vec<_> = answer.moves.iter().map(|told| (told.at_s, told.outcome)).collect();
    assert_eq!(outcomes, [(0.1, Some(Outcome::Denied)), (0.3, Some(Outcome::Denied)), (0.5, Some(Outcome::Denied))]);
    assert!(answer.to_string().contains("not applied: not permitted; seen on CPU 11"), "{answer}");
    assert!(ask(&run(Mode::Advise, |_| {}), "task:2").to_string().contains("advised only, not applied"));
}

#[test]
fn an_application_is_all_its_tasks() {
    let bytes = run(Mode::Enforce, |_| {});
    for what in ["app:0", "program0"] {
        let answer = ask(&bytes, what);
        assert_eq!(answer.moves.len(), 4, "task 1 once, task 2 three times");
        assert_eq!(answer.unmoved.iter().map(|t| t.task.0).collect::<Vec<_>>(), [0], "{what}");
    }
}

#[test]
fn what_was_never_moved_is_held_against_the_thresholds() {
    let verdict = |bytes: &[u8], what: &str| ask(bytes, what).unmoved[0].verdict.clone();
    let bytes = run(Mode::Enforce, |_| {});
    assert_eq!(verdict(&bytes, "worker4"), "none of its signals was ever above its threshold");
    // 900,000 misses in 0.1 s = 9e6/s > 7.5e7 / 10 cores; the package has 9e6 + 1.1e6 + … < 7.5e7.
    assert_eq!(
        verdict(&bytes, "worker3"),
        "it needs much memory bandwidth, but its package was never above its threshold"
    );
    assert_eq!(
        verdict(&bytes, "worker0"),
        "above its threshold was inter in 6 of 6 rounds, and gather left it where it was"
    );
    let expected = "\
task 3 (worker3, tid 1003, app program1) was never moved: it needs much memory bandwidth, but its package was never above its threshold
         there in 6 rounds, on CPUs 1
         inter/cycle                at most 0 (at 0.100 s), threshold 0.000250: above it in 0 of 6 rounds
         intra/cycle                at most 0 (at 0.100 s), threshold 0.000250: above it in 0 of 6 rounds
         llc_misses/s               at most 9.00 M (at 0.100 s), threshold 7.50 M: above it in 6 of 6 rounds
         llc_misses/s of its package at most 11.2 M (at 0.200 s), threshold 75.0 M: above it in 0 of 6 rounds
         remote/cycle               at most 0 (at 0.100 s), threshold 0.00100: above it in 0 of 6 rounds
remark of gather from 0.200 s on, in 3 rounds: task 2 could not be moved: Denied
";
    assert_eq!(ask(&bytes, "worker3").to_string(), expected);
    assert_eq!(verdict(&run(Mode::Observe, |_| {}), "worker0"), "the run only observed, no policy decided");
    let unknown = run(Mode::Enforce, |h| h.machine.thresholds = None);
    assert!(verdict(&unknown, "worker0").contains("no thresholds for what was measured"));
    let none = record(&header("none", Mode::Enforce), &mut Scripted::new(&script(), 3), &cotenant_policies::None);
    assert_eq!(verdict(&none, "worker0"), "policy none moves nothing");
}

#[test]
fn a_time_is_everything_that_was_done_then() {
    let bytes = run(Mode::Enforce, |_| {});
    let tasks = |what| ask(&bytes, what).moves.iter().map(|told| told.what.task.unwrap().0).collect::<Vec<_>>();
    assert_eq!(tasks("0.1s"), [1, 2]);
    assert_eq!(tasks("0.25s..0.5s"), [2, 2]);
    assert_eq!(
        ask(&bytes, "0.2s").to_string(),
        "Nothing was ordered from 0.150 to 0.250 s; the nearest orders were at 0.100 and 0.300 s.\n"
    );
    assert_eq!(
        ask(&bytes, "9s").to_string(),
        "Nothing was ordered from 8.500 to 9.500 s; the last order was at 0.500 s, the recording ends at 0.600 s.\n"
    );
}

#[test]
fn what_is_not_there_is_answered_with_what_is() {
    let answer = ask(&run(Mode::Enforce, |_| {}), "postgres");
    assert!(
        answer
            .to_string()
            .starts_with("Nothing in the recording is called that; there are: program0, program1, program2, worker0"),
        "{answer}"
    );
    let empty = record(&header("none", Mode::Observe), &mut Scripted::new(&[], 2), &cotenant_policies::None);
    assert_eq!(ask(&empty, "7").to_string(), "Nothing in the recording is called that: it holds no tasks.\n");
}

#[test]
fn a_number_is_a_thread_id_first() {
    let bytes = run(Mode::Enforce, |_| {});
    assert_eq!(ask(&bytes, "4").unmoved[0].task, TaskId(4), "no thread has id 4");
    assert_eq!(ask(&bytes, "1004").unmoved[0].task, TaskId(4));
    assert!(ask(&bytes, "tid:4").unmoved.is_empty());
}

#[test]
fn json_has_the_parts() {
    let json = serde_json::to_value(ask(&run(Mode::Enforce, |_| {}), "app:0")).unwrap();
    assert_eq!(json["moves"][0]["task"], 1);
    assert_eq!(json["moves"][0]["reason"]["signal"], "inter");
    assert_eq!(json["moves"][0]["outcome"], "applied");
    assert_eq!(json["moves"][0]["trends"][0]["after"].as_array().unwrap().len(), 3);
    assert_eq!(json["unmoved"][0]["checks"][0]["threshold"], 2.5e-4);
}
