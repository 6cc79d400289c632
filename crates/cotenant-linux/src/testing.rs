//! What the tests of this crate share; not every test binary needs all of it.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A folder that goes when it is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("cotenant-{name}-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                // Left by a process of that id that was killed.
                Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.expect("a new folder below the temporary one");
                    return Self(path);
                }
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file below it, with the folders that it needs.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A process that is about to end, or that ends when it finds its folder gone, may write to it still.
        let written = |why: std::io::Error| why.kind() == ErrorKind::DirectoryNotEmpty;
        while fs::remove_dir_all(&self.0).is_err_and(written) {}
    }
}

/// A section of [`elf`]: name, type, flags, content, and how long it says that it is where that is more.
pub type Section<'a> = (&'a str, u32, u64, &'a [u8], u64);

/// A program of these sections, of which the first page is loaded at 0x1000. What a section claims beyond its content
/// is expected behind the end.
pub fn elf(sections: &[Section<'_>]) -> Vec<u8> {
    let mut names = b"\0.shstrtab\0".to_vec();
    let mut bytes = vec![0; 64 + 56];
    let mut table = vec![0; 64];
    let strings = sections.iter().position(|section| section.0 == ".strtab").map_or(0, |at| at + 2);
    let mut add = |name: usize, kind: u32, flags: u64, at: usize, length: u64, link: usize| {
        table.extend([(name as u32).to_le_bytes(), kind.to_le_bytes()].concat());
        table.extend([flags, 0, at as u64, length].map(u64::to_le_bytes).concat());
        table.extend([link as u32, 0].map(u32::to_le_bytes).concat());
        table.extend([1_u64, 24].map(u64::to_le_bytes).concat());
    };
    let starts = sections.iter().map(|(name, ..)| {
        let at = names.len();
        names.extend(name.bytes().chain([0]));
        at
    });
    let starts: Vec<usize> = starts.collect();
    add(1, 3, 0, bytes.len(), names.len() as u64, 0);
    bytes.extend(&names);
    for ((_, kind, flags, content, claimed), name) in sections.iter().zip(starts) {
        add(name, *kind, *flags, bytes.len(), (*claimed).max(content.len() as u64), strings);
        bytes.extend(*content);
    }
    let (at, count) = (bytes.len() as u64, sections.len() as u16 + 2);
    bytes.extend(table);
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    head.extend([0x1000, 64, at].map(u64::to_le_bytes).concat());
    head.extend(0_u32.to_le_bytes());
    head.extend([64, 56, 1, 64, count, 1].map(u16::to_le_bytes).concat());
    head.extend([1_u32, 5].map(u32::to_le_bytes).concat()); // loaded, to be read and executed
    head.extend([0, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000].map(u64::to_le_bytes).concat());
    bytes[..head.len()].copy_from_slice(&head);
    bytes
}

/// Waits until a condition holds; panics where it takes too long.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a program whose file was written just now: for a moment a child that another thread forked meanwhile has it
/// open for writing, too, and it cannot be executed.
pub fn spawn_fresh(command: &mut Command) -> Child {
    let mut child = None;
    eventually("nobody writes to it", || {
        child = match command.spawn() {
            Err(why) if why.kind() == ErrorKind::ExecutableFileBusy => None,
            done => Some(done.unwrap()),
        };
        child.is_some()
    });
    child.unwrap()
}

/// The times after which a test kills something: `usual` of them, or as many as `COTENANT_KILLS` says (`cargo xtask
/// full`), each of them shorter than `most`. `COTENANT_SEED` asks for others.
pub fn kills(usual: u32, most: Duration) -> impl Iterator<Item = Duration> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let mut state = number("COTENANT_SEED").unwrap_or(20_260_101_u64);
    (0..number("COTENANT_KILLS").unwrap_or(u64::from(usual))).map(move |_| {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        most.mul_f64((state >> 32) as f64 / f64::from(u32::MAX))
    })
}

/// Lets this much time pass: not a wait for something, but the moment that a test varies.
pub fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// How long a process may take to say something, or a condition to come true.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process with which one talks in lines.
pub struct Player {
    pub process: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Player {
    pub fn start(mut command: Command) -> Self {
        let mut process = command.spawn().unwrap();
        let (said, lines) = channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Self { stdin: process.stdin.take(), process, lines }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The rest of the next line that begins with `@word`; panics where its output ends before.
    pub fn hear(&mut self, word: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|e| panic!("did not say {word}: {e}"));
            // libtest's own words may stand before ours in a line.
            if let Some((_, rest)) = line.split_once(&format!("@{word}")) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn kill(&mut self) -> ExitStatus {
        let _ = self.process.kill();
        self.process.wait().unwrap()
    }

    /// Lets it end and waits for that.
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
