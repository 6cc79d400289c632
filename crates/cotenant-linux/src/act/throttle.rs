//! Throttling of one application: all actuators on it as a whole, and its sleep.

use crate::FsRoot;
use crate::act::background::effect::Moment;
use crate::act::background::{self, Background};
use crate::act::caches::{Limited, Resctrl};
use crate::act::cpu_time::Quota;
use crate::act::groups::LimitError;
use crate::act::level::{self, Protected};
use crate::act::nap::{Marks, Ran};
use crate::act::pause::{Job, Mechanism, PauseError, Pauses};
use crate::notes::Notes;
use crate::sense::processes::{Process, Target};
use crate::sys::thread::{Held, Identity};
use crate::sys::waiter::asks_to_stop;
use crate::undo::{End, Journal};
use cotenant_model::{Outcome, TaskInfo, Time};
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Shorter pauses are not made by signals, whose delay is similar.
const SHORTEST_BY_SIGNALS: Duration = Duration::from_millis(20);

/// The note with `--means inside`, until there are marks.
const NO_MARKS: &str = "--means inside: a program of low priority has passed no mark and does not nap; \
                        build it with 'cotenant cc', or take --means auto";

/// The means of naps and limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcer {
    /// Inside naps if the program has marks, otherwise outside ones. Limits of CPU time, and of cache ways and memory
    /// bandwidth, on request. Unavailable means are left out.
    #[default]
    Auto,
    /// By marks only.
    Inside,
    /// By a freezer or signals only.
    Outside,
    /// By limits of CPU time; measuring naps as with `Auto`.
    Quota,
    /// By limits of cache ways and memory bandwidth; measuring naps as with `Auto`.
    Resctrl,
}

/// Sleep of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slept {
    /// The means, for people.
    pub means: String,
    /// Naps of its own threads.
    pub naps: u64,
    /// Total sleep of its threads in these.
    pub inside_s: f64,
    /// Time of outside pauses.
    pub outside_s: f64,
    /// Outside pauses.
    pub pauses: u64,
    /// Marked threads at the last look.
    pub threads: usize,
    /// The current limit as written; absent without one.
    pub limit: Option<String>,
    /// Limits set.
    pub limits: u64,
}

impl Slept {
    /// Mean seconds that each of its threads slept in its own naps.
    pub fn inside_each_s(&self) -> f64 {
        self.inside_s / self.threads.max(1) as f64
    }

    /// Total seconds of its naps and pauses.
    pub fn waited_s(&self) -> f64 {
        self.outside_s + self.inside_each_s()
    }
}

/// Current limits as written.
#[derive(Debug, Default)]
struct Written {
    cpu_time: Option<String>,
    caches: Option<String>,
    background: Option<String>,
}

/// One application.
#[derive(Debug, Default)]
pub struct Throttle {
    enforcer: Enforcer,
    job: Option<Job>,
    cpu_time: Option<Quota>,
    caches: Option<Limited>,
    /// Without a CPU group.
    background: Background,
    marks: Marks,
    /// Whether it naps from inside.
    inside: bool,
    /// The started process.
    root: Option<u32>,
    /// It is paused until an order resumes it, independent of naps.
    waits: bool,
    paused_since: Option<Time>,
    /// End of the current outside nap.
    wakes_at: Option<Time>,
    outside: Duration,
    pauses: u64,
    written: Written,
    limits: u64,
    /// It was requested to end: no more pauses and limits.
    ending: bool,
    /// Remarks for people.
    pub notes: Notes,
}

impl Throttle {
    fn new(enforcer: Enforcer, job: Option<Job>) -> Self {
        Self { enforcer, job, inside: enforcer == Enforcer::Inside, ..Self::default() }
    }

    /// Prepares a new program: it starts in its own session, and in groups from which it can yield to `protected`.
    ///
    /// # Errors
    /// Why it cannot be throttled as requested.
    pub fn prepare(
        enforcer: Enforcer,
        journal: &mut Journal,
        pauses: &mut Pauses,
        command: &mut Command,
        protected: &[Protected],
    ) -> Result<Self, String> {
        let mut new = Self::new(enforcer, None);
        if matches!(enforcer, Enforcer::Auto | Enforcer::Quota) {
            new.cpu_time = new.unless_auto(Quota::make(journal, protected))?;
            new.notes.extend(new.cpu_time.as_mut().and_then(|quota| quota.refused.take()));
        }
        if matches!(enforcer, Enforcer::Auto | Enforcer::Resctrl) {
            let found = Resctrl::find(&FsRoot::live()).ok_or(LimitError::NoResctrl);
            new.caches = new.unless_auto(found.and_then(|resctrl| resctrl.make(journal)))?;
            new.caches.iter().try_for_each(|limited| limited.enter(command)).map_err(|why| why.to_string())?;
        }
        let job = if let Some(job) = new.cpu_time.as_ref().and_then(Quota::job) {
            job
        } else {
            if let Some(quota) = &new.cpu_time {
                quota.enter(command).map_err(|why| why.to_string())?;
            }
            pauses.job(journal).map_err(|why| why.to_string())?
        };
        job.prepare(command).map_err(|why| why.to_string())?;
        new.job = Some(job);
        Ok(new)
    }

