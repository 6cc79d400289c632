//! Why: what was done to a task, an application or at a time, with the evidence, and what came of it. And where nothing was done:
//! how far the signals were from the thresholds.

mod query;
mod text;

pub use query::{Query, QueryError};

use crate::action::{Outcome, Unit};
use crate::cpuset::CpuSet;
use crate::host::Mode;
use crate::ids::{AppId, CpuId, TaskId, Time};
use crate::moves::Move;
use crate::record::{Header, RecordedRound};
use crate::signal::Signal;
use crate::view::{TaskView, View};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Rounds before and after a move whose rates are shown.
pub const AROUND: usize = 3;

/// How many names an answer lists where nothing matched.
const NAMES: usize = 20;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// What was asked.
    pub query: Query,
    /// The recorded policy.
    pub policy: String,
    /// How far the recorded loop went.
    pub mode: Mode,
    /// Rounds in the recording.
    pub rounds: u64,
    /// Time of the last of them, seconds.
    pub last_s: f64,
    /// What was ordered, in order of time.
    pub moves: Vec<Told>,
    /// Tasks asked about for which nothing was ever ordered.
    pub unmoved: Vec<Unmoved>,
    /// For a time without moves: the times of the last move before and of the first one after, seconds.
    pub nearest_s: (Option<f64>, Option<f64>),
    /// The policy's remarks in the rounds asked about (for a task: all), with the time of the first and how often they were made.
    pub notes: Vec<Note>,
    /// Where nothing matched: names that are in the recording, up to 20.
    pub known: Vec<String>,
}

/// A move with what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// When it was decided, seconds.
    pub at_s: f64,
    /// The move.
    #[serde(flatten)]
    pub what: Move,
    /// Name of the task's application.
    pub app_name: Option<String>,
    /// What became of it.
    pub outcome: Option<Outcome>,
    /// Where the task was seen in the round after.
    pub seen_on: Option<CpuId>,
    /// Rates around it.
    pub trends: Vec<Trend>,
}

/// A rate of a task (or its application) around a move.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// What: a signal, `ipc`, `cpu_share`, `progress`, a latency that the program reports, or the name of a metric.
    pub what: Cow<'static, str>,
    /// Its unit.
    pub unit: &'static str,
    /// Up to and including the round of the decision, oldest first; `None` where it was not measured.
    pub before: Vec<Option<f64>>,
    /// In the rounds after.
    pub after: Vec<Option<f64>>,
}

/// A remark of the policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// When it was first made, seconds.
    pub first_s: f64,
    /// In how many rounds.
    pub rounds: u64,
    /// The remark.
    pub text: String,
}

/// A task for which nothing was ordered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmoved {
    /// The task.
    pub task: TaskId,
    /// Its kernel thread id.
    pub tid: u32,
    /// Its command name.
    pub comm: String,
    /// Its application.
    pub app: AppId,
    /// Name of the application.
    pub app_name: Option<String>,
    /// Rounds in which it was there.
    pub rounds: u64,
    /// CPUs on which it was seen.
    pub cpus: CpuSet,
    /// What policies look at, held against the recorded thresholds.
    pub checks: Vec<Check>,
    /// What that means, in one line.
    pub verdict: String,
}

/// A signal of a task against its threshold over the whole recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The signal.
    pub signal: Signal,
    /// Whether it is summed over the task's package.
    pub of_package: bool,
    /// Its unit.
    pub unit: Unit,
    /// The largest value seen, and when, seconds; `None` where it was never measured.
    pub max: Option<(f64, f64)>,
    /// The threshold; `None` where the recorded profile has none.
    pub threshold: Option<f64>,
    /// Rounds in which it was measured.
    pub measured: u64,
    /// Rounds in which it was above the threshold.
    pub above: u64,
}

/// Answers from the rounds of a recording, in one pass.
pub fn why(header: &Header, rounds: impl IntoIterator<Item = RecordedRound>, query: &Query) -> Answer {
    let mut teller = Teller::new(header, query.clone());
    for round in rounds {
        teller.round(&round);
    }
    teller.finish()
}

struct Teller<'a> {
    header: &'a Header,
    answer: Answer,
    apps: BTreeMap<AppId, String>,
    names: BTreeSet<String>,
    /// The last rounds, the current one last.
    recent: VecDeque<Arc<View>>,
    /// Moves whose rates after are still coming.
    open: Vec<(usize, AppId)>,
    /// Tasks asked about; whether each was ever moved is known at the end.
    tasks: BTreeMap<TaskId, Unmoved>,
    notes: BTreeMap<String, (Time, u64)>,
    nearest: (Option<Time>, Option<Time>),
}

