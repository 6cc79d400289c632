//! What is known beforehand about a machine and about applications.

pub mod calibration;
pub mod contentiousness;
mod measured;

pub use contentiousness::Contentiousness;
pub use measured::{
    AppStamp, By, Corun, Executable, Footprint, Loss, MissCurve, MissPoint, Pressure, SENSITIVE, Score, loss_at,
    loss_under, sensitive_from,
};

use crate::parse::Located;
use crate::topology::latency::{MemoryLatencies, Unfit};
use crate::{Count, Sample, Signal, Topology};
use calibration::{Record, fingerprint};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is known about a machine besides its topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineProfile {
    /// Nominal clock, Hz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Thresholds of the policies, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// What counts as high in the decision tree of `heuristic`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heuristic: Option<High>,
    /// Where the figures come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What calibration measured, and what it holds for; the figures above come from it. Recordings do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Box<Record>>,
    /// What programs cost each other here, by the lines that they bring in. Recordings do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentiousness: Option<Box<Contentiousness>>,
    /// Latencies of memory that the user wrote down; those that were measured stand in the calibration. In recordings
    /// they are the topology's distances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_latency: Option<Box<MemoryLatencies>>,
}

impl MachineProfile {
    /// This profile, with what it lacks taken from another.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            clock_hz: self.clock_hz.or(other.clock_hz),
            thresholds: self.thresholds.or(other.thresholds),
            heuristic: self.heuristic.or(other.heuristic),
            source: self.source.or(other.source),
            calibration: self.calibration.or(other.calibration),
            contentiousness: self.contentiousness.or(other.contentiousness),
            memory_latency: self.memory_latency.or(other.memory_latency),
        }
    }

    /// What of it policies go by: the figures without how they came about, and without latencies, which are the
    /// topology's distances by then.
    #[must_use]
    pub fn figures(self) -> Self {
        Self { calibration: None, contentiousness: None, memory_latency: None, ..self }
    }

    /// The machine with the memory latencies that are known of it in place of the distances that its firmware tells:
    /// those that the user wrote down, else those that were measured while its topology was the same; and why
    /// measured ones are not used, one line. `topology` is the machine as the system tells it, which is what is given
    /// back where nothing is known.
    ///
    /// # Errors
    /// Where what the user wrote is of another machine.
    pub fn measured(&self, topology: Topology) -> Result<(Topology, Option<String>), Unfit> {
        if let Some(latencies) = &self.memory_latency {
            return Ok((latencies.applied(&topology, "as the profile has them")?, None));
        }
        let record = self.calibration.as_deref();
        let Some((record, latencies)) = record.and_then(|record| Some((record, record.memory_latency.as_ref()?)))
        else {
            return Ok((topology, None));
        };
        let applied = if record.stamp.topology == fingerprint(&topology) {
            latencies.applied(&topology, &format!("measured {}", record.stamp.date)).map_err(|why| why.to_string())
        } else {
            Err("the topology was another one".to_owned())
        };
        let refused = |why| format!("the measured memory latencies are not used: {why}; calibrate again");
        Ok(match applied {
            Ok(applied) => (applied, None),
            Err(why) => (topology, Some(refused(why))),
        })
    }
}

/// From where on the decision tree of `heuristic` calls a characteristic *high* (Tang §4.1, Algorithm 1, which prints
/// no value: both belong to a machine and are calibrated; see `docs/policies/heuristic.md`). Units as in
/// [`AppProfile`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct High {
    /// [`AppProfile::sharing`] at and above which threads gain from a common last-level cache, 0–1.
    pub sharing: f64,
    /// [`AppProfile::footprint_per_ms`] at and above which threads suffer from a common last-level cache.
    pub footprint_per_ms: f64,
}

/// SAM's thresholds (ATC'15 §2.1–2.2); units are in the names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Coherence events per unhalted cycle of a task above which separating sharers costs > 5 %.
    pub coherence_per_cycle: f64,
    /// LLC misses per second of a whole socket above which its memory bandwidth is taken as exhausted.
    pub socket_bandwidth_per_s: f64,
    /// LLC misses per second of one task above which it counts as memory-bound; absent: `socket_bandwidth_per_s`
    /// divided by the cores of the socket (ours; see `docs/policies/sam.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_bandwidth_per_s: Option<f64>,
    /// Loads from remote DRAM per unhalted cycle of a task above which it is repaired; absent: stage 2 needs it and
    /// says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_per_cycle: Option<f64>,
}

