//! Follows the targets' processes and threads as they start and end.
//!
//! Full listings only follow births, which the last assigned id shows. A new thread is at the end of its process's
//! list, which is read from there; a folder's link count gives the number of threads; a pidfd shows a process's end. A
//! full look every few seconds covers gaps of these short cuts.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sense::ends::{End, Ends};
use crate::sys;
use crate::sys::thread;
use cotenant_model::proc_text::{self, Status, TaskStat};
use cotenant_model::{AppId, CpuSet, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The processes of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// These processes and all their descendants: also orphaned ones while they stay in a process group or session
    /// created inside the tree. Never Cotenant itself.
    Trees(Vec<u32>),
    /// These processes, without their children.
    Pids(Vec<u32>),
    /// The processes of a cgroup and its descendants, by its folder in the cgroup file system.
    Cgroup(PathBuf),
}

/// Up to this many new ids are looked up at once; beyond it, the next slow look lists `/proc`. With many starts
/// elsewhere, the former would cost more.
const PROBE_AT_MOST: u32 = 8;

/// Interval of checks without short cuts: moved cgroup members, leaders that ended before their threads.
const SLOW_EVERY: Duration = Duration::from_secs(1);

/// Interval of full listings, despite short cuts.
const FULL_EVERY: Duration = Duration::from_secs(10);

/// Processes whose threads are counted in one update, and those with a slow look; more take turns.
const COUNTED_AT_MOST: usize = 8;
const SLOW_AT_MOST: usize = 8;

/// Up to this many threads, listing all costs no more than finding new and ended ones.
const LISTED_WHOLE: usize = 64;

/// A process that is followed.
#[derive(Debug)]
pub struct Process {
    /// Its application.
    pub app: AppId,
    /// Its threads, including a leader that ended before them.
    pub threads: HashSet<u32>,
    /// `/proc/PID/task`; refers to this very process, never to one that reuses its id.
    dir: File,
    /// Signals its end; absent before Linux 5.3.
    pidfd: Option<OwnedFd>,
    pgrp: u32,
    session: u32,
    /// The leader has ended; other threads live on.
    leader_is_dead: bool,
    start_ticks: u64,
    /// Its value at the process's discovery.
    parent: u32,
    /// Time of its next slow look.
    slow_at: Time,
    /// [`Follower::births`] when its threads were counted last, and when they were listed.
    counted: u64,
    listed: u64,
}

/// Changes since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Threads that appeared: process, thread.
    pub born: Vec<(u32, u32)>,
    /// Ended threads.
    pub gone: Vec<u32>,
    /// Processes with only the leader left, possibly after an exec by another thread that took over the leader's id.
    pub alone: Vec<u32>,
}

/// Follows the processes of all targets.
#[derive(Debug)]
pub struct Follower {
    proc: PathBuf,
    loadavg: Option<File>,
    targets: BTreeMap<AppId, Target>,
    /// Targets not looked up yet.
    fresh: BTreeSet<AppId>,
    /// The only user whose processes are followed.
    uid: Option<u32>,
    /// Processes of a target owned by another user.
    others: HashSet<u32>,
    processes: BTreeMap<u32, Process>,
    /// Processes outside of all trees.
    strangers: HashSet<u32>,
    /// The next slow look must list `/proc`.
    list_soon: bool,
    /// Pids of trees that are alive, or name a process group or session of a living process; with the application.
    kin: HashMap<u32, AppId>,
    last_pid: Option<u32>,
    /// Whether a process or thread was created before the last update.
    born: bool,
    /// Number of updates with possible births.
    births: u64,
    /// The last counted process.
    cursor: u32,
    /// Ids that were new in the last update but unused, or no longer used.
    unseen: Vec<u32>,
    next_slow: Time,
    next_full: Time,
    buffer: Vec<u8>,
}

impl Follower {
    /// Follows these targets as the applications 0, 1, …; the first [`Self::update`] finds everything. With `uid`,
    /// other users' processes are left out.
    pub fn new(fs: &FsRoot, targets: Vec<Target>, uid: Option<u32>) -> Self {
        let targets: BTreeMap<AppId, Target> = (0..).map(AppId).zip(targets).collect();
        Self {
            proc: fs.path("/proc"),
            loadavg: File::open(fs.path("/proc/loadavg")).ok(),
            fresh: targets.keys().copied().collect(),
            targets,
            uid,
            others: HashSet::new(),
            processes: BTreeMap::new(),
            strangers: HashSet::new(),
            list_soon: true,
            kin: HashMap::new(),
            last_pid: None,
            born: false,
            births: 0,
            cursor: 0,
            unseen: Vec::new(),
            next_slow: Time::default(),
            next_full: Time::default(),
            buffer: vec![0; 32 << 10],
        }
    }

