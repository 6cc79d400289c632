//! The live machine as a host for the policy `qos`: several programs of high and of low priority, naps, and how fast they are, at up to
//! 1,000 looks a second.
//!
//! All threads are looked at every [`FULL_EVERY`], rarely once everything has begun; in between only what costs no system call is read:
//! the progress that the programs report, and the readings of metrics. Where the speed is told by counters, every look is a full one.

mod low;

use crate::affinity;
use crate::apply::{Applier, ApplyError, ApplyOptions};
use crate::host::{StartError, look};
use crate::launch::{self, Child};
use crate::metrics::{MetricSummary, Metrics};
use crate::observe::{AppTarget, Observer, Options};
use crate::pause::{Job, Means, Pauses};
use crate::restore::RestoreReport;
use crate::sys;
use crate::tasks::Target;
use crate::waiter::{Event, Waiter};
use cotenant_model::host::HostError;
use cotenant_model::metric::Metric;
use cotenant_model::{Action, AppId, Host, Order, Outcome, Sample, Time, Topology, Wake};
use low::Low;
pub use low::{Enforcer, Slept};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least and most time between two looks at all threads, each of which may take as long as some fifty others.
pub const FULL_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// The time between two such looks is this part of the time that has passed: programs begin, and rarely change much later.
const FULL_PART: u32 = 20;

/// A program that is started, or that runs.
#[derive(Debug)]
pub enum What {
    /// To be started.
    Command(Command),
    /// Runs already.
    Running(Target),
}

/// A program of high priority.
#[derive(Debug)]
pub struct HighProgram {
    /// Its name.
    pub name: String,
    /// What it is.
    pub what: What,
    /// What tells its speed besides what it reports itself.
    pub metrics: Vec<Metric>,
}

/// A program of low priority.
#[derive(Debug)]
pub struct LowProgram {
    /// Its name.
    pub name: String,
    /// What it is.
    pub what: What,
}

/// How the programs are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosOptions {
    /// Whether anything is to be changed.
    pub act: bool,
    /// How naps are brought about.
    pub enforcer: Enforcer,
    /// Whether counters are read at every look.
    pub counters: bool,
    /// When the programs that were started are asked to end.
    pub after: Option<Duration>,
    /// Whether processes of other users are looked at and paused.
    pub other_users: bool,
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The exit code of the first program of high priority, 128 + signal where a signal ended it; 0 where it was not started by us.
    pub exit_code: u8,
    /// The last signal that asked to stop.
    pub signal: Option<i32>,
    /// What was given back.
    pub restored: RestoreReport,
}

/// A program and what we have of it.
#[derive(Debug)]
struct Program {
    child: Option<Child>,
    exit: Option<u8>,
    /// Whether all of it is gone.
    ended: bool,
}

impl Program {
    fn is_awaited(&self) -> bool {
        self.child.is_some() && self.exit.is_none()
    }
}

/// The machine with the programs: first those of high priority, then the others, in the order in which they were given.
#[derive(Debug)]
pub struct QosHost {
    topology: Topology,
    options: QosOptions,
    observer: Observer,
    metrics: Vec<Arc<Metrics>>,
    applier: Option<Applier>,
    waiter: Waiter,
    start: Instant,
    programs: Vec<Program>,
    /// Those of low priority, from this place of `programs` on.
    low: Vec<Low>,
    /// What made their jobs.
    pauses: Option<Pauses>,
    /// As of the last full look, for those who watch.
    told: Rc<RefCell<Vec<Slept>>>,
    last: Option<Sample>,
    full_due: Time,
    signal: Option<i32>,
    stopped: bool,
    notes: BTreeSet<String>,
}

impl QosHost {
    /// Starts the programs that are to be started, those of low priority last.
    ///
    /// # Errors
    /// [`StartError`]; programs that were started before the one that cannot be are ended.
    pub fn start(
        topology: &Topology,
        high: Vec<HighProgram>,
        low: Vec<LowProgram>,
        options: QosOptions,
    ) -> Result<Self, StartError> {
        Self::start_with(topology, high, low, options, ApplyOptions::new)
    }