/// What is known about an application, measured alone (Tang §4.1, `ReSense` §2.2). All of it is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppProfile {
    /// Bus transactions, or lines to and from memory, per millisecond and thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_per_ms: Option<f64>,
    /// Share of LLC requests to lines in shared state, 0–1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<f64>,
    /// LLC misses per millisecond × (1 − sharing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint_per_ms: Option<f64>,
    /// Whether the application is the latency-sensitive one, P.
    #[serde(default)]
    pub latency_sensitive: bool,
    /// How much its distance to its memory counts beside that of others, 0 or more; 1 where absent (Tumanov et al.
    /// §5.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Threads that run at the same time, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Seconds that it takes alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_s: Option<f64>,
    /// Loss of speed beside co-runners with which it draws as much memory traffic as the jobs of a batch do on
    /// average, 0–1 (TPDS §4.4). Where it is absent, the batch's own traffic and `degradation` tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_traffic_loss: Option<f64>,
    /// Events of one thread per second of its CPU time, measured where they can be counted: they stand in where the
    /// machine cannot count a signal, see [`stand_in`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_cpu_s: BTreeMap<Signal, f64>,
    /// Cache beyond which more of it brings little, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint_bytes: Option<u64>,
    /// Sensitivity vector (`ReSense` §2.2): one score per shared resource, by its name (`docs/reference/profiles.md`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sensitivity: BTreeMap<String, Score>,
    /// Mean loss that it causes to the co-runners of [`AppProfile::corun`] (Tang §5.2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentiousness: Option<f64>,
    /// What the machine's model says that it causes, from the lines that it brings into caches ([`Contentiousness`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentiousness_model: Option<f64>,
    /// Mean loss that it suffers from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corun_sensitivity: Option<f64>,
    /// Beside each program of `SmashBench`, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub corun: BTreeMap<String, Corun>,
    /// Under background traffic, by the level at which that arrives; in ascending order of traffic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub degradation: BTreeMap<String, Vec<Pressure>>,
    /// Misses by cache size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<MissCurve>,
    /// What it was measured on, and of what; policies and recordings do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Box<AppStamp>>,
}

