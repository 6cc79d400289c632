//! One decision in progress: the tasks, the board, and the decisions so far.

use super::board::Board;
use super::classify::Limits;
use super::config::SamConfig;
use super::state::Move;
use super::task::{Class, Task};
use super::units::At;
use cotenant_model::{Action, CpuId, CpuSet, Proposal, Reason, TaskId, Time, Topology, View};

/// One decision in progress.
pub(super) struct Round<'a> {
    pub topology: &'a Topology,
    pub view: &'a View,
    pub config: SamConfig,
    pub limits: Limits,
    pub now: Time,
    pub tasks: Vec<Task>,
    pub board: Board<'a>,
    pub proposals: Vec<Proposal>,
    pub moves: Vec<Move>,
    /// Sets made by an earlier stage, by level.
    pub sets: [Option<Sets>; 2],
}

impl<'a> Round<'a> {
    /// The CPUs allowed for a task.
    pub fn allowed(&self, task: usize) -> &'a CpuSet {
        &self.view.tasks[task].info.allowed
    }

    /// The id of a task.
    pub fn id(&self, task: usize) -> TaskId {
        self.view.tasks[task].info.id
    }

    /// Sorts the tasks in the order of use within a class: as in the view or, with latency tolerance, sharers with most
    /// stalls first and others with fewest stalls first; unknown ones last.
    pub fn rank(&mut self) {
        let mut order: Vec<u32> = (0..self.tasks.len() as u32).collect();
        if self.config.latency_tolerance {
            let key = |t: u32| {
                let task = &self.tasks[t as usize];
                let stalls = task.rates.stalls;
                if task.class == Class::Inter { stalls.map_or(1.0, |s| -s) } else { stalls.unwrap_or(f64::INFINITY) }
            };
            order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
        }
        for (rank, t) in order.into_iter().enumerate() {
            self.tasks[t as usize].rank = rank as u32;
        }
    }

    /// Whether a task comes after another in the order of their class.
    pub fn after(&self, task: usize, other: Option<usize>) -> bool {
        other.is_none_or(|other| self.tasks[task].rank > self.tasks[other].rank)
    }

    /// Moves a task to a free context.
    pub fn relocate(&mut self, at: At, task: usize, to: CpuId, reason: Reason) {
        let view = self.view;
        self.board.relocate(task, to, |t| &view.tasks[t].info.allowed);
        self.propose(at, task, reason);
    }

    /// Swaps two tasks.
    pub fn swap(&mut self, at: At, task: usize, reason: Reason, victim: usize, victims: Reason) {
        self.board.swap(task, victim);
        self.propose(at, task, reason);
        self.propose(at, victim, victims);
    }

    /// State that [`Round::discard`] needs to undo later moves.
    pub fn draft(&self) -> Draft<'a> {
        Draft { board: self.board.clone(), moves: self.moves.len() }
    }

    /// Undoes the moves since then.
    pub fn discard(&mut self, draft: Draft<'a>) {
        self.board = draft.board;
        for i in draft.moves..self.moves.len() {
            let id = self.moves[i].task;
            let t = self.view.tasks.binary_search_by_key(&id, |t| t.info.id).expect("it was moved in this round");
            let task = &mut self.tasks[t];
            (task.units, task.origin, task.moved) = (self.board.units(t), task.before, false);
        }
        self.moves.truncate(draft.moves);
        self.proposals.truncate(draft.moves);
    }

    /// The sets of a level's units, taken from an earlier stage if it left them.
    pub fn take_sets(&mut self, at: At) -> Sets {
        let cached = self.sets[self.board.shared_units(at) as usize].take();
        cached.unwrap_or_else(|| Sets::new(self, at))
    }

    /// Keeps the sets for the next stage.
    pub fn leave_sets(&mut self, at: At, sets: Sets) {
        self.sets[self.board.shared_units(at) as usize] = Some(sets);
    }

    /// Whether two tasks may swap.
    pub fn may_swap(&self, at: At, a: usize, b: usize) -> bool {
        let (Some(cpu_a), Some(cpu_b)) = (self.board.cpu(a), self.board.cpu(b)) else { return false };
        self.board.fits(at, cpu_b, self.allowed(a)) && self.board.fits(at, cpu_a, self.allowed(b))
    }

    /// Places a task where it is, if it may stay there; one that shares its core although cores suffice is placed on
    /// its unit, where the kernel finds it one. This is no move, and comes after all moves, which are undone by their
    /// number.
    pub fn confirm(&mut self, at: At, task: usize, mut reason: Reason) {
        let unit = self.tasks[task].unit(at);
        reason.place = unit.map(|unit| self.board.level(at).place(unit));
        let contexts = match unit.filter(|_| self.board.doubled(task)) {
            Some(unit) => self.board.level(at).unit(unit).set().and(self.allowed(task)),
            None => self.board.contexts(at, task, self.allowed(task)),
        };
        // A mask or a cpuset may have changed since its arrival.
        if contexts.is_empty() || !contexts.is_subset(self.allowed(task)) {
            return;
        }
        self.proposals.push(Proposal { action: Action::Place { task: self.id(task), contexts }, reason });
    }

    fn propose(&mut self, at: At, task: usize, mut reason: Reason) {
        self.tasks[task].units = self.board.units(task);
        reason.place = self.tasks[task].unit(at).map(|unit| self.board.level(at).place(unit));
        let contexts = self.board.contexts(at, task, self.allowed(task));
        let id = self.id(task);
        if self.proposals.capacity() == 0 {
            self.proposals.reserve(self.tasks.len().div_ceil(4));
            self.moves.reserve(self.tasks.len().div_ceil(4));
        }
        self.proposals.push(Proposal { action: Action::Place { task: id, contexts }, reason });
        let t = &mut self.tasks[task];
        t.moved = true;
        let home = t.unit(At::Memory);
        // back home its origin is dropped, however it got there
        t.origin = t.origin.filter(|origin| home != Some(origin.unit as usize));
        self.moves.push(Move { task: id, at: self.now, sharer: t.class.shares(), before: t.before });
    }
}

