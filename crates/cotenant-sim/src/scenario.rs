//! Scenarios: a machine, its programs, their arrivals, and the policy, as TOML. `docs/reference/scenario.md` describes
//! the keys.

use crate::app::{self, AppError, Fault, Phase, Program, ProgramTable, given, number, programs};
use crate::host::Observation;
use crate::kernel::KernelKind;
use crate::machine::SimMachine;
use crate::reports::Reports;
use crate::world::{AppSpec, Budget, Load};
use cotenant_model::machine::Machine;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Policy};
use cotenant_model::profile::AppProfile;
use cotenant_model::speed::Source;
use cotenant_model::{AppId, CpuSet, Time};
use cotenant_policies::qos::controller::{Controller, PRESETS};
use cotenant_policies::{
    Atom, AtomConfig, CoSchedule, High, Qos, QosConfig, QuantumSettings, Sam, SamConfig, Static, StaticSettings,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;

/// Default seconds of a run alone.
const WORK_S: f64 = 2.0;
/// Latest end of a scenario: four months.
const MAX_END_S: f64 = 1e7;
/// Most threads of a scenario.
const MAX_THREADS: usize = 65_536;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine as policies know it.
    pub machine: Machine,
    /// The machine as the simulator knows it.
    pub sim: Arc<SimMachine>,
    /// The programs.
    pub apps: Vec<AppSpec>,
    /// What policies know of the programs in advance: which are latency-sensitive. [`Scenario::know`] and
    /// [`Scenario::characterize`] add the rest.
    pub profiles: BTreeMap<String, AppProfile>,
    /// The kernel.
    pub kernel: KernelKind,
    /// The user's settings of policies.
    pub config: Config,
    /// Errors of counters.
    pub observation: Observation,
    /// The time by which everything must be done.
    pub end: Time,
    /// Whether finished programs restart until all have finished once, so that none ever runs alone.
    pub restart: bool,
    /// Limit of the simulation's work.
    pub budget: Budget,
    /// Places in the file, for errors that are found later.
    pub spots: Spots,
}

