//! The store of profiles for a user.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-profiles-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
        command.env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", &self.0);
        command.args(args).stdin(Stdio::null()).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

const APPS: &str = "\
version = 1
[app.web]
bus_per_ms = 1000
sharing = 0.5
footprint_per_ms = 100
latency_sensitive = true
[app.batch]
bus_per_ms = 9000
footprint_per_ms = 4000
[app.batch.stamp.executable]
path = '/usr/bin/batch'
build_id = '0123456789abcdef'
";

/// Holds measure/profiles.
#[test]
fn profiles_go_out_and_come_back() {
    let folder = Folder::new("round");
    assert!(folder.ok(&["profiles", "list"]).contains("no profiles in "));
    let file = folder.file("apps.toml", APPS);
    folder.ok(&["profiles", "import", &file]);
    let list: Value = serde_json::from_str(&folder.ok(&["profiles", "list", "--json"])).unwrap();
    let keys: Vec<&str> = list.as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["batch@01234567", "web"]);
    assert!(list[0]["stale"][0].as_str().is_some_and(|why| why.starts_with("processor was ''")), "{list}");
    let all = folder.ok(&["profiles", "export"]);
    let other = Folder::new("other");
    other.ok(&["profiles", "import", &other.file("all.toml", &all)]);
    assert_eq!(other.ok(&["profiles", "export"]), all);
    assert!(folder.ok(&["profiles", "show", "batch"]).contains("bus_per_ms = 9000"));
    folder.ok(&["profiles", "rm", "batch", "web"]);
    assert!(folder.ok(&["profiles", "list"]).contains("no profiles"));
    // For an unknown name, all known ones; for a wrong file, the place.
    let out = other.run(&["profiles", "show", "cron"]);
    assert!(out.status.code() == Some(2) && stderr(&out).contains("there are batch@01234567, web"), "{}", stderr(&out));
    let out = other.run(&["profiles", "import", &other.file("bad.toml", "[app.a]\nsharing = 2\n")]);
    assert!(
        out.status.code() == Some(2) && stderr(&out).contains("bad.toml:2:11: sharing of app a is 2"),
        "{}",
        stderr(&out)
    );
}

/// Holds measure/profiles.
#[test]
fn policies_find_what_is_stored() {
    let folder = Folder::new("found");
    let file = folder.file("apps.toml", APPS);
    let machine = folder.file(
        "m.toml",
        &include_str!("../../../../machines/clovertown-2s.toml").replacen(
            "[sources]",
            "[heuristic]\nsharing = 0.4\nfootprint_per_ms = 4000\n\n[sources]",
            1,
        ),
    );
    let snapshot = folder.file(
        "now.json",
        r#"{"interval_s":0.1,"tasks":[{"id":1,"app":"web","cpu":0},{"id":2,"app":"web","cpu":4},{"id":3,"app":"batch","cpu":1}]}"#,
    );
    let decide = ["decide", "--machine", &machine, "--snapshot", &snapshot, "--policy", "heuristic"];
    let out = folder.run(&decide);
    assert!(stderr(&out).contains("no application is marked"), "nothing is stored yet: {}", stderr(&out));
    folder.ok(&["profiles", "import", &file, "--machine", "clovertown-2s"]);
    let stored = folder.ok(&decide);
    assert!(stored.contains("task 1") || stored.contains("task 2"), "{stored}");
    // web's bus usage is above batch's now: its memory path is spread instead of shared.
    let named = folder.file("named.toml", &APPS.replace("1000", "99_000"));
    assert_ne!(folder.ok(&[&decide[..], &["--profiles", &named]].concat()), stored);
    // A live command: stored profiles are used by a policy that needs them, and a stale profile of the command is
    // reported.
    folder.ok(&[
        "profiles",
        "import",
        &folder.file("sh.toml", "[app.sh.stamp]\ndate = '2020'\n[app.sh.per_cpu_s]\ncycles = 1e9\n"),
    ]);
    let out = folder.run(&["run", "--policy", "heuristic", "--", "sh", "-c", "exit 0"]);
    assert!(
        stderr(&out).contains("the profile of sh (") && stderr(&out).contains("is stale: the processor"),
        "{}",
        stderr(&out)
    );
    let out = folder.run(&["run", "-q", "--policy", "none", "--", "sh", "-c", "exit 0"]);
    assert_eq!(stderr(&out), "", "none wants no profiles");
}

