//! Rows: one round each, with only what changed since the sample before.
//!
//! A row is one line of JSON. Where tasks' counts changed, their numbers follow the line: differences as
//! variable-length integers, in columns that a *layout* names once in JSON. That keeps rows small and cheap (16
//! counts of 100 tasks as decimal text cost twice the time), while names, not positions in the code, say what each
//! number is: a reader skips signals and keys that it does not know.

use cotenant_model::policy::State;
use cotenant_model::usage::Seen;
use cotenant_model::{Action, AppSample, CpuSet, NodeId, Outcome, Proposal, Reason, TaskId, TaskInfo, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Resident pages by memory node, where they were read.
pub type Pages = Option<Vec<(NodeId, u64)>>;

/// A row as it stands in the file. Absent keys mean "as before" or "none".
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Time of the sample, nanoseconds.
    pub at: Time,
    /// Whether it starts from nothing, and is a sample without a round.
    pub base: bool,
    /// New layouts, numbered on from those before.
    pub layouts: Vec<Vec<String>>,
    /// Tasks that are new or whose description changed.
    pub info: Vec<TaskInfo>,
    /// Tasks that are no more.
    pub gone: Vec<TaskId>,
    /// Length of the numbers behind the line, bytes: the tasks whose CPU or counts changed.
    pub tasks: usize,
    /// Tasks whose pages changed.
    pub pages: Vec<(TaskId, Pages)>,
    /// Tasks whose accesses by node changed: all of them, cumulative.
    pub touches: Vec<(TaskId, Pages)>,
    /// The CPUs of the sample, where they are others than before.
    pub cpus: Option<CpuSet>,
    /// Added busy nanoseconds of each of them.
    pub busy: Vec<i64>,
    /// All applications, where anything about them changed.
    pub apps: Option<Vec<AppSample>>,
    /// Whether the kernel moves memory after threads, where that is otherwise than before.
    pub numa_balancing: Option<bool>,
    /// Which rule decided.
    pub rule: usize,
    /// The decision.
    pub decision: Option<DecisionRow<'static>>,
    /// What was ordered, and what became of it.
    pub orders: Vec<OrderRow>,
    /// What used the machine before the start, and meanwhile, as far as that is known by now.
    pub usage: Option<Seen>,
    /// The end mark.
    pub end: Option<End>,
}

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The run ended.
    Finished,
    /// The size limit was reached.
    Limit,
}

/// A decision in a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecisionRow<'a> {
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub proposals: Cow<'a, [Proposal]>,
    /// Absent: as in the row before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    pub wake_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_until: Option<Time>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty", deserialize_with = "cotenant_model::text::lines_of")]
    pub notes: Cow<'a, [String]>,
}

/// An order in a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OrderRow {
    /// The proposal that it carries out, by its place in the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    /// Where it carries out no proposal: its own action …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// … and reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub affinity: CpuSet,
    pub outcome: Outcome,
}

/// An application without readings that are no numbers: JSON has no word for them, and they say nothing.
pub fn finite(app: &AppSample) -> AppSample {
    let mut app = app.clone();
    app.metrics.retain(|(_, reading)| reading.value.is_finite());
    app
}

/// The difference as a signed number; [`plus`] undoes it, also where a counter went backwards or wrapped.
pub fn minus(now: u64, old: u64) -> i64 {
    now.wrapping_sub(old).cast_signed()
}

/// Undoes [`minus`].
pub fn plus(old: u64, added: i64) -> u64 {
    old.wrapping_add_signed(added)
}

/// Appends a number: zigzag, then seven bits per byte, lowest first, the high bit set on all but the last (as in
/// Protocol Buffers).
pub fn put(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Takes a number from the front; `None` where there is no whole one.
pub fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut zigzag = 0_u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        zigzag |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, -1, 63, 64, -64, -65, 1 << 40, i64::MAX, i64::MIN];
        for number in numbers {
            put(&mut bytes, number);
        }
        assert_eq!(bytes[..4], [0, 2, 1, 126]);
        let mut rest = &bytes[..];
        assert_eq!(numbers.map(|_| take(&mut rest)), numbers.map(Some));
        assert_eq!(take(&mut rest), None);
        assert_eq!(take(&mut &[0x80; 11][..]), None, "no end");
        for (now, old) in [(5, 3), (3, 5), (u64::MAX, 0), (0, u64::MAX)] {
            assert_eq!(plus(old, minus(now, old)), now);
        }
    }
}
