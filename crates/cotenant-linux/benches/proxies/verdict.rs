//! Verdict on a proxy from its windows.

use super::Window;
use cotenant_model::stats::steady::{Spread, Steady};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Limit of a proxy's error factor between two conditions.
const WORST: f64 = 0.10;

fn spread(values: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut steady = Steady::default();
    values.for_each(|value| steady.add(value));
    steady.spread()
}

/// For the proxy with that index.
pub fn of(found: &BTreeMap<&str, Vec<Window>>, proxy: usize) -> Value {
    let alone = found.get("alone").map(Vec::as_slice).unwrap_or_default();
    let value = |window: &Window| window.proxies[proxy].unwrap_or(0.0);
    let there = alone.iter().filter(|window| value(window) > 0.0).count();
    if there * 2 < alone.len() || there == 0 {
        return json!({"verdict": "absent"});
    }
    let mean =
        |windows: &[Window], of: &dyn Fn(&Window) -> f64| windows.iter().map(of).sum::<f64>() / windows.len() as f64;
    let points: Vec<[f64; 2]> = found
        .values()
        .map(|windows| [mean(windows, &|w| w.real).ln(), mean(windows, &value).ln()])
        .filter(|point| point.iter().all(|log| log.is_finite()))
        .collect();
    let own = spread(alone.iter().map(value));
    let real = spread(alone.iter().map(|window| window.real));
    let noise = spread(alone.iter().map(|w| if w.real > 0.0 { value(w) / w.real } else { 0.0 }));
    let (slope, r) = line(&points);
    let ratios: Vec<f64> = points.iter().map(|[real, proxy]| proxy - real).collect();
    let [most, least] = [f64::max, f64::min].map(|pick| ratios.iter().copied().reduce(pick).unwrap_or(0.0));
    let worst = (most - least).exp_m1();
    let relative = |spread: Option<Spread>| spread.map_or(f64::INFINITY, |spread| spread.relative);
    let steady = relative(own).min(relative(noise)) <= 0.05;
    let verdict = match () {
        () if worst > WORST || r < 0.95 => "misleading",
        () if !steady => "unsteady",
        () => "usable",
    };
    let finite = |spread: Option<Spread>| spread.map(|s| s.relative).filter(|s| s.is_finite());
    json!({"verdict": verdict, "spread": finite(own), "real_spread": finite(real), "noise": finite(noise),
           "slope": slope, "r": r, "worst": worst})
}

/// Slope and correlation by least squares.
fn line(points: &[[f64; 2]]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean = [0, 1].map(|i| points.iter().map(|point| point[i]).sum::<f64>() / n);
    let product = |i: usize, j: usize| points.iter().map(|p| (p[i] - mean[i]) * (p[j] - mean[j])).sum::<f64>();
    (product(0, 1) / product(0, 0), product(0, 1) / (product(0, 0) * product(1, 1)).sqrt())
}
