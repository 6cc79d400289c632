//! `sam` against a second, plain implementation of figures 3 and 4 of the paper, as restored from the text, and of its
//! rule for hyperthreads: no chiplets, masks or missing signals, one task per CPU; slow, but comparable with the
//! figure.

use cotenant_model::policy::{Config, Ctx, Policy};
use cotenant_model::profile::{MachineProfile, Thresholds};
use cotenant_model::testing::{ViewBuilder, machine};
use cotenant_model::{Action, Signal, TaskId};
use cotenant_policies::sam::Origin;
use cotenant_policies::{Sam, SamConfig, SamState};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CYCLES: u64 = 220_000_000;
const LIMITS: Thresholds = Thresholds {
    coherence_per_cycle: 2.5e-4,
    socket_bandwidth_per_s: 75e6,
    task_bandwidth_per_s: Some(7.5e6),
    remote_per_cycle: Some(3.9e-4),
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    Inter,
    Intra,
    Mem,
    Cpu,
}
use Class::{Cpu, Inter, Intra, Mem};

/// A task in one interval; tasks are numbered by their index.
#[derive(Clone, Copy, Debug)]
struct Task {
    cpu: u32,
    class: Class,
    remote: bool,
    /// LLC misses in 0.1 s.
    misses: u64,
    /// Its milliseconds on a CPU.
    ms: u64,
    origin: Option<u32>,
    moved: bool,
}

struct Oracle {
    sockets: u32,
    /// Threshold of a socket.
    cores: u32,
    /// Contexts of a core.
    contexts: u32,
    ours: bool,
    /// Each core takes one task, and tasks below a tenth of a CPU have no core of their own (§4.3).
    whole: bool,
    tasks: Vec<Task>,
    moves: Vec<(usize, u32)>,
}

impl Oracle {
    /// CPUs are numbered core by core, then their second contexts.
    fn core(&self, cpu: u32) -> u32 {
        cpu % (self.sockets * self.cores)
    }

    fn socket_of(&self, cpu: u32) -> u32 {
        self.core(cpu) / self.cores
    }

    fn socket(&self, t: usize) -> u32 {
        self.socket_of(self.tasks[t].cpu)
    }

    fn counts(&self, t: usize) -> bool {
        !self.whole || self.tasks[t].ms >= 10
    }

    fn on(&self, socket: u32) -> Vec<usize> {
        (0..self.tasks.len()).filter(|&t| self.counts(t) && self.socket(t) == socket).collect()
    }

    /// Tasks on a core, in order.
    fn at(&self, core: u32) -> Vec<usize> {
        (0..self.tasks.len()).filter(|&t| self.counts(t) && self.core(self.tasks[t].cpu) == core).collect()
    }

    /// Capacity of a socket in tasks.
    fn room(&self) -> u32 {
        if self.whole { self.cores } else { self.cores * self.contexts }
    }

    fn count(&self, socket: u32, class: Class) -> u32 {
        self.on(socket).into_iter().filter(|&t| self.tasks[t].class == class).count() as u32
    }

    /// `|P_inter| + |P_intra|`
    fn sharers(&self, socket: u32) -> u32 {
        self.count(socket, Inter) + self.count(socket, Intra)
    }

    /// The members of a set that have not moved: no task moves twice.
    fn free(&self, socket: u32, class: Class) -> Vec<usize> {
        self.on(socket).into_iter().filter(|&t| self.tasks[t].class == class && !self.tasks[t].moved).collect()
    }

    /// Available contexts, best first: those of unused cores, in order; then, with shared cores, first contexts before
    /// second ones, beside the first task.
    fn idle(&self, socket: u32) -> Vec<u32> {
        let cores = socket * self.cores..(socket + 1) * self.cores;
        if self.whole {
            return cores.filter(|core| self.at(*core).is_empty()).collect();
        }
        let all = self.sockets * self.cores;
        let contexts = (0..self.contexts).flat_map(|k| cores.clone().map(move |core| core + k * all));
        let mut idle: Vec<u32> = contexts.filter(|cpu| self.tasks.iter().all(|t| t.cpu != *cpu)).collect();
        idle.sort_by_key(|cpu| self.at(self.core(*cpu)).first().map(|first| (cpu / all, *first)));
        idle
    }

    fn place(&mut self, t: usize, cpu: u32) {
        let home = self.socket_of(cpu);
        let task = &mut self.tasks[t];
        (task.cpu, task.moved) = (cpu, true);
        task.origin = task.origin.filter(|origin| *origin != home);
        self.moves.push((t, cpu));
    }

    fn swap(&mut self, a: usize, b: usize) {
        let (cpu_a, cpu_b) = (self.tasks[a].cpu, self.tasks[b].cpu);
        self.place(a, cpu_b);
        self.place(b, cpu_a);
    }

    fn reluctantly(&mut self, t: usize, victim: usize) {
        let from = self.socket(victim);
        self.tasks[victim].origin.get_or_insert(from);
        self.swap(t, victim);
    }

