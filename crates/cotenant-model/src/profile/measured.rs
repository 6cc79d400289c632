//! Characterization's measurements of an application: values with their spread, method and validity.

use super::stamp::Stamp;
use crate::CpuSet;
use crate::stats::Summary;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Percentages and losses are kept to six decimals.
const DIGITS: f64 = 1e6;

/// The measure of a performance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Unhalted cycles of all threads until the end (`ReSense` §2.2).
    Cycles,
    /// Time per unit of work reported by the program.
    Progress,
    /// CPU time of all threads until the end: a replacement for cycles that cannot be counted.
    CpuTime,
    /// Wall-clock time until the end.
    Time,
    /// Not measured on hardware: a cache simulation (cachegrind).
    Model,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cycles => "cycles",
            Self::Progress => "progress",
            Self::CpuTime => "CPU time",
            Self::Time => "time",
            Self::Model => "model",
        })
    }
}

/// Reaction of an application to sharing a resource among its own threads (`ReSense` equation 1): `(base − contend) ×
/// 100 / base`, positive if sharing helps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The mean over the rounds, percent.
    #[serde(deserialize_with = "finite")]
    pub score: f64,
    /// Lower end of the 95 % confidence interval of the mean, percent.
    #[serde(deserialize_with = "finite")]
    pub low: f64,
    /// Its upper end.
    #[serde(deserialize_with = "finite")]
    pub high: f64,
    /// Rounds, each one run in either configuration.
    #[serde(default = "one")]
    pub rounds: usize,
    /// The compared measure.
    pub by: By,
    /// CPUs of the configuration with threads on two instances of the resource.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub base: CpuSet,
    /// CPUs of the configuration with threads on one.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub contend: CpuSet,
}

fn one() -> usize {
    1
}

impl Score {
    /// From the cost of each round in both configurations; `None` without rounds, or if a base is not above 0. A single
    /// round has no spread, and the interval is the value.
    pub fn of(rounds: &[(f64, f64)], by: By, base: CpuSet, contend: CpuSet) -> Option<Self> {
        if rounds.is_empty() || rounds.iter().any(|(base, contend)| *base <= 0.0 || !contend.is_finite()) {
            return None;
        }
        let scores: Vec<f64> = rounds.iter().map(|(base, contend)| (base - contend) * 100.0 / base).collect();
        let (score, low, high) = interval(&scores);
        Some(Self { score, low, high, rounds: scores.len(), by, base, contend })
    }
}

/// The mean, and its 95 % confidence interval if there are several values.
fn interval(values: &[f64]) -> (f64, f64, f64) {
    let summary = Summary::of(values);
    let round = |v: f64| (v * DIGITS).round() / DIGITS;
    match summary.estimate() {
        Some(e) if e.half_width.is_finite() => (round(e.value), round(e.low()), round(e.high())),
        _ => (round(summary.mean), round(summary.mean), round(summary.mean)),
    }
}

/// Slowdown: 1 − speed together / speed alone, with its spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// The mean over the rounds; below 0 for a speed-up.
    #[serde(deserialize_with = "at_most_one")]
    pub loss: f64,
    /// Lower end of the 95 % confidence interval of the mean.
    #[serde(deserialize_with = "finite")]
    pub low: f64,
    /// Its upper end.
    #[serde(deserialize_with = "finite")]
    pub high: f64,
    /// Rounds.
    #[serde(default = "one")]
    pub rounds: usize,
    /// The compared measure.
    pub by: By,
}

impl Loss {
    /// From the cost (time per work) of each round alone and together; `None` as for [`Score::of`].
    pub fn of(rounds: &[(f64, f64)], by: By) -> Option<Self> {
        if rounds.is_empty() || rounds.iter().any(|(alone, together)| *alone <= 0.0 || *together <= 0.0) {
            return None;
        }
        let losses: Vec<f64> = rounds.iter().map(|(alone, together)| 1.0 - alone / together).collect();
        let (loss, low, high) = interval(&losses);
        Some(Self { loss, low, high, rounds: losses.len(), by })
    }
}

/// An application with one program of `SmashBench` (Tang §5.2.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corun {
    /// The application's loss.
    pub suffers: Loss,
    /// The other program's loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<Loss>,
}

/// An application under a set background traffic (Feliu et al. §4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pressure {
    /// Requested total traffic of all injectors, lines per second.
    #[serde(deserialize_with = "not_negative")]
    pub target_per_s: f64,
    /// Traffic that they reached.
    #[serde(deserialize_with = "not_negative")]
    pub reached_per_s: f64,
    /// The application's loss.
    pub loss: Loss,
    /// CPUs of the injectors, one on each.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
}

/// The loss from which an application counts as *sensitive* to a traffic (TPDS §4.4).
pub const SENSITIVE: f64 = 0.05;

