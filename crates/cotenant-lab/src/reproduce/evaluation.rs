//! Applications alone and in mixes, under Linux and under SAM (§4.2, §4.3).

use super::cases::{App, Case, mixes, standalone};
use super::lab::{Arm, Joint, Lab, Run, RunTotals, Static};
use super::row::{At, Found, Row, claim, effect, geometric, highest, level, listed, lowest, mean, percent, row, tally};
use cotenant_model::number;
use cotenant_model::pin::Pin;
use cotenant_sim::optimum::Label;
use std::array;
use std::collections::BTreeMap;

/// SAM with the thresholds that its own procedure gives on the simulated machine.
pub(super) const SAM: Arm = Arm::Sam(1.0, 1.0);
/// With the switches that are recommended.
const RECOMMENDED: Arm = Arm::SamWith("recommended", Pin::Llc);
/// The compared arms.
const ARMS: [Arm; 11] = [
    Arm::Linux,
    Arm::CacheAware,
    SAM,
    Arm::SamWith("default,-whole-cores", Pin::Llc),
    RECOMMENDED,
    Arm::SamWith("recommended", Pin::Cpu),
    Arm::NumaBalanced(&Arm::Linux),
    Arm::NumaBalanced(&SAM),
    Arm::NumaBalanced(&RECOMMENDED),
    Arm::Shapes,
    Arm::SamWith("mph", Pin::Cpu),
];
const OF_BEST: &str = "of the best static mapping";
const OF_JOINT: &str = "of the mix's best static mapping";
/// SAM's gains in the paper, percent: alone the maximum, and the middle of "30 to 40 % for most" (abstract, §4.2).
const MOST_ALONE: f64 = 72.0;
const MEDIAN_ALONE: f64 = 35.0;
/// Minimum and maximum in mixes (§4.3).
const LEAST_MIXED: f64 = 2.0;
const MOST_MIXED: f64 = 36.0;
/// Programs that Table 1 calls CPU bound, of which the text expects little gain.
pub(super) const CPU_BOUND: [&str; 3] = ["ALS", "RBM", "PMF"];

/// Speed of each application; 1: under its best static mapping alone.
fn progress(best: &BTreeMap<App, Static>, case: &Case, run: &Run) -> Vec<f64> {
    case.apps.iter().zip(&run.outcome.apps).map(|(app, result)| best[app].time_s / result.time_s).collect()
}

/// The figures of one arm in one case.
pub(super) struct Speeds {
    /// Geometric mean over the applications, mean over the seeds.
    pub mean: f64,
    /// The best seed's.
    pub best: f64,
    /// Slowest and fastest application, mean over the seeds.
    pub range: [f64; 2],
    /// The same of the best seed.
    pub best_range: [f64; 2],
}

fn speeds(best: &BTreeMap<App, Static>, case: &Case, runs: &[Run]) -> Speeds {
    let of = |run: &Run| {
        let p = progress(best, case, run);
        (geometric(&p), [lowest(&p), highest(&p)])
    };
    let seeds: Vec<(f64, [f64; 2])> = runs.iter().map(of).collect();
    let top = seeds.iter().max_by(|a, b| a.0.total_cmp(&b.0)).copied().unwrap_or_default();
    let ends = |end: usize| mean(seeds.iter().map(|s| s.1[end]));
    Speeds { mean: mean(seeds.iter().map(|s| s.0)), best: top.0, range: [ends(0), ends(1)], best_range: top.1 }
}

/// The geometric mean over all applications of a case, per seed: the measure of a case.
pub(super) fn score(best: &BTreeMap<App, Static>, case: &Case, runs: &[Run]) -> f64 {
    speeds(best, case, runs).mean
}

/// One case under Linux, cache-aware Linux and SAM.
pub(super) struct Compared {
    pub case: Case,
    pub linux: Speeds,
    aware: Speeds,
    pub sam: Speeds,
    /// Uses second contexts of cores even while other cores are idle.
    crowding: Speeds,
    /// The switches that are recommended.
    pub recommended: Speeds,
    /// The same, pinned to CPUs.
    pinned: Speeds,
    /// Linux, SAM and SAM as recommended with NUMA balancing.
    pub balanced: [Speeds; 3],
    /// With all its trials.
    shapes: Speeds,
    /// With the additions after SAM-MPH, one of which needs CPUs.
    mph: Speeds,
    moves: [f64; 3],
    /// Inter-socket events per cycle of a thread under Linux.
    inter: f64,
    /// Percent that each application gains under SAM over Linux's mean.
    gains: Vec<f64>,
}

impl Compared {
    /// Percent over Linux's mean, over its best seed.
    pub fn gain(&self) -> f64 {
        percent(self.sam.mean / self.linux.mean)
    }

    pub fn gain_over_best(&self) -> f64 {
        percent(self.sam.mean / self.linux.best)
    }

