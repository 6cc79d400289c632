//! Results per mix and policy, and per machine.

use super::best::Best;
use super::mixes::Mix;
use super::once::{Arm, Ran};
use crate::means::{geometric, lowest, mean};
use cotenant_model::stats;
use cotenant_sim::course::{least_share, mean_share};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// An application below this fraction of its speed under Linux counts as worse off.
const BELOW: f64 = 0.95;

/// A geometric mean with its 95 % interval, if there are several values.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Mean {
    pub value: f64,
    pub interval: Option<[f64; 2]>,
}

impl Mean {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let summary = stats::Summary::of(&values.map(f64::ln).collect::<Vec<_>>());
        let interval = summary.estimate().map(|mean| [mean.low().exp(), mean.high().exp()]);
        Self { value: summary.mean.exp(), interval }
    }
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.value)?;
        self.interval.map_or(Ok(()), |[low, high]| write!(f, " ({low:.3} to {high:.3})"))
    }
}

/// A policy, or Linux, on a mix. Shares are of the speed under the best known mapping, with memory where Linux touched
/// it first if memory stays: geometric means over applications, then over seeds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub policy: String,
    /// Standard deviation of reported progress over 100 ms; Linux reads none.
    pub noise: Option<f64>,
    /// Settled, with memory where it is by then.
    pub rest: f64,
    /// The settled mapping as if memory had been touched there first, of the best such one.
    pub mapping: f64,
    /// Average from the start to each mark, learning included.
    pub after: Vec<f64>,
    /// The same over Linux's best seed, for the worst seed.
    pub over_linux_best: Vec<f64>,
    /// Settled speed over that under Linux with the same seed, of the worst application and seed.
    pub worst_app: f64,
    /// The same, each application as fast as its slowest thread, in the last tenth of the time.
    pub worst_app_by_slowest: f64,
    /// Settled share of each application.
    pub apps: Vec<f64>,
    /// Seconds lost against Linux, and the largest excess over half a second plus 1 % of the time.
    pub lost_s: f64,
    pub over_budget_s: f64,
    /// Largest deficit of work against Linux in seconds, earlier gains counted, of the worst seed; and its excess over
    /// the same limit.
    pub behind_s: f64,
    pub behind_over_s: f64,
    /// Placements and page moves of a run.
    pub moves: f64,
    pub page_moves: f64,
    /// Rounds of a run with actions, by stage.
    pub rounds: BTreeMap<String, f64>,
    /// Steps of a simulation, and its duration in seconds.
    pub steps: f64,
    pub wall_s: f64,
    /// Notes of the policy with the first seed.
    pub notes: Vec<String>,
    /// Per seed, for intervals.
    pub seeds: Vec<Seed>,
}

/// Results of one seed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Seed {
    pub rest: f64,
    pub after: Vec<f64>,
    /// Over Linux with the same seed: average up to each mark, and in the second half of the time.
    pub over_linux: Vec<f64>,
    pub late_over_linux: f64,
    pub worst_app: f64,
    pub worst_app_by_slowest: f64,
    pub lost_s: f64,
}

/// A mix under each policy.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MixRows {
    pub machine: String,
    #[serde(flatten)]
    pub mix: Mix,
    pub best: Best,
    /// The best mapping with memory where Linux touched it first, over the best with memory touched where threads run.
    pub lying: f64,
    /// Per seed: the slowest application's speed under the best known mapping over that under Linux, settled.
    pub best_slowest: Vec<f64>,
    pub rows: Vec<Row>,
}

/// A policy on a machine, over its mixes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub machine: String,
    pub policy: String,
    pub noise: Option<f64>,
    pub mixes: usize,
    /// Geometric mean and minimum over the mixes.
    pub rest: f64,
    pub rest_least: f64,
    pub mapping: f64,
    pub lying: f64,
    pub after: Vec<f64>,
    pub after_least: Vec<f64>,
    /// The minimum over the mixes.
    pub over_linux_best: Vec<f64>,
    pub worst_app: f64,
    pub worst_app_by_slowest: f64,
    /// Mixes with a seed in which an application settles more than 5 % below Linux: by its speed, and by its slowest
    /// thread.
    pub runs: usize,
    pub below: [usize; 2],
    /// Mean and maximum over the mixes.
    pub lost_s: f64,
    pub over_budget_s: f64,
    /// The maximum over the mixes.
    pub behind_s: f64,
    pub behind_over_s: f64,
    pub moves: f64,
    /// Over Linux with the same seed, for mixes and seeds: average up to each mark, and in the second half of the time.
    /// At the end, the mean over seeds of the worst mix, and the worst seed.
    pub over_linux: Vec<Mean>,
    pub late_over_linux: Mean,
    pub over_linux_least: f64,
    pub over_linux_least_seed: f64,
    /// The slowest application of each mix and seed over Linux, settled: geometric means, also of the best mappings.
    pub slowest: f64,
    pub best_slowest: f64,
    /// The first policy's result at the end over this one's: mean and minimum over the mixes; settled.
    pub first_over: [f64; 2],
    pub first_over_at_rest: [f64; 2],
}

