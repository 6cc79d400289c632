//! Runs of one application: a started command, or running programs.

use super::learnt::Known;
use super::summary::{self, Summary};
use super::{Observer, Run, recorder, targets};
use anyhow::{Result, bail};
use cotenant_cli::live_view::{LiveView, fit};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::progress::about;
use cotenant_cli::usage;
use cotenant_linux::host::{AppSpec, What};
use cotenant_linux::sense::processes::Target;
use cotenant_model::topology::shared::levels;
use cotenant_model::{Mode, Outcome, Round, Topology};
use cotenant_record::moves::Move;
use cotenant_setup::args::ManageArgs;
use cotenant_setup::names;
use cotenant_setup::settings::{self, Setup};
use cotenant_status::status::outcome_name;
use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time of the live view's first drawing, and its interval.
const FIRST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(500);

/// The subject of a run.
pub(crate) enum One<'a> {
    /// A command to start.
    Command(&'a [OsString]),
    /// Running programs; `all`: the user accepts that these may be all programs here.
    Running { target: Target, all: bool },
}

/// Manages one application and prints the summary.
pub(crate) fn run(args: &ManageArgs, to: Option<recorder::Target<'_>>, one: One<'_>) -> Result<ExitCode> {
    args.scope.only_from_outside()?;
    let (mut summary, setup) = match one {
        One::Command(words) => {
            let (topology, machine) = settings::live_machine(Some(&args.policy))?;
            let setup = Setup::live(args, topology, machine, settings::program_of(words))?;
            (command(&setup, args, to, (words, true), None)?, setup)
        }
        One::Running { target, all } => {
            let setup = around(args, &target, all)?;
            (attached(&setup, args, to, target, None)?, setup)
        }
    };
    let decides = setup.mode != Mode::Observe && setup.policy() == "auto";
    summary.learnt = summary.lived.first().and_then(|program| {
        let known = Known {
            program,
            others: summary.usage.during.as_ref(),
            topology: &setup.topology,
            little_to_choose: little_to_choose(&setup.topology).is_some(),
            seconds: summary.seconds,
            moves: summary.tally.moves,
            decides,
        };
        known.sentence()
    });
    summary::report(&summary, &args.output)?;
    summary.exit()
}

/// The reason if `auto` has little choice here.
pub(crate) fn little_to_choose(topology: &Topology) -> Option<&'static str> {
    let (caches, cpus) = (topology.llc_domains().len(), topology.usable().len());
    let modules = levels(topology, topology.usable()).iter().any(|level| level.instances.len() > caches.max(1));
    if cpus < 2 {
        Some("has no choice here: one CPU")
    } else if caches < 2 && topology.cores().len() == cpus && !modules {
        Some("can only choose which threads share a CPU, of programs whose speed is known")
    } else {
        None
    }
}

/// The setup for running programs; refused if they are all programs here, unless the user accepts that.
pub(crate) fn around(args: &ManageArgs, target: &Target, all: bool) -> Result<Setup> {
    let (topology, machine) = settings::live_machine(Some(&args.policy))?;
    let setup = Setup::live(args, topology.allowing(&target.cpus()), machine, targets::program(target))?;
    let everything = matches!(target, Target::Trees(pids) if pids.contains(&1));
    if everything && !all && setup.mode == Mode::Enforce {
        return Err(usage(
            "every program here descends from process 1; add --all to manage all of them, or --mode observe to watch \
             them",
        ));
    }
    Ok(setup)
}

/// A command to start, with or without its own output.
pub(crate) fn prepare(command: &[OsString], shown: bool) -> Command {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    if !shown {
        child.stdout(Stdio::null()).stderr(Stdio::null());
    }
    child
}

/// Whether threads get masks.
fn places(setup: &Setup) -> bool {
    setup.mode == Mode::Enforce && setup.policy() != "none"
}

/// Starts a command and manages it until it ends.
pub(crate) fn command(
    setup: &Setup,
    args: &ManageArgs,
    to: Option<recorder::Target<'_>>,
    (command, shown): (&[OsString], bool),
    observer: Option<&mut dyn Observer>,
) -> Result<Summary> {
    if command[0].is_empty() {
        return Err(usage("the command is empty; name a program to start"));
    }
    if args.output.verbose > 0 {
        places(setup).then(|| targets::deadlines([std::process::id()])).flatten().into_iter().for_each(tell);
    }
    let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let run = Run::new(setup, to, words)?;
    let what = What::Command(prepare(command, shown));
    go(run, args, names::of_command(command), what, None, observer)
}

