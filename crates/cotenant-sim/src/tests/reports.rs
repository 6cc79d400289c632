//! Progress reported by programs.

use super::scenario;
use crate::scenario::Scenario;
use cotenant_model::signal::Signal;
use std::collections::BTreeMap;

const TEXT: &str = "machine = 'two'\nrestart = true\npolicy = { interval_ms = 10 }\n\
    [[app]]\nprogram = 'mcf06'\nthreads = 3\nwork_s = 0.3\nruns = 3\n[[app]]\nprogram = 'cpu'\nthreads = 2\nwork_s = 1\n";

fn with(observation: &str) -> String {
    format!("observation = {{ {observation} }}\n{TEXT}")
}

/// Thousands of instructions over all threads and runs, whichever threads are there.
#[test]
fn exact_reports_count_the_instructions_of_all_runs() {
    let s = scenario(&with("progress_noise = 0"));
    let policy = cotenant_policies::standard().make("mas", &s.config).unwrap();
    let (mut reported, mut counted) = (BTreeMap::new(), BTreeMap::new());
    let mut runs = BTreeMap::<u32, u64>::new();
    s.run(&*policy, s.kernel, 1, |round| {
        for app in &round.sample.apps {
            let before = reported.insert(app.id, app.progress.unwrap());
            assert!(before.is_none_or(|before| before <= app.progress.unwrap()));
        }
        for task in &round.sample.tasks {
            runs.insert(task.info.id.0, task.info.start_ticks);
            let (_, count) = task.counters.iter().find(|(signal, _)| *signal == Signal::Instructions).unwrap();
            counted.insert((task.info.app, task.info.id), count.value);
        }
    })
    .unwrap();
    assert!(runs.len() > 3 * 3 + 2, "{} threads: runs begin anew", runs.len());
    for (app, reported) in reported {
        let counted: u64 = counted.iter().filter(|((of, _), _)| *of == app).map(|(_, n)| n / 1_000).sum();
        // What a thread did after its last sample was not counted.
        let missing = 1.0 - counted as f64 / reported as f64;
        assert!((-1e-3..0.05).contains(&missing), "{app:?}: {counted} of {reported}");
    }
}

#[test]
fn what_is_reported_does_not_change_what_happens() {
    let run = |s: &Scenario| {
        let policy = cotenant_policies::standard().make("mas", &s.config).unwrap();
        s.run(&*policy, s.kernel, 1, |_| ()).unwrap()
    };
    let wrong = "progress_noise = 0.3, progress_outliers = 0.2, progress_jump = 0.3, progress_jump_every_s = 0.2";
    let outcomes = ["", "progress_noise = 0", wrong].map(|observation| run(&scenario(&with(observation))));
    assert!(outcomes[0] == outcomes[1] && outcomes[0] == outcomes[2]);
}

#[test]
fn without_the_key_nothing_is_reported_and_the_other_keys_need_it() {
    let s = scenario(TEXT);
    assert_eq!(s.observation.progress, None);
    let why = |observation: &str| Scenario::parse(&with(observation), super::machine).unwrap_err().to_string();
    let lone = why("progress_jump = 0.1");
    assert_eq!(lone, "1:33: progress_jump says how programs report progress; give progress_noise, too");
    assert!(
        why("progress_noise = 2").contains("progress_noise of the observation is 2"),
        "{}",
        why("progress_noise = 2")
    );
}
