//! The sampler on real processes: short-lived threads, programs that replace themselves, leaders that end first.

use crate::program::{Program, threads_of};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::ends::Ends;
use cotenant_linux::sense::memory;
use cotenant_linux::sense::observer::{AppTarget, NewTask, Observer, Options};
use cotenant_linux::sense::perf::Counting;
use cotenant_linux::sense::processes::{Follower, Target};
use cotenant_model::proc_text::TaskStat;
use cotenant_model::topology::{Cpu, Parts};
use cotenant_model::{AppId, CpuId, CpuSet, Sample, Signal, TaskId, TaskView, Time, Topology, View};
use cotenant_testing::eventually;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for every event, including names, which are read once a minute; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(100);

/// After so many milliseconds without a look, threads are observed as soon as they are seen.
const RARE: u64 = 500;

fn machine() -> Topology {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus = CpuSet::parse_list(&online).unwrap();
    let cpu = |id| Cpu { id, online: true, allowed: true, efficiency_class: None, coord: None };
    Topology::new(Parts { cpus: cpus.iter().map(cpu).collect(), ..Parts::default() }).unwrap()
}

struct Watch {
    observer: Observer,
    /// Start of its clock, unless that only advances on request.
    begin: Option<Instant>,
    /// The lead of its clock.
    ahead: Duration,
    last: Sample,
    asked: Vec<NewTask>,
}

impl Watch {
    fn new(target: Target, options: Options) -> Self {
        let apps = vec![AppTarget { name: "program".into(), target }];
        let observer = Observer::new(&machine(), apps, options).unwrap();
        let mut watch = Self {
            observer,
            begin: Some(Instant::now()),
            ahead: Duration::ZERO,
            last: Sample::default(),
            asked: Vec::new(),
        };
        watch.sample();
        watch
    }

    fn tree(program: &Program) -> Self {
        Self::new(Target::Trees(vec![program.pid()]), Options::default())
    }

    /// Takes a sample and checks the invariants of each.
    fn sample(&mut self) -> &Sample {
        let at = Time::default() + (self.begin.map_or(Duration::ZERO, |begin| begin.elapsed()) + self.ahead);
        let asked = &mut self.asked;
        let next = self
            .observer
            .sample(at, &mut |new| {
                asked.push(new.clone());
                new.mask.clone()
            })
            .unwrap();
        assert!(next.tasks.windows(2).all(|w| w[0].info.id < w[1].info.id), "ascending and each once");
        let before: BTreeMap<TaskId, _> = self.last.tasks.iter().map(|t| (t.info.id, t)).collect();
        for task in &next.tasks {
            let Some(old) = before.get(&task.info.id) else { continue };
            assert_eq!(
                (old.info.tid, old.info.start_ticks),
                (task.info.tid, task.info.start_ticks),
                "an id is one thread"
            );
            for (signal, count) in old.counters.iter() {
                let Some(now) = task.counters.get(signal) else {
                    assert!(matches!(signal, Signal::Migrations | Signal::PageFaults), "{signal} vanished");
                    continue;
                };
                assert!(now.value >= count.value, "{signal} of {} went back: {count:?} {now:?}", task.info.tid);
            }
        }
        self.last = next;
        &self.last
    }

    /// The same after so many milliseconds.
    fn after_ms(&mut self, ms: u64) {
        self.ahead += Duration::from_millis(ms);
        self.sample();
    }

    fn tids(&self) -> BTreeSet<u32> {
        self.last.tasks.iter().map(|t| t.info.tid).collect()
    }

    fn cpu_ns(&self) -> u64 {
        self.last.tasks.iter().filter_map(|t| t.counters.get(Signal::CpuTime)).map(|c| c.value).sum()
    }

    /// Samples until `done`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "waited for: {what}; {:?}", self.last);
            std::thread::sleep(Duration::from_millis(5));
            self.sample();
        }
    }
}

