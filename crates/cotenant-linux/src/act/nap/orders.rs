//! Orders to nap, for programs with libcotenant and marks.
//!
//! The memory is looked for and checked as for reading, and mapped anew for writing. Nothing but the program's order is
//! written there. An order without a heartbeat is stale after [`FRESH`]: whoever gives one and dies, leaves nobody
//! napping.

use crate::sense::processes::Process;
use crate::sense::progress::{For, Memory, Producer, Refused};
use crate::sys;
use cotenant_rt::layout::{self, MINOR_WITH_ORDERS};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// An order that nobody stood by for so long is not obeyed.
pub const FRESH: Duration = Duration::from_nanos(layout::FRESH_NS);

/// No nap is longer, whatever the order says.
pub const LONGEST_NAP: Duration = Duration::from_nanos(layout::LONGEST_NAP_NS);

/// One program's orders. Withdrawn on drop, where any was given: else they may be another Cotenant's.
#[derive(Debug)]
pub struct Orders {
    memory: Memory,
    given: Cell<bool>,
}

/// What a program did about its orders: sums over its threads since it began. Times are of [`sys::monotonic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Naps {
    /// Naps that were begun.
    pub count: u64,
    /// Time that naps which have ended really took, over all threads.
    pub napped: Duration,
    /// Beginning of the latest one; `None` before the first.
    pub begin: Option<Duration>,
    /// End of the latest one that has ended.
    pub end: Option<Duration>,
    /// Threads that nap now. A thread that was killed in its nap is counted for ever.
    pub napping: u64,
    /// When a thread last looked for orders; `None`: the program has no marks, or has not reached one.
    pub looked: Option<Duration>,
}

impl Naps {
    /// Whether there can have been so many, for so long, since the machine started: a nap takes a microsecond at
    /// least, and hardly more than 2^15 threads nap at once. The counts are the program's to write.
    pub fn can_be(&self, now: Duration) -> bool {
        const THREADS: u128 = 1 << 15;
        u128::from(self.count) <= now.as_micros() * THREADS && self.napped.as_micros() <= now.as_micros() * THREADS
    }
}

impl Orders {
    /// Those of a process; `Ok(None)` where it has no memory for them (yet): no libcotenant, or no mark reached. With
    /// those that are `known`, only others: it executes another program since, which has other memory.
    ///
    /// # Errors
    /// Where there is memory under that name that is not to be trusted, or whose library obeys no orders; also in the
    /// moment in which a program makes its memory.
    pub fn of(pid: u32, process: &Process, known: Option<&Self>) -> Result<Option<Self>, Refused> {
        let known = known.map(|orders| orders.memory.inode);
        // One system call lists some 1,300 descriptors into it.
        let found = Memory::find_one(For::Orders, Producer::Program, pid, process, known, &mut vec![0; 32 << 10])?;
        let Some(memory) = found else { return Ok(None) };
        let minor = memory.header().version.load(Relaxed) & 0xffff;
        if minor < MINOR_WITH_ORDERS {
            return Err(Refused::NoOrders(minor));
        }
        Ok(Some(Self { memory, given: Cell::new(false) }))
    }

    /// Those in a memory, whoever made it.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn over(memory: Memory) -> Self {
        Self { memory, given: Cell::new(false) }
    }

    /// Orders all marked threads to nap until a time of [`sys::monotonic`], unless that is further away than `cap` when
    /// they see it, and stands by it. They see it within 2 ms or so of execution.
    pub fn nap(&self, until: Duration, cap: Duration) {
        self.given.set(true);
        let orders = &self.memory.header().orders;
        orders.cap_ns.store(ns(cap), Relaxed);
        orders.nap_until_ns.store(ns(until), Relaxed);
        self.stand_by();
    }

    /// Stands by the order as it is: it stays fresh for [`FRESH`].
    pub fn stand_by(&self) {
        self.memory.header().orders.heartbeat_ns.store(ns(sys::monotonic()), Relaxed);
    }

    /// No naps from now on. One that was begun goes on to its end.
    pub fn withdraw(&self) {
        self.memory.header().orders.nap_until_ns.store(0, Relaxed);
    }

    /// What became of them.
    pub fn naps(&self) -> Naps {
        let naps = &self.memory.header().naps;
        let time = |word: &std::sync::atomic::AtomicU64| Some(word.load(Relaxed)).filter(|ns| *ns > 0);
        Naps {
            count: naps.count.load(Relaxed),
            napped: Duration::from_nanos(naps.napped_ns.load(Relaxed)),
            begin: time(&naps.begin_ns).map(Duration::from_nanos),
            end: time(&naps.end_ns).map(Duration::from_nanos),
            napping: naps.napping.load(Relaxed),
            looked: time(&naps.looked_ns).map(Duration::from_nanos),
        }
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        if self.given.get() {
            self.withdraw();
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_naps_than_there_can_be_are_told_apart() {
        let now = sys::monotonic();
        let naps = |count, napped| Naps { count, napped, ..Naps::default() };
        assert!(Naps::default().can_be(now) && naps(1_000, 64 * now).can_be(now));
        for absurd in [naps(u64::MAX, now), naps(5, Duration::from_nanos(u64::MAX))] {
            assert!(!absurd.can_be(Duration::from_secs(10_000)), "{absurd:?}");
        }
    }
}
