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
