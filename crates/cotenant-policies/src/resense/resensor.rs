//! The `ReSensor` algorithm (§2.3, Algorithm 1) for any number of levels: the result of one level is the machine of the
//! next.

use cotenant_model::topology::shared::Level;
use cotenant_model::{AppId, CpuId, CpuSet, TaskId, Topology};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resense {
    /// Ours: with enough instances, applications that gain from sharing come first if their total gain exceeds the loss
    /// of those that contend. Otherwise as printed: the most sensitive application first.
    pub sum: bool,
    /// Its settings.
    pub settings: ResenseSettings,
}

/// Its settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResenseSettings {
    /// As the paper's C₋ (§3.3): a contending application gets a core of every instance in turn. Otherwise of two, as
    /// in the runs that measured the score, which is ours: it leaves whole instances to the sharing ones.
    pub widest: bool,
}

/// A thread to be placed.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub task: TaskId,
    /// Its allowed free CPUs; at least one.
    pub allowed: CpuSet,
    /// Its current place: equal places that cost no move are preferred.
    pub home: Option<CpuId>,
}

/// An application to be placed.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub id: AppId,
    /// Sensitivity scores by level; `None`: unknown, which counts as neutral.
    pub scores: Vec<Option<f64>>,
    /// In ascending order of task; at least one.
    pub threads: Vec<Thread>,
}

/// How threads are placed on the instances of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// On the fewest instances: cores from *sharing* sets, C₊.
    Share,
    /// Cores from *spreading* sets, C₋: on all instances if so set, otherwise on two.
    Spread,
    /// On any free core.
    Any,
}

impl How {
    fn of(score: Option<f64>) -> Self {
        match score {
            Some(score) if score > 0.0 => Self::Share,
            Some(score) if score < 0.0 => Self::Spread,
            _ => Self::Any,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Share => "its threads share",
            Self::Spread => "its threads spread",
            Self::Any => "any free core",
        })
    }
}

/// The decision at a level.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// Index of the level.
    pub level: usize,
    /// 1: at least as many instances as applications; 2: fewer.
    pub case: u8,
    /// The application's own score.
    pub score: Option<f64>,
    pub how: How,
    /// The application whose sign decided, if not its own.
    pub lead: Option<AppId>,
}

/// A thread's place and its reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seat {
    /// One context; the whole place with more threads than contexts.
    pub contexts: CpuSet,
    pub steps: Vec<Step>,
}

/// Threads of an application inside a part of the machine.
type Group<'a> = (&'a App, Vec<&'a Thread>);

/// Maps all threads onto free CPUs, from memory (the first level) to the first shared cache (the last).
pub(super) fn map(
    topology: &Topology,
    levels: &[Level],
    apps: &[App],
    free: &CpuSet,
    policy: Resense,
) -> BTreeMap<TaskId, Seat> {
    let mut mapper = Mapper { topology, levels, policy, seats: BTreeMap::new() };
    let groups = apps.iter().map(|app| (app, app.threads.iter().collect())).collect();
    mapper.place(free, 0, groups);
    mapper.seats
}

struct Mapper<'a> {
    topology: &'a Topology,
    levels: &'a [Level],
    policy: Resense,
    seats: BTreeMap<TaskId, Seat>,
}

