//! `tracking`.

use super::*;

/// Holds qos/controllers.
#[test]
fn tracking_waits_until_caches_are_warm_and_then_climbs() {
    let controller = preset("tracking");
    let phases = sequence(
        &controller,
        &[
            // The pause continues while the speed rises by more than 2 %, at least 200 ms: 25, 25, 50, 100 ms. It made
            // 92.5 a second: a gain of 5 ms of speed alone against the goal.
            60.0, 80.0, 100.0, 100.0, //
            // A tenth of the time running costs 5 %: a loss of 0.5, so that a duty of 0.2 is right. Gained 15 ms, to be
            // spent in 4 s: 3.75 % more loss is allowed. 0.1 · (0.10375 / 0.05)^0.7 = 0.1667.
            95.0, //
            // 8.33 % lost, 18.3 ms gained: 0.1667 · (0.104585 / 0.0833)^0.7 = 0.1955.
            91.67, 90.24,
        ],
    );
    let rounded: Vec<(f64, u64)> = phases.iter().map(|(duty, ms)| ((duty * 1e3).round() / 1e3, *ms)).collect();
    let (pause, turn) = (|ms| (0.0, ms), |duty| (duty, 200));
    assert_eq!(rounded, [pause(25), pause(25), pause(50), pause(100), turn(0.1), turn(0.167), turn(0.195)]);
    // A pause ends after 800 ms even if speed still rises.
    let rising = sequence(&controller, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0]);
    let ms: Vec<u64> = rising.iter().map(|(_, ms)| *ms).collect();
    assert_eq!(ms, [25, 25, 50, 100, 200, 400, 200]);
}

/// Holds qos/baseline.
#[test]
fn tracking_measures_the_speed_alone_again() {
    let controller = preset("tracking");
    // No loss: pauses of 200 ms, the second one after 4 s, in which the duty has doubled up to 1; then every 16 s.
    let phases = sequence(&controller, &[100.0; 300]);
    let pauses: Vec<usize> = (0..300).filter(|i| phases[*i].0 == 0.0).collect();
    let fours = [0, 84, 168, 252].map(|first| [first, first + 1, first + 2, first + 3]);
    assert_eq!(pauses, fours.concat());
    assert_eq!(phases[4..9].iter().map(|phase| phase.0).collect::<Vec<_>>(), [0.1, 0.2, 0.4, 0.8, 1.0]);
    // The program itself becomes slower: naps do not help, which a second later is known. Or faster, which is
    // impossible.
    for slower in [0.5, -0.5] {
        let mut plant = Plant::new(&controller, 0.0);
        plant.run(30, 0.2);
        plant.slower = slower;
        plant.run(40, 0.2);
        let came = plant.run(100, 0.2);
        assert!((came.quality - 0.9).abs() < 0.01, "{slower}: {came:?}");
    }
}

/// Holds qos/controllers.
#[test]
fn tracking_pays_its_debts() {
    let controller = preset("tracking");
    let mut plant = Plant::new(&controller, 0.0);
    plant.run(30, 0.2);
    // Suddenly four times as much is lost; the mean comes back to the goal.
    let worst = plant.run(2, 0.8);
    assert!(worst.quality < 0.75, "{worst:?}");
    let came = plant.run(60, 0.8);
    assert!(came.quality > 0.9, "{came:?}");
    let came = plant.run(60, 0.8);
    assert!((came.quality - 0.9).abs() < 0.01, "{came:?}");
}

/// Holds qos/goal.
#[test]
fn tracking_counts_batches_over_many_turns() {
    let controller = preset("tracking");
    let (mut phase, mut state) = controller.start();
    let (mut duties, mut turns) = (Vec::new(), 0);
    for _ in 0..60 {
        duties.push(phase.duty);
        turns += usize::from(phase.duty > 0.0);
        // Pauses give 100, from batch to batch, 50 ms apart; of two turns one sees two batches too many, the other two
        // too few.
        let speed = match phase.why {
            Why::Baseline => 100.0,
            _ => (1.0 - 0.2 * phase.duty) * if turns % 2 == 0 { 125.0 } else { 75.0 },
        };
        (phase, state) = controller.next(state, &PhaseResult { grain: Some(MS(50)), ..PhaseResult::one(speed) });
    }
    // Five turns for each step, 20 batches: 0.1 · 2, 0.2 · 2 and so on, and then around a half: a batch in a window of
    // 1 s is 5 %, half of what may be lost.
    assert!(duties[30..].iter().all(|duty| *duty == 0.0 || (0.2..0.9).contains(duty)), "{duties:?}");
    let changes = duties.windows(2).filter(|two| two[0] > 0.0 && two[1] > 0.0 && two[0] != two[1]).count();
    assert!(changes <= 12, "{changes} in {duties:?}");
}

/// Holds qos/goal.
#[test]
fn pauses_that_tell_nothing_become_rare() {
    let controller = preset("tracking");
    let (mut phase, mut state) = controller.start();
    let (mut napped, mut all, mut batch) = (Duration::ZERO, Duration::ZERO, 0);
    while all < Duration::from_secs(600) {
        // A batch a second: pauses never see enough of them.
        let (Lasts::For(time) | Lasts::UntilKnown(time)) = phase.lasts else { panic!("{phase:?}") };
        all += time;
        napped += if phase.duty > 0.0 { Duration::ZERO } else { time };
        let known = phase.why != Why::Baseline && all.as_secs() > batch;
        batch = all.as_secs();
        (phase, state) = controller.next(state, &PhaseResult::of(vec![known.then_some(100.0)]));
    }
    assert!(napped > MS(500) && napped < Duration::from_secs(10), "{napped:?} in {all:?}");
}

#[test]
fn a_doubt_is_looked_into_once() {
    // The least duty costs 12 %, more than allowed: a pause after a second checks whether the program itself became
    // slower. It did not, and the doubt remains: then pauses are 2 s apart, two looks of 20 batches each.
    let controller = preset("tracking");
    let (mut phase, mut state) = controller.start();
    let (mut turns, mut between) = (0, Vec::new());
    for _ in 0..80 {
        if phase.why != Why::Baseline {
            turns += 1;
        } else if turns > 0 {
            between.push(std::mem::take(&mut turns));
        }
        let seen = PhaseResult { grain: Some(MS(50)), ..PhaseResult::one(100.0 * (1.0 - 2.4 * phase.duty)) };
        (phase, state) = controller.next(state, &seen);
    }
    assert_eq!(between[..4], [5, 10, 10, 10], "turns of 200 ms");
}
