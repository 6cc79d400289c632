//! Several policies at once: each decides about its own tasks, and its other orders are reported as denied.

use cotenant_model::action::{Effect, Proposal, Reason};
use cotenant_model::host::{Host, HostError, Mode, Wake, drive_all};
use cotenant_model::policy::{Ctx, DynPolicy, Needs, NoSettings, Policy, State};
use cotenant_model::rule::owner;
use cotenant_model::{
    Action, ActionOutcome, AppId, CpuId, CpuSet, Decision, Order, Outcome, Owns, Rule, Sample, TaskId, Time, Topology,
    View,
};
use cotenant_record::replay::replay;
use cotenant_record::testing::{Gather, Role, Scripted, header};
use cotenant_record::{Header, RecordWriter, RecordedRound, RecordedRule, Recording};
use std::collections::BTreeMap;
use std::time::Duration;

/// Samples fully or glances at an interval, and each time orders a nap of app 1 and every visible task onto CPU 15.
struct Napper(Duration, bool);

impl Policy for Napper {
    const SECTION: &'static str = "napper";
    /// Number of decisions, and the denied orders.
    type State = (u32, Vec<Action>);
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "napper"
    }

    fn needs(&self) -> Needs {
        Needs { glances: self.1, ..Needs::default() }
    }

    fn decide(
        &self,
        _: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        (rounds, mut denied): Self::State,
        now: Time,
    ) -> Decision<Self::State> {
        denied.extend(outcomes.iter().filter(|o| o.outcome == Outcome::Denied).map(|o| o.action.clone()));
        let nap = Action::Nap { app: AppId(1), until: now + self.0 / 2 };
        let place = |task| Action::Place { task, contexts: CpuSet::single(CpuId(15)) };
        let actions = std::iter::once(nap).chain(view.tasks.iter().map(|t| place(t.info.id)));
        let proposals = actions.map(|action| Proposal { action, reason: Reason::new("napper", "a test") }).collect();
        Decision::new(proposals, (rounds + 1, denied), now + self.0, Vec::new())
    }
}

/// Tasks 0-2 of app 0 share data, one of them on package 0; task 3 is of app 1.
fn host() -> Scripted {
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    Scripted::new(&[sharer(0), sharer(10), sharer(11), Role::new(1, 12)], 12)
}

fn owns(apps: Option<&[&str]>, effects: &[Effect]) -> Owns {
    let apps = apps.map(|apps| apps.iter().map(|&app| app.to_owned()).collect());
    Owns { apps, effects: Some(effects.iter().copied().collect()) }
}

fn rules<'a>(gather: &'a Gather, napper: &'a Napper, ctx: Ctx<'a>) -> [Rule<'a>; 2] {
    [
        Rule { policy: gather, ctx, owns: owns(None, &[Effect::Placement]) },
        Rule { policy: napper, ctx, owns: owns(Some(&["program1"]), &[Effect::Nap, Effect::Placement]) },
    ]
}

#[test]
fn each_decides_when_it_is_due_about_what_it_owns() {
    let header = header("gather", Mode::Enforce);
    let (gather, napper) = (Gather, Napper(Duration::from_millis(300), false));
    let (mut times, mut naps, mut last) = (BTreeMap::<usize, Vec<u64>>::new(), 0, State::default());
    drive_all(&mut host(), &rules(&gather, &napper, header.ctx()), Mode::Enforce, |round| {
        times.entry(round.rule).or_default().push(round.sample.at.0 / 1_000_000);
        let decision = round.decision.unwrap();
        for order in round.orders {
            match (&order.action, round.rule) {
                (Action::Place { task, .. }, 0) => assert!(task.0 < 3),
                (Action::Nap { .. }, 1) => naps += 1,
                other => panic!("{other:?}"),
            }
        }
        if round.rule == 1 {
            // It sees its own application only: the others are foreign load.
            assert_eq!(round.view.tasks.iter().map(|t| t.info.id.0).collect::<Vec<_>>(), [3]);
            assert!(round.view.cpu(CpuId(0)).is_some_and(|cpu| cpu.foreign > 0.9));
            assert_eq!(round.view.interval, Duration::from_millis(if times[&1].len() == 1 { 100 } else { 300 }));
            last = decision.state.clone();
        } else {
            assert_eq!((round.view.tasks.len(), round.view.interval), (4, Duration::from_millis(100)));
        }
    })
    .unwrap();
    assert_eq!(times[&0], (1..=12).map(|i| i * 100).collect::<Vec<_>>());
    assert_eq!((&times[&1], naps), (&vec![100, 400, 700, 1_000], 4));
    // The first rule owns the placement of app 1.
    let (rounds, denied) = last.take::<Napper>().unwrap();
    let place = Action::Place { task: TaskId(3), contexts: CpuSet::single(CpuId(15)) };
    assert_eq!((rounds, denied), (4, vec![place; 3]));
}

