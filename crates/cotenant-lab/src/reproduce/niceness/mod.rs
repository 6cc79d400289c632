//! Naps of low-priority programs: Tang's dissertation, chapters 5 (QoS-Compile) and 6 (Reactive-Niceness).

mod compile;
mod phases;
mod reactive;

pub(super) use compile::{compiled, naps, padding};
pub(super) use phases::{naps_over_a_run, reaction_over_a_run};
pub(super) use reactive::{overhead, simple, statements_on_presets, targeted};

use super::lab::{Lab, Watch, watched};
use anyhow::Context as _;
use cotenant_model::Decision;
use cotenant_model::action::{Action, ActionOutcome, Proposal, Reason};
use cotenant_model::policy::{Config, Ctx, DynPolicy, NoSettings, Policy};
use cotenant_model::signal::Signal;
use cotenant_model::speed::Source;
use cotenant_model::{AppId, Time, View};
use cotenant_policies::qos::controller::Controller;
use cotenant_policies::{High, Qos, QosConfig};
use cotenant_sim::app::embedded;
use cotenant_sim::scenario::Scenario;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const NEHALEM: &str = "nehalem-i7-920";
const PHENOM: &str = "phenom-x4";

/// Slowdown of the low-priority program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// None.
    Plain,
    /// This many nops in every five instructions.
    Padded(u32),
    /// After this many ms of running, a nap of this many.
    Naps(f64, f64),
    /// Naps ordered by a controller, by the name of its preset, with a goal of 90 % unless the preset has one.
    Under(&'static str),
}

/// A run: one thread of each program on its own core; the high-priority program comes first.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    machine: &'static str,
    high: String,
    low: Option<String>,
    how: How,
    /// The CPUs of the threads of the first, and of the second.
    cpus: [Vec<usize>; 2],
}

/// Results of a run with warm caches.
#[derive(Clone, Copy, Debug, Default)]
struct PairRates {
    /// Instructions per second of the high-priority program.
    high: f64,
    /// Of the other one.
    low: f64,
    /// Fraction of time in which the other one ran.
    duty: f64,
}

impl Run {
    /// A program on core 0 of a machine, and another one on its neighbour.
    fn of(machine: &'static str, high: &str, low: &str, how: How) -> Self {
        Self { machine, high: high.to_owned(), low: Some(low.to_owned()), how, cpus: [vec![0], vec![1]] }
    }

    fn alone(&self) -> Self {
        Self { low: None, how: How::Plain, ..self.clone() }
    }

    fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut text = "observation = { cost_us = 0 }\n".to_owned();
        let programs = [Some(&self.high), self.low.as_ref()].into_iter().flatten();
        for ((program, cpus), name) in programs.zip(&self.cpus).zip(["high", "low"]) {
            let threads = cpus.len();
            let _ =
                write!(text, "[[app]]\nname = '{name}'\nprogram = '{program}'\nthreads = {threads}\nwork_s = 100000\n");
        }
        let mut scenario = Lab::scenario_on(self.machine, &text)?;
        for (app, cpus) in scenario.apps.iter_mut().zip(&self.cpus) {
            app.pinned = Some(cpus.clone());
        }
        if let (How::Padded(thickness), Some(app)) = (self.how, scenario.apps.get_mut(1)) {
            let mut program = (*app.program).clone();
            for phase in &mut program.phases {
                phase.cpi += f64::from(thickness) / PADDED_EVERY / NOPS_PER_CYCLE;
            }
            app.program = Arc::new(program);
        }
        Ok(scenario)
    }

    /// The scenario, and the policy that pauses the second program.
    fn set_up(&self) -> anyhow::Result<(Scenario, Box<dyn DynPolicy>)> {
        let mut scenario = self.scenario()?;
        let policy: Box<dyn DynPolicy> = match self.how {
            How::Plain | How::Padded(_) => Box::new(Watch),
            How::Naps(run, nap) => {
                let [run, nap] = [run, nap].map(|ms| Duration::from_secs_f64(ms / 1e3));
                Box::new(Inserted::everywhere(run, nap))
            }
            How::Under(name) => {
                let controller = Controller::preset(name, 0.9).context("a preset")?;
                let high = vec![High { app: AppId(0), metric: Source::Ipc, goal: None }];
                let [settle, patience, silence] = [Duration::ZERO; 3];
                let (low, place, limits) = (vec![AppId(1)], false, None);
                let qos = QosConfig { controller, high, low, place, limits, climb: false, settle, patience, silence };
                scenario.config = Config { interval: Duration::from_millis(25), ..scenario.config };
                Box::new(Qos(Some(qos)))
            }
        };
        Ok((scenario, policy))
    }

    fn seen(&self, lab: &Lab) -> anyhow::Result<PairRates> {
        let (warm, end) = if lab.effort.every > 1 { (0.2, 0.6) } else { (1.0, 6.0) };
        let (mut scenario, policy) = self.set_up()?;
        scenario.end = Time((end * 1e9) as u64);
        seen(&scenario, &*policy, warm)
    }
}

