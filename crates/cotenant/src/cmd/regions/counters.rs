//! Regions by the processor's counters: samples of the lines that code brings into caches while it runs.

use super::args::Args;
use super::watched::{Found, run_to_end};
use anyhow::{Result, bail};
use cotenant_cli::messages::{count, tell};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::perf::plan;
use cotenant_linux::sense::perf::sampling::{self, Events, PER_SECOND, Sampler, SourceLine, Unavailable, source_lines};
use cotenant_measure::characterize::contention::line_signals;
use cotenant_model::Topology;
use cotenant_model::region::found::{Measured, Model};
use cotenant_model::region::sampled::{Place, Profile};
use std::process::Command;
use std::time::{Duration, Instant};

/// Interval of reading the buffers.
const READ: Duration = Duration::from_millis(100);
/// Time limit for reading the symbols of all files, whose number depends on the program.
const SYMBOLS: Duration = Duration::from_secs(300);
/// Files without symbols that are named.
const UNREAD: usize = 5;
/// Samples of a program's time below which its scores are rough: of a function with a tenth of it, a tenth off.
const FEW: f64 = 1_000.0;

/// Events that this machine's processor can sample. The kernel is queried too, so that a refusal is known before the
/// command runs.
pub(super) fn events(topology: &Topology) -> Result<Events, Unavailable> {
    let fs = FsRoot::live();
    let [private, last] = line_signals(topology);
    let events = Events::choose(&fs, &plan::pmus(&fs), private, last)?;
    Sampler::of_next_program(&events, topology.online())?;
    Ok(events)
}

/// Runs the command to its end.
pub(super) fn find(args: &Args, events: &Events, topology: &Topology, model: &Model) -> Result<Found> {
    let (status, found) = sample(args, events, topology)?;
    let (sources, unread) = sources(&found);
    let profile = profile(&found, &sources);
    if profile.ns() <= 0.0 {
        bail!(
            "nothing was sampled: the command took less than some milliseconds of CPU time in user mode; give it more to do"
        );
    }
    if !args.quiet {
        remarks(&found, &unread, events, profile.ns());
    }
    Ok(Found {
        status,
        regions: profile.regions(model, args.min_coverage),
        by: format!("counters: {}, {PER_SECOND} samples per second each", events.names().join(", ")),
    })
}

/// Runs the command to its end; its exit code, and how long its code took. `Err` has why that cannot be known.
pub(super) fn clocked(args: &Args, topology: &Topology) -> Result<(u8, Result<Measured, String>)> {
    let events = Events::clock();
    let (status, found) = sample(args, &events, topology)?;
    let (sources, unread) = sources(&found);
    let mut measured = Measured::default();
    for (place, ns) in found.places.intervals().flat_map(|interval| &interval.code) {
        let source = sources[*place as usize].as_ref();
        let name = |name: fn(&SourceLine) -> &Option<String>| source.and_then(|source| name(source).as_deref());
        let (file, symbol) = (name(|source| &source.file), name(|source| &source.symbol));
        measured.add(file.unwrap_or_default(), symbol.unwrap_or_default(), *ns);
    }
    if measured.ns() <= 0.0 {
        return Ok((status, Err("the command takes less than some milliseconds of CPU time in user mode".to_owned())));
    }
    if !args.quiet {
        remarks(&found, &unread, &events, measured.ns());
    }
    Ok((status, Ok(measured)))
}

/// Runs the command to its end; its exit code, and the samples.
fn sample(args: &Args, events: &Events, topology: &Topology) -> Result<(u8, sampling::Found)> {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let mut sampler = Sampler::of_next_program(events, topology.online())?;
    let status = run_to_end(command, Some(READ), || sampler.read())?;
    Ok((status, sampler.finish()))
}

/// Gaps of the samples, and files with unreadable symbols.
fn remarks(found: &sampling::Found, unread: &[String], events: &Events, ns: f64) {
    unread.iter().take(UNREAD).for_each(tell);
    if unread.len() > UNREAD {
        tell(format_args!("no symbols of {} more", count((unread.len() - UNREAD) as u64, "file")));
    }
    let places = &found.places;
    if places.lost + found.damaged > 0 {
        let (lost, damaged) = (count(places.lost, "record"), found.damaged);
        tell(format_args!(
            "{lost} of samples and programs were lost, {damaged} were damaged: scores and coverage are less sure"
        ));
    }
    if let Some(cpus) = events.cpus() {
        tell(format_args!("code on other CPUs than {cpus} was not seen: their cores do not count these lines"));
    }
    let samples = ns / 1e9 * PER_SECOND as f64;
    if samples < FEW {
        tell(format_args!("{samples:.0} samples of time only: scores are rough; let it run longer"));
    }
    let elsewhere = places.elsewhere_ns / ns;
    if elsewhere > 0.05 {
        tell(format_args!(
            "{:.0} % of the time fell on code that no file holds, such as code that was made while it ran",
            elsewhere * 100.0
        ));
    }
}

/// Source lines of each place, and files with unreadable symbols.
fn sources(found: &sampling::Found) -> (Vec<Option<SourceLine>>, Vec<String>) {
    let mut unread = Vec::new();
    let until = Instant::now() + SYMBOLS;
    let mut known: Vec<Option<SourceLine>> = vec![None; found.places.known as usize + 1];
    for (file, at) in &found.places.files {
        let offsets: Vec<u64> = at.keys().copied().collect();
        let lines = source_lines(file, &offsets, until).map_err(|why| unread.push(format!("no symbols: {why}")));
        for (place, source) in at.values().zip(lines.into_iter().flatten()) {
            known[*place as usize] = Some(source);
        }
    }
    (known, unread)
}

/// Intervals with the functions and lines that ran in them.
fn profile(found: &sampling::Found, sources: &[Option<SourceLine>]) -> Profile {
    let mut profile = Profile::default();
    let mut place = |source: &Option<SourceLine>| {
        let source = source.as_ref()?;
        Some(profile.place(name(source)?, source.file.as_deref(), source.line))
    };
    let known: Vec<Option<Place>> = sources.iter().map(&mut place).collect();
    for interval in found.places.intervals() {
        let code = interval.code.iter().map(|(place, ns)| (known[*place as usize], *ns));
        let lines = interval.cost;
        profile.add(code, lines.private_lines * found.private_factor, lines.last_lines * found.last_factor);
    }
    profile
}

/// The name for the compiler pass: the readable one, or the linker's for templates and the like, because demanglers
/// differ there.
fn name(source: &SourceLine) -> Option<&str> {
    let plain = source.shown.as_deref().filter(|shown| is_plain(shown));
    plain.or(source.function.as_deref())
}

/// Whether all demanglers show it so.
pub(super) fn is_plain(shown: &str) -> bool {
    !shown.contains(['<', '{', '\'', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_the_pass_finds() {
        let of = |function: &str, shown: &str| {
            let source = SourceLine {
                function: Some(function.to_owned()),
                shown: Some(shown.to_owned()),
                ..SourceLine::default()
            };
            name(&source).map(str::to_owned)
        };
        assert_eq!(of("_ZN2ns1fEi", "ns::f(int)").as_deref(), Some("ns::f(int)"));
        assert_eq!(of("_Z1fIiEvT_", "void f<int>(int)").as_deref(), Some("_Z1fIiEvT_"));
        assert_eq!(
            of("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const").as_deref(),
            Some("_ZZ4mainENKUlvE_clEv")
        );
        assert_eq!(of("walk", "walk").as_deref(), Some("walk"));
        assert_eq!(name(&SourceLine::default()), None);
    }
}