    /// The same where pages follow threads.
    fn following(&self) -> f64 {
        percent(self.balanced[1].mean / self.balanced[0].best)
    }
}

pub(super) fn compare(lab: &mut Lab, what: &str, cases: Vec<Case>) -> anyhow::Result<Vec<Compared>> {
    let cases = lab.some(cases);
    let runs = lab.runs(what, &cases, &ARMS)?;
    let best = lab.best(&cases)?;
    let of = |(case, runs): (Case, Vec<Vec<Run>>)| {
        let all: [Speeds; ARMS.len()] = array::from_fn(|arm| speeds(best, &case, &runs[arm]));
        let [linux, aware, sam, crowding, recommended, pinned, balanced @ .., shapes, mph] = all;
        let moves = [0, 1, 2].map(|stage| mean(runs[2].iter().map(|r| r.seen.moves[stage])));
        let inter = panels(&runs[0])[1];
        let speed = |arm: usize, app: usize| mean(runs[arm].iter().map(|run| 1.0 / run.outcome.apps[app].time_s));
        let gains = (0..case.apps.len()).map(|app| percent(speed(2, app) / speed(0, app))).collect();
        Compared { case, linux, aware, sam, crowding, recommended, pinned, balanced, shapes, mph, moves, inter, gains }
    };
    Ok(cases.into_iter().zip(runs).map(of).collect())
}

