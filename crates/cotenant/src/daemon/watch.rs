//! What the daemon remembers of the rounds of its loop: speeds, who hurts whom, what was decided, the shapes found.

use super::log::{self, Seldom};
use super::status::{Decision, Decisions, ServiceStatus};
use crate::calibrated;
use crate::known::Known;
use crate::replace::replace;
use crate::run::speeds::Speeds;
use crate::run::summary::outcome_name;
use cotenant_linux::bounded;
use cotenant_model::interference::{Interference, Row};
use cotenant_model::{AppId, Reading, Round, Signal, Time, Topology};
use cotenant_record::moves::Move;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Decisions that are kept to be shown.
const LAST: usize = 256;

/// Threads and CPU time are counted over this long.
const WINDOW: Duration = Duration::from_secs(1);

/// What of it goes on after a restart.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    version: u32,
    interference: Interference,
}

const VERSION: u32 = 1;

/// What all versions have.
#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    version: u32,
}

impl State {
    /// What was kept; else none, with a remark. What cannot be taken is put aside: another version may want it again.
    fn read(file: &Path) -> (Self, Option<String>) {
        let Ok(text) = bounded::named_text(file) else { return (Self::default(), None) };
        let (aside, why) = match serde_json::from_str::<Versioned>(&text) {
            Ok(Versioned { version: VERSION }) => match serde_json::from_str(&text) {
                Ok(state) => return (state, None),
                Err(why) => ("damaged".to_owned(), why.to_string()),
            },
            Ok(Versioned { version }) => {
                (version.to_string(), format!("it is of version {version}, and this daemon reads version {VERSION}"))
            }
            Err(why) => ("damaged".to_owned(), why.to_string()),
        };
        let mut to = file.as_os_str().to_owned();
        to.push(format!(".{aside}"));
        let kept = match fs::rename(file, &to) {
            Ok(()) => format!("it is kept as {}", Path::new(&to).display()),
            Err(why) => format!("it cannot be put aside: {why}"),
        };
        let remark = format!("{}: {why}; what it says is not used, and {kept}", file.display());
        (Self::default(), Some(remark))
    }
}

/// How a service stands.
#[derive(Clone, Debug, Default)]
struct Now {
    threads: usize,
    /// CPU time that its threads have had since the window began, nanoseconds, and since when.
    ran: Option<(f64, Time)>,
    cpus: Option<f64>,
    speed: Option<f64>,
    told: Option<String>,
}

/// All of it.
pub(super) struct Watch {
    topology: Topology,
    pub speeds: Speeds,
    interference: Interference,
    known: Known,
    now: BTreeMap<AppId, Now>,
    counts: BTreeMap<(String, String), u64>,
    last: VecDeque<Decision>,
    /// The time of the last sample, and when the daemon began on that clock.
    pub at: Time,
    seldom: Seldom,
    file: Option<PathBuf>,
}

impl Watch {
    /// With what an earlier daemon has learnt; a remark where that is not taken.
    pub fn begin(topology: &Topology) -> (Self, Option<String>) {
        let file = calibrated::data_folder().map(|folder| folder.join("daemon.json"));
        let (state, remark) = file.as_deref().map_or_else(Default::default, State::read);
        let watch = Self {
            topology: topology.clone(),
            speeds: Speeds::default(),
            interference: state.interference,
            known: Known::of(topology),
            now: BTreeMap::new(),
            counts: BTreeMap::new(),
            last: VecDeque::new(),
            at: Time::default(),
            seldom: Seldom::default(),
            file,
        };
        (watch, remark)
    }

