//! The kernels' footprints and accesses, counted by cachegrind: what each function of C touched, in caches like this
//! machine's.
//!
//! Cachegrind simulates two levels, so that each cache level beyond the first has its own run; invalid geometries are
//! replaced by the nearest valid ones and printed (`--nocapture`). Without valgrind the tests are skipped with a
//! message.

use cotenant_kernels::{Caches, Config, Kernel};
use cotenant_model::topology::{CacheType, Kind, Resource};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

/// Larger last-level caches are simulated at this size: simulated initialization of twice their size takes minutes.
const LARGEST: u64 = 32 << 20;

/// A cache in cachegrind's format.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    size: u64,
    ways: u64,
    line: u64,
}

impl Geometry {
    /// The nearest valid one: a power of two of sets.
    fn nearest(cache: &Resource) -> Self {
        let (ways, line) =
            (u64::from(cache.ways.filter(|w| *w > 0).unwrap_or(8)), u64::from(cache.line_size.unwrap_or(64)));
        let capacity = cache.capacity.expect("caches without a size are left out").min(LARGEST);
        let below = (capacity / ways / line).max(1).ilog2();
        let sizes = [1 << below, 1 << (below + 1)].map(|sets: u64| sets * ways * line);
        let size = sizes.into_iter().filter(|s| *s <= 2 * LARGEST).min_by_key(|size| size.abs_diff(capacity)).unwrap();
        let real =
            format!("{} bytes, {:?} ways, {:?}-byte lines", cache.capacity.unwrap(), cache.ways, cache.line_size);
        let geometry = Self { size, ways, line };
        eprintln!("L{}: {real}; cachegrind simulates {geometry}", cache.level);
        geometry
    }
}

impl std::fmt::Display for Geometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{},{}", self.size, self.ways, self.line)
    }
}

/// This machine's data caches by level, if cachegrind is installed.
fn caches(test: &str) -> Option<Vec<Geometry>> {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {test}: valgrind is not there; apt-get install valgrind");
        return None;
    }
    let topology = cotenant_linux::sense::topology::live().unwrap().topology;
    let mut levels = BTreeMap::new();
    for cache in topology.resources().iter().filter(|r| r.capacity.is_some()) {
        if matches!(cache.kind, Kind::Cache(CacheType::Data | CacheType::Unified)) {
            levels.entry(cache.level).or_insert(cache);
        }
    }
    let geometries: Vec<_> = levels.values().map(|cache| Geometry::nearest(cache)).collect();
    if geometries.len() < 2 {
        eprintln!("skipped: {test}: this machine tells of fewer than two levels of caches");
        return None;
    }
    Some(geometries)
}

/// Events of one function of C, per unit of work.
#[derive(Clone, Copy, Debug)]
struct Counts {
    instructions: f64,
    reads: f64,
    writes: f64,
    /// Misses of the first level, and of the other simulated one.
    first: f64,
    last: f64,
}

/// A kernel's run; `None`: its default.
#[derive(Clone, Copy, Debug, Default)]
struct Run<'a> {
    kernel: &'a str,
    units: u64,
    size: Option<u64>,
    compute: Option<u64>,
    stride: Option<u64>,
}

/// Passes a [`Run`] to this test's own copy in the simulation, which starts faster than `cotenant kernel`.
const RUN: &str = "COTENANT_TEST_FOOTPRINT";

#[test]
fn program() {
    let Ok(run) = std::env::var(RUN) else { return eprintln!("skipped: other tests start it as a program") };
    let mut words = run.split(' ');
    let kernel = Kernel::by_name(words.next().unwrap()).unwrap();
    let [limit, size, compute, stride] = [(); 4].map(|()| words.next().unwrap().parse().ok());
    let caches = Caches::of(&cotenant_linux::sense::topology::live().unwrap().topology);
    kernel.run(&Config { limit, size, compute, stride, ..Config::new(1, caches) }, None, &mut || true).unwrap();
}

