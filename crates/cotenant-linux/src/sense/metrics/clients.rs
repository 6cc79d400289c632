//! How long a server's clients wait for an answer, as the kernel sees it (BPF): no question is asked.
//!
//! A request of a client on this machine counts from when it was sent until the first of its answer was taken, with all
//! waits for a CPU on both sides. One of a client elsewhere counts at the server, from when it could be read until the
//! first byte of its answer left: what of its time passes on this machine.
//!
//! Above 10,000 per second they are counted in [windows](super::windows).

use super::error::FetchError;
use super::probe::Answers;
use super::seen::SeenRequests;
use super::stop::Stop;
use super::windows::{self, Windows};
use crate::sense::listening;
use cotenant_bpf::{self as bpf, Blind, Requests, Seen};
use cotenant_model::metric::{EVERY, Measured, QUANTILE, Service};
use cotenant_model::{Direction, Histogram};
use std::os::linux::fs::MetadataExt;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Time between two looks: trials go by what came in moments.
const LOOK: Duration = Duration::from_millis(50);

/// From this share of requests on that came before the answer to the one before, nothing is known of single ones.
const JOINED: f64 = 0.05;

/// So many of them are no accident.
const ACCIDENTS: f64 = 3.0;

/// What of earlier windows still counts for that.
const KEPT: f64 = 0.8;

/// What is read of latencies.
#[derive(Clone, Copy, Debug)]
pub enum Statistic {
    /// A quantile.
    Quantile(f64),
    /// How many clients have waited for longer than this, on average over time.
    Beyond(Duration),
}

/// Sees the requests to a server.
#[derive(Debug)]
pub struct Clients {
    service: Service,
    statistic: Statistic,
    /// Time of a reading.
    every: Duration,
    requests: Option<(Requests, Windows)>,
    place: Option<bpf::Service>,
    begun: Instant,
    /// What was seen until the last reading, when that was, and the time that was counted until then.
    before: Option<(Instant, Seen, Duration)>,
    answers: Answers,
    mixed: Mixed,
}

/// Whether connections have several requests under way, by recent requests.
#[derive(Debug, Default)]
struct Mixed {
    single: f64,
    joined: f64,
}

impl Mixed {
    /// What a window had.
    fn add(&mut self, single: u64, joined: u64) {
        self.single = self.single * KEPT + single as f64;
        self.joined = self.joined * KEPT + joined as f64;
    }

    /// Their share, where it is too large.
    fn too_many(&self) -> Option<f64> {
        let share = self.joined / (self.single + self.joined);
        (self.joined >= ACCIDENTS && share > JOINED).then_some(share)
    }
}

impl Clients {
    pub fn new(service: Service, statistic: Statistic, every: Duration) -> Self {
        let (requests, before, answers, mixed) = (None, None, Answers::default(), Mixed::default());
        Self { service, statistic, every, requests, place: None, begun: Instant::now(), before, answers, mixed }
    }

    /// Latencies of all requests, from now on too.
    pub fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// Whether it can be seen, and there is such a server.
    pub fn see(&mut self) -> Result<(), FetchError> {
        let is_busy = self.before.as_ref().is_some_and(|(_, seen, _)| seen.served.ns.count() > 0);
        let last = self.place.filter(|_| is_busy);
        let place = place(&self.service, last).map_err(|why| self.failed(&why))?;
        self.place = Some(place);
        if let Some((requests, _)) = &mut self.requests {
            return requests.follow(place).map_err(|why| self.failed(&why));
        }
        let requests = Requests::load(place).map_err(|why| self.blind(&why))?;
        self.begun = Instant::now();
        self.requests = Some((requests, Windows::new(self.begun, windows::Requests::default())));
        Ok(())
    }

    /// Looks for the time of a reading.
    pub fn fetch(&mut self, stop: &Stop) -> Result<Option<Measured>, FetchError> {
        self.see()?;
        let (begin, before, counted) = match self.before.take() {
            Some(before) => before,
            None => (Instant::now(), self.look()?, self.counted()),
        };
        let end = Instant::now() + self.every;
        while Instant::now() < end {
            let now = Instant::now();
            let due = self.requests.as_ref().and_then(|(_, windows)| windows.due(now)).unwrap_or(end);
            let wait = end.min(due).saturating_duration_since(now);
            if stop.within(LOOK.min(wait)) {
                return Err(FetchError::Stopped);
            }
            self.look()?;
        }
        let (now, seen) = (Instant::now(), self.look()?);
        let since = latencies(&seen).since(&latencies(&before)).unwrap_or_default();
        let joined = joined(&seen) - joined(&before);
        let counted_s = self.counted().saturating_sub(counted).as_secs_f64();
        self.before = Some((now, seen, self.counted()));
        self.mixed.add(since.count(), joined);
        if let Some(share) = self.mixed.too_many() {
            let why = format!(
                "{:.0} % of requests came before the previous answer, or in pieces. With several under way on a \
                 connection (HTTP/2, pipelining) the time of each is unknown; use http:, redis: or postgres:",
                share * 100.0
            );
            return Err(FetchError::Clients { service: self.service.clone(), why, certain: true });
        }
        let (window, count, direction) = (now - begin, since.count(), Direction::LowerIsBetter);
        let value = match self.statistic {
            Statistic::Quantile(q) => since.quantile(q).map(|ns| ns / 1e9),
            Statistic::Beyond(time) if counted_s > 0.0 => {
                since.beyond(time.as_nanos() as f64).map(|ns| ns / 1e9 / counted_s)
            }
            Statistic::Beyond(_) => None,
        };
        Ok(value.map(|value| Measured { value, window, count, direction }))
    }