    /// Adds a target from the next update on.
    pub fn add_target(&mut self, app: AppId, target: Target) {
        self.targets.insert(app, target);
        self.fresh.insert(app);
    }

    /// Removes a target. Returns its followed threads.
    pub fn drop_target(&mut self, app: AppId) -> Vec<u32> {
        self.targets.remove(&app);
        self.fresh.remove(&app);
        self.kin.retain(|_, of| *of != app);
        let mut threads = Vec::new();
        self.processes.retain(|_, process| {
            let stays = process.app != app;
            if !stays {
                threads.extend(&process.threads);
            }
            stays
        });
        threads
    }

    /// Targets that are control groups, by their folders.
    pub fn groups(&self) -> impl Iterator<Item = (AppId, &Path)> {
        self.targets.iter().filter_map(|(app, target)| match target {
            Target::Cgroup(folder) => Some((*app, &**folder)),
            Target::Trees(_) | Target::Pids(_) => None,
        })
    }

    /// The next update lists everything, despite short cuts.
    pub fn list_soon(&mut self) {
        (self.next_slow, self.next_full, self.last_pid) = (Time::default(), Time::default(), None);
    }

    /// Processes that live, by id.
    pub fn processes(&self) -> &BTreeMap<u32, Process> {
        &self.processes
    }

    /// Other users' processes of targets, which are left out.
    pub fn others(&self) -> usize {
        self.others.len()
    }

    /// Finds started and ended processes and threads. `processes` are those reported by [`Ends`], `threads` (process,
    /// thread) those of ended counters. Unreadable ones count as ended.
    pub fn update(&mut self, at: Time, processes: &[u32], threads: &[(u32, u32)], ends: &Ends) -> Changes {
        let mut changes = Changes::default();
        for process in processes.iter().filter_map(|pid| self.processes.remove(pid)) {
            changes.gone.extend(process.threads);
        }
        for (pid, tid) in threads {
            if let Some(process) = self.processes.get_mut(pid).filter(|p| !exists(&p.dir, *tid))
                && process.threads.remove(tid)
            {
                changes.gone.push(*tid);
            }
        }
        let before = self.last_pid;
        self.last_pid = self.read_last_pid();
        let born = self.last_pid.is_none() || self.last_pid != before;
        // The kernel assigns an id a moment before its process is visible: a second look finds it.
        let born = std::mem::replace(&mut self.born, born) || born;
        let slow = at >= self.next_slow;
        if slow {
            self.next_slow = at + SLOW_EVERY;
        }
        self.births += u64::from(born);
        let full = at >= self.next_full;
        let mut slow_looks = 0;
        for pid in self.in_turn(if full { usize::MAX } else { COUNTED_AT_MOST }) {
            let due = self.processes[&pid].slow_at <= at && slow_looks < SLOW_AT_MOST;
            if full || due {
                slow_looks += 1;
                self.look_at_leader(pid, at, &mut changes);
            }
            self.look_at_threads(pid, due, full, &mut changes);
        }
        if born || slow || !self.fresh.is_empty() {
            self.find_processes(before, at, slow, ends, &mut changes);
        }
        changes
    }

    /// A limited number of processes, in turn by ascending ids.
    fn in_turn(&mut self, most: usize) -> Vec<u32> {
        let behind = self.processes.range((Bound::Excluded(self.cursor), Bound::Unbounded));
        let pids: Vec<u32> =
            behind.chain(self.processes.range(..=self.cursor)).map(|(pid, _)| *pid).take(most).collect();
        let all = pids.len() == self.processes.len();
        self.cursor = if all { u32::MAX } else { pids.last().copied().unwrap_or_default() };
        pids
    }

