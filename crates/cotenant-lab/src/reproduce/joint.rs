//! The best static mapping of a whole case, with all its applications together.

use super::cases::Case;
use super::lab::{Arm, Joint, Lab, Run};
use anyhow::Context as _;
use cotenant_cli::progress::aside;
use cotenant_sim::optimum::Limits;
use cotenant_sim::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Seconds of work of a run that compares mappings; the best one is run in full.
const SHORT_S: f64 = 0.5;

impl Lab {
    /// The best static mapping for all applications of each case together; the search also starts from where these arms
    /// settled.
    pub fn joint(&mut self, what: &str, cases: &[Case], arms: &[Arm]) -> anyhow::Result<Vec<Joint>> {
        let missing: Vec<Case> = cases.iter().filter(|case| !self.joint.contains_key(&case.label)).cloned().collect();
        if !missing.is_empty() {
            let rests = self.runs(what, &missing, arms)?;
            let found = search(self, &missing, &rests, self.effort.mixes)?;
            self.joint.extend(missing.into_iter().map(|case| case.label).zip(found));
        }
        Ok(cases.iter().map(|case| self.joint[&case.label].clone()).collect())
    }
}

/// Cases with equal programs and threads have the same best mapping.
fn kind(scenario: &Scenario) -> String {
    let apps: Vec<String> = scenario.apps.iter().map(|app| format!("{:?} {}", app.program, app.threads)).collect();
    apps.join("\n")
}

/// Searches for the best static mapping of each case, starting from the placements in `rests` and others.
fn search(lab: &Lab, cases: &[Case], rests: &[Vec<Vec<Run>>], limits: Limits) -> anyhow::Result<Vec<Joint>> {
    let mut jobs: Vec<(String, Scenario, Scenario, Vec<Vec<usize>>)> = Vec::new();
    let mut kinds = Vec::new();
    for (case, arms) in cases.iter().zip(rests) {
        let (whole, short) = (lab.of(&case.apps, lab.effort.work_s)?, lab.of(&case.apps, SHORT_S)?);
        let kind = kind(&whole);
        let mut starts: Vec<Vec<usize>> = arms.iter().flatten().map(|run| run.outcome.places.clone()).collect();
        kinds.push(kind.clone());
        match jobs.iter_mut().find(|job| job.0 == kind) {
            Some(job) => job.3.append(&mut starts),
            None => jobs.push((kind, whole, short, starts)),
        }
    }
    let started = Instant::now();
    let what = "best static mappings of mixes";
    let found = lab.parallel(what, &jobs, |(_, whole, short, starts)| best(whole, short, starts, limits))?;
    let (n, seconds) = (found.iter().map(|j| j.evaluations).sum::<usize>(), started.elapsed().as_secs_f64());
    let kinds_of_cases = jobs.len();
    aside(&format!("best static mappings of {kinds_of_cases} kinds of cases: {n} evaluations in {seconds:.1} s"));
    let found: BTreeMap<&String, Joint> = jobs.iter().map(|job| &job.0).zip(found).collect();
    Ok(kinds.iter().map(|kind| found[kind].clone()).collect())
}

fn best(whole: &Scenario, short: &Scenario, starts: &[Vec<usize>], limits: Limits) -> anyhow::Result<Joint> {
    let alone = vec![1.0; whole.apps.len()];
    let mean = |times: &[f64]| times.iter().map(|t| t.ln()).sum::<f64>() / times.len() as f64;
    let (found, _) = short.optimal(&alone, limits, starts, 1)?;
    let mut candidates = vec![short.places(&found.mapping)];
    // Errors of short runs may exceed the difference between the best and the settled placements.
    let rests: BTreeSet<&Vec<usize>> = starts.iter().collect();
    let alone_on_cpu = |places: &&Vec<usize>| !places.is_empty() && BTreeSet::from_iter(*places).len() == places.len();
    candidates.extend(rests.into_iter().filter(alone_on_cpu).cloned());
    let mut joint: Option<(f64, Joint)> = None;
    let mut error: f64 = 0.0;
    let scale = whole.apps[0].instructions / short.apps[0].instructions;
    for places in candidates {
        let times = |scenario: &Scenario| -> anyhow::Result<Vec<f64>> {
            Ok(scenario.pinned(&places, 1)?.apps.iter().map(|app| app.time_s).collect())
        };
        let (long, brief) = (times(whole)?, times(short)?);
        error = error.max(((mean(&brief) + scale.ln() - mean(&long)).exp() - 1.0).abs());
        if joint.as_ref().is_none_or(|(best, _)| mean(&long) < *best) {
            let classes = found.classes.map(|c| c.to_string());
            let (label, evaluations) = (found.label, found.evaluations);
            joint = Some((mean(&long), Joint { times_s: long, places, label, classes, evaluations, error: 0.0 }));
        }
    }
    let (_, joint) = joint.context("no static mapping was found")?;
    Ok(Joint { error, ..joint })
}
