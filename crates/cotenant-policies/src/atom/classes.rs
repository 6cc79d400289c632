//! The mapping classes of a competition.

use super::config::AtomConfig;
use super::situation::Group;
use cotenant_model::pin;
use cotenant_model::policy::Ctx;
use cotenant_model::topology::notation::format_map;
use cotenant_model::topology::symmetry::{Enumeration, FREE, Labels, Slot, Tenant};
use cotenant_model::topology::{CacheType, Kind};
use cotenant_model::{AppId, CpuId, CpuSet, TaskId, Topology, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Limit of leaves in the tree of CPUs for finding classes: a few milliseconds.
const EFFORT: u64 = 100_000;

/// A mapping class, represented by one mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Class {
    /// The CPUs of each group; empty: where the kernel puts them.
    pub cpus: Vec<CpuSet>,
    /// In the notation of maps, for people.
    pub text: String,
}

/// The competitors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    pub classes: Vec<Class>,
    /// How they were chosen, if not all were taken.
    pub how: Option<String>,
}

/// The classes of mappings of these groups: the balanced ones, or all if none is balanced or all are requested.
pub(super) fn field(ctx: &Ctx<'_>, config: &AtomConfig, groups: &[Group], labels: &Labels) -> Field {
    let AtomConfig { classes: cap, all, .. } = *config;
    let tenant = |g: &Group| Tenant { threads: g.threads, allowed: Some(g.on.clone()), like: None };
    let of = |balanced| Enumeration::new(ctx.topology, labels, groups.iter().map(tenant).collect(), balanced);
    for balanced in [true, false].into_iter().filter(|balanced| !(*balanced && all)) {
        let enumeration = of(balanced);
        let mut classes = enumeration.iter().within(EFFORT);
        let found: Vec<Vec<Slot>> = classes.by_ref().take(cap + 1).collect();
        if found.len() > cap || classes.gave_up() {
            let mut field = corners(ctx, config, &of(false), groups);
            let kind = if balanced { "balanced classes" } else { "classes" };
            let n = field.classes.len();
            field.how = Some(format!(
                "there are more than {cap} {kind} of mappings; the {n} that are packed or spread at each level of the machine compete (--atom classes=N raises the limit)"
            ));
            return field;
        }
        if !found.is_empty() {
            return gather(ctx, groups, enumeration.symmetry().cpus(), &found);
        }
    }
    Field::default()
}

/// Classes from mappings, without duplicates after `--pin` has widened them.
fn gather(ctx: &Ctx<'_>, groups: &[Group], order: &[CpuId], mappings: &[Vec<Slot>]) -> Field {
    let mut classes = Vec::new();
    let mut seen = BTreeSet::new();
    for mapping in mappings {
        let cpus_of = |group: usize| -> CpuSet {
            let own = order.iter().zip(mapping).filter(|(_, slot)| **slot != FREE && **slot as usize == group);
            own.map(|(cpu, _)| *cpu).collect()
        };
        let cpus: Vec<CpuSet> = (0..groups.len()).map(cpus_of).collect();
        let widened = |(set, group): (&CpuSet, &Group)| {
            let mask = |cpu| pin::affinity(ctx.topology, &CpuSet::single(cpu), ctx.config.pin, &group.on);
            let mut masks: Vec<Vec<CpuId>> = set.iter().map(|cpu| mask(cpu).iter().collect()).collect();
            masks.sort_unstable();
            masks
        };
        if seen.insert(cpus.iter().zip(groups).map(widened).collect::<Vec<_>>()) {
            let text = text(ctx.topology, groups, &cpus);
            classes.push(Class { cpus, text });
        }
    }
    let merged = mappings.len() - classes.len();
    let how = (merged > 0).then(|| {
        format!("{merged} classes differ only inside what --pin leaves to the kernel, and do not compete; with --pin cpu they do")
    });
    // Ordered by the fill of domains, fullest first, which does not depend on the numbering of equal cores.
    let filling = |class: &Class| -> Vec<usize> {
        let in_domain = |cpus: &CpuSet, set: &CpuSet| usize::MAX - set.and(cpus).len();
        let domains = ctx.topology.llc_domains().iter();
        domains.flat_map(|domain| class.cpus.iter().map(|set| in_domain(&domain.cpus, set))).collect()
    };
    classes.sort_by_cached_key(filling);
    Field { classes, how }
}

