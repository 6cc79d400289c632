//! Reads hwloc's XML, as `lstopo machine.xml` writes it: formats 1 (hwloc 1.x), 2 and 3.
//!
//! Groups that hwloc derives itself (from distances, for I/O) are skipped; clusters, books and drawers are kept. Of the
//! distances only the operating system's between memory nodes are read. CPUs that the file only counts
//! (`complete_cpuset`) are offline here: hwloc leaves out offline and disallowed CPUs alike.

use super::efficiency::{self, CoreType, Strength};
use super::{CacheType, Cpu, DistanceUnit, Distances, Kind, MemoryNode, Parts, Resource, Topology};
use crate::cpuset::MAX_CPU;
use crate::parse::Located;
use crate::{CpuId, CpuSet, NodeId};
use roxmltree::{Document, Node, ParsingOptions, TextPos};
use std::collections::BTreeMap;

/// Limit of elements: some hundred times the largest real file.
const MAX_ELEMENTS: u32 = 2_000_000;

/// hwloc's marks of a distance matrix: from the operating system, and containing latencies.
const FROM_OS_LATENCY: u64 = 1 | 4;

/// Reads a machine.
///
/// # Errors
/// [`Located`] names the line and column of malformed or contradictory parts.
pub fn parse(text: &str) -> Result<Topology, Located> {
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MAX_ELEMENTS, ..ParsingOptions::default() };
    let malformed = |e: roxmltree::Error| located(e.pos(), &e.to_string());
    let doc = Document::parse_with_options(text, options).map_err(malformed)?;
    Reader { doc: &doc }.read()
}

fn located(pos: TextPos, what: &str) -> Located {
    let message = format!("{what}; expected XML as lstopo writes it");
    Located { line: pos.row as usize, column: pos.col as usize, message }
}

struct Reader<'a> {
    doc: &'a Document<'a>,
}

type Element<'a> = Node<'a, 'a>;

/// An attribute, with the place of its value.
fn attribute<'a>(node: Element<'a>, name: &str) -> Option<(usize, &'a str)> {
    let a = node.attributes().find(|a| a.name() == name)?;
    Some((a.range_value().start, a.value()))
}

impl<'a> Reader<'a> {
    fn error(&self, at: usize, what: impl Into<String>) -> Located {
        located(self.doc.text_pos_at(at), &what.into())
    }

    /// An error about an element.
    fn fault(&self, node: Element<'a>, what: impl Into<String>) -> Located {
        self.error(node.range().start, what)
    }

    fn read(&self) -> Result<Topology, Located> {
        let objects = || self.doc.descendants().filter(|n| n.has_tag_name("object"));
        let none = || self.fault(self.doc.root_element(), "there is no object element");
        let root = objects().next().ok_or_else(none)?;
        let allowed = self.set(root, "allowed_cpuset")?;
        let allowed_nodes = self.set(root, "allowed_nodeset")?;
        let mut parts = Parts::default();
        let mut online = CpuSet::new();
        for pu in objects().filter(|n| n.attribute("type") == Some("PU")) {
            let index = self.number(pu, "os_index")?.filter(|index| *index <= u64::from(MAX_CPU));
            let none = || self.fault(pu, format!("a PU needs an os_index of at most {MAX_CPU}"));
            let id = CpuId(index.ok_or_else(none)? as u32);
            let holds = |name| Ok(self.set(pu, name)?.is_none_or(|set| set.contains(id)));
            let is_online = holds("cpuset")? && holds("online_cpuset")?;
            let allowed = is_online && allowed.as_ref().is_none_or(|set| set.contains(id));
            if is_online {
                online.insert(id);
            }
            parts.cpus.push(Cpu { online: is_online, allowed, ..Cpu::online(id) });
        }
        let listed: CpuSet = parts.cpus.iter().map(|c| c.id).collect();
        let complete = self.set(root, "complete_cpuset")?.unwrap_or_default();
        let absent = complete.minus(&listed);
        parts.cpus.extend(absent.iter().map(|id| Cpu { online: false, allowed: false, ..Cpu::online(id) }));
        for object in objects() {
            self.object(object, &online, allowed_nodes.as_ref(), &mut parts)?;
        }
        if parts.nodes.is_empty() {
            // Format 1 puts the memory of a machine with one node on the machine itself.
            let bytes = self.number(root, "local_memory")?;
            parts.nodes.push(MemoryNode { id: NodeId(0), cpus: online.clone(), bytes, allowed: true, coord: None });
        }
        parts.distances = self.distances(&parts.nodes)?;
        self.core_kinds(&mut parts)?;
        Topology::new(parts).map_err(|e| self.fault(root, e.to_string()))
    }

