//! `cotenant topo`: what is shared by whom.

use super::print;
use crate::{machine_arg, usage};
use anyhow::Context;
use cotenant_core::topology::{render, report, svg};
use cotenant_linux::{FsRoot, gather};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// What is shared by whom: packages, caches, cores, memory nodes and distances of a machine.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The machine: a name in `machines/`, a TOML file, an lstopo XML file, a folder that holds a `sys/` tree, or an hwloc
    /// synthetic description. This machine where absent.
    #[arg(long, value_name = "MACHINE")]
    pub from: Option<String>,
    /// Print JSON instead of a tree.
    #[arg(long)]
    pub json: bool,
    /// Draw a picture into a file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Save what this machine tells about itself, to be read elsewhere with --from and with lstopo --input: an archive where FILE ends
    /// in .tar (unpack it first), else a folder. Hardware only: no names, no command lines, no addresses.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub gather: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// Where the machine cannot be had or a file cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = machine_arg::resolve(args.from.as_deref()).map_err(|e| match args.from {
        Some(_) => usage(e.to_string()),
        None => e.into(),
    })?;
    for note in &found.notes {
        crate::say!("cotenant: {note}");
    }
    let topology = &found.machine.topology;
    if let Some(path) = &args.svg {
        fs::write(path, svg::svg(topology))
            .with_context(|| format!("{}: the picture cannot be written", path.display()))?;
    }
    if let Some(path) = &args.gather {
        let files = gather::gather(&FsRoot::live(), path)?;
        crate::say!("cotenant: {files} files saved as {}", path.display());
    }
    print(|out| {
        if args.json {
            serde_json::to_writer_pretty(&mut *out, &report::json(topology))?;
            writeln!(out)?;
        } else if args.svg.is_none() && args.gather.is_none() {
            write!(out, "{}", render::text(topology))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
