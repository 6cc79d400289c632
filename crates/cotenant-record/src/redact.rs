//! Removes names from recordings: tasks become `task-ID`, applications `app-ID`.

use super::Header;
use super::row::finite;
use cotenant_model::policy::{Policy, State};
use cotenant_model::profile::AppProfile;
use cotenant_model::usage::{Program, Seen, Usage};
use cotenant_model::{AppSample, TaskInfo};
use cotenant_policies::Shapes;
use serde_json::Value;
use std::collections::BTreeMap;

/// Replaces names, and keeps them to find them in remarks.
#[derive(Debug, Default)]
pub struct Redactor {
    /// The replacement of each name.
    names: BTreeMap<String, String>,
    /// Names of profiles and of rules' applications, which keep matching.
    profiles: BTreeMap<String, String>,
}

impl Redactor {
    /// The redactor of a recording; the header loses its command and free texts, and profiles become `profile-N`.
    pub fn new(header: &mut Header) -> Self {
        let mut redactor = Self::default();
        let named = |(i, (name, profile)): (usize, (String, AppProfile))| {
            let replaced = format!("profile-{i:04}"); // zeros keep the order of the names
            redactor.profiles.insert(name, replaced.clone());
            (replaced, profile)
        };
        header.apps = std::mem::take(&mut header.apps).into_iter().enumerate().map(named).collect();
        for apps in header.rules.iter_mut().filter_map(|rule| rule.owns.apps.as_mut()) {
            let named = |(i, name): (usize, String)| {
                let next = format!("owned-{i:04}");
                redactor.profiles.entry(name).or_insert(next).clone()
            };
            *apps = std::mem::take(apps).into_iter().enumerate().map(named).collect();
        }
        redactor.names.clone_from(&redactor.profiles);
        // Remembered best placements may contain names of programs that do not run now.
        for settings in
            header.rules.iter_mut().map(|rule| &mut rule.config.settings).chain([&mut header.config.settings])
        {
            if settings.sections().any(|section| section == Shapes::SECTION) {
                settings.set(Shapes::SECTION, "known", Value::Array(Vec::new()));
            }
        }
        header.command.clear();
        header.machine.source = None;
        header.redacted = true;
        redactor
    }

    /// The task's description without its name.
    pub fn info(&mut self, info: &TaskInfo) -> TaskInfo {
        let comm = format!("task-{}", info.id);
        self.names.insert(info.comm.clone(), comm.clone());
        TaskInfo { comm, ..info.clone() }
    }

    /// The application without its name.
    pub fn app(&mut self, app: &AppSample) -> AppSample {
        let name = self.profiles.get(&app.name).cloned().unwrap_or_else(|| format!("app-{}", app.id));
        self.names.insert(app.name.clone(), name.clone());
        AppSample { name, ..finite(app) }
    }

    /// A policy's state with every known name in its texts replaced.
    pub fn state(&self, state: &State) -> State {
        let json = serde_json::to_value(state).map(|json| self.value(json));
        json.and_then(serde_json::from_value).unwrap_or_default()
    }

    fn value(&self, json: Value) -> Value {
        match json {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.value(value)).collect(),
            Value::Object(map) => map.into_iter().map(|(key, value)| (key, self.value(value))).collect(),
            other => other,
        }
    }

    /// A remark with every known name replaced as a whole word.
    pub fn text(&self, text: &str) -> String {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let mut rest = text;
        let mut out = String::with_capacity(text.len());
        'text: while let Some(first) = rest.chars().next() {
            if !out.chars().next_back().is_some_and(word) {
                // The longest name first, so that `web` does not split `web server`.
                let fits = |name: &&String| rest.starts_with(name.as_str()) && !rest[name.len()..].starts_with(word);
                if let Some(name) = self.names.keys().filter(|n| !n.is_empty()).filter(fits).max_by_key(|n| n.len()) {
                    out.push_str(&self.names[name]);
                    rest = &rest[name.len()..];
                    continue 'text;
                }
            }
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
        out
    }
}

/// Usage of the machine, with programs as `program-N` and without their control groups.
pub fn usage(seen: &Seen) -> Seen {
    let nameless = |(i, program): (usize, &Program)| Program {
        program: format!("program-{i}"),
        cgroup: String::new(),
        cpus: program.cpus,
        waiting: program.waiting,
    };
    let of =
        |usage: &Usage| Usage { programs: usage.programs.iter().enumerate().map(nameless).collect(), ..usage.clone() };
    Seen { before: seen.before.as_ref().map(of), during: seen.during.as_ref().map(of) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::ids::{AppId, TaskId};
    use serde_json::json;

    #[test]
    fn names_go_where_they_stand_as_words() {
        let mut redactor = Redactor::default();
        redactor.info(&TaskInfo { id: TaskId(4), comm: "web".into(), ..TaskInfo::default() });
        redactor.app(&AppSample { id: AppId(2), name: "web server".into(), ..AppSample::default() });
        assert_eq!(redactor.text("web server: cobweb, web; web-fs (web)"), "app-2: cobweb, task-4; web-fs (task-4)");
        assert_eq!(redactor.text(""), "");
    }

    #[test]
    fn names_are_replaced_in_what_policies_remember() {
        let mut redactor = Redactor::default();
        redactor.app(&AppSample { name: "secret".to_owned(), ..AppSample::default() });
        let state = State::json("shapes", json!({ "why": "tried: secret 2+0", "n": 3, "groups": [["secret", 2]] }));
        let redacted = serde_json::to_value(redactor.state(&state)).unwrap();
        let expected = json!({ "shapes": { "why": "tried: app-0 2+0", "n": 3, "groups": [["app-0", 2]] } });
        assert_eq!(redacted, expected);
    }
}
