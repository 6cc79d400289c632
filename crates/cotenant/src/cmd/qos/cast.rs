//! The programs of a run.

use cotenant_linux::host::AppSpec;
use cotenant_setup::args::MetricArg;

/// The programs of a run: those that keep their speed, and those that give way.
#[derive(Debug, Default)]
pub(super) struct Cast {
    pub high: Vec<AppSpec>,
    pub low: Vec<AppSpec>,
    /// One for each program of high priority.
    pub metrics: Vec<MetricArg>,
    /// Notes on rules that match no program.
    pub notes: Vec<String>,
}
