//! A program that keeps its address space locked.

use cotenant_linux::FsRoot;
use cotenant_linux::sense::census::Census;
use cotenant_testing::{Player, eventually, pass};
use std::process::{Command, Stdio};
use std::ptr;
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
