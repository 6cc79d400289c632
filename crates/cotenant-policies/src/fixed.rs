//! `static`: the mapping drawn by the user, `--map 'X*X*..'`. See `docs/policies/static.md`.

use super::plan::Plan;
use cotenant_model::policy::{Ctx, Needs, Policy, Refusal};
use cotenant_model::topology::notation::{FREE, parse_map};
use cotenant_model::{
    ActionOutcome, AppId, CpuId, CpuSet, Decision, PlaceKind, Reason, TaskId, TaskView, Time, Topology, View,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Static(pub StaticSettings);

/// Settings of `static`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StaticSettings {
    /// The mapping, in the notation `X*X*..`.
    pub map: Option<String>,
}

/// State of `static`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StaticState {
    /// The map of the plan.
    map: Option<String>,
    plan: Plan,
}

/// This application: the first one.
const SELF: char = 'X';
/// All applications without their own letter.
const OTHERS: char = '*';

/// The CPUs of each letter, first contexts of cores before second ones, then in topology order. Only marked contexts
/// count.
type Marks = BTreeMap<char, Vec<CpuId>>;

/// Reads the map of the configuration.
///
/// # Errors
/// The error and its remedy.
fn marks(map: Option<&str>, topology: &Topology) -> Result<Marks, (String, &'static str)> {
    let Some(text) = map else {
        return Err((
            "there is no map".to_owned(),
            "draw one with --map 'X*X*..' or as map in [set.static], one character per CPU in the order of `cotenant topo`",
        ));
    };
    let slots = parse_map(topology, text).map_err(|e| (e.to_string(), "see `cotenant topo` for the order of CPUs"))?;
    let mut marks: BTreeMap<char, Vec<(usize, CpuId)>> = BTreeMap::new();
    let mut used: BTreeMap<(char, Option<usize>), usize> = BTreeMap::new();
    for (cpu, letter) in slots.into_iter().filter(|(_, letter)| *letter != FREE) {
        let rank = used.entry((letter, topology.core_of(cpu))).or_default();
        marks.entry(letter).or_default().push((*rank, cpu));
        *rank += 1;
    }
    if marks.is_empty() {
        return Err(("the map marks no CPU".to_owned(), "put X on the CPUs for this application"));
    }
    let fill = |mut cpus: Vec<(usize, CpuId)>| {
        cpus.sort_by_key(|(rank, _)| *rank); // stable: topology order within a rank
        cpus.into_iter().map(|(_, cpu)| cpu).collect()
    };
    Ok(marks.into_iter().map(|(letter, cpus)| (letter, fill(cpus))).collect())
}

/// The letter of each application: X for the first, other letters in alphabetical order for the next, `*` for the rest.
fn letters(marks: &Marks, apps: &BTreeSet<AppId>) -> BTreeMap<AppId, char> {
    let own = [SELF].into_iter().chain(marks.keys().copied().filter(|c| ![SELF, OTHERS].contains(c)));
    let all = own.chain(std::iter::repeat(OTHERS));
    apps.iter().copied().zip(all).filter(|(_, letter)| marks.contains_key(letter)).collect()
}

/// Whether a [valid](Policy::check) map has fewer CPUs for a letter than its applications have simultaneous threads.
///
/// # Errors
/// The first such letter's CPUs and threads, and the remedy.
pub fn map_has_room(ctx: &Ctx<'_>, threads: &BTreeMap<AppId, usize>) -> Result<(), Refusal> {
    let settings = ctx.config.settings.of::<Static>().unwrap_or_default();
    let marks = marks(settings.map.as_deref(), ctx.topology).unwrap_or_default();
    let mut wanted: BTreeMap<char, usize> = BTreeMap::new();
    for (app, letter) in letters(&marks, &threads.keys().copied().collect()) {
        *wanted.entry(letter).or_default() += threads[&app];
    }
    let short = wanted.into_iter().find(|(letter, threads)| *threads > marks[letter].len());
    short.map_or(Ok(()), |(letter, threads)| {
        let why =
            format!("the mapping has {} CPUs for '{letter}', which stands for {threads} threads", marks[&letter].len());
        Err(Refusal::new("static", why, format!("write '{letter}' for more CPUs, or take fewer threads")))
    })
}

