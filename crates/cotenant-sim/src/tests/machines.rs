//! Properties of the machines in `machines/`.

use super::{pinned, world};
use crate::band::draws;
use crate::machine::SimMachine;
use crate::scenario::Scenario;
use cotenant_model::Time;
use cotenant_model::machine::Machine;
use std::fs;
use std::path::Path;

/// Name, text, and the simulator's machine.
fn machines() -> Vec<(String, String, SimMachine)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let machine = Machine::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let sim = SimMachine::new(&machine).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, text, sim)
    };
    files.iter().map(read).collect()
}

/// Holds sim/machines.
#[test]
fn every_machine_says_what_the_simulator_needs_and_where_it_is_from() {
    let all = machines();
    assert!(all.len() >= 14, "{}", all.len());
    for (name, text, sim) in &all {
        let file: toml::Table = text.parse().unwrap();
        let section =
            file.get("simulator").and_then(|s| s.as_table()).unwrap_or_else(|| panic!("{name}: no [simulator]"));
        let sources = section["sources"].as_table().unwrap();
        for key in section.keys().filter(|k| *k != "sources") {
            assert!(
                sources.get(key).and_then(|s| s.as_str()).is_some_and(|s| s.len() > 10),
                "{name}: {key} has no source"
            );
            assert!(
                sim.guesses.iter().all(|g| !g.starts_with(&format!("{key} ="))),
                "{name}: {key} is given and guessed"
            );
        }
    }
}

/// Nanoseconds per line for a sequential reader: from the first shared cache if `miss` is 0, otherwise from the memory
/// of `node`. It computes between hits, so that it does not queue for the cache's bandwidth.
fn chase(text: &str, sim: &SimMachine, cpu: usize, node: usize, miss: f64) -> f64 {
    let (nodes, cpi) = (sim.nodes(), if miss > 0.0 { 0.001 } else { 100.0 });
    let pages: Vec<String> = (0..nodes).map(|n| if n == node { "1.0" } else { "0.0" }.to_owned()).collect();
    let (scenario, pages) = ("machine = 'm'\n", pages.join(", "));
    let scenario = format!(
        "{scenario}[program.chase]\ncpi = {cpi}\nllc_apki = 1000\nfootprint_bytes = 1e4\nmiss_ratio = [[1e3, {miss:.1}]]\npages = [{pages}]\n\
         [[app]]\nprogram = 'chase'\ninstructions = 1e8\n"
    );
    run(text, &scenario, &[&[cpu]]) - cpi / sim.clock_hz * 1e9
}

/// Nanoseconds per instruction of the first application.
fn run(text: &str, scenario: &str, cpus: &[&[usize]]) -> f64 {
    let s = Scenario::parse(scenario, |_| Machine::parse(text).map_err(|e| e.to_string()))
        .unwrap_or_else(|e| panic!("{e}"));
    let s = pinned(&s, cpus);
    let mut world = world(&s, "eevdf", 1);
    world.advance(s.end, false).unwrap();
    world.report()[0].times_s[0] * 1e9 / s.apps[0].instructions
}

/// Memory of each node from the first and the last CPU of each node, the first shared cache, and lines of other cores
/// take as long as the file says; one or two threads wait a little in queues, too: at most 10 %.
/// Holds sim/machines.
#[test]
fn latencies_come_out_as_stated() {
    for (name, text, sim) in machines() {
        let near = |got: f64, said: f64| got >= said * 0.999 && got <= said * 1.1;
        let places = crate::places::Places::new(&sim);
        for (node, cpus) in places.node.groups.iter().enumerate() {
            for cpu in [cpus[0], cpus[cpus.len() - 1]] {
                for to in 0..sim.nodes() {
                    let (got, said) = (chase(&text, &sim, cpu, to, 1.0), sim.memory(cpu, node, to) * 1e9);
                    assert!(near(got, said), "{name}: CPU {cpu} to node {to} takes {got} ns, not {said}");
                }
            }
        }
        let first = places.cpus[0];
        let hit = sim.near.first().map_or(sim.llc_s, |near| near.hit_s);
        let (got, said) = (chase(&text, &sim, first, 0, 0.0), hit * 1e9);
        assert!(near(got, said), "{name}: a hit takes {got} ns, not {said}");
        let kinds = [
            |p: &crate::places::Places, a: usize, b: usize| p.llc.of[a] == p.llc.of[b] && p.core.of[a] != p.core.of[b],
            |p: &crate::places::Places, a: usize, b: usize| {
                p.llc.of[a] != p.llc.of[b] && p.package.of[a] == p.package.of[b]
            },
            |p: &crate::places::Places, a: usize, b: usize| p.package.of[a] != p.package.of[b],
        ];
        // A line per instruction, and one per hundred.
        let scenarios = [1, 100].map(|per_line| {
            let text = format!(
                "machine = 'm'\n[program.share]\ncpi = 0.001\nllc_apki = 0\nfootprint_bytes = 64\nmiss_ratio = [[64, 0.0]]\n\
                 coherence_pki = {}\n[[app]]\nprogram = 'share'\nthreads = 2\ninstructions = 1e8\n",
                1000 / per_line
            );
            (f64::from(per_line), text)
        });
        for (kind, said) in kinds.iter().zip(sim.coherence_s) {
            let Some(&other) = places.cpus.iter().find(|c| kind(&places, first, **c)) else { continue };
            for (per_line, scenario) in &scenarios {
                let got = run(&text, scenario, &[&[first, other]]) * per_line;
                assert!(near(got, said * 1e9), "{name}: a line from CPU {other} takes {got} ns, not {}", said * 1e9);
            }
        }
    }
}

