//! Files and messages from others, as functions of text, for `cotenant-fuzz`. A panic is a bug.

use crate::cmd::bench::file::Spec;
use crate::cmd::schedule::jobs;
use crate::report::page::html;
use crate::report::{recording, regions, result};
use cotenant_record::Recording;
use cotenant_setup::{args, settings, store, units};
use std::hint::black_box;
use std::path::Path;

/// The settings file.
pub fn settings(text: &str) {
    drop(settings::parse_file(Path::new("config.toml"), text));
}

/// The file of `bench`.
pub fn bench(text: &str) {
    let _ = black_box([false, true].map(|here| Spec::parse(text, here)));
}

/// A queue of jobs, as a list and as TOML.
pub fn jobs(text: &str) {
    for path in ["list", "queue.toml"] {
        drop(black_box(jobs::parse(Path::new(path), text)));
    }
}

/// Input of `report` besides recordings, as a page: results in JSON, and regions.
pub fn report(text: &str) {
    if let Ok(sections) = result::sections("title", text) {
        black_box(html("title", &sections));
    }
    let _ = black_box((regions::is_regions(text), regions::parse(text)));
}

/// A recording as `report` shows it.
pub fn report_of_recording(bytes: &[u8]) {
    let Ok(mut recording) = Recording::read(bytes) else { return };
    let header = recording.header().clone();
    if let Ok((section, _)) = recording::section("title".to_owned(), &header, &mut recording) {
        black_box(html("title", &[section]));
    }
}

/// Values on a command line: figures with units, and sources of a speed.
pub fn figures(text: &str) {
    let _ = black_box((units::duration(text), units::interval(text), units::collector_budget(text)));
    let _ = black_box((units::bytes(text), units::share(text), units::pid(text)));
    if let Ok(metric) = args::speed(text) {
        let _ = black_box((metric.name(), metric.every(), metric.patience(10)));
    }
}

/// The name of a file of the store. A parsed name, written again, parses to the same one.
///
/// # Panics
/// A different key after writing and reading.
pub fn file_name(name: &str) {
    if let Some(key) = store::key_of(Path::new(name)) {
        assert_eq!(store::key_of(Path::new(&format!("{}.toml", store::file_name(&key)))), Some(key));
    }
}
