//! Bytes over TCP: sent and acknowledged, and received, on the connections of a program's sockets. A connection between
//! two looks is invisible, so that programs with many short connections have no count.
//!
//! The kernel lists all TCP sockets of our network namespace at once (`sock_diag(7)`), with a `struct tcp_info` that
//! grows between releases. Only `/proc/PID/fd` gives a socket's program, and is only listed for new sockets.

use super::followed::{Processes, refused, within};
use crate::notes::Notes;
use crate::sense::processes;
use crate::sys;
use cotenant_model::{AppId, Moved, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// Limit of this machine's sockets; beyond it there are no counts.
const SOCKETS: usize = 1 << 16;

/// Limits of examined descriptors per process, and per listing.
const DESCRIPTORS: usize = 4096;
const ALL_DESCRIPTORS: usize = 1 << 16;

/// Longest interval between listings of descriptors, because sockets can be passed on.
const LISTED_EVERY: Duration = Duration::from_secs(5);

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, net/tcp_states.h.
pub(crate) const HEADER: usize = 16;
pub(crate) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
/// All but listening, opening, and lingering ones: 1 << `TCP_…`.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// Of `struct inet_diag_msg`: its length, and the offsets of its cookie and inode.
const MESSAGE: usize = 72;
const COOKIE: usize = 44;
const INODE: usize = 68;
/// Of `struct tcp_info`: the offset of `tcpi_bytes_acked`, followed by `tcpi_bytes_received` (Linux 4.1).
const ACKED: usize = 120;

/// A socket's inode and cookie.
type Key = (u32, u64);

/// One connection in this many may end between two looks.
const LASTING: usize = 10;

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    inode: u32,
    /// Never reused, unlike inodes.
    cookie: u64,
    bytes: u64,
}

/// The bytes of all applications.
#[derive(Debug, Default)]
pub struct Tcp {
    /// Owner of each socket, by inode; `None`: not observed.
    owners: HashMap<u32, Option<AppId>>,
    listed: Time,
    /// All sockets at the last look, with their owners.
    seen: HashMap<Key, (u64, Option<AppId>)>,
    /// Applications with short-lived connections.
    short: BTreeSet<AppId>,
    sums: BTreeMap<AppId, Moved>,
    /// Applications with unreadable descriptors.
    refused: BTreeSet<AppId>,
    /// Processes whose network namespace is known to be ours, or noted.
    met: BTreeSet<u32>,
    buffer: Vec<u8>,
}

impl Tcp {
    pub fn look(&mut self, processes: &Processes, at: Time, notes: &mut Notes) {
        self.buffer.resize(64 << 10, 0);
        let sockets = match sockets(&mut self.buffer) {
            Ok(sockets) => sockets,
            Err(why) => {
                let why = match why.raw_os_error() {
                    Some(libc::EAFNOSUPPORT) => {
                        "no netlink sockets may be opened; allow AF_NETLINK (RestrictAddressFamilies= of a unit)".into()
                    }
                    _ => why.to_string(),
                };
                notes.add(format!("bytes over TCP are not known: {why}"));
                self.sums.clear();
                return;
            }
        };
        if at - self.listed >= LISTED_EVERY || sockets.iter().any(|socket| !self.owners.contains_key(&socket.inode)) {
            self.list(processes, &sockets, notes);
            self.listed = at;
        }
        let mut seen = HashMap::with_capacity(sockets.len());
        for socket in &sockets {
            let key = (socket.inode, socket.cookie);
            seen.insert(key, (socket.bytes, self.owners.get(&socket.inode).copied().flatten()));
            if let Some(Some(app)) = self.owners.get(&socket.inode) {
                let before = self.seen.get(&key).map_or(0, |(bytes, _)| *bytes);
                let sum = self.sums.entry(*app).or_default();
                sum.bytes = sum.bytes.saturating_add(socket.bytes.saturating_sub(before));
            }
        }
        self.sums.values_mut().for_each(|sum| sum.at = at);
        for (app, lasting) in lasting(&self.seen, |key| seen.contains_key(key)) {
            if lasting {
                self.short.remove(&app);
            } else {
                self.short.insert(app);
            }
        }
        self.seen = seen;
    }

    /// Determines the owner of each socket again.
    fn list(&mut self, processes: &Processes, sockets: &[Socket], notes: &mut Notes) {
        self.owners = sockets.iter().map(|socket| (socket.inode, None)).collect();
        self.refused.clear();
        self.met.retain(|pid| processes.contains_key(pid));
        let mut left = ALL_DESCRIPTORS;
        for (pid, process) in within(processes, notes) {
            if self.met.insert(pid) {
                notes.extend(elsewhere(pid));
            }
            let folder = match process.open_file(process.living_thread(pid), "fd") {
                Ok(folder) => folder,
                Err(why) => {
                    if refused(pid, "its TCP connections", &why, notes) {
                        self.refused.insert(process.app);
                    }
                    continue;
                }
            };
            let mut listed = 0;
            loop {
                let numbers = processes::list_once(&folder, &mut self.buffer);
                if numbers.is_empty() {
                    break;
                }
                listed += numbers.len();
                for number in numbers {
                    let inode = sys::read_link_at(&folder, number, &mut [0; 32]).and_then(inode);
                    if let Some(owner) = inode.and_then(|inode| self.owners.get_mut(&inode)) {
                        owner.get_or_insert(process.app);
                    }
                }
                if listed >= DESCRIPTORS.min(left) {
                    notes.add(format!("of process {pid} only the first {listed} descriptors are looked at"));
                    break;
                }
            }
            left = left.saturating_sub(listed);
        }
    }

