//! Regions by cachegrind: the lines that code would bring into caches of this machine's sizes, and its time.

use super::args::Args;
use super::counters::{clocked, is_plain};
use super::watched::{Found, run_to_end};
use anyhow::{Context, Result, bail};
use cotenant_cli::messages::tell;
use cotenant_cli::scratch::Scratch;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::sense::perf::sampling::{Events, Sampler, shown};
use cotenant_measure::characterize::caches::Geometry;
use cotenant_model::region::found::{self, Measured};
use cotenant_model::topology::{CacheType, Kind, Resource, Topology};
use std::fs::{self, File, FileType};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit codes of programs killed by a signal are above this.
const KILLED: u8 = 128;

/// Whether it can be run here.
pub(super) fn check(topology: &Topology) -> Result<()> {
    if levels(topology).is_none() {
        return Err(usage("this machine reports no cache sizes, so none can be simulated; see cotenant topo"));
    }
    if cotenant_linux::sense::executable::find("valgrind".as_ref()).is_none() {
        bail!("valgrind, whose cachegrind simulates caches, is not installed; apt-get install valgrind");
    }
    Ok(())
}

/// Runs the command unmodified, for the time of its code, and under cachegrind, for the lines that it brings in.
pub(super) fn find(args: &Args, topology: &Topology, model: found::Model) -> Result<Found> {
    let (first, upper, last) = levels(topology).context("this machine reports no cache sizes")?;
    let measured = measure(args, topology)?;
    if !args.quiet {
        tell(format_args!("simulated: first level (code) {first}; data {upper}; last level {last}"));
        if let Err(why) = &measured {
            tell(format_args!(
                "time is estimated, so that code that waits for lines scores too high and code that streams too low: \
                 {why}"
            ));
        }
    }
    let folder = Scratch::new("regions").context("cachegrind's results cannot be kept")?;
    let status = simulate(args, folder.path(), first, upper, last)?;
    let mut regions = read(folder.path())?.regions(model, measured.as_ref().ok(), args.min_coverage);
    for function in regions.iter_mut().filter_map(|region| region.function.as_mut()) {
        let plain = shown(function);
        if is_plain(&plain) {
            *function = plain;
        }
    }
    let time = if measured.is_ok() { "sampled" } else { "estimated" };
    Ok(Found { status, regions, by: format!("cachegrind: {upper}; {last}; time {time}") })
}

/// The time of the command's code. `Err` has the reason if it is unknown.
fn measure(args: &Args, topology: &Topology) -> Result<Result<Measured, String>> {
    // Both runs are to read the same.
    let input = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let is_kind = |is: fn(&FileType) -> bool| {
        input.as_ref().ok().and_then(|file| file.metadata().ok()).is_some_and(|meta| is(&meta.file_type()))
    };
    if is_kind(FileType::is_fifo) || is_kind(FileType::is_socket) {
        return Ok(Err("its input is a pipe, which cannot be read twice; give it a file".to_owned()));
    }
    if let Err(why) = Sampler::of_next_program(&Events::clock(), topology.online()) {
        return Ok(Err(why.to_string()));
    }
    let begin = input.as_ref().ok().filter(|_| is_kind(FileType::is_file)).map(|mut file| file.stream_position());
    let (status, measured) = clocked(args, topology)?;
    if status > KILLED {
        bail!("the command was killed (exit code {status}) before its caches were simulated");
    }
    if let (Ok(mut file), Some(Ok(begin))) = (input, begin) {
        file.seek(SeekFrom::Start(begin)).context("the command's input cannot be read again")?;
    }
    Ok(measured)
}

/// The first level for code, the level above the last (usually the second) for data, and the last: cachegrind simulates
/// two levels of data, and the model needs the lines into these two.
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
    command.args(["-q", "--tool=cachegrind", "--cache-sim=yes", "--trace-children=yes", "--demangle=no"]);
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
        // A killed process leaves a partial or no file, which still counts.
        let text = String::from_utf8_lossy(&bounded::read(&file, Limit::Own)?).into_owned();
        any |= profile.add(&text).is_ok();
    }
    if any {
        Ok(profile)
    } else {
        bail!("cachegrind left no counts: the command could not be executed, or was killed; run it by hand")
    }
}
