//! `cargo xtask tests`: the tests of all packages as `cargo test` runs them, but several programs of tests at a time,
//! and how long each test took.
//!
//! Many tests only wait for time or processes. libtest reports no times on stable Rust; but it starts tests in the
//! order of their names, each when one has ended, so that their ends give the times. Failures are printed once more at
//! the end.

use crate::commands::{cargo_program, target_folder};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Packages whose tests observe real processes in real time. Their programs run at normal priority; other packages' run
/// beside them at the lowest, while they wait.
const IN_REAL_TIME: [(&str, &str); 5] = [
    ("cotenant", "programs are measured, slowed down and paused, and goals are kept"),
    ("cotenant-daemon", "services are followed, and clients of its sockets wait"),
    ("cotenant-linux", "threads are sampled, moved and stopped"),
    ("cotenant-rt", "programs report how fast they are"),
    ("cotenant-kernels", "loops are timed"),
];

/// Programs of these packages at a time, and of all others.
const WATCHING: usize = 2;
const BESIDE: usize = 2;

/// Interval of reading the output of a program.
const LOOK: Duration = Duration::from_millis(50);

/// A program of tests, or all tests in documentation.
#[derive(Clone, Debug, PartialEq)]
struct Program {
    package: String,
    /// As cargo prints it.
    title: String,
    /// In which it runs.
    folder: PathBuf,
    /// `None`: the tests in documentation, which cargo builds one by one.
    executable: Option<PathBuf>,
}

/// The results of the tests so far.
#[derive(Default)]
struct Done {
    /// Seconds that each test took.
    times: Vec<(f64, String)>,
    /// Failed programs, and the output of their failed tests.
    failed: Vec<(String, String)>,
}

