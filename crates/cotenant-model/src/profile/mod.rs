//! Prior knowledge about a machine and about applications.

mod app;
pub mod calibration;
pub mod contentiousness;
mod machine;
mod measured;
mod record;
mod stamp;

pub use app::{AppProfile, VERSION, parse_apps, stand_in, write_apps};
pub use contentiousness::Contentiousness;
pub use machine::{High, MachineProfile, Thresholds};
pub use measured::{
    AppStamp, By, Corun, Executable, Footprint, Loss, MissCurve, MissPoint, Pressure, SENSITIVE, Score, loss_at,
    loss_under, sensitive_from,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AppId, TaskId};
    use crate::sample::{AppSample, TaskInfo, TaskSample};
    use crate::{Count, Sample, Signal};
    use std::collections::{BTreeMap, BTreeSet};
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

    /// Holds measure/profiles.
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
