//! The daemon's status: one snapshot a second, for the control socket and the metrics.

use crate::class::Class;
use crate::identity::{Identity, learnt};
use crate::quantities;
use crate::verdict::{Judgement, Verdict};
use cotenant_cli::messages::count;
use cotenant_cli::progress::{about, ago};
use cotenant_cli::table::Table;
use cotenant_model::action::{Evidence, Outcome};
use cotenant_model::interference::Row;
use cotenant_model::policy::Statement;
use cotenant_model::usage::Usage;
use cotenant_model::{Behind, CpuId, CpuSet, Mode, number};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// The name of the machine.
    #[serde(default, deserialize_with = "cotenant_model::text::name_of")]
    pub host: String,
    /// From the configuration.
    pub mode: Mode,
    /// Whether changes are suspended for now, in any mode.
    pub paused: bool,
    /// Seconds since it was started.
    pub uptime_s: f64,
    /// The main configuration file.
    pub config: String,
    /// Why the configuration on disk is not the one in force.
    pub config_error: Option<String>,
    /// CPU time of the daemon so far, seconds.
    pub cpu_s: f64,
    /// Resident memory of the daemon, bytes.
    pub resident_bytes: Option<u64>,
    /// The countable events, in words.
    pub tier: String,
    /// Whether each signal is counted here, by name.
    pub signals: BTreeMap<String, bool>,
    /// Age of the last sample when this was made, seconds.
    pub sample_age_s: f64,
    /// When this was made.
    #[serde(skip, default = "Instant::now")]
    pub made: Instant,
    /// Time between two samples, seconds.
    pub interval_s: f64,
    /// The address of the metrics endpoint; absent if not configured.
    pub listen: Option<Listen>,
    /// Busy share of each CPU; empty in the first second.
    #[serde(default)]
    pub cpus: Vec<CpuStatus>,
    /// Usage of this machine outside of the services in about the last ten seconds; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Bytes per second that services brought in from memory in the last second through the CPUs of each memory node,
    /// by its number; empty where misses of the last-level cache are not counted.
    #[serde(default)]
    pub memory: BTreeMap<u32, f64>,
    /// Containers reported by the bridge to the container runtime; absent without reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<usize>,
    /// Present changes, all of which will be undone, by kind.
    pub changes: BTreeMap<String, usize>,
    /// Managed services, and those left alone.
    pub services: Vec<ServiceStatus>,
    /// Certain losses of speed by pairs, the greatest first.
    pub interference: Vec<Row>,
    /// Orders carried out so far, by effect and stage of the policy.
    pub decisions: Vec<Decisions>,
    /// The last of them, the latest last.
    pub last: Vec<Decision>,
    /// Results of the last trials of `shapes`, the latest last.
    #[serde(default)]
    pub trials: Vec<Trial>,
    /// Remarks about missing or omitted things.
    pub notes: Vec<String>,
}

