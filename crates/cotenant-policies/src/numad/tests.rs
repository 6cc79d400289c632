//! Worked by hand, in the daemon's units: hundredths of a CPU, MiB.
//!
//! The machine: two packages of four single-context cores, a memory node of 4,096 MiB each, SLIT 10 and 21.
//!
//! Holds place/papers.

use super::*;
use cotenant_model::policy::Config;
use cotenant_model::profile::MachineProfile;
use cotenant_model::testing::{ViewBuilder, moves, pages, parts};
use cotenant_model::topology::Topology;

/// Pages in a MiB.
const MIB: u64 = 256;

struct Bench {
    topology: Topology,
    machine: MachineProfile,
    config: Config,
    state: NumadState,
}

fn bench(node_mib: Option<u64>) -> Bench {
    let mut parts = parts(2, 1, 4, 1);
    parts.nodes.iter_mut().for_each(|n| n.bytes = node_mib.map(|m| m << 20));
    Bench {
        topology: Topology::new(parts).unwrap(),
        machine: MachineProfile::default(),
        config: Config::default(),
        state: NumadState::default(),
    }
}

/// Threads of a process (its app) on these CPUs, each running all the time, with MiB on each node.
fn process(view: ViewBuilder, app: u32, cpus: &[u32], mib: [u64; 2]) -> ViewBuilder {
    cpus.iter().fold(view, |view, &cpu| {
        let pages = [(0, mib[0] * MIB), (1, mib[1] * MIB)];
        view.task(10 * app + cpu, app, cpu).signal(Signal::CpuTime, 100_000_000).pages(&pages).cpu_busy(cpu, 1.0)
    })
}

impl Bench {
    fn view(&self) -> ViewBuilder {
        ViewBuilder::new(&self.topology)
    }

    /// One decision `at_s` seconds after the start.
    fn decide(&mut self, view: ViewBuilder, at_s: u64, outcomes: &[ActionOutcome]) -> Decision<NumadState> {
        let view = view.at(Time::from_secs(at_s)).view();
        let apps = BTreeMap::new();
        let ctx = Ctx { topology: &self.topology, machine: &self.machine, apps: &apps, config: &self.config };
        let decision = Numad.decide(&ctx, &view, outcomes, std::mem::take(&mut self.state), view.at);
        self.state = decision.state.clone();
        decision
    }
}

fn all(decision: &Decision<NumadState>, outcome: Outcome) -> Vec<ActionOutcome> {
    decision.proposals.iter().map(|p| ActionOutcome { action: p.action.clone(), outcome }).collect()
}

#[test]
fn a_process_goes_whole_to_the_node_with_most_room() {
    // Process 1: CPUs 0 and 4, 200 and 800 MiB. It uses 200; asks min(200·100/85 = 235, 2 threads = 200) CPUs and
    // 1000·100/85 = 1176 MiB. Free on either node: 300 CPUs and 4096 − 200 = 3896, 4096 − 800 = 3296 MiB. What it
    // uses is added back:
    //   node 0: 300 + 200·200/1000 = 340 CPUs, 3896 + 200·17/16 = 4108, at most 4096 MiB
    //   node 1: 300 + 200·800/1000 = 460, at most 400 CPUs, 3296 + 800·17/16 = 4146, at most 4096 MiB
    // Magnitudes: (1176·10 + 2920·4)·(200·6 + 140) < (the same)·(200·6 + 200): node 1, and one node holds it all.
    let mut bench = bench(Some(4096));
    let decision = bench.decide(process(bench.view(), 1, &[0, 4], [200, 800]), 1, &[]);
    assert_eq!(moves(&decision), "10→4-7 14→4-7");
    assert_eq!(
        decision.proposals[0].reason.to_string(),
        "numad: cpu_ns 2.000 G/s > 500.0 M/s; process 1001 of 1000 MiB to the node with most room, node 1"
    );
    assert_eq!(decision.wake_at, Time::from_secs(6), "it moved something: 5 s");
}

/// Memory goes where its process goes; once bound, it is asked for again only after five minutes, and only below nine
/// tenths.
#[test]
fn memory_follows_until_nine_tenths_are_there() {
    for (mib, again) in [([100, 900], ""), ([101, 899], "10:1 14:1")] {
        let mut bench = bench(Some(4096));
        let first = bench.decide(process(bench.view(), 1, &[0, 4], [200, 800]), 1, &[]);
        assert_eq!(pages(&first), "10:1 14:1");
        let later = |bench: &Bench| process(bench.view(), 1, &[0, 4], mib);
        assert!(bench.decide(later(&bench), 300, &all(&first, Outcome::Applied)).proposals.is_empty(), "bound lately");
        let second = bench.decide(later(&bench), 320, &[]);
        assert_eq!((moves(&second).as_str(), pages(&second).as_str()), ("", again), "{mib:?}");
    }
    let mut bench = bench(Some(4096));
    let whole = bench.decide(process(bench.view(), 1, &[0, 1], [0, 1_000]), 1, &[]);
    assert_eq!((moves(&whole).as_str(), pages(&whole).as_str()), ("10→4-7 11→4-7", ""), "it is there already");
}

