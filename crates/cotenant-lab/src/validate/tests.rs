use super::*;

fn prediction(run: &str, measured: f64, predicted: f64) -> Prediction {
    let error = predicted / measured - 1.0;
    Prediction { run: run.to_owned(), program: "mcf06".to_owned(), measured, predicted, error }
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
    assert_eq!(equal.rank_correlation, Ranks { inside_runs: None, runs: 0, overall: None });
    assert_eq!(judge("m".to_owned(), Vec::new(), Vec::new()), None);
}