    /// Whether no observed application had a connection.
    pub fn is_idle(&self) -> bool {
        self.seen.values().all(|(_, owner)| owner.is_none())
    }

    pub fn of(&self, app: AppId) -> Option<Moved> {
        self.sums.get(&app).filter(|_| !self.refused.contains(&app) && !self.short.contains(&app)).copied()
    }

    pub fn forget(&mut self, app: AppId) {
        self.sums.remove(&app);
        self.short.remove(&app);
        self.owners.clear();
    }
}

/// Whether connections last, for each application with any.
fn lasting(before: &HashMap<Key, (u64, Option<AppId>)>, still: impl Fn(&Key) -> bool) -> BTreeMap<AppId, bool> {
    let mut counts: BTreeMap<AppId, (usize, usize)> = BTreeMap::new();
    for (key, (_, owner)) in before {
        if let Some(app) = owner {
            let (gone, all) = counts.entry(*app).or_default();
            (*gone, *all) = (*gone + usize::from(!still(key)), *all + 1);
        }
    }
    counts.into_iter().map(|(app, (gone, all))| (app, gone * LASTING <= all)).collect()
}

/// The note on a process whose connections are invisible to us.
fn elsewhere(pid: u32) -> Option<String> {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let (ours, its) = (namespace("self")?, namespace(&pid.to_string())?);
    (ours != its).then(|| {
        format!(
            "process {pid} has a network namespace of its own: the bytes on its TCP connections are not seen from here"
        )
    })
}

/// The inode of `socket:[INODE]`.
fn inode(link: &[u8]) -> Option<u32> {
    let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// All TCP connections of this network namespace.
fn sockets(buffer: &mut [u8]) -> io::Result<Vec<Socket>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut diag = sys::open_sock_diag()?;
        diag.write_all(&question(family as u8))?;
        loop {
            let got = diag.read(buffer)?;
            if !answers(&buffer[..got], &mut all)? {
                break;
            }
            if all.len() > SOCKETS {
                return Err(io::Error::other(format!("there are more than {SOCKETS} connections on this machine")));
            }
        }
    }
    Ok(all)
}

