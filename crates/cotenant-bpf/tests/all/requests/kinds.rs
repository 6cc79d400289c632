//! Ways in which programs send and receive: each is seen as it is, or refused.

use super::*;
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A hundred requests of a byte each, answered by so many bytes.
fn hundred(answer: usize) -> impl Fn(&mut dyn Wire) {
    move |wire| {
        for _ in 0..100 {
            wire.write_all(b"x").unwrap();
            wire.read_exact(&mut vec![0; answer]).unwrap();
        }
    }
}

#[test]
fn answers_by_sendfile_are_seen() {
    const LONG: usize = 50_000;
    let sends = |stream: &mut TcpStream| {
        let folder = TempDir::new("requests-sendfile");
        let path = folder.path().join("file");
        fs::write(&path, vec![b'x'; LONG]).unwrap();
        let file = fs::File::open(path).unwrap();
        while stream.read_exact(&mut [0]).is_ok() {
            let mut at = 0;
            while (at as usize) < LONG {
                // SAFETY: both are open, and the offset is ours.
                let sent = unsafe { libc::sendfile(stream.as_raw_fd(), file.as_raw_fd(), &raw mut at, LONG) };
                if sent <= 0 {
                    return;
                }
            }
        }
    };
    let Some(seen) = seen_of(sends, hundred(LONG)) else { return };
    assert_eq!(seen, ([100, 100, 0], 0));
}

/// Moves what comes on a connection back into it, without reading it.
fn splice(stream: RawFd) {
    let mut pipe = [0; 2];
    // SAFETY: two descriptors are written, which are ours from now on.
    let [out, into] = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        pipe.map(|fd| OwnedFd::from_raw_fd(fd))
    };
    let moved = |from: RawFd, to: RawFd| {
        // SAFETY: both are open, and no offset is given.
        unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), 1 << 16, 0) > 0 }
    };
    while moved(stream, into.as_raw_fd()) && moved(out.as_raw_fd(), stream) {}
}

/// At the end of a Unix socket that is spliced, the kernel does not say when a request is taken; its clients see it.
#[test]
fn what_is_spliced_is_seen() {
    let Some(seen) = seen_of(|stream| splice(stream.as_raw_fd()), hundred(1)) else { return };
    assert_eq!(seen, ([100, 100, 0], 0));
    let folder = TempDir::new("requests-splice");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| splice(stream.unwrap().as_raw_fd())));
    let Some(mut requests) = load(socket(&path)) else { return };
    hundred(1)(&mut *unix(&path).unwrap());
    let Seen { local, remote, .. } = requests.read().unwrap();
    assert_eq!((local.ns.count(), local.joined, remote.ns.count(), remote.joined), (100, 0, 0, 0));
}

/// As in HTTP/1.0: the client says that it sends no more, and reads to the end.
#[test]
fn a_client_that_sends_no_more_still_gets_its_answer() {
    let to_the_end = |stream: &mut TcpStream| {
        let mut request = Vec::new();
        if stream.read_to_end(&mut request).is_ok() && request == b"x" {
            stream.write_all(b"answer").unwrap();
        }
    };
    let number = serve("127.0.0.1:0", to_the_end);
    let Some(mut requests) = load(port(number)) else { return };
    for _ in 0..100 {
        let mut stream = TcpStream::connect(("127.0.0.1", number)).unwrap();
        stream.write_all(b"x").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    }
    assert_eq!(counts(&mut requests), ([100, 100, 0], 0));
}

/// Listens on a port together with others.
fn listen_together(port: u16) -> TcpListener {
    let (address, on) = (libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) }, 1_i32);
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: address,
        sin_zero: [0; 8],
    };
    // SAFETY: the socket is ours from its beginning; option and address have the sizes that are given.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let listener = TcpListener::from_raw_fd(socket);
        let option = (&raw const on).cast();
        assert_eq!(libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, option, 4), 0);
        assert_eq!(libc::bind(socket, (&raw const address).cast(), size_of_val(&address) as u32), 0);
        assert_eq!(libc::listen(socket, 64), 0);
        listener
    }
}

