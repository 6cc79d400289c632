//! The places of selected jobs: arrivals at the caches of each level are balanced, from the last level inward.

use super::round::{Job, Round};
use super::select::nearest;
use cotenant_model::topology::{CacheType, Kind, Resource};
use cotenant_model::{CpuId, CpuSet, Signal, Topology};
use std::collections::BTreeMap;

/// The levels of cache of a machine, the last first, each with the CPUs of its caches.
pub(super) struct Levels {
    caches: Vec<(u8, Vec<CpuSet>)>,
    /// The first level that some CPUs share; 0 without one.
    first_shared: u8,
    /// CPUs in the order in which they are filled: first contexts of all cores before second ones.
    rank: BTreeMap<CpuId, (usize, CpuId)>,
}

impl Levels {
    pub(super) fn new(topology: &Topology, cpus: &CpuSet) -> Self {
        let mut levels: BTreeMap<u8, Vec<CpuSet>> = BTreeMap::new();
        let is_cache = |r: &&Resource| matches!(r.kind, Kind::Cache(CacheType::Unified | CacheType::Data));
        let mut caches: Vec<&Resource> = topology.resources().iter().filter(is_cache).collect();
        caches.sort_by_key(|r| r.cpus.first());
        for r in caches.into_iter().filter(|r| r.cpus.intersects(cpus)) {
            levels.entry(r.level).or_default().push(r.cpus.and(cpus));
        }
        let core = |cpu| topology.core_of(cpu);
        let shared = |caches: &[CpuSet]| {
            caches.iter().any(|c| c.iter().any(|cpu| c.first().is_some_and(|first| core(first) != core(cpu))))
        };
        let first_shared = levels.iter().find(|(_, caches)| shared(caches)).map_or(0, |(&level, _)| level);
        let mut rank = BTreeMap::new();
        for core in topology.cores() {
            rank.extend(core.and(cpus).iter().enumerate().map(|(i, cpu)| (cpu, (i, cpu))));
        }
        Self { caches: levels.into_iter().rev().collect(), first_shared, rank }
    }

    /// For each level, the signals for arrivals at its caches, best first: misses of the level below it.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = (u8, &'static [Signal])> + '_ {
        self.caches.iter().filter_map(|&(level, _)| {
            let private_below = level == self.first_shared;
            let signals: &[Signal] = match level {
                0 | 1 => return None,
                2 if private_below => &[Signal::L1Misses, Signal::PrivateMisses],
                2 => &[Signal::L1Misses],
                3 if private_below => &[Signal::PrivateMisses, Signal::L2LinesIn],
                3 => &[Signal::L2LinesIn],
                _ => &[Signal::L3LinesIn],
            };
            Some((level, signals))
        })
    }
}

/// Part of a job: the number of CPUs still to be chosen.
#[derive(Clone)]
struct Part {
    job: usize,
    width: usize,
    /// Its allowed CPUs; `None`: all.
    allowed: Option<CpuSet>,
}

impl Part {
    fn may_use(&self, cpus: &CpuSet) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.intersects(cpus))
    }

    /// Number of these CPUs that are allowed.
    fn choice(&self, cpus: &CpuSet) -> usize {
        self.allowed.as_ref().map_or(cpus.len(), |allowed| allowed.and(cpus).len())
    }
}

/// Chooses CPUs for the running jobs (TPDS Algorithm 1, lines 18–28). With fewer threads than CPUs, each cache gets its
/// share of them. A job whose CPUs are all taken shares its allowed ones.
pub(super) fn allocate(round: &Round<'_>, levels: &Levels, jobs: &mut [Job]) {
    let mut parts = Vec::new();
    for (i, job) in jobs.iter_mut().enumerate() {
        job.cpus = CpuSet::new();
        if job.runs {
            let allowed = round.allowed(job.app);
            let most = allowed.as_ref().map_or(round.cpus.len(), CpuSet::len);
            parts.push(Part { job: i, width: job.width.clamp(1, most.max(1)), allowed });
        }
    }
    let mut free = round.cpus.clone();
    descend(levels, &levels.caches, &round.cpus, parts.clone(), jobs, &mut free);
    for part in parts {
        let job = &mut jobs[part.job];
        if job.cpus.is_empty() {
            job.cpus = part.allowed.unwrap_or_else(|| round.cpus.clone());
        }
    }
}

