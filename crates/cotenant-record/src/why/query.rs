//! Queries of `why`.

use cotenant_model::{AppId, TaskId, TaskInfo, Time, text};
use serde::Serialize;
use std::str::FromStr;

/// A query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// `17`: the tasks with that thread id; if there are none, the task with that id.
    Number(u32),
    /// `task:17`: a task by its id in the recording.
    Task(TaskId),
    /// `tid:4711`: tasks by their kernel thread id.
    Tid(u32),
    /// `app:2`: the tasks of an application.
    App(AppId),
    /// `worker`: tasks with that command name, and those of applications with that name.
    Name(String),
    /// `12.3s`, `12s..14s`: all orders in that time, both ends included. A single time covers all that round to it.
    Time {
        /// The first instant.
        from: Time,
        /// The last.
        to: Time,
    },
}

/// A text that is no query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is {what}; give a thread id, a command or application name, task:ID, tid:ID, app:ID, or a time such as 12.3s or 12s..14s"
)]
pub struct QueryError {
    text: String,
    what: &'static str,
}

impl FromStr for Query {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Self, QueryError> {
        let text = text.trim();
        let error = |what| QueryError { text: text.to_owned(), what };
        if text.is_empty() {
            return Err(error("empty"));
        }
        if let Some((kind, id)) = text.split_once(':')
            && let "task" | "tid" | "app" = kind
        {
            let id: u32 = id.parse().map_err(|_| error("no id"))?;
            return Ok(match kind {
                "task" => Self::Task(TaskId(id)),
                "tid" => Self::Tid(id),
                _ => Self::App(AppId(id)),
            });
        }
        if let Some((from, to)) = text.split_once("..")
            && let (Some(from), Some(to)) = (seconds(from), seconds(to))
        {
            if to.0 < from.0 {
                return Err(error("a time that runs backwards"));
            }
            return Ok(Self::Time { from: from.0, to: to.0 });
        }
        if let Some((Time(at), half)) = seconds(text) {
            return Ok(Self::Time { from: Time(at.saturating_sub(half)), to: Time(at.saturating_add(half)) });
        }
        Ok(text.parse().map_or_else(|_| Self::Name(text::name(text.as_bytes())), Self::Number))
    }
}

/// The time of `12.3s`, and half a unit of its last digit in nanoseconds.
fn seconds(text: &str) -> Option<(Time, u64)> {
    let number = text.trim().strip_suffix('s')?;
    let digits = number.split_once('.').map_or(0, |(_, fraction)| fraction.len() as u32);
    Some((number.parse().ok()?, 10_u64.checked_pow(9_u32.checked_sub(digits)?)? / 2))
}

impl Query {
    /// Whether a task of an application with that name matches. A number may mean a thread or a task; [`Self::sure`]
    /// decides.
    pub(super) fn matches(&self, info: &TaskInfo, app: Option<&str>) -> bool {
        match self {
            Self::Number(n) => info.tid == *n || info.id.0 == *n,
            Self::Task(id) => info.id == *id,
            Self::Tid(tid) => info.tid == *tid,
            Self::App(id) => info.app == *id,
            Self::Name(name) => info.comm == *name || app == Some(name),
            Self::Time { .. } => false,
        }
    }

    /// Whether an application matches by its own name or number.
    pub(super) fn names(&self, id: AppId, name: &str) -> bool {
        match self {
            Self::App(asked) => *asked == id,
            Self::Name(asked) => asked == name,
            _ => false,
        }
    }

    /// Whether a task that matches does so by the first meaning of the query.
    pub(super) fn sure(&self, tid: Option<u32>) -> bool {
        !matches!(self, Self::Number(n) if tid != Some(*n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let q = |text: &str| text.parse::<Query>();
        let time = |from, to| Ok(Query::Time { from: Time::from_millis(from), to: Time::from_millis(to) });
        assert_eq!(q("4711"), Ok(Query::Number(4_711)));
        assert_eq!(q("task:3"), Ok(Query::Task(TaskId(3))));
        assert_eq!(q("tid:3"), Ok(Query::Tid(3)));
        assert_eq!(q("app:0"), Ok(Query::App(AppId(0))));
        assert_eq!(q("12.3s"), time(12_250, 12_350));
        assert_eq!(q("0s"), time(0, 500));
        assert_eq!(q("1.5s..2s"), time(1_500, 2_000));
        for name in ["worker", "kworker/0:1", "a..b", "s", "1.2.3s", "x:1", "99999999999999999999s"] {
            assert_eq!(q(name), Ok(Query::Name(name.to_owned())));
        }
        assert!(q("task:x").unwrap_err().to_string().contains("no id; give a thread id"));
        assert!(q("2s..1s").is_err() && q(" ").is_err());
    }
}
