//! The requirements of a run, assembled from the command line, the user's files, and the knowledge of earlier runs.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod args;
pub mod calibrated;
pub mod dates;
pub mod files;
pub mod known;
pub mod names;
pub mod protect;
pub mod registry;
pub mod replace;
pub mod settings;
pub mod store;
pub mod units;
pub mod unnamed;
