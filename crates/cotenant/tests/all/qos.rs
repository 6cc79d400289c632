//! `cotenant qos`: programs nap, by themselves or from outside, and after any kill no process stays stopped.

use crate::world::{self, Manager, Pin, State, all_have, comm, masks, signal};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::nice;
use cotenant_model::CpuSet;
use cotenant_testing::{TempDir, eventually, kills, pass, spawn_fresh};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The variable with the role of a copy of this test binary, `high`, `busy`, `marked` or `plain`, and the folder for
/// its process id.
pub const ROLE: &str = "COTENANT_QOS_ROLE";

/// The programs that the other tests run; nothing when it is run as a test.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return world::skip("other tests start it as a program") };
    let (role, folder) = role.split_once(':').unwrap();
    fs::write(format!("{folder}/{role}.new"), std::process::id().to_string()).unwrap();
    fs::rename(format!("{folder}/{role}.new"), format!("{folder}/{role}")).unwrap();
    // Until the end of the test, even after Cotenant died.
    for round in 0_u64.. {
        match role {
            "high" => {
                cotenant_rt::units(1);
                std::thread::sleep(Duration::from_micros(200)); // a pace that needs only a part of a CPU
            }
            "busy" => cotenant_rt::units(1),
            "marked" => cotenant_rt::mark(),
            _ => std::hint::spin_loop(),
        }
        if round % 10_000 == 0 && !fs::exists(folder).unwrap() {
            break;
        }
    }
}

/// A run of `cotenant qos` with test programs.
struct Run {
    cotenant: Child,
    said: Receiver<String>,
    folder: TempDir,
}

/// Every speed is below the lower threshold: naps of 40 ms, long enough for signals too, after each run of 10 ms.
const ALWAYS: [&str; 2] = ["--controller", "simple:1e17,1e18,4/1/0"];

/// What was said so far, for whoever reads why a test failed.
struct Heard(Vec<String>);

impl Drop for Heard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.0.iter().rev().take(12).rev();
            eprintln!("said last, of {} lines: {:#?}", self.0.len(), last.collect::<Vec<_>>());
        }
    }
}

impl Run {
    fn start(state: &State, low: &str, options: &[&str]) -> Self {
        Self::start_on(state, ["high", low], [None, None], options)
    }

    /// With programs of high and of low priority, all on one CPU if given.
    fn start_on(state: &State, roles: [&str; 2], cpus: [Option<&str>; 2], options: &[&str]) -> Self {
        let folder = TempDir::new("qos");
        let this = std::env::current_exe().unwrap();
        let line = |i: usize| {
            let (role, folder, this) = (roles[i], folder.path().display(), this.display());
            let on = cpus[i].map_or_else(String::new, |cpu| format!("taskset -c {cpu} "));
            format!("{ROLE}='{role}:{folder}' exec {on}'{this}' --exact qos::program --nocapture >/dev/null")
        };
        let [high, low] = [0, 1].map(line);
        let words = [&["qos", "-v", "--high", &high, "--low", &low], options].concat();
        Self::of(state.cotenant(&words), folder)
    }

    fn of(mut command: Command, folder: TempDir) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut cotenant = command.spawn().unwrap();
        let stderr = BufReader::new(cotenant.stderr.take().unwrap());
        let (send, said) = channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { cotenant, said, folder }
    }

    /// The process id of a program, once started.
    fn pid_of(&mut self, role: &str) -> u32 {
        self.begun(role).unwrap_or_else(|| panic!("{:?}", self.said.iter().collect::<Vec<_>>()))
    }

    /// The same; `None` if Cotenant ended before.
    fn begun(&mut self, role: &str) -> Option<u32> {
        let mut pid = None;
        let mut ended = false;
        eventually("the program begins", || {
            ended = self.cotenant.try_wait().unwrap().is_some();
            let text = fs::read_to_string(self.folder.path().join(role));
            pid = text.ok().and_then(|text| text.parse().ok());
            pid.is_some() || ended
        });
        pid
    }

    /// Waits for a line with all these words.
    fn hear(&self, parts: &[&str]) -> String {
        let mut heard = Heard(Vec::new());
        eventually(&format!("{parts:?} is said"), || {
            self.said.try_iter().any(|line| {
                heard.0.push(line);
                parts.iter().all(|part| heard.0.last().is_some_and(|line| line.contains(part)))
            })
        });
        heard.0.pop().unwrap()
    }

    /// Sends SIGTERM; returns all further output, and the exit code.
    fn terminate(&mut self) -> (Vec<String>, Option<i32>) {
        signal("TERM", self.cotenant.id());
        let mut status = None;
        eventually("it ends", || {
            status = self.cotenant.try_wait().unwrap();
            status.is_some()
        });
        (self.said.iter().collect(), status.unwrap().code())
    }

    fn guardian(&self) -> Option<u32> {
        let pid = self.cotenant.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let mut children = children.split_whitespace().map(|word| word.parse().unwrap());
        children.find(|pid| comm(*pid) == "cotenant-guard")
    }

    fn kill(&mut self) {
        self.cotenant.kill().unwrap();
        self.cotenant.wait().unwrap();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The folder is dropped after this, and the programs with it.
        let _ = self.cotenant.kill();
        let _ = self.cotenant.wait();
    }
}

/// CPU time of a process so far, clock ticks; `None` after its end.
fn ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

/// CPU time of a process's threads so far, nanoseconds; `None` after its end.
fn ran(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let times = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    times.map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Waits until a busy process runs on, for longer than any nap lasts. In the background of a machine that others fill
/// it hardly gets any time.
pub fn runs_on(what: &str, pid: u32) {
    let ran = || ran(pid).unwrap_or_else(|| panic!("{what}: it lives"));
    let before = ran();
    let least = || if is_in_background(pid) { 2_000_000 } else { 300_000_000 };
    eventually(what, || ran() >= before + least() && !is_paused(pid));
}

/// Whether a process runs only where nobody else wants the CPU, by its own policy, its session or its group.
pub fn is_in_background(pid: u32) -> bool {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let stat = read(format!("/proc/{pid}/stat"));
    let policy = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(38));
    policy == Some("5")
        || read(format!("/proc/{pid}/autogroup")).ends_with("nice 19\n")
        || groups_with(pid, "cpu.idle").iter().any(|idle| idle == "1")
}

