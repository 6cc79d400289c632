//! Plain values of the machine in motion.

use crate::Ns;

/// Events of a thread per instruction at its place with its cache contents.
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
    /// Fraction of these that count as misses: the others were prefetched.
    pub demanded: f64,
    /// Lines written back per miss.
    pub writebacks: f64,
    /// Fraction of its memory accesses to another node.
    pub remote: f64,
    /// Lines from another core of the LLC domain, from another domain of the package, from another package.
    pub intra: f64,
    pub near: f64,
    pub inter: f64,
    /// Seconds in which the core computes.
    pub busy_s: f64,
    /// Fraction of its lines that other threads share.
    pub shared: f64,
    /// Bytes that it can hold.
    pub bound: f64,
    /// The same of each shared level before the last.
    pub near_bound: Vec<f64>,
    /// Bytes held up to each of these levels.
    pub nearer: Vec<f64>,
}

impl PerInstruction {
    pub fn coherence(&self) -> f64 {
        self.intra + self.near + self.inter
    }
}

/// Limits a step while pages move, so that reads see them in place.
pub(super) const STEP: Ns = 10_000_000;

/// Memory of a thread that is to move.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    pub thread: usize,
    /// Id of the thread in that slot.
    pub id: u32,
    /// Nodes that take its own pages, in equal parts.
    pub nodes: Vec<usize>,
}

/// The current placement of all threads, and the one that lasted longest.
#[derive(Clone, Debug, Default)]
pub(super) struct Stand {
    pub since: Ns,
    /// The CPU of each thread; empty while not all of them run.
    pub now: Vec<usize>,
    pub longest: Ns,
    pub lasting: Vec<usize>,
    /// Whether it is only a trial and does not count.
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
