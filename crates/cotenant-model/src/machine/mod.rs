//! Machine files: a topology and figures of a machine, as TOML. `docs/reference/machine-file.md` describes the format.

use crate::parse::{self, Located};
use crate::profile::{High, MachineProfile, Thresholds};
use crate::topology::latency::MemoryLatencies;
use crate::topology::{CacheType, Cpu, DistanceUnit, Distances, Kind, MemoryNode, Parts, Resource, synthetic};
use crate::{CpuSet, NodeId, Topology};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

/// A machine that a file describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Short name, as in `machines/`.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Source of the description.
    pub source: String,
    /// Numbering of the CPUs, and its origin.
    pub numbering: Option<String>,
    /// Per figure: its source.
    pub sources: BTreeMap<String, String>,
    /// Figures without a source.
    pub assumptions: Vec<String>,
    /// CPUs and their shared resources.
    pub topology: Topology,
    /// Other figures.
    pub profile: MachineProfile,
    /// The text, if it has a `[simulator]` section: the simulator reads that itself, so that its errors also name the
    /// place.
    pub simulator: Option<String>,
    /// The file, if there is one.
    pub file: Option<String>,
}

impl Machine {
    /// A machine with a known topology only.
    pub fn unnamed(topology: Topology, name: &str, source: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            source: source.to_owned(),
            numbering: None,
            sources: BTreeMap::new(),
            assumptions: Vec::new(),
            topology,
            profile: MachineProfile::default(),
            simulator: None,
            file: None,
        }
    }

    /// The same, read from this file.
    #[must_use]
    pub fn of_file(self, file: impl Into<String>) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    /// Its name in errors: its file, otherwise its name.
    pub fn place(&self) -> &str {
        self.file.as_deref().unwrap_or(&self.name)
    }

    /// Reads a machine file.
    ///
    /// # Errors
    /// [`Located`] gives the line and column of malformed, unknown or contradictory parts.
    pub fn parse(text: &str) -> Result<Self, Located> {
        let fail =
            |(what, span): Fault| Located::at(text, span.start, format!("{what}; see docs/reference/machine-file.md"));
        let file: File =
            toml::from_str(text).map_err(|e| fail((e.message().replace('\n', ", "), e.span().unwrap_or_default())))?;
        let span = file.topology.span();
        let mut parts = file.topology.into_inner().into_parts(&span).map_err(fail)?;
        parts.name = Some(file.name.clone());
        let topology = Topology::new(parts).map_err(|e| fail((e.to_string(), span)))?;
        let profile = MachineProfile {
            clock_hz: file.clock_hz,
            thresholds: file.thresholds,
            heuristic: file.heuristic,
            source: Some(file.source.clone()),
            ..MachineProfile::default()
        };
        Ok(Self {
            name: file.name,
            description: file.description,
            source: file.source,
            numbering: file.numbering,
            sources: file.sources,
            assumptions: file.assumptions,
            topology,
            profile,
            simulator: file.simulator.map(|_| text.to_owned()),
            file: None,
        })
    }
}

/// Parses a machine's figures without its topology: a TOML file with the fields of [`MachineProfile`], or the profile
/// of a machine file.
///
/// # Errors
/// [`Located`] on malformed TOML, unknown keys, and thresholds or clocks that are not positive and finite.
pub fn parse_profile(text: &str) -> Result<MachineProfile, Located> {
    let table: toml::Table = toml::from_str(text).map_err(|e| Located::of_toml(text, &e))?;
    let profile = if table.contains_key("topology") {
        Machine::parse(text)?.profile
    } else {
        toml::from_str(text).map_err(|e| Located::of_toml(text, &e))?
    };
    if let Some(key) = profile.contentiousness.as_ref().and_then(|model| model.no_number()) {
        let offset = text.find("[contentiousness").unwrap_or(0);
        return Err(Located::at(text, offset, format!("{key} of the contentiousness model must be finite")));
    }
    let by_hand = profile.memory_latency.as_deref();
    let measured = profile.calibration.as_ref().and_then(|record| record.memory_latency.as_ref());
    if let Some(why) = by_hand.into_iter().chain(measured).find_map(MemoryLatencies::fault) {
        let offset = text.find("memory_latency").unwrap_or(0);
        return Err(Located::at(text, offset, format!("memory_latency {why}")));
    }
    let t = profile.thresholds;
    let named = [
        ("clock_hz", profile.clock_hz),
        ("coherence_per_cycle", t.map(|t| t.coherence_per_cycle)),
        ("socket_bandwidth_per_s", t.map(|t| t.socket_bandwidth_per_s)),
        ("task_bandwidth_per_s", t.and_then(|t| t.task_bandwidth_per_s)),
        ("remote_per_cycle", t.and_then(|t| t.remote_per_cycle)),
    ];
    match named.iter().find(|(_, value)| value.is_some_and(|v| !(v.is_finite() && v > 0.0))) {
        Some((key, _)) => {
            let offset = text.find(key).unwrap_or(0);
            Err(Located::at(text, offset, format!("{key} must be positive and finite")))
        }
        None => Ok(profile),
    }
}

