//! The daemon's configuration: `cotenant.toml`, and the files of `conf.d` next to it.

use crate::containers::{Asked, Container};
use crate::old;
use crate::written::{Annotation, MatchText, RuleText};
use anyhow::Result;
use cotenant_cli::messages::count;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::sys;
use cotenant_model::policy::{Config as PolicyConfig, Ctx, Policy, Settings};
use cotenant_model::profile::MachineProfile;
use cotenant_model::{Mode, Topology, parse};
use cotenant_policies::Qos;
use cotenant_setup::args::{self, MetricArg};
use cotenant_setup::files;
use cotenant_setup::registry::registry;
use cotenant_setup::settings::Decider;
use cotenant_setup::units;
use cotenant_status::class::Class;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// The default goal of class high.
const GOAL: f64 = 0.9;

/// Time between two samples without a policy: speeds are shown each second. It grows up to the second value if sampling
/// costs too much.
pub(crate) const OBSERVE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Limit of files in `conf.d`.
const FILES: usize = 256;

/// Bytes of a pattern, which is compiled by recursion.
const PATTERN: usize = 1_024;

/// The rule without configured ones: every service of the service manager, only observed in the mode `observe`.
const DEFAULT: &str = "[[rule]]\nname = \"services\"\nmatch = { unit = \"*.service\" }\n";

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct File {
    mode: Option<Mode>,
    listen: Option<Spanned<String>>,
    interval: Option<Spanned<String>>,
    bridge: Option<Spanned<String>>,
    slurm: Option<bool>,
    bpf: Option<bool>,
    /// Settings of policies by policy and key, in the form of `--set`.
    set: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, toml::Value>>,
    rule: Vec<Spanned<RuleText>>,
    // Those of config.toml, which held the rules of `cotenant qos` until 0.2.0.
    policy: Option<IgnoredAny>,
    map: Option<IgnoredAny>,
    sam: Option<IgnoredAny>,
    atom: Option<IgnoredAny>,
    pin: Option<IgnoredAny>,
    cpus: Option<IgnoredAny>,
    profile: Option<IgnoredAny>,
    profiles: Option<IgnoredAny>,
}

impl File {
    /// The first key that only config.toml has.
    fn foreign(&self) -> Option<&'static str> {
        let Self { policy, map, sam, atom, pin, cpus, profile, profiles, .. } = self;
        let keys = [("policy", policy), ("map", map), ("sam", sam), ("atom", atom), ("pin", pin), ("cpus", cpus)];
        let keys = keys.into_iter().chain([("profile", profile), ("profiles", profiles)]);
        keys.into_iter().find_map(|(key, value)| value.is_some().then_some(key))
    }
}

/// The processes of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matches {
    /// The name of their unit.
    pub unit: Option<GlobSet>,
    /// The path of their control group.
    pub cgroup: Option<GlobSet>,
    /// The path or the base name of their program.
    pub command: Option<GlobSet>,
    pub user: Option<u32>,
    /// Their container.
    pub container: Option<OfContainer>,
}

/// The containers of a rule: all given keys must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfContainer {
    pub namespace: Option<GlobSet>,
    pub pod: Option<GlobSet>,
    pub container: Option<GlobSet>,
    pub labels: Vec<(String, GlobSet)>,
}

impl OfContainer {
    /// Whether the rule includes it.
    pub fn is_match(&self, container: &Container) -> bool {
        let is = |glob: &Option<GlobSet>, name: &str| glob.as_ref().is_none_or(|glob| glob.is_match(name));
        let has = |(key, glob): &(String, GlobSet)| container.labels.get(key).is_some_and(|value| glob.is_match(value));
        let of = &container.identity;
        is(&self.namespace, &of.namespace)
            && is(&self.pod, &of.pod)
            && is(&self.container, &of.container)
            && self.labels.iter().all(has)
    }
}

/// The terms of one service: from its rule, and from its annotations if the rule allows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    pub class: Class,
    pub goal: f64,
    /// The source of its speed, if one is named.
    pub metric: Option<MetricArg>,
    pub policy: String,
    /// It has exclusive CPUs, and is left alone on them.
    pub exclusive: bool,
}

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub name: String,
    pub matches: Matches,
    pub class: Class,
    /// The share of its speed alone that is the goal of a service of class high.
    pub goal: f64,
    /// The source of its speed, if one is named.
    pub metric: Option<MetricArg>,
    /// File, line and column of that.
    metric_place: Option<String>,
    /// Its placing policy; `None`: the default of its class.
    policy: Option<String>,
    annotations: Vec<Annotation>,
    /// As written: an identical rule keeps its services.
    text: String,
    /// File, line and column.
    place: String,
    /// Why it can never match, if so.
    pub never: Option<String>,
    /// The one control group that it names, where its path is not a pattern.
    pub group: Option<String>,
    /// The new form of a rule with earlier keys.
    pub old: Option<String>,
}

