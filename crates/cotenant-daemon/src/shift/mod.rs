//! One host's life: finds running services, drives the loop over them, and reports their status.

mod deciding;
mod obeying;
mod speed;

use crate::cast::{Cast, setup};
use crate::config::{Config, OBSERVE};
use crate::desk::Desk;
use crate::log;
use crate::logbook::Logbook;
use crate::node::{self, Node};
use crate::services::{self, Service};
use crate::slurm::Slurm;
use crate::speed::Speed;
use anyhow::{Result, bail};
use cotenant_cli::messages::count;
use cotenant_linux::FsRoot;
use cotenant_linux::host::{AppSpec, LinuxHost, Until, What};
use cotenant_linux::sense::census::Census;
use cotenant_linux::sense::nice::Comparison;
use cotenant_linux::sense::usage::{Own, Watch};
use cotenant_linux::{bounded, sys, worker};
use cotenant_model::host::{Drive, Ended};
use cotenant_model::policy::{Config as PolicyConfig, Ctx};
use cotenant_model::usage::{Usage, slowed_by_others};
use cotenant_model::{AppId, Mode, Owns, Rule};
use cotenant_setup::args::MetricArg;
use cotenant_setup::settings::{self, Setup};
use cotenant_status::class::Class;
use cotenant_status::status::{Listen, ServiceStatus, Status};
use sd_notify::NotifyState;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two looks for services.
const LOOK: Duration = Duration::from_secs(2);

/// The share of a CPU above which samples are taken less often without a policy.
const OBSERVING: f64 = 0.006;

/// A service that could not be throttled, because of its control group's other members or an error, is retried after
/// this time, since processes change.
const AGAIN: Duration = Duration::from_secs(60);

/// Interval of status reports, and of writing learned state.
const TELL: Duration = Duration::from_secs(1);
const KEEP: Duration = Duration::from_secs(60);

#[derive(PartialEq, Eq)]
pub(crate) enum Next {
    /// Restart with a host for the new configuration.
    Anew,
    Stop,
}

/// A service with its application in the host.
struct Managed {
    service: Service,
    app: AppId,
    speed: Speed,
    /// Whether it can be throttled, or could be.
    waits: bool,
    /// When it was last [`Service::mixed`].
    mixed: Option<Instant>,
    /// When throttling it failed.
    failed: Option<Instant>,
}

/// One host's life.
struct Shift<'a> {
    config: &'a mut Config,
    desk: &'a mut Desk,
    census: Census,
    host: LinuxHost,
    drive: Drive,
    /// The deciders: `qos` first, if there are services to protect and to throttle, then the placing policies.
    setup: Setup,
    cast: Cast,
    managed: BTreeMap<String, Managed>,
    logbook: Logbook,
    /// Other use of this machine, and background programs that do not give way.
    others: Watch,
    usage: Option<Usage>,
    comparison: Comparison,
    in_vain: BTreeSet<String>,
    looked: Option<Instant>,
    told: Option<Instant>,
    /// Time between two samples without a decider, and the CPU time used at its last adjustment.
    observe: Duration,
    used: Duration,
    kept: Instant,
    watchdog: Option<Duration>,
}

pub(crate) fn serve(config: &mut Config, named: Option<&Path>, desk: &mut Desk) -> Result<Next> {
    let machine = settings::live_machine(None)?;
    let setup = setup(config, machine)?;
    let options = cotenant_linux::host::HostOptions {
        until: Until::Asked,
        other_users: sys::euid() == 0,
        ..setup.host_options(false)
    };
    let mut host = LinuxHost::new(&setup.topology, Vec::new(), options)?;
    let (calls, waker) = std::io::pipe()?;
    host.call_on(calls)?;
    desk.shared.set_waker(waker);
    desk.shared.set_machine(&setup.topology, &setup.machine);
    let (mut logbook, remark) = Logbook::begin(&setup.topology, desk.begun.elapsed());
    if let Some(remark) = remark {
        logbook.remark_own(&remark);
    }
    let drive = Drive::begin(&mut host)?;
    let mut shift = Shift {
        config,
        desk,
        others: Watch::new(setup.topology.usable()),
        usage: None,
        comparison: Comparison::default(),
        in_vain: BTreeSet::new(),
        census: Census::new(FsRoot::live()),
        host,
        drive,
        setup,
        cast: Cast::default(),
        managed: BTreeMap::new(),
        logbook,
        looked: None,
        told: None,
        observe: OBSERVE[0],
        used: sys::own_cpu_time(),
        kept: Instant::now(),
        watchdog: sd_notify::watchdog_enabled(),
    };
    let next = shift.work(named);
    if !matches!(next, Ok(Next::Anew)) {
        notify(&[NotifyState::Stopping]);
    }
    shift.end();
    next
}

