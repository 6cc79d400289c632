//! Figures 10 and 11: the distance of `ReSense` from the best mapping, and why.

use super::super::lab::Lab;
use super::super::row::{self, Found, Row, bound, highest, row};
use super::data::{PLATFORMS, Platform, profiles};
use super::fixed::{count, sets};
use super::{ASSUMED, Who, figures, mean, own, pool, seeds, together, work_s};
use anyhow::Context as _;
use cotenant_measure::workload::compare::Figures;
use cotenant_model::profile::AppProfile;
use cotenant_policies::{Resense, ResenseSettings};
use cotenant_sim::optimum::Label;
use cotenant_sim::run::Outcome;
use cotenant_sim::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};

/// The largest average distances of a machine, points: average response time, throughput (abstract).
const FURTHEST: [f64; 2] = [1.49, 2.08];

/// The scores used by `ReSense`. Those of the paper's C₋, a core of every instance, come first; the rest is ours.
const ARMS: [&str; 4] = [
    "paper's scores",
    "simulated scores",
    "simulated scores on two instances (ours)",
    "sums of simulated scores (ours)",
];
const PAPERS: usize = 2;
const METRICS: [&str; 2] = ["art", "throughput"];

/// A set of programs. Points of improvement over Linux below the best mapping, by metric.
struct Distances {
    /// By [`ARMS`].
    below: [[f64; 2]; ARMS.len()],
    /// The same as if the first mapping had been kept to the end.
    kept: [[f64; 2]; ARMS.len()],
    /// The same for the best mapping that any scores can produce, with their number, if all were tried.
    any: Option<([f64; 2], usize)>,
    /// Mappings while all programs run, by [`ARMS`].
    laid: [String; ARMS.len()],
    /// The best mapping by average response time.
    best: String,
    /// Whether this is certainly the best.
    exact: bool,
}

fn of(outcome: &Outcome) -> Option<Figures> {
    Figures::of_times(&outcome.apps.iter().map(|app| app.time_s).collect::<Vec<_>>())
}

/// Threads of each program by last-level cache, and its time, preceded by its score if there is one.
fn laid(scenario: &Scenario, places: &[usize], outcome: &Outcome, level: Option<&str>) -> String {
    let topology = &scenario.machine.topology;
    let mut places = places.iter();
    let one = |(app, result): (&cotenant_sim::world::AppSpec, &cotenant_sim::run::AppResult)| {
        let mut threads = vec![0; topology.llc_domains().len()];
        for place in places.by_ref().take(app.threads) {
            let cpu = cotenant_model::CpuId(*place as u32);
            topology.llc_of(cpu).into_iter().for_each(|domain| threads[domain] += 1);
        }
        let threads: Vec<String> = threads.iter().map(usize::to_string).collect();
        let score = level.and_then(|level| scenario.profiles.get(&app.name)?.score([level]));
        let score = score.map_or(String::new(), |score| format!("({score:+.1}) "));
        format!("{} {score}{} {:.1} s", app.name, threads.join("|"), result.time_s)
    };
    scenario.apps.iter().zip(&outcome.apps).map(one).collect::<Vec<_>>().join(", ")
}

/// All permutations.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let longer = |shorter: Vec<usize>| {
        (0..n).map(move |at| {
            let mut order = shorter.clone();
            order.insert(at, n - 1);
            order
        })
    };
    orders(n - 1).into_iter().flat_map(longer).collect()
}

/// Metrics of a mapping, and the CPU of each thread.
type Placed = (Figures, Vec<usize>);

/// The best mappings that `ReSense` can make of any scores, by each metric, if no program moves when others end; their
/// places and number. Only signs and the order of scores matter. Contending programs are spread over two instances, and
/// also over all instances.
fn any(alone: &Scenario, set: &[String], level: &str) -> anyhow::Result<([Placed; 2], usize)> {
    let mut alone = alone.clone();
    let mut best: Option<[Placed; 2]> = None;
    let mut seen: BTreeSet<Vec<usize>> = BTreeSet::new();
    for order in orders(set.len()) {
        for signs in 0..2_u32 << set.len() {
            let scores = set.iter().zip(&order).enumerate().map(|(i, (name, rank))| {
                let strength = 5.0 + *rank as f64;
                (name.as_str(), level, if signs >> i & 1 == 1 { strength } else { -strength })
            });
            alone.know(&profiles(scores));
            let settings = ResenseSettings { widest: signs >> set.len() & 1 == 1 };
            let places = alone.run(&Resense { sum: false, settings }, alone.kernel, 1, |_| ())?.places;
            if !seen.insert(places.clone()) {
                continue;
            }
            let Some(figures) = of(&alone.pinned(&places, 1)?) else { continue };
            let this = (figures, places);
            let [art, throughput] = best.get_or_insert_with(|| [this.clone(), this.clone()]);
            if figures.art_s < art.0.art_s {
                *art = this.clone();
            }
            if figures.throughput > throughput.0.throughput {
                *throughput = this;
            }
        }
    }
    Ok((best.context("no run took any time")?, seen.len()))
}

