//! Programs that slow themselves down on this machine: a batch program in C, compiled by `cotenant cc` in the modes
//! `naps` and `padding`, beside kernels of `SmashBench` and a real program.

use super::super::row::{Found, Row, claim, effect, level, lowest, mean, percent, row};
use super::here::{Here, ROUNDS, Running, SIGTERM, median_row, text_for_xz};
use anyhow::{Context, Result, bail};
use cotenant_cli::progress::Progress;
use cotenant_kernels::{Caches, Config, Kernel};
use cotenant_linux::sys;
use cotenant_measure::characterize::Stop;
use cotenant_measure::live::app::pace;
use cotenant_model::stats::median::middle;
use cotenant_model::{CpuId, CpuSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// The batch program; `cargo bench -p cotenant --bench pass` also uses it, for the rate of equation 5.10.
const BATCH: &str = include_str!("batch.c");
/// Size of its arrays: beyond any last private cache.
const KILOBYTES: &str = "65536";
/// High-priority programs: kernels sensitive to the last-level cache or to its bandwidth.
const KERNELS: [&str; 3] = ["bst-8mb", "bst-50mb", "blockie-large"];

/// The inserted slowdown of the batch program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Plain,
    /// Naps of this many ms after each this many.
    Naps(u32, u32),
    /// This many nops in every five instructions.
    Padded(u32),
}

impl Made {
    fn label(self) -> String {
        match self {
            Self::Plain => "as it is".to_owned(),
            Self::Naps(run, nap) => format!("{run}/{nap} ms"),
            Self::Padded(nops) => format!("padded with {nops} nops"),
        }
    }

    /// Granularity over granularity and duration.
    fn rate(self) -> f64 {
        match self {
            Self::Naps(run, nap) => f64::from(run) / f64::from(run + nap),
            Self::Plain | Self::Padded(_) => 1.0,
        }
    }

    fn compile(self, here: &Here) -> Result<PathBuf> {
        let source = here.folder.path().join("batch.c");
        fs::write(&source, BATCH)?;
        let program = here.folder.path().join(format!("batch {}", self.label()).replace([' ', '/'], "-"));
        let mut command = Command::new(&here.cotenant);
        command.arg("cc").env_remove("COTENANT_CC");
        match self {
            Self::Plain => command.arg("--cotenant-mode=off"),
            Self::Naps(run, nap) => command.args([
                "--cotenant-mode=naps".to_owned(),
                format!("--cotenant-granularity={run}ms"),
                format!("--cotenant-duration={nap}ms"),
            ]),
            Self::Padded(nops) => {
                command.args(["--cotenant-mode=padding".to_owned(), format!("--cotenant-thickness={nops}")])
            }
        };
        let out = command.args(["-O2", "-o"]).arg(&program).arg(&source).stdin(Stdio::null()).output()?;
        if out.status.success() {
            return Ok(program);
        }
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let why = said.lines().next().unwrap_or("cotenant cc failed").trim_start_matches("cotenant: ");
        Err(Stop::Missing(why.to_owned()).into())
    }
}

/// The running batch program.
struct Batch {
    running: Running,
    out: BufReader<ChildStdout>,
}

/// Its final output: fraction of time that it executed, copies per second.
type Said = [f64; 2];

impl Batch {
    /// Starts it on a CPU; it runs warm for this many ms of CPU time, or until asked to end.
    fn start(program: &PathBuf, cpu: CpuId, milliseconds: u32) -> Result<Self> {
        let words = [milliseconds.to_string(), KILOBYTES.to_owned()];
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Running(on(cpu, || Ok(command.spawn()?))?);
        let out = BufReader::new(running.0.stdout.take().context("it has an output")?);
        let mut batch = Self { running, out };
        let mut line = String::new();
        batch.out.read_line(&mut line)?;
        if line.trim() != "ready" {
            bail!("the batch program ended before it was warm; is there memory for it?");
        }
        Ok(batch)
    }

