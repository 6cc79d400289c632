//! The control socket: one request and one answer per connection. The kernel identifies the user.

use crate::containers::Containers;
use crate::node::Node;
use crate::parties::{Changes, Parties, Party, may_all};
use crate::protocol::{Answer, LOOP, PATIENCE, Request, bytes, request};
use anyhow::{Context as _, Result, anyhow};
use cotenant_cli::usage;
use cotenant_linux::sys::{self, Lock};
use cotenant_linux::undo::{self, default_state_dir, secure_dir};
use cotenant_linux::worker;
use cotenant_model::Topology;
use cotenant_model::profile::MachineProfile;
use cotenant_status::page::Scene;
use cotenant_status::status::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a request; and of a list of containers, which few users may send.
const REQUEST: usize = 4 << 10;
const LIST: usize = 4 << 20;

/// The beginning of a list of containers.
const LISTS: &[u8] = b"{\"version\":1,\"verb\":\"containers\",";

/// Concurrent requests of one party, and of all without their own places; beyond that, new ones are closed.
const OF_ONE: usize = 4;
const AT_ONCE: usize = 16;

/// Stack size of its threads, bytes.
const STACK: usize = 256 << 10;

/// Minimum time that a request of an unprivileged user occupies its place, since each costs CPU time.
const HELD: Duration = Duration::from_millis(25);

/// A request for the loop, its origin, and the channel of its answer.
pub(crate) struct Order {
    pub request: Request,
    /// The requesting user.
    pub uid: u32,
    pub answer: SyncSender<Result<String, String>>,
    /// Its party.
    id: u64,
}

/// Shared state of the daemon's threads.
#[derive(Default)]
pub(crate) struct Shared {
    status: Mutex<Option<Arc<Status>>>,
    /// Further data for the page.
    scene: Mutex<Option<Scene>>,
    machine: Mutex<Option<Arc<(Topology, MachineProfile)>>>,
    containers: Mutex<Arc<Containers>>,
    /// The user, apart from root, with the right to list containers.
    bridge: Mutex<Option<u32>>,
    orders: Mutex<Vec<Order>>,
    changes: Mutex<Changes>,
    /// Finds the party of a user.
    pub parties: Parties,
    /// Number of requests.
    asked: AtomicU64,
    waker: Mutex<Option<PipeWriter>>,
}

impl Shared {
    /// The status, at most a second old; `None` before the first round.
    pub fn status(&self) -> Option<Arc<Status>> {
        locked(&self.status).clone()
    }

    pub fn set_status(&self, status: Status) {
        // An unserved history has no reader.
        if let Some(scene) = locked(&self.scene).as_mut() {
            if status.listen.is_some() { scene.add(&status) } else { scene.clear() }
        }
        *locked(&self.status) = Some(Arc::new(status));
    }

    /// Sets the managed machine.
    pub fn set_machine(&self, topology: &Topology, profile: &MachineProfile) {
        *locked(&self.machine) = Some(Arc::new((topology.clone(), profile.clone())));
        let mut scene = locked(&self.scene);
        // The history is kept for the same machine.
        if scene.as_ref().is_none_or(|scene| *scene.topology() != *topology) {
            *scene = Some(Scene::new(topology));
        }
    }

    /// A part of the scene; `None` before the machine is known. The loop waits meanwhile, so `of` must be short.
    pub fn of_scene<T>(&self, take: impl FnOnce(&Scene) -> T) -> Option<T> {
        locked(&self.scene).as_ref().map(take)
    }

    /// The report of this machine to a cluster; `None` before the first round.
    fn node(&self) -> Option<Node> {
        let (status, machine) = (self.status()?, locked(&self.machine).clone()?);
        Some(Node::new(&status, &machine.0, &machine.1))
    }

    /// The latest list of this machine's containers.
    pub fn containers(&self) -> Arc<Containers> {
        locked(&self.containers).clone()
    }

    /// Changes the user with the right to list containers. The list of the previous user is dropped.
    pub fn set_bridge(&self, uid: Option<u32>) {
        let mut bridge = locked(&self.bridge);
        if std::mem::replace(&mut *bridge, uid) != uid {
            *locked(&self.containers) = Arc::default();
        }
    }

