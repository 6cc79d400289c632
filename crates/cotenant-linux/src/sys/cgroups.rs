//! The places of control groups.

use crate::bounded::{self, Limit};
use std::path::Path;

/// Mount points of a cgroup hierarchy: version 2, or the version 1 hierarchy with that controller.
pub fn mounts(root: &Path, v1_controller: Option<&str>) -> Vec<String> {
    let mounts =
        ["proc/self/mounts", "proc/mounts"].iter().find_map(|path| bounded::text(root.join(path), Limit::Machine).ok());
    mounts_in(&mounts.unwrap_or_default(), v1_controller)
}

/// Those in a table of mounts.
pub(crate) fn mounts_in(table: &str, v1_controller: Option<&str>) -> Vec<String> {
    let wanted = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let hit = match v1_controller {
            None => kind == "cgroup2",
            Some(controller) => kind == "cgroup" && options.split(',').any(|o| o == controller),
        };
        hit.then(|| place.trim_start_matches('/').to_owned())
    };
    table.lines().filter_map(wanted).collect()
}

/// Whether a hierarchy of version 2 has a controller; false if unreadable, because it is useless then.
pub fn has_controller(mount: &Path, controller: &str) -> bool {
    let all = bounded::text(mount.join("cgroup.controllers"), Limit::Value);
    all.is_ok_and(|all| all.split_whitespace().any(|name| name == controller))
}

/// This process's control group, from the root of the version 2 hierarchy (`None`) or of the version 1 hierarchy with
/// that controller.
pub fn own(root: &Path, v1_controller: Option<&str>) -> Option<String> {
    of(root, "self", v1_controller)
}

/// The same of any process.
pub fn of(root: &Path, pid: &str, v1_controller: Option<&str>) -> Option<String> {
    group_in(&bounded::text(root.join(format!("proc/{pid}/cgroup")), Limit::Value).ok()?, v1_controller)
}

/// The same from a list of groups.
pub(crate) fn group_in(groups: &str, v1_controller: Option<&str>) -> Option<String> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is = controllers.split(',').any(|name| name == v1_controller.unwrap_or_default());
        is.then(|| path.to_owned())
    })
}

/// The root group of a process's cgroup namespace from the real root; `None` if it is the real root. In a container
/// that sees the host's processes, other paths are relative to it: `/../pod-b/c` is a sibling.
///
/// `mount` shows all groups. Ours is the one with us as a member.
pub fn namespace(root: &Path, v1_controller: Option<&str>, mount: &Path) -> Option<String> {
    /// Limit of searched groups.
    const GROUPS: usize = 65_536;
    of(root, "1", v1_controller).filter(|path| path.starts_with("/.."))?;
    let own = own(root, v1_controller)?;
    let me = std::process::id().to_string();
    let mut folders = vec![mount.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        next += 1;
        // A threaded group has no processes, only our leading thread.
        let members = |file| bounded::text(folder.join(file), Limit::Machine);
        let has_us = |members: String| members.lines().any(|pid| pid == me);
        if members("cgroup.procs").or_else(|_| members("cgroup.threads")).is_ok_and(has_us) {
            let path = format!("/{}", folder.strip_prefix(mount).ok()?.display());
            return Some(path.strip_suffix(own.trim_end_matches('/'))?.to_owned()).filter(|root| !root.is_empty());
        }
        let Ok(inner) = std::fs::read_dir(&folder) else { continue }; // it has just been removed
        let inner =
            inner.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
        folders.extend(inner.take(GROUPS.saturating_sub(folders.len())));
    }
    None
}

/// A path from a cgroup namespace with that root, relative to the real root.
pub fn resolve(namespace: &str, path: &str) -> String {
    let mut parts: Vec<&str> = namespace.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    /// Holds cluster/containers.
    #[test]
    fn paths_of_a_namespace_are_told_from_the_real_root() {
        for (path, real) in [
            ("/", "/pods/a/x"),
            ("/inner", "/pods/a/x/inner"),
            ("/../y", "/pods/a/y"),
            ("/../../b/z", "/pods/b/z"),
            ("/../../../init.scope", "/init.scope"),
            ("/../../../../..", "/"),
        ] {
            assert_eq!(resolve("/pods/a/x", path), real, "{path}");
        }
    }

    /// Holds cluster/containers.
    #[test]
    fn the_root_of_our_namespace_is_found_by_who_is_there() {
        let machine = TempDir::new("cgroup-namespace");
        let (root, me) = (machine.path(), std::process::id());
        machine.write("proc/1/cgroup", "0::/../../../init.scope\n");
        machine.write("proc/self/cgroup", "0::/inner\n");
        machine.write("groups/cgroup.procs", "");
        machine.write("groups/pods/b/cgroup.procs", format!("{me}1\n"));
        let found = || namespace(root, None, &root.join("groups"));
        assert_eq!(found(), None, "we are nowhere");
        machine.write("groups/pods/a/inner/cgroup.procs", format!("1\n{me}\n"));
        assert_eq!(found().as_deref(), Some("/pods/a"));
        machine.write("proc/self/cgroup", "0::/\n");
        assert_eq!(found().as_deref(), Some("/pods/a/inner"));
        machine.write("proc/1/cgroup", "0::/init.scope\n");
        assert_eq!(found(), None, "we are in no namespace of our own");
    }
}
