//! Census of this machine: every process with its user, program and control group.
//!
//! Processes rarely change, so a look reads one line of each known one, 5 us, and everything of new ones. A control
//! group is read repeatedly at first, because service managers move a process after its creation. A kernel thread, the
//! majority on idle machines, is rarely read again: its id is reused only after all ids.

use crate::FsRoot;
use crate::address_space::{self, What};
use crate::bounded;
use crate::sense::called::{self, Called};
use crate::sys::{self, cgroups};
use cotenant_model::proc_text::TaskStat;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Limit of processes; those with higher ids are left out.
const PROCESSES: usize = 65_536;

/// Looks at which a process's control group and program are read again, and the interval after these, also for kernel
/// threads.
const YOUNG: u32 = 3;
const THEN_EVERY: u32 = 16;

/// Bytes of an environment that are read.
const ENVIRONMENT: u64 = 128 << 10;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Start time in clock ticks since boot: together with the id it identifies the process.
    pub start_ticks: u64,
    /// Resident memory at the last look, bytes.
    pub resident: u64,
    /// Process id of its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// Effective user.
    pub uid: u32,
    /// Its executable; absent if unreadable.
    pub program: Option<PathBuf>,
    /// As the kernel calls it.
    comm: String,
    /// Further names of it for people.
    pub called: Vec<Called>,
    /// The script that it runs, determined on demand.
    script: OnceCell<Option<Called>>,
    /// Its control group, from the root of the hierarchy, such as `/system.slice/nginx.service`.
    pub cgroup: String,
    /// Answer of [`Census::has_opted_out`], and whether it was determined since the last full look.
    opted_out: Cell<Option<bool>>,
    is_asked: Cell<bool>,
    /// Looks at it so far.
    looks: u32,
}

impl Resident {
    /// Whether an earlier look has seen it.
    pub fn is_known(&self) -> bool {
        self.looks > 0
    }
}

/// All processes by id, without kernel threads.
#[derive(Debug)]
pub struct Census {
    fs: FsRoot,
    /// The hierarchy of processes' groups: version 2, or the service manager's.
    hierarchy: Option<&'static str>,
    mount: Option<String>,
    /// The root of our cgroup namespace, if it is not the real one.
    namespace: Option<String>,
    residents: BTreeMap<u32, Resident>,
    kernel_threads: BTreeSet<u32>,
    looks: u32,
    /// Whether it waits for answers of processes: a one-time caller delays no other work.
    patient: bool,
    /// Whether there are more than [`PROCESSES`].
    pub cut: bool,
}

impl Census {
    /// An empty census.
    pub fn new(fs: FsRoot) -> Self {
        let root = fs.path("/");
        // A version 2 may be mounted beside version 1 without processes in its groups.
        let second = cgroups::mounts(&root, None);
        let used = cgroups::of(&root, "1", None).is_some_and(|path| path != "/");
        let manager = cgroups::mounts(&root, Some(SYSTEMD));
        let (hierarchy, mounts) = if used || manager.is_empty() { (None, second) } else { (Some(SYSTEMD), manager) };
        let mount = mounts.into_iter().next();
        let namespace = mount.as_ref().and_then(|mount| cgroups::namespace(&root, hierarchy, &root.join(mount)));
        Self {
            fs,
            hierarchy,
            mount,
            namespace,
            residents: BTreeMap::new(),
            kernel_threads: BTreeSet::new(),
            looks: 0,
            patient: false,
            cut: false,
        }
    }

    /// For a caller without paused programs: it waits for answers.
    #[must_use]
    pub fn with_patience(self) -> Self {
        Self { patient: true, ..self }
    }

