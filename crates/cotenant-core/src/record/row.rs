//! Rows: one JSON object per round, with only what changed since the sample before.
//!
//! Counts stand as differences, in arrays whose columns a *layout* names once. That keeps a row small and cheap to write while
//! names, not positions in the code, say what each number is: a reader skips signals and keys that it does not know.

use super::RecordedRound;
use super::redact::Redactor;
use crate::action::{Action, Decision, Order, Outcome, Proposal, Reason};
use crate::cpuset::CpuSet;
use crate::ids::{CpuId, NodeId, TaskId, Time};
use crate::policy::State;
use crate::sample::{AppSample, CpuSample, Sample, TaskInfo, TaskSample};
use crate::signal::{Count, Counters, Signal};
use crate::view::merge;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// More tasks than this in one sample are refused: a quarter of what Linux can have, and it bounds a reader's memory.
const MAX_TASKS: usize = 1 << 20;

/// More layouts than this are refused; each is one combination of signals that some task has.
const MAX_LAYOUTS: usize = 1 << 12;

/// Resident pages by memory node, where they were read.
type Pages = Option<Vec<(NodeId, u64)>>;

/// Why a row cannot be used.
type Bad = String;

/// A row as it stands in the file. Absent keys mean "as before" or "none".
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Time of the sample, nanoseconds.
    pub at: Time,
    /// Whether it starts from nothing, and is a sample without a round.
    pub base: bool,
    /// New layouts, numbered on from those before.
    pub layouts: Vec<Vec<String>>,
    /// Tasks that are new or whose description changed.
    pub info: Vec<TaskInfo>,
    /// Tasks that are no more.
    pub gone: Vec<TaskId>,
    /// Tasks whose CPU or counts changed: see [`Encoder::task`].
    pub tasks: Vec<Vec<i64>>,
    /// Tasks whose pages changed.
    pub pages: Vec<(TaskId, Pages)>,
    /// The CPUs of the sample, where they are others than before.
    pub cpus: Option<CpuSet>,
    /// Added busy nanoseconds of each of them.
    pub busy: Vec<i64>,
    /// All applications, where anything about them changed.
    pub apps: Option<Vec<AppSample>>,
    /// The decision.
    pub decision: Option<DecisionRow<'static>>,
    /// What was ordered, and what became of it.
    pub orders: Vec<OrderRow>,
    /// The end mark.
    pub end: Option<End>,
}

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The run ended.
    Finished,
    /// The size limit was reached.
    Limit,
}

/// A decision in a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecisionRow<'a> {
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    proposals: Cow<'a, [Proposal]>,
    /// Absent: as in the row before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    wake_at: Time,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    notes: Cow<'a, [String]>,
}

/// An order in a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OrderRow {
    /// The proposal that it carries out, by its place in the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<usize>,
    /// Where it carries out no proposal: its own action …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<Action>,
    /// … and reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    affinity: CpuSet,
    outcome: Outcome,
}

/// Remembers what was announced, so that rows say it once.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Combinations of signals by layout number, one bit per signal.
    layouts: Vec<u32>,
    state: Option<State>,
    redactor: Option<Redactor>,
    /// Scratch space: the rows of tasks, and the numbers of one of them.
    tasks: Vec<u8>,
    numbers: Vec<i64>,
}

impl Encoder {
    /// An encoder that replaces names where `redactor` is given.
    pub fn new(redactor: Option<Redactor>) -> Self {
        Self { redactor, ..Self::default() }
    }

