//! One program of low priority, and how it is let nap: from inside, where it has marks, else from outside.

use super::identity;
use crate::FsRoot;
use crate::affinity::Held;
use crate::apply::Applier;
use crate::book::Identity;
use crate::pause::{Job, Mechanism, Pauses};
#[cfg(doc)]
use crate::progress::orders::FRESH;
use crate::progress::orders::LONGEST_NAP;
use crate::progress::{Orders, Refused};
use crate::quota::{Quota, QuotaError};
use crate::resctrl::{Limited, Resctrl};
use crate::sys;
use crate::tasks::{Process, Target};
use crate::waiter::asks_to_stop;
use cotenant_model::{AppId, Outcome, Sample, Signal, Time};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

/// Shorter pauses are not made by signals: they arrive late by about as much.
const SHORTEST_BY_SIGNALS: Duration = Duration::from_millis(20);

/// Time between two looks for marks in a process that has none.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A marked program that ran and passed no mark for so long does not nap by itself.
const DEAF: Duration = Duration::from_millis(300);

/// Less CPU time than this between two looks tells nothing, nanoseconds.
const LITTLE_NS: f64 = 1e6;

/// Orders to nap are stood by so often: they are stale after [`FRESH`].
const STAND_BY: Duration = Duration::from_millis(33);

/// Told where naps from inside alone are wanted, until there are marks.
const NO_MARKS: &str = "--means inside: a program of low priority has passed no mark and does not nap; \
                        build it with 'cotenant cc', or take --means auto";

/// Processes without marks that use less than this share of a program's CPU time need not nap: shells that wait.
const IDLE: f64 = 0.05;

/// How naps are brought about, and limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcer {
    /// Naps from inside where the program has marks, else from outside. Limits of CPU time, and of cache ways and memory bandwidth, where
    /// they are asked for. What of this cannot be had here is left out.
    #[default]
    Auto,
    /// By its marks alone.
    Inside,
    /// By a freezer or signals alone.
    Outside,
    /// By limits of CPU time; naps that measure are made as with `Auto`.
    Quota,
    /// By limits of cache ways and memory bandwidth; naps that measure are made as with `Auto`.
    Resctrl,
}

/// How a program slept.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slept {
    /// By what, as people say it.
    pub means: String,
    /// Naps of its own threads.
    pub naps: u64,
    /// Time that its threads slept in these, added up.
    pub inside_s: f64,
    /// Time in which it was paused from outside.
    pub outside_s: f64,
    /// Pauses from outside.
    pub pauses: u64,
    /// Threads that have marks and were seen last.
    pub threads: usize,
    /// The limit in force, as it was written; absent where there is none.
    pub limit: Option<String>,
    /// Limits that were set.
    pub limits: u64,
}

/// The program.
#[derive(Debug)]
pub(super) struct Low {
    enforcer: Enforcer,
    job: Option<Job>,
    quota: Option<Quota>,
    limited: Option<Limited>,
    marked: BTreeMap<u32, Marked>,
    members: Vec<Identity>,
    root: Option<u32>,
    threads: usize,
    /// CPU time of its processes when they were looked at last, nanoseconds.
    ran: BTreeMap<u32, u64>,
    inside: bool,
    /// What processes slept that are gone.
    before: (u64, f64),
    paused_since: Option<Time>,
    wakes_at: Option<Time>,
    /// When a nap from inside ends, and when it is to be stood by.
    napping: Option<(Time, Time)>,
    outside: Duration,
    pause_count: u64,
    /// Limits in force, as they were written: of CPU time, and of caches; and that it is in the background.
    written: [Option<String>; 3],
    /// It was asked to end: it is neither paused nor limited any more.
    ending: bool,
    limits: u64,
    pub notes: BTreeSet<String>,
}

/// A process of it.
#[derive(Debug)]
struct Marked {
    start_ticks: u64,
    orders: Option<Orders>,
    next_look: Time,
}