/// Runs a kernel under simulation and counts its function's events.
fn count(function: &str, first: Geometry, last: Geometry, run: Run<'_>) -> Counts {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("cotenant-footprint-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let out = std::env::temp_dir().join(name);
    let Run { kernel, units, size, compute, stride } = run;
    let [size, compute, stride] = [size, compute, stride].map(|set| set.map_or("-".to_owned(), |set| set.to_string()));
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=yes", "--quiet"])
        .arg(format!("--D1={first}"))
        .arg(format!("--LL={last}"))
        .arg(format!("--cachegrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "footprints::program", "--test-threads=1"])
        .env(RUN, format!("{kernel} {units} {size} {compute} {stride}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{run:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&out).unwrap();
    fs::remove_file(&out).unwrap();
    let (mut events, mut inside, mut sums) = (Vec::new(), false, BTreeMap::<&str, u64>::new());
    for line in text.lines() {
        if let Some(names) = line.strip_prefix("events:") {
            events = names.split_whitespace().collect();
        } else if let Some(name) = line.strip_prefix("fn=") {
            // Compilers name specialised copies after the original.
            inside = name.strip_prefix(function).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        } else if inside && line.starts_with(|c: char| c.is_ascii_digit()) {
            for (event, value) in events.iter().zip(line.split_whitespace().skip(1)) {
                *sums.entry(event).or_default() += value.parse::<u64>().unwrap();
            }
        }
    }
    assert!(!sums.is_empty(), "{function} is not in cachegrind's output");
    let per_unit = |names: &[&str]| names.iter().map(|name| sums[name]).sum::<u64>() as f64 / units as f64;
    let counts = Counts {
        instructions: per_unit(&["Ir"]),
        reads: per_unit(&["Dr"]),
        writes: per_unit(&["Dw"]),
        first: per_unit(&["D1mr", "D1mw"]),
        last: per_unit(&["DLmr", "DLmw"]),
    };
    eprintln!("{function} {run:?}: {counts:.3?}");
    counts
}

/// A kernel and its events per unit with memory of twice the cache or more.
struct Expected {
    kernel: &'static str,
    function: &'static str,
    /// Minimum and maximum misses per unit, given the bytes of the memory and of the cache.
    misses: fn(f64, f64) -> (f64, f64),
}

/// This many, plus a hundredth for the beginning.
fn about(misses: f64) -> (f64, f64) {
    (misses * 0.99 - 0.01, misses * 1.01 + 0.01)
}

/// The same for this many passes over twice the memory of the cache: initialization has left one half in the cache,
/// which the first pass hits.
fn beginning((least, most): (f64, f64), passes: f64) -> (f64, f64) {
    (least * (1.0 - 0.5 / passes), most)
}

/// A uniformly random word is in the cache with probability cache / memory.
fn random(memory: f64, cache: f64) -> (f64, f64) {
    (0.95 - cache / memory, 1.05 - cache / memory)
}

/// A lookup in a balanced tree visits one node of each depth d, each of the 2^d equally likely. An LRU cache of this
/// many lines holds what the last T lookups touched, with T such that this just fits (Che's approximation).
fn tree(memory: f64, cache: f64) -> (f64, f64) {
    let depth = (memory / 32.0).log2().round() as i32;
    // The fraction of lookups that reach a depth: all but those that ended above it.
    let comes = |d: i32| 1.0 - (2f64.powi(d) - 1.0) / 2f64.powi(depth);
    let absent = |d: i32, t: f64| (1.0 - 0.5f64.powi(d) * comes(d)).powf(t);
    // A line holds two unrelated nodes, and is present if either was visited.
    let mate_absent = |t: f64| (0..depth).map(|d| 2f64.powi(d - depth) * absent(d, t)).sum::<f64>();
    let lines = |t: f64| memory / 64.0 * (1.0 - mate_absent(t).powi(2));
    let (mut low, mut high) = (0.0, memory);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        *(if lines(middle) > cache / 64.0 { &mut high } else { &mut low }) = middle;
    }
    let misses: f64 = (0..depth).map(|d| comes(d) * absent(d, low) * mate_absent(low)).sum();
    // More than LRU: the second cache only sees misses of the first, and ages the nodes that the first one holds.
    (misses * 0.85, misses * 1.3)
}

const LINE_WORDS: f64 = 8.0;

const IN_TURN: &[Expected] = &[
    Expected { kernel: "chase", function: "ck_chase", misses: |_, _| about(1.0) },
    Expected { kernel: "inject-memory", function: "ck_inject", misses: |_, _| about(1.0) },
    Expected { kernel: "rmw", function: "ck_rmw", misses: |_, _| about(1.0) },
    // One line read, one written.
    Expected { kernel: "membench-high", function: "ck_membench", misses: |_, _| about(2.0) },
    Expected { kernel: "membench-low", function: "ck_membench", misses: |_, _| about(2.0) },
    Expected { kernel: "sledge-small", function: "ck_sledge", misses: |_, _| about(2.0 / LINE_WORDS) },
    Expected { kernel: "naive-4mb", function: "ck_naive", misses: random },
    Expected { kernel: "er-naive-4mb", function: "ck_er_naive", misses: random },
    Expected { kernel: "bst-4mb", function: "ck_bst", misses: tree },
    // Rows of blocks begin and end inside lines, and the remainder of the last block hits.
    Expected {
        kernel: "blockie-small",
        function: "ck_blockie",
        misses: |memory, cache| (if memory < 32.0 * cache { 0.0 } else { 0.1 }, 0.5),
    },
];

/// Units that cover this much memory at least three times, enough for one-time effects not to matter.
fn units(expected: &Expected, bytes: u64) -> u64 {
    let units = match expected.kernel {
        "sledge-small" | "blockie-small" => 3 * bytes / 8,
        "bst-4mb" => bytes / 64,
        _ => 3 * bytes / 64,
    };
    units.max(20_000)
}

/// Promise measure/kernels: Kernels touch the memory that their page says at the rate that is asked for, and end on a
/// signal with their result.
#[test]
fn each_footprint_is_what_it_is_said_to_be() {
    let Some(caches) = caches("each_footprint_is_what_it_is_said_to_be") else { return };
    let (first, second) = (caches[0], caches[1]);
    let check = |expected: &Expected| {
        // Other node counts have leaves of two depths, which the model does not cover. The next power of two still
        // fits, because only half of the cache is used.
        let fitting = |bytes: u64| if expected.kernel == "bst-4mb" { bytes.next_power_of_two() } else { bytes };
        let run = |bytes| {
            let units = units(expected, bytes);
            let run = Run { kernel: expected.kernel, units, size: Some(bytes), ..Run::default() };
            count(expected.function, first, second, run)
        };
        let check = |what: &str, counted: f64, (least, most): (f64, f64)| {
            assert!(
                (least..=most).contains(&counted),
                "{}, {what}: {counted} is not {least} to {most}",
                expected.kernel
            );
        };
        let misses = |bytes: u64, cache: Geometry| (expected.misses)(bytes as f64, cache.size as f64);
        let small = run(fitting(first.size / 2));
        check("half the first level", small.first, (0.0, 0.01));
        check("half the first level", small.last, (0.0, 0.01));
        let middle = fitting(second.size / 2);
        let between = run(middle);
        if middle >= 2 * first.size {
            check("half the second level, in the first", between.first, misses(middle, first));
        }
        check("half the second level", between.last, (0.0, 0.01));
        let most = fitting(2 * second.size);
        let large = run(most);
        check("twice the second level, in the first", large.first, misses(most, first));
        check("twice the second level", large.last, beginning(misses(most, second), 3.0));
    };
    // Each is simulated on one CPU.
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(expected) = IN_TURN.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(expected);
                }
            });
        }
    });
}

