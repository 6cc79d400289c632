//! The owning Cotenant of each managed process: two Cotenants of one user do not manage the same programs.
//!
//! A small text file in the state folder lists, per process, its managing Cotenant, which also manages its descendants.
//! It is replaced as a whole (rename) under a lock. A claim ends when its owner releases it, or when the owner is dead
//! *and* its journal is gone: before that, a guardian may still undo the present masks. (A journal kept for failed
//! undoing has another name.)

use crate::bounded::{self, Limit};
use crate::fault::around;
use crate::sys::Lock;
use crate::sys::thread::{self, Identity};
use crate::undo::state_dir::{self, Here};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of claims above which ended ones are removed. Checking one takes three reads of `/proc`, so the number may
/// double before the next check.
const KEPT: usize = 64;

/// Limit of the wait for the lock, which others hold while they read and write a small file; the time before the next
/// wait; and the interval of attempts. A stopped Cotenant with the lock delays no other.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(2);

/// A claim on one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    owner: Identity,
    process: Identity,
}

/// Why a process cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another Cotenant manages it.
    #[error("another cotenant (process {0}) manages it or its parent")]
    Taken(u32),
    /// It has ended.
    #[error("it has ended")]
    Gone,
    /// The claims file cannot be read or written.
    #[error("the claims file cannot be used: {0}")]
    File(io::Error),
}

/// One Cotenant's claims.
#[derive(Debug)]
pub struct Claims {
    dir: PathBuf,
    here: Here,
    me: Identity,
    mine: HashSet<Identity>,
    /// Processes found taken since the last [`Claims::refresh`], each with its Cotenant.
    taken: HashMap<Identity, u32>,
    /// Processes claimed along with the next one: each write of the file is expensive, independent of its content.
    along: BTreeSet<u32>,
    /// Number of claims in the file above which ended ones are removed next.
    kept: usize,
    /// Time of the last failed wait for the lock.
    stuck: Cell<Option<Instant>>,
}

impl Claims {
    /// No claims yet; nothing is written.
    pub fn new(dir: &Path, here: Here, me: Identity) -> Self {
        Self {
            dir: dir.to_owned(),
            here,
            me,
            mine: HashSet::new(),
            taken: HashMap::new(),
            along: BTreeSet::new(),
            kept: KEPT,
            stuck: Cell::new(None),
        }
    }

    /// Claims a process together with the next one, or at the next [`Claims::refresh`].
    pub fn claim_along(&mut self, pid: u32) {
        self.along.insert(pid);
    }

