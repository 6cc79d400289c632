//! `cotenant topo`: CPUs and the resources they share.

use cotenant_cli::messages::{chain, tell};
use cotenant_cli::{machine_arg, usage};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::topology::archive;
use cotenant_model::Topology;
use cotenant_model::profile::MachineProfile;
use cotenant_model::topology::{render, report, svg};
use cotenant_setup::{calibrated, files};
use cotenant_sim::derived;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant topo                                    this machine
  cotenant topo --from epyc-9454-2s --svg epyc.svg
  cotenant topo --gather my-server.tar             to send, for --from elsewhere";

/// The names that `--from`, and whatever else takes a machine, knows.
fn after_help() -> String {
    let names: Vec<&str> = machine_arg::names().collect();
    format!("{EXAMPLES}\n\nMachines that are known by name:\n  {}", names.join("\n  "))
}

/// Arguments of `cotenant topo`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = after_help())]
pub struct Args {
    /// The machine, such as epyc-9454-2s [default: this machine]
    ///
    /// A name, a TOML file, an lstopo XML file, a folder that holds a `sys/` tree, or an hwloc synthetic description.
    #[arg(long, value_name = "MACHINE")]
    pub from: Option<String>,
    /// Take distances from this profile
    ///
    /// From its table `memory_latency`, or from its calibration. [default, of this machine: where it has been
    /// calibrated, what that found]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Print JSON instead of a tree
    #[arg(long)]
    pub json: bool,
    /// Draw a picture (SVG) into a file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Save what this machine tells about itself, for --from
    ///
    /// An archive if FILE ends in .tar (unpack it first), else a folder. lstopo --input reads it, too. It holds
    /// hardware only: no names, no command lines, no addresses.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub gather: Option<PathBuf>,
}

/// The calibrated profile of this machine; the machine is shown even if it is damaged.
fn own_profile(topology: &Topology) -> MachineProfile {
    match calibrated::load(topology) {
        Ok((profile, stale)) => {
            if profile.calibration.as_ref().is_some_and(|record| record.memory_latency.is_some()) {
                stale.iter().for_each(tell);
            }
            profile
        }
        Err(why) => {
            tell(format_args!("not used: {}; calibrate again, or remove it", chain(&why)));
            MachineProfile::default()
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// The machine is unavailable; a file cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut found = machine_arg::resolve(args.from.as_deref()).map_err(|e| match args.from {
        Some(_) => usage(e.to_string()),
        None => e.into(),
    })?;
    for note in &found.notes {
        tell(note);
    }
    let derived = derived::complete(&mut found.machine);
    let derived = derived.map_err(|e| usage(format!("machine {e}")))?.distances;
    let before = found.machine.topology.parts().distances.clone();
    let profile = match &args.profile {
        Some(path) => files::read_profile(path)?,
        None if found.is_live => own_profile(&found.machine.topology),
        None => MachineProfile::default(),
    };
    let topology = &calibrated::measured(&profile, found.machine.topology, args.profile.as_deref())?;
    derived.iter().filter(|_| topology.parts().distances == before).for_each(tell);
    if let Some(path) = &args.svg {
        fs::write(path, svg::svg(topology)).map_err(|why| {
            usage(format!("{}: the picture cannot be written: {why}; name another file with --svg", path.display()))
        })?;
    }
    if let Some(path) = &args.gather {
        let files = archive::save(&FsRoot::live(), path).map_err(|why| usage(chain(&why.into())))?;
        tell(format_args!("{files} files saved as {}", path.display()));
    }
    let tree = args.svg.is_none() && args.gather.is_none();
    cotenant_cli::answer(args.json, &report::json(topology), |out| {
        Ok(if tree { write!(out, "{}", render::text(topology)) } else { Ok(()) }?)
    })
}
