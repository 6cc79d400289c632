//! Naps and limits of CPU time of whole applications, exactly as ordered: what a freezer and a quota bring about.

use super::{BRIEF, Life, World};
use crate::Ns;
use cotenant_model::{Action, AppId, CpuId, Outcome};

impl World {
    /// Does what concerns an application as a whole.
    pub(crate) fn obey(&mut self, app: AppId, action: &Action) -> Outcome {
        let app = app.index();
        if self.apps.get(app).is_none_or(|known| known.life != Life::Running) {
            return Outcome::Gone;
        }
        match action {
            Action::Nap { until, .. } => self.nap(app, until.0),
            Action::Limit { cpu_permille, .. } => {
                self.limit(app, cpu_permille.map(|permille| f64::from(permille) / 1e3));
            }
            _ => return Outcome::NotThisMachine,
        }
        Outcome::Applied
    }

    /// Lets all of an application sleep until a time; one that has passed wakes it. Sleepers keep what they hold of
    /// the caches until others take it.
    pub(crate) fn nap(&mut self, app: usize, until: Ns) {
        self.apps[app].nap_until = until;
        if until <= self.now {
            return self.rouse(app);
        }
        if until - self.now <= BRIEF || (self.woke > 0 && self.now.saturating_sub(self.woke) <= BRIEF) {
            self.brief_until = until + BRIEF;
        }
        self.woke = until;
        self.doze(app);
    }

    /// Lets an application use at most so many CPUs, on average, from now on.
    pub(crate) fn limit(&mut self, app: usize, cpus: Option<f64>) {
        if self.apps[app].limit != cpus {
            self.apps[app].limit = cpus;
            self.disturb();
        }
    }

    /// Puts the running threads of a napping application to sleep.
    pub(super) fn doze(&mut self, app: usize) {
        for thread in self.apps[app].threads.clone() {
            if let Some(cpu) = self.stand(thread, None) {
                self.threads[thread].napping = Some(cpu);
                self.disturb();
            }
        }
    }

    /// Ends the naps whose time has come.
    pub(super) fn end_naps(&mut self) {
        for app in 0..self.apps.len() {
            let until = self.apps[app].nap_until;
            if until > 0 && until <= self.now {
                self.rouse(app);
            }
        }
    }

    /// Lets sleepers go on: on the CPU that each had, if that is idle, else on the idlest.
    fn rouse(&mut self, app: usize) {
        self.apps[app].nap_until = 0;
        for thread in self.apps[app].threads.clone() {
            let Some(before) = self.threads[thread].napping.take() else { continue };
            self.put_back(thread, before);
        }
    }

    /// Puts a thread that slept on the CPU that it had, if that is idle and allowed, else on the idlest.
    pub(crate) fn put_back(&mut self, thread: usize, before: usize) {
        let may = self.threads[thread].mask.contains(CpuId(before as u32));
        let cpu = if self.queues[before] == 0 && may { before } else { self.idlest(thread) };
        self.stand(thread, Some(before)); // where a migration is counted from
        self.put(thread, cpu);
        self.disturb();
    }
}
