//! The class of a service.

use serde::{Deserialize, Serialize};

/// The class of a service: protected, throttled, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It keeps its speed.
    High,
    /// It gives way: the rule is the consent to throttle it.
    Low,
    /// Placed, but neither throttled nor protected.
    #[default]
    Normal,
    /// It is left alone and not observed.
    Ignore,
}

impl Class {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::Ignore => "ignore",
        }
    }

    /// The class of that name; `None` for other names.
    pub fn named(text: &str) -> Option<Self> {
        [Self::High, Self::Low, Self::Normal, Self::Ignore].into_iter().find(|class| class.name() == text)
    }
}
