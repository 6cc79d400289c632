//! How long requests to one service take.

use crate::kernel::{Blind, Error, attach_all, io_error, loading, map};
use crate::object::{REQUESTS, RawLatencies, RawService, side};
use aya::maps::Array;
use aya::{Btf, Ebpf, EbpfLoader};
use cotenant_model::Histogram;
use std::io;

/// Programs of the object and the tracepoints that they belong to.
const TCP: [(&str, &str); 3] =
    [("tcp_sent", "net_dev_queue"), ("tcp_received", "tcp_probe"), ("tcp_took", "tcp_rcv_space_adjust")];
/// Linux 6.3 has these.
const UNIX: [(&str, &str); 2] = [("unix_received", "sk_data_ready"), ("unix_took", "sock_recv_length")];

/// What programs talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A TCP port in a network namespace.
    Port {
        /// Its number.
        port: u16,
        /// The namespace's inode.
        netns: u32,
    },
    /// A Unix socket with a name in a file system.
    Socket {
        /// The file system's device: major and minor.
        device: (u32, u32),
        /// Its number there.
        inode: u64,
    },
}

/// Which requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counted {
    /// All. After [`Self::None`] another window begins: what began earlier does not count in it.
    All,
    /// Those that have begun.
    Begun,
    /// None, which costs next to nothing.
    None,
}

/// Requests to a service so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Requests that began, at the server.
    pub begun: u64,
    /// All of them, at the server: from when one can be read until the first byte of its answer leaves.
    pub served: Latencies,
    /// Those of clients on this machine, at the client: from when one was sent until the first of its answer was taken.
    pub local: Latencies,
    /// Those of other clients, at the server.
    pub remote: Latencies,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Nanoseconds; quantiles are within 1 %.
    pub ns: Histogram,
    /// Requests, or pieces of one, that came before the answer to the one before: several are under way at once, and
    /// how long each takes is not known.
    pub joined: u64,
}

/// Sees the requests to a service as long as it lives.
#[derive(Debug)]
pub struct Requests {
    object: Ebpf,
    service: Service,
    counted: Counted,
    window: u32,
}

impl Requests {
    /// Loads the object. Takes some hundredths of a second.
    ///
    /// # Errors
    /// [`Blind`]
    pub fn load(service: Service) -> Result<Self, Blind> {
        loading(|| Self::load_unchecked(service))
    }

    fn load_unchecked(service: Service) -> Result<Self, Error> {
        let btf = Btf::from_sys_fs()?;
        let object = object(&btf)?;
        let points = match service {
            Service::Port { .. } => &TCP[..],
            Service::Socket { .. } => &UNIX[..],
        };
        let mut requests = Self { object, service, counted: Counted::All, window: 0 };
        requests.set()?;
        attach_all(&mut requests.object, points, points.len(), &btf)?;
        Ok(requests)
    }

    /// Whether requests can be seen: the tracepoints that this kernel does not have or refuses, with its reason,
    /// without which those of Unix sockets are not.
    ///
    /// # Errors
    /// [`Blind`]: none can be seen.
    pub fn missing() -> Result<Vec<String>, Blind> {
        loading(|| {
            let btf = Btf::from_sys_fs()?;
            let mut object = object(&btf)?;
            attach_all(&mut object, &[&TCP[..], &UNIX].concat(), TCP.len(), &btf)
        })
    }

    /// The same service is somewhere else now, as a socket that was made anew.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn follow(&mut self, service: Service) -> io::Result<()> {
        if service != self.service {
            self.service = service;
            self.set()?;
        }
        Ok(())
    }

    /// Counts these from now on.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn count(&mut self, counted: Counted) -> io::Result<()> {
        self.window = self.window.wrapping_add(u32::from((self.counted, counted) == (Counted::None, Counted::All)));
        self.counted = counted;
        self.set()
    }

    /// Requests until now.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn read(&mut self) -> io::Result<Seen> {
        let sides: Array<_, RawLatencies> = Array::try_from(map(&mut self.object, "latencies")?).map_err(io_error)?;
        let of = |side| {
            let raw = sides.get(&side, 0).map_err(io_error)?;
            Ok::<_, io::Error>((Latencies { ns: raw.latencies(), joined: raw.joined }, raw.begun))
        };
        let (served, begun) = of(side::SERVED)?;
        Ok(Seen { begun, served, local: of(side::LOCAL)?.0, remote: of(side::REMOTE)?.0 })
    }

    fn set(&mut self) -> io::Result<()> {
        let told = RawService { counted: self.counted as u32, window: self.window, ..RawService::default() };
        let raw = match self.service {
            Service::Port { port, netns } => RawService { port: port.into(), netns, ..told },
            // As the kernel numbers devices inside.
            Service::Socket { device: (major, minor), inode } => {
                RawService { device: major << 20 | minor, inode, ..told }
            }
        };
        let mut map: Array<_, RawService> = Array::try_from(map(&mut self.object, "service")?).map_err(io_error)?;
        map.set(0, raw, 0).map_err(io_error)
    }
}

fn object(btf: &Btf) -> Result<Ebpf, Error> {
    Ok(EbpfLoader::new().btf(Some(btf)).allow_unsupported_maps().load(REQUESTS)?)
}
