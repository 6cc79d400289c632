//! The state of a queue's jobs on disk, so that `--resume` continues after a crash.

use super::jobs::JobSpec;
use anyhow::Result;
use cotenant_cli::messages::count;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::sys::Lock;
use cotenant_linux::sys::thread;
use cotenant_linux::undo;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The name of the file, in the folder of the logs.
pub(super) const NAME: &str = "state.jsonl";

/// One line of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first: which queue it is about.
    Queue { version: u32, crc: u32 },
    /// A job was started.
    Started { job: usize, pid: u32, start: u64 },
    /// Ended for good: its exit code, 128 + signal; absent if unobserved.
    Ended { job: usize, code: Option<u8> },
}

/// The results of an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// Jobs that have ended, with their exit codes.
    pub ended: Vec<(usize, Option<u8>)>,
    /// Jobs with running processes: their ids and start times.
    pub running: Vec<(usize, u32, u64)>,
}

/// The treatment of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// There has been none.
    First,
    /// Continued, if there was one.
    Resume,
    /// Dropped.
    Anew,
}

/// The file, open for the next line.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    _lock: File,
}

impl Ledger {
    /// Opens the ledger of a queue, for us only. With [`Start::Resume`], returns an earlier run's results; with
    /// [`Start::Anew`] an earlier run must have ended, and is dropped.
    ///
    /// # Errors
    /// One line with the remedy.
    pub fn open(folder: &Path, jobs: &[JobSpec], start: Start) -> Result<(Self, Earlier)> {
        let path = folder.join(NAME);
        let shown = path.display();
        let io = |e: io::Error| usage(format!("{shown}: {e}; choose another folder with --logs"));
        let mut file = undo::append_own(&path).map_err(io)?;
        let lock = undo::lock(&path.with_extension("lock"), Lock::Try).map_err(|why| match why.kind() {
            std::io::ErrorKind::WouldBlock => {
                usage(format!("{shown}: another cotenant schedule works with it; choose another folder with --logs"))
            }
            _ => io(why),
        })?;
        let text = bounded::rest_text(&mut file, Limit::Own).map_err(io)?;
        // A line that a crash has torn is skipped.
        let lines: Vec<Line> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let crc = crc(jobs);
        let header = Line::Queue { version: 1, crc };
        let earlier = of_lines(&lines, jobs.len());
        if start == Start::Resume && !lines.is_empty() {
            if lines[0] != header {
                return Err(usage(format!(
                    "{shown}: it is about another queue; resume with the same one, or start with --anew"
                )));
            }
            let mut ledger = Self { file, _lock: lock };
            if !text.ends_with('\n') {
                ledger.file.write_all(b"\n").map_err(io)?;
            }
            return Ok((ledger, earlier));
        }
        if let Some((job, pid, _)) = earlier.running.first().filter(|_| lines.first() == Some(&header)) {
            return Err(usage(format!(
                "{shown}: {} of an earlier run still runs (process {pid}); go on with --resume, or end it first",
                jobs[*job].name
            )));
        }
        if start == Start::First && lines.len() > 1 {
            let ended = lines.iter().filter(|line| matches!(line, Line::Ended { .. })).count();
            return Err(usage(format!(
                "{shown}: there has been a run in this folder, and {} of it ended; go on with --resume, forget it with \
                 --anew, or choose another folder with --logs",
                count(ended as u64, "job")
            )));
        }
        if !text.is_empty() {
            file.set_len(0).map_err(io)?;
        }
        let mut ledger = Self { file, _lock: lock };
        ledger.write(header).map_err(io)?;
        Ok((ledger, Earlier::default()))
    }

    /// A job was started.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn started(&mut self, job: usize, pid: u32, start: u64) -> io::Result<()> {
        self.write(Line::Started { job, pid, start })
    }

    /// A job has ended for good.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn ended(&mut self, job: usize, code: Option<u8>) -> io::Result<()> {
        self.write(Line::Ended { job, code })
    }

    fn write(&mut self, line: Line) -> io::Result<()> {
        let text = serde_json::to_string(&line)?;
        self.file.write_all(format!("{text}\n").as_bytes())
    }
}

fn of_lines(lines: &[Line], jobs: usize) -> Earlier {
    let mut earlier = Earlier::default();
    for line in lines {
        match *line {
            Line::Started { job, pid, start } if job < jobs => {
                earlier.running.retain(|r| r.0 != job);
                earlier.running.push((job, pid, start));
            }
            Line::Ended { job, code } if job < jobs => {
                earlier.running.retain(|r| r.0 != job);
                earlier.ended.retain(|e| e.0 != job);
                earlier.ended.push((job, code));
            }
            _ => {}
        }
    }
    earlier.running.retain(|&(_, pid, start)| lives(pid, start));
    earlier
}

