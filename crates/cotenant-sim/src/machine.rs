//! A machine with the figures that the simulator needs: capacities, latencies and bandwidths.

use crate::app::{AppError, Fault, LINE, POSITIVE, Private, SIMULATOR, given, number};
use crate::occupancy::{self, Nearer, Replacement};
use crate::shared_caches::{self, Near, NearTable};
use crate::station::Station;
use cotenant_model::CpuSet;
use cotenant_model::machine::Machine;
use cotenant_model::profile::Thresholds;
use cotenant_model::topology::{DistanceUnit, Kind, Topology};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// The `[simulator]` section of a machine file. Absent figures are guessed and listed in [`SimMachine::guesses`].
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Section {
    replacement: Option<Replacement>,
    llc_bytes: Option<Spanned<f64>>,
    inclusive: Option<bool>,
    l2_bytes: Option<Spanned<f64>>,
    private_in_use: Option<Spanned<f64>>,
    llc_ways: Option<Spanned<f64>>,
    llc_ns: Option<Spanned<f64>>,
    llc_gbs: Option<Spanned<f64>>,
    #[serde(default)]
    caches: Vec<Spanned<NearTable>>,
    memory_ns: Option<Spanned<f64>>,
    memory_queue_ns: Option<Spanned<f64>>,
    memory_gbs: Option<Spanned<f64>>,
    memory_gbs_scattered: Option<Spanned<f64>>,
    remote_ns: Option<Spanned<f64>>,
    hop_ns: Option<Spanned<f64>>,
    bus_gbs: Option<Spanned<f64>>,
    link_gbs: Option<Spanned<f64>>,
    coherence_ns: Option<Spanned<[f64; 3]>>,
    smt: Option<Spanned<f64>>,
    turbo: Option<Spanned<Vec<f64>>>,
    lines_in_flight: Option<Spanned<f64>>,
    migration_us: Option<Spanned<f64>>,
    page_move_gbs: Option<Spanned<f64>>,
    page_kib: Option<Spanned<f64>>,
    /// The source of each key's figure.
    #[serde(default)]
    sources: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct File {
    simulator: Option<Spanned<Section>>,
}

/// Bytes of a page, if the machine file gives none.
pub(crate) const PAGE: f64 = 4096.0;

/// Idle memory latency to which the measured programs' `mlp` refers (`workloads/*.toml`), seconds.
pub const MEASURED_MEMORY_S: f64 = 82e-9;

/// A last-level cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// Bytes.
    pub bytes: f64,
}

/// A bandwidth without queueing.
const UNLIMITED_GBS: f64 = 1e12;

/// A machine to simulate. Latencies in seconds, bandwidths in bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct SimMachine {
    /// CPUs and their shared resources.
    pub topology: Topology,
    /// Clock, Hz.
    pub clock_hz: f64,
    /// One per LLC domain.
    pub caches: Vec<Cache>,
    /// Ways of each of these, where lines map to sets at random; `None`: no conflict misses.
    pub llc_ways: Option<u32>,
    /// The level of these, counted from the cores; `None` if the topology has no caches.
    pub last_level: Option<u8>,
    /// Caches that several cores share before those, from the cores outward.
    pub near: Vec<Near>,
    /// Whether the last-level caches include the nearer ones. Used with shared nearer levels; otherwise see
    /// [`Self::private`].
    pub inclusive: bool,
    /// Replacement of all shared caches.
    pub replacement: Replacement,
    /// Private caches that differ from the measured ones; `None` leaves programs as measured.
    pub private: Option<Private>,
    /// Latency of an LLC hit.
    pub llc_s: f64,
    /// Idle latency from the CPUs of a node (row) to the memory of a node.
    pub memory_s: Vec<Vec<f64>>,
    /// Per CPU number, where cores of one node are at different distances (a mesh): idle latency to the memory of
    /// each node.
    pub from_cpu_s: Option<Vec<Vec<f64>>>,
    /// Everything that queues: nodes first, then links (from × nodes + to), buses and caches.
    pub stations: Vec<Station>,
    /// The first station of the last-level caches' bandwidths, if these are limited.
    pub llc_station: Option<usize>,
    /// Per CPU number: the station of its bus.
    pub bus_of: Vec<Option<usize>>,
    /// Latency of a line from another core: inside the LLC domain, inside the package, between packages.
    pub coherence_s: [f64; 3],
    /// Speed of a thread's private part when a sibling is busy, as a fraction of its speed alone.
    pub smt: f64,
    /// Clock of a package's cores over [`Self::clock_hz`], by the number of busy cores; the last entry holds for more.
    /// Empty: always 1. Cycles are counted at `clock_hz` regardless.
    pub turbo: Vec<f64>,
    /// Lines that one core can have in flight to memory.
    pub lines_in_flight: f64,
    /// Direct cost of a migration.
    pub migration_s: f64,
    /// Bytes per second at which one CPU moves pages between idle nodes.
    pub page_move_bytes_per_s: f64,
    /// Bytes of a page of its kernel: each touched page costs its observer a fault.
    pub page_bytes: f64,
    /// Figures without any source, as `key = value`.
    pub guesses: Vec<String>,
    /// Keys of figures that the file marks as guesses.
    pub assumed: Vec<String>,
}

