//! The journal: what Cotenant is about to set, on disk before it is set, so that whoever outlives Cotenant can undo it.
//!
//! One file per run, append-only text, one record per line with its CRC-32. A line is given to the kernel (`write`) before the
//! system call that it announces; that is enough against the death of any process, because the page cache outlives it. There is
//! no `fsync`: what only a power loss could take away needs no undoing, since masks die with the machine.
//!
//! The file is locked (`flock`) by its owner while that lives, so that nobody undoes the changes of a living Cotenant.

use crate::fault::point;
use crate::pause::Hierarchy;
use crate::sys::{self, Lock};
use cotenant_model::CpuSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// First word of a journal, with the version of its format.
const MAGIC: &str = "cotenant-journal-1";

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A mask is about to be set, or has been found to hold because of us.
    Set {
        /// Thread id.
        tid: u32,
        /// Its start time in clock ticks since boot.
        start: u64,
        /// Process id.
        pid: u32,
        /// Session id.
        sid: u32,
        /// Now, in clock ticks since boot.
        at: u64,
        /// The mask to go back to.
        original: CpuSet,
        /// The mask that we set.
        set: CpuSet,
    },
    /// The task has its own mask again, or another agent has taken it over: not ours to undo.
    Left {
        /// Thread id.
        tid: u32,
        /// Its start time in clock ticks since boot.
        start: u64,
    },
    /// A control group may be frozen from now on.
    Group {
        /// Where it lies.
        hierarchy: Hierarchy,
        /// Its folder.
        path: PathBuf,
        /// It is about to be made by us: the folder of the group to which its members go in the end. `None`: it is somebody else's.
        home: Option<PathBuf>,
    },
    /// A control group is no more, or will not be frozen any more.
    Ungroup {
        /// Its folder.
        path: PathBuf,
    },
    /// A process may be stopped from now on.
    Stop {
        /// Process id.
        pid: u32,
        /// Its start time in clock ticks since boot.
        start: u64,
        /// With it, the process group and the session that it leads.
        leads: bool,
    },
    /// A process will not be stopped any more.
    Cont {
        /// Process id.
        pid: u32,
        /// Its start time in clock ticks since boot.
        start: u64,
    },
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { tid, start, pid, sid, at, original, set } => {
                write!(f, "set {tid} {start} {pid} {sid} {at} {original} {set}")
            }
            Self::Left { tid, start } => write!(f, "left {tid} {start}"),
            Self::Group { hierarchy, path, home } => {
                let version = match hierarchy {
                    Hierarchy::V1 => "1",
                    Hierarchy::V2 => "2",
                    Hierarchy::V1Cpu => "1cpu",
                    Hierarchy::Resctrl => "resctrl",
                };
                let home = home.as_deref().map_or_else(|| "-".to_owned(), word_of);
                write!(f, "group {version} {} {home}", word_of(path))
            }
            Self::Ungroup { path } => write!(f, "ungroup {}", word_of(path)),
            Self::Stop { pid, start, leads } => write!(f, "stop {pid} {start} {}", u8::from(*leads)),
            Self::Cont { pid, start } => write!(f, "cont {pid} {start}"),
        }
    }
}

impl Record {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        let mut word = || words.next();
        let record = match kind {
            "set" => Self::Set {
                tid: number(word())?,
                start: number(word())?,
                pid: number(word())?,
                sid: number(word())?,
                at: number(word())?,
                original: CpuSet::parse_list(word()?).ok()?,
                set: CpuSet::parse_list(word()?).ok()?,
            },
            "left" => Self::Left { tid: number(word())?, start: number(word())? },
            "group" => Self::Group {
                hierarchy: match word()? {
                    "1" => Hierarchy::V1,
                    "2" => Hierarchy::V2,
                    "1cpu" => Hierarchy::V1Cpu,
                    "resctrl" => Hierarchy::Resctrl,
                    _ => return None,
                },
                path: path_of(word()?)?,
                home: match word()? {
                    "-" => None,
                    home => Some(path_of(home)?),
                },
            },
            "ungroup" => Self::Ungroup { path: path_of(word()?)? },
            "stop" => Self::Stop { pid: number(word())?, start: number(word())?, leads: number::<u8>(word())? != 0 },
            "cont" => Self::Cont { pid: number(word())?, start: number(word())? },
            _ => return None,
        };
        words.next().is_none().then_some(record)
    }
}

