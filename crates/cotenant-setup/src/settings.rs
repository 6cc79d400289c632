//! Resolves the settings of the loop: from the command line, otherwise the settings file, otherwise the default.

use crate::args::{ManageArgs, PolicyArgs};
use crate::files::{read_profile, read_profiles, read_settings};
use crate::known::Known;
use crate::store::{Loaded, Store};
use crate::{calibrated, names, registry::registry, units};
use anyhow::Result;
use cotenant_cli::messages::tell;
use cotenant_cli::usage;
use cotenant_linux::host::HostOptions;
use cotenant_linux::sense::executable;
use cotenant_linux::sense::memory::{self, Choice};
use cotenant_model::parse;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{self, Config, Ctx, DynPolicy, Needs, Policy, Settings};
use cotenant_model::profile::{AppProfile, Executable, MachineProfile};
use cotenant_model::topology::notation;
use cotenant_model::{CpuSet, Mode, Owns, Rule, Topology};
use cotenant_policies::{Atom, AtomConfig, Sam, SamConfig, Shapes, Static, StaticSettings};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The settings file. Every key is optional and has the meaning of the option of the same name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct File {
    policy: Option<String>,
    map: Option<String>,
    sam: Option<String>,
    atom: Option<String>,
    /// Settings of policies by policy and key, as `--set` takes them.
    set: BTreeMap<String, toml::Table>,
    interval: Option<String>,
    pin: Option<Pin>,
    mode: Option<Mode>,
    cpus: Option<String>,
    profile: Option<PathBuf>,
    profiles: Option<PathBuf>,
    /// Rules of `cotenant qos`, which may stand here until 0.2.0.
    #[serde(rename = "rule")]
    _rule: Option<IgnoredAny>,
}

/// A policy, its settings, and its subjects.
pub struct Decider {
    /// The policy.
    pub policy: Box<dyn DynPolicy>,
    /// Its settings.
    pub config: Config,
    /// The applications and effects that it decides about.
    pub owns: Owns,
}

impl Decider {
    /// One policy for everything.
    pub fn all(policy: Box<dyn DynPolicy>, config: Config) -> Vec<Self> {
        vec![Self { policy, config, owns: Owns::default() }]
    }

    /// A policy by its name, for everything, with the profile of this machine.
    ///
    /// # Errors
    /// An unknown policy, or invalid settings.
    pub fn live(name: &str, mut config: Config, topology: &Topology) -> Result<Self> {
        learn(&mut config, name, topology)?;
        let policy = registry().make(name, &config).map_err(usage)?;
        if policy.needs().pauses {
            return Err(usage(format!(
                "policy {name} chooses which of many jobs run; use it with 'cotenant schedule'"
            )));
        }
        if policy.needs().exact {
            config.pin = Pin::Cpu;
        }
        Ok(Self { policy, config, owns: Owns::default() })
    }

    /// Whether both decide alike, so that one may continue with the other's state, which includes the constantly
    /// changing shapes found so far.
    pub fn is_like(&self, other: &Self) -> bool {
        let set = |of: &Self| {
            let mut config = of.config.clone();
            config.settings.remove(Shapes::SECTION, "known");
            config
        };
        self.policy.name() == other.policy.name() && set(self) == set(other)
    }
}

/// Everything that a decision depends on, resolved.
pub struct Setup {
    /// The machine, restricted to the CPUs allowed by the user.
    pub topology: Topology,
    /// Thresholds and clock of the machine.
    pub machine: MachineProfile,
    /// Profiles of applications, by name.
    pub apps: BTreeMap<String, AppProfile>,
    /// At least one. Statements on a single policy concern the first one.
    pub deciders: Vec<Decider>,
    /// Whether it observes, advises or acts.
    pub mode: Mode,
    /// CPUs that the user allows; `None` = all.
    pub cpus: Option<CpuSet>,
    /// The collector of memory accesses, and its budget as a share of a CPU.
    collector: (Choice, f64),
    /// Whether BPF may be used, if available.
    pub bpf: bool,
}

impl Setup {
    /// Resolves options against another machine, and checks whether the policy can work there. Profiles of its
    /// applications are stored under its name.
    ///
    /// # Errors
    /// One line: the wrong option or place in a file, and the remedy.
    pub fn new(args: &PolicyArgs, name: &str, topology: Topology, machine: MachineProfile) -> Result<Self> {
        let load = |_: &Topology| stored(Store::of_machine(name), &BTreeMap::new());
        Self::resolve(args, None, load, &[], topology, machine)
    }

