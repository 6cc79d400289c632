//! `cotenant qos`: keep a high-priority program at its goal beside low-priority ones.

mod args;
pub(crate) mod goal;
mod rules;
mod show;

use crate::args::MetricArg;
use crate::run::{self, Run, targets};
use crate::settings::{self, Decider, Setup};
use anyhow::Result;
pub use args::Args;
use args::{Cast, Means};
use cotenant_cli::usage;
use cotenant_linux::host::{AppSpec, HostOptions, Until, What};
use cotenant_linux::sense::executable;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Policy, Settings};
use cotenant_model::profile::AppProfile;
use cotenant_model::speed::Source;
use cotenant_model::{AppId, Mode, Topology};
use cotenant_policies::qos::controller::{Controller, Steady, Tracking};
use cotenant_policies::{High, Qos, QosConfig};
use show::Table;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// How late naps may be obeyed: marks look every 2 ms, a freezer takes less.
const SETTLE: Duration = Duration::from_millis(2);

/// A reading of a metric is waited for at most so many of its periods, and one that fails.
const PATIENCE: u32 = 5;

/// Runs the programs until those of high priority and all that were started have ended, or a signal asks to stop.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let cast = args.cast()?;
    let (machine, cpus) = settings::machine_within(args.cpus.as_deref())?;
    let config = config(args, &cast)?;
    let qos = config.settings.of::<Qos>()?;
    let goals = qos.clone().filter(|qos| !args.strict || qos.controller.goal().is_some());
    let Some(goals) = goals.filter(|_| !args.strict || args.mode.unwrap_or_default() == Mode::Enforce) else {
        return Err(usage("--strict judges a goal; use a controller that has one, and leave --mode out"));
    };
    let apps = profiles(&machine.0, &cast)?;
    let mut setup = Setup::of(machine, cpus, apps, Decider::all(Box::new(Qos(qos.clone())), config))?;
    setup.mode = args.mode.unwrap_or_default();
    let Cast { high, low, metrics, notes } = cast;
    let sources: Vec<Source> = metrics.iter().map(|metric| metric.source.clone()).collect();
    run::can_count(&sources, &setup.topology)?;

    let names: Vec<String> = high.iter().chain(&low).map(|app| app.name.clone()).collect();
    let mut run = Run::new(&setup, args.record.target(), names.clone())?;
    let mut table = Table::new(args, names, &metrics, goals, notes);
    let high = high.into_iter().zip(&metrics);
    let high = high.map(|(app, metric)| AppSpec { metrics: metric.outside.iter().cloned().collect(), ..app });
    let low = low.into_iter().map(|app| AppSpec { throttled: Some(args.means.into()), ..app });
    run.apps = high.chain(low).collect();
    run.options = HostOptions { other_users: args.all_users, until: Until::AllEnd, after: args.time, ..run.options };
    run.told = !args.output.quiet && !args.output.json;
    run.view = show::live_view(args);
    let summary = run.go(&mut [&mut table])?;
    table.report(summary, args)
}

/// A program whose speed is protected.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Protected {
    pub app: AppId,
    /// What tells its speed.
    pub metric: MetricArg,
    /// The share of its speed alone that it is to keep, 0–1, exclusive; `None`: the controller knows no such goal.
    pub goal: Option<f64>,
}

/// The settings for programs that run already and keep their goals, by whatever means are found here.
pub(crate) fn keep(high: &[Protected], low: Vec<AppId>) -> Config {
    let metrics: Vec<MetricArg> = high.iter().map(|high| high.metric.clone()).collect();
    let goal = high.iter().filter_map(|high| high.goal).fold(0.0, f64::max);
    let controller = if args::are_windowed(&metrics) {
        Controller::Steady(Steady::new(goal))
    } else {
        Controller::Tracking(Tracking::new(goal))
    };
    let apps: Vec<AppId> = high.iter().map(|high| high.app).collect();
    let mut qos = QosConfig { place: false, ..served(&apps, &metrics, low, Means::Auto, controller) };
    for (program, high) in qos.high.iter_mut().zip(high) {
        program.goal = high.goal.filter(|own| *own < goal);
    }
    let settings = Settings::default().with::<Qos>(&Some(qos));
    Config { interval: args::lasting_interval(&metrics), pin: Pin::Cpu, settings, ..Config::default() }
}

/// Which programs are served and how.
fn served(high: &[AppId], metrics: &[MetricArg], low: Vec<AppId>, means: Means, controller: Controller) -> QosConfig {
    let one = |(app, metric): (&AppId, &MetricArg)| High { app: *app, metric: metric.source.clone(), goal: None };
    QosConfig {
        high: high.iter().zip(metrics).map(one).collect(),
        low,
        place: means.place(),
        limits: means.limits(),
        climb: means.climb(),
        settle: SETTLE,
        patience: metrics.iter().filter_map(|metric| metric.patience(PATIENCE)).max().unwrap_or_default(),
        controller,
    }
}

/// The same as the command line says it, with what `--set` changes of it.
fn config(args: &Args, cast: &Cast) -> Result<Config> {
    let metrics = &cast.metrics;
    let mut apps = (0..).map(AppId);
    let high: Vec<AppId> = apps.by_ref().take(cast.high.len()).collect();
    let low = apps.take(cast.low.len()).collect();
    let qos = served(&high, metrics, low, args.means, args.controller(metrics)?);
    let mut settings = Settings::default().with::<Qos>(&Some(qos));
    args.set.apply(&mut settings, [Qos::SECTION])?;
    Ok(Config { interval: args.interval(metrics), pin: Pin::Cpu, settings, ..Config::default() })
}

/// What is stored of these programs: rates stand in for signals that cannot be counted here.
fn profiles(topology: &Topology, cast: &Cast) -> Result<BTreeMap<String, AppProfile>> {
    let programs = || cast.high.iter().chain(&cast.low);
    let running = programs().filter_map(|AppSpec { name, what, .. }| match what {
        What::Running(target) => Some((name.clone(), executable::look(&targets::program(target)?.1)?)),
        What::Command(_) => None,
    });
    settings::profiles_here(None, topology, &running.collect(), |name| programs().any(|p| p.name == name))
}