    /// Ours: prevents sharers from swinging.
    fn gathers(&self, i: u32, j: u32) -> bool {
        let movers = self.free(j, Inter).len() as u32;
        let places = self.idle(i).len() + self.free(i, Cpu).len() + self.free(i, Mem).len();
        let taken = movers.min(places as u32).min(self.room().saturating_sub(self.sharers(i)));
        let came = |t: &usize| self.tasks[*t].moved && self.tasks[*t].class == Intra;
        let all = self.count(j, Inter) + self.on(j).iter().filter(|t| came(t)).count() as u32;
        self.sharers(j) < self.room() && (taken == all || self.sharers(i) + taken > self.sharers(j))
    }

    /// Moves sharers that share a core of an overfull socket, the last first, to idle cores of the socket that already
    /// takes some or has most. Returns whether too many remain.
    fn spread(&mut self) -> bool {
        let sockets = 0..self.sockets;
        let mut excess: Vec<u32> =
            sockets.clone().map(|s| (self.on(s).len() as u32).saturating_sub(self.cores)).collect();
        let mut takes = vec![false; excess.len()];
        for t in (0..self.tasks.len()).rev() {
            let from = self.socket(t);
            let shares = matches!(self.tasks[t].class, Inter | Intra);
            let two = self.at(self.core(self.tasks[t].cpu)).len() > 1;
            if excess[from as usize] == 0 || !self.counts(t) || !shares || !two {
                continue;
            }
            let open = sockets.clone().filter(|s| *s != from && !self.idle(*s).is_empty());
            let best = open.max_by_key(|s| (takes[*s as usize], self.idle(*s).len(), std::cmp::Reverse(*s)));
            if let Some(to) = best {
                takes[to as usize] = true;
                excess[from as usize] -= 1;
                self.place(t, self.idle(to)[0]);
            }
        }
        excess.iter().any(|e| *e > 0)
    }

    fn stage_1(&mut self) {
        let mut drew = vec![false; self.sockets as usize];
        for i in 0..self.sockets {
            for j in (0..self.sockets).filter(|j| *j != i) {
                let none = self.free(i, Inter).is_empty() || self.free(j, Inter).is_empty();
                if none || (self.ours && (drew[j as usize] || !self.gathers(i, j))) {
                    continue;
                }
                while self.sharers(i) < self.room() {
                    let Some(&t) = self.free(j, Inter).first() else { break };
                    if let Some(&cpu) = self.idle(i).first() {
                        self.place(t, cpu);
                    } else if let Some(&victim) = self.free(i, Cpu).first() {
                        self.swap(t, victim);
                    } else if let Some(&victim) = self.free(i, Mem).first() {
                        self.reluctantly(t, victim);
                    } else {
                        break;
                    }
                    drew[i as usize] = true;
                }
            }
        }
    }

    fn stage_2(&mut self) {
        for i in 0..self.sockets {
            for t in self.on(i) {
                let Task { remote: true, moved: false, origin: Some(a), .. } = self.tasks[t] else { continue };
                let back = |k: &usize| self.tasks[*k].origin == Some(i) && !self.tasks[*k].moved;
                if let Some(k) = self.on(a).into_iter().find(back) {
                    self.swap(t, k);
                } else if let Some(&cpu) = self.idle(a).first() {
                    self.place(t, cpu);
                } else if let Some(&victim) = self.free(a, Cpu).first() {
                    self.swap(t, victim);
                } else if let Some(&victim) = self.free(a, Mem).first() {
                    self.reluctantly(t, victim);
                }
            }
        }
    }

    fn stage_3(&mut self) {
        let limit = (LIMITS.socket_bandwidth_per_s / 10.0) as u64;
        let there = |t: &Task, socket: u32| self.socket_of(t.cpu) == socket;
        let sum = |socket: u32| self.tasks.iter().filter(|t| there(t, socket)).map(|t| t.misses).sum::<u64>();
        let mut load: Vec<u64> = (0..self.sockets).map(sum).collect();
        let sockets = self.sockets;
        for (i, j) in (0..sockets).flat_map(|i| (0..sockets).map(move |j| (i, j))) {
            let (a, b) = (i as usize, j as usize);
            if i == j || load[b] >= limit {
                continue;
            }
            // Ours: by traffic, skipping what does not fit, so that ids do not matter.
            let mut movers = self.free(i, Mem);
            movers.sort_by_key(|t| std::cmp::Reverse(self.tasks[*t].misses));
            for t in movers {
                let cpu = self.idle(j).first().copied();
                let victims = self.free(j, Cpu).into_iter().filter(|_| cpu.is_none());
                let victim = victims.min_by_key(|v| self.tasks[*v].misses);
                if load[a] <= limit || (cpu.is_none() && victim.is_none()) {
                    break;
                }
                // Ours: an equally demanding victim would itself be a mover in the next round.
                let shift = self.tasks[t].misses.saturating_sub(victim.map_or(0, |v| self.tasks[v].misses));
                if shift == 0 || load[b] + shift > limit {
                    continue;
                }
                match (cpu, victim) {
                    (Some(cpu), _) => self.place(t, cpu),
                    (None, Some(victim)) => self.swap(t, victim),
                    (None, None) => unreachable!("the loop ends before"),
                }
                load[a] -= shift;
                load[b] += shift;
            }
        }
    }
}

