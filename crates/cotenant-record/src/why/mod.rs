//! Why: the orders about a task, an application or a time, with evidence, effect, and what remains in force. Without
//! orders: the distance of the signals from the thresholds.

mod answer;
mod query;
mod standing;
mod text;
mod told;
mod trend;

pub use answer::{Answer, Check, Note, Unmoved};
pub use query::{Query, QueryError};
pub use standing::{Force, Standing};
pub use told::Told;
pub use trend::{AROUND, Trend};

use crate::moves::Move;
use crate::naps::Naps;
use crate::{Header, RecordedRound};
use cotenant_model::text::name;
use cotenant_model::{AppId, CpuSet, Looks, Order, Outcome, Signal, TaskId, Time, Unit, View};
use standing::{Slots, Subject};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trend::{Recent, rate};

/// Number of names in an answer without matches.
const NAMES: usize = 20;

/// Answers from the rounds of a recording in one pass: the state `at` a moment (for tasks and applications), or all
/// orders.
pub fn why(
    header: &Header,
    rounds: impl IntoIterator<Item = RecordedRound>,
    query: &Query,
    at: Option<Time>,
) -> Answer {
    let mut teller = Teller::new(header, query.clone(), at);
    for round in rounds {
        teller.round(&round);
    }
    teller.finish()
}

struct Teller<'a> {
    header: &'a Header,
    answer: Answer,
    /// The requested moment.
    at: Option<Time>,
    apps: BTreeMap<AppId, String>,
    names: BTreeSet<String>,
    /// The last rounds, the current one last.
    recent: Recent,
    looks: Looks,
    /// Moves whose later rates are incomplete.
    open: Vec<usize>,
    /// The last orders of each effect: about all applications, and for a moment about the matching tasks.
    standing: BTreeMap<Subject, Slots>,
    naps: Naps,
    /// Applications matched by their own name or number.
    named: BTreeSet<AppId>,
    /// Matching tasks; whether each was ever moved is known at the end.
    tasks: BTreeMap<TaskId, Unmoved>,
    notes: BTreeMap<String, (Time, u64)>,
    nearest: (Option<Time>, Option<Time>),
}

