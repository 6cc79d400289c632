//! Placement on a mesh of cores and memory controllers (Tumanov et al. 2013), on the simulated `TilePro64`.

use super::lab::Lab;
use super::row::{At, Found, Row, claim, effect, highest, level, lowest, mean, percent, row, spread};
use super::spread::Spread;
use anyhow::Context as _;
use cotenant_sim::kernel::KernelKind;
use std::fmt::Write as _;
use std::time::Duration;

const MACHINE: &str = "tilepro64";
/// Tiles in a row of the mesh.
const COLUMNS: u32 = 8;
/// The controller of figure 2, at the bottom left: tile (0, 7).
const BOTTOM_LEFT: usize = 2;
/// What watching costs one task (§5.1: 5.3 s become 5.8 s).
const COLLECTION: f64 = 5.8 / 5.3;
/// How often the collection looks (§4.1: 20 Hz).
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// Memory that a program walks through. Assumption: the paper prints no size; all of it is touched between two looks,
/// so that what the collection costs is so many page faults per look, and that a fault then takes about a microsecond
/// speaks for it.
const BLOCK: f64 = 16.0 * 1024.0 * 1024.0;
/// Copies of the program (figures 4 and 5).
const COPIES: [usize; 5] = [1, 2, 4, 8, 16];
/// Trials per seed: 60 with the usual ten (§4.3).
const TRIALS: u64 = 6;

/// A program of the paper, as its text describes it.
#[derive(Clone, Copy)]
struct Program {
    /// Cycles per instruction while everything hits.
    cpi: f64,
    /// What is known of its accesses.
    text: &'static str,
    instructions: f64,
}

/// Read, modify, write and flush each line of a block (§3.2): one line at a time.
/// Assumption: ten instructions per line, as the loop of `cotenant kernel rmw` has.
const BENCH2: Program = Program { cpi: 1.0, text: "llc_apki = 100\nmlp = 1\nwriteback_ratio = 1", instructions: 5e7 };
/// STREAM's copy. The processor is a 32-bit machine that loads or stores once per cycle: a line takes 16 loads, 16
/// stores, and by assumption 8 instructions that count; it reads two lines, since the one that is written is fetched,
/// too, and writes one back. The core works in order and nothing prefetches (Wikipedia on `TILEPro64`: in-order; no
/// prefetcher is described anywhere), so what it has on its way are the line that it waits for and the one that it
/// writes.
const STREAM: Program = Program { cpi: 1.0, text: "llc_apki = 50\nmlp = 2\nwriteback_ratio = 0.5", instructions: 1e8 };
/// Bytes that STREAM says that it copied, read and written, per instruction: twice a line in 40.
const STREAM_BYTES: f64 = 2.0 * 64.0 / 40.0;
/// A compiler (§3.2: cc1). Assumption: 20 accesses beyond the L2 per 1,000 instructions, half of them misses.
const COMPILER: Program = Program { cpi: 1.0, text: "llc_apki = 40\nmlp = 1", instructions: 2e8 };

impl Program {
    /// The program with its pages behind one controller.
    fn at(self, node: usize) -> String {
        let mut pages = ["0"; 4];
        pages[node] = "1";
        format!(
            "[program.at{node}]\ncpi = {}\n{}\nfootprint_bytes = {BLOCK}\nmiss_ratio = [[64, 1]]\npages = [{}]\n",
            self.cpi,
            self.text,
            pages.join(", ")
        )
    }

    fn app(self, node: usize) -> String {
        format!("[[app]]\nprogram = 'at{node}'\ninstructions = {}\n", self.instructions)
    }

    /// Seconds alone beside the controller, with a page fault of so many seconds.
    fn alone(self, policy: &str, fault_s: f64) -> anyhow::Result<f64> {
        let app = format!("{}cpus = '0'\n", self.app(0));
        times(&app, &self.at(0), policy, fault_s, 1)?.first().copied().context("no app")
    }
}

/// What a page fault must take for the collection to cost one striding task what it cost in the paper, seconds.
fn page_fault_s() -> anyhow::Result<f64> {
    let (free, tried) = (BENCH2.alone("none", 0.0)?, 1e-6);
    let cost = BENCH2.alone("overhead", tried)? / free - 1.0;
    Ok(tried * (COLLECTION - 1.0) / cost)
}

/// Seconds of each app under a policy, where each page that it touches between two looks costs it a fault.
fn times(apps: &str, programs: &str, policy: &str, fault_s: f64, seed: u64) -> anyhow::Result<Vec<f64>> {
    let mut scenario = Lab::scenario_on(MACHINE, &format!("{apps}{programs}"))?;
    scenario.observation.cost_s = 0.0;
    scenario.observation.page_fault_s = fault_s;
    scenario.config.interval = LOOKS_EVERY;
    let policy = cotenant_policies::standard().make(policy, &scenario.config).map_err(anyhow::Error::msg)?;
    let outcome = scenario.run(&*policy, KernelKind::default(), seed, |_| ())?;
    Ok(outcome.apps.iter().map(|app| app.time_s).collect())
}

