//! Reactive-Niceness on this machine: kernels of `SmashBench` beside batch programs that `cotenant qos` pauses for
//! them.

use super::super::niceness::statements_on_presets;
use super::super::row::{Found, Row, bound, claim, mean, row};
use super::here::{Here, ROUNDS, Running, SIGTERM, median_row, text_for_xz};
use anyhow::{Context, Result, bail};
use cotenant_cli::progress::Progress;
use cotenant_linux::sys;
use cotenant_model::stats::median::{Median, middle};
use cotenant_policies::qos::controller::Controller;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

/// High- and low-priority programs; with `--quick` the first two.
const PAIRS: [[&str; 2]; 3] = [["blockie-large", XZ], ["blockie-large", "sledge-large"], ["bst-50mb", "sledge-large"]];
/// The real program: compresses a text repeatedly.
const XZ: &str = "xz";
/// More repetitions than any run below needs.
const TIMES: usize = 100;

const SIMPLE: [&str; 3] = ["utilisation-biased", "balanced", "qos-biased"];
/// The paper's controllers, and ours.
const TARGETED: [&str; 4] = ["conservative-90", "relaxed-90", "conservative-80", OURS];
const OURS: &str = "tracking";
/// A controller that samples every 10 ms and never orders a nap.
const LOOKS: &str = "simple:0,0,0/0/0";

/// Seconds, longer than any run, so that kernels end even if this process is killed.
const FOREVER: f64 = 60.0;
/// A line for `sh`, on the high-priority CPU (0) or the low-priority CPU (1).
fn kernel(here: &Here, name: &str, of: usize, seconds: f64) -> String {
    // Working sets beyond the caches take long to fill, and every run includes that.
    let size = if name.ends_with("-large") { " --size 256M" } else { "" };
    format!("exec \"$COTENANT\" kernel {name}{size} --pin {} --seconds {seconds} --json", here.cpus[of])
}

/// The same for a low-priority program without an end.
fn batch(here: &Here, name: &str) -> String {
    if name == XZ {
        let texts = " \"$TEXT\"".repeat(TIMES);
        return format!("exec taskset -c {} xz -6 -T1 -k -c{texts} >/dev/null", here.cpus[1]);
    }
    format!("{} >/dev/null", kernel(here, name, 1, FOREVER))
}

fn told(here: &Here, mut command: Command) -> Command {
    command.env("COTENANT", &here.cotenant);
    command.env("TEXT", here.folder.path().join("text")).env("LOW", here.folder.path().join("low.json"));
    command.stdin(Stdio::null());
    command
}

fn shell(here: &Here, line: &str) -> Command {
    let mut command = told(here, Command::new("sh"));
    command.args(["-c", line]);
    command
}

/// Units per second of a kernel, from its JSON.
fn speed(json: &[u8]) -> Result<f64> {
    rate(&serde_json::from_slice(json).context("a kernel did not report its speed")?)
}

/// Runs a kernel; returns its speed.
fn run(mut kernel: Command) -> Result<f64> {
    let out = kernel.stderr(Stdio::piped()).output()?;
    speed(&out.stdout).with_context(|| {
        let said = String::from_utf8_lossy(&out.stderr);
        format!("{}: {}", out.status, said.lines().last().unwrap_or("without a message"))
    })
}

fn rate(report: &Value) -> Result<f64> {
    report["per_second"].as_f64().filter(|speed| *speed > 0.0).context("a kernel did nothing; is a CPU free for it?")
}

/// A batch program since it was started.
struct Batch(Running, Instant);

impl Batch {
    fn start(here: &Here, line: &str) -> Result<Self> {
        Ok(Self(Running(shell(here, line).spawn()?), Instant::now()))
    }

    /// CPUs used.
    fn end(mut self) -> Result<f64> {
        let before = sys::children_cpu_time();
        self.0.0.kill()?;
        self.0.0.wait()?;
        Ok((sys::children_cpu_time().saturating_sub(before)).as_secs_f64() / self.1.elapsed().as_secs_f64())
    }
}

/// Results of `cotenant qos`.
struct Managed {
    /// Of the high-priority program.
    speed: f64,
    /// CPUs used by the other one, and by Cotenant.
    low: f64,
    own: f64,
    notes: Vec<String>,
}

