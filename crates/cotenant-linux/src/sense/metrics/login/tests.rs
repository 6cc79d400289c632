//! Servers with passwords: scripted ones, and real ones if installed.

use super::super::credentials::Given;
use super::super::probe::Probe;
use super::super::wire::tests::{message, repeated, selected, server, welcome};
use super::super::{FetchError, stop};
use super::*;
use crate::sys;
use cotenant_model::metric::{Measured, Metric, MetricSource, Protocol};
use cotenant_testing::{TempDir, eventually};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Must not appear anywhere else.
const PASSWORD: &str = "hush: it's \\ a secret";

const PATIENCE: Duration = Duration::from_secs(60);

fn credentials(user: &str, password: &str) -> Credentials {
    let given = Given {
        login: "nobody".to_owned(),
        postgres: Secret::new(password),
        redis: Secret::new(password),
        ..Given::default()
    };
    Credentials { given, user: Some(user.to_owned()).filter(|user| !user.is_empty()), foreign: false }
}

/// No message of a failure contains a password.
fn ask(protocol: Protocol, address: &str, credentials: &Credentials) -> Result<Option<Measured>, FetchError> {
    let (_stopper, stop) = stop::pair().unwrap();
    let mut probe = Probe::new(protocol, address, 0.99, Duration::from_millis(20), PATIENCE).by(credentials.clone());
    let result = probe.fetch(&stop);
    let all = format!("{probe:?} {result:?} {}", result.as_ref().err().map(ToString::to_string).unwrap_or_default());
    assert!(!all.contains("hush"), "{all}");
    result
}

fn why(protocol: Protocol, address: &str, credentials: &Credentials) -> String {
    ask(protocol, address, credentials).unwrap_err().to_string()
}

/// The next message of a client, without its kind at the start.
fn hear(mut stream: &TcpStream, kind: usize) -> io::Result<Vec<u8>> {
    let mut head = vec![0; kind + 4];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_be_bytes(head[kind..].try_into().unwrap()) as usize - 4];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn wants(kind: u32, more: &[u8]) -> Vec<u8> {
    message(b'R', &[&kind.to_be_bytes()[..], more].concat())
}

type Answer = Box<dyn FnOnce(Vec<Vec<u8>>) -> Vec<u8> + Send>;

/// A `PostgreSQL` that sends each of these in turn and reads an answer after all but the last; then evaluates them;
/// then answers probes.
fn postgres_that(says: Vec<Vec<u8>>, concludes: impl FnOnce(Vec<Vec<u8>>) -> Vec<u8> + Send + 'static) -> String {
    server(move |mut stream| {
        hear(stream, 0)?;
        let mut heard = Vec::new();
        for says in says {
            stream.write_all(&says)?;
            heard.push(hear(stream, 1)?);
        }
        stream.write_all(&concludes(heard))?;
        loop {
            let question = String::from_utf8(hear(stream, 1)?).unwrap();
            stream.write_all(&selected(question.strip_prefix("SELECT ").unwrap().trim_end_matches('\0')))?;
        }
    })
}

#[test]
fn a_password_in_the_clear_or_hashed_is_what_was_asked_for() {
    let clear = postgres_that(vec![wants(3, b"")], |heard| {
        assert_eq!(heard, [[PASSWORD.as_bytes(), b"\0"].concat()]);
        welcome()
    });
    assert!(ask(Protocol::Postgres, &clear, &credentials("ann", PASSWORD)).is_ok());
    let hashed = postgres_that(vec![wants(5, &[0x2a, 0x3d, 0x8f, 0xe0])], |heard| {
        assert_eq!(heard, [b"md562af4dd09bbb41884907a838a3233294\0".to_vec()]);
        welcome()
    });
    assert!(ask(Protocol::Postgres, &hashed, &credentials("md5_user", "password")).is_ok());
}

#[test]
fn a_server_that_repeats_a_password_is_not_quoted() {
    let says = |heard: &[u8]| message(b'E', &[b"SFATAL\0C28P01\0Mwhat is ", heard, b"\0\0"].concat());
    let address = postgres_that(vec![wants(3, b"")], move |heard| says(heard[0].trim_ascii_end()));
    let why_it = why(Protocol::Postgres, &address, &credentials("ann", PASSWORD));
    assert!(why_it.contains("it says 'what is …") && why_it.contains("PGPASSWORD"), "{why_it}");
    let address = redis_that(|words| match &words[..] {
        [auth, _] if auth == "AUTH" => format!("-WRONGPASS no {}\r\n", words[1]).into_bytes(),
        _ => b"-NOAUTH Authentication required.\r\n".to_vec(),
    });
    let why_it = why(Protocol::Redis, &address, &credentials("", PASSWORD));
    assert!(why_it.contains("WRONGPASS no …") && why_it.contains("REDISCLI_AUTH"), "{why_it}");
}

