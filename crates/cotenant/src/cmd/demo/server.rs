//! The server of the demonstration: open-loop requests at scheduled times.

use anyhow::Result;
use cotenant_linux::sys;
use cotenant_model::Histogram;
use cotenant_model::stats::Summary;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// Requests per second, at random times (Poisson).
pub const PER_S: f64 = 1000.0;

/// An answer takes so many dependent lookups in a table of so many entries: 1 MiB, partly held by a second-level cache.
const LOOKUPS: usize = 5_000;
const ENTRIES: u32 = 1 << 18;

/// Earlier requests do not count, since programs start and fill their memory.
pub const SETTLING: Duration = Duration::from_millis(500);

/// Requests still open after this time are answered all at once, with at least this latency: an overloaded server would
/// need for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pieces of a phase.
const PIECES: usize = 10;

/// The latencies of a phase. They are seconds from the moment a request was due, independent of its sending.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Served {
    pub answers: u64,
    pub p50_s: f64,
    pub p99_s: f64,
    /// 95 % interval of the p99.
    pub p99_interval_s: [f64; 2],
}

impl Served {
    /// From histograms of nanoseconds, one per piece; `None` without answers.
    ///
    /// The interval is Woodruff's: the quantiles at its ends are apart by the scatter of the share of slow answers
    /// between pieces. Slow answers come in bursts, so they do not count as independent.
    pub fn of(pieces: &[Histogram]) -> Option<Self> {
        let mut all = Histogram::default();
        for piece in pieces {
            all.add(piece);
        }
        let p99 = all.quantile(0.99)?;
        let asked = pieces.iter().filter(|piece| piece.count() > 0);
        let slow: Option<Vec<f64>> = asked.map(|piece| Some(piece.above(p99)? / piece.count() as f64)).collect();
        let about = Summary::of(&slow?).estimate().map_or(1.0, |slow| slow.half_width);
        let seconds = |q: f64| Some(all.quantile(q.clamp(0.0, 1.0))? / 1e9);
        Some(Self {
            answers: all.count(),
            p50_s: seconds(0.5)?,
            p99_s: p99 / 1e9,
            p99_interval_s: [seconds(0.99 - about)?, seconds(0.99 + about)?],
        })
    }
}

/// Serves for so long, and reports each latency to its manager.
///
/// # Errors
/// Errors of making sockets or a thread.
pub fn serve(length: Duration) -> Result<Option<Served>> {
    cotenant_rt::init();
    let table = cycle();
    let (mut questions, client) = UnixStream::pair()?;
    let begin = Instant::now();
    let mut pieces = vec![Histogram::default(); PIECES];
    thread::scope(|scope| -> Result<()> {
        thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, move || ask(client, begin, length))?;
        let (mut at, mut due) = (0, [0; 8]);
        while questions.read_exact(&mut due).is_ok() {
            if begin.elapsed() < SETTLING + length + PATIENCE {
                at = (0..LOOKUPS).fold(at, |at, _| table[at as usize]);
            }
            let due = Duration::from_nanos(u64::from_ne_bytes(due));
            let latency = begin.elapsed().saturating_sub(due);
            cotenant_rt::units(1);
            cotenant_rt::latency(latency);
            if let Some(since) = due.checked_sub(SETTLING) {
                let piece = since.as_secs_f64() / length.as_secs_f64() * PIECES as f64;
                pieces[(piece as usize).min(PIECES - 1)].count_one(latency.as_nanos() as u64);
            }
        }
        std::hint::black_box(at);
        Ok(())
    })?;
    Ok(Served::of(&pieces))
}

/// Sends requests at fixed random times, the same ones in each run; a request is its due time, nanoseconds since the
/// beginning. A late server finds them queued.
fn ask(mut server: UnixStream, begin: Instant, length: Duration) {
    sys::wake_on_time();
    let mut random = fastrand::Rng::with_seed(1);
    let mut due = Duration::ZERO;
    loop {
        due += Duration::from_secs_f64(-(1.0 - random.f64()).ln() / PER_S);
        if due >= SETTLING + length {
            return;
        }
        thread::sleep((begin + due).saturating_duration_since(Instant::now()));
        if server.write_all(&(due.as_nanos() as u64).to_ne_bytes()).is_err() {
            return;
        }
    }
}

/// A table that leads from each entry to another, through all of them (Sattolo's algorithm).
fn cycle() -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut table: Vec<u32> = (0..ENTRIES).collect();
    for i in (1..table.len()).rev() {
        table.swap(i, random.usize(..i));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::histogram::Bucket;

    /// So many answers of 1 to 2 ms, and so many of 10 to 20 ms.
    fn piece(quick: u64, slow: u64) -> Histogram {
        let bucket = |low: f64, count| Bucket { low: low * 1e6, high: low * 2e6, count };
        Histogram::new([bucket(1.0, quick), bucket(10.0, slow)])
    }

    /// Holds run/demo.
    #[test]
    fn the_interval_follows_the_scatter_of_the_pieces() {
        // 2 % are slow, evenly: the p99 is in the middle of them, with the narrowest interval.
        let even = Served::of(&[piece(980, 20), piece(980, 20)]).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, not {b}");
        assert_eq!(even.answers, 2_000);
        near(even.p50_s, 1e-3 * (1.0 + 1_000.0 / 1_960.0));
        near(even.p99_s, 15e-3);
        even.p99_interval_s.iter().for_each(|end| near(*end, 15e-3));
        // Pieces of which 3, 1, 3 and 1 % are slow: 1.5, 0.5, 1.5 and 0.5 % are above 15 ms. Their standard deviation
        // is 0.577 %, half of it that of their mean, and t(3) is 3.182: ± 0.919 %. So the ends are the quantiles of
        // 98.08 %, 0.08 % into the slow ones, and of 99.92 %, 1.92 % of 2 % into them.
        let uneven = Served::of(&[piece(970, 30), piece(990, 10), piece(970, 30), piece(990, 10)]).unwrap();
        near(uneven.p99_s, 15e-3);
        let about = 3.182 * (1.0e-4_f64 / 3.0).sqrt() / 2.0;
        near(uneven.p99_interval_s[0], 10e-3 * (1.0 + (0.01 - about) / 0.02));
        near(uneven.p99_interval_s[1], 10e-3 * (1.0 + (0.01 + about) / 0.02));
    }

    #[test]
    fn one_piece_says_nothing_of_scatter() {
        let one = Served::of(&[Histogram::default(), piece(980, 20)]).unwrap();
        assert_eq!(one.p99_interval_s, [1e-3, 20e-3], "from the least to the most");
        assert_eq!(Served::of(&[Histogram::default()]), None);
    }

    #[test]
    fn lookups_visit_all_of_the_table() {
        let table = cycle();
        let mut at = 0;
        let back = (1..=ENTRIES).find(|_| {
            at = table[at as usize];
            at == 0
        });
        assert_eq!(back, Some(ENTRIES));
    }

    #[test]
    fn late_answers_count_from_when_they_were_due() {
        let answers = serve(Duration::from_millis(200)).unwrap().unwrap();
        // Under any load, each request of the schedule is counted: about 200 of them.
        assert!((120..300).contains(&answers.answers), "{answers:?}");
        assert!(answers.p50_s > 0.0 && answers.p50_s <= answers.p99_s, "{answers:?}");
    }
}
