//! The store of profiles as a user meets it.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-profiles-{name}-{}", std::process::id()));
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
    // Of an unknown name, all that is known; of a wrong file, the place.
    let out = other.run(&["profiles", "show", "cron"]);
    assert!(out.status.code() == Some(2) && stderr(&out).contains("there are batch@01234567, web"), "{}", stderr(&out));
    let out = other.run(&["profiles", "import", &other.file("bad.toml", "[app.a]\nsharing = 2\n")]);
    assert!(
        out.status.code() == Some(2) && stderr(&out).contains("bad.toml:2:11: sharing of app a is 2"),
        "{}",
        stderr(&out)
    );
}

#[test]
fn policies_find_what_is_stored() {
    let folder = Folder::new("found");
    let file = folder.file("apps.toml", APPS);
    let machine = folder.file(
        "m.toml",
        &include_str!("../../../machines/clovertown-2s.toml").replacen(
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
    // A live command: what is stored is looked up where the policy wants it, and a stale profile of the command is said.
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