/// Holds measure/kernels.
#[test]
fn memory_kernels_miss_the_last_level() {
    let Some(caches) = caches("memory_kernels_miss_the_last_level") else { return };
    let (first, llc) = (caches[0], caches[caches.len() - 1]);
    for expected in IN_TURN.iter().filter(|e| ["inject-memory", "membench-low"].contains(&e.kernel)) {
        let run = Run { kernel: expected.kernel, units: 100_000, size: Some(2 * llc.size), ..Run::default() };
        let counted = count(expected.function, first, llc, run);
        let (least, most) = beginning((expected.misses)(2.0, 1.0), 1.0);
        assert!(
            (least..=most).contains(&counted.last),
            "{}: {} is not {least} to {most}",
            expected.kernel,
            counted.last
        );
    }
}

/// Holds measure/kernels.
#[test]
fn the_second_level_injector_misses_the_first_and_hits_the_second() {
    let Some(caches) = caches("the_second_level_injector_misses_the_first_and_hits_the_second") else { return };
    let counted =
        count("ck_inject", caches[0], caches[1], Run { kernel: "inject-l2", units: 50_000, ..Run::default() });
    assert!((0.99..=1.01).contains(&counted.first), "{counted:?}");
    assert!(counted.last <= 0.01, "{counted:?}");
}

