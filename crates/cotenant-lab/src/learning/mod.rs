//! `cotenant-lab learning`: how close policies come to the best known mapping while programs run, learning included.

mod best;
mod figures;
mod mixes;
mod once;

use anyhow::Context as _;
use best::{Best, Candidate, best};
use cotenant_cli::page::Sheet;
use cotenant_cli::progress::beside;
use cotenant_cli::table::Table;
use cotenant_cli::{answer, machine_arg, usage};
use cotenant_measure::workload::SPAN;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Settings, settings};
use cotenant_sim::app;
use cotenant_sim::batch::parallel;
use cotenant_sim::course::{least_share, mean_share};
use cotenant_sim::optimum::Limits;
use cotenant_sim::physics;
use cotenant_sim::scenario::Scenario;
use figures::{MixRows, Summary, rows, summaries};
use mixes::Mix;
use once::Arm;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const EXAMPLES: &str = "\
Examples:
  cotenant-lab learning --machines ivy-bridge-2s --mixes 5 --seeds 2 --horizon 120
  cotenant-lab learning --policies sam,atom --noise 0.01,0.05 --json > learning.json
  cotenant-lab learning --policies sam --best learning.json          without searching again
  cotenant-lab learning --policies atom --set atom.turn=2s --observe progress_outliers=0.01
  cotenant-lab learning --policies shapes --evaluations 0 --physics smt=0.8 --physics memory_ns=x1.3 --phases 5";

/// Default machines: SAM's, and others with 2 to 32 last-level caches.
const MACHINES: &str =
    "ivy-bridge-2s,xeon-4s-64,epyc-9454-2s,epyc-7742-2s-nps4,westmere-2s,opteron-6276-2s,clovertown-2s";
/// Seconds after which the average so far is reported.
const MARKS: [f64; 3] = [60.0, 120.0, 600.0];
/// Work per thread over simulated time, so that no program ends.
const PLENTY: f64 = 4.0;
/// Seconds of work of programs that restart.
const RUN_S: f64 = 20.0;
/// Mappings per seed that the search evaluates with memory in place; it starts from the overall best.
const LYING: usize = 100;

/// Arguments of `cotenant-lab learning`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Machines, as `cotenant sim` takes them
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = MACHINES)]
    pub machines: Vec<String>,
    /// Mixes per machine at most [default: SAM's 26 mixes and 23 programs on ivy-bridge-2s, 10 drawn ones elsewhere]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub mixes: Option<u64>,
    /// Only mixes whose name contains this text, as in "mix "
    #[arg(long, value_name = "TEXT")]
    pub among: Option<String>,
    /// Draw mixes by this seed, on ivy-bridge-2s, too [default: 1, and SAM's mixes on ivy-bridge-2s]
    #[arg(long, value_name = "SEED")]
    pub draw: Option<u64>,
    /// Drawn mixes have 40 to 100 % of this share of the contexts as threads: with 0.5, half or more of the machine
    /// idles
    #[arg(long, value_name = "SHARE", requires = "draw", conflicts_with = "visits", default_value_t = 1.0)]
    pub busy: f64,
    /// Policies besides Linux alone
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sam")]
    pub policies: Vec<String>,
    /// How many seeds: where Linux starts threads, and how wrong reports are
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,
    /// Standard deviations of the progress that programs report of 100 ms, each a run of its own
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.01")]
    pub noise: Vec<f64>,
    /// Seconds to simulate
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub horizon: f64,
    /// What becomes of memory when threads move
    #[arg(long, value_name = "WHAT", default_value = "stay")]
    pub pages: Pages,
    /// The kernel, as scenarios name it
    #[arg(long, value_name = "NAME", default_value = "eevdf")]
    pub kernel: String,
    /// What no application may lose against Linux's placement, of policies that have such a setting: off or 5%
    #[arg(long, value_name = "SHARE")]
    pub guard: Option<String>,
    /// What policies that can choose make as high as possible; with fair, the best mapping is the one whose slowest
    /// application is fastest
    #[arg(long, value_name = "NAME")]
    pub objective: Option<String>,
    /// A setting of a policy, as in sam.cooldown=false; may be repeated
    #[arg(long, value_name = "POLICY.KEY=VALUE")]
    pub set: Vec<String>,
    /// A key of a scenario's observation, as in gaps=0.1; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub observe: Vec<String>,
    /// A figure of the machine's `[simulator]` section, as in smt=0.5, replacement=lru or `llc_ns=x1.3`; may be
    /// repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub physics: Vec<String>,
    /// Programs alternate: so many seconds with half as many accesses to the last-level cache and other cores again,
    /// and as many with half of them
    #[arg(long, value_name = "SECONDS")]
    pub phases: Option<f64>,
    /// Where programs touch their memory first
    #[arg(long, value_name = "WHERE", default_value = "threads")]
    pub touch: Touch,
    /// Programs come and go as in the paper of resense: eight, each on an eighth of the contexts, at random times
    /// within 400 s; each runs one to ten times, with so many seconds of work
    #[arg(long, value_name = "SECONDS")]
    pub visits: Option<f64>,
    /// How far decided CPUs are widened: cpu, llc or node [default: cpu for auto, shapes and static, else llc]
    #[arg(long, value_name = "TO")]
    pub pin: Option<String>,
    /// Mappings that the search for the best one of a mix evaluates; 0: none is looked for, and shares are of Linux's
    /// speed at rest with the same seed
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub evaluations: usize,
    /// Take the best mappings from a file that --json has written, where it has a mix, instead of searching
    #[arg(long, value_name = "FILE")]
    pub best: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// What becomes of memory when threads move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// It stays where it was touched first, under Linux: the best mapping is the best with memory there. With
    /// +numa-balancing the kernel moves it, and the best mapping is the best with memory touched where threads stand
    Stay,
    /// Policies may move it
    Move,
    /// Programs begin anew every 20 s or so, and touch their memory where they are then
    Anew,
}

