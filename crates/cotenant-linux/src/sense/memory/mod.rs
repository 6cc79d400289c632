//! Memory use of programs: the place of their pages, and the accessed nodes, by this machine's methods.
//!
//! All methods share one budget, and report their cost. Most observe address spaces, not threads: results are divided
//! equally among a process's threads. Only events and hinting faults distinguish threads.

mod accessed;
mod collector;
mod damon;
pub(crate) mod files;
mod hinting;
mod idle;
pub mod interleaving;
pub mod page_samples;
#[cfg(test)]
mod tests;

pub use accessed::Accessed;
pub use collector::{Collector, Found, Watched};
pub use damon::Damon;
pub use files::{areas as areas_of, ends as ends_of};
pub use hinting::HintingFaults;
pub(super) use hinting::numa_balancing;
pub use idle::{IdlePages, Marked};

use crate::FsRoot;
use crate::address_space::{cpu_time, is_late};
use crate::notes::Notes;
use crate::sense::capability::{Capability, Standing};
use collector::resident;
use cotenant_model::areas::{self, Area, Binding, ByNode};
use cotenant_model::{NodeId, Time};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Least interval of reading page places per process, and limit of the total time for it.
const PLACED_EVERY: Duration = Duration::from_secs(1);
const PLACED_SHARE: u32 = 100;

/// Retry interval for a process whose memory cannot be observed.
const RETRY: Duration = Duration::from_secs(10);

/// Interval beyond which a note reports looks made rare by the budget.
const RARE: Duration = Duration::from_secs(5);

/// Seed of the random pages: the same ones in every run.
const SEED: u64 = 1;

/// Which means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best available: events, then hinting faults of processes with distinguished threads, then accessed bits,
    /// then placement.
    #[default]
    Auto,
    /// Events of loads served by local and remote memory.
    Hardware,
    /// Faults by which the kernel balances memory.
    Faults,
    /// The kernel's data access monitor.
    Damon,
    /// Accessed bits of page tables.
    Accessed,
    /// None: page placement represents accesses.
    Placement,
}

impl Choice {
    /// All, by their names on the command line.
    pub const ALL: [(&'static str, Self); 6] = [
        ("auto", Self::Auto),
        ("hardware", Self::Hardware),
        ("faults", Self::Faults),
        ("damon", Self::Damon),
        ("accessed", Self::Accessed),
        ("placement", Self::Placement),
    ];
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        known.ok_or_else(|| "use auto, hardware, faults, damon, accessed or placement".to_owned())
    }
}

/// Requested observations of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The place of each process's pages.
    pub placement: bool,
    /// Accessed memory; includes placement.
    pub accesses: bool,
    /// The means.
    pub choice: Choice,
    /// Budget of observation, as a fraction of one CPU.
    pub budget: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { placement: false, accesses: false, choice: Choice::Auto, budget: 0.01 }
    }
}

/// Observations of each process's memory.
#[derive(Debug)]
pub struct Memory {
    options: Options,
    fs: FsRoot,
    collector: Option<Box<dyn Collector>>,
    processes: HashMap<u32, Known>,
    notes: Notes,
    spent: Duration,
    looks: u64,
    rng: fastrand::Rng,
}

/// Of one process.
#[derive(Debug, Default)]
struct Known {
    areas: Vec<Area>,
    pages: Option<Vec<(NodeId, u64)>>,
    /// Time since which it has not answered.
    silent: Option<Instant>,
    placed_next: Time,
    /// Ends of its mappings then, by first address, if pages are sampled between full looks.
    ends: BTreeMap<u64, u64>,
    drawn_next: Time,
    /// Accesses of each of its threads since the first look, base pages: equal parts of common results, plus individual
    /// ones.
    touched: Option<ByNode>,
    apart: HashMap<u32, ByNode>,
    /// Since when it is watched.
    watched: Option<Time>,
    next: Time,
    /// Cost of this observation so far.
    cost: Duration,
}

impl Known {
    /// Whether this may be temporary: a large process or a busy machine takes time, and a process within an exec or its
    /// exit may refuse.
    fn lets_nobody_ask(&mut self, why: &io::Error) -> bool {
        let patience = match why.kind() {
            _ if is_late(why) => RETRY,
            ErrorKind::PermissionDenied => PLACED_EVERY,
            _ => return false,
        };
        self.silent.get_or_insert_with(Instant::now).elapsed() < patience
    }
}

