//! Results in JSON as sections: `sim --json` and `cotenant-lab reproduce --json`, as `docs/reference/report.md`
//! describes them.

use super::commands;
use super::figure::{self, Boxes, Cell, Group, Spread, short};
use super::page::{Block, Section, Table};
use anyhow::{Context, Result, bail};
use cotenant_cli::messages::count;
use serde::Deserialize;
use serde_json::Value;

/// `sim --json`.
#[derive(Debug, Deserialize)]
struct Simulation {
    policies: Vec<Policy>,
    machine: Option<String>,
    #[serde(default)]
    guesses: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Policy {
    name: String,
    kernel: Option<String>,
    seeds: Option<Value>,
    makespan_s: Option<f64>,
    #[serde(default)]
    apps: Vec<App>,
    weighted_speedup: Option<f64>,
    art_s: Option<f64>,
    throughput: Option<f64>,
    fairness: Option<Fairness>,
    migrations: Option<f64>,
    over_linux: Option<Interval>,
    over_linux_best: Option<f64>,
    /// `optimal` or `best found`.
    label: Option<String>,
    search: Option<Search>,
}

/// The result of the search for the optimum.
#[derive(Debug, Deserialize)]
struct Search {
    label: String,
    evaluations: Option<u64>,
    classes: Option<String>,
    map: Option<String>,
}

#[derive(Debug, Deserialize)]
struct App {
    name: String,
    time_s: Option<f64>,
    slowdown: Option<f64>,
    progress: Option<f64>,
    /// The lowest and highest slowdown over seeds.
    slowdown_min: Option<f64>,
    slowdown_max: Option<f64>,
    /// Of an application that serves requests.
    latency_s: Option<Latency>,
    backlog: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Latency {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    p99_min: Option<f64>,
    p99_max: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Fairness {
    min: Option<f64>,
    max: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    mean: Option<f64>,
    ci95: Option<Ci>,
}

/// A half width, or both ends.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Ci {
    Ends([f64; 2]),
    HalfWidth(f64),
}

impl Interval {
    fn ends(&self) -> Option<(f64, f64)> {
        match (self.ci95?, self.mean?) {
            (Ci::Ends([low, high]), _) => Some((low, high)),
            (Ci::HalfWidth(half), mean) => Some((mean - half, mean + half)),
        }
    }
}

/// `sim --mix --json`: a steady state without policies.
#[derive(Debug, Deserialize)]
struct Mix {
    apps: Vec<Mixed>,
}

#[derive(Debug, Deserialize)]
struct Mixed {
    name: String,
    slowdown: Option<f64>,
    progress: Option<f64>,
    ipc: Option<f64>,
    llc_bytes: Option<f64>,
    llc_miss_ratio: Option<f64>,
    gbs: Option<f64>,
}

/// An experiment of `cotenant-lab reproduce --json`.
#[derive(Debug, Deserialize)]
struct Experiment {
    #[serde(rename = "experiment")]
    name: String,
    figure: Option<String>,
    #[serde(default)]
    rows: Vec<Row>,
    verdict: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Row {
    label: String,
    paper: Option<Value>,
    measured: Option<Value>,
    unit: Option<String>,
    verdict: Option<String>,
    #[serde(rename = "box")]
    spread: Option<Boxed>,
    at: Option<At>,
}

impl Row {
    fn unit(&self) -> &str {
        self.unit.as_deref().unwrap_or("")
    }
}

/// A row's place: a cell of a heatmap if there is a `y`, otherwise a point over `x`.
#[derive(Debug, Deserialize)]
struct At {
    axis: String,
    x: f64,
    y: Option<f64>,
}

/// A row's place in a box plot, and its box.
#[derive(Debug, Deserialize)]
struct Boxed {
    of: String,
    group: String,
    series: String,
    n: Option<u64>,
    #[serde(flatten)]
    spread: Spread,
}

/// The sections of a result.
///
/// # Errors
/// The text is no JSON, or none of these results; with line and column if known.
pub fn sections(title: &str, text: &str) -> Result<Vec<Section>> {
    let value: Value = serde_json::from_str(text).context(
        "this is neither a recording nor JSON; give what `--record`, or --json of `sim`, `qos`, `schedule`, `compare`, `bench` or `cotenant-lab reproduce` wrote",
    )?;
    if value.get("policies").is_some() {
        let result: Simulation = serde_json::from_str(text).context("this is not a result of `sim --json`")?;
        return Ok(vec![simulation(title, &result)?]);
    }
    if value.get("apps").is_some() {
        let result: Mix = serde_json::from_str(text).context("this is not a result of `sim --mix --json`")?;
        return Ok(vec![mix(title, &result)?]);
    }
    if value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(|e| e.get("experiment").is_some())) {
        let result: Vec<Experiment> =
            serde_json::from_str(text).context("this is not a result of `cotenant-lab reproduce --json`")?;
        return result.iter().enumerate().map(|(i, e)| experiment(title, i, e)).collect();
    }
    if let Some(section) = commands::section(title, &value) {
        return Ok(vec![section?]);
    }
    bail!(
        "this JSON is not a known result; give what `--record`, or --json of `sim`, `qos`, `schedule`, `compare`, \
         `bench` or `cotenant-lab reproduce` wrote"
    )
}

/// Each of them once, in the order in which they come.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), short)
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |v| format!("{:+.1} %", v * 100.0))
}