/// Identical rules manage the same services in the same way.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The whole configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// The main file, whether it exists or not.
    pub path: PathBuf,
    /// There is none, so the default rules hold.
    pub is_default: bool,
    pub mode: Mode,
    /// Address of the metrics; `None`: not served.
    pub listen: Option<SocketAddr>,
    pub interval: Duration,
    /// The user, apart from root, with the right to list containers and their control groups.
    pub bridge: Option<u32>,
    /// Whether jobs of Slurm are observed and written to a table.
    pub slurm: bool,
    /// Whether BPF observes the causes of services' waits.
    pub bpf: bool,
    pub rules: Vec<Rule>,
    /// A key that only config.toml has, with its file.
    foreign: Option<String>,
    settings: Settings,
}

impl Config {
    /// Reads it for the daemon.
    ///
    /// # Errors
    /// As [`Self::gather`]; a key that is not the daemon's; no rule.
    pub fn read(named: Option<&Path>) -> Result<Self> {
        let config = Self::gather(named)?;
        if let Some(key) = &config.foreign {
            return Err(usage(format!("{key} is a key of config.toml, not of the daemon; leave it out")));
        }
        if config.rules.is_empty() {
            return Err(usage(format!(
                "{}: there is no [[rule]]; add one that says what to manage",
                config.path.display()
            )));
        }
        config.sees_clients()?;
        Ok(config)
    }

    /// Without BPF no rule may have a metric that BPF alone reads.
    fn sees_clients(&self) -> Result<()> {
        let by_bpf = |rule: &&Rule| !self.bpf && rule.metric.as_ref().is_some_and(MetricArg::is_by_bpf);
        let Some(rule) = self.rules.iter().find(by_bpf) else { return Ok(()) };
        let place = rule.metric_place.as_deref().unwrap_or(&rule.place);
        Err(usage(format!(
            "{place}: metric: clients: is seen by BPF, and bpf = false does without; leave one of them out"
        )))
    }

    /// Reads it: the main file, then those next to it in the order of their names. The latter take precedence, and
    /// their rules precede those of the main file.
    ///
    /// # Errors
    /// One line with file, line and column.
    pub fn gather(named: Option<&Path>) -> Result<Self> {
        let path = named.map(Path::to_owned).or_else(default_path).unwrap_or_default();
        let mut config = Self::empty(path.clone());
        let others = beside(&path)?;
        let is_there = || path.try_exists().map_err(|why| usage(format!("{}: {why}", path.display())));
        let main = if named.is_some() || is_there()? {
            text(&path)?
        } else if others.is_empty() {
            config.is_default = true;
            DEFAULT.to_owned()
        } else {
            String::new()
        };
        let texts: Vec<(PathBuf, String)> = std::iter::once((path, main)).chain(others).collect();
        let mut of_main = Vec::new();
        for (i, (path, text)) in texts.iter().enumerate() {
            let rules = config.take(path, text)?;
            if i == 0 { of_main = rules } else { config.rules.extend(rules) }
        }
        config.rules.extend(of_main);
        for (i, rule) in config.rules.iter().enumerate() {
            if let Some(other) = config.rules[..i].iter().find(|other| other.name == rule.name) {
                return Err(usage(format!(
                    "{}: the rule at {} is called '{}', too; name one of them otherwise",
                    rule.place, other.place, rule.name
                )));
            }
        }
        Ok(config)
    }

    /// The configuration without files.
    pub(crate) fn empty(path: PathBuf) -> Self {
        Self {
            path,
            is_default: false,
            mode: Mode::Observe,
            listen: None,
            interval: PolicyConfig::default().interval,
            bridge: None,
            slurm: false,
            bpf: true,
            rules: Vec::new(),
            foreign: None,
            settings: Settings::default(),
        }
    }

