//! Workloads by hand, on a host whose runs take the scripted time.

use super::compare::{Figures, gains};
use super::*;
use cotenant_model::Topology;
use cotenant_model::action::{Order, Outcome};
use cotenant_model::host::{Host, HostError, Wake};
use cotenant_model::policy::{Config, Ctx};
use cotenant_model::profile::MachineProfile;
use cotenant_model::sample::Sample;
use cotenant_model::testing::machine;
use std::collections::BTreeMap;

/// Seconds of a run of each job.
struct Made {
    topology: Topology,
    now: Time,
    lengths: Vec<u64>,
    running: Vec<(Time, usize)>,
    log: Vec<(u64, usize)>,
    fails: Option<usize>,
    samples: usize,
}

impl Made {
    fn new(lengths: &[u64]) -> Self {
        let lengths = lengths.to_vec();
        Self {
            topology: machine(1, 1, 2, 1),
            now: Time(7),
            lengths,
            running: vec![],
            log: vec![],
            fails: None,
            samples: 0,
        }
    }
}

impl Host for Made {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        self.samples += 1;
        Ok(Sample { at: self.now, ..Sample::default() })
    }

    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        vec![Outcome::Applied; orders.len()]
    }

    fn wait(&mut self, until: Time) -> Wake {
        let first = self.running.iter().map(|r| r.0).min().unwrap_or(until);
        self.now = self.now.max(first.min(until));
        if first <= until { Wake::TasksChanged } else { Wake::Tick }
    }
}

impl Launcher for Made {
    fn host(&self) -> &dyn Host {
        self
    }

    fn host_mut(&mut self) -> &mut dyn Host {
        self
    }

    fn now(&self) -> Time {
        self.now
    }

    fn start(&mut self, job: usize) -> Result<(), HostError> {
        self.log.push(((self.now.0 - 7) / 1_000_000_000, job));
        self.running.push((self.now + Duration::from_secs(self.lengths[job]), job));
        Ok(())
    }

    fn ended(&mut self) -> Vec<Ended> {
        let (over, left) = self.running.iter().partition(|r| r.0 <= self.now);
        self.running = left;
        let over: Vec<(Time, usize)> = over;
        let failure = |job: usize| (self.fails == Some(job)).then(|| "it failed with exit code 3".to_owned());
        over.into_iter().map(|(at, job)| Ended { job, at, failure: failure(job) }).collect()
    }
}

fn job(name: &str, arrival: Arrival, runs: u32) -> Job {
    Job { name: name.to_owned(), arrival, runs }
}

/// {0(A,2) 3(B,1) after B(C,2)}: A runs 0–5–10 s, B 3–7 s, C 7–8–9 s.
fn small() -> Workload {
    let jobs = vec![
        job("A", Arrival::At(Time(0)), 2),
        job("B", Arrival::At(Time::from_secs(3)), 1),
        job("C", Arrival::After(1), 2),
    ];
    Workload { jobs, restart: false, longest: None }
}

const LENGTHS: [u64; 3] = [5, 4, 1];

/// Holds measure/workloads.
#[test]
fn jobs_come_run_and_go() {
    let mut host = Made::new(&LENGTHS);
    let ran = run(&mut host, &small(), None, |_| ()).unwrap();
    assert_eq!(host.log, [(0, 0), (3, 1), (5, 0), (7, 2), (8, 2)]);
    assert_eq!(host.samples, 0, "nobody looks");
    let times: Vec<&[f64]> = ran.iter().map(|r| r.times_s.as_slice()).collect();
    assert_eq!(times, [&[5.0, 5.0][..], &[4.0], &[1.0, 1.0]]);
    assert_eq!(ran[2].began_s, [7.0, 8.0]);
    assert_eq!(small().to_string(), "{0(A,2) 3(B,1) after B(C,2)}");
}

/// {0(A,1) 0(B,2) 3(C,2)}, runs of 5, 4 and 1 s: A owes nothing from 5 s on, C from 5 s, B from 8 s. A and C start
/// again until then, and end what they have begun.
/// Holds measure/workloads.
#[test]
fn jobs_start_again_until_each_has_done_its_runs() {
    let mut workload = small();
    workload.restart = true;
    let at = |s| Arrival::At(Time::from_secs(s));
    workload.jobs = vec![job("A", at(0), 1), job("B", at(0), 2), job("C", at(3), 2)];
    let mut host = Made::new(&LENGTHS);
    let ran = run(&mut host, &workload, None, |_| ()).unwrap();
    assert_eq!(ran[0].began_s, [0.0, 5.0]);
    assert_eq!(ran[1].began_s, [0.0, 4.0]);
    assert_eq!(ran[2].began_s, [3.0, 4.0, 5.0, 6.0, 7.0]);
    assert!(ran.iter().all(|r| r.began_s.len() == r.times_s.len()), "each run ends");
}