#[test]
fn threads_that_come_and_go_are_followed() {
    for threads in [1, 64, 1_000] {
        let mut program = Program::start(threads);
        let mut watch = Watch::tree(&program);
        assert_eq!(watch.tids(), threads_of(program.pid()), "{threads} threads");
        for (spawn, exit) in [(7, 0), (0, 7), (30, 20), (1, 1), (5, 15)] {
            program.ask(&format!("spawn {spawn}"));
            if spawn > 0 {
                watch.sample(); // in the middle
            }
            program.ask(&format!("exit {exit}"));
            watch.after_ms(RARE);
            assert_eq!(watch.tids(), threads_of(program.pid()), "{threads} threads, +{spawn} −{exit}");
        }
        assert!(watch.last.tasks.iter().all(|t| t.info.pid == program.pid() && t.cpu.is_some()));
        assert!(watch.last.tasks.iter().all(|t| !t.info.allowed.is_empty()));
    }
}

/// Holds place/schedule.
#[test]
fn who_is_left_behind_by_an_application_that_has_ended_is_somebody_else() {
    let (mut left, other) = (Program::start(3), Program::start(2));
    let mut watch = Watch::tree(&left);
    watch.observer.add_app(AppTarget { name: "other".into(), target: Target::Trees(vec![other.pid()]) });
    let apps = |watch: &Watch| watch.last.apps.iter().map(|app| app.id.0).collect::<Vec<_>>();
    watch.sample();
    assert_eq!((watch.tids().len(), apps(&watch)), (5, vec![0, 1]));
    watch.observer.remove_app(AppId(0));
    left.ask("spawn 2");
    watch.sample();
    assert_eq!((watch.tids(), apps(&watch)), (threads_of(other.pid()), vec![1]));
}

/// A `/proc` in which a test controls the visible processes, and the last assigned id.
struct Shown(PathBuf);

impl Shown {
    fn new(test: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("proc")).unwrap();
        Self(root)
    }

    fn last_id(&self, id: u32) {
        std::fs::write(self.0.join("proc/loadavg"), format!("0.00 0.00 0.00 1/100 {id}\n")).unwrap();
    }

    fn show(&self, pid: u32) {
        std::os::unix::fs::symlink(format!("/proc/{pid}"), self.0.join(format!("proc/{pid}"))).unwrap();
    }

    fn follower(&self, target: Target) -> Follower {
        Follower::new(&FsRoot::at(&self.0), vec![target], None)
    }
}

#[test]
fn a_target_that_is_added_is_found_though_nobody_was_born() {
    let (first, second) = (Program::start(1), Program::start(2));
    let shown = Shown::new("nobody-was-born");
    shown.last_id(4_000);
    shown.show(first.pid());
    shown.show(second.pid());
    let targets = |pid| [Target::Trees(vec![pid]), Target::Pids(vec![pid])];
    for (known, added) in targets(first.pid()).into_iter().zip(targets(second.pid())) {
        let mut follower = shown.follower(known);
        let ends = Ends::new().unwrap();
        follower.update(Time(0), &[], &[], &ends);
        assert_eq!(follower.processes().keys().copied().collect::<Vec<_>>(), [first.pid()]);
        follower.add_target(AppId(1), added);
        let changes = follower.update(Time(1), &[], &[], &ends);
        assert_eq!(follower.processes()[&second.pid()].app, AppId(1));
        assert_eq!(changes.born.len(), 2);
    }
}

#[test]
fn who_can_be_seen_only_after_its_id_was_handed_out_is_found() {
    let mut program = Program::start(1);
    let child: u32 = program.ask("child").parse().unwrap();
    let shown = Shown::new("seen-later");
    shown.show(program.pid());
    shown.last_id(child - 1);
    let mut follower = shown.follower(Target::Trees(vec![program.pid()]));
    let (ends, mut now) = (Ends::new().unwrap(), 0);
    let mut born = || {
        now += 1;
        follower.update(Time(now), &[], &[], &ends).born
    };
    assert_eq!(born(), [(program.pid(), program.pid())]);
    shown.last_id(child);
    assert!(born().is_empty());
    shown.show(child);
    assert_eq!(born(), [(child, child)]);
    shown.last_id(child + 1);
    assert!(born().is_empty());
    program.ask("spawn 1");
    let threads = threads_of(program.pid());
    let second = threads.into_iter().find(|tid| *tid != program.pid()).unwrap();
    assert_eq!(born(), [(program.pid(), second)]);
    crate::program::kill(child);
}

