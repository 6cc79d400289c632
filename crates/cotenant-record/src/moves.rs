//! An order in the form of screens and JSON (a move, a nap or a limit), shared by `decide`, `replay`, `why` and
//! reports.

use cotenant_model::{Action, AppId, CpuId, CpuSet, Effect, Evidence, NodeId, Order, Reason, Sample, TaskId};
use serde::Serialize;
use std::fmt;

/// An order: a task's move with its reason, or an order about a whole application.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Move {
    /// The kind of effect.
    #[serde(rename = "means")]
    pub effect: Effect,
    /// The task; `None` for an order about a whole application.
    pub task: Option<TaskId>,
    /// Its kernel thread id, if the sample has it.
    pub tid: Option<u32>,
    /// Its command name, or the application's; empty if missing in the sample.
    pub comm: String,
    /// The application.
    pub app: Option<AppId>,
    /// Its CPU before.
    pub from_cpu: Option<CpuId>,
    /// The decided contexts; empty if its own mask is restored.
    pub to_cpus: Vec<CpuId>,
    /// The mask set; empty if its own mask is restored.
    pub affinity: Vec<CpuId>,
    /// Whether it must wait until it is placed or released.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The target nodes of its pages; empty if they stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages_to: Vec<NodeId>,
    /// End of the application's nap, seconds; `None` for other orders and for ending a nap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_s: Option<f64>,
    /// Duration of the nap, seconds.
    #[serde(skip)]
    pub lasts_s: Option<f64>,
    /// The application's limit: thousandths of a CPU, or cache ways and memory bandwidth; `None` for other orders and
    /// for lifting a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permille: Option<u32>,
    /// Whether the application runs only on otherwise idle CPUs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Why.
    pub reason: MoveReason,
}

/// A reason in parts and as text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveReason {
    /// The stage of the algorithm.
    pub stage: String,
    /// The measurement and its comparison.
    #[serde(flatten)]
    pub evidence: Option<Evidence>,
    /// All of it as one line.
    pub text: String,
}

impl MoveReason {
    /// Applications are named as in `sample`, with their number if names repeat.
    fn new(sample: &Sample, reason: &Reason) -> Self {
        let text = reason.told(|id| {
            let name = &sample.apps.iter().find(|app| app.id == id)?.name;
            let alike = sample.apps.iter().filter(|app| app.name == *name).count();
            let number = if alike > 1 { format!(" (app {id})") } else { String::new() };
            (!name.is_empty()).then(|| format!("{name}{number}"))
        });
        Self { stage: reason.stage.to_string(), evidence: reason.evidence, text }
    }
}

impl Move {
    /// The effect of an order on the tasks and applications of `sample`.
    pub fn new(sample: &Sample, order: &Order) -> Self {
        let (task, app) = (order.action.task(), order.action.app());
        let seen = task.and_then(|task| sample.task(task));
        let name = app.and_then(|app| sample.apps.iter().find(|a| a.id == app)).map(|app| app.name.clone());
        let mut found = Self {
            effect: order.action.effect(),
            task,
            tid: seen.map(|t| t.info.tid),
            comm: seen.map(|t| t.info.comm.clone()).or(name).unwrap_or_default(),
            app: app.or(seen.map(|t| t.info.app)),
            from_cpu: seen.and_then(|t| t.cpu),
            to_cpus: Vec::new(),
            affinity: order.affinity.iter().collect(),
            paused: false,
            pages_to: Vec::new(),
            until_s: None,
            permille: None,
            background: false,
            lasts_s: None,
            reason: MoveReason::new(sample, &order.reason),
        };
        match &order.action {
            Action::Place { contexts, .. } => found.to_cpus = contexts.iter().collect(),
            Action::Pause { .. } => found.paused = true,
            Action::Nap { until, .. } if *until > sample.at => {
                found.until_s = Some(until.as_secs_f64());
                found.lasts_s = Some((*until - sample.at).as_secs_f64());
            }
            Action::Nap { .. } | Action::Release { .. } => {}
            Action::Limit { cpu_permille: permille, .. } | Action::LimitCaches { permille, .. } => {
                found.permille = *permille;
            }
            Action::Background { on, .. } => found.background = *on,
            Action::Pages { nodes, .. } => found.pages_to.clone_from(nodes),
        }
        found
    }

    /// Whether it undoes an earlier order with the same effect.
    pub fn withdraws(&self) -> bool {
        match self.effect {
            Effect::Placement => self.to_cpus.is_empty() && !self.paused,
            Effect::Pages => false,
            Effect::Nap => self.until_s.is_none(),
            Effect::CpuTime | Effect::Caches => self.permille.is_none(),
            Effect::Background => !self.background,
        }
    }

    /// Its target: the decided contexts, or words.
    pub fn to(&self) -> String {
        match self.effect {
            Effect::Placement if self.paused => "waits".to_owned(),
            Effect::Placement if self.to_cpus.is_empty() => "its own mask".to_owned(),
            Effect::Placement => list(&self.to_cpus),
            Effect::Pages => {
                let nodes: Vec<String> = self.pages_to.iter().map(ToString::to_string).collect();
                format!("pages to node {}", nodes.join(", "))
            }
            Effect::Nap => {
                self.lasts_s.map_or_else(|| "runs on".to_owned(), |lasts| format!("naps for {:.0} ms", lasts * 1e3))
            }
            Effect::CpuTime => self.permille.map_or_else(
                || "no limit of CPU time".to_owned(),
                |permille| format!("at most {:.3} CPUs", f64::from(permille) / 1e3),
            ),
            Effect::Caches => self.permille.map_or_else(
                || "no limit of caches and memory bandwidth".to_owned(),
                |permille| format!("at most {:.1} % of cache ways and memory bandwidth", f64::from(permille) / 10.0),
            ),
            Effect::Background if self.background => "runs on CPU time that no other program wants".to_owned(),
            Effect::Background => "runs beside the others".to_owned(),
        }
    }
}