impl SimMachine {
    /// Of a machine, as [`Self::new`].
    ///
    /// # Errors
    /// If `[simulator]` is malformed; the message names the file.
    pub fn of(machine: &Machine) -> Result<Self, String> {
        Self::new(machine).map_err(|why| format!("{}:{why}", machine.place()))
    }

    /// Builds it from a machine. Figures missing under `[simulator]` are guessed and listed.
    ///
    /// # Errors
    /// If the section is malformed or a figure out of range, with the file's line and column.
    pub fn new(machine: &Machine) -> Result<Self, AppError> {
        let text = machine.simulator.as_deref().unwrap_or_default();
        let file: File = toml::from_str(text).map_err(|e| AppError::of_toml(text, &e))?;
        if let Some(hz) = machine.profile.clock_hz.filter(|hz| !(hz.is_finite() && *hz > 0.0)) {
            let at = text.find("clock_hz").unwrap_or_default();
            return Err(AppError::at(text, at, format!("clock_hz is {hz}; it must be above 0")));
        }
        let section = file.simulator.map(Spanned::into_inner).unwrap_or_default();
        let mut guesses = Vec::new();
        let built = Self::build(machine, &section, &mut guesses)
            .and_then(|m| Ok(Self { private: private(&section, &m, &mut guesses)?, ..m }));
        let called = section.sources.iter().filter(|(_, source)| source.contains("guess"));
        let assumed = called.map(|(key, _)| key.clone()).collect();
        built.map(|m| Self { guesses, assumed, ..m }).map_err(|(offset, message)| AppError::at(text, offset, message))
    }

