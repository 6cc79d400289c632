//! Speeds of the measured applications: rounds are gathered into points, and points into windows.

use cotenant_model::speed::{self, Source};
use cotenant_model::{AppId, Time, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Natural logarithms of the applications' speeds over some rounds, in the order of the situation's measures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SpeedPoint {
    pub at: Time,
    /// Its seconds.
    pub seconds: f64,
    pub logs: Vec<f64>,
}

/// Gathers rounds until every application has reported its speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SpeedMeter {
    /// Speed × weight, and weight, of each application.
    terms: Vec<[f64; 2]>,
    seconds: f64,
}

impl SpeedMeter {
    /// Adds a round. Returns a point once every application has reported since the last one.
    pub fn add(&mut self, view: &View, measures: &BTreeMap<AppId, Source>) -> Option<SpeedPoint> {
        self.terms.resize(measures.len(), [0.0; 2]);
        self.seconds += view.interval.as_secs_f64();
        for (term, (id, source)) in self.terms.iter_mut().zip(measures) {
            let Some(app) = view.app(*id) else { continue };
            if let Some([sum, weight]) = source.term(view, app) {
                term[0] += sum;
                term[1] += weight;
            }
        }
        let log = |[sum, weight]: &[f64; 2]| Some(sum / weight).filter(|speed| speed::usable(*speed)).map(f64::ln);
        let logs: Vec<f64> = self.terms.iter().map(log).collect::<Option<_>>()?;
        let seconds = self.seconds;
        self.clear();
        Some(SpeedPoint { at: view.at, seconds, logs })
    }

    /// Clears gathered data after a move of threads.
    pub fn clear(&mut self) {
        self.terms.clear();
        self.seconds = 0.0;
    }

    /// Applications silent since the last point.
    pub fn silent(&self, measures: &BTreeMap<AppId, Source>) -> Vec<AppId> {
        let quiet = |[sum, weight]: &[f64; 2]| !speed::usable(sum / weight);
        let apps = measures.keys().zip(&self.terms);
        apps.filter(|(_, term)| quiet(term)).map(|(id, _)| *id).collect()
    }

    /// Seconds since the last point.
    pub fn waits(&self) -> f64 {
        self.seconds
    }
}

/// A window in progress: speed × seconds per application, and seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SpeedWindow {
    sums: Vec<f64>,
    seconds: f64,
}

impl SpeedWindow {
    pub fn add(&mut self, point: &SpeedPoint) {
        self.sums.resize(point.logs.len(), 0.0);
        for (sum, log) in self.sums.iter_mut().zip(&point.logs) {
            *sum += log.exp() * point.seconds;
        }
        self.seconds += point.seconds;
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    pub fn logs(&self) -> Vec<f64> {
        self.sums.iter().map(|sum| (sum / self.seconds).ln()).collect()
    }
}