/// The one wants to wake amid each tick and wakes at its end, when the other is due.
#[test]
fn a_late_wake_serves_all_whose_time_has_come() {
    let header = header("gather", Mode::Enforce);
    let (gather, napper) = (Gather, Napper(Duration::from_millis(50), false));
    let mut times = [Vec::new(), Vec::new()];
    drive_all(&mut host(), &rules(&gather, &napper, header.ctx()), Mode::Enforce, |round| {
        times[round.rule].push(round.sample.at.0 / 1_000_000);
    })
    .unwrap();
    let each = (1..=12).map(|tick| tick * 100).collect::<Vec<u64>>();
    assert_eq!(times, [each.clone(), each]);
}

/// Waits until the requested moment, at most a second.
struct Punctual(Scripted, Time);

impl Host for Punctual {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        Ok(Sample { at: self.1, ..self.0.sample()? })
    }

    fn glance(&mut self, last: &Sample, _: bool) -> Option<Sample> {
        (self.1.0 < 400_000_000).then(|| Sample { at: self.1, ..last.clone() })
    }

    fn watch(&mut self, until: Time) {
        self.0.watch(until);
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        self.0.apply(orders)
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.1 = until;
        if until.0 > 1_000_000_000 { Wake::Exit } else { Wake::Tick }
    }
}

/// The one wants to look every 100 ms, the other every 130 or every 160; looks that are more than 50 ms apart stay so.
#[test]
fn one_look_serves_who_is_due_soon() {
    let header = header("gather", Mode::Enforce);
    for (wants, looks) in [(130, vec![100, 200, 300, 400]), (160, vec![100, 200, 260, 360])] {
        let (gather, napper) = (Gather, Napper(Duration::from_millis(wants), false));
        let mut times = Vec::new();
        let mut host = Punctual(host(), Time(0));
        drive_all(&mut host, &rules(&gather, &napper, header.ctx()), Mode::Enforce, |round| {
            times.push(round.sample.at.0 / 1_000_000);
        })
        .unwrap();
        times.dedup();
        times.retain(|at| *at <= 400);
        assert_eq!(times, looks, "{wants} ms");
    }
}

/// The one is content with glances every 30 ms, as long as the host has any; the other looks every 100 ms, and never
/// decides by a glance.
#[test]
fn who_is_content_with_a_glance_makes_nobody_look() {
    let header = header("gather", Mode::Enforce);
    let (gather, napper) = (Gather, Napper(Duration::from_millis(30), true));
    let mut times = [Vec::new(), Vec::new()];
    let (mut host, mut before) = (Punctual(host(), Time(0)), None);
    drive_all(&mut host, &rules(&gather, &napper, header.ctx()), Mode::Enforce, |round| {
        times[round.rule].push((round.sample.at.0 / 1_000_000, round.whole));
        let tasks = (round.sample.tasks.clone(), round.sample.cpus.clone());
        assert!(round.whole || before.as_ref().is_none_or(|before| *before == tasks));
        before = Some(tasks);
    })
    .unwrap();
    let [looks, glances] = times;
    assert!(looks.iter().all(|(_, whole)| *whole));
    assert_eq!(looks.iter().map(|(at, _)| *at).take(4).collect::<Vec<_>>(), [100, 200, 300, 400]);
    let whole = |at: &[u64]| at.iter().map(|&at| (at, at % 100 == 0)).collect::<Vec<_>>();
    assert_eq!(glances[..8], whole(&[100, 130, 160, 190, 200, 230, 260, 290]));
    assert!(glances.iter().filter(|(at, _)| *at > 400).all(|(_, whole)| *whole), "{glances:?}");
}

