//! Other users against the daemon: what they keep from it, and what they do to its socket.

use crate::daemon::World;
use crate::world::{is_root, may_mount, skip};
use cotenant_model::testing::malformed;
use cotenant_testing::{eventually, pass};
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A user without other rights.
const NOBODY: u32 = 65_534;

/// The first of the users that only ask.
const OTHERS: u32 = 700_000;

/// Serves a file that nobody opens before the file `go` is there: whoever tries waits. The file `asked` says that
/// somebody does.
const SERVER: &str = r#"
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(1, 9)
at = lambda name: os.path.join(sys.argv[1], name)
def tell(name, text=""):
    with open(at(name + ".new"), "w") as file:
        file.write(text)
    os.rename(at(name + ".new"), at(name))
try:
    fd = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"t", at("folder").encode(), b"fuse", 0, data):
        raise OSError(ctypes.get_errno(), "mount")
except OSError as why:
    tell("served", str(why))
    sys.exit()
tell("served")
mode = lambda node: 0o40755 if node == 1 else 0o100644
of = lambda node: struct.pack("<6Q10I", node, 4096, 0, 0, 0, 0, 0, 0, 0, mode(node), 1, 0, 0, 0, 4096, 0)
while True:
    asked = os.read(fd, 1 << 20)
    _, op, unique, node = struct.unpack("<IIQQ", asked[:24])
    answer = b""
    if op == 26:
        answer = struct.pack("<IIIIHHIIHHI", 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, 0) + bytes(28)
    elif op == 1:
        answer = struct.pack("<4QII", 2, 0, 3600, 3600, 0, 0) + of(2)
    elif op == 3:
        answer = struct.pack("<QII", 3600, 0, 0) + of(node)
    elif op == 14:
        tell("asked")
        while not os.path.exists(at("go")):
            time.sleep(0.01)
        answer = struct.pack("<QII", 7, 1, 0)
    elif op == 15:
        answer = b"A=b\0"[struct.unpack("<Q", asked[48:56])[0]:]
    elif op in (2, 36, 42):
        continue
    os.write(fd, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
"#;

/// Whether a process has opted out is known late where it keeps its address space locked. Meanwhile it is not managed,
/// and those of other users are. Here the answer waits for a file server in its place, for as long as the test wants.
/// Holds undo/pauses.
#[test]
fn what_is_known_late_is_managed_once_it_is_known() {
    if !may_mount() {
        return skip("what the daemon sees of a process cannot be replaced without mounts of its own");
    }
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip("there is no python3");
    }
    let mut world = World::new("daemon-late");
    fs::set_permissions(world.path(""), Permissions::from_mode(0o711)).unwrap();
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    let late = world.start_as(Some(NOBODY), "late", &[]);
    fs::write(world.path("server.py"), SERVER).unwrap();
    fs::create_dir(world.path("folder")).unwrap();
    let first = format!(
        "python3 \"$STATE/server.py\" \"$STATE\" &\nuntil test -e \"$STATE/served\"; do sleep 0.02; done\n\
         test -s \"$STATE/served\" || mount --bind \"$STATE/folder/file\" /proc/{late}/environ || exit 99"
    );
    let daemon = world.daemon_after(&first);
    let served = fs::read_to_string(world.path("served")).unwrap();
    if !served.is_empty() {
        return skip(&format!("no file system can be served here: {served}"));
    }
    eventually("somebody asks whether it has opted out", || world.path("asked").exists());
    world.start("server", &[]);
    eventually("another user's is managed", || world.services().contains(&"server".to_owned()));
    assert_eq!(world.services(), ["server"]);
    fs::write(world.path("go"), "").unwrap();
    eventually("it is managed, too", || world.services() == ["late", "server"]);
    let (said, code) = daemon.terminate();
    assert_eq!(code, Some(0), "{said}");
}