fn text_of(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "–".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(n)) => n.as_f64().map_or_else(|| n.to_string(), short),
        Some(other) => other.to_string(),
    }
}

impl Policy {
    /// Name and kernel, as one row of tables and figures.
    fn title(&self) -> String {
        let label = self.label.as_ref().or(self.search.as_ref().map(|s| &s.label));
        // A search that did not see all mappings has not found the optimum.
        if self.name == "optimal"
            && let Some(label) = label
        {
            return format!("{label} mapping");
        }
        let label = label.map(|label| format!(" ({label})")).unwrap_or_default();
        let kernel = self.kernel.as_ref().map(|kernel| format!(" on {kernel}")).unwrap_or_default();
        format!("{}{label}{kernel}", self.name)
    }

    fn seeds(&self) -> String {
        match &self.seeds {
            Some(Value::Array(seeds)) => seeds.len().to_string(),
            other => text_of(other.as_ref()),
        }
    }
}

fn simulation(title: &str, result: &Simulation) -> Result<Section> {
    let mut blocks = Vec::new();
    if result.policies.is_empty() {
        blocks.push(Block::Warning("The result holds no policies.".to_owned()));
    }
    let head = [
        "Policy",
        "#Seeds",
        "#Makespan, s",
        "#Mean time, s",
        "#Weighted speed-up",
        "#Runs/s",
        "#Progress, least, most",
        "#Moves",
        "#Over Linux (95 %)",
        "#Best-case Linux",
    ];
    let what = "Policies. Over Linux: speed-up of the geometric mean over no policy on kernel eevdf, over its mean and over its best seed (best-case Linux)";
    let mut table = Table::new(what, &head);
    for p in &result.policies {
        let ends = p.over_linux.as_ref().and_then(Interval::ends);
        let interval = ends.map(|(low, high)| format!(" ({:+.1} to {:+.1})", low * 100.0, high * 100.0));
        let fairness = p.fairness.as_ref().map(|f| format!("{}, {}", number(f.min), number(f.max)));
        table.rows.push(vec![
            p.title(),
            p.seeds(),
            number(p.makespan_s),
            number(p.art_s),
            number(p.weighted_speedup),
            number(p.throughput),
            fairness.unwrap_or_else(|| "–".to_owned()),
            number(p.migrations),
            percent(p.over_linux.as_ref().and_then(|o| o.mean)) + &interval.unwrap_or_default(),
            percent(p.over_linux_best),
        ]);
    }
    blocks.push(Block::Table(table));

    let policies: Vec<String> = result.policies.iter().map(Policy::title).collect();
    let apps = distinct(result.policies.iter().flat_map(|p| &p.apps).map(|app| app.name.as_str()));
    let bar = |p: &Policy, name: &str| {
        let app = p.apps.iter().find(|a| a.name == name)?;
        Some((app.slowdown?, app.slowdown_min.zip(app.slowdown_max)))
    };
    let group = |name: &&str| -> Group { (name.to_string(), result.policies.iter().map(|p| bar(p, name)).collect()) };
    let groups: Vec<Group> = apps.iter().map(group).collect();
    let what = "Slowdown of each application (time together / time alone, less is better)";
    blocks.extend(figure::bars("slowdown", what, "slowdown", &policies, &groups)?.map(Block::Figure));
    let over = |p: &Policy| -> Group {
        let percent = |o: &Interval| Some((o.mean? * 100.0, o.ends().map(|(l, h)| (l * 100.0, h * 100.0))));
        let best = p.over_linux_best.map(|best| (best * 100.0, None));
        (p.title(), vec![p.over_linux.as_ref().and_then(percent), best])
    };
    let over: Vec<Group> = result.policies.iter().map(over).collect();
    let what = "Speed-up over Linux's mean, with 95 % intervals, and over its best seed (more is better)";
    let series = ["over the mean".to_owned(), "over best-case Linux".to_owned()];
    blocks.extend(figure::bars("over-linux", what, "%", &series, &over)?.map(Block::Figure));
    let fair = |p: &Policy| -> Group {
        let of = |pick: fn(&Fairness) -> Option<f64>| p.fairness.as_ref().and_then(pick).map(|value| (value, None));
        (p.title(), vec![of(|f| f.min), of(|f| f.max)])
    };
    let fair: Vec<Group> = result.policies.iter().map(fair).collect();
    let what = "Fairness: lowest and highest progress of an application (the closer the fairer)";
    let ends = ["lowest".to_owned(), "highest".to_owned()];
    blocks.extend(figure::bars("fairness", what, "progress", &ends, &fair)?.map(Block::Figure));

    blocks.extend(applications(result, &apps).into_iter().map(Block::Table));
    for search in result.policies.iter().filter_map(|p| p.search.as_ref()) {
        let evaluations = search.evaluations.map_or_else(|| "–".to_owned(), |n| n.to_string());
        let (classes, map) = (search.classes.as_deref().unwrap_or("unknown"), search.map.as_deref().unwrap_or("–"));
        let what = format!("{} mapping: {map}; {evaluations} evaluated of {classes} classes.", search.label);
        blocks.push(Block::Text(what));
    }
    if !result.guesses.is_empty() {
        blocks.push(Block::Text(format!("Guessed for this machine: {}.", result.guesses.join(", "))));
    }
    let machine = result.machine.as_ref().map(|m| format!(" on {m}")).unwrap_or_default();
    let counted = format!("{}{machine} under {}", count(apps.len() as u64, "application"), policies.join(", "));
    blocks.insert(0, Block::Text(format!("Simulated, not measured: {counted}.")));
    Ok(Section { title: title.to_owned(), blocks, embedded: None })
}

