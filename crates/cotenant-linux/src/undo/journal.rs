//! The journal for actuators: each change is recorded before it is made, and undone in the end.
//!
//! One per process, and with it one guardian, from the first change on.

use crate::notes::Notes;
use crate::sys;
use crate::sys::thread::{self, Held, Identity};
use crate::undo::claims::{ClaimError, Claims};
use crate::undo::effects::{Effect, Effects, GRACE, Living, Record, Table, Undoer};
use crate::undo::file::{self, JournalFile};
use crate::undo::guardian::{self, Guardian, GuardianCommand};
use crate::undo::report::RestoreReport;
use crate::undo::restore;
use crate::undo::state_dir::{Here, OpenError, default_state_dir};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// The options of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// The place of the journal and the claims: local to the machine, and the same for all Cotenants of a user.
    pub state_dir: PathBuf,
    /// Whether tasks of other users may be touched.
    pub other_users: bool,
    /// The command of the guardian.
    pub guardian: GuardianCommand,
    /// A journal is compacted when it exceeds this and twice its size after the last compaction, bytes.
    pub compact_above: u64,
}

impl JournalOptions {
    /// With the folder of this user, own tasks only, and this binary as guardian.
    ///
    /// # Errors
    /// As [`default_state_dir`].
    pub fn new() -> Result<Self, OpenError> {
        let state_dir = default_state_dir()?;
        Ok(Self { state_dir, other_users: false, guardian: GuardianCommand::default(), compact_above: 1 << 20 })
    }
}

/// The file and the guardian, from the first change on.
#[derive(Debug)]
struct Active {
    file: JournalFile,
    guardian: Guardian,
    /// Size of the next compaction, bytes.
    compact_above: u64,
}

/// The changes made by this Cotenant. Undone when it is dropped.
#[derive(Debug)]
pub struct Journal {
    options: JournalOptions,
    here: Here,
    me: Identity,
    active: Option<Active>,
    effects: Effects,
    claims: Claims,
    notes: Notes,
    /// The note of the number of pauses ended by the guardian, and that number.
    let_run: (String, u64),
}

