//! The result of `cotenant bench`.

use cotenant_cli::page::Sheet;
use cotenant_cli::table::Table;
use cotenant_measure::workload::compare::{Figures, Gain, gains};
use cotenant_measure::workload::{JobRuns, Workload};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// All results; the keys of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The simulated machine; absent where the programs were real.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    pub rounds: Vec<Round>,
    pub over_linux: Vec<Over>,
    pub notes: Vec<String>,
}

/// A workload carried out once under each policy.
#[derive(Debug, Serialize)]
pub(super) struct Round {
    /// In the paper's notation.
    pub workload: String,
    /// From 1.
    pub repetition: u64,
    /// By policy; `none` is Linux alone.
    pub policies: BTreeMap<String, Arm>,
}

/// A workload under a policy.
#[derive(Debug, Serialize)]
pub(super) struct Arm {
    #[serde(flatten)]
    pub figures: Figures,
    /// Per job.
    pub apps: Vec<App>,
}

/// A job.
#[derive(Debug, Serialize)]
pub(super) struct App {
    name: String,
    /// Of each run.
    times_s: Vec<f64>,
}

/// A policy over Linux.
#[derive(Debug, Serialize)]
pub(super) struct Over {
    policy: String,
    /// Rounds, each under both.
    rounds: usize,
    average_response_time: Gain,
    throughput: Gain,
}

impl Arm {
    /// `None` where a run took no time.
    pub fn new(workload: &Workload, ran: &[JobRuns]) -> Option<Self> {
        let apps = workload.jobs.iter().zip(ran);
        let apps = apps.map(|(job, ran)| App { name: job.name.clone(), times_s: ran.times_s.clone() });
        Some(Self { figures: Figures::of(ran)?, apps: apps.collect() })
    }
}

/// Each policy over Linux, over all rounds that both have.
pub(super) fn over_linux(rounds: &[Round], policies: &[String]) -> Vec<Over> {
    let over = |policy: &String| {
        let pairs =
            rounds.iter().filter_map(|r| Some((r.policies.get("none")?.figures, r.policies.get(policy)?.figures)));
        let pairs: Vec<(Figures, Figures)> = pairs.collect();
        let [average_response_time, throughput] = gains(&pairs);
        let (policy, rounds) = (policy.clone(), pairs.len());
        (rounds > 0).then_some(Over { policy, rounds, average_response_time, throughput })
    };
    policies.iter().filter_map(over).collect()
}

impl Report {
    pub fn table(&self, out: &mut Sheet<'_>) -> io::Result<()> {
        for round in &self.rounds {
            writeln!(out, "{}, repetition {}", round.workload, round.repetition)?;
            let mut table = Table::new(["policy", ">ART", ">throughput", "mean time of each program"]);
            for (name, arm) in &round.policies {
                let Figures { art_s, throughput } = arm.figures;
                let times = arm.apps.iter().map(|app| {
                    format!("{} {:.3} s", app.name, app.times_s.iter().sum::<f64>() / app.times_s.len() as f64)
                });
                let times = times.collect::<Vec<_>>().join(", ");
                table.row([name.clone(), format!("{art_s:.3} s"), format!("{throughput:.5} /s"), times]);
            }
            out.table(&table)?;
        }
        for over in &self.over_linux {
            let pairs = cotenant_cli::messages::count(over.rounds as u64, "pair");
            let (time, throughput) = (gain(&over.average_response_time), gain(&over.throughput));
            let policy = &over.policy;
            writeln!(out, "{policy} over Linux, {pairs}: average response time {time}, throughput {throughput}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))
    }
}

fn gain(gain: &Gain) -> String {
    match (gain.ci95, gain.p) {
        (Some([low, high]), Some(p)) => {
            format!("{:+.2} % (95 % interval {low:+.2} to {high:+.2}, one-sided p = {})", gain.percent, probability(p))
        }
        _ => format!("{:+.2} % (too few pairs to tell from chance)", gain.percent),
    }
}

fn probability(p: f64) -> String {
    if p < 1e-4 { "below 0.0001".to_owned() } else { format!("{p:.4}") }
}
