//! Regions from samples: what each function really brought into caches while it ran, by Tang's model (§5.2, equation
//! 5.9).

use super::Region;
use super::found::Model;
use std::collections::BTreeMap;

/// Share of a function's samples that its lines hold: the hottest of its code, as the paper's hottest basic blocks
/// (§5.2.2).
const HOTTEST: f64 = 0.9;

/// What was sampled of some code.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampled {
    /// Time on a CPU, nanoseconds.
    pub ns: f64,
    /// Lines that came into the last private cache.
    pub private_lines: f64,
    /// Lines that came into the last level.
    pub last_lines: f64,
}

impl Sampled {
    fn add(&mut self, other: Self) {
        self.ns += other.ns;
        self.private_lines += other.private_lines;
        self.last_lines += other.last_lines;
    }

    /// The score; 0 for code that was never seen to run.
    fn score(self, model: &Model) -> f64 {
        if self.ns > 0.0 { model.at(self.private_lines / self.ns, self.last_lines / self.ns) } else { 0.0 }
    }
}

/// A function in a file, by line; line 0 is a line that is not known.
type Lines = BTreeMap<u32, Sampled>;

/// Samples by function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    functions: BTreeMap<(Option<String>, String), Lines>,
    total: Sampled,
}

impl Profile {
    /// Adds what was sampled at a line of a function.
    pub fn add(&mut self, function: &str, file: Option<&str>, line: Option<u32>, sampled: Sampled) {
        let lines = self.functions.entry((file.map(str::to_owned), function.to_owned())).or_default();
        lines.entry(line.unwrap_or(0)).or_default().add(sampled);
        self.total.add(sampled);
    }

    /// Adds what was sampled where no function is known: it counts as time of the program, and makes no region.
    pub fn add_elsewhere(&mut self, sampled: Sampled) {
        self.total.add(sampled);
    }

    /// All together.
    pub fn total(&self) -> Sampled {
        self.total
    }

    /// The functions that take at least this share of the time, the most contentious first. Their lines are from the
    /// first to the last of the hottest that have nine tenths of the function's time.
    pub fn regions(&self, model: &Model, min_coverage: f64) -> Vec<Region> {
        let all = self.total.ns.max(f64::MIN_POSITIVE);
        let found = self.functions.iter().filter_map(|((file, function), lines)| {
            let mut sum = Sampled::default();
            for sampled in lines.values() {
                sum.add(*sampled);
            }
            let coverage = sum.ns / all;
            (sum.ns > 0.0 && coverage >= min_coverage).then(|| Region {
                function: Some(function.clone()),
                file: file.clone(),
                lines: file.as_ref().and_then(|_| hottest(lines)),
                score: sum.score(model),
                coverage: coverage.min(1.0),
            })
        });
        let mut regions: Vec<Region> = found.collect();
        regions.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.coverage.total_cmp(&a.coverage)));
        regions
    }
}

fn hottest(lines: &Lines) -> Option<(u32, u32)> {
    let mut known: Vec<(u32, f64)> = lines.iter().filter(|(line, _)| **line > 0).map(|(l, s)| (*l, s.ns)).collect();
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

    fn sampled(ns: f64, private_lines: f64, last_lines: f64) -> Sampled {
        Sampled { ns, private_lines, last_lines }
    }

    #[test]
    fn functions_are_scored_by_what_they_brought_in_while_they_ran() {
        let mut profile = Profile::default();
        profile.add("hot", Some("/a.c"), Some(10), sampled(500.0, 100.0, 60.0));
        profile.add("hot", Some("/a.c"), Some(14), sampled(400.0, 100.0, 40.0));
        profile.add("hot", Some("/a.c"), Some(90), sampled(100.0, 0.0, 0.0));
        profile.add("hot", Some("/a.c"), None, sampled(0.0, 0.0, 0.0));
        profile.add("cool", Some("/a.c"), Some(50), sampled(600.0, 0.0, 0.0));
        profile.add("memcpy", None, None, sampled(200.0, 20.0, 0.0));
        profile.add("rare", Some("/a.c"), Some(70), sampled(1.0, 50.0, 50.0));
        profile.add_elsewhere(sampled(199.0, 0.0, 0.0));
        assert_eq!(profile.total(), sampled(2000.0, 270.0, 150.0));
        let model = Model { a: 2.0, b: 10.0, c: 0.5, clock_hz: 1e9 };
        let regions = profile.regions(&model, 0.01);
        let names: Vec<&str> = regions.iter().filter_map(|r| r.function.as_deref()).collect();
        assert_eq!(names, ["hot", "memcpy", "cool"], "and not what took less than 1 %");
        // 2 · (200 − 100)/1000 + 10 · 100/1000 + 0.5; line 90 is beyond nine tenths of its time.
        assert_eq!((regions[0].score, regions[0].coverage, regions[0].lines), (1.7, 0.5, Some((10, 14))));
        assert_eq!((regions[1].score, &regions[1].file, regions[1].lines), (2.0 * 20.0 / 200.0 + 0.5, &None, None));
        assert_eq!((regions[2].score, regions[2].lines), (0.5, Some((50, 50))));
        assert_eq!(super::super::parse(&super::super::write(&regions)).unwrap(), regions);
    }

    #[test]
    fn samples_that_contradict_each_other_score_no_less_than_nothing() {
        let mut profile = Profile::default();
        // More lines into the last level than into the private cache: chance, with few samples.
        profile.add("f", None, None, sampled(10.0, 0.0, 5.0));
        profile.add("never seen to run", None, None, sampled(0.0, 5.0, 5.0));
        let model = Model { a: 2.0, b: 1.0, c: -3.0, clock_hz: 1e9 };
        let regions = profile.regions(&model, 0.0);
        assert_eq!(regions.len(), 1);
        assert_eq!(regions[0].score, 0.0);
        assert_eq!(Profile::default().regions(&model, 0.0), []);
    }
}
