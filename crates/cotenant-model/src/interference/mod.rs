//! Interference: how much speed each application loses beside each other one.
//!
//! Whenever one application starts, ends, stops or resumes while all others continue, their speeds just before and just
//! after are a free experiment. [`Interference`] finds such moments in live or recorded rounds, and accumulates the
//! results for each pair. Its size is bounded, and it can be stored.

mod noise;
mod pair;
mod speeds;
#[cfg(test)]
mod tests;

use crate::{Action, AppId, AppView, Effect, Order, Outcome, Round, Signal, Time, Topology, View};
use noise::Noise;
use pair::Pair;
use serde::{Deserialize, Serialize};
use speeds::{Speeds, Window, log_ratio};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// An application below this many CPUs starts to run when it reaches this many.
const RUNS_FROM: f64 = 0.2;
/// A running one stops at or below this many.
const RESTS_FROM: f64 = 0.05;
/// Unmeasured time after a change: caches fill, queues empty.
const SETTLE: Duration = Duration::from_millis(200);
/// An application whose speed changes by more standard deviations than this within a window was not steady.
const STEADY: f64 = 6.0;
/// Tolerated change from half to half of a window, as a logarithm.
const DRIFT: f64 = 0.05;
/// Limit of remembered pairs; beyond it, the eighth with the oldest experiments is dropped.
const PAIRS: usize = 4_096;
/// Limit of observed applications, the first ones.
const APPS: usize = 1_024;
/// Limit of remembered changes: with more, nothing is measured.
const CHANGES: usize = 64;

/// A pair with a certain loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the victim.
    pub victim: String,
    /// Name of the aggressor.
    pub aggressor: String,
    /// Fraction (0–1) of its speed that the victim loses while the aggressor runs.
    pub loss: f64,
    /// Lower end of the interval: all intervals of a table hold simultaneously, at every look, with 95 %.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Number of experiments.
    pub events: u32,
}

/// The table and its working state. Only results are stored, by the applications' names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interference {
    /// By victim, then by aggressor.
    pairs: BTreeMap<String, BTreeMap<String, Pair>>,
    noise: BTreeMap<String, Noise>,
    /// Tests begun, and experiments made.
    tests: u64,
    events: u64,
    /// Instances of workloads, and their names here.
    #[serde(skip)]
    instances: BTreeMap<AppId, String>,
    #[serde(skip)]
    now: Now,
}

/// Current state.
#[derive(Clone, Debug, Default)]
struct Now {
    /// The end of the last round.
    at: Time,
    /// Times of the last two full samples of tasks.
    looks: Option<[Time; 2]>,
    apps: BTreeMap<AppId, App>,
    changes: VecDeque<Change>,
    /// Changes before this are dropped.
    forgotten: Time,
    experiment: Option<Experiment>,
}

/// An observed application.
#[derive(Clone, Debug, Default)]
struct App {
    name: String,
    runs: bool,
    /// Indexes of its tasks' last-level-cache domains.
    domains: BTreeSet<usize>,
    speeds: Speeds,
    /// Time up to which its speeds have been used, by experiments and for its noise.
    used: Time,
    quiet: Time,
    /// Last times at which a speed-based policy ordered it to run less, and to run more.
    held: Time,
    freed: Time,
}

/// An application changed in some way between two times.
#[derive(Clone, Copy, Debug)]
struct Change {
    app: AppId,
    from: Time,
    to: Time,
}

/// A change under observation.
#[derive(Clone, Debug)]
struct Experiment {
    aggressor: String,
    app: AppId,
    change: What,
    to: Time,
    /// Victims with their windows before, and whether they shared a cache with the aggressor then.
    victims: Vec<(AppId, Window, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// It starts to run.
    Runs,
    /// It stops running.
    Rests,
    /// It moves.
    Moved,
}

impl Interference {
    /// Declares an application an instance of a workload: results of one instance count for all, under the workload's
    /// name. Instances share work, so one's loss when another one arrives is not measured.
    pub fn call(&mut self, app: AppId, workload: String) {
        self.instances.insert(app, workload);
    }

