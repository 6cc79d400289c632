//! The control socket: one request and one answer a connection. The kernel says which user asks.

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

/// Bytes of a request; and of a list of containers, which only few may send.
const REQUEST: usize = 4 << 10;
const LIST: usize = 4 << 20;

/// How a list of containers begins.
const LISTS: &[u8] = b"{\"version\":1,\"verb\":\"containers\",";

/// Requests of one party at once, and of all those together that have no places of their own; of more, the latest are
/// closed.
const OF_ONE: usize = 4;
const AT_ONCE: usize = 16;

/// Bytes that its threads have for their stacks.
const STACK: usize = 256 << 10;

/// A request of those who may not do everything takes its place for as long as this, however soon it is answered: each
/// costs some CPU time.
const HELD: Duration = Duration::from_millis(25);

/// What the loop is asked to do, by whom, and where the answer goes.
pub(crate) struct Order {
    pub request: Request,
    /// The user who asks.
    pub uid: u32,
    pub answer: SyncSender<Result<String, String>>,
    /// Which one it is.
    id: u64,
}

/// What the daemon's threads have in common.
#[derive(Default)]
pub(crate) struct Shared {
    status: Mutex<Option<Arc<Status>>>,
    /// What the page shows besides.
    scene: Mutex<Option<Scene>>,
    machine: Mutex<Option<Arc<(Topology, MachineProfile)>>>,
    containers: Mutex<Arc<Containers>>,
    /// The user beside root who may tell of containers.
    bridge: Mutex<Option<u32>>,
    orders: Mutex<Vec<Order>>,
    changes: Mutex<Changes>,
    /// Whose users are.
    pub parties: Parties,
    /// How often something was asked.
    asked: AtomicU64,
    waker: Mutex<Option<PipeWriter>>,
}

impl Shared {
    /// How it stood a second ago at most; `None` before the first round.
    pub fn status(&self) -> Option<Arc<Status>> {
        locked(&self.status).clone()
    }

    pub fn set_status(&self, status: Status) {
        // Nobody looks at a history that is not served.
        if let Some(scene) = locked(&self.scene).as_mut() {
            if status.listen.is_some() { scene.add(&status) } else { scene.clear() }
        }
        *locked(&self.status) = Some(Arc::new(status));
    }

    /// The machine that is managed from now on.
    pub fn set_machine(&self, topology: &Topology, profile: &MachineProfile) {
        *locked(&self.machine) = Some(Arc::new((topology.clone(), profile.clone())));
        let mut scene = locked(&self.scene);
        // What was seen of it stays, as long as it is the same one.
        if scene.as_ref().is_none_or(|scene| *scene.topology() != *topology) {
            *scene = Some(Scene::new(topology));
        }
    }

    /// Something of the scene; `None` before the machine is known. The loop waits for it: take little.
    pub fn of_scene<T>(&self, take: impl FnOnce(&Scene) -> T) -> Option<T> {
        locked(&self.scene).as_ref().map(take)
    }

    /// This machine as a cluster wants to know it; `None` before the first round.
    fn node(&self) -> Option<Node> {
        let (status, machine) = (self.status()?, locked(&self.machine).clone()?);
        Some(Node::new(&status, &machine.0, &machine.1))
    }

    /// The containers of this machine as they were told last.
    pub fn containers(&self) -> Arc<Containers> {
        locked(&self.containers).clone()
    }

    /// Who may tell of containers from now on. What another user has told counts no more.
    pub fn set_bridge(&self, uid: Option<u32>) {
        let mut bridge = locked(&self.bridge);
        if std::mem::replace(&mut *bridge, uid) != uid {
            *locked(&self.containers) = Arc::default();
        }
    }

    /// Whether a user may tell of containers, and hear of all of them.
    fn is_bridge(&self, uid: u32) -> bool {
        may_all(uid) || *locked(&self.bridge) == Some(uid)
    }

    /// Takes the list of a user who may tell of containers still: it took a while to come.
    fn set_containers(&self, uid: u32, containers: Containers) -> bool {
        let bridge = locked(&self.bridge); // nobody else becomes the bridge meanwhile
        let may = may_all(uid) || *bridge == Some(uid);
        if may {
            *locked(&self.containers) = Arc::new(containers);
        }
        may
    }

