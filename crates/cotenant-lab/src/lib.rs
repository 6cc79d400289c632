//! The `cotenant-lab` command as a library, so that man pages and completions come from the same definitions.
#![forbid(unsafe_code)]

pub mod cluster_sim;
pub mod follow;
pub mod learning;
mod means;
pub mod reproduce;
pub mod validate;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// The papers' experiments, on simulated machines and on this one, and predictions against measurements.
#[derive(Debug, Parser)]
#[command(name = "cotenant-lab", version, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one
pub enum Command {
    /// The papers' experiments on the simulated machine, paper and measured side by side
    ///
    /// Each row has the figure of the paper if its text or tables give one, ours, and a verdict that follows from the
    /// two. Nothing is tuned to meet them: if an effect does not appear, the row says so.
    Reproduce(reproduce::Args),
    /// How near to the best mapping known policies come while programs run, learning included
    ///
    /// On simulated machines, where programs never end and report their progress: the speed at rest, and on average up
    /// to 60, 120 and 600 s, as shares of the best mapping that a search or a policy found.
    Learning(learning::Args),
    /// Slowdowns that you measured against those that `cotenant sim --mix` predicts
    ///
    /// Rank correlation, errors and the worst cases: how far the simulated machine can be trusted on yours.
    Validate(validate::Args),
    /// How memory follows threads under simulated NUMA balancing
    ///
    /// In passes of the kernel's scan, in the situations in which real kernels were measured in guests.
    Follow(follow::Args),
    /// Nodes of a cluster as simulated machines, for schedulers that run beside it
    ///
    /// Reads requests from standard input and answers on standard output, a line of JSON each: a pod starts on a node,
    /// time goes on, what ends when, how a node stands. lab/docs/cluster-sim.md has them all.
    ClusterSim(cluster_sim::Args),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return cotenant_cli::misused(&error, &Cli::command()),
    };
    let result = match command {
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Learning(args) => learning::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Follow(args) => follow::run(&args),
        Command::ClusterSim(args) => cluster_sim::run(&args),
    };
    result.unwrap_or_else(|error| cotenant_cli::fail(&error, cotenant_cli::exit_code(&error)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