    /// A reported new thread has ended.
    pub fn forget_thread(&mut self, pid: u32, tid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.threads.remove(&tid);
        }
    }

    fn read_last_pid(&mut self) -> Option<u32> {
        let got = self.loadavg.as_ref()?.read_at(&mut self.buffer, 0).ok()?;
        proc_text::last_pid(&self.buffer[..got]).ok()
    }

    fn find_processes(&mut self, before: Option<u32>, at: Time, slow: bool, ends: &Ends, changes: &mut Changes) {
        let mut trees = false;
        let fresh = std::mem::take(&mut self.fresh);
        let mut found = Vec::new();
        for (&app, target) in &self.targets {
            trees |= matches!(target, Target::Trees(_));
            let pids = match target {
                Target::Cgroup(path) => members(path),
                // Named pids are looked up once: a later process with one of them is another.
                Target::Pids(pids) | Target::Trees(pids) if fresh.contains(&app) => pids.clone(),
                Target::Pids(_) | Target::Trees(_) => continue,
            };
            found.extend(pids.into_iter().map(|pid| (pid, app)));
        }
        for (pid, app) in found {
            self.adopt(pid, app, ends, changes);
        }
        let full = at >= self.next_full;
        if full {
            self.next_full = at + FULL_EVERY;
        }
        if !trees {
            return;
        }
        self.forget_kin();
        let unseen = std::mem::take(&mut self.unseen);
        match (before, self.last_pid) {
            (Some(from), Some(to)) if from == to && unseen.is_empty() => {}
            (Some(from), Some(to)) if (from..=from.saturating_add(PROBE_AT_MOST)).contains(&to) => {
                for id in unseen.into_iter().chain(from + 1..=to) {
                    if self.processes.values().any(|process| process.threads.contains(&id)) {
                        continue;
                    }
                    self.strangers.remove(&id);
                    if !self.adopt_kin(id, ends, changes) && id > from {
                        self.unseen.push(id);
                    }
                }
            }
            (Some(from), Some(to)) if from < to => {
                self.strangers.retain(|id| !(from + 1..=to).contains(id));
                self.list_soon = true;
            }
            // The ids wrapped around, or are unreadable: any id may be new.
            _ => {
                self.strangers.clear();
                self.list_soon = true;
            }
        }
        if full {
            self.strangers.clear();
        }
        if full || (slow && self.list_soon) {
            self.list_soon = false;
            self.adopt_all_kin(ends, changes);
        }
    }

    /// All of `/proc` except for known strangers, until a pass finds nothing: after a wrap of ids children may precede
    /// parents.
    fn adopt_all_kin(&mut self, ends: &Ends, changes: &mut Changes) {
        let Ok(entries) = fs::read_dir(&self.proc) else { return };
        let listed: Vec<u32> = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
        let mut fresh: Vec<u32> = listed.iter().copied().filter(|pid| !self.strangers.contains(pid)).collect();
        fresh.sort_unstable();
        loop {
            let before = self.processes.len();
            fresh.retain(|pid| !self.processes.contains_key(pid));
            for pid in &fresh {
                self.adopt_kin(*pid, ends, changes);
            }
            if self.processes.len() == before {
                break;
            }
        }
        let listed: HashSet<u32> = listed.into_iter().collect();
        self.strangers.retain(|pid| listed.contains(pid));
        self.strangers.extend(fresh);
    }

    /// Adopts a process whose parent, process group or session belongs to a tree. Returns whether the id is in use.
    fn adopt_kin(&mut self, pid: u32, ends: &Ends, changes: &mut Changes) -> bool {
        let Some(stat) = self.read_stat(pid) else { return false };
        // A dead parent cannot be in the map: orphans have another parent. A process attached to a shell may be in its
        // session.
        if pid == std::process::id() {
            return true;
        }
        let found = [stat.ppid, stat.pgrp, stat.session].into_iter().find_map(|id| self.kin.get(&id).copied());
        if let Some(app) = found {
            self.adopt(pid, app, ends, changes);
        }
        true
    }

    /// Keeps pids that a stranger cannot have: of living processes, and of groups and sessions with a living member.
    fn forget_kin(&mut self) {
        let processes = &self.processes;
        self.kin.retain(|id, _| {
            processes.contains_key(id) || processes.values().any(|p| p.pgrp == *id || p.session == *id)
        });
    }

    fn read_stat(&mut self, pid: u32) -> Option<TaskStat> {
        let file = File::open(self.proc.join(format!("{pid}/stat"))).ok()?;
        let got = file.read_at(&mut self.buffer, 0).ok()?;
        TaskStat::parse(&self.buffer[..got]).ok()
    }

    /// Follows a process, unless it is already followed, is a thread or the kernel's, or is dead.
    fn adopt(&mut self, pid: u32, app: AppId, ends: &Ends, changes: &mut Changes) {
        if self.processes.contains_key(&pid) {
            return;
        }
        let Some(process) = self.open(pid, app) else { return };
        if let Some(pidfd) = &process.pidfd {
            // Without it the next slow look detects the end.
            let _ = ends.listen(pidfd, End::Process(pid));
        }
        if matches!(self.targets.get(&app), Some(Target::Trees(_))) {
            self.kin.insert(pid, app);
        }
        self.processes.insert(pid, process);
        self.look_at_threads(pid, false, true, changes);
    }

    fn open(&mut self, pid: u32, app: AppId) -> Option<Process> {
        // The folder first: reads through it concern one process, or fail.
        let dir = File::open(self.proc.join(format!("{pid}/task"))).ok()?;
        let pidfd = sys::pidfd_open(pid).ok();
        let stat = self.read_stat(pid)?;
        let status = Status::parse(&bounded::read(self.proc.join(format!("{pid}/status")), Limit::Value).ok()?).ok()?;
        if status.tgid != pid || stat.is_kernel_thread() || (stat.is_dead() && stat.threads <= 1) {
            return None;
        }
        if self.uid.is_some_and(|uid| uid != status.uid) {
            self.others.insert(pid);
            return None;
        }
        let (pgrp, session) = (stat.pgrp, stat.session);
        Some(Process {
            app,
            threads: HashSet::new(),
            dir,
            pidfd,
            pgrp,
            session,
            leader_is_dead: false,
            start_ticks: stat.start_ticks,
            parent: stat.ppid,
            slow_at: self.next_slow,
            counted: self.births,
            listed: self.births,
        })
    }

    /// Finds new and ended threads of a process.
    fn look_at_threads(&mut self, pid: u32, slow: bool, full: bool, changes: &mut Changes) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let known = process.threads.len();
        let born = std::mem::replace(&mut process.counted, self.births) != self.births;
        if known == 1 && !born && !full {
            return; // its end is heard of
        }
        // A folder's link count is two plus one per thread.
        let count = process.dir.metadata().map_or(0, |m| m.nlink().saturating_sub(2) as usize);
        // An equal number means the same threads, unless one without a counter for its end was replaced.
        let replaced = slow && process.listed != self.births;
        let mut all = Vec::new();
        if full || replaced || (count != known && (born || known.max(count) <= LISTED_WHOLE)) {
            process.listed = self.births;
            let whole = full || known.max(count) <= LISTED_WHOLE;
            let mut skip = if whole { 0 } else { count.min(known).saturating_sub(4) };
            loop {
                let tail = list_from(&process.dir, skip, if full { usize::MAX } else { count }, &mut self.buffer);
                // Threads are listed in the order of creation: those before a known one are known.
                if skip > 0 && tail.first().is_none_or(|tid| !process.threads.contains(tid)) {
                    skip = skip.saturating_sub(2 * tail.len().max(4));
                    continue;
                }
                let fresh = tail.iter().filter(|tid| process.threads.insert(**tid));
                changes.born.extend(fresh.map(|tid| (pid, *tid)));
                all = tail;
                if skip > 0 {
                    all.clear();
                }
                break;
            }
        }
        if process.threads.len() != count {
            let listed: HashSet<u32> = all.into_iter().collect();
            let doubtful = process.threads.iter().copied().filter(|tid| !listed.contains(tid));
            // A listing ends early if a thread ends meanwhile.
            let gone: Vec<u32> = doubtful.filter(|tid| !exists(&process.dir, *tid)).collect();
            for tid in &gone {
                process.threads.remove(tid);
            }
            changes.born.retain(|(_, tid)| !gone.contains(tid));
            changes.gone.extend(gone);
        }
        if known > 1 && process.threads.len() == 1 && process.threads.contains(&pid) {
            changes.alone.push(pid);
        }
        if process.threads.is_empty() {
            self.processes.remove(&pid);
        }
    }

    /// A leader that ended stays a zombie until its last thread has ended too.
    fn look_at_leader(&mut self, pid: u32, at: Time, changes: &mut Changes) {
        let stat = self.read_stat(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.slow_at = at + SLOW_EVERY;
        let Some(stat) = stat else { return };
        (process.pgrp, process.session) = (stat.pgrp, stat.session);
        if stat.is_dead() && stat.threads <= 1 {
            changes.gone.extend(&process.threads);
            self.processes.remove(&pid);
        } else if stat.is_dead() && !process.leader_is_dead {
            process.leader_is_dead = true;
            changes.gone.push(pid);
        } else if !stat.is_dead() && process.leader_is_dead {
            process.leader_is_dead = false; // another thread executed a program and became the leader
            changes.born.push((pid, pid));
        }
    }
}

