//! The live machine as a [`Host`]: all applications are observed, and acted on by all actuators alike.

mod app;
mod jobs;
mod options;
pub mod queue;

use crate::FsRoot;
use crate::act::Actuators;
use crate::act::level::Protected;
use crate::act::pause::Job;
use crate::act::throttle::{Enforcer, Slept, Throttle};
use crate::notes::Notes;
use crate::sense::memory::{self, interleaving};
use crate::sense::metrics::{MetricSummary, Metrics};
use crate::sense::observer::{AppTarget, NewTask, ObserveError, Observer, Options};
use crate::sense::processes::{Process, Target};
use crate::sense::progress::{self, Reported};
use crate::sense::tier::TierReport;
use crate::sys::launch::{self, Child};
use crate::sys::thread::process_stat;
use crate::sys::waiter::{Event, Waiter, asks_to_stop};
use crate::sys::{self, Usage};
use crate::undo::{JournalOptions, RestoreReport};
use app::App;
use cotenant_model::host::HostError;
use cotenant_model::profile::stand_in;
use cotenant_model::{AppId, CpuSet, Host, Order, Outcome, Sample, Time, Topology, Wake};
use queue::{Gaps, Line, Queue};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, PipeReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use app::{AppSpec, What};
pub use options::{Finish, HostOptions, StartError, Until};

/// Least and most time between two full samples of threads, each of which may cost as much as some fifty others.
const FULL_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// The interval is this fraction of the elapsed time: programs change rarely after their start.
const FULL_PART: u32 = 20;

/// The end of a command.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its application.
    pub app: AppId,
    /// Its exit code, or 128 + signal.
    pub code: u8,
    /// When it was seen.
    pub at: Time,
    /// What it and its descendants used.
    pub usage: Usage,
}

/// This machine with its managed applications.
#[derive(Debug)]
pub struct LinuxHost {
    topology: Topology,
    options: HostOptions,
    observer: Observer,
    act: Option<Actuators>,
    waiter: Waiter,
    start: Instant,
    apps: BTreeMap<AppId, App>,
    /// The first added application.
    first: Option<AppId>,
    /// Its command's exit.
    exit_code: u8,
    /// Commands that have ended since the last [`LinuxHost::take_ended`].
    ended: Vec<Ended>,
    line: Option<Line>,
    /// Sleep of throttled applications at the last full sample of threads, for live views.
    told: Rc<RefCell<Vec<Slept>>>,
    full_due: Time,
    signal: Option<i32>,
    /// Time at which the driver is called.
    call_at: Option<Time>,
    /// Whether the commands were requested to end because their time is over.
    stopped: bool,
    /// The programs to which new ones yield.
    to_keep: Vec<Protected>,
    notes: Notes,
}

/// An application to add, with everything prepared that is possible before its start.
struct Ready {
    spec: AppSpec,
    throttle: Option<Throttle>,
    job: Option<usize>,
}

/// The obstacle to finding memory accesses, if that is wanted.
fn about(memory: memory::Options) -> Option<String> {
    if memory.accesses { interleaving::note(&FsRoot::live()) } else { None }
}

impl LinuxHost {
    /// Manages these applications; commands are started in this order after all preparations.
    ///
    /// # Errors
    /// [`StartError`]; commands started before the failing one are ended.
    pub fn new(topology: &Topology, apps: Vec<AppSpec>, options: HostOptions) -> Result<Self, StartError> {
        // Signals are blocked before a command starts, so that none is lost in between; commands get them unblocked.
        let waiter = Waiter::new().map_err(StartError::Wait)?;
        let act = if options.act {
            let journal = options.journal.clone().map_or_else(JournalOptions::new, Ok)?;
            let journal = JournalOptions { other_users: options.other_users, ..journal };
            Some(Actuators::open(journal, options.method.clone(), options.move_pages)?)
        } else {
            None
        };
        let mut notes = Notes::default();
        notes.extend(about(options.memory));
        let mut observe = Options {
            memory: options.memory,
            proxies: options.proxies,
            waits: options.waits,
            other_users: options.other_users,
            ..Options::default()
        };
        if let Some(signals) = &options.signals {
            observe.signals.clone_from(signals);
        }
        let mut host = Self {
            topology: topology.clone(),
            observer: Observer::new(topology, Vec::new(), observe)?,
            options,
            act,
            waiter,
            start: Instant::now(),
            apps: BTreeMap::new(),
            first: None,
            exit_code: 0,
            ended: Vec::new(),
            line: None,
            told: Rc::default(),
            full_due: Time::default(),
            signal: None,
            call_at: None,
            stopped: false,
            to_keep: Vec::new(),
            notes,
        };
        if let Err(why) = host.add_all(apps) {
            host.ask_to_end(libc::SIGTERM);
            host.finish();
            return Err(why);
        }
        Ok(host)
    }

