//! Running programs, as named by users.

use cotenant_linux::sense::processes::{self, Target};
use cotenant_setup::names;
use std::path::{Path, PathBuf};

/// A message why these cannot be managed; `None` if they can.
pub(crate) fn missing(target: &Target) -> Option<String> {
    match target {
        Target::Pids(pids) | Target::Trees(pids) => {
            let gone = pids.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists());
            gone.map(|pid| format!("there is no process {pid}"))
        }
        Target::Cgroup(path) => {
            let group = path.display();
            match processes::domain_of(path) {
                Ok(None) => None,
                Ok(Some(domain)) => Some(format!(
                    "{group} is a threaded control group, which has threads of processes and no processes; give {}",
                    domain.display()
                )),
                Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                    Some(format!("there is no control group {group}; name its folder, such as /sys/fs/cgroup/my.slice"))
                }
                Err(why) => Some(format!("the processes of control group {group} cannot be listed: {why}")),
            }
        }
    }
}

/// Why none of the named processes may be managed; `None` if one may.
pub(crate) fn unmanageable(target: &Target, all_users: bool) -> Option<String> {
    let (Target::Pids(pids) | Target::Trees(pids)) = target else { return None };
    let why_not = |pid: &u32| processes::can_manage(*pid, all_users).err().map(|why| format!("process {pid} {why}"));
    let all: Option<Vec<String>> = pids.iter().map(why_not).collect();
    all.filter(|all| !all.is_empty()).map(|all| all.join("; "))
}

/// A remark if some of it may request a deadline policy.
pub(crate) fn deadlines(target: &Target) -> Option<&'static str> {
    target.pids().into_iter().any(processes::may_ask_for_deadline).then_some(
        "the kernel refuses SCHED_DEADLINE to threads that are placed, for it takes the right to all CPUs; threads that \
         have it already are left alone",
    )
}

/// The target for people.
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

/// The name of a single process, or the last folder of a control group.
pub(crate) fn name(target: &Target) -> Option<String> {
    let name = match target {
        Target::Pids(pids) | Target::Trees(pids) if pids.len() == 1 => names::of_process(pids[0]),
        Target::Cgroup(path) => Some(names::base(path)),
        Target::Pids(_) | Target::Trees(_) => None,
    };
    name.filter(|name| !name.is_empty())
}