/// Where programs touch their memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Touch {
    /// Each thread where it starts, or as the program's file says
    Threads,
    /// All of a program's memory where its first thread starts
    First,
    /// All memory on the machine's first node
    One,
    /// On all nodes alike
    All,
}

impl Touch {
    fn pages(self, nodes: usize) -> Option<app::Pages> {
        match self {
            Self::Threads => None,
            Self::First => Some(app::Pages::FirstThread),
            Self::One => Some(app::Pages::Fixed((0..nodes).map(|node| f64::from(u8::from(node == 0))).collect())),
            Self::All => Some(app::Pages::Interleave),
        }
    }
}

/// A mix on a machine.
struct Case {
    machine: String,
    mix: Mix,
    scenario: Scenario,
}

/// The keys of `--json`.
#[derive(Debug, Serialize)]
struct Results {
    horizon_s: f64,
    seeds: u64,
    kernel: String,
    pages: Pages,
    settings: Settings,
    observe: Vec<String>,
    physics: Vec<String>,
    phases_s: Option<f64>,
    touch: Touch,
    visits_s: Option<f64>,
    /// Seconds at which `after` and `over_linux_best` apply.
    marks: Vec<f64>,
    summaries: Vec<Summary>,
    mixes: Vec<MixRows>,
}

