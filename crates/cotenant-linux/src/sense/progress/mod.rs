//! What programs report themselves, through `libcotenant`.
//!
//! A process is looked through for its memory when it is found, and then more and more rarely; reading costs no system
//! call.

pub(crate) mod account;
mod memory;
mod probe;

pub(crate) use memory::For;
pub use memory::{Memory, Refused, Reported};
pub use probe::capability;

use crate::sense::processes::Process;
use crate::sys;
use account::Account;
use cotenant_model::{AppId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time between the first two looks at a process. It doubles each time: programs that report do so soon.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(10);

/// Looks in one sample; further processes have their turn in the next.
const LOOKS: usize = 16;

/// Remarks that are kept.
const REMARKS: usize = 8;

/// The reports of all followed processes, by target.
#[derive(Debug)]
pub struct Progress {
    processes: BTreeMap<u32, Known>,
    /// What processes reported that are gone, or that executed another program.
    ended: BTreeMap<AppId, Reported>,
    refused: BTreeSet<String>,
    buffer: Vec<u8>,
}

/// A process that was looked at.
#[derive(Debug)]
struct Known {
    /// Which process: its number may be another's later.
    start_ticks: u64,
    app: AppId,
    memory: Option<Memory>,
    account: Account,
    /// Whether what was found at the last look was not to be believed.
    doubted: bool,
    next: Time,
    wait: Duration,
}

impl Default for Progress {
    fn default() -> Self {
        // One system call lists some 1,300 descriptors into it.
        Self { processes: BTreeMap::new(), ended: BTreeMap::new(), refused: BTreeSet::new(), buffer: vec![0; 32 << 10] }
    }
}

impl Progress {
    /// Brings the list of those who report up to date.
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
                memory: None,
                account: Account::default(),
                doubted: false,
                next: at,
                wait: FIRST_LOOK,
            });
            if known.next > at || looks == LOOKS {
                continue;
            }
            looks += 1;
            known.next = at + known.wait;
            known.wait = (known.wait * 2).min(LAST_LOOK);
            let mapped = known.memory.as_ref().map(|memory| memory.inode);
            let found = Memory::find(*pid, process, mapped, &mut self.buffer);
            // What is made just now looks like a forgery; who still has one at the next look is a forger.
            let doubted = std::mem::replace(&mut known.doubted, found.is_err());
            match found {
                Ok(None) => {}
                Ok(Some(memory)) => {
                    known.close(*pid, &mut self.ended, &mut self.refused);
                    known.memory = Some(memory);
                }
                Err(why) => {
                    if doubted {
                        remark(&mut self.refused, || format!("what process {pid} reports is not read: {why}"));
                    }
                }
            }
        }
    }

    /// What the processes of each application reported so far, those that are gone included; nothing of those of which
    /// none ever did, or one reports what cannot be.
    pub fn of_all(&mut self) -> BTreeMap<AppId, Reported> {
        let mut sums = self.ended.clone();
        let mut doubted = BTreeSet::new();
        for (pid, known) in &mut self.processes {
            match known.read(*pid, &mut self.refused) {
                Some(true) => sums.entry(known.app).or_default().add(known.account.believed()),
                Some(false) => _ = doubted.insert(known.app),
                None => {}
            }
        }
        sums.retain(|app, _| !doubted.contains(app));
        sums
    }

    /// An application is gone.
    pub fn forget(&mut self, app: AppId) {
        self.ended.remove(&app);
        self.processes.retain(|_, known| known.app != app);
    }

    /// What is believed of what one application reported so far.
    pub fn of(&mut self, app: AppId) -> Option<Reported> {
        let mut sum = self.ended.get(&app).cloned();
        for (pid, known) in self.processes.iter_mut().filter(|(_, known)| known.app == app) {
            if known.read(*pid, &mut self.refused).is_some() {
                sum.get_or_insert_default().add(known.account.believed());
            }
        }
        sum
    }

    /// Which reports were not believed, and why.
    pub fn refused(&self) -> impl Iterator<Item = &String> {
        self.refused.iter()
    }
}

impl Known {
    /// Looks at what it reports now; whether that can be, `None` where it never reported anything.
    fn read(&mut self, pid: u32, refused: &mut BTreeSet<String>) -> Option<bool> {
        let can_be = self.account.take(self.memory.as_ref()?.read()?, sys::monotonic());
        if !can_be {
            remark(refused, || format!("process {pid} reports {}", account::IMPOSSIBLE));
        }
        Some(can_be)
    }

    /// Its memory is read no more: what it reported stays.
    fn close(&mut self, pid: u32, ended: &mut BTreeMap<AppId, Reported>, refused: &mut BTreeSet<String>) {
        if self.read(pid, refused).is_some() {
            ended.entry(self.app).or_default().add(self.account.believed());
        }
        (self.memory, self.account) = (None, Account::default());
    }
}

fn remark(remarks: &mut BTreeSet<String>, what: impl FnOnce() -> String) {
    if remarks.len() < REMARKS {
        remarks.insert(what());
    }
}
