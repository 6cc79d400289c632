//! The work allowed per simulated second: without a limit, a phase of 85 instructions takes a step per 5 ns and never
//! reaches `end_s`.

use crate::speed::Unsettled;

/// Limit of the steps and samples of a simulation. Without short phases and runs, one takes at most 1,000 steps a
/// second and two per turn of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Allowed at any time, because applications that begin together need steps to settle.
    pub at_once: u64,
    /// Added for each simulated second.
    pub per_s: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { at_once: 1_000_000, per_s: 100_000 }
    }
}

/// The reason for a halt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Halt {
    /// The solver found no speeds.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
    /// The budget is used up.
    #[error(transparent)]
    Endless(#[from] Endless),
}

/// More work than the budget allows.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the simulation got no further than {at_s:.6} s in {work} steps: {}", self.remedy())]
pub struct Endless {
    /// Simulated time.
    pub at_s: f64,
    /// Steps and samples so far.
    pub work: u64,
    /// Number of samples of tasks.
    pub samples: u64,
    /// The application that ended phases and runs most often, and how often.
    pub most: (String, u64),
}

impl Endless {
    /// Whether an application causes it by ending phases or runs too often.
    pub fn is_of_app(&self) -> bool {
        self.most.1 >= self.samples
    }

    fn remedy(&self) -> String {
        let Self { samples, most: (name, ends), .. } = self;
        if self.is_of_app() {
            return format!("app {name} ended {ends} phases or runs; give these more instructions, or take fewer runs");
        }
        format!("the policy was asked {samples} times; raise interval_ms or quantum_ms")
    }
}
