//! Programs with phases over a whole run: chapters 5 (§5.4.2, §5.4.4) and 6 (§6.4.4).

use super::super::contentiousness::trained;
use super::super::lab::{Lab, watched};
use super::super::row::{Found, Row, claim, highest, level, lowest, mean, percent, row};
use super::reactive::OURS;
use super::{How, Inserted, NEHALEM, Run};
use anyhow::Context as _;
use cotenant_model::signal::Signal;
use cotenant_model::{AppId, Time, region};
use cotenant_sim::app::{Phase, Program};
use std::array::from_fn;
use std::sync::Arc;
use std::time::Duration;

const SPHINX: &str = "sphinx306";
const MILC: &str = "milc06";
const BST: &str = "bst-8mb";
const SLEDGE: &str = "sledge-large";

/// Requests to the last-level cache in each tenth of a run alone, over the measured mean. ASSUMED, because no series is
/// published. For sphinx the text reports high degradation around samples 100 to 200 and 300 to 400 of 1,000 and within
/// the first 400, lower later, with valleys of the co-runner (§5.4.4, §6.4.4); the mean is the measured one. For milc
/// it reports contentious phases: these have the measured rate, because milc waits for memory in most cycles.
const INTENSITY: [(&str, [f64; 10]); 2] = [
    (SPHINX, [1.25, 2.0, 1.25, 2.0, 0.5, 0.5, 0.5, 1.0, 0.5, 0.5]),
    (MILC, [1.0, 0.25, 1.0, 0.25, 1.0, 0.25, 1.0, 0.25, 1.0, 0.25]),
];
const ASSUMED: &str = "Programs are those of workloads/spec-cpu2006.toml, which have one phase. How often sphinx and \
                       milc go to the last-level cache is multiplied, tenth by tenth of a run alone, by figures that \
                       are assumed from the text. While they do not wait for it they compute. When phases come is \
                       thus no finding; what they do to others and what naps do about it is. nehalem-i7-920, one \
                       thread each on neighbouring cores.";
/// Samples of a run: the paper takes 1,000; each of ours is the mean of ten.
const SAMPLES: usize = 100;

/// The same program in phases of this many instructions, with these multiples of its LLC accesses and the same time
/// alone: `cycles` per instruction.
fn phased(program: &Program, part: f64, cycles: f64, intensity: &[f64]) -> anyhow::Result<Program> {
    let [whole] = &program.phases[..] else { anyhow::bail!("a program with phases") };
    let phase = |times: &f64| {
        let cpi = whole.cpi + (1.0 - times) * (cycles - whole.cpi);
        anyhow::ensure!(cpi > 0.0, "{times} times its requests take longer than {cycles} cycles");
        Ok(Phase { instructions: Some(part), llc_apki: whole.llc_apki * times, cpi, ..whole.clone() })
    };
    let phases = intensity.iter().map(phase).collect::<anyhow::Result<Vec<Phase>>>()?;
    Ok(Program { phases, ..program.clone() })
}

/// Sums over a run.
type Sums = [f64; 7];
/// Instructions of the first program, and its cycles.
const HIGH: usize = 0;
const HIGH_CYCLES: usize = 1;
/// Lines into its last private cache and into the last level.
const HIGH_LINES: [usize; 2] = [2, 3];
/// Instructions of the second program, and its CPU time, ns.
const LOW: usize = 4;
const LOW_TIME: usize = 5;
/// Time, ns.
const TIME: usize = 6;

/// Differences over equal parts of a run, by one of the sums; `None` if it ended early.
fn parts(curve: &[Sums], by: usize, total: f64, parts: usize) -> Option<Vec<Sums>> {
    let at = |x: f64| -> Option<Sums> {
        let after = curve.iter().position(|sums| sums[by] >= x)?;
        let [a, b] = [curve[after.saturating_sub(1)], curve[after]];
        let part = if b[by] > a[by] { (x - a[by]) / (b[by] - a[by]) } else { 0.0 };
        Some(from_fn(|sum| a[sum] + (b[sum] - a[sum]) * part))
    };
    let edges = (0..=parts).map(|edge| at(total * edge as f64 / parts as f64)).collect::<Option<Vec<Sums>>>()?;
    Some(edges.windows(2).map(|ends| from_fn(|sum| ends[1][sum] - ends[0][sum])).collect())
}

