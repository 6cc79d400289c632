//! User names and passwords for servers, from the places of `psql` and `redis-cli`.
//!
//! A password is read when a server requests it, and never shown.

use crate::bounded::{self, Limit};
use crate::sys;
use cotenant_model::metric::{Metric, socket};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Limit of a password, bytes: SCRAM hashes it thousands of times.
const MOST: usize = 1 << 10;

/// Limit of a password file, bytes.
const MOST_FILE: u64 = 1 << 20;

/// The default port of `PostgreSQL`.
const PORT: u16 = 5432;

/// `PostgreSQL`'s names of sockets, before their ports.
pub const SOCKET: &str = ".s.PGSQL.";

fn is_socket(name: &str) -> bool {
    name.starts_with(SOCKET)
}

/// A password, which never prints itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Only for sending it.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// Foreign bytes with the password removed, because a recipient may echo it.
    pub fn hidden_in(&self, bytes: &[u8]) -> Vec<u8> {
        let mut rest = bytes;
        let mut out = Vec::new();
        while let Some(first) = rest.first() {
            if let Some(behind) = rest.strip_prefix(&self.0[..]).filter(|_| !self.0.is_empty()) {
                out.extend("…".as_bytes());
                rest = behind;
            } else {
                out.push(*first);
                rest = &rest[1..];
            }
        }
        out
    }

    /// `None` without one.
    fn of(bytes: Vec<u8>) -> Result<Option<Self>, String> {
        match bytes.len() {
            0 => Ok(None),
            1..=MOST => Ok(Some(Self(bytes))),
            _ => Err(format!("it is longer than {MOST} bytes")),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Credentials of this process for servers.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The user of this process.
    pub login: String,
    /// `PGUSER`, `PGDATABASE`, `PGPORT`.
    pub user: Option<String>,
    pub database: Option<String>,
    pub port: Option<u16>,
    /// `PGPASSWORD`, and the file named by `PGPASSFILE` or in the home.
    pub postgres: Secret,
    pub file: Option<PathBuf>,
    /// `REDISCLI_AUTH`.
    pub redis: Secret,
}

impl Given {
    fn here() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name| var(name).and_then(|value| value.into_string().ok());
        let secret = |name| Secret::new(var(name).map(OsString::into_vec).unwrap_or_default());
        let (login, home) = entry().unzip();
        let home = var("HOME").map(PathBuf::from).or(home);
        Self {
            login: login.or_else(|| text("USER")).unwrap_or_else(|| "postgres".to_owned()),
            user: text("PGUSER"),
            database: text("PGDATABASE"),
            port: text("PGPORT").and_then(|port| port.parse().ok()),
            postgres: secret("PGPASSWORD"),
            file: var("PGPASSFILE").map(PathBuf::from).or_else(|| Some(home?.join(".pgpass"))),
            redis: secret("REDISCLI_AUTH"),
        }
    }
}

/// Name and home of this process's user, which services may lack in their environment.
fn entry() -> Option<(String, PathBuf)> {
    let users = bounded::text("/etc/passwd", Limit::Machine).ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        (uid == sys::euid()).then(|| (name.to_owned(), PathBuf::from(fields.nth(2).unwrap_or("/"))))
    })
}

/// Credentials for a metric.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    pub given: Given,
    /// From its options.
    pub user: Option<String>,
    /// Written by another party: it gets no password.
    pub foreign: bool,
}

impl Credentials {
    pub fn of(metric: &Metric) -> Self {
        Self { given: Given::here(), user: metric.user.clone(), foreign: metric.foreign }
    }

    /// Role of `PostgreSQL`.
    pub fn role(&self) -> &str {
        self.user.as_ref().or(self.given.user.as_ref()).unwrap_or(&self.given.login)
    }

    /// The address of `PostgreSQL`: for a folder, the socket with the default port here.
    pub fn place(&self, address: &str) -> String {
        let is_folder = address.starts_with('/') && !address.rsplit('/').next().is_some_and(is_socket);
        if is_folder { socket(address, self.given.port.unwrap_or(PORT)) } else { address.to_owned() }
    }

