//! The simulated machine in motion: threads on CPUs, their cache contents, their speeds, and the hardware's counts.
//!
//! Time passes in steps, within which no place, phase or speed changes. A step ends at a wake-up of the loop, an
//! arrival, the end of a phase or of a run, or a turn of the kernel. Steps are short after a change, and grow as the
//! machine settles.

mod budget;
mod cpu_time;
mod demand;
mod events;
mod faults;
mod latency;
mod nap;
mod numa;
mod occupy;
mod pages;
mod parts;
mod report;
mod stand;
#[cfg(test)]
pub(crate) mod tests;
mod turn;

pub use budget::{Budget, Endless, Halt};
pub use latency::Latency;
pub use report::AppReport;

use crate::Ns;
use crate::app::{LINE, Phase, Program};
use crate::kernel::Kernel;
use crate::machine::{PAGE, SimMachine};
use crate::places::Places;
use crate::speed::Demand;
use crate::station::Station;
use cotenant_model::signal::Signal;
use cotenant_model::{CpuSet, Time};
use fastrand::Rng;
use faults::{NumaProcess, NumaThread};
use parts::{Moving, PerInstruction, Stand};
use std::collections::VecDeque;
use std::sync::Arc;

/// A step after a change.
const SHORT: Ns = 1_000_000;
/// The same for phases at most this long: cache contents change within them.
const FINE: Ns = 100_000;
const BRIEF: Ns = 10_000_000;
/// A step of a machine that has settled.
const LONG: Ns = 100_000_000;
/// The fraction of a cache that may change hands in a step before the next one is shorter.
const MOVING: f64 = 0.01;

/// A program with its threads, its work and its time.
#[derive(Clone, Debug)]
pub struct AppSpec {
    /// Name, for people and profiles.
    pub name: String,
    /// The program of each thread.
    pub program: Arc<Program>,
    /// Number of threads, ≥ 1.
    pub threads: usize,
    /// When it is started.
    pub arrival: Time,
    /// Number of successive runs, each with new threads. 0: started from outside, never finished.
    pub runs: u32,
    /// Instructions of each thread in a run, > 0.
    pub instructions: f64,
    /// Requests from outside, for an app that serves them; it ends after `instructions` of served requests.
    pub load: Option<Load>,
    /// The CPUs that its user allows.
    pub cpus: Option<CpuSet>,
    /// The CPU of each thread, in order; overrides the kernel. For the search for the optimum.
    pub pinned: Option<Vec<usize>>,
}

impl AppSpec {
    /// Starts at once, runs once, and is placed by the kernel.
    pub(crate) fn new(name: &str, program: Arc<Program>, threads: usize, instructions: f64) -> Self {
        let (name, arrival) = (name.to_owned(), Time(0));
        Self { name, program, threads, arrival, runs: 1, instructions, load: None, cpus: None, pinned: None }
    }
}

/// Requests that arrive at random (Poisson), each with a service demand (exponential).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests per second, > 0.
    pub requests_per_s: f64,
    /// Instructions per request on average, > 0.
    pub instructions: f64,
}

/// The progress of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Not yet started.
    Before,
    Running,
    /// All runs done.
    Done,
}

/// A running application.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub spec: AppSpec,
    /// The station of its contended lines.
    pub contended: Option<usize>,
    pub life: Life,
    /// Its threads: indices into [`World::threads`].
    pub threads: std::ops::Range<usize>,
    pub run_began: Ns,
    /// Seconds that each finished run took.
    pub times: Vec<f64>,
    /// Number of ended phases and runs.
    pub ends: u64,
    pub latency: Latency,
    /// Instructions executed by its threads in all runs.
    pub instructions: f64,
    /// Seconds, and the sum over them of seconds per instruction as if no thread waited for another.
    pub cost: (f64, f64),
    /// The end of its current nap; 0: none.
    pub nap_until: Ns,
    /// Limit of CPUs used on average; `None`: all.
    pub limit: Option<f64>,
    pub numa: NumaProcess,
}