#[test]
fn a_thread_that_takes_the_place_of_another_is_found_within_a_second_or_so() {
    let mut program = Program::start(2);
    let shown = Shown::new("replaced");
    shown.show(program.pid());
    shown.last_id(4_000);
    let mut follower = shown.follower(Target::Pids(vec![program.pid()]));
    let ends = Ends::new().unwrap();
    let mut update = |ms| follower.update(Time::from_millis(ms), &[], &[], &ends);
    assert_eq!(update(0).born.len(), 2);
    let worker = |program: &Program| threads_of(program.pid()).into_iter().find(|tid| *tid != program.pid()).unwrap();
    let before = worker(&program);
    program.ask("exit 1");
    program.ask("spawn 1");
    shown.last_id(4_001);
    // No counter signals the end of one, the number is unchanged, and no other process starts.
    let changes: Vec<_> = [1, 2, 3, 1_001].map(update).into_iter().collect();
    assert!(changes[..3].iter().all(|changes| changes.born.is_empty()), "{changes:?}");
    let now = worker(&program);
    assert_eq!((&changes[3].born[..], &changes[3].gone[..]), (&[(program.pid(), now)][..], &[before][..]));
}

#[test]
fn threads_that_live_shorter_than_an_interval_do_no_harm() {
    let mut program = Program::start(16);
    let mut watch = Watch::tree(&program);
    program.tell("churn 2000");
    let deadline = Instant::now() + PATIENCE;
    let mut seen = BTreeSet::new();
    while program.answered().is_none() {
        assert!(Instant::now() < deadline);
        watch.sample();
        seen.extend(watch.tids());
    }
    watch.after_ms(RARE);
    assert_eq!(watch.tids(), threads_of(program.pid()));
    assert!(seen.len() >= 16);
}

/// What is asked for a thread is what it costs: its mask, and with that a line in the journal where it has one of ours.
/// A script whose programs live for milliseconds: what is shown of it is what the kernel adds up, but for the clock
/// ticks that are cut off.
/// Promise record/adds-up: CPU time that is shown adds up to what was used, including processes that ended before
/// they were counted.
#[test]
fn what_ends_before_it_is_counted_is_part_of_the_application() {
    let script = "for i in $(seq 50); do head -c 4000000 /dev/zero | md5sum; done; read x";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = shell.spawn().unwrap();
    let mut watch = Watch::new(Target::Trees(vec![shell.id()]), Options::default());
    let mut shown = 0.0;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = watch.last.clone();
        watch.after_ms(100);
        let view = View::new(&before, &watch.last);
        let tasks = view.tasks.iter().filter_map(TaskView::cpu_share).sum::<f64>();
        let ended = view.apps[0].ended_cpus.unwrap_or_default();
        shown += (tasks + ended) * view.interval.as_secs_f64();
        let stat = std::fs::read(format!("/proc/{}/stat", shell.id())).unwrap();
        let stat = TaskStat::parse(&stat).unwrap();
        let used = (stat.ticks + stat.ended_ticks) as f64 / cotenant_linux::sys::ticks_per_second() as f64;
        let waits = std::fs::read_to_string(format!("/proc/{}/syscall", shell.id())).unwrap();
        // A newly started shell reads, too.
        if used > 0.3 && waits.starts_with("0 ") && view.tasks.len() == 1 && shown > used - 0.15 {
            assert!(shown < used + 0.05, "{shown} s shown, {used} s used");
            break;
        }
        assert!(Instant::now() < deadline, "{shown} s shown, {used} s used");
        std::thread::sleep(Duration::from_millis(10));
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
}

