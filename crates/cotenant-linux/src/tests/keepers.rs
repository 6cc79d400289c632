//! After the host of `qos` died at any point, no process stays stopped or limited.

use super::pauses::{BEATS, pid, program};
use super::roles::{dying, host_command, journals, options, say};
use crate::act::restore;
use crate::act::throttle::Enforcer;
use crate::fault;
use crate::host::{AppSpec, HostOptions, LinuxHost, Until};
use crate::sense::topology;
use crate::sys;
use crate::sys::thread;
use cotenant_model::{Action, AppId, CpuSet, Host, Order, Outcome, Reason};
use cotenant_testing::{Player, TempDir, eventually};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs two programs as `cotenant qos` does: `STATE_DIR MEANS FOLDER STEP…`, the second one that of the pauser. Each
/// step prints its result.
pub fn keeper(args: &[String]) {
    let [state_dir, means, folder, steps @ ..] = args else { panic!("usage: STATE_DIR MEANS FOLDER STEP…") };
    let enforcer = if means == "quota" { Enforcer::Quota } else { Enforcer::Outside };
    let topology = topology::live().unwrap().topology;
    let mut high = Command::new("sh");
    // After an early death the program ends by itself, because its id is unknown.
    let script = r#"echo $$ > "$1/high.pid"; while [ -e "$1" ]; do sleep 0.2; done"#;
    high.args(["-c", script, "high", folder]).stdin(Stdio::null());
    let high = AppSpec::command("high".into(), high);
    let low = AppSpec { throttled: Some(enforcer), ..AppSpec::command("low".into(), program(Path::new(folder))) };
    let journal = Some(options(Path::new(state_dir)));
    let options = HostOptions { act: true, until: Until::AllEnd, journal, ..HostOptions::default() };
    let mut host = LinuxHost::new(&topology, vec![high, low], options).unwrap();
    eventually("all of it runs", || BEATS.iter().all(|beat| pid(Path::new(folder), beat).is_some()));
    let app = AppId(1);
    for step in steps {
        let now = host.sample().unwrap().at;
        let action = match step.as_str() {
            // Longer than any delay, because a nap that is over when ordered is none.
            "nap" => Action::Nap { app, until: now + Duration::from_secs(600) },
            "wake" => Action::Nap { app, until: now },
            "limit" => Action::Limit { app, cpu_permille: Some(50) },
            "lift" => Action::Limit { app, cpu_permille: None },
            "end" => {
                host.ask_to_end(libc::SIGKILL);
                let finish = host.finish();
                return say(&format!("end {} failed", finish.restored.failed));
            }
            other => panic!("no step {other}"),
        };
        let order = Order { action, affinity: CpuSet::new(), reason: Reason::new("test", "test") };
        assert_eq!(host.apply(&[order]), [Outcome::Applied], "{step}: {:?}", host.notes());
        say(step);
        host.wait(now + Duration::from_millis(10));
    }
}

/// The folder of a keeper's program, and its state; the program is killed when dropped.
struct Kept(TempDir);

impl Kept {
    fn keeper(&self, means: &str, steps: &[&str]) -> Command {
        let state = self.state();
        let paths = [state.to_str().unwrap(), means, self.0.path().to_str().unwrap()];
        host_command("keeper", &paths.into_iter().chain(steps.iter().copied()).collect::<Vec<_>>())
    }

    fn state(&self) -> std::path::PathBuf {
        self.0.path().join("state")
    }

    /// Surviving processes of the program run on, in no group of ours, and nothing is left for `restore`.
    fn is_undone(&self, case: &str) {
        eventually(&format!("{case}: the guardian has finished"), || journals(&self.state()) == 0);
        let report = restore(&self.state());
        assert_eq!((report.resumed, report.failed), (0, 0), "{case}: {report:?}");
        for beat in BEATS {
            let Some(pid) = pid(self.0.path(), beat) else { continue }; // not started before the death, or ended at the end
            let lives = || thread::process_stat(pid).is_some_and(|stat| !stat.is_dead());
            let size = || fs::metadata(self.0.path().join(beat)).map_or(0, |meta| meta.len());
            let before = size();
            eventually(&format!("{case}: {beat} ({pid}) runs"), || !lives() || size() > before + 1);
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            // An unreaped zombie still names the group in which it died.
            assert!(!lives() || !groups.contains("/cotenant-"), "{case}: {groups}");
        }
    }

    fn clear(&self) {
        for beat in BEATS.into_iter().chain(["high"]) {
            if let Some(pid) = pid(self.0.path(), beat) {
                let _ = sys::kill(pid, libc::SIGKILL);
                let _ = sys::kill_group(pid);
            }
            let _ = fs::remove_file(self.0.path().join(format!("{beat}.pid")));
            let _ = fs::remove_file(self.0.path().join(beat));
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.clear();
    }
}

fn dies_everywhere(means: &str, around: &[&str], steps: &[&str]) {
    let kept = Kept(TempDir::new("keeper"));
    for point in fault::points(around) {
        for n in 1.. {
            let (fired, case) = (kept.0.path().join("fired"), format!("{means}: {point}, time {n}"));
            let mut keeper = Player::start(dying(kept.keeper(means, steps), &format!("main:{point}:{n}"), &fired));
            let status = keeper.end();
            kept.is_undone(&case);
            kept.clear();
            if fs::remove_file(&fired).is_err() {
                assert!(status.success(), "{case}: {status}");
                assert!(n > 1, "{case}: never reached");
                break;
            }
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{case}");
        }
    }
}

/// Holds undo/crash-points.
#[test]
fn a_dead_host_leaves_nobody_stopped() {
    if super::pauses::mechanisms().len() < 2 {
        eprintln!("skipped: no group can be frozen here, and signals are too slow for naps");
        return;
    }
    let pauses: Vec<&str> = fault::PAUSE_STEPS.iter().copied().filter(|step| step.starts_with("pause.")).collect();
    dies_everywhere("outside", &pauses, &["nap", "wake", "nap", "end"]);
}

/// Holds undo/crash-points.
#[test]
fn a_dead_host_leaves_nobody_limited() {
    if !crate::act::cpu_time::works_here() {
        eprintln!("skipped: CPU time cannot be limited here");
        return;
    }
    dies_everywhere("quota", fault::QUOTA_STEPS, &["limit", "lift", "limit", "end"]);
}

/// Holds undo/crash-points.
#[test]
fn a_guardian_that_dies_while_it_lifts_a_limit_is_made_up_for_by_restore() {
    if !crate::act::cpu_time::works_here() {
        eprintln!("skipped: CPU time cannot be limited here");
        return;
    }
    let kept = Kept(TempDir::new("keeper-guardian"));
    for point in ["resume.group.before", "resume.group.after", "guardian.end.seen", "guardian.locked"] {
        let (fired, case) = (kept.0.path().join("fired"), format!("guardian at {point}"));
        let plans = format!("main:quota.set.after:1,guardian:{point}:1");
        let mut keeper = Player::start(dying(kept.keeper("quota", &["limit"]), &plans, &fired));
        keeper.end();
        let guardian_died = || fs::read_to_string(&fired).is_ok_and(|text| text == point);
        eventually(&format!("{case}: it dies there"), guardian_died);
        eventually(&format!("{case}: restore finds its lock free"), || {
            restore(&kept.state()).failed == 0 && journals(&kept.state()) == 0
        });
        kept.is_undone(&case);
        kept.clear();
        fs::remove_file(&fired).unwrap();
    }
}
