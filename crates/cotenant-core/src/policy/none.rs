//! `none`: leave everything to the kernel.

use super::{Ctx, Policy, State};
use crate::action::{ActionOutcome, Decision};
use crate::ids::Time;
use crate::view::View;

/// Leaves everything to the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct None;

impl Policy for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn decide(&self, ctx: &Ctx<'_>, _: &View, _: &[ActionOutcome], state: State, now: Time) -> Decision {
        Decision { proposals: Vec::new(), state, wake_at: now + ctx.config.interval, notes: Vec::new() }
    }
}
