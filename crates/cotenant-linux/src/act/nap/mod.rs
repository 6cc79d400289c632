//! Napping from inside: a program's marked threads sleep by themselves on order. Nothing is journaled, because an order
//! without renewal soon expires.

pub mod orders;

#[cfg(doc)]
use crate::act::nap::orders::FRESH;
use crate::act::nap::orders::LONGEST_NAP;
use crate::notes::Notes;
use crate::sense::processes::Process;
use crate::sense::progress::Refused;
use crate::sys;
use crate::sys::thread::Held;
use crate::undo::Journal;
use cotenant_model::{Sample, Signal, Time};
use std::collections::BTreeMap;
use std::time::Duration;

pub use orders::{Naps, Orders};

/// Interval of looks for marks in a process without any; shorter in one that has just started.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A marked program that ran this long without passing a mark does not nap by itself.
const DEAF: Duration = Duration::from_millis(300);

/// Less CPU time than this between two looks is inconclusive, nanoseconds.
const LITTLE_NS: f64 = 1e6;

/// Renewal interval of orders to nap, which expire after [`FRESH`].
const STAND_BY: Duration = Duration::from_millis(33);

/// Processes without marks below this fraction of a program's CPU time need not nap: waiting shells.
const IDLE: f64 = 0.05;

/// CPU time of the processes of a sample, nanoseconds, and their threads.
pub type Ran = BTreeMap<u32, (u64, usize)>;

/// Sums up the CPU time of the processes of a sample.
pub fn ran(sample: &Sample) -> Ran {
    let mut ran = Ran::new();
    for task in &sample.tasks {
        let (time, threads) = ran.entry(task.info.pid).or_default();
        *time += task.counters.get(Signal::CpuTime).map_or(0, |count| count.value);
        *threads += 1;
    }
    ran
}

/// The marked processes of one application.
#[derive(Debug, Default)]
pub struct Marks {
    processes: BTreeMap<u32, Marked>,
    /// CPU time of its processes at the last look, nanoseconds.
    ran: BTreeMap<u32, u64>,
    /// Sleep of ended processes.
    before: (u64, f64),
    /// Threads of processes that have passed a mark, at the last look.
    pub threads: usize,
    /// End of the current nap, and time of its renewal.
    napping: Option<(Time, Time)>,
}

/// One of its processes.
#[derive(Debug)]
struct Marked {
    start_ticks: u64,
    orders: Option<Orders>,
    next_look: Time,
}

impl Marks {
    /// Finds marks in its processes, given by ascending ids. `foreign`: it was not started here, and is claimed before
    /// it gets orders.
    pub fn look(
        &mut self,
        journal: &mut Journal,
        at: Time,
        processes: &[(u32, &Process)],
        foreign: bool,
        notes: &mut Notes,
    ) {
        for &(pid, process) in processes {
            let fresh = || Marked { start_ticks: process.start_ticks(), orders: None, next_look: at };
            let known = self.processes.entry(pid).or_insert_with(fresh);
            if known.start_ticks != process.start_ticks() {
                *known = fresh();
            }
            if at < known.next_look {
                continue;
            }
            known.next_look = at + LOOK_EVERY;
            if let Some(orders) = &known.orders {
                if !orders.naps().can_be(sys::monotonic()) {
                    notes.add(format!("process {pid}: its naps are not counted: it says more than there can be"));
                }
                // A newly executed program may have other memory.
                if let Ok(Some(other)) = Orders::of(pid, process, Some(orders)) {
                    self.before = add(self.before, orders);
                    known.orders = Some(other);
                }
                continue;
            }
            match orders_of(journal, pid, process, foreign) {
                Ok(Some(orders)) => known.orders = Some(orders),
                Ok(None) => known.next_look = at + LOOK_AGAIN, // it has just started, or has none
                Err(why) => notes.add(format!("process {pid} does not nap by its marks: {why}")),
            }
        }
        let before = &mut self.before;
        self.processes.retain(|pid, known| {
            let keep = processes.binary_search_by_key(pid, |(pid, _)| *pid).is_ok();
            if let Some(orders) = known.orders.as_ref().filter(|_| !keep) {
                *before = add(*before, orders);
            }
            keep
        });
    }

    /// Whether inside naps reach it; `None` if it slept, without new information.
    pub fn judge(&mut self, processes: &[(u32, &Process)], ran: &Ran) -> Option<bool> {
        let now = sys::monotonic();
        let before = std::mem::take(&mut self.ran);
        let (mut hears, mut deaf) = (0.0, 0.0);
        self.threads = 0;
        for (pid, _) in processes {
            let Some(&(time, threads)) = ran.get(pid) else { continue };
            let looked = self.processes.get(pid).and_then(|known| known.orders.as_ref()?.naps().looked);
            let since = time.saturating_sub(before.get(pid).copied().unwrap_or(0)) as f64;
            let hearing = looked.is_some_and(|looked| now.saturating_sub(looked) < DEAF);
            *if hearing { &mut hears } else { &mut deaf } += since;
            self.threads += if looked.is_some() { threads } else { 0 };
            self.ran.insert(*pid, time);
        }
        (hears + deaf >= LITTLE_NS).then_some(hears > 0.0 && deaf <= IDLE * (hears + deaf))
    }

    fn orders(&self) -> impl Iterator<Item = &Orders> {
        self.processes.values().filter_map(|known| known.orders.as_ref())
    }

    /// Whether any process takes orders.
    pub fn any(&self) -> bool {
        self.orders().next().is_some()
    }

    /// Orders a nap until `end`, which is `until` on the programs' clock.
    pub fn nap(&mut self, now: Time, end: Time, until: Duration) {
        self.orders().for_each(|orders| orders.nap(until, LONGEST_NAP));
        self.napping = Some((end, now + STAND_BY));
    }

    /// Withdraws orders.
    pub fn withdraw(&mut self) {
        self.orders().for_each(Orders::withdraw);
        self.napping = None;
    }

    /// Renews orders if due; returns the next due time.
    pub fn stand_by(&mut self, now: Time) -> Option<Time> {
        let (end, due) = self.napping.filter(|(end, _)| *end > now)?;
        if due > now {
            return Some(due);
        }
        self.orders().for_each(Orders::stand_by);
        let next = now + STAND_BY;
        self.napping = Some((end, next));
        (next < end).then_some(next)
    }

    /// Naps so far, and total seconds that threads slept in them.
    pub fn slept(&self) -> (u64, f64) {
        self.orders().fold(self.before, add)
    }
}

/// The orders of a marked process.
fn orders_of(journal: &mut Journal, pid: u32, process: &Process, foreign: bool) -> Result<Option<Orders>, String> {
    let orders = match Orders::of(pid, process, None) {
        Ok(orders) => orders,
        Err(why @ Refused::NoOrders(_)) => return Err(why.to_string()),
        Err(_) => None, // the reader of its reports gives the reason
    };
    if foreign && orders.is_some() {
        let Ok(held) = Held::open_exactly(pid, pid, process.start_ticks()) else { return Ok(None) }; // it has ended
        journal.may_touch(&held)?;
    }
    Ok(orders)
}

fn add((naps, seconds): (u64, f64), orders: &Orders) -> (u64, f64) {
    let of = orders.naps();
    if !of.can_be(sys::monotonic()) {
        return (naps, seconds);
    }
    (naps.saturating_add(of.count), seconds + of.napped.as_secs_f64())
}
