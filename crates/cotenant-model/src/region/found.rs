//! Regions from cachegrind's counts: lines that each function brings into the second and the last cache level, by
//! Tang's model (§5.2, equation 5.9).
//!
//! The simulation uses this machine's cache sizes and is deterministic, without prefetching or time. Time is measured
//! in a run without it ([`Measured`]), or estimated as in cachegrind's tools (one cycle per instruction, [`FIRST_MISS`]
//! per miss of the first simulated level, [`LAST_MISS`] per miss of the last). In the estimate misses never overlap:
//! code that waits for each line scores too high, and streaming code far too low.

use super::Region;
use crate::profile::Contentiousness;
use std::collections::BTreeMap;

/// Cycles of a miss served by the next level, in the time estimate of cachegrind's tools.
const FIRST_MISS: f64 = 10.0;

/// Cycles of a miss served by memory, likewise.
const LAST_MISS: f64 = 100.0;

/// Cachegrind's name for an unknown file or function.
const UNKNOWN: &str = "???";

/// The model's coefficients, for lines per nanosecond. They belong to a calibrated machine
/// (`profile::Contentiousness`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// For lines into the level above the last, but not into the last.
    pub a: f64,
    /// For lines into the last level.
    pub b: f64,
    /// For any program.
    pub c: f64,
    /// Clock for the time estimate, Hz.
    pub clock_hz: f64,
}

impl Model {
    /// The paper's Nehalem, where `SmashBench` gave these (§5.2.2: R² 0.89; 2.67 GHz).
    pub const NEHALEM: Self = Self { a: 1.663, b: 8.890, c: 0.044, clock_hz: 2.67e9 };

    /// From a fit on a machine with that clock.
    pub fn of(fitted: &Contentiousness, clock_hz: f64) -> Self {
        Self { a: fitted.a.value, b: fitted.b.value, c: fitted.c.value, clock_hz }
    }

    /// The estimated time of code with these counts, nanoseconds.
    fn estimate(&self, counts: Counts) -> f64 {
        counts.cycles() / self.clock_hz * 1e9
    }

    /// The score of code with these counts in this time, 0 or more; 0 for code that is not executed.
    fn score(&self, counts: Counts, ns: f64) -> f64 {
        if ns <= 0.0 {
            return 0.0;
        }
        self.at(counts.upper_lines as f64 / ns, counts.last_misses as f64 / ns)
    }

    /// The score of code with these lines per nanosecond, 0 or more. Lines into the last level also enter the one above
    /// it.
    pub fn at(&self, upper_per_ns: f64, last_per_ns: f64) -> f64 {
        (self.a * (upper_per_ns - last_per_ns).max(0.0) + self.b * last_per_ns + self.c).max(0.0)
    }
}

/// Counts of some code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions.
    pub instructions: u64,
    /// Misses of the first simulated level, of all kinds.
    pub first_misses: u64,
    /// Lines into the level above the last: data that miss it, and code that misses the last level. (The first
    /// simulated level for code is the nearest to the core, so that its misses do not matter here.)
    pub upper_lines: u64,
    /// Misses of the last.
    pub last_misses: u64,
}

impl Counts {
    /// Estimated time.
    pub fn cycles(&self) -> f64 {
        self.instructions as f64 + FIRST_MISS * self.first_misses as f64 + LAST_MISS * self.last_misses as f64
    }

    fn add(&mut self, other: Self) {
        self.instructions = self.instructions.saturating_add(other.instructions);
        self.first_misses = self.first_misses.saturating_add(other.first_misses);
        self.upper_lines = self.upper_lines.saturating_add(other.upper_lines);
        self.last_misses = self.last_misses.saturating_add(other.last_misses);
    }
}

/// Nanoseconds of code, by the name of its source file and its function's linker name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    code: BTreeMap<(String, String), f64>,
    ns: f64,
}

impl Measured {
    /// Adds time of a function's code in a file; both are empty if unknown.
    pub fn add(&mut self, file: &str, function: &str, ns: f64) {
        self.ns += ns;
        *self.code.entry(key(file, function)).or_default() += ns;
    }

    /// All time, nanoseconds.
    pub fn ns(&self) -> f64 {
        self.ns
    }

    fn of(&self, file: &str, function: &str) -> f64 {
        self.code.get(&key(file, function)).copied().unwrap_or(0.0)
    }
}

/// The folder of a file has several spellings.
fn key(file: &str, function: &str) -> (String, String) {
    (file.rsplit('/').next().unwrap_or_default().to_owned(), function.to_owned())
}

/// Lines of a function in a file, with their counts.
type Lines = (Counts, Option<(u32, u32)>);

/// Counts of several processes, by file and function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    functions: BTreeMap<(String, String), Lines>,
}

