//! The `decide` snapshot: one moment of a machine as JSON, for a decision from files. See
//! `docs/reference/decide-snapshot.md`.
//!
//! A snapshot becomes two samples, and so becomes a [`View`] like any host's observation.

use crate::moves::Move;
use cotenant_model::host::{Decided, decide_once};
use cotenant_model::parse::Located;
use cotenant_model::policy::{Ctx, DynPolicy, State};
use cotenant_model::profile::Thresholds;
use cotenant_model::text;
use cotenant_model::{
    ActionOutcome, AppId, AppSample, Count, Counters, CpuId, CpuSample, CpuSet, Moved, NodeId, Outcome, Rule, Sample,
    Signal, TaskId, TaskInfo, TaskSample, Time, Topology, View,
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Keys of a snapshot.
pub const FIELDS: &[&str] =
    &["tasks", "interval_s", "at_s", "apps", "cpus", "numa_balancing", "thresholds", "state", "outcomes"];

const TASK_OWN: &[&str] = &["id", "app", "cpu", "allowed", "tid", "comm", "pages_by_node", "origin"];

/// Keys of a task: its own, and the name of every [`Signal`].
pub const TASK_FIELDS: &[&str] = &{
    let mut fields = [""; TASK_OWN.len() + Signal::COUNT];
    let mut i = 0;
    while i < fields.len() {
        fields[i] = if i < TASK_OWN.len() { TASK_OWN[i] } else { Signal::ALL[i - TASK_OWN.len()].name() };
        i += 1;
    }
    fields
};

/// Input of a decision besides machine, profiles and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The beginning of the interval: the same tasks with nothing counted.
    pub before: Sample,
    /// Its end.
    pub sample: Sample,
    /// The policy's state.
    pub state: State,
    /// Outcomes of its previous decision.
    pub outcomes: Vec<ActionOutcome>,
    /// Thresholds that override those of the machine's profile.
    pub thresholds: Option<Thresholds>,
}

impl Snapshot {
    /// Reads a snapshot of this machine.
    ///
    /// # Errors
    /// [`Located`] on malformed JSON, unknown or missing keys, negative counts, CPUs, nodes and packages that the
    /// machine lacks, and duplicate tasks, CPUs or applications.
    pub fn parse(text: &str, topology: &Topology) -> Result<Self, Located> {
        let mut json = serde_json::Deserializer::from_str(text);
        let parsed = json.deserialize_map(SnapshotVisitor(topology)).and_then(|s| json.end().map(|()| s));
        parsed.map_err(|e| {
            let (line, column) = (e.line(), e.column());
            let text = e.to_string();
            let message = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text).to_owned();
            Located { line, column, message }
        })
    }

    /// The rates in its interval.
    pub fn view(&self) -> View {
        View::new(&self.before, &self.sample)
    }

    /// Makes a policy decide.
    pub fn decide(&self, ctx: &Ctx<'_>, policy: &dyn DynPolicy) -> Answer {
        let mut machine = ctx.machine.clone();
        machine.thresholds = self.thresholds.or(machine.thresholds);
        let ctx = &Ctx { machine: &machine, ..*ctx };
        let at = self.sample.at;
        let Decided { decision, orders, .. } =
            decide_once(&[Rule::all(policy, ctx)], 0, &self.before, &self.sample, &self.outcomes, self.state.clone());
        let runs = |task: &TaskSample| policy.runs(&decision.state, task.info.app);
        let applied = |action| ActionOutcome { action, outcome: Outcome::Applied };
        Answer {
            policy: policy.name(),
            moves: orders.iter().map(|order| Move::new(&self.sample, order)).collect(),
            run: policy
                .needs()
                .pauses
                .then(|| self.sample.tasks.iter().filter(|t| runs(t) == Some(true)).map(|t| t.info.id).collect()),
            notes: decision.notes,
            at_s: at.as_secs_f64(),
            wake_at_s: decision.wake_at.as_secs_f64(),
            state: decision.state,
            outcomes: orders.into_iter().map(|order| applied(order.action)).collect(),
        }
    }
}