    /// Appends the row of a sample to `out`: against `prev`, or from nothing as a base. The caller closes it with [`close`].
    pub fn sample(&mut self, out: &mut Vec<u8>, prev: Option<&Sample>, next: &Sample) {
        let empty = Sample::default();
        let before = prev.unwrap_or(&empty);
        let announced = self.layouts.len();
        let mut info: Vec<Cow<'_, TaskInfo>> = Vec::new();
        let mut pages: Vec<(TaskId, &Pages)> = Vec::new();
        self.tasks.clear();
        for (old, task) in merge(&before.tasks, &next.tasks, |t| t.info.id) {
            if old.is_none_or(|old| old.info != task.info) {
                info.push(match &mut self.redactor {
                    Some(redactor) => Cow::Owned(redactor.info(&task.info)),
                    None => Cow::Borrowed(&task.info),
                });
            }
            let counters = old.map(|old| &old.counters);
            if old.and_then(|old| old.cpu) != task.cpu || !same(counters, &task.counters) {
                self.task(task, counters);
            }
            if old.and_then(|old| old.pages_by_node.as_ref()) != task.pages_by_node.as_ref() {
                pages.push((task.info.id, &task.pages_by_node));
            }
        }
        let gone: Vec<TaskId> = merge(&next.tasks, &before.tasks, |t| t.info.id)
            .filter(|(new, _)| new.is_none())
            .map(|(_, old)| old.info.id)
            .collect();

        out.extend_from_slice(b"{\"at\":");
        json(out, &next.at);
        if prev.is_none() {
            out.extend_from_slice(b",\"base\":true");
        }
        list(out, "layouts", &self.layouts[announced..].iter().map(|&mask| names(mask)).collect::<Vec<_>>());
        list(out, "gone", &gone);
        list(out, "info", &info);
        if !self.tasks.is_empty() {
            out.extend_from_slice(b",\"tasks\":[");
            out.extend_from_slice(&self.tasks[1..]); // the first comma
            out.push(b']');
        }
        list(out, "pages", &pages);
        if !before.cpus.iter().map(|c| c.id).eq(next.cpus.iter().map(|c| c.id)) {
            key(out, "cpus", &next.cpus.iter().map(|c| c.id).collect::<CpuSet>());
        }
        if before.cpus != next.cpus {
            let added =
                |(old, cpu): (Option<&CpuSample>, &CpuSample)| minus(cpu.busy_ns, old.map_or(0, |old| old.busy_ns));
            list(out, "busy", &merge(&before.cpus, &next.cpus, |c| c.id).map(added).collect::<Vec<i64>>());
        }
        if before.apps != next.apps {
            let app = |app: &AppSample| match &mut self.redactor {
                Some(redactor) => redactor.app(app),
                None => finite(app),
            };
            key(out, "apps", &next.apps.iter().map(app).collect::<Vec<_>>());
        }
    }

    /// A task's numbers: its id, its CPU (−1 where unknown), its layout, the added events of each signal in the layout's order, and
    /// then, for each run of signals with the same clock, how many they are and the nanoseconds added to `enabled` and `running`.
    fn task(&mut self, task: &TaskSample, before: Option<&Counters>) {
        let mask = task.counters.iter().fold(0, |mask, (signal, _)| mask | 1 << signal as u32);
        let layout = self.layouts.iter().position(|known| *known == mask).unwrap_or_else(|| {
            self.layouts.push(mask);
            self.layouts.len() - 1
        });
        let numbers = &mut self.numbers;
        numbers.clear();
        numbers.extend([task.info.id.0.into(), task.cpu.map_or(-1, |cpu| cpu.0.into()), (layout as u64).cast_signed()]);
        let old = |signal| before.and_then(|counters| counters.get(signal)).unwrap_or_default();
        numbers.extend(task.counters.iter().map(|(signal, now)| minus(now.value, old(signal).value)));
        let clock = |(signal, now): (Signal, Count)| {
            let old = old(signal);
            (minus(now.enabled_ns, old.enabled_ns), minus(now.running_ns, old.running_ns))
        };
        let mut clocks = task.counters.iter().map(clock).peekable();
        while let Some(clock) = clocks.next() {
            let mut run = 1;
            while clocks.next_if_eq(&clock).is_some() {
                run += 1;
            }
            numbers.extend([run, clock.0, clock.1]);
        }
        self.tasks.push(b',');
        json(&mut self.tasks, numbers);
    }

    /// Appends the keys of a decision and its orders to a sample's row.
    pub fn decision(&mut self, out: &mut Vec<u8>, decision: &Decision, orders: &[Order], outcomes: &[Outcome]) {
        let state = (self.state.as_ref() != Some(&decision.state)).then(|| decision.state.clone());
        if state.is_some() {
            self.state.clone_from(&state);
        }
        let mut notes = Cow::from(&decision.notes);
        if let Some(redactor) = &self.redactor {
            notes.to_mut().iter_mut().for_each(|note| *note = redactor.text(note));
        }
        let proposals = Cow::from(&decision.proposals);
        key(out, "decision", &DecisionRow { proposals, state, wake_at: decision.wake_at, notes });
        let row = |(order, &outcome): (&Order, &Outcome)| {
            let of = decision.proposals.iter().position(|p| p.action == order.action && p.reason == order.reason);
            let (action, reason) = of.is_none().then(|| (order.action.clone(), order.reason.clone())).unzip();
            OrderRow { of, action, reason, affinity: order.affinity.clone(), outcome }
        };
        list(out, "orders", &orders.iter().zip(outcomes).map(row).collect::<Vec<_>>());
    }
}