/// Each in the words of a server that speaks another language.
/// Holds speed/bad-metric.
#[test]
fn a_refusal_names_its_cure() {
    for (code, routine, cure) in [
        ("28000", "ClientAuthentication", "; give pg_hba.conf a line host for ann and ann"),
        ("28000", "InitializeSessionUserId", "createuser ann, or ALTER ROLE ann LOGIN"),
        ("28000", "auth_failed", "; say scram-sha-256 for this address in pg_hba.conf"),
        ("28P01", "auth_failed", "PGPASSWORD"),
        ("42501", "CheckMyDatabase", "GRANT CONNECT ON DATABASE ann TO ann"),
        ("55000", "CheckMyDatabase", "PGDATABASE"),
        ("57P03", "ProcessStartupPacket", "'nein'"),
    ] {
        let says = message(b'E', format!("SFATAL\0C{code}\0Mnein\0R{routine}\0\0").as_bytes());
        let address = postgres_that(vec![], |_| says);
        let why = ask(Protocol::Postgres, &address, &credentials("ann", "")).unwrap_err();
        assert_eq!(why.is_certain(), code != "57P03", "{code}: {why}");
        assert!(why.to_string().contains(cure), "{code}: {why}");
    }
    let address = redis_that(|words| match &*words[0] {
        "AUTH" => b"+OK\r\n".to_vec(),
        _ => b"-NOPERM User ann has no permissions to run the 'ping' command\r\n".to_vec(),
    });
    let why = ask(Protocol::Redis, &address, &credentials("ann", "x")).unwrap_err();
    assert!(why.is_certain() && why.to_string().contains("ACL SETUSER NAME +ping"), "{why}");
}

/// Holds speed/passwords.
#[test]
fn a_server_that_does_not_prove_itself_is_refused() {
    let sasl = || wants(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    let nonce = |heard: &[u8]| {
        let first = String::from_utf8(heard[SCRAM_SHA_256.len() + 5..].to_vec()).unwrap();
        first.strip_prefix("n,,n=,r=").unwrap().to_owned()
    };
    let first = move |heard: &[Vec<u8>], iterations: u32| {
        wants(11, format!("r={}x,s=QSXCR+Q6sek8bf92,i={iterations}", nonce(&heard[0])).as_bytes())
    };
    for (says, expected) in [
        // It admits any user: perhaps it only wants to see a proof.
        (Box::new(|_: Vec<Vec<u8>>| welcome()) as Answer, "without proving"),
        (Box::new(|_| wants(12, b"v=AAAA")), "SCRAM"),
        (Box::new(move |heard| [first(&heard, 4_096), wants(12, b"v=AAAA")].concat()), "SCRAM"),
        (Box::new(move |heard| first(&heard, u32::MAX)), "exceeds the maximum"),
        (Box::new(|_| wants(11, b"r=x,s=QSXCR+Q6sek8bf92,i=4096")), "nonce"),
        (Box::new(|_| wants(3, b"")), "more than one proof"),
    ] {
        let address = postgres_that(vec![sasl()], says);
        let why = why(Protocol::Postgres, &address, &credentials("ann", PASSWORD));
        assert!(why.contains(expected), "{expected}: {why}");
    }
    let address = postgres_that(vec![wants(3, b"")], |_| wants(5, &[0; 4]));
    let twice = why(Protocol::Postgres, &address, &credentials("ann", PASSWORD));
    assert!(twice.contains("more than one proof"), "{twice}");
}

/// Holds speed/passwords.
#[test]
fn a_password_is_only_for_those_who_may_have_it() {
    let foreign = Credentials { foreign: true, ..credentials("ann", PASSWORD) };
    for kind in [wants(3, b""), wants(5, &[0; 4]), wants(10, b"SCRAM-SHA-256\0\0")] {
        let address = postgres_that(vec![kind], |heard| panic!("it was sent {heard:?}"));
        let why = why(Protocol::Postgres, &address, &foreign);
        assert!(why.contains("only for metrics of rules"), "{why}");
    }
    let address = redis_that(|words| {
        assert_eq!(words[0], "PING");
        b"-NOAUTH Authentication required.\r\n".to_vec()
    });
    let foreign = Credentials { user: None, ..foreign };
    assert!(why(Protocol::Redis, &address, &foreign).contains("only for metrics of rules"));
    // Clear text stays on this machine.
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut wire = Wire::over(ours).0;
    theirs.write_all(&wants(3, b"")).unwrap();
    let why = start(&mut wire, "db.example:5432", "x", &credentials("ann", PASSWORD)).unwrap_err().to_string();
    assert!(why.contains("over a network"), "{why}");
    drop(wire);
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).unwrap();
    assert!(!String::from_utf8_lossy(&sent).contains("hush"));
}

