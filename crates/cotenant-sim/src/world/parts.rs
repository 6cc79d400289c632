//! Plain values that the machine in motion is made of.

use crate::Ns;

/// Events of a thread per instruction, where it stands and with what it holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PerInstruction {
    /// Misses of the private caches.
    pub requests: f64,
    /// Lines that the second level does not have.
    pub second: f64,
    /// Accesses to the last-level cache.
    pub accesses: f64,
    /// Misses of it.
    pub misses: f64,
    /// Part of these that count as such: the others were fetched ahead.
    pub demanded: f64,
    /// Lines written back per miss.
    pub writebacks: f64,
    /// Share of its memory accesses that go to another node.
    pub remote: f64,
    /// Lines from another core of the LLC domain, from another domain of the package, from another package.
    pub intra: f64,
    pub near: f64,
    pub inter: f64,
    /// Seconds in which the core computes.
    pub busy_s: f64,
    /// Share of its lines that other threads have, too.
    pub shared: f64,
    /// Bytes that it can hold.
    pub bound: f64,
    /// The same of each shared level before the last.
    pub near_bound: Vec<f64>,
    /// Bytes that it has in these levels, up to each of them.
    pub nearer: Vec<f64>,
}

impl PerInstruction {
    pub fn coherence(&self) -> f64 {
        self.intra + self.near + self.inter
    }
}

/// A step is no longer while pages move, so that what is read meets them where they are.
pub(super) const STEP: Ns = 10_000_000;

/// Memory of a thread that is to move.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    pub thread: usize,
    /// The thread of that slot that it is about.
    pub id: u32,
    /// Nodes that take its own pages, in equal parts.
    pub nodes: Vec<usize>,
}

/// Where all threads stand, and where they stood for longest at a stretch.
#[derive(Clone, Debug, Default)]
pub(super) struct Stand {
    pub since: Ns,
    /// The CPU of each thread; empty while not all of them run.
    pub now: Vec<usize>,
    pub longest: Ns,
    pub lasting: Vec<usize>,
    /// Whether it does not count, since it is only tried.
    pub tried: bool,
}

impl Stand {
    pub fn end(&mut self, now: Ns) {
        let lasted = now - self.since;
        if !self.tried && !self.now.is_empty() && lasted > self.longest {
            (self.lasting, self.longest) = (self.now.clone(), lasted);
        }
    }
}