/// One context per task if the marks suffice, otherwise all marks for all: a task on a mark stays, the others take free
/// ones in order of id. Tasks that may not run on any mark are left out.
fn seat(tasks: &[&TaskView], marks: &[CpuId], before: &BTreeMap<TaskId, CpuSet>) -> BTreeMap<TaskId, CpuSet> {
    let all: CpuSet = marks.iter().copied().collect();
    let mut seats = BTreeMap::new();
    let mut free = all.clone();
    let may = |task: &TaskView, cpu: CpuId| task.info.allowed.contains(cpu);
    if tasks.len() <= marks.len() {
        for task in tasks {
            let kept = before.get(&task.info.id).filter(|set| set.len() == 1).and_then(CpuSet::first);
            if let Some(cpu) = kept.filter(|&cpu| may(task, cpu) && free.remove(cpu)) {
                seats.insert(task.info.id, CpuSet::single(cpu));
            }
        }
    } else {
        free = CpuSet::new();
    }
    for task in tasks {
        if seats.contains_key(&task.info.id) {
            continue;
        }
        let own = marks.iter().copied().find(|&cpu| free.contains(cpu) && may(task, cpu));
        let contexts = match own {
            Some(cpu) => {
                free.remove(cpu);
                CpuSet::single(cpu)
            }
            None => all.and(&task.info.allowed),
        };
        if !contexts.is_empty() {
            seats.insert(task.info.id, contexts);
        }
    }
    seats
}

fn layout(
    topology: &Topology,
    view: &View,
    marks: &Marks,
    before: &BTreeMap<TaskId, CpuSet>,
) -> BTreeMap<TaskId, CpuSet> {
    let apps: BTreeSet<AppId> = view.apps.iter().map(|a| a.id).chain(view.tasks.iter().map(|t| t.info.app)).collect();
    let letters = letters(marks, &apps);
    let mut seats = BTreeMap::new();
    for (letter, cpus) in marks {
        let usable: Vec<CpuId> = cpus.iter().copied().filter(|&cpu| topology.usable().contains(cpu)).collect();
        let tasks: Vec<&TaskView> = view.tasks.iter().filter(|t| letters.get(&t.info.app) == Some(letter)).collect();
        seats.extend(seat(&tasks, &usable, before));
    }
    seats
}