    /// The same for a live machine, with mode and CPUs. `running` is the program's default name, and its file.
    ///
    /// # Errors
    /// As [`Setup::new`].
    pub fn live(
        args: &ManageArgs,
        topology: Topology,
        machine: MachineProfile,
        running: Option<(String, PathBuf)>,
    ) -> Result<Self> {
        let called = |name| args.scope.name.clone().unwrap_or(name);
        let known = running.and_then(|(name, path)| Some((called(name), executable::look(&path)?)));
        Self::live_with(args, topology, machine, &known.into_iter().collect(), &[])
    }

    /// The same for several programs, by the names that profiles have them under; some of them the user calls
    /// latency-sensitive.
    ///
    /// # Errors
    /// As [`Setup::new`].
    pub fn live_with(
        args: &ManageArgs,
        topology: Topology,
        machine: MachineProfile,
        known: &BTreeMap<String, Executable>,
        sensitive: &[&str],
    ) -> Result<Self> {
        let load = |topology: &Topology| stored(Store::of_this_machine(topology), known);
        Self::resolve(&args.policy, Some(args), load, sensitive, topology, machine)
    }

    fn resolve(
        args: &PolicyArgs,
        live: Option<&ManageArgs>,
        load: impl FnOnce(&Topology) -> Loaded,
        sensitive: &[&str],
        topology: Topology,
        machine: MachineProfile,
    ) -> Result<Self> {
        let mode = live.and_then(|manage| manage.scope.mode);
        let cpus = live.and_then(|manage| manage.scope.cpus.as_deref());
        let (file, path) = read_file(args.config.as_deref())?;
        let in_file = |key: &str| format!("{}: {key}", path.display());
        let mut config = Config::default();
        if let Some(text) = &file.interval {
            config.interval = units::interval(text).map_err(|why| usage(format!("{}: {why}", in_file("interval"))))?;
        }
        config.interval = args.interval.unwrap_or(config.interval);
        let name = args.policy.as_ref().or(file.policy.as_ref()).map_or("auto", String::as_str).to_owned();
        config.settings = settings_of(args, &name, &file, in_file)?;
        if live.is_some() {
            learn(&mut config, &name, &topology)?;
        }
        config.move_pages = args.move_pages;

        let profile = args.profile.as_deref().or(file.profile.as_deref());
        let machine = match profile {
            Some(path) => {
                let profile = read_profile(path)?;
                if live.is_some() {
                    calibrated::stale(&profile, &topology, path).into_iter().for_each(tell);
                }
                profile.or(machine)
            }
            None => machine,
        };
        let cpus =
            cpus.or(file.cpus.as_deref()).map(|text| user_cpus("--cpus", text, topology.usable())).transpose()?;
        if let Some(cpus) = &cpus {
            limit_map(&mut config.settings, &topology, cpus)?;
        }
        let policy = registry().make(&name, &config).map_err(usage)?;
        let pin = if policy.needs().exact { Pin::Cpu } else { config.pin };
        config.pin = args.pin.or(file.pin).unwrap_or(pin);
        if args.map.is_some() && policy.name() != "static" {
            return Err(usage(format!("--map is for the policy static, not for {name}; add --policy static")));
        }
        let of_shapes = &["shapes", "auto"][..];
        let options = [
            (args.sam.is_some(), "sam", &["sam", "auto"][..]),
            (args.atom.is_some(), "atom", &["atom"][..]),
            (args.objective.is_some(), "objective", of_shapes),
            (args.guard.is_some(), "guard", of_shapes),
            (args.regret.is_some(), "regret", of_shapes),
        ];
        let is_wrong = |(given, _, of): &&(bool, _, &[&str])| *given && !of.contains(&policy.name());
        if let Some((_, option, of)) = options.iter().find(is_wrong) {
            let noun = if of.len() > 1 { "policies" } else { "policy" };
            let of = of.join(" and ");
            return Err(usage(format!("--{option} is for the {noun} {of}, not for {name}; leave it out")));
        }
        if live.is_some() && policy.needs().pauses {
            return Err(usage(format!(
                "policy {name} chooses which of many jobs run, and here is one program; use 'cotenant schedule', or \
                 see what it would do with 'cotenant sim' or 'cotenant decide'"
            )));
        }
        let wanted = policy.needs().profiles;
        let mut apps = profiles(args.profiles.as_ref().or(file.profiles.as_ref()), || {
            if wanted { load(&topology) } else { Loaded::default() }
        })?;
        for name in sensitive {
            apps.entry((*name).to_owned()).or_default().latency_sensitive = true;
        }
        let topology = within(&calibrated::measured(&machine, topology, profile)?, cpus.as_ref());
        let mut setup = Self::of((topology, machine), cpus, apps, Decider::all(policy, config))?;
        setup.mode = mode.or(file.mode).unwrap_or_default();
        if let Some(scope) = live.map(|manage| &manage.scope) {
            setup.bpf = !scope.no_bpf;
            setup.collector.0 = scope.collector.unwrap_or_default();
            setup.collector.1 = scope.collector_budget.map_or(setup.collector.1, |percent| percent / 100.0);
        }
        Ok(setup)
    }