    /// Takes a round in.
    pub fn round(&mut self, round: &Round<'_>, rules: &[String]) {
        self.at = round.sample.at;
        self.speeds.add(round);
        self.interference.watch(&self.topology, round);
        self.known.watch(round);
        let tasks = round.view.tasks_by_app();
        for app in &round.view.apps {
            let now = self.now.entry(app.id).or_default();
            let threads = tasks.get(&app.id).map_or(&[][..], Vec::as_slice);
            now.threads = threads.len();
            let seconds = round.view.interval.as_secs_f64();
            let ran: Option<f64> = threads.iter().map(|task| task.per_s(Signal::CpuTime)).sum();
            let (sum, since) = now.ran.get_or_insert((0.0, round.prev.at));
            *sum += ran.unwrap_or_default() * seconds;
            if round.sample.at - *since >= WINDOW {
                now.cpus = Some(*sum / (round.sample.at - *since).as_nanos() as f64);
                now.ran = None;
            }
            if let Some(source) = self.speeds.best(app.id) {
                now.told = Some(source.to_string());
                if let Some(reading) = source.reading(round.view, app).and_then(Reading::as_speed) {
                    now.speed = Some(reading.value);
                }
            }
        }
        let rule = rules.get(round.rule).map_or("", String::as_str);
        for (order, outcome) in round.orders.iter().zip(round.outcomes) {
            let done = Move::new(round.sample, order);
            let app = order.action.app().or_else(|| Some(round.sample.task(order.action.task()?)?.info.app));
            let service = round.sample.apps.iter().find(|known| Some(known.id) == app);
            let service = service.map(|app| app.name.clone()).unwrap_or_default();
            let outcome = outcome_name(*outcome).map(str::to_owned);
            let (means, stage) = (format!("{:?}", done.effect).to_lowercase(), done.reason.stage.clone());
            let decision = Decision { at_s: self.at.as_secs_f64(), service, what: done.to_string(), outcome };
            tracing::debug!(
                MESSAGE_ID = log::DECISION,
                COTENANT_POLICY = rule,
                COTENANT_SERVICE = &*decision.service,
                COTENANT_DECISION = &*means,
                COTENANT_REASON = &*done.reason.text,
                "{}",
                decision.line(),
            );
            if decision.outcome.is_none() {
                *self.counts.entry((means, stage)).or_default() += 1;
            }
            if self.last.len() == LAST {
                self.last.pop_front();
            }
            self.last.push_back(decision);
        }
        for note in round.decision.iter().flat_map(|decision| &decision.notes) {
            self.remark(&note.to_string());
        }
    }

    /// Logs a remark, but seldom the same one.
    pub fn remark(&mut self, text: &str) {
        if self.seldom.is_due(text) {
            tracing::warn!(MESSAGE_ID = log::NOTE, "{text}");
        }
    }

    /// A service is managed no more.
    pub fn forget(&mut self, app: AppId) {
        self.now.remove(&app);
        self.speeds.forget(app);
    }

    /// How a service stands, with what the roster knows of it.
    pub fn fill(&self, app: AppId, status: ServiceStatus) -> ServiceStatus {
        let now = self.now.get(&app).cloned().unwrap_or_default();
        ServiceStatus { threads: now.threads, cpus: now.cpus, speed: now.speed, source: now.told, ..status }
    }

    pub fn interference(&self) -> Vec<Row> {
        self.interference.rows()
    }

    pub fn decisions(&self) -> Vec<Decisions> {
        let of = |((action, reason), count): (&(String, String), &u64)| Decisions {
            action: action.clone(),
            reason: reason.clone(),
            count: *count,
        };
        self.counts.iter().map(of).collect()
    }

    pub fn last(&self) -> Vec<Decision> {
        self.last.iter().cloned().collect()
    }

    /// Writes down what the next daemon is to know.
    pub fn keep(&mut self) {
        if let Err(why) = self.known.keep() {
            self.remark(&format!("the shapes that were found could not be kept: {why}"));
        }
        let Some(file) = &self.file else { return };
        let written = || -> std::io::Result<()> {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            let state = serde_json::json!({ "version": VERSION, "interference": &self.interference });
            replace(file, &serde_json::to_vec(&state)?)
        };
        if let Err(why) = written() {
            let text = format!("{}: {why}; what was learnt is lost at a restart", file.display());
            self.remark(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_has_learnt_is_refused_by_name_and_kept() {
        let folder = std::env::temp_dir().join(format!("cotenant-watch-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("daemon.json");
        assert_eq!(State::read(&file).1, None, "there is none");
        let own = serde_json::to_string(&State { version: VERSION, interference: Interference::default() }).unwrap();
        for (text, aside, words) in [
            (&*own, None, ""),
            ("{\"version\":2,\"interference\":[1]}", Some("2"), "it is of version 2, and this daemon reads version 1"),
            ("{\"interference\":0}", Some("0"), "it is of version 0"),
            ("{\"version\":1,\"interference\":7}", Some("damaged"), "not used"),
            ("[", Some("damaged"), "not used"),
        ] {
            fs::write(&file, text).unwrap();
            let (_, remark) = State::read(&file);
            match aside {
                None => assert_eq!((remark, file.exists()), (None, true)),
                Some(aside) => {
                    assert!(remark.as_ref().is_some_and(|remark| remark.contains(words)), "{remark:?}");
                    assert!(!file.exists());
                    let kept = folder.join(format!("daemon.json.{aside}"));
                    assert_eq!(fs::read_to_string(kept).unwrap(), text);
                }
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
