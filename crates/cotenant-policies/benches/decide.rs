//! Cost of a decision. Prints one JSON object per line, times in microseconds:
//! `{"bench":"decide","policy":"sam","cpus":40,"tasks":80,"case":"calm","moves":0,"iterations":…,"median_us":…,"min_us":…,"max_us":…}`.
//!
//! `cargo bench -p cotenant-policies --bench decide [-- POLICY…]`; without names, every policy that accepts the
//! machine. `sam-mph` is `sam` with its additions after SAM-MPH.
//!
//! Learning policies decide for most of a trial; so `shapes` and `auto` also run for 600 simulated seconds in which
//! each order is carried out (`"case":"learning"`), and every round counts.
//!
//! The paper's mapper takes 9.97 µs on 40 CPUs, migrations included (§4.4); here moves are decided but not carried out.
//!
//! Promise place/cost: A decision for a large machine takes less than 1 ms with `sam`, `mas`, `cas` and `das`, and
//! less than 10 ms with `numad` and `dino`.

use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Ctx, DynPolicy, Settings, State};
use cotenant_model::profile::{AppProfile, By, Loss, MachineProfile, Pressure, Thresholds};
use cotenant_model::testing::{ViewBuilder, machine};
use cotenant_model::{
    Action, ActionOutcome, AppId, AppSample, Count, Counters, CpuId, CpuSet, Outcome, Sample, Signal, TaskId, TaskInfo,
    TaskSample, Time, Topology, View,
};
use cotenant_policies::{Sam, SamConfig};
use cotenant_testing::bench::Report;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CYCLES: u64 = 220_000_000;

/// A machine and the load of its tasks.
struct Case {
    name: &'static str,
    topology: Topology,
    view: View,
    apps: BTreeMap<String, AppProfile>,
}

/// Packages, LLC domains per package, cores per domain, contexts per core.
const MACHINES: &[(u32, u32, u32, u32)] = &[(2, 1, 10, 2), (4, 1, 32, 2), (8, 1, 64, 2), (2, 32, 8, 2)];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &(packages, llcs, cores, smt) in MACHINES {
        let topology = machine(packages, llcs, cores, smt);
        // Twice as many tasks as CPUs, all of them running.
        cases.push(case("calm", &topology, 2, |_, _| Role::Cpu));
        // Sharers on all CPUs, and memory-bound tasks on the first package, some of them away from their pages.
        cases.push(case("migrating", &topology, 2, |task, package| match task % 8 {
            0 | 1 => Role::Sharer,
            2 | 3 if package == 0 => Role::Memory,
            4 if package != 0 => Role::Stray,
            _ => Role::Cpu,
        }));
        // Twice as many tasks as CPUs, a quarter of them running: places are contexts, half of them idle.
        cases.push(case("sleepers", &topology, 2, |task, _| match task % 8 {
            0 => Role::Sharer,
            4 => Role::Cpu,
            _ => Role::Asleep,
        }));
        // Four tasks per CPU in as many processes as CPUs, all running, a quarter memory-bound.
        cases.push(case("processes", &topology, 4, |task, _| if task % 4 == 1 { Role::Memory } else { Role::Cpu }));
    }
    // Four jobs of one task per CPU on 256 CPUs under 16 caches.
    let chiplets = machine(2, 8, 8, 2);
    let jobs = || case("jobs", &chiplets, 4, |task, _| if task % 4 == 1 { Role::Memory } else { Role::Cpu });
    cases.push(jobs());
    // The same with profiles: `das` looks up each one's loss at the traffic of the batch.
    let apps = jobs().view.apps.iter().map(|app| (app.name.clone(), characterized())).collect();
    cases.push(Case { name: "characterized", apps, ..jobs() });
    cases
}

/// The profile that `cotenant characterize` makes of a sensitive program.
fn characterized() -> AppProfile {
    let point = |i: u32| {
        let (rate, loss) = (f64::from(i) * 1e7, f64::from(i) * 0.05);
        let loss = Loss::of(&[(1.0 - loss, 1.0)], By::Time).expect("a round");
        Pressure { target_per_s: rate, reached_per_s: rate, loss, cpus: CpuSet::new() }
    };
    let points = (1..=4).map(point).collect();
    let degradation = BTreeMap::from([("memory".to_owned(), points)]);
    AppProfile { degradation, alone_s: Some(10.0), threads: Some(1), ..AppProfile::default() }
}

#[derive(Clone, Copy)]
enum Role {
    Asleep,
    Cpu,
    Sharer,
    Memory,
    Stray,
}

