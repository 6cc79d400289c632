use super::fixtures::{cpus, resource, set};
use super::*;

/// 2 packages × 2 cores × 2 contexts, numbered as Linux does on Intel: siblings are n and n + 4.
fn two_sockets() -> Parts {
    let mut resources = vec![resource(Kind::Package, 0, "0-1,4-5"), resource(Kind::Package, 0, "2-3,6-7")];
    resources.extend((0..4).map(|c| resource(Kind::Core, 0, &format!("{c},{}", c + 4))));
    resources.push(resource(Kind::Cache(CacheType::Unified), 3, "0-1,4-5"));
    resources.push(resource(Kind::Cache(CacheType::Unified), 3, "2-3,6-7"));
    Parts { cpus: cpus(8), resources, ..Parts::default() }
}

#[test]
fn first_contexts_come_before_second_ones() {
    let t = Topology::new(two_sockets()).unwrap();
    assert_eq!(t.package_contexts()[0], [0, 1, 4, 5].map(CpuId));
    assert_eq!(t.llc_domains()[1].contexts, [2, 3, 6, 7].map(CpuId));
    assert_eq!((t.package_of(CpuId(7)), t.core_of(CpuId(7)), t.llc_of(CpuId(7))), (Some(1), Some(3), Some(1)));
    assert_eq!(t.package_of(CpuId(8)), None);
}

#[test]
fn other_programs_may_be_allowed_more_than_we() {
    let mut parts = two_sockets();
    parts.cpus.iter_mut().for_each(|cpu| cpu.allowed = cpu.id.0 < 2);
    parts.nodes = vec![fixtures::node(0, "0-1,4-5"), fixtures::node(1, "2-3,6-7")];
    parts.nodes[1].allowed = false;
    let ours = Topology::new(parts).unwrap();
    assert_eq!(ours.usable(), &set("0-1"));
    let theirs = ours.allowing(&set("2,99"));
    assert_eq!(theirs.usable(), &set("0-2"));
    assert!(theirs.nodes()[1].allowed);
    assert_eq!(theirs.allowing(&set("")), theirs);
    assert_eq!(theirs.limited_to(&set("1-9")).usable(), &set("1-2"));
}

#[test]
fn without_caches_the_package_is_the_domain() {
    let t = Topology::new(Parts { cpus: cpus(2), ..Parts::default() }).unwrap();
    assert_eq!((t.packages().len(), t.cores().len(), t.llc_domains().len()), (1, 2, 1));
    assert_eq!(t.llc_domains()[0].cpus, set("0-1"));
    // As in aarch64 guests: levels beyond the first are not reported, which does not mean private caches.
    let mut parts = two_sockets();
    parts.resources.retain(|r| r.kind == Kind::Package);
    parts.resources.extend((0..8).map(|c| resource(Kind::Cache(CacheType::Data), 1, &c.to_string())));
    let t = Topology::new(parts).unwrap();
    let domains: Vec<&CpuSet> = t.llc_domains().iter().map(|d| &d.cpus).collect();
    assert_eq!(domains, [&set("0-1,4-5"), &set("2-3,6-7")]);
    assert!(!report::json(&t).to_string().contains("llc\":true"));
}

#[test]
fn the_last_level_is_found_per_cpu() {
    // CPUs 0-1 share an L3; 2-3 have only private L2s: three domains.
    let resources = vec![
        resource(Kind::Cache(CacheType::Unified), 3, "0-1"),
        resource(Kind::Cache(CacheType::Unified), 2, "0"),
        resource(Kind::Cache(CacheType::Unified), 2, "1"),
        resource(Kind::Cache(CacheType::Unified), 2, "2"),
        resource(Kind::Cache(CacheType::Unified), 2, "3"),
    ];
    let t = Topology::new(Parts { cpus: cpus(4), resources, ..Parts::default() }).unwrap();
    let domains: Vec<String> = t.llc_domains().iter().map(|d| d.cpus.to_string()).collect();
    assert_eq!(domains, ["0-1", "2", "3"]);
}

#[test]
fn contradictions_are_refused() {
    assert_eq!(Topology::new(Parts::default()), Err(TopologyError::NoCpu));
    let mut twice = two_sockets();
    twice.cpus.push(cpus(1).remove(0));
    assert_eq!(Topology::new(twice), Err(TopologyError::Twice("CPU 0".into())));
    let mut unknown = two_sockets();
    unknown.resources.push(resource(Kind::Bus, 0, "0-8"));
    assert!(matches!(Topology::new(unknown), Err(TopologyError::UnknownCpu { cpu: CpuId(8), .. })));
    let mut overlap = two_sockets();
    overlap.resources.push(resource(Kind::Package, 0, "1-2"));
    assert!(matches!(Topology::new(overlap), Err(TopologyError::Overlap(..))));
    // Not neighbours in the order of their lowest CPU: the third crosses the first.
    let mut apart = two_sockets();
    apart.resources.retain(|r| r.kind != Kind::Package);
    apart.resources.extend(["0,5", "1", "2,5"].map(|cpus| resource(Kind::Package, 0, cpus)));
    assert!(matches!(Topology::new(apart), Err(TopologyError::Overlap(_, CpuId(5)))));
    let crowd = Parts { cpus: cpus(MAX_CPUS as u32 + 1), ..Parts::default() };
    assert!(matches!(Topology::new(crowd), Err(TopologyError::TooMany(_))));
    let mut shape = two_sockets();
    shape.distances = Some(Distances { unit: DistanceUnit::Slit, rows: vec![vec![10.0]], source: None });
    assert!(matches!(Topology::new(shape), Err(TopologyError::Distances(_))));
}

#[test]
fn survives_serialisation() {
    let t = Topology::new(two_sockets()).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&serde_json::to_string(&t).unwrap()).unwrap(), t);
}