/// Runs the subcommand.
///
/// # Errors
/// If a name is unknown, a setting is rejected, or the solver does not converge.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let settings = settings_of(args)?;
    let arms = arms(args)?;
    // Applications that arrive later have no speed at early marks.
    let early = MARKS.into_iter().filter(|mark| *mark < args.horizon && args.visits.is_none());
    let marks: Vec<f64> = early.chain([args.horizon]).collect();
    let cases = cases(args, &settings)?;
    for arm in &arms {
        let (scenario, policy) = arm.set(&cases[0].scenario)?;
        policy.check(&scenario.ctx()).map_err(|refusal| usage(refusal.to_string()))?;
    }
    let share = if args.objective.as_deref() == Some("fair") { least_share } else { mean_share };
    let known = args.best.as_deref().map(best::read).transpose()?.unwrap_or_default();

    let far = Mutex::new((0.0, String::new()));
    let show = |what: &str, of: usize, n: usize| {
        if let Ok(mut far) = far.lock() {
            *far = (n as f64 / of as f64, format!("{what}: {n} of {of}"));
        }
    };
    let how_far = || far.lock().map_or_else(|_| (0.0, String::new()), |far| far.clone());
    let mixes = beside(how_far, || -> anyhow::Result<Vec<MixRows>> {
        let jobs: Vec<(usize, u64)> = (0..cases.len()).flat_map(|c| (1..=args.seeds).map(move |s| (c, s))).collect();
        let one = |&(case, seed): &(usize, u64)| {
            let Case { machine, mix, scenario } = &cases[case];
            let of = || format!("{machine}, {}, seed {seed}", mix.label);
            once::run(scenario, &arms, &marks, seed).with_context(of)
        };
        let mut runs = parallel(&jobs, one, |n| show("mixes with a seed", jobs.len(), n))?.into_iter();
        let runs: Vec<Vec<_>> = cases.iter().map(|_| runs.by_ref().take(args.seeds as usize).collect()).collect();
        let each: Vec<usize> = (0..cases.len()).collect();
        let one = |&i: &usize| {
            let Case { machine, mix, scenario } = &cases[i];
            let runs = &runs[i];
            let limits = Limits { classes: args.evaluations, evaluations: args.evaluations };
            if args.evaluations == 0 {
                return Ok(without_search(&arms, &cases[i], runs));
            }
            let names = std::iter::once("none").chain(arms.iter().map(|arm| &*arm.policy));
            let ran = |i: usize| runs.iter().map(move |run| if i == 0 { &run.0 } else { &run.1[i - 1] });
            let rests: Vec<_> = names.enumerate().flat_map(|(i, name)| ran(i).map(move |run| (name, run))).collect();
            let candidate =
                |from: &str, run: &once::Ran| Candidate { from: from.to_owned(), places: run.places.clone() };
            let before = best::of(&known, machine, mix);
            let candidates = rests.iter().map(|(from, run)| candidate(from, run)).collect();
            let touched = best(
                scenario,
                &|own| share(own, &runs[0].0.rest),
                None,
                candidates,
                before.map(|best| &best.touched),
                limits,
            )?;
            let limits = Limits { evaluations: limits.evaluations.min(LYING), ..limits };
            let of_seed = |(seed, (linux, others)): (usize, &(once::Ran, Vec<once::Ran>))| {
                let own = arms.iter().zip(others).map(|(arm, run)| candidate(&arm.policy, run));
                let first = Candidate { from: touched.from.clone(), places: touched.places.clone() };
                let candidates = [first, candidate("none", linux)].into_iter().chain(own).collect();
                let known = before.and_then(|best| best.lying.get(seed));
                best(scenario, &|own| share(own, &linux.rest), Some(&linux.pages), candidates, known, limits)
            };
            let stay = runs.iter().enumerate().filter(|_| args.pages == Pages::Stay && !scenario.moves_memory());
            let lying = stay.map(of_seed).collect::<anyhow::Result<Vec<_>>>()?;
            let best = Best { touched, lying };
            let mapped = |run: &once::Ran| {
                if run.places.is_empty() {
                    return Ok(run.rest.clone());
                }
                anyhow::Ok(scenario.at_rest(&run.places, once::long(None))?.0)
            };
            let mapped = (0..=arms.len()).map(|i| ran(i).map(mapped).collect::<anyhow::Result<Vec<_>>>());
            let mapped: Vec<_> = mapped.collect::<anyhow::Result<_>>()?;
            let rows = rows(&arms, runs, &best, &mapped);
            let (lying, best_slowest) = (figures::lying(&best), figures::best_slowest(&best, runs));
            anyhow::Ok(MixRows { machine: machine.clone(), mix: mix.clone(), best, lying, best_slowest, rows })
        };
        parallel(&each, one, |n| show("best mappings", each.len(), n))
    })?;
    let results = Results {
        horizon_s: args.horizon,
        seeds: args.seeds,
        kernel: args.kernel.clone(),
        pages: args.pages,
        settings,
        observe: args.observe.clone(),
        physics: args.physics.clone(),
        phases_s: args.phases,
        touch: args.touch,
        visits_s: args.visits,
        marks,
        summaries: summaries(&mixes),
        mixes,
    };
    answer(args.json, &results, |out| Ok(tables(out, &results)?))
}

