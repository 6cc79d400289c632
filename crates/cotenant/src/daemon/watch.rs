//! What the daemon remembers of the rounds of its loop: speeds, who hurts whom, what was decided, the shapes found.

use super::latency::Latency;
use super::log::{self, Seldom};
use super::services::{Service, learnt};
use super::status::{Bound, CpuStatus, Decision, Decisions, Place, ServiceStatus, ThreadStatus, Trial, Why};
use crate::calibrated;
use crate::cmd::qos::Protected;
use crate::known::Known;
use crate::replace::Writer;
use crate::run::speeds::Speeds;
use crate::run::summary::outcome_name;
use cotenant_linux::act::throttle::Slept;
use cotenant_linux::bounded;
use cotenant_model::interference::{Interference, Row};
use cotenant_model::speed::Source;
use cotenant_model::view::merge;
use cotenant_model::{
    AppId, CpuId, CpuSample, Effect, Reading, Round, Sample, Signal, TaskId, TaskView, Time, Topology,
};
use cotenant_policies::{Qos, Shapes};
use cotenant_record::moves::Move;
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Decisions that are kept to be shown, and trials.
const LAST: usize = 256;
const TRIALS: usize = 64;

/// Threads and CPU time are counted over this long.
const WINDOW: Duration = Duration::from_secs(1);

/// Threads of a service that are named.
const THREADS: usize = 16;

/// Whether goals are kept is told of this long; a speed that is older is not told.
const MINUTE: Duration = Duration::from_secs(60);

/// Sums whose last one is older are not told: whoever added them has gone.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// What of it goes on after a restart.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct State {
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
        let read = match bounded::named_text(file) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Default::default(),
            Err(why) => Err(("damaged".to_owned(), why.to_string())),
            Ok(text) => Self::parse(&text),
        };
        let (aside, why) = match read {
            Ok(state) => return (state, None),
            Err(not) => not,
        };
        let mut to = file.as_os_str().to_owned();
        to.push(format!(".{aside}"));
        let kept = match fs::rename(file, &to) {
            Ok(()) => format!("kept as {}", Path::new(&to).display()),
            Err(why) => format!("cannot be put aside: {why}"),
        };
        (Self::default(), Some(format!("{}: {why}; it is left out, and {kept}", file.display())))
    }

    /// What a file says; else what to call it from now on, and why it is not taken.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let damaged = |why: serde_json::Error| ("damaged".to_owned(), why.to_string());
        match serde_json::from_str::<Written>(text).map_err(damaged)?.version {
            VERSION => serde_json::from_str(text).map_err(damaged),
            other => Err((other.to_string(), format!("its version is {other}, and {VERSION} is read"))),
        }
    }
}

/// How a service stands.
#[derive(Clone, Debug, Default)]
struct Now {
    /// The rule that names it.
    rule: String,
    /// Its control group, where it is one.
    group: Option<String>,
    uid: Option<u32>,
    threads: usize,
    /// What its threads ran since the window began, and since when.
    ran: Option<(Ran, Time)>,
    /// Up to when that is known: several rules may tell of the same time.
    until: Time,
    cpus: Option<f64>,
    places: Vec<Place>,
    busiest: Vec<ThreadStatus>,
    speed: Option<(Time, f64)>,
    told: Option<String>,
    /// What it did, and what it would have done alone, at some moments of the last minute.
    kept: Last<[f64; 2]>,
    slept: Last<f64>,
    latency: Latency,
    bandwidth: Option<f64>,
    /// The quantile by which its goal is judged, and that of the answers while it is alone, seconds.
    alone: Option<(f64, f64)>,
}

/// CPU time in nanoseconds: in all, by CPU, by thread.
#[derive(Clone, Debug, Default)]
struct Ran {
    all: f64,
    on: BTreeMap<CpuId, f64>,
    of: BTreeMap<TaskId, f64>,
    /// Misses of the last-level cache by CPU, where they are counted.
    missed: BTreeMap<CpuId, f64>,
}

