//! The simulator's input: machines, programs, scenarios and mixes.

use crate::target::{Group, Target, files, list, with};
use cotenant_model::machine::Machine;
use cotenant_sim::app::parse_programs;
use cotenant_sim::flat_machine;
use cotenant_sim::machine::SimMachine;
use cotenant_sim::scenario::Scenario;
use std::sync::LazyLock;

/// Machines, programs and scenarios of the simulator.
pub static SIMULATOR: Group = Group {
    name: "simulator",
    targets: &[
        Target {
            name: "flat machine",
            seeds: || {
                list(&[
                    "name = 'eight'\ncores = 8\nclock_ghz = 2.0\nllc_bytes = 20971520\nllc_ns = 25\nmemory_ns = 82\n\
                        memory_gbs = 60\ninclusive = true\n",
                ])
            },
            parse: |bytes| {
                with(bytes, |text| {
                    let _ =
                        (flat_machine::is_flat(text), flat_machine::parse(text).map(|machine| use_machine(&machine)));
                });
            },
            mutations: 500,
        },
        Target {
            name: "programs",
            seeds: || files("workloads", ".toml"),
            parse: |bytes| with(bytes, |text| drop(parse_programs(text))),
            mutations: 300,
        },
        Target {
            name: "scenario",
            seeds: || {
                let kept = ["scenario.toml", "busy.toml"].map(|name| files("fixtures/corpus", name));
                [scenarios(), kept.concat(), files("fixtures/hostile-scenarios", ".toml")].concat()
            },
            parse: |bytes| with(bytes, |text| drop(Scenario::parse(text, ivy))),
            mutations: 500,
        },
        Target {
            name: "machine to simulate",
            seeds: || files("machines", ".toml"),
            parse: |bytes| with(bytes, |text| drop(Machine::parse(text).map(|machine| use_machine(&machine)))),
            mutations: 200,
        },
    ],
    longest: 8 << 10,
};

fn use_machine(machine: &Machine) {
    if let Ok(sim) = SimMachine::new(machine) {
        let _ = (sim.thresholds(), sim.clock(1), sim.nodes());
    }
}

fn scenarios() -> Vec<Vec<u8>> {
    list(&[
        "machine = 'two'\nend_s = 5\nkernel = 'cfs'\n[policy]\ninterval_ms = 100\npin = 'cpu'\n[policy.sam]\ncooldown = true\n\
            [[program.p.phase]]\ninstructions = 1e9\ncpi = 1\nllc_apki = 3\nfootprint_bytes = 1e6\nmiss_ratio = [[1e6, 0.5]]\n\
            [[app]]\nprogram = 'cpu'\nwork_s = 2\nruns = 3\n[[app]]\nprogram = 'p'\nthreads = 2\nafter = 'cpu'\n",
    ])
}

fn ivy(_: &str) -> Result<Machine, String> {
    static IVY: LazyLock<Result<Machine, String>> = LazyLock::new(|| {
        Machine::parse(include_str!("../../../machines/ivy-bridge-2s.toml")).map_err(|why| why.to_string())
    });
    IVY.clone()
}