/// The arms compared with Linux alone.
fn without_search(arms: &[Arm], case: &Case, runs: &[(once::Ran, Vec<once::Ran>)]) -> MixRows {
    let best = Best::of_linux(runs.iter().map(|run| &run.0));
    let rests = |i: usize| runs.iter().map(move |run| if i == 0 { &run.0 } else { &run.1[i - 1] }.rest.clone());
    let mapped: Vec<Vec<_>> = (0..=arms.len()).map(|i| rests(i).collect()).collect();
    let rows = rows(arms, runs, &best, &mapped);
    let (machine, mix) = (case.machine.clone(), case.mix.clone());
    MixRows { machine, mix, best, lying: 1.0, best_slowest: vec![1.0; runs.len()], rows }
}

/// Checks that the given times are consistent.
fn check(args: &Args) -> anyhow::Result<()> {
    if !(1.0..=1e5).contains(&args.horizon) {
        return Err(usage(format!("--horizon is {}; it must be from 1 to 100000 seconds", args.horizon)));
    }
    if !(0.01..=1.0).contains(&args.busy) {
        return Err(usage(format!("--busy is {}; it must be from 0.01 to 1", args.busy)));
    }
    for (option, seconds) in [("--phases", args.phases), ("--visits", args.visits)] {
        if let Some(seconds) = seconds.filter(|seconds| !(0.01..=1e5).contains(seconds)) {
            return Err(usage(format!("{option} is {seconds}; it must be from 0.01 to 100000 seconds")));
        }
    }
    if args.visits.is_some() && (args.horizon <= SPAN.as_secs_f64() || args.evaluations > 0) {
        let least = SPAN.as_secs();
        let why = "programs that come and go have no best mapping";
        return Err(usage(format!("--visits: {why}; give --evaluations 0, and a --horizon above {least} s")));
    }
    Ok(())
}

/// Settings of policies: `--set`, and those that have an option of their own.
fn settings_of(args: &Args) -> anyhow::Result<Settings> {
    let registry = cotenant_policies::standard();
    let mut settings = Settings::default();
    let mut set = |option: &str, policy: &str, key: &str, value: &str| {
        let section = registry.section(policy).map_err(|why| usage(format!("{option}: {why}")))?;
        settings.set(section, key, settings::value(value));
        registry.check(section, &settings).map_err(|why| usage(format!("{option}: {}", why.why)))
    };
    for text in &args.set {
        let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
        let Some(((policy, key), value)) = parts else {
            return Err(usage(format!("--set {text}: expected POLICY.KEY=VALUE, as in sam.cooldown=false")));
        };
        set(&format!("--set {text}"), policy, key, value)?;
    }
    for (key, value) in [("guard", &args.guard), ("objective", &args.objective)] {
        if let Some(value) = value {
            set(&format!("--{key}"), "shapes", key, value)?;
        }
    }
    Ok(settings)
}

fn arms(args: &Args) -> anyhow::Result<Vec<Arm>> {
    if let Some(noise) = args.noise.iter().find(|noise| !(0.0..=1.0).contains(*noise)) {
        return Err(usage(format!("--noise is {noise}; it must be between 0 and 1")));
    }
    let given: Option<Pin> = args
        .pin
        .as_ref()
        .map(|pin| {
            serde_json::from_value(pin.as_str().into()).map_err(|_| usage(format!("--pin {pin}: cpu, llc or node")))
        })
        .transpose()?;
    let policies = args.policies.iter().filter(|policy| *policy != "none");
    let pairs = policies.flat_map(|policy| args.noise.iter().map(move |noise| (policy, *noise)));
    let arm = |(policy, noise): (&String, f64)| {
        // The settings do not concern requirements of a policy.
        let needs = cotenant_policies::standard().make(policy, &Config::default()).map_err(usage)?.needs();
        let own = if needs.exact { Pin::Cpu } else { Pin::default() };
        Ok(Arm { policy: policy.clone(), noise, pin: given.unwrap_or(own) })
    };
    pairs.map(arm).collect()
}

