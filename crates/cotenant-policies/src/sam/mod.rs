//! `sam`: sharing-aware mapping (Srikanthan, Dwarkadas, Shen: "Data Sharing or Resource Contention", USENIX ATC 2015).
//!
//! Every interval each task is classified by its counters, then three stages move tasks between sockets: sharers
//! together, tasks with remote memory home, memory-bound tasks apart. `docs/policies/sam.md` separates the paper's
//! rules from ours.

mod board;
pub(super) mod classify;
mod config;
mod history;
mod own_app;
mod round;
mod spread;
mod stage1;
mod stage2;
mod stage3;
mod stage4;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod units;

pub use config::{SamConfig, SamConfigError};
pub use state::{Move, Past, SamState};
pub use task::Origin;

use board::Board;
use classify::{Limits, SignalsSeen};
use cotenant_model::policy::{Ctx, Needs, Policy, Refusal};
use cotenant_model::{ActionOutcome, Decision, Time, View};
use round::Round;
use task::{Class, Task};
use units::{At, Level};

/// Sharing-aware mapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sam(pub SamConfig);

impl Policy for Sam {
    const SECTION: &'static str = "sam";
    type State = SamState;
    type Settings = SamConfig;

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        let refuse = |why: &str, remedy: &str| Err(Refusal::new("sam", why, remedy));
        if ctx.machine.thresholds.is_none() {
            let caches = ctx.topology.llc_domains();
            let alike =
                ctx.topology.packages().len() <= 1 && (caches.len() <= 1 || caches.len() >= ctx.topology.cores().len());
            if alike {
                return refuse(
                    "tasks that share data cannot be brought closer together here: one last-level cache serves all \
                     cores, or each core has its own",
                    "use another policy, such as auto; or give thresholds all the same, a file with [thresholds] by \
                     --profile",
                );
            }
            return refuse(
                "this machine's thresholds of coherence and bandwidth are unknown",
                "give a machine file with [thresholds] by --profile",
            );
        }
        if !self.0.wall_clock && ctx.machine.clock_hz.is_none() {
            return refuse(
                "the paper's bandwidth per cycle needs the clock, which is unknown",
                "give a machine file with clock_hz by --profile, or set +wall-clock",
            );
        }
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs { pages: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: SamState,
        now: Time,
    ) -> Decision<SamState> {
        state.learn(outcomes);
        let wake_at = now + ctx.config.interval;
        let config = self.0;
        let memory = Level::memory(ctx.topology, config.memory_nodes);
        let Some(limits) = Limits::new(ctx, config, &memory) else {
            state.moves.clear();
            let notes = self.check(ctx).err().map(|refusal| refusal.to_string()).into_iter().collect();
            return Decision::new(Vec::new(), state, wake_at, notes);
        };

        let sharing = Level::sharing(ctx.topology, config.llc_domains);
        let clock = ctx.machine.clock_hz.filter(|_| !config.wall_clock);
        let (mut tasks, seen) = classify::look(view, sharing.split, clock, config);
        let cores = ctx.topology.cores().iter().filter(|core| core.iter().any(|cpu| sharing.of(cpu).is_some())).count();
        // Helpers (of a runtime, a monitor) need nearly no CPU and must not make the difference.
        let crowded = tasks.iter().map(|task| task.wants).sum::<f64>().round() > cores as f64;
        let was_crowded = state.crowded.unwrap_or(crowded);
        // If each core has its own last-level cache, sharers could not be brought together at all.
        let apart = sharing.split && sharing.len() == cores;
        let whole = config.whole_cores && !(crowded && was_crowded) && !apart;
        let board = Board::new(ctx, view, whole, sharing, memory, &tasks);
        let past = classify_all(&mut tasks, view, &state, config, &board, &limits, seen);
        let mut notes = seen.notes(&limits, config);
        let mut round = Round {
            topology: ctx.topology,
            view,
            config,
            limits,
            now,
            tasks,
            board,
            proposals: Vec::new(),
            moves: Vec::new(),
            sets: [None, None],
        };
        round.rank();
        let packed =
            config.whole_cores && (!whole || state.packed && (crowded || was_crowded || spread::run(&mut round)));
        if config.own_app {
            own_app::run(&mut round);
        } else {
            stage1::run(&mut round);
        }
        stage2::run(&mut round);
        if seen.mem {
            stage3::run(&mut round);
        }
        if config.core_sharing {
            stage4::run(&mut round, ctx.config.pin, &mut notes);
        }

        if config.hold_partners {
            stage1::hold_partners(&mut round);
        }
        let mut moves = round.moves;
        moves.sort_unstable_by_key(|m| m.task);
        let origins = round.tasks.iter().filter_map(|t| t.origin).collect();
        let crowded = config.whole_cores.then_some(crowded);
        Decision::new(round.proposals, SamState { origins, moves, past, crowded, packed }, wake_at, notes)
    }
}

/// Joins observations and state of each task; both are in ascending order of id.
fn classify_all(
    tasks: &mut [Task],
    view: &View,
    state: &SamState,
    config: SamConfig,
    board: &Board<'_>,
    limits: &Limits,
    seen: SignalsSeen,
) -> Vec<Past> {
    let (mut origins, mut moves) = (state.origins.iter().peekable(), state.moves.iter().peekable());
    let (mut before, mut past) = (state.past.iter().peekable(), Vec::new());
    let units = board.level(At::Memory);
    for (t, task) in tasks.iter_mut().enumerate() {
        task.units = board.units(t);
        let at = task.unit(At::Memory);
        let ran = task.ran == Some(true);
        let (mut cooled, mut came) = (None, false);
        if origins.peek().is_some() || moves.peek().is_some() {
            let id = view.tasks[t].info.id;
            while origins.next_if(|o| o.task < id).is_some() {}
            while moves.next_if(|m| m.task < id).is_some() {}
            let last = moves.next_if(|m| m.task == id);
            // A task seen at home is home, unless it was just sent away and has not run since.
            task.origin = origins
                .next_if(|o| o.task == id)
                .copied()
                .filter(|o| (o.unit as usize) < units.len() && !(ran && last.is_none() && at == Some(o.unit as usize)));
            task.before = task.origin;
            cooled = last.filter(|m| config.cooldown && view.at - m.at <= view.interval).map(|m| m.sharer);
            task.settling = cooled == Some(true);
            came = last.is_some();
        }
        task.class = match at {
            None => Class::Absent,
            // It occupies no core that another task could use, and needs none elsewhere.
            Some(_) if board.is_whole() && task.is_helper() => Class::Absent,
            Some(_) if !ran => Class::Unknown,
            Some(unit) => classify::class(&task.rates, seen, limits, units.unit(unit).package, cooled),
        };
        if config.hysteresis {
            let id = view.tasks[t].info.id;
            while before.next_if(|p| p.task < id).is_some() {}
            let known = before.next_if(|p| p.task == id).copied();
            let above = limits.remote.is_some_and(|limit| task.rates.remote.is_some_and(|rate| rate > limit));
            past.extend(history::persist(task, id, known, above, came));
        }
    }
    past
}