impl Profile {
    /// Adds the output file of one process.
    ///
    /// # Errors
    /// The line and its fault.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (mut file, mut function) = (String::new(), String::new());
        let mut columns: Option<Columns> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let wrong =
                |what: &str| format!("line {number}: {what}; is it an output file of cachegrind with --cache-sim=yes?");
            if let Some(events) = line.strip_prefix("events: ") {
                columns = Some(Columns::of(events).ok_or_else(|| wrong("the events of simulated caches are missing"))?);
            } else if let Some(name) = line.strip_prefix("fl=") {
                name.clone_into(&mut file);
            } else if let Some(name) = line.strip_prefix("fn=") {
                name.clone_into(&mut function);
            } else if line.starts_with(|c: char| c.is_ascii_digit()) {
                let columns = columns.as_ref().ok_or_else(|| wrong("counts stand before the events' names"))?;
                let mut numbers = line.split_ascii_whitespace();
                let at: u32 =
                    numbers.next().and_then(|n| n.parse().ok()).ok_or_else(|| wrong("this is not a line number"))?;
                let counts: Vec<u64> =
                    numbers.map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong("this is not a count"))?;
                let known = self.functions.entry((file.clone(), function.clone())).or_default();
                known.0.add(columns.counts(&counts));
                if at > 0 {
                    known.1 = Some(known.1.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
                }
            }
        }
        columns.map(|_| ()).ok_or_else(|| "it names no events; is it an output file of cachegrind?".to_owned())
    }

    /// All counts together.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.functions.values().for_each(|(counts, _)| total.add(*counts));
        total
    }

    /// The functions with at least this fraction of the time, the most contentious first; without measurements the time
    /// is estimated.
    pub fn regions(&self, model: Model, measured: Option<&Measured>, min_coverage: f64) -> Vec<Region> {
        let all = measured.map_or_else(|| model.estimate(self.total()), Measured::ns).max(f64::MIN_POSITIVE);
        let known = |name: &str| (!name.is_empty() && name != UNKNOWN).then(|| name.to_owned());
        let mut regions: Vec<Region> = self
            .functions
            .iter()
            .filter_map(|((file, function), (counts, lines))| {
                let (file, function) = (known(file), known(function));
                let took = |measured: &Measured| {
                    measured.of(file.as_deref().unwrap_or_default(), function.as_deref().unwrap_or_default())
                };
                let ns = measured.map_or_else(|| model.estimate(*counts), took);
                let coverage = ns / all;
                let lines = lines.filter(|_| file.is_some());
                let named = function.is_some() || lines.is_some();
                (named && coverage >= min_coverage).then(|| Region {
                    function,
                    file,
                    lines,
                    score: model.score(*counts, ns),
                    coverage: coverage.min(1.0),
                })
            })
            .collect();
        regions.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.coverage.total_cmp(&a.coverage)));
        regions
    }
}

/// The column of each count.
#[derive(Debug)]
struct Columns {
    instructions: usize,
    first: Vec<usize>,
    upper: Vec<usize>,
    last: Vec<usize>,
}

impl Columns {
    fn of(events: &str) -> Option<Self> {
        let names: Vec<&str> = events.split_ascii_whitespace().collect();
        let at = |name: &str| names.iter().position(|other| *other == name);
        let all = |wanted: [&str; 3]| wanted.iter().map(|name| at(name)).collect::<Option<Vec<_>>>();
        Some(Self {
            instructions: at("Ir")?,
            first: all(["I1mr", "D1mr", "D1mw"])?,
            upper: all(["ILmr", "D1mr", "D1mw"])?,
            last: all(["ILmr", "DLmr", "DLmw"])?,
        })
    }

