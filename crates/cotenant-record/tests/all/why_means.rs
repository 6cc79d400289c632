//! `why` about naps, limits and pauses: what is in force at a moment, and why.

use cotenant_model::Decision;
use cotenant_model::action::{Action, ActionOutcome, Order, Outcome, Proposal, Reason};
use cotenant_model::host::{Host, HostError, Mode, Wake};
use cotenant_model::policy::{Ctx, NoSettings, Policy};
use cotenant_model::speed::Source;
use cotenant_model::{AppId, Count, CpuId, CpuSet, Sample, Signal, TaskId, Time, Topology, View};
use cotenant_policies::qos::controller::Controller;
use cotenant_policies::{High, QosConfig};
use cotenant_record::testing::{Role, Scripted, header, record};
use cotenant_record::why::{Answer, Force, why};
use cotenant_record::{Header, Recording};
use std::time::Duration;

const HIGH: AppId = AppId(0);
const LOW: AppId = AppId(1);

/// Two low-priority threads beside a high-priority one, and an unrelated third program. The machine carries out every
/// order except one cache limit.
struct Obedient(Scripted);

/// The refused limit.
const REFUSED: u32 = 100;

impl Host for Obedient {
    fn topology(&self) -> &Topology {
        self.0.topology()
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let mut sample = self.0.sample()?;
        // For a fifth of the time the high-priority thread waits for a CPU.
        sample.tasks[0].counters.set(Signal::RunQueueWait, Count::exact(sample.at.0 / 5));
        Ok(sample)
    }

    fn watch(&mut self, until: Time) {
        self.0.watch(until);
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let one = |order: &Order| match order.action {
            Action::LimitCaches { permille: Some(REFUSED), .. } => Outcome::Denied,
            Action::Nap { .. } | Action::Limit { .. } | Action::LimitCaches { .. } => Outcome::Applied,
            _ => self.0.apply(std::slice::from_ref(order))[0],
        };
        orders.iter().map(one).collect()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.0.wait(until)
    }
}

/// Scripted orders, by tenths of a second.
struct Orders(fn(u64) -> Vec<(Action, &'static str)>);

impl Policy for Orders {
    const SECTION: &'static str = "orders";
    type State = ();
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "qos"
    }

    fn decide(&self, ctx: &Ctx<'_>, _: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        let propose = |(action, what): (Action, &'static str)| Proposal {
            action,
            reason: Reason { app: Some(HIGH), ..Reason::new("controller", what) },
        };
        let proposals = (self.0)(now.0 / 100_000_000).into_iter().map(propose).collect();
        Decision::new(proposals, (), now + ctx.config.interval, Vec::new())
    }
}

fn script(tenth: u64) -> Vec<(Action, &'static str)> {
    let nap = |ms| Action::Nap { app: LOW, until: Time::from_millis(ms) };
    let limit = |cpu_permille| Action::Limit { app: LOW, cpu_permille };
    let caches = |permille| Action::LimitCaches { app: LOW, permille };
    match tenth {
        1 => vec![(nap(150), "looks for contention")],
        2 => vec![(nap(250), "{app} lost 10.0 % of its speed alone ≥ 4.0 %; contention")],
        3 => vec![
            (nap(550), "{app} lost 20.0 % of its speed alone ≥ 4.0 %; contention"),
            (limit(Some(500)), "{app} kept 80.0 % of its speed alone < 90.0 %; below the goal"),
        ],
        4 => vec![
            (caches(Some(250)), "below the goal"),
            (Action::Place { task: TaskId(1), contexts: CpuSet::single(CpuId(12)) }, "away from {app}"),
        ],
        6 => vec![(limit(None), "no contention"), (Action::Pause { task: TaskId(2) }, "its turn is over")],
        7 => vec![(caches(Some(REFUSED)), "below the goal")],
        9 => vec![(Action::Release { task: TaskId(2) }, "its turn comes")],
        _ => Vec::new(),
    }
}

/// A recording of 1 s.
fn recording(mode: Mode, roles: [Role; 4]) -> Vec<u8> {
    let mut header = header("qos", mode);
    let qos = Some(QosConfig {
        controller: Controller::preset("conservative-90", 0.9).unwrap(),
        high: vec![High { app: HIGH, metric: Source::Progress, goal: None }],
        low: vec![LOW],
        place: true,
        limits: None,
        climb: false,
        settle: Duration::ZERO,
        patience: Duration::ZERO,
        silence: Duration::ZERO,
    });
    header.config.settings.put("qos", &qos);
    record(&header, &mut Obedient(Scripted::new(&roles, 10)), &Orders(script))
}

