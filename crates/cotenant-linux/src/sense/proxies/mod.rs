//! Kernel-visible activity as a speed of programs without reports: bytes read and written, bytes over TCP.
//!
//! System calls and context switches are unsuitable: a polling program makes more of them with less work.

mod followed;
mod io;
pub(crate) mod tcp;

use crate::FsRoot;
use crate::notes::Notes;
use crate::sense::capability::{Capability, Standing};
use crate::sense::progress;
use crate::sys;
use cotenant_model::{AppId, Moved, Time};
use followed::Processes;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::time::Duration;

/// Least interval of each count, so that rounds of 100 ms each have a new one; and its limit of CPU time: 0.5 %, or 0.1
/// % beyond this many applications.
const FASTEST: Duration = Duration::from_millis(90);
const SHARE: u32 = 200;
const SHARE_OF_MANY: u32 = 1_000;
const MANY: usize = 16;

/// The kernel walks the tables of all connections: without a connection of ours, at this interval.
const UNCONNECTED: Duration = Duration::from_secs(1);

/// Interval beyond which a note reports counts made rare by their cost.
const RARE: Duration = Duration::from_secs(5);

/// Counts of all applications.
#[derive(Debug, Default)]
pub struct Proxies {
    io: io::Io,
    tcp: tcp::Tcp,
    io_due: Time,
    tcp_due: Time,
    notes: Notes,
}

impl Proxies {
    /// Counts when due; returns the CPU time.
    pub fn look(&mut self, processes: &Processes, at: Time) -> Duration {
        let begin = sys::thread_cpu_time();
        let apps: BTreeSet<AppId> = processes.values().map(|process| process.app).collect();
        let share = if apps.len() > MANY { SHARE_OF_MANY } else { SHARE };
        if self.io_due <= at {
            self.io.look(processes, at, &mut self.notes);
            self.io_due = at + pause("bytes read and written", begin, share, &mut self.notes);
        }
        let middle = sys::thread_cpu_time();
        if self.tcp_due <= at {
            self.tcp.look(processes, at, &mut self.notes);
            let pause = pause("bytes over TCP", middle, share, &mut self.notes);
            self.tcp_due = at + if self.tcp.is_idle() { pause.max(UNCONNECTED) } else { pause };
        }
        sys::thread_cpu_time().saturating_sub(begin)
    }

    /// Bytes read and written by an application, and bytes on its TCP connections. `None`: unknown, or never any
    /// connection.
    pub fn of(&self, app: AppId) -> [Option<Moved>; 2] {
        [self.io.of(app), self.tcp.of(app)]
    }

    /// An application has ended.
    pub fn forget(&mut self, app: AppId) {
        self.io.forget(app);
        self.tcp.forget(app);
    }

    /// Remarks for people.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter()
    }
}

/// Time until the next count, after one that began then.
fn pause(what: &str, begin: Duration, share: u32, notes: &mut Notes) -> Duration {
    let cost = sys::thread_cpu_time().saturating_sub(begin);
    let pause = FASTEST.max(cost.saturating_mul(share));
    if pause > RARE {
        notes.add(format!("{what} are counted every {:.0} s: more often would cost too much", pause.as_secs_f64()));
    }
    pause
}

/// The line of `cotenant doctor` on the speed of programs without reports; `instructions`: whether they are counted.
pub fn capability(instructions: bool) -> Capability {
    let io = if FsRoot::live().exists("/proc/self/io") { Ok(()) } else { Err("no /proc/PID/io".to_owned()) };
    let library = |name: &CStr| match name {
        _ if cfg!(target_env = "musl") => Err("not known: this program is static".to_owned()),
        name if sys::loads(name) => Ok(()),
        name => Err(format!("no {}", name.to_string_lossy())),
    };
    let tcp = tcp::connections().map(|_| ()).map_err(|why| format!("sock_diag: {why}"));
    describe([progress::LIBRARY, progress::MPI_LIBRARY].map(library), instructions, io, tcp)
}

fn describe(
    [openmp, mpi]: [Result<(), String>; 2],
    instructions: bool,
    io: Result<(), String>,
    tcp: Result<(), String>,
) -> Capability {
    let found = [
        ("units of OpenMP", openmp),
        ("calls of MPI", mpi),
        ("instructions", if instructions { Ok(()) } else { Err("not counted".to_owned()) }),
        ("bytes read and written", io),
        ("bytes over TCP", tcp),
    ];
    let said = found.iter().map(|(name, found)| match found {
        Ok(()) => format!("by {name}"),
        Err(why) => format!("not by {name} ({why})"),
    });
    let standing = match found.iter().filter(|(_, found)| found.is_ok()).count() {
        0 => Standing::Missing,
        5 => Standing::Available,
        _ => Standing::Limited,
    };
    let cost = "a program that reports no speed, and does none of that steadily, cannot be judged";
    let remedy = "--metric, or libcotenant: in the program, or installed for OpenMP and MPI (libcotenant0)";
    Capability::new("speed of programs that report none", standing, said.collect::<Vec<_>>().join(", "), cost, remedy)
}

#[cfg(test)]
mod tests {
    use super::followed::refused;
    use super::*;

    #[test]
    fn what_is_gone_is_no_refusal() {
        let mut notes = Notes::default();
        let mut of = |errno| refused(7, "bytes", &std::io::Error::from_raw_os_error(errno), &mut notes);
        assert_eq!([libc::ENOENT, libc::ESRCH].map(&mut of), [false; 2]);
        assert_eq!([libc::EACCES, libc::EPERM, libc::EMFILE].map(&mut of), [true; 3]);
        let help = "process 7: bytes are not known: no permission; run as its user, or with CAP_SYS_PTRACE";
        assert!(notes.iter().any(|note| note == help) && notes.iter().count() == 2, "{notes:?}");
    }

    #[test]
    fn the_doctor_names_each() {
        let all = describe([Ok(()), Ok(())], true, Ok(()), Ok(()));
        assert_eq!((all.standing, all.cost.as_str()), (Standing::Available, ""));
        let some = describe([Ok(()), Err("none".to_owned())], false, Ok(()), Err("sock_diag: no".to_owned()));
        assert_eq!(some.standing, Standing::Limited);
        let found = "by units of OpenMP, not by calls of MPI (none), not by instructions (not counted), \
                     by bytes read and written, not by bytes over TCP (sock_diag: no)";
        assert_eq!(some.found, found);
        let none = || Err(String::new());
        assert_eq!(describe([none(), none()], false, none(), none()).standing, Standing::Missing);
    }
}
