//! A started program behaves as if started without Cotenant.
//!
//! The starting process is this binary in a role, which runs before libtest: libtest's main thread would catch the
//! signals that [`Waiter`] blocks only in its own thread.

use cotenant_linux::act::placement::Placement;
use cotenant_linux::act::{self, EFFECTS};
use cotenant_linux::sys;
use cotenant_linux::sys::launch::{self, Child};
use cotenant_linux::sys::thread::{self, Held};
use cotenant_linux::sys::waiter::{Event, Waiter};
use cotenant_linux::undo;
use cotenant_linux::undo::{Journal, JournalOptions};
use cotenant_model::{CpuSet, TaskInfo, Time};
use cotenant_testing::{Player, TempDir, eventually};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};

/// The first argument of this binary in a role; the name of the role and its own arguments follow.
const ROLE: &str = "@role";

/// Runs the role in the arguments, if any.
pub fn run_if_asked() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [ROLE, "runner", ..] => runner(&args[2..]),
        [ROLE, "latecomer"] => latecomer(),
        [ROLE, "manager", state_dir, pid] => manager(Path::new(state_dir), pid.parse().unwrap()),
        [undo::SUBCOMMAND, ..] => {
            act::guard(args[1..].iter().map(Into::into));
            process::exit(0);
        }
        _ => {}
    }
}

/// Runs a command as `cotenant run` does, prints events, and ends with its code.
fn runner(args: &[String]) -> ! {
    let mut waiter = Waiter::new().unwrap();
    let mut command = Command::new(&args[0]);
    command.args(&args[1..]);
    let child = match Child::spawn_command(command) {
        Ok(child) => child,
        Err(e) => {
            println!("@error {e}");
            process::exit(e.exit_code().into());
        }
    };
    println!("@child {}", child.pid());
    waiter.watch(&child, true);
    if let Some(had) = std::env::var_os("HAD") {
        eventually("the program has had its signal", || Path::new(&had).exists());
    }
    loop {
        match waiter.wait(Some(Instant::now() + Duration::from_millis(20))).unwrap() {
            Event::Tick => println!("@tick"),
            Event::Signal(n) => println!("@signal {n}"),
            Event::Exited(_, status, _) => process::exit(launch::exit_code(status).into()),
        }
    }
}

/// Checks a program only when it has sent SIGINT, as Ctrl-C does, and is dead.
fn latecomer() -> ! {
    let mut waiter = Waiter::new().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "kill -INT $PPID"]);
    let child = Child::spawn_command(command).unwrap();
    eventually("it is dead", || state(child.pid()) == Some('Z'));
    waiter.watch(&child, true);
    println!("@first {:?}", waiter.wait(None).unwrap());
    println!("@then {:?}", waiter.wait(None).unwrap());
    drop(waiter);
    println!("@alive");
    process::exit(0);
}

/// Places a process on its first CPU, like `cotenant attach`, until a signal arrives.
fn manager(state_dir: &Path, pid: u32) -> ! {
    let mut waiter = Waiter::new().unwrap();
    let options = JournalOptions { state_dir: state_dir.to_owned(), ..JournalOptions::new().unwrap() };
    let mut journal = Journal::open(options, EFFECTS).unwrap();
    let held = Held::open(pid, pid).unwrap();
    let allowed = held.mask().unwrap();
    let affinity = CpuSet::single(allowed.first().unwrap());
    let info = TaskInfo { tid: pid, pid, start_ticks: held.stat.start_ticks, allowed, ..TaskInfo::default() };
    let outcome = Placement::default().apply(&mut journal, Time::default(), &info, Some(&affinity));
    println!("@placed {outcome:?}");
    let event = waiter.wait(None).unwrap();
    println!("@finish {event:?} {:?}", journal.finish());
    process::exit(0);
}

fn command(role: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([ROLE, role]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Player {
    Player::start(command("runner", args))
}

fn state(pid: u32) -> Option<char> {
    thread::process_stat(pid).map(|s| char::from(s.state))
}

/// Holds run/transparent.
#[test]
fn exit_codes_pass_through() {
    let code = |args: &[&str]| run(args).end().code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(128 + libc::SIGTERM));
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), Some(128 + libc::SIGKILL));
}