fn case(name: &'static str, topology: &Topology, per_cpu: u32, role: impl Fn(u32, usize) -> Role) -> Case {
    let cpus = topology.cpus().len() as u32;
    let mut builder = ViewBuilder::new(topology);
    for task in 0..cpus * per_cpu {
        let cpu = task / per_cpu; // roles repeat every few CPUs, so that every package has all of them
        let package = topology.package_of(topology.cpus()[cpu as usize].id).unwrap_or(0);
        let role = role(task, package);
        let ran = u64::from(!matches!(role, Role::Asleep));
        let count = |wanted: bool, events: u64| if wanted { events } else { 0 };
        let app = match name {
            "processes" => task / 4,
            "jobs" => task,
            _ => task % 5,
        };
        builder = builder
            .task(task, app, cpu)
            .cycles(CYCLES / u64::from(per_cpu) * ran)
            .signal(Signal::CpuTime, 100_000_000 / u64::from(per_cpu) * ran)
            .signal(Signal::Inter, count(matches!(role, Role::Sharer), 110_000))
            .signal(Signal::Intra, 0)
            .signal(Signal::Remote, count(matches!(role, Role::Stray), 88_000))
            .signal(Signal::LlcMisses, count(matches!(role, Role::Memory), 900_000))
            .signal(Signal::Instructions, CYCLES / u64::from(per_cpu) * ran)
            .signal(Signal::StallCycles, CYCLES / u64::from(per_cpu) / 4 * ran);
        builder = match role {
            Role::Stray => builder.pages(&[(0, 10_000)]),
            _ if name == "processes" => builder.pages(&[(package as u32, 100_000)]),
            _ => builder,
        };
    }
    for cpu in 0..cpus {
        builder = builder.cpu_busy(cpu, 1.0);
    }
    Case { name, topology: topology.clone(), view: builder.view(), apps: BTreeMap::new() }
}

/// Programs of equal threads on a made-up machine. A program is faster with more of its threads in one cache domain, so
/// that there is something to learn.
struct Programs {
    topology: Topology,
    places: Vec<CpuSet>,
    work: Vec<f64>,
    at: Time,
    noise: fastrand::Rng,
}

impl Programs {
    fn new(topology: Topology, threads: usize, programs: usize) -> Self {
        let cpus = topology.cpus();
        let places = (0..threads).map(|task| cpus[task % cpus.len()].id).map(|cpu| [cpu].into_iter().collect());
        let (places, noise) = (places.collect(), fastrand::Rng::with_seed(3));
        Self { topology, places, work: vec![0.0; programs], at: Time(0), noise }
    }

    fn cpu(&self, task: usize) -> Option<CpuId> {
        self.places[task].iter().nth(task % self.places[task].len().max(1))
    }

    fn sample(&mut self, passed: Duration) -> Sample {
        self.at = self.at + passed;
        let programs = self.work.len();
        let mut crowd = vec![BTreeMap::<usize, usize>::new(); programs];
        for task in 0..self.places.len() {
            let domain = self.cpu(task).and_then(|cpu| self.topology.llc_of(cpu)).unwrap_or(0);
            *crowd[task % programs].entry(domain).or_default() += 1;
        }
        for (work, crowd) in self.work.iter_mut().zip(&crowd) {
            let together = crowd.values().map(|n| n * n).sum::<usize>() as f64;
            let all = crowd.values().sum::<usize>() as f64;
            let speed = 1.0 + together / (all * all) + 0.02 * (self.noise.f64() - 0.5);
            *work += speed * passed.as_secs_f64() * 1e6;
        }
        let info = |task: usize| TaskInfo {
            id: TaskId(task as u32),
            app: AppId((task % programs) as u32),
            allowed: self.topology.usable().clone(),
            ..TaskInfo::default()
        };
        let task = |task: usize| TaskSample {
            info: Arc::new(info(task)),
            cpu: self.cpu(task),
            counters: counted(&self.topology, task % programs, self.at),
            ..TaskSample::default()
        };
        let app = |(app, work): (usize, &f64)| AppSample {
            id: AppId(app as u32),
            name: format!("program-{app}"),
            progress: Some(*work as u64),
            ..AppSample::default()
        };
        let tasks = (0..self.places.len()).map(task).collect();
        Sample { at: self.at, tasks, apps: self.work.iter().enumerate().map(app).collect(), ..Sample::default() }
    }
}

/// Cumulative counts of a thread: it ran a quarter of the time, and each program misses and shares more than the one
/// before.
fn counted(topology: &Topology, program: usize, at: Time) -> Counters {
    let (ran, more) = (at.0 / 4, program as u64 + 1);
    let several = topology.llc_domains().len() > 1;
    [
        (Signal::CpuTime, ran),
        (Signal::Cycles, ran * 22 / 10),
        (Signal::Instructions, ran * 2),
        (Signal::StallCycles, ran / 4 * more),
        (Signal::LlcMisses, ran / 1_000 * more),
        (Signal::Inter, if several { ran / 4_000 * more } else { 0 }),
        (Signal::Intra, ran / 4_000 * more),
        (Signal::Remote, ran / 8_000),
    ]
    .map(|(signal, count)| (signal, Count::exact(count)))
    .into_iter()
    .collect()
}

