//! Lines of `/proc` as printed by the kernel. Values of sysfs are elsewhere.
//!
//! Everything parses bytes: a command name may contain anything, including line ends and parentheses.

use crate::{CpuId, text};

/// A text with another content than expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: expected {expected}, got '{text}'")]
pub struct ProcTextError {
    file: &'static str,
    expected: &'static str,
    text: String,
}

fn error(file: &'static str, expected: &'static str, bytes: &[u8]) -> ProcTextError {
    let text = text::within(String::from_utf8_lossy(bytes).trim(), 80).into_owned();
    ProcTextError { file, expected, text }
}

/// `PF_KTHREAD` of the kernel's `sched.h`, in the flags field of `stat`.
const PF_KTHREAD: u32 = 0x0020_0000;

/// The used fields of `/proc/PID/stat` and `/proc/PID/task/TID/stat`, numbered as in proc(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskStat {
    /// Thread id, or process id in the process's own file (1).
    pub id: u32,
    /// Command name, undecodable bytes replaced (2).
    pub comm: String,
    /// One letter, such as `R` (3).
    pub state: u8,
    /// Process id of the parent process (4).
    pub ppid: u32,
    /// Process group (5).
    pub pgrp: u32,
    /// Session (6).
    pub session: u32,
    /// The kernel's `PF_*` flags (9).
    pub flags: u32,
    /// Minor page faults of its ended and reaped children, and of theirs (11).
    pub ended_faults: u64,
    /// CPU time, clock ticks: user (14) and system (15).
    pub ticks: u64,
    /// The same of its ended and reaped children, and of theirs (16, 17).
    pub ended_ticks: u64,
    /// Nice value (19).
    pub nice: i32,
    /// Threads of the process (20).
    pub threads: u32,
    /// Start time in clock ticks since boot (22).
    pub start_ticks: u64,
    /// Resident pages of the process (24); 0 if unknown.
    pub resident_pages: u64,
    /// The CPU on which it runs or ran last (39).
    pub cpu: CpuId,
    /// Scheduling policy, `SCHED_*` (41).
    pub policy: u32,
}

/// Whether a scheduling policy is a real-time or deadline one (`SCHED_FIFO` 1, `SCHED_RR` 2, `SCHED_DEADLINE` 6).
pub fn is_real_time(policy: u32) -> bool {
    matches!(policy, 1 | 2 | 6)
}

impl TaskStat {
    /// Parses the line. The name ends at the *last* parenthesis, because it may contain some.
    ///
    /// # Errors
    /// On anything else, a truncated line included.
    pub fn parse(line: &[u8]) -> Result<Self, ProcTextError> {
        let err = || error("stat", "ID (NAME) STATE and 49 numbers", line);
        let open = line.iter().position(|b| *b == b'(').ok_or_else(err)?;
        let close = line.iter().rposition(|b| *b == b')').filter(|c| *c > open).ok_or_else(err)?;
        let id = unsigned(&line[..open]).ok_or_else(err)?;
        let mut stat = Self { id: id as u32, comm: text::name(&line[open + 1..close]), ..Self::default() };
        let mut last = 2;
        for (field, word) in (3..).zip(words(&line[close + 1..])).take_while(|(field, _)| *field <= 41) {
            let number = || unsigned(word).ok_or_else(err);
            match field {
                3 => stat.state = word[0],
                4 => stat.ppid = number()? as u32,
                // Process group and session are −1 or 0 for tasks without one in this pid namespace.
                5 => stat.pgrp = unsigned(word).unwrap_or(0) as u32,
                6 => stat.session = unsigned(word).unwrap_or(0) as u32,
                9 => stat.flags = number()? as u32,
                11 => stat.ended_faults = number()?,
                14 | 15 => stat.ticks = stat.ticks.saturating_add(number()?),
                // Signed there; negative means none.
                16 | 17 => stat.ended_ticks = stat.ended_ticks.saturating_add(unsigned(word).unwrap_or(0)),
                19 => stat.nice = str::from_utf8(word).ok().and_then(|nice| nice.parse().ok()).ok_or_else(err)?,
                20 => stat.threads = number()? as u32,
                22 => stat.start_ticks = number()?,
                // Signed there.
                24 => stat.resident_pages = unsigned(word).unwrap_or(0),
                39 => stat.cpu = CpuId(number()? as u32),
                41 => stat.policy = number()? as u32,
                _ => {}
            }
            last = field;
        }
        if last == 41 { Ok(stat) } else { Err(err()) }
    }