fn number<N: std::str::FromStr>(word: Option<&str>) -> Option<N> {
    word?.parse().ok()
}

/// A path as one word of plain letters.
fn word_of(path: &Path) -> String {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'%';
    let letter = |&b: &u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02x}") };
    path.as_os_str().as_bytes().iter().map(letter).collect()
}

fn path_of(word: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (code, tail) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
        rest = tail;
    }
    let path = PathBuf::from(OsString::from_vec(bytes));
    path.is_absolute().then_some(path)
}

/// Where process ids mean something: one boot of one machine, seen from one pid namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// `/etc/machine-id`, else the host name: tells our earlier boots from other machines that share a home directory.
    pub host: String,
    /// Inode of the pid namespace.
    pub pidns: u64,
}

impl Here {
    /// This machine, now.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn read() -> io::Result<Self> {
        let line = |path: &str| Ok::<_, io::Error>(fs::read_to_string(path)?.trim().replace(char::is_whitespace, "_"));
        Ok(Self {
            boot: line("/proc/sys/kernel/random/boot_id")?,
            host: line("/etc/machine-id")
                .ok()
                .filter(|id| !id.is_empty())
                .map_or_else(|| line("/proc/sys/kernel/hostname"), Ok)?,
            pidns: fs::metadata("/proc/self/ns/pid")?.ino(),
        })
    }

    /// A short form for file names.
    pub fn tag(&self) -> String {
        format!("{}-{}", self.boot.get(..8).unwrap_or("noboot"), self.pidns)
    }
}

/// A Cotenant: its process id and start time in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Process id.
    pub pid: u32,
    /// Start time.
    pub start: u64,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn me() -> io::Result<Self> {
        let pid = std::process::id();
        let stat = crate::affinity::process_stat(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, start: stat.start_ticks })
    }

    /// Whether it still runs.
    pub fn lives(self) -> bool {
        crate::affinity::process_stat(self.pid).is_some_and(|s| s.start_ticks == self.start && !s.is_dead())
    }
}

/// The name of the journal of that Cotenant.
pub fn file_name(here: &Here, owner: Owner) -> String {
    format!("journal-{}-{}-{}", here.tag(), owner.pid, owner.start)
}

/// Makes the folder, for us alone, or checks that nobody else can write into it.
///
/// # Errors
/// Where it cannot be made, is no folder (a symbolic link is not followed), or belongs to or is writable by somebody else.
pub fn secure_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let meta = fs::symlink_metadata(dir)?;
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
    match () {
        () if !meta.is_dir() => refuse("it is not a folder"),
        () if meta.uid() != sys::euid() => refuse("it belongs to another user"),
        () if meta.mode() & 0o022 != 0 => refuse("others can write into it (chmod 700)"),
        () => Ok(()),
    }
}

/// Opens a file of ours without following links; refuses one that belongs to somebody else.
///
/// # Errors
/// As `open`, and `PermissionDenied`.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)?;
    if file.metadata()?.uid() == sys::euid() { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes of whole records.
    len: u64,
    /// A torn record could not be cut off: what follows it might be lost, so nothing may follow.
    broken: bool,
    header: String,
}

impl Journal {
    /// Creates the journal of a run, locked, with its header.
    ///
    /// # Errors
    /// Any of the file system's.
    pub fn create(dir: &Path, here: &Here, owner: Owner) -> io::Result<Self> {
        secure_dir(dir)?;
        let header = format!(
            "{MAGIC} boot={} host={} pidns={} owner={}:{}",
            here.boot, here.host, here.pidns, owner.pid, owner.start
        );
        Self::write_whole(&dir.join(file_name(here, owner)), header, &[])
    }