/// The places of all tasks before some moves.
pub(super) struct Draft<'a> {
    board: Board<'a>,
    moves: usize,
}

/// The tasks of each unit by class, in ascending order of rank: the sets of the paper's figure 3. Tasks that moved in
/// this round leave the sets, because none moves twice.
#[derive(Clone)]
pub(super) struct Sets {
    spans: Vec<(u32, u32)>,
    tasks: Vec<u32>,
}

const CLASSES: usize = 3;

fn rank(class: Class) -> Option<usize> {
    match class {
        Class::Inter => Some(0),
        Class::Cpu => Some(1),
        Class::Mem => Some(2),
        Class::Absent | Class::Unknown | Class::Intra => None,
    }
}

impl Sets {
    /// The sets of a level's units.
    fn new(round: &Round<'_>, at: At) -> Self {
        let key = |t: usize| {
            let task = &round.tasks[t];
            let rank = rank(task.class).filter(|_| !task.moved)?;
            Some(task.unit(at)? * CLASSES + rank)
        };
        let mut spans = vec![(0u32, 0u32); round.board.level(at).len() * CLASSES];
        for k in (0..round.tasks.len()).filter_map(key) {
            spans[k].1 += 1;
        }
        let mut total = 0;
        for span in &mut spans {
            let count = span.1;
            *span = (total, total);
            total += count;
        }
        let mut tasks = vec![0; total as usize];
        for t in 0..round.tasks.len() {
            if let Some(k) = key(t) {
                tasks[spans[k].1 as usize] = t as u32;
                spans[k].1 += 1;
            }
        }
        if round.config.latency_tolerance {
            for &(start, end) in &spans {
                tasks[start as usize..end as usize].sort_unstable_by_key(|&t| round.tasks[t as usize].rank);
            }
        }
        Self { spans, tasks }
    }

    /// The first member that `fits`.
    pub fn first(
        &mut self,
        round: &Round<'_>,
        unit: usize,
        class: Class,
        mut fits: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let span = &mut self.spans[unit * CLASSES + rank(class)?];
        let moved = |t: u32| round.tasks[t as usize].moved;
        // Members nearly always leave from the front: used ones must not be examined again for every mover.
        while span.0 < span.1 && moved(self.tasks[span.0 as usize]) {
            span.0 += 1;
        }
        let members = &self.tasks[span.0 as usize..span.1 as usize];
        members.iter().copied().filter(|t| !moved(*t)).map(|t| t as usize).find(|t| fits(*t))
    }

    /// The members, in order.
    pub fn members<'a>(&'a self, round: &'a Round<'_>, unit: usize, class: Class) -> impl Iterator<Item = usize> + 'a {
        let (start, end) = rank(class).map_or((0, 0), |rank| self.spans[unit * CLASSES + rank]);
        let tasks = self.tasks[start as usize..end as usize].iter().map(|t| *t as usize);
        tasks.filter(|t| !round.tasks[*t].moved)
    }

    /// Number of members that may use some of these CPUs.
    pub fn admitted(&self, round: &Round<'_>, unit: usize, class: Class, cpus: &CpuSet) -> u32 {
        self.members(round, unit, class).filter(|t| round.allowed(*t).intersects(cpus)).count() as u32
    }

    /// Whether a set has no member.
    pub fn is_empty(&mut self, round: &Round<'_>, unit: usize, class: Class) -> bool {
        self.first(round, unit, class, |_| true).is_none()
    }
}