#[test]
fn a_recording_of_several_rules_replays() {
    let mut header = header("gather", Mode::Enforce);
    let (gather, napper) = (Gather, Napper(Duration::from_millis(300), false));
    let config = header.config.clone();
    let recorded = |(policy, rule): (&str, &Rule<'_>)| RecordedRule {
        policy: policy.to_owned(),
        owns: rule.owns.clone(),
        config: config.clone(),
    };
    let both = rules(&gather, &napper, header.ctx());
    let recorded = ["gather", "napper"].into_iter().zip(&both).map(recorded).collect();
    header.rules = recorded;
    let mut writer = RecordWriter::new(Vec::new(), &header, u64::MAX).unwrap();
    let anonymous = Header { redacted: true, ..header.clone() };
    let mut redacted = RecordWriter::new(Vec::new(), &anonymous, u64::MAX).unwrap();
    let mut seen = Vec::new();
    let both = rules(&gather, &napper, header.ctx());
    drive_all(&mut host(), &both, Mode::Enforce, |round| {
        writer.round(round).unwrap();
        redacted.round(round).unwrap();
        seen.push((round.rule, round.prev.clone(), round.decision.cloned()));
    })
    .unwrap();
    let recording = Recording::read(&*writer.finish().unwrap()).unwrap().collect::<Vec<RecordedRound>>();
    let read: Vec<_> = recording.iter().map(|r| (r.rule, (*r.prev).clone(), r.decision.clone())).collect();
    assert_eq!(read, seen);
    let redacted = redacted.finish().unwrap();
    let names: Vec<&str> = header.rules.iter().map(|rule| rule.policy.as_str()).collect();
    let again: Vec<_> = replay(recording, &names, both.to_vec()).collect();
    assert_eq!(again.len(), 16);
    for round in again {
        assert!(round.agrees());
        assert_eq!(Some(&round.decision), round.round.decision.as_ref());
    }
    // Rules still own the same applications in a redacted recording.
    let recording = Recording::read(&*redacted).unwrap();
    let owned: Vec<Owns> = recording.header().rules.iter().map(|rule| rule.owns.clone()).collect();
    assert_ne!(owned[1], header.rules[1].owns);
    let rules = both.iter().zip(owned).map(|(rule, owns)| Rule { owns, ..rule.clone() }).collect();
    assert!(replay(recording, &names, rules).all(|round| round.agrees()));
}

#[test]
fn the_first_rule_that_owns_decides() {
    let header = header("gather", Mode::Enforce);
    let (gather, napper) = (Gather, Napper(Duration::from_millis(300), false));
    let rules = rules(&gather, &napper, header.ctx());
    let sample = cotenant_model::Host::sample(&mut host()).unwrap();
    let place = |task| Action::Place { task: TaskId(task), contexts: CpuSet::single(CpuId(1)) };
    let nap = |app| Action::Nap { app: AppId(app), until: Time(0) };
    assert_eq!([place(0), place(3), place(9)].map(|a| owner(&rules, &sample, &a)), [Some(0), Some(0), None]);
    assert_eq!([nap(1), nap(0), nap(7)].map(|a| owner(&rules, &sample, &a)), [Some(1), None, None]);
    assert_eq!(owner(&rules, &sample, &Action::Limit { app: AppId(1), cpu_permille: None }), None);
    let alone: [Rule<'_>; 1] = [Rule::all(&gather as &dyn DynPolicy, &header.ctx())];
    assert_eq!(owner(&alone, &sample, &nap(1)), Some(0));
}
