//! `none`: leave everything to the kernel.

use cotenant_model::policy::{Ctx, NoSettings, Policy};
use cotenant_model::{ActionOutcome, Decision, Time, View};

/// Leaves everything to the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct None;

impl Policy for None {
    const SECTION: &'static str = "none";
    type State = ();
    type Settings = NoSettings;

    fn decide(&self, ctx: &Ctx<'_>, _: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        Decision::new(Vec::new(), (), now + ctx.config.interval, Vec::new())
    }
}
