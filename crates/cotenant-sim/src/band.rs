//! Uncertainty of a prediction: the same machine and programs, drawn ten times with other values for guessed figures.

use crate::app::Program;
use crate::machine::SimMachine;
use fastrand::Rng;

/// Number of draws.
pub const DRAWS: usize = 10;

const SEED: u64 = 1;

/// Factors for latencies: the middle half of the sourced figures in `machines/` lies within these of the median
/// (`memory_ns` 69 to 160 around 107 ns, `llc_ns` 13 to 23 around 16 ns).
const LATENCY: (f64, f64) = (0.65, 1.5);
/// Sustained over nominal bandwidth: 0.7 to 0.91 in the curves of `workloads/memory.toml`; the guess is 0.85.
const BANDWIDTH: (f64, f64) = (0.82, 1.07);
/// Figures taken from another generation of machine, and a program's figures derived from words.
const GENERATION: (f64, f64) = (0.5, 2.0);

/// The range of factors for each guess. Assumptions, except where a comment names a source.
fn range(key: &str, stands_for_any: bool) -> (f64, f64) {
    match key {
        // The 10th and the 90th percentile over the median of the 28 curves in `workloads/memory.toml`.
        "memory_queue_ns" => (0.6, 2.3),
        // 10 line buffers (Nehalem to Haswell) to 24: `lab/docs/workloads-errors-memory.md`.
        "lines_in_flight" => (0.625, 1.5),
        // 0.5 to 0.75 where the guess is 0.6.
        "smt" => (0.83, 1.25),
        "clock_hz" | "memory_ns" | "remote_ns" | "hop_ns" | "llc_ns" | "coherence_ns" => LATENCY,
        "memory_gbs" | "bus_gbs" | "link_gbs" | "llc_gbs" if !stands_for_any => BANDWIDTH,
        _ if key.starts_with("ns of level") => LATENCY,
        _ => GENERATION,
    }
}

/// Ten factors between these, in any order: each tenth of the range (by ratio) has one (a Latin hypercube).
fn factors(rng: &mut Rng, (low, high): (f64, f64)) -> [f64; DRAWS] {
    let mut tenths: [usize; DRAWS] = std::array::from_fn(|i| i);
    rng.shuffle(&mut tenths);
    tenths.map(|tenth| low * (high / low).powf((tenth as f64 + rng.f64()) / DRAWS as f64))
}

/// The machine and the programs with other values for guessed figures; deterministic, empty if nothing was guessed.
/// Equal programs stay equal.
pub fn draws(machine: &SimMachine, programs: &[&Program]) -> Vec<(SimMachine, Vec<Program>)> {
    let keys = machine.guessed();
    if keys.is_empty() && programs.iter().all(|program| program.assumed.is_empty()) {
        return Vec::new();
    }
    let mut rng = Rng::with_seed(SEED);
    let mut draws = vec![(machine.clone(), programs.iter().map(|p| (*p).clone()).collect::<Vec<_>>()); DRAWS];
    for key in keys {
        let range = range(key, !machine.assumed.iter().any(|assumed| assumed == key));
        for ((drawn, _), by) in draws.iter_mut().zip(factors(&mut rng, range)) {
            *drawn = std::mem::replace(drawn, machine.clone()).scaled(key, by);
        }
    }
    for (i, program) in programs.iter().enumerate() {
        if let Some(same) = programs[..i].iter().position(|other| other == program) {
            for (_, drawn) in &mut draws {
                drawn[i] = drawn[same].clone();
            }
            continue;
        }
        for key in &program.assumed {
            for ((_, drawn), by) in draws.iter_mut().zip(factors(&mut rng, GENERATION)) {
                drawn[i] = drawn[i].clone().scaled(key, by);
            }
        }
    }
    draws
}

impl SimMachine {
    /// Keys of guessed figures: those whose `source` begins with "guess", and those that the file leaves out.
    pub fn guessed(&self) -> Vec<&str> {
        let key = |guess: &'_ String| guess.split(" = ").next().map_or(0, str::len);
        let absent = self.guesses.iter().map(|guess| &guess[..key(guess)]);
        let mut keys: Vec<&str> = self.assumed.iter().map(String::as_str).chain(absent).collect();
        keys.retain(|key| self.clone().scaled(key, 1.1) != *self);
        keys.dedup();
        keys
    }

