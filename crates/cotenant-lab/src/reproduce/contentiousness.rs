//! The contentiousness model of Tang's dissertation, §5.2.1, fitted on the simulated Nehalem by the script that fits
//! it on real machines.

use super::lab::Lab;
use super::row::{Found, Row, claim, level, mean, row};
use anyhow::Context as _;
use cotenant_kernels::Kernel;
use cotenant_measure::characterize::contention;
use cotenant_measure::characterize::{Bench, Plan, Stop, characterize};
use cotenant_model::profile::contentiousness::{self, Point};
use cotenant_model::stats::regression::{self, Fit};
use cotenant_model::stats::{Summary, rank_correlation};
use cotenant_sim::app::{embedded, known};
use cotenant_sim::bench::SimBench;
use cotenant_sim::scenario::Scenario;
use std::collections::BTreeMap;

const MACHINE: &str = "nehalem-i7-920";
/// Seconds of work per run: caches of some MB fill within milliseconds.
const WORK_S: f64 = 0.25;

/// What these programs cost each other.
fn points(scenario: &Scenario, names: Vec<String>) -> anyhow::Result<Vec<Point>> {
    let plan = Plan::new(&scenario.machine.topology, &["corun"], names);
    let mut bench_of = |name: &str| -> std::result::Result<Box<dyn Bench>, Stop> {
        let program = known(name).ok_or_else(|| Stop::Failed(format!("there is no program {name}")))?;
        Ok(Box::new(SimBench::new(scenario.sim.clone(), program, Some(1), WORK_S)))
    };
    Ok(contention::points(&plan, &mut bench_of)?)
}

/// R² of a line through two values of the same programs.
fn fit_one(of: &[f64], on: &[f64]) -> Option<f64> {
    regression::fit(&of.iter().map(|v| vec![*v]).collect::<Vec<_>>(), on).map(|fit| fit.r2)
}

fn squared_correlation(points: &[Point], predictor: &dyn Fn(&Point) -> f64) -> f64 {
    let costs: Vec<f64> = points.iter().map(|p| p.contentiousness).collect();
    fit_one(&points.iter().map(predictor).collect::<Vec<_>>(), &costs).unwrap_or(0.0)
}

/// Average cost caused and suffered by programs, and the paper's statements.
pub(super) struct Properties {
    pub contentiousness: Vec<f64>,
    pub sensitivity: Vec<f64>,
    pub rows: Vec<Row>,
}

impl Properties {
    /// Contentiousness and sensitivity of each program.
    pub fn of_each(&self, names: &[String]) -> Vec<Row> {
        let both = self.contentiousness.iter().zip(&self.sensitivity);
        let rows = names.iter().zip(both).map(|(name, (costs, suffers))| {
            let costs = row(format!("{name}: costs others, mean"), costs * 100.0, "%");
            [costs, row(format!("{name}: suffers, mean"), suffers * 100.0, "%")]
        });
        rows.flatten().collect()
    }
}

/// Whether both are properties of a program. Losses by victim, then by aggressor.
pub(super) fn properties(suffered: &[Vec<f64>]) -> Properties {
    let n = suffered.len();
    let sensitivity: Vec<f64> = suffered.iter().map(mean).collect();
    let contentiousness: Vec<f64> = (0..n).map(|by| mean((0..n).map(|i| suffered[i][by]))).collect();
    let mut rows = Vec::new();
    // Consistent: beside each co-runner, programs rank as by their means.
    let orders =
        |of: &dyn Fn(usize) -> Vec<f64>, means: &[f64]| mean((0..n).filter_map(|i| rank_correlation(&of(i), means)));
    let caused = orders(&|i| suffered[i].clone(), &contentiousness);
    let says = "the order is fairly the same beside each co-runner (above 0.5)";
    rows.push(claim("contentiousness: rank correlation, each co-runner with the mean", caused, "", says, caused > 0.5));
    let borne = orders(&|by| (0..n).map(|i| suffered[i][by]).collect(), &sensitivity);
    rows.push(claim("sensitivity: rank correlation, each co-runner with the mean", borne, "", says, borne > 0.5));
    rows.extend(
        fit_one(&sensitivity, &contentiousness)
            .map(|r2| level("correlation of sensitivity and contentiousness", 0.48, r2.sqrt(), "")),
    );
    Properties { contentiousness, sensitivity, rows }
}