#[test]
fn listeners_that_share_a_port_are_one_service() {
    static ACCEPTED: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    let first = listen_together(0);
    let number = first.local_addr().unwrap().port();
    for (i, listener) in [first, listen_together(number)].into_iter().enumerate() {
        thread::spawn(move || {
            for stream in listener.incoming() {
                ACCEPTED[i].fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || echo(&mut stream.unwrap()));
            }
        });
    }
    let Some(mut requests) = load(port(number)) else { return };
    for _ in 0..60 {
        let mut wire = TcpStream::connect(("127.0.0.1", number)).unwrap();
        (0..5).for_each(|_| one(&mut wire));
    }
    assert_eq!(counts(&mut requests), ([300, 300, 0], 0));
    let accepted = ACCEPTED.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(accepted.iter().all(|count| *count > 0) && accepted.iter().sum::<u32>() == 60, "{accepted:?}");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn read_frame(wire: &mut (impl Read + ?Sized)) -> io::Result<(u8, u32)> {
    let mut header = [0; 9];
    wire.read_exact(&mut header)?;
    let [a, b, c, kind, _, stream @ ..] = header;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    wire.read_exact(&mut vec![0; length])?;
    Ok((kind, u32::from_be_bytes(stream)))
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// The end of headers, and of the stream's direction.
const WHOLE: u8 = 5;

/// Four streams of HTTP/2 at a time on one connection, answered in reverse order.
#[test]
fn multiplexed_requests_are_refused() {
    let server = |stream: &mut TcpStream| {
        if stream.read_exact(&mut [0; PREFACE.len()]).is_err() {
            return;
        }
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        let mut open = Vec::new();
        while let Ok((kind, number)) = read_frame(stream) {
            open.extend((kind == HEADERS).then_some(number));
            if open.len() == 4 {
                // `:status: 200` of the static table.
                open.drain(..)
                    .rev()
                    .for_each(|number| stream.write_all(&frame(HEADERS, WHOLE, number, &[0x88])).unwrap());
            }
        }
    };
    let client = |wire: &mut dyn Wire| {
        wire.write_all(PREFACE).unwrap();
        wire.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        assert_eq!(read_frame(wire).unwrap().0, SETTINGS);
        for round in 0..100 {
            let numbers = [1, 3, 5, 7].map(|number| round * 8 + number);
            // `GET`, `http` and `/` of the static table.
            for number in numbers {
                wire.write_all(&frame(HEADERS, WHOLE, number, &[0x82, 0x86, 0x84])).unwrap();
            }
            let answered = numbers.map(|_| read_frame(wire).unwrap().1);
            assert_eq!(answered.to_vec(), numbers.iter().rev().copied().collect::<Vec<_>>());
        }
    };
    let Some(([_, local, _], joined)) = seen_of(server, client) else { return };
    assert!((100..=102).contains(&local) && (300..=302).contains(&joined), "{local} {joined}");
}

/// Everything of its setup that is not needed has no name.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    entries: [u32; 10],
    submissions: [u32; 10],
    completions: [u32; 10],
}

/// An `io_uring` with one operation at a time.
struct Ring {
    fd: OwnedFd,
    rings: *mut u32,
    entry: *mut [u32; 16],
    parameters: Parameters,
}

const SEND: u32 = 26;
const RECEIVE: u32 = 27;