fn task() -> impl Strategy<Value = Task> {
    let class = proptest::sample::select(vec![Inter, Inter, Intra, Mem, Mem, Mem, Cpu, Cpu]);
    let origin = proptest::option::weighted(0.4, 0u32..4);
    let ms = proptest::sample::select(vec![1, 9, 30, 100, 100, 100, 100]);
    (class, proptest::bool::weighted(0.4), 0u64..700_000, 0u64..3_700_000, origin, ms).prop_map(
        |(class, remote, few, many, origin, ms)| Task {
            cpu: 0,
            class,
            remote,
            ms,
            misses: match class {
                Mem => 800_000 + many,
                Inter | Intra => few + many / 4,
                Cpu => few,
            },
            origin,
            moved: false,
        },
    )
}

proptest! {
    /// Holds place/sam.
    #[test]
    fn sam_is_what_the_figures_say(
        (sockets, cores, contexts) in (2u32..5, 2u32..7, 1u32..4),
        mut tasks in proptest::collection::vec(task(), 1..24),
        order in Just((0..72u32).collect::<Vec<_>>()).prop_shuffle(),
        (ours, whole_cores) in (any::<bool>(), any::<bool>()),
        (was_crowded, packed) in (any::<Option<bool>>(), any::<bool>()),
    ) {
        let cpus: Vec<u32> = order.into_iter().filter(|cpu| *cpu < sockets * cores * contexts).collect();
        tasks.truncate(cpus.len());
        for (task, cpu) in tasks.iter_mut().zip(&cpus) {
            task.cpu = *cpu;
            task.origin = task.origin.filter(|origin| *origin < sockets);
        }
        // Half a CPU above the cores may be rounded either way.
        let wanted: u64 = tasks.iter().map(|t| t.ms).sum();
        prop_assume!(wanted % 100 != 50);
        let topology = machine(sockets, 1, cores, contexts);
        let thresholds = Some(LIMITS);
        let profile = MachineProfile { clock_hz: Some(2.2e9), thresholds, ..MachineProfile::default() };
        let sam = if ours { SamConfig::default() } else { SamConfig::paper_exact() };
        let sam = SamConfig { whole_cores, ..sam };
        let (apps, config) = (BTreeMap::new(), Config::default());
        let ctx = Ctx { topology: &topology, machine: &profile, apps: &apps, config: &config };
        let view = (0u32..).zip(&tasks).fold(ViewBuilder::new(&topology), |b, (id, t)| {
            let events = |is: bool| if is { CYCLES / 1_000 } else { 0 };
            b.task(id, 0, t.cpu)
                .cycles(CYCLES)
                .signal(Signal::Inter, events(t.class == Inter))
                .signal(Signal::Intra, events(t.class == Intra))
                .signal(Signal::Remote, events(t.remote))
                .signal(Signal::LlcMisses, t.misses)
                .signal(Signal::CpuTime, t.ms * 1_000_000)
        });
        let view = view.view();
        let origins = (0u32..).zip(&tasks).filter_map(|(id, t)| Some((TaskId(id), t.origin?)));
        let origins = origins.map(|(task, unit)| Origin { task, unit, displaced: false }).collect();
        let state = SamState { origins, crowded: was_crowded, packed, ..SamState::default() };
        let decision = Sam(sam).decide(&ctx, &view, &[], state, view.at);

        // A task seen at home has no origin any more.
        for t in &mut tasks {
            t.origin = t.origin.filter(|origin| *origin != t.cpu % (sockets * cores) / cores);
        }
        // More CPUs than cores are wanted, now and before.
        let crowded = (wanted + 50) / 100 > u64::from(sockets * cores);
        let before = was_crowded.unwrap_or(crowded);
        let whole = whole_cores && !(crowded && before);
        let mut oracle = Oracle { sockets, cores, contexts, ours, whole, tasks, moves: Vec::new() };
        let calm = !crowded && !before;
        let packed = whole_cores && (!whole || packed && (!calm || oracle.spread()));
        oracle.stage_1();
        oracle.stage_2();
        oracle.stage_3();

        let moves: Vec<(usize, u32)> = decision.proposals.iter().map(|p| match &p.action {
            Action::Place { task, contexts } if contexts.len() == 1 => (task.index(), contexts.first().unwrap().0),
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(moves, oracle.moves);
        let state = decision.state;
        prop_assert_eq!((state.crowded, state.packed), (whole_cores.then_some(crowded), packed));
        let kept: Vec<(usize, u32)> = state.origins.iter().map(|o| (o.task.index(), o.unit)).collect();
        let expected = oracle.tasks.iter().enumerate().filter_map(|(t, task)| Some((t, task.origin?)));
        prop_assert_eq!(kept, expected.collect::<Vec<_>>());
    }
}
