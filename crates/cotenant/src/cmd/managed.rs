//! One managed run: host, loop, recorder, and the summary at its end.

use super::progress::{self, ProgressSummary, Seen};
use crate::cli::{ManageArgs, OutputArgs};
use crate::names;
use crate::recorder::{self, Recorder};
use crate::settings::Setup;
use anyhow::{Context, Result, bail};
use cotenant_cli::words::{count, tell};
use cotenant_cli::{usage, words};
use cotenant_linux::host::{AppSpec, Finish, HostOptions, LinuxHost, What, probe_tier};
use cotenant_linux::sense::metrics::MetricSummary;
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sys;
use cotenant_measure::live::others::Stolen;
use cotenant_model::policy::Ctx;
use cotenant_model::{Mode, Outcome, Round, TaskId, Topology, host, view};
use cotenant_record::moves::Move;
use cotenant_record::{Header, HostDescription};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A command to be started.
pub(super) struct Start<'a> {
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// Whether its own output is let through.
    pub shown: bool,
    /// Says how far it is; called each round.
    pub progress: Option<&'a mut dyn FnMut()>,
}

impl<'a> Start<'a> {
    /// With its output, and without progress: the output tells that.
    pub fn shown(command: &'a [OsString]) -> Self {
        Self { command, shown: true, progress: None }
    }

    /// The command as it is started, with and without Cotenant.
    pub fn prepare(command: &[OsString], shown: bool) -> Command {
        let mut child = Command::new(&command[0]);
        child.args(&command[1..]);
        if !shown {
            child.stdout(Stdio::null()).stderr(Stdio::null());
        }
        child
    }
}

/// Where a recording went.
#[derive(Debug, Serialize)]
pub(super) struct Recorded {
    path: PathBuf,
    bytes: u64,
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
    /// Accesses to memory × distance, in the unit of the machine's distances; absent where no accesses were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_distance: Option<f64>,
    /// What the program reported itself; absent where it reported nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressSummary>,
    /// What `--metric` told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricSummary>,
    /// Where it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recorded>,
    /// The last signal that asked to stop.
    #[serde(skip)]
    pub signal: Option<i32>,
    pub notes: Vec<String>,
}

/// Starts a command and manages it until it ends.
pub(super) fn command(
    setup: &Setup,
    args: &ManageArgs,
    to: Option<recorder::Target<'_>>,
    start: Start<'_>,
) -> Result<Summary> {
    if start.command[0].is_empty() {
        return Err(usage("the command is empty; name a program to start"));
    }
    let name = args.scope.name.clone().unwrap_or_else(|| names::of_command(start.command));
    // Opened before the command starts: a path that cannot be written must not cost the user a run.
    let words = start.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut recorder = open_recorder(to, &setup.ctx(), setup.policy.name(), setup.mode, words)?;
    let since = Instant::now();
    let child = Start::prepare(start.command, start.shown);
    let host = host(setup, args, name, What::Command(child), recorder.is_some())?;
    let mut progress = start.progress;
    let each_round = || {
        if let Some(progress) = &mut progress {
            progress();
        }
    };
    let summary = drive(setup, args, host, recorder.as_mut(), since, each_round)?;
    Ok(with_recording(summary, recorder))
}

/// Manages what runs already until it ends, or a signal asks to stop.
pub(super) fn attached(
    setup: &Setup,
    args: &ManageArgs,
    to: Option<recorder::Target<'_>>,
    target: Target,
) -> Result<Summary> {
    present(&target)?;
    let name = args.scope.name.clone().unwrap_or_else(|| target_name(&target));
    let mut recorder = open_recorder(to, &setup.ctx(), setup.policy.name(), setup.mode, Vec::new())?;
    let start = Instant::now();
    let host = host(setup, args, name, What::Running(target), recorder.is_some())?;
    if !args.output.quiet && !args.output.json && std::io::stderr().is_terminal() {
        tell("attached; Ctrl-C ends it and gives everything back, the programs go on");
    }
    let mut summary = drive(setup, args, host, recorder.as_mut(), start, || {})?;
    if summary.tasks == 0 && summary.signal.is_none() {
        bail!(
            "nothing could be managed: what was attached to ended at once, or has no tasks that may be managed \
             (kernel threads and real-time tasks never, other users' tasks with --all-users only)"
        );
    }
    summary.exit_code = 0; // a signal is how attaching ends
    Ok(with_recording(summary, recorder))
}

