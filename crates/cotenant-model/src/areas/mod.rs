//! Areas of a process's memory according to the kernel: the place of their pages, their memory policy, and accesses.
//!
//! Everything parses bytes line by line, because the files of a process with a million mappings have hundreds of
//! megabytes.

pub mod hinting;
pub mod page_samples;

use crate::NodeId;
use crate::proc_text::{unsigned, words};
use std::collections::BTreeMap;

/// What determined the place of an area's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// The kernel's default.
    Free,
    /// The program or its user: `bind`, `prefer`, `local`.
    Bound,
    /// The same, interleaved over several nodes.
    Interleaved,
}

/// The kind of an area's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory of the process only, or shared by inheritance.
    Anonymous,
    /// A file, which others may also map.
    File,
    /// Reserved huge pages.
    Reserved,
}

/// An area of a process' memory: a line of `/proc/PID/numa_maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first address.
    pub start: u64,
    /// What determined the place of its pages.
    pub binding: Binding,
    /// The kind of its pages.
    pub backing: Backing,
    /// Its resident pages by node, in base pages.
    pub pages: Vec<(NodeId, u64)>,
}

/// Accesses by memory node, in base pages.
pub type ByNode = BTreeMap<NodeId, f64>;

impl Area {
    /// A line of `numa_maps` (`Documentation/admin-guide/mm/numa_memory_policy.rst`, `proc(5)`); `None` for other text.
    /// Pages are counted in base pages of `page_kb` KiB, huge pages by their size.
    pub fn parse(line: &[u8], page_kb: u64) -> Option<Self> {
        let mut words = words(line);
        let start = hexadecimal(words.next()?)?;
        let policy = words.next()?.split(|b| matches!(b, b':' | b'=')).next()?;
        let binding = match policy {
            b"default" => Binding::Free,
            b"interleave" | b"weighted" => Binding::Interleaved,
            _ => Binding::Bound,
        };
        let (mut backing, mut pages, mut per_page) = (Backing::Anonymous, Vec::new(), 1);
        for word in words {
            if word == b"huge" {
                backing = Backing::Reserved;
            } else if word.starts_with(b"file=") && backing == Backing::Anonymous {
                backing = Backing::File;
            } else if let Some(kb) = word.strip_prefix(b"kernelpagesize_kB=").and_then(unsigned) {
                per_page = (kb / page_kb.max(1)).max(1);
            } else if let Some((node, n)) = of_node(word) {
                pages.push((node, n));
            }
        }
        let pages = pages.into_iter().map(|(node, n): (NodeId, u64)| (node, n.saturating_mul(per_page))).collect();
        Some(Self { start, binding, backing, pages })
    }

