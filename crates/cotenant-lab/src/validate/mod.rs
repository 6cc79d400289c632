//! `cotenant-lab validate`: measured slowdowns against the predictions of `sim --mix`.

mod truth;

use cotenant_cli::progress::simulating;
use cotenant_cli::table::Table;
use cotenant_cli::{answer, machine_arg, usage};
use cotenant_linux::given;
use cotenant_model::machine::Machine;
use cotenant_model::stats::median::middle;
use cotenant_model::stats::rank_correlation;
use cotenant_sim::app::{Phase, Program, known, parse_programs};
use cotenant_sim::flat_machine;
use cotenant_sim::machine::SimMachine;
use cotenant_sim::mix::{MixError, steady};
use cotenant_sim::scenario::unknown;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use truth::Run;

const EXAMPLES: &str = "\
Examples:
  cotenant-lab validate measured.csv --machine my-machine.toml
  cotenant-lab validate measured.csv --machine my-machine.toml --programs mine.toml --json

measured.csv, with a row per program of a run; slowdown is time together over time alone:
  run,program,slowdown
  1,mcf06,1.42
  1,milc06,1.31
  2,mcf06,1.05
  2,povray06,1.00";

/// Number of worst predictions shown.
const WORST: usize = 10;

/// Slowdowns from which errors are also given separately: the many programs without slowdown flatter a model.
const SLOWED: [f64; 2] = [1.1, 1.2];

/// Arguments of `cotenant-lab validate`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What was measured: comma-separated values with the columns run, program, slowdown
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The machine that it was measured on: a TOML file of eight lines, see docs/reference/mix.md, or whatever names a
    /// machine
    #[arg(long, value_name = "MACHINE")]
    pub machine: String,
    /// Programs besides those of workloads/: a TOML file with [program.NAME] tables, as in a scenario
    #[arg(long, value_name = "FILE")]
    pub programs: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// A program in a run, measured and predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Prediction {
    run: String,
    program: String,
    /// Its co-runners in the order of names: `lbm06, mcf06 x2`.
    beside: String,
    measured: f64,
    predicted: f64,
    /// Predicted over measured, less 1.
    error: f64,
}

/// A run without a prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct LeftOut {
    run: String,
    why: String,
}

/// Absolute errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Errors {
    median: f64,
    mean: f64,
    p90: f64,
}

/// Spearman's; `None` if there is nothing to rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Ranks {
    /// The median over the runs that can be ranked.
    inside_runs: Option<f64>,
    /// Their number.
    runs: usize,
    /// For victims with the same co-runners.
    per_aggressor: Inside,
    /// For co-runners of the same victim.
    per_victim: Inside,
    /// Over all programs of all runs.
    overall: Option<f64>,
}

/// A rank correlation inside groups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Inside {
    /// Over the groups that can be ranked.
    median: Option<f64>,
    /// Their number.
    groups: usize,
}

/// Pairs of co-running programs, one of which was slowed more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Pairs {
    pairs: usize,
    /// Fraction predicted in the right order; `None` without a pair.
    ordered_rightly: Option<f64>,
}

/// Results for programs slowed at least this much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Slowed {
    /// The least measured slowdown.
    from: f64,
    programs: usize,
    rank_correlation: Option<f64>,
    error: Option<Errors>,
}

/// The answer; the keys of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Verdict {
    machine: String,
    runs: usize,
    /// Measured and predicted slowdowns.
    programs: usize,
    rank_correlation: Ranks,
    pairs: Pairs,
    error: Errors,
    /// Results for clearly slowed programs.
    slowed: Vec<Slowed>,
    /// The error of predicting no slowdown for every program.
    error_of_no_slowdown: Errors,
    left_out: Vec<LeftOut>,
    predictions: Vec<Prediction>,
}