impl Low {
    pub fn new(enforcer: Enforcer) -> Self {
        Self {
            enforcer,
            job: None,
            quota: None,
            limited: None,
            marked: BTreeMap::new(),
            members: Vec::new(),
            root: None,
            threads: 0,
            ran: BTreeMap::new(),
            inside: enforcer == Enforcer::Inside,
            before: (0, 0.0),
            paused_since: None,
            wakes_at: None,
            napping: None,
            outside: Duration::ZERO,
            pause_count: 0,
            written: [const { None }; 3],
            ending: false,
            limits: 0,
            notes: BTreeSet::new(),
        }
    }

    /// Makes ready what a program that is about to be started needs.
    pub fn prepare(&mut self, applier: &mut Applier, pauses: &mut Pauses, command: &mut Command) -> Result<(), String> {
        let auto = self.enforcer == Enforcer::Auto;
        if auto || self.enforcer == Enforcer::Quota {
            match Quota::make(applier) {
                Ok(quota) => self.quota = Some(quota),
                Err(why) if !auto => return Err(why.to_string()),
                Err(_) => {} // a rung less
            }
        }
        if auto || self.enforcer == Enforcer::Resctrl {
            match Resctrl::find(&FsRoot::live()).map(|resctrl| resctrl.make(applier)) {
                Some(Ok(limited)) => {
                    limited.enter(command).map_err(|why| why.to_string())?;
                    self.limited = Some(limited);
                }
                Some(Err(why)) if !auto => return Err(why.to_string()),
                None if !auto => {
                    return Err(
                        "resctrl is not mounted here, or limits nothing; see cotenant doctor, or use --means auto"
                            .to_owned(),
                    );
                }
                Some(Err(_)) | None => {}
            }
        }
        if let Some(job) = self.quota.as_ref().and_then(Quota::job) {
            job.prepare(command).map_err(|why| why.to_string())?;
            self.job = Some(job);
            return Ok(());
        }
        if let Some(quota) = &self.quota {
            quota.enter(command).map_err(|why| why.to_string())?;
        }
        let job = pauses.job(applier).map_err(|why| why.to_string())?;
        job.prepare(command).map_err(|why| why.to_string())?;
        self.job = Some(job);
        Ok(())
    }

    /// Takes on what runs already.
    pub fn attach(&mut self, applier: &mut Applier, target: &Target) -> Result<(), String> {
        if matches!(self.enforcer, Enforcer::Quota | Enforcer::Resctrl) {
            return Err("only programs that are started here can be limited: they would have to be moved to another control group; \
                        use --means auto"
                .to_owned());
        }
        self.job = Some(match target {
            Target::Cgroup(path) => Job::of_group(applier, path).map_err(|why| why.to_string())?,
            _ => Job::of_processes(),
        });
        Ok(())
    }

    /// It runs as this process.
    pub fn started(&mut self, applier: Option<&mut Applier>, pid: u32) -> Result<(), String> {
        self.root = Some(pid);
        let (Some(applier), Some(job), Some(root)) = (applier, &mut self.job, identity(pid)) else { return Ok(()) };
        self.members = vec![root];
        // So that other Cotenants leave it alone. It is ours even where one of them manages whoever started us.
        if let Ok(held) = Held::open_exactly(root.0, root.0, root.1) {
            let _ = applier.may_touch(&held);
        }
        job.started(applier, root).map_err(|why| why.to_string())
    }

