//! Reports: recordings and results as one page with tables and figures.

mod commands;
pub mod figure;
pub mod page;
pub mod recording;
pub mod regions;
pub mod result;
mod stay;
