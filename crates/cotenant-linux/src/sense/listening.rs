//! Where programs listen: TCP ports and named Unix sockets; and what is connected there.

use crate::bounded::{self, Limit};
use crate::sense::proxies::tcp::{HEADER, SOCK_DIAG_BY_FAMILY, messages, number};
use crate::sys;
use cotenant_model::metric::Service;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::linux::fs::MetadataExt;
use std::{fs, io};

/// Processes in whose network namespaces services are: ours, and the machine's first one. The packaged daemon has a
/// namespace of its own, in which nothing listens.
const WHERE: [&str; 2] = ["self", "1"];

/// These, with their namespaces, each once.
fn places() -> impl Iterator<Item = (&'static str, u64)> {
    let mut known = BTreeSet::new();
    WHERE.into_iter().filter_map(move |at| namespace(at).filter(|inode| known.insert(*inode)).map(|inode| (at, inode)))
}

/// What these processes listen on, in our network namespace or the machine's; those of the same number count once.
pub fn services(pids: &[u32]) -> Vec<Service> {
    let mut found: Vec<Service> = Vec::new();
    for (at, namespace) in places() {
        let mut here = pids.iter().filter(|pid| self::namespace(&pid.to_string()) == Some(namespace)).peekable();
        if here.peek().is_none() {
            continue;
        }
        let mut sockets: BTreeMap<u64, Service> = BTreeMap::new();
        for table in ["tcp", "tcp6"].into_iter().filter_map(|name| table_of(at, name).ok()) {
            sockets.extend(ports(&table).map(|(port, inode)| (inode, Service::Port(port))));
        }
        if let Ok(table) = table_of(at, "unix") {
            sockets.extend(paths(&table).map(|(path, inode)| (inode, Service::Socket(path.to_owned()))));
        }
        let inodes: BTreeSet<u64> = here.flat_map(|pid| sockets_of(*pid)).collect();
        for service in inodes.iter().filter_map(|inode| sockets.remove(inode)) {
            if !found.contains(&service) {
                found.push(service);
            }
        }
    }
    found
}

/// The network namespace in which a port listens: ours, else that of the machine; `None` if it listens in neither.
pub fn namespace_of(port: u16) -> Option<u32> {
    let open = WHERE.into_iter().find(|at| !is_closed(at, port));
    namespace(open?).map(|inode| inode as u32)
}

/// Which of these processes have a connection to where the servers listen. Those whose descriptors may not be read have
/// none.
pub fn clients(servers: &BTreeSet<u32>, of: impl Iterator<Item = u32>) -> BTreeSet<u32> {
    let served: BTreeSet<u64> = servers.iter().flat_map(|pid| sockets_of(*pid)).collect();
    let mut theirs = BTreeSet::new();
    let tables = places().flat_map(|(at, _)| ["tcp", "tcp6"].map(|name| table_of(at, name)));
    let tables: Vec<String> = tables.filter_map(Result::ok).collect();
    let open: BTreeSet<u16> = tables
        .iter()
        .flat_map(|table| ports(table))
        .filter(|(_, inode)| served.contains(inode))
        .map(|(port, _)| port)
        .collect();
    let ends: Vec<Connection> = tables.iter().flat_map(|table| connections(table)).collect();
    let accepted = ends
        .iter()
        .filter(|end| served.contains(&end.inode) && port(&end.local).is_some_and(|port| open.contains(&port)));
    let accepted: BTreeSet<(&str, &str)> = accepted.map(|end| (&*end.remote, &*end.local)).collect();
    theirs.extend(ends.iter().filter(|end| accepted.contains(&(&end.local, &end.remote))).map(|end| end.inode));
    if let (Ok(table), Ok(peers)) = (table_of("self", "unix"), unix_peers()) {
        let accepted: BTreeSet<u64> = accepted_by_path(&table).filter(|inode| served.contains(inode)).collect();
        theirs.extend(peers.into_iter().filter(|(_, peer)| accepted.contains(peer)).map(|(inode, _)| inode));
    }
    of.filter(|pid| !theirs.is_empty() && sockets_of(*pid).iter().any(|inode| theirs.contains(inode))).collect()
}