/// The coefficients of a fit to `SmashBench`, compared with the paper's, and its quality.
pub(super) fn coefficients(fit: &Fit) -> Vec<Row> {
    let named = fit.coefficients.iter().zip([("a", 1.663), ("b", 8.890), ("c", 0.044)]);
    let mut rows: Vec<Row> = named
        .map(|(coefficient, (name, paper))| {
            let label = format!("{name} (standard error {:.3}, p = {:.2e})", coefficient.error, coefficient.p);
            level(label, paper, coefficient.value, if name == "c" { "" } else { "ns/line" })
        })
        .collect();
    rows.push(level("R², SmashBench", 0.89, fit.r2, ""));
    rows.push(row("p of the whole fit", fit.p, ""));
    rows.push(row("mean error, each program predicted from the others", fit.leave_one_out * 100.0, "points of loss"));
    rows
}

/// Figures 5.2–5.4: what each program costs each other one, and whether this is a property of the program.
pub(super) fn pairs(lab: &mut Lab) -> anyhow::Result<Found> {
    let scenario = Lab::scenario_on(MACHINE, "[[app]]\nprogram = 'cpu'\n")?;
    let spec = embedded().keys().filter(|name| name.ends_with("06")).cloned();
    let names: Vec<String> = spec.step_by(if lab.effort.every > 1 { 6 } else { 1 }).collect();
    let plan = Plan::new(&scenario.machine.topology, &["corun"], names.clone());
    let suffers = |name: &String| -> anyhow::Result<BTreeMap<String, f64>> {
        let program = known(name).with_context(|| format!("there is no program {name}"))?;
        let mut bench = SimBench::new(scenario.sim.clone(), program, Some(1), WORK_S);
        let found = characterize(&plan, &mut bench).with_context(|| name.clone())?;
        Ok(found.profile.corun.iter().map(|(other, corun)| (other.clone(), corun.suffers.loss)).collect())
    };
    // By victim, then by aggressor.
    let losses = lab.parallel("tang-contentiousness", &names, suffers)?;
    let suffered: Vec<Vec<f64>> =
        losses.iter().map(|row| names.iter().map(|by| row.get(by).copied().unwrap_or_default()).collect()).collect();
    let n = names.len();
    let found = properties(&suffered);
    let mut rows = found.of_each(&names);
    let Properties { contentiousness, sensitivity, rows: statements } = found;
    rows.extend(statements);
    // Ranks, the highest first.
    let place = |of: &[f64], name: &str| {
        let at = names.iter().position(|other| other == name)?;
        Some(of.iter().filter(|v| **v > of[at]).count() + 1)
    };
    let half = n / 2;
    if let Some(first) = place(&contentiousness, "lbm06") {
        rows.push(claim("lbm: its place by contentiousness", first as f64, "", "the most contentious", first == 1));
    }
    for (name, costs) in [("lbm06", true), ("libquantum06", true), ("omnetpp06", false), ("xalancbmk06", false)] {
        let places = place(&contentiousness, name).zip(place(&sensitivity, name));
        let Some((cost, suffer)) = places else { continue };
        let (says, holds) = if costs {
            ("highly contentious, less sensitive", cost <= half && cost < suffer)
        } else {
            ("highly sensitive, less contentious", suffer <= half && suffer < cost)
        };
        let label =
            format!("{name}: place by contentiousness {cost}, by sensitivity {suffer}, of {n}; their difference");
        rows.push(claim(label, cost as f64 - suffer as f64, "places", says, holds));
    }
    let note = format!(
        "Each program of workloads/spec-cpu2006.toml beside each, itself included, on two cores of {MACHINE}, \
         {WORK_S} s of work. The paper takes 18, which it does not name, with their reference inputs to their end. \
         The programs were measured on another machine."
    );
    Ok(Found::tallied(rows, note))
}

