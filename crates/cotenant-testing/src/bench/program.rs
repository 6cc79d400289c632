//! Programs to be watched, each of them a copy of the benchmark itself: one with many threads, of which some run.
//!
//! A thread that "runs" wakes up in each interval and works for some 20 µs: a thousand of them could not do more on
//! few CPUs.
//!
//! Or a crowd, many processes of sleeping threads in which new ones are born all the time; or a process that starts
//! short ones.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Interval of a thread's wakeups, and of the watchers' looks.
pub const INTERVAL: Duration = Duration::from_millis(100);
const WORK: Duration = Duration::from_micros(20);

/// The number of processes of a crowd. Each has ten threads, and 400 threads are born in a crowd each second.
pub const CROWD: u32 = 200;
const MEMBER: usize = 10;
const BIRTHS_PER_S: u32 = 400;

/// Kinds of new processes and threads in a crowd.
pub const BIRTHS: [&str; 4] = ["nobody", "threads for 50 ms", "threads for 5 s", "processes for 5 s"];

/// The variable that turns a copy of the benchmark into the program: the number of threads and of running ones; or
/// `crowd` and the births; or `births` and the number of processes a minute.
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
    copy(&format!("{threads} {running}"))
}

/// Starts a crowd.
pub fn start_crowd(births: &str) -> Running {
    copy(&format!("crowd {births}"))
}

/// Starts the program by another name of the benchmark's file.
pub fn start_by_name(file: &Path, threads: usize, running: usize) -> Running {
    copy_of(file, &format!("{threads} {running}"))
}

/// Starts a program, by another name of the benchmark's file, that starts this many short processes a minute.
pub fn start_births(file: &Path, per_minute: u32) -> Running {
    copy_of(file, &format!("births {per_minute}"))
}

fn copy(spec: &str) -> Running {
    copy_of(&std::env::current_exe().expect("this benchmark's own file"), spec)
}

fn copy_of(file: &Path, spec: &str) -> Running {
    let mut command = Command::new(file);
    command.env(PROGRAM, spec).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Running(command.spawn().expect("a copy of this benchmark starts"));
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().expect("piped")).read_line(&mut line).expect("it speaks");
    assert_eq!(line, "ready\n");
    program
}

/// Runs as the program if this process is the copy, until its standard input ends. Call it first in `main`.
pub fn run_if_asked() {
    let Ok(spec) = std::env::var(PROGRAM) else { return };
    match spec.split_once(' ') {
        Some(("crowd", births)) => crowd(births),
        Some(("member", births)) => member(births),
        Some(("births", per_minute)) => short_ones(per_minute.parse().expect("set by this benchmark")),
        _ => {}
    }
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
    until_the_end();
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(32 << 10).spawn(work).expect("a thread");
}

/// Ends with its standard input.
fn until_the_end() -> ! {
    let _ = writeln!(std::io::stdout(), "ready"); // its starter may have ended
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

fn crowd(births: &str) -> ! {
    let spec = format!("member {births}");
    let mut members: VecDeque<Running> = (0..CROWD).map(|_| copy(&spec)).collect();
    if births == "processes for 5 s" {
        spawn(move || {
            let (begin, each) = (Instant::now(), Duration::from_secs(1) * MEMBER as u32 / BIRTHS_PER_S);
            for i in 1.. {
                std::thread::sleep((begin + each * i).saturating_duration_since(Instant::now()));
                members.pop_front();
                members.push_back(copy(&spec));
            }
        });
    } else {
        std::mem::forget(members); // they end when this process does
    }
    until_the_end();
}

fn member(births: &str) -> ! {
    let (life, stay) = match births {
        "threads for 50 ms" => (Some(Duration::from_millis(50)), MEMBER - 2),
        "threads for 5 s" => (Some(Duration::from_secs(5)), 0),
        _ => (None, MEMBER - 1),
    };
    for _ in 0..stay {
        spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    if let Some(life) = life {
        spawn(move || {
            let each = Duration::from_secs(1) * CROWD / BIRTHS_PER_S;
            // Out of step with each other.
            std::thread::sleep(each * (std::process::id() % CROWD) / CROWD);
            loop {
                spawn(move || std::thread::sleep(life));
                std::thread::sleep(each);
            }
        });
    }
    until_the_end();
}

fn short_ones(per_minute: u32) -> ! {
    spawn(move || {
        let (begin, each) = (Instant::now(), Duration::from_secs(60) / per_minute);
        for i in 1.. {
            std::thread::sleep((begin + each * i).saturating_duration_since(Instant::now()));
            let _ = Command::new("true").env_remove(PROGRAM).status();
        }
    });
    until_the_end();
}
