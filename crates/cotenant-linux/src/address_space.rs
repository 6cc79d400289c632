//! Questions that other programs can delay: environments, command lines, mappings and pages, bytes moved, and the
//! places of executed files. No other place asks them (`cargo xtask tidy`).
//!
//! For most of them the kernel takes a lock that the program itself can hold for any time: that of its address space
//! (`mmap_lock`), or the one for executing another program (`exec_update_lock`), which waits for the former. A file may
//! be on a server of another user. The caller may have programs to resume, so a thread does the reading, one for the
//! programs of each user. The wait for it is brief, and briefer after other waits for the same user. A late value is
//! unknown; the next question of the same kind gets the answer.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sys::thread::{own, process_stat};
use crate::sys::{self, SignalMask, mempolicy};
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A query. Two answers to the same query about the same process are equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Environment,
    CommandLine,
    /// The script that it runs.
    Script,
    /// The link by which it was started.
    Link,
    /// Bytes that it, and others of its user, read and wrote.
    Bytes,
    /// Mappings, one by one.
    Maps,
    /// End of each mapping.
    Ends,
    /// Nodes of its pages.
    NodeMaps,
    /// Accessed pages.
    Accessed,
    ClearAccessed,
    /// Single pages: marked as idle, looked up again.
    Mark,
    LookUp,
    /// Nodes of single pages.
    Place,
    /// Moves of pages to other nodes.
    Move,
}

impl What {
    /// The process's file for it; that of all its pages for system calls.
    fn file(self) -> &'static str {
        match self {
            Self::Environment => "environ",
            Self::CommandLine | Self::Script => "cmdline",
            Self::Link => "exe",
            Self::Bytes => "io",
            Self::Maps | Self::Ends => "maps",
            Self::NodeMaps => "numa_maps",
            Self::Accessed => "smaps",
            Self::ClearAccessed => "clear_refs",
            Self::Mark | Self::LookUp | Self::Place | Self::Move => "pagemap",
        }
    }
}

/// Permission to query, for threads on which no other work waits.
#[derive(Debug)]
pub(crate) struct Door {
    pid: u32,
    path: PathBuf,
}

impl Door {
    /// The queried file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `move_pages(2)`: the result of each page, its node now or a negative error. Without `nodes` nothing is moved.
    pub fn move_pages(
        &self,
        pages: &[u64],
        nodes: Option<&[libc::c_int]>,
        status: &mut [libc::c_int],
    ) -> io::Result<()> {
        mempolicy::move_pages(self.pid, pages, nodes, status)
    }
}

/// Limit of the wait for one answer.
const LONGEST: Duration = Duration::from_millis(50);

/// Nothing is begun that is to be interrupted sooner: the timer's signals would take all of the time.
const LEAST: Duration = Duration::from_millis(1);

/// Limits of waits for the programs of one user, and for all: at once, and as a fraction of time.
const EACH: Allowance = Allowance { at_once: Duration::from_millis(100), part: 50 };
const ALL: Allowance = Allowance { at_once: Duration::from_millis(200), part: 10 };

/// Limits of simultaneously queried users, besides root and ourselves, and of queries for one.
const LANES: usize = 32;
const QUESTIONS: usize = 512;

/// An idle thread ends after this; an answer that is not fetched is dropped.
const IDLE: Duration = Duration::from_secs(2);
const KEPT: Duration = Duration::from_secs(60);

/// Limit of the wait for callers without paused programs.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
struct Allowance {
    at_once: Duration,
    /// The fraction's denominator.
    part: u32,
}

/// Recent waits.
#[derive(Clone, Copy, Debug)]
struct Waited {
    time: Duration,
    at: Instant,
}

impl Waited {
    fn none(now: Instant) -> Self {
        Self { time: Duration::ZERO, at: now }
    }

