//! Waits of real programs on the running kernel, compared with the kernel's own counts.
//!
//! Where BPF is not allowed, a test reports that and is skipped.

mod requests;

use cotenant_bpf::Tracer;
use cotenant_model::{AppId, Cause, Time, Waits};
use cotenant_testing::{TempDir, eventually, spawn_fresh};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

const VICTIM: AppId = AppId(3);
const BESIDE: AppId = AppId(7);
const SPIN: &str = "while :; do :; done";

/// A shell with its own name on CPU 0; killed with all its children.
struct Spinner(Child);

impl Spinner {
    fn start(folder: &Path, name: &str, script: &str) -> Self {
        use std::os::unix::process::CommandExt;
        let program = folder.join(name);
        if !program.exists() {
            fs::copy("/bin/sh", &program).unwrap();
        }
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(&program).args(["-c", script]).process_group(0);
        let spinner = Self(spawn_fresh(&mut command));
        eventually("it has its name", || spinner.proc("comm").trim() == name);
        spinner
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid())).unwrap_or_default()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a process group of ours that was not waited for yet.
        assert_eq!(unsafe { libc::kill(-(self.pid() as i32), signal) }, 0);
    }

    /// Stops it, and waits for the stop.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        eventually("it has stopped", || self.proc("stat").contains(") T "));
    }

    fn run_delay(&self) -> u64 {
        self.proc("schedstat").split(' ').nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.0.wait();
    }
}

/// A tracer, and the time of its start.
struct Live(Tracer, Instant);

impl Live {
    fn new() -> Option<Self> {
        match Tracer::load() {
            Ok(tracer) => {
                assert_eq!(tracer.missing(), [""; 0], "this kernel has all tracepoints");
                Some(Self(tracer, Instant::now()))
            }
            Err(why) => {
                eprintln!("skipped: {why}");
                None
            }
        }
    }

    fn follow(&mut self, all: &[(&Spinner, AppId)]) {
        self.0.follow(all.iter().map(|(spinner, app)| (spinner.pid(), *app))).unwrap();
    }

    fn read(&mut self) -> Waits {
        self.0.read(Time(self.1.elapsed().as_nanos() as u64), |id| format!("group {id}")).unwrap();
        self.0.waits(VICTIM).cloned().unwrap_or_default()
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Waits) -> bool) -> Waits {
        let mut waits = Waits::default();
        eventually(what, || {
            waits = self.read();
            holds(&waits)
        });
        waits
    }

    /// Reads until so many more waits have ended.
    fn until_ended(&mut self, since: &Waits, count: u64) -> Waits {
        self.until("its waits have ended", |waits| waits.count >= since.count + count)
    }

    /// Reads until it has waited for so much longer.
    fn until_waited(&mut self, since: &Waits, ns: u64) -> Waits {
        self.until("it has waited", |waits| waits.ns >= since.ns + ns)
    }
}

fn is_program(cause: &Cause, name: &str) -> bool {
    matches!(cause, Cause::Program { program, .. } if program == name)
}

fn behind(waits: &Waits, is: impl Fn(&Cause) -> bool) -> u64 {
    waits.behind.iter().filter(|(cause, _)| is(cause)).map(|(_, ns)| ns).sum()
}

