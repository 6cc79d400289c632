//! Files and messages from others, as functions of text, for `cotenant-fuzz`. A panic is a bug.

use crate::cmd::bench::file::Spec;
use crate::cmd::cc::link;
use crate::cmd::cc::options::Options;
use crate::cmd::schedule::jobs;
use crate::report::page::html;
use crate::report::{recording, regions, result};
use cotenant_record::Recording;
use cotenant_setup::{args, settings, store, units};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
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

/// Options of `cotenant cc`: the environment's in the first line, and an argument in each other one.
///
/// # Panics
/// Settings that the compiler pass does not take.
pub fn options_of_cc(text: &str) {
    let mut lines = text.lines();
    let environment = lines.next();
    let Ok(options) = Options::parse(environment, lines.map(OsString::from)) else { return };
    let settings = options.for_pass();
    for (key, value) in settings.split(' ').map(|word| word.split_once('=').expect("a setting")) {
        let is_right = match key {
            "mode" => ["markers", "naps", "padding"].contains(&value),
            "coverage" => value.parse().is_ok_and(|share: f64| (0.0..=1.0).contains(&share)),
            _ => value.bytes().all(|byte| byte.is_ascii_digit()) && value.parse::<u64>().is_ok_and(|n| n > 0),
        };
        assert!(is_right, "{settings}");
    }
}

/// A region file as `cotenant cc` hands it to the compiler pass.
///
/// # Panics
/// What the pass gets is no list of places.
pub fn regions_of_cc(text: &str) {
    let options =
        Options::parse(None, ["--cotenant-min-score=0", "--cotenant-min-coverage=0"].map(OsString::from).into_iter());
    let Ok((json, _)) = options.and_then(|options| options.of_file(Path::new("regions.toml"), text)) else { return };
    let places: Vec<BTreeMap<String, Value>> = serde_json::from_str(&json).expect("a list of places");
    for place in places {
        let (first, last) = (place.get("first").and_then(Value::as_u64), place.get("last").and_then(Value::as_u64));
        let is_named = |key| place.get(key).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        assert!(is_named("function") || is_named("file") && first.is_some(), "{json}");
        assert!(first <= last && first != Some(0) && last.is_none_or(|last| u32::try_from(last).is_ok()), "{json}");
    }
}

/// What clang says it would run.
pub fn jobs_of_clang(text: &str) {
    black_box(link::read(text));
}
