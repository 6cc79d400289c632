//! Measures an application once, so that policies know its reaction to sharing (`ReSense` §2.2; Tang §5.2.1; Feliu et
//! al. §4).
//!
//! A script over a [`Bench`], which runs the application to its end on given CPUs of a live or made-up machine.
//! Everything is measured once per round in rotating order, so that drift affects all values alike.

pub mod caches;
pub mod contention;
#[cfg(test)]
mod tests;

use caches::{Geometry, Misses, Model};
use cotenant_model::CpuSet;
use cotenant_model::Topology;
use cotenant_model::ids::CpuId;
use cotenant_model::number::significant;
use cotenant_model::profile::calibration::LeftOut;
use cotenant_model::profile::{AppProfile, By, Corun, Footprint, Loss, MissCurve, MissPoint, Pressure, Score, loss_at};
use cotenant_model::signal::Signal;
use cotenant_model::topology::shared::{configurations, levels};
use std::collections::BTreeMap;

/// The measurable parts, by their names in `--only`.
pub const PARTS: [&str; 4] = ["sensitivity", "corun", "degradation", "misses"];

/// Background traffic as fractions of the injector's highest rate alone.
const PRESSURES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// The injectors, and the level at which their lines arrive.
pub const INJECTORS: [(&str, &str); 2] = [("l2", "inject-l2"), ("memory", "inject-memory")];

/// Limit of the tuning factor in both directions, so that unreachable rates are not pursued.
const TUNED: f64 = 4.0;

/// The application without injectors.
const QUIET: &str = "without injectors";

/// A shorter run is no measurement: starting a program takes milliseconds.
const SHORTEST_S: f64 = 0.02;

/// A fraction that counts as little: of the misses at the largest size, or of the extra misses at the smallest.
const LITTLE: f64 = 0.05;

/// A known program beside the application, one thread on each CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// Name of the kernel, as in `cotenant kernel --list`.
    pub kernel: String,
    /// One thread on each.
    pub cpus: Vec<CpuId>,
    /// Units per second and thread; `None` = as many as possible.
    pub rate: Option<f64>,
}

/// One run of the application.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The CPUs allowed for its threads.
    pub cpus: CpuSet,
    /// The program beside it.
    pub beside: Option<Beside>,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunResult {
    /// Wall-clock time from its start to its end.
    pub seconds: f64,
    /// Unhalted cycles of all its threads; `None` if they cannot be counted.
    pub cycles: Option<f64>,
    /// CPU time of all its threads; `None` if unknown.
    pub cpu_s: Option<f64>,
    /// Units of work that it reported itself.
    pub units: Option<f64>,
    /// The most simultaneous threads observed.
    pub threads: usize,
    /// Events of all its threads, and their CPU time.
    pub counts: BTreeMap<Signal, f64>,
    /// Units of the program beside it: per second of its CPU time at full speed, otherwise per second.
    pub beside_per_s: Option<f64>,
    /// The same alone, right after this run; `None` if not requested.
    pub beside_alone_per_s: Option<f64>,
}

/// Reasons for no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The user asked to stop.
    #[error("interrupted: nothing was written, and what was measured is lost")]
    Interrupted,
    /// The failure and the remedy.
    #[error("{0}")]
    Failed(String),
    /// What this machine cannot do, and why; other measurements remain possible.
    #[error("{0}")]
    Missing(String),
}

/// A machine that can measure an application.
pub trait Bench {
    /// Runs the application once.
    ///
    /// # Errors
    /// [`Stop`], with no process left running.
    fn run(&mut self, trial: &Trial) -> Result<RunResult, Stop>;

    /// Units of a kernel alone per second of its CPU time, over all threads.
    ///
    /// # Errors
    /// [`Stop`]
    fn alone(&mut self, kernel: &Beside) -> Result<f64, Stop>;

    /// Data references, instructions, and misses of the application on each of these pairs of simulated caches, in
    /// parallel if there are several.
    ///
    /// # Errors
    /// [`Stop`]
    fn simulate(&mut self, caches: &[[Geometry; 2]]) -> Result<Vec<Misses>, Stop>;

    /// Number of parallel runs on simulated caches.
    fn at_once(&self) -> usize {
        1
    }

    /// Shows the progress of the whole (0–1) and the next step; false to stop.
    fn goes_on(&mut self, done: f64, what: &str) -> bool;

