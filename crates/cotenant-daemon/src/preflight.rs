//! Whether rules can work: their metrics are read once before anything is managed.

use crate::config::{Config, Rule};
use crate::services::{self, Service};
use anyhow::Result;
use cotenant_cli::usage;
use cotenant_linux::sense::metrics::{self, Unanswered};
use cotenant_model::Mode;
use cotenant_model::metric::{Metric, MetricSource};
use cotenant_setup::args::MetricArg;
use cotenant_setup::unnamed;
use cotenant_status::class::Class;
use std::collections::BTreeMap;
use std::time::Duration;

/// Limit of the time for all answers together, since reloading the daemon waits for them.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Reads the metrics of rules with running services.
///
/// # Errors
/// A metric that is refused for good. One that does not answer yet is waited for.
pub(crate) fn all_answer(config: &Config) -> Result<()> {
    let found = services::now(&config.rules)?;
    for (rule, no) in unanswered(&config.rules, &found, |_| true)? {
        if no.certain {
            let (name, why) = (&config.rules[rule].name, no.why);
            return Err(usage(format!(
                "rule {name}: its metric is refused: {why}; for a server that comes later add --wait-for-metric"
            )));
        }
    }
    Ok(())
}

/// Rules that can match nothing, and keys of before.
pub(crate) fn of_rules(rules: &[Rule]) -> Vec<String> {
    let never = |rule: &Rule| Some(format!("rule {} can match nothing: {}", rule.name, rule.never.as_ref()?));
    rules.iter().filter_map(never).chain(rules.iter().filter_map(|rule| rule.old.clone())).collect()
}

/// The parts of running services' configuration that will not work at present.
pub(crate) fn warnings(config: &Config, found: &BTreeMap<String, Service>, ask_commands: bool) -> Result<Vec<String>> {
    let rules = &config.rules;
    let mut warnings = of_rules(rules);
    let may_ask = |metric: &Metric| ask_commands || !matches!(metric.source, MetricSource::Command(_));
    for (rule, no) in unanswered(rules, found, may_ask)? {
        warnings.push(format!("rule {}: its metric does not answer: {}", rules[rule].name, no.why));
    }
    for service in found.values() {
        let (terms, rule) = (&service.terms, &rules[service.rule]);
        let by_progress = terms.metric.as_ref().is_none_or(|metric| *metric == MetricArg::default());
        if terms.class != Class::High || !by_progress {
            continue;
        }
        let (name, pids) = (&service.name, service.target.pids());
        let may_choose = terms.metric.is_none() && config.bpf && config.mode == Mode::Enforce;
        let chosen = may_choose.then(|| unnamed::metric(name, &pids, |source| format!("metric = \"{source}\"")));
        let (metric, note) = chosen.unwrap_or_default();
        if !metric.is_by_bpf() && !unnamed::reports(&pids) {
            let unknown = || format!("the speed of {name} is not reported; name a metric, or let it report progress");
            warnings.push(format!("rule {}: {}", rule.name, note.unwrap_or_else(unknown)));
        }
    }
    Ok(warnings)
}

/// The metrics of rules with running services that do not answer; all are read at once.
fn unanswered(
    rules: &[Rule],
    found: &BTreeMap<String, Service>,
    may_ask: impl Fn(&Metric) -> bool,
) -> Result<Vec<(usize, Unanswered)>> {
    let runs =
        |rule: usize| found.values().any(|service| service.rule == rule && service.terms.metric == rules[rule].metric);
    let metric = |(i, rule): (usize, &Rule)| {
        Some((i, rule.metric.as_ref()?.outside.clone().filter(|metric| runs(i) && may_ask(metric))?))
    };
    let (of, metrics): (Vec<usize>, Vec<Metric>) = rules.iter().enumerate().filter_map(metric).unzip();
    let answers = metrics::ask(&metrics, PATIENCE).map_err(cotenant_linux::host::StartError::Metrics)?;
    Ok(of.into_iter().zip(answers).filter_map(|(rule, no)| Some((rule, no?))).collect())
}