/// A redis that answers each command by this function of its words.
fn redis_that(mut answer: impl FnMut(Vec<String>) -> Vec<u8> + Send + 'static) -> String {
    server(move |mut stream| {
        let mut lines = BufReader::new(stream);
        let mut line = move || {
            let mut text = Vec::new();
            lines.read_until(b'\n', &mut text)?;
            let text = String::from_utf8(text).unwrap();
            if text.is_empty() { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) } else { Ok(text) }
        };
        loop {
            let first = line()?;
            let words = match first.strip_prefix('*') {
                Some(count) => {
                    let mut words = Vec::new();
                    for _ in 0..count.trim_end().parse::<usize>().unwrap() {
                        let length = line()?;
                        let word = line()?.trim_end_matches("\r\n").to_owned();
                        assert_eq!(length, format!("${}\r\n", word.len()));
                        words.push(word);
                    }
                    words
                }
                None => first.split_whitespace().map(str::to_owned).collect(),
            };
            stream.write_all(&answer(words))?;
        }
    })
}

#[test]
fn a_redis_is_told_who_asks_where_it_wants_to_know() {
    let guarded = |wanted: &'static [&'static str]| {
        let mut is_in = false;
        redis_that(move |words| match words[0].as_str() {
            "AUTH" if words[1..] == *wanted => {
                is_in = true;
                b"+OK\r\n".to_vec()
            }
            "AUTH" => b"-WRONGPASS invalid username-password pair or user is disabled.\r\n".to_vec(),
            "PING" if is_in => repeated(&words[1]),
            _ => b"-NOAUTH Authentication required.\r\n".to_vec(),
        })
    };
    assert!(ask(Protocol::Redis, &guarded(&[PASSWORD]), &credentials("", PASSWORD)).is_ok());
    assert!(ask(Protocol::Redis, &guarded(&["ann", PASSWORD]), &credentials("ann", PASSWORD)).is_ok());
    assert!(ask(Protocol::Redis, &guarded(&["ann", ""]), &credentials("ann", "")).is_ok(), "a user without a password");
    let why_not = why(Protocol::Redis, &guarded(&["other"]), &credentials("", PASSWORD));
    assert!(why_not.contains("WRONGPASS") && why_not.contains("REDISCLI_AUTH"), "{why_not}");
    let why_not = why(Protocol::Redis, &guarded(&[PASSWORD]), &credentials("", ""));
    assert!(why_not.contains("put it into REDISCLI_AUTH"), "{why_not}");
    let open = redis_that(|words| {
        assert_eq!(words[0], "PING", "it has not asked");
        repeated(&words[1])
    });
    assert!(ask(Protocol::Redis, &open, &credentials("", PASSWORD)).is_ok());
}

/// An installed server; ended on drop.
struct Real {
    process: Child,
    address: String,
    folder: TempDir,
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `PostgreSQL` with a user for each authentication method, or why there is none.
fn real_postgres() -> Result<Real, String> {
    let bins = fs::read_dir("/usr/lib/postgresql").map_err(|_| "no PostgreSQL is installed")?;
    let bin = bins.flatten().map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists());
    let bin: PathBuf = bin.ok_or("no PostgreSQL is installed")?;
    let folder = TempDir::new("postgres");
    let (at, port) = (folder.path().display(), free_port());
    // It refuses to run as root.
    let other = if sys::euid() == 0 {
        let made = Command::new("chown").args(["postgres", &at.to_string()]).status();
        made.ok().filter(std::process::ExitStatus::success).ok_or("no user postgres")?;
        "exec setpriv --reuid postgres --regid postgres --clear-groups"
    } else {
        "exec"
    };
    let hba = "local all super trust\nlocal all all peer\nhost all scram 127.0.0.1/32 scram-sha-256\n\
               host all md 127.0.0.1/32 md5\nhost all clear 127.0.0.1/32 password\n\
               host all nologin,shut 127.0.0.1/32 trust\n";
    let quoted = PASSWORD.replace('\'', "''");
    let sql = format!(
        "CREATE ROLE scram LOGIN PASSWORD '{quoted}'; CREATE ROLE clear LOGIN PASSWORD '{quoted}';\n\
         SET password_encryption = 'md5'; CREATE ROLE md LOGIN PASSWORD '{quoted}';\n\
         CREATE ROLE stranger LOGIN; CREATE ROLE nologin; CREATE ROLE shut LOGIN;\n\
         CREATE DATABASE shut;\nREVOKE CONNECT ON DATABASE shut FROM PUBLIC;\n"
    );
    fs::write(folder.path().join("hba"), hba).unwrap();
    fs::write(folder.path().join("sql"), sql).unwrap();
    let script = format!(
        "cd {at} && chmod 755 . hba sql && {other} sh -ec '\
         PATH=$PATH:{bin}; initdb -A trust -U super --no-sync -D db >&2; cat hba >db/pg_hba.conf; \
         postgres --single -D db postgres <sql >&2; \
         exec postgres -D db -p {port} -k {at} -c listen_addresses=127.0.0.1 -c fsync=off'",
        bin = bin.display()
    );
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let process = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|why| why.to_string())?;
    let mut real = Real { process, address: format!("127.0.0.1:{port}"), folder };
    let mut ended = false;
    eventually("PostgreSQL listens", || {
        ended = real.process.try_wait().unwrap().is_some();
        ended || TcpStream::connect(&real.address).is_ok()
    });
    let log = || fs::read_to_string(real.folder.path().join("log")).unwrap_or_default();
    if ended { Err(format!("PostgreSQL does not start here: {}", log())) } else { Ok(real) }
}