/// Each mark separately.
fn by_mark(marks: usize, of: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..marks).map(of).collect()
}

/// Rows of a mix: Linux and each arm. `mapped` has the speeds of each seed's placement as if memory had been touched
/// there first.
pub(super) fn rows(arms: &[Arm], runs: &[(Ran, Vec<Ran>)], best: &Best, mapped: &[Vec<Vec<f64>>]) -> Vec<Row> {
    let linux: Vec<&Ran> = runs.iter().map(|run| &run.0).collect();
    let of_arm = |arm: usize| runs.iter().map(|run| &run.1[arm]).collect::<Vec<_>>();
    let first = row("none", None, &linux, &linux, best, &mapped[0]);
    let arms = arms.iter().enumerate();
    let others = arms.map(|(i, a)| row(&a.policy, Some(a.noise), &of_arm(i), &linux, best, &mapped[i + 1]));
    std::iter::once(first).chain(others).collect()
}

/// Per seed: the slowest application's speed under the best known mapping over that under Linux.
pub(super) fn best_slowest(best: &Best, runs: &[(Ran, Vec<Ran>)]) -> Vec<f64> {
    let of = |(seed, run): (usize, &(Ran, Vec<Ran>))| {
        let best = best.lying.get(seed).unwrap_or(&best.touched);
        least_share(&best.speeds, &run.0.rest)
    };
    runs.iter().enumerate().map(of).collect()
}

/// Geometric mean of the best mappings with memory in place, relative to the best mapping overall.
pub(super) fn lying(best: &Best) -> f64 {
    geometric(best.lying.iter().map(|lying| mean_share(&lying.speeds, &best.touched.speeds)))
}

fn row(policy: &str, noise: Option<f64>, runs: &[&Ran], linux: &[&Ran], best: &Best, mapped: &[Vec<f64>]) -> Row {
    let marks = runs[0].after.len();
    let best_of = |seed: usize| &best.lying.get(seed).unwrap_or(&best.touched).speeds;
    let share = |seed: usize, speeds: &[f64]| mean_share(speeds, best_of(seed));
    let one = |(i, (run, linux)): (usize, (&&Ran, &&Ran))| Seed {
        rest: share(i, &run.rest),
        after: run.after.iter().map(|speeds| share(i, speeds)).collect(),
        over_linux: run.after.iter().zip(&linux.after).map(|(own, linux)| mean_share(own, linux)).collect(),
        late_over_linux: mean_share(&run.late, &linux.late),
        worst_app: least_share(&run.rest, &linux.rest),
        worst_app_by_slowest: least_share(&run.by_slowest, &linux.by_slowest),
        lost_s: run.lost_s,
    };
    let seeds: Vec<Seed> = runs.iter().zip(linux).enumerate().map(one).collect();
    let whole = |run: &Ran, mark: usize| mean_share(&run.after[mark], &best.touched.speeds);
    let linux_best = |mark: usize| linux.iter().map(|run| whole(run, mark)).fold(0.0, f64::max);
    let of_app = |app: usize| geometric(runs.iter().enumerate().map(|(i, run)| run.rest[app] / best_of(i)[app]));
    let mut rounds: BTreeMap<String, f64> = BTreeMap::new();
    for (stage, n) in runs.iter().flat_map(|run| &run.rounds) {
        *rounds.entry(stage.clone()).or_default() += *n as f64 / runs.len() as f64;
    }
    Row {
        policy: policy.to_owned(),
        noise,
        rest: geometric(seeds.iter().map(|seed| seed.rest)),
        mapping: geometric(mapped.iter().map(|speeds| mean_share(speeds, &best.touched.speeds))),
        after: by_mark(marks, |mark| geometric(seeds.iter().map(|seed| seed.after[mark]))),
        over_linux_best: by_mark(marks, |mark| lowest(runs.iter().map(|run| whole(run, mark))) / linux_best(mark)),
        worst_app: lowest(seeds.iter().map(|seed| seed.worst_app)),
        worst_app_by_slowest: lowest(seeds.iter().map(|seed| seed.worst_app_by_slowest)),
        apps: (0..best.touched.speeds.len()).map(of_app).collect(),
        lost_s: mean(runs.iter().map(|run| run.lost_s)),
        over_budget_s: runs.iter().map(|run| run.over_budget_s).fold(f64::NEG_INFINITY, f64::max),
        behind_s: runs.iter().map(|run| run.behind_s).fold(0.0, f64::max),
        behind_over_s: runs.iter().map(|run| run.behind_over_s).fold(f64::NEG_INFINITY, f64::max),
        moves: mean(runs.iter().map(|run| run.moves[0] as f64)),
        page_moves: mean(runs.iter().map(|run| run.moves[1] as f64)),
        rounds,
        steps: mean(runs.iter().map(|run| run.steps as f64)),
        wall_s: mean(runs.iter().map(|run| run.wall_s)),
        notes: runs[0].notes.clone(),
        seeds,
    }
}

