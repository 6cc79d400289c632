//! Cost and accuracy of finding accessed memory: rate against cost against accuracy, on a program of 1 GB, and of 8 GB
//! if that much is free, that writes to random pages in a quarter of its memory. One JSON object per line.
//!
//! Windows with and without collection alternate. `ratio` is the program's writes per second of its own CPU time with
//! collection over those without (geometric mean of the pairs, with minimum and maximum), so that the effect of other
//! programs cancels out. `cpu_percent` is the collector's own CPU time. `share` is the fraction of findings in the
//! written quarter (ideally 1), `pages` the pages found over the pages written. For `placement`, which walks all pages,
//! and `drawn`, which samples random ones, `pages` is the resident pages found over the real number; `error` is the
//! estimate's standard error in the same unit.
//!
//! With `COTENANT_BENCH_SEGMENTS=PAIRS` it measures instead the cost of a look for the program's throughput, to a few
//! tenths of a percent ([`segments`]); 200 pairs take 19 minutes. `COTENANT_BENCH_THREADS` is the number of the
//! program's threads, 1 by default: with one per CPU the collector takes its time from the program. `huge` is the
//! fraction of its memory in huge pages.

mod look;
mod program;
mod segments;

use cotenant_testing::bench::Report;
use look::{How, Looks};
use program::Program;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn main() {
    if let Ok(spec) = std::env::var(program::PROGRAM) {
        program::run(&spec);
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let threads = number("COTENANT_BENCH_THREADS").unwrap_or(1);
    match number("COTENANT_BENCH_SEGMENTS") {
        Some(pairs) => by_segments(pairs, threads),
        None => by_windows(number("COTENANT_BENCH_PAIRS").unwrap_or(5), threads),
    }
}

fn by_windows(pairs: usize, threads: usize) {
    let mut rows = Report::new("collectors");
    let draws = Looks::draws();
    for (gb, pages) in [(1, "small"), (1, "huge"), (8, "small")] {
        let Some(mut program) = start(gb, pages, threads) else { continue };
        for (how, rate) in [
            (How::Placement, 1.0),
            (How::Drawn, 20.0),
            (How::Drawn, 1.0),
            (How::Accessed, 20.0),
            (How::Accessed, 5.0),
            (How::Accessed, 1.0),
            (How::Accessed, 0.3),
        ] {
            // Larger memory slows a look: 200 ms and more for 8 GB.
            if gb == 8 && rate > 1.0 && how == How::Accessed && !draws {
                continue;
            }
            let row = json!({"gb": gb, "page_size": pages, "huge": program.huge(), "threads": threads});
            rows.row(joined(row, &measure(&mut program, how, rate, pairs)));
        }
    }
}

/// Segments are as short as a look allows, which maximizes their number.
fn by_segments(pairs: usize, threads: usize) {
    let mut rows = Report::new("collectors-segments");
    let short = [(How::Nothing, 250), (How::Drawn, 250), (How::Accessed, 500), (How::Placement, 500)];
    for (gb, pages, ways) in [
        (1, "small", &short[..]),
        (1, "huge", &[(How::Accessed, 250)][..]),
        (8, "huge", &[(How::Accessed, 250)][..]),
        (8, "small", &[(How::Drawn, 250), (How::Accessed, 1000)][..]),
    ] {
        let Some(mut program) = start(gb, pages, threads) else { continue };
        for &(how, length) in ways {
            // Time limit of each: that of 500 ms of looks, because long looks lose much.
            let pairs = pairs.min(pairs * 500 / length);
            let row = json!({"gb": gb, "page_size": pages, "huge": program.huge(), "threads": threads});
            let measured = segments::measure(&mut program, how, Duration::from_millis(length as u64), pairs);
            rows.row(joined(joined(row, &measured), &json!({"load": load()})));
        }
    }
}

/// The program, if there is room for twice its size.
fn start(gb: usize, pages: &str, threads: usize) -> Option<Program> {
    if free_gb() < 2 * gb {
        eprintln!("skipped: {gb} GB, of which twice as much must be free: {} GB are", free_gb());
        return None;
    }
    Some(Program::start(gb << 30, pages, threads))
}

fn free_gb() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<usize>().ok()).map_or(0, |kb| kb >> 20)
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

fn joined(mut row: Value, more: &Value) -> Value {
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    row
}

/// Writes per second of CPU time meanwhile.
fn speed(program: &mut Program, meanwhile: impl FnOnce(&mut Program)) -> f64 {
    let before = program.progress();
    meanwhile(program);
    let after = program.progress();
    (after.writes - before.writes) as f64 / ((after.cpu - before.cpu) as f64 / 1e9)
}

/// One method and rate.
fn measure(program: &mut Program, how: How, rate: f64, pairs: usize) -> Value {
    let every = Duration::from_secs_f64(1.0 / rate);
    let length = Duration::from_secs(2).max(every * 2);
    let mut looks = Looks::new(program);
    let mut ratios = Vec::new();
    for _ in 0..pairs {
        let without = speed(program, |_| std::thread::sleep(length));
        let with = speed(program, |program| {
            let begin = Instant::now();
            while begin.elapsed() < length {
                let look = Instant::now();
                looks.look(how, program, every);
                std::thread::sleep(every.saturating_sub(look.elapsed()));
            }
        });
        ratios.push(with / without);
    }
    let time = length.as_secs_f64() * pairs as f64;
    let mean = (ratios.iter().map(|r: &f64| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let row = json!({
        "how": how, "rate_hz": rate, "pairs": pairs,
        "cpu_percent": looks.spent.as_secs_f64() / time * 100.0,
        "ratio": mean,
        "lowest": ratios.iter().copied().fold(f64::INFINITY, f64::min),
        "highest": ratios.iter().copied().fold(0.0, f64::max),
        "load": load(),
    });
    joined(row, &looks.row())
}