    /// Reads the living processes.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn look(&mut self) -> std::io::Result<()> {
        let pids = self.fs.numbered("/proc", "")?;
        self.cut = pids.len() > PROCESSES;
        let mut before = std::mem::take(&mut self.residents);
        let kernel_threads = std::mem::take(&mut self.kernel_threads);
        self.looks = self.looks.wrapping_add(1);
        let again = self.looks.is_multiple_of(THEN_EVERY);
        for pid in pids.into_iter().take(PROCESSES) {
            if !again && kernel_threads.contains(&pid) {
                self.kernel_threads.insert(pid);
                continue;
            }
            let Some(stat) = self.stat(pid) else { continue };
            if stat.is_kernel_thread() {
                self.kernel_threads.insert(pid);
            } else if let Some(resident) = self.one(pid, &stat, before.remove(&pid)) {
                self.residents.insert(pid, resident);
            }
        }
        Ok(())
    }

    /// Processes alive at the last look, by id.
    pub fn residents(&self) -> &BTreeMap<u32, Resident> {
        &self.residents
    }

    /// `None` after its end.
    fn stat(&self, pid: u32) -> Option<TaskStat> {
        let stat = bounded::read(self.fs.path(&format!("/proc/{pid}/stat")), bounded::Limit::Value).ok()?;
        TaskStat::parse(&stat).ok().filter(|stat| !stat.is_dead())
    }

    fn one(&self, pid: u32, stat: &TaskStat, before: Option<Resident>) -> Option<Resident> {
        if let Some(mut known) = before.filter(|known| known.start_ticks == stat.start_ticks) {
            known.looks = known.looks.saturating_add(1);
            (known.parent, known.group, known.session) = (stat.ppid, stat.pgrp, stat.session);
            known.resident = resident(stat);
            if known.looks > YOUNG && known.looks % THEN_EVERY != 0 && known.comm == stat.comm {
                return Some(known);
            }
            let now = self.read(pid, stat, Some(&known))?;
            let same = now.program == known.program;
            let opted_out = known.opted_out.take().filter(|_| same);
            let script = if same { known.script } else { OnceCell::new() };
            return Some(Resident { looks: known.looks, opted_out: Cell::new(opted_out), script, ..now });
        }
        self.read(pid, stat, None)
    }

    fn read(&self, pid: u32, stat: &TaskStat, before: Option<&Resident>) -> Option<Resident> {
        let uid = fs::metadata(self.fs.path(&format!("/proc/{pid}"))).ok()?.uid();
        let cgroup = self.group_now(pid).unwrap_or_else(|| "/".to_owned());
        let program = fs::read_link(self.fs.path(&format!("/proc/{pid}/exe"))).ok();
        let before = before.filter(|before| before.program == program).and_then(|before| before.called.first());
        let called = program.as_ref().and_then(|program| called::by_kernel(&self.fs, pid, program, &stat.comm, before));
        Some(Resident {
            start_ticks: stat.start_ticks,
            resident: resident(stat),
            parent: stat.ppid,
            group: stat.pgrp,
            session: stat.session,
            uid,
            program,
            comm: stat.comm.clone(),
            called: called.into_iter().collect(),
            script: OnceCell::new(),
            cgroup,
            opted_out: Cell::new(None),
            is_asked: Cell::new(false),
            looks: 0,
        })
    }

    /// The current control group of a process, which looks rarely read.
    pub fn group_now(&self, pid: u32) -> Option<String> {
        let groups = bounded::text(self.fs.path(&format!("/proc/{pid}/cgroup")), bounded::Limit::Value).ok()?;
        let of_job =
            OF_JOBS.iter().filter_map(|kind| cgroups::group_in(&groups, Some(kind))).find(|path| is_of_job(path));
        if of_job.is_some() {
            return of_job;
        }
        let path = cgroups::group_in(&groups, self.hierarchy)?;
        Some(self.namespace.as_ref().map_or_else(|| path.clone(), |root| cgroups::resolve(root, &path)))
    }

    /// The folder of a control group; `None` where no hierarchy is mounted.
    pub fn folder(&self, cgroup: &str) -> Option<PathBuf> {
        let below = |mount: &str| self.fs.path(mount).join(cgroup.trim_start_matches('/'));
        if is_of_job(cgroup) {
            let root = self.fs.path("/");
            let folders = OF_JOBS.iter().flat_map(|kind| cgroups::mounts(&root, Some(kind))).map(|mount| below(&mount));
            return folders.into_iter().find(|folder| folder.exists());
        }
        self.mount.as_deref().map(below)
    }

    /// Whether a resident executes a root-owned file that others cannot write, under its system-wide name: in user
    /// namespaces of their own, users mount files under other names.
    pub fn executes_roots_file(&self, pid: u32) -> bool {
        let namespace = |of: &str| fs::read_link(self.fs.path(&format!("/proc/{of}/ns/user"))).ok();
        let program = sys::identity(&self.fs.path(&format!("/proc/{pid}/exe")));
        program.is_ok_and(|file| file.uid == 0 && file.mode & 0o022 == 0)
            && namespace(&pid.to_string()) == namespace("self")
    }

    /// The script of a resident that executes an interpreter. Also `None` while it cannot be queried.
    pub fn script<'a>(&self, pid: u32, resident: &'a Resident) -> Option<&'a Called> {
        let program = resident.program.as_deref().filter(|program| called::is_interpreter(program))?;
        if resident.script.get().is_none() {
            let script = called::script(&self.fs, pid, program, self.patient).ok()?;
            let _ = resident.script.set(script);
        }
        resident.script.get()?.as_ref()
    }

    /// Whether a resident was started with `COTENANT=off` in its environment. False if that is unreadable; `None` while
    /// it cannot be queried, during which its parent's answer holds. Query only relevant ones: a process within an exec
    /// without CPU time does not answer.
    pub fn has_opted_out(&self, pid: u32, resident: &Resident) -> Option<bool> {
        if !resident.is_asked.get() {
            let read = |door: &address_space::Door| Ok(bounded::beginning(door.path(), ENVIRONMENT));
            let ask = if self.patient { address_space::ask_with_patience } else { address_space::ask };
            match ask(&self.fs, pid, What::Environment, read) {
                Err(why) if address_space::is_late(&why) => {}
                answer => {
                    let says = |all: Vec<u8>| all.split(|byte| *byte == 0).any(|entry| entry == b"COTENANT=off");
                    let off = answer.is_ok_and(says);
                    resident.opted_out.set(Some(off));
                    resident.is_asked.set(true);
                }
            }
        }
        resident.opted_out.get().or_else(|| self.residents.get(&resident.parent)?.opted_out.get())
    }
}

