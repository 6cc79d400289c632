//! The result of a batch, as a table or JSON.

use super::args::Args;
use super::queue::{JobReport, NAME};
use crate::run::summary::Summary;
use anyhow::Result;
use cotenant_cli::live_view::cut_middle;
use cotenant_cli::messages::count;
use cotenant_cli::table::Table;
use cotenant_linux::act::pause::Mechanism;
use cotenant_linux::host::queue::Gaps;
use cotenant_model::Signal;
use cotenant_status::hurts;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// Output of `--json` besides the common results of runs.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    #[serde(flatten)]
    pub run: &'a Summary,
    /// Why this one, under `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// How jobs were paused; absent without pauses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Mechanism>,
    pub quantum_ms: f64,
    pub cpus: usize,
    pub makespan_s: f64,
    pub jobs: Vec<JobReport>,
    pub failed: usize,
    /// Interrupted or never started because of a requested stop; `--resume` starts them.
    pub left: usize,
    /// Quanta in which all were stopped and resumed.
    pub quanta: u64,
    /// Time between the first stop and the last resume, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_us: Option<GapUs>,
}

#[derive(Debug, Serialize)]
pub(super) struct GapUs {
    mean: f64,
    longest: f64,
    /// Fraction of the makespan.
    share: f64,
}

impl GapUs {
    pub fn of(gaps: &Gaps, makespan: Duration) -> Option<Self> {
        let us = |d: Duration| d.as_secs_f64() * 1e6;
        (gaps.count > 0).then(|| Self {
            mean: us(gaps.total) / gaps.count as f64,
            longest: us(gaps.longest),
            share: gaps.total.as_secs_f64() / makespan.as_secs_f64().max(f64::MIN_POSITIVE),
        })
    }
}

impl Report<'_> {
    pub fn print(&self, args: &Args) -> Result<()> {
        if args.quiet && !args.json {
            return Ok(());
        }
        cotenant_cli::answer(args.json, self, |out| {
            let mut table = Table::new(["job", ">result", ">attempts", ">seconds", ">CPU s", ">LLC misses/µs"]);
            for JobReport { title, result, exit_code, attempts, seconds, cpu_s, per_cpu_us, .. } in &self.jobs {
                let failed = exit_code.filter(|code| *code != 0).map(|code| format!("failed ({code})"));
                let (title, result) = (cut_middle(title, NAME), failed.unwrap_or_else(|| (*result).to_owned()));
                let rate = per_cpu_us.get(Signal::LlcMisses.name()).map_or("-".to_owned(), |rate| format!("{rate:.2}"));
                let [seconds, cpu_s] = [seconds, cpu_s].map(|seconds| format!("{seconds:.2}"));
                table.row([title, result, attempts.to_string(), seconds, cpu_s, rate]);
            }
            out.table(&table)?;
            let chosen = self.chosen.as_ref().map(|why| format!(" (auto: {why})")).unwrap_or_default();
            let (jobs, policy, own) =
                (count(self.jobs.len() as u64, "job"), self.run.policy, self.run.overhead * 100.0);
            let Self { makespan_s, failed, .. } = self;
            let left = match self.left {
                0 => String::new(),
                left => format!(", {left} left for --resume"),
            };
            writeln!(
                out,
                "{jobs} under {policy}{chosen} in {makespan_s:.2} s, {failed} failed{left}; own cost {own:.2} % of a CPU"
            )?;
            if let (Some(pause), Some(GapUs { mean, longest, share })) = (&self.pause, &self.gap_us) {
                let quanta = count(self.quanta, "quantum").replace("quantums", "quanta");
                let gap =
                    format!("{mean:.0} µs from the first stop to the last resume on average, {longest:.0} at most");
                writeln!(out, "{quanta} by {pause}: {gap}, {:.2} % of the time", share * 100.0)?;
            }
            writeln!(out, "counters: {}", self.run.tier)?;
            for (job, why) in self.jobs.iter().filter_map(|job| Some((job, job.why.as_ref()?))) {
                writeln!(out, "{}: {why}", cut_middle(&job.title, NAME))?;
            }
            for line in hurts::lines(&self.run.interference) {
                writeln!(out, "{line}")?;
            }
            for note in &self.run.notes {
                writeln!(out, "note: {note}")?;
            }
            if let Some(recorded) = &self.run.recording {
                writeln!(out, "{recorded}")?;
            }
            Ok(())
        })?;
        Ok(())
    }
}
