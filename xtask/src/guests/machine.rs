//! The guests: one description each, the source of the emulator's arguments and of the topology that `cotenant topo`
//! must see.

use super::system::System;
use cotenant_model::CpuSet;
use serde_json::Value;
use std::collections::BTreeSet;

/// Processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// `q35` with one L3 per die.
    Amd64,
    /// `virt` with a PMU; reports only the caches of cores.
    Arm64,
}

/// Which kernel a guest boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kernel {
    /// Debian 12's for clouds: 6.1.
    Stable,
    /// That of its backports: 6.12, which has DAMON, and whose cpusets remember the mask that a thread asked for.
    Backports,
    /// That of Debian 13's backports: 7.x, the newest that there is.
    Newest,
    /// Ubuntu 24.04's first: 6.8, which has idle page tracking.
    Ubuntu,
}

impl Kernel {
    /// As people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stable => "6.1",
            Self::Backports => "6.12",
            Self::Newest => "7.x",
            Self::Ubuntu => "6.8",
        }
    }
}

/// A machine to emulate. CPUs are numbered socket by socket, die by die, core by core, thread by thread.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    pub name: &'static str,
    pub what: &'static str,
    pub arch: Arch,
    pub kernel: Kernel,
    pub sockets: usize,
    /// Per socket.
    pub dies: usize,
    /// Per die.
    pub cores: usize,
    /// Per core.
    pub threads: usize,
    /// SLIT distances from node to node; the CPUs are shared out evenly among the nodes, in their order. Empty: one
    /// node.
    pub distances: &'static [&'static [u32]],
    /// Number of the last nodes that only have memory.
    pub memory_only: usize,
    /// Memory of all nodes, in MiB.
    pub memory: usize,
    /// After so long it hangs.
    pub seconds: u64,
    pub system: System,
    /// Whether the kernel is measured: there is no Cotenant in it, but the program that measures.
    pub measures: bool,
    /// Further options on its kernel's command line.
    pub told: &'static str,
    /// Whether continuous integration runs it.
    pub quick: bool,
    pub scenarios: &'static [&'static str],
}

/// The scenario that the host runs, on the guest's console.
pub const SHELL: &str = "shell";

/// The smallest machine; the others give only their differences.
const ONE_CPU: Guest = Guest {
    name: "one-cpu",
    what: "1 CPU",
    arch: Arch::Amd64,
    kernel: Kernel::Stable,
    sockets: 1,
    dies: 1,
    cores: 1,
    threads: 1,
    distances: &[],
    memory_only: 0,
    memory: 1024,
    seconds: 45,
    system: System::Bare,
    measures: false,
    told: "",
    quick: true,
    scenarios: &["topology", "single", SHELL],
};

/// The machine on which most is tried; in several boots, since a guest's time is short.
const TWO_SOCKETS: Guest = Guest {
    name: "two-sockets",
    what: "2 sockets x 2 dies x 1 core x 2 threads, 2 nodes",
    sockets: 2,
    dies: 2,
    threads: 2,
    distances: &[&[10, 21], &[21, 10]],
    scenarios: &["topology", "static", "sam"],
    ..ONE_CPU
};

const FOUR_NODES: Guest = Guest {
    name: "four-nodes",
    what: "4 sockets x 2 cores, 4 nodes with asymmetric distances",
    sockets: 4,
    cores: 2,
    distances: &[&[10, 16, 22, 28], &[17, 10, 16, 22], &[23, 17, 10, 16], &[29, 23, 17, 10]],
    scenarios: &["topology", "restore"],
    ..ONE_CPU
};

const MEMORY_NODE: Guest = Guest {
    name: "memory-node",
    what: "2 sockets x 2 cores, 2 nodes and a third of memory alone",
    distances: &[&[10, 21, 17], &[21, 10, 28], &[17, 28, 10]],
    memory_only: 1,
    quick: false,
    scenarios: &["topology", "static"],
    ..TWO_PACKAGES
};

