//! The observed processes.

use crate::notes::Notes;
use crate::sense::processes::Process;
use cotenant_model::AppId;
use std::collections::BTreeMap;
use std::io::ErrorKind;

/// Limit of observed processes per application.
const PROCESSES: usize = 1024;

/// The processes that are followed.
pub(super) type Processes = BTreeMap<u32, Process>;

/// The observed processes: the first ones of each application.
pub(super) fn within<'a>(processes: &'a Processes, notes: &mut Notes) -> Vec<(u32, &'a Process)> {
    let mut counts: BTreeMap<AppId, usize> = BTreeMap::new();
    let taken = processes.iter().filter(|(_, process)| {
        let count = counts.entry(process.app).or_default();
        *count += 1;
        *count <= PROCESSES
    });
    let taken = taken.map(|(pid, process)| (*pid, process)).collect();
    if counts.values().any(|count| *count > PROCESSES) {
        notes
            .add(format!("of programs with more than {PROCESSES} processes, what the first ones read and send counts"));
    }
    taken
}

/// Notes why a process's data are unavailable, unless it has just ended.
pub(super) fn refused(pid: u32, what: &str, why: &std::io::Error, notes: &mut Notes) -> bool {
    let gone = why.kind() == ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH);
    if !gone {
        let why = match why.kind() {
            ErrorKind::PermissionDenied => "no permission; run as its user, or with CAP_SYS_PTRACE".to_owned(),
            _ => why.to_string(),
        };
        notes.add(format!("process {pid}: {what} are not known: {why}"));
    }
    !gone
}
