//! Rounds of very unequal lengths, most of them very short: shown usage equals real usage.

use cotenant_model::policy::State;
use cotenant_model::testing::machine;
use cotenant_model::{
    AppId, AppSample, Count, CpuId, CpuSample, Decision, Mode, Owns, Round, Sample, Signal, TaskId, TaskInfo,
    TaskSample, Time, View,
};
use cotenant_record::testing::header;
use cotenant_record::{Header, RecordWriter, RecordedRule};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A small generator with the same recordings for the same seed.
struct Random(u64);

impl Random {
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1_u64 << 24) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.part() * n as f64) as usize
    }
}

/// A machine of a few CPUs with tasks that run and move, and other programs.
struct Made {
    random: Random,
    header: Header,
    cpus: usize,
    tasks: Vec<Task>,
    busy_ns: Vec<u64>,
    /// The unit in which busy time is counted.
    tick_ns: u64,
}

struct Task {
    app: u32,
    cpu: usize,
    ran_ns: u64,
    moves: u64,
    /// The share of the time it runs, its probability of a move in a round, and whether its moves are counted.
    wants: f64,
    restless: f64,
    counted: bool,
}

/// The content of a recording in the kernel's terms.
struct Truth {
    bytes: Vec<u8>,
    end_s: f64,
    /// CPU time by application, seconds.
    apps: BTreeMap<String, f64>,
    /// Busy seconds of each CPU by the time of each look.
    busy: Vec<(f64, Vec<f64>)>,
}

impl Made {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..8 {
            random.part();
        }
        let cpus = 2 + random.below(3);
        let mut header = Header { topology: machine(1, 1, cpus as u32, 1), ..header("gather", Mode::Enforce) };
        if seed.is_multiple_of(3) {
            let rule =
                || RecordedRule { policy: "gather".to_owned(), owns: Owns::default(), config: header.config.clone() };
            header.rules = vec![rule(), rule()];
        }
        let task = |i: usize, random: &mut Random| Task {
            app: (i % 3) as u32,
            cpu: random.below(cpus),
            ran_ns: 1_000_000_000 * i as u64,
            moves: 0,
            wants: random.part(),
            restless: if i.is_multiple_of(2) { 0.0 } else { random.part() * 0.5 },
            counted: i != 3,
        };
        let tasks = (0..3 + random.below(4)).map(|i| task(i, &mut random)).collect();
        let tick_ns = if seed.is_multiple_of(2) { 10_000_000 } else { 1 };
        Self { random, header, cpus, tasks, busy_ns: vec![0; cpus], tick_ns }
    }

    /// Advances by so many nanoseconds.
    fn play(&mut self, ns: u64) {
        let mut left = vec![ns as f64; self.cpus];
        for task in &mut self.tasks {
            let moves = self.random.part() < task.restless;
            for part in [0.3, 0.7] {
                let wants = task.wants * part * ns as f64 * self.random.part() * 1.5;
                let runs = wants.min(left[task.cpu]).min(part * ns as f64) as u64;
                left[task.cpu] -= runs as f64;
                task.ran_ns += runs;
                self.busy_ns[task.cpu] += runs;
                if moves {
                    // Away and back, or away.
                    let to = self.random.below(self.cpus);
                    task.moves += u64::from(to != task.cpu);
                    task.cpu = to;
                }
            }
        }
        for (busy, left) in self.busy_ns.iter_mut().zip(left) {
            *busy += (left * self.random.part() * 0.3) as u64;
        }
    }

    /// Busy time of each CPU as reported by the kernel.
    fn told_ns(&self) -> impl Iterator<Item = u64> {
        self.busy_ns.iter().map(|ns| ns / self.tick_ns * self.tick_ns)
    }

    fn sample(&self, at: Time) -> Sample {
        let task = |(id, task): (u32, &Task)| TaskSample {
            info: Arc::new(TaskInfo {
                id: TaskId(id),
                app: AppId(task.app),
                tid: 100 + id,
                pid: 100 + task.app,
                comm: format!("thread{id}"),
                allowed: self.header.topology.usable().clone(),
                ..TaskInfo::default()
            }),
            cpu: Some(CpuId(task.cpu as u32)),
            counters: std::iter::once((Signal::CpuTime, Count::exact(task.ran_ns)))
                .chain(task.counted.then_some((Signal::Migrations, Count::exact(task.moves))))
                .collect(),
            ..TaskSample::default()
        };
        let app = |id| AppSample { id: AppId(id), name: format!("program{id}"), ..AppSample::default() };
        Sample {
            at,
            tasks: (0..).zip(&self.tasks).map(task).collect(),
            cpus: (0..).zip(self.told_ns()).map(|(id, busy_ns)| CpuSample { id: CpuId(id), busy_ns }).collect(),
            apps: (0..3).map(app).collect(),
            ..Sample::default()
        }
    }

    /// Records some seconds of it.
    fn record(mut self, seconds: f64) -> Truth {
        let mut writer = RecordWriter::new(Vec::new(), &self.header, u64::MAX).unwrap();
        let mut prev = self.sample(Time::default());
        let mut before = [prev.clone(), prev.clone()];
        let begin: Vec<u64> = self.tasks.iter().map(|task| task.ran_ns).collect();
        let (mut at, mut looked, mut busy) = (Time::default(), Time::default(), vec![(0.0, vec![0.0; self.cpus])]);
        while at.as_secs_f64() < seconds {
            // 0.1 to 134 ms, with short ones as likely as long ones.
            let ns = 1e5 * 1_340_f64.powf(self.random.part());
            let length = Duration::from_nanos(ns as u64);
            self.play(length.as_nanos() as u64);
            at = at + length;
            let over = at.as_secs_f64() >= seconds;
            let whole = over || at - looked > Duration::from_millis(500) || self.random.part() < 0.2;
            let sample = if whole { self.sample(at) } else { Sample { at, ..prev.clone() } };
            if whole {
                looked = at;
                busy.push((at.as_secs_f64(), self.told_ns().map(|ns| ns as f64 / 1e9).collect()));
            }
            let rule = self.random.below(self.header.rules.len().max(1));
            let view = View::new(&before[rule], &sample);
            let decision = Decision::new(Vec::new(), State::default(), at, Vec::new());
            let round = Round {
                rule,
                last: &prev,
                prev: &before[rule],
                sample: &sample,
                whole,
                view: &view,
                policy: None,
                decision: Some(&decision),
                orders: &[],
                outcomes: &[],
            };
            writer.round(&round).unwrap();
            before[rule] = sample.clone();
            prev = sample;
        }
        let mut apps = BTreeMap::new();
        for (task, begin) in self.tasks.iter().zip(begin) {
            *apps.entry(format!("program{}", task.app)).or_default() += (task.ran_ns - begin) as f64 / 1e9;
        }
        Truth { bytes: writer.finish().unwrap(), end_s: at.as_secs_f64(), apps, busy }
    }
}

