//! Ten mixes under Linux, `mas`, `cas` and `das` (§6).

use super::super::lab::Lab;
use super::super::row::{Found, Row, claim, effect, geometric, highest, mean, percent, row};
use super::contention::degraded;
use super::rebuilt::ahead;
use super::runs::{Run, Schedules};
use super::{Alone, MACHINE, ON_THIS_MODEL, alone, crowd, known, programs};
use anyhow::Context as _;
use cotenant_model::policy::Policy;
use cotenant_model::profile::AppProfile;
use cotenant_model::signal::Signal;
use cotenant_policies::{CoSchedule, QuantumSettings};
use cotenant_sim::kernel::KernelKind;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

const POLICIES: [&str; 4] = ["none", "mas", "cas", "das"];

/// A policy of [`POLICIES`] and its settings.
#[derive(Clone, Copy, Debug)]
struct Arm {
    policy: usize,
    once: bool,
    progress: bool,
}

impl Arm {
    const fn of(policy: usize) -> Self {
        Self { policy, once: false, progress: false }
    }

    const fn once(policy: usize) -> Self {
        Self { policy, once: true, progress: false }
    }

    const fn progress(policy: usize) -> Self {
        Self { policy, once: false, progress: true }
    }
}

/// The policies by default; with the target computed once, as in the paper (line 1); with the progress term, which is
/// ours.
const ARMS: [Arm; 9] = [
    Arm::of(0),
    Arm::of(1),
    Arm::of(2),
    Arm::of(3),
    Arm::once(1),
    Arm::once(2),
    Arm::once(3),
    Arm::progress(2),
    Arm::progress(3),
];
const CAS: usize = 2;
const DAS: usize = 3;
/// `mas` with its target computed once; `cas` and `das` follow.
const ONCE: usize = 4;
const CAS_PROGRESS: usize = 7;
const DAS_PROGRESS: usize = 8;
/// Average speedups over Linux, percent (§6.2).
const PAPER: [f64; 3] = [3.61, 5.38, 6.64];
/// Quanta shown in figures 12 and 13.
const FEW: usize = 160;
const MANY: usize = 1_375;
/// Intervals of figure 11, transactions per microsecond.
const BIN: f64 = 25.0;
const CORES: f64 = 4.0;
/// Around the mean IABW of the paper's mixes, 30 transactions per microsecond (§4.4).
const OF_THE_PAPER: RangeInclusive<f64> = 25.0..=35.0;
const DRAWS: usize = 100_000;

/// The choice of mixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// Mixes with about the paper's IABW.
    OfThePaper,
    /// The same, and policies also see prefetched lines.
    AllSeen,
    /// Mixes with about the paper's IABW, prefetched lines included, all of which policies see.
    AllLines,
    /// Any mixes.
    Any,
}

/// IABW of a mix, transactions per microsecond: all run equally long alone, so that the average over programs is the
/// average over time.
fn iabw(mix: &[&str], alone: &BTreeMap<&str, Alone>) -> f64 {
    mean(mix.iter().map(|program| alone[program].tr_l2)) * CORES
}