    /// Who is called when there is something to do.
    pub fn set_waker(&self, waker: PipeWriter) {
        *locked(&self.waker) = Some(waker);
    }

    /// What was asked since the last time.
    pub fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut locked(&self.orders))
    }

    /// Whether a party has places of its own: root, the daemon's user, the bridge, and those with services.
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
            let _ = waker.write(&[0]); // a full pipe has called already
        }
        answered.recv_timeout(LOOP).unwrap_or_else(|_| {
            let mut orders = locked(&self.orders);
            let waiting = orders.len();
            orders.retain(|order| order.id != id);
            let taken = orders.len() == waiting;
            drop(orders);
            // Who is told that nothing was done can rely on it.
            if !taken {
                return Err("the daemon is busy; try again".to_owned());
            }
            let begun = |_| Err("the daemon has begun with it and is busy; see cotenant status".to_owned());
            answered.recv_timeout(LOOP).unwrap_or_else(begun)
        })
    }
}

/// A thread that panicked leaves nothing half done here.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The daemon's end of the socket: removed at the end.
pub(crate) struct Control {
    path: PathBuf,
    _lock: File,
}

impl Control {
    /// Listens. There is one daemon at a socket.
    ///
    /// # Errors
    /// Where another one runs, or the socket cannot be made.
    pub fn listen(path: PathBuf, shared: Arc<Shared>) -> Result<Self> {
        let folder = path.parent().context("the socket has no folder")?;
        let at = |why: io::Error| {
            let text = format!("{}: {why}; name another socket with --socket", path.display());
            if is_transient(&why) { anyhow!(text) } else { usage(text) }
        };
        // Folders that others use are theirs.
        let is_ours = !folder.exists() || default_state_dir().is_ok_and(|own| own == folder);
        secure_dir(folder).map_err(|why| {
            let text =
                format!("{}, the folder of the socket: {why}; or name another one with --socket", folder.display());
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
            fs::remove_file(&path).map_err(at)?; // of a daemon that was killed: nobody holds the lock
        }
        let listener = UnixListener::bind(&path).map_err(at)?;
        if sys::euid() == 0 {
            // Others may ask, and are told what is theirs.
            if is_ours {
                fs::set_permissions(folder, Permissions::from_mode(0o711)).map_err(at)?;
            }
            fs::set_permissions(&path, Permissions::from_mode(0o666)).map_err(at)?;
        }
        let places = Arc::new(Places::default());
        let listening = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    thread::sleep(Duration::from_millis(100)); // no descriptors are left
                    continue;
                };
                let Ok((uid, pid)) = sys::peer(stream.as_fd()) else { continue };
                let client = Client { uid, party: shared.parties.of_process(uid, pid) };
                if let Some(place) = places.take(client.party, || shared.is_expected(client.party)) {
                    let shared = shared.clone();
                    // Where no thread can be had, the place is free again.
                    let request = move || {
                        let begin = Instant::now();
                        let _ = serve(&stream, client, &shared); // who asked is gone
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

/// Whether something is used up that others may free: a service manager is to try again.
fn is_transient(why: &io::Error) -> bool {
    use libc::{EAGAIN, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC};
    matches!(why.raw_os_error(), Some(EAGAIN | EDQUOT | EIO | EMFILE | ENFILE | ENOMEM | ENOSPC))
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Who asks.
#[derive(Clone, Copy)]
struct Client {
    uid: u32,
    party: Party,
}

/// Who is served now: nobody keeps the others out.
#[derive(Default)]
struct Places(Mutex<BTreeMap<Party, Taken>>);

/// The places of one party.
#[derive(Default)]
struct Taken {
    own: usize,
    /// Of those that all share.
    shared: usize,
}

/// A place that is taken.
struct Place {
    places: Arc<Places>,
    party: Party,
    is_shared: bool,
}

impl Places {
    /// A place, unless there is none. Who `is_expected` needs none of those that all share.
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

/// A line, which has to be there in time as a whole. `lists` says whether it may be a list of containers.
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
