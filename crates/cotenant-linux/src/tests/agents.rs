//! Other agents: children, other programs that change masks, other users, cpusets, a second Cotenant.

use super::roles::{Subject, applier_of, journals, two_cpus};
use crate::restore::restore;
use crate::sys;
use crate::testing::{Player, TempDir, eventually};

/// Kills a process when dropped.
struct Reaper(u32);

impl Drop for Reaper {
    fn drop(&mut self) {
        let _ = sys::kill(self.0, libc::SIGKILL);
    }
}

#[test]
fn who_was_born_under_our_mask_gets_its_creators() {
    let Some([_, b]) = two_cpus() else { return };
    for (what, workers) in [("fork", 2), ("thread", 2), ("orphan", 2), ("exec", 2)] {
        let (dir, mut subject) = (TempDir::new("born"), Subject::new(workers));
        let mut applier = Player::start(applier_of(&subject, dir.path(), &["flip", "hold"]));
        applier.hear("hold");
        let born = subject.act(what, 1);
        let _reaper = Reaper(born);
        eventually("it has our mask", || sys::getaffinity(born).is_ok_and(|mask| mask == b));
        applier.kill();
        eventually(&format!("{what}: its own mask"), || {
            sys::getaffinity(born).is_ok_and(|m| m == subject.originals[1])
        });
        assert_eq!(restore(dir.path()).failed, 0);
        assert_eq!(journals(dir.path()), 0);
    }
}