/// Seconds of a program on each tile, in the order of their numbers, with its memory behind the controller at the
/// bottom left.
fn grid(lab: &Lab, what: &str, program: Program) -> anyhow::Result<Vec<f64>> {
    let tiles: Vec<u32> = (0..COLUMNS * COLUMNS).collect();
    let on = |tile: &u32| {
        let app = format!("{}cpus = '{tile}'\n", program.app(BOTTOM_LEFT));
        times(&app, &program.at(BOTTOM_LEFT), "none", 0.0, 1)?.first().copied().context("no app")
    };
    lab.parallel(what, &tiles, on)
}

fn hops(tile: usize) -> f64 {
    let (x, y) = (tile as u32 % COLUMNS, tile as u32 / COLUMNS);
    f64::from(x + (COLUMNS - 1 - y))
}

const BY_CONSTRUCTION: &str = "What a line takes beside its controller (memory_ns in machines/tilepro64.toml) was derived from these 14 % and a cycle per hop; that the spread is there is no finding, what part of it \
     a program sees is.";

/// Figure 2.
pub(super) fn heatmap(lab: &mut Lab) -> anyhow::Result<Found> {
    let found = grid(lab, "tumanov-heatmap", BENCH2)?;
    let (near, far) = (lowest(&found), highest(&found));
    let slowest = found.iter().position(|t| *t == far).map_or(0.0, hops);
    let grows = (0..64).all(|a| (0..64).all(|b| hops(a) >= hops(b) || found[a] < found[b]));
    let says = "time grows with the distance from the controller";
    let mut rows = vec![
        level("farthest over nearest tile, more", 14.0, percent(far / near), "%"),
        claim("hops of the slowest tile", slowest, "hops", says, grows),
    ];
    rows.extend(found.iter().enumerate().map(|(tile, time)| {
        let (x, y) = (tile as u32 % COLUMNS, tile as u32 / COLUMNS);
        let at = At { axis: "column", x: f64::from(x), y: Some(f64::from(y)) };
        row(format!("column {x}, row {y}"), time / near, "of the nearest").at(at)
    }));
    Ok(Found::tallied(rows, BY_CONSTRUCTION.to_owned()))
}

/// Figure 3.
pub(super) fn distance(lab: &mut Lab) -> anyhow::Result<Found> {
    let found = grid(lab, "tumanov-distance", COMPILER)?;
    let (x, y) = (mean((0..found.len()).map(hops)), mean(&found));
    let sum = |f: &dyn Fn(f64, f64) -> f64| found.iter().enumerate().map(|(i, t)| f(hops(i) - x, t - y)).sum::<f64>();
    let (xy, xx, yy) = (sum(&|a, b| a * b), sum(&|a, _| a * a), sum(&|_, b| b * b));
    let (near, r2) = (lowest(&found), xy * xy / (xx * yy));
    let mut rows = vec![
        level("farthest over nearest tile, more", 14.0, percent(highest(&found) / near), "%"),
        claim("R² of a line through time over hops", r2, "", "a clear linear relationship", r2 > 0.95),
        row("slope", xy / xx / near * 100.0, "% per hop"),
    ];
    rows.extend(found.iter().enumerate().map(|(tile, time)| {
        let at = At { axis: "hops from the controller", x: hops(tile), y: None };
        row(format!("{} hops, tile {tile}", at.x), time / near, "of the nearest").at(at)
    }));
    let note = format!("cc1's accesses to memory are an assumption: the paper counts none. {BY_CONSTRUCTION}");
    Ok(Found::tallied(rows, note))
}

/// Name, policy, and whether watching costs what it cost in the paper.
const ARMS: [(&str, &str, bool); 5] = [
    ("baseline", "none", false),
    ("overhead", "overhead", true),
    ("weighted", "weighted", true),
    ("brute force", "brute-force", true),
    ("weighted, counted for nothing", "weighted", false),
];

/// The tasks of a trial that the paper draws.
const TASKS: [&str; 3] = ["slowest task", "median task", "fastest task"];

/// Seconds of the slowest, the median and the fastest task of each trial, for each arm.
type Trials = [Vec<f64>; 3];

