//! The integration tests of chores.

mod guests;
mod tally;
