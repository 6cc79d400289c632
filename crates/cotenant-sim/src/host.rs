//! The simulated machine as a host of the loop.

use crate::machine::{PAGE, SimMachine};
use crate::reports::{Reporter, Reports, normal};
use crate::world::{Halt, World};
use cotenant_model::action::{Action, Order, Outcome};
use cotenant_model::host::{Host, HostError, Wake};
use cotenant_model::sample::{AppSample, CpuSample, Sample, TaskInfo, TaskSample};
use cotenant_model::signal::{Count, Signal};
use cotenant_model::topology::Topology;
use cotenant_model::{AppId, CpuId, CpuSet, NodeId, TaskId, Time};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Errors of counters, and the cost of reading them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Standard deviation of the counts in an interval, as a fraction; 0 = exact.
    pub noise: f64,
    /// Probability, 0–1, that a counter was not assigned in an interval (multiplexing).
    pub gaps: f64,
    /// CPU seconds per sample for each task that ran. They are charged to a task if no CPU is idle.
    pub cost_s: f64,
    /// CPU seconds per look for each page of a process (accessed bits, page tables). They are charged to a task if no
    /// CPU is idle.
    pub page_scan_s: f64,
    /// Seconds that a task pays to touch a page first after a look: page faults, or accessed bits to be set.
    pub page_fault_s: f64,
    /// Error of the progress that programs report; `None`: they report nothing.
    pub progress: Option<Reports>,
}

impl Default for Observation {
    /// Exact and without gaps, at 42 µs per sample of 10 running tasks as measured on Linux (0.42 % of a CPU for 100
    /// tasks every 100 ms, `docs/reference/overhead.md`). No looks at pages, no reports.
    fn default() -> Self {
        Self { noise: 0.0, gaps: 0.0, cost_s: 4.2e-6, page_scan_s: 0.0, page_fault_s: 0.0, progress: None }
    }
}

/// Whether a signal is counted: false for signals that the model or the machine lacks, so that they are absent, not 0.
pub(crate) fn counted(machine: &SimMachine, signal: Signal) -> bool {
    match signal {
        Signal::Cycles
        | Signal::Instructions
        | Signal::StallCycles
        | Signal::PrivateMisses
        | Signal::LlcHits
        | Signal::LlcLoadMisses
        | Signal::LlcMisses
        | Signal::Intra
        | Signal::Inter
        | Signal::Near
        | Signal::Remote
        | Signal::LocalDram
        | Signal::L2LinesIn
        | Signal::BusTransactions
        | Signal::SharedRequests
        | Signal::CpuTime
        | Signal::RunQueueWait
        | Signal::PageFaults
        | Signal::Migrations => true,
        Signal::L3LinesIn => machine.last_level == Some(3),
        _ => false,
    }
}

/// What the last sample reported of a task.
#[derive(Clone, Debug, Default)]
struct Told {
    truth: [f64; Signal::COUNT],
    counts: [Count; Signal::COUNT],
    info: Arc<TaskInfo>,
}

/// Separate seed, so that observing does not change the simulated course.
const OBSERVER: u64 = 0x0b5e_77e5;

/// The shortest interval between looks at pages: a collector has its own clock, as on real machines (Tumanov et al.
/// §4.2: 20 Hz).
const LOOKS_EVERY_NS: u64 = 50_000_000;

/// A simulated machine to drive.
pub struct SimHost {
    /// The machine.
    pub world: World,
    topology: Topology,
    observation: Observation,
    rng: Rng,
    told: BTreeMap<u32, Told>,
    /// What each application reports; empty if programs report nothing.
    reporters: Vec<Reporter>,
    /// The time of the last look at pages, and each task's memory accesses by then.
    looked: (Time, BTreeMap<u32, f64>),
    /// The slot of each thread in the last sample.
    slots: BTreeMap<u32, usize>,
    failure: Option<Halt>,
    end: Time,
}