    fn build(machine: &Machine, s: &Section, guesses: &mut Vec<String>) -> Result<Self, Fault> {
        let topology = machine.topology.clone();
        let mut get = |key: &str, value: &Option<Spanned<f64>>, guess: f64| {
            if value.is_none() {
                guesses.push(format!("{key} = {guess}"));
            }
            number(SIMULATOR, key, value.as_ref(), Some(guess), POSITIVE, 0)
        };
        let clock_hz = match machine.profile.clock_hz {
            Some(hz) => hz,
            None => get("clock_hz", &None, 2e9)?,
        };
        let controllers: f64 =
            topology.of_kind(Kind::MemoryController).filter_map(|r| r.capacity).map(|b| b as f64).sum();
        let node_count = topology.nodes().len().max(1);
        let gbs = match (&s.memory_gbs, controllers > 0.0) {
            (None, true) => controllers / 1e9 / node_count as f64,
            (given, _) => get("memory_gbs", given, 40.0)?,
        };
        let scattered = given(SIMULATOR, "memory_gbs_scattered", s.memory_gbs_scattered.as_ref(), POSITIVE)?;
        let memory_ns = match (&s.memory_ns, nanoseconds(&topology)) {
            (None, Some(rows)) => rows[0][0],
            (given, _) => get("memory_ns", given, 82.0)?,
        };
        let queue_ns = get("memory_queue_ns", &s.memory_queue_ns, 0.11 * memory_ns)?;
        let hops = topology.parts().distances.as_ref().is_some_and(|d| d.unit == DistanceUnit::Hops);
        let said = hops || nanoseconds(&topology).is_some();
        let remote_ns = if node_count > 1 && !said { get("remote_ns", &s.remote_ns, 59.0)? } else { 0.0 };
        let hop_ns = if hops { get("hop_ns", &s.hop_ns, 0.01 * memory_ns)? } else { 0.0 };
        // On a mesh a tile's node is only its nearest controller: no link lies between two nodes.
        let on_mesh = hops && s.link_gbs.is_none() && topology.cpus().iter().all(|cpu| cpu.coord.is_some());
        let link_gbs = if on_mesh {
            UNLIMITED_GBS
        } else if node_count > 1 {
            get("link_gbs", &s.link_gbs, 0.5 * gbs)?
        } else {
            1.0
        };
        let llc_ns = get("llc_ns", &s.llc_ns, 25.0)?;
        let smt = match &s.smt {
            None if topology.cores().len() == topology.cpus().len() => 1.0,
            None => get("smt", &None, 0.6)?,
            given => number(SIMULATOR, "smt", given.as_ref(), None, (0.1, 1.0), 0)?,
        };
        let llc_bytes = given(SIMULATOR, "llc_bytes", s.llc_bytes.as_ref(), POSITIVE)?;
        let last = |cpus: &CpuSet| {
            // Most caches do not contain the first CPU, so that this cheap check comes first.
            let holds = |of: &CpuSet| cpus.first().is_some_and(|cpu| of.contains(cpu)) && cpus.is_subset(of);
            let of = |r: &&cotenant_model::topology::Resource| matches!(r.kind, Kind::Cache(_)) && holds(&r.cpus);
            topology.resources().iter().filter(of).max_by_key(|r| r.level)
        };
        let mut caches = Vec::new();
        for domain in topology.llc_domains() {
            let bytes = match (llc_bytes, last(&domain.cpus).and_then(|r| r.capacity)) {
                (Some(bytes), _) => bytes,
                (None, Some(bytes)) if bytes > 0 => bytes as f64,
                _ => get("llc_bytes", &None, 8.0 * 1024.0 * 1024.0)?,
            };
            caches.push(Cache { bytes });
        }
        let llc_ways = given(SIMULATOR, "llc_ways", s.llc_ways.as_ref(), (1.0, 128.0))?.map(|ways| ways.round() as u32);
        let lines_in_flight = get("lines_in_flight", &s.lines_in_flight, 16.0)?;
        let moves = if node_count > 1 { get("page_move_gbs", &s.page_move_gbs, 0.8)? } else { 0.8 };
        let migration_s = get("migration_us", &s.migration_us, 5.0)? / 1e6;
        let coherence_ns = coherence(s, guesses)?;
        let mut stations: Vec<Station> =
            (0..node_count).map(|n| Station::node(n, [scattered.unwrap_or(gbs), gbs], queue_ns, memory_ns)).collect();
        for from in 0..node_count {
            for to in 0..node_count {
                stations.push(Station::new(format!("link {from}-{to}"), link_gbs, link_gbs, queue_ns));
            }
        }
        let bus_of = buses(&topology, s, queue_ns, &mut stations, guesses)?;
        let near = shared_caches::of(&topology, &s.caches, llc_ns, &mut stations, guesses)?;
        if let Some(gbs) = given(SIMULATOR, "llc_gbs", s.llc_gbs.as_ref(), POSITIVE)? {
            stations.extend((0..caches.len()).map(|i| Station::new(format!("llc {i}"), gbs, gbs, 0.1 * llc_ns)));
        }
        Ok(Self {
            llc_station: s.llc_gbs.is_some().then(|| stations.len() - caches.len()),
            clock_hz,
            caches,
            llc_ways,
            last_level: topology.llc_domains().iter().filter_map(|d| last(&d.cpus)).map(|r| r.level).max(),
            near,
            inclusive: s.inclusive.unwrap_or_default(),
            replacement: s.replacement.unwrap_or_default(),
            private: None,
            llc_s: llc_ns / 1e9,
            memory_s: latencies(&topology, node_count, memory_ns, remote_ns, hop_ns),
            from_cpu_s: per_core(&topology, memory_ns, hop_ns),
            bus_of,
            coherence_s: coherence_ns.map(|ns| ns / 1e9),
            smt,
            turbo: turbo(s)?,
            lines_in_flight,
            migration_s,
            page_move_bytes_per_s: moves * 1e9,
            page_bytes: page_bytes(s)?,
            guesses: Vec::new(),
            assumed: Vec::new(),
            stations,
            topology,
        })
    }

