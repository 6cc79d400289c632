//! Prior knowledge about applications.

#[cfg(doc)]
use super::Contentiousness;
use super::measured::{AppStamp, Corun, MissCurve, Pressure, Score};
use crate::parse::Located;
use crate::{Count, Sample, Signal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Profile of an application, measured alone (Tang §4.1, `ReSense` §2.2). All of it is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppProfile {
    /// Bus transactions, or lines to and from memory, per millisecond and thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_per_ms: Option<f64>,
    /// Fraction of LLC requests to lines in shared state, 0–1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<f64>,
    /// LLC misses per millisecond × (1 − sharing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint_per_ms: Option<f64>,
    /// Whether the application is the latency-sensitive one, P.
    #[serde(default)]
    pub latency_sensitive: bool,
    /// Weight of its distance to memory relative to others, 0 or more; default 1 (Tumanov et al. §5.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Threads that run at the same time, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Seconds of a run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_s: Option<f64>,
    /// Loss of speed (0–1) beside co-runners with which it draws the average memory traffic of a batch's jobs (TPDS
    /// §4.4). Without it, the batch's own traffic and `degradation` give the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_traffic_loss: Option<f64>,
    /// Events of one thread per second of its CPU time, measured where they can be counted; used where the machine
    /// cannot count a signal, see [`stand_in`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_cpu_s: BTreeMap<Signal, f64>,
    /// Cache size, bytes, beyond which more brings little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint_bytes: Option<u64>,
    /// Sensitivity vector (`ReSense` §2.2): one score per shared resource, by its name (`docs/reference/profiles.md`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sensitivity: BTreeMap<String, Score>,
    /// Mean loss that it causes to the co-runners of [`AppProfile::corun`] (Tang §5.2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentiousness: Option<f64>,
    /// The loss that it causes by the machine's model, from the lines that it brings into caches ([`Contentiousness`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentiousness_model: Option<f64>,
    /// Mean loss that it suffers from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corun_sensitivity: Option<f64>,
    /// With each program of `SmashBench`, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub corun: BTreeMap<String, Corun>,
    /// Under background traffic, by the level at which it arrives; in ascending order of traffic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub degradation: BTreeMap<String, Vec<Pressure>>,
    /// Misses by cache size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<MissCurve>,
    /// Machine and program of the measurement; not used by policies and recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Box<AppStamp>>,
}

impl AppProfile {
    /// The score of a resource with any of these names, the first one first.
    pub fn score<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<f64> {
        names.into_iter().find_map(|name| self.sensitivity.get(name)).map(|score| score.score)
    }

    /// This profile updated by another measurement: its values replace the old ones, the rest stays. If the program or
    /// the machine has changed, only values from the user stay.
    #[must_use]
    pub fn updated(self, newer: Self) -> Self {
        let changed = match (&self.stamp, &newer.stamp) {
            (Some(then), Some(now)) => !then.differences(now).is_empty(),
            _ => false,
        };
        if changed {
            let latency_sensitive = self.latency_sensitive || newer.latency_sensitive;
            return Self { latency_sensitive, weight: newer.weight.or(self.weight), ..newer };
        }
        Self {
            bus_per_ms: newer.bus_per_ms.or(self.bus_per_ms),
            sharing: newer.sharing.or(self.sharing),
            footprint_per_ms: newer.footprint_per_ms.or(self.footprint_per_ms),
            latency_sensitive: self.latency_sensitive || newer.latency_sensitive,
            weight: newer.weight.or(self.weight),
            threads: newer.threads.or(self.threads),
            alone_s: newer.alone_s.or(self.alone_s),
            average_traffic_loss: newer.average_traffic_loss.or(self.average_traffic_loss),
            footprint_bytes: newer.footprint_bytes.or(self.footprint_bytes),
            contentiousness: newer.contentiousness.or(self.contentiousness),
            contentiousness_model: newer.contentiousness_model.or(self.contentiousness_model),
            corun_sensitivity: newer.corun_sensitivity.or(self.corun_sensitivity),
            per_cpu_s: joined(self.per_cpu_s, newer.per_cpu_s),
            sensitivity: joined(self.sensitivity, newer.sensitivity),
            corun: joined(self.corun, newer.corun),
            degradation: joined(self.degradation, newer.degradation),
            misses: newer.misses.or(self.misses),
            stamp: newer.stamp.or(self.stamp),
        }
    }
}

/// A map with updates.
fn joined<K: Ord, V>(mut old: BTreeMap<K, V>, new: BTreeMap<K, V>) -> BTreeMap<K, V> {
    old.extend(new);
    old
}

/// Fills in signals that a host could not count, for tasks whose application has [`AppProfile::per_cpu_s`]: rate × CPU
/// time. Counted values are never replaced, and tasks with unknown CPU time are skipped. Returns the affected
/// applications.
pub fn stand_in<'a>(sample: &mut Sample, profiles: &'a BTreeMap<String, AppProfile>) -> BTreeSet<&'a str> {
    let mut concerned = BTreeSet::new();
    for task in &mut sample.tasks {
        let app = sample.apps.iter().find(|app| app.id == task.info.app);
        let Some((name, profile)) = app.and_then(|app| profiles.get_key_value(&app.name)) else { continue };
        let Some(time) = task.counters.get(Signal::CpuTime) else { continue };
        for (&signal, rate) in &profile.per_cpu_s {
            if task.counters.get(signal).is_none() {
                task.counters.set(signal, Count::exact((time.value as f64 * 1e-9 * rate).round() as u64));
                concerned.insert(name.as_str());
            }
        }
    }
    concerned
}

