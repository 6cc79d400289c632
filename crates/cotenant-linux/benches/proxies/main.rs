//! Usability of proxies for the speed of real programs: the kernel's view of each program against its real progress.
//!
//! Progress is counted outside of the program: bytes through a pipe, answers to a client, or units in memory. Each
//! program runs alone, beside one and two busy loops on its CPUs, and with 70 % of their time. One JSON object per
//! proxy and condition has the mean rates (`what: rate`); one per proxy (`what: verdict`) has:
//!
//! * `spread`: relative standard deviation of a window of half a second, with the program alone; `real_spread`: that of
//!   the real progress, `noise`: that of their ratio;
//! * `slope`, `r`: of the proxy's logarithm over that of the real progress, over the conditions; `worst`: largest error
//!   of the ratio of two conditions (0.1: 10 %);
//! * `verdict`: `absent`, `unsteady` (`spread` and `noise` above 5 %), `misleading` (`worst`
//!   above 10 %, or no correlation), `usable`.
//!
//! Arguments are names of programs; none means all. `COTENANT_BENCH_WINDOWS` is the number of windows per condition, 16
//! by default: 20 minutes in all.

mod clients;
mod place;
mod programs;
mod verdict;

use cotenant_linux::sense::observer::{AppTarget, Observer, Options};
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sense::topology;
use cotenant_linux::sys;
use cotenant_model::speed::{self, Source};
use cotenant_model::{CpuSet, Sample, Signal, Time, View};
use cotenant_testing::bench::Report;
use place::{Place, Running};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Length of a window.
const WINDOW: Duration = Duration::from_millis(500);

/// Unmeasured time after a change of condition.
const SETTLE: Duration = Duration::from_millis(1_500);

/// Observed besides the real progress.
const PROXIES: [&str; 8] = ["openmp", "mpi", "instructions", "io", "tcp", "disk", "system calls", "context switches"];

/// Rates of one window: the real one, and each of [`PROXIES`].
#[derive(Clone, Debug)]
pub struct Window {
    real: f64,
    /// Fraction of time in which its busiest thread ran or waited for a CPU.
    busy: Option<f64>,
    proxies: [Option<f64>; PROXIES.len()],
}

fn main() {
    // Cargo passes --bench.
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let windows = std::env::var("COTENANT_BENCH_WINDOWS").ok().and_then(|n| n.parse().ok()).unwrap_or(16);
    if let Err(why) = sys::setaffinity(0, &CpuSet::single(cotenant_model::CpuId(1))) {
        eprintln!("skipped: the proxies of real programs need CPUs 0 and 1: {why}");
        return;
    }
    let mut rows = Report::new("proxies");
    for program in programs::all().iter().filter(|p| asked.is_empty() || asked.iter().any(|name| name == p.name)) {
        let missing: Vec<_> = program.needs.iter().filter(|tool| place::find(tool).is_none()).collect();
        if !missing.is_empty() {
            eprintln!("skipped: {}: there is no {missing:?}", program.name);
            continue;
        }
        let place = Place::new(program.cpus);
        match (program.start)(&place) {
            Ok(mut running) => measure(program.name, &place, &mut running, windows, &mut rows),
            Err(why) => eprintln!("skipped: {}: {why}", program.name),
        }
    }
}

/// A condition by its name: number of busy loops, and CPU limit.
const CONDITIONS: [(&str, usize, f64); 4] =
    [("alone", 0, 1.0), ("beside one", 1, 1.0), ("beside two", 2, 1.0), ("70 %", 0, 0.7)];

fn measure(name: &str, place: &Place, running: &mut Running, windows: usize, rows: &mut Report) {
    let target = AppTarget { name: name.to_owned(), target: Target::Trees(vec![running.pid()]) };
    let options = Options { proxies: true, other_users: true, ..Options::default() };
    let topology = topology::live().expect("this machine").topology;
    let mut observer = Observer::new(&topology, vec![target], options).expect("/proc is there");
    let begin = Instant::now();
    let mut found: BTreeMap<&str, Vec<Window>> = BTreeMap::new();
    for (condition, loops, share) in CONDITIONS {
        if !place.limit(share) {
            eprintln!("skipped in part: {name}, {condition}: there is no cpu controller");
            continue;
        }
        let busy = place.busy(loops);
        std::thread::sleep(SETTLE);
        let rest = if condition == "alone" { windows.max(16) } else { windows };
        let all = (0..=rest).map(|_| {
            std::thread::sleep(WINDOW);
            Look::at(&mut observer, begin, running)
        });
        let all: Vec<Look> = all.collect();
        drop(busy);
        if !running.lives() {
            eprintln!("skipped: {name}: it ended");
            return;
        }
        found.insert(condition, all.windows(2).map(|pair| pair[1].since(&pair[0])).collect());
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    for (condition, windows) in &found {
        let mean = |of: &dyn Fn(&Window) -> Option<f64>| {
            let values: Vec<f64> = windows.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let mut row = json!({"what": "rate", "program": name, "condition": condition, "load": load});
        row["real"] = json!(mean(&|window| Some(window.real)));
        row["busy"] = json!(mean(&|window| window.busy));
        for (i, proxy) in PROXIES.iter().enumerate() {
            row[*proxy] = json!(mean(&|window| window.proxies[i]));
        }
        rows.row(row);
    }
    for (i, proxy) in PROXIES.iter().enumerate() {
        let mut row = verdict::of(&found, i);
        row["what"] = "verdict".into();
        (row["program"], row["proxy"]) = (name.into(), (*proxy).into());
        rows.row(row);
    }
    for note in observer.proxy_notes() {
        eprintln!("{name}: {note}");
    }
}

/// Observations at one time.
struct Look {
    sample: Sample,
    real: [f64; 2],
    /// Bytes to and from devices, and read and write system calls.
    counts: [u64; 2],
}

impl Look {
    fn at(observer: &mut Observer, begin: Instant, running: &mut Running) -> Self {
        let at = Time(begin.elapsed().as_nanos() as u64);
        let real = running.progress();
        let sample = observer.sample(at, &mut |new| new.mask.clone()).expect("/proc is there");
        let mut counts = [0; 2];
        for pid in observer.processes() {
            let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
            for line in text.lines() {
                let Some((key, value)) = line.split_once(": ") else { continue };
                let which = match key {
                    "read_bytes" | "write_bytes" => 0,
                    "syscr" | "syscw" => 1,
                    _ => continue,
                };
                counts[which] += value.parse::<u64>().unwrap_or_default();
            }
        }
        Self { sample, real, counts }
    }

    fn since(&self, before: &Self) -> Window {
        let view = View::new(&before.sample, &self.sample);
        let seconds = view.interval.as_secs_f64();
        let app = &view.apps[0];
        let told = |source: Source| source.reading(&view, app).map(|reading| reading.value);
        let count = |i: usize| {
            let added = self.counts[i].checked_sub(before.counts[i])?;
            Some(added as f64 / seconds)
        };
        let switches: f64 = view.tasks.iter().filter_map(|task| task.per_s(Signal::ContextSwitches)).sum();
        let [done, weight] = [0, 1].map(|i| self.real[i] - before.real[i]);
        Window {
            busy: speed::busiest(&view.tasks.iter().collect::<Vec<_>>()),
            real: if weight > 0.0 { done / weight } else { 0.0 },
            proxies: [
                told(Source::OpenMp),
                told(Source::Mpi),
                told(Source::Instructions),
                told(Source::Io),
                told(Source::Tcp),
                count(0),
                count(1),
                Some(switches),
            ],
        }
    }
}
