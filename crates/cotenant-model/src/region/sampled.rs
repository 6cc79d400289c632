//! Regions from samples: the contentiousness of each interval of the run by Tang's model (§5.2, equation 5.9), and the
//! code that ran in it.
//!
//! As in the paper the score belongs to an interval, and all of its hottest code, together more than nine tenths of it,
//! gets that score (§5.2.2). The paper does not define the score of code that ran in many intervals. Here it is the
//! score reached for as much of the program's time as a worthwhile region needs. A mean over the run would hide a
//! contentious phase, and the maximum is chance.

use super::Region;
use super::found::Model;
use std::collections::BTreeMap;

/// Fraction of an interval covered by its hottest functions, and of a function's time by its hottest lines: the paper's
/// hottest basic blocks (§5.2.2).
const HOTTEST: f64 = 0.9;

/// A line of a function, by its number in a [`Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    function: usize,
    /// 0: not known.
    line: u32,
}

/// Nanoseconds, by line.
type Lines = BTreeMap<u32, f64>;

/// The same, to be kept.
type Spent = Box<[(u32, f64)]>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Function {
    file: Option<String>,
    name: String,
    /// In all intervals.
    ns: f64,
    /// Intervals in which it is among the hottest, with its nanoseconds by line in each; runs of hours have millions.
    hot: Vec<(usize, Spent)>,
}

/// Intervals, and the functions that ran in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    functions: Vec<Function>,
    numbers: BTreeMap<(Option<String>, String), usize>,
    /// Lines per nanosecond into the last private cache and into the last level, of each interval.
    rates: Vec<(f64, f64)>,
    /// Total time on a CPU.
    ns: f64,
}

impl Profile {
    /// A line of a function in a file.
    pub fn place(&mut self, function: &str, file: Option<&str>, line: Option<u32>) -> Place {
        let key = (file.map(str::to_owned), function.to_owned());
        let function = *self.numbers.entry(key).or_insert_with_key(|(file, name)| {
            let (file, name) = (file.clone(), name.clone());
            self.functions.push(Function { file, name, ..Function::default() });
            self.functions.len() - 1
        });
        Place { function, line: line.unwrap_or(0) }
    }

    /// Adds an interval: nanoseconds on a CPU by place (`None` for an unknown function), and the lines into the last
    /// private cache and into the last level.
    pub fn add(&mut self, code: impl IntoIterator<Item = (Option<Place>, f64)>, private_lines: f64, last_lines: f64) {
        let mut spent: BTreeMap<Option<usize>, Lines> = BTreeMap::new();
        for (place, ns) in code {
            let lines = spent.entry(place.map(|place| place.function)).or_default();
            *lines.entry(place.map_or(0, |place| place.line)).or_default() += ns;
        }
        let spent = spent.into_iter().map(|(function, lines)| (function, lines.values().sum(), lines));
        let mut spent: Vec<(Option<usize>, f64, Lines)> = spent.collect();
        let ns: f64 = spent.iter().map(|(_, ns, _)| ns).sum();
        if ns <= 0.0 {
            return;
        }
        self.ns += ns;
        for (function, ns, _) in &spent {
            if let Some(function) = function {
                self.functions[*function].ns += ns;
            }
        }
        spent.sort_by(|a, b| b.1.total_cmp(&a.1)); // stable: of equals the first one
        let mut covered = 0.0;
        for (function, spent, lines) in spent {
            if let Some(function) = function {
                self.functions[function].hot.push((self.rates.len(), lines.into_iter().collect()));
            }
            covered += spent;
            if covered > HOTTEST * ns {
                break;
            }
        }
        self.rates.push((private_lines / ns, last_lines / ns));
    }

    /// Time on a CPU, nanoseconds.
    pub fn ns(&self) -> f64 {
        self.ns
    }

    /// The functions with at least this fraction of the time, the most contentious first. Their lines span the hottest
    /// ones, with nine tenths of the function's time in the intervals that reach its score; its other activity does not
    /// hurt.
    pub fn regions(&self, model: &Model, min_coverage: f64) -> Vec<Region> {
        let scores: Vec<f64> = self.rates.iter().map(|(private, last)| model.at(*private, *last)).collect();
        let found = self.functions.iter().filter_map(|function| {
            let coverage = function.ns / self.ns.max(f64::MIN_POSITIVE);
            (function.ns > 0.0 && coverage >= min_coverage).then(|| {
                let hot = || function.hot.iter().map(|(i, lines)| (scores[*i], lines));
                let spent = hot().map(|(score, lines)| (score, lines.iter().map(|(_, ns)| ns).sum())).collect();
                let score = reached(spent, min_coverage * self.ns);
                let mut lines = Lines::new();
                for (line, ns) in hot().filter(|(of, _)| *of >= score).flat_map(|(_, lines)| lines) {
                    *lines.entry(*line).or_default() += ns;
                }
                Region {
                    function: Some(function.name.clone()),
                    file: function.file.clone(),
                    lines: function.file.as_ref().and_then(|_| hottest(&lines)),
                    score,
                    coverage: coverage.min(1.0),
                }
            })
        });
        let mut regions: Vec<Region> = found.collect();
        regions.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.coverage.total_cmp(&a.coverage)));
        regions
    }
}

/// The score that is reached for this long; 0 for code that was not among the hottest for this long.
fn reached(mut scores: Vec<(f64, f64)>, ns: f64) -> f64 {
    scores.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut sum = 0.0;
    let enough = scores.iter().find(|(_, spent)| {
        sum += spent;
        sum >= ns * (1.0 - 1e-9) // all of its time may just suffice
    });
    enough.map_or(0.0, |(score, _)| *score)
}

