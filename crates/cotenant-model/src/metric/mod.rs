//! External metrics: the user's options (`--metric`), servers' text formats, and readings.
//!
//! `docs/reference/metrics.md` describes the syntax. Hosts fetch the answers: nothing here uses a process, file or
//! socket.

mod exposition;
mod meter;
mod query;

pub use exposition::{ScrapeError, Scraped, Selector, offers, scrape};
pub use meter::{Measured, Meter, MeterError, QUANTILE, measure, number};
pub use query::{QueryError, is_query, queried};

use crate::Direction;
use crate::parse;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Default interval of readings.
pub const EVERY: Duration = Duration::from_secs(1);

/// Default time limit of a reading.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Options and their values, for error messages.
const OPTIONS: &str = "higher, lower, name=NAME, every=TIME (10ms to 60min), timeout=TIME (10ms to 60min), q=0.99 (0 to 1), clients=here (elsewhere), user=NAME";

/// A metric requested by the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name on screens and in recordings.
    pub name: String,
    /// Its source.
    pub source: MetricSource,
    /// The better direction, if given by the user or implied by a summary's quantile; otherwise the measurement's
    /// default ([`Measured::direction`]).
    pub direction: Option<Direction>,
    /// Time between two readings, 10 ms to 1 h.
    pub every: Duration,
    /// Time limit of a reading, 10 ms to 1 h.
    pub timeout: Duration,
    /// The quantile of a histogram, 0–1; `None`: default.
    pub quantile: Option<f64>,
    /// Whether the clients of a probed server are on other machines: they do not wait for this machine's CPUs.
    pub elsewhere: bool,
    /// The user name for a probed server, if given.
    pub user: Option<String>,
    /// Whether another party wrote it, as in a pod's annotation: it must not get our passwords.
    pub foreign: bool,
}

/// Source of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// A command for `sh -c` that prints a number.
    Command(String),
    /// Lines of a growing file.
    Log {
        /// The file.
        path: String,
        /// A regular expression; its first group, otherwise the whole match, is the number.
        pattern: String,
    },
    /// A server's answer.
    Http {
        /// Without its fragment.
        url: String,
        /// The time series; `None` for a plain number.
        series: Option<Selector>,
    },
    /// Response time of a server to a small probe, seconds.
    Probe {
        /// The probe's protocol.
        protocol: Protocol,
        /// `HOST:PORT`, followed by the path if there is one; or the path of a socket, for `PostgreSQL` of its folder
        /// without a port.
        address: String,
    },
    /// How long a server's clients wait for an answer, as the kernel sees it, seconds.
    Clients {
        /// What they talk to.
        service: Service,
        /// Instead of a quantile: how many clients have waited for longer than this, on average over time.
        beyond: Option<Duration>,
    },
}

/// What programs talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// A TCP port of this machine.
    Port(u16),
    /// A Unix socket with a path.
    Socket(String),
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "{port}"),
            Self::Socket(path) => f.write_str(path),
        }
    }
}

/// A server's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `PING` with a word.
    Redis,
    /// `SELECT` of a number.
    Postgres,
    /// `GET` of a path.
    Http,
}

impl Protocol {
    /// The user's notation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Http => "http",
        }
    }
}

/// Why a text is not a metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MetricError(String);

impl FromStr for Metric {
    type Err = MetricError;