/// Instructions between paddings (Figure 5.12).
const PADDED_EVERY: f64 = 5.0;
/// Nops that a core of these generations completes per cycle.
const NOPS_PER_CYCLE: f64 = 4.0;

/// Naps inserted by a compiler: after a fixed time in marked code.
struct Inserted {
    run: Duration,
    nap: Duration,
    /// Whether each part of the program is marked, and its instructions; all of it if there are none.
    marked: Vec<bool>,
    part: f64,
}

impl Inserted {
    const fn everywhere(run: Duration, nap: Duration) -> Self {
        Self { run, nap, marked: Vec::new(), part: f64::INFINITY }
    }
}

impl Policy for Inserted {
    const SECTION: &'static str = "inserted-naps";
    /// Instructions executed by the program.
    type State = f64;
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "inserted-naps"
    }

    fn decide(&self, _: &Ctx<'_>, view: &View, _: &[ActionOutcome], done: f64, now: Time) -> Decision<f64> {
        let low = view.tasks.iter().filter(|task| task.info.app == AppId(1));
        let executed = low.map(|task| task.per_s(Signal::Instructions).unwrap_or(0.0) * view.interval.as_secs_f64());
        let done = done + executed.sum::<f64>();
        let part = (done / self.part) as usize % self.marked.len().max(1);
        if self.marked.get(part) == Some(&false) {
            return Decision::new(Vec::new(), done, now + self.run, Vec::new());
        }
        let action = Action::Nap { app: AppId(1), until: now + self.nap };
        let what = format!("a nap of {:?} behind {:?} of running, as the compiler inserts them", self.nap, self.run);
        let nap = Proposal { action, reason: Reason { what: what.into(), ..Reason::new("inserted", "") } };
        let proposals = if self.nap.is_zero() { Vec::new() } else { vec![nap] };
        Decision::new(proposals, done, now + self.nap + self.run, Vec::new())
    }
}

/// Results of a run under a policy from this time, seconds; it is cut off at its end.
fn seen(scenario: &Scenario, policy: &dyn DynPolicy, from: f64) -> anyhow::Result<PairRates> {
    let mut seen = PairRates::default();
    let threads = scenario.apps.get(1).map_or(1, |app| app.threads) as f64;
    let seconds = watched(scenario, policy, 1, from, |view, interval| {
        for task in &view.tasks {
            let events = |signal| task.per_s(signal).unwrap_or(0.0) * interval;
            if task.info.app == AppId(0) {
                seen.high += events(Signal::Instructions);
            } else {
                seen.low += events(Signal::Instructions);
                seen.duty += events(Signal::CpuTime) / 1e9 / threads;
            }
        }
    })?;
    Ok(PairRates { high: seen.high / seconds, low: seen.low / seconds, duty: seen.duty / seconds })
}

