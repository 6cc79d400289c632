use super::*;
use proptest::prelude::*;

fn sets(t: &Topology, kind: Kind, level: u8) -> Vec<String> {
    t.of_kind(kind).filter(|r| r.level == level).map(|r| r.cpus.to_string()).collect()
}

#[test]
fn the_manual_s_first_example() {
    let t = parse("pack:2 node:1 l2:1 core:2 pu:1").unwrap();
    assert_eq!(sets(&t, Kind::Package, 0), ["0-1", "2-3"]);
    assert_eq!(sets(&t, Kind::Cache(CacheType::Unified), 2), ["0-1", "2-3"]);
    assert_eq!(t.nodes().iter().map(|n| n.cpus.to_string()).collect::<Vec<_>>(), ["0-1", "2-3"]);
    assert_eq!(t.cores().len(), 4);
}

#[test]
fn bare_numbers_are_the_usual_levels() {
    assert_eq!(parse("2 3 4 5 6").unwrap(), parse("Package:2 NUMANode:3 L2Cache:4 Core:5 PU:6").unwrap());
    assert_eq!(parse("3").unwrap(), parse("[numa] pu:3").unwrap());
    assert_eq!(parse("2 2").unwrap(), parse("numa:2 pu:2").unwrap());
    assert_eq!(parse("l2u:2 pu:2").unwrap(), parse("l2:2 pu:2").unwrap());
    let deep = parse("2 2 1 1 1 1 1 2 2").unwrap();
    assert_eq!(deep, parse("group:2 pack:2 numa:1 l3:1 l2:1 l1d:1 l1i:1 core:2 pu:2").unwrap());
}

#[test]
fn nodes_sizes_and_indexes() {
    let t = parse("package:1 group:4 [numa(memory=96GB)] [numa(memory=16GiB)] core:16 pu:4").unwrap();
    assert_eq!(t.nodes().len(), 8);
    assert_eq!((t.nodes()[2].bytes, t.nodes()[3].bytes), (Some(96_000_000_000), Some(16 << 30)));
    assert_eq!(t.nodes()[3].cpus.to_string(), "64-127");
    assert_eq!(t.of_kind(Kind::Cluster).count(), 4);
    // Linux on Intel: first contexts of all cores, then second ones.
    let t = parse("[numa] package:2 l3:1(size=25600KiB) core:10 pu:2(indexes=package:core)").unwrap();
    assert_eq!(sets(&t, Kind::Package, 0)[0], "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38");
    let t = parse("package:2 core:10 pu:2(indexes=2*10:1*2:20*2)").unwrap();
    assert_eq!(sets(&t, Kind::Package, 0), ["0-19", "20-39"]);
    assert_eq!(sets(&t, Kind::Core, 0)[0], "0,10");
    let t = parse("package:2(indexes=7,3) core:2 pu:1(indexes=3,1,2,0)").unwrap();
    assert_eq!(t.of_kind(Kind::Package).map(|r| r.os_index).collect::<Vec<_>>(), [Some(3), Some(7)]);
    assert_eq!(sets(&t, Kind::Package, 0), ["0,2", "1,3"]);
    assert_eq!(parse("core:2 pu:2(indexes=2*2:1*2)").unwrap(), parse("core:2 pu:2(indexes=core)").unwrap());
}

#[test]
fn unknown_sizes_stay_unknown() {
    let t = parse("package:1 l3:1 core:2 pu:1").unwrap();
    assert!(t.resources().iter().all(|r| r.capacity.is_none()));
    assert_eq!(t.nodes()[0].bytes, None);
}

#[test]
fn errors_name_the_column() {
    for (text, column, what) in [
        ("", 1, "no level"),
        ("package:2 foo:3 pu:1", 11, "'foo' is not a type"),
        ("package:2 core", 15, "':' and a number"),
        ("package:2 core:0 pu:1", 16, "0 objects"),
        ("package:2 core:2", 11, "must be pu"),
        ("pu:2 core:2", 6, "must be pu"),
        ("core:999999999 pu:1", 1, "more than 8192"),
        ("core:99999999999999999999999 pu:1", 6, "too large"),
        ("8192 2", 6, "more than 8192"),
        ("package:2 package:2 pu:1", 11, "already"),
        ("numa:2 [numa] pu:2", 1, "not both"),
        ("package:2 4 pu:1", 1, "cannot be mixed"),
        ("package:2 [core] pu:1", 11, "only memory nodes"),
        ("package:2 [numa pu:1", 16, "']' is missing"),
        ("package:2(size=3) pu:1", 11, "not an attribute"),
        ("l3:2(size=3 pu:1", 13, "no value"),
        ("l3:2(size=many) pu:1", 11, "not a size"),
        ("core:2 pu:2(indexes=0,1,2)", 21, "3 indexes for 4"),
        ("core:2 pu:2(indexes=0,1,2,99999)", 21, "not an index"),
        ("core:2 pu:2(indexes=package)", 21, "no level 'package'"),
        ("core:2 pu:2(indexes=core:core)", 21, "twice"),
        ("core:2 pu:2(indexes=2*3)", 21, "numbers 3 of 4"),
        ("core:2(indexes=pu) pu:2", 16, "no level 'pu'"),
        ("package:2(indexes=core) core:2 pu:2", 19, "neither a list"),
        ("core:2 pu:2(indexes=0,0,1,1)", 1, "CPU 0 is listed twice"),
    ] {
        let e = parse(text).expect_err(text);
        assert_eq!(e.column, column, "{text}: {e}");
        assert!(e.to_string().contains(what), "{text}: {e}");
    }
    assert!(parse(&"group:1 ".repeat(40)).unwrap_err().to_string().contains("more than 32 levels"));
    assert!(parse(&format!("core:2 {} pu:1", "[numa]".repeat(5000))).is_err());
}

#[test]
fn one_cpu() {
    let t = parse("1").unwrap();
    assert_eq!((t.cpus().len(), t.packages().len(), t.cores().len(), t.nodes().len()), (1, 1, 1, 1));
}

proptest! {
    #[test]
    fn nothing_panics(text in "\\PC{0,60}") {
        let _ = parse(&text);
    }

    #[test]
    fn nearly_right_texts_do_not_panic(
        tokens in proptest::collection::vec(
            prop_oneof![
                Just("package:2".to_owned()), Just("[numa]".to_owned()), Just("[numa(memory=1GB)]".to_owned()),
                Just("l3:1(size=8MiB)".to_owned()), Just("core:3".to_owned()), Just("pu:2".to_owned()), Just("group:2".to_owned()),
                Just("(indexes=core:package)".to_owned()), Just("pu:2(indexes=2*2)".to_owned()), "[a-z0-9:()=,*\\[\\] ]{0,8}",
                (0u32..70).prop_map(|n| n.to_string()),
            ],
            0..8,
        )
    ) {
        let _ = parse(&tokens.join(" "));
    }
}