    /// Also starts the jobs of a queue, until none is left. On a stop they get SIGTERM, and SIGKILL after `grace`.
    #[must_use]
    pub fn with_queue(mut self, queue: Box<dyn Queue>, grace: Duration) -> Self {
        self.line = Some(Line::new(queue, grace));
        self
    }

    fn add_all(&mut self, apps: Vec<AppSpec>) -> Result<(), StartError> {
        self.to_keep = self.act.as_ref().map_or_else(Vec::new, |act| {
            let kept = apps.iter().filter(|app| app.protected);
            kept.flat_map(|app| act.to_keep(&app.name, &app.what.pids())).collect()
        });
        let ready = apps.into_iter().map(|app| self.make_ready(app, None)).collect::<Result<Vec<_>, _>>()?;
        ready.into_iter().try_for_each(|ready| self.begin(ready).map(drop))
    }

    /// Adds an application.
    ///
    /// # Errors
    /// [`StartError`]; then its command does not run, or is requested to end if it cannot be throttled.
    pub fn add(&mut self, app: AppSpec) -> Result<AppId, StartError> {
        let ready = self.make_ready(app, None)?;
        self.begin(ready)
    }

    fn make_ready(&mut self, mut spec: AppSpec, job: Option<usize>) -> Result<Ready, StartError> {
        let throttle = match (spec.throttled, &mut self.act, &mut spec.what) {
            (Some(enforcer), Some(act), What::Command(command)) => Some(act.prepare(enforcer, command, &self.to_keep)),
            (Some(enforcer), Some(act), What::Running(target)) => Some(act.attach(enforcer, target)),
            _ => None,
        };
        // An unpausable job still runs.
        let throttle = match throttle {
            Some(Err(why)) if job.is_some() => {
                self.notes.add(why);
                None
            }
            other => other.transpose().map_err(StartError::Means)?,
        };
        if let (Some(_), What::Command(command)) = (job, &mut spec.what) {
            let (leads, cpus) = (throttle.is_none(), self.options.cpus.clone());
            // SAFETY: between fork and exec it makes async-signal-safe system calls, with memory that was allocated
            // before.
            unsafe {
                command.pre_exec(move || {
                    let _ = leads.then(sys::setsid); // it may lead a session already
                    cpus.as_ref().map_or(Ok(()), |cpus| sys::setaffinity(0, cpus))
                });
            }
        }
        if let (true, What::Command(command)) = (self.options.proxies, &mut spec.what) {
            progress::counted_by_openmp(command);
        }
        Ok(Ready { spec, throttle, job })
    }