/// A `nlmsghdr` with a `inet_diag_req_v2`.
fn question(family: u8) -> [u8; HEADER + 56] {
    let mut question = [0; HEADER + 56];
    let length = question.len() as u32;
    question[..4].copy_from_slice(&length.to_ne_bytes());
    question[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    question[16..20].copy_from_slice(&[family, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0]);
    question[20..24].copy_from_slice(&STATES.to_ne_bytes());
    question
}

/// Adds an answer of the kernel; returns whether more follows.
pub(crate) fn answers(bytes: &[u8], all: &mut Vec<Socket>) -> io::Result<bool> {
    messages(bytes, |message| all.extend(socket(message)))
}

/// Each socket of an answer of the kernel, behind its `nlmsghdr`; returns whether more follows.
pub(crate) fn messages(mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<bool> {
    if bytes.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    while let Some(length) = number(bytes, 0) {
        let Some(message) = bytes.get(..length as usize).filter(|message| message.len() >= HEADER) else { break };
        match i32::from(u16::from_ne_bytes([message[4], message[5]])) {
            libc::NLMSG_DONE => return Ok(false),
            libc::NLMSG_ERROR => {
                let errno = number(message, HEADER).unwrap_or_default().cast_signed();
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            kind if kind == i32::from(SOCK_DIAG_BY_FAMILY) => each(&message[HEADER..]),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4) as usize..).unwrap_or_default();
    }
    Ok(true)
}

/// One socket with its `tcp_info`; `None` if that is too short, as before Linux 4.1.
fn socket(message: &[u8]) -> Option<Socket> {
    let (inode, cookie) = (number(message, INODE)?, long(message, COOKIE)?);
    let mut attributes = message.get(MESSAGE..)?;
    loop {
        let [a, b, c, d] = *attributes.first_chunk()?;
        let (length, kind) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        let attribute = attributes.get(4..usize::from(length))?;
        if kind == INET_DIAG_INFO {
            let bytes = long(attribute, ACKED)?.saturating_add(long(attribute, ACKED + 8)?);
            return Some(Socket { inode, cookie, bytes });
        }
        attributes = attributes.get(usize::from(length).next_multiple_of(4)..)?;
    }
}

pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Number of TCP connections.
///
/// # Errors
/// If the kernel does not report them.
pub fn connections() -> io::Result<usize> {
    sockets(&mut vec![0; 64 << 10]).map(|sockets| sockets.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsRoot;
    use crate::sense::ends::Ends;
    use crate::sense::processes::{Follower, Target};
    use std::net::{Shutdown, TcpListener, TcpStream};

    const MIB: usize = 1 << 20;

    /// An answer with one socket, and a `tcp_info` of this many bytes.
    fn answer(info: usize) -> Vec<u8> {
        let attribute = |kind: u16, content: &[u8]| {
            let mut bytes = [(content.len() as u16 + 4).to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let mut tcp_info = vec![0; 256];
        tcp_info[120..128].copy_from_slice(&1_000_u64.to_ne_bytes());
        tcp_info[128..136].copy_from_slice(&234_u64.to_ne_bytes());
        let mut message = vec![0; HEADER + MESSAGE];
        message[HEADER + COOKIE..][..8].copy_from_slice(&77_u64.to_ne_bytes());
        message[HEADER + INODE..][..4].copy_from_slice(&4242_u32.to_ne_bytes());
        message.extend(attribute(8, &[1])); // shutdown
        message.extend(attribute(INET_DIAG_INFO, &tcp_info[..info]));
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message
    }

    fn parsed(bytes: &[u8]) -> (Vec<Socket>, io::Result<bool>) {
        let mut all = Vec::new();
        let more = answers(bytes, &mut all);
        (all, more)
    }

    /// Promise see/damaged-input: Damaged input gives an error or a result, never a panic, whichever parser reads it.
    #[test]
    fn answers_of_kernels_old_and_new() {
        let socket = Socket { inode: 4242, cookie: 77, bytes: 1_234 };
        for length in [136, 192, 256] {
            let (sockets, more) = parsed(&answer(length).repeat(2));
            assert_eq!((sockets, more.unwrap()), (vec![socket; 2], true), "{length}");
        }
        assert_eq!(parsed(&answer(104)).0, [], "before Linux 4.1");
        let mut done = answer(192);
        done.extend([20, 0, 0, 0, 3, 0, 2, 0].iter().chain(&[0; 12]));
        assert_eq!((parsed(&done).0.len(), parsed(&done).1.unwrap()), (1, false));
        let error =
            [&36_u32.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &[0; 10], &(-2_i32).to_ne_bytes(), &[0; 16]].concat();
        assert_eq!(parsed(&error).1.unwrap_err().raw_os_error(), Some(2));
        assert!(parsed(&[]).1.is_err(), "it would be asked for ever");
        assert_eq!(inode(b"socket:[4242]"), Some(4242));
        assert_eq!(
            ["socket:[x]", "socket:[99999999999]", "pipe:[1]", "socket:[1"].map(|l| inode(l.as_bytes())),
            [None; 4]
        );
    }

    /// Holds speed/proxies.
    #[test]
    fn short_connections_tell_nothing() {
        let socket = |app: u32, n: u64| ((n as u32, n), (0, Some(AppId(app))));
        let mut before: HashMap<Key, _> = (0..10).map(|n| socket(1, n)).chain((10..19).map(|n| socket(2, n))).collect();
        before.insert((99, 99), (0, None));
        let found = lasting(&before, |(inode, _)| ![3, 12, 99].contains(inode));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(AppId(1), true), (AppId(2), false)], "1 of 10, 1 of 9");
    }

    #[test]
    fn connections_of_others_are_none() {
        let idle = |owners: &[Option<u32>]| {
            let seen = owners.iter().enumerate().map(|(n, owner)| ((n as u32, 0), (0, owner.map(AppId)))).collect();
            Tcp { seen, ..Tcp::default() }.is_idle()
        };
        assert_eq!([idle(&[]), idle(&[None, None]), idle(&[None, Some(1)])], [true, true, false]);
    }

    /// What this process sends itself is received by it, too; a connection that is another's does not count.
    /// Holds speed/proxies.
    #[test]
    fn bytes_of_connections_of_this_process() {
        let (mut tcp, mut notes, mut at) = (Tcp::default(), Notes::default(), Time::default());
        let ends = Ends::new().unwrap();
        let mut follower = Follower::new(&FsRoot::live(), vec![Target::Pids(vec![std::process::id()])], None);
        follower.update(at, &[], &[], &ends);
        let mut bytes = || {
            at = at + Duration::from_millis(100);
            tcp.look(follower.processes(), at, &mut notes);
            // Other tests of this process have short connections.
            tcp.sums.get(&AppId(0)).map_or(0, |moved| moved.bytes) as usize
        };
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let before = bytes();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                scope.spawn(|| sender.write_all(&vec![1; MIB]).unwrap());
                receiver.read_exact(&mut vec![0; MIB]).unwrap();
            });
        }
        sender.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receiver.read(&mut [0]).unwrap(), 0);
        // Other tests of this process have connections, too.
        let sent = bytes() - before;
        assert!((4 * MIB..5 * MIB).contains(&sent), "{sent}");
        drop((sender, receiver));
        let after = bytes() - before;
        assert!((sent..5 * MIB).contains(&after), "{after}: what is closed stays counted");
        assert_eq!(notes.iter().count(), 0);
    }
}
