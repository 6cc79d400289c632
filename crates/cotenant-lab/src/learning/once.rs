//! One mix with one seed: Linux alone, then each policy including all of its learning.

use cotenant_cli::usage;
use cotenant_model::host::Round;
use cotenant_model::pin::Pin;
use cotenant_model::policy::DynPolicy;
use cotenant_model::{Action, Outcome, Time};
use cotenant_policies::None as NoPolicy;
use cotenant_sim::course::{Course, Looks, Rest, mean_share};
use cotenant_sim::scenario::Scenario;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval between measurements of speeds, which separates the losses of trials from gains.
const LOOK: Duration = Duration::from_millis(100);
/// The settled placement is the one that lasts longest in this last part of the time, trials excluded.
const LAST: f64 = 0.1;
/// Seconds for caches to settle, and for measuring settled speeds after that.
const REST_S: [u64; 2] = [5, 15];
/// Allowed loss: this much at once, and this fraction of the time (shapes.md, 8).
const BUDGET: (f64, f64) = (0.5, 0.01);

/// A policy and its settings.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub policy: String,
    pub noise: f64,
    pub pin: Pin,
}

impl Arm {
    /// The scenario as this policy needs it, and the policy.
    pub fn set(&self, scenario: &Scenario) -> anyhow::Result<(Scenario, Box<dyn DynPolicy>)> {
        let mut scenario = scenario.clone();
        scenario.config.pin = self.pin;
        if let Some(progress) = &mut scenario.observation.progress {
            progress.noise = self.noise;
        }
        let policy = cotenant_policies::standard().make(&self.policy, &scenario.config).map_err(usage)?;
        Ok((scenario, policy))
    }
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    /// Instructions per second of each application from the start to each mark, while it ran.
    pub after: Vec<Vec<f64>>,
    /// The same in the second half of the time; for applications that come and go, over all of it.
    pub late: Vec<f64>,
    /// Settled speeds, with pages where they were at the end; if the kernel moves pages, in the last tenth of the time.
    pub rest: Vec<f64>,
    /// The same, each application as fast as its slowest thread, in the last tenth of the time.
    pub by_slowest: Vec<f64>,
    /// The settled CPU of each thread; empty if they never all ran.
    pub places: Vec<usize>,
    /// Fraction of each thread's memory accesses per node at the end.
    pub pages: Vec<Vec<f64>>,
    /// Seconds lost against Linux: the deficit of each slower tenth of a second.
    pub lost_s: f64,
    /// Largest excess over half a second and 1 % of the time, seconds; negative: never exceeded.
    pub over_budget_s: f64,
    /// Largest deficit of Linux's work in seconds, earlier gains counted; and its excess over the same limit.
    pub behind_s: f64,
    pub behind_over_s: f64,
    /// Placements carried out, and page moves.
    pub moves: [u64; 2],
    /// Rounds with actions, by the stage in their reason.
    pub rounds: BTreeMap<String, u64>,
    /// Distinct notes of the policy.
    pub notes: Vec<String>,
    /// Steps of the simulation, and its wall-clock seconds.
    pub steps: u64,
    pub wall_s: f64,
}

/// A machine settled long enough to measure its speed, with memory touched first where threads run, or at `pages`.
pub(super) fn long(pages: Option<&[Vec<f64>]>) -> Rest<'_> {
    let [after, until] = REST_S.map(|s| Time(s * 1_000_000_000));
    Rest { pages, after, until }
}

/// Linux alone, and the runs under each policy.
pub(super) fn run(scenario: &Scenario, arms: &[Arm], marks: &[f64], seed: u64) -> anyhow::Result<(Ran, Vec<Ran>)> {
    let end = scenario.end.as_secs_f64();
    let looks = Looks { every: LOOK, rest_from: Time(((1.0 - LAST) * end * 1e9) as u64) };
    let started = Instant::now();
    let course = scenario.course(&NoPolicy, scenario.kernel, seed, looks, |_| false)?;
    let linux = ran(scenario, &course, &course, marks, started)?;
    let one = |arm: &Arm| -> anyhow::Result<Ran> {
        let (scenario, policy) = arm.set(scenario)?;
        let mut noted = Seen::default();
        let started = Instant::now();
        let mut tries = false;
        let watch = |round: &Round<'_>| {
            noted.add(round);
            tries = round.explain().map_or(tries, |explanation| explanation.trying);
            tries
        };
        let own = scenario.course(&*policy, scenario.kernel, seed, looks, watch)?;
        let Seen { moves, rounds, notes } = noted;
        Ok(Ran { moves, rounds, notes, ..ran(&scenario, &own, &course, marks, started)? })
    };
    Ok((linux, arms.iter().map(one).collect::<anyhow::Result<_>>()?))
}

