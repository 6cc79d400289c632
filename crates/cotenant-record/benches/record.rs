//! Cost of recording: 1,000 tasks of which 100 run, one round every 100 ms. Prints one JSON line per case.
//!
//! `cargo bench -p cotenant-model --bench record`
//!
//! Holds see/cost-of-records.

use cotenant_model::policy::State;
use cotenant_model::testing::machine;
use cotenant_model::{
    AppId, Count, CpuId, CpuSample, Decision, Mode, Round, Sample, Signal, TaskId, TaskInfo, TaskSample, View,
};
use cotenant_record::testing::header;
use cotenant_record::{RecordWriter, Recording};
use cotenant_testing::bench::Report;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TASKS: u32 = 1_000;
const ROUNDS: u64 = 600;
const INTERVAL: Duration = Duration::from_millis(100);

/// Software signals with the counters of a full PMU in three groups.
const FULL: &[Signal] = &[
    Signal::Cycles,
    Signal::Instructions,
    Signal::StallCycles,
    Signal::PrivateMisses,
    Signal::LlcHits,
    Signal::LlcLoadMisses,
    Signal::LlcMisses,
    Signal::Intra,
    Signal::Inter,
    Signal::Remote,
    Signal::LocalDram,
    Signal::CpuTime,
    Signal::RunQueueWait,
    Signal::PageFaults,
    Signal::Migrations,
    Signal::ContextSwitches,
];

/// Reproducible noise: counts vary from round to round as real ones do, so that compression looks no better than it is.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn first(signals: &[Signal]) -> Sample {
    let topology = machine(2, 1, 10, 2);
    let info = |id: u32| {
        let (allowed, comm) = (topology.usable().clone(), format!("worker{}", id % 7));
        let (app, pid, tid, start_ticks) = (AppId(id / 100), 3_000 + id / 100, 4_000 + id, 9_000 + u64::from(id));
        Arc::new(TaskInfo { id: TaskId(id), app, tid, pid, start_ticks, comm, allowed, old: false })
    };
    let task = |id| TaskSample {
        info: info(id),
        cpu: Some(CpuId(id % 40)),
        counters: signals.iter().map(|s| (*s, Count::exact(0))).collect(),
        pages_by_node: None,
        touches_by_node: None,
    };
    let cpu = |id| CpuSample { id: CpuId(id), busy_ns: 0 };
    let (tasks, cpus) = ((0..TASKS).map(task).collect(), (0..40).map(cpu).collect());
    Sample { tasks, cpus, ..Sample::default() }
}

fn next(prev: &Sample, signals: &[Signal], running: u32, noise: &mut Noise) -> Sample {
    let mut now = prev.clone();
    now.at = now.at + INTERVAL;
    for task in now.tasks.iter_mut().filter(|t| t.info.id.0 % (TASKS / running) == 0) {
        if noise.below(4) == 0 {
            task.cpu = Some(CpuId(noise.below(40) as u32));
        }
        let clocks =
            [0, 1, 2].map(|group| (40_000_000 + noise.below(1_000), 13_000_000 + group * 100_000 + noise.below(1_000)));
        for (i, signal) in signals.iter().enumerate() {
            let mut count = task.counters.get(*signal).unwrap_or_default();
            count.value += 10_u64.pow(3 + i as u32 % 6) + noise.below(1_000_000);
            if i < 11 && signals.len() > 8 {
                // Three alternating perf groups; the counters of a group share its clock.
                count.enabled_ns += clocks[i / 4].0;
                count.running_ns += clocks[i / 4].1;
            }
            task.counters.set(*signal, count);
        }
    }
    for cpu in &mut now.cpus {
        cpu.busy_ns += noise.below(11) * 10_000_000;
    }
    now
}

fn main() {
    let mut report = Report::new("record");
    for (name, signals, running) in [
        ("software, 100 of 1000 run", Signal::SOFTWARE, 100),
        ("full, 100 of 1000 run", FULL, 100),
        ("full, 1000 of 1000 run", FULL, 1_000),
    ] {
        let header = header("none", Mode::Enforce);
        let mut writer = RecordWriter::new(Vec::with_capacity(128 << 20), &header, u64::MAX).expect("memory takes it");
        let (mut noise, mut prev, mut spent) = (Noise(42), first(signals), Vec::new());
        for _ in 0..ROUNDS {
            let sample = next(&prev, signals, running, &mut noise);
            let view = View::new(&prev, &sample);
            let wake_at = sample.at + INTERVAL;
            let decision = Decision::new(vec![], State::default(), wake_at, vec![]);
            let (view, decision) = (&view, Some(&decision));
            let round = Round {
                rule: 0,
                last: &prev,
                prev: &prev,
                sample: &sample,
                whole: true,
                view,
                policy: None,
                decision,
                orders: &[],
                outcomes: &[],
            };
            let start = Instant::now();
            writer.round(&round).expect("memory takes it");
            spent.push(start.elapsed());
            prev = sample;
        }
        let bytes = writer.finish().expect("memory takes it");
        // Some rounds also pack a block: averages over enough rounds to include their share, and the median of these.
        let mut means: Vec<f64> =
            spent.chunks_exact(40).map(|rounds| rounds.iter().sum::<Duration>().as_secs_f64() / 40.0).collect();
        means.sort_by(f64::total_cmp);
        let per_round = means[means.len() / 2];
        let start = Instant::now();
        let rounds = Recording::read(&bytes[..]).expect("it was just written").count() as u64;
        let read = start.elapsed();
        assert_eq!(rounds, ROUNDS);
        report.row(serde_json::json!({
            "case": name,
            "write_us_per_round": per_round * 1e6,
            "core_percent_at_100ms": per_round / INTERVAL.as_secs_f64() * 100.0,
            "bytes_per_round": bytes.len() as u64 / ROUNDS,
            "mib_per_hour": bytes.len() as f64 / ROUNDS as f64 * 36_000.0 / f64::from(1 << 20),
            "read_us_per_round": read.as_secs_f64() / ROUNDS as f64 * 1e6,
        }));
    }
}