/// Times under each policy; and latencies, where an application serves requests.
fn applications(result: &Simulation, names: &[&str]) -> Vec<Table> {
    let head = ["Application", "Policy", "#Time, s", "#Slowdown", "#Over seeds", "#Progress"];
    let mut times = Table::new("Applications under each policy", &head);
    let head = ["Application", "Policy", "#p50, ms", "#p95, ms", "#p99, ms", "#p99 over seeds", "#Backlog, requests"];
    let mut latencies = Table::new("Latencies of requests", &head);
    let range = |low: Option<f64>, high: Option<f64>| {
        low.zip(high).map_or_else(|| "–".to_owned(), |(low, high)| format!("{} to {}", short(low), short(high)))
    };
    let ms = |s: Option<f64>| s.map(|s| s * 1e3);
    for name in names {
        for p in &result.policies {
            for app in p.apps.iter().filter(|a| a.name == *name) {
                let who = vec![app.name.clone(), p.title()];
                let spread = range(app.slowdown_min, app.slowdown_max);
                let row = vec![number(app.time_s), number(app.slowdown), spread, number(app.progress)];
                times.rows.push([who.clone(), row].concat());
                if let Some(l) = &app.latency_s {
                    let spread = range(ms(l.p99_min), ms(l.p99_max));
                    let backlog = app.backlog.map_or_else(|| "–".to_owned(), |n| format!("{n:.0}"));
                    let row = [number(ms(l.p50)), number(ms(l.p95)), number(ms(l.p99)), spread, backlog];
                    latencies.rows.push([who, row.to_vec()].concat());
                }
            }
        }
    }
    times.folded = times.rows.len() > 50;
    let some = !latencies.rows.is_empty();
    [Some(times), some.then_some(latencies)].into_iter().flatten().collect()
}

fn mix(title: &str, result: &Mix) -> Result<Section> {
    let text = "Predicted, not measured: programs beside each other, one core each, in the steady state.";
    let mut blocks = vec![Block::Text(text.to_owned())];
    let group = |app: &Mixed| -> Group { (app.name.clone(), vec![app.slowdown.map(|value| (value, None))]) };
    let groups: Vec<Group> = result.apps.iter().map(group).collect();
    let what = "Slowdown of each program (time together / time alone, less is better)";
    blocks.extend(figure::bars("slowdown", what, "slowdown", &["slowdown".to_owned()], &groups)?.map(Block::Figure));
    let head = [
        "Program",
        "#Slowdown",
        "#Progress",
        "#Instructions/cycle",
        "#LLC held, bytes",
        "#LLC miss ratio",
        "#Memory, GB/s",
    ];
    let mut table = Table::new("Programs", &head);
    for app in &result.apps {
        let numbers = [app.slowdown, app.progress, app.ipc, app.llc_bytes, app.llc_miss_ratio, app.gbs].map(number);
        table.rows.push([vec![app.name.clone()], numbers.to_vec()].concat());
    }
    blocks.push(Block::Table(table));
    Ok(Section { title: title.to_owned(), blocks, embedded: None })
}