    /// For a command with policies of its own, which are checked. `cpus` are those named by the user, to which the
    /// topology is limited.
    ///
    /// # Errors
    /// A policy that cannot work there, with the remedy.
    pub fn of(
        (topology, machine): (Topology, MachineProfile),
        cpus: Option<CpuSet>,
        apps: BTreeMap<String, AppProfile>,
        deciders: Vec<Decider>,
    ) -> Result<Self> {
        let collector = (Choice::default(), memory::Options::default().budget);
        let setup = Self { topology, machine, apps, deciders, mode: Mode::Enforce, cpus, collector, bpf: true };
        for Rule { policy, ctx, .. } in setup.rules() {
            policy.check(&ctx).map_err(|refusal| usage(refusal.to_string()))?;
        }
        Ok(setup)
    }

    /// Whether one of the policies has this need.
    pub fn needs(&self, what: fn(Needs) -> bool) -> bool {
        self.deciders.iter().any(|decider| what(decider.policy.needs()))
    }

    /// The host's observation of the programs' memory. A recording must serve other policies, too.
    pub fn memory(&self, recorded: bool) -> memory::Options {
        // The firmware gives no distances for a single node, but the operator may know that cores differ.
        let differs = self.topology.nodes().len() > 1 || self.topology.parts().distances.is_some();
        memory::Options {
            placement: differs && (recorded || self.needs(|needs| needs.pages)),
            accesses: differs && self.needs(|needs| needs.accesses),
            choice: self.collector.0,
            budget: self.collector.1,
        }
    }

    /// The options of the host. A recording must serve other policies, too.
    pub fn host_options(&self, recorded: bool) -> HostOptions {
        HostOptions {
            cpus: self.cpus.clone(),
            act: self.mode == Mode::Enforce,
            profiles: self.apps.clone(),
            memory: self.memory(recorded),
            proxies: self.needs(|needs| needs.proxies),
            waits: self.bpf,
            move_pages: self.deciders.iter().any(|decider| decider.config.move_pages),
            ..HostOptions::default()
        }
    }

    /// The rules, as the loop takes them.
    pub fn rules(&self) -> Vec<Rule<'_>> {
        let Self { topology, machine, apps, .. } = self;
        let rules = self.deciders.iter().map(|Decider { policy, config, owns }| Rule {
            policy: &**policy,
            ctx: Ctx { topology, machine, apps, config },
            owns: owns.clone(),
        });
        rules.collect()
    }

    /// The name of the first policy.
    pub fn policy(&self) -> &'static str {
        self.deciders[0].policy.name()
    }
}

/// Passes the shapes of earlier runs to a policy that uses them.
fn learn(config: &mut Config, policy: &str, topology: &Topology) -> Result<()> {
    let learns = registry().find(policy).is_ok_and(|entry| entry.reads().contains(&Shapes::SECTION));
    let known = if learns { Known::of(topology).read() } else { Vec::new() };
    if !known.is_empty() {
        config.settings.set_missing(Shapes::SECTION, "known", serde_json::to_value(&known)?);
    }
    Ok(())
}

/// Frees the marks of `static`'s map outside the user's CPUs: they are valid, but nothing is placed there.
fn limit_map(settings: &mut Settings, topology: &Topology, cpus: &CpuSet) -> Result<()> {
    let map = settings.of::<Static>()?.map;
    if let Some(Ok(marks)) = map.map(|map| notation::parse_map(topology, &map)) {
        let marks: BTreeMap<_, _> = marks.into_iter().filter(|(cpu, _)| cpus.contains(*cpu)).collect();
        let map = Some(notation::format_map(topology, |cpu| marks.get(&cpu).copied()));
        settings.put(Static::SECTION, &StaticSettings { map });
    }
    Ok(())
}

