//! Figures 7 to 9 and Table VI: small, medium and large dynamic workloads.

use super::super::lab::Lab;
use super::super::row::{Found, Row, effect_of, highest, row};
use super::data::{HARPERTOWN, OPTERON, PLATFORMS, Platform, XEON, YORKFIELD, improvement, printed};
use super::{ASSUMED, Who, compare, data, own, pool, seeds};
use cotenant_measure::workload::compare::{Figures, Gain, gains};
use cotenant_measure::workload::{MOST_RUNS, SPAN, Size, Workload};
use cotenant_model::stats::paired::{Tail, paired};
use std::time::Duration;

/// Workloads of each size and machine; the figures show seven to ten.
const WORKLOADS: u64 = 10;

/// "Up to" in the text of §3.2 to §3.4: average response time, throughput, percent.
fn most(size: Size, platform: &Platform) -> Option<[f64; 2]> {
    let all = [
        (Size::Small, YORKFIELD, [4.75, 5.32]),
        (Size::Small, HARPERTOWN, [8.89, 14.88]),
        (Size::Small, XEON, [16.52, 13.70]),
        (Size::Small, OPTERON, [27.03, 19.97]),
        (Size::Medium, XEON, [12.38, 30.0]),
        (Size::Medium, OPTERON, [20.89, 46.56]),
        (Size::Large, XEON, [8.29, 13.65]),
        (Size::Large, OPTERON, [29.34, 29.86]),
    ];
    all.into_iter().find(|(s, p, _)| *s == size && p.name == platform.name).map(|found| found.2)
}

/// A mean improvement beside the paper's, with its interval at the paper's level.
fn judged(label: &str, gain: &Gain, each: &[f64], [paper, half, p]: [f64; 3]) -> Row {
    let interval = paired(&vec![0.0; each.len()], each, 1.0 - p, Tail::Both);
    let verdict = match interval {
        Some(i) if (paper - half..=paper + half).contains(&i.mean) => "inside the paper's interval",
        Some(i) if i.high < paper - half => "below the paper's interval, whole",
        Some(i) if i.low > paper + half => "above the paper's interval, whole",
        Some(i) if i.mean < paper => "below the paper's interval, ours reaches into it",
        Some(_) => "above the paper's interval, ours reaches into it",
        None => "too few workloads",
    };
    let own = interval.map_or(String::new(), |i| format!(" ± {:.2}", (i.high - i.low) / 2.0));
    let chance = gain.p.map_or(String::new(), |p| format!(", p = {p:.4}"));
    let verdict = format!("{verdict} ({paper} ± {half}; ours {:.2}{own}{chance})", gain.percent);
    let met = verdict.starts_with("inside");
    row(label, gain.percent, "%").judged(paper, verdict, met)
}

fn size(lab: &Lab, size: Size) -> anyhow::Result<Found> {
    let quick = lab.effort.every > 1;
    let (count, span, runs) = if quick { (2, Duration::from_secs(10), 2) } else { (WORKLOADS, SPAN, MOST_RUNS) };
    let mut rows = Vec::new();
    let platforms = PLATFORMS.into_iter().filter(|p| improvement(&size.to_string(), "art", p).is_some());
    for platform in platforms {
        let scores = printed().into_iter().filter(|p| p.platform == platform.name && (p.parsec || size != Size::Small));
        let scores: Vec<_> = scores.collect();
        let (programs, theirs) = (data::programs(&scores), data::printed_profiles(&scores));
        let ours = own::profiles(lab, &platform, &programs)?;
        let scenario = pool(lab, &platform, &programs)?;
        let workloads = (1..=count).map(|seed| Workload::generate(size, &programs, span, runs, seed));
        let workloads: Vec<Workload> = workloads.collect();
        let arms = [Who::Linux, Who::Resense(&theirs), Who::Resense(&ours)];
        let what = format!("resense-{size} on {}", platform.machine);
        let found = compare(lab, &what, &scenario, &workloads, &arms)?;
        for (arm, by) in [(1, "paper's scores"), (2, "simulated scores")] {
            let pairs: Vec<(Figures, Figures)> = found.iter().map(|of| (of[0], of[arm])).collect();
            let better: Vec<[f64; 2]> = pairs.iter().map(|(linux, with)| with.over(linux)).collect();
            let gained = gains(&pairs);
            for (metric, name) in ["art", "throughput"].into_iter().enumerate() {
                let label = format!("{}, {by}: {name}", platform.machine);
                let each: Vec<f64> = better.iter().map(|b| b[metric]).collect();
                if arm == 1 {
                    for (percent, workload) in each.iter().zip(&workloads) {
                        rows.push(row(format!("{label} of {workload}"), *percent, "% better than Linux"));
                    }
                }
                let mean = format!("{label}, mean over {count} workloads");
                rows.extend(
                    improvement(&size.to_string(), name, &platform)
                        .map(|paper| judged(&mean, &gained[metric], &each, paper)),
                );
                let top = highest(&each);
                let label = format!("{label}, at most");
                rows.push(effect_of(label, most(size, &platform).map(|paper| paper[metric]), top));
            }
        }
    }
    let note = format!(
        "{count} random workloads of each machine, {} seeds of Linux each, their mean; arrivals in {} s, 1 to {runs} runs, each {} s of work per thread (how long the \
         paper's runs are it does not say). Improvements over the simulated kernel eevdf; intervals at the paper's level of each cell. {ASSUMED}",
        seeds(lab),
        span.as_secs(),
        super::work_s(lab)
    );
    Ok(Found::tallied(rows, note))
}

/// Figure 7, §3.2.
pub(in super::super) fn small(lab: &mut Lab) -> anyhow::Result<Found> {
    size(lab, Size::Small)
}

/// Figure 8, §3.3.
pub(in super::super) fn medium(lab: &mut Lab) -> anyhow::Result<Found> {
    size(lab, Size::Medium)
}

/// Figure 9, §3.4.
pub(in super::super) fn large(lab: &mut Lab) -> anyhow::Result<Found> {
    size(lab, Size::Large)
}
