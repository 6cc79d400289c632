//! `cotenant demo`: the effect of a batch program on a server on this machine, and the remedies.

mod report;
mod server;
mod show;
mod stage;
mod verdict;

use super::outlook;
use anyhow::{Context, Result, bail};
use cotenant_cli::machine_arg;
use cotenant_cli::messages::tell;
use cotenant_cli::usage;
use cotenant_linux::FsRoot;
use cotenant_linux::act::background::by_hand::ByHand;
use cotenant_linux::sense::nice;
use cotenant_linux::sense::usage::{Own, Watch};
use cotenant_linux::sys;
use cotenant_model::usage::Seen;
use cotenant_setup::registry::registry;
use cotenant_setup::replace::{can_replace, replace};
use cotenant_sim::batch::{self, Plan};
use cotenant_sim::optimum::Limits;
use cotenant_sim::scenario::Scenario;
use report::{App, Report, Simulated};
use serde_json::Value;
use server::{SETTLING, Served};
use stage::{Program, Stage, Stopped};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use verdict::{Phase, Phases, Said};

const EXAMPLES: &str = "\
Examples:
  cotenant demo
  cotenant demo --seconds 20 --report demo.html
  cotenant demo --json | jq '.phases[] | {name, p99_s, batch_cpus}'";

/// The batch program is a kernel of this package.
const KERNEL: &str = "stream";
/// Bytes of all its threads together, and of each at least: more than most caches hold, and little compared with
/// machines' memory.
const BYTES: u64 = 128 << 20;
const LEAST_BYTES: u64 = 1 << 20;

/// A machine with two sockets, its programs, and the number of simulations.
const SCENARIO: &str = include_str!("../../../examples/two-sockets.toml");
const SEEDS: u64 = 4;
const POLICY: &str = "sam";

/// Arguments of `cotenant demo`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How long all phases take together, 6 to 3600
    ///
    /// Half of it is that of `cotenant qos`, which takes some 20 s to learn.
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Print JSON instead of tables and bars
    #[arg(long)]
    json: bool,
    /// Write a page with figures, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Be the server for so many seconds
    #[arg(long, value_name = "S", hide = true)]
    serve: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (6.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds from 6 to 3600"))
}

/// Runs the subcommand.
///
/// # Errors
/// A program of the demonstration that cannot be started or fails; an unwritable page.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(length) = args.serve {
        let answers = server::serve(Duration::from_secs_f64(length))?;
        return cotenant_cli::print_text(&format!("{}\n", serde_json::to_string(&answers)?));
    }
    let refused = |path: &Path| format!("{}: cannot be written; choose another place with --report", path.display());
    // Checked before a minute is spent on a result that could not be kept.
    if let Some(path) = &args.report {
        can_replace(path).map_err(|e| usage(format!("{}: {e}", refused(path))))?;
    }
    let (phases, said, scene) = match Scene::set(args).and_then(Scene::play) {
        Ok(played) => played,
        Err(error) => {
            let Some(Stopped(signal)) = error.downcast_ref() else { return Err(error) };
            tell("stopped; all of its programs have ended");
            return Ok(ExitCode::from(128 + *signal as u8));
        }
    };
    let verdict = verdict::judge(&phases, scene.threads, &said);
    let (simulated, outlook) = (simulated()?, outlook::look()?);
    let report = Report {
        asked_per_s: server::PER_S,
        batch: format!("cotenant {}", scene.batch),
        threads: scene.threads,
        bytes: scene.bytes,
        phases: phases.all(),
        by_hand: &said.by_hand,
        usage: &said.seen,
        verdict: &verdict,
        qos: &said.qos,
        simulated: &simulated,
        outlook: &outlook,
    };
    if let Some(path) = &args.report {
        replace(path, show::page(&report)?.as_bytes()).with_context(|| refused(path))?;
    }
    cotenant_cli::answer(args.json, &report, |out| show::print(out, &report))
}

