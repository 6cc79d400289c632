//! Which task holds which hardware context, kept up to date while the stages move tasks.

use super::task::Task;
use super::units::{At, Level, NONE};
use cotenant_model::policy::Ctx;
use cotenant_model::{CpuId, CpuSet, View};

/// A context without a managed task that may take one.
const FREE: u32 = u32::MAX;
/// A CPU that is no context, or that others keep busy.
const TAKEN: u32 = u32::MAX - 1;
/// A context that nobody takes while there are cores enough: a second one, and any of a core that a task holds.
const CLOSED: u32 = u32::MAX - 2;

/// Tasks on contexts. A task that ran holds the context on which it was seen, or, where a task of lower id holds
/// that, a free one of the same unit; where there is none it is *crowded*: its place is where it was seen, and it
/// holds nothing.
#[derive(Clone)]
pub(super) struct Board<'a> {
    levels: [Level<'a>; 2],
    /// Per CPU: the task that holds it, [`FREE`] or [`TAKEN`].
    holder: Vec<u32>,
    /// Per CPU: what it is when no task holds it.
    vacant: Vec<u32>,
    /// Per CPU: its core.
    core: Vec<u32>,
    /// Per CPU: its rank among the contexts of its core.
    rank: Vec<u32>,
    /// Per core: its contexts.
    siblings: &'a [CpuSet],
    /// Per core: its contexts that are not free.
    core_load: Vec<u32>,
    /// Per core: the first task that holds one of them; [`FREE`] where none does.
    core_first: Vec<u32>,
    /// Per level and unit: free contexts.
    idle: [Vec<u32>; 2],
    /// Per task: its CPU; [`NONE`] for tasks that hold no place.
    place: Vec<u32>,
    /// All crowded tasks, and some that no longer are.
    crowded: Vec<u32>,
    /// More tasks ran than there are contexts: units are placed on, not contexts.
    oversubscribed: bool,
    /// There are cores enough, and each takes one task.
    whole: bool,
    /// Per unit of stage 1: how many tasks it takes.
    room: Vec<u32>,
}

impl<'a> Board<'a> {
    /// `whole`: there are cores enough, and each is to take one task, and helpers besides
    /// ([`super::SamConfig::whole_cores`]).
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
            // One of which nothing is known yet is taken to run: its context is not idle.
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
            // A context that others keep busy is still held by the task that runs there.
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

    /// The level whose units are the same as this one's: on ordinary machines both levels are the packages.
    pub fn shared_units(&self, at: At) -> At {
        if self.levels.iter().any(|level| level.split) { at } else { At::Sharing }
    }

    /// The units where a task is, by level; [`NONE`] where it holds no place.
    pub fn units(&self, task: usize) -> [u32; 2] {
        let unit = |level: &Level<'_>| Some(level.of(self.cpu(task)?)? as u32);
        [unit(&self.levels[0]).unwrap_or(NONE), unit(&self.levels[1]).unwrap_or(NONE)]
    }

    /// The CPU of a task that has a place.
    pub fn cpu(&self, task: usize) -> Option<CpuId> {
        (self.place[task] != NONE).then(|| CpuId(self.place[task]))
    }

    /// How many tasks a unit of stage 1 takes: one per context, or per core where second contexts are nobody's.
    pub fn room(&self, unit: usize) -> u32 {
        self.room[unit]
    }

    /// Free contexts of a unit.
    pub fn idle(&self, at: At, unit: usize) -> usize {
        self.idle[at as usize][unit] as usize
    }

    /// The free context of a unit that a task with that allowance takes: on a core of which nothing is used before a
    /// second context of a used one (§4.3), then a core's first before its second, then beside the first task, so
    /// that what cores are called matters only among those that are alike; then in order.
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

    /// Whether a task shares its core although there are cores enough.
    pub fn doubled(&self, task: usize) -> bool {
        let Some(core) = self.cpu(task).filter(|_| self.whole).map(|cpu| self.core[cpu.index()]) else { return false };
        let held = |cpu: &CpuId| self.holder.get(cpu.index()).is_some_and(|h| *h < CLOSED);
        self.siblings[core as usize].iter().filter(held).count() > 1
    }

    /// A free context of a unit on a core of which nothing is used.
    pub fn idle_core(&self, at: At, unit: usize, allowed: &CpuSet) -> Option<CpuId> {
        let cpu = self.free(at, unit, allowed)?;
        (self.core_load[self.core[cpu.index()] as usize] == 0).then_some(cpu)
    }

    /// The tasks that hold the contexts of each core, in order of core; none while contexts are not what is placed on.
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

    /// Finds the first task of a CPU's core again.
    fn look_at_core(&mut self, cpu: CpuId) {
        let core = self.core[cpu.index()] as usize;
        let holders = self.siblings[core].iter().filter_map(|c| self.holder.get(c.index()));
        self.core_first[core] = holders.copied().filter(|h| ![TAKEN, CLOSED].contains(h)).min().unwrap_or(FREE);
    }

    /// Whether a task with that allowance may stand in a unit at that CPU's place.
    pub fn fits(&self, at: At, cpu: CpuId, allowed: &CpuSet) -> bool {
        allowed.contains(cpu)
            || (self.oversubscribed
                && self.level(at).of(cpu).is_some_and(|u| self.level(at).unit(u).set().intersects(allowed)))
    }

    /// Where a task is to be placed, standing where it does now: on its own context, or, where it has none of its own
    /// or there are more tasks than contexts, on all of the unit's that it is allowed.
    pub fn contexts(&self, at: At, task: usize, allowed: &CpuSet) -> CpuSet {
        let cpu = CpuId(self.place[task]);
        if !self.oversubscribed && self.holds(task) {
            return CpuSet::single(cpu);
        }
        let level = self.level(at);
        level.of(cpu).map_or_else(CpuSet::new, |unit| level.unit(unit).set().and(allowed))
    }

    /// Moves a task to a free context. What it held falls to a crowded task of the same unit, else becomes free.
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

    /// Opens what nobody holds of a CPU's core: on whole cores nothing while a task holds another of its contexts.
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

    /// Two tasks change places, and with them whether they are crowded.
    pub fn swap(&mut self, a: usize, b: usize) {
        let held = [self.holds(a), self.holds(b)];
        self.place.swap(a, b);
        for (held, new) in [(held[0], b), (held[1], a)] {
            if held {
                self.holder[self.place[new] as usize] = new as u32;
            } else {
                self.crowded.push(new as u32); // in the other's stead
            }
            self.look_at_core(CpuId(self.place[new]));
        }
    }

    fn holds(&self, task: usize) -> bool {
        self.holder[self.place[task] as usize] == task as u32
    }

    /// A task takes a free context; what it held stays as it is.
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