impl<'a> Mapper<'a> {
    /// Places groups of threads inside a part of the machine, from a level on.
    fn place(&mut self, region: &CpuSet, level: usize, groups: Vec<Group<'a>>) {
        let Some(resource) = self.levels.get(level) else { return self.seat(region, &groups) };
        let mut parts: Vec<CpuSet> = resource.instances.iter().map(|i| i.and(region)).collect();
        parts.push(resource.instances.iter().fold(region.clone(), |rest, i| rest.minus(i)));
        parts.retain(|part| !part.is_empty());
        if parts.len() < 2 {
            return self.place(region, level + 1, groups);
        }
        let mut board = Board::new(self.topology, parts, groups.iter().map(|(_, threads)| threads.len()).sum());
        for turn in turns(&groups, level, board.parts.len(), self.policy.sum) {
            for (step, group) in turn {
                let (app, threads) = &groups[group];
                let given = board.lay(step.how, threads, step.lead.is_some(), self.policy.settings.widest);
                for (&thread, part) in threads.iter().zip(given) {
                    board.groups[part].entry(app.id).or_insert((app, Vec::new())).1.push(thread);
                    let seat = self.seats.entry(thread.task);
                    seat.or_insert(Seat { contexts: CpuSet::new(), steps: Vec::new() }).steps.push(step.clone());
                }
            }
            board.own.fill(0);
            board.lead.fill(0);
        }
        for (part, groups) in board.parts.iter().zip(board.groups) {
            self.place(part, level + 1, groups.into_values().collect());
        }
    }

    /// Gives each thread its own context, first contexts of cores before second ones; with too few contexts, all
    /// threads share all of them.
    fn seat(&mut self, region: &CpuSet, groups: &[Group<'a>]) {
        let mut threads: Vec<&Thread> = groups.iter().flat_map(|(_, threads)| threads).copied().collect();
        let at_home = |t: &Thread| t.home.is_some_and(|cpu| region.contains(cpu) && t.allowed.contains(cpu));
        threads.sort_by_key(|t| (!at_home(t), t.task));
        let crowded = threads.len() > region.len();
        let mut taken = CpuSet::new();
        for thread in threads {
            let own = thread.allowed.and(region);
            let company =
                |cpu: CpuId| self.topology.core_of(cpu).map_or(0, |core| self.topology.cores()[core].and(&taken).len());
            let open = own.iter().filter(|&cpu| !crowded && !taken.contains(cpu));
            let best = open.min_by_key(|&cpu| (company(cpu), thread.home != Some(cpu), cpu));
            let seat = self.seats.entry(thread.task).or_insert(Seat { contexts: CpuSet::new(), steps: Vec::new() });
            seat.contexts = best.map_or(own, CpuSet::single);
            taken = taken.or(&best.map_or_else(CpuSet::new, CpuSet::single));
        }
    }
}

/// The order of placement and its kind: each turn is one application, or in case 2 a pair, the more sensitive one
/// first. Numbers are indexes of groups.
fn turns(groups: &[Group<'_>], level: usize, instances: usize, sum: bool) -> Vec<Vec<(Step, usize)>> {
    let score = |group: usize| groups[group].0.scores.get(level).copied().flatten();
    let mut order: Vec<usize> = (0..groups.len()).collect();
    let strength = |group: usize| Reverse((score(group).unwrap_or(0.0).abs() * 1e6) as u64);
    order.sort_by_key(|&group| (strength(group), groups[group].1.first().map(|t| t.task)));
    let n = order.len();
    let case = if instances >= n { 1 } else { 2 };
    let own = |group: usize| (Step { level, case, score: score(group), how: How::of(score(group)), lead: None }, group);
    if case == 1 {
        // An application on all instances leaves none whole, which harms all that share.
        let total = |sign: f64| order.iter().filter_map(|&g| score(g)).map(|s| (s * sign).max(0.0)).sum::<f64>();
        if sum && total(1.0) > total(-1.0) {
            order.sort_by_key(|&group| How::of(score(group)) != How::Share);
        }
        return order.into_iter().map(|group| vec![own(group)]).collect();
    }
    let pair = |k: usize| {
        let (first, last) = (order[k], order[n - 1 - k]);
        let follows = Step { score: score(last), lead: Some(groups[first].0.id), ..own(first).0 };
        // The printed loop ends before the middle one of an odd number.
        if first == last { vec![own(first)] } else { vec![own(first), (follows, last)] }
    };
    (0..n.div_ceil(2)).map(pair).collect()
}

/// The instances of a resource during placement.
struct Board<'a> {
    parts: Vec<CpuSet>,
    /// Remaining threads of each; below 0 if some may not run elsewhere.
    room: Vec<i64>,
    /// Threads of this turn in each.
    own: Vec<usize>,
    /// Of those, threads of the more sensitive application.
    lead: Vec<usize>,
    groups: Vec<BTreeMap<AppId, Group<'a>>>,
}

impl Board<'_> {
    /// One thread per core while cores suffice; otherwise each instance gets its share by contexts.
    fn new(topology: &Topology, parts: Vec<CpuSet>, threads: usize) -> Self {
        let cores = |part: &CpuSet| part.iter().map(|cpu| topology.core_of(cpu)).collect::<BTreeSet<_>>().len();
        let n = parts.len();
        let room = if threads <= parts.iter().map(cores).sum() {
            parts.iter().map(cores).collect()
        } else {
            shares(threads, &parts.iter().map(CpuSet::len).collect::<Vec<_>>())
        };
        let room = room.into_iter().map(|room| room as i64).collect();
        Self { parts, room, own: vec![0; n], lead: vec![0; n], groups: vec![BTreeMap::new(); n] }
    }

