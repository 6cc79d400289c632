//! One managed run: host, loop, recorder, and the summary at its end.

use crate::cli::ManageArgs;
use crate::recorder::Recorder;
use crate::settings::Setup;
use anyhow::{Context, Result};
use cotenant_core::{Action, Mode, Outcome, Round, TaskId, View, host};
use cotenant_linux::host::{Finish, HostOptions, LinuxHost};
use cotenant_linux::observe::{AppTarget, Target};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

/// Whether the command's own output is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Shown,
    Discarded,
}

/// What a run came to; `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub policy: &'static str,
    pub mode: Mode,
    pub exit_code: u8,
    pub seconds: f64,
    pub rounds: u64,
    pub tasks: u64,
    pub moves: u64,
    /// Orders that were not carried out, by outcome.
    pub not_applied: BTreeMap<&'static str, u64>,
    /// What could be counted, in words.
    pub tier: String,
    /// CPU time of Cotenant itself as a fraction of one CPU.
    pub overhead: f64,
    /// Masks given back at the end.
    pub restored: usize,
    pub notes: Vec<String>,
}

/// Starts a command and manages it until it ends.
pub(super) fn command(setup: &Setup, args: &ManageArgs, command: &[OsString], output: Output) -> Result<Summary> {
    let name = args.name.clone().unwrap_or_else(|| base_name(&command[0]));
    // Opened before the command starts: a path that cannot be written must not cost the user a run.
    let recorder = Recorder::open(setup, args)?;
    let host = LinuxHost::launch(&setup.topology, name, command, output == Output::Discarded, options(setup, args))?;
    drive(setup, args, host, recorder)
}

/// Manages what runs already until it ends, or a signal asks to stop.
pub(super) fn attached(setup: &Setup, args: &ManageArgs, target: Target) -> Result<Summary> {
    let name = args.name.clone().unwrap_or_else(|| "attached".to_owned());
    let recorder = Recorder::open(setup, args)?;
    let host = LinuxHost::attach(&setup.topology, vec![AppTarget { name, target }], options(setup, args))?;
    drive(setup, args, host, recorder)
}

fn options(setup: &Setup, args: &ManageArgs) -> HostOptions {
    HostOptions { cpus: setup.cpus.clone(), act: setup.mode == Mode::Enforce, other_users: args.all_users, ..HostOptions::default() }
}

fn base_name(command: &OsString) -> String {
    Path::new(command).file_name().unwrap_or(command).to_string_lossy().into_owned()
}

fn drive(setup: &Setup, args: &ManageArgs, mut live: LinuxHost, mut recorder: Recorder) -> Result<Summary> {
    let start = Instant::now();
    let mut tally = Tally::default();
    recorder.start(setup, &live);
    let ended = host::drive(&mut live, setup.policy.as_ref(), &setup.ctx(), setup.mode, |round| {
        tally.add(round);
        if args.verbose > 0 {
            print_moves(round);
        }
        recorder.round(round);
    });
    let seconds = start.elapsed().as_secs_f64();
    let tier = live.tier().to_string();
    let mut notes: Vec<String> = tally.notes.into_iter().chain(live.notes()).collect();
    let Finish { exit_code, restored } = live.finish();
    notes.extend(recorder.finish());
    notes.extend(restored.notes.iter().cloned());
    ended.context("the loop ended early; everything was given back")?;
    Ok(Summary {
        policy: setup.policy.name(),
        mode: setup.mode,
        exit_code,
        seconds,
        rounds: tally.rounds,
        tasks: tally.tasks.len() as u64,
        moves: tally.moves,
        not_applied: tally.not_applied,
        tier,
        overhead: cotenant_linux::host::own_cpu_seconds() / seconds.max(f64::MIN_POSITIVE),
        restored: restored.restored,
        notes,
    })
}

#[derive(Default)]
struct Tally {
    rounds: u64,
    tasks: BTreeSet<TaskId>,
    moves: u64,
    not_applied: BTreeMap<&'static str, u64>,
    notes: BTreeSet<String>,
}

impl Tally {
    fn add(&mut self, round: &Round<'_>) {
        self.rounds += 1;
        self.tasks.extend(round.sample.tasks.iter().map(|t| t.info.id));
        for outcome in round.outcomes {
            match outcome_name(*outcome) {
                None => self.moves += 1,
                Some(name) => *self.not_applied.entry(name).or_default() += 1,
            }
        }
        self.notes.extend(round.decision.iter().flat_map(|d| d.notes.iter().cloned()));
    }
}

/// The name of an outcome other than [`Outcome::Applied`].
fn outcome_name(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Applied => None,
        Outcome::Gone => Some("gone"),
        Outcome::Stale => Some("stale"),
        Outcome::Denied => Some("denied"),
        Outcome::NotThisMachine => Some("advised"),
    }
}

fn print_moves(round: &Round<'_>) {
    for (order, outcome) in round.orders.iter().zip(round.outcomes) {
        let task = order.action.task();
        let (name, from) = describe(round.view, task);
        let to = match &order.action {
            Action::Place { contexts, .. } => format!("{contexts} (affinity {})", order.affinity),
            Action::Release { .. } => "its own mask".to_owned(),
        };
        let result = outcome_name(*outcome).map(|o| format!(" [{o}]")).unwrap_or_default();
        eprintln!("cotenant: {:.1} s: {name}: CPU {from} → {to}{result}: {}", round.sample.at.as_secs_f64(), order.reason);
    }
}

fn describe(view: &View, task: TaskId) -> (String, String) {
    match view.task(task) {
        None => (format!("task {task}"), "?".to_owned()),
        Some(t) => {
            (format!("{} (tid {})", t.info.comm, t.info.tid), t.cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string()))
        }
    }
}

/// Prints the summary: a few lines on stderr, or JSON on stderr so that the command's own output stays its own.
pub(super) fn report(summary: &Summary, args: &ManageArgs) -> Result<()> {
    if args.json {
        eprintln!("{}", serde_json::to_string(summary)?);
        return Ok(());
    }
    if args.quiet {
        return Ok(());
    }
    let verb = match summary.mode {
        Mode::Observe => "observed",
        Mode::Advise => "advised on",
        Mode::Enforce => "managed",
    };
    eprintln!(
        "cotenant: {verb} {} task(s) for {:.1} s with {}: {} move(s) in {} round(s); own cost {:.2} % of a CPU",
        summary.tasks,
        summary.seconds,
        summary.policy,
        summary.moves,
        summary.rounds,
        summary.overhead * 100.0
    );
    eprintln!("cotenant: counters: {}", summary.tier);
    for (outcome, count) in &summary.not_applied {
        eprintln!("cotenant: {count} order(s) {outcome}");
    }
    for note in &summary.notes {
        eprintln!("cotenant: note: {note}");
    }
    Ok(())
}
