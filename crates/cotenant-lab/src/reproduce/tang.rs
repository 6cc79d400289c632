//! Thread-to-core mapping of services: Tang's dissertation, chapters 3 and 4.

use super::lab::{Lab, Watch, watched};
use super::row::{Found, Row, claim, effect, effect_of, highest, level, level_of, lowest, mean, percent, row, tally};
use anyhow::Context as _;
use cotenant_model::Time;
use cotenant_model::pin::Pin;
use cotenant_model::policy::DynPolicy;
use cotenant_model::signal::Signal;
use cotenant_model::topology::notation::parse_map;
use cotenant_policies::{Atom, Heuristic, Shapes};
use cotenant_sim::app::Phase;
use cotenant_sim::scenario::Scenario;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const CLOVERTOWN: &str = "clovertown-2s";
const WESTMERE: &str = "westmere-2s";
/// The same with both contexts of each core, on which six cores take eight threads (§3.3.3).
const WESTMERE_HT: &str = "westmere-2s-ht";
const SERVICES: [&str; 3] = ["contentAnalyzer", "webSearch", "bigtable"];
const BATCH: [&str; 2] = ["stitcher", "protobuf"];
/// The balanced mappings of four threads and four others (§3.3.1).
const FOUR: [&str; 3] = ["X*X*|X*X*", "XX**|XX**", "XXXX|****"];
/// Table 3.4: the best of these for each service alone, beside stitcher and beside protobuf; for webSearch's last from
/// the text, because the cell is a misprint.
const BEST: [[usize; 3]; 3] = [[0, 2, 0], [0, 2, 1], [2, 2, 2]];
/// The rate that STREAM sustains on a front-side bus of the Clovertown (§4.1).
const STREAM_BYTES_PER_S: f64 = 5.6e9;
const ASSUMED: &str = "What the services are like is assumed, to agree with the text (workloads/services.toml): Google's programs are not to be had. \
                       Speed is instructions per second of the service. Of the figures only what the text says is set beside ours.";

/// A service on a machine, alone or with a batch program.
#[derive(Clone, Copy)]
struct Load {
    machine: &'static str,
    service: &'static str,
    threads: usize,
    /// The batch program and its threads.
    beside: Option<(&'static str, usize)>,
}

/// Rates of the service in a run: events per second, over all threads.
#[derive(Clone, Copy, Debug, Default)]
struct ServiceRates {
    instructions: f64,
    misses: f64,
    bus: f64,
    /// Requests to the last-level cache, and those that hit a line shared with another thread.
    requests: f64,
    shared: f64,
}

impl Load {
    fn four(machine: &'static str, service: &'static str, beside: Option<&'static str>) -> Self {
        Self { machine, service, threads: 4, beside: beside.map(|name| (name, 4)) }
    }

    fn label(&self) -> String {
        let beside = self.beside.map_or("alone".to_owned(), |(name, _)| format!("with {name}"));
        format!("{} {beside}", self.service)
    }

    fn scenario(&self, end_s: f64) -> anyhow::Result<Scenario> {
        let mut text = "policy = { pin = 'cpu', atom = 'turn=500ms' }\n".to_owned();
        let mut app = |name: &str, threads: usize, sensitive: bool| {
            let _ = write!(
                text,
                "[[app]]\nprogram = '{name}'\nthreads = {threads}\nwork_s = 100000\nlatency_sensitive = {sensitive}\n"
            );
        };
        app(self.service, self.threads, true);
        if let Some((name, threads)) = self.beside {
            app(name, threads, false);
        }
        let mut scenario = Lab::scenario_on(self.machine, &text)?;
        scenario.kernel.numa_balancing = self.machine != CLOVERTOWN;
        scenario.end = Time((end_s * 1e9) as u64);
        Ok(scenario)
    }

    /// In a mapping in the dissertation's notation, with warm caches.
    fn mapped(&self, lab: &Lab, map: &str) -> anyhow::Result<ServiceRates> {
        let mut scenario = self.scenario(length(lab))?;
        let slots = parse_map(&scenario.machine.topology, map)?;
        for (app, letter) in scenario.apps.iter_mut().zip(['X', '*']) {
            let own: Vec<usize> = slots.iter().filter(|s| s.1 == letter).map(|s| s.0.index()).collect();
            anyhow::ensure!(own.len() == app.threads, "{map} has {} places for {}", own.len(), app.name);
            app.pinned = Some(own);
        }
        seen(&scenario, &Watch, 1, length(lab) / 2.0)
    }

