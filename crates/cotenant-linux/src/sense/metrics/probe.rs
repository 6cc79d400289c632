//! Response time of a server for its clients: occasional small probes on a separate connection, and a quantile of each
//! window's times. The server's own counts exclude waits before it.
//!
//! An answer counts from when the probe was *due* until the answer was *taken*: a local client waits for a CPU twice,
//! before its request and before taking the answer, and with spare CPUs other programs cost more there than in the
//! server. Clients on other machines have neither wait: for them it counts from the request until its *arrival*, by the
//! kernel's stamp (TCP).
//!
//! Probes are sent at random moments (a Poisson process), so that no rhythm of the server, of disturbers, or of
//! Cotenant's turns is hit or missed. Moments that pass during a pending answer also count, with the remaining wait:
//! otherwise a stall of one second would be one slow answer among hundreds. Probes sent together would wait behind the
//! same work, and be no more informative than one.

use super::credentials::Credentials;
use super::error::{FetchError, is_no, status_cure};
use super::http;
use super::login;
use super::seen::SeenRequests;
use super::stop::Stop;
use super::wire::{Wire, cure, denied, is_certain, refused};
use cotenant_model::Direction;
use cotenant_model::histogram::{Histogram, answers};
use cotenant_model::metric::{Measured, Protocol};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ureq::Agent;

/// Factor during trials: harm is detected and stopped sooner.
const MORE: u32 = 5;

/// Least mean time between two probes.
const LEAST_GAP: Duration = Duration::from_millis(2);

/// Longer pages are refused, bytes.
const MOST: u64 = 1 << 20;

/// A probed server.
#[derive(Debug)]
pub struct Probe {
    protocol: Protocol,
    address: String,
    quantile: f64,
    window: Duration,
    timeout: Duration,
    /// Whether its clients are on other machines.
    elsewhere: bool,
    credentials: Credentials,
    connection: Option<Connection>,
    schedule: Schedule,
    /// Time of the next probe; `None` before the first.
    due: Option<Instant>,
}

/// The times of probes, including those that pass while an answer is awaited.
#[derive(Debug)]
struct Schedule {
    moments: Moments,
    /// Mean time between two questions.
    gap: Duration,
    /// The same of further ones where something is tried; `None` where the usual ones are as many as may be.
    further: Option<Duration>,
    answers: Answers,
}

/// All response times so far, nanoseconds; holders of a copy see new ones, and may request more for a while.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    ns: Histogram,
    /// Where requests are seen and none is asked.
    requests: Option<SeenRequests>,
    watched_until: Option<Instant>,
}

impl Answers {
    /// Up to now.
    pub fn so_far(&self) -> Histogram {
        self.heard().ns.clone()
    }

    /// [`MORE`] times as many probes until then.
    pub fn watch(&self, until: Instant) {
        self.heard().watched_until = Some(until);
    }

    fn are_watched(&self, now: Instant) -> bool {
        self.heard().watched_until.is_some_and(|until| now < until)
    }

    /// These are all so far.
    pub fn replace(&self, ns: Histogram, requests: SeenRequests) {
        let mut heard = self.heard();
        (heard.ns, heard.requests) = (ns, Some(requests));
    }

    /// Requests that were seen.
    pub fn requests(&self) -> Option<SeenRequests> {
        self.heard().requests
    }

    fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.heard().ns.count_one(ns);
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gaps of a Poisson process.
#[derive(Debug)]
struct Moments {
    random: u64,
}

impl Moments {
    fn gap(&mut self, mean: Duration) -> Duration {
        // The generator of PCG's paper without its output function: its upper bits suffice here.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((self.random >> 11) + 1) as f64 / (1_u64 << 53) as f64; // above 0, at most 1
        mean.mul_f64(-uniform.ln())
    }
}

/// A connection ready for probes.
#[derive(Debug)]
enum Connection {
    Redis(Wire),
    Postgres(Wire),
    Http(Agent, String),
}

impl Schedule {
    fn new(window: Duration, quantile: f64) -> Self {
        let gap = (window / answers(quantile)).max(LEAST_GAP);
        let per_s = |gap: Duration| gap.as_secs_f64().recip();
        let further = per_s((gap / MORE).max(LEAST_GAP)) - per_s(gap);
        let further = (further > 0.0).then(|| Duration::from_secs_f64(further.recip()));
        Self { moments: Moments { random: 1 }, gap, further, answers: Answers::default() }
    }

