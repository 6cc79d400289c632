//! Running programs, by the rules of the settings file.

use super::cast::Cast;
use anyhow::{Context, Result};
use cotenant_cli::usage;
use cotenant_linux::host::{AppSpec, What};
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sys;
use cotenant_setup::args::{self, MetricArg};
use cotenant_setup::settings::{self, Matches, Role, RoleRule};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The present matches of the rules in a settings file. A process belongs to the first rule that matches it. A
/// program's metric is from its rule, otherwise from the only `--metric`, otherwise progress.
pub(super) fn cast(config: Option<&Path>, metrics: &[MetricArg], all_users: bool) -> Result<Cast> {
    let (rules, file) = settings::rules(config)?;
    if rules.is_empty() {
        let file = if file.as_os_str().is_empty() { String::new() } else { format!(" in {}", file.display()) };
        return Err(usage(format!(
            "no program is named; use --high and --low, or write [[rule]] tables with role = \"high\" and role = \"low\"{file}"
        )));
    }
    if metrics.len() > 1 {
        return Err(usage(
            "--metric is given several times, and programs are named by rules; write metric = … in each rule",
        ));
    }
    let mut taken = BTreeSet::new();
    let mut cast = Cast::default();
    for rule in rules {
        let metric = match &rule.metric {
            Some(text) => args::speed(text).map_err(|why| usage(format!("{}: metric: {why}", rule.at)))?,
            None => metrics.first().cloned().unwrap_or_default(),
        };
        let Some(target) = target(&rule, &mut taken, all_users)? else {
            cast.notes.push(format!("{}: the rule {} matches nobody who runs now", rule.at, rule.name));
            continue;
        };
        let program = AppSpec::new(rule.name, What::Running(target));
        match rule.role {
            Role::High => {
                cast.high.push(program);
                cast.metrics.push(metric);
            }
            Role::Low => cast.low.push(program),
        }
    }
    let missing = match (cast.high.is_empty(), cast.low.is_empty()) {
        (true, _) => "role = \"high\", whose speed is to be kept",
        (_, true) => "role = \"low\", who may nap for it",
        _ => return Ok(cast),
    };
    Err(usage(format!(
        "{}: no rule with {missing}, matches anybody who runs now; start it first, or use --high and --low",
        file.display()
    )))
}

/// The present programs of a rule; `None` without any.
fn target(rule: &RoleRule, taken: &mut BTreeSet<u32>, all_users: bool) -> Result<Option<Target>> {
    Ok(match &rule.matches {
        Matches::Cgroup(path) => {
            // Low-priority programs may start later.
            let target = Target::Cgroup(path.clone());
            let there = path.join("cgroup.procs").exists() && (rule.role == Role::Low || !target.pids().is_empty());
            there.then_some(target)
        }
        Matches::Executable(wanted) => {
            let mut pids = processes(all_users).context("/proc")?;
            pids.retain(|pid| executes(*pid, wanted) && taken.insert(*pid));
            (!pids.is_empty()).then_some(Target::Trees(pids))
        }
    })
}

/// Processes that may be managed, by id.
fn processes(all_users: bool) -> io::Result<Vec<u32>> {
    let me = std::process::id();
    let of = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let ours = all_users || entry.metadata().is_ok_and(|meta| meta.uid() == sys::euid());
        (pid != me && ours).then_some(pid)
    };
    Ok(fs::read_dir("/proc")?.flatten().filter_map(of).collect())
}

/// Whether a process has a program of that path or base name, including replaced and removed files.
fn executes(pid: u32, wanted: &str) -> bool {
    let Ok(path) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    is_it(&path, wanted)
}

fn is_it(path: &Path, wanted: &str) -> bool {
    let path = path.to_string_lossy();
    let path = PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(&path));
    if wanted.contains('/') { path == Path::new(wanted) } else { path.file_name().is_some_and(|name| name == wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds qos/rules.
    #[test]
    fn executables_are_told_by_path_or_base_name() {
        for (path, wanted, is) in [
            ("/usr/bin/redis-server", "redis-server", true),
            ("/usr/bin/redis-server", "/usr/bin/redis-server", true),
            ("/opt/bin/redis-server", "/usr/bin/redis-server", false),
            ("/usr/bin/redis-server (deleted)", "redis-server", true),
            ("/usr/bin/redis-server2", "redis-server", false),
        ] {
            assert_eq!(is_it(Path::new(path), wanted), is, "{path} {wanted}");
        }
        let this = std::env::current_exe().unwrap();
        assert!(executes(std::process::id(), &this.to_string_lossy()));
    }
}
