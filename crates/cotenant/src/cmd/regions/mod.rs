//! `cotenant regions`: find contentious code regions.

mod args;
mod cachegrind;
mod counters;
mod watched;

use anyhow::{Context, Result, bail};
pub use args::Args;
use args::Source;
use cotenant_cli::messages::{self, tell};
use cotenant_cli::table::Table;
use cotenant_cli::usage;
use cotenant_linux::host::StartError;
use cotenant_linux::sense::perf::sampling::Events;
use cotenant_linux::sys::launch::LaunchError;
use cotenant_model::Topology;
use cotenant_model::profile::MachineProfile;
use cotenant_model::region::{self, Region, found::Model};
use cotenant_model::text::clean;
use cotenant_setup::{calibrated, settings};
use std::fs;
use std::process::ExitCode;

/// Regions that are listed on standard error.
const LISTED: usize = 15;

/// Runs the command, watches its code, and writes its regions.
///
/// # Errors
/// One line with the fault, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !(0.0..=1.0).contains(&args.min_coverage) {
        return Err(usage(format!("--min-coverage {} is not a share from 0 to 1", args.min_coverage)));
    }
    let (topology, known) = settings::live_machine(None)?;
    let events = events(args, &topology)?;
    if events.is_none() {
        cachegrind::check(&topology)?;
    }
    if cotenant_linux::sense::executable::find(&args.command[0]).is_none() {
        return Err(StartError::Launch(LaunchError::NotFound(args.command[0].clone())).into());
    }
    let Some(path) = &args.output else { return watch(args, &topology, &known, events.as_ref()) };
    // Before the command runs, so that an unwritable path does not cost a run.
    let new = !path.exists();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|e| usage(format!("{}: {e}; name a file that can be written", path.display())))?;
    let watched = watch(args, &topology, &known, events.as_ref());
    if watched.is_err() && new {
        // An empty one would leave all code alone, without a word.
        let _ = fs::remove_file(path);
    }
    watched
}

/// Runs the command and prints the result.
fn watch(args: &Args, topology: &Topology, known: &MachineProfile, events: Option<&Events>) -> Result<ExitCode> {
    let (fitted, why) = calibrated::contentiousness(known, topology);
    let (model, whose) = match fitted {
        Some(fitted) => {
            let clock = known.clock_hz.unwrap_or(Model::NEHALEM.clock_hz);
            (Model::of(&fitted, clock), "this machine, as fitted there")
        }
        None => (Model::NEHALEM, "the paper's Nehalem"),
    };
    let found = match events {
        Some(events) => counters::find(args, events, topology, &model)?,
        None => cachegrind::find(args, topology, model)?,
    };
    why.iter().for_each(tell);
    if found.regions.is_empty() {
        bail!("no function takes {} % of the time; lower --min-coverage", args.min_coverage * 100.0);
    }
    let text = format!(
        "# cotenant regions: {} ({}), scored by the coefficients of {whose}\n{}",
        clean(&args.command[0].to_string_lossy()),
        found.by,
        region::write(&found.regions)
    );
    match &args.output {
        Some(path) => fs::write(path, text).with_context(|| path.display().to_string())?,
        None => cotenant_cli::print_text(&text).map(drop)?,
    }
    if !args.quiet {
        list(&found.regions);
    }
    Ok(ExitCode::from(found.status))
}

/// The events to sample; `None` = none, caches are simulated.
fn events(args: &Args, topology: &Topology) -> Result<Option<Events>> {
    match args.source {
        Source::Cachegrind => Ok(None),
        Source::Clock => Ok(Some(Events::clock())),
        Source::Counters => counters::events(topology)
            .map(Some)
            .map_err(|why| anyhow::anyhow!("--source counters: {why}; --source cachegrind simulates caches instead")),
        Source::Auto => match counters::events(topology) {
            Ok(events) => Ok(Some(events)),
            Err(why) => {
                if !args.quiet {
                    tell(format_args!("caches are simulated: {why}"));
                }
                Ok(None)
            }
        },
    }
}

fn list(regions: &[Region]) {
    let mut table = Table::new([">score", ">coverage", "region"]);
    for region in regions.iter().take(LISTED) {
        let place = match (&region.file, region.lines) {
            (Some(file), Some((first, last))) => format!(" ({file}:{first}-{last})"),
            (Some(file), None) => format!(" ({file})"),
            _ => String::new(),
        };
        let name = region.function.as_deref().unwrap_or("?");
        let [score, coverage] = [format!("{:.3}", region.score), format!("{:.1} %", region.coverage * 100.0)];
        table.row([&score, &coverage, &format!("{name}{place}")]);
    }
    messages::table(&table);
    if regions.len() > LISTED {
        tell(format_args!("and {} more", regions.len() - LISTED));
    }
}
