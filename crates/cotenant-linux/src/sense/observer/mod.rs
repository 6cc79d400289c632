//! The sampler: activity of every managed thread, at negligible cost for a busy machine.
//!
//! Reading one thread takes two or three system calls, so only threads that ran are read. With perf events, a page
//! shared by the kernel shows in 20 ns whether a thread was on a CPU since the last look. Otherwise a sleeping thread
//! is read half as often each time, down to once per [`SLEEPER_MAX`]; its counts are then late by as much, never lost.
//! `docs/reference/overhead.md` has the figures behind these choices.

mod ended;
mod newcomers;
mod pressure;
mod task;

use crate::FsRoot;
use crate::address_space;
use crate::sense::cpus::{self, Busy};
use crate::sense::ends::{End, Ends};
use crate::sense::memory::{self, Memory, numa_balancing};
use crate::sense::perf::{Counting, Live, Opened, Opener, Plan, Pmu, plan};
use crate::sense::processes::{Follower, Process, Target};
use crate::sense::progress::{Producer, Progress, Reported};
use crate::sense::proxies::Proxies;
use crate::sense::tier::{self, TierReport};
use crate::sense::waits::Waits;
use crate::sys::{self, thread::Identity};
use cotenant_model::{
    AppId, AppSample, CpuId, CpuSet, NodeId, Sample, Signal, TaskId, TaskInfo, TaskSample, Time, Topology,
};
use ended::Ended;
use newcomers::Newcomers;
use pressure::Pressures;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
pub use task::SLEEPER_MAX;
use task::Task;

/// Full reads of threads in one sample, besides those that stayed on their CPU: minimum and maximum. If more ran, the
/// others' CPU time comes from their pages, and they are read in the next samples.
const FULL_READS: (usize, usize) = (8, 32);

/// Full reads per read of `/proc/PID/task/TID/stat`, the only source of a thread's CPU. The longest-waiting thread
/// comes first.
const FULL_READS_PER_STAT: usize = 4;

/// Budget of sampling, as a fraction of one CPU: beyond it, fewer threads get full reads at a time.
const BUDGET: f64 = 0.003;

/// Interval of reading each thread's name and scheduling policy.
const REFRESH: Duration = Duration::from_secs(60);

/// Threads per round whose masks are checked again.
const MASKS_PER_ROUND: usize = 8;

/// Interval of reading `kernel.numa_balancing`.
const NUMA_BALANCING: Duration = Duration::from_secs(1);

/// Descriptors left to the rest of the program.
const SPARE_DESCRIPTORS: usize = 256;

/// An application to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppTarget {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub target: Target,
}

/// Observed programs, and the extent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Root of `/proc` and sysfs. Threads can only be followed on the live machine.
    pub fs: FsRoot,
    /// The extent of counting.
    pub counting: Counting,
    /// Hardware signals to count. More than fit alternate.
    pub signals: Vec<Signal>,
    /// Observations of each process's memory, which are expensive.
    pub memory: memory::Options,
    /// Whether to count bytes read, written, sent and received.
    pub proxies: bool,
    /// Whether to observe the causes of waits by BPF.
    pub waits: bool,
    /// Whether to observe processes of other users.
    pub other_users: bool,
    /// Limit of threads; further ones are left out and reported.
    pub max_tasks: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs: FsRoot::live(),
            counting: Counting::Hardware,
            signals: plan::SAM_SIGNALS.to_vec(),
            memory: memory::Options::default(),
            proxies: false,
            waits: false,
            other_users: false,
            max_tasks: 16_384,
        }
    }
}

impl Options {
    /// Whether memory accesses come from events, if countable.
    fn by_events(&self) -> bool {
        self.memory.accesses && matches!(self.memory.choice, memory::Choice::Auto | memory::Choice::Hardware)
    }

    /// Also counts events for memory accesses, if wanted; returns whether that is new.
    fn count_accesses(&mut self) -> bool {
        let new = self.by_events() && !self.signals.contains(&Signal::LocalDram);
        self.signals.extend(new.then_some(Signal::LocalDram));
        new
    }

    fn loads_tell<K>(&self, opener: Option<&Opener<K>>) -> bool {
        let counts = |signal| opener.is_some_and(|opener| opener.plan.counts(signal));
        self.by_events() && counts(Signal::LocalDram) && counts(Signal::Remote)
    }
}