/// Another socket is another place for disturbing programs; few CPUs, since emulated ones are busy.
const TWO_PACKAGES: Guest = Guest {
    name: "ladder",
    what: "2 sockets x 2 cores",
    sockets: 2,
    cores: 2,
    seconds: 60,
    scenarios: &["ladder"],
    ..ONE_CPU
};

/// Half of its memory is enough for a process that counts as large.
const TWO_NODES: Guest = Guest {
    name: "idle-pages",
    what: "2 sockets x 1 core, 2 nodes",
    kernel: Kernel::Ubuntu,
    cores: 1,
    distances: &[&[10, 21], &[21, 10]],
    quick: false,
    scenarios: &["idle-pages"],
    ..TWO_PACKAGES
};

/// A node has as many CPUs as followed threads, and either node has room for their memory.
const BALANCING: Guest = Guest {
    name: "numa-balancing",
    what: "2 sockets x 4 cores, 2 nodes",
    kernel: Kernel::Backports,
    dies: 1,
    cores: 4,
    threads: 1,
    memory: 3072,
    seconds: 1500,
    measures: true,
    quick: false,
    scenarios: &["numa-balancing"],
    ..TWO_SOCKETS
};

/// Two places for threads, and systemd.
const SERVICE: Guest = Guest {
    name: "systemd",
    what: "2 sockets x 1 core, 2 nodes, systemd",
    kernel: Kernel::Stable,
    system: System::Systemd,
    quick: true,
    scenarios: &["unit"],
    ..TWO_NODES
};

/// Cotenant's requirements of a kernel, in the newest one.
const NEWEST: Guest = Guest {
    name: "newest",
    what: "1 socket x 2 cores",
    kernel: Kernel::Newest,
    cores: 2,
    seconds: 90,
    scenarios: &["topology", "newest"],
    ..ONE_CPU
};

