//! The guard of `shapes`: what no application may lose against the kernel's placement, as far as it is known.

use super::learned::Learned;

/// Pairs of windows after which the guard believes an application's loss.
pub(super) const GUARDED: usize = 4;
/// Standard errors by which the guard assumes an application to be worse off than it seems.
const ERRORS: f64 = 3.0;
/// Where these errors decide, a trial goes on until so many pairs of windows.
pub(super) const DOUBTED: usize = 24;

impl Learned {
    /// Whether somebody is nearer to what the guard forbids than to the kernel's placement, as far as is known.
    pub(super) fn is_near(&self, guard: Option<f64>) -> bool {
        let twice: Vec<f64> = self.standing.iter().map(|standing| 2.0 * standing).collect();
        guards(guard, &twice, &vec![0.0; twice.len()])
    }

    /// How far each application is above the kernel's placement, which has changed it by so much, with these variances;
    /// and the variances of that. What was known before counts by its own.
    pub(super) fn audited(&self, changes: &[f64], variances: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let both = |(((standing, doubt), change), variance): (((&f64, &f64), &f64), &f64)| {
            // Nothing was known where nothing was measured.
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

    /// The changes that the guard assumes, where so much was measured.
    pub(super) fn at_worst(&self, changes: &[f64], variances: &[f64]) -> Vec<f64> {
        let doubts = self.doubts.iter().zip(variances).map(|(before, now)| ERRORS * (before + now).sqrt());
        changes.iter().zip(doubts).map(|(change, doubt)| change - doubt).collect()
    }

    /// Whether the guard would refuse what was measured only since an application may be worse off than it seems.
    pub(super) fn is_doubtful(&self, guard: Option<f64>, pairs: &[Vec<f64>]) -> bool {
        let (changes, variances) = self.changes(pairs);
        guards(guard, &self.standing, &self.at_worst(&changes, &variances)) && !guards(guard, &self.standing, &changes)
    }
}

/// Whether somebody would be further below the kernel's placement than may be.
pub(super) fn guards(guard: Option<f64>, standing: &[f64], changes: &[f64]) -> bool {
    let least = guard.map_or(f64::NEG_INFINITY, |guard| (1.0 - guard).ln());
    standing.iter().zip(changes).any(|(standing, change)| standing + change < least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::AppId;
    use cotenant_model::speed::Source;

    /// At -4 % with a standard error of 1 % nobody knows whether it is above -5 %; with one of 0.2 % it is.
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