    /// Whether it is dead: a zombie, or about to vanish.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether it belongs to the kernel.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether it runs under a real-time or deadline policy (`SCHED_FIFO` 1, `SCHED_RR` 2, `SCHED_DEADLINE` 6).
    pub fn is_real_time(&self) -> bool {
        is_real_time(self.policy)
    }

    /// Why Cotenant leaves such a task alone, if it does.
    pub fn off_limits(&self) -> Option<&'static str> {
        match () {
            () if self.is_kernel_thread() => Some("it is a kernel thread"),
            () if self.is_real_time() => Some("it has a real-time or deadline policy"),
            () => None,
        }
    }
}

/// `/proc/PID/task/TID/schedstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU, nanoseconds; lags by up to one scheduler tick while the task runs.
    pub cpu_ns: u64,
    /// Time runnable but waiting for a CPU, nanoseconds.
    pub wait_ns: u64,
    /// Number of times it was put on a CPU.
    pub timeslices: u64,
}

impl SchedStat {
    /// Parses the line.
    ///
    /// # Errors
    /// On anything but three numbers.
    pub fn parse(line: &[u8]) -> Result<Self, ProcTextError> {
        let mut numbers = words(line).map(unsigned);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(cpu_ns)), Some(Some(wait_ns)), Some(Some(timeslices)), None) => {
                Ok(Self { cpu_ns, wait_ns, timeslices })
            }
            _ => Err(error("schedstat", "three numbers", line)),
        }
    }
}

/// Total bytes read and written by a process, by any means: `rchar` and `wchar` of `/proc/PID/io`.
///
/// # Errors
/// If one is missing.
pub fn bytes_moved(io: &[u8]) -> Result<u64, ProcTextError> {
    let field = |name: &[u8]| io.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(name)).and_then(unsigned);
    let both = field(b"rchar:").zip(field(b"wchar:"));
    both.map(|(read, written)| read.saturating_add(written))
        .ok_or_else(|| error("io", "the lines rchar: and wchar:", io))
}

/// The last assigned process or thread id, from `/proc/loadavg`: while it stays the same, no task was created.
///
/// # Errors
/// If the fifth field is not a number.
pub fn last_pid(loadavg: &[u8]) -> Result<u32, ProcTextError> {
    let pid = words(loadavg).nth(4).and_then(unsigned);
    pid.map(|pid| pid as u32).ok_or_else(|| error("loadavg", "a process id as fifth field", loadavg))
}

/// Busy clock ticks of each online CPU, from `/proc/stat`: user + nice + system + irq + softirq + steal, appended to
/// `out`. Guest time is part of user time there and counts once.
///
/// # Errors
/// On a `cpuN` line with fewer numbers.
pub fn busy_ticks(stat: &[u8], out: &mut Vec<(CpuId, u64)>) -> Result<(), ProcTextError> {
    for line in stat.split(|b| *b == b'\n') {
        let Some(rest) = line.strip_prefix(b"cpu") else {
            return Ok(()); // the CPU lines come first; the interrupts after them can be long
        };
        let mut fields = words(rest);
        if rest.first() == Some(&b' ') {
            continue; // the sum over all CPUs
        }
        let err = || error("/proc/stat", "cpuN and eight numbers", line);
        let cpu = fields.next().and_then(unsigned).ok_or_else(err)?;
        let mut ticks = [0; 8];
        for slot in &mut ticks {
            *slot = fields.next().and_then(unsigned).ok_or_else(err)?;
        }
        let [user, nice, system, _idle, _iowait, irq, softirq, steal] = ticks;
        let busy = [user, nice, system, irq, softirq, steal].into_iter().fold(0, u64::saturating_add);
        out.push((CpuId(cpu as u32), busy));
    }
    Ok(())
}

