//! The throttling means: places, naps, limits.

use super::*;
use crate::qos::actuation::ladder::LAST;
use crate::qos::actuation::steps::{LONG_TURN, TURN, turn};

/// Holds qos/means.
#[test]
fn another_place_comes_before_naps() {
    let mut plant = Plant::new(0.4, 6);
    plant.topology = machine(2, 1, 2, 1);
    plant.allowed = Some(plant.topology.usable().clone());
    let mut config = config("tracking", "progress", false);
    config.pin = cotenant_model::pin::Pin::Cpu;
    let napping = run(&mut plant, &config);
    assert!(napping.1 < 0.4, "without: {}", napping.1);

    let mut plant = Plant { topology: plant.topology, ..Plant::new(0.4, 16) };
    plant.allowed = Some(plant.topology.usable().clone());
    plant.high_ends = Time::from_secs(15);
    config = with(config, |qos| qos.place = true);
    let (_, utilisation, state) = run(&mut plant, &config);
    let quality = first(&state, &config).mean().unwrap() / state.alone[0].unwrap();
    assert!(quality > 0.95 && utilisation > 0.9, "{quality} {utilisation}");
    let moves: Vec<&Action> = plant.actions.iter().filter(|action| action.task().is_some()).collect();
    let to = plant.topology.packages()[1].clone();
    let task = TaskId(1);
    assert_eq!(moves, [&Action::Place { task, contexts: to }, &Action::Release { task }], "and back in the end");
    let why: Vec<&str> = plant.reasons.iter().filter_map(|reason| reason.strip_prefix("place: ")).collect();
    let [away, back] = why[..] else { panic!("{why:?}") };
    // With the deciding figure: about the allowed tenth, plus or minus the account.
    let figure = away.strip_suffix("; contention: away from the programs of high priority").unwrap();
    assert!(figure.starts_with("app 0 lost ") && figure.contains(" of its speed alone "), "{figure}");
    assert_eq!(back, "no goal is to be kept any more");
    assert_eq!(state.away.place(), None);

    // Only within its own mask: CPU 2, and otherwise no CPU.
    for (mask, to) in [("0,2", Some("2")), ("0-1", None)] {
        let mut plant = Plant { topology: plant.topology.clone(), ..Plant::new(0.4, 6) };
        plant.mask = CpuSet::parse_list(mask).ok();
        plant.allowed.clone_from(&plant.mask);
        run(&mut plant, &config);
        let moves: Vec<&Action> = plant.actions.iter().filter(|action| action.task().is_some()).collect();
        let expected = to.map(|to| Action::Place { task, contexts: CpuSet::parse_list(to).unwrap() });
        assert_eq!(moves, expected.iter().collect::<Vec<_>>(), "{mask}");
        assert!(plant.actions.iter().any(|action| matches!(action, Action::Nap { .. })));
    }
}

#[test]
fn nobody_is_kept_away_from_one_who_is_silent() {
    let mut plant = Plant { topology: machine(2, 1, 2, 1), silent_s: 6.0..16.0, ..Plant::new(0.4, 16) };
    plant.allowed = Some(plant.topology.usable().clone());
    let mut config = with(config("tracking", "progress", false), |qos| {
        (qos.place, qos.patience, qos.silence) = (true, Duration::ZERO, Duration::ZERO);
    });
    config.pin = cotenant_model::pin::Pin::Cpu;
    let (.., state) = run(&mut plant, &config);
    let moves: Vec<&Action> = plant.actions.iter().filter(|action| action.task().is_some()).collect();
    assert!(matches!(moves[..], [Action::Place { .. }, Action::Release { .. }]), "{moves:?}");
    assert!(state.away.place().is_none() && plant.reasons.contains(&"place: no reading comes any more".to_owned()));
}

#[test]
fn a_thread_that_comes_later_goes_where_its_program_is() {
    let mut plant = Plant { topology: machine(2, 1, 2, 1), another_at: Time::from_secs(3), ..Plant::new(0.4, 6) };
    plant.allowed = Some(plant.topology.usable().clone());
    let mut config = with(config("tracking", "progress", false), |qos| qos.place = true);
    config.pin = cotenant_model::pin::Pin::Cpu;
    run(&mut plant, &config);
    let contexts = plant.topology.packages()[1].clone();
    let [first, later] = [1, 2].map(|id| Action::Place { task: TaskId(id), contexts: contexts.clone() });
    let moves: Vec<&Action> = plant.actions.iter().filter(|action| action.task().is_some()).collect();
    assert_eq!(moves, [&first, &later], "each of them once");
    let why = "place: as the rest of its program: away from the programs of high priority";
    assert!(plant.reasons.iter().any(|reason| reason == why), "{:?}", plant.reasons);
}

