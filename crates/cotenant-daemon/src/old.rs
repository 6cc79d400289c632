//! The keys of rules that `cotenant qos` had in config.toml, in today's words. They are read until 0.2.0.

use crate::written::{Role, RuleText};
use anyhow::Result;
use cotenant_cli::usage;
use cotenant_setup::names;
use cotenant_status::class::Class;
use std::path::Path;
use toml::Spanned;

/// Gives a rule today's keys in place of those of before. The line that says how to write it; `None`: it has none.
///
/// # Errors
/// Old and new keys for the same setting, or two exclusive old ones.
pub(crate) fn renew(rule: &mut RuleText, place: &str) -> Result<Option<String>> {
    let (executable, cgroup, class) = (rule.executable.take(), rule.cgroup.take(), rule.role.take());
    let keys = [("executable", executable.is_some()), ("cgroup", cgroup.is_some()), ("role", class.is_some())];
    let keys: Vec<&str> = keys.into_iter().filter_map(|(key, is)| is.then_some(key)).collect();
    if keys.is_empty() {
        return Ok(None);
    }
    let of = &mut rule.matches;
    let has_match = of.unit.is_some() || of.cgroup.is_some() || of.command.is_some();
    if [executable.is_some(), cgroup.is_some(), has_match].into_iter().filter(|is| *is).count() > 1 {
        return Err(usage(format!("{place}: executable and cgroup are older names for match; keep match alone")));
    }
    let mut lines = Vec::new();
    if let Some(path) = executable.as_ref().or(cgroup.as_ref()).filter(|_| rule.name.is_empty()) {
        rule.name = names::base(Path::new(path.get_ref()));
        lines.push(format!("name = {:?}", rule.name));
    }
    if let Some(file) = executable {
        let file = renamed(&file, |path| path);
        lines.push(format!("match = {{ command = {:?} }}", file.get_ref()));
        of.command = Some(file);
    } else if let Some(folder) = cgroup {
        let group = renamed(&folder, |path| {
            let path = path.trim_end_matches('/');
            path.strip_prefix("/sys/fs/cgroup").filter(|path| path.starts_with('/')).unwrap_or(path)
        });
        let name = group.get_ref().rsplit('/').next().unwrap_or_default();
        if [".service", ".scope", ".slice"].iter().any(|kind| name.ends_with(kind)) {
            lines.push(format!("match = {{ unit = {name:?} }}"));
            of.unit = Some(Spanned::new(group.span(), name.to_owned()));
        } else {
            lines.push(format!("match = {{ cgroup = {:?} }}", group.get_ref()));
            of.cgroup = Some(group);
        }
    }
    if let Some(role) = class {
        rule.class = match role {
            Role::High => Class::High,
            Role::Low => Class::Low,
        };
        lines.push(format!("class = {:?}", rule.class.name()));
    }
    let (keys, lines) = (keys.join(" and "), lines.join("`, `"));
    Ok(Some(format!("{place}: {keys} of a rule will not be read from 0.2.0 on; write `{lines}` instead")))
}

/// Another text at the same place, in which nothing is a pattern.
fn renamed(text: &Spanned<String>, to: impl Fn(&str) -> &str) -> Spanned<String> {
    let new = globset::escape(to(text.get_ref()));
    Spanned::new(text.span(), new)
}
