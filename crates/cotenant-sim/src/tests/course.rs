//! Scenarios observed on the way and when settled.

use super::scenario;
use crate::course::{Course, Looks, Rest, least_share, mean_share};
use crate::optimum::Limits;
use crate::scenario::Scenario;
use cotenant_model::host::Round;
use cotenant_model::policy::{Ctx, NoSettings, Policy};
use cotenant_model::{Action, ActionOutcome, Decision, NodeId, Outcome, Proposal, Reason, TaskView, Time, View};
use std::time::Duration;

const TEXT: &str = "machine = 'two'\nkernel = 'eevdf'\nend_s = 6\npolicy = { pin = 'cpu', map = 'XX..|AA..' }\n\
    [[app]]\nprogram = 'mcf06'\nthreads = 2\nwork_s = 60\n[[app]]\nprogram = 'lbm06'\nthreads = 2\nwork_s = 60\n";
const S: u64 = 1_000_000_000;

fn course(s: &Scenario, policy: &str) -> Course {
    let policy = cotenant_policies::standard().make(policy, &s.config).unwrap();
    let looks = Looks { every: Duration::from_millis(500), rest_from: Time(5 * S) };
    s.course(&*policy, s.kernel, 1, looks, |_| false).unwrap()
}

fn rest(pages: Option<&[Vec<f64>]>) -> Rest<'_> {
    Rest { pages, after: Time(2 * S), until: Time(4 * S) }
}

#[test]
fn the_end_of_a_course_is_what_it_is_at_rest() {
    let s = scenario(TEXT);
    for policy in ["none", "static"] {
        let ran = course(&s, policy);
        assert_eq!((ran.work.len(), ran.places.len()), (12, 4), "{policy}");
        let (from, to) = (&ran.work[9], &ran.work[11]);
        let speeds: Vec<f64> = to.iter().zip(from).map(|(to, from)| to - from).collect();
        let (there, _) = s.at_rest(&ran.places, rest(Some(&ran.pages))).unwrap();
        assert!((mean_share(&there, &speeds) - 1.0).abs() < 1e-3, "{policy}: {there:?} {speeds:?}");
    }
}

/// Where all is tried, nothing is.
#[test]
fn what_is_only_tried_is_not_at_rest() {
    let s = scenario(TEXT);
    let policy = cotenant_policies::standard().make("static", &s.config).unwrap();
    let looks = Looks { every: Duration::from_millis(500), rest_from: Time(0) };
    let of = |tried: fn(&Round<'_>) -> bool| s.course(&*policy, s.kernel, 1, looks, tried).unwrap().places;
    let (all, none) = (of(|_| false), of(|_| true));
    assert_eq!(all.len(), 4);
    assert!(none.is_empty(), "{none:?}");
}

/// A map that stands before anything is touched has its memory near; where it came later, it would not.
#[test]
fn memory_is_where_it_was_touched_first() {
    let s = scenario(TEXT);
    let [linux, own] = ["none", "static"].map(|policy| course(&s, policy));
    assert_eq!(own.places, [0, 1, 4, 5]);
    let speeds = |pages| s.at_rest(&own.places, rest(pages)).unwrap().0;
    let (touched, late) = (speeds(None), speeds(Some(&linux.pages)));
    assert!((mean_share(&speeds(Some(&own.pages)), &touched) - 1.0).abs() < 1e-9);
    assert!(mean_share(&touched, &late) > 1.01, "{touched:?} {late:?}");
}

/// Moves the memory of all tasks to the second node at once.
struct Bring;

impl Policy for Bring {
    const SECTION: &'static str = "bring";
    type State = ();
    type Settings = NoSettings;

    fn decide(&self, _: &Ctx<'_>, view: &View, _: &[ActionOutcome], (): (), _: Time) -> Decision<()> {
        let bring = |task: &TaskView| Proposal {
            action: Action::Pages { task: task.info.id, nodes: vec![NodeId(1)] },
            reason: Reason::new("bring", "{task}"),
        };
        Decision::new(view.tasks.iter().map(bring).collect(), (), Time::NEVER, Vec::new())
    }
}

#[test]
fn pages_move_only_where_the_user_allows_it() {
    let mut s = scenario(TEXT);
    let looks = Looks { every: Duration::from_secs(1), rest_from: Time(S) };
    let mut of = |move_pages: bool| {
        s.config.move_pages = move_pages;
        let mut outcomes = Vec::new();
        let watch = |round: &Round<'_>| {
            outcomes.extend_from_slice(round.outcomes);
            false
        };
        let pages = s.course(&Bring, s.kernel, 1, looks, watch).unwrap().pages;
        (pages, outcomes)
    };
    let (stay, denied) = of(false);
    let (moved, _) = of(true);
    assert_eq!(denied, vec![Outcome::Denied; 4]);
    assert!(stay.iter().any(|pages| pages[0] > 0.9) && moved.iter().all(|pages| pages[1] > 0.9), "{stay:?} {moved:?}");
}

#[test]
fn threads_stand_near_their_memory() {
    let s = scenario(TEXT);
    let on = |first: f64| vec![first, 1.0 - first];
    let pages = [on(0.0), on(1.0), on(0.4), on(0.3)];
    let near = |places: [usize; 4]| s.near(places.to_vec(), rest(Some(&pages)));
    assert_eq!(near([0, 4, 5, 1]), [4, 0, 1, 5]);
    assert_eq!(near([0, 1, 5, 6]), [1, 0, 6, 5], "all on one node");
    assert_eq!(s.near(vec![0, 4, 5, 1], rest(None)), [0, 4, 5, 1]);
}

#[test]
fn the_best_mapping_at_rest_is_at_least_as_good_as_its_starts() {
    let s = scenario(TEXT);
    let ran = course(&s, "none");
    let (unit, _) = s.at_rest(&ran.places, rest(None)).unwrap();
    let limits = Limits { classes: 1, evaluations: 10 };
    for (pages, share) in [(None, mean_share as fn(&[f64], &[f64]) -> f64), (Some(&ran.pages[..]), least_share)] {
        let worth = |speeds: &[f64]| share(speeds, &unit);
        let (best, places) = s.best_at_rest(&worth, rest(pages), limits, std::slice::from_ref(&ran.places), 1).unwrap();
        let value = |places: &[usize]| worth(&s.at_rest(places, rest(pages)).unwrap().0);
        assert!((value(&places) - best.value).abs() < 1e-9, "{best:?}");
        assert!((2..=10).contains(&best.evaluations), "{best:?}");
        assert!(best.value >= value(&s.near(ran.places.clone(), rest(pages))), "{best:?}");
    }
}