/// All guests.
pub const GUESTS: &[Guest] = &[
    TWO_SOCKETS,
    Guest {
        name: "shapes",
        what: "2 sockets x 2 cores, 2 nodes",
        dies: 1,
        cores: 2,
        threads: 1,
        seconds: 400,
        quick: false,
        scenarios: &["shapes", "balancing"],
        ..TWO_SOCKETS
    },
    Guest { name: "pages", quick: false, scenarios: &["pages"], ..TWO_SOCKETS },
    Guest { name: "hotplug", quick: false, scenarios: &["rival", "hotplug"], ..TWO_SOCKETS },
    Guest { name: "freezer", quick: false, scenarios: &["freezer"], ..TWO_SOCKETS },
    Guest { name: "cpusets", quick: false, scenarios: &["cpusets"], ..TWO_SOCKETS },
    Guest { name: "partitions", quick: false, scenarios: &["partitions"], ..TWO_SOCKETS },
    Guest {
        name: "ten-cores",
        what: "2 sockets x 10 cores x 2 threads, 2 nodes",
        dies: 1,
        cores: 10,
        quick: false,
        scenarios: &["topology", "static"],
        ..TWO_SOCKETS
    },
    Guest {
        name: "chiplets",
        what: "64 CPUs with 8 L3s: 2 sockets x 4 dies x 4 cores x 2 threads, 2 nodes",
        dies: 4,
        cores: 4,
        distances: &[&[10, 32], &[32, 10]],
        quick: false,
        scenarios: &["topology", "static"],
        ..TWO_SOCKETS
    },
    FOUR_NODES,
    Guest { name: "near", quick: false, scenarios: &["near"], ..FOUR_NODES },
    Guest { name: "faults", quick: false, scenarios: &["faults"], ..FOUR_NODES },
    Guest { name: "fetch", quick: false, scenarios: &["fetch"], ..FOUR_NODES },
    Guest { name: "sam-nodes", quick: false, scenarios: &["sam-nodes"], ..FOUR_NODES },
    MEMORY_NODE,
    Guest { name: "far-memory", scenarios: &["far-memory"], ..MEMORY_NODE },
    Guest { name: "quota", what: "1 socket x 2 cores", sockets: 1, scenarios: &["quota"], ..TWO_PACKAGES },
    Guest { name: "naps", what: "1 socket x 2 cores", sockets: 1, quick: false, scenarios: &["naps"], ..TWO_PACKAGES },
    TWO_PACKAGES,
    Guest { name: "refused", quick: false, scenarios: &["refused"], ..TWO_PACKAGES },
    TWO_NODES,
    Guest { name: "mappings", kernel: Kernel::Stable, seconds: 150, scenarios: &["mappings"], ..TWO_NODES },
    Guest { name: "damon", kernel: Kernel::Backports, quick: false, scenarios: &["damon"], ..FOUR_NODES },
    BALANCING,
    Guest { name: "numa-balancing-new", kernel: Kernel::Newest, ..BALANCING },
    Guest { name: "waits", quick: false, scenarios: &["waits"], ..NEWEST },
    Guest { name: "waits-6.1", kernel: Kernel::Stable, quick: false, scenarios: &["waits"], ..NEWEST },
    Guest { name: "waits-6.12", kernel: Kernel::Backports, quick: false, scenarios: &["waits"], ..NEWEST },
    Guest { name: "cpusets-new", kernel: Kernel::Backports, quick: false, scenarios: &["cpusets"], ..TWO_SOCKETS },
    SERVICE,
    Guest {
        name: "service",
        quick: false,
        seconds: 150,
        scenarios: &["unit-reload", "unit-kill", "unit-state", "unit-rights"],
        ..SERVICE
    },
    Guest { name: "classes", quick: false, seconds: 240, scenarios: &["unit-class"], ..SERVICE },
    Guest { name: "levels", quick: false, seconds: 240, scenarios: &["unit-level"], ..SERVICE },
    Guest { name: "throttled", quick: false, seconds: 150, scenarios: &["unit-idle", "unit-upgrade"], ..SERVICE },
    Guest {
        name: "kubelet",
        what: "2 sockets x 2 cores, kubelet and containerd",
        cores: 2,
        distances: &[],
        system: System::Kubelet,
        quick: false,
        seconds: 400,
        scenarios: &["pods", "pod-cpus"],
        ..SERVICE
    },
    Guest {
        name: "kubelet-new",
        what: "2 sockets x 2 cores, kubelet and containerd",
        kernel: Kernel::Backports,
        cores: 2,
        distances: &[],
        system: System::Kubelet,
        quick: false,
        seconds: 240,
        scenarios: &["pod-cpus"],
        ..SERVICE
    },
    Guest { name: "background", seconds: 60, scenarios: &["background"], ..ONE_CPU },
    ONE_CPU,
    NEWEST,
    Guest {
        name: "pressure",
        kernel: Kernel::Backports,
        told: "psi=1",
        quick: false,
        seconds: 120,
        scenarios: &["pressure"],
        ..NEWEST
    },
    Guest {
        name: "arm",
        what: "aarch64, 4 cores with a PMU",
        arch: Arch::Arm64,
        cores: 4,
        quick: false,
        scenarios: &["topology", "counters", "static"],
        ..ONE_CPU
    },
];

/// The inputs of a guest's parts.
pub type Ingredients = (Arch, Kernel, System, bool);

impl Guest {
    pub fn ingredients(&self) -> Ingredients {
        (self.arch, self.kernel, self.system, self.measures)
    }

    /// Whether it also runs with a kernel given for all; false for guests that test their kernel.
    pub fn takes_another_kernel(&self) -> bool {
        !self.measures && !self.name.ends_with("-new")
    }

    /// Whether its kernel relies on the processor's TLBs to be flushed now and then: it clears accessed bits, and waits
    /// until they are set again.
    pub fn needs_flushes(&self) -> bool {
        self.scenarios.iter().any(|scenario| ["damon", "idle-pages"].contains(scenario))
    }

