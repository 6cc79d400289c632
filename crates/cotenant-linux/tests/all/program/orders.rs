//! A program that obeys orders, one that sends them, and how each finds the other.

use cotenant_linux::FsRoot;
use cotenant_linux::act::nap::Orders;
use cotenant_linux::sense::ends::Ends;
use cotenant_linux::sense::processes::{Follower, Target};
use cotenant_linux::sense::progress::Refused;
use cotenant_linux::sys;
use cotenant_model::Time;
use std::time::Duration;

/// The orders of a process.
pub fn of(pid: u32) -> Result<Option<Orders>, Refused> {
    let mut follower = Follower::new(&FsRoot::live(), vec![Target::Pids(vec![pid])], None);
    follower.update(Time::default(), &[], &[], &Ends::new().unwrap());
    follower.processes().get(&pid).map_or(Ok(None), |process| Orders::of(pid, process, None))
}

/// Works for ever, with marks, and reports a unit after each.
pub fn obey() {
    std::thread::spawn(|| {
        loop {
            cotenant_rt::mark();
            cotenant_rt::units(1);
        }
    });
}

/// Orders a process to nap forever, 20 ms ahead each time.
pub fn give(pid: u32) {
    let orders = of(pid).unwrap().expect("it has marks");
    std::thread::spawn(move || {
        loop {
            orders.nap(sys::monotonic() + Duration::from_millis(20), Duration::from_millis(50));
            std::thread::sleep(Duration::from_millis(2)); // often enough that an order never grows stale
        }
    });
}
