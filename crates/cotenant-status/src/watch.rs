//! The results of a loop's rounds: speeds, interference, decisions and trials, up to now.

use crate::goals::estimate;
use crate::identity::{Identity, learnt};
use crate::level::Level;
use crate::speeds::Speeds;
use crate::status::{
    CpuStatus, Decision, Decisions, MovedTime, Place, ServiceStatus, ThreadStatus, Trial, Why, outcome_name,
};
use crate::verdict::Judgement;
use cotenant_model::interference::{Interference, Row};
use cotenant_model::policy::{ProtectedApp, Statement, TrialResult};
use cotenant_model::view::merge;
use cotenant_model::{
    AppId, Behind, CpuId, CpuSample, Direction, Effect, Look, Looks, Order, Outcome, Reading, Round, Sample, Signal,
    TaskId, TaskView, Time, Topology, Waits,
};
use cotenant_record::moves::Move;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Decisions that are kept to be shown, and trials.
const LAST: usize = 256;
const TRIALS: usize = 64;

/// Threads and CPU time are counted over this long.
const WINDOW: Duration = Duration::from_secs(1);

/// Threads of a service that are named.
const THREADS: usize = 16;

/// Period of the verdict on goals; an older speed is not shown.
const MINUTE: Duration = Duration::from_secs(60);

/// Producers without a report for this long are skipped: the process has exited.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// State of a service.
#[derive(Clone, Debug, Default)]
struct Now {
    uid: Option<u32>,
    threads: usize,
    /// CPU time of its threads until the window began, and the time of that.
    ran: Option<(Ran, Time)>,
    cpus: Option<f64>,
    waiting: Option<f64>,
    /// Waits until the window began, and their causes in the previous one.
    waits: Option<Waits>,
    behind: Option<Vec<Behind>>,
    pressure: Option<(Time, f64)>,
    places: Vec<Place>,
    moved: Vec<MovedTime>,
    busiest: Vec<ThreadStatus>,
    speed: Option<(Time, f64)>,
    told: Option<String>,
    /// Its work, and its work alone, at some moments of the last minute.
    kept: Last<[f64; 2]>,
    slept: Last<f64>,
    /// Its work, in its own unit.
    level: Level,
    bandwidth: Option<f64>,
    /// Whether its reports stopped.
    silent: bool,
    /// Its policy's last explanation, and the time of that.
    protected: Option<(Time, ProtectedApp)>,
    /// Whether other programs make it miss its goal, not those throttled for it.
    slowed: bool,
}

/// CPU time in seconds: in total, by place, by thread.
#[derive(Clone, Debug, Default)]
struct Ran {
    all: f64,
    on: BTreeMap<CpuId, f64>,
    /// On unknown CPUs; by the cache domain of threads that moved within one.
    moved: BTreeMap<Option<usize>, f64>,
    of: BTreeMap<TaskId, f64>,
    /// Ready to run, without a CPU, by thread, if counted.
    waited: BTreeMap<TaskId, f64>,
    /// Misses of the last-level cache by CPU, if counted.
    missed: BTreeMap<CpuId, f64>,
}

impl Ran {
    /// Of processes and threads that ended uncounted, without known places.
    fn add_ended(&mut self, seconds: f64) {
        if seconds > 0.0 {
            self.all += seconds;
            *self.moved.entry(None).or_default() += seconds;
        }
    }

    fn add(&mut self, look: &Look, threads: &[&TaskView], domains: &Domains<'_>) {
        let interval = look.view.interval.as_secs_f64();
        for task in threads {
            if let Some(ns_per_s) = task.per_s(Signal::RunQueueWait) {
                *self.waited.entry(task.info.id).or_default() += ns_per_s / 1e9 * interval;
            }
            let Some(seconds) = look.seconds(task).filter(|seconds| *seconds > 0.0) else { continue };
            self.all += seconds;
            *self.of.entry(task.info.id).or_default() += seconds;
            let mut rest = seconds;
            if let Some((cpu, here)) = look.on_its_cpu(task) {
                *self.on.entry(cpu).or_default() += here;
                rest -= here;
            } else if let Some(domain) = domains.of(task) {
                let here = seconds * domains.part(domain);
                *self.moved.entry(Some(domain)).or_default() += here;
                rest -= here;
            }
            if rest > 0.0 {
                *self.moved.entry(None).or_default() += rest;
            }
            // Misses count where the thread was seen last.
            if let Some((cpu, per_s)) = task.cpu.zip(task.per_s(Signal::LlcMisses)) {
                *self.missed.entry(cpu).or_default() += per_s * interval;
            }
        }
    }
}

