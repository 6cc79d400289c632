//! Content of `cotenant top` from any source: plain values, which `--json` prints unchanged.

use crate::status::{CpuStatus, Decision, ServiceStatus, Status, Trial};
use crate::verdict::Verdict;
use cotenant_cli::messages::count;
use cotenant_cli::progress::{about, ago};
use cotenant_model::interference::Row;
use cotenant_model::usage::Usage;
use cotenant_model::{Behind, BehindKind, CpuId, Topology};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Limit of shown decisions.
pub const DECISIONS: usize = 40;

/// A moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Picture {
    /// The source, with its activity.
    pub source: String,
    /// The name of the machine; empty for a recording.
    pub host: String,
    /// The state in one sentence; empty if there is nothing to report.
    pub state: String,
    /// Seconds since the source began.
    pub at_s: f64,
    /// Of a recording: which of its moments this is.
    pub moment: Option<Moment>,
    /// The shortage of the whole machine in the last second; null if it is not counted.
    pub pressure: Option<Pressure>,
    /// The usable CPUs, by shared resources.
    pub packages: Vec<Package>,
    /// The services that run.
    pub services: Vec<ServiceStatus>,
    /// Certain losses of speed by pairs, the greatest first.
    pub interference: Vec<Row>,
    /// The last decisions, the latest last.
    pub last: Vec<Decision>,
    /// Results of the last trials of `shapes`, the latest last.
    pub trials: Vec<Trial>,
    /// Remarks about missing or omitted things.
    pub notes: Vec<String>,
    /// What is not known here, and what would tell it.
    pub unknown: Vec<Unknown>,
}

/// Shares of a second in which at least one thread was short of something (the kernel's PSI, `some`); null if that is
/// not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Of a CPU.
    pub cpu: Option<f64>,
    /// Of input and output.
    pub io: Option<f64>,
    /// Of memory.
    pub memory: Option<f64>,
}

/// Something that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// What.
    pub what: &'static str,
    /// What would tell it.
    pub remedy: &'static str,
}

/// Where a picture comes from, as far as that decides what can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The daemon.
    Daemon,
    /// A look by root, or by another user.
    Own {
        /// Whether by root.
        root: bool,
    },
    /// A recording.
    Recording,
}

/// A moment of a recording.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Moment {
    /// From 1.
    pub number: usize,
    /// Their number.
    pub of: usize,
}

/// A package.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Package {
    /// Its cache domains.
    pub domains: Vec<Domain>,
}

/// Cores that share a last-level cache.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Domain {
    /// Its cores.
    pub cores: Vec<Core>,
}

/// A core.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Core {
    /// Its CPUs.
    pub cpus: Vec<Context>,
}

/// A CPU.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Context {
    /// Which one.
    pub cpu: CpuId,
    /// Its busy share of the last second; null if unknown.
    pub busy: Option<f64>,
    /// Services that ran here, the one that used most first.
    pub services: Vec<Share>,
}

/// Shares below this are not named there.
const LITTLE: f64 = 0.01;
/// From this many waiting threads on a service is said to suffer.
const FELT: f64 = 0.05;
/// A CPU that is busy for less is idle.
const IDLE: f64 = 0.02;

/// The main user of a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whose<'a> {
    /// It is idle.
    Nobody,
    /// Nothing is known of it.
    Unknown,
    /// Programs outside of services.
    Others,
    /// That service, and the number of further ones.
    Service(&'a str, usize),
}

impl Context {
    /// The main user of its time.
    pub fn whose(&self) -> Whose<'_> {
        let known: f64 = self.services.iter().map(|share| share.cpus).sum();
        let mut named = self.services.iter().filter(|share| share.cpus >= LITTLE);
        match (self.busy, named.next()) {
            (None, None) => Whose::Unknown,
            (Some(busy), _) if busy < IDLE => Whose::Nobody,
            (Some(busy), _) if busy - known > known => Whose::Others,
            (_, Some(share)) => Whose::Service(&share.service, named.count()),
            (_, None) => Whose::Nobody,
        }
    }
}

/// A service's use of a CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The service.
    pub service: String,
    /// CPUs' worth of time.
    pub cpus: f64,
}

