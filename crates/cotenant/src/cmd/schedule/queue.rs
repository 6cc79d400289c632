//! The order of starts, and the state of each job.

use super::jobs::{JobSpec, file_name};
use super::ledger::{Earlier, Ledger};
use cotenant_linux::host::queue::{Program, Queue};
use cotenant_linux::sys::Usage;
use cotenant_linux::sys::launch;
use cotenant_linux::undo;
use cotenant_model::Signal;
use cotenant_model::text::{LINE, within};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Characters of a job's name in tables.
pub(super) const NAME: usize = 30;

/// Limits of concurrently started jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Programs.
    pub programs: Option<usize>,
    /// Limit of their threads: the stated or the observed number of each, whichever is larger; a job with more runs
    /// alone.
    pub threads: Option<usize>,
    /// Bytes that started jobs need together; a paused job keeps its memory.
    pub memory: Option<u64>,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum State {
    #[default]
    Queued,
    Started {
        since: Instant,
        runs: bool,
    },
    Ended {
        code: Option<u8>,
    },
    /// It could not be started.
    NotStarted(String),
    /// It was ended by a request to stop.
    Interrupted,
}

/// A job and its state.
#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    pub spec: JobSpec,
    pub state: State,
    pub attempts: u32,
    /// From the first start to the last end.
    pub first: Option<Instant>,
    pub seconds: f64,
    pub usage: Usage,
    /// Transactions by signal, where known, and the CPU seconds in which they happened.
    pub events: BTreeMap<Signal, f64>,
    /// LLC misses per microsecond in the last quantum in which it ran.
    pub rate: Option<f64>,
    /// CPUs used or awaited by its threads at the last look; 0 before.
    pub width: usize,
}

impl Job {
    /// Whether it will not be started any more.
    pub fn is_over(&self) -> bool {
        !matches!(self.state, State::Queued | State::Started { .. })
    }

    /// It ended with an error, its end was not observed, or it could not be started.
    pub fn has_failed(&self) -> bool {
        match self.state {
            State::Ended { code } => code != Some(0),
            State::NotStarted(_) => true,
            State::Queued | State::Started { .. } | State::Interrupted => false,
        }
    }

    /// It still has work after a request to stop.
    pub fn is_left(&self) -> bool {
        matches!(self.state, State::Queued | State::Started { .. } | State::Interrupted)
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct Jobs {
    pub all: Vec<Job>,
    waiting: VecDeque<usize>,
    limits: Limits,
    logs: PathBuf,
    ledger: Ledger,
    stopping: bool,
    pub notes: BTreeSet<String>,
    /// Jobs by number of the application: in the order of their starts.
    pub apps: Vec<usize>,
}

impl Jobs {
    pub fn new(specs: Vec<JobSpec>, limits: Limits, logs: &Path, ledger: Ledger, earlier: &Earlier) -> Self {
        let mut all: Vec<Job> = specs.into_iter().map(|spec| Job { spec, ..Job::default() }).collect();
        for &(i, code) in &earlier.ended {
            all[i].state = State::Ended { code };
        }
        let waiting = (0..all.len()).filter(|&i| all[i].state == State::Queued).collect();
        let (logs, notes, apps) = (logs.to_owned(), BTreeSet::new(), Vec::new());
        Self { all, waiting, limits, logs, ledger, stopping: false, notes, apps }
    }

    fn started_jobs(&self) -> impl Iterator<Item = &Job> {
        self.all.iter().filter(|job| matches!(job.state, State::Started { .. }))
    }

    /// Whether a job may start together with the present ones. A single one always may, since impossible needs were
    /// refused before.
    fn fits(&self, spec: &JobSpec) -> bool {
        let (mut programs, mut threads, mut memory) = (0, 0, 0_u64);
        for job in self.started_jobs() {
            programs += 1;
            threads += job.spec.threads.max(job.width);
            memory = memory.saturating_add(job.spec.memory.unwrap_or(0));
        }
        let within = |limit: Option<usize>, sum: usize| limit.is_none_or(|limit| sum <= limit);
        programs == 0
            || (within(self.limits.programs, programs + 1)
                && within(self.limits.threads, threads + spec.threads)
                && self.limits.memory.is_none_or(|l| memory.saturating_add(spec.memory.unwrap_or(0)) <= l))
    }

    /// The command with its logs; both are appended to, so that no attempt is lost. `None`: no log can be opened now
    /// because of other jobs, so the start is for later.
    fn program(&self, key: usize) -> Result<Option<Program>, String> {
        let spec = &self.all[key].spec;
        if let Some(cwd) = spec.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            return Err(format!("{}: there is no such folder; check cwd", cwd.display()));
        }
        let mut command = spec.prepare();
        for (suffix, out) in [("out", true), ("err", false)] {
            let path = self.logs.join(format!("{}.{suffix}", file_name(&spec.name)));
            let log = undo::append_own(&path);
            let log = match log {
                Err(e) if launch::is_for_later(&e) && self.started_jobs().next().is_some() => return Ok(None),
                log => log.map_err(|e| format!("{}: {e}", path.display()))?,
            };
            if out {
                command.stdout(log)
            } else {
                command.stderr(log)
            };
        }
        Ok(Some(Program { key, name: spec.app.clone(), command }))
    }

    fn write(&mut self, result: std::io::Result<()>) {
        if let Err(e) = result {
            self.notes
                .insert(format!("what became of the jobs cannot be written ({e}): --resume would start some again"));
        }
    }

    fn over(&mut self, key: usize, state: State) {
        let code = match &state {
            State::Ended { code } => *code,
            State::NotStarted(_) => Some(127),
            _ => None,
        };
        if state != State::Interrupted {
            let written = self.ledger.ended(key, code);
            self.write(written);
        }
        self.all[key].state = state;
    }

    /// A job of an earlier run has ended; its exit code is unknown.
    pub fn left_ended(&mut self, key: usize) {
        self.waiting.retain(|&k| k != key);
        self.over(key, State::Ended { code: None });
    }

    /// Finished share, 0–1.
    pub fn done(&self) -> f64 {
        self.all.iter().filter(|job| job.is_over()).count() as f64 / self.all.len().max(1) as f64
    }

    /// The same for the work of this run, since an earlier one may have done a part.
    pub fn done_here(&self) -> f64 {
        let ours = || self.all.iter().filter(|job| job.attempts > 0 || !job.is_over());
        ours().filter(|job| job.is_over()).count() as f64 / ours().count().max(1) as f64
    }
}

/// The queue, shared by the host and its display.
#[derive(Clone, Debug)]
pub(super) struct Shared(pub Rc<RefCell<Jobs>>);

impl Queue for Shared {
    fn next(&mut self) -> Option<Program> {
        loop {
            let mut jobs = self.0.borrow_mut();
            let key = *jobs.waiting.front()?;
            if !jobs.fits(&jobs.all[key].spec) {
                return None; // in order, so that large jobs are not passed over repeatedly
            }
            let program = match jobs.program(key) {
                Ok(program) => Some(program?),
                Err(why) => {
                    jobs.over(key, State::NotStarted(why));
                    None
                }
            };
            jobs.waiting.pop_front();
            if program.is_some() {
                return program;
            }
        }
    }

