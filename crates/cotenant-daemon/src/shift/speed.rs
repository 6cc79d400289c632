//! Where the speed of services is read.

use super::{Managed, Shift};
use crate::log;
use crate::services::Service;
use cotenant_model::Mode;
use cotenant_setup::args::MetricArg;
use cotenant_setup::unnamed;
use cotenant_status::class::Class;
use std::time::Instant;

/// Services whose clients are seen without a named metric: each costs a little at every packet.
const SEEN: usize = 8;

impl Shift<'_> {
    /// The metric of a service: the named one; without any, for class high in the mode `enforce`, what its clients
    /// wait, as `qos` has it.
    pub(super) fn metric_of(&mut self, service: &Service) -> MetricArg {
        let name = &service.name;
        if let Some(named) = &service.terms.metric {
            if self.config.bpf || !named.is_by_bpf() {
                return named.clone();
            }
            // By an annotation: rules are refused.
            self.logbook.remark(&format!("{name}: metric {}: bpf = false does without it", named.name()));
            return MetricArg::default();
        }
        let seen = self.managed.values().filter(|known| known.speed.is_chosen() && known.service.name != *name).count();
        let may = self.config.bpf && self.mode() == Mode::Enforce && seen < SEEN;
        if !may || service.terms.class != Class::High {
            return MetricArg::default();
        }
        let (metric, note) = unnamed::metric(name, &service.target.pids(), |source| format!("metric = \"{source}\""));
        match note {
            Some(note) if metric.is_by_bpf() => {
                tracing::info!(MESSAGE_ID = log::SERVICE, COTENANT_SERVICE = &**name, "{note}");
            }
            Some(note) => self.logbook.remark(&note),
            None => {}
        }
        metric
    }

    /// Looks again at services without a named metric: whether they listen by now, or elsewhere.
    pub(super) fn look_for_clients(&mut self) {
        let now = Instant::now();
        let unknown =
            |known: &Managed| !known.speed.metric.is_by_bpf() || self.host.failing_metric(known.app).is_some();
        let due = |known: &&Managed| known.speed.is_due(now) && unknown(known);
        let due: Vec<Service> = self.managed.values().filter(due).map(|known| known.service.clone()).collect();
        for service in due {
            let metric = self.metric_of(&service);
            let Some(known) = self.managed.get_mut(&service.name) else { continue };
            if metric.is_by_bpf() && metric != known.speed.metric {
                self.leave(&service.name, "its speed is read elsewhere from now on");
                self.take_on_by(service, metric);
            } else {
                known.speed.later(now);
            }
        }
    }
}
