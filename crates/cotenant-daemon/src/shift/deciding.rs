//! Hands services to policies: each policy that the rules name decides about its own, `qos` about all of class high and
//! low.

use super::{Managed, Shift};
use crate::cast::Cast;
use anyhow::Result;
use cotenant_model::policy::Policy;
use cotenant_model::{Effect, Owns};
use cotenant_policies::Qos;
use cotenant_setup::protect::keep;
use cotenant_setup::settings::Decider;
use cotenant_status::class::Class;

/// Limit of services per class whose nice values are compared.
const COMPARED: usize = 16;

impl Shift<'_> {
    /// Hands each policy the services that it decides about.
    pub(super) fn assign(&mut self) -> Result<()> {
        for decider in self.setup.deciders.iter_mut().filter(|decider| decider.policy.name() != Qos::SECTION) {
            let policy = decider.policy.name();
            let own = self.managed.values().filter(|managed| managed.service.terms.policy == policy);
            decider.owns.apps = Some(own.map(|managed| managed.service.name.clone()).collect());
        }
        let mut cast = Cast::default();
        for Managed { app, service, speed, waits, .. } in self.managed.values() {
            cast.add(*app, &service.name, &service.terms, &speed.metric, *waits);
        }
        if cast != self.cast {
            self.recast(cast)?;
        }
        Ok(())
    }

    /// Starts the search for services of class low whose nice values have no effect on those of class high, at most
    /// [`COMPARED`] per class.
    pub(super) fn find_in_vain(&mut self) {
        let mut processes = self.host.processes();
        let mut of = |class| {
            let services = self.managed.values().filter(|managed| managed.service.terms.class == class);
            let named = |managed: &Managed| Some((managed.service.name.clone(), processes.remove(&managed.app)?));
            services.take(COMPARED).filter_map(named).collect::<Vec<_>>()
        };
        let [low, high] = [Class::Low, Class::High].map(&mut of);
        self.comparison.begin(low, high);
    }

    /// The applications that keep a goal, or give way, are others from now on.
    fn recast(&mut self, cast: Cast) -> Result<()> {
        let mut deciders: Vec<Decider> = std::mem::take(&mut self.setup.deciders);
        let before: Vec<&str> = deciders.iter().map(|decider| decider.policy.name()).collect();
        // Speeds alone are indexed by protected service; services that give way may change.
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

    /// These policies place from now on; the next look hands out the throttling.
    pub(super) fn decide_by(&mut self, mut deciders: Vec<Decider>) {
        let before = |new: &Decider| self.setup.deciders.iter().position(|old| old.is_like(new));
        let mut before: Vec<Option<usize>> = deciders.iter().map(before).collect();
        // A restarted policy must not meet earlier placements.
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