/// Per machine and policy, in the order of the mixes and of their rows.
pub(super) fn summaries(mixes: &[MixRows]) -> Vec<Summary> {
    let mut machines: Vec<&String> = mixes.iter().map(|mix| &mix.machine).collect();
    machines.dedup();
    let mut all = Vec::new();
    for machine in machines {
        let own: Vec<&MixRows> = mixes.iter().filter(|mix| mix.machine == *machine).collect();
        for (i, first) in own[0].rows.iter().enumerate() {
            let rows = || own.iter().map(|mix| &mix.rows[i]);
            let marks = first.after.len();
            let seeds = || rows().flat_map(|row| &row.seeds);
            let at_end = |row: &Row| geometric(row.seeds.iter().map(|seed| seed.over_linux[marks - 1]));
            // Linux is the first row, then comes the first policy.
            let ahead = |of: fn(&Row) -> f64| {
                let each = || own.iter().map(move |mix| of(mix.rows.get(1).unwrap_or(&mix.rows[0])) / of(&mix.rows[i]));
                [geometric(each()), lowest(each())]
            };
            let below = |of: fn(&Seed) -> f64| seeds().filter(|seed| of(seed) < BELOW).count();
            all.push(Summary {
                machine: machine.clone(),
                policy: first.policy.clone(),
                noise: first.noise,
                mixes: own.len(),
                rest: geometric(rows().map(|row| row.rest)),
                rest_least: lowest(rows().map(|row| row.rest)),
                mapping: geometric(rows().map(|row| row.mapping)),
                lying: geometric(own.iter().map(|mix| mix.lying)),
                after: by_mark(marks, |mark| geometric(rows().map(|row| row.after[mark]))),
                after_least: by_mark(marks, |mark| lowest(rows().map(|row| row.after[mark]))),
                over_linux_best: by_mark(marks, |mark| lowest(rows().map(|row| row.over_linux_best[mark]))),
                worst_app: lowest(rows().map(|row| row.worst_app)),
                worst_app_by_slowest: lowest(rows().map(|row| row.worst_app_by_slowest)),
                runs: seeds().count(),
                below: [below(|seed| seed.worst_app), below(|seed| seed.worst_app_by_slowest)],
                lost_s: mean(rows().map(|row| row.lost_s)),
                over_budget_s: rows().map(|row| row.over_budget_s).fold(f64::NEG_INFINITY, f64::max),
                behind_s: rows().map(|row| row.behind_s).fold(0.0, f64::max),
                behind_over_s: rows().map(|row| row.behind_over_s).fold(f64::NEG_INFINITY, f64::max),
                moves: mean(rows().map(|row| row.moves)),
                over_linux: (0..marks).map(|mark| Mean::of(seeds().map(|seed| seed.over_linux[mark]))).collect(),
                late_over_linux: Mean::of(seeds().map(|seed| seed.late_over_linux)),
                over_linux_least: lowest(rows().map(at_end)),
                over_linux_least_seed: lowest(seeds().map(|seed| seed.over_linux[marks - 1])),
                slowest: geometric(seeds().map(|seed| seed.worst_app)),
                best_slowest: geometric(own.iter().flat_map(|mix| mix.best_slowest.iter().copied())),
                first_over: ahead(|row| row.after[row.after.len() - 1]),
                first_over_at_rest: ahead(|row| row.rest),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::best::Found;
    use super::*;
    use cotenant_model::pin::Pin;

    fn ran(rest: [f64; 2], after: [f64; 2], lost_s: f64) -> Ran {
        Ran {
            after: vec![after.to_vec()],
            late: rest.to_vec(),
            rest: rest.to_vec(),
            by_slowest: rest.to_vec(),
            places: vec![0, 1],
            pages: Vec::new(),
            lost_s,
            over_budget_s: lost_s - 0.5,
            behind_s: lost_s / 2.0,
            behind_over_s: lost_s / 2.0 - 0.5,
            moves: [4, 0],
            rounds: BTreeMap::from([("trial".to_owned(), 3)]),
            notes: Vec::new(),
            steps: 1,
            wall_s: 1.0,
        }
    }

    /// Two applications, which do 10 and 100 under the best mapping; two seeds.
    #[test]
    fn shares_by_hand() {
        let found = |speeds: [f64; 2]| Found {
            speeds: speeds.to_vec(),
            places: vec![0, 1],
            from: String::new(),
            evaluations: 0,
            all: true,
        };
        let best = Best { touched: found([10.0, 100.0]), lying: Vec::new() };
        let arm = Arm { policy: "p".to_owned(), noise: 0.01, pin: Pin::Cpu };
        let runs = [
            (ran([5.0, 50.0], [5.0, 50.0], 0.0), vec![ran([10.0, 100.0], [4.9, 50.0], 1.0)]),
            (ran([5.0, 100.0], [8.0, 80.0], 0.0), vec![ran([10.0, 25.0], [10.0, 100.0], 3.0)]),
        ];
        let mapped = vec![vec![vec![10.0, 100.0]; 2]; 2];
        let rows_of = |best: &Best| rows(std::slice::from_ref(&arm), &runs, best, &mapped);
        let rows = rows_of(&best);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, not {b}");
        let [linux, own] = &rows[..] else { panic!("{rows:?}") };
        near(linux.rest, (0.5_f64 * 0.5_f64.sqrt()).sqrt());
        near(linux.after[0], 0.4_f64.sqrt());
        near(linux.over_linux_best[0], 0.5 / 0.8);
        near(linux.worst_app, 1.0);
        near(own.rest, 0.5_f64.sqrt());
        near(own.mapping, 1.0);
        near(own.over_linux_best[0], 0.245_f64.sqrt() / 0.8);
        near(own.worst_app, 0.25);
        near(own.apps[1], 0.5);
        assert_eq!((own.lost_s, own.over_budget_s, own.moves, own.rounds["trial"]), (2.0, 2.5, 4.0, 3.0));

        // With memory in place, the best is half as fast with the second seed.
        let there = Best { lying: vec![found([10.0, 100.0]), found([5.0, 50.0])], ..best.clone() };
        let [_, halved] = &rows_of(&there)[..] else { panic!() };
        near(halved.rest, 1.0);
        near(halved.mapping, 1.0);
        near(halved.over_linux_best[0], own.over_linux_best[0]);
        near(lying(&there), 0.5_f64.sqrt());
        near(lying(&best), 1.0);

        let mix = |rows: Vec<Row>| MixRows {
            machine: "m".to_owned(),
            mix: Mix::default(),
            best: best.clone(),
            lying: 1.0,
            best_slowest: best_slowest(&best, &runs),
            rows,
        };
        let better = Row { rest: 1.0, worst_app: 0.5, lost_s: 0.0, ..own.clone() };
        let all = summaries(&[mix(rows.clone()), mix(vec![linux.clone(), better])]);
        assert_eq!((all.len(), all[1].mixes, all[1].worst_app, all[1].lost_s), (2, 2, 0.25, 1.0));
        near(all[1].rest, 0.5_f64.powf(0.25));
        near(all[1].rest_least, 0.5_f64.sqrt());
        // Over Linux with the same seed 0.98^1/2 and 1.25, on both mixes.
        near(all[1].over_linux[0].value, (0.98_f64.sqrt() * 1.25).sqrt());
        let [low, high] = all[1].over_linux[0].interval.unwrap();
        assert!(low < 1.0 && high > 1.25, "{low} {high}");
        near(all[1].over_linux_least_seed, 0.98_f64.sqrt());
        assert_eq!((all[1].runs, all[1].below), (4, [2, 2]));
        assert_eq!((all[1].behind_s, all[1].behind_over_s), (1.5, 1.0));
        near(all[1].slowest, 0.5_f64.sqrt());
        near(all[1].best_slowest, 2.0_f64.sqrt());
        near(all[0].first_over[0], own.after[0] / linux.after[0]);
        assert_eq!(all[1].first_over, [1.0, 1.0]);
    }
}
