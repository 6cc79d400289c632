//! The object in the kernel: it is loaded, gets the applications' threads, and is read.

use crate::object::{APPS, BlameKey, OBJECT, RawWaits};
use crate::tally::{Dump, Tally};
use aya::maps::{Array, HashMap, Map};
use aya::programs::{BtfTracePoint, Iter, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use cotenant_model::{AppId, Time, Waits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::Path;

/// The oldest tested version of Linux.
const OLDEST: (u32, u32) = (6, 1);

/// Programs of the object and their tracepoints; the first two are required.
const POINTS: [(&str, &str); 6] = [
    ("switched", "sched_switch"),
    ("waking", "sched_waking"),
    ("waking_new", "sched_wakeup_new"),
    ("migrate", "sched_migrate_task"),
    ("forked", "sched_process_fork"),
    ("exited", "sched_process_exit"),
];
const NEEDED: usize = 2;

/// The iterator over threads.
const MARK: &str = "mark";

/// Why waits cannot be observed here, with a remedy if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blind {
    /// The rights are missing.
    #[error(
        "bpf(2) is not allowed: it needs the capabilities BPF and PERFMON (root has them, containers often do not), and a \
         system-call filter that lets it pass"
    )]
    NotAllowed,
    /// The kernel is locked down.
    #[error("the kernel is locked down (confidentiality): it lets no BPF program read its memory")]
    LockedDown,
    /// The kernel does not describe itself.
    #[error("this kernel has no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)")]
    NoBtf,
    /// The kernel is older than the tested ones.
    #[error("Linux {0} is too old for it: it needs {major}.{minor}", major = OLDEST.0, minor = OLDEST.1)]
    TooOld(String),
    /// Any other error of the kernel.
    #[error("{what}: {why}")]
    Refused {
        /// The refused action.
        what: String,
        /// The kernel's error.
        why: String,
    },
}

/// Observes the waits of applications during its lifetime.
#[derive(Debug)]
pub struct Tracer {
    object: Ebpf,
    /// Our entries in the map of processes.
    processes: BTreeMap<u32, u32>,
    slots: Slots,
    tally: Tally,
    /// Tracepoints that this kernel lacks or refuses.
    missing: Vec<String>,
}

/// The application of each slot. A freed one is reused last, since the history of CPUs may refer to it for a while.
#[derive(Debug)]
struct Slots {
    of: BTreeMap<AppId, u32>,
    free: VecDeque<u32>,
}

