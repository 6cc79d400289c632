//! Arguments that several subcommands share.

use crate::registry::registry;
use crate::units;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cotenant_cli::usage;
use cotenant_kernels::Kernel;
use cotenant_linux::sense::memory::Choice;
use cotenant_linux::sense::metrics;
use cotenant_model::Mode;
use cotenant_model::metric::{Metric, MetricError, MetricSource, QUANTILE};
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Settings, settings};
use cotenant_model::speed::Source;
use cotenant_policies::{AtomConfig, Objective, SamConfig};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// `--set`, wherever a policy decides.
#[derive(Debug, Clone, Default, Args)]
pub struct SetArgs {
    /// A setting of a policy, such as sam.cooldown=false or atom.turn=2s; may be repeated
    #[arg(long, value_name = "POLICY.KEY=VALUE", value_parser = setting, hide_short_help = true)]
    set: Vec<Setting>,
}

#[derive(Debug, Clone)]
struct Setting {
    /// The section of the settings that the policy reads.
    section: &'static str,
    key: String,
    value: String,
}

fn setting(text: &str) -> Result<Setting, String> {
    let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
    let ((policy, key), value) = parts.ok_or("expected POLICY.KEY=VALUE, as in sam.cooldown=false")?;
    Ok(Setting { section: registry().section(policy)?, key: key.to_owned(), value: value.to_owned() })
}

impl SetArgs {
    /// Changes settings for these policies.
    ///
    /// # Errors
    /// None of them has such a setting, or the value is invalid.
    pub fn apply<'a>(
        &self,
        settings: &mut Settings,
        policies: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<()> {
        let entries: Vec<_> = policies.into_iter().filter_map(|name| registry().find(name).ok()).collect();
        for Setting { section, key, value } in &self.set {
            let wrong = |why: &dyn std::fmt::Display| usage(format!("--set {section}.{key}={value}: {why}"));
            if !entries.iter().any(|entry| entry.reads().contains(section)) {
                let names: Vec<&str> = entries.iter().map(|entry| entry.name()).collect();
                return Err(wrong(&format!("the policy here is {}, which has no such settings", names.join(", "))));
            }
            settings.set(section, key, settings::value(value));
            registry().check(section, settings).map_err(|why| wrong(&why.why))?;
        }
        Ok(())
    }
}

/// What decides and how; common to everything that decides.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What decides")]
pub struct PolicyArgs {
    /// auto, static, none, … (cotenant policies) [default: auto]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// The mapping of the policy static, as in 'XX..XX..'
    ///
    /// One character per online CPU in the order of `cotenant topo`: X = use, . = free.
    #[arg(long, value_name = "MAP", hide_short_help = true)]
    pub map: Option<String>,
    /// Switches of the policy sam, as in 'default,-cooldown' [default: default]
    ///
    /// Begins with paper, default, recommended or mph; then +NAME or -NAME turns a switch on or off. The policy auto
    /// takes recommended.
    #[arg(long, value_name = "SETTING", allow_hyphen_values = true, hide_short_help = true)]
    pub sam: Option<SamConfig>,
    /// How the policy atom learns [default: turn=1s,rounds=5,settle=20%,classes=32]
    ///
    /// turn=TIME, rounds=N and settle=PERCENT set the length of a turn, the turns of each class, and the part of a turn
    /// that is not measured. classes=N limits how many classes compete. all adds unbalanced classes, kernel adds the
    /// kernel's own placement. execute=TIME learns again after that time. paper does as the paper does.
    #[arg(long, value_name = "SETTING", hide_short_help = true)]
    pub atom: Option<AtomConfig>,
    /// What auto and shapes maximize: mean, fair or app=NAME [default: mean]
    ///
    /// mean is the geometric mean of the applications' speeds. fair is the least gain over the kernel's placement.
    /// app=NAME is the speed of one application.
    #[arg(long, value_name = "GOAL", hide_short_help = true)]
    pub objective: Option<Objective>,
    /// Largest loss that auto and shapes allow any application, compared with the kernel's placement, or off [default:
    /// 5%]
    #[arg(long, value_name = "SHARE", hide_short_help = true)]
    pub guard: Option<String>,
    /// Share of the time that trials of auto and shapes may cost [default: 1%]
    #[arg(long, value_name = "SHARE", hide_short_help = true)]
    pub regret: Option<String>,
    /// Settings of single policies
    #[command(flatten)]
    pub set: SetArgs,
    /// Time between decisions, 1ms to 60min, with unit us, ms, s, min or h [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::interval, hide_short_help = true)]
    pub interval: Option<Duration>,
    /// How far a decided CPU is widened when it is applied [default: llc; auto, shapes and static: cpu]
    #[arg(long, value_name = "TO", value_parser = pin(), hide_short_help = true)]
    pub pin: Option<Pin>,
    /// Also move the memory of programs
    ///
    /// Only policies that know where memory is do so. Memory that the program or its user has bound stays. Memory that
    /// was moved is not moved back at the end.
    #[arg(long, hide_short_help = true)]
    pub move_pages: bool,
    /// What is known of the machine: a machine file, or a TOML file with [thresholds] or `memory_latency`
    ///
    /// The rest is taken from the machine's own file, if there is one.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub profile: Option<PathBuf>,
    /// Characteristics of applications: a TOML file with [app.NAME] tables [default: the stored profiles, see
    /// cotenant profiles]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub profiles: Option<PathBuf>,
    /// Settings file; the command line takes precedence [default: cotenant/config.toml in the XDG configuration
    /// directory]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub config: Option<PathBuf>,
}