/// Fills in the signals that a host could not count, for tasks whose application has [`AppProfile::per_cpu_s`]: rate
/// × CPU time. What was counted is never replaced, and a task whose CPU time is unknown gets nothing. Returns the
/// applications concerned.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AppId, TaskId};
    use crate::sample::{AppSample, TaskInfo, TaskSample};
    use std::sync::Arc;

    #[test]
    fn profiles_of_applications() {
        let text = "[app.search]\nweight = 2\nthreads = 3\nalone_s = 120\naverage_traffic_loss = 0.07\nbus_per_ms = 7_000\nsharing = 0.25\nfootprint_per_ms = 3e3\nlatency_sensitive = true\n\n[app.\"my job\"]\n";
        let apps = parse_apps(text).unwrap();
        let search = AppProfile {
            weight: Some(2.0),
            threads: Some(3),
            alone_s: Some(120.0),
            average_traffic_loss: Some(0.07),
            bus_per_ms: Some(7_000.0),
            sharing: Some(0.25),
            footprint_per_ms: Some(3_000.0),
            latency_sensitive: true,
            ..AppProfile::default()
        };
        assert_eq!(apps["search"], search);
        assert_eq!(apps["my job"], AppProfile::default());
        assert_eq!(parse_apps(""), Ok(BTreeMap::new()));
    }

    #[test]
    fn everything_survives_the_file() {
        let set = |list: &str| crate::CpuSet::parse_list(list).unwrap();
        let loss = Loss::of(&[(1.0, 1.25), (1.0, 1.3)], By::Progress).unwrap();
        let app = AppProfile {
            bus_per_ms: Some(0.1 + 0.2),
            sharing: Some(0.25),
            latency_sensitive: true,
            per_cpu_s: BTreeMap::from([(Signal::Cycles, 2e9)]),
            footprint_bytes: Some(6 << 20),
            sensitivity: BTreeMap::from([(
                "l3+node".to_owned(),
                Score::of(&[(3.0, 2.0), (3.0, 2.1)], By::Cycles, set("0-3,8-11"), set("0-7")).unwrap(),
            )]),
            contentiousness: Some(0.125),
            contentiousness_model: Some(0.2),
            corun: BTreeMap::from([("bst".to_owned(), Corun { suffers: loss.clone(), causes: Some(loss.clone()) })]),
            degradation: BTreeMap::from([(
                "memory".to_owned(),
                vec![Pressure {
                    target_per_s: 5e6,
                    reached_per_s: 4.9e6,
                    loss,
                    cpus: crate::CpuSet::parse_list("1,3").unwrap(),
                }],
            )]),
            misses: Some(MissCurve {
                by: By::Model,
                points: vec![MissPoint { level: 3, bytes: 1 << 20, ways: 16, line: 64, ratio: 0.5, mpki: 2.0 }],
                footprints: vec![Footprint { level: 3, bytes: 1 << 20, or_more: true }],
            }),
            stamp: Some(Box::new(AppStamp { command: vec!["a b".into(), "\"é".into()], ..AppStamp::default() })),
            ..AppProfile::default()
        };
        let apps = BTreeMap::from([("my \"job\".é".to_owned(), app)]);
        let text = write_apps(&apps);
        assert_eq!(parse_apps(&text).as_ref(), Ok(&apps), "{text}");
        assert!(serde_json::to_string(&apps).is_ok_and(|json| serde_json::from_str(&json).ok() == Some(apps)));
    }

    #[test]
    fn errors_name_the_place_and_the_remedy() {
        let cases = [
            ("[app.a]\nsharing = 1.5", "2:11: sharing of app a is 1.5; it must be between 0 and 1"),
            ("[app.a]\nbus_per_ms = -1", "2:14: bus_per_ms of app a is -1; it must be finite and not negative"),
            (
                "[app.a]\n  footprint_per_ms = inf",
                "2:22: footprint_per_ms of app a is inf; it must be finite and not negative",
            ),
            (
                "[app.a]\nbus = 1",
                "2:1: unknown field `bus`, expected one of `bus_per_ms`, `sharing`, `footprint_per_ms`, `latency_sensitive`, `weight`, `threads`, `alone_s`, `average_traffic_loss`, `per_cpu_s`, `footprint_bytes`, `sensitivity`, `contentiousness`, `contentiousness_model`, `corun_sensitivity`, `corun`, `degradation`, `misses`, `stamp`",
            ),
            (
                "[app.a.sensitivity.l2]\nscore = nan\nlow = 0\nhigh = 0\nby = 'time'",
                "2:9: NaN is given; it must be finite",
            ),
            (
                "[app.a.sensitivity.l2]\nscore = 1\nlow = 0\nhigh = 0\nby = 'feel'",
                "5:6: unknown variant `feel`, expected one of `cycles`, `progress`, `cpu_time`, `time`, `model`",
            ),
            ("version = 2", "1:11: version 2 is not known, 1 is; use a newer cotenant"),
            ("[app.a.per_cpu_s]\ninter = -1", "2:9: inter per second of app a is -1; it must be between 0 and 1e10"),
            ("[apps.a]\n", "1:2: unknown field `apps`, expected `version` or `app`"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_apps(text).unwrap_err().to_string(), message, "{text}");
        }
        assert_eq!(parse_apps("[app.a]\nsharing = ").unwrap_err().line, 2);
        assert!(parse_apps("[app.a]\nsharing = nan").is_err());
    }

    #[test]
    fn rates_stand_in_for_what_cannot_be_counted_and_for_nothing_else() {
        let profiles = parse_apps("[app.a.per_cpu_s]\ncycles = 2e9\ninter = 1e6\n").unwrap();
        let task = |id: u32, app: u32, counts: &[(Signal, u64)]| TaskSample {
            info: Arc::new(TaskInfo { id: TaskId(id), app: AppId(app), ..TaskInfo::default() }),
            counters: counts.iter().map(|&(s, n)| (s, Count::exact(n))).collect(),
            ..TaskSample::default()
        };
        let app = |id: u32, name: &str| AppSample { id: AppId(id), name: name.to_owned(), ..AppSample::default() };
        let ran = (Signal::CpuTime, 500_000_000);
        let mut sample = Sample {
            tasks: vec![
                task(1, 1, &[ran]),
                task(2, 1, &[ran, (Signal::Cycles, 7)]),
                task(3, 1, &[]),
                task(4, 2, &[ran]),
            ],
            apps: vec![app(1, "a"), app(2, "b")],
            ..Sample::default()
        };
        assert_eq!(stand_in(&mut sample, &profiles), BTreeSet::from(["a"]));
        let seen = |i: usize, s| sample.tasks[i].counters.get(s).map(|c| c.value);
        assert_eq!((seen(0, Signal::Cycles), seen(0, Signal::Inter)), (Some(1_000_000_000), Some(500_000)));
        assert_eq!((seen(1, Signal::Cycles), seen(1, Signal::Inter)), (Some(7), Some(500_000)), "a count stays");
        assert_eq!((seen(2, Signal::Cycles), seen(3, Signal::Cycles)), (None, None), "no CPU time; no profile");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(\\[app\\.[a-c]\\]|sharing|bus_per_ms|latency_sensitive|=|\n| |[0-9.eE+-]{1,4}|true|nan|é|\\PC){0,12}") {
            if let Err(e) = parse_apps(&text) {
                proptest::prop_assert!(e.line >= 1 && e.column >= 1 && !e.message.is_empty());
            }
        }
    }
}