/// Holds run/transparent.
#[test]
fn what_cannot_be_started_says_so() {
    let dir = TempDir::new("exec");
    let text = dir.path().join("text");
    fs::write(&text, "no program").unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o644)).unwrap();
    let mut missing = run(&["/no/such/program"]);
    assert!(missing.hear("error").contains("/no/such/program: command not found"));
    assert_eq!(missing.end().code(), Some(127));
    for path in [&text, dir.path()] {
        let mut refused = run(&[path.to_str().unwrap()]);
        assert!(refused.hear("error").contains("cannot be executed: Permission denied"));
        assert_eq!(refused.end().code(), Some(126));
    }
}

/// Holds run/transparent.
#[test]
fn signals_pass_through() {
    for (name, signal) in
        [("TERM", libc::SIGTERM), ("HUP", libc::SIGHUP), ("INT", libc::SIGINT), ("USR1", libc::SIGUSR1)]
    {
        let script = format!("trap 'exit 9' {name}; echo @ready; while :; do sleep 0.01; done");
        let mut runner = run(&["sh", "-c", &script]);
        runner.hear("ready");
        sys::kill(runner.pid(), signal).unwrap();
        assert_eq!(runner.hear("signal"), signal.to_string());
        assert_eq!(runner.end().code(), Some(9), "{name}");
    }
}

#[test]
fn time_passes_meanwhile() {
    let mut runner = run(&["sleep", "1000"]);
    let child = runner.hear("child").parse().unwrap();
    runner.hear("tick");
    runner.hear("tick");
    sys::kill(child, libc::SIGKILL).unwrap();
    assert_eq!(runner.end().code(), Some(128 + libc::SIGKILL));
}

#[test]
fn no_signal_is_blocked_in_the_program() {
    let mut runner = run(&["sh", "-c", "sed -n 's/^SigBlk:/@blocked /p' /proc/self/status"]);
    assert_eq!(u64::from_str_radix(&runner.hear("blocked"), 16), Ok(0));
}

#[test]
fn a_program_that_its_user_has_stopped_stands_still_when_we_are_killed() {
    let mut runner = run(&["sleep", "1000"]);
    let child: u32 = runner.hear("child").parse().unwrap();
    sys::kill(child, libc::SIGSTOP).unwrap();
    eventually("it is stopped", || state(child) == Some('T'));
    let killed = runner.pid();
    runner.kill();
    eventually("it is an orphan", || thread::process_stat(child).is_none_or(|stat| stat.ppid != killed));
    assert_eq!(state(child), Some('T'));
    sys::kill(child, libc::SIGKILL).unwrap();
}

#[test]
fn what_it_leaves_behind_comes_to_us() {
    let mut runner =
        run(&["sh", "-c", "sh -c 'sleep 1000 <&- >&- 2>&- & echo @orphan $!'; echo @left $$; exec sleep 1000"]);
    // Not the runner's lines about its child: the two print in either order.
    let orphan: u32 = runner.hear("orphan").parse().unwrap();
    let child: u32 = runner.hear("left").parse().unwrap();
    eventually("it is adopted", || thread::process_stat(orphan).is_some_and(|s| s.ppid == runner.pid()));
    sys::kill(orphan, libc::SIGKILL).unwrap();
    eventually("it is reaped", || thread::process_stat(orphan).is_none());
    sys::kill(child, libc::SIGKILL).unwrap();
}