/// How a live machine is managed; common to `run`, `attach`, `compare` and `record`.
#[derive(Debug, Clone, Args)]
pub struct ManageArgs {
    /// What decides
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// What is managed
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// What is said
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Time between two readings of latencies that a busy program reports.
const LATENCY_EVERY: Duration = Duration::from_secs(2);

/// `--metric`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricArg {
    /// The source of the speed in policies' terms: for a probed server, every answer.
    pub source: Source,
    /// The reading of an external metric.
    pub outside: Option<Metric>,
}

impl Default for MetricArg {
    fn default() -> Self {
        Self { source: Source::Progress, outside: None }
    }
}

impl FromStr for MetricArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if ["progress", "ipc", "latency_p50_s", "latency_p99_s"].contains(&text) {
            return Ok(Self { source: text.to_owned().into(), outside: None });
        }
        let metric: Metric = text.parse().map_err(|why: MetricError| why.to_string())?;
        let source = if metric.source.is_latency() {
            let percent = metric.quantile.unwrap_or(QUANTILE) * 100.0;
            format!("latency_p{}_s", (percent * 1e3).round() / 1e3).into()
        } else {
            Source::Metric(metric.name.clone())
        };
        Ok(Self { source, outside: Some(metric) })
    }
}

/// A metric if the program's own reports and counters may give the speed too.
///
/// # Errors
/// The valid forms.
pub fn speed(text: &str) -> Result<MetricArg, String> {
    let metric: MetricArg =
        text.parse().map_err(|why| format!("{why}; or progress, ipc, latency_p50_s or latency_p99_s"))?;
    if metric.outside.as_ref().is_some_and(|metric| metric.name == "ipc") {
        return Err("a metric from outside cannot be called 'ipc', which counters tell; add ,name=NAME".to_owned());
    }
    if metric
        .outside
        .as_ref()
        .is_some_and(|metric| matches!(metric.source, MetricSource::Clients { beyond: Some(_), .. }))
    {
        return Err("what clients wait beyond a time is often nothing, which is no speed; use clients:…:p99".to_owned());
    }
    metric.outside.as_ref().map_or(Ok(()), |metric| metrics::check(metric).map_err(|why| why.to_string()))?;
    Ok(metric)
}

/// What is said where both are asked for.
pub const NO_CLIENTS: &str = "a metric clients: is seen by BPF, and --no-bpf does without; leave one of them out";

