//! `cotenant bench`: dynamic workloads under several policies, real or simulated, by one script.

pub(crate) mod file;
mod live;
mod result;

use anyhow::{Context as _, Result};
use cotenant_cli::machine_arg::resolve_beside;
use cotenant_cli::messages::{count, tell};
use cotenant_cli::progress::{Progress, REDRAW, about, simulating};
use cotenant_cli::usage;
use cotenant_linux::given;
use cotenant_linux::sense::executable;
use cotenant_measure::workload::{JobRuns, RunError, Workload};
use cotenant_setup::args::{ManageArgs, OutputArgs, PolicyArgs, ScopeArgs};
use cotenant_setup::registry::registry;
use cotenant_setup::settings::{self, Setup};
use cotenant_sim::batch::parallel;
use cotenant_sim::flat_machine;
use cotenant_sim::run::SimError;
use cotenant_sim::scenario::Scenario;
use file::{Program, Spec};
use result::{Arm, Report, Round, over_linux};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  cotenant bench night-jobs.toml
  cotenant bench night-jobs.toml --json > result.json
A file:
  [bench]
  policies = [\"resense\", \"auto\"]
  repetitions = 5
  [[app]]
  command = [\"xz\", \"-k\", \"-f\", \"-T2\", \"big.tar\"]
  runs = 3
  [[app]]
  command = [\"./solver\", \"input\"]
  arrival_s = 2.5";

/// The baseline.
const LINUX: &str = "none";

/// Arguments of `cotenant bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The workload in TOML, see docs/reference/bench.md
    ///
    /// It has the programs, when they come, and what to compare.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Run on this machine even if the file names one to simulate
    #[arg(long)]
    here: bool,
    /// What policies know of the programs: a TOML file with [app.NAME] tables [default: the stored profiles]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    profiles: Option<PathBuf>,
    /// Let the programs' own output through [default: discarded, so that it does not disturb the timing]
    #[arg(long, hide_short_help = true)]
    show_output: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The results, and whether a signal ended it early.
struct Found {
    machine: Option<String>,
    rounds: Vec<Round>,
    notes: BTreeSet<String>,
    signal: Option<i32>,
}

/// Runs the subcommand.
///
/// # Errors
/// An invalid file, a failing program, a refusing policy, or an endless simulation.
pub fn run(args: &Args) -> Result<ExitCode> {
    let path = args.file.display();
    let text = given::text(&args.file).map_err(|e| usage(format!("{path}: {e}; give a workload's TOML file")))?;
    let spec = Spec::parse(&text, args.here).map_err(|e| usage(format!("{path}:{e}")))?;
    let found = if spec.simulated { simulate(args, &text, &spec)? } else { really(args, &spec)? };
    let code = found.signal.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal as u8));
    let over_linux = over_linux(&found.rounds, &spec.policies);
    let notes = found.notes.into_iter().collect();
    let report = Report { machine: found.machine, rounds: found.rounds, over_linux, notes };
    cotenant_cli::answer(args.json, &report, |out| Ok(report.table(out)?))?;
    Ok(code)
}

/// Stores the figures of a run under its policy.
fn note(rounds: &mut [Round], at: usize, policy: &str, workload: &Workload, ran: &[JobRuns]) -> Result<()> {
    let arm = Arm::new(workload, ran).context("a run took no time; give the programs more to do")?;
    rounds[at].policies.insert(policy.to_owned(), arm);
    Ok(())
}

/// All rounds, without figures yet.
fn rounds(spec: &Spec) -> Vec<(usize, Round)> {
    let each = |repetition: u64| {
        let round = move |(i, w): (usize, &Workload)| {
            (i, Round { workload: w.to_string(), repetition, policies: BTreeMap::new() })
        };
        spec.workloads.iter().enumerate().map(round)
    };
    (1..=spec.repetitions).flat_map(each).collect()
}

fn simulate(args: &Args, text: &str, spec: &Spec) -> Result<Found> {
    let path = args.file.display();
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let mut scenario = Scenario::parse(text, |name| resolve_beside(name, folder, flat_machine::of))
        .map_err(|e| usage(format!("{path}:{e}")))?;
    let wants = |name: &String| registry().make(name, &scenario.config).is_ok_and(|policy| policy.needs().profiles);
    let known = settings::simulated_profiles(
        args.profiles.as_deref(),
        spec.policies.iter().any(wants),
        &scenario.machine.name,
    )?;
    scenario.know(&known);
    let refused = |e: SimError| match e {
        SimError::Refused(_) => usage(format!("{path}: {e}")),
        SimError::Endless { at, .. } => usage(format!("{path}:{at}: {e}")),
        other => anyhow::Error::new(other).context(path.to_string()),
    };
    if spec.policies.iter().any(|name| name == "heuristic") {
        scenario.characterize(scenario.kernel).map_err(refused)?;
    }
    let (of, mut rounds): (Vec<usize>, Vec<Round>) = rounds(spec).into_iter().unzip();
    let arms: Vec<&str> = std::iter::once(LINUX).chain(spec.policies.iter().map(String::as_str)).collect();
    let jobs: Vec<(usize, &str)> = (0..rounds.len()).flat_map(|r| arms.iter().map(move |arm| (r, *arm))).collect();
    let one = |(round, arm): &(usize, &str)| -> Result<Vec<JobRuns>, SimError> {
        let workload = &spec.workloads[of[*round]];
        let scenario = scenario.for_jobs(workload).ok_or_else(|| SimError::Unknown("no such program".to_owned()))?;
        let seed = rounds[*round].repetition;
        if *arm == LINUX {
            return scenario.staged(workload, None, scenario.kernel, seed, |_| ());
        }
        let policy = registry().make(arm, &scenario.config).map_err(SimError::Unknown)?;
        scenario.staged(workload, Some(&*policy), scenario.kernel, seed, |_| ())
    };
    let all = jobs.len();
    let ran = simulating(|progress| {
        progress(0, all);
        parallel(&jobs, one, |done| progress(done, all))
    });
    let ran = ran.map_err(refused)?;
    for ((round, arm), ran) in jobs.iter().zip(&ran) {
        note(&mut rounds, *round, arm, &spec.workloads[of[*round]], ran)?;
    }
    Ok(Found { machine: Some(scenario.machine.name.clone()), rounds, notes: BTreeSet::new(), signal: None })
}

/// The equivalent options of `run`.
fn manage(args: &Args, policy: &str) -> ManageArgs {
    let policy =
        PolicyArgs { policy: Some(policy.to_owned()), profiles: args.profiles.clone(), ..PolicyArgs::default() };
    ManageArgs { policy, scope: ScopeArgs::default(), output: OutputArgs::default() }
}

fn really(args: &Args, spec: &Spec) -> Result<Found> {
    let mut known = BTreeMap::new();
    for program in &spec.programs {
        let word = OsStr::new(&program.command[0]);
        let file = executable::find(word).ok_or_else(|| {
            usage(format!("app {}: {}: command not found; check the name and PATH", program.name, program.command[0]))
        })?;
        known.extend(executable::look(&file).map(|executable| (program.name.clone(), executable)));
    }
    let mut setups = Vec::new();
    for name in &spec.policies {
        let options = manage(args, name);
        let (topology, machine) = settings::live_machine(Some(&options.policy))?;
        let sensitive = spec.programs.iter().filter(|program| program.latency_sensitive);
        let sensitive: Vec<&str> = sensitive.map(|program| program.name.as_str()).collect();
        setups.push(Setup::live_with(&options, topology, machine, &known, &sensitive)?);
    }
    let topology = settings::live_machine(None)?.0;
    let arms: Vec<Option<&Setup>> = std::iter::once(None).chain(setups.iter().map(Some)).collect();
    let mut found = Found { machine: None, rounds: Vec::new(), notes: BTreeSet::new(), signal: None };
    let mut progress = Progress::new(!args.show_output);
    let all = rounds(spec);
    let (runs, mut done) = (all.len() * arms.len(), 0);
    'rounds: for (r, (w, round)) in all.into_iter().enumerate() {
        let workload = &spec.workloads[w];
        let programs = |job: &cotenant_measure::workload::Job| spec.programs.iter().find(|p| p.name == job.name);
        let programs: Vec<&Program> = workload.jobs.iter().filter_map(programs).collect();
        let mut of_this = vec![round];
        for i in 0..arms.len() {
            // Over the rounds, drift affects all alike.
            let setup = arms[(i + r) % arms.len()];
            let name = setup.map_or(LINUX, Setup::policy);
            let begin = Instant::now();
            let mut look = || {
                progress.show(done as f64 / runs as f64, || {
                    format!("workload run {} of {runs} ({name}), {}", done + 1, about(begin.elapsed()))
                });
                progress.is_on().then(|| Instant::now() + REDRAW)
            };
            let went = live::once(&topology, workload, programs.clone(), setup, args.show_output, &mut look)?;
            found.notes.extend(went.notes);
            match went.ran {
                Ok(ran) => note(&mut of_this, 0, name, workload, &ran)?,
                Err(RunError::Stopped(_)) if went.signal.is_some() => {
                    progress.clear();
                    found.signal = went.signal;
                    tell(format_args!("stopped after {} of {}", done, count(runs as u64, "workload run")));
                    break 'rounds;
                }
                Err(e) => return Err(e.into()),
            }
            done += 1;
        }
        found.rounds.extend(of_this);
    }
    Ok(found)
}