fn ran(scenario: &Scenario, own: &Course, linux: &Course, marks: &[f64], started: Instant) -> anyhow::Result<Ran> {
    let look = LOOK.as_secs_f64();
    let index = |seconds: f64| ((seconds / look).round() as usize).clamp(1, own.work.len()) - 1;
    let came: Vec<f64> = scenario.apps.iter().map(|app| app.arrival.as_secs_f64()).collect();
    let stays = came.iter().all(|came| *came == 0.0);
    let after: Vec<Vec<f64>> = marks.iter().map(|&mark| speeds(&own.work[..=index(mark)], &came)).collect();
    let whole = speeds(&own.work, &came);
    let late = if stays {
        let (first, all) = (&own.work[index(own.work.len() as f64 * look / 2.0)], &own.work[own.work.len() - 1]);
        let seconds = own.work.len() as f64 * look / 2.0;
        all.iter().zip(first).map(|(all, first)| (all - first) / seconds).collect()
    } else {
        whole.clone()
    };
    let places = if stays { own.places.clone() } else { Vec::new() };
    let rest = if scenario.moves_memory() {
        own.late.iter().map(|threads| threads.iter().sum()).collect()
    } else if places.is_empty() {
        whole
    } else {
        scenario.at_rest(&places, long(Some(&own.pages)))?.0
    };
    let slowest = |threads: &Vec<f64>| threads.iter().copied().fold(f64::INFINITY, f64::min) * threads.len() as f64;
    let by_slowest = own.late.iter().map(slowest).collect();
    let [lost_s, over_budget_s, behind_s, behind_over_s] = lost(&own.work, &linux.work, &came);
    let wall_s = started.elapsed().as_secs_f64();
    let (moves, rounds, notes) = Default::default();
    let (pages, steps) = (own.pages.clone(), own.steps);
    Ok(Ran {
        after,
        late,
        rest,
        by_slowest,
        places,
        pages,
        lost_s,
        over_budget_s,
        behind_s,
        behind_over_s,
        moves,
        rounds,
        notes,
        steps,
        wall_s,
    })
}

/// Work of each application per second of its stay; the stay ends at the last measurement with any work.
fn speeds(work: &[Vec<f64>], came: &[f64]) -> Vec<f64> {
    let look = LOOK.as_secs_f64();
    let one = |(app, came): (usize, &f64)| {
        let at = |i: usize| work[i][app];
        let done = |i: usize| at(i) - if i > 0 { at(i - 1) } else { 0.0 };
        let last = (0..work.len()).rev().find(|&i| done(i) > 0.0).unwrap_or(0);
        // In its last interval, the fraction of the work that it did in the one before.
        let ends = last > 0 && last + 1 < work.len() && done(last - 1) > 0.0;
        let part = if ends { (done(last) / done(last - 1)).min(1.0) } else { 1.0 };
        at(last) / ((last as f64 + part) * look - came).max(look)
    };
    came.iter().enumerate().map(one).collect()
}

/// Seconds lost, and their largest excess over the budget; the same for the total deficit.
fn lost(own: &[Vec<f64>], linux: &[Vec<f64>], came: &[f64]) -> [f64; 4] {
    let (look, (at_once, part)) = (LOOK.as_secs_f64(), BUDGET);
    let share = |own: &[f64], linux: &[f64]| {
        // Absent or finished applications cannot be compared.
        let (own, linux): (Vec<f64>, Vec<f64>) =
            own.iter().zip(linux).filter(|(own, linux)| **own > 0.0 && **linux > 0.0).unzip();
        if own.is_empty() { 1.0 } else { mean_share(&own, &linux) }
    };
    let end = |work: &[Vec<f64>], app: usize| (1..work.len()).rev().find(|&i| work[i][app] > work[i - 1][app]);
    let ends: Vec<[usize; 2]> =
        (0..came.len()).map(|app| [own, linux].map(|work| end(work, app).unwrap_or_default())).collect();
    // Each application counts for as long as it ran, in both or in the slower one.
    let mut there = vec![0.0; came.len()];
    let (mut lost, mut over, mut behind, mut behind_over, mut now) = (0.0, -at_once, 0.0, -at_once, 0.0);
    for i in 1..own.len().min(linux.len()) {
        let step = |of: &[Vec<f64>]| -> Vec<f64> { of[i].iter().zip(&of[i - 1]).map(|(b, a)| b - a).collect() };
        lost += (1.0 - share(&step(own), &step(linux))).max(0.0) * look;
        now += look;
        over = f64::max(over, lost - at_once - part * now);
        let present: Vec<usize> = (0..came.len())
            .filter(|&app| own[i][app].min(linux[i][app]) > 0.0 && i <= ends[app][0].max(ends[app][1]))
            .collect();
        for &app in &present {
            there[app] += look / present.len() as f64;
        }
        let speed = |work: &[Vec<f64>], end: usize, app: usize| {
            let i = i.min(end);
            work[i][app] / ((i + 1) as f64 * look - came[app])
        };
        let logs = |app: usize| (speed(own, ends[app][0], app) / speed(linux, ends[app][1], app)).ln();
        let time: f64 = there.iter().sum();
        let sum: f64 = (0..came.len()).filter(|&app| there[app] > 0.0).map(|app| there[app] * logs(app)).sum();
        let missing = (1.0 - (sum / time.max(look)).exp()) * time;
        behind = f64::max(behind, missing);
        behind_over = f64::max(behind_over, missing - at_once - part * now);
    }
    [lost, over, behind, behind_over]
}