    /// With one figure of its section multiplied; unchanged if it has no such key.
    fn scaled(mut self, key: &str, by: f64) -> Self {
        let nodes = self.nodes();
        let local = self.memory_s[0][0];
        let mut idle = |of: &dyn Fn(f64) -> f64| {
            let rows = self.memory_s.iter_mut().chain(self.from_cpu_s.iter_mut().flatten());
            rows.flatten().for_each(|s| *s = of(*s));
        };
        let level = |name: &str| key.strip_prefix(name).and_then(|level| level.parse::<u8>().ok());
        let stations = match key {
            "memory_gbs" => "node ",
            "link_gbs" => "link ",
            "bus_gbs" => "bus ",
            "llc_gbs" => "llc ",
            _ => "\0",
        };
        for station in self.stations.iter_mut().filter(|station| station.name.starts_with(stations)) {
            (station.low, station.high) = (station.low * by, station.high * by);
        }
        match key {
            "clock_hz" => self.clock_hz *= by,
            // Adds the same latency to every node, because distance beyond the local node is a separate figure.
            "memory_ns" => {
                idle(&|s| s + local * (by - 1.0));
                self.stations[..nodes].iter_mut().for_each(|s| s.idle_s *= by);
            }
            "remote_ns" | "hop_ns" => idle(&|s| local + (s - local) * by),
            "memory_queue_ns" => self.stations[..nodes * (nodes + 1)].iter_mut().for_each(|s| s.queue_s *= by),
            "coherence_ns" => self.coherence_s = self.coherence_s.map(|s| s * by),
            "llc_ns" => self.llc_s *= by,
            "llc_bytes" => self.caches.iter_mut().for_each(|cache| cache.bytes *= by),
            "private_in_use" => self.private.iter_mut().for_each(|p| p.in_use = (p.in_use * by).min(1.0)),
            "l2_bytes" => self.private.iter_mut().for_each(|private| private.bytes *= by),
            "lines_in_flight" => self.lines_in_flight *= by,
            "smt" if self.smt < 1.0 => self.smt = (self.smt * by).clamp(0.1, 1.0),
            "migration_us" => self.migration_s *= by,
            "page_move_gbs" => self.page_move_bytes_per_s *= by,
            _ => {}
        }
        for near in &mut self.near {
            if level("ns of level ") == Some(near.level) {
                near.hit_s *= by;
            }
            if level("bytes of level ") == Some(near.level) {
                near.bytes.iter_mut().for_each(|bytes| *bytes *= by);
            }
        }
        self
    }
}