/// A service.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// The rule that names it.
    pub rule: String,
    /// Its class.
    pub class: Class,
    /// The policy that places it.
    pub policy: String,
    /// Its container, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Identity>,
    /// The user of its processes; root if they have several.
    pub uid: u32,
    /// Whether it is left alone for now on request.
    pub paused: bool,
    /// Its processes.
    pub processes: usize,
    /// The oldest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its command line, where `top` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Resident memory of its processes, bytes; pages that several share count for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// The control group around it, such as `/system.slice`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub within: String,
    /// Its threads.
    pub threads: usize,
    /// CPU time of its threads in the last second, in CPUs; absent if uncounted.
    pub cpus: Option<f64>,
    /// Threads ready to run without a CPU, on average over the last second: seconds of waiting per second (the kernel's
    /// `run_delay`); absent if uncounted.
    #[serde(default)]
    pub waiting: Option<f64>,
    /// The work that occupied the CPU meanwhile, most first, if BPF is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    /// Share of the last second in which its control group lacked CPUs: at least one of its threads was ready to run
    /// without one (the kernel's `cpu.pressure`, `some`); absent without its own group, or if uncounted.
    #[serde(default)]
    pub pressure: Option<f64>,
    /// Its speed by the last reading, in units of its source; absent if that is the inverse of a latency.
    pub speed: Option<f64>,
    /// The source of that.
    pub source: Option<String>,
    /// Why its metric keeps failing.
    #[serde(default)]
    pub metric_error: Option<String>,
    /// The share of its speed alone that it is to keep, of class high.
    pub goal: Option<f64>,
    /// The share of its speed alone that it kept in the last minute, of class high.
    pub kept: Option<f64>,
    /// The 95 % interval of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_interval: Option<[f64; 2]>,
    /// The verdict on its goal from these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The same as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<String>,
    /// Its work in its own unit: now, alone and at its goal.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// The share within its goal in the last hour, of class high.
    #[serde(default)]
    pub within_goal: Option<WithinGoal>,
    /// The share of the last minute in which it was made to wait, of class low.
    pub throttled: Option<f64>,
    /// The latencies of its answers in the last seconds, if known.
    pub latencies: Vec<Quantile>,
    /// Its policy's statement.
    #[serde(flatten)]
    pub said: Statement,
    /// Bytes per second from memory in the last second: a line of 64 bytes for each miss of the last-level cache.
    #[serde(default)]
    pub bandwidth: Option<f64>,
    /// The places of its threads in the last second.
    #[serde(default)]
    pub places: Vec<Place>,
    /// Further run time of its threads on unknown CPUs, because they moved between two samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedTime>,
    /// Its busiest threads in the last second, the busiest first.
    #[serde(default)]
    pub busiest: Vec<ThreadStatus>,
}

/// The work of a service: all values in one unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The measure: `p99`, `progress`, a metric's name.
    pub what: String,
    /// `seconds`, `bytes_per_s`, or the text after the values.
    pub unit: String,
    /// Which way is better.
    pub lower_is_better: bool,
    /// In the last 10 s: the quantile of all answers, else the mean.
    pub now: Option<f64>,
    /// Alone.
    pub alone: Option<f64>,
    /// The 95 % interval of that, by the block bootstrap.
    pub alone_interval: Option<[f64; 2]>,
    /// The age of that measurement.
    pub alone_age_s: Option<f64>,
    /// At the goal.
    pub goal: Option<f64>,
}

impl Measured {
    /// A value of it.
    pub fn text(&self, value: Option<f64>) -> String {
        match value {
            None => "?".to_owned(),
            Some(value) if self.unit == "seconds" => quantities::time(value),
            Some(value) if self.unit == "bytes_per_s" => format!("{}B/s", number::scaled(value)),
            Some(value) => format!("{}{}", number::significant(value, 3), self.unit),
        }
    }

    /// `267 µs (95 % 250 µs to 290 µs by block bootstrap, measured 40 s ago)`
    pub fn alone_text(&self) -> String {
        let age = self.alone_age_s.map(|age| format!("measured {}", ago(age)));
        let interval = self.alone_interval.map(|ends| {
            let [low, high] = ends.map(|end| self.text(Some(end)));
            format!("95 % {low} to {high} by block bootstrap")
        });
        let more = interval.into_iter().chain(age).collect::<Vec<_>>().join(", ");
        if more.is_empty() { self.text(self.alone) } else { format!("{} ({more})", self.text(self.alone)) }
    }
}

/// The share of a service's work within its goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithinGoal {
    /// The share, 0–1.
    pub share: f64,
    /// Whether of requests; else of seconds.
    pub requests: bool,
    /// The covered time: an hour at most.
    pub seconds: f64,
}

impl WithinGoal {
    /// `99.21 % of requests in the last 59 min`
    pub fn text(&self) -> String {
        let of = if self.requests { "requests" } else { "seconds" };
        let time = about(Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::ZERO));
        format!("{:.2} % of {of} in the last {time}", self.share * 100.0)
    }
}

/// A CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Which one.
    pub cpu: CpuId,
    /// Fraction of the last second in which it was busy with any work.
    pub busy: f64,
}

/// A service's use of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Which CPU.
    pub cpu: CpuId,
    /// CPUs' worth of time.
    pub cpus: f64,
    /// Last-level cache misses per second there; absent if uncounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses_per_s: Option<f64>,
}