/// Settings of single policies: the file's, then the named options', then those of `--set`.
fn settings_of(args: &PolicyArgs, policy: &str, file: &File, in_file: impl Fn(&str) -> String) -> Result<Settings> {
    let mut settings = Settings::default();
    if let Some(text) = &file.sam {
        let sam: SamConfig = text.parse().map_err(|why| usage(format!("{}: {why}", in_file("sam"))))?;
        settings.put(Sam::SECTION, &sam);
    }
    if let Some(text) = &file.atom {
        let atom: AtomConfig = text.parse().map_err(|why| usage(format!("{}: {why}", in_file("atom"))))?;
        settings.put(Atom::SECTION, &atom);
    }
    for (policy, table) in &file.set {
        let wrong = |why: &dyn std::fmt::Display| usage(format!("{}: {why}", in_file("set")));
        let section = registry().section(policy).map_err(|why| wrong(&why))?;
        for (key, value) in table {
            settings.set(section, key, serde_json::to_value(value)?);
        }
        registry().check(section, &settings).map_err(|why| wrong(&why))?;
    }
    if let Some(sam) = &args.sam {
        settings.put(Sam::SECTION, sam);
    }
    if let Some(atom) = &args.atom {
        settings.put(Atom::SECTION, atom);
    }
    let of_shapes = [("guard", &args.guard), ("regret", &args.regret)];
    let objective = args.objective.as_ref().map(ToString::to_string);
    for (key, value) in of_shapes.into_iter().chain([("objective", &objective)]) {
        let Some(value) = value else { continue };
        settings.set(Shapes::SECTION, key, policy::settings::value(value));
        registry().check(Shapes::SECTION, &settings).map_err(|why| usage(format!("--{key} {value}: {}", why.why)))?;
    }
    if let Some(map) = args.map.as_ref().or(file.map.as_ref()) {
        settings.put(Static::SECTION, &StaticSettings { map: Some(map.clone()) });
    }
    args.set.apply(&mut settings, [policy])?;
    Ok(settings)
}

/// CPUs that the user named, of which some must be there.
///
/// # Errors
/// An invalid list of CPUs, or an unusable one among them.
pub fn user_cpus(option: &str, text: &str, usable: &CpuSet) -> Result<CpuSet> {
    let cpus = CpuSet::parse_list(text).map_err(|e| usage(format!("{option}: {e}")))?;
    if !cpus.intersects(usable) {
        let none = if cpus.is_empty() { "it names no CPU" } else { "none of these CPUs can be used here" };
        return Err(usage(format!("{option} '{text}': {none}; usable: {usable}")));
    }
    let missing = cpus.minus(usable);
    if !missing.is_empty() {
        return Err(usage(format!("{option} {cpus}: CPUs {missing} cannot be used here; usable: {usable}")));
    }
    Ok(cpus)
}

/// The machine for a policy that has only the user's CPUs, independent of others' use of the rest.
fn within(topology: &Topology, cpus: Option<&CpuSet>) -> Topology {
    cpus.map_or_else(|| topology.clone(), |cpus| topology.limited_to(cpus))
}

/// This machine for a command that has no settings of policies, limited to the CPUs of `--cpus`, and these.
///
/// # Errors
/// As [`user_cpus`] and [`live_machine`].
pub fn machine_within(cpus: Option<&str>) -> Result<((Topology, MachineProfile), Option<CpuSet>)> {
    let (topology, profile) = live_machine(None)?;
    let cpus = cpus.map(|text| user_cpus("--cpus", text, topology.usable())).transpose()?;
    Ok(((within(&topology, cpus.as_ref()), profile), cpus))
}

/// Profiles for a simulation: the file's, otherwise those stored for the machine if a policy wants any.
///
/// # Errors
/// As [`read_profiles`].
pub fn simulated_profiles(file: Option<&Path>, wanted: bool, machine: &str) -> Result<BTreeMap<String, AppProfile>> {
    profiles(file, || stored(wanted.then(|| Store::of_machine(machine)).flatten(), &BTreeMap::new()))
}

/// The content of a store; empty without one.
fn stored(store: Option<Store>, running: &BTreeMap<String, Executable>) -> Loaded {
    store.map(|store| store.load(running)).unwrap_or_default()
}

