//! Knowledge about a situation, and the next trial in it.

use super::crossing::Crossing;
use super::learned_situation::LearnedSituation;
use super::ledger::TrialLedger;
use super::moves::{CandidateKind, KINDS, even, neighbour, orderly, seeds};
use super::order::{GroupCounts, ShapeModel};
use super::settings::{KnownShape, Objective};
use super::shape::Shape;
use super::shape_board::{ShapeBoard, ShapePlaces};
use super::trial::{Clock, Goal, STAGES, by_app, lead};
use crate::sam::{Sam, SamState};
use cotenant_model::policy::{Ctx, Policy};
use cotenant_model::stats::Summary;
use cotenant_model::{Action, Decision, TaskId, Time, View};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Draws of a neighbour before all count as tried.
const DRAWS: u32 = 60;
/// Neighbours drawn for the model to choose from.
const DRAWN: u32 = 24;
/// Failed trials in a row before it rests.
const FRUITLESS: u32 = 60;
/// Failed trials in a row before memory may follow.
const SETTLED: u32 = 6;
/// With memory that follows, shapes up to this much worse are tried again, and up to this many.
const NEAR: f64 = 0.12;
const NEAREST: usize = 4;
/// Improvement that counters must predict for a candidate that moves threads to other nodes.
const WORTH_CROSSING: f64 = 0.02;
/// Candidates kept for a finer measurement.
const PROMISING: usize = 16;
/// Shapes known to be no better.
const TRIED: usize = 1_024;
/// `sam` is consulted before trials with a number that this divides.
const ASKED: u32 = 5;
/// The first rest; it doubles each time.
pub(super) const REST: Duration = Duration::from_secs(20);
const LONGEST_REST: Duration = Duration::from_secs(3_600);

/// A shape that may be better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapeCandidate {
    pub shape: Shape,
    pub kind: CandidateKind,
    /// Measurements so far: candidate over incumbent, per application.
    pub pairs: Vec<Vec<f64>>,
    /// The next of [`STAGES`].
    pub stage: usize,
}

/// The shapes that may be tried now.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialScope {
    /// Also shapes that are not work-conserving.
    pub idles: bool,
    /// Also shapes that move threads to other memory nodes.
    pub crosses: bool,
}

impl ShapeCandidate {
    pub fn new(shape: Shape, kind: CandidateKind) -> Self {
        Self { shape, kind, pairs: Vec::new(), stage: 0 }
    }

    fn worth(&self, goal: &Goal) -> f64 {
        let means = self.pairs.iter().map(|pair| goal.worth(pair));
        means.sum::<f64>() / self.pairs.len().max(1) as f64
    }
}

/// Knowledge about a situation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learned {
    pub situation: LearnedSituation,
    pub clock: Clock,
    /// The kernel's choice, and the place of each thread then.
    pub kernel: Shape,
    pub kernel_places: ShapePlaces,
    /// The place of each thread when its memory was allocated, unless the kernel moves memory.
    pub memory: ShapePlaces,
    /// The best so far.
    pub incumbent: Shape,
    pub places: ShapePlaces,
    /// Whether that is the kernel's choice.
    pub is_kernel: bool,
    /// Places then of threads in crowded domains, where the kernel goes on choosing: a thread that returns starts
    /// there, because the kernel might keep it where the candidate put it.
    pub spots: ShapePlaces,
    /// Each application's speed over that under the kernel's placement, as logarithms.
    pub standing: Vec<f64>,
    /// Variances of these.
    pub doubts: Vec<f64>,
    /// Scatter of pairs of windows about their trial's mean, per application: the sum of squares over all trials, and
    /// its degrees of freedom.
    scatter: Vec<(f64, f64)>,
    /// Number of drawn seeds; `None`: all.
    seeds: Option<usize>,
    /// The same for orderly neighbours of the incumbent.
    orderly: Option<usize>,
    /// Keys of tried shapes.
    tried: Vec<u64>,
    promising: Vec<ShapeCandidate>,
    /// Trials and successes of each of [`KINDS`].
    luck: [[u32; 2]; KINDS.len()],
    /// The incumbent's last window, and when it ended.
    pub recent: Option<(Time, Vec<f64>)>,
    pub ledger: TrialLedger,
    rest: Duration,
    /// Number of rests ended by changed speeds.
    pub shifts: u32,
    /// Trials since the last success.
    idle: u32,
    /// Whether the incumbent is compared with the kernel's placement next.
    audit: bool,
    /// Whether following memory has been tried with this incumbent.
    followed: bool,
    /// Tried before anything else: the former best, and moves suggested by `sam`.
    pub first: Option<ShapeCandidate>,
    /// Shapes that were slightly worse with memory in place, and by how much.
    near: Vec<(Shape, f64)>,
    #[serde(default, skip_serializing_if = "Crossing::is_new")]
    pub crossing: Crossing,
    pub trials: u32,
    pub kept: u32,
    /// Counters measured with the incumbent, and the model's predictions from them.
    pub counted: GroupCounts,
    pub model: Option<ShapeModel>,
}

