//! Linear regression by least squares with its certainty; with the distributions of a statistics library.

use super::Summary;
use statrs::distribution::{ContinuousCDF as _, FisherSnedecor, StudentsT};

/// A fitted coefficient.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Coefficient {
    /// Its value.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Probability of a value this far from 0 if the true one is 0 (two-sided t-test), 0–1.
    pub p: f64,
}

/// A fit `y = Σ coefficient·x + intercept`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Fit {
    /// Of each regressor, in order; the intercept last.
    pub coefficients: Vec<Coefficient>,
    /// Observations.
    pub n: usize,
    /// R², 0–1.
    pub r2: f64,
    /// Probability of such a fit without any dependence on the regressors (F-test), 0–1.
    pub p: f64,
    /// Mean absolute error of each observation predicted from all others.
    pub leave_one_out: f64,
}

impl Fit {
    /// The value at some regressors.
    pub fn at(&self, x: &[f64]) -> f64 {
        let slopes: f64 = self.coefficients.iter().zip(x).map(|(c, x)| c.value * x).sum();
        slopes + self.coefficients.last().map_or(0.0, |c| c.value)
    }
}

/// Inverts a matrix by Gauss and Jordan with pivots; `None` if it is singular.
fn inverse(mut m: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let k = m.len();
    let largest = m.iter().flatten().fold(0.0_f64, |a, v| a.max(v.abs()));
    for (i, row) in m.iter_mut().enumerate() {
        row.extend((0..k).map(|j| f64::from(u8::from(i == j))));
    }
    for i in 0..k {
        let pivot = (i..k).max_by(|a, b| m[*a][i].abs().total_cmp(&m[*b][i].abs()))?;
        if m[pivot][i].abs() <= largest * 1e-13 {
            return None;
        }
        m.swap(i, pivot);
        let head = m[i].clone();
        for (j, row) in m.iter_mut().enumerate() {
            let factor = if j == i { 1.0 - 1.0 / head[i] } else { row[i] / head[i] };
            row.iter_mut().zip(&head).for_each(|(v, h)| *v -= factor * h);
        }
    }
    Some(m.into_iter().map(|row| row[k..].to_vec()).collect())
}

