//! The generated pages of errors, and the file of memories.

use super::memory::{self, Load, Run};
use super::solo::{self as solo_curves, Program, Row};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Cycles ÷ (cores · seconds) of the busiest runs of `app_counters_summary.csv`, GHz.
const SANDY_BRIDGE_GHZ: f64 = 2.94;
/// Lines in flight that are tried besides [`memory::LINES_IN_FLIGHT`].
const OTHER_LIMITS: [f64; 6] = [10.0, 20.0, 24.0, 32.0, 40.0, 1e9];

/// `workloads/memory.toml`.
pub fn memory_file(loads: &BTreeMap<String, Load>) -> String {
    let mut out = String::from(
        "# Written by `cargo xtask workloads`. Latency under load of real memories: latency = idle_ns + queue_ns · u / (1 − u), u = bandwidth / limit_gbs.\n\
         # source: measured curves in memory/profet (bsc-mem/PROFET) and memory/mlc (public postings); fit: xtask/src/workloads/memory.rs\n",
    );
    for (name, load) in loads {
        let _ = write!(
            out,
            "\n[memory.\"{name}\"]\nidle_ns = {:.1}\nqueue_ns = {:.1}\nlimit_gbs = {:.1}\nsustained_gbs = {:.1}\n",
            load.idle_ns, load.queue_ns, load.limit_gbs, load.sustained_gbs
        );
    }
    out
}

/// The page about programs and caches.
pub fn errors(
    rows: &BTreeMap<String, Vec<Row>>,
    programs: &BTreeMap<&str, Program>,
    runs: &BTreeMap<String, BTreeMap<String, Run>>,
) -> Result<String> {
    let mut out = String::from(
        "# How well the workloads fit\n\nWritten by `cargo xtask workloads`. [Workloads](../../docs/reference/workloads.md) says how the figures come \
         about;\n[memory](workloads-errors-memory.md) has the errors of the memory side.\n",
    );
    solo(&mut out, programs);
    below(&mut out, rows);
    crowded(&mut out, programs, runs)?;
    Ok(out)
}

/// The page about memory.
pub fn memory_errors(
    programs: &BTreeMap<&str, Program>,
    measured: &memory::Curves,
    runs: &BTreeMap<String, BTreeMap<String, Run>>,
) -> Result<String> {
    let loads = &memory::loads(measured);
    let mut out = String::from(
        "# How well the workloads fit: memory\n\nWritten by `cargo xtask workloads`. [Workloads](../../docs/reference/workloads.md) says how the figures come \
         about;\n[programs and caches](workloads-errors.md) have a page of their own.\n",
    );
    curves(&mut out, loads);
    foretold(&mut out, measured);
    slowdowns(&mut out, programs, loads, runs)?;
    Ok(out)
}

/// Median, 90th percentile and maximum of the absolute values, in percent.
pub fn quantiles(mut errors: Vec<f64>) -> (f64, f64, f64) {
    for error in &mut errors {
        *error = error.abs() * 100.0;
    }
    errors.sort_by(f64::total_cmp);
    let at = |q: f64| errors[((errors.len() - 1) as f64 * q).round() as usize];
    (at(0.5), at(0.9), at(1.0))
}

fn solo(out: &mut String, programs: &BTreeMap<&str, Program>) {
    let (median, p90, worst) = quantiles(programs.values().flat_map(|p| p.errors.clone()).collect());
    let _ = write!(
        out,
        "\n## A program's own IPC at 1 to 11 ways\n\nAll {} points: median {median:.2} %, 90th percentile {p90:.2} %, worst {worst:.1} %. \
         \"Times\" is what hits' and\nmisses' costs shrank by, so that no instruction takes less than {} cycles.\n\n\
         | program | median % | worst % | miss costs (cycles) from |\n|---|---|---|---|\n",
        programs.len() * 11,
        solo_curves::LEAST_CPI
    );
    for (name, program) in programs {
        let (median, _, worst) = quantiles(program.errors.clone());
        let from = if program.mlp_from_slope { "slope" } else { "stalls" };
        let scaled = if program.scaled < 1.0 { format!(", times {:.2}", program.scaled) } else { String::new() };
        let _ = writeln!(
            out,
            "| {name} | {median:.2} | {worst:.2} | {:.1} {from}{scaled} |",
            solo_curves::MEMORY_NS * solo_curves::CLOCK_GHZ / program.mlp
        );
    }
}

