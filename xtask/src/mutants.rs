//! `cargo xtask mutants`: whether the tests notice when the code is changed.
//!
//! cargo-mutants makes the changes, one at a time, and runs the tests of the crate. This chore chooses which: a
//! seeded sample of all, in random order, so that an interrupted run has a fair sample, too. It goes on where it
//! stopped. Changes are made in a clone of the last commit below `target/mutants`, never in the working tree.

use crate::cargo_program;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Source files, and the tests that are to notice changes of them.
struct Scope {
    package: &'static str,
    files: &'static [&'static str],
    /// Packages whose tests run.
    tests: &'static [&'static str],
    /// Arguments of `cargo test`.
    args: &'static [&'static str],
}

const SCOPES: [Scope; 4] = [
    Scope {
        package: "cotenant-policies",
        files: &["crates/cotenant-policies/src/**"],
        tests: &["cotenant-policies"],
        args: &["--tests"],
    },
    // Resolving orders, and what it asks: rules, and --pin.
    Scope {
        package: "cotenant-model",
        files: &[
            "crates/cotenant-model/src/host.rs",
            "crates/cotenant-model/src/rule.rs",
            "crates/cotenant-model/src/pin.rs",
        ],
        tests: &["cotenant-model", "cotenant-policies"],
        args: &["--tests"],
    },
    // The journal, and undoing.
    Scope {
        package: "cotenant-linux",
        files: &["crates/cotenant-linux/src/undo/**"],
        tests: &["cotenant-linux"],
        args: &["--lib", "--", "undo::", "tests::"],
    },
    Scope {
        package: "cotenant-sim",
        files: &["crates/cotenant-sim/src/**"],
        tests: &["cotenant-sim"],
        args: &["--tests"],
    },
];

/// How many changes are tried before what became of them is written down.
const BATCH: usize = 10;
/// Address space that a test may have, in KiB: a loop that no longer ends may collect something.
const MEMORY_KIB: u32 = 8 << 20;

/// Arguments of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many changes are drawn
    #[arg(long, default_value_t = 300, value_name = "N")]
    sample: usize,
    /// Which ones: the same seed draws the same from the same code
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Every change there is; takes about a day
    #[arg(long, conflicts_with = "sample")]
    all: bool,
    /// Stop after about so many, to be continued
    #[arg(long, value_name = "N")]
    at_most: Option<usize>,
    /// Only say what is known by now
    #[arg(long, conflicts_with = "at_most")]
    report: bool,
    /// Seconds after which tests of changed code count as hanging
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u32,
}

/// Tries the changes and reports.
///
/// # Errors
/// Where cargo-mutants is not installed, or the tests fail without a change.
pub fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let version = Command::new(cargo_program()).args(["mutants", "--version"]).stderr(Stdio::null()).output()?;
    ensure!(version.status.success(), "cargo-mutants is not installed: cargo install cargo-mutants --locked");
    let trial = Trial::new(root, args.timeout)?;
    let mut sample = trial.list()?;
    let there_are = sample.len();
    fastrand::Rng::with_seed(args.seed).shuffle(&mut sample);
    if !args.all {
        sample.truncate(args.sample);
    }
    let mut log = Log::open(&trial.folder.join("outcomes.jsonl"))?;
    if !args.report {
        let open: Vec<&Mutant> = sample.iter().filter(|mutant| !log.known.contains_key(&mutant.name)).collect();
        for batch in open[..args.at_most.unwrap_or(open.len()).min(open.len())].chunks(BATCH) {
            for scope in &SCOPES {
                let names: Vec<&str> =
                    batch.iter().filter(|m| m.package == scope.package).map(|m| m.name.as_str()).collect();
                if !names.is_empty() {
                    trial.run(scope, &names)?.into_iter().try_for_each(|(name, outcome)| log.add(name, outcome))?;
                }
            }
        }
    }
    report(&sample, there_are, args, &log);
    Ok(ExitCode::SUCCESS)
}

/// A change that can be made.
struct Mutant {
    package: String,
    /// File, line, column and what is replaced by what.
    name: String,
}

