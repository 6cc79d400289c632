//! Files and messages that others write, as functions of text: what `cotenant-fuzz` reaches of this crate. A panic is
//! a bug.

use crate::cmd::bench::file::Spec;
use crate::cmd::schedule::jobs;
use crate::report::{regions, result};
use cotenant_setup::{args, settings, store, units};
use std::hint::black_box;
use std::path::Path;

/// The settings file.
pub fn settings(text: &str) {
    drop(settings::parse_file(Path::new("config.toml"), text));
}

/// What `bench` runs.
pub fn bench(text: &str) {
    let _ = black_box([false, true].map(|here| Spec::parse(text, here)));
}

/// A queue of jobs, as a list and as TOML.
pub fn jobs(text: &str) {
    for path in ["list", "queue.toml"] {
        drop(black_box(jobs::parse(Path::new(path), text)));
    }
}

/// What stands behind `report`: results in JSON, and regions.
pub fn report(text: &str) {
    drop(black_box(result::sections("title", text)));
    let _ = black_box((regions::is_regions(text), regions::parse(text)));
}

/// What stands on a command line: figures with units, and what tells a speed.
pub fn figures(text: &str) {
    let _ = black_box((units::interval(text), units::collector_budget(text), units::bytes(text), units::share(text)));
    if let Ok(metric) = args::speed(text) {
        let _ = black_box((metric.name(), metric.every(), metric.patience(10)));
    }
}

/// The name of a file of the store. A name that is read is written so that it reads as the same.
///
/// # Panics
/// Where it reads as another one.
pub fn file_name(name: &str) {
    if let Some(key) = store::key_of(Path::new(name)) {
        assert_eq!(store::key_of(Path::new(&format!("{}.toml", store::file_name(&key)))), Some(key));
    }
}
