//! Programs' own reports through `libcotenant`, and the similar counts of OpenMP and MPI.
//!
//! A process is searched for its memory at its discovery, and then more and more rarely.

pub(crate) mod account;
mod memory;
mod probe;

pub(crate) use memory::For;
pub use memory::{Budget, Memory, Producer, Refused, Reported};
pub use probe::capability;

use crate::sense::processes::Process;
use crate::sys;
use account::Account;
use cotenant_model::{AppId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

/// Time between the first two searches of a process, doubled each time, because reporting programs start early.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(10);

/// Searches per sample; further processes wait for the next.
const LOOKS: usize = 16;

/// The library in the loader's search path.
pub(crate) const LIBRARY: &CStr = c"libcotenant.so.0";
pub(crate) const MPI_LIBRARY: &CStr = c"libcotenant-mpi.so.0";

/// Descriptors that [`is_told_by`] looks at.
const DESCRIPTORS: usize = 1_300;

/// Remarks that are kept.
const REMARKS: usize = 8;

/// The variable that names OpenMP's tools.
const OPENMP_TOOLS: &str = "OMP_TOOL_LIBRARIES";

/// Makes OpenMP's runtime (LLVM's and Intel's) count a program's work unless the user named a tool. Silent without
/// libcotenant.
pub fn counted_by_openmp(command: &mut Command) {
    let chosen = std::env::var_os(OPENMP_TOOLS).is_some() || command.get_envs().any(|(name, _)| name == OPENMP_TOOLS);
    if !chosen {
        command.env(OPENMP_TOOLS, OsStr::from_bytes(LIBRARY.to_bytes()));
    }
}

/// Whether a process has report memory among its first descriptors; nothing is read.
pub fn is_told_by(pid: u32) -> bool {
    // Ignored without permission.
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut links = descriptors.flatten().take(DESCRIPTORS).filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| Producer::of_link(link.as_os_str().as_bytes()).is_some())
}

/// Reports of applications, by producer.
type Sums = BTreeMap<(AppId, Producer), Reported>;

/// The reports of all followed processes, by target.
#[derive(Debug)]
pub struct Progress {
    processes: BTreeMap<u32, Known>,
    /// Reports of processes that ended, or executed another program.
    ended: Sums,
    refused: BTreeSet<String>,
    buffer: Vec<u8>,
}

/// A searched process.
#[derive(Debug)]
struct Known {
    /// The process: its id may be reused later.
    start_ticks: u64,
    app: AppId,
    told: [Told; Producer::ALL.len()],
    next: Time,
    wait: Duration,
}

/// State of one producer.
#[derive(Debug, Default)]
struct Told {
    memory: Option<Memory>,
    account: Account,
    /// Whether the last look found an implausible memory.
    doubted: bool,
}

impl Default for Progress {
    fn default() -> Self {
        // One system call lists some 1,300 descriptors into it.
        Self { processes: BTreeMap::new(), ended: BTreeMap::new(), refused: BTreeSet::new(), buffer: vec![0; 32 << 10] }
    }
}

impl Progress {
    /// Updates the list of reporting processes.
    pub fn follow(&mut self, processes: &BTreeMap<u32, Process>, at: Time) {
        self.processes.retain(|pid, known| {
            let lives = processes.get(pid).is_some_and(|process| process.start_ticks() == known.start_ticks);
            if !lives {
                known.close(*pid, &mut self.ended, &mut self.refused);
            }
            lives
        });
        let mut looks = 0;
        for (pid, process) in processes {
            let known = self.processes.entry(*pid).or_insert_with(|| Known {
                start_ticks: process.start_ticks(),
                app: process.app,
                told: Default::default(),
                next: at,
                wait: FIRST_LOOK,
            });
            if known.next > at || looks == LOOKS {
                continue;
            }
            looks += 1;
            known.next = at + known.wait;
            known.wait = (known.wait * 2).min(LAST_LOOK);
            let open = known.told.each_ref().map(|told| told.memory.as_ref().map(|memory| memory.inode));
            let all = Memory::find(For::Reading, &Producer::ALL, *pid, process, open, &mut self.buffer);
            for ((producer, told), found) in Producer::ALL.into_iter().zip(&mut known.told).zip(all) {
                // Memory under creation looks like a forgery; one that still does at the next look is a forgery.
                let doubted = std::mem::replace(&mut told.doubted, found.is_err());
                match found {
                    Ok(None) => {}
                    Ok(Some(memory)) => {
                        told.close(*pid, (known.app, producer), &mut self.ended, &mut self.refused);
                        told.memory = Some(memory);
                    }
                    Err(why) => {
                        if doubted {
                            remark(&mut self.refused, || format!("{} is not read: {why}", producer.of(*pid)));
                        }
                    }
                }
            }
        }
    }

