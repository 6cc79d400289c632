//! Reactive-Niceness, chapter 6: naps on demand of the high-priority program.

use super::super::lab::Lab;
use super::super::row::{Found, Row, bound, claim, effect, highest, lowest, mean, percent, row};
use super::{How, Inserted, Kept, NEHALEM, PHENOM, Run, all, seen, spec};
use cotenant_model::Time;
use std::time::Duration;

/// The low-priority programs (§6.4.2), by their names in `workloads/`.
const LOW: [&str; 3] = ["sledge-large", "lbm06", "milc06"];
const SIMPLE: [&str; 3] = ["utilisation-biased", "balanced", "qos-biased"];
const TARGETED: [&str; 3] = ["conservative-90", "relaxed-90", "conservative-80"];
/// Our controller, compared with them.
pub(super) const OURS: &str = "tracking";
const SETTING: &str = "One thread each on neighbouring cores; the programs of high priority are all of workloads/spec-cpu2006.toml (the paper's 18 are not \
                       named), measured elsewhere. Naps take all of the program of low priority, at once and exactly. Speed is instructions per second over that alone; utilisation \
                       the share of the time in which the other one ran.";

/// Some low-priority programs, each beside all others, unmodified and under these controllers.
struct Study {
    runs: Vec<Run>,
    found: Vec<Kept>,
}

impl Study {
    fn of(lab: &Lab, what: &str, machine: &'static str, controllers: &[&'static str]) -> anyhow::Result<Self> {
        let high = spec(lab);
        let hows: Vec<How> =
            std::iter::once(How::Plain).chain(controllers.iter().map(|name| How::Under(name))).collect();
        let mut runs = Vec::new();
        for low in LOW {
            for how in &hows {
                runs.extend(high.iter().filter(|high| *high != low).map(|high| Run::of(machine, high, low, *how)));
            }
        }
        let found = all(lab, what, &runs)?;
        Ok(Self { runs, found })
    }

    /// Runs beside a given low-priority program, or beside any.
    fn under(&self, low: Option<&str>, how: How) -> Vec<(&str, Kept)> {
        let is = |run: &Run| run.how == how && low.is_none_or(|low| run.low.as_deref() == Some(low));
        let of = self.runs.iter().zip(&self.found).filter(|(run, _)| is(run));
        of.map(|(run, kept)| (run.high.as_str(), *kept)).collect()
    }

    fn quality(&self, low: Option<&str>, how: How) -> f64 {
        mean(self.under(low, how).iter().map(|(_, kept)| kept.quality))
    }

    fn utilisation(&self, how: How) -> f64 {
        mean(self.under(None, how).iter().map(|(_, kept)| kept.duty))
    }

    /// Mean and minimum per low-priority program.
    fn rows(&self, machine: &str, hows: &[How]) -> Vec<Row> {
        let mut rows = Vec::new();
        for low in LOW {
            for how in hows {
                let name = match how {
                    How::Under(name) => name,
                    _ => "as it is",
                };
                let all = self.under(Some(low), *how);
                let label = |what: &str| format!("{machine}, {low} {name}: {what}");
                rows.push(row(label("speed of the others, mean"), self.quality(Some(low), *how), "of alone"));
                let least = lowest(all.iter().map(|(_, kept)| kept.quality));
                rows.push(row(label("speed of the others, lowest"), least, "of alone"));
                if matches!(how, How::Under(_)) {
                    let used = mean(all.iter().map(|(_, kept)| kept.duty));
                    rows.push(row(label("utilisation"), used, "of the time"));
                }
            }
        }
        rows
    }
}

/// The text's statements on the three presets: the other program's fraction of time in each run and its average per
/// preset (utilisation-biased first), and the speed under balanced and utilisation-biased.
pub(in super::super) fn statements_on_presets(
    label: &str,
    had: &[f64],
    used: [f64; 3],
    [balanced, biased]: [f64; 2],
    unit: &'static str,
) -> [Row; 3] {
    let half = had.iter().filter(|had| **had > 0.5).count() as f64 / had.len() as f64 * 100.0;
    let (more, less) = (used[0] - highest(&used[1..]), balanced - biased);
    let says = "its utilisation is significantly higher";
    let speed = "speed under balanced over that under utilisation-biased";
    [
        claim(label, half, "%", "often more than 50 %", half >= 50.0),
        claim("utilisation-biased over the better of the others", more, unit, says, more > 0.05),
        claim(speed, less, "of alone", "it degrades only slightly", less < 0.05),
    ]
}