    /// Takes over a file except for its rules, which are returned.
    pub(crate) fn take(&mut self, path: &Path, text: &str) -> Result<Vec<Rule>> {
        let at = |offset: usize| {
            let (line, column) = parse::position(text, offset);
            format!("{}:{line}:{column}", path.display())
        };
        let wrong = |e| usage(format!("{}:{}", path.display(), parse::Located::of_toml(text, &e)));
        let file: File = toml::from_str(text).map_err(wrong)?;
        self.mode = file.mode.unwrap_or(self.mode);
        self.foreign = self.foreign.take().or_else(|| Some(format!("{}: {}", path.display(), file.foreign()?)));
        if let Some(listen) = &file.listen {
            let text = listen.get_ref();
            let address = (!text.is_empty()).then(|| text.parse()).transpose();
            self.listen = address.map_err(|_| {
                let place = at(listen.span().start);
                usage(format!(
                    "{place}: listen: '{text}' is not an address with a port; give one such as 127.0.0.1:9844, or \
                     \"\" for none"
                ))
            })?;
        }
        if let Some(interval) = &file.interval {
            self.interval = units::interval(interval.get_ref())
                .map_err(|why| usage(format!("{}: interval: {why}", at(interval.span().start))))?;
        }
        if let Some(bridge) = &file.bridge {
            let uid = uid(bridge.get_ref());
            let uid = uid.map_err(|why| usage(format!("{}: bridge: {why}", at(bridge.span().start))))?;
            self.bridge = Some(uid);
        }
        self.slurm = file.slurm.unwrap_or(self.slurm);
        self.bpf = file.bpf.unwrap_or(self.bpf);
        for (policy, table) in &file.set {
            let wrong = |why: &dyn std::fmt::Display| usage(format!("{}: set: {why}", at(policy.span().start)));
            let section = registry().section(policy.get_ref()).map_err(|why| wrong(&why))?;
            if section == Qos::SECTION {
                return Err(wrong(&"qos is set by class, goal and metric of the rules"));
            }
            for (key, value) in table {
                self.settings.set(section, key.get_ref(), serde_json::to_value(value)?);
            }
            registry().check(section, &self.settings).map_err(|why| {
                let alone = |(key, value): (&Spanned<String>, &toml::Value)| {
                    let mut settings = Settings::default();
                    settings.set(section, key.get_ref(), serde_json::to_value(value).ok()?);
                    registry().check(section, &settings).is_err().then(|| key.span().start)
                };
                let place = at(table.iter().find_map(alone).unwrap_or(policy.span().start));
                usage(format!("{place}: set: {why}"))
            })?;
        }
        let rule = |rule: Spanned<RuleText>| {
            let span = rule.span();
            let text = text.get(span.clone()).unwrap_or_default();
            Rule::new(rule.into_inner(), text, |offset| at(offset.unwrap_or(span.start)))
        };
        file.rule.into_iter().map(rule).collect()
    }

    /// The policies of the rules, each once, in the order of the rules.
    pub fn policies(&self) -> Vec<&str> {
        let mut policies: Vec<&str> = Vec::new();
        for policy in self.rules.iter().flat_map(Rule::policies) {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        policies
    }

    /// The decider of a policy on this machine, before any application is added.
    ///
    /// # Errors
    /// Invalid settings; a policy that cannot work here.
    pub fn decider(&self, policy: &str, (topology, machine): &(Topology, MachineProfile)) -> Result<Decider> {
        // Without a decider speeds are reported each second.
        let seldom = if policy == "none" { OBSERVE[0] } else { Duration::ZERO };
        let interval = self.interval.max(seldom);
        let config = PolicyConfig { interval, settings: self.settings.clone(), ..PolicyConfig::default() };
        let wrong = |why: String| {
            let place = self.rules.iter().find(|rule| rule.policies().any(|own| own == policy)).map(|rule| &rule.place);
            let place = place.map_or_else(String::new, |place| format!("{place}: "));
            usage(format!("{place}policy: {why}"))
        };
        let decider =
            Decider::live(policy, config, topology).map_err(|why| wrong(cotenant_cli::messages::chain(&why)))?;
        let ctx = Ctx { topology, machine, apps: &BTreeMap::new(), config: &decider.config };
        decider.policy.check(&ctx).map_err(|refusal| wrong(refusal.to_string()))?;
        Ok(decider)
    }
}

/// The default placing policy of services of a class. Trials of placements would disturb trials of throttling.
fn default_policy(class: Class) -> &'static str {
    match class {
        Class::High | Class::Low => "none",
        Class::Normal | Class::Ignore => "auto",
    }
}