/// Clock ticks of all CPUs since boot, from `/proc/stat`: stolen ones, in which a hypervisor ran other guests although
/// a CPU was wanted here, and all. `None` if not reported.
pub fn stolen_ticks(stat: &[u8]) -> Option<[u64; 2]> {
    let line = stat.split(|b| *b == b'\n').next()?.strip_prefix(b"cpu ")?;
    let ticks: Vec<u64> = words(line).take(8).map_while(unsigned).collect();
    let stolen = *ticks.get(7)?;
    Some([stolen, ticks.into_iter().fold(0, u64::saturating_add)])
}

/// `/proc/pressure/cpu`, or `cpu.pressure` of a control group: microseconds in which at least one thread was ready to
/// run without a CPU.
///
/// # Errors
/// If the line `some` has no total.
pub fn pressure_us(text: &[u8]) -> Result<u64, ProcTextError> {
    let line = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"some "));
    let total = words(line.unwrap_or_default()).find_map(|word| unsigned(word.strip_prefix(b"total=")?));
    total.ok_or_else(|| error("pressure", "the total of the line some", text))
}

/// Numbers separated by blanks or line ends: `cgroup.procs`, `task/TID/children`. Other text is skipped.
pub fn ids(text: &[u8]) -> impl Iterator<Item = u32> + '_ {
    words(text).filter_map(unsigned).filter_map(|n| u32::try_from(n).ok())
}

/// Fields of `/proc/PID/status` that `stat` lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The thread's process.
    pub tgid: u32,
    /// Real user id.
    pub uid: u32,
}

impl Status {
    /// Parses the file.
    ///
    /// # Errors
    /// If `Tgid:` or `Uid:` is missing.
    pub fn parse(text: &[u8]) -> Result<Self, ProcTextError> {
        let field = |name: &[u8]| {
            let line = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(name))?;
            words(line).next().and_then(unsigned).map(|n| n as u32)
        };
        match (field(b"Tgid:"), field(b"Uid:")) {
            (Some(tgid), Some(uid)) => Ok(Self { tgid, uid }),
            _ => Err(error("status", "the lines Tgid: and Uid:", text)),
        }
    }
}

pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// A decimal number with optional blanks. Hand-written because every sample uses it.
pub(crate) fn unsigned(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.trim_ascii();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(comm: &[u8], policy: u32) -> Vec<u8> {
        let mut line = b"4242 (".to_vec();
        line.extend_from_slice(comm);
        line.extend_from_slice(
            b") S 17 16 15 0 -1 4194560 9 0 0 0 3 4 5 6 20 -5 7 0 123456 9 11 18446744073709551615 ",
        );
        line.extend_from_slice(b"1 1 0 0 0 0 0 4096 0 0 0 0 17 3 0 ");
        line.extend_from_slice(format!("{policy} 0 0 0 0 0 0 0 0 0 0 0\n").as_bytes());
        line
    }

    #[test]
    fn stat_of_an_ordinary_thread() {
        let stat = TaskStat::parse(&line(b"worker", 0)).unwrap();
        assert_eq!(stat.comm, "worker");
        assert_eq!((stat.id, stat.ppid, stat.pgrp, stat.session), (4242, 17, 16, 15));
        assert_eq!((stat.threads, stat.start_ticks, stat.cpu), (7, 123_456, CpuId(3)));
        assert_eq!((stat.ticks, stat.ended_ticks, stat.nice, stat.resident_pages), (3 + 4, 5 + 6, -5, 11));
        assert!(!stat.is_dead() && !stat.is_kernel_thread() && !stat.is_real_time());
        for (policy, real_time) in [(0, false), (1, true), (2, true), (3, false), (5, false), (6, true), (7, false)] {
            assert_eq!(TaskStat::parse(&line(b"x", policy)).unwrap().is_real_time(), real_time, "policy {policy}");
        }
    }

    #[test]
    fn names_may_hold_anything() {
        for comm in ["a b", "a) R 1 (b", "((", "))", ") S 1 2", "", "a\nb", "(sd-pam)"] {
            let stat = TaskStat::parse(&line(comm.as_bytes(), 0)).unwrap();
            assert_eq!((stat.comm.as_str(), stat.state, stat.cpu), (&*text::clean(comm), b'S', CpuId(3)));
        }
    }

    #[test]
    fn what_is_no_stat_line_is_refused() {
        let good = line(b"x", 0);
        let up_to_policy = good.len() - b"0 0 0 0 0 0 0 0 0 0 0 0\n".len();
        for cut in 0..up_to_policy {
            assert!(TaskStat::parse(&good[..cut]).is_err(), "{:?}", String::from_utf8_lossy(&good[..cut]));
        }
        assert!(TaskStat::parse(b"1 )x( S").is_err());
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let of_kernel = "some avg10=96.95 avg60=68.04 avg300=26.71 total=105737784\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure_us(of_kernel.as_bytes()), Ok(105_737_784));
        for bad in ["", "full avg10=0.00 total=7\n", "some avg10=1.00\n", "some total=-1\n"] {
            assert!(pressure_us(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn schedstat_and_loadavg() {
        let stat = SchedStat { cpu_ns: 12, wait_ns: 3, timeslices: 4 };
        assert_eq!(SchedStat::parse(b"12 3 4\n"), Ok(stat));
        for bad in ["", "1 2", "1 2 3 4", "1 2 x", "1 2 -3", "99999999999999999999 1 1"] {
            assert!(SchedStat::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(last_pid(b"0.07 0.17 0.17 5/102 9459\n"), Ok(9459));
        assert!(last_pid(b"0.07 0.17 0.17 5/102").is_err());
    }

    #[test]
    fn bytes_that_are_read_and_written() {
        assert_eq!(bytes_moved(b"rchar: 70\nwchar: 5\nsyscr: 10\nsyscw: 0\nread_bytes: 4096\n"), Ok(75));
        assert_eq!(bytes_moved(b"rchar: 18446744073709551615\nwchar: 5\n"), Ok(u64::MAX));
        for bad in ["", "rchar: 70\n", "rchar: 70\nwchar: -5\n", "rchar: 18446744073709551616\nwchar: 5\n"] {
            assert!(bytes_moved(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn busy_time_leaves_out_idle_and_iowait() {
        let text =
            b"cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 1000 2000 4 5 6 7 8\ncpu2 10 0 0 5 5 0 0 0 0 0\nintr 5 cpu9\n";
        let mut out = Vec::new();
        busy_ticks(text, &mut out).unwrap();
        assert_eq!(out, [(CpuId(0), 21), (CpuId(2), 10)]);
        assert!(busy_ticks(b"cpu0 1 2 3\n", &mut out).is_err());
    }

    #[test]
    fn time_that_others_got_is_the_eighth_number() {
        let stat = b"cpu  10 1 20 300 4 0 5 60 7 8\ncpu0 10 1 20 300 4 0 5 60 7 8\nintr 3\n";
        assert_eq!(stolen_ticks(stat), Some([60, 400]));
        for other in [&b""[..], b"cpu  1 2 3 4 5 6 7\n", b"cpu  1 2 3 4 5 6 7 x\n", b"cpu0 1 2 3 4 5 6 7 8\n"] {
            assert_eq!(stolen_ticks(other), None);
        }
    }

    #[test]
    fn status_and_ids() {
        let text = b"Name:\tTgid: 7\nUmask:\t0022\nTgid:\t31\nPid:\t32\nUid:\t1000\t0\t0\t0\n";
        assert_eq!(Status::parse(text), Ok(Status { tgid: 31, uid: 1000 }));
        assert!(Status::parse(b"Tgid:\t31\n").is_err());
        assert_eq!(ids(b"12 13\n14 \n").collect::<Vec<_>>(), [12, 13, 14]);
    }

    proptest! {
        #[test]
        fn any_name_parses(comm in proptest::collection::vec(any::<u8>().prop_filter("NUL ends a name", |b| *b != 0), 0..16)) {
            let stat = TaskStat::parse(&line(&comm, 0)).unwrap();
            prop_assert_eq!(stat.comm, text::name(&comm));
            prop_assert_eq!((stat.id, stat.cpu), (4242, CpuId(3)));
        }
    }
}
