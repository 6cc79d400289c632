//! Naps and CPU limits of whole applications, exactly as ordered, like a freezer and a quota.

use super::{BRIEF, Life, World};
use crate::Ns;
use cotenant_model::{Action, AppId, CpuId, Outcome};

impl World {
    /// Carries out an order about a whole application.
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

    /// Pauses an application until a time; a past time wakes it. It keeps its cache contents until others evict them.
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

    /// Limits an application to this many CPUs on average from now on.
    pub(crate) fn limit(&mut self, app: usize, cpus: Option<f64>) {
        if self.apps[app].limit != cpus {
            self.apps[app].limit = cpus;
            self.disturb();
        }
    }

    /// Takes the running threads of a napping application off their CPUs.
    pub(super) fn doze(&mut self, app: usize) {
        for thread in self.apps[app].threads.clone() {
            if let Some(cpu) = self.stand(thread, None) {
                self.threads[thread].napping = Some(cpu);
                self.disturb();
            }
        }
    }

    /// Ends due naps.
    pub(super) fn end_naps(&mut self) {
        for app in 0..self.apps.len() {
            let until = self.apps[app].nap_until;
            if until > 0 && until <= self.now {
                self.rouse(app);
            }
        }
    }

    /// Resumes paused threads: each on its former CPU if that is idle, otherwise on the idlest.
    fn rouse(&mut self, app: usize) {
        self.apps[app].nap_until = 0;
        for thread in self.apps[app].threads.clone() {
            let Some(before) = self.threads[thread].napping.take() else { continue };
            self.put_back(thread, before);
        }
    }

    /// Puts a resumed thread on its former CPU if that is idle and allowed, otherwise on the idlest.
    pub(crate) fn put_back(&mut self, thread: usize, before: usize) {
        let may = self.threads[thread].mask.contains(CpuId(before as u32));
        let cpu = if self.queues[before] == 0 && may { before } else { self.idlest(thread) };
        self.stand(thread, Some(before)); // the origin of the counted migration
        self.put(thread, cpu);
        self.disturb();
    }
}
