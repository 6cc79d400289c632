//! Each threshold: just below, at, just above.

use super::super::classify::remote_at_five_percent;
use super::*;
use cotenant_model::topology::{DistanceUnit, Distances};

/// Tasks a (a sharer) and b on packages of two; whether a draws b.
fn drawn(b: impl Fn(Scene) -> Scene) -> bool {
    b(scene("a . | b .").inter("a")).next() == "a b | . ."
}

#[test]
fn th_01_inter_is_above_the_threshold() {
    // 54,999 / 2.2e8 < 2.5e-4; 55,000 / 2.2e8 = 2.5e-4: not above it; 55,001: above.
    for (count, inter) in [(COHERENCE - 1, false), (COHERENCE, false), (COHERENCE + 1, true)] {
        assert_eq!(drawn(|s| s.count("b", Signal::Inter, count)), inter, "{count}");
    }
}

#[test]
fn th_02_intra_is_at_or_above_the_threshold() {
    // n is the only task of S0 that could make way for b.
    //     S0: a n │ S1: b .
    for (count, intra) in [(COHERENCE - 1, false), (COHERENCE, true), (COHERENCE + 1, true)] {
        let mut s = scene("a n | b .").inter("ab").count("n", Signal::Intra, count);
        let after = if intra { "a n | b ." } else { "a b | n ." };
        assert_eq!(s.next(), after, "{count}");
    }
}

#[test]
fn th_03_a_task_is_memory_bound_above_its_part_of_the_socket() {
    // 7.5e7/s over the four cores of a package: 1.875e7/s, 1,875,000 in an interval. Memory-bound tasks go reluctantly.
    //     S0: a n o m │ S1: b . . .
    let one = 1_875_000;
    for (count, mem) in [(one - 1, false), (one, false), (one + 1, true)] {
        let mut s = scene("a n o m | b . . .").inter("ab").intra("no").count("m", Signal::LlcMisses, count);
        assert_eq!(s.next(), "a n o b | m . . .");
        assert_eq!(!s.origins().is_empty(), mem, "{count}");
    }
    // A threshold of the profile replaces that part.
    for (count, mem) in [(1_000, false), (1_001, true)] {
        let mut s = scene("a n o m | b . . .").inter("ab").intra("no").count("m", Signal::LlcMisses, count);
        s.profile.thresholds.as_mut().unwrap().task_bandwidth_per_s = Some(10_000.0);
        s.step();
        assert_eq!(!s.origins().is_empty(), mem, "{count}");
    }
}

#[test]
fn th_04_remote_is_above_the_threshold() {
    // m was moved from S0 and goes home only if it meets remote memory: 22,000 / 2.2e8 = 1e-4.
    //     S0: . . │ S1: m .
    for (count, rem) in [(REMOTE - 1, false), (REMOTE, false), (REMOTE + 1, true)] {
        let mut s = scene(". . | m .").origin("m", 0).count("m", Signal::Remote, count);
        assert_eq!(s.next(), if rem { "m . | . ." } else { ". . | m ." }, "{count}");
    }
}

#[test]
fn th_05_a_socket_is_relieved_above_its_bandwidth() {
    // m + o = 7,500,000 misses in an interval is the threshold; one more is above it.
    //     S0: m o . . │ S1: . . . .
    for (o, above) in [(2_499_999, false), (2_500_000, false), (2_500_001, true)] {
        let s = scene("m o . . | . . . .");
        let mut s = s.count("m", Signal::LlcMisses, 5_000_000).count("o", Signal::LlcMisses, o);
        assert_eq!(s.next(), if above { ". o . . | m . . ." } else { "m o . . | . . . ." }, "{o}");
    }
}

