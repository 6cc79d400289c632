//! The nap engine: what marks call.
//!
//! Cotenant decides and writes one absolute time into the program's memory (Tang, chapter 6, has the controller here, in each program);
//! the engine only obeys: while the order is fresh, and short enough. A monitor that has died leaves a stale order, and nobody napping.

use crate::layout::{FRESH_NS, LONGEST_NAP_NS, Naps, Orders};
use crate::{region, thread};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

/// What the compiler pass keeps for each thread of a program: `struct cotenant_marker` of the header. All zero at first.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Marker {
    /// Estimated instructions until the next call.
    pub countdown: i64,
    /// What it began from; 0 = never called yet.
    reload: i64,
    /// When that was, `CLOCK_MONOTONIC`.
    called_ns: u64,
    room: [u64; 5],
}

const _: () = assert!(size_of::<Marker>() == 64);

/// Time between two calls that is aimed at: half of the 2 ms that an order may go unnoticed, for the estimate is off now and then.
const AIM_NS: u64 = 1_000_000;

/// What a thread begins with, and the least: some 5 µs, so that calls cannot become what the program does.
const LEAST: i64 = 1 << 14;

/// A marker's countdown has ended: looks for orders, and sets it anew.
pub fn called(marker: &mut Marker) {
    thread::keeping_errno(|| {
        let (now, woke) = look();
        marker.reload = tuned(marker, now);
        marker.countdown = marker.reload;
        marker.called_ns = woke;
    });
}

/// The countdown that takes [`AIM_NS`] at the speed since the last call; at most 8 times the last one, for the speed may have been a moment's.
fn tuned(marker: &Marker, now: u64) -> i64 {
    if marker.reload == 0 {
        return LEAST;
    }
    let counted = marker.reload.saturating_sub(marker.countdown).max(1);
    let took = now.saturating_sub(marker.called_ns).max(1);
    let next = i128::from(counted) * i128::from(AIM_NS) / i128::from(took);
    let most = marker.reload.saturating_mul(8);
    next.clamp(LEAST.into(), most.max(LEAST).into()) as i64
}

/// Looks for an order, and naps if there is one to be obeyed. When it looked, and when it was done.
pub fn look() -> (u64, u64) {
    let now = now_ns();
    let Some(region) = region::get_or_make() else { return (now, now) };
    let naps = &region.header.naps;
    naps.looked_ns.store(now, Relaxed);
    let Some(until) = ordered(&region.header.orders, now) else { return (now, now) };
    (now, nap(naps, now, until))
}

/// Until when to nap.
fn ordered(orders: &Orders, now: u64) -> Option<u64> {
    let until = orders.nap_until_ns.load(Relaxed);
    let nap = until.checked_sub(now).filter(|nap| *nap > 0)?;
    // A heartbeat from the future is none: another clock (a time namespace), or nonsense.
    let age = now.checked_sub(orders.heartbeat_ns.load(Relaxed))?;
    (age <= FRESH_NS && nap <= orders.cap_ns.load(Relaxed).min(LONGEST_NAP_NS)).then_some(until)
}

/// Sleeps, and writes down that it did; when it ended.
fn nap(naps: &Naps, begin: u64, until: u64) -> u64 {
    naps.begin_ns.fetch_max(begin, Relaxed);
    naps.napping.fetch_add(1, Relaxed);
    naps.count.fetch_add(1, Relaxed);
    let time = libc::timespec {
        tv_sec: (until / 1_000_000_000) as libc::time_t,
        tv_nsec: (until % 1_000_000_000) as libc::c_long,
    };
    // The system call itself: the function of libc is a place where threads are cancelled, and a loop is none. A signal's handler
    // runs, and the nap goes on: its end is absolute.
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

    #[test]
    fn the_countdown_finds_its_period() {
        // 4 instructions per ns: 1 ms are 4,000,000. It begins with 16,384, and grows by 8 at most.
        let mut marker = Marker::default();
        let mut now = 0;
        let mut seen = Vec::new();
        for _ in 0..6 {
            marker.reload = tuned(&marker, now);
            seen.push(marker.reload);
            now += marker.reload as u64 / 4;
            (marker.countdown, marker.called_ns) = (0, now - marker.reload as u64 / 4);
        }
        assert_eq!(seen, [1 << 14, 1 << 17, 1 << 20, 4_000_000, 4_000_000, 4_000_000]);
        // The same instructions take 100 times as long: once.
        now += 99_000_000;
        assert_eq!(tuned(&marker, now), 40_000);
        // A clock that stands still, a countdown that is anything: no division by zero, no overflow.
        for countdown in [i64::MIN, 0, i64::MAX] {
            let marker = Marker { countdown, reload: i64::MAX, called_ns: u64::MAX, room: [0; 5] };
            assert!(tuned(&marker, 0) >= LEAST);
        }
    }
}
