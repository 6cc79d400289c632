use super::*;
use crate::ids::CpuId;
use proptest::prelude::*;

const FILE: &str = r#"name = "toy"
description = "Two packages on two buses"
source = "made up for this test"
clock_hz = 2.33e9
assumptions = ["everything"]

[sources]
l2 = "nowhere"

[topology]
synthetic = "package:2 l2:1(size=4MiB) core:2 pu:1"
efficiency_classes = [{ cpus = "0-1", class = 1 }, { cpus = "2-3", class = 0 }]

[[topology.resources]]
kind = "bus"
cpus = "0-1"
bytes_per_s = 10_600_000_000

[[topology.resources]]
kind = "bus"
cpus = "2-3"

[[topology.nodes]]
id = 0
cpus = "0-1"
memory = "8 GiB"

[[topology.nodes]]
id = 1
cpus = "2-3"
memory = 4096

[topology.distances]
unit = "nanoseconds"
rows = [[77.3, 129.8], [129.8, 73.5]]

[thresholds]
coherence_per_cycle = 2.5e-4
socket_bandwidth_per_s = 75e6
"#;

#[test]
fn synthetic_with_additions() {
    let m = Machine::parse(FILE).unwrap();
    let t = &m.topology;
    assert_eq!((m.name.as_str(), t.name(), m.sources["l2"].as_str()), ("toy", Some("toy"), "nowhere"));
    let buses: Vec<_> = t.of_kind(Kind::Bus).map(|b| (b.cpus.to_string(), b.capacity)).collect();
    assert_eq!(buses, [("0-1".to_owned(), Some(10_600_000_000)), ("2-3".to_owned(), None)]);
    assert_eq!((t.nodes()[0].bytes, t.nodes()[1].bytes), (Some(8 << 30), Some(4096)));
    assert_eq!(t.distance(CpuId(3), 0), Some(129.8));
    assert_eq!(t.cpu(CpuId(3)).unwrap().efficiency_class, Some(0));
    assert_eq!((m.profile.clock_hz, m.profile.thresholds.unwrap().socket_bandwidth_per_s), (Some(2.33e9), 75e6));
}

#[test]
fn explicit_mesh() {
    let m = Machine::parse(
        r#"name = "mesh"
description = "3×2 mesh"
source = "made up"
[topology]
cpus = "0-5"
offline = "4"
disallowed = "5"
mesh = { columns = 3 }
coordinates = [{ cpus = "5", at = [7, 7] }]
distances = { unit = "hops", manhattan = true }
nodes = [{ id = 0, at = [0, -1] }]
resources = [{ kind = "data_cache", level = 1, cpus = "0", size = "8 KiB", line_size = 64, ways = 2 }]
"#,
    )
    .unwrap();
    let t = &m.topology;
    assert_eq!((t.online().to_string(), t.usable().to_string()), ("0-3,5".into(), "0-3".into()));
    assert_eq!(
        (t.distance(CpuId(0), 0), t.distance(CpuId(3), 0), t.distance(CpuId(5), 0)),
        (Some(1.0), Some(2.0), Some(15.0))
    );
    assert_eq!(t.of_kind(Kind::Cache(CacheType::Data)).next().unwrap().capacity, Some(8192));
}

#[test]
fn errors_name_line_and_column() {
    let bad = |from: &str, to: &str| {
        assert!(FILE.contains(from), "{from}");
        Machine::parse(&FILE.replacen(from, to, 1)).expect_err(to).to_string()
    };
    for (from, to, expected) in [
        ("name =", "nam =", "1:1: unknown field `nam`"),
        ("l2:1(size=4MiB)", "l2:1(size=lots)", "11:13: synthetic description, column 21"),
        ("cpus = \"2-3\"\n\n", "cpus = \"2-9\"\n\n", "there is no CPU 4"),
        ("kind = \"bus\"", "kind = \"omnibus\"", "15:8: unknown variant `omnibus`"),
        ("bytes_per_s = 10_600_000_000", "size = \"4 MiB\"", "14:1: only caches have 'size'"),
        ("cpus = \"0-1\"\nbytes", "cpus = \"0~1\"\nbytes", "16:8: '0~1' is not a CPU list"),
        ("memory = \"8 GiB\"", "memory = \"8 GiBit\"", "26:10: '8 GiBit' is not a size"),
        ("memory = 4096", "memory = -1", "expected bytes"),
        ("rows = [[77.3, 129.8], ", "rows = [", "the distance matrix has 1 rows"),
        ("clock_hz", "clock", "unknown field `clock`"),
        ("[topology]\n", "[topology]\ncpus = \"0-3\"\n", "10:1: a topology has either 'synthetic' or 'cpus'"),
    ] {
        let e = bad(from, to);
        assert!(e.contains(expected), "{e}\nshould contain {expected}");
    }
    assert!(Machine::parse("").unwrap_err().to_string().contains("missing field"));
    assert!(Machine::parse("name = ").unwrap_err().to_string().starts_with("1:"));
}

proptest! {
    #[test]
    fn mutated_files_do_not_panic(at in 0..FILE.len(), cut in 0usize..20, put in "\\PC{0,6}") {
        let mut bytes = FILE.as_bytes().to_vec();
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, put.bytes());
        let _ = Machine::parse(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn profile_of_a_machine() {
    let text = "[thresholds]\ncoherence_per_cycle = 2.5e-4\nsocket_bandwidth_per_s = 75e6\n";
    let thresholds = parse_profile(text).unwrap().thresholds.unwrap();
    assert_eq!((thresholds.coherence_per_cycle, thresholds.task_bandwidth_per_s), (2.5e-4, None));
    let file = format!("name = 'a'\ndescription = ''\nsource = ''\ntopology.synthetic = 'pu:2'\n{text}");
    assert_eq!(parse_profile(&file).unwrap().thresholds, Some(thresholds), "a machine file's own profile");
    let bad = parse_profile(&text.replace("75e6", "-75e6")).unwrap_err();
    assert_eq!(bad.to_string(), "3:1: socket_bandwidth_per_s must be positive and finite");
    assert_eq!(parse_profile(&text.replace("coherence", "coherense")).unwrap_err().line, 2);
}