/// The metric to maximize.
fn value(outcome: &Outcome, metric: usize) -> f64 {
    of(outcome).map_or(0.0, |f| if metric == 0 { 1.0 / f.art_s } else { f.throughput })
}

fn one(
    lab: &Lab,
    platform: &Platform,
    scenario: &Scenario,
    [theirs, own]: [&BTreeMap<String, AppProfile>; 2],
    set: &[String],
) -> anyhow::Result<Distances> {
    let workload = together(set);
    let runs = |who: &Who<'_>| -> anyhow::Result<Figures> {
        let all = (1..=seeds(lab)).map(|seed| figures(scenario, &workload, who, seed));
        Ok(mean(&all.collect::<anyhow::Result<Vec<_>>>()?))
    };
    let linux = runs(&Who::Linux)?;
    let mut alone = scenario.for_jobs(&workload).context("a program is not in the pool")?;
    let points = |f: &Figures| f.over(&linux);
    // The search also starts from the settled mapping of ReSense and from the best one it could choose.
    let (mut starts, mut with, mut kept) = (Vec::new(), [[0.0; 2]; ARMS.len()], [[0.0; 2]; ARMS.len()]);
    let mut mappings: [String; ARMS.len()] = Default::default();
    let level = match platform.levels {
        [(_, level)] => Some(*level),
        _ => None, // with two levels the number of combinations is squared
    };
    let arms = [Who::Resense(theirs), Who::Resense(own), Who::Two(own), Who::Sum(own)];
    for (arm, who) in arms.into_iter().enumerate() {
        with[arm] = points(&runs(&who)?);
        let (policy, scores) = who.resense().context("each is ReSense")?;
        alone.know(scores);
        let outcome = alone.run(&policy, alone.kernel, 1, |_| ())?;
        mappings[arm] = laid(&alone, &outcome.places, &outcome, level);
        kept[arm] = of(&alone.pinned(&outcome.places, 1)?).map_or([0.0; 2], |f| points(&f));
        starts.push(outcome.places);
    }
    let any = level.map(|level| any(&alone, set, level)).transpose()?;
    starts.extend(any.iter().flat_map(|(best, _)| best.iter().map(|(_, places)| places.clone())));
    let (mut top, mut exact, mut best) = ([0.0; 2], true, String::new());
    for (metric, top) in top.iter_mut().enumerate() {
        let (found, outcome) = alone.optimal_by(&|outcome| value(outcome, metric), lab.effort.limits, &starts, 1)?;
        exact &= found.label == Label::Optimal;
        *top = of(&outcome).map_or(0.0, |f| points(&f)[metric]);
        if metric == 0 {
            best = laid(&alone, &alone.places(&found.mapping), &outcome, None);
        }
    }
    let below = |points: [f64; 2]| [top[0] - points[0], top[1] - points[1]];
    let any = any.map(|([art, throughput], n)| (below([points(&art.0)[0], points(&throughput.0)[1]]), n));
    Ok(Distances { below: with.map(below), kept: kept.map(below), any, laid: mappings, best, exact })
}

/// A mean distance from the best mapping beside the paper's on that machine.
fn distance(label: String, paper: f64, ours: f64) -> Row {
    let met = ours <= paper;
    let further = || format!("{:.2} points further than in the paper", ours - paper);
    let verdict = if met { "as near as in the paper".to_owned() } else { further() };
    row(label, ours, POINTS).judged(paper, verdict, met)
}

const POINTS: &str = "points over Linux";

