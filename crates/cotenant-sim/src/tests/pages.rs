//! Properties of pages: first touch, how they follow threads, and the cost.

use super::{ms, pinned, scenario};
use crate::host::{Observation, SimHost};
use crate::kernel::Kernel;
use crate::scenario::Scenario;
use crate::world::World;
use cotenant_model::action::{Action, Order, Outcome, Reason};
use cotenant_model::host::{Host, Wake};
use cotenant_model::sample::Sample;
use cotenant_model::signal::Signal;
use cotenant_model::{CpuSet, NodeId, TaskId, Time, View};

/// On `two`, whose other node is 60 ns farther: a program that misses, with 80 MB on node 1.
const FAR: &str = "machine = 'two'\nkernel = 'eevdf'\n[program.far]\ncpi = 1\nllc_apki = 20\nfootprint_bytes = 8e7\nmiss_ratio = [[1e3, 1.0]]\n\
    pages = [0.0, 1.0]\n[[app]]\nprogram = 'far'\nwork_s = 20\n";

fn host(s: &Scenario, observation: Observation) -> SimHost {
    SimHost::new(World::new(s.sim.clone(), s.apps.clone(), Kernel::new(s.kernel), 1), observation, 1, s.end)
}

fn bring(task: u32, nodes: &[u32]) -> Order {
    let action = Action::Pages { task: TaskId(task), nodes: nodes.iter().copied().map(NodeId).collect() };
    Order { action, affinity: CpuSet::new(), reason: Reason::new("test", "bring them") }
}

fn until(host: &mut SimHost, at_ms: u64) -> Sample {
    while host.world.now() < ms(at_ms) && host.wait(ms(at_ms)) != Wake::Exit {}
    host.sample().unwrap()
}

/// Speed of the first task over the last milliseconds, and its accesses per second to each node.
fn rates(before: &Sample, after: &Sample) -> (f64, Vec<f64>) {
    let view = View::new(before, after);
    let t = &view.tasks[0];
    (t.per_s(Signal::Instructions).unwrap(), t.touches_by_node.as_ref().unwrap().iter().map(|n| n.1).collect())
}

/// 80 MB at 0.8 GB/s take 0.1 s; half of them are there after half of it. Then all accesses are local, and cost 60 ns
/// less.
/// Holds sim/pages.
#[test]
fn pages_follow_where_they_are_told() {
    let mut host = host(&pinned(&scenario(FAR), &[&[0]]), Observation::default());
    let (a, b) = (until(&mut host, 1_000), until(&mut host, 1_100));
    assert_eq!(
        host.apply(&[bring(0, &[0]), bring(0, &[7]), bring(9, &[0])]),
        [Outcome::Applied, Outcome::Denied, Outcome::Gone]
    );
    let middle = until(&mut host, 1_150);
    let half = middle.tasks[0].pages_by_node.as_ref().unwrap();
    let all: u64 = half.iter().map(|n| n.1).sum();
    assert!((half[0].1 as f64 / all as f64 - 0.5).abs() < 0.05, "{half:?}");
    let done = until(&mut host, 1_210);
    let there = done.tasks[0].pages_by_node.as_ref().unwrap();
    assert_eq!(there[..], [(NodeId(0), 19_531), (NodeId(1), 0)]);
    let ((slow, far), (fast, near)) = (rates(&a, &b), rates(&done, &until(&mut host, 1_310)));
    assert!(far[0] == 0.0 && near[1] == 0.0 && far[1] > 0.0 && near[0] > 0.0, "{far:?} {near:?}");
    let gained = (1.0 / slow - 1.0 / fast) * 1e9 / 0.02;
    assert!((gained / 60.0 - 1.0).abs() < 0.05, "{gained} ns per access");
}

/// What copies them reads and writes memory, and needs a CPU: an idle one, or a task's.
/// Holds sim/pages.
#[test]
fn moving_pages_is_paid_for() {
    let crowd = |threads: usize| {
        let text = format!("{FAR}[[app]]\nprogram = 'cpu'\nthreads = {threads}\nwork_s = 1\n");
        let mut host = host(&scenario(&text), Observation { cost_s: 0.0, ..Observation::default() });
        until(&mut host, 100);
        let ids: Vec<u32> = host.world.threads.iter().filter(|t| t.app == 0).map(|t| t.id).collect();
        let node = host.world.places.node.of[host.world.threads[0].cpu.unwrap()];
        // Back and forth, so that it does not matter where the kernel started the thread.
        let there = 1 - u32::try_from(node).unwrap();
        for (at, to) in [(100, 1 - there), (300, there), (500, 1 - there), (700, there)] {
            until(&mut host, at);
            let before: f64 = host.world.node_bytes.iter().sum();
            host.apply(&[bring(ids[0], &[to])]);
            let own = host.world.threads[0].touches.iter().sum::<f64>();
            until(&mut host, at + 150);
            let moved: f64 = host.world.node_bytes.iter().sum::<f64>() - before;
            let own = (host.world.threads[0].touches.iter().sum::<f64>() - own) * 64.0;
            if at > 100 {
                assert!(((moved - own) / 1.6e8 - 1.0).abs() < 0.01, "{} bytes read and written", moved - own);
            }
        }
        while host.wait(Time(host.world.now().0 + 100_000_000)) != Wake::Exit
            && host.world.report()[1].times_s.is_empty()
        {}
        host.world.report()[1].times_s[0]
    };
    let (idle, full) = (crowd(6), crowd(7));
    assert!((idle - 1.0).abs() < 1e-3, "{idle} s beside an idle CPU");
    assert!(full > 1.29 && full < 1.42, "{full} s where three or four times 0.1 s are taken");
}