/// Runs all tests, and prints what `cargo test --workspace --all-features -- --show-output` does. The seconds of each
/// test are in `test-times` in cargo's target folder.
///
/// # Errors
/// They cannot be built or started.
pub fn run(root: &Path) -> Result<ExitCode> {
    let (in_real_time, mut others): (Vec<_>, Vec<_>) = programs(root)?
        .into_iter()
        .partition(|program| IN_REAL_TIME.iter().any(|(package, _)| *package == program.package));
    others.push(Program {
        package: "all packages".to_owned(),
        title: "Doc-tests".to_owned(),
        folder: root.to_owned(),
        executable: None,
    });
    let logs = target_folder(root).join("test-logs");
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let done = Mutex::new(Ok(Done::default()));
    let lane = |programs: &Mutex<std::vec::IntoIter<Program>>, priority: u8| {
        let next = || programs.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(program) = next() {
            let result = test(&program, &logs, priority);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(all) = &mut *done
                && let Err(why) = result.and_then(|result| all.add(&program, result))
            {
                *done = Err(why);
            }
        }
    };
    let (in_real_time, others) = (Mutex::new(in_real_time.into_iter()), Mutex::new(others.into_iter()));
    thread::scope(|scope| {
        (0..WATCHING).for_each(|_| drop(scope.spawn(|| lane(&in_real_time, 0))));
        (0..BESIDE).for_each(|_| drop(scope.spawn(|| lane(&others, 19))));
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    done.times.sort_by(|a, b| b.0.total_cmp(&a.0));
    let text = done.times.iter().fold(String::new(), |mut text, (seconds, name)| {
        let _ = writeln!(text, "{seconds:.2}\t{name}");
        text
    });
    let times = target_folder(root).join("test-times");
    fs::write(&times, text).with_context(|| times.display().to_string())?;
    for (program, why) in &done.failed {
        println!("\nfailed: {program}\n{why}");
    }
    Ok(if done.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Done {
    /// Prints a program's output, and adds its times.
    fn add(&mut self, program: &Program, ran: Ran) -> Result<()> {
        let Program { package, title, .. } = program;
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n     Running {package}: {title} ({:.1} s)", ran.seconds)?;
        let said = fs::read(&ran.log)?;
        out.write_all(&said)?;
        self.times.extend(ran.times.into_iter().map(|(seconds, test)| (seconds, format!("{package}: {test}"))));
        if !ran.success {
            self.failed.push((format!("{package}: {title}"), failures(&String::from_utf8_lossy(&said)).to_owned()));
        }
        Ok(())
    }
}

/// The programs of tests, built if missing; in cargo's order.
fn programs(root: &Path) -> Result<Vec<Program>> {
    let build = ["test", "--workspace", "--all-features", "--no-run", "--message-format=json-render-diagnostics"];
    let out = Command::new(cargo_program()).args(build).current_dir(root).stderr(Stdio::inherit()).output()?;
    if !out.status.success() {
        bail!("the tests cannot be built");
    }
    let messages = String::from_utf8(out.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter(|message| message["profile"]["test"] == true).filter_map(|message| {
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let source = Path::new(message["target"]["src_path"].as_str()?);
        Some(Program {
            // `path+file:///…/crates/NAME#VERSION`; the folders are called as their packages.
            package: folder.file_name()?.to_string_lossy().into_owned(),
            title: source.strip_prefix(&folder).ok()?.display().to_string(),
            executable: Some(message["executable"].as_str()?.into()),
            folder,
        })
    });
    let mut programs: Vec<Program> = programs.collect();
    programs.sort_by(|a, b| (&a.package, &a.title).cmp(&(&b.package, &b.title)));
    Ok(programs)
}

/// The result of a program of tests.
struct Ran {
    success: bool,
    seconds: f64,
    log: PathBuf,
    times: Vec<(f64, String)>,
}

/// Runs a program of tests. Its output goes into a file that is read meanwhile, not into a pipe, which a process left
/// by a test would keep open for ever.
fn test(program: &Program, logs: &Path, priority: u8) -> Result<Ran> {
    let log = logs.join(format!("{}-{}", program.package, program.title.replace('/', "-")));
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    let cpus = thread::available_parallelism()?.get();
    let mut command = Command::new("nice");
    command.args(["-n", &priority.to_string()]);
    let mut names = Vec::new();
    if let Some(executable) = &program.executable {
        names = named(executable, &program.folder)?;
        command.arg(executable).args(["--show-output", &format!("--test-threads={cpus}")]);
    } else {
        let doc = ["test", "--workspace", "--all-features", "--doc", "--no-fail-fast", "--", "--show-output"];
        command.arg(cargo_program()).args(doc);
    }
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| program.title.clone())?;
    let mut ends: Vec<(f64, String)> = Vec::new();
    loop {
        let status = child.try_wait()?;
        let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let seconds = began.elapsed().as_secs_f64();
        let new: Vec<&str> =
            ended(&said).filter(|name| names.iter().any(|known| known == name)).skip(ends.len()).collect();
        ends.extend(new.into_iter().map(|name| (seconds, name.to_owned())));
        if let Some(status) = status {
            return Ok(Ran { success: status.success(), seconds, log, times: times(&names, &ends, cpus) });
        }
        thread::sleep(LOOK);
    }
}

/// The names of a program's tests, in the order in which they start.
fn named(executable: &Path, folder: &Path) -> Result<Vec<String>> {
    let out = Command::new(executable).args(["--list", "--format=terse"]).current_dir(folder).output()?;
    let out = String::from_utf8(out.stdout)?;
    let mut names: Vec<String> =
        out.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

/// The ended tests, according to a program's output so far, after each end.
fn ended(said: &str) -> impl Iterator<Item = &str> {
    let whole = &said[..said.rfind('\n').map_or(0, |end| end + 1)];
    whole.lines().filter_map(|line| {
        let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let is_end = ["ok", "FAILED", "ignored"].iter().any(|word| result.starts_with(word));
        is_end.then(|| name.trim_end_matches(" - should panic"))
    })
}

/// A program's output on failed tests; all of it if it did not finish.
fn failures(said: &str) -> &str {
    let from = said.find("\nfailures:\n").unwrap_or(0);
    let to = said[from..].find("\ntest result: ").map_or(said.len(), |end| from + end);
    said[from..to].trim()
}

/// Duration of each test that ended: so many run at a time, and the next one starts when one ends.
fn times(names: &[String], ends: &[(f64, String)], at_a_time: usize) -> Vec<(f64, String)> {
    let began = |place: usize| place.checked_sub(at_a_time).map_or(Some(0.0), |before| Some(ends.get(before)?.0));
    let place: BTreeMap<&str, usize> = names.iter().enumerate().map(|(place, name)| (&**name, place)).collect();
    let time = |(end, name): &(f64, String)| Some((end - began(*place.get(&**name)?)?, name.clone()));
    ends.iter().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_tell_how_long_tests_took() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let ends = [(1.0, "b"), (3.0, "a"), (3.5, "d"), (7.0, "c")].map(|(end, name)| (end, name.to_owned()));
        let told: BTreeMap<String, f64> =
            times(&names, &ends, 2).into_iter().map(|(time, name)| (name, time)).collect();
        assert_eq!(told.into_values().collect::<Vec<_>>(), [3.0, 1.0, 6.0, 0.5], "c begins when b ends, d when a does");
    }

    #[test]
    fn what_failed_is_found_in_what_was_said() {
        let said = "test a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n---- a stdout ----\nfine\n\nsuccesses:\n    a\n\n\
                    failures:\n\n---- b stdout ----\nwhy\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed\n";
        assert_eq!(failures(said), "failures:\n\n---- b stdout ----\nwhy\n\nfailures:\n    b");
        assert_eq!(failures("test a ... ok\n"), "test a ... ok", "it was killed");
    }

    #[test]
    fn only_whole_lines_of_tests_are_ends() {
        let said = "running 3 tests\ntest a::b ... ok\ntest c has been running for over 60 seconds\n\
                    test d - should panic ... FAILED\ntest result: ok. 2 passed\ntest e ... o";
        assert_eq!(ended(said).collect::<Vec<_>>(), ["a::b", "d"]);
    }
}
