//! Goals are kept with any source of speed.

use super::phase::{Figure, Held, Phase, Why};
use super::settings::High;
use super::*;

/// Holds qos/goal.
#[test]
fn the_goal_is_kept_by_naps() {
    // Loss 0.3: naps of exec · (9 · 3/7 − 1) = 20/7 · exec, by equation 6.1; so the other program runs for 7/27 of the
    // time, and the speed is 0.922. With the shortest naps, 2 · exec: a third, and 0.9. The sampling interval does not
    // matter, because the ends of phases are sampled.
    for (controller, every, duty) in [
        ("conservative-90", 1, 7.0 / 27.0),
        ("conservative-90", 25, 7.0 / 27.0),
        ("relaxed-90", 1, 7.0 / 27.0),
        ("targeted", 1, 7.0 / 27.0),
        ("targeted", 25, 7.0 / 27.0),
        ("targeted-by-speed", 25, 1.0 / 3.0),
        ("tracking", 25, 1.0 / 3.0),
    ] {
        let mut plant = Plant::new(0.3, 5);
        let config = Config { interval: MS(every), ..config(controller, "progress", false) };
        let (quality, utilisation, state) = run(&mut plant, &config);
        assert!((quality - (1.0 - 0.3 * duty)).abs() < 0.02, "{controller}: {quality}");
        assert!((utilisation - duty).abs() < 0.06, "{controller}: {utilisation}");
        if controller == "tracking" {
            assert!(plant.rounds < 400, "{} rounds in 5 s", plant.rounds);
        }
        // Reported and real values agree.
        let told = first(&state, &config).mean().unwrap() / state.alone[0].unwrap();
        assert!((told - quality).abs() < 0.01, "{controller}: {told} {quality}");
        let duty = state.total.duty_s / state.total.seconds;
        assert!((duty - utilisation).abs() < 0.01, "{controller}: {duty} {utilisation}");
    }
}

#[test]
fn a_program_that_is_not_disturbed_leaves_the_others_alone() {
    let mut plant = Plant::new(0.01, 5);
    let (quality, utilisation, _) = run(&mut plant, &config("targeted", "progress", false));
    assert!(quality > 0.99 && utilisation > 0.9, "{quality} {utilisation}");
    assert!(plant.actions.iter().all(|action| matches!(action, Action::Nap { .. })));
}

/// The controller's goal is 0.9, for another program.
#[test]
fn a_program_is_judged_by_its_own_goal() {
    let run = |controller: &str, metric, goal| {
        let mut plant = Plant::new(0.3, 30);
        let config = with(config(controller, metric, false), |qos| qos.high[0].goal = Some(goal));
        let (quality, ..) = run(&mut plant, &config);
        (quality, plant.reasons)
    };
    for (goal, kept) in [(0.9, 0.9), (0.8, 0.8), (0.65, 0.7)] {
        let (quality, _) = run("tracking", "progress", goal);
        assert!((quality - kept).abs() < 0.01, "{goal}: {quality}");
    }
    // It finds a duty of a half, and reports it in the program's own figures.
    let (quality, reasons) = run("steady", "p99", 0.8);
    let says = "controller: app 0 kept 85.0 % of its speed alone ≥ 80.0 %; at the goal, duty 0.500";
    assert!((0.84..0.88).contains(&quality) && reasons.iter().any(|reason| reason == says), "{quality}");
}

/// Holds record/why.
#[test]
fn orders_say_why() {
    // A check and its run; Δ = 0.3 is contention: naps of 5.7 ms between runs of 2 ms.
    let mut plant = Plant::new(0.3, 1);
    run(&mut plant, &config("conservative-90", "progress", false));
    let mut reasons = plant.reasons.iter().map(String::as_str);
    assert_eq!(reasons.next(), Some("controller: looks for contention"));
    // 1,400 of 2,000 units, give or take one.
    let expected = ["30.0", "30.1", "29.9"]
        .map(|lost| format!("controller: app 0 lost {lost} % of its speed alone ≥ 4.0 %; contention"));
    assert!(reasons.all(|reason| expected.iter().any(|right| right == reason)), "{:?}", plant.reasons);
    assert!(plant.reasons.len() > 100);
    // In pauses and turns, and at the end, when no program is protected any more: a nap in progress ends.
    let mut plant = Plant { high_ends: Time::from_millis(250), ..Plant::new(0.3, 1) };
    run(&mut plant, &config("tracking", "progress", false));
    plant.reasons.dedup();
    let expected =
        ["a pause that measures the speed alone", "runs between naps, duty 0.100", "no goal is to be kept any more"];
    assert_eq!(plant.reasons, expected.map(|why| format!("controller: {why}")));
}

