//! Crash points: places at which a test lets the process die, to prove that nothing stays changed wherever it happens.
//!
//! [`point`] is compiled to nothing unless this is a test build or the feature `fault-injection` is on. There, the
//! environment variable [`VAR`] says where to die: `ROLE:POINT:N[,…]` kills the process with SIGKILL when a process
//! of that role reaches the point for the `N`-th time. Roles are `main` (everything but the guardian) and `guardian`.

/// The environment variable that says where to die.
pub const VAR: &str = "COTENANT_FAULT";

/// The environment variable that names a file to create when a process dies at a crash point, so that a test knows
/// that it did.
pub const FIRED_VAR: &str = "COTENANT_FAULT_FIRED";

/// Every crash point. A test drives a process into each of them; one that never fires fails the test.
pub const POINTS: &[&str] = &[
    "claim.lock.before",
    "claim.lock.after",
    "claim.write.before",
    "claim.write.after",
    "claim.rename.after",
    "journal.create.before",
    "journal.create.after",
    "journal.header.before",
    "journal.header.after",
    "journal.append.before",
    "journal.append.after",
    "journal.remove.before",
    "journal.remove.after",
    "journal.compact.before",
    "journal.compact.after",
    "guardian.spawn.before",
    "guardian.spawn.after",
    "guardian.ready.after",
    "guardian.dismiss.before",
    "guardian.dismiss.after",
    "set.before",
    "set.after",
    "readback.after",
    "restore.read.before",
    "restore.read.after",
    "restore.set.before",
    "restore.set.after",
    "restore.pass.before",
    "restore.pass.after",
];

/// Crash points of letting programs wait, see [`crate::act::pause`]; who undoes reaches the `resume.*` ones.
pub const PAUSE_POINTS: &[&str] = &[
    "pause.group.before",
    "pause.group.after",
    "pause.stop.before",
    "pause.stop.after",
    "pause.cont.before",
    "pause.cont.after",
    "resume.group.before",
    "resume.group.after",
    "resume.signal.before",
    "resume.signal.after",
];

/// Crash points of limiting CPU time, see [`crate::act::cpu_time`]; who undoes reaches the `resume.group.*` ones.
pub const QUOTA_POINTS: &[&str] = &[
    "quota.make.before",
    "quota.make.after",
    "quota.set.before",
    "quota.set.after",
    "quota.end.before",
    "quota.end.after",
];

/// Crash points that only a guardian reaches; it also reaches the `restore.*` and `journal.remove.*` ones.
pub const GUARDIAN_POINTS: &[&str] =
    &["guardian.start", "guardian.detached", "guardian.announced", "guardian.end.seen", "guardian.locked"];

/// Dies here if the environment says so.
#[cfg(any(test, feature = "fault-injection"))]
pub fn point(name: &'static str) {
    injection::point(name);
}

/// Nothing: fault injection is not compiled in.
#[cfg(not(any(test, feature = "fault-injection")))]
#[inline(always)]
pub fn point(_: &'static str) {}

/// Says that this process is the guardian.
pub fn be_guardian() {
    #[cfg(any(test, feature = "fault-injection"))]
    injection::IS_GUARDIAN.store(true, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(any(test, feature = "fault-injection"))]
mod injection {
    use super::{FIRED_VAR, GUARDIAN_POINTS, PAUSE_POINTS, POINTS, QUOTA_POINTS, VAR};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    pub static IS_GUARDIAN: AtomicBool = AtomicBool::new(false);

    struct Plan {
        guardian: bool,
        point: String,
        left: AtomicU32,
    }

    fn plans() -> &'static [Plan] {
        static PLANS: OnceLock<Vec<Plan>> = OnceLock::new();
        PLANS.get_or_init(|| {
            let text = std::env::var(VAR).unwrap_or_default();
            text.split(',')
                .filter_map(|plan| {
                    let mut parts = plan.split(':');
                    let guardian = parts.next()? == "guardian";
                    let point = parts.next()?.to_owned();
                    let left = parts.next()?.parse().ok()?;
                    Some(Plan { guardian, point, left: AtomicU32::new(left) })
                })
                .collect()
        })
    }

    pub fn point(name: &'static str) {
        let known = [POINTS, PAUSE_POINTS, QUOTA_POINTS, GUARDIAN_POINTS].iter().any(|points| points.contains(&name));
        debug_assert!(known, "unregistered crash point {name}");
        for plan in plans() {
            let here = plan.point == name && plan.guardian == IS_GUARDIAN.load(Ordering::Relaxed);
            if here && plan.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                if let Some(path) = std::env::var_os(FIRED_VAR) {
                    let _ = std::fs::write(path, name);
                }
                let _ = crate::sys::kill(std::process::id(), libc::SIGKILL);
                unreachable!("SIGKILL was sent to this process");
            }
        }
    }
}