/// Holds measure/kernels.
#[test]
fn stream_moves_what_it_is_said_to_move() {
    let Some(caches) = caches("stream_moves_what_it_is_said_to_move") else { return };
    let (first, second) = (caches[0], caches[1]);
    for (kernel, arrays) in [("stream-copy", 2.0), ("stream-scale", 2.0), ("stream-add", 3.0), ("stream-triad", 3.0)] {
        let run = Run { kernel, units: 12 * second.size / 24, size: Some(6 * second.size), ..Run::default() };
        let counted = count("ck_stream_pass", first, second, run);
        let (least, most) = beginning(about(arrays / LINE_WORDS), 1.0);
        assert!((least..=most).contains(&counted.last), "{kernel}: {counted:?} is not {least} to {most}");
    }
}

/// Holds measure/kernels.
#[test]
fn strides_touch_one_place_each() {
    let Some(caches) = caches("strides_touch_one_place_each") else { return };
    for (stride, misses) in [(8, 1.0 / LINE_WORDS), (32, 0.5), (64, 1.0), (256, 1.0), (4096, 1.0)] {
        let size = Some(4 * caches[0].size);
        let run = Run { kernel: "rmw", units: 20_000, size, stride: Some(stride), ..Run::default() };
        let counted = count("ck_rmw", caches[0], caches[1], run);
        let (least, most) = about(misses);
        assert!((least..=most).contains(&counted.first), "{stride}: {counted:?}");
        // Cachegrind counts a read-modify-write instruction as one read.
        assert!((counted.reads - 1.0).abs() < 0.05 && counted.writes < 1.05, "{stride}: {counted:?}");
    }
}

/// Holds measure/kernels.
#[test]
fn computation_is_in_proportion_to_shared_accesses() {
    let Some(caches) = caches("computation_is_in_proportion_to_shared_accesses") else { return };
    let run = |compute| {
        let run = Run { kernel: "lubench", units: 2_000, compute: Some(compute), ..Run::default() };
        count("ck_coherence", caches[0], caches[1], run)
    };
    let (none, some, more) = (run(0), run(192), run(961));
    let per_step = (some.instructions - none.instructions) / 192.0;
    assert!((2.0..=6.0).contains(&per_step), "a multiplication, an addition and the loop: {per_step}");
    let expected = none.instructions + 961.0 * per_step;
    assert!((more.instructions / expected - 1.0).abs() < 0.01, "{} for {expected}", more.instructions);
    // The amount of computation does not change memory accesses.
    let touched = |counts: Counts| counts.reads + counts.writes;
    assert!((touched(more) - touched(none)).abs() < 0.2, "{more:?} {none:?}");
    let cpu = count("ck_cpu", caches[0], caches[1], Run { kernel: "cpu", units: 100_000, ..Run::default() });
    assert!(touched(cpu) < 0.01, "{cpu:?}");
}
