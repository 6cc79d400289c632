//! A run with a refused metric.

use cotenant_linux::host::{AppSpec, HostOptions, LinuxHost, Until, What};
use cotenant_linux::sense::{processes::Target, topology};
use cotenant_model::{Host, Time};
use cotenant_testing::eventually;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// After so long, and not before; once it has been, what was started is asked to end, which here is nothing.
/// Holds speed/bad-metric.
#[test]
fn a_metric_that_was_refused_for_long_ends_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let metric = format!("redis:{}:p99,every=20ms", taken.local_addr().unwrap());
    let host = |refused| {
        let running = What::Running(Target::Pids(vec![std::process::id()]));
        let app = AppSpec { metrics: vec![metric.parse().unwrap()], ..AppSpec::new("server".to_owned(), running) };
        let options = HostOptions { until: Until::AllEnd, refused, ..HostOptions::default() };
        LinuxHost::new(&topology::live().unwrap().topology, vec![app], options).unwrap()
    };
    let look = |host: &mut LinuxHost| {
        host.wait(Time(0));
        host.notes()
    };
    let mut patient = host(Some(Duration::from_secs(3_600)));
    eventually("it is refused", || {
        look(&mut patient);
        patient.metrics().iter().any(|metrics| metrics.refused_for(Duration::ZERO).is_some())
    });
    assert_eq!(look(&mut patient), [""; 0]);
    let mut notes = Vec::new();
    let mut hasty = host(Some(Duration::ZERO));
    eventually("it ends", || {
        notes = look(&mut hasty);
        !notes.is_empty()
    });
    assert!(notes[0].starts_with("the programs were asked to end: metric redis: ") && notes.len() == 1, "{notes:?}");
    assert!(notes[0].contains("refused"), "{notes:?}");
}
