//! Applications are added to a host and removed while it manages others.

use super::roles::{host_command, journals, options, say, two_cpus};
use crate::act::throttle::Enforcer;
use crate::host::{AppSpec, HostOptions, LinuxHost, Until, What};
use crate::sense::memory;
use crate::sense::processes::Target;
use crate::sense::topology;
use crate::sys;
use crate::sys::launch::Child;
use crate::sys::thread::process_stat;
use cotenant_model::{Action, AppId, CpuSet, Host, Order, Outcome, Reason, Sample, Wake};
use cotenant_testing::{Player, TempDir, eventually};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn order(action: Action, affinity: &CpuSet) -> Order {
    Order { action, affinity: affinity.clone(), reason: Reason::new("test", "test") }
}

/// The only task of an application.
fn task(sample: &Sample, app: AppId) -> (cotenant_model::TaskId, u32) {
    let info = &sample.tasks.iter().find(|task| task.info.app == app).unwrap().info;
    (info.id, info.tid)
}

fn claims(state_dir: &Path) -> String {
    let files = fs::read_dir(state_dir).unwrap().flatten().map(|entry| entry.path());
    let mut claims = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("claims-"));
    fs::read_to_string(claims.find(|path| path.extension().is_none()).unwrap()).unwrap()
}

/// Manages three applications, two of which end: `STATE_DIR`.
pub fn roster(args: &[String]) {
    let state_dir = Path::new(&args[0]);
    let [cpu, _] = two_cpus().unwrap();
    let journal = Some(options(state_dir));
    let host = HostOptions { act: true, until: Until::Asked, journal, ..HostOptions::default() };
    let mut host = LinuxHost::new(&topology::live().unwrap().topology, Vec::new(), host).unwrap();
    let ids = |sample: &Sample| sample.apps.iter().map(|app| app.id.0).collect::<Vec<_>>();
    assert_eq!(ids(&host.sample().unwrap()), [0; 0]);

    // A started one, in its own groups if possible, and a running one.
    let stranger = Child::spawn_command(sleeper()).unwrap();
    let started = AppSpec { throttled: Some(Enforcer::Outside), ..AppSpec::command("started".into(), sleeper()) };
    let started = host.add(started).unwrap();
    let attached = What::Running(Target::Pids(vec![stranger.pid()]));
    let attached = host.add(AppSpec::new("attached".into(), attached)).unwrap();
    let sample = host.sample().unwrap();
    assert_eq!(ids(&sample), [0, 1]);
    let (mine, theirs) = (task(&sample, started), task(&sample, attached));
    let before = sys::getaffinity(theirs.1).unwrap();
    let place = |task| order(Action::Place { task, contexts: cpu.clone() }, &cpu);
    assert_eq!(host.apply(&[place(mine.0), place(theirs.0)]), [Outcome::Applied; 2], "{:?}", host.notes());
    assert_eq!([mine.1, theirs.1].map(|tid| sys::getaffinity(tid).unwrap()), [cpu.clone(), cpu.clone()]);

    // A program that was only placed can be paused by signals.
    assert_eq!(host.apply(&[order(Action::Pause { task: theirs.0 }, &cpu)]), [Outcome::Applied]);
    eventually("it stands still", || process_stat(theirs.1).unwrap().state == b'T');
    assert!(claims(state_dir).contains(&format!(" {} ", theirs.1)));
    host.remove(attached);
    eventually("it runs", || process_stat(theirs.1).unwrap().state == b'S');
    assert_eq!(sys::getaffinity(theirs.1).unwrap(), before, "it has its own mask");
    assert!(!claims(state_dir).contains(&format!(" {} ", theirs.1)), "another Cotenant may have it");
    assert_eq!(sys::getaffinity(mine.1).unwrap(), cpu, "the other one stays managed");

    // Ids are not reused, and orders about ended applications have no effect.
    let third = host.add(AppSpec::command("third".into(), sleeper())).unwrap();
    let sample = host.sample().unwrap();
    assert_eq!((third, ids(&sample)), (AppId(2), vec![0, 2]));

    // A policy with further needs gets them for the existing ones.
    assert!(sample.apps.iter().all(|app| app.io.is_none()));
    let memory = memory::Options { placement: true, accesses: true, ..memory::Options::default() };
    host.look_at(&HostOptions { memory, proxies: true, ..HostOptions::default() });
    let sample = host.sample().unwrap();
    assert!(sample.apps.iter().all(|app| app.io.is_some()) && ids(&sample) == [0, 2], "{sample:?}");
    let nap = Action::Nap { app: attached, until: sample.at + Duration::from_secs(1) };
    assert_eq!(host.apply(&[order(nap, &cpu), place(theirs.0)]), [Outcome::Gone; 2]);
    sys::kill(mine.1, libc::SIGKILL).unwrap();
    assert_eq!(host.wait(sample.at + Duration::from_secs(60)), Wake::TasksChanged);
    let ended: Vec<_> = host.take_ended().into_iter().map(|ended| (ended.app, ended.code)).collect();
    assert_eq!((ended, host.take_ended().len()), (vec![(started, 137)], 0));
    host.remove(started);
    assert_eq!(ids(&host.sample().unwrap()), [2]);
    host.ask_to_end(libc::SIGTERM);
    let finish = host.finish();
    assert_eq!((finish.restored.failed, finish.restored.foreign), (0, 0), "{finish:?}");
    sys::kill(stranger.pid(), libc::SIGKILL).unwrap();
    say("done");
}

#[test]
fn applications_come_and_go() {
    if two_cpus().is_none() {
        return;
    }
    let dir = TempDir::new("roster");
    let mut host = Player::start(host_command("roster", &[dir.path().to_str().unwrap()]));
    host.hear("done");
    assert!(host.end().success());
    assert_eq!(journals(dir.path()), 0);
}
