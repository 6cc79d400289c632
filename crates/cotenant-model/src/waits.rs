//! Waits for a CPU, and the work that occupied it meanwhile, from the kernel's scheduler.

use crate::{AppId, Histogram, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Waits of an application's threads, cumulative. They are counted at their own interval, and repeated in every sample
/// until the next count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Time of the count.
    pub at: Time,
    /// Time in which its threads were ready to run without a CPU, nanoseconds. A wait is counted at its end.
    pub ns: u64,
    /// Number of waits.
    pub count: u64,
    /// What occupied the CPU meanwhile, nanoseconds. Absent entries have not occupied it for long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<(Cause, u64)>,
    /// Duration of each wait, nanoseconds.
    #[serde(default)]
    pub lengths: Histogram,
}

/// What occupies a CPU while a thread waits for it, or why no CPU serves the thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// An observed application: another one, or other threads of its own.
    App(AppId),
    /// Any other program.
    Program {
        /// Name of its process, cleaned.
        #[serde(deserialize_with = "crate::text::name_of")]
        program: String,
        /// Its control group, from the root of the hierarchy; empty for the root, or if unknown.
        #[serde(default, deserialize_with = "crate::text::name_of", skip_serializing_if = "String::is_empty")]
        cgroup: String,
    },
    /// Kernel threads of that name.
    Kernel(#[serde(deserialize_with = "crate::text::name_of")] String),
    /// Nothing: the CPU was idle, and had to wake up.
    Waking,
    /// The host had taken the CPU.
    Hypervisor,
    /// The application's own CPU quota was exhausted.
    Quota,
    /// Unknown: it ran too long ago, or there are too many to name.
    Unknown,
}

/// Waits in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiting {
    /// End of the interval.
    pub at: Time,
    /// Its duration, seconds.
    pub seconds: f64,
    /// Average number of ready threads without a CPU: seconds of waiting per second.
    pub threads: f64,
    /// The part behind each cause, largest first.
    pub behind: Vec<(Cause, f64)>,
    /// Durations of waits that ended, nanoseconds.
    pub lengths: Histogram,
}

impl Waits {
    /// Between two counts; `None` without a new count.
    pub fn since(&self, before: &Self) -> Option<Waiting> {
        let seconds = (self.at - before.at).as_secs_f64();
        let threads = |ns: u64| ns as f64 / 1e9 / seconds;
        let ns = self.ns.checked_sub(before.ns).filter(|_| seconds > 0.0)?;
        let part = |(cause, now): &(Cause, u64)| {
            let then = before.behind.iter().find(|(known, _)| known == cause).map_or(0, |(_, ns)| *ns);
            // A cause not named for a while starts afresh.
            (cause.clone(), threads(now.checked_sub(then).unwrap_or(*now)))
        };
        let mut behind: Vec<(Cause, f64)> =
            self.behind.iter().map(part).filter(|(_, threads)| *threads > 0.0).collect();
        behind.sort_by(|a, b| b.1.total_cmp(&a.1));
        let lengths = self.lengths.since(&before.lengths).unwrap_or_default();
        Some(Waiting { at: self.at, seconds, threads: threads(ns), behind, lengths })
    }
}

impl Waiting {
    /// The part behind applications and programs for which `is` is true.
    pub fn behind(&self, is: impl Fn(&Cause) -> bool) -> f64 {
        self.behind.iter().filter(|(cause, _)| is(cause)).map(|(_, threads)| threads).sum()
    }
}

/// The part of a wait behind one cause, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// A program, or why no CPU served it.
    #[serde(deserialize_with = "crate::text::name_of")]
    pub what: String,
    /// The kind of that cause.
    #[serde(default)]
    pub kind: BehindKind,
    /// The control group of an unobserved program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Average number of threads waiting behind it.
    pub threads: f64,
}

/// Causes of waits. They are few, unlike names of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BehindKind {
    /// Another application that is observed.
    Application,
    /// Other threads of the same application.
    Itself,
    /// A program that is not observed.
    Program,
    /// Threads of the kernel.
    Kernel,
    /// An idle CPU that had to wake up.
    Waking,
    /// Other guests of the host.
    Host,
    /// The quota of its own control group.
    Quota,
    /// Not known.
    #[default]
    Unknown,
}

impl BehindKind {
    fn of(cause: &Cause, own: AppId) -> Self {
        match cause {
            Cause::App(app) if *app == own => Self::Itself,
            Cause::App(_) => Self::Application,
            Cause::Program { .. } => Self::Program,
            Cause::Kernel(_) => Self::Kernel,
            Cause::Waking => Self::Waking,
            Cause::Hypervisor => Self::Host,
            Cause::Quota => Self::Quota,
            Cause::Unknown => Self::Unknown,
        }
    }
}

