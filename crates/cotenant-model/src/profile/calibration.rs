//! The profile of a machine that calibration writes: TOML that people read and edit, and that `--profile` takes.

use super::machine::{MachineProfile, Thresholds};
pub use super::record::{Curve, Difference, Figure, LeftOut, Record};
pub use super::stamp::{Stamp, fingerprint, structure};

/// Writes the profile of a machine as [`crate::machine::parse_profile`] reads it.
pub fn write(profile: &MachineProfile) -> String {
    let text = toml::to_string(profile).unwrap_or_else(|e| format!("# {e}\n"));
    format!("# A machine's profile, for --profile; docs/how-to/calibrate.md says what the figures mean.\n{text}")
}

impl Record {
    fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.measured.value)
    }

    /// SAM's thresholds, if everything required was measured; with several nodes, the least bandwidth.
    pub fn thresholds(&self) -> Option<Thresholds> {
        let sockets = self.figures.iter().filter(|figure| figure.name.starts_with("socket_bandwidth_per_s"));
        Some(Thresholds {
            coherence_per_cycle: self.value("coherence_per_cycle")?,
            socket_bandwidth_per_s: sockets.map(|figure| figure.measured.value).min_by(f64::total_cmp)?,
            task_bandwidth_per_s: None,
            remote_per_cycle: self.value("remote_per_cycle"),
        })
    }

    /// The profile with this record. Values that calibration does not measure stay.
    #[must_use]
    pub fn profile(self, before: MachineProfile) -> MachineProfile {
        MachineProfile {
            source: Some(format!("cotenant calibrate, {}, on {}", self.stamp.date, self.stamp.processor)),
            clock_hz: self.value("clock_hz"),
            thresholds: self.thresholds(),
            calibration: Some(Box::new(self)),
            ..before
        }
    }
}