    /// SAM's thresholds, derived by its own procedure for this machine, on which every line is counted. `None` with a
    /// single last-level cache, because threads cannot be apart.
    ///
    /// Coherence (§2.1): two sharers with `c` seconds of computation per transfer lose `(far − near) / (c + near)` by
    /// being apart; a loss of 5 % means a transfer every `21 (far − near)`. Bandwidth (§2.2): what a package's memory
    /// delivers, see [`SimMachine::exhausted_per_s`]. Remote loads: the rate at which longer latency costs 5 %.
    pub fn thresholds(&self) -> Option<Thresholds> {
        let packages = self.topology.packages().len();
        let far = match (packages, self.caches.len()) {
            (2.., _) => self.coherence_s[2],
            (_, 2..) => self.coherence_s[1],
            _ => return None,
        };
        let apart = far - self.coherence_s[0];
        let local = self.memory_s[0][0];
        let remote = self.memory_s[0].iter().copied().fold(local, f64::max) - local;
        Some(Thresholds {
            coherence_per_cycle: (apart > 0.0).then(|| 1.0 / (21.0 * apart * self.clock_hz))?,
            socket_bandwidth_per_s: self.exhausted_per_s(),
            task_bandwidth_per_s: None,
            remote_per_cycle: (remote > 0.0).then(|| 0.05 / (remote * self.clock_hz)),
        })
    }

    /// LLC misses per second at which a package's memory counts as exhausted (SAM §2.2): the rate delivered to copies
    /// without row-buffer locality that write back one line per two misses, minus 20 %.
    pub fn exhausted_per_s(&self) -> f64 {
        let packages = self.topology.packages().len().max(1) as f64;
        let nodes: f64 = self.stations[..self.nodes()].iter().map(|node| node.low).sum::<f64>() / packages;
        let bus = self.bus_of.iter().flatten().map(|bus| self.stations[*bus].low).fold(f64::INFINITY, f64::min);
        0.8 * nodes.min(bus) / (1.5 * LINE)
    }

    /// Clock of a core, Hz, with this many busy cores in its package.
    pub fn clock(&self, working: u32) -> f64 {
        let factor = self.turbo.get(working.saturating_sub(1) as usize).or(self.turbo.last());
        self.clock_hz * factor.copied().unwrap_or(1.0)
    }

    /// Idle latency from a CPU to the memory of a node.
    pub fn memory(&self, cpu: usize, node: usize, to: usize) -> f64 {
        self.from_cpu_s.as_ref().map_or_else(|| self.memory_s[node][to], |rows| rows[cpu][to])
    }

    /// Number of misses that overlap beyond [`MEASURED_MEMORY_S`]: a program's `mlp`, limited by the lines that a core
    /// can have in flight.
    ///
    /// A larger `mlp` reflects prefetching, which runs a number of lines ahead, not of nanoseconds: it hides only the
    /// latency that it was built for. Extra latency from load or distance is therefore divided by the lines in flight
    /// only. PROFET's programs on four memories confirm this (`lab/docs/workloads-errors-memory.md`).
    pub fn overlap(&self, mlp: f64) -> f64 {
        mlp.min(self.lines_in_flight)
    }

    /// Seconds per miss for a program of this `mlp`, if memory takes `latency_s`.
    pub fn miss_s(&self, latency_s: f64, mlp: f64) -> f64 {
        let known = latency_s.min(MEASURED_MEMORY_S);
        known / mlp + (latency_s - known) / self.overlap(mlp)
    }

    /// Usable bytes of a last-level cache for programs with this total footprint.
    pub fn room(&self, capacity: f64, demand: f64) -> f64 {
        self.llc_ways.map_or(capacity, |ways| occupancy::room(capacity, ways, demand))
    }

    /// What the caches before the last level hold of a program, `bytes` of it in shared ones.
    pub fn nearer(&self, bytes: f64) -> Nearer {
        let inclusive = self.inclusive && !self.near.is_empty();
        Nearer { bytes, inclusive: inclusive.then(|| self.private.map_or(0.0, |p| p.bytes)) }
    }

    /// Number of memory nodes.
    pub fn nodes(&self) -> usize {
        self.memory_s.len()
    }