impl Process {
    /// Whether its leader is a zombie while other threads live.
    pub fn leader_is_dead(&self) -> bool {
        self.leader_is_dead
    }

    /// Its start time in clock ticks since boot, which with its id is its identity.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Its parent at its discovery, or the parent that will reap it.
    pub fn parent(&self) -> u32 {
        self.parent
    }

    /// Its effective user.
    ///
    /// # Errors
    /// If it has ended.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(self.dir.metadata()?.uid())
    }

    /// A living thread of it: preferably the leader `pid`.
    pub fn living_thread(&self, pid: u32) -> u32 {
        let others = || self.threads.iter().copied().find(|tid| *tid != pid);
        if self.leader_is_dead { others().unwrap_or(pid) } else { pid }
    }

    /// Opens a file of one of its threads, such as `stat`; fails if the thread has ended, even if its id is reused.
    ///
    /// # Errors
    /// `ENOENT`, `ESRCH`, `EACCES`, `EMFILE`.
    pub fn open_file(&self, tid: u32, name: &str) -> io::Result<File> {
        self.open(format!("{tid}/{name}").into_bytes())
    }

    /// Opens a file about all its threads, ended ones included, such as `io`; fails if the process has ended, even if
    /// its id is reused.
    ///
    /// # Errors
    /// As [`Process::open_file`].
    pub fn open_file_of_all(&self, name: &str) -> io::Result<File> {
        self.open(format!("../{name}").into_bytes())
    }

    fn open(&self, path: Vec<u8>) -> io::Result<File> {
        let path = CString::new(path)?;
        // SAFETY: the path is a C string that outlives the call, the descriptor is open.
        let fd = unsafe { libc::openat(self.dir.as_raw_fd(), path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor has just been made for us alone.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}

fn exists(dir: &File, tid: u32) -> bool {
    let path = format!("{tid}\0").into_bytes();
    // SAFETY: the path is a C string that outlives the call, the descriptor is open.
    unsafe { libc::faccessat(dir.as_raw_fd(), path.as_ptr().cast(), libc::F_OK, 0) == 0 }
}

/// The threads of `/proc/PID/task` from the `skip`th on; `count` is the known total.
fn list_from(dir: &File, skip: usize, count: usize, buffer: &mut [u8]) -> Vec<u32> {
    let mut ids = Vec::new();
    // Positions 0 and 1 of the folder are `.` and `..`.
    let position = (if skip == 0 { 0 } else { skip + 2 }) as u64;
    // SAFETY: takes plain numbers; the descriptor is open.
    if unsafe { libc::lseek(dir.as_raw_fd(), position.cast_signed(), libc::SEEK_SET) } < 0 {
        return ids;
    }
    loop {
        let more = list_once(dir, buffer);
        let at_end = more.is_empty();
        ids.extend(more);
        if at_end || skip + ids.len() >= count {
            return ids;
        }
    }
}

/// The numeric entries of an open folder, as many as fit into `buffer`, from the last position.
pub(crate) fn list_once(dir: &File, buffer: &mut [u8]) -> Vec<u32> {
    let mut ids = Vec::new();
    // SAFETY: the buffer is writable for the length that is passed.
    let got = unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    let mut entries = usize::try_from(got).ok().and_then(|got| buffer.get(..got)).unwrap_or(&[]);
    // struct linux_dirent64: inode 8 bytes, offset 8, record length 2, type 1, name with a NUL.
    while let Some(length) = entries.get(16..18).map(|l| usize::from(u16::from_ne_bytes([l[0], l[1]]))) {
        let Some((entry, rest)) = entries.split_at_checked(length.max(19)) else { break };
        let name = entry[19..].split(|b| *b == 0).next().unwrap_or(&[]);
        ids.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok()));
        entries = rest;
    }
    ids
}