#[test]
fn a_thread_that_ends_before_the_next_look_is_not_opened() {
    let mut program = Program::start(16);
    let mut watch = Watch::tree(&program);
    let known = watch.asked.len();
    assert_eq!(known, 16);
    watch.begin = None; // a busy machine needs time
    watch.ahead = Duration::from_secs(100);
    watch.sample();
    for _ in 0..10 {
        program.ask("spawn 20");
        watch.after_ms(100);
        program.ask("exit 20");
        watch.after_ms(100);
        assert_eq!((watch.asked.len(), watch.last.tasks.len()), (known, known));
    }
    program.ask("spawn 20");
    watch.after_ms(100);
    watch.after_ms(100);
    assert_eq!((watch.asked.len(), watch.tids()), (known + 20, threads_of(program.pid())), "those that stay are");
    assert!(watch.observer.tier().notes.iter().all(|note| !note.contains("no time") && !note.contains("ended before")));
}

/// Looking at all of many processes in each round would make rounds late.
#[test]
fn of_many_processes_some_are_looked_at_in_each_round() {
    let mut programs: Vec<Program> = (0..40).map(|_| Program::start(2)).collect();
    let shown = Shown::new("many");
    shown.last_id(4_000);
    for program in &programs {
        shown.show(program.pid());
    }
    let mut follower = shown.follower(Target::Pids(programs.iter().map(Program::pid).collect()));
    let ends = Ends::new().unwrap();
    let mut update = |ms| follower.update(Time::from_millis(ms), &[], &[], &ends).born;
    assert_eq!(update(0).len(), 80, "at first all of them");
    assert_eq!([1, 2, 3].map(&mut update).concat(), [], "nobody was born");
    let newcomers: BTreeSet<(u32, u32)> = programs
        .iter_mut()
        .flat_map(|program| {
            let before = threads_of(program.pid());
            program.ask("spawn 1");
            threads_of(program.pid()).difference(&before).map(|tid| (program.pid(), *tid)).collect::<Vec<_>>()
        })
        .collect();
    shown.last_id(4_040);
    let found = [10, 11, 12, 13, 14, 15].map(&mut update);
    assert_eq!(found.each_ref().map(Vec::len), [8, 8, 8, 8, 8, 0], "{found:?}");
    assert_eq!(found.concat().into_iter().collect::<BTreeSet<_>>(), newcomers);
}

fn burned_time_is_seen(options: Options) {
    let mut program = Program::start(40);
    let mut watch = Watch::new(Target::Pids(vec![program.pid()]), options);
    watch.until("everyone to be asleep", |w| w.last.tasks.len() == 40);
    let used_before = program.cpu_us();
    watch.sample();
    let before = watch.cpu_ns();
    program.ask("burn 20");
    let used = (program.cpu_us() - used_before) * 1_000;
    assert!(used >= 40 * 20_000_000, "each of 40 threads burned 20 ms: {used}");
    // Usage of sleepers is seen late, never lost.
    watch.until("the burned time", |w| w.cpu_ns() - before >= used * 97 / 100);
    let seen = watch.cpu_ns() - before;
    assert!(seen <= used * 103 / 100 + 50_000_000, "saw {seen} ns of {used}");
    let ran =
        watch.last.tasks.iter().filter(|t| t.counters.get(Signal::CpuTime).is_some_and(|c| c.value >= 15_000_000));
    assert!(ran.count() >= 39, "every thread's own share is seen");
    assert!(watch.last.cpus.len() == machine().online().len() && watch.last.cpus.iter().any(|c| c.busy_ns > 0));
    drop(program);
    watch.until("the end", |w| w.last.tasks.is_empty());
}

#[test]
fn cpu_time_agrees_with_the_programs_own_with_counters() {
    burned_time_is_seen(Options::default());
}

#[test]
fn cpu_time_agrees_with_the_programs_own_without_counters() {
    burned_time_is_seen(Options { counting: Counting::Nothing, ..Options::default() });
}

