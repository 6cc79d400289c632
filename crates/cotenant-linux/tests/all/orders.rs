//! Orders to nap: obeyed, acknowledged, and void once their sender is dead.

use crate::program::orders::of;
use crate::program::{Program, kill};
use cotenant_linux::act::nap::{Orders, orders};
use cotenant_linux::sys;
use std::fs;
use std::time::{Duration, Instant};

/// Long enough for every awaited event.
const PATIENCE: Duration = Duration::from_secs(300);

/// Repeats until there is a result.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: takes plain numbers; the pid is one of our own programs.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
}

/// A program with marks, and its orders.
fn obedient() -> (Program, Orders) {
    let mut program = Program::start(1);
    assert!(of(program.pid()).unwrap().is_none(), "no memory before the first mark");
    program.ask("obey");
    // Half-initialised memory is refused.
    let orders =
        until("the first mark", || of(program.pid()).ok().flatten().filter(|orders| orders.naps().looked.is_some()));
    (program, orders)
}

/// Waits until the program has looked for orders this many times; the looks are at different times.
fn looks(orders: &Orders, times: usize) {
    let mut last = orders.naps().looked;
    for _ in 0..times {
        last = until("a look", || Some(orders.naps().looked).filter(|now| *now != last));
    }
}

/// Holds qos/marked.
#[test]
fn a_marked_program_naps_as_ordered_and_says_so() {
    let (_program, orders) = obedient();
    assert_eq!((orders.naps().count, orders.naps().end), (0, None));
    // If this thread is delayed for longer than the nap, the order has expired: once more.
    let (end, naps) = until("a nap", || {
        let begun = orders.naps().count;
        let end = sys::monotonic() + Duration::from_millis(200);
        orders.nap(end, Duration::from_millis(500));
        let over = || sys::monotonic() >= end || orders.naps().count > begun;
        until("its end", || over().then_some(()));
        (orders.naps().count > begun).then(|| {
            until("its end", || orders.naps().end);
            (end, orders.naps()) // complete, since the end is written last
        })
    });
    assert!(naps.begin.unwrap() < end && naps.end.unwrap() >= end, "{end:?} {naps:?}");
    assert!(naps.begin.unwrap() + naps.napped >= naps.end.unwrap(), "one nap, by one thread: {naps:?}");
    assert_eq!((naps.count, naps.napping), (1, 0));
}

/// Whether a signal to stop has arrived at every thread: each continues until it notices.
fn all_stopped(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

/// Holds qos/marked.
#[test]
fn stale_long_and_withdrawn_orders_are_not_obeyed() {
    let (program, orders) = obedient();
    let hour = Duration::from_secs(3600);
    orders.nap(sys::monotonic() + hour, hour);
    looks(&orders, 3);
    orders.nap(sys::monotonic() + Duration::from_millis(900), Duration::from_millis(10));
    looks(&orders, 3);
    orders.withdraw();
    looks(&orders, 3);
    assert_eq!(orders.naps().count, 0, "above the caps");
    // The program is stopped while the order is fresh, and continues while it is stale but not over.
    signal(program.pid(), libc::SIGSTOP);
    until("all its threads stand", || all_stopped(program.pid()).then_some(()));
    orders.nap(sys::monotonic() + Duration::from_millis(950), orders::LONGEST_NAP);
    let stale = sys::monotonic() + orders::FRESH;
    until("the order is stale", || (sys::monotonic() > stale).then_some(()));
    signal(program.pid(), libc::SIGCONT);
    looks(&orders, 3);
    assert_eq!(orders.naps().count, 0);
    drop(orders);
    let again = of(program.pid()).unwrap().unwrap();
    again.stand_by();
    looks(&again, 3);
    assert_eq!(again.naps().count, 0, "who goes away takes the order along");
}

/// Holds qos/marked.
#[test]
fn who_gives_orders_and_is_killed_leaves_nobody_napping() {
    let (program, orders) = obedient();
    let mut giver = Program::start(1);
    giver.ask(&format!("give-orders {}", program.pid()));
    until("naps", || (orders.naps().count >= 5).then_some(()));
    kill(giver.pid());
    let stale = sys::monotonic() + orders::FRESH + Duration::from_millis(50);
    until("its order is stale", || (sys::monotonic() > stale && orders.naps().napping == 0).then_some(()));
    looks(&orders, 3);
    let before = orders.naps();
    looks(&orders, 100);
    let after = orders.naps();
    assert_eq!((after.count, after.napping), (before.count, 0), "it runs on");
    assert!(after.looked > before.looked);
}

/// Holds speed/foreign-memory.
#[test]
fn memory_that_is_not_to_be_trusted_gets_no_orders() {
    for (how, why) in [
        ("truncated", "bytes instead of"),
        ("unsealed", "not sealed"),
        ("mode", "mode 666"),
        ("owner", "belongs to user 12345"),
        ("magic", "does not begin"),
        ("version", "version 2"),
        ("process", "the memory of process"),
        ("nothing", "of version 1.0 and obeys no orders"),
    ] {
        if how == "owner" && sys::euid() != 0 {
            eprintln!("skipped in part: only root gives files away");
            continue;
        }
        let mut program = Program::start(1);
        program.ask(&format!("forge {how}"));
        let refused = of(program.pid()).unwrap_err().to_string();
        assert!(refused.contains(why) && !refused.contains('\n'), "{how}: {refused}");
    }
}