fn hottest(lines: &Lines) -> Option<(u32, u32)> {
    let mut known: Vec<(u32, f64)> = lines.iter().filter(|(line, _)| **line > 0).map(|(l, ns)| (*l, *ns)).collect();
    let all: f64 = known.iter().map(|(_, ns)| ns).sum();
    known.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut covered = 0.0;
    let hot = known.into_iter().take_while(|(_, ns)| {
        let more = covered < HOTTEST * all;
        covered += ns;
        more
    });
    hot.fold(None, |range: Option<(u32, u32)>, (line, _)| {
        Some(range.map_or((line, line), |(a, b)| (a.min(line), b.max(line))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model { a: 2.0, b: 10.0, c: 0.5, clock_hz: 1e9 };

    fn scores(regions: &[Region]) -> Vec<(&str, f64)> {
        regions.iter().map(|r| (r.function.as_deref().unwrap_or_default(), r.score)).collect()
    }

    /// Holds compile/regions.
    #[test]
    fn a_contentious_phase_of_code_that_is_quiet_else_shows() {
        let mut profile = Profile::default();
        let copy = profile.place("copy", Some("/a.c"), Some(10));
        let other = profile.place("other", Some("/a.c"), Some(50));
        // Nine intervals of copy alone bring nothing in, and five of other. The tenth of copy: 200 and 100 lines in
        // 1,000 ns, 2 · (200 − 100)/1,000 + 10 · 100/1,000 + 0.5 = 1.7. All of copy together: 1,200/10,000 + 0.5 =
        // 0.62.
        (0..9).for_each(|_| profile.add([(Some(copy), 1000.0)], 0.0, 0.0));
        (0..5).for_each(|_| profile.add([(Some(other), 1000.0)], 0.0, 0.0));
        profile.add([(Some(copy), 1000.0)], 200.0, 100.0);
        assert_eq!(profile.ns(), 15_000.0);
        let regions = profile.regions(&MODEL, 0.05);
        assert_eq!(scores(&regions), [("copy", 1.7), ("other", 0.5)]);
        assert_eq!((regions[0].coverage, regions[0].lines), (10.0 / 15.0, Some((10, 10))));
        // One interval of fifteen is no tenth of the time.
        assert_eq!(scores(&profile.regions(&MODEL, 0.1)), [("copy", 0.5), ("other", 0.5)]);
    }

    /// Holds compile/regions.
    #[test]
    fn lines_are_those_of_the_phase_that_scores() {
        let mut profile = Profile::default();
        let [quiet, hot] = [15, 55].map(|line| profile.place("f", Some("/a.c"), Some(line)));
        // 95 intervals of 10 ms in which f computes in line 15, and 5 in which it streams in line 55: 0.1 lines/ns into
        // both levels, 10 · 0.1 + 0.5 = 1.5.
        (0..95).for_each(|_| profile.add([(Some(quiet), 1e7)], 0.0, 0.0));
        (0..5).for_each(|_| profile.add([(Some(hot), 1e7)], 1e6, 1e6));
        let region = |min_coverage| profile.regions(&MODEL, min_coverage).remove(0);
        assert_eq!((region(0.01).score, region(0.01).lines), (1.5, Some((55, 55))));
        // A tenth of the time is more than that phase; of all its time nine tenths are line 15.
        assert_eq!((region(0.1).score, region(0.1).lines), (0.5, Some((15, 15))));
    }

    /// Holds compile/regions.
    #[test]
    fn an_interval_scores_the_code_that_covers_it() {
        let mut profile = Profile::default();
        let mut line = |function: &str, line| profile.place(function, Some("/a.c"), Some(line));
        let (walk, next, tail) =
            ([line("walk", 10), line("walk", 14), line("walk", 90)], line("next", 20), line("tail", 30));
        // walk 500, next 450 (95 %): both cover it, in either order; tail does not.
        let code = [(walk[0], 300.0), (walk[1], 190.0), (walk[2], 10.0), (next, 450.0), (tail, 40.0)];
        let code = code.map(|(place, ns)| (Some(place), ns));
        profile.add(code.into_iter().chain([(None, 10.0)]), 200.0, 100.0);
        // An interval of the kernel's vdso and the like counts as time.
        profile.add([(None, 1000.0)], 500.0, 500.0);
        let regions = profile.regions(&MODEL, 0.01);
        assert_eq!(scores(&regions), [("walk", 1.7), ("next", 1.7), ("tail", 0.0)]);
        // Line 90 is beyond nine tenths of its time.
        assert_eq!((regions[0].coverage, regions[0].lines), (0.25, Some((10, 14))));
        assert_eq!(super::super::parse(&super::super::write(&regions)).unwrap(), regions);
    }

    #[test]
    fn samples_that_contradict_each_other_score_no_less_than_nothing() {
        let mut profile = Profile::default();
        // More lines into the last level than into the private cache: chance, with few samples.
        let f = profile.place("f", None, None);
        profile.add([(Some(f), 10.0)], 0.0, 5.0);
        // Lines without any running code.
        profile.add([], 5.0, 5.0);
        profile.place("never seen to run", None, None);
        let model = Model { a: 2.0, b: 1.0, c: -3.0, clock_hz: 1e9 };
        let regions = profile.regions(&model, 0.0);
        assert_eq!((regions.len(), regions[0].score, regions[0].lines), (1, 0.0, None));
        assert_eq!(Profile::default().regions(&model, 0.0), []);
    }
}