    /// `SOURCE[,OPTION]…`. Options are parsed from the end, so that the source may contain commas.
    fn from_str(text: &str) -> Result<Self, MetricError> {
        if has_password(text) {
            // Without the text, because a log or screen with the error must not reveal the password.
            return Err(MetricError(format!("{NO_PASSWORD}: {INSTEAD}")));
        }
        let error = MetricError;
        let mut rest = text.trim();
        let (mut name, mut direction, mut every, mut timeout, mut quantile) = (None, None, None, None, None);
        let (mut elsewhere, mut user) = (None, None);
        while let Some((before, option)) = rest.rsplit_once(',') {
            let bad = |what: &str| error(format!("{option} is no {what}; options are {OPTIONS}"));
            match option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value))) {
                ("higher", None) => direction = Some(Direction::HigherIsBetter),
                ("lower", None) => direction = Some(Direction::LowerIsBetter),
                ("name", Some(value)) if is_name(value) => name = Some(value.to_owned()),
                ("name", Some(_)) => return Err(bad("name: letters, digits, '_', '-', '.' and '%', at most 64")),
                ("every", Some(value)) => every = Some(duration(value).ok_or_else(|| bad("time"))?),
                ("timeout", Some(value)) => timeout = Some(duration(value).ok_or_else(|| bad("time"))?),
                ("q", Some(value)) => {
                    let q = value.parse().ok().filter(|q| (0.0..=1.0).contains(q));
                    quantile = Some(q.ok_or_else(|| bad("quantile"))?);
                }
                ("clients", Some("here")) => elsewhere = Some(false),
                ("clients", Some("elsewhere")) => elsewhere = Some(true),
                ("clients", _) => return Err(bad("place of clients: here or elsewhere")),
                ("user", Some(value)) if is_user(value) => user = Some(value.to_owned()),
                ("user", _) => return Err(bad("name of a user")),
                _ => break,
            }
            rest = before;
        }
        let source = match clients(rest).or_else(|| probe(rest)) {
            Some(found) => {
                let (source, q) = found.map_err(error)?;
                if quantile.is_some() {
                    return Err(error("the source says already what is read; leave q= out".to_owned()));
                }
                quantile = q;
                source
            }
            None => source(rest).map_err(error)?,
        };
        if quantile.is_some() && !source.is_latency() && !matches!(source, MetricSource::Http { series: Some(_), .. }) {
            return Err(error("q= is for histograms of an HTTP endpoint; leave it out".to_owned()));
        }
        if elsewhere.is_some() && !matches!(source, MetricSource::Probe { .. }) {
            return Err(error("clients= is for servers that are asked; leave it out".to_owned()));
        }
        let logs_in = matches!(source, MetricSource::Probe { protocol: Protocol::Redis | Protocol::Postgres, .. });
        if user.is_some() && !logs_in {
            return Err(error("user= is for redis and postgres; leave it out".to_owned()));
        }
        let lower = match &source {
            MetricSource::Http { series: Some(series), .. } => series.names_quantile(),
            MetricSource::Clients { .. } => true,
            source => source.is_latency(),
        };
        Ok(Self {
            name: name.unwrap_or_else(|| source.name()),
            source,
            direction: direction.or(lower.then_some(Direction::LowerIsBetter)),
            every: every.unwrap_or(EVERY),
            timeout: timeout.unwrap_or(TIMEOUT),
            quantile,
            elsewhere: elsewhere.unwrap_or(false),
            user,
            foreign: false,
        })
    }
}

/// Beginning of the errors about passwords in arguments, which every user of the machine can read.
pub const NO_PASSWORD: &str = "no password stands in a metric";
const INSTEAD: &str = "redis takes it from REDISCLI_AUTH, PostgreSQL from PGPASSWORD or ~/.pgpass, and for HTTP write \
                       cmd: with a program that logs in";