    /// An application has ended for good.
    pub fn forget(&mut self, app: AppId) {
        self.instances.remove(&app);
    }

    /// Takes a round of the loop, of any rule.
    pub fn watch(&mut self, topology: &Topology, round: &Round<'_>) {
        let (orders, outcomes) = (round.orders, round.outcomes);
        // A rule sees its own applications, since its own last decision.
        if round.prev.at == round.last.at && round.view.apps.len() == round.sample.apps.len() {
            self.round(topology, round.view, orders, outcomes);
        } else {
            self.round(topology, &View::new(round.last, round.sample), orders, outcomes);
        }
    }

    /// Takes a round: the rates of all applications since the previous one, and the orders at its end. Overlapping
    /// views are skipped.
    pub fn round(&mut self, topology: &Topology, view: &View, orders: &[Order], outcomes: &[Outcome]) {
        let begin = Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64));
        if view.at < self.now.at {
            self.now = Now::default(); // another clock
        }
        if view.at > begin && begin >= self.now.at {
            self.now.at = view.at;
            view.apps.iter().for_each(|app| self.hear(view, app));
            // With rare full samples, nothing has changed since the last one.
            if view.tasks.iter().any(|task| task.ran() == Some(true)) {
                self.follow(topology, view, begin);
            }
            self.look();
            self.measure_noise();
        }
        self.orders(topology, view, orders, outcomes);
    }

    /// The pairs with a certain loss, the greatest first.
    pub fn rows(&self) -> Vec<Row> {
        let row = |(victim, aggressor, pair): (&String, &String, &Pair)| {
            let loss = pair.loss(self.noise.get(victim)?).filter(pair::Loss::is_significant)?;
            let pair::Loss { share, low, high, events } = loss;
            let (victim, aggressor) = (victim.clone(), aggressor.clone());
            Some(Row { victim, aggressor, loss: share, low, high, events })
        };
        let pairs = self.pairs.iter().flat_map(|(victim, of)| of.iter().map(move |(by, pair)| (victim, by, pair)));
        let mut rows: Vec<Row> = pairs.filter_map(row).collect();
        rows.sort_by(|a, b| b.loss.total_cmp(&a.loss));
        rows
    }

    /// Number of experiments.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Finds the running applications from a full sample of tasks, in a round that began then.
    fn follow(&mut self, topology: &Topology, view: &View, begin: Time) {
        let domains = topology.llc_domains().len() > 1;
        let first = self.now.looks.is_none();
        let [before, last] = self.now.looks.unwrap_or([begin; 2]);
        self.now.looks = Some([last, view.at]);
        // Counts since the last full sample, per second.
        let share = view.interval.as_secs_f64() / (view.at - last.min(begin)).as_secs_f64();
        let mut use_of = vec![(0.0, BTreeSet::new()); view.apps.len()];
        for task in &view.tasks {
            let Ok(of) = view.apps.binary_search_by_key(&task.info.app, |app| app.id) else { continue };
            let (cpus, places) = &mut use_of[of];
            *cpus += match task.per_s(Signal::CpuTime) {
                Some(ns_per_s) => ns_per_s / 1e9 * share,
                None => f64::from(u8::from(task.ran() == Some(true))),
            };
            places.extend(task.cpu.filter(|_| domains).and_then(|cpu| topology.llc_of(cpu)));
        }
        let mut flips = Vec::new();
        for (seen, (cpus, places)) in view.apps.iter().zip(use_of) {
            let Some(app) = self.now.apps.get_mut(&seen.id) else { continue };
            app.domains = places;
            let runs = if app.runs { cpus > RESTS_FROM } else { cpus >= RUNS_FROM };
            if std::mem::replace(&mut app.runs, runs) != runs && !first {
                flips.push((seen.id, if runs { What::Runs } else { What::Rests }));
            }
        }
        let there: BTreeSet<AppId> = view.apps.iter().map(|app| app.id).collect();
        let gone = self.now.apps.iter_mut().filter(|(id, app)| app.runs && !there.contains(id));
        flips.extend(gone.map(|(id, app)| {
            app.runs = false;
            (*id, What::Rests)
        }));
        for (app, _) in &flips {
            self.change(Change { app: *app, from: before, to: view.at });
        }
        if let [(app, what)] = flips[..] {
            self.begin(app, what, before, view.at);
        }
        self.now.apps.retain(|id, _| there.contains(id));
    }

    /// Adds an application's speed in a round.
    fn hear(&mut self, view: &View, seen: &AppView) {
        if self.now.apps.len() >= APPS && !self.now.apps.contains_key(&seen.id) {
            return;
        }
        let app = self.now.apps.entry(seen.id).or_default();
        let name = self.instances.get(&seen.id).unwrap_or(&seen.name);
        if app.name != *name {
            app.name.clone_from(name);
        }
        if app.speeds.add(view, seen) {
            app.used = app.used.max(view.at);
            if let Some(source) = app.speeds.source.clone() {
                self.noise.entry(name.clone()).or_insert_with(|| Noise::new(source));
            }
            if self.noise.len() > APPS {
                let followed: BTreeSet<&String> = self.now.apps.values().map(|app| &app.name).collect();
                self.noise.retain(|name, _| followed.contains(name) || self.pairs.contains_key(name));
            }
        }
    }

    /// Records a change, which invalidates the current experiment.
    fn change(&mut self, change: Change) {
        self.now.experiment = None;
        self.now.changes.push_back(change);
        if self.now.changes.len() > CHANGES {
            let oldest = self.now.changes.pop_front();
            self.now.forgotten = oldest.map_or(Time::default(), |change| change.to).max(self.now.forgotten);
        }
    }

    /// Begins an experiment: one application has changed between two times.
    fn begin(&mut self, id: AppId, change: What, from: Time, to: Time) {
        let Some(app) = self.now.apps.get(&id) else { return };
        // A policy that throttles because of a speed chooses its moment: that speed would have risen by itself. The end
        // of a nap, however, was fixed in advance.
        let chosen = match change {
            What::Rests => app.held >= from && app.held > Time::default(),
            What::Runs => app.freed >= from && app.freed > Time::default(),
            What::Moved => false,
        };
        let others = self.now.changes.iter().filter(|c| c.app != id || c.from < from);
        let others = others.map(|change| change.to).max().unwrap_or(self.now.forgotten);
        if chosen || others > from {
            return;
        }
        let quiet = others + SETTLE;
        let mut names = BTreeSet::new();
        let mut victims = Vec::new();
        let of_one = |victim: &AppId, name: &str| self.instances.contains_key(victim) && name == app.name;
        for (victim, of) in self.now.apps.iter().filter(|(victim, of)| **victim != id && !of_one(victim, &of.name)) {
            // One instance represents all of the same name, because a common change is one experiment.
            let Some(window) = of.speeds.before(quiet.max(of.used), from) else { continue };
            if self.steady(&of.name, &window) && names.insert(&of.name) {
                victims.push((*victim, window, !of.domains.is_disjoint(&app.domains)));
            }
        }
        let aggressor = app.name.clone();
        self.now.experiment = (!victims.is_empty()).then_some(Experiment { aggressor, app: id, change, to, victims });
    }

    /// Whether a victim's speed was steady within a window.
    fn steady(&self, name: &str, window: &Window) -> bool {
        let known = self.noise.get(name).and_then(Noise::variance);
        known.is_none_or(|(variance, _)| window.drift.abs() <= (STEADY * variance.sqrt()).max(DRIFT))
    }

    /// Checks whether the windows after a change are complete.
    fn look(&mut self) {
        let Some(Experiment { aggressor, app, change, to, victims }) = self.now.experiment.take() else { return };
        let mut waiting = Vec::new();
        for (victim, before, near) in victims {
            let Some(of) = self.now.apps.get(&victim) else { continue };
            let Some(after) = of.speeds.after(to + SETTLE) else {
                waiting.push((victim, before, near));
                continue;
            };
            let is_near = self.now.apps.get(&app).is_some_and(|app| !of.domains.is_disjoint(&app.domains));
            let sign = match change {
                What::Runs => 1.0,
                What::Rests => -1.0,
                What::Moved => f64::from(i8::from(is_near) - i8::from(near)),
            };
            let name = of.name.clone();
            if let Some(of) = self.now.apps.get_mut(&victim) {
                of.used = after.to + (after.to - after.from);
            }
            let effect = log_ratio(after.mean, before.mean).map(|ratio| sign * ratio);
            if let Some(effect) = effect.filter(|_| sign != 0.0 && self.steady(&name, &after)) {
                self.add(name, aggressor.clone(), effect);
            }
        }
        if !waiting.is_empty() {
            self.now.experiment = Some(Experiment { aggressor, app, change, to, victims: waiting });
        }
    }

    fn add(&mut self, victim: String, aggressor: String, effect: f64) {
        self.events += 1;
        let pair = self.pairs.entry(victim).or_default().entry(aggressor).or_default();
        pair.add(effect, &mut self.tests);
        pair.last = self.events;
        if self.pairs.values().map(BTreeMap::len).sum::<usize>() > PAIRS {
            let mut last: Vec<u64> = self.pairs.values().flat_map(BTreeMap::values).map(|pair| pair.last).collect();
            last.sort_unstable();
            let (oldest, pairs) = (last[PAIRS / 8], &mut self.pairs);
            for of in pairs.values_mut() {
                of.retain(|_, pair| pair.last > oldest);
            }
            pairs.retain(|_, of| !of.is_empty());
        }
    }

    /// Without changes over two windows, their difference is noise.
    fn measure_noise(&mut self) {
        let last = self.now.changes.iter().map(|change| change.to).max().unwrap_or(self.now.forgotten);
        let mut found = Vec::new();
        for app in self.now.apps.values_mut() {
            let Some(one) = app.speeds.after(app.quiet.max(last + SETTLE)) else { continue };
            // With the distance of an experiment's windows.
            let Some(other) = app.speeds.after(one.to + SETTLE + 2 * app.speeds.grain()) else { continue };
            app.quiet = other.to;
            let effect = log_ratio(other.mean, one.mean).zip(app.speeds.source.clone());
            found.extend(effect.map(|(effect, source)| (app.name.clone(), source, effect, one, other)));
        }
        for (name, source, effect, one, other) in found {
            // A new instance may briefly have another source: until that gives a result, the old source's noise counts.
            if self.noise.get(&name).is_some_and(|noise| noise.source != source) {
                self.noise.insert(name.clone(), Noise::new(source));
            }
            if self.steady(&name, &one)
                && self.steady(&name, &other)
                && let Some(noise) = self.noise.get_mut(&name)
            {
                noise.add(effect);
            }
        }
    }

    /// Takes the orders at the end of a round.
    fn orders(&mut self, topology: &Topology, view: &View, orders: &[Order], outcomes: &[Outcome]) {
        let at = view.at;
        let mut touched: BTreeMap<AppId, bool> = BTreeMap::new();
        let applied = orders.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Applied);
        for (action, effect) in applied.map(|(order, _)| (&order.action, order.action.effect())) {
            let app = action.app().or_else(|| Some(view.task(action.task()?)?.info.app));
            let Some((id, app)) = app.and_then(|id| Some((id, self.now.apps.get_mut(&id)?))) else { continue };
            match action {
                Action::Nap { until, .. } if *until > at => app.held = at,
                Action::Nap { .. } => app.freed = at,
                _ if effect != Effect::Placement => (app.held, app.freed) = (at, at),
                _ => {}
            }
            if effect != Effect::Nap {
                *touched.entry(id).or_insert(true) &= effect == Effect::Placement;
            }
        }
        for id in touched.keys() {
            self.change(Change { app: *id, from: at, to: at });
        }
        let only = touched.first_key_value().filter(|_| touched.len() == 1 && topology.llc_domains().len() > 1);
        if let Some((id, true)) = only.map(|(id, placed)| (*id, *placed)) {
            self.begin(id, What::Moved, at, at);
        }
    }
}