/// The cache domains within which threads moved from one look to the next.
struct Domains<'a> {
    topology: &'a Topology,
    /// Seconds that threads moved within each, and that its CPUs have room for.
    all: BTreeMap<usize, [f64; 2]>,
}

impl<'a> Domains<'a> {
    fn new(topology: &'a Topology, look: &Look) -> Self {
        let mut domains = Self { topology, all: BTreeMap::new() };
        for task in &look.view.tasks {
            if let Some((domain, seconds)) = domains.of(task).zip(look.seconds(task)) {
                domains.all.entry(domain).or_default()[0] += seconds;
            }
        }
        for (domain, [_, room]) in &mut domains.all {
            let cpus = topology.llc_domains()[*domain].cpus.iter();
            *room = cpus.map(|cpu| look.room(cpu)).sum();
        }
        domains
    }

    /// The domain in which a task that moved was before and after.
    fn of(&self, task: &TaskView) -> Option<usize> {
        let [from, to] = [task.from_cpu?, task.cpu?].map(|cpu| self.topology.llc_of(cpu));
        (task.moved() == Some(true) && from == to).then_some(to)?
    }

    /// Which part of that time can have been there.
    fn part(&self, domain: usize) -> f64 {
        self.all.get(&domain).map_or(0.0, |[said, room]| if said > room { room / said } else { 1.0 })
    }
}

impl Now {
    /// Its current protection, if still explained by its policy.
    fn protected(&self, at: Time) -> Option<&ProtectedApp> {
        self.protected.as_ref().filter(|(said, _)| at < *said + STALE_AFTER).map(|(_, protected)| protected)
    }

    /// Adds its waits so far; returns their causes at the end of a window.
    fn waits(&mut self, app: AppId, waits: &Waits, window: Duration, name: impl Fn(AppId) -> Option<String>) {
        let since = self.waits.get_or_insert_with(|| waits.clone());
        if waits.at - since.at >= window {
            self.behind = waits.since(since).map(|waiting| Behind::all(&waiting.behind, app, name));
            self.waits = Some(waits.clone());
        }
    }

    /// Adds its threads' run time between samples, and the CPUs used by `ended` threads before they were counted;
    /// returns the result at the end of a window. `line`: bytes per miss of the last-level cache.
    fn ran(
        &mut self,
        look: &Look,
        (threads, ended): (&[&TaskView], f64),
        domains: &Domains<'_>,
        window: Duration,
        line: f64,
    ) {
        let (ran, since) = self.ran.get_or_insert_with(|| (Ran::default(), look.from));
        ran.add(look, threads, domains);
        ran.add_ended(ended * look.view.interval.as_secs_f64());
        let length = (look.view.at - *since).as_secs_f64();
        if look.view.at - *since < window || length == 0.0 {
            return;
        }
        let counted = threads.is_empty() || ran.all > 0.0;
        let counted = counted || threads.iter().any(|task| task.per_s(Signal::CpuTime).is_some());
        self.cpus = counted.then_some(ran.all / length);
        // The kernel counts a wait at its end: the part before this window does not count now.
        let waited = ran.waited.values().map(|seconds| seconds.min(length)).sum::<f64>();
        self.waiting = (!ran.waited.is_empty()).then_some(waited / length);
        let missed: f64 = ran.missed.values().sum();
        self.bandwidth = (!ran.missed.is_empty()).then_some(missed * line / length);
        let at: BTreeSet<CpuId> = ran.on.keys().chain(ran.missed.keys()).copied().collect();
        let place = |cpu: CpuId| Place {
            cpu,
            cpus: ran.on.get(&cpu).map_or(0.0, |seconds| seconds / length),
            misses_per_s: ran.missed.get(&cpu).map(|misses| misses / length),
        };
        self.places = at.into_iter().map(place).collect();
        let moved = |(domain, seconds): (&Option<usize>, &f64)| MovedTime { domain: *domain, cpus: seconds / length };
        self.moved = ran.moved.iter().map(moved).filter(|moved| moved.cpus > 0.0).collect();
        let mut busiest: Vec<(&&TaskView, f64)> =
            threads.iter().map(|task| (task, ran.of.get(&task.info.id).copied().unwrap_or_default())).collect();
        busiest.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown = busiest.into_iter().take(THREADS).map(|(task, seconds)| ThreadStatus {
            tid: task.info.tid,
            name: task.info.comm.clone(),
            cpu: task.cpu,
            cpus: seconds / length,
            allowed: task.info.allowed.clone(),
        });
        self.busiest = shown.collect();
        self.ran = None;
    }
}

