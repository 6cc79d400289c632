//! Recordings as tables. A file is read again for each of them, so that memory holds at most one table.

use crate::given::{settings_from, wrong};
use crate::table::{Cell, Table};
use cotenant_linux::bounded;
use cotenant_model::policy::Settings;
use cotenant_model::{Looks, Sample, Signal, View};
use cotenant_policies::standard;
use cotenant_record::moves::Move;
use cotenant_record::replay::{self, Policies, names};
use cotenant_record::{Header, Tail};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// A recording by its file and header.
#[pyclass(frozen)]
pub struct Recording {
    path: PathBuf,
    header: Header,
}

type Rounds = cotenant_record::Recording<BufReader<File>>;

#[pymethods]
impl Recording {
    /// Opens a recording and reads its beginning.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let header = py.detach(|| open(&path))?.header().clone();
        Ok(Self { path, header })
    }

    /// The header with the initial facts, as JSON.
    fn header(&self) -> PyResult<String> {
        serde_json::to_string(&self.header).map_err(|why| wrong(&why))
    }

    /// Its end, in words, and whether it was cut off.
    fn tail(&self, py: Python<'_>) -> PyResult<(String, bool)> {
        py.detach(|| {
            let mut rounds = open(&self.path)?;
            rounds.by_ref().for_each(drop);
            let tail = rounds.tail().unwrap_or(&Tail::Complete);
            Ok((tail.to_string(), matches!(tail, Tail::Truncated { .. })))
        })
    }

    /// A row for each task each time that tasks were looked at.
    fn tasks(&self, py: Python<'_>) -> PyResult<Table> {
        let signals = Signal::ALL.iter().map(|signal| (format!("{signal}_per_s"), Cell::Float(None)));
        let columns = [
            ("round", Cell::Integer(None)),
            ("at_s", Cell::Float(None)),
            ("rule", Cell::Integer(None)),
            ("task", Cell::Integer(None)),
            ("tid", Cell::Integer(None)),
            ("pid", Cell::Integer(None)),
            ("app", Cell::Text(String::new())),
            ("comm", Cell::Text(String::new())),
            ("cpu", Cell::Integer(None)),
            ("moved", Cell::Integer(None)),
            ("seconds", Cell::Float(None)),
            ("cpu_share", Cell::Float(None)),
        ];
        let columns = columns.into_iter().map(|(name, kind)| (name.to_owned(), kind)).chain(signals);
        py.detach(|| {
            let mut table = Table::new(columns);
            self.each_look(|n, rule, sample, view| {
                for task in &view.tasks {
                    let known: [Cell; 12] = [
                        n.into(),
                        view.at.as_secs_f64().into(),
                        rule.into(),
                        task.info.id.0.into(),
                        task.info.tid.into(),
                        task.info.pid.into(),
                        app_name(sample, task.info.app).into(),
                        task.info.comm.as_str().into(),
                        task.cpu.map(|cpu| cpu.0).into(),
                        task.moved().into(),
                        view.interval.as_secs_f64().into(),
                        task.cpu_share().into(),
                    ];
                    let rates = Signal::ALL.iter().map(|signal| task.per_s(*signal).into());
                    table.row(known.into_iter().chain(rates));
                }
            })?;
            table.without_unknown(|name| name.ends_with("_per_s"));
            Ok(table)
        })
    }

    /// A row for each application in each round.
    fn apps(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| {
            let mut table = Table::new([
                ("round", Cell::Integer(None)),
                ("at_s", Cell::Float(None)),
                ("rule", Cell::Integer(None)),
                ("app", Cell::Text(String::new())),
                ("seconds", Cell::Float(None)),
                ("progress_per_s", Cell::Float(None)),
                ("latency_p50_s", Cell::Float(None)),
                ("latency_p99_s", Cell::Float(None)),
                ("openmp_units_per_s", Cell::Float(None)),
                ("mpi_calls_per_s", Cell::Float(None)),
                ("io_bytes_per_s", Cell::Float(None)),
                ("tcp_bytes_per_s", Cell::Float(None)),
            ]);
            self.each(|n, rule, _, view| {
                for app in &view.apps {
                    let latency = |q| app.latency_ns.as_ref().and_then(|all| all.quantile(q)).map(|ns| ns / 1e9);
                    table.row([
                        n.into(),
                        view.at.as_secs_f64().into(),
                        rule.into(),
                        app.name.as_str().into(),
                        view.interval.as_secs_f64().into(),
                        app.progress_per_s.into(),
                        latency(0.5).into(),
                        latency(0.99).into(),
                        app.openmp_per_s.into(),
                        app.mpi_per_s.into(),
                        app.io.map(|reading| reading.value).into(),
                        app.tcp.map(|reading| reading.value).into(),
                    ]);
                }
            })?;
            Ok(table)
        })
    }

    /// A row for each new reading of an application's metric.
    fn metrics(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| {
            let mut table = Table::new([
                ("round", Cell::Integer(None)),
                ("at_s", Cell::Float(None)),
                ("app", Cell::Text(String::new())),
                ("metric", Cell::Text(String::new())),
                ("value", Cell::Float(None)),
                ("window_s", Cell::Float(None)),
            ]);
            self.each(|n, _, _, view| {
                for app in &view.apps {
                    for (metric, reading) in app.metrics.iter().filter(|(_, reading)| view.is_new(reading)) {
                        table.row([
                            n.into(),
                            reading.at.as_secs_f64().into(),
                            app.name.as_str().into(),
                            metric.as_str().into(),
                            reading.value.into(),
                            reading.window.as_secs_f64().into(),
                        ]);
                    }
                }
            })?;
            Ok(table)
        })
    }

    /// A row for each CPU each time that tasks and CPUs were looked at.
    fn cpus(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| {
            let mut table = Table::new([
                ("round", Cell::Integer(None)),
                ("at_s", Cell::Float(None)),
                ("rule", Cell::Integer(None)),
                ("cpu", Cell::Integer(None)),
                ("seconds", Cell::Float(None)),
                ("busy", Cell::Float(None)),
                ("foreign", Cell::Float(None)),
            ]);
            self.each_look(|n, rule, _, view| {
                for cpu in &view.cpus {
                    table.row([
                        n.into(),
                        view.at.as_secs_f64().into(),
                        rule.into(),
                        cpu.id.0.into(),
                        view.interval.as_secs_f64().into(),
                        cpu.busy.into(),
                        cpu.foreign.into(),
                    ]);
                }
            })?;
            Ok(table)
        })
    }

    /// A row for each order of the recorded policy, with its outcome.
    fn moves(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| {
            let mut table = Table::new(move_columns().into_iter().chain([("outcome", Cell::Text(String::new()))]));
            for (n, round) in open(&self.path)?.enumerate() {
                for (order, outcome) in round.orders.iter().zip(&round.outcomes) {
                    let what = Move::new(&round.sample, order);
                    table.row(move_cells(n, &round.sample, &what).into_iter().chain([name_of(outcome)?.into()]));
                }
            }
            Ok(table)
        })
    }

    /// A row for each order that the recorded policy gave or the replayed one gives. `settings` are JSON.
    #[pyo3(signature = (policy, settings))]
    fn replay(&self, py: Python<'_>, policy: Option<&str>, settings: Option<&str>) -> PyResult<Table> {
        let settings = settings_from(settings)?;
        py.detach(|| self.replayed(policy, &settings))
    }
}

