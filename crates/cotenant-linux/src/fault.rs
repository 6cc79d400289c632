//! Crash points: places where a test kills the process, to prove that no changes remain wherever it dies.
//!
//! [`point`] and [`around`] do nothing except in test builds and with the feature `fault-injection`. There, the
//! environment variable [`VAR`] gives the places: `ROLE:POINT:N[,…]` kills the process with SIGKILL when a process of
//! that role reaches the point for the `N`-th time. Roles are `main` (everything but the guardian) and `guardian`.

/// The environment variable with the crash points.
pub const VAR: &str = "COTENANT_FAULT";

/// The environment variable that names a file to create at a crash, so that a test can verify it.
pub const FIRED_VAR: &str = "COTENANT_FAULT_FIRED";

/// Every step of placing tasks; a process can die before and after each, see [`points`]. A test drives a process into
/// each of these points; one that never fires fails the test.
pub const STEPS: &[&str] = &[
    "claim.lock",
    "claim.write",
    "claim.rename",
    "journal.create",
    "journal.header",
    "journal.append",
    "journal.remove",
    "journal.compact",
    "guardian.spawn",
    "guardian.ready",
    "guardian.dismiss",
    "set",
    "readback",
    "restore.read",
    "restore.set",
    "restore.pass",
];

/// Steps of pausing programs, see [`crate::act::pause`]; an undoing process reaches the `resume.*` ones.
pub const PAUSE_STEPS: &[&str] = &["pause.group", "pause.stop", "pause.cont", "resume.group", "resume.signal"];

/// A step of resuming programs that their Cotenant left paused for too long.
pub const LATE_STEPS: &[&str] = &["resume.late"];

/// Steps of limiting CPU time, see [`crate::act::cpu_time`]; an undoing process reaches `resume.group`.
pub const QUOTA_STEPS: &[&str] = &["quota.make", "quota.set", "quota.end"];

/// Steps of the background without a group of ours, see [`crate::act::background`]; undoing reaches the latter two.
pub const BACKGROUND_STEPS: &[&str] = &["background.thread", "background.session", "background.unit"];

/// Crash points reached only by a guardian, besides the `restore.*` and `journal.remove.*` ones.
pub const GUARDIAN_POINTS: &[&str] =
    &["guardian.start", "guardian.detached", "guardian.announced", "guardian.end.seen", "guardian.locked"];

/// The crash points of these steps: `STEP.before` and `STEP.after` of each.
pub fn points<'a>(steps: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    steps.iter().flat_map(|step| [format!("{step}.before"), format!("{step}.after")])
}

/// Runs a step, and dies before or after it if so configured.
pub fn around<T>(step: &'static str, work: impl FnOnce() -> T) -> T {
    injection::step(step, "before");
    let done = work();
    injection::step(step, "after");
    done
}

/// Dies here if so configured.
pub fn point(name: &'static str) {
    injection::point(name);
}

/// Marks this process as the guardian.
pub fn be_guardian() {
    injection::be_guardian();
}

/// Nothing: fault injection is not compiled in.
#[cfg(not(any(test, feature = "fault-injection")))]
mod injection {
    pub fn be_guardian() {}
    pub fn point(_: &str) {}
    pub fn step(_: &str, _: &str) {}
}

#[cfg(any(test, feature = "fault-injection"))]
mod injection {
    use super::{BACKGROUND_STEPS, FIRED_VAR, GUARDIAN_POINTS, LATE_STEPS, PAUSE_STEPS, QUOTA_STEPS, STEPS, VAR};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    static IS_GUARDIAN: AtomicBool = AtomicBool::new(false);

    pub fn be_guardian() {
        IS_GUARDIAN.store(true, Ordering::Relaxed);
    }

    struct Plan {
        guardian: bool,
        point: String,
        left: AtomicU32,
    }

    fn plans() -> &'static [Plan] {
        static PLANS: OnceLock<Vec<Plan>> = OnceLock::new();
        PLANS.get_or_init(|| {
            let Ok(text) = std::env::var(VAR) else { return Vec::new() };
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

    pub fn point(name: &str) {
        debug_assert!(GUARDIAN_POINTS.contains(&name), "unregistered crash point {name}");
        die_at(name);
    }

    pub fn step(step: &str, side: &str) {
        let known =
            [STEPS, PAUSE_STEPS, LATE_STEPS, QUOTA_STEPS, BACKGROUND_STEPS].iter().any(|steps| steps.contains(&step));
        debug_assert!(known, "unregistered step {step}");
        die_at(&format!("{step}.{side}"));
    }

    fn die_at(point: &str) {
        for plan in plans() {
            let here = plan.point == point && plan.guardian == IS_GUARDIAN.load(Ordering::Relaxed);
            if here && plan.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                if let Some(path) = std::env::var_os(FIRED_VAR) {
                    let _ = std::fs::write(path, point);
                }
                let _ = crate::sys::kill(std::process::id(), libc::SIGKILL);
                unreachable!("SIGKILL was sent to this process");
            }
        }
    }
}
