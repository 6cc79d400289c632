//! Programs that keep their address space locked, or serve files and never answer.

use cotenant_linux::FsRoot;
use cotenant_linux::sense::census::Census;
use cotenant_linux::sense::ends::Ends;
use cotenant_linux::sense::processes::{Follower, Target};
use cotenant_linux::sense::progress::Progress;
use cotenant_linux::sys;
use cotenant_model::Time;
use cotenant_testing::{Player, TempDir, eventually, pass};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const HOG: &str = "COTENANT_TEST_HOG";

/// Processes that share one address space, and its content.
const PROCESSES: usize = 40;
const BYTES: usize = 8 << 30;

/// The variable for the role of that program: two of its threads alternately change the protection of all of its
/// memory, for which the kernel holds the lock most of the time.
pub fn run_if_asked() {
    if std::env::var_os(HOG).is_none() {
        return;
    }
    let (kind, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, ptr::null_mut());
    // SAFETY: the mapping is this program's own, is only read, and is never unmapped. Clones wait on stacks of their
    // own.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let at = libc::mmap(none, BYTES, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0);
        if at == libc::MAP_FAILED {
            println!("@hogs");
            std::process::exit(0);
        }
        libc::madvise(at, BYTES, libc::MADV_NOHUGEPAGE);
        // All of it is the one page of zeros: it has page tables without using memory.
        for page in (0..BYTES).step_by(4096) {
            ptr::read_volatile(at.cast::<u8>().add(page));
        }
        let pids: Vec<String> = (0..PROCESSES).map(|_| clone().to_string()).collect();
        let address = at as usize;
        for _ in 0..2 {
            std::thread::spawn(move || {
                for turn in 0_u64.. {
                    let rights = if turn % 2 == 0 { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
                    libc::mprotect(address as *mut _, BYTES, rights);
                }
            });
        }
        println!("@hogs {}", pids.join(" "));
    }
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(0);
}

/// A waiting process with the same address space.
unsafe fn clone() -> i32 {
    extern "C" fn wait(_: *mut libc::c_void) -> i32 {
        // SAFETY: the calls take plain numbers.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    let stack = Box::leak(vec![0_u8; 64 << 10].into_boxed_slice());
    // SAFETY: the stack is the process' own and stays.
    unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        libc::clone(wait, top, libc::CLONE_VM | libc::SIGCHLD, ptr::null_mut())
    }
}

/// However many processes keep theirs locked, and however often they are asked, that takes no longer than a few answers
/// may; what they were started with is known in the end.
/// Holds undo/pauses.
#[test]
fn who_keeps_its_address_space_locked_holds_nobody_up() {
    const ROUNDS: usize = 20;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(HOG, "").env("COTENANT", "off").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hog = Player::start(command);
    let pids: Vec<u32> = hog.hear("hogs").split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    if pids.is_empty() {
        return eprintln!("skipped: no program may map {} GiB here", BYTES >> 30);
    }
    let look = || {
        let mut census = Census::new(FsRoot::live());
        census.look().unwrap();
        census
    };
    let ask = |census: &Census| -> Vec<Option<bool>> {
        let residents = census.residents();
        pids.iter().map(|pid| census.has_opted_out(*pid, &residents[pid])).collect()
    };
    let mut took = Duration::ZERO;
    let mut late = 0;
    for _ in 0..ROUNDS {
        let census = look(); // without any answers yet
        pass(Duration::from_millis(50));
        let begin = Instant::now();
        late += ask(&census).iter().filter(|answer| answer.is_none()).count();
        took += begin.elapsed();
    }
    eprintln!("asking {PROCESSES} processes {ROUNDS} times took {took:?}, {late} answers were late");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let census = look();
    eventually("all are known", || ask(&census).iter().all(|answer| *answer == Some(true)));
    assert!(hog.end().success());
}

