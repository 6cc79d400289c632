//! Probes to redis and `PostgreSQL`, and their valid answers.
//!
//! A server is not trusted. So each answer has one deadline and limits in bytes, messages and pieces; and it must
//! repeat an unpredictable number, so that unsolicited data are no answer.

use super::credentials::Secret;
use crate::sys;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Limit of answers, bytes: `PostgreSQL` answers the log-in with less than 1 KiB, a probe with less than 100 bytes.
const MOST_BYTES: usize = 16 << 10;

/// So are those with more messages, or in more pieces. A log-in has some 15 messages.
pub const MOST_PARTS: usize = 64;

/// Characters of a server's message that are passed on.
const EXCERPT: usize = 120;

/// A connection.
#[derive(Debug)]
pub struct Wire {
    line: BufReader<Line>,
    /// Number of the probe, and a secret: an answer must repeat their hash.
    asked: u64,
    secret: RandomState,
    /// The password sent to the server.
    sent: Secret,
}

/// Messages to and from a server.
#[derive(Debug)]
struct Line {
    stream: Stream,
    timeout: Duration,
    /// Deadline of the complete answer.
    until: Instant,
    /// Remaining allowed bytes and pieces.
    left: usize,
    pieces: usize,
    /// Time that the last data had been unread, if known.
    lain: Duration,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Line {
    /// Resets the time and the limits of an answer.
    fn begin(&mut self) {
        (self.until, self.left, self.pieces) = (Instant::now() + self.timeout, MOST_BYTES, MOST_PARTS);
    }

    fn send(&mut self, question: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.write_all(question),
            Stream::Tcp(stream) => stream.write_all(question),
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.left);
        if most == 0 || self.pieces == 0 {
            return Err(refused(format!("its answer is longer than {} KiB or {MOST_PARTS} pieces", MOST_BYTES >> 10)));
        }
        let within = left_until(self.until)?;
        let buffer = &mut buffer[..most];
        let (bytes, arrived) = match &mut self.stream {
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(within))?;
                (stream.read(buffer)?, None)
            }
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(within))?;
                sys::receive(stream.as_fd(), buffer)?
            }
        };
        let since = |arrived| SystemTime::now().duration_since(UNIX_EPOCH + arrived).ok();
        self.lain = arrived.and_then(since).unwrap_or_default();
        (self.left, self.pieces) = (self.left - bytes, self.pieces - 1);
        Ok(bytes)
    }
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Wire {
    /// Connects to a socket's path, or to a host and port.
    pub fn open(address: &str, timeout: Duration) -> io::Result<Self> {
        let until = Instant::now() + timeout;
        let stream = if address.starts_with('/') {
            Stream::Unix(sys::connect_unix(Path::new(address), timeout)?)
        } else {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            let connect = |address| TcpStream::connect_timeout(&address, left_until(until)?);
            let connected = address.to_socket_addrs()?.find_map(|address| match connect(address) {
                Ok(stream) => Some(stream),
                Err(why) => {
                    last = why;
                    None
                }
            });
            let stream = connected.ok_or(last)?;
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(timeout))?;
            let _ = sys::stamp_arrivals(stream.as_fd()); // otherwise our own wait would count
            Stream::Tcp(stream)
        };
        let line = Line { stream, timeout, until, left: 0, pieces: 0, lain: Duration::ZERO };
        Ok(Self { line: BufReader::new(line), asked: 0, secret: RandomState::new(), sent: Secret::default() })
    }

    /// On an existing connection, with the text that the answer to its first probe must repeat.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn over(stream: UnixStream) -> (Self, String) {
        let line = Line {
            stream: Stream::Unix(stream),
            timeout: Duration::from_secs(1),
            until: Instant::now(),
            left: 0,
            pieces: 0,
            lain: Duration::ZERO,
        };
        let mut wire =
            Self { line: BufReader::new(line), asked: 0, secret: RandomState::new(), sent: Secret::default() };
        let token = wire.token();
        wire.asked = 0;
        (wire, token)
    }

    /// Time that the last answer had been unread, if known.
    pub fn lain(&self) -> Duration {
        self.line.get_ref().lain
    }

    /// The text that the next answer must repeat.
    fn token(&mut self) -> String {
        self.asked += 1;
        (self.secret.hash_one(self.asked) >> 1).to_string() // a bigint of SQL
    }

    pub fn ping(&mut self) -> io::Result<()> {
        let token = self.token();
        self.ask(format!("PING {token}\r\n").as_bytes())?;
        if self.text_line()? == format!("${}", token.len()).as_bytes() && self.text_line()? == token.as_bytes() {
            return Ok(());
        }
        Err(refused("it answers with another word than it was given"))
    }

    /// A line of redis's answer.
    pub fn text_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        #[allow(clippy::disallowed_methods)] // the line has an end
        self.line.read_until(b'\n', &mut line)?;
        match line.first() {
            None => Err(refused("it closed the connection")),
            Some(b'+' | b'$' | b'0'..=b'9') => Ok(line.trim_ascii_end().to_owned()),
            Some(b'-') => {
                let said = self.excerpt(&line[1..]);
                let code = said.split(' ').next().unwrap_or_default().to_owned();
                let cure = match &*code {
                    "NOPERM" => "; let it, as in ACL SETUSER NAME +ping",
                    "WRONGPASS" => "; see REDISCLI_AUTH and user=",
                    "DENIED" => "; ask it from its own machine, or set a password",
                    _ => "",
                };
                Err(io::Error::other(Refusal { why: format!("it says '{said}'{cure}"), code }))
            }
            Some(_) => Err(refused(format!("it says '{}' where a redis repeats a word", self.excerpt(&line)))),
        }
    }

    pub fn query(&mut self) -> io::Result<()> {
        let token = self.token();
        self.ask(&message(b'Q', format!("SELECT {token}\0").as_bytes())?)?;
        let mut row = Some(token);
        for _ in 0..MOST_PARTS {
            let (kind, body) = self.message()?;
            match kind {
                b'Z' if row.is_none() => return Ok(()),
                b'D' if row.take().is_some_and(|row| body.ends_with(row.as_bytes())) => {}
                b'Z' | b'D' => return Err(refused("it answers what it was not asked")),
                b'E' => return Err(self.said(&body, |_, _| String::new())),
                _ => {}
            }
        }
        Err(too_many())
    }

    /// Sends a new probe.
    pub fn ask(&mut self, question: &[u8]) -> io::Result<()> {
        self.line.get_mut().begin();
        self.add(question)
    }

    /// Sends more, within the limits of the last probe.
    pub fn add(&mut self, what: &[u8]) -> io::Result<()> {
        self.line.get_mut().send(what)
    }

    /// The next message of `PostgreSQL`: its kind and body.
    pub fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.line.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let length = length
            .checked_sub(4)
            .filter(|length| *length <= MOST_BYTES)
            .ok_or_else(|| refused("it speaks no PostgreSQL, or answers at great length"))?;
        let mut body = vec![0; length];
        self.line.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// An error of `PostgreSQL`, with advice by its SQLSTATE and the server's routine.
    pub fn said(&self, body: &[u8], cure: impl Fn(&str, &str) -> String) -> io::Error {
        let field = |kind: u8| body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(&[kind]));
        let text = |kind| String::from_utf8_lossy(field(kind).unwrap_or_default()).into_owned();
        let code = text(b'C');
        let why = format!("it says '{}'{}", self.excerpt(field(b'M').unwrap_or_default()), cure(&code, &text(b'R')));
        io::Error::other(Refusal { why, code })
    }

    /// The server is about to receive it, and may echo it.
    pub fn will_send(&mut self, secret: &Secret) {
        self.sent = secret.clone();
    }

    /// The beginning of a server's message.
    fn excerpt(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(&self.sent.hidden_in(bytes)).trim().chars().take(EXCERPT).collect()
    }
}