/// Holds sim/pages.
#[test]
fn touches_are_the_lines_that_each_node_delivers() {
    let text = "machine = 'two'\n[program.a]\ncpi = 1\nllc_apki = 20\nfootprint_bytes = 8e7\nmiss_ratio = [[1e3, 1.0]]\n\
        pages = [0.25, 0.75]\n[[app]]\nprogram = 'a'\nthreads = 2\nwork_s = 2\n[[app]]\nprogram = 'mcf06'\nthreads = 3\nwork_s = 2\n";
    let mut host = host(&scenario(text), Observation::default());
    let sample = until(&mut host, 700);
    for t in &sample.tasks {
        let touches: Vec<f64> = t.touches_by_node.as_ref().unwrap().iter().map(|n| n.1 as f64).collect();
        let lines = t.counters.get(Signal::L3LinesIn).unwrap().value as f64;
        assert!((touches.iter().sum::<f64>() / lines - 1.0).abs() < 1e-3, "{touches:?} of {lines}");
        if t.info.app.0 == 0 {
            assert!((touches[0] / lines - 0.25).abs() < 1e-3, "{touches:?} of {lines}");
        }
    }
}

/// Hits to what threads have in common, and lines of each other; nothing of a program with one thread.
/// Holds sim/pages.
#[test]
fn requests_to_shared_lines_are_those_that_others_have() {
    let program = "[program.a]\ncpi = 1\nllc_apki = 20\nfootprint_bytes = 4e6\nmiss_ratio = [[2e6, 0.6], [4e6, 0.2]]\nshared = 0.4\ncoherence_pki = 5\n";
    let count = |threads: usize| {
        let text = format!("machine = 'two'\n{program}[[app]]\nprogram = 'a'\nthreads = {threads}\nwork_s = 2\n");
        let mut host = host(&scenario(&text), Observation::default());
        let sample = until(&mut host, 700);
        let sum = |signal: Signal| {
            sample.tasks.iter().filter_map(|t| t.counters.get(signal)).map(|c| c.value as f64).sum::<f64>()
        };
        let coherence = sum(Signal::Intra) + sum(Signal::Near) + sum(Signal::Inter);
        (sum(Signal::SharedRequests), coherence, sum(Signal::LlcHits))
    };
    assert_eq!(count(1).0, 0.0);
    let (shared, coherence, hits) = count(4);
    assert!((shared / (coherence + 0.4 * hits) - 1.0).abs() < 1e-3 && hits > 0.0, "{shared} {coherence} {hits}");
}

/// As on Linux: the pages of a process are those of all its threads, what they have in common once.
/// Holds sim/pages.
#[test]
fn pages_are_those_of_the_process() {
    let text = "machine = 'two'\n[program.a]\ncpi = 1\nllc_apki = 1\nfootprint_bytes = 4096e4\nmiss_ratio = [[1e3, 1.0]]\nshared = 0.5\n\
        [[app]]\nprogram = 'a'\nthreads = 8\nwork_s = 1\n";
    let mut host = host(&scenario(text), Observation::default());
    for t in &until(&mut host, 100).tasks {
        assert_eq!(t.pages_by_node, Some(vec![(NodeId(0), 22_500), (NodeId(1), 22_500)]), "8 × 5,000 and 5,000");
    }
    // Half of a thread's accesses go to shared memory: half of these stay here, wherever its own pages are.
    let first = &host.world.threads[0];
    let (id, here) = (first.id, host.world.places.node.of[first.cpu.unwrap()]);
    host.apply(&[bring(id, &[1 - here as u32])]);
    until(&mut host, 300);
    let pages = &host.world.threads[0].pages;
    assert!((pages[here] - 0.25).abs() < 1e-3 && (pages[1 - here] - 0.75).abs() < 1e-3, "{pages:?}");
}

