//! Results of `compare`, `bench`, `schedule` and `qos` in JSON as sections.

use super::figure::{self, Group, short};
use super::page::{Block, Section, Table};
use super::recording::hurts;
use anyhow::{Context, Result};
use cotenant_cli::messages::count;
use cotenant_model::Direction;
use cotenant_model::histogram::Clipped;
use cotenant_model::interference::Row;
use cotenant_model::speed::Source;
use cotenant_status::quantities::Unit;
use cotenant_status::verdict::{Judgement, Verdict};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The section of a result, if it is from one of these commands.
pub(super) fn section(title: &str, value: &Value) -> Option<Result<Section>> {
    let has = |key: &str| value.get(key).is_some();
    let blocks = if has("jobs") && has("makespan_s") {
        read(value, "schedule").and_then(|result| schedule(&result))
    } else if has("controller") && has("high") {
        read(value, "qos").and_then(|result| qos(&result))
    } else if has("rounds") && has("over_linux") {
        read(value, "bench").and_then(|result| bench(&result))
    } else if has("verdict") && (has("pairs") || has("order")) {
        read(value, "compare").and_then(|result| compare(&result))
    } else {
        return None;
    };
    Some(blocks.map(|blocks| Section { title: title.to_owned(), blocks, embedded: None }))
}

fn read<'a, T: Deserialize<'a>>(value: &'a Value, command: &str) -> Result<T> {
    T::deserialize(value).with_context(|| format!("this is not a result of `{command} --json`"))
}

const UNKNOWN: &str = "–";

