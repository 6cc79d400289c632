//! Tables IV and V: sensitivity scores of the paper beside those of the simulated programs.

use super::super::lab::Lab;
use super::super::row::{Found, Row, claim, row, tally};
use super::data::{PLATFORMS, Platform, XEON, printed};
use super::{ASSUMED, data, pool, work_s};
use anyhow::Context as _;
use cotenant_measure::characterize::{Plan, characterize};
use cotenant_model::profile::AppProfile;
use cotenant_model::stats::rank_correlation;
use cotenant_sim::app::known;
use cotenant_sim::bench::SimBench;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Scores below this magnitude, percent, mean that sharing does not matter.
const NONE: f64 = 1.0;

/// Clock of the Xeon's packages by busy cores, over its nominal 2.0 GHz. Four packages of eight cores with 18 MB are
/// X7550. IBM's eX5 Implementation Guide (SG24-7909, 2.2.3) has the steps of the 2.26 GHz model: two of 133 MHz with
/// six cores, three with three or four. Assumed here: the same, three with fewer, one with seven or eight.
const STEPS: [f64; 8] = [1.2, 1.2, 1.2, 1.2, 1.133, 1.133, 1.067, 1.067];

/// Profiles of programs on a simulated machine, by the script of `cotenant characterize`.
pub(super) fn profiles(
    lab: &Lab,
    platform: &Platform,
    programs: &[String],
    steps: &[f64],
) -> anyhow::Result<BTreeMap<String, AppProfile>> {
    // Half a second warms the caches; longer runs only cost time.
    let work_s = work_s(lab).min(4.0);
    let mut scenario = pool(platform, &programs[..1], work_s)?;
    Arc::make_mut(&mut scenario.sim).turbo = steps.to_vec();
    let topology = &scenario.machine.topology;
    let one = |name: &String| -> anyhow::Result<AppProfile> {
        let program = known(name).with_context(|| format!("there is no program '{name}'"))?;
        let plan = Plan::new(topology, &["sensitivity"], Vec::new());
        let mut bench = SimBench::new(scenario.sim.clone(), program, None, work_s);
        Ok(characterize(&plan, &mut bench).with_context(|| name.clone())?.profile)
    };
    let found = lab.parallel("sensitivity scores", programs, one)?;
    Ok(programs.iter().cloned().zip(found).collect())
}

/// Compares two scores in words.
fn compared(label: String, paper: f64, ours: f64) -> Row {
    let (verdict, met) = match (paper.abs() >= NONE, ours.abs() >= NONE) {
        (false, false) => ("sharing matters in neither", true),
        (true, false) => ("sharing does not matter here", false),
        (false, true) => ("sharing matters here", false),
        (true, true) if paper.signum() == ours.signum() => ("the same sign", true),
        (true, true) => ("the other sign", false),
    };
    row(label, ours, "%").judged(paper, verdict, met)
}

/// Tables IV and V.
pub(in super::super) fn sensitivity(lab: &mut Lab) -> anyhow::Result<Found> {
    let (mut rows, mut orders) = (Vec::new(), Vec::new());
    let mut stepping = Vec::new();
    let as_they_are = PLATFORMS.map(|platform| (platform, &[][..]));
    for (platform, steps) in as_they_are.into_iter().chain([(XEON, &STEPS[..])]) {
        let of = printed().into_iter().filter(|p| p.platform == platform.name);
        let all: Vec<_> = of.step_by(lab.effort.every).collect();
        let programs = data::programs(&all);
        let ours = profiles(lab, &platform, &programs, steps)?;
        let machine = if steps.is_empty() {
            platform.machine.to_owned()
        } else {
            format!("{}, clock by working cores", platform.machine)
        };
        let rows = if steps.is_empty() { &mut rows } else { &mut stepping };
        for (_, level) in platform.levels {
            let scores = all.iter().filter(|p| p.level == *level);
            let scores = scores.filter_map(|p| Some((p, ours.get(&p.program)?.score([*level])?)));
            let scores: Vec<_> = scores.collect();
            for (p, ours) in &scores {
                rows.push(compared(format!("{machine} {level}: {}", p.program), p.score, *ours));
            }
            let (paper, ours): (Vec<f64>, Vec<f64>) = scores.iter().map(|(p, ours)| (p.score, *ours)).unzip();
            let label = format!("{machine} {level}: rank correlation of the scores");
            let order = rank_correlation(&paper, &ours).map(|rho| {
                claim(label, rho, "", "the order of the programs is more alike than not (above 0.5)", rho > 0.5)
            });
            if steps.is_empty() { orders.extend(order) } else { rows.extend(order) }
        }
    }
    rows.extend(orders);
    let verdict = format!("{}; with the Xeon's clock by working cores {}", tally(&rows), tally(&stepping));
    rows.extend(stepping);
    let note = format!(
        "As many threads as cores share the resource, {} s of work each, in the two configurations of Table III, \
         which are derived from the topology; by cycles. A score below {NONE} % either way counts as none. Rank \
         correlations are ours: the paper has no such figure. {ASSUMED} So these rows say how far the assumed \
         programs are like the paper's, and the mapping experiments use the paper's scores, with ours beside them. \
         Programs that only compute (EP, swaptions) lose on the paper's Xeon alone. Its processors lower their clock \
         where more cores of a package work, the others do not. The rows with the clock by working cores have those \
         steps, from IBM's eX5 guide, counted in cycles of a constant rate. Whether the paper counted so it does not \
         say; no other experiment has them.",
        work_s(lab).min(4.0)
    );
    Ok(Found::new(rows, verdict, note))
}

#[cfg(test)]
mod tests {
    use super::super::super::lab::Effort;
    use super::*;

    /// EP and swaptions compute, in 2 MiB a process: a package of eight working cores is slower than two of four by the
    /// steps of the clock, 1 − 1.2/1.067 = −12.5 %, and by nothing else.
    #[test]
    fn who_only_computes_loses_the_steps_of_the_clock() {
        let lab = Lab::new(Effort::QUICK, Arc::default());
        let names = ["ep", "swaptions"].map(str::to_owned);
        let scores = |steps: &[f64]| {
            let found = profiles(&lab, &XEON, &names, steps).unwrap();
            names.each_ref().map(|name| found[name].score([XEON.levels[0].1]).unwrap())
        };
        let (with, without) = (scores(&STEPS), scores(&[]));
        assert!(with.iter().all(|score| (-12.5..-9.0).contains(score)), "{with:?}");
        assert!(without.iter().all(|score| score.abs() < NONE), "{without:?}");
    }
}
