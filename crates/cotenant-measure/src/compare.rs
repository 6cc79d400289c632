//! Whether a change improves a program: runs without and with it in turn, and the statistics of the pairs.

use cotenant_model::{Direction, stats};
use serde::Serialize;
use std::ops::ControlFlow;

/// One pair of runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Pair {
    /// Seconds without.
    pub without_s: f64,
    /// Seconds with.
    pub with_s: f64,
}

/// A metric in both kinds of runs: means per run.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// The better direction.
    pub direction: Direction,
    /// Runs without and with, if both had readings.
    pub pairs: Vec<[f64; 2]>,
    /// Improvement factor; `None` below two pairs, or if a mean is not above 0.
    pub gain: Option<Interval>,
}

/// A geometric mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Both ends.
    pub ci95: [f64; 2],
}

impl Interval {
    /// Of ratios, by their logarithms, so that 2× and ½× weigh alike; `None` below two, or if one is not above 0.
    pub fn of(ratios: impl Iterator<Item = f64>) -> Option<Self> {
        let logs: Vec<f64> = ratios.map(f64::ln).collect();
        let estimate = stats::Summary::of(&logs).estimate().filter(|e| e.value.is_finite())?;
        Some(Self { mean: estimate.value.exp(), ci95: [estimate.low().exp(), estimate.high().exp()] })
    }
}

impl Compared {
    /// Evaluates the pairs so far.
    pub fn judge(&mut self) {
        let better = |[without, with]: &[f64; 2]| match self.direction {
            Direction::HigherIsBetter => with / without,
            Direction::LowerIsBetter => without / with,
        };
        let positive = self.pairs.iter().flatten().all(|mean| *mean > 0.0);
        self.gain = Interval::of(self.pairs.iter().map(better)).filter(|_| positive);
    }
}

/// Makes pairs of runs: `run` makes one without (false) or with (true), or ends the comparison; `took` receives each
/// complete pair. Returns the reason for an early end.
///
/// # Errors
/// Those of `run`.
pub fn alternate<R, B, E>(
    pairs: u32,
    mut run: impl FnMut(bool) -> Result<ControlFlow<B, R>, E>,
    mut took: impl FnMut(u32, [R; 2]),
) -> Result<Option<B>, E> {
    for i in 0..pairs {
        // Alternation spreads drift (heat, caches, neighbours) evenly over the first and second run of pairs.
        let begins = i % 2 == 1;
        let first = match run(begins)? {
            ControlFlow::Continue(ran) => ran,
            ControlFlow::Break(why) => return Ok(Some(why)),
        };
        let second = match run(!begins)? {
            ControlFlow::Continue(ran) => ran,
            ControlFlow::Break(why) => return Ok(Some(why)),
        };
        took(i, if begins { [second, first] } else { [first, second] });
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn pairs_alternate_and_only_whole_ones_count() {
        let (mut log, mut pairs) = (Vec::new(), Vec::new());
        let run = |with| {
            log.push(with);
            Ok::<_, Infallible>(if log.len() > 5 { ControlFlow::Break("enough") } else { ControlFlow::Continue(with) })
        };
        assert_eq!(alternate(9, run, |i, pair| pairs.push((i, pair))), Ok(Some("enough")));
        assert_eq!(log, [false, true, true, false, false, true]);
        assert_eq!(pairs, [(0, [false, true]), (1, [false, true])]);
        assert_eq!(alternate(1, |_| Err::<ControlFlow<(), ()>, _>("failed"), |_, _| ()), Err("failed"));
    }
}
