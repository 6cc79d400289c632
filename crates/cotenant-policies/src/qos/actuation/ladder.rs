//! Naps first. If these are not obeyed or miss the goal, limits of CPU time. If hardly any CPU time is left, or it
//! cannot be limited, limits of cache ways and memory bandwidth.

use super::Named;
use super::step::Step;
use crate::qos::phase::{Phase, Why};
use crate::qos::settings::{Limits, QosConfig};
use cotenant_model::policy::Ctx;
use cotenant_model::{Action, ActionOutcome, AppId, Outcome, Signal, Time, View};
use serde::{Deserialize, Serialize};

/// Refused naps in a row that end the use of naps.
const REFUSED: u32 = 3;

/// Seconds over which obedience to naps is checked.
const WINDOW_S: f64 = 3.0;

/// Windows in a row without obedience that end the use of naps.
const WINDOWS: u32 = 2;

/// Programs that slept for less than this fraction of the ordered time do not obey.
const SLEPT: f64 = 0.5;

/// A window with naps for less than this fraction of time is inconclusive.
const ASKED: f64 = 0.05;

/// Seconds of missing the goal at the least duty until limits are tried.
const MISSED_S: f64 = 3.0;

/// A duty up to this many times the least duty counts as the least.
const ABOUT: f64 = 1.2;

/// Up to this many thousandths of all CPUs, cache ways and bandwidth are limited too, because CPU time can hardly be
/// reduced further.
pub(in crate::qos) const LAST: u32 = 100;

/// Whether naps or limits are in use, and the evidence against them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct Ladder {
    /// Why limits are in use; `None`: naps are.
    climbed: Option<Climbed>,
    /// Limits were refused: only naps remain.
    stuck: bool,
    /// Whether limits of CPU time were refused.
    #[serde(default)]
    no_cpu: bool,
    /// Whether limits of cache ways and memory bandwidth were refused.
    #[serde(default)]
    no_caches: bool,
    /// Refused naps in a row.
    refused: u32,
    /// Of this window: its seconds, the seconds in which the programs should run, and the CPU seconds of their threads.
    window: [f64; 3],
    /// Threads that ran in it.
    threads: usize,
    /// Windows in a row in which they ran for too long.
    disobeyed: u32,
    /// Seconds of missing the goal at the least duty.
    missed_s: f64,
    /// Whether the background was refused for all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_background: bool,
}

/// Why naps were replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Climbed {
    /// They were refused.
    Refused,
    /// Programs ran for longer than ordered.
    Disobeyed,
    /// They missed the goal.
    Missed,
}

impl Climbed {
    /// Its name in JSON.
    pub(in crate::qos) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Disobeyed => "disobeyed",
            Self::Missed => "missed",
        }
    }

    /// Its text.
    pub(in crate::qos) fn text(self) -> &'static str {
        match self {
            Self::Refused => "naps were refused",
            Self::Disobeyed => "naps were not obeyed",
            Self::Missed => "naps did not keep the goal",
        }
    }
}

impl Ladder {
    /// Why a step is not by the mildest means.
    pub(in crate::qos) fn reason(&self, step: Step) -> Option<String> {
        match step {
            Step::Limit(Some(_)) | Step::Caches(Some(_)) => {
                self.climbed.map(|climbed| format!("limits, since {}", climbed.text()))
            }
            Step::Limit(None) | Step::Caches(None) if self.stuck => Some("limits were refused".to_owned()),
            Step::Limit(None) if self.no_cpu => Some("limits of CPU time were refused".to_owned()),
            Step::Caches(None) if self.no_caches => Some("limits of caches were refused".to_owned()),
            _ => None,
        }
    }

    /// Whether limits are in use instead of naps.
    pub fn limits(&self) -> bool {
        self.climbed.is_some()
    }

    /// The kinds of a limit of this share of all CPUs, in thousandths: CPU time; and cache ways with memory bandwidth.
    /// The latter alone if the user chose it, or if CPU time cannot be limited; otherwise additionally as the last
    /// step.
    pub(in crate::qos) fn kinds(&self, config: &QosConfig, permille: Option<u32>) -> [Option<u32>; 2] {
        let alone = config.limits == Some(Limits::Caches) || self.no_cpu && config.climb;
        let caches = alone || config.climb && !self.no_caches && permille.is_some_and(|permille| permille <= LAST);
        [permille.filter(|_| !alone), permille.filter(|_| caches)]
    }