/// The loss under a traffic of injectors, lines per second: linear interpolation from zero through the measurements;
/// constant beyond the last. `None` without a measurement.
pub fn loss_under(points: &[Pressure], traffic_per_s: f64) -> Option<f64> {
    let mut before = (0.0, 0.0);
    for (rate, loss) in in_order(points) {
        if traffic_per_s <= rate {
            let part = if rate > before.0 { (traffic_per_s - before.0) / (rate - before.0) } else { 1.0 };
            return Some(before.1 + part * (loss - before.1));
        }
        before = (rate, loss);
    }
    (!points.is_empty()).then_some(before.1)
}

/// The loss at a total traffic of `total_per_s`, of which the application draws `own_per_s` itself (TPDS §4.4):
/// injectors draw the rest, but at least the smallest measured traffic. So an application that alone draws the total is
/// judged beside that smallest injector, and does not pass as insensitive.
pub fn loss_at(points: &[Pressure], total_per_s: f64, own_per_s: f64) -> Option<f64> {
    let least = points.iter().map(|p| p.reached_per_s).min_by(f64::total_cmp)?;
    loss_under(points, (total_per_s - own_per_s).max(least))
}

/// The least traffic of injectors, lines per second, from which an application is [`SENSITIVE`]; `None`: it is not, as
/// far as measured.
pub fn sensitive_from(points: &[Pressure]) -> Option<f64> {
    let mut before = (0.0, 0.0);
    for (rate, loss) in in_order(points) {
        if loss >= SENSITIVE {
            return Some(before.0 + (SENSITIVE - before.1) / (loss - before.1) * (rate - before.0));
        }
        before = (rate, loss);
    }
    None
}

/// Traffic and loss of each point. Injectors are ordered by the traffic that they reached.
fn in_order(points: &[Pressure]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = points.iter().map(|p| (p.reached_per_s, p.loss.loss)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Misses of an application in caches of several sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissCurve {
    /// [`By::Model`] for a simulated cache.
    pub by: By,
    /// In ascending order of level and size.
    pub points: Vec<MissPoint>,
    /// The application's need of each level, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub footprints: Vec<Footprint>,
}

/// An application's use of a cache level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// The level.
    pub level: u8,
    /// The smallest simulated size from which more brings little.
    pub bytes: u64,
    /// More would still have helped at the largest simulated size: it uses at least that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_more: bool,
}

/// A point of a [`MissCurve`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissPoint {
    /// The cache level that it replaces.
    pub level: u8,
    /// Its size.
    pub bytes: u64,
    /// Its associativity.
    pub ways: u32,
    /// Its lines, bytes.
    pub line: u32,
    /// Misses per data reference of the program, 0–1.
    #[serde(deserialize_with = "fraction")]
    pub ratio: f64,
    /// Misses per 1,000 instructions.
    #[serde(deserialize_with = "not_negative")]
    pub mpki: f64,
}

/// Machine and program of a profile's measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AppStamp {
    /// Day and time, UTC.
    pub date: String,
    /// Version of Cotenant.
    pub cotenant: String,
    /// The command, by word.
    pub command: Vec<String>,
    /// Its executable.
    pub executable: Executable,
    /// The machine.
    pub machine: Stamp,
}

impl AppStamp {
    /// Changes since, for people. Dates, commands and versions of Cotenant do not count.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut changes = self.machine.differences(&now.machine);
        changes.extend(self.executable.difference(&now.executable));
        changes
    }
}

/// Identity of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Executable {
    /// Its path.
    pub path: String,
    /// GNU build id in hexadecimal; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// Size.
    pub bytes: u64,
    /// Time of the last change, seconds since 1970.
    pub modified_unix_s: i64,
}

impl Executable {
    /// Whether it is another program now: by build id if both have one, otherwise by size and time. `None` for a file
    /// that was not examined.
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.path.is_empty() || now.path.is_empty() {
            return None;
        }
        if !self.build_id.is_empty() && !now.build_id.is_empty() {
            let (then, now) = (&self.build_id, &now.build_id);
            return (then != now).then(|| format!("executable had the build id {then} and has {now}"));
        }
        let then = (self.bytes, self.modified_unix_s);
        (then != (now.bytes, now.modified_unix_s)).then(|| format!("executable {} has changed", now.path))
    }

    /// The beginning of the build id, as in file names; `None` without one.
    pub fn short_id(&self) -> Option<&str> {
        self.build_id.get(..8)
    }
}

fn checked<'de, D: Deserializer<'de>>(d: D, fits: impl Fn(f64) -> bool, range: &str) -> Result<f64, D::Error> {
    let value = f64::deserialize(d)?;
    if fits(value) { Ok(value) } else { Err(D::Error::custom(format!("{value} is given; it must be {range}"))) }
}

fn finite<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    checked(d, f64::is_finite, "finite")
}

fn not_negative<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    checked(d, |v| (0.0..=f64::MAX).contains(&v), "finite and not negative")
}

fn at_most_one<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    checked(d, |v| (f64::MIN..=1.0).contains(&v), "finite and at most 1")
}

fn fraction<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    checked(d, |v| (0.0..=1.0).contains(&v), "between 0 and 1")
}

