//! A program controls the length of its command line in the kernel.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the program that is attached to: this very binary.
const ROLE: &str = "COTENANT_TEST_ENLARGED";

/// Bytes of its claimed command line. All are zero: as many empty arguments.
const ENLARGED: usize = 100 << 20;

/// KiB of address space that Cotenant may have; one string for each argument took 2.6 GB.
const MOST_KIB: usize = 1 << 20;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `struct prctl_mm_map` of `linux/prctl.h`.
#[repr(C)]
struct Map {
    code: [u64; 2],
    data: [u64; 2],
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arguments: [u64; 2],
    environment: [u64; 2],
    auxv: u64,
    auxv_size: u32,
    exe_fd: u32,
}

/// Enlarges the command line; whether the kernel allows that (`CONFIG_CHECKPOINT_RESTORE`).
fn enlarge() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // As proc_pid_stat(5) counts them.
    let field = |number: usize| fields[number - 3].trim().parse().unwrap();
    // SAFETY: requests new memory at any address, reads the end of the heap, and passes a structure of the given size.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(std::ptr::null_mut(), ENLARGED, rights, kind, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let map = Map {
            code: [field(26), field(27)],
            data: [field(45), field(46)],
            start_brk: field(47),
            brk: libc::sbrk(0) as u64,
            start_stack: field(28),
            arguments: [at as u64, at as u64 + ENLARGED as u64],
            environment: [field(50), field(51)],
            auxv: 0,
            auxv_size: 0,
            exe_fd: u32::MAX,
        };
        libc::prctl(libc::PR_SET_MM, libc::PR_SET_MM_MAP, &raw const map, size_of::<Map>(), 0) == 0
    }
}

#[test]
fn an_enlarged_command_line_takes_no_memory() {
    if std::env::var_os(ROLE).is_some() {
        println!("\n@{}", enlarge());
        loop {
            std::thread::park();
        }
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "enlarged::an_enlarged_command_line_takes_no_memory"]).env(ROLE, "");
    let mut target = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(target.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    if said.find_map(|line| line.strip_prefix('@').map(str::to_owned)).unwrap() != "true" {
        eprintln!("skipped: this kernel does not let programs move their command line");
        return;
    }
    let pid = target.0.id().to_string();
    let recording = std::env::temp_dir().join(format!("cotenant-enlarged-{pid}"));
    let limited = format!("ulimit -v {MOST_KIB}; exec \"$0\" \"$@\"");
    let mut attach = Command::new("sh");
    attach.args(["-c", &limited, env!("CARGO_BIN_EXE_cotenant"), "attach", "-q", "--mode", "observe"]);
    attach.args(["-p", &pid, "--record"]).arg(&recording).env("XDG_CONFIG_HOME", "/proc/nonexistent");
    let mut attach = Killed(attach.spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut lengths = Vec::new();
    // Its head, and then rows: there is something to manage.
    while lengths.len() < 2 {
        lengths.extend(fs::metadata(&recording).ok().map(|meta| meta.len()).filter(|bytes| *bytes > 0));
        lengths.dedup();
        assert!(attach.0.try_wait().unwrap().is_none(), "it runs as long as its target");
        assert!(Instant::now() < deadline, "it attaches");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(target);
    assert_eq!(attach.0.wait().unwrap().code(), Some(0));
    fs::remove_file(recording).unwrap();
}
