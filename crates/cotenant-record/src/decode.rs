//! Decodes rows into rounds.

use super::RecordedRound;
use super::row::{End, OrderRow, Row, plus, take};
use cotenant_model::policy::State;
use cotenant_model::usage::Seen;
use cotenant_model::{Count, Counters, CpuId, CpuSample, Decision, Order, Outcome, Sample, Signal, TaskId, TaskSample};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a row cannot be used.
type Bad = String;

/// Limit of tasks in one sample, which bounds a reader's memory: a quarter of what Linux allows.
const MAX_TASKS: usize = 1 << 20;

/// Limit of layouts; each is one combination of signals that some task has.
const MAX_LAYOUTS: usize = 1 << 12;

/// Limit of rules.
const MAX_RULES: usize = 1 << 12;

/// Rebuilds samples and rounds from rows.
#[derive(Debug, Default)]
pub struct Decoder {
    sample: Arc<Sample>,
    /// Signals by layout number; `None` for signals unknown to this version.
    layouts: Vec<Vec<Option<Signal>>>,
    /// State of each rule, and the sample of its last decision; `None`: the recording's first one.
    rules: Vec<(State, Option<Arc<Sample>>)>,
    first: Arc<Sample>,
    /// Known usage of the machine.
    pub usage: Seen,
}

/// Meaning of a row.
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
    /// Decodes a row from the front of `rows`. After an error the decoder must not be used again.
    pub fn row(&mut self, rows: &mut &[u8]) -> Result<Meaning, Bad> {
        let line = rows.iter().position(|b| *b == b'\n').ok_or("it has no end")?;
        let mut row: Row = serde_json::from_slice(&rows[..line]).map_err(|e| e.to_string())?;
        let (numbers, rest) = rows[line + 1..].split_at_checked(row.tasks).ok_or("its numbers are cut")?;
        *rows = rest;
        if let Some(usage) = row.usage.take() {
            self.usage = usage;
        }
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
        self.tasks(&mut next, &row, numbers)?;
        cpus(&mut next, &row)?;
        if let Some(apps) = row.apps {
            next.apps = apps;
        }
        next.numa_balancing = row.numa_balancing.unwrap_or(next.numa_balancing);
        self.sample = Arc::new(next);
        if row.base {
            // A base resets all earlier state.
            self.first = self.sample.clone();
            self.rules.iter_mut().for_each(|(_, before)| *before = None);
            return Ok(Meaning::Base);
        }
        if row.rule >= MAX_RULES {
            return Err(format!("more than {MAX_RULES} rules"));
        }
        self.rules.resize(self.rules.len().max(row.rule + 1), Default::default());
        let (known, before) = &mut self.rules[row.rule];
        let prev = before.replace(self.sample.clone()).unwrap_or_else(|| self.first.clone());
        let decision = row.decision.map(|d| {
            let state = d.state.unwrap_or_else(|| known.clone());
            known.clone_from(&state);
            Decision {
                proposals: d.proposals.into_owned(),
                state,
                wake_at: d.wake_at,
                watch_until: d.watch_until,
                notes: d.notes.into_owned(),
            }
        });
        let (orders, outcomes) = orders(row.orders, decision.as_ref())?;
        Ok(Meaning::Round(Box::new(RecordedRound {
            rule: row.rule,
            prev,
            sample: self.sample.clone(),
            decision,
            orders,
            outcomes,
        })))
    }

    fn tasks(&self, sample: &mut Sample, row: &Row, mut numbers: &[u8]) -> Result<(), Bad> {
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
        while !numbers.is_empty() {
            self.task(sample, &mut numbers).ok_or("the numbers of a task make no sense")?;
        }
        for (id, pages) in &row.pages {
            let i = find(sample, *id)?;
            sample.tasks[i].pages_by_node.clone_from(pages);
        }
        for (id, touches) in &row.touches {
            let i = find(sample, *id)?;
            sample.tasks[i].touches_by_node.clone_from(touches);
        }
        Ok(())
    }

    /// Decodes the numbers of one task, as `Encoder::task` wrote them.
    fn task(&self, sample: &mut Sample, numbers: &mut &[u8]) -> Option<()> {
        let i = find(sample, TaskId(take(numbers)?.try_into().ok()?)).ok()?;
        let task = &mut sample.tasks[i];
        task.cpu = match take(numbers)? {
            -1 => None,
            cpu => Some(CpuId(cpu.try_into().ok()?)),
        };
        let layout = self.layouts.get(usize::try_from(take(numbers)?).ok()?)?;
        let added = layout.iter().map(|_| take(numbers)).collect::<Option<Vec<i64>>>()?;
        let mut counters = Counters::default();
        let mut columns = layout.iter().zip(added).peekable();
        while columns.peek().is_some() {
            let (run, enabled, missed) = (take(numbers)?, take(numbers)?, take(numbers)?);
            if run < 1 {
                return None;
            }
            for _ in 0..run {
                let (signal, added) = columns.next()?;
                let Some(signal) = *signal else { continue };
                let old = task.counters.get(signal).unwrap_or_default();
                let count = Count {
                    value: plus(old.value, added),
                    enabled_ns: plus(old.enabled_ns, enabled),
                    running_ns: plus(old.running_ns, enabled.wrapping_sub(missed)),
                };
                counters.set(signal, count);
            }
        }
        task.counters = counters;
        Some(())
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