    /// Records an answer by its due and arrival times; returns the next due time.
    fn answered(&mut self, [sent, arrived]: [Instant; 2], now: Instant) -> Instant {
        self.answers.add(arrived - sent);
        let mut due = sent + self.moments.gap(self.gap);
        while due <= now {
            if due <= arrived {
                self.answers.add(arrived - due);
            }
            due += self.moments.gap(self.gap);
        }
        // Further ones only from now on: in a server's stall of some milliseconds, several would be no more informative
        // than one.
        if let Some(gap) = self.further.filter(|_| self.answers.are_watched(now)) {
            due = due.min(now + self.moments.gap(gap));
        }
        due
    }
}

impl Probe {
    /// For clients on this machine.
    pub fn new(protocol: Protocol, address: &str, quantile: f64, window: Duration, timeout: Duration) -> Self {
        let address = address.to_owned();
        Self {
            protocol,
            address,
            quantile,
            window,
            timeout,
            elsewhere: false,
            credentials: Credentials::default(),
            connection: None,
            schedule: Schedule::new(window, quantile),
            due: None,
        }
    }

    /// For clients on other machines, where `elsewhere` is set.
    pub fn for_clients(self, elsewhere: bool) -> Self {
        Self { elsewhere, ..self }
    }

    /// With credentials.
    pub fn by(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    /// All answers, including future ones.
    pub fn answers(&self) -> Answers {
        self.schedule.answers.clone()
    }

    /// Sends one probe.
    pub fn ask_once(&mut self) -> Result<(), FetchError> {
        let asked = self.connect().and_then(|connection| self.ask(connection, Instant::now()));
        asked.map(drop).map_err(|why| self.failed(&why))
    }

    /// Probes for the length of a window, at least once.
    pub fn fetch(&mut self, stop: &Stop) -> Result<Option<Measured>, FetchError> {
        let begin = Instant::now();
        let before = self.schedule.answers.so_far();
        let end = begin + self.window;
        let mut due = self.due.take();
        let mut asked = false;
        while due.is_none_or(|due| due < end) || !asked {
            // Connecting is no probe, unless a web server closes each connection.
            let connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.connect().map_err(|why| self.failed(&why))?,
            };
            let asks = due.unwrap_or_else(Instant::now);
            if stop.within(asks.saturating_duration_since(Instant::now())) {
                return Err(FetchError::Stopped);
            }
            let (connection, times) = self.ask(connection, asks).map_err(|why| self.failed(&why))?;
            self.connection = Some(connection);
            asked = true;
            due = Some(self.schedule.answered(times, Instant::now()));
        }
        self.due = due;
        if stop.within(end.saturating_duration_since(Instant::now())) {
            return Err(FetchError::Stopped);
        }
        let since = self.schedule.answers.so_far().since(&before).unwrap_or_default();
        let (window, count, direction) = (begin.elapsed(), since.count(), Direction::LowerIsBetter);
        let value = since.quantile(self.quantile).map(|ns| ns / 1e9);
        Ok(value.map(|value| Measured { value, window, count, direction }))
    }

    /// Sends a due probe; returns the period of its answer.
    fn ask(&self, mut connection: Connection, due: Instant) -> io::Result<(Connection, [Instant; 2])> {
        let sent = Instant::now();
        connection.ask()?;
        let counts = counts(self.elsewhere, due, [sent, Instant::now()], connection.lain());
        Ok((connection, counts))
    }

    fn failed(&self, why: &io::Error) -> FetchError {
        if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
            return FetchError::Slow(self.timeout);
        }
        let certain = is_certain(why);
        let why = format!("{why}{}", cure(why)).replace('\n', " ");
        FetchError::Probe { what: format!("{}:{}", self.protocol.name(), self.address), why, certain }
    }

    fn connect(&self) -> io::Result<Connection> {
        match self.protocol {
            Protocol::Redis => {
                let mut wire = Wire::open(&self.address, self.timeout)?;
                login::redis(&mut wire, &self.credentials)?;
                Ok(Connection::Redis(wire))
            }
            Protocol::Postgres => {
                Ok(Connection::Postgres(login::postgres(&self.address, self.timeout, &self.credentials)?))
            }
            Protocol::Http => {
                let mut connection = Connection::Http(http::agent(self.timeout), format!("http://{}", self.address));
                connection.ask()?; // the agent connects with its first probe
                Ok(connection)
            }
        }
    }
}