/// A file server that stopped answering, as any user may have one in their own namespace.
const SERVER: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
folder = sys.argv[1].encode()
try:
    fd = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if libc.mount(b"t", folder, b"fuse", 0, data):
        raise OSError(ctypes.get_errno(), "mount")
except OSError as why:
    print("@held", why, flush=True)
    sys.exit()
stop, go_on = os.pipe()
server = os.fork()
if server == 0:
    os.close(go_on)
    answers = True
    while True:
        asked = os.read(fd, 1 << 20)
        _, op, unique, node = struct.unpack("<IIQQ", asked[:24])
        mode = lambda node: 0o40755 if node == 1 else 0o100644
        of = lambda node: struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode(node), 1, 0, 0, 0, 4096, 0)
        if op == 26:
            answer = struct.pack("<IIIIHHIIHHI", 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, 0) + bytes(28)
        elif op == 1:
            answer = struct.pack("<4QII", 2, 0, 0, 0, 0, 0) + of(2)
        elif op in (14, 27):
            answer = struct.pack("<QII", 7, 0, 0)
            os.write(fd, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
            os.read(stop, 1)
            sys.exit()
        else:
            answer = b""
        os.write(fd, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
held = os.open(folder + b"/" + sys.argv[2].encode(), os.O_RDONLY)
os.close(fd)
libc.umount2(folder, 2)
print("@held", held, flush=True)
sys.stdin.readline()
os.kill(server, 9)
os._exit(0)
"#;

/// A file server that has stopped answering, and holds its file of that name open; `None`, said aloud, without one.
fn server(folder: &TempDir, name: &str) -> Option<(Player, u32)> {
    let mut command = Command::new("unshare");
    command.args(if sys::euid() == 0 { &["-m"][..] } else { &["-rm"] });
    command.args(["--propagation", "private", "python3", "-c", SERVER]).arg(folder.path()).arg(name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let mut server = Player::start(command);
    let held = server.hear("held");
    let number = held.parse().inspect_err(|_| eprintln!("skipped: no file system can be served here: {held}"));
    Some((server, number.ok()?))
}

/// The result of what may never come back.
fn eventual<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(work()));
    let mut result = None;
    eventually("it is known", || {
        result = told.try_recv().ok();
        result.is_some()
    });
    result.unwrap()
}

/// Promise daemon/file-servers: A user's file server that does not answer holds up no sample and no end of Cotenant.
/// What may be such a file is looked at as the kernel knows it; who asks the server waits, and cannot be killed.
#[test]
fn a_server_of_files_that_does_not_answer_is_not_asked() {
    let folder = TempDir::new("fuse");
    let Some((mut server, number)) = server(&folder, "file") else { return };
    let path = format!("/proc/{}/fd/{number}", server.pid());
    let answer = eventual(move || sys::identity(Path::new(&path)).map(|of| (of.is_regular(), of.uid)));
    assert_eq!(answer.unwrap(), (true, 0));
    assert!(server.end().success());
}

/// Its file has the name of a report's memory, as one has of which the folder was unmounted.
/// Holds daemon/file-servers.
#[test]
fn what_such_a_server_calls_a_report_is_not_read() {
    let folder = TempDir::new("fuse-report");
    let Some((mut server, _)) = server(&folder, "memfd:cotenant-progress (deleted)") else { return };
    let pid = server.pid();
    let refused = eventual(move || {
        let mut follower = Follower::new(&FsRoot::live(), vec![Target::Pids(vec![pid])], None);
        follower.update(Time::default(), &[], &[], &Ends::new().unwrap());
        let mut progress = Progress::default();
        // At the first look it may be a report that is being made.
        (0..2).for_each(|second| progress.follow(follower.processes(), Time(second * 1_000_000_000)));
        progress.refused().cloned().collect::<Vec<_>>()
    });
    assert!(refused.iter().any(|remark| remark.contains("is not read")), "{refused:?}");
    assert!(server.end().success());
}
