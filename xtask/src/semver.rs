//! `cargo xtask semver`: the interface of the crates that people write policies with, held against the last release.

use crate::commands::{cargo_program, done};
use anyhow::Result;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The crates with a stable interface.
const LIBRARY: [&str; 2] = ["cotenant-model", "cotenant-policies"];

/// Arguments of `cargo xtask semver`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// The commit or tag to compare with [default: the last tag that begins with v]
    #[arg(long, value_name = "REVISION")]
    baseline: Option<String>,
}

/// Compares, and reports as a test runner does.
///
/// # Errors
/// cargo does not start.
pub fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let tool = done(Command::new(cargo_program()).args(["semver-checks", "--version"]));
    if tool.is_err() {
        return Ok(skipped("there is no cargo-semver-checks; cargo install cargo-semver-checks --locked"));
    }
    let tag = || done(Command::new("git").args(["describe", "--tags", "--match=v*", "--abbrev=0"]).current_dir(root));
    let Some(baseline) = args.baseline.clone().or_else(|| tag().ok().map(|tag| tag.trim().to_owned())) else {
        return Ok(skipped(
            "there is no release yet, so nothing is promised; --baseline REVISION compares with a commit",
        ));
    };
    let mut check = Command::new(cargo_program());
    check.args(["semver-checks", "check-release", "--baseline-rev", &baseline]);
    check.args(LIBRARY.iter().flat_map(|name| ["--package", name])).current_dir(root);
    if check.status()?.success() {
        println!("1 passed, 0 failed, 0 skipped");
        return Ok(ExitCode::SUCCESS);
    }
    println!("semver: the interface is not that of {baseline}: raise the version, or keep what it promised");
    println!("0 passed, 1 failed, 0 skipped");
    Ok(ExitCode::FAILURE)
}

fn skipped(why: &str) -> ExitCode {
    println!("skipped: {why}");
    println!("0 passed, 0 failed, 1 skipped");
    ExitCode::SUCCESS
}