    /// Writes under another name, locks, then renames: under its own name a journal is whole and locked from the start.
    fn write_whole(path: &Path, header: String, records: &[Record]) -> io::Result<Self> {
        let draft = path.with_extension("new");
        match fs::remove_file(&draft) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        point("journal.create.before");
        let mut file = open_own(OpenOptions::new().read(true).append(true).create_new(true), &draft)?;
        sys::flock(&file, Lock::Try)?;
        point("journal.create.after");
        let text: String =
            std::iter::once(sealed(&header)).chain(records.iter().map(|r| sealed(&r.to_string()))).collect();
        point("journal.header.before");
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&draft, path));
        point("journal.header.after");
        if let Err(e) = written {
            let _ = fs::remove_file(&draft);
            return Err(e);
        }
        Ok(Self { file, path: path.to_owned(), len: text.len() as u64, broken: false, header })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing in it; never, since there is a header.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes a record; on failure the journal is as before.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier record is torn"));
        }
        let line = sealed(&record.to_string());
        point("journal.append.before");
        let written = self.file.write_all(line.as_bytes());
        point("journal.append.after");
        match written {
            Ok(()) => self.len += line.len() as u64,
            Err(_) => self.broken = self.file.set_len(self.len).is_err(),
        }
        written
    }

    /// Replaces all records by these, in one step.
    ///
    /// # Errors
    /// Any of the file system's; the journal is then as before.
    pub fn compact(&mut self, records: &[Record]) -> io::Result<()> {
        point("journal.compact.before");
        let next = Self::write_whole(&self.path, self.header.clone(), records)?;
        point("journal.compact.after");
        *self = next;
        Ok(())
    }

    /// Deletes it: everything is undone.
    pub fn remove(self) {
        remove(&self.path);
    }
}

/// Deletes a journal whose changes are undone.
pub fn remove(path: &Path) {
    point("journal.remove.before");
    // Where this fails, undoing once more is harmless: nothing is ours any more.
    let _ = fs::remove_file(path);
    point("journal.remove.after");
}

/// A line with its checksum.
fn sealed(text: &str) -> String {
    format!("{text}\t{:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The text of a line whose checksum holds.
fn unsealed(line: &[u8]) -> Option<&str> {
    let (text, crc) = std::str::from_utf8(line).ok()?.rsplit_once('\t')?;
    (crc.len() == 8 && u32::from_str_radix(crc, 16).ok()? == crc32fast::hash(text.as_bytes())).then_some(text)
}

/// A journal as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Where its ids mean something.
    pub here: Here,
    /// Who wrote it.
    pub owner: Owner,
    /// Its records in order.
    pub records: Vec<Record>,
    /// Lines whose checksum does not hold: the last one where its writer died in the middle.
    pub torn: usize,
}

/// Reads a journal; `None` where its header is not whole, so that nothing can have been applied under it.
///
/// # Errors
/// Where it cannot be read.
pub fn read(file: &mut File) -> io::Result<Option<Contents>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let Some((here, owner)) = lines.next().and_then(unsealed).and_then(parse_header) else { return Ok(None) };
    let parsed: Vec<Option<Record>> = lines.map(|line| unsealed(line).and_then(Record::parse)).collect();
    let torn = parsed.iter().filter(|r| r.is_none()).count();
    Ok(Some(Contents { here, owner, records: parsed.into_iter().flatten().collect(), torn }))
}