/// The mapping in people's notation: `X` the first application, `*` the other of two, else letters.
fn text(topology: &Topology, groups: &[Group], cpus: &[CpuSet]) -> String {
    let mut apps: Vec<AppId> = groups.iter().map(|g| g.app).collect();
    apps.dedup();
    let letter = |app: AppId| match apps.iter().position(|a| *a == app).unwrap_or_default() {
        0 => 'X',
        1 if apps.len() == 2 => '*',
        n => char::from(b'A' + ((n - 1) % 23) as u8),
    };
    format_map(topology, |cpu| groups.iter().zip(cpus).find(|(_, set)| set.contains(cpu)).map(|(g, _)| letter(g.app)))
}

/// The corners of the space of mappings: at each level each application's threads are packed or spread, with the others
/// or apart.
fn corners(ctx: &Ctx<'_>, config: &AtomConfig, enumeration: &Enumeration<'_>, groups: &[Group]) -> Field {
    let order = enumeration.symmetry().cpus();
    let levels = levels(ctx.topology);
    let mut found: Vec<Vec<Slot>> = Vec::new();
    for signs in 0..1u32 << levels.len() {
        for meet in [false, true] {
            let Some(mapping) = corner(order, groups, &levels, signs, meet) else { continue };
            let mapping = enumeration.canonical(&mapping);
            if !found.contains(&mapping) {
                found.push(mapping);
            }
        }
    }
    if !config.all {
        let symmetry = enumeration.symmetry();
        let balanced = |m: &Vec<Slot>| (0..groups.len() as Slot).all(|group| symmetry.is_balanced(m, group));
        if found.iter().any(balanced) {
            found.retain(balanced);
        }
    }
    let mut field = gather(ctx, groups, order, &found);
    field.classes.truncate(config.classes);
    field
}

/// Partitions of the CPUs by shared resources, the largest parts first; at most six.
fn levels(topology: &Topology) -> Vec<Vec<CpuSet>> {
    let mut all: Vec<Vec<CpuSet>> = vec![topology.packages().to_vec(), topology.cores().to_vec()];
    all.push(topology.nodes().iter().map(|n| n.cpus.and(topology.online())).filter(|c| !c.is_empty()).collect());
    let mut by_class: BTreeMap<(bool, u8), Vec<CpuSet>> = BTreeMap::new();
    for resource in topology.resources() {
        match resource.kind {
            Kind::Bus => by_class.entry((false, 0)).or_default().push(resource.cpus.clone()),
            Kind::Cache(CacheType::Unified) => {
                by_class.entry((true, resource.level)).or_default().push(resource.cpus.clone());
            }
            _ => {}
        }
    }
    all.extend(by_class.into_values());
    let mut levels: Vec<Vec<CpuSet>> = Vec::new();
    for mut parts in all {
        parts.sort_by_key(CpuSet::first);
        if parts.len() > 1 && parts.iter().any(|p| p.len() > 1) && !levels.contains(&parts) {
            levels.push(parts);
        }
    }
    levels.sort_by_key(|parts| std::cmp::Reverse(parts.iter().map(CpuSet::len).max()));
    levels.truncate(6);
    levels
}

