//! Running a kernel: threads, memory, start and stop.

use crate::config::{Config, Error, MAX_COMPUTE, MAX_RATE, MAX_STRIDE, MAX_THREADS, MIN_RATE, MIN_SIZE};
use crate::ffi::{self, Work};
use crate::gate::{Gate, Start};
use crate::kernel::{Check, Footprint, Kernel, Knob};
use crate::memory::{self, Memory};
use crate::report::{Pace, Report, Slot, ThreadReport};
use cotenant_linux::sys;
use cotenant_model::CpuSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Returns each thread's counter of units; called in that thread.
pub type Counter<'a> = &'a (dyn Fn(usize) -> &'a AtomicU64 + Sync);

/// A run with defaults filled in and settings checked.
struct Plan<'a> {
    kernel: &'static Kernel,
    config: &'a Config,
    size: u64,
    knob: u64,
}

impl Kernel {
    /// Runs the kernel until the duration, the limit, or until `go_on` returns false. The calling thread calls that
    /// about every 20 ms, and may read the progress meanwhile.
    ///
    /// `counter` is called in thread `i` and returns the counter to increment once per batch of work; without it, only
    /// the report shows progress.
    ///
    /// # Errors
    /// [`Error`], with no thread left running.
    pub fn run(
        &'static self,
        config: &Config,
        counter: Option<Counter<'_>>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Report, Error> {
        Plan::new(self, config)?.run(counter, go_on)
    }
}

impl<'a> Plan<'a> {
    fn new(kernel: &'static Kernel, config: &'a Config) -> Result<Self, Error> {
        if !(1..=MAX_THREADS).contains(&config.threads) {
            return Err(Error::Threads(config.threads));
        }
        let knob = knob(kernel, config)?;
        let missing = |setting| Error::Setting { kernel: kernel.name, setting };
        let size = match (kernel.footprint, config.size) {
            (_, Some(_)) if !kernel.has_size() => return Err(missing("memory whose size could be set")),
            (_, Some(size)) if size < least(kernel, knob) => {
                return Err(Error::TooSmall { kernel: kernel.name, size, least: least(kernel, knob) });
            }
            (_, Some(size)) => size / MIN_SIZE * MIN_SIZE,
            (_, None) => kernel.default_size(&config.caches, config.threads) / MIN_SIZE * MIN_SIZE,
        };
        let total = size.saturating_mul(config.threads as u64);
        match memory::available() {
            Some(available) if total > available => Err(Error::TooLarge { threads: config.threads, size, available }),
            _ => Ok(Self { kernel, config, size, knob }),
        }
    }

