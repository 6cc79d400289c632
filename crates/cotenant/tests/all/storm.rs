//! A storm: `cotenant daemon` and its guardian are killed and stopped at any moment while they have masks, pauses,
//! naps and the background in their hands, as root and as a user. Whatever happens, in the end all is as it was.
//!
//! Every wait is for a condition, and ends. Other tests do the same to `qos` (all of its means) and to `attach`.

use crate::qos::{ROLE, force, groups_of, is_in_background, is_paused, runs_on, stop};
use crate::world::{self, Manager, Pin, State, all_have, binary, comm, is_root, may_mount, signal};
use cotenant_testing::{eventually, kills, pass, spawn_fresh};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A user without other rights.
const NOBODY: u32 = 65_534;

/// Fast and slow in turn, so that the other program is paused and let run all the time.
const IN_TURN: &str = "cmd:echo $(( $(date +%s%N) / 300000000 % 2 * 9 + 1 )),every=50ms";

/// A latency that never changes: the background is enough.
const LATENCY: &str = "cmd:echo 1,every=20ms,lower";

const RULES: &str = r#"mode = "enforce"
interval = "20ms"
bpf = false
[set.static]
map = "$MAP"
[[rule]]
name = "kept"
match = { command = "$DIR/kept", user = "$USER" }
class = "high"
metric = "$SPEED"
[[rule]]
name = "low"
match = { $LOW }
class = "low"
[[rule]]
name = "placed"
match = { command = "$DIR/placed" }
policy = "static"
"#;

/// What gives way in a round, and to what.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Low {
    /// A program, by signals.
    Signals,
    /// A program, by its session's weight or its threads' policy.
    Session,
    /// A control group, by its freezer.
    Frozen,
    /// A control group, by `cpu.idle`, which takes its weight.
    Idle,
    /// A program with marks, which naps by itself.
    Marked,
}

impl Low {
    fn is_group(self) -> bool {
        matches!(self, Self::Frozen | Self::Idle)
    }

    fn speed(self) -> &'static str {
        if matches!(self, Self::Session | Self::Idle) { LATENCY } else { IN_TURN }
    }
}

/// A control group of the tests, by which the kernel freezes, and shares CPU time.
struct Group {
    name: String,
    folders: [PathBuf; 2],
}