/// The programs of a scene, and their roles.
struct Scene {
    /// This program, as a word for the shell.
    program: String,
    /// The batch program, as arguments of this one; its threads, and bytes of each.
    batch: String,
    threads: usize,
    bytes: u64,
    seconds: f64,
    quiet: bool,
}

impl Scene {
    fn set(args: &Args) -> Result<Self> {
        // This also respects a quota of CPU time.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let bytes = (BYTES / threads as u64).max(LEAST_BYTES);
        let program = std::env::current_exe().context("this program's own file is not known")?;
        let program = word(program.to_str().context("this program's own path is not UTF-8")?);
        let batch = format!("kernel {KERNEL} --threads {threads} --size {bytes}");
        Ok(Self { program, batch, threads, bytes, seconds: args.seconds, quiet: args.json })
    }

    /// Plays the scene to its end.
    fn play(self) -> Result<(Phases, Said, Self)> {
        let by_hand = ByHand::here();
        let played = self.play_beside(&by_hand);
        by_hand.end();
        let (phases, said) = played?;
        Ok((phases, said, self))
    }

    fn play_beside(&self, by_hand: &ByHand) -> Result<(Phases, Said)> {
        let (short, long) = (self.seconds / 8.0, self.seconds / 2.0);
        let mut watch = Watch::new(&sys::getaffinity(0)?);
        let before = watch.moment(&Own::default());
        watch.catch_up(&Own::default());
        let mut stage = Stage::new(Duration::from_secs_f64(self.seconds), !self.quiet)?;
        if !self.quiet {
            tell(format_args!(
                "{:.0} s: a server that is asked {} times a second, and a batch program (cotenant {}); Ctrl-C ends both",
                self.seconds,
                server::PER_S,
                self.batch
            ));
        }
        let line = format!("{} {}", self.batch(), 2.0 * short + 60.0);
        // As from another terminal, and as started by qos: in its own session.
        let shell = |before: &[&str], line: &str| {
            let words = [before, &["sh", "-c", line]].concat();
            let mut command = Command::new("setsid");
            command.args(words);
            command
        };
        let (alone, _) = self.phase(&mut stage, "server alone", short, None)?;
        let (together, _) = self.phase(&mut stage, "beside the batch", short, Some(shell(&[], &line)))?;
        let batch = shell(&["nice", "-n", "19"], &line);
        let (nice, no_effect) = self.phase(&mut stage, "batch at nice 19", short, Some(batch))?;
        let mut batch = shell(&[], &by_hand.line(&line));
        by_hand.enter(&mut batch)?;
        let (background, _) = self.phase(&mut stage, "in the background", short, Some(batch))?;
        let (qos, said) = self.qos(&mut stage, "cotenant qos", long)?;
        watch.catch_up(&Own::default());
        let seen = Seen { before, during: watch.whole().cloned() };
        let said = Said { by_hand: by_hand.means(), advice: by_hand.advice(), no_effect, seen, qos: said };
        Ok((Phases { alone, together, nice, background, qos }, said))
    }

    fn server(&self, seconds: f64) -> String {
        format!("exec {} demo --serve {}", self.program, seconds - SETTLING.as_secs_f64())
    }

    /// This process needs its end, not its output.
    fn batch(&self) -> String {
        format!("exec {} {} >/dev/null --seconds", self.program, self.batch)
    }

    /// The server together with the batch program, which runs for longer, from before the first request to after the
    /// last answer. Also returns why its priority has no effect, if so.
    fn phase(
        &self,
        stage: &mut Stage,
        name: &'static str,
        seconds: f64,
        batch: Option<Command>,
    ) -> Result<(Phase, Option<String>)> {
        name.clone_into(&mut stage.doing);
        let batch = batch.map(|batch| stage.start(batch)).transpose()?;
        let mut server = Command::new("sh");
        server.args(["-c", &self.server(seconds)]);
        let server = stage.start(server)?;
        let server = stage.wait(server)?;
        // The server was in the same place as this process.
        let high = ("the server", std::process::id());
        let remark = |batch: &Program| nice::remark(&FsRoot::live(), ("the batch program", batch.pid()), high);
        let no_effect = batch.as_ref().and_then(remark);
        let early = batch.as_ref().is_some_and(|batch| stage.is_gone(batch));
        stage.ask_to_end();
        let batch = batch.map(|batch| stage.wait(batch)).transpose()?;
        if let Some(batch) = batch.as_ref().filter(|_| early) {
            bail!("the batch program ended early ({}): {}", batch.status, batch.said.trim());
        }
        let Some(answers) = answers_in(&server.said) else {
            bail!("the server ended early ({}): {}", server.status, server.said.trim());
        };
        Ok((self.phase_of(name, seconds, answers, batch.map(|batch| batch.cpus)), no_effect))
    }

