//! The displayed state of services and of the machine, as plain values, and the page that draws it in a browser.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod class;
pub mod goals;
pub mod history;
pub mod hurts;
pub mod identity;
mod latency;
mod level;
pub mod page;
pub mod picture;
pub mod plots;
pub mod quantities;
pub mod speeds;
pub mod status;
pub mod values;
pub mod verdict;
pub mod watch;
