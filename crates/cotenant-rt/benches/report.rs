//! Cost of a report: CPU time of the reporting threads, alone and with 64 threads at once. One JSON object per line.
//!
//! CPU time, not wall-clock time: 64 threads on fewer CPUs wait for one another, but the cost of a report must not
//! grow.
//!
//! Holds see/cost-of-records.

use cotenant_testing::bench::Report;
use serde_json::json;
use std::hint::black_box;
use std::sync::Barrier;

const REPORTS: u64 = 5_000_000;
const REPEATS: usize = 5;

type Reporting = fn(u64);

fn main() {
    let mut rows = Report::new("report");
    for (what, report) in [("units", cotenant_rt::units as Reporting), ("latency", cotenant_rt::latency_ns)] {
        for threads in [1, 64] {
            let mut ns: Vec<f64> = (0..REPEATS).map(|_| round(threads, report)).collect();
            ns.sort_by(f64::total_cmp);
            rows.row(json!({
                "what": what, "threads": threads, "ns_per_report": ns[REPEATS / 2], "min": ns[0], "max": ns[REPEATS - 1],
            }));
        }
    }
}

/// Nanoseconds of CPU time per report, over all threads.
fn round(threads: u64, report: Reporting) -> f64 {
    let barrier = Barrier::new(threads as usize);
    let each = REPORTS / threads.min(8);
    let cpu_ns: u64 = std::thread::scope(|scope| {
        let work = || {
            cotenant_rt::init();
            barrier.wait();
            let before = thread_cpu_ns();
            for i in 0..each {
                report(black_box(i));
            }
            thread_cpu_ns() - before
        };
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|thread| thread.join().expect("a thread that only counts")).sum()
    });
    cpu_ns as f64 / (each * threads) as f64
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec is writable; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
