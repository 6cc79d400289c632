//! The summary of a run, and how it is printed.

use super::lived::{AppTimes, Lived};
use super::progress::{self, ProgressSpan, ProgressSummary};
use super::recorder::Recorder;
use anyhow::{Context, Result};
use cotenant_cli::messages::{self, count, tell};
use cotenant_linux::sense::metrics::MetricSummary;
use cotenant_model::host::HostError;
use cotenant_model::interference::Row;
use cotenant_model::number::scaled;
use cotenant_model::text::clean;
use cotenant_model::usage::Seen;
use cotenant_model::{Mode, Round, TaskId, Topology, view};
use cotenant_setup::args::OutputArgs;
use cotenant_status::hurts;
use cotenant_status::speeds::{SpeedSummary, Speeds};
use cotenant_status::status::outcome_name;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code if a speed could not be judged: in all of a sufficiently long run, or because its metric always failed;
/// with `qos --strict` also for a goal.
pub(crate) const NOT_JUDGED: u8 = 4;

/// The place of a recording.
#[derive(Debug, Serialize)]
pub(crate) struct Recorded {
    pub path: PathBuf,
    bytes: u64,
}

impl Recorded {
    /// Ends the recording of a run with this other use; failures are noted.
    pub(super) fn finish(mut recorder: Recorder, usage: &Seen, notes: &mut Vec<String>) -> Self {
        recorder.used(usage);
        let path = recorder.path().to_owned();
        notes.extend(recorder.finish());
        let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        Self { path, bytes }
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, bytes) = (self.path.display(), self.bytes);
        write!(f, "recorded {bytes} bytes to {path}; read them with `cotenant replay` and `cotenant why`")
    }
}

/// The summary of a run. `--json` prints it, with the command's additions.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub policy: &'static str,
    pub mode: Mode,
    pub exit_code: u8,
    pub seconds: f64,
    /// The part before Cotenant itself was ready.
    #[serde(skip)]
    pub startup: f64,
    #[serde(flatten)]
    pub tally: Tally,
    /// The countable events, in words.
    pub tier: String,
    /// CPU time of Cotenant itself as a fraction of one CPU.
    pub overhead: f64,
    /// Masks given back at the end.
    pub restored: usize,
    /// The first program's reported progress; absent without reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressSummary>,
    /// The readings of `--metric`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricSummary>,
    /// The source of each program's speed, if a policy needed proxies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speeds: Vec<SpeedSummary>,
    /// Each program's CPU time and waits.
    #[serde(rename = "programs", skip_serializing_if = "Vec::is_empty")]
    pub lived: Vec<AppTimes>,
    /// Certain losses of speed by pairs of programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interference: Vec<Row>,
    /// The place of its recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recorded>,
    /// The use of this machine before the start, and during the run.
    pub usage: Seen,
    /// The last signal that requested a stop.
    #[serde(skip)]
    pub signal: Option<i32>,
    pub notes: Vec<String>,
    /// What the run of one program taught, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learnt: Option<String>,
    /// Why the loop ended early, and the state of the programs.
    #[serde(skip)]
    pub failed: Option<(HostError, &'static str)>,
}

impl Summary {
    /// The error that ended the loop, if one did.
    pub fn check(&mut self) -> Result<()> {
        let Some((why, remedy)) = self.failed.take() else { return Ok(()) };
        Err(why).with_context(|| format!("the loop ended early; {remedy}"))
    }

    /// The exit code, or the error that ended the loop.
    pub fn exit(mut self) -> Result<ExitCode> {
        self.check()?;
        Ok(ExitCode::from(self.exit_code))
    }
}

