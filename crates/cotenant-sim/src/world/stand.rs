//! The placement that lasted longest: where a run settled.

use super::World;
use super::parts::Stand;

impl World {
    /// Records a change of places.
    pub(super) fn note_places(&mut self) {
        let all: Option<Vec<usize>> = self.threads.iter().map(|t| t.cpu).collect();
        let places = all.unwrap_or_default();
        if places != self.stand.now {
            self.stand.end(self.now);
            (self.stand.now, self.stand.since) = (places, self.now);
        }
    }

    /// Restarts the measurement of how long placements last.
    pub(crate) fn forget_places(&mut self) {
        let Stand { now, tried, .. } = std::mem::take(&mut self.stand);
        self.stand = Stand { since: self.now, now, tried, ..Stand::default() };
    }

    /// Marks placements from now on as trials that do not count, or not.
    pub(crate) fn try_places(&mut self, tried: bool) {
        if tried != self.stand.tried {
            self.stand.end(self.now);
            (self.stand.since, self.stand.tried) = (self.now, tried);
        }
    }

    /// The CPU of each thread, application by application, in the placement that lasted longest; empty if they never
    /// all ran at the same time.
    pub fn lasting_places(&self) -> Vec<usize> {
        let mut stand = self.stand.clone();
        stand.end(self.now);
        stand.lasting
    }
}
