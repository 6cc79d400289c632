//! The background without a control group: scheduling policies and the weight of sessions are restored after any
//! process died.

use super::roles::{Subject, command, dying, host_command, infos, journal, journals, options, say};
use crate::act::background::threads::is_privileged;
use crate::act::background::{Background, capability};
use crate::act::restore;
use crate::act::throttle::Enforcer;
use crate::fault;
use crate::host::{AppSpec, HostOptions, LinuxHost, Until, What};
use crate::notes::Notes;
use crate::sense::processes::Target;
use crate::sense::topology;
use crate::sys;
use crate::sys::thread::{self, numbers_in};
use cotenant_model::{Action, AppId, CpuSet, Host, Order, Reason};
use cotenant_testing::{Player, TempDir, eventually, kills, pass};
use std::ffi::c_int;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An ordinary user of this machine.
const NOBODY: u32 = 65_534;

/// Takes the threads of a process to the background and back: `STATE_DIR PID STEP…`. Each step prints the state. `hold`
/// waits for a line, where `PID` adds a process; with `of:FOLDER` it is the members of that control group.
pub fn backgrounder(args: &[String]) {
    let [state_dir, pid, steps @ ..] = args else { panic!("usage: STATE_DIR PID STEP…") };
    let (mut pids, mut notes) = (vec![pid.parse::<u32>().unwrap()], Notes::default());
    let (mut journal, mut background) = (journal(Path::new(state_dir)), Background::default());
    let mut lines = std::io::stdin().lines();
    for step in steps {
        let threads = |pid: &u32| infos(*pid, &numbers_in(&format!("/proc/{pid}/task")));
        let tasks: Vec<_> = pids.iter().flat_map(threads).collect();
        journal.tend();
        match step.as_str() {
            "on" | "off" => {
                let turned = background.turn(&mut journal, step == "on", &tasks, true, &mut notes);
                say(&format!("{step} {turned:?} {:?}", notes.iter().collect::<Vec<_>>()));
            }
            // Others may have exhausted the limit of an ordinary user.
            "await" => eventually("its session has it", || {
                background.tend(&mut journal, &tasks, true, &mut notes);
                nice(pids[0]).is_none_or(|nice| nice == 19) || !by_session()
            }),
            "doctor" => say(&format!("doctor {}", capability().found)),
            "look" => background.tend(&mut journal, &tasks, true, &mut notes),
            "hold" => {
                say(&format!("hold {}", journal.guardian().unwrap_or(0)));
                let line = lines.next().unwrap_or_else(|| Ok(String::new())).unwrap();
                pids.extend(line.parse::<u32>());
            }
            "end" => {
                notes.extend(background.end(&mut journal));
                let notes: Vec<_> = notes.iter().collect();
                return say(&format!("end {notes:?} {:?}", journal.finish()));
            }
            group if group.starts_with("of:") => background = Background::of_group(Path::new(&group[3..])),
            other => panic!("no step {other}"),
        }
    }
}

/// A process and its state folder.
struct Case {
    dir: TempDir,
    subject: Subject,
    pid: u32,
    user: Option<(u32, u64)>,
}

/// The owner of its session. Its own session has a weight if Linux shares CPUs by session; a shared one keeps its
/// weight, so that only `SCHED_IDLE` remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    Own,
    Shared,
}

impl Case {
    fn new(session: Session, threads: usize) -> Self {
        Self::of(session, threads, None, TempDir::new("background"))
    }