/// A decision as `decide --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The deciding policy.
    pub policy: &'static str,
    /// The moves, in this order.
    pub moves: Vec<Move>,
    /// The tasks of the next quantum, for policies that choose them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<TaskId>>,
    /// Remarks of the policy.
    pub notes: Vec<String>,
    /// Time of the decision, seconds.
    pub at_s: f64,
    /// Requested time of the next decision, seconds.
    pub wake_at_s: f64,
    /// The policy's state: for the next snapshot.
    pub state: State,
    /// Outcomes of `moves` if all are carried out: for the next snapshot, after correcting those that differ.
    pub outcomes: Vec<ActionOutcome>,
}

/// A count: written as any number, `2.2e8` too.
fn count<E: Error>(name: &str, value: f64) -> Result<u64, E> {
    // No counter reaches 2^63 in one interval, and smaller counts fit.
    if (0.0..9.2e18).contains(&value) {
        return Ok(value.round() as u64);
    }
    Err(E::custom(format_args!("{name} is {value}; a count is 0 or more")))
}

/// Reads a field that may occur once.
fn once<'de, T: Deserialize<'de>, M: MapAccess<'de>>(
    slot: &mut Option<T>,
    name: &'static str,
    map: &mut M,
) -> Result<(), M::Error> {
    if slot.is_some() {
        return Err(M::Error::duplicate_field(name));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

/// A task in the file.
struct TaskIn {
    app: String,
    origin: Option<u32>,
    sample: TaskSample,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppIn {
    #[serde(deserialize_with = "text::name_of")]
    name: String,
    progress: Option<f64>,
    openmp_units: Option<f64>,
    mpi_calls: Option<f64>,
    io_bytes: Option<f64>,
    tcp_bytes: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuIn {
    id: CpuId,
    busy: f64,
}

struct SnapshotVisitor<'a>(&'a Topology);
struct TasksSeed<'a>(&'a Topology);
struct TaskSeed<'a>(&'a Topology);

impl<'de> DeserializeSeed<'de> for TaskSeed<'_> {
    type Value = TaskIn;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<TaskIn, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TaskSeed<'_> {
    type Value = TaskIn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task such as {\"id\": 1, \"app\": \"a\", \"cpu\": 0}")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<TaskIn, M::Error> {
        let topology = self.0;
        let (mut id, mut app, mut cpu, mut allowed, mut tid, mut comm) = (None, None, None, None, None, None);
        let (mut pages, mut origin) = (None::<Option<Vec<f64>>>, None);
        let mut counters = Counters::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => once(&mut id, "id", &mut map)?,
                "app" => once(&mut app, "app", &mut map)?,
                "cpu" => once::<Option<CpuId>, _>(&mut cpu, "cpu", &mut map)?,
                "allowed" => once::<CpuSet, _>(&mut allowed, "allowed", &mut map)?,
                "tid" => once(&mut tid, "tid", &mut map)?,
                "comm" => once(&mut comm, "comm", &mut map)?,
                "pages_by_node" => once(&mut pages, "pages_by_node", &mut map)?,
                "origin" => once::<Option<u32>, _>(&mut origin, "origin", &mut map)?,
                name => {
                    let Some(signal) = Signal::from_name(name) else {
                        return Err(M::Error::unknown_field(name, TASK_FIELDS));
                    };
                    if counters.get(signal).is_some() {
                        return Err(M::Error::duplicate_field(signal.name()));
                    }
                    if let Some(value) = map.next_value::<Option<f64>>()? {
                        counters.set(signal, Count::exact(count(name, value)?));
                    }
                }
            }
        }
        let id: TaskId = id.ok_or_else(|| M::Error::missing_field("id"))?;
        let name = |text: String| text::name(text.as_bytes());
        let app: String = app.map(name).ok_or_else(|| M::Error::missing_field("app"))?;
        let wrong = |what: fmt::Arguments<'_>| M::Error::custom(format_args!("task {id}: {what}"));
        let cpu = cpu.flatten();
        if let Some(cpu) = cpu.filter(|cpu| !topology.online().contains(*cpu)) {
            return Err(wrong(format_args!(
                "CPU {cpu} does not exist or is offline; the machine has {:?}",
                topology.online()
            )));
        }
        let all: CpuSet = topology.cpus().iter().map(|c| c.id).collect();
        let allowed = match allowed {
            None => topology.usable().clone(),
            Some(set) if set.is_subset(&all) => set,
            Some(set) => {
                return Err(wrong(format_args!("it is allowed CPUs {:?}, which do not exist", set.minus(&all))));
            }
        };
        let nodes = topology.nodes();
        let pages_by_node = match pages.flatten() {
            Some(list) if list.len() > nodes.len().max(1) => {
                let (given, there) = (list.len(), nodes.len());
                return Err(wrong(format_args!("pages_by_node has {given} entries; the machine has {there} nodes")));
            }
            Some(list) => {
                let node = |i: usize| nodes.get(i).map_or(NodeId(0), |n| n.id);
                let pages = list.into_iter().enumerate().map(|(i, n)| Ok((node(i), count("pages_by_node", n)?)));
                Some(pages.collect::<Result<Vec<_>, M::Error>>()?)
            }
            None => None,
        };
        let origin = origin.flatten();
        let homes = topology.packages().len().max(nodes.len());
        if let Some(origin) = origin.filter(|o| *o as usize >= homes) {
            return Err(wrong(format_args!(
                "its origin is {origin}; the machine has {homes} packages, counted from 0"
            )));
        }
        let tid = tid.unwrap_or(id.0);
        let info =
            TaskInfo { id, tid, pid: tid, comm: comm.map(name).unwrap_or_default(), allowed, ..TaskInfo::default() };
        Ok(TaskIn {
            app,
            origin,
            sample: TaskSample { info: Arc::new(info), cpu, counters, pages_by_node, touches_by_node: None },
        })
    }
}