/// Runs the subcommand.
///
/// # Errors
/// If a file or the machine is invalid, or nothing can be predicted.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let read = |path: &Path| given::text(path).map_err(|e| usage(format!("{}: {e}", path.display())));
    let runs = truth::parse(&read(&args.file)?).map_err(|e| usage(format!("{}:{e}", args.file.display())))?;
    let own = args.programs.as_ref().map_or_else(
        || Ok(BTreeMap::new()),
        |path| parse_programs(&read(path)?).map_err(|e| usage(format!("{}:{e}", path.display()))),
    )?;
    let machine = machine(&args.machine)?;
    let sim = SimMachine::of(&machine).map_err(|e| usage(format!("--machine: {e}")))?;
    let (predictions, left_out) = simulating(|progress| predict(&sim, &own, &runs, progress))
        .map_err(|e| usage(format!("--machine {}: {e}", args.machine)))?;
    let Some(verdict) = judge(machine.name, predictions, left_out.clone()) else {
        let why = left_out
            .first()
            .map_or_else(|| "no slowdown is given".to_owned(), |out| format!("run {}: {}", out.run, out.why));
        return Err(usage(format!("{}: no run can be predicted; {why}", args.file.display())));
    };
    answer(args.json, &verdict, |out| {
        let mut about = Table::new(["", ""]);
        let ranks = verdict.rank_correlation;
        let rho = |rho: Option<f64>| rho.map_or_else(|| "nothing to rank".to_owned(), |rho| format!("{rho:.2}"));
        let inside = |of: Inside, what: &str| match of.median {
            Some(_) => format!("{}, the median over {} {what}", rho(of.median), of.groups),
            None => rho(None),
        };
        about.row(["machine", &verdict.machine]);
        about.row(["runs predicted", &format!("{} of {}", verdict.runs, verdict.runs + verdict.left_out.len())]);
        about.row(["slowdowns compared", &verdict.programs.to_string()]);
        about.row(["rank correlation", &format!("{}, the median over {} runs", rho(ranks.inside_runs), ranks.runs)]);
        about.row(["victims of one company", &inside(ranks.per_aggressor, "companies")]);
        about.row(["companies of one victim", &inside(ranks.per_victim, "victims")]);
        about.row(["over all runs", &rho(ranks.overall)]);
        let Pairs { pairs, ordered_rightly } = verdict.pairs;
        let right =
            ordered_rightly.map_or_else(|| "no pair".to_owned(), |part| format!("{:.1} % of {pairs}", part * 1e2));
        about.row(["which of two is slowed more", &right]);
        out.table(&about)?;
        writeln!(out)?;
        let mut errors =
            Table::new(["error of the slowdown", ">slowdowns", ">median", ">mean", ">90 % within", ">rank"]);
        let mut row = |what: String, programs: usize, of: Option<Errors>, rank: String| {
            let cell = |value: fn(Errors) -> f64| of.map_or("-".to_owned(), |of| format!("{:.1} %", value(of) * 100.0));
            errors.row([what, programs.to_string(), cell(|of| of.median), cell(|of| of.mean), cell(|of| of.p90), rank]);
        };
        row("predicted".to_owned(), verdict.programs, Some(verdict.error), rho(ranks.overall));
        for Slowed { from, programs, rank_correlation, error } in &verdict.slowed {
            let rank = rank_correlation.map_or("-".to_owned(), |_| rho(*rank_correlation));
            row(format!("slowed {from} times or more"), *programs, *error, rank);
        }
        row("if nothing were slowed".to_owned(), verdict.programs, Some(verdict.error_of_no_slowdown), "-".to_owned());
        out.table(&errors)?;
        writeln!(out)?;
        let mut worst: Vec<&Prediction> = verdict.predictions.iter().collect();
        worst.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
        let mut table = Table::new(["worst: program", ">measured", ">predicted", ">error", "run"]);
        for p in worst.into_iter().take(WORST) {
            let figures =
                [format!("{:.3}", p.measured), format!("{:.3}", p.predicted), format!("{:+.1} %", p.error * 100.0)];
            let [measured, predicted, error] = &figures;
            table.row([&p.program, measured, predicted, error, &p.run]);
        }
        out.table(&table)?;
        if !verdict.left_out.is_empty() {
            writeln!(out)?;
            let mut table = Table::new(["left out: run", "why"]);
            for out in &verdict.left_out {
                table.row([&out.run, &out.why]);
            }
            out.table(&table)?;
        }
        Ok(())
    })
}

