//! Where all threads stood for longest: the placement at which a run came to rest.

use super::{Ns, World};

/// Where all threads stand, and where they stood for longest at a stretch.
#[derive(Clone, Debug, Default)]
pub(super) struct Stand {
    since: Ns,
    /// The CPU of each thread; empty while not all of them run.
    now: Vec<usize>,
    longest: Ns,
    lasting: Vec<usize>,
}

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
        self.stand = Stand { since: self.now, now: std::mem::take(&mut self.stand.now), ..Stand::default() };
    }

    /// The CPU of each thread, application by application, where they all stood for longest at a stretch; empty where
    /// they never all ran at the same time.
    pub fn lasting_places(&self) -> Vec<usize> {
        let mut stand = self.stand.clone();
        stand.end(self.now);
        stand.lasting
    }
}

impl Stand {
    fn end(&mut self, now: Ns) {
        let lasted = now - self.since;
        if !self.now.is_empty() && lasted > self.longest {
            (self.lasting, self.longest) = (self.now.clone(), lasted);
        }
    }
}