impl<'de> DeserializeSeed<'de> for TasksSeed<'_> {
    type Value = Vec<TaskIn>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Vec<TaskIn>, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for TasksSeed<'_> {
    type Value = Vec<TaskIn>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tasks")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Vec<TaskIn>, S::Error> {
        let mut tasks = BTreeMap::new();
        while let Some(task) = seq.next_element_seed(TaskSeed(self.0))? {
            let id = task.sample.info.id;
            if tasks.insert(id, task).is_some() {
                return Err(S::Error::custom(format_args!("task {id} is listed twice")));
            }
        }
        Ok(tasks.into_values().collect())
    }
}

impl<'de> Visitor<'de> for SnapshotVisitor<'_> {
    type Value = Snapshot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot such as {\"tasks\": [], \"interval_s\": 0.1}")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Snapshot, M::Error> {
        let mut tasks = None;
        let (mut interval, mut at) = (None, None);
        let (mut apps, mut cpus) = (None::<Vec<AppIn>>, None::<Vec<CpuIn>>);
        let (mut numa_balancing, mut thresholds, mut state, mut outcomes) = (None, None, None::<State>, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "tasks" if tasks.is_some() => return Err(M::Error::duplicate_field("tasks")),
                "tasks" => tasks = Some(map.next_value_seed(TasksSeed(self.0))?),
                "interval_s" => {
                    once(&mut interval, "interval_s", &mut map)?;
                    if interval.is_some_and(|s: f64| !(1e-9..1e9).contains(&s)) {
                        return Err(M::Error::custom("interval_s must be a number of seconds above 0"));
                    }
                }
                "at_s" => {
                    once(&mut at, "at_s", &mut map)?;
                    if at.is_some_and(|s: f64| !(0.0..1e9).contains(&s)) {
                        return Err(M::Error::custom("at_s must be a number of seconds, 0 or more"));
                    }
                }
                "apps" => once(&mut apps, "apps", &mut map)?,
                "cpus" => once(&mut cpus, "cpus", &mut map)?,
                "numa_balancing" => once(&mut numa_balancing, "numa_balancing", &mut map)?,
                "thresholds" => once(&mut thresholds, "thresholds", &mut map)?,
                "state" => once(&mut state, "state", &mut map)?,
                "outcomes" => once(&mut outcomes, "outcomes", &mut map)?,
                name => return Err(M::Error::unknown_field(name, FIELDS)),
            }
        }
        let interval = Duration::from_secs_f64(interval.ok_or_else(|| M::Error::missing_field("interval_s"))?);
        let tasks = tasks.ok_or_else(|| M::Error::missing_field("tasks"))?;
        let start = Time::default() + Duration::from_secs_f64(at.unwrap_or(0.0)).saturating_sub(interval);
        let (apps, ids) = apps_of(&tasks, apps.unwrap_or_default(), start + interval)?;
        let cpus = cpus_of(self.0, cpus.unwrap_or_default(), interval)?;
        let origins: Vec<(TaskId, u32)> = tasks.iter().filter_map(|t| Some((t.sample.info.id, t.origin?))).collect();
        let state = match state {
            None if !origins.is_empty() => sam_from(&origins),
            state => state.unwrap_or_default(),
        };
        let after: Vec<TaskSample> = tasks.into_iter().map(|t| with_app(t, &ids)).collect();
        let none = |moved: Option<Moved>| moved.map(|_| Moved { bytes: 0, at: start });
        let nothing_yet = |a: &AppSample| AppSample {
            progress: a.progress.map(|_| 0),
            openmp: a.openmp.map(|_| 0),
            mpi: a.mpi.map(|_| 0),
            io: none(a.io),
            tcp: none(a.tcp),
            ..a.clone()
        };
        let zero = |t: &TaskSample| TaskSample {
            counters: t.counters.iter().map(|(signal, _)| (signal, Count::exact(0))).collect(),
            ..t.clone()
        };
        let before = Sample {
            at: start,
            tasks: after.iter().map(zero).collect(),
            cpus: cpus.iter().map(|c| CpuSample { busy_ns: 0, ..*c }).collect(),
            apps: apps.iter().map(nothing_yet).collect(),
            ..Sample::default()
        };
        let numa_balancing = numa_balancing.unwrap_or_default();
        let sample = Sample { at: start + interval, tasks: after, cpus, apps, numa_balancing };
        Ok(Snapshot { before, sample, state, outcomes: outcomes.unwrap_or_default(), thresholds })
    }
}

