//! A move with its results.

use super::trend::Trend;
use crate::moves::Move;
use cotenant_model::{CpuId, Outcome};
use serde::Serialize;

/// A move with its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// Time of the decision, seconds.
    pub at_s: f64,
    /// The move.
    #[serde(flatten)]
    pub what: Move,
    /// Name of the application.
    pub app_name: Option<String>,
    /// Its outcome.
    pub outcome: Option<Outcome>,
    /// The task's CPU in the round after.
    pub seen_on: Option<CpuId>,
    /// Rates around it.
    pub trends: Vec<Trend>,
}