/// Whether that process still runs.
pub(super) fn lives(pid: u32, start: u64) -> bool {
    thread::process_stat(pid).is_some_and(|stat| stat.start_ticks == start && !stat.is_dead())
}

fn crc(jobs: &[JobSpec]) -> u32 {
    // A job's place in its file does not matter.
    let text: Vec<String> = jobs.iter().map(|j| format!("{:?}", (&j.name, &j.command, &j.env, &j.cwd))).collect();
    crc32fast::hash(text.join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::schedule::jobs::parse;

    struct Folder(std::path::PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let folder = Folder(std::env::temp_dir().join(format!("cotenant-ledger-link-{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir(&folder.0).unwrap();
        let (victim, ledger) = (folder.0.join("victim"), folder.0.join(NAME));
        std::fs::write(&victim, "mine").unwrap();
        let jobs = parse(Path::new("q"), "a\n").unwrap();
        std::os::unix::fs::symlink(&victim, &ledger).unwrap();
        for start in [Start::First, Start::Resume, Start::Anew] {
            let why = Ledger::open(&folder.0, &jobs, start).unwrap_err().to_string();
            assert!(why.contains("symbolic link") && why.contains("choose another folder with --logs"), "{why}");
        }
        std::fs::remove_file(&ledger).unwrap();
        std::fs::hard_link(&victim, &ledger).unwrap();
        let why = Ledger::open(&folder.0, &jobs, Start::First).unwrap_err().to_string();
        assert!(why.contains("hard link"), "{why}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[test]
    fn an_earlier_run_is_gone_on_with() {
        let folder = Folder(std::env::temp_dir().join(format!("cotenant-ledger-{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir(&folder.0).unwrap();
        let jobs = parse(Path::new("q"), "a\nb\nc\nd\n").unwrap();
        let me = std::process::id();
        let start = thread::process_stat(me).unwrap().start_ticks;
        {
            let (mut ledger, earlier) = Ledger::open(&folder.0, &jobs, Start::Resume).unwrap();
            assert_eq!(earlier, Earlier::default(), "nothing to go on with is no failure");
            for (job, start) in [(0, 1), (1, start), (2, 1)] {
                ledger.started(job, me, start).unwrap();
            }
            ledger.ended(0, Some(3)).unwrap();
            let taken = Ledger::open(&folder.0, &jobs, Start::Resume).unwrap_err().to_string();
            assert!(taken.contains("another cotenant schedule works with it"), "{taken}");
        }
        // A crash in the middle of a line.
        std::fs::OpenOptions::new()
            .append(true)
            .open(folder.0.join(NAME))
            .unwrap()
            .write_all(b"{\"ended\":{\"jo")
            .unwrap();
        let anew = Ledger::open(&folder.0, &jobs, Start::First).unwrap_err().to_string();
        assert!(anew.contains("2-b of an earlier run still runs"), "{anew}");
        let (mut ledger, earlier) = Ledger::open(&folder.0, &jobs, Start::Resume).unwrap();
        assert_eq!(earlier, Earlier { ended: vec![(0, Some(3))], running: vec![(1, me, start)] });
        ledger.ended(1, None).unwrap();
        drop(ledger);
        let other = parse(Path::new("q"), "a\nb\nc\ne\n").unwrap();
        let why = Ledger::open(&folder.0, &other, Start::Resume).unwrap_err().to_string();
        assert!(why.contains("it is about another queue"), "{why}");
        let (_, earlier) = Ledger::open(&folder.0, &jobs, Start::Resume).unwrap();
        assert_eq!(earlier.ended, [(0, Some(3)), (1, None)]);
        for queue in [&jobs, &other] {
            let why = Ledger::open(&folder.0, queue, Start::First).unwrap_err().to_string();
            assert!(why.contains("2 jobs of it ended; go on with --resume, forget it with --anew"), "{why}");
        }
        let (_, earlier) = Ledger::open(&folder.0, &jobs, Start::Resume).unwrap();
        assert_eq!(earlier.ended.len(), 2, "a refusal forgets nothing");
        let (ledger, earlier) = Ledger::open(&folder.0, &jobs, Start::Anew).unwrap();
        assert_eq!(earlier, Earlier::default());
        drop(ledger);
        let (_, earlier) = Ledger::open(&folder.0, &jobs, Start::First).unwrap();
        assert_eq!(earlier, Earlier::default(), "a run that started nothing is none");
    }
}
