//! Cost of a look for the program, to a few tenths of a percent: within one run, neighbouring segments with one look
//! and without alternate, in the order with, without, without, with, …, so that drift affects both alike. The result is
//! the median over hundreds of pairs.

use crate::look::{How, Looks};
use crate::program::Program;
use cotenant_model::stats::median::{Median, middle};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Limit of looks per second: at accesses, and at the place of pages.
const MOST_PER_S: [f64; 2] = [20.0, 1.0];
/// Default budget of looks, in CPUs.
const BUDGET: f64 = 0.01;

/// Writes per second in a segment, by the clock and by the program's own CPU time, and its duration.
struct Segment {
    per_s: f64,
    per_cpu_s: f64,
    seconds: f64,
}

fn segment(program: &mut Program, length: Duration, meanwhile: impl FnOnce(&mut Program)) -> Segment {
    let (begin, before) = (Instant::now(), program.progress());
    meanwhile(program);
    std::thread::sleep(length.saturating_sub(begin.elapsed()));
    let after = program.progress();
    let (writes, seconds) = ((after.writes - before.writes) as f64, (after.clock - before.clock) as f64 * 1e-9);
    Segment { per_s: writes / seconds, per_cpu_s: writes / ((after.cpu - before.cpu) as f64 * 1e-9), seconds }
}

/// Measures this many pairs of segments of that length. `ratio` is the program's speed with a look over that without,
/// by the clock (`cpu_ratio`: by its CPU time): the median and its 95 % interval. `lost_ms` is the cost of a look. `hz`
/// looks a second, the default budget, cost `lost_percent`; `hz_of_1_percent` cost one percent, null if a look costs
/// nothing.
pub fn measure(program: &mut Program, how: How, length: Duration, pairs: usize) -> Value {
    let mut looks = Looks::new(program);
    let (mut ratios, mut cpu_ratios, mut seconds) = (Vec::new(), Vec::new(), 0.0);
    for pair in 0..pairs {
        let mut one = |with| {
            let how = if with { how } else { How::Nothing };
            segment(program, length, |program| looks.look(how, program, length))
        };
        let (a, b) = (one(pair % 2 == 0), one(pair % 2 != 0));
        let (with, without) = if pair % 2 == 0 { (a, b) } else { (b, a) };
        ratios.push(with.per_s / without.per_s);
        cpu_ratios.push(with.per_cpu_s / without.per_cpu_s);
        seconds += with.seconds / pairs as f64;
    }
    let (ratio, cpu_ratio) = (middle(&ratios), middle(&cpu_ratios));
    let most = MOST_PER_S[usize::from(how != How::Accessed)];
    let hz = if looks.count > 0 { most.min(BUDGET / looks.seconds()) } else { 0.0 };
    let lost = |ratio: f64| (1.0 - ratio) * seconds;
    let one_percent = |ratio: f64| (lost(ratio) > 0.0 && how != How::Nothing).then(|| 0.01 / lost(ratio));
    // A lower speed is a larger loss, so that the ends of the interval swap.
    let ends = |Median { value, low, high }: Median| [value, low, high];
    let [value, low, high] = ends(ratio);
    let one_percents = [value, low, high].map(one_percent);
    let losses = |factor: f64| [value, high, low].map(|ratio| lost(ratio) * factor);
    let mut row = json!({
        "how": how, "pairs": pairs, "segment_s": seconds,
        "ratio": [value, low, high],
        "cpu_ratio": ends(cpu_ratio),
        "lost_ms": losses(1e3),
        "hz": hz,
        "lost_percent": losses(hz * 100.0),
        "hz_of_1_percent": one_percents,
    });
    row.as_object_mut().unwrap().extend(looks.row().as_object().unwrap().clone());
    row
}
