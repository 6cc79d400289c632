//! Rates around an order.

use cotenant_model::speed::Source;
use cotenant_model::{AppId, Evidence, Signal, TaskId, TaskView, Unit, View};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// Rounds before and after a move whose rates are shown; for tasks, full samples.
pub const AROUND: usize = 3;

/// Average number of ready threads without a CPU.
const WAITING: &str = "waiting";

/// A rate of a task, or of an application, around an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// Its name: a signal, `ipc`, `cpu_share`, `waiting`, `progress`, a latency reported by the program, or a metric.
    pub what: Cow<'static, str>,
    /// Its unit.
    pub unit: &'static str,
    /// Name of its application, if the order is about another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Up to and including the round of the decision, oldest first; for tasks, between full samples. `None` if not
    /// measured.
    pub before: Vec<Option<f64>>,
    /// The following rounds.
    pub after: Vec<Option<f64>>,
    /// Of one task, or of a whole application.
    #[serde(skip)]
    task: Option<TaskId>,
    #[serde(skip)]
    app: AppId,
}

/// The last rounds, and the last full samples of tasks: other rounds repeat the tasks' values.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The current one is last.
    pub rounds: VecDeque<Arc<View>>,
    looks: VecDeque<Arc<View>>,
}

impl Recent {
    pub fn add(&mut self, round: Arc<View>, look: Option<Arc<View>>) {
        self.rounds.push_back(round);
        self.looks.extend(look);
        for views in [&mut self.rounds, &mut self.looks] {
            views.drain(..views.len().saturating_sub(AROUND));
        }
    }
}

/// Rates of a task or of a whole application up to an order about it, including the order's evidence; for an order that
/// benefits another application, also that application's speed.
pub(super) fn around(
    recent: &Recent,
    (task, app): (Option<TaskId>, AppId),
    evidence: Option<Evidence>,
    other: Option<(AppId, Option<String>)>,
) -> Vec<Trend> {
    let of = |task, app, of: Option<&String>, what: Cow<'static, str>, unit| Trend {
        what,
        unit,
        of: of.cloned(),
        before: Vec::new(),
        after: Vec::new(),
        task,
        app,
    };
    let readings = |app: AppId| {
        let view = recent.rounds.back();
        let readings = view.and_then(|view| Some(view.readings(view.app(app)?)));
        readings.into_iter().flatten().map(|(source, _)| source).filter(|source| *source != Source::Progress)
    };
    let mut trends = Vec::new();
    let own = |what, unit| of(task, app, None, what, unit);
    if let Some(e) = evidence {
        trends.push(own(e.signal.name().into(), e.unit.suffix()));
    }
    trends.push(own("ipc".into(), "instructions/cycle"));
    // In a round without a full sample, an application's sum would miss some threads.
    trends.extend(task.map(|_| own("cpu_share".into(), "")));
    trends.push(own(WAITING.into(), " threads"));
    trends.push(own("progress".into(), "/s"));
    trends.extend(readings(app).map(|source| own(source.to_string().into(), "")));
    if let Some((app, name)) = other {
        let name = name.unwrap_or_else(|| format!("app {app}"));
        let its = |what, unit| of(None, app, Some(&name), what, unit);
        trends.extend([its("ipc".into(), "instructions/cycle"), its(WAITING.into(), " threads")]);
        trends.push(its("progress".into(), "/s"));
        trends.extend(readings(app).map(|source| its(source.to_string().into(), "")));
    }
    for trend in &mut trends {
        let views = if trend.by_look() { &recent.looks } else { &recent.rounds };
        trend.before = views.iter().map(|view| trend.value(view)).collect();
    }
    trends
}

impl Trend {
    /// Whether it is a rate of tasks, known from full samples only.
    pub(super) fn by_look(&self) -> bool {
        matches!(&*self.what, "ipc" | "cpu_share" | WAITING) || Signal::from_name(&self.what).is_some()
    }

    /// Its value in a round or a full sample.
    pub(super) fn value(&self, view: &View) -> Option<f64> {
        let app = || view.app(self.app);
        let signal = Signal::from_name(&self.what);
        match (&*self.what, signal) {
            ("ipc", _) => rate(&self.tasks(view), Signal::Instructions, Unit::PerCycle),
            (WAITING, _) => rate(&self.tasks(view), Signal::RunQueueWait, Unit::Fraction),
            ("cpu_share", _) => view.task(self.task?)?.cpu_share(),
            (_, Some(signal)) => {
                let units = [Unit::PerCycle, Unit::PerSecond, Unit::PerInstruction, Unit::Fraction];
                let unit = units.into_iter().find(|u| u.suffix() == self.unit)?;
                rate(&self.tasks(view), signal, unit)
            }
            (name, None) => Source::from(name.to_owned()).reading(view, app()?).map(|reading| reading.value),
        }
    }

    fn tasks<'a>(&self, view: &'a View) -> Vec<&'a TaskView> {
        match self.task {
            Some(task) => view.task(task).into_iter().collect(),
            None => view.tasks.iter().filter(|task| task.info.app == self.app).collect(),
        }
    }
}

/// The sum of a signal over tasks, in a unit; `None` if unknown for all.
pub(super) fn rate(tasks: &[&TaskView], signal: Signal, unit: Unit) -> Option<f64> {
    let per_s = |signal| tasks.iter().filter_map(|task| task.per_s(signal)).reduce(|sum, rate| sum + rate);
    let over = |of| Some(per_s(signal)? / per_s(of).filter(|rate| *rate > 0.0)?);
    match unit {
        Unit::PerCycle => over(Signal::Cycles),
        Unit::PerSecond => per_s(signal),
        Unit::PerInstruction => over(Signal::Instructions),
        Unit::Fraction => per_s(signal).map(|ns_per_s| ns_per_s / 1e9),
    }
}
