//! `cargo xtask mutants`: whether the tests notice when the code is changed.
//!
//! cargo-mutants lists the possible changes. This chore draws a seeded sample in random order, so that an interrupted
//! run has a fair sample and can continue. It makes one change at a time in a clone of the last commit below
//! `target/mutants`, and runs the tests of the crate. cargo-mutants itself cannot select these changes up to version
//! 27.1: `--re` does not apply to those that leave out a field.

use crate::commands::cargo_program;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
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
    /// Which of their targets.
    what: &'static [&'static str],
    /// Which of their tests.
    filters: &'static [&'static str],
}

const SCOPES: [Scope; 4] = [
    Scope {
        package: "cotenant-policies",
        files: &["crates/cotenant-policies/src/**"],
        tests: &["cotenant-policies"],
        what: &["--tests"],
        filters: &[],
    },
    // Resolving orders, with rules and --pin. Recordings test that several rules decide in turn.
    Scope {
        package: "cotenant-model",
        files: &[
            "crates/cotenant-model/src/host.rs",
            "crates/cotenant-model/src/rule.rs",
            "crates/cotenant-model/src/pin.rs",
        ],
        tests: &["cotenant-model", "cotenant-policies", "cotenant-record"],
        what: &["--tests"],
        filters: &[],
    },
    // The journal, and undoing.
    Scope {
        package: "cotenant-linux",
        files: &["crates/cotenant-linux/src/undo/**"],
        tests: &["cotenant-linux"],
        what: &["--lib"],
        filters: &[
            "undo::",
            "tests::agents::",
            "tests::batches::",
            "tests::crash::",
            "tests::crowd::",
            "tests::keepers::",
            "tests::pauses::",
            "tests::roster::",
        ],
    },
    Scope {
        package: "cotenant-sim",
        files: &["crates/cotenant-sim/src/**"],
        tests: &["cotenant-sim"],
        what: &["--tests"],
        filters: &[],
    },
];

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
    /// Only those of this package that were drawn; may be repeated
    #[arg(long, value_name = "PACKAGE")]
    only: Vec<String>,
    /// Stop after so many, to be continued
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
/// cargo-mutants is not installed, or the tests fail without a change.
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
    if !args.only.is_empty() {
        sample.retain(|mutant| args.only.iter().any(|package| package == mutant.scope.package));
        ensure!(!sample.is_empty(), "nothing was drawn in {}", args.only.join(", "));
    }
    let mut log = Log::open(&trial.folder.join("outcomes.jsonl"))?;
    if !args.report {
        let open: Vec<&Mutant> = sample.iter().filter(|mutant| !log.known.contains_key(&mutant.name)).collect();
        for mutant in open.into_iter().take(args.at_most.unwrap_or(usize::MAX)) {
            let unchanged = format!("{}, unchanged", mutant.scope.package);
            if !log.known.contains_key(&unchanged) {
                let outcome = trial.test(mutant.scope)?;
                ensure!(outcome == Outcome::Missed, "{unchanged}: tests do not pass ({})", outcome.word());
                log.add(unchanged, outcome)?;
            }
            let outcome = trial.run(mutant)?;
            println!("{}: {}", outcome.word(), mutant.name);
            log.add(mutant.name.clone(), outcome)?;
        }
    }
    report(&sample, there_are, args, &log);
    Ok(ExitCode::SUCCESS)
}

/// A change that can be made.
struct Mutant {
    scope: &'static Scope,
    /// File, line, column, and the replaced and the new text.
    name: String,
    file: String,
    /// First and last line and column of the replaced text, from 1; the last column stays.
    from: (usize, usize),
    to: (usize, usize),
    replacement: String,
}

impl Mutant {
    /// From the output of `cargo mutants --list --json`.
    fn read(scope: &'static Scope, told: &Value) -> Option<Self> {
        let text = |key: &str| Some(told[key].as_str()?.to_owned());
        let place = |end: &str| {
            let number = |key: &str| Some(told["span"][end][key].as_u64()? as usize);
            Some((number("line")?, number("column")?))
        };
        let (from, to) = (place("start")?, place("end")?);
        Some(Self { scope, name: text("name")?, file: text("file")?, from, to, replacement: text("replacement")? })
    }

    /// The source with the change; `None` for another source.
    fn apply(&self, source: &str) -> Option<String> {
        let at = |(line, column): (usize, usize)| {
            let begin: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
            let rest = source.get(begin..)?;
            Some(begin + rest.char_indices().map(|(i, _)| i).chain([rest.len()]).nth(column.checked_sub(1)?)?)
        };
        Some([source.get(..at(self.from)?)?, &self.replacement, source.get(at(self.to)?..)?].concat())
    }
}

