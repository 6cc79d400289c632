//! `cargo xtask guests`: machines that we do not have, as software-emulated guests that run Cotenant's binary.
//!
//! Placement is tested there, never speed: all CPUs of a guest share the host's. A guest prints each scenario's result
//! on its console; only those lines count, because the emulator exits with 0 even after a panic of the guest.

mod archive;
mod console;
mod contents;
mod initramfs;
mod kubelet;
mod machine;
mod parts;
mod shell;
mod system;
mod systemd;

use anyhow::{Result, anyhow, bail};
use console::{End, Report};
use machine::{GUESTS, Guest, Ingredients, Kernel, SHELL};
use parts::{Binary, Parts};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Arguments of `cargo xtask guests`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// List the guests and their scenarios
    #[arg(long)]
    list: bool,
    /// Only the guest of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Boot them with this kernel instead of their own, but for those that are there for their kernel's sake
    #[arg(long, value_name = "KERNEL", conflicts_with = "list")]
    kernel: Option<Kernel>,
    /// A console in the guest of this name, with the binary and the scenarios; `exit` ends it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "only", "quick"])]
    shell: Option<String>,
    /// As continuous integration does: its guests only, unless --only names some, and the binary that the tests have
    /// built, not a release
    #[arg(long)]
    quick: bool,
    /// Also print what scenarios have printed that passed
    #[arg(long)]
    said: bool,
}

impl Args {
    fn binary(&self) -> Binary {
        if self.quick || self.shell.is_some() { Binary::Built } else { Binary::Release }
    }

    /// The guests to run.
    fn chosen(&self) -> Result<Vec<Guest>> {
        let chosen: Vec<Guest> = match &self.only[..] {
            [] => {
                let wanted = |guest: &&Guest| {
                    (guest.quick || !self.quick) && (self.kernel.is_none() || guest.takes_another_kernel())
                };
                GUESTS.iter().filter(wanted).copied().collect()
            }
            names => names.iter().map(|name| named(name)).collect::<Result<_>>()?,
        };
        let with = |guest: Guest| Guest { kernel: self.kernel.unwrap_or(guest.kernel), ..guest };
        Ok(chosen.into_iter().map(with).collect())
    }
}