impl MetricArg {
    /// Whether BPF alone tells it.
    pub fn is_by_bpf(&self) -> bool {
        self.outside.as_ref().is_some_and(|metric| matches!(metric.source, MetricSource::Clients { .. }))
    }

    /// As people know it.
    pub fn name(&self) -> String {
        self.outside.as_ref().map_or_else(|| self.source.to_string(), |metric| metric.name.clone())
    }

    /// Time limit for a reading: so many periods, and a failed one.
    pub fn patience(&self, periods: u32) -> Option<Duration> {
        let timeout = self.outside.as_ref().map(|metric| metric.timeout);
        Some(self.periods(periods)? + timeout.unwrap_or_default())
    }

    /// The length of so many periods.
    pub fn periods(&self, periods: u32) -> Option<Duration> {
        self.outside.as_ref().map(|metric| metric.every).or(self.every()).map(|every| every * periods)
    }

    /// Time between two readings.
    pub fn every(&self) -> Option<Duration> {
        match (&self.outside, &self.source) {
            (Some(metric), _) => Some(metric.every.max(metric.timeout)),
            // Of programs with few requests a reading takes longer.
            (None, Source::Latency(_)) => Some(LATENCY_EVERY),
            (None, _) => None,
        }
    }
}

impl ScopeArgs {
    /// The metrics that come from outside.
    pub fn outside(&self) -> Vec<Metric> {
        self.metric.iter().filter_map(|metric| metric.outside.clone()).collect()
    }

    /// Refuses an internal metric if only external ones are read.
    ///
    /// # Errors
    /// Names the first such one.
    pub fn only_from_outside(&self) -> anyhow::Result<()> {
        if self.no_bpf && self.metric.iter().any(MetricArg::is_by_bpf) {
            return Err(usage(NO_CLIENTS));
        }
        let Some(own) = self.metric.iter().find(|metric| metric.outside.is_none()) else { return Ok(()) };
        Err(usage(format!(
            "--metric {}: only 'cotenant qos' and 'cotenant compare -p' go by it; name a source from outside, such as \
             cmd:COMMAND",
            own.name()
        )))
    }
}

/// What is managed, and how far.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What is managed")]
pub struct ScopeArgs {
    /// How far it goes [default: enforce; record: observe]
    #[arg(long, value_name = "MODE", value_parser = mode())]
    pub mode: Option<Mode>,
    /// Place only on these CPUs, as in 0-3,8 [default: all that the task itself may use]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub cpus: Option<String>,
    /// Name of the application, under which profiles know it [default: that of the executable, of the process alone,
    /// or of the control group]
    #[arg(short = 'n', long, value_name = "NAME", hide_short_help = true)]
    pub name: Option<String>,
    /// Where to read the program's speed, as in redis:6379:p99
    ///
    /// cmd:COMMAND is a command that prints a number. log:PATH:REGEX is the last number in a growing file.
    /// `http://HOST[:PORT]/PATH[#SERIES]` is a number, or `OpenMetrics`. redis:PORT:p99, postgres:PORT:p99 and
    /// `http:PORT/PATH:p99` measure how long a server takes to answer. `clients:PORT:p99` and `clients:/SOCKET:p99` are
    /// what its clients wait, seen in the kernel.
    ///
    /// Options follow after commas: higher or lower (what is better), name=NAME, every=TIME, timeout=TIME, q=QUANTILE.
    /// The metric may be repeated. compare -p also takes progress (its default), `latency_p50_s` or `latency_p99_s` as
    /// the program reports them, and ipc (hardware counters).
    #[arg(long, value_name = "SOURCE")]
    pub metric: Vec<MetricArg>,
    /// How policies learn which memory is accessed [default: auto]
    ///
    /// auto takes hardware, else faults and accessed. hardware counts events, faults reads what NUMA balancing found
    /// of each thread, damon asks the kernel's monitor, and accessed reads the accessed bits of page tables. placement
    /// takes the places of pages instead.
    #[arg(long, value_name = "HOW", hide_short_help = true)]
    pub collector: Option<Choice>,
    /// Most that --collector may cost, in percent of one CPU, 0.01 to 100 [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = units::collector_budget, hide_short_help = true)]
    pub collector_budget: Option<f64>,
    /// Also manage tasks of other users (needs the right to)
    #[arg(long, hide_short_help = true)]
    pub all_users: bool,
    /// Do without BPF, which shows what programs wait for a CPU behind (needs root)
    #[arg(long, hide_short_help = true)]
    pub no_bpf: bool,
}

