//! Starts a program like `nice` and `perf stat`: same terminal, same process group, and its exit code becomes ours.

use crate::sys;
use std::ffi::{OsString, c_int};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{Command, ExitStatus};

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No such file, here or in `PATH`.
    #[error("{}: command not found; check the name and PATH", .0.display())]
    NotFound(OsString),
    /// It exists, but is not executable.
    #[error("{}: cannot be executed: {why}; check its permissions and format", program.display())]
    NotExecutable {
        /// As given.
        program: OsString,
        /// The kernel's reason.
        why: io::Error,
    },
    /// No process could be made.
    #[error("no process for {}: {why}; see ulimit -u", program.display())]
    NoProcess {
        /// As given.
        program: OsString,
        /// The kernel's reason.
        why: io::Error,
    },
}

impl LaunchError {
    /// The shells' exit code for it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } => 126,
            Self::NoProcess { .. } => 1,
        }
    }
}

/// The exit code of an ended program: its own, or 128 + the signal that killed it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    code as u8 // the kernel keeps eight bits
}

/// Whether it may succeed after other programs have ended: a resource is exhausted.
pub fn is_for_later(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE))
}

/// Makes a command start with this process's original signal mask and limit of open files, before a
/// [`crate::sys::waiter::Waiter`] and an [`crate::sense::observer::Observer`] changed them, so that a program behaves
/// as without Cotenant.
pub fn as_from_outside(command: &mut Command) {
    let mask = sys::SignalMask::outer();
    // SAFETY: between fork and exec it makes async-signal-safe system calls and touches no memory but the mask's copy
    // and a limit that was stored before the fork or never is.
    unsafe {
        command.pre_exec(move || {
            sys::restore_nofile()?;
            mask.apply()
        });
    }
}

/// A started program, reaped by [`crate::sys::waiter::Waiter`].
#[derive(Debug)]
pub struct Child {
    pid: u32,
}

impl Child {
    /// Starts a program with our terminal and in our process group, so that Ctrl-C and Ctrl-Z reach both.
    ///
    /// * Its signal mask and its limit of open files are our original ones, see [`as_from_outside`].
    /// * This process becomes the reaper of orphaned descendants (`PR_SET_CHILD_SUBREAPER`), so that a detached
    ///   descendant is still recognised.
    ///
    /// # Errors
    /// [`LaunchError`].
    pub fn spawn_command(command: Command) -> Result<Self, LaunchError> {
        Self::spawn(command, None)
    }

    /// The same for a program that is of no use without us: it gets SIGTERM then.
    ///
    /// # Errors
    /// [`LaunchError`].
    pub fn spawn_helper(command: Command) -> Result<Self, LaunchError> {
        Self::spawn(command, Some(libc::SIGTERM))
    }

    fn spawn(mut command: Command, when_we_die: Option<c_int>) -> Result<Self, LaunchError> {
        let program = command.get_program().to_owned();
        as_from_outside(&mut command);
        let we = std::process::id();
        if let Some(signal) = when_we_die {
            // SAFETY: between fork and exec it makes two async-signal-safe system calls and touches no memory.
            unsafe {
                command.pre_exec(move || {
                    sys::set_parent_death_signal(signal)?;
                    // A parent that died before that sends no signal.
                    if parent_id() == we { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
                });
            }
        }
        let spawned = sys::become_subreaper().and_then(|()| command.spawn());
        let child = spawned.map_err(|why| match why.raw_os_error() {
            Some(libc::ENOENT) => LaunchError::NotFound(program),
            _ if is_for_later(&why) => LaunchError::NoProcess { program, why },
            _ => LaunchError::NotExecutable { program, why },
        })?;
        Ok(Self { pid: child.id() })
    }

    /// Its process id, valid until the waiter has reported its end.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}
