//! Tables IV and V: sensitivity scores, the paper's beside those that the simulated programs have.

use super::super::lab::Lab;
use super::super::row::{Found, Row, claim, row};
use super::data::{PLATFORMS, Platform, printed};
use super::{ASSUMED, data, pool, work_s};
use anyhow::Context as _;
use cotenant_measure::characterize::{Plan, characterize};
use cotenant_model::profile::AppProfile;
use cotenant_model::stats::rank_correlation;
use cotenant_sim::app::known;
use cotenant_sim::bench::SimBench;
use std::collections::BTreeMap;

/// Scores nearer to zero than this, percent, say that sharing does not matter.
const NONE: f64 = 1.0;

/// Profiles of programs on a simulated machine, made by the script that `cotenant characterize` runs on real ones.
pub(super) fn profiles(
    lab: &Lab,
    platform: &Platform,
    programs: &[String],
) -> anyhow::Result<BTreeMap<String, AppProfile>> {
    // Caches are warm after half a second; longer runs only cost.
    let work_s = work_s(lab).min(4.0);
    let scenario = pool(platform, &programs[..1], work_s)?;
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

/// What two scores say of each other.
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
    for platform in PLATFORMS {
        let of = printed().into_iter().filter(|p| p.platform == platform.name);
        let all: Vec<_> = of.step_by(lab.effort.every).collect();
        let programs = data::programs(&all);
        let ours = profiles(lab, &platform, &programs)?;
        for (_, level) in platform.levels {
            let scores = all.iter().filter(|p| p.level == *level);
            let scores = scores.filter_map(|p| Some((p, ours.get(&p.program)?.score([*level])?)));
            let scores: Vec<_> = scores.collect();
            for (p, ours) in &scores {
                rows.push(compared(format!("{} {level}: {}", platform.machine, p.program), p.score, *ours));
            }
            let (paper, ours): (Vec<f64>, Vec<f64>) = scores.iter().map(|(p, ours)| (p.score, *ours)).unzip();
            let label = format!("{} {level}: rank correlation of the scores", platform.machine);
            orders.extend(rank_correlation(&paper, &ours).map(|rho| {
                claim(label, rho, "", "the order of the programs is more alike than not (above 0.5)", rho > 0.5)
            }));
        }
    }
    rows.extend(orders);
    let note = format!(
        "As many threads as cores share the resource, {} s of work each, in the two configurations of Table III, which are derived from the topology; by \
         cycles of a clock that does not change. A score below {NONE} % either way counts as none. Threads that only compute lose on the Xeon, in the paper as here, by its \
         clock: four working cores of a package run at 2.4 GHz, eight at 2.13 (machines/xeon-4s-64.toml); the other three machines have no such steps. Rank correlations are ours: the paper has no such figure. {ASSUMED} So these rows say how far \
         the assumed programs are like the paper's, and the mapping experiments use the paper's scores, with ours beside them.",
        work_s(lab).min(4.0)
    );
    Ok(Found::tallied(rows, note))
}

#[cfg(test)]
mod tests {
    use super::super::data::XEON;
    use super::*;
    use std::sync::Arc;

    /// EP and swaptions compute, in 2 MiB a process: a package of eight working cores is slower than two of four by the
    /// steps of the clock, 1 − 1.2/1.067 = −12.5 %, and by nothing else.
    #[test]
    fn who_only_computes_loses_the_steps_of_the_clock() {
        for name in ["ep", "swaptions"] {
            let score = |turbo: bool| {
                let mut sim = pool(&XEON, &[name.to_owned()], 0.5).unwrap().sim;
                if !turbo {
                    Arc::make_mut(&mut sim).turbo.clear();
                }
                let topology = sim.topology.clone();
                let plan = Plan::new(&topology, &["sensitivity"], Vec::new());
                let mut bench = SimBench::new(sim, known(name).unwrap(), None, 0.5);
                characterize(&plan, &mut bench).unwrap().profile.score([XEON.levels[0].1]).unwrap()
            };
            let (with, without) = (score(true), score(false));
            assert!((-12.5..-9.0).contains(&with) && without.abs() < NONE, "{name}: {with} %, {without} % without");
        }
    }
}