/// The period of an answer that had `lain` unread for this long.
fn counts(elsewhere: bool, due: Instant, [sent, taken]: [Instant; 2], lain: Duration) -> [Instant; 2] {
    if elsewhere { [sent, sent + (taken - sent).saturating_sub(lain)] } else { [due.min(sent), taken] }
}

impl Connection {
    fn ask(&mut self) -> io::Result<()> {
        match self {
            Self::Redis(wire) => wire.ping(),
            Self::Postgres(wire) => wire.query(),
            Self::Http(agent, url) => get(agent, url),
        }
    }

    /// Time that the last answer had been unread, if known.
    fn lain(&self) -> Duration {
        match self {
            Self::Redis(wire) | Self::Postgres(wire) => wire.lain(),
            Self::Http(..) => Duration::ZERO,
        }
    }
}

/// Reads a page from a web server to its end.
fn get(agent: &Agent, url: &str) -> io::Result<()> {
    let page = || agent.get(url).call()?.body_mut().with_config().limit(MOST).read_to_vec();
    page().map(drop).map_err(|why| match why {
        ureq::Error::Timeout(_) => io::ErrorKind::TimedOut.into(),
        ureq::Error::StatusCode(code) => {
            let cure = status_cure(code).unwrap_or("name a path that it serves, as in http:PORT/PATH:p99");
            let why = format!("it answers with status {code}; {cure}");
            if is_no(code) { denied(why) } else { refused(why) }
        }
        ureq::Error::BodyExceedsLimit(_) => {
            refused(format!("its answer is longer than {} MiB; name a path with a short one", MOST >> 20))
        }
        other => other.into_io(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::stop;
    use super::super::tests::{closed, server as web_server};
    use super::super::wire::tests::{probe, redis, repeated};
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Holds speed/metrics.
    #[test]
    fn web_servers_answer() {
        let ask = |answer: &'static str| {
            let url = web_server(move |_| answer.to_owned());
            probe(Protocol::Http, &format!("{}/x", url.trim_start_matches("http://")))
        };
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nup to the end",
        ] {
            let measured = ask(answer).unwrap_or_else(|why| panic!("{answer}: {why}")).unwrap();
            assert!(measured.value > 0.0 && measured.count >= 1, "{answer}: {measured:?}");
        }
        for (answer, why) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "status 404"),
            ("+PONG\r\n\r\n", "http"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhe", "http"),
        ] {
            let said = ask(answer).unwrap_err().to_string();
            assert!(said.starts_with("http:") && said.contains(why) && !said.contains('\n'), "{answer}: {said}");
        }
    }

    /// With CPUs to spare, other programs make a client wait for one before it asks and before it takes the answer, not
    /// the server: 2 ms and 3 ms here, and 0.1 ms for the answer itself.
    #[test]
    fn who_waits_for_a_cpu_is_where_the_clients_are() {
        let due = Instant::now();
        let at = |us| due + Duration::from_micros(us);
        let took = |elsewhere, lain_us| {
            let [from, until] = counts(elsewhere, due, [at(2_000), at(5_100)], Duration::from_micros(lain_us));
            (until - from).as_micros()
        };
        assert_eq!(took(false, 3_000), 5_100, "a client here waits for both");
        assert_eq!(took(true, 3_000), 100, "clients elsewhere wait for the answer alone");
        assert_eq!(took(true, 0), 3_100, "as far as that is known");
        assert_eq!(took(true, 4_000), 0, "clocks differ");
    }

    /// A question that was due long before it could be asked is late by that.
    #[test]
    fn an_answer_counts_from_when_its_question_was_due() {
        let ago = Duration::from_secs(1_000);
        let due = Instant::now().checked_sub(ago).expect("the machine has run for a while");
        for elsewhere in [false, true] {
            let (_stopper, stop) = stop::pair().unwrap();
            let window = Duration::from_millis(20);
            let probe = Probe::new(Protocol::Redis, &redis(repeated), 1.0, window, Duration::from_secs(20));
            let mut probe = probe.for_clients(elsewhere);
            probe.due = Some(due);
            let measured = probe.fetch(&stop).unwrap().unwrap();
            assert_eq!(measured.value >= ago.as_secs_f64(), !elsewhere, "{measured:?}");
        }
    }

    #[test]
    fn a_web_server_is_asked_on_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap(); // and no other one
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next() {
                if line.is_empty() {
                    let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            }
        });
        let (_stopper, stop) = stop::pair().unwrap();
        let window = Duration::from_millis(100);
        let mut probe = Probe::new(Protocol::Http, &format!("{address}/x"), 0.99, window, Duration::from_secs(20));
        for _ in 0..3 {
            let measured = probe.fetch(&stop).unwrap().unwrap();
            assert!(measured.value > 0.0 && measured.count >= 1, "{measured:?}");
        }
    }

    #[test]
    fn nobody_answers() {
        let (_taken, address) = closed();
        let why = probe(Protocol::Redis, &address.to_string()).unwrap_err().to_string();
        assert!(why.starts_with("redis:") && !why.contains('\n'), "{why}");
        assert!(probe(Protocol::Postgres, "/proc/nonexistent/.s.PGSQL.5432").is_err());
    }

    /// Probes of a window, each answered after `takes` of its moment; no clock is read.
    fn asked_for_a_window(schedule: &mut Schedule, window: Duration, takes: impl Fn(Duration) -> Duration) -> f64 {
        let (begin, before) = (Instant::now(), schedule.answers.so_far());
        let mut due = begin;
        while due < begin + window {
            let arrived = due + takes(due - begin);
            due = schedule.answered([due, arrived], arrived);
        }
        schedule.answers.so_far().since(&before).unwrap().count() as f64
    }

    /// Holds qos/probing.
    #[test]
    fn a_server_that_stands_still_is_seen_to() {
        // It stalls long at first and then answers at once: moments in which a probe would have waited also count.
        let (window, stands) = (Duration::from_secs(1), Duration::from_millis(300)); // every 10 ms a question
        let mut schedule = Schedule::new(window, 0.99);
        // More probes, but not during a server's stall.
        schedule.answers.watch(Instant::now() + Duration::from_secs(20));
        let at_first = |at: Duration| if at.is_zero() { stands } else { Duration::from_micros(50) };
        asked_for_a_window(&mut schedule, window, at_first);
        let (seen, ns) = (schedule.answers.so_far(), stands.as_nanos() as f64);
        // About thirty moments fall into it, plus or minus five, half of them with at least half of it left.
        let [any, half] = [ns / 100.0, ns / 2.0].map(|ns| seen.above(ns).unwrap());
        assert!((15.0..45.0).contains(&any) && (5.0..25.0).contains(&half), "{any}, {half}");
        assert!(seen.quantile(0.99).unwrap() >= ns / 2.0, "{seen:?}");
    }

    /// Holds qos/probing.
    #[test]
    fn where_something_is_tried_more_is_asked() {
        let window = Duration::from_secs(50); // every 500 ms a probe, otherwise every 100 ms
        let mut schedule = Schedule::new(window, 0.99);
        let count = |schedule: &mut Schedule| asked_for_a_window(schedule, window, |_| Duration::from_micros(50));
        // A Poisson process has 100 and 500 of them with deviations of 10 and 22.
        let usual = count(&mut schedule);
        schedule.answers.watch(Instant::now() + 2 * window);
        let watched = count(&mut schedule);
        schedule.answers.watch(Instant::now());
        let later = count(&mut schedule);
        assert!((60.0..140.0).contains(&usual) && (410.0..590.0).contains(&watched), "{usual}, {watched}");
        assert!((60.0..140.0).contains(&later), "{later}");
        let gaps = [0.5, 0.9, 0.95, 1.0].map(|quantile| Schedule::new(window, quantile).gap.as_millis());
        assert_eq!(gaps, [2_500, 1_000, 500, 500]);
    }

    /// Promise qos/probing: A server is asked at random moments and more often during a trial; one that stands still
    /// is noticed.
    #[test]
    fn moments_are_random_and_have_their_mean() {
        let mut moments = Moments { random: 1 };
        let gaps: Vec<f64> = (0..10_000).map(|_| moments.gap(Duration::from_millis(10)).as_secs_f64() * 1e3).collect();
        let mean = gaps.iter().sum::<f64>() / 1e4;
        // Of an exponential distribution e^-1 of the gaps are longer than the mean, and e^-3 longer than three times
        // that.
        let longer = |ms: f64| gaps.iter().filter(|gap| **gap > ms).count() as f64 / 1e4;
        assert!((mean - 10.0).abs() < 0.5, "{mean}");
        assert!((longer(10.0) - 0.3679).abs() < 0.02 && (longer(30.0) - 0.0498).abs() < 0.01);
    }
}
