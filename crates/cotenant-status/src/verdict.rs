//! The verdict on a goal: one sentence, with the same words everywhere.

use cotenant_model::policy::Alone;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A half-interval wider than this gives no verdict on a goal inside it.
pub(crate) const NARROW: f64 = 0.05;

/// The verdict on a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is at the goal or above.
    Kept,
    /// The goal is inside a narrow interval.
    AtGoal,
    /// The whole interval is below the goal.
    Missed,
    /// The run was too short, the speed varied too much, or another speed alone would say something else.
    Unsure,
    /// The speed, or the speed alone, was never known.
    Unknown,
}

impl Verdict {
    /// Of a share with its 95 % interval.
    pub fn of(goal: f64, kept: Option<f64>, interval: Option<[f64; 2]>) -> Self {
        match (kept, interval) {
            (None, _) => Self::Unknown,
            (_, Some([low, _])) if low >= goal => Self::Kept,
            (_, Some([_, high])) if high < goal => Self::Missed,
            (_, Some([low, high])) if high - low <= 2.0 * NARROW => Self::AtGoal,
            _ => Self::Unsure,
        }
    }
}

/// A verdict with its figures; its text is the sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The share of the speed alone that was kept, and the 95 % interval of that.
    pub share: Option<(f64, Option<[f64; 2]>)>,
    /// The share that was to be kept.
    pub goal: f64,
    /// Why it is not judged; without it the figures say that.
    pub why: Option<String>,
    /// The interval of the speed alone in words, where the verdict hangs on it.
    pub alone: Option<String>,
}

impl Judgement {
    /// From a fraction with its interval. If the uncertainty of the speed alone could change the verdict, the sentence
    /// says so, with that speed's interval in the words of `range`.
    pub fn of(
        goal: f64,
        kept: Option<f64>,
        interval: Option<[f64; 2]>,
        alone: Option<Alone>,
        range: impl Fn([f64; 2]) -> String,
    ) -> Self {
        let hangs = alone.zip(kept).zip(interval).and_then(|((alone, kept), interval)| {
            hangs(goal, kept, interval, alone).then(|| range(alone.interval.unwrap_or_default()))
        });
        let verdict = if hangs.is_some() { Verdict::Unsure } else { Verdict::of(goal, kept, interval) };
        Self { verdict, share: kept.map(|kept| (kept, interval)), goal, why: None, alone: hangs }
    }

    /// The same where something forbids a verdict.
    #[must_use]
    pub fn not_judged(self, why: String) -> Self {
        let verdict = if self.verdict == Verdict::Unknown { Verdict::Unknown } else { Verdict::Unsure };
        Self { verdict, why: Some(why), alone: None, ..self }
    }

    /// The same with a reason for a missing verdict, if it is missing.
    #[must_use]
    pub fn because(self, why: impl FnOnce(&Self) -> Option<String>) -> Self {
        match self.verdict {
            Verdict::Unsure | Verdict::Unknown if self.alone.is_none() => Self { why: why(&self), ..self },
            _ => self,
        }
    }
}

/// Whether the verdict could change within the interval of the speed alone: both errors add like those of independent
/// measurements.
fn hangs(goal: f64, kept: f64, [low, high]: [f64; 2], alone: Alone) -> bool {
    let known = |[slow, fast]: &[f64; 2]| *slow > 0.0 && *fast < f64::MAX && alone.speed > 0.0;
    let Some([slow, fast]) = alone.interval.filter(known) else { return false };
    let less = (kept - low).hypot(kept * (1.0 - alone.speed / fast).max(0.0));
    let more = (high - kept).hypot(kept * (alone.speed / slow - 1.0).max(0.0));
    let verdict = |interval| Verdict::of(goal, Some(kept), Some(interval));
    match (verdict([low, high]), verdict([kept - less, kept + more])) {
        (Verdict::Kept | Verdict::AtGoal, whole) => whole == Verdict::Unsure,
        (Verdict::Missed, whole) => whole != Verdict::Missed,
        _ => false,
    }
}

impl fmt::Display for Judgement {
    /// `kept 93 % (91 to 95; goal 90 %)`, `missed: 53 % (49 to 57; goal 90 %)`, `not judged: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |f: &mut fmt::Formatter<'_>, before: &str| match self.share {
            Some((kept, interval)) => write!(f, "{before}{}", share(kept, interval, Some(self.goal))),
            None => f.write_str(before),
        };
        match (self.verdict, &self.alone, &self.why) {
            (Verdict::Kept, ..) => share(f, "kept "),
            (Verdict::AtGoal, ..) => share(f, "at the goal: "),
            (Verdict::Missed, ..) => share(f, "missed: "),
            (_, Some(alone), _) => {
                write!(f, "kept or missed: it depends on one measurement of the speed alone ({alone})")
            }
            (_, _, Some(why)) => write!(f, "not judged: {why}"),
            (Verdict::Unknown, ..) => f.write_str("not judged: its speed is not known"),
            (Verdict::Unsure, ..) if self.share.is_some_and(|(_, interval)| interval.is_some()) => {
                share(f, "not judged: it varied too much: ")
            }
            (Verdict::Unsure, ..) => f.write_str("not judged: too little was measured"),
        }
    }
}

