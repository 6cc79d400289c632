//! Latencies of real servers' requests, beside the log of the client that sent them.
//!
//! Where BPF or the server is missing a test says so and is skipped.

mod kinds;

use cotenant_bpf::{Counted, Requests, Seen, Service};
use cotenant_testing::{TempDir, eventually, spawn_fresh};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
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
        let found = local.ns.quantile(q).unwrap();
        // Some of the client's stamps are late or early: it may lose its CPU between a stamp and its call.
        let [low, high] = [q - 0.001, q + 0.001].map(|q| quantile(log, q));
        eprintln!("p{}: {:.1} of {:.1} µs", q * 100.0, found / 1e3, quantile(log, q) / 1e3);
        assert!(found >= low * 0.92 && found <= high * 1.08, "p{}: {found} of {low} to {high} ns", q * 100.0);
        assert!(seen.served.ns.quantile(q).unwrap() < found, "the server's part is less");
    }
}

/// Promise speed/clients: Where BPF is allowed, `clients:` measures what clients wait within 8 % of their own logs, and
/// counts every request within 0.1 %.
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

/// What a server of a few lines does with each connection.
type Serve = fn(&mut TcpStream);

/// Such a server; its threads end with its connections and with the test.
fn serve(address: &str, serve: Serve) -> u16 {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || serve(&mut stream));
        }
    });
    port
}

/// One byte is a request, and a byte its answer.
fn echo(stream: &mut TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
}

fn one(wire: &mut dyn Wire) {
    wire.write_all(b"x").unwrap();
    wire.read_exact(&mut [0]).unwrap();
}

/// Requests that were seen: at the server, at clients on this machine, and elsewhere; and those that joined others.
fn counts(requests: &mut Requests) -> ([u64; 3], u64) {
    let Seen { served, local, remote, .. } = requests.read().unwrap();
    assert_eq!(served.joined, local.joined + remote.joined, "both sides see the same");
    ([&served, &local, &remote].map(|side| side.ns.count()), served.joined)
}

/// The same by what a client does on a connection.
fn seen_of(server: Serve, client: impl FnOnce(&mut dyn Wire)) -> Option<([u64; 3], u64)> {
    let number = serve("127.0.0.1:0", server);
    let mut requests = load(port(number))?;
    client(&mut *tcp(number).unwrap());
    Some(counts(&mut requests))
}

#[test]
fn every_request_is_counted_on_connections_for_each_and_on_lasting_ones() {
    for (bind, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")] {
        let number = serve(bind, echo);
        let Some(mut requests) = load(port(number)) else { return };
        let connect = || TcpStream::connect((to, number)).unwrap();
        (0..200).for_each(|_| one(&mut connect()));
        let mut lasting = connect();
        (0..200).for_each(|_| one(&mut lasting));
        assert_eq!(counts(&mut requests), ([400, 400, 0], 0), "{bind} {to}");
    }
}

/// Half a request is not a request that was answered, and nothing tells it from a whole one behind which another comes.
#[test]
fn several_requests_under_way_are_told_from_single_ones() {
    let pairs = |stream: &mut TcpStream| {
        let mut bytes = [0; 2];
        while stream.read_exact(&mut bytes[..1]).is_ok()
            && stream.read_exact(&mut bytes[1..]).is_ok()
            && stream.write_all(&bytes).is_ok()
        {}
    };
    let client = |wire: &mut dyn Wire| {
        for _ in 0..100 {
            (0..2).for_each(|_| wire.write_all(b"x").unwrap());
            wire.read_exact(&mut [0; 2]).unwrap();
        }
    };
    let Some(seen) = seen_of(pairs, client) else { return };
    assert_eq!(seen, ([100, 100, 0], 100));
}