impl Rule {
    /// `at` gives the place of an offset, or of the rule.
    fn new(mut text: RuleText, written: &str, at: impl Fn(Option<usize>) -> String) -> Result<Self> {
        let old = old::renew(&mut text, &at(None))?;
        let place = |value: &Spanned<String>| at(Some(value.span().start));
        let wrong = |value: &Spanned<String>, key: &str, why: &dyn std::fmt::Display| {
            usage(format!("{}: {key}: {why}", place(value)))
        };
        if text.name.is_empty() || text.name.len() > 64 {
            return Err(usage(format!("{}: name: give 1 to 64 characters", at(None))));
        }
        let glob = |key: &str, value: &Option<Spanned<String>>, whole: bool| {
            let Some(value) = value else { return Ok(None) };
            if value.get_ref().is_empty() && key != "label" {
                return Err(wrong(value, key, &"an empty pattern matches nothing; leave it out, or write \"*\""));
            }
            if value.get_ref().len() > PATTERN {
                return Err(wrong(value, key, &format!("a pattern has at most {PATTERN} bytes")));
            }
            let glob = GlobBuilder::new(value.get_ref()).literal_separator(whole).backslash_escape(false).build();
            // A set of one returns the error of an invalid pattern; a matcher panics.
            let set = glob.and_then(|glob| GlobSetBuilder::new().add(glob).build());
            set.map(Some).map_err(|why| wrong(value, key, &why))
        };
        let MatchText { unit, cgroup, command, user, namespace, pod, container, label } = &text.matches;
        let labels = label.iter().filter_map(|(key, value)| {
            glob("label", &Some(value.clone()), false).map(|glob| Some((key.clone(), glob?))).transpose()
        });
        let of_container = OfContainer {
            namespace: glob("namespace", namespace, false)?,
            pod: glob("pod", pod, false)?,
            container: glob("container", container, false)?,
            labels: labels.collect::<Result<_>>()?,
        };
        let names_containers = namespace.is_some() || pod.is_some() || container.is_some() || !label.is_empty();
        let matches = Matches {
            unit: glob("unit", unit, false)?,
            cgroup: glob("cgroup", cgroup, true)?,
            command: glob("command", command, true)?,
            user: user.as_ref().map(|user| uid(user.get_ref()).map_err(|why| wrong(user, "user", &why))).transpose()?,
            container: names_containers.then_some(of_container),
        };
        if unit.is_none() && cgroup.is_none() && command.is_none() && user.is_none() && !names_containers {
            return Err(usage(format!(
                "{}: match is empty; give unit, cgroup, command or user, such as {{ unit = \"nginx.service\" }}, or \
                 namespace, pod, container or label",
                at(None)
            )));
        }
        let may_be = |class| text.class == class || text.annotations.contains(&Annotation::Class);
        if let Some(value) = text.goal.as_ref().filter(|_| !may_be(Class::High)) {
            return Err(usage(format!("{}: goal is for class = \"high\"", place(value))));
        }
        if let Some(value) = text.metric.as_ref().filter(|_| !may_be(Class::High) && !may_be(Class::Normal)) {
            return Err(usage(format!("{}: metric is for class = \"high\" and \"normal\"", place(value))));
        }
        let goal = |value: &Spanned<String>| units::share(value.get_ref()).map_err(|why| wrong(value, "goal", &why));
        let metric = |value: &Spanned<String>| args::speed(value.get_ref()).map_err(|why| wrong(value, "metric", &why));
        if let Some(policy) = &text.policy {
            let entry = registry().find(policy.get_ref()).map_err(|why| wrong(policy, "policy", &why))?;
            if entry.name() == "qos" {
                return Err(wrong(policy, "policy", &"qos decides by class = \"high\" and \"low\"; leave policy out"));
            }
        }
        Ok(Self {
            name: text.name.clone(),
            matches,
            class: text.class,
            goal: text.goal.as_ref().map(goal).transpose()?.unwrap_or(GOAL),
            metric: text.metric.as_ref().map(metric).transpose()?,
            metric_place: text.metric.as_ref().map(place),
            policy: text.policy.as_ref().map(|policy| policy.get_ref().clone()),
            annotations: text.annotations.clone(),
            text: written.to_owned(),
            place: text.policy.as_ref().map_or_else(|| at(None), place),
            never: never(&text.matches),
            group: cgroup
                .as_ref()
                .map(|path| path.get_ref().clone())
                .filter(|path| !path.contains(['*', '?', '[', '{'])),
            old,
        })
    }

    /// The class of a service of the rule; a container may request another one. A container with exclusive CPUs is not
    /// throttled.
    pub fn class(&self, asked: Option<&Asked>) -> Class {
        let by_annotation = asked.filter(|_| self.annotations.contains(&Annotation::Class));
        match by_annotation.and_then(|asked| asked.class).unwrap_or(self.class) {
            Class::Low if asked.is_some_and(|asked| asked.exclusive) => Class::Normal,
            class => class,
        }
    }

    /// The terms of a service of the rule; a container may request changes.
    pub fn terms(&self, asked: Option<&Asked>) -> Terms {
        let may = |what| asked.filter(|_| self.annotations.contains(&what));
        let class = self.class(asked);
        let own = self.policy.as_deref().unwrap_or_else(|| default_policy(class));
        let exclusive = asked.is_some_and(|asked| asked.exclusive);
        let policy = if exclusive { "none" } else { own };
        Terms {
            class,
            goal: may(Annotation::Goal).and_then(|asked| asked.goal).unwrap_or(self.goal),
            metric: may(Annotation::Metric).and_then(|asked| asked.metric.clone()).or_else(|| self.metric.clone()),
            policy: policy.to_owned(),
            exclusive,
        }
    }