#[test]
fn sigterm_gives_the_masks_back() {
    let before = sys::getaffinity(0).unwrap();
    if before.len() < 2 {
        return eprintln!("skipped: this test needs two CPUs, and there is one");
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let dir = TempDir::new("sigterm");
        let mut subject = Player::start(command("runner", &["sleep", "1000"]));
        let pid = subject.pid();
        let mut manager = Player::start(command("manager", &[dir.path().to_str().unwrap(), &pid.to_string()]));
        assert_eq!(manager.hear("placed"), "Applied");
        assert_eq!(sys::getaffinity(pid).unwrap().len(), 1);
        sys::kill(manager.pid(), signal).unwrap();
        let report = manager.hear("finish");
        assert!(report.starts_with(&format!("Signal({signal})")) && report.contains("restored: 1"), "{report}");
        assert!(manager.end().success());
        assert_eq!(sys::getaffinity(pid).unwrap(), before);
        sys::kill(pid, libc::SIGTERM).unwrap();
        subject.end(); // it passes the signal on before
    }
}

/// A new pseudo-terminal: our end, the program's end.
fn pty() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: both descriptors are writable; null stands for no name, default settings and default size. The new
    // descriptors are ours only.
    unsafe {
        assert_eq!(libc::openpty(&raw mut ours, &raw mut theirs, none, none.cast(), none.cast()), 0);
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

/// Reads a terminal until a line contains the word; returns the text until then.
fn read_until(terminal: &mut File, word: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 256];
    while !text.contains(word) {
        let n = terminal.read(&mut buffer).unwrap_or_else(|e| panic!("{e} before {word} in {text:?}"));
        text.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    text
}

/// A shell with job control on its own terminal, which runs `script`; `$RUN` in it is the runner.
fn shell(script: &str) -> (File, process::Child) {
    let (ours, theirs) = pty();
    let exe = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-mc", &script.replace("$RUN", &format!("{} {ROLE} runner", exe.display()))]);
    let fd = || theirs.try_clone().unwrap();
    shell.stdin(fd()).stdout(fd()).stderr(fd());
    // SAFETY: two async-signal-safe system calls: a new session, with standard input as its terminal.
    unsafe {
        shell.pre_exec(|| {
            sys::setsid()?;
            if libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    (ours, shell.spawn().unwrap())
}

/// Holds run/transparent.
#[test]
fn ctrl_c_reaches_the_program_once() {
    // The runner handles its own signal after the program got one: passing it on would be a second one.
    let dir = TempDir::new("once");
    let had = dir.path().join("had").display().to_string();
    let program =
        r#"trap "n=x\$n; : >\$HAD" INT; echo READY; while [ -z "$n" ]; do sleep 0.01; done; read x; echo GOT=$n"#;
    let (mut terminal, mut shell) = shell(&format!("HAD={had} $RUN sh -c '{program}'; echo CODE=$?"));
    read_until(&mut terminal, "READY");
    terminal.write_all(b"\x03").unwrap();
    let mut text = read_until(&mut terminal, &format!("@signal {}", libc::SIGINT));
    terminal.write_all(b"\n").unwrap();
    text += &read_until(&mut terminal, "CODE=");
    assert!(text.contains("GOT=x\r\n"), "{text}");
    shell.wait().unwrap();
}

#[test]
fn what_ended_the_program_does_not_kill_us_after_it() {
    let mut late = Player::start(command("latecomer", &[]));
    assert_eq!(late.hear("first"), format!("Signal({})", libc::SIGINT));
    assert!(late.hear("then").starts_with("Exited"));
    late.hear("alive");
    assert_eq!(late.end().code(), Some(0));
}

/// Holds run/transparent.
#[test]
fn ctrl_z_stops_both_and_fg_resumes_both() {
    let (mut terminal, mut shell) = shell("$RUN sleep 1000; read x; fg; echo CODE=$?");
    let text = read_until(&mut terminal, "@tick");
    let child: u32 = text.split_once("@child ").unwrap().1.split_ascii_whitespace().next().unwrap().parse().unwrap();
    let runner = thread::process_stat(child).unwrap().ppid;
    terminal.write_all(b"\x1a").unwrap();
    eventually("both are stopped", || state(child) == Some('T') && state(runner) == Some('T'));
    terminal.write_all(b"\n").unwrap();
    eventually("both go on", || state(child) == Some('S') && state(runner) != Some('T'));
    terminal.write_all(b"\x03").unwrap();
    read_until(&mut terminal, "CODE=130");
    shell.wait().unwrap();
}
