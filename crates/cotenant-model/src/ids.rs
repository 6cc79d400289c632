//! Identifiers and time: plain numbers that cannot be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A CPU (hardware thread) by the operating system's number.
    CpuId
}
id! {
    /// A memory node (NUMA node) by the operating system's number.
    NodeId
}
id! {
    /// A task (one Linux thread), numbered densely in order of discovery; never reused within one run or recording.
    TaskId
}
id! {
    /// An application: a set of related tasks.
    AppId
}

/// Nanoseconds since the host's loop began. Simulated hosts advance it themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// `secs` seconds after the start.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// `millis` milliseconds after the start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Later than any other time. The loop ends when every rule requests this.
    pub const NEVER: Self = Self(u64::MAX);

    /// Seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// A text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time; give seconds since the start, such as 12.3s")]
pub struct TimeError(String);

impl FromStr for Time {
    type Err = TimeError;

    /// Seconds since the start, `12.3s` or `12.3`, to the nanosecond and exact.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let error = || TimeError(text.to_owned());
        let number = text.trim();
        let number = number.strip_suffix('s').unwrap_or(number);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
            return Err(error());
        }
        let parsed = |digits: &str| digits.parse::<u64>().map_err(|_| error());
        let part = parsed(&format!("{fraction:0<9}"))?;
        parsed(whole)?.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(part)).map(Self).ok_or_else(error)
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    /// Time since `earlier`; zero if `earlier` is later.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_exactly() {
        let time = |text: &str| text.parse::<Time>().map(|t| t.0).ok();
        assert_eq!(time("12.3s"), Some(12_300_000_000));
        assert_eq!(time(" 7"), Some(7_000_000_000));
        assert_eq!(time("0.000000001s"), Some(1));
        assert_eq!(time("1."), Some(1_000_000_000));
        for bad in ["", "s", ".5", "-1s", "1e3", "1.2.3", "1.0000000001", "99999999999999999999", "18446744074s", "1 s"]
        {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
