//! Commands that print a number.

use super::error::FetchError;
use super::stop::Stop;
use crate::sys;
use crate::sys::launch;
use cotenant_model::metric::number;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// Longer output is not a number, bytes.
const MOST: usize = 64 << 10;

/// Time for a killed command to disappear.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the command and prints its exit code in its last line, because managing a program reaps all children of this
/// process, and the exit code would be lost.
const WRAPPER: &str = r#"sh -c "$1"; printf '\n%d' "$?""#;

/// A command run for each reading.
#[derive(Debug)]
pub struct Command {
    text: String,
    timeout: Duration,
}

impl Command {
    pub fn new(text: &str, timeout: Duration) -> Self {
        Self { text: text.to_owned(), timeout }
    }

    /// Runs it to its end, or kills it with its process group.
    pub fn fetch(&self, stop: &Stop) -> Result<f64, FetchError> {
        let output = Running::start(&self.text)?.output(self.timeout, stop)?;
        let output = String::from_utf8_lossy(&output);
        match output.rsplit_once('\n') {
            Some((printed, "0")) => Ok(number(printed)?),
            Some((_, code)) if !code.is_empty() => Err(FetchError::Failed(code.to_owned())),
            _ => Err(FetchError::Failed("unknown".to_owned())), // the shell was killed
        }
    }
}

/// A running command; killed on drop, with its process group.
struct Running {
    child: Child,
    stdout: ChildStdout,
    /// Absent before Linux 5.3.
    pidfd: Option<OwnedFd>,
    /// Whether its output is complete, so that it will soon end.
    done: bool,
}

impl Running {
    fn start(text: &str) -> io::Result<Self> {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", WRAPPER, "sh", text]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        launch::as_from_outside(&mut command);
        // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
        unsafe {
            command.pre_exec(|| sys::set_parent_death_signal(libc::SIGKILL));
        }
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let pidfd = sys::pidfd_open(child.id()).ok();
        let running = Self { child, stdout, pidfd, done: false };
        sys::set_nonblocking(&running.stdout)?;
        Ok(running)
    }

    /// All its output until its end; output of remaining children is not awaited.
    fn output(mut self, timeout: Duration, stop: &Stop) -> Result<Vec<u8>, FetchError> {
        let deadline = Instant::now() + timeout;
        let mut output = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(FetchError::Slow(timeout));
            }
            let ends = self.pidfd.as_ref().map(AsFd::as_fd);
            let waited = [Some(stop.as_fd()), ends, Some(self.stdout.as_fd())];
            let [stopped, ended, _] = sys::poll_readable(waited, left)?;
            if stopped {
                return Err(FetchError::Stopped);
            }
            // Read after its end, so that it is complete.
            if self.read(&mut output)? || ended {
                self.done = output.len() <= MOST;
                return if self.done { Ok(output) } else { Err(FetchError::Huge(MOST >> 10)) };
            }
            if output.len() > MOST {
                return Err(FetchError::Huge(MOST >> 10));
            }
        }
    }

    /// Reads available output; true at the end.
    fn read(&mut self, output: &mut Vec<u8>) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        while output.len() <= MOST {
            match self.stdout.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(got) => output.extend_from_slice(&buffer[..got]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(false)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = |fd: &OwnedFd, within| sys::poll_readable([Some(fd.as_fd())], within).is_ok_and(|[ended]| ended);
        let Some(pidfd) = &self.pidfd else {
            // It may have been reaped, and its number reused, before it was opened: only a child of ours is killed.
            if matches!(self.child.try_wait(), Ok(None)) {
                let _ = sys::kill_group(self.child.id());
                let _ = self.child.wait();
            }
            return;
        };
        // Until the leader is reaped, the number of the group is not reused.
        if !ended(pidfd, if self.done { GRACE } else { Duration::ZERO }) {
            let _ = sys::kill_group(self.child.id());
        }
        if ended(pidfd, GRACE) {
            sys::reap_pidfd(pidfd); // unless already reaped
        }
    }
}