    /// Both under `cotenant qos`, with its full output.
    fn qos(&self, stage: &mut Stage, name: &'static str, seconds: f64) -> Result<(Phase, Value)> {
        name.clone_into(&mut stage.doing);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["qos", "--json", "--metric", "latency_p99_s", "--high", &self.server(seconds)]);
        command.args(["--low", &format!("{} {seconds}", self.batch())]);
        let program = stage.start(command)?;
        let qos = stage.wait(program)?;
        // The summary is the last line.
        let summary = qos.said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        let (Some(answers), Some(summary)) = (answers_in(&qos.said), summary) else {
            bail!("cotenant qos failed ({}): {}", qos.status, qos.said.trim());
        };
        let cpus = summary["low"][0]["cpus"].as_f64();
        Ok((self.phase_of(name, seconds, answers, cpus), summary))
    }

    fn phase_of(&self, name: &'static str, seconds: f64, server: Served, batch_cpus: Option<f64>) -> Phase {
        let phase = Phase { name, seconds: seconds - SETTLING.as_secs_f64(), server, batch_cpus };
        if !self.quiet {
            tell(show::line(&phase));
        }
        phase
    }
}

/// The results printed by the server in its own line.
fn answers_in(said: &str) -> Option<Served> {
    said.lines().find_map(|line| serde_json::from_str(line).ok())
}

/// A word in a line for the shell.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Simulates programs under Linux and under a placing policy.
fn simulated() -> Result<Simulated> {
    let machine = |name: &str| machine_arg::resolve(Some(name)).map(|found| found.machine).map_err(|e| e.to_string());
    let scenario = Scenario::parse(SCENARIO, machine)?;
    let limits = Limits { classes: 0, evaluations: 0 }; // the optimum is not needed
    let plan = Plan { policies: vec![POLICY.to_owned()], seeds: SEEDS, limits };
    let batch = batch::run(&scenario, &plan, registry(), |_, _| ())?;
    let placed = &batch.series[0];
    let mean = |a: usize| batch.linux.iter().map(|outcome| outcome.apps[a].time_s).sum::<f64>() / SEEDS as f64;
    let times = batch.times(placed);
    let app = |(a, app): (usize, &cotenant_sim::world::AppSpec)| App {
        name: app.name.clone(),
        threads: app.threads,
        linux_s: mean(a),
        placed_s: times[a],
    };
    Ok(Simulated {
        machine: scenario.machine.name.clone(),
        policy: POLICY,
        apps: scenario.apps.iter().enumerate().map(app).collect(),
        over_linux: batch.over_linux(placed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_words_for_the_shell() {
        assert_eq!(word("/usr/bin/cotenant-0.1"), "/usr/bin/cotenant-0.1");
        assert_eq!(word("/my tools/it's"), r"'/my tools/it'\''s'");
    }

    #[test]
    fn times_have_a_range() {
        assert_eq!((seconds("6"), seconds("12.5")), (Ok(6.0), Ok(12.5)));
        for wrong in ["5.9", "3601", "-1", "NaN", "1min", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn placement_pays_where_there_are_two_sockets() {
        let simulated = simulated().unwrap();
        let gain = simulated.over_linux.unwrap();
        assert!(gain.low() > 0.1, "{simulated:?}");
        assert!(simulated.apps.iter().all(|app| app.placed_s < app.linux_s * 1.01), "nobody pays: {simulated:?}");
    }
}
