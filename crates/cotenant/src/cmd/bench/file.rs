//! The file of `cotenant bench`: a scenario with commands, and the comparison. `docs/reference/bench.md` describes the
//! keys.

use cotenant_measure::workload::{Arrival, Job, MOST_RUNS, SPAN, Size, Workload};
use cotenant_model::Time;
use cotenant_model::parse::{Located, position};
use cotenant_setup::{names, registry::registry};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::time::Duration;
use toml::Spanned;

/// Longest run of a real program where the file does not say.
const TIMEOUT_S: f64 = 600.0;
/// Latest arrival, and longest run: a week.
const WEEK_S: f64 = 604_800.0;

/// The runs and their comparison.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Whether the file names a machine.
    pub simulated: bool,
    /// Policies to compare with Linux alone; at least one.
    pub policies: Vec<String>,
    /// Number of runs of each workload.
    pub repetitions: u64,
    /// All programs.
    pub programs: Vec<Program>,
    /// At least one; their jobs are named as the programs.
    pub workloads: Vec<Workload>,
}

/// A program of the file.
#[derive(Debug)]
pub(crate) struct Program {
    pub name: String,
    pub command: Vec<String>,
    pub latency_sensitive: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "the other keys of a scenario are checked where it is simulated")]
struct File {
    machine: Option<Spanned<String>>,
    kernel: Option<IgnoredAny>,
    end_s: Option<IgnoredAny>,
    restart: Option<Spanned<bool>>,
    policy: Option<IgnoredAny>,
    observation: Option<IgnoredAny>,
    program: Option<IgnoredAny>,
    bench: Option<Bench>,
    #[serde(default)]
    app: Vec<Spanned<App>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bench {
    policies: Option<Spanned<Vec<Spanned<String>>>>,
    repetitions: Option<Spanned<i64>>,
    timeout_s: Option<Spanned<f64>>,
    workload: Option<Generated>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Generated {
    size: Spanned<String>,
    count: Option<Spanned<i64>>,
    seed: Option<Spanned<i64>>,
    span_s: Option<Spanned<f64>>,
    runs: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "the other keys of a scenario are checked where it is simulated")]
struct App {
    name: Option<String>,
    program: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    threads: Option<IgnoredAny>,
    arrival_s: Option<Spanned<f64>>,
    after: Option<Spanned<String>>,
    runs: Option<Spanned<i64>>,
    work_s: Option<IgnoredAny>,
    instructions: Option<IgnoredAny>,
    cpus: Option<IgnoredAny>,
    load: Option<IgnoredAny>,
    #[serde(default)]
    latency_sensitive: bool,
}

/// The fault, and its offset.
type Fault = (usize, String);

/// A fault at this place.
fn at<T, R>(place: &Spanned<T>, why: impl Into<String>) -> Result<R, Fault> {
    Err((place.span().start, why.into()))
}

fn whole(key: &str, value: Option<&Spanned<i64>>, default: i64, most: i64) -> Result<u64, Fault> {
    let Some(value) = value else { return Ok(default as u64) };
    let n = *value.get_ref();
    if (1..=most).contains(&n) {
        return Ok(n as u64);
    }
    at(value, format!("{key} is {n}; it must be from 1 to {most}"))
}

fn seconds(key: &str, value: Option<&Spanned<f64>>, default: f64) -> Result<f64, Fault> {
    let Some(value) = value else { return Ok(default) };
    let s = *value.get_ref();
    if (0.0..=WEEK_S).contains(&s) {
        return Ok(s);
    }
    at(value, format!("{key} is {s}; it must be from 0 to {WEEK_S} seconds"))
}

impl Spec {
    /// Reads the file; with `here`, for real programs even if it names a machine.
    ///
    /// # Errors
    /// One line with line, column and remedy.
    pub fn parse(text: &str, here: bool) -> Result<Self, String> {
        let at = |offset: usize, message: &str| {
            let (line, column) = position(text, offset);
            format!("{line}:{column}: {message}")
        };
        let file: File = toml::from_str(text).map_err(|e| Located::of_toml(text, &e).to_string())?;
        Self::build(file, here).map_err(|(offset, message)| at(offset, &message))
    }

