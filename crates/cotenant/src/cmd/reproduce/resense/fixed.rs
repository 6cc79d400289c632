//! Table VII, figures 10 and 11: workloads that start at the same time, with all scores set alike, and against the best mapping.

use super::super::lab::Lab;
use super::super::row::{Result, Row, effect, highest, row, tally};
use super::data::{HARPERTOWN, OPTERON, PLATFORMS, Platform, printed, profiles};
use super::{ASSUMED, Who, compare, figures, mean, own, pool, seeds, together};
use cotenant_core::optimum::Label;
use cotenant_core::profile::AppProfile;
use cotenant_core::workload::Workload;
use cotenant_core::workload::compare::Figures;
use cotenant_sim::batch::parallel;
use cotenant_sim::run::Outcome;
use fastrand::Rng;
use std::collections::BTreeMap;

/// Workloads of each machine (§3.6).
const WORKLOADS: usize = 10;
/// Every score in the control experiment, percent; only its sign matters.
const SAME: f64 = 5.0;
/// The largest average distances of a machine, points: average response time, throughput (abstract).
const FURTHEST: [f64; 2] = [1.49, 2.08];

fn count(lab: &Lab) -> usize {
    if lab.effort.every > 1 { 2 } else { WORKLOADS }
}

/// Random sets of so many PARSEC programs, and their printed profiles.
fn sets(
    lab: &Lab,
    platform: &Platform,
    programs: usize,
) -> (Vec<Vec<String>>, Vec<String>, BTreeMap<String, AppProfile>) {
    let scores: Vec<_> = printed().into_iter().filter(|p| p.platform == platform.name && p.parsec).collect();
    let mut pool: Vec<String> = scores.iter().map(|p| p.program.clone()).collect();
    pool.sort();
    pool.dedup();
    let mut rng = Rng::with_seed(1);
    let mut sets: Vec<Vec<String>> = Vec::new();
    while sets.len() < count(lab) {
        let mut set = pool.clone();
        rng.shuffle(&mut set);
        set.truncate(programs);
        set.sort();
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    (sets, pool, profiles(scores.iter().map(|p| (p.program.as_str(), p.level, p.score))))
}

/// Table VII: all scores positive, all negative, the paper's.
pub(in super::super) fn signs(lab: &mut Lab) -> anyhow::Result<Result> {
    let paper = [[[-1.70, 5.57], [0.51, -3.77], [5.07, 7.90]], [[14.1, 8.28], [-2.5, -6.51], [16.77, 11.82]]];
    let mut rows = Vec::new();
    let mut best = true;
    for (platform, programs, paper) in [(HARPERTOWN, 2, paper[0]), (OPTERON, 4, paper[1])] {
        let (sets, names, theirs) = sets(lab, &platform, programs);
        let alike = |score: f64| {
            let levels =
                platform.levels.iter().flat_map(|(_, level)| names.iter().map(move |n| (n.as_str(), *level, score)));
            profiles(levels)
        };
        let (plus, minus) = (alike(SAME), alike(-SAME));
        let scenario = pool(lab, &platform, &names)?;
        let workloads: Vec<Workload> = sets.iter().map(|set| together(set)).collect();
        let arms = [Who::Linux, Who::Resense(&plus), Who::Resense(&minus), Who::Resense(&theirs)];
        let found = compare(lab, "resense-fixed-signs", &scenario, &workloads, &arms)?;
        let mut ours = [[0.0; 2]; 3];
        for (arm, name) in ["C+, all scores positive", "C-, all scores negative", "ReSense"].into_iter().enumerate() {
            for (metric, what) in ["art", "throughput"].into_iter().enumerate() {
                let each = found.iter().map(|of| of[arm + 1].over(&of[0])[metric]);
                ours[arm][metric] = super::super::row::mean(each);
                let label = format!("{}, {programs} applications, {name}: {what}", platform.machine);
                rows.push(effect(label, paper[arm][metric], ours[arm][metric]));
            }
        }
        best &= ours[2][0] >= ours[0][0].max(ours[1][0]);
    }
    let verdict = format!(
        "the scores do better than either sign for all, by average response time: {}; {}",
        if best { "as in the paper" } else { "not so here" },
        tally(&rows)
    );
    let note = format!(
        "{} random sets of PARSEC programs that start together and run once, {} seeds of Linux each; mean improvement over Linux. ReSense has the paper's scores. {ASSUMED}",
        count(lab),
        seeds(lab)
    );
    Ok(Result { experiment: "", figure: "", rows, verdict, note })
}

fn of(outcome: &Outcome) -> Option<Figures> {
    Figures::of_times(&outcome.apps.iter().map(|app| app.time_s).collect::<Vec<_>>())
}

/// A mean distance from the best mapping beside the paper's on that machine, and on the one where that is furthest.
fn distance(label: String, paper: f64, furthest: f64, ours: f64) -> Row {
    let met = ours <= furthest;
    let verdict = match ours {
        d if d <= paper => "as near as in the paper".to_owned(),
        _ if met => format!("within {furthest}, the furthest of the paper's machines"),
        d => format!("{:.1} points further than in the paper", d - paper),
    };
    Row { paper: Some(paper), verdict, met: Some(met), ..row(label, ours, "points over Linux") }
}

/// Figures 10 and 11, §3.6: how far `ReSense` is from the best static mapping.
pub(in super::super) fn optimal(lab: &mut Lab) -> anyhow::Result<Result> {
    // Average differences in the text: average response time, throughput.
    let paper = [[0.27, 0.49], [0.18, 0.10], [1.49, 2.08], [0.05, 0.49]];
    let (mut rows, mut searched) = (Vec::new(), 0);
    // With few programs on few CPUs there are few mappings; the others take minutes.
    let platforms = if lab.effort.every > 1 { 2 } else { PLATFORMS.len() };
    for (platform, paper) in PLATFORMS.into_iter().zip(paper).take(platforms) {
        let (sets, names, theirs) = sets(lab, &platform, if platform.threads <= 4 { 2 } else { 4 });
        let scenario = pool(lab, &platform, &names)?;
        let own = own::profiles(lab, &platform, &names)?;
        // Points below the best mapping, by the scores that it goes by and by metric; whether that mapping is the best for certain.
        let one = |set: &Vec<String>| -> anyhow::Result<([[f64; 2]; 2], bool)> {
            let workload = together(set);
            let runs = |who: &Who<'_>| -> anyhow::Result<Figures> {
                let all = (1..=seeds(lab)).map(|seed| figures(&scenario, &workload, who, seed));
                Ok(mean(&all.collect::<anyhow::Result<Vec<_>>>()?))
            };
            let linux = runs(&Who::Linux)?;
            let mut alone =
                scenario.for_jobs(&workload).ok_or_else(|| anyhow::anyhow!("a program is not in the pool"))?;
            // Where ReSense comes to rest is among the starts of the search.
            let (mut starts, mut with) = (Vec::new(), [linux; 2]);
            for (with, scores) in with.iter_mut().zip([&theirs, &own]) {
                *with = runs(&Who::Resense(scores))?;
                alone.know(scores);
                starts.push(alone.run(&cotenant_core::policy::Resense, alone.kernel, 1, |_| ())?.places);
            }
            let mut best = linux;
            let mut exact = true;
            for metric in 0..2 {
                let value = |outcome: &Outcome| {
                    of(outcome).map_or(0.0, |f| if metric == 0 { 1.0 / f.art_s } else { f.throughput })
                };
                let (found, outcome) = alone.optimal_by(&value, lab.effort.limits, &starts, 1)?;
                exact &= found.label == Label::Optimal;
                if let Some(f) = of(&outcome) {
                    if metric == 0 { best.art_s = f.art_s } else { best.throughput = f.throughput }
                }
            }
            let top = best.over(&linux);
            let below = with.map(|with| with.over(&linux)).map(|with| [top[0] - with[0], top[1] - with[1]]);
            Ok((below, exact))
        };
        let what = format!("resense-optimal on {}", platform.machine);
        let found = parallel(&sets, one, |done| lab.show(&what, done, sets.len()))?;
        searched += found.iter().filter(|f| !f.1).count();
        for (arm, by) in ["paper's scores", "simulated scores"].into_iter().enumerate() {
            for (metric, name) in ["art", "throughput"].into_iter().enumerate() {
                let each = || found.iter().map(|f| f.0[arm][metric]);
                let label = |of: &str| format!("{}, {by}{of}: {name}, below the best mapping", platform.machine);
                let sets = sets.iter().filter(|_| arm == 0);
                let alone = sets
                    .zip(each())
                    .map(|(set, below)| row(label(&format!(", {}", set.join("+"))), below, "points over Linux"));
                rows.extend(alone);
                rows.push(distance(
                    label("") + ", mean",
                    paper[metric],
                    FURTHEST[metric],
                    super::super::row::mean(each()),
                ));
                rows.push(row(label("") + ", at most", highest(each()), "points over Linux"));
            }
        }
    }
    let note = format!(
        "{} random sets of PARSEC programs of each machine (two programs on Yorkfield and Harpertown, four on the others) that start together and run once; difference of \
         the improvements over Linux, {} seeds. ReSense goes by the paper's scores, and by those that the simulated programs have themselves. The best static mapping is sought for each metric of its own: all classes where they are few, else by a search that \
         begins where ReSense came to rest, too ({searched} of {} sets: best found). {ASSUMED}",
        count(lab),
        seeds(lab),
        platforms * count(lab)
    );
    let verdict = tally(&rows);
    Ok(Result { experiment: "", figure: "", rows, verdict, note })
}
