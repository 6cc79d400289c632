//! Machines with more or less of HMAT: the result as shown by `cotenant topo`.

use super::Dump;
use cotenant_model::topology::render;

/// Four CPUs on two nodes and a third, memory-only one, nearer to the first.
fn three_nodes(name: &str) -> Dump {
    let dump = super::simple(name, 4);
    for (node, map, row) in [(0, "3", "10 21 14"), (1, "c", "21 10 28"), (2, "0", "14 28 10")] {
        let folder = format!("sys/devices/system/node/node{node}");
        dump.write(&format!("{folder}/cpumap"), map);
        dump.write(&format!("{folder}/distance"), row);
        dump.write(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: 1048576 kB\n"));
    }
    dump.write("sys/devices/system/node/online", "0-2\n");
    dump
}

/// Node `of`'s figures for its nearest ones; `values` are read and write latency (ns), read and write bandwidth (MB/s),
/// absent if empty.
fn tell(dump: &Dump, of: u32, class: u32, initiators: &[u32], values: [&str; 4]) {
    let folder = format!("sys/devices/system/node/node{of}/access{class}/initiators");
    for initiator in initiators {
        dump.write(&format!("{folder}/node{initiator}/cpumap"), "0\n");
    }
    let names = ["read_latency", "write_latency", "read_bandwidth", "write_bandwidth"];
    for (name, value) in names.into_iter().zip(values).filter(|(_, value)| !value.is_empty()) {
        dump.write(&format!("{folder}/{name}"), &format!("{value}\n"));
    }
}

/// The lines below the tree, and the notes.
fn shown(dump: &Dump) -> (String, Vec<String>) {
    let found = dump.read().unwrap();
    let text = render::text(&found.topology);
    let (_, below) = text.split_once("Node 2 1 GiB: memory without CPUs\n").expect(&text);
    (below.to_owned(), found.notes)
}

const SLIT: &str = "\
Distances (SLIT, 10 = local), from CPUs of the row to memory of the column:
          node 0  node 1  node 2
  node 0      10      21      14
  node 1      21      10      28
  node 2      14      28      10
";

/// Holds place/mesh.
#[test]
fn latencies_of_all_nodes_are_the_distance() {
    let dump = three_nodes("hmat-all");
    tell(&dump, 0, 1, &[0], ["100", "110", "120000", "60000"]);
    tell(&dump, 1, 1, &[1], ["100", "100", "120000", "120000"]);
    tell(&dump, 2, 1, &[0], ["250", "", "30000", ""]);
    // A device beside the memory is nearer than any CPU: threads do not see that.
    tell(&dump, 2, 0, &[2], ["5", "5", "99999", "99999"]);
    let expected = "\
Distances (ns, the firmware's HMAT), from CPUs of the row to memory of the column:
          node 0  node 1  node 2
  node 0     100     210     250
  node 1     210     100     500
  node 2     140     280     250
Node 0 from node 0 (HMAT): 100 ns (writes 110 ns), 120 GB/s (writes 60 GB/s)
Node 1 from node 1 (HMAT): 100 ns, 120 GB/s
Node 2 from node 0 (HMAT): 250 ns, 30 GB/s
";
    assert_eq!(shown(&dump), (expected.to_owned(), vec![]));
}

/// Holds place/mesh.
#[test]
fn none_is_the_slit() {
    assert_eq!(shown(&three_nodes("hmat-none")), (SLIT.to_owned(), vec![]));
    // Empty folders, as created by some kernels.
    let dump = three_nodes("hmat-empty");
    (0..3).for_each(|node| tell(&dump, node, 0, &[], [""; 4]));
    assert_eq!(shown(&dump), (SLIT.to_owned(), vec![]));
}

/// Holds place/mesh.
#[test]
fn a_part_is_shown_and_not_mixed_with_the_slit() {
    let dump = three_nodes("hmat-part");
    tell(&dump, 0, 0, &[0], ["100", "", "", ""]);
    tell(&dump, 2, 0, &[0, 1], ["", "", "30000", "20000"]);
    let told = "\
Node 0 from node 0 (HMAT): 100 ns
Node 2 from node 0,1 (HMAT): 30 GB/s (writes 20 GB/s)
";
    let note = "the firmware's HMAT is not used as distance: no latency of node 1, 2";
    assert_eq!(shown(&dump), (format!("{SLIT}{told}"), vec![note.to_owned()]));
}

/// Holds place/mesh.
#[test]
fn zeros_and_absurd_values_tell_nothing() {
    let dump = three_nodes("hmat-absurd");
    (0..3).for_each(|node| tell(&dump, node, 0, &[node.min(1)], ["100", "", "", ""]));
    tell(&dump, 1, 0, &[1], ["0", "0", "0", "0"]);
    tell(&dump, 2, 0, &[0], ["4294967295", "-7", "", "18446744073709551615"]);
    let (below, notes) = shown(&dump);
    let told = "\
Node 0 from node 0 (HMAT): 100 ns
Node 1 from node 1 (HMAT): nothing that can be believed
Node 2 from node 0,1 (HMAT): nothing that can be believed
";
    assert_eq!(below, format!("{SLIT}{told}"));
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(notes[0].contains("node2/access0/initiators/read_latency says '4294967295', which is not believed"));
    assert!(notes[3].contains("no latency of node 1, 2"), "{notes:?}");
}

#[test]
fn one_node_needs_no_distance() {
    let dump = super::simple("hmat-one", 2);
    dump.write("sys/devices/system/node/node0/cpumap", "3\n");
    tell(&dump, 0, 0, &[0], ["90", "", "", ""]);
    let found = dump.read().unwrap();
    assert_eq!((found.topology.parts().distances.as_ref(), found.notes.len()), (None, 0));
    assert!(render::text(&found.topology).contains("Node 0 from node 0 (HMAT): 90 ns"));
}

/// Holds place/mesh.
#[test]
fn what_is_gathered_tells_the_same() {
    let dump = three_nodes("hmat-gather");
    (0..3).for_each(|node| tell(&dump, node, 0, &[node.min(1)], ["100", "", "", ""]));
    let to = dump.0.join("gathered");
    crate::sense::topology::archive::save(&crate::FsRoot::at(&dump.0), &to).unwrap();
    let again = super::read(&crate::FsRoot::at(&to), None).unwrap();
    assert_eq!(again.topology.parts().accesses, dump.read().unwrap().topology.parts().accesses);
    assert_eq!(again.topology.parts().accesses.len(), 3);
}