#[test]
fn a_manager_looks_and_changes_no_time() {
    let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
    let mut host = Made::new(&LENGTHS);
    let topology = host.topology.clone();
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
    let policy = cotenant_policies::standard().make("resense", &config).unwrap();
    let mut rounds = 0;
    let managed = run(&mut host, &small(), Some((&*policy, &ctx)), |_| rounds += 1).unwrap();
    assert_eq!(managed, run(&mut Made::new(&LENGTHS), &small(), None, |_| ()).unwrap());
    assert!(rounds >= 100, "10 s at 100 ms, and at each change: {rounds}");
}

/// Holds measure/workloads.
#[test]
fn what_fails_or_takes_too_long_ends_it() {
    let mut host = Made::new(&LENGTHS);
    host.fails = Some(1);
    let error = run(&mut host, &small(), None, |_| ()).unwrap_err().to_string();
    assert_eq!(error, "B: it failed with exit code 3; a workload with a failing run cannot be compared");
    let workload = Workload { longest: Some(Duration::from_millis(4_500)), ..small() };
    let error = run(&mut Made::new(&LENGTHS), &workload, None, |_| ()).unwrap_err().to_string();
    assert_eq!(error, "A: a run still went on after 4.5 s; a workload with a failing run cannot be compared");
}

/// Holds measure/workloads.
#[test]
fn workloads_are_as_in_the_paper_and_the_same_for_the_same_seed() {
    let pool: Vec<String> = ('a'..='l').map(String::from).collect();
    for seed in 0..200 {
        for (size, programs) in [(Size::Small, 3), (Size::Medium, 4), (Size::Large, 8)] {
            let w = Workload::generate(size, &pool, SPAN, MOST_RUNS, seed);
            assert_eq!(w, Workload::generate(size, &pool, SPAN, MOST_RUNS, seed));
            assert_eq!(w.jobs.len(), programs);
            let mut names: Vec<&str> = w.jobs.iter().map(|j| j.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), programs, "none twice");
            assert!(w.jobs.iter().all(|j| (1..=10).contains(&j.runs)));
            assert_eq!(w.restart, size == Size::Medium);
            let at_once = w.jobs.iter().filter(|j| j.arrival == Arrival::At(Time(0))).count();
            assert!(at_once >= if size == Size::Large { 0 } else { 2 });
            assert_eq!(size == Size::Small, w.jobs[2].arrival == Arrival::After(1));
            let late = |j: &Job| matches!(j.arrival, Arrival::At(at) if at > Time::from_secs(400));
            assert!(!w.jobs.iter().any(late));
        }
    }
    let one = ["only".to_owned()];
    assert_eq!(Workload::generate(Size::Large, &one, SPAN, 1, 1).jobs.len(), 8, "a small pool serves again");
    assert!(Workload::generate(Size::Small, &[], SPAN, 1, 1).jobs.is_empty());
}

#[test]
fn figures_by_hand() {
    // Times 2 and 4: ART 3, throughput 0.75. With 1.6 and 4: ART 2.8, throughput 0.875.
    let (before, after) = (Figures::of_times(&[2.0, 4.0]).unwrap(), Figures::of_times(&[1.6, 4.0]).unwrap());
    assert_eq!((before.art_s, before.throughput), (3.0, 0.75));
    let [art, throughput] = after.over(&before);
    assert!((art - 100.0 / 15.0).abs() < 1e-9 && (throughput - 100.0 / 6.0).abs() < 1e-9);
    assert_eq!((Figures::of_times(&[]), Figures::of_times(&[0.0])), (None, None));
    let [art, _] = gains(&[(before, after)]);
    assert_eq!((art.ci95, art.p), (None, None), "one workload says nothing of chance");
    let worse = Figures::of_times(&[2.5, 4.1]).unwrap();
    let [art, throughput] = gains(&[(before, after), (before, after), (before, worse)]);
    assert!(art.p.unwrap() > 0.2 && throughput.p.unwrap() > 0.1, "{art:?} {throughput:?}");
    let [low, high] = art.ci95.unwrap();
    assert!(low < art.percent && art.percent < high && low < 0.0);
    let [art, _] = gains(&[(before, after), (worse, before), (worse, after)]);
    assert!(art.p.unwrap() < 0.1, "{art:?}");
}
