//! Applications as the simulator knows them: what a program does alone, in figures that were measured or are called
//! assumptions.

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
    /// From points (bytes, misses per access): bytes rise, ratios lie in 0–1 and do not rise. `None` where they do not.
    pub fn new(points: Vec<(f64, f64)>) -> Option<Self> {
        let sound = |p: &(f64, f64)| p.0.is_finite() && p.0 > 0.0 && (0.0..=1.0).contains(&p.1);
        let ordered = points.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 >= p[1].1);
        (!points.is_empty() && points.iter().all(sound) && ordered).then_some(Self(points))
    }

    /// The ratio with `bytes` held: straight between points; below the first an exponential from (0, 1), which says
    /// that every byte saves the same share of the misses that are left (nothing was measured there); constant above
    /// the last.
    pub fn at(&self, bytes: f64) -> f64 {
        self.beyond(bytes.max(0.0))
    }

    fn points(&self) -> &[(f64, f64)] {
        &self.0
    }

    /// [`Curve::at`], where less than nothing held stands for a smaller private cache before this one: above 1,
    /// misses per access that there were with the measured private cache. It goes on straight from nothing held: an
    /// extrapolation by the size of that cache.
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

/// What a thread does for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Instructions of one thread, > 0; `None` = the whole of a run, as many as it executes alone in two seconds.
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
    /// Bytes of the last private cache of the core that the figures were measured on, whose contents the curve does
    /// not count; `None` where that is not known.
    pub private_bytes: Option<f64>,
    /// Part of its lines from memory that a prefetcher fetches ahead, 0–1: they take room and bandwidth as all do, and
    /// count as no miss.
    pub prefetched: f64,
    /// Row-buffer locality, 0–1.
    pub row_locality: f64,
    /// Coherence events per 1,000 instructions with the other threads of the app, ≥ 0.
    pub coherence_pki: f64,
}

/// Where an app's pages lie.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Pages {
    /// On the node of the thread that touches them first: where it starts.
    #[default]
    FirstTouch,
    /// All on the node where its first thread starts: that one loads what all work on.
    FirstThread,
    /// On all nodes alike.
    Interleave,
    /// These shares, in the order of the nodes; they sum to 1.
    Fixed(Vec<f64>),
}

/// A program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its phases, in order; at least one.
    pub phases: Vec<Phase>,
    /// Share of the footprint that the threads of the app have in common, 0–1: counted once per LLC domain.
    pub shared: f64,
    /// Whether the threads wait for each other at barriers: the app advances with its slowest thread.
    pub barrier: bool,
    /// Where its pages lie.
    pub pages: Pages,
    /// Whether they are huge pages of 2 MiB: one fault and one decision of NUMA balancing for each.
    pub huge_pages: bool,
    /// Cache lines, all used alike, on which its coherence events are, ≥ 1: a line that is under way to one thread
    /// lets the others wait. `None`: so many that nobody waits.
    pub contended_lines: Option<f64>,
    /// Instructions of a thread after which all threads end, and others are created in their stead that go on with the
    /// same memory, > 0; `None`: they last for the whole run.
    pub threads_anew: Option<f64>,
    /// Keys of its figures that are assumptions, all of [`ASSUMABLE`].
    pub assumed: Vec<String>,
}

/// Keys of a program's figures that may be called assumptions.
pub const ASSUMABLE: [&str; 8] =
    ["cpi", "llc_apki", "llc_mlp", "mlp", "footprint_bytes", "writeback_ratio", "coherence_pki", "shared"];

impl Program {
    /// With one of these figures multiplied, in all phases; of the footprint the curve's bytes, too. What is a share
    /// or counts overlaps stays one.
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
