//! An order to all low-priority programs.

use cotenant_model::policy::Ctx;
use cotenant_model::{Action, AppId, Time};

/// An order to all low-priority programs.
#[derive(Clone, Copy, Debug)]
pub(in crate::qos) enum Step {
    Nap(Time),
    /// Thousandths of all CPUs.
    Limit(Option<u32>),
    Caches(Option<u32>),
    Background(bool),
}

impl Step {
    pub(in crate::qos) fn of(self, app: AppId, ctx: &Ctx<'_>) -> Action {
        match self {
            Self::Nap(until) => Action::Nap { app, until },
            Self::Limit(share) => {
                let cpus = ctx.topology.usable().len() as u32;
                Action::Limit { app, cpu_permille: share.map(|permille| (permille * cpus).max(1)) }
            }
            Self::Caches(permille) => Action::LimitCaches { app, permille },
            Self::Background(on) => Action::Background { app, on },
        }
    }
}