impl SimHost {
    /// A host for this world; it ends at `end` at the latest.
    pub fn new(world: World, observation: Observation, seed: u64, end: Time) -> Self {
        let apps = 0..world.apps.len();
        let reporters = observation.progress.map(|how| apps.map(|app| Reporter::new(how, seed, app)).collect());
        Self {
            topology: world.machine.topology.clone(),
            world,
            observation,
            reporters: reporters.unwrap_or_default(),
            rng: Rng::with_seed(seed ^ OBSERVER),
            told: BTreeMap::new(),
            looked: (Time(0), BTreeMap::new()),
            slots: BTreeMap::new(),
            failure: None,
            end,
        }
    }

    /// The reason if the machine halted.
    pub fn failure(&self) -> Option<&Halt> {
        self.failure.as_ref()
    }

    /// The task's thread; `None` if its slot has been reused since the last sample.
    fn thread(&self, task: TaskId) -> Option<usize> {
        self.slots.get(&task.0).copied().filter(|&slot| {
            let t = &self.world.threads[slot];
            t.exists && t.id == task.0
        })
    }

    /// Charges the cost of observing.
    fn charge(&mut self) {
        let running = self.world.threads.iter().filter(|t| t.cpu.is_some()).count();
        self.world.pay(running as f64 * self.observation.cost_s);
        let Observation { page_scan_s, page_fault_s, .. } = self.observation;
        let page_bytes = self.world.machine.page_bytes;
        let now = self.world.now();
        if now.0 - self.looked.0.0 < LOOKS_EVERY_NS {
            return;
        }
        self.looked.0 = now;
        if page_scan_s > 0.0 {
            let pages: f64 = self.world.pages().iter().flatten().map(|pages| *pages as f64).sum();
            self.world.pay(pages * PAGE / page_bytes * page_scan_s);
        }
        if page_fault_s > 0.0 {
            for thread in 0..self.world.threads.len() {
                if !self.world.threads[thread].exists {
                    continue;
                }
                let pages = self.world.bytes_of(thread) / page_bytes;
                let t = &mut self.world.threads[thread];
                let so_far = t.counts[Signal::PrivateMisses as usize];
                let accesses = (so_far - self.looked.1.insert(t.id, so_far).unwrap_or(0.0)).max(0.0);
                // Random accesses leave each page untouched with probability exp(−accesses / pages).
                t.debt_s += pages * -(-accesses / pages).exp_m1() * page_fault_s;
            }
        }
    }
}

