//! Snapshots worked out by hand from the papers, independently of the policies: `fixtures/decide/*.json` has the
//! situations, the tables below the expected moves with the arithmetic.
//!
//! A move reads `stage task:from>to`, with the decided contexts, and ` =affinity` where `--pin` widens it.

use cotenant_model::machine::Machine;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Ctx, Settings};
use cotenant_model::topology::synthetic;
use cotenant_model::{CpuId, CpuSet, Outcome};
use cotenant_policies::{Sam, SamConfig, Static, StaticSettings};
use cotenant_record::snapshot::{Answer, Snapshot};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// 2 × 10 cores × 2 contexts: first contexts 0–9 and 10–19, second ones 20–29 and 30–39.
const IVY: &str = "ivy-bridge-2s";
/// 4 × 8 cores × 2 contexts: first contexts 0–7, 8–15, 16–23, 24–31, second ones from 32.
const XEON4: &str = "xeon-4s-64";
/// 2 packages of 8 domains of 6 cores × 2 contexts: first contexts 0–47 and 48–95, second ones from 96.
const EPYC: &str = "epyc-9454-2s";
const FOURS: &str = "package:2 [numa] l3:1 core:4 pu:1";
const TWOS: &str = "package:2 [numa] l3:1 core:2 pu:1";
const TENS: &str = "package:2 [numa] l3:1 core:10 pu:1";
const ONE: &str = "core:4 pu:1";
/// [`FOURS`] with CPU 1 outside the cpuset.
const CPUSET: &str = "name = 'a'\ndescription = ''\nsource = ''\n[topology]\n\
    synthetic = 'package:2 [numa] l3:1 core:4 pu:1'\ndisallowed = '1'";
/// [`FOURS`] with CPU 3 switched off.
const OFFLINE: &str = "name = 'a'\ndescription = ''\nsource = ''\n[topology]\n\
    synthetic = 'package:2 [numa] l3:1 core:4 pu:1'\noffline = '3'";

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    let path = root(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn machine(machine: &str) -> Machine {
    let mut machine = if machine.contains('\n') {
        Machine::parse(machine).unwrap()
    } else if machine.contains(':') {
        Machine::unnamed(synthetic::parse(machine).unwrap(), "synthetic", "")
    } else {
        Machine::parse(&read(&format!("machines/{machine}.toml"))).unwrap()
    };
    // Only the paper's bandwidth per cycle needs it.
    machine.profile.clock_hz.get_or_insert(2.2e9);
    machine
}

/// The moves of an answer in short form.
fn moves(answer: &Answer) -> Vec<String> {
    let list = |cpus: &[CpuId]| cpus.iter().copied().collect::<CpuSet>().to_string();
    let short = |m: &cotenant_record::moves::Move| {
        let stage = m.reason.stage.trim_start_matches("stage ");
        let from = m.from_cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
        let pin = if m.affinity == m.to_cpus { String::new() } else { format!(" ={}", list(&m.affinity)) };
        format!("{stage} {}:{from}>{}{pin}", m.task.unwrap(), list(&m.to_cpus))
    };
    answer.moves.iter().map(short).collect()
}

/// The decision in one situation.
struct Case {
    file: &'static str,
    machine: &'static str,
    moves: &'static [&'static str],
    origins: Option<&'static [(u32, u32)]>,
    note: Option<&'static str>,
    config: Config,
}

fn case(file: &'static str, machine: &'static str, moves: &'static [&'static str]) -> Case {
    let config = Config { pin: Pin::Cpu, ..Config::default() };
    Case { file, machine, moves, origins: None, note: None, config }
}

impl Case {
    /// By the paper's own rules.
    fn paper(mut self) -> Self {
        self.config.settings.put("sam", &SamConfig::paper_exact());
        self
    }

    /// Uses second contexts even while cores are free.
    fn any_context(mut self) -> Self {
        self.config.settings.set("sam", "whole-cores", false.into());
        self
    }

    fn pin(mut self, pin: Pin) -> Self {
        self.config.pin = pin;
        self
    }

    /// The origins in the resulting state: (task, package).
    fn origins(mut self, origins: &'static [(u32, u32)]) -> Self {
        self.origins = Some(origins);
        self
    }

    /// A note names the disabled part; other cases must have none.
    fn note(mut self, part: &'static str) -> Self {
        self.note = Some(part);
        self
    }