    /// For a role of a database at an address; or why there is none, with advice.
    pub fn postgres(&self, address: &str, database: &str) -> Result<Secret, String> {
        self.may()?;
        if let Some(secret) = Secret::of(self.given.postgres.0.clone())? {
            return Ok(secret);
        }
        let path = self.given.file.as_ref().ok_or("put it into PGPASSWORD, or into a file that PGPASSFILE names")?;
        let text = own(path).map_err(|why| format!("{} is not read: {why}", path.display()))?;
        let (hosts, port) = hosts(address);
        let found = hosts.iter().find_map(|host| found(&text, [host, &port, database, self.role()]));
        Secret::of(found.unwrap_or_default())?.ok_or_else(|| {
            let line = format!("{}:{port}:*:{}:PASSWORD", hosts[0], self.role());
            format!("put it into PGPASSWORD, or as a line {line} into {}", path.display())
        })
    }

    /// For a redis; or why there is none, with advice.
    pub fn redis(&self) -> Result<Secret, String> {
        self.may()?;
        Secret::of(self.given.redis.0.clone())?.ok_or_else(|| "put it into REDISCLI_AUTH".to_owned())
    }

    fn may(&self) -> Result<(), String> {
        if self.foreign { Err("passwords are only for metrics of rules; write one".to_owned()) } else { Ok(()) }
    }
}

/// A file that only we can read and have written.
fn own(path: &Path) -> Result<Vec<u8>, String> {
    let text = |why: io::Error| why.to_string();
    let mut file = match bounded::named(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(text)?,
    };
    let meta = file.metadata().map_err(text)?;
    if meta.uid() != sys::euid() {
        return Err("it belongs to another user".to_owned());
    }
    if meta.mode() & 0o077 != 0 {
        return Err(format!("others may read or write it; chmod 600 {}", path.display()));
    }
    if meta.len() > MOST_FILE {
        return Err("it is longer than 1 MiB".to_owned());
    }
    bounded::rest(&mut file, Limit::Value).map_err(text)
}

/// Names of an address's server in a password file, and its port. Sockets and local addresses are `localhost` too.
fn hosts(address: &str) -> (Vec<String>, String) {
    let local = || "localhost".to_owned();
    if address.starts_with('/') {
        let (folder, name) = address.rsplit_once('/').unwrap_or_default();
        return (vec![local(), folder.to_owned()], name.rsplit('.').next().unwrap_or_default().to_owned());
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port.to_owned();
    if is_here(address) { (vec![local(), host], port) } else { (vec![host], port) }
}

/// Whether traffic to an address stays on this machine.
pub fn is_here(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    address.starts_with('/') || matches!(host, "localhost" | "[::1]" | "::1") || {
        host.parse::<std::net::Ipv4Addr>().is_ok_and(|host| host.is_loopback())
    }
}

/// The password of the first line that matches host, port, database and user.
pub(crate) fn found(file: &[u8], wanted: [&str; 4]) -> Option<Vec<u8>> {
    file.split(|byte| *byte == b'\n').find_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") {
            return None;
        }
        let mut rest = line;
        for wanted in wanted {
            let (field, behind) = rest.split_at(end(rest));
            if field != b"*" && plain(field) != wanted.as_bytes() {
                return None;
            }
            rest = behind.strip_prefix(b":")?;
        }
        Some(plain(&rest[..end(rest)]))
    })
}