/// The content of a file of a process's control groups, in each hierarchy that has it.
fn groups_with(pid: u32, file: &str) -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (groups, mounts) = (read(&format!("/proc/{pid}/cgroup")), read("/proc/mounts"));
    let mounts: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let value = |line: &str| {
        let [_, kinds, path] = line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let is_it = |words: &&Vec<&str>| match kinds {
            "" => words[2] == "cgroup2",
            kinds => words[2] == "cgroup" && kinds.split(',').all(|kind| words[3].split(',').any(|is| is == kind)),
        };
        let text = fs::read_to_string(format!("{}{path}/{file}", mounts.iter().find(is_it)?[1])).ok()?;
        Some(text.trim().to_owned())
    };
    groups.lines().filter_map(value).collect()
}

/// Control groups of ours that belong to a Cotenant that has ended.
pub fn groups_of(pid: u32) -> Vec<String> {
    let groups =
        Command::new("find").args(["/sys/fs/cgroup", "-maxdepth", "4", "-name", "cotenant-*"]).output().unwrap();
    let groups = String::from_utf8_lossy(&groups.stdout).into_owned();
    // The process id is the first number in the name; its start time, the next one, may look like another's id.
    let of = |line: &&str| {
        let name = line.rsplit('/').next().unwrap_or_default();
        name.split('-').find_map(|word| word.parse().ok()) == Some(pid)
    };
    groups.lines().filter(of).map(str::to_owned).collect()
}

/// Holds qos/marked.
#[test]
fn a_marked_program_naps_by_itself() {
    let state = State::new("qos-inside");
    let mut run = Run::start(&state, "marked", &ALWAYS);
    run.hear(&["low ", " naps", "by its marks"]);
    let low = run.pid_of("marked");
    let (said, code) = run.terminate();
    assert_eq!(code, Some(143), "the high one's: {said:?}");
    assert!(said.iter().any(|line| line.contains("own cost")), "{said:?}");
    assert_eq!((ticks(low), state.journals()), (None, 0), "it was asked to end, too");
    assert_eq!(groups_of(run.cotenant.id()), [""; 0]);
}

/// Holds qos/marked.
#[test]
fn an_unmarked_program_is_paused() {
    let state = State::new("qos-outside");
    let mut run = Run::start(&state, "plain", &ALWAYS);
    run.hear(&["low ", " pauses by "]);
    let (said, code) = run.terminate();
    assert_eq!(code, Some(143), "{said:?}");
    assert_eq!(state.journals(), 0);
    assert_eq!(groups_of(run.cotenant.id()), [""; 0]);
}