/// A thread of the current run; the next run reuses its slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    pub app: usize,
    /// Numbered in order of creation, never reused.
    pub id: u32,
    /// Its CPU; `None` while it does not exist, waits, or has finished its part of the run.
    pub cpu: Option<usize>,
    /// Its CPU before it was paused.
    pub paused: Option<usize>,
    /// Its CPU before its application napped.
    pub napping: Option<usize>,
    /// CPUs that the user allows.
    pub allowed: CpuSet,
    /// CPUs that the policy allows.
    pub mask: CpuSet,
    pub phase: usize,
    /// Instructions left in its phase.
    pub phase_left: f64,
    /// Instructions left until a new thread replaces it.
    pub anew_left: f64,
    /// Instructions executed in all runs.
    pub instructions: f64,
    /// Instructions left in its run.
    pub left: f64,
    /// Bytes held of its CPU's last-level cache.
    pub held: f64,
    /// Lines per instruction that return because an inclusive cache evicted them from its private ones.
    pub again: f64,
    /// The same of each shared level before that.
    pub near: Vec<f64>,
    /// Fraction of its memory accesses per node.
    pub pages: Vec<f64>,
    /// Accesses to the memory of each node, cumulative.
    pub touches: Vec<f64>,
    /// Seconds of its time lost to migrations, page faults and observation.
    pub debt_s: f64,
    /// Cumulative events, by signal.
    pub counts: [f64; Signal::COUNT],
    /// Whether samples can see it: from its start to the end of its run.
    pub exists: bool,
    pub started: Ns,
    pub numa: NumaThread,
}

/// A machine with programs on it.
pub struct World {
    pub(crate) machine: Arc<SimMachine>,
    pub(crate) places: Places,
    pub(crate) apps: Vec<App>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) now: Ns,
    pub(crate) kernel: Kernel,
    pub(crate) rng: Rng,
    /// Per CPU number: busy nanoseconds.
    pub(crate) busy_ns: Vec<f64>,
    /// Number of changes of CPU after the first.
    pub(crate) migrations: u64,
    /// Whether finished applications restart until all have finished.
    pub(crate) restart: bool,
    /// Tasks came or went since [`World::advance`] began.
    pub(crate) changed: bool,
    /// Limit of a step's length: the machine's own, unless a test wants it finer.
    pub(crate) longest: Ns,
    /// Limit of steps and samples, steps and samples taken, and the samples among them.
    pub(crate) budget: Budget,
    work: u64,
    pub(crate) samples: u64,
    created: u32,
    step: Ns,
    /// The end of the last nap ordered, and the time until which naps alternate quickly.
    woke: Ns,
    brief_until: Ns,
    waits: Vec<f64>,
    demands: Vec<Demand>,
    per: Vec<PerInstruction>,
    /// Per demand: seconds per instruction and number of uses that do not depend on cache contents.
    fixed: Vec<(f64, usize)>,
    /// The threads of `demands` and `per`.
    running: Vec<usize>,
    /// Whether `demands` are current.
    fresh: bool,
    speeds: Vec<f64>,
    /// Bytes delivered by each memory node, reads and write-backs.
    pub(crate) node_bytes: Vec<f64>,
    /// Distance of each CPU to each node's memory, and accesses × distance; NaN if unknown.
    ways: Vec<Vec<f64>>,
    pub(crate) access_distance: f64,
    stand: Stand,
    /// Threads per CPU number.
    pub(crate) queues: Vec<u32>,
    /// Threads whose pages are to follow them, in order.
    moving: VecDeque<Moving>,
}

