//! CPU time and memory of processes.

use std::fs;

/// The ids of a process and its children.
pub fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    std::iter::once(pid).chain(children.split_whitespace().filter_map(|word| word.parse().ok())).collect()
}

/// CPU time of all live threads of a process, in nanoseconds.
pub fn cpu_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let text = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    text.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// Memory of a process in KiB, from a line of `/proc/PID/status`: `VmRSS:` now, `VmHWM:` the peak.
pub fn memory_kib(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(key));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
