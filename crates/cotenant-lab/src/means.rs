//! Means and extremes.

use std::borrow::Borrow;

/// The geometric mean; 1 if empty.
pub fn geometric(values: impl IntoIterator<Item: Borrow<f64>>) -> f64 {
    mean(values.into_iter().map(|v| v.borrow().ln())).exp()
}

/// The mean; 0 if empty.
pub fn mean(values: impl IntoIterator<Item: Borrow<f64>>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0), |(sum, n), v| (sum + v.borrow(), n + 1));
    sum / f64::from(n.max(1))
}

/// The minimum; infinite if empty.
pub fn lowest(values: impl IntoIterator<Item: Borrow<f64>>) -> f64 {
    values.into_iter().fold(f64::INFINITY, |least, v| least.min(*v.borrow()))
}

/// The maximum; minus infinity if empty.
pub fn highest(values: impl IntoIterator<Item: Borrow<f64>>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, |most, v| most.max(*v.borrow()))
}