/// Manages running programs until they end, or until a signal.
pub(crate) fn attached(
    setup: &Setup,
    args: &ManageArgs,
    to: Option<recorder::Target<'_>>,
    target: Target,
    observer: Option<&mut dyn Observer>,
) -> Result<Summary> {
    if let Some(why) = targets::missing(&target) {
        return Err(usage(why));
    }
    if let Some(why) = targets::unmanageable(&target, args.scope.all_users) {
        return Err(usage(format!("nothing could be managed: {why}")));
    }
    let name = targets::name(&target).unwrap_or_else(|| "attached".to_owned());
    let mut run = Run::new(setup, to, Vec::new())?;
    let told = !args.output.quiet && !args.output.json;
    if told && args.output.verbose == 0 {
        run.view = LiveView::on_terminal(FIRST, EVERY, false);
    }
    let greeting = told.then(|| {
        let does = match setup.mode {
            Mode::Observe => "watching".to_owned(),
            Mode::Advise => format!("advising with {}", setup.policy()),
            Mode::Enforce => format!("managing with {}", setup.policy()),
        };
        let shown = targets::shown(&target);
        let deadlines = places(setup).then(|| targets::deadlines(target.pids())).flatten();
        let does = format!("{does}: {shown}; Ctrl-C ends it and gives everything back, the programs go on");
        [does].into_iter().chain(deadlines.map(str::to_owned)).collect()
    });
    let mut summary = go(run, args, name, What::Running(target), greeting, observer)?;
    summary.check()?;
    if summary.tally.tasks == 0 && summary.signal.is_none() {
        bail!(
            "nothing could be managed: the programs ended at once, or have no tasks that may be managed (no kernel \
             threads or real-time tasks; other users' tasks with --all-users only)"
        );
    }
    summary.exit_code = 0; // attaching ends by a signal
    Ok(summary)
}

fn go(
    mut run: Run<'_>,
    args: &ManageArgs,
    name: String,
    what: What,
    greeting: Option<Vec<String>>,
    observer: Option<&mut dyn Observer>,
) -> Result<Summary> {
    let name = args.scope.name.clone().unwrap_or(name);
    run.apps = vec![AppSpec { metrics: args.scope.outside(), ..AppSpec::new(name, what) }];
    run.options.other_users = args.scope.all_users;
    run.told = !args.output.quiet && !args.output.json;
    let told = args.output.verbose > 0;
    let mut moves = Moves { greeting, told, start: Instant::now(), tasks: 0, made: 0 };
    // The observer that shows more is first.
    let mut observers: Vec<&mut dyn Observer> = vec![&mut moves];
    if let Some(observer) = observer {
        observers.insert(0, observer);
    }
    run.go(&mut observers)
}

/// Prints each move as it is made, or counts them in the live view.
struct Moves {
    greeting: Option<Vec<String>>,
    told: bool,
    start: Instant,
    tasks: usize,
    made: usize,
}

impl Observer for Moves {
    /// The greeting is printed once a task exists.
    fn news(&mut self) -> Vec<String> {
        self.greeting.take_if(|_| self.tasks > 0).unwrap_or_default()
    }

    fn round(&mut self, round: &Round<'_>) {
        self.tasks = round.sample.tasks.len();
        self.made += round.outcomes.iter().filter(|outcome| **outcome == Outcome::Applied).count();
        for (order, outcome) in round.orders.iter().zip(round.outcomes).filter(|_| self.told) {
            let result = outcome_name(*outcome).map(|o| format!(" [{o}]")).unwrap_or_default();
            let moved = Move::new(round.sample, order);
            tell(format_args!("{:.1} s: {moved}{result}", round.sample.at.as_secs_f64()));
        }
    }

    fn view(&mut self, room: (usize, usize)) -> Option<String> {
        let (tasks, moves) = (count(self.tasks as u64, "task"), count(self.made as u64, "move"));
        Some(fit(vec![format!("{}: {tasks}, {moves} so far", about(self.start.elapsed()))], room))
    }
}
