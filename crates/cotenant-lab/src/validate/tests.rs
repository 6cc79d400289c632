use super::*;

fn prediction(run: &str, measured: f64, predicted: f64) -> Prediction {
    of(run, "mcf06", "", measured, predicted)
}

fn of(run: &str, program: &str, beside: &str, measured: f64, predicted: f64) -> Prediction {
    let [run, program, beside] = [run, program, beside].map(str::to_owned);
    Prediction { run, program, beside, measured, predicted, error: predicted / measured - 1.0 }
}

/// Run a is ranked as measured (1), run b the other way round (-1), run c with two of four exchanged (0.8): median
/// 0.8. In all, errors 0, 0, 0.5, 0.2 (1.2/1), 1/6 (1 - 1/1.2), and of c 0, 1/2, 1/3, 0.
#[test]
fn figures_are_those_worked_by_hand() {
    let all = [
        ("a", 1.0, 1.0),
        ("a", 2.0, 2.0),
        ("a", 4.0, 6.0),
        ("b", 1.0, 1.2),
        ("b", 1.2, 1.0),
        ("c", 1.0, 1.0),
        ("c", 2.0, 3.0),
        ("c", 3.0, 2.0),
        ("c", 4.0, 4.0),
    ];
    let all = all.map(|(run, measured, predicted)| prediction(run, measured, predicted));
    let verdict = judge("m".to_owned(), all.to_vec(), Vec::new()).unwrap();
    assert_eq!((verdict.runs, verdict.programs, verdict.rank_correlation.runs), (3, 9, 3));
    let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(near(verdict.rank_correlation.inside_runs.unwrap(), 0.8), "{verdict:?}");
    assert!(near(verdict.error.median, 1.0 / 6.0), "{verdict:?}");
    assert!(near(verdict.error.mean, (0.5 + 0.2 + 1.0 / 6.0 + 0.5 + 1.0 / 3.0) / 9.0), "{verdict:?}");
    assert!(near(verdict.error.p90, 0.5), "the ninth of nine: {verdict:?}");
    // 1 instead of 1, 2, 4, 1, 1.2, 1, 2, 3, 4: 0 three times, 1/6, 1/2 twice, 2/3, 3/4 twice.
    assert!(near(verdict.error_of_no_slowdown.median, 0.5), "{verdict:?}");
    // From 1.1 and from 1.2 on: 2, 4, 1.2, 2, 3, 4, with errors 0, 1/2, 1/6, 1/2, 1/3, 0.
    for slowed in &verdict.slowed {
        let error = slowed.error.unwrap();
        assert!(slowed.programs == 6 && near(error.mean, 0.25) && near(error.median, 0.25), "{slowed:?}");
    }
}

/// Beside l, of a, b and c the order is right; beside m, a and b are exchanged. Of a, l and m are in the right order,
/// of b in the wrong one.
#[test]
fn pairs_are_ordered_by_victim_and_by_company() {
    let all = vec![
        of("1", "a", "l", 1.5, 1.6),
        of("1", "l", "a", 1.1, 1.0),
        of("2", "b", "l", 1.3, 1.2),
        of("2", "l", "b", 1.4, 1.1),
        of("3", "c", "l", 1.1, 1.1),
        of("4", "a", "m x2", 1.3, 1.1),
        of("5", "b", "m x2", 1.2, 1.4),
    ];
    let verdict = judge("m".to_owned(), all, Vec::new()).unwrap();
    let Ranks { per_aggressor, per_victim, .. } = verdict.rank_correlation;
    assert_eq!(per_aggressor, Inside { median: Some(0.0), groups: 2 }, "1 and -1");
    assert_eq!(per_victim, Inside { median: Some(1.0), groups: 3 }, "a 1, b -1, l 1");
    // In run 1 a is slowed more and predicted so; in run 2 l is, but b is predicted.
    assert_eq!(verdict.pairs, Pairs { pairs: 2, ordered_rightly: Some(0.5) });
    let tied = [of("1", "a", "l", 1.5, 1.2), of("1", "l", "a", 1.1, 1.2)];
    for two in [tied.clone(), {
        let [a, l] = tied;
        [l, a]
    }] {
        assert_eq!(Pairs::of(&two), Pairs { pairs: 1, ordered_rightly: Some(0.0) }, "in whichever order");
    }
}

#[test]
fn company_is_named_with_its_copies() {
    let member = |program: &str| truth::Member { program: program.to_owned(), slowdown: None };
    let run = Run { name: "1".to_owned(), members: ["mcf06", "lbm06", "lbm06", "lbm06"].map(member).to_vec() };
    assert_eq!((beside(&run, "mcf06"), beside(&run, "lbm06")), ("lbm06 x3".to_owned(), "lbm06 x2, mcf06".to_owned()));
}

#[test]
fn the_ninetieth_percentile_leaves_a_tenth_out() {
    let of = |n: u32| errors((1..=n).map(f64::from)).unwrap().p90;
    assert_eq!((of(1), of(9), of(10), of(11), of(20)), (1.0, 9.0, 9.0, 10.0, 18.0));
    assert_eq!(errors(std::iter::empty()), None);
}

#[test]
fn nothing_is_ranked_where_all_are_equal() {
    let equal = judge("m".to_owned(), vec![prediction("a", 1.0, 1.1), prediction("a", 1.0, 1.2)], Vec::new()).unwrap();
    let none = Inside { median: None, groups: 0 };
    let ranks = Ranks { inside_runs: None, runs: 0, per_aggressor: none, per_victim: none, overall: None };
    assert_eq!((equal.rank_correlation, equal.pairs), (ranks, Pairs { pairs: 0, ordered_rightly: None }));
    assert!(equal.slowed.iter().all(|slowed| slowed.programs == 0 && slowed.error.is_none()), "{equal:?}");
    assert_eq!(judge("m".to_owned(), Vec::new(), Vec::new()), None);
}
