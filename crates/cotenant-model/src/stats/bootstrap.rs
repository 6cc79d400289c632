//! Intervals of any statistic by the block bootstrap: neighbours share disturbances, so blocks are drawn, not single
//! observations.

/// Draws.
const DRAWS: usize = 200;

/// Fraction of draws outside of the interval at each end.
const OUTSIDE: f64 = 0.025;

/// The 95 % interval of a statistic of `blocks`: the 2.5th and 97.5th percentile over samples of as many blocks, drawn
/// with replacement. `of` receives the multiplicity of each block; `None` below two blocks, or if it returns none.
pub fn interval(blocks: usize, of: impl Fn(&[u64]) -> Option<f64>) -> Option<[f64; 2]> {
    if blocks < 2 {
        return None;
    }
    // The generator of PCG's paper without its output function: its upper bits suffice here.
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((state >> 32) * blocks as u64) >> 32) as usize
    };
    let mut found = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let mut drawn = vec![0; blocks];
        (0..blocks).for_each(|_| drawn[draw()] += 1);
        found.push(of(&drawn)?);
    }
    found.sort_by(f64::total_cmp);
    let at = |share: f64| found[((DRAWS - 1) as f64 * share).round() as usize];
    Some([at(OUTSIDE), at(1.0 - OUTSIDE)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_mean(values: &[f64]) -> Option<[f64; 2]> {
        interval(values.len(), |drawn| {
            let sum: f64 = drawn.iter().zip(values).map(|(times, value)| *times as f64 * value).sum();
            Some(sum / values.len() as f64)
        })
    }

    /// 16 zeros and 16 ones: the deviation of a mean is 0.5 / √32 = 0.088.
    #[test]
    fn an_interval_is_that_of_a_mean() {
        let [low, high] = of_mean(&[0.0, 1.0].repeat(16)).unwrap();
        assert!(
            (low - (0.5 - 1.96 * 0.088)).abs() < 0.06 && (high - (0.5 + 1.96 * 0.088)).abs() < 0.06,
            "{low} {high}"
        );
        assert_eq!(of_mean(&[2.0; 5]), Some([2.0, 2.0]));
        assert_eq!(of_mean(&[2.0]), None);
        assert_eq!(interval(5, |_| None), None);
    }
}
