//! The results of undoing.

/// Result of undoing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RestoreReport {
    /// Tasks that have their own mask or scheduling policy again, and sessions that have their own weight.
    pub restored: usize,
    /// Of these, tasks that Cotenant had never seen: born under one of ours.
    pub inherited: usize,
    /// Tasks that had it already.
    pub unchanged: usize,
    /// Tasks that have ended.
    pub gone: usize,
    /// Tasks that were left alone because another agent has changed it since.
    pub foreign: usize,
    /// Tasks that could not be changed.
    pub failed: usize,
    /// Groups and processes that Cotenant had paused, and that run again.
    pub resumed: usize,
    /// Journals that were undone.
    pub journals: usize,
    /// Lines for people: what was left alone and why, what failed and what to do.
    pub notes: Vec<String>,
}

impl RestoreReport {
    /// Something could not be undone: why, and what to do.
    pub fn fail(&mut self, note: String) {
        self.failed += 1;
        self.notes.push(note);
    }
}
