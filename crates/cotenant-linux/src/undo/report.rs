//! The results of undoing.

/// Result of undoing.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RestoreReport {
    /// Tasks whose own mask or scheduling policy was restored, and sessions whose weight was.
    pub restored: usize,
    /// Of these, tasks unknown to Cotenant: children of managed ones.
    pub inherited: usize,
    /// Tasks that had it already.
    pub unchanged: usize,
    /// Tasks that have ended.
    pub gone: usize,
    /// Tasks left alone because another agent has changed them since.
    pub foreign: usize,
    /// Tasks that could not be changed.
    pub failed: usize,
    /// Groups and processes paused by Cotenant that run again.
    pub resumed: usize,
    /// Journals that were undone.
    pub journals: usize,
    /// Lines for people: omitted tasks with reasons, failures with remedies.
    pub notes: Vec<String>,
}

impl RestoreReport {
    /// A change that could not be undone: the reason and the remedy.
    pub fn fail(&mut self, note: String) {
        self.failed += 1;
        self.notes.push(note);
    }
}