fn experiment(title: &str, index: usize, e: &Experiment) -> Result<Section> {
    let mut blocks = Vec::new();
    blocks.extend(e.figure.as_ref().map(|figure| Block::Text(format!("In the paper: {figure}."))));
    blocks.extend(e.verdict.as_ref().map(|verdict| Block::Text(format!("Verdict: {verdict}"))));
    blocks.extend(box_plots(e)?);
    blocks.extend(planes(e)?);
    let verdicts = e.rows.iter().any(|row| row.verdict.is_some());
    let head = ["Quantity", "#Paper", "#Measured", "Unit", "Verdict"];
    let mut table = Table::new("Paper and measured; – is not given", &head[..4 + usize::from(verdicts)]);
    let plain = || e.rows.iter().filter(|row| row.spread.is_none() && row.at.is_none());
    for row in plain() {
        let mut cells = vec![row.label.clone(), text_of(row.paper.as_ref()), text_of(row.measured.as_ref())];
        cells.push(row.unit.clone().unwrap_or_default());
        cells.extend(verdicts.then(|| row.verdict.clone().unwrap_or_default()));
        table.rows.push(cells);
    }
    // One figure per unit: bars of different units cannot be compared.
    for (u, unit) in distinct(plain().map(Row::unit)).into_iter().enumerate() {
        let rows: Vec<&Row> = plain().filter(|row| row.unit() == unit).collect();
        let of = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        let (cases, rest): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| of_case(&rows, row).is_some());
        let (series, groups) = by_case(&cases);
        let whiskers = groups.iter().any(|g| g.1.iter().flatten().any(|bar| bar.1.is_some()));
        let legend = if whiskers { "; whiskers: slowest and fastest application" } else { "" };
        let what = format!("{}: measured, case by case{of}{legend}", e.name);
        blocks
            .extend(figure::bars(&format!("{}-{u}-cases", e.name), &what, unit, &series, &groups)?.map(Block::Figure));
        let group = |row: &&Row| -> Group {
            let value = |v: &Option<Value>| v.as_ref().and_then(Value::as_f64).map(|v| (v, None));
            (row.label.clone(), vec![value(&row.paper), value(&row.measured)])
        };
        let groups: Vec<Group> = rest.iter().map(group).take(30).collect();
        let (name, series) = (format!("{}-{u}", e.name), ["paper".to_owned(), "measured".to_owned()]);
        let what = format!("{}: paper and measured{of}", e.name);
        blocks.extend(figure::bars(&name, &what, unit, &series, &groups)?.map(Block::Figure));
    }
    blocks.push(Block::Table(table));
    blocks.extend(e.note.clone().filter(|note| !note.is_empty()).map(Block::Text));
    let title = if index == 0 { format!("{} ({title})", e.name) } else { e.name.clone() };
    Ok(Section { title, blocks, embedded: None })
}

/// Rows with a place as a heatmap or points, and their figures as a table.
fn planes(e: &Experiment) -> Result<Vec<Block>> {
    let placed = || e.rows.iter().filter_map(|row| Some((row, row.at.as_ref()?, row.measured.as_ref()?.as_f64()?)));
    let Some((first, at, _)) = placed().next() else { return Ok(Vec::new()) };
    let unit = first.unit();
    let drawn = |place: f64| (0.0..figure::MOST).contains(&place).then_some(place as usize);
    let cells: Vec<Cell> = placed().filter_map(|(_, at, value)| Some((drawn(at.x)?, drawn(at.y?)?, value))).collect();
    let what = format!("{}: measured, by column and row, {unit}; the darker the more", e.name);
    let heatmap = figure::heatmap(&format!("{}-heatmap", e.name), &what, unit, &cells)?;
    let points = || placed().filter(|(_, at, _)| at.y.is_none());
    let measured: Vec<(f64, f64)> = points().map(|(_, at, value)| (at.x, value)).collect();
    let paper: Vec<(f64, f64)> =
        points().filter_map(|(row, at, _)| Some((at.x, row.paper.as_ref()?.as_f64()?))).collect();
    let what = format!("{}: measured over {}, {unit}", e.name, at.axis);
    let points = figure::points(&format!("{}-points", e.name), &what, &at.axis, unit, [&measured, &paper])?;
    let mut table = Table::new("Figures of the picture; – is not given", &["Place", "#Paper", "#Measured", "Unit"]);
    table
        .rows
        .extend(placed().map(|(row, _, value)| {
            vec![row.label.clone(), text_of(row.paper.as_ref()), short(value), unit.to_owned()]
        }));
    table.folded = true;
    Ok([heatmap, points].into_iter().flatten().map(Block::Figure).chain([Block::Table(table)]).collect())
}