impl<'a> Teller<'a> {
    fn new(header: &'a Header, query: Query) -> Self {
        let answer = Answer {
            query,
            policy: header.policy.clone(),
            mode: header.mode,
            rounds: 0,
            last_s: 0.0,
            moves: Vec::new(),
            unmoved: Vec::new(),
            nearest_s: (None, None),
            notes: Vec::new(),
            known: Vec::new(),
        };
        Self {
            header,
            answer,
            apps: BTreeMap::new(),
            names: BTreeSet::new(),
            recent: VecDeque::new(),
            open: Vec::new(),
            tasks: BTreeMap::new(),
            notes: BTreeMap::new(),
            nearest: (None, None),
        }
    }

    fn round(&mut self, round: &RecordedRound) {
        let view = Arc::new(View::new(&round.prev, &round.sample));
        self.answer.rounds += 1;
        self.answer.last_s = view.at.as_secs_f64();
        for app in &round.sample.apps {
            self.apps.entry(app.id).or_insert_with(|| app.name.clone());
        }
        self.follow(&view);
        self.recent.push_back(view.clone());
        if self.recent.len() > AROUND {
            self.recent.pop_front();
        }
        self.look(&view);
        let asked = match self.answer.query {
            Query::Time { from, to } => (from..=to).contains(&view.at),
            _ => true,
        };
        if let Some(decision) = round.decision.as_ref().filter(|_| asked) {
            for note in &decision.notes {
                self.notes.entry(note.clone()).or_insert((view.at, 0)).1 += 1;
            }
        }
        for (i, order) in round.orders.iter().enumerate() {
            let Some(task) = order.action.task() else { continue };
            if let Query::Time { from, to } = self.answer.query {
                if view.at < from {
                    self.nearest.0 = Some(view.at);
                } else if view.at > to {
                    self.nearest.1.get_or_insert(view.at);
                }
                if !asked {
                    continue;
                }
            } else if !self.tasks.contains_key(&task) {
                continue;
            }
            let Some(what) = Move::new(&round.sample, order) else { continue };
            let app = what.app.unwrap_or_default();
            let mut trends = Vec::new();
            if let Some(e) = order.reason.evidence {
                trends.push(trend(e.signal.name(), e.unit.suffix()));
            }
            trends.extend([trend("ipc", "instructions/cycle"), trend("cpu_share", ""), trend("progress", "/s")]);
            let readings = view.apps.iter().find(|a| a.id == app).map(|app| view.readings(app)).unwrap_or_default();
            let others = readings.into_iter().map(|(name, _)| name).filter(|name| name != "progress");
            trends.extend(others.map(|name| trend(name, "")));
            for trend in &mut trends {
                trend.before = self.recent.iter().map(|view| value(&trend.what, trend.unit, view, task, app)).collect();
            }
            self.open.push((self.answer.moves.len(), app));
            self.answer.moves.push(Told {
                at_s: view.at.as_secs_f64(),
                app_name: what.app.and_then(|app| self.apps.get(&app).cloned()),
                what,
                outcome: round.outcomes.get(i).copied(),
                seen_on: None,
                trends,
            });
        }
    }

    /// Adds a round's rates to the moves of the rounds before it.
    fn follow(&mut self, view: &View) {
        let moves = &mut self.answer.moves;
        self.open.retain(|&(i, app)| {
            let told = &mut moves[i];
            let task = told.what.task;
            for trend in &mut told.trends {
                trend.after.push(value(&trend.what, trend.unit, view, task, app));
            }
            let after = told.trends.first().map_or(0, |t| t.after.len());
            if after == 1 {
                told.seen_on = view.task(task).and_then(|t| t.cpu);
            }
            after < AROUND
        });
    }

    /// Looks at the tasks asked about.
    fn look(&mut self, view: &View) {
        let topology = &self.header.topology;
        let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
        for task in &view.tasks {
            if let (Some(misses), Some(package)) =
                (task.per_s(Signal::LlcMisses), task.cpu.and_then(|cpu| topology.package_of(cpu)))
            {
                *sums.entry(package).or_default() += misses;
            }
        }
        for task in &view.tasks {
            let info = &task.info;
            let app_name = self.apps.get(&info.app);
            for name in [Some(&info.comm), app_name].into_iter().flatten() {
                if self.names.len() < NAMES && !self.names.contains(name) {
                    self.names.insert(name.clone());
                }
            }
            if !self.answer.query.matches(info, app_name.map(String::as_str)) {
                continue;
            }
            let told = self.tasks.entry(info.id).or_insert_with(|| Unmoved {
                task: info.id,
                tid: info.tid,
                comm: info.comm.clone(),
                app: info.app,
                app_name: app_name.cloned(),
                rounds: 0,
                cpus: CpuSet::new(),
                checks: checks(self.header),
                verdict: String::new(),
            });
            told.rounds += 1;
            task.cpu.map(|cpu| told.cpus.insert(cpu));
            for check in &mut told.checks {
                let package = task.cpu.and_then(|cpu| topology.package_of(cpu));
                let value = if check.of_package {
                    package.and_then(|package| sums.get(&package).copied())
                } else {
                    rate(task, check.signal, check.unit)
                };
                let Some(value) = value else { continue };
                check.measured += 1;
                check.above += u64::from(check.threshold.is_some_and(|threshold| value > threshold));
                if check.max.is_none_or(|(max, _)| value > max) {
                    check.max = Some((value, view.at.as_secs_f64()));
                }
            }
        }
    }

