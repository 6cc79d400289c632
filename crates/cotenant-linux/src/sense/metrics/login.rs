//! Authentication to redis and `PostgreSQL`.
//!
//! The server chooses the method. `PostgreSQL` gets a clear-text password on this machine only: over a network an
//! impostor could request it.

use super::credentials::{Credentials, SOCKET, Secret, is_here};
use super::wire::{MOST_PARTS, Wire, code, denied, message, refused, too_many};
use crate::FsRoot;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use std::io;
use std::time::Duration;

/// The database of every server.
const ANY: &str = "postgres";

/// For a missing database.
const NO_DATABASE: &str = "3D000";

/// Connects to the database named by `PGDATABASE`, otherwise to that with the role's name as `psql` does, otherwise to
/// the one that always exists.
pub fn postgres(address: &str, timeout: Duration, credentials: &Credentials) -> io::Result<Wire> {
    let to = |database: &str| {
        let mut wire = Wire::open(address, timeout).map_err(|why| beside(address, why))?;
        start(&mut wire, address, database, credentials)?;
        Ok(wire)
    };
    match &credentials.given.database {
        Some(database) => to(database),
        None => to(credentials.role()).or_else(|why| if code(&why) == NO_DATABASE { to(ANY) } else { Err(why) }),
    }
}

/// For a missing socket, the others in its folder.
fn beside(address: &str, why: io::Error) -> io::Error {
    let Some((folder, _)) = address.rsplit_once('/').filter(|_| why.kind() == io::ErrorKind::NotFound) else {
        return why;
    };
    match FsRoot::live().numbered(folder, SOCKET).ok().and_then(|ports| ports.first().copied()) {
        Some(port) => {
            let why = format!("{why}; it listens at another port: postgres:{folder}:{port}:p99, or set PGPORT");
            io::Error::new(io::ErrorKind::NotFound, why)
        }
        None => why,
    }
}

/// Start-up message of protocol 3.0, and everything before the first probe.
pub fn start(wire: &mut Wire, address: &str, database: &str, credentials: &Credentials) -> io::Result<()> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for word in ["user", credentials.role(), "database", database, "application_name", "cotenant"] {
        body.extend(word.as_bytes());
        body.push(0);
    }
    body.push(0);
    // A message without a kind.
    wire.ask(&message(0, &body)?[1..])?;
    let mut proof = Proof { address, database, credentials, stage: Stage::Unasked };
    for _ in 0..MOST_PARTS {
        let (kind, body) = wire.message()?;
        match kind {
            b'Z' => return Ok(()),
            b'D' => return Err(refused("it answers what it was not asked")),
            b'E' => return Err(wire.said(&body, |code, routine| proof.cure(code, routine))),
            b'R' => proof.answer(wire, &body)?,
            _ => {}
        }
    }
    Err(too_many())
}

/// State of an authentication.
struct Proof<'a> {
    address: &'a str,
    database: &'a str,
    credentials: &'a Credentials,
    stage: Stage,
}

enum Stage {
    Unasked,
    Scram(ScramSha256),
    /// No further requests are valid.
    Given,
}