/// The least and the most.
pub fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .into_iter()
        .fold(None, |ends, v| Some(ends.map_or((v, v), |(least, most): (f64, f64)| (least.min(v), most.max(v)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::known;
    use cotenant_model::machine::Machine;

    const HEAD: &str = "name = 'm'\ndescription = 'd'\nsource = 's'\nclock_hz = 1e9\n\
                        topology = { synthetic = 'package:2 [numa] l3:1(size=8MiB) core:2 pu:2' }\n[simulator]\n";
    const ALL: &str = "llc_ns = 20\nmemory_ns = 100\nmemory_queue_ns = 10\nmemory_gbs = 40\nremote_ns = 50\n\
                       link_gbs = 20\ncoherence_ns = [30, 90, 140]\nsmt = 0.6\nlines_in_flight = 16\n\
                       page_move_gbs = 1\nmigration_us = 5\n";

    fn sim(simulator: &str) -> SimMachine {
        SimMachine::new(&Machine::parse(&format!("{HEAD}{simulator}")).unwrap()).unwrap()
    }

    fn machines(sim: &SimMachine) -> Vec<SimMachine> {
        draws(sim, &[]).into_iter().map(|(machine, _)| machine).collect()
    }

    /// A program's own assumptions are drawn on a machine that is known, and on one that is not beside its guesses; the
    /// same program twice is the same in each draw.
    #[test]
    fn what_is_assumed_of_programs_is_drawn() {
        let [sgd, mcf] = ["sgd", "mcf06"].map(|name| known(name).unwrap());
        let hand = Program { assumed: vec!["shared".to_owned(), "footprint_bytes".to_owned()], ..sgd.clone() };
        let free = Program { assumed: Vec::new(), ..mcf.clone() };
        let (all, unsure) = (sim(ALL), sim(&ALL.replace("smt = 0.6\n", "")));
        assert!(draws(&all, &[&free]).is_empty(), "nothing is a guess");
        for machine in [&all, &unsure] {
            let drawn = draws(machine, &[&hand, &free, &hand]);
            assert_eq!(drawn.len(), DRAWS);
            for (other, programs) in &drawn {
                assert_eq!((&programs[0], &programs[1]), (&programs[2], &free));
                assert_eq!(other == machine, machine == &all);
                let by = programs[0].phases[0].footprint_bytes / sgd.phases[0].footprint_bytes;
                assert!((0.5..=2.0).contains(&by) && (0.25..=1.0).contains(&programs[0].shared), "{by}");
                let (curve, own) = (&programs[0].phases[0].miss_ratio, &sgd.phases[0].miss_ratio);
                assert!((curve.at(3e7 * by) - own.at(3e7)).abs() < 1e-9);
                assert_eq!(programs[0].phases[0].cpi, sgd.phases[0].cpi, "the rest stays");
            }
        }
        let machines: Vec<SimMachine> = draws(&unsure, &[&hand]).into_iter().map(|(machine, _)| machine).collect();
        assert_eq!(machines, self::machines(&unsure), "whoever runs there");
    }

    #[test]
    fn only_guesses_are_drawn() {
        let known = sim(ALL);
        assert_eq!((known.guessed(), draws(&known, &[])), (vec![], vec![]), "nothing is a guess");
        // One that the file calls a guess, and one that it leaves out.
        let text =
            ALL.replace("smt = 0.6\n", "") + "sources = { memory_gbs = 'guess: as its neighbour', llc_ns = 'p. 7' }\n";
        let some = sim(&text);
        assert_eq!(some.guessed(), ["memory_gbs", "smt"]);
        let drawn = machines(&some);
        assert_eq!(drawn.len(), DRAWS);
        assert_eq!(drawn, machines(&some), "always the same");
        for machine in &drawn {
            let mut put_back = machine.clone();
            put_back.smt = some.smt;
            put_back.stations[..2].clone_from_slice(&some.stations[..2]);
            assert_eq!(put_back, some, "the rest stays");
        }
        // Each tenth of the range once: 0.82 to 1.07 of 40 GB/s, 0.83 to 1.25 of 0.6.
        let tenths = |of: &dyn Fn(&SimMachine) -> f64, (low, high): (f64, f64)| {
            let tenth = |m: &SimMachine| ((of(m) / low).ln() / (high / low).ln() * 10.0).floor() as i64;
            let mut tenths: Vec<i64> = drawn.iter().map(tenth).collect();
            tenths.sort_unstable();
            tenths
        };
        let each: Vec<i64> = (0..10).collect();
        assert_eq!(tenths(&|m| m.stations[1].high / 40e9, BANDWIDTH), each);
        assert_eq!(tenths(&|m| m.smt / 0.6, (0.83, 1.25)), each);
    }

    #[test]
    fn figures_are_multiplied_by_hand() {
        let m = sim(ALL);
        let ns = |m: &SimMachine, from: usize, to: usize| (m.memory_s[from][to] * 1e9).round();
        let twice = |key| m.clone().scaled(key, 2.0);
        let (far, near) = (twice("remote_ns"), twice("memory_ns"));
        assert_eq!((ns(&m, 0, 0), ns(&m, 0, 1)), (100.0, 150.0));
        assert_eq!((ns(&far, 0, 0), ns(&far, 0, 1)), (100.0, 200.0));
        assert_eq!((ns(&near, 0, 0), ns(&near, 0, 1)), (200.0, 250.0));
        assert_eq!(twice("coherence_ns").coherence_s.map(|s| (s * 1e9).round()), [60.0, 180.0, 280.0]);
        assert_eq!(twice("smt").smt, 1.0, "no more than alone");
        assert_eq!(twice("link_gbs").stations[3].high, 40e9);
        assert_eq!(twice("memory_queue_ns").stations[3].queue_s, 20e-9);
        assert_eq!(twice("nothing"), m);
    }

    #[test]
    fn ends_of_nothing_are_none() {
        assert_eq!((ends([]), ends([2.0, 1.0, 3.0])), (None, Some((1.0, 3.0))));
    }
}