    fn started(&mut self, key: usize, id: (u32, u64)) {
        let mut jobs = self.0.borrow_mut();
        let (now, job) = (Instant::now(), &mut jobs.all[key]);
        job.attempts += 1;
        job.first.get_or_insert(now);
        (job.state, job.width) = (State::Started { since: now, runs: true }, 0);
        jobs.apps.push(key);
        let written = jobs.ledger.started(key, id.0, id.1);
        jobs.write(written);
    }

    fn put_back(&mut self, key: usize) {
        self.0.borrow_mut().waiting.push_front(key);
    }

    fn not_started(&mut self, key: usize, why: String) {
        self.0.borrow_mut().over(key, State::NotStarted(why));
    }

    fn ended(&mut self, key: usize, status: ExitStatus, usage: Usage, asked: bool) {
        let mut jobs = self.0.borrow_mut();
        let stopping = jobs.stopping;
        let job = &mut jobs.all[key];
        job.seconds = job.first.map_or(0.0, |first| first.elapsed().as_secs_f64());
        job.usage.cpu += usage.cpu;
        job.usage.max_rss = job.usage.max_rss.max(usage.max_rss);
        if let Some(need) = job.spec.memory.filter(|need| usage.max_rss > *need) {
            let (name, used) = (&job.spec.name, usage.max_rss);
            let note = format!("{name} has used {used} bytes of memory, more than the {need} that it was said to need");
            jobs.notes.insert(note);
        }
        let job = &mut jobs.all[key];
        let again = !status.success() && job.attempts <= job.spec.retries;
        // Many programs end in good order on request, without having finished their work.
        if asked || again && stopping {
            jobs.over(key, State::Interrupted);
        } else if again {
            job.state = State::Queued;
            jobs.waiting.push_back(key);
        } else {
            jobs.over(key, State::Ended { code: Some(launch::exit_code(status)) });
        }
    }

    fn turned(&mut self, key: usize, runs: bool) {
        if let State::Started { runs: known, .. } = &mut self.0.borrow_mut().all[key].state {
            *known = runs;
        }
    }

    fn stop(&mut self) {
        let mut jobs = self.0.borrow_mut();
        jobs.stopping = true;
        jobs.waiting.clear();
    }