    fn object(
        &self,
        object: Element<'a>,
        online: &CpuSet,
        allowed_nodes: Option<&CpuSet>,
        parts: &mut Parts,
    ) -> Result<(), Located> {
        let name = object.attribute("type").ok_or_else(|| self.fault(object, "an object has no type"))?;
        let cpus = || Ok(self.set(object, "cpuset")?.unwrap_or_default().and(online));
        let os_index = self.number(object, "os_index")?.and_then(|i| u32::try_from(i).ok());
        // Groups of packages on s390 are levels of their own.
        let group = match object.attribute("subtype") {
            Some("Cluster") => Some(0),
            Some("Book") => Some(1),
            Some("Drawer") => Some(2),
            _ => None,
        };
        let kind = match name {
            "Package" | "Socket" => Kind::Package,
            "Die" => Kind::Die,
            "Core" => Kind::Core,
            "Group" if group.is_some() => Kind::Cluster,
            "NUMANode" => {
                let id = os_index.ok_or_else(|| self.fault(object, "a NUMANode needs an os_index"))?;
                // The set of nodes has the format of a set of CPUs.
                let allowed = allowed_nodes.is_none_or(|set| set.contains(CpuId(id)));
                let bytes = self.number(object, "local_memory")?;
                parts.nodes.push(MemoryNode { id: NodeId(id), cpus: cpus()?, bytes, allowed, coord: None });
                return Ok(());
            }
            "Cache" | "L1Cache" | "L2Cache" | "L3Cache" | "L4Cache" | "L5Cache" | "L1iCache" | "L2iCache"
            | "L3iCache" => Kind::Cache(match object.attribute("cache_type") {
                None | Some("0") => CacheType::Unified,
                Some("1") => CacheType::Data,
                Some("2") => CacheType::Instruction,
                Some(other) => {
                    return Err(self.fault(object, format!("there is no cache_type {other}")));
                }
            }),
            _ => return Ok(()),
        };
        let is_cache = matches!(kind, Kind::Cache(_));
        let level = if is_cache {
            let depth = self.number(object, "depth")?.and_then(|d| u8::try_from(d).ok()).filter(|d| *d > 0);
            depth.ok_or_else(|| self.fault(object, "a cache needs a depth from 1 to 255"))?
        } else {
            group.filter(|_| kind == Kind::Cluster).unwrap_or(0)
        };
        let known = |name| Ok(self.number(object, name)?.filter(|v| is_cache && *v > 0));
        parts.resources.push(Resource {
            kind,
            level,
            cpus: cpus()?,
            capacity: known("cache_size")?,
            os_index,
            line_size: known("cache_linesize")?.and_then(|v| u32::try_from(v).ok()),
            ways: known("cache_associativity")?.and_then(|v| u32::try_from(v).ok()),
        });
        Ok(())
    }

    fn set(&self, node: Element<'a>, name: &str) -> Result<Option<CpuSet>, Located> {
        let Some((at, text)) = attribute(node, name) else { return Ok(None) };
        CpuSet::parse_mask(text).map(Some).map_err(|e| self.error(at, format!("{name}: {e}")))
    }

    fn number(&self, node: Element<'a>, name: &str) -> Result<Option<u64>, Located> {
        let Some((at, text)) = attribute(node, name) else { return Ok(None) };
        // hwloc writes "unknown" as -1.
        if text == "-1" {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| self.error(at, format!("{name}: '{text}' is not a whole number")))
    }

    fn words<T: std::str::FromStr>(&self, node: Element<'a>) -> Result<Vec<T>, Located> {
        let parse = |w: &str| w.parse().map_err(|_| self.fault(node, format!("'{w}' is not a number")));
        node.text().unwrap_or_default().split_ascii_whitespace().map(parse).collect()
    }

