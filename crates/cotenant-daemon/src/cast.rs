//! The services with a goal, those that give way, and the policies of the rules.

use crate::config::{Config, Terms};
use anyhow::Result;
use cotenant_model::profile::MachineProfile;
use cotenant_model::{AppId, Owns, Topology};
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
    /// `waits`: whether the application can be throttled.
    pub fn add(&mut self, app: AppId, name: &str, terms: &Terms, waits: bool) {
        match terms.class {
            Class::High => self.high.push(Protected { app, metric: terms.metric.clone(), goal: Some(terms.goal) }),
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
        cast.add(AppId(0), "database", &terms(Class::High, 0.8), false);
        cast.add(AppId(1), "batch", &terms(Class::Low, 0.9), true);
        cast.add(AppId(2), "stuck", &terms(Class::Low, 0.9), false);
        cast.add(AppId(3), "web", &terms(Class::Normal, 0.9), false);
        assert_eq!((&*cast.low, cast.high.len(), cast.names.len()), (&[AppId(1)][..], 1, 2));
        assert_eq!((cast.high[0].app, cast.high[0].goal), (AppId(0), Some(0.8)));
    }
}