/// Software events make each change of context longer; who has many of them is read in another way.
#[test]
fn who_hands_over_often_is_spared_the_counters() {
    let mut program = Program::start(2);
    let mut watch = Watch::tree(&program);
    program.ask("burn 20");
    watch.after_ms(RARE);
    let counted = |w: &Watch| w.last.tasks.iter().filter(|t| t.counters.get(Signal::Migrations).is_some()).count();
    if counted(&watch) == 0 {
        return eprintln!("skipped: migrations cannot be counted here");
    }
    if watch.last.tasks.iter().any(|t| t.counters.get(Signal::Instructions).is_some()) {
        return eprintln!("skipped: hardware is counted here, for which events are kept");
    }
    let (used, seen) = (program.cpu_us(), watch.cpu_ns() / 1_000);
    program.tell("hand-over 200000");
    watch.until("those who hand over to be spared", |w| w.last.tasks.len() == 3 && counted(w) == 1);
    program.answer();
    let used = program.cpu_us() - used;
    // Nothing is lost, nothing counted twice.
    watch.until("the used time", |w| w.cpu_ns() / 1_000 - seen >= used * 97 / 100);
    let seen = watch.cpu_ns() / 1_000 - seen;
    assert!(seen <= used * 103 / 100 + 50_000, "saw {seen} us of {used}");
}

#[test]
fn a_thread_that_never_leaves_its_cpu_is_seen_running() {
    let mut program = Program::start(2);
    let mut watch = Watch::tree(&program);
    program.tell("burn 600000"); // until it is killed
    let mut last = watch.cpu_ns();
    let mut rises = 0;
    watch.until("ten samples with progress", |w| {
        rises += usize::from(w.cpu_ns() > last);
        last = w.cpu_ns();
        rises >= 10
    });
}

#[test]
fn no_descriptor_is_left_behind() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut program = Program::start(8);
    let mut watch = Watch::tree(&program);
    let few = (watch.tids().len(), own_descriptors(&watch));
    program.ask("spawn 200");
    watch.after_ms(RARE);
    assert!(own_descriptors(&watch) > few.1 + 200, "each thread has some");
    program.ask("exit 200");
    watch.sample();
    assert_eq!(watch.tids().len(), few.0);
    assert!(own_descriptors(&watch) <= few.1, "those of a thread that switches much may have been closed meanwhile");
    drop(program);
    watch.until("the end", |w| w.last.tasks.is_empty());
    assert!(watch.observer.is_empty());
    assert_eq!(own_descriptors(&watch), 0);
    assert!(open() > 0);
}

/// Descriptors for the observed processes: perf events, and files of `/proc/PID/task`. Other tests run concurrently.
fn own_descriptors(watch: &Watch) -> usize {
    watch.observer.descriptors()
}

#[test]
fn sampling_after_the_end_finds_nothing_and_no_error() {
    let program = Program::start(64);
    let pid = program.pid();
    let mut watch = Watch::tree(&program);
    assert_eq!(watch.last.tasks.len(), 64);
    program.kill_without_reaping();
    // In the sample of its death, its threads may be found ended before itself.
    watch.until("the zombie to be left out", |w| w.last.tasks.is_empty() && w.observer.is_empty());
    drop(program);
    watch.sample();
    assert!(watch.last.tasks.is_empty());
    // Observing a missing process, from the beginning.
    let watch = Watch::new(Target::Trees(vec![pid]), Options::default());
    assert!(watch.last.tasks.is_empty() && watch.observer.is_empty());
}

