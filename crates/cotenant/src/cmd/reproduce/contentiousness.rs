//! The contentiousness model of Tang's dissertation, §5.2.1, fitted on the simulated Nehalem by the script that fits it on real machines.

use super::lab::Lab;
use super::row::{Result, Row, claim, level, row, tally};
use anyhow::Context as _;
use cotenant_core::characterize::contention::{self, Point};
use cotenant_core::characterize::{Bench, Injectors, Plan, Stop};
use cotenant_core::stats::Summary;
use cotenant_core::stats::regression;
use cotenant_kernels::Kernel;
use cotenant_sim::app::{embedded, known};
use cotenant_sim::bench::SimBench;
use cotenant_sim::scenario::Scenario;

const MACHINE: &str = "nehalem-i7-920";
/// Seconds of work of a run: caches of some MB are full after milliseconds.
const WORK_S: f64 = 0.25;

/// What these programs cost each other.
fn points(scenario: &Scenario, names: Vec<String>) -> anyhow::Result<Vec<Point>> {
    let topology = &scenario.machine.topology;
    let cpus = topology.usable().clone();
    let plan = Plan {
        topology,
        cpus,
        parts: Vec::new(),
        rounds: 1,
        kernels: names,
        by: None,
        injectors: Injectors::default(),
    };
    let mut bench_of = |name: &str| -> std::result::Result<Box<dyn Bench>, Stop> {
        let program = known(name).ok_or_else(|| Stop::Failed(format!("there is no program {name}")))?;
        Ok(Box::new(SimBench::new(scenario.sim.clone(), program, Some(1), WORK_S)))
    };
    contention::points(&plan, &mut bench_of).map_err(|stop| anyhow::anyhow!("{stop:?}"))
}

/// Part of the variance that a line through two values of the same programs explains.
fn fit_one(of: &[f64], on: &[f64]) -> Option<f64> {
    regression::fit(&of.iter().map(|v| vec![*v]).collect::<Vec<_>>(), on).map(|fit| fit.r2)
}

fn squared_correlation(points: &[Point], predictor: &dyn Fn(&Point) -> f64) -> f64 {
    let costs: Vec<f64> = points.iter().map(|p| p.contentiousness).collect();
    fit_one(&points.iter().map(predictor).collect::<Vec<_>>(), &costs).unwrap_or(0.0)
}

/// §5.2.1: the fit on `SmashBench`, and what it says of programs that it has not seen.
pub(super) fn model(lab: &mut Lab) -> anyhow::Result<Result> {
    let scenario = Lab::scenario_on(MACHINE, "[[app]]\nprogram = 'cpu'\n")?;
    let smash = Kernel::all().iter().filter(|k| k.source.starts_with("SmashBench"));
    let trained = points(&scenario, smash.map(|k| k.name.to_owned()).collect())?;
    let spec = embedded().keys().filter(|name| name.ends_with("06")).cloned();
    let spec = points(&scenario, spec.step_by(if lab.effort.every > 1 { 6 } else { 1 }).collect())?;
    let mut rows: Vec<Row> = Vec::new();
    for (what, all) in [("SmashBench", &trained), ("SPEC", &spec)] {
        for p in all {
            let label = format!(
                "{what} {}: costs others, at {:.4} and {:.4} lines/ns into L2 and L3",
                p.program, p.l2_lines_per_ns, p.l3_lines_per_ns
            );
            rows.push(row(label, p.contentiousness * 100.0, "%"));
        }
    }
    let model = contention::model(trained).context("the programs are too much alike to fit a model")?;
    let fit = &model.fit;
    for (coefficient, (name, paper)) in fit.coefficients.iter().zip([("a", 1.663), ("b", 8.890), ("c", 0.044)]) {
        let label = format!("{name} (standard error {:.3}, p = {:.2e})", coefficient.error, coefficient.p);
        rows.push(level(label, paper, coefficient.value, if name == "c" { "" } else { "ns/line" }));
    }
    rows.push(level("R², SmashBench", 0.89, fit.r2, ""));
    rows.push(row("p of the whole fit", fit.p, ""));
    rows.push(row("mean error, each program predicted from the others", fit.leave_one_out * 100.0, "points of loss"));
    // Table 5.2: how well each predictor goes with what SPEC programs, which were not used to fit it, really cost others.
    let predicted = |p: &Point| fit.at(&[p.l2_lines_per_ns - p.l3_lines_per_ns, p.l3_lines_per_ns]);
    let ours = squared_correlation(&spec, &predicted);
    let (miss, requests) =
        (squared_correlation(&spec, &|p| p.miss_rate), squared_correlation(&spec, &|p| p.l2_lines_per_ns));
    rows.push(level("R², SPEC CPU2006: the model", 0.834_27, ours, ""));
    rows.push(level("R², SPEC CPU2006: last-level miss rate alone", 0.223_8, miss, ""));
    rows.push(level("R², SPEC CPU2006: rate of requests to the last level alone", 0.076_32, requests, ""));
    let better = ours > miss.max(requests);
    rows.push(claim(
        "R² beyond the better single rate",
        ours - miss.max(requests),
        "",
        "the model says more than either rate",
        better,
    ));
    let apart = Summary::of(&spec.iter().map(|p| (p.contentiousness - predicted(p)).abs()).collect::<Vec<_>>());
    rows.push(row("mean error of the model on SPEC CPU2006", apart.mean * 100.0, "points of loss"));
    let [sensitivity, contentiousness] =
        [|p: &Point| p.sensitivity, |p: &Point| p.contentiousness].map(|of| spec.iter().map(of).collect::<Vec<f64>>());
    rows.extend(
        fit_one(&sensitivity, &contentiousness)
            .map(|r2| level("correlation of sensitivity and contentiousness, SPEC CPU2006", 0.48, r2.sqrt(), "")),
    );
    let verdict = tally(&rows);
    let note = format!(
        "Each program alone and beside each other on two cores of one last-level cache, {WORK_S} s of work; contentiousness is the mean loss of the others. The coefficients belong to \
         a machine: the simulated {MACHINE} is no measurement of the paper's, and how SmashBench behaves there is assumed (workloads/smashbench.toml). SPEC programs are those of \
         workloads/spec-cpu2006.toml, which were measured elsewhere; Table 5.2 takes R² as the squared correlation of prediction and measurement; so do these rows."
    );
    Ok(Result { experiment: "", figure: "", rows, verdict, note })
}
