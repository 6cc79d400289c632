//! The observed program: it writes to random pages in a quarter of its memory.

use cotenant_linux::sense::memory::areas_of;
use cotenant_linux::{FsRoot, sys};
use cotenant_model::NodeId;
use cotenant_model::areas::Area;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

pub const PROGRAM: &str = "COTENANT_BENCH_PROGRAM";
const PAGE: usize = 4096;
/// One in this many pages is written.
const PART: usize = 4;
/// Writes counted together: tenths of a millisecond.
const BATCH: u64 = 1_000;

/// The program, killed on drop.
pub struct Program {
    child: Child,
    pub pid: u32,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Its areas, as if the written part were alone on node 1.
    pub areas: Vec<Area>,
    part_pages: f64,
}

/// Its progress.
#[derive(Clone, Copy)]
pub struct Progress {
    pub writes: u64,
    /// CPU time of all its threads, ns.
    pub cpu: u64,
    /// Its clock at the same time, ns.
    pub clock: u64,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    pub fn start(bytes: usize, pages: &str, threads: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(PROGRAM, format!("{bytes} {pages} {threads}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let part = u64::from_str_radix(line.trim(), 16).unwrap();
        let mut areas = areas_of(&FsRoot::live(), child.id()).unwrap();
        for area in &mut areas {
            let resident = area.resident();
            area.pages = vec![(NodeId(u32::from(area.start == part)), resident)];
        }
        assert!(areas.iter().any(|area| area.start == part), "the part that is written to is an area of its own");
        Self { pid: child.id(), child, stdin, stdout, areas, part_pages: (bytes / PART / PAGE) as f64 }
    }

    /// Its current progress.
    pub fn progress(&mut self) -> Progress {
        self.stdin.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [writes, cpu, clock] = numbers[..] else { panic!("{line}") };
        Progress { writes, cpu, clock }
    }

    /// Its resident pages.
    pub fn resident(&self) -> f64 {
        self.areas.iter().map(Area::resident).sum::<u64>() as f64
    }

    /// Fraction (0–1) of its memory that is really in huge pages: the kernel provides them as available.
    pub fn huge(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap_or_default();
        let kb = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<f64>().ok()).unwrap_or(f64::NAN)
        };
        kb("AnonHugePages:") / kb("Rss:")
    }

    /// Expected pages reached by the random writes since `before`.
    pub fn touched(&mut self, before: Progress) -> f64 {
        let writes = (self.progress().writes - before.writes) as f64;
        self.part_pages * -(-writes / self.part_pages).exp_m1()
    }
}

/// A fully resident area of its own. `PROT_NONE` pages around it keep the kernel from merging it with others.
fn area(bytes: usize, huge: bool) -> *mut u8 {
    let guard = 2 << 20;
    let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: a new mapping without other references; the advice and the protection are for its inner part, whose start
    // is a multiple of a huge page.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = libc::mmap(std::ptr::null_mut(), bytes + 2 * guard, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(all, libc::MAP_FAILED);
        let start = (all as usize).next_multiple_of(guard) as *mut u8;
        assert_eq!(libc::mprotect(start.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
        libc::madvise(start.cast(), bytes, advice);
        std::ptr::write_bytes(start, 1, bytes);
        start
    }
}

/// Runs as the program: `spec` is bytes, `small` or `huge` pages, and threads.
pub fn run(spec: &str) -> ! {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let [bytes, pages, threads] = spec.split(' ').collect::<Vec<_>>()[..] else { panic!("{spec}") };
    let (bytes, huge, threads): (usize, bool, u64) =
        (bytes.parse().unwrap(), pages == "huge", threads.parse().unwrap());
    sys::set_parent_death_signal(libc::SIGKILL).unwrap();
    let part = bytes / PART;
    let (hot, _cold) = (area(part, huge) as usize, area(bytes - part, huge) as usize);
    for thread in 1..=threads {
        std::thread::spawn(move || {
            let (pages, mut x) = ((part / PAGE) as u64, thread);
            loop {
                for _ in 0..BATCH {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let page = ((u128::from(x) * u128::from(pages)) >> 64) as usize;
                    // SAFETY: inside the area of `part` bytes, which stays mapped and is accessed by these threads
                    // only, always as atomics.
                    let at = unsafe { AtomicU8::from_ptr((hot as *mut u8).add(page * PAGE)) };
                    at.store(at.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                }
                WRITES.fetch_add(BATCH, Ordering::Relaxed);
            }
        });
    }
    let begin = Instant::now();
    println!("{hot:x}");
    for _ in std::io::stdin().lines() {
        let (writes, clock) = (WRITES.load(Ordering::Relaxed), begin.elapsed().as_nanos());
        println!("{writes} {} {clock}", sys::own_cpu_time().as_nanos());
    }
    std::process::exit(0)
}