    /// Total reports of each producer for each application, ended processes included; without those that never
    /// reported, or reported impossible counts.
    pub fn of_all(&mut self) -> BTreeMap<(AppId, Producer), Reported> {
        let mut sums = self.ended.clone();
        let mut doubted = BTreeSet::new();
        let mut budget = Budget::of_a_look();
        for (pid, known) in &mut self.processes {
            for (producer, told) in Producer::ALL.into_iter().zip(&mut known.told) {
                let of = (known.app, producer);
                match told.read(*pid, &mut budget, &mut self.refused) {
                    Some(true) => sums.entry(of).or_default().add(told.account.believed()),
                    Some(false) => _ = doubted.insert(of),
                    None => {}
                }
            }
        }
        sums.retain(|of, _| !doubted.contains(of));
        sums
    }

    /// An application has ended.
    pub fn forget(&mut self, app: AppId) {
        self.ended.retain(|(other, _), _| *other != app);
        self.processes.retain(|_, known| known.app != app);
    }

    /// Accepted reports of one application so far.
    pub fn of(&mut self, app: AppId) -> Option<Reported> {
        let mut sum = self.ended.get(&(app, Producer::Program)).cloned();
        let mut budget = Budget::of_a_look();
        for (pid, known) in self.processes.iter_mut().filter(|(_, known)| known.app == app) {
            let told = &mut known.told[Producer::Program as usize];
            if told.read(*pid, &mut budget, &mut self.refused).is_some() {
                sum.get_or_insert_default().add(told.account.believed());
            }
        }
        sum
    }

    /// Rejected reports, with reasons.
    pub fn refused(&self) -> impl Iterator<Item = &String> {
        self.refused.iter()
    }
}

impl Known {
    fn close(&mut self, pid: u32, ended: &mut Sums, refused: &mut BTreeSet<String>) {
        for (producer, told) in Producer::ALL.into_iter().zip(&mut self.told) {
            told.close(pid, (self.app, producer), ended, refused);
        }
    }
}

impl Told {
    /// Reads its current reports; returns whether they are possible, `None` if it has never reported.
    fn read(&mut self, pid: u32, budget: &mut Budget, refused: &mut BTreeSet<String>) -> Option<bool> {
        let reported = match self.memory.as_ref()?.read(budget) {
            Ok(reported) => reported?,
            Err(why) => {
                remark(refused, || format!("not all that process {pid} reports is read: {why}"));
                return Some(false);
            }
        };
        let can_be = self.account.take(reported, sys::monotonic());
        if !can_be {
            remark(refused, || format!("process {pid} reports {}", account::IMPOSSIBLE));
        }
        Some(can_be)
    }

    /// Its memory is no longer read: its reports stay.
    fn close(&mut self, pid: u32, of: (AppId, Producer), ended: &mut Sums, refused: &mut BTreeSet<String>) {
        if self.read(pid, &mut Budget::of_a_look(), refused).is_some() {
            ended.entry(of).or_default().add(self.account.believed());
        }
        (self.memory, self.account) = (None, Account::default());
    }
}

fn remark(remarks: &mut BTreeSet<String>, what: impl FnOnce() -> String) {
    if remarks.len() < REMARKS {
        remarks.insert(what());
    }
}