    /// Whether a user may list containers, and see all of them.
    fn is_bridge(&self, uid: u32) -> bool {
        may_all(uid) || *locked(&self.bridge) == Some(uid)
    }

    /// Accepts the list if the user still has the right: the right may have changed while the list arrived.
    fn set_containers(&self, uid: u32, containers: Containers) -> bool {
        let bridge = locked(&self.bridge); // keeps the bridge unchanged meanwhile
        let may = may_all(uid) || *bridge == Some(uid);
        if may {
            *locked(&self.containers) = Arc::new(containers);
        }
        may
    }

    /// The pipe that wakes the loop for work.
    pub fn set_waker(&self, waker: PipeWriter) {
        *locked(&self.waker) = Some(waker);
    }

    /// Requests since the previous call.
    pub fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut locked(&self.orders))
    }

    /// Whether a party has its own places: root, the daemon's user, the bridge, and users with services.
    fn is_expected(&self, party: Party) -> bool {
        let bridge = *locked(&self.bridge);
        bridge.is_some_and(|uid| self.parties.of(uid) == party)
            || party.may_all()
            || self.status().is_some_and(|status| {
                let users: BTreeSet<u32> = status.services.iter().map(|service| service.uid).collect();
                users.into_iter().any(|uid| self.parties.of(uid) == party)
            })
    }

    fn order(&self, request: Request, Client { uid, party }: Client) -> Result<String, String> {
        locked(&self.changes).take(party)?;
        let (answer, answered): (_, Receiver<_>) = sync_channel(1);
        let id = self.asked.fetch_add(1, Ordering::Relaxed);
        locked(&self.orders).push(Order { request, uid, answer, id });
        if let Some(waker) = &mut *locked(&self.waker) {
            let _ = waker.write(&[0]); // a full pipe wakes anyway
        }
        answered.recv_timeout(LOOP).unwrap_or_else(|_| {
            let mut orders = locked(&self.orders);
            let waiting = orders.len();
            orders.retain(|order| order.id != id);
            let taken = orders.len() == waiting;
            drop(orders);
            // A client can rely on an answer that nothing was done.
            if !taken {
                return Err("the daemon is busy; try again".to_owned());
            }
            let begun = |_| Err("the daemon has begun with it and is busy; see cotenant status".to_owned());
            answered.recv_timeout(LOOP).unwrap_or_else(begun)
        })
    }
}

/// A panic in another thread leaves consistent data here.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The daemon's end of the socket; dropping it removes the file.
pub(crate) struct Control {
    path: PathBuf,
    _lock: File,
}

impl Control {
    /// Listens; each socket has one daemon.
    ///
    /// # Errors
    /// Another daemon at the socket; errors of making it.
    pub fn listen(path: PathBuf, shared: Arc<Shared>) -> Result<Self> {
        let folder = path.parent().context("the socket has no folder")?;
        let at = |why: io::Error| {
            let text = format!("{}: {why}; name another socket with --socket", path.display());
            if is_transient(&why) { anyhow!(text) } else { usage(text) }
        };
        // Permissions of shared folders are not changed.
        let is_ours = !folder.exists() || default_state_dir().is_ok_and(|own| own == folder);
        secure_dir(folder).map_err(|why| {
            let text = format!(
                "the folder of the socket, {}: {why}; mend that, or name another socket with --socket",
                folder.display()
            );
            if is_transient(&why) { anyhow!(text) } else { usage(text) }
        })?;
        // A daemon that is stopped takes no more connections at some time, and is there all the same.
        let answers = || match sys::connect_unix(&path, PATIENCE) {
            Err(why) => is_transient(&why),
            Ok(_) => true,
        };
        let lock = path.with_extension("lock");
        let lock = undo::lock(&lock, Lock::Try).map_err(|why| match why.kind() {
            ErrorKind::WouldBlock if answers() => usage(format!(
                "another daemon runs at {}; cotenant status shows it, systemctl stop cotenant or a signal ends it",
                path.display()
            )),
            ErrorKind::WouldBlock => anyhow!(
                "{}: another process holds the lock, and no daemon answers; try again, or end that process",
                lock.display()
            ),
            _ => at(why),
        })?;
        if fs::symlink_metadata(&path).is_ok_and(|what| what.file_type().is_socket()) {
            if answers() {
                return Err(usage(format!("{}: another program listens there; name another socket", path.display())));
            }
            fs::remove_file(&path).map_err(at)?; // left by a killed daemon: the lock is free
        }
        let listener = UnixListener::bind(&path).map_err(at)?;
        if sys::euid() == 0 {
            // Others may ask, and get answers about their own services.
            if is_ours {
                fs::set_permissions(folder, Permissions::from_mode(0o711)).map_err(at)?;
            }
            fs::set_permissions(&path, Permissions::from_mode(0o666)).map_err(at)?;
        }
        let places = Arc::new(Places::default());
        let listening = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    thread::sleep(Duration::from_millis(100)); // out of descriptors
                    continue;
                };
                let Ok((uid, pid)) = sys::peer(stream.as_fd()) else { continue };
                let client = Client { uid, party: shared.parties.of_process(uid, pid) };
                if let Some(place) = places.take(client.party, || shared.is_expected(client.party)) {
                    let shared = shared.clone();
                    // If no thread can be started, the place is freed.
                    let request = move || {
                        let begin = Instant::now();
                        let _ = serve(&stream, client, &shared); // the client is gone
                        drop(stream);
                        if !may_all(uid) {
                            thread::sleep(HELD.saturating_sub(begin.elapsed()));
                        }
                        drop(place);
                    };
                    let thread = thread::Builder::new().name("request".to_owned()).stack_size(STACK);
                    let _ = thread.spawn(|| drop(worker::caught("a request", request)));
                }
            }
        };
        worker::spawn("control", STACK, listening).map_err(at)?;
        Ok(Self { path, _lock: lock })
    }
}

