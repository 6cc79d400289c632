//! Orders to nap, for programs with libcotenant and marks.
//!
//! The memory is looked for and checked as for reading, and opened for writing. Nothing but the program's order is
//! written there. An order without a heartbeat is stale after [`FRESH`]: whoever gives one and dies, leaves nobody
//! napping.

use crate::sense::processes::Process;
use crate::sense::progress::{For, Memory, Producer, Refused};
use crate::sys;
use cotenant_rt::layout::{self, Header, MINOR_WITH_ORDERS};
use std::cell::Cell;
use std::mem::offset_of;
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
        let minor = memory.head()?.u32_at(offset_of!(Header, version)) & 0xffff;
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
        self.memory.write(offset_of!(Header, orders.nap_until_ns), [ns(until), ns(sys::monotonic()), ns(cap)]);
    }

    /// Stands by the order as it is: it stays fresh for [`FRESH`].
    pub fn stand_by(&self) {
        self.memory.write(offset_of!(Header, orders.heartbeat_ns), [ns(sys::monotonic())]);
    }

    /// No naps from now on. One that was begun goes on to its end.
    pub fn withdraw(&self) {
        self.memory.write(offset_of!(Header, orders.nap_until_ns), [0]);
    }

    /// What became of them.
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
