//! How thresholds are found (§2.1, §2.2): the costs of coherence and bandwidth at rising rates.

use super::lab::{Arm, Lab, Run};
use super::row::{At, Found, Row, level, percent, row, tally};
use cotenant_sim::scenario::Scenario;

/// Coherence events per cycle of computing, from none to that of `hubench`.
const RATES: [f64; 9] = [0.0, 5e-5, 1e-4, 1.75e-4, 2.6e-4, 4e-4, 6e-4, 9e-4, 1.3e-3];
/// Cycles per instruction of the pair's computing, as in `hubench`.
const CPI: f64 = 2.0;
/// The slow-down at which a rate counts as high (§2.1).
const HIGH: f64 = 1.05;
/// The bandwidth threshold over the highest rate with low row locality (§2.2).
pub(super) const BELOW: f64 = 0.8;
/// Tasks of the bandwidth curves.
const TASKS: usize = 10;
/// Why memory delivers more here.
const CHANNEL: &str =
    "with one channel of memory to a socket instead of four all three statements hold (sam-assumptions)";
/// CPUs of the two sockets, each on its own core.
const TOGETHER: &str = "0,1";
const APART: &str = "0,10";

fn pair(rate: f64, cpus: &str, work_s: f64) -> anyhow::Result<Scenario> {
    let coherence_pki = rate * CPI * 1000.0;
    Lab::scenario(&format!(
        "[program.pair]\ncpi = {CPI}\nllc_apki = 0.0\nfootprint_bytes = 16384\nmiss_ratio = [[16384, 0.0]]\n\
         coherence_pki = {coherence_pki}\nshared = 1.0\n[[app]]\nprogram = 'pair'\nthreads = 2\nwork_s = {work_s}\ncpus = '{cpus}'\n"
    ))
}

/// Events per cycle of two threads apart, and their gain together, at rising rates.
pub(super) fn pairs(lab: &Lab) -> anyhow::Result<Vec<(f64, f64)>> {
    let jobs: Vec<(f64, &str)> = RATES.iter().flat_map(|r| [(*r, TOGETHER), (*r, APART)]).collect();
    let work = |&(rate, cpus): &(f64, &str)| {
        let work_s = lab.effort.work_s;
        Lab::once(lab.assume(pair(rate, cpus, work_s)?, work_s), Arm::Linux, 1)
    };
    let runs = lab.parallel("sam-fig1", &jobs, work)?;
    let point = |pair: &[Run]| {
        let apart = &pair[1];
        (apart.seen.inter / apart.seen.cycles, apart.outcome.apps[0].time_s / pair[0].outcome.apps[0].time_s)
    };
    Ok(runs.chunks(2).map(point).collect())
}

/// The rate at which being apart costs 5 %, if there is one.
pub(super) fn crossing(points: &[(f64, f64)]) -> Option<f64> {
    points.windows(2).find(|p| p[0].1 < HIGH && p[1].1 >= HIGH).map(|p| {
        let part = (HIGH - p[0].1) / (p[1].1 - p[0].1);
        p[0].0 + part * (p[1].0 - p[0].0)
    })
}

fn over_rate(x: f64) -> At {
    At { axis: "events/cycle", x, y: None }
}

/// Linear interpolation of a curve at `x`; `None` outside.
fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let [a, b] = points.windows(2).find(|p| (p[0].0..=p[1].0).contains(&x)).and_then(|p| p.try_into().ok())?;
    Some(a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0))
}

/// Figure 1.
pub(super) fn coherence(lab: &mut Lab) -> anyhow::Result<Found> {
    let points = pairs(lab)?;
    let mut rows: Vec<Row> = points
        .iter()
        .map(|(rate, gain)| {
            row(format!("together over apart, {rate:.2e} events/cycle"), percent(*gain), "%").at(over_rate(*rate))
        })
        .collect();
    let rises = points.windows(2).all(|p| p[1].1 >= p[0].1);
    let (verdict, note) = if let Some(crossing) = crossing(&points) {
        if let Some(gain) = between(&points, 2.5e-4) {
            let anchor = row("together over apart at the paper's threshold", percent(gain), "%").beside(5.0);
            rows.push(anchor.at(over_rate(2.5e-4)));
        }
        rows.push(level("rate at which being apart costs 5 %", 2.5e-4, crossing, "events/cycle"));
        rows.push(level("the same in time", 550_000.0, crossing * clock(lab)?, "events/s"));
        let shape = if rises { "the gain rises with the rate" } else { "the gain does not rise throughout" };
        (format!("{shape}; {}", tally(&rows)), "")
    } else {
        ("being apart never costs 5 % at these rates".to_owned(), " No threshold follows from this curve.")
    };
    let coherence = pair(0.0, APART, 1.0)?.sim.coherence_s.map(|s| s * 1e9);
    let note = format!(
        "Rates are what two threads on two sockets were seen to do, so that they hold the transfers' own time. The threshold is 5 % over \
         what a line from the other socket costs more than one from the same: {:.0} ns and {:.0} ns here.{note}",
        coherence[2], coherence[0]
    );
    Ok(Found::new(rows, verdict, note))
}

