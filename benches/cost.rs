//! Shared by benchmarks of what a tool costs: CPU time of the tool and of the processes that it started.

use std::fs;

/// A process and its children.
pub fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    std::iter::once(pid).chain(children.split_whitespace().filter_map(|word| word.parse().ok())).collect()
}

/// CPU time of all threads of a process so far.
pub fn cpu_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let text = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    text.filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok()).sum()
}