#[test]
fn th_06_a_destination_may_reach_but_not_exceed_its_bandwidth() {
    // S0 has 8,000,000; m adds 4,000,000 to the p of S1: together at most 7,500,000.
    //     S0: m o . . │ S1: p . . .
    for (p, fits) in [(3_499_999, true), (3_500_000, true), (3_500_001, false)] {
        let s = scene("m o . . | p . . .");
        let mut s = s.count("mo", Signal::LlcMisses, 4_000_000).count("p", Signal::LlcMisses, p);
        assert_eq!(s.next(), if fits { ". o . . | p m . ." } else { "m o . . | p . . ." }, "{p}");
    }
    // A socket at its threshold is no destination, even for a mover that brings nothing more than it takes away.
    let s = scene("m o . . | p q . .").count("mo", Signal::LlcMisses, 4_000_000);
    let mut s = s.count("pq", Signal::LlcMisses, 3_750_000);
    assert_eq!(s.next(), "m o . . | p q . .");
}

#[test]
fn th_07_inter_comes_before_intra_and_both_before_memory() {
    // All of b's rates are high: it is inter, and drawn.
    assert!(drawn(|s| s.inter("b").intra("b").mem("b")));
    // n's are intra and mem: it shares, and is neither displaced nor moved away from an exhausted socket.
    //     S0: a n │ S1: b .     two cores: a task's part is 3,750,000
    let mut s = scene("a n | b .").inter("ab").intra("n").count("n", Signal::LlcMisses, 9_000_000);
    assert_eq!(s.next(), "a n | b .");
}

#[test]
fn th_08_intra_is_what_llc_hits_and_misses_leave() {
    // Misses of the last private level − LLC hits − LLC misses, all loads: 100,000 − 30,000 − 15,000 = 55,000, at the
    // threshold.
    let scene = |misses: u64| {
        let mut s = scene("a n | b .").inter("ab");
        for actor in &mut s.actors {
            actor.counts.remove(&Signal::Intra);
        }
        let s = s.count("n", Signal::LlcHits, 30_000).count("n", Signal::LlcLoadMisses, 15_000);
        s.count("ab", Signal::Intra, 0).count("n", Signal::PrivateMisses, misses)
    };
    assert_eq!(scene(100_000).next(), "a n | b .");
    assert_eq!(scene(99_999).next(), "a b | n .");
    // Never below 0, and not counted at all if the processor counts it directly.
    assert_eq!(scene(10).next(), "a b | n .");
    assert_eq!(scene(100_000).count("n", Signal::Intra, 0).next(), "a b | n .");
}

#[test]
fn th_09_wall_clock_or_the_papers_cycles() {
    // m runs a fifth of the time: 4.4e7 cycles, 400,000 misses: 4e6/s, far below its part of 1.875e7/s. Per cycle at
    // 2.2 GHz: 4e5 / 4.4e7 · 2.2e9 = 2e7/s, above it.
    //     S0: a n o m │ S1: b . . .
    for (setting, mem) in [("default", false), ("-wall-clock", true), ("paper", true)] {
        let s = scene("a n o m | b . . .").inter("ab").intra("no").sam(setting.parse().unwrap());
        let mut s = s.count("m", Signal::Cycles, CYCLES / 5).count("m", Signal::LlcMisses, 400_000);
        assert_eq!(s.next(), "a n o b | m . . .");
        assert_eq!(!s.origins().is_empty(), mem, "{setting}");
    }
}