/// A full run of the first or second program in samples; `marked` are the tenths in which the second one naps, if not
/// in all.
fn over(lab: &Lab, run: &Run, by: usize, marked: &[bool]) -> anyhow::Result<Vec<Sums>> {
    let seconds = if lab.effort.every > 1 { 1.0 } else { 20.0 };
    let (mut scenario, mut policy) = run.set_up()?;
    scenario.end = Time((seconds * 8e9) as u64);
    scenario.config.interval = scenario.config.interval.min(Duration::from_millis(10));
    // Scenarios give programs 100,000 s of work.
    let per_s = |instructions: f64| instructions / 1e5;
    let whole = scenario.apps.get(usize::from(by == LOW)).context("a program")?;
    let total = per_s(whole.instructions) * seconds;
    for (app, name) in scenario.apps.iter_mut().zip([Some(&run.high), run.low.as_ref()].into_iter().flatten()) {
        let Some((_, intensity)) = INTENSITY.iter().find(|(of, _)| of == name) else { continue };
        let per_s = per_s(app.instructions);
        let part = per_s * seconds / intensity.len() as f64;
        app.program = Arc::new(phased(&app.program, part, scenario.sim.clock_hz / per_s, intensity)?);
    }
    if let How::Naps(..) = run.how {
        let ms = Duration::from_millis(10);
        let part = total / marked.len() as f64;
        policy = Box::new(Inserted { marked: marked.to_vec(), part, ..Inserted::everywhere(ms, ms) });
    }
    let mut curve = vec![Sums::default()];
    let mut sums = Sums::default();
    watched(&scenario, &*policy, 1, 0.0, |view, interval| {
        sums[TIME] += interval * 1e9;
        for task in &view.tasks {
            let mut add = |sum: usize, signal| sums[sum] += task.per_s(signal).unwrap_or(0.0) * interval;
            if task.info.app == AppId(0) {
                add(HIGH, Signal::Instructions);
                add(HIGH_CYCLES, Signal::Cycles);
                add(HIGH_LINES[0], Signal::L2LinesIn);
                add(HIGH_LINES[1], Signal::L3LinesIn);
            } else {
                add(LOW, Signal::Instructions);
                add(LOW_TIME, Signal::CpuTime);
            }
        }
        curve.push(sums);
    })?;
    parts(&curve, by, total, SAMPLES).with_context(|| format!("{run:?} does not end within {:?}", scenario.end))
}

/// A printed series: means of tenths.
fn tenths(series: &[f64]) -> Vec<f64> {
    series.chunks(SAMPLES / 10).map(mean).collect()
}

