//! The mildest means: low-priority programs run on other CPUs than the high-priority ones, as far away as possible.

use super::NOBODY;
use crate::qos::controller::Controller;
use crate::qos::phase::{Phase, Why};
use crate::qos::settings::QosConfig;
use cotenant_model::policy::Ctx;
use cotenant_model::{Action, CpuId, CpuSet, Proposal, Reason, Signal, TaskId, TaskView, Time, Topology, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A CPU belongs to the high-priority programs if they run on it for at least this fraction of time.
const THEIRS: f64 = 0.1;

/// Weight of a new observation of places against older ones.
const WEIGHT: f64 = 0.2;

/// Standard deviations of demand that are kept free for high-priority programs that use all CPUs at times. The variance
/// of demand is its mean, as for random arrivals.
const DEVIATIONS: f64 = 2.0;

/// Programs may move: after this long, contention is answered by another place, if possible.
const LASTS: Duration = Duration::from_secs(5);

/// The places of high-priority programs, and the target of the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Away {
    /// Fraction of time that high-priority programs ran on each CPU; moving means.
    theirs: BTreeMap<CpuId, f64>,
    /// Number of running threads of the others; a moving mean.
    running: f64,
    /// Seconds since the last look at threads.
    #[serde(default)]
    since_s: f64,
    /// The target of the others.
    sent: Option<(CpuSet, Time)>,
    /// The newest thread by then: threads with a greater id started later.
    #[serde(default)]
    newest: Option<TaskId>,
}

impl Away {
    /// Records the places of programs. Rounds without a look at threads are ignored.
    fn note(&mut self, config: &QosConfig, view: &View) {
        let seconds = view.interval.as_secs_f64();
        self.since_s += seconds;
        // Seconds that it ran since its last look, which may be longer ago than the last view.
        let ran = |task: &TaskView| task.per_s(Signal::CpuTime).map(|rate| rate * seconds / 1e9);
        let since_s = self.since_s;
        let share = |task: &TaskView| ran(task).filter(|ran| *ran > 0.0).map(|ran| ran / since_s);
        if !view.tasks.iter().any(|task| share(task).is_some()) {
            return;
        }
        self.since_s = 0.0;
        let mut now: BTreeMap<CpuId, f64> = BTreeMap::new();
        let mut running = 0.0;
        for task in &view.tasks {
            let Some(share) = share(task) else { continue };
            if config.low.contains(&task.info.app) {
                running += 1.0;
            } else if let (Some(cpu), true) = (task.cpu, config.high.iter().any(|high| high.app == task.info.app)) {
                *now.entry(cpu).or_default() += share;
            }
        }
        self.running += WEIGHT * (running - self.running);
        for cpu in now.keys() {
            self.theirs.entry(*cpu).or_default();
        }
        for (cpu, mean) in &mut self.theirs {
            *mean += WEIGHT * (now.get(cpu).copied().unwrap_or(0.0) - *mean);
        }
    }

    /// Whether any thread of a low-priority program was seen running.
    pub(in crate::qos) fn knows_threads(&self) -> bool {
        self.running > 0.0
    }

