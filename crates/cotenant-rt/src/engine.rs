//! The nap engine, called by marks.
//!
//! Cotenant decides, and writes one absolute time into the program's memory (in Tang, chapter 6, each program has the
//! controller). The engine only obeys while the order is fresh and short enough, so that a dead monitor stops no
//! program.

use crate::layout::{FRESH_NS, LONGEST_NAP_NS, Naps, Orders};
use crate::{region, thread};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

/// State that the compiler pass keeps for each thread: `struct cotenant_marker` of the header. Initially zero. Cells,
/// because marks may count while the engine works: in a signal handler, or in a marked allocator.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Marker {
    /// Estimated instructions until the next call.
    countdown: Cell<i64>,
    /// Its start value; 0: never called yet.
    reload: Cell<i64>,
    /// The time of that, `CLOCK_MONOTONIC`.
    called_ns: Cell<u64>,
    room: [u64; 5],
}

const _: () = assert!(size_of::<Marker>() == 64);

/// Target time between two calls: half of the 2 ms within which an order must be noticed, because the estimate is
/// sometimes off.
const AIM_NS: u64 = 1_000_000;

/// The initial and least value: some 5 µs, so that calls cannot dominate the program.
const LEAST: i64 = 1 << 14;

/// Called when a marker's countdown ends: looks for orders, and restarts the countdown.
pub fn called(marker: &Marker) {
    thread::keeping_errno(|| {
        let counted = marker.reload.get().saturating_sub(marker.countdown.get());
        marker.countdown.set(i64::MAX); // no further calls meanwhile
        let (now, woke) = look();
        let reload = tuned(marker.reload.get(), counted, now.saturating_sub(marker.called_ns.get()));
        marker.reload.set(reload);
        marker.called_ns.set(woke);
        marker.countdown.set(reload);
    });
}

/// The countdown that takes [`AIM_NS`] if `counted` took `took_ns`; at most 8 times the last one, because that speed
/// may have been brief.
fn tuned(last: i64, counted: i64, took_ns: u64) -> i64 {
    if last == 0 {
        return LEAST;
    }
    let next = i128::from(counted.max(1)) * i128::from(AIM_NS) / i128::from(took_ns.max(1));
    next.clamp(LEAST.into(), last.saturating_mul(8).max(LEAST).into()) as i64
}

/// Looks for an order and naps if it is valid. Returns the time of the look, and the time afterwards.
pub fn look() -> (u64, u64) {
    let now = now_ns();
    let Some(region) = region::PROGRAM.get_or_make() else { return (now, now) };
    let naps = &region.header.naps;
    naps.looked_ns.store(now, Relaxed);
    let Some(until) = ordered(&region.header.orders, now) else { return (now, now) };
    (now, nap(naps, now, until))
}

/// The end of the nap to take.
fn ordered(orders: &Orders, now: u64) -> Option<u64> {
    let until = orders.nap_until_ns.load(Relaxed);
    let nap = until.checked_sub(now).filter(|nap| *nap > 0)?;
    // A heartbeat from the future is invalid: another clock (a time namespace), or nonsense.
    let age = now.checked_sub(orders.heartbeat_ns.load(Relaxed))?;
    (age <= FRESH_NS && nap <= orders.cap_ns.load(Relaxed).min(LONGEST_NAP_NS)).then_some(until)
}

/// Sleeps and records it; returns the end time.
fn nap(naps: &Naps, begin: u64, until: u64) -> u64 {
    naps.begin_ns.fetch_max(begin, Relaxed);
    naps.napping.fetch_add(1, Relaxed);
    naps.count.fetch_add(1, Relaxed);
    let time = libc::timespec {
        tv_sec: (until / 1_000_000_000) as libc::time_t,
        tv_nsec: (until % 1_000_000_000) as libc::c_long,
    };
    // The raw system call, because libc's function is a cancellation point and a loop is none. A signal's handler runs,
    // and the nap continues to its absolute end.
    let none = ptr::null_mut::<libc::timespec>();
    // SAFETY: the timespec is readable; nothing is written.
    while unsafe {
        libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, none)
    } != 0
        && interrupted()
    {}
    let end = now_ns();
    naps.napping.fetch_sub(1, Relaxed);
    naps.napped_ns.fetch_add(end.saturating_sub(begin), Relaxed);
    naps.end_ns.fetch_max(end, Relaxed);
    end
}

fn interrupted() -> bool {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() == libc::EINTR }
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is writable; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn order(until: u64, heartbeat: u64, cap: u64) -> Orders {
        // SAFETY: atomic integers, for which zero is valid.
        let mut orders: Orders = unsafe { std::mem::zeroed() };
        orders.nap_until_ns = AtomicU64::new(until);
        orders.heartbeat_ns = AtomicU64::new(heartbeat);
        orders.cap_ns = AtomicU64::new(cap);
        orders
    }

    /// Promise qos/marked: A program with marks pauses itself by fresh, short orders and runs on without Cotenant;
    /// others are paused from outside, and disobedience is named.
    #[test]
    fn orders_are_obeyed_while_they_are_fresh_and_short() {
        let (now, ms) = (5_000_000_000, 1_000_000);
        let at = |until, heartbeat, cap| ordered(&order(until, heartbeat, cap), now);
        assert_eq!(at(now + 5 * ms, now, 5 * ms), Some(now + 5 * ms));
        assert_eq!(at(now + 5 * ms, now - FRESH_NS, 5 * ms), Some(now + 5 * ms), "just fresh");
        assert_eq!(at(now + 5 * ms, now - FRESH_NS - 1, 5 * ms), None, "stale");
        assert_eq!(at(now + 5 * ms, now + 1, 5 * ms), None, "from the future");
        assert_eq!(at(now + 5 * ms + 1, now, 5 * ms), None, "above the cap");
        assert_eq!(at(now + LONGEST_NAP_NS + 1, now, u64::MAX), None, "above any cap");
        assert_eq!(at(now, now, 5 * ms), None, "over");
        assert_eq!(at(u64::MAX, now, u64::MAX), None, "nonsense");
        assert_eq!(at(0, 0, 0), None, "none was ever given");
    }

    /// Promise see/cost-of-records: With 100 running threads, recording takes below 0.1 % of a core, and a report of
    /// progress below 20 ns.
    #[test]
    fn the_countdown_finds_its_period() {
        // 4 instructions per ns: 1 ms are 4,000,000. It begins with 16,384, and grows by a factor of at most 8.
        let mut seen = vec![tuned(0, 1, 0)];
        for _ in 0..5 {
            let last = seen[seen.len() - 1];
            seen.push(tuned(last, last, last as u64 / 4));
        }
        assert_eq!(seen, [1 << 14, 1 << 17, 1 << 20, 4_000_000, 4_000_000, 4_000_000]);
        // Once, the same instructions take 100 times as long; and then so long that every mark would call.
        assert_eq!(tuned(4_000_000, 4_000_000, 100_000_000), 40_000);
        assert_eq!(tuned(4_000_000, 4_000_000, u64::MAX), LEAST);
        // A stopped clock, arbitrary countdowns: no division by zero, no overflow.
        for counted in [i64::MIN, 0, i64::MAX] {
            assert!(tuned(i64::MAX, counted, 0) >= LEAST);
        }
    }

    #[test]
    fn a_first_call_sets_the_countdown() {
        let marker = Marker::default();
        called(&marker);
        assert_eq!((marker.countdown.get(), marker.reload.get()), (LEAST, LEAST));
        assert!(marker.called_ns.get() > 0);
    }
}