    /// The same as an ordinary user with that `RLIMIT_NICE`; `None`, announced, where we cannot become that.
    fn of_nobody(session: Session, threads: usize, limit: u64) -> Option<Self> {
        if sys::euid() != 0 {
            eprintln!("skipped: only root can start a process as another user");
            return None;
        }
        let mut probe = Command::new("true");
        become_user(&mut probe, (NOBODY, limit));
        if let Err(why) = probe.status() {
            eprintln!("skipped in part: no ordinary user with RLIMIT_NICE {limit} here ({why})");
            return None;
        }
        let dir = TempDir::new("background-nobody");
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self::of(session, threads, Some((NOBODY, limit)), dir))
    }

    fn of(session: Session, threads: usize, user: Option<(u32, u64)>, dir: TempDir) -> Self {
        let mut command = command("subject", &[&threads.to_string()]);
        if session == Session::Shared {
            command = child_of_a_shell(&command);
        }
        if let Some(user) = user {
            become_user(&mut command, user);
        }
        // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
        unsafe {
            command.pre_exec(sys::setsid);
        }
        let subject = Subject::from_command(command);
        let status = fs::read_to_string(format!("/proc/{}/status", subject.tids[0])).unwrap();
        let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:")).unwrap().trim().parse().unwrap();
        Self { dir, subject, pid, user }
    }

    /// Whether the session's weight is its background; otherwise `SCHED_IDLE` is.
    fn by_weight(&self) -> bool {
        self.pid == self.subject.player.pid() && by_session()
    }

    /// Whether all are in the background.
    fn is_in_background(&self) -> bool {
        let [policy, nice] = if self.by_weight() { [libc::SCHED_OTHER, 19] } else { [libc::SCHED_IDLE, 0] };
        self.all_have(policy) && self.nice().is_none_or(|found| found == nice)
    }

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    fn command(&self, steps: &[&str]) -> Command {
        let (state, pid) = (self.state(), self.pid.to_string());
        let args: Vec<&str> = [state.to_str().unwrap(), &pid].into_iter().chain(steps.iter().copied()).collect();
        let mut command = command("backgrounder", &args);
        if let Some(user) = self.user {
            become_user(&mut command, user);
        }
        command
    }

    fn start(&self, steps: &[&str]) -> Player {
        Player::start(self.command(steps))
    }

    fn policies(&self) -> Vec<c_int> {
        self.subject.tids.iter().map(|tid| policy(*tid)).collect()
    }

    fn nice(&self) -> Option<i32> {
        nice(self.pid)
    }

    fn all_have(&self, policy: c_int) -> bool {
        self.policies().iter().all(|p| p & !libc::SCHED_RESET_ON_FORK == policy)
    }

    fn is_as_before(&self, case: &str) {
        let as_before = || self.all_have(libc::SCHED_OTHER) && self.nice().is_none_or(|nice| nice == 0);
        eventually(&format!("{case}: {:?}, nice {:?}", self.policies(), self.nice()), as_before);
    }

    /// Everything is restored, and `restore` finds nothing to do, if it may be called.
    fn is_undone(&self, case: &str) {
        self.is_as_before(case);
        // Interrupted compactions leave drafts.
        let journals = || fs::read_dir(self.state()).unwrap().map(|entry| entry.unwrap().path());
        let at_work = |path: &Path| path.extension().is_none() && path.to_string_lossy().contains("/journal-");
        eventually(&format!("{case}: the guardian has finished"), || !journals().any(|path| at_work(&path)));
        if self.user.is_none() {
            let report = restore(&self.state());
            assert_eq!((report.restored, report.failed), (0, 0), "{case}: {report:?}");
        }
    }
}

/// The same as a child of a shell.
fn child_of_a_shell(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    let exe = std::env::current_exe().unwrap(); // the shell's own would be /proc/self/exe
    shell.args(["-c", r#""$@"; :"#, "sh"]).arg(exe).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    shell
}

/// Runs a command as that user, with that `RLIMIT_NICE`.
fn become_user(command: &mut Command, (user, limit): (u32, u64)) {
    let done = |result: c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: between fork and exec it makes async-signal-safe system calls alone; the limit is the closure's own.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            done(libc::setrlimit(libc::RLIMIT_NICE, &raw const limit))?;
            done(libc::setgroups(0, std::ptr::null()))?;
            done(libc::setgid(user))?;
            done(libc::setuid(user))
        });
    }
}

fn policy(tid: u32) -> c_int {
    sys::getscheduler(tid).unwrap()
}

/// The nice value of a process' session, if it has one.
fn nice(pid: u32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    text.trim().rsplit_once(' ')?.1.parse().ok()
}

/// Whether CPU time is shared by session here; prints a message if not.
fn by_session() -> bool {
    let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    let by_session = enabled.is_ok_and(|text| text.trim() == "1")
        && fs::read_to_string("/proc/self/cgroup").is_ok_and(|groups| {
            // Good enough for a test: all hierarchies with the controller, or the only one.
            groups.lines().all(|line| !(line.contains(":cpu") || line.starts_with("0::")) || line.ends_with(":/"))
        });
    if !by_session {
        eprintln!("skipped in part: no autogroups here");
    }
    by_session
}

/// Whether we may take threads out of `SCHED_IDLE`; prints a message if not.
fn privileged() -> bool {
    if !is_privileged() {
        eprintln!("skipped: SCHED_IDLE cannot be taken back by this user");
    }
    is_privileged()
}

