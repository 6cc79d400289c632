use super::*;
use crate::calibrate::tests::MadeUp;
use crate::calibrate::{PARTS, ThreadRate, calibrate};
use cotenant_model::ids::CpuId;
use cotenant_model::machine::Machine;
use cotenant_model::topology::Parts;

/// Load latencies, cycling from round to round; some nodes refuse.
pub struct Memories {
    ns: fn(CpuId, NodeId) -> f64,
    /// Factor between the fastest and the slowest round.
    drift: f64,
    refuses: Option<NodeId>,
    loads: Vec<(CpuId, NodeId)>,
}

impl Memories {
    fn new(ns: fn(CpuId, NodeId) -> f64) -> Self {
        Self { ns, drift: 1.01, refuses: None, loads: Vec::new() }
    }

    pub fn load(&mut self, loads: &[Load]) -> Result<Vec<Vec<ThreadRate>>, String> {
        let [Load { kernel: "chase", cpus, memory: Some(node), .. }] = loads else { panic!("{loads:?}") };
        let [cpu] = cpus[..] else { panic!("{cpus:?}") };
        if self.refuses == Some(*node) {
            return Err("memory cannot be bound to a node: not permitted".to_owned());
        }
        self.loads.push((cpu, *node));
        let again = self.loads.iter().filter(|load| **load == (cpu, *node)).count();
        let ns = (self.ns)(cpu, *node) * if again % 2 == 0 { self.drift } else { 1.0 };
        Ok(vec![vec![ThreadRate { per_cpu_s: 1e9 / ns, ..ThreadRate::default() }]])
    }
}

fn machine(topology: &str) -> Topology {
    let text = format!("name = 't'\ndescription = 't'\nsource = 't'\n[topology]\n{topology}\n");
    Machine::parse(&text).unwrap().topology
}

fn of(t: &Topology, bench: &mut Memories) -> Calibration {
    assert!(PARTS.contains(&"distances"));
    let mut made_up = MadeUp::new(t, 0.0);
    made_up.memories = Some(bench);
    calibrate(t, t.usable(), &["distances"], 5, &mut made_up).unwrap()
}

fn reason(c: &Calibration) -> &str {
    assert_eq!((c.memory.as_ref(), c.left_out.len()), (None, 1), "{:?}", c.left_out);
    &c.left_out[0].reason
}

/// Two nodes of two cores with two threads, and one of memory alone. Near is 90 ns, the other node 140, and 160 from
/// there; the memory alone is 250 from node 0, 300 from node 1; and core 3 is 20 ns farther from everything than core
/// 2.
const THREE: &str = "synthetic = 'package:2 core:2 pu:2'
nodes = [{ id = 0, cpus = '0-3' }, { id = 1, cpus = '4-7' }, { id = 4, memory = '8 GiB' }]
[topology.distances]
unit = 'slit'
rows = [[10, 21, 21], [21, 10, 21], [21, 21, 10]]";

fn latency(cpu: CpuId, node: NodeId) -> f64 {
    let base = match (cpu.0 / 4, node.0) {
        (0, 0) | (1, 1) => 90.0,
        (0, 1) => 140.0,
        (1, 0) => 160.0,
        (0, _) => 250.0,
        _ => 300.0,
    };
    base + if cpu.0 / 2 == 3 { 20.0 } else { 0.0 }
}

/// Holds measure/calibration.
#[test]
fn latencies_that_were_built_in_become_the_distance() {
    let t = machine(THREE);
    let mut bench = Memories::new(latency);
    let c = of(&t, &mut bench);
    let memory = c.memory.expect("measured");
    assert_eq!(bench.loads.len(), 5 * 4 * 3, "five rounds of four cores and three memories; one thread of each core");
    assert_eq!(memory.nodes, [0, 1, 4].map(NodeId));
    let cpus: Vec<String> = memory.rows.iter().map(|row| row.cpus.to_string()).collect();
    assert_eq!(cpus, ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!(memory.fault(), None);
    for (row, cpu) in memory.rows.iter().zip([0, 2, 4, 6]) {
        for ((ns, spread), node) in row.ns.iter().zip(&row.spread_ns).zip(&memory.nodes) {
            let truth = latency(CpuId(cpu), *node);
            assert!(
                (ns - truth).abs() <= spread + 0.1 && *spread > 0.0 && *spread < 0.1 * truth,
                "{cpu} {node} {ns} ± {spread}"
            );
        }
    }
    let t = memory.applied(&t, "measured").unwrap();
    let of = |cpu| (0..3).map(|node| t.distance(CpuId(cpu), node).unwrap()).collect::<Vec<_>>();
    assert_eq!(of(0), of(3), "cores 0 and 1 see all alike");
    assert!(of(5).iter().zip(of(6)).all(|(core_2, core_3)| *core_2 + 15.0 < core_3), "cores 2 and 3 do not");
    assert!(of(0)[1] + 15.0 < of(4)[0] && of(0)[2] + 40.0 < of(4)[2], "there is not as far as back");
}

/// Holds measure/calibration.
#[test]
fn large_machines_are_measured_by_cache_and_node() {
    let synthetic = |text: &str| machine(&format!("synthetic = '{text}'"));
    let count = |t: &Topology| {
        let mut bench = Memories::new(|_, _| 100.0);
        let memory = of(t, &mut bench).memory.unwrap();
        let cpus: usize = memory.rows.iter().map(|row| row.cpus.len()).sum();
        assert_eq!((cpus, bench.loads.len()), (t.usable().len(), 5 * memory.rows.len() * memory.nodes.len()));
        memory.rows.len()
    };
    assert_eq!(count(&synthetic("package:2 [numa] l3:2 core:8 pu:2")), 32, "64 cells: by core");
    assert_eq!(count(&synthetic("package:2 [numa] l3:4 core:12 pu:2")), 8, "192 cells: by cache");
    assert_eq!(count(&synthetic("package:8 [numa] l3:4 core:8 pu:1")), 8, "256 cells by cache: by node");
}

/// Holds measure/calibration.
#[test]
fn what_cannot_be_measured_is_left_out_with_the_reason() {
    let t = machine(THREE);
    let one = machine("synthetic = 'package:1 [numa] core:2 pu:1'");
    assert!(reason(&of(&one, &mut Memories::new(latency))).starts_with("one memory node"));
    let mut closed = Memories { refuses: Some(NodeId(4)), ..Memories::new(latency) };
    assert_eq!(reason(&of(&t, &mut closed)), "node 4: memory cannot be bound to a node: not permitted");
    assert_eq!(closed.loads.len(), 2, "once is enough");
    let mut noisy = Memories { drift: 1.5, ..Memories::new(latency) };
    assert_eq!(reason(&of(&t, &mut noisy)), "12 of 12 latencies differ by more than a quarter from round to round");
    // Nodes without usable memory are no columns.
    let mut parts: Parts = t.parts().clone();
    parts.nodes[1].bytes = Some(0);
    parts.nodes[2].allowed = false;
    assert!(reason(&of(&Topology::new(parts).unwrap(), &mut Memories::new(latency))).starts_with("one memory node"));
}