/// Limits of listed parts, and of those named in a line; parts below this fraction are not listed.
const LISTED: usize = 8;
const NAMED: usize = 3;
const LITTLE: f64 = 0.01;

impl Behind {
    /// The parts of the waits of `own`, largest first; `name` returns names of applications.
    pub fn all(parts: &[(Cause, f64)], own: AppId, name: impl Fn(AppId) -> Option<String>) -> Vec<Self> {
        let all: f64 = parts.iter().map(|(_, threads)| threads).sum();
        let part = |(cause, threads): &(Cause, f64)| {
            let what = match cause {
                Cause::App(app) if *app == own => "its own threads".to_owned(),
                Cause::App(app) => name(*app).unwrap_or_else(|| Cause::Unknown.to_string()),
                other => other.to_string(),
            };
            let cgroup = match cause {
                Cause::Program { cgroup, .. } => Some(cgroup.clone()).filter(|cgroup| !cgroup.is_empty()),
                _ => None,
            };
            Self { what, kind: BehindKind::of(cause, own), cgroup, threads: *threads }
        };
        let mut parts: Vec<Self> = parts.iter().filter(|(_, part)| *part > all * LITTLE).map(part).collect();
        parts.sort_by(|a, b| b.threads.total_cmp(&a.threads));
        parts.truncate(LISTED);
        parts
    }

    /// `0.90 behind rustc, 0.40 behind its own threads`; empty if nothing is known.
    pub fn text(parts: &[Self]) -> String {
        let mut named: Vec<(&str, f64)> = Vec::new();
        for part in parts {
            match named.iter_mut().find(|(what, _)| *what == part.what) {
                Some((_, threads)) => *threads += part.threads,
                None => named.push((&part.what, part.threads)),
            }
        }
        named.sort_by(|a, b| b.1.total_cmp(&a.1));
        named.retain(|(_, threads)| *threads >= 0.005); // less is written as 0.00
        let part = |(what, threads): &(&str, f64)| format!("{threads:.2} behind {what}");
        named.iter().take(NAMED).map(part).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Cause {
    /// Without the names of applications, which only their host has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::App(app) => write!(f, "application {}", app.0),
            Self::Program { program, .. } => f.write_str(program),
            Self::Kernel(name) => write!(f, "the kernel's {name}"),
            Self::Waking => f.write_str("a CPU that was asleep"),
            Self::Hypervisor => f.write_str("the host's other guests"),
            Self::Quota => f.write_str("its own CPU quota"),
            Self::Unknown => f.write_str("programs that are not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str) -> Cause {
        Cause::Program { program: name.to_owned(), cgroup: "user.slice".to_owned() }
    }

    /// Two seconds in which three threads' worth of time was waited for, 1.2 of them behind another application.
    #[test]
    fn waits_between_two_counts() {
        let lengths = |n| Histogram::new([crate::histogram::Bucket { low: 1e6, high: 2e6, count: n }]);
        let before = Waits {
            at: Time::from_secs(1),
            ns: 1_000_000_000,
            count: 10,
            behind: vec![(Cause::App(AppId(1)), 500_000_000), (program("cc1"), 900_000_000), (Cause::Quota, 7)],
            lengths: lengths(10),
        };
        let after = Waits {
            at: Time::from_secs(3),
            ns: 7_000_000_000,
            count: 40,
            behind: vec![
                (Cause::App(AppId(1)), 2_900_000_000),
                (program("cc1"), 600_000_000),
                (program("xz"), 3_000_000_000),
                (Cause::Quota, 7),
            ],
            lengths: lengths(40),
        };
        let waiting = after.since(&before).unwrap();
        assert_eq!((waiting.at, waiting.threads), (Time::from_secs(3), 3.0));
        // `cc1` was dropped meanwhile, and came back with its time since then.
        assert_eq!(waiting.behind, [(program("xz"), 1.5), (Cause::App(AppId(1)), 1.2), (program("cc1"), 0.3)]);
        assert_eq!(waiting.lengths, lengths(30));
        assert_eq!(waiting.behind(|cause| matches!(cause, Cause::Program { .. })), 1.8);
        assert_eq!(after.since(&after), None, "nothing new");
        assert_eq!(before.since(&after), None, "backwards");
        let names = |app: AppId| (app.0 == 1).then(|| "batch".to_owned());
        let parts = Behind::all(&waiting.behind, AppId(0), names);
        assert_eq!(Behind::text(&parts), "1.50 behind xz, 1.20 behind batch, 0.30 behind cc1");
        assert_eq!(parts[0].cgroup.as_deref(), Some("user.slice"));
        assert_eq!(Behind::all(&waiting.behind, AppId(1), names)[1].what, "its own threads");
        assert_eq!(serde_json::from_str::<Waits>(&serde_json::to_string(&after).unwrap()).unwrap(), after);
    }
}