fn descend(
    all: &Levels,
    levels: &[(u8, Vec<CpuSet>)],
    group: &CpuSet,
    parts: Vec<Part>,
    jobs: &mut [Job],
    free: &mut CpuSet,
) {
    let Some(((level, caches), below)) = levels.split_first() else {
        return seat(all, group, parts, jobs, free);
    };
    let caches: Vec<CpuSet> = caches.iter().map(|c| c.and(group)).filter(|c| !c.is_empty()).collect();
    // CPUs without a cache of this level are no group: they are filled with the first cache.
    let covered = caches.iter().fold(CpuSet::new(), |all, c| all.or(c));
    if caches.len() < 2 || covered != *group {
        return descend(all, below, group, parts, jobs, free);
    }
    for (cache, parts) in caches.iter().zip(balance(*level, &caches, parts, jobs)) {
        descend(all, below, cache, parts, jobs, free);
    }
}

/// Divides jobs among the caches of a level.
fn balance(level: u8, caches: &[CpuSet], mut parts: Vec<Part>, jobs: &[Job]) -> Vec<Vec<Part>> {
    let known: Vec<f64> =
        parts.iter().filter_map(|p| Some(jobs[p.job].arrives(level)? / jobs[p.job].width as f64)).collect();
    let mean = if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    let rate = |p: &Part| jobs[p.job].arrives(level).map_or(mean, |rate| rate / jobs[p.job].width as f64);
    let threads = |parts: &[Part]| parts.iter().map(|p| p.width).sum::<usize>();
    let all = threads(&parts);
    let per_slot = parts.iter().map(|p| rate(p) * p.width as f64).sum::<f64>() / all.max(1) as f64;
    // By rate, and on ties by place in the queue. Placed jobs are removed.
    let mut waiting: Vec<(f64, usize)> = parts.iter().map(rate).enumerate().map(|(k, rate)| (rate, k)).collect();
    waiting.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let all_may_use_all = parts.iter().all(|p| p.allowed.is_none());
    let mut cpus_left: usize = caches.iter().map(CpuSet::len).sum();
    let mut given = Vec::new();
    for (i, cache) in caches.iter().enumerate() {
        let mut slots = (threads(&parts) * cache.len()).div_ceil(cpus_left.max(1)).min(cache.len());
        cpus_left -= cache.len();
        let mut remain = per_slot * slots as f64;
        let mut here = Vec::new();
        let elsewhere = |p: &Part| caches[i + 1..].iter().any(|c| p.may_use(c));
        while slots > 0 && !waiting.is_empty() {
            let wanted = remain / slots as f64;
            let best = if all_may_use_all {
                Some(nearest(&waiting, wanted))
            } else {
                let key = |w: usize| {
                    let (rate, k) = waiting[w];
                    (elsewhere(&parts[k]), (wanted - rate).abs(), k)
                };
                let usable = (0..waiting.len()).filter(|&w| parts[waiting[w].1].may_use(cache));
                let keys = usable.map(|w| (key(w), w));
                keys.min_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)))
                    .map(|(_, w)| w)
            };
            let Some(w) = best else { break };
            let (rate, k) = waiting[w];
            let part = &mut parts[k];
            let width = part.width.min(slots).min(part.choice(cache));
            remain -= rate * width as f64;
            slots -= width;
            here.push(Part { width, ..part.clone() });
            part.width -= width;
            if part.width == 0 || !elsewhere(&parts[k]) {
                parts[k].width = 0;
                waiting.remove(w);
            }
        }
        given.push(here);
    }
    given
}

/// Assigns CPUs to the jobs of a group without further caches; those with the fewest choices come first.
fn seat(all: &Levels, group: &CpuSet, mut parts: Vec<Part>, jobs: &mut [Job], free: &mut CpuSet) {
    parts.sort_by_key(|p| p.choice(group));
    for part in parts {
        let mut cpus: Vec<CpuId> =
            group.and(free).iter().filter(|&cpu| part.allowed.as_ref().is_none_or(|a| a.contains(cpu))).collect();
        cpus.sort_by_key(|cpu| all.rank.get(cpu));
        for cpu in cpus.into_iter().take(part.width) {
            free.remove(cpu);
            jobs[part.job].cpus.insert(cpu);
        }
    }
}