#[test]
fn thresholds_are_half_a_cpu_and_300_mib_and_must_be_exceeded() {
    let run = |ns: u64, mib: u64| {
        let mut bench = bench(Some(4096));
        let view = bench.view().task(1, 0, 0).signal(Signal::CpuTime, ns).pages(&[(1, mib * MIB)]).cpu_busy(0, 0.5);
        let decision = bench.decide(view, 1, &[]);
        (moves(&decision), decision.wake_at)
    };
    let idle = (String::new(), Time::from_secs(16));
    assert_eq!(run(50_000_000, 301), idle, "50 of 100 ms");
    assert_eq!(run(51_000_000, 300), idle);
    assert_eq!(run(51_000_000, 301).0, "1→4-7");
}

#[test]
fn what_does_not_fit_one_node_gets_two() {
    // 6,000 MiB: ceil(6000·100/85 / 4096) = 2 nodes. Five threads: 500 wanted, less flex (15·400/200 = 30):
    // ceil(470/400) = 2 nodes.
    for (cpus, mib) in [(&[0, 1][..], [3_000, 3_000]), (&[0, 1, 2, 3, 4][..], [500, 0])] {
        let mut bench = bench(Some(4096));
        let decision = bench.decide(process(bench.view(), 1, cpus, mib), 1, &[]);
        assert!(decision.proposals.iter().all(|p| p.reason.to_string().ends_with("to the nodes with most room: 0, 1")));
        assert_eq!(decision.proposals.len(), cpus.len(), "{cpus:?}");
    }
}

#[test]
fn one_process_at_a_time_the_biggest_first() {
    // Process 1: 2 CPUs · 400 MiB; process 2: 2 CPUs · 600 MiB, both with all their memory on the other node than
    // they run on.
    let mut bench = bench(Some(4096));
    let both = |bench: &Bench| process(process(bench.view(), 1, &[0, 1], [0, 400]), 2, &[4, 5], [600, 0]);
    let first = bench.decide(both(&bench), 1, &[]);
    assert_eq!(moves(&first), "24→0-3 25→0-3");
    let early = bench.decide(both(&bench), 2, &all(&first, Outcome::Applied));
    assert_eq!((moves(&early).as_str(), early.wake_at), ("", Time::from_secs(6)), "not before its time");
    let second = bench.decide(both(&bench), 6, &[]);
    assert_eq!(moves(&second), "10→4-7 11→4-7");
    let third = bench.decide(both(&bench), 11, &all(&second, Outcome::Applied));
    assert_eq!((moves(&third).as_str(), third.wake_at), ("", Time::from_secs(26)), "both were bound lately: 15 s");
}

#[test]
fn a_bound_process_stays_for_five_minutes_unless_its_node_is_the_fullest() {
    let mut bench = bench(Some(4096));
    let alone = |bench: &Bench, mib| process(bench.view(), 1, &[0, 1], mib);
    let first = bench.decide(alone(&bench, [500, 0]), 1, &[]);
    assert_eq!(moves(&first), "10→0-3 11→0-3");
    // Its memory has moved to the other node, and foreign memory fills 1,000 MiB of node 0. Nothing happens before 301
    // s; then both nodes offer 400 CPUs (node 0: 200 and the 200 that it uses), node 0 3,096 MiB, node 1 all 4,096: it
    // follows.
    let gone = |bench: &Bench| alone(bench, [0, 3_000]).task(90, 9, 3).pages(&[(0, 1_000 * MIB)]);
    let early = bench.decide(gone(&bench), 300, &all(&first, Outcome::Applied));
    assert_eq!(moves(&early), "");
    assert_eq!(moves(&bench.decide(gone(&bench), 315, &[])), "10→4-7 11→4-7");

    // Others fill node 0, where it runs: 0 of 400 CPUs free, 400 on node 1, 200 on average. With it (200) on the other
    // one:
    // |0 + 200 − 200| + |400 − 200 − 200| = 0 < 400 − 50. Memory: 3596 and 4096 free, 3846 on average:
    // |3596 + 500 − 3846| + |4096 − 500 − 3846| = 500, not less than 500: it stays. With 1 MiB of another on node 0 it
    // may go: 3595, 3845: |4095 − 3845| + |3596 − 3845| = 499 < 501.
    let bench = |other: u64| {
        let mut bench = self::bench(Some(4096));
        let first = bench.decide(process(bench.view(), 1, &[0, 1], [500, 0]), 1, &[]);
        assert_eq!(moves(&first), "10→0-3 11→0-3");
        let crowd = process(bench.view(), 1, &[0, 1], [500, 0]).cpu_busy(2, 1.0).cpu_busy(3, 1.0);
        let crowd = crowd.task(90, 9, 3).pages(&[(0, other * MIB)]);
        moves(&bench.decide(crowd, 60, &all(&first, Outcome::Applied)))
    };
    assert_eq!((bench(0).as_str(), bench(1).as_str()), ("", "10→4-7 11→4-7"));
}