/// The report of a recording.
fn page(name: &str, bytes: &[u8]) -> String {
    let folder: PathBuf = std::env::temp_dir().join(format!("cotenant-uneven-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [file, out] = ["a.rec", "a.html"].map(|name| folder.join(name));
    fs::write(&file, bytes).unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_cotenant")).arg("report").arg(&file).arg("-o").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(&out).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    page
}

/// The rows of the table of applications, by heads.
fn table(page: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document = roxmltree::Document::parse_with_options(page, options).unwrap();
    let text = |node: roxmltree::Node<'_, '_>| {
        let parts = node.descendants().filter(roxmltree::Node::is_text).filter_map(|n| n.text());
        parts.collect::<String>().trim().to_owned()
    };
    let caption = |table: &roxmltree::Node<'_, '_>| {
        table.children().any(|c| c.has_tag_name("caption") && text(c).starts_with("Applications"))
    };
    let table = document.descendants().filter(|n| n.has_tag_name("table")).find(caption).unwrap();
    let rows: Vec<Vec<String>> = table
        .descendants()
        .filter(|node| node.has_tag_name("tr"))
        .map(|row| row.children().filter(roxmltree::Node::is_element).map(text).collect())
        .collect();
    let row = |row: &Vec<String>| {
        let cells = rows[0].iter().cloned().zip(row.iter().map(|cell| cell.parse().unwrap_or(f64::NAN)));
        (row[0].clone(), cells.collect())
    };
    rows[1..].iter().map(row).collect()
}

fn near(shown: f64, own: f64) -> bool {
    (shown - own).abs() <= own * 0.01 + 1e-3
}

/// Holds record/adds-up.
#[test]
fn what_is_shown_adds_up_to_what_was_used() {
    for seed in 1..=12 {
        let truth = Made::new(seed).record(12.0);
        let page = page(&format!("adds-up-{seed}"), &truth.bytes);
        let table = table(&page);
        let (_, data) = page.split_once("<script type=\"application/json\" id=\"s0-data\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        let ends: Vec<f64> = serde_json::from_value(data["history"]["at_s"].clone()).unwrap();
        let begins = std::iter::once(0.0).chain(ends.iter().copied());
        let rows: Vec<(f64, f64)> = begins.zip(ends.iter().copied()).collect();
        let plots = data["history"]["plots"].as_array().unwrap();
        let values = |line: &Value| serde_json::from_value::<Vec<Option<f64>>>(line["values"].clone()).unwrap();
        // CPU time of each application: in the table, and summed over all places.
        let mut over_time: BTreeMap<String, f64> = BTreeMap::new();
        for line in plots.iter().filter(|p| p["part"] == "places").flat_map(|p| p["lines"].as_array().unwrap()) {
            let sum = rows.iter().zip(values(line)).map(|((from, to), cpus)| cpus.unwrap_or(0.0) * (to - from));
            *over_time.entry(line["name"].as_str().unwrap().to_owned()).or_default() += sum.sum::<f64>();
        }
        for (app, own) in &truth.apps {
            let mean = table[app]["CPUs in use"];
            assert!(near(mean * truth.end_s, *own), "seed {seed}: {app} {mean} CPUs, in fact {}", own / truth.end_s);
            assert!(near(over_time[app], *own), "seed {seed}: {app} {} s in plots, in fact {own}", over_time[app]);
        }
        // No CPU has more than the kernel's time, except for a tick or two of each, nor more than possible.
        for cpu in 0..truth.busy[0].1.len() {
            let id = format!("place-{cpu}");
            let plot = plots.iter().find(|plot| plot["id"] == id.as_str()).unwrap();
            for (at, (from, to)) in rows.iter().enumerate() {
                let by = |time: f64| {
                    truth.busy.iter().rev().find(|(at, _)| *at <= time + 2e-3).map_or(0.0, |(_, busy)| busy[cpu])
                };
                let lines = plot["lines"].as_array().unwrap().iter();
                let [mut services, mut others] = [0.0; 2];
                for line in lines {
                    let to = if line["name"] == "other programs" { &mut others } else { &mut services };
                    *to += values(line)[at].unwrap_or(0.0);
                }
                let busy = (by(*to) - by(*from)) / (to - from);
                let slack = 0.005 + 0.021 / (to - from);
                assert!(services <= busy + slack, "seed {seed}: CPU {cpu} at {to} s: {services} of {busy}");
                assert!(services + others <= 1.01, "seed {seed}: CPU {cpu} at {to} s: {services} + {others}");
            }
        }
    }
}
