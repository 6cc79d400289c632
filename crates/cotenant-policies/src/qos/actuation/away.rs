//! The mildest means: low-priority programs run where those of high priority do not, as far away as there is room.

use super::NOBODY;
use crate::qos::phase::{Phase, Why};
use crate::qos::settings::QosConfig;
use cotenant_model::policy::Ctx;
use cotenant_model::{Action, CpuId, CpuSet, Proposal, Reason, Signal, TaskId, TaskView, Time, Topology, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// High-priority programs own a CPU on which they run for at least this share of the time.
const THEIRS: f64 = 0.1;

/// Weight of a new look at where programs run against the older ones.
const WEIGHT: f64 = 0.2;

/// Programs may move: after this long, contention is answered by another place, if there is one.
const LASTS: Duration = Duration::from_secs(5);

/// Where programs of high priority run, and where the others were sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Away {
    /// Share of the time in which programs of high priority ran on each CPU; moving means.
    theirs: BTreeMap<CpuId, f64>,
    /// Threads of the others that ran; a moving mean.
    running: f64,
    /// Seconds since the threads were looked at.
    #[serde(default)]
    since_s: f64,
    /// Where the others were sent.
    sent: Option<(CpuSet, Time)>,
    /// The newest thread by then: those with a greater id came later.
    #[serde(default)]
    newest: Option<TaskId>,
}

impl Away {
    /// Notes where programs run. A view without news counts for nothing: not every round looks at the threads.
    fn note(&mut self, config: &QosConfig, view: &View) {
        let seconds = view.interval.as_secs_f64();
        self.since_s += seconds;
        // Seconds that it ran since the last look at it, which may be longer ago than the last view.
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

    /// Moves the low-priority programs away where a phase that begins now answers contention, their later threads too,
    /// and lets them run anywhere without one. Naps and limits keep what is then left to be kept.
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
        let Some((phase, began)) = phase else {
            let back = self.sent.take().is_some();
            let release = |task: &TaskView| Proposal {
                action: Action::Release { task: task.info.id },
                reason: Reason::new("place", NOBODY),
            };
            return low.filter(|_| back).map(release).collect();
        };
        let answers = began == now && matches!(phase.why, Why::Contention | Why::Decrease) && self.send(ctx, now);
        let (why, newest) = match self.newest {
            _ if answers => (format!("{}contention", phase.figures()), None),
            Some(newest) => ("as the rest of its program".to_owned(), Some(newest)),
            None => return Vec::new(),
        };
        let Some((contexts, _)) = &self.sent else { return Vec::new() };
        self.newest = view.tasks.last().map(|task| task.info.id).max(newest);
        let reason = Reason {
            what: format!("{why}: away from the programs of high priority").into(),
            app: config.beneficiary(&phase),
            ..Reason::new("place", "")
        };
        let place = |task: &TaskView| {
            let contexts = contexts.and(&task.info.allowed); // a thread that may not go there naps
            let action = Action::Place { task: task.info.id, contexts };
            Proposal { action, reason: reason.clone() }
        };
        let goes = |task: &&TaskView| task.info.allowed.intersects(contexts) && Some(task.info.id) > newest;
        low.filter(goes).map(place).collect()
    }

    /// Decides where the others run from now on; whether that is another place than before.
    fn send(&mut self, ctx: &Ctx<'_>, now: Time) -> bool {
        if self.sent.as_ref().is_some_and(|(_, at)| now - *at < LASTS) {
            return false;
        }
        let theirs: CpuSet = self.theirs.iter().filter(|(_, share)| **share >= THEIRS).map(|(cpu, _)| *cpu).collect();
        let Some(place) = place(ctx.topology, &theirs, self.running.ceil() as usize) else { return false };
        let new = self.sent.as_ref().is_none_or(|(before, _)| *before != place);
        self.sent = Some((place, now));
        new
    }

    /// Where the others were sent.
    pub fn place(&self) -> Option<&CpuSet> {
        self.sent.as_ref().map(|(place, _)| place)
    }
}

/// The CPUs that share no package with `theirs`; where these are fewer than the threads, those that share no last-level
/// cache, no core, no CPU. `None` where nothing is left, or where all is.
fn place(topology: &Topology, theirs: &CpuSet, threads: usize) -> Option<CpuSet> {
    if theirs.is_empty() {
        return None;
    }
    let groups = |all: Vec<&CpuSet>| {
        all.into_iter().filter(|group| group.intersects(theirs)).fold(theirs.clone(), |sum, group| sum.or(group))
    };
    let domains = topology.llc_domains().iter().map(|domain| &domain.cpus).collect();
    let near = [
        groups(topology.packages().iter().collect()),
        groups(domains),
        groups(topology.cores().iter().collect()),
        theirs.clone(),
    ];
    let places: Vec<CpuSet> =
        near.into_iter().map(|near| topology.usable().minus(&near)).filter(|place| !place.is_empty()).collect();
    places.iter().find(|place| place.len() >= threads).or(places.last()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::machine;

    fn cpus(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    /// 2 packages of 2 cores with 2 contexts each; as `testing::machine` numbers them.
    #[test]
    fn as_far_away_as_there_is_room() {
        let topology = machine(2, 1, 2, 2);
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
}