    /// Announces the remaining work once a run alone is known: the runs like it, the far longer runs on simulated
    /// caches, and the seconds of the former.
    fn expect(&mut self, _runs: usize, _simulated: usize, _seconds: f64) {}
}

/// The plan of a measurement.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Usable CPUs.
    pub cpus: CpuSet,
    /// Names of [`PARTS`].
    pub parts: Vec<&'a str>,
    /// How often.
    pub rounds: usize,
    /// Kernels for `corun`.
    pub kernels: Vec<String>,
    /// The compared measure; `None`: cycles, else progress, else time.
    pub by: Option<By>,
    /// The injectors of `degradation`.
    pub injectors: Injectors,
}

impl<'a> Plan<'a> {
    /// One round on all CPUs, by the best available measure.
    pub fn new(topology: &'a Topology, parts: &[&'a str], kernels: Vec<String>) -> Self {
        let (cpus, injectors) = (topology.usable().clone(), Injectors::default());
        Self { topology, cpus, parts: parts.to_vec(), rounds: 1, kernels, by: None, injectors }
    }
}

/// Number, place and rate of injectors (Feliu et al. §4.2, figure 6).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Injectors {
    /// One injector on each of these CPUs, which the application then avoids; empty: one, on the last core of a
    /// last-level cache.
    pub cpus: CpuSet,
    /// Units per second of each, by level (`l2`, `memory`); by default a quarter, half, three quarters and all of an
    /// injector's rate alone.
    pub rates: BTreeMap<String, Vec<f64>>,
    /// Total memory traffic, the application's included, at which it is classified, lines per second (§4.4).
    pub traffic_per_s: Option<f64>,
}

/// Results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Characterization {
    /// The profile, without a stamp.
    pub profile: AppProfile,
    /// What could not be measured on this machine or of this application.
    pub left_out: Vec<LeftOut>,
    /// Remarks on the measurements.
    pub notes: Vec<String>,
    /// Runs of the application.
    pub runs: usize,
    /// Mean seconds of a run alone.
    pub alone_s: f64,
    /// CPU seconds of a run alone; `None` if unknown.
    pub alone_cpu_s: Option<f64>,
}

/// An injector's rate, tuned by feedback (Feliu et al. §4) because beside an application it misses its requested rate.
#[derive(Clone, Copy, Debug, Default)]
struct Aim {
    /// Units per second and thread: wanted, and requested. `None`: as many as possible.
    rate: Option<(f64, f64)>,
    threads: f64,
}

impl Aim {
    fn at(beside: Option<&Beside>) -> Self {
        let rate = beside.and_then(|beside| beside.rate).map(|rate| (rate, rate));
        Self { rate, threads: beside.map_or(0.0, |beside| beside.cpus.len() as f64) }
    }

    fn trial(&self, turn: &Trial) -> Trial {
        let mut trial = turn.clone();
        if let (Some(beside), Some((_, asked))) = (&mut trial.beside, self.rate) {
            beside.rate = Some(asked);
        }
        trial
    }

    /// Corrects the next round's request by the shortfall, within [`TUNED`] of the wanted rate.
    fn learn(&mut self, reached_per_s: Option<f64>) {
        let (Some((wanted, asked)), Some(reached)) = (&mut self.rate, reached_per_s) else { return };
        if reached > 0.0 {
            let next = *asked * (*wanted * self.threads / reached);
            *asked = next.clamp(*wanted / TUNED, *wanted * TUNED);
        }
    }
}

/// A run of each round.
#[derive(Clone, Debug)]
struct Turn {
    name: String,
    trial: Trial,
}

/// The run, and its meaning.
#[derive(Default)]
struct Program {
    turns: Vec<Turn>,
    /// Level, and CPUs of base and contend.
    configurations: Vec<(String, CpuSet, CpuSet)>,
    kernels: Vec<Beside>,
    /// Level, injectors, and their rates.
    injectors: Vec<(String, Beside, Vec<f64>)>,
    /// The run without them.
    quiet: &'static str,
}

impl Program {
    fn turn(&mut self, name: impl Into<String>, cpus: &CpuSet, beside: Option<Beside>) {
        self.turns.push(Turn { name: name.into(), trial: Trial { cpus: cpus.clone(), beside } });
    }
}