fn cases(args: &Args, settings: &Settings) -> anyhow::Result<Vec<Case>> {
    let mut all = Vec::new();
    for machine in &args.machines {
        let most = args.mixes.map(|n| n as usize);
        let one = Mix { apps: vec![("cpu".to_owned(), 1)], ..Mix::default() };
        let sim = scenario(args, machine, &one)?.sim;
        let mixes = match args.visits {
            Some(_) => mixes::visits(&sim, most, args.draw)?,
            None => mixes::of(machine, &sim, most, args.draw.map(|seed| (seed, args.busy)), args.among.as_deref())?,
        };
        for mix in mixes {
            let mut scenario = scenario(args, machine, &mix)?;
            scenario.config.settings = settings.clone();
            scenario.config.move_pages = args.pages == Pages::Move;
            all.push(Case { machine: machine.clone(), mix, scenario });
        }
    }
    if all.is_empty() {
        return Err(usage(format!("--among {}: no mix has such a name", args.among.as_deref().unwrap_or_default())));
    }
    Ok(all)
}

fn scenario(args: &Args, machine: &str, mix: &Mix) -> anyhow::Result<Scenario> {
    let (end_s, kernel, anew) = (args.horizon, &args.kernel, args.pages == Pages::Anew);
    let (work_s, runs) = if anew { (RUN_S, 1_000_000) } else { (PLENTY * args.horizon, 1) };
    let work_s = args.visits.unwrap_or(work_s);
    let mut text = format!("machine = '{machine}'\nkernel = '{kernel}'\nend_s = {end_s}\n");
    text += "[observation]\nprogress_noise = 0\n";
    for key in &args.observe {
        let _ = writeln!(text, "{key}");
    }
    for (i, (program, threads)) in mix.apps.iter().enumerate() {
        let _ = write!(text, "[[app]]\nprogram = '{program}'\nthreads = {threads}\nwork_s = {work_s}\n");
        let (arrival_s, runs) = mix.visits.get(i).copied().unwrap_or((0.0, runs));
        let _ = write!(text, "arrival_s = {arrival_s}\nruns = {runs}\n");
    }
    let find = |name: &str| {
        let found = machine_arg::resolve(Some(name)).map_err(|e| e.to_string())?;
        physics::changed(found.machine, &args.physics).map_err(|why| format!("--physics {why}"))
    };
    let scenario = Scenario::parse(&text, find);
    let mut scenario = scenario.map_err(|why| usage(format!("the scenario of {machine}: {why}")))?;
    let pages = args.touch.pages(scenario.sim.nodes());
    for app in &mut scenario.apps {
        let mut program = app::Program::clone(&app.program);
        if let Some(seconds) = args.phases {
            program = program.alternating(app.instructions / work_s * seconds);
        }
        program.pages = pages.clone().unwrap_or(program.pages);
        app.program = Arc::new(program);
    }
    Ok(scenario)
}