    /// The matrix between all memory nodes; a matrix of only some is skipped.
    fn distances(&self, nodes: &[MemoryNode]) -> Result<Option<Distances>, Located> {
        let (mut indexes, mut values) = (Vec::<u32>::new(), Vec::<f64>::new());
        let is_matrix = |n: &Element<'a>| {
            n.has_tag_name("distances2")
                && n.attribute("type") == Some("NUMANode")
                && n.attribute("indexing").is_none_or(|i| i == "os")
        };
        for matrix in self.doc.descendants().filter(is_matrix) {
            if self.number(matrix, "kind")?.is_none_or(|k| k & FROM_OS_LATENCY != FROM_OS_LATENCY) || !values.is_empty()
            {
                continue;
            }
            for child in matrix.children() {
                match child.tag_name().name() {
                    "indexes" => indexes.extend(self.words::<u32>(child)?),
                    "u64values" => values.extend(self.words::<u64>(child)?.into_iter().map(|v| v as f64)),
                    _ => {}
                }
            }
            if indexes.len().checked_mul(indexes.len()) != Some(values.len()) {
                let what = format!("{} values for {} nodes do not make a matrix", values.len(), indexes.len());
                return Err(self.fault(matrix, what));
            }
        }
        if values.is_empty() {
            // Format 1: factors of a base, in the order in which the nodes are listed.
            for matrix in self.doc.descendants().filter(|n| n.has_tag_name("distances")) {
                let latencies = matrix.children().filter(|n| n.has_tag_name("latency"));
                let all = latencies.map(|n| self.float(n, "value")).collect::<Result<Vec<_>, _>>()?;
                if all.len() == nodes.len() * nodes.len() {
                    let base = self.float(matrix, "latency_base")?;
                    values = all.iter().map(|v| v * base).collect();
                    indexes = nodes.iter().map(|n| n.id.0).collect();
                    break;
                }
            }
        }
        let at: BTreeMap<u32, usize> = indexes.iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let mut order: Vec<u32> = nodes.iter().map(|n| n.id.0).collect();
        order.sort_unstable();
        let Some(order) = order.iter().map(|id| at.get(id).copied()).collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let rows: Vec<Vec<f64>> =
            order.iter().map(|&i| order.iter().map(|&j| values[i * indexes.len() + j]).collect()).collect();
        Ok((rows.len() > 1).then_some(Distances { unit: DistanceUnit::Slit, rows, source: None }))
    }

    fn float(&self, node: Element<'a>, name: &str) -> Result<f64, Located> {
        let (at, text) = attribute(node, name).ok_or_else(|| self.fault(node, format!("{name} is missing")))?;
        text.parse().map_err(|_| self.error(at, format!("{name}: '{text}' is not a number")))
    }

    fn core_kinds(&self, parts: &mut Parts) -> Result<(), Located> {
        let mut strengths: BTreeMap<CpuId, Strength> =
            parts.cpus.iter().filter(|c| c.online).map(|c| (c.id, Strength::default())).collect();
        for kind in self.doc.descendants().filter(|n| n.has_tag_name("cpukind")) {
            let mut strength = Strength { capacity: self.number(kind, "forced_efficiency")?, ..Strength::default() };
            for info in kind.children().filter(|n| n.has_tag_name("info")) {
                let mhz = || self.number(info, "value").map(|v| v.and_then(|mhz| mhz.checked_mul(1000)));
                match info.attribute("name") {
                    Some("CoreType") => {
                        strength.core_type = match info.attribute("value") {
                            Some("IntelLowPower") => Some(CoreType::LowPower),
                            Some("IntelAtom") => Some(CoreType::Efficient),
                            Some("IntelCore") => Some(CoreType::Performance),
                            _ => None,
                        }
                    }
                    Some("LinuxCapacity") => strength.capacity = self.number(info, "value")?,
                    Some("FrequencyMaxMHz") => strength.max_khz = mhz()?,
                    Some("FrequencyBaseMHz") => strength.base_khz = mhz()?,
                    _ => {}
                }
            }
            for cpu in self.set(kind, "cpuset")?.unwrap_or_default().iter() {
                if let Some(known) = strengths.get_mut(&cpu) {
                    *known = strength;
                }
            }
        }
        let classes = efficiency::classes(&strengths);
        for cpu in &mut parts.cpus {
            cpu.efficiency_class = classes.get(&cpu.id).copied();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000001f" allowed_cpuset="0x00000007" allowed_nodeset="0x1">
    <object type="Package" os_index="3" cpuset="0x0000000f">
      <object type="NUMANode" os_index="0" cpuset="0x0000000f" local_memory="1024"/>
      <object type="NUMANode" os_index="4" cpuset="0x0" local_memory="2048"/>
      <object type="Group" subtype="Cluster" os_index="7" cpuset="0x3"/>
      <object type="Group" cpuset="0xc"/>
      <object type="L2Cache" cpuset="0x00000003" cache_size="4194304" depth="2" cache_linesize="64" cache_associativity="16" cache_type="0">
        <object type="Core" os_index="0" cpuset="0x3">
          <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
        </object>
      </object>
      <object type="PU" os_index="2" cpuset="0x4"/><object type="PU" os_index="3" cpuset="0x8"/>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">4 0 </indexes><u64values length="11">10 20 </u64values><u64values length="5">30 11 </u64values>
  </distances2>
  <cpukind cpuset="0x3"><info name="CoreType" value="IntelCore"/></cpukind>
  <cpukind cpuset="0xc"><info name="CoreType" value="IntelAtom"/></cpukind>
</topology>"#;

    #[test]
    fn format_2() {
        let t = parse(V2).unwrap();
        assert_eq!((t.online().to_string(), t.usable().to_string()), ("0-3".into(), "0-2".into()));
        assert!(!t.cpu(CpuId(4)).unwrap().online);
        let l2 = t.of_kind(Kind::Cache(CacheType::Unified)).next().unwrap();
        assert_eq!((l2.level, l2.capacity, l2.line_size, l2.ways), (2, Some(4 << 20), Some(64), Some(16)));
        assert_eq!(t.of_kind(Kind::Cluster).map(|cluster| cluster.level).collect::<Vec<_>>(), [0]);
        for (subtype, level) in [("Book", 1), ("Drawer", 2)] {
            let t = parse(&V2.replace("subtype=\"Cluster\"", &format!("subtype=\"{subtype}\""))).unwrap();
            assert_eq!(t.of_kind(Kind::Cluster).map(|cluster| cluster.level).collect::<Vec<_>>(), [level]);
        }
        assert_eq!(t.of_kind(Kind::Package).next().unwrap().os_index, Some(3));
        assert_eq!((t.nodes()[1].id, t.nodes()[1].allowed, t.nodes()[1].cpus.is_empty()), (NodeId(4), false, true));
        // Written in the order 4, 0; kept in the order 0, 4.
        assert_eq!(t.parts().distances.as_ref().unwrap().rows, [[11.0, 30.0], [20.0, 10.0]]);
        let classes: Vec<_> = t.cpus().iter().map(|c| c.efficiency_class).collect();
        assert_eq!(classes, [Some(1), Some(1), Some(0), Some(0), None]);
    }

    #[test]
    fn format_1() {
        let t = parse(
            r#"<topology>
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x7" online_cpuset="0x3" allowed_cpuset="0x3" local_memory="4096">
  <object type="Socket" os_index="0" cpuset="0x3">
   <object type="Cache" cpuset="0x3" cache_size="65536" depth="2" cache_linesize="64">
    <object type="Core" os_index="0" cpuset="0x1"><object type="PU" os_index="0" cpuset="0x1"/></object>
    <object type="Core" os_index="1" cpuset="0x2"><object type="PU" os_index="1" cpuset="0x2"/></object>
    <object type="PU" os_index="2" cpuset="0x0" online_cpuset="0x0"/>
 </object></object></object></topology>"#,
        )
        .unwrap();
        assert_eq!(
            (t.online().to_string(), t.cpus().len(), t.packages().len(), t.cores().len()),
            ("0-1".into(), 3, 1, 2)
        );
        assert_eq!((t.nodes().len(), t.nodes()[0].bytes), (1, Some(4096)));
    }

    #[test]
    fn errors_name_line_and_column() {
        let bad = |from: &str, to: &str| parse(&V2.replace(from, to)).unwrap_err().to_string();
        assert_eq!(
            bad("\"0x00000003\"", "\"0xg\""),
            "10:38: cpuset: '0xg' is not a CPU mask: expected hexadecimal words; expected XML as lstopo writes it"
        );
        assert!(bad("</topology>", "</topologie>").starts_with("23:1: "));
        assert!(bad("depth=\"2\"", "").starts_with("10:7: a cache needs a depth"));
        assert!(bad("type=\"PU\" os_index=\"0\"", "type=\"PU\"").starts_with("12:11: a PU needs an os_index"));
        assert!(bad("os_index=\"2\"", "os_index=\"4294967295\"").contains("a PU needs an os_index of at most"));
        assert!(bad("30 11", "30").contains("do not make a matrix"));
        assert!(bad("30 11", "30 x").contains("'x' is not a number"));
        assert!(parse("<topology/>").unwrap_err().to_string().starts_with("1:1: there is no object"));
        assert!(parse("").is_err());
    }

    #[test]
    fn entities_do_not_explode() {
        let laughs: Vec<String> = ('b'..='i')
            .zip('a'..)
            .map(|(name, of)| format!("<!ENTITY {name} \"{}\">", format!("&{of};").repeat(10)))
            .collect();
        let text = format!(
            "<!DOCTYPE topology [<!ENTITY a \"aaaaaaaaaa\">{}]>\
             <topology><object type=\"Machine\">&i;</object></topology>",
            laughs.concat()
        );
        assert!(parse(&text).is_err());
    }
}