impl Learned {
    pub fn new(situation: LearnedSituation, ledger: TrialLedger) -> Self {
        Self { situation, rest: REST, is_kernel: true, ledger, ..Self::default() }
    }

    pub fn goal(&self, objective: Option<&Objective>, view: &View) -> Goal {
        match objective {
            None => self.situation.favoured().map_or(Goal::Mean, Goal::App),
            Some(Objective::Mean) => Goal::Mean,
            Some(Objective::Fair) => Goal::Fair(self.standing.clone()),
            Some(Objective::App(name)) => self.situation.measured(view, name).map_or(Goal::Mean, Goal::App),
        }
    }

    /// Whether a shape is possible and untried; it counts as tried from now on.
    fn is_new(&mut self, shape: &Shape, board: &ShapeBoard, scope: TrialScope) -> bool {
        self.is_within(shape, board, scope) && self.note(shape.key(board))
    }

    fn is_within(&self, shape: &Shape, board: &ShapeBoard, scope: TrialScope) -> bool {
        (scope.crosses || shape.has_nodes_of(&self.incumbent, board)) && shape.fits(board, &self.situation.allowed())
    }

    /// Of the shapes that may be tried now, the one with the best prediction, if better than the current one.
    fn promised(
        &mut self,
        board: &ShapeBoard,
        goal: &Goal,
        scope: TrialScope,
        rng: &mut Rng,
    ) -> Option<ShapeCandidate> {
        let model = self.model.as_ref()?;
        let mut pool: Vec<(Shape, CandidateKind)> = Vec::new();
        if self.orderly.is_some() {
            pool.extend(orderly(board, &self.incumbent).into_iter().map(|shape| (shape, CandidateKind::Inside)));
        }
        if self.seeds.is_some() {
            let all = seeds(board, &self.situation.threads(), &self.incumbent.doubling);
            pool.extend(all.into_iter().map(|shape| (shape, CandidateKind::Seed)));
        }
        for _ in 0..if self.idle < FRUITLESS { DRAWN } else { 0 } {
            let kind = self.draw(rng);
            pool.extend(neighbour(board, &self.incumbent, kind, rng).map(|shape| (shape, kind)));
        }
        let worth = |shape: &Shape| goal.worth(&model.changes(shape, board, &self.situation, false));
        let mut best = (worth(&self.incumbent), None);
        for (shape, kind) in pool {
            let worth = worth(&shape);
            if worth > best.0
                && (scope.idles || shape.is_work_conserving(board))
                && self.is_within(&shape, board, scope)
                && !self.tried.contains(&shape.key(board))
            {
                best = (worth, Some(ShapeCandidate::new(shape, kind)));
            }
        }
        let candidate = best.1?;
        self.note(candidate.shape.key(board));
        Some(candidate)
    }

    /// Marks a shape as tried; returns whether it was not before.
    fn note(&mut self, key: u64) -> bool {
        let is_new = !self.tried.contains(&key);
        if is_new {
            self.tried.push(key);
            if self.tried.len() > TRIED {
                self.tried.remove(0);
            }
        }
        is_new
    }

    /// Clears the attempts.
    fn begin_search(&mut self) {
        (self.seeds, self.orderly, self.idle) = (Some(0), Some(0), 0);
        self.tried.clear();
        self.promising.clear();
        self.near.clear();
        self.crossing.begin_search();
    }