fn notify(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state); // the service manager may be absent
}

impl Shift<'_> {
    /// Runs until a signal ends it, or a configuration that needs another host.
    fn work(&mut self, named: Option<&Path>) -> Result<Next> {
        loop {
            self.look()?;
            self.tell();
            let ended = self.go()?;
            for order in self.desk.shared.take_orders() {
                self.obey(order);
            }
            if ended == Ended::Called {
                continue;
            }
            let before = self.mode();
            match self.host.take_signal() {
                Some(libc::SIGHUP) => {
                    if self.reload(named) {
                        return Ok(Next::Anew);
                    }
                }
                Some(libc::SIGUSR1 | libc::SIGUSR2) => {}
                Some(_) => return Ok(Next::Stop),
                None => bail!("the loop has ended by itself; the log says why"),
            }
            if self.mode() != before {
                self.begin_anew();
            }
        }
    }

    /// The present mode.
    fn mode(&self) -> Mode {
        if self.desk.kept.pauses.all { Mode::Observe } else { self.config.mode }
    }

    /// Time between two samples.
    fn interval(&self) -> Duration {
        let interval = self.config.interval;
        if self.mode() == Mode::Observe { interval.max(self.observe) } else { interval }
    }

    /// Runs until a look is due, or a signal arrived.
    fn go(&mut self) -> Result<Ended> {
        let mode = self.mode();
        let policies: Vec<String> =
            self.setup.deciders.iter().map(|decider| decider.policy.name().to_owned()).collect();
        let mut rules = self.setup.rules();
        let seldom;
        if mode == Mode::Observe {
            // Without a decider one rule observes all.
            let first = rules.swap_remove(0);
            seldom = PolicyConfig { interval: self.interval(), ..first.ctx.config.clone() };
            rules = vec![Rule { owns: Owns::default(), ctx: Ctx { config: &seldom, ..first.ctx }, ..first }];
        }
        let next = [Some(TELL), self.watchdog.map(|limit| limit / 3)].into_iter().flatten().min().unwrap_or(TELL);
        self.host.call_at(self.host.now() + next);
        // In advise or a pause nothing is throttled, so no measured speed is the speed alone.
        let judged = mode == Mode::Enforce;
        let logbook = &mut self.logbook;
        Ok(self.drive.go(&mut self.host, &rules, mode, |round| logbook.round(round, &policies, judged))?)
    }

    /// Looks for services, if it is time to.
    fn look(&mut self) -> Result<()> {
        if self.looked.is_some_and(|last| last.elapsed() < LOOK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        if let Err(why) = self.census.look() {
            self.logbook.remark_own(&format!("processes cannot be listed: {why}; trying again"));
            return Ok(());
        }
        if self.census.cut {
            self.logbook
                .remark_own("there are more processes than can be looked at; those with the highest ids are left out");
        }
        match self.desk.slurm.as_mut().map(Slurm::look) {
            Some(Ok(remarks)) => {
                for remark in remarks {
                    self.logbook.remark(&remark);
                }
            }
            Some(Err(why)) => self.logbook.remark_own(&format!("slurm: jobs cannot be looked for: {why}")),
            None => {}
        }
        let containers = self.desk.containers();
        let (mut found, whose) = services::find(&self.config.rules, &self.census, &containers, std::process::id());
        found.retain(|_, service| service.terms.class != Class::Ignore && !self.desk.kept.holds(service));
        self.desk.shared.parties.refresh();
        for remark in services::fit(&mut found, |name| self.managed.contains_key(name), &self.desk.shared.parties) {
            self.logbook.remark(&remark);
        }
        for (name, service) in &mut found {
            if let Some(known) = self.managed.get_mut(name) {
                known.mixed = if service.mixed { Some(Instant::now()) } else { known.mixed };
                service.set_apart(known.mixed.is_some_and(|seen| seen.elapsed() < AGAIN));
            }
        }
        let followed = self.host.processes();
        let gone = |Managed { service, app, .. }: &Managed| match found.get(&service.name) {
            Some(new) if new.rule == service.rule && new.terms == service.terms => {
                let lost = followed.get(app).is_some_and(|pids| new.has_lost(pids, &whose, &self.census));
                service.ends_as(new).or(lost.then_some("some of its processes have left it"))
            }
            _ => Some("it is gone, or another rule's"),
        };
        let gone: Vec<(String, &str)> =
            self.managed.values().filter_map(|m| Some((m.service.name.clone(), gone(m)?))).collect();
        for (name, why) in gone {
            self.leave(&name, why);
        }
        for (name, service) in found {
            match self.managed.get_mut(&name) {
                Some(known) => {
                    if known.service.target != service.target {
                        self.host.retarget(known.app, service.target.clone());
                    }
                    known.service = service;
                    if known.failed.is_some_and(|failed| failed.elapsed() >= AGAIN) {
                        match self.host.throttle(known.app, known.service.enforcer(), &known.service.target) {
                            Ok(()) => (known.waits, known.failed) = (true, None),
                            Err(why) => {
                                known.failed = Some(Instant::now());
                                self.logbook.remark(&format!("{name} cannot be throttled: {why}"));
                            }
                        }
                    }
                }
                None => self.take_on(service),
            }
        }
        self.look_for_clients();
        self.assign()
    }

    fn take_on(&mut self, service: Service) {
        let metric = self.metric_of(&service);
        self.take_on_by(service, metric);
    }

    /// Manages a service whose speed this metric tells.
    fn take_on_by(&mut self, service: Service, metric: MetricArg) {
        let (rule, terms) = (&self.config.rules[service.rule], &service.terms);
        let spec = |throttled| AppSpec {
            metrics: metric.outside.iter().cloned().collect(),
            throttled,
            protected: terms.class == Class::High,
            ..AppSpec::new(service.name.clone(), What::Running(service.target.clone()))
        };
        // The rule is the consent to throttling. A service that cannot be throttled is still observed.
        let among_others = service.mixed && service.group().is_some();
        let mut waits = terms.class == Class::Low && !among_others;
        let throttled = (waits && self.mode() == Mode::Enforce).then(|| service.enforcer());
        let mut added = self.host.add(spec(throttled));
        let mut failed = None;
        if let (Err(why), Some(_)) = (&added, throttled) {
            self.logbook.remark(&format!("{} cannot be throttled: {why}", service.name));
            added = self.host.add(spec(None));
            (waits, failed) = (false, Some(Instant::now()));
        }
        if terms.class == Class::Low && among_others {
            let why = "its control group also holds processes that must not be paused";
            self.logbook.remark(&format!("{} cannot be throttled: {why}", service.name));
        }
        match added {
            Ok(app) => {
                let (name, by) = (service.name.clone(), rule.name.clone());
                let group = service.group();
                tracing::info!(
                    MESSAGE_ID = log::SERVICE,
                    COTENANT_SERVICE = &*name,
                    COTENANT_RULE = &*by,
                    COTENANT_CGROUP = group,
                    "{name} is managed: rule {by}, {}{}",
                    count(service.summary.processes as u64, "process"),
                    if terms.exclusive { "; on CPUs of its own, it is neither placed nor throttled" } else { "" },
                );
                self.logbook.manage(app, &by, &service);
                let mixed = service.mixed.then(Instant::now);
                let speed = Speed::new(metric, &service);
                self.managed.insert(name, Managed { service, app, speed, waits, mixed, failed });
            }
            Err(why) => self.logbook.remark(&format!("{} cannot be managed: {why}", service.name)),
        }
    }

    /// Gives everything back; the next look takes the services on again in the present mode, with policies in their
    /// initial state.
    fn begin_anew(&mut self) {
        for name in self.managed.keys().cloned().collect::<Vec<_>>() {
            self.leave(&name, "the mode has changed");
        }
        self.drive.change(&vec![None; self.setup.deciders.len()]);
        self.looked = None;
    }

    /// Releases a service.
    fn leave(&mut self, name: &str, why: &str) {
        if let Some(Managed { app, service, .. }) = self.managed.remove(name) {
            self.host.remove(app);
            tracing::info!(
                MESSAGE_ID = log::SERVICE,
                COTENANT_SERVICE = name,
                COTENANT_RULE = self.logbook.rule_of(app),
                COTENANT_CGROUP = service.group(),
                "{name} is not managed any more: {why}"
            );
            self.logbook.forget(app);
        }
    }

    /// Reads the configuration again; true if it needs another host.
    fn reload(&mut self, named: Option<&Path>) -> bool {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            notify(&[NotifyState::Reloading, now]);
        }
        let machine = (self.setup.topology.clone(), self.setup.machine.clone());
        let read = Config::read(named).and_then(|config| Ok((setup(&config, machine)?, config)));
        let (setup, config) = match read {
            Ok(read) => read,
            Err(why) => {
                let why = cotenant_cli::messages::chain(&why);
                tracing::error!(MESSAGE_ID = log::CONFIG, "the configuration of before stays in force: {why}");
                self.desk.refused = Some(why);
                notify(&[NotifyState::Ready]);
                return false;
            }
        };
        self.desk.refused = None;
        tracing::info!(MESSAGE_ID = log::CONFIG, "read anew: {}", config.summary());
        for old in config.rules.iter().filter_map(|rule| rule.old.as_ref()) {
            tracing::warn!(MESSAGE_ID = log::CONFIG, "{old}");
        }
        let new = setup.host_options(false);
        let other_host = new.act != self.setup.host_options(false).act;
        // New policies need more sensors: that is no reason to release any service.
        self.host.look_at(&new);
        // A service under an unchanged rule stays; the others are given back, and found again by the next look.
        let stays = |service: &Service| {
            let rule = &self.config.rules[service.rule];
            config.rules.iter().position(|new| new == rule)
        };
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for managed in self.managed.values() {
            match stays(&managed.service) {
                Some(rule) => stay.push((managed.service.name.clone(), rule)),
                None => go.push(managed.service.name.clone()),
            }
        }
        for name in go {
            self.leave(&name, "its rule has changed");
        }
        for (name, rule) in stay {
            if let Some(managed) = self.managed.get_mut(&name) {
                managed.service.rule = rule;
            }
        }
        // A policy with unchanged settings keeps its learned state.
        self.decide_by(setup.deciders);
        self.desk.web.serve_at(config.listen, &self.desk.shared);
        self.desk.shared.set_bridge(config.bridge);
        self.desk.set_slurm(config.slurm);
        (self.setup.mode, *self.config) = (config.mode, config);
        self.looked = None;
        notify(&[NotifyState::Ready]);
        other_host
    }

    /// Reports the status.
    fn tell(&mut self) {
        notify(&[NotifyState::Watchdog]);
        let since = self.told.map(|last| last.elapsed());
        if since.is_some_and(|since| since < TELL) {
            return;
        }
        self.told = Some(Instant::now());
        let used = sys::own_cpu_time();
        let spent = used.saturating_sub(std::mem::replace(&mut self.used, used));
        if let Some(since) = since.filter(|_| self.mode() == Mode::Observe) {
            let share = spent.as_secs_f64() / since.as_secs_f64();
            self.observe = self.observe.mul_f64((share / OBSERVING).clamp(0.8, 1.25)).clamp(OBSERVE[0], OBSERVE[1]);
        }
        self.pass_notes();
        log::sum_up();
        if self.kept.elapsed() >= KEEP {
            self.kept = Instant::now();
            self.logbook.keep();
        }
        let listen = self.desk.web.state();
        if let Some(Listen { address, error: Some(why) }) = &listen {
            self.logbook.remark_own(&format!("metrics cannot be served at {address}: {why}; it is tried again"));
        }
        let tier = self.host.tier();
        let counted = tier.present.iter().map(|present| (present.signal, true));
        let signals = counted.chain(tier.missing.iter().map(|missing| (missing.signal, false)));
        let at = self.host.now();
        for Managed { service, app, .. } in self.managed.values() {
            if let Some(slept) = self.host.slept_of(*app) {
                self.logbook.watch.slept(*app, slept.waited_s(), at);
            }
            let name = &service.name;
            let failing = self.host.failing_metric(*app).map(|why| format!("{name}: {why}"));
            self.logbook.remark_while(&format!("{name}: metric"), failing.as_deref());
        }
        self.logbook.watch.crowded = self.crowded();
        let services = self.managed.values().map(|Managed { service, app, .. }| {
            let (rule, terms) = (&self.config.rules[service.rule], &service.terms);
            self.logbook.watch.fill(
                *app,
                service.summary.fill(ServiceStatus {
                    name: service.name.clone(),
                    goal: (terms.class == Class::High).then_some(terms.goal),
                    rule: rule.name.clone(),
                    class: terms.class,
                    policy: terms.policy.clone(),
                    container: service.container.clone(),
                    uid: service.uid,
                    metric_error: self.host.failing_metric(*app),
                    ..ServiceStatus::default()
                }),
            )
        });
        let resting = self.desk.kept.pauses.services.iter().map(|(key, paused)| ServiceStatus {
            name: paused.name(key).to_owned(),
            uid: paused.uid,
            paused: true,
            ..ServiceStatus::default()
        });
        let services: Vec<ServiceStatus> = services.chain(resting).collect();
        self.watch_others();
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            host: bounded::host_name(),
            mode: self.config.mode,
            paused: self.desk.kept.pauses.all,
            uptime_s: self.desk.begun.elapsed().as_secs_f64(),
            config: self.config.path.display().to_string(),
            config_error: self.desk.refused.clone(),
            cpu_s: sys::own_cpu_time().as_secs_f64(),
            resident_bytes: resident(),
            tier: tier.to_string(),
            signals: signals.map(|(signal, is)| (signal.name().to_owned(), is)).collect(),
            sample_age_s: (self.host.now() - self.logbook.watch.at).as_secs_f64(),
            made: Instant::now(),
            interval_s: self.interval().as_secs_f64(),
            listen,
            cpus: self.logbook.watch.cpus(),
            memory: node::memory(&services, &self.setup.topology),
            containers: Some(self.desk.shared.containers().len()).filter(|known| *known > 0),
            changes: self.host.outstanding().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
            services,
            interference: self.logbook.watch.interference(),
            decisions: self.logbook.watch.decisions(),
            last: self.logbook.watch.last(),
            trials: self.logbook.watch.trials(),
            usage: self.usage.clone(),
            notes: self.notes(),
        };
        let text = format!("{}, {}", self.config.summary(), count(self.managed.len() as u64, "service"));
        notify(&[NotifyState::Status(&text)]);
        let node = || Node::new(&status, &self.setup.topology, &self.setup.machine);
        if let Some(Err(why)) = self.desk.slurm.as_mut().map(|slurm| slurm.tell(&status, node)) {
            self.logbook.remark_own(&format!("the table for slurm cannot be written: {why}"));
        }
        self.desk.shared.set_status(status);
        if since.is_none() {
            notify(&[NotifyState::Ready]); // clients that waited for readiness may ask now
        }
    }

    /// Measures other use of this machine, about every ten seconds.
    fn watch_others(&mut self) {
        let high = |managed: &&Managed| managed.service.terms.class == Class::High;
        let managed = || {
            let processes = self.host.processes();
            let servers =
                self.managed.values().filter(high).filter_map(|managed| processes.get(&managed.app)).flatten();
            Own { servers: servers.copied().collect(), pids: processes.values().flatten().copied().collect() }
        };
        if let Some(usage) = self.others.tend(managed) {
            self.usage = Some(usage);
            self.find_in_vain();
        }
        if let Some(found) = self.comparison.take() {
            self.in_vain = found;
        }
    }

    /// Why no goal can be judged now: other programs leave too little of this machine.
    fn crowded(&self) -> Option<String> {
        let high = |managed: &&Managed| managed.service.terms.class == Class::High;
        let used = |managed: &Managed| self.logbook.watch.cpus_of(managed.app).unwrap_or_default();
        let wanted = self.managed.values().filter(high).map(used).sum::<f64>() + 1.0;
        let usage = self.usage.as_ref().filter(|usage| usage.crowds(wanted))?;
        Some(format!("this machine is busy ({})", usage.text()))
    }

    /// Remarks about missing or omitted things.
    fn notes(&self) -> Vec<String> {
        let in_vain = self.in_vain.iter().cloned();
        self.host.notes().into_iter().chain(in_vain).chain(self.slowed().into_values()).collect()
    }

    /// The remarks about services slowed by other programs, by service.
    fn slowed(&self) -> BTreeMap<String, String> {
        let slowed = self.managed.values().filter(|managed| self.logbook.watch.is_slowed(managed.app));
        let said = |managed: &Managed| {
            let name = managed.service.name.clone();
            let text = slowed_by_others(&name, self.usage.as_ref());
            (name, text)
        };
        slowed.map(said).collect()
    }

    /// Logs the host's notes.
    fn pass_notes(&mut self) {
        for line in worker::news() {
            self.logbook.remark_own(&line);
        }
        let own = self.host.own_notes();
        for note in &own {
            self.logbook.remark_own(note);
        }
        for note in self.host.notes().iter().filter(|note| !own.contains(note)) {
            self.logbook.remark(note);
        }
        for (name, text) in self.slowed() {
            self.logbook.remark_as(&format!("{name} is slowed by others"), &text);
        }
    }

    /// Undoes everything.
    fn end(mut self) {
        self.pass_notes();
        self.logbook.keep();
        let restored = self.host.finish().restored;
        tracing::info!(MESSAGE_ID = log::DAEMON, "given back: {}", count(restored.restored as u64, "mask"));
        for note in restored.notes {
            self.logbook.remark_own(&note);
        }
    }
}

/// Resident memory of this process, bytes.
fn resident() -> Option<u64> {
    let text = cotenant_linux::bounded::text("/proc/self/statm", cotenant_linux::bounded::Limit::Value).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * sys::page_size() as u64)
}