fn clock(lab: &Lab) -> anyhow::Result<f64> {
    Ok(pair(0.0, APART, lab.effort.work_s)?.sim.clock_hz)
}

fn over_tasks(n: usize) -> At {
    At { axis: "tasks", x: n as f64, y: None }
}

fn copies(program: &str, n: usize, work_s: f64) -> anyhow::Result<Scenario> {
    Lab::scenario(&format!("[[app]]\nprogram = '{program}'\nthreads = {n}\nwork_s = {work_s}\ncpus = '0-9'\n"))
}

/// LLC misses per cycle of a socket with 1 to 10 copying tasks, at low and at high row-buffer locality.
pub(super) fn socket(lab: &Lab) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let jobs: Vec<(&str, usize)> =
        ["membench-low", "membench"].into_iter().flat_map(|p| (1..=TASKS).map(move |n| (p, n))).collect();
    let work = |&(program, n): &(&str, usize)| {
        let work_s = lab.effort.work_s;
        let scenario = lab.assume(copies(program, n, work_s)?, work_s);
        let clock_hz = scenario.sim.clock_hz;
        let run = Lab::once(scenario, Arm::Linux, 1)?;
        anyhow::Ok(run.seen.misses / run.seen.seconds / clock_hz)
    };
    let mut low = lab.parallel("sam-fig2", &jobs, work)?;
    let high = low.split_off(TASKS);
    Ok((low, high))
}

/// Figure 2.
pub(super) fn bandwidth(lab: &mut Lab) -> anyhow::Result<Found> {
    let (low, high) = socket(lab)?;
    let machine = copies("membench", 1, 1.0)?.sim;
    let clock_hz = machine.clock_hz;
    let unit = "LLC misses/cycle of a socket";
    let mut rows = Vec::new();
    for (label, rates) in [("low", &low), ("high", &high)] {
        rows.extend(
            (1..)
                .zip(rates)
                .map(|(n, rate)| row(format!("{n} tasks, {label} row locality"), *rate, unit).at(over_tasks(n))),
        );
    }
    let most = 0.034 / BELOW;
    let label = "10 tasks, high row locality (the paper: 10 % above low)";
    rows.push(row(label, high[9], unit).beside(most / 0.9).at(over_tasks(TASKS)));
    rows.push(
        level("most that low row locality reaches (0.034 is 20 % below)", most, low[9], unit)
            .because(CHANNEL)
            .at(over_tasks(TASKS)),
    );
    rows.push(level("the threshold", 0.034, low[9] * BELOW, unit).because(CHANNEL));
    let apart = (1.0 - low[9] / high[9]) * 100.0;
    rows.push(level("low under high row locality at 10 tasks", 10.0, apart, "%").because(CHANNEL));
    let three = high[2] > low[9];
    let says = if three {
        "three tasks of high row locality use more than ten of low"
    } else {
        "three tasks of high row locality do not use more than ten of low, as they do in the paper"
    };
    let verdict = format!("{says}; {}", tally(&rows));
    let station = &machine.stations[0];
    let note = format!(
        "The paper's LLC_MISSES at its bottleneck amount to {:.1} GB/s, this machine file's memory delivers {:.1} (low) to {:.1} GB/s (high), \
         reads and write-backs together. Guessed for this machine: {}.",
        0.034 / BELOW * clock_hz * 64.0 / 1e9,
        station.low / 1e9,
        station.high / 1e9,
        if machine.guesses.is_empty() { "nothing".to_owned() } else { machine.guesses.join(", ") }
    );
    Ok(Found::new(rows, verdict, note))
}
