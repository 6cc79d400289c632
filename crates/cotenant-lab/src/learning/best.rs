//! The best known mapping of a mix: over all that a search tries and all in which policies settled.

use super::mixes::Mix;
use super::once::{Ran, long};
use anyhow::Context as _;
use cotenant_cli::usage;
use cotenant_linux::given;
use cotenant_model::Time;
use cotenant_sim::course::Rest;
use cotenant_sim::optimum::{Label, Limits};
use cotenant_sim::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Milliseconds for caches to settle and for the measurement after it, to compare mappings. The best candidates are
/// measured for longer.
const SHORT_MS: [u64; 2] = [500, 1_000];

/// The best known mapping of a mix. A later run reads it from the file of an earlier one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Best {
    /// With memory touched first where threads run.
    #[serde(flatten)]
    pub touched: Found,
    /// Per seed, with memory where Linux touched it first; empty if memory does not stay there.
    #[serde(default)]
    pub lying: Vec<Found>,
}

impl Best {
    /// Linux's own speeds per seed, if no better mapping is searched for.
    pub fn of_linux<'a>(runs: impl Iterator<Item = &'a Ran>) -> Self {
        let found = |run: &Ran| Found {
            speeds: run.rest.clone(),
            places: run.places.clone(),
            from: "none".to_owned(),
            evaluations: 0,
            all: false,
        };
        let lying: Vec<Found> = runs.map(found).collect();
        Self { touched: lying[0].clone(), lying }
    }
}

/// The best of several mappings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// Settled instructions per second of each application.
    pub speeds: Vec<f64>,
    /// The CPU of each thread, application by application.
    pub places: Vec<usize>,
    /// Its origin: `search`, or the policy that settled in it.
    pub from: String,
    /// Mappings evaluated by the search; 0: no new search.
    pub evaluations: usize,
    /// Whether these were all classes of mappings.
    pub all: bool,
}

/// A placement in which a policy settled.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub from: String,
    pub places: Vec<usize>,
}

/// The best of the candidates, of `known`, and, if that is `None`, of a search that starts from them. `worth` is
/// maximized over the applications' speeds; memory is at `pages`, or where it is touched first.
pub(super) fn best(
    scenario: &Scenario,
    worth: &dyn Fn(&[f64]) -> f64,
    pages: Option<&[Vec<f64>]>,
    mut candidates: Vec<Candidate>,
    known: Option<&Found>,
    limits: Limits,
) -> anyhow::Result<Found> {
    candidates.retain(|candidate| !candidate.places.is_empty());
    let (mut evaluations, mut all) = (0, known.is_some_and(|known| known.all));
    if let Some(Found { places, from, .. }) = known {
        candidates.insert(0, Candidate { from: from.clone(), places: places.clone() });
    } else {
        let [after, until] = SHORT_MS.map(|ms| Time(ms * 1_000_000));
        let starts: Vec<Vec<usize>> = candidates.iter().map(|candidate| candidate.places.clone()).collect();
        let (found, places) = scenario.best_at_rest(worth, Rest { pages, after, until }, limits, &starts, 1)?;
        (evaluations, all) = (found.evaluations, found.label == Label::Optimal);
        candidates.insert(0, Candidate { from: "search".to_owned(), places });
    }
    let rest = long(pages);
    // A policy's final placement may improve with its threads nearer to their memory.
    let nearer: Vec<Candidate> = candidates
        .iter()
        .map(|Candidate { from, places }| Candidate { from: from.clone(), places: scenario.near(places.clone(), rest) })
        .collect();
    candidates.extend(nearer);
    candidates.sort_by(|a, b| a.places.cmp(&b.places));
    candidates.dedup_by(|a, b| a.places == b.places);
    let mut best: Option<(f64, Found)> = None;
    for Candidate { from, places } in candidates {
        let (speeds, _) = scenario.at_rest(&places, rest)?;
        let value = worth(&speeds);
        if best.as_ref().is_none_or(|(highest, _)| value > *highest) {
            best = Some((value, Found { speeds, places, from, evaluations, all }));
        }
    }
    Ok(best.context("no mapping was found")?.1)
}

/// The mixes in a file written by `--json`.
#[derive(Deserialize)]
struct Before {
    mixes: Vec<Known>,
}

/// A mix with its best mapping.
#[derive(Deserialize)]
pub(super) struct Known {
    machine: String,
    apps: Vec<(String, usize)>,
    best: Best,
}

/// The best mappings written by an earlier run.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Known>> {
    let wrong = |why: &dyn std::fmt::Display| usage(format!("{}: {why}", path.display()));
    let text = given::text(path).map_err(|why| wrong(&why))?;
    let before: Before = serde_json::from_str(&text).map_err(|why| wrong(&why))?;
    Ok(before.mixes)
}

/// The best mapping of a mix among them.
pub(super) fn of<'a>(known: &'a [Known], machine: &str, mix: &Mix) -> Option<&'a Best> {
    let known = known.iter().find(|known| known.machine == machine && known.apps == mix.apps)?;
    let threads: usize = mix.apps.iter().map(|app| app.1).sum();
    let mut all = std::iter::once(&known.best.touched).chain(&known.best.lying);
    Some(&known.best).filter(|_| all.all(|best| best.places.len() == threads))
}
