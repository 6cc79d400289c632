//! A scripted kernel: refuses, limits and counts by a test's script.

use super::{Code, Kernel, Page};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;

/// The script, shared by the test and the tested code.
#[derive(Clone, Debug, Default)]
pub struct Fake(Rc<RefCell<Script>>);

/// A test's script for the kernel, and the opened counters.
#[derive(Debug, Default)]
pub struct Script {
    /// Every opening fails.
    pub all: Option<i32>,
    /// Events that are refused.
    pub events: HashMap<u64, i32>,
    /// Events refused (`EINVAL`) in a group with others.
    pub not_beside_others: HashSet<u64>,
    /// Tasks of other users.
    pub tasks: HashSet<u32>,
    /// `perf_event_paranoid` 2 without privilege.
    pub no_kernel_mode: bool,
    /// `RLIMIT_NOFILE`.
    pub limit: Option<usize>,
    /// Counters that are open now.
    pub open: usize,
    /// It has four programmable counters and uses two of them while loads (events 0xd0 to 0xd3) are counted, like
    /// `x86_schedule_events` with SMT on; fitting groups alternate.
    pub halves: bool,
    /// Nanoseconds on a CPU.
    passed: u64,
    /// The same when each group was opened.
    since: HashMap<usize, u64>,
    counts: HashMap<u64, u64>,
    clocks: HashMap<u64, (u64, u64)>,
    reads: usize,
    /// Members of each group, by the leader's number.
    groups: HashMap<usize, Vec<u64>>,
    next: usize,
}

/// An open counter.
#[derive(Debug)]
pub struct FakeCounter {
    number: usize,
    script: Rc<RefCell<Script>>,
}

impl Drop for FakeCounter {
    fn drop(&mut self) {
        let mut script = self.script.borrow_mut();
        script.open -= 1;
        script.groups.remove(&self.number);
    }
}

impl Fake {
    /// Changes the script.
    pub fn set<R>(&self, change: impl FnOnce(&mut Script) -> R) {
        change(&mut self.0.borrow_mut());
    }

    /// Counters that are open now.
    pub fn open_now(&self) -> usize {
        self.0.borrow().open
    }

    /// This many nanoseconds pass on a CPU.
    pub fn pass(&self, ns: u64) {
        self.set(|script| script.passed += ns);
    }

    /// Number of reads of counters.
    pub fn reads(&self) -> usize {
        self.0.borrow().reads
    }

    /// Sets the reading of an event.
    pub fn count(&self, config: u64, value: u64) {
        self.set(|script| script.counts.insert(config, value));
    }

    /// Enabled and running times of an event's group.
    pub fn clock(&self, config: u64, enabled: u64, running: u64) {
        self.set(|script| script.clocks.insert(config, (enabled, running)));
    }
}

impl Script {
    /// Enabled and running times of a group.
    fn halved(&self, group: usize) -> (u64, u64) {
        let programmable = |members: &Vec<u64>| members.iter().filter(|config| **config > 0xff).count();
        let loads = self.groups.values().flatten().any(|config| *config > 0xff && matches!(config & 0xff, 0xd0..=0xd3));
        let fits = |members: &Vec<u64>| programmable(members) <= if loads { 2 } else { 4 };
        let turns = self.groups.values().filter(|members| programmable(members) > 0 && fits(members)).count();
        let enabled = self.passed - self.since[&group];
        match &self.groups[&group] {
            members if programmable(members) == 0 => (enabled, enabled),
            members if fits(members) => (enabled, enabled / turns as u64),
            _ => (enabled, 0),
        }
    }
}

impl Kernel for Fake {
    type Counter = FakeCounter;

    fn open(&self, code: Code, user_only: bool, tid: u32, leader: Option<&FakeCounter>) -> io::Result<FakeCounter> {
        let script = &mut *self.0.borrow_mut();
        let hardware = code.kind == 4;
        let refusal = script
            .all
            .or_else(|| script.tasks.contains(&tid).then_some(libc::EACCES))
            .or_else(|| (script.no_kernel_mode && !user_only).then_some(libc::EACCES))
            .or_else(|| script.limit.filter(|l| script.open >= *l).map(|_| libc::EMFILE))
            .or_else(|| script.events.get(&code.config).copied().filter(|_| hardware))
            .or_else(|| (leader.is_some() && script.not_beside_others.contains(&code.config)).then_some(libc::EINVAL));
        if let Some(errno) = refusal {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let number = script.next;
        script.next += 1;
        script.open += 1;
        script.groups.entry(leader.map_or(number, |l| l.number)).or_default().push(code.config);
        script.since.insert(number, script.passed);
        Ok(FakeCounter { number, script: self.0.clone() })
    }

    fn read(&self, leader: &FakeCounter, words: &mut [u64]) -> io::Result<usize> {
        self.set(|script| script.reads += 1);
        let script = self.0.borrow();
        let members = &script.groups[&leader.number];
        let clock = || members.iter().find_map(|m| script.clocks.get(m).copied());
        let (enabled, running) =
            if script.halves { script.halved(leader.number) } else { clock().unwrap_or((100, 100)) };
        words[..3].copy_from_slice(&[members.len() as u64, enabled, running]);
        for (word, member) in words[3..].iter_mut().zip(members) {
            *word = script.counts.get(member).copied().unwrap_or(0);
        }
        Ok(3 + members.len())
    }

    fn page(&self, _: &FakeCounter) -> io::Result<Page> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}
