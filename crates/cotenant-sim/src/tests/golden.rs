//! Results of drawn scenarios as of today: an intended change of the simulator shows its effects here, any other change
//! must show none.

use super::shared;
use crate::bench::SimBench;
use crate::machine::SimMachine;
use crate::run::{Outcome, SimError};
use crate::scenario::Scenario;
use cotenant_measure::characterize::{PARTS, Plan, characterize};
use cotenant_model::machine::Machine;
use cotenant_model::policy::DynPolicy;
use cotenant_model::testing::{digest, golden};
use cotenant_policies::Qos;
use fastrand::Rng;
use std::fmt::Write;
use std::path::Path;

const SCENARIOS: u64 = 96;

const MACHINES: [&str; 13] = [
    "bare",
    "two",
    "narrow",
    "two",
    "narrow",
    "ivy-bridge-2s",
    "clovertown-2s",
    "westmere-2s",
    "nehalem-i7-920",
    "tilepro64",
    "opteron-6276-2s",
    "clx-8269-2s-snc2",
    "knl-7210",
];
/// Machine figures added now and then, where the file lacks them.
const FIGURES: [(&str, &str); 20] = [
    ("replacement", "'lru'"),
    ("inclusive", "true"),
    ("l2_bytes", "262144"),
    ("llc_ways", "16"),
    ("llc_gbs", "100"),
    ("llc_ns", "15"),
    ("memory_gbs_scattered", "3"),
    ("memory_queue_ns", "20"),
    ("coherence_ns", "[20, 60, 200]"),
    ("migration_us", "500"),
    ("memory_ns", "95"),
    ("memory_gbs", "33"),
    ("remote_ns", "47"),
    ("hop_ns", "3"),
    ("link_gbs", "11"),
    ("bus_gbs", "5"),
    ("llc_bytes", "3e6"),
    ("smt", "0.7"),
    ("lines_in_flight", "12"),
    ("page_move_gbs", "2"),
];
const KERNELS: [&str; 4] = ["eevdf", "cache-aware", "eevdf+numa-balancing", "cache-aware+numa-balancing"];
const PROGRAMS: [&str; 9] =
    ["cpu", "membench", "mcf06", "lbm06", "canneal", "streamcluster", "sledge-medium", "own", "turns"];
const POLICIES: [&str; 14] = [
    "none",
    "none",
    "sam",
    "atom",
    "fifo",
    "dino",
    "numad",
    "mas",
    "das",
    "static",
    "assignment",
    "weighted",
    "resense",
    "auto",
];

/// Two programs with features rare in the shipped ones: threads that wait for each other and share, and phases.
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

/// A machine with known CPUs only.
const BARE: &str = "
name = 'bare'
description = 'two sockets of two cores'
source = 'test'
topology = { synthetic = 'package:2 [numa] l3:1 core:2 pu:2' }
[simulator]
";

/// A machine with added figures.
fn machine(name: &str, figures: &[(&str, &str)]) -> Result<Machine, String> {
    let mut text = match name {
        "bare" => BARE.to_owned(),
        "two" => shared::MACHINE.to_owned(),
        "narrow" => shared::MACHINE.replace("memory_gbs = 40", "memory_gbs = 4"),
        _ => {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
            std::fs::read_to_string(folder.join(format!("{name}.toml"))).map_err(|e| e.to_string())?
        }
    };
    for (key, value) in figures.iter().filter(|(key, _)| !text.contains(key)).collect::<Vec<_>>() {
        for (section, end) in [("simulator = {", ", "), ("[simulator]\n", "\n")] {
            text = text.replace(section, &format!("{section} {key} = {value}{end}"));
        }
    }
    Machine::parse(&text).map_err(|e| e.to_string())
}

