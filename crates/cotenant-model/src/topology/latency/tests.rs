use super::super::fixtures::*;
use super::*;
use crate::ids::CpuId;
use crate::topology::Parts;

fn row(cpus: &str, ns: &[f64], spread_ns: &[f64]) -> LatencyRow {
    LatencyRow { cpus: CpuSet::parse_list(cpus).unwrap(), ns: ns.to_vec(), spread_ns: spread_ns.to_vec() }
}

fn measured(nodes: &[u32], rows: &[LatencyRow]) -> MemoryLatencies {
    MemoryLatencies { nodes: nodes.iter().map(|n| NodeId(*n)).collect(), rows: rows.to_vec() }
}

/// Four CPUs, two per node, and a third, memory-only node, equally far from both by the SLIT.
fn three() -> Topology {
    let slit = slit(&[&[10.0, 21.0, 24.0], &[21.0, 10.0, 24.0], &[24.0, 24.0, 10.0]]);
    let nodes = vec![node(0, "0-1"), node(1, "2-3"), node(2, "")];
    Topology::new(Parts { cpus: cpus(4), nodes, distances: Some(slit), ..Parts::default() }).unwrap()
}

fn rows(t: &Topology) -> Vec<Vec<f64>> {
    t.parts().distances.as_ref().unwrap().rows.clone()
}

/// Holds place/mesh.
#[test]
fn they_take_the_place_of_what_the_firmware_tells() {
    let t = three();
    let by_hand =
        measured(&[1, 0, 2], &[row("0-1", &[140.0, 90.0, 250.0], &[]), row("2-3", &[90.0, 130.0, 300.0], &[])]);
    let with = by_hand.applied(&t, "a test").unwrap();
    let d = with.parts().distances.as_ref().unwrap();
    assert_eq!((d.unit, d.source.as_deref()), (DistanceUnit::Nanoseconds, Some("a test")));
    // Columns in the order of the nodes, not of the file; there and back need not be the same.
    let of = |cpu| (0..3).map(|n| with.distance(CpuId(cpu), n).unwrap()).collect::<Vec<_>>();
    assert_eq!((of(1), of(2)), (vec![90.0, 140.0, 250.0], vec![130.0, 90.0, 300.0]));
    assert_eq!(MemoryLatencies::default().applied(&t, "a test").unwrap(), t, "nothing said, nothing changed");
}

/// Holds place/mesh.
#[test]
fn those_of_another_machine_are_refused() {
    let t = three();
    let of = |nodes: &[u32], rows: &[LatencyRow]| measured(nodes, rows).applied(&t, "").unwrap_err().to_string();
    let (a, b) = (row("0-1", &[90.0, 140.0, 250.0], &[]), row("2-3", &[140.0, 90.0, 250.0], &[]));
    assert_eq!(of(&[0, 1, 3], &[a.clone(), b]), "there is no memory node 3 here");
    assert_eq!(of(&[0, 1], &[row("0-3", &[90.0, 90.0], &[])]), "no latency of node 2, which holds memory");
    assert_eq!(of(&[0, 1, 2], &[a]), "no latency from CPUs 2");
    // An unmeasured core gets the distance of another one of its node.
    let some = measured(&[0, 1, 2], &[row("1", &[90.0, 140.0, 250.0], &[]), row("2", &[140.0, 90.0, 250.0], &[])]);
    let t = some.applied(&t, "").unwrap();
    assert_eq!((t.distance(CpuId(0), 1), t.distance(CpuId(3), 1)), (Some(140.0), Some(90.0)));
}

#[test]
fn memory_that_nobody_can_use_needs_no_latency() {
    let mut parts = three().parts().clone();
    parts.nodes[2].bytes = Some(0);
    let two = measured(&[0, 1], &[row("0-1", &[90.0, 140.0], &[]), row("2-3", &[150.0, 90.0], &[])]);
    let t = two.applied(&Topology::new(parts.clone()).unwrap(), "").unwrap();
    assert_eq!(t.distance(CpuId(3), 2), Some(150.0));
    (parts.nodes[2].bytes, parts.nodes[2].allowed) = (None, false);
    assert!(two.applied(&Topology::new(parts).unwrap(), "").is_ok());
}