    /// Looks who belongs to it and who has marks.
    pub fn look<'a>(
        &mut self,
        applier: &mut Applier,
        at: Time,
        processes: impl Iterator<Item = (u32, &'a Process)>,
        sample: &Sample,
        app: AppId,
    ) {
        let mut lives = BTreeSet::new();
        self.members.clear();
        for (pid, process) in processes {
            lives.insert(pid);
            self.members.push((pid, process.start_ticks()));
            let fresh = || Marked { start_ticks: process.start_ticks(), orders: None, next_look: at };
            let known = self.marked.entry(pid).or_insert_with(fresh);
            if known.start_ticks != process.start_ticks() {
                *known = fresh();
            }
            if at >= known.next_look && self.enforcer != Enforcer::Outside {
                known.next_look = at + LOOK_EVERY;
                if let Some(orders) = &known.orders {
                    // What it executes now may have other memory.
                    if let Ok(Some(other)) = orders.renewed(pid, process) {
                        self.before = add(self.before, orders);
                        known.orders = Some(other);
                    }
                } else {
                    match orders_of(applier, pid, process, self.root.is_none()) {
                        Ok(Some(orders)) => {
                            known.orders = Some(orders);
                            self.notes.remove(NO_MARKS);
                        }
                        Ok(None) => known.next_look = at + super::FULL_EVERY[0], // it begins just now, or has none
                        Err(why) => {
                            self.notes.insert(format!("process {pid} is not let nap by its marks: {why}"));
                        }
                    }
                }
            }
        }
        let before = &mut self.before;
        self.marked.retain(|pid, known| {
            let keep = lives.contains(pid);
            if let Some(orders) = known.orders.as_ref().filter(|_| !keep) {
                *before = add(*before, orders);
            }
            keep
        });
        self.judge(sample, app);
    }

    /// Whether naps from inside reach it.
    fn judge(&mut self, sample: &Sample, app: AppId) {
        let now = sys::monotonic();
        let mut ran: BTreeMap<u32, u64> = BTreeMap::new();
        let looked = |pid| self.marked.get(pid).and_then(|known| known.orders.as_ref()?.naps().looked);
        self.threads = 0;
        for task in sample.tasks.iter().filter(|task| task.info.app == app) {
            *ran.entry(task.info.pid).or_default() += task.counters.get(Signal::CpuTime).map_or(0, |count| count.value);
            self.threads += usize::from(looked(&task.info.pid).is_some());
        }
        let (mut hears, mut deaf) = (0.0, 0.0);
        for (pid, ran) in &ran {
            let since = ran.saturating_sub(self.ran.get(pid).copied().unwrap_or(0)) as f64;
            let hearing = looked(pid).is_some_and(|looked| now.saturating_sub(looked) < DEAF);
            *if hearing { &mut hears } else { &mut deaf } += since;
        }
        self.ran = ran;
        if hears + deaf < LITTLE_NS {
            return; // it slept: nothing new is known of it
        }
        self.inside = match self.enforcer {
            Enforcer::Inside => true,
            Enforcer::Outside => false,
            Enforcer::Auto | Enforcer::Quota | Enforcer::Resctrl => hears > 0.0 && deaf <= IDLE * (hears + deaf),
        };
    }

    /// Orders a nap until `end`, which is `until` on the clock of the programs.
    pub fn nap(&mut self, applier: &mut Applier, now: Time, end: Time, until: Duration) -> Outcome {
        if end <= now || self.ending {
            self.let_run(now);
            return Outcome::Applied;
        }
        if self.inside {
            self.wakes_at = None;
            self.resume(now);
            let mut any = false;
            for orders in self.orders() {
                orders.nap(until, LONGEST_NAP);
                any = true;
            }
            if !any && self.enforcer == Enforcer::Inside {
                self.notes.insert(NO_MARKS.to_owned());
            }
            self.napping = Some((end, now + STAND_BY));
            return if any { Outcome::Applied } else { Outcome::Gone };
        }
        let Some(job) = &mut self.job else { return Outcome::NotThisMachine };
        if job.mechanism() == Mechanism::Signals && end - now < SHORTEST_BY_SIGNALS {
            let why = "pauses below 20 ms are not made by SIGSTOP; build the program with 'cotenant cc', or take --means quota";
            self.notes.insert(why.to_owned());
            return Outcome::Denied;
        }
        match job.pause(applier, &self.members) {
            Ok(()) => {
                self.pause_count += u64::from(self.paused_since.is_none());
                self.paused_since.get_or_insert(now);
                self.wakes_at = Some(end);
                Outcome::Applied
            }
            Err(why) => {
                self.notes.insert(why.to_string());
                self.paused_since.get_or_insert(now);
                self.resume(now);
                Outcome::Denied
            }
        }
    }

