//! Numbers in the lines of a growing file.

use super::error::{FetchError, StartError};
use cotenant_model::metric::number;
use regex_lite::Regex;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

/// Limit of bytes read at once; of more only the end is used.
const BACKLOG: u64 = 4 << 20;

/// Limit of a line, bytes.
const LINE: usize = 64 << 10;

/// Lines without a match after which the pattern is reported.
const UNHEARD: u64 = 100;

/// A followed file: new lines only, also after rotation or truncation.
#[derive(Debug)]
pub struct Log {
    path: String,
    pattern: Regex,
    file: Option<Followed>,
    /// Lines read before the first match.
    unheard: Option<u64>,
}

/// An open file and its position.
#[derive(Debug)]
struct Followed {
    file: File,
    id: (u64, u64),
    position: u64,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    /// Whether that line is too long, or its beginning was skipped.
    skipping: bool,
}

impl Log {
    /// Follows the file from its end; a future one from its beginning.
    pub fn new(path: &str, pattern: &str) -> Result<Self, StartError> {
        let compiled = Regex::new(pattern);
        let compiled =
            compiled.map_err(|why| StartError::Pattern { pattern: pattern.to_owned(), why: why.to_string() })?;
        let mut log = Self { path: path.to_owned(), pattern: compiled, file: None, unheard: Some(0) };
        if let Ok(mut file) = Followed::open(path) {
            file.position = file.file.metadata().map_or(0, |meta| meta.len());
            log.file = Some(file);
        }
        Ok(log)
    }

    /// The last number written since the last call, and their count; `None` without any.
    pub fn fetch(&mut self) -> Result<Option<(f64, u64)>, FetchError> {
        let mut found = Found { pattern: &self.pattern, last: None, count: 0, lines: 0 };
        let named = |e: io::Error| {
            let (remedy, certain) = match e.kind() {
                io::ErrorKind::NotFound => ("; check the path", true),
                io::ErrorKind::PermissionDenied => ("; let this user read it", true),
                kind => ("", kind == io::ErrorKind::Other),
            };
            FetchError::File { path: self.path.clone(), why: format!("{e}{remedy}"), certain }
        };
        let mut there = std::fs::metadata(&self.path).map(|meta| identity(&meta));
        if let Some(file) = &mut self.file {
            file.read(&mut found).map_err(named)?;
            // Rotated: the old file was read to its end.
            if there.as_ref().is_ok_and(|id| *id != file.id) {
                self.file = None;
            }
        }
        if self.file.is_none() {
            let opened = Followed::open(&self.path).and_then(|mut file| file.read(&mut found).map(|()| file));
            there = opened.map(|file| self.file.insert(file).id);
        }
        let Found { last, count, lines, .. } = found;
        self.unheard = self.unheard.filter(|_| count == 0).map(|before| before + lines);
        match (last, there) {
            // A missing file is reported after the rest of the previous one.
            (Some(text), _) => Ok(Some((number(&text)?, count))),
            (None, Ok(_)) => match self.unheard {
                Some(lines @ UNHEARD..) => Err(FetchError::Unheard { path: self.path.clone(), lines }),
                _ => Ok(None),
            },
            (None, Err(why)) => Err(named(why)),
        }
    }
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

impl Followed {
    fn open(path: &str) -> io::Result<Self> {
        // A pipe would wait for its writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it is not a regular file; name a log file"));
        }
        Ok(Self { file, id: identity(&meta), position: 0, partial: Vec::new(), skipping: false })
    }

    fn read(&mut self, found: &mut Found<'_>) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < self.position {
            // Truncated: starts over.
            self.partial.clear();
            (self.position, self.skipping) = (0, false);
        }
        if length - self.position > BACKLOG {
            self.partial.clear();
            (self.position, self.skipping) = (length - BACKLOG, true);
        }
        let mut buffer = [0; 16 << 10];
        while self.position < length {
            let got = self.file.read_at(&mut buffer, self.position)?;
            if got == 0 {
                break;
            }
            self.position += got as u64;
            self.lines(&buffer[..got], found);
        }
        Ok(())
    }

    fn lines(&mut self, bytes: &[u8], found: &mut Found<'_>) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            if !self.skipping {
                self.partial.extend_from_slice(piece);
            }
            if self.partial.len() > LINE {
                self.skipping = true;
                self.partial.clear();
            }
            if piece.ends_with(b"\n") {
                if !self.skipping {
                    found.line(&String::from_utf8_lossy(&self.partial));
                }
                self.partial.clear();
                self.skipping = false;
            }
        }
    }
}

/// The values found in lines.
struct Found<'a> {
    pattern: &'a Regex,
    last: Option<String>,
    count: u64,
    lines: u64,
}

impl Found<'_> {
    fn line(&mut self, line: &str) {
        self.lines += 1;
        if let Some(groups) = self.pattern.captures(line.trim_end_matches(['\n', '\r']))
            && let Some(text) = groups.get(1).or_else(|| groups.get(0))
        {
            self.last = Some(text.as_str().to_owned());
            self.count += 1;
        }
    }
}