/// In list form.
fn list(cpus: &[CpuId]) -> String {
    cpus.iter().copied().collect::<CpuSet>().to_string()
}

impl fmt::Display for Move {
    /// `task 7 (worker, tid 1007): CPU 3 → 12, may use 10-19; stage 1: …`, or
    /// `app 1 (x264) → naps for 250 ms; controller: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.task, self.app) {
            (Some(task), _) => write!(f, "task {task}")?,
            (None, Some(app)) => write!(f, "app {app}")?,
            (None, None) => {}
        }
        match self.tid {
            Some(tid) if self.comm.is_empty() => write!(f, " (tid {tid})")?,
            Some(tid) => write!(f, " ({}, tid {tid})", self.comm)?,
            None if self.comm.is_empty() => {}
            None => write!(f, " ({})", self.comm)?,
        }
        match self.from_cpu {
            _ if self.task.is_none() => {}
            Some(cpu) => write!(f, ": CPU {cpu}")?,
            None => write!(f, ": CPU ?")?,
        }
        write!(f, " → {}", self.to())?;
        if !self.to_cpus.is_empty() && self.affinity != self.to_cpus {
            write!(f, ", may use {}", list(&self.affinity))?;
        }
        write!(f, "; {}", self.reason.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::Signal;
    use cotenant_model::action::Unit;
    use cotenant_model::ids::Time;
    use cotenant_model::testing::{ViewBuilder, machine};

    #[test]
    fn as_text_and_json() {
        let topology = machine(2, 1, 2, 1);
        let (_, sample) = ViewBuilder::new(&topology).task(7, 1, 3).samples();
        let evidence = Some(Evidence { signal: Signal::Inter, unit: Unit::PerCycle, value: 9.1e-4, threshold: 2.5e-4 });
        let reason = Reason { evidence, ..Reason::new("stage 1", "colocate") };
        let affinity = CpuSet::parse_list("0-1").unwrap();
        let action = Action::Place { task: TaskId(7), contexts: CpuSet::single(CpuId(1)) };
        let moved = Move::new(&sample, &Order { action, affinity, reason: reason.clone() });
        let text = "task 7 (task7, tid 1007): CPU 3 → 1, may use 0-1; stage 1: inter 0.0009100/cycle > 0.0002500/cycle; colocate";
        assert_eq!(moved.to_string(), text);
        let json = serde_json::to_value(&moved).unwrap();
        assert_eq!(
            (&json["from_cpu"], &json["to_cpus"], &json["affinity"]),
            (&3.into(), &vec![1].into(), &vec![0, 1].into())
        );
        assert_eq!((&json["reason"]["signal"], &json["reason"]["threshold"]), (&"inter".into(), &2.5e-4.into()));
        let away = Order { action: Action::Release { task: TaskId(9) }, affinity: CpuSet::new(), reason };
        assert!(Move::new(&sample, &away).to_string().starts_with("task 9: CPU ? → its own mask; stage 1"));
    }

    /// Holds record/why.
    #[test]
    fn what_an_application_is_told_has_the_same_form() {
        let topology = machine(2, 1, 2, 1);
        let (_, sample) = ViewBuilder::new(&topology).task(7, 1, 3).samples(); // at 100 ms
        let app = AppId(1);
        let told = |action| {
            let reason = Reason::new("controller", "contention");
            Move::new(&sample, &Order { action, affinity: CpuSet::new(), reason })
        };
        let nap = |ms| Action::Nap { app, until: Time::from_millis(ms) };
        let limit = |cpu_permille| Action::Limit { app, cpu_permille };
        let caches = |permille| Action::LimitCaches { app, permille };
        let background = |on| Action::Background { app, on };
        for (action, to, withdraws) in [
            (nap(250), "naps for 150 ms", false),
            (nap(100), "runs on", true),
            (limit(Some(500)), "at most 0.500 CPUs", false),
            (limit(None), "no limit of CPU time", true),
            (caches(Some(125)), "at most 12.5 % of cache ways and memory bandwidth", false),
            (caches(None), "no limit of caches and memory bandwidth", true),
            (background(true), "runs on CPU time that no other program wants", false),
            (background(false), "runs beside the others", true),
        ] {
            let told = told(action);
            assert_eq!(told.to_string(), format!("app 1 (app1) → {to}; controller: contention"));
            assert_eq!(told.withdraws(), withdraws, "{to}");
        }
        let json = serde_json::to_value(told(limit(Some(500)))).unwrap();
        assert_eq!((&json["means"], &json["app"], &json["permille"]), (&"cpu_time".into(), &1.into(), &500.into()));
        assert!(json["task"].is_null() && json.get("until_s").is_none(), "{json}");
        assert!(told(Action::Release { task: TaskId(7) }).withdraws());
        assert!(!told(Action::Pause { task: TaskId(7) }).withdraws());
        let pages = told(Action::Pages { task: TaskId(7), nodes: vec![NodeId(0), NodeId(1)] });
        assert_eq!(pages.to_string(), "task 7 (task7, tid 1007): CPU 3 → pages to node 0, 1; controller: contention");
    }
}