/// Holds undo/limits, qos/background.
#[test]
fn threads_or_their_session_go_to_the_background_and_come_back() {
    if !privileged() {
        return;
    }
    for session in [Session::Own, Session::Shared] {
        let case = Case::new(session, 3);
        // A batch program stays one, and so does one that resets its children's policy.
        sys::setscheduler(case.subject.tids[1], libc::SCHED_BATCH).unwrap();
        sys::setscheduler(case.subject.tids[2], libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK).unwrap();
        let before = case.policies();
        let idle = libc::SCHED_IDLE;
        let (means, there) = if case.by_weight() {
            ("autogroup nice 19", (before.clone(), Some(19)))
        } else {
            ("SCHED_IDLE", (vec![idle, idle, idle | libc::SCHED_RESET_ON_FORK], case.nice()))
        };
        let back = (before, case.nice());
        let state = || (case.policies(), case.nice());
        let mut player = case.start(&["doctor", "on", "hold", "off", "hold", "on", "hold", "end"]);
        let (told, said) = (player.hear("doctor"), player.hear("on"));
        assert!(told.contains(means), "{told}");
        assert!(said.contains(&format!("Ok(Some({means:?}))")), "{said}");
        for expected in [&there, &back, &there] {
            player.hear("hold");
            assert_eq!(state(), *expected, "{session:?}");
            player.say("");
        }
        let said = player.hear("end");
        assert!(said.contains("failed: 0"), "{said}");
        assert_eq!(said.starts_with("[] "), case.by_weight() || !by_session(), "{said}");
        assert!(player.end().success());
        assert_eq!(state(), back);
        assert_eq!(journals(&case.state()), 0);
    }
}

/// Who was seen there, and who was not: at the next look after it was turned off, however late that comes.
/// Holds undo/limits.
#[test]
fn who_was_born_in_the_background_comes_back_too() {
    if !privileged() {
        return;
    }
    let mut case = Case::new(Session::Shared, 2);
    let mut player = case.start(&["on", "hold", "look", "hold", "off", "look", "hold", "end"]);
    player.hear("hold");
    let seen = case.subject.act("thread", 0);
    player.say("");
    player.hear("hold");
    let (thread, child) = (case.subject.act("thread", 0), case.subject.act("fork", 1));
    assert_eq!([seen, thread, child].map(policy), [libc::SCHED_IDLE; 3]);
    player.say(&child.to_string());
    player.hear("hold");
    assert_eq!([seen, thread, child].map(policy), [libc::SCHED_OTHER; 3]);
    sys::kill(child, libc::SIGKILL).unwrap();
    player.say("");
    assert!(player.hear("end").contains("failed: 0"));
}

/// Holds undo/limits.
#[test]
fn whoever_is_killed_the_background_is_taken_back() {
    if !privileged() {
        return;
    }
    let ways = [Session::Own, Session::Shared].into_iter().flat_map(|s| [false, true].map(|both| (s, both)));
    for (session, both) in ways {
        for what in ["thread", "fork", "orphan"] {
            let mut case = Case::new(session, 2);
            let weight = case.by_weight();
            // Children do not inherit the flag.
            for tid in numbers_in(&format!("/proc/{}/task", case.pid)) {
                sys::setscheduler(tid, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK).unwrap();
            }
            let mut player = case.start(&["on", "hold"]);
            let guardian: u32 = player.hear("hold").parse().unwrap();
            let born = case.subject.act(what, 0);
            assert_eq!((policy(born) == libc::SCHED_IDLE, nice(born) == Some(19)), (!weight, weight), "{what}");
            if both {
                sys::kill(guardian, libc::SIGKILL).unwrap();
            }
            player.kill();
            if both {
                eventually("the guardian is dead", || thread::process_stat(guardian).is_none_or(|s| s.is_dead()));
                assert!(case.is_in_background());
                let report = restore(&case.state());
                // The session; or the workers, the newborn and the main thread.
                let all = if weight { 1 } else { 4 };
                assert!(report.restored >= all && report.failed == 0, "{what}: {report:?}");
                assert_eq!(report.inherited >= 1, !weight, "{what}: {report:?}");
            }
            case.is_undone(what);
            assert_eq!((policy(born), nice(born).unwrap_or(0)), (libc::SCHED_OTHER, 0), "{what}, both: {both}");
            sys::kill(if what == "thread" { case.pid } else { born }, libc::SIGKILL).unwrap();
        }
    }
}