/// One end of a TCP connection, with both addresses as in `/proc/net/tcp`.
struct Connection {
    local: String,
    remote: String,
    inode: u64,
}

/// Open connections by a table as `/proc/net/tcp` or `tcp6`; IPv4 addresses look alike in both.
fn connections(table: &str) -> impl Iterator<Item = Connection> {
    let address = |word: &str| word.strip_prefix("0000000000000000FFFF0000").unwrap_or(word).to_owned();
    table.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote, "01") = (words.next()?, words.next()?, words.next()?) else { return None };
        Some(Connection { local: address(local), remote: address(remote), inode: words.nth(5)?.parse().ok()? })
    })
}

fn port(address: &str) -> Option<u16> {
    u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok()
}

/// Inodes of connected Unix sockets that have a name, as those that a server accepted have.
fn accepted_by_path(table: &str) -> impl Iterator<Item = u64> {
    table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(5);
        let ("03", inode, Some(_)) = (words.next()?, words.next()?, words.next()) else { return None };
        inode.parse().ok()
    })
}

// linux/unix_diag.h.
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
/// Of `struct unix_diag_msg`: its length, and the offset of its inode.
const MESSAGE: usize = 16;
const INODE: usize = 4;

/// Inodes of connected Unix sockets, each with that of its peer.
fn unix_peers() -> io::Result<Vec<(u64, u64)>> {
    // A `nlmsghdr` with a `unix_diag_req`.
    let mut question = [0; HEADER + 24];
    let length = question.len() as u32;
    question[..4].copy_from_slice(&length.to_ne_bytes());
    question[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    question[16] = libc::AF_UNIX as u8;
    question[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    question[28..32].copy_from_slice(&UDIAG_SHOW_PEER.to_ne_bytes());
    let mut diag = sys::open_sock_diag()?;
    diag.write_all(&question)?;
    let (mut peers, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let got = diag.read(&mut buffer)?;
        if !messages(&buffer[..got], |message| peers.extend(peer(message)))? {
            return Ok(peers);
        }
    }
}

/// A socket and its peer by a `unix_diag_msg`.
fn peer(message: &[u8]) -> Option<(u64, u64)> {
    let inode = number(message, INODE)?;
    let mut attributes = message.get(MESSAGE..)?;
    loop {
        let [a, b, c, d] = *attributes.first_chunk()?;
        let (length, kind) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        let attribute = attributes.get(4..usize::from(length))?;
        if kind == UNIX_DIAG_PEER {
            return Some((inode.into(), number(attribute, 0)?.into()));
        }
        attributes = attributes.get(usize::from(length).next_multiple_of(4)..)?;
    }
}

fn namespace(process: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/net")).ok()?.st_ino())
}

/// Whether nothing listens on a port there, as far as that can be known.
fn is_closed(at: &str, port: u16) -> bool {
    // A kernel without IPv6 has no table of it.
    table_of(at, "tcp").is_ok_and(|table| ports(&table).all(|(known, _)| known != port))
        && table_of(at, "tcp6").map_or(true, |table| ports(&table).all(|(known, _)| known != port))
}

fn table_of(process: &str, name: &str) -> io::Result<String> {
    bounded::text(format!("/proc/{process}/net/{name}"), Limit::Machine)
}

/// Ports and inodes of sockets that listen, by a table as `/proc/net/tcp`.
fn ports(table: &str) -> impl Iterator<Item = (u16, u64)> {
    table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["0A", inode] = [words.get(3)?, words.get(9)?].map(|word| *word) else { return None };
        let (_, port) = words[1].rsplit_once(':')?;
        Some((u16::from_str_radix(port, 16).ok()?, inode.parse().ok()?))
    })
}

/// Paths and inodes of stream sockets that listen, by a table as `/proc/net/unix`: `Num RefCount Protocol Flags Type St
/// Inode Path`. Abstract names begin with `@`.
fn paths(table: &str) -> impl Iterator<Item = (&str, u64)> {
    table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(3);
        let ("00010000", "0001", Some(_), Some(inode)) = (words.next()?, words.next()?, words.next(), words.next())
        else {
            return None;
        };
        let path = line.find(" /").map(|at| &line[at + 1..])?;
        Some((path, inode.parse().ok()?))
    })
}