/// The busy time of the CPUs.
#[derive(Debug, Default)]
struct Busy {
    /// The start of the window, and the counts at that time.
    since: Option<(Time, Vec<CpuSample>)>,
    told: Vec<CpuStatus>,
}

impl Busy {
    /// Takes over a look that began at `from`; `last` is the previous sample.
    fn add(&mut self, from: Time, last: &Sample, sample: &Sample, window: Duration) {
        let (since, before) = self.since.get_or_insert_with(|| (from, last.cpus.clone()));
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

    /// All, if the last is recent.
    fn of_now(&self, now: Time) -> impl Iterator<Item = T> + Clone {
        let told = self.0.back().is_some_and(|last| now < last.0 + STALE_AFTER);
        self.0.iter().filter(move |_| told).map(|(_, value)| *value)
    }

    /// The first and the last, if these are recent.
    fn ends(&self, now: Time) -> Option<[(Time, T); 2]> {
        Some([*self.0.front()?, *self.0.back()?]).filter(|[first, last]| last.0 > first.0 && now < last.0 + STALE_AFTER)
    }
}

/// An order in words, and its application.
pub struct Decided {
    /// The application; `None` where the sample lacks it.
    pub app: Option<AppId>,
    /// The decision with its reason.
    pub decision: Decision,
}

/// Accumulates rounds, and fills in services' states.
pub struct Watch {
    topology: Topology,
    /// Threads and CPU time are counted over this long.
    window: Duration,
    speeds: Speeds,
    interference: Interference,
    now: BTreeMap<AppId, Now>,
    looks: Looks,
    /// Tasks of the last round, if sampled.
    look: Option<Look>,
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
    /// Whether speeds alone are true.
    judged: bool,
    /// Number of times a protected application stopped or resumed reporting.
    pub silences: u64,
    /// Why no goal can be judged now, whatever its figures.
    pub crowded: Option<String>,
}

impl Watch {
    /// Empty. CPU time and threads are shown after each `window`.
    pub fn new(topology: &Topology, window: Duration) -> Self {
        Self {
            topology: topology.clone(),
            window,
            speeds: Speeds::default(),
            interference: Interference::default(),
            now: BTreeMap::new(),
            looks: Looks::default(),
            look: None,
            busy: Busy::default(),
            counts: BTreeMap::new(),
            last: VecDeque::new(),
            trials: VecDeque::new(),
            reason: None,
            at: Time::default(),
            since: 0.0,
            judged: false,
            silences: 0,
            crowded: None,
        }
    }

    /// The same for the daemon: with the interference that an earlier one has learned. The host's clock began this long
    /// after the daemon.
    pub fn of_daemon(topology: &Topology, interference: Interference, since: Duration) -> Self {
        Self { interference, since: since.as_secs_f64(), ..Self::new(topology, WINDOW) }
    }

    /// The learned interference, to be stored.
    pub fn learned(&self) -> &Interference {
        &self.interference
    }