    fn build(file: File, here: bool) -> Result<Self, Fault> {
        let bench = file.bench.unwrap_or_default();
        if let Some(restart) = file.restart.as_ref().filter(|restart| *restart.get_ref()) {
            return at(restart, "restart is for cotenant sim; say how many runs each app has");
        }
        let Some(policies) = bench.policies else {
            return Err((0, "[bench] has no policies; name those to compare with Linux alone".to_owned()));
        };
        if policies.get_ref().is_empty() {
            return at(&policies, "policies is empty; name at least one");
        }
        for policy in policies.get_ref() {
            registry().find(policy.get_ref()).map(drop).or_else(|why| at(policy, why))?;
            if policy.get_ref() == "none" {
                return at(policy, "none is what the others are compared with; leave it out");
            }
        }
        let policies = policies.into_inner().into_iter().map(Spanned::into_inner).collect();
        let simulated = file.machine.is_some() && !here;
        if file.app.is_empty() {
            return Err((0, "there is no [[app]]; give at least one".to_owned()));
        }
        let mut programs: Vec<Program> = Vec::new();
        for app in &file.app {
            programs.push(program(app, simulated, &programs)?);
        }
        let timeout = bench.timeout_s.as_ref().map(|t| seconds("timeout_s", Some(t), 0.0)).transpose()?;
        let longest = timeout.or((!simulated).then_some(TIMEOUT_S)).map(Duration::from_secs_f64);
        let mut workloads = match &bench.workload {
            Some(generated) => generate(generated, &file.app, &programs)?,
            None => vec![listed(&file.app, &programs)?],
        };
        for workload in &mut workloads {
            workload.longest = longest;
        }
        let repetitions = whole("repetitions", bench.repetitions.as_ref(), 5, 1_000)?;
        Ok(Self { simulated, policies, repetitions, programs, workloads })
    }
}

fn program(app: &Spanned<App>, simulated: bool, others: &[Program]) -> Result<Program, Fault> {
    let (here, app) = (app, app.get_ref());
    let command = app.command.as_ref().map_or(&[][..], |command| command.get_ref());
    let called = || command.first().map(|_| names::of_command(command));
    let program = app.program.as_ref().map(|program| program.get_ref().clone());
    let (wanted, done, example) = if simulated {
        ("program", "simulated", "program = \"mcf06\"")
    } else {
        ("command", "run on this machine", "command = [\"xz\", \"-k\", \"big.tar\"]")
    };
    let Some(name) = app.name.clone().or_else(|| if simulated { program } else { called() }) else {
        return at(here, format!("this app has no {wanted}; give one, such as {example}"));
    };
    let missing = if simulated { app.program.is_none() } else { command.first().is_none_or(String::is_empty) };
    if missing {
        return at(
            here,
            format!("app {name} has no {wanted}, so that it cannot be {done}; give one, such as {example}"),
        );
    }
    if others.iter().any(|other| other.name == name) {
        return at(here, format!("there are two apps called {name}; give one of them another name"));
    }
    Ok(Program { name, command: command.to_vec(), latency_sensitive: app.latency_sensitive })
}

/// The apps as they are listed, each a job.
fn listed(apps: &[Spanned<App>], programs: &[Program]) -> Result<Workload, Fault> {
    let mut jobs = Vec::new();
    for (app, program) in apps.iter().zip(programs) {
        let app = app.get_ref();
        let runs = whole(&format!("runs of app {}", program.name), app.runs.as_ref(), 1, 1_000_000)? as u32;
        let arrival = match (&app.after, &app.arrival_s) {
            (Some(after), Some(_)) => {
                return at(after, format!("app {} has both after and arrival_s; give one of them", program.name));
            }
            (Some(after), None) => Arrival::After(find(after, programs)?),
            (None, arrival) => Arrival::At(Time((seconds("arrival_s", arrival.as_ref(), 0.0)? * 1e9) as u64)),
        };
        jobs.push(Job { name: program.name.clone(), arrival, runs });
    }
    for (job, app) in apps.iter().enumerate() {
        // Each chain of `after` must end at an app with its own arrivals.
        let mut next = job;
        for _ in 0..jobs.len() {
            if let Arrival::After(other) = jobs[next].arrival {
                next = other;
            }
        }
        if let (Arrival::After(_), Some(after)) = (jobs[next].arrival, &app.get_ref().after) {
            return at(after, format!("app {} waits for itself, through {}", jobs[job].name, after.get_ref()));
        }
    }
    Ok(Workload { jobs, restart: false, longest: None })
}

fn find(name: &Spanned<String>, programs: &[Program]) -> Result<usize, Fault> {
    let known = || programs.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = programs.iter().position(|p| p.name == *name.get_ref());
    found.map_or_else(|| at(name, format!("there is no app '{}'; there are {}", name.get_ref(), known())), Ok)
}

/// Random workloads of the apps.
fn generate(g: &Generated, apps: &[Spanned<App>], programs: &[Program]) -> Result<Vec<Workload>, Fault> {
    for app in apps.iter().map(Spanned::get_ref) {
        let drawn = |key| format!("{key} is drawn where there is a [bench.workload]; leave it out");
        app.arrival_s.as_ref().map_or(Ok(()), |here| at(here, drawn("arrival_s")))?;
        app.after.as_ref().map_or(Ok(()), |here| at(here, drawn("after")))?;
        app.runs.as_ref().map_or(Ok(()), |here| at(here, drawn("runs")))?;
    }
    let size: Size = g.size.get_ref().parse().or_else(|why: String| at(&g.size, why))?;
    let count = whole("count", g.count.as_ref(), 10, 1_000)?;
    let first = whole("seed", g.seed.as_ref(), 1, i64::MAX - 1_000)?;
    let span = Duration::from_secs_f64(seconds("span_s", g.span_s.as_ref(), SPAN.as_secs_f64())?);
    let runs = whole("runs", g.runs.as_ref(), i64::from(MOST_RUNS), 1_000)? as u32;
    let pool: Vec<String> = programs.iter().map(|p| p.name.clone()).collect();
    Ok((first..first + count).map(|seed| Workload::generate(size, &pool, span, runs, seed)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[bench]\npolicies = ['resense']\nrepetitions = 2\n\
        [[app]]\ncommand = ['/bin/true', '1']\narrival_s = 0.5\n\
        [[app]]\nname = 'b'\ncommand = ['false']\nafter = 'true'\nruns = 3\n";

    #[test]
    fn a_list_of_commands() {
        let spec = Spec::parse(GOOD, false).unwrap();
        assert_eq!(
            (spec.simulated, spec.repetitions, spec.policies.as_slice()),
            (false, 2, &["resense".to_owned()][..])
        );
        assert_eq!(spec.workloads[0].to_string(), "{0.5(true,1) after true(b,3)}");
        assert_eq!(spec.workloads[0].longest, Some(Duration::from_secs(600)));
        assert_eq!(spec.programs[0].command, ["/bin/true", "1"]);
    }

    #[test]
    fn drawn_workloads() {
        let text = "machine = 'yorkfield'\n[bench]\npolicies = ['resense']\nworkload = { size = 'medium', count = 3, seed = 5, span_s = 4 }\n\
            [[app]]\nprogram = 'mcf06'\ncommand = ['a']\n[[app]]\nprogram = 'lbm06'\n";
        let spec = Spec::parse(text, false).unwrap();
        assert!(spec.simulated && spec.workloads.len() == 3 && spec.workloads[0].longest.is_none());
        assert!(spec.workloads.iter().all(|w| w.jobs.len() == 4));
        let error = Spec::parse(text, true).unwrap_err();
        assert!(error.starts_with("8:1: this app has no command; give one"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said_where_it_is() {
        let cases = [
            ("", "1:1: [bench] has no policies; name those to compare with Linux alone"),
            ("[bench]\npolicies = []\n", "2:12: policies is empty; name at least one"),
            ("[bench]\npolicies = ['none']\n", "2:13: none is what the others are compared with; leave it out"),
            ("[bench]\npolicies = ['sma']\n", "2:13: there is no policy 'sma'"),
            ("[bench]\npolicies = ['sam']\n", "1:1: there is no [[app]]; give at least one"),
            ("[bench]\npolicies = ['sam']\nrepetition = 2\n", "3:1: unknown field `repetition`"),
            ("restart = true\n[bench]\npolicies = ['sam']\n", "1:11: restart is for cotenant sim"),
        ];
        for (text, says) in cases {
            let error = Spec::parse(text, false).unwrap_err();
            assert!(error.starts_with(says), "{text}: {error}");
        }
        let cases = [
            ("repetitions = 2", "repetitions = 0", "3:15: repetitions is 0; it must be from 1 to 1000"),
            ("runs = 3", "runs = -3", "11:8: runs of app b is -3; it must be from 1 to 1000000"),
            ("arrival_s = 0.5", "arrival_s = nan", "6:13: arrival_s is NaN; it must be from 0 to 604800 seconds"),
            ("after = 'true'", "after = 'tru'", "10:9: there is no app 'tru'; there are true, b"),
            ("after = 'true'", "after = 'b'", "10:9: app b waits for itself, through b"),
            ("arrival_s = 0.5", "after = 'b'", "6:9: app true waits for itself, through b"),
            (
                "arrival_s = 0.5",
                "arrival_s = 1\nafter = 'b'",
                "7:9: app true has both after and arrival_s; give one of them",
            ),
            ("name = 'b'", "name = 'true'", "7:1: there are two apps called true; give one of them another name"),
            ("command = ['false']", "command = []", "7:1: app b has no command"),
            ("repetitions = 2", "workload = { size = 'huge' }", "6:13: arrival_s is drawn"),
        ];
        for (from, to, says) in cases {
            let error = Spec::parse(&GOOD.replace(from, to), false).unwrap_err();
            assert!(error.starts_with(says), "{to}: {error}");
        }
        let huge = GOOD.replace("arrival_s = 0.5", "").replace("after = 'true'", "").replace("runs = 3", "");
        let error = Spec::parse(&huge.replace("repetitions = 2", "workload = { size = 'huge' }"), false).unwrap_err();
        assert_eq!(error, "3:21: there is no size 'huge'; use small, medium or large");
    }
}