impl Policy for Static {
    const SECTION: &'static str = "static";
    type State = StaticState;
    type Settings = StaticSettings;

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        let refused = |(why, remedy): (String, &str)| Refusal::new("static", why, remedy);
        marks(self.0.map.as_deref(), ctx.topology).map(drop).map_err(refused)
    }

    fn needs(&self) -> Needs {
        Needs { task_changes: true, exact: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        state: StaticState,
        now: Time,
    ) -> Decision<StaticState> {
        let StaticState { map, mut plan } = state;
        plan.learn(ctx, view, outcomes, now);
        let mut notes = Vec::new();
        if map != self.0.map || !plan.fits(ctx, view.tasks.iter()) {
            match marks(self.0.map.as_deref(), ctx.topology) {
                Ok(marks) => {
                    let seats = layout(ctx.topology, view, &marks, plan.wanted());
                    plan.set(view.tasks.iter().map(|t| t.info.id).collect(), seats);
                }
                Err((why, remedy)) => {
                    // No placement is known, so the former plan is not applied either.
                    plan = Plan::default();
                    notes.push(format!("no decision: {why}; {remedy}"));
                }
            }
        }
        if notes.is_empty() && plan.wanted().len() < view.tasks.len() {
            notes.push(
                "the map has no CPU for some tasks, or none that they may use; they are left where they are".to_owned(),
            );
        }
        let reason = |id: TaskId| {
            let mut reason = Reason::new("map", "the map marks {place} for {app}");
            reason.app = view.task(id).map(|t| t.info.app);
            reason.place = plan.wanted().get(&id).and_then(CpuSet::first).map(|cpu| (PlaceKind::Cpu, cpu.0));
            if plan.wanted().get(&id).is_some_and(|set| set.len() > 1) {
                reason.what =
                    "{app} shares the CPUs that the map marks for it, from {place} on: it has more tasks than they"
                        .into();
            }
            reason
        };
        let proposals = plan.proposals(now, reason);
        let state = StaticState { map: self.0.map.clone(), plan };
        Decision::new(proposals, state, now + ctx.config.interval, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::action::{Action, Outcome};
    use cotenant_model::policy::{Config, Settings};
    use cotenant_model::profile::MachineProfile;
    use cotenant_model::testing::{ViewBuilder, machine, parts};

    struct Bench {
        topology: Topology,
        machine: MachineProfile,
        config: Config,
    }

    const NO_APPS: &BTreeMap<String, cotenant_model::profile::AppProfile> = &BTreeMap::new();

    impl Bench {
        fn new(topology: Topology, map: &str) -> Self {
            let map = StaticSettings { map: Some(map.to_owned()) };
            let config = Config { settings: Settings::default().with::<Static>(&map), ..Config::default() };
            Self { topology, machine: MachineProfile::default(), config }
        }

        fn policy(&self) -> Static {
            Static(self.config.settings.of::<Static>().unwrap())
        }

        fn ctx(&self) -> Ctx<'_> {
            Ctx { topology: &self.topology, machine: &self.machine, apps: NO_APPS, config: &self.config }
        }

        /// One task on CPU 0 per entry: its id and its app.
        fn view(&self, tasks: &[(u32, u32)]) -> ViewBuilder {
            tasks.iter().fold(ViewBuilder::new(&self.topology), |b, &(id, app)| b.task(id, app, 0))
        }

        fn decide(&self, view: &View, state: StaticState, outcomes: &[ActionOutcome]) -> Decision<StaticState> {
            self.policy().decide(&self.ctx(), view, outcomes, state, view.at)
        }
    }

    /// Holds run/wrong-input.
    #[test]
    fn more_threads_than_cpus_are_told() {
        let bench = Bench::new(machine(2, 1, 2, 1), "XX*A");
        let threads = |n: &[usize]| (0..).map(AppId).zip(n.iter().copied()).collect();
        assert_eq!(map_has_room(&bench.ctx(), &threads(&[2, 1, 1])), Ok(()));
        assert_eq!(map_has_room(&bench.ctx(), &threads(&[1])), Ok(()), "the others come later");
        let refusal = map_has_room(&bench.ctx(), &threads(&[2, 1, 1, 1])).unwrap_err();
        assert!(
            refusal.to_string().contains("the mapping has 1 CPUs for '*', which stands for 2 threads; write"),
            "{refusal}"
        );
        assert!(map_has_room(&bench.ctx(), &threads(&[3])).unwrap_err().to_string().contains("2 CPUs for 'X'"));
    }

    /// `task→CPUs` in order of task.
    fn moves(decision: &Decision<StaticState>) -> String {
        let text = |p: &cotenant_model::action::Proposal| match &p.action {
            Action::Place { task, contexts } => format!("{task}→{contexts}"),
            Action::Release { task } => format!("{task}→"),
            other => panic!("static does no such thing: {other:?}"),
        };
        decision.proposals.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    fn applied(decision: &Decision<StaticState>) -> Vec<ActionOutcome> {
        let outcome = |action: &Action| ActionOutcome { action: action.clone(), outcome: Outcome::Applied };
        decision.proposals.iter().map(|p| outcome(&p.action)).collect()
    }

    #[test]
    fn one_mark_each_in_order_of_id() {
        // package 0: CPUs 0 1 │ package 1: CPUs 2 3
        let bench = Bench::new(machine(2, 1, 2, 1), "X*|X*");
        let decision = bench.decide(&bench.view(&[(7, 0), (3, 0), (5, 1)]).view(), StaticState::default(), &[]);
        assert_eq!(moves(&decision), "3→0 5→1 7→2");
        assert_eq!(decision.proposals[0].reason.to_string(), "map: the map marks CPU 0 for app 0");
    }

    #[test]
    fn first_contexts_before_second_ones() {
        // cores {0,4} {1,5} │ {2,6} {3,7}; topology order 0 4 1 5 2 6 3 7. All CPUs marked, five tasks: one core
        // each, then 4.
        let bench = Bench::new(machine(2, 1, 2, 2), "XXXXXXXX");
        let tasks: Vec<(u32, u32)> = (0..5).map(|id| (id, 0)).collect();
        assert_eq!(
            moves(&bench.decide(&bench.view(&tasks).view(), StaticState::default(), &[])),
            "0→0 1→1 2→2 3→3 4→4"
        );
    }

    #[test]
    fn letters_go_by_application() {
        // X = app 0, A = app 4, B = app 9 (alphabetical order of letters, ascending order of apps), * = the rest.
        let bench = Bench::new(machine(1, 1, 6, 1), "BXA**.");
        let view = bench.view(&[(1, 0), (2, 4), (3, 9), (4, 10), (5, 11)]).view();
        assert_eq!(moves(&bench.decide(&view, StaticState::default(), &[])), "1→1 2→2 3→0 4→3 5→4");
        // Applications without a mark are left alone, with a note.
        let bench = Bench::new(machine(1, 1, 6, 1), "XX....");
        let decision = bench.decide(&bench.view(&[(1, 0), (2, 4)]).view(), StaticState::default(), &[]);
        assert_eq!((moves(&decision).as_str(), decision.notes.len()), ("1→0", 1));
    }

    #[test]
    fn more_tasks_than_marks_share_them() {
        let bench = Bench::new(machine(2, 1, 2, 1), "X..X");
        let decision = bench.decide(&bench.view(&[(1, 0), (2, 0), (3, 0)]).view(), StaticState::default(), &[]);
        assert_eq!(moves(&decision), "1→0,3 2→0,3 3→0,3");
        let why = "map: app 0 shares the CPUs that the map marks for it, from CPU 0 on: it has more tasks than they";
        assert_eq!(decision.proposals[2].reason.to_string(), why);
    }

    #[test]
    fn stays_put_and_places_newcomers() {
        let bench = Bench::new(machine(2, 1, 2, 1), "XXX*");
        let first = bench.decide(&bench.view(&[(1, 0), (2, 0)]).view(), StaticState::default(), &[]);
        assert_eq!(moves(&first), "1→0 2→1");
        let second = bench.decide(&bench.view(&[(1, 0), (2, 0)]).view(), first.state.clone(), &applied(&first));
        assert_eq!(moves(&second), "", "fixed point");
        // Task 1 ends, 8 and 9 start: 2 keeps CPU 1.
        let third = bench.decide(&bench.view(&[(2, 0), (8, 0), (9, 0)]).view(), second.state, &[]);
        assert_eq!(moves(&third), "8→0 9→2");
    }

    #[test]
    fn another_map_is_another_plan() {
        let bench = Bench::new(machine(2, 1, 2, 1), "X...");
        let first = bench.decide(&bench.view(&[(1, 0)]).view(), StaticState::default(), &[]);
        let bench = Bench::new(machine(2, 1, 2, 1), "...X");
        assert_eq!(moves(&bench.decide(&bench.view(&[(1, 0)]).view(), first.state.clone(), &applied(&first))), "1→3");
    }

    #[test]
    fn keeps_inside_what_a_task_is_allowed() {
        let bench = Bench::new(machine(2, 1, 2, 1), "XX*.");
        // Task 1 may only use CPU 1; task 2 then finds CPU 0; task 3 may use neither mark.
        let view = bench.view(&[(1, 0)]).allowed("1").task(2, 0, 0).view();
        assert_eq!(moves(&bench.decide(&view, StaticState::default(), &[])), "1→1 2→0");
        let decision = bench.decide(&bench.view(&[(3, 0)]).allowed("2-3").view(), StaticState::default(), &[]);
        assert_eq!((moves(&decision).as_str(), decision.notes.len()), ("", 1));
    }

    #[test]
    fn refuses_bad_maps_with_the_position() {
        let mut parts = parts(2, 1, 2, 1);
        parts.cpus[3].allowed = false;
        let topology = Topology::new(parts).unwrap();
        let refusal = |bench: &Bench| bench.policy().check(&bench.ctx());
        let why = |map: &str| refusal(&Bench::new(topology.clone(), map)).unwrap_err().to_string();
        assert!(why("XX").contains("2 CPUs, the machine has 4"), "{}", why("XX"));
        assert!(why("X#..").contains("'#' at position 2"));
        assert!(why("X..X").contains("position 4 of the mapping stands on CPU 3, which the cpuset forbids"));
        assert!(why("....").contains("marks no CPU"));
        let mut none = Bench::new(topology.clone(), "");
        none.config = Config::default();
        assert!(refusal(&none).unwrap_err().to_string().contains("--map 'X*X*..'"));
        assert_eq!(refusal(&Bench::new(topology.clone(), "X*X.")), Ok(()));
    }
}