    /// Takes over a round, and returns its decisions, one for each order. `policies` has the policy of each rule.
    /// `judged`: speeds alone are valid, since throttled applications really wait.
    pub fn round(&mut self, round: &Round<'_>, policies: &[String], judged: bool) -> Vec<Decided> {
        (self.at, self.judged) = (round.sample.at, judged);
        let tasks = round.view.by_app();
        self.speeds.add(round, &tasks);
        self.interference.watch(&self.topology, round);
        self.look = self.looks.look(round.last, round.sample);
        if let Some(look) = &self.look {
            self.busy.add(look.from, round.last, round.sample, self.window);
            let (tasks, domains) = (look.view.by_app(), Domains::new(&self.topology, look));
            for app in &round.sample.apps {
                let now = self.now.entry(app.id).or_default();
                let threads = tasks.of(app.id);
                now.threads = threads.len();
                if let Some(waits) = &app.waits {
                    now.waits(app.id, waits, self.window, |id| {
                        round.sample.apps.iter().find(|app| app.id == id).map(|app| app.name.clone())
                    });
                }
                let seen = look.view.app(app.id);
                let ended = seen.and_then(|app| app.ended_cpus).unwrap_or_default();
                if let Some(pressure) = seen.and_then(|app| app.pressure) {
                    now.pressure = Some((self.at, pressure));
                }
                now.ran(look, (threads, ended), &domains, self.window, self.topology.line_size());
            }
        }
        for app in &round.view.apps {
            let now = self.now.entry(app.id).or_default();
            if let Some(source) = self.speeds.best(app.id) {
                now.told = Some(source.to_string());
                let reading = source.reading(round.view, app);
                let is_speed = reading.is_some_and(|reading| reading.direction == Direction::HigherIsBetter);
                if source.clipped(round.view, app).is_some() {
                    now.speed = None;
                } else if let Some(reading) = reading.filter(|_| is_speed).and_then(Reading::as_speed) {
                    now.speed = Some((self.at, reading.value));
                }
            }
            let protected = now.protected(self.at).cloned();
            let source = protected.as_ref().map(|protected| &protected.source).or(self.speeds.best(app.id));
            if let Some(source) = source {
                now.level.round(round.view, app, source, protected.as_ref());
            }
        }
        for app in &round.sample.apps {
            if let (Some(so_far), Some(now)) = (&app.latency_ns, self.now.get_mut(&app.id)) {
                let protected = now.protected(self.at).cloned();
                now.level.answers(self.at, so_far, protected.as_ref());
            }
        }
        if let Some(explanation) = round.explain() {
            explanation.protected.iter().for_each(|app| self.heard(app));
            if judged {
                let slowed = explanation.throttling.map_or_else(Vec::new, |throttling| throttling.slowed);
                explanation.protected.iter().for_each(|app| self.protected(app, slowed.contains(&app.app)));
            }
            if let Some(trial) = explanation.trial.filter(|_| !round.orders.is_empty()) {
                self.tried(trial);
            }
        }
        let policy = policies.get(round.rule).map_or("", String::as_str);
        let decided: Vec<Decided> =
            round.orders.iter().zip(round.outcomes).map(|(order, o)| self.decided(round, order, *o, policy)).collect();
        for decided in &decided {
            self.remember(&decided.decision);
        }
        decided
    }

    /// Whether a service of class high misses its goal because of others than services of class low.
    pub fn is_slowed(&self, app: AppId) -> bool {
        self.now.get(&app).is_some_and(|now| now.slowed && now.protected(self.at).is_some())
    }

    /// Takes over whether a protected application reports.
    fn heard(&mut self, app: &ProtectedApp) {
        if let Some(now) = self.now.get_mut(&app.app)
            && std::mem::replace(&mut now.silent, app.silent) != app.silent
        {
            self.silences += 1;
        }
    }

    /// Adds the state of a protected application.
    fn protected(&mut self, app: &ProtectedApp, slowed: bool) {
        let Some(now) = self.now.get_mut(&app.app) else { return };
        now.slowed = slowed;
        now.protected = Some((self.at, app.clone()));
        if let Some(expected) = app.expected.filter(|_| !app.silent) {
            now.kept.add(self.at, [app.done, expected]);
        }
    }

    /// An order in words.
    fn decided(&self, round: &Round<'_>, order: &Order, outcome: Outcome, policy: &str) -> Decided {
        let done = Move::new(round.sample, order);
        let app = order.action.app().or_else(|| Some(round.sample.task(order.action.task()?)?.info.app));
        let service = round.sample.apps.iter().find(|known| Some(known.id) == app);
        let service = service.map(|app| app.name.clone()).unwrap_or_default();
        let what = done.to_string();
        let why = Why {
            policy: policy.to_owned(),
            stage: done.reason.stage.clone(),
            means: effect_name(done.effect),
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
            text: done.reason.text,
        };
        let at_s = self.since + self.at.as_secs_f64();
        let uid = app.and_then(|app| self.now.get(&app)?.uid);
        let outcome = outcome_name(outcome).map(str::to_owned);
        Decided { app, decision: Decision { at_s, service, uid, what, outcome, why: Some(why) } }
    }