    /// Places threads of an application; returns the part of each. `follows`: another one was placed first in this
    /// turn, and these use its instances. Spreading ones go to two instances, to more if these lack room, or, with
    /// `widest`, to all.
    fn lay(&mut self, how: How, threads: &[&Thread], follows: bool, widest: bool) -> Vec<usize> {
        let before = self.own.clone();
        if follows {
            self.lead.clone_from(&self.own);
        }
        let mut given: Vec<usize> = threads
            .iter()
            .map(|thread| {
                let own = |part: usize| (self.own[part] - if follows { before[part] } else { 0 }) as i64;
                let two = !widest && (0..self.parts.len()).filter(|part| own(*part) > 0).count() >= 2;
                let may = |part: &usize| thread.allowed.intersects(&self.parts[*part]);
                let home = |part: usize| thread.home.is_some_and(|cpu| self.parts[part].contains(cpu));
                let key = |&part: &usize| {
                    let room = self.room[part];
                    let beside = follows && self.lead[part] > 0;
                    let order = match how {
                        How::Share => [i64::from(self.own[part] > 0), 0, 0],
                        How::Spread => [i64::from(beside), i64::from(!two || own(part) > 0), -own(part)],
                        How::Any => [i64::from(beside), i64::from(home(part)), 0],
                    };
                    (room > 0, order, room, home(part), Reverse(part))
                };
                // Each thread may run in some part: otherwise it would not be placed in this region.
                let best = (0..self.parts.len()).filter(may).max_by_key(key).unwrap_or(0);
                self.room[best] -= 1;
                self.own[best] += 1;
                best
            })
            .collect();
        // Threads with equal masks are exchanged so that as many as possible stay in place.
        if threads.windows(2).all(|pair| pair[0].allowed == pair[1].allowed) {
            let mut quota = given.clone();
            let mut kept: Vec<Option<usize>> = vec![None; threads.len()];
            for (thread, kept) in threads.iter().zip(&mut kept) {
                let at = |part: &usize| thread.home.is_some_and(|cpu| self.parts[*part].contains(cpu));
                *kept = quota.iter().position(at).map(|i| quota.remove(i));
            }
            let mut rest = quota.into_iter();
            given = kept.into_iter().filter_map(|part| part.or_else(|| rest.next())).collect();
        }
        given
    }
}

/// A number divided by weights into integers, with remainders to the largest fractions, then to the first.
pub(super) fn shares(number: usize, weights: &[usize]) -> Vec<usize> {
    let all: usize = weights.iter().sum::<usize>().max(1);
    let mut shares: Vec<usize> = weights.iter().map(|w| number * w / all).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| (Reverse(number * weights[i] % all), i));
    let left = number - shares.iter().sum::<usize>();
    order.into_iter().take(left).for_each(|i| shares[i] += 1);
    shares
}