/// As many threads as CPUs, that stream, miss, share and compute, under Linux to their end; no front-side bus
/// delivers more than it can.
/// Promise sim/machines: Every shipped machine is simulated with the latencies of its file, which names a source for
/// each figure.
#[test]
fn every_machine_runs_a_full_house() {
    for (name, text, sim) in machines() {
        let cpus = sim.topology.usable().len();
        let app = |program: &str, threads: usize| {
            format!("[[app]]\nprogram = '{program}'\nthreads = {threads}\nwork_s = 0.05\n")
        };
        let part = cpus / 4;
        let apps = [("membench", part), ("mcf06", part), ("sgd", part), ("cpu", cpus - 3 * part)];
        let scenario = format!("machine = 'm'\n{}", apps.map(|(p, n)| app(p, n)).concat());
        let s = Scenario::parse(&scenario, |_| Machine::parse(&text).map_err(|e| e.to_string())).unwrap();
        let mut world = world(&s, "eevdf+numa-balancing", 1);
        world.advance(s.end, false).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(world.is_done() && world.now() < Time::from_millis(60_000), "{name}: {:?}", world.now());
        let seconds = world.now().as_secs_f64();
        for (node, bytes) in world.node_bytes.iter().enumerate() {
            assert!(*bytes <= sim.stations[node].high * seconds * (1.0 + 1e-6), "{name}: node {node}");
        }
        if sim.bus_of.iter().all(Option::is_some) {
            let mut buses: Vec<usize> = sim.bus_of.iter().flatten().copied().collect();
            buses.sort_unstable();
            buses.dedup();
            let most: f64 = buses.iter().map(|b| sim.stations[*b].high).sum::<f64>() * seconds;
            assert!(world.node_bytes[0] <= most * (1.0 + 1e-6), "{name}: the memory delivers what buses cannot carry");
        }
    }
}

/// On Clovertown: two streams on one bus get what it sustains, on two buses twice as much (Tang §4: 5.6 GB/s).
/// Holds sim/machines.
#[test]
fn a_front_side_bus_is_shared_by_its_package() {
    let (_, text, sim) = machines().into_iter().find(|(name, ..)| name == "clovertown-2s").unwrap();
    let scenario = "machine = 'm'\n[[app]]\nprogram = 'membench'\nthreads = 4\nwork_s = 0.1\n";
    let time = |cpus: &[usize]| run(&text, scenario, &[cpus]);
    let (one, two) = (time(&[0, 1, 2, 3]), time(&[0, 2, 4, 6]));
    assert!((1.7..2.1).contains(&(one / two)), "{one} ns per instruction on one bus, {two} on two");
    // 4 threads, a tenth of a line read and half of it written back per instruction.
    let gbs = 4.0 * 0.1 * 1.5 * 64.0 / one;
    assert!((5.0..=5.6).contains(&gbs), "{gbs} GB/s on a bus of {:?}", sim.stations.last());
}

/// What our loops do (crates/cotenant-kernels/c/smash.c), and what they reach where it was measured
/// (lab/docs/kernels-measurements.md).
/// Holds sim/workloads.
#[test]
fn simulated_kernels_do_what_the_loops_do() {
    let text = "name = 'zen3'\ndescription = 'measured'\nsource = 'test'\nclock_hz = 3.2e9\n\
        topology = { synthetic = 'package:1 [numa] l3:1(size=8MiB) core:2 pu:1' }\n\
        simulator = { memory_gbs = 1000, memory_ns = 82, llc_ns = 14.4, lines_in_flight = 32 }";
    let machine = SimMachine::new(&Machine::parse(text).unwrap()).unwrap();
    // Units per nanosecond, of this many instructions each.
    let rate = |name: &str, instructions: f64| {
        crate::scenario::alone_per_s(crate::app::known(name).unwrap(), &machine) / instructions / 1e9
    };
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.01, "{a} {b}");
    // 8 of 50 MiB are held: 42 of 50 accesses wait for memory, 7.75 for the L3, one after the other, and each computes
    // for 22.9 cycles: 68.9 + 2.2 + 7.1 = 78.3 ns.
    let naive = rate("naive-50mb", 15.04);
    near(1.0 / naive, 0.84 * 82.0 + 0.155 * 14.4 + 22.9 / 3.2);
    // The other kernel overlaps its misses: 71.1/18.5 + 4.14/3.2 = 5.14 ns, fifteen times as fast (measured: 17).
    let er_naive = rate("er-naive-50mb", 8.0);
    near(er_naive / naive, 15.2);
    // Two lines for eight words of five instructions: 0.23 lines/ns.
    near(rate("sledge-large", 20.0), 0.227);
    // A lookup waits for 10.0 dependent lines beyond 256 KiB, 40 % of them from memory, and computes for 0.58 · 231
    // cycles.
    let held = 0.447 + (8.0 - 6.0) / (12.0 - 6.0) * (0.291 - 0.447);
    near(1.0 / rate("bst-50mb", 231.3), 9.97 * (held * 82.0 + (1.0 - held) * 14.4) + 0.58 * 231.3 / 3.2);
}

#[test]
fn every_guess_of_a_machine_can_be_drawn() {
    for (name, _, sim) in machines() {
        let drawn: Vec<SimMachine> = draws(&sim, &[]).into_iter().map(|(machine, _)| machine).collect();
        assert_eq!(drawn.is_empty(), sim.guessed().is_empty(), "{name}");
        for machine in &drawn {
            let sound = |s: &f64| s.is_finite() && *s > 0.0;
            assert!(machine.memory_s.iter().flatten().all(sound), "{name}");
            assert!(machine.stations.iter().all(|s| sound(&s.low) && sound(&s.high) && s.low <= s.high), "{name}");
            assert!((0.1..=1.0).contains(&machine.smt) && sound(&machine.llc_s), "{name}");
        }
    }
}