/// Holds undo/others-settings.
#[test]
fn a_policy_that_somebody_else_has_set_stays() {
    if !privileged() {
        return;
    }
    for killed in [false, true] {
        let case = Case::new(Session::Shared, 2);
        let mut player = case.start(&["on", "hold", "off", "end"]);
        let guardian: u32 = player.hear("hold").parse().unwrap();
        sys::setscheduler(case.subject.tids[0], libc::SCHED_BATCH).unwrap();
        if killed {
            sys::kill(guardian, libc::SIGKILL).unwrap();
            player.kill();
            let report = restore(&case.state());
            assert_eq!((report.foreign, report.failed), (1, 0), "{report:?}");
            assert!(report.notes.concat().contains("keeps the scheduling policy 3"), "{report:?}");
        } else {
            player.say("");
            let said = player.hear("end");
            assert!(
                said.contains("keeps scheduling policy 3 of another agent") && said.contains("failed: 0"),
                "{said}"
            );
        }
        assert_eq!(case.policies(), [libc::SCHED_BATCH, libc::SCHED_OTHER]);
    }
}

/// Holds undo/limits.
#[test]
fn an_ordinary_user_gets_only_what_can_be_taken_back() {
    // Without the limit SCHED_IDLE could not be left again.
    let Some(case) = Case::of_nobody(Session::Own, 2, 0) else { return };
    // Another process uses up the ordinary users' allowance of writes to session weights, until one attempt was made.
    let mut player = case.start(&["doctor", "hold", "on", "await", "hold", "end"]);
    let told = player.hear("doctor");
    assert_eq!(told, if by_session() { "autogroup nice 19" } else { "nothing that can be taken back" });
    player.hear("hold");
    let (tried, file) = (AtomicBool::new(false), format!("/proc/{}/autogroup", case.pid));
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !tried.load(Ordering::Relaxed) {
                let _ = fs::write(&file, "0");
                pass(Duration::from_millis(10));
            }
        });
        pass(Duration::from_millis(20));
        player.say("");
        let said = player.hear("on");
        tried.store(true, Ordering::Relaxed);
        said
    });
    player.hear("hold");
    assert!(case.all_have(libc::SCHED_OTHER), "{said}");
    if by_session() {
        assert!(said.contains(r#"Ok(Some("autogroup nice 19")) []"#), "{said}");
        assert_eq!(case.nice(), Some(19));
    } else {
        assert!(said.contains("NoBackground"), "{said}");
    }
    player.say("");
    let said = player.hear("end");
    assert!(said.contains("failed: 0"), "{said}");
    case.is_undone("without the limit");

    // With it, leaving is possible, for the guardian as well.
    let Some(case) = Case::of_nobody(Session::Shared, 2, 20) else { return };
    let mut player = case.start(&["doctor", "on", "hold"]);
    assert!(player.hear("doctor").ends_with("SCHED_IDLE"));
    let said = player.hear("on");
    player.hear("hold");
    assert!(said.contains(r#"Ok(Some("SCHED_IDLE"#) && case.all_have(libc::SCHED_IDLE), "{said}");
    player.kill();
    case.is_undone("with the limit");
}

/// What others do with their sessions is theirs.
/// Holds undo/others-settings.
#[test]
fn a_session_that_others_share_keeps_its_weight() {
    if !privileged() || !by_session() {
        return;
    }
    let case = Case::new(Session::Shared, 1);
    let mut player = case.start(&["on", "hold", "end"]);
    let said = player.hear("on");
    assert!(said.contains(r#"Ok(Some("SCHED_IDLE"))"#) && said.contains("shares its session"), "{said}");
    player.hear("hold");
    assert!(case.nice() == Some(0) && case.all_have(libc::SCHED_IDLE));
    player.say("");
    player.hear("end");
    assert!(case.all_have(libc::SCHED_OTHER));
}

/// Holds undo/crash-points.
#[test]
fn dying_at_any_point_leaves_nobody_in_the_background() {
    if !privileged() {
        return;
    }
    let cases = [Session::Own, Session::Shared].map(|session| Case::new(session, 1));
    let of_unit = format!("of:{}", cases[0].dir.path().join("unit").display());
    let reached = |point: &String| by_session() || !point.starts_with("background.session");
    for point in fault::points(fault::BACKGROUND_STEPS).filter(reached) {
        let case = &cases[usize::from(point.starts_with("background.thread"))];
        let in_unit = point.starts_with("background.unit").then_some(&of_unit[..]);
        let steps: Vec<&str> = in_unit.into_iter().chain(["on", "off", "on", "end"]).collect();
        for n in 1.. {
            let unit = ["idle", "weight"].map(|of| format!("unit/cpu.{of}"));
            unit.iter().zip(["0", "40"]).for_each(|(file, value)| case.dir.write(file, value));
            let (fired, what) = (case.dir.path().join("fired"), format!("{point}, time {n}"));
            let mut player = Player::start(dying(case.command(&steps), &format!("main:{point}:{n}"), &fired));
            let status = player.end();
            case.is_undone(&what);
            let left = unit.map(|file| fs::read_to_string(case.dir.path().join(file)).unwrap());
            assert_eq!(left, ["0", "40"], "{what}");
            if fs::remove_file(&fired).is_err() {
                assert!(status.success() && n > 1, "{what}: {status}");
                break;
            }
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{what}");
        }
    }
}

/// Holds undo/limits.
#[test]
fn random_kills_leave_nobody_in_the_background() {
    let of_root = |session| privileged().then(|| Case::new(session, 3));
    let cases = [
        of_root(Session::Own),
        of_root(Session::Shared),
        Case::of_nobody(Session::Own, 3, 0),
        Case::of_nobody(Session::Shared, 3, 20),
    ];
    let mut steps = vec!["on", "hold"];
    steps.extend(["off", "on"].repeat(4_000));
    for (case, moment) in
        cases.iter().flatten().flat_map(|case| kills(5, Duration::from_millis(30)).map(move |moment| (case, moment)))
    {
        let mut player = case.start(&steps);
        player.hear("hold");
        player.say("");
        pass(moment);
        player.kill();
        case.is_undone(&format!("{:?}, killed after {moment:?}", case.user));
    }
}

/// Puts a started program and a running one, `PID`, into the background until they end: `STATE_DIR PID`.
pub fn minder(args: &[String]) {
    let [state_dir, pid] = args else { panic!("usage: STATE_DIR PID") };
    let journal = Some(options(Path::new(state_dir)));
    let attached = AppSpec {
        throttled: Some(Enforcer::Auto),
        ..AppSpec::new("attached".into(), What::Running(Target::Trees(vec![pid.parse().unwrap()])))
    };
    let mut sleeper = Command::new("sleep");
    sleeper.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    let started = AppSpec { throttled: Some(Enforcer::Auto), ..AppSpec::command("started".into(), sleeper) };
    let options = HostOptions { act: true, until: Until::Asked, journal, ..HostOptions::default() };
    let mut host = LinuxHost::new(&topology::live().unwrap().topology, vec![attached, started], options).unwrap();
    let mut lines = std::io::stdin().lines();
    let (attached, started) = (AppId(0), AppId(1));
    for on in [true, false, true] {
        let pid = host.sample().unwrap().tasks.iter().find(|task| task.info.app == started).unwrap().info.pid;
        let orders = [attached, started].map(|app| Order {
            action: Action::Background { app, on },
            affinity: CpuSet::new(),
            reason: Reason::new("test", "test"),
        });
        let outcomes = host.apply(&orders);
        let limits: Vec<_> = host.slept().into_iter().map(|slept| slept.limit.unwrap_or_default()).collect();
        say(&format!("turned {pid} {outcomes:?} {limits:?} {:?}", host.notes()));
        lines.next();
    }
    host.remove(attached);
    say("removed");
    lines.next();
    host.ask_to_end(libc::SIGTERM);
    say(&format!("end {:?}", host.finish()));
}

/// As root what is started has a group, and what is attached its session; an ordinary user has no groups.
/// Holds undo/limits.
#[test]
fn programs_of_a_host_go_to_the_background_and_come_back() {
    let own = Session::Own;
    let cases = [is_privileged().then(|| Case::new(own, 1)), Case::of_nobody(own, 1, 0)];
    for case in cases.into_iter().flatten().filter(|_| by_session()) {
        let pid = case.pid.to_string();
        let mut command = host_command("minder", &[case.state().to_str().unwrap(), &pid]);
        if let Some(user) = case.user {
            become_user(&mut command, user);
        }
        let mut minder = Player::start(command);
        let mut started = 0;
        for on in [true, false, true] {
            let said = minder.hear("turned");
            assert!(said.contains("[Applied, Applied]"), "{said}");
            started = said.split(' ').next().unwrap().parse().unwrap();
            assert!(said.contains(r#"["autogroup nice 19", ""#) == on, "{said}");
            // Others may have exhausted the limit of an ordinary user.
            assert!(case.all_have(libc::SCHED_OTHER));
            assert!(case.user.is_some() || case.nice() == Some(if on { 19 } else { 0 }), "{on}");
            minder.say("");
        }
        minder.hear("removed");
        case.is_as_before("removed");
        minder.say("");
        let said = minder.hear("end");
        assert!(said.contains("failed: 0") && minder.end().success(), "{said}");
        eventually("it has ended", || thread::process_stat(started).is_none());
        case.is_undone("ended");
    }
}
