//! Who hurts whom, in words.

use crate::class::Class;
use crate::status::ServiceStatus;
use cotenant_cli::messages::count;
use cotenant_model::Behind;
use cotenant_model::interference::Row;

/// Most pairs that are named; JSON has all.
const NAMED: usize = 10;

/// A line for each pair, the greatest loss first.
pub fn lines(rows: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> = rows.iter().take(NAMED).map(line).collect();
    let more = rows.len().saturating_sub(NAMED);
    lines.extend((more > 0).then(|| format!("{} more; --json has all", count(more as u64, "pair"))));
    lines
}

/// `web loses 12.3 % (9.1 to 15.4 %) of its speed while backup runs (14 events)`.
fn line(row: &Row) -> String {
    let Row { victim, aggressor, events, .. } = row;
    let [loss, interval] = shares(row);
    let events = count(u64::from(*events), "event");
    format!("{victim} loses {loss} ({interval}) of its speed while {aggressor} runs ({events})")
}

/// Below this many threads on average nothing waits that could be felt.
const HARDLY: f64 = 0.01;

/// A line for each service that waits for a CPU, of class high first, then by how much:
/// `db waits for a CPU: 0.20 threads behind backup, 0.05 behind cc1`.
pub fn waits(services: &[ServiceStatus]) -> Vec<String> {
    let waits = |service: &&ServiceStatus| !service.behind.is_empty() && service.waiting.is_some_and(|n| n >= HARDLY);
    let mut all: Vec<&ServiceStatus> = services.iter().filter(waits).collect();
    let order = |service: &ServiceStatus| (service.class != Class::High, -service.waiting.unwrap_or_default());
    all.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal));
    all.into_iter()
        .map(|service| format!("{} waits for a CPU: {}", service.name, Behind::text(&service.behind)))
        .collect()
}

/// The loss and its interval, as percentages.
pub fn shares(row: &Row) -> [String; 2] {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    [format!("{} %", percent(row.loss)), format!("{} to {} %", percent(row.low), percent(row.high))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_a_sentence_the_protected_first() {
        let service = |name: &str, class, waiting, what: &str| ServiceStatus {
            name: name.to_owned(),
            class,
            waiting: Some(waiting),
            behind: vec![Behind { what: what.to_owned(), cgroup: None, threads: waiting }],
            ..ServiceStatus::default()
        };
        let services = [
            service("batch", Class::Low, 1.4, "cc1"),
            service("db", Class::High, 0.2, "batch"),
            service("idle", Class::High, 0.001, "batch"),
            ServiceStatus { behind: Vec::new(), ..service("blind", Class::High, 0.5, "") },
        ];
        let told = ["db waits for a CPU: 0.20 behind batch", "batch waits for a CPU: 1.40 behind cc1"];
        assert_eq!(waits(&services), told);
    }

    #[test]
    fn a_pair_is_a_sentence() {
        let row =
            Row { victim: "web".into(), aggressor: "backup".into(), loss: 0.123, low: 0.091, high: 0.154, events: 14 };
        let told = lines(std::slice::from_ref(&row));
        assert_eq!(told, ["web loses 12.3 % (9.1 to 15.4 %) of its speed while backup runs (14 events)"]);
        let told = lines(&vec![row; 12]);
        assert_eq!((told.len(), told[10].as_str()), (11, "2 pairs more; --json has all"));
    }
}
