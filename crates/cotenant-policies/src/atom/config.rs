//! Durations of learning, and the choice of competitors.

use cotenant_model::policy::settings;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::str::FromStr;
use std::time::Duration;

/// Settings of `atom`; see `docs/policies/atom.md`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AtomConfig {
    /// Duration of a turn of a class, 10 ms to 1,440 min.
    #[serde(deserialize_with = "turn")]
    pub turn: Duration,
    /// Limit of turns per class, 1–1,000. Ours: the paper gives each class one.
    #[serde(deserialize_with = "rounds")]
    pub rounds: u32,
    /// Unmeasured fraction of a turn, 0–0.9, because caches are cold after a move. Ours.
    #[serde(deserialize_with = "settle")]
    pub settle: f64,
    /// Limit of classes, 2–10,000; of more, some are chosen. Ours.
    #[serde(deserialize_with = "classes")]
    pub classes: usize,
    /// Whether classes that are not balanced compete too.
    pub all: bool,
    /// Whether the kernel's own placement also competes, and wins unless certainly beaten. Ours.
    pub kernel: bool,
    /// Time until the winner must compete again; `None`: only when the applications change.
    #[serde(deserialize_with = "execute")]
    pub execute: Option<Duration>,
}

impl AtomConfig {
    /// The paper's: 10 minutes for each class, once (§4.2.1).
    pub const fn paper() -> Self {
        Self { turn: Duration::from_secs(600), rounds: 1, settle: 0.0, ..Self::usual() }
    }

    const fn usual() -> Self {
        Self {
            turn: Duration::from_secs(1),
            rounds: 5,
            settle: 0.2,
            classes: 32,
            all: false,
            kernel: false,
            execute: None,
        }
    }

    /// The unmeasured fraction of a turn.
    pub(super) fn settling(&self) -> Duration {
        self.turn.mul_f64(self.settle)
    }
}

impl Default for AtomConfig {
    fn default() -> Self {
        Self::usual()
    }
}

/// A text that is not a valid setting of `atom`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a setting of atom; write, separated by commas: paper, turn=TIME (10ms to 1440min), rounds=1…1000, \
     settle=0%…90%, classes=2…10000, all, kernel, execute=TIME"
)]
pub struct AtomConfigError(String);

impl FromStr for AtomConfig {
    type Err = AtomConfigError;

    /// Settings separated by commas: `turn=2s,rounds=10,settle=25%,all`; `paper` sets the paper's.
    fn from_str(text: &str) -> Result<Self, AtomConfigError> {
        let mut config = Self::default();
        for word in text.split(',').map(str::trim) {
            let error = || AtomConfigError(word.to_owned());
            if word == "paper" {
                config = Self::paper();
                continue;
            }
            let (key, value) = word.split_once('=').map_or((word, Value::Bool(true)), |(k, v)| (k, settings::value(v)));
            let mut keys = serde_json::to_value(config).map_err(|_| error())?;
            // Switches take no value here; other settings need one.
            match keys.get_mut(key) {
                Some(old) if old.is_boolean() != word.contains('=') => *old = value,
                _ => return Err(error()),
            }
            config = Self::deserialize(keys).map_err(|_| error())?;
        }
        Ok(config)
    }
}

fn turn<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    settings::duration(from, &(Duration::from_millis(10)..=Duration::from_secs(86_400)))
}

fn execute<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        value => turn(value).map(Some).map_err(D::Error::custom),
    }
}

fn rounds<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    settings::within(u32::deserialize(from)?, &(1..=1_000))
}

fn classes<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    settings::within(usize::deserialize(from)?, &(2..=10_000))
}

fn settle<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    settings::within(settings::fraction(from)?, &(0.0..=0.9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_bounded() {
        let usual = AtomConfig::default();
        assert_eq!("turn=2s,rounds=3".parse(), Ok(AtomConfig { turn: Duration::from_secs(2), rounds: 3, ..usual }));
        assert_eq!("settle=25%, all,kernel".parse(), Ok(AtomConfig { settle: 0.25, all: true, kernel: true, ..usual }));
        assert_eq!("paper".parse(), Ok(AtomConfig::paper()));
        let again = Some(Duration::from_secs(3_600));
        assert_eq!(
            "paper,classes=9,execute=60min".parse(),
            Ok(AtomConfig { classes: 9, execute: again, ..AtomConfig::paper() })
        );
        let bad = [
            "",
            "turn",
            "turn=",
            "turn=1us",
            "turn=2d",
            "rounds=0",
            "rounds=x",
            "classes=1",
            "settle=25",
            "settle=95%",
            "every",
            "all=1",
            "all=true",
        ];
        for bad in bad {
            let error = bad.parse::<AtomConfig>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{bad}' is not a setting")), "{error}");
        }
    }
}
