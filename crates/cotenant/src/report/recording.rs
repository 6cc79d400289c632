//! A recording as a section: the machine, places and speeds of tasks, and moves with reasons.

use super::figure::{self, Line, Span};
use super::page::{Block, Part, Section, Table};
use super::stay::{ALL, Stay};
use crate::recorded::Recorded;
use cotenant_cli::messages::count;
use cotenant_model::action::{Action, Effect, Outcome};
use cotenant_model::host::Mode;
use cotenant_model::interference::Row;
use cotenant_model::policy::State;
use cotenant_model::topology::Topology;
use cotenant_model::view::View;
use cotenant_model::{AppId, CpuId, CpuSet, Look, Sample, Signal, TaskId, TaskView, Time};
use cotenant_record::moves::Move;
use cotenant_record::{Header, RecordedRound, Recording, Tail};
use cotenant_status::goals::Goals;
use cotenant_status::history::History;
use cotenant_status::hurts;
use cotenant_status::page::embedded::Embedded;
use cotenant_status::plots::{self, Plot, Plots, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

/// Most tasks that get a row of their own in the timeline.
const ROWS: usize = 40;
/// Most bars of the timeline; a recording with more is shown by numbers of tasks alone.
const SPANS: usize = 20_000;
/// Most points of time in a figure, beyond which neighbours are merged; pieces shorter than this are merged earlier,
/// seconds.
const POINTS: usize = 800;
const SHORTEST: f64 = 0.1;
/// Limit of individually listed moves, and of orders about whole applications, which come in hundreds.
const MOVES: usize = 500;
/// Most applications with a line of their own.
const LINES: usize = 7;

/// Most aggressors that have a column each.
const AGGRESSORS: usize = 8;

/// Figures per application: name of the file, head of the table's column, title, and unit.
const RATES: &[(&str, &str, &str, &str)] = &[
    ("cpus", "#CPUs in use", "CPUs in use", "CPUs"),
    ("ipc", "#Instructions/cycle", "Instructions per cycle", "instructions/cycle"),
    ("coherence", "#Coherence/cycle", "Coherence (loads served by other cores' caches)", "events/cycle"),
    ("llc-misses", "#LLC misses/s", "Last-level-cache misses", "misses/s"),
    ("remote", "#Remote loads/s", "Loads from other nodes' memory", "loads/s"),
    ("faults", "#Page faults/s", "Page faults", "faults/s"),
    ("progress", "#Progress, units/s", "Progress as the program reports it", "units/s"),
    ("asleep", "#Throttled, %", "Throttled: time in naps", "% of the time"),
    ("limit", "#Limit, CPUs", "Limit of CPU time", "CPUs"),
];

/// Places in the table above.
const CPUS: usize = 0;
const PROGRESS: usize = 6;
const ASLEEP: usize = 7;
const LIMIT: usize = 8;

/// No place: a task that moved.
const MOVED: usize = usize::MAX - 1;

/// A task that cannot have spent this part of its time on its observed CPU has an unknown place.
const MOST_OF_IT: f64 = 0.9;

/// Sum over time and seconds of a mean; of events per cycle, events and cycles.
type Mean = (f64, f64);

/// An application in a stretch of time.
#[derive(Clone, Debug, Default)]
struct Rates([Mean; RATES.len()]);

/// A stretch of time.
#[derive(Clone, Debug, Default)]
struct Stretch {
    /// Its end, and how long it is, seconds.
    at: f64,
    seconds: f64,
    apps: BTreeMap<AppId, Rates>,
    /// Tasks that ran, by place, times seconds.
    places: BTreeMap<usize, f64>,
}

/// Counts of an application up to a round.
#[derive(Clone, Copy, Debug, Default)]
struct SoFar {
    progress: Option<u64>,
    slept: f64,
    /// Its total pause at the last look.
    slept_before: f64,
}

impl Rates {
    /// Adds values that held for some seconds.
    fn add(&mut self, rate: usize, value: Option<f64>, seconds: f64) {
        self.sum(rate, value.map(|value| (value * seconds, seconds)));
    }

    fn sum(&mut self, rate: usize, more: Option<Mean>) {
        if let Some((sum, weight)) = more {
            let mean = &mut self.0[rate];
            *mean = (mean.0 + sum, mean.1 + weight);
        }
    }
}

impl Stretch {
    fn merge(&mut self, later: Self) {
        self.at = later.at;
        self.seconds += later.seconds;
        for (app, rates) in later.apps {
            let own = self.apps.entry(app).or_default();
            for (mean, more) in own.0.iter_mut().zip(rates.0) {
                *mean = (mean.0 + more.0, mean.1 + more.1);
            }
        }
        for (place, tasks) in later.places {
            *self.places.entry(place).or_default() += tasks;
        }
    }
}

/// Takes over a recording round by round; memory is bounded except for the numbers of tasks and moves.
struct Digest<'a> {
    header: &'a Header,
    places: Places<'a>,
    stretches: Vec<Stretch>,
    /// Greatest length of a stretch, seconds.
    longest: f64,
    /// The values since the last look.
    now: Stretch,
    so_far: BTreeMap<AppId, SoFar>,
    /// Seconds that each was kept from running, by the last sample that has it.
    slept: BTreeMap<AppId, f64>,
    apps: BTreeMap<AppId, (String, BTreeSet<TaskId>)>,
    names: BTreeMap<TaskId, String>,
    spans: BTreeMap<TaskId, Vec<Stay>>,
    /// Whether there are few enough.
    followed: bool,
    /// The content of the live page at that time.
    recorded: Recorded,
    history: History,
    /// Naps of each application, which are not its tasks' time on any CPU.
    asleep: BTreeMap<AppId, Vec<(f64, f64)>>,
    /// The limit of CPU time in force, thousandths of a CPU, and how many were set.
    limits: BTreeMap<AppId, (Option<u32>, u64)>,
    goals: Option<Goals>,
    moves: Vec<(f64, Move, Option<Outcome>)>,
    /// Listed ones about tasks, and about whole applications.
    listed: [usize; 2],
    by_reason: BTreeMap<(Effect, String, &'static str), u64>,
    notes: BTreeMap<String, (f64, u64)>,
    present: u32,
    rounds: u64,
    span: (f64, f64),
    most_tasks: usize,
    moved: u64,
}

/// The kind of a task's place: packages if there are several, otherwise cache domains, otherwise CPUs.
struct Places<'a> {
    topology: &'a Topology,
    kind: &'static str,
}