/// A message to `PostgreSQL`.
pub fn message(kind: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len() + 4).map_err(io::Error::other)?;
    Ok([&[kind], &length.to_be_bytes()[..], body].concat())
}

/// A server's no.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct Refusal {
    why: String,
    /// Kind of a refusal: redis's first word, `PostgreSQL`'s SQLSTATE.
    code: String,
}

pub fn refused(why: impl Into<String>) -> io::Error {
    io::Error::other(Refusal { why: why.into(), code: String::new() })
}

/// It requests something that we never give.
pub fn denied(why: impl Into<String>) -> io::Error {
    io::Error::other(Refusal { why: why.into(), code: "NOAUTH".to_owned() })
}

pub fn too_many() -> io::Error {
    refused(format!("its answer has more than {MOST_PARTS} messages"))
}

/// Whether the next attempt gives the same until someone intervenes.
pub fn is_certain(why: &io::Error) -> bool {
    let code = code(why);
    // Of PostgreSQL: forbidden, no such database, a database without connections.
    matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" | "42501" | "3D000" | "55000")
        || code.starts_with("28")
        || is_unknown_host(why)
        || matches!(
            why.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
        )
}

/// Advice without a connection.
pub fn cure(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::ConnectionRefused => "; nothing listens there: start the server, or name its port",
        io::ErrorKind::NotFound if why.raw_os_error().is_some() => "; start the server, or name the path of its socket",
        io::ErrorKind::PermissionDenied => "; its socket is not open to this user: ask through TCP, or as another user",
        _ if is_unknown_host(why) => "; check the name of the host, or give its address",
        _ => "",
    }
}

