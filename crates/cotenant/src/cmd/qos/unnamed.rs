//! What tells the speed of a program for which no metric is named.

use cotenant_linux::host::{AppSpec, What};
use cotenant_linux::sense::{listening, metrics, progress};
use cotenant_model::metric::Service;
use cotenant_setup::args::MetricArg;

/// What its clients wait, where it runs already, listens at one place and reports nothing itself; else its progress.
/// `bpf`: whether that may be used. A note says what was chosen, or what could be.
pub(super) fn metric(app: &AppSpec, bpf: bool, notes: &mut Vec<String>) -> MetricArg {
    let What::Running(target) = &app.what else { return MetricArg::default() };
    let pids = target.pids();
    if !bpf || pids.iter().any(|pid| progress::is_told_by(*pid)) {
        return MetricArg::default();
    }
    let (metric, note) = of(&app.name, &listening::services(&pids), metrics::sees_clients);
    notes.extend(note);
    metric
}

fn of(name: &str, services: &[Service], sees: impl FnOnce(&Service) -> bool) -> (MetricArg, Option<String>) {
    let source = |service: &Service| format!("clients:{service}:p99");
    let (metric, note) = match services {
        [service] if sees(service) => {
            let note = format!("{name}: its speed is what its clients wait (--metric {})", source(service));
            (source(service).parse().ok(), Some(note))
        }
        [] | [_] => (None, None),
        several => {
            let all: Vec<String> = several.iter().map(source).collect();
            (None, Some(format!("{name} listens at several places: name one by --metric {}", all.join(" or "))))
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
            let (metric, note) = of("db", services, |_| seen);
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
