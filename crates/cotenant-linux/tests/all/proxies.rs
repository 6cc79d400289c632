//! Programs' work as a speed, for a client that requests it.

use cotenant_linux::host::{AppSpec, HostOptions, LinuxHost, What};
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sense::topology;
use cotenant_model::speed::{Ladder, Source, Standing};
use cotenant_model::{Host as _, Sample, Time, View, Wake};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that reads all the time, in children that live for some milliseconds each.
struct Reader(Child);

impl Reader {
    fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do head -c 8M /dev/zero; done"]).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn host(&self, proxies: bool) -> LinuxHost {
        let topology = topology::live().unwrap().topology;
        let options = HostOptions { proxies, ..HostOptions::default() };
        let what = What::Running(Target::Trees(vec![self.0.id()]));
        LinuxHost::new(&topology, vec![AppSpec::new("reader".to_owned(), what)], options).unwrap()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn after(ms: u64, before: &Sample, host: &mut LinuxHost) -> Sample {
    while host.wait(before.at + Duration::from_millis(ms)) != Wake::Tick {}
    host.sample().unwrap()
}

/// It may wait long for a CPU.
const PATIENCE: Duration = Duration::from_secs(300);

/// Holds speed/proxies.
#[test]
fn a_program_that_reads_has_a_speed() {
    let reader = Reader::start();
    let mut host = reader.host(true);
    let (mut prev, mut ladder) = (host.sample().unwrap(), Ladder::default());
    let steady = |ladder: &Ladder| {
        let all = ladder.all();
        let io = all.iter().find(|(source, ..)| **source == Source::Io);
        io.is_some_and(|(_, standing, spread)| *standing != Standing::Unknown && spread.is_some_and(|s| s.windows >= 8))
    };
    while !steady(&ladder) {
        let next = after(250, &prev, &mut host);
        let view = View::new(&prev, &next);
        assert!(view.apps[0].io.is_some(), "{:?}", view.apps[0]);
        assert_eq!(view.apps[0].tcp, None, "it has no connection");
        ladder.add(&view, &view.apps[0], &view.tasks.iter().collect::<Vec<_>>());
        assert!(next.at < Time::default() + PATIENCE, "{:?}", ladder.all());
        prev = next;
    }
    host.finish();
}

/// Holds speed/proxies.
#[test]
fn nothing_is_counted_unasked() {
    let reader = Reader::start();
    let mut host = reader.host(false);
    let first = host.sample().unwrap();
    let apps = after(100, &first, &mut host).apps;
    assert_eq!((apps[0].io, apps[0].tcp), (None, None));
    host.finish();
}
