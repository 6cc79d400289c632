//! The rules of the daemon for a command that manages the same programs while they run.

use crate::config::Config;
use crate::preflight;
use crate::services::{self, Service};
use anyhow::Result;
use cotenant_cli::usage;
use cotenant_linux::FsRoot;
use cotenant_linux::sense::census::Census;
use cotenant_linux::sense::processes::Target;
use cotenant_setup::args::MetricArg;
use cotenant_status::class::Class;
use std::path::{Path, PathBuf};

/// The present matches of a configuration's rules.
#[derive(Debug)]
pub struct Named {
    /// The configuration.
    pub path: PathBuf,
    /// The programs of class high and low, in the order of their rules.
    pub programs: Vec<Program>,
    /// Rules that can match nothing, and keys of before.
    pub warnings: Vec<String>,
    /// Rules that match no process now, and control groups that cannot be throttled.
    pub notes: Vec<String>,
}

/// The match of a rule, managed as one.
#[derive(Debug)]
pub struct Program {
    /// That of its rule, where the rule names nothing else; else that of the service.
    pub name: String,
    /// High or low.
    pub class: Class,
    /// The share of its speed alone that one of class high keeps.
    pub goal: f64,
    /// The source of its speed, if one is named.
    pub metric: Option<MetricArg>,
    /// Its processes.
    pub target: Target,
    /// The user of its processes; root if they have several.
    pub uid: u32,
}

/// Reads a configuration, or that of the daemon, and finds its rules' present matches like the daemon. Keys for the
/// daemon alone have no effect.
///
/// # Errors
/// One line with file, line and column, or where no rule names anything, or processes cannot be listed.
pub fn named_now(named: Option<&Path>) -> Result<Named> {
    let mut config = Config::gather(named)?;
    // Until 0.2.0.
    let before = || Some(cotenant_cli::xdg("XDG_CONFIG_HOME", ".config")?.join("cotenant/config.toml"));
    let path = config.path.clone();
    if config.is_default {
        config.rules.clear();
        if let Some(old) = before().filter(|path| path.exists()) {
            config = Config::gather(Some(&old))?;
        }
    }
    let rules = &config.rules;
    if rules.is_empty() {
        return Err(usage(format!(
            "no program is named; use --high and --low, or write [[rule]] tables with class = \"high\" and class = \"low\" \
             into {}",
            path.display()
        )));
    }
    let mut found: Vec<Service> = services::now(rules)?.into_values().collect();
    found.sort_by_key(|service| service.rule);
    let (mut programs, mut notes) = (Vec::new(), Vec::new());
    for (i, rule) in rules.iter().enumerate().filter(|(_, rule)| matches!(rule.class, Class::High | Class::Low)) {
        let (among_others, of_rule): (Vec<&Service>, Vec<&Service>) = found
            .iter()
            .filter(|service| service.rule == i)
            .partition(|service| rule.class == Class::Low && service.mixed && service.group().is_some());
        let shared = |service: &&Service| {
            format!("{} also holds programs that no rule with class = \"low\" names, and is left alone", service.name)
        };
        notes.extend(among_others.iter().map(shared));
        let program = |name: &str, target: Target, uid: u32| {
            let (name, metric) = (name.to_owned(), rule.metric.clone());
            Program { name, class: rule.class, goal: rule.goal, metric, target, uid }
        };
        match &*of_rule {
            [] if !among_others.is_empty() => {}
            [] => match empty_group(rule.group.as_deref()).filter(|_| rule.class == Class::Low) {
                Some(target) => programs.push(program(&rule.name, target, 0)),
                None => notes.push(format!("rule {} matches no running process", rule.name)),
            },
            [one] => programs.push(program(&rule.name, one.target.clone(), one.uid)),
            many => programs.extend(many.iter().map(|one| program(&one.name, one.target.clone(), one.uid))),
        }
    }
    Ok(Named { programs, notes, warnings: preflight::of_rules(rules), path: config.path })
}

/// An existing control group, still empty.
fn empty_group(path: Option<&str>) -> Option<Target> {
    Census::new(FsRoot::live()).folder(path?).filter(|folder| folder.exists()).map(Target::Cgroup)
}
