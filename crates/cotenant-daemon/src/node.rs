//! The report of this machine to a cluster: usage of the resources shared by its containers, and interference among
//! them.
//!
//! Uncounted values are absent. `use` has the units of `capacity`, so that usage here can be compared with other
//! machines.

use cotenant_model::interference::Row;
use cotenant_model::profile::MachineProfile;
use cotenant_model::topology::{CacheType, Kind, MemoryNode, Resource};
use cotenant_model::{CpuId, CpuSet, Mode, Topology};
use cotenant_status::class::Class;
use cotenant_status::identity::Identity;
use cotenant_status::status::{ServiceStatus, Status};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Reported pairs, the greatest loss first.
const PAIRS: usize = 20;

/// The whole report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Version of the daemon.
    pub version: String,
    /// The effective mode: `observe` also during a pause.
    pub mode: Mode,
    /// Age of the last sample, seconds.
    pub age_s: f64,
    pub shared: Vec<SharedResource>,
    pub containers: Vec<ContainerUse>,
    /// Loss of speed of one container with another one running, each as `namespace/pod/container`, one for all of a
    /// workload.
    pub interference: Vec<Row>,
}

/// A resource shared by several containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResourceKind {
    /// CPU time. Capacity and use in CPUs.
    Cores,
    /// Bandwidth of a package's memory. Capacity and use in bytes per second, by misses of the last-level cache. The
    /// capacity is the calibrated threshold, above which memory counts as exhausted.
    Memory,
    /// A last-level cache. Capacity in bytes, use in bytes loaded per second.
    Cache,
}

/// A shared resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SharedResource {
    pub what: ResourceKind,
    /// Its name: `cores`, `package 0`, `llc 3`.
    pub name: String,
    pub capacity: f64,
    #[serde(rename = "use")]
    pub used: Option<f64>,
}

/// A managed container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerUse {
    #[serde(flatten)]
    pub identity: Identity,
    pub class: Class,
    /// The goal of class high, as a share of its speed alone; and the share in the last minute.
    pub goal: Option<f64>,
    pub kept: Option<f64>,
    /// Its use of each kind, in the units of [`SharedResource::capacity`].
    #[serde(rename = "use")]
    pub used: BTreeMap<ResourceKind, f64>,
}

impl Node {
    pub fn new(status: &Status, topology: &Topology, machine: &MachineProfile) -> Self {
        let services = || status.services.iter().filter(|service| !service.paused);
        let busy = (!status.cpus.is_empty()).then(|| status.cpus.iter().map(|cpu| cpu.busy).sum());
        let capacity = topology.usable().len() as f64;
        let mut shared =
            vec![SharedResource { what: ResourceKind::Cores, name: "cores".to_owned(), capacity, used: busy }];
        // Without running programs the counters' availability is unknown.
        let counted = services().any(|service| misses(service, |_| true).is_some());
        let brought_in = |cpus: &CpuSet, line: f64| {
            let of = |service| misses(service, |cpu| cpus.contains(cpu)).unwrap_or_default();
            counted.then(|| services().map(of).sum::<f64>() * line)
        };
        let caches: Vec<Option<&Resource>> =
            topology.llc_domains().iter().map(|domain| last_level(topology, &domain.cpus)).collect();
        let line = topology.line_size();
        if let Some(thresholds) = &machine.thresholds {
            let capacity = thresholds.socket_bandwidth_per_s * line;
            let of = |(i, cpus): (usize, &CpuSet)| SharedResource {
                what: ResourceKind::Memory,
                name: format!("package {i}"),
                capacity,
                used: brought_in(cpus, line),
            };
            shared.extend(topology.packages().iter().enumerate().map(of));
        }
        let domains = topology.llc_domains().iter().zip(&caches).enumerate();
        shared.extend(domains.filter_map(|(i, (domain, cache))| {
            let capacity = (*cache)?.capacity? as f64;
            Some(SharedResource {
                what: ResourceKind::Cache,
                name: format!("llc {i}"),
                capacity,
                used: brought_in(&domain.cpus, line),
            })
        }));
        let kinds: BTreeSet<ResourceKind> = shared.iter().map(|shared| shared.what).collect();
        let containers: Vec<ContainerUse> =
            services().filter_map(|service| ContainerUse::new(service, &kinds, line)).collect();
        // Learnt values are per workload, and are reported for one of its present containers.
        let mut learnt: BTreeMap<String, &str> = BTreeMap::new();
        for (service, container) in services().filter_map(|service| Some((service, service.container.as_ref()?))) {
            learnt.entry(container.learnt()).or_insert(&service.name);
        }
        let of_containers = |row: &Row| {
            let [victim, aggressor] = [&row.victim, &row.aggressor].map(|name| learnt.get(name));
            Some(Row { victim: (*victim?).to_owned(), aggressor: (*aggressor?).to_owned(), ..row.clone() })
        };
        Self {
            version: status.version.clone(),
            mode: if status.paused { Mode::Observe } else { status.mode },
            age_s: status.sample_age_s + status.made.elapsed().as_secs_f64(),
            shared,
            containers,
            interference: status.interference.iter().filter_map(of_containers).take(PAIRS).collect(),
        }
    }
}

