//! An interval that is valid at every look, so that repeated looks and optional stopping do not mislead.

/// Half-width of an interval about the mean of `n` observations that holds for all n simultaneously with probability 1
/// − `alpha` (Robbins' mixture of normal distributions; Ann. Math. Stat. 41, 1970). `variance` is that of one
/// observation; `scale` is the size of effects for which the interval narrows soonest.
pub fn half_width(variance: f64, n: f64, scale: f64, alpha: f64) -> f64 {
    let odds = n * scale * scale / variance;
    (variance / n * (1.0 + odds.recip()) * ((1.0 + odds) / (alpha * alpha)).ln()).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Variance 0.0004, n = 4, scale 0.05: odds 4 · 0.0025 / 0.0004 = 25; 0.0001 · 1.04 · ln(26 / 0.0025) =
        // 0.0001 · 1.04 · 9.2496 = 0.00096196; its root is 0.031015.
        assert!((half_width(0.0004, 4.0, 0.05, 0.05) - 0.031_015).abs() < 1e-6);
    }

    /// A mean that is 0 stays inside at all of 300 looks in at least 95 of 100 cases, and one that is not comes out.
    #[test]
    fn it_holds_at_every_look() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut leaves = |mean: f64| {
            let mut sum = 0.0;
            (1..=300).any(|n| {
                // Sum of twelve uniform values less 6: normal enough, variance 1.
                sum += mean + 0.02 * ((0..12).map(|_| rng.f64()).sum::<f64>() - 6.0);
                let n = f64::from(n);
                sum.abs() / n > half_width(0.0004, n, 0.05, 0.05)
            })
        };
        let false_alarms = (0..2_000).filter(|_| leaves(0.0)).count();
        assert!(false_alarms <= 100, "{false_alarms} of 2000");
        assert!((0..100).all(|_| leaves(0.01)));
    }
}
