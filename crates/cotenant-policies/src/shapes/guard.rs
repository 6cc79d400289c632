//! The guard of `shapes`: the largest known loss allowed for any application against the kernel's placement.

use super::learned::Learned;

/// Pairs of windows after which the guard accepts an application's loss.
pub(super) const GUARDED: usize = 4;
/// Standard errors that the guard subtracts from an application's result.
const ERRORS: f64 = 3.0;
/// If these errors decide, a trial continues up to this many pairs of windows.
pub(super) const DOUBTED: usize = 24;

impl Learned {
    /// Whether any application is known to be nearer to the guard's limit than to the kernel's placement.
    pub(super) fn is_near(&self, guard: Option<f64>) -> bool {
        let twice: Vec<f64> = self.standing.iter().map(|standing| 2.0 * standing).collect();
        guards(guard, &twice, &vec![0.0; twice.len()])
    }

    /// Each application's distance above the kernel's placement after a change, with variances. Earlier knowledge is
    /// weighted by its own variance.
    pub(super) fn audited(&self, changes: &[f64], variances: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let both = |(((standing, doubt), change), variance): (((&f64, &f64), &f64), &f64)| {
            // Without measurements nothing is known.
            let before = if *doubt > 0.0 { doubt.recip() } else { 0.0 };
            let sum = before + variance.recip();
            if sum.is_normal() {
                ((before * standing - change / variance) / sum, sum.recip())
            } else {
                (-change, *variance)
            }
        };
        self.standing.iter().zip(&self.doubts).zip(changes).zip(variances).map(both).unzip()
    }

    /// The pessimistic changes that the guard assumes for these measurements.
    pub(super) fn at_worst(&self, changes: &[f64], variances: &[f64]) -> Vec<f64> {
        let doubts = self.doubts.iter().zip(variances).map(|(before, now)| ERRORS * (before + now).sqrt());
        changes.iter().zip(doubts).map(|(change, doubt)| change - doubt).collect()
    }

    /// Whether the guard would refuse only because of the uncertainty.
    pub(super) fn is_doubtful(&self, guard: Option<f64>, pairs: &[Vec<f64>]) -> bool {
        let (changes, variances) = self.changes(pairs);
        guards(guard, &self.standing, &self.at_worst(&changes, &variances)) && !guards(guard, &self.standing, &changes)
    }
}

/// Whether any application would be further below the kernel's placement than allowed.
pub(super) fn guards(guard: Option<f64>, standing: &[f64], changes: &[f64]) -> bool {
    let least = guard.map_or(f64::NEG_INFINITY, |guard| (1.0 - guard).ln());
    standing.iter().zip(changes).any(|(standing, change)| standing + change < least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::AppId;
    use cotenant_model::speed::Source;

    /// At -4 % with a standard error of 1 % it is uncertain whether it is above -5 %; with one of 0.2 % it is certain.
    /// Holds place/guard.
    #[test]
    fn what_the_guard_cannot_tell_is_measured_for_longer() {
        let mut learned = Learned::default();
        (learned.standing, learned.doubts) = (vec![0.0, -0.01], vec![0.0; 2]);
        // Of two pairs that far apart.
        let pairs = |last: f64, error: f64| [vec![0.2, last - error], vec![0.2, last + error]];
        let doubtful = |last: f64, error: f64| learned.is_doubtful(Some(0.05), &pairs(last, error));
        assert!(doubtful(-0.03, 0.01) && !doubtful(-0.03, 0.002) && !doubtful(0.1, 0.01));
        assert!(!doubtful(-0.05, 0.01), "it is refused");
        assert!(!learned.is_doubtful(None, &pairs(-0.03, 1.0)));
    }

    /// -2 % ± 1 % before and -6 % ± 1 % now are -4 % ± 0.7 %; where nothing was known it is what was measured now.
    #[test]
    fn audits_add_up() {
        let mut learned = Learned::default();
        (learned.standing, learned.doubts) = (vec![-0.02, 0.0], vec![1e-4, 0.0]);
        let (standing, doubts) = learned.audited(&[0.06, -0.01], &[1e-4, 1e-4]);
        assert!((standing[0] + 0.04).abs() < 1e-12 && (doubts[0] - 5e-5).abs() < 1e-12, "{standing:?} {doubts:?}");
        assert!((standing[1] - 0.01).abs() < 1e-12 && (doubts[1] - 1e-4).abs() < 1e-12, "{standing:?} {doubts:?}");
        learned.standing = vec![-0.03, 0.1];
        assert!(learned.is_near(Some(0.05)) && !learned.is_near(Some(0.1)) && !learned.is_near(None));
    }

    /// Two pairs that happen to be alike say nothing about how much they vary; nine others about their mean do.
    #[test]
    fn how_much_pairs_of_windows_vary_is_known_from_all_trials() {
        let mut learned = Learned::default();
        learned.situation.measures.insert(AppId(1), Source::Progress);
        let alike = [vec![-0.03], vec![-0.03]];
        assert_eq!(learned.changes(&alike), (vec![-0.03], vec![0.0]));
        let others: Vec<Vec<f64>> = (0..9).map(|i| vec![0.1 + 0.02 * f64::from(i % 3 - 1)]).collect();
        learned.measured(&others);
        // Six squares of 0.02 by eight degrees of freedom and one more, over two pairs.
        let (_, variances) = learned.changes(&alike);
        assert!((variances[0] - 6.0 * 0.02_f64.powi(2) / 9.0 / 2.0).abs() < 1e-12, "{variances:?}");
    }
}