/// What is said.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print the summary as JSON
    ///
    /// On standard error, since standard output is the command's. Of compare on standard output.
    #[arg(long, hide_short_help = true)]
    pub json: bool,
    /// Print every move and its reason as it is made
    #[arg(short, long, action = clap::ArgAction::Count, hide_short_help = true)]
    pub verbose: u8,
    /// Print no summary and no progress
    #[arg(short, long, hide_short_help = true)]
    pub quiet: bool,
}

/// A value of an enum by the name under which it is serialised, `-` for `_`: these, each with its help.
pub fn value_of<T>(values: &[[&'static str; 2]]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    let known = values.iter().map(|[name, help]| PossibleValue::new(name).help(*help));
    PossibleValuesParser::new(known)
        .try_map(|name| serde_json::from_value::<T>(name.replace('-', "_").into()).map_err(|e| e.to_string()))
}

/// `--pin`.
pub fn pin() -> impl TypedValueParser<Value = Pin> {
    value_of(&[
        ["cpu", "Exactly the decided CPU"],
        ["llc", "The CPUs that share its last-level cache"],
        ["node", "The CPUs of its memory node"],
    ])
}

/// `--mode`.
pub fn mode() -> impl TypedValueParser<Value = Mode> {
    value_of(&[["observe", "Sample only"], ["advise", "Decide, but change nothing"], ["enforce", "Decide and act"]])
}

/// The parts named by `--only`; all by default.
///
/// # Errors
/// Names the first that cannot be measured.
pub fn only<'a>(named: &'a [String], parts: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
    if let Some(name) = named.iter().find(|name| !parts.contains(&name.as_str())) {
        return Err(usage(format!("--only '{name}': there is no such measurement; there are {}", parts.join(", "))));
    }
    Ok(if named.is_empty() { parts.to_vec() } else { named.iter().map(String::as_str).collect() })
}

/// The kernels named by `--kernels`; by default those of `SmashBench`.
///
/// # Errors
/// Names the first that is no kernel.
pub fn kernels(named: &[String]) -> anyhow::Result<Vec<String>> {
    if let Some(name) = named.iter().find(|name| Kernel::by_name(name).is_none()) {
        return Err(usage(format!("--kernels {name}: there is no such kernel; see cotenant kernel --list")));
    }
    let smash = || Kernel::all().iter().filter(|kernel| kernel.source.starts_with("SmashBench"));
    Ok(if named.is_empty() { smash().map(|kernel| kernel.name.to_owned()).collect() } else { named.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_gets_every_answer_of_a_server_that_is_asked() {
        let names = |text: &str| {
            let metric: MetricArg = text.parse().unwrap();
            (metric.name(), metric.source.to_string())
        };
        let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(names("redis:6379:p99,name=cache"), both("cache", "latency_p99_s"));
        assert_eq!(names("postgres:5432:p99.9"), both("postgres", "latency_p99.9_s"));
        assert_eq!(names("clients:80:p50"), both("clients", "latency_p50_s"));
        assert_eq!(names("clients:80:beyond=5ms"), both("clients_beyond", "clients_beyond"));
        assert!(speed("clients:80:beyond=5ms").unwrap_err().contains("no speed"));
        assert_eq!(names("cmd:true,name=x"), both("x", "x"));
        assert_eq!(names("latency_p50_s"), both("latency_p50_s", "latency_p50_s"));
    }
}
