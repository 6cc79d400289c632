//! Cost of reading reports: CPU time to sum up units and latencies of 1 and of 64 threads. One JSON object per line.

use cotenant_linux::sense::observer::{AppTarget, Observer, Options};
use cotenant_linux::sense::perf::Counting;
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sys::own_cpu_time;
use cotenant_model::topology::{Cpu, Parts};
use cotenant_model::{AppId, CpuId, Time, Topology};
use cotenant_testing::bench::Report;
use serde_json::json;
use std::sync::Barrier;

const READS: u32 = 2_000;

fn main() {
    let mut rows = Report::new("progress");
    let cpu = Cpu { id: CpuId(0), online: true, allowed: true, efficiency_class: None, coord: None };
    let topology = Topology::new(Parts { cpus: vec![cpu], ..Parts::default() }).unwrap();
    // This process both reports and is observed.
    let app = AppTarget { name: String::new(), target: Target::Pids(vec![std::process::id()]) };
    for (threads, latencies) in [(1, false), (1, true), (64, false), (64, true)] {
        let barrier = Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    cotenant_rt::units(1);
                    (0..u64::from(latencies) * 1_000).for_each(|i| cotenant_rt::latency_ns(1_000 + i * i));
                    barrier.wait(); // each has a slot of its own
                });
            }
        });
        let options = Options { counting: Counting::Nothing, ..Options::default() };
        let mut observer = Observer::new(&topology, vec![app.clone()], options).unwrap();
        observer.sample(Time::default(), &mut |task| task.mask.clone()).unwrap();
        let before = own_cpu_time();
        for _ in 0..READS {
            std::hint::black_box(observer.reported(AppId(0)).expect("it reports").latency_ns());
        }
        let us = own_cpu_time().saturating_sub(before).as_secs_f64() * 1e6 / f64::from(READS);
        rows.row(json!({"threads": threads, "latencies": latencies, "us_per_read": us}));
    }
}