    /// Counts a decision, and keeps it unless it renews the last one, as naps do ten times a second.
    fn remember(&mut self, decision: &Decision) {
        let Some(why) = &decision.why else { return };
        if decision.outcome.is_none() {
            *self.counts.entry((why.means.clone(), why.stage.clone())).or_default() += 1;
        }
        let reason = (decision.service.clone(), why.text.clone());
        if self.reason.replace(reason.clone()) == Some(reason) {
            return;
        }
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(decision.clone());
    }

    /// Takes over the last trial that ended. Policies report it repeatedly.
    fn tried(&mut self, trial: TrialResult) {
        let at_s = self.since + trial.at.as_secs_f64();
        let known = |old: &Trial| old.at_s.to_bits() == at_s.to_bits() && old.shape == trial.shape;
        if self.trials.iter().any(known) {
            return;
        }
        if self.trials.len() == TRIALS {
            self.trials.pop_front();
        }
        let TrialResult { shape, gain, interval, pairs, kept, .. } = trial;
        self.trials.push_back(Trial { at_s, shape, gain, interval, pairs, kept });
    }

    /// A service is observed from now on: its user, and its name in the table of interference.
    pub fn manage(&mut self, app: AppId, name: &str, uid: u32, container: Option<&Identity>) {
        self.now.entry(app).or_default().uid = Some(uid);
        let learnt = learnt(name, uid, container);
        if learnt != name {
            self.interference.call(app, learnt);
        }
    }

    /// Ends the management of a service.
    pub fn forget(&mut self, app: AppId) {
        self.now.remove(&app);
        self.speeds.forget(app);
        self.interference.forget(app);
    }

    /// A service's state, added to the roster's facts.
    pub fn fill(&self, app: AppId, status: ServiceStatus) -> ServiceStatus {
        let mut now = self.now.get(&app).cloned().unwrap_or_default();
        let silent = now.protected(self.at).is_some_and(|protected| protected.silent);
        if silent {
            (now.speed, now.kept) = (None, Last::default());
        }
        let speed = now.speed.filter(|(at, _)| self.at - *at <= MINUTE).map(|(_, speed)| speed);
        let kept = now.kept.ends(self.at).map(|[(_, first), (_, last)]| [last[0] - first[0], last[1] - first[1]]);
        let kept = kept.filter(|[_, alone]| *alone > 0.0).map(|[done, alone]| done / alone);
        let share = |[first, last]: [(Time, f64); 2]| (last.1 - first.1) / (last.0 - first.0).as_secs_f64();
        let throttled = now.slept.ends(self.at).map(share);
        let protected = now.protected(self.at);
        let (measured, within_goal) = (now.level.measured(self.at, protected), now.level.within_goal(self.at));
        let said = protected.filter(|_| !silent).map_or_else(Statement::default, |protected| protected.said.clone());
        let clipped = now.level.clipped(self.at).map(|clipped| {
            let what = measured.as_ref().map_or("it", |measured| &measured.what);
            format!("{what} is {clipped}; {}", clipped.remedy())
        });
        let metric_error = status.metric_error.clone().or(clipped);
        let judgement = status.goal.map(|goal| self.judgement(goal, kept, &now, protected, metric_error.as_ref()));
        let (cpus, waiting, source) = (now.cpus, now.waiting, now.told);
        let pressure = now.pressure.filter(|(at, _)| self.at < *at + STALE_AFTER).map(|(_, pressure)| pressure);
        let (latencies, places, moved, busiest) = (now.level.latency.told, now.places, now.moved, now.busiest);
        let (threads, bandwidth, behind) = (now.threads, now.bandwidth, now.behind.unwrap_or_default());
        let status = ServiceStatus { waiting, behind, pressure, ..status };
        let known = ServiceStatus { threads, cpus, speed, source, metric_error, kept, throttled, ..status };
        let known =
            ServiceStatus { measured, within_goal, latencies, said, bandwidth, places, moved, busiest, ..known };
        let Some(judgement) = judgement else { return known };
        let kept_interval = judgement.share.and_then(|(_, interval)| interval);
        ServiceStatus { kept_interval, ..known }.with(&judgement)
    }

