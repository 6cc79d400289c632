//! Bytes read and written by any means: `/proc/PID/io`; memory maps, `send(2)` and `recv(2)`, and `io_uring` are
//! invisible.
//!
//! When a process reaps an ended child, the kernel adds the child's bytes to its own (undocumented in
//! `proc_pid_io(5)`). So short-lived children are included, and bytes already seen of a child are not counted again.

use super::followed::{Processes, refused, within};
use crate::FsRoot;
use crate::address_space::{self, Door, What};
use crate::notes::Notes;
use crate::sense::processes::Process;
use cotenant_model::{AppId, Moved, Time, proc_text};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A parent reaps its children within this time, or never.
const WAITED_FOR: Duration = Duration::from_secs(2);

/// Limit of ancestors that may have ended between two looks.
const GENERATIONS: usize = 64;

/// The bytes of all applications.
#[derive(Debug, Default)]
pub struct Io {
    known: BTreeMap<u32, Known>,
    /// Counts of ended children, by the process that will inherit them: bytes, and the time.
    inherited: HashMap<u32, (u64, Time)>,
    sums: BTreeMap<AppId, Moved>,
    /// Applications with an unreadable process.
    refused: BTreeSet<AppId>,
}

/// A process at the last look.
#[derive(Clone, Copy, Debug)]
struct Known {
    start_ticks: u64,
    parent: u32,
    bytes: u64,
}

impl Io {
    pub fn look(&mut self, processes: &Processes, at: Time, notes: &mut Notes) {
        self.bury(processes, at);
        self.refused.clear();
        // The kernel lets nobody read while a process begins to execute a program, which may take it long. Those of
        // one user are read together: what does not answer holds up its own.
        let mut of_users: BTreeMap<u32, Vec<(u32, &Process)>> = BTreeMap::new();
        for (pid, process) in within(processes, notes) {
            let Ok(user) = process.owner() else { continue }; // it is gone
            of_users.entry(user).or_default().push((pid, process));
        }
        for of_user in of_users.into_values() {
            let files = of_user.iter().map(|(pid, process)| (*pid, process.start_ticks(), open(process)));
            let files: Vec<_> = files.collect();
            let read = move |_: &Door| {
                Ok(files.into_iter().map(|(pid, start, file)| (pid, start, read(file))).collect::<Vec<_>>())
            };
            // Where that is late, there is no new count.
            let read = address_space::ask(&FsRoot::live(), of_user[0].0, What::Bytes, read);
            for (pid, start, bytes) in read.into_iter().flatten() {
                if let Some(process) = processes.get(&pid).filter(|process| process.start_ticks() == start) {
                    self.take(pid, process, bytes, at, notes);
                }
            }
        }
        self.inherited.retain(|_, (bytes, since)| *bytes > 0 && at - *since < WAITED_FOR);
    }

    fn take(&mut self, pid: u32, process: &Process, bytes: io::Result<u64>, at: Time, notes: &mut Notes) {
        match bytes {
            Ok(bytes) => {
                let found = Known { start_ticks: process.start_ticks(), parent: process.parent(), bytes };
                let before = self.known.insert(pid, found).map_or(0, |known| known.bytes);
                let added = self.without_inherited(pid, bytes.saturating_sub(before));
                let sum = self.sums.entry(process.app).or_default();
                *sum = Moved { bytes: sum.bytes.saturating_add(added), at };
            }
            Err(why) if refused(pid, "the bytes that it reads and writes", &why, notes) => {
                self.refused.insert(process.app);
            }
            Err(_) => {}
        }
    }

    /// Leaves what was counted of processes that have ended to those that wait for them.
    fn bury(&mut self, processes: &Processes, at: Time) {
        let lives = |(pid, known): &(u32, Known)| {
            processes.get(pid).is_some_and(|process| process.start_ticks() == known.start_ticks)
        };
        let (alive, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.known).into_iter().partition(lives);
        self.known = alive;
        for (pid, known) in &ended {
            let above = |pid: &u32| ended.get(pid).map(|known| known.parent);
            let heir = std::iter::successors(Some(known.parent), above).take(GENERATIONS).last();
            let unclaimed = self.inherited.remove(pid).map_or(0, |(bytes, _)| bytes);
            if let Some(heir) = heir.filter(|heir| processes.contains_key(heir)) {
                let (bytes, since) = self.inherited.entry(heir).or_default();
                (*bytes, *since) = (bytes.saturating_add(known.bytes).saturating_add(unclaimed), at);
            }
        }
    }

