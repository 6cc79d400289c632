//! Many jobs of which some wait: after any process died at any point, all of them run on.

use super::pauses::{BEAT, mechanisms};
use super::roles::{command, dying, journals, options, say, two_cpus};
use crate::FsRoot;
use crate::act::pause::{Mechanism, Method};
use crate::act::restore;
use crate::fault;
use crate::host::queue::{Program, Queue, SIGNALS};
use crate::host::{HostOptions, LinuxHost};
use crate::sense::topology;
use crate::sys::thread;
use crate::sys::{self, Usage};
use cotenant_model::Mode;
use cotenant_model::host;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Ctx, Settings};
use cotenant_model::profile::MachineProfile;
use cotenant_policies::{CoSchedule, QuantumSettings};
use cotenant_testing::{Player, TempDir, eventually};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// Jobs of a batch: more than two CPUs run.
const JOBS: usize = 3;

/// The file that records the request to end.
const ASKED: &str = "asked";

/// Quanta after which a batch ends by itself.
const QUANTA: u64 = 12;

/// Jobs that waited in some quantum, and those that ran in some.
type Seen = Rc<RefCell<[BTreeSet<usize>; 2]>>;

/// Jobs that run until they are killed.
#[derive(Debug)]
struct Beats {
    folder: PathBuf,
    next: usize,
    seen: Seen,
}

impl Queue for Beats {
    fn next(&mut self) -> Option<Program> {
        let key = self.next;
        self.next += 1;
        (key < JOBS).then(|| {
            let mut command = Command::new("sh");
            command.args(["-c", BEAT, "beat"]).arg(&self.folder).arg(key.to_string());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Program { key, name: "beat".to_owned(), command }
        })
    }

    fn started(&mut self, _: usize, _: (u32, u64)) {}

    fn put_back(&mut self, key: usize) {
        panic!("there is room for a process for {key}");
    }

    fn not_started(&mut self, _: usize, why: String) {
        panic!("{why}");
    }

    fn ended(&mut self, _: usize, _: ExitStatus, _: Usage, _: bool) {}

    fn turned(&mut self, key: usize, runs: bool) {
        self.seen.borrow_mut()[usize::from(runs)].insert(key);
    }

    fn stop(&mut self) {}

    fn is_done(&self) -> bool {
        self.next > JOBS
    }
}

/// Runs a batch in a single-threaded process, as Cotenant does: libtest's threads would take its signals. Ends with its
/// result.
pub fn batcher(args: &[String]) {
    // SAFETY: the child goes on with a copy of this thread alone, which holds no lock; the C library puts its own
    // right.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let done = std::panic::catch_unwind(|| batch(args));
        std::process::exit(i32::from(done.is_err()));
    }
    let mut status = 0;
    // SAFETY: the status is writable, and the child is ours.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    let status = ExitStatus::from_raw(status);
    if status.signal().is_some() {
        sys::kill(std::process::id(), libc::SIGKILL).unwrap();
    }
    std::process::exit(status.code().unwrap_or(1));
}

/// Runs a batch on two CPUs under `cas`: `STATE_DIR MECHANISM FOLDER`.
fn batch(args: &[String]) {
    let [state_dir, mechanism, folder] = args else { panic!("usage: STATE_DIR MECHANISM FOLDER") };
    let method = Method::all().into_iter().find(|m| format!("{:?}", m.mechanism()) == *mechanism);
    let [a, b] = two_cpus().unwrap();
    let topology = topology::read(&FsRoot::live(), None).unwrap().topology;
    let quantum = Duration::from_millis(5);
    let options = HostOptions {
        cpus: Some(a.or(&b)),
        act: true,
        signals: Some(SIGNALS.to_vec()),
        method,
        journal: Some(options(Path::new(state_dir))),
        ..HostOptions::default()
    };
    let seen = Seen::default();
    let queue = Beats { folder: folder.into(), next: 0, seen: seen.clone() };
    let host = LinuxHost::new(&topology, Vec::new(), options).unwrap();
    let mut batch = host.with_queue(Box::new(queue), Duration::from_secs(5));
    let settings = Settings::default().with::<CoSchedule>(&QuantumSettings { quantum, ..QuantumSettings::default() });
    let config = Config { interval: quantum, foreign_busy: 2.0, pin: Pin::Cpu, settings, ..Config::default() };
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
    let policy = cotenant_policies::standard().make("cas", &config).unwrap();
    let mut rounds = 0;
    host::drive(&mut batch, policy.as_ref(), &ctx, Mode::Enforce, |_| {
        rounds += 1;
        if rounds == QUANTA {
            // Like a user's request: the batch ends its jobs and itself.
            fs::write(Path::new(folder).join(ASKED), "").unwrap();
            sys::kill(std::process::id(), libc::SIGTERM).unwrap();
        }
    })
    .unwrap();
    let turns = seen.borrow().each_ref().map(BTreeSet::len);
    assert_eq!(turns, [JOBS, JOBS], "everybody has had a turn and has waited");
    let gaps = batch.gaps();
    let end = batch.finish();
    assert_eq!(end.restored.failed, 0, "{end:?}");
    assert!(gaps.count > 0 && end.signal == Some(libc::SIGTERM), "{end:?}");
    say(&format!("end {gaps:?}"));
}