/// Rows with a box as one box plot for each thing that they are of, and their figures as a table.
fn box_plots(e: &Experiment) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let all: Vec<(&Boxed, &str)> = e.rows.iter().filter_map(|row| Some((row.spread.as_ref()?, row.unit()))).collect();
    let names = |pick: fn(&Boxed) -> &String, of: Option<&str>| {
        let chosen = all.iter().filter(|(one, _)| of.is_none_or(|of| one.of == of));
        distinct(chosen.map(|(one, _)| pick(one).clone()))
    };
    for (i, of) in names(|b| &b.of, None).iter().enumerate() {
        let (groups, series) = (names(|b| &b.group, Some(of)), names(|b| &b.series, Some(of)));
        let find = |group: &str, series: &str| {
            let here = |(one, _): &&(&Boxed, &str)| one.of == *of && one.group == group && one.series == series;
            all.iter().find(here).map(|(one, _)| one.spread.clone())
        };
        let boxes = |group: String| -> Boxes { (group.clone(), series.iter().map(|s| find(&group, s)).collect()) };
        let unit = all.iter().find(|(one, _)| one.of == *of).map_or("", |(_, unit)| *unit);
        let what = format!("{}: {of}, {unit}; quartiles, whiskers to 1.5 interquartile ranges", e.name);
        let groups: Vec<Boxes> = groups.into_iter().map(boxes).collect();
        blocks
            .extend(figure::boxes(&format!("{}-boxes-{i}", e.name), &what, unit, &series, &groups)?.map(Block::Figure));
    }
    if !all.is_empty() {
        let head = ["Box", "#Trials", "#Whisker", "#Quartile", "#Median", "#Quartile", "#Whisker", "#Beyond", "Unit"];
        let mut table = Table::new("Figures of the box plots", &head);
        for (one, unit) in &all {
            let s = &one.spread;
            let mut cells = vec![format!("{}, {}: {}", one.group, one.series, one.of)];
            cells.push(one.n.map_or_else(|| "–".to_owned(), |n| n.to_string()));
            cells.extend([s.low, s.q1, s.median, s.q3, s.high].map(short));
            cells.extend([s.outliers.len().to_string(), (*unit).to_owned()]);
            table.rows.push(cells);
        }
        table.folded = true;
        blocks.push(Block::Table(table));
    }
    Ok(blocks)
}

/// Case and quantity of a row such as `mix 1: SAM`, where the same unit has at least three quantities of that case
/// and the paper gives no value.
fn of_case<'a>(rows: &[&Row], row: &'a Row) -> Option<(&'a str, &'a str)> {
    let (case, quantity) = row.label.split_once(": ")?;
    let given = |row: &Row| row.paper.as_ref().is_some_and(Value::is_number);
    let of_it = |r: &&&Row| !given(r) && r.label.split_once(": ").is_some_and(|(other, _)| other == case);
    (!given(row) && rows.iter().filter(of_it).count() >= 3).then_some((case, quantity))
}

/// Rows as one group of bars per case; its slowest and fastest application become whiskers.
fn by_case<'a>(rows: &[&'a Row]) -> (Vec<String>, Vec<Group>) {
    let value = |row: &&'a Row| {
        let (case, quantity) = row.label.split_once(": ")?;
        Some((case, quantity, row.measured.as_ref()?.as_f64()?))
    };
    let values: Vec<(&str, &str, f64)> = rows.iter().filter_map(value).collect();
    let end =
        |quantity: &str| quantity.ends_with(", slowest application") || quantity.ends_with(", fastest application");
    let plain = || values.iter().filter(|v| !end(v.1));
    let (cases, series) = (distinct(plain().map(|v| v.0)), distinct(plain().map(|v| v.1)));
    let find = |case: &str, quantity: &str| values.iter().find(|v| v.0 == case && v.1 == quantity).map(|v| v.2);
    let bar = |case: &str, quantity: &str| {
        let ends = ["slowest", "fastest"].map(|which| find(case, &format!("{quantity}, {which} application")));
        find(case, quantity).map(|value| (value, ends[0].zip(ends[1])))
    };
    let group = |case: &&str| -> Group { ((*case).to_owned(), series.iter().map(|s| bar(case, s)).collect()) };
    let groups = cases.iter().map(group).collect();
    (series.into_iter().map(str::to_owned).collect(), groups)
}
