//! Bounded reads of files that others control: those of `/proc`, sysfs and control groups, whose length may depend on
//! programs, those of the state folder, and those named by users and files.
//!
//! `clippy.toml` refuses unbounded reads. A file beyond its limit is an error.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Limits in bytes, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The kernel's information on one subject. The longest is `status` of a process in 65,536 groups of up to 11
    /// characters each.
    Value,
    /// Ids of processes: `pid_max` is at most 4,194,304, and each takes 8 characters.
    Ids,
    /// Data that grow with the machine: `/proc/cpuinfo` of 8192 CPUs has some 12 MB, `kallsyms` more.
    Machine,
    /// Journals and claims. They are compacted, and a truncated one could not be undone.
    Own,
    /// Files named by users or other files: results, scenarios, snapshots, sources. Parsed they are about ten times as
    /// large.
    Named,
}

impl Limit {
    /// This many.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Value => 1 << 20,
            Self::Ids => 32 << 20,
            Self::Machine | Self::Named => 64 << 20,
            Self::Own => 256 << 20,
        }
    }
}

/// Bytes of a program that is read or mapped in parts. The largest with debug information have 2 to 3 GB; sparse files
/// can have any length.
const PROGRAM: u64 = 4 << 30;

/// Bytes of one line. The kernel's longest ends with a path of 4096 bytes, each possibly escaped by four.
const LINE: u64 = 64 << 10;

/// The whole file.
///
/// # Errors
/// System errors; `FileTooLarge`.
pub fn read(path: impl AsRef<Path>, limit: Limit) -> io::Result<Vec<u8>> {
    rest(&mut open(path)?, limit)
}

/// The whole file as text.
///
/// # Errors
/// As [`read`]; `InvalidData` if it is not text.
pub fn text(path: impl AsRef<Path>, limit: Limit) -> io::Result<String> {
    rest_text(&mut open(path)?, limit)
}

/// The name of this machine; empty if it cannot be read.
pub fn host_name() -> String {
    text("/proc/sys/kernel/hostname", Limit::Value).map_or_else(|_| String::new(), |name| name.trim().to_owned())
}

/// The text of a file named by another file: a regular one.
///
/// # Errors
/// As [`text`]; `InvalidInput` for other files.
pub fn named_text(path: impl AsRef<Path>) -> io::Result<String> {
    rest_text(&mut named(path)?, Limit::Named)
}

/// Opens a file named by another file: a regular one, readable up to [`Limit::Named`].
///
/// # Errors
/// System errors; `InvalidInput` if it is not a regular file, `FileTooLarge`.
pub fn named(path: impl AsRef<Path>) -> io::Result<File> {
    regular(path, Limit::Named.bytes())
}

/// Opens a file named by a user: a regular file, or a pipe, for whose writer this waits. The null device is empty.
///
/// # Errors
/// System errors; `InvalidInput` for other files.
pub fn given(path: impl AsRef<Path>) -> io::Result<File> {
    let meta = path.as_ref().metadata()?;
    let is_null = meta.file_type().is_char_device() && meta.rdev() == libc::makedev(1, 3);
    match () {
        () if meta.file_type().is_fifo() => File::open(path),
        () if is_null || meta.is_dir() => open(path), // reading gives the error
        () if meta.is_file() => regular(path, u64::MAX),
        () => Err(io::Error::new(ErrorKind::InvalidInput, "it is neither a regular file nor a pipe")),
    }
}

/// The rest of an open file, as text.
///
/// # Errors
/// As [`text`].
pub fn rest_text(file: &mut impl Read, limit: Limit) -> io::Result<String> {
    let no_text = |_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8");
    String::from_utf8(rest(file, limit)?).map_err(no_text)
}

/// The rest of an open file.
///
/// # Errors
/// As [`read`].
#[allow(clippy::disallowed_methods)] // bounded
pub fn rest(file: &mut impl Read, limit: Limit) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1 << 10); // most files of /proc, in one call
    if file.take(limit.bytes() + 1).read_to_end(&mut bytes)? as u64 > limit.bytes() {
        return Err(too_large(limit.bytes()));
    }
    Ok(bytes)
}

/// Passes a file line by line, trimmed at the end, until `take` ends it.
///
/// # Errors
/// Errors of the system or of `take`; `FileTooLarge` for an unbounded line.
pub fn lines(path: &Path, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    lines_of(open(path)?, take)
}

/// The same for a stream, each line on arrival.
///
/// # Errors
/// As [`lines`].
#[allow(clippy::disallowed_methods)] // bounded
pub fn lines_of(from: impl Read, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::with_capacity(64 << 10, from);
    let mut line = Vec::new();
    while (&mut file).take(LINE).read_until(b'\n', &mut line)? > 0 {
        if line.len() as u64 == LINE {
            return Err(ErrorKind::FileTooLarge.into());
        }
        take(line.trim_ascii_end())?;
        line.clear();
    }
    Ok(())
}

/// The beginning of a file, as far as readable.
#[allow(clippy::disallowed_methods)] // bounded
pub fn beginning(path: impl AsRef<Path>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    bytes
}

/// Opens a program for partial reads.
///
/// # Errors
/// System errors; `InvalidInput` if it is not a regular file, `FileTooLarge`.
pub fn program(path: &Path) -> io::Result<File> {
    regular(path, PROGRAM)
}

fn regular(path: impl AsRef<Path>, most: u64) -> io::Result<File> {
    let file = open(path)?;
    let meta = file.metadata()?;
    match () {
        () if !meta.is_file() => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
        () if meta.len() > most => Err(too_large(most)),
        () => Ok(file),
    }
}

fn too_large(most: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {} MiB", most >> 20))
}

/// Does not wait for a pipe of that name.
fn open(path: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let dir = TempDir::new("bounded");
        let endless = dir.path().join("value");
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        for limit in [Limit::Value, Limit::Ids, Limit::Machine] {
            assert_eq!(text(&endless, limit).unwrap_err().kind(), ErrorKind::FileTooLarge, "{limit:?}");
        }
        assert_eq!(lines(&endless, |_| Ok(())).unwrap_err().kind(), ErrorKind::FileTooLarge);
        dir.write("whole", vec![b'x'; 1 << 20]);
        assert_eq!(text(dir.path().join("whole"), Limit::Value).unwrap().len(), 1 << 20);
        dir.write("more", vec![b'x'; (1 << 20) + 1]);
        assert!(read(dir.path().join("more"), Limit::Value).is_err());
        dir.write("binary", b"\xff");
        assert_eq!(text(dir.path().join("binary"), Limit::Value).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_empty() {
        let dir = TempDir::new("bounded");
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(text(&pipe, Limit::Value).unwrap(), "");
        assert_eq!(program(&pipe).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(named_text(&pipe).unwrap_err().kind(), ErrorKind::InvalidInput);
        let long = dir.path().join("long");
        File::create(&long).unwrap().set_len(PROGRAM + 1).unwrap();
        for refused in [program(&long).map(drop), named_text(&long).map(drop)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::FileTooLarge);
        }
    }
}