#[test]
fn th_10_the_remote_threshold_follows_from_latencies() {
    // Remote 150 ns, local 90 ns, 2.2 GHz: 60 ns = 132 cycles more per access; 5 % of the cycles at 0.05 / 132 =
    // 3.79e-4 per cycle, 83,333 in the 2.2e8 cycles of an interval.
    let with = |unit| {
        let mut s = scene(". . | m .").origin("m", 0);
        s.profile.thresholds.as_mut().unwrap().remote_per_cycle = None;
        let mut parts = s.topology.parts().clone();
        parts.distances = Some(Distances { unit, rows: vec![vec![90.0, 150.0], vec![150.0, 90.0]], source: None });
        s.topology = Topology::new(parts).unwrap();
        s
    };
    let ns = with(DistanceUnit::Nanoseconds);
    let rate = remote_at_five_percent(&ns.topology, Some(2.2e9)).unwrap();
    assert!((rate - 0.05 / 132.0).abs() < 1e-12);
    assert_eq!(ns.clone().count("m", Signal::Remote, 83_333).next(), ". . | m .");
    assert_eq!(ns.clone().count("m", Signal::Remote, 83_334).next(), "m . | . .");
    // Without a clock, with other units, or switched off, that rate is unavailable: stage 2 is off, with a note.
    let mut no_clock = ns.clone();
    no_clock.profile.clock_hz = None;
    let off = ns.sam("-derive-remote".parse().unwrap());
    for s in [no_clock, with(DistanceUnit::Slit), off] {
        let mut s = s.remote("m");
        let d = s.step();
        assert_eq!(s.picture(), ". . | m .");
        assert_eq!(d.notes.len(), 1, "{:?}", d.notes);
        assert!(d.notes[0].contains("stage 2") && d.notes[0].contains("remote_per_cycle"), "{:?}", d.notes);
    }
}

#[test]
fn th_11_without_thresholds_it_refuses_with_the_remedy() {
    let mut s = scene("a . | b .").inter("ab");
    s.profile.thresholds = None;
    let apps = BTreeMap::new();
    let refusal = |s: &Scene| {
        let ctx = Ctx { topology: &s.topology, machine: &s.profile, apps: &apps, config: &s.config };
        Sam(s.settings).check(&ctx).err().map(|r| r.to_string())
    };
    let text = refusal(&s).unwrap();
    assert!(text.contains("[thresholds]") && text.contains("--profile"), "{text}");
    // Run anyway, it does nothing and gives the reason.
    let d = s.step();
    assert_eq!((d.proposals.len(), d.notes), (0, vec![text]));
    // The paper's bandwidth is per cycle, and needs the clock.
    let mut s = scene("a . | b .").inter("ab").sam(SamConfig::paper_exact());
    s.profile.clock_hz = None;
    assert!(refusal(&s).unwrap().contains("clock_hz"));
    assert_eq!(refusal(&scene("a . | b .")), None);
}

#[test]
fn th_12_a_missing_signal_switches_its_stage_off_and_says_so() {
    let without = |signals: &[Signal]| {
        // a and b share, p meets remote memory away from home, and m o saturate S1.
        //     S0: a . . . │ S1: b m o p
        let s = scene("a . . . | b m o p").inter("ab").origin("p", 0).remote("p");
        let mut s = s.count("mo", Signal::LlcMisses, 4_000_000);
        for actor in &mut s.actors {
            actor.counts.retain(|signal, _| !signals.contains(signal));
        }
        let d = s.step();
        assert_eq!(d.notes, s.decide().notes, "the same text as long as it lasts");
        (s.picture(), d.notes)
    };
    // b → 1, p home → 2, m → 3
    assert_eq!(without(&[]), ("a b p m | . . o .".to_owned(), vec![]));
    for (signal, after, effect) in [
        (Signal::Inter, "a p m . | b . o .", "stage 1"),
        (Signal::Remote, "a b m . | . . o p", "stage 2"),
        (Signal::LlcMisses, "a b p . | . m o .", "stage 3"),
        (Signal::Intra, "a b p m | . . o .", "may have to make way"),
    ] {
        let (picture, notes) = without(&[signal]);
        assert_eq!(picture, after, "without {signal}");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains(effect) && notes[0].contains("doctor"), "{notes:?}");
    }
    // Without cycles no rate is known but that of the wall clock.
    let (picture, notes) = without(&[Signal::Cycles]);
    assert_eq!((picture.as_str(), notes.len()), ("a . . . | b m o p", 1), "nothing tells that anything ran");
    assert!(notes[0].contains("the signal cycles, so whether anything ran is unknown"), "{notes:?}");
}