/// Whether a text that is no command has a password in it: `http://USER:PASSWORD@…`, `redis:PASSWORD@…`, `password=…`.
fn has_password(text: &str) -> bool {
    let text = text.trim();
    let in_address = |scheme: &str| {
        let authority = text.strip_prefix(scheme)?.split(['/', '?', '#']).next()?;
        Some(authority.rsplit_once('@')?.0.contains(':'))
    };
    let schemes = ["http://", "https://", "redis://", "postgres://", "postgresql://"];
    let asks = ["redis:", "postgres:", "postgresql:"].iter().any(|scheme| text.starts_with(scheme));
    // A host has no @, a path may have one.
    let host = ["redis:", "postgres:", "http:"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let host = host.and_then(|rest| rest.split(['/', ',']).next()).is_some_and(|host| host.contains('@'));
    schemes.into_iter().any(|scheme| in_address(scheme) == Some(true)) || host || asks && text.contains("password=")
}

/// `redis:[HOST:]PORT:pQ`, `postgres:[HOST:]PORT:pQ`, `postgres:/FOLDER[:PORT]:pQ`, `http:[HOST:]PORT[/PATH]:pQ`;
/// `None` for other sources.
fn probe(text: &str) -> Option<Result<(MetricSource, Option<f64>), String>> {
    let (name, rest) = text.split_once(':')?;
    let all = [Protocol::Redis, Protocol::Postgres, Protocol::Http];
    let protocol = all.into_iter().find(|protocol| protocol.name() == name)?;
    if protocol == Protocol::Http && rest.starts_with("//") {
        return None; // the content of the answer, not its latency
    }
    let wrong = || {
        let place = match protocol {
            Protocol::Redis => "redis:[HOST:]PORT:p99",
            Protocol::Postgres => "postgres:[HOST:]PORT:p99, or postgres:/FOLDER/OF/SOCKET[:PORT]:p99",
            Protocol::Http => "http:[HOST:]PORT[/PATH]:p99",
        };
        Err(format!("'{text}' names no port and quantile; write {place}"))
    };
    let Some((place, percent)) = percentile(rest) else { return Some(wrong()) };
    if protocol == Protocol::Http && place.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some(wrong());
    }
    let path = if protocol == Protocol::Http { place.find('/').unwrap_or(place.len()) } else { place.len() };
    let (place, path) = place.split_at(path);
    let address = match place.rsplit_once(':') {
        Some((folder, number)) if place.starts_with('/') && protocol == Protocol::Postgres => {
            port(number).map(|port| socket(folder, port))
        }
        _ if place.starts_with('/') => Some(place.to_owned()),
        Some((host, number)) if !host.is_empty() => port(number).map(|_| place.to_owned()),
        Some(_) => None,
        None => port(place).map(|port| format!("127.0.0.1:{port}")),
    };
    let address = address.map(|address| address + path);
    Some(match address {
        Some(address) => Ok((MetricSource::Probe { protocol, address }, Some(percent / 100.0))),
        None => wrong(),
    })
}

/// `clients:PORT:pQ`, `clients:/SOCKET:pQ`, and both with `beyond=TIME` for `pQ`; `None` where it is another source.
fn clients(text: &str) -> Option<Result<(MetricSource, Option<f64>), String>> {
    let rest = text.strip_prefix("clients:")?;
    let beyond =
        rest.rsplit_once(":beyond=").and_then(|(place, time)| Some((place, None, Some(parse::duration(time).ok()?))));
    let quantile = || percentile(rest).map(|(place, percent)| (place, Some(percent / 100.0), None));
    let found = beyond.or_else(quantile).and_then(|(place, quantile, beyond)| {
        let service =
            if place.starts_with('/') { Service::Socket(place.to_owned()) } else { Service::Port(port(place)?) };
        Some((MetricSource::Clients { service, beyond }, quantile))
    });
    let wrong = "names no port or socket and quantile; write clients:PORT:p99 or clients:/PATH/OF/SOCKET:p99, or \
                 beyond=TIME for p99";
    Some(found.ok_or_else(|| format!("'{text}' {wrong}")))
}

/// `…:p99` → what stands before it, and 99.
fn percentile(text: &str) -> Option<(&str, f64)> {
    let (place, percent) = text.rsplit_once(":p")?;
    let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent))?;
    Some((place, percent))
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// Where `PostgreSQL` listens in a folder.
pub fn socket(folder: &str, port: u16) -> String {
    format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/'))
}

