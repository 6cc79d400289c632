//! Acting: one actuator per effect.

pub mod caches;
pub mod cpu_time;
pub mod nap;
pub mod pages;
pub mod pause;
pub mod placement;
