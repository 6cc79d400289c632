//! Facts about a service, as short texts.

use cotenant_cli::live_view::cut_middle;
use cotenant_model::CpuSet;
use cotenant_model::number::scaled;
use cotenant_status::status::{Measured, ServiceStatus};
use cotenant_status::verdict::Verdict;

/// Characters of the main cause of its waits.
const BEHIND: usize = 18;

pub(super) fn known(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "?".to_owned(), text)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub(super) fn kept(service: &ServiceStatus) -> String {
    if service.goal.is_none() {
        return String::new();
    }
    let missed = if misses(service) { "!" } else { "" };
    format!("{missed}{}", known(service.kept, percent))
}

/// What had most of the CPU while it waited.
pub(super) fn behind(service: &ServiceStatus) -> String {
    if service.waiting.is_none_or(|threads| threads < 0.01) {
        return String::new();
    }
    service.behind.first().map_or_else(
        || "?".to_owned(),
        |most| {
            let threads = format!("{:.2} ", most.threads);
            format!("{threads}{}", cut_middle(&most.what, BEHIND - threads.len()))
        },
    )
}

/// Whether it surely misses its goal.
pub(super) fn misses(service: &ServiceStatus) -> bool {
    service.verdict == Some(Verdict::Missed)
}

/// The source of its value.
pub(super) fn told_by(service: &ServiceStatus) -> String {
    service.measured.as_ref().map_or_else(String::new, |measured| measured.what.clone())
}

/// A value of its work; only the known one for a service without a goal.
pub(super) fn measured(service: &ServiceStatus, of: fn(&Measured) -> Option<f64>) -> String {
    let told = service.measured.as_ref().map(|measured| (measured, of(measured)));
    let told = told.filter(|(_, value)| value.is_some() || service.goal.is_some());
    told.map_or_else(String::new, |(measured, value)| measured.text(value))
}

/// The share within the goal in the last hour.
pub(super) fn within_goal(service: &ServiceStatus) -> String {
    service.within_goal.map_or_else(String::new, |within| format!("{:.1} %", within.share * 100.0))
}

pub(super) fn memory(service: &ServiceStatus) -> String {
    service.bandwidth.map_or_else(String::new, |bytes| format!("{}B/s", scaled(bytes)))
}

pub(super) fn policy(service: &ServiceStatus) -> String {
    if service.paused { "paused".to_owned() } else { service.policy.clone() }
}

pub(super) fn on(service: &ServiceStatus) -> String {
    service.places.iter().filter(|place| place.cpus >= 0.005).map(|place| place.cpu).collect::<CpuSet>().to_string()
}