/// Promise qos/means: Milder means come first: the background, free CPUs and other places before pauses, and limits
/// where pauses do not help.
#[test]
fn limits_come_where_naps_are_not_obeyed_or_do_not_help() {
    use Outcome::{Applied, Denied, NotThisMachine};
    let cases = [
        ([Applied, Applied], 1.0, 0.3, 0.9, None),
        ([Denied, Applied], 1.0, 0.3, 0.9, Some(Climbed::Refused)),
        ([Applied, Applied], 0.3, 0.3, 0.9, Some(Climbed::Disobeyed)),
        ([Applied, Applied], 1.0, 0.9, 0.99, Some(Climbed::Missed)),
        ([NotThisMachine, Denied], 1.0, 0.3, 0.9, None),
    ];
    for (outcomes, obeys, loss, goal, expected) in cases {
        let mut plant = Plant { outcomes, obeys, ..Plant::new(loss, 60) };
        plant.allowed = Some(plant.topology.usable().clone());
        let mut config = Config { interval: MS(25), ..config("tracking", "progress", false) };
        config =
            with(config, |qos| (qos.climb, qos.controller) = (true, Controller::preset("tracking", goal).unwrap()));
        let (quality, _, state) = run(&mut plant, &config);
        let case = format!("{outcomes:?}, {obeys} obeyed, {loss} lost: {quality} kept");
        assert_eq!(state.ladder.climbed(), expected, "{case}");
        let limits = plant.actions.iter().filter(|action| matches!(action, Action::Limit { .. })).count();
        assert_eq!(limits > 0, expected.is_some() || outcomes[0] != Applied, "{case}");
        if expected != Some(Climbed::Missed) && outcomes[1] == Applied {
            // It takes 6 s to detect that naps are not obeyed.
            let least = if expected == Some(Climbed::Disobeyed) { 0.86 } else { 0.88 };
            assert!((least..0.92).contains(&quality), "{case}");
        }
        if outcomes[1] != Applied {
            assert!(limits <= 4, "{limits} limits were tried; {case}");
        }
        // They give the reason for limits, and for their end after a refusal.
        let said = |of: fn(&Action) -> bool| -> Vec<&str> {
            let all = plant.actions.iter().zip(&plant.reasons);
            all.filter(|(action, _)| of(action)).map(|(_, reason)| reason.as_str()).collect()
        };
        let limited = said(|action| matches!(action, Action::Limit { cpu_permille: Some(_), .. }));
        if let Some(climbed) = expected.or((limits > 0).then_some(Climbed::Refused)) {
            assert!(
                limited.iter().all(|why| why.ends_with(&format!("; limits, since {}", climbed.text()))),
                "{case}: {limited:?}"
            );
        }
        let lifted = said(|action| matches!(action, Action::LimitCaches { permille: None, .. }));
        assert_eq!(
            lifted.iter().any(|why| why.ends_with("; limits were refused")),
            outcomes[1] != Applied,
            "{case}: {lifted:?}"
        );
    }
}

