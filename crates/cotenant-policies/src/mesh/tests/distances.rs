//! All three placements with each kind of distances: coordinates, SLIT, HMAT, a measured matrix.

use super::*;
use cotenant_model::ids::NodeId;
use cotenant_model::topology::hmat::{self, Access};
use cotenant_model::topology::{DistanceUnit, Distances, Parts};

const ALL: [Mesh; 3] = [Mesh::Weighted, Mesh::BruteForce, Mesh::Assignment];

/// Three nodes of two CPUs each, in that unit.
fn three(unit: &str, rows: &str) -> Topology {
    let text = format!(
        "name = 't'\ndescription = 't'\nsource = 't'\n[topology]\nsynthetic = 'package:3 [numa] core:2 pu:1'\n[topology.distances]\nunit = '{unit}'\nrows = {rows}\n"
    );
    Machine::parse(&text).unwrap().topology
}

/// The CPU to which a task on CPU `from` with these pages moves; empty if it stays.
fn goes(t: &Topology, policy: Mesh, from: u32, pages: &[(u32, u64)]) -> Vec<(u32, u32)> {
    let view = ViewBuilder::new(t).task(1, 0, from).pages(pages).view();
    let ctx = |t| check(t, policy);
    assert_eq!(ctx(t), None, "{policy:?}");
    decide(t, policy, &BTreeMap::new(), &view).0
}

fn check(t: &Topology, policy: Mesh) -> Option<String> {
    let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
    policy.check(&Ctx { topology: t, machine: &machine, apps: &apps, config: &config }).err().map(|e| e.to_string())
}

/// Holds place/mesh.
#[test]
fn by_coordinates() {
    // A row of four cores with memory at both ends and no distances: only hops between coordinates are known.
    let text = "name = 't'\ndescription = 't'\nsource = 't'\n[topology]\ncpus = '0-3'\nmesh = { columns = 4 }\nnodes = [{ id = 0, cpus = '0-1', at = [0, 0] }, { id = 1, cpus = '2-3', at = [3, 0] }]\n";
    let t = Machine::parse(text).unwrap().topology;
    assert_eq!(t.parts().distances, None);
    for policy in ALL {
        assert_eq!(goes(&t, policy, 3, &[(0, 100)]), [(1, 0)], "{policy:?}");
    }
    // 70 % to the left end: the mean is 0.9, so core 1; brute force goes to the end, 0.3·3 against 0.7 + 0.3·2.
    assert_eq!(goes(&t, Mesh::Weighted, 3, &[(0, 70), (1, 30)]), [(1, 1)]);
    assert_eq!(goes(&t, Mesh::BruteForce, 3, &[(0, 70), (1, 30)]), [(1, 0)]);
}

/// Holds place/mesh.
#[test]
fn by_slit() {
    // Asymmetric: 30 from node 0 to 1, 15 from 1 to 0.
    let t = three("slit", "[[10, 30, 20], [15, 10, 20], [20, 20, 10]]");
    for policy in ALL {
        assert_eq!(goes(&t, policy, 0, &[(2, 100)]), [(1, 4)], "{policy:?}");
        // ½·10 + ½·30 = 20 at node 0, ½·15 + ½·10 = 12.5 at node 1.
        assert_eq!(goes(&t, policy, 0, &[(0, 50), (1, 50)]), [(1, 2)], "{policy:?}");
    }
}

/// Holds place/mesh.
#[test]
fn by_squares_what_is_far_counts_more() {
    // Memory on 0 and 2, 60 to 40. In sum node 0 is nearer: 0.6·10 + 0.4·40 = 22 against 24 at node 1 in the middle;
    // squared 700 against 576.
    let t = three("slit", "[[10, 24, 40], [24, 10, 24], [40, 24, 10]]");
    let pages = [(0, 60), (2, 40)];
    assert_eq!(goes(&t, Mesh::Weighted, 4, &pages), [(1, 2)]);
    assert_eq!(goes(&t, Mesh::BruteForce, 4, &pages), [(1, 0)]);
    assert_eq!(goes(&t, Mesh::Assignment, 4, &pages), [(1, 0)]);
}

