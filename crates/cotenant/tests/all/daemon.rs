//! `cotenant daemon`: services start and end, rules change, clients ask or attack, and in the end every mask is
//! restored.

use crate::world::{self, Manager, Pin, State, is_root, masks, may_mount, signal, skip, skip_in_part};
use cotenant_testing::{eventually, spawn_fresh};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A test's machine: a folder with programs, a configuration, and the daemon.
pub struct World {
    state: State,
    programs: Vec<Child>,
}

impl World {
    pub fn new(test: &str) -> Self {
        Self { state: State::new(test), programs: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// Starts a sleeping program with that name; returns its process id.
    pub fn start(&mut self, name: &str, environment: &[(&str, &str)]) -> u32 {
        self.start_as(None, name, environment)
    }

    pub fn start_as(&mut self, user: Option<u32>, name: &str, environment: &[(&str, &str)]) -> u32 {
        let path = self.path(name);
        if !path.exists() {
            let sleep = Command::new("sh").args(["-c", "command -v sleep"]).output().unwrap().stdout;
            fs::copy(String::from_utf8(sleep).unwrap().trim(), &path).unwrap();
        }
        let mut command = Command::new(path);
        command.arg("1000").envs(environment.iter().copied()).stdin(Stdio::null());
        if let Some(user) = user {
            command.uid(user);
        }
        self.programs.push(spawn_fresh(&mut command));
        self.programs.last().unwrap().id()
    }

    /// Ends the program started last.
    fn end_last(&mut self) {
        let mut last = self.programs.pop().unwrap();
        last.kill().unwrap();
        last.wait().unwrap();
    }

    pub fn configure(&self, text: &str) {
        fs::write(self.path("c.toml"), text.replace("$DIR", self.state.path().to_str().unwrap())).unwrap();
    }

    fn cotenant(&self, args: &[&str]) -> Command {
        let mut command = self.state.cotenant(args);
        command.env("XDG_DATA_HOME", self.path("data"));
        command
    }

    pub fn daemon(&self) -> Manager {
        self.daemon_after("")
    }

    /// One that a shell starts after that.
    pub fn daemon_after(&self, first: &str) -> Manager {
        let daemon = Manager::start(self.daemon_command(first));
        eventually("the daemon answers", || self.status().is_some());
        daemon
    }

    fn daemon_command(&self, first: &str) -> Command {
        let (config, socket) = (self.path("c.toml"), self.socket());
        let words = ["daemon", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
        let mut command = self.state.cotenant_after(first, &words);
        command.env("XDG_DATA_HOME", self.path("data"));
        command
    }

    pub fn socket(&self) -> PathBuf {
        self.path("control.sock")
    }

    fn ask(&self, words: &[&str]) -> Output {
        let socket = self.socket();
        self.cotenant(&[words, &["--socket", socket.to_str().unwrap()]].concat()).output().unwrap()
    }

    pub fn status(&self) -> Option<Value> {
        let out = self.ask(&["status", "--json"]);
        out.status.success().then(|| serde_json::from_slice(&out.stdout).unwrap())
    }

    /// The answer to a line.
    fn say(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let _ = stream.write_all(request); // it may be closed before the whole request is written
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    pub fn services(&self) -> Vec<String> {
        let status = self.status().unwrap();
        status["services"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// A rule that moves the program `server` to the first CPU.
const STATIC: &str = "mode = \"enforce\"\ninterval = \"20ms\"\n[set.static]\nmap = \"$MAP\"\n\
                      [[rule]]\nname = \"server\"\nmatch = { command = \"$DIR/server\" }\npolicy = \"static\"\n";

fn on_first(pin: &Pin) -> String {
    STATIC.replace("$MAP", &format!("X{}", ".".repeat(pin.map.len() - 1)))
}

fn mask_of(pid: u32) -> String {
    masks(pid).swap_remove(0)
}

/// Holds undo/masks.
#[test]
fn who_comes_is_managed_and_masks_come_back_on_every_kind_of_exit() {
    let Some(pin) = Pin::find() else { return };
    let mut world = World::new("daemon-masks");
    world.configure(&on_first(&pin));
    let other = world.start("other", &[]);
    for end in ["TERM", "INT", "KILL", "SEGV", "BUS"] {
        let daemon = world.daemon();
        assert_eq!(world.services(), [""; 0]);
        let server = world.start("server", &[]);
        eventually("it is placed", || mask_of(server) == pin.cpu);
        assert_eq!((world.services(), mask_of(other)), (vec!["server".to_owned()], pin.own.clone()));
        signal(end, daemon.pid());
        if ["KILL", "SEGV", "BUS"].contains(&end) {
            assert_eq!(daemon.end().1, None, "{end} has ended it");
        } else {
            let (said, code) = daemon.end();
            assert_eq!(code, Some(0), "{said}");
            assert!(said.contains("server is managed: rule server") && said.contains("given back: 1 mask"), "{said}");
            assert!(!world.socket().exists());
        }
        eventually("its mask is back", || mask_of(server) == pin.own);
        world.end_last();
    }
}

/// As systemd starts it: what is started after it may ask at once.
#[test]
fn a_daemon_that_is_ready_has_an_answer() {
    let world = World::new("daemon-ready");
    world.configure("mode = \"observe\"\n[[rule]]\nname = \"server\"\nmatch = { command = \"$DIR/server\" }\n");
    let notified = UnixDatagram::bind(world.path("notify")).unwrap();
    notified.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let mut command = world.daemon_command("");
    command.env("NOTIFY_SOCKET", world.path("notify"));
    let _daemon = Manager::start(command);
    let mut said = [0; 4096];
    loop {
        let length = notified.recv(&mut said).unwrap();
        if said[..length].starts_with(b"READY=1") {
            break;
        }
    }
    let out = world.ask(&["status"]);
    assert!(out.status.success(), "{out:?}");
}

/// Holds daemon/config.
#[test]
fn a_wrong_configuration_leaves_that_of_before_in_force() {
    let Some(pin) = Pin::find() else { return };
    let mut world = World::new("daemon-reload");
    world.configure(&on_first(&pin));
    let server = world.start("server", &[]);
    let daemon = world.daemon();
    eventually("it is placed", || mask_of(server) == pin.cpu);
    world.configure("mode = \"enforce\"\n[[rule]]\nname = \"server\"\nmatch = { comand = \"x\" }\n");
    signal("HUP", daemon.pid());
    let refused = || world.status().unwrap()["config_error"].as_str().map(str::to_owned);
    eventually("it is refused", || refused().is_some_and(|why| why.contains("c.toml:4:11: unknown field `comand`")));
    assert_eq!(mask_of(server), pin.cpu);
    // The same rule, in a file writable by others, and then in a private one: it stays in place.
    let may_write = |mode| fs::set_permissions(world.path("c.toml"), fs::Permissions::from_mode(mode)).unwrap();
    world.configure(&format!("# again\n{}", on_first(&pin)));
    may_write(0o666);
    signal("HUP", daemon.pid());
    eventually("it is refused", || refused().is_some_and(|why| why.contains("c.toml: others may write to it")));
    assert_eq!(mask_of(server), pin.cpu);
    may_write(0o644);
    signal("HUP", daemon.pid());
    eventually("it is taken", || refused().is_none());
    assert_eq!(mask_of(server), pin.cpu);
    // Its policy's settings changed: the service is released before the policy restarts.
    let last = format!("{}X", ".".repeat(pin.map.len() - 1));
    world.configure(&STATIC.replace("$MAP", &last));
    signal("HUP", daemon.pid());
    eventually("it is placed anew", || ![&pin.cpu, &pin.own].contains(&&mask_of(server)));
    // Under another rule it is ignored.
    world.configure("[[rule]]\nname = \"server\"\nmatch = { command = \"$DIR/server\" }\nclass = \"ignore\"\n");
    signal("HUP", daemon.pid());
    eventually("its mask is back", || mask_of(server) == pin.own && world.services().is_empty());
    signal("TERM", daemon.pid());
    let (said, code) = daemon.end();
    assert_eq!((said.matches("the settings of its policy have changed").count(), code), (1, Some(0)), "{said}");
}

/// The policy of a rule that comes wants to see more of programs than those that were there.
#[test]
fn services_whose_rule_is_the_same_go_on_when_another_rule_comes() {
    let mut world = World::new("daemon-rule-comes");
    let rule = |name: &str, class: &str| {
        format!("[[rule]]\nname = \"{name}\"\nmatch = {{ command = \"$DIR/{name}\" }}\nclass = \"{class}\"\n")
    };
    let first = format!("mode = \"enforce\"\n{}", rule("server", "high"));
    world.configure(&first);
    for name in ["server", "other"] {
        world.start(name, &[]);
    }
    let daemon = world.daemon();
    eventually("it is managed", || world.services() == ["server"]);
    world.configure(&format!("{first}{}", rule("other", "normal")));
    signal("HUP", daemon.pid());
    eventually("the other one, too", || world.services() == ["other", "server"]);
    world.configure(&first);
    signal("HUP", daemon.pid());
    eventually("and no more", || world.services() == ["server"]);
    signal("TERM", daemon.pid());
    let (said, code) = daemon.end();
    let begun = ["server", "other"].map(|name| said.matches(&format!("{name} is managed: ")).count());
    assert_eq!((begun, said.matches("given back: ").count(), code), ([1, 1], 1, Some(0)), "{said}");
}

/// Promise daemon/pause: Pauses of services, and what was learnt, survive a restart; users see, change and report
/// only what they may.
#[test]
fn a_service_is_paused_and_resumed_and_so_is_everything() {
    let Some(pin) = Pin::find() else { return };
    let mut world = World::new("daemon-pause");
    world.configure(&on_first(&pin));
    let server = world.start("server", &[]);
    let mut daemon = world.daemon();
    let placed = || mask_of(server) == pin.cpu;
    eventually("it is placed", placed);
    for (what, end) in [(&["server"][..], "KILL"), (&[], "TERM")] {
        assert!(world.ask(&[&["pause"], what].concat()).status.success());
        eventually("its mask is back", || mask_of(server) == pin.own);
        signal(end, daemon.pid());
        daemon.end();
        daemon = world.daemon();
        let status = world.status().unwrap();
        let paused = if what.is_empty() { &status["paused"] } else { &status["services"][0]["paused"] };
        assert_eq!(paused, true, "a restart does not end it: {status}");
        assert!(!placed());
        assert!(world.ask(&[&["resume"], what].concat()).status.success());
        eventually("it is placed again", placed);
    }
    let unknown = world.ask(&["pause", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(said, "cotenant: 'nobody' is not a service of yours that is managed; see cotenant status\n");
    drop(daemon);
}

/// Promise daemon/top: `top` shows the daemon, a recording, or what it sees without root; it fits any terminal, and
/// gives it back however it ends.
#[test]
fn top_shows_what_the_daemon_knows() {
    let mut world = World::new("daemon-top");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\nclass = \"low\"\n");
    world.start("server", &[]);
    let daemon = world.daemon();
    let seen = || -> Value { serde_json::from_slice(&world.ask(&["top", "--json"]).stdout).unwrap() };
    let busy = |picture: &Value| picture["packages"][0]["domains"][0]["cores"][0]["cpus"][0]["busy"].clone();
    let is_known = |picture: &Value| picture["services"][0]["cpus"].is_number() && busy(picture).is_number();
    eventually("a second is over", || is_known(&seen()));
    let picture = seen();
    assert!(picture["source"].as_str().unwrap().starts_with("daemon "), "{picture}");
    let service = &picture["services"][0];
    assert_eq!((&service["name"], &service["class"]), (&"server".into(), &"low".into()));
    assert_eq!(service["busiest"][0]["name"], "server", "{service}");
    assert_eq!(service["threads"], 1, "{service}");
    let once = world.ask(&["top", "--once"]);
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(once.status.success() && text.starts_with("cotenant top · daemon "), "{text}");
    assert!(text.contains(" server ") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    drop(daemon);
    let gone = world.ask(&["top", "--once"]);
    assert_eq!(gone.status.code(), Some(2), "a daemon that is named has to answer");
}

/// A pause takes all means away, and resuming brings them back.
#[test]
fn who_gives_way_can_be_made_to_wait_again_after_a_pause() {
    let mut world = World::new("daemon-low");
    world.configure(
        "mode = \"enforce\"\n[[rule]]\nname = \"batch\"\nmatch = { command = \"$DIR/*\" }\nclass = \"low\"\n",
    );
    world.start("batch", &[]);
    let daemon = world.daemon();
    let can_wait = || world.status().unwrap()["services"][0]["throttled"].is_number();
    eventually("it can be made to wait", can_wait);
    assert!(world.ask(&["pause"]).status.success());
    eventually("nobody waits in a pause", || world.services() == ["batch"] && !can_wait());
    assert!(world.ask(&["resume"]).status.success());
    eventually("it can be made to wait again", can_wait);
    drop(daemon);
}

/// Of a rule's programs one was stopped by its user before it was managed, and one between two pauses or in one;
/// paused by signals, or as a group that is frozen. The server is slow while the first one runs.
/// Holds undo/pauses.
#[test]
fn what_its_user_stopped_of_a_rules_programs_stands_still_afterwards() {
    for frozen in [false, true] {
        let pod = if frozen { Pod::new("stopped") } else { None };
        if frozen && !pod.as_ref().is_some_and(|pod| pod.0.join("stopped/cgroup.freeze").exists()) {
            skip_in_part("no control groups may be frozen here");
            continue;
        }
        let mut world = World::new("daemon-stopped");
        let server = world.start("server", &[]);
        let batch = ["first", "second", "third"].map(|_| world.start("batch", &[]));
        let state = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        signal("STOP", batch[1]);
        let (check, matching) = match &pod {
            Some(pod) => {
                for pid in batch {
                    pod.take(pid);
                }
                let events = pod.0.join("stopped/cgroup.events");
                (format!("grep -q 'frozen 1' {}", events.display()), "pod = \"*\"")
            }
            None => (format!("grep -q ') T' /proc/{}/stat", batch[0]), "command = \"$DIR/batch\""),
        };
        world.configure(&format!(
            "mode = \"enforce\"\ninterval = \"20ms\"\n\
             [[rule]]\nname = \"server\"\nmatch = {{ command = \"$DIR/server\" }}\nclass = \"high\"\n\
             metric = \"cmd:{check} && echo 10 || echo 2,every=50ms\"\n\
             [[rule]]\nname = \"batch\"\nmatch = {{ {matching} }}\nclass = \"low\"\n"
        ));
        let daemon = world.daemon();
        if let Some(pod) = &pod {
            let told = serde_json::json!({
                "cgroup": pod.container(), "namespace": "shop", "pod": "batch-0", "container": "main",
            });
            world.say(format!("{{\"version\":1,\"verb\":\"containers\",\"containers\":[{told}]}}\n").as_bytes());
        }
        let stands = || Command::new("sh").args(["-c", &check]).status().unwrap().success();
        // It begins with a pause each time; where others fill the machine there would be no second one.
        let anew = || {
            assert!(world.ask(&["pause"]).status.success() && world.ask(&["resume"]).status.success());
            (0..500).any(|_| stands())
        };
        for time in ["first", "second"] {
            eventually(&format!("frozen {frozen}: it pauses, {time} time"), anew);
            eventually(&format!("frozen {frozen}: it goes on, {time} time"), || !stands());
            if time == "first" {
                // What is sent to go on after it was stopped goes on.
                eventually("this one goes on, too", || state(batch[2]) != 'T');
                signal("STOP", batch[2]);
            }
        }
        let (said, code) = daemon.terminate();
        assert_eq!(code, Some(0), "{said}");
        eventually("the group is thawed", || !stands());
        assert_eq!(batch.map(|pid| state(pid) == 'T'), [false, true, true], "frozen {frozen}: {said}");
        assert_eq!(state(server), 'S');
    }
}

/// Promise record/why: `why`, `doctor` and reports say what was done to each program by each means, with the figures
/// that decided and what became of it.
#[test]
fn the_daemon_says_why_and_doctor_what_is_wrong_with_it() {
    let Some(pin) = Pin::find() else { return };
    let mut world = World::new("daemon-why");
    world.configure(&on_first(&pin));
    let server = world.start("server", &[]);
    let daemon = world.daemon();
    eventually("it is placed", || mask_of(server) == pin.cpu);
    let why = |service: &str| {
        let out = world.ask(&["why", "--live", service]);
        (out.status.code(), String::from_utf8(if out.status.success() { out.stdout } else { out.stderr }).unwrap())
    };
    eventually("it is told", || why("server").1.contains("server: task "));
    assert_eq!(
        why("other"),
        (Some(2), "cotenant: the daemon manages no service 'other'; see cotenant status\n".into())
    );
    if may_mount() || !is_root() {
        // Without --socket: the socket is in its default place, or the user has none.
        world.configure("mode = 3");
        signal("HUP", daemon.pid());
        let doctor = || String::from_utf8(world.cotenant(&["doctor"]).output().unwrap().stdout).unwrap();
        let told = if is_root() { "! its configuration is not in force: " } else { "Daemon: " };
        eventually("doctor sees it", || doctor().contains(told));
    } else {
        world::skip_in_part("where root's daemon listens cannot be changed here");
    }
    drop(daemon);
}

/// Promise daemon/rules: The daemon manages what its rules name while it runs; the first rule that matches decides,
/// and programs that opt out are left alone.
#[test]
fn who_opts_out_is_left_alone_and_so_is_the_second_daemon() {
    let mut world = World::new("daemon-out");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    world.start("in", &[]);
    world.start("out", &[("COTENANT", "off")]);
    let daemon = world.daemon();
    eventually("one is found", || world.services() == ["in"]);
    let socket = world.socket();
    let config = world.path("c.toml");
    let second = ["daemon", "--config", config.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let second = world.cotenant(&second).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another daemon runs at"));
    assert!(world.status().is_some(), "the first one goes on");
    drop(daemon);
}

/// Whoever can open a file can hold its lock. One that an earlier release left open to all keeps nobody from starting;
/// one that a process of the daemon's own user holds is no daemon, and is tried again.
/// Holds daemon/hostile.
#[test]
fn no_lock_of_others_keeps_the_daemon_from_starting() {
    let world = World::new("daemon-locked");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    let lock = world.path("control.lock");
    let hold = || {
        let mut holder = Command::new("flock");
        holder.arg(&lock).args(["sh", "-c", "echo held; exec sleep 1000"]).stdout(Stdio::piped());
        let mut holder = holder.process_group(0).spawn().unwrap();
        let mut said = [0; 5];
        holder.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        holder
    };
    let end = |mut holder: Child| {
        Command::new("kill").args(["-9", "--", &format!("-{}", holder.id())]).status().unwrap();
        holder.wait().unwrap();
    };
    fs::write(&lock, "").unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).unwrap();
    let theirs = hold();
    let daemon = world.daemon();
    assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(daemon.terminate().1, Some(0));
    end(theirs);
    let ours = hold();
    let out = world.daemon_command("").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "a service manager tries it again: {said}");
    assert!(said.contains("control.lock: another process holds the lock, and no daemon answers"), "{said}");
    end(ours);
}

/// Promise daemon/hostile: No client, lock, stuck file or noisy program can stop the daemon's loop, keep others out,
/// or fill its memory or log.
#[test]
fn nobody_holds_the_daemon_up_by_its_socket() {
    let mut world = World::new("daemon-hostile");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    world.start("server", &[]);
    let daemon = world.daemon();
    let connect = || UnixStream::connect(world.socket()).unwrap();
    let answer = |request: &[u8]| world.say(request);
    for request in [&b"\n"[..], b"{}\n", b"{\"version\":1,\"verb\":\"explode\"}\n", b"\xff\xff\n", &[b' '; 8 << 10]] {
        assert!(answer(request).starts_with("{\"error\":\"this is not a request"), "{request:?}");
    }
    let other = answer(b"{\"version\":99,\"verb\":\"status\"}\n");
    assert!(other.contains("speaks another protocol"), "{other}");
    // Half requests occupy all places until their timeout; then others are admitted again.
    let idle: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    eventually("it answers", || world.status().is_some());
    drop(idle);
    assert!(world.status().is_some());
    let mut slow = connect();
    eventually("who sends drop by drop is sent away", || slow.write_all(b" ").is_err());
    // Answers are snapshots: younger ones show that the loop continues.
    let begun = world.status().unwrap()["uptime_s"].as_f64().unwrap();
    let mut held = Vec::new();
    eventually("the loop goes on meanwhile, and looks", || {
        for i in 0..20 {
            let mut stream = connect();
            let said: &[u8] = if i % 2 == 0 { b"{\"version\":1," } else { b"{\"version\":1,\"verb\":\"status\"}\n" };
            let _ = stream.write_all(said); // it may be closed already
            held.push(stream);
        }
        held.drain(..held.len() - 3); // one place is left for other clients
        world.status().is_some_and(|status| {
            let number = |key: &str| status[key].as_f64().unwrap();
            number("uptime_s") > begun + 4.0 && number("sample_age_s") < 4.0 // at most 2 s between two looks
        })
    });
    drop(daemon);
}

/// Each request is read on a small stack, and what reads it descends into what it holds.
#[test]
fn a_request_that_nests_deeply_does_no_harm() {
    let world = World::new("daemon-nested");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    let daemon = world.daemon();
    for depth in [126, 127, 128, 1_500] {
        for [open, close] in [["[", "]"], ["{\"a\":", "}"]] {
            let nested = format!("{}0{}", open.repeat(depth), close.repeat(depth));
            for request in [
                nested.clone(),
                format!("{{\"version\":{nested}}}"),
                format!("{{\"version\":1,\"verb\":\"pause\",\"service\":{nested}}}"),
                format!("{{\"version\":1,\"verb\":\"containers\",\"containers\":{nested}}}"),
                format!("{{\"version\":1,\"verb\":\"status\",\"more\":{nested}}}"),
            ] {
                let said = world.say(format!("{request}\n").as_bytes());
                // Closing an oversized request with unread parts can lose the answer.
                let is_lost = said.is_empty() && request.len() > 4_096;
                let is_told = said.starts_with("{\"error\":\"this is not a request") || said.starts_with("{\"ok\":");
                assert!(is_told || is_lost, "{request}: {said}");
            }
        }
    }
    assert!(world.status().is_some());
    assert_eq!(daemon.terminate().1, Some(0));
}

/// A wrong path, port or password: whoever looks is told, and as long as it is so.
#[test]
fn why_a_metric_says_nothing_is_told() {
    let mut world = World::new("daemon-metric");
    world.configure(
        "[[rule]]\nname = \"db\"\nmatch = { command = \"$DIR/server\" }\nclass = \"high\"\n\
         metric = \"log:$DIR/speed.log:([0-9.]+),every=20ms\"\n",
    );
    let daemon = world.daemon();
    // A running service's metric is read at the start, which ends with a refused metric.
    world.start("server", &[]);
    let service = || world.status().unwrap()["services"][0].clone();
    let why = || service()["metric_error"].as_str().map(str::to_owned);
    eventually("why there is no speed is told", || {
        why().is_some_and(|why| why.starts_with("metric log: ") && why.contains("speed.log: No such file"))
    });
    let said = String::from_utf8(world.ask(&["status"]).stdout).unwrap();
    assert!(said.contains("warning: server: metric log: ") && said.contains("; check the path"), "{said}");
    let mut log = fs::File::create(world.path("speed.log")).unwrap();
    eventually("it has a speed, and nothing is wrong any more", || {
        writeln!(log, "7").unwrap();
        why().is_none() && service()["speed"] == 7.0
    });
    let (said, code) = daemon.terminate();
    assert!(code == Some(0) && said.matches("server: metric log: ").count() == 1, "{said}");
}

/// Holds daemon/pause.
#[test]
fn others_see_and_change_what_is_theirs() {
    if !is_root() {
        return skip("becoming another user takes root");
    }
    let mut world = World::new("daemon-users");
    let folder = world.path("");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o715)).unwrap();
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    world.start("server", &[]);
    world.start_as(Some(65_534), "theirs", &[]);
    let daemon = world.daemon();
    eventually("they are found", || world.services() == ["server", "theirs"]);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o715, "the folder is not the daemon's");
    let nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", &world::binary()]).args(words);
        command.args(["--socket", world.socket().to_str().unwrap()]).output().unwrap()
    };
    let out = nobody(&["status", "--json"]);
    if out.status.code() == Some(126) || out.status.code() == Some(127) {
        return skip("another user cannot execute the binary here");
    }
    let status: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let names = status["services"].as_array().unwrap().iter().map(|service| &service["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["theirs"]);
    for words in [&["pause"][..], &["resume"], &["pause", "server"]] {
        assert_eq!(nobody(words).status.code(), Some(1), "{words:?}");
    }
    assert_eq!(world.status().unwrap()["paused"], false);
    // They do not resume a pause by root; they resume their own, but not at once.
    let said = |out: &Output| (out.status.code(), String::from_utf8(out.stderr.clone()).unwrap());
    let is_told = |words: &[&str], why: &str| {
        let why = (Some(1), format!("cotenant: {why}\n"));
        eventually("they are told why", || said(&nobody(words)) == why);
    };
    let haste = "you have changed something less than 1 s ago; try again";
    is_told(&["pause", "no such"], "'no such' is not a service of yours that is managed; see cotenant status");
    is_told(&["pause", "no such"], haste);
    assert!(world.ask(&["pause", "theirs"]).status.success() && world.ask(&["pause", "server"]).status.success());
    is_told(&["resume", "theirs"], "the administrator has paused 'theirs', and alone resumes it");
    is_told(&["resume", "server"], "'server' is not a service of yours that is paused; see cotenant status");
    assert!(world.ask(&["resume", "theirs"]).status.success() && world.ask(&["resume", "server"]).status.success());
    eventually("they pause it", || nobody(&["pause", "theirs"]).status.success());
    assert!(world.ask(&["pause", "theirs"]).status.success(), "root takes the pause over");
    is_told(&["resume", "theirs"], "the administrator has paused 'theirs', and alone resumes it");
    assert!(world.ask(&["resume", "theirs"]).status.success());
    eventually("they pause it again", || nobody(&["pause", "theirs"]).status.success());
    eventually("and resume it", || nobody(&["resume", "theirs"]).status.success());
    drop(daemon);
}

/// A program comes with whoever it starts, but for those that another rule names or that opted out.
#[test]
fn whom_a_program_starts_may_be_another_rules() {
    let mut world = World::new("daemon-trees");
    let rule = |name: &str, class: &str| {
        format!("[[rule]]\nname = \"{name}\"\nmatch = {{ command = \"$DIR/{name}\" }}\nclass = \"{class}\"\n")
    };
    world.configure(&(rule("other", "ignore") + &rule("batch", "low")));
    world.start("other", &[]);
    let shell = Command::new("sh").args(["-c", "command -v sh"]).output().unwrap().stdout;
    fs::copy(String::from_utf8(shell).unwrap().trim(), world.path("batch")).unwrap();
    let _daemon = world.daemon();
    let child = "setpriv --pdeathsig KILL";
    let other = world.path("other");
    let script =
        format!("{child} {} 1000 & {child} sleep 1000 & COTENANT=off {child} sleep 1000 & wait", other.display());
    let mut batch = Command::new(world.path("batch"));
    world.programs.push(spawn_fresh(batch.args(["-c", &script]).stdin(Stdio::null())));
    let followed = |world: &World| {
        let status = world.status()?;
        let batch = status["services"].as_array()?.iter().find(|service| service["name"] == "batch")?;
        Some((batch["processes"].as_u64()?, batch["threads"].as_u64()?))
    };
    eventually("the shell and one of its children are followed", || followed(&world) == Some((1, 2)));
}

/// Control groups of a pod with one container of this name; removed on drop.
struct Pod(PathBuf, &'static str);

impl Pod {
    /// In the hierarchy that determines the groups of processes.
    fn new(container: &'static str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists())?;
        let pod = root.join(format!("cotenant-pod-{}-{container}", std::process::id()));
        fs::create_dir_all(pod.join(container)).ok()?;
        Some(Self(pod, container))
    }

    /// Its path in the kernel's form.
    fn path(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }

    /// Its container's path.
    fn container(&self) -> String {
        format!("{}/{}", self.path(), self.1)
    }

    fn take(&self, pid: u32) {
        fs::write(self.0.join(self.1).join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        eventually("the pod is empty", || {
            let _ = fs::remove_dir(self.0.join(self.1));
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

/// Promise cluster/containers: Containers are managed by namespace, pod, name and label, all bounded and cleaned;
/// their annotations count where a rule allows that.
#[test]
fn containers_are_managed_by_the_word_of_the_bridge() {
    let Some(pin) = Pin::find() else { return };
    let Some(pod) = Pod::new("main") else { return skip("no control groups may be made here") };
    let mut world = World::new("daemon-containers");
    let rules =
        on_first(&pin).replace("match = { command = \"$DIR/server\" }", "match = { label = { app = \"db*\" } }");
    world.configure(&(rules + "annotations = [\"class\"]\n"));
    let server = world.start("server", &[]);
    pod.take(server);
    let told = |class: &str| {
        let told = serde_json::json!({
            "cgroup": pod.container(), "namespace": "shop", "pod": "db-0", "container": "main", "workload": "db",
            "labels": { "app": "db-main" }, "class": class, "goal": "101%",
        });
        format!("{{\"version\":1,\"verb\":\"containers\",\"containers\":[{told}]}}\n")
    };
    for _ in 0..2 {
        let daemon = world.daemon();
        assert_eq!((world.services(), mask_of(server)), (vec![], pin.own.clone()), "nobody has told of it");
        let said = world.say(told("normal").as_bytes());
        assert!(said.starts_with("{\"ok\":{\"taken\":1,\"remarks\":[\"shop/db-0/main: goal: '101%' is no"), "{said}");
        eventually("it is placed", || mask_of(server) == pin.cpu);
        let status = world.status().unwrap();
        let service = &status["services"][0];
        assert_eq!((&service["name"], &service["class"]), (&"shop/db-0/main".into(), &"normal".into()));
        assert_eq!(status["containers"], 1);
        eventually("the cluster is told of it", || {
            let node: Value = serde_json::from_str(&world.say(b"{\"version\":1,\"verb\":\"node\"}\n")).unwrap();
            let guest = &node["ok"]["containers"][0];
            guest["workload"] == "db" && guest["use"]["cores"].is_number()
        });
        // Its annotation changes, then it is gone: its mask is restored.
        world.say(told("ignore").as_bytes());
        eventually("it is left alone", || mask_of(server) == pin.own && world.services().is_empty());
        world.say(told("normal").as_bytes());
        eventually("it is placed again", || mask_of(server) == pin.cpu);
        world.say(b"{\"version\":1,\"verb\":\"containers\",\"containers\":[]}\n");
        eventually("it is no container any more", || mask_of(server) == pin.own);
        drop(daemon);
    }
    world.end_last();
}

/// The kubelet restarts it in its pod, and nobody looks in between.
#[test]
fn a_container_that_was_restarted_is_throttled_again() {
    let (Some(before), Some(after)) = (Pod::new("before"), Pod::new("after")) else {
        return skip("no control groups may be made here");
    };
    let mut world = World::new("daemon-restarted");
    world.configure("mode = \"enforce\"\n[[rule]]\nname = \"batch\"\nmatch = { pod = \"*\" }\nclass = \"low\"\n");
    for pod in [&before, &after, &after] {
        let batch = world.start("batch", &[]);
        pod.take(batch);
    }
    let daemon = world.daemon();
    let tell = |pod: &Pod| {
        let told = serde_json::json!({
            "cgroup": pod.container(), "namespace": "shop", "pod": "batch-0", "container": "main",
        });
        world.say(format!("{{\"version\":1,\"verb\":\"containers\",\"containers\":[{told}]}}\n").as_bytes());
    };
    let freezes = before.0.join("before/cgroup.freeze").exists();
    if !freezes {
        world::skip_in_part("containers cannot be frozen here");
    }
    for (pod, processes) in [(&before, 1), (&after, 2)] {
        tell(pod);
        let service = || world.status().unwrap()["services"][0].clone();
        eventually("it is managed", || service()["processes"] == processes);
        eventually("it can be made to wait", || !freezes || service()["throttled"].is_number());
    }
    assert_eq!(world.services(), ["shop/batch-0/main"]);
    let (said, _) = daemon.terminate();
    assert!(said.contains("is not managed any more: its control group has changed"), "{said}");
    for _ in 0..3 {
        world.end_last();
    }
}

/// Promise cluster/slurm: Jobs of Slurm are managed without two becoming one, and start as before whatever fails in
/// prolog, table or daemon.
#[test]
fn jobs_are_managed_by_the_word_of_the_prolog() {
    let Some(pod) = Pod::new("job_7") else { return skip("no control groups may be made here") };
    let mut world = World::new("daemon-jobs");
    world.configure(
        "slurm = true\n[[rule]]\nname = \"jobs\"\nmatch = { namespace = \"*\" }\nannotations = [\"class\"]\n",
    );
    let (prolog, jobs) = (world.path("prolog"), world.path("slurm"));
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/slurm/prolog")).unwrap();
    let group = format!("groups() {{ echo \"{}/job_$job\"; }}\n\n# Users write", pod.path());
    let text = text.replacen("# Users write", &group, 1);
    let text = text.replace("jobs=/run/cotenant/slurm", &format!("jobs={}", jobs.display()));
    assert!(text.contains(&pod.path()) && text.contains(jobs.to_str().unwrap()));
    fs::write(&prolog, text).unwrap();
    let script = |context: &str, job: &str, comment: &[u8]| {
        let comment = std::os::unix::ffi::OsStrExt::from_bytes(comment);
        let mut command = Command::new("sh");
        command.arg(&prolog).env("SLURM_SCRIPT_CONTEXT", context).env("SLURM_JOB_ID", job);
        command.env("SLURM_JOB_PARTITION", "big_ones").env("SLURM_JOB_USER", "alice");
        let out = command.env("SLURM_JOB_COMMENT", std::ffi::OsStr::new::<std::ffi::OsStr>(comment)).output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "Slurm drains a node whose prolog fails: {out:?}");
    };
    script("prolog_slurmd", "7", b"cotenant:profile=a");
    assert!(!jobs.exists(), "no daemon was there yet");
    let daemon = world.daemon();
    let server = world.start("server", &[]);
    pod.take(server);
    script("prolog_slurmd", "7", b"cotenant:class=low,profile=sort v_2,goal=90%");
    eventually("the job is known", || world.services() == ["big-ones/7/sort-v-2"]);
    let status = world.status().unwrap();
    let service = &status["services"][0];
    assert_eq!((&service["class"], &service["container"]["workload"]), (&"low".into(), &"alice.sort_20v_5F2".into()));
    eventually("the table says what it uses", || {
        fs::read_to_string(world.path("slurm.tsv"))
            .is_ok_and(|table| table.contains("\nworkload\talice.sort_20v_5F2\t"))
    });
    // Under any text from users, each file is read, and no text appears in a wrong place.
    let long = [b"cotenant:profile=".to_vec(), vec![b'\\'; 4_096]].concat();
    let comments: [&[u8]; 8] = [
        b"",
        b"cotenant:",
        b"cotenant:profile=\",\"x\":\"",
        b"cotenant:profile=$(touch caught)`touch caught`,class=';",
        b"cotenant:profile=a\nb\x1b[2J\t",
        b"cotenant:goal=%s%n,profile=../../x",
        b"cotenant:profile=\xff\xfe,class=l\xf8w",
        &long,
    ];
    for (i, comment) in comments.into_iter().enumerate() {
        let job = (100 + i).to_string();
        script("prolog_slurmd", &job, comment);
        let text = fs::read(jobs.join(&job)).unwrap();
        let told: Value = serde_json::from_slice(&text).unwrap();
        assert!(told["cgroup"] == format!("{}/job_{job}", pod.path()) && text.len() < 1_024, "{told}");
        assert!(text.is_ascii() && !text[..text.len() - 1].iter().any(u8::is_ascii_control), "{told}");
    }
    script("prolog_slurmd", "../x", b"");
    script("epilog_slurmd", "7", b"");
    eventually("the job is known no more", || world.services().is_empty());
    assert!(!jobs.join("7").exists() && !world.path("x").exists());
    drop(daemon);
    world.end_last();
}

/// What one user's jobs use is not taken for another's, whatever they call themselves and their profiles: by the prolog
/// as by the controller's script.
/// Holds cluster/slurm.
#[test]
fn no_two_workloads_of_slurm_become_one() {
    let folder = State::new("slurm-names");
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/slurm");
    let (prolog, jobs) = (folder.path().join("prolog"), folder.path().join("jobs"));
    fs::create_dir(&jobs).unwrap();
    let text = fs::read_to_string(format!("{packaging}/prolog")).unwrap();
    fs::write(&prolog, text.replace("jobs=/run/cotenant/slurm", &format!("jobs={}", jobs.display()))).unwrap();
    let is_there = Command::new("lua").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !is_there {
        skip_in_part("no lua: the controller's script is not asked");
    }
    let script = format!(
        "slurm = {{ SUCCESS = 0 }}; local text = io.open('{packaging}/job_submit.lua'):read('a')
         text = text:gsub('function slurm_job_submit', 'workload_of_test = workload_of\\n%0', 1)
         load(text)(); io.write(workload_of_test({{ user_name = arg[1], comment = 'cotenant:profile=' .. arg[2] }}))"
    );
    let mut workloads = BTreeMap::new();
    for (i, (user, profile, name)) in [
        ("alice", "sort", "alice.sort"),
        ("a", "b.sort", "a.b_2Esort"),
        ("a.b", "sort", "a_2Eb.sort"),
        ("x_y", "s", "x_5Fy.s"),
        ("x-y", "s", "x-y.s"),
        ("x_5Fy", "s", "x_5F5Fy.s"),
        ("x y\"\\", "s", "x_20y_22_5C.s"),
        ("j\u{f6}", "\u{f6}$(x)", "j_C3_B6._C3_B6_24_28x_29"),
    ]
    .into_iter()
    .enumerate()
    {
        let job = i.to_string();
        let mut command = Command::new("sh");
        command.arg(&prolog).env("SLURM_SCRIPT_CONTEXT", "prolog_slurmd").env("SLURM_JOB_ID", &job);
        command.env("SLURM_JOB_USER", user).env("SLURM_JOB_COMMENT", format!("cotenant:profile={profile}"));
        assert!(command.status().unwrap().success());
        // A line for each group that the job may have.
        let told = fs::read_to_string(jobs.join(&job)).unwrap();
        let told: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        assert_eq!(told["workload"], name, "{told}");
        assert_eq!(workloads.insert(told["labels"]["user"].clone().to_string() + profile, user), None, "{told}");
        if is_there {
            let out = Command::new("lua").args(["-e", &script, "/dev/null", user, profile]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), name, "{}", String::from_utf8_lossy(&out.stderr));
        }
    }
}

/// As many as a large node has, in one line of more than the 4 KiB that others may send.
#[test]
fn a_long_list_of_containers_is_taken_and_one_without_end_is_not() {
    let world = World::new("daemon-many");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { namespace = \"*\" }\n");
    let daemon = world.daemon();
    let told = |i: usize| {
        format!("{{\"cgroup\":\"/pods/p{i}\",\"namespace\":\"shop\",\"pod\":\"p{i}\",\"container\":\"main\"}}")
    };
    let list = (0..500).map(told).collect::<Vec<_>>().join(",");
    let said = world.say(format!("{{\"version\":1,\"verb\":\"containers\",\"containers\":[{list}]}}\n").as_bytes());
    assert_eq!(said, "{\"ok\":{\"taken\":500,\"remarks\":[]}}\n");
    eventually("it is told how many", || world.status().unwrap()["containers"] == 500);
    let endless = [b"{\"version\":1,\"verb\":\"containers\",".to_vec(), vec![b' '; 5 << 20]].concat();
    // Closing it with unread parts can lose the answer.
    let said = world.say(&endless);
    assert!(said.is_empty() || said.starts_with("{\"error\":\"this is not a request"), "{said}");
    assert_eq!(world.status().unwrap()["containers"], 500);
    drop(daemon);
}

/// Promise daemon/config: A wrong configuration is one line with its place, and leaves the previous one in force.
#[test]
fn what_is_wrong_in_a_configuration_is_said_with_its_place() {
    let world = World::new("daemon-check");
    let check = |text: &str| {
        world.configure(text);
        let config = world.path("c.toml");
        let out = world.cotenant(&["daemon", "--check", "--config", config.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8(if out.status.success() { out.stdout } else { out.stderr }).unwrap();
        (out.status.code(), said.replace(config.to_str().unwrap(), "c.toml"))
    };
    let rule = |rest: &str| format!("[[rule]]\nname = \"a\"\n{rest}\n");
    for (text, said) in [
        (String::new(), "c.toml: there is no [[rule]]"),
        ("mode = \"on\"".into(), "c.toml:1:8: unknown variant `on`"),
        ("interval = \"1d\"".into(), "c.toml:1:12: interval: "),
        (rule(""), "c.toml:1:1: match is empty"),
        (rule("match = {}"), "c.toml:1:1: match is empty; give unit, cgroup, command or user"),
        (rule("match = { unit = \"[\" }"), "c.toml:3:18: unit: error parsing glob"),
        (rule("match = { user = \"no such user\" }"), "c.toml:3:18: user: there is no user 'no such user'"),
        (rule("match = { pod = \"[\" }"), "c.toml:3:17: pod: error parsing glob"),
        (rule("match = { label = { app = \"[\" } }"), "c.toml:3:27: label: error parsing glob"),
        (rule("match = { pod = \"a\" }\nannotations = [\"all\"]"), "c.toml:4:16: unknown variant `all`"),
        ("bridge = \"no such user\"".into(), "c.toml:1:10: bridge: there is no user"),
        (rule("match = { unit = \"a\" }\npolicy = \"best\""), "c.toml:4:10: policy: there is no policy 'best'"),
        (
            rule("match = { unit = \"a\" }\npolicy = \"das\""),
            "c.toml:4:10: policy: policy das chooses which of many jobs run",
        ),
        (rule("match = { unit = \"a\" }\npolicy = \"static\""), "c.toml:4:10: policy: policy static: there is no map"),
        (rule("match = { unit = \"a\" }\ngoal = \"90%\""), "c.toml:4:8: goal is for class = \"high\""),
        (
            rule("match = { unit = \"a\" }\nclass = \"low\"\nmetric = \"ipc\""),
            "c.toml:5:10: metric is for class = \"high\" and",
        ),
        (
            rule("match = { unit = \"a\" }\nclass = \"high\"\ngoal = \"110%\""),
            "c.toml:5:8: goal: '110%' is not a \
             share",
        ),
        (rule("match = { unit = \"a\" }\nclass = \"high\"\nmetric = \"x:\""), "c.toml:5:10: metric: "),
        (format!("[set.shape]\nguard = 1\n{}", rule("match = { unit = \"a\" }")), "c.toml:1:6: set: "),
        (
            format!("[set.shapes]\nregret = \"1%\"\nguard = true\n{}", rule("match = { unit = \"a\" }")),
            "c.toml:3:1: set: ",
        ),
        (
            format!("[set.qos]\nhigh = []\n{}", rule("match = { unit = \"a\" }")),
            "c.toml:1:6: set: qos is set by class, goal",
        ),
        (
            [rule("match = { unit = \"a\" }"), rule("match = { unit = \"b\" }")].concat(),
            "c.toml:4:1: the rule at c.toml:1:1 is called 'a', too",
        ),
    ] {
        let (code, line) = check(&text);
        assert_eq!((code, line.lines().count()), (Some(2), 1), "{text}: {line}");
        assert!(line.contains(said), "{text}: {line}");
    }
    assert_eq!(check(&rule("match = { unit = \"a\" }\nmetric = \"ipc\"")).0, Some(0));
    let (code, said) = check(&rule("match = { unit = \"nobody-is-called-so.service\" }"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("ok: observe, 1 rule of c.toml"), "{said}");
    // Files next to it take precedence.
    world.configure(&rule("match = { unit = \"a\" }"));
    fs::create_dir(world.path("conf.d")).unwrap();
    fs::write(world.path("conf.d/10-b.toml"), "mode = \"advise\"\n[[rule]]\nname = \"b\"\nmatch = { unit = \"b\" }\n")
        .unwrap();
    let config = world.path("c.toml");
    let out = world.cotenant(&["daemon", "--check", "--config", config.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.starts_with("ok: advise, 2 rules of"), "{said}");
    assert!(said.find("\nb ").unwrap() < said.find("\na ").unwrap(), "{said}");
    // A pipe is not waited for.
    let pipe = world.path("conf.d/20-pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let out = world.cotenant(&["daemon", "--check", "--config", config.to_str().unwrap()]).output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).contains("20-pipe.toml: ")), (Some(2), true));
}

/// Also with the examples in it.
/// Other cotenants of root's, as from a tarball or in a container, keep what says how their changes are undone.
/// Promise daemon/package: The packaged daemon only observes at first; upgrades keep configuration and state; purging
/// leaves only journals that others need.
#[test]
fn purge_leaves_the_journals_of_others() {
    if !may_mount() {
        return skip("what purge removes takes mounts of its own to try");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/debian/cotenant.postrm");
    let left = |others: &str| {
        let steps = format!(
            "for folder in /run /etc /var/lib; do mount -t tmpfs none $folder; done; cd /run; mkdir cotenant /etc/cotenant
             touch cotenant/control.sock cotenant/control.lock cotenant/claims-a.lock; {others}
             sh {script} purge && cd / && find /run/cotenant /etc/cotenant -type f 2>/dev/null | sort"
        );
        let out = Command::new("unshare").args(["--mount", "sh", "-c", &steps]).output().unwrap();
        String::from_utf8(out.stdout).unwrap().replace("/run/cotenant/", "").replace('\n', " ")
    };
    assert_eq!(left("echo theirs > cotenant/journal-a"), "claims-a.lock journal-a ");
    assert_eq!(left("echo $$ 1 $$ 1 > cotenant/claims-a"), "claims-a claims-a.lock ", "it lives");
    assert_eq!(left("echo 4194304 1 4194304 1 > cotenant/claims-a"), "");
    assert_eq!(left(""), "");
}

#[test]
fn the_configuration_of_the_package_is_right() {
    let world = World::new("daemon-package");
    let packaged = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/cotenant.toml")).unwrap();
    let example = |line: &str| {
        let words = line.strip_prefix("# ")?;
        let is = words.starts_with("[[") || words.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        is.then(|| words.to_owned())
    };
    let uncommented: Vec<String> =
        packaged.lines().map(|line| example(line).unwrap_or_else(|| line.to_owned())).collect();
    for (text, said) in [
        (packaged.clone(), "ok: observe, 1 rule of c.toml"),
        (uncommented.join("\n"), "ok: observe, 4 rules of c.toml"),
    ] {
        world.configure(&text);
        let out = world.cotenant(&["daemon", "--check", "--config", "c.toml"]).current_dir(world.state.path()).output();
        let out = out.unwrap();
        let (told, wrong) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(told.starts_with(said), "{told}{wrong}");
    }
}

/// What the page says of the unit, by the service manager that it names.
#[test]
fn the_unit_is_as_safe_as_its_page_says() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let run = |args: &[&str]| Command::new("systemd-analyze").args(args).output().map(|out| out.stdout);
    let version = run(&["--version"]).unwrap_or_default();
    if !version.starts_with(b"systemd 252 ") {
        return skip("there is no systemd-analyze of systemd 252");
    }
    let page = fs::read_to_string(format!("{root}/docs/reference/daemon-rights.md")).unwrap();
    let page = page.replace('\n', " ");
    let (unit, folder) = (format!("{root}/packaging/systemd"), World::new("daemon-unit"));
    let copy = folder.path("cotenant.service");
    fs::copy(format!("{unit}/cotenant.service"), &copy).unwrap();
    for (with, told) in [
        (&[][..], "security cotenant` says LEVEL (*OK*"),
        (&["network.conf"], "With `network.conf` it is LEVEL,"),
        (&["throttle.conf"], "with `throttle.conf` LEVEL,"),
        (&["network.conf", "throttle.conf"], "with both LEVEL."),
    ] {
        let drop_ins = folder.path("cotenant.service.d");
        let _ = fs::remove_dir_all(&drop_ins);
        fs::create_dir(&drop_ins).unwrap();
        for name in with {
            fs::copy(format!("{unit}/{name}"), drop_ins.join(name)).unwrap();
        }
        let said = run(&["security", "--offline=true", copy.to_str().unwrap()]).unwrap();
        let said = String::from_utf8(said).unwrap();
        let level = said.rsplit_once("cotenant.service: ").and_then(|(_, level)| level.split(' ').next());
        let told = told.replace("LEVEL", level.unwrap_or_else(|| panic!("{said}")));
        assert!(page.contains(&told), "the page does not say: {told}");
    }
}

/// Holds daemon/pause.
#[test]
fn what_was_learnt_by_another_version_is_refused_by_name() {
    let world = World::new("daemon-state");
    world.configure("[[rule]]\nname = \"all\"\nmatch = { command = \"$DIR/*\" }\n");
    fs::create_dir_all(world.path("data/cotenant")).unwrap();
    let file = world.path("data/cotenant/daemon.json");
    for (text, remark) in [
        (&b"{\"version\":99}"[..], Some("daemon.json: its version is 99, and 1 is read; it is left out")),
        (b"{\"version\":", Some("daemon.json: EOF")),
        (b"{\"version\":1,\xff", Some("daemon.json: it is not text in UTF-8")),
        (b"{\"version\":1,\"interference\":{}}", None),
    ] {
        fs::write(&file, text).unwrap();
        let daemon = world.daemon();
        signal("TERM", daemon.pid());
        let (said, code) = daemon.end();
        assert_eq!(code, Some(0));
        match remark {
            Some(remark) => assert!(said.contains(remark), "{said}"),
            None => assert!(!said.contains("WARN"), "{said}"),
        }
        let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(kept["version"], 1);
    }
}