/// Holds qos/means.
#[test]
fn latencies_that_a_program_reports_are_kept() {
    // Loss 0.2: a millisecond alone is 1.25 ms beside the other: the 99th percentile shows it while the other runs for
    // 1 % of the time, so that the result is about the least duty; the median only from half of the time on.
    for (metric, least, most) in [("latency_p99_s", 0.005, 0.03), ("latency_p50_s", 0.3, 0.6)] {
        let mut plant = Plant::new(0.2, 100);
        let (_, utilisation, state) = run(&mut plant, &config("steady", metric, false));
        assert!((least..most).contains(&utilisation), "{metric}: {utilisation}");
        let alone = state.alone[0].unwrap();
        assert!((alone / 1e3 - 1.0).abs() < 0.02, "{metric}: {alone} a second");
    }
}

/// Holds qos/goal.
#[test]
fn a_latency_with_a_long_window_is_kept_by_turns_or_by_limits() {
    // Loss 0.16: the goal is kept up to a duty of 0.625, of which `steady` finds 0.5 and stays there.
    for limits in [false, true] {
        let mut plant = Plant::new(0.16, 100);
        let (quality, utilisation, state) = run(&mut plant, &config("steady", "p99", limits));
        assert!((0.9..0.95).contains(&quality), "{limits}: {quality}");
        assert!((0.4..0.52).contains(&utilisation), "{limits}: {utilisation}");
        let has_limits = plant.actions.iter().any(|action| matches!(action, Action::Limit { .. }));
        assert_eq!(has_limits, limits);
        assert!(plant.rounds < 102_000, "{limits}: {} rounds in 100 s of 1 ms each", plant.rounds);
        assert!(state.alone[0].unwrap() > 0.99e6, "{:?}", state.alone);
    }
}

/// Holds qos/goal.
#[test]
fn who_ends_lets_the_others_go() {
    let mut plant = Plant::new(0.3, 3);
    plant.high_ends = Time::from_secs(1);
    let (_, utilisation, _) = run(&mut plant, &config("targeted", "progress", false));
    assert!(utilisation > 0.75, "{utilisation}");
    let last = plant.actions.last();
    assert!(matches!(last, Some(Action::Nap { until, .. }) if *until <= Time::from_millis(1_210)), "{last:?}");
}

#[test]
fn a_metric_that_never_answers_stops_nobody() {
    // One initial pause of 3 readings: 10 s, within which one is due, without a gap even with rare and late sampling.
    for every in [1, 100, 1_000] {
        let mut plant = Plant { late: MS(1), ..Plant::new(0.2, 60) };
        let config = Config { interval: MS(every), ..config("steady", "nothing", false) };
        let (_, utilisation, _) = run(&mut plant, &config);
        assert!((utilisation - 50.0 / 60.0).abs() < 0.003, "every {every} ms: {utilisation}");
    }
}

/// The server behind a metric dies after 30 s, and comes again after 60. The last reading is of 29 s, and what rests on
/// it holds for 5 windows. The same by limits of CPU time, and where programs report progress.
#[test]
fn no_order_outlives_its_readings() {
    for (controller, metric, limits) in [
        ("steady", "p99", false),
        ("steady", "p99", true),
        ("tracking", "progress", false),
        ("tracking", "progress", true),
        ("targeted", "progress", false),
        ("targeted-by-speed", "progress", false),
        ("conservative-90", "progress", false),
    ] {
        let config = with(config(controller, metric, limits), |qos| qos.climb = controller == "steady");
        let mut plant = Plant { silent_s: 30.0..60.0, ..Plant::new(0.4, 90) };
        let (topology, machine, apps) = (plant.topology.clone(), MachineProfile::default(), BTreeMap::new());
        let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
        let mut silent = Vec::new();
        drive(&mut plant, &policy(&config), &ctx, Mode::Enforce, |round| {
            let state = round.decision.and_then(|decision| decision.state.read::<Qos>());
            silent.extend(state.map(|state| (round.sample.at, first(&state, &config).silent)));
        })
        .unwrap();
        let at = |seconds: u64| {
            let until = Time::from_secs(seconds);
            let seen = plant.seen.iter().rfind(|(at, ..)| *at <= until).unwrap();
            (*seen, silent.iter().rfind(|(at, _)| *at <= until).unwrap().1)
        };
        let [before, later, gone, there] = [29, 36, 59, 90].map(at);
        assert!(!before.1 && before.0.2 < 20.0, "{controller} {limits}: {before:?}");
        assert_eq!((gone.0.1, gone.1), (false, true), "{controller} {limits}: let go, and it is said");
        let [ran, passed] = [gone.0.2 - later.0.2, (gone.0.0 - later.0.0).as_secs_f64()];
        assert!(passed > 22.0 && (ran - passed).abs() < 0.01, "{controller} {limits}: ran {ran} s of {passed}");
        assert!(!there.1 && there.0.2 - gone.0.2 < 25.0, "{controller} {limits}: throttled again {there:?} {gone:?}");
    }
}

