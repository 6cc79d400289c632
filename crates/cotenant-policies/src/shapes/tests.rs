//! Shapes by hand. The whole policy on a made-up machine.

use super::guard::guards;
use super::moves::{KINDS, neighbour, orderly, seeds};
use super::null_tests::NoisyProgram;
use super::shape::{Doubling, Shape};
use super::shape_board::{ShapeBoard, ShapePlaces};
use super::trialling::ShapesPhase;
use super::{Shapes, ShapesState};
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Ctx, Policy};
use cotenant_model::profile::MachineProfile;
use cotenant_model::testing::{clovertown, machine};
use cotenant_model::{
    Action, ActionOutcome, AppId, AppSample, Count, CpuId, Direction, NodeId, Outcome, Reading, Sample, Signal, TaskId,
    TaskInfo, TaskSample, Time, Topology, View,
};
use fastrand::Rng;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Two domains of four cores with two contexts each.
fn board() -> ShapeBoard {
    let topology = machine(2, 1, 4, 2);
    ShapeBoard::new(&topology, topology.usable(), |_| 0)
}

fn shape(counts: &[&[u16]], order: &[u8]) -> Shape {
    let counts = counts.iter().map(|group| group.to_vec()).collect();
    Shape { counts, doubling: Doubling { order: order.to_vec(), ..Doubling::default() } }
}

fn members(groups: &[usize]) -> Vec<(TaskId, usize)> {
    let tasks = groups.iter().enumerate().flat_map(|(group, n)| std::iter::repeat_n(group, *n));
    tasks.enumerate().map(|(task, group)| (TaskId(task as u32), group)).collect()
}

/// CPUs of a core are 2n and 2n + 1 here or n and n + 8: taken from the board.
fn text(places: &ShapePlaces) -> Vec<String> {
    places.values().map(ToString::to_string).collect()
}

#[test]
fn a_domain_with_room_is_the_kernels_choice() {
    let board = board();
    let all = vec![board.domains[0].cpus.or(&board.domains[1].cpus); 2];
    let places = shape(&[&[2, 0], &[0, 2]], &[0, 1]).seats(&board, &members(&[2, 2]), &all, |_| None, |_| None);
    let domain = |d: usize| board.domains[d].cpus.to_string();
    assert_eq!(text(&places), [domain(0), domain(0), domain(1), domain(1)]);
}

/// Six threads on four cores: two cores hold two threads each, of the group that comes first.
/// Holds place/trials.
#[test]
fn who_comes_first_doubles_up() {
    let board = board();
    let all = vec![board.domains[0].cpus.clone(); 2];
    let of = |order: &[u8]| {
        let places = shape(&[&[4, 0], &[2, 0]], order).seats(&board, &members(&[4, 2]), &all, |_| None, |_| None);
        let mut cores: Vec<Vec<u32>> = Vec::new();
        for unit in &board.domains[0].units {
            cores.push(places.iter().filter(|(_, set)| *set == unit).map(|(task, _)| task.0).collect());
        }
        cores
    };
    assert_eq!(of(&[0, 1]), [vec![0, 1], vec![2, 3], vec![], vec![]], "the last two have the other cores");
    // The two of the second group share one core, and two of the first another.
    assert_eq!(of(&[1, 0]), [vec![4, 5], vec![0, 1], vec![], vec![]]);
    let mut pair = shape(&[&[4, 0], &[2, 0]], &[0, 1]);
    pair.doubling.pair = Some((0, 1));
    let places = pair.seats(&board, &members(&[4, 2]), &all, |_| None, |_| None);
    for (one, other) in [(0, 4), (1, 5)] {
        let [one, other] = [one, other].map(|task| places[&TaskId(task)].clone());
        assert_eq!((one.len(), other.len()), (1, 1));
        assert!(board.domains[0].units.contains(&one.or(&other)), "a core for both");
    }
    pair.doubling.packed = Some(1);
    let places = pair.seats(&board, &members(&[2, 2]), &all, |_| None, |_| None);
    assert_eq!(places[&TaskId(2)], board.domains[0].units[0], "it would have a core of its own");
}