    /// The verdict on a goal over the last minute.
    fn judgement(
        &self,
        goal: f64,
        kept: Option<f64>,
        now: &Now,
        protected: Option<&ProtectedApp>,
        trouble: Option<&String>,
    ) -> Judgement {
        let sums: Vec<[f64; 2]> = now.kept.of_now(self.at).collect();
        let pieces = sums.windows(2).map(|pair| [pair[1][0] - pair[0][0], pair[1][1] - pair[0][1]]);
        let interval = estimate(pieces.filter(|piece| *piece != [0.0; 2])).map(|it| [it.low().max(0.0), it.high()]);
        let alone = protected.and_then(|protected| protected.alone);
        let judged =
            Judgement::of(goal, kept, interval.filter(|_| kept.is_some()), alone, |ends| now.level.range(ends));
        let judged = judged.because(|judged| match (judged.share, protected) {
            _ if !self.judged => Some("nothing is enforced".to_owned()),
            (Some((_, None)), _) => Some("too few pieces of the last minute were measured".to_owned()),
            (Some(_), _) => None,
            _ if trouble.is_some() => trouble.cloned(),
            (None, Some(protected)) if protected.silent => Some("no reading any more".to_owned()),
            (None, Some(protected)) if protected.alone.is_some() => Some("no reading in the last minute".to_owned()),
            (None, _) => Some("its speed alone was not measured yet".to_owned()),
        });
        // A quiet machine would not make a speed known that nothing tells.
        let silent = protected.is_some_and(|protected| protected.silent);
        match &self.crowded {
            Some(why) if kept.is_some() || trouble.is_none() && !silent => judged.not_judged(why.clone()),
            _ => judged,
        }
    }

    /// Takes over the total pause of a throttled service, in seconds.
    pub fn slept(&mut self, app: AppId, seconds: f64, at: Time) {
        if let Some(now) = self.now.get_mut(&app) {
            now.slept.add(at, seconds);
        }
    }

    /// The time since the previous full sample, if the last round was one; once.
    pub fn take_look(&mut self) -> Option<Look> {
        self.look.take()
    }

    /// CPUs' worth of time that a service ran in the last second.
    pub fn cpus_of(&self, app: AppId) -> Option<f64> {
        self.now.get(&app)?.cpus
    }

    /// The busy shares of the CPUs.
    pub fn cpus(&self) -> Vec<CpuStatus> {
        self.busy.told.clone()
    }

    /// Certain losses, the greatest first.
    pub fn interference(&self) -> Vec<Row> {
        self.interference.rows()
    }

    /// Number of each action carried out, by stage.
    pub fn decisions(&self) -> Vec<Decisions> {
        let of = |((action, reason), count): (&(String, String), &u64)| Decisions {
            action: action.clone(),
            reason: reason.clone(),
            count: *count,
        };
        self.counts.iter().map(of).collect()
    }

    /// The last decisions, the latest last.
    pub fn last(&self) -> Vec<Decision> {
        self.last.iter().cloned().collect()
    }