/// One corner: bit `l` of `signs` packs at level `l`. `None` without enough room.
fn corner(order: &[CpuId], groups: &[Group], levels: &[Vec<CpuSet>], signs: u32, meet: bool) -> Option<Vec<Slot>> {
    let part_of = |cpu: CpuId| -> Vec<usize> {
        levels.iter().map(|parts| parts.iter().position(|p| p.contains(cpu)).unwrap_or(parts.len())).collect()
    };
    let parts: Vec<Vec<usize>> = order.iter().map(|cpu| part_of(*cpu)).collect();
    let mut mapping = vec![FREE; order.len()];
    // Per level and part: threads of the group's application, and of others.
    for (slot, group) in groups.iter().enumerate() {
        let app_of = |slot: Slot| groups.get(slot as usize).map(|g| g.app);
        let mut held: Vec<BTreeMap<usize, [i64; 2]>> = vec![BTreeMap::new(); levels.len()];
        for (at, taken) in mapping.iter().enumerate().filter(|(_, taken)| **taken != FREE) {
            let other = usize::from(app_of(*taken) != Some(group.app));
            (0..levels.len()).for_each(|l| held[l].entry(parts[at][l]).or_default()[other] += 1);
        }
        for _ in 0..group.threads {
            let key = |at: usize| -> Vec<i64> {
                let level = |l: usize| {
                    let [own, others] = held[l].get(&parts[at][l]).copied().unwrap_or_default();
                    [if signs >> l & 1 == 1 { -own } else { own }, if meet { -others } else { others }]
                };
                (0..levels.len()).flat_map(level).collect()
            };
            let open = (0..order.len()).filter(|&at| mapping[at] == FREE && group.on.contains(order[at]));
            let at = open.min_by_key(|&at| key(at))?;
            mapping[at] = slot as Slot;
            (0..levels.len()).for_each(|l| held[l].entry(parts[at][l]).or_default()[0] += 1);
        }
    }
    Some(mapping)
}