/// As `sim --mix --machine` takes it.
pub(crate) fn machine(name: &str) -> anyhow::Result<Machine> {
    let machine = machine_arg::resolve_beside(name, Path::new(""), flat_machine::of);
    machine.map_err(|e| usage(format!("--machine: {e}")))
}

/// Predicts each run; runs without a prediction are named with the reason.
///
/// # Errors
/// If the result would depend on where programs run on this machine: then no run can be predicted.
fn predict(
    sim: &SimMachine,
    own: &BTreeMap<String, Program>,
    runs: &[Run],
    progress: &dyn Fn(usize, usize),
) -> Result<(Vec<Prediction>, Vec<LeftOut>), MixError> {
    let (mut predictions, mut left_out) = (Vec::new(), Vec::new());
    let mut alone: BTreeMap<String, f64> = BTreeMap::new();
    for (done, run) in runs.iter().enumerate() {
        progress(done, runs.len());
        match predicted(sim, own, run, &mut alone) {
            Ok(more) => predictions.extend(more),
            Err(Why::Mix(e @ (MixError::Several { .. } | MixError::Near { .. }))) => return Err(e),
            Err(Why::Mix(e)) => left_out.push(LeftOut { run: run.name.clone(), why: e.to_string() }),
            Err(Why::Other(why)) => left_out.push(LeftOut { run: run.name.clone(), why }),
        }
    }
    Ok((predictions, left_out))
}

enum Why {
    Mix(MixError),
    Other(String),
}

impl From<MixError> for Why {
    fn from(e: MixError) -> Self {
        Self::Mix(e)
    }
}

fn predicted(
    sim: &SimMachine,
    own: &BTreeMap<String, Program>,
    run: &Run,
    alone: &mut BTreeMap<String, f64>,
) -> Result<Vec<Prediction>, Why> {
    let find = |name: &String| -> Result<&Phase, Why> {
        let program = own.get(name).or_else(|| known(name));
        program.map(|p| &p.phases[0]).ok_or_else(|| Why::Other(unknown(name, own.keys())))
    };
    let programs = run.members.iter().map(|m| find(&m.program)).collect::<Result<Vec<_>, _>>()?;
    if run.members.iter().all(|m| m.slowdown.is_none()) {
        return Err(Why::Other("no slowdown is given; give at least one".to_owned()));
    }
    // Alone its slowdown is 1 by definition, so that predicting it proves nothing.
    if programs.len() < 2 {
        return Err(Why::Other("one program only; add a row for each that ran beside it".to_owned()));
    }
    let together = steady(sim, &programs)?;
    let mut found = Vec::new();
    for ((member, program), share) in run.members.iter().zip(&programs).zip(&together.shares) {
        let Some(measured) = member.slowdown else { continue };
        let solo = if let Some(solo) = alone.get(&member.program) {
            *solo
        } else {
            let solo = steady(sim, &[program])?.shares[0].cpi;
            alone.insert(member.program.clone(), solo);
            solo
        };
        let predicted = share.cpi / solo;
        found.push(Prediction {
            run: run.name.clone(),
            program: member.program.clone(),
            beside: beside(run, &member.program),
            measured,
            predicted,
            error: predicted / measured - 1.0,
        });
    }
    Ok(found)
}