fn roles() -> [Role; 4] {
    [Role::new(0, 0), Role::new(1, 10), Role::new(1, 11), Role::new(2, 1)]
}

fn ask(bytes: &[u8], what: &str, at: Option<u64>) -> Answer {
    let mut recording = Recording::read(bytes).unwrap();
    let header: Header = recording.header().clone();
    why(&header, recording.by_ref(), &what.parse().unwrap(), at.map(Time::from_millis))
}

/// Orders in force, in short: subject, effect and state.
fn standing(answer: &Answer) -> Vec<(String, Force)> {
    let short = |text: String| text.split_once("; ").unwrap().0.to_owned();
    answer.standing.iter().map(|standing| (short(standing.told.what.to_string()), standing.force)).collect()
}

/// Holds see/waits, record/why.
#[test]
fn the_last_order_by_each_means_is_told_with_what_became_of_it() {
    let bytes = recording(Mode::Enforce, roles());
    // At 0.5 s: a nap in progress, and both limits.
    let expected = "\
0.300 s  app 1 (program1) → naps for 250 ms; controller: program0 lost 20.0 % of its speed alone ≥ 4.0 %; contention
         applied; in force at 0.500 s; 3 naps by 3 orders since 0.100 s
         instructions/cycle   1.000 1.000 1.000 │ 1.000 1.000 1.000
         progress/s           100.000 100.000 100.000 │ 100.000 100.000 100.000
         instructions/cycle of program0 1.000 1.000 1.000 │ 1.000 1.000 1.000
         waiting threads of program0 0.200 0.200 0.200 │ 0.200 0.200 0.200
         progress/s of program0 100.000 100.000 100.000 │ 100.000 100.000 100.000
0.300 s  app 1 (program1) → at most 0.500 CPUs; controller: program0 kept 80.0 % of its speed alone < 90.0 %; below the goal
         applied; in force at 0.500 s
         instructions/cycle   1.000 1.000 1.000 │ 1.000 1.000 1.000
         progress/s           100.000 100.000 100.000 │ 100.000 100.000 100.000
         instructions/cycle of program0 1.000 1.000 1.000 │ 1.000 1.000 1.000
         waiting threads of program0 0.200 0.200 0.200 │ 0.200 0.200 0.200
         progress/s of program0 100.000 100.000 100.000 │ 100.000 100.000 100.000
0.400 s  app 1 (program1) → at most 25.0 % of cache ways and memory bandwidth; controller: below the goal
         applied; in force at 0.500 s
";
    let text = ask(&bytes, "app:1", Some(500)).to_string();
    assert!(text.starts_with(expected), "{text}");
    // By any name: its own, that of one of its threads, or that of the program that benefits.
    for what in ["program1", "worker2", "tid:1001", "program0", "app:0"] {
        let app = |standing: &(String, Force)| standing.0.starts_with("app ");
        let told: Vec<_> = standing(&ask(&bytes, what, Some(500))).into_iter().filter(app).collect();
        assert_eq!(told.len(), 3, "{what}: {told:?}");
    }
    assert_eq!(ask(&bytes, "program2", Some(500)).standing, [], "nothing of this concerns it");
}

/// Holds record/why.
#[test]
fn a_moment_is_what_held_then() {
    use Force::{InForce, NotApplied, Over, Withdrawn};
    let bytes = recording(Mode::Enforce, roles());
    let at = |ms| standing(&ask(&bytes, "program1", Some(ms)));
    let app = |what: &str, force| (format!("app 1 (program1) → {what}"), force);
    let task = |what: &str, force| (format!("task {what}"), force);
    assert_eq!(at(50), []);
    assert_eq!(at(140), [app("naps for 50 ms", InForce)]);
    assert_eq!(at(150), [app("naps for 50 ms", Over)], "nobody had to end it");
    let caches = "at most 25.0 % of cache ways and memory bandwidth";
    let expected = [
        app("naps for 250 ms", Over),
        app("at most 0.500 CPUs", Withdrawn),
        app("no limit of CPU time", InForce),
        app(caches, InForce),
        app("at most 10.0 % of cache ways and memory bandwidth", NotApplied),
        task("1 (worker1, tid 1001): CPU 10 → 12, may use 10-19,30-39", InForce),
        task("2 (worker2, tid 1002): CPU 11 → waits", InForce),
    ];
    assert_eq!(at(800), expected, "a limit that is refused leaves the one before in force");
    let end = at(1_000);
    let back = [
        task("2 (worker2, tid 1002): CPU 11 → waits", Withdrawn),
        task("2 (worker2, tid 1002): CPU 11 → its own mask", InForce),
    ];
    assert_eq!((&end[..6], &end[6..]), (&expected[..6], &back[..]));
    assert_eq!(at(60_000), end, "the end is the last that is known");
}

