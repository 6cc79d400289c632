//! Cost of enumerating mapping classes. Prints one JSON object per line:
//! `{"bench":"classes","machine":"ivy-bridge-2s","cpus":40,"threads":[10,10],"balanced":false,"classes":"…","count_us":…,"listed":…,"per_s":…}`.
//!
//! `cargo bench -p cotenant-model --bench classes`. Lists the classes found in a second, up to a million.

use cotenant_model::testing::machine;
use cotenant_model::topology::symmetry::{Enumeration, Labels, Tenant};
use cotenant_testing::bench::Report;
use std::time::{Duration, Instant};

/// Packages, LLC domains per package, cores per domain, contexts per core; threads of each application.
type Case = (&'static str, (u32, u32, u32, u32), &'static [usize], bool);

const CASES: &[Case] = &[
    ("clovertown", (2, 2, 2, 1), &[4], false),
    ("ivy-bridge-2s", (2, 1, 10, 2), &[20], false),
    ("ivy-bridge-2s", (2, 1, 10, 2), &[20, 20], false),
    ("ivy-bridge-2s", (2, 1, 10, 2), &[20, 20], true),
    ("ivy-bridge-2s", (2, 1, 10, 2), &[10, 10, 10, 10], false),
    ("ivy-bridge-2s", (2, 1, 10, 2), &[1, 1, 1, 1, 1, 1, 1, 1], false),
    ("chiplets", (2, 8, 8, 2), &[64, 64], false),
    ("large", (4, 16, 8, 2), &[512], false),
    ("large", (4, 16, 8, 2), &[512], true),
];

fn main() {
    let mut report = Report::new("classes");
    for &(name, (packages, llcs, cores, smt), threads, balanced) in CASES {
        let topology = machine(packages, llcs, cores, smt);
        let tenants = threads.iter().map(|&threads| Tenant { threads, ..Tenant::default() }).collect();
        let enumeration = Enumeration::new(&topology, &Labels::default(), tenants, balanced);
        let started = Instant::now();
        let count = enumeration.count();
        let counted = started.elapsed();
        let started = Instant::now();
        let mut listed = 0u64;
        for _ in enumeration.iter().take(1_000_000) {
            listed += 1;
            if listed.is_multiple_of(64) && started.elapsed() > Duration::from_secs(1) {
                break;
            }
        }
        report.row(serde_json::json!({
            "machine": name,
            "cpus": topology.cpus().len(),
            "threads": threads,
            "balanced": balanced,
            "classes": count.map(|count| format!("{count:?}")),
            "count_us": count.map(|_| counted.as_secs_f64() * 1e6),
            "listed": listed,
            "per_s": listed as f64 / started.elapsed().as_secs_f64(),
        }));
    }
}