/// Holds record/why.
#[test]
fn why_tells_of_naps_in_a_recording() {
    let state = State::new("qos-why");
    let folder = TempDir::new("qos-why-recording");
    let file = folder.path().join("a.rec");
    let file = file.to_str().unwrap();
    let mut run = Run::start(&state, "plain", &[&ALWAYS[..], &["--record", file]].concat());
    run.hear(&["low ", " pauses by "]);
    run.terminate();
    // For the napping program, and for the protected one.
    for what in ["app:1", "app:0"] {
        let output = state.cotenant(&["why", file, what, "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let naps = json["standing"].as_array().unwrap().iter().filter(|told| told["means"] == "nap");
        let naps: Vec<&serde_json::Value> = naps.filter(|told| told["outcome"] == "applied").collect();
        let [nap, ..] = naps[..] else { panic!("{json:#}") };
        assert_eq!((&nap["app"], &nap["task"]), (&1.into(), &serde_json::Value::Null), "{json:#}");
        assert!(nap["orders"].as_u64() > Some(1) && nap["until_s"].as_f64() > nap["at_s"].as_f64(), "{nap:#}");
        let why = nap["reason"]["text"].as_str().unwrap();
        assert!(
            why.starts_with("controller: ")
                && why.contains(" had a speed of ")
                && why.ends_with(" < 100.0 P; contention"),
            "{why}"
        );
        let trends = nap["trends"].as_array().unwrap();
        assert!(trends.iter().any(|trend| trend["what"] == "progress" && trend["of"].is_string()), "{nap:#}");
    }
}

/// Holds qos/means.
#[test]
fn another_place_comes_before_naps_on_real_cpus() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("qos-place");
    let mut run = Run::start_on(&state, ["busy", "plain"], [Some(&pin.cpu), None], &ALWAYS);
    let (high, low) = (run.pid_of("busy"), run.pid_of("plain"));
    assert!(all_have(high, &pin.cpu));
    // As far away as possible: with two CPUs, on the other one.
    run.hear(&["low on CPUs "]);
    let cpu = CpuSet::parse_list(&pin.cpu).unwrap();
    let away = |mask: &String| CpuSet::parse_list(mask).is_ok_and(|cpus| !cpus.intersects(&cpu));
    eventually("the other one runs elsewhere", || !masks(low).is_empty() && masks(low).iter().all(away));
    // Nothing of it is left after any end of Cotenant.
    run.kill();
    eventually("it may run where it could", || all_have(low, &pin.own));
    runs_on("it runs on", low);
    eventually("the journal goes", || state.journals() == 0);
}

#[test]
fn no_place_outside_the_users_cpus_is_taken() {
    let Some(pin) = Pin::find() else { return };
    let state = State::new("qos-cpus");
    let options = [&ALWAYS[..], &["--cpus", &pin.cpu]].concat();
    let mut run = Run::start_on(&state, ["busy", "plain"], [Some(&pin.cpu), None], &options);
    let low = run.pid_of("plain");
    // The other CPU would be the milder means.
    let table = run.hear(&["low ", " pauses by "]);
    assert!(!table.contains("low on CPUs") && all_have(low, &pin.own), "{table}: {:?}", masks(low));
    let (said, _) = run.terminate();
    assert!(!said.iter().any(|line| line.contains("low on CPUs")), "{said:?}");
}

#[test]
fn what_cannot_be_counted_comes_from_the_store() {
    let state = State::new("qos-store");
    let folder = TempDir::new("qos-store-data");
    let file = folder.path().join("sleep.toml");
    fs::write(&file, "[app.sleep]\nalone_s = 1\nper_cpu_s = { llc_misses = 3e6 }\n").unwrap();
    let cotenant = |args: &[&str]| {
        let output = state.cotenant(args).env("XDG_DATA_HOME", folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    cotenant(&["profiles", "import", file.to_str().unwrap()]);
    let said = cotenant(&[
        "qos",
        "--json",
        "--high",
        "exec sleep 0.5",
        "--low",
        "exec sleep 0.5",
        "--metric",
        "cmd:echo 1,every=20ms",
    ]);
    let summary: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&summary["policy"], &summary["mode"]), (&"qos".into(), &"enforce".into()), "{summary}");
    if !summary["tier"].as_str().unwrap().starts_with("software only") {
        world::skip("LLC misses may be counted here");
        return;
    }
    let stands_in = "sleep: what cannot be counted here is taken from its profile";
    assert!(summary["notes"].to_string().contains(stands_in), "{summary}");
}

/// Holds qos/limits.
#[test]
fn a_limit_is_kept_and_told() {
    let state = State::new("qos-quota");
    // Both on the same CPU: otherwise the goal may be met after a second, and the limit is lifted before it is
    // reported.
    let pin = Pin::find();
    let cpu = pin.as_ref().map(|pin| pin.cpu.as_str());
    let mut run = Run::start_on(&state, ["busy", "plain"], [cpu, cpu], &["--means", "quota"]);
    let mut heard = None;
    eventually("a limit or why there is none", || {
        heard = run
            .said
            .try_iter()
            .find(|line| line.contains("limit in force: cpu.") || line.contains("cannot be limited"));
        heard.is_some()
    });
    if heard.is_some_and(|line| line.contains("cannot be limited")) {
        eprintln!("skipped: CPU time cannot be limited here");
        return;
    }
    let (said, code) = run.terminate();
    assert_eq!(code, Some(143), "{said:?}");
    assert_eq!((state.journals(), groups_of(run.cotenant.id()).len()), (0, 0));
}

/// Who is frozen and would end in its own way does not: it is let run for that, though the pause goes on.
/// Holds run/end.
#[test]
fn who_pauses_ends_when_it_is_asked_to() {
    let state = State::new("qos-ends");
    let mut high = spawn_fresh(Command::new("sleep").arg("100"));
    let pid = high.id().to_string();
    // Before the first answer, which is late, the speed alone is unknown.
    let metric = "cmd:echo 1,every=10min";
    let low = "trap 'exit 0' TERM; sleep 100 & wait";
    let words = ["qos", "-v", "--high-pid", &pid, "--low", low, "--metric", metric];
    let mut run = Run::of(state.cotenant(&words), TempDir::new("qos-ends-programs"));
    run.hear(&["low ", " pause by "]);
    run.terminate();
    assert_eq!(state.journals(), 0);
    high.kill().unwrap();
    high.wait().unwrap();
}

/// A shell that is asked to end passes that on to nobody.
/// Holds run/end.
#[test]
fn whom_a_shell_has_started_ends_with_it() {
    for time in [false, true] {
        let state = State::new("qos-shell");
        let folder = TempDir::new("qos-shell-programs");
        let told = folder.path().join("sleeper").display().to_string();
        let high = format!("sleep 1000 & printf %s $! >{told}.new; mv {told}.new {told}; wait");
        let words = ["qos", "-v", "--high", &high, "--low", "exec sleep 1000", "--metric", "cmd:echo 1,every=50ms"];
        let asked: &[&str] = if time { &["--time", "1s"] } else { &[] };
        let mut run = Run::of(state.cotenant(&[&words, asked].concat()), folder);
        let sleeper = run.pid_of("sleeper");
        if time {
            eventually("it ends by itself", || run.cotenant.try_wait().unwrap().is_some());
        } else {
            run.hear(&["high"]); // after a look for programs
            run.terminate();
        }
        eventually("whom the shell has started is gone", || !fs::exists(format!("/proc/{sleeper}")).unwrap());
    }
}

/// Promise qos/rules: Rules find programs by path or name, several of each class; the protected program that suffers
/// most decides.
#[test]
fn programs_are_named_by_rules() {
    let state = State::new("qos-rules");
    let folder = TempDir::new("qos-rules-programs");
    let start = |name: &str, role: &str| {
        let path = folder.path().join(name);
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let role = format!("{role}:{}", folder.path().display());
        let mut command = Command::new(&path);
        command.args(["--exact", "qos::program", "--nocapture"]).env(ROLE, role).stdout(Stdio::null());
        (path, spawn_fresh(&mut command))
    };
    // Concurrent runs of this test have a batch of another name.
    let batch = format!("qos-batch-{}", std::process::id());
    let (path, mut high) = start("qos-important", "high");
    let (_, mut low) = start(&batch, "plain");
    let rules = |file: &str, text: String| {
        let file = folder.path().join(file);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let path = path.display();
    let daemons = rules(
        "cotenant.toml",
        format!(
            "mode = 'observe'\ninterval = '1s'\nlisten = ''\nset.shapes.guard = 0.05\n\
             [[rule]]\nname = 'important'\nmatch = {{ command = '{path}' }}\nclass = 'high'\nannotations = ['goal']\n\
             [[rule]]\nname = '{batch}'\nmatch = {{ command = '{batch}' }}\nclass = 'low'\npolicy = 'none'\n\
             [[rule]]\nname = 'no-such'\nmatch = {{ command = 'no-such' }}\nclass = 'low'\n\
             [[rule]]\nname = 'other'\nmatch = {{ unit = 'no-such' }}\n"
        ),
    );
    // Read until 0.2.0.
    let old = rules(
        "config.toml",
        format!(
            "[[rule]]\nname = 'important'\nexecutable = '{path}'\nrole = 'high'\n\
             [[rule]]\nexecutable = '{batch}'\nrole = 'low'\n[[rule]]\nexecutable = 'no-such'\nrole = 'low'\n"
        ),
    );
    // The daemon finds the same by both, and `qos` as well.
    let [by_daemons, by_old] = [&daemons, &old].map(|file| {
        let out = state.cotenant(&["daemon", "--check", "--config", file]).output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        let rows = said.lines().filter(|line| line.contains(" none ") && line.contains("qos-"));
        rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    });
    assert_eq!((by_daemons.len(), &by_daemons), (2, &by_old));
    let of_old = ["config.toml:1:1: executable and role", "write `name = "];
    for (file, warnings) in [(&daemons, &["rule other can match nothing"][..]), (&old, &of_old)] {
        // Long enough for signals, without moves to a control group.
        let words = ["qos", "-v", "--config", file, "--controller", "simple:1e17,1e18,4/1/0"];
        let mut run = Run::of(state.cotenant(&words), TempDir::new("qos"));
        for warning in warnings {
            run.hear(&[warning]);
        }
        run.hear(&["high important: "]);
        run.hear(&[&format!("low {batch}: "), " pauses by SIGSTOP"]);
        let (said, code) = run.terminate();
        assert_eq!(code, Some(0), "they were not started by it: {said:?}");
        assert!(said.iter().any(|line| line.contains("rule no-such matches no running process")), "{said:?}");
        runs_on("who was paused runs on", low.id());
    }
    let ended = [&mut high, &mut low].map(|program| program.try_wait().unwrap());
    assert_eq!((ended, state.journals()), ([None, None], 0), "nobody is signalled who was not started here");
    for program in [&mut high, &mut low] {
        program.kill().unwrap();
        program.wait().unwrap();
    }
}

/// A program without Cotenant, ended on drop.
struct Lone(Child);

impl Lone {
    fn start(role: &str, folder: &TempDir) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "qos::program", "--nocapture"]).stdout(Stdio::null());
        Self(command.env(ROLE, format!("{role}:{}", folder.path().display())).spawn().unwrap())
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Promise undo/several: Two Cotenants leave each other's programs alone, and no control group is frozen that holds a
/// program which must not pause.
#[test]
fn two_cotenants_leave_each_others_programs_alone() {
    let (state, programs) = (State::new("qos-two"), TempDir::new("qos-two"));
    let low = Lone::start("marked", &programs);
    let pid = low.0.id().to_string();
    let this = std::env::current_exe().unwrap();
    let start = || {
        let folder = TempDir::new("qos");
        let role = format!("{ROLE}='high:{}'", folder.path().display());
        let high = format!("{role} exec '{}' --exact qos::program --nocapture >/dev/null", this.display());
        // Long enough for signals, when another one owns the marks.
        let words = ["qos", "-v", "--high", &high, "--low-pid", &pid, "--controller", "simple:1e17,1e18,4/1/0"];
        Run::of(state.cotenant(&words), folder)
    };
    let mut first = start();
    first.hear(&["low ", " naps", "by its marks"]);
    let mut second = start();
    second.hear(&["high ", "of its speed alone"]);
    let (said, code) = second.terminate();
    let other = format!("another cotenant (process {}) manages it", first.cotenant.id());
    assert_eq!(code, Some(143), "{said:?}");
    assert!(said.iter().any(|line| line.contains(&other)), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("cotenant: low ") && line.ends_with(" CPUs")), "{said:?}");
    first.hear(&["low ", " naps", "by its marks"]);
    assert_eq!(first.terminate().1, Some(143));
    runs_on("it runs on", low.0.id());
    assert_eq!(state.journals(), 0);
}

