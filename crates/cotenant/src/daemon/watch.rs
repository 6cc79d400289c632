//! What the daemon remembers of the rounds of its loop: speeds, who hurts whom, what was decided, the shapes found.

use super::latency::Latency;
use super::log::{self, Seldom};
use super::status::{Decision, Decisions, ServiceStatus};
use crate::args::MetricArg;
use crate::calibrated;
use crate::known::Known;
use crate::replace::replace;
use crate::run::speeds::Speeds;
use crate::run::summary::outcome_name;
use cotenant_linux::act::throttle::Slept;
use cotenant_linux::bounded;
use cotenant_model::interference::{Interference, Row};
use cotenant_model::{AppId, Effect, Reading, Round, Signal, Time, Topology};
use cotenant_policies::Qos;
use cotenant_record::moves::Move;
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Decisions that are kept to be shown.
const LAST: usize = 256;

/// Threads and CPU time are counted over this long.
const WINDOW: Duration = Duration::from_secs(1);

/// And whether goals are kept, over this.
const MINUTE: Duration = Duration::from_secs(60);

/// What of it goes on after a restart.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    interference: Interference,
}

/// Whose format it is, whatever that is.
#[derive(Deserialize)]
struct Written {
    version: u32,
}

const VERSION: u32 = 1;

impl State {
    /// What was kept; else none, with a remark. What is not taken is put aside: another version may want it again.
    fn read(file: &Path) -> (Self, Option<String>) {
        let Ok(text) = bounded::named_text(file) else { return Default::default() };
        let (aside, why) = match serde_json::from_str::<Written>(&text) {
            Ok(Written { version }) if version != VERSION => {
                (version.to_string(), format!("its version is {version}, and {VERSION} is read"))
            }
            Ok(_) => match serde_json::from_str(&text) {
                Ok(state) => return (state, None),
                Err(why) => ("damaged".to_owned(), why.to_string()),
            },
            Err(why) => ("damaged".to_owned(), why.to_string()),
        };
        let mut to = file.as_os_str().to_owned();
        to.push(format!(".{aside}"));
        let kept = match fs::rename(file, &to) {
            Ok(()) => format!("kept as {}", Path::new(&to).display()),
            Err(why) => format!("cannot be put aside: {why}"),
        };
        (Self::default(), Some(format!("{}: {why}; it is left out, and {kept}", file.display())))
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
    /// What it did, and what it would have done alone, at some moments of the last minute.
    kept: Last<[f64; 2]>,
    slept: Last<f64>,
    latency: Latency,
}

/// Sums at moments of the last minute, the latest last.
#[derive(Clone, Debug)]
struct Last<T>(VecDeque<(Time, T)>);

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy> Last<T> {
    /// Keeps one a second, for a minute.
    fn add(&mut self, at: Time, value: T) {
        if self.0.back().is_some_and(|(last, _)| at < *last + WINDOW) {
            return;
        }
        self.0.push_back((at, value));
        while self.0.front().is_some_and(|(first, _)| at - *first > MINUTE) {
            self.0.pop_front();
        }
    }

    /// The first and the last.
    fn ends(&self) -> Option<[(Time, T); 2]> {
        Some([*self.0.front()?, *self.0.back()?]).filter(|[first, last]| last.0 > first.0)
    }
}

/// All of it.
pub(super) struct Watch {
    topology: Topology,
    speeds: Speeds,
    interference: Interference,
    known: Known,
    now: BTreeMap<AppId, Now>,
    counts: BTreeMap<(String, String), u64>,
    last: VecDeque<Decision>,
    /// Service and reason of the last one.
    reason: Option<(String, String)>,
    /// The time of the last sample on the clock of the host.
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
            reason: None,
            at: Time::default(),
            seldom: Seldom::default(),
            file,
        };
        (watch, remark)
    }

    /// Takes a round in.
    pub fn round(&mut self, round: &Round<'_>, rules: &[String], high: &[(AppId, MetricArg)]) {
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
        for app in &round.sample.apps {
            if let (Some(so_far), Some(now)) = (&app.latency_ns, self.now.get_mut(&app.id)) {
                now.latency.add(self.at, so_far);
            }
        }
        if let Some(state) = round.decision.and_then(|decision| decision.state.read::<Qos>()) {
            for (i, (app, _)) in high.iter().enumerate() {
                let sums = state.total.speeds.get(i).copied().zip(state.expected(i));
                if let (Some((done, alone)), Some(now)) = (sums, self.now.get_mut(app)) {
                    now.kept.add(self.at, [done, alone]);
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
            let (means, stage) = (effect_name(done.effect), done.reason.stage.clone());
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
            // Naps are renewed again and again for the same reason.
            let reason = (decision.service.clone(), done.reason.text);
            if self.reason.replace(reason.clone()) == Some(reason) {
                continue;
            }
            if self.last.len() == LAST {
                self.last.pop_front();
            }
            self.last.push_back(decision);
        }
        for note in round.decision.iter().flat_map(|decision| &decision.notes) {
            self.remark(note);
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
        let kept = now.kept.ends().map(|[(_, first), (_, last)]| [last[0] - first[0], last[1] - first[1]]);
        let kept = kept.filter(|[_, alone]| *alone > 0.0).map(|[done, alone]| done / alone);
        let share = |[first, last]: [(Time, f64); 2]| (last.1 - first.1) / (last.0 - first.0).as_secs_f64();
        let throttled = now.slept.ends().map(share);
        let (cpus, speed, source) = (now.cpus, now.speed, now.told);
        let latencies = now.latency.told;
        ServiceStatus { threads: now.threads, cpus, speed, source, kept, throttled, latencies, ..status }
    }

    /// How long a service slept so far, where it is to be throttled.
    pub fn slept(&mut self, app: AppId, slept: Option<Slept>, at: Time) {
        if let (Some(slept), Some(now)) = (slept, self.now.get_mut(&app)) {
            now.slept.add(at, slept.outside_s + slept.inside_s / slept.threads.max(1) as f64);
        }
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

/// As it is written in recordings, too.
fn effect_name(effect: Effect) -> String {
    serde_json::to_value(effect).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
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
        for (text, aside, words) in [
            ("{\"version\":1,\"interference\":{}}", None, ""),
            ("{\"version\":2,\"interference\":[1]}", Some("2"), "its version is 2, and 1 is read; it is left out"),
            ("{\"version\":1,\"interference\":7}", Some("damaged"), "it is left out"),
            ("[", Some("damaged"), "it is left out"),
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
