//! Services over the time of a recording, as the daemon sees them over its own.

use crate::run::lived::Lived;
use cotenant_model::policy::{DynPolicy, Explanation, State};
use cotenant_model::usage::Seen;
use cotenant_model::{AppId, AppSample, Mode, Round, Sample, Time, View, text};
use cotenant_record::naps::Naps;
use cotenant_record::{Header, RecordedRound};
use cotenant_setup::registry::registry;
use cotenant_status::class::Class;
use cotenant_status::status::ServiceStatus;
use cotenant_status::watch::Watch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// State while a recording is read.
pub(crate) struct Recorded {
    pub watch: Watch,
    pub policies: Vec<String>,
    /// The policy of each rule; `None` for an unknown name.
    rules: Vec<Option<Box<dyn DynPolicy>>>,
    /// The goals of protected applications.
    high: BTreeMap<AppId, Option<f64>>,
    low: BTreeSet<AppId>,
    /// Whether decisions were carried out.
    enforced: bool,
    pub naps: Naps,
    lived: Lived,
    /// The unique names of applications.
    names: BTreeMap<AppId, String>,
    /// The sample of the last round.
    pub last: Option<Arc<Sample>>,
}

impl Recorded {
    /// CPU time is shown after each `window`.
    pub fn new(header: &Header, window: Duration) -> Self {
        let rules: Vec<_> = header.rules.iter().map(|rule| (rule.policy.clone(), &rule.config)).collect();
        let rules = if rules.is_empty() { vec![(header.policy.clone(), &header.config)] } else { rules };
        let policies: Vec<_> = rules.iter().map(|(name, config)| registry().make(name, config).ok()).collect();
        let parts = policies.iter().flatten().map(|policy| policy.explain(&State::default()));
        let parts: Vec<Explanation> = parts.collect();
        let high = parts.iter().flat_map(|part| &part.protected);
        Self {
            watch: Watch::new(&header.topology, window),
            policies: rules.into_iter().map(|(policy, _)| text::name(policy.as_bytes())).collect(),
            high: high.map(|high| (high.app, high.goal)).collect(),
            low: parts.iter().flat_map(|part| part.throttled.iter().copied()).collect(),
            rules: policies,
            enforced: header.mode == Mode::Enforce,
            naps: Naps::default(),
            lived: Lived::default(),
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
            policy: self.rules.get(recorded.rule).and_then(Option::as_deref),
            decision: recorded.decision.as_ref(),
            orders: &recorded.orders,
            outcomes: &recorded.outcomes,
        };
        self.watch.round(&round, &self.policies, self.enforced);
        self.lived.add(&view);
        for app in &recorded.sample.apps {
            self.call(app);
        }
        self.naps.round(recorded.sample.at, &recorded.orders, &recorded.outcomes);
        for app in recorded.sample.apps.iter().filter(|app| self.low.contains(&app.id)) {
            self.watch.slept(app.id, self.slept(app, recorded.sample.at), recorded.sample.at);
        }
    }

    /// Seconds that an application was kept from running by a sample; from the ordered naps in older recordings.
    pub fn slept(&self, app: &AppSample, at: Time) -> f64 {
        app.paused_ns.map_or_else(|| self.naps.seconds(app.id, at), |ns| ns as f64 / 1e9)
    }

    /// Takes over the use of the machine: if other programs left too little of it, no goal is judged.
    pub fn used(&mut self, usage: &Seen) {
        self.watch.crowded = usage.busy(self.lived.wanted(self.high.keys().copied()));
    }

    /// The policy of a rule.
    pub fn policy(&self, rule: usize) -> Option<&dyn DynPolicy> {
        self.rules.get(rule)?.as_deref()
    }

    /// States of a sample's applications.
    pub fn services(&self, sample: &Sample) -> Vec<ServiceStatus> {
        let mut processes: BTreeMap<AppId, BTreeSet<u32>> = BTreeMap::new();
        for task in &sample.tasks {
            processes.entry(task.info.app).or_default().insert(task.info.pid);
        }
        let service = |app: &AppSample| {
            let high = self.high.get(&app.id);
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
                goal: high.copied().flatten(),
                ..ServiceStatus::default()
            };
            self.watch.fill(app.id, known)
        };
        sample.apps.iter().map(service).collect()
    }

    /// Gives an application a permanent name: that of its program if unused.
    fn call(&mut self, app: &AppSample) {
        if !self.names.contains_key(&app.id) {
            let taken = app.name.is_empty() || self.names.values().any(|name| *name == app.name);
            let name = if taken { format!("{} (app {})", app.name, app.id) } else { app.name.clone() };
            self.names.insert(app.id, name.trim_start().to_owned());
        }
    }
}