/// Holds place/mesh.
#[test]
fn by_what_the_firmware_tells() {
    // The SLIT gives both memory-only nodes the same distance from both others; the HMAT is more precise.
    let text = "name = 't'\ndescription = 't'\nsource = 't'\n[topology]\ncpus = '0-3'\nnodes = [{ id = 0, cpus = '0-1' }, { id = 1, cpus = '2-3' }, { id = 2 }]\n";
    let nodes = Machine::parse(text).unwrap().topology;
    let rows = vec![vec![10.0, 21.0, 24.0], vec![21.0, 10.0, 24.0], vec![24.0, 24.0, 10.0]];
    let slit = Distances { unit: DistanceUnit::Slit, rows, source: None };
    let told = |initiators: &[&[u32]], ns: [u64; 3]| -> Vec<Access> {
        let access = |(i, read): (usize, u64)| Access {
            node: NodeId(i as u32),
            initiators: initiators[i].iter().map(|n| NodeId(*n)).collect(),
            read_ns: Some(read),
            write_ns: None,
            read_bytes_per_s: None,
            write_bytes_per_s: None,
        };
        ns.into_iter().enumerate().map(access).collect()
    };
    let with = |distances| Topology::new(Parts { distances: Some(distances), ..nodes.parts().clone() }).unwrap();
    // By the SLIT no node is nearer to node 2.
    for policy in ALL {
        assert_eq!(goes(&with(slit.clone()), policy, 0, &[(2, 100)]), [(1, 0)], "{policy:?}: it is held where it is");
    }
    // If both are reported as nearest, or one is and the SLIT does not make the other nearer, it is the former.
    let near = told(&[&[0], &[1], &[1]], [100, 100, 250]);
    let mut uneven = slit;
    uneven.rows[0][2] = 28.0;
    let t = with(hmat::distances(nodes.nodes(), &near, Some(&uneven)).unwrap());
    assert_eq!(t.parts().distances.as_ref().unwrap().unit, DistanceUnit::Nanoseconds);
    for policy in ALL {
        assert_eq!(
            goes(&t, policy, 0, &[(2, 100)]),
            [(1, 2)],
            "{policy:?}: 250 ns from node 1, 250 · 28 / 24 from node 0"
        );
        // Half here, half there: ½·210 + ½·250 = 230 at node 1, ½·100 + ½·291.7 = 196 at node 0.
        assert_eq!(goes(&t, policy, 3, &[(0, 50), (2, 50)]), [(1, 0)], "{policy:?}");
    }
}

/// Holds place/mesh.
#[test]
fn by_a_measured_matrix() {
    // Idle latencies of a Xeon with sub-NUMA clusters, from its machine file.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/clx-8269-2s-snc2.toml");
    let t = Machine::parse(&std::fs::read_to_string(path).unwrap()).unwrap().topology;
    assert_eq!(t.parts().distances.as_ref().unwrap().unit, DistanceUnit::Nanoseconds);
    let far = t.usable().last().unwrap();
    for (node, memory) in t.nodes().iter().enumerate() {
        for policy in ALL {
            let to = goes(&t, policy, far.0, &[(memory.id.0, 100)])[0].1;
            assert_eq!(t.node_of(CpuId(to)), Some(node), "{policy:?}: to the node of its memory");
        }
    }
    // Half on each cluster of a package: it goes to that package.
    for policy in ALL {
        let to = goes(&t, policy, far.0, &[(t.nodes()[0].id.0, 50), (t.nodes()[1].id.0, 50)])[0].1;
        assert_eq!(t.package_of(CpuId(to)), t.package_of(t.nodes()[0].cpus.first().unwrap()), "{policy:?}");
    }
}

/// Each kind of distance gives the nearest memory; all refuse a machine whose memory is equally far from everywhere.
/// Holds place/mesh.
#[test]
fn memory_that_is_equally_far_leaves_no_choice() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/knl-7210.toml");
    let knl = Machine::parse(&std::fs::read_to_string(path).unwrap()).unwrap().topology;
    for policy in ALL {
        assert!(check(&knl, policy).unwrap().contains("equally far"), "{policy:?}");
    }
}