#[test]
fn long_requests_and_answers_in_pieces_are_one_each() {
    const LONG: usize = 40_000;
    let pieces = |stream: &mut TcpStream| {
        let mut bytes = vec![0; LONG];
        while stream.read_exact(&mut bytes).is_ok() {
            let mut sent = bytes[..20].iter().map(|byte| stream.write_all(&[*byte]));
            if sent.any(|sent| sent.is_err()) {
                return;
            }
        }
    };
    let client = |wire: &mut dyn Wire| {
        for _ in 0..100 {
            wire.write_all(&vec![b'x'; LONG]).unwrap();
            wire.read_exact(&mut [0; 20]).unwrap();
        }
    };
    let Some(seen) = seen_of(pieces, client) else { return };
    assert_eq!(seen, ([100, 100, 0], 0));
}

#[test]
fn what_a_server_sends_unasked_is_no_answer() {
    let pushes = |stream: &mut TcpStream| {
        while stream.write_all(b"push").is_ok() && stream.read_exact(&mut [0]).is_ok() {
            stream.write_all(b"x").unwrap();
            // Further ones before it is asked again.
            (0..3).for_each(|_| drop(stream.write_all(b"push")));
            stream.read_exact(&mut [0]).unwrap();
            stream.write_all(b"y").unwrap();
        }
    };
    let client = |wire: &mut dyn Wire| {
        for _ in 0..50 {
            wire.read_exact(&mut [0; 4]).unwrap();
            one(wire);
            wire.read_exact(&mut [0; 12]).unwrap();
            one(wire);
        }
    };
    let Some(seen) = seen_of(pushes, client) else { return };
    assert_eq!(seen, ([100, 100, 0], 0));
}

/// Network namespaces with a machine of their own in each, as containers have them; removed on drop.
struct Elsewhere(String);

impl Elsewhere {
    /// Its address is `10.213.N.2`, ours is `10.213.N.1`. `None` where that is not allowed.
    fn new(number: u32) -> Option<Self> {
        let name = format!("cotenant-{}-{number}", std::process::id());
        let (ours, theirs) = (format!("ct{number}a"), format!("ct{number}b"));
        let elsewhere = Self(name.clone());
        let commands = [
            format!("netns add {name}"),
            format!("link add {ours} type veth peer name {theirs} netns {name}"),
            format!("addr add 10.213.{number}.1/24 dev {ours}"),
            format!("link set {ours} up"),
            format!("-n {name} addr add 10.213.{number}.2/24 dev {theirs}"),
            format!("-n {name} link set {theirs} up"),
            format!("-n {name} link set lo up"),
        ];
        for command in commands {
            let run = Command::new("ip").args(command.split(' ')).output();
            if !run.as_ref().is_ok_and(|run| run.status.success()) {
                eprintln!("skipped: ip {command}: {run:?}");
                return None;
            }
        }
        Some(elsewhere)
    }

    /// Does something there.
    fn enter(&self, what: impl FnOnce() + Send) {
        let namespace = fs::File::open(format!("/var/run/netns/{}", self.0)).unwrap();
        let there = || {
            // SAFETY: moves this thread alone; the descriptor is open.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            what();
        };
        thread::scope(|scope| scope.spawn(there).join().unwrap());
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Holds speed/clients.
/// A client in a container is one on this machine; one of another server at a port of that number is none of ours, nor
/// is a server in a container that has the same port.
#[test]
fn clients_in_other_namespaces_are_seen_and_those_of_other_servers_are_not() {
    let Some(elsewhere) = Elsewhere::new(77) else { return };
    let number = serve("0.0.0.0:0", echo);
    let Some(mut requests) = load(port(number)) else { return };
    let ask = |address: &str| {
        let mut wire = TcpStream::connect((address, number)).unwrap();
        (0..50).for_each(|_| one(&mut wire));
    };
    elsewhere.enter(|| ask("10.213.77.1"));
    assert_eq!(counts(&mut requests), ([50, 50, 0], 0));
    elsewhere.enter(|| assert_eq!(serve(&format!("0.0.0.0:{number}"), echo), number));
    ask("10.213.77.2");
    elsewhere.enter(|| ask("127.0.0.1"));
    assert_eq!(counts(&mut requests), ([50, 50, 0], 0), "another server");
    ask("127.0.0.1");
    assert_eq!(counts(&mut requests), ([100, 100, 0], 0));
}