    /// Online CPUs.
    pub fn cpus(&self) -> usize {
        self.sockets * self.dies * self.cores * self.threads
    }

    fn nodes(&self) -> usize {
        self.distances.len().max(1)
    }

    /// The scenarios that the guest runs by itself.
    pub fn scripts(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.scenarios.iter().copied().filter(|scenario| *scenario != SHELL)
    }

    /// CPUs of each node that has some.
    fn per_node(&self) -> usize {
        self.cpus() / (self.nodes() - self.memory_only)
    }

    /// The emulator's arguments for the machine.
    pub fn arguments(&self) -> Vec<String> {
        let memory = self.memory / self.nodes() / 64 * 64;
        let Self { sockets, dies, cores, threads, .. } = self;
        // aarch64's machine has no dies.
        let dies = if self.arch == Arch::Amd64 { format!(",dies={dies}") } else { String::new() };
        // QEMU 7.2's CMPXCHG16B spoils the flags: Linux 6.12 dies of it at its first allocations.
        let cpu = if self.kernel == Kernel::Stable { "" } else { ",cx16=off" };
        let cpu = format!("max,vendor=GenuineIntel{cpu}");
        let machine: &[&str] = match self.arch {
            Arch::Amd64 => &["-M", "q35", "-cpu", &cpu],
            // Only with a fixed shift do the counters count.
            Arch::Arm64 => &["-M", "virt,gic-version=3", "-cpu", "neoverse-n1,pmu=on", "-icount", "shift=1,sleep=off"],
        };
        let smp = format!("{},sockets={sockets}{dies},cores={cores},threads={threads}", self.cpus());
        let common = ["-accel", "tcg,thread=single", "-m", &format!("{}M", memory * self.nodes()), "-smp", &smp];
        let mut args: Vec<String> = machine.iter().copied().chain(common).map(Into::into).collect();
        // Every node has to be there before a distance to it.
        for from in 0..self.distances.len() {
            let has_cpus = from < self.nodes() - self.memory_only;
            let of_node = if has_cpus { format!(",cpus={}", cpus(from, self.per_node())) } else { String::new() };
            args.extend(["-object".into(), format!("memory-backend-ram,id=m{from},size={memory}M")]);
            args.extend(["-numa".into(), format!("node,nodeid={from}{of_node},memdev=m{from}")]);
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                args.extend(["-numa".into(), format!("dist,src={from},dst={to},val={distance}")]);
            }
        }
        args
    }

    /// Compares the output of `cotenant topo --json` with the emulator's arguments.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn compare(&self, seen: &str) -> Result<(), String> {
        let seen: Value = serde_json::from_str(seen).map_err(|e| format!("no JSON: {e}"))?;
        let groups = |size: usize| -> BTreeSet<String> { (0..self.cpus() / size).map(|i| cpus(i, size)).collect() };
        let per_core = self.threads;
        let per_die = self.cores * per_core;
        let per_socket = self.dies * per_die;
        let (caches, domains) = match self.arch {
            Arch::Amd64 => (groups(per_die), self.sockets * self.dies),
            Arch::Arm64 => (BTreeSet::new(), self.sockets),
        };
        let expected = [
            ("package", groups(per_socket)),
            ("core", groups(per_core)),
            ("cpu", groups(1)),
            ("memory_node", groups(self.per_node())),
            ("llc", caches),
        ];
        for (kind, expected) in expected {
            let mut found = BTreeSet::new();
            collect(&seen["tree"], kind, &mut found);
            for branch in seen["crossing"].as_array().into_iter().flatten() {
                collect(branch, kind, &mut found);
            }
            if found != expected {
                return Err(format!("{kind}: expected {expected:?}, saw {found:?}"));
            }
        }
        let memory_only = seen["memory_only"].as_array().map_or(0, Vec::len);
        if memory_only != self.memory_only {
            return Err(format!("nodes of memory alone: expected {}, saw {memory_only}", self.memory_only));
        }
        if seen["llc_domains"] != domains {
            return Err(format!("domains of last-level caches: expected {domains}, saw {}", seen["llc_domains"]));
        }
        if self.distances.is_empty() {
            return Ok(());
        }
        let expected: Vec<Vec<f64>> =
            self.distances.iter().map(|row| row.iter().map(|&d| d.into()).collect()).collect();
        let rows = &seen["distances"]["rows"];
        if *rows != serde_json::json!(expected) {
            return Err(format!("distances: expected {expected:?}, saw {rows}"));
        }
        Ok(())
    }
}

