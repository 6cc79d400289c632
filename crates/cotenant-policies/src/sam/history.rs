//! What tasks were before: hysteresis after SAM-MPH, so that what lasts one interval moves nobody.
//!
//! SAM-MPH uses "a history of past intervals to introduce hysteresis when making mapping decisions, thereby avoiding
//! oscillatory mappings and transient migrations" (abstract). How is inferred: what a task is must last for some
//! intervals.

use super::state::Past;
use super::task::{Class, Task};
use cotenant_model::TaskId;

/// Intervals in a row in which a task must be what it is to act so. At the usual 100 ms longer than a migration
/// disturbs the counters and shorter than most phases. Inferred.
const PERSISTENT: u8 = 3;

/// Lets a task act only in a class that it has had for long enough. Until then it stays where it is, and one that
/// shares data, as of now or as of late, counts as a sharer in its place. Intervals in which it slept or was not
/// counted count neither way. One that has just come is at once what it is there. `above`: it meets remote memory.
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