impl Proof<'_> {
    /// Advice on an error at the start, by its SQLSTATE and the server's routine, which are independent of its
    /// language.
    fn cure(&self, code: &str, routine: &str) -> String {
        let (role, login, database) = (self.credentials.role(), &self.credentials.given.login, self.database);
        match (code, routine) {
            ("28P01", _) => "; see PGPASSWORD, .pgpass, PGUSER and user=".to_owned(),
            (NO_DATABASE, _) => "; see PGDATABASE".to_owned(),
            ("42501", _) => format!("; GRANT CONNECT ON DATABASE {database} TO {role}"),
            ("55000", _) => "; name another one by PGDATABASE".to_owned(),
            ("28000", "ClientAuthentication") => {
                let from = if self.address.starts_with('/') { "local" } else { "host" };
                format!("; give pg_hba.conf a line {from} for {role} and {database}, and reload it")
            }
            ("28000", "InitializeSessionUserId") => {
                format!("; runuser -u postgres -- createuser {role}, or ALTER ROLE {role} LOGIN")
            }
            (code, _) if code.starts_with("28") && self.address.starts_with('/') => {
                format!("; through a socket it takes {login} alone: runuser -u postgres -- createuser {login}")
            }
            (code, _) if code.starts_with("28") => {
                "; say scram-sha-256 for this address in pg_hba.conf, or ask through the socket: \
                 postgres:/run/postgresql:p99"
                    .to_owned()
            }
            _ => String::new(),
        }
    }

    /// Answers a server's request.
    fn answer(&mut self, wire: &mut Wire, body: &[u8]) -> io::Result<()> {
        let (kind, rest) = body.split_first_chunk().ok_or_else(|| refused("it speaks no PostgreSQL"))?;
        match (u32::from_be_bytes(*kind), &mut self.stage) {
            (0, Stage::Unasked | Stage::Given) => Ok(()),
            (3, Stage::Unasked) if !is_here(self.address) => {
                Err(denied("it wants the password in the clear, over a network; use cmd:psql …"))
            }
            (3, Stage::Unasked) => {
                let secret = self.password(wire)?;
                self.stage = Stage::Given;
                wire.add(&message(b'p', &[secret.reveal(), b"\0"].concat())?)
            }
            (5, Stage::Unasked) => {
                let salt = rest.try_into().map_err(|_| refused("it salts with other than 4 bytes"))?;
                let hash = md5_hash(self.credentials.role().as_bytes(), self.password(wire)?.reveal(), salt);
                self.stage = Stage::Given;
                wire.add(&message(b'p', format!("{hash}\0").as_bytes())?)
            }
            (10, Stage::Unasked) if rest.split(|byte| *byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) => {
                // It binds to TLS channels, which are not used.
                let scram = ScramSha256::new(self.password(wire)?.reveal(), ChannelBinding::unsupported());
                let first = scram.message();
                let length = u32::try_from(first.len()).map_err(io::Error::other)?.to_be_bytes();
                let body = [SCRAM_SHA_256.as_bytes(), b"\0", &length[..], first].concat();
                wire.add(&message(b'p', &body)?)?;
                self.stage = Stage::Scram(scram);
                Ok(())
            }
            (11, Stage::Scram(scram)) => {
                scram.update(rest).map_err(|why| foreign(&why))?;
                wire.add(&message(b'p', scram.message())?)
            }
            (12, Stage::Scram(scram)) => {
                scram.finish(rest).map_err(|why| foreign(&why))?;
                self.stage = Stage::Given;
                Ok(())
            }
            (0, _) => Err(refused("it takes a password without proving that it knows it, too")),
            (_, Stage::Scram(_) | Stage::Given) | (11 | 12, _) => Err(refused("it asks for more than one proof")),
            (kind, Stage::Unasked) => {
                Err(denied(format!("it wants a proof that is not spoken ({kind}); use cmd:psql …")))
            }
        }
    }

    fn password(&self, wire: &mut Wire) -> io::Result<Secret> {
        let role = self.credentials.role();
        let secret = self.credentials.postgres(self.address, self.database);
        let secret = secret.map_err(|why| denied(format!("it wants a password of {role}: {why}")))?;
        wire.will_send(&secret);
        Ok(secret)
    }
}

/// The library's error about a server's part of SCRAM.
fn foreign(why: &io::Error) -> io::Error {
    refused(format!("its part of SCRAM-SHA-256 is wrong: {why}"))
}

/// Authenticates to a redis that requires it.
pub fn redis(wire: &mut Wire, credentials: &Credentials) -> io::Result<()> {
    if credentials.user.is_none() {
        match wire.ping() {
            Err(why) if code(&why) == "NOAUTH" => {}
            other => return other,
        }
    }
    // A user may have none.
    let secret = match (credentials.redis(), &credentials.user) {
        (Ok(secret), _) => secret,
        (Err(_), Some(_)) if !credentials.foreign => Secret::default(),
        (Err(why), _) => return Err(denied(format!("it wants a password: {why}"))),
    };
    wire.will_send(&secret);
    let words = credentials.user.as_deref().map(str::as_bytes);
    let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(words).chain([secret.reveal()]).collect();
    let mut question = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        question.extend(format!("${}\r\n", word.len()).as_bytes());
        question.extend([word, b"\r\n"].concat());
    }
    wire.ask(&question)?;
    match wire.text_line() {
        Ok(line) if line == b"+OK" => Ok(()),
        Ok(_) => Err(refused("it answers what it was not asked")),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests;
