//! Simulations as tables.

use crate::given::{settings_from, wrong};
use crate::table::{Cell, Table};
use cotenant_cli::machine_arg;
use cotenant_policies::{Static, standard};
use cotenant_sim::batch::{self, OPTIMAL, Plan};
use cotenant_sim::flat_machine;
use cotenant_sim::kernel::KernelKind;
use cotenant_sim::optimum::Limits;
use cotenant_sim::scenario::Scenario;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Most mappings that `optimal` evaluates, as for `cotenant sim`.
const EVALUATIONS: usize = 20_000;

/// Runs a scenario, TOML, under each policy with each seed: a row for each application of each run. Paths in it are
/// relative to `folder`; `settings` are JSON.
#[pyfunction]
#[pyo3(signature = (text, folder, policies, seeds, kernel, settings))]
pub fn simulate(
    py: Python<'_>,
    text: &str,
    folder: PathBuf,
    policies: Vec<String>,
    seeds: u64,
    kernel: Option<&str>,
    settings: Option<&str>,
) -> PyResult<Table> {
    let settings = settings_from(settings)?;
    py.detach(move || {
        let registry = standard();
        let find = |name: &str| machine_arg::resolve_beside(name, &folder, flat_machine::of);
        let mut scenario = Scenario::parse(text, find).map_err(|why| wrong(&format!("scenario:{why}")))?;
        if let Some(spot) = scenario.spots.after {
            return Err(wrong(&format!("scenario:{spot}: after is for cotenant bench; give an arrival_s here")));
        }
        for section in settings.sections() {
            registry.section(section).map_err(|why| wrong(&why))?;
        }
        scenario.config.settings.merge(&settings);
        for name in policies.iter().filter(|name| *name != OPTIMAL) {
            registry.make(name, &scenario.config).map_err(|why| wrong(&format!("{why}, {OPTIMAL}")))?;
        }
        let map = scenario.config.settings.of::<Static>().map_err(|why| wrong(&why))?.map;
        if policies.iter().any(|name| name == "static") && map.is_none() {
            return Err(wrong(
                &"policy static needs a map: settings={'static': {'map': 'X*X*..'}}, one character per CPU",
            ));
        }
        let kernel = kernel.map(str::parse::<KernelKind>).transpose().map_err(|why| wrong(&why))?;
        let limits = Limits { classes: EVALUATIONS, evaluations: EVALUATIONS };
        scenario.kernel = kernel.unwrap_or(scenario.kernel);
        let plan = Plan { policies, seeds, limits };
        if plan.policies.iter().any(|name| name == "heuristic") {
            scenario.characterize(scenario.kernel).map_err(|why| wrong(&why))?;
        }
        let batch = batch::run(&scenario, &plan, &registry, |_, _| ()).map_err(|why| {
            wrong(&why.spot().map_or_else(|| why.to_string(), |spot| format!("scenario:{spot}: {why}")))
        })?;
        let mut table = Table::new([
            ("policy", Cell::Text(String::new())),
            ("kernel", Cell::Text(String::new())),
            ("seed", Cell::Integer(None)),
            ("app", Cell::Text(String::new())),
            ("time_s", Cell::Float(None)),
            ("alone_s", Cell::Float(None)),
            ("slowdown", Cell::Float(None)),
            ("runs", Cell::Integer(None)),
            ("latency_p50_s", Cell::Float(None)),
            ("latency_p99_s", Cell::Float(None)),
            ("makespan_s", Cell::Float(None)),
            ("migrations", Cell::Integer(None)),
        ]);
        for series in &batch.series {
            for (seed, outcome) in (1_u64..).zip(&series.outcomes) {
                for (app, alone_s) in outcome.apps.iter().zip(&batch.alone_s) {
                    table.row([
                        series.name.as_str().into(),
                        scenario.kernel.to_string().into(),
                        seed.into(),
                        app.name.as_str().into(),
                        app.time_s.into(),
                        (*alone_s).into(),
                        (app.time_s / alone_s).into(),
                        app.runs.into(),
                        app.latency.quantile(0.5).into(),
                        app.latency.quantile(0.99).into(),
                        outcome.makespan_s.into(),
                        outcome.migrations.into(),
                    ]);
                }
            }
        }
        Ok(table)
    })
}
