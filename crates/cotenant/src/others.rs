//! How much of the CPUs' time other programs used while something was measured.

use cotenant_core::{CpuSet, Topology};
use cotenant_linux::observe::busy::Busy;
use cotenant_linux::{FsRoot, sys};
use std::time::{Duration, Instant};

/// A stretch of time that begins with it.
pub(crate) struct Others {
    busy: Busy,
    cpus: CpuSet,
    since: Instant,
    before: Duration,
    own: Duration,
}

impl Others {
    /// Begins to watch these CPUs, on which this process runs; `None` where the system does not tell how busy they are.
    pub fn watch(topology: &Topology, cpus: &CpuSet) -> Option<Self> {
        let mut busy = Busy::new(&FsRoot::live(), topology).ok()?;
        let before = busy_time(&mut busy, cpus)?;
        Some(Self { busy, cpus: cpus.clone(), since: Instant::now(), before, own: sys::own_cpu_time() })
    }

    /// The part of the CPUs' time that others, and the hypervisor, have used since the beginning, 0–1.
    pub fn share(&mut self) -> Option<f64> {
        self.share_besides(Duration::ZERO)
    }

    /// The same, where the CPU time of some programs that have ended is our own, too.
    pub fn share_besides(&mut self, ours: Duration) -> Option<f64> {
        let all = busy_time(&mut self.busy, &self.cpus)?.saturating_sub(self.before);
        let own = sys::own_cpu_time().saturating_sub(self.own) + ours;
        let offered = self.since.elapsed().as_secs_f64() * self.cpus.len() as f64;
        (offered > 0.0).then(|| (all.saturating_sub(own).as_secs_f64() / offered).min(1.0))
    }
}

fn busy_time(busy: &mut Busy, cpus: &CpuSet) -> Option<Duration> {
    let samples = busy.read().ok()?;
    Some(samples.iter().filter(|cpu| cpus.contains(cpu.id)).map(|cpu| Duration::from_nanos(cpu.busy_ns)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn others_are_seen() {
        let topology = crate::machine_arg::resolve(None).unwrap().machine.topology;
        let mut others = Others::watch(&topology, topology.usable()).unwrap();
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut seen = Some(0.0);
        while seen == Some(0.0) && Instant::now() < deadline {
            seen = others.share();
            std::thread::yield_now();
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(seen.is_some_and(|share| share > 0.0 && share <= 1.0), "{seen:?}");
    }
}
