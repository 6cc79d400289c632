//! `atom` on the machines of its dissertation.

use super::scenario;
use crate::scenario::Scenario;
use cotenant_model::Decision;
use cotenant_model::action::ActionOutcome;
use cotenant_model::policy::{Ctx, DynPolicy, NoSettings, Policy};
use cotenant_model::signal::Signal;
use cotenant_model::topology::symmetry::{Enumeration, FREE, Labels, Tenant};
use cotenant_model::{Time, View};
use cotenant_policies::Atom;

/// Moves nothing.
struct Idle;

impl Policy for Idle {
    const SECTION: &'static str = "idle";
    type State = ();
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "idle"
    }
    fn decide(&self, ctx: &Ctx<'_>, _: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        Decision::new(Vec::new(), (), now + ctx.config.interval, Vec::new())
    }
}

/// Four threads of a service, alone or beside four of a batch program, endless.
fn load(machine: &str, service: &str, beside: Option<&str>, end_s: u64) -> Scenario {
    let batch = beside
        .map_or(String::new(), |program| format!("[[app]]\nprogram = '{program}'\nthreads = 4\nwork_s = 10000\n"));
    scenario(&format!(
        "machine = '{machine}'\nkernel = 'eevdf+numa-balancing'\nend_s = {end_s}\nobservation = {{ noise = 0.01 }}\npolicy = {{ pin = 'cpu', atom = 'turn=500ms' }}\n\
         [[app]]\nprogram = '{service}'\nthreads = 4\nwork_s = 10000\nlatency_sensitive = true\n{batch}"
    ))
}

/// Instructions per second of the service between two times, seconds; and the policy's notes.
fn speed(s: &Scenario, policy: &dyn DynPolicy, from: f64) -> (f64, Vec<String>) {
    let (mut work, mut seconds, mut notes) = (0.0, 0.0, Vec::new());
    // The scenario is meant to be cut off at its end.
    let cut = s.run(policy, s.kernel, 1, |round| {
        notes.extend(round.decision.iter().flat_map(|d| d.notes.clone()));
        if round.view.at.as_secs_f64() <= from {
            return;
        }
        let interval = round.view.interval.as_secs_f64();
        let service = round.view.tasks.iter().filter(|t| t.info.app.0 == 0);
        work += service.filter_map(|t| t.per_s(Signal::Instructions)).sum::<f64>() * interval;
        seconds += interval;
    });
    assert!(cut.is_err());
    (work / seconds, notes)
}

/// The policy with the settings of a scenario.
fn atom(s: &Scenario) -> Atom {
    Atom(s.config.settings.of::<Atom>().unwrap())
}

/// The speeds of the service in all classes of mappings, balanced or not.
fn classes(machine: &str, service: &str, beside: Option<&str>) -> Vec<f64> {
    let s = load(machine, service, beside, 3);
    let tenants = s.apps.iter().map(|a| Tenant { threads: a.threads, ..Tenant::default() }).collect();
    let enumeration = Enumeration::new(&s.machine.topology, &Labels::default(), tenants, false);
    let one = |mapping: Vec<u32>| {
        let mut s = s.clone();
        for (i, app) in s.apps.iter_mut().enumerate() {
            let own = mapping
                .iter()
                .zip(enumeration.symmetry().cpus())
                .filter(|(slot, _)| **slot != FREE && **slot as usize == i);
            app.pinned = Some(own.map(|(_, cpu)| cpu.index()).collect());
        }
        speed(&s, &Idle, 1.0).0
    };
    enumeration.iter().map(one).collect()
}

/// §4.2.1: within 3 % of the optimum, near the average nowhere. Two whole minutes count, learning included; what
/// learning cost is what the whole lacks to the end. Pages follow threads here, within seconds: where they stay, the
/// best mapping of a run is the one in which it first touched them.
/// Holds place/atom.
#[test]
fn atom_comes_within_three_percent_of_the_optimum() {
    for machine in ["clovertown-2s", "westmere-2s"] {
        for service in ["contentAnalyzer", "webSearch", "bigtable"] {
            for beside in [None, Some("stitcher"), Some("protobuf")] {
                let all = classes(machine, service, beside);
                let best = all.iter().copied().fold(0.0, f64::max);
                let s = load(machine, service, beside, 120);
                let (whole, notes) = speed(&s, &atom(&s), 0.0);
                let (late, _) = speed(&s, &atom(&s), 105.0);
                let text = format!(
                    "{machine}, {service} beside {}: {:.3} of the best of {}, {:.3} when it has learned; {notes:?}",
                    beside.unwrap_or("nobody"),
                    whole / best,
                    all.len(),
                    late / best
                );
                assert!(whole > 0.97 * best && late > 0.99 * best, "{text}");
            }
        }
    }
}