impl ContainerUse {
    fn new(service: &ServiceStatus, kinds: &BTreeSet<ResourceKind>, line: f64) -> Option<Self> {
        let bytes = misses(service, |_| true).map(|misses| misses * line);
        let used = |what: &ResourceKind| match what {
            ResourceKind::Cores => service.cpus,
            ResourceKind::Memory | ResourceKind::Cache => bytes,
        };
        Some(Self {
            identity: service.container.clone()?,
            class: service.class,
            goal: service.goal,
            kept: service.kept,
            used: kinds.iter().filter_map(|what| Some((*what, used(what)?))).collect(),
        })
    }
}

/// Last-level cache misses per second of a service on some CPUs.
fn misses(service: &ServiceStatus, on: impl Fn(CpuId) -> bool) -> Option<f64> {
    let counted = service.places.iter().filter(|place| on(place.cpu)).filter_map(|place| place.misses_per_s);
    counted.reduce(|a, b| a + b)
}

/// Bytes per second loaded by services from memory through the CPUs of each memory node; empty without counts of
/// misses.
pub(crate) fn memory(services: &[ServiceStatus], topology: &Topology) -> BTreeMap<u32, f64> {
    let of = |node: &MemoryNode| {
        let counted = services.iter().filter_map(|service| misses(service, |cpu| node.cpus.contains(cpu)));
        Some((node.id.0, counted.reduce(|a, b| a + b)? * topology.line_size()))
    };
    topology.nodes().iter().filter_map(of).collect()
}