/// Holds place/trials.
#[test]
fn symmetric_shapes_are_one() {
    let board = board();
    let key = |counts: &[&[u16]], order: &[u8]| shape(counts, order).key(&board);
    assert_eq!(key(&[&[4, 0], &[1, 3]], &[0, 1]), key(&[&[0, 4], &[3, 1]], &[0, 1]));
    assert_ne!(key(&[&[4, 0], &[1, 3]], &[0, 1]), key(&[&[4, 0], &[3, 1]], &[0, 1]));
    assert_eq!(key(&[&[2, 2]], &[0]), key(&[&[2, 2]], &[0]));
    assert_eq!(key(&[&[2, 0], &[2, 0]], &[0, 1]), key(&[&[2, 0], &[2, 0]], &[1, 0]), "nobody shares a core");
    assert_ne!(key(&[&[4, 0], &[4, 0]], &[0, 1]), key(&[&[4, 0], &[4, 0]], &[1, 0]));
    // If nodes differ, so do mirrored shapes.
    let topology = machine(2, 1, 4, 2);
    let labelled = ShapeBoard::new(&topology, topology.usable(), |node| node as u64);
    assert_ne!(shape(&[&[4, 0]], &[0]).key(&labelled), shape(&[&[0, 4]], &[0]).key(&labelled));
    // A bus for both, or for each one, where all memory is one node.
    let uniform = clovertown();
    let uniform = ShapeBoard::new(&uniform, uniform.usable(), |_| 0);
    let key = |counts: &[u16]| shape(&[counts], &[0]).key(&uniform);
    assert_ne!(key(&[1, 1, 0, 0]), key(&[1, 0, 1, 0]));
    assert_eq!(key(&[1, 1, 0, 0]), key(&[0, 0, 1, 1]));
}

/// Holds place/trials.
#[test]
fn threads_stay_where_they_are_as_far_as_may_be() {
    let board = board();
    let all = vec![board.domains[0].cpus.or(&board.domains[1].cpus)];
    let now = |task: TaskId| Some((task.0 % 2) as usize); // 0, 2, 4 in the first, 1, 3 in the second
    let places = shape(&[&[1, 4]], &[0]).seats(&board, &members(&[5]), &all, now, |_| None);
    let moved = |task: u32| !places[&TaskId(task)].is_subset(&board.domains[task as usize % 2].cpus);
    assert_eq!((0..5).filter(|&task| moved(task)).collect::<Vec<_>>(), [2, 4]);
}

/// A thread that has to leave goes to its memory, and a thread far from its memory returns.
#[test]
fn threads_go_where_their_memory_is() {
    let topology = machine(2, 2, 2, 1);
    let board = ShapeBoard::new(&topology, topology.usable(), |_| 0);
    let all = vec![topology.usable().clone()];
    // Two domains per node; each of the first four threads has its memory in its domain, the last one elsewhere.
    let now = |task: TaskId| Some([0, 1, 2, 3, 3][task.0 as usize]);
    let memory = |task: TaskId| Some([0, 1, 2, 3, 0][task.0 as usize]);
    let places = shape(&[&[2, 1, 2, 0]], &[0]).seats(&board, &members(&[5]), &all, now, memory);
    let node = |task: u32| board.domains.iter().position(|d| places[&TaskId(task)].is_subset(&d.cpus)).unwrap() / 2;
    assert_eq!((0..5).map(node).collect::<Vec<_>>(), [0, 0, 1, 1, 0]);
}

