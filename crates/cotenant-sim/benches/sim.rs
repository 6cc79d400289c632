//! How fast simulated time passes. Prints one JSON object per line:
//! `{"bench":"sim","case":"speed","machine":"ivy-bridge-2s","policy":"sam","tasks":64,"simulated_s":…,"wall_s":…,"per_s":…,"cpu_s":…,"per_cpu_s":…,"peak_kib":…}`,
//! `{"bench":"sim","case":"seeds","seeds":16,"workers":…,"one_s":…,"all_s":…,"speedup":…}` and
//! `{"bench":"sim","case":"optimum","apps":"10 sgd, 10 bsgd","how":"listed","classes":…,"wall_s":…,"per_s":…}`, where
//! `how` is `listed` (enumerated only), `evaluated` (simulated, too) or `searched` (with its value over the best of all
//! classes). `per_cpu_s` counts this process's CPU time, so that it equals `per_s` on an idle machine.
//!
//! `cargo bench -p cotenant-sim --bench sim`. Target: 300 simulated seconds per second for 64 tasks on 40 CPUs, on
//! one core.
//!
//! Holds sim/workloads.

use cotenant_model::machine::Machine;
use cotenant_sim::batch::{self, Plan};
use cotenant_sim::optimum::Limits;
use cotenant_sim::scenario::Scenario;
use cotenant_testing::bench::Report;
use serde_json::json;
use std::time::Instant;

const IVY: &str = include_str!("../../../machines/ivy-bridge-2s.toml");

/// Programs that share data, stream, chase pointers and compute: a quarter of the tasks each.
const PROGRAMS: [&str; 4] = ["sgd", "membench", "mcf06", "hubench"];

fn scenario(tasks: usize, work_s: f64) -> Scenario {
    let app =
        |name: &str| format!("[[app]]\nprogram = '{name}'\nthreads = {}\nwork_s = {work_s}\n", tasks / PROGRAMS.len());
    let text = format!("machine = 'ivy-bridge-2s'\nkernel = 'eevdf'\n{}", PROGRAMS.map(app).concat());
    let found = Scenario::parse(&text, |_| Machine::parse(IVY).map_err(|e| e.to_string()));
    found.unwrap_or_else(|e| panic!("{e}"))
}

/// Peak memory of this process so far, KiB; `None` where Linux does not report it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// CPU seconds of this thread so far; `None` where Linux does not report them.
fn cpu_s() -> Option<f64> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedstat.split_whitespace().next()?.parse::<f64>().ok().map(|ns| ns / 1e9)
}

/// Mapping classes per second: listed, simulated, and searched for the best.
fn optimum(report: &mut Report) {
    let app = |name: &str| format!("[[app]]\nprogram = '{name}'\nthreads = 10\nwork_s = 0.5\n");
    let text = format!("machine = 'ivy-bridge-2s'\nkernel = 'eevdf'\nrestart = true\n{}{}", app("sgd"), app("bsgd"));
    let scenario = Scenario::parse(&text, |_| Machine::parse(IVY).map_err(|e| e.to_string()));
    let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
    let mut row = |how: &str, classes: usize, wall_s: f64, of_best: Option<f64>| {
        report.row(
            json!({ "case": "optimum", "apps": "10 sgd, 10 bsgd", "how": how, "classes": classes, "wall_s": wall_s,
            "per_s": classes as f64 / wall_s, "of_best": of_best }),
        );
    };
    let started = Instant::now();
    let classes = scenario.mappings().iter().count();
    row("listed", classes, started.elapsed().as_secs_f64(), None);
    let optimal = |limits| scenario.optimal(&[1.0, 1.0], limits, &[], 1).unwrap_or_else(|e| panic!("{e}")).0;
    let started = Instant::now();
    let all = optimal(Limits { classes, evaluations: 0 });
    row("evaluated", all.evaluations, started.elapsed().as_secs_f64(), Some(1.0));
    for evaluations in [100, 300, 1_000] {
        let started = Instant::now();
        let found = optimal(Limits { classes: 1, evaluations });
        row("searched", found.evaluations, started.elapsed().as_secs_f64(), Some(found.value / all.value));
    }
}

fn main() {
    let mut report = Report::new("sim");
    // In ascending order: the high-water mark of memory never falls.
    for tasks in [8, 64, 512] {
        let scenario = scenario(tasks, if tasks > 64 { 2.0 } else { 20.0 });
        for name in ["none", "sam"] {
            let policy = cotenant_policies::standard().make(name, &scenario.config).unwrap_or_else(|e| panic!("{e}"));
            let (started, cpu) = (Instant::now(), cpu_s());
            let (mut runs, mut simulated_s) = (0, 0.0);
            while started.elapsed().as_secs_f64() < 1.0 {
                runs += 1;
                let outcome = scenario.run(&*policy, scenario.kernel, runs, |_| ()).unwrap_or_else(|e| panic!("{e}"));
                simulated_s += outcome.makespan_s;
            }
            let wall_s = started.elapsed().as_secs_f64();
            let cpu_s = cpu_s().zip(cpu).map(|(after, before)| after - before);
            report.row(json!({
                "case": "speed", "machine": "ivy-bridge-2s", "cpus": 40, "policy": name, "tasks": tasks, "runs": runs,
                "simulated_s": simulated_s, "wall_s": wall_s, "per_s": simulated_s / wall_s, "cpu_s": cpu_s,
                "per_cpu_s": cpu_s.map(|cpu_s| simulated_s / cpu_s), "peak_kib": peak_kib(),
            }));
        }
    }
    optimum(&mut report);
    let (scenario, seeds) = (scenario(64, 20.0), 16);
    let limits = Limits { classes: 1, evaluations: 1 };
    let plan = Plan { policies: vec!["sam".to_owned()], seeds, limits };
    // One core does what `batch::run` does: each program alone, then Linux and the policy with every seed.
    let started = Instant::now();
    let sam = cotenant_policies::standard().make("sam", &scenario.config).unwrap_or_else(|e| panic!("{e}"));
    for seed in 1..=seeds {
        for app in 0..scenario.apps.len() {
            scenario.alone(app, scenario.kernel, seed).unwrap_or_else(|e| panic!("{e}"));
        }
        for policy in [&cotenant_policies::None as &dyn cotenant_model::policy::DynPolicy, &*sam] {
            scenario.run(policy, scenario.kernel, seed, |_| ()).unwrap_or_else(|e| panic!("{e}"));
        }
    }
    let one_s = started.elapsed().as_secs_f64();
    let started = Instant::now();
    batch::run(&scenario, &plan, &cotenant_policies::standard(), |_, _| ()).unwrap_or_else(|e| panic!("{e}"));
    let all_s = started.elapsed().as_secs_f64();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    report.row(json!({ "case": "seeds", "seeds": seeds, "workers": workers, "one_s": one_s, "all_s": all_s,
        "speedup": one_s / all_s }));
}
