//! NUMA hinting faults: the kernel removes access from a process's pages in scans, and counts by thread and node the
//! pages that are accessed again. Tumanov et al. §4.2 patched their kernel to do this.

use super::ByNode;
use crate::NodeId;
use crate::proc_text::{unsigned, words};

/// Figures of a thread in `/proc/PID/task/TID/sched`, from Linux 4.4 to 6.18 (`kernel/sched/debug.c`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Its CPU time, ns.
    pub ran: u64,
    /// Pages accessed between two scans, base pages of each node with memory; empty if the kernel does not balance. The
    /// kernel adds a scan's pages to half of its former count, so the count is twice the average of the scans, the last
    /// of which makes up half.
    pub pages: ByNode,
}

impl Faults {
    /// Parses known lines and ignores the rest.
    pub fn parse(text: &[u8]) -> Self {
        let mut faults = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((node, pages)) = of_node(line) {
                faults.pages.insert(node, pages as f64 / 2.0);
            } else if let Some(value) = line.strip_prefix(b"se.sum_exec_runtime") {
                let digits: Vec<u8> = value.iter().copied().filter(u8::is_ascii_digit).collect();
                faults.ran = unsigned(&digits).unwrap_or(0);
            }
        }
        faults
    }
}

/// `numa_faults node=1 task_private=8 task_shared=2 …`: pages accessed by this thread only, and also by others (in
/// reverse order in Linux 4.4). Figures of its group follow and are not its own.
fn of_node(line: &[u8]) -> Option<(NodeId, u64)> {
    let mut words = words(line);
    if words.next()? != b"numa_faults" {
        return None;
    }
    let mut value = |key: &[u8]| unsigned(words.next()?.strip_prefix(key)?);
    let node = NodeId(u32::try_from(value(b"node=")?).ok()?);
    Some((node, value(b"task_private=")?.saturating_add(value(b"task_shared=")?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(of: &[(u32, f64)]) -> ByNode {
        of.iter().map(|&(node, n)| (NodeId(node), n)).collect()
    }

    /// As a thread of a guest with four nodes and Linux 6.1 had it, which writes to 1,024 pages of node 1.
    /// Holds see/memory.
    #[test]
    fn as_linux_6_1_prints_it() {
        let text = b"\
spin (148, #threads: 3)
-------------------------------------------------------------------
se.exec_start                                :        225636.671645
se.vruntime                                  :         20982.697386
se.sum_exec_runtime                          :         23607.653280
se.nr_migrations                             :                    2
nr_switches                                  :                   29
nr_voluntary_switches                        :                    0
nr_involuntary_switches                      :                   29
se.load.weight                               :              1048576
se.avg.load_sum                              :                47637
se.avg.runnable_sum                          :             48782282
se.avg.util_sum                              :             48782270
se.avg.load_avg                              :                 1023
se.avg.runnable_avg                          :                 1024
se.avg.util_avg                              :                 1024
se.avg.last_update_time                      :         225636671488
se.avg.util_est.ewma                         :                    0
se.avg.util_est.enqueued                     :                    0
policy                                       :                    0
prio                                         :                  120
clock-delta                                  :                  581
mm->numa_scan_seq                            :                    6
numa_pages_migrated                          :                    4
numa_preferred_nid                           :                    1
total_numa_faults                            :                 1991
current_node=1, numa_group_id=148
numa_faults node=0 task_private=1 task_shared=0 group_private=1 group_shared=0
numa_faults node=1 task_private=1988 task_shared=0 group_private=1988 group_shared=0
numa_faults node=2 task_private=0 task_shared=0 group_private=0 group_shared=0
numa_faults node=3 task_private=0 task_shared=2 group_private=0 group_shared=2
";
        let expected = pages(&[(0, 0.5), (1, 994.0), (2, 0.0), (3, 1.0)]);
        assert_eq!(Faults::parse(text), Faults { ran: 23_607_653_280, pages: expected });
    }

    /// The ends of the files of others, from the formats of their sources.
    /// Holds see/memory.
    #[test]
    fn as_other_kernels_print_it() {
        let of_4_4 = b"se.sum_exec_runtime                          :             0.000001\n\
            mm->numa_scan_seq                            :                    2\n\
            numa_pages_migrated                          :                    0\n\
            numa_preferred_nid                           :                   -1\n\
            total_numa_faults                            :                    9\n\
            current_node=0, numa_group_id=0\n\
            numa_faults node=0 task_private=2 task_shared=7 group_private=0 group_shared=0\n";
        assert_eq!(Faults::parse(of_4_4), Faults { ran: 1, pages: pages(&[(0, 4.5)]) });
        let of_6_18 = b"cat (3469, #threads: 1)\n\
            se.sum_exec_runtime                          :             0.000000\n\
            se.slice                                     :              1400000\n\
            mm->numa_scan_seq                            :                    0\n\
            total_numa_faults                            :                    0\n\
            current_node=0, numa_group_id=0\n\
            numa_faults node=0 task_private=0 task_shared=0 group_private=0 group_shared=0\n";
        assert_eq!(Faults::parse(of_6_18), Faults { ran: 0, pages: pages(&[(0, 0.0)]) });
        // Before 4.3 they were by kind, node and others, without a sum.
        let of_3_13 = b"numa_migrations, 0\nnuma_faults, 0, 0, 1, 0, 12\nnuma_faults_memory, 1, 0, 0, 0, -1\n";
        assert_eq!(Faults::parse(of_3_13), Faults::default());
    }

    proptest! {
        /// As the kernel counts: the same pages at each scan come to twice as many, and a look finds them again.
        /// Holds see/memory.
        #[test]
        fn a_look_finds_what_each_scan_finds(found in 0u64..1 << 40) {
            let count = (0..60).fold(0, |count: u64, _| count - count / 2 + found);
            let text = format!("numa_faults node=3 task_private={count} task_shared=0 group_private=0 group_shared=0");
            let pages = Faults::parse(text.as_bytes()).pages[&NodeId(3)];
            prop_assert!((pages - found as f64).abs() <= 1.0, "{pages} of {found}");
        }

        /// Holds see/damaged-input.
        #[test]
        fn any_bytes_are_faults_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for begin in ["", "numa_faults node=", "numa_faults node=1 task_private=", "se.sum_exec_runtime"] {
                let faults = Faults::parse(&[begin.as_bytes(), &bytes].concat());
                prop_assert!(faults.pages.values().all(|n| *n >= 0.0));
            }
        }
    }
}
