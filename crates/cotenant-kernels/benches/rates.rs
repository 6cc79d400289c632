//! How fast each kernel is on this machine, one thread alone and one on every usable CPU. Prints one JSON object per
//! line:
//! `{"bench":"kernels","kernel":"chase","threads":1,"size":…,"unit":"loads","per_second":…,"min":…,"max":…,"transfers_per_second":…,…}`,
//! with the median, minimum and maximum of five runs. docs/reference/kernels.md has the papers' rates.
//!
//! `cargo bench -p cotenant-kernels --bench rates [-- NAME…]`; without names, all kernels, in about a minute.

use cotenant_kernels::{Caches, Config, Kernel};
use cotenant_testing::bench::Report;
use serde_json::json;
use std::time::Duration;

const RUNS: usize = 5;
const DURATION: Duration = Duration::from_millis(100);

fn main() {
    let topology = cotenant_linux::sense::topology::live().expect("this machine's topology").topology;
    let caches = Caches::of(&topology);
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |kernel: &&Kernel| names.is_empty() || names.iter().any(|name| name == kernel.name);
    let cpus: Vec<_> = topology.usable().iter().collect();
    let mut report = Report::new("kernels");
    for kernel in Kernel::all().iter().filter(wanted) {
        let mut counts = vec![1, cpus.len()];
        counts.dedup();
        for threads in counts {
            let config = Config { duration: Some(DURATION), cpus: cpus.clone(), ..Config::new(threads, caches) };
            let mut runs: Vec<_> = (0..RUNS)
                .map(|_| kernel.run(&config, None, &mut || true).expect("a kernel with defaults runs"))
                .collect();
            runs.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
            let median = &runs[RUNS / 2];
            report.row(json!({
                "kernel": kernel.name, "threads": threads, "size": median.size, "unit": kernel.unit,
                "per_second": median.per_second(), "min": runs[0].per_second(), "max": runs[RUNS - 1].per_second(),
                "bytes_per_second": median.bytes_per_second(),
                "transfers_per_second": median.transfers().map(|n| n as f64 / median.seconds),
                "wrong": median.wrong(),
            }));
        }
    }
}
