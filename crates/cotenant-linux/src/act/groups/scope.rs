//! Groups created by systemd for us, because its slices and their siblings are its own.
//!
//! It creates a scope around an existing process, and removes it with the last one. So an idle process holds it until
//! the program runs, and ends with us.

use crate::act::level::slice;
use crate::bounded::{self, Limit};
use crate::sys;
use crate::sys::launch;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of systemd.
const PATIENCE: Duration = Duration::from_secs(10);

/// The systemd instance that manages the groups in a folder, and their slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// The user's instance, not the system's.
    own: bool,
    slice: String,
}

impl Manager {
    /// For the groups in `around`, if it serves this user; `None`: any permitted process creates groups there.
    pub fn of(mount: &Path, around: &Path, runs: bool, uid: u32) -> Option<Self> {
        let parts: Vec<&Path> = around.strip_prefix(mount).ok()?.iter().map(Path::new).collect();
        let service = format!("user@{uid}.service");
        let own = parts.iter().position(|part| *part == Path::new(&service));
        let inside: PathBuf = parts.iter().skip(own.map_or(0, |at| at + 1)).collect();
        let slice = slice(mount, &mount.join(inside))?;
        (runs && (own.is_some() || uid == 0)).then_some(Self { own: own.is_some(), slice })
    }

    /// The same on this machine.
    pub fn here(mount: &Path, around: &Path) -> Option<Self> {
        Self::of(mount, around, Path::new("/run/systemd/system").is_dir(), sys::euid())
    }

    /// Makes it create a scope with that folder, whose name ends in `.scope`.
    ///
    /// # Errors
    /// Its error.
    pub fn make(&self, program: &str, folder: &Path) -> Result<Holder, String> {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut command = Command::new(program);
        if self.own {
            command.arg("--user");
        }
        command.args(["--scope", "--quiet", "--collect", "--unit", name, "--slice", &self.slice]);
        command.args(["-p", "CPUWeight=100", "-p", "Delegate=yes", "--", "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        launch::as_from_outside(&mut command);
        let child = command.spawn().map_err(|why| format!("{program}: {why}"))?;
        let mut holder = Holder(child);
        let is_inside = |pid: u32| {
            // It may not exist yet.
            let members = bounded::text(folder.join("cgroup.procs"), Limit::Ids);
            members.is_ok_and(|members| members.lines().any(|line| line.parse() == Ok(pid)))
        };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if is_inside(holder.0.id()) {
                return Ok(holder);
            }
            if !matches!(holder.0.try_wait(), Ok(None)) {
                let stderr = holder.0.stderr.take();
                let said = stderr.map(|mut stderr| bounded::rest(&mut stderr, Limit::Value));
                return Err(match said {
                    Some(Ok(said)) => format!("{program}: {}", String::from_utf8_lossy(&said).trim()),
                    Some(Err(why)) => format!("{program} has failed, and what it said cannot be read: {why}"),
                    None => format!("{program} has failed"),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("{program} has made no {} in {} s", folder.display(), PATIENCE.as_secs()))
    }
}

/// The words that start an ordinary user's command in a scope of the user's own manager, if that has the cpu controller
/// by delegation: then groups can be created beside it. `None` otherwise, or if `uid` is root.
pub fn own_scope(root: &Path, mount: &Path, uid: u32) -> Option<[&'static str; 8]> {
    let service = mount.join(format!("user.slice/user-{uid}.slice/user@{uid}.service"));
    let controllers = bounded::text(service.join("cgroup.controllers"), Limit::Value).ok()?;
    let delegated = controllers.split_whitespace().any(|name| name == "cpu");
    let listens = root.join(format!("run/user/{uid}/systemd/private")).exists();
    let words = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "-p", "CPUWeight=100", "--"];
    (uid != 0 && delegated && listens).then_some(words)
}

/// A process that holds a scope; it ends on drop.
#[derive(Debug)]
pub struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait(); // another reaper may have been faster
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::fs;

    /// Holds qos/background.
    #[test]
    fn slices_are_asked_of_the_systemd_whose_they_are() {
        let user = "/c/user.slice/user-7.slice/user@7.service";
        for (around, uid, found) in [
            ("/c", 0, Some((false, "-.slice"))),
            ("/c/system.slice", 0, Some((false, "system.slice"))),
            ("/c/user.slice/user-0.slice", 0, Some((false, "user-0.slice"))),
            // Other users may not request it, and delegated groups belong to their user.
            ("/c/system.slice", 7, None),
            ("/c/system.slice/docker.service", 0, None),
            ("/c/mine", 0, None),
            (user, 7, Some((true, "-.slice"))),
            (&format!("{user}/app.slice"), 7, Some((true, "app.slice"))),
            (&format!("{user}/app.slice/x.scope"), 7, None),
            (user, 8, None),
            (user, 0, None),
        ] {
            let manager = Manager::of("/c".as_ref(), around.as_ref(), true, uid);
            let found = found.map(|(own, slice)| Manager { own, slice: slice.to_owned() });
            assert_eq!(manager, found, "{around} {uid}");
            assert_eq!(Manager::of("/c".as_ref(), around.as_ref(), false, uid), None, "no systemd runs");
        }
    }

    #[test]
    fn an_ordinary_user_has_scopes_where_his_manager_has_the_cpu_controller() {
        let machine = TempDir::new("own-scope");
        let root = machine.path();
        let found = |uid| own_scope(root, &root.join("c"), uid).is_some();
        let controllers = "c/user.slice/user-7.slice/user@7.service/cgroup.controllers";
        assert!(!found(7), "he has no manager");
        machine.write(controllers, "memory pids\n");
        machine.write("run/user/7/systemd/private", "");
        assert!(!found(7), "it has no such controller");
        machine.write(controllers, "cpu memory pids\n");
        assert!(found(7) && !found(8));
        fs::remove_file(root.join("run/user/7/systemd/private")).unwrap();
        assert!(!found(7), "it does not listen");
    }

    #[test]
    fn a_scope_is_held_until_the_program_runs_and_refusals_are_told() {
        let dir = TempDir::new("scope");
        let folder = dir.path().join("cotenant-1.scope");
        let asked = dir.path().join("asked");
        // As in systemd-run: it becomes the process around which the scope is created.
        let (folder_, asked_) = (folder.display(), asked.display());
        let script = format!(
            "#!/bin/sh\necho \"$@\" >{asked_}\n[ ! -e {folder_} ] || {{ echo 'there is one' >&2; exit 1; }}\n\
             mkdir {folder_}\necho $$ >{folder_}/cgroup.procs\nexec cat\n"
        );
        dir.write("systemd-run", script);
        let program = dir.path().join("systemd-run");
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let manager = Manager { own: true, slice: "app.slice".to_owned() };
        let holder = manager.make(program.to_str().unwrap(), &folder).unwrap();
        let said = fs::read_to_string(&asked).unwrap();
        assert!(
            said.contains("--user --scope") && said.contains("--unit cotenant-1.scope --slice app.slice"),
            "{said}"
        );
        let pid = holder.0.id();
        drop(holder);
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it is left behind");
        let why = manager.make(program.to_str().unwrap(), &folder).unwrap_err();
        assert!(why.ends_with("there is one"), "{why}");
        let why = manager.make("/nowhere/systemd-run", &folder).unwrap_err();
        assert!(why.contains("/nowhere/systemd-run"), "{why}");
    }
}
