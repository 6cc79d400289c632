//! Files and messages that others write, as functions of text: what `cotenant-fuzz` reaches of this crate. A panic is
//! a bug.

use crate::args::MetricArg;
use crate::cmd::bench::file::Spec;
use crate::cmd::schedule::jobs;
use crate::daemon::config::{self, Config};
use crate::daemon::containers::{Containers, Told};
use crate::daemon::control::{self, Answer, Request};
use crate::daemon::pauses::Pauses;
use crate::daemon::services;
use crate::daemon::slurm::Table;
use crate::daemon::status::Status;
use crate::daemon::watch::State;
use crate::daemon::web::guard;
use crate::known::Stored;
use crate::report::page::html;
use crate::report::{recording, regions, result};
use crate::{settings, store, units};
use cotenant_cli::page::{Page, Sheet};
use cotenant_record::Recording;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hint::black_box;
use std::path::{Path, PathBuf};

/// The daemon's configuration. Reading it twice tells the same rules, and their patterns can be used.
///
/// # Panics
/// Where they are others.
pub fn config(text: &str) {
    let read = || Config::empty(PathBuf::from("cotenant.toml")).take(Path::new("cotenant.toml"), text);
    let Ok(rules) = read() else { return };
    assert!(read().is_ok_and(|again| again == rules));
    for rule in &rules {
        let of = &rule.matches;
        let inside = of.container.iter().flat_map(|of| {
            let labels = of.labels.iter().map(|(_, pattern)| pattern);
            [&of.namespace, &of.pod, &of.container].into_iter().flatten().chain(labels)
        });
        for pattern in [&of.unit, &of.cgroup, &of.command].into_iter().flatten().chain(inside) {
            black_box(
                ["nginx.service", "/system.slice/a.service", "/usr/bin/a", ""].map(|name| pattern.is_match(name)),
            );
        }
        metric(&rule.metric);
    }
}

/// What is done with a metric that was taken.
fn metric(metric: &MetricArg) {
    let _ = black_box((metric.name(), metric.every(), metric.patience(10)));
}

/// What is asked over the control socket: a request that is taken is asked again as the same.
///
/// # Panics
/// Where it is another one.
pub fn request(line: &[u8]) {
    let Ok(request) = control::request(line) else { return };
    if let Request::Containers { containers } = &request {
        let (known, taken) = Containers::new(containers.clone());
        assert!(taken.taken == known.len() && taken.taken <= containers.len());
        black_box(containers.iter().filter(|told| known.around(&told.cgroup).is_some()).count());
    }
    let again = control::asked(request.clone()).expect("plain values serialise");
    assert_eq!(control::request(&again), Ok(request));
}

/// What a daemon answers, which may be anybody's: it can be shown, to its own user and to others, and is written again
/// as the same.
///
/// # Panics
/// Where it is not.
pub fn answer(line: &[u8]) {
    let _ = control::answered::<String>(line);
    let Ok(status) = control::answered::<Status>(line) else { return };
    for status in [&status, &status.for_user(0)] {
        let mut shown = Vec::new();
        status.print(&mut Sheet::new(Page::default(), &mut shown)).expect("memory takes it");
    }
    let again = control::bytes(&Answer::Ok(&status)).expect("plain values serialise");
    let same = control::answered::<Status>(&again).expect("it was just written");
    assert_eq!(control::bytes(&Answer::Ok(&same)).expect("plain values serialise"), again);
}

/// What a daemon of before has left: what was learnt, shapes that were best, and who is left alone. What is taken is
/// written as the same.
///
/// # Panics
/// Where it is another one.
pub fn left(text: &str) {
    drop(black_box(State::parse(text)));
    same::<Stored>(text);
    same::<Pauses>(text);
}

/// A job as the prolog of Slurm writes it down.
///
/// # Panics
/// Where it is written as another one.
pub fn job(text: &str) {
    if let Some(told) = same::<Told>(text) {
        black_box(Containers::new(vec![told]).0.len());
    }
}

/// What a text says, which is written as what says the same.
fn same<T: Serialize + DeserializeOwned>(text: &str) -> Option<T> {
    let value: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&value).expect("plain values serialise");
    let again: T = serde_json::from_str(&written).expect("it was just written");
    assert_eq!(serde_json::to_string(&again).expect("plain values serialise"), written);
    Some(value)
}

/// The daemon's table for Slurm.
pub fn slurm_table(text: &str) {
    drop(Table::parse(text));
}

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

/// What `report` reads besides recordings, as a page: results in JSON, and regions.
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

/// What stands on a command line: figures with units, and what tells a speed.
pub fn figures(text: &str) {
    let _ = black_box((units::duration(text), units::interval(text), units::collector_budget(text)));
    let _ = black_box((units::bytes(text), units::share(text), units::pid(text)));
    if let Ok(taken) = crate::args::speed(text) {
        metric(&taken);
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

/// Names that others choose: of a control group, of the host that a browser asks for, in the table of users. A unit's
/// folder is the group's own, or one that it is in.
///
/// # Panics
/// Where it is not.
pub fn names(text: &str) {
    assert!(services::units(text).all(|(name, folder)| folder.ends_with(name) && text.starts_with(folder)));
    let _ = black_box((services::is_delegated(text), guard::cannot_be_led_here(text), config::uid_in(text, "root")));
}