    /// Claims a process, unless another Cotenant manages it or one of its ancestors.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim(&mut self, pid: u32) -> Result<(), ClaimError> {
        let wanted = (pid, thread::process_stat(pid).ok_or(ClaimError::Gone)?.start_ticks);
        if self.mine.contains(&wanted) {
            return Ok(());
        }
        if let Some(other) = self.taken.get(&wanted) {
            return Err(ClaimError::Taken(*other));
        }
        self.along.insert(pid);
        self.claim_all().map_err(ClaimError::File)?;
        match self.taken.get(&wanted) {
            Some(other) => Err(ClaimError::Taken(*other)),
            None if self.mine.contains(&wanted) => Ok(()),
            None => Err(ClaimError::Gone),
        }
    }

    /// Claims further processes, if they are free.
    fn claim_all(&mut self) -> io::Result<()> {
        let known = |id: &Identity| self.mine.contains(id) || self.taken.contains_key(id);
        let families = std::mem::take(&mut self.along).into_iter().map(family);
        let wanted: Vec<_> = families.filter(|family| family.first().is_some_and(|id| !known(id))).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let me = self.me;
        let (mut ours, mut taken, mut kept) = (Vec::new(), Vec::new(), None);
        let stands = |claim: &Claim| self.stands(*claim);
        self.edit(|claims| {
            if claims.len() > self.kept {
                claims.retain(stands);
                kept = Some(KEPT.max(2 * claims.len()));
            }
            for family in &wanted {
                let theirs = claims.iter().find(|c| c.owner != me && family.contains(&c.process) && stands(c));
                match theirs {
                    Some(theirs) => taken.push((family[0], theirs.owner.0)),
                    None => ours.push(family[0]),
                }
            }
            claims.extend(ours.iter().map(|process| Claim { owner: me, process: *process }));
            !ours.is_empty()
        })?;
        if let Some(kept) = kept {
            self.kept = kept;
            self.mine.retain(|process| thread::lives(*process));
        }
        self.mine.extend(ours);
        self.taken.extend(taken);
        Ok(())
    }

    /// The other Cotenant that manages a process or one of its ancestors, if one does. Changes nothing.
    pub fn holder(&self, pid: u32) -> Option<u32> {
        let (me, family) = (self.me, family(pid));
        let mut holder = None;
        self.dir.exists().then_some(())?;
        // If the file cannot be read, claiming reports that.
        let _ = self.edit(|claims| {
            let theirs = |c: &&Claim| c.owner != me && family.contains(&c.process) && self.stands(**c);
            holder = claims.iter().find(theirs).map(|c| c.owner.0);
            false
        });
        holder
    }

    /// Drops refusals: one query per round suffices, although each thread of a process would ask again.
    pub fn refresh(&mut self) {
        let _ = self.claim_all(); // if this fails, so does the claim before a change
        self.taken.clear();
    }

    /// Releases those of these claims that exist.
    pub fn give_back(&mut self, processes: &[Identity]) {
        let given: HashSet<Identity> = processes.iter().copied().collect();
        self.drop_claims(|process| given.contains(&process));
    }

    /// Gives all claims back.
    pub fn release(&mut self) {
        self.drop_claims(|_| true);
    }

    fn drop_claims(&mut self, these: impl Fn(Identity) -> bool) {
        let before = self.mine.len();
        self.mine.retain(|process| !these(*process));
        if self.mine.len() == before {
            return;
        }
        let me = self.me;
        // If this fails, the claims end with this process.
        let _ = self.edit(|claims| {
            claims.retain(|c| (c.owner != me || !these(c.process)) && self.stands(*c));
            true
        });
    }

    /// Reads all claims, ended ones included, and lets `change` edit them under the lock; writes them if it returns
    /// true.
    fn edit(&self, change: impl FnOnce(&mut Vec<Claim>) -> bool) -> io::Result<()> {
        state_dir::secure_state_dir(&self.dir)?;
        let name = |suffix: &str| self.dir.join(format!("claims-{}{suffix}", self.here.tag()));
        let _lock = around("claim.lock", || self.lock(&name(".lock")))?;
        let text = match bounded::text(name(""), Limit::Own) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e),
        };
        let mut claims = read(&text);
        if !change(&mut claims) {
            return Ok(());
        }
        let text = write(&claims);
        let draft = name(".new");
        around("claim.write", || state_dir::draft(&draft)?.write_all(text.as_bytes()))?;
        around("claim.rename", || fs::rename(&draft, name("")))
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// `TimedOut` if another Cotenant holds the lock all the time.
    fn lock(&self, path: &Path) -> io::Result<File> {
        let begin = Instant::now();
        let waits = self.stuck.get().is_none_or(|stuck| stuck.elapsed() >= AGAIN);
        loop {
            match state_dir::lock(path, Lock::Try) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    self.stuck.set(None);
                    return done;
                }
            }
            if !waits || begin.elapsed() >= PATIENCE {
                self.stuck.set(self.stuck.get().filter(|_| !waits).or(Some(begin)));
                let why = "another cotenant has its lock and does not go on; is one stopped?";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether both a claim and its process still exist.
    fn stands(&self, claim: Claim) -> bool {
        let journal = self.dir.join(state_dir::file_name(&self.here, claim.owner));
        thread::lives(claim.process) && (thread::lives(claim.owner) || journal.exists())
    }
}

pub(crate) fn read(text: &str) -> Vec<Claim> {
    text.lines().filter_map(parse).collect()
}

