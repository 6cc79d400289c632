//! Chores of the repository: `cargo xtask TASK`.
#![forbid(unsafe_code)]

mod book;
mod bpf;
mod commands;
mod fuzz;
mod guests;
mod house;
mod mutants;
mod package;
mod pictures;
mod reference;
mod semver;
mod specification;
mod suite;
mod tables;
mod tidy;
mod workloads;

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::{Generator, Shell};
use commands::cargo;
use cotenant_cli::generated;
use cotenant_cli::progress::about;
use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Chores of the Cotenant repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check what neither the compiler nor clippy checks: documents, links, markers of unfinished work
    Tidy,
    /// Write man pages to target/man
    Man,
    /// Write shell completions to target/completions
    Completions,
    /// Rewrite the reference pages of the commands, docs/reference/commands, from what --help prints
    Reference,
    /// Rewrite SPECIFICATION.md from the promises in comments above tests
    Specification,
    /// Build the book with mdBook and serve it, with its search, on port 3000
    Book {
        /// Only build it, into target/book
        #[arg(long)]
        build: bool,
    },
    /// Compile the BPF object anew, which is committed (clang 19, libbpf-dev)
    Bpf,
    /// Rewrite the tables of the pages that come from docs/results
    Tables(tables::Args),
    /// Draw the pictures of the README and the book, into docs/pictures
    Pictures(pictures::Args),
    /// Rewrite the golden files from what the code does now
    Bless,
    /// Derive the simulator's application parameters from measurements: workloads/ and their page of errors
    Workloads,
    /// Everything that is too long for continuous integration: long fuzzing, every crash point many times, benchmarks
    Full,
    /// Look through every parser of foreign input with libFuzzer, and report as a test runner does
    Fuzz(fuzz::Args),
    /// Run the scenarios in emulated guests with many sockets, and report as a test runner does
    Guests(guests::Args),
    /// Make Debian's packages and a tarball with a static binary, in target/packages
    Package(package::Args),
    /// Hold the library's interface against that of the last release with cargo-semver-checks
    Semver(semver::Args),
    /// Run the tests of all packages, several programs at a time, as cargo test does one after the other
    Tests,
    /// Count circles and arrows up among source files, test binaries, and the seconds of the last scripts/test
    House(house::Args),
    /// Change the code of policies, journal and simulator in many small ways, and see whether tests notice
    Mutants(mutants::Args),
}