/// CPUs for the application beside another program: all cores but the last of a last-level cache, and that last one.
fn neighbours(topology: &Topology, cpus: &CpuSet) -> Option<(CpuSet, CpuId)> {
    let firsts: CpuSet = topology.cores().iter().filter_map(|core| core.and(cpus).first()).collect();
    let domains = topology.llc_domains().iter().map(|domain| domain.cpus.and(&firsts));
    let domain = domains.filter(|domain| domain.len() > 1).max_by_key(|d| (d.len(), std::cmp::Reverse(d.first())))?;
    let last = domain.last()?;
    Some((domain.minus(&CpuSet::single(last)), last))
}

/// Measures an application.
///
/// # Errors
/// [`Stop`]; earlier measurements are then lost.
pub fn characterize(plan: &Plan<'_>, bench: &mut dyn Bench) -> Result<Characterization, Stop> {
    let mut c = Characterization::default();
    let program = prepare(plan, bench, &mut c)?;
    let models = if plan.parts.contains(&"misses") { caches::models(plan.topology) } else { Vec::new() };
    let all = (1 + program.turns.len() * plan.rounds + models.len()) as f64;
    // The first run warms the file cache, and shows whether the program runs and what can be counted.
    step(bench, 0.0, "a run alone")?;
    let first = bench.run(&Trial { cpus: plan.cpus.clone(), beside: None })?;
    if first.seconds < SHORTEST_S {
        let ms = first.seconds * 1e3;
        let text = format!("the command ended after {ms:.1} ms: too short to measure; give it more to do");
        return Err(Stop::Failed(text));
    }
    let mut ran: BTreeMap<&str, Vec<RunResult>> = BTreeMap::new();
    c.runs = 1;
    let left = program.turns.len() * plan.rounds;
    bench.expect(left, models.len(), first.seconds * left as f64);
    let mut aims: BTreeMap<&str, Aim> = BTreeMap::new();
    for round in 0..plan.rounds {
        let forth = program.turns.iter();
        let order: Vec<&Turn> = if round % 2 == 0 { forth.collect() } else { forth.rev().collect() };
        for turn in order {
            step(bench, c.runs as f64 / all, &turn.name)?;
            let aim = aims.entry(&turn.name).or_insert_with(|| Aim::at(turn.trial.beside.as_ref()));
            let trial = aim.trial(&turn.trial);
            let mut done = bench.run(&trial)?;
            if let Some(beside) = program.kernels.iter().find(|kernel| Some(*kernel) == turn.trial.beside.as_ref()) {
                done.beside_alone_per_s = Some(bench.alone(beside)?);
            }
            aim.learn(done.beside_per_s);
            ran.entry(&turn.name).or_default().push(done);
            c.runs += 1;
        }
    }
    c.alone_s = first.seconds;
    c.alone_cpu_s = first.cpu_s;
    c.profile.alone_s = Some(first.seconds);
    counted(&first, &mut c.profile);
    sensitivity(&program, &ran, plan.by, &mut c);
    coruns(&program, &ran, plan.by, &mut c);
    degradation(&program, &ran, plan.by, &mut c);
    class(plan, &first, &mut c);
    misses(&models, all, bench, &mut c)?;
    remarks(&first, &ran, &program, &mut c);
    Ok(c)
}

fn step(bench: &mut dyn Bench, done: f64, what: &str) -> Result<(), Stop> {
    if bench.goes_on(done, what) { Ok(()) } else { Err(Stop::Interrupted) }
}

impl Characterization {
    fn leave_out(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        self.left_out.push(LeftOut { name: name.into(), reason: reason.into() });
    }
}

