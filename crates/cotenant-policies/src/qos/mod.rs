//! `qos`: keeps high-priority programs at their goal by throttling low-priority ones.
//!
//! ```text
//!   view ──▶ measurement ──▶ Seen ──▶ controller ──▶ Phase ──▶ actuation ──▶ proposals
//!            how fast in              a state machine          naps, limits,
//!            this phase?              over phases              background, places
//! ```
//!
//! The three only share the words between them ([`phase`]) and the [settings]. [`QosState`] is the clock: it decides
//! when a phase ends, and when to look next.

mod actuation;
pub mod controller;
mod explain;
mod measurement;
pub mod phase;
mod settings;
mod state;

use actuation::step::Step;
pub use actuation::{Away, Climbed, Ladder};
use controller::Controller;
use cotenant_model::policy::{Ctx, Explanation, Needs, Policy, Refusal};
use cotenant_model::speed::Source;
use cotenant_model::{ActionOutcome, AppId, Decision, Proposal, Time, View};
pub use measurement::QosSums;
pub use settings::{High, Limits, QosConfig};
pub use state::QosState;
use std::time::Duration;

/// The policy.
#[derive(Clone, Debug)]
pub struct Qos(pub Option<QosConfig>);

impl Policy for Qos {
    const SECTION: &'static str = "qos";
    type State = QosState;
    type Settings = Option<QosConfig>;

    /// It decides many times a second if naps alternate, by reported or queried progress, or by counters of their
    /// threads.
    fn needs(&self) -> Needs {
        let counted = |config: &QosConfig| config.high.iter().any(|high| high.metric == Source::Ipc);
        Needs { glances: true, counts: self.0.as_ref().is_some_and(counted), ..Needs::default() }
    }

    fn check(&self, _: &Ctx<'_>) -> Result<(), Refusal> {
        let refuse = |why: &str, remedy: &str| Err(Refusal::new("qos", why, remedy));
        let Some(config) = &self.0 else {
            return refuse("no program is named as high priority", "use 'cotenant qos'");
        };
        let windowed = config.high.iter().any(|high| !matches!(high.metric, Source::Ipc | Source::Progress));
        let steady = matches!(config.controller, Controller::Steady(_));
        match () {
            () if config.high.is_empty() => refuse("no program is of high priority", "name one with --high"),
            () if windowed && !steady => refuse(
                "latencies and metrics from outside tell of longer times than this controller's phases",
                "use --controller steady",
            ),
            () if !windowed && steady => refuse(
                "this controller waits for readings of latencies or of a metric from outside",
                "use --controller tracking",
            ),
            () if config.limits.is_some() && config.controller.least_duty().is_none() => refuse(
                "limits of CPU time keep a duty, and this controller wants naps",
                "use --controller tracking, or steady for latencies and metrics from outside",
            ),
            () => Ok(()),
        }
    }

    fn explain(&self, state: &QosState) -> Explanation {
        self.0.as_ref().map_or_else(Explanation::default, |config| state.explain(config))
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        results: &[ActionOutcome],
        mut state: QosState,
        now: Time,
    ) -> Decision<QosState> {
        let (mut proposals, mut notes) = (Vec::new(), Vec::new());
        let mut wake_at = now + ctx.config.interval;
        if let Some(config) = &self.0 {
            let present = |app: AppId| view.apps.iter().any(|a| a.id == app);
            let low: Vec<AppId> = config.low.iter().copied().filter(|app| present(*app)).collect();
            let needed = config.high.iter().any(|high| present(high.app)) && !low.is_empty();
            state.ladder.note(ctx, config, view, results, state.phase, &state.named);
            let before = state.silent.clone();
            let new = if needed { state.go_on(config, view, ctx.topology, now) } else { state.let_go() };
            notes = state.silences(config, view, &before);
            let steps = state.steps(config, new, now);
            if config.place {
                let phase = state.phase.map(|phase| (phase, state.began));
                proposals.extend(state.away.proposals(ctx, config, view, phase, now));
            }
            for app in low {
                let steps = steps.iter().filter_map(|step| state.named.step(*step, app, state.phase));
                let propose = |step: Step| Proposal { action: step.of(app, ctx), reason: state.reason(config, step) };
                proposals.extend(steps.map(propose));
            }
            wake_at = wake_at.min(state.next(config, now)).max(now + Duration::from_micros(100));
        }
        Decision { watch_until: state.trial_ends(), ..Decision::new(proposals, state, wake_at, notes) }
    }
}

#[cfg(test)]
mod tests;
