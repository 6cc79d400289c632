//! `numad`: the rules of the Linux NUMA daemon (numad, version 20150602, `manage_loads` and `pick_numa_nodes`): whole
//! processes to the nodes with most room. A competitor for comparison; `docs/policies/numad.md` lists its rules and
//! what is not modelled.

mod pick;
#[cfg(test)]
mod tests;

use cotenant_model::policy::{Ctx, Needs, NoSettings, Policy};
use cotenant_model::{
    Action, ActionOutcome, CpuSet, Decision, Evidence, NodeId, Outcome, PlaceKind, Proposal, Reason, Signal, TaskView,
    Time, Unit, View,
};
use pick::{Node, Request};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time to the next look after a move (`-i`).
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// Time to the next look without a move (`-i`).
const MAX_INTERVAL: Duration = Duration::from_secs(15);
/// Least CPU use of a considered process, hundredths of a CPU.
const CPU_THRESHOLD: u64 = 50;
/// Least memory of a considered process, MiB.
const MEMORY_THRESHOLD: u64 = 300;
/// Target utilization of a process's CPUs, percent (`-u`).
const UTILIZATION: u64 = 85;
/// Target percentage of a process's memory on its nodes (`-m`).
const LOCAL_MEMORY: u64 = 90;
/// A bound process is left alone for this long, unless its node is the fullest and another would be better.
const REEVALUATION: Duration = Duration::from_secs(300);
/// Number of last readings of CPU use, of which the highest counts.
const READINGS: usize = 8;
/// Bytes per page: the base page of x86-64 and most of aarch64.
const PAGE: u64 = 4096;

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numad;

/// State of `numad`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumadState {
    /// Time of the next look.
    due: Time,
    /// Known processes, in ascending order of id.
    processes: Vec<Process>,
    /// The process that the last decision bound, with its nodes before.
    asked: Option<Asked>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    pid: u32,
    /// Its last readings of CPU use, hundredths of a CPU, the latest last.
    readings: Vec<u64>,
    /// Indexes of the nodes to which it is bound; empty: unbound.
    bound: Vec<usize>,
    /// The last time it was bound, or found in place.
    bound_at: Option<Time>,
    /// After a refusal: not before this time again.
    refused_until: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Asked {
    pid: u32,
    at: Time,
    bound: Vec<usize>,
    bound_at: Option<Time>,
}

/// A process in the view.
struct ProcessView<'a> {
    tasks: Vec<&'a TaskView>,
    /// MiB on each node; `None` if unknown.
    on_node: Option<Vec<u64>>,
}

impl ProcessView<'_> {
    fn mbs(&self) -> u64 {
        self.on_node.iter().flatten().sum()
    }
}

fn seen<'a>(ctx: &Ctx<'_>, view: &'a View) -> BTreeMap<u32, ProcessView<'a>> {
    let mut all: BTreeMap<u32, ProcessView<'a>> = BTreeMap::new();
    for task in &view.tasks {
        let process = all.entry(task.info.pid).or_insert_with(|| ProcessView { tasks: Vec::new(), on_node: None });
        process.tasks.push(task);
        // Threads share their pages: the pages of one are known for all.
        if let (None, Some(pages)) = (&process.on_node, &task.pages_by_node) {
            let of = |id| pages.iter().filter(|(node, _)| *node == id).map(|(_, n)| n.saturating_mul(PAGE) >> 20).sum();
            process.on_node = Some(ctx.topology.nodes().iter().map(|node| of(node.id)).collect());
        }
    }
    all
}

impl NumadState {
    /// Undoes a binding that was not carried out at all, and drops nodes that this machine lacks.
    fn learn(&mut self, view: &View, outcomes: &[ActionOutcome], nodes: usize) {
        for process in &mut self.processes {
            if process.bound.iter().any(|&i| i >= nodes) {
                (process.bound, process.bound_at) = (Vec::new(), None);
            }
        }
        let Some(asked) = self.asked.take() else { return };
        let Ok(i) = self.processes.binary_search_by_key(&asked.pid, |p| p.pid) else { return };
        let of_it = |o: &&ActionOutcome| {
            o.action.task().and_then(|task| view.task(task)).is_some_and(|t| t.info.pid == asked.pid)
        };
        if !outcomes.iter().filter(of_it).any(|o| o.outcome == Outcome::Applied) {
            let process = &mut self.processes[i];
            (process.bound, process.bound_at) = (asked.bound, asked.bound_at);
            process.refused_until = outcomes.iter().any(|o| of_it(&o)).then(|| asked.at + REEVALUATION);
        }
    }