/// The last-level cache of a domain.
fn last_level<'a>(topology: &'a Topology, cpus: &CpuSet) -> Option<&'a Resource> {
    let holds_data = |of: &&Resource| matches!(of.kind, Kind::Cache(CacheType::Unified | CacheType::Data));
    let caches = topology.resources().iter().filter(holds_data).filter(|cache| cpus.is_subset(&cache.cpus));
    caches.max_by_key(|cache| cache.level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::profile::Thresholds;
    use cotenant_status::status::{CpuStatus, Place};
    use std::time::Instant;

    fn service(name: &str, container: bool, places: &[(u32, f64, Option<f64>)]) -> ServiceStatus {
        let identity = Identity {
            namespace: "shop".to_owned(),
            pod: name.to_owned(),
            container: "main".to_owned(),
            workload: name.split_once('-').map(|(workload, _)| workload.to_owned()),
            ..Identity::default()
        };
        let place = |&(cpu, cpus, misses_per_s): &(u32, f64, _)| Place { cpu: CpuId(cpu), cpus, misses_per_s };
        ServiceStatus {
            name: format!("shop/{name}/main"),
            container: container.then_some(identity),
            cpus: Some(places.iter().map(|(_, cpus, _)| cpus).sum()),
            places: places.iter().map(place).collect(),
            ..ServiceStatus::default()
        }
    }

    /// Two packages with a cache of 1 MiB each and two CPUs.
    fn machine() -> Topology {
        cotenant_model::topology::synthetic::parse("pack:2 l3:1(size=1MiB) core:2 pu:1").unwrap()
    }

    fn status(services: Vec<ServiceStatus>) -> Status {
        let row = |victim: &str, aggressor: &str| Row {
            victim: victim.to_owned(),
            aggressor: aggressor.to_owned(),
            loss: 0.2,
            low: 0.1,
            high: 0.3,
            events: 9,
        };
        let cpu = |(cpu, busy)| CpuStatus { cpu: CpuId(cpu), busy };
        Status {
            sample_age_s: 1.5,
            cpus: [(0, 1.0), (1, 0.5), (2, 0.25), (3, 0.0)].map(cpu).to_vec(),
            interference: vec![row("shop/a/main", "shop/b/main"), row("shop/a/main", "ssh.service")],
            services,
            ..Status::of_nobody(Instant::now())
        }
    }

    /// Holds cluster/objects.
    #[test]
    fn what_is_shared_is_told_with_what_is_used_of_it() {
        let a = service("a", true, &[(0, 1.0, Some(1e6)), (2, 0.25, Some(5e5))]);
        let services = vec![a, service("b", true, &[(1, 0.5, Some(2e6))]), service("ssh", false, &[(3, 0.0, None)])];
        let thresholds = Thresholds {
            coherence_per_cycle: 1.0,
            socket_bandwidth_per_s: 1e8,
            task_bandwidth_per_s: None,
            remote_per_cycle: None,
        };
        let profile = MachineProfile { thresholds: Some(thresholds), ..MachineProfile::default() };
        let now = status(services);
        let node = Node::new(&now, &machine(), &profile);
        let shared = |what, name: &str, capacity, used| SharedResource {
            what,
            name: name.to_owned(),
            capacity,
            used: Some(used),
        };
        let (left, right) = (3e6 * 64.0, 5e5 * 64.0);
        assert_eq!(memory(&now.services, &machine()).into_values().sum::<f64>(), left + right);
        assert_eq!(
            node.shared,
            [
                shared(ResourceKind::Cores, "cores", 4.0, 1.75),
                shared(ResourceKind::Memory, "package 0", 6.4e9, left),
                shared(ResourceKind::Memory, "package 1", 6.4e9, right),
                shared(ResourceKind::Cache, "llc 0", 1_048_576.0, left),
                shared(ResourceKind::Cache, "llc 1", 1_048_576.0, right),
            ]
        );
        let used: Vec<_> =
            node.containers.iter().map(|container| (&*container.identity.pod, &container.used)).collect();
        let each = |cpus, bytes| {
            BTreeMap::from([(ResourceKind::Cores, cpus), (ResourceKind::Memory, bytes), (ResourceKind::Cache, bytes)])
        };
        assert_eq!(used, [("a", &each(1.25, 9.6e7)), ("b", &each(0.5, 1.28e8))]);
        let pairs: Vec<_> = node.interference.iter().map(|row| (&*row.victim, &*row.aggressor)).collect();
        assert_eq!(pairs, [("shop/a/main", "shop/b/main")], "what is no container is nobody's business");
        assert!(node.age_s >= 1.5);
    }

    #[test]
    fn what_was_learnt_of_a_workload_is_told_of_one_that_is_there() {
        let on = |cpu| [(cpu, 0.5, None)];
        let services = [("job-2", 0), ("job-3", 1), ("db-0", 2)].map(|(name, cpu)| service(name, true, &on(cpu)));
        let mut now = status(services.to_vec());
        let row = |victim: &str, aggressor: &str| Row {
            victim: victim.to_owned(),
            aggressor: aggressor.to_owned(),
            ..now.interference[0].clone()
        };
        now.interference = vec![
            row("shop/db/main", "shop/job/main"),
            row("shop/db/main", "shop/gone/main"),
            // In the format of earlier tables.
            row("shop/db-0/main", "shop/job-1/main"),
        ];
        let node = Node::new(&now, &machine(), &MachineProfile::default());
        let pairs: Vec<_> = node.interference.iter().map(|row| (&*row.victim, &*row.aggressor)).collect();
        assert_eq!(pairs, [("shop/db-0/main", "shop/job-2/main")]);
    }

    /// Holds cluster/objects.
    #[test]
    fn what_is_not_counted_is_absent() {
        let node =
            Node::new(&status(vec![service("a", true, &[(0, 1.0, None)])]), &machine(), &MachineProfile::default());
        let known: Vec<_> = node.shared.iter().map(|shared| (&*shared.name, shared.used.is_some())).collect();
        assert_eq!(known, [("cores", true), ("llc 0", false), ("llc 1", false)], "bandwidth was never calibrated");
        assert_eq!(node.containers[0].used, BTreeMap::from([(ResourceKind::Cores, 1.0)]));
    }
}