    /// When its pause from outside ends.
    pub fn wakes_at(&self) -> Option<Time> {
        self.wakes_at
    }

    /// Ends a pause from outside whose time has come.
    pub fn wake(&mut self, now: Time) {
        if self.wakes_at.is_some_and(|at| now >= at) {
            self.wakes_at = None;
            self.resume(now);
        }
    }

    fn let_run(&mut self, now: Time) {
        for orders in self.orders() {
            orders.withdraw();
        }
        (self.wakes_at, self.napping) = (None, None);
        self.resume(now);
    }

    fn resume(&mut self, now: Time) {
        let Some(since) = self.paused_since.take() else { return };
        self.outside += now - since;
        if let Some(job) = &mut self.job
            && let Err(why) = job.resume()
        {
            self.notes.insert(why.to_string());
        }
    }

    /// Limits it to so many thousandths of one CPU, or lifts that limit.
    pub fn limit(&mut self, cpu_permille: Option<u32>) -> Outcome {
        let Some(quota) = &self.quota else { return Outcome::NotThisMachine };
        let cpu_permille = cpu_permille.filter(|_| !self.ending);
        let set = quota.set(cpu_permille).map(|text| cpu_permille.map(|_| text));
        self.note_limit(0, set)
    }

    /// Limits it to so many thousandths of the ways of caches and of its memory bandwidth, or lifts that limit.
    pub fn limit_caches(&mut self, permille: Option<u32>) -> Outcome {
        let Some(limited) = &mut self.limited else { return Outcome::NotThisMachine };
        let share = permille.filter(|_| !self.ending).map(|permille| f64::from(permille) / 1e3);
        let set = limited.set(share).map(|()| share.map(|share| format!("resctrl {:.0} %", share * 100.0)));
        self.note_limit(1, set)
    }

    /// Lets it run only where nobody else wants the CPU, or beside the others again.
    pub fn background(&mut self, on: bool) -> Outcome {
        let Some(quota) = self.quota.as_ref().filter(|_| self.enforcer == Enforcer::Auto) else {
            return Outcome::NotThisMachine;
        };
        let on = on && !self.ending;
        match quota.background(on) {
            Ok(text) => {
                self.written[2] = on.then_some(text);
                Outcome::Applied
            }
            Err(why) => {
                self.notes.insert(why.to_string());
                Outcome::Denied
            }
        }
    }

    fn note_limit(&mut self, kind: usize, set: Result<Option<String>, QuotaError>) -> Outcome {
        match set {
            Ok(text) => {
                self.limits += u64::from(text.is_some());
                self.written[kind] = text;
                Outcome::Applied
            }
            Err(why) => {
                self.notes.insert(why.to_string());
                Outcome::Denied
            }
        }
    }

    /// Brings limits nearer to what they are to be.
    pub fn tend(&mut self, now: Time) {
        if let Some(Err(why)) = self.limited.as_mut().map(|limited| limited.tend(now)) {
            self.notes.insert(why.to_string());
        }
    }

    /// Stands by what was ordered, where that is due; when it is due again.
    pub fn stand_by(&mut self, now: Time) -> Option<Time> {
        let (end, due) = self.napping.filter(|(end, _)| *end > now)?;
        if due > now {
            return Some(due);
        }
        self.orders().for_each(Orders::stand_by);
        let next = now + STAND_BY;
        self.napping = Some((end, next));
        (next < end).then_some(next)
    }

    fn orders(&self) -> impl Iterator<Item = &Orders> {
        self.marked.values().filter_map(|known| known.orders.as_ref())
    }

