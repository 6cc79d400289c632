//! Requests that were seen in the kernel.

use serde::Serialize;

/// How many requests were seen in the kernel, and where each was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeenRequests {
    /// Of clients on this machine: at the client.
    pub here: u64,
    /// Of other clients: at the server.
    pub elsewhere: u64,
    /// The share of the time in which they were counted, where there were too many to count all.
    #[serde(skip_serializing_if = "is_all")]
    pub share: f64,
}

/// Whether this share is as good as all: what was missed is a moment at the start.
#[allow(clippy::trivially_copy_pass_by_ref)] // required by serde
fn is_all(share: &f64) -> bool {
    *share > 0.995
}

impl SeenRequests {
    /// The share of the time in which they were counted, if not all were.
    pub fn part(&self) -> Option<f64> {
        (!is_all(&self.share)).then_some(self.share)
    }
}