    fn finish(mut self, ask: bool) -> Result<Said> {
        if ask {
            sys::kill(self.running.0.id(), SIGTERM)?; // our child is not reaped yet, so that its id is valid
        }
        let mut text = String::new();
        self.out.read_to_string(&mut text)?;
        self.running.0.wait()?;
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(share)), Some(Ok(per_s))) if f64::is_finite(share) => Ok([share, per_s]),
            (Some(Ok(_)), Some(Ok(_))) => bail!("the batch program only waited; is a CPU free for it?"),
            _ => bail!("the batch program said '{}' instead of its figures", text.trim()),
        }
    }
}

/// Starts a process on a CPU: it inherits this thread's mask, which is restored at once.
fn on<T>(cpu: CpuId, start: impl FnOnce() -> Result<T>) -> Result<T> {
    let own = sys::getaffinity(0)?;
    sys::setaffinity(0, &CpuSet::single(cpu))?;
    let started = start();
    sys::setaffinity(0, &own)?;
    started
}

/// A high-priority program.
enum High {
    Kernel(&'static str),
    /// Compresses a text.
    Xz(PathBuf),
}

impl High {
    fn all(here: &Here, notes: &mut Vec<String>) -> Result<Vec<Self>> {
        let mut all: Vec<Self> =
            KERNELS.iter().take(if here.quick { 1 } else { 3 }).map(|name| Self::Kernel(name)).collect();
        all.extend(text_for_xz(here, &["xz"], notes)?.map(Self::Xz));
        Ok(all)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Kernel(name) => name,
            Self::Xz(_) => "xz -6",
        }
    }

    /// Work per second of CPU time.
    fn speed(&self, here: &Here, cpu: CpuId) -> Result<f64> {
        match self {
            Self::Kernel(name) => {
                let kernel = Kernel::by_name(name).context("a kernel")?;
                let length = Duration::from_millis(if here.quick { 100 } else { 300 });
                let config =
                    Config { duration: Some(length), cpus: vec![cpu], ..Config::new(1, Caches::of(&here.topology)) };
                let report = kernel.run(&config, None, &mut || true)?;
                Ok(pace(&report))
            }
            Self::Xz(text) => {
                let before = sys::children_cpu_time();
                let mut command = Command::new("xz");
                command.args(["-6", "-k", "-c"]).arg(text).stdin(Stdio::null()).stdout(Stdio::null());
                let status = on(cpu, || Ok(command.spawn()?))?.wait()?;
                if !status.success() {
                    bail!("xz failed: {status}");
                }
                Ok(1.0 / (sys::children_cpu_time().saturating_sub(before)).as_secs_f64().max(1e-9))
            }
        }
    }
}

/// Rounds of each high-priority program beside each batch program: its speed over its speed alone in the same round.
struct Beside {
    names: Vec<&'static str>,
    /// By program, by batch program: quality of each round.
    quality: Vec<Vec<Vec<f64>>>,
    /// By batch program: its rate over that of the unmodified one in the same round, beside the same program.
    rate: Vec<Vec<f64>>,
}