/// Refuses targets that are not there, with their names.
fn present(target: &Target) -> Result<()> {
    let missing = match target {
        Target::Pids(pids) | Target::Trees(pids) => {
            pids.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()).map(|pid| format!("process {pid}"))
        }
        Target::Cgroup(path) => (!path.join("cgroup.procs").exists())
            .then(|| format!("control group {}; name its folder, such as /sys/fs/cgroup/my.slice", path.display())),
    };
    missing.map_or(Ok(()), |what| bail!("there is no {what}"))
}

/// The name of a process that is alone, or the last folder of a control group.
fn target_name(target: &Target) -> String {
    let name = match target {
        Target::Pids(pids) | Target::Trees(pids) if pids.len() == 1 => names::of_process(pids[0]),
        Target::Cgroup(path) => Some(names::base(path)),
        Target::Pids(_) | Target::Trees(_) => None,
    };
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "attached".to_owned())
}

fn with_recording(mut summary: Summary, recorder: Option<Recorder>) -> Summary {
    if let Some(recorder) = recorder {
        let path = recorder.path().to_owned();
        summary.notes.extend(recorder.finish());
        let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        summary.recording = Some(Recorded { path, bytes });
    }
    summary
}

/// Opens a recording of what this policy does, where one was asked for.
pub(super) fn open_recorder(
    to: Option<recorder::Target<'_>>,
    ctx: &Ctx<'_>,
    policy: &str,
    mode: Mode,
    command: Vec<String>,
) -> Result<Option<Recorder>> {
    let Some(to) = to else { return Ok(None) };
    let header = Header {
        cotenant: env!("CARGO_PKG_VERSION").to_owned(),
        topology: ctx.topology.clone(),
        machine: ctx.machine.clone(),
        apps: ctx.apps.clone(),
        config: ctx.config.clone(),
        policy: policy.to_owned(),
        rules: Vec::new(),
        mode,
        seeds: Vec::new(),
        host: HostDescription { kernel: kernel_release(), tier: probe_tier(ctx.topology)?.to_string() },
        command,
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|d| d.as_secs()),
        redacted: to.how.record_redacted,
    };
    let recorder = Recorder::create(to.path, &header, to.how.record_limit).map_err(|e| usage(e.to_string()))?;
    Ok(Some(recorder))
}

fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "unknown".to_owned(), |t| t.trim().to_owned())
}

fn host(setup: &Setup, args: &ManageArgs, name: String, what: What, recorded: bool) -> Result<LinuxHost> {
    let options = HostOptions {
        cpus: setup.cpus.clone(),
        act: setup.mode == Mode::Enforce,
        other_users: args.scope.all_users,
        profiles: setup.apps.clone(),
        memory: setup.memory(&args.scope, recorded),
        move_pages: setup.config.move_pages,
        ..HostOptions::default()
    };
    let app = AppSpec { metrics: args.scope.metric.clone(), ..AppSpec::new(name, what) };
    Ok(LinuxHost::new(&setup.topology, vec![app], options)?)
}