    /// The same with a journal and a guardian as `apply` says.
    pub(crate) fn start_with(
        topology: &Topology,
        high: Vec<HighProgram>,
        low: Vec<LowProgram>,
        options: QosOptions,
        apply: impl FnOnce() -> Result<ApplyOptions, ApplyError>,
    ) -> Result<Self, StartError> {
        // Signals are held back before anything starts, so that none is lost in between.
        let waiter = Waiter::new().map_err(StartError::Wait)?;
        let apply = || Applier::new(ApplyOptions { other_users: options.other_users, ..apply()? });
        let applier = if options.act { Some(apply()?) } else { None };
        let observe = Options { other_users: options.other_users, ..Options::default() };
        let start = Instant::now();
        let mut host = Self {
            topology: topology.clone(),
            observer: Observer::new(topology, Vec::new(), observe)?,
            metrics: Vec::new(),
            applier,
            waiter,
            start,
            programs: Vec::new(),
            low: Vec::new(),
            pauses: None,
            told: Rc::default(),
            last: None,
            full_due: Time::default(),
            signal: None,
            stopped: false,
            notes: BTreeSet::new(),
            options,
        };
        if let Err(why) = host.begin(high, low) {
            host.ask_to_end(libc::SIGTERM);
            host.finish();
            return Err(why);
        }
        Ok(host)
    }

    fn begin(&mut self, high: Vec<HighProgram>, mut low: Vec<LowProgram>) -> Result<(), StartError> {
        let mut pauses = self.applier.is_some().then(|| Pauses::new(Means::best()));
        // What naps need comes first: where it is not to be had, nothing was started.
        let mut means = Vec::new();
        for program in &mut low {
            let mut low = Low::new(self.options.enforcer);
            match (&mut self.applier, &mut pauses, &mut program.what) {
                (Some(applier), Some(pauses), What::Command(command)) => low.prepare(applier, pauses, command),
                (Some(applier), _, What::Running(target)) => low.attach(applier, target),
                _ => Ok(()),
            }
            .map_err(StartError::Means)?;
            means.push(low);
        }
        for program in high {
            self.metrics.push(Arc::new(Metrics::start(&program.metrics, self.start)?));
            self.add(program.name, program.what, true)?;
        }
        for (program, mut low) in low.into_iter().zip(means) {
            let pid = self.add(program.name, program.what, false)?;
            if let Some(pid) = pid {
                low.started(self.applier.as_mut(), pid).map_err(StartError::Means)?;
            }
            self.low.push(low);
        }
        self.pauses = pauses;
        Ok(())
    }

    /// Starts a program, or takes it on; the process id of one that was started. `pass_on`: the waiter passes signals on to it.
    fn add(&mut self, name: String, what: What, pass_on: bool) -> Result<Option<u32>, StartError> {
        let (target, child) = match what {
            What::Running(target) => (target, None),
            What::Command(command) => {
                let child = Child::spawn_command(command)?;
                if pass_on {
                    self.waiter.watch_besides(&child);
                } else {
                    self.waiter.watch_job(&child);
                }
                (Target::Trees(vec![child.pid()]), Some(child))
            }
        };
        let pid = child.as_ref().map(Child::pid);
        self.observer.add_app(AppTarget { name, target });
        self.programs.push(Program { child, exit: None, ended: false });
        Ok(pid)
    }

    /// How each program of low priority is let nap now, and how long it slept so far.
    pub fn slept(&self) -> Vec<Slept> {
        let now = self.now();
        self.low.iter().map(|low| low.slept(now)).collect()
    }

    /// The same as of the last full look, while the loop has the host.
    pub fn told(&self) -> Rc<RefCell<Vec<Slept>>> {
        self.told.clone()
    }

    /// What the metrics came to.
    pub fn summaries(&self) -> Vec<MetricSummary> {
        self.metrics.iter().flat_map(|metrics| metrics.summaries()).collect()
    }

    /// The metrics of each program of high priority, for who says while the loop goes on that one fails. To be dropped before the end.
    pub fn metrics(&self) -> Vec<Arc<Metrics>> {
        self.metrics.clone()
    }

    /// What is counted.
    pub fn tier(&self) -> String {
        self.observer.tier().to_string()
    }

    /// Remarks for people.
    pub fn notes(&self) -> Vec<String> {
        let refused = self.applier.iter().flat_map(Applier::notes);
        let of_low = self.low.iter().flat_map(|low| low.notes.iter().cloned());
        self.notes
            .iter()
            .cloned()
            .chain(of_low)
            .chain(refused)
            .chain(self.observer.refused_reports().cloned())
            .collect()
    }

