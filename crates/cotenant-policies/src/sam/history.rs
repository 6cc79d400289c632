//! Hysteresis after SAM-MPH: classes that last one interval move no task.
//!
//! SAM-MPH uses "a history of past intervals to introduce hysteresis when making mapping decisions, thereby avoiding
//! oscillatory mappings and transient migrations" (abstract). The method is inferred: a class must last for some
//! intervals.

use super::state::Past;
use super::task::{Class, Task};
use cotenant_model::TaskId;

/// Intervals in a row in a class before a task acts in it. At the usual 100 ms longer than a migration disturbs the
/// counters and shorter than most phases. Inferred.
const PERSISTENT: u8 = 3;

/// Restricts tasks to classes that have lasted long enough. Until then a task stays in place, and one that shares data,
/// now or recently, counts as a sharer there. Intervals of sleep or without counts are ignored. A newly arrived task
/// has its class at once. `above`: it has remote accesses above the threshold.
pub(super) fn persist(task: &mut Task, id: TaskId, known: Option<Past>, above: bool, came: bool) -> Option<Past> {
    if matches!(task.class, Class::Absent | Class::Unknown) {
        task.stray = known.is_some_and(|past| past.remote >= PERSISTENT);
        return known;
    }
    let known = known.filter(|_| !came);
    let times = match known {
        Some(past) if past.class == task.class => (past.times + 1).min(PERSISTENT),
        _ if came => PERSISTENT,
        _ => 1,
    };
    let remote = if above { (known.map_or(0, |past| past.remote) + 1).min(PERSISTENT) } else { 0 };
    let past = Past { task: id, class: task.class, times, remote };
    if times < PERSISTENT {
        let shared = task.class.shares() || known.is_some_and(|past| past.class.shares());
        task.class = if shared { Class::Intra } else { Class::Unknown };
        task.settling = shared; // its unit still has one that may have to leave
    }
    task.stray = remote >= PERSISTENT;
    Some(past)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sam::task::Rates;

    /// What a task was, for how many intervals; what it is; what it acts as, and for how many intervals it was so.
    #[test]
    fn who_was_or_is_a_sharer_for_a_short_time_keeps_its_place() {
        let id = TaskId(7);
        let past = |class, times| Some(Past { task: id, class, times, remote: 0 });
        for (known, is, acts, times) in [
            (None, Class::Mem, Class::Unknown, 1),
            (None, Class::Inter, Class::Intra, 1),
            (past(Class::Mem, 3), Class::Inter, Class::Intra, 1),
            (past(Class::Inter, 3), Class::Mem, Class::Intra, 1),
            (past(Class::Cpu, 3), Class::Mem, Class::Unknown, 1),
            (past(Class::Mem, 1), Class::Mem, Class::Unknown, 2),
            (past(Class::Inter, 1), Class::Inter, Class::Intra, 2),
            (past(Class::Mem, 2), Class::Mem, Class::Mem, 3),
            (past(Class::Inter, 3), Class::Inter, Class::Inter, 3),
        ] {
            let mut task = Task { class: is, ..Task::new(Rates::default(), None, 0.0) };
            assert_eq!(persist(&mut task, id, known, false, false), past(is, times), "{known:?} {is:?}");
            assert_eq!(task.class, acts, "{known:?} {is:?}");
            assert_eq!(task.settling, acts == Class::Intra, "{known:?} {is:?}");
            // A newly arrived task has its class at once.
            let mut task = Task { class: is, ..Task::new(Rates::default(), None, 0.0) };
            assert_eq!(persist(&mut task, id, known, false, true), past(is, PERSISTENT));
            assert_eq!(task.class, is);
        }
    }
}
