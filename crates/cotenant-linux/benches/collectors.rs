//! What finding out which memory is accessed costs, and how right it is: rate against cost against accuracy, on a program of 1 GB, and of 8 GB where
//! that much is free, that writes to pages at random in a quarter of its memory. One JSON object per line.
//!
//! Windows with and without collection alternate. `ratio` is the program's writes per second of its own CPU time with collection over those without
//! (geometric mean of the pairs; lowest and highest beside it): what other programs take from it cancels out. `cpu_percent` is what the collector itself
//! took. `share` is the part of what was found that lies in the quarter that is written to (the truth is 1), `pages` how many pages were found over how
//! many were written to.

#[path = "../../../benches/report.rs"]
mod report;

use cotenant_core::NodeId;
use cotenant_core::areas::Area;
use cotenant_linux::memory::{Accessed, Collector, areas_of};
use cotenant_linux::{FsRoot, sys};
use report::Report;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = "COTENANT_BENCH_PROGRAM";
const PAGE: usize = 4096;
/// Of how many pages one is written to.
const PART: usize = 4;
/// How long accesses gather between clearing and reading.
const WINDOW: Duration = Duration::from_millis(50);

fn main() {
    if let Ok(spec) = std::env::var(PROGRAM) {
        let (bytes, huge) = spec.split_once(' ').unwrap();
        program(bytes.parse().unwrap(), huge == "huge");
    }
    let pairs = std::env::var("COTENANT_BENCH_PAIRS").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let mut rows = Report::new("collectors");
    for (gb, pages) in [(1, "small"), (1, "huge"), (8, "small")] {
        if free_gb() < 2 * gb {
            eprintln!("skipped: {gb} GB, of which twice as much must be free: {} GB are", free_gb());
            continue;
        }
        let mut program = Program::start(gb << 30, pages);
        for (how, rate) in
            [("placement", 1.0), ("accessed", 20.0), ("accessed", 5.0), ("accessed", 1.0), ("accessed", 0.3)]
        {
            // The larger, the slower one look: 200 ms and more for 8 GB.
            if gb == 8 && rate > 1.0 {
                continue;
            }
            rows.row(measure(&mut program, how, rate, pairs, json!({"gb": gb, "page_size": pages})));
        }
    }
}

fn free_gb() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<usize>().ok()).map_or(0, |kb| kb >> 20)
}

