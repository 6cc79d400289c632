//! Acting: one actuator per effect. Every change is announced to the [`Journal`] before it is made.

pub mod background;
mod backoff;
mod bandwidth;
mod caches;
pub mod cpu_time;
pub(crate) mod groups;
mod inherited;
pub(crate) mod level;
pub mod nap;
mod pages;
pub mod pause;
pub mod placement;
pub mod throttle;

use crate::FsRoot;
use crate::notes::Notes;
use crate::sense::observer::{NewTask, Observer};
use crate::sense::processes::{Process, Target};
use crate::sys;
use crate::sys::thread::Identity;
use crate::undo::{self, Journal, JournalOptions, Kind, OpenError, RestoreReport, Table};
use background::NO_EFFECT;
use background::effect::{Counter, Effect, Moment};
use cotenant_model::{Action, AppId, CpuSet, Order, Outcome, Sample, TaskInfo, Time};
use level::{CpuGroups, Protected};
use pages::Mover;
use pause::{Method, PauseError, Pauses};
use placement::Placement;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use throttle::{Enforcer, Slept, Throttle};

/// Journaled kinds in the order of undoing: no program may stay paused while masks of others are restored.
///
/// Naps of marked programs end by themselves, and pages stay where they are.
pub const EFFECTS: Table = &[
    Kind::of::<groups::Groups>(),
    Kind::of::<pause::Stopped>(),
    Kind::of::<background::Units>(),
    Kind::of::<background::Sessions>(),
    Kind::of::<background::Classes>(),
    Kind::of::<placement::Masks>(),
];

/// Interval of checks whether the background is still at an effective level.
const LEVEL_EVERY: Duration = Duration::from_secs(5);

/// Undoes the leftovers of killed Cotenants of this user.
pub fn restore(state_dir: &Path) -> RestoreReport {
    undo::restore(state_dir, EFFECTS)
}

/// The same, and also resumes all that living Cotenants of this user keep paused.
pub fn restore_by_force(state_dir: &Path) -> RestoreReport {
    undo::restore_by_force(state_dir, EFFECTS)
}

/// The guardian's program.
pub fn guard(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    undo::guard(args, EFFECTS)
}

/// All actuators of one host. The observer, passed to every call, knows the affected tasks.
#[derive(Debug)]
pub struct Actuators {
    journal: Journal,
    /// Sets masks.
    pub placement: Placement,
    /// Mover of programs' memory.
    pages: Option<Mover>,
    /// Applications with effects as a whole, or possible ones.
    throttles: BTreeMap<AppId, Throttle>,
    /// How new programs are paused; `None`: by the best means.
    method: Option<Method>,
    pauses: Option<Pauses>,
    /// Applications paused since the last [`Actuators::settle`].
    stopped: BTreeSet<AppId>,
    turned: Vec<(AppId, bool)>,
    /// Protected applications.
    protected: BTreeSet<AppId>,
    /// The groups that share CPU time here.
    cpu: Option<CpuGroups>,
    /// Time of the next check of the background's level.
    level_due: Time,
    /// Applications for which the background is ineffective: the reason in one line.
    in_vain: BTreeMap<AppId, String>,
    /// Whether it has a measured effect.
    seen: Seen,
    notes: Notes,
}

/// Measured effect of the background.
#[derive(Debug, Default)]
struct Seen {
    counter: Counter,
    effect: Effect,
    /// As of the last look.
    moments: Vec<(u64, Moment)>,
    /// Its ineffectiveness, in one line.
    useless: Option<String>,
}

impl Actuators {
    /// Without changes yet, except for undoing killed Cotenants' leftovers; see [`Journal::open`].
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(options: JournalOptions, method: Option<Method>, move_pages: bool) -> Result<Self, OpenError> {
        Ok(Self {
            journal: Journal::open(options, EFFECTS)?,
            placement: Placement::default(),
            pages: move_pages.then(|| Mover::new(&FsRoot::live())),
            throttles: BTreeMap::new(),
            method,
            pauses: None,
            stopped: BTreeSet::new(),
            turned: Vec::new(),
            protected: BTreeSet::new(),
            cpu: CpuGroups::find(Path::new("/")),
            level_due: Time::default(),
            in_vain: BTreeMap::new(),
            seen: Seen::default(),
            notes: Notes::default(),
        })
    }