/// Runs the two lines under `cotenant qos` until the first has ended.
fn managed(here: &Here, controller: &str, high: &str, low: &str) -> Result<Managed> {
    let mut command = told(here, Command::new(&here.cotenant));
    // Naps only: on a larger machine programs would be moved to other caches.
    command.args(["qos", "--json", "--means", "outside", "--controller", controller, "--high", high, "--low", low]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // The other process keeps the pipe open, so that only the report itself marks its end.
    let report = serde_json::Deserializer::from_reader(child.stdout.take().context("it has an output")?);
    let report = report.into_iter::<Value>().next();
    sys::kill(child.id(), SIGTERM)?; // our child is not reaped yet, so that its id is valid
    let out = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    let summary = said.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).filter(Value::is_object);
    let (Some(Ok(report)), Some(summary)) = (report, summary) else {
        bail!("cotenant qos: {}", said.lines().last().unwrap_or("it said nothing").trim_start_matches("cotenant: "));
    };
    let of = |value: &Value| value.as_f64().context("a summary of cotenant qos");
    let notes = summary["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let means = summary["low"][0]["means"].as_str().map(|means| format!("naps by {means}"));
    Ok(Managed {
        speed: rate(&report)?,
        low: of(&summary["low"][0]["cpus"])?,
        own: of(&summary["overhead"])?,
        notes: notes.map(str::to_owned).chain(means).collect(),
    })
}

/// Messages of `cotenant qos` in all runs.
fn by(said: &BTreeSet<String>) -> String {
    format!("cotenant qos: {}.", said.iter().map(String::as_str).collect::<Vec<_>>().join("; "))
}

/// Figures of a pair under one arm, per round.
#[derive(Clone, Default)]
struct Rounds {
    /// Speed of the high-priority program over its speed alone right before and after.
    kept: Vec<f64>,
    /// CPUs used by the low-priority program over those without naps in the same round.
    used: Vec<f64>,
    /// CPUs used by Cotenant.
    own: Vec<f64>,
}

struct Study {
    pairs: Vec<[&'static str; 2]>,
    controllers: &'static [&'static str],
    /// By pair, then by arm: without naps, and each controller.
    found: Vec<Vec<Rounds>>,
    notes: Vec<String>,
}

/// Each pair without naps and under each controller; `words` makes its argument from the speed alone.
fn study(here: &Here, controllers: &'static [&'static str], words: fn(&str, f64) -> String) -> Result<Study> {
    let mut notes = Vec::new();
    let has_xz = text_for_xz(here, &["xz", "taskset"], &mut notes)?.is_some();
    let few = if here.quick { 2 } else { PAIRS.len() };
    let pairs: Vec<_> = PAIRS.into_iter().take(few).filter(|pair| has_xz || pair[1] != XZ).collect();
    let ways = controllers.len() + 1;
    let mut found = vec![vec![Rounds::default(); ways]; pairs.len()];
    let (short, long) = if here.quick { (0.3, 1.0) } else { (0.5, 2.5) };
    let mut said = BTreeSet::new();
    let mut progress = Progress::new(true);
    for round in 0..here.rounds() {
        for (p, [high, low]) in pairs.iter().enumerate() {
            progress.show((round * pairs.len() + p) as f64 / (here.rounds() * pairs.len()) as f64, || {
                format!("round {} of {}, {high} beside {low}", round + 1, here.rounds())
            });
            let alone = || run(shell(here, &kernel(here, high, 0, short)));
            let mut before = alone()?;
            let mut cpus = vec![f64::NAN; ways];
            for i in 0..ways {
                let way = (i + round) % ways; // another order in each round
                let rate = if way == 0 {
                    let batch = Batch::start(here, &batch(here, low))?;
                    let rate = run(shell(here, &kernel(here, high, 0, long)))?;
                    cpus[0] = batch.end()?;
                    rate
                } else {
                    let controller = words(controllers[way - 1], before);
                    let ran = managed(here, &controller, &kernel(here, high, 0, long), &batch(here, low))?;
                    cpus[way] = ran.low;
                    found[p][way].own.push(ran.own);
                    said.extend(ran.notes);
                    ran.speed
                };
                let behind = alone()?;
                found[p][way].kept.push(rate / f64::midpoint(before, behind));
                before = behind;
            }
            for (rounds, used) in found[p].iter_mut().zip(&cpus) {
                rounds.used.push(used / cpus[0]);
            }
        }
    }
    notes.push(by(&said));
    Ok(Study { pairs, controllers, found, notes })
}