/// CPU time of threads that moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedTime {
    /// The cache domain of all its places, if it is the same.
    pub domain: Option<usize>,
    /// CPUs' worth of time.
    pub cpus: f64,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadStatus {
    /// Its kernel id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Its present or last CPU.
    pub cpu: Option<CpuId>,
    /// CPUs' worth of time.
    pub cpus: f64,
    /// Its allowed CPUs.
    pub allowed: CpuSet,
}

/// This share of answers arrived within this many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// The share, 0–1.
    pub quantile: f64,
    /// The seconds.
    pub seconds: f64,
}

/// A placement that was held against the one that stood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// When it was over, seconds since the start of the daemon.
    pub at_s: f64,
    /// The tried shape: threads in each cache domain, by program.
    pub shape: String,
    /// By how much it was faster: 0.05 is 5 %.
    pub gain: f64,
    /// Its interval, valid at every look; null while it has no bounds.
    pub interval: Option<[f64; 2]>,
    /// Pairs of windows that were compared.
    pub pairs: usize,
    /// Whether it was kept.
    pub kept: bool,
}

/// The address of the metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listen {
    /// The address with its port.
    pub address: String,
    /// Why they are not served; serving is retried.
    pub error: Option<String>,
}

/// Number of actions of a kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decisions {
    /// The kind of action.
    pub action: String,
    /// The policy's stage behind it.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// Seconds since the start of the daemon.
    pub at_s: f64,
    /// Its service.
    pub service: String,
    /// Its owner; absent without one, and from older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The order.
    pub what: String,
    /// The outcome, if it was not carried out.
    pub outcome: Option<String>,
    /// The complete reason; absent from older daemons.
    #[serde(default)]
    pub why: Option<Why>,
}

/// A decision in parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The policy, with its deciding stage.
    pub policy: String,
    /// The policy's deciding stage.
    pub stage: String,
    /// The means of its effect.
    pub means: String,
    /// Its thread, by name and kernel id; null if it concerns the service as a whole.
    pub thread: Option<String>,
    /// Its previous CPU.
    pub from_cpu: Option<CpuId>,
    /// The order in words.
    pub to: String,
    /// The CPUs allowed to the thread afterwards.
    pub may_use: Option<CpuSet>,
    /// The measured value and its comparison.
    pub evidence: Option<Evidence>,
    /// The reason as one line.
    pub text: String,
}

/// The name of an outcome; `None` for [`Outcome::Applied`].
pub fn outcome_name(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Applied => None,
        Outcome::Gone => Some("gone"),
        Outcome::Stale => Some("stale"),
        Outcome::Denied => Some("denied"),
        Outcome::NotThisMachine => Some("advised"),
    }
}

/// An older sample is stale, unless samples are wanted more seldom.
const STALE: Duration = Duration::from_secs(10);

impl ServiceStatus {
    /// Without the contents of files and servers that the daemon reads with its own rights.
    #[must_use]
    pub fn for_anybody(self) -> Self {
        let metric_error = self.metric_error.map(|_| "its metric fails; the administrator sees why".to_owned());
        Self { metric_error, ..self }
    }

    /// Its name and the verdict on its goal, if it has one.
    pub fn judged(&self) -> Option<(&str, &str)> {
        Some((&self.name, self.judgement.as_deref()?))
    }

    /// With this verdict.
    #[must_use]
    pub fn with(self, judgement: &Judgement) -> Self {
        Self { verdict: Some(judgement.verdict), judgement: Some(judgement.to_string()), ..self }
    }

    /// Its name in the table of interference.
    pub fn learnt(&self) -> String {
        learnt(&self.name, self.uid, self.container.as_ref())
    }
}

#[cfg(any(test, feature = "testing"))]
impl Status {
    /// Without a service, and with nothing known.
    ///
    /// # Panics
    /// Never: its text is valid.
    pub fn of_nobody(made: Instant) -> Self {
        let text = r#"{"version": "1.2.3", "pid": 1, "mode": "observe", "paused": false, "uptime_s": 0.0, "config": "",
            "cpu_s": 0.5, "tier": "", "signals": {}, "sample_age_s": 0.0, "interval_s": 0.1, "changes": {},
            "services": [], "interference": [], "decisions": [], "last": [], "notes": []}"#;
        Self { made, ..serde_json::from_str(text).unwrap() }
    }
}

