//! `cotenant replay`: decisions of another policy on the placements of a recording.

use crate::open::{in_time, open_recording};
use cotenant_cli::messages::count;
use cotenant_cli::{print, print_page, usage};
use cotenant_model::Time;
use cotenant_model::action::Outcome;
use cotenant_model::host::Mode;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{DynPolicy, Policy};
use cotenant_model::text::{NAME, within};
use cotenant_policies::{Static, StaticSettings};
use cotenant_record::moves::Move;
use cotenant_record::replay::{self, Policies, Replayed, names};
use cotenant_record::{Header, Tail};
use cotenant_setup::args::{self, SetArgs};
use cotenant_setup::registry::registry;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant replay a.rec                     does it decide the same again?
  cotenant replay a.rec --policy sam --profile my-machine.toml
  cotenant replay a.rec --threshold coherence_per_cycle=1e-4 --from 10s --to 20s";

/// Arguments of `cotenant replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The recording: what `cotenant record` or `--record` wrote
    pub file: PathBuf,
    /// Policy to replay, see cotenant policies [default: the recorded one]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Machine profile: TOML with [thresholds] [default: the recorded one]
    ///
    /// What it does not say stays as recorded.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// One threshold instead of the recorded one, such as coherence_per_cycle=1e-4. May be repeated
    #[arg(long, value_name = "NAME=VALUE", hide_short_help = true)]
    pub threshold: Vec<String>,
    /// Mapping for the policy static, such as 'X*X*..' [default: the recorded one]
    #[arg(long, hide_short_help = true)]
    pub map: Option<String>,
    /// Settings of single policies
    #[command(flatten)]
    pub set: SetArgs,
    /// How far a decided CPU is widened: cpu, llc or node [default: as recorded; auto, shapes and
    /// static in place of another policy: cpu]
    #[arg(long, value_name = "TO", value_parser = args::pin(), hide_possible_values = true, hide_short_help = true)]
    pub pin: Option<Pin>,
    /// Show rounds from this time on, such as 12.3s
    ///
    /// In seconds since the start. Earlier rounds are decided, too, since the policy remembers them.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Time>,
    /// Show rounds up to this time
    #[arg(long, value_name = "TIME")]
    pub to: Option<Time>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The policy that requested a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    Both,
    Recorded,
    Replayed,
}

#[derive(Debug, Serialize)]
struct Line {
    by: By,
    #[serde(flatten)]
    what: Move,
    /// Its outcome in the recorded run.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

#[derive(Debug, Serialize)]
struct Shown {
    at_s: f64,
    agrees: bool,
    moves: Vec<Line>,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    rounds: u64,
    last_s: f64,
    /// The most tasks in one round.
    tasks: usize,
    recorded_moves: u64,
    recorded_applied: u64,
    replayed_moves: u64,
    differing_rounds: u64,
}

#[derive(Serialize)]
struct Recorded<'a> {
    cotenant: &'a str,
    kernel: &'a str,
    tier: &'a str,
    machine: Option<&'a str>,
    cpus: usize,
    policy: &'a str,
    mode: Mode,
    started_unix_s: Option<u64>,
    redacted: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    recorded: Recorded<'a>,
    policy: &'a str,
    /// Rounds with a move by either policy.
    rounds: &'a [Shown],
    summary: &'a Summary,
    notes: &'a [String],
    tail: &'a Tail,
}

/// Runs the subcommand.
///
/// # Errors
/// An unreadable recording; a policy that cannot work with it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.json { print(|out| write(args, out)) } else { print_page(|out| write(args, out)) }
}