    /// The station of the link between two nodes.
    pub fn link(&self, from: usize, to: usize) -> usize {
        self.nodes() + from * self.nodes() + to
    }

    /// The station of a cache's bandwidth, if that is limited.
    pub fn cache_station(&self, domain: usize) -> Option<usize> {
        self.llc_station.map(|first| first + domain)
    }
}

/// Bytes of a page.
fn page_bytes(s: &Section) -> Result<f64, Fault> {
    Ok(given(SIMULATOR, "page_kib", s.page_kib.as_ref(), POSITIVE)?.map_or(PAGE, |kib| 1024.0 * kib))
}

/// Clock by busy cores, over the nominal one.
fn turbo(section: &Section) -> Result<Vec<f64>, Fault> {
    let Some(steps) = &section.turbo else { return Ok(Vec::new()) };
    let sound = |step: &f64| (0.1..=10.0).contains(step);
    if steps.get_ref().is_empty() || !steps.get_ref().iter().all(sound) {
        let why = "turbo must be clocks over clock_hz by how many cores of a package work, such as [1.2, 1.1], each between 0.1 and 10";
        return Err((steps.span().start, why.to_owned()));
    }
    Ok(steps.get_ref().clone())
}

/// Fraction of lines in private caches that are in use, if the file does not say: a guess.
const IN_USE: f64 = 0.5;

/// The private caches, if the section describes them, or if they come before shared ones that are not the last.
fn private(s: &Section, m: &SimMachine, guesses: &mut Vec<String>) -> Result<Option<Private>, Fault> {
    let (known, guess, inclusive) = match (m.near.first(), s.inclusive) {
        (Some(first), _) => {
            (shared_caches::private_bytes(&m.topology, first.level), shared_caches::PRIVATE_BYTES, false)
        }
        (None, None) if s.l2_bytes.is_none() => return Ok(None),
        (None, Some(true)) => (None, 262_144.0, true),
        (None, _) => (None, 1_048_576.0, false),
    };
    if s.l2_bytes.is_none() && known.is_none() {
        guesses.push(format!("l2_bytes = {guess}"));
    }
    let bytes = number(SIMULATOR, "l2_bytes", s.l2_bytes.as_ref(), known.or(Some(guess)), POSITIVE, 0)?;
    let said = s.private_in_use.as_ref();
    if inclusive && said.is_none() {
        guesses.push(format!("private_in_use = {IN_USE}"));
    }
    let in_use = number(SIMULATOR, "private_in_use", said, Some(IN_USE), (0.0, 1.0), 0)?;
    Ok(Some(Private { bytes, inclusive, in_use }))
}

/// Latencies of a line from another core: in the LLC domain, in the package, between packages.
fn coherence(s: &Section, guesses: &mut Vec<String>) -> Result<[f64; 3], Fault> {
    match &s.coherence_ns {
        Some(v) if v.get_ref().iter().all(|x| x.is_finite() && *x > 0.0) => Ok(*v.get_ref()),
        Some(v) => Err((v.span().start, "coherence_ns of the simulator must be three numbers above 0".to_owned())),
        None => {
            guesses.push("coherence_ns = [30, 100, 140]".to_owned());
            Ok([30.0, 100.0, 140.0])
        }
    }
}

/// The measured matrix of idle latencies, where the topology has one.
fn nanoseconds(topology: &Topology) -> Option<Vec<Vec<f64>>> {
    let d = topology.parts().distances.as_ref()?;
    (d.unit == DistanceUnit::Nanoseconds && d.rows.len() == topology.nodes().len()).then(|| d.rows.clone())
}

/// Adds a station for each front-side bus; returns the station of each CPU number.
fn buses(
    topology: &Topology,
    s: &Section,
    queue_ns: f64,
    stations: &mut Vec<Station>,
    guesses: &mut Vec<String>,
) -> Result<Vec<Option<usize>>, Fault> {
    let mut bus_of = vec![None; topology.cpus().last().map_or(0, |c| c.id.index() + 1)];
    let sustained = given(SIMULATOR, "bus_gbs", s.bus_gbs.as_ref(), POSITIVE)?;
    for bus in topology.of_kind(Kind::Bus) {
        let nominal = bus.capacity.filter(|b| *b > 0).map(|b| b as f64 / 1e9);
        let Some(gbs) = sustained.or(nominal) else {
            guesses.push(format!("bus {} = no limit", bus.cpus));
            continue;
        };
        bus.cpus.iter().for_each(|cpu| bus_of[cpu.index()] = Some(stations.len()));
        stations.push(Station::new(format!("bus {}", bus.cpus), gbs, gbs, queue_ns));
    }
    Ok(bus_of)
}