/// Sums during a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tally {
    pub rounds: u64,
    pub tasks: u64,
    pub moves: u64,
    /// Orders that were not carried out, by outcome.
    not_applied: BTreeMap<&'static str, u64>,
    /// Accesses to memory × distance, in the unit of the machine's distances; absent where no accesses were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    access_distance: Option<f64>,
    /// The highest id so far: ids are given in ascending order and only once.
    #[serde(skip)]
    last: Option<TaskId>,
    #[serde(skip)]
    pub(super) notes: BTreeSet<String>,
    #[serde(skip)]
    pub(super) progress: ProgressSpan,
    #[serde(skip)]
    pub(super) speeds: Option<Speeds>,
    #[serde(skip)]
    pub(super) lived: Lived,
}

impl Tally {
    pub(super) fn add(&mut self, topology: &Topology, round: &Round<'_>) {
        let seconds = (round.sample.at - round.prev.at).as_secs_f64();
        if let Some(rate) = view::access_distance(topology, round.view) {
            *self.access_distance.get_or_insert(0.0) += rate * seconds;
        }
        self.rounds += 1;
        let ids = round.sample.tasks.iter().rev().map(|t| t.info.id);
        self.tasks += ids.take_while(|id| Some(*id) > self.last).count() as u64;
        self.last = self.last.max(round.sample.tasks.last().map(|t| t.info.id));
        for outcome in round.outcomes {
            match outcome_name(*outcome) {
                None => self.moves += 1,
                Some(name) => *self.not_applied.entry(name).or_default() += 1,
            }
        }
        self.progress.add(round);
        self.lived.add(round.view);
        self.speeds.iter_mut().for_each(|speeds| speeds.add(round, &round.view.by_app()));
        self.notes.extend(round.decision.iter().flat_map(|d| d.notes.iter().cloned()));
    }
}

/// Prints the summary: a few lines on standard error, or JSON there, so that the command's own output stays its own.
pub(crate) fn report(summary: &Summary, args: &OutputArgs) -> Result<()> {
    if args.json {
        return json(summary);
    }
    if args.quiet {
        return Ok(());
    }
    let tally = &summary.tally;
    let verb = match summary.mode {
        Mode::Observe => "observed",
        Mode::Advise => "advised on",
        Mode::Enforce => "managed",
    };
    let seconds = summary.seconds;
    if tally.rounds == 0 {
        tell(format_args!("{verb} nothing: {}", too_short(seconds, summary.startup)));
    } else {
        let what = format!(" with {}: {}", summary.policy, count(tally.moves, "move"));
        let what = if summary.mode == Mode::Observe { "" } else { &what };
        let (tasks, rounds) = (count(tally.tasks, "task"), count(tally.rounds, "round"));
        let own = summary.overhead * 100.0;
        tell(format_args!("{verb} {tasks} for {seconds:.1} s{what} in {rounds}; own cost {own:.2} % of a CPU"));
        tell(format_args!("counters: {}", summary.tier));
    }
    summary.lived.iter().for_each(|program| tell(program.line(summary.usage.during.as_ref())));
    if let Some(sum) = tally.access_distance {
        tell(format_args!("accesses × distance: {}", scaled(sum)));
    }
    if let Some(progress) = &summary.progress {
        tell(format_args!("progress: {progress}"));
    }
    summary.metrics.iter().for_each(|metric| tell(progress::line(metric)));
    summary.speeds.iter().for_each(tell);
    hurts::lines(&summary.interference).iter().for_each(tell);
    for (outcome, orders) in &tally.not_applied {
        tell(format_args!("{} {outcome}", count(*orders, "order")));
    }
    for note in &summary.notes {
        tell(format_args!("note: {note}"));
    }
    summary.recording.iter().for_each(tell);
    summary.learnt.iter().for_each(tell);
    Ok(())
}

/// Why there was no round.
fn too_short(seconds: f64, startup: f64) -> String {
    let ready = seconds - startup;
    format!(
        "it ended {ready:.3} s after Cotenant was ready (which took {startup:.3} s), before the first round was over"
    )
}

/// A line of JSON on standard error, so that the command's own output stays its own.
pub(crate) fn json(summary: &impl Serialize) -> Result<()> {
    messages::raw(&format!("{}\n", clean(&serde_json::to_string(summary)?)));
    Ok(())
}
