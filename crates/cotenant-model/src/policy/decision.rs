//! What a policy returns.

use super::state::State;
use crate::{Proposal, Time};
use serde::{Deserialize, Serialize};

/// Result of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision<S = State> {
    /// Actions in order. Each task occurs at most once, and its pages at most once.
    pub proposals: Vec<Proposal>,
    /// State for the next round.
    pub state: S,
    /// Time of the next decision; [`Time::NEVER`]: none.
    pub wake_at: Time,
    /// End of a trial, during which latencies are probed more often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_until: Option<Time>,
    /// Remarks for people: missing signals, limits reached. The same remark has the same text.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::text::lines_of")]
    pub notes: Vec<String>,
}

impl<S> Decision<S> {
    /// A decision without a trial.
    pub fn new(proposals: Vec<Proposal>, state: S, wake_at: Time, notes: Vec<String>) -> Self {
        Self { proposals, state, wake_at, watch_until: None, notes }
    }
}