    /// A process's increase, minus counts already made for its children.
    fn without_inherited(&mut self, pid: u32, added: u64) -> u64 {
        let Some((bytes, _)) = self.inherited.get_mut(&pid) else { return added };
        let again = added.min(*bytes);
        *bytes -= again;
        added - again
    }

    pub fn of(&self, app: AppId) -> Option<Moved> {
        self.sums.get(&app).filter(|_| !self.refused.contains(&app)).copied()
    }

    pub fn forget(&mut self, app: AppId) {
        self.sums.remove(&app);
    }
}

/// Opens what [`read`] reads, which waits for nobody.
fn open(process: &Process) -> io::Result<File> {
    process.open_file_of_all("io")
}

fn read(file: io::Result<File>) -> io::Result<u64> {
    let mut buffer = [0; 512];
    let got = file?.read_at(&mut buffer, 0)?;
    let bytes = proc_text::bytes_moved(&buffer[..got]);
    bytes.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::ends::{End, Ends};
    use crate::sense::processes::{Follower, Target};
    use cotenant_testing::{eventually, spawn_fresh};
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    const MIB: u64 = 1 << 20;

    /// A shell that reads a line per step, its children's bytes, and its own.
    struct Shell {
        child: std::process::Child,
        io: Io,
        follower: Follower,
        ends: Ends,
        notes: Notes,
        at: Time,
    }

    impl Shell {
        fn start() -> Self {
            let mut command = Command::new("sh");
            let child = spawn_fresh(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
            let follower = Follower::new(&FsRoot::live(), vec![Target::Trees(vec![child.id()])], None);
            let (ends, notes, at) = (Ends::new().unwrap(), Notes::default(), Time::default());
            Self { child, io: Io::default(), follower, ends, notes, at }
        }

        fn say(&mut self, line: &str) {
            writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        }

        /// Waits until the shell prints `word`.
        fn hear(&mut self, word: &str) {
            let mut heard = String::new();
            while heard.trim() != word {
                heard.clear();
                let got = BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap()).read_line(&mut heard);
                assert!(got.unwrap() > 0);
            }
        }

        fn bytes(&mut self) -> u64 {
            self.at = self.at + Duration::from_millis(100);
            self.follower.list_soon();
            let ended: Vec<u32> = self.ends.heard().into_iter().filter_map(End::process).collect();
            self.follower.update(self.at, &ended, &[], &self.ends);
            self.io.look(self.follower.processes(), self.at, &mut self.notes);
            self.io.of(AppId(0)).map_or(0, |moved| moved.bytes)
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// 64 MiB by children that are gone before anybody looks, and 64 MiB by one that is seen at every stage: while it
    /// runs, when it has ended, when it has been waited for.
    /// Promise speed/proxies: Bytes and other proxies count only on request and where they are steady, after reports
    /// and metrics.
    #[test]
    fn bytes_of_children_count_once() {
        let mut shell = Shell::start();
        let before = shell.bytes();
        shell.say("for i in 1 2 3 4; do head -c 8M /dev/zero > /dev/null; done; echo done");
        shell.hear("done");
        let short = shell.bytes() - before;
        assert!((64 * MIB..66 * MIB).contains(&short), "{short}: each byte is read once and written once");

        shell.say("(head -c 32M /dev/zero > /dev/null; echo read; exec sleep 1000) & read x; kill $!; wait; echo done");
        shell.hear("read");
        let seen = shell.bytes() - before - short;
        assert!((64 * MIB..66 * MIB).contains(&seen), "{seen}");
        shell.say("");
        shell.hear("done");
        for _ in 0..3 {
            let all = shell.bytes() - before - short;
            assert!((seen..seen + MIB).contains(&all), "{all}, it was {seen}");
        }
        assert_eq!(shell.notes.iter().count(), 0);
    }

    /// A process that is not there any more is no refusal, and its bytes are not forgotten.
    /// Holds speed/proxies.
    #[test]
    fn a_process_that_ended_keeps_its_bytes() {
        let mut shell = Shell::start();
        shell.say("head -c 8M /dev/zero > /dev/null; echo done");
        shell.hear("done");
        let before = shell.bytes();
        shell.child.kill().unwrap();
        eventually("it is gone", || {
            shell.bytes();
            shell.follower.processes().is_empty()
        });
        assert_eq!((shell.bytes(), shell.notes.iter().count()), (before, 0));
        let at = shell.io.of(AppId(0)).unwrap().at;
        shell.bytes();
        assert_eq!(shell.io.of(AppId(0)).unwrap().at, at, "nothing new was counted");
    }
}
