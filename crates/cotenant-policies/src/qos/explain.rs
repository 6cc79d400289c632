//! The state of `qos` as shown values.

use super::settings::QosConfig;
use super::state::QosState;
use cotenant_model::policy::{Bound, Explanation, Limited, ProtectedApp, Statement, Throttling};
use cotenant_model::speed::Source;

impl QosState {
    /// The protected programs with their results, the programs that give way, and how these are throttled.
    pub(super) fn explain(&self, config: &QosConfig) -> Explanation {
        let of = |sums: &[f64], i: usize| sums.get(i).copied().unwrap_or_default();
        let protected = config.high.iter().enumerate().map(|(i, high)| {
            let (alone, goal) = (self.measured_alone(i), config.goal(high));
            ProtectedApp {
                app: high.app,
                source: high.metric.clone(),
                goal,
                alone,
                done: of(&self.total.speeds, i),
                weight: of(&self.total.weights, i),
                expected: self.expected(i),
                silent: self.silent.get(i).copied().unwrap_or_default(),
                said: Statement { bound: bound(&high.metric, alone.map(|alone| alone.speed), goal) },
            }
        });
        let blind = self.phase.is_some_and(|phase| phase.is_blind() && !phase.background);
        let throttling = Throttling {
            goal: config.controller.goal(),
            doing: self.phase.map(|phase| phase.why.to_string()),
            blind,
            slowed: self.slowed(config),
            watched_until: self.trial_ends(),
            duty_s: [self.total.duty_s, self.total.seconds],
            naps: self.total.naps,
            place: self.away.place().cloned(),
            limited: self.ladder.climbed().map(|climbed| Limited { name: climbed.name(), text: climbed.text() }),
        };
        Explanation {
            protected: protected.collect(),
            throttled: config.low.clone(),
            throttling: Some(throttling),
            ..Explanation::default()
        }
    }
}

/// A goal in seconds, for a speed that is an inverse latency.
fn bound(source: &Source, alone: Option<f64>, goal: Option<f64>) -> Option<Bound> {
    let Source::Latency(percentile) = source else { return None };
    let alone_s = alone.filter(|alone| *alone > 0.0)?.recip();
    let goal = goal.filter(|goal| *goal > 0.0)?;
    Some(Bound { quantile: percentile.quantile(), alone_s, goal_s: alone_s / goal })
}