impl Recording {
    /// Calls `row` for each round: its number, its rule, its sample, and the rates since the previous sample of any
    /// rule. Rounds that several rules share count once.
    fn each(&self, mut row: impl FnMut(usize, usize, &Sample, &View)) -> PyResult<()> {
        let mut last = None;
        for (n, round) in open(&self.path)?.enumerate() {
            let before = last.replace(round.sample.clone()).unwrap_or(round.prev);
            if round.sample.at > before.at {
                row(n, round.rule, &round.sample, &View::new(&before, &round.sample));
            }
        }
        Ok(())
    }

    /// The same for rounds in which tasks were looked at, with rates since the look before.
    fn each_look(&self, mut row: impl FnMut(usize, usize, &Sample, &View)) -> PyResult<()> {
        let (mut looks, mut last) = (Looks::default(), None);
        for (n, round) in open(&self.path)?.enumerate() {
            let before = last.replace(round.sample.clone()).unwrap_or(round.prev);
            if let Some(look) = looks.look(&before, &round.sample) {
                row(n, round.rule, &round.sample, &look.view);
            }
        }
        Ok(())
    }

    fn replayed(&self, policy: Option<&str>, settings: &Settings) -> PyResult<Table> {
        let (registry, header) = (standard(), &self.header);
        let name = policy.unwrap_or(&header.policy);
        let mut config = header.config.clone();
        for section in settings.sections() {
            registry.section(section).map_err(|why| wrong(&why))?;
        }
        config.settings.merge(settings);
        config.pin = replay::pin(header, name, &config, &registry);
        let policies = Policies::new(header, policy, &config, &registry).map_err(|why| wrong(&why))?;
        let rules = policies.rules(header);
        let mut table = Table::new(move_columns().into_iter().chain([("by", Cell::Text(String::new()))]));
        for (n, round) in replay::replay(open(&self.path)?, &names(header), rules).enumerate() {
            let sample = &round.round.sample;
            let of_recorded = |i: usize| (&round.round.orders[i], "recorded");
            let asked_by: Vec<usize> = round.only_replayed().collect();
            let of_replayed = round.orders.iter().enumerate();
            let of_replayed =
                of_replayed.map(|(i, order)| (order, if asked_by.contains(&i) { "replayed" } else { "both" }));
            for (order, by) in round.only_recorded().map(of_recorded).chain(of_replayed) {
                let what = Move::new(sample, order);
                table.row(move_cells(n, sample, &what).into_iter().chain([by.into()]));
            }
        }
        Ok(table)
    }
}

