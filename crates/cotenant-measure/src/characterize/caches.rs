//! Cache sizes to simulate, limited to those that the simulator accepts.

use cotenant_model::topology::{CacheType, Kind, Resource, Topology};
use std::fmt;

/// Simulated sizes of each level, as powers of two of the real one.
const SIZES: [i32; 5] = [-3, -2, -1, 0, 1];

/// A set-associative cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Geometry {
    /// Its size.
    pub bytes: u64,
    /// Its associativity.
    pub ways: u32,
    /// Bytes of a line.
    pub line: u32,
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB, {} ways, {}-byte lines", self.bytes >> 10, self.ways, self.line)
    }
}

impl Geometry {
    /// The nearest geometry that cachegrind accepts: lines and sets are powers of two (cachegrind's manual, "Cache
    /// Simulation"). The size changes and the associativity stays. Of two equally near by ratio, the smaller.
    pub fn nearest(bytes: u64, ways: u32, line: u32) -> Self {
        let (ways, line) = (ways.clamp(1, 1 << 10), line.clamp(16, 1 << 12).next_power_of_two());
        let sets = (bytes as f64 / f64::from(ways) / f64::from(line)).max(1.0).log2();
        let sets = (sets - 1e-9).round().clamp(0.0, 40.0) as u32;
        Self { bytes: (u64::from(ways) * u64::from(line)) << sets, ways, line }
    }

    /// In the format of cachegrind's options.
    pub fn option(&self) -> String {
        format!("{},{},{}", self.bytes, self.ways, self.line)
    }
}

/// Counts of a simulated run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Instructions executed.
    pub instructions: u64,
    /// Loads and stores.
    pub references: u64,
    /// Misses of the first level.
    pub first_misses: u64,
    /// Misses of the last level.
    pub misses: u64,
    /// Units of work that the program reported meanwhile; `None` without reports.
    pub units: Option<u64>,
}

/// A cache to study, as one of the two levels that are simulated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// The level that it replaces.
    pub level: u8,
    /// The first level.
    pub first: Geometry,
    /// The second and last one.
    pub last: Geometry,
    /// Whether the first level is studied.
    is_first: bool,
}

impl Model {
    /// The studied cache.
    pub fn cache(&self) -> Geometry {
        if self.is_first { self.first } else { self.last }
    }

    /// Its misses in a run.
    pub fn misses(&self, of: &Misses) -> u64 {
        if self.is_first { of.first_misses } else { of.misses }
    }
}

/// The caches to simulate: each level of the machine at several sizes, one run each, lowest level first. A first level
/// is combined with the machine's last one; any other becomes the last level behind the machine's first, so that levels
/// in between are left out. Other levels are larger than the first. Empty if the machine reports no sizes.
pub fn models(topology: &Topology) -> Vec<Model> {
    let caches =
        topology.resources().iter().filter(|r| matches!(r.kind, Kind::Cache(CacheType::Data | CacheType::Unified)));
    let mut caches: Vec<&Resource> = caches.filter(|r| r.capacity.is_some()).collect();
    caches.sort_by_key(|r| r.level);
    caches.dedup_by_key(|r| r.level);
    let (Some(first), Some(last)) = (caches.first(), caches.last()) else { return Vec::new() };
    let nearest = of(first, 1.0);
    let mut models = Vec::new();
    for cache in &caches {
        let is_first = cache.level == first.level;
        let mut sizes: Vec<Geometry> = SIZES.iter().map(|power| of(cache, 2f64.powi(*power))).collect();
        sizes.retain(|size| is_first || size.bytes > nearest.bytes);
        sizes.dedup();
        models.extend(sizes.into_iter().map(|size| Model {
            level: cache.level,
            first: if is_first { size } else { nearest },
            last: if is_first { of(last, 1.0) } else { size },
            is_first,
        }));
    }
    models
}

fn of(r: &Resource, factor: f64) -> Geometry {
    let bytes = (r.capacity.unwrap_or(0) as f64 * factor) as u64;
    Geometry::nearest(bytes, r.ways.filter(|ways| *ways > 0).unwrap_or(8), r.line_size.unwrap_or(64))
}

/// The last level and the one before it (usually the last private one), in the nearest geometry that can be simulated
/// together; `None` if the machine reports fewer than two sizes.
pub fn last_two(topology: &Topology) -> Option<(Geometry, Geometry)> {
    let holds = |r: &&Resource| matches!(r.kind, Kind::Cache(CacheType::Data | CacheType::Unified));
    let caches = || topology.resources().iter().filter(holds).filter(|r| r.capacity.is_some());
    let last = caches().max_by_key(|r| r.level)?;
    let upper = caches().filter(|r| r.level < last.level).max_by_key(|r| r.level)?;
    Some((of(upper, 1.0), of(last, 1.0)))
}