/// The `i`-th group of `size` CPUs, as a list.
fn cpus(i: usize, size: usize) -> String {
    (i * size..(i + 1) * size).map(|cpu| cotenant_model::CpuId(cpu as u32)).collect::<CpuSet>().to_string()
}

/// The CPU lists of all branches of a kind; `llc` for last-level caches.
fn collect(branch: &Value, kind: &str, found: &mut BTreeSet<String>) {
    let is = if kind == "llc" { branch["llc"] == true } else { branch["kind"] == kind };
    if is {
        found.insert(branch["cpus"].as_str().unwrap_or_default().to_owned());
    }
    for child in branch["children"].as_array().into_iter().flatten() {
        collect(child, kind, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulator_is_told_what_is_expected() {
        let guest = &GUESTS[0];
        let args = guest.arguments().join(" ");
        assert!(args.contains("-accel tcg,thread=single"), "{args}");
        assert!(args.contains("-smp 8,sockets=2,dies=2,cores=1,threads=2"), "{args}");
        assert!(args.contains("-numa node,nodeid=1,cpus=4-7,memdev=m1"), "{args}");
        assert!(args.contains("-numa dist,src=0,dst=1,val=21"), "{args}");
        let guest = GUESTS.iter().find(|guest| guest.memory_only > 0).unwrap();
        let args = guest.arguments().join(" ");
        assert!(args.contains("-numa node,nodeid=1,cpus=2-3,memdev=m1"), "{args}");
        assert!(args.contains("-numa node,nodeid=2,memdev=m2"), "{args}");
    }

    #[test]
    fn a_wrong_topology_is_told_from_the_right_one() {
        let guest = Guest { sockets: 1, dies: 1, cores: 1, threads: 2, distances: &[], ..ONE_CPU };
        let tree = |package: &str, node: &str, domains: usize| {
            serde_json::json!({"llc_domains": domains, "tree": {"kind": "machine", "cpus": "0-1", "children": [
                {"kind": "package", "cpus": package, "children": [{"kind": "memory_node", "cpus": node, "children": [
                    {"kind": "cache", "llc": true, "cpus": "0-1", "children": [{"kind": "core", "cpus": "0-1", "children": [
                        {"kind": "cpu", "cpus": "0"}, {"kind": "cpu", "cpus": "1"}]}]}]}]}]}})
            .to_string()
        };
        assert_eq!(guest.compare(&tree("0-1", "0-1", 1)), Ok(()));
        assert!(guest.compare(&tree("0", "0-1", 1)).unwrap_err().contains("package"));
        assert!(guest.compare(&tree("0-1", "1", 1)).unwrap_err().contains("memory_node"));
        assert!(guest.compare(&tree("0-1", "0-1", 2)).unwrap_err().contains("domains"));
        assert!(guest.compare("{").is_err());
    }

    #[test]
    fn every_scenario_has_a_script_and_every_script_a_guest() {
        let scripts: BTreeSet<&str> = super::super::initramfs::SCENARIOS.iter().map(|(name, _)| *name).collect();
        let used: BTreeSet<&str> = GUESTS.iter().flat_map(Guest::scripts).collect();
        assert_eq!(used, scripts);
    }
}