/// The runs of each round; impossible ones are left out with the reason.
fn prepare(plan: &Plan<'_>, bench: &mut dyn Bench, c: &mut Characterization) -> Result<Program, Stop> {
    let mut program = Program::default();
    if plan.parts.contains(&"sensitivity") {
        let levels = levels(plan.topology, &plan.cpus);
        if levels.is_empty() {
            c.leave_out("sensitivity", "no resource is shared by several cores that may be used");
        }
        for level in &levels {
            match configurations(plan.topology, &levels, level) {
                Ok(found) => {
                    program.turn(format!("{} base", level.name()), &found.base, None);
                    program.turn(format!("{} contend", level.name()), &found.contend, None);
                    program.configurations.push((level.name(), found.base, found.contend));
                }
                Err(why) => c.leave_out(format!("sensitivity.{}", level.name()), why),
            }
        }
    }
    let wanted = |part: &str| plan.parts.contains(&part);
    let placed = &plan.injectors.cpus;
    if wanted("degradation") && !placed.is_empty() {
        let cpus = plan.cpus.minus(placed);
        if cpus.is_empty() {
            c.leave_out("degradation", "the injectors leave no CPU to the application");
        } else {
            inject(plan, &cpus, placed, bench, &mut program)?;
        }
    }
    let wanted = |part: &str| wanted(part) && (part == "corun" || placed.is_empty());
    let Some((cpus, beside)) = neighbours(plan.topology, &plan.cpus) else {
        for part in ["corun", "degradation"].into_iter().filter(|part| wanted(part)) {
            c.leave_out(part, "no two cores that may be used share a last-level cache");
        }
        return Ok(program);
    };
    if wanted("corun") {
        program.turn("alone", &cpus, None);
        for kernel in &plan.kernels {
            let kernel = Beside { kernel: kernel.clone(), cpus: vec![beside], rate: None };
            program.turn(format!("beside {}", kernel.kernel), &cpus, Some(kernel.clone()));
            program.kernels.push(kernel);
        }
    }
    if wanted("degradation") {
        inject(plan, &cpus, &CpuSet::single(beside), bench, &mut program)?;
    }
    Ok(program)
}

/// The runs of `degradation`: the application on some CPUs, alone and beside injectors on others.
fn inject(
    plan: &Plan<'_>,
    cpus: &CpuSet,
    beside: &CpuSet,
    bench: &mut dyn Bench,
    program: &mut Program,
) -> Result<(), Stop> {
    program.quiet = "alone";
    if !program.turns.iter().any(|turn| turn.name == program.quiet && turn.trial.cpus == *cpus) {
        program.quiet = QUIET;
        program.turn(QUIET, cpus, None);
    }
    for (level, kernel) in INJECTORS {
        let injector = Beside { kernel: kernel.to_owned(), cpus: beside.iter().collect(), rate: None };
        let rates = if let Some(rates) = plan.injectors.rates.get(level) {
            rates.clone()
        } else {
            step(bench, 0.0, kernel)?;
            let most = bench.alone(&injector)? / beside.len().max(1) as f64;
            PRESSURES.map(|share| most * share).to_vec()
        };
        for &rate in &rates {
            let beside = Beside { rate: Some(rate), ..injector.clone() };
            program.turn(pressure(level, rate), cpus, Some(beside));
        }
        program.injectors.push((level.to_owned(), injector, rates));
    }
    Ok(())
}

fn pressure(level: &str, rate: f64) -> String {
    format!("under {level} traffic of {} lines/s each", significant(rate, 4))
}

/// Cost of a run: by the wanted measure, otherwise by the first that all runs have of cycles, time per unit of
/// progress, and time.
fn cost(runs: &[&[RunResult]], wanted: Option<By>) -> (By, impl Fn(&RunResult) -> f64 + use<>) {
    let of = |ran: &RunResult, by: By| match by {
        By::Cycles => ran.cycles,
        By::Progress => ran.units.filter(|units| *units > 0.0).map(|units| ran.seconds / units),
        By::CpuTime => ran.cpu_s,
        By::Time | By::Model => Some(ran.seconds),
    };
    let order = [wanted.unwrap_or(By::Cycles), By::Cycles, By::Progress, By::Time];
    let known = |by: &By| runs.iter().copied().flatten().all(|ran| of(ran, *by).is_some());
    let by = order.into_iter().find(known).unwrap_or(By::Time);
    (by, move |ran: &RunResult| of(ran, by).unwrap_or(f64::NAN))
}

/// The costs of each round in two kinds of runs.
fn pairs(one: &[RunResult], other: &[RunResult], of: impl Fn(&RunResult) -> f64) -> Vec<(f64, f64)> {
    one.iter().zip(other).map(|(one, other)| (of(one), of(other))).collect()
}