    /// The placing policy of its services, except for classes by annotation.
    pub fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or_else(|| default_policy(self.class))
    }

    /// The policies that its services may request.
    fn policies(&self) -> impl Iterator<Item = &str> {
        let any = self.annotations.contains(&Annotation::Class);
        let classes = [Class::High, Class::Low, Class::Normal];
        let classes = classes.into_iter().filter(move |class| any || *class == self.class);
        classes.map(|class| self.policy.as_deref().unwrap_or_else(|| default_policy(class)))
    }
}

/// Why the rule can never match, with the remedy.
fn never(matches: &MatchText) -> Option<String> {
    let of = |value: &Option<Spanned<String>>| value.as_ref().map(|value| value.get_ref().clone());
    let begins_open = |text: &str| text.starts_with(['*', '[', '{']);
    let ends_open = |text: &str| text.ends_with(['*', '?', ']', '}']);
    let cgroup = of(&matches.cgroup).and_then(|text| {
        let below = text.strip_prefix("/sys/fs/cgroup").filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match below {
            Some(rest) => Some(format!("cgroup = \"{text}\": paths are as in /proc/PID/cgroup, such as \"{rest}\"")),
            None if text.starts_with('/') || begins_open(&text) => None,
            None => Some(format!("cgroup = \"{text}\": paths begin with a slash, such as \"/{text}\"")),
        }
    });
    let unit = of(&matches.unit).and_then(|text| {
        let is = [".service", ".scope", ".slice"].iter().any(|kind| text.ends_with(kind)) || ends_open(&text);
        let others = [".socket", ".timer", ".path", ".mount", ".automount", ".target", ".swap", ".device"];
        let name = others.iter().find_map(|kind| text.strip_suffix(kind)).unwrap_or(&text);
        let units = "units with processes end in .service, .scope or .slice";
        (!is).then(|| format!("unit = \"{text}\": {units}, such as \"{name}.service\""))
    });
    let command = of(&matches.command).and_then(|text| {
        let is = text.starts_with('/') || !text.contains('/') || begins_open(&text);
        (!is).then(|| format!("command = \"{text}\": give the whole path, or the name without folders"))
    });
    cgroup.or(unit).or(command)
}

/// A user by number or name.
fn uid(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    let users = bounded::text("/etc/passwd", Limit::Machine);
    let users = users.map_err(|why| format!("/etc/passwd: {why}; give the number of user '{text}'"))?;
    uid_in(&users, text).ok_or_else(|| format!("there is no user '{text}' in /etc/passwd; give the number"))
}

/// The number of a user in a table such as `/etc/passwd`.
pub(crate) fn uid_in(users: &str, name: &str) -> Option<u32> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    };
    users.lines().find_map(of)
}

/// The text of a file not writable by others. The daemon does not wait for the writer of a pipe.
fn text(path: &Path) -> Result<String> {
    text_at(path, path)
}

/// The same, opened by another path than its reported one.
fn text_at(path: &Path, opened: &Path) -> Result<String> {
    let unread = |why: io::Error| usage(format!("{}: {why}; check the path", path.display()));
    let mut file = bounded::named(opened).map_err(unread)?;
    // Of the opened file, since another one may have the name by now.
    trusted(path, &file.metadata().map_err(unread)?)?;
    bounded::rest_text(&mut file, Limit::Named).map_err(unread)
}

/// Whether it may make decisions.
fn trusted(path: &Path, meta: &Metadata) -> Result<()> {
    files::trusted(meta).map_err(|why| usage(format!("{}: {why}", path.display())))
}

/// The files of `conf.d` next to it, by name, with their contents. The folder is opened once, so that replacing it
/// meanwhile has no effect.
///
/// The folder above is not checked: with a replaced `conf.d` or a link an attacker can only name files of root and of
/// the daemon's user.
fn beside(path: &Path) -> Result<Vec<(PathBuf, String)>> {
    let Some(folder) = path.parent().map(|folder| folder.join("conf.d")) else { return Ok(Vec::new()) };
    let unread = |why: io::Error| usage(format!("{}: {why}", folder.display()));
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(&folder);
    let opened = match opened {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(unread)?,
    };
    files_of(&folder, &opened)
}

