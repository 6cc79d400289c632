//! Knowledge of `shapes` about programs, for their next run.

use super::learned_situation::LearnedSituation;
use super::settings::{KnownGroup, KnownShape, ShapesSettings};
use super::shape::Shape;
use super::shape_board::{ShapeBoard, ShapePlaces};
use super::shapes_round::ShapesRound;
use cotenant_model::{AppId, CpuSet, TaskId, TaskView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Limit of remembered situations.
const REMEMBERED: usize = 16;

/// Past best shapes, and threads started in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapesMemory {
    /// The best shapes of past situations, the latest last.
    memory: Vec<KnownShape>,
    /// Groups of past situations whose best shape is the kernel's, despite earlier knowledge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    given_up: Vec<Vec<KnownGroup>>,
    /// Threads started in the former best places of their programs, until the next survey.
    born: ShapePlaces,
}

impl ShapesMemory {
    /// The best shapes of past situations, the latest last.
    pub fn memory(&self) -> &[KnownShape] {
        &self.memory
    }

    /// Groups of past situations whose known shape has lost against the kernel's placement.
    pub fn given_up(&self) -> &[Vec<KnownGroup>] {
        &self.given_up
    }

    /// Threads started in a known shape since the last survey.
    pub fn take_born(&mut self) -> ShapePlaces {
        std::mem::take(&mut self.born)
    }

    /// Known shapes, the latest first, without those that later lost against the kernel's placement.
    fn known<'a>(&'a self, settings: &'a ShapesSettings) -> impl Iterator<Item = &'a KnownShape> {
        let holds = |known: &&KnownShape| !self.given_up.contains(&known.groups);
        self.memory.iter().rev().chain(settings.known.iter().filter(holds))
    }

    /// The best known shape for a situation.
    pub fn best_for(
        &self,
        situation: &LearnedSituation,
        board: &ShapeBoard,
        settings: &ShapesSettings,
    ) -> Option<Shape> {
        let (groups, threads, allowed) = (situation.described(), situation.threads(), situation.allowed());
        let sound = |shape: &Shape| shape.is_for(board, &threads) && shape.fits(board, &allowed);
        self.known(settings).find_map(|known| known.of(&groups).filter(sound))
    }

    /// The best known shape for the programs that run now, by their names alone.
    fn best_by_name<'a>(&'a self, round: &ShapesRound<'a>, board: &ShapeBoard) -> Option<&'a KnownShape> {
        let present: BTreeSet<&str> = round.view.tasks.iter().map(|task| name(round, task.info.app)).collect();
        let is_for = |known: &&KnownShape| {
            let names: BTreeSet<&str> = known.groups.iter().map(|group| group.app.as_str()).collect();
            let threads: Vec<usize> = known.groups.iter().map(|group| group.threads).collect();
            names == present && known.shape.is_for(board, &threads)
        };
        self.known(round.settings).find(is_for)
    }

    /// Starts new threads in the former best places of their programs, so that they touch memory there. Returns all
    /// places from now on, if any thread gets one. `tasks` are those of the last round, `wanted` the places so far.
    pub fn start_threads(
        &mut self,
        round: &ShapesRound<'_>,
        tasks: &[TaskId],
        wanted: &ShapePlaces,
    ) -> Option<ShapePlaces> {
        self.known(round.settings).next()?;
        let board = ShapeBoard::new(round.ctx.topology, round.ctx.topology.usable(), |_| 0);
        let known = self.best_by_name(round, &board)?.clone();
        let mut left = known.shape.counts.clone();
        let mut seat = |app: &str, on: Option<&CpuSet>| {
            let own = |group: &usize| known.groups[*group].app == app;
            let fits = |d: &usize| on.is_none_or(|on| on.is_subset(&board.domains[*d].cpus));
            let free = (0..left.len()).filter(own).flat_map(|g| (0..board.domains.len()).map(move |d| (g, d)));
            let (group, domain) = { free }.find(|(g, d)| left[*g][*d] > 0 && fits(d))?;
            left[group][domain] -= 1;
            Some(domain)
        };
        for (task, on) in wanted {
            if let Some(task) = round.view.task(*task) {
                seat(name(round, task.info.app), Some(on));
            }
        }
        let mut places = wanted.clone();
        // A new process has touched no memory yet; new threads of an old one would leave its memory.
        let began = |app: AppId| {
            round.view.tasks.iter().filter(|t| t.info.app == app).all(|t| tasks.binary_search(&t.info.id).is_err())
        };
        // A process's first thread waits for the others, which would inherit its mask.
        let new = |t: &&TaskView| tasks.binary_search(&t.info.id).is_err() && t.info.tid != t.info.pid && !t.info.old;
        for task in round.view.tasks.iter().filter(new) {
            let Some(domain) = seat(name(round, task.info.app), None) else { continue };
            let place = ShapePlaces::from([(task.info.id, board.domains[domain].cpus.and(&task.info.allowed))]);
            if !place[&task.info.id].is_empty() && (began(task.info.app) || !round.drags_memory(&place)) {
                self.born.extend(place.clone());
                places.extend(place);
            }
        }
        (places != *wanted).then_some(places)
    }

    /// Drops ended threads.
    pub fn retain(&mut self, round: &ShapesRound<'_>) {
        self.born.retain(|task, _| round.view.task(*task).is_some());
    }

    /// Stores the best shape of a situation. `is_kernel`: it is the kernel's placement.
    pub fn remember(&mut self, known: KnownShape, is_kernel: bool) {
        self.memory.retain(|before| before.groups != known.groups);
        self.given_up.retain(|groups| *groups != known.groups);
        if is_kernel {
            self.given_up.push(known.groups);
        } else {
            self.memory.push(known);
        }
        self.memory.drain(..self.memory.len().saturating_sub(REMEMBERED));
        self.given_up.drain(..self.given_up.len().saturating_sub(REMEMBERED));
    }
}

fn name<'a>(round: &ShapesRound<'a>, app: AppId) -> &'a str {
    round.view.app(app).map_or("", |app| app.name.as_str())
}

#[cfg(test)]
impl ShapesMemory {
    pub fn born(&self) -> &ShapePlaces {
        &self.born
    }
}