/// The programs of a run without one of this name.
fn beside(run: &Run, program: &str) -> String {
    let mut copies: BTreeMap<&str, usize> = BTreeMap::new();
    for member in &run.members {
        *copies.entry(&member.program).or_default() += 1;
    }
    copies.entry(program).and_modify(|copies| *copies -= 1);
    let one = |(name, copies): (&&str, &usize)| match copies {
        0 => None,
        1 => Some((*name).to_owned()),
        _ => Some(format!("{name} x{copies}")),
    };
    copies.iter().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// `None` without a prediction.
fn judge(machine: String, predictions: Vec<Prediction>, left_out: Vec<LeftOut>) -> Option<Verdict> {
    let runs = Inside::of(predictions.iter().map(|p| (&*p.run, p)));
    let measured: Vec<f64> = predictions.iter().map(|p| p.measured).collect();
    let rank_correlation = Ranks {
        inside_runs: runs.median,
        runs: runs.groups,
        per_aggressor: Inside::of(predictions.iter().map(|p| (&*p.beside, p))),
        per_victim: Inside::of(predictions.iter().map(|p| (&*p.program, p))),
        overall: ranked(predictions.iter()),
    };
    let slowed = SLOWED.map(|from| {
        let those = || predictions.iter().filter(move |p| p.measured >= from);
        let error = errors(those().map(|p| p.error));
        Slowed { from, programs: those().count(), rank_correlation: ranked(those()), error }
    });
    Some(Verdict {
        machine,
        runs: predictions.iter().map(|p| &p.run).collect::<BTreeSet<_>>().len(),
        programs: predictions.len(),
        rank_correlation,
        pairs: Pairs::of(&predictions),
        error: errors(predictions.iter().map(|p| p.error))?,
        slowed: slowed.to_vec(),
        error_of_no_slowdown: errors(measured.iter().map(|m| 1.0 / m - 1.0))?,
        left_out,
        predictions,
    })
}

fn ranked<'a>(predictions: impl Iterator<Item = &'a Prediction>) -> Option<f64> {
    let (measured, predicted): (Vec<f64>, Vec<f64>) = predictions.map(|p| (p.measured, p.predicted)).unzip();
    rank_correlation(&measured, &predicted)
}

/// Predictions by the names of their groups.
fn grouped<'a>(predictions: impl Iterator<Item = (&'a str, &'a Prediction)>) -> BTreeMap<&'a str, Vec<&'a Prediction>> {
    let mut groups: BTreeMap<&str, Vec<&Prediction>> = BTreeMap::new();
    for (group, p) in predictions {
        groups.entry(group).or_default().push(p);
    }
    groups
}

impl Inside {
    /// Of predictions with the names of their groups.
    fn of<'a>(predictions: impl Iterator<Item = (&'a str, &'a Prediction)>) -> Self {
        let ranks: Vec<f64> =
            grouped(predictions).into_values().filter_map(|group| ranked(group.into_iter())).collect();
        Self { median: (!ranks.is_empty()).then(|| middle(&ranks).value), groups: ranks.len() }
    }
}

impl Pairs {
    /// For programs of different names in each run.
    fn of(predictions: &[Prediction]) -> Self {
        let (mut pairs, mut right) = (0, 0);
        for run in grouped(predictions.iter().map(|p| (&*p.run, p))).values() {
            for (i, one) in run.iter().enumerate() {
                for other in run[..i].iter().filter(|o| o.program != one.program && o.measured != one.measured) {
                    pairs += 1;
                    // Equal predictions do not rank.
                    let agrees = (one.measured - other.measured) * (one.predicted - other.predicted) > 0.0;
                    right += usize::from(agrees);
                }
            }
        }
        Self { pairs, ordered_rightly: (pairs > 0).then(|| right as f64 / pairs as f64) }
    }
}

/// `None` if empty. The 90th percentile is the nearest rank.
fn errors(errors: impl Iterator<Item = f64>) -> Option<Errors> {
    let mut sizes: Vec<f64> = errors.map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    let p90 = *sizes.get((sizes.len() * 9).div_ceil(10).checked_sub(1)?)?;
    Some(Errors { median: middle(&sizes).value, mean: sizes.iter().sum::<f64>() / sizes.len() as f64, p90 })
}

#[cfg(test)]
mod tests;