/// A fault and its place in the text.
type Fault = (String, Range<usize>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    description: String,
    source: String,
    numbering: Option<String>,
    #[serde(default)]
    sources: BTreeMap<String, String>,
    #[serde(default)]
    assumptions: Vec<String>,
    topology: Spanned<TopologyTable>,
    clock_hz: Option<f64>,
    thresholds: Option<Thresholds>,
    heuristic: Option<High>,
    simulator: Option<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyTable {
    synthetic: Option<Spanned<String>>,
    cpus: Option<CpuSet>,
    #[serde(default)]
    offline: CpuSet,
    #[serde(default)]
    disallowed: CpuSet,
    #[serde(default)]
    resources: Vec<Spanned<ResourceTable>>,
    #[serde(default)]
    nodes: Vec<Spanned<NodeTable>>,
    distances: Option<Spanned<DistancesTable>>,
    mesh: Option<Spanned<Mesh>>,
    #[serde(default)]
    coordinates: Vec<Spanned<Coordinate>>,
    #[serde(default)]
    efficiency_classes: Vec<Spanned<EfficiencyClass>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceTable {
    kind: FileKind,
    #[serde(default)]
    level: u8,
    cpus: CpuSet,
    size: Option<Bytes>,
    bytes_per_s: Option<u64>,
    os_index: Option<u32>,
    line_size: Option<u32>,
    ways: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileKind {
    Package,
    Die,
    Cluster,
    Core,
    UnifiedCache,
    DataCache,
    InstructionCache,
    Bus,
    MemoryController,
    Link,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    id: u32,
    #[serde(default)]
    cpus: CpuSet,
    memory: Option<Bytes>,
    #[serde(default = "crate::topology::yes")]
    allowed: bool,
    at: Option<(i32, i32)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DistancesTable {
    unit: DistanceUnit,
    rows: Option<Vec<Vec<f64>>>,
    #[serde(default)]
    manhattan: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mesh {
    columns: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Coordinate {
    cpus: CpuSet,
    at: (i32, i32),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EfficiencyClass {
    cpus: CpuSet,
    class: u8,
}

/// Bytes: a whole number, or a text such as `"25 MiB"`.
struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected bytes as a whole number, or a size such as \"25 MiB\"")]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(bytes) => Ok(Self(bytes)),
            Either::Text(text) => parse::size(&text).map(Self).map_err(D::Error::custom),
        }
    }
}

impl TopologyTable {
    fn into_parts(self, whole: &Range<usize>) -> Result<Parts, Fault> {
        let here = |what: &str| (what.to_owned(), whole.clone());
        let mut parts = match (&self.synthetic, &self.cpus) {
            (Some(text), None) => {
                synthetic::parse(text.get_ref()).map_err(|e| (e.to_string(), text.span()))?.parts().clone()
            }
            (None, Some(cpus)) => Parts { cpus: cpus.iter().map(Cpu::online).collect(), ..Parts::default() },
            _ => return Err(here("a topology has either 'synthetic' or 'cpus'")),
        };
        let all: CpuSet = parts.cpus.iter().map(|c| c.id).collect();
        let known = |cpus: &CpuSet, span: Range<usize>| match cpus.minus(&all).first() {
            Some(cpu) => Err((format!("there is no CPU {cpu}"), span)),
            None => Ok(()),
        };
        known(&self.offline, whole.clone())?;
        known(&self.disallowed, whole.clone())?;
        for cpu in &mut parts.cpus {
            cpu.online = !self.offline.contains(cpu.id);
            cpu.allowed = cpu.online && !self.disallowed.contains(cpu.id);
        }
        for resource in self.resources {
            let span = resource.span();
            known(&resource.get_ref().cpus, span.clone())?;
            parts.resources.push(resource.into_inner().into_resource().map_err(|what| (what, span))?);
        }
        if !self.nodes.is_empty() {
            parts.nodes = Vec::new(); // those that the file lists replace those of the description
        }
        for node in self.nodes {
            known(&node.get_ref().cpus, node.span())?;
            let NodeTable { id, cpus, memory, allowed, at } = node.into_inner();
            parts.nodes.push(MemoryNode { id: NodeId(id), cpus, bytes: memory.map(|b| b.0), allowed, coord: at });
        }
        if parts.nodes.is_empty() {
            let cpus = all.clone();
            parts.nodes.push(MemoryNode { id: NodeId(0), cpus, bytes: None, allowed: true, coord: None });
        }
        for cpus in parts.resources.iter_mut().map(|r| &mut r.cpus).chain(parts.nodes.iter_mut().map(|n| &mut n.cpus)) {
            *cpus = cpus.minus(&self.offline);
        }
        if let Some(mesh) = self.mesh {
            let columns = mesh.get_ref().columns;
            if columns == 0 {
                return Err(("a mesh has at least one column".to_owned(), mesh.span()));
            }
            for cpu in &mut parts.cpus {
                cpu.coord = Some(((cpu.id.0 % columns).cast_signed(), (cpu.id.0 / columns).cast_signed()));
            }
        }
        for table in &self.coordinates {
            known(&table.get_ref().cpus, table.span())?;
            let Coordinate { cpus, at } = table.get_ref();
            parts.cpus.iter_mut().filter(|c| cpus.contains(c.id)).for_each(|c| c.coord = Some(*at));
        }
        for table in &self.efficiency_classes {
            known(&table.get_ref().cpus, table.span())?;
            let EfficiencyClass { cpus, class } = table.get_ref();
            parts.cpus.iter_mut().filter(|c| cpus.contains(c.id)).for_each(|c| c.efficiency_class = Some(*class));
        }
        if let Some(distances) = self.distances {
            let span = distances.span();
            parts.distances = Some(distances.into_inner().resolve(&mut parts).map_err(|what| (what, span))?);
        }
        Ok(parts)
    }
}

impl ResourceTable {
    fn into_resource(self) -> Result<Resource, String> {
        let kind = match self.kind {
            FileKind::Package => Kind::Package,
            FileKind::Die => Kind::Die,
            FileKind::Cluster => Kind::Cluster,
            FileKind::Core => Kind::Core,
            FileKind::UnifiedCache => Kind::Cache(CacheType::Unified),
            FileKind::DataCache => Kind::Cache(CacheType::Data),
            FileKind::InstructionCache => Kind::Cache(CacheType::Instruction),
            FileKind::Bus => Kind::Bus,
            FileKind::MemoryController => Kind::MemoryController,
            FileKind::Link => Kind::Link,
        };
        let is_cache = matches!(kind, Kind::Cache(_));
        let is_path = matches!(kind, Kind::Bus | Kind::MemoryController | Kind::Link);
        if is_cache != (self.level > 0) {
            return Err("caches have a level from 1, other resources have none".to_owned());
        }
        if !is_cache && (self.size.is_some() || self.line_size.is_some() || self.ways.is_some()) {
            return Err("only caches have 'size', 'line_size' and 'ways'".to_owned());
        }
        if !is_path && self.bytes_per_s.is_some() {
            return Err("only buses, memory controllers and links have 'bytes_per_s'".to_owned());
        }
        Ok(Resource {
            kind,
            level: self.level,
            cpus: self.cpus,
            capacity: self.size.map(|b| b.0).or(self.bytes_per_s),
            os_index: self.os_index,
            line_size: self.line_size,
            ways: self.ways,
        })
    }
}

impl DistancesTable {
    fn resolve(self, parts: &mut Parts) -> Result<Distances, String> {
        let rows = match (self.rows, self.manhattan) {
            (Some(rows), false) => rows,
            (None, true) if self.unit == DistanceUnit::Hops => manhattan(parts)?,
            (None, true) => return Err("Manhattan distances are in unit = \"hops\"".to_owned()),
            _ => return Err("distances have either 'rows' or 'manhattan = true'".to_owned()),
        };
        Ok(Distances { unit: self.unit, rows, source: None })
    }
}

/// One row per CPU, each a core here: hops to each memory node.
fn manhattan(parts: &mut Parts) -> Result<Vec<Vec<f64>>, String> {
    if parts.resources.iter().any(|r| r.kind == Kind::Core && r.cpus.len() > 1) {
        return Err("Manhattan distances are for cores of one context".to_owned());
    }
    parts.cpus.sort_by_key(|c| c.id);
    parts.nodes.sort_by_key(|n| n.id);
    let hops = |cpu: &Cpu, node: &MemoryNode| {
        let ((x, y), (nx, ny)) = (cpu.coord?, node.coord?);
        Some(f64::from(x.abs_diff(nx)) + f64::from(y.abs_diff(ny)))
    };
    let row = |cpu: &Cpu| parts.nodes.iter().map(|node| hops(cpu, node)).collect::<Option<Vec<f64>>>();
    let rows = parts.cpus.iter().filter(|c| c.online).map(row).collect::<Option<Vec<_>>>();
    rows.ok_or_else(|| "Manhattan distances need the coordinates of all CPUs and nodes".to_owned())
}

#[cfg(test)]
mod tests;
