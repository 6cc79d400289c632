//! Undoes changes left by killed Cotenants.

use crate::sys::Lock;
use crate::sys::thread;
use crate::undo::effects::{Effects, Table, Undoer};
use crate::undo::file::{self, Contents};
use crate::undo::report::RestoreReport;
use crate::undo::state_dir::{Here, lock_there, open_own};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for which [`restore`] waits for a working guardian.
const GUARDIAN_PATIENCE: Duration = Duration::from_secs(30);

/// Undoes the leftovers of killed Cotenants of this user: every journal in `state_dir` without a living owner. Waits
/// for a guardian at work on one. Journals of an earlier boot are void and deleted; those of other machines, other pid
/// namespaces and other formats are left alone. Failures are retried by the next call.
pub fn restore(state_dir: &Path, table: Table) -> RestoreReport {
    let (mut report, living) = undo_left(state_dir, table);
    report.notes.extend(living.iter().map(|pid| format!("process {pid} is at work: its changes stay")));
    report
}

/// The same, and lets all run that living Cotenants keep paused: one that is stopped cannot do it itself.
pub fn restore_by_force(state_dir: &Path, table: Table) -> RestoreReport {
    let mut report = RestoreReport::default();
    let living = restore_all(state_dir, table, true, &mut report).unwrap_or_else(|why| {
        report.fail(why);
        Vec::new()
    });
    report.notes.extend(living.iter().map(|pid| match thread::process_stat(*pid) {
        Some(stat) if stat.state == b'T' => format!(
            "process {pid} is stopped: what it had paused runs, its other changes stay until kill -CONT {pid}, or \
             kill -KILL {pid} and another restore"
        ),
        _ => format!("process {pid} is at work: what it had paused runs for now, its other changes stay"),
    }));
    report
}

/// The same without a word about Cotenants that live: their process ids come second.
pub fn undo_left(state_dir: &Path, table: Table) -> (RestoreReport, Vec<u32>) {
    let mut report = RestoreReport::default();
    let living = restore_all(state_dir, table, false, &mut report).unwrap_or_else(|why| {
        report.fail(why);
        Vec::new()
    });
    (report, living)
}

fn restore_all(state_dir: &Path, table: Table, force: bool, report: &mut RestoreReport) -> Result<Vec<u32>, String> {
    let mut living = Vec::new();
    let entries = match fs::read_dir(state_dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(living),
        entries => entries.map_err(|e| format!("cannot read {}: {e}", state_dir.display()))?,
    };
    let here = Here::read().map_err(|e| format!("cannot read the boot id: {e}; mount /proc"))?;
    let mut paths: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    for path in paths.iter().filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("journal-"))) {
        match restore_one(path, &here, table, force, report) {
            Ok(owner) => living.extend(owner),
            Err(e) => report.fail(format!("cannot undo {}: {e}", path.display())),
        }
    }
    Ok(living)
}

/// Undoes one journal, unless its owner lives, which is reported. With `force` it waits for no other process before all
/// paused programs are resumed.
fn restore_one(
    path: &Path,
    here: &Here,
    table: Table,
    mut force: bool,
    report: &mut RestoreReport,
) -> io::Result<Option<u32>> {
    let deadline = Instant::now() + GUARDIAN_PATIENCE;
    let mut file = loop {
        match lock_there(path, Lock::Try) {
            Ok(Some(file)) => break file,
            Ok(None) => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let held = whose(path)?;
                if held.as_ref().is_some_and(|c| c.here.boot != here.boot || c.here.pidns != here.pidns) {
                    report.notes.push(format!(
                        "{} is in use in another container or machine: its changes stay",
                        path.display()
                    ));
                    return Ok(None);
                }
                if let Some(held) = held.as_ref().filter(|_| std::mem::take(&mut force)) {
                    Effects::read(table, &held.lines).0.let_run(None, report);
                }
                if let Some(owner) = held.map(|c| c.owner).filter(|owner| thread::lives(*owner)) {
                    return Ok(Some(owner.0));
                }
                if Instant::now() > deadline {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "another process has held its lock for 30 s"));
                }
                std::thread::sleep(Duration::from_millis(5)); // its guardian is at work
            }
            Err(e) => return Err(e),
        }
    };
    // A draft is renamed once complete, so that no change can have been applied under one.
    let is_draft = path.extension().is_some_and(|end| end == file::DRAFT);
    match file::read(&mut file)? {
        Some(c) if is_draft && thread::lives(c.owner) => {}
        Some(c) if c.here.host != here.host && c.here.boot != here.boot => {}
        Some(c) if c.here.boot == here.boot && c.here.pidns != here.pidns => {
            report.notes.push(format!("{} is from another container: run restore there", path.display()));
        }
        Some(c) if c.here.boot == here.boot && !is_draft => undo_journal(path, &c, table, report),
        _ => file::remove(path), // another boot, or empty
    }
    Ok(None)
}