    fn begin(&mut self, Ready { spec, throttle, job }: Ready) -> Result<AppId, StartError> {
        let AppSpec { name, what, metrics, throttled, protected } = spec;
        let name = cotenant_model::text::name(name.as_bytes());
        // The command last, after everything that can fail.
        let metrics = if metrics.is_empty() { None } else { Some(Arc::new(Metrics::start(&metrics, self.start)?)) };
        let (target, child) = match what {
            What::Running(target) => {
                if let (Target::Pids(pids) | Target::Trees(pids), Some(act)) = (&target, &mut self.act) {
                    for pid in pids {
                        act.look_for_rival(*pid);
                    }
                }
                (target, None)
            }
            What::Command(command) => match Child::spawn_command(command) {
                Ok(child) => (Target::Trees(vec![child.pid()]), Some(child)),
                Err(why) => {
                    if let (Some(throttle), Some(act)) = (throttle, &mut self.act) {
                        act.give_up(throttle);
                    }
                    return Err(why.into());
                }
            },
        };
        let pid = child.as_ref().map(Child::pid);
        let root = pid.map(|pid| (pid, process_stat(pid).map_or(0, |stat| stat.start_ticks)));
        if let (Some(key), Some(root), Some(line)) = (job, root, &mut self.line) {
            line.queue.started(key, root); // first, because after a crash it must be known
        }
        let id = self.observer.add_app(AppTarget { name, target });
        self.first.get_or_insert(id);
        if let (true, Some(act)) = (protected, &mut self.act) {
            act.protect(id);
        }
        if let Some(child) = &child {
            // For others the host delivers signals, or there are none.
            let pass_on = job.is_none() && throttled.is_none() && self.options.until != Until::Asked;
            self.waiter.watch(child, pass_on);
        }
        let job = job.map(|key| (key, false));
        let app = App { child, ended: false, gone: false, throttled: throttled.is_some(), metrics, job };
        self.apps.insert(id, app);
        if let (Some(throttle), Some(act)) = (throttle, &mut self.act)
            && let Err(why) = act.add(id, throttle, root)
        {
            if job.is_none() {
                let _ = pid.map(|pid| sys::kill(pid, libc::SIGTERM)); // not reaped yet, so that its pid is valid
                return Err(StartError::Means(why.to_string()));
            }
            self.notes.add(why.to_string());
        }
        Ok(id)
    }

    /// Throttles another application from now on; `target` is its kind.
    ///
    /// # Errors
    /// Why it cannot be throttled: it runs unchanged.
    pub fn throttle(&mut self, app: AppId, enforcer: Enforcer, target: &Target) -> Result<(), String> {
        let (Some(act), Some(of)) = (&mut self.act, self.apps.get_mut(&app)) else {
            return Err("nothing is changed here".to_owned());
        };
        let throttle = act.attach(enforcer, target)?;
        act.add(app, throttle, None).map_err(|why| why.to_string())?;
        of.throttled = true;
        Ok(())
    }

    /// Observes memory, proxies and waits by these options from the next sample on.
    pub fn look_at(&mut self, new: &HostOptions) {
        let HostOptions { memory, proxies, waits, .. } = *new;
        if memory != self.options.memory {
            self.notes.extend(about(memory));
        }
        self.options = HostOptions { memory, proxies, waits, ..std::mem::take(&mut self.options) };
        self.observer.look_at(memory, proxies, waits);
    }

    /// Stops managing an application: everything is restored, and it runs on.
    pub fn remove(&mut self, app: AppId) {
        let now = self.now();
        if let Some(act) = &mut self.act {
            act.remove(now, app, &self.observer);
        }
        self.observer.remove_app(app);
        self.apps.remove(&app);
        self.ended.retain(|ended| ended.app != app);
    }

    /// The driver is called then, once.
    pub fn call_at(&mut self, at: Time) {
        self.call_at = Some(at);
    }

    /// And whenever this pipe is written.
    ///
    /// # Errors
    /// If the kernel has no descriptors left.
    pub fn call_on(&mut self, calls: PipeReader) -> io::Result<()> {
        self.waiter.listen(calls)
    }

    /// Takes the last signal: the loop may continue.
    pub fn take_signal(&mut self) -> Option<i32> {
        self.signal.take()
    }

    /// Replaces an application's processes.
    pub fn retarget(&mut self, app: AppId, target: Target) {
        self.observer.retarget(app, target);
    }

    /// The followed processes, by application.
    pub fn processes(&self) -> BTreeMap<AppId, Vec<u32>> {
        let pids = |processes: Vec<(u32, &Process)>| processes.into_iter().map(|(pid, _)| pid).collect();
        self.observer.by_app().into_iter().map(|(app, processes)| (app, pids(processes))).collect()
    }

    /// Ended commands that were not taken.
    pub fn ended(&self) -> &[Ended] {
        &self.ended
    }

    /// Commands ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Countable signals here, and the counting time of each counter.
    pub fn tier(&self) -> TierReport {
        self.observer.tier()
    }

