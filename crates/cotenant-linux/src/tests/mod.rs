//! Everything is undone: tests with real processes that are killed at every point.
//!
//! The test binary starts itself again in different roles ([`roles`]): a *subject* with threads to be placed, an
//! *applier* that places them, and the guardian that the applier starts.

mod agents;
mod background;
mod batches;
mod crash;
mod crowd;
mod keepers;
mod pauses;
mod roles;
mod roster;

pub(crate) use roles::{infos, journal, journals};