    fn is_done(&self) -> bool {
        self.0.borrow().waiting.is_empty()
    }
}

/// The result of a job, for `--json`.
#[derive(Debug, Serialize)]
pub(super) struct JobReport {
    pub name: String,
    #[serde(skip)]
    pub title: String,
    pub command: Vec<String>,
    /// `done`, `failed`, `not_started`, `interrupted`, `queued`, or `unknown` for a job of a killed run, whose end was
    /// not observed.
    pub result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub attempts: u32,
    /// From its first start to its last end.
    pub seconds: f64,
    /// CPU time of it and of the descendants it waited for.
    pub cpu_s: f64,
    pub max_rss_bytes: u64,
    /// Transactions per microsecond of CPU time, by signal; absent without counters and without a profile.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub per_cpu_us: BTreeMap<&'static str, f64>,
    pub log: PathBuf,
}

impl JobReport {
    pub fn of(job: &Job, logs: &Path) -> Self {
        let (result, exit_code, why) = match &job.state {
            State::Queued | State::Started { .. } => ("queued", None, None),
            State::Ended { code: Some(0) } => ("done", Some(0), None),
            State::Ended { code: Some(code) } => ("failed", Some(*code), None),
            State::Ended { code: None } => ("unknown", None, None),
            State::NotStarted(why) => ("not_started", None, Some(within(why, LINE).into_owned())),
            State::Interrupted => ("interrupted", None, None),
        };
        let cpu_us = job.events.get(&Signal::CpuTime).copied().unwrap_or(0.0) / 1e3;
        let events = job.events.iter().filter(|(signal, _)| **signal != Signal::CpuTime && cpu_us > 0.0);
        Self {
            name: job.spec.name.clone(),
            title: job.spec.title.clone(),
            command: job.spec.command.clone(),
            result,
            exit_code,
            why,
            attempts: job.attempts,
            seconds: job.seconds,
            cpu_s: job.usage.cpu.as_secs_f64(),
            max_rss_bytes: job.usage.max_rss,
            per_cpu_us: events.map(|(signal, events)| (signal.name(), events / cpu_us)).collect(),
            log: logs.join(format!("{}.out", file_name(&job.spec.name))),
        }
    }
}

/// The remaining time, extrapolated from the ended jobs.
pub(super) fn left(done: f64, elapsed: Duration) -> Option<Duration> {
    (done > 0.0).then(|| elapsed.mul_f64((1.0 - done) / done))
}

#[cfg(test)]
mod tests {
    use super::super::jobs::parse;
    use super::super::ledger::Start;
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn queue(test: &str, toml: &str, limits: Limits) -> (Folder, Shared) {
        let folder = Folder(std::env::temp_dir().join(format!("cotenant-queue-{}-{test}", std::process::id())));
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir(&folder.0).unwrap();
        let specs = parse(Path::new("q.toml"), toml).unwrap();
        let (ledger, earlier) = Ledger::open(&folder.0, &specs, Start::First).unwrap();
        let jobs = Jobs::new(specs, limits, &folder.0, ledger, &earlier);
        (folder, Shared(Rc::new(RefCell::new(jobs))))
    }

    /// Starts all startable jobs; returns their keys.
    fn start(queue: &mut Shared) -> Vec<usize> {
        std::iter::from_fn(|| {
            let key = queue.next()?.key;
            queue.started(key, (1, 1));
            Some(key)
        })
        .collect()
    }

    fn end(queue: &mut Shared, key: usize, code: i32) {
        queue.ended(key, ExitStatus::from_raw(code << 8), Usage::default(), false);
    }

    /// Holds place/schedule.
    #[test]
    fn what_does_not_fit_the_memory_waits_in_order() {
        let text = "[[job]]\ncommand='a'\nmemory='3G'\n[[job]]\ncommand='b'\nmemory='2G'\n[[job]]\ncommand='c'\nmemory='1G'\n\
                    [[job]]\ncommand='d'\n";
        let (_folder, mut queue) = queue("memory", text, Limits { memory: Some(4 << 30), ..Limits::default() });
        assert_eq!(start(&mut queue), [0], "3 + 2 > 4, and nobody passes it");
        assert!(!queue.is_done());
        end(&mut queue, 0, 0);
        assert_eq!(start(&mut queue), [1, 2, 3], "2 + 1, and one that needs nothing that is known");
        assert!(queue.is_done());
    }