    /// Remarks for people: refusals with reasons. The same remark has the same text.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let throttled = self.throttles.values().flat_map(|throttle| throttle.notes.iter());
        let refused = self.journal.notes().iter().chain(self.notes.iter()).chain(self.placement.notes.iter());
        throttled.chain(refused).cloned().chain(self.pages.iter().flat_map(Mover::notes))
    }

    /// Those that are about Cotenant itself.
    pub fn own_notes(&self) -> impl Iterator<Item = &String> {
        self.journal.notes().iter()
    }

    /// Notes if another Cotenant manages a process: its tasks are left alone during that.
    pub fn look_for_rival(&mut self, pid: u32) {
        if let Some(other) = self.journal.rival(pid) {
            let why = format!("another cotenant (process {other}) manages it or its parent");
            self.notes.add(format!("process {pid} is left alone: {why}"));
        }
    }

    /// A task's mask without us, see [`Placement::original_mask`].
    pub fn original_mask(&mut self, task: &NewTask) -> CpuSet {
        self.placement.original_mask(&mut self.journal, task)
    }

    /// Prepares a new program, see [`Throttle::prepare`].
    ///
    /// # Errors
    /// Why it cannot be throttled as requested.
    pub fn prepare(
        &mut self,
        enforcer: Enforcer,
        command: &mut Command,
        protected: &[Protected],
    ) -> Result<Throttle, String> {
        let pauses = self.pauses.get_or_insert_with(|| Pauses::new(self.method.clone().unwrap_or_else(Method::best)));
        Throttle::prepare(enforcer, &mut self.journal, pauses, command, protected)
    }

    /// The groups of programs, or the future ones, as protected.
    pub fn to_keep(&self, name: &str, pids: &[u32]) -> Vec<Protected> {
        let Some(cpu) = &self.cpu else { return Vec::new() };
        let us = [std::process::id()];
        let groups = cpu.of_all(Path::new("/"), if pids.is_empty() { &us } else { pids }.iter().copied());
        groups.into_iter().map(|group| Protected { name: name.to_owned(), group }).collect()
    }

    /// Protects this application.
    pub fn protect(&mut self, app: AppId) {
        self.protected.insert(app);
        (self.level_due, self.seen) = (Time::default(), Seen::default());
    }

    /// Takes over a running program, see [`Throttle::attach`].
    ///
    /// # Errors
    /// Why it cannot be throttled as requested.
    pub fn attach(&mut self, enforcer: Enforcer, target: &Target) -> Result<Throttle, String> {
        Throttle::attach(enforcer, &mut self.journal, target)
    }

    /// Throttles an application by this from now on; `root`: it was started as this process.
    ///
    /// # Errors
    /// If journaling fails: it runs unthrottled.
    pub fn add(&mut self, app: AppId, mut throttle: Throttle, root: Option<Identity>) -> Result<(), PauseError> {
        let started = root.map_or(Ok(()), |root| throttle.started(&mut self.journal, root));
        if started.is_ok() {
            self.throttles.insert(app, throttle);
        }
        started
    }

    /// A preparation is not needed: the program was not started.
    pub fn give_up(&mut self, throttle: Throttle) {
        throttle.end(&mut self.journal); // failures are retried at the end
    }

    /// Restores an application, which is no longer managed.
    pub fn remove(&mut self, now: Time, app: AppId, observer: &Observer) {
        self.protected.remove(&app);
        self.seen = Seen::default();
        if let Some(why) = self.in_vain.remove(&app) {
            self.notes.take_back(&why);
        }
        if let Some(throttle) = self.throttles.remove(&app) {
            self.notes.extend(throttle.end(&mut self.journal));
        }
        for info in observer.tasks_of(app) {
            self.placement.forget(&mut self.journal, now, info);
        }
        let members = observer.members(app);
        if let Some(pages) = &mut self.pages {
            for (pid, _) in &members {
                pages.forget(*pid);
            }
        }
        self.journal.unclaim(&members);
    }

    /// Duties of every round, with or without orders.
    pub fn tend(&mut self, now: Time) {
        self.journal.tend();
        self.placement.tend(&mut self.journal, now);
    }

    /// Examines throttled programs after a full sample of threads.
    pub fn look(
        &mut self,
        now: Time,
        processes: &BTreeMap<AppId, Vec<(u32, &Process)>>,
        sample: &Sample,
        observer: &Observer,
    ) {
        if now >= self.level_due {
            self.level_due = now + LEVEL_EVERY;
            self.look_at_levels(observer);
        }
        self.look_at_effect(sample, observer);
        let ran = if self.throttles.values().any(Throttle::looks) { nap::ran(sample) } else { nap::Ran::new() };
        for (app, throttle) in &mut self.throttles {
            let processes = processes.get(app).map_or(&[][..], Vec::as_slice);
            throttle.look(&mut self.journal, now, processes, &ran);
            if throttle.tends_threads() {
                let tasks = sample.tasks.iter().map(|task| &task.info).filter(|info| info.app == *app);
                throttle.tend_threads(&mut self.journal, &tasks.cloned().collect::<Vec<_>>());
            }
        }
    }

    /// Stops everything pausable for the moment of a decision.
    pub fn pause_all(&mut self, now: Time, observer: &Observer) {
        for (app, throttle) in &mut self.throttles {
            throttle.pause(&mut self.journal, now, &members(throttle, *app, observer), Some(sys::monotonic()));
        }
    }

    /// Ends what is due; returns the next due time.
    pub fn due(&mut self, now: Time) -> Option<Time> {
        let due = |throttle: &mut Throttle| throttle.due(&mut self.journal, now);
        self.throttles.values_mut().filter_map(due).min()
    }

    /// Delivers a signal to an application; false if it is unknown here.
    pub fn signal(&mut self, now: Time, app: AppId, signal: i32, observer: &Observer) -> bool {
        let throttle = self.throttles.get_mut(&app);
        let tasks: Vec<_> = observer.tasks_of(app).cloned().collect();
        throttle
            .map(|throttle| {
                throttle.signal(&mut self.journal, now, signal, &members(throttle, app, observer), &tasks);
            })
            .is_some()
    }

    /// Whether any application is throttled, or may be.
    pub fn throttles(&self) -> bool {
        !self.throttles.is_empty()
    }

    /// Sleep of throttled applications, by ascending ids.
    pub fn slept(&self, now: Time) -> Vec<Slept> {
        self.throttles.values().map(|throttle| throttle.slept(now)).collect()
    }

    /// Sleep of one throttled application.
    pub fn slept_of(&self, now: Time, app: AppId) -> Option<Slept> {
        self.throttles.get(&app).map(|throttle| throttle.slept(now))
    }

    /// Time for which a throttled application was kept from running.
    pub fn paused(&self, now: Time, app: AppId) -> Option<Duration> {
        self.throttles.get(&app).map(|throttle| throttle.paused(now))
    }

    /// Number of current changes by kind. Inside naps end by themselves and do not count.
    pub fn outstanding(&self) -> [(&'static str, usize); 5] {
        let throttled = |kind: fn(&Throttle) -> bool| self.throttles.values().filter(|throttle| kind(throttle)).count();
        [
            ("mask", self.placement.outstanding()),
            ("pause", throttled(Throttle::is_paused)),
            ("cpu_time", throttled(|throttle| throttle.limits_in_force()[0])),
            ("caches", throttled(|throttle| throttle.limits_in_force()[1])),
            ("background", throttled(|throttle| throttle.limits_in_force()[2])),
        ]
    }

    /// Announces the next orders: processes changed for the first time are claimed together.
    pub fn expect(&mut self, orders: &[Order], observer: &Observer) {
        let places = orders.iter().filter(|order| matches!(order.action, Action::Place { .. }));
        for info in places.filter_map(|order| observer.info(order.action.task()?)) {
            if !self.placement.knows(info.tid, info.start_ticks) {
                self.journal.claim_along(info.pid);
            }
        }
    }

    /// Carries out an order; resuming is left to [`Actuators::settle`]. `monotonic` converts the host's time to the
    /// programs' clock.
    pub fn apply(
        &mut self,
        now: Time,
        order: &Order,
        observer: &Observer,
        monotonic: impl Fn(Time) -> Duration,
    ) -> Outcome {
        if let Some(task) = order.action.task() {
            let Some(info) = observer.info(task).cloned() else { return Outcome::Gone };
            return self.apply_to_task(now, order, &info, observer);
        }
        let Some(app) = order.action.app() else { return Outcome::NotThisMachine };
        if let Action::Nap { until, .. } = order.action {
            let throttle = self.throttles.entry(app).or_insert_with(Throttle::from_outside);
            let members = members(throttle, app, observer);
            let on_their_clock = if until > now { monotonic(until) } else { Duration::ZERO };
            return throttle.nap(&mut self.journal, now, until, on_their_clock, &members);
        }
        let Some(throttle) = self.throttles.get_mut(&app) else { return Outcome::NotThisMachine };
        match order.action {
            Action::Limit { cpu_permille, .. } => throttle.limit(cpu_permille),
            Action::LimitCaches { permille, .. } => throttle.limit_caches(permille),
            Action::Background { on, .. } => {
                if on && self.is_without_effect(app, observer) {
                    return Outcome::Denied;
                }
                self.in_vain.remove(&app);
                self.background(app, on, observer)
            }
            _ => Outcome::NotThisMachine,
        }
    }

    /// Why the background of an application would not help the protected ones, in one line.
    fn why_without_effect(&self, app: AppId, observer: &Observer) -> Option<String> {
        let (throttle, cpu) = (self.throttles.get(&app)?, self.cpu.as_ref()?);
        if !throttle.may_give_way() {
            return None;
        }
        if self.seen.useless.is_some() {
            return self.seen.useless.clone();
        }
        let pids = |app| observer.members(app).into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
        let there = self.protected.iter().map(|kept| (observer.name(*kept), pids(*kept)));
        let protected: Vec<_> =
            there.filter(|(_, pids)| !pids.is_empty()).flat_map(|(name, pids)| self.to_keep(name, &pids)).collect();
        let groups = cpu.of_all(Path::new("/"), pids(app));
        let parting = throttle.gives_way_by(&groups).fails(&protected)?;
        Some(parting.text(observer.name(app), cpu))
    }

    /// Whether its background would be ineffective, with a note while it is so.
    fn is_without_effect(&mut self, app: AppId, observer: &Observer) -> bool {
        let why = self.why_without_effect(app, observer);
        if let Some(before) = self.in_vain.get(&app).filter(|before| Some(*before) != why.as_ref()) {
            self.notes.take_back(before);
        }
        if let Some(why) = why {
            self.notes.add(&*why);
            self.in_vain.insert(app, why);
            return true;
        }
        self.in_vain.remove(&app);
        false
    }

    fn background(&mut self, app: AppId, on: bool, observer: &Observer) -> Outcome {
        let Some(throttle) = self.throttles.get_mut(&app) else { return Outcome::NotThisMachine };
        throttle.background(&mut self.journal, on, &observer.tasks_of(app).cloned().collect::<Vec<_>>())
    }

    /// Removes applications from an ineffective background, and adds those that have become effective.
    fn look_at_levels(&mut self, observer: &Observer) {
        let there = self.throttles.iter().filter(|(_, throttle)| throttle.limits_in_force()[2]).map(|(app, _)| *app);
        for app in there.collect::<Vec<_>>() {
            if self.is_without_effect(app, observer) {
                self.background(app, false, observer);
            }
        }
        for app in self.in_vain.keys().copied().collect::<Vec<_>>() {
            if !self.is_without_effect(app, observer) {
                self.background(app, true, observer);
            }
        }
    }

    /// Compares protected programs' waits for a CPU beside the background with those in pauses.
    fn look_at_effect(&mut self, sample: &Sample, observer: &Observer) {
        let (protected, throttles) = (&self.protected, &self.throttles);
        if protected.is_empty() || throttles.is_empty() || self.seen.useless.is_some() {
            return;
        }
        let (kept, low) = (|app: AppId| protected.contains(&app), |app: AppId| throttles.contains_key(&app));
        let counted = self.seen.counter.count(sample, kept, low);
        let moments: Vec<_> = throttles.values().map(Throttle::moment).collect();
        let first = moments.first().map_or(Moment::Other, |(_, moment)| *moment);
        let alike = moments.iter().all(|(_, moment)| *moment == first) && moments == self.seen.moments;
        self.seen.moments = moments;
        let moment = if alike { first } else { Moment::Other };
        let Some([paused, beside]) = self.seen.effect.note(moment, &counted) else { return };
        let names = |apps: Vec<&AppId>| apps.into_iter().map(|app| observer.name(*app)).collect::<Vec<_>>().join(", ");
        let why = format!(
            "{NO_EFFECT}: {} waited for a CPU {:.0} % of the time beside {}, {:.0} % while that paused; \
             it naps instead",
            names(protected.iter().collect()),
            beside * 100.0,
            names(throttles.keys().collect()),
            paused * 100.0
        );
        self.seen.useless = Some(why);
        self.look_at_levels(observer);
    }

    fn apply_to_task(&mut self, now: Time, order: &Order, info: &TaskInfo, observer: &Observer) -> Outcome {
        let app = info.app;
        let mask = match &order.action {
            Action::Pause { .. } => {
                let throttle = self.throttles.entry(app).or_insert_with(Throttle::from_outside);
                if self.stopped.insert(app) {
                    let members = members(throttle, app, observer);
                    if throttle.wait(&mut self.journal, now, &members) {
                        self.turned.push((app, false));
                    }
                }
                return Outcome::Applied;
            }
            Action::Pages { nodes, .. } => {
                let Some(pages) = &mut self.pages else {
                    self.notes.add(
                        "pages stay where they are: moving the memory of running programs was not asked for (--move-pages)",
                    );
                    return Outcome::Denied;
                };
                return pages.apply(&mut self.journal, info, nodes);
            }
            Action::Release { .. } => None,
            _ => Some(&order.affinity),
        };
        if self.throttles.get_mut(&app).is_some_and(Throttle::go_on) {
            self.turned.push((app, true));
        }
        self.placement.apply(&mut self.journal, now, info, mask)
    }

    /// After orders: resumes what neither waits nor naps, and continues memory moves.
    pub fn settle(&mut self, now: Time) {
        self.stopped.clear();
        self.throttles.values_mut().for_each(|throttle| throttle.settle(&mut self.journal, now));
        if let Some(pages) = &mut self.pages {
            pages.go_on();
        }
    }

    /// Applications paused since the last call, or resumed (true).
    pub fn take_turned(&mut self) -> Vec<(AppId, bool)> {
        std::mem::take(&mut self.turned)
    }

    /// Resumes everything and ends effects on whole applications; failures are retried at the end.
    pub fn end_throttles(&mut self, now: Time) -> Vec<String> {
        // First, so that no process waits for the removal of another's group.
        self.throttles.values_mut().for_each(|throttle| throttle.let_go(&mut self.journal, now));
        let throttles = std::mem::take(&mut self.throttles).into_values();
        throttles.flat_map(|throttle| throttle.end(&mut self.journal)).collect()
    }

    /// Undoes everything and ends the guardian. Dropping does the same without a report.
    pub fn finish(mut self) -> RestoreReport {
        if let Some(pauses) = self.pauses.take() {
            pauses.finish(&mut self.journal);
        }
        self.journal.finish()
    }
}

/// Its processes, if they must be listed: a control group knows its own.
fn members(throttle: &Throttle, app: AppId, observer: &Observer) -> Vec<Identity> {
    if throttle.by_signals() { observer.members(app) } else { Vec::new() }
}