/// Idle latencies, seconds: measured ones unchanged; otherwise `hop` more per hop, or `remote` more for other nodes, in
/// proportion to the SLIT if there is one.
fn latencies(topology: &Topology, nodes: usize, local_ns: f64, remote_ns: f64, hop_ns: f64) -> Vec<Vec<f64>> {
    if let Some(rows) = nanoseconds(topology) {
        return rows.iter().map(|row| row.iter().map(|ns| ns / 1e9).collect()).collect();
    }
    if let Some(cores) = per_core(topology, local_ns, hop_ns) {
        let mean = |node: usize, to: usize| {
            let cpus = topology.nodes()[node].cpus.iter().filter_map(|cpu| cores.get(cpu.index()));
            let (sum, n) = cpus.fold((0.0, 0.0), |(sum, n), row| (sum + row[to], n + 1.0));
            if n > 0.0 { sum / n } else { local_ns / 1e9 }
        };
        return (0..nodes).map(|f| (0..nodes).map(|t| mean(f, t)).collect()).collect();
    }
    let distances = topology.parts().distances.as_ref();
    let rows = distances.map(|d| &d.rows).filter(|rows| rows.len() == nodes);
    let hops = distances.is_some_and(|d| d.unit == DistanceUnit::Hops);
    let extra = |from: usize, to: usize| match rows {
        Some(rows) if hops => hop_ns * rows[from][to],
        _ if from == to => 0.0,
        Some(rows) => {
            let smallest = (0..nodes)
                .filter(|t| *t != from)
                .map(|t| rows[from][t] - rows[from][from])
                .fold(f64::INFINITY, f64::min);
            if smallest > 0.0 { remote_ns * (rows[from][to] - rows[from][from]) / smallest } else { remote_ns }
        }
        None => remote_ns,
    };
    (0..nodes).map(|f| (0..nodes).map(|t| (local_ns + extra(f, t)) / 1e9).collect()).collect()
}