    /// Its resident pages, base pages.
    pub fn resident(&self) -> u64 {
        self.pages.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Divides some of its pages in the proportions of all, because it is unknown which ones they are.
    fn share_out(&self, accessed: f64, to: &mut ByNode) {
        let resident = self.resident() as f64;
        if resident > 0.0 {
            for &(node, n) in &self.pages {
                *to.entry(node).or_default() += accessed * n as f64 / resident;
            }
        }
    }
}

/// `N3=12`
fn of_node(word: &[u8]) -> Option<(NodeId, u64)> {
    let word = word.strip_prefix(b"N")?;
    let at = word.iter().position(|b| *b == b'=')?;
    Some((NodeId(u32::try_from(unsigned(&word[..at])?).ok()?), unsigned(&word[at + 1..])?))
}

/// Resident pages by node of all areas, base pages, in ascending order.
pub fn pages_by_node(areas: &[Area]) -> Vec<(NodeId, u64)> {
    let mut nodes: BTreeMap<NodeId, u64> = BTreeMap::new();
    for &(node, n) in areas.iter().flat_map(|area| &area.pages) {
        let sum = nodes.entry(node).or_default();
        *sum = sum.saturating_add(n);
    }
    nodes.into_iter().collect()
}

/// Reads the accessed part of each area from the lines of `/proc/PID/smaps`.
#[derive(Clone, Debug, Default)]
pub struct Referenced {
    area: Option<u64>,
}

impl Referenced {
    /// Takes the next line. At the last relevant one of an area: its first address, and KiB accessed since accessed
    /// bits were cleared.
    pub fn line(&mut self, line: &[u8]) -> Option<(u64, u64)> {
        if line.first()?.is_ascii_uppercase() {
            let kb = line.strip_prefix(b"Referenced:")?;
            return Some((self.area?, unsigned(kb.trim_ascii().strip_suffix(b"kB")?)?));
        }
        let end = line.iter().position(|b| *b == b'-')?;
        self.area = hexadecimal(&line[..end]);
        None
    }
}

/// Accessed pages per node: `accessed` has areas by first address in ascending order, each with its accessed base
/// pages. New areas, which `areas` lacks, are left out.
pub fn touched(areas: &[Area], accessed: &[(u64, u64)]) -> ByNode {
    let mut sum = ByNode::new();
    let mut areas = areas.iter().peekable();
    for &(start, pages) in accessed {
        while areas.next_if(|area| area.start < start).is_some() {}
        if let Some(area) = areas.next_if(|area| area.start == start) {
            area.share_out(pages as f64, &mut sum);
        }
    }
    sum
}

/// The same from DAMON's ranges of addresses (first, end, number of accesses found per page).
pub fn touched_in(areas: &[Area], ranges: &[(u64, u64, u64)], page_bytes: u64) -> ByNode {
    let mut sum = ByNode::new();
    for &(start, end, times) in ranges.iter().filter(|r| r.2 > 0 && r.0 < r.1) {
        let first = areas.partition_point(|area| area.start <= start).saturating_sub(1);
        for (i, area) in areas.iter().enumerate().skip(first).take_while(|(_, area)| area.start < end) {
            // The end of an area is not reported: it counts as completely resident, and ends before the next one.
            let full = area.start.saturating_add(area.resident().saturating_mul(page_bytes));
            let last = areas.get(i + 1).map_or(full, |next| full.min(next.start));
            let overlap = last.min(end).saturating_sub(area.start.max(start));
            area.share_out((overlap / page_bytes.max(1)) as f64 * times as f64, &mut sum);
        }
    }
    sum
}

/// Loads of a thread that ran on `node`: those served by its own node's memory, and by others. With several others,
/// they are divided like the process's pages; `None` if these are unknown.
pub fn loads_by_node(
    local: u64,
    remote: u64,
    node: NodeId,
    nodes: &[NodeId],
    pages: Option<&[(NodeId, u64)]>,
) -> Option<ByNode> {
    let others: Vec<NodeId> = nodes.iter().copied().filter(|other| *other != node).collect();
    let mut sum = ByNode::from([(node, local as f64)]);
    if remote == 0 || others.is_empty() {
        return Some(sum);
    }
    let on = |other: &NodeId| match others.len() {
        1 => Some(1.0),
        _ => Some(pages?.iter().find(|(n, _)| n == other).map_or(0.0, |(_, n)| *n as f64)),
    };
    let weights: Vec<f64> = others.iter().map(on).collect::<Option<_>>()?;
    let total: f64 = weights.iter().sum();
    if total <= 0.0 {
        return None;
    }
    for (&other, weight) in others.iter().zip(weights) {
        *sum.entry(other).or_default() += remote as f64 * weight / total;
    }
    Some(sum)
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn areas(text: &str) -> Vec<Area> {
        text.lines().map(|line| Area::parse(line.as_bytes(), 4).unwrap()).collect()
    }

    #[test]
    fn who_bound_an_area_and_what_holds_it() {
        use Backing::{Anonymous, File, Reserved};
        use Binding::{Bound, Free, Interleaved};
        let all = areas(
            "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
             7f80 bind:1 file=/dev/hugepages/N7=x huge anon=2 dirty=2 N1=2 kernelpagesize_kB=2048\n\
             7fa0 default file=/lib/N3 mapped=1 N0=1\n\
             7fb0 interleave:0-1 anon=2 N0=1 N1=1\n\
             7fc0 weighted interleave:0-1 anon=1 N0=1\n\
             7fd0 prefer (many):0 anon=1 N0=1\n\
             7fe0 prefer=static:0 anon=1 N0=1\n\
             7ff0 local heap anon=1 N0=1",
        );
        let found: Vec<_> = all.iter().map(|a| (a.binding, a.backing)).collect();
        let anonymous = |binding| (binding, Anonymous);
        assert_eq!(found[..3], [anonymous(Free), (Bound, Reserved), (Free, File)]);
        assert_eq!(found[3..], [Interleaved, Interleaved, Bound, Bound, Bound].map(anonymous));
        assert_eq!(all[1].pages, [(NodeId(1), 1024)]);
        assert_eq!(pages_by_node(&all[..3]), [(NodeId(0), 2), (NodeId(1), 2 + 2 * 512)]);
    }

    #[test]
    fn accessed_pages_are_shared_out_as_the_pages_of_their_area() {
        let all = areas("1000 default anon=8 N0=8\n20000 default anon=8 N0=2 N1=6\n90000 default anon=1 N1=1");
        let smaps = "1000-9000 rw-p 00000000 00:00 0 \nSize: 32 kB\nReferenced:           16 kB\nVmFlags: rd\n\
            20000-28000 rw-p 00000000 00:00 0  [heap]\nReferenced: 32 kB\n50000-51000 rw-p 0 0 0 /x-y\nReferenced: 4 kB\n";
        let mut lines = Referenced::default();
        let found: Vec<_> =
            smaps.lines().filter_map(|l| lines.line(l.as_bytes())).map(|(start, kb)| (start, kb / 4)).collect();
        assert_eq!(found, [(0x1000, 4), (0x20000, 8), (0x50000, 1)]);
        assert_eq!(touched(&all, &found), ByNode::from([(NodeId(0), 4.0 + 2.0), (NodeId(1), 6.0)]));
        // 4 pages of the first area twice, and 2 of the second one's 8 three times: a quarter of them is on node 0.
        let ranges = [(0x5000, 0x9000, 2), (0x1f000, 0x22000, 3), (0x30000, 0x40000, 9), (0x90000, 0x91000, 0)];
        assert_eq!(touched_in(&all, &ranges, 4096), ByNode::from([(NodeId(0), 8.0 + 1.5), (NodeId(1), 4.5)]));
    }

    #[test]
    fn events_tell_near_from_far_and_pages_which_far_one() {
        let nodes = [NodeId(0), NodeId(1), NodeId(2)];
        assert_eq!(
            loads_by_node(5, 7, NodeId(1), &nodes[..2], None),
            Some(ByNode::from([(NodeId(0), 7.0), (NodeId(1), 5.0)]))
        );
        let pages = [(NodeId(0), 1), (NodeId(1), 100), (NodeId(2), 3)];
        assert_eq!(
            loads_by_node(5, 8, NodeId(1), &nodes, Some(&pages)),
            Some(ByNode::from([(NodeId(0), 2.0), (NodeId(1), 5.0), (NodeId(2), 6.0)]))
        );
        assert_eq!(loads_by_node(5, 8, NodeId(1), &nodes, None), None);
        assert_eq!(loads_by_node(5, 8, NodeId(1), &nodes, Some(&[(NodeId(1), 4)])), None);
        assert_eq!(loads_by_node(5, 0, NodeId(1), &nodes, None), Some(ByNode::from([(NodeId(1), 5.0)])));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), numbers in proptest::collection::vec(any::<u64>(), 6)) {
            let all: Vec<Area> = bytes.split(|b| *b == b'\n').filter_map(|line| Area::parse(line, 4)).collect();
            let mut lines = Referenced::default();
            let _ = bytes.split(|b| *b == b'\n').filter_map(|line| lines.line(line)).count();
            let area = Area { start: numbers[0], binding: Binding::Free, backing: Backing::File, pages: vec![(NodeId(1), numbers[1])] };
            let _ = (touched_in(&all, &[(numbers[2], numbers[3], numbers[4])], numbers[5]), touched_in(&[area], &[(numbers[2], numbers[3], numbers[4])], 4096));
        }
    }
}