impl Tracer {
    /// Loads the object, in some hundredths of a second.
    ///
    /// # Errors
    /// [`Blind`]
    pub fn load() -> Result<Self, Blind> {
        // An unreadable version is tried.
        if let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease")
            && version(&release).is_some_and(|version| version < OLDEST)
        {
            return Err(Blind::TooOld(release.trim().to_owned()));
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(Blind::NoBtf);
        }
        let loaded = Self::load_unchecked().map_err(|why| refused(&why));
        // Memory for finding the kernel's structures, tens of megabytes, is returned at once. SAFETY: returns memory
        // that nothing uses to the kernel.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0)
        };
        loaded
    }

    fn load_unchecked() -> Result<Self, Error> {
        let btf = Btf::from_sys_fs()?;
        let cpus = aya::util::nr_cpus().map_err(|(_, why)| Error::Io(why))?;
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&btf)).allow_unsupported_maps().map_max_entries("pasts", cpus as u32);
        let mut object = loader.load(OBJECT)?;
        let mut missing = Vec::new();
        for (i, (program, point)) in POINTS.into_iter().enumerate() {
            match attach(&mut object, program, point, &btf) {
                Ok(()) => {}
                Err(why) if i < NEEDED => return Err(why),
                Err(why) => missing.push(format!("{point}: {}", refused(&why))),
            }
        }
        let mark: &mut Iter = program(&mut object, MARK)?.try_into()?;
        mark.load("task", &btf)?;
        Ok(Self {
            object,
            processes: BTreeMap::new(),
            slots: Slots { of: BTreeMap::new(), free: (0..APPS).collect() },
            tally: Tally::default(),
            missing,
        })
    }

    /// Tracepoints that this kernel lacks or refuses, with its reason: some waits are missing or have no cause.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Sets the processes of each application. Their children belong to it, too, until they are named themselves.
    ///
    /// # Errors
    /// Errors of the kernel. Applications beyond 256 are not observed.
    pub fn follow(&mut self, processes: impl Iterator<Item = (u32, AppId)>) -> io::Result<()> {
        let mut now = BTreeMap::new();
        let mut apps = BTreeSet::new();
        for (pid, app) in processes {
            apps.insert(app);
            now.extend(self.slots.of(app).map(|slot| (pid, slot)));
        }
        let gone: Vec<AppId> = self.slots.of.keys().filter(|app| !apps.contains(app)).copied().collect();
        for app in gone {
            self.tally.forget(app);
            let slot = self.slots.free(app);
            Array::<_, RawWaits>::try_from(map(&mut self.object, "waits")?)
                .map_err(io_error)?
                .set(slot, RawWaits::default(), 0)
                .map_err(io_error)?;
        }
        if now == self.processes {
            return Ok(());
        }
        let mut table: HashMap<_, u32, u32> =
            HashMap::try_from(map(&mut self.object, "processes")?).map_err(io_error)?;
        let mut changed = false;
        for pid in self.processes.keys().filter(|pid| !now.contains_key(pid)) {
            changed |= table.remove(pid).is_ok(); // the object removes ended processes itself
        }
        for (pid, slot) in now.iter().filter(|(pid, slot)| self.processes.get(pid) != Some(slot)) {
            // Children of followed processes already exist.
            if table.get(pid, 0).ok() != Some(*slot) {
                table.insert(pid, slot, 0).map_err(io_error)?;
                changed = true;
            }
        }
        self.processes = now;
        if changed { self.mark() } else { Ok(()) }
    }

    /// Marks all threads of applications: an iterator is run by reading it.
    fn mark(&mut self) -> io::Result<()> {
        let mark: &mut Iter =
            program(&mut self.object, MARK).and_then(|mark| Ok(mark.try_into()?)).map_err(io_error)?;
        let link = mark.attach().map_err(io_error)?;
        let mut threads = mark.take_link(link).map_err(io_error)?.into_file().map_err(io_error)?;
        io::copy(&mut threads, &mut io::sink()).map(drop)
    }

    /// Reads the waits until now. `cgroup`: the path of the group with that id.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read(&mut self, at: Time, cgroup: impl FnMut(u64) -> String) -> io::Result<()> {
        let waits: Array<_, RawWaits> = Array::try_from(map(&mut self.object, "waits")?).map_err(io_error)?;
        let mut dump = Dump::default();
        for slot in self.slots.of.values() {
            dump.waits.push((*slot, waits.get(slot, 0).map_err(io_error)?));
        }
        let mut blamed: HashMap<_, BlameKey, u64> =
            HashMap::try_from(map(&mut self.object, "blamed")?).map_err(io_error)?;
        // A concurrently removed entry is no error.
        dump.blamed = blamed.iter().filter_map(Result::ok).collect();
        let by_slot: BTreeMap<u32, AppId> = self.slots.of.iter().map(|(app, slot)| (*slot, *app)).collect();
        for old in self.tally.add(at, &dump, |slot| by_slot.get(&slot).copied(), cgroup) {
            let _ = blamed.remove(&old);
        }
        Ok(())
    }

    /// Waits of an application at the last reading.
    pub fn waits(&self, app: AppId) -> Option<&Waits> {
        self.tally.of(app)
    }
}

impl Slots {
    fn of(&mut self, app: AppId) -> Option<u32> {
        if !self.of.contains_key(&app) {
            self.of.insert(app, self.free.pop_front()?);
        }
        self.of.get(&app).copied()
    }

    fn free(&mut self, app: AppId) -> u32 {
        let slot = self.of.remove(&app).unwrap_or_default();
        self.free.push_back(slot);
        slot
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Btf(#[from] aya::BtfError),
    #[error(transparent)]
    Object(#[from] aya::EbpfError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
}

fn program<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Program, Error> {
    object.program_mut(name).ok_or(Error::NoProgram(name))
}

fn map<'a>(object: &'a mut Ebpf, name: &str) -> io::Result<&'a mut Map> {
    object.map_mut(name).ok_or_else(|| io::Error::other(format!("the object has no map {name}")))
}

fn attach(object: &mut Ebpf, name: &'static str, point: &str, btf: &Btf) -> Result<(), Error> {
    let program: &mut BtfTracePoint = program(object, name)?.try_into()?;
    program.load(point, btf)?;
    program.attach()?;
    Ok(())
}

fn io_error(why: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    match errno(&why) {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(why),
    }
}

/// The kernel's error number, anywhere in the chain.
fn errno(why: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut next = Some(why);
    while let Some(why) = next {
        if let Some(errno) = why.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(errno);
        }
        next = why.source();
    }
    None
}

/// In words for the user.
fn refused(why: &Error) -> Blind {
    match errno(why) {
        Some(libc::EPERM | libc::EACCES) if is_locked_down() => Blind::LockedDown,
        Some(libc::EPERM) => Blind::NotAllowed,
        errno => {
            let what = why.to_string();
            let why = errno.map_or_else(|| deepest(why), |errno| io::Error::from_raw_os_error(errno).to_string());
            Blind::Refused { what, why }
        }
    }
}

fn deepest(why: &dyn std::error::Error) -> String {
    why.source().map_or_else(|| why.to_string(), deepest)
}

fn is_locked_down() -> bool {
    fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|state| state.contains("[confidentiality]"))
}

/// `6.18.44-fc` → (6, 18)
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
