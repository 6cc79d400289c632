//! Processes that tests start and talk to.

use crate::time::{PATIENCE, eventually};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Starts a freshly written program. Retries while a child forked by another thread still has the file open for
/// writing.
pub fn spawn_fresh(command: &mut Command) -> Child {
    let mut child = None;
    eventually("the file is no longer open for writing", || {
        child = match command.spawn() {
            Err(why) if why.kind() == ErrorKind::ExecutableFileBusy => None,
            done => Some(done.unwrap()),
        };
        child.is_some()
    });
    child.unwrap()
}

/// A process that reads and answers in lines; killed on drop.
pub struct Player {
    /// The process.
    pub process: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Player {
    /// Starts it; its standard output must be piped.
    pub fn start(mut command: Command) -> Self {
        let mut process = command.spawn().unwrap();
        let (said, lines) = channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Self { stdin: process.stdin.take(), process, lines }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a line.
    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for the next line with `@word` in it and returns the rest; panics if its output ends before.
    pub fn hear(&mut self, word: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|e| panic!("did not say {word}: {e}"));
            // libtest may have written into the same line before.
            if let Some((_, rest)) = line.split_once(&format!("@{word}")) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) -> ExitStatus {
        let _ = self.process.kill();
        self.process.wait().unwrap()
    }

    /// Closes its standard input and waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        self.stdin = None;
        let mut status = None;
        eventually("it ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
