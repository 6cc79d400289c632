//! Inputs of policies besides the view, and user settings.

use super::settings::Settings;
use crate::Topology;
use crate::pin::Pin;
use crate::profile::{AppProfile, MachineProfile};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Inputs of a policy besides the view. All of it is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Ctx<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Thresholds and clock of the machine.
    pub machine: &'a MachineProfile,
    /// Profiles of applications, by name.
    pub apps: &'a BTreeMap<String, AppProfile>,
    /// The user's settings.
    pub config: &'a Config,
}

/// User settings: common ones of the loop and all policies, and those of single policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Recorded")]
pub struct Config {
    /// Time between decisions.
    pub interval: Duration,
    /// The CPUs around the target that a placement allows.
    pub pin: Pin,
    /// A CPU busy with foreign work for more than this fraction of an interval is not idle.
    pub foreign_busy: f64,
    /// Whether policies may also move the memory of programs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub move_pages: bool,
    /// Settings of single policies.
    #[serde(skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            pin: Pin::default(),
            foreign_busy: 0.1,
            move_pages: false,
            settings: Settings::default(),
        }
    }
}

/// Settings in a recording. Until version 0.1, settings of single policies were beside the common ones.
#[derive(Deserialize)]
struct Recorded {
    interval: Option<Duration>,
    pin: Option<Pin>,
    foreign_busy: Option<f64>,
    #[serde(default)]
    move_pages: bool,
    #[serde(default)]
    settings: Settings,
    #[serde(flatten)]
    beside: BTreeMap<String, Value>,
}

impl From<Recorded> for Config {
    fn from(recorded: Recorded) -> Self {
        let usual = Self::default();
        let Recorded { mut settings, beside, .. } = recorded;
        for (key, value) in beside.into_iter().filter(|(_, value)| !value.is_null()) {
            match key.as_str() {
                "map" => settings.put("static", &json!({ "map": value })),
                "quantum" => settings.put("quantum", &json!({ "quantum": value })),
                "sam" | "atom" | "qos" => settings.put(&key, &value),
                _ => {} // of a newer version
            }
        }
        Self {
            interval: recorded.interval.unwrap_or(usual.interval),
            pin: recorded.pin.unwrap_or(usual.pin),
            foreign_busy: recorded.foreign_busy.unwrap_or(usual.foreign_busy),
            move_pages: recorded.move_pages,
            settings,
        }
    }
}