    /// Unavailable means are left out unless explicitly requested.
    fn unless_auto<T>(&self, made: Result<T, LimitError>) -> Result<Option<T>, String> {
        match made {
            Err(_) if self.enforcer == Enforcer::Auto => Ok(None),
            made => made.map(Some).map_err(|why| why.to_string()),
        }
    }

    /// Takes over a running program.
    ///
    /// # Errors
    /// Why it cannot be throttled as requested.
    pub fn attach(enforcer: Enforcer, journal: &mut Journal, target: &Target) -> Result<Self, String> {
        if matches!(enforcer, Enforcer::Quota | Enforcer::Resctrl) {
            return Err("only programs that are started here can be limited: they would have to be moved to another control group; \
                        use --means auto"
                .to_owned());
        }
        Ok(match target {
            Target::Cgroup(path) => {
                let job = Job::of_group(journal, path).map_err(|why| why.to_string())?;
                Self { background: Background::of_group(path), ..Self::new(enforcer, Some(job)) }
            }
            Target::Pids(_) | Target::Trees(_) => Self::new(enforcer, Some(Job::of_processes())),
        })
    }

    /// For programs without a preparation: by their marks, or by signals.
    pub fn from_outside() -> Self {
        Self::new(Enforcer::Auto, Some(Job::of_processes()))
    }

    /// It runs as this process.
    ///
    /// # Errors
    /// If journaling fails: it runs, and cannot be paused.
    pub fn started(&mut self, journal: &mut Journal, root: Identity) -> Result<(), PauseError> {
        self.root = Some(root.0);
        self.cpu_time.iter_mut().for_each(Quota::began);
        // So that other Cotenants leave it alone. It is ours even if one of them manages our parent.
        if let Ok(held) = Held::open_exactly(root.0, root.0, root.1) {
            let _ = journal.may_touch(&held);
        }
        self.job.as_mut().map_or(Ok(()), |job| job.started(journal, root))
    }

