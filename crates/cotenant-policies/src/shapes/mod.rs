//! `shapes`: the best mapping, found by measurement. It needs only a speed for each application. See
//! `docs/policies/shapes.md`.
//!
//! ```text
//!         no task has changed          measured               candidate in place
//!   Watch ──────────────────▶ Trace ───────────▶ choose ───────────────────────▶ Trial
//!     ▲                         ▲                 ▲  │ nothing left, or no budget  │ better: it stands from now on
//!     │                         │                 └──┼─────────────────────────────┘ else: the one before
//!     │                         └───── Rest ◀────────┤       Rest goes back to Trace where a speed has shifted, too
//!     │                                              │ something was kept, and memory may move
//!     │                                              └──────▶ Pages ──▶ choose
//!     └── threads or applications started or exited, or what they may use changed
//! ```
//!
//! `phases` runs a round with four parts, which change only their own fields and share only plain values:
//!
//! ```text
//!   shapes_situation   which threads take part, which applications report a speed, since when
//!   trialling          phase, incumbent, candidate on trial, budget: decides what is tried and kept
//!   shapes_memory      best shapes of programs of the past
//!   outgoing           orders, reasons, notes
//! ```

mod crossing;
mod guard;
#[cfg(test)]
mod known_tests;
mod learned;
mod learned_situation;
mod ledger;
#[cfg(test)]
mod limits_tests;
mod moves;
#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod null_tests;
mod order;
mod outgoing;
mod page_trial;
mod phases;
mod rest;
mod settings;
mod shape;
mod shape_board;
mod shapes_memory;
mod shapes_round;
mod shapes_situation;
mod slowest;
mod speed_meter;
mod steadiness;
mod still_memory;
#[cfg(test)]
mod tests;
mod trial;
mod trialling;

pub use phases::ShapesState;
pub use settings::{KnownGroup, KnownShape, Objective, ObjectiveError, ShapesSettings};

use super::sam::{Sam, SamConfig};
use cotenant_model::policy::{self, Ctx, Explanation, Needs, Policy};
use cotenant_model::{ActionOutcome, Decision, Outcome, Time, View};
use shapes_round::ShapesRound;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    settings: ShapesSettings,
    /// Its suggestions are tried too, if its signals are counted.
    sam: Option<Sam>,
}

impl Shapes {
    /// The policy with these settings.
    pub fn new(settings: ShapesSettings) -> Self {
        Self { settings, sam: None }
    }

    /// `auto`: moves suggested by `sam` are tried like any shape. By default `sam` is the recommended one.
    pub fn with_sam(settings: ShapesSettings, sam: SamConfig) -> Self {
        let sam = if sam == SamConfig::default() { SamConfig::recommended() } else { sam };
        Self { settings, sam: Some(Sam(sam)) }
    }
}

impl Policy for Shapes {
    const SECTION: &'static str = "shapes";
    type State = ShapesState;
    type Settings = ShapesSettings;

    fn name(&self) -> &'static str {
        if self.sam.is_some() { "auto" } else { Self::SECTION }
    }

    fn needs(&self) -> Needs {
        Needs { pages: true, proxies: true, exact: true, ..Needs::default() }
    }

    fn explain(&self, state: &ShapesState) -> Explanation {
        Explanation { trying: state.is_trying(), trial: state.last_tried().cloned(), ..Explanation::default() }
    }

    fn learned(&self, state: &ShapesState) -> Vec<policy::Learned> {
        let about = |groups: &Vec<KnownGroup>| serde_json::to_value(groups).unwrap_or_default();
        let lost = state.given_up().iter().map(|groups| policy::Learned { about: about(groups), value: None });
        let found = state
            .memory()
            .iter()
            .map(|found| policy::Learned { about: about(&found.groups), value: serde_json::to_value(found).ok() });
        lost.chain(found).collect()
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        state: ShapesState,
        now: Time,
    ) -> Decision<ShapesState> {
        let advises = outcomes.iter().any(|o| o.outcome == Outcome::NotThisMachine);
        let (settings, sam) = (&self.settings, self.sam.as_ref());
        state.decide(&ShapesRound { ctx, settings, sam, view, now, advises }, outcomes)
    }
}