/// Holds qos/limits.
#[test]
fn the_last_rung_limits_caches_too() {
    use Outcome::{Applied, Denied, NotThisMachine};
    // Naps are refused; at a loss of 0.9 the duty that keeps the goal is 0.11, which crosses a tenth over time.
    let came = |limits: Outcome, of_caches, caches: bool| {
        let outcomes = [Denied, limits];
        let mut plant = Plant { outcomes, of_caches, ..Plant::new(0.9, 30) };
        let mut config = Config { interval: MS(25), ..config("tracking", "progress", false) };
        config = with(config, |qos| (qos.climb, qos.limits) = (!caches, caches.then_some(Limits::Caches)));
        let (quality, _, state) = run(&mut plant, &config);
        let of_cpu = |action: &Action| match action {
            Action::Limit { cpu_permille: Some(cpu), .. } => Some(cpu / 2), // of two CPUs
            _ => None,
        };
        let of_caches = |action: &Action| match action {
            Action::LimitCaches { permille: Some(permille), .. } => Some(*permille),
            _ => None,
        };
        let cpu: Vec<u32> = plant.actions.iter().filter_map(of_cpu).collect();
        let caches: Vec<u32> = plant.actions.iter().filter_map(of_caches).collect();
        (quality, cpu, caches, state.ladder.limits())
    };
    // Caches in addition to CPU time at a tenth or less, with the same share.
    let (_, cpu, caches, climbed) = came(Applied, Applied, false);
    assert!(climbed && cpu.iter().any(|permille| *permille > LAST), "{cpu:?}");
    let last: Vec<u32> = cpu.iter().copied().filter(|permille| *permille <= LAST).collect();
    assert_eq!(caches, last);
    // If caches cannot be limited, that is tried once.
    let (quality, cpu, caches, _) = came(Applied, NotThisMachine, false);
    assert!(cpu.len() > 5 && caches.len() == 1 && quality > 0.88, "{quality} {cpu:?} {caches:?}");
    // If CPU time cannot, that is tried once, and caches alone keep the goal.
    let (quality, cpu, caches, climbed) = came(NotThisMachine, Applied, false);
    assert!(climbed && cpu.len() == 1 && caches.iter().any(|permille| *permille > LAST), "{cpu:?} {caches:?}");
    assert!((0.88..0.93).contains(&quality), "{quality}");
    // Also if the user chose caches.
    let (_, cpu, caches, _) = came(Applied, Applied, true);
    assert!(cpu.is_empty() && !caches.is_empty());
    let (_, cpu, caches, climbed) = came(NotThisMachine, Denied, false);
    assert!(!climbed && cpu.len() <= 2 && caches.len() <= 2, "{cpu:?} {caches:?}");
}

#[test]
fn turns_are_long_enough_to_be_obeyed() {
    assert_eq!(turn(0.5, TURN), (MS(10), MS(10)));
    assert_eq!(turn(0.75, TURN), (MS(15), MS(5)));
    assert_eq!(turn(0.05, TURN), (MS(5), MS(95)));
    assert_eq!(
        [0.5, 0.05, 0.99].map(|duty| turn(duty, LONG_TURN)),
        [(MS(100), MS(100)), (MS(10), MS(190)), (MS(495), MS(5))]
    );
    for (permille, length) in (1..1000).flat_map(|permille| [(permille, TURN), (permille, LONG_TURN)]) {
        let duty = f64::from(permille) / 1e3;
        let (run, nap) = turn(duty, length);
        let case = format!("{permille}: {run:?} {nap:?}");
        assert!(nap >= MS(4) && nap <= LONGEST_NAP + Duration::from_nanos(1), "{case}");
        // The longest naps are not cut: between them is less than the shortest run.
        assert!(run >= MS(4) || nap >= LONGEST_NAP.mul_f64(0.999), "{case}");
        assert!(
            run == Duration::from_secs(1) || (run.as_secs_f64() / (run + nap).as_secs_f64() - duty).abs() < 1e-6,
            "{case}"
        );
    }
}

/// Programs that are not managed fill what the first program leaves: no pause would tell anything, and the second one
/// has in the background what there is. When they are gone, its speed alone is measured.
/// Holds qos/innocent.
#[test]
fn where_others_fill_the_machine_nobody_pauses() {
    let run = |others: f64| {
        let mut plant = Plant { others, ..Plant::new(0.3, 60) };
        plant.allowed = Some(plant.topology.usable().clone());
        let config = Config { interval: MS(25), ..config("steady", "p99", false) };
        let config = with(config, |qos| qos.climb = true);
        let (_, _, state) = super::run(&mut plant, &config);
        let naps = plant.actions.iter().filter_map(|action| match action {
            Action::Nap { until, .. } => Some(*until),
            _ => None,
        });
        (naps.max().unwrap_or_default(), plant.background, state.alone.iter().any(Option::is_some))
    };
    let (last, background, known) = run(0.95);
    assert!(last < Time::from_secs(2) && background && !known, "{last:?}: before that is known it measures");
    let (last, _, known) = run(0.5);
    assert!(last > Time::from_secs(2) && known, "{last:?}");
}