/// This thread is that user from now on, and no other one of this process.
fn become_user(user: u32) {
    // SAFETY: takes plain numbers. Unlike the function of the C library, the call is about this thread alone.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, user, u32::MAX) };
    assert_eq!(done, 0);
}

/// Ends the other threads, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks for the status; whether there was an answer.
fn is_answered(socket: &Path) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"{\"version\":1,\"verb\":\"status\"}\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|text| text.starts_with("{\"ok\":"))
}

/// Forty clients of as many users ask without end and are refused, too. A user with a service, the bridge's user and
/// root are answered each time.
/// Holds daemon/hostile.
#[test]
fn those_with_places_of_their_own_are_answered_while_others_ask_without_end() {
    const TIMES: usize = 10;
    if !is_root() {
        return skip("becoming other users takes root");
    }
    let mut world = World::new("daemon-places");
    fs::set_permissions(world.path(""), Permissions::from_mode(0o711)).unwrap();
    let bridge = OTHERS - 1;
    world.configure(&format!("bridge = \"{bridge}\"\n[[rule]]\nname = \"all\"\nmatch = {{ command = \"$DIR/*\" }}\n"));
    world.start_as(Some(NOBODY), "theirs", &[]);
    let daemon = world.daemon();
    eventually("they have a service", || world.services() == ["theirs"]);
    let (socket, over, refused) = (world.socket(), AtomicBool::new(false), AtomicU64::new(0));
    let answered = thread::scope(|scope| {
        for user in OTHERS..OTHERS + 40 {
            let (socket, over, refused) = (&socket, &over, &refused);
            scope.spawn(move || {
                become_user(user);
                while !over.load(Ordering::Relaxed) {
                    refused.fetch_add((!is_answered(socket)).into(), Ordering::Relaxed);
                }
            });
        }
        let _ends = Ends(&over);
        eventually("others are refused", || refused.load(Ordering::Relaxed) > 1_000);
        let answers = |user: u32| {
            let socket = &socket;
            let asks = move || {
                become_user(user);
                let once = |_: &usize| {
                    pass(Duration::from_millis(100)); // each request holds one of its four places for 25 ms
                    is_answered(socket)
                };
                (0..TIMES).filter(once).count()
            };
            scope.spawn(asks).join().unwrap_or_default()
        };
        [NOBODY, bridge, 0].map(answers)
    });
    assert_eq!(answered, [TIMES; 3], "by user: with a service, the bridge's, root");
    assert_eq!(daemon.terminate().1, Some(0));
}

/// `cargo xtask full` sends 100,000 requests.
/// Holds daemon/hostile.
#[test]
fn whatever_is_sent_to_the_socket_the_daemon_goes_on() {
    let mut world = World::new("daemon-sent");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    world.start("server", &[]);
    let daemon = world.daemon();
    let container =
        "{\"cgroup\":\"/a/b\",\"namespace\":\"n\",\"pod\":\"p\",\"container\":\"c\",\"labels\":{\"a\":\"b\"}}";
    let good = ["status\"}", "pause\",\"service\":\"server\"}", "resume\",\"service\":null}", "node\"}"];
    let good = good.map(|rest| format!("{{\"version\":1,\"verb\":\"{rest}\n").into_bytes());
    let list = format!("{{\"version\":1,\"verb\":\"containers\",\"containers\":[{container}]}}\n").into_bytes();
    malformed::survives("the daemon's socket", &[&good[..], &[list]].concat(), 300, |request| {
        let mut stream = UnixStream::connect(world.socket()).unwrap();
        // It may be closed before the whole request is written, and before the answer is read.
        let _ = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let is_one = ["{\"ok\":", "{\"error\":"].iter().any(|begin| answer.starts_with(begin.as_bytes()));
        assert!(answer.is_empty() || is_one, "{}", answer.escape_ascii());
    });
    assert!(world.status().is_some());
    assert_eq!(daemon.terminate().1, Some(0));
}