impl<'a> Teller<'a> {
    fn new(header: &'a Header, query: Query, at: Option<Time>) -> Self {
        let answer = Answer {
            query,
            policy: name(header.policy.as_bytes()),
            mode: header.mode,
            rounds: 0,
            last_s: 0.0,
            moment_s: 0.0,
            moves: Vec::new(),
            standing: Vec::new(),
            unmoved: Vec::new(),
            nearest_s: (None, None),
            notes: Vec::new(),
            known: Vec::new(),
        };
        Self {
            header,
            answer,
            at,
            apps: BTreeMap::new(),
            names: BTreeSet::new(),
            recent: Recent::default(),
            looks: Looks::default(),
            open: Vec::new(),
            standing: BTreeMap::new(),
            naps: Naps::default(),
            named: BTreeSet::new(),
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
        let look = self.looks.look(&round.prev, &round.sample).map(|look| Arc::new(look.view));
        self.follow(&view, look.as_deref());
        if self.at.is_some_and(|at| view.at > at) {
            return;
        }
        self.look(&view);
        if let Some(look) = &look {
            self.hold(look);
        }
        self.recent.add(view.clone(), look);
        let asked = match self.answer.query {
            Query::Time { from, to } => (from..=to).contains(&view.at),
            _ => true,
        };
        if let Some(decision) = round.decision.as_ref().filter(|_| asked) {
            for note in &decision.notes {
                self.notes.entry(note.clone()).or_insert((view.at, 0)).1 += 1;
            }
        }
        self.naps.round(round.sample.at, &round.orders, &round.outcomes);
        for (order, outcome) in round.orders.iter().zip(round.outcomes.iter().map(Some).chain(std::iter::repeat(None)))
        {
            self.order(round, &view, order, outcome.copied());
        }
    }

    fn order(&mut self, round: &RecordedRound, view: &View, order: &Order, outcome: Option<Outcome>) {
        let task = order.action.task();
        let timed = if let Query::Time { from, to } = self.answer.query {
            if view.at < from {
                self.nearest.0 = Some(view.at);
                return;
            }
            if view.at > to {
                self.nearest.1.get_or_insert(view.at);
                return;
            }
            true
        } else {
            false
        };
        if !timed && task.is_some_and(|task| !self.tasks.contains_key(&task)) {
            return;
        }
        let what = Move::new(&round.sample, order);
        // The application of an ended task is still known.
        let known = task.and_then(|task| self.tasks.get(&task)).map(|task| task.app);
        let app = what.app.or(known).unwrap_or_default();
        let other = order.reason.app.filter(|other| task.is_none() && *other != app);
        let names = |app: AppId| self.apps.get(&app).cloned();
        let told = Told {
            at_s: view.at.as_secs_f64(),
            app_name: what.app.and_then(names),
            outcome,
            seen_on: None,
            trends: trend::around(&self.recent, (task, app), order.reason.evidence, other.map(|o| (o, names(o)))),
            what,
        };
        if timed || task.is_some() && self.at.is_none() {
            self.open.push(self.answer.moves.len());
            self.answer.moves.push(told);
        } else {
            let subject = Subject { task, app, effect: told.what.effect };
            self.standing.entry(subject).or_default().add(told, order.reason.app);
        }
    }

    /// Adds a round's rates to the orders of earlier rounds.
    fn follow(&mut self, view: &View, look: Option<&View>) {
        let moves = &mut self.answer.moves;
        self.open.retain(|&i| moves[i].follow(view, look));
        for told in self.standing.values_mut().flat_map(Slots::each) {
            told.follow(view, look);
        }
    }

    /// Finds matching tasks.
    fn look(&mut self, view: &View) {
        for app in &view.apps {
            if self.answer.query.names(app.id, &app.name) {
                self.named.insert(app.id);
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
        }
    }

    /// Compares the rates of matching tasks between full samples with the thresholds.
    fn hold(&mut self, view: &View) {
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
            let Some(told) = self.tasks.get_mut(&task.info.id) else { continue };
            for check in &mut told.checks {
                let package = task.cpu.and_then(|cpu| topology.package_of(cpu));
                let value = if check.of_package {
                    package.and_then(|package| sums.get(&package).copied())
                } else {
                    rate(&[task], check.signal, check.unit)
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
        // A number means a thread id if such a thread exists.
        let query = answer.query.clone();
        if self.tasks.values().any(|t| query.sure(Some(t.tid))) {
            self.tasks.retain(|_, t| query.sure(Some(t.tid)));
            answer.moves.retain(|told| query.sure(told.what.tid));
        }
        let timed = matches!(query, Query::Time { .. });
        if self.tasks.is_empty() && self.named.is_empty() && !timed {
            answer.known = self.names.into_iter().collect();
        } else {
            let note =
                |(text, (first, rounds)): (String, (Time, u64))| Note { first_s: first.as_secs_f64(), rounds, text };
            answer.notes = self.notes.into_iter().map(note).collect();
            answer.notes.sort_by(|a, b| a.first_s.total_cmp(&b.first_s));
        }
        answer.moment_s = self.at.map_or(answer.last_s, |at| at.as_secs_f64().min(answer.last_s));
        let apps: BTreeSet<AppId> = self.tasks.values().map(|t| t.app).chain(self.named).collect();
        let last = self.recent.rounds.pop_back().unwrap_or_default();
        for (subject, slots) in self.standing {
            let asked = match subject.task {
                Some(task) => self.tasks.contains_key(&task),
                None => apps.contains(&subject.app) || slots.sake.is_some_and(|app| apps.contains(&app)),
            };
            if asked {
                answer.standing.extend(slots.told(subject, answer.moment_s, &last, &self.naps));
            }
        }
        let moved = answer.moves.iter().chain(answer.standing.iter().map(|s| &s.told));
        let moved: BTreeSet<TaskId> = moved.filter_map(|told| told.what.task).collect();
        answer.unmoved = self.tasks.into_values().filter(|t| !moved.contains(&t.task)).collect();
        for task in &mut answer.unmoved {
            task.verdict = text::verdict(self.header, task);
        }
        if answer.moves.is_empty() {
            answer.nearest_s = (self.nearest.0.map(Time::as_secs_f64), self.nearest.1.map(Time::as_secs_f64));
        }
        for told in answer.moves.iter_mut().chain(answer.standing.iter_mut().map(|s| &mut s.told)) {
            told.trends.retain(|t| t.before.iter().chain(&t.after).any(Option::is_some));
        }
        answer
    }
}

impl Told {
    /// Adds the rates of a later round or sample; returns whether more are needed.
    fn follow(&mut self, view: &View, look: Option<&View>) -> bool {
        if let Some(look) = look.filter(|_| self.trends.iter().any(|trend| trend.by_look() && trend.after.is_empty())) {
            self.seen_on = self.what.task.and_then(|task| look.task(task)?.cpu);
        }
        for trend in self.trends.iter_mut().filter(|trend| trend.after.len() < AROUND) {
            let view = if trend.by_look() { look } else { Some(view) };
            trend.after.extend(view.map(|view| trend.value(view)));
        }
        self.trends.iter().any(|trend| trend.after.len() < AROUND)
    }
}

/// Comparisons of policies with thresholds (SAM §2.1–2.2), with those of the recorded profile; `dino` has its own.
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
    match header.policy.as_str() {
        "dino" => return vec![check(Signal::LlcMisses, false, Unit::PerInstruction, Some(cotenant_policies::DEVIL))],
        "qos" => return Vec::new(), // it uses speeds, which its reasons contain
        _ => {}
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