/// Reads cachegrind's summary.
///
/// # Errors
/// The missing line.
pub fn parse(summary: &str) -> Result<Misses, String> {
    let lines: Vec<String> = summary
        .lines()
        .filter_map(|line| line.split_once("== "))
        .map(|(_, text)| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let field = |name: &str| {
        let value = lines.iter().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        let digits: Option<u64> = value.and_then(|text| text.replace(',', "").parse().ok());
        digits.ok_or_else(|| format!("cachegrind's summary has no '{name}'; is it valgrind 3.15 or newer?"))
    };
    let (instructions, references) = (field("I refs:")?, field("D refs:")?);
    let (first_misses, misses) = (field("D1 misses:")?, field("LLd misses:")?);
    Ok(Misses { instructions, references, first_misses, misses, units: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_that_is_legal() {
        let nearest = |bytes, ways| Geometry::nearest(bytes, ways, 64).bytes;
        assert_eq!(nearest(8 << 20, 16), 8 << 20, "legal as it is");
        // 25 MiB, 20 ways: 20,480 sets; 16,384 are 20 MiB (0.8 of it), 32,768 are 40 MiB (1.6).
        assert_eq!(nearest(25 << 20, 20), 20 << 20);
        // 12 MiB, 8 ways: 24,576 sets, 1.33 from below and above 0.67: by ratio 16 MiB is nearer.
        assert_eq!(nearest(12 << 20, 8), 16 << 20);
        assert_eq!(nearest(0, 0), 64);
        assert_eq!(Geometry::nearest(32 << 10, 8, 64).option(), "32768,8,64");
    }

    /// Holds measure/characterize.
    #[test]
    fn every_level_stands_where_it_can_be_simulated() {
        let mut parts = cotenant_model::testing::parts(1, 1, 2, 1);
        let second = parts.resources.iter().filter(|r| matches!(r.kind, Kind::Cache(_)) && r.level == 2);
        let own = |r: &Resource| Resource { kind: Kind::Cache(CacheType::Data), level: 1, ..r.clone() };
        let first: Vec<Resource> = second.map(own).collect();
        parts.resources.extend(first);
        for r in parts.resources.iter_mut().filter(|r| matches!(r.kind, Kind::Cache(_))) {
            let bytes = [32 << 10, 64 << 10, 16 << 20][usize::from(r.level) - 1];
            (r.capacity, r.ways, r.line_size) = (Some(bytes), Some(8), Some(64));
        }
        let models = models(&Topology::new(parts).unwrap());
        let kib = |m: &Model| (m.level, m.first.bytes >> 10, m.last.bytes >> 10, m.cache().bytes >> 10);
        let found: Vec<_> = models.iter().map(kib).collect();
        // The first level before the real last one; the others behind the real first one, if larger than it.
        let first = [4, 8, 16, 32, 64].map(|size| (1, size, 16_384, size));
        let second = [64, 128].map(|size| (2, 32, size, size));
        let third = [2_048, 4_096, 8_192, 16_384, 32_768].map(|size| (3, 32, size, size));
        assert_eq!(found, [&first[..], &second[..], &third[..]].concat());
        let run = Misses { first_misses: 7, misses: 3, ..Misses::default() };
        assert_eq!((models[0].misses(&run), models[6].misses(&run)), (7, 3));
    }

    #[test]
    fn the_summary_is_read() {
        let text = "==1== Cachegrind, a cache profiler\n==1== \n==1== I   refs:      1,234,567\n==1== I1  misses:  5\n==1== LLi misses: 1\n\
                    ==1== \n==1== D   refs:      400,000  (300,000 rd   + 100,000 wr)\n==1== D1  misses:    20,000  ( 1 rd + 2 wr)\n\
                    ==1== LLd misses:     1,000  ( 500 rd + 500 wr)\n==1== LL refs: 7\n==1== LL misses: 6\n";
        assert_eq!(
            parse(text),
            Ok(Misses {
                instructions: 1_234_567,
                references: 400_000,
                first_misses: 20_000,
                misses: 1_000,
                units: None
            })
        );
        assert!(parse("==1== I   refs: 3\n").unwrap_err().contains("'D refs:'"));
    }
}