    /// Moves low-priority programs away, later threads included, if a phase requests it, or under contention with a
    /// controller that leaves this to us. Without it they run anywhere. Naps and limits handle the rest.
    pub(in crate::qos) fn proposals(
        &mut self,
        ctx: &Ctx<'_>,
        config: &QosConfig,
        view: &View,
        phase: Option<(Phase, Time)>,
        now: Time,
    ) -> Vec<Proposal> {
        self.note(config, view);
        let low = view.tasks.iter().filter(|task| config.low.contains(&task.info.app));
        let told = matches!(config.controller, Controller::Steady(_));
        let Some((phase, began)) = phase.filter(|(phase, _)| if told { phase.aside } else { phase.why != Why::Silent })
        else {
            let back = self.sent.take().is_some();
            let reason = phase.map_or_else(
                || Reason::new("place", NOBODY),
                |(phase, _)| reason(config, &phase, format!("{}{}", phase.figures(), phase.why)),
            );
            let release =
                |task: &TaskView| Proposal { action: Action::Release { task: task.info.id }, reason: reason.clone() };
            return low.filter(|_| back).map(release).collect();
        };
        let contended = began == now && matches!(phase.why, Why::Contention | Why::Decrease | Why::Waits);
        let due = if told { self.sent.is_none() } else { contended };
        let answers = due && self.send(ctx, told, now);
        let (why, newest) = match self.newest {
            _ if answers => (format!("{}contention", phase.figures()), None),
            Some(newest) => ("as the rest of its program".to_owned(), Some(newest)),
            None => return Vec::new(),
        };
        let Some((contexts, _)) = &self.sent else { return Vec::new() };
        self.newest = view.tasks.last().map(|task| task.info.id).max(newest);
        let reason = reason(config, &phase, format!("{why}: away from the programs of high priority"));
        let place = |task: &TaskView| {
            let contexts = contexts.and(&task.info.allowed); // a thread that may not go there naps instead
            let action = Action::Place { task: task.info.id, contexts };
            Proposal { action, reason: reason.clone() }
        };
        let goes = |task: &&TaskView| task.info.allowed.intersects(contexts) && Some(task.info.id) > newest;
        low.filter(goes).map(place).collect()
    }

    /// Decides the place of the others from now on; returns whether it changed.
    fn send(&mut self, ctx: &Ctx<'_>, leave_free: bool, now: Time) -> bool {
        if self.sent.as_ref().is_some_and(|(_, at)| now - *at < LASTS) {
            return false;
        }
        let threads = self.running.ceil() as usize;
        let Some(place) = place(ctx.topology, &self.theirs, threads, leave_free) else { return false };
        let new = self.sent.as_ref().is_none_or(|(before, _)| *before != place);
        self.sent = Some((place, now));
        new
    }

    /// The place of the others.
    pub fn place(&self) -> Option<&CpuSet> {
        self.sent.as_ref().map(|(place, _)| place)
    }
}

fn reason(config: &QosConfig, phase: &Phase, what: String) -> Reason {
    Reason { what: what.into(), app: config.beneficiary(phase), ..Reason::new("place", "") }
}

/// CPUs without a common package with those used for such `shares` of time. If these are fewer than the threads:
/// without a common last-level cache, then core, then CPU. With `leave_free`, all but as many as the others need at
/// once. `None` if nothing or everything remains.
fn place(topology: &Topology, shares: &BTreeMap<CpuId, f64>, threads: usize, leave_free: bool) -> Option<CpuSet> {
    let theirs: CpuSet = shares.iter().filter(|(_, share)| **share >= THEIRS).map(|(cpu, _)| *cpu).collect();
    let groups = |all: Vec<&CpuSet>| {
        all.into_iter().filter(|group| group.intersects(&theirs)).fold(theirs.clone(), |sum, group| sum.or(group))
    };
    let domains = topology.llc_domains().iter().map(|domain| &domain.cpus).collect();
    let near = [
        groups(topology.packages().iter().collect()),
        groups(domains),
        groups(topology.cores().iter().collect()),
        theirs.clone(),
    ];
    let near = near.into_iter().filter(|near| !near.is_empty()).chain(needed(topology, shares).filter(|_| leave_free));
    let places: Vec<CpuSet> =
        near.map(|near| topology.usable().minus(&near)).filter(|place| !place.is_empty()).collect();
    places.iter().find(|place| place.len() >= threads).or(places.iter().max_by_key(|place| place.len())).cloned()
}