/// Where changes are made.
struct Trial {
    folder: PathBuf,
    timeout: u32,
}

impl Trial {
    /// Clones the last commit, or brings the clone to it.
    fn new(root: &Path, timeout: u32) -> Result<Self> {
        let trial = Self { folder: root.join("target/mutants"), timeout };
        fs::create_dir_all(&trial.folder)?;
        if !trial.tree().exists() {
            git(&trial.folder, &["clone", "--quiet", "--shared", &root.to_string_lossy(), "tree"])?;
        }
        git(&trial.tree(), &["fetch", "--quiet", &root.to_string_lossy(), "HEAD"])?;
        git(&trial.tree(), &["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])?;
        Ok(trial)
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// `cargo mutants` in the clone.
    fn mutants(&self, scope: &Scope) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v \"$0\"; exec \"$@\"", &MEMORY_KIB.to_string()]);
        command.arg(cargo_program()).args(["mutants", "--no-config", "--package", scope.package]);
        command.args(scope.files.iter().flat_map(|file| ["--file", file]));
        command.current_dir(self.tree()).env("CARGO_TARGET_DIR", self.folder.join("target"));
        // Incremental builds of one crate, without what only debuggers read; the same cases of properties each time.
        command.envs([("CARGO_INCREMENTAL", "1"), ("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_PROFILE_TEST_DEBUG", "0")]);
        command.envs([("PROPTEST_RNG_SEED", "1"), ("PROPTEST_FAILURE_PERSISTENCE", "off")]);
        command
    }