impl Status {
    /// The same for output now, because receivers cannot know its age.
    #[must_use]
    pub fn told_now(&self) -> Self {
        Self { sample_age_s: self.age().as_secs_f64(), ..self.clone() }
    }

    /// The present age of the last sample.
    pub fn age(&self) -> Duration {
        Duration::try_from_secs_f64(self.sample_age_s).unwrap_or(Duration::ZERO) + self.made.elapsed()
    }

    /// Whether it is older than it may be: 10 s, or three intervals.
    pub fn is_stale(&self) -> bool {
        self.age() > STALE.max(Duration::try_from_secs_f64(3.0 * self.interval_s).unwrap_or(Duration::ZERO))
    }

    /// The part visible to a user other than the daemon's: that user's services only.
    #[must_use]
    pub fn for_user(&self, uid: u32) -> Self {
        let theirs = self.services.iter().filter(|service| service.uid == uid).cloned();
        let services: Vec<ServiceStatus> = theirs.map(ServiceStatus::for_anybody).collect();
        let learnt: BTreeSet<String> = services.iter().map(ServiceStatus::learnt).collect();
        Self {
            interference: self
                .interference
                .iter()
                .filter(|row| learnt.contains(&row.victim) && learnt.contains(&row.aggressor))
                .cloned()
                .collect(),
            last: self.last.iter().filter(|decision| decision.uid == Some(uid)).cloned().collect(),
            decisions: Vec::new(),
            changes: BTreeMap::new(),
            trials: Vec::new(),
            usage: None,
            containers: None,
            notes: Vec::new(),
            config_error: None,
            memory: BTreeMap::new(),
            services,
            ..self.told_now()
        }
    }

    /// The age of a decision.
    pub fn when(&self, decision: &Decision) -> String {
        ago(self.uptime_s - decision.at_s)
    }