fn main() -> ExitCode {
    match run(&Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?;
    match task {
        Task::Tidy => tidy::check(root),
        Task::Man => man(&root.join("target/man")),
        Task::Completions => completions(&root.join("target/completions")),
        Task::Reference => reference::write(root),
        Task::Specification => specification::write(root),
        Task::Book { build } => book::make(root, *build),
        Task::Bpf => bpf::compile(root),
        Task::Tables(args) => tables::write(root, args),
        Task::Pictures(args) => pictures::draw(root, args),
        Task::Bless => cargo(root, &["test", "--workspace", "--all-features"], &[("COTENANT_BLESS", "1")]),
        Task::Workloads => workloads::write(root),
        Task::Full => full(root),
        Task::House(args) => house::print(root, args),
        Task::Tests => return suite::run(root),
        Task::Fuzz(args) => return fuzz::run(root, args),
        Task::Guests(args) => return guests::run(root, args),
        Task::Package(args) => package::run(root, args),
        Task::Semver(args) => return semver::run(root, args),
        Task::Mutants(args) => return mutants::run(root, args),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// The programs with man pages and completions.
fn programs() -> [clap::Command; 2] {
    [cotenant::cli::Cli::command(), cotenant_lab::Cli::command()]
}

fn man(to: &Path) -> Result<()> {
    programs().into_iter().try_for_each(|program| generated::man_pages(program, to))?;
    println!("man pages are in {}", to.display());
    Ok(())
}

fn completions(to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for program in programs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut file = fs::File::create(to.join(shell.file_name(program.get_name())))?;
            generated::completions(program.clone(), shell, &mut file)?;
        }
    }
    println!("completions are in {}", to.display());
    Ok(())
}

fn full(root: &Path) -> Result<()> {
    // Tests look up their own functions and lines.
    let symbols = ("CARGO_PROFILE_RELEASE_STRIP", "none");
    let inputs = [("COTENANT_INPUTS", "100000"), ("COTENANT_KILLS", "200"), ("COTENANT_TRIALS", "10000")];
    let long = [&inputs[..], &[("PROPTEST_CASES", "5000"), symbols]].concat();
    // Tests skipped for missing requirements, which are no success.
    let skipped = RefCell::new(Vec::new());
    let counts = |program: &Path, args: &[&str]| -> Result<()> {
        let name = [&[&*program.to_string_lossy()][..], args].concat().join(" ");
        let skips = skips(Command::new(program).args(args).current_dir(root)).with_context(|| name.clone())?;
        skipped.borrow_mut().extend(skips.map(|tally| format!("{name}: {tally}")));
        Ok(())
    };
    let script = |name: &str, args: &[&str]| counts(Path::new(name), args);
    let own = |args: &[&str]| -> Result<()> { counts(&std::env::current_exe()?, args) };
    let steps: [(&str, &dyn Fn() -> Result<()>); 15] = [
        // `scripts/test` has every feature on.
        ("warnings where no feature is on", &|| {
            cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], &[])
        }),
        ("all tests, with many cases", &|| cargo(root, &["test", "--workspace", "--all-features", "--release"], &long)),
        ("programs do the same when they are compiled with the pass", &|| script("scripts/test-programs", &[])),
        ("what runs in a cluster", &|| script("scripts/test-kubernetes", &["--full"])),
        ("jobs of Slurm", &|| script("scripts/test-slurm", &[])),
        ("what a newcomer tries first", &|| script("scripts/try", &[])),
        ("cargo install", &|| script("scripts/test-install", &[])),
        ("packages and tarball of a release", &|| script("scripts/test-release", &[])),
        ("the book, with all its links", &|| book::make(root, true)),
        ("the Python package", &|| script("scripts/test-python", &[])),
        ("all scenarios in guests", &|| own(&["guests"])),
        ("all scenarios in guests, with the newest kernel", &|| own(&["guests", "--kernel", "newest"])),
        ("two hours of libFuzzer: fuzz/artifacts holds what a parser does not survive", &|| {
            own(&["fuzz", "--seconds", "7200"])
        }),
        ("the library's interface", &|| own(&["semver"])),
        ("benchmarks", &|| {
            cargo(root, &["bench", "--workspace"], &[])?;
            cargo(root, &["bench", "-p", "cotenant", "--bench", "daemon", "--", "soak"], &[])
        }),
    ];
    let start = Instant::now();
    let done = steps.iter().enumerate().try_for_each(|(n, (what, step))| {
        eprintln!("full, {} of {}, after {}: {what}", n + 1, steps.len(), about(start.elapsed()));
        step().with_context(|| (*what).to_owned())
    });
    for tally in skipped.borrow().iter() {
        eprintln!("full: not all of it was done: {tally}; why stands above");
    }
    done
}

/// Runs a test runner, and passes on its output; returns its tally if it skipped tests.
fn skips(runner: &mut Command) -> Result<Option<String>> {
    let mut child = runner.stdout(Stdio::piped()).spawn()?;
    let mut out = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
    let (mut line, mut last) = (Vec::new(), String::new());
    while out.read_until(b'\n', &mut line)? > 0 {
        String::from_utf8_lossy(&line).trim_end().clone_into(&mut last);
        println!("{last}");
        line.clear();
    }
    if !child.wait()?.success() {
        bail!("it failed");
    }
    Ok(Some(last).filter(|last| last.ends_with(" skipped") && !last.ends_with(" 0 skipped")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_skipped_is_no_success() {
        let told = |script: &str| skips(Command::new("sh").args(["-c", script])).map_err(|why| why.to_string());
        let tally = "3 passed, 0 failed, 2 skipped".to_owned();
        assert_eq!(told(&format!("echo skipped: no tool; echo {tally}")), Ok(Some(tally)));
        assert_eq!(told("echo 30 passed, 0 failed, 0 skipped"), Ok(None));
        assert_eq!(
            told("echo 10 passed, 0 failed, 10 skipped"),
            Ok(Some("10 passed, 0 failed, 10 skipped".to_owned()))
        );
        assert_eq!(told("echo ok"), Ok(None));
        assert_eq!(told("false"), Err("it failed".to_owned()));
    }
}
