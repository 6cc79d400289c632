//! `cotenant qos`: keep a high-priority program at its goal beside low-priority ones.

mod args;
mod rules;
mod show;

use super::managed::open_recorder;
use crate::settings;
use anyhow::{Context, Result};
pub use args::Args;
use cotenant_cli::usage;
use cotenant_linux::host::{AppSpec, HostOptions, LinuxHost, Until, probe_tier};
use cotenant_linux::sys;
use cotenant_measure::live::others::Stolen;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Ctx, Policy, Settings};
use cotenant_model::{AppId, Mode, host};
use cotenant_policies::{High, Qos, QosConfig};
use show::Table;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How late naps may be obeyed: marks look every 2 ms, a freezer takes less.
const SETTLE: Duration = Duration::from_millis(2);

/// A reading of a metric is waited for at most so many of its periods.
const PATIENCE: u32 = 5;

/// Runs the programs until those of high priority and all that were started have ended, or a signal asks to stop.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let args::Cast { high, low, metrics, notes: unmatched } = args.cast()?;
    let (topology, machine) = settings::live_machine(None)?;
    let controller = args.controller(&metrics)?;
    let mode: Mode = args.mode.map_or(Mode::Enforce, Into::into);
    let settings = QosConfig {
        high: (0..)
            .zip(&metrics)
            .map(|(app, metric)| High { app: AppId(app), metric: metric.for_policy().into() })
            .collect(),
        low: (high.len()..high.len() + low.len()).map(|app| AppId(app as u32)).collect(),
        place: args.means.place(),
        limits: args.means.limits(),
        climb: args.means.climb(),
        settle: SETTLE,
        patience: metrics.iter().filter_map(args::MetricArg::every).max().unwrap_or_default() * PATIENCE,
        controller,
    };
    let config = Config {
        interval: args.interval(&metrics),
        pin: Pin::Cpu,
        settings: Settings::default().with::<Qos>(&Some(settings.clone())),
        ..Config::default()
    };
    let policy = Qos(Some(settings));
    let apps = BTreeMap::new();
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
    policy.check(&ctx).map_err(|refusal| usage(refusal.to_string()))?;
    let counters = metrics.iter().any(|metric| metric.name() == "ipc");
    if counters && !probe_tier(&topology)?.to_string().contains("instructions") {
        return Err(usage(
            "the metric ipc needs hardware counters, which are not to be had here (cotenant doctor says why); use progress or a metric from outside",
        ));
    }

    let names: Vec<String> = high.iter().chain(&low).map(|program| program.name.clone()).collect();
    let mut recorder = open_recorder(args.record.target(), &ctx, policy.name(), mode, names.clone())?;
    let mut table = Table::new(args, &names, &metrics, policy.0.as_ref());
    let options = HostOptions {
        act: mode == Mode::Enforce,
        other_users: args.all_users,
        rare_looks: !counters,
        until: Until::AllEnd,
        after: args.time,
        ..HostOptions::default()
    };
    let (start, cpu_before, stolen) = (Instant::now(), sys::own_cpu_time(), Stolen::watch());
    let high = high.into_iter().zip(&metrics);
    let high = high.map(|(p, metric)| AppSpec { metrics: metric.outside(), ..AppSpec::new(p.name, p.what) });
    let low = low.into_iter().map(|p| AppSpec { throttled: Some(args.means.into()), ..AppSpec::new(p.name, p.what) });
    let mut live = LinuxHost::new(&topology, high.chain(low).collect(), options)?;
    let slept = live.told();
    let sources = live.metrics();
    let ended = host::drive(&mut live, &policy, &ctx, mode, |round| {
        table.round(round, &slept.borrow());
        sources.iter().flat_map(|metrics| metrics.news()).for_each(|line| table.news(line));
        table.note(recorder.as_mut().and_then(|recorder| recorder.round(round)));
    });
    drop(sources); // the host waits for their commands to end
    let summaries = live.summaries();
    let tier = live.tier().to_string();
    table.slept(live.slept());
    let notes = live.notes();
    let finish = live.finish();
    ended.context("the loop ended early; everything was let run")?;
    let seconds = start.elapsed().as_secs_f64();
    let overhead = sys::own_cpu_time().saturating_sub(cpu_before).as_secs_f64() / seconds.max(f64::MIN_POSITIVE);
    let stolen = stolen.and_then(|stolen| stolen.note());
    let notes = unmatched.into_iter().chain(notes).chain(finish.restored.notes).chain(stolen);
    let mut summary = table.summary(mode, seconds, overhead, tier, summaries, notes.collect());
    if let Some(recorder) = recorder {
        summary.recording = Some(recorder.path().to_owned());
        summary.notes.extend(recorder.finish());
    }
    summary.exit_code = finish.exit_code;
    show::report(&summary, args)?;
    Ok(ExitCode::from(finish.exit_code))
}
