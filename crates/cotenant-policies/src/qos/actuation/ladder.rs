//! Naps first. Where these are not obeyed or do not keep the goal, limits of CPU time; where hardly any CPU time is
//! left, or it cannot be limited, limits of cache ways and memory bandwidth.

use super::step::Step;
use crate::qos::phase::{Phase, Why};
use crate::qos::settings::{Limits, QosConfig};
use cotenant_model::policy::Ctx;
use cotenant_model::{Action, ActionOutcome, Outcome, Signal, Time, View};
use serde::{Deserialize, Serialize};

/// Refused naps in a row after which naps are given up.
const REFUSED: u32 = 3;

/// Seconds over which programs are checked for obeying naps.
const WINDOW_S: f64 = 3.0;

/// Windows in a row without obedience after which naps are given up.
const WINDOWS: u32 = 2;

/// Programs that slept for less than this part of what was ordered do not obey.
const SLEPT: f64 = 0.5;

/// A window with naps for less than this share of the time tells nothing.
const ASKED: f64 = 0.05;

/// Seconds for which the goal is missed at the least duty before limits are tried.
const MISSED_S: f64 = 3.0;

/// A duty up to this many times the least duty counts as the least.
const ABOUT: f64 = 1.2;

/// Up to this many thousandths of all CPUs, cache ways and bandwidth are limited as well: a program can hardly have
/// less CPU time.
pub(in crate::qos) const LAST: u32 = 100;

/// Whether naps or limits are in force, and what speaks against them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct Ladder {
    /// Why limits are in force; `None`: naps are.
    climbed: Option<Climbed>,
    /// Limits were refused: only naps are left.
    stuck: bool,
    /// Whether limits of CPU time were refused.
    #[serde(default)]
    no_cpu: bool,
    /// Whether limits of cache ways and memory bandwidth were refused.
    #[serde(default)]
    no_caches: bool,
    /// Naps in a row that were refused.
    refused: u32,
    /// Of this window: its seconds, for how many of them the programs were to run, and the CPU time of their threads,
    /// seconds.
    window: [f64; 3],
    /// Threads that ran in it.
    threads: usize,
    /// Windows in a row in which they ran for too long.
    disobeyed: u32,
    /// Seconds of missing the goal at the least duty.
    missed_s: f64,
    /// Whether the background was refused to all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_background: bool,
}

/// Why naps were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Climbed {
    /// They were refused.
    Refused,
    /// Programs ran for longer than they were to.
    Disobeyed,
    /// They did not keep the goal.
    Missed,
}

impl Climbed {
    /// As JSON has it.
    pub(in crate::qos) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Disobeyed => "disobeyed",
            Self::Missed => "missed",
        }
    }

    /// As people read it.
    pub(in crate::qos) fn text(self) -> &'static str {
        match self {
            Self::Refused => "naps were refused",
            Self::Disobeyed => "naps were not obeyed",
            Self::Missed => "naps did not keep the goal",
        }
    }
}

impl Ladder {
    /// Why a step is not by the mildest means, where it is not.
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

    /// Whether limits are in force instead of naps.
    pub fn limits(&self) -> bool {
        self.climbed.is_some()
    }

    /// Of what a limit of this share of all CPUs, in thousandths, is: of CPU time; of cache ways and memory bandwidth,
    /// each `None` where not of that. The latter alone where the user wants that, or where CPU time cannot be limited;
    /// else besides, as the last rung.
    pub(in crate::qos) fn kinds(&self, config: &QosConfig, permille: Option<u32>) -> [Option<u32>; 2] {
        let alone = config.limits == Some(Limits::Caches) || self.no_cpu && config.climb;
        let caches = alone || config.climb && !self.no_caches && permille.is_some_and(|permille| permille <= LAST);
        [permille.filter(|_| !alone), permille.filter(|_| caches)]
    }

    /// Whether there is a background that low-priority programs can be in.
    pub(in crate::qos) fn has_background(&self, config: &QosConfig) -> bool {
        config.climb && !self.no_background
    }

    /// Why naps were given up, where they were.
    pub fn climbed(&self) -> Option<Climbed> {
        self.climbed
    }

    /// Notes how orders were obeyed, and climbs where they were obeyed badly.
    pub(in crate::qos) fn note(
        &mut self,
        ctx: &Ctx<'_>,
        config: &QosConfig,
        view: &View,
        results: &[ActionOutcome],
        phase: Option<Phase>,
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
        self.watch(ctx, config, view, phase);
        self.climbed = match () {
            () if self.refused >= REFUSED => Some(Climbed::Refused),
            () if self.disobeyed >= WINDOWS => Some(Climbed::Disobeyed),
            () if self.missed_s >= MISSED_S => Some(Climbed::Missed),
            () => None,
        };
    }

    /// Compares what the programs did with what was ordered.
    fn watch(&mut self, ctx: &Ctx<'_>, config: &QosConfig, view: &View, phase: Phase) {
        let seconds = view.interval.as_secs_f64();
        self.window[0] += seconds;
        self.window[1] += seconds * phase.duty;
        let low = view.tasks.iter().filter(|task| config.low.contains(&task.info.app));
        let ran: Vec<f64> = low.filter_map(|task| task.per_s(Signal::CpuTime)).filter(|rate| *rate > 0.0).collect();
        self.window[2] += ran.iter().sum::<f64>() * seconds / 1e9;
        self.threads = self.threads.max(ran.len());
        let [all, asked, cpu_s] = self.window;
        if all < WINDOW_S {
            return;
        }
        // Not every look is at the threads: a window ends with one that is.
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