    /// The allowed wait now.
    fn left(&mut self, now: Instant, allowance: Allowance) -> Duration {
        self.time = self.time.saturating_sub(now.saturating_duration_since(self.at) / allowance.part);
        self.at = now;
        allowance.at_once.saturating_sub(self.time)
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The process, by id and start time, and the query.
type Question = ((u32, u64), What);

/// Threads and answers.
struct Desk {
    lanes: BTreeMap<u32, Lane>,
    /// Recent waits for each user's programs, and for all.
    waited: BTreeMap<u32, Waited>,
    all: Option<Waited>,
    /// Late answers: the receiver of each, and its time.
    late: BTreeMap<Question, (Box<dyn Any + Send>, Instant)>,
}

/// The thread for one user.
struct Lane {
    jobs: Sender<Job>,
    /// Unanswered queries.
    open: Arc<AtomicUsize>,
    number: u64,
}

/// One for all callers.
struct Shared(Mutex<Desk>);

static DESK: Shared = Shared::new();
/// Only its limits of waits are used, so that late answers keep no thread from being counted.
static OPENING: Shared = Shared::new();

/// An answer, its CPU time, and whether the kernel made the thread wait for something else than a CPU.
struct Answer<T> {
    result: io::Result<T>,
    cost: Duration,
    slept: bool,
}

impl Shared {
    const fn new() -> Self {
        Self(Mutex::new(Desk { lanes: BTreeMap::new(), waited: BTreeMap::new(), all: None, late: BTreeMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T: Send + 'static>(
        &'static self,
        fs: &FsRoot,
        pid: u32,
        what: What,
        patience: Option<Duration>,
        work: impl FnOnce(&Door) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let door = Door { pid, path: fs.path(&format!("/proc/{pid}/{}", what.file())) };
        // Files of another machine have no lock, and ours is free.
        if !fs.is_live() || own().is_ok_and(|(own, _)| own == pid) {
            return work(&door);
        }
        let stat = process_stat(pid).ok_or(ErrorKind::NotFound)?;
        let (question, user) = (((pid, stat.start_ticks), what), user_of(pid).ok_or(ErrorKind::NotFound)?);
        let begin = Instant::now();
        let mut desk = self.lock();
        let before = desk.late.remove(&question).and_then(|(answer, _)| answer.downcast().ok());
        let answer: Box<Receiver<Answer<T>>> = match before {
            Some(answer) => answer,
            None => Box::new(desk.begin(self, user, door, work)?),
        };
        let patience = patience.unwrap_or_else(|| desk.left(user, begin));
        drop(desk);
        let came = answer.recv_timeout(patience);
        let mut desk = self.lock();
        // On a busy machine both threads wait for a CPU, too, which is no program's doing.
        if !matches!(came, Ok(Answer { slept: false, .. })) {
            desk.wait_was(user, begin.elapsed().min(patience));
        }
        match came {
            Ok(Answer { result, cost, .. }) => {
                ELSEWHERE.set(ELSEWHERE.get() + cost);
                result
            }
            Err(RecvTimeoutError::Timeout) => {
                desk.late.retain(|_, (_, since)| since.elapsed() < KEPT);
                desk.late.insert(question, (answer, begin));
                Err(late())
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the thread that asked has failed")),
        }
    }

    fn briefly<T>(&self, pid: u32, work: impl FnOnce() -> T) -> Option<T> {
        let (user, begin, sleeps) = (user_of(pid)?, Instant::now(), sys::thread_sleeps());
        let patience = self.lock().left(user, begin);
        if patience < LEAST {
            return None;
        }
        let done = sys::interrupted_after(patience, work);
        if sys::thread_sleeps() > sleeps {
            self.lock().wait_was(user, begin.elapsed());
        }
        Some(done)
    }

    /// Asks one after the other, until there has been nothing to ask for a while.
    fn work(&self, user: u32, number: u64, todo: &Receiver<Job>) {
        let _ = SignalMask::of(1..=64).apply(); // signals are for threads that wait for them
        loop {
            if let Ok(job) = todo.recv_timeout(IDLE) {
                job();
                continue;
            }
            // The sender holds the desk.
            let mut desk = self.lock();
            let Ok(job) = todo.try_recv() else {
                if desk.lanes.get(&user).is_some_and(|lane| lane.number == number) {
                    desk.lanes.remove(&user);
                }
                return;
            };
            drop(desk);
            job();
        }
    }
}

thread_local! {
    /// CPU time of the query threads on behalf of this one.
    static ELSEWHERE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// CPU time of this thread, including query threads on its behalf.
pub(crate) fn cpu_time() -> Duration {
    sys::thread_cpu_time() + ELSEWHERE.get()
}

/// Whether the answer is late: ask again.
pub(crate) fn is_late(why: &io::Error) -> bool {
    why.kind() == ErrorKind::TimedOut
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it keeps its address space locked, or there are too many that do")
}

/// Queries a process, and waits briefly.
///
/// # Errors
/// Errors of the work; [`is_late`].
pub(crate) fn ask<T: Send + 'static>(
    fs: &FsRoot,
    pid: u32,
    what: What,
    work: impl FnOnce(&Door) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    DESK.ask(fs, pid, what, None, work)
}

/// The same for callers without paused programs.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_with_patience<T: Send + 'static>(
    fs: &FsRoot,
    pid: u32,
    what: What,
    work: impl FnOnce(&Door) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    DESK.ask(fs, pid, what, Some(PATIENCE), work)
}

/// Runs a call for which the kernel may wait for a process, interrupted by a signal (`EINTR`) when that takes long.
/// `None`, without running it, after too long waits for its user.
pub(crate) fn briefly<T>(pid: u32, work: impl FnOnce() -> T) -> Option<T> {
    OPENING.briefly(pid, work)
}

/// Owner of a program: its starting user, independent of its rights.
fn user_of(pid: u32) -> Option<u32> {
    let status = bounded::text(format!("/proc/{pid}/status"), Limit::Value).ok()?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()?;
    Some(sys::real_user(uid))
}

impl Desk {
    /// The allowed wait for a program of that user.
    fn left(&mut self, user: u32, now: Instant) -> Duration {
        let all = self.all.get_or_insert(Waited::none(now)).left(now, ALL);
        self.waited.entry(user).or_insert(Waited::none(now)).left(now, EACH).min(all).min(LONGEST)
    }

    fn wait_was(&mut self, user: u32, time: Duration) {
        let now = Instant::now();
        self.all.get_or_insert(Waited::none(now)).time += time;
        self.waited.entry(user).or_insert(Waited::none(now)).time += time;
        self.waited.retain(|_, waited| waited.left(now, EACH) < EACH.at_once);
    }

    /// Passes a query to that user's thread.
    fn begin<T: Send + 'static>(
        &mut self,
        shared: &'static Shared,
        user: u32,
        door: Door,
        work: impl FnOnce(&Door) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Receiver<Answer<T>>> {
        let open = self.lanes.get(&user).map(|lane| lane.open.clone()).unwrap_or_default();
        if open.load(Ordering::Relaxed) >= QUESTIONS {
            return Err(late());
        }
        let (tell, answer) = channel();
        let answered = open.clone();
        let mut job: Job = Box::new(move || {
            let (begin, sleeps) = (sys::thread_cpu_time(), sys::thread_sleeps());
            let result = work(&door);
            let (cost, slept) = (sys::thread_cpu_time().saturating_sub(begin), sys::thread_sleeps() > sleeps);
            answered.fetch_sub(1, Ordering::Relaxed);
            let _ = tell.send(Answer { result, cost, slept }); // the receiver may have gone
        });
        if let Some(lane) = self.lanes.get(&user) {
            open.fetch_add(1, Ordering::Relaxed);
            match lane.jobs.send(job) {
                Ok(()) => return Ok(answer),
                Err(refused) => job = refused.0, // the thread has failed
            }
        }
        if self.lanes.len() >= LANES && user != 0 && user != sys::euid() {
            return Err(late());
        }
        let number = self.lanes.values().map(|lane| lane.number + 1).max().unwrap_or_default();
        let (jobs, todo) = channel();
        let work = move || shared.work(user, number, &todo);
        thread::Builder::new().name("worker".to_owned()).stack_size(256 << 10).spawn(work)?;
        open.store(1, Ordering::Relaxed);
        let _ = jobs.send(job);
        self.lanes.insert(user, Lane { jobs, open, number });
        Ok(answer)
    }
}

/// Limits of a command line, in bytes and arguments: programs can enlarge theirs up to all of their memory, and an
/// interpreter's script is among the first few.
const COMMAND_LINE: u64 = 64 << 10;
const ARGUMENTS: usize = 256;

/// The first arguments of a process, or their replacement by the process; empty if it has ended, or cannot be queried.
pub fn command_line(pid: u32) -> Vec<String> {
    let read = |door: &Door| Ok(bounded::beginning(door.path(), COMMAND_LINE));
    let line = ask(&FsRoot::live(), pid, What::CommandLine, read);
    let Some(line) = line.ok().filter(|line| !line.is_empty()) else { return Vec::new() };
    line.split(|byte| *byte == 0).take(ARGUMENTS).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::eventually;
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Sleeper {
        fn of(user: u32) -> Self {
            let mut command = Command::new("sleep");
            if user != sys::euid() {
                command.uid(user);
            }
            Self(command.arg("1000").spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// With one that does not answer, all others of its user are late, and together they take as long as one of them.
    /// Holds undo/pauses.
    #[test]
    fn nobody_is_waited_for_again_and_again() {
        static DESK: Shared = Shared::new();
        let live = FsRoot::live();
        let sleepers: Vec<_> = (0..50).map(|_| Sleeper::of(sys::euid())).collect();
        let (release, held) = channel::<()>();
        let stuck = move |_: &Door| Ok(u32::from(held.recv().is_ok()));
        let begin = Instant::now();
        let first = DESK.ask(&live, sleepers[0].pid(), What::Maps, None, stuck);
        assert!(is_late(&first.unwrap_err()));
        for sleeper in &sleepers[1..] {
            let pid = sleeper.pid();
            assert!(is_late(&DESK.ask(&live, pid, What::Maps, None, move |_| Ok(pid)).unwrap_err()));
        }
        let took = begin.elapsed();
        assert!(took < sleepers.len() as u32 * LONGEST, "as long as if each were waited for: {took:?}");
        if sys::euid() == 0 {
            // A query about another user's program is not delayed by that.
            let other = Sleeper::of(65_534);
            eventually("another user's is asked", || {
                DESK.ask(&live, other.pid(), What::Maps, None, |_| Ok(7)).is_ok_and(|answer| answer == 7)
            });
        } else {
            eprintln!("skipped in part: only root can start programs of other users");
        }
        drop(release);
        // The answer is kept for the next caller, so the work runs once.
        for (i, sleeper) in sleepers.iter().enumerate() {
            let (pid, mut answer) = (sleeper.pid(), None);
            eventually("it is known", || {
                answer = DESK.ask(&live, pid, What::Maps, None, |_| Ok(u32::MAX)).ok();
                answer.is_some()
            });
            assert_eq!(answer, Some(if i == 0 { 0 } else { pid }));
        }
        eventually("the thread ends", || DESK.lock().lanes.is_empty());
    }

    #[test]
    fn too_many_questions_are_not_asked() {
        static DESK: Shared = Shared::new();
        let (sleeper, live) = (Sleeper::of(sys::euid()), FsRoot::live());
        let (release, held) = channel::<()>();
        let ask = |desk: &mut Desk, work: Box<dyn FnOnce() + Send>| {
            let door = Door { pid: sleeper.pid(), path: PathBuf::new() };
            desk.begin(&DESK, 7, door, move |_| {
                work();
                Ok(())
            })
        };
        let mut desk = DESK.lock();
        let mut answers = vec![ask(&mut desk, Box::new(move || _ = held.recv())).unwrap()];
        answers.extend((1..QUESTIONS).map(|_| ask(&mut desk, Box::new(|| ())).unwrap()));
        assert!(is_late(&ask(&mut desk, Box::new(|| ())).unwrap_err()));
        drop((desk, release));
        assert!(answers.iter().all(|answer| answer.recv().is_ok_and(|done| done.result.is_ok())));
        assert!(DESK.ask(&live, sleeper.pid(), What::Maps, Some(PATIENCE * 100), |_| Ok(())).is_ok());
    }

    /// As opening a counter of a process that begins to execute a program.
    #[test]
    fn what_is_begun_is_interrupted_and_soon_nothing_is_begun() {
        static DESK: Shared = Shared::new();
        let sleeper = Sleeper::of(sys::euid());
        let (mut from, _to) = io::pipe().unwrap();
        let mut times = 0;
        while let Some(read) = DESK.briefly(sleeper.pid(), || from.read(&mut [0])) {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Interrupted);
            times += 1;
            assert!(times < 1_000, "what is waited is not counted");
        }
        assert!(times >= 2);
        assert_eq!(DESK.briefly(u32::MAX, || ()), None);
    }

    #[test]
    fn what_was_waited_is_forgotten_as_time_passes() {
        let now = Instant::now();
        let mut waited = Waited::none(now);
        assert_eq!(waited.left(now, EACH), EACH.at_once);
        waited.time += EACH.at_once * 3;
        assert_eq!(waited.left(now, EACH), Duration::ZERO);
        assert_eq!(waited.left(now + EACH.at_once * 2 * EACH.part, EACH), Duration::ZERO);
        let later = now + EACH.at_once * 5 / 2 * EACH.part;
        assert_eq!(waited.left(later, EACH), EACH.at_once / 2);
    }

    #[test]
    fn a_command_line_is_asked_of_another_and_of_ourselves() {
        let sleeper = Sleeper::of(sys::euid());
        eventually("it executes", || command_line(sleeper.pid()).first().is_some_and(|word| word == "sleep"));
        assert!(!command_line(std::process::id()).is_empty());
        assert!(command_line(u32::MAX).is_empty());
    }
}