    /// Its activity, as a verb.
    pub fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Observe if self.paused => "observes, paused for now",
            Mode::Observe => "observes",
            Mode::Advise if self.paused => "advises, paused for now",
            Mode::Advise => "advises",
            Mode::Enforce if self.paused => "enforces, paused for now",
            Mode::Enforce => "enforces",
        }
    }

    /// For people.
    ///
    /// # Errors
    /// A closed `out`.
    pub fn print(&self, out: &mut cotenant_cli::page::Sheet<'_>) -> anyhow::Result<()> {
        for (name, judgement) in self.services.iter().filter_map(ServiceStatus::judged) {
            writeln!(out, "{name}: {judgement}")?;
        }
        let mode = self.mode();
        let since = about(Duration::try_from_secs_f64(self.uptime_s).unwrap_or(Duration::ZERO));
        writeln!(out, "cotenant {} (process {}) {mode}, since {since}", self.version, self.pid)?;
        let share = self.cpu_s / self.uptime_s.max(1.0) * 100.0;
        let memory =
            self.resident_bytes.map_or_else(String::new, |bytes| format!(", {} MB", bytes.div_ceil(1_000_000)));
        writeln!(out, "own cost: {share:.2} % of a CPU{memory}; counters: {}", self.tier)?;
        match &self.config_error {
            Some(why) => writeln!(out, "configuration: that of before is in force: {why}")?,
            None => writeln!(out, "configuration: {}", self.config)?,
        }
        match &self.listen {
            Some(Listen { address, error: None }) => writeln!(out, "metrics: http://{address}/metrics")?,
            Some(Listen { address, error: Some(why) }) => {
                writeln!(out, "metrics: none, {address} cannot be listened at: {why}")?;
            }
            None => {}
        }
        if let Some(known) = self.containers {
            writeln!(out, "containers: {known} reported by the bridge")?;
        }
        if let Some(usage) = &self.usage {
            writeln!(out, "beside the services: {}{}", usage.text(), usage.waits())?;
        }
        if self.is_stale() {
            writeln!(out, "warning: no look at the services for {}; does it hang?", about(self.age()))?;
        }
        self.print_services(out)?;
        for service in &self.services {
            if let Some(why) = &service.metric_error {
                writeln!(out, "warning: {}: {why}", service.name)?;
            }
        }
        for service in &self.services {
            if let Some(measured) = service.measured.as_ref().filter(|measured| measured.alone.is_some()) {
                let within =
                    service.within_goal.map_or_else(String::new, |it| format!("; within the goal: {}", it.text()));
                writeln!(out, "{}: {} alone {}{within}", service.name, measured.what, measured.alone_text())?;
            }
        }
        for line in waits(&self.services) {
            writeln!(out, "{line}")?;
        }
        for row in &self.interference {
            writeln!(
                out,
                "{} loses {:.1} % ({:.1} to {:.1}) while {} runs, from {}",
                row.victim,
                row.loss * 100.0,
                row.low * 100.0,
                row.high * 100.0,
                row.aggressor,
                count(row.events, "event"),
            )?;
        }
        for decision in self.last.iter().rev().take(10) {
            writeln!(out, "{}: {}", self.when(decision), decision.line())?;
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(())
    }

    fn print_services(&self, out: &mut cotenant_cli::page::Sheet<'_>) -> io::Result<()> {
        if self.services.is_empty() {
            return writeln!(out, "no service that the rules name runs now");
        }
        let mut table = Table::new([
            "service",
            "rule",
            "class",
            "policy",
            ">threads",
            ">CPUs",
            ">waits",
            ">short",
            "measured by",
            ">now",
            ">alone",
            ">goal",
            ">in goal",
            ">throttled",
        ]);
        for service in &self.services {
            let value = |of: fn(&Measured) -> Option<f64>| {
                service.measured.as_ref().map_or_else(String::new, |measured| match of(measured) {
                    None if service.goal.is_none() => String::new(),
                    value => measured.text(value),
                })
            };
            let policy = if service.paused { "paused" } else { &service.policy };
            table.row([
                service.name.clone(),
                service.rule.clone(),
                service.class.name().to_owned(),
                policy.to_owned(),
                service.threads.to_string(),
                service.cpus.map_or_else(|| "?".to_owned(), |cpus| format!("{cpus:.2}")),
                service.waiting.map_or_else(|| "?".to_owned(), |threads| format!("{threads:.2}")),
                service.pressure.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0)),
                service.measured.as_ref().map_or("nothing", |measured| &measured.what).to_owned(),
                value(|measured| measured.now),
                value(|measured| measured.alone),
                value(|measured| measured.goal),
                service.within_goal.map_or_else(String::new, |within| format!("{:.2} %", within.share * 100.0)),
                service.throttled.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0)),
            ]);
        }
        out.table(&table)
    }
}

/// Below this many threads on average nothing waits that could be felt.
const HARDLY: f64 = 0.01;

/// A line for each service that waits for a CPU, class high first, then by amount: `db waits for a CPU: 0.20 threads
/// behind backup, 0.05 behind cc1`.
pub fn waits(services: &[ServiceStatus]) -> Vec<String> {
    let waits = |service: &&ServiceStatus| !service.behind.is_empty() && service.waiting.is_some_and(|n| n >= HARDLY);
    let mut all: Vec<&ServiceStatus> = services.iter().filter(waits).collect();
    let order = |service: &ServiceStatus| (service.class != Class::High, -service.waiting.unwrap_or_default());
    all.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal));
    all.into_iter()
        .map(|service| format!("{} waits for a CPU: {}", service.name, Behind::text(&service.behind)))
        .collect()
}

impl Decision {
    /// `redis.service: task 7 (io, tid 12): CPU 0 → 1; shapes: …`, `sort.service: naps for 40 ms; controller: …`
    pub fn line(&self) -> String {
        let outcome = self.outcome.as_ref().map_or_else(String::new, |outcome| format!(" [{outcome}]"));
        let what = match &self.why {
            Some(why) if why.thread.is_none() => format!("{}; {}", why.to, why.text),
            _ => self.what.clone(),
        };
        format!("{}: {what}{outcome}", self.service)
    }