/// The figures of the example above, beside a node of which nothing is known but that it has no CPU.
#[test]
fn a_node_without_cpus_is_nobodys_better_place() {
    let node = |cpus_total, cpus_free, memory| Node { cpus_total, cpus_free, memory };
    let process = Process { bound: vec![0], ..Process::default() };
    let request = Request { cpus_used: 200, cpus: 285, mbs: 588, on_node: vec![500, 0, 0], ..Request::default() };
    for (free, better) in [(3_596, false), (3_595, true)] {
        let nodes = [node(400, 0, Some((4_096, free))), node(400, 400, Some((4_096, 4_096))), node(0, 0, None)];
        assert_eq!(would_do_better(&nodes, &process, &request), better, "{free}");
    }
}

#[test]
fn the_highest_of_the_last_eight_readings_counts() {
    let mut bench = bench(Some(4096));
    let view = |bench: &Bench, ns| bench.view().task(1, 0, 0).signal(Signal::CpuTime, ns).pages(&[(1, 400 * MIB)]);
    assert_eq!(moves(&bench.decide(view(&bench, 10_000_000), 1, &[])), "");
    let busy = view(&bench, 90_000_000).task(2, 1, 1);
    let first = bench.decide(busy, 20, &[]);
    assert_eq!(moves(&first), "1→4-7");
    // Refused; afterwards it is nearly idle, but counts as busy for seven more looks.
    let denied = all(&first, Outcome::Denied);
    let mut at = 20;
    let mut asked = Vec::new();
    for look in 1..=9 {
        at += 400;
        let decision = bench.decide(view(&bench, 10_000_000), at, if look == 1 { &denied } else { &[] });
        asked.push(!decision.proposals.is_empty());
    }
    assert_eq!(asked, [true, true, true, true, true, true, true, false, false]);
}

#[test]
fn a_refused_binding_did_not_happen() {
    for outcome in [Outcome::Denied, Outcome::Stale, Outcome::NotThisMachine] {
        let mut bench = bench(Some(4096));
        let view = |bench: &Bench| process(bench.view(), 1, &[0, 1], [0, 800]);
        let first = bench.decide(view(&bench), 1, &[]);
        assert_eq!(moves(&bench.decide(view(&bench), 6, &all(&first, outcome))), "", "not at once");
        assert_eq!(bench.decide(view(&bench), 400, &[]).proposals, first.proposals);
    }
}

#[test]
fn what_is_not_known_is_said() {
    let mut unsized_nodes = bench(None);
    let decision = unsized_nodes.decide(process(unsized_nodes.view(), 1, &[0, 4], [200, 800]), 1, &[]);
    assert_eq!(moves(&decision), "10→4-7 14→4-7", "its own pages decide");
    assert!(decision.notes[0].contains("the sizes of memory nodes are unknown"), "{:?}", decision.notes);
    let mut bench = bench(Some(4096));
    let decision = bench.decide(bench.view().task(1, 0, 0).signal(Signal::CpuTime, 100_000_000), 1, &[]);
    assert!(decision.proposals.is_empty() && decision.notes[0].contains("memory of these processes"));
    bench.topology = cotenant_model::testing::machine(1, 1, 4, 1);
    bench.state = NumadState::default();
    let decision = bench.decide(process(bench.view(), 1, &[0], [800, 0]), 1, &[]);
    assert!(decision.proposals.is_empty() && decision.notes[0].contains("one memory node"));
}

#[test]
fn threads_that_may_not_follow_stay() {
    let mut bench = bench(Some(4096));
    let view = process(bench.view(), 1, &[0], [100, 900]).allowed("0-3").task(20, 1, 2).allowed("4-6");
    let decision = bench.decide(view, 1, &[]);
    assert_eq!(moves(&decision), "20→4-6");
}

#[test]
fn second_contexts_count_a_fifth() {
    let topology = cotenant_model::testing::machine(2, 1, 2, 2);
    // Node 0: cores {0,4} {1,5}. 2 cores + 2 second contexts at 20 = 240. Idle 400 less 2·80 = 240; one CPU busy: 300
    // − 160 = 140.
    let view = ViewBuilder::new(&topology).cpu_busy(0, 1.0).view();
    let nodes = pick::nodes(&topology, &view, &[0, 0]);
    assert_eq!(nodes[0], Node { cpus_total: 240, cpus_free: 140, memory: None });
    assert_eq!(nodes[1].cpus_free, 240);
}
