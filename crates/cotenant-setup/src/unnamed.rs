//! What tells the speed of a program for which no metric is named.

use crate::args::MetricArg;
use cotenant_linux::sense::{listening, metrics, progress};
use cotenant_model::metric::Service;

/// Processes of a program that are looked at.
const LOOKS: usize = 64;

/// How long its clients wait, if it listens at exactly one place and reports nothing itself; else its progress. The
/// note says what was chosen, or what could be, with sources as `write` gives them.
pub fn metric(name: &str, pids: &[u32], write: impl Fn(&str) -> String) -> (MetricArg, Option<String>) {
    let pids = &pids[..pids.len().min(LOOKS)];
    if reports(pids) {
        return (MetricArg::default(), None);
    }
    of(name, &listening::services(pids), metrics::sees_clients, write)
}

/// Whether a program reports its own progress.
pub fn reports(pids: &[u32]) -> bool {
    pids.iter().take(LOOKS).any(|pid| progress::is_told_by(*pid))
}

fn of(
    name: &str,
    services: &[Service],
    sees: impl FnOnce(&Service) -> bool,
    write: impl Fn(&str) -> String,
) -> (MetricArg, Option<String>) {
    let source = |service: &Service| format!("clients:{service}:p99");
    let (metric, note) = match services {
        [service] if sees(service) => {
            let note = format!("{name}: its speed is what its clients wait ({})", write(&source(service)));
            (source(service).parse().ok(), Some(note))
        }
        [] | [_] => (None, None),
        several => {
            let all: Vec<String> = several.iter().map(source).collect();
            (None, Some(format!("{name} listens at several places: name one by {}", write(&all.join(" or ")))))
        }
    };
    (metric.unwrap_or_default(), note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_is_chosen_and_several_are_named() {
        let socket = Service::Socket("/run/db.sock".to_owned());
        let services = [Service::Port(5_432), socket];
        let chosen = |services: &[Service], seen: bool| {
            let (metric, note) = of("db", services, |_| seen, |source| format!("--metric {source}"));
            (metric.name(), note.unwrap_or_default())
        };
        assert_eq!(
            chosen(&services[..1], true),
            ("clients".to_owned(), "db: its speed is what its clients wait (--metric clients:5432:p99)".to_owned())
        );
        assert_eq!(chosen(&services[..1], false), ("progress".to_owned(), String::new()), "nothing can be seen");
        assert_eq!(chosen(&[], true), ("progress".to_owned(), String::new()));
        let (name, note) = chosen(&services, true);
        assert_eq!(name, "progress");
        assert!(note.ends_with("by --metric clients:5432:p99 or clients:/run/db.sock:p99"), "{note}");
    }
}