/// Ends a row.
pub fn close(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}

/// The row of an end mark.
pub fn end(at: Time, end: End) -> Vec<u8> {
    let mut out = b"{\"at\":".to_vec();
    json(&mut out, &at);
    key(&mut out, "end", &end);
    close(&mut out);
    out
}

fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("plain values serialise, and a Vec takes every write");
}

fn key(out: &mut Vec<u8>, key: &str, value: &(impl Serialize + ?Sized)) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    json(out, value);
}

fn list(out: &mut Vec<u8>, name: &str, values: &[impl Serialize]) {
    if !values.is_empty() {
        key(out, name, values);
    }
}

/// The difference as a signed number; [`plus`] undoes it, also where a counter went backwards or wrapped.
fn minus(now: u64, old: u64) -> i64 {
    now.wrapping_sub(old).cast_signed()
}

fn plus(old: u64, added: i64) -> u64 {
    old.wrapping_add_signed(added)
}

fn names(mask: u32) -> Vec<&'static str> {
    Signal::ALL.iter().filter(|s| mask >> **s as u32 & 1 == 1).map(|s| s.name()).collect()
}

/// Whether a task's counts are those that a reader assumes without being told.
fn same(before: Option<&Counters>, now: &Counters) -> bool {
    match before {
        Some(before) => before.iter().eq(now.iter()),
        None => now.iter().next().is_none(),
    }
}

/// An application without readings that are no numbers: JSON has no word for them, and they say nothing.
pub fn finite(app: &AppSample) -> AppSample {
    let mut app = app.clone();
    app.metrics.retain(|(_, reading)| reading.value.is_finite());
    app
}

/// Rebuilds samples and rounds from rows.
#[derive(Debug, Default)]
pub struct Decoder {
    sample: Arc<Sample>,
    /// Signals by layout number; `None` for those that this version does not know.
    layouts: Vec<Vec<Option<Signal>>>,
    state: State,
}

/// What a row stands for.
#[derive(Debug)]
pub enum Meaning {
    /// A sample without a round.
    Base,
    /// A round.
    Round(Box<RecordedRound>),
    /// The end mark.
    End(End),
}

impl Decoder {
    /// Takes a row in. After an error the decoder is not used again.
    pub fn row(&mut self, text: &[u8]) -> Result<Meaning, Bad> {
        let row: Row = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if let Some(end) = row.end {
            return Ok(Meaning::End(end));
        }
        for names in &row.layouts {
            self.layouts.push(names.iter().map(|name| Signal::from_name(name)).collect());
        }
        if self.layouts.len() > MAX_LAYOUTS {
            return Err(format!("more than {MAX_LAYOUTS} layouts"));
        }
        let prev = self.sample.clone();
        let mut next = if row.base { Sample::default() } else { (*prev).clone() };
        if row.at < next.at {
            return Err(format!("time goes backwards, from {} to {} ns", next.at.0, row.at.0));
        }
        next.at = row.at;
        self.tasks(&mut next, &row)?;
        cpus(&mut next, &row)?;
        if let Some(apps) = row.apps {
            next.apps = apps;
        }
        self.sample = Arc::new(next);
        if row.base {
            return Ok(Meaning::Base);
        }
        let decision = row.decision.map(|d| {
            let state = d.state.unwrap_or_else(|| self.state.clone());
            self.state.clone_from(&state);
            Decision { proposals: d.proposals.into_owned(), state, wake_at: d.wake_at, notes: d.notes.into_owned() }
        });
        let (orders, outcomes) = orders(row.orders, decision.as_ref())?;
        Ok(Meaning::Round(Box::new(RecordedRound { prev, sample: self.sample.clone(), decision, orders, outcomes })))
    }