    /// Adds each process's CPU use; drops ended processes.
    fn read(&mut self, seen: &BTreeMap<u32, ProcessView<'_>>) {
        let mut old = std::mem::take(&mut self.processes).into_iter().peekable();
        for (&pid, process) in seen {
            while old.next_if(|p| p.pid < pid).is_some() {}
            let mut known = old.next_if(|p| p.pid == pid).unwrap_or(Process { pid, ..Process::default() });
            let shares = process.tasks.iter().filter_map(|t| t.cpu_share());
            // Rounded to hundredths, so that the order of threads cannot change the sum.
            known.readings.push(shares.map(|share| (share * 100.0).round() as u64).sum());
            if known.readings.len() > READINGS {
                known.readings.remove(0);
            }
            self.processes.push(known);
        }
    }
}

impl Process {
    /// Hundredths of a CPU: the maximum of the last readings.
    fn cpus(&self) -> u64 {
        self.readings.iter().copied().max().unwrap_or(0)
    }
}

/// In order of consideration: first unbound processes by size, then bound ones by size in steps of 20 %, and within a
/// step by the time of binding.
fn candidates(processes: &[Process], seen: &BTreeMap<u32, ProcessView<'_>>, now: Time) -> Vec<usize> {
    let size = |i: usize| processes[i].cpus() * seen.get(&processes[i].pid).map_or(0, ProcessView::mbs);
    let fit = |i: &usize| {
        let process = &processes[*i];
        process.cpus() > CPU_THRESHOLD
            && seen.get(&process.pid).is_some_and(|s| s.mbs() > MEMORY_THRESHOLD)
            && process.refused_until.is_none_or(|until| until <= now)
    };
    let mut order: Vec<usize> = (0..processes.len()).filter(fit).collect();
    order.sort_by_key(|&i| (!processes[i].bound.is_empty(), std::cmp::Reverse(size(i))));
    let bound = order.partition_point(|&i| processes[i].bound.is_empty());
    let mut rest = &mut order[bound..];
    while let Some(&biggest) = rest.first() {
        let step = rest.partition_point(|&i| size(biggest) - size(i) <= size(i) / 5);
        rest[..step].sort_by_key(|&i| processes[i].bound_at);
        rest = &mut rest[step..];
    }
    order
}

/// Whether moving a process off the fullest node would balance the nodes better, so that it need not wait.
fn would_do_better(nodes: &[Node], process: &Process, request: &Request) -> bool {
    let with_cpus: Vec<usize> = (0..nodes.len()).filter(|&i| nodes[i].cpus_total > 0).collect();
    let Some(&first) = with_cpus.first() else { return false };
    let gain = |free: &dyn Fn(usize) -> u64, used: u64, slop: u64| {
        let all = || with_cpus.iter().map(|&i| free(i));
        let (least, most) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
        let mean = all().sum::<u64>() / with_cpus.len() as u64;
        (least + used).abs_diff(mean) + mean.abs_diff(most.saturating_sub(used)) + slop < most - least
    };
    let fullest = |free: &dyn Fn(usize) -> u64| with_cpus.iter().copied().min_by_key(|&i| free(i));
    let cpus = |i: usize| nodes[i].cpus_free;
    let sized = with_cpus.iter().all(|&i| nodes[i].memory.is_some());
    let mbs = |i: usize| nodes[i].memory.map_or(0, |(_, free)| free);
    let on_fullest =
        [fullest(&cpus), fullest(&mbs).filter(|_| sized)].iter().flatten().any(|i| process.bound.contains(i));
    on_fullest
        && request.cpus < nodes[first].cpus_total
        && nodes[first].memory.is_none_or(|(total, _)| request.mbs < total)
        && gain(&cpus, request.cpus_used, CPU_THRESHOLD)
        && (!sized || gain(&mbs, request.on_node.iter().sum(), 0))
}

impl Policy for Numad {
    const SECTION: &'static str = "numad";
    type State = NumadState;
    type Settings = NoSettings;