impl Picture {
    /// When something was, as people say it: the time of a recording, else how long ago.
    pub fn when(&self, at_s: f64) -> String {
        if self.moment.is_some() { format!("{at_s:.1} s") } else { ago(self.at_s - at_s) }
    }

    /// From the daemon's status.
    pub fn of_status(topology: &Topology, status: &Status) -> Self {
        let changes: usize = status.changes.values().sum();
        let changes =
            if changes > 0 { format!(", {} to be undone", count(changes as u64, "change")) } else { String::new() };
        let cost = status.cpu_s / status.uptime_s.max(1.0) * 100.0;
        let mut notes = status.notes.clone();
        notes.extend(status.config_error.iter().map(|why| format!("the configuration of before is in force: {why}")));
        if status.is_stale() {
            notes.push(format!("the last sample is {} old", about(status.age())));
        }
        Self {
            source: format!(
                "daemon {} ({}) {}{changes}, own cost {cost:.2} % of a CPU",
                status.version,
                status.pid,
                status.mode()
            ),
            host: status.host.clone(),
            state: state(&status.services, status.usage.as_ref()),
            at_s: status.uptime_s,
            moment: None,
            pressure: None,
            packages: packages(topology, &status.cpus, &status.services),
            services: status.services.clone(),
            interference: status.interference.clone(),
            last: last(&status.last),
            trials: status.trials.clone(),
            notes,
            unknown: unknown(&status.services, From::Daemon),
        }
    }

    /// Busy share of the whole machine; `None` if unknown.
    pub fn busy(&self) -> Option<f64> {
        mean(self.cpus().map(|cpu| cpu.busy))
    }

    /// All CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = &Context> {
        self.packages.iter().flat_map(|package| &package.domains).flat_map(Domain::cpus)
    }

    /// `2 packages, 4 cache domains, 8 cores, 16 CPUs`
    pub fn machine(&self) -> String {
        let domains = || self.packages.iter().flat_map(|package| &package.domains);
        let counts = [
            (self.packages.len(), "package"),
            (domains().count(), "cache domain"),
            (domains().map(|domain| domain.cores.len()).sum(), "core"),
            (self.cpus().count(), "CPU"),
        ];
        counts.map(|(n, what)| count(n as u64, what)).join(", ")
    }

    /// The service that waits most for CPUs which others have: `redis waits most for a CPU: 0.40 behind xz`.
    pub fn suffers(&self) -> Option<String> {
        let others = |service: &ServiceStatus| {
            let own = service.behind.iter().filter(|behind| behind.kind == BehindKind::Itself);
            (service.waiting.unwrap_or_default() - own.map(|behind| behind.threads).sum::<f64>()).max(0.0)
        };
        // The same wait is worse for a service that gets little of what it could use.
        let worse = |service: &ServiceStatus| {
            let waits = others(service);
            waits * waits / (waits + service.cpus.unwrap_or_default()).max(f64::MIN_POSITIVE)
        };
        let most = self.services.iter().max_by(|a, b| worse(a).total_cmp(&worse(b)))?;
        let waiting = most.waiting.filter(|_| others(most) >= FELT)?;
        let behind = if most.behind.is_empty() {
            format!("{waiting:.2} threads, not known behind which programs")
        } else {
            Behind::text(&most.behind)
        };
        Some(format!("{} waits most for a CPU: {behind}", most.name))
    }

    /// The time, as people read it.
    pub fn time(&self) -> String {
        match self.moment {
            Some(_) => format!("{:.1} s", self.at_s),
            None => about(Duration::try_from_secs_f64(self.at_s).unwrap_or(Duration::ZERO)),
        }
    }
}

impl Domain {
    /// All CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = &Context> {
        self.cores.iter().flat_map(|core| &core.cpus)
    }

    /// Busy share of the domain; `None` if unknown.
    pub fn busy(&self) -> Option<f64> {
        mean(self.cpus().map(|cpu| cpu.busy))
    }
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, n) = values.flatten().fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    (n > 0.0).then(|| sum / n)
}

/// Whether services wait, and nothing is known of what has the CPUs meanwhile.
pub fn is_blind(services: &[ServiceStatus]) -> bool {
    let waits = |it: &ServiceStatus| it.waiting.is_some_and(|threads| threads >= LITTLE);
    services.iter().any(waits) && services.iter().all(|it| it.behind.is_empty())
}