impl Host for SimHost {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        self.charge();
        let world = &self.world;
        let processes = world.pages();
        let observation = &self.observation;
        let exact = observation.noise == 0.0 && observation.gaps == 0.0;
        let counted: Vec<Signal> = Signal::ALL.iter().copied().filter(|s| counted(&world.machine, *s)).collect();
        self.slots = world.threads.iter().enumerate().filter(|(_, t)| t.exists).map(|(i, t)| (t.id, i)).collect();
        self.told.retain(|id, _| self.slots.contains_key(id));
        let mut tasks = Vec::with_capacity(self.slots.len());
        for t in world.threads.iter().filter(|t| t.exists) {
            let seen = self.told.entry(t.id).or_default();
            if seen.info.tid == 0 {
                let app = AppId(t.app as u32);
                let pid = 1_000 + 10_000 * (t.app as u32 + 1);
                let comm = world.apps[t.app].spec.name.chars().take(15).collect();
                seen.info = Arc::new(TaskInfo {
                    id: TaskId(t.id),
                    app,
                    tid: 1_000_000 + t.id,
                    pid,
                    start_ticks: t.started / 10_000_000,
                    comm,
                    allowed: t.allowed.clone(),
                    old: false,
                });
            }
            let ran_ns = (t.counts[Signal::CpuTime as usize] - seen.truth[Signal::CpuTime as usize]).max(0.0) as u64;
            let rng = &mut self.rng;
            let counters = counted.iter().map(|&signal| {
                let i = signal as usize;
                let events = t.counts[i] - seen.truth[i];
                seen.truth[i] = t.counts[i];
                let count = &mut seen.counts[i];
                if Signal::SOFTWARE.contains(&signal) {
                    *count = Count::exact(t.counts[i] as u64);
                } else {
                    let gap = observation.gaps > 0.0 && rng.f64() < observation.gaps;
                    count.enabled_ns += ran_ns;
                    if !gap {
                        let factor = if exact { 1.0 } else { 1.0 + observation.noise * normal(rng) };
                        count.value = count.value.saturating_add((events * factor.max(0.0)).round() as u64);
                        count.running_ns += ran_ns;
                    }
                }
                (signal, *count)
            });
            let counters = counters.collect();
            let node = |n: usize| self.topology.nodes().get(n).map_or(NodeId(n as u32), |node| node.id);
            let pages = processes[t.app].iter().enumerate().map(|(n, pages)| (node(n), *pages));
            let touches = t.touches.iter().enumerate().map(|(n, touches)| (node(n), touches.round() as u64));
            tasks.push(TaskSample {
                info: seen.info.clone(),
                cpu: t.cpu.map(|c| CpuId(c as u32)),
                counters,
                pages_by_node: Some(pages.collect()),
                touches_by_node: Some(touches.collect()),
            });
        }
        tasks.sort_by_key(|t| t.info.id);
        let cpus = world.places.cpus.iter();
        let cpus = cpus.map(|&c| CpuSample { id: CpuId(c as u32), busy_ns: world.busy_ns[c] as u64 }).collect();
        let mut apps = Vec::with_capacity(world.apps.len());
        for (i, app) in world.apps.iter().enumerate() {
            let progress = self.reporters.get_mut(i).map(|reporter| reporter.report(world.now(), app.instructions));
            if app.threads.clone().any(|t| world.threads[t].exists) {
                let (id, name) = (AppId(i as u32), app.spec.name.clone());
                apps.push(AppSample { id, name, progress, ..AppSample::default() });
            }
        }
        let numa_balancing = world.kernel.kind.moves_memory(self.topology.nodes().len());
        Ok(Sample { at: world.now(), tasks, cpus, apps, numa_balancing })
    }

    /// Simulated programs report their latencies themselves, so there is no endpoint to watch.
    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let one = |order: &Order| {
            if let Some(app) = order.action.app() {
                return self.world.obey(app, &order.action);
            }
            let Some(task) = order.action.task() else { return Outcome::NotThisMachine };
            let Some(thread) = self.thread(task) else { return Outcome::Gone };
            let t = &self.world.threads[thread];
            let mask = match order.action {
                Action::Pause { .. } => {
                    self.world.pause(thread);
                    return Outcome::Applied;
                }
                Action::Pages { ref nodes, .. } => {
                    let known = self.topology.nodes();
                    let to: Vec<usize> = (0..known.len()).filter(|&n| nodes.contains(&known[n].id)).collect();
                    if to.is_empty() {
                        return Outcome::Denied;
                    }
                    self.world.bring_pages(thread, to);
                    return Outcome::Applied;
                }
                Action::Place { .. } => order.affinity.and(&t.allowed),
                Action::Release { .. } => t.allowed.clone(),
                Action::Nap { .. } | Action::Limit { .. } | Action::LimitCaches { .. } | Action::Background { .. } => {
                    return Outcome::NotThisMachine; // done above
                }
            };
            if mask.is_empty() {
                return Outcome::Denied;
            }
            self.world.set_mask(thread, mask);
            self.world.resume(thread);
            Outcome::Applied
        };
        let outcomes = orders.iter().map(one).collect();
        self.world.touch_anew();
        outcomes
    }

    fn wait(&mut self, until: Time) -> Wake {
        let until = until.min(self.end);
        // The caller has taken a sample and may ask for the present time again.
        self.world.samples += 1;
        let work = self.world.work().map_err(Halt::from);
        if let Err(failure) = work.and_then(|()| self.world.advance(until, true)) {
            self.failure = Some(failure);
            return Wake::Exit;
        }
        if self.world.is_done() || self.world.now() >= self.end {
            return Wake::Exit;
        }
        if self.world.changed && self.world.now() < until { Wake::TasksChanged } else { Wake::Tick }
    }
}

