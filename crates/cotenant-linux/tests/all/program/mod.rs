//! A program to observe: this very binary, started again, with an action for each line of input.

pub mod orders;
mod reports;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

const MARK: &str = "COTENANT_TEST_PROGRAM";

/// A running program; killed on drop.
pub struct Program {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Program {
    /// Starts it with this number of threads, including the leader, and waits until all of them live.
    pub fn start(threads: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(MARK, threads.to_string()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((_, answer)) = line.split_once("answer: ") {
                    let _ = send.send(answer.to_owned());
                }
            }
        });
        let program = Self { child, stdin, answers };
        assert_eq!(program.answer(), "ready");
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a command, without waiting.
    pub fn tell(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").unwrap();
    }

    /// Makes one of its threads, not the leader, do it.
    pub fn tell_thread(&mut self, what: &str) {
        self.tell(&format!("thread {what}"));
    }

    /// Sends it a command and waits for the answer.
    pub fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.answer()
    }

    pub fn answer(&self) -> String {
        self.answers.recv_timeout(Duration::from_secs(300)).expect("the program answers")
    }

    /// The answer to the last command, if there is one yet.
    pub fn answered(&self) -> Option<String> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the program ended"),
        }
    }

    /// CPU time by its own count, microseconds.
    pub fn cpu_us(&mut self) -> u64 {
        self.ask("usage").parse().unwrap()
    }

    /// Kills it; it stays a zombie until this is dropped.
    pub fn kill_without_reaping(&self) {
        kill(self.pid());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a process.
pub fn kill(pid: u32) {
    // SAFETY: takes plain numbers; the pid is one of our own programs.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) }, 0);
}

/// The threads of a process, by listing them.
pub fn threads_of(pid: u32) -> BTreeSet<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    entries.map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// Waits until no more threads than these are left: one is joined shortly before the kernel removes it from the list.
fn await_joined(left: usize) {
    while threads_of(std::process::id()).len() > left {
        std::thread::yield_now();
    }
}

fn answer(text: impl std::fmt::Display) {
    println!("answer: {text}");
}

/// Commands for a thread other than the leader.
enum Job {
    Burn(Duration),
    Do(String),
}

struct Worker {
    jobs: Sender<Job>,
    handle: std::thread::JoinHandle<()>,
}

fn worker(done: Sender<()>) -> Worker {
    let (jobs, todo) = channel();
    let run = move || {
        for job in todo {
            match job {
                Job::Burn(time) => burn(time),
                Job::Do(what) => replace(&what),
            }
            let _ = done.send(());
        }
    };
    Worker { jobs, handle: std::thread::Builder::new().stack_size(64 << 10).spawn(run).unwrap() }
}

/// Uses the CPU for so long, by the thread's own clock.
fn burn(time: Duration) {
    let clock = || {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the one structure.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    };
    let end = clock() + time;
    while clock() < end {
        std::hint::spin_loop();
    }
}

/// Passes a byte to another thread and back, so many times. The other thread stays.
fn hand_over(times: usize) {
    let (mut from_us, mut to_it) = std::io::pipe().unwrap();
    let (mut from_it, mut to_us) = std::io::pipe().unwrap();
    std::thread::spawn(move || {
        let mut byte = [0];
        while from_us.read_exact(&mut byte).is_ok() && to_us.write_all(&byte).is_ok() {}
        std::thread::park();
    });
    let mut byte = [0];
    for _ in 0..times {
        to_it.write_all(&byte).unwrap();
        from_it.read_exact(&mut byte).unwrap();
    }
}

/// Becomes another program.
fn replace(what: &str) -> ! {
    let mut command = match what {
        "exec" => {
            let mut sleep = Command::new("sleep");
            sleep.arg("1000");
            sleep
        }
        "exec-busy" => {
            let mut sh = Command::new("sh");
            sh.args(["-c", "while :; do :; done"]);
            sh
        }
        other => panic!("unknown: {other}"),
    };
    panic!("{}", command.exec());
}

/// The next command; leaves standard input unlocked.
fn next_line() -> Option<String> {
    let mut line = String::new();
    let got = std::io::stdin().read_line(&mut line).ok()?;
    (got > 0).then(|| line.trim_end().to_owned())
}

/// Runs as the program, and ends with it, if this process was started as one.
pub fn run_if_asked() {
    if let Ok(threads) = std::env::var(MARK) {
        run(threads.parse().unwrap_or(1));
        std::process::exit(0);
    }
}

/// The program.
fn run(threads: usize) {
    // SAFETY: takes plain numbers. This program ends whenever its test does.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (done, finished) = channel();
    let mut workers: Vec<Worker> = (1..threads).map(|_| worker(done.clone())).collect();
    answer("ready");
    while let Some(line) = next_line() {
        let (what, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let number = || argument.parse::<usize>().unwrap();
        match what {
            "spawn" => workers.extend((0..number()).map(|_| worker(done.clone()))),
            "exit" => {
                let keep = workers.len() - number();
                for Worker { jobs, handle } in workers.drain(keep..) {
                    drop(jobs);
                    handle.join().unwrap();
                }
                await_joined(workers.len() + 1);
            }
            "churn" => {
                (0..number()).for_each(|_| std::thread::spawn(|| {}).join().unwrap());
                await_joined(workers.len() + 1);
            }
            "burn" => {
                let time = Duration::from_millis(number() as u64);
                for worker in &workers {
                    worker.jobs.send(Job::Burn(time)).unwrap();
                }
                burn(time);
                for _ in &workers {
                    finished.recv().unwrap();
                }
            }
            "hand-over" => hand_over(number()),
            "usage" => {
                // SAFETY: a zeroed rusage is a valid one, and the call fills it in.
                let usage = unsafe {
                    let mut usage: libc::rusage = std::mem::zeroed();
                    libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
                    usage
                };
                let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
                answer(us(usage.ru_utime) + us(usage.ru_stime));
                continue;
            }
            "child" => {
                answer(
                    Command::new("sleep")
                        .arg("1000")
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .spawn()
                        .unwrap()
                        .id(),
                );
                continue;
            }
            "orphan" => {
                let sh = ["-c", "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"];
                let output = Command::new("sh").args(sh).stdin(Stdio::null()).output().unwrap();
                answer(String::from_utf8(output.stdout).unwrap().trim());
                continue;
            }
            "units" => cotenant_rt::units(number() as u64),
            "units-of-thread" => {
                let units = number() as u64;
                std::thread::spawn(move || cotenant_rt::units(units)).join().unwrap();
            }
            "latency" => cotenant_rt::latency_ns(number() as u64),
            "mark" => cotenant_rt::mark(),
            "obey" => orders::obey(),
            "give-orders" => orders::give(number() as u32),
            "forge" => reports::forge(argument),
            "fork-and-report" => {
                answer(reports::fork(number() as u64));
                continue;
            }
            "end-child" => reports::end(number() as i32),
            "name" => std::fs::write("/proc/self/comm", argument).unwrap(),
            "real-time" => {
                // SAFETY: the parameter is read by the call only; 0 is this thread.
                let result = unsafe {
                    let parameter = libc::sched_param { sched_priority: 1 };
                    libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter)
                };
                answer(if result == 0 { "ok" } else { "refused" });
                continue;
            }
            "leave" => {
                // Commands must still be read.
                let worker = workers.remove(0);
                std::thread::spawn(move || {
                    while let Some(line) = next_line() {
                        let what = line.strip_prefix("thread ").unwrap().to_owned();
                        worker.jobs.send(Job::Do(what)).unwrap();
                    }
                });
                // SAFETY: ends this thread only; other threads use nothing on its stack.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            }
            "thread" => workers[0].jobs.send(Job::Do(argument.to_owned())).unwrap(),
            other => replace(other),
        }
        answer("ok");
    }
}