impl Memory {
    /// `events`: whether loads from local and remote memory are counted here.
    pub fn new(options: Options, fs: &FsRoot, events: bool) -> Self {
        let mut notes = Notes::default();
        let collector: Result<Option<Box<dyn Collector>>, _> = match options.choice {
            _ if !options.accesses => Ok(None),
            Choice::Auto | Choice::Hardware if events => Ok(None),
            Choice::Placement => Ok(None),
            Choice::Hardware => {
                Err(("hardware", "loads from local and remote memory cannot be counted here".to_owned()))
            }
            Choice::Damon => Damon::new(fs).map(|damon| Some(Box::new(damon) as _)).map_err(|why| ("damon", why)),
            Choice::Faults => {
                HintingFaults::new(fs).map(|faults| Some(Box::new(faults) as _)).map_err(|why| ("faults", why))
            }
            // A DAMON monitor outlives a killed Cotenant, so it is used only on request.
            Choice::Auto | Choice::Accessed => Accessed::new(fs, SEED)
                .map(|bits| match HintingFaults::new(fs) {
                    Ok(faults) if options.choice == Choice::Auto => Some(Box::new(faults.beside(bits)) as _),
                    _ => Some(Box::new(bits) as _),
                })
                .map_err(|why| ("accessed", why)),
        };
        let collector = collector.unwrap_or_else(|(name, why)| {
            notes.add(format!("accesses are not collected by {name}: {why}; where pages are stands in for them"));
            None
        });
        let (processes, fs, rng) = (HashMap::new(), fs.clone(), fastrand::Rng::with_seed(SEED));
        Self { options, fs, collector, processes, notes, spent: Duration::ZERO, looks: 0, rng }
    }

    /// The means besides page placement and events.
    pub fn collector(&self) -> Option<&'static str> {
        self.collector.as_ref().map(|collector| collector.name())
    }

    /// CPU time of looks, and the number of looks at a process's accesses.
    pub fn spent(&self) -> (Duration, u64) {
        (self.spent, self.looks)
    }

    /// Remarks for people. The same remark has the same text.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter()
    }

    /// Looks at due processes; expensive ones become due more rarely. `live` has processes with their threads.
    pub fn look(&mut self, live: &BTreeMap<u32, Vec<u32>>, at: Time) {
        if !self.options.placement && !self.options.accesses {
            return;
        }
        let gone: Vec<u32> = self.processes.keys().copied().filter(|pid| !live.contains_key(pid)).collect();
        for pid in gone {
            self.processes.remove(&pid);
            if let Some(collector) = &mut self.collector {
                collector.forget(pid);
            }
        }
        for (&pid, threads) in live {
            let mut known = self.processes.remove(&pid).unwrap_or_default();
            let begin = cpu_time();
            let pause = |cost: Duration| PLACED_EVERY.max(cost.saturating_mul(PLACED_SHARE * live.len() as u32));
            if known.placed_next <= at {
                self.place(pid, &mut known);
                known.placed_next = at + pause(cpu_time().saturating_sub(begin));
                known.drawn_next = at + PLACED_EVERY;
            } else if !known.ends.is_empty() && known.drawn_next <= at {
                self.draw(pid, &mut known);
                known.drawn_next = at + pause(cpu_time().saturating_sub(begin));
            }
            self.watch(pid, &mut known, threads, at, live.len());
            self.spent += cpu_time().saturating_sub(begin);
            self.processes.insert(pid, known);
        }
    }

    fn place(&mut self, pid: u32, known: &mut Known) {
        match files::areas(&self.fs, pid) {
            Err(e) if self.fs.is_live() && known.lets_nobody_ask(&e) => {}
            Ok(found) => {
                known.silent = None;
                known.pages = Some(areas::pages_by_node(&found));
                if let Some(note) = interleaving::of_process(pid, &found) {
                    self.notes.add(note);
                }
                // Single pages can only be queried for this machine's processes.
                let large = resident(&found) > page_samples::LARGE && self.fs.is_live();
                // Without them its pages are not sampled.
                let ends = large.then(|| files::ends(&self.fs, pid));
                known.ends = ends.and_then(Result::ok).unwrap_or_default();
                known.areas = found;
            }
            // It ended before it could be read, or must not be read.
            Err(e) => {
                (known.pages, known.areas, known.ends) = (None, Vec::new(), BTreeMap::new());
                self.refused(pid, "where its pages are", &e);
            }
        }
    }

    /// Current place of its pages from a sample: full looks are rarer with more pages.
    fn draw(&mut self, pid: u32, known: &mut Known) {
        let found = files::ends(&self.fs, pid).and_then(|now| {
            let strata = page_samples::strata(&known.areas, &known.ends, &now);
            page_samples::placement(pid, &strata, &mut self.rng)
        });
        match found {
            Ok(found) => known.pages = Some(found.pages.iter().map(|(&node, n)| (node, n.round() as u64)).collect()),
            Err(e) if is_late(&e) => {}
            // It has ended, or the known values must suffice until the next full look.
            Err(_) => known.ends.clear(),
        }
    }

    /// Begins an observation at one look and ends it at the next, so that results cover one interval.
    fn watch(&mut self, pid: u32, known: &mut Known, threads: &[u32], at: Time, processes: usize) {
        let Some(collector) = &mut self.collector else { return };
        if known.areas.is_empty() || (known.watched.is_none() && known.next > at) {
            return;
        }
        let begin = cpu_time();
        let (of, fastest) = (Watched { pid, threads, areas: &known.areas }, collector.fastest(pid));
        let result = match known.watched {
            None => collector.begin(&of).map(|()| None),
            Some(_) => collector.end(&of).map(Some),
        };
        known.cost += cpu_time().saturating_sub(begin);
        match result {
            Ok(None) => known.watched = Some(at),
            Ok(Some(found)) => {
                self.looks += 1;
                known.apart.retain(|tid, _| threads.contains(tid));
                let add = |sum: &mut ByNode, found: ByNode, part: f64| {
                    for (node, n) in found {
                        *sum.entry(node).or_default() += n * part;
                    }
                };
                match found {
                    Found::Together(all) => {
                        add(known.touched.get_or_insert_default(), all, 1.0 / threads.len().max(1) as f64);
                    }
                    Found::Apart(each) => {
                        for (tid, own) in each {
                            add(known.apart.entry(tid).or_default(), own, 1.0);
                        }
                    }
                }
                // The budget covers all processes together.
                let pause = known.cost.mul_f64(processes as f64 / self.options.budget);
                if pause > RARE
                    && resident(&known.areas) > page_samples::LARGE
                    && let Some(why) = collector.hint()
                {
                    self.notes.add(format!(
                        "process {pid}: its accesses are found out more rarely than every {} s: {why}",
                        RARE.as_secs()
                    ));
                }
                (known.watched, known.cost, known.next) = (None, Duration::ZERO, at + pause.max(fastest));
            }
            Err(e) if is_late(&e) => {} // the next look has the answer
            Err(e) => {
                collector.forget(pid);
                (known.watched, known.cost, known.next) = (None, Duration::ZERO, at + RETRY);
                self.refused(pid, "which of its pages are accessed", &e);
            }
        }
    }

    /// One note for each kind of failure; that a process has ended is none.
    fn refused(&mut self, pid: u32, what: &str, error: &io::Error) {
        let why = match error.kind() {
            ErrorKind::NotFound => return,
            _ if error.raw_os_error() == Some(libc::ESRCH) => return,
            ErrorKind::PermissionDenied => "no permission; run as its user, or with CAP_SYS_PTRACE".to_owned(),
            ErrorKind::FileTooLarge if error.get_ref().is_none() => {
                format!("it has more than {} mappings, which would take too long to read", files::MOST_AREAS)
            }
            _ => error.to_string(),
        };
        self.notes.add(format!("process {pid}: {what} is not known: {why}"));
    }

    /// Place of a process's pages; `None` if unread or unreadable.
    pub fn pages(&self, pid: u32) -> Option<Vec<(NodeId, u64)>> {
        self.processes.get(&pid)?.pages.clone()
    }

    /// Accesses of a process's thread so far, base pages by node; `None` before the first look.
    pub fn touches(&self, pid: u32, tid: u32) -> Option<Vec<(NodeId, u64)>> {
        let known = self.processes.get(&pid)?;
        let (shared, own) = (known.touched.as_ref(), known.apart.get(&tid));
        let mut sum = shared.or(own)?.clone();
        for (&node, n) in own.filter(|_| shared.is_some()).into_iter().flatten() {
            *sum.entry(node).or_default() += n;
        }
        Some(sum.into_iter().map(|(node, n)| (node, n.round() as u64)).collect())
    }
}

