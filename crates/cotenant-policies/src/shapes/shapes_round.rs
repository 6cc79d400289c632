//! Inputs of a decision of `shapes`.

use super::settings::ShapesSettings;
use super::shape_board::{ShapeBoard, ShapePlaces};
use crate::sam::Sam;
use cotenant_model::policy::Ctx;
use cotenant_model::{CpuSet, TaskId, Time, View};
use std::time::Duration;

/// A calm machine is sampled at most 2^this times less often.
pub(super) const CALMEST: u32 = 3;

/// A round of the loop.
pub(super) struct ShapesRound<'a> {
    pub ctx: &'a Ctx<'a>,
    pub settings: &'a ShapesSettings,
    /// The policy that suggests candidates to `auto`.
    pub sam: Option<&'a Sam>,
    pub view: &'a View,
    pub now: Time,
    /// Whether orders are only advice, without effect on the machine.
    pub advises: bool,
}

impl ShapesRound<'_> {
    pub fn interval(&self) -> Duration {
        self.ctx.config.interval
    }

    /// The time of the next round.
    pub fn tick(&self) -> Time {
        self.now + self.interval()
    }

    /// Whether these places move a thread to another memory node while the kernel moves memory after it: moving it back
    /// takes time to undo.
    pub fn drags_memory(&self, places: &ShapePlaces) -> bool {
        let node = |cpu| self.ctx.topology.node_of(cpu);
        let crosses = |(task, on): (&TaskId, &CpuSet)| {
            let runs_on = self.view.task(*task).and_then(|task| task.cpu);
            runs_on.zip(on.first()).is_some_and(|(from, to)| node(from) != node(to))
        };
        self.view.numa_balancing && places.iter().any(crosses)
    }

    /// Whether the kernel moves memory after threads.
    pub fn memory_is_dragged(&self, board: &ShapeBoard) -> bool {
        self.view.numa_balancing && board.labels.len() > 1
    }

    /// Whether the place of these threads' memory can be read.
    pub fn sees_memory(&self, members: &[(TaskId, usize)]) -> bool {
        let sees = |task: TaskId| self.view.task(task).is_none_or(|task| task.pages_by_node.is_some());
        members.iter().all(|member| sees(member.0))
    }

    /// Whether memory may move, with several nodes to choose from.
    pub fn moves_memory(&self, board: &ShapeBoard) -> bool {
        self.ctx.config.move_pages && board.labels.len() > 1
    }
}