    /// Columns at the end may be missing if they are 0.
    fn counts(&self, numbers: &[u64]) -> Counts {
        let of = |column: &usize| numbers.get(*column).copied().unwrap_or(0);
        let sum = |columns: &[usize]| columns.iter().map(of).fold(0, u64::saturating_add);
        Counts {
            instructions: of(&self.instructions),
            first_misses: sum(&self.first),
            upper_lines: sum(&self.upper),
            last_misses: sum(&self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: &str = "desc: I1 cache: 1\ncmd: ./a\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\n\
        fl=/src/a.c\nfn=hot\n10 1000 0 0 500 100 80 10 0 0\n12 500 0 0 0\nfn=cold\n30 400\n\
        fl=???\nfn=memcpy\n0 600 0 0 300 10 0 300 20 5\nfl=/src/a.c\nfn=hot\n8 100\nsummary: 2600 0 0 800 110 80 310 20 5\n";

    /// Found by fuzzing: sums that do not fit.
    #[test]
    fn counts_that_are_too_many_stay_the_most() {
        let most = u64::MAX;
        let mut profile = Profile::default();
        let events = "events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfn=f\n";
        profile.add(&format!("{events}1 {most} {most} {most} 0 1 1 0 {most} 1\n2 1\n")).unwrap();
        let all = Counts { instructions: most, first_misses: most, upper_lines: most, last_misses: most };
        assert_eq!(profile.total(), all);
    }

    #[test]
    fn functions_are_added_up() {
        let mut profile = Profile::default();
        profile.add(OUT).unwrap();
        // hot: 1,600 instructions, 100 first misses, 80 last: 1600 + 1000 + 8000 = 10,600 cycles. cold: 400. memcpy:
        // 600, 30, 5: 1,400.
        let total = Counts { instructions: 2600, first_misses: 130, upper_lines: 130, last_misses: 85 };
        assert_eq!(profile.total(), total);
        let model = Model { a: 1.0, b: 10.0, c: 0.5, clock_hz: 1e9 };
        let regions = profile.regions(model, None, 0.1);
        assert_eq!(regions.len(), 2, "cold takes 400 of 12,400: 3 %");
        let hot = &regions[0];
        assert_eq!(
            (hot.function.as_deref(), hot.file.as_deref(), hot.lines),
            (Some("hot"), Some("/src/a.c"), Some((8, 12)))
        );
        assert!((hot.coverage - 10_600.0 / 12_400.0).abs() < 1e-12);
        // 1 · 20/10600 + 10 · 80/10600 + 0.5
        assert!((hot.score - (20.0 + 800.0) / 10_600.0 - 0.5).abs() < 1e-12, "{}", hot.score);
        let memcpy = &regions[1];
        assert_eq!((memcpy.function.as_deref(), &memcpy.file, memcpy.lines), (Some("memcpy"), &None, None));
        // Another process with the same code.
        profile.add(OUT).unwrap();
        assert_eq!(profile.total().instructions, 5200);
        assert_eq!(profile.regions(model, None, 0.1)[0].score.to_bits(), hot.score.to_bits());
        assert_eq!(super::super::parse(&super::super::write(&regions)).unwrap(), regions);
    }

    #[test]
    fn code_that_misses_the_first_level_alone_brings_nothing_into_the_second() {
        let mut profile = Profile::default();
        profile.add("events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfl=a.c\nfn=f\n1 1000 100 10 0\n").unwrap();
        let counts = Counts { instructions: 1000, first_misses: 100, upper_lines: 10, last_misses: 10 };
        assert_eq!(profile.total(), counts);
        // 1,000 + 1,000 + 1,000 cycles at 1 GHz; 10 lines into both levels.
        let model = Model { a: 1.0, b: 10.0, c: 0.5, clock_hz: 1e9 };
        assert!((model.score(counts, model.estimate(counts)) - 100.0 / 3_000.0 - 0.5).abs() < 1e-12);
    }

    /// Holds compile/regions.
    #[test]
    fn what_waits_for_the_last_level_ranks_below_what_streams_by_measured_time() {
        // A walk of 1,000 steps that all hit the last level, 30 ns each; 8,000 words of a stream from memory, in 1,000
        // lines, 4 ns each.
        let mut profile = Profile::default();
        let events = "events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\n";
        let code = "fl=/src/a.c\nfn=walk\n1 3000 0 0 1000 1000\nfn=stream\n2 40000 0 0 8000 1000 1000 8000\n";
        profile.add(&format!("{events}{code}")).unwrap();
        let scores = |measured: Option<&Measured>| {
            let regions = profile.regions(Model::NEHALEM, measured, 0.0);
            regions.into_iter().map(|r| (r.function.unwrap(), r.score, r.coverage)).collect::<Vec<_>>()
        };
        let mut measured = Measured::default();
        for (file, function, ns) in [("a.c", "walk", 30_000.0), ("/elsewhere/a.c", "stream", 4_000.0), ("", "", 6e3)] {
            measured.add(file, function, ns);
        }
        // 8.89 · 1,000 / 4,000 + 0.044 and 1.663 · 1,000 / 30,000 + 0.044.
        let [stream, walk] = &scores(Some(&measured))[..] else { panic!("two regions") };
        assert_eq!((stream.0.as_str(), walk.0.as_str()), ("stream", "walk"));
        assert!((stream.1 - 2.2665).abs() < 1e-9 && (walk.1 - 0.099_433_333).abs() < 1e-6, "{stream:?} {walk:?}");
        assert!((stream.2 - 0.1).abs() < 1e-12 && (walk.2 - 0.75).abs() < 1e-12, "{stream:?} {walk:?}");
        // Ten cycles per first-level miss and a hundred per last-level miss reverse the order.
        assert_eq!(scores(None)[0].0, "walk");
    }

    #[test]
    fn what_is_no_output_says_where() {
        let wrong = |text: &str| Profile::default().add(text).unwrap_err();
        assert!(wrong("").contains("no events"));
        assert!(wrong("events: Ir Dr\n").starts_with("line 1: the events of simulated caches"));
        assert!(wrong("fl=a\nfn=b\n1 2\n").starts_with("line 3: counts stand before"));
        assert!(
            wrong("events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfl=a\nfn=b\n1 x\n")
                .starts_with("line 4: this is not a count")
        );
        assert_eq!(Model::NEHALEM.score(Counts::default(), 0.0).to_bits(), 0.0_f64.to_bits());
    }
}
