//! The guardian: a small process that undoes everything after any end of Cotenant.
//!
//! It is a fresh process (fork and exec of the same binary), leads its own session so that Ctrl-C and closing the
//! terminal do not reach it, and ignores ordinary ending signals. A socket connects it with Cotenant: the kernel closes
//! each end on any death of its process, so that each learns of the other's death without pids or signals.
//!
//! A stopped Cotenant does not end. So the guardian reads the journal as it grows, and resumes everything paused for
//! [`GRACE`] longer than planned. Cotenant in turn checks the guardian, and replaces one that does not answer.

use crate::bounded::{self, Limit};
use crate::fault::{self, around, point};
use crate::sys::{self, Lock};
use crate::undo::effects::{Effects, GRACE, Table};
use crate::undo::state_dir::lock_there;
use crate::undo::{RestoreReport, file, restore};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// The hidden subcommand of the binary.
pub const SUBCOMMAND: &str = "__guardian";

/// Guardian to Cotenant: detached, changes may begin. Each message is a line; others are records of resumed programs.
const READY: &str = "ready\n";

/// Guardian to Cotenant, in answer to a query.
const HERE: &str = "here\n";

/// Cotenant to guardian: a check for an answer.
const ASK: u8 = b'A';

/// Cotenant to guardian: everything is undone, end.
const FINISHED: u8 = b'F';

/// Interval of the guardian's looks at the journal, and of the checks whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A guardian without an answer for this time is stopped.
const SILENCE: Duration = Duration::from_secs(2);

/// The first guardian has failed without a report for this time. Nothing is changed before it, and on a machine that
/// others fill a program may wait for its first turn.
pub(super) const FIRST: Duration = Duration::from_secs(60);

/// The same of one that takes the place of another, while changes stand.
pub(super) const NEXT: Duration = Duration::from_secs(10);

/// A guardian that has not ended this time after its dismissal is stopped.
const FAREWELL: Duration = Duration::from_secs(1);

/// The command of a guardian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianCommand {
    /// The binary.
    pub program: PathBuf,
    /// Arguments before `--journal PATH`.
    pub args: Vec<OsString>,
    /// Its environment, in full.
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
    /// Its incomplete last line.
    heard: Vec<u8>,
    /// Time of the last query, and whether it was answered.
    asked: (Duration, bool),
}