/// A loss with an upper limit in the paper, percent; undecided if the interval contains the limit.
fn bounded(label: String, paper: f64, figures: &[f64]) -> Row {
    let Median { value, low, high } = middle(figures);
    let row = bound(label, paper, value, "%").between([low, high]);
    if (low < paper) == (high < paper) {
        return row;
    }
    Row { verdict: "not decided: the interval is on both sides of the paper's bound".to_owned(), met: None, ..row }
}

impl Study {
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for ([high, low], found) in self.pairs.iter().zip(&self.found) {
            let names = ["as it is"].into_iter().chain(self.controllers.iter().copied());
            for (way, (name, rounds)) in names.zip(found).enumerate() {
                let label = |what: &str| format!("{high} beside {low}, {name}: {what}");
                rows.push(median_row(label("speed kept"), &rounds.kept, 1.0, "of alone"));
                if way > 0 {
                    let label = label(&format!("utilisation of {low}"));
                    rows.push(median_row(label, &rounds.used, 1.0, "of as it is"));
                }
            }
        }
        for (i, name) in self.controllers.iter().enumerate() {
            let own: Vec<f64> = self.found.iter().flat_map(|found| found[i + 1].own.iter().copied()).collect();
            rows.push(row(format!("{name}: speed kept, mean of the pairs"), mean(self.kept(i + 1)), "of alone"));
            rows.push(row(format!("{name}: utilisation, mean of the pairs"), mean(self.used(i + 1)), "of as it is"));
            let Median { value, .. } = middle(&own);
            rows.push(row(format!("{name}: Cotenant's own CPU time, median"), value * 100.0, "% of a CPU"));
        }
        rows
    }

    /// The median of each pair.
    fn kept(&self, way: usize) -> Vec<f64> {
        self.found.iter().map(|found| middle(&found[way].kept).value).collect()
    }

    fn used(&self, way: usize) -> Vec<f64> {
        self.found.iter().map(|found| middle(&found[way].used).value).collect()
    }

    fn finish(mut self, rows: Vec<Row>, what: &str) -> Found {
        let calm = self.pairs.iter().zip(&self.found).filter(|(_, found)| middle(&found[0].kept).high >= 1.0);
        let calm: Vec<String> = calm.map(|([high, low], _)| format!("{low} from {high}")).collect();
        if !calm.is_empty() {
            self.notes.push(format!(
                "No loss was beyond chance, so that naps could give nothing back: what {} takes.",
                calm.join(", ")
            ));
        }
        let note = format!(
            "Kernels of SmashBench by their own progress (large ones with 256 MiB), each beside another one or xz -6 \
             of a text. They run without naps and under cotenant qos --means outside, learning included. Speed is \
             over the mean of that alone right before and behind, CPU time of the other one over that without naps in \
             the same round. {ROUNDS} rounds (2 with --quick) in another order each: median, least and most, which \
             are an interval of 95 % of six. {what} {}",
            self.notes.join(" ")
        );
        Found::tallied(rows, note.trim_end())
    }
}

/// A preset of the paper, with thresholds in units of the speed alone.
fn scaled(name: &str, alone: f64) -> String {
    let Some(Controller::Simple(preset)) = Controller::preset(name, 0.9) else { return name.to_owned() };
    let [a, b, c] = preset.naps;
    format!("simple:{},{},{a}/{b}/{c}", preset.low * alone, preset.high * alone)
}

/// Figures 6.5–6.10.
pub(super) fn simple(here: &Here) -> Result<Found> {
    let study = study(here, &SIMPLE, scaled)?;
    let mut rows = study.rows();
    let used = [1, 2, 3].map(|way| study.used(way));
    let all: Vec<f64> = used.iter().flatten().copied().collect();
    let label = "pairs and presets in which the other program got more than half of its CPU time";
    let speeds = [2, 1].map(|way| mean(study.kept(way)));
    rows.extend(statements_on_presets(label, &all, used.map(mean), speeds, "of as it is"));
    Ok(study.finish(
        rows,
        "The paper's thresholds are IPCs; here they are shares of the speed alone, as if that were an IPC of 1, so that it runs without counters, too. Runs between naps are 10 ms, judged as a whole: programs report progress in batches. The paper's are 2 ms.",
    ))
}

