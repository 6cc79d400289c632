//! Changed assumptions of `machines/` and `workloads/`.

use Assumption::{Anew, Contexts, Lines, Loading, OneChannel, Phases, Transfers};
use cotenant_sim::app::{Pages, Phase, Program};
use cotenant_sim::scenario::Scenario;
use std::sync::Arc;

/// A changed assumption of `machines/` or `workloads/`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assumption {
    /// Graph programs compute in every second phase and share twice as much in the others: "phased execution", §4.2,
    /// without a length. Seconds of work alone.
    Phases(f64),
    /// One thread of a program loads all data.
    Loading,
    /// Coherence events of graph and PARSEC programs are on this many lines.
    Lines(f64),
    /// Graph programs create new threads after this many seconds of work, and Linux places them: "dynamic task
    /// creation", "the burst of task creation triggers load balancing", §4.2.
    Anew(f64),
    /// A line from the other socket takes this many times as long.
    Transfers(f64),
    /// Each socket has one of four memory channels.
    OneChannel,
    /// Speed of a core's context beside a busy one.
    Contexts(f64),
}

/// The programs of `GraphChi` and `GraphLab` in Table 1.
const GRAPH: [&str; 9] = ["sgd", "bsgd", "svd", "lsgd", "rbm", "als", "pmf", "als-small", "tunkrank"];
/// Programs whose sources load data with one thread.
const LOADED: [&str; 7] = ["sgd", "bsgd", "lsgd", "als", "pmf", "als-small", "canneal"];

impl Assumption {
    /// Applies it to a scenario with runs of this many seconds.
    pub fn hold(self, scenario: &mut Scenario, work_s: f64) {
        let machine = Arc::make_mut(&mut scenario.sim);
        match self {
            Transfers(times) => machine.coherence_s[2] *= times,
            OneChannel => {
                let nodes = machine.nodes();
                for node in &mut machine.stations[..nodes] {
                    (node.low, node.high) = (node.low / 4.0, node.high / 4.0);
                }
            }
            Contexts(smt) => machine.smt = smt,
            Phases(_) | Loading | Lines(_) | Anew(_) => {
                for app in &mut scenario.apps {
                    let name = app.name.split('#').next().unwrap_or_default();
                    if self.programs().contains(&name) {
                        self.change(Arc::make_mut(&mut app.program), app.instructions / work_s);
                    }
                }
            }
        }
        scenario.machine.profile.thresholds = scenario.sim.thresholds();
    }

    /// The affected programs.
    fn programs(self) -> Vec<&'static str> {
        match self {
            Phases(_) | Anew(_) => GRAPH.to_vec(),
            Loading => LOADED.to_vec(),
            _ => [&GRAPH[..], &["canneal", "bodytrack"]].concat(),
        }
    }

    /// The same for a program with this many instructions per second alone.
    fn change(self, program: &mut Program, per_s: f64) {
        match self {
            Loading => program.pages = Pages::FirstThread,
            Anew(seconds) => program.threads_anew = Some(seconds * per_s),
            Lines(lines) => program.contended_lines = Some(lines),
            Phases(seconds) => {
                let length = |p: &Phase| p.instructions.unwrap_or(1.0);
                let all: f64 = program.phases.iter().map(length).sum();
                let shared = program.phases.iter().map(|p| p.coherence_pki * length(p)).sum::<f64>() / all;
                let phase = |coherence_pki: f64| Phase {
                    instructions: Some(seconds * per_s),
                    coherence_pki,
                    ..program.phases[0].clone()
                };
                program.phases = vec![phase(2.0 * shared), phase(0.0)];
            }
            Transfers(_) | OneChannel | Contexts(_) => {}
        }
    }
}
