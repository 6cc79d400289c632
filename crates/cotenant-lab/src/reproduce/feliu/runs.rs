//! The schedules of all mixes, shared by several experiments.

/// One mix under one policy with one seed.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) makespan_s: f64,
    pub(super) times_s: Vec<f64>,
    /// Per quantum: the difference in arrivals between the two L2s, per microsecond.
    pub(super) differences: Vec<f64>,
}

/// All runs, made once for four experiments: by mix, by policy, by seed.
#[derive(Clone, Debug)]
pub(in super::super) struct Schedules {
    pub(super) mixes: Vec<Vec<&'static str>>,
    pub(super) runs: Vec<Vec<Vec<Run>>>,
    /// Mean IABW of the mixes, transactions per microsecond.
    pub(super) iabw: f64,
    /// Prefetched lines of each mix, counted as the IABW counts misses.
    pub(super) ahead: Vec<f64>,
    pub(super) sensitive: usize,
    pub(super) work_s: f64,
}