fn sensitivity(program: &Program, ran: &BTreeMap<&str, Vec<RunResult>>, wanted: Option<By>, c: &mut Characterization) {
    for (level, base, contend) in &program.configurations {
        let (b, k) = (format!("{level} base"), format!("{level} contend"));
        let (Some(b), Some(k)) = (ran.get(b.as_str()), ran.get(k.as_str())) else { continue };
        let (by, of) = cost(&[b, k], wanted);
        match Score::of(&pairs(b, k, of), by, base.clone(), contend.clone()) {
            Some(score) => c.profile.sensitivity.insert(level.clone(), score).map_or((), drop),
            None => c.leave_out(format!("sensitivity.{level}"), "a run took no time"),
        }
    }
}

/// The loss in runs beside a program against runs alone, with the same work.
fn loss(alone: &[RunResult], together: &[RunResult], wanted: Option<By>) -> Option<Loss> {
    let (by, of) = cost(&[alone, together], wanted);
    Loss::of(&pairs(alone, together, of), by)
}

fn coruns(program: &Program, ran: &BTreeMap<&str, Vec<RunResult>>, by: Option<By>, c: &mut Characterization) {
    let Some(alone) = ran.get("alone") else { return };
    for kernel in &program.kernels {
        let Some(together) = ran.get(format!("beside {}", kernel.kernel).as_str()) else { continue };
        let speeds = together.iter().filter_map(|ran| ran.beside_alone_per_s.zip(ran.beside_per_s));
        let rounds: Vec<(f64, f64)> = speeds.map(|(alone, beside)| (1.0 / alone, 1.0 / beside)).collect();
        let causes = Loss::of(&rounds, By::Progress);
        match loss(alone, together, by) {
            Some(suffers) => {
                c.profile.corun.insert(kernel.kernel.clone(), Corun { suffers, causes });
            }
            None => c.leave_out(format!("corun.{}", kernel.kernel), "a run took no time"),
        }
    }
    let mean = |of: &dyn Fn(&Corun) -> Option<f64>| {
        let values: Option<Vec<f64>> = c.profile.corun.values().map(of).collect();
        values.filter(|v| !v.is_empty()).map(|v| v.iter().sum::<f64>() / v.len() as f64)
    };
    let means = (mean(&|corun| Some(corun.suffers.loss)), mean(&|corun| Some(corun.causes.as_ref()?.loss)));
    (c.profile.corun_sensitivity, c.profile.contentiousness) = means;
}

fn degradation(program: &Program, ran: &BTreeMap<&str, Vec<RunResult>>, by: Option<By>, c: &mut Characterization) {
    let Some(alone) = ran.get(program.quiet) else { return };
    for (level, injector, rates) in &program.injectors {
        let (threads, cpus) = (injector.cpus.len() as f64, injector.cpus.iter().copied().collect::<CpuSet>());
        let points = rates.iter().filter_map(|rate| {
            let together = ran.get(pressure(level, *rate).as_str())?;
            let reached: Vec<f64> = together.iter().filter_map(|ran| ran.beside_per_s).collect();
            let reached_per_s = reached.iter().sum::<f64>() / reached.len().max(1) as f64;
            let (target_per_s, loss) = (rate * threads, loss(alone, together, by)?);
            Some(Pressure { target_per_s, reached_per_s, loss, cpus: cpus.clone() })
        });
        let points: Vec<Pressure> = points.collect();
        if points.is_empty() {
            c.leave_out(format!("degradation.{level}"), "a run took no time");
        } else {
            c.profile.degradation.insert(level.clone(), points);
        }
    }
}

/// The loss at the requested traffic: injectors draw what the application leaves of it (§4.4).
fn class(plan: &Plan<'_>, alone: &RunResult, c: &mut Characterization) {
    let (Some(all), Some(points)) = (plan.injectors.traffic_per_s, c.profile.degradation.get("memory")) else { return };
    match alone.counts.get(&Signal::LlcMisses) {
        Some(own) => c.profile.average_traffic_loss = loss_at(points, all, own / alone.seconds),
        None => c.leave_out("average_traffic_loss", "the application's own traffic cannot be counted here"),
    }
    if let Some(loss) = &mut c.profile.average_traffic_loss {
        *loss = loss.clamp(0.0, 1.0); // a profile holds no gain
    }
}