    fn finish(mut self) -> Answer {
        let mut answer = self.answer;
        // A number means a thread id wherever there is such a thread.
        let query = answer.query.clone();
        if self.tasks.values().any(|t| query.sure(Some(t.tid))) {
            self.tasks.retain(|_, t| query.sure(Some(t.tid)));
            answer.moves.retain(|told| query.sure(told.what.tid));
        }
        let timed = matches!(query, Query::Time { .. });
        if self.tasks.is_empty() && !timed {
            answer.known = self.names.into_iter().collect();
        } else {
            let note =
                |(text, (first, rounds)): (String, (Time, u64))| Note { first_s: first.as_secs_f64(), rounds, text };
            answer.notes = self.notes.into_iter().map(note).collect();
            answer.notes.sort_by(|a, b| a.first_s.total_cmp(&b.first_s));
        }
        let moved: BTreeSet<TaskId> = answer.moves.iter().map(|told| told.what.task).collect();
        answer.unmoved = self.tasks.into_values().filter(|t| !moved.contains(&t.task)).collect();
        for task in &mut answer.unmoved {
            task.verdict = text::verdict(self.header, task);
        }
        if answer.moves.is_empty() {
            answer.nearest_s = (self.nearest.0.map(Time::as_secs_f64), self.nearest.1.map(Time::as_secs_f64));
        }
        for told in &mut answer.moves {
            told.trends.retain(|t| t.before.iter().chain(&t.after).any(Option::is_some));
        }
        answer
    }
}

fn trend(what: impl Into<Cow<'static, str>>, unit: &'static str) -> Trend {
    Trend { what: what.into(), unit, before: Vec::new(), after: Vec::new() }
}

/// A task's signal in a unit.
fn rate(task: &TaskView, signal: Signal, unit: Unit) -> Option<f64> {
    match unit {
        Unit::PerCycle => task.per_cycle(signal),
        Unit::PerSecond => task.per_s(signal),
        Unit::PerInstruction => {
            let instructions = task.per_s(Signal::Instructions).filter(|rate| *rate > 0.0)?;
            Some(task.per_s(signal)? / instructions)
        }
        Unit::Fraction => task.per_s(signal).map(|ns_per_s| ns_per_s / 1e9),
    }
}

/// The value of a trend in a round.
fn value(what: &str, unit: &str, view: &View, task: TaskId, app: AppId) -> Option<f64> {
    if what == "progress" {
        return view.apps.iter().find(|a| a.id == app)?.progress_per_s;
    }
    let task = view.task(task)?;
    match what {
        "ipc" => task.per_cycle(Signal::Instructions),
        "cpu_share" => task.cpu_share(),
        _ if Signal::from_name(what).is_none() => {
            let app = view.apps.iter().find(|a| a.id == app)?;
            view.readings(app).into_iter().find(|(name, _)| name == what).map(|(_, reading)| reading.value)
        }
        _ => {
            let units = [Unit::PerCycle, Unit::PerSecond, Unit::PerInstruction, Unit::Fraction];
            let unit = units.into_iter().find(|u| u.suffix() == unit)?;
            rate(task, Signal::from_name(what)?, unit)
        }
    }
}

/// What policies hold against thresholds (SAM §2.1–2.2), with those of the recorded profile; `dino` has its own.
fn checks(header: &Header) -> Vec<Check> {
    let thresholds = header.machine.thresholds.as_ref();
    let cores_per_package = header.topology.cores().len() as f64 / header.topology.packages().len() as f64;
    let coherence = thresholds.map(|t| t.coherence_per_cycle);
    let socket = thresholds.map(|t| t.socket_bandwidth_per_s);
    let task = thresholds.map(|t| t.task_bandwidth_per_s.unwrap_or(t.socket_bandwidth_per_s / cores_per_package));
    let remote = thresholds.and_then(|t| t.remote_per_cycle);
    let check = |signal, of_package, unit, threshold| Check {
        signal,
        of_package,
        unit,
        max: None,
        threshold,
        measured: 0,
        above: 0,
    };
    if header.policy == "dino" {
        return vec![check(Signal::LlcMisses, false, Unit::PerInstruction, Some(crate::policy::DEVIL))];
    }
    vec![
        check(Signal::Inter, false, Unit::PerCycle, coherence),
        check(Signal::Near, false, Unit::PerCycle, coherence),
        check(Signal::Intra, false, Unit::PerCycle, coherence),
        check(Signal::LlcMisses, false, Unit::PerSecond, task),
        check(Signal::LlcMisses, true, Unit::PerSecond, socket),
        check(Signal::Remote, false, Unit::PerCycle, remote),
    ]
}
