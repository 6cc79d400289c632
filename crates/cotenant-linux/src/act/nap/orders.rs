//! Orders to nap, for programs with libcotenant and marks.
//!
//! The memory is found and checked as for reading, and opened for writing. Only the orders are written. An order
//! without a heartbeat expires after [`FRESH`], so that a dead controller leaves no program napping.

use crate::sense::processes::Process;
use crate::sense::progress::{For, Memory, Producer, Refused};
use crate::sys;
use cotenant_rt::layout::{self, Header, MINOR_WITH_ORDERS};
use std::cell::Cell;
use std::mem::offset_of;
use std::time::Duration;

/// Age at which an order without a heartbeat is ignored.
pub const FRESH: Duration = Duration::from_nanos(layout::FRESH_NS);

/// Limit of a nap, whatever the order.
pub const LONGEST_NAP: Duration = Duration::from_nanos(layout::LONGEST_NAP_NS);

/// One program's orders. Withdrawn on drop if any was given, because otherwise they may belong to another Cotenant.
#[derive(Debug)]
pub struct Orders {
    memory: Memory,
    given: Cell<bool>,
}

/// A program's response to its orders: sums over its threads since its start. Times are of [`sys::monotonic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Naps {
    /// Naps begun.
    pub count: u64,
    /// Total duration of ended naps over all threads.
    pub napped: Duration,
    /// Beginning of the latest one; `None` before the first.
    pub begin: Option<Duration>,
    /// End of the latest ended one.
    pub end: Option<Duration>,
    /// Threads napping now. A thread killed in its nap counts forever.
    pub napping: u64,
    /// Time of the last look for orders by any thread; `None`: the program has no marks, or has not reached one.
    pub looked: Option<Duration>,
}

impl Naps {
    /// Plausibility of these counts since boot: a nap takes at least a microsecond, and at most about 2^15 threads nap
    /// at once. The program could write anything.
    pub fn can_be(&self, now: Duration) -> bool {
        const THREADS: u128 = 1 << 15;
        u128::from(self.count) <= now.as_micros() * THREADS && self.napped.as_micros() <= now.as_micros() * THREADS
    }
}

impl Orders {
    /// Those of a process; `Ok(None)` without memory for them (yet): no libcotenant, or no mark reached. Given `known`
    /// ones, only different ones, as after an exec.
    ///
    /// # Errors
    /// If memory of that name is not trustworthy, or its library obeys no orders; also while a program creates its
    /// memory.
    pub fn of(pid: u32, process: &Process, known: Option<&Self>) -> Result<Option<Self>, Refused> {
        let known = known.map(|orders| orders.memory.inode);
        // One system call lists some 1,300 descriptors into it.
        let found = Memory::find_one(For::Orders, Producer::Program, pid, process, known, &mut vec![0; 32 << 10])?;
        let Some(memory) = found else { return Ok(None) };
        let minor = memory.head()?.u32_at(offset_of!(Header, version)) & 0xffff;
        if minor < MINOR_WITH_ORDERS {
            return Err(Refused::NoOrders(minor));
        }
        Ok(Some(Self { memory, given: Cell::new(false) }))
    }

    /// Those in a memory of any origin.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn over(memory: Memory) -> Self {
        Self { memory, given: Cell::new(false) }
    }

    /// Orders all marked threads to nap until a time of [`sys::monotonic`], unless that is further away than `cap` when
    /// they see it, and renews it. They see it within about 2 ms of execution.
    pub fn nap(&self, until: Duration, cap: Duration) {
        self.given.set(true);
        self.memory.write(offset_of!(Header, orders.nap_until_ns), [ns(until), ns(sys::monotonic()), ns(cap)]);
    }

    /// Renews the current order, which stays valid for [`FRESH`].
    pub fn stand_by(&self) {
        self.memory.write(offset_of!(Header, orders.heartbeat_ns), [ns(sys::monotonic())]);
    }

    /// Withdraws orders. A nap in progress goes on to its end.
    pub fn withdraw(&self) {
        self.memory.write(offset_of!(Header, orders.nap_until_ns), [0]);
    }

    /// The program's response.
    pub fn naps(&self) -> Naps {
        let Ok(head) = self.memory.head() else { return Naps::default() };
        let time = |at: usize| Some(head.u64_at(at)).filter(|ns| *ns > 0).map(Duration::from_nanos);
        Naps {
            count: head.u64_at(offset_of!(Header, naps.count)),
            napped: Duration::from_nanos(head.u64_at(offset_of!(Header, naps.napped_ns))),
            begin: time(offset_of!(Header, naps.begin_ns)),
            end: time(offset_of!(Header, naps.end_ns)),
            napping: head.u64_at(offset_of!(Header, naps.napping)),
            looked: time(offset_of!(Header, naps.looked_ns)),
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