/// Mixes 1–7 have twice as many programs as cores, 8–10 three times (§6.1). The paper does not name the programs: each
/// mix is drawn at random, for the paper's traffic until it matches.
fn mixes(traffic: Traffic, alone: &BTreeMap<&'static str, Alone>) -> anyhow::Result<Vec<Vec<&'static str>>> {
    let draw = |mix: u64| {
        let mut rng = fastrand::Rng::with_seed(mix);
        let drawn = (0..DRAWS).map(|_| {
            let mut names: Vec<&str> = alone.keys().copied().collect();
            rng.shuffle(&mut names);
            names.truncate(if mix < 8 { 8 } else { 12 });
            names
        });
        let mut fit = drawn.filter(|names| traffic == Traffic::Any || OF_THE_PAPER.contains(&iabw(names, alone)));
        fit.next().with_context(|| format!("no mix of {DRAWS} has an IABW of 25 to 35/µs"))
    };
    (1..=10).map(draw).collect()
}

fn run(
    mix: &[&str],
    arm: Arm,
    seed: u64,
    work_s: f64,
    profiles: &BTreeMap<&str, AppProfile>,
    traffic: Traffic,
) -> anyhow::Result<Run> {
    let name = POLICIES[arm.policy];
    let mut scenario = crowd(MACHINE, mix, work_s, profiles, name)?;
    let Arm { once, progress, .. } = arm;
    let settings = QuantumSettings { once, progress, ..scenario.config.settings.of::<CoSchedule>()? };
    scenario.config.settings.put(CoSchedule::SECTION, &settings);
    for app in scenario.apps.iter_mut().filter(|_| matches!(traffic, Traffic::AllSeen | Traffic::AllLines)) {
        Arc::make_mut(&mut app.program).phases.iter_mut().for_each(|phase| phase.prefetched = 0.0);
    }
    let policy = cotenant_policies::standard().make(name, &scenario.config).map_err(anyhow::Error::msg)?;
    let topology = scenario.machine.topology.clone();
    let mut differences = Vec::new();
    let outcome = scenario.run(&*policy, KernelKind::EEVDF, seed, |round| {
        let mut arrives = [0.0; 2];
        for task in &round.view.tasks {
            if let (Some(cpu), Some(rate)) = (task.cpu, task.per_s(Signal::PrivateMisses)) {
                arrives[topology.llc_of(cpu).unwrap_or(0).min(1)] += rate / 1e6;
            }
        }
        if round.sample.tasks.len() >= 4 {
            differences.push((arrives[0] - arrives[1]).abs());
        }
    })?;
    let times_s = outcome.apps.iter().map(|app| app.time_s).collect();
    Ok(Run { makespan_s: outcome.makespan_s, times_s, differences })
}

/// All runs of mixes with the paper's traffic, computed on first use.
fn schedules(lab: &mut Lab) -> anyhow::Result<Schedules> {
    if let Some(found) = &lab.feliu {
        return Ok(found.clone());
    }
    let found = made(lab, Traffic::OfThePaper)?;
    lab.feliu = Some(found.clone());
    Ok(found)
}

fn made(lab: &Lab, traffic: Traffic) -> anyhow::Result<Schedules> {
    let quick = lab.effort.every > 1;
    // The paper's rule: what each executes alone in two minutes (§6.1).
    let work_s = if quick { 4.0 } else { 120.0 };
    let all = programs();
    let found = lab.parallel("feliu: programs alone", &all, |program| alone(MACHINE, program))?;
    let mut alone: BTreeMap<&str, Alone> = all.into_iter().zip(found).collect();
    let unseen = |program: &str, alone: &Alone| alone.tr_l2 * (1.0 / (1.0 - ahead(program)) - 1.0);
    if traffic == Traffic::AllLines {
        for (program, alone) in &mut alone {
            alone.tr_l2 += unseen(program, alone);
        }
    }
    let mixes: Vec<Vec<&'static str>> =
        mixes(traffic, &alone)?.into_iter().step_by(if quick { 5 } else { 1 }).collect();
    let used: Vec<&'static str> = mixes.concat().into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let iabw = mean(mixes.iter().map(|mix| iabw(mix, &alone)));
    let ahead = mixes.iter().map(|mix| mean(mix.iter().map(|p| unseen(p, &alone[p]))) * CORES).collect();
    let beside = |program: &&str| degraded(program, &alone[program], iabw);
    let lost = lab.parallel("feliu: programs beside injectors", &used, beside)?;
    let profiles =
        used.iter().zip(&lost).map(|(program, loss)| (*program, known(work_s, &alone[program], *loss))).collect();
    let seeds = lab.effort.seeds;
    let arms = if traffic == Traffic::OfThePaper { &ARMS[..] } else { &ARMS[..POLICIES.len()] };
    let mut jobs = Vec::new();
    for mix in &mixes {
        for arm in arms {
            jobs.extend((1..=seeds).map(|seed| (mix, *arm, seed)));
        }
    }
    let done =
        lab.parallel("feliu: mixes", &jobs, |(mix, arm, seed)| run(mix, *arm, *seed, work_s, &profiles, traffic))?;
    let by_seed: Vec<Vec<Run>> = done.chunks(seeds as usize).map(<[Run]>::to_vec).collect();
    let runs = by_seed.chunks(arms.len()).map(<[Vec<Run>]>::to_vec).collect();
    let sensitive = lost.iter().filter(|l| **l >= 0.05).count();
    Ok(Schedules { mixes, runs, iabw, ahead, sensitive, work_s })
}

impl Schedules {
    /// The time that a mix takes under a policy, mean over the seeds.
    fn makespan(&self, mix: usize, policy: usize) -> f64 {
        mean(self.runs[mix][policy].iter().map(|r| r.makespan_s))
    }

    /// The time of a program of a mix under an arm, mean over the seeds.
    fn time(&self, mix: usize, arm: usize, app: usize) -> f64 {
        mean(self.runs[mix][arm].iter().map(|r| r.times_s[app]))
    }

    /// The largest time of a program of any mix under one arm, over its time under another.
    fn longest(&self, arm: usize, over: usize) -> f64 {
        let ratios = |mix: usize| {
            (0..self.mixes[mix].len()).map(move |app| self.time(mix, arm, app) / self.time(mix, over, app))
        };
        highest((0..self.mixes.len()).flat_map(ratios))
    }

    fn differences(&self, mix: usize, policy: usize) -> impl Iterator<Item = f64> + '_ {
        self.runs[mix][policy].iter().flat_map(|r| r.differences.iter().copied())
    }

    fn note(&self, lab: &Lab) -> String {
        format!(
            "{} seeds; each program executes what it executes alone in {} s. The composition of the ten mixes is not printed: 1–7 are 8, 8–10 are 12 programs drawn at \
             random among those with an IABW of 25 to 35/µs. Their mean IABW is {:.1}/µs (paper: 30), {} programs are sensitive at that traffic. Linux is the simulated kernel without a policy; the paper's Linux stops and \
             resumes all programs each quantum as well. Stopping costs no time in the simulator, but a task that goes on finds its cache cold. {ON_THIS_MODEL}",
            lab.effort.seeds, self.work_s, self.iabw, self.sensitive
        )
    }

    /// The time that a mix takes under Linux over that under a policy.
    fn over(&self, mix: usize, policy: usize) -> f64 {
        self.makespan(mix, 0) / self.makespan(mix, policy)
    }

    /// The average gain of a policy over Linux, percent.
    fn average(&self, policy: usize) -> f64 {
        percent(geometric((0..self.mixes.len()).map(|mix| self.over(mix, policy))))
    }

    fn name(&self, mix: usize) -> String {
        format!("mix {} ({})", mix + 1, self.mixes[mix].join(" "))
    }
}