fn known<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn facts(facts: Vec<(&str, Option<String>)>) -> Block {
    Block::Facts(facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn notes(notes: &[String]) -> impl Iterator<Item = Block> {
    notes.iter().map(|note| Block::Text(format!("Note: {note}.")))
}

/// The common output of runs.
#[derive(Debug, Deserialize)]
struct Run {
    policy: Option<String>,
    mode: Option<String>,
    seconds: Option<f64>,
    moves: Option<u64>,
    tier: Option<String>,
    overhead: Option<f64>,
    #[serde(default)]
    interference: Vec<Row>,
    #[serde(default)]
    notes: Vec<String>,
}

impl Run {
    fn facts(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("Policy", self.policy.clone()),
            ("Mode", self.mode.clone()),
            ("Seconds", self.seconds.map(|seconds| format!("{seconds:.2}"))),
            ("Moves", self.moves.map(|moves| moves.to_string())),
            ("Counters", self.tier.clone()),
            ("Cotenant's own cost", self.overhead.map(|share| format!("{:.2} % of a CPU", share * 100.0))),
        ]
    }

    fn end(&self, blocks: &mut Vec<Block>) {
        if !self.interference.is_empty() {
            blocks.push(Block::Heading("Interference".to_owned()));
            hurts(&self.interference, blocks);
        }
        blocks.extend(notes(&self.notes));
    }
}

// ---- qos ----

#[derive(Debug, Deserialize)]
struct Qos {
    #[serde(flatten)]
    run: Run,
    controller: String,
    goal: Option<f64>,
    high: Vec<High>,
    #[serde(default)]
    low: Vec<Low>,
    duty_asked: Option<f64>,
    naps_ordered: Option<u64>,
    place: Option<String>,
    climbed: Option<String>,
}

#[derive(Debug, Deserialize)]
struct High {
    name: String,
    metric: String,
    achieved: Option<f64>,
    achieved_interval: Option<[f64; 2]>,
    measured: Option<f64>,
    measured_alone: Option<f64>,
    measured_goal: Option<f64>,
    verdict: Option<Verdict>,
    judgement: Option<String>,
    #[serde(default)]
    clipped: Option<Clipped>,
}

#[derive(Debug, Deserialize)]
struct Low {
    name: String,
    cpus: Option<f64>,
    duty: Option<f64>,
    naps_ordered: Option<u64>,
    naps_carried_out: Option<u64>,
    means: Option<Value>,
    limit: Option<String>,
    limits: Option<u64>,
}

impl High {
    /// The verdict as a sentence; an earlier release wrote its parts alone.
    fn judgement(&self, goal: Option<f64>) -> Option<String> {
        let of_parts = || {
            let share = self.achieved.map(|kept| (kept, self.achieved_interval));
            let why = self.clipped.map(|clipped| clipped.to_string());
            Some(Judgement { verdict: self.verdict?, share, goal: goal?, why, alone: None }.to_string())
        };
        self.judgement.clone().or_else(of_parts)
    }
}

fn qos(result: &Qos) -> Result<Vec<Block>> {
    let mut first = vec![("Controller", Some(result.controller.clone())), ("Goal", result.goal.map(percent))];
    first.extend(result.run.facts());
    first.extend([
        ("Asked to run", result.duty_asked.map(percent)),
        ("Naps ordered", result.naps_ordered.map(|naps| naps.to_string())),
        ("Sent to CPUs", result.place.clone()),
        ("Limits came after naps", result.climbed.clone()),
    ]);
    let verdict = |high: &High| Some(Block::Text(format!("{}: {}", high.name, high.judgement(result.goal)?)));
    let mut blocks: Vec<Block> = result.high.iter().filter_map(verdict).collect();
    blocks.push(facts(first));
    let head = ["Program", "Metric", "#Measured", "#Alone", "#Goal", "#Kept", "#95 % interval"];
    let mut table = Table::new("Goals", &head);
    for high in &result.high {
        let lower = ["_s", "seconds"].iter().any(|end| high.metric.ends_with(end));
        let direction = if lower { Direction::LowerIsBetter } else { Direction::HigherIsBetter };
        let unit = Unit::of(&Source::from(high.metric.clone()), direction);
        let value = |value: Option<f64>| known(value, |value| unit.text(Some(value)));
        table.rows.push(vec![
            high.name.clone(),
            unit.label.clone(),
            value(high.measured),
            value(high.measured_alone),
            value(high.measured_goal),
            known(high.achieved, percent),
            known(high.achieved_interval, |[low, high]| format!("{} to {}", percent(low), percent(high))),
        ]);
    }
    blocks.push(Block::Table(table));
    let series = ["kept".to_owned(), "goal".to_owned()];
    let series = &series[..if result.goal.is_some() { 2 } else { 1 }];
    let group = |high: &High| -> Group {
        let whisker = high.achieved_interval.map(|[low, high]| (low * 100.0, high * 100.0));
        let mut bars = vec![high.achieved.map(|kept| (kept * 100.0, whisker))];
        bars.extend(result.goal.map(|goal| Some((goal * 100.0, None))));
        (high.name.clone(), bars)
    };
    let groups: Vec<Group> = result.high.iter().map(group).collect();
    let what = "Speed kept, of the speed alone, with its 95 % interval";
    blocks.extend(figure::bars("kept", what, "%", series, &groups)?.map(Block::Figure));
    let head = ["Program", "#CPUs", "#Ran", "#Naps ordered", "#Carried out", "Limit", "#Limits set", "By means of"];
    let mut table = Table::new("Throttled programs", &head);
    table.rows.extend(result.low.iter().map(|low| {
        vec![
            low.name.clone(),
            known(low.cpus, |cpus| format!("{cpus:.2}")),
            known(low.duty, percent),
            known(low.naps_ordered, |naps| naps.to_string()),
            known(low.naps_carried_out, |naps| naps.to_string()),
            known(low.limit.clone(), |limit| limit),
            known(low.limits, |limits| limits.to_string()),
            known(low.means.as_ref().and_then(Value::as_str), str::to_owned),
        ]
    }));
    if !table.rows.is_empty() {
        blocks.push(Block::Table(table));
    }
    result.run.end(&mut blocks);
    let how = "How it went over time is in a recording of the run: cotenant qos --record, then cotenant report.";
    blocks.push(Block::Text(how.to_owned()));
    Ok(blocks)
}

// ---- compare ----

#[derive(Debug, Deserialize)]
struct Compare {
    #[serde(flatten)]
    run: Run,
    verdict: String,
    #[serde(default)]
    pairs: Vec<Pair>,
    speedup: Option<Interval>,
    #[serde(default)]
    metrics: Vec<Compared>,
    window_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    without_s: f64,
    with_s: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Interval {
    mean: f64,
    ci95: [f64; 2],
}

#[derive(Debug, Deserialize)]
struct Compared {
    name: String,
    direction: Option<String>,
    #[serde(default)]
    pairs: Vec<[f64; 2]>,
    gain: Option<Interval>,
    verdict: Option<String>,
}

impl Interval {
    fn text(self) -> String {
        format!("{:.3} ({:.3} to {:.3})", self.mean, self.ci95[0], self.ci95[1])
    }
}

fn compare(result: &Compare) -> Result<Vec<Block>> {
    let mut first = vec![
        ("Verdict", Some(result.verdict.clone())),
        ("Speed-up, with its 95 % interval", result.speedup.map(Interval::text)),
        ("Length of a window", result.window_s.map(|seconds| format!("{seconds} s"))),
    ];
    first.extend(result.run.facts());
    let mut blocks = vec![facts(first)];
    let policy = result.run.policy.as_deref().unwrap_or("Cotenant");
    let series = ["without".to_owned(), format!("with {policy}")];
    let group = |(i, pair): (usize, [f64; 2])| -> Group {
        ((i + 1).to_string(), pair.iter().map(|value| Some((*value, None))).collect())
    };
    let pairs = result.pairs.iter().map(|pair| [pair.without_s, pair.with_s]).enumerate();
    let groups: Vec<Group> = pairs.map(group).collect();
    blocks.extend(figure::bars("pairs", "Pairs of runs", "seconds", &series, &groups)?.map(Block::Figure));
    let head = ["Metric", "Better is", "#Without", "#With", "#Times as good", "#Pairs", "Verdict"];
    let mut table = Table::new("Metrics: means of all pairs, and how many times better, with the 95 % interval", &head);
    for (i, metric) in result.metrics.iter().enumerate() {
        let mean = |side: usize| {
            let n = metric.pairs.len() as f64;
            known((n > 0.0).then(|| metric.pairs.iter().map(|pair| pair[side]).sum::<f64>() / n), short)
        };
        table.rows.push(vec![
            metric.name.clone(),
            known(metric.direction.as_deref(), |name| name.replace('_', " ").replace(" is better", "")),
            mean(0),
            mean(1),
            known(metric.gain, Interval::text),
            metric.pairs.len().to_string(),
            known(metric.verdict.clone(), |verdict| verdict),
        ]);
        let groups: Vec<Group> = metric.pairs.iter().copied().enumerate().map(group).collect();
        let what = format!("{}: pairs", metric.name);
        blocks.extend(figure::bars(&format!("metric-{i}"), &what, "", &series, &groups)?.map(Block::Figure));
    }
    if !table.rows.is_empty() {
        blocks.insert(1, Block::Table(table));
    }
    let mut table = Table::new("Pairs of runs", &["Pair", "#Without, s", "#With, s", "#Times as fast"]);
    table.rows.extend(result.pairs.iter().enumerate().map(|(i, pair)| {
        let ratio = pair.without_s / pair.with_s;
        vec![(i + 1).to_string(), short(pair.without_s), short(pair.with_s), format!("{ratio:.3}")]
    }));
    table.folded = table.rows.len() > 20;
    if !table.rows.is_empty() {
        blocks.push(Block::Table(table));
    }
    result.run.end(&mut blocks);
    Ok(blocks)
}

// ---- bench ----

#[derive(Debug, Deserialize)]
struct Bench {
    machine: Option<String>,
    rounds: Vec<Round>,
    over_linux: Vec<Over>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Round {
    workload: String,
    repetition: u64,
    policies: BTreeMap<String, Arm>,
}

#[derive(Debug, Deserialize)]
struct Arm {
    art_s: Option<f64>,
    throughput: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Over {
    policy: String,
    rounds: u64,
    average_response_time: Gain,
    throughput: Gain,
}

#[derive(Debug, Deserialize)]
struct Gain {
    percent: Option<f64>,
    ci95: Option<[f64; 2]>,
    p: Option<f64>,
}

fn bench(result: &Bench) -> Result<Vec<Block>> {
    let machine = result.machine.as_ref().map(|machine| format!("{machine}, simulated"));
    let mut blocks =
        vec![facts(vec![("Machine", machine), ("Rounds", Some(count(result.rounds.len() as u64, "round")))])];
    let head = ["Policy", "#Rounds", "#Average response time", "#p", "#Throughput", "#p"];
    let mut table = Table::new("Better than Linux alone by, with 95 % intervals", &head);
    let gain = |gain: &Gain| {
        let ends = known(gain.ci95, |[low, high]| format!(" ({low:+.1} to {high:+.1})"));
        known(gain.percent, |percent| format!("{percent:+.1} %{ends}"))
    };
    let chance = |gain: &Gain| known(gain.p, |p| format!("{p:.3}"));
    table.rows.extend(result.over_linux.iter().map(|over| {
        let (art, throughput) = (&over.average_response_time, &over.throughput);
        let rounds = over.rounds.to_string();
        vec![over.policy.clone(), rounds, gain(art), chance(art), gain(throughput), chance(throughput)]
    }));
    blocks.push(Block::Table(table));
    let bar = |gain: &Gain| Some((gain.percent?, gain.ci95.map(|[low, high]| (low, high))));
    let groups: Vec<Group> = result
        .over_linux
        .iter()
        .map(|over| (over.policy.clone(), vec![bar(&over.average_response_time), bar(&over.throughput)]))
        .collect();
    let series = ["average response time".to_owned(), "throughput".to_owned()];
    let what = "Better than Linux alone by; whiskers: 95 % intervals";
    blocks.extend(figure::bars("over-linux", what, "%", &series, &groups)?.map(Block::Figure));
    let head = ["Workload", "#Repetition", "Policy", "#Average response time, s", "#Throughput, 1/s"];
    let mut table = Table::new("Rounds; none is Linux alone", &head);
    for round in &result.rounds {
        table.rows.extend(round.policies.iter().map(|(policy, arm)| {
            let figures = [arm.art_s, arm.throughput].map(|value| known(value, short));
            let [art, throughput] = figures;
            vec![round.workload.clone(), round.repetition.to_string(), policy.clone(), art, throughput]
        }));
    }
    table.folded = table.rows.len() > 20;
    blocks.push(Block::Table(table));
    blocks.extend(notes(&result.notes));
    Ok(blocks)
}

// ---- schedule ----

#[derive(Debug, Deserialize)]
struct Schedule {
    #[serde(flatten)]
    run: Run,
    chosen: Option<String>,
    makespan_s: f64,
    cpus: Option<u64>,
    quanta: Option<u64>,
    jobs: Vec<Job>,
    failed: Option<u64>,
    left: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Job {
    name: String,
    #[serde(default)]
    command: Vec<String>,
    result: Option<String>,
    why: Option<String>,
    attempts: Option<u64>,
    seconds: Option<f64>,
    cpu_s: Option<f64>,
    max_rss_bytes: Option<u64>,
}

/// Limit of jobs with bars of their own: those that took longest.
const JOBS: usize = 40;

fn schedule(result: &Schedule) -> Result<Vec<Block>> {
    let number = |n: Option<u64>| n.map(|n| n.to_string());
    let mut first = vec![
        ("From the first start to the last end", Some(format!("{:.2} s", result.makespan_s))),
        ("Jobs", Some(result.jobs.len().to_string())),
        ("Failed", number(result.failed)),
        ("Left to do", number(result.left)),
        ("CPUs", number(result.cpus)),
        ("Quanta", number(result.quanta)),
        ("Chosen because", result.chosen.clone()),
    ];
    first.extend(result.run.facts());
    let mut blocks = vec![facts(first)];
    let mut longest: Vec<&Job> = result.jobs.iter().collect();
    longest.sort_by(|a, b| b.seconds.unwrap_or_default().total_cmp(&a.seconds.unwrap_or_default()));
    let some = if longest.len() > JOBS { format!(", of the {JOBS} that took longest") } else { String::new() };
    let bar = |value: Option<f64>| value.map(|value| (value, None));
    let groups: Vec<Group> =
        longest.iter().take(JOBS).map(|job| (job.name.clone(), vec![bar(job.seconds), bar(job.cpu_s)])).collect();
    let series = ["from its start to its end".to_owned(), "CPU time".to_owned()];
    let what = format!("Time of each job{some}");
    blocks.extend(figure::bars("jobs", &what, "seconds", &series, &groups)?.map(Block::Figure));
    let head = ["Job", "Command", "Result", "#Attempts", "#Seconds", "#CPU time, s", "#Memory, MiB"];
    let mut table = Table::new("Jobs", &head);
    table.rows.extend(result.jobs.iter().map(|job| {
        let why = job.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        vec![
            job.name.clone(),
            job.command.join(" "),
            known(job.result.as_ref(), |result| format!("{}{why}", result.replace('_', " "))),
            known(job.attempts, |attempts| attempts.to_string()),
            known(job.seconds, |seconds| format!("{seconds:.2}")),
            known(job.cpu_s, |seconds| format!("{seconds:.2}")),
            known(job.max_rss_bytes, |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20))),
        ]
    }));
    table.folded = table.rows.len() > 50;
    blocks.push(Block::Table(table));
    result.run.end(&mut blocks);
    Ok(blocks)
}
