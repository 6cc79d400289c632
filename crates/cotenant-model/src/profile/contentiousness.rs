//! A machine's contentiousness model (Tang §5.2.2, equation 5.9) in the machine's profile.

use super::stamp::Stamp;
use crate::stats::regression::{Coefficient, Fit, fit};
use serde::{Deserialize, Serialize};

/// Probability of a fit by chance from which it is not significant.
const SIGNIFICANT: f64 = 0.05;

/// Least number of programs for three coefficients.
pub const FEWEST: usize = 4;

/// A co-running program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its name.
    pub program: String,
    /// The cost that it causes: the mean over the others of 1 − speed beside it / speed alone.
    pub contentiousness: f64,
    /// The mean cost that it suffers from them.
    pub sensitivity: f64,
    /// Lines into its L2 (the last private cache), per nanosecond of its CPU time.
    pub l2_lines_per_ns: f64,
    /// Lines into the last-level cache.
    pub l3_lines_per_ns: f64,
    /// Last-level misses per request to the last-level cache.
    pub miss_rate: f64,
    /// Whether these were counted; otherwise they come from cachegrind's model at the measured speed.
    pub counted: bool,
}

/// A fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// `a`, `b`, `c` in ns per line, and 1.
    pub fit: Fit,
    /// The same with the last-level miss rate alone.
    pub miss_rate: Option<Fit>,
    /// The same with the rate of requests to the last-level cache alone.
    pub requests: Option<Fit>,
    /// Its programs.
    pub points: Vec<Point>,
}

/// Fits the model; `None` with too few or too similar points.
pub fn model(points: Vec<Point>) -> Option<Model> {
    let y: Vec<f64> = points.iter().map(|p| p.contentiousness).collect();
    let of = |x: &dyn Fn(&Point) -> Vec<f64>| fit(&points.iter().map(x).collect::<Vec<_>>(), &y);
    let whole = of(&|p| vec![p.l2_lines_per_ns - p.l3_lines_per_ns, p.l3_lines_per_ns])?;
    let miss_rate = of(&|p| vec![p.miss_rate]);
    let requests = of(&|p| vec![p.l2_lines_per_ns]);
    Some(Model { fit: whole, miss_rate, requests, points })
}

/// `C = a·(L2 lines in − L3 lines in)/ns + b·L3 lines in/ns + c`, fitted on one machine; C is the mean loss of speed
/// of a co-runner, and L2 is the last private cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contentiousness {
    /// Method of the measurement.
    pub method: String,
    /// Programs of the fit.
    pub programs: usize,
    /// Joint runs of each pair.
    pub rounds: usize,
    /// R², 0–1.
    pub r2: f64,
    /// Probability of such a fit without any dependence on lines (F-test), 0–1.
    pub p: f64,
    /// Mean error of each program's contentiousness predicted from all others.
    pub leave_one_out: f64,
    /// R² of the last level's miss rate alone, 0–1; absent if it is equal for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss_rate_r2: Option<f64>,
    /// R² of the rate of requests to the last level alone, 0–1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_r2: Option<f64>,
    /// Fraction of the CPUs' time that other programs used meanwhile, 0–1; absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_others: Option<f64>,
    /// For lines into the level above the last but not into the last, ns per line.
    pub a: Coefficient,
    /// For lines into the last level, ns per line.
    pub b: Coefficient,
    /// For any program.
    pub c: Coefficient,
    /// Its validity.
    pub stamp: Stamp,
}

impl Contentiousness {
    /// Of a fit; `None` unless it has three coefficients.
    pub fn new(model: &Model, rounds: usize, stamp: Stamp) -> Option<Self> {
        let [a, b, c] = model.fit.coefficients[..] else { return None };
        let counted = model.points.iter().all(|point| point.counted);
        let lines = if counted { "lines counted" } else { "lines by cachegrind's model, not the machine" };
        Some(Self {
            method: format!(
                "regression over programs of SmashBench, each beside each on two cores, by CPU time; {lines}"
            ),
            programs: model.fit.n,
            rounds,
            r2: model.fit.r2,
            p: model.fit.p,
            leave_one_out: model.fit.leave_one_out,
            miss_rate_r2: model.miss_rate.as_ref().map(|fit| fit.r2),
            requests_r2: model.requests.as_ref().map(|fit| fit.r2),
            used_by_others: None,
            a,
            b,
            c,
            stamp,
        })
    }