#[test]
fn descendants_are_found_orphans_too() {
    let mut program = Program::start(3);
    let mut watch = Watch::tree(&program);
    let child: u32 = program.ask("child").parse().unwrap();
    watch.until("the child", |w| w.tids().contains(&child));
    let orphan: u32 = program.ask("orphan").parse().unwrap();
    watch.until("the orphan", |w| w.tids().contains(&orphan));
    let info = &watch.last.tasks.iter().find(|t| t.info.tid == child).unwrap().info;
    assert_eq!(info.pid, child);
    let asked = watch.asked.iter().find(|n| n.tid == child).unwrap();
    assert_eq!(asked.ppid, program.pid());
    // Named pids have no children.
    let alone = Watch::new(Target::Pids(vec![program.pid()]), Options::default());
    assert_eq!(alone.tids(), threads_of(program.pid()));
    // A late observer finds existing processes, below each of the roots.
    let other = Program::start(1);
    let late = Watch::new(Target::Trees(vec![program.pid(), other.pid()]), Options::default());
    assert!([child, other.pid()].iter().all(|pid| late.tids().contains(pid)), "{:?}", late.tids());
    // The observer does not observe itself in the tree.
    let above = Watch::new(Target::Trees(vec![std::os::unix::process::parent_id()]), Options::default());
    assert!(above.observer.processes().all(|pid| pid != std::process::id()));
    drop(other);
    drop(program);
    watch.until("only the orphan and the child to be left", |w| !w.tids().iter().any(|t| *t != child && *t != orphan));
    for pid in [child, orphan] {
        crate::program::kill(pid);
    }
    watch.until("the end", |w| w.last.tasks.is_empty());
}

/// Whether only the leader of a program of that name is left. In the sample of its exec, the others may not be read
/// yet.
fn is_all(watch: &Watch, leader: u32, name: &str) -> bool {
    watch.last.tasks.len() == 1 && watch.last.tasks[0].info.tid == leader && watch.last.tasks[0].info.comm == name
}

#[test]
fn a_leader_that_leaves_first_is_left_out() {
    let mut program = Program::start(5);
    let mut watch = Watch::tree(&program);
    let leader = program.pid();
    assert!(watch.tids().contains(&leader));
    program.tell("leave");
    // The other threads, and the listening one, which may be found later than the leader's death.
    watch.until("the leader to be left out", |w| !w.tids().contains(&leader) && w.last.tasks.len() == 4 + 1);
    assert!(!watch.observer.is_empty());
    // One of its threads executes another program and becomes the leader.
    program.tell_thread("exec");
    watch.until("the new program", |w| is_all(w, leader, "sleep"));
}

#[test]
fn a_program_that_replaces_itself_is_followed() {
    for who in ["leader", "thread"] {
        let mut program = Program::start(5);
        let mut watch = Watch::tree(&program);
        if who == "leader" {
            program.tell("exec-busy");
        } else {
            program.tell_thread("exec-busy");
        }
        watch.until(&format!("the new name, by {who}"), |w| is_all(w, program.pid(), "sh"));
        let before = watch.cpu_ns();
        watch.until("the new program's CPU time", |w| w.cpu_ns() > before + 20_000_000);
    }
}

#[test]
fn real_time_threads_are_left_out() {
    let mut program = Program::start(3);
    if program.ask("real-time") != "ok" {
        eprintln!("skipped: no permission to use SCHED_FIFO");
        return;
    }
    let watch = Watch::tree(&program);
    let all = threads_of(program.pid());
    assert_eq!(watch.last.tasks.len(), all.len() - 1, "{all:?}");
}

#[test]
fn a_thread_whose_name_defies_parsing() {
    let mut program = Program::start(2);
    program.ask("name a) R 1 (b");
    let watch = Watch::tree(&program);
    assert!(watch.last.tasks.iter().any(|t| t.info.comm == "a) R 1 (b"), "{:?}", watch.last);
}

