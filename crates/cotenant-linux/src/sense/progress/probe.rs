//! Whether reports can be received here, tested by making one and finding it like any other.

use super::{For, Memory, Producer, Refused};
use crate::FsRoot;
use crate::sense::capability::{Capability, Standing};
use crate::sense::ends::Ends;
use crate::sense::processes::{Follower, Target};
use crate::sys;
use cotenant_model::Time;

/// Result of a trial.
type Trial = Result<Option<Memory>, Refused>;

/// The line of `cotenant doctor` on progress reports. Makes this process a reporting one, without lasting effects.
pub fn capability() -> Capability {
    let made = cotenant_rt::init();
    describe(made.then(find_own), cotenant_rt::is_refused(), sys::euid() == 0)
}

fn find_own() -> Trial {
    let me = std::process::id();
    let mut follower = Follower::new(&FsRoot::live(), vec![Target::Pids(vec![me])], None);
    follower.update(Time::default(), &[], &[], &Ends::new()?);
    match follower.processes().get(&me) {
        Some(process) => Memory::find_one(For::Reading, Producer::Program, me, process, None, &mut vec![0; 32 << 10]),
        None => Ok(None),
    }
}

/// `trial`: `None` if no memory could be created; `ended`: a filter kills processes that request it.
fn describe(trial: Option<Trial>, ended: bool, root: bool) -> Capability {
    let (standing, found, remedy) = match trial {
        Some(Ok(Some(_))) => {
            let whose = if root { "of all programs" } else { "of this user's programs" };
            (Standing::Available, format!("{whose}, tried with one of our own"), "")
        }
        Some(Ok(None)) => (
            Standing::Missing,
            "/proc/PID/fd does not show the descriptor of one of our own".to_owned(),
            "mount -t proc proc /proc, without subset=pid, in the pid namespace of the programs",
        ),
        Some(Err(why)) => (
            Standing::Missing,
            format!("one of our own is not read: {why}"),
            "allow what the reason names for /proc/PID/fd: check seccomp, AppArmor or SELinux, and ulimit -n and -v",
        ),
        None if ended => (
            Standing::Missing,
            "a seccomp filter kills programs that ask for a sealed anonymous file: libcotenant does not ask".to_owned(),
            "allow memfd_create and what follows it in the filter, or let it fail (SECCOMP_RET_ERRNO)",
        ),
        None => (
            Standing::Missing,
            "no sealed anonymous file can be made".to_owned(),
            "allow memfd_create and its seals (Linux 3.17) in the seccomp filter, and room for one file: ulimit -n and -f",
        ),
    };
    let cost = "programs with libcotenant cannot report their speed; --metric still works";
    Capability::new("progress reports", standing, found, cost, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn our_own_report_is_found_here() {
        let found = capability();
        assert_eq!((found.standing, found.remedy.as_str()), (Standing::Available, ""), "{found:?}");
    }

    #[test]
    fn whatever_is_missing_has_a_cost_and_a_remedy() {
        let refused = || Refused::Io(io::ErrorKind::PermissionDenied.into());
        for (trial, ended, part) in [
            (None, false, "no sealed anonymous file"),
            (None, true, "a seccomp filter kills programs that ask"),
            (Some(Ok(None)), false, "/proc/PID/fd"),
            (Some(Err(refused())), false, "permission denied"),
            (Some(Err(Refused::Unsealed)), false, "not sealed"),
        ] {
            let found = describe(trial, ended, false);
            assert_eq!(found.standing, Standing::Missing);
            assert!(found.found.contains(part) && !found.cost.is_empty() && !found.remedy.is_empty(), "{found:?}");
        }
    }
}
