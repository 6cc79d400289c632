//! A storm: `cotenant daemon` and its guardian are killed and stopped at any moment while they have masks, pauses and
//! the background in their hands, as root and as a user. Whatever happens, in the end all is as it was.
//!
//! Every wait is for a condition, and ends. Other tests do the same to `qos` (all of its means) and to `attach`.

use crate::qos::{force, groups_of, is_paused, runs_on, stop};
use crate::world::{self, Manager, Pin, State, all_have, binary, comm, is_root, signal};
use cotenant_testing::{eventually, kills, pass, spawn_fresh};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A user without other rights.
const NOBODY: u32 = 65_534;

/// Programs of one user that all rounds have in common: one that is kept fast, one that gives way, one that is placed.
struct Site {
    state: State,
    /// The user of the run, if different from the tests'.
    user: Option<u32>,
    programs: [Child; 3],
}

/// Fast and slow in turn, so that the other one is throttled and let run all the time.
const SPEED: &str = "cmd:echo $(( $(date +%s%N) / 300000000 % 2 * 9 + 1 )),every=50ms";

const RULES: &str = r#"mode = "enforce"
interval = "20ms"
[set.static]
map = "$MAP"
[[rule]]
name = "kept"
match = { command = "$DIR/kept", user = "$USER" }
class = "high"
metric = "$SPEED"
[[rule]]
name = "batch"
match = { command = "$DIR/batch" }
class = "low"
[[rule]]
name = "placed"
match = { command = "$DIR/placed" }
policy = "static"
"#;

impl Site {
    /// `None`, said aloud, where the user cannot get at the programs.
    fn new(user: Option<u32>, pin: &Pin) -> Option<Self> {
        let state = State::new("storm");
        if let Some(user) = user {
            std::os::unix::fs::chown(state.path(), Some(user), Some(user)).unwrap();
            let mut looks = Command::new(binary());
            if !looks.arg("--version").uid(user).gid(user).output().is_ok_and(|out| out.status.success()) {
                world::skip_in_part("the binary lies where another user may not look");
                return None;
            }
        }
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let programs = ["kept", "batch", "placed"].map(|name| {
            let path = state.path().join(name);
            fs::copy(&shell, &path).unwrap();
            let mut command = Command::new(path);
            let line = if name == "kept" { "while sleep 1; do :; done" } else { "while :; do :; done" };
            command.args(["-c", line]).stdin(Stdio::null());
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            spawn_fresh(&mut command)
        });
        let map = format!("X{}", ".".repeat(pin.map.len() - 1));
        let own = fs::read_to_string("/proc/self/status").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().split_whitespace().nth(1).unwrap();
        let uid = user.map_or_else(|| own.to_owned(), |user| user.to_string());
        let (dir, speed) = (state.path().to_str().unwrap(), SPEED);
        let rules = RULES.replace("$MAP", &map).replace("$DIR", dir).replace("$USER", &uid).replace("$SPEED", speed);
        let config = state.path().join("rules.toml");
        fs::write(&config, rules).unwrap();
        if let Some(user) = user {
            std::os::unix::fs::chown(&config, Some(user), Some(user)).unwrap();
        }
        Some(Self { state, user, programs })
    }

    /// Cotenant as that user.
    fn cotenant(&self, words: &[&str]) -> Command {
        let first = self.user.map_or_else(String::new, |user| {
            let who = format!("setpriv --reuid {user} --regid {user} --clear-groups");
            format!("exec {who} env --default-signal '{}' \"$@\"", binary())
        });
        let mut command = self.state.cotenant_after(&first, words);
        command.env("XDG_DATA_HOME", self.state.path().join("data"));
        command
    }

