//! Clients that count answers.

use super::place::{Place, Progress, Running};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A client's request, and how it recognises the end of an answer.
#[derive(Clone, Copy)]
pub struct Talk {
    pub port: u16,
    pub hello: &'static [u8],
    pub request: &'static [u8],
    pub answer: fn(&mut BufReader<TcpStream>) -> io::Result<()>,
}

/// Arrival of clients' requests.
#[derive(Clone, Copy)]
pub enum Pace {
    /// This many clients, each with its next request right after its answer.
    Closed(usize),
    /// One client, with a new connection for each request.
    Anew,
    /// One client with this many requests a second, independent of answers; the progress is the inverse of an answer's
    /// latency.
    Open(u32),
}

/// A server with its clients.
pub fn served(place: &Place, words: &[&str], talk: Talk, how: Pace) -> io::Result<Running> {
    let child = place.command(words).spawn()?;
    attend(child, talk, how)
}

/// The clients of a running server.
pub fn attend(mut child: Child, talk: Talk, how: Pace) -> io::Result<Running> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(why) = ask(talk, &mut None) {
        if Instant::now() > deadline || !matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            return Err(io::Error::other(format!("the server gives no answer: {why}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let (requests, ns, over) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let clients = if let Pace::Closed(clients) = how { clients } else { 1 };
    for _ in 0..clients {
        let (requests, ns, over) = (requests.clone(), ns.clone(), over.clone());
        std::thread::spawn(move || {
            let (mut connection, mut due) = (None, Instant::now());
            while !over.load(Ordering::Relaxed) {
                if let Pace::Open(rate) = how {
                    due += Duration::from_secs(1) / rate;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                } else {
                    due = Instant::now();
                }
                match ask(talk, &mut connection) {
                    Ok(()) => {
                        requests.fetch_add(1, Ordering::Relaxed);
                        ns.fetch_add(due.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    }
                    Err(_) => connection = None,
                }
                if matches!(how, Pace::Anew) {
                    connection = None;
                }
            }
        });
    }
    let progress = match how {
        Pace::Open(_) => Progress::Waited { requests, ns },
        _ => Progress::Counted(requests),
    };
    Ok(Running::new(child, progress, over))
}

fn ask(talk: Talk, connection: &mut Option<BufReader<TcpStream>>) -> io::Result<()> {
    if connection.is_none() {
        let stream = TcpStream::connect(("127.0.0.1", talk.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut new = BufReader::new(stream);
        if !talk.hello.is_empty() {
            new.get_mut().write_all(talk.hello)?;
            (talk.answer)(&mut new)?;
        }
        *connection = Some(new);
    }
    let connection = connection.as_mut().expect("it has just been made");
    connection.get_mut().write_all(talk.request)?;
    (talk.answer)(connection)
}

fn skip(from: &mut BufReader<TcpStream>, bytes: usize) -> io::Result<()> {
    io::copy(&mut from.take(bytes as u64), &mut io::sink()).map(|_| ())
}

fn line(from: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// A header with a length, and this many bytes.
pub fn http(from: &mut BufReader<TcpStream>) -> io::Result<()> {
    let mut length = 0;
    loop {
        let line = line(from)?.to_ascii_lowercase();
        if line.is_empty() {
            return skip(from, length);
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().map_err(|_| io::Error::other("no length"))?;
        }
    }
}

/// `$LENGTH`, and this many bytes with a line end; or one line.
pub fn redis(from: &mut BufReader<TcpStream>) -> io::Result<()> {
    match line(from)?.strip_prefix('$').and_then(|length| length.parse().ok()) {
        Some(length) => skip(from, length_with_end(length)),
        None => Ok(()),
    }
}

fn length_with_end(length: usize) -> usize {
    length + 2
}

/// Lines until `END` or `STORED`.
pub fn memcached(from: &mut BufReader<TcpStream>) -> io::Result<()> {
    while !matches!(line(from)?.as_str(), "END" | "STORED") {}
    Ok(())
}

/// Messages with a kind and a length, until the server is ready.
pub fn postgres(from: &mut BufReader<TcpStream>) -> io::Result<()> {
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        skip(from, u32::from_be_bytes([head[1], head[2], head[3], head[4]]).saturating_sub(4) as usize)?;
        match head[0] {
            b'Z' => return Ok(()),
            b'E' => return Err(io::Error::other("the server refuses")),
            _ => {}
        }
    }
}