fn beside(here: &Here, made: &[Made], programs: &[PathBuf], notes: &mut Vec<String>) -> Result<Beside> {
    let high = High::all(here, notes)?;
    let mut found = Beside {
        names: high.iter().map(High::name).collect(),
        quality: vec![vec![Vec::new(); made.len()]; high.len()],
        rate: vec![Vec::new(); made.len()],
    };
    let rounds = here.rounds();
    let mut progress = Progress::new(true);
    let [cpu, other] = here.cpus;
    for round in 0..rounds {
        for (h, high) in high.iter().enumerate() {
            progress.show((round * found.names.len() + h) as f64 / (rounds * found.names.len()) as f64, || {
                format!("round {} of {rounds}, {}", round + 1, high.name())
            });
            let mut speeds = vec![f64::NAN; made.len()];
            let mut copies = vec![f64::NAN; made.len()];
            let mut alone = f64::NAN;
            // The order rotates per round; `made.len()` stands for the run alone.
            for i in 0..=made.len() {
                match (i + round) % (made.len() + 1) {
                    m if m == made.len() => alone = high.speed(here, cpu)?,
                    m => {
                        let batch = Batch::start(&programs[m], other, 0)?;
                        speeds[m] = high.speed(here, cpu)?;
                        copies[m] = batch.finish(true)?[1];
                    }
                }
            }
            for m in 0..made.len() {
                found.quality[h][m].push(speeds[m] / alone);
                found.rate[m].push(copies[m] / copies[0]);
            }
        }
    }
    Ok(found)
}

impl Beside {
    fn rows(&self, made: &[Made]) -> Vec<Row> {
        let mut rows = Vec::new();
        for (m, made) in made.iter().enumerate() {
            for (name, quality) in self.names.iter().zip(&self.quality) {
                let label = format!("batch {}: speed of {name}", made.label());
                rows.push(median_row(label, &quality[m], 1.0, "of alone"));
            }
            let label = format!("batch {}: its own rate", made.label());
            rows.push(median_row(label, &self.rate[m], 1.0, "of as it is"));
        }
        rows
    }

    fn median(&self, high: usize, made: usize) -> f64 {
        middle(&self.quality[high][made]).value
    }

    /// Whether a high-priority program suffers from the unmodified batch program: otherwise there is nothing to
    /// improve.
    fn suffers(&self, high: usize) -> bool {
        middle(&self.quality[high][0]).high < 1.0
    }

    /// How much less the last kind of batch program disturbs than the first: the mean of medians over the suffering
    /// programs; `None` without any.
    fn gain_row(&self, made: &[Made], says: &str) -> Option<Row> {
        let last = made.len() - 1;
        let suffer = (0..self.names.len()).filter(|high| self.suffers(*high));
        let all: Vec<f64> = suffer.map(|high| self.median(high, last) - self.median(high, 0)).collect();
        let (n, gain) = (all.len(), mean(&all));
        let label = format!("batch {}: speed of those that suffer, over as it is, mean of {n}", made[last].label());
        (n > 0).then(|| claim(label, gain, "of alone", says, gain > 0.0))
    }

    fn calm(&self, notes: &mut Vec<String>) {
        let all: Vec<&str> =
            self.names.iter().enumerate().filter(|(h, _)| !self.suffers(*h)).map(|(_, name)| *name).collect();
        if !all.is_empty() {
            notes.push(format!("On two cores the batch program takes nothing beyond chance from {}.", all.join(", ")));
        }
    }
}

fn compiled(here: &Here, made: &[Made]) -> Result<Vec<PathBuf>> {
    made.iter().map(|made| made.compile(here)).collect()
}