/// The version of files of profiles that this program writes, and the newest that it reads.
pub const VERSION: i64 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfilesFile {
    version: Option<i64>,
    #[serde(default)]
    app: BTreeMap<String, AppProfile>,
}

/// Parses profiles of applications: TOML, one table `[app.NAME]` each, with the fields of [`AppProfile`].
///
/// # Errors
/// [`Located`] on malformed TOML, unknown keys, a newer version, negative or infinite rates, and shares outside 0–1.
pub fn parse_apps(text: &str) -> Result<BTreeMap<String, AppProfile>, Located> {
    let file: ProfilesFile = toml::from_str(text).map_err(|e| Located::of_toml(text, &e))?;
    if let Some(version) = file.version.filter(|version| !(1..=VERSION).contains(version)) {
        let what = format!("version {version} is not known, {VERSION} is; use a newer cotenant");
        return Err(Located::at_key(text, &["version"], what));
    }
    for (name, app) in &file.app {
        let any = (f64::MAX, "finite and not negative");
        let share = (1.0, "between 0 and 1");
        let numbers = [
            ("bus_per_ms", app.bus_per_ms, any),
            ("sharing", app.sharing, share),
            ("footprint_per_ms", app.footprint_per_ms, any),
            ("weight", app.weight, any),
            ("alone_s", app.alone_s, any),
            ("average_traffic_loss", app.average_traffic_loss, share),
        ];
        for (key, value, (most, range)) in numbers {
            if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
                let what = format!("{key} of app {name} is {value}; it must be {range}");
                return Err(Located::at_key(text, &["app", name, key], what));
            }
        }
        if app.threads == Some(0) {
            let what = format!("threads of app {name} is 0; it must be at least 1");
            return Err(Located::at_key(text, &["app", name, "threads"], what));
        }
        // Ten events per nanosecond: no core counts faster, and no count overflows in a century.
        if let Some((signal, rate)) = app.per_cpu_s.iter().find(|(_, rate)| !(0.0..=1e10).contains(*rate)) {
            let what = format!("{signal} per second of app {name} is {rate}; it must be between 0 and 1e10");
            return Err(Located::at_key(text, &["app", name, "per_cpu_s", signal.name()], what));
        }
    }
    Ok(file.app)
}

/// Writes profiles as [`parse_apps`] reads them.
pub fn write_apps(apps: &BTreeMap<String, AppProfile>) -> String {
    #[derive(Serialize)]
    struct File<'a> {
        version: i64,
        app: &'a BTreeMap<String, AppProfile>,
    }
    let text = toml::to_string(&File { version: VERSION, app: apps }).unwrap_or_else(|e| format!("# {e}\n"));
    format!("# Profiles of applications; docs/reference/profiles.md says what the keys mean.\n{text}")
}