    /// The current placement is the kernel's choice: everything is compared with it from now on.
    pub fn begin_with(&mut self, board: &ShapeBoard, shape: Shape, places: ShapePlaces, spots: ShapePlaces) {
        self.begin_search();
        self.note(shape.key(board));
        (self.kernel, self.kernel_places, self.spots) = (shape.clone(), places.clone(), spots);
        self.memory = places.clone();
        (self.incumbent, self.places, self.is_kernel) = (shape, places, true);
        self.standing = vec![0.0; self.situation.measures.len()];
        self.doubts = self.standing.clone();
    }

    /// Programs have changed their behaviour: all shapes may be tried again, after a comparison of the current one with
    /// the kernel's placement.
    pub fn again(&mut self) {
        self.begin_search();
        (self.rest, self.recent, self.audit) = (REST, None, !self.is_kernel);
        self.shifts += 1;
    }

    /// The current shape is the former best. The kernel's choice is assumed to be an even spread, and competes first.
    pub fn doubt(&mut self, board: &ShapeBoard, view: &View, members: &[(TaskId, usize)]) {
        let shape = even(board, &self.situation.threads());
        if !self.note(shape.key(board)) {
            return;
        }
        let now = |task| board.domain_of(view, &self.places, task);
        self.kernel_places = shape.seats(board, members, &self.situation.allowed(), now, now);
        (self.kernel, self.is_kernel, self.audit) = (shape, false, true);
    }

    /// The incumbent, for a later run of the same programs.
    pub fn known(&self) -> KnownShape {
        KnownShape::new(&self.situation.described(), &self.incumbent)
    }

    /// The places of threads in a shape, starting from the incumbent's.
    pub fn seats(&self, shape: &Shape, board: &ShapeBoard, view: &View, members: &[(TaskId, usize)]) -> ShapePlaces {
        let stands = |places: &ShapePlaces, task| board.domain_of(view, places, task);
        let memory = self.memory(view);
        let (now, memory) = (|task| stands(&self.places, task), |task| stands(memory, task));
        shape.seats(board, members, &self.situation.allowed(), now, memory)
    }

    /// The place of each thread when its memory was allocated.
    fn memory(&self, view: &View) -> &ShapePlaces {
        if view.numa_balancing { &self.places } else { &self.memory }
    }

    /// Sets up the model from counters measured with the incumbent.
    pub fn predict(&mut self, board: &ShapeBoard, view: &View, members: &[(TaskId, usize)]) {
        let Self { counted, incumbent, situation, .. } = &*self;
        self.model = ShapeModel::new(counted, incumbent, self.memory(view), situation, board, view, members);
    }

    /// New threads take the places of ended ones of the same group.
    pub fn replace(&mut self, before: &[(TaskId, usize)], after: &[(TaskId, usize)]) {
        for places in [&mut self.places, &mut self.kernel_places, &mut self.memory, &mut self.spots] {
            for group in 0..self.situation.groups.len() {
                let of = |members: &[(TaskId, usize)], other: &[(TaskId, usize)]| -> Vec<TaskId> {
                    let own = members.iter().filter(|member| member.1 == group && !other.contains(member));
                    own.map(|member| member.0).collect()
                };
                for (gone, new) in of(before, after).into_iter().zip(of(after, before)) {
                    if let Some(place) = places.remove(&gone) {
                        places.insert(new, place);
                    }
                }
            }
        }
    }