/// Profiles of a file, otherwise stored ones, with remarks. Without stamps.
fn profiles(file: Option<impl AsRef<Path>>, stored: impl FnOnce() -> Loaded) -> Result<BTreeMap<String, AppProfile>> {
    let Some(path) = file else {
        let Loaded { apps, notes } = stored();
        notes.iter().for_each(tell);
        return Ok(apps);
    };
    let unstamped = |(name, app)| (name, AppProfile { stamp: None, ..app });
    Ok(read_profiles(path.as_ref())?.into_iter().map(unstamped).collect())
}

/// Profiles of programs on this machine, by name: the file's, otherwise stored ones.
///
/// # Errors
/// As [`read_profiles`].
pub fn profiles_here(
    file: Option<&Path>,
    topology: &Topology,
    running: &BTreeMap<String, Executable>,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, AppProfile>> {
    let mut apps = profiles(file, || stored(Store::of_this_machine(topology), running))?;
    apps.retain(|name, _| is_wanted(name));
    Ok(apps)
}

/// The name of a command, and its file; `None` if the file does not exist.
pub fn program_of(command: &[OsString]) -> Option<(String, PathBuf)> {
    Some((names::of_command(command), executable::find(command.first()?)?))
}

/// The settings file and its path, existing or not.
fn read_file(named: Option<&Path>) -> Result<(File, PathBuf)> {
    let path = named.map(Path::to_owned).or_else(default_path).unwrap_or_default();
    if named.is_none() && !path.exists() {
        return Ok((File::default(), path));
    }
    let file = parse_file(&path, &read_settings(&path)?)?;
    Ok((file, path))
}

/// The text of a settings file.
///
/// # Errors
/// One line with file, line and column.
pub fn parse_file(path: &Path, text: &str) -> Result<File> {
    toml::from_str(text).map_err(|e| usage(format!("{}:{}", path.display(), parse::Located::of_toml(text, &e))))
}

fn default_path() -> Option<PathBuf> {
    Some(cotenant_cli::xdg("XDG_CONFIG_HOME", ".config")?.join("cotenant/config.toml"))
}

/// This machine. A damaged profile of it is an error only for a command that decides by it (`args`) and names no other;
/// otherwise it is left out with a warning.
///
/// # Errors
/// An unreadable machine, or a damaged profile that is needed.
pub fn live_machine(args: Option<&PolicyArgs>) -> Result<(Topology, MachineProfile)> {
    let found = cotenant_linux::sense::topology::live()?;
    found.notes.iter().for_each(tell);
    let named = |args: &PolicyArgs| -> Result<bool> {
        Ok(args.profile.is_some() || read_file(args.config.as_deref())?.0.profile.is_some())
    };
    let other = args.map_or(Ok(true), named)?;
    let (profile, stale) = match calibrated::load(&found.topology) {
        Ok(loaded) => loaded,
        Err(why) if other => {
            (MachineProfile::default(), vec![format!("not used: {why}; calibrate again, or remove it")])
        }
        Err(why) => {
            let remedy = "the profile of this machine is damaged; calibrate again, or name another with --profile";
            return Err(why.context(remedy));
        }
    };
    stale.into_iter().for_each(tell);
    Ok((found.topology, profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was found since the daemon began is no other setting.
    #[test]
    fn what_was_found_makes_no_other_decider() {
        let decider = |policy: &str, known: Option<usize>, regret: Option<f64>| {
            let mut config = Config::default();
            if let Some(n) = known {
                let shape = serde_json::json!({ "counts": [[n, 0]], "doubling": { "order": [0], "pair": null, "packed": null } });
                let known = serde_json::json!([{ "groups": [["a", n]], "shape": shape }]);
                config.settings.set(Shapes::SECTION, "known", known);
            }
            if let Some(regret) = regret {
                config.settings.set(Shapes::SECTION, "regret", regret.into());
            }
            let policy = registry().make(policy, &config).unwrap();
            Decider { policy, config, owns: Owns::default() }
        };
        let usual = decider("auto", None, None);
        assert!(usual.is_like(&decider("auto", Some(2), None)) && decider("auto", Some(2), None).is_like(&usual));
        assert!(decider("auto", Some(2), Some(0.02)).is_like(&decider("auto", Some(3), Some(0.02))));
        assert!(
            !usual.is_like(&decider("auto", Some(2), Some(0.02))) && !usual.is_like(&decider("shapes", None, None))
        );
    }
}
