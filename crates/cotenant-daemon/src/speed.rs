//! Where the speed of a service is read.

use crate::services::Service;
use cotenant_setup::args::MetricArg;
use std::time::{Duration, Instant};

/// Time until a service without a metric is looked at again, since servers listen some time after their start: at
/// first, doubled each time, and at most.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// Where the speed of a managed service is read.
pub(crate) struct Speed {
    pub metric: MetricArg,
    /// Without a named metric: when to look again, and the time after that.
    again: Option<(Instant, Duration)>,
}

impl Speed {
    pub fn new(metric: MetricArg, service: &Service) -> Self {
        let again = service.terms.metric.is_none().then(|| (Instant::now() + AGAIN[0], AGAIN[0]));
        Self { metric, again }
    }

    /// Whether it is what clients wait, which no rule named.
    pub fn is_chosen(&self) -> bool {
        self.again.is_some() && self.metric.is_by_bpf()
    }

    /// Whether it is time to look again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|(at, _)| at <= now)
    }

    /// Puts the next look off.
    pub fn later(&mut self, now: Instant) {
        if let Some((at, wait)) = &mut self.again {
            *wait = (*wait * 2).min(AGAIN[1]);
            *at = now + *wait;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Terms;

    #[test]
    fn who_does_not_listen_yet_is_looked_at_ever_more_seldom() {
        let mut service = Service::called("db", "db", 0);
        let mut speed = Speed::new(MetricArg::default(), &service);
        let mut now = Instant::now() + AGAIN[0];
        let mut gaps = Vec::new();
        for _ in 0..8 {
            assert!(speed.is_due(now) && !speed.is_chosen());
            speed.later(now);
            let next = speed.again.unwrap().0;
            gaps.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(gaps, [4, 8, 16, 32, 60, 60, 60, 60]);
        service.terms = Terms { metric: Some(MetricArg::default()), ..Terms::default() };
        assert!(!Speed::new(MetricArg::default(), &service).is_due(now), "its rule names one");
    }
}