/// Holds place/mesh.
#[test]
fn noise_makes_no_difference() {
    let t = three();
    let all = |rows: &[LatencyRow]| rows_of(&measured(&[0, 1, 2], rows).applied(&t, "").unwrap());
    // Two cores of a node within their spreads: one row. Both nodes see each other alike, but not the third one.
    let noisy = all(&[
        row("0", &[90.0, 140.0, 250.0], &[2.0, 3.0, 4.0]),
        row("1", &[91.0, 142.0, 248.0], &[2.0, 3.0, 4.0]),
        row("2", &[139.0, 91.5, 301.0], &[3.0, 2.0, 5.0]),
        row("3", &[141.0, 90.5, 299.0], &[3.0, 2.0, 5.0]),
    ]);
    assert_eq!(noisy[0], noisy[1]);
    assert_eq!(noisy[2], noisy[3]);
    assert_eq!((noisy[0][0], noisy[0][1]), (noisy[2][1], noisy[2][0]));
    assert!(noisy[2][2] > noisy[0][2] + 40.0);
    // Two that differ by more stay as they are: 14 % between the nearest and the farthest tile of a mesh.
    let apart = all(&[
        row("0", &[90.0, 140.0, 250.0], &[1.0, 1.0, 1.0]),
        row("1", &[103.0, 140.0, 250.0], &[1.0, 1.0, 1.0]),
        row("2-3", &[140.0, 90.0, 250.0], &[1.0, 1.0, 1.0]),
    ]);
    assert_eq!((apart[0][0], apart[1][0], apart[2][1]), (90.0, 103.0, 90.0));
    // Small steps that add up are not all one: each group is no wider than the spread.
    let steps: Vec<f64> = (0..4).map(|i| 100.0 + 4.0 * f64::from(i)).collect();
    let stairs = all(&[0, 1, 2, 3].map(|i| row(&i.to_string(), &[steps[i], 500.0, 500.0], &[5.0, 5.0, 5.0])));
    assert!(stairs[3][0] - stairs[0][0] >= 4.0, "{stairs:?}");
}

fn rows_of(t: &Topology) -> Vec<Vec<f64>> {
    t.cores()
        .iter()
        .map(|core| (0..t.nodes().len()).map(|n| t.distance(core.first().unwrap(), n).unwrap()).collect())
        .collect()
}

#[test]
fn as_many_cores_as_nodes_are_rows_of_nodes() {
    // Two cores on node 0, and a memory-only node: two rows count as those of the nodes.
    let nodes = vec![node(0, "0-1"), node(1, "")];
    let t = Topology::new(Parts { cpus: cpus(2), nodes, ..Parts::default() }).unwrap();
    let t = measured(&[0, 1], &[row("0-1", &[90.0, 250.0], &[])]).applied(&t, "").unwrap();
    assert_eq!((rows(&t).len(), t.distance(CpuId(1), 1)), (2, Some(250.0)));
}

#[test]
fn what_is_no_matrix_is_said() {
    let fault = |nodes: &[u32], rows: &[LatencyRow]| measured(nodes, rows).fault().unwrap_or_default();
    assert_eq!(fault(&[0, 1], &[row("0", &[1.0, 2.0], &[]), row("1", &[2.0, 1.0], &[0.5, 0.5])]), "");
    assert_eq!(fault(&[0, 0], &[row("0", &[1.0, 2.0], &[])]), "names a node twice");
    assert!(fault(&[0], &[row("0-1", &[1.0], &[]), row("1", &[1.0], &[])]).contains("each in one row alone, not '1'"));
    assert!(fault(&[0], &[row("", &[1.0], &[])]).contains("needs CPUs in each row"));
    assert!(fault(&[0, 1], &[row("0", &[1.0], &[])]).contains("one number per node (2) from CPUs 0"));
    assert!(fault(&[0], &[row("0", &[1.0], &[1.0, 2.0])]).contains("one number per node (1)"));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(fault(&[0], &[row("0", &[bad], &[])]).contains("positive, finite nanoseconds from CPUs 0"));
    }
}
