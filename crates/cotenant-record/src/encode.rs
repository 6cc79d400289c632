//! Encodes rounds as rows.

use super::redact::{self, Redactor};
use super::row::{DecisionRow, End, OrderRow, Pages, finite, minus, put};
use cotenant_model::policy::State;
use cotenant_model::usage::Seen;
use cotenant_model::view::merge;
use cotenant_model::{
    AppSample, Counters, CpuSample, CpuSet, Decision, Order, Outcome, Reason, Sample, Signal, TaskId, TaskInfo,
    TaskSample, Time,
};
use serde::Serialize;
use std::borrow::Cow;

/// Remembers announcements, so that rows contain them once.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Combinations of signals by layout number, one bit per signal.
    layouts: Vec<u32>,
    /// By rule.
    states: Vec<Option<State>>,
    redactor: Option<Redactor>,
    /// Numbers after the current row's line.
    tasks: Vec<u8>,
}

impl Encoder {
    /// An encoder that replaces names with `redactor`.
    pub fn new(redactor: Option<Redactor>) -> Self {
        Self { redactor, ..Self::default() }
    }

    /// A reason, without names in a redacted recording.
    fn told(&self, reason: &Reason) -> Reason {
        let mut reason = reason.clone();
        if let Some(redactor) = &self.redactor {
            reason.what = redactor.text(&reason.what).into();
        }
        reason
    }

    /// Appends the row of a sample to `out`: relative to `prev`, or as a base. [`Self::close`] ends it.
    pub fn sample(&mut self, out: &mut Vec<u8>, prev: Option<&Sample>, next: &Sample) {
        let empty = Sample::default();
        let before = prev.unwrap_or(&empty);
        let announced = self.layouts.len();
        let mut info: Vec<Cow<'_, TaskInfo>> = Vec::new();
        let mut pages: Vec<(TaskId, &Pages)> = Vec::new();
        let mut touches: Vec<(TaskId, &Pages)> = Vec::new();
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
            if old.and_then(|old| old.touches_by_node.as_ref()) != task.touches_by_node.as_ref() {
                touches.push((task.info.id, &task.touches_by_node));
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
            key(out, "tasks", &self.tasks.len());
        }
        list(out, "pages", &pages);
        list(out, "touches", &touches);
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
        if before.numa_balancing != next.numa_balancing {
            key(out, "numa_balancing", &next.numa_balancing);
        }
    }

    /// A task's numbers: its id, CPU (−1: unknown) and layout, then the added events of each signal in the layout's
    /// order. For each run of signals with the same clock follow their number, the nanoseconds added to `enabled`, and
    /// how many of these were not added to `running`.
    fn task(&mut self, task: &TaskSample, before: Option<&Counters>) {
        let mask = task.counters.present();
        let layout = self.layouts.iter().position(|known| *known == mask).unwrap_or_else(|| {
            self.layouts.push(mask);
            self.layouts.len() - 1
        });
        let mut clocks = [(0, 0); Signal::COUNT];
        let mut length = 0;
        let out = &mut self.tasks;
        put(out, task.info.id.0.into());
        put(out, task.cpu.map_or(-1, |cpu| cpu.0.into()));
        put(out, (layout as u64).cast_signed());
        for (signal, now) in task.counters.iter() {
            let old = before.and_then(|counters| counters.get(signal)).unwrap_or_default();
            put(out, minus(now.value, old.value));
            let enabled = minus(now.enabled_ns, old.enabled_ns);
            clocks[length] = (enabled, enabled.wrapping_sub(minus(now.running_ns, old.running_ns)));
            length += 1;
        }
        for run in clocks[..length].chunk_by(|a, b| a == b) {
            put(out, (run.len() as u64).cast_signed());
            put(out, run[0].0);
            put(out, run[0].1);
        }
    }

    /// Appends the keys of a decision and its orders to a sample's row.
    pub fn decision(
        &mut self,
        out: &mut Vec<u8>,
        rule: usize,
        decision: &Decision,
        orders: &[Order],
        outcomes: &[Outcome],
    ) {
        if rule > 0 {
            key(out, "rule", &rule);
        }
        self.states.resize(self.states.len().max(rule + 1), None);
        let known = &mut self.states[rule];
        let mut state = (known.as_ref() != Some(&decision.state)).then(|| decision.state.clone());
        if state.is_some() {
            known.clone_from(&state);
        }
        let mut notes = Cow::from(&decision.notes);
        if let Some(redactor) = &self.redactor {
            notes.to_mut().iter_mut().for_each(|note| *note = redactor.text(note));
        }
        let mut proposals = Cow::from(&decision.proposals);
        if let Some(redactor) = &self.redactor {
            for proposal in proposals.to_mut() {
                proposal.reason = self.told(&proposal.reason);
            }
            state = state.map(|state| redactor.state(&state));
        }
        key(
            out,
            "decision",
            &DecisionRow { proposals, state, wake_at: decision.wake_at, watch_until: decision.watch_until, notes },
        );
        let row = |(order, &outcome): (&Order, &Outcome)| {
            let of = decision.proposals.iter().position(|p| p.action == order.action && p.reason == order.reason);
            let (action, reason) = of.is_none().then(|| (order.action.clone(), self.told(&order.reason))).unzip();
            OrderRow { of, action, reason, affinity: order.affinity.clone(), outcome }
        };
        list(out, "orders", &orders.iter().zip(outcomes).map(row).collect::<Vec<_>>());
    }

    /// Appends the usage of the machine to a sample's row.
    pub fn usage(&self, out: &mut Vec<u8>, usage: &Seen) {
        match &self.redactor {
            Some(_) => key(out, "usage", &redact::usage(usage)),
            None => key(out, "usage", usage),
        }
    }

    /// The row of an end mark.
    pub fn end(&self, at: Time, end: End, usage: Option<&Seen>) -> Vec<u8> {
        let mut out = b"{\"at\":".to_vec();
        json(&mut out, &at);
        if let Some(usage) = usage {
            self.usage(&mut out, usage);
        }
        key(&mut out, "end", &end);
        out.extend_from_slice(b"}\n");
        out
    }

    /// Ends the row.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"}\n");
        out.append(&mut self.tasks);
    }
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

fn names(mask: u32) -> Vec<&'static str> {
    Signal::ALL.iter().filter(|s| mask >> **s as u32 & 1 == 1).map(|s| s.name()).collect()
}

/// Whether a task's counts equal those that a reader assumes by default.
fn same(before: Option<&Counters>, now: &Counters) -> bool {
    match before {
        Some(before) => before == now,
        None => now.iter().next().is_none(),
    }
}
