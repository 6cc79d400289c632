//! The daemon: the loop of `qos` over the same host, with services that change for weeks.
//!
//! A look at all processes finds the services of the rules: new services are added to the host, ended ones removed, and
//! the policies keep their state. Requests arrive over the control socket. Its threads only hand them over: the thread
//! of the loop alone changes what is managed, between two rounds.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cast;
pub mod client;
mod config;
mod containers;
mod control;
mod desk;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod jobs;
pub mod log;
mod logbook;
mod metrics;
mod node;
mod old;
mod parties;
mod pauses;
mod preflight;
pub mod programs;
pub mod protocol;
pub mod rules;
mod services;
mod shift;
mod slurm;
mod speed;
pub mod summary;
mod web;
mod written;

use crate::cast::setup;
use crate::config::{Config, Rule};
use crate::control::{Control, Shared};
use crate::desk::Desk;
use crate::pauses::Kept;
use crate::services::Service;
use crate::shift::{Next, serve};
use crate::web::Web;
use anyhow::Result;
use cotenant_setup::{names, settings};
use cotenant_status::class::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Runs until a signal ends it; then every change is undone.
///
/// # Errors
/// One line: the error in the configuration with its place, or the unavailable resource. A metric of a service that is
/// refused for good, unless `wait_for_metric`.
pub fn run(named: Option<&Path>, socket: Option<PathBuf>, level: log::Level, wait_for_metric: bool) -> Result<()> {
    let mut config = Config::read(named)?;
    if !wait_for_metric {
        preflight::all_answer(&config)?;
    }
    let shared = Arc::new(Shared::default());
    let socket = socket
        .map_or_else(|| Ok(cotenant_linux::undo::default_state_dir()?.join("control.sock")), Ok::<_, anyhow::Error>)?;
    let _control = Control::listen(socket.clone(), shared.clone())?;
    log::begin(level)?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(MESSAGE_ID = log::DAEMON, "cotenant {version} begins: {}", config.summary());
    let (kept, remark) = Kept::read();
    for remark in remark.into_iter().chain(config.rules.iter().filter_map(|rule| rule.old.clone())) {
        tracing::warn!(MESSAGE_ID = log::DAEMON, "{remark}");
    }
    let mut desk =
        Desk { begun: Instant::now(), shared, web: Web::default(), socket, slurm: None, kept, refused: None };
    desk.web.serve_at(config.listen, &desk.shared);
    desk.shared.set_bridge(config.bridge);
    desk.set_slurm(config.slurm);
    while serve(&mut config, named, &mut desk)? == Next::Anew {}
    tracing::info!(MESSAGE_ID = log::DAEMON, "cotenant ends");
    Ok(())
}

/// A valid configuration, and its rules' present services.
pub struct Checked {
    /// The configuration in a line.
    pub summary: String,
    /// Its rules, in their order.
    pub rules: Vec<CheckedRule>,
    /// Its parts that will not work at present.
    pub warnings: Vec<String>,
}

/// A rule and its present services.
pub struct CheckedRule {
    /// Its name.
    pub name: String,
    /// The class of its services.
    pub class: Class,
    /// The placing policy of its services; empty if they are not placed.
    pub policy: String,
    /// The names of its services, each with its differently named programs.
    pub services: Vec<String>,
}

/// Processes of a service that are checked for their names, and shown names.
const LOOKS: usize = 64;
const NAMED: usize = 3;

/// Its name, and those of its programs: `batch.slice (gzip, tar)`.
fn with_programs(service: &Service) -> String {
    let names = service.target.pids().into_iter().take(LOOKS).filter_map(names::of_process);
    let others: BTreeSet<String> = names.filter(|name| *name != service.name).collect();
    let mut shown: Vec<&str> = others.iter().take(NAMED).map(String::as_str).collect();
    shown.extend((others.len() > NAMED).then_some("…"));
    if shown.is_empty() { service.name.clone() } else { format!("{} ({})", service.name, shown.join(", ")) }
}

/// Checks a configuration, and finds its rules' present services and whether their metrics answer; commands are run
/// only with `ask_commands`.
///
/// # Errors
/// As [`run`]; a policy that cannot work here; errors of listing `/proc`.
pub fn check(named: Option<&Path>, ask_commands: bool) -> Result<Checked> {
    let config = Config::read(named)?;
    setup(&config, settings::live_machine(None)?)?;
    let found = services::now(&config.rules)?;
    let warnings = preflight::warnings(&config, &found, ask_commands)?;
    let mut of_rule: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for service in found.into_values() {
        of_rule.entry(service.rule).or_default().push(with_programs(&service));
    }
    let rule = |(i, rule): (usize, &Rule)| CheckedRule {
        name: rule.name.clone(),
        class: rule.class,
        policy: if rule.class == Class::Ignore { String::new() } else { rule.policy().to_owned() },
        services: of_rule.remove(&i).unwrap_or_default(),
    };
    let summary = config.summary();
    Ok(Checked { summary, rules: config.rules.iter().enumerate().map(rule).collect(), warnings })
}