/// A newly discovered thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// Parent process id.
    pub ppid: u32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// Its current mask within its cpuset; empty if unreadable.
    pub mask: CpuSet,
}

/// Why nothing can be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// `/proc` is not readable.
    #[error(transparent)]
    Proc(#[from] cpus::ReadError),
    /// No descriptor for the ends of processes.
    #[error("cannot create an epoll: {0}; raise the limit of open files (ulimit -n)")]
    Epoll(io::Error),
}

/// Observes applications.
#[derive(Debug)]
pub struct Observer {
    options: Options,
    /// Names of the observed applications.
    apps: BTreeMap<AppId, String>,
    /// The next id; ids are never reused.
    next_app: AppId,
    follower: Follower,
    ends: Ends,
    opener: Option<Opener<Live>>,
    pmus: Vec<Pmu>,
    tasks: Vec<Task>,
    by_tid: HashMap<u32, TaskId>,
    newcomers: Newcomers,
    ended: Ended,
    pressures: Pressures,
    /// Applications with known processes: later ones are new.
    found: BTreeSet<AppId>,
    next_id: u32,
    busy: Busy,
    memory: Memory,
    /// Whether loads from local and remote memory are counted, and used for accesses by node.
    loads_tell: bool,
    /// Memory nodes, and the node of each CPU.
    nodes: Vec<NodeId>,
    node_of: BTreeMap<CpuId, NodeId>,
    progress: Progress,
    proxies: Option<Proxies>,
    waits: Option<Waits>,
    /// Remaining descriptors for files of `/proc`.
    proc_files_left: usize,
    /// Number of threads beyond the limit.
    left_out: usize,
    /// The first thread with a real-time policy.
    real_time: Option<String>,
    last: Option<Time>,
    /// Whether the kernel moves memory after threads, and the time of the next read.
    numa_balancing: bool,
    numa_due: Time,
    round: u64,
    /// Tasks that may have changed their CPU, the longest-waiting first.
    moved: VecDeque<TaskId>,
    refresh_at: usize,
    refresh_due: f64,
    full_reads: usize,
    mask_at: usize,
}

impl Observer {
    /// Prepares to observe. Raises this process's soft limit of open files to the hard one; see [`sys::raise_nofile`].
    ///
    /// # Errors
    /// [`ObserveError`] where `/proc` is not there.
    pub fn new(topology: &Topology, apps: Vec<AppTarget>, mut options: Options) -> Result<Self, ObserveError> {
        options.count_accesses();
        let busy = Busy::new(&options.fs, topology)?;
        let limit = usize::try_from(sys::raise_nofile()).unwrap_or(usize::MAX);
        let used = options.fs.list("/proc/self/fd").map_or(0, |l| l.len());
        let descriptors = limit.saturating_sub(used + SPARE_DESCRIPTORS);
        let pmus = if options.counting == Counting::Hardware { plan::pmus(&options.fs) } else { vec![] };
        let opener = (options.counting != Counting::Nothing)
            .then(|| Opener::new(Live, Plan::new(&pmus, &options.signals), descriptors - descriptors / 4));
        let loads_tell = options.loads_tell(opener.as_ref());
        let nodes: Vec<NodeId> = topology.nodes().iter().map(|node| node.id).collect();
        let of_cpu = |cpu: &cotenant_model::topology::Cpu| Some((cpu.id, nodes[topology.node_of(cpu.id)?]));
        let uid = (!options.other_users).then(sys::euid);
        let follower = Follower::new(&options.fs, apps.iter().map(|a| a.target.clone()).collect(), uid);
        Ok(Self {
            follower,
            ends: Ends::new().map_err(ObserveError::Epoll)?,
            opener,
            pmus,
            tasks: Vec::new(),
            by_tid: HashMap::new(),
            newcomers: Newcomers::default(),
            ended: Ended::new(topology),
            pressures: Pressures::new(&options.fs),
            found: BTreeSet::new(),
            next_id: 0,
            busy,
            memory: Memory::new(options.memory, &options.fs, loads_tell),
            loads_tell,
            node_of: topology.cpus().iter().filter_map(of_cpu).collect(),
            nodes,
            progress: Progress::default(),
            proxies: options.proxies.then(Proxies::default),
            waits: None,
            proc_files_left: descriptors / 4,
            left_out: 0,
            real_time: None,
            last: None,
            numa_balancing: false,
            numa_due: Time::default(),
            round: 0,
            moved: VecDeque::new(),
            refresh_at: 0,
            refresh_due: 0.0,
            full_reads: FULL_READS.1,
            mask_at: 0,
            options,
            next_app: AppId(apps.len() as u32),
            apps: (0..).map(AppId).zip(apps.into_iter().map(|app| app.name)).collect(),
        })
    }