    pub fn signal(&mut self, now: Time, signal: i32) {
        // Who is frozen does not end.
        if asks_to_stop(signal) {
            self.ending = true;
            self.let_run(now);
        }
        // Who is to end needs CPU time for that, and may wait for long where it gets what others leave.
        if self.written[0].is_some() {
            self.limit(None);
        }
        if self.written[2].is_some() {
            self.background(false);
        }
        match &self.job {
            Some(job) => job.signal(signal, &self.members),
            None => {
                if let Some(pid) = self.root {
                    let _ = sys::kill(pid, signal); // our child; it is ours until it is reaped
                }
            }
        }
    }

    pub fn slept(&self, now: Time) -> Slept {
        let (naps, inside_s) = self.orders().fold(self.before, add);
        let outside = self.outside + self.paused_since.map_or(Duration::ZERO, |since| now - since);
        let by = match (&self.job, self.inside) {
            (_, true) => "its marks".to_owned(),
            (Some(job), false) => job.mechanism().to_string(),
            (None, false) => "nothing".to_owned(),
        };
        let written: Vec<&str> = self.written.iter().flatten().map(String::as_str).collect();
        let by_limits = self.limits > 0 || matches!(self.enforcer, Enforcer::Quota | Enforcer::Resctrl);
        Slept {
            means: match (&self.quota, &self.limited) {
                (Some(quota), _) if by_limits => quota.to_string(),
                (None, Some(_)) if by_limits => "resctrl".to_owned(),
                _ => by,
            },
            naps,
            inside_s,
            outside_s: outside.as_secs_f64(),
            pauses: self.pause_count,
            threads: self.threads,
            limit: (!written.is_empty()).then(|| written.join(" and ")),
            limits: self.limits,
        }
    }

    /// Lets it run; lines about what could not be undone.
    pub fn end(mut self, applier: Option<&mut Applier>) -> Vec<String> {
        self.marked.clear(); // withdraws the orders
        let mut notes = Vec::new();
        let Some(applier) = applier else { return notes };
        if let Some(mut job) = self.job.take() {
            let lent = self.quota.as_ref().is_some_and(Quota::is_v2);
            let ended = if lent { job.resume() } else { job.end(applier) };
            notes.extend(ended.err().map(|why| why.to_string()));
        }
        if let Some(limited) = self.limited.take()
            && let Err(why) = limited.end(applier)
        {
            notes.push(why.to_string());
        }
        if let Some(quota) = self.quota.take()
            && let Err(why) = quota.end(applier)
        {
            notes.push(why.to_string());
        }
        notes
    }
}

/// The orders of a process that has marks. One that was not started here is taken for us alone before it gets any.
fn orders_of(applier: &mut Applier, pid: u32, process: &Process, foreign: bool) -> Result<Option<Orders>, String> {
    let orders = match Orders::of(pid, process) {
        Ok(orders) => orders,
        Err(why @ Refused::NoOrders(_)) => return Err(why.to_string()),
        Err(_) => None, // told by who reads what it reports
    };
    if foreign && orders.is_some() {
        let Ok(held) = Held::open_exactly(pid, pid, process.start_ticks()) else { return Ok(None) }; // it has ended
        applier.may_touch(&held)?;
    }
    Ok(orders)
}

fn add((naps, seconds): (u64, f64), orders: &Orders) -> (u64, f64) {
    let of = orders.naps();
    (naps + of.count, seconds + of.napped.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::tests::tree;
    use crate::testing::TempDir;
    use crate::tests::options;

    #[test]
    fn caches_are_limited_as_ordered() {
        let dir = TempDir::new("low-resctrl");
        let mut applier = Applier::new(options(&dir.path().join("state"))).unwrap();
        let mut low = Low::new(Enforcer::Auto);
        assert_eq!([low.limit(Some(500)), low.limit_caches(Some(250))], [Outcome::NotThisMachine; 2]);
        low.limited = Some(Resctrl::find(&tree(&dir)).unwrap().make(&mut applier).unwrap());
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
        assert!(low.end(Some(&mut applier)).is_empty() && applier.finish().failed == 0);
    }
}