impl Ran {
    fn add(&mut self, threads: &[&TaskView], seconds: f64) {
        for task in threads {
            let Some(ns) = task.per_s(Signal::CpuTime).map(|per_s| per_s * seconds).filter(|ns| *ns > 0.0) else {
                continue;
            };
            self.all += ns;
            *self.of.entry(task.info.id).or_default() += ns;
            if let Some(cpu) = task.cpu {
                *self.on.entry(cpu).or_default() += ns;
                if let Some(per_s) = task.per_s(Signal::LlcMisses) {
                    *self.missed.entry(cpu).or_default() += per_s * seconds;
                }
            }
        }
    }
}

impl Now {
    /// Takes in what its threads ran in a round; tells what became of it where a window is over. `line`: bytes that a
    /// miss of the last-level cache brings.
    fn ran(&mut self, round: &Round<'_>, threads: &[&TaskView], window: Duration, line: f64) {
        if round.prev.at < self.until {
            return;
        }
        self.until = round.sample.at;
        let (ran, since) = self.ran.get_or_insert_with(|| (Ran::default(), round.prev.at));
        ran.add(threads, round.view.interval.as_secs_f64());
        let length = (round.sample.at - *since).as_nanos() as f64;
        if !round.whole || round.sample.at - *since < window || length == 0.0 {
            return;
        }
        let counted = threads.is_empty() || ran.all > 0.0;
        let counted = counted || threads.iter().any(|task| task.per_s(Signal::CpuTime).is_some());
        self.cpus = counted.then_some(ran.all / length);
        let missed: f64 = ran.missed.values().sum();
        self.bandwidth = (!ran.missed.is_empty()).then_some(missed * line / (length / 1e9));
        let place = |(cpu, ns): (&CpuId, &f64)| Place {
            cpu: *cpu,
            cpus: ns / length,
            misses_per_s: ran.missed.get(cpu).map(|misses| misses / length * 1e9),
        };
        self.places = ran.on.iter().map(place).collect();
        let mut busiest: Vec<(&&TaskView, f64)> =
            threads.iter().map(|task| (task, ran.of.get(&task.info.id).copied().unwrap_or_default())).collect();
        busiest.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown = busiest.into_iter().take(THREADS).map(|(task, ns)| ThreadStatus {
            tid: task.info.tid,
            name: task.info.comm.clone(),
            cpu: task.cpu,
            cpus: ns / length,
            allowed: task.info.allowed.clone(),
        });
        self.busiest = shown.collect();
        self.ran = None;
    }
}

/// How busy the CPUs are.
#[derive(Debug, Default)]
struct Busy {
    /// When the window began, and what was counted by then.
    since: Option<(Time, Vec<CpuSample>)>,
    told: Vec<CpuStatus>,
}

impl Busy {
    fn add(&mut self, last: &Sample, sample: &Sample, window: Duration) {
        let (since, before) = self.since.get_or_insert_with(|| (last.at, last.cpus.clone()));
        let length = sample.at - *since;
        if length < window || length.is_zero() {
            return;
        }
        let share = |(before, now): (Option<&CpuSample>, &CpuSample)| {
            let ns = now.busy_ns.checked_sub(before?.busy_ns)?;
            Some(CpuStatus { cpu: now.id, busy: (ns as f64 / length.as_nanos() as f64).min(1.0) })
        };
        self.told = merge(before.as_slice(), &sample.cpus, |cpu| cpu.id).filter_map(share).collect();
        self.since = Some((sample.at, sample.cpus.clone()));
    }
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
    /// Protected one a second, for a minute.
    fn add(&mut self, at: Time, value: T) {
        if self.0.back().is_some_and(|(last, _)| at < *last + WINDOW) {
            return;
        }
        self.0.push_back((at, value));
        while self.0.front().is_some_and(|(first, _)| at - *first > MINUTE) {
            self.0.pop_front();
        }
    }

    /// The first and the last, where these are of now.
    fn ends(&self, now: Time) -> Option<[(Time, T); 2]> {
        Some([*self.0.front()?, *self.0.back()?]).filter(|[first, last]| last.0 > first.0 && now < last.0 + STALE_AFTER)
    }
}

