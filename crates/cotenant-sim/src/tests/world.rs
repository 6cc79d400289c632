//! What must hold of a machine in motion.

use crate::kernel::KernelKind;
use crate::run::mean_progress;
use crate::scenario::Scenario;
use cotenant_core::machine::Machine;
use cotenant_core::optimum::Limits;
use cotenant_core::policy::{self, None as NoPolicy};

const IVY: &str = include_str!("../../../../machines/ivy-bridge-2s.toml");

fn scenario(text: &str) -> Scenario {
    let find = |name: &str| match name {
        "ivy-bridge-2s" => Machine::parse(IVY).map_err(|e| e.to_string()),
        other => Err(format!("no machine {other}")),
    };
    Scenario::parse(text, find).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn smoke() {
    let s = scenario(
        "machine = 'ivy-bridge-2s'\n[[app]]\nprogram='membench'\nthreads=12\n[[app]]\nprogram='hubench'\nthreads=8\nwork_s=4\n",
    );
    let kernel = KernelKind::default();
    let alone: Vec<f64> = (0..2).map(|a| s.alone(a, kernel, 1).unwrap()).collect();
    println!("alone {alone:?}");
    for name in ["none", "sam"] {
        for seed in 0..3 {
            let t = std::time::Instant::now();
            let mut moves = Vec::new();
            let o = s
                .run(&*policy::by_name(name).unwrap(), kernel, seed, |r| {
                    if moves.len() < 20 {
                        moves.extend(r.orders.iter().map(|o| format!("{} {}", r.sample.at.as_secs_f64(), o.reason)))
                    }
                })
                .unwrap();
            println!(
                "{name} {seed}: {:?} {:.3} migrations {} in {:?}",
                o.apps.iter().map(|a| a.time_s).collect::<Vec<_>>(),
                mean_progress(&alone, &o),
                o.migrations,
                t.elapsed()
            );
            if seed == 0 {
                println!("{moves:#?}");
            }
        }
    }
    let t = std::time::Instant::now();
    let (best, o) = s.optimal(&alone, Limits { classes: 2000, evaluations: 500 }, 1).unwrap();
    println!("{best:?} {:?} in {:?}", o.apps.iter().map(|a| a.time_s).collect::<Vec<_>>(), t.elapsed());
    let _ = NoPolicy;
}
