//! Who decides about whom: each policy that the rules name about its services, and `qos` about all of class high and
//! low.

use super::config::{Class, Config, Terms};
use super::{Managed, Shift};
use crate::cmd::qos::{Protected, keep};
use crate::settings::{Decider, Setup};
use anyhow::Result;
use cotenant_model::policy::Policy;
use cotenant_model::profile::MachineProfile;
use cotenant_model::{AppId, Effect, Owns, Topology};
use cotenant_policies::Qos;
use std::collections::{BTreeMap, BTreeSet};

/// Who is to be kept at a goal, and who gives way for it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Cast {
    pub high: Vec<Protected>,
    low: Vec<AppId>,
    names: BTreeSet<String>,
}

impl Cast {
    /// `waits`: whether it can be throttled.
    fn add(&mut self, app: AppId, name: &str, terms: &Terms, waits: bool) {
        match terms.class {
            Class::High => self.high.push(Protected { app, metric: terms.metric.clone(), goal: Some(terms.goal) }),
            Class::Low if waits => self.low.push(app),
            Class::Low | Class::Normal | Class::Ignore => return,
        }
        self.names.insert(name.to_owned());
    }
}

/// The policies of the rules, about nobody yet.
pub(super) fn setup(config: &Config, machine: (Topology, MachineProfile)) -> Result<Setup> {
    let mut deciders = Vec::new();
    for policy in config.policies() {
        let decider = config.decider(policy, &machine)?;
        deciders.push(Decider { owns: Owns { apps: Some(BTreeSet::new()), effects: None }, ..decider });
    }
    if deciders.is_empty() {
        deciders.push(config.decider("none", &machine)?);
    }
    let mut setup = Setup::of(machine, None, BTreeMap::new(), deciders)?;
    setup.mode = config.mode;
    Ok(setup)
}

impl Shift<'_> {
    /// Says to each policy whom it decides about.
    pub(super) fn assign(&mut self) -> Result<()> {
        for decider in self.setup.deciders.iter_mut().filter(|decider| decider.policy.name() != Qos::SECTION) {
            let policy = decider.policy.name();
            let own = self.managed.values().filter(|managed| managed.service.terms.policy == policy);
            decider.owns.apps = Some(own.map(|managed| managed.service.name.clone()).collect());
        }
        let mut cast = Cast::default();
        for Managed { app, service, waits, .. } in self.managed.values() {
            cast.add(*app, &service.name, &service.terms, *waits);
        }
        if cast != self.cast {
            self.recast(cast)?;
        }
        Ok(())
    }

    /// Others are to be kept, or to give way.
    fn recast(&mut self, cast: Cast) -> Result<()> {
        let mut deciders: Vec<Decider> = std::mem::take(&mut self.setup.deciders);
        let before: Vec<&str> = deciders.iter().map(|decider| decider.policy.name()).collect();
        // Speeds alone are by the place of who is kept; who gives way may come and go.
        let goes_on = cast.high == self.cast.high;
        let place = |name: &str| before.iter().position(|old| *old == name).filter(|_| goes_on || name != Qos::SECTION);
        let mut kept: Vec<Option<usize>> =
            before.iter().filter(|name| **name != Qos::SECTION).map(|name| place(name)).collect();
        let qos = place(Qos::SECTION);
        deciders.retain(|decider| decider.policy.name() != Qos::SECTION);
        if !cast.high.is_empty() && !cast.low.is_empty() {
            let config = keep(&cast.high, cast.low.clone());
            let effects = [Effect::Nap, Effect::CpuTime, Effect::Caches, Effect::Background];
            let owns = Owns { apps: Some(cast.names.clone()), effects: Some(effects.into()) };
            deciders.insert(0, Decider { owns, ..Decider::live(Qos::SECTION, config, &self.setup.topology)? });
            kept.insert(0, qos);
        }
        (self.setup.deciders, self.cast) = (deciders, cast);
        self.drive.change(&kept);
        Ok(())
    }

    /// These place from now on; who throttles is seen to by the next look.
    pub(super) fn decide_by(&mut self, mut deciders: Vec<Decider>) {
        let before = |new: &Decider| self.setup.deciders.iter().position(|old| old.is_like(new));
        let mut before: Vec<Option<usize>> = deciders.iter().map(before).collect();
        // Who begins anew is to meet nothing that was placed before.
        for (decider, _) in deciders.iter().zip(&before).filter(|(_, before)| before.is_none()) {
            let policy = decider.policy.name();
            let placed = |managed: &&Managed| policy != "none" && managed.service.terms.policy == policy;
            let names: Vec<String> =
                self.managed.values().filter(placed).map(|managed| managed.service.name.clone()).collect();
            for name in names {
                self.leave(&name, "the settings of its policy have changed");
            }
        }
        if let Some(qos) = self.setup.deciders.iter().position(|old| old.policy.name() == Qos::SECTION) {
            deciders.insert(0, self.setup.deciders.swap_remove(qos));
            before.insert(0, Some(qos));
        }
        self.setup.deciders = deciders;
        self.drive.change(&before);
    }
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
