//! The processes under test, each of them this test binary in another role.

use crate::act::placement::Placement;
use crate::act::{self, EFFECTS};
use crate::fault;
use crate::sense::observer::NewTask;
use crate::sys;
use crate::sys::thread::{self, Held};
use crate::undo::{GuardianCommand, Journal, JournalOptions};
use cotenant_model::{CpuSet, TaskId, TaskInfo, Time};
use cotenant_testing::Player;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// The variable with the role; without it, [`role`] is an empty test.
const ROLE: &str = "COTENANT_TEST_ROLE";

/// Arguments for running only [`role`]; further ones are the role's.
const ENTRY: [&str; 5] = ["tests::roles::role", "--exact", "--nocapture", "--test-threads=1", "--"];

/// The entry of all roles.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return eprintln!("skipped: other tests start it as a program");
    };
    let args: Vec<String> = std::env::args().skip_while(|a| a != "--").skip(1).collect();
    match role.as_str() {
        "guardian" => {
            act::guard(args.iter().map(Into::into));
        }
        "subject" => subject(args[0].parse().unwrap()),
        "applier" => applier(&args),
        "backgrounder" => super::background::backgrounder(&args),
        "minder" => super::background::minder(&args),
        "batcher" => super::batches::batcher(&args),
        "keeper" => super::keepers::keeper(&args),
        "roster" => super::roster::roster(&args),
        "pauser" => super::pauses::pauser(&args),
        other => panic!("no role {other}"),
    }
    std::process::exit(0);
}