/// All of it.
pub(crate) struct Watch {
    topology: Topology,
    /// Threads and CPU time are counted over this long.
    window: Duration,
    speeds: Speeds,
    interference: Interference,
    known: Known,
    now: BTreeMap<AppId, Now>,
    busy: Busy,
    counts: BTreeMap<(String, String), u64>,
    last: VecDeque<Decision>,
    trials: VecDeque<Trial>,
    /// Service and reason of the last one.
    reason: Option<(String, String)>,
    /// The time of the last sample on the clock of the host.
    pub at: Time,
    /// Seconds from the start of the daemon to that of this clock.
    since: f64,
    /// Remarks about Cotenant itself, and those that users cause by what they do or have a word in: of these there may
    /// be ever more, which are to take no room from the others.
    own: Seldom,
    of_users: Seldom,
    /// Kinds of decisions about each service that the log had within an hour.
    logged: Seldom,
    /// Where what was learnt is to be kept, and who writes it.
    file: Option<(PathBuf, Writer)>,
}

impl Watch {
    /// With what an earlier daemon has learnt; a remark where that is not taken.
    ///
    /// The daemon began so long before the host, whose clock begins at 0.
    pub fn begin(topology: &Topology, before: Duration) -> (Self, Option<String>) {
        let file = calibrated::data_folder().map(|folder| folder.join("daemon.json"));
        let (state, remark) = file.as_deref().map_or_else(Default::default, State::read);
        let since = before.as_secs_f64();
        let file = file.map(|file| (file, Writer::begin()));
        let watch = Self { interference: state.interference, file, since, ..Self::anew(topology, WINDOW) };
        (watch, remark)
    }

    /// Of what nobody has learnt anything yet, and of which nothing is to be kept. CPU time is told after each
    /// `window`.
    pub fn anew(topology: &Topology, window: Duration) -> Self {
        Self {
            topology: topology.clone(),
            window,
            speeds: Speeds::default(),
            interference: Interference::default(),
            known: Known::of(topology),
            now: BTreeMap::new(),
            busy: Busy::default(),
            counts: BTreeMap::new(),
            last: VecDeque::new(),
            trials: VecDeque::new(),
            reason: None,
            at: Time::default(),
            since: 0.0,
            own: Seldom::default(),
            of_users: Seldom::default(),
            logged: Seldom::default(),
            file: None,
        }
    }

