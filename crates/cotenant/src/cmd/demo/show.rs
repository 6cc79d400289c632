//! The demonstration's tables, bars and page.

use super::report::{App, Report, Simulated};
use super::verdict::Phase;
use crate::cmd::outlook;
use crate::report::figure;
use crate::report::page::{self, Block, Section};
use anyhow::Result;
use cotenant_cli::page::Sheet;
use cotenant_cli::table::{Table, wrapped};
use cotenant_status::quantities::{digits, time};
use std::io::Write;

/// Characters of a line, independent of the terminal or pipe.
const COLUMNS: usize = 80;
/// Characters of the longest bar.
const BAR: usize = 40;

/// A phase in a line, as soon as it is over.
pub fn line(phase: &Phase) -> String {
    let cpus = phase.batch_cpus.map_or_else(String::new, |cpus| format!("; batch program {} CPUs", digits(cpus)));
    let [p50, p99] = [phase.server.p50_s, phase.server.p99_s].map(time);
    format!("{}: p50 {p50}, p99 {p99}{cpus}", phase.name)
}

/// A bar for a fraction of the maximum; any value is visible.
fn bar(value: f64, most: f64) -> String {
    let full = (value / most * BAR as f64).round() as usize;
    "#".repeat(if value > 0.0 { full.clamp(1, BAR) } else { 0 })
}

/// A row of bars per phase; absent values have none.
fn bars(out: &mut Sheet<'_>, r: &Report<'_>, of: fn(&Phase) -> Option<f64>, unit: fn(f64) -> String) -> Result<()> {
    let most = r.phases.iter().filter_map(|phase| of(phase)).fold(f64::MIN_POSITIVE, f64::max);
    let mut table = Table::new(["", ">", ""]);
    for phase in r.phases {
        let value = of(phase);
        let (text, bar) = (value.map_or_else(|| "–".to_owned(), unit), bar(value.unwrap_or_default(), most));
        table.row([phase.name, &text, &bar]);
    }
    Ok(out.table(&table)?)
}

fn text(out: &mut Sheet<'_>, text: &str) -> Result<()> {
    Ok(wrapped(text, COLUMNS).iter().try_for_each(|line| writeln!(out, "{line}"))?)
}

/// `95 %: 281 µs to 302 µs`, with the other figures of a phase.
fn cells(phase: &Phase) -> [String; 5] {
    let [low, high] = phase.server.p99_interval_s.map(time);
    let [p50, p99] = [phase.server.p50_s, phase.server.p99_s].map(time);
    [phase.name.to_owned(), phase.server.answers.to_string(), p50, p99, format!("{low} to {high}")]
}

const HEADS: [&str; 5] = ["", "answers", "p50", "p99", "95 % interval of it"];

/// Writes all of it.
///
/// # Errors
/// The output is closed.
pub fn print(out: &mut Sheet<'_>, r: &Report<'_>) -> Result<()> {
    r.verdict.text.iter().try_for_each(|line| text(out, line))?;
    writeln!(out)?;
    let mut figures = Table::new([HEADS[0], ">answers", ">p50", ">p99", HEADS[4]]);
    r.phases.iter().for_each(|phase| figures.row(cells(phase)));
    out.table(&figures)?;
    writeln!(out, "\np99 of the server: the shorter the better")?;
    bars(out, r, |phase| Some(phase.server.p99_s), time)?;
    writeln!(out, "\nCPUs of the batch program: the longer the better")?;
    bars(out, r, |phase| phase.batch_cpus, digits)?;
    text(out, &format!("in the background: {}", r.by_hand))?;
    writeln!(out)?;
    text(out, &placed(r.simulated))?;
    let mut table = Table::new(["", ">threads", ">Linux", &format!(">{}", r.simulated.policy)]);
    simulated(r.simulated).for_each(|row| table.row(row));
    out.table(&table)?;
    writeln!(out)?;
    text(out, &format!("What to try next on this machine ({}):", r.outlook.machine))?;
    outlook::steps(out, &r.outlook.next[1..])?;
    r.outlook.missing.iter().try_for_each(|missing| text(out, &format!("Missing: {missing}")))
}

fn placed(Simulated { machine, policy, over_linux, .. }: &Simulated) -> String {
    let gain = over_linux.map_or_else(String::new, |gain| {
        format!(" On average they are {:.0} ± {:.0} % faster.", gain.value * 100.0, gain.half_width * 100.0)
    });
    format!(
        "On a larger machine it matters where threads sit. Simulated, not measured ({machine}, two sockets): seconds \
         that programs take if Linux places their threads, and if the policy {policy} does, which goes by hardware \
         counters.{gain}"
    )
}

fn simulated(simulated: &Simulated) -> impl Iterator<Item = [String; 4]> {
    let app = |app: &App| {
        let [linux, placed] = [app.linux_s, app.placed_s].map(|seconds| format!("{seconds:.1} s"));
        [app.name.clone(), app.threads.to_string(), linux, placed]
    };
    simulated.apps.iter().map(app)
}

/// A p99 up to this multiple of that alone is good.
const GOOD: f64 = 2.0;

/// The same as a page, about this machine alone.
///
/// # Errors
/// A failure of drawing; none is known.
pub fn page(r: &Report<'_>) -> Result<String> {
    let group = |phase: &Phase, value: Option<f64>| (phase.name.to_owned(), vec![value.map(|value| (value, None))]);
    let ms = |seconds: f64| seconds * 1e3;
    let alone = r.phases.first().map_or(0.0, |phase| phase.server.p99_s);
    let p99s = r.phases.iter().map(|phase| {
        let [low, high] = phase.server.p99_interval_s.map(ms);
        let bar = Some((ms(phase.server.p99_s), Some((low, high))));
        let is_good = phase.server.p99_s <= GOOD * alone;
        (phase.name.to_owned(), if is_good { vec![bar, None] } else { vec![None, bar] })
    });
    let goodness = ["up to twice as long as alone".to_owned(), "longer".to_owned()];
    let cpus = r.phases.iter().map(|phase| group(phase, phase.batch_cpus));
    let series = [String::new()];
    let mut figures = page::Table::new(
        "The server's latencies, from when each question was due",
        &[HEADS[0], "#answers", "#p50", "#p99", HEADS[4]],
    );
    figures.rows = r.phases.iter().map(|phase| cells(phase).to_vec()).collect();
    let mut blocks: Vec<Block> = r.verdict.text.iter().cloned().map(Block::Text).collect();
    let p99s =
        figure::bars("p99", "p99 of the server, with its 95 % interval", "ms", &goodness, &p99s.collect::<Vec<_>>())?;
    let cpus = figure::bars("cpus", "CPUs of the batch program", "CPUs", &series, &cpus.collect::<Vec<_>>())?;
    blocks.extend(p99s.into_iter().chain(cpus).map(Block::Figure));
    blocks.push(Block::Table(figures));
    blocks.push(Block::Heading(format!("What to try next on this machine ({})", r.outlook.machine)));
    blocks
        .push(Block::Facts(r.outlook.next[1..].iter().map(|step| (step.command.clone(), step.why.clone())).collect()));
    blocks.extend(r.outlook.missing.iter().map(|missing| Block::Text(format!("Missing: {missing}"))));
    Ok(page::html("Cotenant on this machine", &[Section { title: "Demonstration".to_owned(), blocks, embedded: None }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_parts_of_the_longest() {
        assert_eq!([25.0, 12.5, 0.29, 0.0].map(|value| bar(value, 25.0).len()), [40, 20, 1, 0]);
    }
}