impl<'a> Places<'a> {
    fn new(topology: &'a Topology) -> Self {
        let kind = match (topology.packages().len(), topology.llc_domains().len()) {
            (2.., _) => "package",
            (_, 2..) => "LLC domain",
            _ => "CPU",
        };
        Self { topology, kind }
    }

    fn of(&self, cpu: CpuId) -> Option<usize> {
        match self.kind {
            "package" => self.topology.package_of(cpu),
            "LLC domain" => self.topology.llc_of(cpu),
            _ => Some(cpu.index()),
        }
    }

    fn name(&self, place: usize) -> String {
        if place == MOVED {
            return "moved".to_owned();
        }
        format!("{} {place}", self.kind)
    }
}

/// Digests a recording, with its end.
///
/// # Errors
/// A figure cannot be drawn.
pub fn section<R: Read>(
    title: String,
    header: &Header,
    recording: &mut Recording<R>,
) -> anyhow::Result<(Section, Tail)> {
    let recorded = Recorded::new(header, Duration::ZERO);
    let mut digest = Digest {
        header,
        places: Places::new(&header.topology),
        stretches: Vec::new(),
        longest: SHORTEST,
        now: Stretch::default(),
        so_far: BTreeMap::new(),
        slept: BTreeMap::new(),
        apps: BTreeMap::new(),
        names: BTreeMap::new(),
        spans: BTreeMap::new(),
        followed: true,
        history: History::whole(&header.topology),
        asleep: BTreeMap::new(),
        limits: BTreeMap::new(),
        goals: goals(header, &recorded),
        recorded,
        moves: Vec::new(),
        listed: [0; 2],
        by_reason: BTreeMap::new(),
        notes: BTreeMap::new(),
        present: 0,
        rounds: 0,
        span: (0.0, 0.0),
        most_tasks: 0,
        moved: 0,
    };
    while let Some(round) = recording.next() {
        digest.recorded.used(recording.usage());
        digest.round(&round);
    }
    digest.recorded.used(recording.usage());
    digest.end();
    let tail = recording.tail().cloned().unwrap_or(Tail::Complete);
    let plots = digest.plots();
    let blocks = digest.blocks(&tail, &plots)?;
    let embedded = if digest.rounds > 0 { Some(digest.embedded(plots)?) } else { None };
    Ok((Section { title, blocks, embedded }, tail))
}

/// The goals of a run whose policy protects programs.
fn goals(header: &Header, recorded: &Recorded) -> Option<Goals> {
    let start = recorded.policy(0)?.explain(&State::default());
    start.throttling.is_some().then(|| Goals::new(start, header.mode == Mode::Enforce))
}

