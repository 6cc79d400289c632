//! Caches shared by several cores before the last level: the second level of a module, a cluster or a pair of cores.

use crate::app::{Fault, POSITIVE, SIMULATOR, given};
use crate::station::Station;
use cotenant_model::topology::{CacheType, Kind, Resource, Topology};
use serde::Deserialize;
use std::collections::BTreeSet;
use toml::Spanned;

/// Fraction of the last level's latency that a nearer level has if its file does not say: a guess.
const PART_OF_LLC: f64 = 0.4;
/// Bytes of a private first-level cache of unknown size: a guess.
pub(crate) const PRIVATE_BYTES: f64 = 32_768.0;

/// A shared level in a machine file.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NearTable {
    level: u8,
    ns: Option<Spanned<f64>>,
    gbs: Option<Spanned<f64>>,
    bytes: Option<Spanned<f64>>,
}

/// A level of shared caches before the last. Latencies in seconds, capacities in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Near {
    /// Counted from the cores: 2, 3 …
    pub level: u8,
    /// Of each cache.
    pub bytes: Vec<f64>,
    /// Per CPU number: its cache, if it has one of this level.
    pub of: Vec<Option<usize>>,
    /// Latency of a hit.
    pub hit_s: f64,
    /// The station of the first cache's bandwidth if it is limited; the others follow it.
    station: Option<usize>,
}

impl Near {
    /// The station of a cache's bandwidth, if that is limited.
    pub fn station(&self, cache: usize) -> Option<usize> {
        self.station.map(|first| first + cache)
    }
}

fn holds_data(r: &Resource) -> bool {
    matches!(r.kind, Kind::Cache(CacheType::Unified | CacheType::Data))
}

/// The shared levels before the last one, from the cores outward; limited bandwidths become stations.
pub(crate) fn of(
    topology: &Topology,
    tables: &[Spanned<NearTable>],
    llc_ns: f64,
    stations: &mut Vec<Station>,
    guesses: &mut Vec<String>,
) -> Result<Vec<Near>, Fault> {
    let last = |r: &Resource| topology.llc_domains().iter().any(|d| r.cpus.and(topology.usable()) == d.cpus);
    let caches: Vec<&Resource> =
        topology.resources().iter().filter(|r| holds_data(r) && r.level > 1 && !last(r)).collect();
    let mut levels: BTreeSet<u8> = caches.iter().map(|r| r.level).collect();
    let cores = |r: &Resource| r.cpus.iter().filter_map(|cpu| topology.core_of(cpu)).collect::<BTreeSet<_>>().len();
    levels.retain(|level| caches.iter().any(|r| r.level == *level && cores(r) > 1));
    for table in tables {
        let level = table.get_ref().level;
        if !levels.contains(&level) {
            let known: Vec<String> = levels.iter().map(u8::to_string).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let what = "caches of the simulator name level";
            let text = format!("{what} {level}; levels that cores share before the last one, in the topology: {known}");
            return Err((table.span().start, text));
        }
    }
    let size = topology.cpus().last().map_or(0, |c| c.id.index() + 1);
    let mut all = Vec::new();
    for level in levels {
        let table = tables.iter().map(Spanned::get_ref).find(|t| t.level == level);
        let mut get = |key: &str, of: fn(&NearTable) -> &Option<Spanned<f64>>, guess: Option<f64>| {
            let said = table.and_then(|t| of(t).as_ref());
            let name = format!("{key} of level {level}");
            if let (None, Some(guess)) = (said, guess) {
                guesses.push(format!("{name} = {guess}"));
            }
            Ok::<_, Fault>(given(SIMULATOR, &name, said, POSITIVE)?.or(guess))
        };
        let ns = get("ns", |t| &t.ns, Some(PART_OF_LLC * llc_ns))?.unwrap_or_default();
        let gbs = get("gbs", |t| &t.gbs, None)?;
        let said = get("bytes", |t| &t.bytes, None)?;
        let (mut bytes, mut of) = (Vec::new(), vec![None; size]);
        for cache in caches.iter().filter(|r| r.level == level) {
            let known = cache.capacity.filter(|b| *b > 0).map(|b| b as f64);
            let own = match said.or(known) {
                Some(own) => own,
                None => get("bytes", |t| &t.bytes, Some(1_048_576.0))?.unwrap_or_default(),
            };
            cache.cpus.iter().for_each(|cpu| of[cpu.index()] = Some(bytes.len()));
            bytes.push(own);
        }
        let station = gbs.map(|gbs| {
            let first = stations.len();
            let name = |i: usize| format!("l{level} {i}");
            stations.extend((0..bytes.len()).map(|i| Station::new(name(i), gbs, gbs, 0.1 * ns)));
            first
        });
        all.push(Near { level, bytes, of, hit_s: ns / 1e9, station });
    }
    Ok(all)
}

/// Bytes of the private cache before a shared level, if the topology gives them.
pub(crate) fn private_bytes(topology: &Topology, shared: u8) -> Option<f64> {
    let private = topology.resources().iter().filter(|r| holds_data(r) && r.level < shared);
    let largest = private.max_by_key(|r| r.level)?;
    largest.capacity.filter(|b| *b > 0).map(|b| b as f64)
}
