//! `none`: leave everything to the kernel.

use super::settings::NoSettings;
use super::{Ctx, Policy};
use crate::action::{ActionOutcome, Decision};
use crate::ids::Time;
use crate::view::View;

/// Leaves everything to the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct None;

impl Policy for None {
    const SECTION: &'static str = "none";
    type State = ();
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "none"
    }

    fn decide(&self, ctx: &Ctx<'_>, _: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        Decision::new(Vec::new(), (), now + ctx.config.interval, Vec::new())
    }
}