/// Every decision of a learning policy.
fn learn(report: &mut Report, name: &str, policy: &dyn DynPolicy, profile: &MachineProfile, programs: usize) {
    let (apps, config) = (BTreeMap::new(), Config::default());
    let mut machine = Programs::new(machine(2, 8, 8, 2), 1_024, programs);
    let topology = machine.topology.clone();
    let ctx = Ctx { topology: &topology, machine: profile, apps: &apps, config: &config };
    let (mut state, mut outcomes, mut times, mut moves) = (State::default(), Vec::new(), Vec::new(), 0);
    let (mut wait, mut before) = (config.interval, machine.sample(config.interval));
    while machine.at < Time::from_millis(600_000) {
        let sample = machine.sample(wait);
        let view = View::new(&before, &sample);
        let start = Instant::now();
        let decision = policy.decide(&ctx, &view, &outcomes, state, view.at);
        times.push(start.elapsed());
        outcomes = Vec::new();
        moves += decision.proposals.len();
        for proposal in decision.proposals {
            if let Action::Place { task, contexts } = &proposal.action {
                machine.places[task.0 as usize] = contexts.clone();
            }
            outcomes.push(ActionOutcome { action: proposal.action, outcome: Outcome::Applied });
        }
        (state, before) = (decision.state, sample);
        wait = decision.wake_at - machine.at;
    }
    times.sort_unstable();
    let us = |d: Duration| d.as_nanos() as f64 / 1e3;
    report.row(serde_json::json!({
        "policy": name,
        "machine": format!("{}x{}", topology.packages().len(), topology.llc_domains().len()),
        "cpus": topology.cpus().len(),
        "tasks": machine.places.len(),
        "programs": programs,
        "case": "learning",
        "moves": moves,
        "iterations": times.len(),
        "state_bytes": serde_json::to_vec(&state).map_or(0, |bytes| bytes.len()),
        "median_us": us(times[times.len() / 2]),
        "p99_us": us(times[times.len() * 99 / 100]),
        "min_us": us(times[0]),
        "max_us": us(times[times.len() - 1]),
    }));
}

fn measure(
    report: &mut Report,
    name: &str,
    policy: &dyn DynPolicy,
    case: &Case,
    profile: &MachineProfile,
    config: &Config,
) {
    let ctx = Ctx { topology: &case.topology, machine: profile, apps: &case.apps, config };
    if policy.check(&ctx).is_err() {
        return;
    }
    let decide = || policy.decide(&ctx, black_box(&case.view), &[], State::default(), case.view.at);
    let moves = decide().proposals.len();
    let mut times = Vec::new();
    let started = Instant::now();
    while times.len() < 5_000 && (times.len() < 50 || started.elapsed() < Duration::from_secs(1)) {
        let start = Instant::now();
        black_box(decide());
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let us = |d: Duration| d.as_nanos() as f64 / 1e3;
    report.row(serde_json::json!({
        "policy": name,
        "machine": format!("{}x{}", case.topology.packages().len(), case.topology.llc_domains().len()),
        "cpus": case.topology.cpus().len(),
        "tasks": case.view.tasks.len(),
        "case": case.name,
        "moves": moves,
        "iterations": times.len(),
        "median_us": us(times[times.len() / 2]),
        "min_us": us(times[0]),
        "max_us": us(times[times.len() - 1]),
    }));
}

fn main() {
    let mut report = Report::new("decide");
    let registry = cotenant_policies::standard();
    // `cargo bench` adds options of its own.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let names: Vec<&str> = if wanted.is_empty() {
        registry.names().chain(["sam-mph"]).collect()
    } else {
        wanted.iter().map(String::as_str).collect()
    };
    let thresholds = Thresholds {
        coherence_per_cycle: 2.5e-4,
        socket_bandwidth_per_s: 7.5e7,
        task_bandwidth_per_s: None,
        remote_per_cycle: Some(1e-4),
    };
    let profile = MachineProfile { clock_hz: Some(2.2e9), thresholds: Some(thresholds), ..MachineProfile::default() };
    let mph =
        Config { settings: Settings::default().with::<Sam>(&SamConfig::mph()), pin: Pin::Cpu, ..Config::default() };
    for case in cases() {
        for name in &names {
            let (known, config) = if *name == "sam-mph" { ("sam", &mph) } else { (*name, &Config::default()) };
            match registry.make(known, config) {
                Ok(policy) => measure(&mut report, name, policy.as_ref(), &case, &profile, config),
                Err(unknown) => eprintln!("{unknown}"),
            }
        }
    }
    for name in names.iter().filter(|name| ["shapes", "auto"].contains(*name)) {
        for programs in [2, 5, 8] {
            match registry.make(name, &Config::default()) {
                Ok(policy) => learn(&mut report, name, policy.as_ref(), &profile, programs),
                Err(unknown) => eprintln!("{unknown}"),
            }
        }
    }
}