/// What is seen is the kernel's `run_delay`, and all of it is laid on something, the program beside it above all.
/// Promise see/waits-behind: With BPF, waits for a CPU match the kernel's figure within 3 %, and 99 % are attributed
/// to what ran meanwhile.
#[test]
fn waits_are_the_kernels_run_delay_and_are_laid_on_what_ran() {
    let Some(mut live) = Live::new() else { return };
    let folder = TempDir::new("waits");
    let [victim, noisy] = ["quiet", "noisy"].map(|name| Spinner::start(folder.path(), name, SPIN));
    victim.stop();
    let before = victim.run_delay();
    live.follow(&[(&victim, VICTIM)]);
    victim.signal(libc::SIGCONT);
    // On a CPU shared with other tests, a turn of the other may be a while away.
    let is_noisy = |cause: &Cause| is_program(cause, "noisy");
    live.until("it has waited behind the other", |waits| waits.ns >= 1_500_000_000 && behind(waits, is_noisy) > 0);
    victim.stop();
    let (seen, counted) = (live.read(), victim.run_delay() - before);
    assert!(seen.ns.abs_diff(counted) * 100 < counted * 3, "{} of {counted} ns", seen.ns);
    assert_eq!(seen.lengths.count(), seen.count);
    let laid: u64 = seen.behind.iter().map(|(_, ns)| ns).sum();
    assert!(laid.abs_diff(seen.ns) * 100 < seen.ns, "{laid} of {} ns", seen.ns);
    assert_eq!(behind(&seen, |cause| is_program(cause, "quiet")), 0, "one thread does not wait behind itself");
    drop(noisy);
}

/// What is observed is named as an application, its children with it, though nothing ever named these; and so are the
/// waits of children that live for moments.
/// Holds see/waits-behind.
#[test]
fn children_belong_to_the_application_of_their_parent() {
    let Some(mut live) = Live::new() else { return };
    let folder = TempDir::new("waits-children");
    let moments = |name: &str| {
        let moment = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        Spinner::start(folder.path(), name, &format!("while :; do ({moment}); done"))
    };
    let [victim, beside] = ["parent", "aside"].map(moments);
    live.follow(&[(&victim, VICTIM), (&beside, BESIDE)]);
    // The children of this moment were never named.
    let first = live.until_waited(&Waits::default(), 300_000_000);
    let before = victim.run_delay();
    let beside_of = |waits: &Waits| behind(waits, |cause| *cause == Cause::App(BESIDE));
    let both = |waits: &Waits| waits.ns >= first.ns + 1_000_000_000 && beside_of(waits) > 0;
    let seen = live.until("its children have waited, behind the other as well", both);
    let own = victim.run_delay() - before;
    assert!(own * 2 < seen.ns - first.ns, "its children waited, {} ns, and not itself, {own} ns", seen.ns);
    let of = |waits| behind(waits, |cause| is_program(cause, "aside"));
    assert_eq!(of(&seen), of(&first), "{:?}", seen.behind);
}

/// A program is blamed in every stretch in which it ran, and in none in which it did not.
/// Holds see/waits-behind.
#[test]
fn what_does_not_run_is_not_blamed() {
    let Some(mut live) = Live::new() else { return };
    let folder = TempDir::new("waits-stretches");
    let [victim, third] = ["waiter", "third"].map(|name| Spinner::start(folder.path(), name, SPIN));
    let onoff = Spinner::start(folder.path(), "onoff", SPIN);
    live.follow(&[(&victim, VICTIM)]);
    for _ in 0..3 {
        let of = |waits: &Waits| behind(waits, |cause| is_program(cause, "onoff"));
        onoff.signal(libc::SIGCONT);
        let before = of(&live.read());
        eventually("it is blamed", || of(&live.read()) > before);
        onoff.stop();
        // An earlier wait is counted at its end.
        let before = live.read();
        let before = live.until_ended(&before, 2);
        let after = live.until_ended(&before, 3);
        assert_eq!(of(&after), of(&before), "{before:?} {after:?}");
    }
    drop(third);
}

/// An application that is forgotten and comes back begins at nothing.
#[test]
fn an_application_that_comes_back_begins_anew() {
    let Some(mut live) = Live::new() else { return };
    let folder = TempDir::new("waits-anew");
    let [victim, _noisy] = ["comes", "loud"].map(|name| Spinner::start(folder.path(), name, SPIN));
    live.follow(&[(&victim, VICTIM)]);
    let first = live.until_waited(&Waits::default(), 300_000_000);
    live.follow(&[]);
    assert_eq!(live.read(), Waits::default(), "it is observed no more");
    live.follow(&[(&victim, VICTIM)]);
    let anew = live.read();
    assert!(anew.ns < first.ns, "{} < {}", anew.ns, first.ns);
    live.until_waited(&anew, 100_000_000);
}
