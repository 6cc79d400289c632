//! The contract of policies: pure functions from what is known to what should be done. [`Policy`] is what each of
//! them keeps, [`Registry`] lists those that can be named.

mod contract;
mod registry;
pub mod settings;
mod state;

pub use contract::{DynPolicy, Needs, Policy, Refusal};
pub use registry::{Entry, Registry};
pub use settings::{NoSettings, SettingError, Settings};
pub use state::{PolicyState, State};

use crate::pin::Pin;
use crate::profile::{AppProfile, MachineProfile};
use crate::topology::Topology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a policy may know besides the view. All of it is in a recording.
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

/// The user's settings: those that the loop and every policy read, and those of single policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Recorded")]
pub struct Config {
    /// Time between decisions.
    pub interval: Duration,
    /// How far contexts are widened when applied.
    pub pin: Pin,
    /// A CPU that others keep busy for more than this fraction of an interval is not idle.
    pub foreign_busy: f64,
    /// Whether the memory of programs may be moved, too, by policies that can.
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

/// Settings as recordings hold them. Until version 0.1 those of single policies stood beside the others.
#[derive(Deserialize)]
#[serde(default)]
struct Recorded {
    interval: Duration,
    pin: Pin,
    foreign_busy: f64,
    move_pages: bool,
    settings: Settings,
    map: Option<serde_json::Value>,
    sam: Option<serde_json::Value>,
    quantum: Option<serde_json::Value>,
    atom: Option<serde_json::Value>,
    qos: Option<serde_json::Value>,
}

impl Default for Recorded {
    fn default() -> Self {
        let Config { interval, pin, foreign_busy, move_pages, settings } = Config::default();
        Self {
            interval,
            pin,
            foreign_busy,
            move_pages,
            settings,
            map: Option::None,
            sam: Option::None,
            quantum: Option::None,
            atom: Option::None,
            qos: Option::None,
        }
    }
}

impl From<Recorded> for Config {
    fn from(recorded: Recorded) -> Self {
        let Recorded { interval, pin, foreign_busy, move_pages, mut settings, map, sam, quantum, atom, qos } = recorded;
        let alone = |key: &str, value: Option<serde_json::Value>| value.map(|value| serde_json::json!({ key: value }));
        let sections = [
            ("static", alone("map", map)),
            ("sam", sam),
            ("quantum", alone("quantum", quantum)),
            ("atom", atom),
            ("qos", qos),
        ];
        for (section, value) in sections {
            if let Some(value) = value {
                settings.put(section, &value);
            }
        }
        Self { interval, pin, foreign_busy, move_pages, settings }
    }
}
