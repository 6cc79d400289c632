//! Undoing: what is changed is journaled before it is changed, and undone however Cotenant ends.
//!
//! Actuators come in through [`Journal`] alone. A [`Table`] of their effects says what there is to undo, and in which
//! order.

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