/// Places the members on the CPUs of a class: each in its current domain while the class has room there, on its own CPU
/// if that is free; the others in order of id.
pub(super) fn seats(
    ctx: &Ctx<'_>,
    view: &View,
    members: &[(TaskId, usize)],
    class: &Class,
) -> BTreeMap<TaskId, CpuSet> {
    let mut seats = BTreeMap::new();
    for (group, cpus) in class.cpus.iter().enumerate() {
        let mut free = cpus.clone();
        let mut waiting: Vec<(TaskId, Option<CpuId>)> =
            members.iter().filter(|m| m.1 == group).map(|m| (m.0, view.task(m.0).and_then(|t| t.cpu))).collect();
        for at_home in [true, false] {
            let mut placed: BTreeMap<usize, Vec<(TaskId, Option<CpuId>)>> = BTreeMap::new();
            let mut room: BTreeMap<Option<usize>, usize> = BTreeMap::new();
            for cpu in free.iter() {
                *room.entry(ctx.topology.llc_of(cpu)).or_default() += 1;
            }
            waiting.retain(|&(task, cpu)| {
                let home = cpu.and_then(|cpu| ctx.topology.llc_of(cpu));
                let domain = if at_home { Some(home) } else { room.iter().find(|r| *r.1 > 0).map(|r| *r.0) };
                let Some(left) = domain.and_then(|d| room.get_mut(&d)).filter(|left| **left > 0) else { return true };
                *left -= 1;
                placed.entry(domain.flatten().unwrap_or(usize::MAX)).or_default().push((task, cpu));
                false
            });
            for (domain, tasks) in placed {
                let here = |cpu: &CpuId| ctx.topology.llc_of(*cpu).unwrap_or(usize::MAX) == domain;
                let (stay, go): (Vec<_>, Vec<_>) =
                    tasks.into_iter().partition(|(_, cpu)| cpu.is_some_and(|cpu| free.remove(cpu)));
                seats.extend(stay.into_iter().filter_map(|(task, cpu)| Some((task, CpuSet::single(cpu?)))));
                for (task, _) in go {
                    let seat = free.iter().find(here);
                    if let Some(cpu) = seat {
                        free.remove(cpu);
                        seats.insert(task, CpuSet::single(cpu));
                    }
                }
            }
        }
    }
    seats
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::{clovertown, machine, parts};
    use cotenant_model::topology::{Parts, Resource};

    #[test]
    fn levels_are_those_that_tell_cpus_apart_each_once_the_largest_parts_first() {
        let set = |list: &str| CpuSet::parse_list(list).unwrap();
        let with = |mut parts: Parts, kind, lists: &[&str]| {
            let like = parts.resources[0].clone();
            parts.resources.extend(lists.iter().map(|list| Resource { kind, cpus: set(list), ..like.clone() }));
            parts
        };
        let build = |parts| Topology::new(parts).unwrap();
        let mut memory_only = parts(2, 1, 2, 1);
        (memory_only.nodes[0].cpus, memory_only.nodes[1].cpus) = (set("0-3"), CpuSet::new());
        for (topology, expected) in [
            (machine(1, 1, 4, 1), vec![]),
            (machine(2, 1, 2, 1), vec!["0-1 2-3"]),
            (machine(2, 2, 1, 2), vec!["0-1,4-5 2-3,6-7", "0,4 1,5 2,6 3,7"]),
            (machine(2, 2, 2, 1), vec!["0-3 4-7", "0-1 2-3 4-5 6-7"]),
            (clovertown(), vec!["0-3 4-7", "0-1 2-3 4-5 6-7"]),
            (build(with(parts(4, 1, 2, 1), Kind::Bus, &["0-3", "4-7"])), vec!["0-3 4-7", "0-1 2-3 4-5 6-7"]),
            (build(with(parts(2, 1, 2, 1), Kind::Bus, &["1,3", "0,2"])), vec!["0-1 2-3", "0,2 1,3"]),
            (build(with(parts(2, 1, 2, 1), Kind::Cache(CacheType::Data), &["0,2", "1,3"])), vec!["0-1 2-3"]),
            (build(memory_only), vec!["0-1 2-3"]),
        ] {
            let text = |parts: &Vec<CpuSet>| parts.iter().map(CpuSet::to_string).collect::<Vec<_>>().join(" ");
            assert_eq!(levels(&topology).iter().map(text).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_mapping_is_written_in_the_notation() {
        let topology = machine(2, 1, 2, 1);
        for (apps, expected) in
            [(&[0][..], "X.|.."), (&[0, 1], "X*|.."), (&[4, 5, 7], "XA|B."), (&[0, 1, 2, 3], "XA|BC")]
        {
            let group = |app: &u32| Group { app: AppId(*app), on: topology.usable().clone(), threads: 1 };
            let groups: Vec<Group> = apps.iter().map(group).collect();
            let cpus: Vec<CpuSet> = topology.usable().iter().take(apps.len()).map(CpuSet::single).collect();
            assert_eq!(text(&topology, &groups, &cpus), expected);
        }
    }

    /// Two packages of two CPUs, and of two caches of two: an application's threads together or apart at each level,
    /// beside the other's or away from them.
    #[test]
    fn corners_are_packed_or_spread_level_by_level() {
        let (two, four) = (machine(2, 1, 2, 1), machine(2, 2, 2, 1));
        for (topology, threads, signs, meet, expected) in [
            (&two, [2, 2], 0b1, false, Some("00 11")),
            (&two, [2, 2], 0b0, false, Some("01 01")),
            (&two, [1, 1], 0b1, false, Some("0. 1.")),
            (&two, [1, 1], 0b1, true, Some("01 ..")),
            (&two, [4, 1], 0b0, false, None),
            (&four, [2, 2], 0b11, false, Some("00 .. 11 ..")),
            (&four, [2, 2], 0b01, false, Some("0. 0. 1. 1.")),
            (&four, [2, 2], 0b10, false, Some("0. 1. 0. 1.")),
            (&four, [2, 2], 0b01, true, Some("01 01 .. ..")),
        ] {
            let order: Vec<CpuId> = topology.usable().iter().collect();
            let group = |(app, threads)| Group { app: AppId(app), on: topology.usable().clone(), threads };
            let groups: Vec<Group> = (0..).zip(threads).map(group).collect();
            let mapping = corner(&order, &groups, &levels(topology), signs, meet);
            let letter = |slot: &Slot| if *slot == FREE { ".".to_owned() } else { slot.to_string() };
            let text = |mapping: Vec<Slot>| {
                mapping.chunks(2).map(|two| two.iter().map(letter).collect::<String>()).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(mapping.map(text).as_deref(), expected, "{threads:?} {signs:b} {meet}");
        }
    }
}
