//! Looks at the program's memory by each method, and their results.

use crate::program::Program;
use cotenant_linux::sense::memory::{Accessed, Collector, Found, Watched, areas_of, ends_of, page_samples};
use cotenant_linux::{FsRoot, sys};
use cotenant_model::NodeId;
use cotenant_model::areas::Area;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for accesses to accumulate between clearing and reading.
const WINDOW: Duration = Duration::from_millis(50);

/// Ways to look.
#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// No look: the usual difference of two windows.
    Nothing,
    /// The place of all pages.
    Placement,
    /// The place of some pages.
    Drawn,
    /// Accessed pages.
    Accessed,
}

/// Number of looks.
pub struct Looks {
    fs: FsRoot,
    accessed: Accessed,
    ends: BTreeMap<u64, u64>,
    rng: fastrand::Rng,
    pub count: u32,
    /// CPU time of the looks.
    pub spent: Duration,
    /// Pages found: all, in the written part, the real number, and the estimates' standard error; sums.
    found: f64,
    in_part: f64,
    truth: f64,
    error: f64,
    longest: Duration,
}

impl Looks {
    pub fn new(program: &Program) -> Self {
        let fs = FsRoot::live();
        Self {
            accessed: Accessed::new(&fs, 1).expect("accessed bits"),
            ends: ends_of(&fs, program.pid).unwrap(),
            fs,
            rng: fastrand::Rng::with_seed(1),
            count: 0,
            spent: Duration::ZERO,
            found: 0.0,
            in_part: 0.0,
            truth: 0.0,
            error: 0.0,
            longest: Duration::ZERO,
        }
    }

    /// Whether large processes are sampled by random pages.
    pub fn draws() -> bool {
        Accessed::new(&FsRoot::live(), 1).expect("accessed bits").draws().is_ok()
    }

    /// Looks once; accesses gather for at most `gather`.
    pub fn look(&mut self, how: How, program: &mut Program, gather: Duration) {
        // The program's progress is read twice for every method, because that costs it a little too.
        let before = program.progress();
        let cpu = sys::thread_cpu_time();
        let used = |since: Duration| sys::thread_cpu_time().saturating_sub(since);
        match how {
            How::Nothing => {
                std::thread::sleep(WINDOW.min(gather));
                program.progress();
                return;
            }
            How::Placement => {
                let areas = areas_of(&self.fs, program.pid).unwrap();
                self.spent += used(cpu);
                self.in_part += areas.iter().map(Area::resident).sum::<u64>() as f64;
                self.truth += program.resident();
                program.progress();
            }
            How::Drawn => {
                let strata = page_samples::strata(&program.areas, &self.ends, &ends_of(&self.fs, program.pid).unwrap());
                let estimate = page_samples::placement(program.pid, &strata, &mut self.rng).unwrap();
                self.spent += used(cpu);
                self.in_part += estimate.pages.values().sum::<f64>();
                (self.truth, self.error) = (self.truth + program.resident(), self.error + estimate.error);
                program.progress();
            }
            How::Accessed => {
                let clearing = Instant::now();
                self.accessed.begin(&watched(program)).unwrap();
                (self.longest, self.spent) = (self.longest.max(clearing.elapsed()), self.spent + used(cpu));
                std::thread::sleep(WINDOW.min(gather));
                let touched = program.touched(before);
                let ended = sys::thread_cpu_time();
                let Ok(Found::Together(by_area)) = self.accessed.end(&watched(program)) else {
                    panic!("accessed bits")
                };
                self.spent += used(ended);
                let all: f64 = by_area.values().sum();
                // Single pages are assigned to their real node.
                let part = if self.accessed.draws().is_ok() { Some(all) } else { by_area.get(&NodeId(1)).copied() };
                self.found += all;
                self.in_part += part.unwrap_or(0.0);
                self.truth += touched;
            }
        }
        self.count += 1;
    }

    /// CPU time of a look, seconds.
    pub fn seconds(&self) -> f64 {
        self.spent.as_secs_f64() / f64::from(self.count.max(1))
    }

    /// Its results in a row.
    pub fn row(&self) -> Value {
        json!({
            "looks": self.count,
            "ms_per_look": self.seconds() * 1e3,
            "share": (self.found > 0.0).then(|| self.in_part / self.found),
            "pages": (self.truth > 0.0).then(|| self.in_part / self.truth),
            "error": (self.error > 0.0).then(|| self.error / self.truth),
            "longest_clearing_ms": self.longest.as_secs_f64() * 1e3,
        })
    }
}

fn watched(program: &Program) -> Watched<'_> {
    Watched { pid: program.pid, threads: std::slice::from_ref(&program.pid), areas: &program.areas }
}