    fn daemon(&self) -> Manager {
        let [config, socket] = ["rules.toml", "control.sock"].map(|name| self.state.path().join(name));
        let words = ["daemon", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
        Manager::start(self.cotenant(&words))
    }

    fn pid(&self, program: usize) -> u32 {
        self.programs[program].id()
    }

    /// Nothing is placed, paused, in the background or left behind.
    fn is_as_before(&self, what: &str, daemon: u32, pin: &Pin) {
        for program in [1, 2] {
            let pid = self.pid(program);
            let name = ["kept", "batch", "placed"][program];
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let policy = stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).map(str::to_owned);
            assert!(all_have(pid, &pin.own), "{what}: {name} has another mask: {:?}", world::masks(pid));
            assert!(!is_paused(pid) && policy.as_deref() == Some("0"), "{what}: {name} is paused or idle: {policy:?}");
            // There is no such file where sessions do not count.
            let session = fs::read_to_string(format!("/proc/{pid}/autogroup"));
            assert!(!session.is_ok_and(|text| text.ends_with("nice 19\n")), "{what}: the session of {name}");
        }
        assert_eq!((self.state.journals(), groups_of(daemon)), (0, vec![]), "{what}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// Holds undo/limits, undo/masks, undo/pauses.
#[test]
fn random_kills_and_stops_of_the_daemon_leave_nothing() {
    const WAYS: [&str; 8] = [
        "KILL",
        "STOP",
        "KILL guardian",
        "STOP guardian, KILL",
        "KILL both",
        "STOP both, one goes on",
        "STOP both, force",
        "STOP, KILL guardian, force",
    ];
    let Some(pin) = Pin::find() else { return };
    let mut sites = vec![Site::new(None, &pin).expect("who tests may look")];
    sites.extend(is_root().then(|| Site::new(Some(NOBODY), &pin)).flatten());
    for (round, moment) in kills(4, Duration::from_millis(900)).enumerate() {
        let site = &sites[round % sites.len()];
        let way = WAYS[(round + round / WAYS.len()) % WAYS.len()];
        let what = format!("round {round}, user {:?}: {way} after {moment:?}", site.user);
        let daemon = site.daemon();
        let ended =
            || fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).is_ok_and(|stat| stat.contains(") Z "));
        eventually(&format!("{what}: it is placed"), || all_have(site.pid(2), &pin.cpu) || ended());
        assert!(!ended(), "{what}: the daemon has ended");
        pass(moment);
        let (pid, guardian) = (daemon.pid(), daemon.guardian());
        let both: Vec<u32> = guardian.into_iter().chain([pid]).collect();
        let kill_guardian = || {
            if let Some(guardian) = guardian.filter(|pid| !comm(*pid).is_empty()) {
                signal("KILL", guardian);
            }
        };
        match way {
            "KILL" => signal("KILL", pid),
            "STOP" => stop(&[pid]),
            "KILL guardian" => kill_guardian(),
            "STOP guardian, KILL" => {
                stop(guardian.as_slice());
                signal("KILL", pid);
            }
            "KILL both" => {
                stop(&both); // so that neither makes up for the other
                for pid in &both {
                    signal("KILL", *pid);
                }
            }
            "STOP both, one goes on" => {
                stop(&both);
                signal("CONT", both[round / 2 % both.len()]);
            }
            "STOP both, force" => {
                stop(&both);
                force_as(site);
            }
            _ => {
                stop(&[pid]);
                kill_guardian();
                force_as(site);
            }
        }
        if way != "KILL both" && way != "STOP guardian, KILL" {
            runs_on(&what, site.pid(1));
        }
        // The end of all, wherever that finds them.
        signal("KILL", pid);
        if let Some(guardian) = guardian.filter(|pid| comm(*pid) == "cotenant-guard") {
            signal("CONT", guardian);
        }
        let said = daemon.end();
        eventually(&format!("{what}: its guardian ends"), || guardian.is_none_or(|pid| comm(pid) != "cotenant-guard"));
        let restored = site.cotenant(&["restore"]).output().unwrap();
        assert!(restored.status.success(), "{what}: {restored:?}; {said:?}");
        runs_on(&what, site.pid(1));
        site.is_as_before(&what, pid, &pin);
    }
}

fn force_as(site: &Site) {
    if site.user.is_none() {
        force(&site.state);
        return;
    }
    let out = site.cotenant(&["restore", "--force"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
