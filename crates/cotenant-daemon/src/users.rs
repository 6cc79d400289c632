//! What users may ask of the daemon, and how often.

use cotenant_linux::sys;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Whether a user may see and change everything: root, and the user that runs the daemon.
pub(crate) fn may_all(uid: u32) -> bool {
    uid == 0 || uid == sys::euid()
}

/// Least time between two changes by one user: each makes the loop write to a disk and look at all processes.
const CHANGE: Duration = Duration::from_secs(1);

/// When each user changed something last.
#[derive(Debug, Default)]
pub(crate) struct Changes(BTreeMap<u32, Instant>);

impl Changes {
    /// Takes a change of a user.
    ///
    /// # Errors
    /// Where it comes too soon after the one before.
    pub fn take(&mut self, uid: u32) -> Result<(), String> {
        self.0.retain(|_, last| last.elapsed() < CHANGE);
        if !may_all(uid) && self.0.contains_key(&uid) {
            return Err(format!("you have changed something less than {} s ago; try again", CHANGE.as_secs()));
        }
        self.0.insert(uid, Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_changes_something_once_a_second() {
        let mut changes = Changes::default();
        let ours = sys::euid();
        let user = ours + 1;
        assert!(changes.take(user).is_ok() && changes.take(user + 1).is_ok());
        assert!(changes.take(user).unwrap_err().contains("less than 1 s ago"));
        assert!((0..3).all(|_| changes.take(ours).is_ok()), "whoever may change everything is not limited");
        changes.0.values_mut().for_each(|last| *last -= CHANGE);
        assert!(changes.take(user).is_ok());
    }
}
