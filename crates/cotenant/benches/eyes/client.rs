//! An open-loop client with a log of its own, in a process of its own.

use serde_json::json;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// The first argument of such a process.
pub const WORD: &str = "client";

pub const CONNECTIONS: usize = 200;

/// So long a server may be away.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a server speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Redis,
    Postgres,
    Http,
}

impl Speaks {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Http => "http",
        }
    }

    fn of(name: &str) -> Self {
        [Self::Redis, Self::Postgres].into_iter().find(|one| one.name() == name).unwrap_or(Self::Http)
    }

    const fn request(self) -> &'static [u8] {
        match self {
            Self::Redis => b"PING\r\n",
            Self::Postgres => b"Q\0\0\0\x0dSELECT 1\0",
            Self::Http => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        }
    }

    /// Whatever is said before the first request; how long the first of its answer took.
    fn greet(self, wire: &mut dyn Wire, log: &mut Vec<[u64; 2]>) -> io::Result<()> {
        if self != Self::Postgres {
            return Ok(());
        }
        let words = b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        let mut said = Vec::new();
        let sent = Instant::now();
        wire.write_all(words)?;
        // Until it is ready for a query.
        while !said.ends_with(b"Z\0\0\0\x05I") {
            let mut piece = [0; 4_096];
            let bytes = wire.read(&mut piece)?;
            match bytes {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ if said.is_empty() => log.push([sent.elapsed().as_nanos() as u64; 2]),
                _ => {}
            }
            said.extend_from_slice(&piece[..bytes]);
        }
        Ok(())
    }
}

trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

fn connect(to: &str) -> io::Result<Box<dyn Wire>> {
    if to.starts_with('/') {
        return Ok(Box::new(UnixStream::connect(to)?));
    }
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// What is said before a request takes time as requests do, and is logged.
fn connected(speaks: Speaks, to: &str, log: &mut Vec<[u64; 2]>) -> Option<Box<dyn Wire>> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Ok(mut wire) = connect(to)
            && speaks.greet(&mut *wire, log).is_ok()
        {
            return Some(wire);
        }
        thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Whether a server is there.
pub fn is_there(speaks: Speaks, to: &str) -> bool {
    connect(to).is_ok_and(|mut wire| speaks.greet(&mut *wire, &mut Vec::new()).is_ok())
}

/// When it is asked, and how often.
#[derive(Clone, Copy)]
struct Load {
    gap: Duration,
    time: Duration,
    seed: u64,
}

/// One connection: from when a request was due and from when it was sent until its answer was taken, nanoseconds.
fn ask(speaks: Speaks, to: &str, load: Load, all_are_there: &Barrier) -> Vec<[u64; 2]> {
    let mut random = fastrand::Rng::with_seed(load.seed);
    let mut next = || load.gap.mul_f64(-(1.0 - random.f64()).ln());
    let wire = connected(speaks, to, &mut Vec::new());
    all_are_there.wait();
    all_are_there.wait();
    let mut log = Vec::new();
    let Some(mut wire) = wire else { return log };
    let mut answer = vec![0; 65_536];
    let end = Instant::now() + load.time;
    let mut due = Instant::now() + next();
    while due < end {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let sent = Instant::now();
        match wire.write_all(speaks.request()).and_then(|()| wire.read(&mut answer)) {
            Ok(bytes) if bytes > 0 => {
                let taken = Instant::now();
                log.push([due, sent].map(|from| (taken - from).as_nanos() as u64));
            }
            _ => match connected(speaks, to, &mut log) {
                Some(anew) => wire = anew,
                None => return log,
            },
        }
        due += next();
    }
    log
}

/// `SPEAKS ADDRESS RATE SECONDS SEED`: says when all its connections are there, begins when it is told to, and prints
/// what it logged.
pub fn run(words: &[String]) {
    let [speaks, to, rate, seconds, seed] = words else { panic!("{words:?}") };
    let speaks = Speaks::of(speaks);
    let number = |text: &String| text.parse::<f64>().unwrap();
    let gap = Duration::from_secs_f64(CONNECTIONS as f64 / number(rate));
    let time = Duration::from_secs_f64(number(seconds));
    let seed = seed.parse::<u64>().unwrap() * 1_000;
    let all_are_there = Barrier::new(CONNECTIONS + 1);
    let log: Vec<[u64; 2]> = thread::scope(|scope| {
        let one = |i: u64| {
            let load = Load { gap, time, seed: seed + i };
            let all_are_there = &all_are_there;
            scope.spawn(move || ask(speaks, to, load, all_are_there))
        };
        let threads: Vec<_> = (0..CONNECTIONS as u64).map(one).collect();
        all_are_there.wait();
        println!("ready");
        io::stdin().read_exact(&mut [0]).unwrap();
        all_are_there.wait();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let of = |which: usize| {
        let mut all: Vec<u64> = log.iter().map(|times| times[which]).collect();
        all.sort_unstable();
        let us = |q: f64| all.get((all.len() as f64 * q) as usize).map(|ns| *ns as f64 / 1e3);
        json!({ "p50": us(0.5), "p99": us(0.99) })
    };
    println!("{}", json!({ "n": log.len(), "due": of(0), "sent": of(1) }));
}
