//! The level of the control groups at which a low-priority program gives way, in the test's own tree.

use crate::world::{self, State, signal};
use cotenant_testing::{eventually, spawn_fresh};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// `TREE/system` with a program to protect, and `TREE/user`, where Cotenant is started.
struct Tree {
    path: PathBuf,
    high: Child,
}

impl Tree {
    /// `None`, reported, if it cannot be made.
    fn plant(test: &str) -> Option<Self> {
        let found = Self::place().map(|mount| mount.join(format!("{test}-{}", std::process::id())));
        let made = found.filter(|path| {
            let folders = [path.clone(), path.join("system"), path.join("user")];
            let made = folders.iter().all(|folder| fs::create_dir(folder).is_ok());
            let _ = fs::write(path.join("cgroup.subtree_control"), "+cpu"); // only with version 2
            made && path.join("user/cpu.idle").exists()
        });
        let Some(path) = made else {
            world::skip("no control group with the cpu controller and cpu.idle can be made here");
            return None;
        };
        let high = spawn_fresh(&mut in_group(&path.join("system"), "exec sleep 1000"));
        Some(Self { path, high })
    }

    fn place() -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let has_cpu = |fields: &Vec<&str>| match fields[2] {
            "cgroup" => fields[3].split(',').any(|option| option == "cpu"),
            "cgroup2" => fs::read_to_string(Path::new(fields[1]).join("cgroup.subtree_control"))
                .is_ok_and(|all| all.split_whitespace().any(|name| name == "cpu")),
            _ => false,
        };
        Some(PathBuf::from(fields.into_iter().find(has_cpu)?[1]))
    }

    fn cotenant(&self, state: &State, low: &[&str]) -> Child {
        let pid = self.high.id().to_string();
        let words = ["qos", "-v", "--high-pid", &pid, "--metric", "cmd:echo 100,every=100ms,higher"];
        let first = format!("echo $$ >{}/user/cgroup.procs", self.path.display());
        let mut command = state.cotenant_after(&first, &[&words, low].concat());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Folders of Cotenant directly in that group.
    fn ours(&self, group: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path.join(group)).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("cotenant-")).collect()
    }

    /// Waits for the idle group; returns its member.
    fn idle(&self) -> u32 {
        let mut member = None;
        eventually("the group of the program is idle where the ways part", || {
            let mut ours = self.ours("").into_iter().filter(|group| read(&group.join("cpu.idle")) == "1");
            member = ours.find_map(|group| read(&group.join("cgroup.procs")).parse().ok());
            member.is_some()
        });
        member.unwrap()
    }

    fn is_bare(&self) -> bool {
        ["", "user", "system"].iter().all(|group| self.ours(group).is_empty())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = self.high.kill();
        let _ = self.high.wait();
        // Processes left by a failed test.
        for pid in read(&self.path.join("user/cgroup.procs")).lines() {
            let _ = Command::new("kill").args(["-9", pid]).status();
        }
        let folders = [self.path.join("system"), self.path.join("user"), self.path.clone()];
        eventually("the tree goes", || folders.iter().all(|folder| fs::remove_dir(folder).is_ok() || !folder.exists()));
    }
}

fn in_group(group: &Path, run: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("echo $$ >{}/cgroup.procs && {run}", group.display())]);
    command
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn said(cotenant: Child) -> String {
    let Output { stderr, .. } = cotenant.wait_with_output().unwrap();
    String::from_utf8(stderr).unwrap()
}

/// Holds qos/background.
#[test]
fn the_group_is_where_the_ways_part_and_goes_however_cotenant_ends() {
    let Some(tree) = Tree::plant("cotenant-test-level") else { return };
    for way in ["stop", "alone", "both"] {
        let state = State::new("level");
        let mut cotenant = tree.cotenant(&state, &["--low", "exec sleep 1000 2>/dev/null"]);
        let low = tree.idle();
        assert_eq!(tree.ours("user"), [""; 0].map(PathBuf::from), "beside that of the service, not below ours");
        let children = read(Path::new(&format!("/proc/{0}/task/{0}/children", cotenant.id())));
        let is_guardian = |pid: &&str| read(Path::new(&format!("/proc/{pid}/comm"))) == "cotenant-guard";
        let guardian = children.split(' ').find(is_guardian).unwrap().to_owned();
        match way {
            "stop" => signal("TERM", cotenant.id()),
            "alone" => cotenant.kill().unwrap(),
            _ => {
                let both = [&*guardian, &cotenant.id().to_string()];
                assert!(Command::new("kill").arg("-9").args(both).status().unwrap().success());
            }
        }
        let text = said(cotenant);
        if way == "both" {
            assert!(!tree.is_bare(), "somebody else undid it");
            assert!(state.cotenant(&["restore"]).status().unwrap().success());
        }
        eventually(&format!("{way}: its group goes: {text}"), || tree.is_bare());
        if way != "stop" {
            let members = read(&tree.path.join("user/cgroup.procs"));
            assert!(members.lines().any(|pid| pid == low.to_string()), "{way}: it runs on where it came from");
            signal("KILL", low);
        }
        assert_eq!(state.journals(), 0, "{way}");
    }
}

/// It may not be moved, and is not alone in the branch that would have to be idle.
/// Holds qos/background.
#[test]
fn where_the_background_has_no_effect_that_is_said_by_the_names_of_both() {
    let Some(tree) = Tree::plant("cotenant-test-parted") else { return };
    let state = State::new("parted");
    let mut low = spawn_fresh(&mut in_group(&tree.path.join("user"), "exec tail -f /dev/null"));
    let pid = low.id().to_string();
    let cotenant = tree.cotenant(&state, &["--low-pid", &pid, "--time", "3s"]);
    let text = said(cotenant);
    let group = |name: &str| format!("{}/{name}", tree.path.file_name().unwrap().to_string_lossy());
    let line = format!("tail runs in {}, sleep in {}: the background has no effect", group("user"), group("system"));
    assert!(text.contains(&line), "{text}");
    assert!(!text.contains("SCHED_IDLE") && !text.contains("autogroup"), "it counts as one all the same: {text}");
    low.kill().unwrap();
    low.wait().unwrap();
    assert!(tree.is_bare());
}