impl Group {
    /// Below these mounts. `None` where no group can be made, or none can be frozen and idle.
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = |is: &dyn Fn(&[&str]) -> bool| {
            let found = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| is(words))?;
            Some(PathBuf::from(found[1]))
        };
        let second = mount(&|words| words[2] == "cgroup2")?;
        let first = mount(&|words| words[2] == "cgroup" && words[3].split(',').any(|option| option == "cpu"));
        let name = format!("cotenant-tests-{}", std::process::id());
        let folders = [second.clone(), first.unwrap_or(second)].map(|mount| mount.join(&name));
        let new = Self { name, folders };
        for folder in &new.folders {
            fs::create_dir_all(folder).ok()?;
        }
        let there = new.folders[0].join("cgroup.freeze").exists() && new.folders[1].join("cpu.idle").exists();
        there.then_some(new)
    }

    fn take(&self, pid: u32) {
        for folder in &self.folders {
            fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }

    fn read(&self, file: &str) -> String {
        let read = |folder: &PathBuf| fs::read_to_string(folder.join(file)).ok();
        self.folders.iter().find_map(read).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The folder, and the user of a round's Cotenant and programs, if that is not the tests' own.
struct Site {
    state: State,
    user: Option<u32>,
    group: Option<Group>,
}

impl Site {
    /// `None`, said aloud, where the user cannot execute the binary.
    fn new(user: Option<u32>) -> Option<Self> {
        let state = State::new("storm");
        let path = |name: &str| state.path().join(name);
        if let Some(user) = user {
            chown(state.path(), Some(user), Some(user)).unwrap();
            let mut looks = Command::new(binary());
            if !looks.arg("--version").uid(user).gid(user).output().is_ok_and(|out| out.status.success()) {
                world::skip_in_part("the binary lies where another user may not look");
                return None;
            }
        }
        let shell = fs::canonicalize("/bin/sh").unwrap();
        for (name, file) in [("kept", &shell), ("low", &shell), ("placed", &shell)] {
            fs::copy(file, path(name)).unwrap();
        }
        fs::copy(std::env::current_exe().unwrap(), path("napping")).unwrap();
        // In the daemon's sight there is version 2 alone, by which groups are frozen.
        let group = if user.is_none() && may_mount() { Group::new() } else { None };
        if user.is_none() && group.is_none() {
            world::skip_in_part("no control group can be frozen and idle here");
        }
        Some(Self { state, user, group })
    }

    /// Starts a program of this folder in a session of its own.
    fn start(&self, name: &str, words: &[&str]) -> Program {
        let mut command = Command::new("setsid");
        command.arg(self.state.path().join(name)).args(words);
        command.env(ROLE, format!("marked:{}", self.state.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let program = spawn_fresh(&mut command);
        eventually("it is the program", || comm(program.id()) == name);
        Program(program)
    }

    /// Cotenant as that user.
    fn cotenant(&self, words: &[&str]) -> Command {
        let alone = "umount -l /sys/fs/cgroup/systemd 2>/dev/null";
        let first = match self.user {
            Some(user) => {
                let who = format!("setpriv --reuid {user} --regid {user} --clear-groups");
                format!("exec {who} env --default-signal '{}' \"$@\"", binary())
            }
            None if self.group.is_some() => alone.to_owned(),
            None => String::new(),
        };
        let mut command = self.state.cotenant_after(&first, words);
        command.env("XDG_DATA_HOME", self.state.path().join("data"));
        command
    }

    fn daemon(&self, low: Low, pin: &Pin) -> Manager {
        let own = fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap();
        let dir = self.state.path().display().to_string();
        let matched = match (&self.group, low) {
            (Some(group), low) if low.is_group() => format!("cgroup = \"/{}\"", group.name),
            (_, Low::Marked) => format!("command = \"{dir}/napping\""),
            _ => format!("command = \"{dir}/low\""),
        };
        let rules = RULES
            .replace("$MAP", &format!("X{}", ".".repeat(pin.map.len() - 1)))
            .replace("$DIR", &dir)
            .replace("$USER", &self.user.unwrap_or(own).to_string())
            .replace("$SPEED", low.speed())
            .replace("$LOW", &matched);
        let [config, socket] = ["rules.toml", "control.sock"].map(|name| self.state.path().join(name));
        fs::write(&config, rules).unwrap();
        if let Some(user) = self.user {
            chown(&config, Some(user), Some(user)).unwrap();
        }
        let words = ["daemon", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
        Manager::start(self.cotenant(&words))
    }

    fn force(&self) {
        if self.user.is_none() {
            force(&self.state);
            return;
        }
        let out = self.cotenant(&["restore", "--force"]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

/// Killed on drop.
struct Program(Child);

impl Program {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What becomes of the daemon and its guardian.
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

/// Whether the program gave way before.
fn round(site: &Site, low: Low, way: &str, odd: bool, moment: Duration, pin: &Pin) -> bool {
    let what = format!("user {:?}, {low:?}: {way} after {moment:?}", site.user);
    let _kept = site.start("kept", &["-c", "while sleep 1; do :; done"]);
    let placed = site.start("placed", &["-c", "while sleep 0.01; do :; done"]);
    let batch = match low {
        Low::Marked => site.start("napping", &["--exact", "qos::program", "--nocapture"]),
        _ => site.start("low", &["-c", "while :; do :; done"]),
    };
    let group = site.group.as_ref().filter(|_| low.is_group());
    if let Some(group) = group {
        group.take(batch.pid());
    }
    let daemon = site.daemon(low, pin);
    let stat = || fs::read_to_string(format!("/proc/{}/stat", daemon.pid()));
    let ended = || stat().is_ok_and(|stat| stat.contains(") Z "));
    let is_held = || match (low, group) {
        (Low::Signals, _) => is_paused(batch.pid()),
        (Low::Frozen, Some(group)) => group.read("cgroup.freeze") == "1",
        // Users may not take the background back.
        (Low::Session | Low::Idle, _) => site.user.is_some() || is_in_background(batch.pid()),
        _ => true,
    };
    eventually(&format!("{what}: it is placed"), || all_have(placed.pid(), &pin.cpu) || ended());
    // Soon, but on a machine that others fill the readings of the speed are too old for that.
    let gives_way = (0..200).any(|_| {
        let now = is_held() || ended();
        if !now {
            pass(Duration::from_millis(10));
        }
        now
    });
    assert!(!ended(), "{what}: the daemon has ended: {:?}", daemon.end());
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
            signal("CONT", both[usize::from(odd) % both.len()]);
        }
        "STOP both, force" => {
            stop(&both);
            site.force();
        }
        _ => {
            stop(&[pid]);
            kill_guardian();
            site.force();
        }
    }
    if way != "KILL both" && way != "STOP guardian, KILL" {
        runs_on(&what, batch.pid());
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
    runs_on(&what, batch.pid());
    for program in [&placed, &batch] {
        assert!(all_have(program.pid(), &pin.own), "{what}: {:?}", world::masks(program.pid()));
        assert!(!is_paused(program.pid()) && !is_in_background(program.pid()), "{what}");
    }
    if let Some(group) = group {
        let weight = [group.read("cpu.shares"), group.read("cpu.weight")];
        assert!(weight.iter().any(|weight| ["1024", "100"].contains(&&**weight)), "{what}: {weight:?}");
        assert_eq!((group.read("cgroup.freeze"), group.read("cpu.idle")), ("0".to_owned(), "0".to_owned()), "{what}");
    }
    assert_eq!((site.state.journals(), groups_of(pid)), (0, vec![]), "{what}");
    gives_way
}

/// Holds undo/limits, undo/masks, undo/pauses.
#[test]
fn random_kills_and_stops_of_the_daemon_leave_nothing() {
    let Some(pin) = Pin::find() else { return };
    let mut sites = vec![Site::new(None).expect("who tests may look")];
    sites.extend(is_root().then(|| Site::new(Some(NOBODY))).flatten());
    let mut cases = Vec::new();
    for site in &sites {
        let all = [Low::Frozen, Low::Signals, Low::Idle, Low::Session, Low::Marked];
        let here = all.into_iter().filter(|low| site.group.is_some() || !low.is_group());
        cases.extend(here.map(|low| (site, low)));
    }
    let (mut rounds, mut gave_way) = (0, 0);
    for (number, moment) in kills(6, Duration::from_millis(600)).enumerate() {
        // Whatever their numbers, each meets each.
        let (site, low) = cases[number % cases.len()];
        let turn = number / cases.len();
        let way = WAYS[(number + turn) % WAYS.len()];
        gave_way += usize::from(round(site, low, way, turn % 2 == 1, moment, &pin));
        rounds += 1;
    }
    eprintln!("in {gave_way} of {rounds} rounds a program gave way at that moment or before");
}
