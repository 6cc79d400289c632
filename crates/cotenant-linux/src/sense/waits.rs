//! Applications' waits for a CPU with their causes, if BPF is allowed.

use crate::deadline::{Progress, Work};
use crate::sense::processes::Process;
use crate::sys;
use crate::sys::cgroups::mounts;
use cotenant_bpf::{Blind, Tracer};
use cotenant_model::{AppId, Time};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::DirEntryExt;
use std::path::Path;
use std::time::Duration;
use std::{fs, mem};

/// A shorter run does not justify loading, hundredths of a second of a CPU.
const WORTH_IT: Duration = Duration::from_millis(300);

/// Limit of the kernel's time to verify the object.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval between two readings, and as a multiple of the last one's CPU time: at most a thousandth of a CPU.
const EVERY: Duration = Duration::from_millis(500);
const SHARE: u32 = 1_000;

/// Waits of all applications.
#[derive(Debug)]
pub struct Waits {
    state: State,
    due: Time,
    groups: Groups,
}

#[derive(Debug)]
enum State {
    /// Loading begins then.
    From(Time),
    Loading(Work<Result<Tracer, Blind>>),
    Seen(Box<Tracer>),
    Blind(Option<Blind>),
}

impl Waits {
    /// Before the first look, at that time.
    pub fn new(at: Time) -> Self {
        Self { state: State::From(at + WORTH_IT), due: Time::default(), groups: Groups::default() }
    }

    /// Reads when due; returns the CPU time.
    pub fn look(&mut self, processes: &BTreeMap<u32, Process>, at: Time) -> Duration {
        let begin = sys::thread_cpu_time();
        self.state = match mem::replace(&mut self.state, State::Blind(None)) {
            State::From(when) if at < when => State::From(when),
            State::From(_) => Work::begin(PATIENCE, Tracer::load).map_or(State::Blind(None), State::Loading),
            State::Loading(work) => match work.progress() {
                Progress::GoesOn => State::Loading(work),
                Progress::Done(Ok(tracer)) => State::Seen(Box::new(tracer)),
                Progress::Done(Err(why)) => State::Blind(Some(why)),
                Progress::GivenUp => State::Blind(None),
            },
            State::Seen(mut tracer) => match self.read(&mut tracer, processes, at, begin) {
                Ok(()) => State::Seen(tracer),
                Err(why) => State::Blind(Some(Blind::Refused { what: "waits".to_owned(), why: why.to_string() })),
            },
            blind @ State::Blind(_) => blind,
        };
        sys::thread_cpu_time().saturating_sub(begin)
    }

    fn read(
        &mut self,
        tracer: &mut Tracer,
        processes: &BTreeMap<u32, Process>,
        at: Time,
        begin: Duration,
    ) -> std::io::Result<()> {
        tracer.follow(processes.iter().map(|(pid, process)| (*pid, process.app)))?;
        if at >= self.due {
            tracer.read(at, |id| self.groups.path(id, at))?;
            self.due = at + EVERY.max(sys::thread_cpu_time().saturating_sub(begin) * SHARE);
        }
        Ok(())
    }

    /// Of an application; `None` if not observed.
    pub fn of(&self, app: AppId) -> Option<cotenant_model::Waits> {
        match &self.state {
            State::Seen(tracer) => tracer.waits(app).cloned(),
            _ => None,
        }
    }

    /// Missing parts and the reasons.
    pub fn notes(&self) -> Vec<String> {
        const WHAT: &str = "which programs others wait for is not seen";
        match &self.state {
            // Ordinary users get what is visible without rights; `cotenant doctor` reports the required ones.
            State::Blind(Some(Blind::NotAllowed)) if sys::euid() != 0 => Vec::new(),
            State::Blind(Some(why)) => vec![format!("{WHAT}: {why}")],
            State::Seen(tracer) => tracer.missing().iter().map(|why| format!("{WHAT} in full: {why}")).collect(),
            _ => Vec::new(),
        }
    }
}

/// Paths of control groups by their ids, which are inode numbers.
#[derive(Debug, Default)]
struct Groups {
    paths: HashMap<u64, String>,
    due: Time,
}

impl Groups {
    /// Limit of searched groups, and the interval of searches.
    const MOST: usize = 20_000;
    const EVERY: Duration = Duration::from_secs(10);

    /// Empty for the root, and for an ended or unknown one.
    fn path(&mut self, id: u64, at: Time) -> String {
        // The root's id is 1.
        if id > 1 && !self.paths.contains_key(&id) && at >= self.due {
            self.due = at + Self::EVERY;
            self.paths = mounts(Path::new("/"), None).first().map_or_else(HashMap::new, |mount| all(mount));
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }
}

/// All groups below a mount point, from the root of the hierarchy.
fn all(mount: &str) -> HashMap<u64, String> {
    let mut paths = HashMap::new();
    let mut open = vec![String::new()];
    while let Some(group) = open.pop() {
        let Ok(entries) = fs::read_dir(format!("/{mount}/{group}")) else { continue }; // it has gone
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = format!("{group}/{}", entry.file_name().to_string_lossy());
            if paths.len() < Groups::MOST {
                paths.insert(entry.ino(), path.clone());
                open.push(path);
            }
        }
    }
    paths
}