    /// Undoes everything, and waits for the programs that were started.
    pub fn finish(mut self) -> Finish {
        let mut restored = RestoreReport::default();
        let mut applier = self.applier.take();
        for low in self.low.drain(..) {
            restored.notes.extend(low.end(applier.as_mut()));
        }
        while self.programs.iter().any(Program::is_awaited) {
            match self.waiter.wait(None) {
                Ok(Event::JobExited(pid, status, _)) => self.note_end(pid, launch::exit_code(status)),
                Ok(_) => {}
                Err(e) => {
                    restored.notes.push(format!("cannot wait for the programs: {e}"));
                    break;
                }
            }
        }
        if let Some(mut applier) = applier {
            if let Some(pauses) = self.pauses.take() {
                pauses.finish(&mut applier);
            }
            let notes = std::mem::replace(&mut restored, applier.finish()).notes;
            restored.notes.extend(notes);
        }
        let exit_code = self.programs.first().and_then(|program| program.exit).unwrap_or(0);
        Finish { exit_code, signal: self.signal, restored }
    }

    fn note_end(&mut self, pid: u32, code: u8) {
        let ended = self.programs.iter_mut().find(|p| p.child.as_ref().is_some_and(|child| child.pid() == pid));
        if let Some(program) = ended {
            program.exit = Some(code);
            self.full_due = Time::default(); // whether all of it is gone is looked at now
        }
    }

    pub(crate) fn ask_to_end(&mut self, signal: i32) {
        let now = self.now();
        let high = self.programs.len() - self.low.len();
        for program in self.programs[..high.min(self.programs.len())].iter().filter(|program| program.is_awaited()) {
            if let Some(child) = &program.child {
                let _ = sys::kill(child.pid(), signal); // not reaped yet, so the pid is its own
            }
        }
        self.signal_descendants(signal);
        for (program, low) in self.programs[high..].iter().zip(&mut self.low) {
            if program.is_awaited() {
                low.signal(now, signal);
            }
        }
    }

    /// Whom the programs of high priority that were started have started: a shell does not pass signals on.
    fn signal_descendants(&self, signal: i32) {
        let high = self.programs.len() - self.low.len();
        for (i, program) in self.programs[..high].iter().enumerate().filter(|(_, program)| program.is_awaited()) {
            let root = program.child.as_ref().map(Child::pid);
            let others = self.observer.processes_of(i).filter(|(pid, _)| Some(*pid) != root);
            let others: Vec<_> = others.map(|(pid, process)| (pid, process.start_ticks())).collect();
            Job::of_processes().signal(signal, &others);
        }
    }

    fn now(&self) -> Time {
        Time::default() + self.start.elapsed()
    }

    /// On the clock of the programs.
    fn monotonic(&self, time: Time) -> Duration {
        let ahead = time - self.now();
        sys::monotonic() + ahead
    }

    fn full(&mut self, at: Time) -> Result<Sample, HostError> {
        self.full_due = at + ((at - Time::default()) / FULL_PART).clamp(FULL_EVERY[0], FULL_EVERY[1]);
        let sample = look(&mut self.observer, &mut self.applier, at, &|own| own)?;
        let high = self.programs.len() - self.low.len();
        for (i, program) in self.programs.iter_mut().enumerate() {
            program.ended = !program.is_awaited() && self.observer.processes_of(i).next().is_none();
            if let (Some(low), Some(applier)) = (i.checked_sub(high).map(|i| &mut self.low[i]), &mut self.applier) {
                low.look(applier, at, self.observer.processes_of(i), &sample, AppId(i as u32));
                low.tend(at);
            }
        }
        self.told.replace(self.slept());
        if let Some(applier) = &mut self.applier {
            applier.tend(at);
            for (tid, allowed) in applier.take_changed() {
                self.observer.set_allowed(tid, allowed);
            }
        }
        Ok(sample)
    }

    fn is_over(&self) -> bool {
        let high = self.programs.len() - self.low.len();
        let started = self.programs.iter().any(|program| program.child.is_some());
        let awaited = self.programs.iter().any(Program::is_awaited);
        let needed = self.programs[..high].iter().any(|program| !program.ended);
        let asked = self.signal.is_some() || self.stopped;
        // What was started is waited for, however it is asked to end.
        !awaited && (asked || !needed) || asked && !started
    }
}