impl Target {
    /// Currently allowed CPUs of its processes, from their masks, which are within their cpusets; empty without
    /// processes.
    pub fn cpus(&self) -> CpuSet {
        let masks = self.pids().into_iter().filter_map(|pid| sys::getaffinity(pid).ok());
        masks.fold(CpuSet::new(), |all, mask| all.or(&mask))
    }

    /// The named processes, or current members of its cgroup; without descendants.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Self::Pids(pids) | Self::Trees(pids) => pids.clone(),
            Self::Cgroup(path) => members(path),
        }
    }
}

/// Checks whether a process can be followed.
///
/// # Errors
/// The reason if not, in words that follow its number.
pub fn can_follow(pid: u32, other_users: bool) -> Result<(), String> {
    let status =
        bounded::read(format!("/proc/{pid}/status"), Limit::Value).ok().and_then(|text| Status::parse(&text).ok());
    let stat = thread::process_stat(pid).filter(|stat| !stat.is_dead() || stat.threads > 1);
    let (Some(status), Some(stat)) = (status, stat) else {
        return Err("has ended".to_owned());
    };
    match () {
        () if status.tgid != pid => Err(format!("is a thread of process {}; name that", status.tgid)),
        () if stat.is_kernel_thread() => Err("is a kernel thread, which is left alone".to_owned()),
        () if status.uid != sys::euid() && !other_users => {
            let user = sys::user_name(status.uid);
            let root = if sys::euid() == 0 { "" } else { "run as root: " };
            Err(format!("belongs to user {user}; {root}with --all-users those of others are managed, too"))
        }
        () => Ok(()),
    }
}

