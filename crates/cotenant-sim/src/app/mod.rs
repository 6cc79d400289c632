//! Applications as the simulator knows them: what a program does alone, from measured or assumed figures.

mod carry;
mod parse;

pub use carry::Private;
pub use parse::{AppError, PARALLEL, SHARING, SPEC_CPU2006, embedded, known, known_names, parse_programs};
pub(crate) use parse::{Fault, POSITIVE, ProgramTable, SIMULATOR, given, number, programs};

/// Bytes of a cache line.
pub const LINE: f64 = 64.0;

/// LLC miss ratio against bytes held.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// From points (bytes, misses per access): bytes rise, ratios are in 0–1 and never rise. `None` otherwise.
    pub fn new(points: Vec<(f64, f64)>) -> Option<Self> {
        let sound = |p: &(f64, f64)| p.0.is_finite() && p.0 > 0.0 && (0.0..=1.0).contains(&p.1);
        let ordered = points.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 >= p[1].1);
        (!points.is_empty() && points.iter().all(sound) && ordered).then_some(Self(points))
    }

    /// The ratio with `bytes` held. Between points it is linear, above the last constant. Below the first, where
    /// nothing was measured, it is an exponential from (0, 1): each byte saves the same fraction of the remaining
    /// misses.
    pub fn at(&self, bytes: f64) -> f64 {
        self.beyond(bytes.max(0.0))
    }

    fn points(&self) -> &[(f64, f64)] {
        &self.0
    }

    /// [`Curve::at`], extended below 0 bytes, which stand for a private cache smaller than the measured one. There the
    /// curve continues in a straight line and exceeds 1.
    fn beyond(&self, bytes: f64) -> f64 {
        let (first, at_first) = self.0[0];
        let at_first = at_first.max(1e-6);
        if bytes < 0.0 {
            return 1.0 + at_first.ln() * bytes / first;
        }
        if bytes <= first {
            return at_first.powf(bytes / first);
        }
        let next = self.0.partition_point(|p| p.0 < bytes);
        let Some(&(above, at_above)) = self.0.get(next) else { return self.0[next - 1].1 };
        let (below, at_below) = self.0[next - 1];
        at_below + (at_above - at_below) * (bytes - below) / (above - below)
    }
}

/// The behaviour of a thread for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Instructions of one thread, > 0; `None`: a whole run, as many as the thread executes alone in two seconds.
    pub instructions: Option<f64>,
    /// Cycles per instruction with an ideal last private cache, > 0.
    pub cpi: f64,
    /// LLC accesses per 1,000 instructions, ≥ 0.
    pub llc_apki: f64,
    /// LLC latency over the cycles that a hit costs, ≥ 1.
    pub llc_mlp: f64,
    /// Memory latency over the cycles that a miss costs, ≥ 1.
    pub mlp: f64,
    /// Bytes beyond which more cache does not help, > 0.
    pub footprint_bytes: f64,
    /// Lines written back per line read, ≥ 0.
    pub writeback_ratio: f64,
    /// Misses per access against bytes held.
    pub miss_ratio: Curve,
    /// Bytes of the last private cache of the measured core, which the curve does not include; `None` if unknown.
    pub private_bytes: Option<f64>,
    /// Fraction (0–1) of lines from memory that a prefetcher fetches ahead: they use cache and bandwidth but count as
    /// no miss.
    pub prefetched: f64,
    /// Row-buffer locality, 0–1.
    pub row_locality: f64,
    /// Coherence events per 1,000 instructions with the other threads of the app, ≥ 0.
    pub coherence_pki: f64,
}

/// Placement of an app's pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Pages {
    /// On the node of the thread that first touches them, at its first place.
    #[default]
    FirstTouch,
    /// All on the node where its first thread starts, which loads the data that all threads use.
    FirstThread,
    /// Interleaved over all nodes.
    Interleave,
    /// These shares in the order of the nodes; they sum to 1.
    Fixed(Vec<f64>),
}

/// A program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its phases, in order; at least one.
    pub phases: Vec<Phase>,
    /// Fraction of the footprint shared by the app's threads, 0–1: counted once per LLC domain.
    pub shared: f64,
    /// Whether the threads wait for each other at barriers: the app advances with its slowest thread.
    pub barrier: bool,
    /// Placement of its pages.
    pub pages: Pages,
    /// Whether pages are huge (2 MiB): one fault and one decision of NUMA balancing for each.
    pub huge_pages: bool,
    /// Cache lines, all used alike, that cause its coherence events, ≥ 1: while a line moves to one thread, the others
    /// wait for it. `None`: so many that no thread ever waits.
    pub contended_lines: Option<f64>,
    /// Instructions after which all threads end and new ones continue with the same memory, > 0; `None`: threads last
    /// for the whole run.
    pub threads_anew: Option<f64>,
    /// Keys of its figures that are assumptions, all of [`ASSUMABLE`].
    pub assumed: Vec<String>,
}

/// Keys of a program's figures that may be called assumptions.
pub const ASSUMABLE: [&str; 8] =
    ["cpi", "llc_apki", "llc_mlp", "mlp", "footprint_bytes", "writeback_ratio", "coherence_pki", "shared"];

impl Program {
    /// A copy with one of these figures multiplied in all phases; for the footprint, the curve's bytes too. Fractions
    /// stay within 0–1 and counts stay ≥ 1.
    pub(crate) fn scaled(mut self, key: &str, by: f64) -> Self {
        if key == "shared" {
            self.shared = (self.shared * by).min(1.0);
        }
        for phase in &mut self.phases {
            match key {
                "cpi" => phase.cpi *= by,
                "llc_apki" => phase.llc_apki *= by,
                "llc_mlp" => phase.llc_mlp = (phase.llc_mlp * by).max(1.0),
                "mlp" => phase.mlp = (phase.mlp * by).max(1.0),
                "writeback_ratio" => phase.writeback_ratio *= by,
                "coherence_pki" => phase.coherence_pki *= by,
                "footprint_bytes" => {
                    phase.footprint_bytes *= by;
                    phase.miss_ratio.0.iter_mut().for_each(|point| point.0 *= by);
                }
                _ => {}
            }
        }
        self
    }
}