impl Guardian {
    /// Starts one and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, ends before it is ready, or is not ready in time.
    pub fn start(command: &GuardianCommand, journal: &Path, patience: Duration) -> io::Result<Self> {
        let (mut link, theirs) = UnixStream::pair()?;
        let mut cmd = Command::new(&command.program);
        cmd.arg0("cotenant").args(&command.args).arg("--journal").arg(journal).current_dir("/").env_clear();
        cmd.envs(command.env.iter().map(|(k, v)| (k, v)));
        cmd.envs([fault::VAR, fault::FIRED_VAR].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        cmd.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = around("guardian.spawn", || cmd.spawn())?;
        drop(cmd); // holds the guardian's end of the socket
        link.set_read_timeout(Some(patience))?;
        let mut said = [0; READY.len()];
        let answer = around("guardian.ready", || link.read_exact(&mut said));
        let set = sys::set_nonblocking(&link);
        let mut guardian = Self { process, link, heard: Vec::new(), asked: (sys::monotonic(), true) };
        if answer.is_err() || set.is_err() || said != READY.as_bytes() {
            let _ = guardian.process.kill();
            let _ = guardian.process.wait();
            let late = answer.is_err_and(|e| matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
            let why = if late {
                format!("it was not ready after {patience:?}")
            } else {
                "it ended before it was ready".to_owned()
            };
            return Err(io::Error::other(why));
        }
        Ok(guardian)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it is still alive and running.
    pub fn lives(&mut self) -> bool {
        let (asked, answered) = self.asked;
        if !answered && sys::monotonic() > asked + SILENCE {
            self.listen(); // it may have answered during other work, or while this process itself was stopped
            if !self.asked.1 {
                return false;
            }
        }
        !self.has_ended()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        sys::hung_up(&self.link, Duration::ZERO)
    }

    /// Checks from time to time whether it is alive.
    pub fn ask(&mut self) {
        let (now, (asked, answered)) = (sys::monotonic(), self.asked);
        if answered && now >= asked + LOOK_EVERY && self.link.write_all(&[ASK]).is_ok() {
            self.asked = (now, false);
        }
    }

    /// The records of pauses that it has ended since the last call.
    pub fn hear(&mut self) -> Vec<String> {
        self.listen();
        let len = self.heard.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let said: Vec<u8> = self.heard.drain(..len).collect();
        said.split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    }

    /// Reads its messages.
    fn listen(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = self.link.read(&mut bytes) {
            self.heard.extend(&bytes[..len]);
        }
        let here = HERE.as_bytes();
        while let Some(at) = self.heard.windows(here.len()).position(|said| said == here) {
            self.heard.drain(at..at + here.len());
            self.asked.1 = true;
        }
    }

    /// Dismisses it: everything is undone.
    pub fn dismiss(mut self) {
        let _ = around("guardian.dismiss", || self.link.write_all(&[FINISHED]));
        if !sys::hung_up(&self.link, FAREWELL) {
            let _ = self.process.kill(); // it was stopped; no work is left for it
        }
        // It may already be reaped; that error does not matter.
        let _ = self.process.wait();
    }

    /// Reaps a dead one, or kills a stopped one.
    pub fn bury(mut self) {
        let _ = self.process.kill();
        // A frozen one is not even reached by that. It leaves the journal alone as long as we hold its lock.
        if sys::hung_up(&self.link, SILENCE / 10) {
            let _ = self.process.wait();
        }
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
        Err(_) => ExitCode::FAILURE, // no receiver; the journal remains for `cotenant restore`
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
    link.write_all(READY.as_bytes())?;
    point("guardian.announced");
    sys::set_nonblocking(&link)?; // a stopped Cotenant reads nothing
    let mut reader = Reader::new(journal, table);
    loop {
        if sys::poll_readable([Some(link.as_fd())], LOOK_EVERY)?[0] {
            let mut asked = [0; 16];
            match link.read(&mut asked) {
                Ok(len @ 1..) if asked[..len].contains(&FINISHED) => return Ok(()),
                Ok(1..) => drop(link.write_all(HERE.as_bytes())),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
        let Ok(runs) = reader.look() else { continue }; // it is tried again
        if !runs.is_empty() {
            say(&format!(
                "cotenant stands still: {} pause(s) were ended {} s after their end",
                runs.len(),
                GRACE.as_secs()
            ));
        }
        for record in runs {
            let _ = link.write_all(format!("{record}\n").as_bytes());
        }
    }
    point("guardian.end.seen");
    let Some(mut file) = lock_there(journal, Lock::Wait)? else { return Ok(()) };
    point("guardian.locked");
    match file::read(&mut file)? {
        // Failures have no receiver: the next Cotenant retries and reports them.
        Some(contents) => restore::undo_journal(journal, &contents, table, &mut RestoreReport::default()),
        None => file::remove(journal),
    }
    Ok(())
}

/// The journal of a live Cotenant, read as it grows.
struct Reader<'a> {
    path: &'a Path,
    table: Table,
    effects: Effects,
    /// The file and its number, which changes at each compaction.
    file: Option<(File, u64)>,
    /// Bytes already read.
    read: u64,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path, table: Table) -> Self {
        Self { path, table, effects: Effects::new(table), file: None, read: 0 }
    }

    /// Ends overdue pauses; returns records of that.
    fn look(&mut self) -> io::Result<Vec<String>> {
        let meta = fs::symlink_metadata(self.path)?;
        let is_known = self.file.as_ref().is_some_and(|(_, ino)| *ino == meta.ino()) && meta.len() >= self.read;
        if !is_known {
            let file = restore::open(self.path)?;
            let ino = file.metadata()?.ino();
            *self = Self { file: Some((file, ino)), ..Self::new(self.path, self.table) };
        }
        if let Some((file, _)) = self.file.as_mut().filter(|_| !is_known || meta.len() > self.read) {
            file.seek(SeekFrom::Start(self.read))?;
            let bytes = bounded::rest(file, Limit::Own)?;
            let (lines, len) = file::whole_lines(&bytes);
            for line in lines {
                self.effects.enter(line);
            }
            self.read += len as u64;
        }
        let Some(by) = sys::monotonic().checked_sub(GRACE) else { return Ok(Vec::new()) };
        let runs = self.effects.let_run(Some(by), &mut RestoreReport::default());
        for line in &runs {
            self.effects.enter(line);
        }
        Ok(runs)
    }
}

/// Writes a line to the system's log, the only receiver before Cotenant continues.
fn say(line: &str) {
    const WARNING: u8 = 3 << 3 | 4; // of a daemon
    if let Ok(log) = UnixDatagram::unbound() {
        let _ = log.set_nonblocking(true);
        let _ =
            log.send_to(format!("<{WARNING}>cotenant-guard[{}]: {line}", std::process::id()).as_bytes(), "/dev/log");
    }
}