/// Whether the host name is unknown. In the standard library's errors only the text shows it; a temporary failure of
/// look-ups is different.
fn is_unknown_host(why: &io::Error) -> bool {
    let why = why.to_string();
    let later = ["Temporary failure in name resolution", "Try again"];
    why.starts_with("failed to lookup address") && !later.iter().any(|later| why.ends_with(later))
}

/// The code of a server's refusal.
pub fn code(why: &io::Error) -> &str {
    why.get_ref().and_then(|why| why.downcast_ref::<Refusal>()).map_or("", |refusal| &refusal.code)
}

#[cfg(test)]
pub mod tests {
    use super::super::probe::Probe;
    use super::super::{FetchError, stop};
    use super::*;
    use cotenant_model::metric::{Measured, Protocol};
    use std::net::TcpListener;
    use std::sync::mpsc::{Sender, channel};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A server for one connection; returns its address.
    pub fn server(talk: impl FnOnce(&TcpStream) -> io::Result<()> + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let _ = talk(&stream); // until the client has enough
        });
        address
    }

    /// A redis that answers by this function of each word to repeat.
    pub fn redis(mut answer: impl FnMut(&str) -> Vec<u8> + Send + 'static) -> String {
        server(move |mut stream| {
            for question in BufReader::new(stream).lines() {
                stream.write_all(&answer(question?.strip_prefix("PING ").unwrap()))?;
            }
            Ok(())
        })
    }

    pub fn repeated(word: &str) -> Vec<u8> {
        format!("${}\r\n{word}\r\n", word.len()).into_bytes()
    }

    /// A `PostgreSQL` that accepts, and then applies this to each number to select.
    fn postgres(
        welcome: Vec<u8>,
        mut answer: impl FnMut(&str, &TcpStream) -> io::Result<()> + Send + 'static,
    ) -> String {
        server(move |stream| {
            let mut to = stream;
            let question = |kind: usize| {
                let mut stream = stream;
                let mut head = vec![0; kind + 4];
                stream.read_exact(&mut head)?;
                let mut body = vec![0; u32::from_be_bytes(head[kind..].try_into().unwrap()) as usize - 4];
                stream.read_exact(&mut body)?;
                Ok::<_, io::Error>(String::from_utf8(body).unwrap())
            };
            assert!(question(0)?.ends_with("\0application_name\0cotenant\0\0"));
            to.write_all(&welcome)?;
            loop {
                answer(question(1)?.strip_prefix("SELECT ").unwrap().trim_end_matches('\0'), stream)?;
            }
        })
    }

    pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        super::message(kind, body).unwrap()
    }

    pub fn welcome() -> Vec<u8> {
        [message(b'R', &[0; 4]), message(b'S', b"x\0y\0"), message(b'Z', b"I")].concat()
    }

    pub fn selected(number: &str) -> Vec<u8> {
        let row = [&[0, 1][..], &(number.len() as u32).to_be_bytes(), number.as_bytes()].concat();
        [message(b'T', b"..."), message(b'D', &row), message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()
    }

    pub fn probe_within(timeout: Duration, protocol: Protocol, address: &str) -> Result<Option<Measured>, FetchError> {
        probe_for(Duration::from_millis(20), timeout, protocol, address)
    }

    fn probe_for(
        window: Duration,
        timeout: Duration,
        protocol: Protocol,
        address: &str,
    ) -> Result<Option<Measured>, FetchError> {
        let (_stopper, stop) = stop::pair().unwrap();
        Probe::new(protocol, address, 0.99, window, timeout).fetch(&stop)
    }

    pub fn probe(protocol: Protocol, address: &str) -> Result<Option<Measured>, FetchError> {
        probe_within(PATIENCE, protocol, address)
    }

    /// Holds speed/metrics.
    #[test]
    fn an_answer_counts_until_it_arrived() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wire =
            Wire::open(&listener.local_addr().unwrap().to_string(), Duration::from_secs(20)).expect("it listens");
        let (mut server, _) = listener.accept().unwrap();
        // The kernel begins to stamp arrivals shortly after the request.
        let lain = (0..100).find_map(|_| {
            let began = Instant::now();
            server.write_all(b"+").unwrap();
            let Stream::Tcp(stream) = &wire.line.get_ref().stream else { unreachable!("it is reached through TCP") };
            stream.peek(&mut [0]).unwrap(); // it has arrived, but is unread
            let arrived = Instant::now();
            while arrived.elapsed() < Duration::from_millis(3) {
                std::hint::spin_loop();
            }
            let waited = arrived.elapsed();
            wire.ask(b"?").unwrap();
            wire.line.read_exact(&mut [0]).unwrap();
            let lain = wire.lain();
            (!lain.is_zero()).then_some((waited, lain, began.elapsed()))
        });
        let (least, lain, most) = lain.expect("answers are stamped");
        assert!(least <= lain && lain <= most, "{least:?} {lain:?} {most:?}");
    }

    #[test]
    fn redis_answers() {
        let measured = probe(Protocol::Redis, &redis(repeated)).unwrap().unwrap();
        assert!(measured.value > 0.0 && measured.count >= 1 && measured.window >= Duration::from_millis(20));
        let refusing = |_: &str| b"-NOAUTH Authentication required.\r\n".to_vec();
        let why = probe(Protocol::Redis, &redis(refusing)).unwrap_err().to_string();
        assert!(why.contains("wants a password") && why.contains("REDISCLI_AUTH"), "{why}");
    }

    #[test]
    fn postgres_answers() {
        let notice = || message(b'N', b"SNOTICE\0Mwell\0\0");
        let noticed = move |number: &str, mut to: &TcpStream| to.write_all(&[notice(), selected(number)].concat());
        let measured = probe(Protocol::Postgres, &postgres(welcome(), noticed)).unwrap().unwrap();
        assert!(measured.value > 0.0 && measured.count >= 1);
        let refused = |kind, body: &[u8]| {
            let address = postgres(message(kind, body), |_, _| Ok(()));
            probe(Protocol::Postgres, &address).unwrap_err().to_string()
        };
        assert!(refused(b'R', &[0, 0, 0, 7]).contains("not spoken"));
        assert!(refused(b'E', b"SFATAL\0Mno such role\0\0").contains("no such role"));
    }

    #[test]
    fn what_was_not_asked_for_is_no_answer() {
        // Long enough for a second probe, at which it ends.
        let probe = |protocol, address: &str| probe_for(Duration::from_secs(5), PATIENCE, protocol, address);
        let mut before = String::new();
        let twice = move |word: &str| [repeated(word), repeated(&std::mem::replace(&mut before, word.into()))].concat();
        let pong = |_: &str| b"+PONG\r\n".repeat(2);
        for address in [redis(twice), redis(|_| repeated("1")), redis(pong)] {
            let why = probe(Protocol::Redis, &address).unwrap_err().to_string();
            assert!(why.contains("word"), "{why}");
        }
        let twice = |number: &str, mut to: &TcpStream| to.write_all(&selected(number).repeat(2));
        let ready = |_: &str, mut to: &TcpStream| to.write_all(&message(b'Z', b"I"));
        for address in [postgres(welcome(), twice), postgres(welcome(), ready)] {
            let why = probe(Protocol::Postgres, &address).unwrap_err().to_string();
            assert!(why.contains("it was not asked"), "{why}");
        }
    }

    /// Holds speed/bad-metric.
    #[test]
    fn what_stays_so_is_told_from_what_passes() {
        let lookup = |why| io::Error::other(format!("failed to lookup address information: {why}"));
        let said = |code: &str| io::Error::other(Refusal { why: String::new(), code: code.to_owned() });
        let kind = |kind: io::ErrorKind| io::Error::from(kind);
        for (why, certain) in [
            (lookup("Name or service not known"), true),
            (lookup("Temporary failure in name resolution"), false),
            (kind(io::ErrorKind::ConnectionRefused), true),
            (kind(io::ErrorKind::ConnectionReset), false),
            (said("42501"), true),
            (said("28000"), true),
            (said("57P03"), false), // it starts up
            (said("53300"), false), // too many connections
            (said("NOPERM"), true),
            (said("LOADING"), false),
        ] {
            assert_eq!(is_certain(&why), certain, "{why:?}");
        }
    }

    #[test]
    fn an_answer_that_comes_by_the_byte_is_too_slow() {
        // Each byte in time, but not all of them; at last it hangs up, which is another failure.
        let dribble = |mut to: &TcpStream, answer: &[u8]| {
            answer.iter().try_for_each(|byte| {
                std::thread::sleep(Duration::from_millis(30)); // that pace is its attack
                to.write_all(&[*byte])
            })
        };
        let timeout = Duration::from_millis(300);
        let slow = |result: Result<_, FetchError>| assert!(matches!(result, Err(FetchError::Slow(_))), "{result:?}");
        let notice = message(b'N', &[b'x'; 60]);
        let address = postgres(welcome(), move |_, to| dribble(to, &notice).and(Err(io::ErrorKind::Other.into())));
        slow(probe_within(timeout, Protocol::Postgres, &address));
        let address = server(move |to| dribble(to, &[b'-'; 60]));
        slow(probe_within(timeout, Protocol::Redis, &address));
    }

    #[test]
    fn an_answer_without_an_end_costs_little() {
        let (sent, told) = channel();
        let flood = |to: &mut &TcpStream, what: &[u8], sent: &Sender<usize>| {
            let mut bytes = 0;
            // More than the kernel buffers for an idle reader.
            while bytes < 64 << 20 && to.write_all(what).is_ok() {
                bytes += what.len();
            }
            sent.send(bytes).unwrap();
            Err(io::ErrorKind::Other.into())
        };
        let to = sent.clone();
        let notices = message(b'N', b"SNOTICE\0Mwell\0\0").repeat(100);
        let address = postgres(welcome(), move |_, mut stream| flood(&mut stream, &notices, &to));
        let why = probe(Protocol::Postgres, &address).unwrap_err().to_string();
        assert!(why.contains("more than 64 messages"), "{why}");
        let address = server(move |mut stream| flood(&mut stream, &[b'-'; 4096], &sent));
        let why = probe(Protocol::Redis, &address).unwrap_err().to_string();
        assert!(why.contains("longer than 16 KiB"), "{why}");
        for _ in 0..2 {
            let bytes = told.recv_timeout(PATIENCE).unwrap();
            assert!(bytes < 64 << 20, "{bytes} bytes went, to nobody's use");
        }
    }

    #[test]
    fn what_a_server_says_is_cut() {
        let said = [b"SFATAL\0M", "\u{e9}".repeat(5_000).as_bytes(), b"\0\0"].concat();
        let address = postgres(message(b'E', &said), |_, _| Ok(()));
        let why = probe(Protocol::Postgres, &address).unwrap_err().to_string();
        assert!(why.contains("\u{e9}\u{e9}") && why.chars().count() < 300, "{why}");
        let address = redis(|_| [&[b'-'; 10_000][..], b"\r\n"].concat());
        let why = probe(Protocol::Redis, &address).unwrap_err().to_string();
        assert!(why.contains("--") && why.chars().count() < 300, "{why}");
    }
}