/// Per CPU number: idle latencies to each node, seconds, if the topology has distances of cores in ns or hops.
fn per_core(topology: &Topology, local_ns: f64, hop_ns: f64) -> Option<Vec<Vec<f64>>> {
    let d = topology.parts().distances.as_ref()?;
    let (cores, nodes) = (topology.cores().len(), topology.nodes().len());
    if d.rows.len() != cores || cores == nodes || d.unit == DistanceUnit::Slit {
        return None;
    }
    let ns = |distance: f64| if d.unit == DistanceUnit::Hops { local_ns + hop_ns * distance } else { distance };
    let size = topology.cpus().last().map_or(0, |c| c.id.index() + 1);
    let row = |cpu: usize| {
        let core = topology.core_of(cotenant_model::CpuId(cpu as u32))?;
        d.rows.get(core).map(|row| row.iter().map(|v| ns(*v) / 1e9).collect())
    };
    Some((0..size).map(|cpu| row(cpu).unwrap_or_else(|| vec![local_ns / 1e9; nodes])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::parts;
    use cotenant_model::topology::{Distances, MemoryNode, Parts};

    /// Nanoseconds from node to node: 100 at home, 60 more elsewhere, 5 per hop.
    #[test]
    fn latencies_follow_from_what_is_known() {
        use DistanceUnit::{Hops, Nanoseconds, Slit};
        let with = |unit, rows: &[&[f64]], mut parts: Parts| {
            let rows = rows.iter().map(|row| row.to_vec()).collect();
            parts.distances = Some(Distances { unit, rows, source: None });
            parts
        };
        let (two, three, cores) = (parts(2, 1, 1, 1), parts(3, 1, 1, 1), parts(2, 1, 2, 1));
        // A third node without CPUs.
        let mut more = cores.clone();
        more.nodes.push(MemoryNode { id: cotenant_model::NodeId(2), cpus: CpuSet::new(), ..more.nodes[0].clone() });
        let per_core: [&[f64]; 4] = [&[80.0, 130.0], &[90.0, 120.0], &[130.0, 80.0], &[150.0, 70.0]];
        let to_three: [&[f64]; 4] = [&[0.0, 3.0, 1.0], &[2.0, 3.0, 1.0], &[4.0, 0.0, 1.0], &[4.0, 2.0, 2.0]];
        let cases: [(Parts, &[&[f64]]); 8] = [
            (Parts { distances: None, ..two.clone() }, &[&[100.0, 160.0], &[160.0, 100.0]]),
            (with(Slit, &[&[10.0, 12.0], &[20.0, 10.0]], two.clone()), &[&[100.0, 160.0], &[160.0, 100.0]]),
            // The SLIT does not distinguish the other node.
            (with(Slit, &[&[10.0, 10.0], &[10.0, 10.0]], two.clone()), &[&[100.0, 160.0], &[160.0, 100.0]]),
            (
                with(Slit, &[&[10.0, 20.0, 35.0], &[20.0, 10.0, 20.0], &[35.0, 20.0, 15.0]], three),
                &[&[100.0, 160.0, 250.0], &[160.0, 100.0, 160.0], &[340.0, 160.0, 100.0]],
            ),
            (with(Hops, &[&[0.0, 2.0], &[3.0, 0.0]], two.clone()), &[&[100.0, 110.0], &[115.0, 100.0]]),
            (with(Nanoseconds, &[&[80.0, 130.0], &[131.0, 81.0]], two), &[&[80.0, 130.0], &[131.0, 81.0]]),
            // One row per core: the mean over those of a node.
            (with(Nanoseconds, &per_core, cores), &[&[85.0, 125.0], &[140.0, 75.0]]),
            (with(Hops, &to_three, more), &[&[105.0, 115.0, 105.0], &[120.0, 105.0, 107.5], &[100.0; 3]]),
        ];
        for (parts, expected) in cases {
            let nodes = parts.nodes.len();
            let got = latencies(&Topology::new(parts).unwrap(), nodes, 100.0, 60.0, 5.0);
            let ns: Vec<Vec<f64>> =
                got.iter().map(|row| row.iter().map(|s| (s * 1e12).round() / 1e3).collect()).collect();
            assert_eq!(ns, expected);
        }
    }

    /// 30 ns apart where there are packages, 10 where there are caches; 24 GB/s, of lines that are read and half as
    /// many written, minus 20 %; 50 ns to the next node, or none.
    #[test]
    fn thresholds_by_hand() {
        let sim = |topology: &str| {
            let text = format!(
                "name = 'm'\ndescription = 'd'\nsource = 's'\nclock_hz = 1e9\ntopology = {{ synthetic = '{topology}' }}\n\
                 [simulator]\nmemory_gbs = 48\nmemory_gbs_scattered = 24\nmemory_ns = 100\nremote_ns = 50\n\
                 coherence_ns = [10, 20, 40]\n"
            );
            SimMachine::new(&Machine::parse(&text).unwrap()).unwrap()
        };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let mut two = sim("package:2 [numa] l3:2(size=8MiB) core:2 pu:1");
        let one = sim("[numa] package:1 l3:2(size=8MiB) core:2 pu:1");
        for (m, apart, remote) in [(&two, 30.0, Some(0.05 / 50.0)), (&one, 10.0, None)] {
            let t = m.thresholds().unwrap();
            assert!(near(t.coherence_per_cycle, 1.0 / (21.0 * apart)), "{t:?}");
            assert!(near(t.socket_bandwidth_per_s, 0.8 * 24e9 / 96.0) && t.remote_per_cycle == remote, "{t:?}");
        }
        // A bus carries less.
        two.bus_of[0] = Some(two.stations.len());
        two.stations.push(Station::new("bus".into(), 12.0, 12.0, 1.0));
        assert!(near(two.thresholds().unwrap().socket_bandwidth_per_s, 0.8 * 12e9 / 96.0));
        assert_eq!(sim("[numa] package:1 l3:1(size=8MiB) core:2 pu:1").thresholds(), None, "nothing is apart");
        two.coherence_s[2] = two.coherence_s[0];
        assert_eq!(two.thresholds(), None, "it costs nothing to be apart");
    }
}