/// The state of `sam` if only the origins of reluctantly moved tasks are known.
fn sam_from(origins: &[(TaskId, u32)]) -> State {
    let origins: Vec<_> = origins.iter().map(|(task, unit)| json!({ "task": task, "unit": unit })).collect();
    State::json("sam", json!({ "origins": origins }))
}

/// Applications in order of first appearance: first those of tasks, then those that only report.
fn apps_of<E: Error>(
    tasks: &[TaskIn],
    reports: Vec<AppIn>,
    at: Time,
) -> Result<(Vec<AppSample>, BTreeMap<String, AppId>), E> {
    let mut apps: Vec<AppSample> = Vec::new();
    let mut ids = BTreeMap::new();
    for name in tasks.iter().map(|t| &t.app).chain(reports.iter().map(|r| &r.name)) {
        if !ids.contains_key(name) {
            let id = AppId(apps.len() as u32);
            ids.insert(name.clone(), id);
            apps.push(AppSample { id, name: name.clone(), ..AppSample::default() });
        }
    }
    let mut listed = BTreeSet::new();
    for AppIn { name, progress, openmp_units, mpi_calls, io_bytes, tcp_bytes } in reports {
        let Some(app) = ids.get(&name).and_then(|id| apps.get_mut(id.0 as usize)) else { continue };
        if !listed.insert(app.id) {
            return Err(E::custom(format_args!("app '{name}' is listed twice under apps")));
        }
        let counted = |key, value: Option<f64>| value.map(|value| count(key, value)).transpose();
        let moved = |key, value| Ok(counted(key, value)?.map(|bytes| Moved { bytes, at }));
        app.progress = counted("progress", progress)?;
        (app.openmp, app.mpi) = (counted("openmp_units", openmp_units)?, counted("mpi_calls", mpi_calls)?);
        (app.io, app.tcp) = (moved("io_bytes", io_bytes)?, moved("tcp_bytes", tcp_bytes)?);
    }
    Ok((apps, ids))
}