/// §5.2.1: the model, fitted to `SmashBench`.
pub(super) fn trained() -> anyhow::Result<contentiousness::Model> {
    let scenario = Lab::scenario_on(MACHINE, "[[app]]\nprogram = 'cpu'\n")?;
    let smash = Kernel::all().iter().filter(|k| k.source.starts_with("SmashBench"));
    let points = points(&scenario, smash.map(|k| k.name.to_owned()).collect())?;
    contentiousness::model(points).context("the programs are too much alike to fit a model")
}

/// §5.2.1: the fit on `SmashBench`, and its predictions for unseen programs.
pub(super) fn model(lab: &mut Lab) -> anyhow::Result<Found> {
    let model = trained()?;
    let scenario = Lab::scenario_on(MACHINE, "[[app]]\nprogram = 'cpu'\n")?;
    let spec = embedded().keys().filter(|name| name.ends_with("06")).cloned();
    let spec = points(&scenario, spec.step_by(if lab.effort.every > 1 { 6 } else { 1 }).collect())?;
    let mut rows: Vec<Row> = Vec::new();
    for (what, all) in [("SmashBench", &model.points), ("SPEC", &spec)] {
        for p in all {
            let label = format!(
                "{what} {}: costs others, at {:.4} and {:.4} lines/ns into L2 and L3",
                p.program, p.l2_lines_per_ns, p.l3_lines_per_ns
            );
            rows.push(row(label, p.contentiousness * 100.0, "%"));
        }
    }
    let fit = &model.fit;
    rows.extend(coefficients(fit));
    // Table 5.2: the correlation of each predictor with the real cost caused by SPEC programs, which were not used for
    // the fit.
    let predicted = |p: &Point| fit.at(&[p.l2_lines_per_ns - p.l3_lines_per_ns, p.l3_lines_per_ns]);
    let ours = squared_correlation(&spec, &predicted);
    let miss = squared_correlation(&spec, &|p| p.miss_rate);
    let requests = squared_correlation(&spec, &|p| p.l2_lines_per_ns);
    rows.push(level("R², SPEC CPU2006: the model", 0.834_27, ours, ""));
    rows.push(level("R², SPEC CPU2006: last-level miss rate alone", 0.223_8, miss, ""));
    rows.push(level("R², SPEC CPU2006: rate of requests to the last level alone", 0.076_32, requests, ""));
    let (more, says) = (ours - miss.max(requests), "the model says more than either rate");
    rows.push(claim("R² beyond the better single rate", more, "", says, ours > miss.max(requests)));
    let apart = Summary::of(&spec.iter().map(|p| (p.contentiousness - predicted(p)).abs()).collect::<Vec<_>>());
    rows.push(row("mean error of the model on SPEC CPU2006", apart.mean * 100.0, "points of loss"));
    let [sensitivity, contentiousness] =
        [|p: &Point| p.sensitivity, |p: &Point| p.contentiousness].map(|of| spec.iter().map(of).collect::<Vec<f64>>());
    rows.extend(
        fit_one(&sensitivity, &contentiousness)
            .map(|r2| level("correlation of sensitivity and contentiousness, SPEC CPU2006", 0.48, r2.sqrt(), "")),
    );
    let note = format!(
        "Each program alone and beside each other on two cores of one last-level cache, {WORK_S} s of work; contentiousness is the mean loss of the others. The coefficients belong to \
         a machine: the simulated {MACHINE} is no measurement of the paper's, and SmashBench behaves there as our own loops do (workloads/smashbench.toml). SPEC programs are those of \
         workloads/spec-cpu2006.toml, which were measured elsewhere; Table 5.2 takes R² as the squared correlation of prediction and measurement; so do these rows."
    );
    Ok(Found::tallied(rows, note))
}