/// Cores on which programs with such shares of time nearly always find a free CPU, at most half of all. `None` if that
/// cannot suffice.
fn needed(topology: &Topology, shares: &BTreeMap<CpuId, f64>) -> Option<CpuSet> {
    let (demand, half) = (shares.values().sum::<f64>(), topology.usable().len() / 2);
    if half == 0 || demand.ceil() > half as f64 {
        return None;
    }
    let wanted = ((demand + DEVIATIONS * demand.sqrt()).ceil() as usize).clamp(1, half);
    let ran = |cpus: &CpuSet| cpus.iter().filter_map(|cpu| shares.get(&cpu)).sum::<f64>();
    let usable = |core: &CpuSet| core.and(topology.usable());
    let mut cores: Vec<CpuSet> = topology.cores().iter().map(usable).filter(|core| core.len() <= half).collect();
    if cores.is_empty() {
        cores = topology.usable().iter().take(half).map(CpuSet::single).collect();
    }
    cores.sort_by(|a, b| ran(b).total_cmp(&ran(a)));
    let enough = |left: &CpuSet, core: &CpuSet| left.len() < wanted && left.len() + core.len() <= half;
    let left = cores.iter().fold(CpuSet::new(), |left, core| if enough(&left, core) { left.or(core) } else { left });
    (!left.is_empty()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::machine;

    fn cpus(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    /// 2 packages of 2 cores with 2 contexts each; as `testing::machine` numbers them.
    /// Holds qos/means.
    #[test]
    fn as_far_away_as_there_is_room() {
        let topology = machine(2, 1, 2, 2);
        let all = |cpus: &CpuSet, share: f64| cpus.iter().map(|cpu| (cpu, share)).collect::<BTreeMap<_, _>>();
        let place = |topology, cpus: &CpuSet, threads| place(topology, &all(cpus, 1.0), threads, false);
        let core = topology.cores()[0].clone();
        let package = topology.packages()[0].clone();
        let one = core.first().map(CpuSet::single).unwrap();
        assert_eq!(place(&topology, &one, 4), Some(topology.packages()[1].clone()), "another package");
        assert_eq!(place(&topology, &one, 6), Some(topology.usable().minus(&core)), "another core");
        assert_eq!(place(&topology, &one, 7), Some(topology.usable().minus(&one)), "another context");
        assert_eq!(place(&topology, &one, 90), Some(topology.usable().minus(&one)), "as many as there are");
        assert_eq!(place(&topology, &package, 1), Some(topology.packages()[1].clone()));
        assert_eq!(place(&topology, topology.usable(), 1), None, "they run everywhere");
        assert_eq!(place(&topology, &cpus(""), 1), None, "nobody knows where");
    }

    /// Demand 0.16 and twice its root 0.8 make one CPU; 0.64 and 1.6 three, of cores of two four; 4 of 8 CPUs are half
    /// of them, and more cannot be enough.
    /// Holds qos/means.
    #[test]
    fn who_runs_everywhere_keeps_as_many_cpus_as_he_needs_at_once() {
        let every = |topology: &Topology, demand: f64| {
            let share = demand / topology.usable().len() as f64;
            place(topology, &topology.usable().iter().map(|cpu| (cpu, share)).collect(), 90, true)
        };
        let (two, smt) = (machine(1, 1, 2, 1), machine(2, 1, 2, 2));
        let all = |topology: &Topology, cores: usize| {
            topology.cores()[..cores].iter().fold(topology.usable().clone(), |left, core| left.minus(core))
        };
        assert_eq!(every(&two, 0.16), Some(all(&two, 1)));
        assert_eq!(every(&two, 0.9), Some(all(&two, 1)));
        assert_eq!(every(&two, 1.1), None);
        assert_eq!(every(&smt, 0.16), Some(all(&smt, 1)));
        assert_eq!(every(&smt, 0.64), Some(all(&smt, 2)));
        assert_eq!(every(&smt, 4.0), Some(all(&smt, 2)));
        assert_eq!(every(&smt, 4.1), None);
        assert_eq!(every(&machine(1, 1, 1, 1), 0.1), None);
        assert_eq!(every(&machine(1, 1, 1, 2), 0.1).map(|place| place.len()), Some(1));
        // The core on which they run most.
        let mostly = [(0, 0.01), (1, 0.09)].map(|(cpu, share)| (CpuId(cpu), share)).into();
        assert_eq!(place(&two, &mostly, 2, true), Some(cpus("0")));
        assert_eq!(place(&two, &mostly, 2, false), None, "unless told to");
    }
}
