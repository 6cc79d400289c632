//! Undoing: what is changed is journaled before it is changed, and undone however Cotenant ends.

pub mod book;
pub mod claims;
pub mod guardian;
pub mod journal;
pub mod restore;
