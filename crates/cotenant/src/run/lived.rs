//! CPU time of each program's threads, and their waits for a CPU.

use cotenant_model::usage::Usage;
use cotenant_model::{AppId, Behind, Cause, Signal, View};
use serde::Serialize;
use std::collections::BTreeMap;

/// Below this average number of waiting threads there is no noticeable wait.
const HARDLY: f64 = 0.01;

/// Processes and threads that ended uncounted are mentioned from this share of the CPU time on.
const SHORT: f64 = 0.1;

/// Other programs below this many CPUs cannot explain a program's wait.
const LITTLE: f64 = 0.05;

/// Below these seconds a program was seen too briefly to know that it never waits.
const BRIEF_S: f64 = 1.0;

/// Sums over a run, by program.
#[derive(Debug, Default)]
pub(crate) struct Lived {
    times: BTreeMap<AppId, Times>,
    /// Seconds of waiting by the work that occupied the CPU meanwhile.
    behind: BTreeMap<AppId, BTreeMap<Cause, f64>>,
}

/// Seconds: of CPU time, of that of processes and threads that ended uncounted, of waiting for a CPU if counted, and of
/// the program's presence.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    cpu: f64,
    ended: f64,
    waited: Option<f64>,
    there: f64,
}

/// A program's CPU time and waits.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct AppTimes {
    pub name: String,
    /// CPU time per second of its presence.
    pub cpus: f64,
    /// Average number of threads that were ready to run without a CPU; absent if uncounted.
    pub waiting: Option<f64>,
    /// The work that occupied the CPU meanwhile, if BPF is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    /// Whether much of its CPU time is from processes and threads that ended uncounted, so that their waits are
    /// unknown.
    #[serde(skip)]
    short: bool,
    /// Whether it was seen for a moment only.
    #[serde(skip)]
    brief: bool,
}

impl Lived {
    pub fn add(&mut self, view: &View) {
        let seconds = view.interval.as_secs_f64();
        for app in &view.apps {
            let times = self.times.entry(app.id).or_default();
            times.there += seconds;
            times.ended += app.ended_cpus.unwrap_or_default() * seconds;
            if let Some(waiting) = &app.waits {
                let sums = self.behind.entry(app.id).or_default();
                for (cause, threads) in &waiting.behind {
                    *sums.entry(cause.clone()).or_default() += threads * waiting.seconds;
                }
            }
        }
        for task in &view.tasks {
            let Some(times) = self.times.get_mut(&task.info.app) else { continue };
            times.cpu += task.per_s(Signal::CpuTime).unwrap_or_default() / 1e9 * seconds;
            if let Some(ns_per_s) = task.per_s(Signal::RunQueueWait) {
                *times.waited.get_or_insert_default() += ns_per_s / 1e9 * seconds;
            }
        }
    }

    /// Its presence, seconds.
    pub fn there_s(&self, app: AppId) -> f64 {
        self.of(app).there
    }

    /// CPU time per second of its presence.
    pub fn cpus(&self, app: AppId) -> f64 {
        self.of(app).per_s(self.of(app).cpu + self.of(app).ended)
    }

    /// Average number of threads that were ready to run without a CPU.
    pub fn waiting(&self, app: AppId) -> Option<f64> {
        self.of(app).waited.map(|seconds| self.of(app).per_s(seconds))
    }

    /// The work that occupied the CPU meanwhile, most first; empty if unobserved. `names`: of programs.
    pub fn behind(&self, app: AppId, names: &[String]) -> Vec<Behind> {
        let Some(sums) = self.behind.get(&app) else { return Vec::new() };
        let all: f64 = sums.values().sum();
        // The causes may be observed for a part of the time only.
        let threads = self.waiting(app).unwrap_or_default() / all.max(f64::MIN_POSITIVE);
        let parts: Vec<_> = sums.iter().map(|(cause, seconds)| (cause.clone(), seconds * threads)).collect();
        Behind::all(&parts, app, |app| names.get(app.0 as usize).cloned())
    }

    /// CPUs needed by protected programs: those they use, and one more for the next request.
    pub fn wanted(&self, protected: impl IntoIterator<Item = AppId>) -> f64 {
        protected.into_iter().map(|app| self.cpus(app)).sum::<f64>() + 1.0
    }