/// Writes the replay.
///
/// # Errors
/// An unreadable recording; a policy that cannot work with it; a closed `out`.
pub fn write(args: &Args, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        return Err(usage(format!("--from {}s lies after --to {}s; swap them", from.as_secs_f64(), to.as_secs_f64())));
    }
    // Moves printed one by one would break the line of progress.
    let watched = args.json || !std::io::stdout().is_terminal();
    let mut recording = open_recording(&args.file, watched)?;
    let header = recording.header().clone();
    let settings = overridden(&header, args)?;
    let policies = Policies::new(&settings, args.policy.as_deref(), &settings.config, registry()).map_err(usage)?;
    let (policy, rules) = (policies.first(), policies.rules(&settings));
    let names = names(&header);

    let (mut summary, mut shown, mut notes) = (Summary::default(), Vec::new(), Vec::new());
    if !args.json {
        opening(out, args, &header, policy)?;
    }
    let mut ends = Time::default();
    for round in replay::replay(recording.by_ref(), &names, rules) {
        ends = round.view.at;
        summary.add(&round);
        for note in round.decision.notes.iter().filter(|_| args.shows(&round)) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        if (round.orders.is_empty() && round.round.orders.is_empty()) || !args.shows(&round) {
            continue;
        }
        let round = Shown::new(&round);
        if args.json {
            shown.push(round);
        } else {
            round.print(out)?;
        }
    }
    if let Some(from) = args.from {
        in_time("--from", from, ends)?;
    }
    let tail = recording.tail().unwrap_or(&Tail::Complete);
    if args.json {
        let recorded = recorded(&header);
        let json = Json { recorded, policy: policy.name(), rounds: &shown, summary: &summary, notes: &notes, tail };
        cotenant_cli::pretty(out, &json)?;
    } else {
        for note in notes {
            writeln!(out, "remark of {}: {note}", policy.name())?;
        }
        summary.print(out, &header, policy)?;
        if *tail != Tail::Complete {
            writeln!(out, "The recording is {tail}.")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn shows(&self, round: &Replayed) -> bool {
        let at = round.view.at;
        self.from.is_none_or(|from| at >= from) && self.to.is_none_or(|to| at <= to)
    }
}

/// The recorded header with the changes from the arguments.
fn overridden(header: &Header, args: &Args) -> anyhow::Result<Header> {
    let mut settings = header.clone();
    if let Some(path) = &args.profile {
        settings.machine = cotenant_setup::files::read_profile(path)?.or(settings.machine);
        settings.topology = cotenant_setup::calibrated::measured(&settings.machine, settings.topology, Some(path))?;
    }
    for change in &args.threshold {
        let wrong = |why: &str| usage(format!("--threshold {change}: {why}"));
        let (key, value) =
            change.split_once('=').ok_or_else(|| wrong("expected NAME=VALUE, as in coherence_per_cycle=1e-4"))?;
        let number: f64 = value.trim().parse().map_err(|_| wrong(&format!("'{value}' is not a number")))?;
        let missing = "the recording has no thresholds to change; give all with --profile FILE";
        let old = settings.machine.thresholds.ok_or_else(|| wrong(missing))?;
        let mut table = toml::Table::try_from(old)?;
        table.insert(key.trim().to_owned(), number.into());
        settings.machine.thresholds = Some(table.try_into().map_err(|e: toml::de::Error| wrong(e.message()))?);
    }
    if let Some(map) = &args.map {
        settings.config.settings.put(Static::SECTION, &StaticSettings { map: Some(map.clone()) });
    }
    let policy = args.policy.as_deref().unwrap_or(&header.policy);
    args.set.apply(&mut settings.config.settings, [policy])?;
    let pin = replay::pin(header, policy, &settings.config, registry());
    settings.config.pin = args.pin.unwrap_or(pin);
    Ok(settings)
}

fn recorded(header: &Header) -> Recorded<'_> {
    Recorded {
        cotenant: &header.cotenant,
        kernel: &header.host.kernel,
        tier: &header.host.tier,
        machine: header.topology.name(),
        cpus: header.topology.online().len(),
        policy: &header.policy,
        mode: header.mode,
        started_unix_s: header.started_unix_s,
        redacted: header.redacted,
    }
}

fn opening(out: &mut dyn Write, args: &Args, header: &Header, policy: &dyn DynPolicy) -> anyhow::Result<()> {
    let Header { cotenant, policy: recorded, topology, .. } = header;
    let mode = match header.mode {
        Mode::Observe => "observing, no policy",
        Mode::Advise => "advising",
        Mode::Enforce => "enforcing",
    };
    let cpus = count(topology.online().len() as u64, "CPU");
    let machine = format!("{cpus} in {}", count(topology.packages().len() as u64, "package"));
    let (file, policy) = (args.file.display(), policy.name());
    writeln!(
        out,
        "{file}: recorded by cotenant {cotenant} under {recorded} ({mode}) on {machine}, replayed under {policy}"
    )?;
    Ok(())
}

impl Shown {
    fn new(replayed: &Replayed) -> Self {
        let (round, sample) = (&replayed.round, &replayed.round.sample);
        let only_recorded: Vec<usize> = replayed.only_recorded().collect();
        let line = |(i, order)| {
            let by = if only_recorded.contains(&i) { By::Recorded } else { By::Both };
            Line { by, what: Move::new(sample, order), outcome: round.outcomes.get(i).copied() }
        };
        let mut moves: Vec<Line> = round.orders.iter().enumerate().map(line).collect();
        let new = |i| Line { by: By::Replayed, what: Move::new(sample, &replayed.orders[i]), outcome: None };
        moves.extend(replayed.only_replayed().map(new));
        Self { at_s: replayed.view.at.as_secs_f64(), agrees: replayed.agrees(), moves }
    }

    fn print(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for line in &self.moves {
            let mark = match line.by {
                By::Both => '=',
                By::Recorded => '-',
                By::Replayed => '+',
            };
            write!(out, "{:>10.3} s {mark} {}", self.at_s, line.what)?;
            match line.outcome {
                None | Some(Outcome::Applied | Outcome::NotThisMachine) => {}
                Some(Outcome::Gone) => write!(out, " (it was gone)")?,
                Some(Outcome::Stale) => write!(out, " (another agent had changed it)")?,
                Some(Outcome::Denied) => write!(out, " (was not permitted)")?,
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Summary {
    fn add(&mut self, round: &Replayed) {
        self.rounds += 1;
        self.last_s = round.view.at.as_secs_f64();
        self.tasks = self.tasks.max(round.view.tasks.len());
        self.recorded_moves += round.round.orders.len() as u64;
        self.recorded_applied += round.round.outcomes.iter().filter(|o| **o == Outcome::Applied).count() as u64;
        self.replayed_moves += round.orders.len() as u64;
        self.differing_rounds += u64::from(!round.agrees());
    }

    fn print(&self, out: &mut dyn Write, header: &Header, policy: &dyn DynPolicy) -> anyhow::Result<()> {
        let recorded = if header.mode == Mode::Observe {
            "recorded without a policy".to_owned()
        } else {
            let moves = count(self.recorded_moves, "move");
            format!("recorded {}: {moves}, {} applied", within(&header.policy, NAME), self.recorded_applied)
        };
        let (rounds, differing) = (count(self.rounds, "round"), count(self.differing_rounds, "round"));
        let (tasks, moves) = (count(self.tasks as u64, "task"), count(self.replayed_moves, "move"));
        let replayed = format!("replayed {}: {moves}; they differ in {differing}", policy.name());
        Ok(writeln!(out, "{rounds} in {:.3} s, at most {tasks}; {recorded}; {replayed}", self.last_s)?)
    }
}