    /// Whether low-priority programs can be put into a background class.
    pub(in crate::qos) fn has_background(&self, config: &QosConfig) -> bool {
        config.climb && !self.no_background
    }

    /// Why naps were replaced, if they were.
    pub fn climbed(&self) -> Option<Climbed> {
        self.climbed
    }

    /// Records obedience to orders, and climbs if it is poor.
    pub(in crate::qos) fn note(
        &mut self,
        ctx: &Ctx<'_>,
        config: &QosConfig,
        view: &View,
        results: &[ActionOutcome],
        phase: Option<Phase>,
        named: &Named,
    ) {
        let refused = |result: &ActionOutcome| matches!(result.outcome, Outcome::Denied | Outcome::NotThisMachine);
        let background = |result: &&ActionOutcome| matches!(result.action, Action::Background { on: true, .. });
        let mut background = results.iter().filter(background).peekable();
        if background.peek().is_some() {
            self.no_background = background.all(refused);
        }
        let (true, Some(least), Some(phase)) = (config.climb && !self.stuck, config.controller.least_duty(), phase)
        else {
            return;
        };
        if self.limits() {
            for result in results.iter().filter(|result| refused(result)) {
                self.no_cpu |= matches!(result.action, Action::Limit { cpu_permille: Some(_), .. });
                self.no_caches |= matches!(result.action, Action::LimitCaches { permille: Some(_), .. });
            }
            if self.no_cpu && self.no_caches {
                *self = Self { stuck: true, no_background: self.no_background, ..Self::default() };
            }
            return;
        }
        let ordered = Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64));
        let naps = |result: &&ActionOutcome| matches!(result.action, Action::Nap { until, .. } if until > ordered);
        for result in results.iter().filter(naps) {
            self.refused = if refused(result) { self.refused + 1 } else { 0 };
        }
        let kept_badly = matches!(phase.why, Why::Contention | Why::Decrease | Why::Waits | Why::Between);
        if phase.duty > least * ABOUT {
            self.missed_s = 0.0;
        } else if phase.duty > 0.0 && kept_badly {
            self.missed_s += view.interval.as_secs_f64();
        }
        self.watch(ctx, config, view, phase, named);
        self.climbed = match () {
            () if self.refused >= REFUSED => Some(Climbed::Refused),
            () if self.disobeyed >= WINDOWS => Some(Climbed::Disobeyed),
            () if self.missed_s >= MISSED_S => Some(Climbed::Missed),
            () => None,
        };
    }

    /// Compares the programs' behaviour with the orders.
    fn watch(&mut self, ctx: &Ctx<'_>, config: &QosConfig, view: &View, phase: Phase, named: &Named) {
        let seconds = view.interval.as_secs_f64();
        self.window[0] += seconds;
        self.window[1] += seconds * phase.duty;
        let obeys = |app: AppId| config.low.contains(&app) && named.throttles(app, &phase);
        let low = view.tasks.iter().filter(|task| obeys(task.info.app));
        let ran: Vec<f64> = low.filter_map(|task| task.per_s(Signal::CpuTime)).filter(|rate| *rate > 0.0).collect();
        self.window[2] += ran.iter().sum::<f64>() * seconds / 1e9;
        self.threads = self.threads.max(ran.len());
        let [all, asked, cpu_s] = self.window;
        if all < WINDOW_S {
            return;
        }
        // Not every round looks at threads: a window ends with one that does.
        if ran.is_empty() && self.threads > 0 && all < 2.0 * WINDOW_S {
            return;
        }
        let threads = self.threads.min(ctx.topology.usable().len()) as f64;
        let (slept, wanted) = (threads * all - cpu_s, threads * (all - asked));
        let disobeyed = wanted >= ASKED * threads * all && slept < SLEPT * wanted;
        self.disobeyed = if disobeyed { self.disobeyed + 1 } else { 0 };
        (self.window, self.threads) = ([0.0; 3], 0);
    }
}
