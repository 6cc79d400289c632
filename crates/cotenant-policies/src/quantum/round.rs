//! The jobs of a queue, and the fixed inputs of a decision about them.

use cotenant_model::policy::Ctx;
use cotenant_model::profile::AppProfile;
use cotenant_model::{AppId, CpuId, CpuSet, TaskView, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A CPU with more foreign work than this fraction is taken: a batch can still use the rest of others.
const TAKEN: f64 = 0.5;
/// One of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantum {
    /// Jobs in the order of arrival, as many as fit, each to its end.
    Fifo,
    /// Memory-contention aware (Xu et al., PACT 2010): selects jobs; Linux chooses the cores.
    Mas,
    /// Cache-hierarchy contention aware: selects as `mas`, and balances arrivals at each shared cache.
    Cas,
    /// As `cas`; sensitive jobs weigh more than their traffic.
    Das,
}

impl Quantum {
    /// Whether it also chooses CPUs.
    pub(super) fn allocates(self) -> bool {
        matches!(self, Self::Cas | Self::Das)
    }
}

/// A job in the queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    pub app: AppId,
    /// LLC misses per second in its last quantum.
    pub misses: Option<f64>,
    /// Accesses per second arriving at its caches of each level, likewise.
    pub arrivals: Vec<(u8, f64)>,
    /// CPUs that its threads needed then, at least 1.
    pub width: usize,
    /// It has not run, and its width is only declared.
    pub said: bool,
    /// Selected for this quantum.
    pub runs: bool,
    /// Its CPUs, if they were chosen.
    pub cpus: CpuSet,
    /// Quanta that it is behind its share of them; below 0: ahead.
    #[serde(skip_serializing_if = "is_0")]
    pub behind: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // required by serde
fn is_0(quanta: &f64) -> bool {
    *quanta == 0.0
}

/// Fixed inputs of a decision.
pub(super) struct Round<'a> {
    pub policy: Quantum,
    pub ctx: &'a Ctx<'a>,
    pub view: &'a View,
    /// The placeable tasks of each application.
    pub tasks: BTreeMap<AppId, Vec<&'a TaskView>>,
    /// CPUs to fill: those that some task may use, without foreign work.
    pub cpus: CpuSet,
    /// Profile of each application of the view, looked up once because there may be a thousand.
    pub profiles: Vec<Option<&'a AppProfile>>,
    /// As [`QuantumState::first_penalties`].
    pub first_penalties: bool,
}

impl<'a> Round<'a> {
    pub fn new(policy: Quantum, ctx: &'a Ctx<'a>, view: &'a View) -> Self {
        let usable = ctx.topology.usable();
        let mut tasks: BTreeMap<AppId, Vec<&TaskView>> = BTreeMap::new();
        let (mut cpus, mut last) = (CpuSet::new(), None);
        for task in view.tasks.iter().filter(|t| t.info.allowed.intersects(usable)) {
            tasks.entry(task.info.app).or_default().push(task);
            if last != Some(&task.info.allowed) {
                cpus = cpus.or(&task.info.allowed.and(usable));
                last = Some(&task.info.allowed);
            }
        }
        let taken = ctx.config.foreign_busy.max(TAKEN);
        let busy = |cpu: &CpuId| view.cpu(*cpu).is_some_and(|c| c.foreign > taken);
        let idle: CpuSet = cpus.iter().filter(|cpu| !busy(cpu)).collect();
        let profiles = view.apps.iter().map(|app| ctx.apps.get(&app.name)).collect();
        Self {
            policy,
            ctx,
            view,
            tasks,
            cpus: if idle.is_empty() { cpus } else { idle },
            profiles,
            first_penalties: false,
        }
    }

    pub fn profile(&self, app: AppId) -> Option<&'a AppProfile> {
        self.profiles[self.view.apps.binary_search_by_key(&app, |a| a.id).ok()?]
    }

    /// CPUs allowed for a job's tasks; `None`: every CPU to fill.
    pub fn allowed(&self, app: AppId) -> Option<CpuSet> {
        let tasks = self.tasks.get(&app).map_or(&[][..], Vec::as_slice);
        if tasks.iter().any(|t| self.cpus.is_subset(&t.info.allowed)) {
            return None;
        }
        let all = tasks.iter().fold(CpuSet::new(), |all, t| all.or(&t.info.allowed)).and(&self.cpus);
        (all != self.cpus).then_some(all)
    }
}

impl Job {
    pub fn arrives(&self, level: u8) -> Option<f64> {
        self.arrivals.iter().find(|(l, _)| *l == level).map(|(_, rate)| *rate)
    }
}