/// This test binary in a role.
pub fn command(role: &str, args: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(ENTRY).args(args).env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// The same for a role that is a host: the test harness has threads of its own, which would swallow SIGCHLD. It is held
/// back in all of them.
pub fn host_command(role: &str, args: &[&str]) -> Command {
    let (mut command, ends) = (command(role, args), sys::SignalMask::of([libc::SIGCHLD]));
    // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory but the mask's
    // copy.
    unsafe {
        command.pre_exec(move || ends.apply());
    }
    command
}

/// Sends a line to the test that started this process.
pub fn say(line: &str) {
    println!("@{line}");
}

/// The first two CPUs of this process; `None`, announced, with only one.
pub fn two_cpus() -> Option<[CpuSet; 2]> {
    let mine = sys::getaffinity(0).unwrap();
    let mut cpus = mine.iter().map(CpuSet::single);
    let pair = cpus.next().zip(cpus.next());
    if pair.is_none() {
        eprintln!("skipped: this test needs two CPUs, and there is one");
    }
    pair.map(|(a, b)| [a, b])
}

/// A subject under test.
pub struct Subject {
    pub player: Player,
    /// Its worker threads.
    pub tids: Vec<u32>,
    /// The masks of its workers before any change.
    pub originals: Vec<CpuSet>,
}

impl Subject {
    pub fn new(threads: usize) -> Self {
        Self::from_command(command("subject", &[&threads.to_string()]))
    }

    /// In its own session, because orphans are recognised by session, and the tests' session is shared by concurrent
    /// tests.
    pub fn in_own_session(threads: usize) -> Self {
        let mut command = command("subject", &[&threads.to_string()]);
        // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
        unsafe {
            command.pre_exec(sys::setsid);
        }
        Self::from_command(command)
    }

    pub fn from_command(command: Command) -> Self {
        let mut player = Player::start(command);
        let tids: Vec<u32> = player.hear("tids").split(' ').map(|t| t.parse().unwrap()).collect();
        let originals = tids.iter().map(|tid| sys::getaffinity(*tid).unwrap()).collect();
        Self { player, tids, originals }
    }

    pub fn masks(&self) -> Vec<CpuSet> {
        self.tids.iter().map(|tid| sys::getaffinity(*tid).unwrap()).collect()
    }

    pub fn is_as_before(&self) -> bool {
        self.masks() == self.originals
    }

    /// Makes worker `index` do something; returns the pid or tid in its answer.
    pub fn act(&mut self, what: &str, index: usize) -> u32 {
        self.player.say(&format!("{what} {index}"));
        self.player.hear(what).parse().unwrap()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A process with `n` workers controlled by standard input: `fork I` (a child that sleeps), `orphan I` (a grandchild
/// whose parent ends), `thread I` (a thread that sleeps), `exec I` (the worker replaces the process), `pin I` (it sets
/// its own mask to its first CPU), `churn I` (it starts threads that end at once, forever).
fn subject(n: usize) {
    let (tx, rx) = channel();
    let workers: Vec<Sender<Job>> = (0..n)
        .map(|_| {
            let (jobs, todo) = channel::<Job>();
            let tx = tx.clone();
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || {
                    tx.send(gettid()).unwrap();
                    for job in todo {
                        job();
                    }
                })
                .unwrap();
            jobs
        })
        .collect();
    let tids: Vec<String> = rx.iter().take(n).map(|tid: u32| tid.to_string()).collect();
    say(&format!("tids {}", tids.join(" ")));
    // tids arrive in any order: find the worker by its tid.
    let index_of = |position: usize| -> Sender<Job> {
        let wanted: u32 = tids[position].parse().unwrap();
        let (tx, rx) = channel();
        for worker in &workers {
            let (tx, worker_again) = (tx.clone(), worker.clone());
            let _ = worker.send(Box::new(move || {
                if gettid() == wanted {
                    tx.send(worker_again).unwrap();
                }
            }));
        }
        rx.recv().unwrap()
    };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (what, index) = line.split_once(' ').unwrap();
        let what = what.to_owned();
        let ends_here = what == "exec"; // it closes our standard input before it executes the other program
        let job: Job = Box::new(move || match what.as_str() {
            "fork" => say(&format!("fork {}", sleeper().spawn().unwrap().id())),
            "orphan" => {
                let mut shell = Command::new("sh");
                let output = shell.args(["-c", "sleep 1000 >&- 2>&- & echo $!"]).output().unwrap();
                say(&format!("orphan {}", String::from_utf8(output.stdout).unwrap().trim()));
            }
            "thread" => {
                std::thread::spawn(|| {
                    say(&format!("thread {}", gettid()));
                    std::thread::park();
                });
            }
            "exec" => {
                say(&format!("exec {}", std::process::id()));
                panic!("{}", sleeper().exec());
            }
            "pin" => {
                sys::setaffinity(0, &CpuSet::single(sys::getaffinity(0).unwrap().first().unwrap())).unwrap();
                say(&format!("pin {}", gettid()));
            }
            "churn" => {
                say("churn 0");
                loop {
                    let _ = std::thread::spawn(|| ()).join();
                }
            }
            other => panic!("cannot {other}"),
        });
        index_of(index.parse().unwrap()).send(job).unwrap();
        if ends_here {
            loop {
                std::thread::park();
            }
        }
    }
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn gettid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    (unsafe { libc::gettid() }) as u32
}

/// Options of the applier role; the guardian is this test binary, too.
pub fn options(state_dir: &Path) -> JournalOptions {
    let guardian = GuardianCommand {
        program: PathBuf::from("/proc/self/exe"),
        args: ENTRY.map(Into::into).to_vec(),
        env: vec![(ROLE.into(), "guardian".into())],
    };
    JournalOptions { state_dir: state_dir.to_owned(), other_users: false, guardian, compact_above: 1 }
}

/// A journal of such options.
pub fn journal(state_dir: &Path) -> Journal {
    Journal::open(options(state_dir), EFFECTS).unwrap()
}

/// The identities of threads, in a host's form.
pub fn infos(pid: u32, tids: &[u32]) -> Vec<Arc<TaskInfo>> {
    let info = |(i, tid): (usize, &u32)| {
        let held = Held::open(pid, *tid).ok()?;
        let (start_ticks, comm) = (held.stat.start_ticks, held.stat.comm.clone());
        let allowed = held.mask().ok()?;
        Some(Arc::new(TaskInfo {
            id: TaskId(i as u32),
            tid: *tid,
            pid,
            start_ticks,
            comm,
            allowed,
            ..TaskInfo::default()
        }))
    };
    tids.iter().enumerate().filter_map(info).collect()
}

/// Each task and its target mask: the two alternate, beginning with the `first`.
pub fn orders(infos: &[Arc<TaskInfo>], masks: &[CpuSet; 2], first: usize) -> Vec<(Arc<TaskInfo>, Option<CpuSet>)> {
    infos.iter().enumerate().map(|(i, info)| (info.clone(), Some(masks[(first + i) % 2].clone()))).collect()
}

pub fn releases(infos: &[Arc<TaskInfo>]) -> Vec<(Arc<TaskInfo>, Option<CpuSet>)> {
    infos.iter().map(|info| (info.clone(), None)).collect()
}

/// Places threads: `STATE_DIR PID TID,TID… STEP…`. Each step prints its result. `hold` waits for a line of standard
/// input, where `S` in `at S` is the time in seconds for later steps, and `T` in `task T` the thread of `adopt`.
fn applier(args: &[String]) {
    let [state_dir, pid, tids, steps @ ..] = args else { panic!("usage: STATE_DIR PID TIDS STEP…") };
    let pid = pid.parse().unwrap();
    let tids: Vec<u32> = match tids.as_str() {
        "all" => thread::numbers_in(&format!("/proc/{pid}/task")),
        list => list.split(',').map(|t| t.parse().unwrap()).collect(),
    };
    let masks = two_cpus().unwrap();
    let mut options = options(Path::new(state_dir));
    options.other_users = steps.iter().any(|s| s == "others");
    if steps.iter().any(|s| s == "full-disk") {
        sys::ignore(libc::SIGXFSZ).unwrap();
        let limit = libc::rlimit { rlim_cur: 300, rlim_max: 300 };
        // SAFETY: the limit is a valid struct that outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        options.compact_above = u64::MAX;
    }
    let (mut journal, mut placement) = (Journal::open(options, EFFECTS).unwrap(), Placement::default());
    let infos = infos(pid, &tids);
    let (mut now, mut newcomer) = (Time::default(), None);
    let mut lines = std::io::stdin().lines();
    for step in steps {
        let orders = match step.as_str() {
            "flip" => orders(&infos, &masks, 0),
            "flop" => orders(&infos, &masks, 1),
            "release" => releases(&infos),
            "tend" => Vec::new(),
            _ => {
                match step.as_str() {
                    "others" | "full-disk" => {}
                    "hold" => {
                        say(&format!("hold {}", journal.guardian().unwrap_or(0)));
                        let line = lines.next().unwrap_or_else(|| Ok(String::new())).unwrap();
                        newcomer = line.strip_prefix("task ").map(|tid| tid.parse().unwrap());
                        if let Some(seconds) = line.strip_prefix("at ") {
                            now = Time::from_secs(seconds.parse().unwrap());
                        }
                    }
                    "adopt" => {
                        let tid = newcomer.expect("a line `task TID` before");
                        let held = Held::open(pid, tid).unwrap();
                        let task = NewTask::of(&held, held.mask().unwrap());
                        say(&format!("adopt {}", placement.original_mask(&mut journal, &task)));
                    }
                    "panic" => panic!("as the test wants it"),
                    "finish" => return say(&format!("finish {:?}", journal.finish())),
                    "notes" => say(&format!(
                        "notes {:?}",
                        journal.notes().iter().chain(placement.notes.iter()).collect::<Vec<_>>()
                    )),
                    other => panic!("no step {other}"),
                }
                continue;
            }
        };
        journal.tend();
        placement.tend(&mut journal, now);
        let texts = orders.iter().map(|(info, mask)| placement.apply(&mut journal, now, info, mask.as_ref()));
        let texts: Vec<String> = texts.map(|outcome| format!("{outcome:?}")).collect();
        say(&format!("{step} {}", texts.join(" ")));
    }
}

/// An applier of that subject.
pub fn applier_of(subject: &Subject, state_dir: &Path, steps: &[&str]) -> Command {
    let tids: Vec<String> = subject.tids.iter().map(u32::to_string).collect();
    let pid = subject.player.pid().to_string();
    let tids = tids.join(",");
    let args: Vec<&str> = [state_dir.to_str().unwrap(), &pid, &tids].into_iter().chain(steps.iter().copied()).collect();
    command("applier", &args)
}

/// Makes a command die at a point; the file records whether it did.
pub fn dying(mut command: Command, plan: &str, fired: &Path) -> Command {
    command.env(fault::VAR, plan).env(fault::FIRED_VAR, fired);
    command
}

/// Journals in a state folder.
pub fn journals(state_dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(state_dir) else { return 0 };
    entries.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("journal-")).count()
}
