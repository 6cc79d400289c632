//! `none`: leave everything to the kernel.

use cotenant_model::action::{ActionOutcome, Decision};
use cotenant_model::ids::Time;
use cotenant_model::policy::settings::NoSettings;
use cotenant_model::policy::{Ctx, Policy};
use cotenant_model::view::View;

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