/// Figure 10.
pub(in super::super) fn speedup(lab: &mut Lab) -> anyhow::Result<Found> {
    let s = schedules(lab)?;
    let mut rows = Vec::new();
    for mix in 0..s.mixes.len() {
        for (policy, name) in POLICIES.iter().enumerate().skip(1) {
            rows.push(row(format!("{}: {name} over Linux", s.name(mix)), percent(s.over(mix, policy)), "%"));
        }
    }
    rows.extend(
        (0..s.mixes.len()).map(|mix| row(format!("{}: lines fetched ahead", s.name(mix)), s.ahead[mix], "/µs")),
    );
    let seen = made(lab, Traffic::AllSeen)?;
    let mut means = Vec::new();
    for (policy, name) in POLICIES.iter().enumerate().skip(1) {
        let average = s.average(policy);
        let label = format!("{name} over Linux, on average");
        let why = format!("it does not see what is fetched ahead; {:+.1} % where it does", seen.average(policy));
        rows.push(effect(label, PAPER[policy - 1], average).because(&why));
        means.push(average);
        let turnaround = (0..s.mixes.len()).map(|mix| {
            let time = |policy: usize| geometric(s.runs[mix][policy].iter().flat_map(|r| &r.times_s));
            time(0) / time(policy)
        });
        let label = format!("{name} over Linux, turnaround of a program, on average");
        rows.push(row(label, percent(geometric(turnaround)), "%"));
    }
    let best = highest((0..s.mixes.len()).map(|mix| percent(s.over(mix, DAS))));
    rows.push(row("das over Linux, best mix", best, "%").of_unknown_draws(Some(9.56)));
    for (i, name) in POLICIES[1..].iter().enumerate() {
        let label = format!("target once, from rates alone: {name} over Linux, on average");
        rows.push(effect(label, PAPER[i], s.average(ONCE + i)));
    }
    for (arm, name) in [(CAS_PROGRESS, "cas"), (DAS_PROGRESS, "das")] {
        let label = format!("with the progress term (ours): {name} over Linux, on average");
        rows.push(row(label, s.average(arm), "%"));
    }
    let lines = made(lab, Traffic::AllLines)?;
    for (policy, name) in POLICIES.iter().enumerate().skip(1) {
        let label =
            format!("mixes of {:.1}/µs of all lines, all of them seen: {name} over Linux, on average", lines.iabw);
        let row = effect(label, PAPER[policy - 1], lines.average(policy));
        rows.push(row.because("what else it takes was not found"));
    }
    let any = made(lab, Traffic::Any)?;
    for (policy, name) in POLICIES.iter().enumerate().skip(1) {
        let label = format!("mixes of any traffic, {:.1}/µs: {name} over Linux, on average", any.iabw);
        rows.push(row(label, any.average(policy), "%"));
    }
    let order = if means[0] < means[1] && means[1] < means[2] { "in" } else { "not in" };
    let words: Vec<String> = POLICIES[1..].iter().zip(&means).map(|(name, m)| format!("{name} {m:+.1} %")).collect();
    let verdict = format!("{}: {order} the paper's order", words.join(", "));
    Ok(Found::new(rows, verdict, s.note(lab)))
}