/// The extrapolation below the smallest measured size, checked on the smallest that was measured.
fn below(out: &mut String, rows: &BTreeMap<String, Vec<Row>>) {
    let errors: Vec<f64> = rows.values().filter_map(|rows| solo_curves::left_out(rows)).collect();
    let bias = errors.iter().sum::<f64>() / errors.len() as f64;
    let (median, p90, worst) = quantiles(errors.clone());
    let _ = write!(
        out,
        "\n## Below the smallest cache\n\n\
         A crowded program holds less than the one way that was measured. The exponential that stands in there is checked on\n\
         the smallest measured size: the miss ratio at one way, from the points of two ways and more, of {} programs.\n\n\
         | points of miss ratio | median error | 90th percentile | worst | mean (signed) |\n|---|---|---|---|---|\n\
         | | {median:.1} | {p90:.1} | {worst:.1} | {:+.1} |\n",
        errors.len(),
        bias * 100.0
    );
}

fn curves(out: &mut String, loads: &BTreeMap<String, Load>) {
    out.push_str("\n## Memory latency under load\n\n| curve | idle ns | queue ns | limit GB/s | sustained GB/s | median % | worst % |\n|---|---|---|---|---|---|---|\n");
    for (name, load) in loads {
        let _ = writeln!(
            out,
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            load.idle_ns,
            load.queue_ns,
            load.limit_gbs,
            load.sustained_gbs,
            load.median * 100.0,
            load.worst * 100.0
        );
    }
}

/// Each machine's curves by the others'.
fn foretold(out: &mut String, measured: &memory::Curves) {
    out.push_str(
        "\n## One machine by the others\n\nThe latency of each machine under load, predicted from what a machine file \
         gives of it, its idle latency and its\ngreatest bandwidth. What the queue takes at half load, over the idle \
         latency, and how near to its limit a memory\ncomes are the medians of the other machines, each counted once. \
         Points below nine tenths of the greatest bandwidth.\n\n| machine | points | median % | 90th % | worst % | if \
         nothing waited: median % | 90th % | worst % |\n|---|---|---|---|---|---|---|---|\n",
    );
    for one in memory::foretell(measured) {
        let of = |errors: &[f64]| {
            let at = |part: f64| errors.get((errors.len() as f64 * part) as usize).or(errors.last()).copied();
            [0.5, 0.9, 1.0].map(|part| format!("{:.1}", at(part).unwrap_or_default() * 100.0)).join(" | ")
        };
        let _ = writeln!(out, "| {} | {} | {} | {} |", one.machine, one.points, of(&one.errors), of(&one.idle));
    }
}

/// Traffic of many copies on another machine against the curves.
fn crowded(
    out: &mut String,
    programs: &BTreeMap<&str, Program>,
    runs: &BTreeMap<String, BTreeMap<String, Run>>,
) -> Result<()> {
    let (mut rows, mut taken) = (Vec::new(), Vec::new());
    for (name, measured) in memory::crowded(runs)? {
        let Some(program) = programs.get(&*name) else { continue };
        if program.streamed > 0.0 {
            taken.push(name);
        } else if measured >= 1.0 {
            let inclusive = program.lines(memory::CROWDED_BYTES - solo_curves::PRIVATE_BYTES);
            let short = name.trim_end_matches("06").to_owned();
            rows.push((short, measured, program.lines(memory::CROWDED_BYTES), inclusive));
        }
    }
    let (median, p90, worst) = quantiles(rows.iter().map(|r| r.2 / r.1 - 1.0).collect());
    let (shifted, shifted90, shifted_worst) = quantiles(rows.iter().map(|r| r.3 / r.1 - 1.0).collect());
    let _ = write!(
        out,
        "\n## Sixteen copies on another machine\n\n\
         PROFET's Sandy Bridge ran 16 copies at once. A copy's share of the last-level cache is 2.5 MiB (assumed: two sockets of\n\
         8 cores and 20 MiB, as in its line of products). The table compares the lines that memory delivered per 1,000\n\
         instructions with the solo curve at 2.5 MiB, for the {} programs with at least one such line. Nothing is fitted. Private\n\
         caches (256 KiB there), inputs and compilers differ. Why the far outliers differ is not known. {} are\n\
         not among them: [their lines come from here](../../docs/reference/workloads.md#from-a-solo-curve-to-a-program).\n\n\
         Its cache is inclusive, the measured one is not: all the bytes of LLC and L2 together are 1 MiB fewer for the same\n\
         2.5 MiB (last column). That is nearer for mcf, soplex and cactusADM, farther for omnetpp, sphinx3 and the streams.\n\
         These runs do not decide it.\n\n\
         | error | median % | 90th % | worst % |\n|---|---|---|---|\n\
         | from the curve | {median:.0} | {p90:.0} | {worst:.0} |\n\
         | with 1 MiB less | {shifted:.0} | {shifted90:.0} | {shifted_worst:.0} |\n\n\
         | program | measured | from the curve | with 1 MiB less |\n|---|---|---|---|\n",
        rows.len(),
        taken.join(" and ")
    );
    for (name, measured, predicted, inclusive) in rows {
        let _ = writeln!(out, "| {name} | {measured:.1} | {predicted:.1} | {inclusive:.1} |");
    }
    Ok(())
}