/// Figures 6.5–6.10.
pub(in super::super) fn simple(lab: &mut Lab) -> anyhow::Result<Found> {
    let study = Study::of(lab, "tang-rn-simple", NEHALEM, &SIMPLE)?;
    let [utilisation, balanced, quality] = SIMPLE.map(How::Under);
    let mut rows = study.rows(NEHALEM, &[How::Plain, utilisation, balanced, quality]);
    let plain = study.under(None, How::Plain);
    let under = SIMPLE.map(|name| study.under(None, How::Under(name)));
    let gains = under.iter().flat_map(|under| plain.iter().zip(under));
    let gains = gains.map(|((_, before), (_, after))| percent(after.quality / before.quality));
    rows.push(effect("highest gain of speed over co-location as it is", 26.0, highest(gains)));
    let duties: Vec<f64> = under.iter().flatten().map(|(_, kept)| kept.duty).collect();
    let others: Vec<f64> = under[..2].iter().flatten().map(|(_, kept)| kept.duty).collect();
    let half = others.iter().filter(|duty| **duty > 0.5).count() as f64 / others.len() as f64 * 100.0;
    let why =
        format!("qos-biased always naps at least as long as it runs; with the other two presets it is {half:.0} %");
    let label = "runs in which the other program ran more than half of the time";
    let used = SIMPLE.map(|name| study.utilisation(How::Under(name)));
    let speeds = [balanced, utilisation].map(|how| study.quality(None, how));
    let [ran, more, less] = statements_on_presets(label, &duties, used, speeds, "of the time");
    rows.extend([ran.because(&why), more, less]);
    let note = format!(
        "nehalem-i7-920. {SETTING} Runs between naps are 2 ms, and the latest sample is that of their second one."
    );
    Ok(Found::tallied(rows, note))
}

/// Watts of an idle machine and of a busy core, of which only the quotient matters: a guess without a source.
const IDLE_W: f64 = 100.0;
const CORE_W: f64 = 25.0;

/// Instructions per second and watt of co-location over those of a machine per program.
fn efficiency(kept: Kept) -> f64 {
    // Instructions relative to those alone: both programs weigh the same.
    let apart = 2.0 / (2.0 * (IDLE_W + CORE_W));
    (kept.quality + kept.rate) / (IDLE_W + CORE_W * (1.0 + kept.duty)) / apart
}

/// Figures 6.11–6.16, 6.24–6.26.
pub(in super::super) fn targeted(lab: &mut Lab) -> anyhow::Result<Found> {
    let names: Vec<&'static str> = TARGETED.into_iter().chain([OURS]).collect();
    let hows: Vec<How> = std::iter::once(How::Plain).chain(names.iter().map(|name| How::Under(name))).collect();
    let [conservative, relaxed, eighty] = TARGETED.map(How::Under);
    let mut rows = Vec::new();
    let mut studies = Vec::new();
    for machine in [NEHALEM, PHENOM] {
        let study = Study::of(lab, "tang-rn-targeted", machine, &names)?;
        rows.extend(study.rows(machine, &hows));
        studies.push((machine, study));
    }
    for (machine, study) in &studies {
        for (how, goal) in [(conservative, 0.9), (relaxed, 0.9), (eighty, 0.8), (How::Under(OURS), 0.9)] {
            let How::Under(name) = how else { continue };
            let all = study.under(None, how);
            let kept = all.iter().filter(|(_, kept)| kept.quality >= goal - 0.01).count() as f64;
            let share = kept / all.len() as f64 * 100.0;
            let label =
                format!("{machine}: pairs at the goal of {:.0} % or within a point of it, {name}", goal * 100.0);
            rows.push(match how {
                _ if how == relaxed => claim(label, share, "%", "the target is often met", share >= 50.0),
                How::Under(OURS) => row(label, share, "%"),
                _ => claim(label, share, "%", "beaten in many cases, nearly met in the worst", share >= 90.0),
            });
        }
        for how in [conservative, relaxed, How::Under(OURS)] {
            let How::Under(name) = how else { continue };
            let label = format!("{machine}: mean utilisation at 90 %, {name}");
            let used = study.utilisation(how);
            rows.push(claim(label, used, "of the time", "more than a half on average", used > 0.5));
        }
    }
    let nehalem = &studies[0].1;
    let of = |study: &Study, low: &str, high: &str, how: How| {
        study.under(Some(low), how).into_iter().find(|(name, _)| *name == high).map(|(_, kept)| kept)
    };
    let phenom = &studies[1].1;
    for low in ["lbm06", "milc06"] {
        let used = mean(phenom.under(Some(low), relaxed).iter().map(|(_, kept)| kept.duty));
        let label = format!("phenom-x4: utilisation of {low}, relaxed-90");
        rows.push(claim(label, used, "of the time", "80 to 90 %", (0.8..=0.9).contains(&used)));
    }
    let pair = |how| of(phenom, LOW[0], "lbm06", how).map(|kept| kept.duty);
    if let (Some(ninety), Some(eighty)) = (pair(conservative), pair(eighty)) {
        let (label, times) = ("phenom-x4: utilisation of sledge beside lbm, 80 % over 90 %", eighty / ninety);
        rows.push(claim(label, times, "", "more than doubled", times > 2.0));
    }
    // The watts are guessed, so that the result is no evidence and is not compared with the paper's meter.
    for name in [TARGETED[0], OURS] {
        let all = nehalem.under(None, How::Under(name));
        let gain = percent(mean(all.iter().map(|(_, kept)| efficiency(*kept))));
        rows.push(row(
            format!("nehalem-i7-920: instructions per guessed watt over a machine for each, {name}"),
            gain,
            "%",
        ));
    }
    let watt = |low: &str, high: &str| of(nehalem, low, high, conservative).map(|kept| percent(efficiency(kept)));
    if let (Some(namd), Some(sphinx)) = (watt("lbm06", "namd06"), watt("lbm06", "sphinx306")) {
        rows.push(row("the same, namd–lbm over sphinx–lbm", namd - sphinx, "points"));
    }
    let note = format!(
        "{SETTING} `tracking` is ours and waits for warm caches (docs/policies/qos.md). Instructions per watt rests \
         on guesses, {IDLE_W} W idle and {CORE_W} W per working core, where the paper has a meter, and is held \
         against nothing. Both programs' instructions count as shares of those alone, two machines for two programs \
         against one. The paper's text says 42 %, its conclusions 47 %."
    );
    Ok(Found::tallied(rows, note))
}