/// Figure 11.
pub(in super::super) fn balance(lab: &mut Lab) -> anyhow::Result<Found> {
    let s = schedules(lab)?;
    let mut rows = Vec::new();
    let mut lowest = [0.0; 2];
    for mix in 0..s.mixes.len() {
        for (i, policy) in [1, 2].into_iter().enumerate() {
            let all: Vec<f64> = s.differences(mix, policy).collect();
            for bin in 0..4 {
                let inside = |d: &&f64| ((*d / BIN) as usize).min(3) == bin;
                let share = all.iter().filter(inside).count() as f64 / all.len().max(1) as f64 * 100.0;
                let range = ["0–25/µs", "25–50/µs", "50–75/µs", "75/µs and more"][bin];
                let label = format!("mix {}, {}: L2s differ by {range}", mix + 1, POLICIES[policy]);
                // The two figures that the text states; it does not name the programs of its mix 1.
                let paper = (mix == 0 && bin == 0).then_some([40.0, 50.0][i]);
                rows.push(row(label, share, "% of quanta").of_unknown_draws(paper));
                if bin == 0 {
                    lowest[i] += share / s.mixes.len() as f64;
                }
            }
        }
    }
    let verdict = format!(
        "the caches differ by less than 25/µs in {:.0} % of the quanta under mas and in {:.0} % under cas: {}",
        lowest[0],
        lowest[1],
        if lowest[1] > lowest[0] { "cas balances, as in the paper" } else { "cas does not balance better" }
    );
    Ok(Found::new(rows, verdict, s.note(lab)))
}

/// Figures 12 and 13: mix 2, the first seed.
pub(in super::super) fn timeline(lab: &mut Lab) -> anyhow::Result<Found> {
    let s = schedules(lab)?;
    let mix = 1.min(s.mixes.len() - 1);
    let mut rows: Vec<Row> = Vec::new();
    let mut means = Vec::new();
    for (policy, name) in POLICIES.iter().enumerate().skip(1) {
        for quanta in [FEW, MANY] {
            let some: Vec<f64> = s.runs[mix][policy][0].differences.iter().copied().take(quanta).collect();
            let label = format!("mix {}, {name}, first {quanta} quanta: difference between the L2s", mix + 1);
            rows.push(row(format!("{label}, mean"), mean(&some), "/µs"));
            rows.push(row(format!("{label}, highest"), highest(&some), "/µs"));
            if quanta == FEW {
                means.push(mean(&some));
            }
        }
    }
    let verdict = format!(
        "over the first {FEW} quanta the difference is {:.1}/µs under mas and {:.1}/µs under cas (paper: usually higher under mas)",
        means[0], means[1]
    );
    Ok(Found::new(rows, verdict, s.note(lab)))
}

/// Whether at least as many programs gain as lose, and whether 60 % gain. §6.2: "9 of 10 mixes are benefited"; in one
/// "the percentage of benchmarks with slowdown is higher than the percentage of benchmarks with speedup"; 6 "present by
/// 60% of their benchmarks favored".
fn benefited(gains: &[f64]) -> [bool; 2] {
    let part = |of: &dyn Fn(f64) -> bool| gains.iter().filter(|gain| of(**gain)).count();
    let (faster, slower) = (part(&|gain| gain > 0.0), part(&|gain| gain < 0.0));
    [faster >= slower, faster * 10 >= gains.len() * 6]
}