    /// Changes the options from the next sample on; followed processes stay.
    pub fn look_at(&mut self, memory: memory::Options, proxies: bool, waits: bool) {
        self.options.waits = waits;
        self.waits.take_if(|_| !waits);
        if proxies != self.options.proxies {
            self.options.proxies = proxies;
            self.proxies = proxies.then(Proxies::default);
        }
        if memory != self.options.memory {
            self.options.memory = memory;
            if self.options.count_accesses()
                && let Some(opener) = &mut self.opener
            {
                opener.plan = Arc::new(Plan::new(&self.pmus, &self.options.signals));
                let tids: Vec<u32> = self.by_tid.keys().copied().collect();
                for tid in tids {
                    self.reopen(tid);
                }
            }
            self.loads_tell = self.options.loads_tell(self.opener.as_ref());
            self.memory = Memory::new(memory, &self.options.fs, self.loads_tell);
        }
    }

    /// Adds an application from the next sample on.
    pub fn add_app(&mut self, app: AppTarget) -> AppId {
        let id = self.next_app;
        self.next_app = AppId(id.0 + 1);
        self.follower.add_target(id, app.target);
        self.apps.insert(id, app.name);
        id
    }

    /// Stops observing an application: its remaining threads count as foreign.
    pub fn remove_app(&mut self, app: AppId) {
        let threads = self.follower.drop_target(app);
        self.remove(&threads);
        self.newcomers.remove(&threads);
        self.ended.forget(app);
        self.progress.forget(app);
        self.proxies.iter_mut().for_each(|proxies| proxies.forget(app));
        self.found.remove(&app);
        self.apps.remove(&app);
    }

    /// Replaces an application's processes: former ones are dropped by the next slow look.
    pub fn retarget(&mut self, app: AppId, target: Target) {
        self.follower.add_target(app, target);
    }

    /// The next sample lists all of `/proc`, so that no process is missed.
    pub fn list_soon(&mut self) {
        self.follower.list_soon();
    }

    /// Whether nothing is left to observe. True before the first sample.
    pub fn is_empty(&self) -> bool {
        self.follower.processes().is_empty()
    }

