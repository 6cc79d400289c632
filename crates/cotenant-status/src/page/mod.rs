//! The page: its content as plain values, and the files that draw these in a browser. The daemon serves it live;
//! reports contain a snapshot.

pub mod embedded;
pub mod scripts;

use crate::class::Class;
use crate::history::{Excerpt, History, SPANS};
use crate::picture::{Context, Picture, Whose};
use crate::status::{ServiceStatus, Status};
use crate::values::{Fact, Value};
use cotenant_model::{CpuId, Topology};

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Services that the page lists.
const SERVICES: usize = 256;

/// Services that it names for each CPU, and CPUs that it names for each service: those with most of it.
const ON_A_CPU: usize = 4;
const CPUS: usize = 16;

/// Limits of interference pairs, and of remarks.
const PAIRS: usize = 200;
const NOTES: usize = 50;

/// A file of the page.
pub struct Asset {
    /// Its path on the server.
    pub path: &'static str,
    /// Its content type.
    pub kind: &'static str,
    /// Its text.
    pub text: &'static str,
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The plotting library: <https://github.com/leeoniya/uPlot>, with its licence.
pub const UPLOT: &str = concat!("/*\n", include_str!("uPlot.LICENSE"), "*/\n", include_str!("uPlot.iife.min.js"), "\n");
/// The style of plots.
pub const UPLOT_CSS: &str = include_str!("uPlot.min.css");

/// The script that live pages and reports share.
pub const PARTS: &str = include_str!("parts.js");

/// The style of pages and reports.
pub const STYLE: &str = include_str!("page.css");

/// All files of the live page.
pub const ASSETS: [Asset; 6] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("index.html") },
    Asset { path: "/page.css", kind: CSS, text: STYLE },
    Asset { path: "/uplot.css", kind: CSS, text: UPLOT_CSS },
    Asset { path: "/uplot.js", kind: SCRIPT, text: UPLOT },
    Asset { path: "/parts.js", kind: SCRIPT, text: PARTS },
    Asset { path: "/live.js", kind: SCRIPT, text: include_str!("live.js") },
];

/// The daemon's state for its page.
#[derive(Debug)]
pub struct Scene {
    topology: Arc<Topology>,
    history: History,
}

/// A moment on the page.
#[derive(Serialize)]
pub struct Now {
    #[serde(flatten)]
    picture: Picture,
    /// The main user of each CPU, in words.
    whose: BTreeMap<CpuId, String>,
    /// Services omitted from the list, because there are many.
    left_out: usize,
    /// The facts about a service that are one number each.
    facts: Vec<Fact>,
    /// Lengths of the available spans, and their update intervals; seconds.
    spans: [(f64, f64); SPANS.len()],
}

impl Scene {
    /// Of a machine of which nothing was seen yet.
    pub fn new(topology: &Topology) -> Self {
        Self { topology: Arc::new(topology.clone()), history: History::live(topology) }
    }

    /// The machine.
    pub fn topology(&self) -> Arc<Topology> {
        self.topology.clone()
    }

    /// Clears the history.
    pub fn clear(&mut self) {
        if !self.history.is_empty() {
            self.history = History::live(&self.topology);
        }
    }

    /// Adds a status.
    pub fn add(&mut self, status: &Status) {
        self.history.add(status.uptime_s, &status.services, &status.cpus);
    }

    /// The rows of a span, by its place in [`SPANS`].
    pub fn excerpt(&self, span: usize) -> Excerpt {
        self.history.excerpt(span)
    }
}

impl Now {
    /// The parts of a picture for a browser.
    pub fn of(mut picture: Picture) -> Self {
        let whose = picture.cpus().map(|cpu| (cpu.cpu, whose(cpu))).collect();
        let there = picture.services.len();
        if there > SERVICES {
            let rank = |service: &ServiceStatus| match service.class {
                Class::High => 2,
                Class::Low => 1,
                Class::Normal | Class::Ignore => 0,
            };
            let cpus = |service: &ServiceStatus| service.cpus.unwrap_or_default();
            picture.services.sort_by(|a, b| rank(b).cmp(&rank(a)).then(cpus(b).total_cmp(&cpus(a))));
            picture.services.truncate(SERVICES);
        }
        for service in &mut picture.services {
            *service = std::mem::take(service).for_anybody();
            if service.places.len() > CPUS {
                service.places.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
                service.places.truncate(CPUS);
            }
        }
        let cpus = picture.packages.iter_mut().flat_map(|package| &mut package.domains);
        for cpu in cpus.flat_map(|domain| &mut domain.cores).flat_map(|core| &mut core.cpus) {
            cpu.services.truncate(ON_A_CPU);
        }
        picture.interference.truncate(PAIRS);
        picture.notes.truncate(NOTES);
        let left_out = there - picture.services.len();
        let facts = Value::ALL.into_iter().filter_map(Value::fact).collect();
        Self { picture, whose, left_out, facts, spans: SPANS }
    }
}

/// The main user of a CPU, in words; empty if unknown.
fn whose(cpu: &Context) -> String {
    match cpu.whose() {
        Whose::Unknown => String::new(),
        Whose::Nobody => "idle".to_owned(),
        Whose::Others => "(others)".to_owned(),
        Whose::Service(name, 0) => name.to_owned(),
        Whose::Service(name, more) => format!("{name} +{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Share;

    #[test]
    fn a_cpu_is_whose_most_of_it_is() {
        let cpu = |busy: Option<f64>, shares: &[f64]| {
            let share = |(i, cpus): (usize, &f64)| Share { service: format!("s{i}"), cpus: *cpus };
            whose(&Context { busy, services: shares.iter().enumerate().map(share).collect(), ..Context::default() })
        };
        for (busy, shares, text) in [
            (Some(0.99), &[0.12, 0.08, 0.03][..], "(others)"),
            (Some(0.99), &[0.7, 0.08, 0.001], "s0 +1"),
            (Some(0.99), &[0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.009], "s0 +5"),
            (Some(0.5), &[0.5], "s0"),
            (Some(0.01), &[0.01], "idle"),
            (Some(0.03), &[], "(others)"),
            (None, &[0.3], "s0"),
            (None, &[0.001], ""),
        ] {
            assert_eq!(cpu(busy, shares), text, "{busy:?} {shares:?}");
        }
    }
}