/// Figure 14.
pub(in super::super) fn fairness(lab: &mut Lab) -> anyhow::Result<Found> {
    let s = schedules(lab)?;
    let mut rows = Vec::new();
    let mut mixes = [0; 2];
    for mix in 0..s.mixes.len() {
        let gain = |app: usize| percent(s.time(mix, CAS, app) / s.time(mix, DAS, app));
        let gains: Vec<f64> = (0..s.mixes[mix].len()).map(gain).collect();
        let favoured = gains.iter().filter(|g| **g > 0.0).count() as f64 / gains.len() as f64 * 100.0;
        rows.push(row(format!("mix {}: programs that das makes faster than cas", mix + 1), favoured, "%"));
        rows.push(row(format!("mix {}: the most that one gains", mix + 1), highest(&gains), "%"));
        rows.push(row(format!("mix {}: the most that one loses", mix + 1), highest(gains.iter().map(|g| -g)), "%"));
        mixes.iter_mut().zip(benefited(&gains)).for_each(|(n, met)| *n += usize::from(met));
    }
    let of = s.mixes.len();
    let [benefited, favoured] = mixes;
    for (n, paper, label) in [
        (benefited, 9, "mixes in which das makes no more programs slower than cas than faster"),
        (favoured, 6, "mixes in which das makes 60 % of the programs faster than cas"),
    ] {
        rows.push(claim(label, n as f64, "", &format!("{paper} of ten mixes"), n * 10 >= paper * of));
    }
    for (arm, over, label) in [
        (CAS, 0, "cas: the longest that a program takes, over its time under Linux"),
        (DAS, 0, "das: the same, over Linux"),
        (DAS, CAS, "das: the same, over cas"),
        (CAS_PROGRESS, 0, "cas with the progress term (ours): the same, over Linux"),
        (DAS_PROGRESS, 0, "das with the progress term (ours): the same, over Linux"),
        (DAS_PROGRESS, CAS_PROGRESS, "das with the progress term (ours): the same, over cas with it"),
    ] {
        rows.push(row(label, s.longest(arm, over), "times"));
    }
    let verdict = format!(
        "in {benefited} of {of} mixes das makes no more programs slower than cas than faster (paper: 9 of 10), in {favoured} at least 60 % of them faster (paper: 6)",
    );
    Ok(Found::new(rows, verdict, s.note(lab)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_benefited_where_no_more_get_slower_than_faster() {
        // Four of eight faster and four slower: benefited, although four are no majority.
        assert_eq!(benefited(&[1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -3.0, -9.0]), [true, false]);
        assert_eq!(benefited(&[1.0, 2.0, 3.0, 0.0, 0.0, -1.0, -2.0, -3.0]), [true, false], "some are as fast");
        assert_eq!(benefited(&[1.0, 2.0, 3.0, -1.0, -2.0, -3.0, -4.0, -5.0]), [false, false]);
        assert_eq!(benefited(&[1.0, 1.0, 1.0, -1.0, -1.0]), [true, true], "three of five are 60 %");
    }

    /// Holds sim/reproduce.
    #[test]
    fn mixes_of_the_papers_traffic_have_it() {
        // Of 20 programs one half draws 20, the other 1: eight have 4 · (20 k + 8 − k)/8 = 4 + 9.5 k, 25 to 35 with
        // three of the first half; twelve have 4 + 6.33 k, with four.
        let names = "a b c d e f g h i j k l m n o p q r s t";
        let of = |i: usize| Alone { ipc: 1.0, tr_l1: 0.0, tr_l2: if i.is_multiple_of(2) { 20.0 } else { 1.0 } };
        let alone: BTreeMap<&str, Alone> = names.split(' ').enumerate().map(|(i, name)| (name, of(i))).collect();
        let loud = |mix: &Vec<&str>| mix.iter().filter(|name| alone[**name].tr_l2 > 1.0).count();
        let drawn = mixes(Traffic::OfThePaper, &alone).unwrap();
        assert_eq!(drawn.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8, 8, 8, 8, 8, 12, 12, 12]);
        assert_eq!(drawn.iter().map(loud).collect::<Vec<_>>(), [3, 3, 3, 3, 3, 3, 3, 4, 4, 4]);
        assert!(mixes(Traffic::Any, &alone).unwrap().iter().any(|mix| loud(mix) > 4));
        let quiet: BTreeMap<&str, Alone> = alone.keys().map(|name| (*name, of(1))).collect();
        assert!(mixes(Traffic::OfThePaper, &quiet).is_err(), "there is none");
    }
}