/// A place in a scenario's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl Default for Spot {
    /// The beginning of the file.
    fn default() -> Self {
        Self { line: 1, column: 1 }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Places in a scenario's file, for errors.
#[derive(Clone, Debug, Default)]
pub struct Spots {
    /// Where an application waits for another one, which only `cotenant bench` supports.
    pub after: Option<Spot>,
    /// Where it gives its end.
    pub end: Option<Spot>,
    /// The mapping of `static`.
    pub map: Option<Spot>,
    /// Where each application gives its threads, or where it begins.
    pub apps: Vec<Spot>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    machine: Spanned<String>,
    kernel: Option<Spanned<String>>,
    end_s: Option<Spanned<f64>>,
    #[serde(default)]
    restart: bool,
    #[serde(default)]
    policy: Settings,
    #[serde(default)]
    observation: Counting,
    /// Read by `cotenant bench`; the simulation ignores it.
    #[serde(rename = "bench")]
    _bench: Option<IgnoredAny>,
    #[serde(default)]
    program: BTreeMap<String, Spanned<ProgramTable>>,
    #[serde(default)]
    app: Vec<Spanned<App>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    interval_ms: Option<Spanned<f64>>,
    quantum_ms: Option<Spanned<f64>>,
    pin: Option<Pin>,
    map: Option<Spanned<String>>,
    sam: Option<Spanned<String>>,
    atom: Option<Spanned<String>>,
    qos: Option<Spanned<String>>,
    goal: Option<Spanned<f64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counting {
    noise: Option<Spanned<f64>>,
    gaps: Option<Spanned<f64>>,
    cost_us: Option<Spanned<f64>>,
    page_scan_ns: Option<Spanned<f64>>,
    page_fault_ns: Option<Spanned<f64>>,
    progress_noise: Option<Spanned<f64>>,
    progress_lasting: Option<Spanned<f64>>,
    progress_lasting_s: Option<Spanned<f64>>,
    progress_outliers: Option<Spanned<f64>>,
    progress_outlier_size: Option<Spanned<f64>>,
    progress_jump: Option<Spanned<f64>>,
    progress_jump_every_s: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct App {
    name: Option<String>,
    program: Spanned<String>,
    threads: Option<Spanned<i64>>,
    arrival_s: Option<Spanned<f64>>,
    runs: Option<Spanned<i64>>,
    work_s: Option<Spanned<f64>>,
    instructions: Option<Spanned<f64>>,
    cpus: Option<Spanned<String>>,
    load: Option<Requests>,
    latency_sensitive: Option<bool>,
    /// For `cotenant bench`.
    after: Option<Spanned<String>>,
    #[serde(rename = "command")]
    _command: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requests {
    requests_per_s: Spanned<f64>,
    instructions: Spanned<f64>,
}

const POSITIVE: (f64, f64) = (f64::MIN_POSITIVE, f64::MAX);
const NOT_NEGATIVE: (f64, f64) = (0.0, f64::MAX);
const SHARE: (f64, f64) = (0.0, 1.0);

impl Scenario {
    /// Reads a scenario. `find` finds the machine that it names.
    ///
    /// # Errors
    /// [`AppError`] gives line and column of malformed, unknown, missing or out-of-range parts.
    pub fn parse(text: &str, find: impl Fn(&str) -> Result<Machine, String>) -> Result<Self, AppError> {
        let file: File = toml::from_str(text).map_err(|e| AppError::of_toml(text, &e))?;
        let spot = |offset: usize| {
            let at = AppError::at(text, offset, "");
            Spot { line: at.line, column: at.column }
        };
        let of_app = |app: &Spanned<App>| {
            spot(app.get_ref().threads.as_ref().map_or(app.span().start, |threads| threads.span().start))
        };
        let end = file.end_s.as_ref().map(|end| spot(end.span().start));
        let after = file.app.iter().find_map(|app| app.get_ref().after.as_ref()).map(|after| spot(after.span().start));
        let map = file.policy.map.as_ref().map(|map| spot(map.span().start));
        let spots = Spots { after, end, map, apps: file.app.iter().map(of_app).collect() };
        Self::build(file, find)
            .map(|scenario| Self { spots, ..scenario })
            .map_err(|(offset, message)| AppError::at(text, offset, message))
    }

    fn build(file: File, find: impl Fn(&str) -> Result<Machine, String>) -> Result<Self, Fault> {
        let here = file.machine.span().start;
        let mut machine = find(file.machine.get_ref()).map_err(|why| (here, why))?;
        let sim = SimMachine::of(&machine).map_err(|why| (here, format!("machine {why}")))?;
        machine.profile.clock_hz = Some(sim.clock_hz);
        machine.profile.thresholds = sim.thresholds().or(machine.profile.thresholds);
        let kernel = file.kernel.as_ref().map(parsed).transpose()?;
        let kernel = kernel.unwrap_or_else(|| KernelKind::shipped(sim.nodes()));
        let end_s =
            number("the scenario", "end_s", file.end_s.as_ref(), Some(3_600.0), (f64::MIN_POSITIVE, MAX_END_S), 0)?;
        let mut config = Config { pin: file.policy.pin.unwrap_or_default(), ..Config::default() };
        let mut quantum = QuantumSettings::default();
        for (key, ms, time) in [
            ("interval_ms", &file.policy.interval_ms, &mut config.interval),
            ("quantum_ms", &file.policy.quantum_ms, &mut quantum.quantum),
        ] {
            if let Some(ms) = given("the policy", key, ms.as_ref(), (0.1, 3.6e6))? {
                *time = Duration::from_secs_f64(ms / 1e3);
            }
        }
        config.settings.put(CoSchedule::SECTION, &quantum);
        if let Some(map) = file.policy.map {
            config.settings.put(Static::SECTION, &StaticSettings { map: Some(map.into_inner()) });
        }
        if let Some(sam) = &file.policy.sam {
            config.settings.put(Sam::SECTION, &parsed::<SamConfig>(sam)?);
        }
        if let Some(atom) = &file.policy.atom {
            config.settings.put(Atom::SECTION, &parsed::<AtomConfig>(atom)?);
        }
        let observation = observation(&file.observation)?;
        let own: BTreeMap<String, Arc<Program>> =
            programs(file.program)?.into_iter().map(|(name, program)| (name, Arc::new(program))).collect();
        let mut apps: Vec<AppSpec> = Vec::new();
        if file.app.is_empty() {
            return Err((here, "the scenario has no [[app]]; give at least one".to_owned()));
        }
        let mut sensitive = Vec::new();
        for app in file.app {
            let at = app.span().start;
            let app = app.into_inner();
            sensitive.push(app.latency_sensitive.unwrap_or(app.load.is_some()));
            let spec = spec(app, at, &own, &sim, end_s)?;
            if apps.iter().map(|a| a.threads).sum::<usize>() + spec.threads > MAX_THREADS {
                return Err((at, format!("the scenario has more than {MAX_THREADS} threads; take fewer")));
            }
            apps.push(spec);
        }
        distinguish(&mut apps);
        if let Some(qos) = qos(file.policy.qos.as_ref(), file.policy.goal.as_ref(), &sensitive)? {
            config.settings.put(Qos::SECTION, &qos);
        }
        let profile = |(app, latency_sensitive): (&AppSpec, bool)| {
            (app.name.clone(), AppProfile { latency_sensitive, ..AppProfile::default() })
        };
        let profiles = apps.iter().zip(sensitive).map(profile).collect();
        let (sim, end) = (Arc::new(sim), Time((end_s * 1e9) as u64));
        let (restart, budget, spots) = (file.restart, Budget::default(), Spots::default());
        Ok(Self { machine, sim, apps, profiles, kernel, config, observation, end, restart, budget, spots })
    }
}

fn observation(o: &Counting) -> Result<Observation, Fault> {
    let default = Observation::default();
    let seen = |key, given: &Option<Spanned<f64>>, default, range| {
        number("the observation", key, given.as_ref(), Some(default), range, 0)
    };
    Ok(Observation {
        noise: seen("noise", &o.noise, default.noise, SHARE)?,
        gaps: seen("gaps", &o.gaps, default.gaps, SHARE)?,
        cost_s: seen("cost_us", &o.cost_us, default.cost_s * 1e6, NOT_NEGATIVE)? / 1e6,
        page_scan_s: seen("page_scan_ns", &o.page_scan_ns, default.page_scan_s * 1e9, NOT_NEGATIVE)? / 1e9,
        page_fault_s: seen("page_fault_ns", &o.page_fault_ns, default.page_fault_s * 1e9, NOT_NEGATIVE)? / 1e9,
        progress: reports(o)?,
    })
}

/// What programs report: nothing, unless the file gives the error of reports.
fn reports(o: &Counting) -> Result<Option<Reports>, Fault> {
    let default = Reports::default();
    let rest = [
        ("progress_lasting", &o.progress_lasting, default.lasting, SHARE),
        ("progress_lasting_s", &o.progress_lasting_s, default.lasting_s, POSITIVE),
        ("progress_outliers", &o.progress_outliers, default.outliers, SHARE),
        ("progress_outlier_size", &o.progress_outlier_size, default.outlier_size, SHARE),
        ("progress_jump", &o.progress_jump, default.jump, SHARE),
        ("progress_jump_every_s", &o.progress_jump_every_s, default.jump_every_s, POSITIVE),
    ];
    let Some(noise) = given("the observation", "progress_noise", o.progress_noise.as_ref(), SHARE)? else {
        let lone = rest.iter().find_map(|(key, given, ..)| given.as_ref().map(|given| (key, given)));
        return lone.map_or(Ok(None), |(key, given)| {
            Err((given.span().start, format!("{key} says how programs report progress; give progress_noise, too")))
        });
    };
    let mut values = [0.0; 6];
    for (value, (key, given, default, range)) in values.iter_mut().zip(rest) {
        *value = number("the observation", key, given.as_ref(), Some(default), range, 0)?;
    }
    let [lasting, lasting_s, outliers, outlier_size, jump, jump_every_s] = values;
    Ok(Some(Reports { noise, lasting, lasting_s, outliers, outlier_size, jump, jump_every_s }))
}

fn parsed<T: FromStr<Err: fmt::Display>>(text: &Spanned<String>) -> Result<T, Fault> {
    text.get_ref().parse().map_err(|e: T::Err| (text.span().start, e.to_string()))
}

/// The settings of `qos`: it protects the latency-sensitive programs, measured by IPC, by pausing all others.
fn qos(
    name: Option<&Spanned<String>>,
    goal: Option<&Spanned<f64>>,
    sensitive: &[bool],
) -> Result<Option<QosConfig>, Fault> {
    let share = number("the policy", "goal", goal, Some(0.9), (0.01, 0.999), 0)?;
    let wanted = name.map_or("tracking", |name| name.get_ref().as_str());
    let controller = Controller::preset(wanted, share).ok_or_else(|| {
        let at = name.map_or(0, |name| name.span().start);
        (at, format!("there is no controller '{wanted}'; known: {}", PRESETS.join(", ")))
    })?;
    let apps = |wanted: bool| (0..).zip(sensitive).filter(move |(_, s)| **s == wanted).map(|(i, _)| AppId(i));
    let high: Vec<High> = apps(true).map(|app| High { app, metric: Source::Ipc, goal: None }).collect();
    if high.is_empty() || high.len() == sensitive.len() {
        return match name {
            Some(name) => Err((
                name.span().start,
                "qos serves latency-sensitive programs by naps of others; give some applications latency_sensitive = true, not all"
                    .to_owned(),
            )),
            None => Ok(None),
        };
    }
    // The simulated machine obeys at once, and its counters need no settling time.
    let [settle, patience, silence] = [Duration::ZERO; 3];
    let (low, place, limits) = (apps(false).collect(), true, None);
    Ok(Some(QosConfig { controller, high, low, place, limits, climb: false, settle, patience, silence }))
}

/// Names that occur several times get a number: `mcf06`, `mcf06#2`.
pub(crate) fn distinguish(apps: &mut [AppSpec]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for app in apps {
        let n = seen.entry(app.name.clone()).or_insert(0);
        *n += 1;
        if *n > 1 {
            app.name = format!("{}#{n}", app.name);
        }
    }
}

fn spec(
    app: App,
    here: usize,
    own: &BTreeMap<String, Arc<Program>>,
    sim: &SimMachine,
    end_s: f64,
) -> Result<AppSpec, Fault> {
    let wanted = app.program.get_ref();
    let program = own.get(wanted).cloned().or_else(|| app::known(wanted).cloned().map(Arc::new));
    let program = program.ok_or_else(|| (app.program.span().start, unknown(wanted, own.keys())))?;
    let program = sim.private.map_or(program.clone(), |core| Arc::new(core.carry(&program)));
    let name = app.name.unwrap_or_else(|| wanted.clone());
    let of = &format!("app {name}");
    let whole = |key: &str, value: Option<Spanned<i64>>, most: i64| match value {
        None => Ok(1),
        Some(v) if (1..=most).contains(v.get_ref()) => Ok(*v.get_ref()),
        Some(v) => Err((v.span().start, format!("{key} of {of} is {}; it must be from 1 to {most}", v.get_ref()))),
    };
    let threads = whole("threads", app.threads, MAX_THREADS as i64)? as usize;
    let runs = whole("runs", app.runs, 1_000_000)? as u32;
    let arrival = number(of, "arrival_s", app.arrival_s.as_ref(), Some(0.0), NOT_NEGATIVE, here)?;
    if arrival >= end_s {
        let at = app.arrival_s.map_or(here, |a| a.span().start);
        return Err((at, format!("{of} arrives at {arrival} s, after the end at {end_s} s; raise end_s")));
    }
    let instructions = match (&app.instructions, &app.work_s) {
        (Some(both), Some(_)) => {
            return Err((both.span().start, format!("{of} has both instructions and work_s; give one of them")));
        }
        (Some(_), None) => number(of, "instructions", app.instructions.as_ref(), None, POSITIVE, here)?,
        (None, work) => number(of, "work_s", work.as_ref(), Some(WORK_S), POSITIVE, here)? * alone_per_s(&program, sim),
    };
    let allowed = |text: &Spanned<String>| {
        let fault = |why: String| (text.span().start, format!("cpus of {of}: {why}"));
        let (cpus, usable) = (CpuSet::parse_list(text.get_ref()), sim.topology.usable());
        let cpus = cpus.map_err(|e| fault(e.to_string()))?;
        let none = || fault(format!("the machine can use none of {cpus}; it has {usable}"));
        if cpus.intersects(usable) { Ok(cpus) } else { Err(none()) }
    };
    let cpus = app.cpus.as_ref().map(allowed).transpose()?;
    if let app::Pages::Fixed(shares) = &program.pages
        && shares.len() != sim.nodes()
    {
        let (has, nodes) = (shares.len(), sim.nodes());
        return Err((here, format!("pages of program {wanted} name {has} memory nodes; the machine has {nodes}")));
    }
    let load = match &app.load {
        None => None,
        Some(load) => Some(Load {
            requests_per_s: number(of, "requests_per_s", Some(&load.requests_per_s), None, POSITIVE, here)?,
            instructions: number(of, "instructions", Some(&load.instructions), None, POSITIVE, here)?,
        }),
    };
    let arrival = Time((arrival * 1e9) as u64);
    Ok(AppSpec { name, program, threads, arrival, runs, instructions, load, cpus, pinned: None })
}

/// A suggestion with known names similar to the unknown one.
pub fn unknown<'a>(wanted: &str, own: impl Iterator<Item = &'a String>) -> String {
    let mut known: Vec<&str> = own.map(String::as_str).collect();
    for name in app::known_names() {
        known.push(name);
    }
    let stem = wanted.trim_end_matches(char::is_numeric);
    let like = |k: &&&str| {
        let holds = k.contains(stem) || wanted.contains(k.trim_end_matches(char::is_numeric));
        !stem.is_empty() && (holds || distance(&k.to_lowercase(), &wanted.to_lowercase()) <= 2)
    };
    let near: Vec<&str> = known.iter().filter(like).copied().collect();
    let shown = if near.is_empty() { known } else { near };
    format!("there is no program '{wanted}'; known: {}", shown.join(", "))
}

/// Edits (insert, remove, change) between two words: Levenshtein's distance.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// Instructions per second of one thread alone, with all of its cache and idle local memory.
pub fn alone_per_s(program: &Program, machine: &SimMachine) -> f64 {
    let capacity = machine.caches.first().map_or(0.0, |c| c.bytes);
    let memory = machine.memory_s.first().and_then(|row| row.first()).copied().unwrap_or_default();
    let first = machine.topology.usable().first().map_or(0, cotenant_model::CpuId::index);
    let cost = |p: &Phase| {
        let requests = p.llc_apki / 1000.0;
        let (mut bytes, mut arriving, mut waits) = (0.0, requests, 0.0);
        for near in &machine.near {
            let Some(cache) = near.of[first] else { continue };
            bytes += near.bytes[cache];
            let missing = requests * p.miss_ratio.at(bytes.min(p.footprint_bytes));
            waits += (arriving - missing) * near.hit_s / p.llc_mlp;
            arriving = missing;
        }
        let all = machine.nearer(bytes).with(capacity);
        let misses = requests * p.miss_ratio.at(machine.room(all, p.footprint_bytes).min(p.footprint_bytes));
        waits += (arriving - misses) * machine.llc_s / p.llc_mlp + misses * machine.miss_s(memory, p.mlp);
        let floor = misses * memory / machine.lines_in_flight;
        (p.cpi / machine.clock(1) + waits).max(floor)
    };
    let weight = |p: &Phase| p.instructions.unwrap_or(1.0);
    let instructions: f64 = program.phases.iter().map(weight).sum();
    instructions / program.phases.iter().map(|p| weight(p) * cost(p)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_far_apart_as_letters_change() {
        for (from, to, expected) in [
            ("mcf06", "mcf06", 0),
            ("", "lbm", 3),
            ("lbm", "", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("cpu", "gpu", 1),
            ("abc", "cab", 2),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }
}