impl World {
    /// A machine without started programs. Deterministic for its arguments.
    pub fn new(mut machine: Arc<SimMachine>, specs: Vec<AppSpec>, kernel: Kernel, seed: u64) -> Self {
        let places = Places::new(&machine);
        let nodes = machine.nodes();
        let (mut apps, mut threads) = (Vec::new(), Vec::new());
        for spec in specs {
            let first = threads.len();
            let usable = machine.topology.usable();
            let allowed = spec.cpus.as_ref().map_or_else(|| usable.clone(), |cpus| cpus.and(usable));
            let thread = Thread {
                app: apps.len(),
                mask: allowed.clone(),
                allowed,
                anew_left: f64::INFINITY,
                near: vec![0.0; machine.near.len()],
                pages: vec![0.0; nodes],
                touches: vec![0.0; nodes],
                ..Thread::default()
            };
            threads.resize(first + spec.threads, thread);
            // Utilization of this many contended lines; waits are in units of their transfer time.
            let contended = spec.program.contended_lines.map(|lines| {
                let stations = &mut Arc::make_mut(&mut machine).stations;
                stations.push(Station {
                    name: format!("lines of {}", spec.name),
                    low: lines,
                    high: lines,
                    queue_s: 1.0,
                    idle_s: f64::INFINITY,
                });
                stations.len() - 1
            });
            apps.push(App {
                contended,
                spec,
                life: Life::Before,
                threads: first..threads.len(),
                run_began: 0,
                times: Vec::new(),
                ends: 0,
                latency: Latency::default(),
                instructions: 0.0,
                cost: (0.0, 0.0),
                nap_until: 0,
                limit: None,
                numa: NumaProcess::default(),
            });
        }
        let way = |cpu: usize, node| machine.topology.way(cotenant_model::CpuId(cpu as u32), node).unwrap_or(f64::NAN);
        Self {
            ways: (0..places.core.of.len()).map(|cpu| (0..nodes).map(|node| way(cpu, node)).collect()).collect(),
            access_distance: 0.0,
            waits: vec![0.0; machine.stations.len()],
            busy_ns: vec![0.0; places.core.of.len()],
            queues: vec![0; places.core.of.len()],
            moving: VecDeque::new(),
            node_bytes: vec![0.0; nodes],
            places,
            apps,
            threads,
            now: 0,
            kernel,
            rng: Rng::with_seed(seed),
            migrations: 0,
            restart: false,
            changed: false,
            created: 0,
            longest: LONG,
            budget: Budget::default(),
            work: 0,
            samples: 0,
            step: SHORT,
            woke: 0,
            brief_until: 0,
            demands: Vec::new(),
            per: Vec::new(),
            fixed: Vec::new(),
            running: Vec::new(),
            fresh: false,
            speeds: Vec::new(),
            stand: Stand::default(),
            machine,
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        Time(self.now)
    }

    /// Whether all runs of all applications are done.
    pub fn is_done(&self) -> bool {
        self.apps.iter().all(|a| a.life == Life::Done)
    }

    /// Steps and samples so far.
    pub(crate) fn steps(&self) -> u64 {
        self.work
    }

    /// Counts a step or a sample.
    pub(crate) fn work(&mut self) -> Result<(), Endless> {
        self.work += 1;
        let at_s = self.now as f64 / 1e9;
        if self.work as f64 <= self.budget.at_once as f64 + at_s * self.budget.per_s as f64 {
            return Ok(());
        }
        let most = self.apps.iter().max_by_key(|app| app.ends).map(|app| (app.spec.name.clone(), app.ends));
        Err(Endless { at_s, work: self.work, samples: self.samples, most: most.unwrap_or_default() })
    }

    /// Bytes of memory of a thread: its own, and its part of the shared ones.
    pub(crate) fn bytes_of(&self, thread: usize) -> f64 {
        let t = &self.threads[thread];
        self.bytes_of_phase(t.app, t.phase)
    }

    fn bytes_of_phase(&self, app: usize, phase: usize) -> f64 {
        let spec = &self.apps[app].spec;
        let shared = spec.program.shared;
        spec.program.phases[phase].footprint_bytes * (1.0 - shared + shared / spec.threads as f64)
    }

    /// Pages of each application on each node; a process's pages are those of all its threads.
    pub(crate) fn pages(&self) -> Vec<Vec<u64>> {
        let mut bytes = vec![vec![0.0; self.machine.nodes()]; self.apps.len()];
        for t in self.threads.iter().filter(|t| t.exists) {
            let own = self.bytes_of_phase(t.app, t.phase);
            bytes[t.app].iter_mut().zip(&t.pages).for_each(|(bytes, share)| *bytes += share * own);
        }
        let pages = |bytes: &Vec<f64>| bytes.iter().map(|b| (b / PAGE).round() as u64).collect();
        bytes.iter().map(pages).collect()
    }

    pub(crate) fn phase(&self, thread: usize) -> &Phase {
        let t = &self.threads[thread];
        &self.apps[t.app].spec.program.phases[t.phase]
    }

    /// Advances time to `until`, to a change of tasks if `stop`, or to the end of everything.
    ///
    /// # Errors
    /// [`Halt`] if the solver does not converge, or steps get too small.
    pub fn advance(&mut self, until: Time, stop: bool) -> Result<(), Halt> {
        self.changed = false;
        self.begin_arrivals();
        while self.now < until.0 && !self.is_done() && !(stop && self.changed) {
            self.step(until.0)?;
        }
        Ok(())
    }

    /// Recomputes after a change of places, phases or tasks.
    pub(crate) fn disturb(&mut self) {
        self.fresh = false;
        self.step = self.shortest();
    }

    /// Changes of cache contents do not shorten steps.
    fn shortest(&self) -> Ns {
        if self.now < self.brief_until { FINE } else { SHORT }
    }

    /// Sets a thread's place without a cost; returns the former one.
    pub(crate) fn stand(&mut self, thread: usize, cpu: Option<usize>) -> Option<usize> {
        let before = std::mem::replace(&mut self.threads[thread].cpu, cpu);
        if let Some(cpu) = before {
            self.queues[cpu] -= 1;
        }
        if let Some(cpu) = cpu {
            self.queues[cpu] += 1;
        }
        before
    }

    /// Puts a thread onto a CPU.
    pub(crate) fn put(&mut self, thread: usize, cpu: usize) {
        let Some(before) = self.stand(thread, Some(cpu)) else { return self.disturb() };
        if before == cpu {
            return;
        }
        let t = &mut self.threads[thread];
        if self.places.llc.of[before] != self.places.llc.of[cpu] {
            (t.held, t.again) = (0.0, 0.0);
        }
        for (held, near) in t.near.iter_mut().zip(&self.machine.near) {
            if near.of[before] != near.of[cpu] {
                *held = 0.0;
            }
        }
        t.debt_s += self.machine.migration_s;
        t.counts[Signal::Migrations as usize] += 1.0;
        self.migrations += 1;
        self.disturb();
    }

    fn step(&mut self, until: Ns) -> Result<(), Halt> {
        self.work()?;
        self.end_naps();
        self.kernel_turn();
        if self.fresh {
            self.refresh();
        } else {
            self.demand();
            self.fresh = true;
        }
        self.solve()?;
        let end = self.end_of_step(until);
        let dt = (end - self.now) as f64 / 1e9;
        let moved = self.occupy(dt);
        self.execute(dt);
        self.move_pages(dt);
        self.now = end;
        self.step = if moved > MOVING { (self.step / 2).max(self.shortest()) } else { (self.step * 2).min(LONG) };
        self.end_phases_and_runs();
        self.begin_arrivals();
        Ok(())
    }

    /// The latest end of the step.
    fn end_of_step(&self, until: Ns) -> Ns {
        let longest = if self.moving.is_empty() { self.longest } else { self.longest.min(parts::STEP) };
        let mut end = until.min(self.now + self.step.min(longest));
        for app in &self.apps {
            if app.life == Life::Before {
                end = end.min(app.spec.arrival.0);
            }
            if app.nap_until > self.now {
                end = end.min(app.nap_until);
            }
        }
        if let Some(turn) = self.kernel.next_turn() {
            end = end.min(turn);
        }
        for (&thread, speed) in self.running.iter().zip(&self.speeds) {
            let t = &self.threads[thread];
            let ns = t.left.min(t.phase_left).min(t.anew_left) / speed * 1e9 + t.debt_s * 1e9;
            if ns < 1e18 {
                end = end.min(self.now + ns.ceil() as Ns);
            }
        }
        end.max(self.now + 1)
    }

    /// Executes for `dt` seconds at the current speeds, and counts.
    fn execute(&mut self, dt: f64) {
        // What each thread can use of the step; threads of a team wait for the one that can use least.
        let mut used: Vec<f64> = Vec::with_capacity(self.running.len());
        let mut team = vec![f64::INFINITY; self.apps.len()];
        for (i, &thread) in self.running.iter().enumerate() {
            let t = &mut self.threads[thread];
            let paid = t.debt_s.min(dt);
            t.debt_s -= paid;
            used.push(dt - paid);
            if self.demands[i].team.is_some() {
                team[t.app] = team[t.app].min(dt - paid);
            }
        }
        let clock = self.machine.clock_hz;
        let mut busy = vec![0.0; self.busy_ns.len()];
        for (i, &thread) in self.running.iter().enumerate() {
            let (demand, per, speed) = (&self.demands[i], &self.per[i], self.speeds[i]);
            let t = &mut self.threads[thread];
            let Some(cpu) = t.cpu else { continue };
            let cost = &mut self.apps[t.app].cost;
            *cost = (cost.0 + dt, cost.1 + dt * demand.cost_s(&self.waits) / demand.share);
            let time = if demand.team.is_some() { team[t.app] } else { used[i] };
            let instructions = (speed * time).min(t.left);
            t.left -= instructions;
            t.phase_left -= instructions;
            t.anew_left -= instructions;
            t.instructions += instructions;
            self.apps[t.app].instructions += instructions;
            let waits = demand.team.is_some() || demand.cap.is_some();
            let on = if waits { demand.share.min(speed * demand.cost_s(&self.waits)) } else { demand.share };
            let cpu_s = on * dt;
            busy[cpu] += cpu_s;
            for (node, share) in t.pages.iter().enumerate() {
                self.node_bytes[node] += instructions * per.misses * (1.0 + per.writebacks) * share * LINE;
                let accesses = instructions * per.misses * share;
                t.touches[node] += accesses;
                if accesses > 0.0 {
                    self.access_distance += accesses * self.ways[cpu][node];
                }
            }
            let mut add = |signal: Signal, events: f64| t.counts[signal as usize] += events;
            let cycles = cpu_s * clock;
            add(Signal::Cycles, cycles);
            add(Signal::Instructions, instructions);
            add(Signal::StallCycles, (cycles - instructions * per.busy_s * clock).max(0.0));
            add(Signal::PrivateMisses, instructions * (per.requests + per.coherence()));
            let missed = per.misses * per.demanded;
            add(Signal::LlcHits, instructions * (per.accesses - missed));
            add(Signal::LlcLoadMisses, instructions * (missed + per.near + per.inter));
            add(Signal::LlcMisses, instructions * (missed + per.near + per.inter));
            add(Signal::Intra, instructions * per.intra);
            add(Signal::Near, instructions * per.near);
            add(Signal::Inter, instructions * per.inter);
            add(Signal::Remote, instructions * per.misses * per.remote);
            add(Signal::LocalDram, instructions * per.misses * (1.0 - per.remote));
            // A line from a core that shares the last level enters a second level only if that is nearer.
            let intra = if self.machine.last_level == Some(2) { 0.0 } else { per.intra };
            add(Signal::L2LinesIn, instructions * (per.second + intra + per.near + per.inter));
            add(Signal::L3LinesIn, instructions * per.misses);
            add(Signal::BusTransactions, instructions * per.misses * (1.0 + per.writebacks));
            add(Signal::SharedRequests, instructions * (per.coherence() + per.shared * (per.accesses - per.misses)));
            add(Signal::CpuTime, cpu_s * 1e9);
            // It is runnable for `on / share` of the time, and on its CPU for `on` of it.
            add(Signal::RunQueueWait, on * (1.0 / demand.share - 1.0) * dt * 1e9);
        }
        for (total, seconds) in self.busy_ns.iter_mut().zip(busy) {
            *total += seconds.min(dt) * 1e9;
        }
        self.serve(dt);
    }
}