/// Figures 6.11–6.16.
pub(super) fn targeted(here: &Here) -> Result<Found> {
    let study = study(here, &TARGETED, |name, _| name.to_owned())?;
    let mut rows = study.rows();
    let at = |way: usize, goal: f64| {
        let kept = study.kept(way);
        kept.iter().filter(|kept| **kept >= goal - 0.01).count() as f64 / kept.len() as f64 * 100.0
    };
    rows.push(row("pairs at the goal of 90 % or within a point of it, as it is", at(0, 0.9), "%"));
    for (i, name) in TARGETED.iter().enumerate() {
        let goal = if *name == "conservative-80" { 0.8 } else { 0.9 };
        let share = at(i + 1, goal);
        let label = format!("pairs at the goal of {:.0} % or within a point of it, {name}", goal * 100.0);
        rows.push(match *name {
            OURS => row(label, share, "%"),
            "relaxed-90" => claim(label, share, "%", "the target is often met", share >= 50.0),
            _ => claim(label, share, "%", "beaten in many cases, nearly met in the worst", share >= 90.0),
        });
        if goal > 0.8 {
            let used = mean(study.used(i + 1));
            let label = format!("mean utilisation at 90 %, {name}");
            rows.push(claim(label, used, "of as it is", "more than a half on average", used > 0.5));
        }
    }
    Ok(study.finish(rows, "All go by progress, which the paper's IPC stands for; tracking is ours."))
}

/// Figures 6.22 and 6.23: two programs that share nothing.
pub(super) fn overhead(here: &Here) -> Result<Found> {
    const WAYS: [(&str, &str); 2] = [("looks every 10 ms, no naps", LOOKS), (OURS, OURS)];
    let (short, long) = if here.quick { (1.0, 1.5) } else { (2.0, 4.0) };
    // The other program reports its speed before the first one ends everything.
    let low = |seconds: f64| format!("{} >\"$LOW\"", kernel(here, "cpu", 1, 0.8 * seconds));
    let lines = |seconds: f64| [kernel(here, "cpu", 0, seconds), low(seconds)];
    let low_speed = || speed(&fs::read(here.folder.path().join("low.json"))?);
    let without = || -> Result<[f64; 2]> {
        let [high, low] = lines(short);
        let mut batch = Batch::start(here, &low)?;
        let high = run(shell(here, &high))?;
        batch.0.0.wait()?;
        Ok([high, low_speed()?])
    };
    let mut found = vec![[const { Vec::new() }; 3]; WAYS.len()];
    let mut said = BTreeSet::new();
    let mut progress = Progress::new(true);
    let mut before = without()?;
    for round in 0..here.rounds() {
        progress.show(round as f64 / here.rounds() as f64, || format!("round {} of {}", round + 1, here.rounds()));
        for i in 0..WAYS.len() {
            let way = (i + round) % WAYS.len();
            let [high, low] = lines(long);
            let ran = managed(here, WAYS[way].1, &high, &low)?;
            let with = [ran.speed, low_speed()?];
            let behind = without()?;
            for side in 0..2 {
                found[way][side].push((1.0 - with[side] / f64::midpoint(before[side], behind[side])) * 100.0);
            }
            found[way][2].push(ran.own * 100.0);
            said.extend(ran.notes);
            before = behind;
        }
    }
    let mut rows = Vec::new();
    for ((name, controller), [high, low, own]) in WAYS.iter().zip(&found) {
        rows.push(bounded(format!("{name}: loss of the program of high priority"), 1.0, high));
        let label = format!("{name}: loss of the program of low priority");
        // The paper's figure is without naps; measuring pauses are no such overhead.
        rows.push(if *controller == LOOKS { bounded(label, 5.0, low) } else { median_row(label, low, 1.0, "%") });
        rows.push(median_row(format!("{name}: Cotenant's own CPU time"), own, 1.0, "% of a CPU"));
    }
    let note = format!(
        "The kernel cpu, which uses no memory, runs on both, for {long} s under cotenant qos --means outside and for \
         {short} s without it right before and behind. Loss of units per second, in {ROUNDS} rounds (2 with --quick) \
         in another order each: median, least and most, which are an interval of 95 % of six. tracking has just begun \
         to learn in that time: its pauses and low duties of the first second are in the loss of low priority. {}",
        by(&said)
    );
    Ok(Found::tallied(rows, note))
}