    fn look(&mut self) -> Result<Seen, FetchError> {
        // A server that begins anew makes its socket anew.
        let follows = matches!(self.service, Service::Socket(_)).then(|| place(&self.service, None).ok()).flatten();
        let Some((requests, windows)) = &mut self.requests else { return Ok(Seen::default()) };
        let looked = Self::look_at(requests, windows, follows);
        let seen = looked.map_err(|why| self.failed(&why))?;
        if self.mixed.too_many().is_none() {
            let time = self.begun.elapsed().as_secs_f64();
            let of = |side: &bpf::Latencies| side.ns.count();
            let (here, elsewhere) = (of(&seen.local), of(&seen.remote));
            let share = if time > 0.0 { (self.counted().as_secs_f64() / time).min(1.0) } else { 1.0 };
            self.answers.replace(latencies(&seen), SeenRequests { here, elsewhere, share });
        }
        Ok(seen)
    }

    fn look_at(requests: &mut Requests, windows: &mut Windows, follows: Option<bpf::Service>) -> io::Result<Seen> {
        if let Some(place) = follows {
            requests.follow(place)?;
        }
        let seen = requests.read()?;
        let so_far = windows::Requests { begun: seen.begun, answered: seen.served.ns.count() };
        if let Some(counted) = windows.step(Instant::now(), so_far) {
            requests.count(counted)?;
        }
        Ok(seen)
    }

    /// The time in which requests were counted.
    fn counted(&self) -> Duration {
        self.requests.as_ref().map_or(Duration::ZERO, |(_, windows)| windows.time(Instant::now()))
    }

    fn failed(&self, why: &io::Error) -> FetchError {
        let (service, cure, certain) = (self.service.clone(), super::wire::cure(why), super::wire::is_certain(why));
        FetchError::Clients { service, why: format!("{why}{cure}"), certain }
    }

    /// Rights and kernels stay what they are.
    fn blind(&self, why: &Blind) -> FetchError {
        let why = format!("requests cannot be seen here: {why}; use http:, redis: or postgres:");
        FetchError::Clients { service: self.service.clone(), why, certain: true }
    }
}

/// Whether it can be seen here what clients of a service wait.
pub fn sees_clients(service: &Service) -> bool {
    Clients::new(service.clone(), Statistic::Quantile(QUANTILE), EVERY).see().is_ok()
}

/// Of each request once.
fn latencies(seen: &Seen) -> Histogram {
    let mut all = seen.local.ns.clone();
    all.add(&seen.remote.ns);
    all
}

fn joined(seen: &Seen) -> u64 {
    seen.local.joined + seen.remote.joined
}

/// Where the kernel finds it. A port at which requests `last` came stays one, also while nothing listens on it.
fn place(service: &Service, last: Option<bpf::Service>) -> io::Result<bpf::Service> {
    match (service, last) {
        (Service::Port(_), Some(last)) => Ok(last),
        (Service::Port(port), None) => {
            let netns = listening::namespace_of(*port).ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(bpf::Service::Port { port: *port, netns })
        }
        (Service::Socket(path), _) => {
            // The packaged daemon has a folder for temporary files of its own.
            let file =
                fs::metadata(path).or_else(|why| fs::metadata(format!("/proc/1/root{path}")).map_err(|_| why))?;
            let device = file.st_dev();
            let device = (libc::major(device), libc::minor(device));
            Ok(bpf::Service::Socket { device, inode: file.st_ino() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::histogram::Bucket;

    #[test]
    fn several_requests_under_way_are_refused_and_accidents_are_not() {
        let mut mixed = Mixed::default();
        let mut told = |windows: &[(u64, u64)]| {
            for (single, joined) in windows {
                mixed.add(*single, *joined);
            }
            mixed.too_many().is_some()
        };
        assert!(!told(&[(0, 0), (10, 2)]), "too few to say");
        assert!(!told(&[(1_000, 40); 20]), "4 %");
        assert!(told(&[(1_000, 80); 20]), "7 %");
        assert!(told(&[(0, 0), (0, 0)]), "nothing new");
        assert!(!told(&[(1_000, 0); 5]), "it has ended");
        assert!(told(&[(0, 500)]), "none was answered alone");
    }

    #[test]
    fn each_request_counts_once() {
        let side = |ns: u64, joined| {
            let low = ns as f64;
            bpf::Latencies { ns: Histogram::new([Bucket { low, high: low + 10.0, count: 3 }]), joined }
        };
        let seen = Seen { begun: 3, served: side(100, 7), local: side(200, 1), remote: side(300, 2) };
        assert_eq!((latencies(&seen).count(), joined(&seen)), (6, 3));
        assert_eq!(latencies(&seen).above(290.0), Some(3.0));
    }
}