    /// Processes that live.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.follower.processes().keys().copied()
    }

    /// The living processes of an application.
    pub fn members(&self, app: AppId) -> Vec<Identity> {
        let processes = self.follower.processes().iter();
        processes.filter(|(_, p)| p.app == app).map(|(pid, p)| (*pid, p.start_ticks())).collect()
    }

    /// The name of an application.
    pub fn name(&self, app: AppId) -> &str {
        self.apps.get(&app).map_or("", String::as_str)
    }

    /// The living processes of each application with any, by id.
    pub fn by_app(&self) -> BTreeMap<AppId, Vec<(u32, &Process)>> {
        let mut apps: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (pid, process) in self.follower.processes() {
            apps.entry(process.app).or_default().push((*pid, process));
        }
        apps
    }

    /// Rarely changing facts about an application's tasks in the last sample.
    pub fn tasks_of(&self, app: AppId) -> impl Iterator<Item = &Arc<TaskInfo>> {
        self.tasks.iter().map(|task| &task.info).filter(move |info| info.app == app)
    }

    /// Descriptors open for observed programs: two per process, and those of each thread.
    pub fn descriptors(&self) -> usize {
        2 * self.follower.processes().len() + self.tasks.iter().map(Task::descriptors).sum::<usize>()
    }

    /// Rarely changing facts about a task in the last sample.
    pub fn info(&self, id: TaskId) -> Option<&Arc<TaskInfo>> {
        self.tasks.binary_search_by_key(&id, |t| t.info.id).ok().map(|i| &self.tasks[i].info)
    }

    /// Changes a thread's allowed CPUs.
    pub fn set_allowed(&mut self, tid: u32, allowed: CpuSet) {
        if let Some(i) = self.position(tid) {
            self.tasks[i].set_info(|info| info.allowed = allowed);
        }
    }

    /// Reads the masks of some threads again, all in turn: many bind themselves after their discovery, and users and
    /// cpusets change masks at any time. `allowed` gets a thread's id, start time and mask; `None` keeps the known
    /// mask.
    pub fn look_at_masks(&mut self, allowed: &dyn Fn(u32, u64, CpuSet) -> Option<CpuSet>) {
        for _ in 0..self.tasks.len().min(MASKS_PER_ROUND) {
            self.mask_at = (self.mask_at + 1) % self.tasks.len();
            let task = &mut self.tasks[self.mask_at];
            let (tid, start) = (task.info.tid, task.info.start_ticks);
            let now = sys::getaffinity(tid).ok().and_then(|mask| allowed(tid, start, mask));
            if let Some(now) = now.filter(|now| *now != task.info.allowed) {
                task.set_info(|info| info.allowed = now);
            }
        }
    }

    /// An application was resumed: its sleeping threads are read in the next sample.
    pub fn resumed(&mut self, app: AppId) {
        self.tasks.iter_mut().filter(|t| t.info.app == app).for_each(Task::resumed);
    }

    /// The machine's capabilities, and what was really observed.
    pub fn tier(&self) -> TierReport {
        let found = tier::Found {
            fs: &self.options.fs,
            asked: &self.options.signals,
            counting: self.options.counting,
            pmus: &self.pmus,
            opener: self.opener.as_ref(),
            left_out: self.left_out,
            missed: self.newcomers.missed,
            others: self.follower.others(),
        };
        tier::report(&found, self.tasks.iter().map(|t| &t.counters))
    }

    /// A sample of everything. `original_mask` returns each new thread's mask from the user, which differs from the
    /// current one if that was inherited from a thread that we moved.
    ///
    /// # Errors
    /// [`ObserveError`] only where `/proc` itself fails; a vanished thread is simply absent.
    pub fn sample(
        &mut self,
        at: Time,
        original_mask: &mut dyn FnMut(&NewTask) -> CpuSet,
    ) -> Result<Sample, ObserveError> {
        let interval = self.last.map_or(Duration::ZERO, |last| at - last);
        self.last = Some(at);
        let begin = sys::thread_cpu_time();
        self.round += 1;
        self.follow(at, interval, original_mask);
        self.progress.follow(self.follower.processes(), at);
        self.read(at, interval);
        self.ended.look(self.follower.processes(), &self.tasks, at);
        self.pressures.look(self.follower.groups(), at);
        let cpus = self.busy.read()?;
        // Looks at memory, proxies and waits have budgets of their own.
        let proxies = self.proxies.as_mut().map(|proxies| proxies.look(self.follower.processes(), at));
        let waits = self.options.waits.then(|| {
            let waits = self.waits.get_or_insert_with(|| Waits::new(at));
            waits.look(self.follower.processes(), at)
        });
        let others = self.look_at_memory(at) + proxies.unwrap_or_default() + waits.unwrap_or_default();
        if self.nodes.len() > 1 && at >= self.numa_due {
            self.numa_balancing = numa_balancing(&self.options.fs);
            self.numa_due = at + NUMA_BALANCING;
        }
        let tasks = self.tasks.iter_mut().map(|t| t.sample(&self.memory)).collect();
        let sample = Sample { at, tasks, cpus, apps: self.apps(), numa_balancing: self.numa_balancing };
        let cost = sys::thread_cpu_time().saturating_sub(begin + others);
        self.full_reads = next_full_reads(self.full_reads, cost, interval);
        Ok(sample)
    }

    /// Looks at the memory of all processes, if wanted and due; returns the CPU time.
    fn look_at_memory(&mut self, at: Time) -> Duration {
        if !self.options.memory.placement && !self.options.memory.accesses {
            return Duration::ZERO;
        }
        let before = self.memory.spent().0;
        let mut live: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for task in &self.tasks {
            live.entry(task.info.pid).or_default().push(task.info.tid);
        }
        self.memory.look(&live, at);
        if self.loads_tell {
            for task in &mut self.tasks {
                task.share_loads(&self.nodes, &self.node_of, self.memory.pages(task.info.pid).as_deref());
            }
        }
        self.memory.spent().0.saturating_sub(before)
    }

    /// Observations of processes' memory, with their method.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The applications' current own reports, without a system call.
    pub fn apps(&mut self) -> Vec<AppSample> {
        let reported = self.progress.of_all();
        let app = |(&id, name): (&AppId, &String)| {
            let told = |producer| reported.get(&(id, producer));
            let [io, tcp] = self.proxies.as_ref().map(|proxies| proxies.of(id)).unwrap_or_default();
            AppSample {
                id,
                name: name.clone(),
                progress: told(Producer::Program).map(|reported| reported.units),
                latency_ns: told(Producer::Program).and_then(Reported::latency_ns),
                openmp: told(Producer::OpenMp).map(|counted| counted.units),
                mpi: told(Producer::Mpi).map(|counted| counted.units),
                ended_ns: self.ended.of(id),
                waits: self.waits.as_ref().and_then(|waits| waits.of(id)),
                paused_ns: None,
                pressure: self.pressures.of(id),
                io,
                tcp,
                metrics: Vec::new(),
                clipped: Vec::new(),
            }
        };
        self.apps.iter().map(app).collect()
    }

    /// Updates the cycles and instructions of those tasks that may have run since the last sample: one read each
    /// instead of a full one. False without counters.
    pub fn count(&mut self, tasks: &mut [TaskSample]) -> bool {
        let Some(opener) = &self.opener else { return false };
        let mut counts = false;
        for task in self.tasks.iter_mut().filter(|task| task.counts_hardware()) {
            counts = true;
            if task.count_speed(opener)
                && let Ok(i) = tasks.binary_search_by_key(&task.info.id, |sampled| sampled.info.id)
            {
                tasks[i].counters = task.counters.clone();
            }
        }
        counts
    }

    /// Reports of an application's programs so far, including their last moments; `None` without any.
    pub fn reported(&mut self, app: AppId) -> Option<Reported> {
        self.progress.of(app)
    }

    /// Remarks on bytes read, written, sent and received.
    pub fn proxy_notes(&self) -> impl Iterator<Item = &String> {
        self.proxies.iter().flat_map(Proxies::notes)
    }

    /// Why waits are not seen, in whole or in part.
    pub fn wait_notes(&self) -> Vec<String> {
        self.waits.as_ref().map_or_else(Vec::new, Waits::notes)
    }

    /// The first thread that is left alone because of its policy.
    pub fn policy_note(&self) -> Option<&String> {
        self.real_time.as_ref()
    }

    /// Implausible reports, with reasons.
    pub fn refused_reports(&self) -> impl Iterator<Item = &String> {
        self.progress.refused()
    }

    /// Updates the list of tasks.
    fn follow(&mut self, at: Time, interval: Duration, original_mask: &mut dyn FnMut(&NewTask) -> CpuSet) {
        let heard = self.ends.heard();
        let processes: Vec<u32> = heard.iter().copied().filter_map(End::process).collect();
        let detached: Vec<u32> = heard.iter().copied().filter_map(End::thread).collect();
        let pid_of = |tid: &u32| Some((self.tasks[self.position(*tid)?].info.pid, *tid));
        let threads: Vec<(u32, u32)> = detached.iter().filter_map(pid_of).collect();
        let mut changes = self.follower.update(at, &processes, &threads, &self.ends);
        self.remove(&changes.gone);
        self.newcomers.remove(&changes.gone);
        let mut renew = detached;
        for pid in std::mem::take(&mut changes.alone) {
            match self.position(pid) {
                Some(_) => renew.push(pid),
                None if !changes.born.contains(&(pid, pid)) => changes.born.push((pid, pid)),
                None => {}
            }
        }
        for tid in renew {
            if let Some(i) = self.position(tid) {
                self.tasks[i].carry_over = 0..3;
            }
            self.reopen(tid);
        }
        let mut first = Vec::new();
        for (pid, tid) in changes.born {
            let app = self.follower.processes().get(&pid).map(|process| process.app);
            match app {
                // Initial threads of an application are no newcomers.
                Some(app) if !self.found.contains(&app) => first.push((pid, tid, app)),
                _ => self.newcomers.add(pid, tid, at),
            }
        }
        for (pid, tid, app) in first {
            self.found.insert(app);
            self.add(pid, tid, original_mask);
        }
        let on = self.newcomers.take(at, interval);
        let begin = sys::thread_cpu_time();
        for (pid, tid) in &on {
            self.add(*pid, *tid, original_mask);
        }
        self.newcomers.spent(on.len(), sys::thread_cpu_time().saturating_sub(begin));
    }

    fn position(&self, tid: u32) -> Option<usize> {
        let id = self.by_tid.get(&tid)?;
        self.tasks.binary_search_by_key(id, |t| t.info.id).ok()
    }

    fn add(&mut self, pid: u32, tid: u32, original_mask: &mut dyn FnMut(&NewTask) -> CpuSet) {
        if self.tasks.len() >= self.options.max_tasks {
            self.left_out += 1;
            return;
        }
        let Some(process) = self.follower.processes().get(&pid) else { return };
        if self.by_tid.contains_key(&tid) {
            return;
        }
        let Some(stat) = task::read_stat(process, tid) else { return self.follower.forget_thread(pid, tid) };
        if stat.is_dead() || stat.is_kernel_thread() {
            return;
        }
        if stat.is_real_time() {
            self.real_time.get_or_insert_with(|| left_alone(tid, &stat));
            return;
        }
        // Its mask is unreadable after its end.
        let Ok(mask) = sys::getaffinity(tid) else { return self.follower.forget_thread(pid, tid) };
        let new = NewTask { tid, pid, ppid: stat.ppid, start_ticks: stat.start_ticks, mask };
        let allowed = original_mask(&new);
        let id = TaskId(self.next_id);
        let mut task = Task::new(id, process.app, pid, tid, &stat, allowed);
        if self.proc_files_left > 0
            && let Ok(file) = process.open_file(tid, "schedstat")
        {
            self.proc_files_left -= 1;
            task.schedstat = Some(file);
        }
        if !self.attach(&mut task) {
            return self.follower.forget_thread(pid, tid);
        }
        self.next_id += 1;
        self.by_tid.insert(tid, id);
        self.tasks.push(task);
    }

    /// Opens a task's counters; false if it is gone, or should be retried when it is found again.
    fn attach(&mut self, task: &mut Task) -> bool {
        let Some(opener) = &mut self.opener else { return true };
        // The kernel waits while the process begins to execute another program.
        match address_space::briefly(task.info.pid, || opener.open(task.info.tid)).unwrap_or(Opened::Late) {
            Opened::Gone | Opened::Late => return false,
            Opened::Refused => {}
            Opened::Counting(counters) => {
                if let (Some(_), Some(leader)) = (&counters.page, counters.leader()) {
                    // On failure the follower still detects the end.
                    let _ = self.ends.listen(leader.as_fd(), End::Thread(task.info.tid));
                }
                task.attach(counters);
            }
        }
        true
    }

    /// Reopens the counters of a task that are attached to an ended thread, or never count.
    fn reopen(&mut self, tid: u32) {
        let Some(i) = self.position(tid) else { return };
        let mut task = self.tasks.remove(i);
        if let (Some(counters), Some(opener)) = (task.detach(), &mut self.opener) {
            opener.closed(&counters);
        }
        if self.attach(&mut task) {
            self.tasks.insert(i, task);
        } else {
            self.by_tid.remove(&tid);
            self.follower.forget_thread(task.info.pid, tid);
            self.ended.gone(&task);
            self.proc_files_left += task.proc_files();
        }
    }

    fn remove(&mut self, tids: &[u32]) {
        let gone: HashSet<TaskId> = tids.iter().filter_map(|tid| self.by_tid.remove(tid)).collect();
        if gone.is_empty() {
            return;
        }
        for task in self.tasks.extract_if(.., |t| gone.contains(&t.info.id)) {
            self.proc_files_left += task.proc_files();
            self.ended.gone(&task);
            if let (Some(counters), Some(opener)) = (task.perf, &mut self.opener) {
                opener.closed(&counters);
            }
        }
    }

    /// Reads the threads that ran.
    fn read(&mut self, at: Time, interval: Duration) {
        let mut gone = Vec::new();
        let mut queue: Vec<(bool, u64, usize)> = Vec::new();
        for (i, task) in self.tasks.iter_mut().enumerate() {
            match task.glance(self.opener.as_ref(), self.follower.processes(), at, interval) {
                task::Glance::Asleep => {}
                task::Glance::Done => task.queue_to_be_located(&mut self.moved),
                // Threads constantly on a CPU come first: their page shows no change, but their time goes on.
                task::Glance::Ran { on_cpu } => queue.push((!on_cpu, task.read_in, i)),
                task::Glance::Gone => gone.push(task.info.tid),
            }
        }
        let uninterrupted = queue.iter().filter(|(later, ..)| !later).count();
        let turns = (uninterrupted + self.full_reads).min(queue.len());
        if turns < queue.len() {
            queue.select_nth_unstable(turns);
        }
        for (.., i) in &queue[..turns] {
            let task = &mut self.tasks[*i];
            task.read_in = self.round;
            if !task.read(self.opener.as_ref(), self.follower.processes()) {
                gone.push(task.info.tid);
            }
            task.queue_to_be_located(&mut self.moved);
            if let (Some(counters), Some(opener)) = (task.spare(self.follower.processes(), at), &mut self.opener) {
                opener.closed(&counters);
            }
        }
        self.locate(interval, &mut gone);
        self.remove(&gone);
        self.relieve();
    }

    /// Reopens counters that never count in their groups.
    fn relieve(&mut self) {
        let Some(opener) = &mut self.opener else { return };
        let silent = |task: &mut Task| opener.relieve(task.perf.as_mut()?).then_some(task.info.tid);
        let silent: Vec<u32> = self.tasks.iter_mut().filter_map(silent).collect();
        for tid in silent {
            self.reopen(tid);
        }
    }

    /// A thread that moved once moves again, and opening the file costs as much as reading it.
    fn keep_stat_open(&mut self, i: usize) {
        let task = &mut self.tasks[i];
        if task.stat.is_none()
            && self.proc_files_left > 0
            && let Some(process) = self.follower.processes().get(&task.info.pid)
            && let Ok(file) = process.open_file(task.info.tid, "stat")
        {
            self.proc_files_left -= 1;
            task.stat = Some(file);
        }
    }

    /// Finds the CPUs of tasks that may have moved, and refreshes names and policies in turn.
    fn locate(&mut self, interval: Duration, gone: &mut Vec<u32>) {
        let most = self.full_reads / FULL_READS_PER_STAT;
        let mut look: Vec<usize> = Vec::with_capacity(most);
        while look.len() < most
            && let Some(id) = self.moved.pop_front()
        {
            if let Ok(i) = self.tasks.binary_search_by_key(&id, |t| t.info.id) {
                self.tasks[i].to_be_located = false;
                self.keep_stat_open(i);
                look.push(i);
            }
        }
        let due = self.refresh_due + self.tasks.len() as f64 * interval.as_secs_f64() / REFRESH.as_secs_f64();
        self.refresh_due = due.min(most as f64);
        while self.refresh_due >= 1.0 && look.len() < most && !self.tasks.is_empty() {
            self.refresh_due -= 1.0;
            self.refresh_at = (self.refresh_at + 1) % self.tasks.len();
            look.push(self.refresh_at);
        }
        for i in look {
            let task = &mut self.tasks[i];
            let process = self.follower.processes().get(&task.info.pid);
            match process.and_then(|p| task.read_stat(p)) {
                Some(stat) if stat.start_ticks == task.info.start_ticks && !stat.is_dead() => {
                    if stat.is_real_time() {
                        self.real_time.get_or_insert_with(|| left_alone(task.info.tid, &stat));
                        gone.push(task.info.tid);
                    } else {
                        task.locate(&stat);
                    }
                }
                _ => gone.push(task.info.tid),
            }
        }
    }
}

