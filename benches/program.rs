//! Shared by benchmarks of what watching costs: a program of many threads, of which some run. It is a copy of the
//! benchmark itself.
//!
//! A thread that "runs" wakes up in each interval and works for some 20 µs: on few CPUs a thousand could not do more.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a thread wakes up, and how often the watchers look.
pub const INTERVAL: Duration = Duration::from_millis(100);
const WORK: Duration = Duration::from_micros(20);

/// Tells a copy of the benchmark to be the program: its threads, and how many of them run.
const PROGRAM: &str = "COTENANT_BENCH_PROGRAM";

/// A process, killed on drop.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program.
pub fn start(threads: usize, running: usize) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this benchmark's own file"));
    command.env(PROGRAM, format!("{threads} {running}")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Running(command.spawn().expect("a copy of this benchmark starts"));
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().expect("piped")).read_line(&mut line).expect("it speaks");
    assert_eq!(line, "ready\n");
    program
}

/// Where this process is the copy: runs as the program, and ends with its standard input.
pub fn run_if_asked() {
    let Ok(spec) = std::env::var(PROGRAM) else { return };
    let (threads, running) = spec.split_once(' ').expect("set by this benchmark");
    let [threads, running] = [threads, running].map(|n| n.parse::<usize>().expect("set by this benchmark"));
    for i in 0..threads - 1 {
        let thread = std::thread::Builder::new().stack_size(32 << 10).spawn(move || {
            if i >= running {
                loop {
                    std::thread::park();
                }
            }
            // Out of step with each other, as real threads are.
            std::thread::sleep(INTERVAL * (i % 100) as u32 / 100);
            loop {
                let begin = Instant::now();
                while begin.elapsed() < WORK {
                    std::hint::spin_loop();
                }
                std::thread::sleep(INTERVAL);
            }
        });
        thread.expect("a thread");
    }
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}