fn resident(stat: &TaskStat) -> u64 {
    stat.resident_pages.saturating_mul(sys::page_size() as u64)
}

const SYSTEMD: &str = "name=systemd";

/// Hierarchies of version 1 with Slurm's jobs; in the service manager's all of them are slurmd's.
const OF_JOBS: [&str; 4] = ["freezer", "memory", "cpuset", "devices"];

/// `/slurm/uid_1000/job_7`, or `/slurm_NODE/…` where a machine may have several slurmd.
fn is_of_job(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    let mut begins = |with: &str| parts.next().is_some_and(|part| part.starts_with(with));
    begins("slurm") && begins("uid_") && begins("job_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::eventually;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_known_with_its_user_its_program_and_its_environment() {
        let mut census = Census::new(FsRoot::live());
        let mut child = Command::new("sleep").arg("1000").env("COTENANT", "off").stdin(Stdio::null()).spawn().unwrap();
        let me = std::process::id();
        // Before exec(2), for which `spawn` waits, it executes the test's own program.
        census.look().unwrap();
        let residents = census.residents().clone();
        let found = &residents[&child.id()];
        assert_eq!((found.parent, found.uid), (me, crate::sys::euid()));
        assert!(
            found.program.as_ref().is_some_and(|path| path.ends_with("sleep") || path.ends_with("coreutils")),
            "{found:?}"
        );
        assert!(found.cgroup.starts_with('/'));
        assert!(residents[&me].resident > 1 << 20, "{found:?}");
        eventually("it says so", || census.has_opted_out(child.id(), found).is_some());
        assert_eq!(census.has_opted_out(child.id(), found), Some(true));
        assert_eq!(census.has_opted_out(me, &residents[&me]), Some(false));
        census.look().unwrap();
        assert_eq!(census.residents()[&child.id()].looks, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        census.look().unwrap();
        assert!(!census.residents().contains_key(&child.id()));
    }

    #[test]
    fn a_job_of_slurm_is_known_in_the_hierarchies_of_version_1() {
        let machine = cotenant_testing::TempDir::new("census-slurm");
        let mounts =
            "c /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\nc /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n";
        machine.write("proc/self/mounts", mounts);
        let systemd = "1:name=systemd:/system.slice/slurmd.service";
        for (pid, path) in [(7, "/slurm_n1/uid_1000/job_3/step_0"), (8, "/slurmd"), (9, "/")] {
            machine.write(&format!("proc/{pid}/cgroup"), format!("4:cpuset:{path}\n{systemd}\n"));
        }
        machine.write("sys/fs/cgroup/cpuset/slurm_n1/uid_1000/job_3/cgroup.procs", "7\n");
        let census = Census::new(FsRoot::at(machine.path()));
        let slurmd = Some("/system.slice/slurmd.service".to_owned());
        let job = Some("/slurm_n1/uid_1000/job_3/step_0".to_owned());
        assert_eq!([7, 8, 9].map(|pid| census.group_now(pid)), [job, slurmd.clone(), slurmd]);
        let folder = |cgroup| Some(census.folder(cgroup)?.strip_prefix(machine.path()).unwrap().to_owned());
        let inside = "sys/fs/cgroup/cpuset/slurm_n1/uid_1000/job_3";
        assert_eq!(folder("/slurm_n1/uid_1000/job_3"), Some(inside.into()));
        assert_eq!(folder("/a.slice"), Some("sys/fs/cgroup/systemd/a.slice".into()));
    }

    #[test]
    fn kernel_threads_and_who_cannot_be_read_are_left_out() {
        let dump = std::env::temp_dir().join(format!("cotenant-census-{}", std::process::id()));
        let stat = |pid: u32, flags: u32| {
            let rest = ["0"; 40].join(" ");
            format!("{pid} (a b) S 1 1 1 0 -1 {flags} {rest}\n")
        };
        for (pid, flags) in [(7, 0), (8, 0x0020_0000)] {
            let folder = dump.join(format!("proc/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("stat"), stat(pid, flags)).unwrap();
            fs::write(folder.join("cgroup"), "0::/a.slice/b.service\n").unwrap();
        }
        fs::create_dir_all(dump.join("proc/9")).unwrap();
        let mut census = Census::new(FsRoot::at(&dump));
        census.look().unwrap();
        let found: Vec<(u32, String)> =
            census.residents().iter().map(|(pid, who)| (*pid, who.cgroup.clone())).collect();
        assert_eq!(found, [(7, "/a.slice/b.service".to_owned())]);
        // The thread has ended, and a process has got its id.
        fs::write(dump.join("proc/8/stat"), stat(8, 0)).unwrap();
        for _ in 1..THEN_EVERY {
            census.look().unwrap();
        }
        assert!(census.residents().contains_key(&8));
        fs::remove_dir_all(dump).unwrap();
    }
}
