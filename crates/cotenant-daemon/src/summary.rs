//! The processes of a service, for people.

use cotenant_linux::sense::census::Resident;
use cotenant_model::text;
use cotenant_status::status::ServiceStatus;
use std::collections::{BTreeMap, BTreeSet};

/// What a look shows of a service's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSummary {
    /// The number of its processes.
    pub processes: usize,
    /// The oldest of them.
    main: Option<u32>,
    /// Their resident memory, bytes.
    resident: u64,
    /// The control group around it.
    within: String,
}

impl ProcessSummary {
    /// The processes of a service, among these residents.
    pub fn of(service: &str, pids: &BTreeSet<u32>, residents: &BTreeMap<u32, Resident>) -> Self {
        let found = || pids.iter().filter_map(|pid| Some((*pid, residents.get(pid)?)));
        let within = found().map(|(_, resident)| &*resident.cgroup).reduce(common);
        let within = within.unwrap_or_default().trim_end_matches('/');
        // Its own group is not around it.
        let own = within.strip_suffix(service).and_then(|rest| rest.strip_suffix('/'));
        Self {
            processes: pids.len(),
            main: found().min_by_key(|(pid, resident)| (resident.start_ticks, *pid)).map(|(pid, _)| pid),
            resident: found().map(|(_, resident)| resident.resident).sum(),
            within: text::name(own.unwrap_or(within).as_bytes()),
        }
    }

    /// Fills in what is known.
    #[must_use]
    pub fn fill(&self, status: ServiceStatus) -> ServiceStatus {
        ServiceStatus {
            processes: self.processes,
            pid: self.main,
            resident_bytes: self.main.map(|_| self.resident),
            within: self.within.clone(),
            ..status
        }
    }
}

/// The common beginning of two paths, in whole components.
fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let parts = a.split_inclusive('/').zip(b.split_inclusive('/'));
    let same = parts.take_while(|(a, b)| a.trim_end_matches('/') == b.trim_end_matches('/'));
    let length: usize = same.map(|(a, _)| a.len()).sum();
    a[..length].trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_around_processes_is_their_common_path() {
        for (a, b, both) in [
            ("/system.slice/a.service", "/system.slice/a.service/x", "/system.slice/a.service"),
            ("/user.slice/session-1.scope", "/user.slice/session-11.scope", "/user.slice"),
            ("/a", "/b", ""),
            ("/", "/", ""),
        ] {
            assert_eq!(common(a, b), both, "{a} {b}");
        }
    }
}