    /// Results of the last trials of `shapes`, the latest last.
    pub fn trials(&self) -> Vec<Trial> {
        self.trials.iter().cloned().collect()
    }
}

/// In the form of recordings.
fn effect_name(effect: Effect) -> String {
    serde_json::to_value(effect).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::policy::{Alone, Bound};
    use cotenant_model::speed::Source;
    use cotenant_model::topology::synthetic;
    use cotenant_model::{AppSample, Count, Pressure, TaskSample, View};

    /// One rule decides every 60 ms, most times by a glance, one every 100 ms; the program runs 23 % of the time, waits
    /// for a CPU 45 % of it, and changes its CPU in the last second.
    /// Holds see/waits.
    #[test]
    fn cpu_time_is_that_of_all_the_time_whichever_rule_looked() {
        let sample = |at_ms: u64, looked_ms: u64| {
            let ran = Count::exact(looked_ms * 230_000);
            let waited = Count::exact(looked_ms * 450_000);
            let moves = Count::exact(looked_ms.saturating_sub(1_000) / 100);
            let task = TaskSample {
                cpu: Some(CpuId((looked_ms / 100 % 2) as u32 * u32::from(looked_ms > 1_000))),
                counters: [(Signal::CpuTime, ran), (Signal::RunQueueWait, waited), (Signal::Migrations, moves)]
                    .into_iter()
                    .collect(),
                ..TaskSample::default()
            };
            // Once a second its ended part is read, 0.1 s of CPU time, and its group's lack of CPUs, 0.3 s.
            let read = at_ms / 1_000;
            let pressure = Some(Pressure { us: read * 300_000, at: Time::from_secs(read) });
            let ended_ns = Some(read * 100_000_000);
            let app = AppSample { name: "a".to_owned(), ended_ns, pressure, ..AppSample::default() };
            let at = Time::from_millis(at_ms);
            Sample { at, tasks: vec![task], apps: vec![app], ..Sample::default() }
        };
        let mut watch = Watch::new(&synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap(), WINDOW);
        let first = sample(0, 0);
        let (mut before, mut last, mut looked) = ([first.clone(), first.clone()], first, 0);
        let mut told = Vec::new();
        for at in (20..=2_000).step_by(20) {
            for (rule, _) in [(0, 60), (1, 100)].into_iter().filter(|(_, every)| at % every == 0) {
                let whole = rule == 1 || at % 300 == 0;
                looked = if whole { at } else { looked };
                let now = sample(at, looked);
                let view = View::new(&before[rule], &now);
                let round = Round {
                    rule,
                    last: &last,
                    prev: &before[rule],
                    sample: &now,
                    whole,
                    view: &view,
                    policy: None,
                    decision: None,
                    orders: &[],
                    outcomes: &[],
                };
                watch.round(&round, &[], false);
                (before[rule], last) = (now.clone(), now);
            }
            if at % 1_000 == 0 {
                let status = watch.fill(AppId(0), ServiceStatus::default());
                let sum = |all: Vec<f64>| (all.iter().sum::<f64>() * 1e3).round() as u64;
                let of = |value: Option<f64>| (value.unwrap() * 1e3).round() as u64;
                let [places, moved] = [
                    status.places.iter().map(|place| place.cpus).collect(),
                    status.moved.iter().map(|moved| moved.cpus).collect(),
                ];
                told.push((of(status.cpus), of(status.waiting), of(status.pressure), sum(places), sum(moved)));
            }
        }
        assert_eq!(told, [(330, 450, 300, 230, 100), (330, 450, 300, 0, 330)]);
    }

    /// One that is heard has half of its speed alone; of one that is not, nothing of before is shown.
    #[test]
    fn a_silent_service_shows_nothing_of_before() {
        let mut watch = Watch::new(&synthetic::parse("pack:2 l3:2 core:2 pu:1").unwrap(), WINDOW);
        let mut shown = |seconds: u64, silent| {
            watch.at = Time::from_secs(seconds);
            watch.now.entry(AppId(0)).or_default().speed = Some((Time::from_secs(seconds.min(20)), 7.0));
            let protected = ProtectedApp {
                app: AppId(0),
                source: Source::Progress,
                goal: None,
                alone: Some(Alone { speed: 2.0, interval: None, at: Time::from_secs(1) }),
                done: seconds.min(20) as f64,
                weight: 1.0,
                expected: Some(2.0 * seconds.min(20) as f64),
                silent,
                said: Statement { bound: Some(Bound { quantile: 0.99, alone_s: 1.0, goal_s: 2.0 }) },
            };
            watch.protected(&protected, seconds == 20);
            assert_eq!(watch.is_slowed(AppId(0)), seconds == 20);
            let ServiceStatus { kept, speed, said, .. } = watch.fill(AppId(0), ServiceStatus::default());
            (kept, speed, said.bound.is_some())
        };
        assert_eq!(shown(10, false), (None, Some(7.0), true));
        assert_eq!(shown(20, false), (Some(0.5), Some(7.0), true));
        assert_eq!(shown(26, true), (None, None, false));
        assert_eq!(shown(27, false), (Some(0.5), Some(7.0), true), "it speaks again");
        watch.now.entry(AppId(0)).or_default().slowed = true;
        let slowed = [27, 41, 42].map(|seconds| {
            watch.at = Time::from_secs(seconds);
            watch.is_slowed(AppId(0))
        });
        assert_eq!(slowed, [true, true, false], "nobody has said so for long");
    }

    /// A speed alone that is measured anew, and is lower, makes less of what was to be done before.
    #[test]
    fn the_share_of_the_last_minute_lies_in_its_interval() {
        let mut watch = Watch::new(&synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap(), WINDOW);
        watch.judged = true;
        watch.now.entry(AppId(0)).or_default();
        for second in 1..=12 {
            watch.at = Time::from_secs(second);
            let expected = if second <= 8 { 10.0 * second as f64 } else { 6.0 * second as f64 };
            let app = ProtectedApp {
                app: AppId(0),
                source: Source::Progress,
                goal: Some(0.9),
                alone: None,
                done: 6.0 * second as f64,
                weight: second as f64,
                expected: Some(expected),
                silent: false,
                said: Statement::default(),
            };
            watch.protected(&app, false);
        }
        let status = watch.fill(AppId(0), ServiceStatus { goal: Some(0.9), ..ServiceStatus::default() });
        let (kept, [low, high]) = status.kept.zip(status.kept_interval).unwrap();
        assert!(low <= kept && kept <= high, "{low} {kept} {high}");
    }

    /// Ten seconds of 95 % of its speed alone, which was measured well, badly, or on a machine that others fill.
    /// Holds qos/verdict.
    #[test]
    fn a_service_is_judged_by_the_last_minute() {
        let judged = |interval: [f64; 2], enforced: bool, crowded: Option<&str>| {
            let mut watch = Watch::new(&synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap(), WINDOW);
            (watch.judged, watch.crowded) = (enforced, crowded.map(str::to_owned));
            watch.now.entry(AppId(0)).or_default();
            for second in 1..=10 {
                watch.at = Time::from_secs(second);
                let share = 0.94 + 0.02 * (second % 2) as f64;
                watch.protected(
                    &ProtectedApp {
                        app: AppId(0),
                        source: Source::Progress,
                        goal: Some(0.9),
                        alone: Some(Alone { speed: 2.0, interval: Some(interval), at: Time::from_secs(1) }),
                        done: 2.0 * second as f64 * 0.95 + share,
                        weight: second as f64,
                        expected: Some(2.0 * second as f64),
                        silent: false,
                        said: Statement::default(),
                    },
                    false,
                );
            }
            let goal = Some(0.9);
            let status = watch.fill(AppId(0), ServiceStatus { goal, ..ServiceStatus::default() });
            assert_eq!(status.kept_interval.is_some(), status.kept.is_some());
            status.judgement.unwrap()
        };
        assert_eq!(judged([1.99, 2.01], true, None), "kept 95 % (94 to 96; goal 90 %)");
        let depends = judged([1.8, 2.4], true, None);
        assert!(
            depends.starts_with("kept or missed: it depends on one measurement of the speed alone (1.80 to 2.40"),
            "{depends}"
        );
        assert_eq!(judged([1.99, 2.01], true, Some("this machine is busy")), "not judged: this machine is busy");
        assert!(!judged([1.99, 2.01], true, None).contains("busy"));
        let watch = Watch::new(&synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap(), WINDOW);
        let status = watch.fill(AppId(0), ServiceStatus { goal: Some(0.9), ..ServiceStatus::default() });
        assert_eq!(status.judgement.as_deref(), Some("not judged: nothing is enforced"));
        let mut watch = watch;
        (watch.judged, watch.crowded) = (true, Some("this machine is busy".to_owned()));
        watch.now.entry(AppId(0)).or_default();
        let gone = Some("nothing listens there".to_owned());
        let status = ServiceStatus { goal: Some(0.9), metric_error: gone, ..ServiceStatus::default() };
        let status = watch.fill(AppId(0), status);
        assert_eq!(status.judgement.as_deref(), Some("not judged: nothing listens there"), "busy or not");
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
}