impl World {
    /// Takes a thread off its CPU until [`Self::resume`]. Its cache contents count as lost, because others fill a cache
    /// of some MB within milliseconds.
    pub(crate) fn pause(&mut self, thread: usize) {
        if let Some(cpu) = self.stand(thread, None) {
            let t = &mut self.threads[thread];
            (t.paused, t.held) = (Some(cpu), 0.0);
            t.near.fill(0.0);
            self.disturb();
            self.kernel.disturb(self.now);
        }
    }

    /// Resumes a paused thread like a woken one: on its former CPU if that is idle, otherwise on the idlest.
    pub(crate) fn resume(&mut self, thread: usize) {
        let Some(before) = self.threads[thread].paused.take() else { return };
        self.put_back(thread, before);
        self.kernel.disturb(self.now);
    }

    /// Sets a thread's mask, and moves the thread if its CPU is no longer allowed.
    pub(crate) fn set_mask(&mut self, thread: usize, mask: CpuSet) {
        let t = &mut self.threads[thread];
        if t.mask == mask {
            return;
        }
        t.mask = mask;
        if let Some(cpu) = t.cpu.filter(|&c| !self.threads[thread].mask.contains(CpuId(c as u32))) {
            let to = self.idlest(thread);
            debug_assert_ne!(cpu, to);
            self.put(thread, to);
        }
        self.kernel.disturb(self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tests::{near, world};

    /// Thread 0 has computed for 1 s, and missed a million times.
    fn host(observation: Observation) -> SimHost {
        let mut world = world();
        world.threads[0].id = 7;
        let counts = &mut world.threads[0].counts;
        (counts[Signal::CpuTime as usize], counts[Signal::LlcMisses as usize]) = (1e9, 1e6);
        SimHost::new(world, observation, 1, Time(u64::MAX))
    }

    fn count(sample: &Sample, signal: Signal) -> Count {
        let task = sample.tasks.iter().find(|task| task.info.id == TaskId(7)).unwrap();
        task.counters.iter().find(|(s, _)| *s == signal).unwrap().1
    }

    #[test]
    fn counters_count_everything_or_while_others_have_them_nothing() {
        for (gaps, [once, twice], runs) in [(0.0, [1_000_000, 1_500_000], true), (1.0, [0, 0], false)] {
            let mut host = host(Observation { gaps, ..Observation::default() });
            let first = count(&host.sample().unwrap(), Signal::LlcMisses);
            let counts = &mut host.world.threads[0].counts;
            (counts[Signal::CpuTime as usize], counts[Signal::LlcMisses as usize]) = (3e9, 1.5e6);
            let sample = host.sample().unwrap();
            let second = count(&sample, Signal::LlcMisses);
            assert_eq!((first.value, second.value), (once, twice), "{gaps}");
            assert_eq!((first.enabled_ns, second.enabled_ns), (1_000_000_000, 3_000_000_000), "{gaps}");
            assert_eq!(second.running_ns, if runs { 3_000_000_000 } else { 0 }, "{gaps}");
            assert_eq!(count(&sample, Signal::CpuTime), Count::exact(3_000_000_000), "the kernel counts that");
        }
    }

    #[test]
    fn gaps_and_noise_are_as_large_as_is_said() {
        let mut host = host(Observation { noise: 0.1, gaps: 0.25, ..Observation::default() });
        let (mut before, mut seen) = (Count::default(), Vec::new());
        for n in 1..=1_000_u32 {
            let counts = &mut host.world.threads[0].counts;
            (counts[Signal::CpuTime as usize], counts[Signal::LlcMisses as usize]) =
                (1e9 * f64::from(n), 1e6 * f64::from(n));
            let count = count(&host.sample().unwrap(), Signal::LlcMisses);
            if count.running_ns > before.running_ns {
                seen.push((count.value - before.value) as f64 / 1e6);
            }
            before = count;
        }
        let n = seen.len() as f64;
        let mean = seen.iter().sum::<f64>() / n;
        let deviation = (seen.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!((700.0..800.0).contains(&n), "{n} of 1,000 were counted");
        assert!((mean - 1.0).abs() < 0.015 && (deviation - 0.1).abs() < 0.01, "{mean} ± {deviation}");
    }

    /// Where no CPU is idle, observing takes time from the task on the highest CPU, which is thread 7: 1 µs for each of
    /// nine, and of those of application 0, 7/12 of 4 MB each, and so on, the pages.
    #[test]
    fn observing_costs_time_where_nobody_is_idle() {
        let costs = Observation { cost_s: 1e-6, page_scan_s: 1e-9, ..Observation::default() };
        let pages: u64 = host(costs).world.pages().iter().flatten().sum();
        assert!(pages.abs_diff(((6.0 * 7.0 / 12.0 + 2.0 * 0.75 + 1.0) * 4e6 / 4096.0) as u64) < 9, "{pages}");
        for (idle, now_ms, expected) in [(false, 49, 9e-6), (false, 50, 9e-6 + pages as f64 * 1e-9), (true, 50, 0.0)] {
            let mut host = host(costs);
            host.world.queues.fill(1);
            host.world.queues[3] = u32::from(!idle);
            host.world.now = now_ms * 1_000_000;
            host.sample().unwrap();
            let debts: Vec<f64> = host.world.threads.iter().map(|t| t.debt_s).collect();
            assert!(near(debts[7], expected) && near(debts.iter().sum(), expected), "{idle} {now_ms}: {debts:?}");
        }
    }

    /// A hundred accesses to 570 pages at random touch 570 · (1 − exp(−100/570)) of them, once per look.
    #[test]
    fn pages_that_are_touched_cost_a_fault_per_look() {
        let mut host = host(Observation { page_fault_s: 1e-6, ..Observation::default() });
        let pages = 7.0 / 12.0 * 4e6 / 4096.0;
        let touched = |accesses: f64| pages * (1.0 - (-accesses / pages).exp()) * 1e-6;
        for (now_ms, so_far, debt) in
            [(50, 100.0, touched(100.0)), (99, 400.0, touched(100.0)), (100, 400.0, touched(100.0) + touched(300.0))]
        {
            host.world.now = now_ms * 1_000_000;
            host.world.threads[0].counts[Signal::PrivateMisses as usize] = so_far;
            host.sample().unwrap();
            assert!(near(host.world.threads[0].debt_s, debt), "{now_ms} ms: {}", host.world.threads[0].debt_s);
        }
    }

    /// Of pages of 64 KiB there are a sixteenth, so that so many accesses touch all of them.
    #[test]
    fn larger_pages_cost_fewer_faults() {
        let faults = |page_bytes: f64| {
            let mut host = host(Observation { page_fault_s: 1e-6, ..Observation::default() });
            Arc::make_mut(&mut host.world.machine).page_bytes = page_bytes;
            host.world.now = 50_000_000;
            host.world.threads[0].counts[Signal::PrivateMisses as usize] = 1e6;
            host.sample().unwrap();
            host.world.threads[0].debt_s
        };
        assert!(near(faults(PAGE) / faults(16.0 * PAGE), 16.0), "{} and {}", faults(PAGE), faults(16.0 * PAGE));
    }
}