    /// Every change that can be made, sorted by name.
    fn list(&self) -> Result<Vec<Mutant>> {
        let mut all = Vec::new();
        for scope in &SCOPES {
            let output = self.mutants(scope).args(["--list", "--json"]).stderr(Stdio::inherit()).output()?;
            ensure!(output.status.success(), "cargo mutants --list failed for {}", scope.package);
            let listed: Vec<Value> = serde_json::from_slice(&output.stdout).context("cargo mutants --list --json")?;
            for mutant in listed {
                let name = mutant["name"].as_str().context("a mutant without a name: cargo-mutants 26.1 or later?")?;
                all.push(Mutant { package: scope.package.to_owned(), name: name.to_owned() });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Tries some changes: name and outcome of each.
    fn run(&self, scope: &Scope, names: &[&str]) -> Result<Vec<(String, Outcome)>> {
        git(&self.tree(), &["checkout", "--quiet", "--force", "."])?;
        let mut command = self.mutants(scope);
        command.args(["--in-place", "--no-shuffle", "--timeout", &self.timeout.to_string()]);
        command.arg("--output").arg(&self.folder).args(["--test-package", &scope.tests.join(",")]);
        command.args(names.iter().flat_map(|name| ["--re".to_owned(), format!("^{}$", literally(name))]));
        command.arg("--").args(scope.args);
        let status = command.status()?;
        let file = self.folder.join("mutants.out/outcomes.json");
        let told: Value = serde_json::from_slice(&fs::read(&file).with_context(|| file.display().to_string())?)?;
        let outcomes: Vec<(String, Outcome)> = told["outcomes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|o| Some((o["scenario"]["Mutant"]["name"].as_str()?.to_owned(), Outcome::of(&o["summary"])?)))
            .collect();
        if outcomes.is_empty() {
            bail!("{}: cargo mutants tried nothing ({status}); do its tests pass without a change?", scope.package);
        }
        Ok(outcomes)
    }
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// A test failed.
    Caught,
    /// Tests did not end.
    Timeout,
    /// Every test passed.
    Missed,
    /// It does not compile.
    Unviable,
}

impl Outcome {
    fn of(summary: &Value) -> Option<Self> {
        match summary.as_str()? {
            "CaughtMutant" | "caught" => Some(Self::Caught),
            "Timeout" | "timeout" => Some(Self::Timeout),
            "MissedMutant" | "missed" => Some(Self::Missed),
            "Unviable" | "unviable" => Some(Self::Unviable),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Timeout => "timeout",
            Self::Missed => "missed",
            Self::Unviable => "unviable",
        }
    }
}

/// What became of changes by now, in a file: a line each.
struct Log {
    file: fs::File,
    known: BTreeMap<String, Outcome>,
}

impl Log {
    fn open(path: &Path) -> Result<Self> {
        let before = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let lines = before.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let known = lines.filter_map(|v| Some((v["mutant"].as_str()?.to_owned(), Outcome::of(&v["outcome"])?)));
        Ok(Self { known: known.collect(), file: fs::OpenOptions::new().create(true).append(true).open(path)? })
    }

    fn add(&mut self, mutant: String, outcome: Outcome) -> Result<()> {
        writeln!(self.file, "{}", json!({ "mutant": mutant, "outcome": outcome.word() }))?;
        self.known.insert(mutant, outcome);
        Ok(())
    }
}

/// Survivors, a line per package, and one that programs read.
fn report(sample: &[Mutant], there_are: usize, args: &Args, log: &Log) {
    let count = |package: Option<&str>, outcome| {
        let of = sample.iter().filter(|m| package.is_none_or(|p| m.package == p));
        of.filter(|m| log.known.get(&m.name) == Some(&outcome)).count()
    };
    for mutant in sample.iter().filter(|m| log.known.get(&m.name) == Some(&Outcome::Missed)) {
        println!("missed: {}", mutant.name);
    }
    for package in SCOPES.iter().map(|scope| Some(scope.package)).chain([None]) {
        let of = |outcome| count(package, outcome);
        let (killed, missed) = (of(Outcome::Caught) + of(Outcome::Timeout), of(Outcome::Missed));
        let share = match interval(killed, killed + missed) {
            Some((low, high)) => {
                let share = killed as f64 / (killed + missed) as f64;
                format!("{:.1} % (95 %: {:.1} to {:.1} %)", share * 100.0, low * 100.0, high * 100.0)
            }
            None => "-".to_owned(),
        };
        println!("{:<18} {killed} of {} killed: {share}", package.unwrap_or("all"), killed + missed);
    }
    let outcomes = [Outcome::Caught, Outcome::Timeout, Outcome::Missed, Outcome::Unviable];
    let mut counts: serde_json::Map<String, Value> =
        outcomes.into_iter().map(|outcome| (outcome.word().to_owned(), count(None, outcome).into())).collect();
    counts.extend(
        [("seed", args.seed), ("drawn", sample.len() as u64), ("mutants", there_are as u64)]
            .map(|(key, value)| (key.to_owned(), value.into())),
    );
    println!("{}", Value::Object(counts));
}

/// Wilson's 95 % interval of a share (E. B. Wilson, JASA 1927), 0 to 1; `None` where nothing was tried.
fn interval(of_them: usize, tried: usize) -> Option<(f64, f64)> {
    const Z: f64 = 1.959_964;
    let n = (tried > 0).then_some(tried as f64)?;
    let share = of_them as f64 / n;
    let middle = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Some(((middle - half) / scale, (middle + half) / scale))
}

/// A text as a regular expression that matches just it.
fn literally(text: &str) -> String {
    let mut expression = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            expression.push('\\');
        }
        expression.push(c);
    }
    expression
}

fn git(folder: &Path, args: &[&str]) -> Result<()> {
    let status = Command::new("git").args(args).current_dir(folder).status().context("git")?;
    ensure!(status.success(), "git {} failed", args.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // 81 of 263 (Newcombe, Statistics in Medicine 1998, table I): 0.2553 to 0.3662.
        let (low, high) = interval(81, 263).unwrap();
        assert!((low - 0.2553).abs() < 5e-5 && (high - 0.3662).abs() < 5e-5, "{low} {high}");
        // None of 20: 0 to 0.1611, likewise.
        let (low, high) = interval(0, 20).unwrap();
        assert!(low.abs() < 1e-12 && (high - 0.1611).abs() < 5e-5, "{low} {high}");
        assert_eq!(interval(0, 0), None);
    }

    #[test]
    fn names_are_matched_as_they_stand() {
        assert_eq!(literally("a/b_c.rs:1:2: replace > with >= in f"), r"a\/b\_c\.rs\:1\:2\: replace \> with \>\= in f");
    }
}
