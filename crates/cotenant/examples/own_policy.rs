//! A policy of one's own, with `run`, `sim`, `replay` and everything else: `docs/how-to/write-a-policy.md` walks
//! through it.

use cotenant_model::policy::{Ctx, Entry, Policy};
use cotenant_model::view::TaskView;
use cotenant_model::{Action, ActionOutcome, CpuSet, Decision, Proposal, Reason, TaskId, Time, View};

/// Keeps each task on the CPU where it was first seen busy.
struct Stay(Settings);

#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Fraction of an interval on a CPU, 0–1, from which on a task is busy; 0.5 where it is not set.
    busy: Option<f64>,
}

impl Policy for Stay {
    const SECTION: &'static str = "stay";
    type State = Vec<TaskId>; // the tasks that were placed
    type Settings = Settings;

    fn name(&self) -> &'static str {
        "stay"
    }

    fn decide(
        &self,
        ctx: &Ctx,
        view: &View,
        _: &[ActionOutcome],
        placed: Vec<TaskId>,
        now: Time,
    ) -> Decision<Vec<TaskId>> {
        let stay = |task: &TaskView| {
            let (id, contexts) = (task.info.id, CpuSet::single(task.cpu?));
            let busy = task.cpu_share()? >= self.0.busy.unwrap_or(0.5) && !placed.contains(&id);
            let reason = Reason::new("stay", "it was busy here");
            busy.then_some(Proposal { action: Action::Place { task: id, contexts }, reason })
        };
        let proposals: Vec<Proposal> = view.tasks.iter().filter_map(stay).collect();
        let state = placed.iter().copied().chain(proposals.iter().filter_map(|p| p.action.task())).collect();
        Decision::new(proposals, state, now + ctx.config.interval, Vec::new())
    }
}

fn main() -> std::process::ExitCode {
    cotenant::main_with(cotenant_policies::standard().with(Entry::new("stay", Stay)))
}
