//! The task on each hardware context, updated while the stages move tasks.

use super::task::Task;
use super::units::{At, Level, NONE};
use cotenant_model::policy::Ctx;
use cotenant_model::{CpuId, CpuSet, View};

/// A context without a managed task.
const FREE: u32 = u32::MAX;
/// A CPU that is no context, or is busy with foreign work.
const TAKEN: u32 = u32::MAX - 1;
/// A context not used while there are enough cores: a second one, and any on a core with a task.
const CLOSED: u32 = u32::MAX - 2;

/// Tasks on contexts. A running task holds the context on which it was seen or, if a task of lower id holds that, a
/// free one of the same unit. Without a free one it is *crowded*: it stays where it was seen, and holds nothing.
#[derive(Clone)]
pub(super) struct Board<'a> {
    levels: [Level<'a>; 2],
    /// Per CPU: the task that holds it, [`FREE`] or [`TAKEN`].
    holder: Vec<u32>,
    /// Per CPU: its state without a task.
    vacant: Vec<u32>,
    /// Per CPU: its core.
    core: Vec<u32>,
    /// Per CPU: its rank among the contexts of its core.
    rank: Vec<u32>,
    /// Per core: its contexts.
    siblings: &'a [CpuSet],
    /// Per core: its contexts that are in use.
    core_load: Vec<u32>,
    /// Per core: the first task on one of its contexts; [`FREE`] without one.
    core_first: Vec<u32>,
    /// Per level and unit: free contexts.
    idle: [Vec<u32>; 2],
    /// Per task: its CPU; [`NONE`] for tasks without a place.
    place: Vec<u32>,
    /// All crowded tasks, and some former ones.
    crowded: Vec<u32>,
    /// More running tasks than contexts: tasks are placed on units, not contexts.
    oversubscribed: bool,
    /// Cores suffice, and each takes one task.
    whole: bool,
    /// Per unit of stage 1: its capacity in tasks.
    room: Vec<u32>,
}

impl<'a> Board<'a> {
    /// `whole`: cores suffice, and each takes one task plus helpers ([`super::SamConfig::whole_cores`]).
    pub fn new(ctx: &Ctx<'a>, view: &View, whole: bool, sharing: Level<'a>, memory: Level<'a>, tasks: &[Task]) -> Self {
        let topology = ctx.topology;
        let size = topology.usable().last().map_or(0, |c| c.index() + 1);
        let mut vacant = vec![TAKEN; size];
        let mut core = vec![NONE; size];
        let mut rank = vec![0; size];
        let mut filled = vec![0; topology.cores().len()];
        let mut contexts = 0;
        for cpu in (0..sharing.len()).flat_map(|u| sharing.unit(u).contexts.iter()) {
            vacant[cpu.index()] = FREE;
            contexts += 1;
            if let Some(c) = topology.core_of(*cpu) {
                core[cpu.index()] = c as u32;
                rank[cpu.index()] = filled[c];
                filled[c] += 1;
            }
        }
        for cpu in view.cpus.iter().filter(|c| c.foreign > ctx.config.foreign_busy) {
            if let Some(slot) = vacant.get_mut(cpu.id.index()) {
                *slot = TAKEN;
            }
        }
        let mut holder = vacant.clone();
        let mut place = vec![NONE; view.tasks.len()];
        let mut crowded = Vec::new();
        let mut running = 0;
        for (t, task) in view.tasks.iter().enumerate() {
            // A task without data is assumed to run: its context is not idle.
            if tasks[t].ran == Some(false) {
                continue;
            }
            running += 1;
            let Some(cpu) = task.cpu.filter(|c| sharing.of(*c).is_some()) else { continue };
            place[t] = cpu.0;
            let slot = &mut holder[cpu.index()];
            if whole && tasks[t].is_helper() {
                continue;
            }
            // A context busy with foreign work is still held by the task that runs there.
            if matches!(*slot, FREE | TAKEN) {
                *slot = t as u32;
            } else {
                crowded.push(t as u32);
            }
        }
        if whole {
            for cpu in sharing.contexts().filter(|c| rank[c.index()] > 0) {
                for slot in [&mut vacant[cpu.index()], &mut holder[cpu.index()]] {
                    *slot = if *slot == FREE { CLOSED } else { *slot };
                }
            }
            for siblings in topology.cores() {
                let held = siblings.iter().any(|c| holder.get(c.index()).is_some_and(|h| *h < CLOSED));
                for cpu in siblings.iter().filter(|c| held && c.index() < size) {
                    let slot = &mut holder[cpu.index()];
                    *slot = if *slot == FREE { CLOSED } else { *slot };
                }
            }
        }
        let takes =
            |unit: usize| sharing.unit(unit).contexts.iter().filter(|c| !whole || rank[c.index()] == 0).count() as u32;
        let mut board = Self {
            room: (0..sharing.len()).map(takes).collect(),
            levels: [sharing, memory],
            core_load: vec![0; topology.cores().len()],
            core_first: vec![FREE; topology.cores().len()],
            siblings: topology.cores(),
            rank,
            idle: [Vec::new(), Vec::new()],
            holder,
            vacant,
            core,
            place,
            crowded: Vec::new(),
            oversubscribed: running > contexts,
            whole,
        };
        board.count();
        for t in crowded {
            let cpu = CpuId(board.place[t as usize]);
            let allowed = &view.tasks[t as usize].info.allowed;
            if let Some(free) = board.free_beside(cpu, allowed) {
                board.take(t, free);
            } else {
                board.crowded.push(t);
            }
        }
        board
    }