impl Ring {
    fn new() -> io::Result<Self> {
        let mut parameters = Parameters::default();
        // SAFETY: the kernel fills the parameters, and maps pages of its own.
        unsafe {
            let fd = libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut parameters);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd as RawFd);
            let map = |offset| {
                let rights = libc::PROT_READ | libc::PROT_WRITE;
                let at = libc::mmap(ptr::null_mut(), 4_096, rights, libc::MAP_SHARED, fd.as_raw_fd(), offset);
                assert_ne!(at, libc::MAP_FAILED);
                at
            };
            let (rings, entry) = (map(0).cast(), map(0x1000_0000).cast());
            Ok(Self { fd, rings, entry, parameters })
        }
    }

    /// Does it, and waits for its end.
    fn operate(&self, operation: u32, socket: RawFd, byte: &mut [u8; 1]) -> i32 {
        let ([_, tail, mask, _, _, _, array, ..], [head, _, others, _, _, results, ..]) =
            (self.parameters.submissions, self.parameters.completions);
        let word = |offset: u32| self.rings.wrapping_add(offset as usize / 4);
        let address = byte.as_mut_ptr() as u64;
        let mut entry = [0; 16];
        (entry[0], entry[1], entry[6]) = (operation, socket as u32, 1);
        (entry[4], entry[5]) = (address as u32, (address >> 32) as u32);
        // SAFETY: entries and indices lie where the kernel said; it reads and writes the byte before this returns.
        unsafe {
            self.entry.write(entry);
            let [tail, head] = [tail, head].map(|index| AtomicU32::from_ptr(word(index)));
            let place = tail.load(Ordering::Acquire);
            word(array).add((place & *word(mask)) as usize).write(0);
            tail.store(place + 1, Ordering::Release);
            let (wait, none) = (1, ptr::null::<u8>());
            assert_eq!(libc::syscall(libc::SYS_io_uring_enter, self.fd.as_raw_fd(), 1, 1, wait, none, 0), 1);
            let place = head.load(Ordering::Acquire);
            let result = word(results).add((place & *word(others)) as usize * 4 + 2).read();
            head.store(place + 1, Ordering::Release);
            result as i32
        }
    }
}

/// As [`echo`] does.
fn echo_by_ring(socket: RawFd) {
    let (ring, mut byte) = (Ring::new().unwrap(), [0]);
    while ring.operate(RECEIVE, socket, &mut byte) == 1 && ring.operate(SEND, socket, &mut byte) == 1 {}
}

#[test]
fn requests_by_io_uring_are_seen() {
    if let Err(why) = Ring::new() {
        return eprintln!("skipped: io_uring is not to be had: {why}");
    }
    let Some(seen) = seen_of(|stream| echo_by_ring(stream.as_raw_fd()), hundred(1)) else { return };
    assert_eq!(seen, ([100, 100, 0], 0));
    let folder = TempDir::new("requests-ring");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| echo_by_ring(stream.unwrap().as_raw_fd())));
    let Some(mut requests) = load(socket(&path)) else { return };
    hundred(1)(&mut *unix(&path).unwrap());
    assert_eq!(counts(&mut requests), ([100, 100, 0], 0));
}

/// A program that serves; killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts one that listens on a port, which is filled in for `PORT`, and whose words are separated by blanks.
fn start(folder: &Path, program: &str, words: &str) -> Option<(Server, u16)> {
    let number = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = words.replace("PORT", &number.to_string());
    let mut command = Command::new(program);
    command.args(words.split(' ')).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = match command.spawn() {
        Ok(child) => Server(child),
        Err(why) => {
            eprintln!("skipped: {program}: {why}");
            return None;
        }
    };
    eventually("it listens", || TcpStream::connect(("127.0.0.1", number)).is_ok());
    Some((server, number))
}