/// What is not known of these services, and what would tell it.
pub fn unknown(services: &[ServiceStatus], from: From) -> Vec<Unknown> {
    let any = |of: fn(&ServiceStatus) -> bool| services.iter().any(of);
    let mut all = Vec::new();
    let mut missing = |is: bool, what, remedy| all.extend(is.then_some(Unknown { what, remedy }));
    let remedy = match from {
        From::Own { root: false } => "root: sudo cotenant top",
        From::Own { root: true } => "BPF, from the second screen on; cotenant doctor says why not",
        From::Daemon => "a daemon of root with bpf = true; cotenant doctor says why not",
        From::Recording => "a recording made by root",
    };
    missing(is_blind(services), "behind which programs others wait", remedy);
    let is_uncounted = any(|it| it.cpus.is_some()) && !any(|it| it.waiting.is_some());
    missing(is_uncounted, "waits for a CPU", "a kernel with schedstats; cotenant doctor");
    missing(from == From::Own { root: false }, "programs of other users", "root: sudo cotenant top");
    let remedy = match from {
        From::Daemon => "a rule with class = \"high\" and a metric",
        From::Own { .. } => "cotenant qos, or the daemon with a rule of class high",
        From::Recording => "a recording of cotenant qos",
    };
    missing(!services.is_empty() && !any(|it| it.goal.is_some()), "goals and verdicts", remedy);
    let remedy = "a metric, or a program that reports its progress; cotenant doctor says what is counted here";
    missing(!services.is_empty() && !any(|it| it.measured.is_some()), "speeds", remedy);
    let is_group = any(|it| it.pressure.is_some());
    missing(
        from != From::Recording && !is_group,
        "shortage (PSI) of single services",
        "systemd units, Linux with psi=1",
    );
    all
}

/// Programs that use less than this many CPUs are left out of the state.
const HARDLY: f64 = 0.1;

/// Services below their goals, throttling, and other use of the machine: `db misses its goal; batch is throttled 60 %
/// of the time; 1.4 of 2 CPUs by other programs: rustc 1.4`.
pub fn state(services: &[ServiceStatus], usage: Option<&Usage>) -> String {
    let named = |of: fn(&ServiceStatus) -> bool| services.iter().filter(move |service| of(service));
    let missed = named(|service| service.verdict == Some(Verdict::Missed));
    let mut parts: Vec<String> = missed.map(|service| format!("{} misses its goal", service.name)).collect();
    let kept = named(|service| matches!(service.verdict, Some(Verdict::Kept | Verdict::AtGoal))).count();
    match (parts.is_empty(), kept) {
        (_, 0) => {}
        (true, 1) => parts.push("the goal is kept".to_owned()),
        (true, kept) => parts.push(format!("{kept} goals are kept")),
        (false, kept) => parts.push(format!("{} kept", count(kept as u64, "goal"))),
    }
    let mut throttled: Vec<(&str, f64)> =
        services.iter().filter_map(|service| Some((&*service.name, service.throttled?))).collect();
    throttled.retain(|(_, share)| *share >= LITTLE);
    throttled.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let Some((name, share)) = throttled.first() {
        let more = if throttled.len() > 1 { format!(", and {} more", throttled.len() - 1) } else { String::new() };
        parts.push(format!("{name} is throttled {:.0} % of the time{more}", share * 100.0));
    }
    if let Some(usage) = usage.filter(|usage| usage.others + usage.stolen >= HARDLY) {
        parts.push(usage.text());
    }
    parts.join("; ")
}

/// The latest decisions.
pub fn last(all: &[Decision]) -> Vec<Decision> {
    all[all.len().saturating_sub(DECISIONS)..].to_vec()
}

