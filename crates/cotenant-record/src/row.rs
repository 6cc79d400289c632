//! Rows: one round each, with only the changes since the previous sample.
//!
//! A row is one line of JSON. Changed counts of tasks follow the line: differences as variable-length integers, in
//! columns that a *layout* names once in JSON. That is compact and fast (decimal text took twice the time for 16 counts
//! of 100 tasks), and names keep numbers independent of the code: a reader skips unknown signals and keys.

use cotenant_model::policy::State;
use cotenant_model::usage::Seen;
use cotenant_model::{Action, AppSample, CpuSet, NodeId, Outcome, Proposal, Reason, TaskId, TaskInfo, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Resident pages by memory node, if read.
pub type Pages = Option<Vec<(NodeId, u64)>>;

/// A row in the file. Absent keys mean "as before" or "none".
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Time of the sample, nanoseconds.
    pub at: Time,
    /// Whether it is a base, and a sample without a round.
    pub base: bool,
    /// New layouts, numbered after the earlier ones.
    pub layouts: Vec<Vec<String>>,
    /// New tasks, and those with a changed description.
    pub info: Vec<TaskInfo>,
    /// Ended tasks.
    pub gone: Vec<TaskId>,
    /// Length of the numbers after the line, bytes: tasks with a changed CPU or changed counts.
    pub tasks: usize,
    /// Tasks with changed pages.
    pub pages: Vec<(TaskId, Pages)>,
    /// Tasks with changed accesses by node: all nodes, cumulative.
    pub touches: Vec<(TaskId, Pages)>,
    /// The CPUs of the sample, if changed.
    pub cpus: Option<CpuSet>,
    /// Added busy nanoseconds of each of them.
    pub busy: Vec<i64>,
    /// All applications, if any changed.
    pub apps: Option<Vec<AppSample>>,
    /// Whether the kernel moves memory after threads, if changed.
    pub numa_balancing: Option<bool>,
    /// Index of the deciding rule.
    pub rule: usize,
    /// The decision.
    pub decision: Option<DecisionRow<'static>>,
    /// The orders and their outcomes.
    pub orders: Vec<OrderRow>,
    /// Usage of the machine before the start and since, as far as known.
    pub usage: Option<Seen>,
    /// The end mark.
    pub end: Option<End>,
}

/// Reason of a recording's end.
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
    /// Absent: as in the previous row.
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
    /// Index of the proposal that it carries out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    /// Without a proposal: its own action …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// … and reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub affinity: CpuSet,
    pub outcome: Outcome,
}

/// An application without non-finite readings: JSON cannot express them, and they carry no information.
pub fn finite(app: &AppSample) -> AppSample {
    let mut app = app.clone();
    app.metrics.retain(|(_, reading)| reading.value.is_finite());
    app
}

/// The difference as a signed number; [`plus`] undoes it, even if a counter went backwards or wrapped.
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

/// Takes a number from the front; `None` if it is incomplete.
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
