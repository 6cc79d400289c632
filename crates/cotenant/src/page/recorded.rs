//! Services over the time of a recording, as the daemon sees them over its own.

use crate::args::MetricArg;
use crate::cmd::qos::Protected;
use crate::daemon::config::Class;
use crate::daemon::status::ServiceStatus;
use crate::daemon::watch::Watch;
use cotenant_model::policy::Policy as _;
use cotenant_model::{AppId, AppSample, Round, Sample, View, text};
use cotenant_policies::{High, Qos};
use cotenant_record::naps::Naps;
use cotenant_record::{Header, RecordedRound};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What is known of them while a recording is read.
pub(crate) struct Recorded {
    pub watch: Watch,
    pub policies: Vec<String>,
    high: Vec<Protected>,
    low: BTreeSet<AppId>,
    pub naps: Naps,
    /// What applications are called: no two of them alike.
    names: BTreeMap<AppId, String>,
    /// The sample of the last round.
    pub last: Option<Arc<Sample>>,
}

impl Recorded {
    /// CPU time is told after each `window`.
    pub fn new(header: &Header, window: Duration) -> Self {
        let rules: Vec<_> = header.rules.iter().map(|rule| (rule.policy.clone(), &rule.config)).collect();
        let rules = if rules.is_empty() { vec![(header.policy.clone(), &header.config)] } else { rules };
        let qos = rules.iter().find(|(policy, _)| policy == Qos::SECTION);
        let qos = qos.and_then(|(_, config)| config.settings.of::<Qos>().ok().flatten());
        let goal = qos.as_ref().and_then(|qos| qos.controller.goal());
        let protected = |high: &High| Protected {
            app: high.app,
            metric: MetricArg { source: high.metric.clone(), outside: None },
            goal: high.goal.or(goal),
        };
        Self {
            watch: Watch::anew(&header.topology, window),
            policies: rules.into_iter().map(|(policy, _)| text::name(policy.as_bytes())).collect(),
            high: qos.iter().flat_map(|qos| &qos.high).map(protected).collect(),
            low: qos.iter().flat_map(|qos| qos.low.iter().copied()).collect(),
            naps: Naps::default(),
            names: BTreeMap::new(),
            last: None,
        }
    }

    pub fn round(&mut self, recorded: &RecordedRound) {
        let view = View::new(&recorded.prev, &recorded.sample);
        let last = self.last.replace(recorded.sample.clone()).unwrap_or_else(|| recorded.prev.clone());
        let round = Round {
            rule: recorded.rule,
            last: &last,
            prev: &recorded.prev,
            sample: &recorded.sample,
            whole: true,
            view: &view,
            decision: recorded.decision.as_ref(),
            orders: &recorded.orders,
            outcomes: &recorded.outcomes,
        };
        self.watch.round(&round, &self.policies, &self.high);
        for app in &recorded.sample.apps {
            self.call(app);
        }
        self.naps.round(recorded.sample.at, &recorded.orders, &recorded.outcomes);
        for app in &self.low {
            self.watch.slept_s(*app, self.naps.seconds(*app, recorded.sample.at), recorded.sample.at);
        }
    }

    /// How the applications of a sample stand.
    pub fn services(&self, sample: &Sample) -> Vec<ServiceStatus> {
        let mut processes: BTreeMap<AppId, BTreeSet<u32>> = BTreeMap::new();
        for task in &sample.tasks {
            processes.entry(task.info.app).or_default().insert(task.info.pid);
        }
        let service = |app: &AppSample| {
            let high = self.high.iter().find(|high| high.app == app.id);
            let class = match (high.is_some(), self.low.contains(&app.id)) {
                (true, _) => Class::High,
                (false, true) => Class::Low,
                (false, false) => Class::Normal,
            };
            let known = ServiceStatus {
                name: self.names.get(&app.id).unwrap_or(&app.name).clone(),
                class,
                policy: self.policies.join(", "),
                processes: processes.get(&app.id).map_or(0, BTreeSet::len),
                goal: high.and_then(|high| high.goal),
                ..ServiceStatus::default()
            };
            self.watch.fill(app.id, known)
        };
        sample.apps.iter().map(service).collect()
    }

    /// Gives an application a name, which it keeps; that of its program, where nobody has it yet.
    fn call(&mut self, app: &AppSample) {
        if !self.names.contains_key(&app.id) {
            let taken = app.name.is_empty() || self.names.values().any(|name| *name == app.name);
            let name = if taken { format!("{} (app {})", app.name, app.id) } else { app.name.clone() };
            self.names.insert(app.id, name.trim_start().to_owned());
        }
    }
}