/// Whether a resource ran out that other processes may free: a service manager should retry.
fn is_transient(why: &io::Error) -> bool {
    use libc::{EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC};
    matches!(why.raw_os_error(), Some(EAGAIN | EDQUOT | EIO | EMFILE | ENFILE | ENOMEM | ENOSPC))
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The client of a request.
#[derive(Clone, Copy)]
struct Client {
    uid: u32,
    party: Party,
}

/// The places in use; limits per client keep places free for the others.
#[derive(Default)]
struct Places(Mutex<BTreeMap<Party, Taken>>);

/// The places of one party.
#[derive(Default)]
struct Taken {
    own: usize,
    /// Of the shared places.
    shared: usize,
}

/// An occupied place.
struct Place {
    places: Arc<Places>,
    party: Party,
    is_shared: bool,
}

impl Places {
    /// A free place, if any. With `is_expected` it is not one of the shared places.
    fn take(self: &Arc<Self>, party: Party, is_expected: impl FnOnce() -> bool) -> Option<Place> {
        let mut taken = locked(&self.0);
        if taken.get(&party).is_some_and(|taken| taken.own + taken.shared >= OF_ONE) {
            return None;
        }
        let is_shared = !is_expected();
        if is_shared && taken.values().map(|taken| taken.shared).sum::<usize>() >= AT_ONCE {
            return None;
        }
        let of = taken.entry(party).or_default();
        *(if is_shared { &mut of.shared } else { &mut of.own }) += 1;
        Some(Place { places: self.clone(), party, is_shared })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = locked(&self.places.0);
        if let Some(of) = taken.get_mut(&self.party) {
            *(if self.is_shared { &mut of.shared } else { &mut of.own }) -= 1;
            if of.own + of.shared == 0 {
                taken.remove(&self.party);
            }
        }
    }
}

/// A line, which must arrive completely in time. `lists`: whether it may be a list of containers.
fn line(mut stream: &UnixStream, lists: bool) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let (mut line, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let most = if lists && line.starts_with(LISTS) { LIST } else { REQUEST };
        if line.len() >= most {
            return Ok(line);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let room = piece.len().min(most - line.len());
        let read = stream.read(&mut piece[..room])?;
        line.extend_from_slice(&piece[..read]);
        if read == 0 || piece[..read].contains(&b'\n') {
            return Ok(line);
        }
    }
}

fn serve(mut stream: &UnixStream, client: Client, shared: &Shared) -> io::Result<()> {
    let uid = client.uid;
    stream.set_write_timeout(Some(PATIENCE))?;
    let is_bridge = shared.is_bridge(uid);
    let line = line(stream, is_bridge)?;
    let bytes = match request(&line) {
        Err(why) => bytes(&Answer::<()>::Error(why)),
        Ok(Request::Status) => match shared.status() {
            None => bytes(&Answer::<()>::Error(BEGUN.to_owned())),
            Some(status) if may_all(uid) => bytes(&Answer::Ok(&status.told_now())),
            Some(status) => bytes(&Answer::Ok(&status.for_user(uid))),
        },
        Ok(Request::Containers { .. } | Request::Node) if !is_bridge => {
            bytes(&Answer::<()>::Error(NO_BRIDGE.to_owned()))
        }
        Ok(Request::Containers { containers }) => {
            let (containers, taken) = Containers::new(containers);
            if shared.set_containers(uid, containers) {
                bytes(&Answer::Ok(taken))
            } else {
                bytes(&Answer::<()>::Error(NO_BRIDGE.to_owned()))
            }
        }
        Ok(Request::Node) => match shared.node() {
            None => bytes(&Answer::<()>::Error(BEGUN.to_owned())),
            Some(node) => bytes(&Answer::Ok(node)),
        },
        Ok(request) => match shared.order(request, client) {
            Ok(done) => bytes(&Answer::Ok(done)),
            Err(why) => bytes(&Answer::<()>::Error(why)),
        },
    };
    stream.write_all(&bytes?)
}

const BEGUN: &str = "the daemon has just begun; try again";
const NO_BRIDGE: &str = "only root, the daemon's own user and the bridge that its configuration names may do that";

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_status::status::ServiceStatus;

    /// Any number of users without services, one of them under 65,536 numbers, leave a place to those who have some.
    /// Holds daemon/hostile.
    #[test]
    fn root_the_bridge_and_whoever_has_services_always_have_places() {
        let (bridge, owner) = (70_000, 70_001);
        let shared = Shared::default();
        shared.set_bridge(Some(bridge));
        let service = ServiceStatus { uid: owner, ..ServiceStatus::default() };
        shared.set_status(Status { services: vec![service], ..Status::of_nobody(Instant::now()) });
        let places = Arc::new(Places::default());
        let take = |party: Party| places.take(party, || shared.is_expected(party));
        let held: Vec<Place> =
            (0..100).flat_map(|i| (0..8).map(move |_| 80_000 + i)).map(Party::User).filter_map(take).collect();
        assert_eq!(held.len(), AT_ONCE);
        let of_one: Vec<Place> = (0..100).map(|_| Party::Namespace(1)).filter_map(take).collect();
        assert_eq!(of_one.len(), 0, "they share what is taken");
        for uid in [0, sys::euid(), bridge, owner] {
            let own: Vec<Place> = (0..100).map(|_| Party::User(uid)).filter_map(take).collect();
            assert_eq!(own.len(), OF_ONE, "user {uid}");
        }
        drop(held);
        let of_one: Vec<Place> = (0..100).map(|_| Party::Namespace(1)).filter_map(take).collect();
        assert_eq!(of_one.len(), OF_ONE);
        drop(of_one);
        assert!(locked(&places.0).is_empty());
    }

    /// Holds daemon/pause.
    #[test]
    fn root_and_whom_the_configuration_names_may_tell_of_containers() {
        let shared = Shared::default();
        let other = sys::euid() + 7;
        assert_eq!([0, sys::euid(), other].map(|uid| shared.is_bridge(uid)), [true, true, false]);
        shared.set_bridge(Some(other));
        assert_eq!([0, other, other + 1].map(|uid| shared.is_bridge(uid)), [true, true, false]);
        let one = r#"[{"cgroup":"/pods/a","namespace":"n","pod":"p","container":"c"}]"#;
        let list = || Containers::new(serde_json::from_str(one).unwrap()).0;
        assert!(shared.set_containers(other, list()));
        shared.set_bridge(Some(other));
        assert_eq!(shared.containers().len(), 1, "it is the same one");
        shared.set_bridge(None);
        assert_eq!(shared.containers().len(), 0, "what it has told counts no more");
        // Nor does a list that was under way.
        assert!(!shared.set_containers(other, list()));
        assert_eq!(shared.containers().len(), 0);
        assert!(shared.set_containers(sys::euid(), list()));
    }
}