    /// The contentiousness of a program with these lines per nanosecond, into the level above the last and into the
    /// last.
    pub fn at(&self, upper_per_ns: f64, last_per_ns: f64) -> f64 {
        self.a.value * (upper_per_ns - last_per_ns) + self.b.value * last_per_ns + self.c.value
    }

    /// Why it should not be used; `None` if it can be.
    pub fn doubt(&self) -> Option<String> {
        if self.p >= SIGNIFICANT || !self.p.is_finite() {
            return Some(format!("chance explains it as well (R² {:.2}, p = {:.2})", self.r2, self.p));
        }
        let negative = [("a", self.a.value), ("b", self.b.value)].into_iter().find(|(_, value)| *value < 0.0);
        negative.map(|(name, value)| format!("its {name} is {value:.3}: more lines would cost others less"))
    }

    /// The name of a non-finite number.
    pub(crate) fn no_number(&self) -> Option<&'static str> {
        let numbers = [("a", self.a.value), ("b", self.b.value), ("c", self.c.value), ("p", self.p)];
        numbers.into_iter().find(|(_, value)| !value.is_finite()).map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        let point = |i: u32| {
            let (l2, l3) = (f64::from(i * 7 % 11) * 0.01, f64::from(i * 5 % 7) * 0.003);
            Point {
                program: i.to_string(),
                sensitivity: 0.0,
                contentiousness: 1.663 * (l2 - l3) + 8.89 * l3 + 0.044,
                l2_lines_per_ns: l2,
                l3_lines_per_ns: l3,
                miss_rate: if l2 > 0.0 { l3 / l2 } else { 0.0 },
                counted: true,
            }
        };
        (1..=15).map(point).collect()
    }

    #[test]
    fn what_can_be_used_is_told_from_what_cannot() {
        let of = |value| Coefficient { value, error: 0.1, p: 0.01 };
        let good = Contentiousness {
            method: "by hand".into(),
            programs: 15,
            rounds: 3,
            r2: 0.89,
            p: 1e-4,
            leave_one_out: 0.02,
            miss_rate_r2: None,
            requests_r2: Some(0.1),
            used_by_others: None,
            a: of(1.663),
            b: of(8.89),
            c: of(0.044),
            stamp: Stamp::default(),
        };
        assert_eq!(good.doubt(), None);
        // 0.05 lines/ns into L2, 0.01 of them into L3: 1.663 · 0.04 + 8.89 · 0.01 + 0.044.
        assert!((good.at(0.05, 0.01) - 0.199_42).abs() < 1e-9);
        let chance = Contentiousness { p: 0.2, ..good.clone() };
        assert!(chance.doubt().unwrap().starts_with("chance explains it as well"));
        let odd = Contentiousness { b: of(-2.0), ..good };
        assert_eq!(odd.doubt().unwrap(), "its b is -2.000: more lines would cost others less");
    }

    /// Holds measure/statistics.
    #[test]
    fn the_papers_coefficients_are_found_again() {
        let found = model(points()).unwrap();
        let [a, b, c] = &found.fit.coefficients[..] else { panic!("{found:?}") };
        for (ours, paper) in [(a, 1.663), (b, 8.890), (c, 0.044)] {
            assert!((ours.value - paper).abs() < 1e-6, "{found:?}");
        }
        assert!(found.fit.r2 > 0.999_999 && found.fit.leave_one_out < 1e-9);
        assert!(found.miss_rate.unwrap().r2 < 0.9 && found.requests.unwrap().r2 < 0.9, "one rate alone says less");
        assert_eq!(model(points()[..3].to_vec()), None);
    }
}