/// One group after the other gets domains of its own, inside each node; those that do not fit stand with others.
#[test]
fn groups_are_set_apart_one_after_the_other() {
    let topology = machine(2, 4, 2, 2);
    let board = ShapeBoard::new(&topology, topology.usable(), |_| 0);
    let mixed = shape(&[&[1; 8], &[1; 8], &[1; 8]], &[0, 1, 2]);
    let first = orderly(&board, &mixed).into_iter().find(|next| next.counts[0] == [4, 0, 0, 0, 4, 0, 0, 0]).unwrap();
    assert_eq!(first.counts[1..], [[0, 2, 1, 1, 0, 2, 1, 1], [0, 1, 2, 1, 0, 1, 2, 1]]);
    let second = orderly(&board, &first).into_iter().find(|next| next.counts[1] == [0, 4, 0, 0, 0, 4, 0, 0]).unwrap();
    assert_eq!((&second.counts[0], &second.counts[2][..4]), (&first.counts[0], &[0, 0, 2, 2][..]));
    let full = orderly(&board, &shape(&[&[2; 8], &[2; 8]], &[0, 1]));
    assert!(
        full.iter().all(|next| next.fits(&board, &[topology.usable().clone(), topology.usable().clone()])),
        "{full:?}"
    );
}

proptest! {
    /// Whatever is drawn has all threads, and each of those that fit has a place that it may use.
    /// Holds place/trials.
    #[test]
    fn neighbours_lose_nobody(
        (packages, llcs, cores, smt) in (1..3_u32, 1..4_u32, 1..5_u32, 1..3_u32),
        threads in proptest::collection::vec(1..9_usize, 1..4),
        kinds in proptest::collection::vec(0..KINDS.len(), 1..40),
        seed: u64,
    ) {
        let topology = machine(packages, llcs, cores, smt);
        let board = ShapeBoard::new(&topology, topology.usable(), |_| 0);
        let allowed = vec![topology.usable().clone(); threads.len()];
        let mut rng = Rng::with_seed(seed);
        let first = seeds(&board, &threads, &Doubling::default());
        prop_assert!(!first.is_empty());
        for start in first.iter().take(6) {
            let mut shape = start.clone();
            for &kind in &kinds {
                let Some(next) = neighbour(&board, &shape, KINDS[kind], &mut rng) else { continue };
                for (group, n) in threads.iter().enumerate() {
                    prop_assert_eq!(next.threads(group), *n, "{:?}: {:?}", KINDS[kind], next);
                }
                let places = next.seats(&board, &members(&threads), &allowed, |_| None, |_| None);
                prop_assert_eq!(places.len(), threads.iter().sum::<usize>());
                prop_assert!(places.values().all(|set| !set.is_empty() && set.is_subset(topology.usable())));
                if next.fits(&board, &allowed) {
                    shape = next;
                }
            }
        }
    }
}

/// Speeds of both programs, and their reports.
type Other = (fn(&Pretend) -> f64, [NoisyProgram; 2]);

/// A made-up machine: two domains, two programs of four threads; together in one domain they run at `together`.
pub(super) struct Pretend {
    pub topology: Topology,
    pub at: Time,
    /// Place of each task: the kernel leaves it there while its mask allows it.
    pub cpus: Vec<CpuId>,
    /// The first task.
    pub first: u32,
    pub work: [f64; 2],
    pub prev: Option<Sample>,
    pub rng: Rng,
    pub together: f64,
    /// Exponent of that for each program.
    pub powers: [f64; 2],
    pub names: [String; 2],
    /// Whether the second program has the lower id, and whether all ran long before the policy.
    pub swapped: bool,
    pub old: bool,
    /// Whether the kernel moves memory after threads.
    pub numa_balancing: bool,
    /// Place of each thread's memory, as the fraction on the second node; seconds in which the kernel moves all of it
    /// after its thread; and the loss of a thread far from all of its memory.
    pub memory: Vec<f64>,
    /// Where it puts released threads, if not where they are.
    pub spreads: Option<Vec<CpuId>>,
    pub follows_s: f64,
    pub far: f64,
    /// End of the second program's progress reports.
    pub tells: Time,
    /// It reports a metric instead, at this interval in seconds.
    pub seldom: Option<u64>,
    /// Seconds of work lost so far, and the largest loss beyond 0.5 s and 1 %.
    pub lost: f64,
    pub beyond: f64,
    /// Instead of nearly exact values.
    pub other: Option<Other>,
    /// Reasons of orders, without repetitions in a row.
    pub reasons: Vec<String>,
    /// Notes of the policy, with the speed then.
    pub notes: Vec<(Time, String, f64)>,
}