fn left_alone(tid: u32, stat: &cotenant_model::proc_text::TaskStat) -> String {
    format!("{} (thread {tid}) has a real-time or deadline policy, and is left alone", stat.comm)
}

/// Number of full reads in the next sample, given the cost of the last.
fn next_full_reads(now: usize, cost: Duration, interval: Duration) -> usize {
    let allowed = interval.mul_f64(BUDGET);
    let next = if cost > allowed { now - now / 8 } else { now + usize::from(cost < allowed.mul_f64(0.9)) };
    next.clamp(FULL_READS.0, FULL_READS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise see/cost: With perf events, at 100 ms and 1,000 threads, Cotenant stays below 0.5 % of a core with 100
    /// running, 1.5 % with all, and 50 MB.
    #[test]
    fn reads_less_where_it_would_cost_too_much() {
        let tenth = Duration::from_millis(100); // 0.3 % of it are 300 us
        let after = |reads, us| next_full_reads(reads, Duration::from_micros(us), tenth);
        assert_eq!((after(32, 301), after(16, 301), after(8, 900)), (28, 14, 8));
        assert_eq!((after(8, 100), after(31, 100), after(32, 100)), (9, 32, 32));
        assert_eq!(after(20, 290), 20, "near the budget it stays");
    }
}
