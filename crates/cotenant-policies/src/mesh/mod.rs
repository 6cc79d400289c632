//! `weighted`, `brute-force` and `overhead`: tasks near the memory that they access (Tumanov, Wise, Mutlu, Ganger:
//! "Asymmetry-aware execution placement on manycore chips", 2013), and `assignment`, which solves all tasks at once.
//! `docs/policies/asymmetry.md` separates the paper's rules from ours.

mod board;
mod demand;
mod load;
mod pages;
mod search;
#[cfg(test)]
mod tests;

use super::plan::{Plan, free_for};
use board::{Board, Guest, Seating, WORTHWHILE};
use cotenant_model::policy::{Ctx, Needs, Policy, Refusal};
use cotenant_model::{
    ActionOutcome, CpuId, CpuSet, Decision, PlaceKind, Reason, TaskId, TaskView, Time, Topology, View,
};
use demand::Demand;
use serde::{Deserialize, Serialize};
use std::cell::LazyCell;
use std::collections::BTreeMap;

/// A task loses its place after this many looks without running.
const PATIENCE: u32 = 10;

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mesh {
    /// Each task to the weighted mean of the positions of its memory (§4.1).
    Weighted,
    /// Each task to the free core nearest to its memory (§4.1).
    BruteForce,
    /// All tasks together, exactly (ours).
    Assignment,
    /// The same with balanced controllers if memory may move (`assignment` with [`MeshSettings::load`]).
    Balanced,
    /// Collects everything and moves nothing: the cost of collection (§4.1).
    Overhead,
}

/// Settings of these policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeshSettings {
    /// Ours: `assignment` counts the load of memory controllers. If memory may move, processes behind a busy one move
    /// to a less busy one with their memory.
    pub load: bool,
}

/// Their state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MeshState {
    plan: Plan,
    /// Tasks with known demand.
    known: BTreeMap<TaskId, Known>,
    /// Requested moves of memory.
    fetched: pages::Fetched,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    demand: Demand,
    /// Looks in a row without running.
    idle: u32,
}

impl MeshState {
    fn look(&mut self, ctx: &Ctx<'_>, view: &View) {
        self.known.retain(|id, _| view.task(*id).is_some());
        for task in &view.tasks {
            if let Some(latest) = Demand::seen(ctx.topology, task) {
                // A task that sleeps at first gets no place before it runs.
                let known = || Known { idle: PATIENCE, ..Known::default() };
                self.known.entry(task.info.id).or_insert_with(known).demand.update(latest);
            }
            if let Some(known) = self.known.get_mut(&task.info.id) {
                known.idle = if task.ran() == Some(false) { known.idle.saturating_add(1) } else { 0 };
            }
        }
        let nodes = ctx.topology.nodes().len();
        self.known.retain(|_, known| known.demand.shares.len() == nodes);
    }

    /// Tasks to place in order of choice: latency-sensitive ones, then those with most accesses.
    fn guests(&self, ctx: &Ctx<'_>, view: &View) -> Vec<Guest> {
        let tasks = |task: &&TaskView| self.known.get(&task.info.id).is_some_and(|known| known.idle < PATIENCE);
        let mut guests: Vec<(bool, Guest)> = view
            .tasks
            .iter()
            .filter(tasks)
            .map(|task| {
                let app = view.app(task.info.app);
                let profile = app.and_then(|app| ctx.apps.get(&app.name));
                let demand = self.known[&task.info.id].demand.clone();
                let weight = demand.rate * profile.and_then(|profile| profile.weight).unwrap_or(1.0);
                let allowed = task.info.allowed.and(ctx.topology.usable());
                let first = profile.is_some_and(|profile| profile.latency_sensitive);
                (first, Guest { task: task.info.id, allowed, demand, weight, home: task.cpu, brings: false })
            })
            .collect();
        guests.sort_by(|(a_first, a), (b_first, b)| {
            b_first.cmp(a_first).then(b.weight.total_cmp(&a.weight)).then(a.task.cmp(&b.task))
        });
        guests.into_iter().map(|(_, guest)| guest).collect()
    }

    /// The current mapping, if it still has a legal place for each guest.
    fn standing(&self, board: &Board, guests: &[Guest]) -> Option<Seating> {
        let by_cpu = board.by_cpu();
        let seat = |(i, guest): (usize, &Guest)| {
            let seat = *by_cpu.get(&self.plan.wanted().get(&guest.task)?.first()?)?;
            board.admits(seat, guest).then_some((i, seat))
        };
        guests.iter().enumerate().map(seat).collect()
    }
}

impl Mesh {
    fn seat(self, board: &Board, guests: &[Guest], notes: &mut Vec<String>) -> Seating {
        match self {
            Self::Overhead => Seating::new(),
            Self::BruteForce => search::brute_force(board, guests),
            Self::Weighted => search::weighted(board, guests),
            Self::Assignment | Self::Balanced => {
                let (seating, exact) = search::assignment(board, guests);
                if !exact {
                    notes.push(format!(
                        "assignment: {} tasks on {} CPUs are too many to be solved in time; placed as by brute-force",
                        guests.len(),
                        board.seats.len()
                    ));
                }
                seating
            }
        }
    }

    /// Tasks to place, with their demands.
    fn guests(self, ctx: &Ctx<'_>, view: &View, state: &MeshState) -> Vec<Guest> {
        let mut guests = state.guests(ctx, view);
        if self == Self::Balanced && ctx.config.move_pages {
            load::balance(ctx, view, |task| state.fetched.refused(task, view.at), &mut guests);
        }
        guests
    }

