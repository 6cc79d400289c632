//! Cost of a round of interference detection. Prints one JSON object per line:
//! `{"bench":"interference","apps":20,"tasks":80,"round_us":…,"worst_us":…,"rows_us":…,"stored_bytes":…}`.
//!
//! `cargo bench -p cotenant-model --bench interference`. A quarter of the applications starts and stops, four tasks
//! each; a minute of rounds of 100 ms.

use cotenant_model::interference::Interference;
use cotenant_model::testing::machine;
use cotenant_model::{AppId, AppSample, Count, CpuId, Sample, Signal, TaskId, TaskInfo, TaskSample, Time, View};
use cotenant_testing::bench::Report;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let mut report = Report::new("interference");
    let topology = machine(2, 8, 8, 2);
    for apps in [20_u32, 200] {
        let infos: Vec<Arc<TaskInfo>> = (0..apps * 4)
            .map(|id| Arc::new(TaskInfo { id: TaskId(id), app: AppId(id / 4), ..TaskInfo::default() }))
            .collect();
        let runs =
            |app: u32, round: u64| !app.is_multiple_of(4) || (round / (20 + u64::from(app) % 50)).is_multiple_of(2);
        let (mut busy, mut done) = (vec![0_u64; apps as usize], vec![0_u64; apps as usize]);
        let mut table = Interference::default();
        let (mut prev, mut total, mut worst) = (Sample::default(), Duration::ZERO, Duration::ZERO);
        let rounds = 600;
        for round in 1..=rounds {
            for app in (0..apps).filter(|app| runs(*app, round)) {
                busy[app as usize] += 100_000_000;
                done[app as usize] += 100_000 + round % 7;
            }
            let task = |info: &Arc<TaskInfo>| TaskSample {
                info: info.clone(),
                cpu: Some(CpuId(info.id.0 % 256)),
                counters: [(Signal::CpuTime, Count::exact(busy[info.app.index()]))].into_iter().collect(),
                ..TaskSample::default()
            };
            let app = |id: u32| AppSample {
                id: AppId(id),
                name: format!("app{id}"),
                progress: Some(done[id as usize]),
                ..AppSample::default()
            };
            let (tasks, all) = (infos.iter().map(task).collect(), (0..apps).map(app).collect());
            let next = Sample { at: Time::from_millis(round * 100), tasks, apps: all, ..Sample::default() };
            let view = View::new(&prev, &next);
            let started = Instant::now();
            table.round(&topology, &view, &[], &[]);
            let took = started.elapsed();
            (total, worst) = (total + took, worst.max(took));
            prev = next;
        }
        let started = Instant::now();
        let rows = table.rows().len();
        let rows_us = started.elapsed().as_secs_f64() * 1e6;
        report.row(serde_json::json!({
            "apps": apps,
            "tasks": apps * 4,
            "round_us": total.as_secs_f64() * 1e6 / rounds as f64,
            "worst_us": worst.as_secs_f64() * 1e6,
            "rows_us": rows_us,
            "rows": rows,
            "experiments": table.events(),
            "stored_bytes": serde_json::to_string(&table).map_or(0, |text| text.len()),
        }));
    }
}