impl Journal {
    /// First undoes changes of this user's killed Cotenants, so that observed values are the programs' own. Starts no
    /// guardian and writes nothing before the first change.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(mut options: JournalOptions, table: Table) -> Result<Self, OpenError> {
        // The guardian works in another folder.
        options.state_dir = std::path::absolute(&options.state_dir).map_err(|_| OpenError::NoStateDir)?;
        let here = Here::read().map_err(OpenError::Proc)?;
        let me = thread::own().map_err(OpenError::Proc)?;
        let mut notes = Notes::default();
        let (left, _) = restore::undo_left(&options.state_dir, table);
        if left.restored > 0 {
            notes.add(format!("{} task(s) that a killed cotenant had left were restored first", left.restored));
        }
        notes.extend(left.notes);
        let claims = Claims::new(&options.state_dir, here.clone(), me);
        Ok(Self {
            options,
            here,
            me,
            active: None,
            effects: Effects::new(table),
            claims,
            notes,
            let_run: Default::default(),
        })
    }

    /// This Cotenant.
    pub fn owner(&self) -> Identity {
        self.me
    }

    /// Outstanding changes of one kind.
    ///
    /// # Panics
    /// The table of kinds lacks it.
    pub fn outstanding<E: Effect>(&self) -> &E {
        self.effects.get().expect("a kind of the table")
    }

    /// Remarks for people about Cotenant itself: faults of the journal, the guardian and the list of claims.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// The guardian's process id; `None` before the first change.
    pub fn guardian(&self) -> Option<u32> {
        self.active.as_ref().map(|active| active.guardian.pid())
    }

    /// Ensures that a file and a live guardian exist.
    ///
    /// # Errors
    /// Why there is none, in words, which is a remark, too.
    pub fn begin(&mut self) -> Result<(), String> {
        self.stand_by().inspect_err(|why| self.notes.add(why))
    }

    fn stand_by(&mut self) -> Result<(), String> {
        let start = |file: &JournalFile, patience| {
            Guardian::start(&self.options.guardian, file.path(), patience)
                .map_err(|e| format!("nothing is changed: the guardian cannot be started ({e})"))
        };
        let lives = self.active.as_mut().map(|active| active.guardian.lives());
        match &mut self.active {
            Some(_) if lives == Some(true) => {}
            Some(active) => {
                let next = start(&active.file, guardian::NEXT)?;
                let mut last = std::mem::replace(&mut active.guardian, next);
                let (runs, killed) = (last.hear(), last.has_ended());
                last.bury();
                self.heed(runs);
                let how = if killed { "was killed" } else { "does not go on" };
                self.notes.add(format!("the guardian {how}; another has taken its place"));
            }
            None => {
                let dir = &self.options.state_dir;
                let file = JournalFile::create(dir, &self.here, self.me)
                    .map_err(|e| format!("nothing is changed: no journal can be made ({e})"))?;
                match start(&file, guardian::FIRST) {
                    Ok(guardian) => {
                        let compact_above = self.options.compact_above;
                        self.active = Some(Active { file, guardian, compact_above });
                    }
                    Err(why) => {
                        file.remove();
                        return Err(why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Journals that something will change, or is undone, and ensures that a guardian would undo it.
    ///
    /// # Errors
    /// Why nothing can be journaled, in words: nothing may be changed then.
    pub fn announce<R: Record>(&mut self, record: &R) -> Result<(), String> {
        if self.outstanding::<R::Effect>().knows(record) {
            return Ok(());
        }
        self.begin()?;
        self.write(record).map_err(|e| unwritten(&e))
    }

    /// Writes a record after changes have begun, unless it contains nothing new. A failure becomes a remark.
    ///
    /// # Errors
    /// Usually a full disk; `NotFound` before the first change.
    ///
    /// # Panics
    /// As [`Journal::outstanding`].
    pub fn write<R: Record>(&mut self, record: &R) -> io::Result<()> {
        let effect: &mut R::Effect = self.effects.get_mut().expect("a kind of the table");
        if effect.knows(record) {
            return Ok(());
        }
        let Some(active) = &mut self.active else { return Err(io::ErrorKind::NotFound.into()) };
        active.file.append(&record.to_string()).inspect_err(|why| self.notes.add(unwritten(why)))?;
        effect.enter(record);
        Ok(())
    }

    /// Records that a change needs no undoing any more. If that cannot be written, undoing finds nothing to do.
    pub fn strike<R: Record>(&mut self, record: &R) {
        if self.write(record).is_err()
            && let Some(effect) = self.effects.get_mut::<R::Effect>()
        {
            effect.enter(record);
        }
    }

    /// Claims a process for this Cotenant alone.
    ///
    /// # Errors
    /// [`ClaimError`]
    pub fn claim(&mut self, pid: u32) -> Result<(), ClaimError> {
        self.claims.claim(pid).inspect_err(|why| {
            if let ClaimError::File(_) = why {
                self.notes.add(format!("nothing is changed: {why}"));
            }
        })
    }

    /// Claims a process together with the next claimed one, or in the next round.
    pub fn claim_along(&mut self, pid: u32) {
        self.claims.claim_along(pid);
    }

    /// Releases processes claimed by this Cotenant.
    pub fn unclaim(&mut self, processes: &[Identity]) {
        self.claims.give_back(processes);
    }

    /// The other Cotenant that manages a process or one of its ancestors, if one does.
    pub fn rival(&self, pid: u32) -> Option<u32> {
        self.claims.holder(pid)
    }

    /// Whether a foreign thread may be changed, apart from other Cotenants' claims.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self, held: &Held) -> Result<(), String> {
        match held.stat.off_limits() {
            Some(why) => Err(why.to_owned()),
            None if held.uid != sys::euid() && !self.options.other_users => {
                Err(format!("it belongs to user {}", sys::user_name(held.uid)))
            }
            None => Ok(()),
        }
    }

    /// Whether a foreign process may be changed; if so, claims it.
    ///
    /// # Errors
    /// Why not.
    pub fn may_touch(&mut self, held: &Held) -> Result<(), String> {
        self.admits(held)?;
        self.claim(held.pid).map_err(|e| e.to_string())
    }

    /// Takes over the pauses that the guardian ended while this Cotenant was stopped.
    pub fn hear(&mut self) {
        let runs = self.active.as_mut().map(|active| active.guardian.hear()).unwrap_or_default();
        self.heed(runs);
    }

    fn heed(&mut self, runs: Vec<String>) {
        if runs.is_empty() {
            return;
        }
        let of = self.let_run.1 + runs.len() as u64;
        let note = format!(
            "cotenant stood still for a while: its guardian ended {of} pause(s), {} s after their end",
            GRACE.as_secs()
        );
        self.notes.take_back(&self.let_run.0);
        self.notes.add(&*note);
        self.let_run = (note, of);
        for line in runs {
            // If it cannot be written, the guardian resumes running processes once more.
            let _ = self.active.as_mut().map(|active| active.file.append(&line));
            self.effects.enter(&line);
        }
    }

    /// Duties of every round: replaces a killed or stopped guardian, and compacts a grown journal to what living
    /// processes need.
    pub fn tend(&mut self) {
        self.claims.refresh();
        self.hear();
        if self.active.is_some() {
            let _ = self.begin(); // it has made a remark
        }
        self.active.iter_mut().for_each(|active| active.guardian.ask());
        self.compact();
    }

    /// If this fails, the file continues to grow.
    fn compact(&mut self) {
        let Some(active) = self.active.as_mut().filter(|a| a.file.size() > a.compact_above) else { return };
        let Ok(Some(contents)) = File::open(active.file.path()).and_then(|mut f| file::read(&mut f)) else { return };
        let (lines, effects) = self.effects.compacted(&contents.lines, &Living::now());
        if active.file.compact(&lines).is_ok() {
            self.effects = effects;
        }
        active.compact_above = self.options.compact_above.max(active.file.size() * 2);
    }

    /// Undoes everything and ends the guardian, with a report. Dropping does the same without one.
    pub fn finish(mut self) -> RestoreReport {
        self.undo()
    }

    fn undo(&mut self) -> RestoreReport {
        let mut report = RestoreReport::default();
        if let Some(Active { file, guardian, .. }) = self.active.take() {
            let left = self.effects.undo(&Undoer { owner: self.me, spare: &[guardian.pid()] }, &mut report);
            file.close(&left);
            self.claims.release();
            guardian.dismiss();
        }
        self.claims.release();
        report
    }
}

fn unwritten(why: &io::Error) -> String {
    format!("the journal cannot be written ({why}); make room for it")
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.undo();
    }
}
