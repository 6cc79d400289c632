//! `cotenant schedule` for a user: queues of real programs, with all kinds of failures.

use crate::world::{self, Manager, State, signal};
use cotenant_testing::{TempDir, eventually, kills, pass};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

/// A queue in its own folder, with a state of Cotenant apart from all others.
struct Queue {
    dir: TempDir,
    state: State,
    name: &'static str,
}

impl Queue {
    fn new(test: &str, name: &'static str, queue: &str) -> Self {
        let dir = TempDir::new(test);
        fs::write(dir.path().join(name), queue).unwrap();
        Self { dir, state: State::new(test), name }
    }

    /// So many jobs that run until the file `stop` exists; each repeatedly writes its identity and a sign of life.
    fn of_loops(test: &str, jobs: usize) -> Self {
        let line = |i| format!("echo $$ > {i}.pid; while [ ! -e stop ]; do echo >> {i}.beat; sleep 0.01; done\n");
        Self::new(test, "list", &(1..=jobs).map(line).collect::<String>())
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.state.cotenant(&[&["schedule", self.name], args].concat());
        command.current_dir(self.dir.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        Manager::start(self.command(args)).output()
    }

    /// Under `mas` on one CPU, so that one job runs at a time.
    fn mas(&self, args: &[&str]) -> Manager {
        let cpu = one_cpu();
        let common = ["--policy", "mas", "--quantum", "20ms", "--cpus", &cpu, "--jobs", "100", "--json"];
        Manager::start(self.command(&[&common, args].concat()))
    }

    fn pid(&self, job: usize) -> Option<u32> {
        fs::read_to_string(self.path(&format!("{job}.pid"))).ok()?.trim().parse().ok()
    }

    /// Ends the loops, and waits for orphaned jobs.
    fn stop(&self) {
        fs::write(self.path("stop"), "").unwrap();
    }

    fn beats(&self, job: usize) -> u64 {
        fs::metadata(self.path(&format!("{job}.beat"))).map_or(0, |meta| meta.len())
    }

    /// Each started job goes on.
    fn runs(&self, jobs: usize, case: &str) {
        for job in (1..=jobs).filter(|job| self.pid(*job).is_some()) {
            let before = self.beats(job);
            eventually(&format!("{case}: job {job} runs"), || self.beats(job) > before + 1);
        }
    }

    fn log(&self, file: &str) -> String {
        fs::read_to_string(self.path(&format!("{}.logs/{file}", self.name))).unwrap()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = fs::write(self.dir.path().join("stop"), "");
        for job in 1..=20 {
            if let Some(pid) = self.pid(job).filter(|pid| is_shell(*pid)) {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
        }
    }
}

fn is_shell(pid: u32) -> bool {
    world::comm(pid) == "sh"
}

fn one_cpu() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn results(summary: &Value) -> Vec<&str> {
    summary["jobs"].as_array().unwrap().iter().map(|job| job["result"].as_str().unwrap()).collect()
}

/// The available mechanisms.
fn pauses(queue: &Queue) -> Vec<&'static str> {
    let works = |how: &&str| {
        let output = queue.run(&["--pause", how, "--policy", "overhead", "--logs", "probe.logs", "-q", "--anew"]);
        if output.status.code() == Some(2) {
            world::skip_in_part(&format!("--pause {how}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        output.status.code() != Some(2)
    };
    ["v2", "v1", "signals"].into_iter().filter(works).collect()
}

fn mechanisms() -> Vec<&'static str> {
    pauses(&Queue::new("mechanisms", "list", "true\n"))
}

/// Promise place/schedule: `schedule` runs a queue in order and within memory, under each of its policies; a job that
/// fails, hangs or is killed harms no other.
#[test]
fn every_rival_runs_every_job() {
    let lines: Vec<String> = (1..=6).map(|i| format!("echo out {i}; echo err >&2; exit $(({i} / 6))")).collect();
    let lines = lines.join("\n");
    for rival in ["linux", "fifo", "mas", "cas", "das", "overhead", "auto"] {
        let queue = Queue::new("rivals", "list", &lines);
        let output = queue.run(&["--policy", rival, "--quantum", "5ms", "--json"]);
        assert_eq!(output.status.code(), Some(1), "the last job fails: {output:?}");
        let summary = json(&output);
        assert_eq!(results(&summary), ["done", "done", "done", "done", "done", "failed"], "{rival}");
        assert_eq!(summary["jobs"][5]["exit_code"], 1);
        assert_eq!(summary["failed"], 1);
        assert!(rival == "auto" || summary["policy"] == rival);
        assert_eq!(summary["chosen"].is_string(), rival == "auto");
        assert_eq!(summary["pause"].is_string(), !["linux", "fifo", "auto"].contains(&rival), "{summary}");
        assert_eq!((queue.log("3-echo.out").as_str(), queue.log("3-echo.err").as_str()), ("out 3\n", "err\n"));
        assert_eq!(queue.state.journals(), 0);
    }
}

#[test]
fn a_queue_in_toml_says_where_and_with_what() {
    let text = "env = { NAME = 'x' }\nretries = 1\n\
        [[job]]\nname = 'where'\ncommand = ['sh', '-c', 'pwd; echo $NAME $MORE']\ncwd = '/'\nenv = { MORE = 'y z' }\n\
        [[job]]\nname = 'twice'\ncommand = 'echo again; test -e twice && exit 0; touch twice; exit 3'\n\
        [[job]]\nname = 'missing'\ncommand = ['no-such-program-here']\n\
        [[job]]\nname = 'nowhere'\ncommand = 'true'\ncwd = '/proc/nonexistent'\n";
    let queue = Queue::new("toml", "q.toml", text);
    let output = queue.run(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let summary = json(&output);
    assert_eq!(results(&summary), ["done", "done", "not_started", "not_started"]);
    assert_eq!((&summary["jobs"][1]["attempts"], &summary["jobs"][2]["attempts"]), (&2.into(), &0.into()));
    assert!(summary["jobs"][2]["why"].as_str().unwrap().contains("command not found"), "{summary}");
    assert!(
        summary["jobs"][3]["why"].as_str().unwrap().contains("/proc/nonexistent: there is no such folder"),
        "{summary}"
    );
    assert_eq!(queue.log("where.out"), "/\nx y z\n");
    assert_eq!(queue.log("twice.out"), "again\nagain\n", "both attempts");
}

#[test]
fn rates_that_cannot_be_counted_come_from_the_store() {
    let queue = Queue::of_loops("store", 3);
    // A line for the shell is named after its first word that sets no variable.
    let loss = "{ loss = 0.2, low = 0.1, high = 0.3, by = 'time' }";
    let profile = format!(
        "[app.echo]\nalone_s = 1\nper_cpu_s = {{ llc_misses = 3e6 }}\n\
         [[app.echo.degradation.memory]]\ntarget_per_s = 1e7\nreached_per_s = 1e7\nloss = {loss}\n"
    );
    fs::write(queue.path("echo.toml"), profile).unwrap();
    let with_store = |mut command: Command| {
        command.env("XDG_DATA_HOME", queue.path("data"));
        Manager::start(command)
    };
    let file = queue.path("echo.toml");
    let imported = with_store(queue.state.cotenant(&["profiles", "import", file.to_str().unwrap()])).output();
    assert!(imported.status.success(), "{imported:?}");
    let batch = with_store(queue.command(&["--policy", "das", "--quantum", "5ms", "--json"]));
    // Each has run for many quanta.
    eventually("all run", || (1..=3).all(|job| queue.beats(job) > 20));
    queue.stop();
    let summary = json(&batch.output());
    assert_eq!(results(&summary), ["done"; 3]);
    let notes = summary["notes"].to_string();
    assert!(!notes.contains("no job has the signal"), "by a counter or from the profile: {summary}");
    if !notes.contains("echo: what cannot be counted here is taken from its profile") {
        world::skip("LLC misses are counted here");
        return;
    }
    let rate = summary["jobs"][0]["per_cpu_us"]["llc_misses"].as_f64().unwrap();
    assert!((rate - 3.0).abs() < 0.1, "{summary}");
}

#[test]
fn a_recorded_batch_is_decided_the_same_again() {
    let queue = Queue::of_loops("record", 3);
    let batch = queue.mas(&["--record", "batch.rec", "--set", "mas.quantum=30ms"]);
    // Each has had several turns on the one CPU.
    eventually("all run", || (1..=3).all(|job| queue.beats(job) > 10));
    queue.stop();
    let summary = json(&batch.output());
    assert_eq!(results(&summary), ["done"; 3]);
    assert_eq!((&summary["recording"]["path"], &summary["quantum_ms"]), (&"batch.rec".into(), &30.0.into()));
    let recording = queue.path("batch.rec");
    let replayed = queue.state.cotenant(&["replay", "--json", recording.to_str().unwrap()]).output().unwrap();
    let replayed = json(&replayed);
    assert_eq!((&replayed["policy"], &replayed["tail"]["kind"]), (&"mas".into(), &"complete".into()));
    assert!(replayed["summary"]["recorded_applied"].as_u64() > Some(3), "{}", replayed["summary"]);
    assert_eq!(replayed["summary"]["differing_rounds"], 0, "{}", replayed["summary"]);
    assert_eq!(replayed["summary"]["rounds"], summary["rounds"], "every round is recorded");
}

#[test]
fn wrong_words_are_told_before_anything_runs() {
    let queue = Queue::new("wrong", "q.toml", "[[job]]\ncommand = 'touch ran'\nmemory = '1T'\n");
    for (args, expected) in [
        (&["--memory", "1G"][..], "q.toml:1: 1-touch needs 1099511627776 bytes of memory, and there are 1073741824"),
        (&["--memory", "2T", "--cpus", "9999"], "none of these CPUs can be used here"),
        (&["--policy", "sam"], "invalid value 'sam'"),
        (&["--memory", "2T", "--profiles", "/proc/nonexistent"], "/proc/nonexistent"),
        (&["--memory", "2T", "--logs", "/proc/nonexistent/a"], "name a folder with --logs"),
    ] {
        let output = queue.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{args:?}: {said}");
    }
    assert!(!queue.path("ran").exists());
    let list = queue.state.cotenant(&["run", "--policy", "mas", "--", "true"]).output().unwrap();
    assert_eq!(list.status.code(), Some(2));
}

#[test]
fn a_list_can_come_from_standard_input() {
    use std::io::Write;
    let queue = Queue::new("stdin", "-", "");
    let mut child = queue.command(&["--logs", "logs", "-q"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"# two\necho a\necho b\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(queue.path("logs/2-echo.out")).unwrap(), "b\n");
}

/// Holds place/resume.
#[test]
fn asked_to_stop_jobs_end_and_the_rest_is_gone_on_with() {
    for pause in mechanisms() {
        // The first ignores SIGTERM.
        let queue = Queue::new(
            "stop",
            "list",
            "trap '' TERM; echo $$ > 1.pid; while [ ! -e stop ]; do sleep 0.01; done\n\
             echo $$ > 2.pid; while [ ! -e stop ]; do sleep 0.01; done\n\
             echo last\n",
        );
        let mut runs = 1;
        for (first, code) in [("TERM", 143), ("INT", 130)] {
            let batch = queue.mas(&["--pause", pause, "--grace", "50ms", "--resume"]);
            eventually("both have begun", || [1, 2].iter().all(|job| queue.pid(*job).is_some_and(is_shell)));
            let pids = [1, 2].map(|job| queue.pid(job).unwrap());
            signal(first, batch.pid());
            let output = batch.output();
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let summary = json(&output);
            assert_eq!(results(&summary)[..2], ["interrupted", "interrupted"], "{summary}");
            runs += usize::from(results(&summary)[2] == "interrupted"); // possibly after some output
            assert!(summary["notes"].to_string().contains("were killed"), "{summary}");
            assert!(!pids.iter().any(|pid| is_shell(*pid)), "both have ended");
            assert_eq!(queue.state.journals(), 0);
        }
        queue.stop();
        let output = queue.mas(&["--pause", pause, "--resume"]).output();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(results(&json(&output)), ["done", "done", "done"]);
        let said = queue.log("3-echo.out").lines().count();
        assert!((1..=runs).contains(&said), "who is done is not started again: {said} of {runs}");
    }
}

/// Holds place/schedule.
#[test]
fn whom_a_job_started_ends_with_it_when_asked_to_stop() {
    for policy in ["fifo", "mas"] {
        // The job gets SIGTERM; its children, one of them in its own session, do not.
        let deaf = |job: u32| {
            format!("sh -c \"trap '' TERM; echo \\$\\$ > {job}.pid; while [ ! -e stop ]; do sleep 0.01; done\"")
        };
        let queue = Queue::new("children", "list", &format!("{} & setsid {} & wait\n", deaf(1), deaf(2)));
        let batch = Manager::start(queue.command(&["--json", "--policy", policy, "--grace", "50ms"]));
        eventually("both have begun", || [1, 2].iter().all(|job| queue.pid(*job).is_some_and(is_shell)));
        let pids = [1, 2].map(|job| queue.pid(job).unwrap());
        signal("TERM", batch.pid());
        assert_eq!(batch.output().status.code(), Some(143));
        eventually("both have ended", || !pids.iter().any(|pid| is_shell(*pid)));
    }
}

/// Promise place/resume: After any signal or `kill -9` of `schedule` no job stays paused, and `--resume` goes on with
/// the queue.
#[test]
fn killed_at_any_moment_all_jobs_run_on_and_the_queue_is_gone_on_with() {
    let mechanisms = mechanisms();
    let moments = || kills(7, Duration::from_millis(60));
    let cases = mechanisms.iter().flat_map(|mechanism| moments().map(move |moment| (mechanism, moment)));
    for (round, (pause, moment)) in cases.enumerate() {
        let queue = Queue::of_loops("killed", 4);
        let batch = queue.mas(&["--pause", pause]);
        eventually("all have begun", || (1..=4).all(|job| queue.pid(job).is_some()));
        pass(moment);
        let case = format!("{pause}, kill {round} after {moment:?}");
        let guardian = batch.guardian();
        match (round % 5, guardian) {
            (4, Some(guardian)) => {
                // Both at once: neither compensates for the other.
                for name in ["STOP", "KILL"] {
                    signal(name, batch.pid());
                    signal(name, guardian);
                }
                batch.output();
                eventually("the guardian has ended", || world::comm(guardian).is_empty());
                assert!(queue.state.cotenant(&["restore"]).output().unwrap().status.success(), "{case}");
            }
            (3, Some(guardian)) => {
                signal("KILL", guardian);
                let next = || batch.guardian().is_some_and(|new| new != guardian);
                eventually("another guardian takes its place", next);
                signal("KILL", batch.pid());
                batch.output();
            }
            _ => {
                signal("KILL", batch.pid());
                batch.output();
            }
        }
        queue.runs(4, &case);
        eventually("the journal goes", || queue.state.journals() == 0);
        let anew = queue.run(&[]);
        let said = String::from_utf8_lossy(&anew.stderr).into_owned();
        assert!(anew.status.code() == Some(2) && said.contains("of an earlier run still runs"), "{case}: {said}");
        queue.stop();
        let resumed = queue.mas(&["--resume"]).output();
        let summary = json(&resumed);
        let results = results(&summary);
        assert!(results.iter().all(|result| ["done", "unknown"].contains(result)), "{case}: {summary}");
        assert_eq!(resumed.status.code(), Some(i32::from(results.contains(&"unknown"))), "{case}");
    }
}

/// Holds place/schedule.
#[test]
fn a_job_that_is_killed_while_it_waits_has_failed_and_the_others_go_on() {
    for pause in mechanisms() {
        let queue = Queue::of_loops("waiting", 3);
        let batch = queue.mas(&["--pause", pause]);
        eventually("all have begun", || (1..=3).all(|job| queue.pid(job).is_some()));
        // Two of three wait at any moment: at least one of two kills hits a waiting one.
        for job in [1, 2] {
            signal("KILL", queue.pid(job).unwrap());
        }
        eventually("they have ended", || ![1, 2].iter().any(|job| is_shell(queue.pid(*job).unwrap())));
        queue.runs(0, pause);
        let before = queue.beats(3);
        eventually("the third goes on", || queue.beats(3) > before + 1);
        queue.stop();
        let summary = json(&batch.output());
        assert_eq!(results(&summary), ["failed", "failed", "done"], "{pause}: {summary}");
        assert_eq!(summary["jobs"][0]["exit_code"], 137);
    }
}

/// Holds place/schedule.
#[test]
fn what_a_job_leaves_behind_runs_on() {
    for pause in mechanisms() {
        let leaver = "setsid sh -c 'echo $$ > 1.pid; while [ ! -e stop ]; do echo >> 1.beat; sleep 0.01; done' <&- >&- 2>&- & \
                      while [ ! -e 1.beat ]; do sleep 0.01; done\n";
        let queue = Queue::new("leaver", "list", &format!("{leaver}sleep 0.2\nsleep 0.2\n"));
        let output = queue.mas(&["--pause", pause]).output();
        assert!(output.status.success(), "{output:?}");
        queue.runs(1, pause);
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", queue.pid(1).unwrap())).unwrap();
        assert!(!groups.contains("cotenant-"), "in the group in which we were: {groups}");
        assert_eq!(queue.state.journals(), 0);
    }
}

/// Holds place/schedule.
#[test]
fn a_full_disk_is_the_jobs_own_failure() {
    let queue = Queue::new("full", "list", "echo a\necho b > /dev/full\necho c\n");
    let logs = queue.path("list.logs");
    fs::create_dir(&logs).unwrap();
    fs::create_dir(logs.join("3-echo.out")).unwrap();
    let output = queue.run(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let summary = json(&output);
    assert_eq!(results(&summary), ["done", "failed", "not_started"], "{summary}");
    assert!(!queue.log("2-echo.err").is_empty(), "it was told");
    assert!(summary["jobs"][2]["why"].as_str().unwrap().contains("3-echo.out"));
    assert_eq!(queue.log("1-echo.out"), "a\n");
}

/// The jobs' state has 4 KiB, which is less than 80 jobs take.
#[test]
fn a_full_disk_stops_no_job() {
    if !world::may_mount() {
        return world::skip("a full disk takes the right to mount one");
    }
    let queue = Queue::new("full-state", "list", &"true\n".repeat(80));
    fs::create_dir(queue.path("list.logs")).unwrap();
    let mount = format!("mount -t tmpfs -o size=4k none '{}'", queue.path("list.logs").display());
    let mut command = queue.state.cotenant_after(&mount, &["schedule", "list", "--json"]);
    command.current_dir(queue.dir.path());
    let output = Manager::start(command).output();
    let summary = json(&output);
    assert_eq!((output.status.code(), results(&summary)), (Some(0), vec!["done"; 80]), "{summary}");
    let told = "what became of the jobs cannot be written (No space left on device";
    assert!(summary["notes"].to_string().contains(told), "{summary}");
}

/// Who can write into the folder puts links there, for the output of jobs to go elsewhere.
#[test]
fn links_among_the_logs_are_not_followed() {
    let queue = Queue::new("links", "list", "echo a\necho b\n");
    let logs = queue.path("list.logs");
    fs::create_dir(&logs).unwrap();
    let victim = queue.path("victim");
    fs::write(&victim, "mine\n").unwrap();
    std::os::unix::fs::symlink(&victim, logs.join("1-echo.out")).unwrap();
    let output = queue.run(&["--json"]);
    let summary = json(&output);
    assert_eq!(results(&summary), ["not_started", "done"], "{summary}");
    assert!(summary["jobs"][0]["why"].as_str().unwrap().contains("symbolic link"), "{summary}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n");

    fs::remove_dir_all(&logs).unwrap();
    fs::create_dir(&logs).unwrap();
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o777)).unwrap();
    let output = queue.run(&[]);
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("all users can replace what is in it"), "{why}");
}
