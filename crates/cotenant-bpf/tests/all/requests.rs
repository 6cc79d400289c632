//! Latencies of real servers' requests, beside the log of the client that sent them.
//!
//! Where BPF or the server is missing a test says so and is skipped.

use cotenant_bpf::{Requests, Seen, Service};
use cotenant_testing::{TempDir, eventually, spawn_fresh};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;
use std::{fs, io, thread};

const CONNECTIONS: usize = 8;
const EACH: usize = 1_500;

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

type Connect<'a> = &'a (dyn Fn() -> io::Result<Box<dyn Wire>> + Sync);

fn load(service: Service) -> Option<Requests> {
    Requests::load(service).map_err(|why| eprintln!("skipped: {why}")).ok()
}

fn port(port: u16) -> Service {
    Service::Port { port, netns: fs::metadata("/proc/self/ns/net").unwrap().st_ino() as u32 }
}

fn socket(path: &Path) -> Service {
    let file = fs::metadata(path).unwrap();
    let device = (libc::major(file.st_dev()), libc::minor(file.st_dev()));
    Service::Socket { device, inode: file.st_ino() }
}

/// A redis of our own; `None` where none is installed.
struct Redis {
    child: Child,
    port: u16,
    socket: PathBuf,
    _folder: TempDir,
}

impl Redis {
    fn start() -> Option<Self> {
        let folder = TempDir::new("requests-redis");
        let socket = folder.path().join("redis");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1", "--unixsocket"]).arg(&socket);
        command.current_dir(folder.path()).stdout(Stdio::null());
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: no redis-server");
            return None;
        }
        let child = spawn_fresh(&mut command);
        eventually("redis answers", || socket.exists() && TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Self { child, port, socket, _folder: folder })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tcp(port: u16) -> io::Result<Box<dyn Wire>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

fn unix(path: &Path) -> io::Result<Box<dyn Wire>> {
    Ok(Box::new(UnixStream::connect(path)?))
}

/// Asks redis on some connections at a time; how long each answer took, nanoseconds, in ascending order.
fn ask(connect: Connect) -> Vec<u64> {
    let all = Barrier::new(CONNECTIONS);
    let client = || {
        let mut wire = connect().unwrap();
        all.wait();
        let one = |_| {
            let begin = Instant::now();
            wire.write_all(b"PING\r\n").unwrap();
            let mut answer = [0; 16];
            let bytes = wire.read(&mut answer).unwrap();
            let taken = begin.elapsed();
            assert_eq!(&answer[..bytes], b"+PONG\r\n");
            taken.as_nanos() as u64
        };
        (0..EACH).map(one).collect::<Vec<_>>()
    };
    let mut log = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(client)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    log.sort_unstable();
    log
}

fn quantile(log: &[u64], q: f64) -> f64 {
    log[(log.len() as f64 * q) as usize] as f64
}

/// What the client logged is what is seen, and every request is.
fn compare(log: &[u64], seen: &Seen) {
    let (all, local) = (log.len() as u64, &seen.local);
    for count in [local.ns.count(), seen.served.ns.count()] {
        assert!(count.abs_diff(all) * 1_000 <= all, "{count} of {all}");
    }
    assert_eq!((local.joined, seen.remote.ns.count()), (0, 0));
    for q in [0.5, 0.99] {
        let (logged, found) = (quantile(log, q), local.ns.quantile(q).unwrap());
        eprintln!("p{}: {:.1} of {:.1} µs", q * 100.0, found / 1e3, logged / 1e3);
        assert!((found - logged).abs() <= logged * 0.08, "p{}: {found} of {logged} ns", q * 100.0);
        assert!(seen.served.ns.quantile(q).unwrap() < found, "the server's part is less");
    }
}

#[test]
fn clients_of_redis_log_what_is_seen() {
    let Some(redis) = Redis::start() else { return };
    let Some(mut over_tcp) = load(port(redis.port)) else { return };
    let Some(mut over_unix) = load(socket(&redis.socket)) else { return };
    compare(&ask(&|| tcp(redis.port)), &over_tcp.read().unwrap());
    assert_eq!(over_unix.read().unwrap(), Seen::default(), "another way in");
    let before = over_tcp.read().unwrap();
    compare(&ask(&|| unix(&redis.socket)), &over_unix.read().unwrap());
    assert_eq!(over_tcp.read().unwrap(), before);
}