/// Inodes of a process' sockets.
fn sockets_of(pid: u32) -> Vec<u64> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let inode = |entry: fs::DirEntry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    descriptors.flatten().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn tables_of_the_kernel_name_what_listens() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     \x20  0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 42 1\n\
                     \x20  1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 43 1\n";
        assert_eq!(ports(table).collect::<Vec<_>>(), [(6_379, 42)]);
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0: 00000002 00000000 00010000 0001 01 77 /run/a b.sock\n\
                     0: 00000002 00000000 00010000 0001 01 78 @abstract\n\
                     0: 00000003 00000000 00000000 0001 03 79 /run/a b.sock\n\
                     0: 00000002 00000000 00010000 0005 01 80 /run/packets\n";
        assert_eq!(paths(table).collect::<Vec<_>>(), [("/run/a b.sock", 77)]);
        assert_eq!((ports("").count(), paths("x\ny").count()), (0, 0));
        assert_eq!(accepted_by_path(table).collect::<Vec<_>>(), [79]);
    }

    #[test]
    fn addresses_of_both_kinds_of_tables_look_alike() {
        let line =
            |from: &str, to: &str| format!("head\n  1: {from}:1F90 {to}:C001 01 00000000:00000000 00:0 0  0  0 43 1\n");
        let mapped = "0000000000000000FFFF00000100007F";
        for table in [line("0100007F", "0100007F"), line(mapped, mapped)] {
            let found: Vec<_> = connections(&table).map(|end| (end.local, end.remote, end.inode)).collect();
            assert_eq!(found, [("0100007F:1F90".to_owned(), "0100007F:C001".to_owned(), 43)]);
        }
        assert_eq!(port("0100007F:1F90"), Some(8_080));
    }

    /// Holds see/damaged-input.
    #[test]
    fn a_peer_is_read_whatever_comes() {
        let attribute = |kind: u16| [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &78_u32.to_ne_bytes()].concat();
        let message = [&[0; 4][..], &77_u32.to_ne_bytes(), &[0; 8], &attribute(1), &attribute(UNIX_DIAG_PEER)].concat();
        assert_eq!(peer(&message), Some((77, 78)));
        assert!((0..message.len()).all(|length| peer(&message[..length]).is_none()), "it is cut off");
        let endless = [&message[..MESSAGE], &[0; 8]].concat();
        assert_eq!(peer(&endless), None, "an attribute of no length");
    }

    /// This process is server and client of itself.
    #[test]
    fn what_is_connected_is_a_client() {
        let me = BTreeSet::from([std::process::id()]);
        let of = |servers: &BTreeSet<u32>| clients(servers, me.iter().copied());
        let folder = TempDir::new("clients");
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        assert_eq!(of(&BTreeSet::new()), BTreeSet::new(), "nobody serves");
        let peers = unix_peers();
        let client = UnixStream::connect(folder.path().join("socket")).unwrap();
        let accepted = listener.accept().unwrap();
        match peers {
            Ok(_) => assert_eq!(of(&me), me),
            Err(why) => eprintln!("skipped: {why}"),
        }
        drop((client, accepted));
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
        let client = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
        let accepted = listener.accept().unwrap();
        assert_eq!(of(&me), me);
        drop((client, accepted));
    }

    #[test]
    fn what_this_process_listens_on_is_found() {
        let folder = TempDir::new("listening");
        let path = folder.path().join("socket");
        let (tcp, _unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let port = tcp.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let found = services(&[std::process::id()]);
        for service in [Service::Port(port), Service::Socket(path.to_str().unwrap().to_owned())] {
            assert!(found.contains(&service), "{service} in {found:?}");
        }
        assert_eq!(namespace_of(port), namespace("self").map(|inode| inode as u32));
        assert!(!found.contains(&Service::Port(client.local_addr().unwrap().port())));
        assert_eq!(services(&[]), []);
    }
}