    /// Renews the mapping, if that pays.
    fn plan(self, ctx: &Ctx<'_>, view: &View, state: &mut MeshState, notes: &mut Vec<String>) {
        let mut guests = self.guests(ctx, view, state);
        let tasks: Vec<&TaskView> = guests.iter().filter_map(|guest| view.task(guest.task)).collect();
        let board = Board::new(ctx.topology, &free_for(ctx, view, &tasks, state.plan.wanted()));
        let allowed = guests.iter().fold(CpuSet::new(), |all, guest| all.or(&guest.allowed));
        let is_choice = Board::is_choice_among(ctx.topology, &allowed);
        if guests.is_empty() {
            if !view.tasks.is_empty() {
                notes.push(format!("{}: nothing tells which memory these tasks access", self.name()));
            }
        } else if !is_choice {
            notes.push(format!("{}: {}", self.name(), no_choice(ctx.topology)));
        }
        if ctx.config.move_pages {
            pages::hold_those_with_little_memory(ctx, view, &board, &mut guests);
        }
        let mut seating = if is_choice { self.seat(&board, &guests, notes) } else { Seating::new() };
        let cost = board.cost(&guests, &seating);
        if let Some(standing) = state.standing(&board, &guests) {
            let before = board.cost(&guests, &standing);
            if (before.unseated, before.doubled) <= (cost.unseated, cost.doubled)
                && cost.distance >= before.distance * WORTHWHILE
            {
                seating = standing;
            }
        }
        if !seating.is_empty() && seating.len() < guests.len() {
            notes.push(format!(
                "{}: {} tasks find no free CPU that they may use; they are left where they are",
                self.name(),
                guests.len() - seating.len()
            ));
        }
        let mut members: Vec<TaskId> = guests.iter().map(|guest| guest.task).collect();
        members.sort_unstable();
        let wanted =
            seating.iter().map(|(&i, &seat)| (guests[i].task, CpuSet::single(board.seats[seat].cpu))).collect();
        if wanted != *state.plan.wanted() || !state.plan.fits(ctx, members_of(view, &members)) {
            state.plan.set(members, wanted);
        }
    }
}

fn no_choice(topology: &Topology) -> String {
    let source = topology.parts().distances.as_ref().and_then(|distances| distances.source.as_deref());
    let known = source.map_or_else(|| "as far as is known".to_owned(), |source| format!("by distances {source}"));
    format!("every CPU is equally far from each memory, {known}: there is nothing to choose")
}

fn members_of<'a>(view: &'a View, members: &'a [TaskId]) -> impl Iterator<Item = &'a TaskView> {
    members.iter().filter_map(|id| view.task(*id))
}

impl Policy for Mesh {
    const SECTION: &'static str = "mesh";
    type State = MeshState;
    type Settings = MeshSettings;

    fn name(&self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::BruteForce => "brute-force",
            Self::Assignment | Self::Balanced => "assignment",
            Self::Overhead => "overhead",
        }
    }

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        match self {
            Self::Overhead => Ok(()),
            _ if Board::is_choice_among(ctx.topology, ctx.topology.usable()) => Ok(()),
            _ => Err(Refusal::new(
                self.name(),
                no_choice(ctx.topology),
                "give distances in a machine file or with --profile (with several memory nodes cotenant calibrate \
                 measures them), or use another policy",
            )),
        }
    }

    fn needs(&self) -> Needs {
        Needs { task_changes: *self != Self::Overhead, pages: true, accesses: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: MeshState,
        now: Time,
    ) -> Decision<MeshState> {
        let mut notes = Vec::new();
        state.plan.learn(ctx, view, outcomes, now);
        state.fetched.learn(view, outcomes, now);
        state.look(ctx, view);
        if *self == Self::Overhead {
            state.plan = Plan::default();
        } else {
            self.plan(ctx, view, &mut state, &mut notes);
        }
        let board = LazyCell::new(|| {
            let board = Board::new(ctx.topology, ctx.topology.usable());
            (board.by_cpu(), board)
        });
        let reason = |task: TaskId| {
            let cpu = state.plan.wanted().get(&task).and_then(CpuSet::first);
            let seat = |cpu: Option<CpuId>| board.0.get(&cpu?).copied();
            let known = state.known.get(&task).map(|known| &known.demand);
            let what = known.zip(seat(cpu)).map(|(demand, to)| {
                let (node, share) = demand.most().unwrap_or_default();
                let node = ctx.topology.nodes()[node].id;
                let from = seat(view.task(task).and_then(|t| t.cpu));
                let far = |seat| format!("{:.1}", board.1.mean_distance(seat, demand));
                let (from, to) = (from.map_or_else(|| "?".to_owned(), far), far(to));
                format!(
                    "{:.0} % of its accesses go to node {node}; mean distance {from} → {to}, to {{place}}",
                    share * 100.0
                )
            });
            let what = what.unwrap_or_else(|| "to {place}".to_owned()).into();
            Reason { what, place: cpu.map(|cpu| (PlaceKind::Cpu, cpu.0)), ..Reason::new(self.name(), "") }
        };
        let mut proposals = state.plan.proposals(now, reason);
        if ctx.config.move_pages && *self != Self::Overhead {
            let mut guests = self.guests(ctx, view, &state);
            pages::hold_those_with_little_memory(ctx, view, &board.1, &mut guests);
            let seats = |task: TaskId| state.plan.wanted().get(&task).and_then(CpuSet::first);
            proposals.extend(state.fetched.proposals(self.name(), ctx, view, &board.1, &guests, seats, now));
        }
        Decision::new(proposals, state, now + ctx.config.interval, notes)
    }
}