fn tables(out: &mut Sheet<'_>, results: &Results) -> io::Result<()> {
    let marks: Vec<String> = results.marks.iter().map(|mark| format!(">{mark} s")).collect();
    let ends = [">worst app", ">lost s", ">moves"];
    let heads = |first: &[&'static str]| -> Vec<String> {
        let own = first.iter().chain(&[">noise", ">at rest"]).map(|head| (*head).to_owned());
        own.chain(marks.iter().cloned()).chain(ends.map(str::to_owned)).collect()
    };
    let noise = |noise: Option<f64>| noise.map_or("–".to_owned(), |noise| format!("{} %", noise * 100.0));
    let share = |value: &f64| format!("{value:.3}");
    let mut table = Table::new(heads(&["mix", "best by", "policy"]).iter().map(String::as_str));
    for MixRows { machine, mix, best, rows, .. } in &results.mixes {
        let apps: Vec<String> = mix.apps.iter().map(|(name, threads)| format!("{threads} {name}")).collect();
        for (i, row) in rows.iter().enumerate() {
            let name = if i == 0 { format!("{machine}, {}: {}", mix.label, apps.join(", ")) } else { String::new() };
            let by = if i == 0 { best.touched.from.clone() } else { String::new() };
            let mut cells = vec![name, by, row.policy.clone(), noise(row.noise), share(&row.rest)];
            cells.extend(row.after.iter().map(share));
            cells.extend([share(&row.worst_app), format!("{:.1}", row.lost_s), format!("{:.0}", row.moves)]);
            table.row(cells);
        }
    }
    out.table(&table)?;
    writeln!(out)?;
    let mut heads = heads(&["machine", ">mixes", "policy"]);
    heads.splice(5..5, [">least", ">mapping", ">lying"].map(str::to_owned));
    heads.push(">over Linux's best".to_owned());
    let mut table = Table::new(heads.iter().map(String::as_str));
    for s in &results.summaries {
        let mut cells = vec![s.machine.clone(), s.mixes.to_string(), s.policy.clone(), noise(s.noise)];
        cells.extend([s.rest, s.rest_least, s.mapping, s.lying].iter().chain(&s.after).map(share));
        cells.extend([share(&s.worst_app), format!("{:.1}", s.lost_s), format!("{:.0}", s.moves)]);
        cells.push(s.over_linux_best.iter().map(share).collect::<Vec<_>>().join(" "));
        table.row(cells);
    }
    out.table(&table)?;
    writeln!(out)?;
    let mut heads: Vec<String> = ["machine", "policy", ">noise"].map(str::to_owned).to_vec();
    heads.extend(marks.iter().cloned());
    heads.extend(
        [">second half", ">worst mix", ">slowest app", ">of the best", ">behind s", ">first over it"]
            .map(str::to_owned),
    );
    let mut table = Table::new(heads.iter().map(String::as_str));
    for s in results.summaries.iter().filter(|s| s.noise.is_some()) {
        let mut cells = vec![s.machine.clone(), s.policy.clone(), noise(s.noise)];
        cells.extend(s.over_linux.iter().chain([&s.late_over_linux]).map(ToString::to_string));
        cells.extend([s.over_linux_least, s.slowest, s.best_slowest].iter().map(share));
        cells.push(format!("{}, {} of {}", s.below[0], s.below[1], s.runs));
        cells.push(format!("{:.1}", s.behind_s));
        let [mean, least] = s.first_over;
        cells.push(format!("{mean:.3} ({least:.3})"));
        table.row(cells);
    }
    out.table(&table)?;
    writeln!(
        out,
        "\nShares of the best mapping known, geometric means over applications, seeds and mixes. At rest: with memory \
         where it is by then, or in the last tenth of the time where the kernel moves it. On average up to each time: \
         learning included. Mapping: as if memory had been touched where threads came to rest, of the best such \
         mapping. Lying: the best with memory where Linux let it be touched, of the same. Worst app: speed at rest \
         over that under Linux, the least. Lost: seconds lost against Linux. Over Linux's best: the worst seed of the \
         worst mix over Linux's best seed, at each time.\n\nThe last table: speed over that under Linux with the same \
         seed, on average up to each time, and in the second half. Geometric means over mixes and seeds with their 95 \
         % intervals. Worst mix: of the seeds' means, at the end. Slowest app: at rest, of each mix and seed, \
         geometric mean; of the best: the same of the best mappings. Below 0.95: mixes with a seed in which an \
         application is that slow at rest, by its speed and by its slowest thread. Behind: seconds of Linux's work \
         missing at most. First over it: the first policy over this one at the end; in brackets, of the worst mix."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(text: &str) -> Args {
        Cli::try_parse_from(std::iter::once("x").chain(text.split_whitespace())).unwrap().args
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, says) in [
            ("--horizon 0.5", "--horizon is 0.5"),
            ("--draw 1 --busy 0", "--busy is 0"),
            ("--noise 1,2", "--noise is 2"),
            ("--policies nosuch", "there is no policy 'nosuch'"),
            ("--machines nosuch", "nosuch"),
            ("--set sam=1", "expected POLICY.KEY=VALUE"),
            ("--set sam.nosuch=1", "nosuch"),
            ("--pin tile", "--pin tile"),
            ("--observe nosuch=1", "nosuch"),
            ("--physics smt", "expected KEY=VALUE"),
            ("--physics nosuch=1", "nosuch"),
            ("--phases 0", "--phases is 0"),
            ("--visits 2", "--evaluations 0"),
            ("--among nosuch", "no mix"),
            ("--best /nosuch", "/nosuch"),
        ] {
            let text = format!("--machines westmere-2s --mixes 1 --seeds 1 --horizon 2 {text}");
            let why = format!("{:#}", run(&args(&text)).unwrap_err());
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
