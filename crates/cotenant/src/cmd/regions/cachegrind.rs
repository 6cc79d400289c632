//! Regions by cachegrind: what code would bring into caches of this machine's sizes.

use super::args::Args;
use super::watched::{Found, run_to_end};
use anyhow::{Context, Result, bail};
use cotenant_cli::messages::tell;
use cotenant_cli::scratch::Scratch;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_measure::characterize::caches::Geometry;
use cotenant_model::region::found;
use cotenant_model::topology::{CacheType, Kind, Resource, Topology};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether it can be run here.
pub(super) fn check(topology: &Topology) -> Result<()> {
    if levels(topology).is_none() {
        return Err(usage("this machine tells no cache sizes, so none can be simulated; see cotenant topo"));
    }
    if cotenant_linux::sense::executable::find("valgrind".as_ref()).is_none() {
        bail!("valgrind, whose cachegrind simulates caches, is not installed; apt-get install valgrind");
    }
    Ok(())
}

/// Runs the command under it to its end.
pub(super) fn find(args: &Args, topology: &Topology, model: found::Model) -> Result<Found> {
    let (first, upper, last) = levels(topology).context("this machine tells no cache sizes")?;
    if !args.quiet {
        tell(format_args!("simulated: first level (code) {first}; data {upper}; last level {last}"));
    }
    let folder = Scratch::new("regions").context("cachegrind's results cannot be kept")?;
    let status = simulate(args, folder.path(), first, upper, last)?;
    Ok(Found {
        status,
        regions: read(folder.path())?.regions(model, args.min_coverage),
        by: format!("cachegrind: {upper}; {last}"),
        remark: Some(format!(
            "code that does nothing but miss the last level scores {:.2} on simulated caches: give 'cotenant cc' a --cotenant-min-score below \
             that, such as {:.2}",
            model.missing(),
            model.missing() * 0.4
        )),
    })
}

/// The first level for code, the level above the last (the second, as a rule) for data, and the last: cachegrind
/// simulates two levels of data, and the model asks for what comes into these two.
fn levels(topology: &Topology) -> Option<(Geometry, Geometry, Geometry)> {
    let data = |kind: Kind| matches!(kind, Kind::Cache(CacheType::Data | CacheType::Unified));
    let mut caches: Vec<_> = topology.resources().iter().filter(|r| data(r.kind) && r.capacity.is_some()).collect();
    caches.sort_by_key(|r| r.level);
    let last = *caches.last()?;
    let first = *caches.first()?;
    let upper = caches.iter().rev().find(|r| r.level < last.level).copied().unwrap_or(first);
    let of = |r: &Resource| {
        let ways = r.ways.filter(|ways| *ways > 0).unwrap_or(8);
        Geometry::nearest(r.capacity.unwrap_or(0), ways, r.line_size.unwrap_or(64))
    };
    Some((of(first), of(upper), of(last)))
}

/// Runs it to its end; its exit code.
fn simulate(args: &Args, folder: &Path, first: Geometry, upper: Geometry, last: Geometry) -> Result<u8> {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=cachegrind", "--cache-sim=yes", "--trace-children=yes"]);
    command.arg(format!("--cachegrind-out-file={}/%p", folder.display()));
    command.args([format!("--I1={}", first.option()), format!("--D1={}", upper.option())]);
    command.arg(format!("--LL={}", last.option())).args(&args.command);
    run_to_end(command, None, || ())
}

fn read(folder: &Path) -> Result<found::Profile> {
    let (mut profile, mut any) = (found::Profile::default(), false);
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<std::io::Result<Vec<PathBuf>>>()?;
    files.sort();
    for file in files {
        // A process that was killed leaves a part, or nothing: what it says counts no less.
        let text = String::from_utf8_lossy(&bounded::read(&file, Limit::Own)?).into_owned();
        any |= profile.add(&text).is_ok();
    }
    if any {
        Ok(profile)
    } else {
        bail!("cachegrind left no counts: the command could not be executed, or was killed; run it by hand")
    }
}
