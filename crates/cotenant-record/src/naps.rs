//! Counts naps from the orders of each round and their outcomes, in one way for all outputs.

use cotenant_model::{Action, AppId, Order, Outcome, Time};
use std::collections::BTreeMap;

/// The naps of each application up to a moment. Orders that extend a nap belong to it.
#[derive(Clone, Debug, Default)]
pub struct Naps(BTreeMap<AppId, Of>);

/// The naps of one application.
#[derive(Clone, Debug, Default)]
struct Of {
    ordered: u64,
    carried_out: u64,
    /// Total seconds of naps carried out and ended.
    seconds: f64,
    /// Begin and end of the last one, and whether it was carried out.
    last: Option<(Time, Time, bool)>,
}

impl Naps {
    /// Adds the orders of a round.
    pub fn round(&mut self, at: Time, orders: &[Order], outcomes: &[Outcome]) {
        for (i, order) in orders.iter().enumerate() {
            let Action::Nap { app, until } = order.action else { continue };
            let of = self.0.entry(app).or_default();
            // Without an outcome, the run was cut off right after the order.
            let applied = outcomes.get(i) == Some(&Outcome::Applied);
            let goes_on = of.last.filter(|(_, end, _)| *end > at);
            match goes_on {
                Some((begin, end, carried_out)) if until > at => {
                    let (begin, end) =
                        if carried_out { (begin, if applied { until } else { end }) } else { (at, until) };
                    of.last = Some((begin, end, carried_out || applied));
                    of.carried_out += u64::from(applied && !carried_out);
                }
                Some((begin, _, carried_out)) if applied || !carried_out => of.last = Some((begin, at, carried_out)),
                None if until > at => {
                    of.seconds += of.last.map_or(0.0, seconds);
                    of.last = Some((at, until, applied));
                    of.ordered += 1;
                    of.carried_out += u64::from(applied);
                }
                _ => {}
            }
        }
    }

    /// Naps ordered for an application, whatever their outcomes.
    pub fn ordered(&self, app: AppId) -> u64 {
        self.0.get(&app).map_or(0, |of| of.ordered)
    }

    /// Those carried out.
    pub fn carried_out(&self, app: AppId) -> u64 {
        self.0.get(&app).map_or(0, |of| of.carried_out)
    }

    /// Total nap time of an application up to a moment, seconds.
    pub fn seconds(&self, app: AppId, by: Time) -> f64 {
        let of = self.0.get(&app);
        of.map_or(0.0, |of| of.seconds + of.last.map_or(0.0, |(begin, end, on)| seconds((begin, end.min(by), on))))
    }

    /// The last nap of each application that was carried out, with its begin and end.
    pub fn last(&self) -> impl Iterator<Item = (AppId, Time, Time)> {
        self.0.iter().filter_map(|(app, of)| of.last.filter(|last| last.2).map(|(begin, end, _)| (*app, begin, end)))
    }

    /// The applications with ordered naps.
    pub fn apps(&self) -> impl Iterator<Item = AppId> {
        self.0.keys().copied()
    }
}

fn seconds((begin, end, carried_out): (Time, Time, bool)) -> f64 {
    if carried_out { (end - begin).as_secs_f64() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::{CpuSet, Reason};

    #[test]
    fn orders_that_prolong_or_end_a_nap_are_no_naps() {
        use Outcome::{Applied, Denied};
        let app = AppId(1);
        let mut naps = Naps::default();
        let mut round = |at: u64, until: u64, outcome| {
            let action = Action::Nap { app, until: Time::from_millis(until) };
            let order = Order { action, affinity: CpuSet::new(), reason: Reason::new("controller", "") };
            naps.round(Time::from_millis(at), &[order], &[outcome]);
            let told = (naps.ordered(app), naps.carried_out(app));
            (told, (naps.seconds(app, Time::from_millis(at)) * 1e3).round() as u64)
        };
        assert_eq!(round(0, 200, Applied), ((1, 1), 0));
        assert_eq!(round(150, 350, Applied), ((1, 1), 150), "the same goes on");
        assert_eq!(round(300, 300, Applied), ((1, 1), 300), "it ends early");
        assert_eq!(round(310, 310, Applied), ((1, 1), 300), "nobody naps");
        assert_eq!(round(400, 500, Denied), ((2, 1), 300));
        assert_eq!(round(450, 600, Applied), ((2, 2), 300), "refused at first");
        assert_eq!(round(700, 800, Applied), ((3, 3), 450));
        assert_eq!(naps.last().collect::<Vec<_>>(), [(app, Time::from_millis(700), Time::from_millis(800))]);
    }
}