#[derive(Default)]
struct Seen {
    moves: [u64; 2],
    rounds: BTreeMap<String, u64>,
    notes: Vec<String>,
}

impl Seen {
    fn add(&mut self, round: &Round<'_>) {
        let done = round.orders.iter().zip(round.outcomes).filter(|(_, outcome)| **outcome == Outcome::Applied);
        let mut stages: Vec<&str> = Vec::new();
        for (order, _) in done {
            match order.action {
                Action::Place { .. } | Action::Release { .. } => self.moves[0] += 1,
                Action::Pages { .. } => self.moves[1] += 1,
                _ => {}
            }
            let stage = &*order.reason.stage;
            if !stages.contains(&stage) {
                stages.push(stage);
            }
        }
        for stage in stages {
            *self.rounds.entry(stage.to_owned()).or_default() += 1;
        }
        for note in round.decision.iter().flat_map(|decision| &decision.notes) {
            if self.notes.len() < 20 && !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two applications; Linux does 10 and 100 in each tenth of a second.
    #[test]
    fn what_was_lost_is_told_from_what_was_gained() {
        let course = |steps: &[[f64; 2]]| {
            let mut sum = vec![0.0; 2];
            let mut work = vec![sum.clone()];
            for step in steps {
                sum.iter_mut().zip(step).for_each(|(sum, step)| *sum += step);
                work.push(sum.clone());
            }
            work
        };
        let linux = course(&[[10.0, 100.0]; 20]);
        // A quarter of the first one's speed is half of the mean: 50 ms lost of each 100 ms.
        let mut own = [[20.0, 100.0]; 20];
        own[..12].fill([2.5, 100.0]);
        let [lost_s, over_s, behind_s, _] = lost(&course(&own), &linux, &[0.0; 2]);
        assert!((lost_s - 0.6).abs() < 1e-9 && (over_s - (0.1 - 0.012)).abs() < 1e-9, "{lost_s} {over_s}");
        assert!((behind_s - 0.6).abs() < 1e-9, "{behind_s}: later it does more than Linux");
        assert_eq!(lost(&linux, &linux, &[0.0; 2]), [0.0, -0.5, 0.0, -0.5], "at the start");
    }

    /// Half a second of work that takes a whole one, of one of two, is a quarter of a second, or a little more as a
    /// logarithm: however late it comes, and also once it is done.
    #[test]
    fn who_comes_late_can_only_be_behind_for_its_stay() {
        let course = |rate: f64| -> Vec<Vec<f64>> {
            (1..=200).map(|i| vec![f64::from(i), ((f64::from(i) - 100.0) * rate).clamp(0.0, 10.0)]).collect()
        };
        let [_, _, behind_s, over_s] = lost(&course(1.0), &course(2.0), &[0.0, 10.0]);
        assert!((0.3..0.35).contains(&behind_s), "{behind_s}");
        assert!(over_s < 0.0, "{over_s}");
        let [.., ahead_s, _] = lost(&course(2.0), &course(1.0), &[0.0, 10.0]);
        assert_eq!(ahead_s, 0.0);
    }

    /// One is there all the time, one comes after 0.2 s and ends in the middle of the fifth tenth of a second.
    #[test]
    fn who_goes_has_the_speed_of_its_stay() {
        let work = [[1.0, 0.0], [2.0, 0.0], [3.0, 4.0], [4.0, 8.0], [5.0, 10.0], [6.0, 10.0]].map(|at| at.to_vec());
        let found = speeds(&work, &[0.0, 0.2]);
        assert!((found[0] - 10.0).abs() < 1e-9 && (found[1] - 40.0).abs() < 1e-9, "{found:?}");
    }
}
