//! Undoing: each change is journaled before it is made, and undone after any end of Cotenant.
//!
//! Actuators use [`Journal`] alone. A [`Table`] of their effects lists the undoing of each and its order.

pub(crate) mod claims;
pub(crate) mod effects;
pub(crate) mod file;
mod guardian;
mod journal;
mod report;
mod restore;
mod state_dir;

pub use claims::{ClaimError, Claims};
pub use effects::{Effect, End, GRACE, Kind, Living, Record, Table, Undoer, end_of, end_word, is_due, number};
pub use guardian::{GuardianCommand, SUBCOMMAND, main as guard};
pub use journal::{Journal, JournalOptions};
pub use report::RestoreReport;
pub use restore::{restore, restore_by_force};
pub use state_dir::{Here, OpenError, append_own, default_state_dir, lock, open_dir, secure_dir};