/// `93 % (91 to 95; goal 90 %)`: with the digits of the goal, or more to separate a value from it.
pub fn share(kept: f64, interval: Option<[f64; 2]>, goal: Option<f64>) -> String {
    let text = |share: f64, places: usize| format!("{:.places$}", share * 100.0);
    let says = |places: &usize| {
        goal.is_none_or(|goal| {
            let of = |share: f64| text(share, *places);
            let whole = of(goal).parse().is_ok_and(|shown: f64| (shown - goal * 100.0).abs() < 1e-9);
            whole && interval.is_none_or(|[_, high]| high >= goal || of(high) != of(goal))
        })
    };
    let places = (0..3).find(says).unwrap_or(3);
    let interval = interval.map(|ends| ends.map(|end| text(end, places)).join(" to "));
    let goal = goal.map(|goal| format!("goal {} %", text(goal, places)));
    let more = interval.into_iter().chain(goal).collect::<Vec<_>>().join("; ");
    let more = if more.is_empty() { more } else { format!(" ({more})") };
    format!("{} %{more}", text(kept, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::Time;

    fn said(kept: Option<f64>, interval: Option<[f64; 2]>, alone: Option<[f64; 2]>) -> (Verdict, String) {
        let alone = alone.map(|ends| Alone { speed: 1.0, interval: Some(ends), at: Time(0) });
        let range = |ends: [f64; 2]| ends.map(|end| end.to_string()).join(" to ");
        let judged = Judgement::of(0.9, kept, interval, alone, range);
        (judged.verdict, judged.to_string())
    }

    /// Promise qos/verdict: A service is judged by single requests where they are known, in the same sentence
    /// everywhere, which says where it is not certain.
    #[test]
    fn one_sentence_says_it() {
        for (kept, interval, verdict, text) in [
            (Some(0.953), Some([0.91, 0.996]), Verdict::Kept, "kept 95 % (91 to 100; goal 90 %)"),
            (Some(0.91), Some([0.87, 0.95]), Verdict::AtGoal, "at the goal: 91 % (87 to 95; goal 90 %)"),
            (Some(0.53), Some([0.49, 0.57]), Verdict::Missed, "missed: 53 % (49 to 57; goal 90 %)"),
            // In whole numbers it would be 90 of 90.
            (Some(0.89), Some([0.88, 0.8996]), Verdict::Missed, "missed: 89.00 % (88.00 to 89.96; goal 90.00 %)"),
            (
                Some(0.93),
                Some([0.7, 1.16]),
                Verdict::Unsure,
                "not judged: it varied too much: 93 % (70 to 116; goal 90 %)",
            ),
            (Some(0.93), None, Verdict::Unsure, "not judged: too little was measured"),
            (None, None, Verdict::Unknown, "not judged: its speed is not known"),
        ] {
            assert_eq!(said(kept, interval, None), (verdict, text.to_owned()));
        }
        assert_eq!(share(0.9951, None, Some(0.999)), "99.5 % (goal 99.9 %)");
        assert_eq!(share(0.53, Some([0.491, 0.569]), None), "53 % (49 to 57)");
        let judged = Judgement::of(0.9, Some(0.99), Some([0.95, 1.0]), None, |_| String::new());
        let busy =
            judged.clone().because(|_| unreachable!("it is judged")).not_judged("this machine was busy".to_owned());
        assert_eq!((busy.verdict, &*busy.to_string()), (Verdict::Unsure, "not judged: this machine was busy"));
    }

    /// Alone it may be anywhere from a fifth slower to a quarter faster than was measured.
    /// Holds qos/verdict.
    #[test]
    fn a_verdict_that_hangs_on_the_speed_alone_says_so() {
        let [certain, lucky] = [[0.99, 1.01], [0.8, 1.25]];
        let depends = "kept or missed: it depends on one measurement of the speed alone (0.8 to 1.25)";
        for (interval, is_certain) in [([0.91, 0.95], "kept"), ([0.87, 0.93], "at the goal"), ([0.82, 0.86], "missed")]
        {
            let kept = Some(f64::midpoint(interval[0], interval[1]));
            assert!(said(kept, Some(interval), Some(certain)).1.starts_with(is_certain), "{interval:?}");
            assert_eq!(said(kept, Some(interval), Some(lucky)), (Verdict::Unsure, depends.to_owned()), "{interval:?}");
        }
        // So far from the goal that it does not matter.
        assert_eq!(said(Some(1.3), Some([1.25, 1.35]), Some(lucky)).0, Verdict::Kept);
        assert_eq!(said(Some(0.5), Some([0.45, 0.55]), Some(lucky)).0, Verdict::Missed);
        assert_eq!(
            said(Some(0.93), Some([0.91, 0.95]), Some([0.0, f64::MAX])).0,
            Verdict::Kept,
            "no interval is known"
        );
        assert_eq!(
            said(Some(0.93), Some([0.7, 1.16]), Some(lucky)).1,
            "not judged: it varied too much: 93 % (70 to 116; goal 90 %)"
        );
    }
}