    /// Consults `sam` now and then about its moves.
    pub fn ask(
        &mut self,
        sam: &Sam,
        (ctx, view): (&Ctx<'_>, &View),
        board: &ShapeBoard,
        members: &[(TaskId, usize)],
        scope: TrialScope,
    ) {
        let idle = self.first.is_none() && self.trials.is_multiple_of(ASKED);
        if !idle || self.incumbent.counts.is_empty() || Policy::check(sam, ctx).is_err() {
            return;
        }
        let Decision { proposals, .. } = Policy::decide(sam, ctx, view, &[], SamState::default(), view.at);
        let mut shape = self.incumbent.clone();
        for proposal in &proposals {
            let Action::Place { task, contexts } = &proposal.action else { continue };
            let Ok(member) = members.binary_search_by_key(task, |member| member.0) else { continue };
            let counts = &mut shape.counts[members[member].1];
            let to = board.domains.iter().position(|domain| contexts.is_subset(&domain.cpus));
            let from = board.domain_of(view, &self.places, *task).filter(|&from| counts[from] > 0);
            if let (Some(from), Some(to)) = (from, to) {
                counts[from] -= 1;
                counts[to] += 1;
            }
        }
        shape.choose_doubling();
        if self.is_new(&shape, board, scope) {
            self.first = Some(ShapeCandidate::new(shape, CandidateKind::Sam));
        }
    }

    /// Whether the incumbent is compared with the kernel's placement now.
    pub fn take_audit(&mut self) -> bool {
        !self.is_kernel && std::mem::take(&mut self.audit)
    }

    /// The next candidate; `None` if none is left.
    pub fn next(
        &mut self,
        board: &ShapeBoard,
        goal: &Goal,
        scope: TrialScope,
        rng: &mut Rng,
    ) -> Option<ShapeCandidate> {
        let within = scope.crosses || self.kernel.has_nodes_of(&self.incumbent, board);
        if within && std::mem::take(&mut self.audit) && !self.is_kernel {
            return Some(ShapeCandidate {
                stage: 1,
                ..ShapeCandidate::new(self.kernel.clone(), CandidateKind::Kernel)
            });
        }
        if let Some(first) =
            self.first.take_if(|first| scope.crosses || first.shape.has_nodes_of(&self.incumbent, board))
        {
            return Some(first);
        }
        // Every second time, so that a wrong model at most doubles the trials.
        if self.trials.is_multiple_of(2)
            && let Some(promised) = self.promised(board, goal, scope, rng)
        {
            return Some(promised);
        }
        if let Some(drawn) = self.orderly {
            let all = orderly(board, &self.incumbent);
            let next = (drawn..all.len()).find(|&i| self.is_new(&all[i], board, scope));
            self.orderly = next.map(|i| i + 1);
            if let Some(i) = next {
                return Some(ShapeCandidate::new(all[i].clone(), CandidateKind::Inside));
            }
        }
        if let Some(drawn) = self.seeds {
            let all = seeds(board, &self.situation.threads(), &self.incumbent.doubling);
            let next = (drawn..all.len()).find(|&i| self.is_new(&all[i], board, scope));
            self.seeds = next.map(|i| i + 1);
            if let Some(i) = next {
                return Some(ShapeCandidate::new(all[i].clone(), CandidateKind::Seed));
            }
        }
        for _ in 0..if self.idle < FRUITLESS { DRAWS } else { 0 } {
            let kind = self.draw(rng);
            let drawn = neighbour(board, &self.incumbent, kind, rng);
            let conserves = |shape: &Shape| scope.idles || shape.is_work_conserving(board);
            if let Some(shape) = drawn.filter(|shape| conserves(shape) && self.is_new(shape, board, scope)) {
                return Some(ShapeCandidate::new(shape, kind));
            }
        }
        // No new shape: promising ones are measured more finely, the best first.
        let best = (0..self.promising.len())
            .max_by(|&a, &b| self.promising[a].worth(goal).total_cmp(&self.promising[b].worth(goal)))?;
        Some(self.promising.swap_remove(best))
    }

    /// The next candidate that moves threads to other nodes while the kernel moves memory after them: few are tried,
    /// each by its threads of each group per node.
    pub fn across(
        &mut self,
        board: &ShapeBoard,
        goal: &Goal,
        refused: impl Fn(&[f64]) -> bool,
        idles: bool,
        rng: &mut Rng,
    ) -> Option<ShapeCandidate> {
        let scope = TrialScope { idles, crosses: true };
        let may = |of: &Self, shape: &Shape| {
            of.crossing.is_new_to(shape, &of.incumbent, board)
                && (scope.idles || shape.is_work_conserving(board))
                && of.is_within(shape, board, scope)
        };
        // Once, whatever counters predict, because it was the best before.
        if let Some(first) = self.first.take().filter(|first| may(self, &first.shape)) {
            return Some(first);
        }
        let all = seeds(board, &self.situation.threads(), &self.incumbent.doubling);
        let mut pool: Vec<ShapeCandidate> =
            all.into_iter().map(|shape| ShapeCandidate::new(shape, CandidateKind::Seed)).collect();
        for _ in 0..if self.model.is_some() { DRAWN } else { 0 } {
            let kind = self.draw(rng);
            let drawn = neighbour(board, &self.incumbent, kind, rng);
            pool.extend(drawn.map(|shape| ShapeCandidate::new(shape, kind)));
        }
        pool.retain(|candidate| may(self, &candidate.shape));
        if let Some(model) = &self.model {
            let changes = |shape: &Shape| model.changes(shape, board, &self.situation, true);
            let stands = changes(&self.incumbent);
            let promise = |candidate: ShapeCandidate| {
                let change = lead(&changes(&candidate.shape), &stands);
                let worth = goal.worth(&change);
                (worth > WORTH_CROSSING && !refused(&change)).then_some((worth, candidate))
            };
            let promising = pool.into_iter().filter_map(promise);
            return promising.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate);
        }
        (!pool.is_empty()).then(|| pool.remove(0))
    }

