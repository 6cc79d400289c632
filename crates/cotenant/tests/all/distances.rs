//! Measured distances to memory for a user: found by `calibrate`, or written by hand.

use cotenant_cli::machine_arg;
use cotenant_model::Topology;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An empty folder of this test.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("distances-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn write(folder: &Path, path: &str, text: &str) -> String {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn cotenant(data: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(args).env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", data).output().unwrap()
}

fn said(out: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Four CPUs on two nodes and a third of memory alone, at equal distance from both according to the firmware.
fn tree(folder: &Path) {
    for cpu in 0..4 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        write(folder, &format!("{topology}/core_cpus"), &format!("{:x}\n", 1 << cpu));
        write(folder, &format!("{topology}/package_cpus"), "f\n");
        write(folder, &format!("{topology}/core_id"), &format!("{cpu}\n"));
        write(folder, &format!("{topology}/physical_package_id"), "0\n");
    }
    for (node, map, row) in [(0, "3", "10 21 24"), (1, "c", "21 10 24"), (2, "0", "24 24 10")] {
        let node_folder = format!("sys/devices/system/node/node{node}");
        write(folder, &format!("{node_folder}/cpumap"), map);
        write(folder, &format!("{node_folder}/distance"), row);
        write(folder, &format!("{node_folder}/meminfo"), &format!("Node {node} MemTotal: 1048576 kB\n"));
    }
    write(folder, "sys/devices/system/node/online", "0-2\n");
}