impl Pretend {
    pub fn new(together: f64) -> Self {
        // The kernel has put two of each program into each domain.
        Self::on(machine(2, 1, 4, 1), (0..8).map(|task| task % 2 * 4 + task / 2).collect(), together)
    }

    /// Two CPUs, and one of each program on each of them.
    fn crowded(together: f64) -> Self {
        Self::on(machine(1, 1, 2, 1), vec![0, 1, 0, 1], together)
    }

    pub fn on(topology: Topology, cpus: Vec<u32>, together: f64) -> Self {
        Self {
            topology,
            at: Time(0),
            cpus: cpus.into_iter().map(CpuId).collect(),
            first: 0,
            work: [0.0; 2],
            prev: None,
            rng: Rng::with_seed(7),
            tells: Time::NEVER,
            together,
            powers: [1.0; 2],
            names: ["a", "b"].map(String::from),
            swapped: false,
            old: false,
            numa_balancing: false,
            memory: Vec::new(),
            spreads: None,
            follows_s: 8.0,
            far: 0.1,
            seldom: None,
            lost: 0.0,
            beyond: f64::NEG_INFINITY,
            other: None,
            reasons: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Both programs' speeds depend on how many of a program's threads are together: in a domain, on one CPU of two.
    pub fn speed(&self) -> f64 {
        if let Some((speed, _)) = &self.other {
            return speed(self);
        }
        let several = self.topology.llc_domains().len() > 1;
        let half = |cpu: CpuId| if several { self.topology.llc_of(cpu).unwrap() } else { cpu.index() };
        let own = &self.cpus[..self.cpus.len() / 2];
        let even = own.len() as f64 / 2.0;
        let first = own.iter().filter(|&&cpu| half(cpu) == 0).count() as f64;
        (1.0 + (self.together - 1.0) * (first - even).abs() / even) * (1.0 - self.far * self.remote())
    }

    /// The fraction of all memory far from its thread.
    fn remote(&self) -> f64 {
        let far = self.memory.iter().zip(&self.cpus).map(|(on, cpu)| (on - self.node(*cpu)).abs());
        far.sum::<f64>() / self.memory.len().max(1) as f64
    }

    fn node(&self, cpu: CpuId) -> f64 {
        self.topology.node_of(cpu).unwrap_or_default() as f64
    }

    /// Memory moves to its thread.
    fn follow(&mut self, seconds: f64) {
        let to: Vec<f64> = self.cpus.iter().map(|cpu| self.node(*cpu)).collect();
        let most = seconds / self.follows_s;
        self.memory.iter_mut().zip(to).for_each(|(on, to)| *on += (to - *on).clamp(-most, most));
    }

    fn sample(&mut self, seconds: f64) -> Sample {
        self.at = Time(self.at.0 + (seconds * 1e9) as u64);
        self.follow(seconds);
        let speed = self.speed();
        self.lost += (1.0 - speed.powf(f64::midpoint(self.powers[0], self.powers[1]))) * seconds;
        self.beyond = self.beyond.max(self.lost - 0.5 - 0.01 * self.at.0 as f64 / 1e9);
        let silent = self.at > self.tells;
        for (app, work) in self.work.iter_mut().enumerate() {
            if app == 1 && silent {
                continue;
            }
            let said = match &mut self.other {
                None => 1.0 + 0.01 * (self.rng.f64() - 0.5),
                Some((_, programs)) => programs[app].read(0.0, self.at).logs[0].exp(),
            };
            *work += speed.powf(self.powers[app]) * seconds * 1e6 * said;
        }
        let each = self.cpus.len() as u32 / 2;
        let id = |program: u32| AppId(if self.swapped { 1 - program } else { program });
        // The first thread of each process has the process's number.
        let info = |task: u32| TaskInfo {
            id: TaskId(self.first + task),
            app: id(task / each),
            old: self.old,
            tid: self.first + task + 1,
            pid: self.first + task / each * each + 1,
            allowed: self.topology.usable().clone(),
            ..TaskInfo::default()
        };
        let pages = |task: u32| {
            let of = |on: &f64| [1.0 - on, *on].map(|part| (part * 1e6) as u64);
            let own = self.memory.get(task as usize).map(of)?;
            Some(vec![(NodeId(0), own[0]), (NodeId(1), own[1])])
        };
        let task = |task: u32| TaskSample {
            info: Arc::new(info(task)),
            pages_by_node: pages(task),
            cpu: Some(self.cpus[task as usize]),
            counters: [(Signal::CpuTime, Count::exact(self.at.0))].into_iter().collect(),
            ..TaskSample::default()
        };
        let metric = |every: u64| {
            // The first one while the policy still surveys the tasks.
            let (first, every) = (Duration::from_millis(300), Duration::from_secs(every));
            let since = (self.at - Time(0)).checked_sub(first)?.as_nanos() / every.as_nanos();
            let at = Time(0) + first + every * since as u32;
            let reading = Reading { value: speed, direction: Direction::HigherIsBetter, window: every, count: 1, at };
            Some(("m".to_owned(), reading))
        };
        let app = |app: u32| {
            let seldom = self.seldom.filter(|_| app == 1);
            AppSample {
                id: id(app),
                name: self.names[app as usize].clone(),
                progress: seldom.is_none().then_some(self.work[app as usize] as u64),
                metrics: seldom.and_then(metric).into_iter().collect(),
                ..AppSample::default()
            }
        };
        let tasks = (0..self.cpus.len() as u32).map(task).collect();
        let mut apps: Vec<AppSample> = (0..2).map(app).collect();
        apps.sort_by_key(|app| app.id);
        Sample { at: self.at, tasks, apps, numa_balancing: self.numa_balancing, ..Sample::default() }
    }

    /// Runs the policy for these seconds; `fate` gives each order's outcome. Returns the final speed.
    pub fn run(&mut self, policy: &Shapes, seconds: f64, fate: impl Fn(Time) -> Outcome) -> (f64, ShapesState) {
        self.go_on(policy, ShapesState::default(), seconds, fate)
    }

    pub fn go_on(
        &mut self,
        policy: &Shapes,
        mut state: ShapesState,
        seconds: f64,
        fate: impl Fn(Time) -> Outcome,
    ) -> (f64, ShapesState) {
        let topology = self.topology.clone();
        let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
        let config = Config { pin: Pin::Cpu, ..Config::default() };
        let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
        let (mut outcomes, mut wait) = (Vec::new(), 0.1);
        let end = self.at + Duration::from_secs_f64(seconds);
        while self.at < end {
            let next = self.sample(wait);
            let prev = self.prev.replace(next.clone()).unwrap_or_else(|| next.clone());
            let view = View::new(&prev, &next);
            let decision = Policy::decide(policy, &ctx, &view, &outcomes, state, view.at);
            let speed = self.speed();
            self.notes.extend(decision.notes.iter().map(|note| (view.at, note.clone(), speed)));
            outcomes = Vec::new();
            for proposal in &decision.proposals {
                self.reasons.push(proposal.reason.to_string());
                let outcome = fate(self.at);
                if outcome == Outcome::Applied
                    && let Action::Place { task, contexts } = &proposal.action
                    && let Some(cpu) = task.0.checked_sub(self.first).map(|task| &mut self.cpus[task as usize])
                    && !contexts.contains(*cpu)
                {
                    *cpu = contexts.first().unwrap();
                }
                if let (Action::Release { task }, Some(to)) = (&proposal.action, &self.spreads) {
                    let task = (task.0 - self.first) as usize;
                    self.cpus[task] = to[task];
                }
                outcomes.push(ActionOutcome { action: proposal.action.clone(), outcome });
            }
            self.reasons.dedup();
            wait = (decision.wake_at - self.at).as_secs_f64();
            state = decision.state;
        }
        (self.speed(), state)
    }
}

/// Promise place/shapes: `shapes` and `auto` keep what is faster, seldom what gains nothing, whatever the noise, and
/// undo what is slower, also where memory moves along.
#[test]
fn what_is_faster_is_found_and_kept() {
    let mut machine = Pretend::new(1.2);
    let (speed, state) = machine.run(&Shapes::default(), 60.0, |_| Outcome::Applied);
    assert!((speed - 1.2).abs() < 1e-9, "{speed}");
    let tried = state.last_tried().unwrap();
    assert!(tried.interval.is_none_or(|[low, high]| low <= tried.gain && tried.gain <= high), "{tried:?}");
    let kept: Vec<&String> =
        machine.notes.iter().map(|(_, note, _)| note).filter(|n| n.starts_with("kept: ")).collect();
    assert_eq!(kept.len(), 1, "{:?}", machine.notes);
    assert!(kept[0].contains(" to +") && kept[0].ends_with(" pairs of windows"), "{kept:?}");
    let learned = state.trialling.learned().unwrap();
    assert!(!learned.is_kernel && learned.kept == 1, "{learned:?}");
    assert!(learned.standing.iter().all(|gain| (gain - 1.2_f64.ln()).abs() < 0.02), "{:?}", learned.standing);
}

/// With more threads than CPUs, the kernel leaves threads where a trial has put them. So each comparison begins from
/// the old placement: otherwise both halves would measure the new one.
#[test]
fn who_shares_a_cpu_is_found_although_the_kernel_leaves_everybody() {
    let mut machine = Pretend::crowded(3.0);
    let (speed, state) = machine.run(&Shapes::default(), 60.0, |_| Outcome::Applied);
    assert!((speed - 3.0).abs() < 1e-9, "{speed}");
    let learned = state.trialling.learned().unwrap();
    assert!(!learned.is_kernel && learned.standing.iter().all(|gain| (gain - 3.0_f64.ln()).abs() < 0.1), "{learned:?}");
}

/// The second program reports for a while and then computes in silence: the first one's speed counts alone.
#[test]
fn who_falls_silent_stops_nobody() {
    let mut machine = Pretend::new(1.2);
    machine.tells = Time::from_millis(2_000);
    let (speed, state) = machine.run(&Shapes::default(), 120.0, |_| Outcome::Applied);
    assert!((speed - 1.2).abs() < 1e-9, "{speed} {:?}", state.trialling.phase());
    assert_eq!(state.trialling.learned().unwrap().situation.measures.len(), 1);
    let told: Vec<&String> =
        machine.notes.iter().map(|(_, note, _)| note).filter(|n| n.starts_with("for 30 s")).collect();
    assert!(told.len() == 1 && told[0].ends_with(": b"), "{:?}", machine.notes);
}

/// What is slower is tried, put back, and given back: threads stand where the kernel had put them, with their own
/// masks.
/// Holds place/shapes.
#[test]
fn what_is_slower_is_put_back() {
    let mut machine = Pretend::new(0.8);
    let (speed, state) = machine.run(&Shapes::default(), 120.0, |_| Outcome::Applied);
    assert!((speed - 1.0).abs() < 1e-9, "{speed}");
    assert!(state.outgoing.placed().wanted.is_empty() && state.trialling.learned().unwrap().trials > 0, "{state:?}");
    assert!(matches!(state.trialling.phase(), ShapesPhase::Rest { .. }), "{:?}", state.trialling.phase());
    // Each order reports the previous trial with its interval; a loss detected at once has none.
    let said =
        |what: &str| machine.reasons.iter().any(|reason| reason.contains("not kept: a ") && reason.contains(what));
    assert!(said(" of windows; ") && said(": -19.6 % at a glance; "), "{:?}", machine.reasons);
}

/// Orders that are refused for half a minute: nothing is taken for done, and it is found later.
/// Holds place/shapes.
#[test]
fn what_is_denied_did_not_happen() {
    let mut machine = Pretend::new(1.2);
    let late = Time::from_millis(30_000);
    let fate = |at| if at < late { Outcome::Denied } else { Outcome::Applied };
    let (speed, state) = machine.run(&Shapes::default(), 240.0, fate);
    assert!((speed - 1.2).abs() < 1e-9, "{speed} {:?}", state.trialling.phase());
}

/// Nothing is ordered but what would be tried, as long as the programs are those, and all of it is the kernel's.
#[test]
fn advice_is_what_would_be_tried() {
    let mut machine = Pretend::crowded(3.0);
    let (_, state) = machine.run(&Shapes::default(), 60.0, |_| Outcome::NotThisMachine);
    assert!(
        matches!(state.trialling.phase(), ShapesPhase::Trial(_)) && state.outgoing.why().starts_with("tried: "),
        "{} {:?}",
        state.outgoing.why(),
        state.trialling.phase()
    );
    (machine.first, machine.cpus) = (8, Pretend::crowded(3.0).cpus);
    let (_, state) = machine.go_on(&Shapes::default(), state, 2.0, |_| Outcome::NotThisMachine);
    assert!(state.outgoing.placed().wanted.is_empty(), "{:?}", state.outgoing);
}

/// Together the programs are faster for an hour, and slower from then on: what stands is found to be so while it rests,
/// and given back.
#[test]
fn what_is_not_good_any_more_is_given_back() {
    let mut machine = Pretend::new(1.2);
    let (_, state) = machine.run(&Shapes::default(), 3_600.0, |_| Outcome::Applied);
    assert!(matches!(state.trialling.phase(), ShapesPhase::Rest { .. }), "{:?}", state.trialling.phase());
    machine.together = 0.8;
    let (speed, state) = machine.go_on(&Shapes::default(), state, 240.0, |_| Outcome::Applied);
    assert!((speed - 1.0).abs() < 1e-9, "{speed} {:?} {:?}", state.trialling.phase(), machine.notes);
}

/// Both programs begin anew, as the kernel spreads them: they begin where they were fastest before. That must win
/// again, and is given up where it does not.
/// Promise place/trials: Programs that begin anew start where they were fastest before, and counters order the trials
/// of other placements.
#[test]
fn who_begins_anew_begins_where_it_was_fastest() {
    let (policy, applied) = (Shapes::default(), |_| Outcome::Applied);
    for (together, ends) in [(1.2, 1.2), (0.8, 1.0)] {
        let mut machine = Pretend::new(1.2);
        let (before, state) = machine.run(&policy, 60.0, applied);
        (machine.first, machine.cpus, machine.together) = (8, Pretend::new(1.2).cpus, together);
        let (anew, state) = machine.go_on(&policy, state, 2.0, applied);
        assert!(before > 1.19 && (anew - together).abs() < 1e-9, "{before} {anew} {:?}", state.outgoing);
        let (again, state) = machine.go_on(&policy, state, 60.0, applied);
        assert!((again - ends).abs() < 1e-9, "{again} {:?} {:?}", state.trialling.phase(), machine.notes);
        // A dropped shape is not where they start the next time.
        (machine.first, machine.cpus) = (16, Pretend::new(1.2).cpus);
        let (later, _) = machine.go_on(&policy, state, 2.0, applied);
        assert!((later - ends).abs() < 1e-9, "{later}");
    }
}

/// What is known of programs is not used where sets of programs last for 10 s: whoever comes next would find room, and
/// touch its memory, where the kernel would have left none.
#[test]
fn who_begins_anew_all_the_time_begins_where_the_kernel_says() {
    let (policy, applied) = (Shapes::default(), |_| Outcome::Applied);
    for (passing, born) in [(0, true), (3, false)] {
        let mut machine = Pretend::new(1.2);
        let known = machine.names.clone();
        let (_, mut state) = machine.run(&policy, 90.0, applied);
        for round in 1..=passing + 1_u32 {
            (machine.first, machine.cpus) = (round * 100, Pretend::new(1.2).cpus);
            let last = round > passing;
            machine.names = if last { known.clone() } else { [format!("a{round}"), format!("b{round}")] };
            state = machine.go_on(&policy, state, if last { 2.0 } else { 10.0 }, applied).1;
        }
        assert_eq!(!state.outgoing.placed().wanted.is_empty(), born, "{passing} {:?}", state.situation);
    }
}

/// A process' first thread keeps its mask until all of its threads are there: they would have it, too.
/// Holds place/trials.
#[test]
fn the_first_thread_waits_for_the_others() {
    let (policy, applied) = (Shapes::default(), |_| Outcome::Applied);
    let mut machine = Pretend::new(1.2);
    let (_, state) = machine.run(&policy, 60.0, applied);
    (machine.first, machine.cpus) = (8, Pretend::new(1.2).cpus);
    let (_, state) = machine.go_on(&policy, state, 0.15, applied);
    let placed: Vec<u32> = state.outgoing.placed().wanted.keys().map(|task| task.0).collect();
    assert_eq!(placed, [9, 10, 11, 13, 14, 15]);
}

/// Sets of programs that last for 10 s: after two of them nothing is tried until one lasts for a minute.
/// Holds place/trials.
#[test]
fn what_does_not_last_is_left_alone() {
    let (policy, applied) = (Shapes::default(), |_| Outcome::Applied);
    let mut machine = Pretend::new(1.2);
    let mut state = ShapesState::default();
    for round in 1..=4_u32 {
        machine.first = round * 100;
        machine.cpus = if round % 2 == 0 { Pretend::new(1.2).cpus } else { vec![CpuId(0); 6] };
        for (task, cpu) in machine.cpus.iter_mut().enumerate() {
            *cpu = CpuId(task as u32 % 2 * 4 + task as u32 / 2);
        }
        // Each is another program than the earlier ones.
        machine.names = [format!("a{round}"), format!("b{round}")];
        state = machine.go_on(&policy, state, 10.0, applied).1;
        let trials = state.trialling.learned().map_or(0, |learned| learned.trials);
        assert_eq!(trials > 0, round < 3, "{round}: {trials}");
    }
    let (speed, state) = machine.go_on(&policy, state, 90.0, applied);
    assert!(speed > 1.19, "{speed} {:?}", state.trialling.phase());
}

/// One program would lose a tenth where the mean gains: the guard refuses, `off` allows it.
/// Holds place/guard.
#[test]
fn the_guard_is_for_each_application() {
    let refuses = |guard| guards(guard, &[0.0, 0.0], &[0.3, -0.1]);
    assert!(refuses(Some(0.05)) && !refuses(Some(0.2)) && !refuses(None));
    assert!(guards(Some(0.05), &[0.0, -0.04], &[0.1, -0.02]), "over all kept moves");
}

/// In JSON the fields of all four parts are those of one object, as they were before there were parts.
#[test]
fn a_state_without_parts_is_read_and_written_so() {
    let text = include_str!("../../../../fixtures/shapes/state.json");
    let before: serde_json::Value = serde_json::from_str(text).unwrap();
    let state: ShapesState = serde_json::from_value(before.clone()).unwrap();
    assert_eq!(serde_json::to_value(&state).unwrap(), before);
    assert_eq!(serde_json::from_str::<ShapesState>(text).unwrap(), state);
    assert_eq!((state.memory().len(), state.last_tried().map(|tried| tried.pairs)), (1, Some(1)));
}