fn source(text: &str) -> Result<MetricSource, String> {
    let known = "write cmd:COMMAND, log:PATH:REGEX, http://HOST[:PORT]/PATH[#SERIES], or clients, redis, postgres or http:PORT:p99";
    if let Some(command) = text.strip_prefix("cmd:") {
        return match command.trim() {
            "" => Err("there is no command; write cmd:COMMAND".to_owned()),
            command => Ok(MetricSource::Command(command.to_owned())),
        };
    }
    if let Some(rest) = text.strip_prefix("log:") {
        return match rest.split_once(':') {
            Some((path, pattern)) if !path.is_empty() && !pattern.is_empty() => {
                Ok(MetricSource::Log { path: path.to_owned(), pattern: pattern.to_owned() })
            }
            _ => Err("a file and a regular expression are needed; write log:PATH:REGEX".to_owned()),
        };
    }
    if text.starts_with("https://") {
        return Err("https is not spoken; use the plain endpoint on this machine, or cmd:curl …".to_owned());
    }
    if let Some(rest) = text.strip_prefix("http://") {
        let (address, fragment) = rest.split_once('#').map_or((rest, None), |(a, f)| (a, Some(f)));
        let place = address.split('?').next().unwrap_or_default();
        if place.is_empty() || place.starts_with(['/', ':']) || place.contains(char::is_whitespace) {
            return Err("there is no host; write http://HOST[:PORT]/PATH[#SERIES]".to_owned());
        }
        let series = fragment.map(str::parse).transpose().map_err(|e: exposition::SelectorError| e.to_string())?;
        return Ok(MetricSource::Http { url: format!("http://{}", in_url(address)), series });
    }
    Err(format!("unknown source; {known}"))
}

/// Queries may be unencoded: characters that are invalid in an address are encoded.
fn in_url(address: &str) -> String {
    let hex = |c: char| match c {
        ' ' | '"' | '<' | '>' => format!("%{:02X}", u32::from(c)),
        other => other.to_string(),
    };
    address.chars().map(hex).collect()
}

impl MetricSource {
    /// Whether it tells how long each answer takes: quantiles of these are taken over any time.
    pub fn is_latency(&self) -> bool {
        matches!(self, Self::Probe { .. } | Self::Clients { beyond: None, .. })
    }

    /// The name of a metric that was given none.
    fn name(&self) -> String {
        match self {
            Self::Command(_) => "cmd".to_owned(),
            Self::Log { .. } => "log".to_owned(),
            Self::Http { series: None, .. } => "http".to_owned(),
            Self::Probe { protocol, .. } => protocol.name().to_owned(),
            Self::Clients { beyond: None, .. } => "clients".to_owned(),
            Self::Clients { beyond: Some(_), .. } => "clients_beyond".to_owned(),
            Self::Http { series: Some(series), .. } => series.name().chars().take(64).collect(),
        }
    }
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.%".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(fits)
}

/// Valid user names of servers: `PostgreSQL` allows 63 bytes.
fn is_user(text: &str) -> bool {
    (1..=64).contains(&text.len()) && !text.contains(|c: char| c.is_control() || c.is_whitespace())
}