/// Holds speed/passwords.
#[test]
fn a_real_postgres_is_asked_in_each_way() {
    let real = match real_postgres() {
        Ok(real) => real,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let starting = |why: &str| why.contains("starting up");
    eventually(
        "it is up",
        || !matches!(ask(Protocol::Postgres, &real.address, &credentials("scram", "x")), Err(why) if starting(&why.to_string())),
    );
    for user in ["scram", "md", "clear"] {
        let measured = ask(Protocol::Postgres, &real.address, &credentials(user, PASSWORD)).unwrap().unwrap();
        assert!(measured.value > 0.0, "{user}");
        let wrong = why(Protocol::Postgres, &real.address, &credentials(user, "other"));
        assert!(wrong.contains("password authentication failed") && wrong.contains("PGPASSWORD"), "{wrong}");
    }
    let none = why(Protocol::Postgres, &real.address, &credentials("scram", ""));
    assert!(none.contains("PGPASSFILE"), "{none}");
    let socket = format!("{}/.s.PGSQL.{}", real.folder.path().display(), real.address.rsplit_once(':').unwrap().1);
    let peer = why(Protocol::Postgres, &socket, &credentials("scram", PASSWORD));
    assert!(peer.contains("Peer authentication failed") && peer.contains("createuser nobody"), "{peer}");
    for (user, cure) in [
        ("stranger", "; give pg_hba.conf a line host"),
        ("nologin", "ALTER ROLE nologin LOGIN"),
        ("nobody-at-all", "; give pg_hba.conf a line host"),
        ("shut", "GRANT CONNECT ON DATABASE shut TO shut"),
    ] {
        let why = ask(Protocol::Postgres, &real.address, &credentials(user, "")).unwrap_err();
        assert!(why.is_certain() && why.to_string().contains(cure), "{user}: {why}");
    }
    // Its folder, with its port given in each way; and a wrong one.
    let folder = real.folder.path().display();
    let port = real.address.rsplit_once(':').unwrap().1;
    let given = |port: Option<&str>| Credentials {
        given: Given { port: port.map(|port| port.parse().unwrap()), ..credentials("super", "").given },
        ..credentials("super", "")
    };
    let place = |text: String, credentials: &Credentials| match text.parse::<Metric>().unwrap().source {
        MetricSource::Probe { address, .. } => credentials.place(&address),
        other => panic!("{other:?}"),
    };
    for (text, port) in [
        (format!("postgres:{folder}:{port}:p99"), None),
        (format!("postgres:{folder}/.s.PGSQL.{port}:p99"), None),
        (format!("postgres:{folder}:p99"), Some(port)),
    ] {
        let credentials = given(port);
        let address = place(text.clone(), &credentials);
        assert!(ask(Protocol::Postgres, &address, &credentials).is_ok(), "{text}");
    }
    let why = why(Protocol::Postgres, &place(format!("postgres:{folder}:p99"), &given(None)), &given(None));
    assert!(why.contains(&format!("another port: postgres:{folder}:{port}:p99, or set PGPORT")), "{why}");
}

/// Holds speed/passwords.
#[test]
fn a_real_redis_is_asked_with_a_password_and_as_a_user() {
    let (port, folder) = (free_port(), TempDir::new("redis"));
    let arguments = ["--requirepass", PASSWORD, "--user", "ann", "on", &format!(">{PASSWORD}"), "+ping", "--save", ""];
    let started = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(folder.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let process = match started {
        Ok(process) => process,
        Err(why) => return eprintln!("skipped: redis-server: {why}"),
    };
    let real = Real { process, address: format!("127.0.0.1:{port}"), folder };
    eventually("redis listens", || TcpStream::connect(&real.address).is_ok());
    for user in ["", "ann"] {
        assert!(ask(Protocol::Redis, &real.address, &credentials(user, PASSWORD)).is_ok(), "{user}");
        let wrong = why(Protocol::Redis, &real.address, &credentials(user, "other"));
        assert!(wrong.contains("WRONGPASS") && wrong.contains("REDISCLI_AUTH"), "{wrong}");
    }
}