/// A server that hangs for some seconds is the same one until a pause says otherwise, which comes soon.
#[test]
fn the_speed_alone_outlives_silence() {
    for (controller, metric) in [("steady", "p99"), ("tracking", "progress"), ("targeted", "progress")] {
        let config = config(controller, metric, false);
        let at = |end_s: u64| {
            let mut plant = Plant { silent_s: 30.0..42.0, ..Plant::new(0.4, end_s) };
            let high = first(&driven(&mut plant, &config), &config);
            let alone = high.alone.unwrap_or_else(|| panic!("{controller}: nothing is known at {end_s} s"));
            (high.silent, (alone.speed / 1e6 * 100.0).round(), alone.interval.is_some(), alone.at.as_secs_f64())
        };
        let [before, silent, after] = [30, 41, 60].map(at);
        let enough = controller != "steady"; // a pause of three readings gives no interval, two pauses do
        assert_eq!((silent.0, silent.1, silent.2, silent.3 <= 30.2), (true, before.1, enough, true), "{silent:?}");
        assert_eq!((after.0, after.1), (false, before.1), "{controller}: {after:?}");
        assert!(after.3 > 42.0 || !enough && after.2, "{controller}: it is measured again {after:?}");
    }
}

#[test]
fn silence_is_said_and_so_is_its_end() {
    let config = config("steady", "p99", false);
    let mut plant = Plant { silent_s: 30.0..60.0, ..Plant::new(0.4, 90) };
    let topology = plant.topology.clone();
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
    let mut notes = Vec::new();
    drive(&mut plant, &policy(&config), &ctx, Mode::Enforce, |round| {
        notes.extend(round.decision.iter().flat_map(|decision| decision.notes.clone()));
    })
    .unwrap();
    assert_eq!(
        notes,
        [
            "high: no reading of p99 for 5.0 s; nothing is throttled for it until there is one",
            "high: there are readings of p99 again"
        ]
    );
}

/// Alone a reading is 1e-6, beside others 1.25e-6. Nothing is throttled for a speed that is not known, and pauses that
/// tell nothing get rare.
/// Holds speed/metrics.
#[test]
fn what_a_histogram_does_not_tell_is_no_speed() {
    for (bounds, alone) in [([0.0, 1e-7], "beyond"), ([1.1e-6, 1.0], "below"), ([1e-5, 1.0], "both below")] {
        let mut plant = Plant { bounds, ..Plant::new(0.2, 600) };
        let (_, utilisation, state) = run(&mut plant, &config("steady", "p99", false));
        assert_eq!(state.alone.first().copied().flatten(), None, "{alone}");
        assert!(utilisation > 0.9, "{alone}: {utilisation}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let topology = machine(1, 1, 2, 1);
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    for (controller, metric, limits, why) in [
        ("targeted", "p99", false, "use --controller steady"),
        ("steady", "progress", false, "use --controller tracking"),
        ("balanced", "ipc", true, "use --controller tracking"),
        ("targeted", "progress", true, "use --controller tracking"),
    ] {
        let config = config(controller, metric, limits);
        let refusal =
            policy(&config).check(&Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config });
        assert!(refusal.unwrap_err().to_string().contains(why));
    }
}

#[test]
fn who_has_told_nothing_has_no_mean() {
    let mut state = QosState::default();
    let config = config("tracking", "progress", false);
    assert_eq!(first(&state, &config).mean(), None, "nothing was counted");
    state.total.pass(0.1, 1.0, 1);
    assert_eq!(first(&state, &config).mean(), None, "nothing is known of it yet");
}

/// That of the figures which decided, else the only one; whatever its number is.
#[test]
fn a_reason_names_the_program_that_it_is_for() {
    let named = |apps: &[u32], held: Option<usize>| {
        let high = |id: &u32| High { app: AppId(*id), metric: "progress".to_owned().into(), goal: None };
        let config = with(config("steady", "progress", false), |qos| qos.high = apps.iter().map(high).collect());
        let held = held.and_then(|high| Held::new(high, Figure::Kept, 0.8, 0.9));
        policy(&config).0.unwrap().beneficiary(&Phase::new(1.0, MS(1), Why::Fine).by(held))
    };
    assert_eq!([named(&[7], None), named(&[7, 5], Some(1))], [Some(AppId(7)), Some(AppId(5))]);
    assert_eq!([named(&[7, 5], None), named(&[7], Some(1))], [None, None]);
}

/// Alone it makes 1e6 units a second; of that each pause tells what it can.
#[test]
fn controllers_of_short_phases_say_how_sure_they_are_of_the_speed_alone() {
    for (controller, metric) in [("tracking", "progress"), ("targeted", "progress")] {
        let config = config(controller, metric, false);
        let told = first(&driven(&mut Plant::new(0.4, 60), &config), &config).alone.unwrap();
        let [low, high] = told.interval.unwrap_or_else(|| panic!("{controller}: {told:?}"));
        assert!(low <= told.speed && told.speed <= high && high < low * 1.1, "{controller}: {told:?}");
        let short = first(&driven(&mut Plant::new(0.4, 3), &config), &config).alone;
        assert!(short.is_none_or(|alone| alone.interval.is_none()), "{controller}: too few pauses {short:?}");
    }
}
