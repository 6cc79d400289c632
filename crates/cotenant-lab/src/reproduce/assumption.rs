//! What `machines/` and `workloads/` assume, assumed otherwise.

use Assumption::{Anew, Contexts, Lines, Loading, OneChannel, Phases, Transfers};
use cotenant_sim::app::{Pages, Phase, Program};
use cotenant_sim::scenario::Scenario;
use std::sync::Arc;

/// Something that `machines/` or `workloads/` assume, assumed otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assumption {
    /// Graph programs compute in every second phase, and share twice as much in the others: "phased execution", §4.2,
    /// which gives no length. Seconds of work alone.
    Phases(f64),
    /// One thread of a program loads what all work on.
    Loading,
    /// Coherence events of graph and PARSEC programs are on so many lines.
    Lines(f64),
    /// Graph programs create their threads anew each time they have worked so many seconds, and Linux places those:
    /// "dynamic task creation", "the burst of task creation triggers load balancing", §4.2.
    Anew(f64),
    /// A line from the other socket takes so many times as long.
    Transfers(f64),
    /// Each socket has one of four channels of memory.
    OneChannel,
    /// What a core's context is worth beside a busy one.
    Contexts(f64),
}

/// The programs of `GraphChi` and `GraphLab` in Table 1.
const GRAPH: [&str; 9] = ["sgd", "bsgd", "svd", "lsgd", "rbm", "als", "pmf", "als-small", "tunkrank"];
/// Programs whose sources load with one thread.
const LOADED: [&str; 7] = ["sgd", "bsgd", "lsgd", "als", "pmf", "als-small", "canneal"];

impl Assumption {
    /// Makes it so in a scenario of runs of so many seconds.
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

    /// The programs that it is about.
    fn programs(self) -> Vec<&'static str> {
        match self {
            Phases(_) | Anew(_) => GRAPH.to_vec(),
            Loading => LOADED.to_vec(),
            _ => [&GRAPH[..], &["canneal", "bodytrack"]].concat(),
        }
    }

    /// The same in a program that executes so many instructions a second alone.
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