pub(crate) fn write(claims: &[Claim]) -> String {
    claims.iter().fold(String::new(), |mut text, Claim { owner, process }| {
        let _ = writeln!(text, "{} {} {} {}", owner.0, owner.1, process.0, process.1);
        text
    })
}

fn parse(line: &str) -> Option<Claim> {
    let numbers: Vec<u64> = line.split(' ').map_while(|w| w.parse().ok()).collect();
    let [owner, owner_start, pid, start] = numbers[..] else { return None };
    let id = |pid: u64| u32::try_from(pid).ok();
    Some(Claim { owner: (id(owner)?, owner_start), process: (id(pid)?, start) })
}

/// A process and its living ancestors.
fn family(pid: u32) -> Vec<Identity> {
    let mut family: Vec<Identity> = Vec::new();
    let mut next = pid;
    while let Some(stat) = thread::process_stat(next)
        && !family.iter().any(|(pid, _)| *pid == next)
    {
        family.push((next, stat.start_ticks));
        next = stat.ppid;
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use crate::undo::file;
    use cotenant_testing::TempDir;
    use std::fs::OpenOptions;
    use std::process::{Child, Command};

    /// A process that lives as long as the test, and its [`Claims`].
    struct Rival(Child);

    impl Rival {
        fn new() -> Self {
            Self(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn id(&self) -> Identity {
            (self.0.id(), thread::process_stat(self.0.id()).unwrap().start_ticks)
        }
    }

    impl Drop for Rival {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Somebody has the lock and is stopped: the others leave processes alone, and do not wait for ever.
    #[test]
    fn who_has_the_lock_and_does_not_go_on_holds_up_nobody() {
        let dir = TempDir::new("claims-stuck");
        let here = Here::read().unwrap();
        let (one, target) = (Rival::new(), Rival::new());
        let mut claims = Claims::new(dir.path(), here.clone(), one.id());
        claims.claim(target.id().0).unwrap();
        let file = OpenOptions::new().write(true).open(dir.path().join(format!("claims-{}.lock", here.tag()))).unwrap();
        sys::flock(&file, Lock::Try).unwrap();
        let other = Rival::new();
        for _ in 0..3 {
            let why = claims.claim(other.id().0).unwrap_err().to_string();
            assert!(why.contains("is one stopped?"), "{why}");
        }
        drop(file);
        claims.claim(other.id().0).unwrap();
    }

    #[test]
    fn the_second_leaves_a_process_and_its_children_alone() {
        let dir = TempDir::new("claims");
        let here = Here::read().unwrap();
        let (first, subject) = (Rival::new(), Rival::new());
        let mut theirs = Claims::new(dir.path(), here.clone(), first.id());
        let mut ours = Claims::new(dir.path(), here.clone(), thread::own().unwrap());
        theirs.claim(subject.0.id()).unwrap();
        assert!(matches!(ours.claim(subject.0.id()), Err(ClaimError::Taken(pid)) if pid == first.0.id()));
        assert_eq!((ours.holder(subject.0.id()), theirs.holder(subject.0.id())), (Some(first.0.id()), None));
        ours.claim(first.0.id()).unwrap(); // another process is free
        theirs.release();
        ours.refresh();
        ours.claim(subject.0.id()).unwrap();
        assert!(matches!(theirs.claim(subject.0.id()), Err(ClaimError::Taken(pid)) if pid == std::process::id()));

        // Claiming this process claims its children, one of which is `subject`.
        ours.release();
        theirs.claim(std::process::id()).unwrap();
        assert!(matches!(ours.claim(subject.0.id()), Err(ClaimError::Taken(_))));
    }

    /// Also where that is kept for what could not be undone: nobody is at work on it.
    #[test]
    fn a_claim_of_the_dead_ends_with_their_journal() {
        let dir = TempDir::new("stale");
        let here = Here::read().unwrap();
        let (first, subject) = (Rival::new(), Rival::new());
        let dead = first.id();
        Claims::new(dir.path(), here.clone(), dead).claim(subject.0.id()).unwrap();
        let journal = dir.path().join(state_dir::file_name(&here, dead));
        fs::write(&journal, "").unwrap();
        drop(first);
        let mut ours = Claims::new(dir.path(), here.clone(), thread::own().unwrap());
        assert!(matches!(ours.claim(subject.0.id()), Err(ClaimError::Taken(_))), "its guardian may be at work");
        file::close(&journal, file::header(&here, dead), &["ungroup /a".to_owned()]);
        assert!(journal.with_extension("kept").exists());
        ours.refresh();
        ours.claim(subject.0.id()).unwrap();
    }

    fn file(dir: &TempDir, here: &Here) -> PathBuf {
        dir.path().join(format!("claims-{}", here.tag()))
    }

    #[test]
    fn many_processes_are_claimed_at_once() {
        let (dir, here) = (TempDir::new("along"), Here::read().unwrap());
        let mut ours = Claims::new(dir.path(), here.clone(), thread::own().unwrap());
        let subjects: Vec<Rival> = (0..5).map(|_| Rival::new()).collect();
        let theirs = Rival::new();
        Claims::new(dir.path(), here.clone(), theirs.id()).claim(subjects[4].0.id()).unwrap();
        let read = || fs::read_to_string(file(&dir, &here)).unwrap();
        let before = read();
        for subject in &subjects {
            ours.claim_along(subject.0.id());
        }
        ours.claim_along(u32::MAX >> 1); // there is none
        assert_eq!(read(), before, "later, with the next");
        ours.claim(subjects[0].0.id()).unwrap();
        let after = read();
        assert_eq!(after.lines().count(), 5, "{after}");
        let claimed: Vec<bool> = subjects.iter().map(|subject| ours.mine.contains(&subject.id())).collect();
        assert_eq!(claimed, [true, true, true, true, false], "the last one is another's");
        assert!(matches!(ours.claim(subjects[4].0.id()), Err(ClaimError::Taken(pid)) if pid == theirs.0.id()));
        // Without another claim they are written in the next round.
        let late = Rival::new();
        ours.claim_along(late.0.id());
        ours.refresh();
        assert_eq!(read().lines().count(), 6);
    }

    /// Looking whether each of them stands costs reads of `/proc` with each claim.
    #[test]
    fn claims_that_ended_are_taken_out_when_there_are_many() {
        let (dir, here) = (TempDir::new("ended"), Here::read().unwrap());
        let me = thread::own().unwrap();
        let mut ours = Claims::new(dir.path(), here.clone(), me);
        let ended = |i: usize| format!("{} {} {} 1", me.0, me.1, (u32::MAX >> 1) as usize - i);
        let count = || fs::read_to_string(file(&dir, &here)).unwrap().lines().count();
        fs::write(file(&dir, &here), (0..KEPT).map(ended).collect::<Vec<_>>().join("\n")).unwrap();
        let subjects = [Rival::new(), Rival::new()];
        ours.claim(subjects[0].0.id()).unwrap();
        assert_eq!(count(), KEPT + 1, "they do no harm");
        ours.mine.insert((u32::MAX >> 1, 1));
        ours.claim(subjects[1].0.id()).unwrap();
        assert_eq!((count(), ours.mine.len()), (2, 2), "nothing only grows");
    }

    #[test]
    fn what_cannot_be_claimed() {
        let dir = TempDir::new("unclaimable");
        let here = Here::read().unwrap();
        let mut ours = Claims::new(dir.path(), here.clone(), thread::own().unwrap());
        assert!(matches!(ours.claim(u32::MAX >> 1), Err(ClaimError::Gone)));
        let no_folder = dir.path().join("file");
        fs::write(&no_folder, "").unwrap();
        let mut nowhere = Claims::new(&no_folder, here.clone(), thread::own().unwrap());
        assert!(matches!(nowhere.claim(std::process::id()), Err(ClaimError::File(_))));
        fs::write(file(&dir, &here), b"\xff").unwrap();
        assert!(matches!(ours.claim(std::process::id()), Err(ClaimError::File(_))));
        assert_eq!(fs::read(file(&dir, &here)).unwrap(), b"\xff", "claims that cannot be read may be others'");
    }
}