/// The lines of `cotenant doctor` on each means.
pub fn capabilities(fs: &FsRoot) -> Vec<Capability> {
    let mut found = Vec::new();
    let mut means = |name: &str, result: Result<&str, String>, cost: &str| {
        let (standing, what) = match result {
            Ok(what) => (Standing::Available, what.to_owned()),
            Err(why) => (Standing::Missing, why),
        };
        found.push(Capability::new(name, standing, what, cost, ""));
    };
    let cost = "only events distinguish the threads of a process";
    means("NUMA hinting faults", HintingFaults::new(fs).map(|_| "/proc/PID/task/TID/sched"), cost);
    let cost = "which memory is accessed is known from where pages are alone";
    means("accessed bits", Accessed::new(fs, SEED).map(|_| "/proc/PID/clear_refs and smaps"), cost);
    let cost = "large processes are scanned as a whole, the larger the more rarely";
    means("accessed bits of single pages", IdlePages::new(fs).map(|_| "/sys/kernel/mm/page_idle"), cost);
    let cost = "accesses are found by scanning page tables, if at all";
    means("DAMON", Damon::new(fs).map(|_| "for address spaces, by /sys/kernel/mm/damon"), cost);
    found.extend(interleaving::capability(fs));
    found
}

/// Whether any of these areas was bound by the program or its user.
pub(crate) fn is_bound(area: &Area) -> bool {
    area.binding != Binding::Free
}