fn files_of(folder: &Path, opened: &fs::File) -> Result<Vec<(PathBuf, String)>> {
    let unread = |why: io::Error| usage(format!("{}: {why}", folder.display()));
    trusted(folder, &opened.metadata().map_err(unread)?)?;
    let here = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let entries = fs::read_dir(&here).map_err(unread)?;
    let names: io::Result<Vec<OsString>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let mut names = names.map_err(unread)?;
    names.retain(|name| Path::new(name).extension().is_some_and(|e| e == "toml"));
    if names.len() > FILES {
        return Err(usage(format!("{}: more than {FILES} files; join some", folder.display())));
    }
    names.sort();
    let read = |name: OsString| {
        let path = folder.join(&name);
        text_at(&path, &here.join(name)).map(|text| (path, text))
    };
    names.into_iter().map(read).collect()
}

/// `/etc/cotenant/cotenant.toml` for root, else `cotenant/cotenant.toml` in the XDG configuration folder.
fn default_path() -> Option<PathBuf> {
    if sys::euid() == 0 {
        return Some("/etc/cotenant/cotenant.toml".into());
    }
    Some(cotenant_cli::xdg("XDG_CONFIG_HOME", ".config")?.join("cotenant/cotenant.toml"))
}

impl Config {
    /// `observe, 3 rules`
    pub fn summary(&self) -> String {
        let mode = match self.mode {
            Mode::Observe => "observe",
            Mode::Advise => "advise",
            Mode::Enforce => "enforce",
        };
        let rules = count(self.rules.len() as u64, "rule");
        if self.is_default {
            return format!("{mode}, {rules} of its own, since there is no {}", self.path.display());
        }
        format!("{mode}, {rules} of {}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// The library that compiles patterns panics where they are too much for it, and recurses as deeply as they nest.
    #[test]
    fn patterns_that_are_too_much_are_refused_at_their_place() {
        let rules = |pattern: &str| {
            let text = format!("[[rule]]\nname = 'a'\nmatch = {{ unit = '{pattern}' }}\n");
            Config::empty("c".into()).take(Path::new("c"), &text)
        };
        let nested = |n| "{".repeat(n) + &"}".repeat(n);
        for pattern in [nested(300), nested(100_000), "?".repeat(1 << 20), "[".to_owned()] {
            let why = rules(&pattern).unwrap_err().to_string();
            assert!(why.starts_with("c:3:18: unit: ") && why.len() < 2_000, "{why:.200}");
        }
        assert!(rules("").unwrap_err().to_string().starts_with("c:3:18: unit: an empty pattern matches nothing"));
        assert!(rules("{a,b{c,d}}*.service").is_ok());
        let text = "[[rule]]\nname = 'a'\nmatch = { unit = 'a.service' }\nclass = 'high'\nmetric = 'log:/x:['\n";
        let why = Config::empty("c".into()).take(Path::new("c"), text).unwrap_err().to_string();
        assert!(why.starts_with("c:5:10: metric: '[' is not a regular expression: "), "{why}");
    }

    /// Who cannot read what was configured does not go on by what is left of it.
    #[test]
    fn a_folder_that_cannot_be_read_is_not_an_empty_one() {
        let folder = std::env::temp_dir().join(format!("cotenant-config-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let path = folder.join("cotenant.toml");
        assert_eq!(beside(&path).unwrap(), []);
        fs::write(folder.join("conf.d"), "").unwrap();
        let why = beside(&path).unwrap_err().to_string();
        assert!(why.contains("conf.d: ") && !why.contains('\n'), "{why}");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// What is checked is what is read, also where somebody puts another folder in its place meanwhile.
    #[test]
    fn the_folder_that_was_opened_is_read() {
        let folder = std::env::temp_dir().join(format!("cotenant-config-swapped-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let beside = folder.join("conf.d");
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("a.toml"), "ours").unwrap();
        let opened = fs::File::open(&beside).unwrap();
        fs::rename(&beside, folder.join("before")).unwrap();
        fs::create_dir(&beside).unwrap();
        for name in ["a.toml", "b.toml"] {
            fs::write(beside.join(name), "theirs").unwrap();
        }
        assert_eq!(files_of(&beside, &opened).unwrap(), [(beside.join("a.toml"), "ours".to_owned())]);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Without a file there are rules all the same, and the file is not named as their source.
    #[test]
    fn a_file_that_is_not_there_is_not_cited() {
        let mut config = Config::empty("/nonexistent/cotenant.toml".into());
        assert_eq!(config.summary(), "observe, 0 rules of /nonexistent/cotenant.toml");
        config.is_default = true;
        assert_eq!(config.summary(), "observe, 0 rules of its own, since there is no /nonexistent/cotenant.toml");
    }

    /// Whoever may write it has the daemon run what they like.
    #[test]
    fn what_others_may_write_is_not_obeyed() {
        let folder = std::env::temp_dir().join(format!("cotenant-config-others-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let (main, beside) = (folder.join("cotenant.toml"), folder.join("conf.d"));
        let drop_in = beside.join("a.toml");
        fs::create_dir_all(&beside).unwrap();
        fs::write(&main, DEFAULT).unwrap();
        fs::write(&drop_in, "mode = 'advise'\n").unwrap();
        let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let refused = |path: &Path, why: &str| {
            let said = Config::read(Some(&main)).unwrap_err().to_string();
            assert!(said.starts_with(&format!("{}: {why}", path.display())) && !said.contains('\n'), "{said}");
        };
        for (path, own) in [(&main, 0o644), (&drop_in, 0o644), (&beside, 0o755)] {
            for bit in [0o002, 0o1002] {
                mode(path, own | bit);
                refused(path, "others may write to it; chmod go-w");
            }
            mode(path, own);
            assert_eq!(Config::read(Some(&main)).unwrap().mode, Mode::Advise);
        }
        if sys::euid() == 0 {
            for (path, own) in [(&main, 0o644), (&drop_in, 0o644), (&beside, 0o755)] {
                mode(path, own | 0o020);
                refused(path, "others may write to it");
                mode(path, own);
                chown(path, Some(7), None).unwrap();
                let user = sys::user_name(7);
                refused(path, &format!("it belongs to user {user}, who is not obeyed; chown 0 it"));
                chown(path, Some(0), None).unwrap();
            }
        }
        // A link counts as its target.
        fs::remove_file(&drop_in).unwrap();
        fs::write(folder.join("elsewhere"), "mode = 'enforce'\n").unwrap();
        symlink(folder.join("elsewhere"), &drop_in).unwrap();
        assert_eq!(Config::read(Some(&main)).unwrap().mode, Mode::Enforce);
        mode(&folder.join("elsewhere"), 0o666);
        refused(&drop_in, "others may write to it");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_of_another_type_is_told_in_words_of_the_file() {
        for (text, why) in [
            ("mode = 3", "c:1:8: expected a string"),
            ("mode = 'x'", "c:1:8: unknown variant `x`, expected one of `observe`, `advise`, `enforce`"),
            ("rule = 3", "c:1:8: invalid type: integer `3`, expected a sequence"),
            ("rule = [3]", "c:1:9: invalid type: integer `3`, expected a table, begun by [[rule]]"),
            ("[[rule]]\nname = 'a'\nmatch = 'x'", "expected a table such as { unit = \"NAME\" }"),
        ] {
            let said = Config::empty("c".into()).take(Path::new("c"), text).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn what_can_be_nowhere_is_told_with_what_to_write() {
        let never = |matches: &str| {
            let text = format!("[[rule]]\nname = 'a'\nmatch = {{ {matches} }}\n");
            Config::empty("c".into()).take(Path::new("c"), &text).unwrap().remove(0).never
        };
        for (matches, write) in [
            ("cgroup = '/sys/fs/cgroup/batch.slice/**'", "such as \"/batch.slice/**\""),
            ("cgroup = 'batch.slice'", "such as \"/batch.slice\""),
            ("unit = 'nginx'", "such as \"nginx.service\""),
            ("unit = 'nginx.socket'", "end in .service, .scope or .slice, such as \"nginx.service\""),
            ("command = 'bin/redis-server'", "give the whole path"),
        ] {
            let why = never(matches).unwrap_or_default();
            assert!(why.contains(write) && !why.contains('\n'), "{matches}: {why}");
        }
        for matches in [
            "cgroup = '/batch.slice'",
            "cgroup = '/sys/fs/cgroups'",
            "cgroup = '**/batch'",
            "cgroup = '{/a,/b}'",
            "unit = 'nginx*'",
            "unit = 'pg@*.service'",
            "unit = '*.{service,scope}'",
            "command = 'redis-server'",
            "command = '**/redis'",
            "user = '0'",
        ] {
            assert_eq!(never(matches), None, "{matches}");
        }
    }

    /// Holds cluster/containers.
    #[test]
    fn annotations_count_where_the_rule_allows_them() {
        let terms = |keys: &str, asked: &Asked| {
            let text = format!("[[rule]]\nname = 'a'\nmatch = {{ namespace = '*' }}\n{keys}\n");
            let mut config = Config::empty("c".into());
            config.rules = config.take(Path::new("c"), &text).unwrap();
            let terms = config.rules[0].terms(Some(asked));
            assert!(
                terms.exclusive || terms.class == Class::Ignore || config.policies().contains(&&*terms.policy),
                "{terms:?}"
            );
            (terms.class, terms.goal, terms.metric.unwrap_or_default().name(), terms.policy)
        };
        let asked = |class| Asked {
            class: Some(class),
            goal: Some(0.5),
            metric: Some("ipc".parse().unwrap()),
            exclusive: false,
        };
        let named = |class, goal, metric: &str, policy: &str| (class, goal, metric.to_owned(), policy.to_owned());
        let plain = named(Class::Normal, 0.9, "progress", "auto");
        assert_eq!(terms("", &asked(Class::High)), plain, "nobody is asked");
        assert_eq!(terms("annotations = ['class']", &Asked::default()), plain);
        let class = "annotations = ['class']";
        assert_eq!(terms(class, &asked(Class::High)), named(Class::High, 0.9, "progress", "none"));
        assert_eq!(terms(class, &asked(Class::Ignore)).0, Class::Ignore);
        let all = "annotations = ['class', 'goal', 'metric']\npolicy = 'shapes'\ngoal = '95%'";
        assert_eq!(terms(all, &asked(Class::High)), named(Class::High, 0.5, "ipc", "shapes"));
        assert_eq!(terms(all, &Asked::default()).1, 0.95);
        let goal = "class = 'high'\nannotations = ['goal']";
        assert_eq!(terms(goal, &asked(Class::Low)), named(Class::High, 0.5, "progress", "none"));
        // An application with exclusive CPUs is neither placed nor throttled under any rule.
        let alone = |class| Asked { exclusive: true, ..asked(class) };
        assert_eq!(terms("policy = 'shapes'", &alone(Class::Low)), named(Class::Normal, 0.9, "progress", "none"));
        assert_eq!(terms("class = 'low'", &alone(Class::High)).0, Class::Normal);
        assert_eq!(terms(all, &alone(Class::Low)), named(Class::Normal, 0.5, "ipc", "none"));
        assert_eq!(terms(class, &alone(Class::High)), named(Class::High, 0.9, "progress", "none"));
    }

    #[test]
    fn what_bpf_alone_reads_is_refused_without_it() {
        let seen = |keys: &str| {
            let mut config = Config::empty("c".into());
            let text = format!("{keys}\n[[rule]]\nname = 'a'\nmatch = {{ command = 'a' }}\nclass = 'high'\n");
            config.rules = config.take(Path::new("c"), &format!("{text}metric = 'clients:80:p99'\n")).unwrap();
            config.sees_clients().map_err(|why| why.to_string())
        };
        assert_eq!(seen("bpf = true"), Ok(()));
        let why = seen("bpf = false").unwrap_err();
        assert_eq!(why, "c:6:10: metric: clients: is seen by BPF, and bpf = false does without; leave one of them out");
    }

    fn rule_of(keys: &str) -> anyhow::Result<Rule> {
        Ok(Config::empty("c".into()).take(Path::new("c"), &format!("[[rule]]\n{keys}\n"))?.remove(0))
    }

    /// Holds qos/rules.
    #[test]
    fn each_old_key_says_what_to_write_and_that_is_the_same() {
        for (old, new) in [
            (
                "executable = 'redis-server'\nrole = 'high'",
                "name = \"redis-server\"|match = { command = \"redis-server\" }|class = \"high\"",
            ),
            ("name = 'a'\nexecutable = '/bin/a'\nclass = 'low'", "match = { command = \"/bin/a\" }"),
            ("name = 'a'\nexecutable = '/bin/[a'", "match = { command = \"/bin/[[]a\" }"),
            ("name = 'a'\nmatch = { unit = 'a.service' }\nrole = 'low'", "class = \"low\""),
            (
                "cgroup = '/sys/fs/cgroup/batch.slice'\nrole = 'low'",
                "name = \"batch.slice\"|match = { unit = \"batch.slice\" }|class = \"low\"",
            ),
            (
                "cgroup = '/sys/fs/cgroup/a/batch/'\nrole = 'low'",
                "name = \"batch\"|match = { cgroup = \"/a/batch\" }|class = \"low\"",
            ),
        ] {
            let before = rule_of(old).unwrap();
            let said = before.old.clone().unwrap();
            let lines: Vec<&str> = new.split('|').collect();
            let place = said.starts_with("c:1:1: ") && said.contains("from 0.2.0 on");
            assert!(place && said.contains(&format!("write `{}` instead", lines.join("`, `"))), "{said}");
            let kept =
                old.lines().filter(|line| ["executable", "cgroup", "role"].iter().all(|key| !line.starts_with(key)));
            let now = rule_of(&kept.chain(lines).collect::<Vec<_>>().join("\n")).unwrap();
            let what = |rule: &Rule| format!("{} {:?} {:?}", rule.name, rule.class, rule.matches);
            assert_eq!((what(&before), &now.old), (what(&now), &None));
        }
        for keys in
            ["executable = 'a'\ncgroup = '/b'\nrole = 'low'", "executable = 'a'\nmatch = { unit = 'a.service' }"]
        {
            assert!(
                rule_of(keys).unwrap_err().to_string().contains("c:1:1: executable and cgroup are older names"),
                "{keys}"
            );
        }
    }
}
