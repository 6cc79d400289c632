//! `cotenant qos`: keep a high-priority program at its goal beside low-priority ones.

mod args;
mod cast;
mod rules;
mod show;

use crate::run::{self, Run, targets};
use anyhow::Result;
pub use args::Args;
use cast::Cast;
use cotenant_cli::usage;
use cotenant_linux::act::background;
use cotenant_linux::host::{AppSpec, HostOptions, StartError, Until, What};
use cotenant_linux::sense::{executable, metrics};
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, DynPolicy, Policy, Settings, State};
use cotenant_model::profile::AppProfile;
use cotenant_model::speed::Source;
use cotenant_model::{AppId, Mode, Topology};
use cotenant_policies::Qos;
use cotenant_setup::args::{MetricArg, NO_CLIENTS};
use cotenant_setup::protect::served;
use cotenant_setup::settings::{self, Decider, Setup};
use show::Table;
use std::collections::BTreeMap;
use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Runs until the programs of high priority and all started ones have ended, or until a signal.
///
/// # Errors
/// One line with the error, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut cast = args.cast()?;
    if args.no_bpf && cast.metrics.iter().any(MetricArg::is_by_bpf) {
        return Err(usage(NO_CLIENTS));
    }
    begin_in_a_scope(&cast);
    let (machine, cpus) = settings::machine_within(args.cpus.as_deref())?;
    let config = config(args, &cast)?;
    let policy = Qos(config.settings.of::<Qos>()?);
    let start = DynPolicy::explain(&policy, &State::default());
    let has_goal = start.throttling.as_ref().is_some_and(|throttling| throttling.goal.is_some());
    if args.strict && (!has_goal || args.mode.unwrap_or_default() != Mode::Enforce) {
        return Err(usage("--strict judges a goal; use a controller that has one, and leave --mode out"));
    }
    let mut apps = profiles(&machine.0, &cast)?;
    for (before, name) in cast.tell_apart() {
        apps.extend(apps.get(&before).cloned().map(|profile| (name, profile)));
    }
    let mut setup = Setup::of(machine, cpus, apps, Decider::all(Box::new(policy), config))?;
    setup.mode = args.mode.unwrap_or_default();
    let Cast { high, low, metrics, notes, .. } = cast;
    let sources: Vec<Source> = metrics.iter().map(|metric| metric.source.clone()).collect();
    run::can_count(&sources, &setup.topology)?;
    if !args.wait_for_metric {
        all_answer(&high, &metrics)?;
    }

    let names: Vec<String> = high.iter().chain(&low).map(|app| app.name.clone()).collect();
    let mut run = Run::new(&setup, args.record.target(), names.clone())?;
    let mut table = Table::new(args, names, &metrics, start, notes);
    let high = high.into_iter().zip(&metrics);
    let high =
        high.map(|(app, metric)| AppSpec { metrics: metric.outside.iter().cloned().collect(), protected: true, ..app });
    let low = low.into_iter().map(|app| AppSpec { throttled: Some(args.means.into()), ..app });
    run.apps = high.chain(low).collect();
    run.options = HostOptions { other_users: args.all_users, until: Until::AllEnd, after: args.time, ..run.options };
    run.options.waits = !args.no_bpf;
    run.options.refused = (!args.wait_for_metric).then_some(REFUSED);
    run.told = !args.output.quiet && !args.output.json;
    run.view = show::live_view(args);
    table.begin_on(run.told, run.look_first());
    let summary = run.go(&mut [&mut table])?;
    table.report(summary, args)
}

/// Restarts in a scope of this user's manager if all programs are started here and groups can only be made there. After
/// an error it continues unchanged.
fn begin_in_a_scope(cast: &Cast) {
    const BEGUN: &str = "COTENANT_SCOPE";
    let started = |app: &AppSpec| matches!(app.what, What::Command(_));
    let all_started = cast.high.iter().chain(&cast.low).all(started);
    if all_started
        && env::var_os(BEGUN).is_none()
        && let Some([program, words @ ..]) = background::scope_first()
        && let Ok(this) = env::current_exe()
    {
        let mut again = Command::new(program);
        again.args(words).arg(this).args(env::args_os().skip(1)).env(BEGUN, "1");
        let _ = again.exec(); // returns only on error
    }
}

/// Time in which a started server may refuse to answer: it is starting, or its roles are being set.
const REFUSED: Duration = Duration::from_secs(30);

/// Reads the metrics of running programs.
///
/// # Errors
/// A metric that is refused for good.
fn all_answer(high: &[AppSpec], metrics: &[MetricArg]) -> Result<()> {
    let of = |(app, metric): (&AppSpec, &MetricArg)| match app.what {
        What::Running(_) => Some((app.name.clone(), metric.outside.clone()?)),
        What::Command(_) => None,
    };
    let (names, metrics): (Vec<_>, Vec<_>) = high.iter().zip(metrics).filter_map(of).unzip();
    let answers = metrics::ask(&metrics, PATIENCE).map_err(StartError::Metrics)?;
    match names.iter().zip(answers).find_map(|(name, answer)| Some((name, answer.filter(|no| no.certain)?))) {
        Some((name, no)) => Err(usage(format!(
            "{name}: its metric is refused: {}; for a server that comes later add --wait-for-metric",
            no.why
        ))),
        None => Ok(()),
    }
}

/// Limit of the time for an answer before the start.
const PATIENCE: Duration = Duration::from_secs(2);

/// The configuration from the command line, with the changes by `--set`.
fn config(args: &Args, cast: &Cast) -> Result<Config> {
    let metrics = &cast.metrics;
    let mut apps = (0..).map(AppId);
    let high: Vec<AppId> = apps.by_ref().take(cast.high.len()).collect();
    let low = apps.take(cast.low.len()).collect();
    let mut qos = served(&high, metrics, low, args.means, args.controller(metrics, &cast.goals)?);
    for (program, goal) in qos.high.iter_mut().zip(&cast.goals).filter(|_| args.goal.is_none()) {
        program.goal = Some(*goal).filter(|own| qos.controller.goal().is_some_and(|goal| *own < goal));
    }
    let mut settings = Settings::default().with::<Qos>(&Some(qos));
    args.set.apply(&mut settings, [Qos::SECTION])?;
    Ok(Config { interval: args.interval(metrics), pin: Pin::Cpu, settings, ..Config::default() })
}

/// The stored profiles of these programs: their rates replace signals that cannot be counted here.
fn profiles(topology: &Topology, cast: &Cast) -> Result<BTreeMap<String, AppProfile>> {
    let programs = || cast.high.iter().chain(&cast.low);
    let running = programs().filter_map(|AppSpec { name, what, .. }| match what {
        What::Running(target) => Some((name.clone(), executable::look(&targets::program(target)?.1)?)),
        What::Command(_) => None,
    });
    settings::profiles_here(None, topology, &running.collect(), |name| programs().any(|p| p.name == name))
}