/// The place of changes.
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

    /// A program in the clone.
    fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v \"$0\"; exec \"$@\"", &MEMORY_KIB.to_string()]).arg(program);
        command.current_dir(self.tree()).env("CARGO_TARGET_DIR", self.folder.join("target"));
        // Incremental builds of one crate, without data for debuggers, and slightly optimised, since the simulator's
        // tests compute a lot; always with the same cases of properties.
        command.envs([
            ("CARGO_INCREMENTAL", "1"),
            ("CARGO_PROFILE_DEV_DEBUG", "0"),
            ("CARGO_PROFILE_DEV_OPT_LEVEL", "1"),
        ]);
        command.envs([("PROPTEST_RNG_SEED", "1"), ("PROPTEST_FAILURE_PERSISTENCE", "off")]);
        command.stdin(Stdio::null());
        command
    }

    /// Every change that can be made, sorted by name.
    fn list(&self) -> Result<Vec<Mutant>> {
        let mut all = Vec::new();
        for scope in &SCOPES {
            let mut command = self.command(&cargo_program());
            command.args(["mutants", "--list", "--json", "--no-config", "--package", scope.package]);
            let output = command.args(scope.files.iter().flat_map(|file| ["--file", file])).output()?;
            let errors = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "cargo mutants --list failed for {}: {errors}", scope.package);
            let listed: Vec<Value> = serde_json::from_slice(&output.stdout).context("cargo mutants --list --json")?;
            let read = listed.iter().map(|one| Mutant::read(scope, one).with_context(|| format!("no mutant: {one}")));
            all.extend(read.collect::<Result<Vec<_>>>()?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Makes a change, runs the tests, and takes it back.
    fn run(&self, mutant: &Mutant) -> Result<Outcome> {
        let file = self.tree().join(&mutant.file);
        let source = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, mutant.apply(&source).with_context(|| format!("{}: no such place", mutant.name))?)?;
        let outcome = self.test(mutant.scope);
        fs::write(&file, source)?;
        outcome
    }

    /// The tests' result for the unchanged clone.
    fn test(&self, scope: &Scope) -> Result<Outcome> {
        let packages = || ["test"].into_iter().chain(scope.tests.iter().flat_map(|package| ["--package", package]));
        let silent = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let build = silent(self.command(&cargo_program()).args(packages()).args(scope.what).arg("--no-run"))?;
        if !build.success() {
            return Ok(Outcome::Unviable);
        }
        let mut tests = self.command(OsStr::new("timeout"));
        tests.args(["--kill-after=5", &self.timeout.to_string()]).arg(cargo_program()).args(packages());
        Ok(match silent(tests.args(scope.what).arg("--").args(scope.filters))?.code() {
            Some(0) => Outcome::Missed,
            Some(124 | 137) => Outcome::Timeout,
            _ => Outcome::Caught,
        })
    }
}

/// The outcome of a change.
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
    const ALL: [Self; 4] = [Self::Caught, Self::Timeout, Self::Missed, Self::Unviable];

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
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

/// The outcomes of changes so far, in a file: a line each.
struct Log {
    file: fs::File,
    known: BTreeMap<String, Outcome>,
}

impl Log {
    fn open(path: &Path) -> Result<Self> {
        let before = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let lines = before.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let known =
            lines.filter_map(|v| Some((v["mutant"].as_str()?.to_owned(), Outcome::of(v["outcome"].as_str()?)?)));
        Ok(Self { known: known.collect(), file: fs::OpenOptions::new().create(true).append(true).open(path)? })
    }

    fn add(&mut self, mutant: String, outcome: Outcome) -> Result<()> {
        writeln!(self.file, "{}", json!({ "mutant": mutant, "outcome": outcome.word() }))?;
        self.known.insert(mutant, outcome);
        Ok(())
    }
}

/// Survivors and hung ones, a line per package, and one for programs.
fn report(sample: &[Mutant], there_are: usize, args: &Args, log: &Log) {
    let count = |package: Option<&str>, outcome| {
        let of = sample.iter().filter(|m| package.is_none_or(|p| m.scope.package == p));
        of.filter(|m| log.known.get(&m.name) == Some(&outcome)).count()
    };
    for mutant in sample {
        if let Some(outcome @ (Outcome::Missed | Outcome::Timeout)) = log.known.get(&mutant.name) {
            println!("{}: {}", outcome.word(), mutant.name);
        }
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
    let mut counts: serde_json::Map<String, Value> =
        Outcome::ALL.into_iter().map(|outcome| (outcome.word().to_owned(), count(None, outcome).into())).collect();
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
        // None of 20: 0 to 0.1611, by the same formula.
        let (low, high) = interval(0, 20).unwrap();
        assert!(low.abs() < 1e-12 && (high - 0.1611).abs() < 5e-5, "{low} {high}");
        assert_eq!(interval(0, 0), None);
    }

    #[test]
    fn a_change_is_made_where_it_belongs() {
        let told = json!({
            "name": "a.rs:2:5: replace > with >=", "file": "a.rs", "replacement": ">=",
            "span": { "start": { "line": 2, "column": 5 }, "end": { "line": 2, "column": 6 } },
        });
        let mut mutant = Mutant::read(&SCOPES[0], &told).unwrap();
        assert_eq!(mutant.apply("fn f()\n\u{e9} a > b\n").as_deref(), Some("fn f()\n\u{e9} a >= b\n"));
        (mutant.from, mutant.to, mutant.replacement) = ((1, 5), (3, 2), "0".into());
        assert_eq!(mutant.apply("f() {\n  1\n}\n").as_deref(), Some("f() 0\n"));
        assert_eq!(mutant.apply("f() {\n"), None);
    }
}
