//! `cargo xtask fuzz`: every parser of foreign input under libFuzzer, one program after another (`fuzz/`).
//!
//! No sanitizer is used, so that stable Rust suffices: the parsers are safe Rust. The bound on memory is one of the
//! address space, which even an untouched allocation exceeds.

use crate::commands::cargo_program;
use anyhow::{Context, Result, bail};
use cotenant_fuzz::{GROUPS, Group};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Memory of a program, KiB of address space.
const MEMORY_KIB: u64 = 768 << 10;
/// The same for resident memory, MiB.
const RESIDENT_MIB: u64 = 512;
/// Seconds after which one input hangs.
const HANG_S: u64 = 5;

/// Arguments of `cargo xtask fuzz`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Seconds for all groups together
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Only these groups of parsers: recordings, machines, proc, wire, simulator, command, state
    #[arg(value_name = "GROUP")]
    pub groups: Vec<String>,
}

/// Looks through the groups, and reports as a test runner does.
///
/// # Errors
/// An unknown group; programs that cannot be built.
pub fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let chosen: Vec<&Group> = match &args.groups[..] {
        [] => GROUPS.to_vec(),
        names => names.iter().map(|name| named(name)).collect::<Result<_>>()?,
    };
    if let Some(missing) = missing() {
        println!("skipped: {missing}");
        println!("0 passed, 0 failed, {} skipped", chosen.len());
        return Ok(ExitCode::SUCCESS);
    }
    let folder = root.join("fuzz");
    let build = ["fuzz", "build", "--sanitizer", "none"];
    let status = Command::new(cargo_program()).args(build).current_dir(root).status()?;
    if !status.success() {
        bail!("cargo {} failed", build.join(" "));
    }
    let share = (args.seconds / chosen.len() as u64).max(1);
    let mut failed = 0;
    for group in &chosen {
        let (found, inputs) = look(&folder, group, share)?;
        println!("fuzz {}: {inputs} inputs in {share} s: {}", group.name, found.as_deref().unwrap_or("ok"));
        failed += usize::from(found.is_some());
    }
    println!("{} passed, {failed} failed, 0 skipped", chosen.len() - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn named(name: &str) -> Result<&'static Group> {
    let Some(group) = GROUPS.into_iter().find(|group| group.name == name) else {
        bail!("there is no group '{name}'; there are {}", GROUPS.map(|group| group.name).join(", "));
    };
    Ok(group)
}

/// The missing requirement.
fn missing() -> Option<&'static str> {
    let there = |command: &mut Command| command.arg("--version").output().is_ok_and(|output| output.status.success());
    if !there(Command::new(cargo_program()).arg("fuzz")) {
        return Some("there is no cargo-fuzz; cargo install cargo-fuzz --locked");
    }
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    (!there(&mut Command::new(compiler))).then_some("there is no C++ compiler for libFuzzer; install g++")
}

/// Fuzzes a group for its time. Returns its finding, and the number of inputs.
fn look(folder: &Path, group: &Group, seconds: u64) -> Result<(Option<String>, u64)> {
    let corpus = folder.join("corpus").join(group.name);
    fs::create_dir_all(&corpus)?;
    for (number, seed) in group.seeds().iter().enumerate() {
        fs::write(corpus.join(format!("seed-{number}")), seed)?;
    }
    let artifacts = folder.join("artifacts").join(group.name);
    fs::create_dir_all(&artifacts)?;
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY_KIB} && exec \"$0\" \"$@\"")])
        .arg(program(folder, group)?)
        .arg(&corpus)
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={HANG_S}"))
        .arg(format!("-rss_limit_mb={RESIDENT_MIB}"))
        .arg(format!("-max_len={}", group.longest))
        .args(["-print_final_stats=1", "-reload=0"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let inputs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let inputs = inputs.and_then(|number| number.trim().parse().ok()).unwrap_or(0);
    if output.status.success() {
        return Ok((None, inputs));
    }
    let telling =
        |line: &&str| ["panicked at", "ERROR:", "Test unit written", "assertion"].iter().any(|w| line.contains(w));
    let lines: Vec<&str> = said.lines().filter(telling).collect();
    Ok((Some(format!("failed: {}", lines.join("; "))), inputs))
}

/// The program built by cargo-fuzz, in a folder for this machine's target.
fn program(folder: &Path, group: &Group) -> Result<PathBuf> {
    let built = fs::read_dir(folder.join("target"))?.flatten().map(|of| of.path().join("release").join(group.name));
    built
        .filter(|path| path.is_file())
        .max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok())
        .with_context(|| format!("cargo fuzz has built no {}", group.name))
}
