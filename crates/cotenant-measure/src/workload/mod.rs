//! Dynamic workloads: programs that arrive, run several times and leave (Dey et al., `ReSense`, §3.1 to §3.4), and the
//! script that runs them on any host that can start programs.

pub mod compare;
mod stage;
#[cfg(test)]
mod tests;

pub use stage::{Ended, JobRuns, Launcher, Manager, RunError, run};

use cotenant_model::ids::Time;
use fastrand::Rng;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Arrivals fall within this time (§3.1).
pub const SPAN: Duration = Duration::from_secs(400);

/// Most runs of a program (§3.1).
pub const MOST_RUNS: u32 = 10;

/// Arrival of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At this time after the beginning.
    At(Time),
    /// When the last run of another job has ended, by its index.
    After(usize),
}

/// A program that arrives, runs some times without a gap, and leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name of the program; several jobs may share it.
    pub name: String,
    /// Its arrival.
    pub arrival: Arrival,
    /// Number of runs, ≥ 1.
    pub runs: u32,
}

/// Jobs; the paper writes `{ts1(BM1,k1) ts2(BM2,k2) …}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// In no particular order.
    pub jobs: Vec<Job>,
    /// Whether a finished job restarts until all others have done their runs.
    pub restart: bool,
    /// Limit of a run, beyond which it fails. `None`: unlimited.
    pub longest: Option<Duration>,
}

/// Number of programs of a workload, and their arrivals (§3.2 to §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Three: two at the beginning, the third when the second has ended.
    Small,
    /// Four: two at the beginning, the others at random times; all start again until each has done its runs (§3.3).
    Medium,
    /// Eight at random times.
    Large,
}

impl Size {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// Number of programs.
    pub fn programs(self) -> usize {
        match self {
            Self::Small => 3,
            Self::Medium => 4,
            Self::Large => 8,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        })
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|size| size.to_string() == text);
        known.ok_or_else(|| format!("there is no size '{text}'; use small, medium or large"))
    }
}

impl Workload {
    /// A random workload from a pool, without repetitions while unused programs remain. Arrivals fall within `span`, to
    /// the millisecond; each program runs 1 to `runs` times. Deterministic for its arguments; empty for an empty pool.
    pub fn generate(size: Size, pool: &[String], span: Duration, runs: u32, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut left: Vec<&String> = Vec::new();
        let mut jobs = Vec::new();
        while jobs.len() < size.programs() && !pool.is_empty() {
            if left.is_empty() {
                left.extend(pool);
            }
            let name = left.swap_remove(rng.usize(..left.len())).clone();
            let runs = rng.u32(1..=runs.max(1));
            let at = Time(rng.u64(0..=span.as_millis() as u64) * 1_000_000);
            let arrival = match (size, jobs.len()) {
                (Size::Small | Size::Medium, 0 | 1) => Arrival::At(Time(0)),
                (Size::Small, _) => Arrival::After(1),
                (Size::Medium | Size::Large, _) => Arrival::At(at),
            };
            jobs.push(Job { name, arrival, runs });
        }
        Self { jobs, restart: size == Size::Medium, longest: None }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, job) in self.jobs.iter().enumerate() {
            let gap = if i > 0 { " " } else { "" };
            match job.arrival {
                Arrival::At(at) => write!(f, "{gap}{}({},{})", at.as_secs_f64(), job.name, job.runs)?,
                Arrival::After(other) => {
                    write!(f, "{gap}after {}({},{})", self.jobs[other].name, job.name, job.runs)?;
                }
            }
        }
        f.write_str("}")
    }
}