fn open(path: &Path) -> PyResult<Rounds> {
    let file = bounded::given(path).map_err(|why| {
        let text = why.to_string();
        let text = text.split(" (os error").next().unwrap_or_default().to_owned(); // Python adds the number
        PyOSError::new_err((why.raw_os_error(), text, path.display().to_string()))
    })?;
    Rounds::read(BufReader::new(file)).map_err(|why| wrong(&format!("{}: {why}", path.display())))
}

fn app_name(sample: &Sample, id: cotenant_model::AppId) -> &str {
    sample.apps.iter().find(|app| app.id == id).map_or("", |app| &app.name)
}

fn move_columns() -> [(&'static str, Cell); 10] {
    [
        ("round", Cell::Integer(None)),
        ("at_s", Cell::Float(None)),
        ("effect", Cell::Text(String::new())),
        ("task", Cell::Integer(None)),
        ("tid", Cell::Integer(None)),
        ("comm", Cell::Text(String::new())),
        ("app", Cell::Text(String::new())),
        ("from_cpu", Cell::Integer(None)),
        ("to", Cell::Text(String::new())),
        ("reason", Cell::Text(String::new())),
    ]
}

fn move_cells(n: usize, sample: &Sample, what: &Move) -> [Cell; 10] {
    let app = what.app.or_else(|| Some(sample.task(what.task?)?.info.app));
    [
        n.into(),
        sample.at.as_secs_f64().into(),
        what.effect.to_string().into(),
        what.task.map(|task| task.0).into(),
        what.tid.into(),
        what.comm.as_str().into(),
        app.map_or("", |app| app_name(sample, app)).into(),
        what.from_cpu.map(|cpu| cpu.0).into(),
        what.to().into(),
        what.reason.text.as_str().into(),
    ]
}

/// The name of a value that JSON writes as a word.
fn name_of(value: &impl serde::Serialize) -> PyResult<String> {
    let value = serde_json::to_value(value).map_err(|why| wrong(&why))?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}