    /// A kind of neighbour, chosen by its success so far.
    fn draw(&self, rng: &mut Rng) -> CandidateKind {
        let weight = |[trials, kept]: [u32; 2]| f64::from(kept + 1) / f64::from(trials + 2);
        let mut at = rng.f64() * self.luck.iter().map(|luck| weight(*luck)).sum::<f64>();
        let drawn = self.luck.iter().position(|luck| {
            at -= weight(*luck);
            at < 0.0
        });
        KINDS[drawn.unwrap_or(0)]
    }

    /// Whether to try following memory with the incumbent now.
    pub fn may_follow(&mut self, ready: bool) -> bool {
        let now = !self.is_kernel && !self.followed && (ready || self.idle >= SETTLED);
        self.followed |= now;
        now
    }

    /// A shape that was slightly worse with memory in place.
    pub fn near(&mut self) -> Option<Shape> {
        (!self.near.is_empty()).then(|| self.near.remove(0).0)
    }

    /// The length of this rest; the next is longer. Then the incumbent is compared with the kernel's placement.
    pub fn rest(&mut self) -> Duration {
        (self.idle, self.audit) = (0, self.kept > 0);
        let rest = self.rest;
        self.rest = (rest * 2).min(LONGEST_REST);
        rest
    }

    /// A candidate that could not be put in place has no result.
    pub fn forget(&mut self, candidate: &ShapeCandidate, board: &ShapeBoard) {
        let key = candidate.shape.key(board);
        self.tried.retain(|tried| *tried != key);
        (self.seeds, self.orderly, self.recent) = (Some(0), Some(0), None);
    }

    /// Counts a trial of this kind.
    pub fn count(&mut self, candidate: &ShapeCandidate, kept: bool) {
        if let Some(i) = KINDS.iter().position(|kind| *kind == candidate.kind) {
            self.luck[i][0] += u32::from(candidate.stage == 0);
            self.luck[i][1] += u32::from(kept);
        }
        self.idle += 1;
    }

    /// Results of pairs of windows for each application: mean change and its variance. A few pairs do not give their
    /// scatter, so that comes from all trials.
    pub fn changes(&self, pairs: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
        let of = |(app, now): (usize, Summary)| {
            let (squares, freedom) = pooled(self.scatter.get(app).copied().unwrap_or_default(), now);
            (now.mean, if freedom > 0.0 { squares / freedom / now.n as f64 } else { f64::INFINITY })
        };
        by_app(pairs).into_iter().enumerate().map(of).unzip()
    }

    /// Results of a trial for these pairs.
    pub fn measured(&mut self, pairs: &[Vec<f64>]) {
        self.scatter.resize(self.situation.measures.len(), (0.0, 0.0));
        for (scatter, now) in self.scatter.iter_mut().zip(by_app(pairs)) {
            *scatter = pooled(*scatter, now);
        }
    }