/// A run relative to its programs alone.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Speed of the high-priority program over its speed alone: its quality of service.
    quality: f64,
    /// Speed of the other one over that alone.
    rate: f64,
    /// Fraction of time in which the other one ran: its utilisation.
    duty: f64,
}

/// Runs all of these, and each program alone on these CPUs.
fn all(lab: &Lab, what: &str, runs: &[Run]) -> anyhow::Result<Vec<Kept>> {
    let mut solo: BTreeMap<String, Run> = BTreeMap::new();
    let lone = |run: &Run, program: &str, cpus: &Vec<usize>| {
        let one = Run { high: program.to_owned(), cpus: [cpus.clone(), Vec::new()], ..run.alone() };
        (format!("{one:?}"), one)
    };
    for run in runs {
        solo.extend([lone(run, &run.high, &run.cpus[0])]);
        solo.extend(run.low.iter().map(|low| lone(run, low, &run.cpus[1])));
    }
    let keys: Vec<&String> = solo.keys().collect();
    let jobs: Vec<&Run> = solo.values().chain(runs).collect();
    let done = lab.parallel(what, &jobs, |run| run.seen(lab))?;
    let (alone, together) = done.split_at(keys.len());
    let alone: BTreeMap<&String, f64> = keys.into_iter().zip(alone.iter().map(|seen| seen.high)).collect();
    let kept = |(run, seen): (&Run, &PairRates)| {
        let of = |program: &str, cpus: &Vec<usize>| alone[&lone(run, program, cpus).0];
        let rate = run.low.as_ref().map_or(0.0, |low| seen.low / of(low, &run.cpus[1]));
        Kept { quality: seen.high / of(&run.high, &run.cpus[0]), rate, duty: seen.duty }
    };
    Ok(runs.iter().zip(together).map(kept).collect())
}

/// SPEC CPU2006 as in `workloads/`; a part of it with less effort.
fn spec(lab: &Lab) -> Vec<String> {
    let names = embedded().keys().filter(|name| name.ends_with("06")).cloned();
    names.step_by(if lab.effort.every > 1 { 10 } else { 1 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::profile::MachineProfile;
    use cotenant_model::testing::machine;

    /// Holds sim/reproduce.
    #[test]
    fn inserted_naps_say_what_they_are() {
        let (topology, machine, apps) = (machine(1, 1, 2, 1), MachineProfile::default(), BTreeMap::new());
        let config = Config::default();
        let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
        let decide = |nap| {
            let inserted = Inserted::everywhere(Duration::from_millis(10), Duration::from_millis(nap));
            Policy::decide(&inserted, &ctx, &View::default(), &[], 0.0, Time::from_millis(100))
        };
        let nap = decide(20);
        assert_eq!(nap.wake_at, Time::from_millis(130));
        let [Proposal { action, reason }] = &nap.proposals[..] else { panic!("{nap:?}") };
        assert_eq!(*action, Action::Nap { app: AppId(1), until: Time::from_millis(120) });
        assert_eq!(reason.to_string(), "inserted: a nap of 20ms behind 10ms of running, as the compiler inserts them");
        assert_eq!(decide(0).proposals, []);

        // Three parts of 1,000 instructions, the second one marked, repeated.
        let ms = Duration::from_millis;
        let marked = Inserted { marked: vec![false, true, false], part: 1e3, ..Inserted::everywhere(ms(10), ms(20)) };
        let at = |done| Policy::decide(&marked, &ctx, &View::default(), &[], done, Time::from_millis(100));
        let naps = |done| (at(done).proposals.len(), at(done).wake_at);
        assert_eq!([999.0, 2e3, 6e3 - 1.0].map(naps), [(0, Time::from_millis(110)); 3]);
        assert_eq!([1e3, 1999.0, 4e3].map(naps), [(1, Time::from_millis(130)); 3]);
    }
}