    fn wrong(&self) -> Option<String> {
        let Machine { topology, profile, .. } = machine(self.machine);
        let text = read(&format!("fixtures/decide/{}.json", self.file));
        let snapshot = Snapshot::parse(&text, &topology).unwrap_or_else(|e| panic!("{}:{e}", self.file));
        let ctx = Ctx { topology: &topology, machine: &profile, apps: &BTreeMap::new(), config: &self.config };
        let answer = snapshot.decide(&ctx, &Sam(self.config.settings.of::<Sam>().unwrap()));
        let Some(state) = answer.state.read::<Sam>() else { panic!("{}: {:?}", self.file, answer.state) };
        let origins: Vec<(u32, u32)> = state.origins.iter().map(|o| (o.task.0, o.unit)).collect();
        let noted = match self.note {
            Some(part) => answer.notes.iter().any(|note| note.contains(part)),
            None => answer.notes.is_empty(),
        };
        let right = moves(&answer) == self.moves && self.origins.is_none_or(|o| origins == o) && noted;
        let got = || format!("{}: {:?}, origins {origins:?}, notes {:?}", self.file, moves(&answer), answer.notes);
        (!right).then(|| {
            format!("{}\n  expected {:?}, origins {:?}, note {:?}", got(), self.moves, self.origins, self.note)
        })
    }
}

