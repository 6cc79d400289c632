//! The programs of a run.

use cotenant_linux::host::{AppSpec, What};
use cotenant_linux::sense::processes::Target;
use cotenant_model::text::within;
use cotenant_setup::args::MetricArg;
use cotenant_setup::unnamed;
use std::collections::{BTreeMap, BTreeSet};

/// Characters of a command line that distinguish programs with the same name.
const LINE: usize = 40;

/// The programs of a run: protected ones, and those that give way.
#[derive(Debug, Default)]
pub(super) struct Cast {
    pub high: Vec<AppSpec>,
    pub low: Vec<AppSpec>,
    /// One for each program of high priority.
    pub metrics: Vec<MetricArg>,
    /// The goals of the rules that name them; none where options do.
    pub goals: Vec<f64>,
    /// Notes on rules that match no program.
    pub notes: Vec<String>,
}

/// The present processes of a program.
pub(super) fn pids(app: &AppSpec) -> Vec<u32> {
    match &app.what {
        What::Running(target) => target.pids(),
        What::Command(_) => Vec::new(),
    }
}

/// The source of the speed of a program for which none is named. `bpf`: whether BPF may see its clients.
pub(super) fn unnamed_metric(app: &AppSpec, bpf: bool, notes: &mut Vec<String>) -> MetricArg {
    let pids = pids(app);
    if !bpf || pids.is_empty() {
        return MetricArg::default();
    }
    let (metric, note) = unnamed::metric(&app.name, &pids, |source| format!("--metric {source}"));
    notes.extend(note);
    metric
}

impl Cast {
    /// Names programs with the same class and name by their differences: command lines, processes, folders; otherwise
    /// their place. A namesake in the other class gets its class before its name. Returns each renamed one with its
    /// previous name.
    pub fn tell_apart(&mut self) -> Vec<(String, String)> {
        let names = |cast: &Self| cast.high.iter().chain(&cast.low).map(|app| app.name.clone()).collect::<Vec<_>>();
        let before = names(self);
        for apps in [&mut self.high, &mut self.low] {
            rename(apps, |app, _| distinct(app));
            rename(apps, |app, place| format!("{} #{place}", app.name));
        }
        let high: BTreeSet<String> = self.high.iter().map(|app| app.name.clone()).collect();
        let both: BTreeSet<String> =
            self.low.iter().map(|app| app.name.clone()).filter(|it| high.contains(it)).collect();
        for (class, apps) in [("high", &mut self.high), ("low", &mut self.low)] {
            for app in apps.iter_mut().filter(|app| both.contains(&app.name)) {
                app.name = with_class(class, &app.name);
            }
        }
        before.into_iter().zip(names(self)).filter(|(before, now)| before != now).collect()
    }
}

/// A program with its class, once.
pub(super) fn with_class(class: &str, name: &str) -> String {
    if name.strip_prefix(class).is_some_and(|rest| rest.starts_with(' ')) {
        name.to_owned()
    } else {
        format!("{class} {name}")
    }
}

fn distinct(app: &AppSpec) -> String {
    let text = match &app.what {
        What::Command(command) => {
            command.get_args().nth(1).map_or_else(|| app.name.clone(), |line| line.to_string_lossy().trim().to_owned())
        }
        What::Running(Target::Cgroup(path)) => path.display().to_string(),
        What::Running(Target::Pids(pids) | Target::Trees(pids)) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("{} ({})", app.name, pids.join(", "))
        }
    };
    within(&text, LINE).into_owned()
}

/// Renames programs with the same name; `name` gets their place, from 1.
fn rename(apps: &mut [AppSpec], name: impl Fn(&AppSpec, usize) -> String) {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for app in apps.iter() {
        *count.entry(app.name.clone()).or_default() += 1;
    }
    for (place, app) in (1..).zip(apps) {
        if count.get(&app.name).is_some_and(|count| *count > 1) {
            app.name = name(app, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn programs_of_one_name_are_told_apart() {
        let apps = |lines: &[&str]| {
            let of = |line: &&str| {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", line]);
                AppSpec::command(line.split(' ').next().unwrap().to_owned(), command)
            };
            lines.iter().map(of).collect::<Vec<_>>()
        };
        let names = |high: &[&str], low: &[&str]| {
            let mut cast = Cast { high: apps(high), low: apps(low), ..Cast::default() };
            cast.tell_apart();
            cast.high.iter().chain(&cast.low).map(|app| app.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["sleep 5"], &["sleep 9"]), ["high sleep", "low sleep"]);
        assert_eq!(names(&["sleep 5"], &["sleep 8", "sleep 9", "xz"]), ["sleep", "sleep 8", "sleep 9", "xz"]);
        assert_eq!(names(&["xz", "gzip"], &["xz"]), ["high xz", "gzip", "low xz"]);
        assert_eq!([with_class("low", "low xz"), with_class("low", "lower")], ["low xz", "low lower"]);
        assert_eq!(names(&["a"], &["sleep 5", "sleep 5"]), ["a", "sleep 5 #1", "sleep 5 #2"]);
    }
}