    fn run(&self, counter: Option<Counter<'_>>, go_on: &mut dyn FnMut() -> bool) -> Result<Report, Error> {
        let no_room =
            || Error::NoRoom { threads: self.config.threads, size: self.size.max(self.kernel.shared_bytes()) };
        let shared = Memory::zeroed(self.kernel.shared_bytes()).ok_or_else(no_room)?;
        let (gate, stop) = (Gate::default(), AtomicU32::new(0));
        thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.config.threads);
            let mut failed = None;
            for i in 0..self.config.threads {
                let (gate, stop, shared) = (&gate, &stop, &shared);
                let body = move || {
                    let result = self.thread(i, counter, stop, shared, gate);
                    gate.leave();
                    result
                };
                match thread::Builder::new().name(format!("{}-{i}", self.kernel.name)).spawn_scoped(scope, body) {
                    Ok(thread) => threads.push(thread),
                    Err(why) => {
                        failed = Some(Error::Spawn(i, why));
                        break;
                    }
                }
            }
            let all = threads.len();
            let prepared = failed.is_none() && gate.wait(None, go_on, |s| s.ready + s.ended == all);
            let began = Instant::now();
            let starts = prepared && gate.lock().ended == 0;
            let duration = self.config.duration;
            let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            let deadline_ns = duration.map_or(u64::MAX, |duration| ffi::ck_now_ns().saturating_add(ns(duration)));
            gate.open(starts.then_some(Start { began, deadline_ns }));
            if starts {
                let deadline = duration.map(|duration| began + duration);
                gate.wait(deadline, go_on, |state| state.ended == all);
            }
            stop.store(1, Ordering::Relaxed);
            let ends = threads.into_iter().map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            let threads: Result<Vec<_>, _> = ends.map(|end| end.and_then(|done| done.ok_or_else(no_room))).collect();
            if let Some(why) = failed {
                return Err(why);
            }
            let threads = threads?;
            Ok(Report {
                kernel: self.kernel.name,
                unit: self.kernel.unit,
                size: self.size,
                compute: self.kernel.default_compute().map(|_| self.knob),
                stride: self.kernel.default_stride().map(|_| self.knob),
                rate: self.config.rate,
                bytes_per_unit: self.kernel.bytes_per_unit,
                seconds: threads.iter().map(|thread| thread.seconds).fold(0.0, f64::max),
                threads,
            })
        })
    }

    /// A thread: bound, initialized, run. `None` without memory.
    fn thread(
        &self,
        i: usize,
        counter: Option<Counter<'_>>,
        stop: &AtomicU32,
        shared: &Memory,
        gate: &Gate,
    ) -> Result<Option<ThreadReport>, Error> {
        let cpus = &self.config.cpus;
        let cpu = (!cpus.is_empty()).then(|| cpus[i % cpus.len()]);
        if let Some(cpu) = cpu {
            sys::setaffinity(0, &CpuSet::single(cpu)).map_err(|why| Error::Pin { thread: i, cpu, why })?;
        }
        let Some(own) = Memory::zeroed(self.size) else { return Ok(None) };
        let unseen = Slot::default();
        let mut work = Work {
            progress: counter.map_or(&raw const unseen.0, |counter| counter(i)),
            stop,
            own: own.start(),
            own_bytes: self.size,
            shared: shared.start(),
            shared_bytes: self.kernel.shared_bytes(),
            id: i as u64 + 1,
            limit: self.config.limit.unwrap_or(u64::MAX),
            knob: self.knob,
            rate: self.config.rate.unwrap_or(0.0),
            deadline_ns: u64::MAX,
            units: 0,
            transfers: 0,
            span_ns: 0,
            skipped_ns: 0,
            wrong: 0,
            sum: 0,
        };
        if let Some(init) = self.kernel.init {
            // SAFETY: the work's pointers are to live, page-aligned memory of the lengths given; only this thread has
            // its own memory.
            unsafe { init(&raw mut work) };
        }
        let start = gate.enter();
        let used = ffi::ck_cpu_time_ns();
        if let Some(Start { deadline_ns, .. }) = start {
            work.deadline_ns = deadline_ns;
            // SAFETY: as above; shared memory is accessed by atomic operations only.
            unsafe { (self.kernel.body)(&raw mut work) };
        }
        let seconds = start.map_or(0.0, |start| start.began.elapsed().as_secs_f64());
        let used = ffi::ck_cpu_time_ns() - used;
        std::hint::black_box(work.sum);
        if let (Check::After(check), Some(_)) = (self.kernel.check, start) {
            // SAFETY: as for initializing.
            unsafe { check(&raw mut work) };
        }
        let seconds_of = |ns: u64| ns as f64 * 1e-9;
        Ok(Some(ThreadReport {
            cpu,
            units: work.units,
            seconds,
            cpu_seconds: seconds_of(used),
            transfers: matches!(self.kernel.footprint, Footprint::Shared(_)).then_some(work.transfers),
            pace: self
                .config
                .rate
                .map(|_| Pace { span_s: seconds_of(work.span_ns), skipped_s: seconds_of(work.skipped_ns) }),
            wrong: (!matches!(self.kernel.check, Check::None)).then_some(work.wrong),
        }))
    }
}

/// The minimum memory of a thread of this kernel.
fn least(kernel: &Kernel, knob: u64) -> u64 {
    match kernel.knob {
        Knob::Stride(_) | Knob::Fixed(_) => MIN_SIZE.max(2 * knob),
        _ => MIN_SIZE,
    }
}

/// The value of the kernel's knob, after the settings are checked.
fn knob(kernel: &Kernel, config: &Config) -> Result<u64, Error> {
    let has = |has, setting| if has { Ok(()) } else { Err(Error::Setting { kernel: kernel.name, setting }) };
    let range = |setting, value: String, range: String| Err(Error::Range { setting, value, range });
    has(config.compute.is_none() || kernel.default_compute().is_some(), "computation between accesses to be set")?;
    has(config.stride.is_none() || kernel.default_stride().is_some(), "stride to be set")?;
    has(config.rate.is_none() || kernel.has_rate(), "rate to be set")?;
    if let Some(rate) = config.rate.filter(|rate| !(MIN_RATE..=MAX_RATE).contains(rate)) {
        return range("rate", rate.to_string(), format!("{MIN_RATE} to {MAX_RATE} per second"));
    }
    match kernel.knob {
        Knob::None | Knob::Rate => Ok(0),
        Knob::Fixed(value) => Ok(value),
        Knob::Compute(default) => match config.compute.unwrap_or(default) {
            steps if steps > MAX_COMPUTE => range("compute", steps.to_string(), format!("0 to {MAX_COMPUTE} steps")),
            steps => Ok(steps),
        },
        Knob::Stride(default) => match config.stride.unwrap_or(default) {
            bytes if bytes == 0 || bytes % 8 != 0 || bytes > MAX_STRIDE => {
                range("stride", bytes.to_string(), format!("a multiple of 8 up to {MAX_STRIDE} bytes"))
            }
            bytes => Ok(bytes),
        },
    }
}
