//! The class of a service.

use serde::{Deserialize, Serialize};

/// What a rule grants a service, or takes from it.
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
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::Ignore => "ignore",
        }
    }

    /// The class of that name; `None` where there is no such class.
    pub fn named(text: &str) -> Option<Self> {
        [Self::High, Self::Low, Self::Normal, Self::Ignore].into_iter().find(|class| class.name() == text)
    }
}