/// Holds qos/rules.
#[test]
fn several_of_each_priority() {
    let (state, folder) = (State::new("qos-several"), TempDir::new("qos"));
    let this = std::env::current_exe().unwrap();
    let line = |role: &str| {
        let (folder, this) = (folder.path().display(), this.display());
        format!("{ROLE}='{role}:{folder}' exec '{this}' --exact qos::program --nocapture >/dev/null")
    };
    let [one, two, marked, plain] = ["high", "busy", "marked", "plain"].map(line);
    let words = ["qos", "-v", "--high", &one, "--high", &two, "--low", &marked, "--low", &plain];
    let mut run = Run::of(state.cotenant(&[&words[..], &ALWAYS].concat()), folder);
    run.hear(&[" naps", "by its marks"]);
    run.hear(&[" pauses by "]);
    let lows = ["marked", "plain"].map(|role| run.pid_of(role));
    let (said, code) = run.terminate();
    let of = |kind: &str| said.iter().filter(|line| line.starts_with(&format!("cotenant: {kind} "))).count();
    assert_eq!((code, of("high"), of("low")), (Some(143), 2, 2), "{said:?}");
    assert_eq!((lows.map(ticks), state.journals()), ([None; 2], 0));
    assert_eq!(groups_of(run.cotenant.id()), [""; 0]);
}

/// Holds qos/marked.
#[test]
fn who_has_no_marks_is_told() {
    let state = State::new("qos-no-marks");
    let mut run = Run::start(&state, "plain", &[&ALWAYS[..], &["--means", "inside"]].concat());
    run.hear(&["high ", "/s)"]); // its speed alone is known, so there were naps
    let (said, _) = run.terminate();
    assert!(said.iter().any(|line| line.contains("has passed no mark")), "{said:?}");
}

/// The complete output of a run, and its summary.
fn summary(words: &[&str]) -> (serde_json::Value, Option<i32>) {
    let state = State::new("qos-summary");
    let (said, code) = Manager::start(state.cotenant(&[&["qos", "--json"], words].concat())).end();
    let json = said.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    (json.unwrap_or_else(|| panic!("{said}")), code)
}

