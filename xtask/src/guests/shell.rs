//! A console in a guest, for people; and the scenario that uses it as they do.

use super::console::emulator;
use super::machine::Guest;
use super::parts::Parts;
use anyhow::Result;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A guest that is silent for so long hangs, however busy the host is.
const LIMIT: Duration = Duration::from_secs(180);

fn command(guest: &Guest, parts: &Parts, initrd: &Path) -> Command {
    let mut command = emulator(guest, parts, initrd, "quiet GUEST_SHELL=1");
    command.args(["-serial", "mon:stdio"]);
    command
}

/// Boots a guest to a shell on this terminal.
///
/// # Errors
/// The emulator cannot be started.
pub fn interactive(guest: &Guest, parts: &Parts, initrd: &Path) -> Result<()> {
    command(guest, parts, initrd).status()?;
    Ok(())
}

/// The scenario: on a terminal, reads how to leave, types a command, sees its output, leaves. `Ok(Some)`: the reason if
/// it was skipped.
///
/// # Errors
/// The missing event, and the output instead.
pub fn try_out(guest: &Guest, parts: &Parts, initrd: &Path) -> Result<Option<String>, String> {
    let emulator = command(guest, parts, initrd);
    let words = std::iter::once(emulator.get_program()).chain(emulator.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    // It gives the emulator a terminal of its own.
    let child = Command::new("script")
        .args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Ok(Some("there is no script(1); apt-get install bsdutils".to_owned()));
        }
        Err(e) => return Err(format!("script(1) does not start: {e}")),
    };
    let outcome = talk(&mut child);
    if outcome.is_err() {
        let _ = child.kill();
    }
    match child.wait() {
        Ok(status) if status.success() => outcome.map(|()| None),
        status => outcome.and(Err(format!("the emulator ended with {status:?}"))),
    }
}

fn talk(child: &mut Child) -> Result<(), String> {
    let (Some(mut output), Some(mut input)) = (child.stdout.take(), child.stdin.take()) else {
        return Err("there are no pipes".to_owned());
    };
    let (sender, chunks) = mpsc::channel();
    std::thread::spawn(move || {
        let mut chunk = [0; 1024];
        while let Ok(n @ 1..) = output.read(&mut chunk) {
            if sender.send(String::from_utf8_lossy(&chunk[..n]).into_owned()).is_err() {
                break;
            }
        }
    });
    let mut write = |line: &str| input.write_all(line.as_bytes()).map_err(|e| format!("cannot type: {e}"));
    let mut console = Console { chunks, unread: String::new() };
    console.expect("'exit' ends the guest")?;
    console.expect("# ")?;
    write("echo $((6 * 7)) is the answer\n")?;
    console.expect("42 is the answer")?;
    console.expect("# ")?;
    write("exit\n")?;
    console.expect_end()
}

/// The guest's output, and its unread part.
struct Console {
    chunks: Receiver<String>,
    unread: String,
}

impl Console {
    /// Reads up to these words.
    fn expect(&mut self, what: &str) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(at) = self.unread.find(what) {
                self.unread.drain(..at + what.len());
                return Ok(());
            }
            match self.chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(chunk) => self.unread += &chunk,
                Err(_) => return Err(format!("waited in vain for {what:?}: {}", self.unread)),
            }
        }
    }

    fn expect_end(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(chunk) => self.unread += &chunk,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("'exit' did not end the guest: {}", self.unread));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_one_piece_is_read_in_parts() {
        let (sender, chunks) = mpsc::channel();
        let mut console = Console { chunks, unread: String::new() };
        sender.send("'exit' ends the guest\n/ # ".to_owned()).unwrap();
        drop(sender);
        assert_eq!(console.expect("ends the guest"), Ok(()));
        assert_eq!(console.expect("# "), Ok(()));
        assert!(console.expect("# ").is_err());
        assert_eq!(console.expect_end(), Ok(()));
    }
}