    /// The same in fewer words: `io CPU 0 → 1: shapes: …`
    pub fn short(&self) -> String {
        let Some(why) = &self.why else { return self.line() };
        let outcome = self.outcome.as_ref().map_or_else(String::new, |outcome| format!(" [{outcome}]"));
        let change = match (&why.thread, why.from_cpu) {
            (Some(thread), Some(cpu)) => {
                let name = thread.rsplit_once(" (").map_or(&**thread, |(name, _)| name);
                format!("{name} CPU {cpu} → {}", why.to.strip_prefix("CPU ").unwrap_or(&why.to))
            }
            _ => format!("{} {}", self.service, why.to),
        };
        format!("{change}: {}{outcome}", why.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_a_sentence_the_protected_first() {
        let service = |name: &str, class, waiting, what: &str| ServiceStatus {
            name: name.to_owned(),
            class,
            waiting: Some(waiting),
            behind: vec![Behind { what: what.to_owned(), threads: waiting, ..Behind::default() }],
            ..ServiceStatus::default()
        };
        let services = [
            service("batch", Class::Low, 1.4, "cc1"),
            service("db", Class::High, 0.2, "batch"),
            service("idle", Class::High, 0.001, "batch"),
            ServiceStatus { behind: Vec::new(), ..service("blind", Class::High, 0.5, "") },
        ];
        let told = ["db waits for a CPU: 0.20 behind batch", "batch waits for a CPU: 1.40 behind cc1"];
        assert_eq!(waits(&services), told);
    }

    /// The daemon reads files that they may not.
    #[test]
    fn users_are_not_told_what_the_daemon_has_read_for_a_metric() {
        let why = Some("metric log: 'root:$6$…', which is not a number".to_owned());
        let service = ServiceStatus { uid: 7, metric_error: why, ..ServiceStatus::default() };
        let status = Status { services: vec![service], ..Status::of_nobody(Instant::now()) };
        let told = status.for_user(7).services[0].metric_error.clone().unwrap();
        assert_eq!(told, "its metric fails; the administrator sees why");
    }

    /// A stuck loop gives no new status: a query returns how long it has been so.
    #[test]
    fn what_is_told_later_is_older() {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(20)).expect("the machine is older");
        let status = Status::of_nobody(long_ago);
        for told in [status.told_now(), status.for_user(7)] {
            assert!(told.sample_age_s >= 20.0 && told.is_stale());
        }
        let paused = |mode| Status { mode, paused: true, ..Status::of_nobody(Instant::now()) }.mode();
        assert!([Mode::Observe, Mode::Advise, Mode::Enforce].map(paused).iter().all(|mode| mode.contains("paused")));
    }

    /// Another user's service may have had the same name before.
    #[test]
    fn a_user_sees_what_was_decided_about_their_own() {
        let user = 7_000;
        let of =
            |uid| Decision { at_s: 0.0, service: "job".to_owned(), uid, what: String::new(), outcome: None, why: None };
        let row = |name: &str| Row {
            victim: name.to_owned(),
            aggressor: name.to_owned(),
            loss: 0.2,
            low: 0.1,
            high: 0.3,
            events: 9,
        };
        let status = Status {
            last: [Some(0), Some(user), None].map(of).into(),
            interference: vec![row("job"), row("job (user 7000)")],
            services: vec![ServiceStatus { name: "job".to_owned(), uid: user, ..ServiceStatus::default() }],
            notes: vec!["of others".to_owned()],
            ..Status::of_nobody(Instant::now())
        };
        let seen = status.for_user(user);
        assert_eq!(seen.last.iter().map(|decision| decision.uid).collect::<Vec<_>>(), [Some(user)]);
        assert_eq!(seen.interference.iter().map(|row| &*row.victim).collect::<Vec<_>>(), ["job (user 7000)"]);
        assert!(seen.notes.is_empty() && seen.services.len() == 1);
        assert!(status.for_user(user + 1).last.is_empty());
    }
}
