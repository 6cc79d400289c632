//! `sam` against a second, plain implementation of figures 3 and 4 of the paper, as the text restores them: no
//! hyperthreads, chiplets, masks or missing signals, one task per CPU; slow, and readable beside the figure.

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

/// A task in one interval; tasks are numbered by their place in the list.
#[derive(Clone, Copy, Debug)]
struct Task {
    cpu: u32,
    class: Class,
    remote: bool,
    /// LLC misses in 0.1 s.
    misses: u64,
    origin: Option<u32>,
    moved: bool,
}

struct Oracle {
    sockets: u32,
    cores: u32,
    ours: bool,
    tasks: Vec<Task>,
    moves: Vec<(usize, u32)>,
}

impl Oracle {
    fn socket(&self, t: usize) -> u32 {
        self.tasks[t].cpu / self.cores
    }

    fn on(&self, socket: u32) -> Vec<usize> {
        (0..self.tasks.len()).filter(|&t| self.socket(t) == socket).collect()
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

    fn idle(&self, socket: u32) -> Vec<u32> {
        let taken = |cpu: &u32| self.tasks.iter().any(|t| t.cpu == *cpu);
        (socket * self.cores..(socket + 1) * self.cores).filter(|cpu| !taken(cpu)).collect()
    }

    fn place(&mut self, t: usize, cpu: u32) {
        let home = cpu / self.cores;
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

    /// Ours: what keeps sharers from swinging.
    fn gathers(&self, i: u32, j: u32) -> bool {
        let movers = self.free(j, Inter).len() as u32;
        let places = self.idle(i).len() + self.free(i, Cpu).len() + self.free(i, Mem).len();
        let taken = movers.min(places as u32).min(self.cores - self.sharers(i));
        self.sharers(j) < self.cores && (taken == movers || self.sharers(i) + taken > self.sharers(j))
    }

    fn stage_1(&mut self) {
        let mut drew = vec![false; self.sockets as usize];
        for i in 0..self.sockets {
            for j in (0..self.sockets).filter(|j| *j != i) {
                let none = self.count(i, Inter) == 0 || self.free(j, Inter).is_empty();
                if none || (self.ours && (drew[j as usize] || !self.gathers(i, j))) {
                    continue;
                }
                while self.sharers(i) < self.cores {
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
        let sum = |socket: u32| self.on(socket).into_iter().map(|t| self.tasks[t].misses).sum::<u64>();
        let mut load: Vec<u64> = (0..self.sockets).map(sum).collect();
        let sockets = self.sockets;
        for (i, j) in (0..sockets).flat_map(|i| (0..sockets).map(move |j| (i, j))) {
            let (a, b) = (i as usize, j as usize);
            if i == j || load[b] >= limit {
                continue;
            }
            // Ours: by traffic, and what does not fit is passed over, so that ids do not matter.
            let mut movers = self.free(i, Mem);
            movers.sort_by_key(|t| std::cmp::Reverse(self.tasks[*t].misses));
            for t in movers {
                let cpu = self.idle(j).first().copied();
                let victims = self.free(j, Cpu).into_iter().filter(|_| cpu.is_none());
                let victim = victims.min_by_key(|v| self.tasks[*v].misses);
                if load[a] <= limit || (cpu.is_none() && victim.is_none()) {
                    break;
                }
                // Ours: a victim that asks for as much would be a mover itself in the next round.
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
    (class, proptest::bool::weighted(0.4), 0u64..700_000, 0u64..3_700_000, origin).prop_map(
        |(class, remote, few, many, origin)| Task {
            cpu: 0,
            class,
            remote,
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
    #[test]
    fn sam_is_what_the_figures_say(
        (sockets, cores) in (2u32..5, 2u32..7),
        mut tasks in proptest::collection::vec(task(), 1..24),
        order in Just((0..24u32).collect::<Vec<_>>()).prop_shuffle(),
        ours in any::<bool>(),
    ) {
        let cpus: Vec<u32> = order.into_iter().filter(|cpu| *cpu < sockets * cores).collect();
        tasks.truncate(cpus.len());
        for (task, cpu) in tasks.iter_mut().zip(&cpus) {
            task.cpu = *cpu;
            task.origin = task.origin.filter(|origin| *origin < sockets);
        }
        let topology = machine(sockets, 1, cores, 1);
        let thresholds = Some(LIMITS);
        let profile = MachineProfile { clock_hz: Some(2.2e9), thresholds, ..MachineProfile::default() };
        let sam = if ours { SamConfig::default() } else { SamConfig::paper_exact() };
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
        });
        let view = view.view();
        let origins = (0u32..).zip(&tasks).filter_map(|(id, t)| Some((TaskId(id), t.origin?)));
        let origins = origins.map(|(task, unit)| Origin { task, unit, displaced: false }).collect();
        let decision = Sam(sam).decide(&ctx, &view, &[], SamState { origins, ..SamState::default() }, view.at);

        // Who is seen at home has no origin any more.
        for t in &mut tasks {
            t.origin = t.origin.filter(|origin| *origin != t.cpu / cores);
        }
        let mut oracle = Oracle { sockets, cores, ours, tasks, moves: Vec::new() };
        oracle.stage_1();
        oracle.stage_2();
        oracle.stage_3();

        let moves: Vec<(usize, u32)> = decision.proposals.iter().map(|p| match &p.action {
            Action::Place { task, contexts } if contexts.len() == 1 => (task.index(), contexts.first().unwrap().0),
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(moves, oracle.moves);
        let state = decision.state;
        let kept: Vec<(usize, u32)> = state.origins.iter().map(|o| (o.task.index(), o.unit)).collect();
        let expected = oracle.tasks.iter().enumerate().filter_map(|(t, task)| Some((t, task.origin?)));
        prop_assert_eq!(kept, expected.collect::<Vec<_>>());
    }
}
