//! `cotenant regions`: find contentious code regions.

use crate::words::tell;
use crate::{calibrated, settings, usage};
use anyhow::{Context, Result, bail};
use cotenant_core::characterize::caches::Geometry;
use cotenant_core::region::{self, found};
use cotenant_core::topology::{CacheType, Kind, Topology};
use cotenant_linux::host::StartError;
use cotenant_linux::launch::{self, Child, LaunchError};
use cotenant_linux::waiter::{Event, Waiter};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const EXAMPLES: &str = "\
Examples:
  cotenant regions -o batch.toml -- ./batch small-input
  cotenant cc --cotenant-regions=batch.toml -O2 -g batch.c -o batch";

/// Regions that are listed on standard error.
const LISTED: usize = 15;

/// Arguments of `cotenant regions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cotenant regions [OPTIONS] [--] <CMD> [ARGS]...")]
pub struct Args {
    /// The command and its arguments; -- before it keeps its options apart from ours
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Write the region file here [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out functions that take less than this share of the estimated time
    #[arg(long, value_name = "SHARE", default_value_t = region::MIN_COVERAGE)]
    min_coverage: f64,
    /// Print no list on standard error
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command under cachegrind and writes its regions.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !(0.0..=1.0).contains(&args.min_coverage) {
        return Err(usage(format!("--min-coverage {} is no share from 0 to 1", args.min_coverage)));
    }
    let (topology, known) = settings::live_machine(None)?;
    let Some((first, upper, last)) = levels(&topology) else {
        return Err(usage("this machine tells no cache sizes, so none can be simulated; see cotenant topo"));
    };
    if cotenant_linux::executable::find("valgrind".as_ref()).is_none() {
        bail!("valgrind, whose cachegrind simulates caches, is not installed; apt-get install valgrind");
    }
    if cotenant_linux::executable::find(&args.command[0]).is_none() {
        return Err(StartError::Launch(LaunchError::NotFound(args.command[0].clone())).into());
    }
    if let Some(path) = &args.output {
        // Before the command runs: a path that cannot be written must not cost the user a run.
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|e| usage(format!("{}: {e}", path.display())))?;
    }
    if !args.quiet {
        tell(format_args!("simulated: first level (code) {first}; data {upper}; last level {last}"));
    }
    let folder = Folder::new().context("cachegrind's results cannot be kept")?;
    let status = simulate(args, &folder.0, first, upper, last)?;
    let profile = read(&folder.0)?;
    let (fitted, why) = calibrated::contentiousness(&known, &topology);
    let (model, whose) = match fitted {
        Some(fitted) => {
            let clock = known.clock_hz.unwrap_or(found::Model::NEHALEM.clock_hz);
            (found::Model::of(&fitted, clock), "this machine, as fitted there")
        }
        None => (found::Model::NEHALEM, "the paper's Nehalem"),
    };
    why.iter().for_each(tell);
    let regions = profile.regions(model, args.min_coverage);
    if regions.is_empty() {
        bail!("no function takes {} % of the time; lower --min-coverage", args.min_coverage * 100.0);
    }
    let text = format!(
        "# cotenant regions: {} ({upper}; {last}), scored by the coefficients of {whose}\n{}",
        args.command[0].to_string_lossy().replace(['\n', '\r'], " "),
        region::write(&regions)
    );
    match &args.output {
        Some(path) => fs::write(path, text).with_context(|| path.display().to_string())?,
        None => {
            super::print(|out| {
                out.write_all(text.as_bytes())?;
                Ok(ExitCode::SUCCESS)
            })?;
        }
    }
    if !args.quiet {
        list(&regions, model);
    }
    Ok(ExitCode::from(status))
}

fn list(regions: &[region::Region], model: found::Model) {
    tell(format_args!("{:>7} {:>8}  region", "score", "coverage"));
    for region in regions.iter().take(LISTED) {
        let place = match (&region.file, region.lines) {
            (Some(file), Some((first, last))) => format!(" ({file}:{first}-{last})"),
            (Some(file), None) => format!(" ({file})"),
            _ => String::new(),
        };
        let name = region.function.as_deref().unwrap_or("?");
        tell(format_args!("{:7.3} {:7.1} %  {name}{place}", region.score, region.coverage * 100.0));
    }
    tell(format_args!(
        "code that does nothing but miss the last level scores {:.2} on simulated caches: give 'cotenant cc' a --cotenant-min-score below \
         that, such as {:.2}",
        model.missing(),
        model.missing() * 0.4
    ));
    if regions.len() > LISTED {
        tell(format_args!("and {} more", regions.len() - LISTED));
    }
}

/// The first level for code, the level above the last (the second, as a rule) for data, and the last: cachegrind simulates two levels of data,
/// and the model asks for what comes into these two.
fn levels(topology: &Topology) -> Option<(Geometry, Geometry, Geometry)> {
    let data = |kind: Kind| matches!(kind, Kind::Cache(CacheType::Data | CacheType::Unified));
    let mut caches: Vec<_> = topology.resources().iter().filter(|r| data(r.kind) && r.capacity.is_some()).collect();
    caches.sort_by_key(|r| r.level);
    let last = *caches.last()?;
    let first = *caches.first()?;
    let upper = caches.iter().rev().find(|r| r.level < last.level).copied().unwrap_or(first);
    let of = |r: &cotenant_core::topology::Resource| {
        Geometry::nearest(
            r.capacity.unwrap_or(0),
            r.ways.filter(|ways| *ways > 0).unwrap_or(8),
            r.line_size.unwrap_or(64),
        )
    };
    Some((of(first), of(upper), of(last)))
}

/// Runs it to its end; its exit code.
fn simulate(args: &Args, folder: &Path, first: Geometry, upper: Geometry, last: Geometry) -> Result<u8> {
    let mut waiter = Waiter::new()?;
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=cachegrind", "--cache-sim=yes", "--trace-children=yes"]);
    command.arg(format!("--cachegrind-out-file={}/%p", folder.display()));
    command.args([format!("--I1={}", first.option()), format!("--D1={}", upper.option())]);
    command.arg(format!("--LL={}", last.option())).args(&args.command);
    let child = Child::spawn_command(command)?;
    waiter.watch(&child);
    loop {
        match waiter.wait(None)? {
            Event::ChildExited(status) => return Ok(launch::exit_code(status)),
            Event::Signal(_) | Event::Tick | Event::Other(_) | Event::JobExited(..) => {} // it has got the signal, too
        }
    }
}

fn read(folder: &Path) -> Result<found::Profile> {
    let mut profile = found::Profile::default();
    let mut any = false;
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    for file in files {
        // A process that was killed leaves a part, or nothing: what it says counts no less.
        let text = String::from_utf8_lossy(&fs::read(&file)?).into_owned();
        any |= profile.add(&text).is_ok();
    }
    if any {
        Ok(profile)
    } else {
        bail!("cachegrind left no counts: the command could not be executed, or was killed; run it by hand")
    }
}

/// Removed with all that is in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("cotenant-regions-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
