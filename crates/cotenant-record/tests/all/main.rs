//! The integration tests of recordings.

mod examiner;
mod golden_recordings;
mod record;
mod replay;
mod rules;
mod why;
mod why_means;