/// Example (b) of `ReSense` §2.3 through the command line, and a simulation with what is stored for its machine.
#[test]
fn resense_maps_by_stored_scores() {
    let folder = Folder::new("resense");
    let score = |app: &str, score: f64| {
        format!("[app.{app}.sensitivity.l2]\nscore = {score}\nlow = {score}\nhigh = {score}\nby = 'cycles'\n")
    };
    let apps = folder.file("apps.toml", &(score("a", 9.0) + &score("b", -5.0)));
    folder.ok(&["profiles", "import", &apps, "--machine", "yorkfield"]);
    let tasks = r#"{"id":1,"app":"a","cpu":1},{"id":2,"app":"a","cpu":2},{"id":3,"app":"b","cpu":0},{"id":4,"app":"b","cpu":3}"#;
    let snapshot = folder.file("now.json", &format!(r#"{{"interval_s":0.1,"tasks":[{tasks}]}}"#));
    let decide =
        ["decide", "--machine", "yorkfield", "--snapshot", &snapshot, "--policy", "resense", "--pin", "cpu", "--json"];
    let answer: Value = serde_json::from_str(&folder.ok(&decide)).unwrap();
    let l2_of = |task: u64| {
        let of_task = answer["moves"].as_array().unwrap().iter().find(|m| m["task"] == task).unwrap();
        of_task["to_cpus"][0].as_u64().unwrap() / 2
    };
    assert!(l2_of(1) == l2_of(2) && l2_of(3) == l2_of(4) && l2_of(1) != l2_of(3), "{answer}");
    let scenario = "machine = 'yorkfield'\n[[app]]\nname = 'a'\nprogram = 'mcf06'\nthreads = 2\nwork_s = 0.5\n";
    let out =
        folder.run(&["sim", &folder.file("s.toml", scenario), "--policy", "none,resense", "--seeds", "2", "--json"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let result: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(result["policies"][1]["name"], "resense", "{result}");
}

/// Who is sensitive gets quieter company, so the batch runs otherwise.
#[test]
fn das_finds_who_is_sensitive_in_the_store() {
    let folder = Folder::new("das");
    let programs = ["mcf06", "milc06", "povray06", "lbm06", "namd06", "gcc06", "libquantum06", "omnetpp06"];
    let apps = programs.map(|p| format!("[[app]]\nprogram = '{p}'\nwork_s = 1\n")).concat();
    let scenario = folder.file("s.toml", &format!("machine = 'x3320'\n{apps}"));
    let sim = || folder.ok(&["sim", &scenario, "--policy", "das", "--seeds", "1", "--csv"]);
    let unknown = sim();
    let profiles =
        folder.file("apps.toml", "[app.mcf06]\naverage_traffic_loss = 0.5\n[app.gcc06]\naverage_traffic_loss = 0.3\n");
    folder.ok(&["profiles", "import", &profiles, "--machine", "x3320"]);
    assert_ne!(sim(), unknown);
}

/// What a profile marks as latency-sensitive is what `atom` learns for.
/// Holds measure/profiles.
#[test]
fn atom_learns_for_the_one_that_is_marked_in_the_store() {
    let scenario = "machine = 'clovertown-2s'\npolicy = { pin = 'cpu', atom = 'turn=200ms' }\n\
        [[app]]\nname = 'web'\nprogram = 'bigtable'\nthreads = 4\nwork_s = 40\n\
        [[app]]\nname = 'batch'\nprogram = 'contentAnalyzer'\nthreads = 4\nwork_s = 40\n";
    let times = |marked: &str| {
        let folder = Folder::new(&format!("atom-{marked}"));
        let profile = folder.file("apps.toml", &format!("[app.{marked}]\nlatency_sensitive = true\n"));
        folder.ok(&["profiles", "import", &profile, "--machine", "clovertown-2s"]);
        let scenario = folder.file("s.toml", scenario);
        let found = folder.ok(&["sim", &scenario, "--policy", "atom", "--seeds", "1", "--json"]);
        let found: Value = serde_json::from_str(&found).unwrap();
        let time = |app: usize| found["policies"][0]["apps"][app]["time_s"].as_f64().unwrap();
        [time(0), time(1)]
    };
    let [for_web, for_batch] = ["web", "batch"].map(times);
    assert!(for_web[0] < for_batch[0] && for_web[1] > for_batch[1], "{for_web:?} {for_batch:?}");
}

/// Killed at 30 random moments while it measures and stores, and while it stores only.
/// Holds measure/store.
#[test]
fn killed_at_any_moment_the_store_is_whole() {
    let folder = Folder::new("killed");
    folder.ok(&["profiles", "import", &folder.file("apps.toml", APPS)]);
    let many: Vec<String> = (0..200).map(|i| format!("[app.many{i}]\nbus_per_ms = {i}\n")).collect();
    let many = folder.file("many.toml", &many.concat());
    let measure = ["characterize", "-q", "-n", "web", "--runs", "1", "--only", "sensitivity", "--", "sleep", "0.03"];
    let store = ["profiles", "import", &many];
    let mut random = 1_u64;
    let mut ended = 0;
    for round in 0..30 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let args: &[&str] = if round % 2 == 0 { &measure } else { &store };
        let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
        command.args(args).env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", &folder.0);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moment = Instant::now() + Duration::from_micros((random >> 33) % 120_000);
        while Instant::now() < moment && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        ended += u32::from(child.wait().unwrap().success());
        // Nothing is damaged, nothing is lost, and the lock is free.
        let out = folder.run(&["profiles", "list", "--json"]);
        let list: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(out.status.success() && stderr(&out).is_empty(), "{round}: {}", stderr(&out));
        let web = list.as_array().unwrap().iter().find(|row| row["app"] == "web").unwrap();
        assert_eq!(web["key"], "web", "{round}");
    }
    eprintln!("{ended} of 30 had ended before they were killed");
    assert!(folder.ok(&["profiles", "show", "web"]).contains("latency_sensitive = true"));
    folder.ok(&measure);
    folder.ok(&store);
}