    /// Whether a pause needs its processes: a control group knows its own.
    pub fn by_signals(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.mechanism() == Mechanism::Signals)
    }

    /// Whether marks are looked for.
    pub fn looks(&self) -> bool {
        self.enforcer != Enforcer::Outside
    }

    /// Finds marked processes, and adjusts limits towards their targets.
    pub fn look(&mut self, journal: &mut Journal, at: Time, processes: &[(u32, &Process)], ran: &Ran) {
        if self.looks() {
            self.marks.look(journal, at, processes, self.root.is_none(), &mut self.notes);
            if self.marks.any() {
                self.notes.take_back(NO_MARKS);
            }
            if let Some(reached) = self.marks.judge(processes, ran) {
                self.inside = reached || self.enforcer == Enforcer::Inside;
            }
        }
        // Soon after another agent has frozen it, not only before a nap, because the guardian must know by then.
        if let Some(job) = &mut self.job {
            job.is_theirs(journal);
        }
        if let Some(Err(why)) = self.caches.as_mut().map(|limited| limited.tend(at)) {
            self.notes.add(why.to_string());
        }
        if let Some(Err(why)) = self.cpu_time.as_ref().map(Quota::tend) {
            self.notes.add(why.to_string());
        }
    }

    /// Orders a nap until `end`, which is `until` on the programs' clock; a past time ends a nap.
    pub fn nap(
        &mut self,
        journal: &mut Journal,
        now: Time,
        end: Time,
        until: Duration,
        members: &[Identity],
    ) -> Outcome {
        if end <= now || self.ending {
            self.marks.withdraw();
            self.wakes_at = None;
            self.settle(journal, now);
            return Outcome::Applied;
        }
        if self.inside {
            self.wakes_at = None;
            self.settle(journal, now);
            self.marks.nap(now, end, until);
            if self.marks.any() {
                return Outcome::Applied;
            }
            if self.enforcer == Enforcer::Inside {
                self.notes.add(NO_MARKS);
            }
            return Outcome::Gone;
        }
        let Some(job) = &self.job else { return Outcome::NotThisMachine };
        if job.mechanism() == Mechanism::Signals && end - now < SHORTEST_BY_SIGNALS {
            self.notes.add(
                "pauses below 20 ms are not made by SIGSTOP; build the program with 'cotenant cc', or take --means quota",
            );
            return Outcome::Denied;
        }
        self.wakes_at = Some(end);
        if self.pause(journal, now, members, Some(until)) {
            return Outcome::Applied;
        }
        self.wakes_at = None;
        self.settle(journal, now);
        Outcome::Denied
    }

    /// Pauses it until [`Throttle::go_on`]; returns whether it was not paused so before.
    pub fn wait(&mut self, journal: &mut Journal, now: Time, members: &[Identity]) -> bool {
        let waited = std::mem::replace(&mut self.waits, true);
        self.pause(journal, now, members, None); // partial stops remain
        !waited
    }

    /// Ends its wait; returns whether it waited. It runs with the next [`Throttle::settle`].
    pub fn go_on(&mut self) -> bool {
        std::mem::replace(&mut self.waits, false)
    }

    /// Stops it until [`Throttle::settle`], unless it waits or naps. If this Cotenant stops then, its guardian resumes
    /// it some time after `until`. Returns whether all of it could be stopped.
    pub fn pause(&mut self, journal: &mut Journal, now: Time, members: &[Identity], until: End) -> bool {
        self.heed(journal, now);
        let until = until.filter(|_| !self.waits);
        let Some(job) = &mut self.job else { return false };
        let paused = job.pause(journal, members, until).map_err(|why| self.notes.add(why.to_string()));
        self.pauses += u64::from(paused.is_ok() && self.paused_since.is_none());
        if job.is_paused() {
            self.paused_since.get_or_insert(now);
        }
        paused.is_ok()
    }

    /// Handles a resume by its guardian.
    fn heed(&mut self, journal: &mut Journal, now: Time) {
        if let Some(ran) = self.job.as_mut().and_then(|job| job.heed(journal))
            && let Some(since) = self.paused_since.take()
        {
            self.outside += (now - since).saturating_sub(ran);
        }
    }

    /// Resumes it unless it waits or naps.
    pub fn settle(&mut self, journal: &mut Journal, now: Time) {
        if self.waits || self.wakes_at.is_some_and(|end| end > now) {
            return;
        }
        self.wakes_at = None;
        self.heed(journal, now);
        let Some(since) = self.paused_since else { return };
        if let Some(Err(why)) = self.job.as_mut().map(|job| job.resume(journal)) {
            return self.notes.add(why.to_string()); // retried in the next round
        }
        self.paused_since = None;
        self.outside += now - since;
    }

    /// Ends a due outside nap, and renews an inside one; returns the next due time.
    pub fn due(&mut self, journal: &mut Journal, now: Time) -> Option<Time> {
        if self.wakes_at.is_some_and(|end| now >= end) {
            self.settle(journal, now);
        }
        self.wakes_at.into_iter().chain(self.marks.stand_by(now)).min()
    }

    /// Limits it to this many thousandths of one CPU, or lifts that limit.
    pub fn limit(&mut self, cpu_permille: Option<u32>) -> Outcome {
        let Some(quota) = &mut self.cpu_time else { return Outcome::NotThisMachine };
        let cpu_permille = cpu_permille.filter(|_| !self.ending);
        let set = quota.set(cpu_permille).map(|text| cpu_permille.map(|_| text));
        self.limits += u64::from(matches!(set, Ok(Some(_))));
        note(set, &mut self.written.cpu_time, &mut self.notes)
    }

    /// Limits it to this many thousandths of cache ways and of its memory bandwidth, or lifts that limit.
    pub fn limit_caches(&mut self, permille: Option<u32>) -> Outcome {
        let Some(limited) = &mut self.caches else { return Outcome::NotThisMachine };
        let share = permille.filter(|_| !self.ending).map(|permille| f64::from(permille) / 1e3);
        let set = limited.set(share).map(|()| share.map(|share| format!("resctrl {:.0} %", share * 100.0)));
        self.limits += u64::from(matches!(set, Ok(Some(_))));
        note(set, &mut self.written.caches, &mut self.notes)
    }

    /// Runs it only on otherwise idle CPUs, or normally again; `tasks` are all of its threads.
    pub fn background(&mut self, journal: &mut Journal, on: bool, tasks: &[Arc<TaskInfo>]) -> Outcome {
        if self.enforcer != Enforcer::Auto {
            return Outcome::NotThisMachine;
        }
        let on = on && !self.ending;
        let set = match &mut self.cpu_time {
            Some(quota) => background::group::set(quota, on).map(|text| on.then_some(text)),
            None => self.background.turn(journal, on, tasks, self.root.is_none(), &mut self.notes),
        };
        note(set, &mut self.written.background, &mut self.notes)
    }

    /// How it would yield to others: by its group, or by its threads in those of `groups`.
    pub fn gives_way_by<'a>(&'a self, groups: &'a [PathBuf]) -> level::Means<'a> {
        let group = self.cpu_time.as_ref().map(|quota| &*quota.group.path).or(self.background.group());
        group.map_or(level::Means::Threads(groups), level::Means::Group)
    }

    /// Whether it can be in the background at all, given how it was started or attached.
    pub fn may_give_way(&self) -> bool {
        self.enforcer == Enforcer::Auto
    }

    /// Whether [`Throttle::tend_threads`] has any work.
    pub fn tends_threads(&self) -> bool {
        self.background.is_used()
    }

    /// Updates the background of its newly created threads.
    pub fn tend_threads(&mut self, journal: &mut Journal, tasks: &[Arc<TaskInfo>]) {
        self.background.tend(journal, tasks, self.root.is_none(), &mut self.notes);
        self.written.background = self.background.in_force();
    }

    /// Delivers a signal and resumes it, because a frozen program cannot end.
    pub fn signal(
        &mut self,
        journal: &mut Journal,
        now: Time,
        signal: i32,
        members: &[Identity],
        tasks: &[Arc<TaskInfo>],
    ) {
        if asks_to_stop(signal) || signal == libc::SIGKILL {
            self.ending = true;
            self.waits = false;
            self.wakes_at = None;
            self.marks.withdraw();
        }
        // An ending program needs CPU time, and could wait long in the background.
        if self.written.cpu_time.is_some() {
            self.limit(None);
        }
        if self.written.background.is_some() {
            self.background(journal, false, tasks);
        }
        if let Some(Err(why)) = self.job.as_ref().map(|job| job.signal(signal, members)) {
            self.notes.add(why.to_string());
        }
        self.settle(journal, now);
    }

    /// Time of outside pauses.
    fn outside(&self, now: Time) -> Duration {
        self.outside + self.paused_since.map_or(Duration::ZERO, |since| now - since)
    }

    /// As [`Slept::waited_s`].
    pub fn paused(&self, now: Time) -> Duration {
        let (_, inside_s) = self.marks.slept();
        self.outside(now)
            + Duration::try_from_secs_f64(inside_s / self.marks.threads.max(1) as f64).unwrap_or(Duration::ZERO)
    }

    /// Its sleep.
    pub fn slept(&self, now: Time) -> Slept {
        let (naps, inside_s) = self.marks.slept();
        let outside = self.outside(now);
        let by = match (&self.job, self.inside) {
            (_, true) => "its marks".to_owned(),
            (Some(job), false) => job.mechanism().to_string(),
            (None, false) => "nothing".to_owned(),
        };
        let Written { cpu_time, caches, background } = &self.written;
        let written: Vec<&str> = [cpu_time, caches, background].into_iter().flatten().map(String::as_str).collect();
        let by_limits = self.limits > 0 || matches!(self.enforcer, Enforcer::Quota | Enforcer::Resctrl);
        Slept {
            means: match (&self.cpu_time, &self.caches) {
                (Some(quota), _) if by_limits => quota.to_string(),
                (None, Some(_)) if by_limits => "resctrl".to_owned(),
                _ => by,
            },
            naps,
            inside_s,
            outside_s: outside.as_secs_f64(),
            pauses: self.pauses,
            threads: self.marks.threads,
            limit: (!written.is_empty()).then(|| written.join(" and ")),
            limits: self.limits,
        }
    }

    /// Whether it is paused from outside now.
    pub fn is_paused(&self) -> bool {
        self.paused_since.is_some()
    }

    /// Number of outside pauses, and the current state of its background.
    pub fn moment(&self) -> (u64, Moment) {
        let moment = match () {
            () if self.inside => Moment::Other,
            () if self.is_paused() => Moment::Paused,
            () if self.written.background.is_some() => Moment::Beside,
            () => Moment::Other,
        };
        (self.pauses, moment)
    }

    /// Whether its CPU time and its caches are limited now, and whether it is in the background.
    pub fn limits_in_force(&self) -> [bool; 3] {
        let Written { cpu_time, caches, background } = &self.written;
        [cpu_time, caches, background].map(Option::is_some)
    }

    /// Resumes it, for the end.
    pub fn let_go(&mut self, journal: &mut Journal, now: Time) {
        self.waits = false;
        self.wakes_at = None;
        self.marks.withdraw();
        self.settle(journal, now);
    }

    /// Resumes it and ends; returns lines about failures, which undoing at the end retries.
    pub fn end(self, journal: &mut Journal) -> Vec<String> {
        let mut notes = self.background.end(journal);
        if let Some(mut job) = self.job {
            let lent = self.cpu_time.as_ref().is_some_and(Quota::is_v2);
            let ended = if lent { job.resume(journal) } else { job.end(journal) };
            notes.extend(ended.err().map(|why| why.to_string()));
        }
        let caches = self.caches.map_or(Ok(()), |limited| limited.end(journal));
        let cpu_time = self.cpu_time.map_or(Ok(()), |quota| quota.end(journal));
        notes.extend([caches, cpu_time].into_iter().filter_map(|ended| ended.err().map(|why| why.to_string())));
        notes
    }
}