/// The rows of a machine: each set, then the means.
fn told(platform: &Platform, paper: [f64; 2], sets: &[Vec<String>], found: &[Distances]) -> Vec<Row> {
    let mut rows = Vec::new();
    let machine = platform.machine;
    for (arm, by) in ARMS.into_iter().enumerate() {
        for (metric, name) in METRICS.into_iter().enumerate() {
            let each = || found.iter().map(|f| f.below[arm][metric]);
            let label = |of: &str| format!("{machine}, {by}{of}: {name}, below the best mapping");
            for (set, found) in sets.iter().zip(found) {
                let row = row(label(&format!(", {}", set.join("+"))), found.below[arm][metric], POINTS);
                let verdict = format!("{}; best: {}", found.laid[arm], found.best);
                rows.push(if metric == 0 { Row { verdict, ..row } } else { row });
            }
            let mean = distance(label("") + ", mean", paper[metric], row::mean(each()));
            // Our variants are no statements of the paper.
            rows.push(if arm < PAPERS { mean } else { row(mean.label, mean.measured, POINTS) });
            rows.push(row(label("") + ", at most", highest(each()), POINTS));
            let kept = row::mean(found.iter().map(|f| f.kept[arm][metric]));
            rows.push(row(label(", if nothing were moved when others end") + ", mean", kept, POINTS));
        }
    }
    for (metric, name) in METRICS.into_iter().enumerate() {
        let each: Vec<f64> = found.iter().filter_map(|f| Some(f.any?.0[metric])).collect();
        if let Some(most) = found.iter().filter_map(|f| Some(f.any?.1)).max() {
            let label = format!(
                "{machine}, best of all mappings that some scores lead to ({most} at most): {name}, below the best mapping, mean"
            );
            rows.push(row(label, row::mean(each), POINTS));
        }
    }
    rows
}

/// Figures 10 and 11, §3.6: how far `ReSense` is from the best static mapping.
pub(in super::super) fn optimal(lab: &mut Lab) -> anyhow::Result<Found> {
    // Average differences in the text: average response time, throughput.
    let paper = [[0.27, 0.49], [0.18, 0.10], [1.49, 2.08], [0.05, 0.49]];
    let (mut rows, mut searched) = (Vec::new(), 0);
    let mut furthest = [[f64::NEG_INFINITY; 2]; PAPERS];
    // Few programs on few CPUs have few mappings; the others take minutes.
    let platforms = if lab.effort.every > 1 { 2 } else { PLATFORMS.len() };
    for (platform, paper) in PLATFORMS.into_iter().zip(paper).take(platforms) {
        let (sets, names, theirs) = sets(lab, &platform, if platform.threads <= 4 { 2 } else { 4 });
        let scenario = pool(&platform, &names, work_s(lab))?;
        let own = own::profiles(lab, &platform, &names, &[])?;
        let what = format!("resense-optimal on {}", platform.machine);
        let found = lab.parallel(&what, &sets, |set| one(lab, &platform, &scenario, [&theirs, &own], set))?;
        searched += found.iter().filter(|f| !f.exact).count();
        rows.extend(told(&platform, paper, &sets, &found));
        for (arm, metrics) in furthest.iter_mut().enumerate() {
            for (metric, furthest) in metrics.iter_mut().enumerate() {
                *furthest = furthest.max(row::mean(found.iter().map(|f| f.below[arm][metric])));
            }
        }
    }
    for (by, metrics) in ARMS.iter().zip(furthest) {
        for (metric, ours) in metrics.into_iter().enumerate() {
            let label = format!("furthest of the machines, {by}: {}, below the best mapping, mean", METRICS[metric]);
            rows.push(bound(label, FURTHEST[metric], ours, POINTS));
        }
    }
    let note = format!(
        "{} random sets of PARSEC programs of each machine (two programs on Yorkfield and Harpertown, four on the \
         others) that start together and run once. Difference of the improvements over Linux, {} seeds. ReSense goes \
         by the paper's scores, and by those that the simulated programs have themselves. The best static mapping is \
         sought for each metric of its own, among all classes where they are few. Else ({searched} of {} sets: best \
         found) a search begins also where ReSense settled. Beside each set: score of each program where there is one \
         level, its threads by last-level cache while all run, and its time. Mappings that some scores lead to: all \
         signs and orders of scores, on machines of one level. The paper does not say among which mappings it found \
         its optimum; all of those of 32 threads on 32 cores cannot have been run. {ASSUMED}",
        count(lab),
        seeds(lab),
        platforms * count(lab)
    );
    Ok(Found::tallied(rows, note))
}

#[cfg(test)]
mod tests {
    use super::{distance, orders};

    /// Harpertown's 0.18 points: 0.3 are further, though the paper's furthest machine has 1.49.
    #[test]
    fn a_machine_is_judged_by_its_own_distance() {
        let near = |ours| distance(String::new(), 0.18, ours);
        assert_eq!([0.0, 0.18, 0.3].map(|ours| near(ours).met), [true, true, false].map(Some));
        assert_eq!(near(0.3).verdict, "0.12 points further than in the paper");
    }

    #[test]
    fn orders_are_all_and_each_once() {
        let all = orders(4);
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (24, 24));
        assert!(all.iter().all(|order| (0..4).all(|i| order.contains(&i))));
    }
}