/// Runs guests and reports as a test runner does.
///
/// # Errors
/// An unknown guest; a binary that cannot be built.
pub fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    if args.list {
        for guest in GUESTS {
            let quick = if guest.quick { " [quick]" } else { "" };
            let (name, what, kernel) = (guest.name, guest.what, guest.kernel.name());
            println!("{name:<14} {what}, Linux {kernel}{quick}\n{:14} {}", "", guest.scenarios.join(", "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.shell {
        let guest = named(name)?;
        return open_shell(root, &Guest { kernel: args.kernel.unwrap_or(guest.kernel), ..guest }, args.binary());
    }
    let chosen = args.chosen()?;
    let mut parts: BTreeMap<Ingredients, Result<Parts, String>> = BTreeMap::new();
    for guest in &chosen {
        if let Entry::Vacant(none) = parts.entry(guest.ingredients()) {
            none.insert(Parts::gather(root, guest, args.binary())?);
        }
    }
    let ran = side_by_side(&chosen, |guest| match &parts[&guest.ingredients()] {
        Ok(parts) => Ran::of(guest, parts, args.said).map(Ok),
        Err(missing) => Ok(Err(missing)),
    })?;
    let mut tally = Tally::default();
    for (guest, ran) in chosen.iter().zip(ran) {
        tally.guests += 1;
        match ran? {
            Ok(ran) => tally.add(guest, ran),
            Err(missing) => {
                println!("guest {}: skipped: {missing}", guest.name);
                tally.skipped += guest.scenarios.len();
            }
        }
    }
    Ok(tally.close())
}

/// Runs guests, one for each CPU at a time: the emulator keeps only one busy.
fn side_by_side<R: Send>(guests: &[Guest], run: impl Fn(&Guest) -> R + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let lane = || {
        let places = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        places.map_while(|at| Some((at, run(guests.get(at)?)))).collect::<Vec<_>>()
    };
    let lanes = thread::available_parallelism()?.get();
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

fn named(name: &str) -> Result<Guest> {
    let Some(guest) = GUESTS.iter().find(|guest| guest.name == name) else {
        let names: Vec<&str> = GUESTS.iter().map(|guest| guest.name).collect();
        bail!("there is no guest '{name}'; there are {}", names.join(", "));
    };
    Ok(*guest)
}

fn open_shell(root: &Path, guest: &Guest, binary: Binary) -> Result<ExitCode> {
    let parts = Parts::gather(root, guest, binary)?.map_err(|missing| anyhow!("guest {}: {missing}", guest.name))?;
    let initrd = initramfs::write(guest, &parts)?;
    shell::interactive(guest, &parts, &initrd)?;
    Ok(ExitCode::SUCCESS)
}

/// Results of the guests.
#[derive(Debug, Default)]
struct Tally {
    guests: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
    retried: Vec<String>,
}

/// The result of a guest.
#[derive(Debug)]
struct Ran {
    report: Report,
    seconds: f64,
    /// Why it was run again.
    retried: Option<String>,
}

impl Ran {
    fn of(guest: &Guest, parts: &Parts, said: bool) -> Result<Self> {
        let initrd = initramfs::write(guest, parts)?;
        let start = Instant::now();
        let mut report = console::boot(guest, parts, &initrd, said)?;
        let mut retried = None;
        // A guest that did not come to its end is the emulator's fault more often than ours; a scenario that failed
        // is not.
        if let End::Early(why) = &report.end {
            retried = Some(why.clone());
            report = console::boot(guest, parts, &initrd, said)?;
        }
        if guest.scenarios.contains(&SHELL) {
            report.outcomes.insert(SHELL.to_owned(), shell::try_out(guest, parts, &initrd));
        }
        Ok(Self { report, seconds: start.elapsed().as_secs_f64(), retried })
    }
}

impl Tally {
    fn add(&mut self, guest: &Guest, Ran { mut report, seconds, retried }: Ran) {
        if let Some(why) = retried {
            println!("guest {}: again, since {why}", guest.name);
            self.retried.push(format!("{}: {why}", guest.name));
        }
        println!("guest {} ({}, Linux {}): {seconds:.1} s", guest.name, guest.what, guest.kernel.name());
        if let Some(seen) = report.topology.take()
            && let Err(why) = guest.compare(&seen)
        {
            report.outcomes.insert(
                "topology".to_owned(),
                Err(format!(
                    "not the machine that the emulator was asked \
                 for: {why}"
                )),
            );
        }
        for scenario in guest.scenarios {
            let (count, words) = match (report.outcomes.get(*scenario), &report.end) {
                (Some(Ok(None)), _) => (&mut self.passed, "ok".to_owned()),
                (Some(Ok(Some(why))), _) => (&mut self.skipped, format!("skipped: {why}")),
                (Some(Err(why)), _) => (&mut self.failed, format!("FAILED: {why}")),
                (None, End::Early(why)) => (&mut self.failed, format!("FAILED: did not end: {why}")),
                (None, End::Regular) => {
                    (&mut self.failed, "FAILED: did not end: its line on the console is torn or lost".to_owned())
                }
            };
            *count += 1;
            println!("  {scenario} ... {words}");
            for line in report.passed.get(*scenario).into_iter().flatten() {
                println!("    {line}");
            }
        }
    }

    fn close(&self) -> ExitCode {
        for retry in &self.retried {
            println!("retried {retry}");
        }
        let Self { guests, passed, failed, skipped, retried } = self;
        println!("{guests} guests, {} scenarios, {} guests retried", passed + failed + skipped, retried.len());
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if *failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