/// Samples every millisecond without any action.
const MONITOR: Inserted = Inserted::everywhere(Duration::from_millis(1), Duration::ZERO);

/// Cost of a sample, µs: `cotenant qos` took 3.73 % of a CPU at a sample per millisecond on Linux, pauses included
/// (docs/reference/overhead.md).
const LOOK_US: f64 = 37.3;

/// Figure 6.22.
pub(in super::super) fn overhead(lab: &mut Lab) -> anyhow::Result<Found> {
    let (warm, end) = if lab.effort.every > 1 { (0.2, 0.6) } else { (1.0, 3.0) };
    let mut rows = Vec::new();
    let mut costs = [Vec::new(), Vec::new()];
    for program in spec(lab) {
        // A machine with idle cores, and one where observation takes time from a program.
        for (full, costs) in [false, true].into_iter().zip(&mut costs) {
            // The simulated machine charges the thread on the last core: the program itself, like the paper's timer.
            let cpus = [vec![3], vec![0, 1, 2]];
            let low = full.then(|| "cpu".to_owned());
            let mut scenario = Run { low, cpus, ..Run::of(NEHALEM, &program, &program, How::Plain) }.scenario()?;
            scenario.end = Time((end * 1e9) as u64);
            let per_task = LOOK_US * 1e-6 / if full { 4.0 } else { 1.0 };
            let mut speed = |cost_s: f64| {
                scenario.observation.cost_s = cost_s;
                seen(&scenario, &MONITOR, warm).map(|seen| seen.high)
            };
            costs.push((1.0 - speed(per_task)? / speed(0.0)?) * 100.0);
        }
        let [idle, full] = costs.each_ref().map(|costs| costs.last().copied().unwrap_or_default());
        rows.push(row(format!("{program}: loss by the monitor, idle cores"), idle, "%"));
        rows.push(row(format!("{program}: loss by the monitor, no idle core"), full, "%"));
    }
    let why = "an outside monitor reads more than a timer in the program itself, and all of it is taken from this one program";
    for (costs, where_) in costs.iter().zip(["idle cores", "no idle core"]) {
        for (what, paper, cost) in [("mean", 1.0, mean(costs)), ("highest", 2.0, highest(costs))] {
            rows.push(bound(format!("loss by the monitor, {what}, {where_}"), paper, cost, "%").because(why));
        }
    }
    let note = format!(
        "nehalem-i7-920, one thread. A look costs {LOOK_US} µs of a CPU, what `cotenant qos` was measured to take on Linux; the paper's monitor is a timer in the program itself. Where no core \
         is idle it is taken from the program itself. The nap engine (Figure 6.23, below 5 %) is not simulated: what marks cost is measured on real programs, docs/reference/compiler-pass.md."
    );
    Ok(Found::tallied(rows, note))
}