fn trials(lab: &Lab, what: &str, program: Program, copies: usize) -> anyhow::Result<Vec<Trials>> {
    let fault_s = page_fault_s()?;
    let seeds: Vec<u64> = (1..=lab.effort.seeds * TRIALS).collect();
    let one = |seed: &u64| {
        // Which controller has the memory of a task is drawn.
        let mut rng = fastrand::Rng::with_seed(*seed);
        let mut apps = String::new();
        for _ in 0..copies {
            let _ = write!(apps, "{}", program.app(rng.usize(0..4)));
        }
        let run = |(_, policy, cost): (&str, &str, bool)| {
            let programs: String = (0..4).map(|node| program.at(node)).collect();
            let mut found = times(&apps, &programs, policy, if cost { fault_s } else { 0.0 }, *seed)?;
            found.sort_by(f64::total_cmp);
            Ok([found[found.len() - 1], found[found.len() / 2], found[0]])
        };
        ARMS.into_iter().map(run).collect::<anyhow::Result<Vec<[f64; 3]>>>()
    };
    let found = lab.parallel(what, &seeds, one)?;
    let of = |arm: usize, which: usize| found.iter().map(|trial| trial[arm][which]).collect();
    Ok((0..ARMS.len()).map(|arm| [of(arm, 0), of(arm, 1), of(arm, 2)]).collect())
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values, "", "", "").median
}

/// What the paper draws of a task's seconds: the seconds themselves, or what it copied per second.
#[derive(Clone, Copy)]
struct Drawn {
    unit: &'static str,
    of: fn(f64) -> f64,
}

/// Figures 4 and 5: the tasks' speeds over the baseline's in percent, and box plots over trials.
fn boxes(
    lab: &mut Lab,
    what: &str,
    program: Program,
    drawn: Drawn,
    judged: impl Fn(&[f64]) -> Vec<Row>,
) -> anyhow::Result<Found> {
    let (mut rows, mut plots) = (Vec::new(), Vec::new());
    for copies in COPIES {
        let found = trials(lab, what, program, copies)?;
        let group = if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
        let gain = |arm: usize, which: usize| percent(median(&found[0][which]) / median(&found[arm][which]));
        for (arm, (name, ..)) in ARMS.iter().enumerate().skip(1) {
            for (which, task) in TASKS.into_iter().enumerate() {
                rows.push(row(format!("{group}, {name}: {task} over baseline"), gain(arm, which), "%"));
            }
        }
        for (which, task) in TASKS.into_iter().enumerate() {
            for (arm, (name, ..)) in ARMS.iter().enumerate() {
                let values: Vec<f64> = found[arm][which].iter().map(|s| (drawn.of)(*s)).collect();
                plots.push(spread(&values, task, &group, name, drawn.unit));
            }
        }
        let medians: Vec<f64> = found.iter().map(|arm| median(&arm[1])).collect();
        if copies == COPIES[COPIES.len() - 1] {
            rows.splice(0..0, judged(&medians));
        }
    }
    rows.extend(plots);
    let fault_s = page_fault_s()?;
    let cost = program.alone("overhead", fault_s)? / program.alone("none", 0.0)? - 1.0;
    let note = format!(
        "Medians and box plots of {} trials. Each task's memory is behind one controller, drawn anew per trial: the paper does not say where Linux put it. Looked at 20 times a second, each page \
         that a task touches costs it a fault of {:.2} µs, which makes one striding task {:.1} % slower as in the paper (§5.1: 9) and this program alone {:.1} %; the last arm is what \
         hardware counters would give.",
        lab.effort.seeds * TRIALS,
        fault_s * 1e6,
        percent(COLLECTION),
        cost * 100.0
    );
    Ok(Found::tallied(rows, note))
}

/// By how many percent `a` is faster than `b`.
fn faster(a: f64, b: f64) -> f64 {
    percent(b / a)
}

/// Figure 4.
pub(super) fn stream(lab: &mut Lab) -> anyhow::Result<Found> {
    let drawn = Drawn { unit: "MB/s", of: |s| STREAM.instructions * STREAM_BYTES / s / 1e6 };
    boxes(lab, "tumanov-stream", STREAM, drawn, |m| {
        let why = "what a copy asks of memory and behind which controllers its memory lies are assumptions";
        vec![
            effect("16 copies: overhead over baseline", -10.5, faster(m[1], m[0])).because(why),
            effect("16 copies: weighted over overhead", 5.0, faster(m[2], m[1])).because(why),
            effect("16 copies: weighted over baseline", -5.0, faster(m[2], m[0])).because(why),
        ]
    })
}

/// Figure 5.
pub(super) fn bench2(lab: &mut Lab) -> anyhow::Result<Found> {
    boxes(lab, "tumanov-bench2", BENCH2, Drawn { unit: "s", of: |s| s }, |m| {
        let holds = m[2] < m[1] && m[3] < m[1];
        vec![
            claim("16 copies: overhead over baseline", faster(m[1], m[0]), "%", "watching costs", m[1] > m[0]),
            claim("16 copies: weighted over overhead", faster(m[2], m[1]), "%", "both placements win", holds),
            row("16 copies: brute force over overhead", faster(m[3], m[1]), "%"),
            row("16 copies: weighted, counted for nothing, over baseline", faster(m[4], m[0]), "%"),
        ]
    })
}