fn note(set: Result<Option<String>, LimitError>, written: &mut Option<String>, notes: &mut Notes) -> Outcome {
    match set {
        Ok(text) => {
            *written = text;
            Outcome::Applied
        }
        Err(why) => {
            notes.add(why.to_string());
            Outcome::Denied
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::caches::tests::tree;
    use crate::tests::journal;
    use cotenant_testing::TempDir;

    /// Holds qos/limits.
    #[test]
    fn caches_are_limited_as_ordered() {
        let dir = TempDir::new("low-resctrl");
        let mut journal = journal(&dir.path().join("state"));
        let mut low = Throttle::new(Enforcer::Auto, None);
        assert_eq!([low.limit(Some(500)), low.limit_caches(Some(250))], [Outcome::NotThisMachine; 2]);
        low.caches = Some(Resctrl::find(&tree(&dir)).unwrap().make(&mut journal).unwrap());
        // The kernel makes this file; its 12 ways.
        let groups = std::fs::read_dir(dir.path().join("sys/fs/resctrl")).unwrap().flatten();
        let ours = |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cotenant-"))
        };
        let group = groups.map(|entry| entry.path()).find(ours).unwrap();
        std::fs::write(group.join("schemata"), "").unwrap();
        assert_eq!(low.limit(Some(500)), Outcome::NotThisMachine, "there is no quota, and nothing stands in for it");
        assert_eq!(low.limit_caches(Some(250)), Outcome::Applied, "{:?}", low.notes);
        assert!(std::fs::read_to_string(group.join("schemata")).unwrap().starts_with("L3:0=7;1=7"));
        let slept = low.slept(Time::default());
        assert_eq!((slept.means.as_str(), slept.limit.as_deref(), slept.limits), ("resctrl", Some("resctrl 25 %"), 1));
        low.limit_caches(None);
        assert!(std::fs::read_to_string(group.join("schemata")).unwrap().starts_with("L3:0=fff;1=fff"));
        assert_eq!(low.slept(Time::default()).limit, None);
        std::fs::remove_file(group.join("schemata")).unwrap();
        assert!(low.end(&mut journal).is_empty() && journal.finish().failed == 0);
    }

    /// As the daemon throttles containers of pods.
    #[test]
    fn a_group_that_is_frozen_alone_is_never_idle() {
        let dir = TempDir::new("low-outside");
        let mut journal = journal(&dir.path().join("state"));
        for (file, value) in [("cgroup.freeze", "0"), ("cgroup.procs", ""), ("cpu.weight", "40"), ("cpu.idle", "0")] {
            dir.write(file, value);
        }
        let target = Target::Cgroup(dir.path().to_owned());
        for (enforcer, outcome, idle) in
            [(Enforcer::Outside, Outcome::NotThisMachine, "0"), (Enforcer::Auto, Outcome::Applied, "1")]
        {
            let mut low = Throttle::attach(enforcer, &mut journal, &target).unwrap();
            assert_eq!(low.background(&mut journal, true, &[]), outcome, "{:?}", low.notes);
            low.tend_threads(&mut journal, &[]);
            assert_eq!(std::fs::read_to_string(dir.path().join("cpu.idle")).unwrap(), idle);
            assert!(low.end(&mut journal).is_empty());
        }
        journal.finish();
    }
}