    fn count(&mut self) {
        let [sharing, memory] = &self.levels;
        self.idle = [vec![0; sharing.len()], vec![0; memory.len()]];
        for (i, holder) in self.holder.iter().enumerate() {
            let cpu = CpuId(i as u32);
            let Some(unit) = sharing.of(cpu) else { continue };
            if *holder == FREE {
                self.idle[0][unit] += 1;
                if let Some(unit) = memory.of(cpu) {
                    self.idle[1][unit] += 1;
                }
                continue;
            }
            if *holder == CLOSED {
                continue;
            }
            let core = self.core[i] as usize;
            self.core_load[core] += 1;
            if *holder != TAKEN {
                self.core_first[core] = self.core_first[core].min(*holder);
            }
        }
    }

    /// The units of a level.
    pub fn level(&self, at: At) -> &Level<'a> {
        &self.levels[at as usize]
    }

    /// The level with the same units as this one: on ordinary machines both levels are the packages.
    pub fn shared_units(&self, at: At) -> At {
        if self.levels.iter().any(|level| level.split) { at } else { At::Sharing }
    }

    /// The units of a task, by level; [`NONE`] without a place.
    pub fn units(&self, task: usize) -> [u32; 2] {
        let unit = |level: &Level<'_>| Some(level.of(self.cpu(task)?)? as u32);
        [unit(&self.levels[0]).unwrap_or(NONE), unit(&self.levels[1]).unwrap_or(NONE)]
    }

    /// The CPU of a task with a place.
    pub fn cpu(&self, task: usize) -> Option<CpuId> {
        (self.place[task] != NONE).then(|| CpuId(self.place[task]))
    }

    /// Capacity of a unit of stage 1: one task per context, or per core if second contexts are unused.
    pub fn room(&self, unit: usize) -> u32 {
        self.room[unit]
    }

    /// Free contexts of a unit.
    pub fn idle(&self, at: At, unit: usize) -> usize {
        self.idle[at as usize][unit] as usize
    }

    /// The free context of a unit for a task with this mask: on an unused core before a second context of a used one
    /// (§4.3), then a core's first before its second, then beside the first task, so that core numbers matter only
    /// among equal cores; then in order.
    pub fn free(&self, at: At, unit: usize, allowed: &CpuSet) -> Option<CpuId> {
        if self.idle(at, unit) == 0 {
            return None;
        }
        self.first_free(self.level(at).unit(unit).contexts.iter().copied(), allowed)
    }

    /// Whether each core takes one task.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether a task shares its core although cores suffice.
    pub fn doubled(&self, task: usize) -> bool {
        let Some(core) = self.cpu(task).filter(|_| self.whole).map(|cpu| self.core[cpu.index()]) else { return false };
        let held = |cpu: &CpuId| self.holder.get(cpu.index()).is_some_and(|h| *h < CLOSED);
        self.siblings[core as usize].iter().filter(held).count() > 1
    }

    /// A free context of a unit on an unused core.
    pub fn idle_core(&self, at: At, unit: usize, allowed: &CpuSet) -> Option<CpuId> {
        let cpu = self.free(at, unit, allowed)?;
        (self.core_load[self.core[cpu.index()] as usize] == 0).then_some(cpu)
    }

    /// The tasks on each core's contexts, in order of core; empty while tasks are placed on units.
    pub fn by_core(&self) -> Vec<Vec<usize>> {
        if self.oversubscribed {
            return Vec::new();
        }
        let task = |cpu: CpuId| self.holder.get(cpu.index()).filter(|h| **h < CLOSED).map(|h| *h as usize);
        self.siblings.iter().map(|core| core.iter().filter_map(task).collect()).collect()
    }

    /// A free context of the same unit of both levels.
    fn free_beside(&self, cpu: CpuId, allowed: &CpuSet) -> Option<CpuId> {
        let [sharing, memory] = &self.levels;
        let unit = sharing.of(cpu)?;
        if self.idle(At::Sharing, unit) == 0 {
            return None;
        }
        let contexts = sharing.unit(unit).contexts.iter().copied();
        self.first_free(contexts.filter(|c| memory.of(*c) == memory.of(cpu)), allowed)
    }

    fn first_free(&self, contexts: impl Iterator<Item = CpuId>, allowed: &CpuSet) -> Option<CpuId> {
        let mut second: Option<(u32, u32, usize, CpuId)> = None;
        for (order, cpu) in contexts.enumerate().filter(|(_, c)| self.holder[c.index()] == FREE && allowed.contains(*c))
        {
            let core = self.core[cpu.index()] as usize;
            if self.core_load[core] == 0 {
                return Some(cpu);
            }
            let key = (self.rank[cpu.index()], self.core_first[core], order, cpu);
            second = Some(second.map_or(key, |best| best.min(key)));
        }
        second.map(|(.., cpu)| cpu)
    }

    /// Updates the first task of a CPU's core.
    fn look_at_core(&mut self, cpu: CpuId) {
        let core = self.core[cpu.index()] as usize;
        let holders = self.siblings[core].iter().filter_map(|c| self.holder.get(c.index()));
        self.core_first[core] = holders.copied().filter(|h| ![TAKEN, CLOSED].contains(h)).min().unwrap_or(FREE);
    }

    /// Whether a task with this mask may run in a unit at that CPU's place.
    pub fn fits(&self, at: At, cpu: CpuId, allowed: &CpuSet) -> bool {
        allowed.contains(cpu)
            || (self.oversubscribed
                && self.level(at).of(cpu).is_some_and(|u| self.level(at).unit(u).set().intersects(allowed)))
    }

    /// The target for a task at its current place: its own context or, without one or with more tasks than contexts,
    /// all allowed ones of its unit.
    pub fn contexts(&self, at: At, task: usize, allowed: &CpuSet) -> CpuSet {
        let cpu = CpuId(self.place[task]);
        if !self.oversubscribed && self.holds(task) {
            return CpuSet::single(cpu);
        }
        let level = self.level(at);
        level.of(cpu).map_or_else(CpuSet::new, |unit| level.unit(unit).set().and(allowed))
    }

    /// Moves a task to a free context. Its former one goes to a crowded task of the same unit, otherwise it becomes
    /// free.
    pub fn relocate<'v>(&mut self, task: usize, to: CpuId, allowed: impl Fn(usize) -> &'v CpuSet) {
        let from = CpuId(self.place[task]);
        let held = self.holds(task);
        self.take(task as u32, to);
        if !held {
            return;
        }
        self.holder[from.index()] = self.vacant[from.index()];
        let heir = self.crowded.iter().position(|&t| {
            let cpu = CpuId(self.place[t as usize]);
            !self.holds(t as usize)
                && self.levels.iter().all(|level| level.of(cpu) == level.of(from))
                && allowed(t as usize).contains(from)
        });
        if let Some(i) = heir {
            let heir = self.crowded.remove(i);
            self.holder[from.index()] = heir;
            self.place[heir as usize] = from.0;
            self.look_at_core(from);
            return;
        }
        self.look_at_core(from);
        if self.vacant[from.index()] != TAKEN {
            self.core_load[self.core[from.index()] as usize] -= 1;
            self.holder[from.index()] = CLOSED;
        }
        self.open(from);
    }

    /// Frees unused contexts of a CPU's core: with whole cores none while a task holds another of its contexts.
    fn open(&mut self, cpu: CpuId) {
        let core = self.core[cpu.index()] as usize;
        if self.whole && self.core_first[core] != FREE {
            return;
        }
        let (siblings, size) = (self.siblings, self.holder.len());
        for cpu in siblings[core].iter().filter(|c| c.index() < size) {
            if self.vacant[cpu.index()] == FREE && self.holder[cpu.index()] == CLOSED {
                self.holder[cpu.index()] = FREE;
                self.shift_idle(cpu, 1);
            }
        }
    }

    /// Swaps two tasks, including their crowded state.
    pub fn swap(&mut self, a: usize, b: usize) {
        let held = [self.holds(a), self.holds(b)];
        self.place.swap(a, b);
        for (held, new) in [(held[0], b), (held[1], a)] {
            if held {
                self.holder[self.place[new] as usize] = new as u32;
            } else {
                self.crowded.push(new as u32); // instead of the other
            }
            self.look_at_core(CpuId(self.place[new]));
        }
    }

    fn holds(&self, task: usize) -> bool {
        self.holder[self.place[task] as usize] == task as u32
    }

    /// A task takes a free context; its former one is unchanged.
    fn take(&mut self, task: u32, cpu: CpuId) {
        self.holder[cpu.index()] = task;
        self.place[task as usize] = cpu.0;
        let first = &mut self.core_first[self.core[cpu.index()] as usize];
        *first = task.min(*first);
        self.core_load[self.core[cpu.index()] as usize] += 1;
        self.shift_idle(cpu, -1);
    }

    fn shift_idle(&mut self, cpu: CpuId, by: i32) {
        for (level, idle) in self.levels.iter().zip(&mut self.idle) {
            if let Some(unit) = level.of(cpu) {
                idle[unit] = idle[unit].wrapping_add_signed(by);
            }
        }
    }
}