    fn tasks(&self, sample: &mut Sample, row: &Row) -> Result<(), Bad> {
        if !row.gone.is_empty() {
            let gone: BTreeSet<TaskId> = row.gone.iter().copied().collect();
            let before = sample.tasks.len();
            sample.tasks.retain(|t| !gone.contains(&t.info.id));
            if sample.tasks.len() + row.gone.len() != before {
                return Err("tasks go that were not there".to_owned());
            }
        }
        let mut new = Vec::new();
        for info in &row.info {
            let info = Arc::new(info.clone());
            match find(sample, info.id) {
                Ok(i) => sample.tasks[i].info = info,
                Err(_) => new.push(TaskSample { info, ..TaskSample::default() }),
            }
        }
        sample.tasks.append(&mut new);
        sample.tasks.sort_by_key(|t| t.info.id);
        if let Some(pair) = sample.tasks.windows(2).find(|pair| pair[0].info.id == pair[1].info.id) {
            return Err(format!("task {} comes twice", pair[0].info.id));
        }
        if sample.tasks.len() > MAX_TASKS {
            return Err(format!("more than {MAX_TASKS} tasks in a sample"));
        }
        for numbers in &row.tasks {
            self.task(sample, numbers).ok_or_else(|| format!("a task's numbers make no sense: {numbers:?}"))?;
        }
        for (id, pages) in &row.pages {
            let i = find(sample, *id)?;
            sample.tasks[i].pages_by_node.clone_from(pages);
        }
        Ok(())
    }

    /// Takes in what [`Encoder::task`] wrote.
    fn task(&self, sample: &mut Sample, numbers: &[i64]) -> Option<()> {
        let (&[id, cpu, layout], counts) = numbers.split_first_chunk::<3>()?;
        let i = find(sample, TaskId(id.try_into().ok()?)).ok()?;
        let layout = self.layouts.get(usize::try_from(layout).ok()?)?;
        let (values, clocks) = counts.split_at_checked(layout.len())?;
        let task = &mut sample.tasks[i];
        task.cpu = match cpu {
            -1 => None,
            cpu => Some(CpuId(cpu.try_into().ok()?)),
        };
        let mut counters = Counters::default();
        let mut columns = layout.iter().zip(values);
        for run in clocks.chunks(3) {
            let &[length, enabled, running] = run else { return None };
            for _ in 0..length {
                let (signal, value) = columns.next()?;
                let Some(signal) = *signal else { continue };
                let old = task.counters.get(signal).unwrap_or_default();
                let count = Count {
                    value: plus(old.value, *value),
                    enabled_ns: plus(old.enabled_ns, enabled),
                    running_ns: plus(old.running_ns, running),
                };
                counters.set(signal, count);
            }
        }
        task.counters = counters;
        columns.next().is_none().then_some(())
    }
}

fn find(sample: &Sample, id: TaskId) -> Result<usize, Bad> {
    sample
        .tasks
        .binary_search_by_key(&id, |t| t.info.id)
        .map_err(|_| format!("it speaks of task {id}, which is not there"))
}

fn cpus(sample: &mut Sample, row: &Row) -> Result<(), Bad> {
    if let Some(set) = &row.cpus {
        let old = |id| sample.cpus.binary_search_by_key(&id, |c| c.id).map_or(0, |i| sample.cpus[i].busy_ns);
        sample.cpus = set.iter().map(|id| CpuSample { id, busy_ns: old(id) }).collect();
    }
    if row.busy.is_empty() {
        return Ok(());
    }
    if row.busy.len() != sample.cpus.len() {
        return Err(format!("{} busy times for {} CPUs", row.busy.len(), sample.cpus.len()));
    }
    for (cpu, added) in sample.cpus.iter_mut().zip(&row.busy) {
        cpu.busy_ns = plus(cpu.busy_ns, *added);
    }
    Ok(())
}

fn orders(rows: Vec<OrderRow>, decision: Option<&Decision>) -> Result<(Vec<Order>, Vec<Outcome>), Bad> {
    let order = |row: OrderRow| {
        let proposal = row.of.and_then(|i| decision?.proposals.get(i)).map(|p| (p.action.clone(), p.reason.clone()));
        let (action, reason) = proposal.or(row.action.zip(row.reason)).ok_or("an order carries out nothing")?;
        Ok((Order { action, affinity: row.affinity, reason }, row.outcome))
    };
    Ok(rows.into_iter().map(order).collect::<Result<Vec<_>, Bad>>()?.into_iter().unzip())
}