/// The CPUs of a machine with the programs on them.
pub fn packages(topology: &Topology, busy: &[CpuStatus], services: &[ServiceStatus]) -> Vec<Package> {
    let busy: BTreeMap<CpuId, f64> = busy.iter().map(|status| (status.cpu, status.busy)).collect();
    let mut on: BTreeMap<CpuId, Vec<Share>> = BTreeMap::new();
    for service in services {
        for place in &service.places {
            on.entry(place.cpu).or_default().push(Share { service: service.name.clone(), cpus: place.cpus });
        }
    }
    let mut cpu = |id: CpuId| {
        let mut services = on.remove(&id).unwrap_or_default();
        services.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
        Context { cpu: id, busy: busy.get(&id).copied(), services }
    };
    let mut packages = vec![Package::default(); topology.packages().len()];
    for domain in topology.llc_domains() {
        let cores = topology.cores().iter().map(|core| core.and(&domain.cpus)).filter(|cpus| !cpus.is_empty());
        let cores = cores.map(|cpus| Core { cpus: cpus.iter().map(&mut cpu).collect() }).collect();
        if let Some(package) = packages.get_mut(domain.package) {
            package.domains.push(Domain { cores });
        }
    }
    packages.retain(|package| !package.domains.is_empty());
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_suffers_waits_behind_others() {
        let service = |name: &str, waiting, behind: &[(BehindKind, f64)]| ServiceStatus {
            name: name.to_owned(),
            waiting: Some(waiting),
            behind: behind
                .iter()
                .map(|&(kind, threads)| Behind { what: "xz".to_owned(), kind, threads, ..Behind::default() })
                .collect(),
            ..ServiceStatus::default()
        };
        let picture = |services| Picture { services, ..Picture::default() };
        let redis = service("redis", 0.4, &[(BehindKind::Application, 0.4)]);
        let make = service("make", 6.0, &[(BehindKind::Itself, 5.9), (BehindKind::Application, 0.1)]);
        let all = picture(vec![make.clone(), redis.clone(), service("idle", 0.001, &[])]);
        assert_eq!(all.suffers().as_deref(), Some("redis waits most for a CPU: 0.40 behind xz"));
        let blind = picture(vec![make, redis, service("web", 0.5, &[])]);
        let said = "web waits most for a CPU: 0.50 threads, not known behind which programs";
        assert_eq!(blind.suffers().as_deref(), Some(said));
        let [busy, starved] = [(1.7, 0.6), (0.2, 0.43)]
            .map(|(cpus, waiting)| ServiceStatus { cpus: Some(cpus), ..service("s", waiting, &[]) });
        assert!(picture(vec![busy, starved]).suffers().is_some_and(|said| said.contains("0.43 threads")));
        assert_eq!(picture(vec![service("idle", 0.001, &[])]).suffers(), None);
    }

    #[test]
    fn what_is_not_known_has_a_remedy() {
        let whats = |services: &[ServiceStatus], from| -> Vec<&str> {
            let all = unknown(services, from);
            assert!(all.iter().all(|it| !it.remedy.is_empty()));
            all.into_iter().map(|it| it.what).collect()
        };
        let waits = ServiceStatus { cpus: Some(1.0), waiting: Some(0.4), ..ServiceStatus::default() };
        let all = whats(std::slice::from_ref(&waits), From::Own { root: false });
        assert_eq!(all.len(), 5, "{all:?}");
        assert_eq!(all[0], "behind which programs others wait");
        let behind = vec![Behind::default()];
        let known = ServiceStatus { behind, goal: Some(0.9), pressure: Some(0.0), ..waits };
        assert_eq!(whats(&[known], From::Daemon), ["speeds"]);
        assert!(whats(&[], From::Recording).is_empty());
    }

    #[test]
    fn how_it_stands_is_one_sentence() {
        let goal = |name: &str, verdict| ServiceStatus {
            name: name.to_owned(),
            verdict: Some(verdict),
            ..ServiceStatus::default()
        };
        let low = |name: &str, share| ServiceStatus {
            name: name.to_owned(),
            throttled: Some(share),
            ..ServiceStatus::default()
        };
        let usage = |others| Usage { seconds: 10.0, of_cpus: 2, others, ..Usage::default() };
        let all = [
            goal("db", Verdict::Missed),
            goal("web", Verdict::Kept),
            low("gzip", 0.25),
            low("sort", 0.6),
            low("idle", 0.0),
            goal("new", Verdict::Unsure),
        ];
        let said = "db misses its goal; 1 goal kept; sort is throttled 60 % of the time, and 1 more; \
                    1.4 of 2 CPUs by other programs: none of them can be seen here";
        assert_eq!(state(&all, Some(&usage(1.4))), said);
        assert_eq!(state(&all[1..2], Some(&usage(0.05))), "the goal is kept");
        assert_eq!(state(&[], None), "");
    }
}