/// Figures 5.13–5.17, equations 5.10 and 5.11.
pub(super) fn naps(here: &Here) -> Result<Found> {
    let made: &[Made] = if here.quick {
        &[Made::Plain, Made::Naps(10, 20)]
    } else {
        &[Made::Plain, Made::Naps(1, 1), Made::Naps(1, 2), Made::Naps(10, 10), Made::Naps(10, 20)]
    };
    let programs = compiled(here, made)?;
    let mut notes = Vec::new();
    let mut rows = Vec::new();
    // Alone, for many naps, so that a partial nap at the end matters little.
    let (times, milliseconds) = (here.rounds(), if here.quick { 200 } else { 400 });
    for (made, program) in made.iter().zip(&programs).skip(1) {
        let shares = (0..times).map(|_| Ok(Batch::start(program, here.cpus[1], milliseconds)?.finish(false)?[0]));
        let share = middle(&shares.collect::<Result<Vec<f64>>>()?);
        let off = share.value / made.rate() - 1.0;
        let label = format!("naps {}: share of the time that it executes, equation 5.10", made.label());
        let row = claim(label, share.value, "", "within 5 % of the equation", off.abs() <= 0.05);
        let row = row.between([share.low, share.high]);
        rows.push(Row { paper: Some(made.rate()), ..row });
    }
    let found = beside(here, made, &programs, &mut notes)?;
    rows.extend(found.rows(made));
    if let Some(gain) = found.gain_row(made, "naps give speed back") {
        rows.push(gain);
        // Equation 5.11: 1 − (1 − unmodified QoS) · R.
        let off = (0..found.names.len()).filter(|high| found.suffers(*high)).flat_map(|high| {
            let before = found.median(high, 0);
            let found = &found;
            (1..made.len()).map(move |m| {
                let said = 1.0 - (1.0 - before) * made[m].rate();
                (said - found.median(high, m)) * 100.0
            })
        });
        rows.push(row("equation 5.11 says more than comes about: mean over all", mean(off), "points of speed"));
    }
    found.calm(&mut notes);
    Ok(finish(rows, &notes, "naps: share of the time by itself, of which its own rate beside the others is a part"))
}

/// Figure 5.12.
pub(super) fn padding(here: &Here) -> Result<Found> {
    let made: &[Made] = if here.quick {
        &[Made::Plain, Made::Padded(100)]
    } else {
        &[Made::Plain, Made::Padded(10), Made::Padded(50), Made::Padded(100)]
    };
    let programs = compiled(here, made)?;
    let mut notes = Vec::new();
    let found = beside(here, made, &programs, &mut notes)?;
    let mut rows = found.rows(made);
    rows.extend(found.gain_row(made, "padding gives speed back"));
    found.calm(&mut notes);
    Ok(finish(
        rows,
        &notes,
        "padding: nops at the beginning of each block and after every five instructions of the copying loop",
    ))
}

/// Figures 5.18–5.20.
pub(super) fn compiled_for_qos(here: &Here) -> Result<Found> {
    const MADE: [Made; 4] = [Made::Plain, Made::Padded(50), Made::Naps(10, 10), Made::Naps(10, 20)];
    let programs = compiled(here, &MADE)?;
    let mut notes = Vec::new();
    let found = beside(here, &MADE, &programs, &mut notes)?;
    let mut rows = found.rows(&MADE);
    let [ten, twenty] = [2, 3];
    let all = 0..found.names.len();
    let least = lowest(all.clone().map(|high| found.median(high, twenty)));
    let label = "lowest median beside batch 10/20 ms";
    rows.push(claim(label, least, "of alone", "every co-runner is above 0.9", least > 0.9));
    let quality = |made| mean(all.clone().map(|high| found.median(high, made)));
    let gain = percent(quality(twenty) / quality(0));
    rows.push(effect("speed of the others, 10/20 over as it is", 21.0, gain));
    let rate = |made: usize| middle(&found.rate[made]).value;
    rows.push(level("rate of batch 10/10 over as it is (the paper's: lbm over alone)", 0.48, rate(ten), ""));
    let used = mean([ten, twenty].map(rate)) * 100.0;
    rows.push(level("utilisation gained over no co-location, mean of 10/10 and 10/20", 36.0, used, "%"));
    found.calm(&mut notes);
    Ok(finish(rows, &notes, "padding and naps are there even where no co-runner suffers"))
}

fn finish(rows: Vec<Row>, notes: &[String], what: &str) -> Found {
    let note = format!(
        "The batch program copies two arrays of 32 MiB back and forth, compiled by cotenant cc -O2; {what}. Speed by \
         CPU time over that alone in the same round. {ROUNDS} rounds (2 with --quick) in another order each: median, \
         least and most, which are an interval of 95 % of six. {}",
        notes.join(" ")
    );
    Found::tallied(rows, note.trim_end())
}