/// The handshake is a request or three, and its end may come before the answer to it.
#[test]
fn encrypted_requests_are_seen() {
    let folder = TempDir::new("requests-tls");
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=a -keyout key -out cert";
    match Command::new("openssl").args(words.split(' ')).current_dir(folder.path()).output() {
        Ok(made) => assert!(made.status.success(), "{made:?}"),
        Err(why) => return eprintln!("skipped: openssl: {why}"),
    }
    let words = "s_server -accept 127.0.0.1:PORT -key key -cert cert -rev";
    let Some((_server, number)) = start(folder.path(), "openssl", words) else { return };
    let Some(mut requests) = load(port(number)) else { return };
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{number}")]);
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut client = Server(client);
    let (mut says, hears) = (client.0.stdin.take().unwrap(), client.0.stdout.take().unwrap());
    let mut lines = BufReader::new(hears).lines();
    for _ in 0..200 {
        says.write_all(b"abc\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "cba");
    }
    let ([served, local, remote], joined) = counts(&mut requests);
    assert_eq!((served, remote), (local, 0));
    assert!((200..=204).contains(&local) && joined <= 3, "{local} {joined}");
}

#[test]
fn pages_of_nginx_are_seen() {
    let folder = TempDir::new("requests-nginx");
    let page = "x".repeat(30_000);
    fs::write(folder.path().join("page"), &page).unwrap();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|path| format!("{path}_temp_path {path};")).join("\n");
    let number = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!("server {{ listen 127.0.0.1:{number}; root .; keepalive_requests 1000; }}");
    let text = format!(
        "daemon off;\nmaster_process off;\npid pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\nsendfile on;\n{paths}\n{server}\n}}\n"
    );
    fs::write(folder.path().join("conf"), text).unwrap();
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
    let mut command = Command::new(program.unwrap_or("nginx"));
    command.arg("-p").arg(folder.path()).args(["-c", "conf"]).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = match command.spawn() {
        Ok(child) => Server(child),
        Err(why) => return eprintln!("skipped: nginx: {why}"),
    };
    eventually("nginx listens", || TcpStream::connect(("127.0.0.1", number)).is_ok());
    let Some(mut requests) = load(port(number)) else { return };
    let mut wire = BufReader::new(tcp(number).unwrap());
    for _ in 0..200 {
        wire.get_mut().write_all(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut header = String::new();
        while !header.ends_with("\r\n\r\n") {
            assert_ne!(wire.read_line(&mut header).unwrap(), 0, "{header}");
        }
        assert!(header.starts_with("HTTP/1.1 200 "), "{header}");
        let mut body = vec![0; page.len()];
        wire.read_exact(&mut body).unwrap();
    }
    assert_eq!(counts(&mut requests), ([200, 200, 0], 0));
}

/// Answers `x` at once, and anything else on demand.
static MAY_ANSWER: AtomicBool = AtomicBool::new(false);

fn answer_when_told(stream: &mut TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        while byte != *b"x" && !MAY_ANSWER.swap(false, Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

/// A request of a window is followed to its answer, whenever that comes before the next window, and nothing else counts
/// outside of windows.
#[test]
fn requests_count_in_the_window_in_which_they_begin() {
    let number = serve("127.0.0.1:0", answer_when_told);
    let Some(mut requests) = load(port(number)) else { return };
    let [mut quick, mut slow] = [(); 2].map(|()| tcp(number).unwrap());
    let begin = |requests: &mut Requests, slow: &mut dyn Wire| {
        let before = requests.read().unwrap().begun;
        slow.write_all(b"s").unwrap();
        eventually("it has come", || requests.read().unwrap().begun > before);
    };
    let end = |slow: &mut dyn Wire| {
        MAY_ANSWER.store(true, Ordering::Relaxed);
        slow.read_exact(&mut [0]).unwrap();
    };
    (0..3).for_each(|_| one(&mut *quick));
    begin(&mut requests, &mut *slow);
    requests.count(Counted::Begun).unwrap();
    one(&mut *quick);
    assert_eq!(counts(&mut requests), ([3, 3, 0], 0), "it began too late");
    end(&mut *slow);
    assert_eq!(counts(&mut requests), ([4, 4, 0], 0), "it is followed");
    requests.count(Counted::None).unwrap();
    (0..5).for_each(|_| one(&mut *quick));
    requests.count(Counted::All).unwrap();
    one(&mut *quick);
    begin(&mut requests, &mut *slow);
    assert_eq!(counts(&mut requests), ([5, 5, 0], 0), "another window");
    requests.count(Counted::None).unwrap();
    requests.count(Counted::All).unwrap();
    end(&mut *slow);
    assert_eq!(counts(&mut requests), ([5, 5, 0], 0), "what began in an earlier window is not known");
    (0..2).for_each(|_| one(&mut *slow));
    assert_eq!(counts(&mut requests), ([7, 7, 0], 0));
}
