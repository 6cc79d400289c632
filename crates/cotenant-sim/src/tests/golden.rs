//! What drawn scenarios come to today. Whoever means to change the simulated machine sees what changes with it;
//! everybody else sees that nothing does.

use super::scenario;
use crate::run::{Outcome, SimError};
use cotenant_model::policy::DynPolicy;
use cotenant_model::testing::golden;
use cotenant_policies::Qos;
use fastrand::Rng;
use std::fmt::Write;
use std::path::Path;

const SCENARIOS: u64 = 64;

const MACHINES: [&str; 8] =
    ["two", "narrow", "two", "ivy-bridge-2s", "clovertown-2s", "westmere-2s", "nehalem-i7-920", "tilepro64"];
const KERNELS: [&str; 4] = ["eevdf", "cache-aware", "eevdf+numa-balancing", "cache-aware+numa-balancing"];
const PROGRAMS: [&str; 9] =
    ["cpu", "membench", "mcf06", "lbm06", "canneal", "streamcluster", "sledge-medium", "own", "turns"];
const POLICIES: [&str; 10] = ["none", "none", "sam", "atom", "fifo", "dino", "numad", "mas", "static", "assignment"];

/// Two programs with what the shipped ones hardly have: threads that wait for each other and share, and phases.
const OWN: &str = "
[program.own]
cpi = 0.8
llc_apki = 20
llc_mlp = 1.5
mlp = 2
footprint_bytes = 12e6
writeback_ratio = 0.3
miss_ratio = [[1e5, 0.9], [4e6, 0.5], [12e6, 0.1]]
row_locality = 0.7
coherence_pki = 1.5
shared = 0.6
barrier = true
pages = 'interleave'
[[program.turns.phase]]
instructions = 4e7
cpi = 0.6
llc_apki = 1
footprint_bytes = 1e5
miss_ratio = [[1e4, 0.2], [1e5, 0.01]]
[[program.turns.phase]]
instructions = 2e7
cpi = 1.1
llc_apki = 40
mlp = 4
footprint_bytes = 60e6
writeback_ratio = 0.5
miss_ratio = [[1e6, 1], [60e6, 0.4]]
";

/// One with up to five applications.
fn draw(random: &mut Rng) -> (String, &'static str) {
    let machine = MACHINES[random.usize(..MACHINES.len())];
    let mut policy = POLICIES[random.usize(..POLICIES.len())];
    let mut text = format!("machine = '{machine}'\nkernel = '{}'\n", KERNELS[random.usize(..KERNELS.len())]);
    if random.u8(..4) == 0 {
        text += "restart = true\n";
    }
    let apps = random.usize(1..=5);
    for app in 0..apps {
        let (program, threads) = (PROGRAMS[random.usize(..PROGRAMS.len())], random.usize(1..=4));
        let work = 0.05 + 0.05 * f64::from(random.u8(..8));
        write!(text, "[[app]]\nprogram = '{program}'\nthreads = {threads}\nwork_s = {work}\n").expect("text");
        match random.u8(..8) {
            0 => writeln!(text, "arrival_s = 0.03"),
            1 => writeln!(text, "runs = 2"),
            2 => writeln!(text, "cpus = '0,1,3'"),
            3 if app == 0 && apps > 1 => {
                policy = "qos";
                writeln!(text, "load = {{ requests_per_s = 80, instructions = 1e6 }}")
            }
            _ => Ok(()),
        }
        .expect("text");
    }
    if random.bool() {
        text += "[observation]\nnoise = 0.02\ngaps = 0.05\npage_scan_ns = 20\n";
    }
    let map: String = (0..64).map(|_| if random.bool() { 'X' } else { '*' }).collect();
    let cpus = scenario(&(text.clone() + OWN)).machine.topology.usable().len();
    if policy == "static" {
        write!(text, "[policy]\nmap = '{}'\n", &map[..cpus]).expect("text");
    }
    (text + OWN, policy)
}

fn told(result: Result<Outcome, SimError>) -> String {
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => return error.to_string(),
    };
    let mut line = format!("{:.4e} s, {} migrations", outcome.makespan_s, outcome.migrations);
    if let Some(distance) = outcome.access_distance {
        write!(line, ", distance {distance:.4e}").expect("text");
    }
    for app in outcome.apps {
        write!(line, "; {} {:.4e} {:.4e}", app.name, app.time_s, app.cost_s).expect("text");
        if let Some(p95) = app.latency.quantile(0.95) {
            write!(line, " p95 {p95:.3e}").expect("text");
        }
    }
    line
}

#[test]
fn simulations_come_to_what_they_did() {
    let mut now = String::new();
    for i in 0..SCENARIOS {
        let (text, name) = draw(&mut Rng::with_seed(i));
        let s = scenario(&text);
        let policy: Box<dyn DynPolicy> = match name {
            "qos" => Box::new(Qos(s.config.settings.of::<Qos>().expect("settings"))),
            _ => cotenant_policies::standard().make(name, &s.config).expect("settings"),
        };
        writeln!(now, "{i} {name}: {}", told(s.run(&*policy, s.kernel, i, |_| ()))).expect("text");
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/golden.txt")), &now);
}