    /// Remarks for people: refusals and failures with reasons.
    pub fn notes(&self) -> Vec<String> {
        let memory = self.observer.memory();
        let found = memory.collector().map(|name| {
            let (spent, looks) = memory.spent();
            let share = spent.as_secs_f64() / self.start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
            format!("accesses to memory were collected by {name}: {looks} looks, {:.2} % of a CPU", share * 100.0)
        });
        let seen = self
            .observer
            .refused_reports()
            .chain(memory.notes())
            .chain(self.observer.proxy_notes())
            .cloned()
            .chain(found)
            .chain(self.observer.wait_notes())
            .chain(self.observer.policy_note().cloned());
        self.notes.iter().cloned().chain(self.act.iter().flat_map(Actuators::notes)).chain(seen).collect()
    }

    /// Those among [`Self::notes`] about Cotenant itself, such as an unwritable journal: programs cannot multiply them.
    pub fn own_notes(&self) -> Vec<String> {
        self.act.iter().flat_map(Actuators::own_notes).cloned().collect()
    }

    /// Number of current changes by kind; none for a host that only observes.
    pub fn outstanding(&self) -> BTreeMap<&'static str, usize> {
        self.act.iter().flat_map(Actuators::outstanding).collect()
    }

    /// Reports of the first application's programs so far; `None` without any.
    pub fn reported(&mut self) -> Option<Reported> {
        self.first.and_then(|app| self.observer.reported(app))
    }

    /// Whether a signal has requested a stop since the start. The commands have got it too.
    pub fn is_asked_to_stop(&self) -> bool {
        self.signal.is_some()
    }

    /// The metrics of each application with any, for messages about failures while the loop runs. Must be dropped
    /// before the end.
    pub fn metrics(&self) -> Vec<Arc<Metrics>> {
        self.apps.values().filter_map(|app| app.metrics.clone()).collect()
    }

    /// Why a metric of an application keeps failing, in one line; `None` without such.
    pub fn failing_metric(&self, app: AppId) -> Option<String> {
        self.apps.get(&app)?.metrics.as_ref()?.failing()
    }

    /// Summaries of the metrics.
    pub fn summaries(&self) -> Vec<MetricSummary> {
        self.apps.values().filter_map(|app| app.metrics.as_ref()).flat_map(|metrics| metrics.summaries()).collect()
    }

    /// The current naps of each throttled application, and its sleep so far.
    pub fn slept(&self) -> Vec<Slept> {
        let now = self.now();
        self.act.as_ref().map(|act| act.slept(now)).unwrap_or_default()
    }

    /// The same for one application; `None` if it is not throttled.
    pub fn slept_of(&self, app: AppId) -> Option<Slept> {
        self.act.as_ref()?.slept_of(self.now(), app)
    }

    /// The same at the last full sample, while the loop has the host.
    pub fn told(&self) -> Rc<RefCell<Vec<Slept>>> {
        self.told.clone()
    }

    /// Duration of stopping and resuming the jobs of a queue.
    pub fn gaps(&self) -> Gaps {
        self.line.as_ref().map(|line| line.gaps).unwrap_or_default()
    }

    /// Undoes everything, and waits for running commands except for jobs of a queue, which continue.
    pub fn finish(mut self) -> Finish {
        let now = self.now();
        let mut restored = RestoreReport::default();
        let mut late = Vec::new();
        let mut act = self.act.take();
        if let Some(act) = act.take_if(|act| !act.throttles()) {
            restored = act.finish();
        }
        if let Some(act) = &mut act {
            late = act.end_throttles(now);
        }
        // Their groups are removed when their processes have been reaped.
        while self.line.is_none() && self.apps.values().any(App::is_awaited) {
            match self.waiter.wait(None) {
                Ok(Event::Exited(pid, status, usage)) => self.child_ended(pid, status, usage),
                Ok(_) => {}
                Err(e) => {
                    late.push(format!("cannot wait for the commands: {e}"));
                    break;
                }
            }
        }
        if let Some(act) = act {
            restored = act.finish();
        }
        if self.line.is_none() {
            restored.notes.splice(0..0, late);
        }
        Finish { exit_code: self.exit_code, signal: self.signal, restored }
    }

    /// The time of its samples.
    pub fn now(&self) -> Time {
        Time::default() + self.start.elapsed()
    }

    /// A command has ended.
    fn child_ended(&mut self, pid: u32, status: ExitStatus, usage: Usage) {
        let at = self.now();
        let Some((&id, app)) = self.apps.iter_mut().find(|(_, app)| app.is_awaited() && app.pid() == Some(pid)) else {
            return;
        };
        if app.job.is_some() {
            return self.job_ended(id, status, usage);
        }
        let code = launch::exit_code(status);
        app.ended = true;
        self.ended.push(Ended { app: id, code, at, usage });
        if self.first == Some(id) {
            // A command ended at its time limit has not failed.
            let time_is_up = self.stopped && self.signal.is_none() && status.signal() == Some(libc::SIGTERM);
            self.exit_code = if time_is_up { 0 } else { code };
        }
        self.full_due = Time::default(); // checked now whether all of it has ended
    }

    /// Requests the commands that have not ended to end, with all their processes. A stopped one handles it after its
    /// resume.
    pub(crate) fn ask_to_end(&mut self, signal: i32) {
        for signal in [signal, libc::SIGCONT] {
            for app in self.apps.values().filter(|app| !app.throttled && app.is_awaited()) {
                let _ = app.pid().map(|pid| sys::kill(pid, signal)); // not reaped yet, so that its pid is valid
            }
            self.signal_descendants(signal);
            self.signal_throttled(signal);
        }
    }

    /// Finds all processes started since the last look, so that none is missed by a signal.
    fn look_for_all(&mut self) {
        self.observer.list_soon();
        let _ = self.look(self.now()); // a failure repeats in the next round
    }

    /// Signals the commands' children in our own session, because a shell does not forward signals.
    fn signal_descendants(&self, signal: i32) {
        for (&id, app) in self.apps.iter().filter(|(_, app)| !app.throttled && app.child.is_some()) {
            self.signal_children(id, app, signal);
        }
    }

    fn signal_children(&self, id: AppId, app: &App, signal: i32) {
        let mut others = self.observer.members(id);
        others.retain(|(pid, _)| app.ended || Some(*pid) != app.pid());
        let _ = Job::of_processes().signal(signal, &others); // no group is read
    }

    /// A throttled program leads its own session, out of reach of the terminal's signals. Without changes (observe,
    /// advise) it has none, and a shell may precede the program.
    fn signal_throttled(&mut self, signal: i32) {
        let now = self.now();
        for (&id, app) in self.apps.iter().filter(|(_, app)| app.throttled && app.child.is_some()) {
            if self.act.as_mut().is_some_and(|act| act.signal(now, id, signal, &self.observer)) {
                continue;
            }
            if app.is_awaited() {
                let _ = app.pid().map(|pid| sys::kill(pid, signal)); // not reaped yet, so that its pid is valid
            }
            self.signal_children(id, app, signal);
        }
    }

    /// The user's restriction of a task's own mask.
    fn within(cpus: Option<&CpuSet>, own: &CpuSet) -> CpuSet {
        cpus.map_or_else(|| own.clone(), |cpus| own.and(cpus))
    }

    /// A sample of all threads, with the user's restriction of each one's own mask.
    fn look(&mut self, at: Time) -> Result<Sample, HostError> {
        self.full_due = at + ((at - Time::default()) / FULL_PART).clamp(FULL_EVERY[0], FULL_EVERY[1]);
        let Self { observer, act, options, .. } = self;
        let cpus = options.cpus.as_ref();
        if let Some(act) = act {
            act.tend(at);
            for (tid, own) in act.placement.take_changed() {
                observer.set_allowed(tid, Self::within(cpus, &own));
            }
        }
        observer.look_at_masks(&|tid, start, mask| {
            let ours = act.as_ref().is_some_and(|act| act.placement.knows(tid, start));
            (!ours).then(|| Self::within(cpus, &mask))
        });
        let mut allowed = |task: &NewTask| {
            let own = act.as_mut().map_or_else(|| task.mask.clone(), |act| act.original_mask(task));
            Self::within(cpus, &own)
        };
        let mut sample = observer.sample(at, &mut allowed).map_err(|e| HostError {
            what: "sampling".to_owned(),
            why: e.to_string(),
            remedy: "what was changed has been given back".to_owned(),
        })?;
        for app in stand_in(&mut sample, &options.profiles) {
            self.notes.add(format!("{app}: what cannot be counted here is taken from its profile (per_cpu_s)"));
        }
        let processes = observer.by_app();
        for (id, app) in &mut self.apps {
            app.gone = !app.is_awaited() && !processes.contains_key(id);
        }
        if let Some(act) = act {
            act.look(at, &processes, &sample, observer);
            self.told.replace(act.slept(at));
        }
        Ok(sample)
    }

    /// With external measurements of the existing applications.
    fn measured(&self, mut sample: Sample) -> Sample {
        sample.apps.retain(|app| self.apps.get(&app.id).is_some_and(|known| !known.gone));
        for app in &mut sample.apps {
            let paused = self.act.as_ref().and_then(|act| act.paused(sample.at, app.id));
            app.paused_ns = paused.and_then(|paused| u64::try_from(paused.as_nanos()).ok());
            if let Some(metrics) = self.apps.get(&app.id).and_then(|known| known.metrics.as_ref()) {
                app.metrics = metrics.readings();
                app.clipped = metrics.clipped();
                app.latency_ns = metrics.latency_ns().or(app.latency_ns.take());
            }
        }
        sample
    }

    fn is_over(&self) -> bool {
        let mut apps = self.apps.values();
        if let Some(line) = &self.line {
            return self.apps.is_empty() && line.queue.is_done();
        }
        let asked = self.signal.is_some() || self.stopped;
        let started = self.apps.values().any(|app| app.child.is_some());
        match self.options.until {
            Until::Asked => false,
            Until::FirstEnds => match apps.find(|app| app.child.is_some()) {
                Some(command) => command.ended,
                None => self.observer.is_empty(),
            },
            Until::AllEnd => {
                // Of programs that run already none is awaited once all that gave way to them have been started here
                // and have ended.
                let mut gave_way = self.apps.values().filter(|app| app.throttled).peekable();
                let over = gave_way.peek().is_some() && gave_way.all(|app| app.child.is_some() && app.gone);
                let needed = apps.any(|app| !app.throttled && !app.gone && (!over || app.child.is_some()));
                // Started commands are awaited after any request; after their time limit also their children, because a
                // shell ends before its server does.
                let stopped = self.stopped && self.signal.is_none();
                let awaited = |app: &App| app.is_awaited() || stopped && app.child.is_some() && !app.gone;
                let awaited = self.apps.values().any(awaited);
                !awaited && (asked || !needed) || asked && !started
            }
        }
    }

    /// Handles a signal; returns the end of the wait, if it ends.
    fn signalled(&mut self, signal: i32) -> Option<Wake> {
        if self.line.is_some() {
            return asks_to_stop(signal).then(|| {
                self.signal = Some(signal);
                self.wind_up()
            });
        }
        self.signal = Some(signal);
        if asks_to_stop(signal) && self.options.until == Until::AllEnd {
            self.look_for_all();
        }
        self.signal_throttled(signal);
        let started = self.apps.values().any(|app| app.child.is_some());
        match self.options.until {
            Until::Asked => Some(Wake::Exit),
            // The command has got it too, and decides itself whether to end.
            Until::FirstEnds => (!started).then_some(Wake::Exit),
            Until::AllEnd => {
                // It is not from a terminal, so only processes known to the waiter have got it.
                if signal == libc::SIGTERM {
                    self.signal_descendants(signal);
                }
                None
            }
        }
    }
}