    /// Holds place/quantum.
    #[test]
    fn threads_and_programs_are_limited() {
        let text =
            "[[job]]\ncommand='a'\nthreads=4\n[[job]]\ncommand='b'\n[[job]]\ncommand='c'\n[[job]]\ncommand='d'\n";
        let limits = Limits { threads: Some(2), ..Limits::default() };
        let (_folder, mut queue) = queue("threads", text, limits);
        assert_eq!(start(&mut queue), [0], "more threads than there are: alone");
        end(&mut queue, 0, 0);
        assert_eq!(start(&mut queue), [1, 2]);
        queue.0.borrow_mut().limits = Limits { programs: Some(3), ..Limits::default() };
        assert_eq!(start(&mut queue), [3]);
        // A job declared with 1 thread turns out to have 2, so none starts with it.
        let (_folder, mut queue) =
            self::queue("wider", "[[job]]\ncommand='a'\n[[job]]\ncommand='b'\n[[job]]\ncommand='c'\n", limits);
        assert_eq!(start(&mut queue), [0, 1]);
        end(&mut queue, 0, 0);
        queue.0.borrow_mut().all[1].width = 2;
        assert!(start(&mut queue).is_empty());
        end(&mut queue, 1, 0);
        assert_eq!(start(&mut queue), [2]);
    }

    #[test]
    fn who_fails_is_retried_last_and_then_counts() {
        let text = "retries=1\n[[job]]\ncommand='a'\n[[job]]\ncommand='b'\n";
        let (folder, mut queue) = queue("retries", text, Limits { programs: Some(1), ..Limits::default() });
        assert_eq!(start(&mut queue), [0]);
        end(&mut queue, 0, 7);
        assert_eq!(start(&mut queue), [1]);
        end(&mut queue, 1, 0);
        assert_eq!(start(&mut queue), [0]);
        end(&mut queue, 0, 7);
        assert!(start(&mut queue).is_empty() && queue.is_done());
        let jobs = queue.0.borrow();
        assert_eq!((jobs.all[0].attempts, jobs.all[0].state.clone()), (2, State::Ended { code: Some(7) }));
        assert!(!jobs.all[1].has_failed() && (jobs.done() - 1.0).abs() < 1e-9);
        assert!(folder.0.join("1-a.out").exists() && folder.0.join("2-b.err").exists());
    }

    #[test]
    fn whoever_is_interrupted_is_not_over_for_the_next_run() {
        let text = "[[job]]\ncommand='a'\n[[job]]\ncommand='b'\n[[job]]\ncommand='c'\n";
        let (folder, mut queue) = queue("interrupted", text, Limits::default());
        assert_eq!(start(&mut queue), [0, 1, 2]);
        queue.stop();
        end(&mut queue, 1, 0);
        let asked = |queue: &mut Shared, key, code: i32| {
            queue.ended(key, ExitStatus::from_raw(code << 8), Usage::default(), true);
        };
        asked(&mut queue, 0, 143);
        asked(&mut queue, 2, 0); // it gets SIGTERM, and ends in good order
        let states = [0, 2].map(|job: usize| queue.0.borrow().all[job].state.clone());
        assert_eq!(states, [State::Interrupted, State::Interrupted]);
        let count = |what: fn(&Job) -> bool| queue.0.borrow().all.iter().filter(|job| what(job)).count();
        assert_eq!([count(Job::has_failed), count(Job::is_left)], [0, 2], "nothing has failed");
        let specs: Vec<JobSpec> = queue.0.borrow().all.iter().map(|job| job.spec.clone()).collect();
        drop(queue);
        let (_, earlier) = Ledger::open(&folder.0, &specs, Start::Resume).unwrap();
        assert_eq!(earlier.ended, [(1, Some(0))], "who ended by itself meanwhile is");
    }

    #[test]
    fn what_an_earlier_run_has_done_says_nothing_of_the_time_that_is_left() {
        let text = "[[job]]\ncommand='a'\n".repeat(4);
        let (_folder, mut queue) = queue("estimate", &text, Limits { programs: Some(1), ..Limits::default() });
        queue.0.borrow_mut().all[0].state = State::Ended { code: Some(0) };
        queue.0.borrow_mut().waiting.pop_front();
        assert_eq!((queue.0.borrow().done(), queue.0.borrow().done_here()), (0.25, 0.0));
        assert_eq!(start(&mut queue), [1]);
        end(&mut queue, 1, 0);
        let jobs = queue.0.borrow();
        assert!((jobs.done_here() - 1.0 / 3.0).abs() < 1e-9 && (jobs.done() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn who_finds_no_process_is_the_next_one_again() {
        let (_folder, mut queue) = queue("back", "[[job]]\ncommand='a'\n[[job]]\ncommand='b'\n", Limits::default());
        assert_eq!(queue.next().unwrap().key, 0);
        queue.started(0, (1, 1));
        assert_eq!(queue.next().unwrap().key, 1);
        queue.put_back(1);
        assert!(!queue.is_done());
        assert_eq!(start(&mut queue), [1]);
    }

    #[test]
    fn the_time_that_is_left_is_a_guess_from_what_is_done() {
        assert_eq!(left(0.0, Duration::from_secs(9)), None);
        assert_eq!(left(0.25, Duration::from_secs(10)), Some(Duration::from_secs(30)));
    }
}