fn drive(
    setup: &Setup,
    args: &ManageArgs,
    mut live: LinuxHost,
    mut recorder: Option<&mut Recorder>,
    start: Instant,
    mut each_round: impl FnMut(),
) -> Result<Summary> {
    let (cpu_before, stolen) = (sys::own_cpu_time(), Stolen::watch());
    let metrics = live.metrics();
    let mut tally = Tally::default();
    let ended = host::drive(&mut live, setup.policy.as_ref(), &setup.ctx(), setup.mode, |round| {
        tally.add(round);
        tally.add_distance(&setup.topology, round);
        each_round();
        if !args.output.quiet && !args.output.json {
            metrics.iter().flat_map(|metrics| metrics.news()).for_each(tell);
        }
        if args.output.verbose > 0 {
            print_moves(round);
        }
        tally.notes.extend(recorder.as_mut().and_then(|recorder| recorder.round(round)));
    });
    let tier = live.tier().to_string();
    let mut notes: Vec<String> = tally.notes.into_iter().chain(live.notes()).collect();
    let progress = live.reported().map(|reported| tally.progress.summary(&reported));
    drop(metrics); // the host waits for their commands to end
    let metrics = live.summaries();
    let Finish { exit_code, signal, restored } = live.finish();
    let seconds = start.elapsed().as_secs_f64();
    notes.extend(restored.notes.iter().cloned());
    notes.extend(stolen.and_then(|stolen| stolen.note()));
    ended.context("the loop ended early; everything was given back")?;
    Ok(Summary {
        policy: setup.policy.name(),
        mode: setup.mode,
        exit_code,
        seconds,
        rounds: tally.rounds,
        tasks: tally.tasks,
        moves: tally.moves,
        not_applied: tally.not_applied,
        tier,
        overhead: sys::own_cpu_time().saturating_sub(cpu_before).as_secs_f64() / seconds.max(f64::MIN_POSITIVE),
        restored: restored.restored,
        access_distance: tally.access_distance,
        progress,
        metrics,
        recording: None,
        signal,
        notes,
    })
}

#[derive(Default)]
struct Tally {
    rounds: u64,
    tasks: u64,
    /// The highest id so far: ids are given in ascending order and only once.
    last: Option<TaskId>,
    moves: u64,
    not_applied: BTreeMap<&'static str, u64>,
    notes: BTreeSet<String>,
    progress: Seen,
    access_distance: Option<f64>,
}

impl Tally {
    fn add_distance(&mut self, topology: &Topology, round: &Round<'_>) {
        let seconds = (round.sample.at - round.prev.at).as_secs_f64();
        if let Some(rate) = view::access_distance(topology, round.view) {
            *self.access_distance.get_or_insert(0.0) += rate * seconds;
        }
    }

    fn add(&mut self, round: &Round<'_>) {
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
        let result = outcome_name(*outcome).map(|o| format!(" [{o}]")).unwrap_or_default();
        let moved = Move::new(round.sample, order);
        tell(format_args!("{:.1} s: {moved}{result}", round.sample.at.as_secs_f64()));
    }
}

/// Says the summary: a few lines on standard error, or JSON there, so that the command's own output stays its own.
pub(super) fn report(summary: &Summary, args: &OutputArgs) -> Result<()> {
    if args.json {
        words::raw(&format!("{}\n", serde_json::to_string(summary)?));
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
    if summary.rounds == 0 {
        tell(format_args!(
            "{verb} nothing: it ended after {:.3} s, before the first interval was over",
            summary.seconds
        ));
    } else {
        let what = match summary.mode {
            Mode::Observe => String::new(),
            _ => format!(" with {}: {}", summary.policy, count(summary.moves, "move")),
        };
        tell(format_args!(
            "{verb} {} for {:.1} s{what} in {}; own cost {:.2} % of a CPU",
            count(summary.tasks, "task"),
            summary.seconds,
            count(summary.rounds, "round"),
            summary.overhead * 100.0
        ));
        tell(format_args!("counters: {}", summary.tier));
    }
    if let Some(sum) = summary.access_distance {
        tell(format_args!("accesses × distance: {sum:.3e}"));
    }
    if let Some(progress) = &summary.progress {
        tell(format_args!("progress: {progress}"));
    }
    summary.metrics.iter().for_each(|metric| tell(progress::line(metric)));
    for (outcome, orders) in &summary.not_applied {
        tell(format_args!("{} {outcome}", count(*orders, "order")));
    }
    for note in &summary.notes {
        tell(format_args!("note: {note}"));
    }
    if let Some(Recorded { path, bytes }) = &summary.recording {
        let path = path.display();
        tell(format_args!("recorded {bytes} bytes to {path}; read them with `cotenant replay` and `cotenant why`"));
    }
    Ok(())
}