fn misses(models: &[Model], all: f64, bench: &mut dyn Bench, c: &mut Characterization) -> Result<(), Stop> {
    let mut points = Vec::new();
    for batch in models.chunks(bench.at_once().max(1)) {
        let left = models.len() - points.len();
        let what = format!("a simulated l{} of {}", batch[0].level, batch[0].cache());
        step(bench, (all - left as f64) / all, &what)?;
        let done = match bench.simulate(&batch.iter().map(|model| [model.first, model.last]).collect::<Vec<_>>()) {
            Ok(done) => done,
            Err(Stop::Missing(why)) => {
                c.leave_out("misses", why);
                return Ok(());
            }
            Err(stop) => return Err(stop),
        };
        for (model, m) in batch.iter().zip(done) {
            let Geometry { bytes, ways, line } = model.cache();
            let misses = model.misses(&m) as f64;
            points.push(MissPoint {
                level: model.level,
                bytes,
                ways,
                line,
                ratio: misses / m.references.max(1) as f64,
                mpki: misses * 1e3 / m.instructions.max(1) as f64,
            });
        }
        c.runs += batch.len();
    }
    points.sort_by_key(|p| (p.level, p.bytes));
    let footprints: Vec<Footprint> = points.chunk_by(|a, b| a.level == b.level).filter_map(footprint).collect();
    if let Some(last) = footprints.last() {
        c.profile.footprint_bytes = Some(last.bytes);
        c.profile.misses = Some(MissCurve { by: By::Model, points, footprints });
    }
    Ok(())
}

/// The application's use of one level, from the points of that level.
fn footprint(points: &[MissPoint]) -> Option<Footprint> {
    let (least, most) = (points.first()?, points.last()?);
    let enough = most.ratio + LITTLE * (least.ratio - most.ratio).max(most.ratio);
    let found = points.iter().find(|p| p.ratio <= enough)?;
    Some(Footprint { level: found.level, bytes: found.bytes, or_more: points.len() > 1 && found.bytes == most.bytes })
}

/// Rates from counters of a run alone: for stand-ins, and the characteristics of Tang §4.1.
fn counted(ran: &RunResult, profile: &mut AppProfile) {
    let Some(cpu_s) = ran.counts.get(&Signal::CpuTime).map(|ns| ns * 1e-9).filter(|s| *s > 0.0) else { return };
    let hardware = ran.counts.iter().filter(|(signal, _)| !Signal::SOFTWARE.contains(signal));
    profile.per_cpu_s = hardware.map(|(signal, count)| (*signal, count / cpu_s)).collect();
    let count = |signal: Signal| ran.counts.get(&signal).copied();
    let (misses, milliseconds) = (count(Signal::LlcMisses), cpu_s * 1e3);
    profile.bus_per_ms = count(Signal::BusTransactions).or(misses).map(|lines| lines / milliseconds);
    // Requests to the last level answered by another core's cache are requests to shared lines.
    let shared = [Signal::Intra, Signal::Inter, Signal::Near].iter().filter_map(|s| count(*s)).sum::<f64>();
    let requests = count(Signal::PrivateMisses).filter(|requests| *requests > 0.0);
    profile.sharing = requests.filter(|_| count(Signal::Intra).is_some()).map(|all| (shared / all).min(1.0));
    profile.footprint_per_ms =
        profile.sharing.zip(misses).map(|(sharing, misses)| misses / milliseconds * (1.0 - sharing));
}

/// Notes on the application for the reader of the profile.
fn remarks(first: &RunResult, ran: &BTreeMap<&str, Vec<RunResult>>, program: &Program, c: &mut Characterization) {
    if !first.counts.contains_key(&Signal::LlcMisses) {
        let why = "hardware events cannot be counted here; cotenant doctor says what would help";
        c.leave_out("bus_per_ms, sharing, footprint_per_ms, per_cpu_s", why);
    }
    let configured = |turn: &&Turn| program.configurations.iter().any(|(_, b, k)| [b, k].contains(&&turn.trial.cpus));
    for turn in program.turns.iter().filter(configured) {
        let wanted = turn.trial.cpus.len();
        let seen: Vec<usize> = ran.get(turn.name.as_str()).into_iter().flatten().map(|ran| ran.threads).collect();
        let (least, most) = (seen.iter().min().copied().unwrap_or(0), seen.iter().max().copied().unwrap_or(0));
        if (least, most) != (wanted, wanted) && most > 0 {
            c.notes.push(format!(
                "{}: it had {least} to {most} threads at once, the configuration is for {wanted}; say {{threads}} in the command \
                 where it takes their number",
                turn.name
            ));
        }
    }
}