/// End of a field: the first colon without a backslash before it.
fn end(line: &[u8]) -> usize {
    let mut escaped = false;
    let ends = line.iter().position(|byte| {
        let ends = *byte == b':' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    ends.unwrap_or(line.len())
}

/// A field without its backslashes.
fn plain(field: &[u8]) -> Vec<u8> {
    let mut bytes = field.iter();
    let next = || {
        let byte = bytes.next()?;
        Some(if *byte == b'\\' { *bytes.next().unwrap_or(byte) } else { *byte })
    };
    std::iter::from_fn(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn passwords_are_found_as_psql_finds_them() {
        let file = b"# db:5432:shop:ann:no\ndb:5432:shop\ndb:5432:shop:ann:first:rest\r\n*:5433:*:*:any\n\
                     a\\:b:1:\\*:c\\\\d:e\\:f\\\\g\nlocalhost:*:*:bob:x\\";
        let of = |host, port, database, user| {
            found(file, [host, port, database, user]).map(|found| String::from_utf8(found).unwrap())
        };
        for (wanted, password) in [
            (("db", "5432", "shop", "ann"), Some("first")),
            (("db", "5432", "shop", "bob"), None),
            (("db", "5432", "shopping", "ann"), None),
            (("elsewhere", "5433", "x", "y"), Some("any")),
            (("a:b", "1", "*", "c\\d"), Some("e:f\\g")),
            (("a:b", "1", "other", "c\\d"), None),
            (("localhost", "1", "x", "bob"), Some("x\\")),
            (("# db", "5432", "shop", "ann"), None),
        ] {
            let (host, port, database, user) = wanted;
            assert_eq!(of(host, port, database, user).as_deref(), password, "{wanted:?}");
        }
    }

    #[test]
    fn addresses_have_the_names_of_files() {
        let named = |address| {
            let (hosts, port) = hosts(address);
            (hosts.join(" "), port)
        };
        for (address, names, port) in [
            ("/run/postgresql/.s.PGSQL.5432", "localhost /run/postgresql", "5432"),
            ("127.0.0.1:5433", "localhost 127.0.0.1", "5433"),
            ("[::1]:5432", "localhost ::1", "5432"),
            ("db:1", "db", "1"),
            ("127.0.0.1.example:1", "127.0.0.1.example", "1"),
        ] {
            assert_eq!(named(address), (names.to_owned(), port.to_owned()), "{address}");
        }
    }

    #[test]
    fn a_folder_has_the_socket_of_the_usual_port() {
        let place = |port, address| {
            Credentials { given: Given { port, ..Given::default() }, ..Credentials::default() }.place(address)
        };
        assert_eq!(place(None, "/run/postgresql"), "/run/postgresql/.s.PGSQL.5432");
        assert_eq!(place(Some(5_433), "/run/postgresql/"), "/run/postgresql/.s.PGSQL.5433");
        for said in ["/run/postgresql/.s.PGSQL.5434", "db:5432"] {
            assert_eq!(place(Some(5_433), said), said);
        }
    }

    #[test]
    fn a_file_counts_only_if_it_is_ours_alone() {
        let folder = TempDir::new("pgpass");
        let file = folder.path().join("pgpass");
        fs::write(&file, "*:*:*:ann:of-the-file\n").unwrap();
        let credentials = |postgres: &str| Credentials {
            given: Given { file: Some(file.clone()), postgres: Secret::new(postgres), ..Given::default() },
            user: Some("ann".to_owned()),
            foreign: false,
        };
        let mode = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let ask = |credentials: &Credentials| credentials.postgres("db:5432", "shop");
        for (bits, is) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            mode(bits);
            match ask(&credentials("")) {
                Ok(secret) => assert!(is && secret.reveal() == b"of-the-file", "{bits:o}"),
                Err(why) => assert!(!is && why.contains("chmod 600") && !why.contains("of-the"), "{bits:o}: {why}"),
            }
        }
        assert_eq!(ask(&credentials("of-the-environment")).unwrap().reveal(), b"of-the-environment");
        mode(0o600);
        let why = ask(&Credentials { foreign: true, ..credentials("x") }).unwrap_err();
        assert!(why.contains("only for metrics of rules"), "{why}");
        let why = ask(&Credentials { user: Some("bob".to_owned()), ..credentials("") }).unwrap_err();
        assert!(why.contains("PGPASSWORD") && why.contains("db:5432:*:bob:PASSWORD"), "{why}");
        if sys::euid() == 0 {
            chown(&file, Some(4_711), None).unwrap();
            let why = ask(&credentials("")).unwrap_err();
            assert!(why.contains("another user"), "{why}");
        } else {
            eprintln!("skipped in part: only root gives files away");
        }
    }

    /// Holds speed/passwords.
    #[test]
    fn a_secret_prints_nothing_of_itself() {
        let given = Given { redis: Secret::new("hush-1"), postgres: Secret::new("hush-2"), ..Given::default() };
        let credentials = Credentials { given, user: None, foreign: false };
        assert!(!format!("{credentials:?} {credentials:#?}").contains("hush"));
        let secret = Secret::new("hush");
        assert_eq!(secret.hidden_in(b"hushhus hush."), "…hus ….".as_bytes());
    }
}
