//! A move with what came of it.

use super::trend::Trend;
use crate::moves::Move;
use cotenant_model::{CpuId, Outcome};
use serde::Serialize;

/// A move with what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// When it was decided, seconds.
    pub at_s: f64,
    /// The move.
    #[serde(flatten)]
    pub what: Move,
    /// Name of the application.
    pub app_name: Option<String>,
    /// What became of it.
    pub outcome: Option<Outcome>,
    /// Where the task was seen in the round after.
    pub seen_on: Option<CpuId>,
    /// Rates around it.
    pub trends: Vec<Trend>,
}