/// Holds record/adds-up.
#[test]
fn summary_report_and_why_count_the_same_naps() {
    let folder = TempDir::new("qos-counts");
    let [file, page] = ["a.rec", "a.html"].map(|name| folder.path().join(name).display().to_string());
    // Above the goal in some readings and below it in others, so that duties alternate.
    let metric = "cmd:date +%N | cut -c1,every=20ms";
    let words = ["--high", "sleep 1000", "--low", "exec sleep 1000", "--means", "outside", "--time", "2s"];
    let (json, _) = summary(&[&words[..], &["--metric", metric, "--record", &file]].concat());
    let low = &json["low"][0];
    let naps = low["naps_ordered"].as_u64().unwrap();
    assert!(naps > 0 && naps == json["naps_ordered"] && naps == low["naps_carried_out"], "{json:#}");
    let state = State::new("qos-counts-read");
    let output = state.cotenant(&["why", &file, "app:1", "--json"]).output().unwrap();
    let why: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = why["standing"].as_array().unwrap().iter().filter(|told| told["means"] == "nap");
    assert!(told.clone().count() > 0 && told.clone().all(|told| told["naps"] == naps), "{naps}: {why:#}");
    assert!(state.cotenant(&["report", &file, "-o", &page]).status().unwrap().success());
    let page = fs::read_to_string(&page).unwrap();
    let row = format!("<th scope=\"row\">low sleep</th><td class=\"n\">{naps}</td><td class=\"n\">{naps}</td>");
    assert!(page.contains(&row), "{row} {page}");
    // The reported time in them is the real one: the last sample may be a little older than the end.
    let asleep = page.split(&row).nth(1).and_then(|rest| rest.strip_prefix("<td class=\"n\">")?.split('<').next());
    let (asleep, really): (f64, f64) = (asleep.unwrap().parse().unwrap(), low["outside_s"].as_f64().unwrap());
    assert!((really - 0.3..=really + 1e-3).contains(&asleep), "{asleep} of {really}");
    // And so does the report of the summary itself.
    folder.write("summary.json", json.to_string());
    let summary = folder.path().join("summary.json").display().to_string();
    let output = state.cotenant(&["report", &summary, "-o", "-"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    let row = format!("<td class=\"n\">{naps}</td><td class=\"n\">{naps}</td>");
    assert!(page.contains(&row) && page.contains("Throttled programs"), "{row} {page}");
}

#[test]
fn a_run_that_is_too_short_to_judge_says_so() {
    let metric = "cmd:echo 5,every=50ms";
    // Long enough for the first readings on a busy machine, and for fewer than five pieces of a second.
    let words = ["--high", "sleep 1000", "--low", "exec sleep 1000", "--metric", metric, "--time", "4s"];
    let (json, code) = summary(&words);
    assert_eq!((&json["high"][0]["verdict"], code), (&"unsure".into(), Some(0)), "{json:#}");
    let judgement = json["high"][0]["judgement"].as_str().unwrap();
    let why = ["not judged: too short", "not judged: this machine was busy"];
    assert!(why.iter().any(|why| judgement.starts_with(why)), "{judgement}");
    assert_eq!(json["high"][0]["achieved_interval"], serde_json::Value::Null);
    let (json, code) = summary(&[&words[..], &["--strict"]].concat());
    assert_eq!((&json["exit_code"], code), (&4.into(), Some(4)), "{json:#}");
}

/// Each reading is an eighth below the one before: whatever the speed alone is, what follows is slower.
#[test]
fn a_missed_goal_is_an_exit_code_where_it_is_asked_for() {
    let folder = TempDir::new("qos-missed");
    let count = folder.path().join("count").display().to_string();
    fs::write(&count, "1000000000000000000").unwrap();
    let slower = format!("cmd:n=$(($(cat {count}) * 7 / 8)); echo $n >{count}; echo $n,every=50ms");
    for (metric, verdict, code) in [(&*slower, "missed: ", 3), ("cmd:echo 5,every=50ms", "kept ", 143)] {
        let state = State::new("qos-strict");
        let words = ["qos", "-v", "--high", "sleep 1000", "--low", "exec sleep 1000", "--strict", "--metric", metric];
        let mut run = Run::of(state.cotenant(&words), TempDir::new("qos-strict-programs"));
        // If other programs leave too little of this machine, there is no verdict.
        let mut heard = String::new();
        eventually("it judges", || {
            let judged = |line: &String| {
                line.contains(&format!("high sleep: {verdict}")) || line.contains("this machine was busy")
            };
            run.said.try_iter().find(judged).inspect(|line| heard.clone_from(line)).is_some()
        });
        let (said, ended) = run.terminate();
        let busy = said.iter().chain([&heard]).any(|line| line.contains("this machine was busy"));
        assert_eq!(ended, Some(if busy { 4 } else { code }), "{verdict}: {heard} {said:?}");
    }
}

/// What fills the machine is named, and no goal is judged, whatever its figures are.
/// Holds run/busy.
#[test]
fn a_machine_that_others_fill_gives_no_verdict() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    // Twice as many as the CPUs, since other tests take some.
    let folder = TempDir::new("qos-busy");
    let spinner = folder.path().join("compiler");
    fs::copy("/bin/sh", &spinner).unwrap();
    let spin = |_| Command::new(&spinner).args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
    let mut spinners: Vec<Child> = (0..2 * cpus).map(spin).collect();
    // Each reports its name before it sleeps.
    let told = |name: &str| folder.path().join(name);
    let [high, low] = [("high", "sleep 1000"), ("low", "exec nice sleep 1000")]
        .map(|(name, then)| format!("echo $$ >{}; {then}", told(name).display()));
    let metric = "cmd:echo 5,every=50ms";
    let words = ["qos", "--json", "--high", &high, "--low", &low, "--metric", metric, "--time", "8s", "--strict"];
    let state = State::new("qos-busy");
    let run = Manager::start(state.cotenant(&words));
    let mut pids = [0; 2];
    eventually("both run", || {
        let pid = |name| fs::read_to_string(told(name)).ok()?.trim().parse().ok();
        pids = ["high", "low"].map(|name| pid(name).unwrap_or_default());
        pids[0] > 0 && comm(pids[1]) == "sleep"
    });
    let in_vain = nice::remark(&FsRoot::live(), ("low echo", pids[1]), ("high echo", pids[0]));
    let (said, code) = run.end();
    let json: serde_json::Value = said.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap();
    for spinner in &mut spinners {
        spinner.kill().unwrap();
        spinner.wait().unwrap();
    }
    let before = &json["usage"]["before"];
    let programs = before["programs"].as_array().unwrap();
    // When all tests run, the whole list may be other tests' programs.
    assert!(programs.len() == 8 || programs.iter().any(|one| one["program"] == "compiler"), "{before}");
    assert_eq!((&json["high"][0]["verdict"], code), (&"unsure".into(), Some(4)), "{json:#}");
    let judgement = json["high"][0]["judgement"].as_str().unwrap();
    assert!(judgement.starts_with("not judged: this machine was busy before the start ("), "{judgement}");
    let notes = json["notes"].to_string();
    // It has an effect if neither has its own session or control group.
    let says = notes.contains("which has no effect on");
    assert!(in_vain.as_ref().map_or(!says, |text| notes.contains(text)), "{in_vain:?}: {notes}");
}

/// Once its speed alone is known, it is slower whatever of ours runs, as if compilers had begun: these run on.
/// Holds qos/innocent.
#[test]
fn what_is_slow_in_pauses_as_well_throttles_nobody() {
    let folder = TempDir::new("qos-others");
    let slow = folder.path().join("slow").display().to_string();
    let (state, metric) = (State::new("qos-others"), format!("cmd:cat {slow} 2>/dev/null || echo 10,every=50ms"));
    let words = ["qos", "-v", "--high", "sleep 1000", "--low", "exec sleep 1000", "--metric", &metric];
    let mut run = Run::of(state.cotenant(&words), TempDir::new("qos-others-programs"));
    run.hear(&["high sleep: ", "; cmd 10", "(alone 10"]);
    fs::write(&slow, "5\n").unwrap();
    let missed = ["sleep: goal missed even while low-priority programs pause: ", "; the low-priority programs run on"];
    let (mut heard, mut full) = (false, 0);
    eventually("it is missed in pauses, or there are none for a minute", || {
        for line in run.said.try_iter() {
            heard |= missed.iter().all(|part| line.contains(part));
            full += u32::from(line.contains("others fill the machine, so that no pause would tell anything"));
        }
        heard || full >= 60
    });
    if !heard {
        eprintln!("skipped: other programs fill this machine, so that nothing is paused");
        run.terminate();
        return;
    }
    // If other tests fill the machine, that is the reason.
    let whys = ["others make it slow, not the low-priority programs", "others fill the machine"];
    eventually("why is said", || run.said.try_iter().any(|line| whys.iter().any(|why| line.contains(why))));
    let (said, _) = run.terminate();
    let noted = |line: &String| {
        line.contains("note: for ")
            && line.contains(
                "sleep: goal missed even while \
         low-priority programs pause: ",
            )
    };
    assert!(said.iter().any(noted), "{said:?}");
}

#[test]
fn a_speed_that_is_never_known_throttles_nobody_for_long() {
    let metric = "cmd:false,every=20ms,timeout=20ms";
    let words = ["--high", "sleep 1000", "--low", "exec sleep 1000", "--metric", metric, "--means", "outside"];
    let state = State::new("qos-unknown");
    let mut run = Run::of(state.cotenant(&[&["qos", "-v"][..], &words].concat()), TempDir::new("qos-unknown-programs"));
    run.hear(&["sleep: no reading of cmd for ", "the low-priority programs run unthrottled until one comes"]);
    run.hear(&["high sleep: not judged: ", "; cmd ? (alone ?"]);
    run.terminate();
    let (json, code) = summary(&["--high", "sleep 0.5", "--low", "sleep 0.4", "--metric", metric]);
    assert_eq!((code, &json["exit_code"]), (Some(4), &4.into()), "{json:#}");
}

/// A server does not end with its shell: it has something to write first. What it starts behind many others is not
/// overlooked.
#[test]
fn a_run_of_some_time_ends_behind_all_that_it_has_started() {
    let folder = TempDir::new("qos-time-programs");
    let told = folder.path().join("server").display().to_string();
    let many = "for i in 1 2 3 4 5 6 7 8 9 10; do (:); done";
    let server = format!("trap \"sleep 1; echo over >{told}\" TERM; sleep 1.1; {many}; sleep 1000 & wait");
    // With our pipes inherited, this test itself would wait for it.
    let high = format!("sh -c '{server}' >/dev/null 2>&1 & wait");
    let words = ["--high", &high, "--low", "exec sleep 1000", "--metric", "cmd:echo 1,every=20ms", "--time", "1500ms"];
    let (json, _) = summary(&words);
    assert_eq!(fs::read_to_string(&told).ok().as_deref(), Some("over\n"), "{json:#}");
}

/// Holds run/observe.
#[test]
fn what_is_only_watched_ends_with_its_shell() {
    let folder = TempDir::new("qos-watched");
    let told = folder.path().join("low").display().to_string();
    let low = format!("sh -c 'trap \"echo over >{told}; exit\" TERM; sleep 1000 & wait' >/dev/null 2>&1 & wait");
    let high = "exec sleep 1000";
    let words =
        ["--high", high, "--low", &low, "--metric", "cmd:echo 1,every=20ms", "--mode", "observe", "--time", "2s"];
    let (json, _) = summary(&words);
    assert_eq!(fs::read_to_string(&told).ok().as_deref(), Some("over\n"), "{json:#}");
}

/// Holds run/end.
#[test]
fn a_server_that_runs_already_is_not_awaited_when_the_batch_has_ended() {
    let mut server = spawn_fresh(Command::new("sleep").arg("1000"));
    let pid = server.id().to_string();
    let words = ["--high-pid", &pid, "--low", "exec sleep 0.5", "--metric", "cmd:echo 1,every=20ms"];
    let (json, code) = summary(&words);
    assert_eq!((code, server.try_wait().unwrap()), (Some(0), None), "{json:#}");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Holds undo/pauses.
#[test]
fn without_a_journal_nothing_is_started() {
    let (state, folder) = (State::new("qos-no-journal"), TempDir::new("qos-not-started"));
    let started = folder.path().join("started").display().to_string();
    let words = ["qos", "--high", "exec sleep 1000", "--low", &format!("touch '{started}'; exec sleep 1000")];
    let done = state.cotenant(&words).env("COTENANT_STATE_DIR", "/proc/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("no journal can be made"), "{said}");
    assert!(!fs::exists(&started).unwrap(), "{said}");
}

/// Holds speed/bad-metric.
#[test]
fn a_metric_that_fails_is_said_at_once() {
    let state = State::new("qos-metric");
    let mut run = Run::start(&state, "plain", &["--metric", "cmd:false,every=20ms"]);
    run.hear(&["metric cmd: it ended with exit code 1"]);
    assert!(run.cotenant.try_wait().unwrap().is_none(), "it goes on");
    run.terminate();
}

/// Holds run/observe.
#[test]
fn advice_stops_nobody() {
    let state = State::new("qos-advise");
    let mut run = Run::start(&state, "plain", &[&ALWAYS[..], &["--mode", "advise"]].concat());
    run.hear(&["high ", "progress ", "/s (alone ", "of its speed alone"]);
    runs_on("nobody is stopped", run.pid_of("plain"));
    assert_eq!((run.guardian(), groups_of(run.cotenant.id()).len()), (None, 0));
    let (said, _) = run.terminate();
    assert!(said.iter().any(|line| line.contains("low ") && !line.contains("pause")), "{said:?}");
}

/// Holds undo/pauses.
#[test]
fn whoever_is_killed_nobody_stays_stopped() {
    for low in ["plain", "marked"] {
        for how in ["cotenant", "guardian", "both", "high", "low"] {
            let what = format!("{low}, {how} killed");
            let state = State::new("qos-kill");
            let mut run = Run::start(&state, low, &ALWAYS);
            let slept = if low == "plain" { " pauses by " } else { " naps" };
            run.hear(&["low ", slept]);
            let (high_pid, low_pid) = (run.pid_of("high"), run.pid_of(low));
            let pid = run.cotenant.id();
            match how {
                "cotenant" => {
                    run.kill();
                    runs_on(&what, low_pid);
                    eventually("the journal goes", || state.journals() == 0);
                    assert_eq!(groups_of(pid), [""; 0], "{what}");
                }
                "guardian" => {
                    let guardian = run.guardian().expect("it is there before the first pause");
                    signal("KILL", guardian);
                    eventually("another guardian", || run.guardian().is_some_and(|new| new != guardian));
                    runs_on(&what, low_pid);
                    run.terminate();
                    assert_eq!((groups_of(pid).len(), state.journals()), (0, 0), "{what}");
                }
                "both" => {
                    let guardian = run.guardian().expect("it is there before the first pause");
                    for name in ["STOP", "KILL"] {
                        signal(name, pid);
                        signal(name, guardian);
                    }
                    run.kill();
                    eventually("the guardian has ended", || comm(guardian).is_empty());
                    let restore = state.cotenant(&["restore"]).output().unwrap();
                    assert!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stdout));
                    runs_on(&what, low_pid);
                    assert_eq!((groups_of(pid).len(), state.journals()), (0, 0), "{what}");
                }
                "high" => {
                    signal("KILL", high_pid);
                    runs_on(&what, low_pid);
                    run.terminate();
                    assert_eq!((groups_of(pid).len(), state.journals()), (0, 0), "{what}");
                }
                _ => {
                    signal("KILL", low_pid);
                    eventually("it is gone", || ticks(low_pid).is_none());
                    assert!(ticks(high_pid).is_some(), "{what}: the other one is untouched");
                    run.terminate();
                    assert_eq!((groups_of(pid).len(), state.journals()), (0, 0), "{what}");
                }
            }
        }
    }
}

/// Holds undo/pauses.
#[test]
fn random_kills_leave_nobody_stopped() {
    let pin = Pin::find();
    let cpu = pin.as_ref().map(|pin| pin.cpu.as_str());
    let cases: [(&str, &str, &[&str]); 4] = [
        ("pauses", "plain", &ALWAYS),
        ("naps", "marked", &ALWAYS),
        ("limits of CPU time", "plain", &["--means", "quota"]),
        ("the background", "plain", &["--metric", "cmd:echo 1,every=20ms"]),
    ];
    for (what, low, options) in cases {
        // At some point in the first runs and pauses.
        for moment in kills(5, Duration::from_millis(300)) {
            let state = State::new("qos-random");
            let mut run = Run::start_on(&state, ["busy", low], [cpu, cpu], options);
            let Some(low) = run.begun(low) else {
                let why = run.hear(&["cannot be limited here"]);
                world::skip(&why);
                break;
            };
            pass(moment);
            let pid = run.cotenant.id();
            run.kill();
            runs_on(&format!("{what}, killed after {moment:?}"), low);
            // A journal without applied changes has no guardian.
            assert!(state.cotenant(&["restore"]).output().unwrap().status.success());
            assert_eq!(state.journals(), 0, "{what}, killed after {moment:?}");
            assert_eq!(groups_of(pid), [""; 0], "{what}");
        }
    }
}

/// Whether a process is paused now, by a freezer or by a signal.
pub fn is_paused(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        || groups_with(pid, "freezer.state").iter().any(|state| state != "THAWED")
        || groups_with(pid, "cgroup.freeze").iter().any(|state| state != "0")
}

/// Stops processes and waits until they are.
pub fn stop(pids: &[u32]) {
    for pid in pids {
        signal("STOP", *pid);
    }
    let state = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    eventually("they are stopped", || pids.iter().all(|pid| state(pid).contains(") T ")));
}

pub fn force(state: &State) -> String {
    let out = state.cotenant(&["restore", "--force"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Holds undo/pauses.
#[test]
fn whoever_is_stopped_nobody_stays_stopped() {
    for how in ["cotenant", "both, and the guardian goes on", "both, and cotenant goes on", "both, and force is used"] {
        let state = State::new("qos-stop");
        let mut run = Run::start(&state, "plain", &ALWAYS);
        run.hear(&["low ", " pauses by "]);
        let (pid, low) = (run.cotenant.id(), run.pid_of("plain"));
        eventually("stopped in the middle of a pause", || {
            stop(&[pid]);
            let paused = is_paused(low);
            if !paused {
                signal("CONT", pid);
            }
            paused
        });
        let guardian = run.guardian().expect("it is there before the first pause");
        if how != "cotenant" {
            stop(&[guardian]);
        }
        match how {
            "both, and the guardian goes on" => signal("CONT", guardian),
            "both, and cotenant goes on" => signal("CONT", pid),
            "both, and force is used" => {
                let said = force(&state);
                assert!(said.contains("is stopped: what it had paused runs"), "{said}");
            }
            _ => {}
        }
        runs_on(how, low);
        for pid in [guardian, pid].into_iter().filter(|pid| !comm(*pid).is_empty()) {
            signal("CONT", pid); // the guardian may have been replaced
        }
        let (said, code) = run.terminate();
        assert_eq!((code, state.journals()), (Some(143), 0), "{how}: {said:?}");
        assert_eq!(groups_of(pid), [""; 0], "{how}");
        // On a busy machine the guardian may have been first in the other cases too.
        if ["cotenant", "both, and the guardian goes on"].contains(&how) {
            assert!(said.iter().any(|line| line.contains("cotenant stood still")), "{how}: {said:?}");
        }
    }
}

/// Any of the two is killed or stopped at any moment.
/// Holds undo/pauses.
#[test]
fn random_kills_and_stops_leave_nobody_stopped() {
    let cases: [(&str, &[&str]); 4] = [
        ("plain", &ALWAYS),
        ("marked", &ALWAYS),
        ("plain", &["--means", "quota"]),
        ("plain", &["--metric", "cmd:echo 1,every=20ms"]),
    ];
    let ways =
        ["STOP", "STOP guardian", "STOP both, one goes on", "STOP both, force", "STOP, KILL guardian, force", "KILL"];
    let rounds = kills(12, Duration::from_millis(300)).enumerate();
    for (round, moment) in rounds {
        // Mostly the programs paused from outside.
        let (role, options) = cases[if round % 2 == 0 { 0 } else { round / 2 % cases.len() }];
        let way = ways[round % ways.len()];
        let what = format!("round {round}: {role} {options:?}, {way} after {moment:?}");
        let state = State::new("qos-storm");
        let mut run = Run::start(&state, role, options);
        let Some(low) = run.begun(role) else { continue }; // limits are unavailable here
        pass(moment);
        let (pid, guardian) = (run.cotenant.id(), run.guardian());
        match way {
            "KILL" => run.kill(),
            "STOP guardian" => stop(guardian.as_slice()),
            "STOP both, one goes on" => {
                stop(&guardian.into_iter().chain([pid]).collect::<Vec<_>>());
                signal("CONT", guardian.filter(|_| round % 4 == 2).unwrap_or(pid));
            }
            "STOP both, force" => {
                stop(&guardian.into_iter().chain([pid]).collect::<Vec<_>>());
                force(&state);
            }
            "STOP, KILL guardian, force" => {
                stop(&[pid]);
                if let Some(guardian) = guardian {
                    signal("KILL", guardian);
                }
                force(&state);
            }
            _ => stop(&[pid]),
        }
        runs_on(&what, low);
        // Ends all of them in any state.
        let _ = run.cotenant.kill();
        let _ = run.cotenant.wait();
        for stopped in guardian.iter().filter(|pid| !comm(**pid).is_empty()) {
            signal("CONT", *stopped);
        }
        runs_on(&what, low);
        assert!(state.cotenant(&["restore"]).output().unwrap().status.success());
        assert_eq!((state.journals(), groups_of(pid).len(), is_paused(low)), (0, 0, false), "{what}");
        let stat = fs::read_to_string(format!("/proc/{low}/stat")).unwrap();
        let policy = stat.rsplit_once(") ").unwrap().1.split(' ').nth(38);
        assert_eq!(policy, Some("0"), "{what}: in the background");
    }
}

/// Holds run/wrong-input.
#[test]
fn wrong_words_start_nothing() {
    let folder = TempDir::new("qos-words");
    let file = folder.path().join("started");
    let touch = format!("touch {}", file.display());
    let file_of = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let none = file_of("none.toml", "interval = '50ms'");
    let role = file_of("role.toml", "[[rule]]\nexecutable = 'a'\nrole = 'middle'");
    let both = file_of("both.toml", "[[rule]]\nexecutable = 'a'\ncgroup = '/b'\nrole = 'low'");
    let metric = file_of("metric.toml", "\n[[rule]]\nexecutable = 'a'\nrole = 'low'\nmetric = 'ipc'");
    let wrong = file_of("wrong.toml", "[[rule]]\nexecutable = 'a'\nrole = 'high'\nmetric = 'x'");
    let me = std::process::id().to_string();
    let (send, tid) = channel();
    std::thread::spawn(move || {
        let link = fs::read_link("/proc/thread-self").unwrap();
        send.send(link.file_name().unwrap().to_str().unwrap().to_owned()).unwrap();
        loop {
            std::thread::park();
        }
    });
    let tid = tid.recv().unwrap();
    let group_of = |name: &str, members: &str| {
        fs::create_dir(folder.path().join(name)).unwrap();
        file_of(&format!("{name}/cgroup.procs"), members);
        folder.path().join(name).display().to_string()
    };
    let (empty, mine) = (group_of("empty", ""), group_of("mine", &me));
    let deserted = format!("[[rule]]\ncgroup = '{empty}'\nrole = 'high'");
    let deserted = file_of("deserted.toml", &deserted);
    let nobody = file_of("nobody.toml", "[[rule]]\nexecutable = 'no-such-program-runs'\nrole = 'high'");
    let cases: [(&[&str], &str); 24] = [
        (&["--high", &touch], "no low-priority program is named"),
        (&["--low", &touch], "no high-priority program is named"),
        (&["--high", &touch, "--low", &touch, "--goal", "110%"], "not a share"),
        (&["--high", &touch, "--low", &touch, "--controller", "x"], "conservative-90"),
        (&["--high", &touch, "--low", &touch, "--controller", "balanced"], "instructions per cycle"),
        (
            &["--high", &touch, "--low", &touch, "--controller", "relaxed-90", "--goal", "80%"],
            "a goal of its own, 90 %",
        ),
        (&["--high", &touch, "--low", &touch, "--controller", "steady"], "use --controller tracking"),
        (
            &["--high", &touch, "--low", &touch, "--metric", "cmd:echo 1", "--controller", "targeted"],
            "use --controller steady",
        ),
        (
            &["--high", &touch, "--low", &touch, "--means", "quota", "--controller", "targeted"],
            "use --controller tracking",
        ),
        (
            &["--high", &touch, "--low", &touch, "--controller", "simple:1,2,2/1/0", "--goal", "80%"],
            "has no goal; leave --goal out",
        ),
        (
            &["--high", &touch, "--low", &touch, "--controller", "balanced", "--metric", "ipc", "--goal", "80%"],
            "has no goal; leave --goal out",
        ),
        (&["--high", &touch, "--low", &touch, "--metric", "cmd:echo 1,name=ipc"], "cannot be called 'ipc'"),
        (&["--high-pid", &me, "--low-pid", &me], "is of high and of low priority"),
        (&["--high-pid", &me, "--low-cgroup", &mine], "is of high and of low priority"),
        (&["--high-pid", &tid, "--low", &touch], "is a thread of process"),
        (&["--high-cgroup", &empty, "--low", &touch], "is empty; start the high-priority program first"),
        (&["--config", &deserted], "no running process matches a rule with class = \"high\""),
        (&["--config", &none], "no program is named"),
        (&["--config", &none, "--high", &touch], "leave it out"),
        (&["--config", &role], "role.toml:3:8: unknown variant `middle`"),
        (&["--config", &both], "both.toml:1:1: executable and cgroup are older names for match"),
        (&["--config", &metric], "metric.toml:5:10: metric is for class = \"high\""),
        (&["--config", &wrong], "wrong.toml:4:10: metric"),
        (&["--config", &nobody], "no running process matches a rule with class = \"high\""),
    ];
    for (words, why) in cases {
        let out = Command::new(env!("CARGO_BIN_EXE_cotenant")).arg("qos").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}: {said}");
        let lines = said.lines().filter(|line| !line.contains("from 0.2.0 on")).count();
        assert!(said.contains(why) && lines == 1, "{words:?}: {said}");
    }
    assert!(!file.exists());
}