fn check(cases: &[Case]) {
    let wrong: Vec<String> = cases.iter().filter_map(Case::wrong).collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// 2.2e8 cycles in 0.1 s: C = 2.5e-4 is 55,000 events, R = 3.9e-4 is 85,800, m = 7.5e6/s is 750,000 misses, M =
/// 75e6/s is 7.5e6.
#[test]
#[rustfmt::skip] // one situation, one line
fn classes_at_and_about_each_threshold() {
    check(&[
        // 55,000 / 2.2e8 = 2.5e-4 is not above C.
        case("inter-at", IVY, &[]),
        // 54,999 / 2.2e8 < C.
        case("inter-below", IVY, &[]),
        // 55,001 / 2.2e8 > C: 2 goes to the first idle core of package 0.
        case("inter-above", IVY, &["1 2:10>1"]),
        // Intra 55,000 / 2.2e8 = C: task 2 is a sharer and stays; 3 is the first CPU-bound.
        case("intra-at", IVY, &["1 100:10>2", "1 3:2>10"]),
        // Intra 54,999: task 2 is CPU-bound, and the first.
        case("intra-below", IVY, &["1 100:10>1", "1 2:1>10"]),
        // 100,000 - 30,000 - 15,000 = 55,000: intra.
        case("intra-derived-at", IVY, &["1 100:10>2", "1 3:2>10"]),
        // 100,000 - 30,000 - 15,001 = 54,999: not intra.
        case("intra-derived-below", IVY, &["1 100:10>1", "1 2:1>10"]),
        // 10 - 600,000 counts as 0: CPU-bound, not a huge number.
        case("intra-derived-negative", IVY, &["1 100:10>1", "1 2:1>10"]),
        // 750,000 / 0.1 s = 7.5e6/s is not above m: 3 is the only CPU-bound task of package 0.
        case("mem-at", IVY, &["1 100:10>2", "1 3:2>10"]).origins(&[]),
        // No CPU-bound task: 2 goes reluctantly, from package 0.
        case("mem-above", IVY, &["1 100:10>1", "1 2:1>10"]).origins(&[(2, 0)]),
        // m left out: 75e6 / 10 cores = 7.5e6/s.
        case("mem-default-m", IVY, &["1 100:10>2", "1 3:2>10"]),
        // 5 x 15e6 = 75e6/s is not above M.
        case("socket-at", IVY, &[]),
        // 75,000,010/s > M: the task of the ten more goes, 60e6 stay.
        case("socket-above", IVY, &["3 5:4>10"]),
        // 100e6 on package 0, package 1 has exactly M: not below.
        case("socket-target-at", IVY, &[]),
        // 85,800 / 2.2e8 = 3.9e-4 = R: not above.
        case("remote-at", IVY, &[]).origins(&[(5, 0)]),
        // 85,801 / 2.2e8 > R: home.
        case("remote-above", IVY, &["2 5:10>0"]).origins(&[]),
    ]);
}

/// Places of four contexts are drawn as I inter, i intra, M memory-bound, c CPU-bound, . idle.
#[test]
#[rustfmt::skip] // one situation, one line
fn stage_1() {
    check(&[
        // I M c . | I I I c: idle 3, then CPU-bound 3, then memory-bound 2 (reluctantly).
        case("stage1-idle-cpu-mem", FOURS, &["1 11:4>3", "1 12:5>2", "1 3:2>5", "1 13:6>1", "1 2:1>6"]).origins(&[(2, 0)]),
        // I M c . | I I I I: package 1 is full of sharers, so no source; and no destination either.
        case("stage1-full-source", FOURS, &[]),
        // As printed: package 0 fills up with 11-13; then package 1 draws 1, the only one that has not moved, to the
        // idle CPU 4.
        case("stage1-full-source", FOURS, &["1 11:4>3", "1 12:5>2", "1 3:2>5", "1 13:6>1", "1 2:1>6", "1 1:0>4"]).paper().origins(&[(2, 0)]),
        // 1 + 18 of 20 contexts share: 100 takes the last one (reluctant 20); 20 = contexts, so 101 stays; package 0
        // is full, so no source for package 1.
        case("stage1-capacity", IVY, &["1 100:10>29", "1 20:29>10"]).origins(&[(20, 0)]),
        // 20 sharers on 20 contexts.
        case("stage1-never-displace", IVY, &[]),
        // 2 was reluctantly moved from package 2 before: that stays its origin.
        case("stage1-origin-kept", XEON4, &["1 100:8>1", "1 2:1>8"]).origins(&[(2, 2)]).any_context(),
        // 17 tasks, 32 cores: package 0 has more sharers than cores, so that no task is brought there.
        case("stage1-origin-kept", XEON4, &[]).origins(&[(2, 2)]),
        // Displaced to the package that it came from: back home, the origin is dropped.
        case("stage1-origin-home", IVY, &["1 100:10>1", "1 2:1>10"]).origins(&[]),
        // Lowest task id first, lowest idle CPU first.
        case("stage1-ties", IVY, &["1 3:12>1", "1 5:11>2", "1 9:10>3"]),
        // Table 1, Hubench (8t), 1.3e-3 per cycle: 4 moves for coherence, none for remote memory.
        case("stage1-hubench", IVY, &["1 5:10>4", "1 6:11>5", "1 7:12>6", "1 8:13>7"]),
        // Table 1, Lubench (8t), 2.6e-4 per cycle: 4 moves.
        case("stage1-lubench", IVY, &["1 5:10>4", "1 6:11>5", "1 7:12>6", "1 8:13>7"]),
        // Package 0 has no inter task; package 1 is the first that has, and draws from 2, then 3.
        case("stage1-4s", XEON4, &["1 2:16>9", "1 3:24>10"]),
        // 10 of 12 sharers fill package 0: it is no source, and full.
        case("stage1-12-at-10-2", TENS, &[]),
        // 6 | 6: package 0 fills to 10.
        case("stage1-12-at-6-6", TENS, &["1 7:10>6", "1 8:11>7", "1 9:12>8", "1 10:13>9"]),
        // As printed: package 1 draws 8 of the 10.
        case("stage1-12-at-10-2", TENS, &["1 1:0>12", "1 2:1>13", "1 3:2>14", "1 4:3>15", "1 5:4>16", "1 6:5>17", "1 7:6>18", "1 8:7>19"]).paper(),
        // Package 0 takes all inter of package 1: 4 there though 5 intra stay.
        case("stage1-takes-all", TENS, &["1 11:10>7", "1 12:11>8", "1 13:12>9"]),
        // 1 | 3, of which only 13 may leave: 2 | 2 is no gain; and 1 may not come.
        case("stage1-confined-majority", FOURS, &[]),
        // 11 must stay, so 12 would leave 2 | 1; package 1 then draws 1: all together.
        case("stage1-confined-one", FOURS, &["1 1:0>6"]),
        // 3 | 2 with two idle contexts on package 1. 11 may only use CPU 2, which 3 holds, so package 0 does not get
        // it; package 1 takes 2 of 3: 2 + 2 > 3.
        case("stage1-cpu-level-mask", TENS, &["1 1:0>12", "1 2:1>13"]),
        // Reluctantly from package 0 to package 3.
        case("stage1-origin-first-of-two", XEON4, &["1 100:24>1", "1 2:1>24"]).origins(&[(2, 0)]).any_context(),
    ]);
}

#[test]
#[rustfmt::skip] // one situation, one line
fn stage_2() {
    check(&[
        // 6 came reluctantly from package 1: both go home, though CPUs are idle.
        case("stage2-exchange", IVY, &["2 5:10>3", "2 6:3>10"]).origins(&[]),
        // Nothing idle on package 0: the first CPU-bound task makes way.
        case("stage2-cpu", FOURS, &["2 5:4>2", "2 3:2>4"]).origins(&[]),
        // Only memory-bound tasks: 1 makes way, its origin is package 0.
        case("stage2-mem", FOURS, &["2 5:4>0", "2 1:0>4"]).origins(&[(1, 0)]),
        // Sharers do not make way; the origin stays.
        case("stage2-full-of-sharers", FOURS, &[]).origins(&[(5, 0)]),
        // No origin, no pages known.
        case("stage2-no-origin", FOURS, &[]).origins(&[]),
        // Ours: most pages on node 0.
        case("stage2-pages", FOURS, &["2 5:4>0"]),
        // The paper has origins only.
        case("stage2-pages", FOURS, &[]).paper(),
        // A sharer does not follow its pages.
        case("stage2-pages-sharer", FOURS, &[]),
        // It is where most of its pages are.
        case("stage2-pages-at-home", FOURS, &[]),
        // 11 left its pages in stage 1; no task moves twice.
        case("stage2-not-after-1", FOURS, &["1 11:4>1", "1 2:1>4"]),
        // 1 with 11, both home; 2 with the first memory-bound task of package 1.
        case("stage2-order", FOURS, &["2 1:0>4", "2 11:4>0", "2 2:1>5", "2 12:5>1"]).origins(&[(12, 1)]),
        // 6 came from package 1, 7 from package 0: 6 is the partner.
        case("stage2-three-packages", XEON4, &["2 5:8>16", "2 6:16>8"]).origins(&[(7, 0)]),
        // Origin 1 is its present place: dropped; its pages are on node 0.
        case("pages-not-after-origin", FOURS, &["2 5:4>0"]).origins(&[]),
        // As printed, P_rem ignores sharing: an origin calls a sharer home, too.
        case("sharer-origin-home", FOURS, &["2 5:4>0"]),
    ]);
}

#[test]
#[rustfmt::skip] // one situation, one line
fn stage_3() {
    check(&[
        // 90e6 on package 0: 1 to the idle CPU 5, not for 11; 60e6 stay.
        case("stage3-idle-first", FOURS, &["3 1:0>5"]),
        // Nothing idle on package 1: the first CPU-bound task there makes way.
        case("stage3-cpu-swap", FOURS, &["3 1:0>4", "3 11:4>0"]),
        // Only sharers on package 1: they never make way in stage 3.
        case("stage3-no-room", FOURS, &[]),
        // 120e6 | 50e6: 50 + 40 > 75.
        case("stage3-would-exceed", FOURS, &[]),
        // 6 x 15e6: 75e6 stay, which is not above M.
        case("stage3-to-the-brim", IVY, &["3 1:0>10"]),
        // 140e6: 105, then 70e6; 35 and 70e6 on package 1.
        case("stage3-two-of-them", FOURS, &["3 1:0>4", "3 2:1>5"]),
        // 240e6: two of 30e6 fit on each of the three others (90 > 75); 60e6 stay.
        case("stage3-targets", XEON4, &["3 1:0>8", "3 2:1>9", "3 3:2>16", "3 4:3>17", "3 5:4>24", "3 6:5>25"]),
        // 100e6, of which sharers do 80: only the memory-bound task without coherence goes.
        case("stage3-inter-stays", FOURS, &["3 3:2>4"]),
        // Table 1, MemBench (8t), already spread: no moves.
        case("stage3-membench", IVY, &[]),
        // Package 1 has no room but sharers: package 2.
        case("stage3-next-target", XEON4, &["3 1:0>16"]),
        // The first mover would make 90 on package 1: it is passed over, and 20 fits.
        case("stage3-passes-over", FOURS, &["3 2:1>5"]),
        // 103e6 | 50e6: 40 would make 90, then 59, 68; 77 > 75.
        case("stage3-heavy-first", IVY, &["3 2:1>15", "3 3:2>16"]),
        // Both packages above M.
        case("stage3-both-over", FOURS, &[]),
        // 90e6 | 28e6: 30 against 7 makes 67e6 | 51e6.
        case("stage3-cpu-demand", FOURS, &["3 1:0>4", "3 11:4>0"]),
        // 90e6 | 54e6: 54 - 7 + 30 = 77 > 75.
        case("stage3-cpu-demand-exceeds", FOURS, &[]),
        // 90e6 | 52e6: 52 - 7 + 30 = 75, not above: 67 | 75.
        case("stage3-cpu-demand-fits", FOURS, &["3 1:0>4", "3 11:4>0"]),
    ]);
}

#[test]
#[rustfmt::skip] // one situation, one line
fn stages_in_order() {
    check(&[
        // Stage 1: 11 for 3. Stage 3: 90e6 on package 0: 2 goes; 3 moved already, so 12 makes way.
        case("order-1-then-3", FOURS, &["1 11:4>2", "1 3:2>4", "3 2:1>5", "3 12:5>1"]),
        // 60e6 | 30e6 before; 11 carries 30e6 along: 90e6 on package 0, and 4, which it left, is idle.
        case("order-sums-anew", FOURS, &["1 11:4>3", "3 2:1>4"]),
    ]);
}

/// Hyperthreads, others' work, masks, cpusets, more tasks than contexts.
#[test]
#[rustfmt::skip] // one situation, one line
fn contexts() {
    check(&[
        // Cores 0-8 busy: 9 is the last first context, then second ones from CPU 20.
        case("smt-first-contexts", IVY, &["1 100:10>9", "1 101:11>20"]).any_context(),
        // 11 tasks, 20 cores (§4.3): CPU-bound 2 makes way instead.
        case("smt-first-contexts", IVY, &["1 100:10>9", "1 101:11>1", "1 2:1>11"]),
        case("smt-first-contexts", IVY, &["1 100:10>9", "1 101:11>1", "1 2:1>11"]).paper(),
        // 20 sharers and a monitor of 1 ms in 100: 20.01 CPUs are wanted, 10 cores a package.
        case("whole-cores-helper", IVY, &[]),
        // Core 1 (CPUs 1, 21) has one context in use: the wholly idle core 2 goes first.
        case("smt-half-idle-core", IVY, &["1 100:10>2"]),
        // CPU 1 is kept busy by other processes.
        case("foreign-busy", IVY, &["1 2:10>2"]),
        // 1 and 2 are forbidden to task 2.
        case("allowed-mover", IVY, &["1 2:10>3"]),
        // 2 may not leave package 1, so that 3 would come alone: 2 | 1 as before; then package 1 takes the only one
        // of package 0.
        case("allowed-mover-confined", IVY, &["1 1:0>12"]),
        // 2 may not go to package 1: 3 makes way.
        case("allowed-victim", FOURS, &["1 11:4>2", "1 3:2>4"]),
        // CPU 1 is outside the cpuset: no context.
        case("cpuset", CPUSET, &["1 11:4>2"]),
        // Package 0 has three usable contexts, all held by sharers: no room, and no source.
        case("cpuset-capacity", CPUSET, &[]),
        // 2 had no cycles: its CPU is idle.
        case("asleep", FOURS, &["1 11:4>1"]),
        // 5 tasks on 4 contexts: the unit of placement is the package.
        case("crowded", TWOS, &["1 11:2>0-1", "1 2:0>2-3"]),
        // 2 sharers on the 2 contexts of package 0, where two CPU-bound tasks wait: no room.
        case("crowded-full", TWOS, &[]),
        // As printed: no room there either; then package 1 draws 1.
        case("crowded-full", TWOS, &["1 1:0>2-3"]).paper(),
        // Nothing to decide.
        case("one-package", ONE, &[]),
        // All CPU time is that of the tasks, as far as is known: 4, which 11 left, is idle.
        case("vacated-place", FOURS, &["1 11:4>3", "3 2:1>4"]),
        // 2 has no place: it neither moves nor occupies a context.
        case("cpu-unknown", FOURS, &["1 11:4>1"]),
        // CPU 3 is offline: package 0 is full.
        case("offline", OFFLINE, &["1 11:4>1", "1 2:1>4"]),
    ]);
}

#[test]
#[rustfmt::skip] // one situation, one line
fn missing_signals() {
    check(&[
        // 78e6/s on package 0: stage 1 is off, stage 3 is not; 21 leaves 52e6.
        case("no-inter", FOURS, &["3 21:1>5"]).note("stage 1"),
        // Nothing shows whether anything ran.
        case("no-cycles", FOURS, &[]).note("cycles"),
        // CPU time does, but no rate per cycle is known. 78e6/s on package 0.
        case("no-cycles-cpu-time", FOURS, &["3 21:1>5"]).note("stages 1 and 2"),
        // Stage 2 is off.
        case("no-remote", FOURS, &[]).note("stage 2"),
        // Stage 3 is off, stage 1 is not.
        case("no-llc", FOURS, &["1 11:4>1"]).note("stage 3"),
        // No remote threshold and no latencies to derive it from.
        case("no-R", FOURS, &[]).note("stage 2"),
        // 2 is unknown: it keeps its context.
        case("some-unknown", FOURS, &["1 11:4>2", "1 3:2>4"]),
        // Nothing known of 2: it keeps its context.
        case("new-task-unknown", FOURS, &["1 11:4>2", "1 3:2>4"]),
    ]);
}

/// EPYC: domains of six cores, 0-5 with 96-101, and so on; package 1 from 48.
#[test]
#[rustfmt::skip] // one situation, one line
fn chiplets_and_pins() {
    check(&[
        // Coherence between chiplets of a package counts as inter.
        case("chiplet-near", EPYC, &["1 2:6>1"]),
        // Near + inter = 60,000 > 55,000.
        case("chiplet-sum", EPYC, &["1 2:6>1"]),
        // Paper: sockets are packages, near is not inter.
        case("chiplet-near", EPYC, &[]).paper(),
        // 1 | 5, 5 in package 1: those two join first, then 1 is brought to them.
        case("chiplet-package-first", EPYC, &["1 21:54>53", "1 22:55>144", "1 23:56>145", "1 24:57>146", "1 25:58>147", "1 1:0>148"]).any_context(),
        // The chiplet of six cores has room for one of those; the other four come to 1.
        case("chiplet-package-first", EPYC, &["1 21:54>53", "1 22:55>1", "1 23:56>2", "1 24:57>3", "1 25:58>4"]),
        // Affinity is the chiplet.
        case("chiplet-near", EPYC, &["1 2:6>1 =0-5,96-101"]).pin(Pin::Llc),
        // Affinity is the node.
        case("chiplet-near", EPYC, &["1 2:6>1 =0-47,96-143"]).pin(Pin::Node),
        // The victim keeps its node: no origin.
        case("chiplet-reluctant-same-node", EPYC, &["1 20:6>1", "1 2:1>6"]).origins(&[]),
        // Stage 3 counts by node: 90e6 on package 0.
        case("chiplet-bandwidth-node", EPYC, &["3 1:0>48"]),
    ]);
}

#[test]
#[rustfmt::skip] // one situation, one line
fn what_the_paper_does_otherwise() {
    check(&[
        // 3e6/s each, a tenth of the time: 9e6/s in all.
        case("wall-clock", FOURS, &[]),
        // As printed, per unhalted cycle: 300,000 / 2.2e7 x 2.2e9 = 30e6/s each, 90e6 in all.
        case("wall-clock-paper", IVY, &["3 1:0>10"]).paper(),
        // Paper's rules: the same where nothing of ours matters.
        case("cpuset", FOURS, &["1 11:4>1"]).paper(),
    ]);
}

/// A fixture that no table names would prove nothing.
#[test]
fn every_fixture_is_used() {
    let this = include_str!("examiner.rs");
    for entry in fs::read_dir(root("fixtures/decide")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.strip_suffix(".json").expect("only snapshots");
        assert!(this.contains(&format!("\"{stem}\"")), "{name} is used nowhere");
    }
}

/// Rounds with carried-out decisions: the next snapshot has the tasks in their new places, the state and the outcomes.
struct Chain {
    machine: Machine,
    config: Config,
    apps: BTreeMap<String, cotenant_model::profile::AppProfile>,
    policy: &'static str,
    snapshot: serde_json::Value,
    round: u32,
}

impl Chain {
    fn new(file: &str, on: &str, policy: &'static str) -> Self {
        Self {
            machine: machine(on),
            config: Config { pin: Pin::Cpu, ..Config::default() },
            apps: BTreeMap::new(),
            policy,
            snapshot: serde_json::from_str(&read(&format!("fixtures/decide/{file}.json"))).unwrap(),
            round: 0,
        }
    }

    fn task(&mut self, id: u32) -> &mut serde_json::Value {
        let tasks = self.snapshot["tasks"].as_array_mut().unwrap();
        tasks.iter_mut().find(|t| t["id"] == id).unwrap()
    }

    /// One round; `fate` gives the outcome of each task's move.
    fn step(&mut self, fate: impl Fn(u32) -> Outcome) -> Answer {
        self.round += 1;
        self.snapshot["at_s"] = (f64::from(self.round) / 10.0).into();
        let topology = &self.machine.topology;
        let snapshot = Snapshot::parse(&self.snapshot.to_string(), topology).unwrap();
        let ctx = Ctx { topology, machine: &self.machine.profile, apps: &self.apps, config: &self.config };
        let policy = cotenant_policies::standard().make(self.policy, &self.config).unwrap();
        let mut answer = snapshot.decide(&ctx, &*policy);
        for (m, outcome) in answer.moves.iter().zip(&mut answer.outcomes) {
            outcome.outcome = fate(m.task.unwrap().0);
            if outcome.outcome == Outcome::Applied && !m.to_cpus.is_empty() {
                self.task_cpu(m.task.unwrap().0, m.to_cpus[0].0);
            }
        }
        self.snapshot["state"] = serde_json::to_value(&answer.state).unwrap();
        self.snapshot["outcomes"] = serde_json::to_value(&answer.outcomes).unwrap();
        answer
    }

    fn task_cpu(&mut self, id: u32, cpu: u32) {
        self.task(id)["cpu"] = cpu.into();
    }

    fn moves(&mut self) -> Vec<String> {
        moves(&self.step(|_| Outcome::Applied))
    }
}

#[test]
fn sharers_that_do_not_fit_one_package_come_to_rest() {
    let mut chain = Chain::new("stage1-12-at-6-6", TENS, "sam");
    assert_eq!(chain.moves(), ["1 7:10>6", "1 8:11>7", "1 9:12>8", "1 10:13>9"]);
    assert!((0..10).all(|_| chain.moves().is_empty()), "10 | 2 stays");
    // As printed they swing for ever.
    let mut chain = Chain::new("stage1-12-at-6-6", TENS, "sam");
    chain.config.settings.put("sam", &SamConfig::paper_exact());
    assert!((0..10).all(|_| !chain.moves().is_empty()));
}

/// A case that a property test found. Sharer 11 may only use CPU 2, where 3 is. Package 0 has room for 1 and 2, but not
/// for all sharers of package 1, which are four.
#[test]
fn a_sharer_that_cannot_come_makes_nobody_swing() {
    let mut chain = Chain::new("stage1-cpu-level-mask", TENS, "sam");
    assert_eq!(chain.moves(), ["1 1:0>12", "1 2:1>13"]);
    assert!((0..10).all(|_| chain.moves().is_empty()));
}

/// I M i i | I . . .
#[test]
fn out_reluctantly_and_home_when_it_meets_remote_memory() {
    let mut chain = Chain::new("chain-reluctant", FOURS, "sam");
    // Denied: not believed, so decided again.
    let denied = chain.step(|_| Outcome::Denied);
    assert_eq!(moves(&denied), ["1 11:4>1", "1 2:1>4"]);
    assert_eq!(chain.moves(), moves(&denied));
    // The sharers now share inside package 0; 2 meets remote memory, but only sharers are at home.
    for sharer in [1, 11] {
        chain.task(sharer)["inter"] = 0.into();
        chain.task(sharer)["intra"] = 200_000.into();
    }
    chain.task(2)["remote"] = 200_000.into();
    assert!((0..3).all(|_| chain.moves().is_empty()));
    // 4 no longer shares: it makes room, and 2 is home for good.
    chain.task(4)["intra"] = 0.into();
    assert_eq!(chain.moves(), ["2 2:4>3", "2 4:3>4"]);
    assert!((0..3).all(|_| chain.moves().is_empty()));
}

/// I c i i | I . . .: what CPU-bound 2 shows right after its move is the move's own coherence (§4.5).
#[test]
fn coherence_of_a_move_is_not_taken_for_sharing() {
    for (switches, then) in [("paper,+cooldown", &[][..]), ("paper", &["1 1:0>5", "1 11:1>6"][..])] {
        let mut chain = Chain::new("chain-cooldown", FOURS, "sam");
        chain.config.settings.put("sam", &switches.parse::<SamConfig>().unwrap());
        assert_eq!(chain.moves(), ["1 11:4>1", "1 2:1>4"]);
        chain.task(2)["inter"] = 200_000.into();
        assert_eq!(chain.moves(), then, "{switches}");
    }
}

/// Tang, table 4.1: the six predictions on Clovertown, with the characteristics in the order that §4.1 gives them.
#[test]
fn heuristic_predicts_table_4_1() {
    let map = |latency: &str, batch: &str| {
        let text = read("fixtures/tang/apps.toml")
            .replace(&format!("[app.{latency}]"), &format!("[app.{latency}]\nlatency_sensitive = true"));
        let apps = cotenant_model::profile::parse_apps(&text).unwrap();
        let high = cotenant_model::machine::parse_profile(&read("fixtures/tang/high.toml")).unwrap();
        let Machine { topology, profile, .. } = machine("clovertown-2s");
        let tasks: Vec<_> = (0..8)
            .map(|i| serde_json::json!({"id": i, "app": if i < 4 { latency } else { batch }, "cpu": 0}))
            .collect();
        let snapshot = serde_json::json!({"interval_s": 0.1, "tasks": tasks}).to_string();
        let config = Config { pin: Pin::Cpu, ..Config::default() };
        let ctx = Ctx { topology: &topology, machine: &high.or(profile), apps: &apps, config: &config };
        let answer = Snapshot::parse(&snapshot, &topology).unwrap().decide(&ctx, &cotenant_policies::Heuristic);
        let mut map = ['.'; 8];
        map[0] = 'X'; // task 0 stays there if the answer does not move it
        for m in &answer.moves {
            assert_eq!(m.to_cpus.len(), 1);
            map[m.to_cpus[0].index()] = if m.task.unwrap().0 < 4 { 'X' } else { '*' };
        }
        map.iter().collect::<String>()
    };
    assert_eq!(map("bigtable", "stitcher"), "XXXX****");
    assert_eq!(map("bigtable", "protobuf"), "XX**XX**", "1 % worse than the optimum");
    assert_eq!(map("contentAnalyzer", "stitcher"), "XXXX****");
    assert_eq!(map("contentAnalyzer", "protobuf"), "X*X*X*X*");
    assert_eq!(map("webSearch", "stitcher"), "XXXX****");
    assert_eq!(map("webSearch", "protobuf"), "X*X*X*X*", "1 % worse than the optimum");
}

/// `static` counts characters in topology order: siblings side by side, nothing for offline CPUs.
#[test]
fn static_maps_on_hyperthreads_and_offline_cpus() {
    let place = |on: &str, map: &str, tasks: serde_json::Value| {
        let Machine { topology, profile, .. } = machine(on);
        let settings = Settings::default().with::<Static>(&StaticSettings { map: Some(map.to_owned()) });
        let config = Config { pin: Pin::Cpu, settings, ..Config::default() };
        let ctx = Ctx { topology: &topology, machine: &profile, apps: &BTreeMap::new(), config: &config };
        let policy = cotenant_policies::standard().make("static", &config).unwrap();
        policy.check(&ctx).map_err(|refusal| refusal.to_string())?;
        let snapshot = serde_json::json!({"interval_s": 0.1, "tasks": tasks}).to_string();
        let answer = Snapshot::parse(&snapshot, &topology).unwrap().decide(&ctx, &*policy);
        Ok::<_, String>(moves(&answer).join(", "))
    };
    let four = || {
        serde_json::json!((1..=4).map(|id| serde_json::json!({"id": id, "app": "a", "cpu": 39})).collect::<Vec<_>>())
    };
    // Two cores of Ivy Bridge, CPUs 0 and 20, 1 and 21: first contexts first.
    let map = format!("XXXX{}", ".".repeat(36));
    assert_eq!(place(IVY, &map, four()).unwrap(), "map 1:39>0, map 2:39>1, map 3:39>20, map 4:39>21");
    // More threads than marks share them.
    let map = format!("XX{}", ".".repeat(38));
    let shared = "map 1:39>0,20, map 2:39>0,20, map 3:39>0,20, map 4:39>0,20";
    assert_eq!(place(IVY, &map, four()).unwrap(), shared);
    // CPU 3 has no character: the fourth one is CPU 4.
    let two = serde_json::json!([{"id": 1, "app": "a", "cpu": 0}, {"id": 2, "app": "b", "cpu": 0}]);
    assert_eq!(place(OFFLINE, "..X|*...", two.clone()).unwrap(), "map 1:0>2, map 2:0>4");
    assert!(place(OFFLINE, "..X.|*...", two.clone()).unwrap_err().contains("8 CPUs, the machine has 7 online"));
    assert!(place(CPUSET, ".X..|*...", two).unwrap_err().contains("position 2 of the mapping stands on CPU 1"));
}