impl LinuxHost {
    /// Why the started commands are requested to end now.
    fn time_is_up(&self, now: Time) -> Option<String> {
        if self.stopped {
            return None;
        }
        if let Some(after) = self.options.after.filter(|after| now >= Time::default() + *after) {
            return Some(format!("the programs were asked to end after {} s", after.as_secs_f64()));
        }
        let refused = self.options.refused?;
        // A completely ended command needs no wait.
        let long = |app: &App| if app.child.is_some() && app.gone { Duration::ZERO } else { refused };
        let why = self.apps.values().find_map(|app| app.metrics.as_ref()?.refused_for(long(app)))?;
        Some(format!("the programs were asked to end: {why}"))
    }
}

impl Host for LinuxHost {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        self.stop_for_decision();
        let sample = self.look(self.now())?;
        Ok(self.measured(sample))
    }

    fn glance(&mut self, last: &Sample, counts: bool) -> Option<Sample> {
        let at = self.now();
        let apps = (at < self.full_due).then(|| self.observer.apps())?;
        let mut sample = Sample { at, apps, ..last.clone() };
        if counts && !self.observer.count(&mut sample.tasks) {
            return None;
        }
        self.stop_for_decision();
        Some(self.measured(sample))
    }

    fn watch(&mut self, until: Time) {
        self.apps.values().filter_map(|app| app.metrics.as_ref()).for_each(|metrics| metrics.watch(until));
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let now = self.now();
        let Some(act) = &mut self.act else { return vec![Outcome::NotThisMachine; orders.len()] };
        let (apps, observer) = (&self.apps, &self.observer);
        act.expect(orders, observer);
        let monotonic = |time: Time| sys::monotonic() + (time - now);
        let outcomes = orders.iter().map(|order| match order.action.app() {
            Some(app) if !apps.contains_key(&app) => Outcome::Gone,
            _ => act.apply(now, order, observer, monotonic),
        });
        let outcomes = outcomes.collect();
        act.settle(now);
        for (tid, own) in act.placement.take_changed() {
            self.observer.set_allowed(tid, Self::within(self.options.cpus.as_ref(), &own));
        }
        for (app, runs) in act.take_turned() {
            if runs {
                self.observer.resumed(app);
            }
            let job = self.apps.get(&app).and_then(|app| app.job);
            if let (Some((key, _)), Some(line)) = (job, &mut self.line) {
                line.queue.turned(key, runs);
            }
        }
        if let Some(line) = &mut self.line {
            line.resumed();
        }
        outcomes
    }

    fn wait(&mut self, until: Time) -> Wake {
        if self.line.as_ref().is_some_and(Line::is_stopped) {
            self.apply(&[]); // nothing was applied: all run that were not chosen to wait before
        }
        let mut changed = false;
        loop {
            changed |= self.start_jobs();
            if self.is_over() {
                return Wake::Exit;
            }
            let now = self.now();
            let due = self.act.as_mut().and_then(|act| act.due(now));
            if let Some(why) = self.time_is_up(now) {
                self.stopped = true;
                self.look_for_all();
                self.notes.add(why);
                self.ask_to_end(libc::SIGTERM);
            }
            if self.waiter.take_called() | self.call_at.take_if(|at| now >= *at).is_some() {
                return Wake::Called;
            }
            // Simultaneous events are part of the same change.
            let next =
                if changed { Time::default() } else { due.into_iter().chain(self.call_at).fold(until, Time::min) };
            match self.waiter.wait(Some(self.start + Duration::from_nanos(next.0))) {
                Ok(Event::Tick) if changed => return Wake::TasksChanged,
                Ok(Event::Tick) if self.now() >= until => {
                    if let Some(line) = &mut self.line {
                        line.due = true;
                    }
                    return Wake::Tick;
                }
                Ok(Event::Exited(pid, status, usage)) => {
                    self.child_ended(pid, status, usage);
                    match self.options.until {
                        // The next look shows whether it is over.
                        Until::AllEnd if self.line.is_none() => return Wake::Tick,
                        _ => changed = true,
                    }
                }
                Ok(Event::Signal(signal)) => {
                    if let Some(wake) = self.signalled(signal) {
                        return wake;
                    }
                }
                Ok(Event::Tick) => {}
                Err(e) => {
                    self.notes.add(format!("waiting failed: {e}; the programs go on unmanaged"));
                    return Wake::Exit;
                }
            }
        }
    }
}

/// Countable signals on this machine, tried on this process.
///
/// # Errors
/// [`ObserveError`] if `/proc` cannot be read.
pub fn probe_tier(topology: &Topology) -> Result<TierReport, ObserveError> {
    let target = Target::Pids(vec![std::process::id()]);
    let mut observer = Observer::new(topology, vec![AppTarget { name: String::new(), target }], Options::default())?;
    observer.sample(Time::default(), &mut |task| task.mask.clone())?;
    Ok(observer.tier())
}