/// Series as rows, tenth by tenth.
fn drawn(all: &[(&str, &[f64], &'static str)]) -> Vec<Row> {
    let rows = (0..10).flat_map(|tenth| {
        let label = move |what: &str| format!("tenth {}: {what}", tenth + 1);
        all.iter().map(move |(what, series, unit)| row(label(what), tenths(series)[tenth], unit))
    });
    rows.collect()
}

/// Pearson's correlation; 0 if one of them does not vary.
fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let (a, b) = (mean(one), mean(other));
    let sum = |f: &dyn Fn(f64, f64) -> f64| one.iter().zip(other).map(|(x, y)| f(x - a, y - b)).sum::<f64>();
    let spread = (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt();
    if spread > 0.0 { sum(&|x, y| x * y) / spread } else { 0.0 }
}

/// Figures 5.9–5.11 and 5.21: whether the score finds the phases in which a program slows others, and naps there.
pub(in super::super) fn naps_over_a_run(lab: &mut Lab) -> anyhow::Result<Found> {
    let fit = trained()?.fit;
    let run = |high: &str, low: &str, how| Run::of(NEHALEM, high, low, how);
    let plain = [(SPHINX, BST), (MILC, SLEDGE)].map(|(low, high)| run(high, low, How::Plain));
    let mut rows = Vec::new();
    let mut marked = Vec::new();
    let mut speeds = Vec::new();
    for run in &plain {
        let low = run.low.clone().unwrap_or_default();
        let alone = Run { high: low.clone(), ..run.alone() };
        let score = |s: &Sums| {
            let [private, last] = HIGH_LINES.map(|lines| s[lines] / s[TIME]);
            fit.at(&[private - last, last])
        };
        let scores: Vec<f64> = over(lab, &alone, HIGH, &[])?.iter().map(score).collect();
        let solo = run.alone().seen(lab)?.high / 1e9;
        let speed = |sums: &[Sums]| sums.iter().map(|s| s[HIGH] / s[TIME] / solo).collect::<Vec<f64>>();
        let beside = speed(&over(lab, run, LOW, &[])?);
        let losses: Vec<f64> = beside.iter().map(|kept| (1.0 - kept) * 100.0).collect();
        let (score, loss) = (format!("score of {low} alone"), format!("{} beside {low}: loss", run.high));
        rows.extend(drawn(&[(&score, &scores, ""), (&loss, &losses, "%")]));
        let together = correlation(&scores, &losses);
        let label = format!("correlation of {low}'s score and what {} loses, over {SAMPLES} samples", run.high);
        rows.push(claim(label, together, "", "their shapes match (0.9 and above)", together >= 0.9));
        if low == SPHINX {
            marked = tenths(&scores).iter().map(|score| *score > region::MIN_SCORE).collect();
            let how = How::Naps(10.0, 10.0);
            let napping = speed(&over(lab, &Run { how, ..run.clone() }, LOW, &marked)?);
            speeds = vec![beside, napping];
        }
    }
    let [before, after] = &speeds[..] else { anyhow::bail!("two series") };
    let names = ["bst-8mb beside sphinx306 as it is: speed", "bst-8mb beside sphinx306, naps 10/10: speed"];
    rows.extend(drawn(&[(names[0], before, "of alone"), (names[1], after, "of alone")]));
    let [before, after] = [before, after].map(|series| tenths(series));
    let of = |is: bool| before.iter().zip(&marked).filter(move |(_, marked)| **marked == is).map(|(kept, _)| *kept);
    let scores = format!("scores above {} are in {} of 10 tenths", region::MIN_SCORE, of(true).count());
    let (worst, least) = (highest(of(true).collect::<Vec<f64>>()), lowest(of(false).collect::<Vec<f64>>()));
    let label = "bst-8mb: lowest speed outside of the marked tenths over the highest in them";
    let apart = if worst.is_finite() && least.is_finite() { least - worst } else { 0.0 };
    rows.push(claim(label, apart, "of alone", "the contentious phases are found", apart > 0.0).because(&scores));
    let gain = |tenths: &[usize]| {
        let [before, after] = [&before, &after].map(|series| mean(tenths.iter().map(|tenth| series[*tenth])));
        percent(after / before)
    };
    for (label, tenths) in [
        ("bst-8mb: gain by naps in the first 400 of 1,000 samples", &[0, 1, 2, 3][..]),
        ("bst-8mb: gain by naps in its valley in the later half", &[7]),
    ] {
        let gain = gain(tenths);
        rows.push(claim(label, gain, "%", "greatly improved (by 10 % and more)", gain >= 10.0).because(&scores));
    }
    let note = format!(
        "{ASSUMED} Scores are equation 5.9, as tang-model fits it, of the program alone. sphinx naps 10 ms behind 10 \
         ms of running where its score is above {}, in tenths as the text has them.",
        region::MIN_SCORE
    );
    Ok(Found::tallied(rows, note))
}

/// Figures 6.17–6.21: sphinx beside programs that nap on demand.
pub(in super::super) fn reaction_over_a_run(lab: &mut Lab) -> anyhow::Result<Found> {
    const CONSERVATIVE: &str = "conservative-90";
    let jobs = [
        (SLEDGE, How::Plain),
        (SLEDGE, How::Under("balanced")),
        (SLEDGE, How::Under(CONSERVATIVE)),
        (MILC, How::Plain),
        (MILC, How::Under("qos-biased")),
        (MILC, How::Under(CONSERVATIVE)),
        (SLEDGE, How::Under(OURS)),
    ];
    let runs: Vec<Run> = jobs.iter().map(|(low, how)| Run::of(NEHALEM, SPHINX, low, *how)).collect();
    let all: Vec<Run> = std::iter::once(runs[0].alone()).chain(runs).collect();
    let all = lab.parallel("tang-rn-phases", &all, |run| over(lab, run, HIGH, &[]))?;
    let [solo, found @ ..] = &all[..] else { anyhow::bail!("no run") };
    let ipc = |s: &Sums| s[HIGH] / s[HIGH_CYCLES];
    let kept = found.iter().map(|run| run.iter().zip(solo).map(|(s, solo)| ipc(s) / ipc(solo)).collect::<Vec<f64>>());
    let kept: Vec<Vec<f64>> = kept.collect();
    let nap = |s: &Sums| 2.0 * (s[TIME] - s[LOW_TIME]) / s[LOW_TIME];
    let naps = |run: usize| found[run].iter().map(nap).collect::<Vec<f64>>();
    let (simple_naps, targeted_naps) = (naps(4), naps(5));
    let mut rows = Vec::new();
    let named = jobs.iter().map(|(low, how)| match how {
        How::Under(name) => format!("sphinx beside {low}, {name}"),
        _ => format!("sphinx beside {low} as it is"),
    });
    let named: Vec<String> = named.collect();
    let series = named.iter().zip(&kept).map(|(name, kept)| (name.as_str(), &kept[..], "of alone"));
    rows.extend(drawn(&series.collect::<Vec<_>>()));
    let naps = [
        ("nap of milc06 per 2 ms of running, qos-biased", &simple_naps),
        ("the same, conservative-90", &targeted_naps),
    ];
    rows.extend(drawn(&naps.map(|(name, naps)| (name, &naps[..], "ms"))));

    let share = |series: &[f64], is: &dyn Fn(f64) -> bool| {
        series.iter().filter(|kept| is(**kept)).count() as f64 / series.len() as f64 * 100.0
    };
    let [sledge, balanced, targeted, _, biased, on_milc, ours] = &kept[..] else { anyhow::bail!("seven runs") };
    let why = format!("it keeps {:.2} even in the tenths in which it makes twice its requests", lowest(tenths(sledge)));
    rows.push(level("sphinx beside sledge as it is, mean (60–70 %)", 0.65, mean(sledge), "of alone").because(&why));
    let most = share(balanced, &|kept| kept > 0.8);
    rows.push(claim(
        "sphinx beside sledge, balanced: samples above 0.8",
        most,
        "%",
        "most of the execution",
        most > 50.0,
    ));
    let least = lowest(targeted);
    let says = "around 90 % through the entire execution (within a tenth of it)";
    let label = "sphinx beside sledge, conservative-90: lowest sample";
    rows.push(claim(label, least, "of alone", says, least >= 0.81));
    let label = "the same, tracking (ours), which waits for warm caches: lowest tenth";
    rows.push(row(label, lowest(tenths(ours)), "of alone"));
    let swing = |series: &[f64]| highest(series) - lowest(series);
    let (simple, stable) = (swing(balanced), swing(targeted));
    let label = "sphinx beside sledge: swing over the run, conservative-90 over balanced";
    rows.push(claim(label, stable / simple, "", "simple fluctuates, targeted is stable", stable < simple));
    for (name, series) in [("qos-biased", biased), (CONSERVATIVE, on_milc)] {
        let inside = share(series, &|kept| (0.9..=1.0).contains(&kept));
        let label = format!("sphinx beside milc06, {name}: samples from 0.9 to 1");
        rows.push(claim(label, inside, "%", "stable between 0.9 and 1 (nine of ten samples)", inside >= 90.0));
    }
    let later = SAMPLES * 6 / 10;
    let shorter = mean(&simple_naps[later..]) / mean(&simple_naps[..later]);
    let label = "naps of milc06, qos-biased: after sample 600 over before";
    let slowest = lowest(found[4].iter().map(ipc));
    let why = format!("its IPC is {slowest:.2} and more, above both thresholds, so that all naps are the shortest");
    rows.push(
        claim(label, shorter, "", "naps become shorter (by a twentieth and more)", shorter <= 0.95).because(&why),
    );
    let times = mean(&targeted_naps) / mean(&simple_naps);
    let label = "naps of milc06: conservative-90 over qos-biased";
    rows.push(claim(label, times, "", "significantly shorter (by a tenth and more)", times <= 0.9));
    let apart = mean(on_milc) - mean(biased);
    let label = "sphinx beside milc06: conservative-90 over qos-biased";
    rows.push(claim(label, apart, "of alone", "similar improvement (within 0.05)", apart.abs() <= 0.05));
    let note = format!(
        "{ASSUMED} Speed is the IPC over that alone in the same hundredth of sphinx's instructions; naps per 2 ms of running are means, runs without naps included."
    );
    Ok(Found::tallied(rows, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds sim/reproduce.
    #[test]
    fn a_run_is_cut_where_a_sum_says_so() {
        // 100 instructions in 10 ns, then 100 in 30 ns: quarters take 5, 5, 15 and 15 ns.
        let at = |instructions, time| from_fn(|sum| [instructions, time][usize::from(sum == TIME)]);
        let curve: [Sums; 3] = [at(0.0, 0.0), at(100.0, 10.0), at(200.0, 40.0)];
        let times = |by, total| Some(parts(&curve, by, total, 4)?.iter().map(|s| s[TIME]).collect::<Vec<f64>>());
        assert_eq!(times(HIGH, 200.0), Some(vec![5.0, 5.0, 15.0, 15.0]));
        assert_eq!(times(TIME, 40.0), Some(vec![10.0; 4]));
        assert_eq!(times(HIGH, 201.0), None, "it ended before");
    }

    /// Holds sim/reproduce.
    #[test]
    fn phases_take_as_long_alone_as_the_whole() {
        let scenario = Run::of(NEHALEM, SPHINX, BST, How::Plain).scenario().unwrap();
        let mut whole = (*scenario.apps[0].program).clone();
        (whole.phases[0].cpi, whole.phases[0].llc_apki) = (0.5, 20.0);
        // 0.5 of 0.75 cycles are computing, 0.25 waiting: half the requests take half of that wait, and twice the
        // requests twice.
        let phased = |times: &[f64]| phased(&whole, 50.0, 0.75, times);
        let found: Vec<_> =
            phased(&[0.5, 2.0]).unwrap().phases.iter().map(|p| (p.cpi, p.llc_apki, p.instructions)).collect();
        assert_eq!(found, [(0.625, 10.0, Some(50.0)), (0.25, 40.0, Some(50.0))]);
        assert!(phased(&[3.0]).is_err(), "three times the requests take all 0.75 cycles");
        assert_eq!(mean(INTENSITY[0].1), 1.0);
    }

    #[test]
    fn correlation_of_what_rises_and_falls_together() {
        let one = [1.0, 2.0, 3.0];
        assert!((correlation(&one, &[10.0, 20.0, 30.0]) - 1.0).abs() < 1e-12);
        assert!((correlation(&one, &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        // Deviations (−1, 0, 1) and (−1, 1, 0): 1 / 2.
        assert!((correlation(&one, &[0.0, 2.0, 1.0]) - 0.5).abs() < 1e-12);
        assert_eq!(correlation(&one, &[5.0; 3]), 0.0);
    }
}