/// The normalization, and its certainty.
fn base(lab: &mut Lab, cases: Vec<Case>) -> anyhow::Result<String> {
    let cases = lab.some(cases);
    let (seeds, work_s) = (lab.effort.seeds, lab.effort.work_s);
    let best = lab.best(&cases)?;
    let used: Vec<&Static> =
        best.iter().filter(|(app, _)| cases.iter().any(|c| c.apps.contains(app))).map(|b| b.1).collect();
    let found = used.iter().filter(|s| s.label == Label::BestFound).count();
    let exact = used.len() - found;
    let sure = match found {
        0 => format!("the optimum for all {exact} applications"),
        _ => format!("the optimum for {exact} applications, the best found by a search for {found}"),
    };
    Ok(format!(
        "{seeds} seeds, runs of {work_s} s of work; the best static mapping is {sure}. How the graph and PARSEC programs share data is \
         assumed (workloads/sharing.toml): the paper gives no figures."
    ))
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Common to all rows of speed.
fn speed_rows(c: &Compared) -> Vec<Row> {
    let all = [
        ("SAM", c.sam.mean),
        ("SAM, slowest application", c.sam.range[0]),
        ("SAM, fastest application", c.sam.range[1]),
        ("Linux, mean", c.linux.mean),
        ("Linux, best seed", c.linux.best),
        ("Linux, best seed, slowest application", c.linux.best_range[0]),
        ("Linux, best seed, fastest application", c.linux.best_range[1]),
        ("cache-aware Linux, mean", c.aware.mean),
        ("SAM on second contexts, too", c.crowding.mean),
        ("SAM as recommended", c.recommended.mean),
        ("SAM as recommended, pinned to CPUs", c.pinned.mean),
        ("Linux with NUMA balancing, mean", c.balanced[0].mean),
        ("SAM with NUMA balancing", c.balanced[1].mean),
        ("SAM as recommended with NUMA balancing", c.balanced[2].mean),
        ("shapes, trials included", c.shapes.mean),
        ("after SAM-MPH", c.mph.mean),
    ];
    let shown = all.into_iter().filter(|(what, _)| c.case.apps.len() > 1 || !what.ends_with("application"));
    shown.map(|(what, speed)| row(format!("{}: {what}", c.case.label), speed, OF_BEST)).collect()
}

/// The gains of all cases in ascending order for the picture, with the paper's statements at some `places`.
fn gain_rows(mut gains: Vec<(f64, &str)>, over: &str, places: &[(usize, f64)]) -> Vec<Row> {
    gains.sort_by(|a, b| a.0.total_cmp(&b.0));
    let place = |(i, (gain, label)): (usize, (f64, &str))| {
        let at = At { axis: "cases, from the least gain to the most", x: (i + 1) as f64, y: None };
        let row = row(format!("SAM over {over}, place {}: {label}", i + 1), gain, "%").at(at);
        let paper = places.iter().find(|(place, _)| *place == i);
        if let Some((_, paper)) = paper { row.beside(*paper) } else { row }
    };
    gains.into_iter().enumerate().map(place).collect()
}

/// SAM against each kind of Linux over all cases.
fn overall(all: &[Compared]) -> Vec<Row> {
    let over = |label: &str, of: &dyn Fn(&Compared) -> f64| {
        row(format!("{label}, geometric mean of all"), percent(geometric(all.iter().map(of))), "%")
    };
    vec![
        row("SAM, geometric mean of all", geometric(all.iter().map(|c| c.sam.mean)), OF_BEST),
        over("SAM over Linux's mean", &|c| c.sam.mean / c.linux.mean),
        over("SAM over Linux's best seed", &|c| c.sam.mean / c.linux.best),
        over("SAM over cache-aware Linux", &|c| c.sam.mean / c.aware.mean),
        over("SAM on second contexts, too, over Linux's mean", &|c| c.crowding.mean / c.linux.mean),
        over("SAM as recommended over Linux's mean", &|c| c.recommended.mean / c.linux.mean),
        over("SAM as recommended, pinned to CPUs, over Linux's mean", &|c| c.pinned.mean / c.linux.mean),
        over("SAM as recommended over Linux's best seed", &|c| c.recommended.mean / c.linux.best),
        over("Linux with NUMA balancing over Linux, means", &|c| c.balanced[0].mean / c.linux.mean),
        over("SAM over Linux's mean, both with NUMA balancing", &|c| c.balanced[1].mean / c.balanced[0].mean),
        over("SAM over Linux's best seed, both with NUMA balancing", &|c| c.balanced[1].mean / c.balanced[0].best),
        over("SAM as recommended over Linux's mean, both with NUMA balancing", &|c| {
            c.balanced[2].mean / c.balanced[0].mean
        }),
        over("SAM as recommended over Linux's best seed, both with NUMA balancing", &|c| {
            c.balanced[2].mean / c.balanced[0].best
        }),
        over("after SAM-MPH over Linux's mean", &|c| c.mph.mean / c.linux.mean),
        over("shapes, trials included, over Linux's mean", &|c| c.shapes.mean / c.linux.mean),
        over("shapes, trials included, over Linux's best seed", &|c| c.shapes.mean / c.linux.best),
    ]
}

/// Figure 5 and Table 1.
pub(super) fn fig5(lab: &mut Lab) -> anyhow::Result<Found> {
    let all = compare(lab, "applications alone", standalone())?;
    let mut rows: Vec<Row> = Vec::new();
    for c in &all {
        rows.extend(speed_rows(c));
        let [coherence, remote] = c.case.moves.unwrap_or_default();
        let moves = |what: &str, paper: f64, stage: usize, why: &str| {
            let label = format!("{}: moves for {what}", c.case.label);
            level(label, paper, c.moves[stage], "moves a run").because(why)
        };
        rows.push(moves("coherence", coherence, 0, ANEW));
        rows.push(moves("remote memory", remote, 1, TOUCHED));
    }
    let places = [(all.len() / 2, MEDIAN_ALONE), (all.len() - 1, MOST_ALONE)];
    let gains = all.iter().map(|c| (c.gain(), c.case.label.as_str())).collect();
    rows.extend(gain_rows(gains, "Linux's mean", &places));
    let mut summary = overall(&all);
    let room_all = percent(1.0 / geometric(all.iter().map(|c| c.linux.mean)));
    summary.push(row("the best static mapping over Linux's mean, geometric mean of all", room_all, "%"));
    let gains: Vec<f64> = all.iter().map(Compared::gain).collect();
    let follow: Vec<f64> = all.iter().map(|c| percent(c.balanced[1].mean / c.balanced[0].mean)).collect();
    let room: Vec<f64> = all.iter().map(|c| percent(1.0 / c.linux.mean)).collect();
    let little = |room: f64, follow: f64| {
        format!(
            "the best static mapping gains {room:.0} % over Linux here, and SAM {follow:.0} % where pages follow: transfers cost what idle \
             links cost"
        )
    };
    let most = effect("SAM over Linux's mean, the most", MOST_ALONE, highest(&gains));
    summary.push(most.because(&little(highest(&room), highest(&follow))));
    let label = "SAM over Linux's mean, the median (paper: 30 to 40 % for most)";
    summary.push(effect(label, MEDIAN_ALONE, median(gains)).because(&little(median(room.clone()), median(follow))));
    let bound = all.iter().filter(|c| CPU_BOUND.contains(&c.case.apps[0].name.as_str()));
    let bound: Vec<f64> = bound.map(Compared::gain).collect();
    if !bound.is_empty() {
        let gain = mean(bound);
        let holds = (-1.0..10.0).contains(&gain);
        summary.push(claim("SAM over Linux's mean: ALS, RBM, PMF", gain, "%", "on par or slightly better", holds));
    }
    let near = all.iter().filter(|c| c.sam.mean > 0.95).count();
    let top = all.iter().max_by(|a, b| a.gain().total_cmp(&b.gain())).map_or("", |c| c.case.label.as_str());
    let verdict = format!(
        "SAM comes within 5 % of the best static mapping for {near} of {} applications; {top} gains most; {}",
        all.len(),
        tally(&summary)
    );
    rows.extend(summary);
    let lost: Vec<String> =
        all.iter().filter(|c| c.gain() < -1.0).map(|c| format!("{} ({:.1} %)", c.case.label, c.gain())).collect();
    let lost = listed(&lost);
    let threshold = lab.threshold()?;
    let told: Vec<&Compared> = all.iter().filter(|c| c.case.moves.is_some_and(|m| m[0] > 0.0)).collect();
    let rests = told.iter().filter(|c| c.moves[0] < 0.5).count();
    let below = told.iter().filter(|c| c.moves[0] < 0.5 && c.inter < threshold).count();
    let room = highest(&room);
    let note = format!(
        "{} Slower under SAM than under Linux: {lost}. No policy can gain more over Linux here than the best static \
         mapping, at most {room:.0} % (its own phases apart). Of {} applications that Table 1 has moved for \
         coherence, SAM leaves {rests} alone. In {below} of them a thread's inter-socket events under Linux, the mean \
         over the run, stay below the threshold ({}). With its threads halved between the sockets, about half of an \
         application's transfers cross. Waiting for memory and for transfers makes its cycles more.",
        base(lab, standalone())?,
        told.len(),
        number::significant(threshold, 2)
    );
    Ok(Found::new(rows, verdict, note))
}

/// Why SAM's coherence moves differ from Table 1.
const ANEW: &str = "SAM moves each thread of a sharing program once. Where threads are created anew, as the paper's \
                    are (§4.2), it moves each set: SVD with three sets 12, 18, 24 and 30 times";
/// Why it rarely moves for remote memory.
const TOUCHED: &str =
    "each thread touches its own pages where it stands; where one thread loads them TunkRank has 3 and 7.5 such moves";
/// Why relieving a node's memory gains nothing, and moving tasks away from their memory loses.
pub(super) const PAGES_STAY: &str =
    "pages stay where they were first touched: what SAM moves goes on using the node that it leaves";

/// The best static mapping of each mix: speeds of its applications, 1 = alone under the best static mapping.
fn joint_speeds(best: &BTreeMap<App, Static>, all: &[Compared], joint: &[Joint]) -> Vec<Vec<f64>> {
    let of = |(c, joint): (&Compared, &Joint)| -> Vec<f64> {
        c.case.apps.iter().zip(&joint.times_s).map(|(app, time)| best[app].time_s / time).collect()
    };
    all.iter().zip(joint).map(of).collect()
}

/// The paper's statements of some mixes together.
fn groups(all: &[Compared]) -> Vec<Row> {
    let mut rows = Vec::new();
    let micro: Vec<&Compared> = all.iter().filter(|c| c.case.mix <= 3).collect();
    if !micro.is_empty() {
        let of = |name: &str| {
            let app = |c: &Compared| c.case.apps.iter().position(|app| app.name == name).map(|app| c.gains[app]);
            mean(micro.iter().filter_map(|c| app(c)))
        };
        let why = format!(
            "over Linux's mean HuBench gains {:.0} % and MemBench, which crowds on the other socket, {:.0} %; where pages follow it is {:.1} %",
            of("HuBench"),
            of("MemBench"),
            mean(micro.iter().map(|c| c.following()))
        );
        let gain = mean(micro.iter().map(|c| c.gain_over_best()));
        rows.push(effect("SAM over Linux's best seed, mixes 1 to 3", 25.0, gain).because(&why));
    }
    let spec: Vec<&Compared> = all.iter().filter(|c| (4..=7).contains(&c.case.mix)).collect();
    if !spec.is_empty() {
        let gain = mean(spec.iter().map(|c| c.gain_over_best()));
        let over_mean = spec.iter().map(|c| c.gain());
        let label = "SAM over Linux's best seed, SPEC mixes 4 to 7";
        let why =
            format!("over its mean SAM gains {:.1} %: the best seed has better luck with places", mean(over_mean));
        let holds = (-1.0..10.0).contains(&gain);
        rows.push(claim(label, gain, "%", "not high, and not a loss", holds).because(&why));
    }
    rows
}

/// Figure 7 and Table 2.
pub(super) fn fig7(lab: &mut Lab) -> anyhow::Result<Found> {
    let all = compare(lab, "mixes", mixes())?;
    let cases: Vec<Case> = all.iter().map(|c| c.case.clone()).collect();
    let joint = lab.joint("mixes", &cases, &ARMS)?;
    let together = joint_speeds(lab.best(&cases)?, &all, &joint);
    let top: Vec<f64> = together.iter().map(geometric).collect();
    let mut rows: Vec<Row> = Vec::new();
    for ((c, joint), top) in all.iter().zip(&joint).zip(&top) {
        rows.extend(speed_rows(c));
        let classes = joint.classes.as_deref().unwrap_or("unknown");
        let sure = match joint.label {
            Label::Optimal => format!("optimal, all {classes} classes"),
            Label::BestFound => format!("best found in {} of {classes} classes", joint.evaluations),
        };
        rows.push(row(format!("{}: the best static mapping of the mix ({sure})", c.case.label), *top, OF_BEST));
        rows.push(row(format!("{}: SAM", c.case.label), c.sam.mean / top, OF_JOINT));
    }
    let places = [(0, LEAST_MIXED), (all.len() - 1, MOST_MIXED)];
    let gains = all.iter().map(|c| (c.gain_over_best(), c.case.label.as_str())).collect();
    rows.extend(gain_rows(gains, "Linux's best seed", &places));
    let mut summary = overall(&all);
    let of = |of: &dyn Fn(&Compared) -> f64| geometric(all.iter().map(of));
    let slowest = geometric(together.iter().map(lowest));
    let fastest = geometric(together.iter().map(highest));
    let best = geometric(&top);
    // What SAM reaches with one cause removed, then the other, then both.
    let apart = |end: usize, most: f64| {
        let (knows, follow, both) =
            (of(&|c| c.recommended.range[end]), of(&|c| c.balanced[1].range[end]), of(&|c| c.balanced[2].range[end]));
        format!(
            "figure 4 does not know whose sharers belong together, and {PAGES_STAY}. As recommended it is {knows:.2}, \
             where pages follow {follow:.2}, with both {both:.2}; the best static mapping of each mix has {most:.2}"
        )
    };
    summary.extend([
        row("the best static mapping of each mix, geometric mean of all", best, OF_BEST),
        row("the best static mapping of each mix over Linux's mean", percent(best / of(&|c| c.linux.mean)), "%"),
        row("the best static mapping of each mix over Linux's best seed", percent(best / of(&|c| c.linux.best)), "%"),
        row("SAM, geometric mean of all", of(&|c| c.sam.mean) / best, OF_JOINT),
        row("SAM on second contexts, too, geometric mean of all", of(&|c| c.crowding.mean) / best, OF_JOINT),
        row("SAM as recommended, geometric mean of all", of(&|c| c.recommended.mean) / best, OF_JOINT),
        row("Linux, mean, geometric mean of all", of(&|c| c.linux.mean) / best, OF_JOINT),
        level("SAM: slowest application, geometric mean of the mixes", 0.83, of(&|c| c.sam.range[0]), OF_BEST)
            .because(&apart(0, slowest)),
        row("SAM as recommended: slowest application", of(&|c| c.recommended.range[0]), OF_BEST),
        level("Linux, best seed: slowest application", 0.69, of(&|c| c.linux.best_range[0]), OF_BEST)
            .because("being apart costs less in this model than on the paper's machine"),
        row("Linux, mean: slowest application", of(&|c| c.linux.range[0]), OF_BEST),
        row("cache-aware Linux: slowest application", of(&|c| c.aware.range[0]), OF_BEST),
        row("the best static mapping of the mix: slowest application", slowest, OF_BEST),
        level("SAM: fastest application, geometric mean of the mixes", 0.96, of(&|c| c.sam.range[1]), OF_BEST)
            .because(&apart(1, fastest)),
        row("SAM as recommended: fastest application", of(&|c| c.recommended.range[1]), OF_BEST),
        level("Linux, best seed: fastest application", 0.87, of(&|c| c.linux.best_range[1]), OF_BEST),
        row("Linux, mean: fastest application", of(&|c| c.linux.range[1]), OF_BEST),
        row("cache-aware Linux: fastest application", of(&|c| c.aware.range[1]), OF_BEST),
        row("the best static mapping of the mix: fastest application", fastest, OF_BEST),
        effect("SAM over Linux's best seed, the least", LEAST_MIXED, lowest(all.iter().map(Compared::gain_over_best)))
            .because(&format!(
                "{PAGES_STAY}; where they follow it is {:.1} %, and {:.1} % over the mean: the best seed has better luck with places",
                lowest(all.iter().map(Compared::following)),
                lowest(all.iter().map(|c| percent(c.balanced[1].mean / c.balanced[0].mean)))
            )),
        effect("SAM over Linux's best seed, the most", MOST_MIXED, highest(all.iter().map(Compared::gain_over_best)))
            .because(&format!(
                "the best static mapping itself has at most {:.0} % over it here",
                highest(all.iter().zip(&top).map(|(c, top)| percent(top / c.linux.best)))
            )),
    ]);
    summary.extend(groups(&all));
    let better = all.iter().filter(|c| c.gain() > 1.0).count();
    let over_best = all.iter().filter(|c| c.gain_over_best() > 1.0).count();
    let gains = all.iter().filter(|c| c.recommended.mean > 1.01 * c.linux.mean).count();
    let fairer = of(&|c| c.sam.range[0]) > of(&|c| c.linux.best_range[0]);
    let verdict = format!(
        "SAM is more than 1 % faster than Linux's mean in {better} and than its best seed in {over_best} of {} mixes, as recommended in {gains} \
         (mean); it is {}fairer; {}",
        all.len(),
        if fairer { "" } else { "not " },
        tally(&summary)
    );
    rows.extend(summary);
    let lost = |c: &&Compared| c.gain_over_best() < -1.0;
    let lost: Vec<String> =
        all.iter().filter(lost).map(|c| format!("{} ({:.1} %)", c.case.mix, c.gain_over_best())).collect();
    let lost = listed(&lost);
    let exact = joint.iter().filter(|j| j.label == Label::Optimal).count();
    let (most, error) =
        (joint.iter().map(|j| j.evaluations).max().unwrap_or_default(), highest(joint.iter().map(|j| j.error)));
    let note = format!(
        "{} Programs that end begin anew until all have ended once (assumed). The paper normalises mixes to each \
         application's best mapping alone (§4.3), and so do rows in parts of that. Besides, the best static mapping \
         of each mix was searched for: all classes for {exact} mixes, the best found for {}, at most {most} \
         evaluations of a mix. Mappings were compared by runs of half a second, which differ from whole runs by at \
         most {:.2} %. Mixes in which SAM is slower than Linux's best seed: {lost}.",
        base(lab, mixes())?,
        joint.len() - exact,
        error * 100.0
    );
    Ok(Found::new(rows, verdict, note))
}

/// The four panels of Figures 6 and 8 from the observations.
fn panels(runs: &[Run]) -> [f64; 4] {
    let of = |f: &dyn Fn(&RunTotals) -> f64| mean(runs.iter().map(|r| f(&r.seen)));
    [
        of(&|s| s.instructions / s.cycles),
        of(&|s| s.inter / s.cycles),
        of(&|s| s.intra / s.cycles),
        of(&|s| s.misses / s.seconds),
    ]
}

/// Number of cases in which SAM raises the IPC: as is, with one cause removed, the other, and both.
fn rises(runs: &[Vec<Vec<Run>>]) -> String {
    let of = |from: usize, to: usize| {
        runs.iter().filter(|arms| panels(&arms[to])[0] > 1.01 * panels(&arms[from])[0]).count()
    };
    format!(
        "in {} of {}; as recommended in {}, where pages follow in {}, with both in {}",
        of(0, 2),
        runs.len(),
        of(0, 4),
        of(6, 7),
        of(6, 8)
    )
}

fn metrics(lab: &mut Lab, what: &str, cases: fn() -> Vec<Case>) -> anyhow::Result<Found> {
    let kept = lab.some(cases());
    let runs = lab.runs(what, &kept, &ARMS)?;
    let places: Vec<Vec<usize>> = if kept.iter().all(|case| case.mix == 0) {
        let best = lab.best(&kept)?;
        kept.iter().map(|case| best[&case.apps[0]].places.clone()).collect()
    } else {
        lab.joint(what, &kept, &ARMS)?.into_iter().map(|joint| joint.places).collect()
    };
    let pinned = lab.pinned(&kept, &places)?;
    let machine = Lab::scenario("[[app]]\nprogram = 'cpu'\n")?.sim;
    // LLC misses per cycle and socket, the mean over sockets.
    let sockets = machine.topology.packages().len() as f64;
    let scale = [1.0, 1.0, 1.0, 1.0 / (sockets * machine.clock_hz)];
    let names = [
        ("IPC of a thread", "instructions/cycle"),
        ("inter-socket coherence of a thread", "events/cycle"),
        ("intra-socket coherence of a thread", "events/cycle"),
        ("LLC misses of a socket", "misses/cycle"),
    ];
    let mut rows = Vec::new();
    let mut changes: [Vec<(f64, f64)>; 4] = Default::default();
    let mut best: [(f64, f64); 4] = Default::default();
    for ((case, arms), pinned) in kept.iter().zip(&runs).zip(&pinned) {
        let [linux, aware, sam, _, recommended] = [0, 1, 2, 3, 4].map(|arm| panels(&arms[arm]));
        let still = panels(std::slice::from_ref(pinned));
        for (panel, (name, unit)) in names.iter().enumerate() {
            let all = [
                ("Linux", linux),
                ("cache-aware Linux", aware),
                ("SAM", sam),
                ("SAM as recommended", recommended),
                ("the best static mapping", still),
            ];
            for (arm, value) in all {
                rows.push(row(format!("{}: {name}, {arm}", case.label), value[panel] * scale[panel], unit));
            }
            changes[panel].push((linux[panel] * scale[panel], sam[panel] * scale[panel]));
            best[panel] = (best[panel].0 + still[panel], best[panel].1 + sam[panel]);
        }
    }
    let sum = |panel: usize| changes[panel].iter().fold((0.0, 0.0), |s, c| (s.0 + c.0, s.1 + c.1));
    let change = |panel: usize| percent(sum(panel).1 / sum(panel).0);
    let higher = changes[0].iter().filter(|(linux, sam)| sam > &(linux * 1.01)).count();
    let lower = changes[0].iter().filter(|(linux, sam)| sam < &(linux * 0.99)).count();
    let n = kept.len();
    let mostly = kept.iter().all(|case| case.mix > 0) && kept.len() > 1;
    // Mixes without sharing have nothing to lose.
    let sharing = changes[1].iter().copied().filter(|(linux, _)| *linux > 0.0);
    let (still, less): (Vec<_>, Vec<_>) = sharing.partition(|(linux, sam)| (sam / linux - 1.0).abs() < 0.01);
    let left = mean(less.iter().map(|c| c.1)) / mean(less.iter().map(|c| c.0));
    let against_linux = |arm: usize| {
        let inter = |arm: usize| mean(runs.iter().map(|arms| panels(&arms[arm])[1]));
        percent(inter(arm) / inter(0))
    };
    let full = format!(
        "in {} mixes sharers fill both sockets, and nothing moves. In the other {} that share it falls by {:.0} %. On \
         second contexts, too, it changes by {:+.0} % in all, as recommended by {:+.0} %",
        still.len(),
        less.len(),
        -percent(left),
        against_linux(3),
        against_linux(4)
    );
    for (panel, (name, _)) in names.iter().enumerate() {
        let label = format!("{name}, SAM against Linux, all together");
        rows.push(match panel {
            0 => claim(label, change(0), "%", "higher for almost all", higher * 5 >= n * 4).because(&rises(&runs)),
            1 if mostly => claim(label, change(1), "%", "significantly reduced", change(1) < -25.0).because(&full),
            1 => claim(label, change(1), "%", "almost eliminated", change(1) < -90.0),
            2 => claim(label, change(2), "%", "takes the place of inter-socket coherence", change(2) > 0.0),
            _ => row(label, change(panel), "%"),
        });
        // The best mapping may have none.
        if best[panel].0 > 0.0 {
            let over = percent(best[panel].1 / best[panel].0);
            rows.push(row(format!("{name}, SAM against the best static mapping"), over, "%"));
        }
    }
    let words = match change(1) {
        c if c < -90.0 => "almost gone",
        c if c < -25.0 => "reduced",
        _ => "not reduced",
    };
    let verdict = format!(
        "IPC is higher under SAM in {higher} and lower in {lower} of {n} cases; inter-socket coherence is {} ({:+.0} %), intra-socket \
         coherence {:+.0} %, LLC misses {:+.0} %",
        words,
        change(1),
        change(2),
        change(3)
    );
    let note = "The paper's text gives no figures for these panels. It says that IPC rises for almost all, and that \
                inter-socket coherence is almost eliminated (alone) or significantly reduced (mixes) and replaced by \
                intra-socket coherence. Means over the seeds; LLC misses hold what other sockets serve, as on the \
                hardware.";
    Ok(Found::new(rows, verdict, note))
}

/// Figure 6.
pub(super) fn fig6(lab: &mut Lab) -> anyhow::Result<Found> {
    metrics(lab, "applications alone", standalone)
}

/// Figure 8.
pub(super) fn fig8(lab: &mut Lab) -> anyhow::Result<Found> {
    metrics(lab, "mixes", mixes)
}

#[cfg(test)]
mod tests {
    use super::super::lab::Effort;
    use super::*;
    use std::sync::{Arc, Mutex};

    const WORK_S: f64 = 1.0;

    fn mix(number: usize) -> Case {
        mixes().swap_remove(number - 1)
    }

    fn lab() -> Lab {
        Lab::new(Effort::QUICK, Arc::new(Mutex::new((0.0, String::new()))))
    }

    fn runs(number: usize, arm: Arm, seed: u64) -> Run {
        Lab::once(lab().of(&mix(number).apps, WORK_S).unwrap(), arm, seed).unwrap()
    }

    #[test]
    fn gains_are_drawn_in_order_beside_the_papers() {
        let rows = gain_rows(vec![(3.0, "b"), (-1.0, "a"), (7.0, "c")], "Linux", &[(2, 36.0)]);
        let drawn: Vec<(f64, f64, Option<f64>)> =
            rows.iter().map(|row| (row.at.as_ref().unwrap().x, row.measured, row.paper)).collect();
        assert_eq!(drawn, [(1.0, -1.0, None), (2.0, 3.0, None), (3.0, 7.0, Some(36.0))]);
        assert_eq!(rows[2].label, "SAM over Linux, place 3: c");
        assert!(rows.iter().all(|row| row.met.is_none()), "these are no statements of their own");
    }

    /// Ten of `sgd` and of `bsgd` on twenty cores, twenty of each on forty contexts: there is no room for another
    /// sharer. Without the rule of a core each there is, on the second contexts of the first ten.
    #[test]
    fn nobody_moves_where_sharers_fill_both_sockets() {
        let crowding = Arm::SamWith("default,-whole-cores", Pin::Llc);
        for (number, arm, moves) in [(9, SAM, false), (17, SAM, false), (12, SAM, false), (9, crowding, true)] {
            let seen = runs(number, arm, 1).seen;
            assert_eq!(seen.moves[0] > 0.0, moves, "mix {number}: {seen:?}");
            assert_eq!(seen.inter / seen.cycles > lab().threshold().unwrap(), !moves, "mix {number}: {seen:?}");
        }
    }

    /// Twenty of `lsgd` come together; with half the threshold `als` shares, too, and both sockets are full.
    #[test]
    fn nobody_moves_where_who_hardly_shares_counts() {
        let moves = [SAM, Arm::Sam(0.5, 1.0)].map(|arm| runs(20, arm, 1).seen.moves[0]);
        assert!(moves[0] >= 5.0 && moves[1] == 0.0, "{moves:?}");
    }

    /// Twelve of `membench` beside eight of `hubench`; Linux halves the former with the second seed.
    #[test]
    fn hubench_gains_more_than_membench_loses() {
        let [linux, sam] = [Arm::Linux, SAM].map(|arm| runs(1, arm, 2).outcome.apps);
        let faster = |app: usize| linux[app].time_s / sam[app].time_s;
        assert!(faster(0) < 0.95 && faster(0) * faster(1) > 1.05, "{} {}", faster(0), faster(1));
    }

    /// Eight threads as Linux halves them come to the rates of §4.1, and SAM brings both together as in Table 1.
    #[test]
    fn hubench_and_lubench_run_at_the_papers_rates() {
        for (name, rate) in [("HuBench", 1.3e-3), ("LuBench", 2.6e-4)] {
            let eight = [App { name: name.to_owned(), threads: 8 }];
            let run = |arm| Lab::once(lab().of(&eight, WORK_S).unwrap(), arm, 1).unwrap().seen;
            let (linux, sam) = (run(Arm::Linux), run(SAM));
            let seen = linux.inter / linux.cycles;
            assert!((seen / rate - 1.0).abs() < 0.02, "{name}: {seen}");
            assert!(sam.moves[0] >= 4.0, "{name}: {sam:?}");
        }
    }

    /// Ten copies of `mcf` lose more by leaving ten of `hubench` a socket than these gain.
    #[test]
    fn a_socket_stays_with_those_that_would_lose_more() {
        let apps = [("HuBench", 10), ("mcf", 10)].map(|(name, threads)| App { name: name.to_owned(), threads });
        let speed = |arm: Arm| {
            let run = |seed| Lab::once(lab().of(&apps, 2.0 * WORK_S).unwrap(), arm, seed).unwrap().outcome.apps;
            geometric((1..=3).flat_map(run).map(|app| 1.0 / app.time_s))
        };
        let linux = speed(Arm::Linux);
        let [default, recommended] = [SAM, RECOMMENDED].map(|arm| speed(arm) / linux);
        assert!(default < 0.95 && recommended > 1.0, "{default} {recommended}");
    }

    /// With the first seed Linux puts all ten of `membench` on one socket. SAM moves some to the other one, which gains
    /// little, unless the kernel lets their pages follow.
    #[test]
    fn bandwidth_is_relieved_where_pages_follow() {
        let gain = |linux: Arm, sam: Arm| {
            let [linux, sam] = [linux, sam].map(|arm| runs(24, arm, 1));
            assert!(sam.seen.moves[2] > 0.0);
            linux.outcome.apps[1].time_s / sam.outcome.apps[1].time_s
        };
        let (stay, follow) = (gain(Arm::Linux, SAM), gain(ARMS[6], ARMS[7]));
        assert!(stay < 1.05 && follow > 1.2, "{stay} {follow}");
    }

    /// Ten of `sgd` and of `bsgd` come together on a socket each; half of their pages stay on the other one's node.
    #[test]
    fn who_comes_together_gains_more_where_pages_follow() {
        let gain = |linux: Arm, sam: Arm| {
            let scenario = lab().of(&mix(9).apps, 5.0 * WORK_S).unwrap();
            let [linux, sam] = [linux, sam].map(|arm| Lab::once(scenario.clone(), arm, 1).unwrap().outcome);
            linux.apps[0].time_s / sam.apps[0].time_s
        };
        let (stay, follow) = (gain(Arm::Linux, RECOMMENDED), gain(ARMS[6], ARMS[8]));
        assert!(stay > 1.02 && follow > stay + 0.05, "{stay} {follow}");
    }
}
