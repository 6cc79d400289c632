//! The default policy for a user without options.

use cotenant_testing::{TempDir, eventually};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The folder through which a test and its programs talk.
const FOLDER: &str = "COTENANT_TEST_AUTO";
/// Patience for a trial: there may be none on a busy machine or without a choice.
const TRIAL: Duration = Duration::from_secs(20);

/// The best earlier placement is stored in the folder, not in the user's.
fn cotenant(folder: &TempDir, command: &[&str]) -> Command {
    let mut cotenant = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    cotenant.env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", folder.path());
    cotenant.args(["run", "--json", "--"]);
    cotenant.args(command).stdin(Stdio::null()).stderr(Stdio::piped());
    cotenant
}

/// The exit code, and the summary.
fn end(cotenant: Child) -> (Option<i32>, Value) {
    let output = cotenant.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let summary = serde_json::from_str(text.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {text}"));
    (output.status.code(), summary)
}

/// Starts the worker and ends when it is asked to; in any other run it does nothing.
#[test]
fn starter() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return eprintln!("skipped: another test starts it as a program");
    };
    let program = std::env::current_exe().unwrap();
    // Output of Cotenant ends with it, although the worker lives on.
    let mut worker = Command::new(program);
    worker.args(["--exact", "auto::worker", "--nocapture"]).stdout(Stdio::null()).stderr(Stdio::null());
    let worker = worker.spawn().unwrap();
    fs::write(format!("{folder}/worker"), worker.id().to_string()).unwrap();
    eventually("the word to stop", || Path::new(&folder).join("stop").exists());
    std::process::exit(3);
}

/// Four threads of two kinds that report what they do, and outlive who started them.
#[test]
fn worker() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return eprintln!("skipped: another test starts it as a program");
    };
    let (end, deadline) = (Path::new(&folder).join("end"), Instant::now() + Duration::from_secs(90));
    let over = || end.exists() || !Path::new(&folder).exists() || Instant::now() > deadline;
    std::thread::scope(|scope| {
        for name in ["left-1", "left-2", "right-1", "right-2"] {
            let work = || {
                while !over() {
                    std::hint::black_box((0..200_000_u64).fold(0, |sum, n| sum ^ std::hint::black_box(n)));
                    cotenant_rt::units(1);
                }
            };
            std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).unwrap();
        }
    });
}

/// The masks of all threads of a process; none once it has ended.
fn masks(pid: &str) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let status = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let mask =
        |status: String| Some(status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned());
    status.filter_map(mask).collect()
}

/// Holds run/first-steps.
#[test]
fn a_program_that_reports_is_managed_and_left_as_it_was() {
    let folder = TempDir::new("auto");
    let own = masks("self");
    let program = std::env::current_exe().unwrap();
    let program = [program.to_str().unwrap(), "--exact", "auto::starter", "--nocapture"];
    let cotenant = cotenant(&folder, &program).env(FOLDER, folder.path()).stdout(Stdio::null()).spawn().unwrap();
    let read = || fs::read_to_string(folder.path().join("worker")).unwrap_or_default();
    eventually("the worker", || !read().is_empty() && masks(&read()).len() == 1);
    let (worker, deadline) = (read(), Instant::now() + TRIAL);
    while masks(&worker) == own && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let tried = masks(&worker) != own;
    fs::write(folder.path().join("stop"), "").unwrap();
    let (code, summary) = end(cotenant);
    let left = masks(&worker);
    fs::write(folder.path().join("end"), "").unwrap();
    eventually("the worker's end", || masks(&worker).is_empty());
    assert_eq!((code, &summary["policy"], &summary["exit_code"]), (Some(3), &"auto".into(), &3.into()), "{summary}");
    assert_eq!(left, own, "{summary}");
    assert!(summary["progress"]["units"].as_u64().unwrap() > 0, "{summary}");
    assert!(!tried || summary["moves"].as_u64().unwrap() > 0, "{summary}");
    if !tried {
        eprintln!("skipped in part: nothing was tried within {TRIAL:?}");
    }
}

/// Holds undo/masks.
#[test]
fn whoever_is_killed_in_the_middle_of_a_trial_leaves_nothing() {
    let own = masks("self");
    for signal in ["INT", "KILL"] {
        let folder = TempDir::new("auto-killed");
        let mut worker = Command::new(std::env::current_exe().unwrap());
        worker.args(["--exact", "auto::worker", "--nocapture"]).env(FOLDER, folder.path()).stdout(Stdio::null());
        let mut worker = worker.spawn().unwrap();
        let pid = worker.id().to_string();
        eventually("its threads", || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 4));
        // A shell in the background may have had the signal ignored.
        let mut cotenant = Command::new("env");
        cotenant.args(["--default-signal", env!("CARGO_BIN_EXE_cotenant"), "attach", "-q", "-p", &pid]);
        cotenant.env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", folder.path());
        let mut cotenant = cotenant.stdin(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + TRIAL;
        while masks(&pid) == own && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if masks(&pid) == own {
            eprintln!("skipped in part: nothing was tried within {TRIAL:?}");
        }
        let kill = Command::new("kill").args(["-s", signal, &cotenant.id().to_string()]).status().unwrap();
        assert!(kill.success());
        cotenant.wait().unwrap();
        eventually("the masks are back", || masks(&pid) == own);
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

/// Holds run/first-steps.
#[test]
fn a_program_that_reports_nothing_is_told_what_helps() {
    let program = "end=$((SECONDS + 4)); while [ $SECONDS -lt $end ]; do :; done; exit 5";
    let folder = TempDir::new("auto-silent");
    let (code, summary) = end(cotenant(&folder, &["bash", "-c", program]).spawn().unwrap());
    assert_eq!((code, &summary["policy"]), (Some(5), &"auto".into()), "{summary}");
    if !summary["tier"].as_str().unwrap().contains("software only") {
        return eprintln!("skipped in part: instructions may be counted here, and tell the speed");
    }
    assert_eq!((&summary["moves"], &summary["restored"]), (&0.into(), &0.into()), "{summary}");
    let notes = summary["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("--metric")), "{summary}");
}

/// OpenMP's runtime counts for it, unless the user names another tool, or the policy asks for no speed.
/// Holds speed/harmless.
#[test]
fn openmp_is_asked_to_count() {
    let folder = TempDir::new("auto-openmp");
    let seen = |policy: &str, chosen: Option<&str>| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_cotenant"));
        run.args(["run", "--policy", policy, "--", "sh", "-c", "echo \"$OMP_TOOL_LIBRARIES\""]);
        run.env("XDG_DATA_HOME", folder.path())
            .env_remove("OMP_TOOL_LIBRARIES")
            .envs(chosen.map(|tool| ("OMP_TOOL_LIBRARIES", tool)));
        String::from_utf8(run.output().unwrap().stdout).unwrap()
    };
    let all = [("auto", None), ("auto", Some("mine.so")), ("none", None)].map(|(policy, tool)| seen(policy, tool));
    assert_eq!(all, ["libcotenant.so.0\n", "mine.so\n", "\n"]);
}