#[test]
fn a_cgroups_processes_are_read_from_its_folder() {
    let program = Program::start(4);
    let other = Program::start(2);
    let dir = std::env::temp_dir().join(format!("cotenant-cgroup-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("below")).unwrap();
    std::fs::write(dir.join("cgroup.procs"), format!("{}\n", program.pid())).unwrap();
    std::fs::write(dir.join("below/cgroup.procs"), "").unwrap();
    let mut watch = Watch::new(Target::Cgroup(dir.clone()), Options::default());
    assert_eq!(watch.tids(), threads_of(program.pid()));
    std::fs::write(dir.join("below/cgroup.procs"), format!("{}\n", other.pid())).unwrap();
    watch.until("the one that was moved in", |w| w.last.tasks.len() == 6);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn too_many_threads_are_left_out_and_reported() {
    let program = Program::start(20);
    let watch = Watch::new(Target::Trees(vec![program.pid()]), Options { max_tasks: 10, ..Options::default() });
    assert_eq!(watch.last.tasks.len(), 10);
    let notes = watch.observer.tier().notes;
    assert!(notes.iter().any(|n| n.starts_with("10 threads are left out")), "{notes:?}");
}

const PLACEMENT: memory::Options =
    memory::Options { placement: true, accesses: false, choice: memory::Choice::Auto, budget: 0.01 };

#[test]
fn the_tier_says_what_is_counted_here() {
    let mut program = Program::start(2);
    let mut watch = Watch::new(Target::Trees(vec![program.pid()]), Options { memory: PLACEMENT, ..Options::default() });
    program.ask("burn 20");
    watch.sample();
    let report = watch.observer.tier();
    for signal in [Signal::CpuTime, Signal::RunQueueWait] {
        assert!(report.present.iter().any(|p| p.signal == signal && p.running == Some(1.0)), "{report:?}");
    }
    for missing in &report.missing {
        assert!(!missing.why.is_empty(), "{missing:?}");
        assert!(
            watch.last.tasks.iter().all(|t| t.counters.get(missing.signal).is_none()),
            "{missing:?} and yet counted"
        );
    }
    if std::path::Path::new("/proc/self/numa_maps").exists() {
        let mut pages = None;
        eventually("where its pages are is known", || {
            watch.sample();
            pages.clone_from(&watch.last.tasks[0].pages_by_node);
            pages.is_some()
        });
        let pages = pages.unwrap();
        assert!(pages.iter().map(|(_, n)| n).sum::<u64>() > 10, "{pages:?}");
    } else {
        eprintln!("skipped in part: this kernel has no numa_maps");
    }
    assert!(
        watch.last.tasks[0].cpu.is_some_and(|c| machine().online().contains(c)) || machine().cpu(CpuId(0)).is_none()
    );
}

/// Many threads bind themselves, or are bound, only after they were found.
#[test]
fn a_mask_that_was_changed_later_is_seen() {
    let program = Program::start(20);
    let mut watch = Watch::tree(&program);
    let all = watch.last.tasks[0].info.allowed.clone();
    let (Some(first), true) = (all.first(), all.len() > 1) else {
        eprintln!("skipped: one CPU has one mask");
        return;
    };
    let tid = watch.last.tasks[19].info.tid;
    let bind = |to: &CpuSet| {
        let done = std::process::Command::new("taskset").args(["-cp", &to.to_string(), &tid.to_string()]).output();
        done.is_ok_and(|done| done.status.success())
    };
    let one = CpuSet::single(first);
    if !bind(&one) {
        eprintln!("skipped: no taskset (package util-linux)");
        return;
    }
    // Eight of twenty in each look: three looks see all.
    let mut look = |allowed: &dyn Fn(u32, u64, CpuSet) -> Option<CpuSet>| {
        (0..3).for_each(|_| watch.observer.look_at_masks(allowed));
        watch.sample().tasks.iter().map(|t| t.info.allowed.clone()).collect::<Vec<_>>()
    };
    let (others, bound) = (vec![all.clone(); 19], |seen: &[CpuSet]| seen[19].clone());
    let seen = look(&|_, _, mask| Some(mask));
    assert_eq!((&seen[..19], bound(&seen)), (&others[..], one.clone()));
    assert!(bind(&all));
    let seen = look(&|at, _, mask| (at != tid).then_some(mask));
    assert_eq!(bound(&seen), one, "whoever looks after a thread's mask says what it is");
    assert_eq!(bound(&look(&|_, _, mask| Some(mask))), all);
}