    /// The candidate becomes the incumbent; each application has changed by this much, with these variances.
    pub fn keep(
        &mut self,
        shape: Shape,
        places: ShapePlaces,
        (changes, variances): (&[f64], &[f64]),
        is_kernel: bool,
        with_memory: bool,
    ) {
        let add = |sums: &mut [f64], values: &[f64]| sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        add(&mut self.standing, changes);
        add(&mut self.doubts, variances);
        if is_kernel {
            self.standing.fill(0.0);
            self.doubts.fill(0.0);
        }
        if with_memory {
            self.memory = places.clone();
        }
        (self.incumbent, self.places, self.is_kernel) = (shape, places, is_kernel);
        self.crossing.steadiness.begin();
        self.promising.clear();
        self.near.clear();
        (self.idle, self.orderly, self.rest) = (0, Some(0), REST);
        self.followed = is_kernel || with_memory;
        self.kept += 1;
    }

    /// The candidate is dropped. `open`: more measurements might show that it is better.
    pub fn dismiss(&mut self, mut candidate: ShapeCandidate, pairs: Vec<Vec<f64>>, worth: f64, open: bool) {
        if worth > -NEAR && !matches!(candidate.kind, CandidateKind::Kernel | CandidateKind::Share) {
            self.near.push((candidate.shape.clone(), worth));
            self.near.sort_by(|a, b| b.1.total_cmp(&a.1));
            self.near.truncate(NEAREST);
        }
        if open && candidate.stage + 1 < STAGES.len() && candidate.kind != CandidateKind::Kernel {
            candidate.stage += 1;
            candidate.pairs = pairs;
            self.promising.push(candidate);
            if self.promising.len() > PROMISING {
                self.promising.remove(0);
            }
        }
    }
}

/// Adds another trial's pairs to the earlier ones.
fn pooled((squares, freedom): (f64, f64), now: Summary) -> (f64, f64) {
    let more = now.n.saturating_sub(1) as f64;
    (squares + now.variance * more, freedom + more)
}

#[cfg(test)]
mod tests {
    use super::super::learned_situation::ThreadGroup;
    use super::*;
    use cotenant_model::AppId;
    use cotenant_model::testing::machine;

    /// Two threads on two CPUs of one cache: all that is left to try lets one CPU idle. Where a core has two CPUs, both
    /// go on running.
    #[test]
    fn cpus_are_left_idle_only_by_those_who_dare() {
        for (cpus, idles, expected) in [(1, false, false), (1, true, true), (2, false, true)] {
            let topology = machine(1, 1, 2, cpus);
            let board = ShapeBoard::new(&topology, topology.usable(), |_| 0);
            let on = topology.usable().clone();
            let group = ThreadGroup { app: AppId(0), name: String::new(), part: String::new(), on, threads: 2 };
            let incumbent = Shape { counts: vec![vec![2]], ..Shape::default() };
            let mut learned = Learned { incumbent, ..Learned::default() };
            learned.situation.groups.push(group);
            let scope = TrialScope { idles, crosses: true };
            let next = learned.next(&board, &Goal::Mean, scope, &mut Rng::with_seed(1));
            let packs = next.is_some_and(|candidate| candidate.shape.doubling.packed == Some(0));
            assert_eq!(packs, expected, "{cpus} CPUs of a core, {idles}");
        }
    }

    /// One gains more for the mean, the other more for the slowest.
    #[test]
    fn which_of_those_that_looked_good_is_the_best_depends_on_the_goal() {
        let topology = machine(1, 2, 2, 1);
        let board = ShapeBoard::new(&topology, topology.usable(), |_| 0);
        let candidate = |pair: [f64; 2]| ShapeCandidate {
            pairs: vec![pair.to_vec()],
            ..ShapeCandidate::new(Shape::empty(2, 2), CandidateKind::Move)
        };
        let [mean, slowest] = [[0.3, -0.1], [0.05, 0.04]].map(candidate);
        let mut learned = Learned { trials: 1, idle: FRUITLESS, ..Learned::default() };
        for (goal, wanted) in [(Goal::Mean, &mean), (Goal::Fair(vec![0.0; 2]), &slowest)] {
            learned.promising = vec![mean.clone(), slowest.clone()];
            let scope = TrialScope { idles: true, crosses: true };
            assert_eq!(learned.next(&board, &goal, scope, &mut Rng::with_seed(1)).as_ref(), Some(wanted), "{goal:?}");
        }
    }
}
