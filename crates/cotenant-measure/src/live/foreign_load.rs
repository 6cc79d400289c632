//! How much of the CPUs' time other programs, or other guests of the host, used while something was measured.

use cotenant_linux::sense::cpus::Busy;
use cotenant_linux::{FsRoot, sys};
use cotenant_model::proc_text::stolen_ticks;
use cotenant_model::{CpuSet, Topology};
use std::time::{Duration, Instant};

/// A stretch of time that begins with it.
pub struct Others {
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

/// So much of the time given to other guests is worth a remark, and so many clock ticks of it tell how much that is.
const MUCH: f64 = 0.01;
const TICKS: f64 = 10.0;

/// What a hypervisor gives to other guests from here on.
pub struct Stolen([u64; 2]);

impl Stolen {
    /// Begins to watch; `None` where the system does not tell.
    pub fn watch() -> Option<Self> {
        ticks().map(Self)
    }

    /// A remark for people, where it was much.
    pub fn note(&self) -> Option<String> {
        remark(self.0, ticks()?)
    }
}

fn ticks() -> Option<[u64; 2]> {
    stolen_ticks(&std::fs::read(FsRoot::live().path("/proc/stat")).ok()?)
}

fn remark(before: [u64; 2], after: [u64; 2]) -> Option<String> {
    let [stolen, all] = [0, 1].map(|i| after[i].saturating_sub(before[i]) as f64);
    (stolen >= TICKS && stolen >= MUCH * all).then(|| {
        format!(
            "the host let other guests run for {:.1} % of the CPU time here, while it was wanted (steal): figures suffer, and nothing on this machine can change that",
            100.0 * stolen / all
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn others_are_seen() {
        let topology = cotenant_cli::machine_arg::resolve(None).unwrap().machine.topology;
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

    #[test]
    fn what_the_host_takes_is_remarked_where_it_is_much() {
        assert_eq!(remark([5, 1_000], [5, 2_000]), None);
        assert_eq!(remark([5, 1_000], [24, 3_000]), None, "less than a hundredth");
        assert_eq!(remark([5, 1_000], [14, 1_020]), None, "nobody knows how much of the time that is");
        assert!(remark([5, 1_000], [48, 2_000]).is_some_and(|note| note.contains(" 4.3 % ")));
    }
}