    fn needs(&self) -> Needs {
        Needs { pages: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: NumadState,
        now: Time,
    ) -> Decision<NumadState> {
        let topology = ctx.topology;
        state.learn(view, outcomes, topology.nodes().len());
        if now < state.due {
            let wake_at = state.due;
            return Decision::new(Vec::new(), state, wake_at, Vec::new());
        }
        let mut notes = Vec::new();
        let mut proposals = Vec::new();
        let seen = seen(ctx, view);
        state.read(&seen);
        let with_cpus = topology.nodes().iter().filter(|n| n.cpus.intersects(topology.usable())).count();
        if with_cpus < 2 {
            notes.push(
                "numad: this machine has one memory node, or none that is known; there is nothing to choose".into(),
            );
        } else if !seen.is_empty() && seen.values().all(|s| s.on_node.is_none()) {
            notes.push(
                "numad: where the memory of these processes is cannot be read, so none counts as big enough to be \
                 placed"
                    .into(),
            );
        } else {
            if topology.nodes().iter().any(|n| n.bytes.is_none()) {
                notes.push(
                    "numad: the sizes of memory nodes are unknown, so nodes are compared by their CPUs and the processes' own \
                     pages; give them in a machine file"
                        .into(),
                );
            }
            proposals = state.bind_one(ctx, view, &seen, now);
        }
        state.due = now + if proposals.is_empty() { MAX_INTERVAL } else { MIN_INTERVAL };
        let wake_at = state.due;
        Decision::new(proposals, state, wake_at, notes)
    }
}

impl NumadState {
    /// Binds the first process with better nodes than its own. Only one, so that the next one is measured after this
    /// move.
    fn bind_one(
        &mut self,
        ctx: &Ctx<'_>,
        view: &View,
        seen: &BTreeMap<u32, ProcessView<'_>>,
        now: Time,
    ) -> Vec<Proposal> {
        let topology = ctx.topology;
        let count = topology.nodes().len();
        let used = |i: usize| seen.values().filter_map(|s| s.on_node.as_ref()).map(|mbs| mbs[i]).sum();
        let nodes = pick::nodes(topology, view, &(0..count).map(used).collect::<Vec<u64>>());
        let distances = pick::distances(topology);
        let usable: Vec<CpuSet> = topology.nodes().iter().map(|n| n.cpus.and(topology.usable())).collect();
        let order = candidates(&self.processes, seen, now);
        let wanted: u64 = order.iter().map(|&i| self.processes[i].cpus()).sum();
        let enough_cpus = wanted <= nodes.iter().map(|n| n.cpus_total).sum();
        for i in order {
            let process = &self.processes[i];
            let Some((tasks, on_node)) = seen.get(&process.pid).and_then(|s| Some((&s.tasks, s.on_node.clone()?)))
            else {
                continue;
            };
            let may = tasks.iter().fold(CpuSet::new(), |all, t| all.or(&t.info.allowed));
            let cpus_used = process.cpus();
            let mbs_used: u64 = on_node.iter().sum();
            let on = on_node.clone();
            let request = Request {
                cpus_used,
                cpus: (cpus_used * 100 / UTILIZATION).min(tasks.len() as u64 * 100),
                mbs: mbs_used * 100 / UTILIZATION,
                on_node,
                bound: process.bound.clone(),
                allowed: usable.iter().map(|cpus| cpus.intersects(&may)).collect(),
                enough_cpus,
            };
            let recent = process.bound_at.is_some_and(|at| at + REEVALUATION > now);
            if recent && !would_do_better(&nodes, process, &request) {
                continue;
            }
            let picked = pick::pick(&nodes, &distances, &request, UTILIZATION);
            if picked.is_empty() {
                continue;
            }
            let process = &mut self.processes[i];
            let local: u64 = picked.iter().map(|&n| on[n]).sum();
            if picked == process.bound && local * 100 >= LOCAL_MEMORY * mbs_used {
                process.bound_at = Some(now); // threads and memory are there
                continue;
            }
            let target = picked.iter().fold(CpuSet::new(), |all, &n| all.or(&usable[n]));
            let mut reason = Reason::new("numad", "");
            let subject = format!("process {} of {mbs_used} MiB", process.pid);
            reason.what = if picked.len() == 1 {
                format!("{subject} to the node with most room, {{place}}").into()
            } else {
                let names: Vec<String> = picked.iter().map(|&n| topology.nodes()[n].id.to_string()).collect();
                format!("{subject} to the nodes with most room: {}", names.join(", ")).into()
            };
            reason.place = picked.first().map(|&n| (PlaceKind::Node, topology.nodes()[n].id.0));
            reason.evidence = Some(Evidence {
                signal: Signal::CpuTime,
                unit: Unit::PerSecond,
                value: cpus_used as f64 * 1e7,
                threshold: CPU_THRESHOLD as f64 * 1e7,
            });
            let place = |task: &&TaskView| {
                let contexts = target.and(&task.info.allowed);
                let action = Action::Place { task: task.info.id, contexts };
                Proposal { action, reason: reason.clone() }
            };
            let follows = |t: &&&TaskView| t.info.allowed.intersects(&target);
            let mut proposals: Vec<Proposal> = Vec::new();
            if picked != process.bound {
                proposals.extend(tasks.iter().filter(follows).map(place));
            }
            if local < mbs_used {
                let nodes: Vec<NodeId> = picked.iter().map(|&n| topology.nodes()[n].id).collect();
                let bring = |task: &&TaskView| {
                    let action = Action::Pages { task: task.info.id, nodes: nodes.clone() };
                    Proposal { action, reason: reason.clone() }
                };
                proposals.extend(tasks.iter().map(bring));
            }
            let before = std::mem::take(&mut process.bound);
            self.asked = Some(Asked { pid: process.pid, at: now, bound: before, bound_at: process.bound_at });
            (process.bound, process.bound_at, process.refused_until) = (picked, Some(now), None);
            return proposals;
        }
        Vec::new()
    }
}