/// One way and rate.
fn measure(program: &mut Program, how: &str, rate: f64, pairs: usize, mut row: Value) -> Value {
    let fs = FsRoot::live();
    let every = Duration::from_secs_f64(1.0 / rate);
    let length = Duration::from_secs(2).max(every * 2);
    let mut accessed = Accessed::new(&fs).expect("accessed bits");
    let (mut ratios, mut looks, mut spent) = (Vec::new(), 0_u32, Duration::ZERO);
    let (mut found, mut in_part, mut truth, mut longest) = (0.0, 0.0, 0.0, Duration::ZERO);
    for _ in 0..pairs {
        let without = program.speed(|_| std::thread::sleep(length));
        let with = program.speed(|program| {
            let begin = Instant::now();
            while begin.elapsed() < length {
                let (look, cpu) = (Instant::now(), sys::thread_cpu_time());
                if how == "placement" {
                    areas_of(&fs, program.pid).unwrap();
                    spent += sys::thread_cpu_time().saturating_sub(cpu);
                } else {
                    let before = program.writes().0;
                    let clearing = Instant::now();
                    accessed.begin(program.pid).unwrap();
                    longest = longest.max(clearing.elapsed());
                    let gap = sys::thread_cpu_time();
                    std::thread::sleep(WINDOW.min(every));
                    let idle = sys::thread_cpu_time().saturating_sub(gap);
                    let touched = program.touched(before);
                    let by_area = accessed.end(program.pid, &program.areas).unwrap();
                    spent += sys::thread_cpu_time().saturating_sub(cpu + idle);
                    let part = by_area.get(&NodeId(1)).copied().unwrap_or(0.0);
                    let all: f64 = by_area.values().sum();
                    (found, in_part, truth) = (found + all, in_part + part, truth + touched);
                }
                looks += 1;
                std::thread::sleep(every.saturating_sub(look.elapsed()));
            }
        });
        ratios.push(with / without);
    }
    let time = length.as_secs_f64() * pairs as f64;
    let mean = (ratios.iter().map(|r: &f64| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let more = json!({
        "how": how, "rate_hz": rate, "looks": looks, "pairs": pairs,
        "ms_per_look": spent.as_secs_f64() * 1e3 / f64::from(looks),
        "cpu_percent": spent.as_secs_f64() / time * 100.0,
        "ratio": mean,
        "lowest": ratios.iter().copied().fold(f64::INFINITY, f64::min),
        "highest": ratios.iter().copied().fold(0.0, f64::max),
        "share": if found > 0.0 { json!(in_part / found) } else { Value::Null },
        "pages": if truth > 0.0 { json!(in_part / truth) } else { Value::Null },
        "longest_clearing_ms": longest.as_secs_f64() * 1e3,
        "load": load.split(' ').next(),
    });
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    row
}

/// The program, killed on drop.
struct Program {
    child: Child,
    pid: u32,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Its areas as if the part that is written to were alone on node 1.
    areas: Vec<Area>,
    part_pages: f64,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    fn start(bytes: usize, pages: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(PROGRAM, format!("{bytes} {pages}")).stdin(Stdio::piped()).stdout(Stdio::piped());
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

    /// Writes so far, and CPU time in nanoseconds.
    fn writes(&mut self) -> (u64, u64) {
        self.stdin.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let (writes, cpu) = line.trim().split_once(' ').unwrap();
        (writes.parse().unwrap(), cpu.parse().unwrap())
    }

    /// Pages that so many random writes since `before` have reached.
    fn touched(&mut self, before: u64) -> f64 {
        let writes = (self.writes().0 - before) as f64;
        self.part_pages * -(-writes / self.part_pages).exp_m1()
    }

    /// Writes per second of CPU time meanwhile.
    fn speed(&mut self, meanwhile: impl FnOnce(&mut Self)) -> f64 {
        let before = self.writes();
        meanwhile(self);
        let after = self.writes();
        (after.0 - before.0) as f64 / ((after.1 - before.1) as f64 / 1e9)
    }
}

/// An area of its own, all of it resident. `PROT_NONE` pages around it keep the kernel from joining it to others.
fn area(bytes: usize, huge: bool) -> *mut u8 {
    let guard = 2 << 20;
    let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: a new mapping that nobody else knows; the advice and the protection are for its inner part, whose start is a multiple of a huge page.
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

fn program(bytes: usize, huge: bool) -> ! {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    static CPU: AtomicU64 = AtomicU64::new(0);
    // SAFETY: takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let part = bytes / PART;
    let (hot, _cold) = (area(part, huge) as usize, area(bytes - part, huge) as usize);
    std::thread::spawn(move || {
        let (pages, mut x) = ((part / PAGE) as u64, 1_u64);
        loop {
            for _ in 0..10_000 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let page = ((u128::from(x) * u128::from(pages)) >> 64) as usize;
                // SAFETY: inside the area of `part` bytes, which only this thread uses.
                unsafe {
                    let at = (hot as *mut u8).add(page * PAGE);
                    at.write_volatile(at.read_volatile().wrapping_add(1));
                }
            }
            CPU.store(sys::thread_cpu_time().as_nanos() as u64, Ordering::Relaxed);
            WRITES.fetch_add(10_000, Ordering::Relaxed);
        }
    });
    println!("{hot:x}");
    for _ in std::io::stdin().lines() {
        println!("{} {}", WRITES.load(Ordering::Relaxed), CPU.load(Ordering::Relaxed));
    }
    std::process::exit(0)
}
