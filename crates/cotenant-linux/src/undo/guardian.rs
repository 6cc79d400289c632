//! The guardian: a small process of its own that undoes everything when Cotenant ends in any way.
//!
//! It is a fresh process (fork and exec of the same binary), leads its own session so that Ctrl-C and closing the
//! terminal do not reach it, and ignores the polite signals. A socket connects it with Cotenant: the kernel closes
//! Cotenant's end however that ends, and the guardian's end however *that* ends, so that each learns of the other's
//! death without pids or signals.

use crate::fault::{self, around, point};
use crate::sys::{self, Lock};
use crate::undo::effects::Table;
use crate::undo::state_dir::lock_there;
use crate::undo::{RestoreReport, file, restore};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// The hidden subcommand of the binary.
pub const SUBCOMMAND: &str = "__guardian";

/// Guardian to Cotenant: detached, changes may begin.
const READY: u8 = b'R';

/// Cotenant to guardian: everything is undone, go.
const FINISHED: u8 = b'F';

/// A guardian that does not report for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A guardian that has not ended so long after it was sent home is stopped.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a guardian is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianCommand {
    /// The binary.
    pub program: PathBuf,
    /// Arguments before `--journal PATH`.
    pub args: Vec<OsString>,
    /// Environment; nothing else is passed on.
    pub env: Vec<(OsString, OsString)>,
}

impl Default for GuardianCommand {
    /// This binary, even if its file has been replaced since, with [`SUBCOMMAND`].
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec![SUBCOMMAND.into()], env: Vec::new() }
    }
}

/// The guardian, seen from Cotenant.
#[derive(Debug)]
pub struct Guardian {
    process: Child,
    link: UnixStream,
}

impl Guardian {
    /// Starts one and waits until it is ready.
    ///
    /// # Errors
    /// Where it cannot be started, or ends before it is ready.
    pub fn start(command: &GuardianCommand, journal: &Path) -> io::Result<Self> {
        let (mut link, theirs) = UnixStream::pair()?;
        let mut cmd = Command::new(&command.program);
        cmd.arg0("cotenant").args(&command.args).arg("--journal").arg(journal).current_dir("/").env_clear();
        cmd.envs(command.env.iter().map(|(k, v)| (k, v)));
        cmd.envs([fault::VAR, fault::FIRED_VAR].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        cmd.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = around("guardian.spawn", || cmd.spawn())?;
        drop(cmd); // holds the guardian's end of the socket
        let mut guardian = Self { process, link: link.try_clone()? };
        link.set_read_timeout(Some(PATIENCE))?;
        let mut byte = [0];
        let answer = around("guardian.ready", || link.read_exact(&mut byte));
        if answer.is_err() || byte != [READY] {
            let _ = guardian.process.kill();
            let _ = guardian.process.wait();
            return Err(io::Error::other("it ended before it was ready"));
        }
        Ok(guardian)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it still lives.
    pub fn lives(&self) -> bool {
        !sys::hung_up(&self.link, Duration::ZERO)
    }

    /// Sends it home: everything is undone.
    pub fn dismiss(mut self) {
        let _ = around("guardian.dismiss", || self.link.write_all(&[FINISHED]));
        if !sys::hung_up(&self.link, FAREWELL) {
            let _ = self.process.kill(); // somebody has stopped it; there is nothing left for it to do
        }
        // Somebody else may have reaped it; that is an error we need not know.
        let _ = self.process.wait();
    }

    /// Reaps one that was found dead.
    pub fn bury(mut self) {
        let _ = self.process.wait();
    }
}

/// The guardian's own program: `--journal PATH` as arguments, the socket as standard input.
pub fn main(args: impl IntoIterator<Item = OsString>, table: Table) -> ExitCode {
    let mut args = args.into_iter();
    let journal = match (args.next(), args.next()) {
        (Some(flag), Some(path)) if flag == "--journal" => PathBuf::from(path),
        _ => {
            eprintln!("{SUBCOMMAND} is started by cotenant itself; to undo what a killed one left: cotenant restore");
            return ExitCode::from(2);
        }
    };
    match watch(&journal, table) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // nobody listens; the journal remains for `cotenant restore`
    }
}

fn watch(journal: &Path, table: Table) -> io::Result<()> {
    fault::be_guardian();
    point("guardian.start");
    // SIGABRT: a service manager's watchdog sends it to all processes of a service.
    for signal in
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTSTP, libc::SIGABRT]
    {
        sys::ignore(signal)?;
    }
    sys::setsid()?;
    sys::set_name(c"cotenant-guard");
    point("guardian.detached");
    let mut link = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    link.write_all(&[READY])?;
    point("guardian.announced");
    let mut byte = [0];
    if link.read_exact(&mut byte).is_ok() && byte == [FINISHED] {
        return Ok(());
    }
    point("guardian.end.seen");
    let Some(mut file) = lock_there(journal, Lock::Wait)? else { return Ok(()) };
    point("guardian.locked");
    match file::read(&mut file)? {
        // Nobody hears what failed: the next Cotenant tries it again, and says so.
        Some(contents) => restore::undo_journal(journal, &contents, table, &mut RestoreReport::default()),
        None => file::remove(journal),
    }
    Ok(())
}