    /// Takes a round in. `high`: whose goals are kept now, where others really wait for that.
    pub fn round(&mut self, round: &Round<'_>, rules: &[String], high: &[Protected]) {
        self.at = round.sample.at;
        let tasks = round.view.by_app();
        self.speeds.add(round, &tasks);
        self.interference.watch(&self.topology, round);
        self.known.watch(round);
        if round.whole {
            self.busy.add(round.last, round.sample, self.window);
        }
        for app in &round.view.apps {
            let now = self.now.entry(app.id).or_default();
            let threads = tasks.of(app.id);
            now.threads = threads.len();
            now.ran(round, threads, self.window, self.topology.line_size());
            if let Some(source) = self.speeds.best(app.id) {
                now.told = Some(source.to_string());
                if let Some(reading) = source.reading(round.view, app).and_then(Reading::as_speed) {
                    now.speed = Some((self.at, reading.value));
                }
            }
        }
        for app in &round.sample.apps {
            if let (Some(so_far), Some(now)) = (&app.latency_ns, self.now.get_mut(&app.id)) {
                now.latency.add(self.at, so_far);
            }
        }
        if let Some(state) = round.decision.and_then(|decision| decision.state.read::<Qos>()) {
            for (i, Protected { app, metric, .. }) in high.iter().enumerate() {
                let alone = state.alone.get(i).copied().flatten().filter(|alone| *alone > 0.0);
                if let (Source::Latency(percentile), Some(now)) = (&metric.source, self.now.get_mut(app)) {
                    now.alone = alone.map(|alone| (percentile.quantile(), alone.recip()));
                }
                let sums = state.total.speeds.get(i).copied().zip(state.expected(i));
                if let (Some((done, alone)), Some(now)) = (sums, self.now.get_mut(app)) {
                    now.kept.add(self.at, [done, alone]);
                }
            }
        }
        self.tried(round);
        let rule = rules.get(round.rule).map_or("", String::as_str);
        for (order, outcome) in round.orders.iter().zip(round.outcomes) {
            let done = Move::new(round.sample, order);
            let app = order.action.app().or_else(|| Some(round.sample.task(order.action.task()?)?.info.app));
            let service = round.sample.apps.iter().find(|known| Some(known.id) == app);
            let service = service.map(|app| app.name.clone()).unwrap_or_default();
            let of = app.and_then(|app| self.now.get(&app));
            let outcome = outcome_name(*outcome).map(str::to_owned);
            let (means, stage) = (effect_name(done.effect), done.reason.stage.clone());
            let what = done.to_string();
            let why = Why {
                policy: rule.to_owned(),
                stage: stage.clone(),
                means: means.clone(),
                thread: done.task.map(|task| match done.tid {
                    Some(tid) => format!("{} ({tid})", done.comm),
                    None => format!("task {task}"),
                }),
                from_cpu: done.from_cpu,
                to: match done.to_cpus.len() {
                    0 => done.to(),
                    1 => format!("CPU {}", done.to()),
                    _ => format!("CPUs {}", done.to()),
                },
                may_use: (!done.affinity.is_empty()).then(|| done.affinity.iter().copied().collect()),
                evidence: done.reason.evidence,
                text: done.reason.text.clone(),
            };
            let at_s = self.since + self.at.as_secs_f64();
            let uid = of.and_then(|now| now.uid);
            let decision = Decision { at_s, service, uid, what, outcome, why: Some(why) };
            // Naps are renewed ten times a second.
            let first = self.logged.is_due(&format!("{} {means} {stage}", decision.service));
            decision.log(first, of.map(|now| &*now.rule), of.and_then(|now| now.group.as_deref()));
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

    /// Takes in what became of a trial. Its end is told by what is ordered next.
    fn tried(&mut self, round: &Round<'_>) {
        let Some(decision) = round.decision.filter(|_| !round.orders.is_empty()) else { return };
        let Some(state) = decision.state.read::<Shapes>() else { return };
        let Some(tried) = state.last_tried() else { return };
        let at_s = self.since + tried.at.as_secs_f64();
        let known = |trial: &Trial| trial.at_s.to_bits() == at_s.to_bits() && trial.shape == tried.shape;
        if self.trials.iter().any(known) {
            return;
        }
        if self.trials.len() == TRIALS {
            self.trials.pop_front();
        }
        let (gain, interval) = (tried.gain, tried.interval);
        let (pairs, kept) = (tried.pairs, tried.kept);
        self.trials.push_back(Trial { at_s, shape: tried.shape.clone(), gain, interval, pairs, kept });
    }

    /// Logs a remark, but seldom the same one.
    pub fn remark(&mut self, text: &str) {
        self.remark_as(text, text);
    }

    /// The same of what is said in ever other words.
    pub fn remark_as(&mut self, what: &str, text: &str) {
        if self.of_users.is_due(what) {
            tracing::warn!(MESSAGE_ID = log::NOTE, "{text}");
        }
    }

    /// Logs a remark about Cotenant itself, however much is to be said about others.
    pub fn remark_own(&mut self, text: &str) {
        if self.own.is_due(text) {
            tracing::warn!(MESSAGE_ID = log::NOTE, "{text}");
        }
    }

    /// A service is managed from now on, by that rule.
    pub fn manage(&mut self, app: AppId, rule: &str, service: &Service) {
        let now = self.now.entry(app).or_default();
        (now.rule, now.group, now.uid) = (rule.to_owned(), service.group().map(str::to_owned), Some(service.uid));
        let learnt = learnt(&service.name, service.uid, service.container.as_ref());
        if learnt != service.name {
            self.interference.call(app, learnt);
        }
    }

    /// The rule by which a service is managed.
    pub fn rule_of(&self, app: AppId) -> Option<&str> {
        self.now.get(&app).map(|now| &*now.rule)
    }

    /// A service is managed no more.
    pub fn forget(&mut self, app: AppId) {
        self.now.remove(&app);
        self.speeds.forget(app);
        self.interference.forget(app);
    }

    /// How a service stands, with what the roster knows of it.
    pub fn fill(&self, app: AppId, status: ServiceStatus) -> ServiceStatus {
        let now = self.now.get(&app).cloned().unwrap_or_default();
        let speed = now.speed.filter(|(at, _)| self.at - *at <= MINUTE).map(|(_, speed)| speed);
        let kept = now.kept.ends(self.at).map(|[(_, first), (_, last)]| [last[0] - first[0], last[1] - first[1]]);
        let kept = kept.filter(|[_, alone]| *alone > 0.0).map(|[done, alone]| done / alone);
        let share = |[first, last]: [(Time, f64); 2]| (last.1 - first.1) / (last.0 - first.0).as_secs_f64();
        let throttled = now.slept.ends(self.at).map(share);
        let (cpus, source) = (now.cpus, now.told);
        let (latencies, places, busiest) = (now.latency.told, now.places, now.busiest);
        let (threads, bandwidth) = (now.threads, now.bandwidth);
        let bound = now.alone.filter(|_| kept.is_some()).zip(status.goal.filter(|goal| *goal > 0.0));
        let bound = bound.map(|((quantile, alone_s), goal)| Bound { quantile, alone_s, goal_s: alone_s / goal });
        let known = ServiceStatus { threads, cpus, speed, source, kept, throttled, ..status };
        ServiceStatus { latencies, bound, bandwidth, places, busiest, ..known }
    }

    /// How long a service slept so far, where it is to be throttled.
    pub fn slept(&mut self, app: AppId, slept: Option<Slept>, at: Time) {
        if let Some(slept) = slept {
            self.slept_s(app, slept.outside_s + slept.inside_s / slept.threads.max(1) as f64, at);
        }
    }

    /// The same in seconds.
    pub fn slept_s(&mut self, app: AppId, seconds: f64, at: Time) {
        if let Some(now) = self.now.get_mut(&app) {
            now.slept.add(at, seconds);
        }
    }

    /// How busy the CPUs are.
    pub fn cpus(&self) -> Vec<CpuStatus> {
        self.busy.told.clone()
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

    /// What became of the last trials of `shapes`, the latest last.
    pub fn trials(&self) -> Vec<Trial> {
        self.trials.iter().cloned().collect()
    }

    /// Has written down what the next daemon is to know, and tells what could not be the last time.
    pub fn keep(&mut self) {
        let Some((file, writer)) = &self.file else { return };
        let state = serde_json::json!({ "version": VERSION, "interference": &self.interference });
        let mut failed = writer.failed();
        failed.extend(writer.write(file.clone(), state.to_string()).err().map(|why| (file.clone(), why)));
        if let Some(file) = self.known.file() {
            let known = self.known.clone();
            failed.extend(writer.run(file.clone(), move || known.keep()).err().map(|why| (file.clone(), why)));
        }
        for (file, why) in failed {
            self.remark_own(&format!("{}: {why}; what was learnt is lost at a restart", file.display()));
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
    use cotenant_model::topology::synthetic;

    /// Whoever starts ever other services and threads has ever more said about them.
    #[test]
    fn nobody_drowns_what_is_to_be_said_of_the_daemon_itself() {
        let mut watch = Watch::anew(&synthetic::parse("pack:1 l3:1 core:1 pu:1").unwrap(), WINDOW);
        for i in 0..1_000 {
            watch.remark(&format!("service-{i} cannot be throttled"));
        }
        assert!(!watch.of_users.is_due("one more"), "the log has enough of them");
        assert!(watch.own.is_due("the journal cannot be written"));
    }

    #[test]
    fn sums_are_told_while_somebody_adds_them() {
        let at = |s: u64| Time(s * 1_000_000_000);
        let mut sums = Last::default();
        sums.add(at(1), 5.0);
        assert_eq!(sums.ends(at(1)), None, "one tells nothing");
        sums.add(at(3), 9.0);
        assert_eq!(sums.ends(at(4)), Some([(at(1), 5.0), (at(3), 9.0)]));
        assert_eq!(sums.ends(at(18)), None);
        sums.add(at(90), 20.0);
        assert_eq!(sums.ends(at(91)), None, "what was before is forgotten");
    }

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