fn parse_header(text: &str) -> Option<(Here, Owner)> {
    let mut words = text.split(' ');
    (words.next()? == MAGIC).then_some(())?;
    let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
    let here = Here { boot: value("boot")?, host: value("host")?, pidns: value("pidns")?.parse().ok()? };
    let owner = value("owner")?;
    let (pid, start) = owner.split_once(':')?;
    Some((here, Owner { pid: pid.parse().ok()?, start: start.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TempDir, eventually};
    use std::os::unix::fs::PermissionsExt;

    fn record(tid: u32) -> Record {
        let set = |s| CpuSet::parse_list(s).unwrap();
        Record::Set { tid, start: 9, pid: 3, sid: 2, at: 77, original: set("0-3,1500"), set: set("0") }
    }

    fn journal(dir: &Path) -> Journal {
        Journal::create(dir, &Here::read().unwrap(), Owner::me().unwrap()).unwrap()
    }

    #[test]
    fn reads_back_what_was_written() {
        let dir = TempDir::new("journal");
        let mut journal = journal(dir.path());
        let group = |path: &str, home: Option<&str>| Record::Group {
            hierarchy: if home.is_some() { Hierarchy::V2 } else { Hierarchy::V1 },
            path: path.into(),
            home: home.map(Into::into),
        };
        let records = [
            record(4),
            Record::Left { tid: 4, start: 9 },
            record(5),
            group("/sys/fs/cgroup/a b%\n\u{e9}", Some("/sys/fs/cgroup")),
            group("/x", None),
            Record::Ungroup { path: "/x".into() },
            Record::Stop { pid: 8, start: 3, leads: true },
            Record::Cont { pid: 8, start: 3 },
        ];
        for record in &records {
            journal.append(record).unwrap();
        }
        let read_back = || read(&mut File::open(journal.path()).unwrap()).unwrap().unwrap();
        let contents = read_back();
        assert_eq!((&contents.records[..], contents.torn), (&records[..], 0));
        assert_eq!((contents.here, contents.owner), (Here::read().unwrap(), Owner::me().unwrap()));
        journal.compact(&records[2..3]).unwrap();
        journal.append(&record(6)).unwrap();
        assert_eq!(read(&mut File::open(journal.path()).unwrap()).unwrap().unwrap().records, [record(5), record(6)]);
        assert_eq!(fs::metadata(journal.path()).unwrap().len(), journal.len());
    }

    #[test]
    fn any_torn_tail_leaves_the_rest() {
        let dir = TempDir::new("torn");
        let mut journal = journal(dir.path());
        let header = journal.len() as usize;
        journal.append(&record(4)).unwrap();
        let whole = journal.len() as usize;
        journal.append(&record(5)).unwrap();
        let bytes = fs::read(journal.path()).unwrap();
        let cut = dir.path().join("cut");
        for len in 0..bytes.len() {
            fs::write(&cut, &bytes[..len]).unwrap();
            let contents = read(&mut File::open(&cut).unwrap()).unwrap();
            // A line counts as soon as its checksum is complete; the line feed only ends it.
            let expected = [header, whole, bytes.len()].iter().filter(|end| len + 1 >= **end).count();
            assert_eq!(contents.map_or(0, |c| c.records.len() + 1), expected, "cut at {len}");
        }
    }

    #[test]
    fn nobody_else_reads_or_redirects_it() {
        let dir = TempDir::new("modes");
        let state = dir.path().join("a/b");
        let journal = journal(&state);
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(journal.path())), (0o700, 0o600));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&state, &link).unwrap();
        assert!(secure_dir(&link).is_err(), "a link is not followed");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(secure_dir(&state).is_err(), "writable by others");
        let target = dir.path().join("target");
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("redirected")).unwrap();
        assert!(open_own(OpenOptions::new().read(true), &dir.path().join("redirected")).is_err());
    }

    #[test]
    fn is_locked_while_its_owner_lives() {
        let dir = TempDir::new("lock");
        let journal = journal(dir.path());
        let other = File::open(journal.path()).unwrap();
        assert!(sys::flock(&other, Lock::Try).is_err());
        drop(journal);
        // Between fork and exec a child of another test still holds it.
        eventually("it is free", || sys::flock(&other, Lock::Try).is_ok());
    }
}
