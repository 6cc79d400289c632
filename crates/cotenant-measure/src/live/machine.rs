//! This machine as the bench of calibration.

use crate::calibrate::{Bench, Load, ThreadRate};
use cotenant_cli::progress::Progress;
use cotenant_kernels::{Caches, Config, Kernel, Report};
use cotenant_linux::sys;
use cotenant_linux::sys::mempolicy;
use cotenant_linux::sys::waiter::{Event, Waiter};
use cotenant_model::CpuId;
use cotenant_model::CpuSet;
use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Round trips timed together, and the number of such batches.
const TRIPS: u64 = 200;
const BATCHES: usize = 15;
/// Limit for a pair whose threads got no CPUs: the median so far counts.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of timed migrations.
const MIGRATIONS: usize = 200;

/// Runs the kernels and ping-pong on this machine.
pub struct MachineBench {
    caches: Caches,
    /// Duration of each load.
    length: Duration,
    waiter: Waiter,
    progress: Progress,
    /// Progress, and the current measurement.
    doing: (f64, String),
    stopped: bool,
}

impl MachineBench {
    /// Loads run for `length` each.
    ///
    /// # Errors
    /// If signals cannot be awaited.
    pub fn new(caches: Caches, length: Duration) -> std::io::Result<Self> {
        Ok(Self {
            caches,
            length,
            waiter: Waiter::new()?,
            progress: Progress::new(true),
            doing: Default::default(),
            stopped: false,
        })
    }

    fn look(&mut self) -> bool {
        let (done, what) = &self.doing;
        self.progress.show(*done, || what.clone());
        self.stopped |= matches!(self.waiter.wait(Some(Instant::now())), Ok(Event::Signal(_)));
        !self.stopped
    }
}

fn report(
    load: &Load,
    caches: Caches,
    length: Option<Duration>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Report, String> {
    let kernel = Kernel::by_name(load.kernel).ok_or_else(|| format!("there is no kernel {}", load.kernel))?;
    // A remote load must exceed one last-level cache, not all of them: there are many loads, and initialization is
    // slow.
    let alone = load.memory.is_some() && load.cpus.len() == 1;
    let size = alone.then(|| kernel.default_size(&Caches { llc_total: caches.llc, ..caches }, 1));
    let config = Config {
        duration: length,
        compute: load.compute,
        size,
        cpus: load.cpus.clone(),
        ..Config::new(load.cpus.len(), caches)
    };
    // Threads inherit the policy of the thread that starts them.
    if let Some(node) = load.memory {
        let each = size.unwrap_or_else(|| kernel.default_size(&caches, load.cpus.len()));
        let size = each.saturating_mul(load.cpus.len() as u64);
        let free = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"));
        if let Some(free) = free.ok().and_then(|text| free_in(&text)).filter(|free| *free < 2 * size) {
            // Bound memory cannot fall back to another node: the kernel would kill a process, perhaps another user's.
            return Err(format!("{free} bytes are free, and twice {size} are needed"));
        }
        mempolicy::set(load.memory).map_err(|e| format!("memory cannot be bound to a node: {e}"))?;
    }
    let report = kernel.run(&config, None, go_on).map_err(|e| e.to_string());
    if load.memory.is_some() {
        mempolicy::set(None).map_err(|e| format!("memory cannot be set free from a node: {e}"))?;
    }
    report
}

/// Bytes that a node can provide at once: free, or file cache not used recently.
fn free_in(meminfo: &str) -> Option<u64> {
    let kb = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.split_once(name).map(|(_, value)| value))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some((kb("MemFree:")?.saturating_add(kb("Inactive(file):").unwrap_or(0))).saturating_mul(1024))
}

fn ran(report: &Report) -> Vec<ThreadRate> {
    let bytes = report.bytes_per_unit.unwrap_or(0) as f64;
    let thread = |thread: &cotenant_kernels::ThreadReport| {
        let units = thread.units as f64;
        ThreadRate {
            per_s: thread.per_second(),
            per_cpu_s: units / thread.cpu_seconds.max(1e-9),
            bytes_per_s: bytes * thread.per_second(),
            transfers: thread.transfers.unwrap_or(0) as f64 / units.max(1.0),
        }
    };
    report.threads.iter().map(thread).collect()
}

impl Bench for MachineBench {
    fn run(&mut self, loads: &[Load]) -> Result<Vec<Vec<ThreadRate>>, String> {
        let (caches, length) = (self.caches, self.length);
        let Some((first, others)) = loads.split_first() else { return Ok(Vec::new()) };
        let done = AtomicBool::new(false);
        // The others run until the first ends, and start nearly together: memory is initialized before.
        let reports: Result<Vec<Report>, String> = std::thread::scope(|scope| {
            let beside: Vec<_> = others
                .iter()
                .map(|load| {
                    let done = &done;
                    scope.spawn(move || report(load, caches, None, &mut || !done.load(Ordering::Relaxed)))
                })
                .collect();
            let own = report(first, caches, Some(length), &mut || self.look());
            done.store(true, Ordering::Relaxed);
            let rest = beside.into_iter().map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            std::iter::once(own).chain(rest).collect()
        });
        Ok(reports?.iter().map(ran).collect())
    }

