//! Data to execution (ours): memory moves to the thread if the thread cannot move to its memory, or would leave more
//! than that behind in caches.

use super::board::{Board, Guest, WORTHWHILE};
use cotenant_model::policy::Ctx;
use cotenant_model::topology::{CacheType, Kind};
use cotenant_model::{
    Action, ActionOutcome, CpuId, CpuSet, NodeId, Outcome, PlaceKind, Proposal, Reason, TaskId, TaskView, Time, View,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of a base page, for comparing pages with caches.
const PAGE: u64 = 4096;
/// Interval between requests for a process's memory, because a host moves it gradually and new pages appear; longer
/// after a refusal.
const AGAIN: Duration = Duration::from_secs(1);
const AFTER_REFUSAL: Duration = Duration::from_secs(60);

/// Requested moves of memory and how long each is valid, by the task that represents its process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Fetched(BTreeMap<TaskId, Time>);

/// Bytes of the caches private to this core, whose contents a moved thread loses. 0 if none is known.
fn own_caches(ctx: &Ctx<'_>, cpu: CpuId) -> u64 {
    let Some(core) = ctx.topology.core_of(cpu).map(|core| &ctx.topology.cores()[core]) else { return 0 };
    let caches =
        ctx.topology.resources().iter().filter(|r| matches!(r.kind, Kind::Cache(CacheType::Unified | CacheType::Data)));
    caches.filter(|r| r.cpus.contains(cpu) && r.cpus.is_subset(core)).filter_map(|r| r.capacity).max().unwrap_or(0)
}

/// Tasks that stay because their memory is the smaller burden: that of the whole process fits into their core's caches.
pub(super) fn hold_those_with_little_memory(ctx: &Ctx<'_>, view: &View, board: &Board, guests: &mut [Guest]) {
    let seats = board.by_cpu();
    let homes: Vec<Option<CpuId>> = guests.iter().map(|guest| guest.home).collect();
    for guest in guests.iter_mut().filter(|guest| !guest.brings) {
        let home = guest.home.filter(|home| seats.contains_key(home) && guest.allowed.contains(*home));
        let pages = view.task(guest.task).and_then(|task| task.pages_by_node.as_ref());
        let (Some(home), Some(pages)) = (home, pages) else { continue };
        let bytes: u64 = pages.iter().map(|(_, n)| n.saturating_mul(PAGE)).sum();
        let alone = homes.iter().filter(|other| **other == Some(home)).count() == 1;
        if alone && bytes <= own_caches(ctx, home) {
            guest.allowed = CpuSet::single(home);
        }
    }
}

impl Fetched {
    pub(super) fn learn(&mut self, view: &View, outcomes: &[ActionOutcome], now: Time) {
        self.0.retain(|task, _| view.task(*task).is_some());
        for ActionOutcome { action, outcome } in outcomes {
            let wait = match outcome {
                Outcome::Denied => AFTER_REFUSAL,
                Outcome::Stale => AGAIN,
                _ => continue,
            };
            if let Action::Pages { task, .. } = action {
                self.0.insert(*task, now + wait);
            }
        }
    }

    /// Whether a move of the task's memory was recently refused.
    pub(super) fn refused(&self, task: TaskId, now: Time) -> bool {
        self.0.get(&task).is_some_and(|until| *until > now + AGAIN)
    }

    /// Requests the memory of each process whose threads all run, or stay, nearest to one node that lacks part of it:
    /// if none of the threads may move nearer.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn proposals(
        &mut self,
        policy: &'static str,
        ctx: &Ctx<'_>,
        view: &View,
        board: &Board,
        guests: &[Guest],
        seat_of: impl Fn(TaskId) -> Option<CpuId>,
        now: Time,
    ) -> Vec<Proposal> {
        let by_cpu = board.by_cpu();
        let mut processes: BTreeMap<u32, Vec<(&Guest, &TaskView, usize)>> = BTreeMap::new();
        let mut elsewhere = Vec::new();
        for guest in guests {
            let Some(task) = view.task(guest.task) else { continue };
            match seat_of(guest.task).or(guest.home).and_then(|cpu| by_cpu.get(&cpu)) {
                Some(&seat) => processes.entry(task.info.pid).or_default().push((guest, task, seat)),
                None => elsewhere.push(task.info.pid),
            }
        }
        let mut found = Vec::new();
        for (_, threads) in processes.into_iter().filter(|(pid, _)| !elsewhere.contains(pid)) {
            let Some(node) = node_for(ctx, board, &by_cpu, &threads) else { continue };
            let (first, pages) = (threads[0].1.info.id, threads[0].1.pages_by_node.as_ref());
            let on: u64 = pages.iter().flat_map(|p| p.iter()).filter(|(n, _)| *n == node).map(|(_, n)| n).sum();
            let all: u64 = pages.iter().flat_map(|p| p.iter()).map(|(_, n)| n).sum();
            if all == on || self.0.get(&first).is_some_and(|until| *until > now) {
                continue;
            }
            self.0.insert(first, now + AGAIN);
            let why = if threads.iter().any(|(guest, ..)| guest.brings) {
                "its threads go there, where fewer accesses are served"
            } else {
                "its threads stay, and no CPU that they may use is nearer"
            };
            let what = format!("bring {} of {all} pages to {{place}}: {why}", all - on);
            let reason =
                Reason { what: what.into(), place: Some((PlaceKind::Node, node.0)), ..Reason::new(policy, "") };
            found.push(Proposal { action: Action::Pages { task: first, nodes: vec![node] }, reason });
        }
        found
    }
}

/// The node nearest to all threads, if the move pays for all of them and no thread can move itself.
fn node_for(
    ctx: &Ctx<'_>,
    board: &Board,
    by_cpu: &BTreeMap<CpuId, usize>,
    threads: &[(&Guest, &TaskView, usize)],
) -> Option<NodeId> {
    let mut common = None;
    for (guest, _, seat) in threads {
        if guest.brings {
            let (node, _) = guest.demand.most()?;
            if common.is_some_and(|n| n != node) {
                return None;
            }
            common = Some(node);
            continue;
        }
        let row = &board.rows[board.seats[*seat].row];
        let takes_pages = |node: &usize| ctx.topology.nodes()[*node].allowed;
        let nearest = (0..row.len()).filter(takes_pages).min_by(|&a, &b| row[a].total_cmp(&row[b]))?;
        let here = board.mean_distance(*seat, &guest.demand);
        let little = guest.allowed.len() == 1;
        let reachable = guest.allowed.iter().filter_map(|cpu| by_cpu.get(&cpu));
        let best = reachable.map(|&s| board.mean_distance(s, &guest.demand)).min_by(f64::total_cmp)?;
        let stuck = little || best >= here * WORTHWHILE;
        if row[nearest] >= here * WORTHWHILE || !stuck || common.is_some_and(|n| n != nearest) {
            return None;
        }
        common = Some(nearest);
    }
    Some(ctx.topology.nodes()[common?].id)
}