/// Fits observations, each with its regressors. `None` with no more observations than coefficients, with non-finite
/// numbers, or if a regressor depends on the others.
pub fn fit(x: &[Vec<f64>], y: &[f64]) -> Option<Fit> {
    let (n, k) = (y.len(), x.first()?.len() + 1);
    if n <= k
        || x.len() != n
        || x.iter().any(|row| row.len() + 1 != k)
        || x.iter().flatten().chain(y).any(|v| !v.is_finite())
    {
        return None;
    }
    // Scaled to their largest, so that units do not affect the test for zero.
    let scale: Vec<f64> =
        (0..k).map(|j| if j + 1 == k { 1.0 } else { x.iter().fold(0.0_f64, |a, row| a.max(row[j].abs())) }).collect();
    if scale.contains(&0.0) {
        return None;
    }
    let row = |i: usize| -> Vec<f64> { (0..k).map(|j| if j + 1 == k { 1.0 } else { x[i][j] / scale[j] }).collect() };
    let rows: Vec<Vec<f64>> = (0..n).map(row).collect();
    let product = |a: usize, b: usize| rows.iter().map(|row| row[a] * row[b]).sum::<f64>();
    let inverse = inverse((0..k).map(|a| (0..k).map(|b| product(a, b)).collect()).collect())?;
    let towards: Vec<f64> = (0..k).map(|a| rows.iter().zip(y).map(|(row, y)| row[a] * y).sum()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let beta: Vec<f64> = inverse.iter().map(|row| dot(row, &towards)).collect();
    let residuals: Vec<f64> = rows.iter().zip(y).map(|(row, y)| y - dot(row, &beta)).collect();
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    let all = Summary::of(y).variance * (n - 1) as f64;
    let r2 = if all > 0.0 { 1.0 - squares / all } else { 0.0 };
    let freedom = (n - k) as f64;
    let variance = squares / freedom;
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let coefficient = |j: usize| {
        let (value, error) = (beta[j] / scale[j], (variance * inverse[j][j].max(0.0)).sqrt() / scale[j]);
        let chance = if value == 0.0 { 1.0 } else { 2.0 * student.sf((value / error).abs()) };
        Coefficient { value, error, p: chance }
    };
    // The error for an observation left out is its residual over 1 − its leverage (PRESS).
    let leverage = |row: &Vec<f64>| dot(row, &inverse.iter().map(|of| dot(of, row)).collect::<Vec<_>>());
    let missed = rows.iter().zip(&residuals).map(|(row, r)| (r / (1.0 - leverage(row)).max(1e-12)).abs());
    let leave_one_out = missed.sum::<f64>() / n as f64;
    let whole = if k == 1 || r2 >= 1.0 {
        0.0
    } else {
        let ratio = r2 / (k - 1) as f64 / ((1.0 - r2) / freedom);
        FisherSnedecor::new((k - 1) as f64, freedom).ok()?.sf(ratio)
    };
    Some(Fit { coefficients: (0..k).map(coefficient).collect(), n, r2, p: whole, leave_one_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, to: f64) {
        assert!((a - b).abs() < to, "{a} is not {b}");
    }

    /// Stopping distances over speed, the first 10 of R's `cars`: sums by hand, the rest as R's formulas have it.
    /// Holds measure/statistics.
    #[test]
    fn one_regressor_by_hand() {
        let speed = [4.0, 4.0, 7.0, 7.0, 8.0, 9.0, 10.0, 10.0, 10.0, 11.0];
        let dist = [2.0, 10.0, 4.0, 22.0, 16.0, 10.0, 18.0, 26.0, 34.0, 17.0];
        let x: Vec<Vec<f64>> = speed.iter().map(|v| vec![*v]).collect();
        let found = fit(&x, &dist).unwrap();
        // Σx 80, Σy 159, Σx² 696, Σxy 1415, Σy² 3405: Sxx 56, Sxy 143, Syy 876.9; slope 143/56, r² = 143²/(56·876.9).
        near(found.coefficients[0].value, 143.0 / 56.0, 1e-9);
        near(found.coefficients[1].value, 15.9 - 8.0 * 143.0 / 56.0, 1e-9);
        near(found.r2, 143.0 * 143.0 / (56.0 * 876.9), 1e-9);
        let variance = (876.9 - 143.0 * 143.0 / 56.0) / 8.0;
        near(found.coefficients[0].error, (variance / 56.0_f64).sqrt(), 1e-9);
        // One regressor: the F-test is the t-test of its slope.
        near(found.p, found.coefficients[0].p, 1e-9);
        // Each one really left out.
        let without = |i: usize| {
            let keep = |v: &[f64]| v.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, v)| *v).collect::<Vec<_>>();
            let x: Vec<Vec<f64>> = keep(&speed).into_iter().map(|v| vec![v]).collect();
            (dist[i] - fit(&x, &keep(&dist)).unwrap().at(&[speed[i]])).abs()
        };
        near(found.leave_one_out, (0..10).map(without).sum::<f64>() / 10.0, 1e-9);
    }

    /// Holds measure/statistics.
    #[test]
    fn two_regressors_of_different_units_are_found_again() {
        let x: Vec<Vec<f64>> = (0..12).map(|i| vec![f64::from(i % 4) * 1e-6, f64::from(i * i % 7) * 1e6]).collect();
        let noise = |i: usize| if i.is_multiple_of(2) { 1e-3 } else { -1e-3 };
        let y: Vec<f64> = x.iter().enumerate().map(|(i, x)| 3e5 * x[0] + 2e-7 * x[1] + 0.5 + noise(i)).collect();
        let found = fit(&x, &y).unwrap();
        near(found.coefficients[0].value / 3e5, 1.0, 0.01);
        near(found.coefficients[1].value / 2e-7, 1.0, 0.01);
        near(found.coefficients[2].value, 0.5, 0.01);
        assert!(found.r2 > 0.999 && found.coefficients.iter().all(|c| c.p < 1e-6) && found.p < 1e-6, "{found:?}");
        near(found.at(&[1e-6, 1e6]), 1.0, 0.01);
        // Pure noise explains nothing.
        let nothing: Vec<f64> = (0..12).map(|i| [0.3, -0.1, 0.2, -0.4, 0.1, 0.05, -0.2][i * 5 % 7]).collect();
        assert!(fit(&x, &nothing).unwrap().coefficients[0].p > 0.1);
    }

    /// Holds measure/statistics.
    #[test]
    fn what_cannot_be_fitted_is_none() {
        let line = |n: usize| (0..n).map(|i| vec![i as f64, 2.0 * i as f64]).collect::<Vec<_>>();
        assert_eq!(fit(&line(9), &[1.0; 9]), None, "the second follows from the first");
        assert_eq!(fit(&[vec![1.0], vec![2.0]], &[1.0, 2.0]), None, "two points say nothing of a line");
        assert_eq!(fit(&[vec![0.0], vec![0.0], vec![0.0]], &[1.0, 2.0, 3.0]), None);
        assert_eq!(fit(&[vec![1.0], vec![f64::NAN], vec![2.0]], &[1.0, 2.0, 3.0]), None);
        assert_eq!(fit(&[], &[]), None);
    }
}