    /// Of each program, with these names.
    pub fn each(&self, names: &[String]) -> Vec<AppTimes> {
        let of = |(i, name): (usize, &String)| {
            let app = AppId(i as u32);
            let cpus = (self.there_s(app) > 0.0).then(|| self.cpus(app))?;
            let short = self.of(app).ended > SHORT * (self.of(app).cpu + self.of(app).ended);
            let brief = self.there_s(app) < BRIEF_S;
            let (waiting, behind) = (self.waiting(app), self.behind(app, names));
            Some(AppTimes { name: name.clone(), cpus, waiting, behind, short, brief })
        };
        names.iter().enumerate().filter_map(of).collect()
    }

    fn of(&self, app: AppId) -> Times {
        self.times.get(&app).copied().unwrap_or_default()
    }
}

impl Times {
    fn per_s(self, seconds: f64) -> f64 {
        seconds / self.there.max(f64::MIN_POSITIVE)
    }
}

impl AppTimes {
    /// Whether its waits are those of all its threads.
    pub fn tells_waits(&self) -> bool {
        self.waiting.is_some() && !self.short
    }

    #[cfg(test)]
    pub fn for_test(name: &str, cpus: f64, waiting: Option<f64>, behind: Vec<Behind>) -> Self {
        Self { name: name.to_owned(), cpus, waiting, behind, short: false, brief: false }
    }

    /// `xz: 0.52 CPUs; 1.40 threads waited for a CPU; meanwhile 1.5 of 2 CPUs by other programs: rustc 1.5`
    pub fn line(&self, others: Option<&Usage>) -> String {
        let Self { name, cpus, waiting, behind, short, brief } = self;
        let but = if *short { ", not counting those that live for moments" } else { "" };
        let waits = match *waiting {
            None => String::new(),
            Some(threads) if threads < HARDLY && *short => {
                "; its processes live too short to know their waits".to_owned()
            }
            Some(threads) if threads < HARDLY && *brief => "; it was seen too briefly to know its waits".to_owned(),
            Some(threads) if threads < HARDLY => "; it had a CPU whenever it wanted one".to_owned(),
            Some(threads) if !behind.is_empty() => {
                format!("; {threads:.2} threads waited for a CPU{but}: {}", Behind::text(behind))
            }
            Some(threads) => {
                let behind = match others {
                    None => String::new(),
                    Some(others) if others.others + others.stolen < LITTLE => ", behind its own".to_owned(),
                    Some(others) => format!("; meanwhile {}", others.text()),
                };
                format!("; {threads:.2} threads waited for a CPU{but}{behind}")
            }
        };
        format!("{name}: {cpus:.2} CPUs{waits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds see/waits.
    #[test]
    fn it_is_said_what_a_program_waited_for() {
        let xz = AppTimes { name: "xz".to_owned(), cpus: 0.5, ..AppTimes::default() };
        let short = AppTimes { name: "sh".to_owned(), waiting: Some(0.0), short: true, ..xz.clone() };
        assert_eq!(short.line(None), "sh: 0.50 CPUs; its processes live too short to know their waits");
        let line = |waiting, others: f64| {
            let usage = Usage { seconds: 1.0, of_cpus: 2, others, ..Usage::default() };
            AppTimes { waiting, ..xz.clone() }.line(Some(&usage))
        };
        assert_eq!(line(None, 1.0), "xz: 0.50 CPUs");
        assert_eq!(line(Some(0.001), 1.0), "xz: 0.50 CPUs; it had a CPU whenever it wanted one");
        let brief = AppTimes { waiting: Some(0.001), brief: true, ..xz.clone() };
        assert_eq!(brief.line(None), "xz: 0.50 CPUs; it was seen too briefly to know its waits");
        assert_eq!(line(Some(1.4), 0.01), "xz: 0.50 CPUs; 1.40 threads waited for a CPU, behind its own");
        let behind = vec![Behind { what: "rustc".to_owned(), threads: 1.3, ..Behind::default() }];
        let known = AppTimes { waiting: Some(1.4), behind, ..xz.clone() };
        assert_eq!(known.line(None), "xz: 0.50 CPUs; 1.40 threads waited for a CPU: 1.30 behind rustc");
        assert_eq!(
            line(Some(1.4), 1.5),
            "xz: 0.50 CPUs; 1.40 threads waited for a CPU; meanwhile 1.5 of 2 CPUs by other programs: none of them can be seen here"
        );
    }
}
