//! Origins of requests, and their rate limits for changes. A user may act as many users, so limits apply to the real
//! one.

use cotenant_linux::sys::{self, Subuids};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether a user may see and change everything: root, and the user that runs the daemon.
pub(crate) fn may_all(uid: u32) -> bool {
    uid == 0 || uid == sys::euid()
}

/// A real user, according to the kernel and `/etc/subuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    User(u32),
    /// Users that root delegates to one user, by the first one.
    Range(u32),
    /// A user namespace made by root, by its inode.
    Namespace(u64),
}

impl Party {
    /// Whether it may see and change everything.
    pub fn may_all(self) -> bool {
        matches!(self, Self::User(uid) if may_all(uid))
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {}", sys::user_name(*uid)),
            Self::Range(first) => write!(f, "the users from {first} on"),
            Self::Namespace(inode) => write!(f, "the users of the namespace {inode}"),
        }
    }
}

/// Finds the party of a user.
#[derive(Debug, Default)]
pub(crate) struct Parties(pub Mutex<Subuids>);

impl Parties {
    /// The party of a user.
    pub fn of(&self, uid: u32) -> Party {
        if may_all(uid) {
            return Party::User(uid);
        }
        of(uid, &self.subuids())
    }

    /// Reads changed tables.
    pub fn refresh(&self) {
        self.subuids().refresh();
    }

    fn subuids(&self) -> MutexGuard<'_, Subuids> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The party of a process that acts as a user.
    pub fn of_process(&self, uid: u32, pid: u32) -> Party {
        if may_all(uid) {
            return Party::User(uid);
        }
        self.refresh();
        match sys::inner_user_namespace(pid) {
            Some((inode, 0)) => Party::Namespace(inode),
            Some((_, owner)) => self.of(owner),
            None => self.of(uid),
        }
    }
}

/// Least time between two changes by one user: each makes the loop write to a disk and look at all processes.
const CHANGE: Duration = Duration::from_secs(1);

/// Each party's last change.
#[derive(Debug, Default)]
pub(crate) struct Changes(BTreeMap<Party, Instant>);

impl Changes {
    /// Accepts a change of a party.
    ///
    /// # Errors
    /// Too soon after the previous one.
    pub fn take(&mut self, party: Party) -> Result<(), String> {
        self.0.retain(|_, last| last.elapsed() < CHANGE);
        if !party.may_all() && self.0.contains_key(&party) {
            return Err(format!("you have changed something less than {} s ago; try again", CHANGE.as_secs()));
        }
        self.0.insert(party, Instant::now());
        Ok(())
    }
}

fn of(uid: u32, subuids: &Subuids) -> Party {
    match subuids.owner(uid) {
        Some((0, first)) => Party::Range(first),
        Some((owner, _)) => Party::User(owner),
        None => Party::User(uid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds daemon/pause.
    #[test]
    fn whom_somebody_may_act_as_is_theirs() {
        let subuids = Subuids::parse("alice:100000:65536\nroot:200000:65536\n", "root:x:0:0\nalice:x:1000:1000\n");
        let whose = |uid| of(uid, &subuids);
        assert_eq!([1_000, 100_000, 165_535].map(whose), [Party::User(1_000); 3]);
        assert_eq!([200_000, 200_001].map(whose), [Party::Range(200_000); 2], "they are not root");
        assert_eq!(whose(1_001), Party::User(1_001));
    }

    #[test]
    fn a_user_changes_something_once_a_second() {
        let mut changes = Changes::default();
        let ours = Party::User(sys::euid());
        let [user, other] = [Party::User(sys::euid() + 1), Party::Range(sys::euid() + 1)];
        assert!(changes.take(user).is_ok() && changes.take(other).is_ok());
        assert!(changes.take(user).unwrap_err().contains("less than 1 s ago"));
        assert!((0..3).all(|_| changes.take(ours).is_ok()), "whoever may change everything is not limited");
        changes.0.values_mut().for_each(|last| *last -= CHANGE);
        assert!(changes.take(user).is_ok());
    }
}
