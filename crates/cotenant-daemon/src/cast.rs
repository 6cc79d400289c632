//! The services with a goal, those that give way, and the policies of the rules.

use crate::config::{Config, Terms};
use anyhow::Result;
use cotenant_model::profile::MachineProfile;
use cotenant_model::{AppId, Owns, Topology};
use cotenant_setup::args::MetricArg;
use cotenant_setup::protect::Protected;
use cotenant_setup::settings::{Decider, Setup};
use cotenant_status::class::Class;
use std::collections::{BTreeMap, BTreeSet};

/// The applications with a goal, and those that give way.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Cast {
    pub high: Vec<Protected>,
    pub low: Vec<AppId>,
    pub names: BTreeSet<String>,
}

impl Cast {
    /// `metric`: the source of its speed; `waits`: whether the application can be throttled.
    pub fn add(&mut self, app: AppId, name: &str, terms: &Terms, metric: &MetricArg, waits: bool) {
        match terms.class {
            Class::High => self.high.push(Protected { app, metric: metric.clone(), goal: Some(terms.goal) }),
            Class::Low if waits => self.low.push(app),
            Class::Low | Class::Normal | Class::Ignore => return,
        }
        self.names.insert(name.to_owned());
    }
}

/// The policies of the rules, before any application is theirs.
pub(crate) fn setup(config: &Config, machine: (Topology, MachineProfile)) -> Result<Setup> {
    let mut deciders = Vec::new();
    for policy in config.policies() {
        let decider = config.decider(policy, &machine)?;
        deciders.push(Decider { owns: Owns { apps: Some(BTreeSet::new()), effects: None }, ..decider });
    }
    if deciders.is_empty() {
        deciders.push(config.decider("none", &machine)?);
    }
    let mut setup = Setup::of(machine, None, BTreeMap::new(), deciders)?;
    (setup.mode, setup.bpf) = (config.mode, config.bpf);
    Ok(setup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_those_of_class_high() {
        let terms = |class, goal| Terms { class, goal, ..Terms::default() };
        let mut cast = Cast::default();
        let mut add = |app, name, class, goal, waits| {
            cast.add(AppId(app), name, &terms(class, goal), &MetricArg::default(), waits);
        };
        add(0, "database", Class::High, 0.8, false);
        add(1, "batch", Class::Low, 0.9, true);
        add(2, "stuck", Class::Low, 0.9, false);
        add(3, "web", Class::Normal, 0.9, false);
        assert_eq!((&*cast.low, cast.high.len(), cast.names.len()), (&[AppId(1)][..], 1, 2));
        assert_eq!((cast.high[0].app, cast.high[0].goal), (AppId(0), Some(0.8)));
    }
}
