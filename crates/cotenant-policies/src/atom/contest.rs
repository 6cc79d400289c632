//! The competition: turns, their measurements, dropped classes, and the winner.

use super::classes::Class;
use super::situation::Situation;
use cotenant_model::speed::{self, Source};
use cotenant_model::stats::{Estimate, Summary};
use cotenant_model::{AppId, Reading, Time, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The least advantage that drops a class or beats the kernel.
pub(super) const MIN_GAIN: f64 = 0.01;

/// A competition of mapping classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Contest {
    pub situation: Situation,
    pub classes: Vec<Class>,
    /// Per class and round: the natural logarithm of the speed, the mean over the applications.
    scores: Vec<Vec<f64>>,
    /// Classes that still compete, in the order of [`Self::classes`].
    alive: Vec<usize>,
    /// Finished rounds.
    round: u32,
    /// Finished turns of this round.
    turn: usize,
    pub began: Time,
    /// The winner, once the competition is over.
    pub winner: Option<usize>,
}

impl Contest {
    pub fn new(situation: Situation, classes: Vec<Class>, began: Time) -> Self {
        let n = classes.len();
        let winner = (n == 1).then_some(0);
        Self {
            situation,
            classes,
            scores: vec![Vec::new(); n],
            alive: (0..n).collect(),
            round: 0,
            turn: 0,
            began,
            winner,
        }
    }

    /// The class of this turn. Every second round runs in reverse, so that drift affects all alike, and saves a move.
    pub fn turn(&self) -> usize {
        let at = if self.round.is_multiple_of(2) { self.turn } else { self.alive.len() - 1 - self.turn };
        self.alive[at]
    }

    /// Number of remaining competitors.
    pub fn competing(&self) -> usize {
        self.alive.len()
    }

    /// Ends the turn with its score. At the end of a round, hopeless classes are dropped; at the end of the last, one
    /// wins.
    pub fn record(&mut self, score: f64, rounds: u32) {
        let class = self.turn();
        self.scores[class].push(score);
        self.turn += 1;
        if self.turn < self.alive.len() {
            return;
        }
        self.turn = 0;
        self.round += 1;
        let leader = self.leader();
        let hopeless = |c: usize| self.is_beaten(c, leader);
        let alive: Vec<usize> = self.alive.iter().copied().filter(|&c| !hopeless(c)).collect();
        self.alive = alive;
        if self.alive.len() == 1 || self.round >= rounds {
            self.winner = Some(self.judged(leader));
        }
    }

    fn mean(&self, class: usize) -> f64 {
        Summary::of(&self.scores[class]).mean
    }

    /// The remaining class with the best mean, the first of equals.
    fn leader(&self) -> usize {
        let first = self.alive[0];
        self.alive.iter().copied().fold(first, |best, c| if self.mean(c) > self.mean(best) { c } else { best })
    }

    /// Advantage of one class over another per round, as a logarithm; over their common rounds.
    pub fn lead(&self, of: usize, over: usize) -> Option<Estimate> {
        let pairs = self.scores[of].iter().zip(&self.scores[over]);
        Summary::of(&pairs.map(|(a, b)| a - b).collect::<Vec<_>>()).estimate()
    }

    /// Whether one class is certainly faster than another, and by enough; never than itself.
    fn is_beaten(&self, class: usize, by: usize) -> bool {
        self.lead(by, class).is_some_and(|e| e.low() > 0.0 && e.value.exp_m1() >= MIN_GAIN)
    }

    /// The leader, unless the kernel competes and is not certainly beaten.
    fn judged(&self, leader: usize) -> usize {
        let kernel = self.classes.iter().position(|c| c.cpus.is_empty());
        kernel.filter(|&kernel| !self.is_beaten(kernel, leader)).unwrap_or(leader)
    }

    /// The result in words.
    pub fn result(&self) -> Option<String> {
        let winner = self.winner?;
        let text = &self.classes[winner].text;
        if self.classes.len() == 1 {
            return Some(format!("class {text} is the only one that competes"));
        }
        let percent = |log: f64| log.exp_m1() * 100.0;
        let others = (0..self.classes.len()).filter(|c| *c != winner);
        let second = others.max_by(|a, b| self.mean(*a).total_cmp(&self.mean(*b)))?;
        let rounds = self.scores[winner].len();
        // The mean over classes equals the expectation of a random assignment (§4.2.1).
        let all = Summary::of(&(0..self.classes.len()).map(|c| self.scores[c][0]).collect::<Vec<_>>()).mean;
        let second_text = &self.classes[second].text;
        let over_second = match self.lead(winner, second) {
            Some(e) => format!("{:+.1} % ± {:.1} % over {second_text}", percent(e.value), e.half_width * 100.0),
            None => format!("{:+.1} % over {second_text}", percent(self.mean(winner) - self.mean(second))),
        };
        let over_all = percent(self.scores[winner][0] - all);
        let n = self.classes.len();
        Some(format!("class {text} won of {n} in {rounds} rounds: {over_second}, {over_all:+.1} % over their average"))
    }
}

/// The applications' speeds in a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Meter {
    from: Time,
    apps: BTreeMap<AppId, Tally>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Tally {
    /// Seconds measured, or readings.
    weight: f64,
    /// Work done in them, or the sum of the readings.
    sum: f64,
}

impl Meter {
    pub fn new(from: Time) -> Self {
        Self { from, apps: BTreeMap::new() }
    }

    /// Adds a view. Each reading of a metric counts once, and only if its period began in the turn.
    pub fn add(&mut self, view: &View, situation: &Situation) {
        for (id, source) in &situation.measures {
            let Some(app) = view.app(*id) else { continue };
            let within = |reading: Reading| reading.at > self.from && reading.since() >= self.from;
            if matches!(source, Source::Metric(_)) && !source.reading(view, app).is_some_and(within) {
                continue;
            }
            if let Some([sum, weight]) = source.term(view, app) {
                let tally = self.apps.entry(*id).or_default();
                tally.weight += weight;
                tally.sum += sum;
            }
        }
    }

    /// The natural logarithm of the speed, the mean over the applications; `None` while one has no data.
    pub fn score(&self, situation: &Situation) -> Option<f64> {
        let log = |id: &AppId| {
            let Tally { weight, sum } = self.apps.get(id)?;
            Some(sum / weight).filter(|speed| speed::usable(*speed)).map(f64::ln)
        };
        let logs: Option<Vec<f64>> = situation.measures.keys().map(log).collect();
        logs.map(|logs| Summary::of(&logs).mean)
    }
}