impl Host for QosHost {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let at = self.now();
        let mut sample = match self.last.take().filter(|_| !self.options.counters && at < self.full_due) {
            Some(last) => Sample { at, ..last },
            None => self.full(at)?,
        };
        sample.apps = Vec::with_capacity(self.programs.len());
        for (i, _) in self.programs.iter().enumerate().filter(|(_, program)| !program.ended) {
            let mut app = self.observer.app(i);
            if let Some(metrics) = self.metrics.get(i) {
                app.metrics = metrics.readings();
                app.latency_ns = metrics.latency_ns().or(app.latency_ns);
            }
            sample.apps.push(app);
        }
        self.last = Some(sample.clone());
        Ok(sample)
    }

    fn watch(&mut self, until: Time) {
        for metrics in &self.metrics {
            metrics.watch(until);
        }
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let high = self.programs.len() - self.low.len();
        let mut outcomes = Vec::with_capacity(orders.len());
        for order in orders {
            if let (Action::Place { .. } | Action::Release { .. }, Some(applier)) = (&order.action, &mut self.applier) {
                let (now, observer) = (Time::default() + self.start.elapsed(), &self.observer);
                let placed = applier.apply(now, std::slice::from_ref(order), &|task| observer.info(task).cloned());
                outcomes.extend(placed);
                continue;
            }
            let low = order.action.app().and_then(|app| app.index().checked_sub(high));
            let now = self.now();
            let until = match order.action {
                Action::Nap { until, .. } => self.monotonic(until),
                _ => Duration::ZERO,
            };
            let (Some(low), Some(applier)) = (low.and_then(|i| self.low.get_mut(i)), &mut self.applier) else {
                outcomes.push(Outcome::NotThisMachine);
                continue;
            };
            outcomes.push(match order.action {
                Action::Nap { until: end, .. } => low.nap(applier, now, end, until),
                Action::Limit { cpu_permille, .. } => low.limit(cpu_permille),
                Action::LimitCaches { permille, .. } => low.limit_caches(permille),
                Action::Background { on, .. } => low.background(on),
                _ => Outcome::NotThisMachine,
            });
        }
        outcomes
    }

    fn wait(&mut self, until: Time) -> Wake {
        loop {
            if self.is_over() {
                return Wake::Exit;
            }
            let now = self.now();
            for low in &mut self.low {
                low.wake(now);
            }
            if let Some(after) = self.options.after.filter(|after| !self.stopped && now >= Time::default() + *after) {
                self.stopped = true;
                self.notes.insert(format!("the programs were asked to end after {} s", after.as_secs_f64()));
                self.ask_to_end(libc::SIGTERM);
            }
            if now >= until {
                return Wake::Tick;
            }
            let next = self.low.iter().filter_map(Low::wakes_at).fold(until, Time::min);
            let next = self.low.iter_mut().filter_map(|low| low.stand_by(now)).fold(next, Time::min);
            match self.waiter.wait(Some(self.start + Duration::from_nanos(next.0))) {
                Ok(Event::JobExited(pid, status, _)) => {
                    self.note_end(pid, launch::exit_code(status));
                    return Wake::Tick;
                }
                Ok(Event::Signal(signal)) => {
                    self.signal = Some(signal);
                    // Those of low priority lead sessions of their own: the terminal's signals do not reach them. Who ran before is let run.
                    let high = self.programs.len() - self.low.len();
                    let started =
                        self.programs[high..].iter().zip(&mut self.low).filter(|(program, _)| program.is_awaited());
                    started.for_each(|(_, low)| low.signal(now, signal));
                    // No terminal sends it, so nobody but those that the waiter knows has got it.
                    if signal == libc::SIGTERM {
                        self.signal_descendants(signal);
                    }
                }
                Ok(Event::Tick | Event::Other(_) | Event::ChildExited(_)) => {}
                Err(e) => {
                    self.notes.insert(format!("waiting failed: {e}; the programs go on unmanaged"));
                    return Wake::Exit;
                }
            }
        }
    }
}

/// Who a process is.
fn identity(pid: u32) -> Option<(u32, u64)> {
    affinity::process_stat(pid).map(|stat| (pid, stat.start_ticks))
}
