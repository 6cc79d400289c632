//! Where programs listen: TCP ports and named Unix sockets.

use crate::bounded::{self, Limit};
use cotenant_model::metric::Service;
use std::collections::{BTreeMap, BTreeSet};
use std::os::linux::fs::MetadataExt;
use std::{fs, io};

/// Processes in whose network namespaces services are: ours, and the machine's first one. The packaged daemon has a
/// namespace of its own, in which nothing listens.
const WHERE: [&str; 2] = ["self", "1"];

/// What these processes listen on, in our network namespace or the machine's; those of the same number count once.
pub fn services(pids: &[u32]) -> Vec<Service> {
    let mut found: Vec<Service> = Vec::new();
    let mut known = BTreeSet::new();
    for at in WHERE {
        let Some(namespace) = namespace(at).filter(|namespace| known.insert(*namespace)) else { continue };
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
    use std::os::unix::net::UnixListener;

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