/// Result of a run under a policy: the number of orders about pages, and the final place of the first application's
/// threads and pages.
fn rival(name: &str, text: &str, seed: u64) -> (usize, Vec<u32>, Vec<u64>) {
    let s = scenario(text);
    let (mut asked, mut last) = (0, (Vec::new(), Vec::new()));
    let policy = cotenant_policies::standard().make(name, &s.config).unwrap();
    let ended = s.run(&*policy, s.kernel, seed, |r| {
        asked += r.orders.iter().filter(|o| matches!(o.action, Action::Pages { .. })).count();
        assert!(r.outcomes.iter().all(|o| *o == Outcome::Applied), "{name}: {:?}", r.outcomes);
        let first = r.sample.tasks.iter().filter(|t| t.info.app.0 == 0);
        let on: Vec<u32> = first.clone().filter_map(|t| Some(t.cpu?.0 / 4)).collect();
        if on.len() == s.apps[0].threads {
            last = (on, first.flat_map(|t| t.pages_by_node.iter().flatten().map(|n| n.1)).take(2).collect());
        }
    });
    ended.unwrap_or_else(|e| panic!("{name}: {e}"));
    (asked, last.0, last.1)
}

/// The daemon's process ends up with its memory where its threads may be.
/// Holds sim/pages.
#[test]
fn numad_takes_memory_along() {
    let away = FAR.replace("[0.0, 1.0]", "[1.0, 0.0]").replace("8e7", "8e8");
    let text = away.replace("work_s = 20", "threads = 2\nwork_s = 40\ncpus = '4-7'");
    let (asked, on, pages) = rival("numad", &text, 1);
    assert!(asked == 2 && on == [1, 1] && pages[0] == 0 && pages[1] > 0, "{asked} {on:?} {pages:?}");
}

/// Devils that Linux started on one node come apart, and their memory comes along: first touched here, it ends up
/// half there.
/// Holds sim/pages.
#[test]
fn dino_takes_memory_along() {
    let text = FAR.replace("pages = [0.0, 1.0]\n", "").replace("work_s = 20", "threads = 4\nwork_s = 4");
    let text = text + "[[app]]\nprogram = 'cpu'\nthreads = 4\nwork_s = 4\n";
    let mut moved = 0;
    for seed in 1..=10 {
        let (asked, mut on, pages) = rival("dino", &text, seed);
        on.sort_unstable();
        assert_eq!((on, pages[0]), (vec![0, 0, 1, 1], pages[1]), "seed {seed}, {asked} asked");
        moved += asked;
    }
    assert!(moved > 0, "none was started on one node");
}

/// The thread that touches a page pays for its fault; scans use an idle CPU if there is one.
/// Holds sim/pages.
#[test]
fn looking_at_pages_costs() {
    let time = |threads: usize, observation: Observation| {
        let text =
            FAR.replace("work_s = 20", &format!("work_s = 1\nthreads = {threads}")).replace("[0.0, 1.0]", "[0.5, 0.5]");
        let mut host = host(&scenario(&text), Observation { cost_s: 0.0, ..observation });
        while host.wait(Time(host.world.now().0 + 100_000_000)) != Wake::Exit {
            host.sample().unwrap();
        }
        host.world.report()[0].times_s.first().copied().unwrap()
    };
    let none = Observation::default();
    let faults = Observation { page_fault_s: 0.5e-6, ..none };
    let scans = Observation { page_scan_s: 0.1e-6, ..none };
    let (free, paid) = (time(1, none), time(1, faults));
    // 19,531 pages at 0.5 µs in each 0.1 s: 9.8 ms; far more accesses than pages, so that each is touched.
    assert!((paid / free - 1.0 / (1.0 - 0.0977)).abs() < 0.02, "{free} s without, {paid} s with page faults");
    assert!((time(1, scans) / free - 1.0).abs() < 1e-6, "an idle CPU scans");
    let (free, paid) = (time(8, none), time(8, scans));
    assert!(paid > 1.05 * free, "a task's CPU scans: {free} s without, {paid} s");
}

/// Three threads on two nodes: all pages are where the first one started.
/// Holds sim/kernel.
#[test]
fn the_first_thread_touches_what_all_work_on() {
    let text = FAR.replace("[0.0, 1.0]", "'first-thread'").replace("work_s = 20", "work_s = 20\nthreads = 3");
    let scenario = scenario(&text);
    let far = scenario.machine.topology.cpus().len() - 1;
    for (places, node) in [([0, far, far], 0), ([far, 0, 0], 1)] {
        let mut host = host(&pinned(&scenario, &[&places]), Observation::default());
        let seen = until(&mut host, 100);
        for task in &seen.tasks {
            let pages = task.pages_by_node.as_ref().unwrap();
            assert!(pages[node].1 > 0 && pages[1 - node].1 == 0, "{places:?}: {pages:?}");
        }
    }
}
