//! Interference with known truth: simulated speeds of programs alone and beside each other.

use super::scenario;
use crate::scenario::Scenario;
use cotenant_model::Decision;
use cotenant_model::action::{Action, Proposal, Reason};
use cotenant_model::interference::Interference;
use cotenant_model::policy::{Ctx, NoSettings, Policy};
use cotenant_model::speed::Source;
use cotenant_model::{ActionOutcome, AppId, Time, View};
use cotenant_policies::{Shapes, ShapesSettings};

/// Runs and pauses the second program alternately for 2 s.
#[derive(Debug)]
struct Turns;

impl Policy for Turns {
    const SECTION: &'static str = "turns";
    type State = u64;
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "turns"
    }

    fn decide(&self, ctx: &Ctx<'_>, view: &View, _: &[ActionOutcome], before: u64, now: Time) -> Decision<u64> {
        let turn = now.0 / 2_000_000_000;
        let tasks = view.tasks.iter().filter(|task| task.info.app == AppId(1) && turn != before);
        let proposals = tasks.map(|task| {
            let task = task.info.id;
            let action = if turn % 2 == 1 { Action::Pause { task } } else { Action::Release { task } };
            Proposal { action, reason: Reason::new("turns", "wait or go on") }
        });
        Decision::new(proposals.collect(), turn, now + ctx.config.interval, Vec::new())
    }
}

/// Continues with a table. Mean speeds of the first program in rounds with and without the second running.
fn run<P: Policy>(scenario: &Scenario, policy: &P, seed: u64, table: &mut Interference) -> [f64; 2] {
    let mut speeds = [[0.0; 2]; 2];
    let topology = scenario.machine.topology.clone();
    let kernel = "eevdf".parse().unwrap();
    scenario
        .run(policy, kernel, seed, |round| {
            table.watch(&topology, round);
            let within = round.view.at.0 % 2_000_000_000 >= 1_000_000_000;
            if let Some(term) = round.view.app(AppId(0)).and_then(|app| Source::Instructions.term(round.view, app)) {
                let sums = &mut speeds[(round.view.at.0 / 2_000_000_000 % 2) as usize];
                if within {
                    *sums = [sums[0] + term[0], sums[1] + term[1]];
                }
            }
        })
        .unwrap();
    speeds.map(|[sum, weight]| sum / weight)
}

fn pair(victim: &str, aggressor: &str, noise: f64) -> Scenario {
    scenario(&format!(
        "machine = 'ivy-bridge-2s'\nend_s = 600\nobservation = {{ noise = {noise} }}\n\
         [[app]]\nprogram = '{victim}'\nthreads = 2\nwork_s = 30\ncpus = '0-1'\n\
         [[app]]\nprogram = '{aggressor}'\nthreads = 8\nwork_s = 30\ncpus = '2-9'\n"
    ))
}

#[test]
fn the_simulated_loss_lies_in_the_interval() {
    for (victim, aggressor, noise) in
        [("mcf06", "membench", 0.0), ("mcf06", "membench", 0.02), ("mcf06", "gcc06", 0.02)]
    {
        let mut table = Interference::default();
        let [beside, alone] = run(&pair(victim, aggressor, noise), &Turns, 1, &mut table);
        let truth = 1.0 - beside / alone;
        let rows = table.rows();
        let row = rows.iter().find(|row| row.victim == victim).unwrap_or_else(|| panic!("{truth}: {table:?}"));
        eprintln!("noise {noise}: {truth:.4}; {row:?}");
        assert!(truth > 0.05 && row.low <= truth && truth <= row.high, "{truth}: {row:?}");
        assert!(row.high - row.low < 0.1, "{row:?}");
    }
}

/// A program that lives in its private caches takes nothing from one that does, too.
/// Holds run/interference.
#[test]
fn who_takes_nothing_is_not_named() {
    let mut table = Interference::default();
    let [beside, alone] = run(&pair("povray06", "gamess06", 0.02), &Turns, 1, &mut table);
    let truth = 1.0 - beside / alone;
    eprintln!("{truth:.4}, {} experiments", table.events());
    assert!(table.events() > 5 && truth < 0.01);
    assert_eq!(table.rows(), []);
}

/// Nor where trials move it, although these choose by the speeds when it goes back.
/// Holds run/interference.
#[test]
fn who_is_tried_elsewhere_is_not_named_for_that() {
    let scenario = scenario(
        "machine = 'ivy-bridge-2s'\nend_s = 600\nobservation = { noise = 0.05 }\n\
         [[app]]\nprogram = 'povray06'\nthreads = 4\nwork_s = 30\ncpus = '0-9'\n\
         [[app]]\nprogram = 'gamess06'\nthreads = 4\nwork_s = 30\n",
    );
    let shapes = Shapes::new(ShapesSettings::default());
    let mut table = Interference::default();
    for seed in 1..=40 {
        run(&scenario, &shapes, seed, &mut table);
        assert_eq!(table.rows(), [], "seed {seed}");
    }
    eprintln!("{} experiments", table.events());
    assert!(table.events() > 100);
}