#[cfg(test)]
mod tests {
    use super::super::AppProfile;
    use super::*;
    use std::collections::BTreeMap;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    #[test]
    fn equation_1_by_hand() {
        // (200 − 150) × 100 / 200 = 25: sharing helps. (100 − 112) × 100 / 100 = −12: it hurts.
        let score = |rounds: &[(f64, f64)]| Score::of(rounds, By::Cycles, set("0,2"), set("0-1"));
        assert_eq!(score(&[(200.0, 150.0)]).map(|s| (s.score, s.low, s.high)), Some((25.0, 25.0, 25.0)));
        assert_eq!(score(&[(100.0, 112.0)]).map(|s| s.score), Some(-12.0));
        // −10, −12 and −14: mean −12, standard error 2/√3, t(2) = 4.303: ± 4.968
        let s = score(&[(100.0, 110.0), (100.0, 112.0), (100.0, 114.0)]).unwrap();
        assert!((s.score + 12.0).abs() < 1e-6 && (s.high - s.score - 4.968).abs() < 2e-3, "{s:?}");
        assert_eq!((score(&[]), score(&[(0.0, 1.0)])), (None, None));
    }

    #[test]
    fn a_loss_is_of_speed() {
        // 10 s alone, 12.5 s together: a fifth of the speed is lost.
        assert_eq!(Loss::of(&[(10.0, 12.5)], By::Time).map(|l| l.loss), Some(0.2));
        assert_eq!(Loss::of(&[(10.0, 8.0)], By::Time).map(|l| l.loss), Some(-0.25));
        assert_eq!(Loss::of(&[(0.0, 8.0)], By::Time), None);
    }

    /// Holds measure/injectors.
    #[test]
    fn between_two_measurements_a_loss_is_on_the_line() {
        let point = |reached_per_s, loss: f64| Pressure {
            target_per_s: 9e9,
            reached_per_s,
            loss: Loss::of(&[(1.0 - loss, 1.0)], By::Time).unwrap(),
            cpus: CpuSet::new(),
        };
        let points = [point(30e6, 0.20), point(10e6, 0.02)];
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-6, "{a:?} {b}");
        // Half of the first; 0.02 and a quarter of 0.18; constant beyond the last.
        near(loss_under(&points, 5e6), 0.01);
        near(loss_under(&points, 15e6), 0.065);
        near(loss_under(&points, 90e6), 0.20);
        near(loss_under(&points, 0.0), 0.0);
        assert_eq!(loss_under(&[], 1.0), None);
        // 0.05 is a sixth of the way from 0.02 to 0.20.
        near(sensitive_from(&points), 10e6 + 20e6 / 6.0);
        near(sensitive_from(&[point(10e6, 0.10)]), 5e6);
        assert_eq!(sensitive_from(&points[1..]), None, "little sensitive");
        assert_eq!(loss_under(&[point(0.0, 0.1)], 0.0), Some(0.1), "an injector that did nothing");
        // Of 40 it draws 25: the injectors draw 15, as above.
        near(loss_at(&points, 40e6, 25e6), 0.065);
        // It leaves 5 of 40, or draws 50: the smallest measured injector draws 10.
        near(loss_at(&points, 40e6, 35e6), 0.02);
        near(loss_at(&points, 40e6, 50e6), 0.02);
        assert_eq!(loss_at(&[], 40e6, 50e6), None);
    }

    fn profile(score: f64, executable: &str) -> AppProfile {
        let stamp = AppStamp {
            executable: Executable { path: "/bin/a".into(), build_id: executable.into(), ..Executable::default() },
            ..AppStamp::default()
        };
        let score = Score::of(&[(100.0, 100.0 - score)], By::Time, set("0"), set("1"));
        AppProfile {
            sensitivity: BTreeMap::from([("l2".to_owned(), score.unwrap())]),
            stamp: Some(Box::new(stamp)),
            ..AppProfile::default()
        }
    }

    #[test]
    fn a_newer_measurement_replaces_what_it_measured() {
        let old = AppProfile { bus_per_ms: Some(7.0), latency_sensitive: true, ..profile(5.0, "aa") };
        let same = old.clone().updated(profile(-3.0, "aa"));
        assert_eq!((same.bus_per_ms, same.latency_sensitive), (Some(7.0), true));
        assert_eq!(same.score(["bus", "l2"]), Some(-3.0));
        let another = old.updated(profile(-3.0, "bb"));
        assert_eq!((another.bus_per_ms, another.latency_sensitive), (None, true), "the 7 was another program's");
    }

    #[test]
    fn programs_are_told_apart() {
        let file = |build_id: &str, bytes| Executable {
            path: "/bin/a".into(),
            build_id: build_id.into(),
            bytes,
            modified_unix_s: 5,
        };
        assert_eq!(file("aa", 1).difference(&file("aa", 2)), None, "a stripped copy is the same build");
        assert!(file("aa", 1).difference(&file("bb", 1)).unwrap().contains("build id aa"));
        assert!(file("", 1).difference(&file("", 2)).unwrap().contains("/bin/a has changed"));
        assert_eq!(file("", 1).difference(&Executable::default()), None, "not looked at");
    }
}