    fn latency_ns(&mut self, a: CpuId, b: CpuId) -> Result<f64, String> {
        let ball = AtomicU64::new(0);
        let (start, end) = (Barrier::new(2), AtomicBool::new(false));
        let bind = |cpu: CpuId| sys::setaffinity(0, &CpuSet::single(cpu));
        let mut times = std::thread::scope(|scope| {
            scope.spawn(|| {
                let bound = bind(b);
                start.wait();
                // Returns every ball, odd to even, until the other thread stops.
                while bound.is_ok() && !end.load(Ordering::Relaxed) {
                    let thrown = ball.load(Ordering::Acquire);
                    if thrown & 1 == 1 {
                        ball.store(thrown + 1, Ordering::Release);
                    }
                    std::hint::spin_loop();
                }
            });
            let thrower = scope.spawn(|| {
                let bound = bind(a);
                start.wait();
                let begin = Instant::now();
                let mut times = Vec::with_capacity(BATCHES);
                'batches: while bound.is_ok() && times.len() < BATCHES {
                    let batch = Instant::now();
                    for _ in 0..TRIPS {
                        let next = ball.load(Ordering::Relaxed) + 1;
                        ball.store(next, Ordering::Release);
                        while ball.load(Ordering::Acquire) != next + 1 {
                            if begin.elapsed() > PATIENCE {
                                break 'batches;
                            }
                            std::hint::spin_loop();
                        }
                    }
                    times.push(batch.elapsed().as_secs_f64() * 1e9 / TRIPS as f64 / 2.0);
                }
                end.store(true, Ordering::Relaxed);
                bound.map(|()| times)
            });
            let times = thrower.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            times.map_err(|e| format!("a thread cannot be bound to CPU {a}: {e}"))
        })?;
        times.sort_by(f64::total_cmp);
        // The lower quartile, because other programs can only lengthen a batch.
        Ok(times.get(times.len() / 4).copied().unwrap_or(f64::NAN))
    }

    fn migration_us(&mut self, a: CpuId, b: CpuId) -> Result<f64, String> {
        let moves = move || -> std::io::Result<f64> {
            let sets = [CpuSet::single(a), CpuSet::single(b)];
            let mut times = Vec::with_capacity(MIGRATIONS);
            for i in 0..MIGRATIONS {
                let begin = Instant::now();
                sys::setaffinity(0, &sets[i % 2])?;
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
            times.sort_by(f64::total_cmp);
            // As above: a wait for a CPU can only lengthen it.
            Ok(times[times.len() / 4])
        };
        let result = std::thread::spawn(moves).join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        result.map_err(|e| format!("a thread cannot be moved between CPUs {a} and {b}: {e}"))
    }

    fn cycles_per_step(&self) -> Option<f64> {
        cfg!(target_arch = "x86_64").then_some(4.0)
    }

    fn goes_on(&mut self, done: f64, what: &str) -> bool {
        self.doing = (done, what.to_owned());
        self.look()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::NodeId;

    #[test]
    fn loads_of_bound_memory_take_their_time() {
        let caches = Caches { l1d: 32 << 10, l2: 64 << 10, llc: 1 << 20, llc_total: 64 << 20, assumed: true };
        let mut bench = MachineBench::new(caches, Duration::from_millis(10)).unwrap();
        let cpus = vec![sys::getaffinity(0).unwrap().first().unwrap()];
        let load = |node| Load { kernel: "chase", cpus: cpus.clone(), compute: None, memory: Some(NodeId(node)) };
        // If others keep the CPU busy, the thread may not run before its time is over.
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match bench.run(&[load(0)]) {
                Ok(ran) if ran[0][0].per_cpu_s > 0.0 => break,
                Ok(ran) => assert!(Instant::now() < deadline, "no load in 30 s: {ran:?}"),
                Err(why) => return eprintln!("skipped: {why}"),
            }
        }
        assert!(bench.run(&[load(1_000)]).unwrap_err().contains("memory cannot be bound to a node"));
    }

    #[test]
    fn what_a_node_can_give() {
        let text = "Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:   100 kB\nNode 1 Inactive(file):   20 kB\n";
        assert_eq!((free_in(text), free_in("Node 0 MemFree: 7 kB\n")), (Some(120 << 10), Some(7 << 10)));
        assert_eq!((free_in(""), free_in("Node 0 MemFree: lots\n")), (None, None));
    }
}