fn cpus_of<E: Error>(topology: &Topology, busy: Vec<CpuIn>, interval: Duration) -> Result<Vec<CpuSample>, E> {
    let mut cpus = BTreeMap::new();
    for CpuIn { id, busy } in busy {
        if !topology.online().contains(id) {
            return Err(E::custom(format_args!("CPU {id} under cpus does not exist or is offline")));
        }
        if !(0.0..=1.0).contains(&busy) {
            return Err(E::custom(format_args!("CPU {id} is busy {busy} of the time; it must be between 0 and 1")));
        }
        let busy_ns = interval.mul_f64(busy).as_nanos() as u64;
        if cpus.insert(id, CpuSample { id, busy_ns }).is_some() {
            return Err(E::custom(format_args!("CPU {id} is listed twice under cpus")));
        }
    }
    Ok(cpus.into_values().collect())
}

fn with_app(task: TaskIn, ids: &BTreeMap<String, AppId>) -> TaskSample {
    let app = ids.get(&task.app).copied().unwrap_or(AppId(0));
    let info = TaskInfo { app, ..TaskInfo::clone(&task.sample.info) };
    TaskSample { info: Arc::new(info), ..task.sample }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::policy::Config;
    use cotenant_model::profile::MachineProfile;
    use cotenant_model::testing::machine;
    use cotenant_policies::{Sam, Static, StaticSettings};
    use proptest::prelude::*;

    const EXAMPLE: &str = include_str!("../../../docs/reference/decide-snapshot.json");

    fn error(text: &str) -> String {
        Snapshot::parse(text, &machine(2, 1, 2, 1)).unwrap_err().to_string()
    }

    #[test]
    fn counts_become_rates() {
        let snapshot = Snapshot::parse(EXAMPLE, &machine(2, 1, 10, 2)).unwrap();
        let view = snapshot.view();
        let task = view.task(TaskId(11)).unwrap();
        // 200,000 events in 2.2e8 cycles and 0.1 s.
        assert!((task.per_cycle(Signal::Inter).unwrap() - 2e5 / 2.2e8).abs() < 1e-12);
        assert!((task.per_s(Signal::Inter).unwrap() - 2e6).abs() < 1e-3);
        assert_eq!((task.per_s(Signal::StallCycles), task.cpu), (None, Some(CpuId(0))), "what is left out is absent");
        assert_eq!(task.pages_by_node, Some(vec![(NodeId(0), 5_000), (NodeId(1), 20)]));
        assert_eq!(view.apps.iter().map(|a| (a.id.0, &*a.name)).collect::<Vec<_>>(), [(0, "a"), (1, "b")]);
        assert_eq!(view.apps[1].progress_per_s, Some(1_200.0));
        assert!((view.cpu(CpuId(3)).unwrap().foreign - 0.25).abs() < 1e-9);
        assert_eq!(snapshot.sample.at, Time::from_millis(100));
        let bytes = r#"{"interval_s":0.5,"at_s":9,"tasks":[],"apps":[{"name":"a","io_bytes":1e6,"tcp_bytes":0}]}"#;
        let view = Snapshot::parse(bytes, &machine(2, 1, 10, 2)).unwrap().view();
        let per_s = [view.apps[0].io, view.apps[0].tcp].map(|reading| reading.map(|reading| reading.value));
        assert_eq!(per_s, [Some(2e6), Some(0.0)]);
    }

    #[test]
    fn errors_name_the_place() {
        let cases = [
            ("", "1:0: EOF while parsing a value"),
            (
                "{\"tasks\":[],\n \"interval\":1}",
                "2:11: unknown field `interval`, expected one of `tasks`, `interval_s`,",
            ),
            ("{\"tasks\":[]}", "1:12: missing field `interval_s`"),
            ("{\"tasks\":[],\"interval_s\":0}", "1:27: interval_s must be"),
            (
                "{\"tasks\":[\n{\"id\":1,\"app\":\"a\",\"misses\":3}]}",
                "2:26: unknown field `misses`, expected one of `id`, `app`,",
            ),
            ("{\"tasks\":[{\"id\":1}]}", "1:18: missing field `app`"),
            (
                "{\"tasks\":[{\"id\":1,\"app\":\"a\",\"cpu\":9}]}",
                "1:36: task 1: CPU 9 does not exist or is offline; the machine has {0-3}",
            ),
            ("{\"tasks\":[{\"id\":1,\"app\":\"a\",\"inter\":-1}]}", "1:39: inter is -1; a count is 0 or more"),
            ("{\"tasks\":[{\"id\":1,\"app\":\"a\",\"inter\":\"1\"}]}", "1:39: invalid type: string"),
            (
                "{\"tasks\":[{\"id\":1,\"app\":\"a\",\"origin\":2}]}",
                "1:39: task 1: its origin is 2; the machine has 2 packages",
            ),
            (
                "{\"tasks\":[{\"id\":1,\"app\":\"a\",\"pages_by_node\":[1,2,3]}]}",
                "1:52: task 1: pages_by_node has 3 entries; the machine has 2",
            ),
            ("{\"tasks\":[{\"id\":1,\"app\":\"a\",\"allowed\":\"3-4\"}]}", "1:44: task 1: it is allowed CPUs {4}"),
            ("{\"tasks\":[{\"id\":1,\"app\":\"a\"},{\"id\":1,\"app\":\"a\"}]}", "task 1 is listed twice"),
            ("{\"tasks\":[{\"id\":1,\"id\":1}]}", "duplicate field `id`"),
            ("{\"tasks\":[],\"interval_s\":1,\"cpus\":[{\"id\":0,\"busy\":2}]}", "CPU 0 is busy 2 of the time"),
            (
                "{\"tasks\":[],\"interval_s\":1,\"cpus\":[{\"id\":0,\"busy\":1},{\"id\":0,\"busy\":1}]}",
                "CPU 0 is listed twice under cpus",
            ),
            (
                "{\"tasks\":[],\"interval_s\":1,\"state\":{\"sam\":{},\"auto\":{}}}",
                "a state is \"empty\", or an object with one",
            ),
            ("{\"tasks\":[],\"interval_s\":1}x", "1:28: trailing characters"),
        ];
        for (text, start) in cases {
            assert!(error(text).contains(start), "{text}\n{}\n{start}", error(text));
        }
        assert!(error("{\"tasks\":[{\"misses\":3}]}").contains("`llc_misses`"), "all signals are named");
    }

    #[test]
    fn an_answer_is_the_next_snapshots_state() {
        let topology = machine(2, 1, 2, 1);
        let (profile, apps) = (MachineProfile::default(), BTreeMap::new());
        let config = Config { pin: cotenant_model::pin::Pin::Llc, ..Config::default() };
        let policy = Static(StaticSettings { map: Some("..X*".to_owned()) });
        let ctx = Ctx { topology: &topology, machine: &profile, apps: &apps, config: &config };
        let text = r#"{"tasks":[{"id":4,"app":"a","cpu":0},{"id":6,"app":"b","cpu":1}],"interval_s":0.1}"#;
        let answer = serde_json::to_value(Snapshot::parse(text, &topology).unwrap().decide(&ctx, &policy)).unwrap();
        let first = &answer["moves"][0];
        assert_eq!((&first["task"], &first["from_cpu"]), (&4.into(), &0.into()));
        assert_eq!((&first["to_cpus"], &first["affinity"]), (&vec![2].into(), &vec![2, 3].into()));
        assert_eq!((&first["reason"]["stage"], answer["moves"].as_array().map(Vec::len)), (&"map".into(), Some(2)));

        let mut next: serde_json::Value = serde_json::from_str(text).unwrap();
        next["state"] = answer["state"].clone();
        next["outcomes"] = answer["outcomes"].clone();
        next["at_s"] = answer["wake_at_s"].clone();
        let chained = Snapshot::parse(&next.to_string(), &topology).unwrap();
        assert_eq!(chained.sample.at, Time::from_millis(200));
        assert_eq!(chained.decide(&ctx, &policy).moves, [], "both are where the map wants them");
        next["outcomes"][0]["outcome"] = "denied".into();
        next["at_s"] = 5.into();
        let denied = Snapshot::parse(&next.to_string(), &topology).unwrap().decide(&ctx, &policy);
        assert_eq!(denied.moves, [], "asked again later");
    }

    #[test]
    fn an_origin_leads_home() {
        // 1e-3 remote loads per cycle, above the threshold of 5e-4, and 1 as the origin: SAM's stage 2 takes the task
        // there.
        let text = r#"{"tasks":[{"id":4,"app":"a","cpu":0,"cycles":2.2e8,"inter":0,"intra":0,"remote":2.2e5,"llc_misses":1e5,"origin":1}],
            "interval_s":0.1,
            "thresholds":{"coherence_per_cycle":2.5e-4,"socket_bandwidth_per_s":75e6,"remote_per_cycle":5e-4}}"#;
        let topology = machine(2, 1, 2, 1);
        let (profile, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
        let ctx = Ctx { topology: &topology, machine: &profile, apps: &apps, config: &config };
        let answer = Snapshot::parse(text, &topology).unwrap().decide(&ctx, &Sam::default());
        let moved: Vec<_> =
            answer.moves.iter().map(|m| (m.task.unwrap().0, m.to_cpus.clone(), m.reason.stage.as_str())).collect();
        assert_eq!(moved, [(4, vec![CpuId(2)], "stage 2")], "{:?}", answer.notes);
    }

    #[test]
    fn thresholds_of_the_snapshot_come_first() {
        let text =
            r#"{"tasks":[],"interval_s":0.1,"thresholds":{"coherence_per_cycle":1e-3,"socket_bandwidth_per_s":1e6}}"#;
        let snapshot = Snapshot::parse(text, &machine(1, 1, 1, 1)).unwrap();
        assert_eq!(snapshot.thresholds.map(|t| t.coherence_per_cycle), Some(1e-3));
    }

    proptest! {
        /// The example with a piece cut out and another text put in: refused or read, never a panic, and an error
        /// lies in the text.
        #[test]
        fn no_text_panics(from in 0usize..EXAMPLE.len(), len in 0usize..40, text in "[0-9a-z{}\\[\\]\",:.e-]{0,8}") {
            let until = (from + len).min(EXAMPLE.len());
            let damaged = format!("{}{text}{}", &EXAMPLE[..from], &EXAMPLE[until..]);
            if let Err(e) = Snapshot::parse(&damaged, &machine(2, 1, 10, 2)) {
                prop_assert!((1..=damaged.lines().count() + 1).contains(&e.line), "{}", e);
            }
        }
    }

    /// The schema in `docs/` names exactly the keys that are read.
    #[test]
    fn the_schema_agrees() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../../docs/schema/decide-snapshot.schema.json")).unwrap();
        let keys = |v: &serde_json::Value| {
            let mut keys: Vec<String> = v["properties"].as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys
        };
        let sorted = |fields: &[&str]| {
            let mut fields: Vec<String> = fields.iter().map(|f| (*f).to_owned()).collect();
            fields.sort();
            fields
        };
        assert_eq!(keys(&schema), sorted(FIELDS));
        assert_eq!(keys(&schema["properties"]["tasks"]["items"]), sorted(TASK_FIELDS));
        for object in [&schema, &schema["properties"]["tasks"]["items"]] {
            assert_eq!(object["additionalProperties"], false);
        }
    }
}