/// A scenario with up to five applications.
fn draw(random: &mut Rng) -> (Scenario, &'static str) {
    let figures: Vec<_> = FIGURES.into_iter().filter(|_| random.u8(..4) == 0).collect();
    let parse = |text: &str| Scenario::parse(text, |name| machine(name, &figures)).unwrap_or_else(|e| panic!("{e}"));
    let machine = MACHINES[random.usize(..MACHINES.len())];
    let mut policy = POLICIES[random.usize(..POLICIES.len())];
    let mut text =
        format!("machine = '{machine}'\nend_s = 30\nkernel = '{}'\n", KERNELS[random.usize(..KERNELS.len())]);
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
    let map: String = (0..256).map(|_| if random.bool() { 'X' } else { '*' }).collect();
    let cpus = parse(&(text.clone() + OWN)).machine.topology.usable().len();
    if policy == "static" {
        write!(text, "[policy]\nmap = '{}'\n", &map[..cpus]).expect("text");
    }
    (parse(&(text + OWN)), policy)
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

/// Holds place/stable.
#[test]
fn simulations_come_to_what_they_did() {
    let mut now = String::new();
    for i in 0..SCENARIOS {
        let (s, name) = draw(&mut Rng::with_seed(i));
        let policy: Box<dyn DynPolicy> = match name {
            "qos" => Box::new(Qos(s.config.settings.of::<Qos>().expect("settings"))),
            _ => cotenant_policies::standard().make(name, &s.config).expect("settings"),
        };
        let mut samples = Vec::new();
        let told = told(s.run(&*policy, s.kernel, i, |round| samples.push(digest(&round.sample))));
        writeln!(now, "{i} {name}: {told}; observed {}", digest(&samples)).expect("text");
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/golden.txt")), &now);
}

/// What machine files come to, with figures that they do not say, or without.
#[test]
fn machines_are_what_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let files = std::fs::read_dir(folder).expect("machines").map(|file| file.expect("a file").path());
    let mut names: Vec<String> = files.map(|file| file.file_stem().expect("a name").to_string_lossy().into()).collect();
    names.sort();
    let mut now = String::new();
    for (i, name) in ["bare", "two"].into_iter().chain(names.iter().map(String::as_str)).enumerate() {
        for seed in 0..3 {
            let mut random = Rng::with_seed(i as u64 * 3 + seed);
            let figures: Vec<_> = FIGURES.into_iter().filter(|_| seed > 0 && random.u8(..3) == 0).collect();
            let sim = SimMachine::new(&machine(name, &figures).expect("a machine")).expect("figures");
            let keys: Vec<&str> = figures.iter().map(|(key, _)| *key).collect();
            let (thresholds, all) = (digest(&sim.thresholds()), digest(&format!("{sim:?}")));
            let guesses = sim.guesses.join(", ");
            writeln!(now, "{name} {}: {guesses}; thresholds {thresholds}, all {all}", keys.join(" ")).expect("text");
        }
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/machines.txt")), &now);
}

/// What is measured of programs before they run together: what `heuristic` asks for, what counts as high, and what
/// `cotenant characterize` finds.
#[test]
fn programs_are_characterized_as_they_were() {
    let mut now = String::new();
    for name in ["two", "narrow", "clovertown-2s", "opteron-6276-2s"] {
        let app = |program: &&str| format!("[[app]]\nprogram = '{program}'\nthreads = 2\nlatency_sensitive = true\n");
        let text =
            format!("machine = '{name}'\nkernel = 'eevdf'\n{}{OWN}", PROGRAMS.iter().map(app).collect::<String>());
        let mut s = Scenario::parse(&text, |name| machine(name, &[])).expect("a scenario");
        s.characterize(s.kernel).expect("it is characterized");
        let high = s.machine.profile.heuristic.expect("what is high");
        writeln!(now, "{name}: high are {:.4} and {:.2}", high.sharing, high.footprint_per_ms).expect("text");
        for app in &s.apps {
            let program = &app.program;
            let mut bench = SimBench::new(s.sim.clone(), program, None, 0.1);
            let kernels = vec!["bst-50mb".into(), "sledge-large".into()];
            let found = characterize(&Plan::new(&s.machine.topology, &PARTS, kernels), &mut bench).expect("a profile");
            let known = &s.profiles[&app.name];
            let figures = [known.bus_per_ms, known.sharing, known.footprint_per_ms].map(Option::unwrap_or_default);
            let scores =
                [found.profile.contentiousness, found.profile.corun_sensitivity].map(Option::unwrap_or_default);
            writeln!(now, "{}: {figures:.3?} {scores:.4?}, all {}", app.name, digest(&found.profile)).expect("text");
        }
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/profiles.txt")), &now);
}
