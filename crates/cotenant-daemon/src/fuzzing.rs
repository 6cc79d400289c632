//! Files and messages from others, as functions of text, for `cotenant-fuzz`. A panic is a bug.

use crate::config::{self, Config};
use crate::containers::{Containers, Told};
use crate::logbook::State;
use crate::pauses::Pauses;
use crate::protocol::{self, Answer, Request};
use crate::services;
use crate::slurm::Table;
use crate::web::guard;
use cotenant_cli::page::{Page, Sheet};
use cotenant_setup::args::MetricArg;
use cotenant_setup::known::Stored;
use cotenant_status::status::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hint::black_box;
use std::path::{Path, PathBuf};

/// The daemon's configuration. Reading it twice gives the same rules with valid patterns.
///
/// # Panics
/// A different configuration after writing and reading.
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
        rule.metric.iter().for_each(metric);
    }
}

/// The uses of an accepted metric.
pub fn metric(metric: &MetricArg) {
    let _ = black_box((metric.name(), metric.every(), metric.patience(10)));
}

/// Requests over the control socket: an accepted request is re-encoded as the same.
///
/// # Panics
/// A different request after writing and reading.
pub fn request(line: &[u8]) {
    let Ok(request) = protocol::request(line) else { return };
    if let Request::Containers { containers } = &request {
        let (known, taken) = Containers::new(containers.clone());
        assert!(taken.taken == known.len() && taken.taken <= containers.len());
        black_box(containers.iter().filter(|told| known.around(&told.cgroup).is_some()).count());
    }
    let again = protocol::asked(request.clone()).expect("plain values serialise");
    assert_eq!(protocol::request(&again), Ok(request));
}

/// The answer of a daemon, or of another program in its place: it can be displayed, to its own user and to others, and
/// is the same after writing and reading.
///
/// # Panics
/// A different answer.
pub fn answer(line: &[u8]) {
    let _ = protocol::answered::<String>(line);
    let Ok(status) = protocol::answered::<Status>(line) else { return };
    for status in [&status, &status.for_user(0)] {
        let mut shown = Vec::new();
        status.print(&mut Sheet::new(Page::default(), &mut shown)).expect("memory takes it");
    }
    let again = protocol::bytes(&Answer::Ok(&status)).expect("plain values serialise");
    let same = protocol::answered::<Status>(&again).expect("it was just written");
    assert_eq!(protocol::bytes(&Answer::Ok(&same)).expect("plain values serialise"), again);
}

/// State of an earlier daemon: interference, shapes, and paused services. Accepted state is the same after writing and
/// reading.
///
/// # Panics
/// Different state.
pub fn left(text: &str) {
    drop(black_box(State::parse(text)));
    same::<Stored>(text);
    same::<Pauses>(text);
}

/// A job as the prolog of Slurm writes it down.
///
/// # Panics
/// A different job after writing and reading.
pub fn job(text: &str) {
    if let Some(told) = same::<Told>(text) {
        black_box(Containers::new(vec![told]).0.len());
    }
}

/// The value of a text, which survives writing.
fn same<T: Serialize + DeserializeOwned>(text: &str) -> Option<T> {
    let value: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&value).expect("plain values serialise");
    let again: T = serde_json::from_str(&written).expect("it was just written");
    assert_eq!(serde_json::to_string(&again).expect("plain values serialise"), written);
    Some(value)
}

/// The table of subordinate user ids.
pub fn subuid(text: &str) {
    let table = cotenant_linux::sys::Subuids::parse(text, text);
    let _ = black_box([0, 100_000, u32::MAX].map(|uid| table.owner(uid)));
}

/// The daemon's table for Slurm.
pub fn slurm_table(text: &str) {
    drop(Table::parse(text));
}

/// Names chosen by others: of a control group, of a browser's host, in the table of users. A unit's folder is the
/// group's own, or an ancestor.
///
/// # Panics
/// A folder that is not the unit's.
pub fn names(text: &str) {
    assert!(services::units(text).all(|(name, folder)| folder.ends_with(name) && text.starts_with(folder)));
    let _ = black_box((services::is_delegated(text), guard::cannot_be_led_here(text), config::uid_in(text, "root")));
}