/// A journal's content; `None` if it does not name its owner, or its guardian has just finished and deleted it.
fn whose(path: &Path) -> io::Result<Option<Contents>> {
    match open(path) {
        Ok(mut file) => file::read(&mut file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a journal of ours.
pub fn open(path: &Path) -> io::Result<File> {
    open_own(OpenOptions::new().read(true), path)
}

/// Undoes one journal and finishes it.
pub fn undo_journal(path: &Path, contents: &Contents, table: Table, report: &mut RestoreReport) {
    let (effects, unknown) = Effects::read(table, &contents.lines);
    let left = effects.undo(&Undoer { owner: contents.owner, spare: &[] }, report);
    file::close(path, file::header(&contents.here, contents.owner), &left);
    let torn = contents.torn + unknown;
    if torn > 0 {
        report.notes.push(format!("{torn} torn record(s) of the journal were skipped"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::undo::file::JournalFile;
    use cotenant_testing::TempDir;

    #[test]
    fn a_journal_that_its_guardian_has_just_deleted_is_no_failure() {
        let dir = TempDir::new("deleted");
        let me = thread::own().unwrap();
        let journal = JournalFile::create(dir.path(), &Here::read().unwrap(), me).unwrap();
        let path = journal.path().to_owned();
        assert_eq!(whose(&path).unwrap().map(|contents| contents.owner), Some(me));
        journal.remove();
        assert_eq!(whose(&path).unwrap(), None);
        assert_eq!(restore(dir.path(), &[]), RestoreReport::default());
    }

    /// Two lines whose checksum does not hold, and a record that nothing here undoes.
    #[test]
    fn torn_and_unknown_records_are_counted_together() {
        let lines = vec!["no-such-effect 1".to_owned()];
        let owner = thread::own().unwrap();
        let contents = Contents { here: Here::read().unwrap(), owner, lines, torn: 2 };
        let mut report = RestoreReport::default();
        let dir = TempDir::new("torn-records");
        undo_journal(&dir.path().join("journal"), &contents, &[], &mut report);
        assert_eq!(report.notes, ["3 torn record(s) of the journal were skipped"]);
    }

    /// Who holds it cannot be seen from here, so that its end is not awaited.
    #[test]
    fn a_journal_that_is_held_in_another_container_is_left_at_once() {
        let dir = TempDir::new("held-elsewhere");
        let here = Here::read().unwrap();
        let there = Here { pidns: here.pidns + 1, ..here };
        let journal = JournalFile::create(dir.path(), &there, (u32::MAX, 0)).unwrap();
        let report = restore(dir.path(), &[]);
        assert!(report.notes[0].contains("another container"), "{report:?}");
        assert_eq!((report.failed, journal.path().exists()), (0, true), "{report:?}");
    }

    /// A home directory may be shared by machines, and a journal outlives its boot and its container.
    #[test]
    fn only_what_may_be_undone_here_is_taken() {
        let (here, me) = (Here::read().unwrap(), thread::own().unwrap());
        let ended = (me.0, me.1 + 1); // a reused process id
        for (host, boot, pidns, owner, draft, stays, undone) in [
            (true, true, true, ended, false, false, 1),
            (false, true, true, ended, false, false, 1), // the name of a machine may change
            (true, false, true, ended, false, false, 0), // an earlier boot
            (false, false, true, ended, false, true, 0), // another machine
            (false, false, false, ended, false, true, 0),
            (true, true, false, ended, false, true, 0), // another container
            (true, true, true, ended, true, false, 0),
            (true, true, true, me, true, true, 0),
        ] {
            let case = format!("{host} {boot} {pidns} {} {draft}", owner == me);
            let dir = TempDir::new("elsewhere");
            let other = |is: bool, of: &String| if is { of.clone() } else { format!("{of}0") };
            let there = Here {
                host: other(host, &here.host),
                boot: other(boot, &here.boot),
                pidns: here.pidns + u64::from(!pidns),
            };
            let mut path = JournalFile::create(dir.path(), &there, owner).unwrap().path().to_owned();
            if draft {
                let name = path.with_extension("new");
                fs::rename(&path, &name).unwrap();
                path = name;
            }
            let report = restore(dir.path(), &[]);
            assert_eq!((path.exists(), report.journals), (stays, undone), "{case}: {report:?}");
            assert_eq!(report.notes.is_empty(), pidns || !boot, "{case}: {report:?}");
            assert_eq!(report.failed, 0, "{case}: {report:?}");
        }
    }
}