/// Checks whether a process has threads that may be placed and paused; see also [`can_follow`].
///
/// # Errors
/// The reason if not, in words that follow its number.
pub fn can_manage(pid: u32, other_users: bool) -> Result<(), String> {
    can_follow(pid, other_users)?;
    let threads = thread::numbers_in(&format!("/proc/{pid}/task")).into_iter();
    let mut stats = threads.filter_map(|tid| thread::process_stat(tid).filter(|stat| !stat.is_dead()));
    if stats.any(|stat| !stat.is_real_time()) {
        Ok(())
    } else {
        Err("has a real-time or deadline policy, and is left alone".to_owned())
    }
}

/// Whether a process may request `SCHED_DEADLINE`, which the kernel only grants to threads allowed on all CPUs.
pub fn may_ask_for_deadline(pid: u32) -> bool {
    const CAP_SYS_NICE: u32 = 23;
    let effective = |status: String| {
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let status = bounded::text(format!("/proc/{pid}/status"), Limit::Value);
    status.ok().and_then(effective).is_some_and(|capabilities| capabilities >> CAP_SYS_NICE & 1 == 1)
}

/// The group of the processes with threads in a threaded group (version 2) such as this one, as libvirt creates for
/// each virtual CPU; `None` if its own list of processes is readable.
///
/// # Errors
/// If it is unreadable for another reason.
pub fn domain_of(group: &Path) -> io::Result<Option<PathBuf>> {
    match bounded::read(group.join("cgroup.procs"), Limit::Ids) {
        Ok(_) => Ok(None),
        Err(why) if why.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let can_be_read = |around: &&Path| bounded::read(around.join("cgroup.procs"), Limit::Ids).is_ok();
            Ok(Some(group.ancestors().skip(1).find(can_be_read).unwrap_or(group).to_owned()))
        }
        Err(why) => Err(why),
    }
}

/// Processes of a cgroup (version 1 or 2) and its descendants; for a threaded one, all of its domain.
pub(crate) fn members(path: &Path) -> Vec<u32> {
    let domain = domain_of(path).ok().flatten();
    let mut pids = Vec::new();
    add_members(domain.as_deref().unwrap_or(path), &mut pids);
    pids
}

fn add_members(path: &Path, pids: &mut Vec<u32>) {
    if let Ok(text) = bounded::read(path.join("cgroup.procs"), Limit::Ids) {
        pids.extend(proc_text::ids(&text));
    }
    let Ok(entries) = fs::read_dir(path) else { return }; // it has just been removed
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            add_members(&entry.path(), pids);
        }
    }
}