struct Jobs {
    dir: TempDir,
    mechanism: Mechanism,
}

impl Jobs {
    fn batch(&self) -> Command {
        let (state, mechanism) = (self.state(), format!("{:?}", self.mechanism));
        command("batcher", &[state.to_str().unwrap(), &mechanism, self.dir.path().to_str().unwrap()])
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn pid(&self, job: usize) -> Option<u32> {
        fs::read_to_string(self.dir.path().join(format!("{job}.pid"))).ok()?.trim().parse().ok()
    }

    fn were_asked_to_end(&self) -> bool {
        self.dir.path().join(ASKED).exists()
    }

    fn all_run(&self, case: &str) {
        for job in (0..JOBS).filter(|job| self.pid(*job).is_some()) {
            let size = || fs::metadata(self.dir.path().join(job.to_string())).map_or(0, |meta| meta.len());
            let before = size();
            eventually(&format!("{case}: job {job} runs"), || size() > before + 1);
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for pid in (0..JOBS).filter_map(|job| self.pid(job)) {
            let _ = sys::kill_group(pid);
        }
    }
}

/// Crash points that a batch reaches only when undoing: they belong to other tests.
fn beyond(point: &str) -> bool {
    point.starts_with("journal.compact") || point.starts_with("restore.") || point.starts_with("resume.")
}

#[test]
fn a_batch_that_dies_at_any_point_leaves_all_jobs_running() {
    if two_cpus().is_none() {
        return;
    }
    for mechanism in mechanisms() {
        let mut deaths = 0;
        for point in fault::points(fault::STEPS).chain(fault::points(fault::PAUSE_STEPS)).filter(|point| !beyond(point))
        {
            for n in [1, 4] {
                // A job without a known id ends when its folder has gone.
                let jobs = Jobs { dir: TempDir::new("batch"), mechanism };
                let (fired, case) = (jobs.dir.path().join("fired"), format!("{mechanism}: {point}, time {n}"));
                let mut batch = Player::start(dying(jobs.batch(), &format!("main:{point}:{n}"), &fired));
                let status = batch.end();
                if fs::remove_file(&fired).is_ok() {
                    assert_eq!(status.signal(), Some(libc::SIGKILL), "{case}");
                    if !jobs.were_asked_to_end() {
                        jobs.all_run(&case);
                    }
                    deaths += 1;
                } else {
                    assert!(status.success(), "{case}: {status}");
                }
                // A process that died before naming the journal has left a draft of it.
                let report = restore(&jobs.state());
                assert_eq!((report.failed, journals(&jobs.state())), (0, 0), "{case}: {report:?}");
            }
        }
        assert!(deaths > 20, "{mechanism}: died {deaths} times");
        eprintln!("{mechanism}: died {deaths} times");
    }
}

#[test]
fn jobs_take_turns_and_end_when_asked() {
    if two_cpus().is_none() {
        return;
    }
    for mechanism in mechanisms() {
        let jobs = Jobs { dir: TempDir::new("turns"), mechanism };
        let mut batch = Player::start(jobs.batch());
        batch.hear("end");
        assert!(batch.end().success());
        for pid in (0..JOBS).filter_map(|job| jobs.pid(job)) {
            let ended = || thread::process_stat(pid).is_none_or(|stat| stat.is_dead());
            eventually("it has ended", ended);
        }
        assert_eq!(journals(&jobs.state()), 0);
    }
}
