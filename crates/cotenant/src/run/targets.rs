//! Programs that already run, as users name them.

use cotenant_linux::sense::processes::Target;
use cotenant_setup::names;
use std::path::{Path, PathBuf};

/// What is missing, as a message; `None` where everything is there.
pub(crate) fn missing(target: &Target) -> Option<String> {
    match target {
        Target::Pids(pids) | Target::Trees(pids) => {
            let gone = pids.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists());
            gone.map(|pid| format!("there is no process {pid}"))
        }
        Target::Cgroup(path) => (!path.join("cgroup.procs").exists()).then(|| {
            format!("there is no control group {}; name its folder, such as /sys/fs/cgroup/my.slice", path.display())
        }),
    }
}

/// What is attached to, for people.
pub(crate) fn shown(target: &Target) -> String {
    match target {
        Target::Pids(pids) | Target::Trees(pids) => {
            let one = |pid: &u32| {
                let name = names::of_process(*pid).filter(|name| !name.is_empty());
                name.map_or_else(|| pid.to_string(), |name| format!("{name} ({pid})"))
            };
            pids.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Target::Cgroup(path) => format!("control group {}", path.display()),
    }
}

/// The name and the executable of a single process.
pub(crate) fn program(target: &Target) -> Option<(String, PathBuf)> {
    let (Target::Pids(pids) | Target::Trees(pids)) = target else { return None };
    let [pid] = pids[..] else { return None };
    Some((names::of_process(pid)?, std::fs::read_link(format!("/proc/{pid}/exe")).ok()?))
}

/// The name of a process that is alone, or the last folder of a control group.
pub(crate) fn name(target: &Target) -> Option<String> {
    let name = match target {
        Target::Pids(pids) | Target::Trees(pids) if pids.len() == 1 => names::of_process(pids[0]),
        Target::Cgroup(path) => Some(names::base(path)),
        Target::Pids(_) | Target::Trees(_) => None,
    };
    name.filter(|name| !name.is_empty())
}
