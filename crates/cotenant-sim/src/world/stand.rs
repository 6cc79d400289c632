//! Where all threads stood for longest: the placement at which a run came to rest.

use super::World;
use super::parts::Stand;

impl World {
    /// Takes note of a change of places.
    pub(super) fn note_places(&mut self) {
        let all: Option<Vec<usize>> = self.threads.iter().map(|t| t.cpu).collect();
        let places = all.unwrap_or_default();
        if places != self.stand.now {
            self.stand.end(self.now);
            (self.stand.now, self.stand.since) = (places, self.now);
        }
    }

    /// Counts how long threads stand somewhere from now on.
    pub(crate) fn forget_places(&mut self) {
        let Stand { now, tried, .. } = std::mem::take(&mut self.stand);
        self.stand = Stand { since: self.now, now, tried, ..Stand::default() };
    }

    /// Says whether where threads stand from now on is only tried, and does not count.
    pub(crate) fn try_places(&mut self, tried: bool) {
        if tried != self.stand.tried {
            self.stand.end(self.now);
            (self.stand.since, self.stand.tried) = (self.now, tried);
        }
    }

    /// The CPU of each thread, application by application, where they all stood for longest at a stretch; empty where
    /// they never all ran at the same time.
    pub fn lasting_places(&self) -> Vec<usize> {
        let mut stand = self.stand.clone();
        stand.end(self.now);
        stand.lasting
    }
}