/// A time between 10 ms and 1 h.
fn duration(text: &str) -> Option<Duration> {
    let time = parse::duration(text).ok()?;
    (Duration::from_millis(10)..=Duration::from_secs(3_600)).contains(&time).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(text: &str) -> Metric {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn options_are_read_from_the_end() {
        let m = metric("cmd:awk -F, '{print $1,$2}' f,lower,every=250ms,name=p99,timeout=2s");
        assert_eq!(m.source, MetricSource::Command("awk -F, '{print $1,$2}' f".into()));
        assert_eq!((m.name.as_str(), m.direction), ("p99", Some(Direction::LowerIsBetter)));
        assert_eq!((m.every, m.timeout), (Duration::from_millis(250), Duration::from_secs(2)));
        let m = metric("log:/var/log/x.log:took ([0-9.]+), ok");
        assert_eq!(m.source, MetricSource::Log { path: "/var/log/x.log".into(), pattern: "took ([0-9.]+), ok".into() });
        assert_eq!((m.direction, m.every, m.name.as_str()), (None, EVERY, "log"));
    }

    /// Promise speed/passwords: Passwords go only to the server that wants them, and are found in no recording,
    /// journal, log, status, error or argument.
    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for text in [
            "http://bob:topsecret@127.0.0.1:9137/m#foo",
            "postgres://bob:topsecret@127.0.0.1:5432/db",
            "redis://:topsecret@127.0.0.1",
            "redis:topsecret@127.0.0.1:6379:p99",
            "postgres:topsecret@localhost:5432:p99",
            "redis:6379:p99,password=topsecret",
            " http://bob:topsecret@127.0.0.1/m",
        ] {
            let why = text.parse::<Metric>().unwrap_err().to_string();
            assert!(why.contains("REDISCLI_AUTH") && !why.contains("topsecret"), "{why}");
        }
        metric("cmd:curl -s http://bob:topsecret@127.0.0.1/");
        metric("http://127.0.0.1:9137/m@x:y#foo");
        metric("redis:/run/@redis.sock:p99");
        metric("postgres:5432:p99,user=bob@example");
    }

    #[test]
    fn series_of_endpoints_may_hold_commas_too() {
        let m = metric(r#"http://localhost:9090/metrics#http_seconds{path="/a,lower",code="200"},q=0.5"#);
        let MetricSource::Http { url, series: Some(series) } = &m.source else { panic!("{m:?}") };
        assert_eq!((url.as_str(), series.name()), ("http://localhost:9090/metrics", "http_seconds"));
        assert_eq!((m.direction, m.quantile), (None, Some(0.5)));
        let m = metric(r#"http://a/m#wait{quantile="0.99"}"#);
        assert_eq!((m.direction, m.quantile), (Some(Direction::LowerIsBetter), None));
        assert_eq!(
            metric("http://[::1]:80/x").source,
            MetricSource::Http { url: "http://[::1]:80/x".into(), series: None }
        );
    }

    #[test]
    fn queries_of_prometheus_are_written_as_they_are() {
        let query = r#"histogram_quantile(0.99, sum by (le) (rate(t_bucket{job="shop"}[10s])))"#;
        let m = metric(&format!("http://localhost:9090/api/v1/query?query={query},lower,every=10s,name=p99"));
        let url = "http://localhost:9090/api/v1/query?query=histogram_quantile(0.99,%20sum%20by%20(le)%20\
                   (rate(t_bucket{job=%22shop%22}[10s])))";
        assert_eq!(m.source, MetricSource::Http { url: url.into(), series: None });
        assert_eq!(
            (m.direction, m.every, m.name.as_str()),
            (Some(Direction::LowerIsBetter), Duration::from_secs(10), "p99")
        );
    }

    #[test]
    fn servers_are_asked_by_port_or_socket() {
        let m = metric("redis:6379:p99,every=2s");
        let probe = |protocol, address: &str| MetricSource::Probe { protocol, address: address.to_owned() };
        assert_eq!((&m.source, m.quantile), (&probe(Protocol::Redis, "127.0.0.1:6379"), Some(0.99)));
        assert_eq!((m.direction, m.name.as_str()), (Some(Direction::LowerIsBetter), "redis"));
        assert_eq!(metric("redis:db:6380:p50").source, probe(Protocol::Redis, "db:6380"));
        let m = metric("postgres:/run/postgresql:p99.9,name=pg");
        assert_eq!(m.source, probe(Protocol::Postgres, "/run/postgresql"));
        for text in ["postgres:/run/pg:5433:p99", "postgres:/run/pg/:5433:p99", "postgres:/run/pg/.s.PGSQL.5433:p99"] {
            assert_eq!(metric(text).source, probe(Protocol::Postgres, "/run/pg/.s.PGSQL.5433"), "{text}");
        }
        assert!(m.quantile.is_some_and(|q| (q - 0.999).abs() < 1e-12) && m.name == "pg");
        assert_eq!(metric("http:8080:p99").source, probe(Protocol::Http, "127.0.0.1:8080"));
        assert!(!m.elsewhere && !metric("redis:6379:p99,clients=here").elsewhere);
        assert!(metric("redis:6379:p99,every=2s,clients=elsewhere").elsewhere);
        let m = metric("postgres:5432:p99,user=cotenant,name=pg");
        assert_eq!((m.user.as_deref(), m.name.as_str(), m.foreign), (Some("cotenant"), "pg", false));
        let m = metric("http:[::1]:8080/a:p/b?c=d:p50,name=web");
        assert_eq!((&m.source, m.quantile), (&probe(Protocol::Http, "[::1]:8080/a:p/b?c=d"), Some(0.5)));
        assert_eq!((m.direction, m.name.as_str()), (Some(Direction::LowerIsBetter), "web"));
    }

    #[test]
    fn clients_are_those_of_a_port_or_a_socket() {
        let m = metric("clients:6379:p99,every=2s");
        let clients = |service, beyond| MetricSource::Clients { service, beyond };
        assert_eq!((&m.source, m.quantile), (&clients(Service::Port(6379), None), Some(0.99)));
        assert_eq!((m.direction, m.name.as_str()), (Some(Direction::LowerIsBetter), "clients"));
        let m = metric("clients:/run/my:p/a b.sock:p50,name=db");
        assert_eq!(m.source, clients(Service::Socket("/run/my:p/a b.sock".into()), None));
        assert!(m.source.is_latency() && m.quantile == Some(0.5));
        let m = metric("clients:6379:beyond=5ms");
        assert_eq!(m.source, clients(Service::Port(6379), Some(Duration::from_millis(5))));
        assert_eq!((m.direction, m.name.as_str()), (Some(Direction::LowerIsBetter), "clients_beyond"));
        assert!(!m.source.is_latency() && m.quantile.is_none());
        assert!(matches!(metric("clients:/run/a:beyond=1ms").source, MetricSource::Clients { beyond: Some(_), .. }));
    }

    #[test]
    fn what_is_no_metric_says_why() {
        for (text, why) in [
            ("", "unknown source"),
            ("redis", "unknown source"),
            ("cmd: ", "no command"),
            ("log:/x", "regular expression"),
            ("https://a/b", "https"),
            ("http:///x", "no host"),
            ("http://?query=x", "no host"),
            ("http://a b/x", "no host"),
            ("http://a/m#", "series"),
            ("http://a/m#x{y=1}", "series"),
            ("cmd:x,every=1", "time"),
            ("cmd:x,every=61min", "time"),
            ("cmd:x,every=1us", "time"),
            ("cmd:x,q=0.5", "histograms"),
            ("redis:p99", "names no port"),
            ("redis:6379", "names no port"),
            ("redis:0:p99", "names no port"),
            ("postgres:h:x:p99", "names no port"),
            ("postgres:/run/pg:0:p99", "names no port"),
            ("http:8080", "names no port"),
            ("http:/x:p99", "names no port"),
            ("http:h:80/a b:p99", "names no port"),
            ("redis:6379:p99,q=0.5", "already"),
            ("clients:6379", "names no port or socket"),
            ("clients:0:p99", "names no port or socket"),
            ("clients:db:6379:p99", "names no port or socket"),
            ("clients:p99", "names no port or socket"),
            ("clients:6379:p101", "names no port or socket"),
            ("clients:6379:beyond=", "names no port or socket"),
            ("clients:0:beyond=5ms", "names no port or socket"),
            ("clients:6379:beyond=5ms,q=0.5", "already"),
            ("clients:6379:p99,q=0.5", "already"),
            ("clients:6379:p99,clients=here", "servers that are asked"),
            ("clients:6379:p99,user=a", "redis and postgres"),
            ("http://a/m#x,q=2", "quantile"),
            ("cmd:x,name=a b", "name"),
            ("cmd:x,clients=here", "servers that are asked"),
            ("redis:6379:p99,clients=there", "here or elsewhere"),
            ("redis:6379:p99,user=", "name of a user"),
            ("redis:6379:p99,user=a b", "name of a user"),
            ("http:8080:p99,user=a", "redis and postgres"),
        ] {
            let error = text.parse::<Metric>().expect_err(text).to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