/// Holds record/why.
#[test]
fn without_a_moment_moves_are_all_told_and_the_rest_as_it_is_at_the_end() {
    let bytes = recording(Mode::Enforce, roles());
    let answer = ask(&bytes, "program1", None);
    let moves: Vec<_> = answer.moves.iter().map(|told| (told.at_s, told.what.task)).collect();
    let (one, two) = (Some(TaskId(1)), Some(TaskId(2)));
    assert_eq!(moves, [(0.4, one), (0.6, two), (0.9, two)]);
    assert_eq!(standing(&answer), standing(&ask(&bytes, "program1", Some(1_000)))[..5]);
    // A high-priority program is not moved, and the answer gives the reason.
    let answer = ask(&bytes, "worker0", None);
    assert_eq!(answer.unmoved[0].verdict, "its speed is kept; what is done for that is done to others");
    assert!(ask(&bytes, "worker3", None).unmoved[0].verdict.contains("neither high nor low"), "program2");
    // All orders at a time, about any subject.
    let answer = ask(&bytes, "0.3s..0.4s", None);
    let told: Vec<_> = answer.moves.iter().map(|told| told.what.to()).collect();
    let caches = "at most 25.0 % of cache ways and memory bandwidth";
    assert_eq!(
        (told, answer.standing),
        (["naps for 250 ms", "at most 0.500 CPUs", caches, "12"].map(str::to_owned).to_vec(), vec![])
    );
    let text = ask(&bytes, "0.5s", None).to_string();
    assert_eq!(text, "Nothing was ordered from 0.450 to 0.550 s; the nearest orders were at 0.400 and 0.600 s.\n");
}

#[test]
fn what_was_only_advised_or_concerns_who_is_gone_is_not_in_force() {
    let forces = |bytes: &[u8]| -> Vec<Force> {
        standing(&ask(bytes, "app:1", None)).into_iter().map(|(_, force)| force).collect()
    };
    let advised = recording(Mode::Advise, roles());
    assert_eq!(forces(&advised), [Force::NotApplied; 3]);
    assert!(ask(&advised, "app:1", None).to_string().contains("advised only, not applied; not in force at 1.000 s"));
    // Both threads end at 0.6 s.
    let [high, one, two, other] = roles();
    let ended = recording(Mode::Enforce, [high, Role { until: 6, ..one }, Role { until: 6, ..two }, other]);
    let at = |ms| standing(&ask(&ended, "app:1", Some(ms)));
    assert_eq!(at(500).iter().map(|(_, force)| *force).collect::<Vec<_>>(), [Force::InForce; 4]);
    assert!(at(900).iter().all(|(_, force)| *force != Force::InForce), "{:?}", at(900));
}

#[test]
fn json_has_the_parts() {
    let json = serde_json::to_value(ask(&recording(Mode::Enforce, roles()), "app:1", Some(500))).unwrap();
    let [nap, limit] = [0, 1].map(|i| &json["standing"][i]);
    assert_eq!((&json["moment_s"], &nap["means"], &nap["until_s"]), (&0.5.into(), &"nap".into(), &0.55.into()));
    assert_eq!((&nap["force"], &nap["orders"], &nap["first_s"]), (&"in_force".into(), &3.into(), &0.1.into()));
    assert_eq!(
        (&limit["means"], &limit["permille"], &limit["task"]),
        (&"cpu_time".into(), &500.into(), &serde_json::Value::Null)
    );
    assert_eq!((&nap["reason"]["stage"], &nap["outcome"]), (&"controller".into(), &"applied".into()));
    let of: Vec<_> =
        nap["trends"].as_array().unwrap().iter().map(|trend| trend.get("of").and_then(|of| of.as_str())).collect();
    assert_eq!(of, [None, None, Some("program0"), Some("program0"), Some("program0")]);
}