/// Every pair of Sandy Bridge's four memories, for the programs that have a solo curve.
fn slowdowns(
    out: &mut String,
    programs: &BTreeMap<&str, Program>,
    loads: &BTreeMap<String, Load>,
    runs: &BTreeMap<String, BTreeMap<String, Run>>,
) -> Result<()> {
    let speeds = ["800", "1066", "1333", "1600"];
    let load = |speed: &str, run: &Run| -> Result<Load> {
        let reads = match run.read_gbs / (run.read_gbs + run.written_gbs) {
            share if share > 0.88 => 100,
            share if share > 0.63 => 76,
            _ => 50,
        };
        let name = format!("ddr3-{speed} {reads}% reads");
        loads.get(&name).copied().with_context(|| format!("no curve '{name}'"))
    };
    let mut by_program: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let mut by_pair = Vec::new();
    let mut others: Vec<(f64, Vec<f64>)> = OTHER_LIMITS.iter().map(|lines| (*lines, Vec::new())).collect();
    for from in speeds {
        for to in speeds.iter().filter(|to| **to != from) {
            let (bases, targets) = (&runs[&format!("DDR3-{from}")], &runs[&format!("DDR3-{to}")]);
            let mut errors = Vec::new();
            for (name, base) in bases {
                let (Some(target), Some(program)) = (targets.get(name), programs.get(format!("{name}06").as_str()))
                else {
                    continue;
                };
                if base.copies != target.copies {
                    continue; // not the same experiment
                }
                let (here, there) = (load(from, base)?, load(to, base)?);
                let predict = |lines| memory::predict(base, &here, &there, program.mlp, SANDY_BRIDGE_GHZ, lines);
                let predicted = predict(memory::LINES_IN_FLIGHT);
                for (lines, errors) in &mut others {
                    errors.push(predict(*lines) / target.cpi - 1.0);
                }
                errors.push(predicted / target.cpi - 1.0);
                by_program.entry(name).or_default().push((predicted / target.cpi - 1.0, target.cpi / base.cpi - 1.0));
            }
            by_pair.push((from, *to, errors));
        }
    }
    let (median, p90, worst) = quantiles(by_pair.iter().flat_map(|p| p.2.clone()).collect());
    let (still, still90, still_worst) =
        quantiles(by_program.values().flatten().map(|e| 1.0 / (1.0 + e.1) - 1.0).collect());
    let others: Vec<(f64, (f64, f64, f64))> = others.into_iter().map(|(lines, e)| (lines, quantiles(e))).collect();
    let count = by_program.len();
    let limit = memory::LINES_IN_FLIGHT;
    let _ = write!(
        out,
        "\n## From one memory to another\n\n\
         PROFET's Sandy Bridge ran up to 16 copies of a program on DDR3 at four speeds. From its CPI and traffic on one, the\n\
         fitted curves and the solo curve's `mlp` (another core, another cache) predict its CPI on another. {count} programs\n\
         have a solo curve; pairs are those with equally many copies.\n\n\
         | all pairs | median % | 90th % | worst % |\n|---|---|---|---|\n\
         | predicted | {median:.1} | {p90:.1} | {worst:.1} |\n\
         | saying \"nothing changes\" | {still:.1} | {still90:.1} | {still_worst:.1} |\n\n\
         A core has at most {limit} lines under way: no line costs less than 1/{limit} of what the latency grows by, and no\n\
         program is faster than its lines allow at that. The figure was chosen after a look at these runs. Others give:\n\n\
         | lines under way | median % | 90th % | worst % |\n|---|---|---|---|\n"
    );
    for (lines, (median, p90, worst)) in others {
        let lines = if lines < 1e6 { lines.to_string() } else { "no limit".to_owned() };
        let _ = writeln!(out, "| {lines} | {median:.1} | {p90:.1} | {worst:.1} |");
    }
    out.push_str("\n| from | to | median % | 90th % | worst % |\n|---|---|---|---|---|\n");
    for (from, to, errors) in by_pair {
        let (median, p90, worst) = quantiles(errors);
        let _ = writeln!(out, "| DDR3-{from} | DDR3-{to} | {median:.1} | {p90:.1} | {worst:.1} |");
    }
    out.push_str("\n| program | median % | worst % |\n|---|---|---|\n");
    for (name, errors) in by_program {
        let (median, _, worst) = quantiles(errors.iter().map(|e| e.0).collect());
        let _ = writeln!(out, "| {name} | {median:.1} | {worst:.1} |");
    }
    Ok(())
}