impl Digest<'_> {
    fn round(&mut self, round: &RecordedRound) {
        let view = View::new(&round.prev, &round.sample);
        let (from, at) = (round.prev.at.as_secs_f64(), view.at.as_secs_f64());
        if self.rounds == 0 {
            self.span.0 = from;
            self.since_last(&round.prev, 0.0);
        }
        // Several rules may cover the same time.
        let since = if self.rounds == 0 { from } else { self.span.1 };
        self.span.1 = at;
        self.rounds += 1;
        self.most_tasks = self.most_tasks.max(view.tasks.len());
        for task in &round.sample.tasks {
            self.present |= task.counters.present();
            let info = &task.info;
            self.names.entry(info.id).or_insert_with(|| info.comm.clone());
            self.apps.entry(info.app).or_default().1.insert(info.id);
        }
        for app in &round.sample.apps {
            self.apps.entry(app.id).or_default().0.clone_from(&app.name);
        }
        if let Some(goals) = self.goals.as_mut().filter(|_| round.rule == 0) {
            let decision = round.decision.as_ref();
            goals.round(
                &view,
                self.recorded.policy(0).zip(decision).map(|(policy, decided)| policy.explain(&decided.state)),
            );
        }
        // Current orders apply from the end of the round on, not to the time before.
        self.since_last(&round.sample, at - since);
        self.recorded.round(round);
        if let Some(look) = self.recorded.watch.take_look() {
            let (services, cpus) = (self.recorded.services(&round.sample), self.recorded.watch.cpus());
            self.history.add_for(at, look.view.interval.as_secs_f64(), &services, &cpus);
            self.looked(&look, &round.sample);
        }
        self.throttled(round);
        for note in round.decision.iter().flat_map(|decision| &decision.notes) {
            self.notes.entry(note.clone()).or_insert((at, 0)).1 += 1;
        }
        for (i, order) in round.orders.iter().enumerate() {
            let outcome = round.outcomes.get(i).copied();
            self.moved += 1;
            let kind = (order.action.effect(), order.reason.stage.to_string(), outcome_text(outcome));
            *self.by_reason.entry(kind).or_default() += 1;
            let listed = &mut self.listed[usize::from(order.action.task().is_none())];
            if *listed < MOVES {
                *listed += 1;
                self.moves.push((at, Move::new(&round.sample, order), outcome));
            }
        }
    }

    /// Adds naps and limits, which apply from the end of the round.
    fn throttled(&mut self, round: &RecordedRound) {
        for (app, begin, end) in self.recorded.naps.last() {
            let (begin, end) = (begin.as_secs_f64(), end.as_secs_f64());
            let naps = self.asleep.entry(app).or_default();
            match naps.last_mut() {
                Some(last) if last.0.to_bits() == begin.to_bits() => last.1 = end,
                _ => naps.push((begin, end)),
            }
        }
        for (order, _) in round.orders.iter().zip(&round.outcomes).filter(|(_, o)| **o == Outcome::Applied) {
            if let Action::Limit { app, cpu_permille } = order.action {
                let limit = self.limits.entry(app).or_default();
                *limit = (cpu_permille, limit.1 + u64::from(cpu_permille.is_some()));
            }
        }
    }

    /// Adds the applications' work since the previous sample.
    fn since_last(&mut self, sample: &Sample, seconds: f64) {
        if self.so_far.len() > sample.apps.len() {
            self.so_far.retain(|app, _| sample.apps.iter().any(|there| there.id == *app));
        }
        for app in &sample.apps {
            let slept = self.recorded.slept(app, sample.at);
            self.slept.insert(app.id, slept);
            let before = self.so_far.insert(
                app.id,
                SoFar {
                    progress: app.progress,
                    slept,
                    slept_before: self.so_far.get(&app.id).map_or(slept, |so_far| so_far.slept_before),
                },
            );
            let Some(before) = before else { continue };
            let rates = self.now.apps.entry(app.id).or_default();
            let done = app.progress.zip(before.progress).and_then(|(now, before)| now.checked_sub(before));
            rates.sum(PROGRESS, done.map(|done| (done as f64, seconds)));
            rates.sum(ASLEEP, Some(((slept - before.slept) * 100.0, seconds)));
            let limit = self.limits.get(&app.id).and_then(|limit| limit.0);
            rates.add(LIMIT, limit.map(|permille| f64::from(permille) / 1e3), seconds);
        }
    }

    /// Adds the tasks' work since the previous look.
    fn looked(&mut self, look: &Look, sample: &Sample) {
        let seconds = look.view.interval.as_secs_f64();
        let slept: BTreeMap<AppId, f64> = self
            .so_far
            .iter_mut()
            .map(|(app, so_far)| {
                let slept = so_far.slept - std::mem::replace(&mut so_far.slept_before, so_far.slept);
                (*app, (slept / seconds).clamp(0.0, 1.0))
            })
            .collect();
        self.follow(look, &slept);
        let mut now = std::mem::take(&mut self.now);
        (now.at, now.seconds) = (look.view.at.as_secs_f64(), seconds);
        let tasks = look.view.by_app();
        for app in &sample.apps {
            let tasks = tasks.of(app.id);
            let per_s = |signals: &[Signal]| {
                let known = tasks.iter().flat_map(|task| signals.iter().filter_map(|signal| task.per_s(*signal)));
                known.reduce(|sum, more| sum + more)
            };
            let cycles = per_s(&[Signal::Cycles]).filter(|cycles| *cycles > 0.0);
            let per_cycle = |signals: &[Signal]| Some((per_s(signals)? * seconds, cycles? * seconds));
            // An application without tasks uses no CPU.
            let cpu_time = if tasks.is_empty() { Some(0.0) } else { per_s(&[Signal::CpuTime]) };
            let rates = now.apps.entry(app.id).or_default();
            rates.add(CPUS, cpu_time.map(|ns_per_s| ns_per_s / 1e9), seconds);
            rates.sum(1, per_cycle(&[Signal::Instructions]));
            rates.sum(2, per_cycle(&[Signal::Intra, Signal::Near, Signal::Inter]));
            rates.add(3, per_s(&[Signal::LlcMisses]), seconds);
            rates.add(4, per_s(&[Signal::Remote]), seconds);
            rates.add(5, per_s(&[Signal::PageFaults]), seconds);
        }
        for task in look.view.tasks.iter().filter(|task| task.ran() != Some(false)) {
            if let Some(place) = self.place(look, task) {
                let slept = slept.get(&task.info.app).copied().unwrap_or_default();
                *now.places.entry(place).or_default() += (1.0 - slept) * seconds;
            }
        }
        self.add(now);
        if self.stretches.len() > POINTS {
            self.longest *= 2.0;
            for stretch in std::mem::take(&mut self.stretches) {
                self.add(stretch);
            }
        }
    }

    /// Ends the recording: values since the last look count, too.
    fn end(&mut self) {
        self.history.end(self.span.1);
        if let Some(goals) = &mut self.goals {
            goals.crowded.clone_from(&self.recorded.watch.crowded);
        }
        let rest = std::mem::take(&mut self.now);
        let seconds = self.span.1 - self.stretches.last().map_or(self.span.0, |last| last.at);
        if seconds > 0.0 && !rest.apps.is_empty() {
            self.add(Stretch { at: self.span.1, seconds, ..rest });
        }
    }

    /// The place in which a task ran, as far as is known.
    fn place(&self, look: &Look, task: &TaskView) -> Option<usize> {
        let (from, to) = (task.from_cpu.and_then(|cpu| self.places.of(cpu)), self.places.of(task.cpu?)?);
        let stayed = match (task.moved(), look.on_its_cpu(task).zip(look.seconds(task))) {
            (Some(true), _) => from == Some(to) && self.places.kind != "CPU",
            (_, Some(((_, here), all))) => here >= all * MOST_OF_IT,
            _ => true,
        };
        Some(if stayed { to } else { MOVED })
    }

    /// Merges a stretch into the last one where both together are short enough.
    fn add(&mut self, stretch: Stretch) {
        match self.stretches.last_mut() {
            Some(last) if last.seconds + stretch.seconds <= self.longest + 1e-9 => last.merge(stretch),
            _ => self.stretches.push(stretch),
        }
    }

    /// The place of each task, while they are few enough to be shown individually.
    fn follow(&mut self, look: &Look, slept: &BTreeMap<AppId, f64>) {
        let all = |spans: &BTreeMap<TaskId, Vec<Stay>>| spans.values().map(Vec::len).sum::<usize>();
        let mut many = self.names.len() > ROWS;
        if !many && all(&self.spans) > SPANS {
            self.spans.values_mut().for_each(Stay::coarsen);
            // With such frequent moves, a figure shows nothing.
            many = all(&self.spans) > SPANS * 3 / 4;
        }
        if many {
            self.followed = false;
            self.spans.clear();
        }
        if !self.followed {
            return;
        }
        let (from, at) = (look.from.as_secs_f64(), look.view.at.as_secs_f64());
        for task in &look.view.tasks {
            let Some(place) = self.place(look, task) else { continue };
            let spans = self.spans.entry(task.info.id).or_default();
            // It ran in the part of the time without naps. Without counts, all of it.
            let awake = 1.0 - slept.get(&task.info.app).copied().unwrap_or_default();
            let share = task.cpu_share().map(|share| (share / awake.max(f64::MIN_POSITIVE)).min(1.0));
            let steps = share.map_or(ALL, Stay::steps);
            match spans.last_mut() {
                Some(last) if (last.place, last.steps) == (place, steps) && last.to >= from - 1e-9 => {
                    last.to = at;
                }
                _ => spans.push(Stay { from, to: at, place, steps }),
            }
        }
    }

    fn app_name(&self, app: AppId) -> String {
        self.apps.get(&app).map(|a| a.0.clone()).filter(|name| !name.is_empty()).unwrap_or_else(|| format!("app {app}"))
    }

    fn blocks(&self, tail: &Tail, plots: &Plots) -> anyhow::Result<Vec<Block>> {
        let mut blocks = self.verdicts();
        blocks.push(Block::Facts(self.facts()));
        if *tail != Tail::Complete {
            blocks.push(Block::Warning(format!("The recording is {tail}.")));
        }
        if self.rounds == 0 {
            blocks
                .push(Block::Warning("The recording holds no rounds: nothing was sampled before it ended.".to_owned()));
            return Ok(blocks);
        }
        blocks.push(Block::Table(self.app_table()));
        self.goal(plots, &mut blocks)?;
        let mut table = Vec::new();
        hurts(&self.recorded.watch.interference(), &mut table);
        if !table.is_empty() {
            blocks.push(Block::Heading("Interference".to_owned()));
            blocks.push(Block::Part(Part { name: "hurts", still: table }));
        }
        blocks.push(Block::Heading("Where tasks ran".to_owned()));
        blocks.push(Block::Part(Part { name: "places", still: Vec::new() }));
        blocks.extend(self.where_they_ran()?.into_iter().map(Block::Figure));
        let memory = self.still(plots, "memory")?;
        if !memory.is_empty() {
            blocks.push(Block::Heading("Memory".to_owned()));
            blocks.push(Block::Part(Part { name: "memory", still: memory }));
        }
        if !self.recorded.watch.trials().is_empty() {
            blocks.push(Block::Heading("Trials of placements".to_owned()));
            blocks.push(Block::Part(Part { name: "trials", still: vec![self.trials()] }));
        }
        self.rates(&mut blocks)?;
        blocks.push(Block::Heading("Moves, naps and limits".to_owned()));
        self.moves(&mut blocks);
        if self.moved > 0 {
            blocks.push(Block::Heading("Last decisions".to_owned()));
            let without = "Without scripts, cotenant why tells them one by one.".to_owned();
            blocks.push(Block::Part(Part { name: "decisions", still: vec![Block::Text(without)] }));
        }
        if !self.notes.is_empty() {
            let mut table =
                Table::new(format!("Remarks of {}", self.header.policy), &["Remark", "#First at, s", "#Rounds"]);
            let row = |(text, (first, rounds)): (&String, &(f64, u64))| {
                vec![text.clone(), format!("{first:.3}"), rounds.to_string()]
            };
            table.rows = self.notes.iter().map(row).collect();
            blocks.push(Block::Table(table));
        }
        Ok(blocks)
    }

    fn facts(&self) -> Vec<(String, String)> {
        let (header, topology) = (self.header, &self.header.topology);
        let mode = match header.mode {
            Mode::Observe => "observe: sampled only",
            Mode::Advise => "advise: decided, changed nothing",
            Mode::Enforce => "enforce: decided and applied",
        };
        let parts = [
            (topology.packages().len(), "package"),
            (topology.llc_domains().len(), "LLC domain"),
            (topology.cores().len(), "core"),
            (topology.online().len(), "CPU"),
        ];
        let machine = parts.map(|(n, noun)| count(n as u64, noun)).join(", ");
        let machine = topology.name().map(|name| format!("{name}: ")).unwrap_or_default() + &machine;
        let mut facts = vec![
            ("Machine", machine),
            ("Policy", header.policy.clone()),
            ("Mode", mode.to_owned()),
            ("Duration", format!("{:.3} s in {}", self.span.1 - self.span.0, count(self.rounds, "round"))),
            ("Tasks", format!("{} in all, at most {} at a time", self.names.len(), self.most_tasks)),
            ("Orders", self.moved.to_string()),
            ("Kernel", header.host.kernel.clone()),
            ("Counters", header.host.tier.clone()),
        ];
        if self.rounds > 0 {
            let missing = Signal::ALL.iter().filter(|s| self.present >> **s as u32 & 1 == 0).map(|s| s.name());
            facts.push(("Not counted", missing.collect::<Vec<_>>().join(", ")));
        }
        facts.push(("Command", header.command.join(" ")));
        facts.push(("Started", header.started_unix_s.map(cotenant_setup::dates::date).unwrap_or_default()));
        let redacted = if header.redacted { ", names redacted" } else { "" };
        facts.push(("Recorded by", format!("cotenant {}{redacted}", header.cotenant)));
        let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
        known.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn app_table(&self) -> Table {
        let mut head = vec!["Application", "#Tasks"];
        let all = |app: AppId, rate: usize| {
            let of = self.stretches.iter().filter_map(|stretch| self.mean(stretch, app, rate));
            of.reduce(|sum, more| (sum.0 + more.0, sum.1 + more.1))
        };
        let rates: Vec<usize> =
            (0..RATES.len()).filter(|&rate| self.apps.keys().any(|&app| all(app, rate).is_some())).collect();
        if rates.contains(&CPUS) {
            head.push("#CPU time, s");
        }
        head.extend(rates.iter().map(|&rate| RATES[rate].1));
        let mut table = Table::new("Applications: means over the time that they were there; – is not known", &head);
        for (&app, (_, tasks)) in &self.apps {
            let text = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), figure::short);
            let mean = |&rate: &usize| text(all(app, rate).map(|(sum, weight)| sum / weight));
            let mut row = vec![self.app_name(app), tasks.len().to_string()];
            if rates.contains(&CPUS) {
                row.push(text(all(app, CPUS).map(|(seconds, _)| seconds)));
            }
            row.extend(rates.iter().map(mean));
            table.rows.push(row);
        }
        table
    }

    /// A rate of an application in a stretch, if known.
    fn mean(&self, stretch: &Stretch, app: AppId, rate: usize) -> Option<Mean> {
        // Nap times of applications that never napped are irrelevant.
        let told = rate != ASLEEP || self.recorded.naps.apps().any(|other| other == app);
        stretch.apps.get(&app).map(|rates| rates.0[rate]).filter(|mean| told && mean.1 > 0.0)
    }

    /// The plots of the live page at that time.
    fn plots(&self) -> Plots {
        let mut plots = self.history.excerpt(0).plots();
        if let Some(goals) = &self.goals {
            // From pieces of the run, like the verdict: those of a live page cover the last seconds.
            plots.plots.retain(|plot| !plot.id.starts_with("p99-"));
            let place = plots.plots.iter().position(|plot| plot.part == "goals").map_or(0, |first| first + 1);
            let pieces = goals.programs().enumerate().map(|(i, app)| self.pieces(goals, i, app));
            let pieces: Vec<Plot> = pieces.filter(|plot| !plot.lines.is_empty()).collect();
            plots.plots.splice(place..place, pieces);
        }
        plots
    }

    /// All of it as values, which scripts draw.
    fn embedded(&self, history: Plots) -> anyhow::Result<String> {
        let watch = &self.recorded.watch;
        Embedded { history, interference: watch.interference(), trials: watch.trials(), last: watch.last() }.json()
    }

    /// The measured values of a program with a goal, by pieces.
    fn pieces(&self, goals: &Goals, i: usize, app: AppId) -> Plot {
        let (metric, unit, points) = goals.course(i);
        let scale = match unit {
            "µs" => Some(1e-6),
            "ms" => Some(1e-3),
            "s" => Some(1.0),
            _ => None,
        };
        let line = |(k, (name, role)): (usize, (&str, Role))| {
            let value = |values: &[Option<f64>; 3]| values[k].map(|value| value * scale.unwrap_or(1.0));
            plots::Line::new(name.to_owned(), role, points.iter().map(|(_, values)| value(values)).collect())
                .about(&self.app_name(app))
        };
        let lines = [("measured", Role::Plain), ("alone", Role::Alone), ("goal", Role::Goal)];
        let lines = lines.into_iter().enumerate().map(line).filter(|line| line.last().is_some()).collect();
        let unit = if scale.is_some() { "seconds" } else { unit };
        let title = format!("{metric} of {}", self.app_name(app));
        let at_s = points.iter().map(|(at, _)| plots::digits(*at)).collect();
        Plot { at_s: Some(at_s), ..Plot::new(&format!("goal-{i}"), "goals", title, unit, lines) }
    }

    fn trials(&self) -> Block {
        let head = ["Placement", "#At, s", "#Faster by", "Interval", "#Pairs", "Outcome"];
        let mut table = Table::new("What was tried, against what stood then", &head);
        let percent = |gain: f64| format!("{:+.1} %", gain * 100.0);
        table.rows.extend(self.recorded.watch.trials().iter().map(|trial| {
            vec![
                trial.shape.clone(),
                format!("{:.1}", trial.at_s),
                percent(trial.gain),
                trial
                    .interval
                    .map_or_else(|| "–".to_owned(), |[low, high]| format!("{} to {}", percent(low), percent(high))),
                trial.pairs.to_string(),
                if trial.kept { "kept" } else { "not kept" }.to_owned(),
            ]
        }));
        Block::Table(table)
    }

    /// Whether each program kept its goal.
    fn verdicts(&self) -> Vec<Block> {
        let of = |goals: &Goals, i, app| {
            Some(Block::Text(format!("{}: {}", self.app_name(app), goals.standing(i, true).judgement?)))
        };
        let all = self.goals.iter().flat_map(|goals| {
            goals.programs().enumerate().filter_map(|(i, app)| of(goals, i, app)).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// Goals, and the actions for them.
    fn goal(&self, plots: &Plots, blocks: &mut Vec<Block>) -> anyhow::Result<()> {
        let mut told = Vec::new();
        if let Some(goals) = &self.goals {
            let mut table = Table::new("Goals", &["Program", "Kept", "Measured"]);
            for (i, app) in goals.programs().enumerate() {
                let standing = goals.standing(i, true);
                table.rows.push(vec![self.app_name(app), standing.share(), standing.figures()]);
            }
            told.push(Block::Table(table));
        }
        let still = self.still(plots, "goals")?;
        if !still.is_empty() {
            told.push(Block::Part(Part { name: "goals", still }));
        }
        let head = ["Application", "#Naps ordered", "#Naps carried out", "#Throttled, s", "#CPU limits set"];
        let mut table = Table::new("Throttled applications", &head);
        let apps: BTreeSet<AppId> = self.recorded.naps.apps().chain(self.limits.keys().copied()).collect();
        let end = Time::default() + Duration::from_secs_f64(self.span.1);
        table.rows.extend(apps.into_iter().map(|app| {
            let limits = self.limits.get(&app).map_or(0, |limit| limit.1);
            let (ordered, carried_out) = (self.recorded.naps.ordered(app), self.recorded.naps.carried_out(app));
            let asleep = self.slept.get(&app).copied().unwrap_or_else(|| self.recorded.naps.seconds(app, end));
            let asleep = format!("{asleep:.3}");
            vec![self.app_name(app), ordered.to_string(), carried_out.to_string(), asleep, limits.to_string()]
        }));
        if !table.rows.is_empty() {
            told.push(Block::Table(table));
        }
        if !told.is_empty() {
            blocks.push(Block::Heading("Goal and throttling".to_owned()));
            blocks.extend(told);
        }
        Ok(())
    }

    /// A task's bars without its application's naps, and these as bars of no place.
    fn awake(&self, task: TaskId, app: Option<AppId>, none: usize) -> Vec<Stay> {
        let naps = app.and_then(|app| self.asleep.get(&app)).map_or(&[][..], Vec::as_slice);
        let mut bars = Vec::new();
        for &stay in &self.spans[&task] {
            let Stay { mut from, to, .. } = stay;
            let first = naps.partition_point(|nap| nap.1 <= from);
            for nap in naps[first..].iter().take_while(|nap| nap.0 < to) {
                let (begin, end) = (nap.0.max(from), nap.1.min(to));
                bars.extend((begin > from).then_some(Stay { from, to: begin, ..stay }));
                bars.push(Stay { from: begin, to: end, place: none, steps: ALL });
                from = end;
            }
            bars.extend((to > from).then_some(Stay { from, ..stay }));
        }
        bars
    }

    fn where_they_ran(&self) -> anyhow::Result<Option<figure::Figure>> {
        let places: BTreeSet<usize> = self.stretches.iter().flat_map(|s| s.places.keys().copied()).collect();
        let app_of = |task: &TaskId| self.apps.iter().find(|(_, (_, tasks))| tasks.contains(task)).map(|(app, _)| *app);
        let naps = |task| app_of(task).and_then(|app| self.asleep.get(&app)).map_or(0, Vec::len);
        let bars: usize = self.spans.iter().map(|(task, spans)| spans.len() + 2 * naps(task)).sum();
        if self.spans.is_empty() || bars > SPANS {
            let line = |&place: &usize| -> Line {
                let tasks = |s: &Stretch| (s.at, Some(s.places.get(&place).copied().unwrap_or(0.0) / s.seconds));
                (self.places.name(place), self.stretches.iter().map(tasks).collect())
            };
            let lines: Vec<Line> = places.iter().take(64).map(line).collect();
            let title = format!("Tasks that ran, by {}, over time", self.places.kind);
            return figure::lines("places", &title, "tasks", &lines, &[]);
        }
        let shown: BTreeSet<usize> = self.spans.values().flatten().map(|stay| stay.place).collect();
        let order: Vec<usize> = shown.into_iter().collect();
        let nth = |place: usize| order.binary_search(&place).unwrap_or(0);
        let mut tasks: Vec<TaskId> = self.spans.keys().copied().collect();
        tasks.sort_by_key(|task| (app_of(task), *task));
        let mut rows = Vec::new();
        let (mut spans, mut marks): (Vec<Span>, Vec<(usize, f64)>) = (Vec::new(), Vec::new());
        for (row, task) in tasks.iter().enumerate() {
            let comm: String = self.names.get(task).map(|name| name.chars().take(15).collect()).unwrap_or_default();
            rows.push(format!("{comm} ({task})"));
            let bars = self.awake(*task, app_of(task), usize::MAX);
            let nth = |place| if place == usize::MAX { order.len() } else { nth(place) };
            spans.extend(bars.into_iter().filter(|stay| stay.steps > 0).map(|stay| {
                let part = f64::from(stay.steps) / f64::from(ALL);
                (row, stay.from, stay.to, nth(stay.place), part)
            }));
            let applied = self.moves.iter().filter(|(.., outcome)| *outcome == Some(Outcome::Applied));
            marks.extend(applied.filter(|(_, what, _)| what.task == Some(*task)).map(|(at, ..)| (row, *at)));
        }
        let names: Vec<String> = order.iter().map(|&place| self.places.name(place)).collect();
        let title = format!(
            "Tasks by {} over time; the higher, the more of the time they ran; a vertical line is a move that was applied",
            self.places.kind
        );
        figure::timeline("tasks", &title, &rows, &names, &spans, &marks)
    }

    /// The plots of a part as figures, for pages without scripts.
    fn still(&self, plots: &Plots, part: &str) -> anyhow::Result<Vec<Block>> {
        let apps: Vec<String> = self.by_cpu().into_iter().map(|app| self.app_name(app)).collect();
        let mut figures = Vec::new();
        for plot in plots.plots.iter().filter(|plot| plot.part == part) {
            let most = plot.lines.iter().flat_map(|line| &line.values).flatten().copied().fold(0.0, f64::max);
            let (unit, scale) = match plot.unit.as_str() {
                "bytes_per_s" => ("B/s", 1.0),
                "share" => ("%", 1e2),
                "seconds" if most < 1e-3 => ("µs", 1e6),
                "seconds" if most < 1.0 => ("ms", 1e3),
                "seconds" => ("s", 1.0),
                unit => (unit, 1.0),
            };
            let line = |line: &plots::Line| -> Line {
                let at_s = plot.at_s.as_ref().unwrap_or(&plots.at_s);
                let values = line.values.iter().map(|value| value.map(|value| value * scale));
                (line.name.clone(), at_s.iter().copied().zip(values).collect())
            };
            let lines: Vec<Line> = plot.lines.iter().map(line).collect();
            let colour = |line: &plots::Line| match line.role {
                Role::Plain => {
                    apps.iter().position(|app| app == line.of.as_ref().unwrap_or(&line.name)).unwrap_or_default()
                }
                Role::Goal => LINES - 1,
                Role::Alone | Role::Others | Role::Foreign => LINES,
            };
            let colours: Vec<usize> = plot.lines.iter().map(colour).collect();
            figures.extend(figure::lines(&plot.id, &plot.title, unit, &lines, &colours)?.map(Block::Figure));
        }
        Ok(figures)
    }

    /// The applications, the one that used most CPU first. Their colours are in this order in every figure.
    fn by_cpu(&self) -> Vec<AppId> {
        let cpus = |app| self.stretches.iter().filter_map(|s| Some(s.apps.get(&app)?.0[CPUS].0)).sum();
        let mut apps: Vec<(AppId, f64)> = self.apps.keys().map(|&app| (app, cpus(app))).collect();
        apps.sort_by(|a, b| b.1.total_cmp(&a.1));
        apps.into_iter().map(|(app, _)| app).collect()
    }

    fn rates(&self, blocks: &mut Vec<Block>) -> anyhow::Result<()> {
        // Some applications have lines of their own, the others one together would be no rate of anything.
        let mut apps = self.by_cpu();
        let left_out = apps.len().saturating_sub(LINES);
        apps.truncate(LINES);
        let mut heading = Some(Block::Heading("Rates".to_owned()));
        for (rate, (name, _, title, unit)) in RATES.iter().enumerate() {
            let line = |&app: &AppId| -> Line {
                let point = |s: &Stretch| (s.at, self.mean(s, app, rate).map(|(sum, weight)| sum / weight));
                (self.app_name(app), self.stretches.iter().map(point).collect())
            };
            let known = |(_, line): &(usize, Line)| line.1.iter().any(|point| point.1.is_some());
            let (colours, lines): (Vec<usize>, Vec<Line>) = apps.iter().map(line).enumerate().filter(known).unzip();
            // Where nothing happened, the table says enough.
            if lines.iter().flat_map(|line| &line.1).all(|point| point.1.is_none_or(|value| value == 0.0)) {
                continue;
            }
            if let Some(figure) = figure::lines(name, title, unit, &lines, &colours)? {
                blocks.extend(heading.take().into_iter().chain([Block::Figure(figure)]));
            }
        }
        if left_out > 0 {
            let left_out = count(left_out as u64, "application");
            blocks.push(Block::Text(format!("{left_out} with less CPU time are not drawn; the table above has all.")));
        }
        Ok(())
    }

    fn moves(&self, blocks: &mut Vec<Block>) {
        if self.moved == 0 {
            let text = match self.header.mode {
                Mode::Observe => "The run only observed; nothing was decided.",
                _ => "Nothing was moved, paused or limited.",
            };
            blocks.push(Block::Text(text.to_owned()));
            return;
        }
        let mut summary =
            Table::new("Moves, naps and limits by reason and outcome", &["Means", "Stage", "Outcome", "#Orders"]);
        summary.rows.extend(self.by_reason.iter().map(|((means, stage, outcome), n)| {
            vec![means.to_string(), stage.clone(), (*outcome).to_owned(), n.to_string()]
        }));
        blocks.push(Block::Table(summary));
        let all = self.moves.len() as u64 == self.moved;
        let caption = if all {
            format!("All {}", count(self.moved, "order"))
        } else {
            let first = |kind: usize, of: &str| {
                (self.listed[kind] > 0).then(|| format!("the first {} {of}", self.listed[kind]))
            };
            let first = [first(0, "about tasks"), first(1, "about applications")];
            format!("Of {} orders {}", self.moved, first.into_iter().flatten().collect::<Vec<_>>().join(" and "))
        };
        let mut table =
            Table::new(caption, &["Task or application", "#At, s", "#From CPU", "To", "May use", "Why", "Outcome"]);
        table.folded = self.moves.len() > 50;
        for (at, what, outcome) in &self.moves {
            table.rows.push(vec![
                what.task.map_or_else(|| what.comm.clone(), |task| format!("{} ({task})", what.comm)),
                format!("{at:.3}"),
                what.from_cpu.map_or_else(|| "–".to_owned(), |cpu| cpu.to_string()),
                what.to(),
                what.affinity.iter().copied().collect::<CpuSet>().to_string(),
                what.reason.text.clone(),
                outcome_text(*outcome).to_owned(),
            ]);
        }
        blocks.push(Block::Table(table));
    }
}

/// Interference: a row for each victim, a column for each aggressor; a list if these are too many.
pub(super) fn hurts(rows: &[Row], blocks: &mut Vec<Block>) {
    if rows.is_empty() {
        return;
    }
    let victims: BTreeSet<&str> = rows.iter().map(|row| row.victim.as_str()).collect();
    let aggressors: BTreeSet<&str> = rows.iter().map(|row| row.aggressor.as_str()).collect();
    let cell = |row: &Row| {
        let [loss, interval] = hurts::shares(row);
        format!("{loss} ({interval}), {}", count(u64::from(row.events), "event"))
    };
    let caption = "Share of its speed that a program loses while another one runs, with 95 % intervals";
    let mut table = if aggressors.len() <= AGGRESSORS {
        let heads: Vec<String> = aggressors.iter().map(|aggressor| format!("while {aggressor} runs")).collect();
        let heads: Vec<&str> = ["Victim"].into_iter().chain(heads.iter().map(String::as_str)).collect();
        Table::new(caption, &heads)
    } else {
        Table::new(caption, &["Victim", "Aggressor", "Loss"])
    };
    if aggressors.len() <= AGGRESSORS {
        let of = |victim: &str, aggressor: &str| {
            let row = rows.iter().find(|row| (row.victim.as_str(), row.aggressor.as_str()) == (victim, aggressor));
            row.map_or_else(|| "–".to_owned(), cell)
        };
        table.rows.extend(victims.iter().map(|victim| {
            let cells = aggressors.iter().map(|aggressor| of(victim, aggressor));
            [(*victim).to_owned()].into_iter().chain(cells).collect()
        }));
    } else {
        table.rows.extend(rows.iter().map(|row| vec![row.victim.clone(), row.aggressor.clone(), cell(row)]));
    }
    blocks.push(Block::Table(table));
}

fn outcome_text(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Applied) => "applied",
        Some(Outcome::Gone) => "it was gone",
        Some(Outcome::Stale) => "another agent had changed it",
        Some(Outcome::Denied) => "not permitted",
        Some(Outcome::NotThisMachine) => "advice only",
        None => "unknown",
    }
}