    /// In each of some mappings: instructions per second.
    fn speeds(&self, lab: &Lab, maps: &[String]) -> anyhow::Result<Vec<f64>> {
        maps.iter().map(|map| Ok(self.mapped(lab, map)?.instructions)).collect()
    }

    /// The balanced mappings of this load on its machine.
    fn maps(&self) -> Vec<String> {
        let all: &[&str] = match (self.machine, self.threads) {
            (CLOVERTOWN, 2) => &["X***|X***", "X*X*|****", "XX**|****"],
            (CLOVERTOWN, 6) => &["XXX*|XXX*", "XXXX|X*X*", "XXXX|XX**"],
            (CLOVERTOWN, _) => &FOUR,
            (_, 2) => &["X.....|X.....", "XX....|......"],
            (_, 6) => &["XXX***|XXX***", "XXXXXX|******"],
            (_, 8) => &["X.X.X.X.....|X.X.X.X.....", "XXXXX.X.X.X.|............"],
            (_, _) => &["XX**..|XX**..", "XXXX..|****..", "XX....|XX****", "XXXX**|**...."],
        };
        // One of the two contexts of each core, if enough cores exist.
        let core = |place: char| if place == '|' { "|".to_owned() } else { format!("{place}.") };
        let one_each = self.machine == WESTMERE_HT && self.threads < 8;
        let of = |map: &&str| if one_each { map.chars().map(core).collect() } else { (*map).to_owned() };
        let all: Vec<String> = all.iter().map(of).collect();
        if self.beside.is_some() {
            return all;
        }
        // Alone, some of them coincide.
        let mut known = BTreeSet::new();
        let mut is_new = |map: &String| {
            let mut halves: Vec<String> = map.split('|').map(str::to_owned).collect();
            halves.sort();
            known.insert(halves)
        };
        all.into_iter().map(|map| map.replace('*', ".")).filter(|map| is_new(map)).collect()
    }
}

/// Simulated seconds of a run with a fixed mapping.
fn length(lab: &Lab) -> f64 {
    if lab.effort.every > 1 { 2.0 } else { 8.0 }
}

/// Rates of a run under a policy from this time, seconds; it is cut off at its end.
fn seen(scenario: &Scenario, policy: &dyn DynPolicy, seed: u64, from: f64) -> anyhow::Result<ServiceRates> {
    let counted = [
        Signal::Instructions,
        Signal::LlcMisses,
        Signal::BusTransactions,
        Signal::PrivateMisses,
        Signal::SharedRequests,
    ];
    let mut sums = [0.0; 5];
    let seconds = watched(scenario, policy, seed, from, |view, interval| {
        for task in view.tasks.iter().filter(|t| t.info.app.0 == 0) {
            for (sum, signal) in sums.iter_mut().zip(counted) {
                *sum += task.per_s(signal).unwrap_or(0.0) * interval;
            }
        }
    })?;
    let [instructions, misses, bus, requests, shared] = sums.map(|sum| sum / seconds);
    Ok(ServiceRates { instructions, misses, bus, requests, shared })
}

/// The index of the maximum.
fn best(speeds: &[f64]) -> usize {
    (0..speeds.len()).fold(0, |best, i| if speeds[i] > speeds[best] { i } else { best })
}

/// The swing between worst and best mapping, percent of the worst.
fn swing(speeds: &[f64]) -> f64 {
    percent(highest(speeds) / lowest(speeds))
}

/// Distance of the dissertation's best mapping below our best: 0 if they agree.
fn agrees(label: &str, speeds: &[f64], maps: &[String], paper: usize) -> Row {
    let ours = best(speeds);
    let below = (1.0 - speeds[paper] / speeds[ours]) * 100.0;
    let verdict = if ours == paper { "as in the paper".to_owned() } else { format!("{} is the best here", maps[ours]) };
    row(format!("{label}: {} below the best mapping", maps[paper]), below, "%").judged(0.0, verdict, ours == paper)
}

/// A row that follows from the paper's own words, the source of the services' figures: no evidence.
fn assumed(row: Row, paper: Option<f64>) -> Row {
    Row { paper, verdict: "assumed from these words of the paper".to_owned(), ..row }
}

fn shares(label: &str, speeds: &[f64], maps: &[String], base: f64, what: &'static str) -> Vec<Row> {
    speeds.iter().zip(maps).map(|(speed, map)| row(format!("{label} {map}"), speed / base, what)).collect()
}

fn result(rows: Vec<Row>, note: &str) -> Found {
    Found::tallied(rows, format!("{note} {ASSUMED}"))
}

/// The other states of Figure 3.9, in requests per second. An unshared hit was modified as often as such lines are
/// written back; of the misses, a prefetcher requests what it is assumed to fetch.
fn states(seen: &ServiceRates, phase: &Phase) -> [(&'static str, f64); 4] {
    let own = (seen.requests - seen.misses - seen.shared).max(0.0);
    [
        ("modified", own * phase.writeback_ratio),
        ("exclusive", own * (1.0 - phase.writeback_ratio)),
        ("invalid", seen.misses * (1.0 - phase.prefetched)),
        ("prefetched", seen.misses * phase.prefetched),
    ]
}

/// Figures 3.4 to 3.9, §3.2: each service alone, four threads in three mappings.
pub(super) fn solo(lab: &mut Lab) -> anyhow::Result<Found> {
    // §3.2.2: swings, and {X.X.X.X.} over {XXXX....}.
    let text = [(22.0, 20.0), (8.0, 10.0), (18.0, -18.0)];
    let mut rows = Vec::new();
    for (s, service) in SERVICES.into_iter().enumerate() {
        let load = Load::four(CLOVERTOWN, service, None);
        let maps = load.maps();
        let all = maps.iter().map(|map| load.mapped(lab, map)).collect::<anyhow::Result<Vec<ServiceRates>>>()?;
        let speeds: Vec<f64> = all.iter().map(|seen| seen.instructions).collect();
        rows.extend(shares(service, &speeds, &maps, speeds[0], "of {X.X.X.X.}"));
        rows.push(agrees(service, &speeds, &maps, BEST[s][0]));
        rows.push(effect(format!("{service}: swing between mappings"), text[s].0, swing(&speeds)));
        rows.push(effect(format!("{service}: apart over together"), text[s].1, percent(speeds[0] / speeds[2])));
        let per_million = |events: fn(&ServiceRates) -> f64| [0, 1].map(|i| events(&all[i]) / speeds[i] * 1e6);
        for (what, [apart, shared]) in
            [("misses", per_million(|seen| seen.misses)), ("bus transactions", per_million(|seen| seen.bus))]
        {
            rows.push(row(format!("{service}: {what} per million instructions apart"), apart, ""));
            let label = format!("{service}: {what} per instruction with shared caches");
            rows.push(row(label, shared / apart, "of {X.X.X.X.}"));
        }
        let found = row(format!("{service}: requests that find a line shared"), all[0].shared / 1e3, "/ms");
        rows.push(if service == "bigtable" { assumed(found, None) } else { found });
        let scenario = load.scenario(0.0)?;
        let phase = scenario.apps.first().and_then(|app| app.program.phases.first()).context("a service")?;
        rows.extend(
            states(&all[0], phase)
                .map(|(state, per_s)| row(format!("{service}: requests that find a line {state}"), per_s / 1e3, "/ms")),
        );
    }
    let note = "Figure 3.4 and its text; figures 3.5 and 3.7 in {X.X.X.X.}, 3.6 and 3.8 as ratios of the second \
                mapping to the first, 3.9 in {X.X.X.X.}. The simulated caches know which lines are shared and which \
                are missing. Modified and exclusive ones are distinguished by what is written back, prefetched ones \
                by what a prefetcher is assumed to fetch (here nothing). That bigtable finds the most shared is \
                assumed.";
    Ok(result(rows, note))
}

/// Figures 3.10 to 3.15 and Table 3.4: each service with each batch program.
pub(super) fn corun(lab: &mut Lab) -> anyhow::Result<Found> {
    let mut rows = Vec::new();
    for (s, service) in SERVICES.into_iter().enumerate() {
        let alone = Load::four(CLOVERTOWN, service, None);
        let alone = alone.speeds(lab, &alone.maps())?;
        for (b, batch) in BATCH.into_iter().enumerate() {
            let load = Load::four(CLOVERTOWN, service, Some(batch));
            let (maps, label) = (load.maps(), load.label());
            let speeds = load.speeds(lab, &maps)?;
            // §3.3.2: losses of 35 % with shared caches and buses, of 22 % with shared buses only.
            let printed = match (service, batch) {
                ("contentAnalyzer", "stitcher") => [Some(0.65), Some(0.78), None],
                _ => [None; 3],
            };
            for (((speed, own), map), paper) in speeds.iter().zip(&alone).zip(&maps).zip(printed) {
                rows.push(level_of(format!("{label} {map}"), paper, speed / own, "of the same mapping alone"));
            }
            rows.extend(shares(&label, &speeds, &maps, alone[0], "of {X.X.X.X.} alone"));
            rows.push(agrees(&label, &speeds, &maps, BEST[s][b + 1]));
            let printed = match (service, batch) {
                ("contentAnalyzer", "protobuf") => Some(11.0),
                ("bigtable", "stitcher") => Some(40.0),
                _ => None,
            };
            let label = format!("{label}: swing between mappings");
            rows.push(effect_of(label, printed, swing(&speeds)));
        }
    }
    Ok(result(rows, "Table 3.4; its cell for webSearch with protobuf is taken from the text, {XX**XX**}."))
}

/// Figures 3.17 to 3.21: two and six threads, and Westmere.
pub(super) fn threads(lab: &mut Lab) -> anyhow::Result<Found> {
    let mut rows = Vec::new();
    for service in SERVICES {
        for threads in [2, 6] {
            let besides = [None, Some(("stitcher", 8 - threads)), Some(("protobuf", 8 - threads))];
            for (b, beside) in besides.into_iter().enumerate() {
                let load = Load { machine: CLOVERTOWN, service, threads, beside };
                let (maps, label) = (load.maps(), format!("{threads} threads of {}", load.label()));
                let speeds = load.speeds(lab, &maps)?;
                rows.extend(shares(&label, &speeds, &maps, speeds[0], "of the first mapping"));
                // "Similar to its preferences in the 4-thread case"; for webSearch with protobuf the text is silent.
                let paper = match (service, b) {
                    ("bigtable", _) | (_, 1) => Some(maps.len() - 1),
                    ("contentAnalyzer", _) | (_, 0) => Some(0),
                    _ => None,
                };
                rows.extend(paper.map(|paper| agrees(&label, &speeds, &maps, paper)));
            }
        }
    }
    let there = westmere(lab)?;
    let on_westmere = tally(&there);
    rows.extend(there);
    let note = "Two and six threads on Clovertown beside six and two, on Westmere alone and six beside six; pages follow threads there.";
    let mut found = result(rows, note);
    found.verdict = format!("{}; on Westmere {on_westmere}", found.verdict);
    Ok(found)
}

/// Figures 3.19 to 3.21: the text's statements on Westmere.
fn westmere(lab: &Lab) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let (mut swings, mut changes) = (Vec::new(), 0);
    for service in SERVICES {
        let mut preferred = BTreeSet::new();
        for (threads, beside) in [(2, None), (6, None), (6, Some(("stitcher", 6))), (6, Some(("protobuf", 6)))] {
            let load = Load { machine: WESTMERE_HT, service, threads, beside };
            let (maps, label) = (load.maps(), format!("Westmere: {threads} threads of {}", load.label()));
            let speeds = load.speeds(lab, &maps)?;
            rows.extend(shares(&label, &speeds, &maps, speeds[0], "of the first mapping"));
            let paper = match (service, threads, beside) {
                ("bigtable", _, None) | ("contentAnalyzer", 2, None) => Some(1),
                ("contentAnalyzer", 6, None) => Some(0),
                _ => None,
            };
            let agrees = paper.map(|paper| agrees(&label, &speeds, &maps, paper));
            let why = "two of the assumed footprints, 8 MiB, do not fit into 12: with 6 MiB each one cache is the best";
            rows.extend(agrees.map(|row| if threads == 2 && service == SERVICES[0] { row.because(why) } else { row }));
            if beside.is_none() {
                swings.push(swing(&speeds));
            }
            if threads == 6 {
                preferred.insert(best(&speeds));
            }
        }
        changes += usize::from(preferred.len() > 1);
    }
    rows.push(effect("Westmere: highest swing of a service alone", 10.0, highest(swings)));
    let load = Load { machine: WESTMERE_HT, service: SERVICES[0], threads: 8, beside: None };
    let speeds = load.speeds(lab, &load.maps())?;
    let loss = (1.0 - speeds[1] / speeds[0]) * 100.0;
    let label = "Westmere: 8 threads of contentAnalyzer alone: loss by sharing a cache";
    rows.push(claim(label, loss, "%", "over 20 %", loss > 20.0));
    let label = "Westmere: services whose best mapping of 6 threads changes with the co-runner";
    rows.push(claim(label, changes as f64, "of 3", "it may change", changes > 0));
    Ok(rows)
}

/// Figures 4.1 and 4.2: demand of a thread of each program on bus and cache.
pub(super) fn characteristics(lab: &mut Lab) -> anyhow::Result<Found> {
    // §4.1: transactions per ms of the one, and 1.6 GB/s of the other.
    let printed = [Some(15_000.0), None, None, Some(25_000.0), None];
    let mut rows = Vec::new();
    for (service, printed) in SERVICES.into_iter().chain(BATCH).zip(printed) {
        let bus = Load { threads: 1, ..Load::four(CLOVERTOWN, service, None) }.mapped(lab, "X...|....")?.bus;
        let bus = row(format!("{service}: bus transactions of a thread alone"), bus / 1e3, "/ms");
        rows.push(if printed.is_some() { assumed(bus, printed) } else { bus });
        let four = Load::four(CLOVERTOWN, service, None).mapped(lab, "X.X.|X.X.")?;
        let events =
            [("misses", four.misses), ("requests that find a line shared", four.shared), ("requests", four.requests)];
        rows.extend(
            events.map(|(what, per_s)| row(format!("{service}: {what} of a thread of four"), per_s / 4e3, "/ms")),
        );
        let share =
            row(format!("{service}: requests that find a line shared"), four.shared / four.requests * 100.0, "%");
        rows.push(if SERVICES.contains(&service) { assumed(share, None) } else { share });
    }
    let together = Load::four(CLOVERTOWN, SERVICES[0], None).mapped(lab, "XXXX|....")?;
    let used = together.bus * 64.0 / STREAM_BYTES_PER_S * 100.0;
    rows.push(level("contentAnalyzer {XXXX....}: traffic over what one bus sustains", 70.0, used, "%"));
    let note = "Figure 4.1 of one thread alone, 4.2 of four in {X.X.X.X.}. The order of the programs by bus traffic, \
                misses and sharing is what their figures were made from. So only the bus that four threads share is \
                held against the paper, which multiplies the traffic of one by four. Other categories of Figure 4.2 \
                are requests less misses and shared.";
    Ok(result(rows, note))
}

/// Table 4.1: the heuristic's mapping, and its distance from the best.
pub(super) fn heuristic(lab: &mut Lab) -> anyhow::Result<Found> {
    let printed = [[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]];
    let mut rows = Vec::new();
    for (s, service) in SERVICES.into_iter().enumerate() {
        for (b, batch) in BATCH.into_iter().enumerate() {
            let load = Load::four(CLOVERTOWN, service, Some(batch));
            let top = highest(load.speeds(lab, &load.maps())?);
            let mut scenario = load.scenario(length(lab))?;
            scenario.characterize(scenario.kernel)?;
            let ours = seen(&scenario, &Heuristic, 1, length(lab) / 2.0)?.instructions;
            let below = (1.0 - ours / top) * 100.0;
            let paper = printed[s][b];
            let verdict = match below - paper {
                d if d.abs() <= 1.0 => "as in the paper".to_owned(),
                d if d < 0.0 => "better than in the paper".to_owned(),
                d => format!("{d:.1} % worse than in the paper"),
            };
            let label = format!("{}: prediction below the best mapping", load.label());
            rows.push(row(label, below, "%").judged(paper, verdict, below - paper <= 1.0));
        }
    }
    Ok(result(
        rows,
        "Characteristics and what counts as high are measured on the simulated machine (eq. 4.1); a percent either way counts as agreement.",
    ))
}

/// Figures 4.4 and 4.5: `AToM` against the best, the average and the worst mapping.
pub(super) fn atom(lab: &mut Lab) -> anyhow::Result<Found> {
    let end_s = if lab.effort.every > 1 { 20.0 } else { 120.0 };
    let (mut rows, mut below, mut over, mut by_shapes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for machine in [CLOVERTOWN, WESTMERE] {
        for service in SERVICES {
            for beside in [None, Some(BATCH[0]), Some(BATCH[1])] {
                let load = Load::four(machine, service, beside);
                let speeds = load.speeds(lab, &load.maps())?;
                let (top, low) = (highest(&speeds), lowest(&speeds));
                let scenario = load.scenario(end_s)?;
                let under = |scenario: &Scenario, policy: &dyn DynPolicy| {
                    let runs = (1..=lab.effort.seeds).map(|seed| seen(scenario, policy, seed, 0.0));
                    let runs = runs.collect::<anyhow::Result<Vec<ServiceRates>>>().context("tang-atom")?;
                    anyhow::Ok(mean(runs.iter().map(|seen| seen.instructions)))
                };
                let ours = under(&scenario, &Atom(scenario.config.settings.of::<Atom>()?))?;
                let mut exact = scenario.clone();
                exact.config.pin = Pin::Cpu;
                let shapes = under(&exact, &Shapes::default())?;
                let label = format!("{machine}: {}", load.label());
                rows.push(row(format!("{label}, AToM"), ours / low, "of the worst mapping"));
                rows.push(row(format!("{label}, shapes"), shapes / low, "of the worst mapping"));
                rows.push(row(format!("{label}, the best mapping"), top / low, "of the worst mapping"));
                below.push((1.0 - ours / top) * 100.0);
                by_shapes.push((1.0 - shapes / top) * 100.0);
                over.push(percent(ours / mean(speeds)));
            }
        }
    }
    let furthest = mean(&below);
    let verdict = if furthest <= 3.0 { "as in the paper" } else { "further than in the paper" };
    let mean_below = row("below the best mapping, the mean over the loads (paper: within)", furthest, "%");
    rows.push(mean_below.judged(3.0, verdict, furthest <= 3.0));
    rows.push(row("below the best mapping, at most", highest(below), "%"));
    rows.push(row("shapes below the best mapping, the mean over the loads", mean(by_shapes), "%"));
    rows.push(effect("over the average of the mappings, at most", 22.0, highest(over)));
    let note = format!(
        "{} seeds, {end_s} s each, learning included: turns of 500 ms here, of 10 minutes in 2 hours there. Mappings are the balanced ones; on Westmere pages follow threads.",
        lab.effort.seeds
    );
    Ok(result(rows, &note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_finds_a_line_in_one_state() {
        // 100 requests, of which 30 miss and 20 find a shared line: of the other 50 a tenth was modified, and half of
        // the 30 were prefetched.
        let seen = ServiceRates { requests: 100.0, misses: 30.0, shared: 20.0, ..ServiceRates::default() };
        let scenario = Load::four(CLOVERTOWN, "bigtable", None).scenario(1.0).unwrap();
        let mut phase = scenario.apps[0].program.phases[0].clone();
        (phase.writeback_ratio, phase.prefetched) = (0.1, 0.5);
        let found = states(&seen, &phase);
        let of = ["modified", "exclusive", "invalid", "prefetched"].into_iter().zip([5.0, 45.0, 15.0, 15.0]);
        assert!(found.into_iter().zip(of).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9), "{found:?}");
        assert_eq!(found.iter().map(|(_, n)| n).sum::<f64>() + seen.shared, seen.requests);
    }

    #[test]
    fn the_maps_of_eight_threads_are_those_of_two_packages_and_of_one() {
        let load = |threads| Load { machine: WESTMERE_HT, service: SERVICES[0], threads, beside: None };
        let topology = load(8).scenario(1.0).unwrap().machine.topology;
        let packages = |map: &String| {
            let own = parse_map(&topology, map).unwrap().into_iter().filter(|slot| slot.1 == 'X').map(|slot| slot.0);
            let mut of: Vec<_> = own.filter_map(|cpu| topology.package_of(cpu)).collect();
            let threads = of.len();
            of.dedup();
            (threads, of.len())
        };
        assert_eq!(load(8).maps().iter().map(packages).collect::<Vec<_>>(), [(8, 2), (8, 1)]);
        assert_eq!(load(2).maps().iter().map(packages).collect::<Vec<_>>(), [(2, 2), (2, 1)]);
    }

    #[test]
    fn mappings_count_and_what_was_assumed_does_not() {
        let maps = ["X.X.|X.X.".to_owned(), "XXXX|....".to_owned()];
        let rows = [0, 1].map(|paper| agrees("", &[1.0, 2.0], &maps, paper));
        assert_eq!((rows[0].measured, rows[0].verdict.as_str()), (50.0, "XXXX|.... is the best here"));
        let [first, second] = rows;
        let rows = [first, second, assumed(row("", 15_000.0, "/ms"), Some(15_000.0))];
        assert_eq!(tally(&rows), "1 of the 2 statements of the paper's text are met");
    }
}