const BY_HAND: &str = "\
[memory_latency]
nodes = [0, 1, 2]
rows = [
  { cpus = \"0-1\", ns = [90, 140, 320.5] },
  { cpus = \"2-3\", ns = [140, 90, 250] },
]
";

/// Holds place/mesh.
#[test]
fn a_matrix_by_hand_takes_the_place_of_the_firmwares() {
    let folder = scratch("by-hand");
    let machine = folder.join("machine");
    tree(&machine);
    let (machine, by_hand) = (machine.to_str().unwrap(), write(&folder, "by-hand.toml", BY_HAND));
    let (_, plain, _) = said(&cotenant(&folder, &["topo", "--from", machine]));
    assert!(plain.contains("Distances (SLIT, 10 = local)"), "{plain}");
    let (code, with, said_so) = said(&cotenant(&folder, &["topo", "--from", machine, "--profile", &by_hand]));
    let expected = "\
Distances (ns, as the profile has them), from CPUs of the row to memory of the column:
            node 0  node 1  node 2
  CPUs 0-1      90     140   320.5
  CPUs 2-3     140      90     250
";
    assert!(code == Some(0) && with.ends_with(expected), "{with}{said_so}");
    // A task with its memory on the third node: by the firmware's distances it may stay, by measured ones it is nearer
    // to CPUs 2 and 3.
    let snapshot = r#"{"interval_s": 0.1, "tasks": [{"id": 1, "app": "a", "cpu": 0, "pages_by_node": [0, 0, 1000]}]}"#;
    let snapshot = write(&folder, "snapshot.json", snapshot);
    for policy in ["weighted", "brute-force", "assignment"] {
        let args =
            ["decide", "--machine", machine, "--policy", policy, "--pin", "cpu", "--json", "--snapshot", &snapshot];
        let goes = |args: &[&str]| {
            let (code, answer, why) = said(&cotenant(&folder, args));
            assert_eq!(code, Some(0), "{policy}: {why}");
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
            answer["moves"][0]["to_cpus"][0].as_u64().unwrap()
        };
        assert_eq!((goes(&args), goes(&[&args[..], &["--profile", &by_hand]].concat())), (0, 2), "{policy}");
    }
    // An empty table has no effect.
    let empty = write(&folder, "empty.toml", "[memory_latency]\n");
    assert_eq!(said(&cotenant(&folder, &["topo", "--from", machine, "--profile", &empty])).1, plain);
}

/// Holds place/mesh.
#[test]
fn a_matrix_of_another_machine_is_one_line() {
    let folder = scratch("other");
    let machine = folder.join("machine");
    tree(&machine);
    let machine = machine.to_str().unwrap();
    for (file, text, expected) in [
        ("node", BY_HAND.replace("[0, 1, 2]", "[0, 1, 5]"), "there is no memory node 5 here"),
        ("cpus", BY_HAND.replace("\"2-3\"", "\"8-9\""), "no latency from CPUs 2"),
        (
            "width",
            BY_HAND.replace(", 320.5]", "]"),
            "width.toml:1:2: memory_latency needs one number per node (3) from CPUs 0-1",
        ),
        ("key", BY_HAND.replace("nodes", "node"), "key.toml:2:1: unknown field `node`"),
    ] {
        let profile = write(&folder, &format!("{file}.toml"), &text);
        let (code, _, why) = said(&cotenant(&folder, &["topo", "--from", machine, "--profile", &profile]));
        assert!(code == Some(2) && why.lines().count() == 1 && why.contains(expected), "{why}");
    }
}

/// Each core of this machine at another distance, as calibration might find; the first is nearest to all memory.
fn rows(topology: &Topology) -> String {
    let nodes: Vec<String> = topology.nodes().iter().map(|node| node.id.to_string()).collect();
    let mut text = format!("[calibration.memory_latency]\nnodes = [{}]\n", nodes.join(", "));
    for (i, core) in topology.cores().iter().enumerate() {
        let ns: Vec<String> = nodes.iter().map(|_| format!("{}.0", 100 + 10 * i)).collect();
        let _ = write!(text, "[[calibration.memory_latency.rows]]\ncpus = \"{core}\"\nns = [{}]\n", ns.join(", "));
    }
    text
}

/// Holds place/mesh, record/old.
#[test]
fn what_calibrate_found_is_this_machines_distance() {
    let topology = machine_arg::resolve(None).unwrap().machine.topology;
    if topology.cores().len() < 2 || topology.cores().len() == topology.nodes().len() {
        eprintln!(
            "skipped: {} cores and {} memory nodes leave no choice",
            topology.cores().len(),
            topology.nodes().len()
        );
        return;
    }
    let data = scratch("calibrated");
    let out = cotenant(&data, &["calibrate", "--quick", "--force", "--only", "clock,distances"]);
    let (code, table, why) = said(&out);
    assert_eq!(code, Some(0), "{why}");
    if topology.nodes().len() == 1 {
        let expected = "memory_latency  left out: one memory node: ";
        assert!(table.contains(expected), "{table}");
    }
    let mut files = fs::read_dir(data.join("cotenant/machines")).unwrap();
    let path = files.next().unwrap().unwrap().path();
    let calibrated = fs::read_to_string(&path).unwrap();
    assert!(topology.nodes().len() > 1 || !calibrated.contains("memory_latency]"), "{calibrated}");
    let refused = ["run", "-q", "--policy", "brute-force", "--", "true"];
    if topology.nodes().len() == 1 {
        let (code, _, why) = said(&cotenant(&data, &refused));
        assert!(code == Some(2) && why.contains("as far as is known: there is nothing to choose"), "{why}");
    }
    let before = said(&cotenant(&data, &["topo"])).1;
    let without = calibrated.split("[calibration.memory_latency]").next().unwrap();
    fs::write(&path, format!("{without}\n{}", rows(&topology))).unwrap();
    let (_, after, quiet) = said(&cotenant(&data, &["topo"]));
    assert!(after.contains("Distances (ns, measured 2") && quiet.is_empty(), "{after}{quiet}");
    let json: serde_json::Value = serde_json::from_str(&said(&cotenant(&data, &["topo", "--json"])).1).unwrap();
    assert!(json["distances"]["source"].as_str().unwrap().starts_with("measured 2"), "{json}");
    let (code, _, why) = said(&cotenant(&data, &refused));
    assert_eq!(code, Some(0), "{why}");
    // A recording keeps the used distances, and nothing else of the calibration.
    let recording = data.join("calibrated.rec");
    let recording = recording.to_str().unwrap();
    let (code, _, why) = said(&cotenant(&data, &["record", "-q", "-o", recording, "--", "true"]));
    assert_eq!(code, Some(0), "{why}");
    let (code, _, why) = said(&cotenant(&scratch("elsewhere"), &["replay", "--policy", "brute-force", recording]));
    assert_eq!(code, Some(0), "{why}");
    // The topology has changed since: the measurement is not used, with a remark.
    let stale = fs::read_to_string(&path).unwrap();
    let stamp = stale.lines().find(|line| line.starts_with("topology = ")).unwrap();
    fs::write(&path, stale.replace(stamp, "topology = \"64c8n-00000000\"")).unwrap();
    let (_, again, why) = said(&cotenant(&data, &["topo"]));
    let firmwares = |text: &str| text.lines().find(|line| line.starts_with("Distances")).map(str::to_owned);
    if topology.nodes().len() == 1 {
        assert_eq!((firmwares(&again), &again), (None, &before));
    }
    assert!(why.contains("is stale: the topology was '64c8n-00000000'"), "{why}");
    assert!(why.contains("the measured memory latencies are not used: the topology was another one"), "{why}");
}
